// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of networks with chains, requests and answers: no simulated message is ever later.

use std::fmt::Write as _;
use std::path::Path;

use timewire_base::{Sequence, Span};
use timewire_model::scenario::network::{NetDelay, NetworkFile};
use timewire_plan::file;
use timewire_plan::synth::{self, Options};
use timewire_runner::simulation;
use timewire_sim::net::Simulation;
use timewire_tsn::file::ParseFile;

/// A few bridges in a line with two stations each, chains, requests and load by chance.
fn text(random: &mut Sequence) -> String {
    let bridges = 1 + random.below(3);
    let mut text = "timewire: 1\nkind: network\nname: chance\nduration: 60ms\n".to_owned();
    let _ = writeln!(text, "seed: {}", 1 + random.below(1_000));
    text += "stations:\n";
    let more = ["", "", ", send: { kind: uniform, min: 0us, max: 30us }", ", receive: 4us"];
    for bridge in 0..bridges {
        for side in ["s", "t"] {
            let _ = writeln!(text, "- {{ name: {side}{bridge}{} }}", more[random.below(4)]);
        }
    }
    text += "bridges:\n";
    for bridge in 0..bridges {
        let cut = if random.below(5) == 0 { ", cut_through: 64B" } else { "" };
        let _ = writeln!(text, "- {{ name: b{bridge}, forward: 2us{cut} }}");
    }
    text += "links:\n";
    for bridge in 0..bridges {
        let _ = writeln!(text, "- [s{bridge}, b{bridge}]\n- [t{bridge}, b{bridge}]");
        if bridge > 0 {
            let _ = writeln!(text, "- [b{}, b{bridge}]", bridge - 1);
        }
    }
    let has_ats = random.below(3) == 0;
    if has_ats {
        text += "ports: [{ of: [b0], ats: [3] }]\n";
    }
    let shaped = |random: &mut Sequence, class: usize| match class {
        3 if has_ats && random.below(2) == 0 => {
            let (rate, burst) = (1 + random.below(30), 100 + random.below(5_000));
            format!(", ats: {{ rate: {rate}Mbit, burst: {burst}B }}")
        }
        _ => String::new(),
    };
    text += "streams:\n";
    let station = |random: &mut Sequence| {
        let side = if random.below(2) == 0 { 's' } else { 't' };
        format!("{side}{}", random.below(bridges))
    };
    let other = |random: &mut Sequence, than: &str| loop {
        let one = station(random);
        if one != than {
            return one;
        }
    };
    let delay = |random: &mut Sequence| match random.below(3) {
        0 => "{ kind: uniform, min: 10us, max: 90us }".to_owned(),
        _ => format!("{}us", random.below(80)),
    };
    for chain in 0..1 + random.below(3) {
        let mut from = station(random);
        let mut to = other(random, &from);
        let (class, size) = (random.below(8), 30 + random.below(900));
        let burst = if random.below(4) == 0 { ", burst: 2, spacing: 9us" } else { "" };
        let jitter = if random.below(3) == 0 {
            ", jitter: { kind: uniform, min: 0us, max: 60us }"
        } else {
            ""
        };
        let (period, offset) = (1 + random.below(3), random.below(900));
        let traffic = match random.below(6) {
            0 => format!("kind: flood, rate: {}Mbit", 1 + random.below(4)),
            _ => format!("period: {period}ms, offset: {offset}us{burst}{jitter}"),
        };
        let ats = shaped(random, class);
        let _ = writeln!(
            text,
            "- {{ name: c{chain}-0, talker: {from}, listeners: {to}, class: {class}, \
             size: {size}B, {traffic}{ats} }}"
        );
        for step in 1..1 + random.below(4) {
            from = to;
            to = other(random, &from);
            let (class, size) = (random.below(8), 30 + random.below(900));
            let start = if random.below(2) == 0 { ", from_start: true" } else { "" };
            let ats = shaped(random, class);
            let _ = writeln!(
                text,
                "- {{ name: c{chain}-{step}, talker: {from}, listeners: {to}, class: {class}, \
                 size: {size}B, kind: after, follows: c{chain}-{}, work: {}{start}{ats} }}",
                step - 1,
                delay(random)
            );
        }
    }
    for pair in 0..random.below(3) {
        let client = station(random);
        let server = other(random, &client);
        let class = random.below(8);
        let timeout = ["1ms", "20ms"][random.below(2)];
        let _ = writeln!(
            text,
            "- {{ name: q{pair}, talker: {client}, listeners: {server}, class: {class}, \
             size: 100B, kind: request, answer: a{pair}, think: {}, timeout: {timeout} }}\n\
             - {{ name: a{pair}, talker: {server}, listeners: {client}, class: {class}, \
             size: 700B, kind: after, follows: q{pair}, work: {} }}",
            delay(random),
            delay(random)
        );
    }
    for load in 0..random.below(3) {
        let from = station(random);
        let to = other(random, &from);
        let _ = writeln!(
            text,
            "- {{ name: f{load}, talker: {from}, listeners: {to}, class: {}, size: 1000B, \
             kind: flood, rate: {}Mbit, burst: {} }}",
            random.below(3),
            2 + random.below(20),
            1 + random.below(4)
        );
    }
    text
}

