// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the daemons of a desired configuration, starts them again when they end, and restores the
//! host.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use timewire_base::{Mono, Span};
use timewire_host::Undo;
use timewire_host::clock::RestoreSteering;
use timewire_host::clock::client::Hears;
use timewire_host::clock::config::{self, ClockPlan, DaemonPlan, HostAbilities, Steers};
use timewire_host::clock::rivals::{self, Judgement, Ours};
use timewire_host::journal::{EntryId, Journal};
use timewire_model::scenario::host::{ClockRole, DesiredClock};
use timewire_sys::clock;
use timewire_sys::event::{self, EndRequests};
use timewire_sys::namespace::{self, OnParentDeath, Process};
use timewire_sys::phc::{NicClock, TimestampAbilities, timestamp_abilities};
use timewire_sys::steering::{self, Steered, Steering};

use super::closer::Closes;
use super::directory;
use super::status::DaemonStatus;
use super::watcher::{
    Watch, Watcher, guard_limits, log_file, look_interval, prepare, refuse_second,
};
use crate::DatapathError;

/// How long a daemon is waited for that was asked to end.
const END: Duration = Duration::from_secs(1);
/// The shortest and the longest wait before a daemon is started again.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// A daemon that ran for so long had started well.
const STARTED_WELL: Duration = Duration::from_secs(30);
/// How often a daemon may end before it has ever worked.
const FIRST_TRIES: u64 = 3;

/// What is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its name, for others to ask.
    pub name: String,
    /// The desired configuration.
    pub desired: DesiredClock,
    /// Whose slots are closed.
    pub closes: Closes,
    /// Where the record goes, if anywhere.
    pub record: Option<PathBuf>,
    /// Start although others steer the same clock.
    pub despite_others: bool,
    /// It has to be on time so soon; `None` waits for ever.
    pub within: Option<Span>,
}

/// What would be started for a desired configuration on this host.
///
/// **Errors**: linuxptp or an interface is missing, or cannot do it.
pub fn plan_for(name: &str, desired: &DesiredClock) -> Result<ClockPlan, DatapathError> {
    let mut timestamps = Vec::new();
    for interface in &desired.interfaces {
        let abilities = timestamp_abilities(interface);
        timestamps.push(abilities.map_err(|error| DatapathError::Link {
            link: interface.clone(),
            why: match error.raw_os_error() {
                Some(ENODEV) => "there is no such interface".to_owned(),
                _ => format!("it does not say what it can timestamp: {error}"),
            },
        })?);
    }
    plan(name, desired, timestamps, major_version()?)
}

fn plan(
    name: &str,
    desired: &DesiredClock,
    timestamps: Vec<TimestampAbilities>,
    major_version: u32,
) -> Result<ClockPlan, DatapathError> {
    let place = HostAbilities { timestamps, major_version, directory: directory(name)? };
    Ok(config::plan(desired, &place)?)
}

/// Starts the daemons and keeps them until it is asked to end.
///
/// **Errors**: they cannot be started, somebody else steers the same clock, or something could not
/// be restored. What is to be said meanwhile goes to `tell`.
pub fn start(spec: Start, tell: &mut dyn FnMut(&str)) -> Result<(), DatapathError> {
    // Before any thread or child: all of them leave the signals to us.
    let requests = EndRequests::new()
        .map_err(|error| DatapathError::Invalid(format!("cannot wait for signals: {error}")))?;
    let plan = plan_for(&spec.name, &spec.desired)?;
    // Its own daemons are no rivals of it, but the same clock.
    refuse_second(&spec.name)?;
    look_for_rivals(&spec, &plan, tell)?;
    let interfaces: Vec<_> = spec.desired.interfaces.iter().map(ToString::to_string).collect();
    let journal = Journal::begin(&format!("the clock on {}", interfaces.join(", ")))?;
    let result = run(&spec, &plan, &journal, &requests, tell);
    let restore = journal.finish();
    // What stands in the way of restoring weighs more than why it ended.
    restore?;
    result
}

