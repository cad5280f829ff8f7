// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices that are known by name: plans keep the limits of each, and what is refused names it.

use std::fmt::Write;

use timewire_base::Span;
use timewire_model::scenario::network::{DeviceModel, NetworkFile};
use timewire_plan::check::check;
use timewire_plan::file::{self, FileProblem, RenderError, Rendered};
use timewire_plan::model::{DeviceLimits, LinkId, Plan, PortGates};
use timewire_plan::synth::{Options, plan};
use timewire_plan::words;
use timewire_tsn::file::ParseFile;

/// Four stations at a bridge; the first talks to the others, as often as `periods` says.
fn star(station: &str, bridge: &str, rate: &str, periods: &[&str]) -> String {
    let mut text = format!(
        "timewire: 1\nkind: network\nname: star\nduration: 10ms\n\
         stations: [{{ name: a, device: {station} }}, {{ name: b }}, {{ name: c }}, \
         {{ name: d }}]\n\
         bridges: [{{ name: br, forward: 2us, device: {bridge} }}]\nlinks:\n"
    );
    for name in ["a", "b", "c", "d"] {
        let _ = writeln!(text, "- {{ between: [{name}, br], rate: {rate} }}");
    }
    text += "streams:\n";
    for (number, period) in periods.iter().enumerate() {
        let to = ["b", "c", "d"][number % 3];
        let offset = 40 * number;
        let _ = writeln!(
            text,
            "- {{ name: s{number}, talker: a, listeners: {to}, class: 7, size: 200B, kind: \
             cyclic, period: {period}, offset: {offset}us, scheduled: true }}"
        );
    }
    text
}

fn planned(text: &str) -> (NetworkFile, FileProblem, Plan) {
    let network = NetworkFile::parse("test", text).unwrap_or_else(|errors| panic!("{errors}"));
    let given = file::problem(&network).unwrap();
    let found = plan(given.problem.clone(), Options::default(), 1_000_000);
    let report = check(&given.problem, &found).unwrap();
    assert_eq!(report.findings, [], "a plan holds");
    (network, given, found)
}

fn limits(given: &FileProblem, name: &str) -> DeviceLimits {
    let nodes = given.problem.network().nodes();
    nodes.iter().find(|node| node.name == name).unwrap().limits
}

fn gates(plan: &Plan, link: usize) -> &PortGates {
    plan.gates.iter().find(|gates| gates.link == LinkId::from_index(link)).unwrap()
}

fn text_of<'a>(files: &'a [Rendered], name: &str) -> &'a str {
    &files.iter().find(|file| file.name == name).unwrap_or_else(|| panic!("{name}")).text
}

const OFTEN: [&str; 9] = ["250us", "500us", "1ms", "2ms", "500us", "1ms", "250us", "4ms", "1ms"];

/// As many as a list of `tc` has room for.
const PERIODS: [&str; 4] = ["500us", "1ms", "2ms", "1ms"];

#[test]
fn t0_every_device_has_limits_and_says_where_they_are_written() {
    for model in DeviceModel::ALL {
        let profile = model.profile();
        assert!(profile.source.contains("linux v") && !profile.source.contains("  "), "{model}");
        assert_eq!(model.to_string(), profile.title);
        // By its word alone, and with its key.
        let word = model.word();
        let short = star("{}", word, "1Gbit", &["1ms"]);
        let long = star("{}", &format!("{{ model: {word} }}"), "1Gbit", &["1ms"]);
        let [short, long] = [short, long].map(|text| NetworkFile::parse("test", &text).unwrap());
        assert_eq!(short, long);
        let again = NetworkFile::parse("again", &short.to_json().to_string());
        assert_eq!(again.unwrap(), short);
    }
}

#[test]
fn t0_plans_keep_the_limits_of_every_switch_and_nic() {
    for model in DeviceModel::ALL {
        let word = model.word();
        // The checker goes through all limits; who talks at instants is asked of NICs only.
        let (_, given, plan) = planned(&star("{}", word, "1Gbit", &OFTEN));
        let own = limits(&given, "br");
        assert_eq!(own.device, Some(model.profile().title));
        assert_eq!(plan.admitted.len(), OFTEN.len(), "{word}");
        for gates in plan.gates.iter().filter(|it| it.link.index() % 2 == 1) {
            let most = own.gate_entries.unwrap_or(u32::MAX);
            assert!(gates.entries <= most, "{word}: {gates:?}");
            let start = gates.windows[0].start.as_ns();
            assert_eq!(start % own.granularity.as_ns(), 0, "{word}");
        }
        let nic = planned(&star(word, "{}", "1Gbit", &OFTEN)).2;
        assert_eq!(nic.admitted.len(), OFTEN.len(), "{word}");
    }
}

#[test]
fn t0_software_needs_room_for_a_packet_at_the_slowest_link() {
    for (rate, least) in [("1Gbit", 480), ("100Mbit", 4_800), ("10Mbit", 48_000)] {
        let (_, given, _) = planned(&star("taprio", "taprio", rate, &["4ms"]));
        assert_eq!(limits(&given, "a").interval_min, Span::from_ns(least));
    }
    // Its own plans are what the kernel takes.
    let (network, given, plan) = planned(&star("taprio", "taprio", "100Mbit", &PERIODS));
    let files = file::render(&network, &given, &plan).unwrap();
    assert!(text_of(&files, "br.tc").contains(" taprio "));
    assert!(!text_of(&files, "br.tc").contains("flags 0x2"));
}

