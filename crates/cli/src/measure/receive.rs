// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `measure receive`: how long received frames take to the program.
//!
//! Not here: measuring (`timewire_ctl::measure::receive`), drawing (`timewire_report`).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use timewire_base::{IfName, Span, parse_bytes, parse_span};
use timewire_ctl::measure::receive::plan::Waiting;
use timewire_ctl::measure::receive::plan::{Dimension, Over, Policy, Setting, Sweep, Variety};
use timewire_ctl::measure::receive::report::{
    CombinationReport, Point, Ratio, ReceiveReport, StageReport,
};
use timewire_ctl::measure::receive::sample::Part;
use timewire_ctl::measure::receive::{self, PlaceSpec, ReceiveSpec};
use timewire_report::{Scatter, ScatterRow};

use super::StampsArg;
use crate::output::{self, ProgressLine};

#[derive(Debug, Args)]
pub struct Receive {
    /// Measure on this interface, to which others send (`timewire talk`) [default: between two
    /// stations in namespaces, with a talker of its own]
    #[arg(long, value_name = "IF")]
    pub interface: Option<IfName>,
    /// With --interface: the UDP port that the messages go to
    #[arg(long, default_value_t = 15_100, requires = "interface")]
    pub port: u16,
    /// With --interface: the one receive queue that AF_XDP takes [default: all]
    #[arg(long, requires = "interface")]
    pub queue: Option<u32>,
    /// Sources: udp, frames, ring, xdp, xdp:generic, xdp:native, xdp:zero-copy
    #[arg(long, value_delimiter = ',', default_value = "udp,frames,xdp:native")]
    pub over: Vec<Over>,
    /// Ways to wait: block, poll, busy
    #[arg(long, value_delimiter = ',', default_value = "block")]
    pub wait: Vec<Waiting>,
    /// Frames per second of the bench's talker [default: 1000]
    #[arg(long, value_delimiter = ',', conflicts_with = "interface")]
    pub rate: Vec<u32>,
    /// End each round after so many messages
    #[arg(long)]
    pub count: Option<u64>,
    /// End each round after this time [default without --count: 2s]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_span)]
    pub duration: Option<Span>,
    /// Also vary a setting: netdev_budget, netdev_budget_usecs, netdev_tstamp_prequeue, rps, load,
    /// sockets, cpu, policy; one value sets it for all
    #[arg(long, value_name = "KEY=V1,V2,...")]
    pub sweep: Vec<Sweep>,
    /// Measure everything so often
    #[arg(long, default_value_t = 3)]
    pub repeat: usize,
    /// Compare along this: over, wait, rate, or a swept setting [default: the first that varies]
    #[arg(long, value_name = "WHAT", value_parser = parse_dimension)]
    pub compare: Option<Dimension>,
    /// Up to the first is good, beyond the second bad: of the picture
    #[arg(long, value_name = "TIME,TIME", value_parser = parse_thresholds)]
    #[arg(default_value = "2us,5us")]
    pub thresholds: [Span; 2],
    /// The length of the messages in UDP
    #[arg(long, value_parser = parse_bytes, default_value = "64B")]
    pub payload: u32,
    /// The CPU of the bench's talker
    #[arg(long, value_name = "CPU")]
    pub talker_cpu: Option<u32>,
    /// How the bench's talker is scheduled: other, fifo:1 to 99, rr:1 to 99
    #[arg(long, value_name = "POLICY", default_value = "other")]
    pub talker_policy: Policy,
    /// With --interface: whose stamps are used beside the program's
    #[arg(long, value_enum, default_value = "auto")]
    pub stamps: StampsArg,
    /// How well the card's clock must be known for its stamps to be used
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "1us")]
    pub max_clock_error: Span,
    /// Most points of the picture, and of the JSON, for each combination
    #[arg(long, default_value_t = 2_000)]
    pub points: usize,
    /// Draw each message into this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Write receive.json and receive.svg into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON, with the points
    #[arg(long)]
    pub json: bool,
}

/// Two times, as `2us,5us`.
fn parse_thresholds(text: &str) -> Result<[Span; 2], String> {
    let (first, second) = text.split_once(',').ok_or("two times, as 2us,5us")?;
    let parse = |text| parse_span(text).map_err(|error| error.to_string());
    Ok([parse(first)?, parse(second)?])
}

fn parse_dimension(text: &str) -> Result<Dimension, String> {
    Ok(match text {
        "over" => Dimension::Over,
        "wait" => Dimension::Wait,
        "rate" => Dimension::Rate,
        key if Setting::KEYS.contains(&key) => Dimension::Setting(key.to_owned()),
        _ => return Err(format!("over, wait, rate, or one of {}", Setting::KEYS.join(", "))),
    })
}

fn spec_of(args: &Receive) -> anyhow::Result<ReceiveSpec> {
    let place = match &args.interface {
        None => PlaceSpec::Bench,
        Some(name) => {
            PlaceSpec::Interface { name: name.clone(), port: args.port, queue: args.queue }
        }
    };
    let rate = match (&args.interface, args.rate.as_slice()) {
        (Some(_), _) => vec![None],
        (None, []) => vec![Some(1_000)],
        (None, rates) => rates.iter().copied().map(Some).collect(),
    };
    let default = args.count.is_none().then(|| Span::from_secs(2));
    Ok(ReceiveSpec {
        place,
        variety: Variety {
            over: args.over.clone(),
            wait: args.wait.clone(),
            rate,
            sweeps: args.sweep.clone(),
        },
        count: args.count,
        duration: args.duration.or(default),
        repeats: args.repeat,
        payload: usize::try_from(args.payload).context("a message is that long nowhere")?,
        compare: args.compare.clone(),
        thresholds: args.thresholds,
        points: args.points,
        max_clock_error: args.max_clock_error,
        stamps: args.stamps.into(),
        talker_cpu: args.talker_cpu,
        talker_policy: args.talker_policy,
    })
}

