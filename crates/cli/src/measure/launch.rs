// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `measure launch`: transmit accuracy.
//!
//! Not here: measuring (`timewire_ctl::measure::launch`).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use timewire_base::{IfName, SocketPriority, Span, parse_bytes, parse_span};
use timewire_ctl::measure::launch::gates::{self, GatesWish};
use timewire_ctl::measure::launch::limit::Limit;
use timewire_ctl::measure::launch::{self, Place, Request, Tap, Way};
use timewire_lab::privilege;
use timewire_sched::scenario::FileKind;
use timewire_sched::scenario::host::HostFile;

use crate::input;
use crate::output::{self, ProgressLine};

#[derive(Debug, Args)]
pub struct Launch {
    /// The interface that sends [default: that of a pair which is made for it, in namespaces]
    #[arg(long, value_name = "IF", conflicts_with = "bench")]
    pub interface: Option<IfName>,
    /// Measure between two namespaces with a virtual cable; this is the default
    #[arg(long)]
    pub bench: bool,
    /// The interface of this host at the other end of the cable, for stamps where frames arrive
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
    /// The stamps that the table shows [default: with mac the peer's, else tx-hardware where the
    /// card has it, or tx-software]
    #[arg(long, value_enum, value_name = "TAP")]
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
    /// Measure the gates of this host file; it has one interface with gates
    #[arg(
        long, value_name = "FILE", help_heading = "Gates", conflicts_with = "gates",
        conflicts_with_all = LAUNCH
    )]
    pub host: Option<PathBuf>,
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
    /// Launch times, kept by the card
    EtfOffload,
    /// Timewire's MAC, with a slot that begins at the launch time
    Mac,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum At {
    /// By the sender's card
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
    if let Some(wish) = gates_wish(args)? {
        return run_gates(args, wish);
    }
    if args.applied || args.every.is_some() {
        bail!("--applied and --every are of gates: --gates or --host");
    }
    let request = request(args)?;
    if request.place == Place::Bench {
        privilege::enter()?;
    }
    for found in timewire_host::journal::recover()? {
        say!("note: {found}");
    }
    let mut line = ProgressLine::new();
    let measured = launch::run(&request, &mut |step| line.line(step));
    line.clear();
    let (measured, shots) = measured?;
    if let Some(path) = &args.out {
        launch::write_run(path, &measured, &shots)?;
        say!("note: every frame is in {}", path.display());
    }
    if args.json {
        output::json(&measured)?;
    } else {
        output::print(&measured.text())?;
    }
    Ok(ExitCode::from(match measured.columns.is_empty() {
        _ if measured.ended_early => 2,
        true if measured.absent.iter().any(|absent| absent.unsupported) => 4,
        true => 2,
        false => u8::from(measured.has_findings()),
    }))
}

/// The gates that are asked for, if any.
fn gates_wish(args: &Launch) -> anyhow::Result<Option<GatesWish>> {
    if let Some(list) = &args.gates {
        let list = gates::parse_list(list).map_err(|why| anyhow!(why))?;
        return Ok(Some(GatesWish::List(list)));
    }
    let Some(path) = &args.host else { return Ok(None) };
    let name = path.display().to_string();
    let (file, _) = input::read(path, FileKind::Host, "nothing was measured", HostFile::parse)?;
    Ok(Some(GatesWish::File { name, file: Box::new(file) }))
}

fn run_gates(args: &Launch, wish: GatesWish) -> anyhow::Result<ExitCode> {
    let request = gates::Request {
        place: place(args),
        gates: wish,
        applied: args.applied,
        every: args.every,
        count: args.count,
        size: args.size,
        real_time: args.priority,
        at: tap(args.at),
        whole_interface: args.whole_interface,
        limits: args.limit.clone(),
    };
    if request.place == Place::Bench {
        privilege::enter()?;
    }
    for found in timewire_host::journal::recover()? {
        say!("note: {found}");
    }
    let mut line = ProgressLine::new();
    let measured = gates::run(&request, &mut |step| line.line(step));
    line.clear();
    let (measured, shots) = measured?;
    if let Some(path) = &args.out {
        gates::write_run(path, &measured, &shots)?;
        say!("note: every frame is in {}", path.display());
    }
    if args.json {
        output::json(&measured)?;
    } else {
        output::print(&measured.text())?;
    }
    Ok(ExitCode::from(match &measured.absent {
        _ if measured.ended_early => 2,
        Some(absent) if absent.unsupported => 4,
        Some(_) => 2,
        None => u8::from(measured.has_findings()),
    }))
}

fn place(args: &Launch) -> Place {
    match &args.interface {
        None => Place::Bench,
        Some(interface) => {
            Place::Interface { interface: interface.clone(), peer: args.peer.clone() }
        }
    }
}

fn tap(at: Option<At>) -> Option<Tap> {
    at.map(|at| match at {
        At::TxHardware => Tap::TxHardware,
        At::TxSoftware => Tap::TxSoftware,
        At::Peer => Tap::Peer,
    })
}

fn request(args: &Launch) -> anyhow::Result<Request> {
    let place = place(args);
    let mut ways: Vec<Way> = Vec::new();
    for how in &args.how {
        let way = match how {
            How::Plain => Way::Plain,
            How::Etf => Way::Etf,
            How::EtfOffload => Way::EtfOffload,
            How::Mac => Way::Mac,
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    if ways.is_empty() {
        ways = vec![Way::Plain, Way::Etf];
        if place == Place::Bench {
            ways.push(Way::Mac);
        }
    }
    Ok(Request {
        place,
        ways,
        cycles: match &args.cycle[..] {
            [] => vec![Span::from_ms(1), Span::from_us(250)],
            given => given.to_vec(),
        },
        count: args.count,
        repeats: args.repeats,
        size: args.size,
        delta: args.delta,
        ahead: args.ahead,
        find_delta: args.find_delta,
        real_time: args.priority,
        priority: args.socket_priority,
        at: tap(args.at),
        whole_interface: args.whole_interface,
        program: std::env::current_exe().context("the program does not know its own file")?,
        limits: args.limit.clone(),
    })
}