fn run(
    spec: &Start,
    plan: &ClockPlan,
    journal: &Journal,
    requests: &EndRequests,
    tell: &mut dyn FnMut(&str),
) -> Result<(), DatapathError> {
    let directory = prepare(&spec.name, journal)?;
    remember_clocks(plan, journal)?;
    if let Some(seconds) = spec.desired.tai_offset {
        let seconds = i32::try_from(seconds.get()).expect("invariant: at most 127");
        set_tai(seconds, plan, journal)?;
    }
    for daemon in &plan.daemons {
        journal.record(Undo::RemoveFile { path: daemon.file.clone() })?;
        journal.record(Undo::RemoveFile { path: log_path(&directory, daemon) })?;
        journal.record(Undo::RemoveFile { path: pid_path(daemon) })?;
        fs::write(&daemon.file, &daemon.text)
            .map_err(DatapathError::file("write", &daemon.file))?;
    }
    for socket in [plan.socket.clone(), plan.socket.with_extension("ro")] {
        journal.record(Undo::RemoveFile { path: socket })?;
    }
    let mut watcher = Watcher::new(watch_of(spec, plan), journal)?;
    watcher.connect()?;
    let mut daemons: Vec<Daemon> =
        plan.daemons.iter().map(|plan| Daemon::new(plan, &directory)).collect();
    let give_up = spec.within.map(|within| (clock::now::<Mono>() + within, within));
    let result = keep(&mut daemons, &mut watcher, journal, (requests, give_up), tell);
    watcher.close(tell);
    for daemon in &mut daemons {
        daemon.end();
    }
    result
}

/// The loop: daemons run, the clock is watched.
fn keep(
    daemons: &mut [Daemon],
    watcher: &mut Watcher,
    journal: &Journal,
    (requests, mut give_up): (&EndRequests, Option<(timewire_base::Instant<Mono>, Span)>),
    tell: &mut dyn FnMut(&str),
) -> Result<(), DatapathError> {
    let interval = watcher.spec.interval;
    let mut worked = false;
    while !requests.take() {
        let mut ended = false;
        for daemon in daemons.iter_mut() {
            if let Some(how) = daemon.look()? {
                watcher.event("daemon_ended", &format!("{} {how}", daemon.plan.program), tell);
                if !worked && daemon.restarts >= FIRST_TRIES {
                    return Err(daemon.cannot_start(&how));
                }
            }
            if daemon.is_due() {
                daemon.start(journal)?;
                let pid = daemon.pid().unwrap_or(0);
                let what = format!("{} as process {pid}", daemon.plan.program);
                watcher.event("daemon_started", &what, tell);
            }
            ended |= daemon.child.is_none();
        }
        let statuses: Vec<DaemonStatus> = daemons.iter().map(Daemon::status).collect();
        watcher.step(&statuses, ended, tell)?;
        worked |= watcher.is_answered();
        match (watcher.not_on_time(), give_up) {
            (None, _) => give_up = None,
            (Some(why), Some((at, within))) if clock::now::<Mono>() >= at => {
                return Err(DatapathError::Invalid(format!(
                    "the clock is not on time within {within}: {why}"
                )));
            }
            _ => {}
        }
        // An error is a signal's doing, and the next look is not far.
        let _ = event::wait_readable(&[requests.as_fd()], Some(interval));
    }
    Ok(())
}

fn watch_of(spec: &Start, plan: &ClockPlan) -> Watch {
    let desired = &spec.desired;
    Watch {
        name: spec.name.clone(),
        socket: plan.socket.clone(),
        interfaces: desired.interfaces.clone(),
        hears: Some(Hears { domain: plan.domain, transport_specific: plan.transport_specific }),
        role: desired.role,
        limits: guard_limits(&desired.limits),
        interval: look_interval(desired.sync_interval(), desired.limits.silence),
        phc: plan.phcs.first().copied(),
        closes: spec.closes.clone(),
        record: spec.record.clone(),
    }
}

