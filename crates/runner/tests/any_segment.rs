// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever network of one segment is accepted runs in each place, or the place says with a key
//! what it cannot do; and the simulator takes every one whose stations run no programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use timewire_base::Sequence;
use timewire_model::scenario::hosts_file::HostsFile;
use timewire_model::scenario::network::NetworkCases;
use timewire_model::scenario::{Scenario, ScenarioErrors};
use timewire_runner::experiment::{HostsOptions, Script, SimOptions, check_on_sim, plans_on_hosts};
use timewire_runner::rundir::Destination;
use timewire_runner::simulation;
use timewire_sim::net::Simulation;
use timewire_tsn::file::ParseFile;

/// One of several texts.
fn of<'a>(random: &mut Sequence, texts: &[&'a str]) -> &'a str {
    texts[random.below(texts.len())]
}

/// Three stations and everything that a file can say about them.
fn text(random: &mut Sequence) -> String {
    let mut text = "timewire: 1\nkind: network\nname: chance\nduration: 40ms\n".to_owned();
    text += of(random, &["", "", "warm_up: 10ms\n", "seed: 5\n", "sync_error: 1us\n"]);
    let segment = ["", "rate: 1Gbit", "delay: 3us", "access: token", "access: in-turn", "loss: 1%"];
    let _ = writeln!(text, "segments: [{{ {} }}]", of(random, &segment));
    let address = of(random, &["", "", ", address: 10.9.0.NR/24"]);
    let clock = of(random, &["", "", ", clock: { drift: 5ppm }", ", receive: 2us"]);
    text += "stations:\n";
    for (number, name) in ["a", "b", "c"].iter().enumerate() {
        let address = address.replace("NR", &(number + 1).to_string());
        let _ = writeln!(text, "- {{ name: {name}{address}{clock} }}");
    }
    let slots = [
        "transmit: 400us, slots: [a, b, c]",
        "transmit: 400us, slots: [a, b, c]",
        "cycle_time: 2ms, guard: 20us, transmit: 200us, slots: [c, { station: a, transmit: 1ms }]",
        "order: along-pipelines, transmit: 400us, slots: [a, b, c]",
        "guard: 10us, from_streams: { step: 50us }",
        "transmit: 30us, slots: [a, b]",
    ];
    let more = ["", "", "by: taprio, ", "by: etf, ", "by: cbs, ", "release: aligned, lead: 40us, "];
    if random.happens(4, 5) {
        let (more, slots) = (of(random, &more), of(random, &slots));
        let _ = writeln!(text, "schedule: {{ kind: tdm, {more}{slots} }}");
    }
    text += of(random, &["", "", "mac: { queue_frames: 9 }\n", "mac: { mode: hybrid }\n"]);
    let queues = "queues: { send: [{ port: 99, priority: 2 }] }\n";
    text += of(random, &["", "", queues, "published: { source: x, latency_mean: 1ms }\n"]);
    text += "streams:\n";
    for index in 0..1 + random.below(4) {
        let ways = [("a", "b"), ("b", "c"), ("c", "a"), ("b", "[c, a]"), ("a", "a"), ("a", "d")];
        let likely = if random.happens(9, 10) { 4 } else { ways.len() };
        let (from, to) = ways[random.below(likely)];
        let kinds = [
            "period: 2ms",
            "period: 5ms, offset: 1ms",
            "period: 2ms, burst: 2",
            "kind: sporadic, gap: 3ms",
            "kind: flood, rate: 5Mbit, burst: 4",
            "kind: request-response, timeout: 5ms",
            "kind: pipeline, deadline: 9ms",
            "kind: pipeline, deadline: 9ms, period: 4ms, compute: 100us",
        ];
        let (kind, size) = (of(random, &kinds), 8 + random.below(1_400));
        let _ = write!(text, "- {{ name: x{index}, talker: {from}, listeners: {to}, {kind}");
        let more = [
            "",
            "",
            ", class: 7",
            ", class: 3, max_latency: 3ms",
            ", port: 7000",
            ", max_loss: 1%",
        ];
        let _ = writeln!(text, ", size: {size}B{} }}", of(random, &more));
    }
    let metrics = ["latency-max", "latency-p50", "lost", "late", "outside-slots", "receive-p99"];
    if random.happens(1, 3) {
        let metric = of(random, &metrics);
        let stream = if metric == "outside-slots" { "" } else { ", stream: x0" };
        let most = if metric.starts_with('l') && metric.len() > 4 { "5ms" } else { "1%" };
        let _ = writeln!(text, "limits: [{{ id: l, metric: {metric}{stream}, at_most: {most} }}]");
    }
    if random.happens(1, 2) {
        text += "experiment:\n  loads: [one, two]\n  cases:\n  - { name: as-it-is }\n";
        let changes = [
            "{ schedule: null }",
            "{ schedule: { by: taprio-assist } }",
            "{ streams: { x0: { class: 0 } }, queues: null }",
            "{ schedule: { release: planned, lead: 90us } }",
            "{ duration: 20ms }",
            "{ streams: { x0: null } }",
        ];
        let _ = writeln!(text, "  - {{ name: other, change: {} }}", of(random, &changes));
    }
    text
}

