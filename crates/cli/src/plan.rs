// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plan`: a schedule for the streams of a network, or reasons.
//!
//! Not here: finding them (`timewire-plan`).

mod check;
mod file;
mod json;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use timewire_base::{Span, parse_span};
use timewire_plan::check::check_while as judge;
use timewire_plan::exchange::{
    Tsnbench, Tsnkit, TsnkitPlan, read_tsnbench, read_tsnkit, write_tsnkit,
};
use timewire_plan::file::uni_name;
use timewire_plan::model::{Plan, Problem, StreamId};
use timewire_plan::synth::{Budget, Options, Planner};
use timewire_plan::{gantt, words};

use crate::ending::{CODE, Ending, WORDS};
use crate::new_file::NewFile;
use crate::output::{self, ProgressLine};

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The file of the network (YAML or JSON, `kind: network`)
    #[arg(required_unless_present_any = ["tsnkit", "tsnbench"])]
    #[arg(conflicts_with_all = ["tsnkit", "tsnbench"])]
    pub file: Option<PathBuf>,
    /// Of a file with an experiment, the network of this case under this load [default: the file as
    /// it stands]
    #[arg(long, value_name = "CASE/LOAD", requires = "file")]
    pub case: Option<String>,
    /// Tables of tsnkit instead: streams, and the network
    #[arg(long, num_args = 2, value_names = ["TASK.csv", "TOPO.csv"])]
    pub tsnkit: Vec<PathBuf>,
    /// A scenario of TSNBench instead: streams, and the network
    #[arg(long, num_args = 2, value_names = ["STREAMS.json", "TOPOLOGY.json"])]
    #[arg(conflicts_with_all = ["tsnkit", "round", "overhead"])]
    pub tsnbench: Vec<PathBuf>,
    /// With --tsnbench: each stream goes the way that its file gives
    #[arg(long, conflicts_with_all = ["file", "tsnkit"])]
    pub given_ways: bool,
    /// Streams that users ask the network for: instance data of ieee802-dot1q-cnc-config
    #[arg(long, value_name = "FILE.json", requires = "file")]
    pub streams: Option<PathBuf>,
    /// Write what became of them, for those who asked: instance data of the same module
    #[arg(long, value_name = "FILE.json", requires = "streams")]
    pub status: Option<PathBuf>,
    /// Plan nothing: hold what is configured already against the streams. Of a file, a directory
    /// with NAME.tc.json (`tc -j qdisc show`), NAME.yang.json, NAME.yang.xml or NAME.host.yaml of
    /// each station and bridge, and NAME.launch.csv; with --tsnkit, the prefix of tables of results
    #[arg(
        long,
        value_name = "DIR|PREFIX",
        conflicts_with_all = [
            "status", "render", "simulate", "explain", "gantt", "export_tsnkit", "steps",
            "time_limit",
        ]
    )]
    pub check: Option<PathBuf>,
    /// Write the plan for Linux into this new directory: host settings for `apply`, lines of tc,
    /// launch times of each talker, and the network with the plan in it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["tsnkit", "tsnbench"])]
    pub render: Option<PathBuf>,
    /// Simulate the network with the plan in it, and hold every promise of the plan against it
    #[arg(long, conflicts_with_all = ["tsnkit", "tsnbench", "explain"])]
    pub simulate: bool,
    /// With --tsnkit: round lengths up to 100 bytes and times to 100 ns, as tsnkit does
    #[arg(long, conflicts_with = "file")]
    pub round: bool,
    /// With --tsnkit: bytes around each frame; 20 on Ethernet
    #[arg(long, value_name = "BYTES", default_value_t = 0, conflicts_with = "file")]
    pub overhead: u32,
    /// The longest search for streams that do not fit at once
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_span)]
    pub time_limit: Span,
    /// The most steps of the search, instead of a time: with the same number the plan is the same
    /// on every machine
    #[arg(long, value_name = "STEPS", conflicts_with = "time_limit")]
    pub steps: Option<u64>,
    /// For choices by chance
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// How many ways are tried for a stream whose first is full
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub routes: u16,
    /// Write the plan as tables of tsnkit: PREFIX-GCL.csv and four others
    #[arg(long, value_name = "PREFIX")]
    pub export_tsnkit: Option<PathBuf>,
    /// Draw the transmissions of a cycle as SVG: all links, or those of --explain's stream
    #[arg(long, value_name = "FILE")]
    pub gantt: Option<PathBuf>,
    /// Write over files that are there
    #[arg(long)]
    pub force: bool,
    /// Show one stream alone: its path and times, or why it is rejected
    #[arg(long, value_name = "STREAM")]
    pub explain: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What the search took.
