// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a stream has no bound or no place: the cause that is told is the one that there is, with its
//! port and class.

use std::collections::BTreeMap;

use timewire_base::{Sequence, Span, Verdict};
use timewire_model::scenario::network::NetworkFile;
use timewire_plan::file::{self, JudgedLimit, RestBound, Unbounded};
use timewire_plan::synth::{Options, plan};
use timewire_plan::words::Refusals;
use timewire_tsn::file::ParseFile;

/// `a` and `b` at a bridge, `c` behind it; what is common to the cases.
fn network(more: &str) -> String {
    format!(
        "timewire: 1\nkind: network\nname: causes\nduration: 10ms\nsync_error: 0ns\n\
         stations: [{{ name: a }}, {{ name: b }}, {{ name: c }}]\n\
         bridges: [{{ name: br, forward: 2us }}]\n\
         links: [{{ between: [a, br] }}, {{ between: [b, br] }}, {{ between: [br, c] }}]\n{more}"
    )
}

fn stream(name: &str, from: &str, class: u8, bytes: u32, traffic: &str) -> String {
    format!(
        "- {{ name: {name}, talker: {from}, listeners: c, class: {class}, size: {bytes}B, \
         {traffic} }}\n"
    )
}

fn bounds_of(text: &str) -> (NetworkFile, Result<Vec<RestBound>, Unbounded>) {
    let network = NetworkFile::parse("test", text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let given = file::problem(&network).unwrap();
    let found = plan(given.problem.clone(), Options::default(), 100_000);
    let bounds = file::bounds(&network, &given, &found);
    (network, bounds)
}

/// Why the stream `own` has no bound.
fn why(text: &str) -> Unbounded {
    let (network, bounds) = bounds_of(text);
    let own = network.streams.iter().position(|stream| stream.name.as_str() == "own").unwrap();
    let bounds = match bounds {
        Ok(bounds) => bounds,
        Err(why) => return why,
    };
    bounds.into_iter().find(|bound| bound.stream == own).unwrap().bound.unwrap_err()
}

const MS: &str = "kind: cyclic, period: 1ms";

/// A port of the bridge towards `c`.
fn port(keys: &str) -> String {
    format!("ports: [{{ of: [br], to: c, {keys} }}]\n")
}

/// Each cause, with the network that has it and no other: port, class, a part of the sentence.
fn causes() -> Vec<(&'static str, String, &'static str, u8, &'static str)> {
    let one = |class| format!("streams:\n{}", stream("own", "a", class, 1_000, MS));
    let gates = |first: &str, second: &str| {
        port(&format!(
            "gates: {{ entries: [{{ open: [{first}], interval: 80us }}, \
             {{ open: [{second}], interval: 120us }}] }}"
        ))
    };
    let flood = |name: &str, from: &str, class| {
        stream(name, from, class, 1_000, "kind: flood, rate: 60Mbit")
    };
    vec![
        (
            "overload",
            network(&format!("streams:\n{}{}", flood("own", "a", 3), flood("o", "b", 3))),
            "br>c",
            3,
            " of 100 Mbit/s are left",
        ),
        (
            "overload",
            network(&format!(
                "{}streams:\n{}",
                port("cbs: [{ class: 6, idle_slope: 5Mbit }]"),
                stream("own", "a", 6, 1_000, MS)
            )),
            "br>c",
            6,
            "the class reserves 5 Mbit/s",
        ),
        (
            "overload",
            network(&format!(
                "{}streams:\n{}",
                gates("7", "3"),
                stream("own", "a", 3, 1_000, "kind: flood, rate: 55Mbit")
            )),
            "br>c",
            3,
            "the gate leaves out ",
        ),
        (
            "overload",
            network(&format!("streams:\n{}{}", flood("own", "a", 2), flood("o", "b", 5))),
            "br>c",
            2,
            "higher classes send ",
        ),
        (
            "overload",
            network(&format!(
                "streams:\n{}{}{}",
                stream("own", "a", 1, 100, MS),
                flood("o", "a", 4),
                flood("p", "a", 4)
            )),
            "a>br",
            4,
            "a>br class 1 depends on it",
        ),
        ("shut", network(&(gates("7", "6") + &one(3))), "br>c", 3, "the gate is never open"),
        (
            "no_window",
            network(&(gates("3", "7") + &one(3))),
            "br>c",
            3,
            "takes 85600ns and fits no window: the longest of them is 80us",
        ),
        (
            "source",
            network(&format!(
                "streams:\n{}{}",
                stream("own", "a", 3, 100, MS),
                stream("o", "b", 5, 100, "kind: replay, file: x.pcap").replace("size: 100B, ", "")
            )),
            "b>br",
            5,
            "nothing bounds o: it is a replay; br>c class 3 depends on it",
        ),
        (
            "linux_credit",
            network(
                &(port(
                    "cbs: [{ class: 6, idle_slope: 20Mbit, rules: linux, hi_credit: 300B, \
                     lo_credit: 1200B }]",
                ) + &one(6)),
            ),
            "br>c",
            6,
            "br counts credit as Linux does",
        ),
        (
            "settings",
            network(&format!(
                "{}streams:\n{}{}{}",
                port("cbs: [{ class: 6, idle_slope: 20Mbit }, { class: 4, idle_slope: 20Mbit }]"),
                stream("own", "a", 6, 100, MS),
                stream("o", "a", 5, 100, MS),
                stream("p", "a", 4, 100, MS)
            )),
            "br>c",
            5,
            "strict priority between classes with credit",
        ),
        (
            "settings",
            network(
                &(port(
                    "cbs: [{ class: 6, idle_slope: 60Mbit }, { class: 5, idle_slope: 40Mbit }]",
                ) + &one(6)),
            ),
            "br>c",
            6,
            "classes with credit reserve 100000000 bit/s of 100",
        ),
        (
            "no_gates",
            network(&format!(
                "streams:\n{}{}",
                stream("own", "a", 3, 100, MS),
                stream("s", "b", 7, 100, MS).replace(" }", ", scheduled: true }")
            ))
            .replace("{ name: br, ", "{ name: br, device: { gate_entries: 0 }, "),
            "br>c",
            7,
            "br has no gates, and planned frames go through it",
        ),
        (
            "route",
            network(&one(3)).replace("between: [br, c]", "between: [b, c]"),
            "b>c",
            3,
            "own goes through the station b",
        ),
        (
            "segment",
            "timewire: 1\nkind: network\nname: shared\nduration: 10ms\n\
             stations: [{ name: a }, { name: c }]\n\
             segments: [{ name: bus, stations: [a, c] }]\n"
                .to_owned()
                + &one(3),
            "a>bus",
            3,
            "there are no bounds for shared segments",
        ),
    ]
}

#[test]
fn t0_each_cause_is_told_with_port_and_class() {
    let mut kinds = BTreeMap::new();
    for (cause, text, port, class, words) in causes() {
        let found = why(&text);
        let said = found.to_string();
        assert_eq!((found.cause, found.port.as_str(), found.class), (cause, port, class), "{said}");
        assert!(said.contains(words), "{cause}: {said}");
        assert!(said.starts_with(&format!("{port} class {class}: ")), "{said}");
        *kinds.entry(cause).or_insert(0) += 1;
    }
    assert_eq!(kinds.len(), 9, "{kinds:?}");
}

/// A window that goes on over the turn of the cycle is one: a frame of 85 us fits into the last 60
/// us of a cycle and the first 60 us of the next, and not into 40 and 40.
#[test]
fn t0_a_window_over_the_turn_of_the_cycle_is_one() {
    let text = |end: u32| {
        let shut = 200 - 2 * end;
        network(&format!(
            "{}streams:\n{}",
            port(&format!(
                "gates: {{ entries: [{{ open: [3], interval: {end}us }}, \
                 {{ open: [7], interval: {shut}us }}, {{ open: [3], interval: {end}us }}] }}"
            )),
            stream("own", "a", 3, 1_000, "kind: cyclic, period: 5ms")
        ))
    };
    let (_, bounds) = bounds_of(&text(60));
    assert!(bounds.unwrap()[0].bound.is_ok());
    assert!(why(&text(40)).text.ends_with("the longest of them is 80us"), "{}", why(&text(40)));
}

/// A chain has the bound of all its parts, a request comes no earlier than it is answered, and what
/// follows a stream without bound has none.
#[test]
fn t0_what_waits_for_others_is_bounded_by_them() {
    let after = |name: &str, from: &str, to: &str, keys: &str| {
        stream(name, from, 5, 100, &format!("kind: after, {keys}"))
            .replace("listeners: c", &format!("listeners: {to}"))
    };
    let chain = |more: &str| {
        let next = after("next", "c", "b", &format!("follows: own, work: 50us{more}"));
        network(&format!("streams:\n{}{next}", stream("own", "a", 5, 100, MS)))
    };
    let bound = |text: &str| -> Vec<(Span, Span)> {
        let (_, bounds) = bounds_of(text);
        bounds.unwrap().into_iter().map(|it| it.bound.unwrap()).collect()
    };
    let (apart, whole) = (bound(&chain("")), bound(&chain(", from_start: true")));
    assert_eq!(apart[0], whole[0]);
    let sum = apart[0].0 + apart[1].0 + Span::from_us(50);
    assert_eq!(whole[1], (sum, apart[0].1 + apart[1].1));
    // One that is as late as the other differs comes with two messages at once.
    let alone = bound(&network(&format!(
        "streams:\n{}",
        stream("next", "c", 5, 100, MS).replace("listeners: c", "listeners: b")
    )));
    assert!(apart[1].0 > alone[0].0, "{apart:?} {alone:?}");
    // A request goes once in the time there and back at most, and no earlier than its timeout.
    let loop_of = |think: &str, timeout: &str| {
        let keys = format!("kind: request, answer: a, think: {think}, timeout: {timeout}");
        let answer = after("a", "c", "a", "follows: q");
        bounds_of(&network(&format!("streams:\n{}{answer}", stream("q", "a", 5, 100, &keys)))).1
    };
    assert!(loop_of("1ms", "5ms").unwrap().iter().all(|it| it.bound.is_ok()));
    let why = loop_of("1ms", "1us").unwrap().remove(1).bound.unwrap_err();
    assert_eq!((why.cause, why.port.as_str()), ("source", "c>br"), "{why:?}");
    let says = "nothing bounds a: it follows q, which has no bound: a>br class 5: ";
    assert!(why.text.starts_with(says), "{why:?}");
    // A bridge that cuts through brings answers earlier, and so the next request.
    let fast = |bridge: &str| {
        let keys = "kind: request, answer: a, timeout: 5ms";
        let answer = after("a", "c", "a", "follows: q");
        let more = stream("more", "a", 5, 1_000, "period: 250us");
        let asks = stream("q", "a", 5, 1_400, keys);
        let text = network(&format!("streams:\n{asks}{answer}{more}"));
        assert!(text.contains("forward: 2us }"), "{text}");
        bounds_of(&text.replacen("forward: 2us }", bridge, 1)).1
    };
    assert!(fast("forward: 2us }").unwrap().iter().all(|it| it.bound.is_ok()));
    let none = fast("forward: 2us, cut_through: 64B }").unwrap();
    let why = none.into_iter().find_map(|it| it.bound.err()).unwrap();
    assert!(why.text.contains("Mbit/s come and"), "{why:?}");
}

/// A stream that may send anything leaves its class and those below without a bound where it goes;
/// those above wait for its longest frame.
#[test]
fn t0_a_stream_without_bound_takes_none_from_those_before_it() {
    let beside = |class: u8, to: &str| {
        let replay = stream("o", "b", class, 100, "kind: replay, file: x.pcap");
        let replay = replay.replace("size: 100B, ", "").replace("listeners: c", to);
        let own = stream("own", "a", 3, 100, MS);
        let (_, bounds) = bounds_of(&network(&format!("streams:\n{own}{replay}")));
        let mut bounds = bounds.unwrap();
        assert!(bounds.remove(1).bound.unwrap_err().text.contains("it is a replay"));
        bounds.remove(0).bound
    };
    let alone = bounds_of(&network(&format!("streams:\n{}", stream("own", "a", 3, 100, MS)))).1;
    let alone = alone.unwrap().remove(0).bound.unwrap().0;
    // One jumbo frame with preamble and gap at 100 Mbit/s, in place of one of 1522 bytes.
    let behind = beside(2, "listeners: c").unwrap().0;
    assert_eq!((behind - alone).as_ns(), i64::from(9_022 - 1_522) * 80);
    assert_eq!(beside(5, "listeners: a").unwrap().0, alone, "it goes elsewhere");
    for class in [3, 4, 7] {
        let why = beside(class, "listeners: c").unwrap_err();
        assert_eq!(why.cause, "source", "{why:?}");
    }
}

/// Bridges in a line or ring, streams of all kinds, gates and credit by chance.
fn random(seed: u64) -> String {
    let mut random = Sequence::new(seed);
    let bridges = 1 + random.below(7);
    let around = bridges > 4 && random.below(2) == 0;
    let mut text =
        "timewire: 1\nkind: network\nname: chance\nduration: 10ms\nstations:\n".to_owned();
    for bridge in 0..bridges {
        text += &format!("- {{ name: s{bridge} }}\n- {{ name: t{bridge} }}\n");
    }
    text += "bridges:\n";
    for bridge in 0..bridges {
        let few = if random.below(6) == 0 { ", device: { gate_entries: 4 }" } else { "" };
        text += &format!("- {{ name: b{bridge}, forward: 2us{few} }}\n");
    }
    text += "links:\n";
    for bridge in 0..bridges {
        text += &format!("- {{ between: [s{bridge}, b{bridge}] }}\n");
        text += &format!("- {{ between: [t{bridge}, b{bridge}] }}\n");
        if bridge + 1 < bridges {
            text += &format!("- {{ between: [b{bridge}, b{}] }}\n", bridge + 1);
        }
    }
    if bridges > 2 {
        text += &format!("- {{ between: [b{}, b0] }}\n", bridges - 1);
    }
    text += "streams:\n";
    let mut planned = false;
    let least = if around { bridges } else { 2 };
    for index in 0..least + random.below(10) {
        let from = if around { index % bridges } else { random.below(bridges) };
        let to = if around { (from + 2) % bridges } else { random.below(bridges) };
        let bytes = 50 + random.below(1_400);
        let traffic = match random.below(8) {
            0 => format!("kind: flood, rate: {}Mbit", 5 + random.below(60)),
            1 => format!("kind: sporadic, gap: {}us", 200 + random.below(2_000)),
            _ => format!("kind: cyclic, period: {}us", [250, 500, 1_000, 2_000][random.below(4)]),
        };
        let asks = traffic.contains("cyclic") && random.below(3) == 0;
        planned |= asks;
        let (class, place) = match asks {
            true => (7, format!(", scheduled: true, max_latency: {}us", 100 + random.below(900))),
            false if around => (3, String::new()),
            false => (random.below(7), String::new()),
        };
        text += &format!(
            "- {{ name: x{index}, talker: s{from}, listeners: t{to}, class: {class}, \
             size: {bytes}B, {traffic}{place} }}\n"
        );
    }
    if !planned && random.below(2) == 0 {
        let keys = match random.below(3) {
            0 => "cbs: [{ class: 6, idle_slope: 10Mbit }, { class: 2, idle_slope: 10Mbit }]"
                .to_owned(),
            1 => "cbs: [{ class: 6, idle_slope: 30Mbit }]".to_owned(),
            _ => format!(
                "gates: {{ entries: [{{ open: [0, 1, 2, 3], interval: {}us }}, \
                 {{ open: [4, 5, 6, 7], interval: 100us }}] }}",
                20 + random.below(200)
            ),
        };
        text += &format!("ports: [{{ of: [b0], {keys} }}]\n");
    }
    text
}

#[test]
fn t0_no_stream_is_without_bound_or_place_without_a_reason() {
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..400 {
        let text = random(seed);
        let network = NetworkFile::parse("test", &text).unwrap_or_else(|why| panic!("{why}{text}"));
        let given = file::problem(&network).unwrap();
        let found = plan(given.problem.clone(), Options::default(), 2_000);
        let refusals = Refusals::of(&given.problem);
        for refusal in &found.refused {
            assert!(!refusals.ports(refusal).is_empty(), "seed {seed}: {refusal:?}");
            let said = refusals.text(refusal);
            assert!(said.contains(" class 7: "), "seed {seed}: {said}");
            *kinds.entry("refused").or_default() += 1;
        }
        let rest = network.streams.iter().filter(|stream| !stream.scheduled).count();
        let bounds = match file::bounds(&network, &given, &found) {
            Ok(bounds) => bounds.into_iter().map(|bound| bound.bound).collect(),
            Err(why) => vec![Err(why); rest],
        };
        assert_eq!(bounds.len(), rest, "seed {seed}");
        for bound in bounds {
            let Err(why) = bound else {
                *kinds.entry("bounded").or_default() += 1;
                continue;
            };
            let port = network.links.iter().any(|link| {
                let (one, other) = (&link.between[0], &link.between[1]);
                [format!("{one}>{other}"), format!("{other}>{one}")].contains(&why.port)
            });
            assert!(port && why.class < 8 && !why.text.is_empty(), "seed {seed}: {why:?}");
            *kinds.entry(why.cause).or_default() += 1;
        }
    }
    let many = ["bounded", "refused", "overload", "no_window", "settings"];
    assert!(many.iter().all(|kind| kinds.get(kind) > Some(&10)), "{kinds:?}");
}

/// What is judged of a network with these limits.
fn judged(text: &str, limits: &str) -> Vec<JudgedLimit> {
    let (network, bounds) = bounds_of(&format!("{text}limits:\n{limits}"));
    file::judged_limits(&network, bounds.as_deref())
}

fn limit(metric: &str, at_most: &str) -> String {
    let id = metric.replace('_', "-");
    format!("- {{ id: {id}, metric: {metric}, stream: own, at_most: {at_most} }}\n")
}

/// Whatever the cause, a limit of a stream without bound does not pass; it fails only where frames
/// do not get through in the long run. Without a limit nothing is asked.
#[test]
fn t0_a_limit_of_a_stream_without_bound_never_passes() {
    let times = ["latency-max", "latency-p99", "latency-mean", "jitter"];
    for (cause, text, _, _, _) in causes() {
        let fails = ["overload", "shut", "no_window"].contains(&cause);
        let expected = if fails { Verdict::Fail } else { Verdict::Inconclusive };
        for metric in times {
            let found = judged(&text, &limit(metric, "1s"));
            // Of a percentile or a mean only that nothing gets through says something.
            let is_of_each = ["latency-max", "jitter"].contains(&metric);
            assert_eq!(found.len(), usize::from(is_of_each || fails), "{cause}: {found:?}");
            if found.is_empty() {
                continue;
            }
            assert_eq!((found[0].verdict, found[0].bound), (expected, None), "{cause}");
            let why = found[0].why.as_deref().unwrap();
            assert!(why.starts_with("no bound: "), "{cause}: {why}");
        }
        // Of what is lost only a cause that loses says something.
        let lost = judged(&text, &limit("lost", "0%"));
        assert_eq!(lost.len(), usize::from(fails), "{cause}: {lost:?}");
        let (network, bounds) = bounds_of(&text);
        assert_eq!(file::judged_limits(&network, bounds.as_deref()), [], "{cause}");
    }
}

/// A bound is held against the limit to the nanosecond, with what both ends and clocks add.
#[test]
fn t0_a_bound_is_held_against_the_limit() {
    let text = network(&format!("streams:\n{}", stream("own", "a", 5, 1_000, MS)));
    let ends = text
        .replace("{ name: a }", "{ name: a, send: { kind: uniform, min: 3us, max: 7us } }")
        .replace("{ name: c }", "{ name: c, receive: { kind: uniform, min: 10us, max: 20us } }")
        .replace("sync_error: 0ns", "sync_error: 1us");
    let late = "{ name: c, receive: { kind: exponential, mean: 1us } }";
    let endless = text.replace("{ name: c }", late);
    let bound = |text: &str| {
        let (_, bounds) = bounds_of(text);
        bounds.unwrap()[0].bound.clone().unwrap()
    };
    let (latency, jitter) = bound(&text);
    let us = Span::from_us;
    for (metric, text, never_above) in [
        ("latency-max", &text, latency),
        ("latency-p99", &text, latency),
        ("latency-mean", &text, latency),
        ("jitter", &text, jitter),
        ("latency-max", &ends, bound(&ends).0 + us(27 + 2)),
        ("jitter", &ends, bound(&ends).1 + us(4 + 10 + 2)),
    ] {
        for (below, verdict) in [(0, Verdict::Pass), (1, Verdict::Inconclusive)] {
            let most = never_above.as_ns() - below;
            let found = judged(text, &limit(metric, &format!("{most}ns")));
            let is_of_each = ["latency-max", "jitter"].contains(&metric);
            if !is_of_each && verdict != Verdict::Pass {
                assert_eq!(found, [], "{metric}: a bound above it says nothing");
                continue;
            }
            assert_eq!(found[0].bound, Some(never_above), "{metric}");
            assert_eq!(found[0].verdict, verdict, "{metric}: {found:?}");
            assert_eq!(found[0].why.is_none(), verdict == Verdict::Pass, "{found:?}");
        }
    }
    let found = judged(&endless, &limit("latency-max", "1s"));
    assert_eq!((found[0].verdict, found[0].bound), (Verdict::Inconclusive, None));
    assert!(found[0].why.as_deref().unwrap().contains("software at one of its ends"), "{found:?}");
    // A share needs more than a bound, and a planned stream has its place.
    assert_eq!(judged(&text, &limit("lost", "0%")), []);
    let placed = text.replace("class: 5,", "class: 7, scheduled: true,");
    assert_eq!(judged(&placed, &limit("latency-max", "1ns")), []);
}

/// The effective rate is told wherever credit is behind gates, and nowhere else.
#[test]
fn t0_credit_behind_gates_has_its_rates() {
    let of = |keys: &str| {
        let text = network(&format!(
            "{}streams:\n{}",
            port(keys),
            stream("own", "a", 5, 100, "kind: cyclic, period: 5ms")
        ));
        let file = NetworkFile::parse("test", &text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        file::gated_classes(&file)
    };
    let credit = "cbs: [{ class: 5, idle_slope: 20Mbit }]";
    let found = of(&format!(
        "{credit}, gates: {{ entries: [{{ open: [5], interval: 250us }}, \
         {{ open: [0], interval: 750us }}] }}"
    ));
    assert_eq!((found.len(), found[0].port.as_str(), found[0].class), (1, "br>c", 5));
    let rate = found[0].rate;
    assert_eq!(
        (rate.standard_bps, rate.linux_least_bps, rate.open_ppm),
        (20_000_000, 5_000_000, 250_000)
    );
    // So a stream of 8.5 Mbit/s has a bound by the standard, and none where a kernel counts.
    let text = network(&format!(
        "{}streams:\n{}",
        port(&format!(
            "{credit}, gates: {{ entries: [{{ open: [5], interval: 250us }}, \
             {{ open: [0], interval: 750us }}] }}"
        )),
        stream("own", "a", 5, 1_000, MS)
    ));
    let file = NetworkFile::parse("test", &text).unwrap();
    let given = file::problem(&file).unwrap();
    let plan = plan(given.problem.clone(), Options::default(), 100_000);
    let is_bounded = |bounds: Vec<RestBound>| bounds[0].bound.is_ok();
    assert!(is_bounded(file::bounds(&file, &given, &plan).unwrap()));
    assert!(!is_bounded(file::bounds_on_linux(&file, &given, &plan).unwrap()));
    assert_eq!(of(credit), []);
    let always = format!("{credit}, gates: {{ entries: [{{ open: [0, 5], interval: 250us }}] }}");
    assert_eq!(of(&always), []);
}