#[test]
fn t0_a_nic_with_launch_times_alone_sends_from_its_first_queues() {
    let (network, given, plan) = planned(&star("i210", "ls1028a", "1Gbit", &PERIODS));
    assert!(!plan.gates.iter().any(|gates| gates.link == LinkId::from_index(0)), "no gates");
    let files = file::render(&network, &given, &plan).unwrap();
    let lines = text_of(&files, "a.tc");
    assert!(lines.contains(" mqprio ") && lines.contains("queues 1@1 1@0"), "{lines}");
    assert!(lines.contains(" etf ") && lines.contains("delta 300000"), "{lines}");
    assert!(lines.contains("offload") && !lines.contains("taprio"), "{lines}");
    // The NIC is given the start itself.
    let row = text_of(&files, "a.launch.csv").lines().nth(1).unwrap();
    let columns: Vec<&str> = row.split(',').collect();
    assert_eq!(columns[5], columns[6], "{row}");
    // As a bridge it holds nothing back.
    let (_, given, plan) = planned(&star("{}", "i210", "1Gbit", &["1ms"]));
    assert_eq!(limits(&given, "br").gate_entries, Some(0));
    assert!(plan.gates.iter().all(|gates| gates.link == LinkId::from_index(0)));
}

#[test]
fn t0_a_queue_of_an_i226_opens_once_in_a_list() {
    for word in ["i225", "i226"] {
        let (network, given, plan) = planned(&star(word, "ls1028a", "1Gbit", &PERIODS));
        let own = gates(&plan, 0);
        assert_eq!(own.windows.len(), 1, "{own:?}");
        let files = file::render(&network, &given, &plan).unwrap();
        let lines = text_of(&files, "a.tc");
        assert_eq!(lines.matches("sched-entry").count(), 2, "{lines}");
        assert!(lines.contains("flags 0x2") && lines.contains("queues 1@1 1@0"), "{lines}");
        let open = text_of(&files, "a.host.yaml");
        assert!(open.contains("open: [1]") && open.contains("open: [0]"), "{open}");
    }
    // A stream that comes with the cycle's turn; the list begins where its window does.
    let text = star("i226", "{}", "1Gbit", &["1ms"]).replace("offset: 0us", "offset: 998us");
    let (network, given, plan) = planned(&text);
    let own = gates(&plan, 0);
    assert_eq!(own.windows.len(), 2, "{own:?}");
    let files = file::render(&network, &given, &plan).unwrap();
    let lines = text_of(&files, "a.tc");
    assert_eq!(lines.matches("sched-entry").count(), 2, "{lines}");
}

#[test]
fn t0_a_list_of_an_ls1028a_has_63_states() {
    let many = vec!["100us"; 2];
    let rare = ["10ms", "7ms"];
    let periods: Vec<&str> = many.into_iter().chain(rare).collect();
    let (_, given, plan) = planned(&star("{}", "ls1028a", "1Gbit", &periods));
    assert_eq!(limits(&given, "br").gate_entries, Some(63));
    assert!(plan.gates.iter().any(|gates| gates.entries > 63), "the talker's list is longer");
    let longer = star("{}", "{ model: ls1028a, gate_entries: 64 }", "1Gbit", &[]);
    let errors = NetworkFile::parse("test", &longer).unwrap_err().to_string();
    assert!(errors.contains("bridges[0].device.gate_entries"), "{errors}");
    assert!(errors.contains("the LS1028A has 63 gate states, fewer than 64"), "{errors}");
}

#[test]
fn t0_a_cycle_that_a_device_cannot_have_is_refused_with_its_name() {
    let text = star("{}", "ls1028a", "1Gbit", &["700ms", "10ms", "10ms", "1s"]);
    let (_, given, plan) = planned(&text);
    let [refused] = &plan.refused[..] else { panic!("{:?}", plan.refused) };
    let why = words::reason(&given.problem, &refused.certificate);
    assert!(why.contains("br>b (LS1028A)") && why.contains("longer cycle"), "{why}");
    // The longer of the two goes.
    assert_eq!(given.problem.stream(refused.stream).name, "s3");
}

#[test]
fn t0_ports_that_share_a_list_have_a_part_each() {
    for (word, part) in [("sja1105", 256), ("sja1110", 880), ("lan966x", 64)] {
        let (_, given, _) = planned(&star("{}", word, "1Gbit", &OFTEN));
        assert_eq!(limits(&given, "br").gate_entries, Some(part), "{word}");
    }
}