struct Effort {
    cpu: Duration,
    steps: u64,
    /// Whether its limit ended it while streams still waited for a reservation.
    cut: bool,
    /// Whether that limit was a request to end.
    asked: bool,
    /// Whether the plan was held against the checker; it is not when its cycles are too long.
    checked: bool,
}

/// Exit code 0: every stream is admitted, and the bounds of the others are within their limits; 1:
/// not; 2: it was ended on request.
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.check {
        return check::run(args, path);
    }
    let streams = args.streams.as_deref();
    let case = args.case.as_deref();
    let own = args.file.as_deref().map(|path| file::OwnFile::read(path, case, streams));
    let own = own.transpose()?;
    let problem = match &own {
        Some(own) => own.problem(),
        None => read(args)?,
    };
    let explained = match (&args.explain, &own) {
        (Some(name), Some(own)) if own.is_not_scheduled(name) => None,
        (Some(name), _) => Some(find(&problem, name).with_context(|| {
            format!("there is no stream {name}; there are {}", some_names(&problem))
        })?),
        (None, _) => None,
    };
    if let (Some(_), Some(dir)) = (&own, &args.render) {
        file::check_directory(dir, args.force)?;
    }
    let files = args.export_tsnkit.as_deref();
    let files = files.map(|prefix| export_files(prefix, args.force)).transpose()?;
    let told = args.status.as_deref().map(|path| NewFile::create(path, args.force)).transpose()?;
    let drawing =
        args.gantt.as_deref().map(|path| NewFile::create(path, args.force)).transpose()?;
    let mut planner =
        Planner::new(problem, Options { seed: args.seed, routes: args.routes.into() });
    let ending = Ending::new()?;
    let mut effort = search(&mut planner, args, &ending);
    let plan = planner.plan();
    let problem = planner.problem();
    anyhow::ensure!(
        !effort.asked || !plan.admitted.is_empty(),
        "{WORDS} before any stream was admitted: there is no plan, and nothing was written"
    );
    effort.checked = refute(problem, &plan, &ending)?;
    if let Some(mut file) = drawing {
        let svg = gantt::svg(problem, &plan, explained);
        let svg = svg.map_err(|why| {
            anyhow::anyhow!("cannot draw the plan: {why}; --explain STREAM draws a stream's links")
        })?;
        file.write_all(svg.as_bytes())?;
        file.finish()?;
    }
    if let Some(mut files) = files {
        let tables = write_tsnkit(problem, &plan);
        let tables = tables.map_err(|why| anyhow::anyhow!("cannot write the tables: {why}"))?;
        for (file, (_, text)) in files.iter_mut().zip(tables.files()) {
            file.write_all(text.as_bytes()).context("cannot write the tables")?;
        }
        files.into_iter().try_for_each(NewFile::finish)?;
    }
    if let (Some(mut file), Some(own)) = (told, &own) {
        file.write_all(own.status(&plan).unwrap_or_default().as_bytes())?;
        file.finish()?;
    }
    let more = match &own {
        Some(own) => Some(own.finish(&plan, args, &ending)?),
        None => None,
    };
    let alone = args.explain.as_deref().filter(|_| explained.is_none());
    let alone = alone.and_then(|name| more.as_ref()?.explained(name, args.json));
    match (explained, alone) {
        (Some(id), _) if args.json => output::json(&json::alone(problem, &plan, id))?,
        (Some(id), _) => output::print(&explanation(problem, &plan, id))?,
        (None, Some(text)) => output::print(&text)?,
        (None, None) if args.json => {
            let loads = planner.link_loads();
            let whole = json::Whole::of(problem, &plan, &loads, &effort, more.as_ref());
            output::json(&whole)?
        }
        (None, None) => {
            let rest = more.as_ref().map_or(String::new(), file::More::text);
            output::print(&(summary(problem, &plan, &planner, &effort) + &rest))?
        }
    };
    if effort.asked && args.explain.is_some() {
        say!("note: the search was {WORDS}; this is of the best plan until then");
    }
    if effort.asked || ending.is_asked() || more.as_ref().is_some_and(file::More::is_cut) {
        return Ok(ExitCode::from(CODE));
    }
    let good = plan.refused.is_empty() && more.is_none_or(|more| more.is_good());
    Ok(ExitCode::from(u8::from(!good)))
}

