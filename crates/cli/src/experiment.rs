// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `demo`, `run` and `report`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use timewire_base::CyclicWindows;
use timewire_ctl::CtlError;
use timewire_ctl::experiment::{self, Options, Script};
use timewire_ctl::rundir::{CaseMeta, RunDir};
use timewire_host::doctor::Diagnosis;
use timewire_lab::LabError;
use timewire_lab::privilege::{self, Privilege};
use timewire_lab::uml::{Kernel, Machine, Time};
use timewire_report::{Extras, LongJourney, TableOptions};
use timewire_sched::carrier::Asked;
use timewire_sched::scenario::{FileKind, Scenario};
use timewire_trace::summary::{Fact, FactLevel, Summary, Verdict};

use crate::args::{CarrierChoice, Demo, Laboratory, Output, Run, Where};
use crate::compare::Baseline;
use crate::doctor;
use crate::ending::Ending;
use crate::input;
use crate::lab;
use crate::output::{self, ProgressLine};
use crate::{sim, trace};

/// The scenarios of the demo: name and text.
const DEMO: [(&str, &str); 3] = [
    ("tdm-64.yaml", include_str!("../scenarios/tdm-64.yaml")),
    ("tdm-256.yaml", include_str!("../scenarios/tdm-256.yaml")),
    ("tdm-1472.yaml", include_str!("../scenarios/tdm-1472.yaml")),
];

/// The same with both carriers, where the kernel has taprio.
const DEMO_OF_BOTH: [(&str, &str); 3] = [
    ("taprio-64.yaml", include_str!("../scenarios/taprio-64.yaml")),
    ("taprio-256.yaml", include_str!("../scenarios/taprio-256.yaml")),
    ("taprio-1472.yaml", include_str!("../scenarios/taprio-1472.yaml")),
];

pub fn demo(args: &Demo) -> anyhow::Result<ExitCode> {
    let of_both = args.place.lab == Laboratory::Uml || args.place.record_for.is_some();
    let all = if of_both { &DEMO_OF_BOTH } else { &DEMO };
    let count = if args.quick { 1 } else { all.len() };
    let scripts = all[..count].iter().map(|(name, text)| parse(name, text));
    let scripts = scripts.collect::<anyhow::Result<Vec<_>>>()?;
    let title = "TDM on a shared segment: end-to-end transfer".to_owned();
    let (name, quick) = ("demo", args.quick);
    let what = What { title, name, quick, carrier: None, trace: false, baseline: None };
    perform(&scripts, what, (&args.place, &args.output))
}

pub fn run(args: &Run) -> anyhow::Result<ExitCode> {
    if args.clock_error.is_some() {
        anyhow::bail!(
            "--clock-error is for experiment files; the stations of a scenario share a clock"
        );
    }
    let mut scripts: Vec<Script> = Vec::new();
    for file in &args.files {
        let (scenario, text) =
            input::read(file, FileKind::Scenario, "nothing was run", Scenario::parse)?;
        let script = Script { scenario, text };
        let name = &script.scenario.name;
        if let Some(at) = scripts.iter().position(|other| other.scenario.name == *name) {
            anyhow::bail!(
                "{}: its `name: {name}` is that of {} too; results are kept by name, so each \
                 scenario needs its own",
                file.display(),
                args.files[at].display()
            );
        }
        scripts.push(script);
    }
    if args.baseline.is_none() && args.place.record_for.is_none() {
        args.limits.refuse()?;
    }
    let carrier = args.carrier.map(CarrierChoice::asked);
    // Before a directory is made, a kernel is started, or a dry run says that all is well.
    experiment::check_carriers(&scripts, carrier)?;
    // The process that only records for another leaves this to it.
    let baseline = match (&args.baseline, &args.place.record_for) {
        (Some(path), None) => Some(Baseline::open(path, args.limits, &scripts)?),
        _ => None,
    };
    if args.dry_run {
        return dry_run(&scripts, carrier, args);
    }
    let names: Vec<_> = scripts.iter().map(|script| script.scenario.name.to_string()).collect();
    let title = match scripts.as_slice() {
        [only] if !only.scenario.description.as_str().is_empty() => {
            only.scenario.description.to_string()
        }
        _ => names.join(", "),
    };
    let (quick, trace) = (args.quick, args.trace);
    let what = What { title, name: &names[0], quick, carrier, trace, baseline };
    perform(&scripts, what, (&args.place, &args.output))
}

fn parse(name: &str, text: &str) -> anyhow::Result<Script> {
    Ok(Script { scenario: Scenario::parse(name, text)?, text: text.to_owned() })
}

fn dry_run(scripts: &[Script], carrier: Option<Asked>, args: &Run) -> anyhow::Result<ExitCode> {
    let refusal = match args.place.lab {
        Laboratory::Netns => refusal(scripts, carrier)?,
        // It has what all carriers need.
        Laboratory::Uml => None,
    };
    match refusal {
        Some(diagnosis) if args.output.json => doctor::refuse(&diagnosis, NOTHING_RUN, true),
        Some(diagnosis) => {
            show_schedules(scripts, false)?;
            doctor::refuse(&diagnosis, NOTHING_RUN, false)
        }
        None => show_schedules(scripts, args.output.json),
    }
}

