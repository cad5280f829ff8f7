// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time that is kept free on every link: plans leave it, and the checker finds those that do not.

use timewire_base::Span;
use timewire_model::scenario::network::NetworkFile;
use timewire_plan::check::{Rule, check};
use timewire_plan::file::{self, FileProblem};
use timewire_plan::model::{Network, NetworkOptions, Plan, Problem, Reserve};
use timewire_plan::synth::{Budget, Options, Planner, plan};
use timewire_plan::words;
use timewire_tsn::file::ParseFile;

/// Talkers and listeners at two bridges in a line; `streams` of 984 bytes on the link, 7.872us.
fn line(reserve: &str, device: &str, streams: &[(&str, &str)]) -> String {
    let mut text = format!(
        "timewire: 1\nkind: network\nname: line\nduration: 10ms\nsync_error: 0ns\n{reserve}\n\
         stations: [{{ name: a, device: {device} }}, {{ name: b }}]\n\
         bridges: [{{ name: one, forward: 1us }}, {{ name: two, forward: 1us }}]\n\
         links:\n- {{ between: [a, one], rate: 1Gbit }}\n- {{ between: [one, two], rate: 1Gbit }}\n\
         - {{ between: [two, b], rate: 1Gbit }}\nstreams:\n"
    );
    for (number, (period, offset)) in streams.iter().enumerate() {
        text += &format!(
            "- {{ name: s{number}, talker: a, listeners: b, class: 7, size: 918B, \
             scheduled: true, kind: cyclic, period: {period}, offset: {offset} }}\n"
        );
    }
    text
}

const FREE: &str = "reserve: { period: 250us, duration: 40us }";

fn planned(text: &str) -> (FileProblem, Plan) {
    let network = NetworkFile::parse("test", text).unwrap_or_else(|errors| panic!("{errors}"));
    let given = file::problem(&network).unwrap();
    let found = plan(given.problem.clone(), Options::default(), 1_000_000);
    let report = check(&given.problem, &found).unwrap();
    assert_eq!(report.findings, [], "a plan holds");
    (given, found)
}

/// The same problem with something else kept free.
fn with(problem: &Problem, reserve: Option<Reserve>) -> Problem {
    let network = problem.network();
    let options = NetworkOptions { reserve, ..network.options() };
    let (nodes, links) = (network.nodes().to_vec(), network.links().to_vec());
    let network = Network::new(nodes, links, options).unwrap();
    Problem::new(network, problem.streams().to_vec()).unwrap()
}

#[test]
fn t0_nothing_planned_has_time_that_is_kept_free() {
    // Without it the first starts with the interval.
    let streams = [("250us", "0us"), ("500us", "0us"), ("1ms", "0us"), ("125us", "0us")];
    let (_, found) = planned(&line("", "{}", &streams));
    assert_eq!(found.admitted.len(), 4);
    assert!(found.admitted.iter().any(|it| it.transmissions[0].start == Span::ZERO));
    // A stream of 125us meets all that is kept free every 250us: it must begin after it, and end
    // before the next, as 125us fold.
    let (_, found) = planned(&line(FREE, "{}", &streams));
    assert_eq!(found.admitted.len(), 4);
    for sent in found.admitted.iter().flat_map(|it| &it.transmissions) {
        let at = sent.start.as_ns().rem_euclid(125_000);
        assert!((40_000..=125_000 - 7_872).contains(&at), "{sent:?}");
    }
    for window in found.gates.iter().flat_map(|gates| &gates.windows) {
        assert!(window.start.as_ns() % 250_000 >= 40_000, "{window:?}");
        assert!((window.end.as_ns() - 1) % 250_000 >= 40_000, "{window:?}");
    }
    // What divides no interval of a stream is kept free as well.
    let odd = "reserve: { period: 300us, duration: 20us }";
    let (_, found) = planned(&line(odd, "{}", &[("400us", "0us"), ("1ms", "0us")]));
    for admission in &found.admitted {
        let at = admission.transmissions[0].start.as_ns();
        assert!(at % 100_000 >= 20_000, "{at}");
    }
}

