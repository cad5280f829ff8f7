// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `measure path`: how long messages take from program to program.
//!
//! Not here: measuring (`timewire_ctl::measure::path`).

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use timewire_base::{IfName, Span, parse_bytes, parse_span};
use timewire_ctl::drops::DropCause;
use timewire_ctl::measure::path::{
    self, FarClockReport, PORT, PathReport, PathSpec, StepReport, TrialReport,
};
use timewire_ctl::measure::receive::plan::{Over, Waiting};
use timewire_trace::stream::histogram::HistogramSummary;

use super::StampsArg;
use crate::output::{self, ProgressLine};
use crate::traffic::parse_socket;

#[derive(Debug, Args)]
pub struct PathArgs {
    /// Who sends the messages back: `timewire measure path --answer` runs there [default: between
    /// two stations in namespaces]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket)]
    pub to: Option<SocketAddr>,
    /// Only answer the messages that come to this address, until ended
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket,
          conflicts_with_all = ["to", "reflect", "rate"])]
    pub answer: Option<SocketAddr>,
    /// With --to or --answer: the interface; the stamps of its card are used
    #[arg(long, value_name = "IF")]
    pub interface: Option<IfName>,
    /// Source: udp, frames, ring, xdp, xdp:generic, xdp:native, xdp:zero-copy
    #[arg(long, default_value = "udp")]
    pub over: Over,
    /// How receivers wait: block, poll, busy
    #[arg(long, default_value = "block")]
    pub wait: Waiting,
    /// There and back
    #[arg(long)]
    pub reflect: bool,
    /// The UDP port to send from; answers go to the next one
    #[arg(long, default_value_t = PORT)]
    pub port: u16,
    /// The length of the messages in UDP
    #[arg(long, value_parser = parse_bytes, default_value = "64B")]
    pub payload: u32,
    /// The rate that is 100 %, frames per second [default: the largest that loses nothing]
    #[arg(long)]
    pub rate: Option<u32>,
    /// Where the search for it begins, frames per second
    #[arg(long, default_value_t = 500_000, conflicts_with = "rate")]
    pub most: u32,
    /// How well it is to be known, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5, conflicts_with = "rate")]
    pub resolution: u32,
    /// Measure at these shares of it, in percent
    #[arg(long, value_delimiter = ',', default_value = "10,50,90")]
    pub loads: Vec<u32>,
    /// How long a trial takes
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "1s")]
    pub trial: Span,
    /// With --to: how close the two hosts' clocks are; without it no time between them is told
    #[arg(long, value_name = "TIME", value_parser = parse_span, requires = "to")]
    pub far_clock_error: Option<Span>,
    /// With --interface: whose stamps are used beside the program's
    #[arg(long, value_enum, default_value = "auto")]
    pub stamps: StampsArg,
    /// How well the card's clock must be known for its stamps to be used
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "1us")]
    pub max_clock_error: Span,
    /// Write path.json into this directory, from which `report` makes a page
    #[arg(long, value_name = "DIR", conflicts_with = "answer")]
    pub out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &PathArgs) -> anyhow::Result<ExitCode> {
    if let Some(bind) = args.answer {
        let ready = &mut |at| say!("answering on {at}");
        let answered = path::reflect_for_others(bind, args.interface.clone(), ready)?;
        if args.json {
            output::json_line(&answered)?;
            return Ok(ExitCode::SUCCESS);
        }
        say!("{} messages answered", answered.answers.sent);
        answered.answers.drop_causes.iter().for_each(|cause| say!("{cause}"));
        return Ok(ExitCode::SUCCESS);
    }
    let spec = PathSpec {
        to: args.to,
        interface: args.interface.clone(),
        over: args.over,
        wait: args.wait,
        reflect: args.reflect,
        port: args.port,
        payload: usize::try_from(args.payload).unwrap_or(usize::MAX),
        rate: args.rate,
        most: args.most,
        resolution: args.resolution,
        loads: args.loads.clone(),
        trial: args.trial,
        far_clock_error: args.far_clock_error,
        max_clock_error: args.max_clock_error,
        stamps: args.stamps.into(),
    };
    if let Some(directory) = &args.out {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut line = ProgressLine::new();
    let mut notes = Vec::new();
    let mut progress = |step: &str| line.line(step);
    let report = path::measure(&spec, &mut progress, &mut |note| notes.push(note.to_owned()));
    line.clear();
    notes.iter().for_each(|note| say!("note: {note}"));
    let report = report?;
    if let Some(directory) = &args.out {
        let path = directory.join("path.json");
        fs::File::create(&path)
            .and_then(|file| output::json_into(file, &report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.json {
        true => output::json(&report)?,
        false => output::print(&table(&report))?,
    };
    Ok(super::exit_code(report.ended_early, report.is_bad()))
}

fn table(report: &PathReport) -> String {
    let trip = if report.round_trip { "round trip" } else { "one way" };
    let mut out = format!(
        "{trip} to {}, {} {}, {} bytes",
        report.to, report.over, report.wait, report.payload_bytes
    );
    if report.ended_early {
        out += "; ended on request";
    }
    out += match report.far_clock {
        FarClockReport::Same => "\n".to_owned(),
        FarClockReport::Within(ns) => {
            format!("\ntimes between the two hosts are wrong by {ns} ns at most, as told\n")
        }
        FarClockReport::Foreign => {
            "\nno times between the two hosts: nobody said how close their clocks are\n".to_owned()
        }
    }
    .as_str();
    if let Some(why) = report.card.why.as_ref().filter(|_| report.to != "bench") {
        out += &format!("no times from the card: {why}\n");
    }
    for trial in &report.search {
        out += &format!("search: {}\n", told(trial));
    }
    match report.full_rate {
        None => out += "every rate lost something\n",
        Some(rate) if report.searched => out += &format!("nothing is lost up to {rate}/s\n"),
        Some(_) => {}
    }
    report.steps.iter().for_each(|step| out += &of_step(step));
    let trials = report.search.iter().chain(report.steps.iter().map(|step| &step.trial));
    let mut causes = Vec::new();
    trials.for_each(|trial| DropCause::merge(&mut causes, &trial.drop_causes));
    causes.iter().for_each(|cause| out += &format!("{cause}\n"));
    out
}

fn told(trial: &TrialReport) -> String {
    let mut text = format!("{}/s: {} sent, {} lost", trial.rate, trial.sent, trial.lost());
    if trial.sent < trial.planned {
        text += &format!(", {} not taken from the talker", trial.planned - trial.sent);
    }
    if !trial.kept_pace {
        text += ", the talker was slower than that";
    }
    text
}

fn of_step(step: &StepReport) -> String {
    let mut out = format!("\n{} %, {}", step.load, told(&step.trial));
    if step.stamps_missing > 0 {
        out += &format!(", {} stamps missing", step.stamps_missing);
    }
    out += &format!(
        "\n  {:<27}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}\n",
        "us", "n", "min", "p50", "p90", "p99", "p99.9", "max", "mean", "stddev"
    );
    for stage in &step.stages {
        out += &row(&stage.stage, &stage.times);
    }
    out
}

fn row(name: &str, times: &HistogramSummary) -> String {
    let mut text = format!("  {name:<27}{:>9}", times.count);
    for ns in [times.min_ns, times.p50_ns, times.p90_ns, times.p99_ns] {
        text += &format!("{:>9}", us(as_f64(ns)));
    }
    text += &format!("{:>9}{:>10}", us(as_f64(times.p999_ns)), us(as_f64(times.max_ns)));
    text + &format!("{:>9}{:>9}\n", us(times.mean_ns), us(times.stddev_ns))
}

fn us(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "printed with five digits")]
fn as_f64(ns: i64) -> f64 {
    ns as f64
}
