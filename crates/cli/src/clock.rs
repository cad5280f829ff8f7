// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `clock`: keeping the clock on time, seeing how it is, closing slots when it is not.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use timewire_base::{IfName, Span, Utc, parse_span};
use timewire_datapath::clock::{self as keep, ClockStatus, Closes, Start, Watch};
use timewire_datapath::streams::clocks::{ClockBasis, ClockBound};
use timewire_host::clock::client::{Client, ClientError, PtpState};
use timewire_host::clock::config::ClockPlan;
use timewire_host::clock::leap::{self, LeapSeconds};
use timewire_host::tool::{self, Tool};
use timewire_model::scenario::host::{ClockRole, DesiredClock};
use timewire_sys::steering::{self, Steered};
use timewire_tsn::GuardLimits;
use timewire_tsn::qdisc::{Qdisc, ShownQdisc};

use crate::ending::Ending;
use crate::input::SettingsFile;
use crate::output;
use crate::traffic::{clock_error, parse_interval, parse_time};

/// Where a `ptp4l` listens that nobody told otherwise.
const USUAL_SOCKET: &str = "/var/run/ptp4l";

#[derive(Debug, Subcommand)]
pub enum Clocks {
    /// Print what linuxptp would be started with
    Config {
        #[command(flatten)]
        of: SettingsFile,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Start linuxptp as host settings have it, and watch it until ended
    ///
    /// The daemons are started again when they end. All ends with this command: how fast the clocks
    /// went is restored, what they were stepped by is not.
    Start(StartArgs),
    /// Show how the clock is
    ///
    /// Exit code 0: it is on time; 1: it is not.
    Status(Status),
    /// End `clock start` or `clock watch`, and restore the host
    Stop {
        /// Its name; not needed when only one is watched
        #[arg(long)]
        name: Option<String>,
    },
    /// Watch a `ptp4l` that somebody else started, until ended
    Watch(WatchArgs),
    /// Show TAI - UTC of the kernel, or set it
    ///
    /// Exit code 0: it is right, as far as is known here; 1: it is not.
    Tai {
        /// Set it to so many seconds (37 since 2017). CLOCK_TAI steps; it stays until a reboot
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(0..=127))]
        set: Option<i32>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct StartArgs {
    #[command(flatten)]
    pub of: SettingsFile,
    /// Its name, for `status` and `stop`
    #[arg(long, default_value = "clock")]
    pub name: String,
    #[command(flatten)]
    pub closing: Closing,
    /// Start although another program steers the same clock
    #[arg(long)]
    pub despite_others: bool,
    /// End with the reason when the clock is not on time so soon [default: wait]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub within: Option<Span>,
}

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Where it takes questions
    #[arg(long, default_value = USUAL_SOCKET, value_name = "PATH")]
    pub socket: PathBuf,
    /// Name of the watch, for `status` and `stop`
    #[arg(long, default_value = "watch")]
    pub name: String,
    /// Which part this host has
    #[arg(long, value_enum, default_value = "receiver")]
    pub role: Role,
    /// It keeps the clock of this interface's NIC: compare that with the system's, too
    #[arg(long, value_name = "INTERFACE")]
    pub nic: Option<IfName>,
    /// Farther off than this, it is not on time
    #[arg(long, default_value = "1us", value_parser = parse_span)]
    pub offset: Span,
    /// So many samples one after another within half of that, and it is again
    #[arg(long, default_value = "8", value_name = "N")]
    pub good_samples: u32,
    /// Without a sample for so long, it is not
    #[arg(long, default_value = "3s", value_parser = parse_span)]
    pub silence: Span,
    #[command(flatten)]
    pub closing: Closing,
}

