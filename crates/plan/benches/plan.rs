// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What planning costs: `cargo bench -p timewire-plan --bench plan -- [large] [huge] [hard]
//! [growth [--svg=FILE]] [online] [keep] [packings]`. Times are CPU seconds of this process, which
//! other programs change little; steps are the same on every machine.
#![allow(clippy::disallowed_methods, reason = "a program: it measures itself")]

#[path = "plan/growth.rs"]
mod growth;
#[path = "plan/keep.rs"]
mod keep;
#[path = "plan/online.rs"]
mod online;
#[path = "plan/packings.rs"]
mod packings;

use timewire_base::Span;
use timewire_plan::check::check;
use timewire_plan::generate::{Recipe, Topology};
use timewire_plan::model::{Network, PortGates, Problem};
use timewire_plan::synth::{Budget, Options, Planner, Progress};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w));
    if is_wanted("large") {
        large();
    }
    if is_wanted("huge") {
        huge();
    }
    if is_wanted("hard-known") {
        hard("known to have a plan", true, 10_000);
    }
    if is_wanted("hard-open") {
        hard("open", false, 250);
    }
    if is_wanted("growth") {
        let file = std::env::args().find_map(|a| a.strip_prefix("--svg=").map(str::to_owned));
        growth::growth(file.as_deref());
    }
    if is_wanted("online") {
        online::online();
    }
    if is_wanted("keep") {
        keep::keep();
    }
    if is_wanted("packings") {
        packings::packings();
    }
}

/// CPU seconds of this program, which has one thread.
fn cpu_seconds() -> f64 {
    timewire_sys::clock::thread_time().as_ns() as f64 / 1e9
}

struct Outcome {
    seconds: f64,
    placed: usize,
    proofs: usize,
    planner: Planner,
}

fn run(problem: Problem, seconds: f64, seed: u64) -> Outcome {
    let start = cpu_seconds();
    let mut planner = Planner::new(problem, Options { seed, ..Options::default() });
    let mut go_on = |it: &Progress| !it.is_moving || cpu_seconds() - start < seconds;
    planner.run(&mut Budget { work: u64::MAX, go_on: &mut go_on });
    let seconds = cpu_seconds() - start;
    let plan = planner.plan();
    let proofs = plan.refused.iter().filter(|r| r.certificate.is_proof()).count();
    Outcome { seconds, placed: plan.admitted.len(), proofs, planner }
}

fn report(name: &str, outcome: &Outcome) {
    let streams = outcome.planner.problem().streams().len();
    let mut planner = outcome.planner.clone();
    let cloned = cpu_seconds();
    let plan = planner.plan();
    let rendered = cpu_seconds() - cloned;
    let entries = plan.gates.iter().map(|port| port.entries).max().unwrap_or(0);
    let over = plan.gates.iter().filter(|port| port.entries > 256).count();
    let most = planner.link_loads().into_iter().max().unwrap_or(0);
    println!(
        "{name:<28} most load {} %; {:>6} of {streams:>6} placed, {:>3} refused with proof, \
         {:>8.3} CPU s, {:>10} steps; plan and gates {rendered:.3} CPU s; most entries {entries}, \
         {over} of {} ports above 256",
        most / 10_000,
        outcome.placed,
        outcome.proofs,
        outcome.seconds,
        outcome.planner.work(),
        plan.gates.len(),
    );
}

fn large() {
    let torus = Topology::Torus(10, 10);
    let fat = Topology::FatTree { pods: 10, width: 4, cores: 5 };
    for (name, topology, stations, longest) in
        [("torus 10 000", torus, 3, 660), ("fat tree 10 000", fat, 8, 1250)]
    {
        let mut recipe = Recipe::new(topology, stations, 10_000, 1);
        recipe.lengths = (64, longest);
        let problem = recipe.problem().expect("a recipe that works");
        report(name, &run(problem.clone(), 5.0, 0));
        for entries in [256, 63, 8] {
            limited(name, &problem, entries);
        }
    }
}

