// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of reservations that are wrong, or hold no more: what is said of each.

use timewire_base::Span;
use timewire_plan::generate::{Recipe, Topology};
use timewire_plan::keep::{KeepError, Replan, Reservations};
use timewire_plan::model::{Problem, Stream};
use timewire_plan::synth::{Budget, Options, plan};

use super::checked::{Random, Seen, look, problem};

const HEAD: &str = "{\"schema\": \"timewire.reservations/1\", \"network\": \"n\"}\n";
const GOOD: &str = "{\"name\": \"s\", \"talker\": \"e0\", \"listeners\": [\"e1\"], \"period_ns\": \
                    1000000, \"length_bytes\": 100, \"class\": 7, \"start_ns\": {\"e0-b0\": 0, \
                    \"b0-e1\": 2960}}\n";

fn said(text: &str) -> String {
    Reservations::read("net.plan", text).unwrap_err().to_string()
}

#[test]
fn t0_what_is_wrong_in_a_file_is_said_with_its_place() {
    let head = "\n  remedy: the first line is {\"schema\": \"timewire.reservations/1\", \
                \"network\": \"NAME\"}; `timewire plan FILE --out PLAN` writes such a file";
    let line = "\n  remedy: a line is {\"name\": ..., \"talker\": ..., \"listeners\": [...], \
                \"period_ns\": ..., \"length_bytes\": ..., \"class\": ..., \"start_ns\": \
                {\"LINK\": START, ...}}";
    let cases = [
        (String::new(), format!("1:1: it is empty{head}")),
        ("timewire: 1\n".to_owned(), format!("1:2: this is no JSON: expected ident{head}")),
        (
            HEAD.replace("/1", "/2"),
            format!("1:1: `timewire.reservations/2` is no schema of a plan's reservations{head}"),
        ),
        (
            HEAD.replace("\"n\"}", "\"n\", \"more\": 1}"),
            format!("1:60: unknown field `more`, expected `schema` or `network`{head}"),
        ),
        (format!("{HEAD}\n{{}}\n"), format!("3:2: missing field `name`{line}")),
        (
            format!("{HEAD}{}", GOOD.replace("\"class\": 7", "\"class\": seven")),
            format!("2:104: this is no JSON: expected value{line}"),
        ),
        (
            format!("{HEAD}{}", GOOD.replace("2960", "2.96")),
            format!(
                "2:144: invalid type: floating point `2.96`, expected a start in whole \
                 nanoseconds, or a list of them, one for each frame{line}"
            ),
        ),
        (
            format!("{HEAD}{}", GOOD.replace("2960", "18446744073709551615")),
            format!("2:160: the start 18446744073709551615 is too late{line}"),
        ),
        (
            format!("{HEAD}{}", GOOD.replace("b0-e1", "e0-b0")),
            format!("2:145: link `e0-b0` is there twice{line}"),
        ),
        (
            format!("{HEAD}{GOOD}{GOOD}"),
            "3:1: stream s is in line 2 already\n  remedy: remove one of the two lines".to_owned(),
        ),
        (
            format!("{HEAD}{}", GOOD.replace("2960", "[0, 1]")),
            "2:1: stream s: link b0-e1 has 2 starts for 1 frames\n  remedy: a start for each \
             frame, in a list where there are several"
                .to_owned(),
        ),
        (
            format!("{HEAD}{}", GOOD.replace("2960", "-1")),
            "2:1: stream s: link b0-e1 has the start -1\n  remedy: 0 to 1000000000000 ns"
                .to_owned(),
        ),
        (
            format!("{HEAD}{}", GOOD.replace("1000000", "0")),
            "2:1: stream s: period_ns is 0\n  remedy: 1 to 1000000000000".to_owned(),
        ),
        (
            format!("{HEAD}{}", GOOD.replace("\"start_ns\": {", "\"copies\": 2, \"start_ns\": {")),
            "2:1: stream s: start_ns has 1 ways for 2 copies\n  remedy: a group of links, or with \
             `copies` a list of as many groups"
                .to_owned(),
        ),
    ];
    let wanted = cases.iter().map(|(_, expected)| format!("net.plan:{expected}"));
    let wanted: Vec<String> = wanted.collect();
    let told: Vec<String> = cases.iter().map(|(text, _)| said(text)).collect();
    assert_eq!(told, wanted);
    assert_eq!(Reservations::read("n", &format!("{HEAD}{GOOD}")).unwrap().to_text(), {
        format!("{HEAD}{GOOD}")
    });
}

/// Two stations at a bridge, a stream from the first to the second, and one back.
fn pair() -> (Problem, Reservations) {
    let network = Recipe::new(Topology::Line(1), 2, 0, 0).problem().unwrap().network().clone();
    let station = |name: &str| {
        let place = network.nodes().iter().position(|node| node.name == name);
        timewire_plan::model::NodeId::from_index(place.unwrap())
    };
    let (one, other) = (station("e0"), station("e1"));
    let streams = [("s", one, other), ("t", one, other), ("back", other, one)];
    let stream = |(name, from, to)| Stream::new(name, from, to, Span::from_ms(1), 100);
    let problem = Problem::new(network, streams.map(stream).to_vec()).unwrap();
    let planned = plan(problem.clone(), Options::default(), 1_000);
    let earlier = Reservations::of("pair", &problem, &planned);
    (problem, earlier)
}

