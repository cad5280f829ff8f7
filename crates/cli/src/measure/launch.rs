// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `measure launch`: transmit accuracy.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use timewire_base::{IfName, SocketPriority, Span, StationName, parse_bytes, parse_span};
use timewire_lab::privilege;
use timewire_runner::measure::Measurement;
use timewire_runner::measure::launch::gates::{self, GatesSpec};
use timewire_runner::measure::launch::limit::Limit;
use timewire_runner::measure::launch::{
    Endpoints, LaunchMethod, Request, TimestampPoint, TransmitSpec,
};

use crate::input;

#[derive(Debug, Args)]
pub struct Launch {
    /// The interface that sends [default: that of a pair which is made for it, in namespaces]
    #[arg(long, value_name = "IF", conflicts_with = "bench")]
    pub interface: Option<IfName>,
    /// Measure between two namespaces with a virtual cable; this is the default
    #[arg(long)]
    pub bench: bool,
    /// The interface of this host at the other end of the cable, for timestamps where frames arrive
    #[arg(long, value_name = "IF", requires = "interface")]
    pub peer: Option<IfName>,
    /// The ways to measure [default: plain,etf, on a pair also mac]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WAY,...")]
    pub how: Vec<How>,
    /// From one launch time to the next, 10us or more [default: 1ms,250us]
    #[arg(long, value_delimiter = ',', value_name = "CYCLE,...", value_parser = parse_span)]
    pub cycle: Vec<Span>,
    /// Frames of each way and cycle, over all repeats
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pub count: u64,
    /// How often the ways take turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeats: u32,
    /// Length of a frame with all headers, without check sequence: 60B to 1514B
    #[arg(long, default_value = "322B", value_parser = parse_bytes)]
    pub size: u32,
    /// How long before its launch time etf gives a frame to the interface, at most 10ms [default:
    /// 130us, or what --find-delta finds]
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub delta: Option<Span>,
    /// How long before launch time less delta a frame is given to etf, at most 10ms: it must cover
    /// how late the sender can wake [default: 500us, or for cycles below 1ms half a cycle and as
    /// many whole ones as fit into 300us]
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub ahead: Option<Span>,
    /// Search the smallest delta with which etf misses no frame at any of the cycles
    #[arg(long)]
    pub find_delta: bool,
    /// Let the sender run by SCHED_FIFO
    #[arg(long)]
    pub priority: bool,
    /// The socket priority of the frames, by which they get into the class of etf
    #[arg(long, value_name = "0-15", default_value = "3", value_parser = socket_priority)]
    pub socket_priority: SocketPriority,
    /// The timestamps that the table shows [default: with mac the peer's, else tx-hardware where
    /// the NIC has it, or tx-software]
    #[arg(long, value_enum, value_name = "POINT")]
    pub at: Option<At>,
    /// Take the interface from all other programs where that is needed: for mac, and for etf on an
    /// interface with one transmit queue
    #[arg(long, requires = "interface")]
    pub whole_interface: bool,
    /// Measure gates instead of launch times: how frames keep to the windows of their class, with
    /// taprio and these entries, as 'S 1 300us, S 2 300us': the open classes, a bit each,
    /// hexadecimal, and how long
    #[arg(long, value_name = "ENTRY,...", help_heading = "Gates", conflicts_with_all = LAUNCH)]
    pub gates: Option<String>,
    /// Measure the gates in the host settings of this network file; one interface has gates
    #[arg(
        long, value_name = "FILE", help_heading = "Gates", conflicts_with = "gates",
        conflicts_with_all = LAUNCH
    )]
    pub host: Option<PathBuf>,
    /// The station of the file, where several have host settings
    #[arg(long, value_name = "NAME", help_heading = "Gates", requires = "host")]
    pub station: Option<StationName>,
    /// The gates are in force on the interface: change nothing, measure
    #[arg(long, help_heading = "Gates", requires = "interface")]
    pub applied: bool,
    /// From one frame of a class to the next, 1us or more [default: 0.618 of a cycle of the gates,
    /// and whole ones up to 20us, so that frames meet all its phases]
    #[arg(long, value_name = "DURATION", help_heading = "Gates", value_parser = parse_span)]
    pub every: Option<Span>,
    /// Exit with 1 unless each figure of each column is at most that, such as pk-pk=2us,missed=0;
    /// those called min, at least
    #[arg(long, value_delimiter = ',', value_name = "FIGURE=VALUE,...")]
    pub limit: Vec<Limit>,
    /// Write result, table and all frames into this directory; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What is of launch times only.