/// What software adds to a latency at both ends, and by how much that differs.
fn at_ends(file: &NetworkFile, stream: usize) -> (Span, Span) {
    let stream = &file.streams[stream];
    let of = |name: &str| file.stations.iter().find(|it| it.name.as_str() == name).unwrap();
    let range = |delay: &NetDelay| (delay.range().0, delay.range().1.unwrap());
    let send = range(&of(file.counts_from(stream).talker.as_str()).send);
    let receive = range(&of(stream.listeners.all()[0].as_str()).receive);
    (send.1 + receive.1, send.1 - send.0 + receive.1 - receive.0)
}

#[test]
fn t0_no_simulated_chain_exceeds_its_bounds() {
    let (mut bounded, mut chains, mut without) = (0, 0, 0);
    let (mut reached, mut worst) = (0.0_f64, 0.0_f64);
    for seed in 0..2_000 {
        let mut random = Sequence::new(seed);
        let text = text(&mut random);
        let file = NetworkFile::parse("chance", &text).unwrap_or_else(|it| panic!("{it}{text}"));
        let given = file::problem(&file).unwrap();
        let plan = synth::plan(given.problem.clone(), Options::default(), 1);
        // Requests that follow each other at once can be more than a link takes.
        let Ok(bounds) = file::bounds(&file, &given, &plan) else {
            without += 1;
            continue;
        };
        let (network, _) = simulation::network(&file, Path::new(".")).unwrap();
        let outcome = Simulation::run(&network).unwrap();
        for own in bounds {
            let Ok((latency, jitter)) = own.bound else { continue };
            let name = &file.streams[own.stream].name;
            let latencies = &outcome.streams[own.stream].latencies;
            let (Some(least), Some(most)) = (latencies.min_ps(), latencies.max_ps()) else {
                continue;
            };
            let (adds, differs) = at_ends(&file, own.stream);
            let ps = |span: Span| u64::try_from(span.as_ns()).unwrap() * 1_000;
            let (latency, jitter) = (ps(latency + adds), ps(jitter + differs));
            assert!(most <= latency, "seed {seed}: {name}: {most} > {latency}\n{text}");
            let varies = most - least;
            assert!(varies <= jitter, "seed {seed}: {name}: {varies} > {jitter}\n{text}");
            bounded += 1;
            chains += u32::from(name.as_str().starts_with('c') && !name.as_str().ends_with("-0"));
            #[expect(clippy::cast_precision_loss, reason = "a ratio, for people")]
            let ratio = most as f64 / latency as f64;
            reached += ratio;
            worst = worst.max(ratio);
        }
    }
    let of = (bounded, chains, without);
    assert!(bounded > 3_000 && chains > 1_000 && without < 1_200, "{of:?}");
    let mean = reached / f64::from(bounded);
    // Bounds that nothing comes near would be of no use.
    assert!(mean > 0.2 && worst > 0.6, "{of:?}: {mean} of the bound in the mean, {worst} at most");
}