#[derive(Debug, Args)]
pub struct Closing {
    /// Close the slots of this MAC, started with `--clock watched`; may be repeated
    #[arg(long, value_name = "NAME")]
    pub tdm: Vec<String>,
    /// Hold urgent frames back before this interface's queueing discipline; may be repeated
    #[arg(long, value_name = "INTERFACE")]
    pub close: Vec<IfName>,
    /// Which are urgent, such as 3,5-7, on all of them [default: on each, those of another class
    /// than priority 0, by its taprio or mqprio]
    #[arg(long, value_name = "LIST", requires = "close", value_parser = priorities)]
    pub priorities: Option<u16>,
    /// Write samples and events to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Status {
    /// Its name; not needed when only one is watched. Without any, a `ptp4l` that is found is asked
    #[arg(long)]
    pub name: Option<String>,
    /// Ask the `ptp4l` of this socket instead
    #[arg(long, value_name = "PATH", conflicts_with = "name")]
    pub socket: Option<PathBuf>,
    /// This host's clock is at most so far from what gives the time [default: that of
    /// TIMEWIRE_CLOCK_ERROR]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub clock_error: Option<Span>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print it again every second, until ended
    #[arg(long)]
    pub watch: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// The best clock is found
    Auto,
    /// Never gives the time
    Receiver,
    /// Gives the time as long as there is no better one
    Transmitter,
}

/// `3,5-7` as bits.
fn priorities(text: &str) -> Result<u16, String> {
    let wrong = || format!("`{text}` is no list of priorities 0 to 15, such as 3,5-7");
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= 15).ok_or_else(wrong);
    let mut bits = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        bits |= (first..=last).map(|n| 1 << n).sum::<u16>();
    }
    Ok(bits)
}

pub fn run(command: Clocks) -> anyhow::Result<ExitCode> {
    match command {
        Clocks::Config { of, json } => config(&of, json),
        Clocks::Start(args) => start(args),
        Clocks::Status(args) => show(&args),
        Clocks::Stop { name } => {
            keep::stop(&keep::find(name.as_deref())?)?;
            Ok(ExitCode::SUCCESS)
        }
        Clocks::Watch(args) => watch(args),
        Clocks::Tai { set, json } => tai(set, json),
    }
}

fn read_clock(of: &SettingsFile) -> anyhow::Result<DesiredClock> {
    let clock = of.read()?.host.clock;
    clock.with_context(|| format!("{} has no `clock`: add one under `host`", of.file.display()))
}

fn config(of: &SettingsFile, json: bool) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct ClockReport<'a> {
        schema: &'static str,
        #[serde(flatten)]
        plan: &'a ClockPlan,
    }
    let plan = keep::plan_for("clock", &read_clock(of)?)?;
    if json {
        let told = ClockReport { schema: "timewire.clock-config/1", plan: &plan };
        return output::json(&told);
    }
    let by = if plan.hardware { "the NIC" } else { "the kernel" };
    let mut text = format!("# {by} timestamps: {}\n", plan.why);
    for daemon in &plan.daemons {
        let _ = write!(
            text,
            "\n# {}\n{}\n# {} {}\n",
            daemon.file.display(),
            daemon.text.trim_end(),
            daemon.program,
            daemon.arguments.join(" ")
        );
    }
    output::print(&text)
}

/// What is closed, with the priorities of the interfaces found out.
fn closes(closing: &Closing) -> anyhow::Result<Closes> {
    closes_with(closing, urgent_of)
}

/// The same, by what finds out which priorities of an interface are urgent.
fn closes_with(
    closing: &Closing,
    urgent_of: impl Fn(&IfName) -> anyhow::Result<u16>,
) -> anyhow::Result<Closes> {
    let mut interfaces = Vec::new();
    for interface in &closing.close {
        let priorities = closing.priorities.map_or_else(|| urgent_of(interface), Ok)?;
        interfaces.push((interface.clone(), priorities));
    }
    Ok(Closes { macs: closing.tdm.clone(), interfaces })
}