fn refused(problem: &Problem, text: &str) -> String {
    let earlier = Reservations::read("pair.plan", text).unwrap();
    let replan = Replan::new(problem.clone(), Options::default(), &earlier, &mut || true);
    replan.unwrap_err().to_string()
}

#[test]
fn t0_reservations_that_hold_no_more_are_refused_with_the_reason() {
    let (problem, earlier) = pair();
    let text = earlier.to_text();
    let t = "{\"e0-b0\": 960, \"b0-e1\": 3920}";
    assert!(text.contains(t), "{text}");
    let early = refused(&problem, &text.replace(t, "{\"e0-b0\": 960, \"b0-e1\": 3900}"));
    assert_eq!(
        early,
        "a frame starts before it can be there; link b0-e1; stream t; frame 0; \
         at 3900 ns; 3900 ns, should be at least 3920 ns\n  two transmissions at once; link \
         b0-e1; stream t, s; frame 0; at 3900 ns; 3900 ns, should be at least 3920 ns"
    );
    let over = refused(&problem, &text.replace(t, "{\"e0-b0\": 100, \"b0-e1\": 3060}"));
    assert!(over.contains("two transmissions at once; link e0-b0; stream t, s"), "{over}");
    let waits = refused(&problem, &text.replace(t, "{\"e0-b0\": 960, \"b0-e1\": 5000}"));
    assert_eq!(
        waits,
        "stream t: frame 0 starts on link b0-e1 at 5us and could start at 3920ns; no frame of a \
         plan waits on its way"
    );
    let missing = refused(&problem, &text.replace(t, "{\"e0-b0\": 960}"));
    assert!(missing.contains("a listener is not reached; stream t"), "{missing}");
}

/// A link that is gone takes the reservations of its streams away, and no more.
#[test]
fn t0_streams_over_links_that_are_gone_are_planned_anew() {
    let (problem, earlier) = pair();
    let text = earlier.to_text().replace("{\"e0-b0\": 960, \"b0-e1\": 3920}", "{\"gone\": 960}");
    let earlier = Reservations::read("pair.plan", &text).unwrap();
    let mut replan = Replan::new(problem, Options::default(), &earlier, &mut || true).unwrap();
    replan.run(0, &mut Budget { work: 1_000, go_on: &mut |_| true });
    let changes = replan.changes();
    assert_eq!((changes.kept, changes.changed.len()), (2, 1));
    assert_eq!(changes.changed[0].differences, ["link gone is gone"]);
    assert_eq!(changes.changed[0].new.as_ref().unwrap().first(), Some(Span::from_ns(960)));
}

/// Whatever somebody writes for starts, a plan beside them holds, or they are refused.
#[test]
fn t0_no_edited_start_makes_a_plan_that_does_not_hold() {
    let (mut seen, mut kept, mut told) = (Seen::default(), 0, [0; 4]);
    for seed in 0..500 {
        let problem = problem(seed);
        let mut random = Random::new(seed);
        let planned = plan(problem.clone(), Options { seed, routes: 3 }, 20_000);
        let mut earlier = Reservations::of("n", &problem, &planned);
        let later = Span::from_ns(i64::try_from(random.below(3_000)).unwrap());
        let (own, gone) = (random.below(3), random.below(4));
        earlier.streams.retain(|_| !random.rarely(gone + 2));
        for (index, stream) in earlier.streams.iter_mut().enumerate() {
            if index % 7 != own {
                continue;
            }
            // All of it later, or the last link alone.
            let last = usize::from(random.rarely(3)) * (stream.starts.0[0].len() - 1);
            for (_, starts) in stream.starts.0.iter_mut().flat_map(|way| &mut way[last..]) {
                starts.iter_mut().for_each(|start| *start += later);
            }
        }
        let replan = Replan::new(problem.clone(), Options::default(), &earlier, &mut || true);
        match replan {
            Ok(mut replan) => {
                kept += 1;
                replan.run(2, &mut Budget { work: 20_000, go_on: &mut |_| true });
                look(seed, &problem, &replan.planner().plan(), &mut seen);
            }
            Err(KeepError::Findings { .. }) => told[0] += 1,
            Err(KeepError::Waits { .. }) => told[1] += 1,
            Err(KeepError::Close { .. }) => told[2] += 1,
            Err(KeepError::Gates { .. }) => told[3] += 1,
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    println!("{kept} kept, {told:?} refused");
    assert!(kept > 60 && told[0] > 30 && told[1] > 5, "{kept} kept, {told:?} refused");
}