/// Refuses when somebody else would steer the same clock.
fn look_for_rivals(
    spec: &Start,
    plan: &ClockPlan,
    tell: &mut dyn FnMut(&str),
) -> Result<(), DatapathError> {
    let ours = Ours {
        interfaces: &spec.desired.interfaces,
        steers_system: plan.steers.contains(&Steers::System),
        gives_time: spec.desired.role == ClockRole::Transmitter,
    };
    for rival in rivals::find(&[]) {
        match rivals::judge(&rival, ours) {
            None => {}
            Some(Judgement::Beware(what)) => tell(&format!("beware: {what}")),
            Some(Judgement::Fights { why, .. }) if spec.despite_others => {
                tell(&format!("beware: {why}"));
            }
            Some(Judgement::Fights { why, hint }) => {
                return Err(DatapathError::Rival { why, hint });
            }
        }
    }
    Ok(())
}

/// Writes down how the clocks go, so that they can go so again.
fn remember_clocks(plan: &ClockPlan, journal: &Journal) -> Result<(), DatapathError> {
    for steers in &plan.steers {
        match steers {
            Steers::System => {
                let was = system()?;
                journal.record(RestoreSteering {
                    nic: None,
                    frequency: Some(was.frequency),
                    tai_offset_s: Some(was.tai_offset_s),
                    synchronised: Some(was.synchronised),
                })?;
            }
            Steers::Nic(number) => {
                let failed = |error| {
                    DatapathError::Invalid(format!(
                        "cannot read the clock /dev/ptp{number}: {error}"
                    ))
                };
                let nic = NicClock::open(*number).map_err(failed)?;
                let was = steering::steering(Steered::Nic(nic.device())).map_err(failed)?;
                journal.record(RestoreSteering {
                    nic: Some(*number),
                    frequency: Some(was.frequency),
                    tai_offset_s: None,
                    synchronised: None,
                })?;
            }
        }
    }
    Ok(())
}

/// How the system's clock is steered.
fn system() -> Result<Steering, DatapathError> {
    steering::steering(Steered::System)
        .map_err(|error| DatapathError::Invalid(format!("cannot read the system's clock: {error}")))
}

fn set_tai(seconds: i32, plan: &ClockPlan, journal: &Journal) -> Result<(), DatapathError> {
    if !plan.steers.contains(&Steers::System) {
        // Somebody else may steer it, whose doing stays.
        journal.record(RestoreSteering {
            nic: None,
            frequency: None,
            tai_offset_s: Some(system()?.tai_offset_s),
            synchronised: None,
        })?;
    }
    steering::set_tai_offset(seconds).map_err(|error| {
        DatapathError::Invalid(format!(
            "cannot set TAI - UTC of the kernel to {seconds} s: {error}"
        ))
    })
}

/// The first number of linuxptp's version.
fn major_version() -> Result<u32, DatapathError> {
    let program = find_program("ptp4l")?;
    let said = Command::new(&program).arg("-v").output();
    let said = said.map_err(|error| DatapathError::Invalid(format!("`ptp4l -v`: {error}")))?;
    let text = String::from_utf8_lossy(&said.stdout);
    let number = text.trim().trim_start_matches('v').split('.').next().and_then(|n| n.parse().ok());
    // Debian's say `3.1.1`; a build of one's own may say anything, and then is a new one.
    Ok(number.unwrap_or(4))
}

/// Where a program of linuxptp is.
fn find_program(name: &'static str) -> Result<PathBuf, DatapathError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(known).map(|place| place.join(name));
    places.find(|place| place.is_file()).ok_or(DatapathError::Host(
        timewire_host::HostError::ToolMissing { program: name, package: "linuxptp" },
    ))
}

