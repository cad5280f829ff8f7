// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Problems as tables of tsnkit, on which planners are held beside each other:
//! `cargo run -p timewire-plan --example peer_instances -- DIR [--quick]` writes
//! `NAME-task.csv` and `NAME-topo.csv` of each, and prints a line of JSON for each; for those that
//! have no plan with how long the reason of the stream that is too much takes. The tables are the
//! same on every machine. Lengths are whole multiples of 100 bytes and times of 100 ns, to which
//! tsnkit rounds, and nothing surrounds a frame.
#![allow(clippy::disallowed_methods, reason = "a program: it writes files, reads the clock")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use timewire_base::Span;
use timewire_plan::generate::{Recipe, Topology};
use timewire_plan::model::{ModelError, NetworkOptions, NodeId, Problem, Stream};
use timewire_plan::synth::{Budget, Change, Options, Planner};
use timewire_plan::words;

/// Intervals that divide each other, and some that do not. **Units**: microseconds.
const HARMONIC: &[i64] = &[250, 500, 1000, 2000];
const MIXED: &[i64] = &[250, 400, 500, 1000, 2000, 5000];
const LINE: Topology = Topology::Line(8);
const RING: Topology = Topology::Ring(8);
const TREE: Topology = Topology::Tree(9);
const MESH: Topology = Topology::Mesh(8);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (directory, quick) = (arguments.next(), arguments.next());
    let (Some(directory), true) = (directory, quick.as_deref().is_none_or(|it| it == "--quick"))
    else {
        eprintln!("usage: peer_instances DIR [--quick]");
        return ExitCode::from(2);
    };
    match write_all(Path::new(&directory), quick.is_some()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// A problem with its name and what is known of it.
struct Instance {
    name: String,
    known: &'static str,
    problem: Problem,
}

fn write_all(directory: &Path, quick: bool) -> Result<(), String> {
    let mut instances = light()?;
    instances.extend(loaded()?);
    instances.extend(impossible()?);
    if quick {
        let wanted = ["mesh-light", "line-open-70-mixed", "ring-known-80-mixed", "no-late"];
        instances.retain(|instance| wanted.contains(&instance.name.as_str()));
    }
    for Instance { name, known, problem } in instances {
        let (task, topo) = tables(&problem);
        for (end, text) in [("task", task), ("topo", topo)] {
            let path = directory.join(format!("{name}-{end}.csv"));
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let streams = problem.streams().len();
        let refused = if known == "has none" { refusal(&problem)? } else { String::new() };
        println!(
            "{{\"name\": \"{name}\", \"known\": \"{known}\", \"streams\": {streams}{refused}}}"
        );
    }
    Ok(())
}

fn recipe(topology: Topology, streams: usize, intervals: &[i64], seed: u64) -> Recipe {
    let mut recipe = Recipe::new(topology, 1, streams, seed);
    recipe.intervals = intervals.iter().copied().map(Span::from_us).collect();
    recipe.options = NetworkOptions { overhead_bytes: 0, ..NetworkOptions::default() };
    (recipe.lengths, recipe.length_step) = ((100, 500), 100);
    recipe
}

fn made(name: &str, known: &'static str, recipe: &Recipe) -> Result<Instance, String> {
    let problem = recipe.problem().map_err(|error| format!("{name}: {error}"))?;
    Ok(Instance { name: name.to_owned(), known, problem })
}

/// Few bytes; and deadlines that leave no time to wait.
fn light() -> Result<Vec<Instance>, String> {
    let relaxed = &[500, 1000, 2000, 4000];
    let mut all = Vec::new();
    for (name, topology) in
        [("line-light", LINE), ("ring-light", RING), ("tree-light", TREE), ("mesh-light", MESH)]
    {
        all.push(made(name, "", &recipe(topology, 40, relaxed, 1))?);
    }
    for (name, topology) in [("tree-tight", TREE), ("mesh-tight", MESH)] {
        let mut tight = made(name, "", &recipe(topology, 40, relaxed, 2))?;
        let streams = tight.problem.streams().to_vec();
        let all_tight = streams.into_iter().map(|mut stream| {
            let least = least_latency(&tight.problem, &stream);
            // tsnkit's own generator leaves as much: the processing of one node more.
            stream.latency_max = (least + Span::from_us(2)).min(stream.interval);
            stream
        });
        let network = tight.problem.network().clone();
        tight.problem = Problem::new(network, all_tight.collect()).map_err(|e| e.to_string())?;
        all.push(tight);
    }
    Ok(all)
}

/// Links that are nearly full: some filled along a plan that is not told, some just filled.
fn loaded() -> Result<Vec<Instance>, String> {
    let mut all = Vec::new();
    for (place, topology, load_percent, mixed, solvable) in [
        ("line", LINE, 60, false, true),
        ("tree", TREE, 60, false, true),
        ("ring", RING, 80, true, true),
        ("mesh", MESH, 80, true, true),
        ("line", LINE, 94, false, true),
        ("mesh", MESH, 94, false, true),
        ("line", LINE, 70, true, false),
        ("tree", TREE, 70, false, false),
        ("ring", RING, 94, false, false),
        ("mesh", MESH, 94, false, false),
    ] {
        let few = if load_percent == 70 { 60 } else { 150 };
        let intervals = if mixed { MIXED } else { HARMONIC };
        let mut full = recipe(topology, if solvable { 10_000 } else { few }, intervals, 0);
        full.lengths = if solvable { (400, 4500) } else { (400, 1500) };
        (full.load_percent, full.solvable) = (load_percent, solvable);
        let (kind, known) = if solvable { ("known", "has a plan") } else { ("open", "") };
        let end = if mixed { "-mixed" } else { "" };
        all.push(made(&format!("{place}-{kind}-{load_percent}{end}"), known, &full)?);
    }
    Ok(all)
}

/// Light problems in which one thing is too much.
fn impossible() -> Result<Vec<Instance>, String> {
    let mut all = Vec::new();
    for name in ["no-late", "no-load", "no-pair", "no-clique"] {
        let mut instance = made(name, "has none", &recipe(LINE, 30, &[500, 1000], 3))?;
        let problem = &mut instance.problem;
        let from = NodeId::from_index(8);
        if matches!(name, "no-load" | "no-clique") {
            // Nobody else is on the links that are to be full.
            let mut others = problem.streams().to_vec();
            let next = NodeId::from_index(9);
            others.retain(|stream| stream.talker != from && !stream.listeners.contains(&next));
            let network = problem.network().clone();
            *problem = Problem::new(network, others).map_err(|error| error.to_string())?;
        }
        let more: Vec<(usize, Span, u32)> = match name {
            "no-late" => vec![(7, Span::from_us(1000), 1500)],
            "no-load" => vec![(1, Span::from_us(100), 3300); 4],
            "no-pair" => vec![(1, Span::from_us(200), 1500), (2, Span::from_us(301), 1500)],
            _ => [400, 600, 1000].map(|us| (1, Span::from_us(us), 9000)).to_vec(),
        };
        for (bridge, interval, length) in more {
            let to = NodeId::from_index(8 + bridge);
            let number = problem.streams().len();
            let mut stream = Stream::new(format!("more{number}"), from, to, interval, length);
            if name == "no-late" {
                stream.latency_max = least_latency(problem, &stream) - Span::from_ns(100);
            }
            problem.add(stream).map_err(|error| format!("{name}: {error}"))?;
        }
        all.push(instance);
    }
    Ok(all)
}

/// How long a stream's frame needs when it is alone, over the fewest links.
fn least_latency(problem: &Problem, stream: &Stream) -> Span {
    let network = problem.network();
    let mut reached = vec![stream.talker];
    let mut frontier = reached.clone();
    let mut hops = 0;
    while !reached.contains(&stream.listeners[0]) {
        let next = |node: &NodeId| {
            let links = network.links().iter().filter(|link| link.from == *node);
            links.map(|link| link.to).collect::<Vec<_>>()
        };
        frontier = frontier.iter().flat_map(next).filter(|node| !reached.contains(node)).collect();
        reached.extend(&frontier);
        hops += 1;
    }
    // Gigabit links: 8 ns for a byte, and 2 us in each bridge.
    let on_link = i64::from(stream.length_bytes) * 8;
    Span::from_ns(on_link * hops + 2000 * (hops - 1))
}

/// Asks for the last stream beside all others, which have places: how long the reason takes, the
/// least of many times, as part of a line of JSON.
fn refusal(problem: &Problem) -> Result<String, String> {
    let failed = |error: ModelError| error.to_string();
    let (last, others) = problem.streams().split_last().ok_or("no streams")?;
    let rest = Problem::new(problem.network().clone(), others.to_vec()).map_err(failed)?;
    let mut planner = Planner::new(rest, Options::default());
    planner.run(&mut Budget { work: 10_000_000, go_on: &mut |_| true });
    if let Some(refusal) = planner.plan().refused.first() {
        let reason = words::reason(planner.problem(), &refusal.certificate);
        return Err(format!("not even the others have places: {reason}"));
    }
    let mut least = u128::MAX;
    let mut reason = String::new();
    for _ in 0..200 {
        let stream = last.clone();
        let start = Instant::now();
        let change = planner.add(stream, 0).map_err(failed)?;
        least = least.min(start.elapsed().as_nanos());
        let Change::Refused(certificate) = change else { return Err("it is admitted".into()) };
        if !certificate.is_proof() {
            return Err(format!("{certificate:?} is no proof"));
        }
        reason = words::reason(problem, &certificate);
    }
    let reason = reason.replace(['"', '\\'], "'");
    Ok(format!(", \"refused_ns\": {least}, \"reason\": \"{reason}\""))
}

/// The streams and the links, in the numbers of the nodes.
fn tables(problem: &Problem) -> (String, String) {
    let mut task = "stream,src,dst,size,period,deadline,jitter\n".to_owned();
    for (number, stream) in problem.streams().iter().enumerate() {
        let (talker, listener) = (stream.talker.0, stream.listeners[0].0);
        let (interval, deadline) = (stream.interval.as_ns(), stream.latency_max.as_ns());
        // Text goes into memory, which does not fail.
        let _ = writeln!(
            task,
            "{number},{talker},[{listener}],{},{interval},{deadline},{deadline}",
            stream.length_bytes
        );
    }
    let mut topo = "link,q_num,rate,t_proc,t_prop\n".to_owned();
    for link in problem.network().links() {
        let _ = writeln!(topo, "\"({}, {})\",8,1,2000,0", link.from.0, link.to.0);
    }
    (task, topo)
}