/// The priorities of an interface whose class is not that of ordinary frames.
fn urgent_of(interface: &IfName) -> anyhow::Result<u16> {
    let shown = tool::run(Tool::Tc, &["-j", "qdisc", "show", "dev", interface.as_str()])?;
    let shown = ShownQdisc::parse(&shown)?;
    let classes = shown.iter().find_map(|qdisc| match qdisc.configured()? {
        Qdisc::Taprio(taprio) => taprio.options().classes.clone(),
        Qdisc::Mqprio(mqprio) => Some(mqprio.options().classes.clone()),
        _ => None,
    });
    let Some(classes) = classes else {
        bail!(
            "{interface} has neither taprio nor mqprio: say which frames are urgent, `--priorities`"
        );
    };
    let map = classes.map();
    let urgent = (0..16).filter(|n| map[*n] != map[0]).map(|n| 1 << n).sum::<u16>();
    if urgent == 0 {
        bail!("all priorities of {interface} have one class: say which are urgent, `--priorities`");
    }
    Ok(urgent)
}

fn start(args: StartArgs) -> anyhow::Result<ExitCode> {
    let desired = read_clock(&args.of)?;
    let closes = closes(&args.closing)?;
    crate::apply::recover()?;
    let start = Start {
        name: args.name,
        desired,
        closes,
        record: args.closing.record,
        despite_others: args.despite_others,
        within: args.within,
    };
    keep::start(start, &mut |text| say!("{text}"))?;
    Ok(ExitCode::SUCCESS)
}

fn watch(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let closes = closes(&args.closing)?;
    crate::apply::recover()?;
    let limits =
        GuardLimits { offset: args.offset, good_samples: args.good_samples, silence: args.silence };
    let watch = Watch {
        name: args.name,
        socket: args.socket,
        interfaces: Vec::new(),
        hears: None,
        role: match args.role {
            Role::Auto => ClockRole::Auto,
            Role::Receiver => ClockRole::Receiver,
            Role::Transmitter => ClockRole::Transmitter,
        },
        limits,
        interval: Watch::usual_interval(args.silence),
        phc: args.nic.as_ref().map(Watch::phc_of).transpose()?,
        closes,
        record: args.closing.record,
    };
    keep::watch(watch, &mut |text| say!("{text}"))?;
    Ok(ExitCode::SUCCESS)
}

fn show(args: &Status) -> anyhow::Result<ExitCode> {
    let bound = ClockBound::stated(clock_error(args.clock_error)?);
    let ending = args.watch.then(Ending::new).transpose()?;
    loop {
        let (text, on_time) = match &args.socket {
            Some(socket) => of_socket(socket, args.json, &bound)?,
            None if args.name.is_none() && keep::running()?.is_empty() => {
                let found = keep::ptp4l_instances();
                let Some(first) = found.first() else {
                    // It says that there is none, and how to start one.
                    keep::find(None)?;
                    bail!("no clock is watched here");
                };
                if found.len() > 1 {
                    let others = found[1..].iter().map(|it| it.socket.display().to_string());
                    let others = others.collect::<Vec<_>>().join(", ");
                    say!("note: there are others, for `--socket`: {others}");
                }
                of_socket(&first.socket, args.json, &bound)?
            }
            None => {
                let status = keep::find(args.name.as_deref())?;
                let text = match args.json {
                    true => {
                        let told = OfClock { status: &status, clock_error: &bound };
                        one_json(&told, args.watch)?
                    }
                    false => describe(&status, &bound),
                };
                (text, status.guard.on_time)
            }
        };
        output::print(&text)?;
        if ending.as_ref().is_none_or(|ending| ending.rest(Span::from_secs(1))) {
            return Ok(ExitCode::from(u8::from(!on_time)));
        }
    }
}

/// How a watched clock is, and what the user says of it.
#[derive(Serialize)]
struct OfClock<'a> {
    #[serde(flatten)]
    status: &'a ClockStatus,
    clock_error: &'a ClockBound,
}

/// One object; one line each when there are many.
fn one_json(value: &impl Serialize, one_of_many: bool) -> anyhow::Result<String> {
    let text = match one_of_many {
        true => serde_json::to_string(value)?,
        false => serde_json::to_string_pretty(value)?,
    };
    Ok(text + "\n")
}