fn log_path(directory: &Path, daemon: &DaemonPlan) -> PathBuf {
    directory.join(format!("{}.log", daemon.program))
}

/// Where the number of a daemon's process stands.
fn pid_path(daemon: &DaemonPlan) -> PathBuf {
    daemon.file.with_extension("pid")
}

/// One daemon, over all its lives.
struct Daemon {
    plan: DaemonPlan,
    log: PathBuf,
    child: Option<Child>,
    /// What would kill it.
    entry: Option<EntryId>,
    started: Option<Instant>,
    /// When it is to be started.
    due: Instant,
    back_off: Duration,
    restarts: u64,
    ended: Option<String>,
}

impl Daemon {
    fn new(plan: &DaemonPlan, directory: &Path) -> Daemon {
        Daemon {
            plan: plan.clone(),
            log: log_path(directory, plan),
            child: None,
            entry: None,
            started: None,
            due: Instant::now(),
            back_off: BACK_OFF.0,
            restarts: 0,
            ended: None,
        }
    }

    fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn is_due(&self) -> bool {
        self.child.is_none() && Instant::now() >= self.due
    }

    fn start(&mut self, journal: &Journal) -> Result<(), DatapathError> {
        let log = log_file(&self.log)?;
        let copy = log.try_clone().map_err(DatapathError::file("open", &self.log))?;
        let mut command = Command::new(find_program(self.plan.program)?);
        command.args(&self.plan.arguments).stdin(Stdio::null()).stdout(copy).stderr(log);
        let failed =
            |error| DatapathError::Invalid(format!("cannot start {}: {error}", self.plan.program));
        let child = namespace::spawn(command, None, OnParentDeath::Kill).map_err(failed)?;
        let process = Process::of(child.id()).map_err(failed)?;
        let (pid, start_ticks) = (process.pid, process.start_ticks);
        // Those of its former lives undo nothing any more.
        if let Some(entry) = self.entry.take() {
            journal.forget(entry)?;
        }
        self.entry = Some(journal.record(Undo::KillProcess { pid, start_ticks })?);
        self.child = Some(child);
        self.started = Some(Instant::now());
        let file = pid_path(&self.plan);
        fs::write(&file, format!("{pid}\n")).map_err(DatapathError::file("write", &file))
    }

    /// How it has ended, if it has since the last look.
    fn look(&mut self) -> Result<Option<String>, DatapathError> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let failed = |error| DatapathError::Invalid(format!("{}: {error}", self.plan.program));
        let Some(status) = child.try_wait().map_err(failed)? else { return Ok(None) };
        let how = format!("ended ({status})");
        self.child = None;
        self.restarts += 1;
        self.ended = Some(how.clone());
        let ran = self.started.map_or(Duration::ZERO, |started| started.elapsed());
        if ran >= STARTED_WELL {
            self.back_off = BACK_OFF.0;
        }
        self.due = Instant::now() + self.back_off;
        self.back_off = (self.back_off * 2).min(BACK_OFF.1);
        Ok(Some(how))
    }

    fn cannot_start(&self, how: &str) -> DatapathError {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        // The same each time.
        let last = text.trim_end().rsplit("--\n").next().unwrap_or_default().trim();
        DatapathError::Program {
            what: self.plan.program.to_owned(),
            how: format!("cannot be started: it {how}"),
            stderr: last.replace('\n', " / "),
        }
    }

    /// Asks it to end, and waits a little; the journal does the rest.
    fn end(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let asked = Process::of(child.id()).and_then(Process::ask_to_end);
        let give_up = Instant::now() + END;
        while asked.is_ok() && Instant::now() < give_up {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    fn status(&self) -> DaemonStatus {
        DaemonStatus {
            program: self.plan.program.to_owned(),
            pid: self.pid(),
            restarts: self.restarts,
            ended: self.ended.clone(),
            log: self.log.display().to_string(),
        }
    }
}

const ENODEV: i32 = 19;
