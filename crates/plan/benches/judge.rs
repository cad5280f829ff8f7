// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What judging costs: `cargo bench -p timewire-plan --bench judge`. Plans of 10 000 streams are
//! checked, and the same streams are bounded as if they had no schedule. CPU seconds of this
//! process.
#![allow(clippy::disallowed_methods, reason = "a program: it measures itself")]

use timewire_base::{BitsPerSecond, Span};
use timewire_plan::bounds::{PortScheme, Route, Selection, bound};
use timewire_plan::check::check;
use timewire_plan::generate::{Recipe, Topology};
use timewire_plan::model::{Plan, Problem};
use timewire_plan::synth::{Options, plan};

fn main() {
    let torus = Topology::Torus(10, 10);
    let fat = Topology::FatTree { pods: 10, width: 4, cores: 5 };
    for (name, topology, stations, longest) in
        [("torus", torus, 3, 660), ("fat tree", fat, 8, 1250)]
    {
        let mut recipe = Recipe::new(topology, stations, 10_000, 1);
        recipe.lengths = (64, longest);
        recipe.processing = (Span::from_us(1), Span::from_us(2));
        let problem = recipe.problem().expect("a recipe that works");
        let plan = plan(problem.clone(), Options::default(), u64::MAX);
        checked(name, &problem, &plan);
        for (scheme, text) in [
            (PortScheme::default(), "strict priority"),
            (scheme(Selection::Regulated), "regulated"),
            (scheme(Selection::Credit { idle_slope: slope(750) }), "credit of 75 %"),
        ] {
            bounded(name, text, &problem, &plan, &scheme);
        }
    }
}

fn slope(mbit: u64) -> BitsPerSecond {
    BitsPerSecond::new(mbit * 1_000_000).expect("a rate")
}

fn scheme(selection: Selection) -> PortScheme {
    PortScheme { classes: [Selection::Strict; 8].map(|_| selection), ..PortScheme::default() }
}

/// CPU seconds of this program, which has one thread.
fn cpu_seconds() -> f64 {
    timewire_sys::clock::thread_time().as_ns() as f64 / 1e9
}

fn checked(name: &str, problem: &Problem, plan: &Plan) {
    let start = cpu_seconds();
    let report = check(problem, plan).expect("a cycle that can be gone through");
    let seconds = cpu_seconds() - start;
    println!(
        "{name}: {} admitted, {} refused; checked {} transmissions, {} in all cycles, \
         {} findings: {seconds:.3} CPU s",
        plan.admitted.len(),
        plan.refused.len(),
        report.transmissions,
        report.instances,
        report.findings.len(),
    );
}

fn bounded(name: &str, text: &str, problem: &Problem, plan: &Plan, scheme: &PortScheme) {
    let routes: Vec<Route> = plan
        .admitted
        .iter()
        .map(|admission| Route {
            stream: admission.stream,
            links: admission.transmissions.iter().map(|sent| sent.link).collect(),
            together: 0,
        })
        .collect();
    // One class with credit alone; the others are not used.
    let mut scheme = scheme.clone();
    if let Selection::Credit { .. } = scheme.classes[7] {
        scheme.classes[..7].fill(Selection::Strict);
    }
    let schemes = vec![scheme; problem.network().links().len()];
    let start = cpu_seconds();
    let bounds = bound(problem, &routes, &schemes).expect("routes of a plan");
    let seconds = cpu_seconds() - start;
    let latencies = bounds.streams.iter().filter_map(|stream| stream.latency);
    let longest = latencies.clone().max().unwrap_or(Span::ZERO);
    let count = |kind: &str| {
        let own = bounds.queues.iter().filter_map(|queue| queue.without.as_ref());
        own.filter(|without| without.cause.kind() == kind).count()
    };
    println!(
        "{name}, {text}: {} of {} streams bounded, longest {} us, {} queues, {} circular, \
         {} overloaded: {seconds:.3} CPU s",
        latencies.count(),
        routes.len(),
        longest.as_ns() / 1_000,
        bounds.queues.len(),
        count("circular"),
        count("overload"),
    );
}