const LAUNCH: [&str; 7] =
    ["how", "cycle", "repeats", "delta", "ahead", "find_delta", "socket_priority"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// Sleep until the launch time and send
    Plain,
    /// Launch times, kept by the kernel
    Etf,
    /// Launch times, kept by the NIC
    EtfOffload,
    /// Timewire's MAC, with a slot that begins at the launch time
    Mac,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum At {
    /// By the sender's NIC
    TxHardware,
    /// By the sender's kernel
    TxSoftware,
    /// By the kernel at the other end, on this host
    Peer,
}

fn socket_priority(text: &str) -> Result<SocketPriority, String> {
    let number = text.parse::<u64>().ok().and_then(|number| SocketPriority::new(number).ok());
    number.ok_or_else(|| format!("`{text}` is no socket priority, 0 to 15"))
}

pub fn run(args: &Launch) -> anyhow::Result<ExitCode> {
    if let Some(gates) = gates_spec(args)? {
        let (applied, every) = (args.applied, args.every);
        return measure(&gates::Request { frames: frames(args), gates, applied, every }, args);
    }
    if args.applied || args.every.is_some() {
        bail!("--applied and --every are of gates: --gates or --host");
    }
    measure(&request(args)?, args)
}

fn measure(measurement: &impl Measurement, args: &Launch) -> anyhow::Result<ExitCode> {
    if args.interface.is_none() {
        privilege::enter()?;
    }
    crate::apply::recover()?;
    super::told(&super::measured(measurement, args.out.as_deref())?, args.json)
}

/// The gates that are asked for, if any.
fn gates_spec(args: &Launch) -> anyhow::Result<Option<GatesSpec>> {
    if let Some(list) = &args.gates {
        let list = gates::parse_list(list).map_err(|why| anyhow!(why))?;
        return Ok(Some(GatesSpec::List(list)));
    }
    let Some(path) = &args.host else { return Ok(None) };
    let name = path.display().to_string();
    let file = input::host_settings(path, args.station.as_ref(), "nothing was measured")?;
    Ok(Some(GatesSpec::File { name, file: Box::new(file) }))
}

fn frames(args: &Launch) -> TransmitSpec {
    TransmitSpec {
        place: match &args.interface {
            None => Endpoints::Bench,
            Some(interface) => {
                Endpoints::Interface { interface: interface.clone(), peer: args.peer.clone() }
            }
        },
        count: args.count,
        size: args.size,
        real_time: args.priority,
        at: point(args.at),
        whole_interface: args.whole_interface,
        limits: args.limit.clone(),
    }
}

fn point(at: Option<At>) -> Option<TimestampPoint> {
    at.map(|at| match at {
        At::TxHardware => TimestampPoint::TxHardware,
        At::TxSoftware => TimestampPoint::TxSoftware,
        At::Peer => TimestampPoint::Peer,
    })
}

fn request(args: &Launch) -> anyhow::Result<Request> {
    let frames = frames(args);
    let mut ways: Vec<LaunchMethod> = Vec::new();
    for how in &args.how {
        let way = match how {
            How::Plain => LaunchMethod::Plain,
            How::Etf => LaunchMethod::Etf,
            How::EtfOffload => LaunchMethod::EtfOffload,
            How::Mac => LaunchMethod::Mac,
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    if ways.is_empty() {
        ways = vec![LaunchMethod::Plain, LaunchMethod::Etf];
        if frames.place == Endpoints::Bench {
            ways.push(LaunchMethod::Mac);
        }
    }
    Ok(Request {
        frames,
        ways,
        cycles: match &args.cycle[..] {
            [] => vec![Span::from_ms(1), Span::from_us(250)],
            given => given.to_vec(),
        },
        repeats: args.repeats,
        delta: args.delta,
        ahead: args.ahead,
        find_delta: args.find_delta,
        priority: args.socket_priority,
        program: std::env::current_exe().context("the program does not know its own file")?,
    })
}