/// Holds the plan against what shares nothing with the search; whether that could be done. A
/// request to end the search does not end this; another does.
///
/// **Errors**: something contradicts it, which is a mistake of the search.
fn refute(problem: &Problem, plan: &Plan, ending: &Ending) -> anyhow::Result<bool> {
    let report = match judge(problem, plan, &mut || !ending.is_asked_anew()) {
        Ok(report) => report,
        Err(error) => {
            say!("note: the plan was not checked: {error}");
            return Ok(false);
        }
    };
    let Some(first) = report.findings.first() else {
        if report.ended_early {
            say!("note: the check of the plan was {WORDS}; the plan was not checked");
        }
        return Ok(!report.ended_early);
    };
    let more = report.findings.len() - 1;
    anyhow::bail!(
        "the plan does not hold, which is a mistake of this program: {} (and {more} more)",
        first.describe(problem)
    );
}

fn read(args: &PlanArgs) -> anyhow::Result<Problem> {
    let is_scenario = !args.tsnbench.is_empty();
    let files = if is_scenario { &args.tsnbench } else { &args.tsnkit };
    let [streams, network] = files.as_slice() else {
        anyhow::bail!("two files are needed: streams, and the network");
    };
    let load =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let bytes = (load(streams)?, load(network)?);
    let names = (streams.to_string_lossy(), network.to_string_lossy());
    let (streams, network) = ((&*names.0, &*bytes.0), (&*names.1, &*bytes.1));
    if is_scenario {
        return Ok(read_tsnbench(streams, network, Tsnbench { keeps_ways: args.given_ways })?);
    }
    let how = Tsnkit { round: args.round, overhead_bytes: args.overhead };
    Ok(read_tsnkit(streams, network, how)?)
}

/// By its name, or by the id with which it was asked for.
fn find(problem: &Problem, name: &str) -> Option<StreamId> {
    problem.find(name).or_else(|| problem.find(&uni_name(name)))
}

fn some_names(problem: &Problem) -> String {
    let names: Vec<&str> = problem.streams().iter().take(8).map(|s| s.name.as_str()).collect();
    let more = if problem.streams().len() > names.len() { ", ..." } else { "" };
    format!("{}{more}", names.join(", "))
}

/// The files of an export, none of which is there yet.
fn export_files(prefix: &Path, force: bool) -> anyhow::Result<Vec<NewFile>> {
    let ends = TsnkitPlan::default().files().map(|(end, _)| end);
    let create = |end: &str| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(end);
        NewFile::create(Path::new(&name), force)
    };
    ends.into_iter().map(create).collect()
}

fn search(planner: &mut Planner, args: &PlanArgs, ending: &Ending) -> Effort {
    let limit = Duration::from_nanos(u64::try_from(args.time_limit.as_ns()).unwrap_or(0));
    let (start, before) = (Instant::now(), cpu_time());
    let mut line = ProgressLine::new();
    let mut go_on = |progress: &timewire_plan::synth::Progress| {
        line.line_of(|| format!("{} placed, {} waiting", progress.placed, progress.waiting));
        // A number of steps is a limit that is the same on every machine.
        let in_time = || !progress.is_moving || args.steps.is_some() || start.elapsed() < limit;
        !ending.is_asked() && in_time()
    };
    let work = args.steps.unwrap_or(u64::MAX);
    let cut = planner.run(&mut Budget { work, go_on: &mut go_on });
    line.clear();
    let cpu = cpu_time().saturating_sub(before);
    let asked = cut && ending.is_asked();
    Effort { cpu, steps: planner.work(), cut, asked, checked: false }
}

