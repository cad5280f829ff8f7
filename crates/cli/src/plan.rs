// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plan`: a schedule for the streams of a network, or reasons.
//!
//! Not here: finding them (`timewire-plan`).

mod check;
mod file;
mod files;
mod json;
mod keep;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use timewire_base::{Span, parse_span};
use timewire_plan::check::check_while as judge;
use timewire_plan::exchange::{Tsnbench, Tsnkit, read_tsnbench, read_tsnkit};
use timewire_plan::file::uni_name;
use timewire_plan::model::{Plan, Problem, StreamId};
use timewire_plan::synth::{Budget, Options, Planner};
use timewire_plan::words;

use self::files::Files;
use self::keep::{Earlier, Search, Times};
use crate::ending::{CODE, Ending, WORDS};
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
    /// Keep the reservations of this plan, which --out wrote: only streams that are new or changed
    /// are placed. With --check: the plan is held against the streams, too
    #[arg(long, value_name = "PLAN")]
    pub keep: Option<PathBuf>,
    /// With --keep: at most so many streams of that plan may be moved
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "keep",
        conflicts_with = "check"
    )]
    pub moves: u32,
    /// Write the reservations into this file, which --keep reads: a line of JSON for each stream
    #[arg(long, value_name = "PLAN", conflicts_with = "check")]
    pub out: Option<PathBuf>,
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
    times: Times,
}

/// Exit code 0: every stream is admitted, and the bounds of the others are within their limits; 1:
/// not; 2: it was ended on request.
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.check {
        return check::run(args, path);
    }
    let begin = cpu_time();
    let streams = args.streams.as_deref();
    let case = args.case.as_deref();
    let own = args.file.as_deref().map(|path| file::OwnFile::read(path, case, streams));
    let own = own.transpose()?;
    let (problem, network) = match &own {
        Some(own) => (own.problem(), own.name().to_owned()),
        None => (read(args)?, table_name(args)),
    };
    let earlier = args.keep.as_deref().map(|path| Earlier::read(path, &network)).transpose()?;
    let read = cpu_time().saturating_sub(begin);
    let explained = explained(args, own.as_ref(), &problem)?;
    if let (Some(_), Some(dir)) = (&own, &args.render) {
        file::check_directory(dir, args.force)?;
    }
    let files = Files::begin(args)?;
    let ending = Ending::new()?;
    let options = Options { seed: args.seed, routes: args.routes.into() };
    let moves = usize::try_from(args.moves).unwrap_or(usize::MAX);
    let begin = cpu_time();
    let mut found = Search::new(problem, options, earlier.as_ref(), moves, &ending)?;
    let seat = cpu_time().saturating_sub(begin);
    let mut effort = search(&mut found, args, &ending);
    let plan = found.planner().plan();
    let changes = found.changes(&plan);
    let planner = found.into_planner();
    let problem = planner.problem();
    anyhow::ensure!(
        !effort.asked || !plan.admitted.is_empty(),
        "{WORDS} before any stream was admitted: there is no plan, and nothing was written"
    );
    let begin = cpu_time();
    effort.checked = refute(problem, &plan, &ending)?;
    effort.times = Times { read, seat, check: cpu_time().saturating_sub(begin) };
    files.finish(&network, (problem, &plan), explained, own.as_ref())?;
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
            output::json(&whole.with_changes(changes.as_ref()))?
        }
        (None, None) => {
            let rest = more.as_ref().map_or(String::new(), file::More::text);
            let differs = changes
                .map_or(String::new(), |changes| keep::text(&changes, &effort.times, effort.cpu));
            output::print(&(summary(problem, &plan, &planner, &effort) + &differs + &rest))?
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

/// The stream that is to be explained; `None` also for one that is not scheduled.
fn explained(
    args: &PlanArgs,
    own: Option<&file::OwnFile>,
    problem: &Problem,
) -> anyhow::Result<Option<StreamId>> {
    let Some(name) = &args.explain else { return Ok(None) };
    if own.is_some_and(|own| own.is_not_scheduled(name)) {
        return Ok(None);
    }
    let id = find(problem, name)
        .with_context(|| format!("there is no stream {name}; there are {}", some_names(problem)))?;
    Ok(Some(id))
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

/// The name of a network that comes from tables.
fn table_name(args: &PlanArgs) -> String {
    let files = args.tsnkit.iter().chain(&args.tsnbench);
    let stem = files.last().and_then(|path| path.file_stem());
    stem.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

fn search(found: &mut Search<'_>, args: &PlanArgs, ending: &Ending) -> Effort {
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
    let cut = found.run(&mut Budget { work, go_on: &mut go_on });
    line.clear();
    let cpu = cpu_time().saturating_sub(before);
    let asked = cut && ending.is_asked();
    let (steps, times) = (found.planner().work(), Times::default());
    Effort { cpu, steps, cut, asked, checked: false, times }
}

/// Time that this thread has run.
fn cpu_time() -> Duration {
    Duration::from_nanos(u64::try_from(timewire_sys::clock::thread_time().as_ns()).unwrap_or(0))
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