/// The cycle of each port of the bridge and when its gates change in it, as `tc` is told.
fn changes(files: &[Rendered]) -> Vec<(i64, Vec<i64>)> {
    let commands = text_of(files, "br.tc").lines().filter(|line| line.contains(" taprio "));
    let lists = commands.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let after = |word: &str| words.iter().position(|it| *it == word).unwrap() + 1;
        let mut at: i64 = words[after("base-time")].parse().unwrap();
        let mut all = Vec::new();
        let entries = words.iter().enumerate().filter(|(_, word)| **word == "sched-entry");
        for (place, _) in entries {
            all.push(at);
            at += words[place + 3].parse::<i64>().unwrap();
        }
        let cycle = at - all[0];
        (cycle, all.into_iter().map(|at| at.rem_euclid(cycle)).collect())
    });
    lists.collect()
}

#[test]
fn t0_no_two_ports_of_an_sja1105_change_at_once() {
    for model in ["sja1105", "sja1110"] {
        // From two talkers at once to two listeners, and several of one.
        let at_once = star("{}", model, "1Gbit", &["1ms", "1ms"])
            .replace("talker: a, listeners: c", "talker: d, listeners: c")
            .replace("offset: 40us", "offset: 0us");
        // And a cycle that is a multiple of 1 us only when repeated.
        let odd = at_once.replace("1ms", "400200ns");
        for text in [at_once, star("{}", model, "1Gbit", &PERIODS), odd] {
            let (network, given, plan) = planned(&text);
            let lists = changes(&file::render(&network, &given, &plan).unwrap());
            let shortest = lists.iter().map(|list| list.0).min().unwrap();
            let mut all: Vec<i64> = Vec::new();
            for (_, list) in &lists {
                let mut folded: Vec<i64> = list.iter().map(|at| at % shortest).collect();
                folded.sort_unstable();
                folded.dedup();
                all.extend(folded);
            }
            assert!(all.len() >= 4 && lists.len() >= 2, "{model}: {lists:?}");
            assert!(all.iter().all(|at| at % 200 == 0), "{model}: {lists:?}");
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count, "{model}: {lists:?}");
        }
    }
}

#[test]
fn t0_ports_of_an_sja1105_whose_cycles_are_no_multiples_are_named() {
    let text = star("{}", "sja1105", "1Gbit", &["400us", "600us"]);
    let (network, given, plan) = planned(&text);
    let said = file::render(&network, &given, &plan).unwrap_err();
    // The plan says it before.
    assert_eq!(file::unrendered(&network, &given, &plan), Some(said.clone()));
    let said = said.to_string();
    assert!(said.contains("none is a multiple of the other"), "{said}");
    // A plan that is changed by hand; the planner makes none.
    let text = star("{}", "sja1105", "1Gbit", &["1ms", "1ms"]);
    let (network, given, mut plan) = planned(&text);
    let at_bridge: Vec<usize> = (0..plan.gates.len())
        .filter(|gates| given.problem.network().link(plan.gates[*gates].link).from.index() == 4)
        .collect();
    plan.gates[at_bridge[1]].windows = plan.gates[at_bridge[0]].windows.clone();
    let error = file::render(&network, &given, &plan).unwrap_err();
    assert!(matches!(&error, RenderError::Together { device: "SJA1105", .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("to b and to c both change their gates at "), "{said}");
}

#[test]
fn t0_what_a_device_does_not_have_is_refused_where_it_is_written() {
    let cases = [
        ("{ model: i226, queues: 8 }", "queues", "the I226 has 4 queues, fewer than 8"),
        ("{ model: i226, openings: 2 }", "openings", "the I226 has 1 openings in a cycle"),
        ("{ model: i210, gate_entries: 4 }", "gate_entries", "the I210 has 0 gate states"),
        ("{ model: lan966x, interval_min: 500ns }", "interval_min", "any state of the LAN966x"),
        ("{ model: lan966x, cycle_max: 1s }", "cycle_max", "the longest cycle of the LAN966x"),
        ("{ model: sja1105, interval_max: 60ms }", "interval_max", "state of the SJA1105 is"),
        ("{ model: sja1105, granularity: 300ns }", "granularity", "the step of the SJA1105"),
        ("{ model: ls1028a, launch_time: 1us }", "launch_time", "the LS1028A has no launch times"),
        ("{ model: i226, offload: false }", "offload", "write `model: taprio`"),
        ("{ model: taprio, offload: true }", "offload", "taprio in software is the kernel's"),
        ("i211", "device", "`i211` is not known here: did you mean `i210`"),
        ("{ cycle_max: 0us }", "cycle_max", "no cycle takes no time"),
    ];
    for (device, key, message) in cases {
        let text = star(device, "{}", "1Gbit", &["1ms"]);
        let errors = NetworkFile::parse("test", &text).expect_err(device).to_string();
        assert!(errors.contains(key) && errors.contains(message), "{device}: {errors}");
    }
    // Less is as good.
    let less = "{ model: i226, queues: 2, granularity: 8ns, interval_min: 1us, launch_time: 1ms }";
    let (_, given, _) = planned(&star(less, "{}", "1Gbit", &["1ms"]));
    let own = limits(&given, "a");
    assert_eq!((own.queues, own.openings, own.launch_time), (2, Some(1), true));
    assert_eq!((own.granularity, own.interval_min), (Span::from_ns(8), Span::from_us(1)));
}