/// The same with ports that have short gate lists: what other traffic loses.
fn limited(name: &str, problem: &Problem, entries: u32) {
    let network = problem.network();
    let mut nodes = network.nodes().to_vec();
    for node in &mut nodes {
        node.limits.gate_entries = Some(entries);
    }
    let network = Network::new(nodes, network.links().to_vec(), network.options());
    let streams = problem.streams().to_vec();
    let problem = Problem::new(network.expect("the same links"), streams).expect("the same");
    let mut outcome = run(problem, 5.0, 0);
    let plan = outcome.planner.plan();
    let most = plan.gates.iter().map(|port| port.entries).max().unwrap_or(0);
    let share = |port: &PortGates| port.spare.as_ns() * 1000 / port.cycle.as_ns().max(1);
    let mut spare: Vec<i64> = plan.gates.iter().map(share).collect();
    spare.sort_unstable();
    println!(
        "{name:<28} at most {entries} entries: {} placed, {:.3} CPU s, most entries {most}; time \
         that other traffic loses: half of the ports {} per mille or less, the worst {}",
        outcome.placed,
        outcome.seconds,
        timewire_stats::median(&spare).unwrap_or(0),
        spare.last().unwrap_or(&0),
    );
}

fn huge() {
    let mut recipe = Recipe::new(Topology::Torus(32, 32), 4, 100_000, 1);
    recipe.lengths = (64, 200);
    recipe.intervals = [1, 2, 4, 8].map(Span::from_ms).to_vec();
    let problem = recipe.problem().expect("a recipe that works");
    let mut outcome = run(problem, 20.0, 0);
    report("torus 100 000", &outcome);
    let plan = outcome.planner.plan();
    let start = cpu_seconds();
    let report = check(outcome.planner.problem(), &plan).expect("a cycle that can be gone through");
    println!(
        "torus 100 000                checked: {} transmissions, {} findings, {:.3} CPU s",
        report.transmissions,
        report.findings.len(),
        cpu_seconds() - start
    );
}

/// Links loaded to 60 to 94 %: problems with a plan that is not told, and problems of which nobody
/// knows whether they have one.
fn hard(kind: &str, solvable: bool, streams: usize) {
    let (mut solved, mut all, mut most) = (0, 0, 0.0f64);
    for harmonic in [true, false] {
        for topology in [Topology::Line(8), Topology::Ring(8), Topology::Tree(9), Topology::Mesh(8)]
        {
            for load_percent in [60, 70, 80, 87, 94] {
                let mut recipe = Recipe::new(topology, 1, streams, 0);
                let intervals: &[i64] = match harmonic {
                    true => &[250, 500, 1000, 2000],
                    false => &[250, 400, 500, 1000, 2000, 5000],
                };
                recipe.intervals = intervals.iter().copied().map(Span::from_us).collect();
                recipe.lengths = (if harmonic { 400 } else { 200 }, 1500);
                (recipe.load_percent, recipe.solvable) = (load_percent, solvable);
                let outcome = run(recipe.problem().expect("a recipe that works"), 2.0, 0);
                let streams = outcome.planner.problem().streams().len();
                let load = outcome.planner.link_loads().into_iter().max().unwrap_or(0);
                let open = outcome.placed + outcome.proofs < streams;
                (solved, all) = (solved + usize::from(!open), all + 1);
                most = if open { most } else { most.max(outcome.seconds) };
                println!(
                    "{kind}, {topology:?} {}harmonic at most {load_percent} %: {} of {streams} \
                     placed, {} proofs, {load_is} %, {:.3} CPU s",
                    if harmonic { "" } else { "not " },
                    outcome.placed,
                    outcome.proofs,
                    outcome.seconds,
                    load_is = load / 10_000,
                );
            }
        }
    }
    println!("{kind}: {solved} of {all} decided, each in {most:.3} CPU s at most");
}