/// Time that this thread has run; zero where the kernel does not tell.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// The most refused streams and links that a summary names.
const NAMED: usize = 8;

fn summary(problem: &Problem, plan: &Plan, planner: &Planner, effort: &Effort) -> String {
    let network = problem.network();
    let (streams, admitted) = (problem.streams().len(), plan.admitted.len());
    if streams == 0 {
        return "no stream is scheduled\n".to_owned();
    }
    let mut text = format!(
        "{admitted} of {streams} streams are admitted; {} nodes, {} links, cycle {}\n",
        network.nodes().len(),
        network.links().len(),
        plan.cycle
    );
    let proven = plan.refused.iter().filter(|refusal| refusal.certificate.is_proof()).count();
    if !plan.refused.is_empty() {
        let open = plan.refused.len() - proven;
        let _ = writeln!(text, "refused: {proven} with a proof, {open} without");
    }
    let refusals = words::Refusals::of(problem);
    for refusal in plan.refused.iter().take(NAMED) {
        let name = &problem.stream(refusal.stream).name;
        let _ = writeln!(text, "  {name}: {}", refusals.text(refusal));
    }
    if plan.refused.len() > NAMED {
        let _ = writeln!(text, "  and {} more; --json has all", plan.refused.len() - NAMED);
    }
    let mut loads: Vec<(u64, usize)> =
        planner.link_loads().into_iter().enumerate().map(|(link, load)| (load, link)).collect();
    loads.sort_by_key(|(load, link)| (std::cmp::Reverse(*load), *link));
    let busiest: Vec<String> = loads
        .iter()
        .take(3)
        .filter(|(load, _)| *load > 0)
        .map(|(load, link)| format!("{} {} %", network.links()[*link].name, load / 10_000))
        .collect();
    if !busiest.is_empty() {
        let _ = writeln!(text, "busiest links: {}", busiest.join(", "));
    }
    if let Some(most) = plan.gates.iter().max_by_key(|gates| gates.entries) {
        let above = plan.gates.iter().filter(|gates| gates.entries > 256).count();
        let _ = writeln!(
            text,
            "gate entries: at most {}, at {}; {above} of {} ports have more than 256",
            most.entries,
            network.link(most.link).name,
            plan.gates.len()
        );
    }
    let end = match (effort.asked, effort.cut) {
        (true, _) => format!("; {WORDS}: this is the best plan until then"),
        (false, true) => "; ended by its limit".to_owned(),
        (false, false) => String::new(),
    };
    let _ = writeln!(
        text,
        "search: {} steps, {}.{:03} s of CPU{end}",
        effort.steps,
        effort.cpu.as_secs(),
        effort.cpu.subsec_millis()
    );
    text
}

fn explanation(problem: &Problem, plan: &Plan, id: StreamId) -> String {
    let stream = problem.stream(id);
    let network = problem.network();
    let mut text = format!(
        "{}: {} x {} B in each {}, latency at most {}\n",
        stream.name, stream.frames, stream.length_bytes, stream.interval, stream.latency_max
    );
    if let Some(refusal) = plan.refused.iter().find(|refusal| refusal.stream == id) {
        let _ = writeln!(text, "rejected: {}", words::Refusals::of(problem).text(refusal));
        return text;
    }
    let admission = plan.admitted.iter().find(|admission| admission.stream == id);
    for sent in admission.iter().flat_map(|admission| &admission.transmissions) {
        let busy = network.occupancy(sent.link, stream.length_bytes);
        let _ = writeln!(
            text,
            "  {:<16} copy {} frame {} queue {} at {:>10} until {:>10}",
            network.link(sent.link).name,
            sent.copy,
            sent.frame,
            sent.queue,
            sent.start.to_string(),
            (sent.start + busy).to_string()
        );
    }
    if let Some(latency) = words::latency(problem, plan, id) {
        let _ = writeln!(text, "latency {latency}");
    }
    text
}