pub fn run(args: &Receive) -> anyhow::Result<ExitCode> {
    let spec = spec_of(args)?;
    spec.check()?;
    if let Some(directory) = &args.out {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut line = ProgressLine::new();
    let mut notes = Vec::new();
    let report = receive::measure(
        &spec,
        &mut |step| line.line(&format!("[{}/{}] {}", step.number, step.of, step.what)),
        &mut |note| notes.push(note.to_owned()),
    );
    line.clear();
    notes.iter().for_each(|note| say!("note: {note}"));
    let report = report?;
    for path in args.plot.iter().cloned().chain(args.out.iter().map(|it| it.join("receive.svg"))) {
        write(&path, &picture(&report))?;
    }
    if let Some(directory) = &args.out {
        write(
            &directory.join("receive.json"),
            &format!("{}\n", serde_json::to_string_pretty(&report)?),
        )?;
    }
    match args.json {
        true => output::json(&report)?,
        false => output::print(&table(&report))?,
    };
    Ok(super::exit_code(report.ended_early, report.is_bad()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The picture of all combinations.
fn picture(report: &ReceiveReport) -> String {
    let part = |points: &[Point], get: fn(&Point) -> Option<i64>| -> Vec<(u32, i64)> {
        points.iter().filter_map(|point| Some((point.seq, get(point)?))).collect()
    };
    let row = |of: &CombinationReport| ScatterRow {
        name: match of.messages_per_point {
            0 | 1 => of.name.clone(),
            run => format!("{}, the slowest of every {run}", of.name),
        },
        points: [
            part(&of.points, |point| point.driver_ns),
            part(&of.points, |point| point.stack_ns),
            part(&of.points, |point| point.complete_ns),
        ],
    };
    let rows: Vec<_> = report.combinations.iter().map(row).collect();
    let title = format!("Received messages one by one: {}", report.place);
    let columns = Part::ALL.map(Part::name);
    Scatter { title: &title, thresholds_ns: report.thresholds_ns, columns, rows: &rows }.svg()
}

/// All of it for a terminal.
fn table(report: &ReceiveReport) -> String {
    let mut out = String::new();
    let rounds = report.repeats;
    put(
        &mut out,
        &format!("{}, {} bytes, {rounds} rounds each", report.place, report.payload_bytes),
    );
    if report.ended_early {
        put(&mut out, "; ended on request");
    }
    put(&mut out, "\ntimes in us: percentiles within 1.6 % over all rounds, the rest exact\n");
    if let Some(compare) = &report.compare {
        let words = "ratios by round, to the first value of";
        put(&mut out, &format!("{words} `{compare}`: median (smallest - largest)\n"));
    }
    for of in &report.combinations {
        put(&mut out, &format!("\n{}\n  {}\n", of.name, counts(of)));
        let header = format!(
            "  {:<17}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}  {}\n",
            "",
            "min",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
            "mean",
            "stddev",
            "ratio of p50, of p99"
        );
        put(&mut out, &header);
        of.stages.iter().for_each(|stage| put(&mut out, &row(stage)));
        of.drop_causes.iter().for_each(|cause| put(&mut out, &format!("  {cause}\n")));
        if let Some(why) = of.card.why.as_ref().filter(|_| report.place != "bench") {
            put(&mut out, &format!("  no times from the card: {why}\n"));
        }
        if let Some(error) = of.card.error_ns {
            put(&mut out, &format!("  times from the card are wrong by {error} ns at most\n"));
        }
    }
    out
}

fn put(out: &mut String, text: &str) {
    out.write_str(text).expect("invariant: a String takes any text");
}

fn counts(of: &CombinationReport) -> String {
    let mut text = format!("{}: ", of.mode);
    if let Some(sent) = of.sent {
        text += &format!("{sent} sent, ");
    }
    text += &format!("{} received, {} lost", of.received, of.lost);
    for (count, what) in [
        (of.not_sent, "not taken from the talker"),
        (of.dropped, "dropped by the kernel"),
        (of.duplicate, "came twice"),
        (of.reordered, "out of order"),
        (of.other_queues, "on receive queues that were not heard (inconclusive)"),
        (of.foreign, "of others"),
        (of.during_rest, "left out, they came while the receiver rested"),
        (of.unstamped, "without a stamp"),
        (of.not_kept, "too many to be kept"),
        (of.read_by_others, "read by other sockets"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

fn row(stage: &StageReport) -> String {
    let all = &stage.all;
    let mut text = format!("  {:<17}", stage.stage);
    for ns in [all.min_ns, all.p50_ns, all.p90_ns, all.p99_ns, all.p999_ns] {
        text += &format!("{:>9}", us(as_f64(ns)));
    }
    text +=
        &format!("{:>10}{:>9}{:>9}", us(as_f64(all.max_ns)), us(all.mean_ns), us(all.stddev_ns));
    if let Some(ratio) = &stage.ratio {
        text += &format!("  {}, {}", told(ratio.p50), told(ratio.p99));
    }
    text.trim_end().to_owned() + "\n"
}

fn told(ratio: Ratio) -> String {
    format!("{:.2} ({:.2} - {:.2})", ratio.median, ratio.min, ratio.max)
}

fn us(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "printed with five digits")]
fn as_f64(ns: i64) -> f64 {
    ns as f64
}