/// What the doctor says of the first scenario that cannot run in the laboratory of this kernel.
fn refusal(scripts: &[Script], carrier: Option<Asked>) -> anyhow::Result<Option<Diagnosis>> {
    doctor::refusal_of_scenarios(scripts.iter().map(|script| &script.scenario), carrier)
}

const NOTHING_RUN: &str = "unchanged; nothing was run";

fn show_schedules(scripts: &[Script], json: bool) -> anyhow::Result<ExitCode> {
    if json {
        let scenarios: Vec<_> = scripts.iter().map(|script| &script.scenario).collect();
        return output::json(&scenarios);
    }
    let mut text = String::new();
    for Script { scenario, .. } in scripts {
        let (schedule, rate) = (&scenario.schedule, scenario.segment.rate);
        text += &format!("{}: cycle {} at {rate}\n", scenario.name, schedule.cycle());
        for slot in schedule.slots() {
            let largest = schedule.largest_frame(&slot.station, rate);
            let largest = largest.map_or("none".to_owned(), |length| length.to_string());
            let need = scenario.need_of(&slot.station);
            let sends = match need.frames {
                0 => String::new(),
                frames => format!("  sends {frames} in {}us", need.busy.as_us_f64()),
            };
            text += &format!(
                "  {:<12} at {:>8}  transmit {:>8}  guard {:>7}  largest frame {largest}{sends}\n",
                slot.station.to_string(),
                slot.offset.to_string(),
                slot.transmit.to_string(),
                slot.guard.to_string(),
            );
        }
        let (cases, loads) = (&scenario.experiment.cases, &scenario.experiment.loads);
        text += &format!("  {} cases x {} loads\n", cases.len(), loads.len());
    }
    output::print(&text)
}

/// What is performed of the scenarios, and as what.
struct What<'a> {
    title: String,
    name: &'a str,
    quick: bool,
    carrier: Option<Asked>,
    trace: bool,
    baseline: Option<Baseline>,
}

fn perform(
    scripts: &[Script],
    What { title, name, quick, carrier, trace, baseline }: What<'_>,
    (place, output): (&Where, &Output),
) -> anyhow::Result<ExitCode> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    let directory = match &output.out {
        Some(directory) => here.join(directory),
        None => experiment::default_directory(name, &here),
    };
    if place.lab == Laboratory::Uml {
        return in_machine(place, &directory, baseline, output.json);
    }
    if place.kernel.is_some() || place.time.is_some() {
        anyhow::bail!("--kernel and --time are for `--lab uml`; this kernel is as it is");
    }
    let program: PathBuf =
        std::env::current_exe().context("cannot find the path of this program")?;
    // Before the first thread: a user namespace can only be entered by a process with one.
    let privilege = privilege::enter()?;
    for found in timewire_host::journal::recover()? {
        say!("note: {found}");
    }
    // The laboratory's own kernel has what all carriers need.
    if place.record_for.is_none()
        && let Some(diagnosis) = refusal(scripts, carrier)?
    {
        return doctor::refuse(&diagnosis, NOTHING_RUN, output.json);
    }
    let laboratory = match (&place.record_for, privilege) {
        (Some(machine), _) => machine.clone(),
        (None, Privilege::Full) => "root".to_owned(),
        (None, Privilege::UserNamespace) => {
            "user namespace: no real-time scheduling, no eBPF".to_owned()
        }
    };
    let options =
        Options { title, directory, quick, program, privilege: laboratory, carrier, trace };
    let mut line = ProgressLine::new();
    let result = experiment::run(scripts, &options, &mut |progress| line.tell(&progress));
    if place.record_for.is_none() {
        line.line("computing the summary");
    }
    let directory = match result {
        Ok(directory) => directory,
        Err(error) => {
            line.clear();
            return Err(error.into());
        }
    };
    line.clear();
    match place.record_for {
        Some(_) => Ok(ExitCode::SUCCESS),
        None => finish(&directory, baseline, output.json),
    }
}

/// Runs this same command in a machine of the laboratory, which records into the run directory, and
/// computes the rest here.
fn in_machine(
    place: &Where,
    directory: &Path,
    baseline: Option<Baseline>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let kernel = Kernel::find(place.kernel.as_deref())?;
    let directory = RunDir::reserve(directory)?;
    let time = lab::time_for(place.time, &kernel);
    let about = kernel.about();
    let how = match time {
        Time::Wall => "at wall speed",
        _ => "in virtual time",
    };
    let what = format!(
        "Linux {} ({} {}, configuration {}), {how}",
        about.release, about.package, about.package_version, about.configuration
    );
    let mut machine = lab::machine_like_this(inner_command(&directory, &what)?, time)?;
    let shown = if io::stderr().is_terminal() { "1" } else { "0" };
    machine.environment.push((output::PROGRESS.to_owned(), shown.to_owned()));
    machine.writable = vec![directory.clone()];
    machine.memory_mib = RUN_MEMORY_MIB;
    machine.connection = lab::to_our_descriptors(Vec::new())?;
    let Some(code) = code_of(machine, &kernel)? else {
        return Err(CtlError::EndRequested { path: directory }.into());
    };
    match code {
        0 => finish(&RunDir::open(&directory)?, baseline, json),
        code => Ok(ExitCode::from(code)),
    }
}