#[test]
fn t0_who_has_no_room_beside_it_is_refused_and_moves_nobody() {
    // 26 frames of 7.872us fill 204.7us of 250us. With 60us kept free on all three links at once,
    // of which the last comes some 19us after the first, starts from 60us to 223us are left: 21.
    let streams = vec![("250us", "0us"); 26];
    let (_, found) = planned(&line("", "{}", &streams));
    assert_eq!(found.refused.len(), 0);
    let less = "reserve: { period: 250us, duration: 60us }";
    let (given, found) = planned(&line(less, "{}", &streams));
    assert_eq!((found.admitted.len(), found.refused.len()), (21, 5));
    let why = words::reason(&given.problem, &found.refused[0].certificate);
    assert!(why.contains("no reservation was found"), "{why}");
    // One that is longer than what is left between two such times.
    let all = "reserve: { period: 50us, duration: 45us }";
    let (_, found) = planned(&line(all, "{}", &[("250us", "0us"), ("1ms", "0us")]));
    assert_eq!(found.refused.len(), 2);
    // Added one at a time it is the same.
    let (given, _) = planned(&line(less, "{}", &streams));
    let mut planner = Planner::new(given.problem.clone(), Options::default());
    planner.run(&mut Budget { work: 1_000_000, go_on: &mut |_| true });
    let stream = given.problem.streams()[0].clone();
    let stream = timewire_plan::model::Stream { name: "more".to_owned(), ..stream };
    let change = planner.add(stream, 8).unwrap();
    assert!(matches!(change, timewire_plan::synth::Change::Refused(_)), "{change:?}");
    let found = planner.plan();
    assert_eq!(check(planner.problem(), &found).unwrap().findings, []);
}

#[test]
fn t0_windows_that_a_device_joins_do_not_go_over_it() {
    // One window for both would have what is kept free in it.
    let streams = [("500us", "60us"), ("500us", "300us")];
    let (given, found) = planned(&line(FREE, "i226", &streams));
    let text = line("", "i226", &streams);
    assert_eq!(planned(&text).1.refused.len(), 0);
    assert!(found.admitted.len() < 2 || found.gates[0].windows.len() == 1);
    for refused in &found.refused {
        let why = words::reason(&given.problem, &refused.certificate);
        assert!(why.contains("a>one (I226)") && why.contains("keeps free"), "{why}");
    }
}

#[test]
fn t0_a_plan_that_uses_what_is_kept_free_is_found() {
    let (given, found) = planned(&line("", "{}", &[("250us", "0us"), ("1ms", "0us")]));
    let free =
        |every, lasts| Some(Reserve { every: Span::from_us(every), lasts: Span::from_us(lasts) });
    let rules = |reserve| {
        let report = check(&with(&given.problem, reserve), &found).unwrap();
        let mut rules: Vec<Rule> = report.findings.iter().map(|it| it.rule).collect();
        rules.dedup();
        (report.findings.len(), rules)
    };
    assert_eq!(rules(None), (0, Vec::new()));
    let (count, all) = rules(free(250, 5));
    assert_eq!(all, [Rule::Reserve]);
    // On the first link: a frame, and its window in each of four intervals.
    assert!(count >= 2, "{count}");
    assert_eq!(rules(free(7, 1)).1, [Rule::Reserve]);
    // After everything that is sent on the three links.
    let mut later = given.problem.streams().to_vec();
    for stream in &mut later {
        stream.release.earliest = Span::from_us(10);
    }
    let problem = Problem::new(given.problem.network().clone(), later).unwrap();
    let found = plan(problem.clone(), Options::default(), 1_000_000);
    let report = check(&with(&problem, free(250, 10)), &found).unwrap();
    assert_eq!(report.findings, []);
}

#[test]
fn t0_what_keeps_nothing_or_everything_is_refused() {
    for (reserve, key) in [
        ("reserve: { period: 1ms, duration: 0us }", "reserve.duration"),
        ("reserve: { period: 1ms, duration: 1ms }", "reserve.duration"),
        ("reserve: { period: 1ms }", "`duration` is missing"),
    ] {
        let text = line(reserve, "{}", &[("1ms", "0us")]);
        let errors = NetworkFile::parse("test", &text).expect_err(reserve).to_string();
        assert!(errors.contains(key), "{reserve}: {errors}");
    }
    let nothing = Reserve { every: Span::from_us(1), lasts: Span::from_us(1) };
    let (given, _) = planned(&line("", "{}", &[("1ms", "0us")]));
    let network = given.problem.network();
    let options = NetworkOptions { reserve: Some(nothing), ..network.options() };
    let (nodes, links) = (network.nodes().to_vec(), network.links().to_vec());
    assert!(Network::new(nodes, links, options).is_err());
}
