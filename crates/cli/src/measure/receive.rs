// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `measure receive`: how long received frames take to the program.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use timewire_base::{IfName, Span, parse_bytes, parse_span};
use timewire_runner::measure::receive::plan::{
    Dimension, Over, Policy, Setting, Sweep, Variety, Waiting,
};
use timewire_runner::measure::receive::{PlaceSpec, ReceiveSpec};

use super::TimestampsArg;

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
    /// With --interface: whose timestamps are used beside the program's
    #[arg(long, value_enum, default_value = "auto")]
    pub timestamps: TimestampsArg,
    /// How well the NIC's clock must be known for its timestamps to be used
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
        timestamps: args.timestamps.into(),
        talker_cpu: args.talker_cpu,
        talker_policy: args.talker_policy,
    })
}

pub fn run(args: &Receive) -> anyhow::Result<ExitCode> {
    let report = super::measured(&spec_of(args)?, args.out.as_deref())?;
    if let Some(path) = &args.plot {
        fs::write(path, report.picture())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    super::told(&report, args.json)
}
