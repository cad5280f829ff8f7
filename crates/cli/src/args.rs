// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line as a value. Help and errors come from these definitions.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use timewire_base::{IfName, Span, StationName, parse_span};
use timewire_lab::qemu::card::Stamped;
use timewire_sched::carrier::{Asked, ScheduleCarrier};

use crate::clock::Clocks;
use crate::traffic::parse_time;

/// Deterministic Ethernet on ordinary Linux.
///
/// Exit codes: 0 done, and all is well; 1 done, with bad findings: a missed limit, a setting that
/// was changed since, a host or clock that is less than it should be; 2 usage or operation failed,
/// host unchanged; 3 host left changed; 4 not supported here, the missing piece named.
#[derive(Debug, Parser)]
#[command(name = "timewire", version, max_term_width = 100)]
pub struct Request {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Four stations on a shared segment in the local laboratory: plain Ethernet, TDM, TDM with
    /// priorities, and slot-aligned release, side by side, with a report and a verdict
    Demo(Demo),
    /// Run the experiment of one or more scenario files in the local laboratory, or an experiment
    /// file on stations that have agents
    ///
    /// Of an experiment file, exit code 0: all was done, and all numbers are within their limits;
    /// 1: not all are; 2: something failed; 3: a host was left changed. A run that was interrupted
    /// goes on with the same --out.
    Run(Run),
    /// An experiment file as an array of tasks for Slurm or Kubernetes, and the join of its shares
    #[command(subcommand)]
    Array(crate::array::ArrayCommand),
    /// Make the report of any run from its directory: a page, tables, JSON or Markdown
    Report(crate::report::Report),
    /// Hold two run directories against each other: what is better, worse, the same
    ///
    /// Exit code 0: nothing is worse; 1: something is worse.
    Compare(crate::compare::Compare),
    /// Plan when each frame of a network's streams starts on each link, or say why it cannot
    ///
    /// Exit code 0: every stream has a place, and the bounds of the others are within their limits;
    /// 1: not.
    Plan(crate::plan::PlanArgs),
    /// Set this host up as a file describes it, as one transaction that `undo` takes back
    ///
    /// Every change and what takes it back is on disk before it is made. Whatever fails or is
    /// killed on the way, the host is put back; what cannot be put back exactly is refused before
    /// anything is changed.
    Apply(crate::apply::Apply),
    /// Show what is applied on this host, and what was changed since
    ///
    /// Exit code 0: all is as applied, or nothing is; 1: something was changed since.
    Status(crate::apply::StatusArgs),
    /// Take back what is applied on this host, exactly
    Undo(crate::apply::Undo),
    /// Run, change and ask a station's MAC
    #[command(subcommand)]
    Tdm(Tdm),
    /// Receive priority on an interface: start, change, show and stop it
    #[command(subcommand)]
    Receive(crate::receive::ReceiveCommand),
    /// Send streams: by a cycle, before a slot or with launch times, through UDP, frames or AF_XDP
    ///
    /// Exit code 0: everything was sent, and every stamp that was asked for came back; 1: not.
    Talk(Box<crate::talk::Talk>),
    /// Receive streams and show rate, loss, order, latencies and when in a cycle they arrive
    ///
    /// Exit code 1 when a limit of --expect is missed.
    Listen(Box<crate::listen::Listen>),
    /// Keep the clock on time with linuxptp, watch it, and close real-time slots when it is not
    #[command(subcommand)]
    Clock(Clocks),
    /// Put trees of scheduling groups in force, change and show them
    #[command(subcommand)]
    Group(crate::group::GroupCommand),
    /// Audio, video, clocks and CAN frames as streams of IEEE 1722: send, record, reserve
    #[command(subcommand)]
    Avtp(crate::avtp::AvtpCommand),
    /// Other stations: pair with them, list and forget them, find them
    #[command(subcommand)]
    Agent(crate::agent::AgentCommand),
    /// Laboratories without hardware: which there are, their kernels, commands inside them
    #[command(subcommand)]
    Lab(LabCommand),
    /// Simulate a network from a file: will its traffic hold, and what when something goes wrong?
    ///
    /// The same file and seed give the same bytes. Exit code 0: all limits hold; 1: one does not.
    Sim(crate::sim::Sim),
    /// Measure how exact this host, or an interface of it, is
    #[command(subcommand)]
    Measure(crate::measure::MeasureCommand),
    /// Follow packets through the kernel, and tell where each spent its time
    #[command(subcommand)]
    Trace(crate::trace::TraceCommand),
    /// Print the JSON Schema of a file: scenario, host, streams, network, experiment
    Schema(crate::schema::Schema),
    /// Print what a shell completes this command with
    Completions(crate::pages::Completions),
    /// Print the manual page of this command or of a verb, or write all of them
    Man(crate::pages::Man),
    /// Watch what this host does: slots, gates, queues, drops, streams, clocks, real-time threads
    Top(crate::top::Top),
    /// Show what this host and its interfaces are like, as far as timing depends on it
    Snapshot(crate::snapshot::SnapshotArgs),
    /// Tell whether something can run here, and what mends it where not
    ///
    /// Exit code 0: all is well; 1: degraded, or a named command is needed first; 4: something
    /// needed is missing here.
    Doctor(crate::doctor::Doctor),
    #[command(flatten)]
    Hidden(Hidden),
}