/// How the `ptp4l` of a socket is, and whether it follows a clock or gives the time.
fn of_socket(socket: &Path, json: bool, bound: &ClockBound) -> anyhow::Result<(String, bool)> {
    #[derive(Serialize)]
    struct ClockReport<'a> {
        schema: &'static str,
        socket: &'a Path,
        hears: timewire_host::clock::client::Hears,
        #[serde(flatten)]
        state: &'a PtpState,
        clock_error: &'a ClockBound,
    }
    let directory = timewire_host::journal::runtime_dir()?;
    fs::create_dir_all(&directory).context("cannot make the directory of sockets")?;
    let own = directory.join(format!("question-{}", std::process::id()));
    // They name their causes themselves.
    let failed = |error: ClientError| anyhow::anyhow!("{error}");
    let mut client = Client::find(socket, &own).map_err(failed)?;
    let state = client.state().map_err(failed)?;
    let follows = state.status.giver_present;
    let gives = state.parent.grandmaster == state.default.clock;
    let text = if json {
        let told = ClockReport {
            schema: "timewire.ptp-state/1",
            socket,
            hears: client.hears(),
            state: &state,
            clock_error: bound,
        };
        serde_json::to_string_pretty(&told)? + "\n"
    } else {
        describe_state(&state, client.hears().domain, bound)
    };
    Ok((text, follows || gives))
}

fn describe_state(state: &PtpState, domain: u8, bound: &ClockBound) -> String {
    let mut text = format!("clock {}, domain {domain}\n", state.default.clock);
    let giver = state.parent.grandmaster;
    if state.status.giver_present {
        // Its own timestamps, which it takes for exact.
        let error = match bound.basis {
            ClockBasis::Unknown => "clock error unknown (state it with --clock-error)".to_owned(),
            ClockBasis::Stated | ClockBasis::OneClock => bound.describe(),
        };
        let offset = Span::from_ns(state.status.offset_ns);
        let _ = writeln!(text, "  follows {giver}, by its own timestamps off by {offset}; {error}");
    } else if giver == state.default.clock {
        let _ = writeln!(text, "  follows no other clock");
    }
    let _ = writeln!(
        text,
        "  TAI - UTC {} s, {}",
        state.time.utc_offset_s,
        match state.time.valid_utc_offset_s() {
            Some(_) => "known to be right",
            None => "not known to be right",
        }
    );
    for (port, stats) in &state.ports {
        let _ = write!(text, "  port {}: {}", port.port.port, port.state);
        if let Some(stats) = stats {
            let sum = |counts: &[u64; 16]| counts.iter().sum::<u64>();
            let (received, sent) = (sum(&stats.received), sum(&stats.sent));
            let _ = write!(text, ", messages received {received}, sent {sent}");
        }
        text.push('\n');
    }
    text
}

fn describe(status: &ClockStatus, bound: &ClockBound) -> String {
    let guard = &status.guard;
    let since = Span::from_ns(guard.for_ns / 1_000_000 * 1_000_000);
    let mut text = format!("clock `{}` (process {}): ", status.name, status.pid);
    match &guard.why {
        None => {
            let _ = writeln!(text, "on time for {since}");
        }
        Some(why) => {
            let _ = writeln!(text, "NOT on time for {since}: {why}");
            let (good, needed) = (guard.good_samples, guard.good_samples_needed);
            let _ = writeln!(text, "  {good} good samples of {needed}");
        }
    }
    let giver = status.giver.as_deref().unwrap_or("nobody");
    let off = bound.off_by(status.offset_ns.zip(status.offset_error_ns), giver);
    let (limit, silence) =
        (Span::from_ns(guard.offset_limit_ns), Span::from_ns(guard.silence_limit_ns));
    let _ = writeln!(
        text,
        "  {off}; limit {limit}; silence limit {silence}; lost {} times",
        guard.losses
    );
    match (&status.silent, &status.giver) {
        (Some(why), _) => {
            let _ = writeln!(text, "  ptp4l: {why}");
        }
        (None, Some(giver)) => {
            let who = if status.identity.as_ref() == Some(giver) { "itself" } else { giver };
            let ports = status.ports.join(", ");
            let _ = writeln!(text, "  ptp4l: ports {ports}; time from {who}");
        }
        _ => {}
    }
    for daemon in &status.daemons {
        let process = match daemon.pid {
            Some(pid) => format!("process {pid}"),
            None => "not running".to_owned(),
        };
        let ended = daemon.ended.as_ref().map(|how| format!(", last {how}")).unwrap_or_default();
        let (program, restarts, log) = (&daemon.program, daemon.restarts, &daemon.log);
        let _ = writeln!(text, "  {program}: {process}, restarts {restarts}{ended}; {log}");
    }
    let kernel = if status.kernel_synchronised { "synchronised" } else { "not synchronised" };
    let max = Span::from_ns(status.kernel_max_error_ns);
    let _ = writeln!(
        text,
        "  kernel: {kernel} within {max}, steered by {} ppb, TAI - UTC {} s",
        status.frequency_ppb, status.tai_offset_s
    );
    for closes in &status.closes {
        let _ = write!(text, "  closes {}", closes.what);
        if let (Some(passed), Some(dropped)) = (closes.passed, closes.dropped) {
            let _ = write!(text, ": frames passed {passed}, dropped {dropped}");
        }
        if let Some(failed) = &closes.failed {
            let _ = write!(text, ": {failed}");
        }
        text.push('\n');
    }
    for note in &status.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text
}