#[test]
fn t0_what_is_accepted_of_one_segment_runs_or_the_place_says_why_not() {
    let mut came_to: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..1_200 {
        let text = text(&mut Sequence::new(seed));
        let network = match NetworkCases::parse("chance", &text) {
            Ok(network) => network,
            Err(errors) => {
                say_why(&errors, seed, &text);
                *came_to.entry("no file").or_default() += 1;
                continue;
            }
        };
        let runs_programs = network.key_of_programs().is_some();
        if !runs_programs {
            for case in &network.cases {
                let built = simulation::network(&case.file, Path::new("."));
                let (built, _) = built.unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"));
                Simulation::new(&built).unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"));
            }
            *came_to.entry("simulated").or_default() += 1;
        }
        match Scenario::parse("chance", &text) {
            Ok(scenario) => runs((seed, &text), &network, scenario, &mut came_to),
            Err(errors) => {
                say_why(&errors, seed, &text);
                *came_to.entry("said why not").or_default() += 1;
            }
        }
    }
    let count = |what: &str| came_to.get(what).copied().unwrap_or(0);
    for (what, least) in [
        ("no file", 100),
        ("simulated", 15),
        ("said why not", 300),
        ("programs simulated", 100),
        ("planned on hosts", 100),
    ] {
        assert!(count(what) >= least, "{what}: {came_to:?}");
    }
}

/// Errors say something of a key, at a place that is there.
fn say_why(errors: &ScenarioErrors, seed: u64, text: &str) {
    assert!(!errors.errors.is_empty(), "{seed}\n{text}");
    for error in &errors.errors {
        let is_there = error.line <= text.lines().count() && !error.message.is_empty();
        assert!(is_there && !error.key.is_empty(), "{seed}: {errors}\n{text}");
    }
}

fn runs(
    (seed, text): (u64, &str),
    network: &NetworkCases,
    scenario: Scenario,
    came_to: &mut BTreeMap<&str, u32>,
) {
    // Its file with all that follows is the same again.
    let json = scenario.filled_into(&network.written).to_json().to_string();
    let again = Scenario::parse("json", &json);
    let again = again.unwrap_or_else(|errors| panic!("{seed}: {errors}\n{text}"));
    assert_eq!(again.streams, scenario.streams, "{seed}\n{text}");
    assert_eq!(again.schedule, scenario.schedule, "{seed}\n{text}");
    assert_eq!(again.experiment, scenario.experiment, "{seed}\n{text}");
    let script = Script::new(scenario, text.to_owned(), Path::new("."));
    let scripts = [script.unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"))];
    let into = || Destination::new("nowhere".into());
    let title = || "chance".to_owned();
    let options = SimOptions { title: title(), into: into(), quick: false, backend: None, seed: 1 };
    check_on_sim(&scripts, &options).unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"));
    *came_to.entry("programs simulated").or_default() += 1;
    let hosts = "timewire: 1\nkind: hosts\nclock: one-host\nstations:\n\
        - { name: a, agent: 'netns:a', interface: e }\n\
        - { name: b, agent: 'netns:b', interface: e }\n\
        - { name: c, agent: 'netns:c', interface: e }\n";
    let options = HostsOptions {
        title: title(),
        into: into(),
        quick: false,
        program: "timewire".into(),
        backend: None,
        hosts: HostsFile::parse("hosts", hosts).unwrap(),
        hosts_text: hosts.to_owned(),
        keys: "keys".into(),
        clock_error: None,
        trace: false,
    };
    let plans = plans_on_hosts(&scripts, &options);
    let plans = plans.unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"));
    assert_eq!(plans.len(), network.cases.len(), "{seed}\n{text}");
    *came_to.entry("planned on hosts").or_default() += 1;
}
