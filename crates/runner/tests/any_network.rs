// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever network file is accepted compiles for a place, or the place says what it cannot do; and
//! the simulator takes every one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use timewire_base::Sequence;
use timewire_model::scenario::hosts_file::HostsFile;
use timewire_model::scenario::network::{NetworkCase, NetworkCases, NetworkFile};
use timewire_plan::file;
use timewire_plan::synth::{self, Options};
use timewire_runner::network::{self, LaunchError, Obstacle, Planned, Site};
use timewire_runner::simulation;
use timewire_sim::net::Simulation;
use timewire_tsn::file::ParseFile;

/// One of several texts.
fn of<'a>(random: &mut Sequence, texts: &[&'a str]) -> &'a str {
    texts[random.below(texts.len())]
}

/// A line of bridges with a station or two at each, and everything that a file can say about them.
fn text(random: &mut Sequence) -> String {
    let bridges = 1 + random.below(4);
    let mut text = "timewire: 1\nkind: network\nname: chance\nduration: 20ms\n".to_owned();
    text += of(random, &["", "sync_error: 1us\n", "reserve: { period: 500us, duration: 20us }\n"]);
    text += "stations:\n";
    for bridge in 0..bridges {
        let more = of(random, &["", "", ", send: 5us", ", device: { launch_time: 50us }"]);
        let clock = of(random, &["", "", ", clock: { drift: 5ppm, sync: { error: 50ns } }"]);
        let own = of(random, &["", "", ", phases: { run: [{ run: [a, '${v}'], name: a }] }"]);
        let _ = writeln!(text, "- {{ name: s{bridge}{more}{clock}{own} }}\n- t{bridge}");
    }
    text += "bridges:\n";
    for bridge in 0..bridges {
        let phases = ", phases: { close: { after: 1ms, steps: [{ snapshot: s.json }] } }";
        let more = of(random, &["", "", ", cut_through: 64B", ", device: i226", phases]);
        let _ = writeln!(text, "- {{ name: b{bridge}, forward: 2us{more} }}");
    }
    text += "links:\n";
    for bridge in 0..bridges {
        let more = of(random, &["", "", ", delay: 1us", ", rate: 1Gbit", ", loss: 0.1%"]);
        let _ = writeln!(text, "- {{ between: [s{bridge}, b{bridge}]{more} }}");
        let _ = writeln!(text, "- {{ between: [t{bridge}, b{bridge}] }}");
        if bridge > 0 {
            let _ = writeln!(text, "- {{ between: [b{}, b{bridge}] }}", bridge - 1);
        }
    }
    let port = of(
        random,
        &[
            "",
            "",
            "",
            "cbs: [{ class: 3, idle_slope: 20Mbit }]",
            "cbs: [{ class: 3, idle_slope: 9Mbit, rules: linux, hi_credit: 1kB, lo_credit: 1kB }]",
            "gates: { entries: [{ open: [5], interval: 200us }, \
             { open: [0, 3], interval: 300us }] }",
            "preemptable: [0]",
            "capacity: 50",
            "launch: [5]",
        ],
    );
    if !port.is_empty() {
        let _ = writeln!(text, "ports:\n- of: [s0, b0]\n  {port}");
    }
    text += "streams:\n";
    let planned = !port.contains("gates") && random.happens(1, 2);
    let mut first = 0;
    for index in 0..2 + random.below(5) {
        let (from, to) = (random.below(bridges), random.below(bridges));
        if index == 0 {
            first = to;
        }
        let listeners = match random.below(4) {
            0 if bridges > 1 => format!("[t{to}, t{}]", (to + 1) % bridges),
            _ => format!("t{to}"),
        };
        let size = 20 + random.below(1_400);
        let is_planned = planned && random.happens(2, 3);
        let kind = match is_planned {
            true => {
                of(random, &["period: 1ms", "period: 2ms, burst: 2", "kind: sporadic, gap: 2ms"])
            }
            false => of(
                random,
                &[
                    "period: 1ms",
                    "period: 500us, jitter: 5us",
                    "kind: flood, rate: 20Mbit",
                    "kind: sporadic, gap: { kind: exponential, min: 500us, mean: 2ms }",
                    "period: 2ms, max_latency: 5ms, max_loss: 1%",
                    "period: 2ms, max_jitter: 5ms",
                ],
            ),
        };
        let class = if is_planned { 7 } else { [0, 3, 5][random.below(3)] };
        let scheduled = if is_planned { ", scheduled: true" } else { "" };
        let _ = writeln!(
            text,
            "- {{ name: x{index}, talker: s{from}, listeners: {listeners}, class: {class}, \
             size: {size}B, {kind}{scheduled} }}"
        );
    }
    if random.happens(1, 2) {
        // What follows the first stream, a request, and its answer.
        let work = of(random, &["20us", "20us", "{ kind: uniform, min: 1us, max: 9us }"]);
        let from_start = of(random, &["", ", from_start: true"]);
        let (last, to) = (bridges - 1, random.below(bridges));
        let _ = writeln!(
            text,
            "- {{ name: y0, talker: t{first}, listeners: s{to}, class: 3, size: 64B, kind: after, \
             follows: x0, work: {work}{from_start} }}\n\
             - {{ name: y1, talker: s0, listeners: t{last}, size: 90B, kind: request, answer: y2, \
             think: 50us }}\n\
             - {{ name: y2, talker: t{last}, listeners: s0, size: 400B, kind: after, follows: y1 }}"
        );
    }
    text += of(
        random,
        &["", "", "", "faults: [{ kind: babble, stream: x0, at: 1ms, duration: 1ms }]\n"],
    );
    // The steps above have the variable in any case.
    text += of(random, &["experiment: { variables: [{ name: v, values: [1, 2] }] }\n", ""]);
    if !text.ends_with("] }\n") {
        text = text.replace("${v}", "v");
    }
    text
}

