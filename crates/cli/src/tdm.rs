// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tdm`: the small daily tool.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use timewire_base::{IfName, Port, Priority, Span, StationName, parse_span};
use timewire_datapath::DatapathError;
use timewire_datapath::control::{self, Client, Request, Response, Status};
use timewire_datapath::mac::{ClockRule, PortList};
use timewire_datapath::station::{self, Station, StationSpec};
use timewire_model::scenario::{FileKind, Scenario};
use timewire_model::tdm::TdmSchedule;
use timewire_sys::namespace::Process;
use timewire_sys::nic::has_carrier;
use timewire_tsn::file::with_slots;

use crate::{input, output};

#[derive(Debug, Subcommand)]
pub enum Tdm {
    /// Start the MAC of a station on an interface
    ///
    /// Makes a virtual interface for the local stack, and restores the host when it ends.
    Start(Box<Start>),
    /// End the MAC and restore the host
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
    /// Network file with the schedule, the queues and the MAC's options
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Which station of the network this host is
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
    /// Start without the priorities of the file
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
    /// Network file with the new schedule
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

/// How long a MAC in the background may take to answer.
const START: Duration = Duration::from_secs(10);

pub fn run(command: Tdm) -> anyhow::Result<ExitCode> {
    match command {
        Tdm::Start(args) if args.foreground => start(*args),
        Tdm::Start(args) => start_in_background(&args),
        Tdm::Stop(which) => stop(&which),
        Tdm::Set(args) => set(&args),
        Tdm::Show(args) => show(&args),
        Tdm::Send(args) => {
            let list = port_list(&args)?;
            done(&args.which, &Request::Send { list })
        }
        Tdm::Recv(args) => {
            let list = port_list(&args)?;
            done(&args.which, &Request::Recv { list })
        }
        Tdm::Add(Add::Process(args)) => {
            let request = Request::AddProcess { pids: args.pids };
            let Response::Members { members } = client(&args.which)?.ask(&request)? else {
                bail!("the MAC answered something else than members");
            };
            let numbers: Vec<_> = members.iter().map(u32::to_string).collect();
            output::print(&format!("{}\n", numbers.join(" ")))
        }
        Tdm::Remove(Remove::Process(args)) => {
            done(&args.which, &Request::RemoveProcess { members: args.members })
        }
    }
}

fn client(which: &Which) -> anyhow::Result<Client> {
    Ok(match &which.name {
        Some(name) => Client::new(name),
        None => Client::of_the_only_one()?,
    })
}

fn done(which: &Which, request: &Request) -> anyhow::Result<ExitCode> {
    client(which)?.ask(request)?;
    Ok(ExitCode::SUCCESS)
}

/// `N port priority port priority ...`
fn port_list(args: &Queues) -> anyhow::Result<PortList> {
    let (pairs, rest) = args.pairs.as_chunks::<2>();
    if let [port] = rest {
        bail!("port {port} has no priority: write pairs, such as `15001 1 15002 2`");
    }
    let mut ports = Vec::new();
    for [port, priority] in pairs {
        ports.push((Port::new(*port)?, Priority::new(*priority)?));
    }
    let list = PortList { queues: args.count, ports };
    // The MAC checks again; here the user has it without one.
    list.rules()?;
    Ok(list)
}

fn read_scenario(file: &std::path::Path) -> anyhow::Result<Scenario> {
    let read = input::read(file, FileKind::Segment, "nothing was changed", with_slots);
    Ok(read?.0)
}

fn station_spec(args: Start) -> anyhow::Result<StationSpec> {
    let scenario = read_scenario(&args.file)?;
    let clock = match args.clock {
        Clock::OneHost => ClockRule::OneHost,
        Clock::Watched => ClockRule::Watched,
        Clock::Synchronised => ClockRule::Synchronised { max_error: args.max_clock_error },
    };
    let instance = args.name.unwrap_or_else(|| args.link.to_string());
    let mut spec =
        station::from_scenario(&scenario, args.station, args.link, args.stack, instance, clock)?;
    spec.addresses = args.address;
    spec.move_addresses = args.move_addresses;
    if args.no_priorities {
        spec.send = PortList::default();
        spec.recv = PortList::default();
    }
    Ok(spec)
}

/// Warns where the clocks of two stations, each with the error that is allowed, can be apart by
/// more than is between their slots.
fn warn_of_guard(status: &Status, clock: Clock, max_error: Span) {
    let slots = status.schedule.iter().flat_map(TdmSchedule::slots);
    let guard = slots.map(|slot| slot.guard).min();
    let Some(guard) = guard.filter(|guard| max_error.as_ns() > guard.as_ns() / 2) else { return };
    if !matches!(clock, Clock::Synchronised) {
        return;
    }
    say!(
        "warning: --max-clock-error {max_error} is more than half the guard of {guard}: frames can \
         be in slots of others"
    );
}

fn start(args: Start) -> anyhow::Result<ExitCode> {
    let (clock, max_error) = (args.clock, args.max_clock_error);
    let spec = station_spec(args)?;
    crate::apply::recover()?;
    let mut station = Station::start(spec)?;
    let status = station.status()?;
    say_text!("{}", describe(&status));
    warn_of_guard(&status, clock, max_error);
    let held = held_by(&status)?;
    if !held.is_empty() {
        say!("warning: nothing is sent now: {}", held.join("; "));
    }
    station.serve()?;
    Ok(ExitCode::SUCCESS)
}

/// Starts this program again, in a session of its own, and waits until it answers.
fn start_in_background(args: &Start) -> anyhow::Result<ExitCode> {
    let name = args.name.clone().unwrap_or_else(|| args.link.to_string());
    let log = control::log_path(&name)?;
    if Client::new(&name).status().is_ok() {
        return Err(DatapathError::MacRuns { instance: name }.into());
    }
    crate::apply::recover()?;
    let said = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new("setsid");
    command.arg(program).args(std::env::args_os().skip(1)).arg("--foreground");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    let mut child = command.spawn().context("cannot start `setsid` (package util-linux)")?;
    let give_up = Instant::now() + START;
    loop {
        if let Some(status) = child.try_wait()? {
            say_text!("{}", fs::read_to_string(&log).unwrap_or_default());
            fs::remove_file(&log)?;
            let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2);
            return Ok(ExitCode::from(code.max(1)));
        }
        // `setsid` becomes the MAC. Another process is one that was started at the same time.
        let status = Client::new(&name).status();
        if let Ok(status) = status.as_ref()
            && status.pid == child.id()
        {
            return tell_started(&name, args);
        }
        if Instant::now() > give_up {
            child.kill()?;
            bail!("the MAC does not answer; it said: {}", fs::read_to_string(&log)?);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Prints how the MAC is once frames can leave, or when the time for that is over: 1, and why.
/// Where no time was given, frames that cannot leave yet are as expected.
fn tell_started(name: &str, args: &Start) -> anyhow::Result<ExitCode> {
    let timeout = u64::try_from(args.wait.as_ns()).map_or(Duration::ZERO, Duration::from_nanos);
    let give_up = Instant::now() + timeout;
    loop {
        let status = Client::new(name).status()?;
        let held = held_by(&status)?;
        if held.is_empty() || Instant::now() > give_up {
            output::print(&describe(&status))?;
            warn_of_guard(&status, args.clock, args.max_clock_error);
            if held.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            let is_expected = args.wait == Span::ZERO;
            let kind = if is_expected { "note" } else { "warning" };
            say!("{kind}: the MAC runs, and sends nothing now: {}", held.join("; "));
            return Ok(ExitCode::from(u8::from(!is_expected)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What keeps frames from leaving.
fn held_by(status: &Status) -> anyhow::Result<Vec<String>> {
    let mut held = Vec::new();
    if let Some(clock) = status.held_by_clock() {
        held.push(format!("the clock is {clock}"));
    }
    // A driver that does not tell holds nothing.
    if matches!(has_carrier(&IfName::new(&status.link)?), Ok(false)) {
        held.push(format!("the link {} is down (no carrier)", status.link));
    }
    Ok(held)
}

/// How long a MAC may take from its last word to its end.
const END: Duration = Duration::from_secs(10);

fn stop(which: &Which) -> anyhow::Result<ExitCode> {
    let client = client(which)?;
    let status = client.status()?;
    let name = status.name;
    let process = Process::of(status.pid);
    let response = client.ask(&Request::Stop)?;
    if let Response::LeftChanged { message } = response {
        // Its journal can be carried out once it is gone.
        let give_up = Instant::now() + END;
        while process.as_ref().is_ok_and(|it| it.is_alive()) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        say!("error: {message}");
        say!("  hint: mend what stands in the way, then `timewire lab clean` does the rest");
        return Ok(ExitCode::from(3));
    }
    // It has one only if it ran in the background.
    let _ = fs::remove_file(control::log_path(&name)?);
    Ok(ExitCode::SUCCESS)
}

fn set(args: &Set) -> anyhow::Result<ExitCode> {
    let scenario = read_scenario(&args.file)?;
    let not_before_ns = args.not_before.map(timewire_base::Instant::from_ns);
    done(&args.which, &Request::Set { schedule: scenario.schedule, not_before_ns })
}

fn show(args: &Show) -> anyhow::Result<ExitCode> {
    let status = client(&args.which)?.status()?;
    if args.json { output::json(&status) } else { output::print(&describe(&status)) }
}

/// The station's own slots have an asterisk.
fn describe_schedule(schedule: &TdmSchedule, station: &str) -> String {
    let mut text = format!("  cycle {}\n", schedule.cycle());
    for slot in schedule.slots() {
        let own = if slot.station.as_str() == station { "*" } else { " " };
        text += &format!(
            "  {own} {:<12} at {:>8}  transmit {:>8}  guard {:>7}\n",
            slot.station.to_string(),
            slot.offset.to_string(),
            slot.transmit.to_string(),
            slot.guard.to_string(),
        );
    }
    text
}

fn describe(status: &Status) -> String {
    let mut text = format!(
        "MAC `{}` (process {}): station {} on {}, stack on {}\n",
        status.name, status.pid, status.station, status.link, status.stack
    );
    text += &format!("  transmit {}, receive {}\n", status.transmit.socket, status.receive);
    text += &format!("  clock: {}\n", status.clock);
    if let Some(sync) = status.sync.as_ref().filter(|sync| sync.losses > 0 || sync.keep_open) {
        let kept = if sync.keep_open { ", slots stay open then" } else { "" };
        text += &format!("  clock lost {} times{kept}\n", sync.losses);
    }
    if let Some(said) = status.sync.as_ref().and_then(|sync| sync.said.as_ref()) {
        // A difference of clocks without the error of its comparison is none.
        let off = said.offset_ns.zip(said.offset_error_ns);
        let off = off.map(|(off, error)| format!(", off by {off} (comparing {error})"));
        let off = off.unwrap_or_default();
        let why = said.why.as_ref().map(|why| format!(", {why}")).unwrap_or_default();
        text += &format!("  last word by {}{off}{why}\n", said.by);
    }
    for refused in &status.refused {
        text += &format!("  not available: {refused}\n");
    }
    match &status.schedule {
        None => text += "  no schedule: frames leave at once\n",
        Some(schedule) => text += &describe_schedule(schedule, &status.station),
    }
    if let (Some(at), Some(schedule)) = (status.change_at_ns, &status.next_schedule) {
        text += &format!("  from TAI {}ns on:\n", at.as_ns());
        text += &describe_schedule(schedule, &status.station);
    }
    text += "  queue      arrived    released  dropped: full    too long\n";
    for queue in &status.transmit.queues {
        text += &format!(
            "  {:<8} {:>9} {:>11} {:>14} {:>11}\n",
            queue.name, queue.arrived, queue.released, queue.dropped_full, queue.dropped_oversize
        );
    }
    text += &format!(
        "  slots missed {}, lost before the queues {}, not sent {}, sent late {}, held \
         for the clock {}\n",
        status.transmit.missed_slots,
        status.transmit.ingress_dropped,
        status.not_sent,
        status.sent_late,
        status.held_unsynchronised
    );
    for cause in &status.drop_causes {
        text += &format!("  {cause}\n");
    }
    let by_priority: String = status
        .received
        .by_priority
        .iter()
        .map(|(priority, frames)| format!(", priority {priority}: {frames}"))
        .collect();
    text += &format!("  received normal: {}{by_priority}\n", status.received.normal);
    for (what, list) in [("send", &status.send), ("recv", &status.recv)] {
        let pairs =
            list.ports.iter().map(|(port, priority)| format!(" {} {}", port.get(), priority.get()));
        text += &format!("  {what} {}{}\n", list.queues, pairs.collect::<String>());
    }
    for member in &status.members {
        text += &format!(
            "  member {}: process {}, {} thread{}\n",
            member.member,
            member.pid,
            member.threads,
            if member.threads == 1 { "" } else { "s" }
        );
    }
    text
}