/// Where an experiment runs.
#[derive(Debug, Args)]
pub struct Where {
    /// The laboratory that has the stations
    #[arg(long, value_enum, default_value = "netns")]
    pub lab: Laboratory,
    /// With --lab uml: the kernel series, such as 6.1 [default: 6.12, or the newest that is there]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// With --lab uml: how time passes
    #[arg(long, value_enum)]
    pub time: Option<LabTime>,
    /// Only record; another process computes the rest
    #[arg(long, hide = true, value_name = "MACHINE")]
    pub record_for: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Laboratory {
    /// Network namespaces on this kernel, at its own speed
    Netns,
    /// A kernel of its own with all queueing disciplines, in virtual time: exact and repeatable
    Uml,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// 64-byte messages only, one second for each case
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub place: Where,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct Run {
    /// Scenario files, or one experiment file (YAML or JSON)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where the stations of an experiment file are: `NAME: ADDRESS` in each line, an address being
    /// tls://HOST:PORT, unix:/PATH, ssh://HOST, netns:NAME or local
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// Of an experiment file: the clocks of its stations are at most so far apart; its programs
    /// have it in TIMEWIRE_CLOCK_ERROR
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub clock_error: Option<Span>,
    /// Use the scenarios' quick_duration
    #[arg(long)]
    pub quick: bool,
    /// Check the files and print the schedules; run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Who carries the schedule out in the cases with `mac: tdm` [default: mac]
    #[arg(long, value_enum, value_name = "CARRIER")]
    pub carrier: Option<CarrierChoice>,
    /// Trace the messages of each case into a capture; costs each of them some microseconds
    #[arg(long)]
    pub trace: bool,
    /// A run directory: hold the run against it, as `compare` does; what is worse is exit code 1
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    #[command(flatten)]
    pub limits: crate::compare::Limits,
    #[command(flatten)]
    pub place: Where,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CarrierChoice {
    /// The best one that works there, found by trying; the result says why
    Auto,
    /// Timewire's own MAC: every frame in its slot
    Mac,
    /// Gates of the kernel: every frame in its slot
    Taprio,
    /// Gates of the kernel as launch times: every frame in its slot
    #[value(alias = "taprio_assist")]
    TaprioAssist,
    /// A launch time for each real-time frame; best effort at any time
    Etf,
    /// No slots: real time shaped to its reserved rate
    Cbs,
}

impl CarrierChoice {
    /// What the experiment is asked.
    pub fn asked(self) -> Asked {
        match self {
            CarrierChoice::Auto => Asked::Auto,
            CarrierChoice::Mac => Asked::Only(ScheduleCarrier::Mac),
            CarrierChoice::Taprio => Asked::Only(ScheduleCarrier::Taprio),
            CarrierChoice::TaprioAssist => Asked::Only(ScheduleCarrier::TaprioAssist),
            CarrierChoice::Etf => Asked::Only(ScheduleCarrier::Etf),
            CarrierChoice::Cbs => Asked::Only(ScheduleCarrier::Cbs),
        }
    }
}

#[derive(Debug, Args)]
pub struct Output {
    /// The run directory; it must be empty or not exist [default: runs/TIME-NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Tell which laboratories this machine can have, and what mends what is missing
    ///
    /// Exit code 0: all work now; 1: one needs the named command first; 4: one cannot be had.
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Build the laboratory's kernel, or show the one that is there
    ///
    /// From the distribution's kernel source, into the cache ($TIMEWIRE_CACHE, or
    /// ~/.cache/timewire); nothing is installed. It takes some minutes, once.
    Uml(Uml),
    /// Fetch a kernel of the distribution and an emulator for it, or show those that are there
    ///
    /// For what User-Mode Linux lacks: XDP in drivers, BTF, kprobes, network cards with clocks.
    /// Packages (about 130 MB) go into the cache; nothing is installed.
    Qemu(Qemu),
    /// Run a command in the laboratory's kernel
    ///
    /// It sees the host's files, read only, and what it writes to /tmp is lost.
    Exec(Exec),
    /// Inside `exec --in qemu`: keep the receive stamps of the emulated cards coming
    ///
    /// The emulated card stamps one kind of message, and after it no other until it is helped. Runs
    /// until it is ended.
    Stamps {
        /// What each card is to stamp: a time transmitter needs `delay-req`, a receiver `sync`
        #[arg(required = true, value_name = "sync|delay-req")]
        cards: Vec<Stamped>,
    },
    /// Start a shell in the laboratory's kernel
    Shell(Shell),
    /// Run several kernels, each a station with its own clock, on a simulated segment
    ///
    /// Exit code 0: all their commands ended well; 1: one did not, or was ended by the duration.
    Segment(SegmentArgs),
    /// Remove what laboratories and MACs of dead processes have left behind
    Clean,
}

#[derive(Debug, Args)]
pub struct SegmentArgs {
    /// What is on the segment (YAML or JSON)
    pub file: PathBuf,
    /// The directory for results; it must be empty or not exist [default: runs/TIME-NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The kernel series, such as 6.1 [default: 6.12, or the newest that is there]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Uml {
    /// The kernel series, such as 6.1, of which the distribution has the source [default: 6.12, or
    /// else the newest there is]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// Fetch the distribution's own build instead: ready at once, but without virtual time
    #[arg(long, conflicts_with = "kernel")]
    pub prebuilt: bool,
    /// Only list the kernels that are there
    #[arg(long, conflicts_with_all = ["kernel", "prebuilt"])]
    pub list: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Qemu {
    /// The kernel series, such as 6.1, of which the distribution has a kernel [default: the newest]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// Only list the kernels that are there
    #[arg(long, conflicts_with = "kernel")]
    pub list: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A kernel to run a command in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum In {
    /// User-Mode Linux: boots in a fraction of a second, exact
    Uml,
    /// An emulated machine with the distribution's kernel: boots in seconds
    Qemu,
}

#[derive(Debug, Args)]
pub struct LabKernel {
    /// The kernel series, such as 6.1 [default: 6.12, or the newest that is there]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// Use the distribution's own build
    #[arg(long, conflicts_with = "kernel")]
    pub prebuilt: bool,
    /// How time passes in the machine
    #[arg(long, value_enum)]
    pub time: Option<LabTime>,
    /// Memory of the machine, MiB [default: 256, of an emulated one 1024]
    #[arg(long, value_name = "MIB", value_parser = memory_mib())]
    pub memory: Option<u32>,
    /// A directory of the host that the command may change; may be repeated
    #[arg(long, value_name = "DIR")]
    pub writable: Vec<PathBuf>,
}

fn memory_mib() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(64..=65_536)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LabTime {
    /// As fast as events follow each other; computing takes no time
    Virtual,
    /// As on the host
    Wall,
}

#[derive(Debug, Args)]
pub struct Exec {
    /// Which kernel of the laboratory
    #[arg(long = "in", value_enum, default_value = "uml")]
    pub place: In,
    #[command(flatten)]
    pub kernel: LabKernel,
    /// Network cards of an emulated machine, 0 to 8, on one hub: eth0, eth1, ... with clocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=8))]
    pub cards: Option<u32>,
    /// Programs that an emulated machine has, with their libraries, instead of the host's files:
    /// two such runs are the same to the nanosecond
    #[arg(long, value_name = "PROGRAM,...", value_delimiter = ',')]
    pub sealed: Option<Vec<PathBuf>>,
    /// Read standard input to its end and give it to the command; without, it reads nothing
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Say on standard error how much time passed in the machine and on the host
    #[arg(long)]
    pub stats: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Shell {
    #[command(flatten)]
    pub kernel: LabKernel,
}

#[derive(Debug, Subcommand)]
pub enum Hidden {
    /// Puts the host back when the process that changed it dies.
    #[command(name = "__guardian", hide = true)]
    Guardian { journal: PathBuf },
    /// Puts the host back when the process that applies dies, or when nobody confirms.
    #[command(name = "__keeper", hide = true)]
    Keeper { record: PathBuf },
    /// One program of an experiment.
    #[command(name = "__program", hide = true)]
    Program { file: PathBuf },
    /// Tries what the kernel can do.
    #[command(name = "__probe", hide = true)]
    Probe {
        /// Not how late threads wake up
        #[arg(long)]
        needs: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum Tdm {
    /// Start the MAC of a station on an interface
    ///
    /// Makes a virtual interface for the local stack, and puts the host back when it ends.
    Start(Box<Start>),
    /// End the MAC and put the host back
    Stop(Which),
    /// Change the schedule at a cycle boundary, without losing a frame
    Set(Set),
    /// Show schedule, queues, counters and the priority group
    Show(Show),
    /// Set the transmit queues: how many, then ports with their priorities (1 is served first)
    ///
    /// Several ports may share a priority, and with it a queue. Everything else uses the default
    /// queue, which is served last. `tdm send 0` removes all.
    Send(Queues),
    /// Set the receive priorities, in the same way and independently
    Recv(Queues),
    /// Put processes into the priority group; prints their member numbers
    #[command(subcommand)]
    Add(Add),
    /// Take members out of the priority group and give them back what they had
    #[command(subcommand)]
    Remove(Remove),
}

#[derive(Debug, Args)]
pub struct Which {
    /// Name of the MAC; not needed when only one runs
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct Start {
    /// The interface to the segment
    pub link: IfName,
    /// Scenario file with the schedule, the queues and the MAC's options
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Which station of the scenario this host is
    #[arg(long)]
    pub station: StationName,
    /// Address for the virtual interface, such as 10.77.0.1/24; may be repeated
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = address_with_prefix)]
    pub address: Vec<String>,
    /// Move the addresses of the link to the virtual interface while the MAC runs
    #[arg(long)]
    pub move_addresses: bool,
    /// Name of the MAC [default: the link's]
    #[arg(long)]
    pub name: Option<String>,
    /// Name of the virtual interface
    #[arg(long, default_value = "tw0")]
    pub stack: IfName,
    /// What must hold of the clock for the slots to open
    #[arg(long, value_enum, default_value = "synchronised")]
    pub clock: Clock,
    /// With --clock synchronised: the largest error the kernel may report
    #[arg(long, default_value = "100us", value_parser = parse_span)]
    pub max_clock_error: Span,
    /// Start without the scenario's priorities
    #[arg(long)]
    pub no_priorities: bool,
    /// Wait so long until frames can leave: the clock is as it must be, and the link is up. With
    /// 0s that they cannot leave yet is no bad finding
    #[arg(long, value_parser = parse_span, value_name = "TIME", default_value = "1s")]
    pub wait: Span,
    /// Stay in the foreground until ended
    #[arg(long)]
    pub foreground: bool,
}

/// `10.77.0.1/24` or `fd00::1/64`, as it is.
fn address_with_prefix(text: &str) -> Result<String, String> {
    let parts = text.split_once('/');
    let parsed = parts.and_then(|(address, prefix)| {
        let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?);
        (prefix <= if address.is_ipv4() { 32 } else { 128 }).then(|| text.to_owned())
    });
    parsed.ok_or_else(|| "an address and its prefix are like 10.77.0.1/24 or fd00::1/64".to_owned())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Clock {
    /// A daemon keeps this host's clock synchronised; when it does not, nothing is sent
    Synchronised,
    /// `timewire clock start` or `watch` with `--tdm` says when it is on time
    Watched,
    /// All stations run on this one host (laboratory): nothing is checked
    OneHost,
}

#[derive(Debug, Args)]
pub struct Set {
    /// Scenario file with the new schedule
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Earliest time of the change, TAI nanoseconds; give all stations the same [default: 50ms from
    /// now]
    #[arg(long, value_name = "NANOSECONDS")]
    pub not_before: Option<i64>,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct Show {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct Queues {
    /// How many prioritised queues
    pub count: usize,
    /// Pairs of port and priority
    #[arg(value_name = "PORT PRIORITY")]
    pub pairs: Vec<u64>,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Subcommand)]
pub enum Add {
    /// By process number
    Process(Processes),
}

#[derive(Debug, Subcommand)]
pub enum Remove {
    /// By member number, as `tdm add process` printed it
    Process(Members),
}

#[derive(Debug, Args)]
pub struct Processes {
    /// Process numbers
    #[arg(required = true, value_name = "PID")]
    pub pids: Vec<u32>,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct Members {
    /// Member numbers
    #[arg(required = true, value_name = "ID")]
    pub members: Vec<u32>,
    #[command(flatten)]
    pub which: Which,
}
