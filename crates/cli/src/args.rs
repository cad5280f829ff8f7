// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line as a value. Help and errors come from these definitions.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Deterministic Ethernet on ordinary Linux.
///
/// Exit codes: 0 done, and all is well; 1 done, with bad findings: a limit that does not pass, a
/// setting that was changed since, a host or clock that is less than it should be; 2 usage or
/// operation failed, host unchanged; 3 host left changed; 4 not supported here, the missing piece
/// named.
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
    Demo(crate::experiment::Demo),
    /// Run one or more network files in the simulator, in the local laboratory or on hosts that
    /// have agents
    ///
    /// Of a network with phases alone, exit code 0: all was done, and all numbers are within their
    /// limits; 1: not all are; 2: something failed; 3: a host was left changed. A run that was
    /// interrupted goes on with the same --out.
    Run(crate::experiment::Run),
    /// Make the report of any run from its directory: a page, tables, JSON or Markdown
    Report(crate::report::Report),
    /// Hold two run directories against each other: what is better, worse, the same
    ///
    /// Exit code 0: nothing is worse; 1: something is worse.
    Compare(crate::compare::Compare),
    /// Plan when each frame of a network's streams starts on each link, or say why it cannot
    ///
    /// Exit code 0: every stream is admitted, and the bounds of the others are within their limits;
    /// 1: not.
    Plan(crate::plan::PlanArgs),
    /// Set this host up as a file describes it, as one transaction that `undo` takes back
    ///
    /// Every change and what takes it back is on disk before it is made. Whatever fails or is
    /// killed on the way, the host is restored; what cannot be restored exactly is refused before
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
    Tdm(crate::tdm::Tdm),
    /// Receive priority on an interface: start, change, show and stop it
    #[command(subcommand)]
    Receive(crate::receive::ReceiveCommand),
    /// Send streams: by a cycle, before a slot or with launch times, through UDP, frames or AF_XDP
    ///
    /// Exit code 0: everything was sent, and every timestamp that was asked for came back; 1: not.
    Talk(Box<crate::talk::Talk>),
    /// Receive streams and show rate, loss, order, latencies and when in a cycle they arrive
    ///
    /// Exit code 1 when a limit of --expect does not pass.
    Listen(Box<crate::listen::Listen>),
    /// Keep the clock on time with linuxptp, watch it, and close real-time slots when it is not
    #[command(subcommand)]
    Clock(crate::clock::Clocks),
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
    Lab(crate::lab::LabCommand),
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
    /// Print the JSON Schema of a file: network, hosts, streams, experiment
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

#[derive(Debug, Subcommand)]
pub enum Hidden {
    /// Restores the host when the process that changed it dies, or when nobody confirms.
    #[command(name = "__watchdog", hide = true)]
    Watchdog { log: PathBuf },
    /// One program of an experiment.
    #[command(name = "__program", hide = true)]
    Program {
        file: PathBuf,
        /// Its times count from the common start
        #[arg(long)]
        from_start: bool,
        /// It is alone in a process namespace with what it starts
        #[arg(long)]
        alone: bool,
    },
    /// The address and the disciplines of a station without a MAC, until it ends.
    #[command(name = "__connection", hide = true)]
    Connection {
        file: PathBuf,
        /// Waits until another process has made it
        #[arg(long)]
        wait: bool,
    },
    /// The streams of a station that no talker sends.
    #[command(name = "__reply", hide = true)]
    Reply { file: PathBuf },
    /// The capture of a station, until it ends.
    #[command(name = "__trace", hide = true)]
    Trace {
        file: PathBuf,
        /// Waits until another process has begun it
        #[arg(long)]
        wait: bool,
    },
    /// Tries what the kernel can do.
    #[command(name = "__probe", hide = true)]
    Probe {
        /// Not how late threads wake up
        #[arg(long)]
        needs: bool,
    },
}