/// Hosts for all of a network, or for all but one.
fn hosts(network: &NetworkFile, complete: bool) -> HostsFile {
    let mut text = "timewire: 1\nkind: hosts\nclock: one-host\nstations:\n".to_owned();
    let stations = network.stations.iter().map(|it| &it.name);
    let nodes = stations.chain(network.bridges.iter().map(|it| &it.name));
    for (number, node) in nodes.enumerate().skip(usize::from(!complete)) {
        let ends = network.links.iter().filter(|link| link.between.contains(node));
        let far = ends.flat_map(|link| link.between.iter().filter(|end| *end != node));
        let links =
            far.enumerate().map(|(i, far)| format!("{{ to: {far}, interface: p{number}-{i} }}"));
        let links: Vec<String> = links.collect();
        let _ = writeln!(text, "- {{ name: {node}, agent: local, links: [{}] }}", links.join(", "));
    }
    HostsFile::parse("hosts.yaml", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// What a case may change.
const CHANGES: [&str; 5] = [
    "{ sync_error: 2us }",
    "{ streams: { x0: { class: 2 } }, stations: { t0: { receive: 3us } } }",
    "{ bridges: { b0: { forward: null } }, ports: [] }",
    "{ streams: { x1: null } }",
    "{ streams: { x0: { scheduled: true, kind: null, class: 7, period: 1ms } } }",
];

/// An experiment with a few cases, or none.
fn experiment(random: &mut Sequence) -> String {
    if random.happens(2, 3) {
        return String::new();
    }
    let mut text = "experiment:\n  loads: [one, two]\n  cases:\n  - name: as-it-is\n".to_owned();
    for number in 0..1 + random.below(2) {
        let change = of(random, &CHANGES);
        let _ = writeln!(text, "  - {{ name: c{number}, change: {change} }}");
    }
    text
}

#[test]
fn t0_what_is_accepted_compiles_or_the_place_says_why_not() {
    let mut came_to: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..600 {
        let mut random = Sequence::new(seed);
        let text = text(&mut random) + &experiment(&mut random);
        let Ok(network) = NetworkCases::parse("chance", &text) else {
            *came_to.entry("no file").or_default() += 1;
            continue;
        };
        if network.has_experiment {
            *came_to.entry("experiments").or_default() += 1;
        }
        for case in &network.cases {
            one((seed, &text), case, &mut came_to);
        }
    }
    let count = |what: &str| came_to.get(what).copied().unwrap_or(0);
    assert!(count("simulated") > 300 && count("experiments") > 50, "{came_to:?}");
    assert!(count("laboratory") > 30 && count("hosts") > 30, "{came_to:?}");
    assert!(count("said why not") > 100, "{came_to:?}");
    assert_eq!(count("a host is missing"), 0, "{came_to:?}");
}

fn one((seed, text): (u64, &str), case: &NetworkCase, came_to: &mut BTreeMap<&str, u32>) {
    let network = &case.file;
    let given = file::problem(network).unwrap();
    let plan = synth::plan(given.problem.clone(), Options::default(), 10_000);
    let planned = Planned { case, given: &given, plan: &plan };
    let with_plan = file::planned(network, &given, &plan);
    let with_plan = with_plan.unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
    let built = simulation::network(&with_plan, Path::new("."));
    let (built, _) = built.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    Simulation::new(&built).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    *came_to.entry("simulated").or_default() += 1;
    if !plan.refused.is_empty() {
        // Which is told before anything is compiled.
        *came_to.entry("rejected").or_default() += 1;
        return;
    }
    let (all, few) = (hosts(network, true), hosts(network, false));
    let sites = [
        ("laboratory", Site::Laboratory),
        ("hosts", Site::Hosts(&all)),
        ("a host is missing", Site::Hosts(&few)),
    ];
    for (place, site) in sites {
        match network::compile(planned, site, &LaunchError::lab_uml()) {
            Ok(compiled) => {
                let script = compiled.script();
                let script =
                    script.unwrap_or_else(|error| panic!("seed {seed}, {place}: {error}\n{text}"));
                let trials = timewire_agent::sweep::trials(&script, "0");
                let trials =
                    trials.unwrap_or_else(|error| panic!("seed {seed}, {place}: {error}\n{text}"));
                assert_eq!(trials.len(), 1, "seed {seed}, {place}\n{text}");
                assert!(!compiled.promises.is_empty(), "seed {seed}, {place}");
                *came_to.entry(place).or_default() += 1;
            }
            Err(obstacles) => {
                assert!(!obstacles.is_empty(), "seed {seed}, {place}\n{text}");
                for Obstacle { what, why } in &obstacles {
                    assert!(!what.is_empty() && !why.is_empty(), "seed {seed}: {obstacles:?}");
                }
                *came_to.entry("said why not").or_default() += 1;
            }
        }
    }
}