fn tai(set: Option<i32>, json: bool) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct ClockReport {
        schema: &'static str,
        kernel_s: i32,
        list_s: Option<i32>,
        list: Option<PathBuf>,
        list_is_stale: bool,
        note: Option<String>,
    }
    if let Some(seconds) = set {
        steering::set_tai_offset(seconds)
            .with_context(|| format!("cannot set TAI - UTC to {seconds} s (run as root)"))?;
    }
    let kernel_s = steering::steering(Steered::System)?.tai_offset_s;
    let list = LeapSeconds::of_this_host();
    let utc_s = timewire_sys::clock::now::<Utc>().as_ns() / 1_000_000_000;
    let note = leap::judge(kernel_s, list.as_ref(), utc_s);
    let told = ClockReport {
        schema: "timewire.tai/1",
        kernel_s,
        list_s: list.as_ref().and_then(|list| list.at(utc_s)),
        list_is_stale: list.as_ref().is_some_and(|list| list.is_stale(utc_s)),
        list: list.map(|list| list.source),
        note,
    };
    let code = ExitCode::from(u8::from(told.note.is_some()));
    if json {
        output::print(&one_json(&told, false)?)?;
        return Ok(code);
    }
    let mut text = format!("TAI - UTC of the kernel: {kernel_s} s\n");
    if let (Some(list), Some(seconds)) = (&told.list, told.list_s) {
        let stale = if told.list_is_stale { ", which has expired" } else { "" };
        let _ = writeln!(text, "by {}{stale}: {seconds} s", list.display());
    }
    if let Some(note) = &told.note {
        let _ = writeln!(text, "note: {note}");
    }
    output::print(&text)?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_each_interface_has_the_urgent_priorities_of_its_own_discipline() {
        let names = ["eth0", "eth1"].map(|name| IfName::new(name).unwrap());
        let closing = |priorities| Closing {
            tdm: Vec::new(),
            close: names.to_vec(),
            priorities,
            record: None,
        };
        let urgent = |name: &IfName| Ok(if *name == names[0] { 1 << 3 } else { 1 << 5 });
        let closed = |priorities| closes_with(&closing(priorities), urgent).unwrap().interfaces;
        let [a, b] = names.clone();
        assert_eq!(closed(None), [(a.clone(), 1 << 3), (b.clone(), 1 << 5)]);
        assert_eq!(closed(Some(1 << 6)), [(a, 1 << 6), (b, 1 << 6)]);
    }

    #[test]
    fn t0_lists_of_priorities_are_read() {
        assert_eq!(priorities("3,5-7"), Ok(0b1110_1000));
        assert_eq!(priorities("0-15"), Ok(u16::MAX));
        for bad in ["", "16", "5-3", "a", "1,", "1-2-3"] {
            assert!(priorities(bad).is_err(), "{bad}");
        }
    }
}