/// The exit code of a machine's command; none when somebody asked this process to end before: the
/// machine ends with it, and the records stay.
pub fn code_of(machine: Machine, kernel: &Kernel) -> anyhow::Result<Option<u8>> {
    let ending = Ending::new()?;
    match lab::run_until_asked(machine, kernel, &ending) {
        Ok(finished) => Ok(Some(finished.outcome.code)),
        Err(error) => match error.downcast_ref() {
            Some(LabError::EndRequested) => Ok(None),
            _ => Err(error),
        },
    }
}

/// What was asked of this process, for the one in the machine.
pub fn inner_command(directory: &Path, machine: &str) -> anyhow::Result<Vec<String>> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = vec![program.display().to_string()];
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        // These are about this process; each has a value, beside it or behind it.
        let own = ["--lab", "--kernel", "--time", "--out", "--baseline"];
        if own.contains(&word.as_str()) {
            words.next();
        } else if word != "--json" && !own.iter().any(|own| word.starts_with(&format!("{own}="))) {
            command.push(word);
        }
    }
    command.extend(["--out".to_owned(), directory.display().to_string()]);
    command.extend(["--record-for".to_owned(), machine.to_owned()]);
    Ok(command)
}

/// Enough for four stations with their buffers.
pub const RUN_MEMORY_MIB: u32 = 1_024;

/// Computes everything from the records, writes it beside them and prints it.
fn finish(directory: &RunDir, baseline: Option<Baseline>, json: bool) -> anyhow::Result<ExitCode> {
    let (summary, report) = conclude(directory)?;
    let code = tell(&summary, &report, json)?;
    match baseline {
        None => Ok(code),
        Some(baseline) => match baseline.judge(directory, summary, json)? {
            ExitCode::SUCCESS => Ok(code),
            worse => Ok(worse),
        },
    }
}

/// Prints what was computed.
pub fn tell(summary: &Summary, report: &Path, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::json(summary)?;
    } else {
        let options = TableOptions { colour: output::wants_colour(), ..TableOptions::default() };
        output::print(&timewire_report::table(summary, options))?;
        output::print(&stood_on(summary))?;
        output::print(&format!("report:  {}\n", report.display()))?;
    }
    Ok(exit_code(summary))
}

/// Computes everything from the records and writes it beside them: the summary, and where the
/// report is.
pub fn conclude(directory: &RunDir) -> anyhow::Result<(Summary, PathBuf)> {
    let (summary, courses) = directory.evaluate()?;
    let extras = Extras {
        courses,
        clocks: directory.clock_courses()?,
        topology: sim::topology(directory)?,
        longest: pages(directory, &summary)?,
    };
    directory.write_text("summary.json", &summary.to_json())?;
    let page = timewire_report::html_with(&summary, &extras);
    let report = directory.write_text("report.html", &page)?;
    Ok((summary, report))
}

/// Writes the page of each capture; the longest journeys of each case.
fn pages(
    directory: &RunDir,
    summary: &Summary,
) -> anyhow::Result<BTreeMap<String, Vec<LongJourney>>> {
    let mut found = BTreeMap::new();
    for case in &summary.cases {
        let Some(traced) = &case.traced else { continue };
        let windows = windows_of(&directory.case(&case.id)?);
        let title = format!("{}: {}, {}", case.scenario, case.title, case.load);
        let capture = directory.path().join(&traced.capture);
        let (page, longest) = trace::run_page(&title, capture, windows)?;
        directory.write_text(&traced.page, &page)?;
        found.insert(case.id.clone(), longest);
    }
    Ok(found)
}

/// When stations may send in a case.
fn windows_of(case: &CaseMeta) -> BTreeMap<String, CyclicWindows> {
    match (case.tdm, &case.schedule) {
        (true, Some(schedule)) => trace::windows_of(schedule),
        _ => BTreeMap::new(),
    }
}

/// The same of the case in a directory `cases/NAME` of a run; nothing where that is not known.
pub fn windows_of_case(directory: &Path, name: &str) -> BTreeMap<String, CyclicWindows> {
    let run = RunDir::open(directory).ok();
    let case = run.and_then(|run| run.case(name).ok());
    case.map_or_else(BTreeMap::new, |case| windows_of(&case))
}

/// How the frames were carried, and what the host did not have.
fn stood_on(summary: &Summary) -> String {
    let mut text = String::new();
    for Fact { area, name, value, level } in &summary.environment {
        if *level == FactLevel::Missing || area.starts_with("MACs of ") {
            text += &format!("{area}: {name}: {value}\n");
        }
    }
    text
}

pub fn exit_code(summary: &Summary) -> ExitCode {
    ExitCode::from(match summary.verdict {
        Verdict::Pass => 0,
        Verdict::Fail => 1,
    })
}
