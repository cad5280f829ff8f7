// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at the clock again and again, lets the guard decide, has slots closed and opened, and
//! keeps a record.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use timewire_base::{IfName, Instant, Mono, Span};
use timewire_capture::sync::SyncEvent;
use timewire_host::Undo;
use timewire_host::clock::client::{Client, Hears};
use timewire_host::clock::dataset::TimeProperties;
use timewire_host::clock::leap::{self, LeapSeconds};
use timewire_host::journal::Journal;
use timewire_model::scenario::host::{ClockRole, SyncLimits};
use timewire_sys::event::{self, EndRequests};
use timewire_sys::namespace::Process;
use timewire_sys::phc::{NicClock, timestamp_abilities};
use timewire_sys::{clock, file, phc, steering};
use timewire_tsn::{Change, GuardLimits, Heard, Loss, SyncGuard};

use super::closer::{Closer, Closes};
use super::directory;
use super::look::{Look, Looked, Memory, heard};
use super::status::{self, CLOCK_STATUS_SCHEMA, ClockStatus, DaemonStatus, GuardStatus};
use super::unheard::Unheard;
use crate::DatapathError;
use crate::sync::{SyncFile, sample};

/// How often others hear that nothing has changed.
const STATUS: Span = Span::from_ms(500);

/// What is watched.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Its name, for others to ask.
    pub name: String,
    /// Where `ptp4l` takes questions.
    pub socket: PathBuf,
    /// Which domain and transport it hears; `None` finds out.
    pub hears: Option<Hears>,
    /// The interfaces on which it speaks, as far as they are known.
    pub interfaces: Vec<IfName>,
    /// Which part the host has.
    pub role: ClockRole,
    /// When the clock is on time.
    pub limits: GuardLimits,
    /// How often it is looked at.
    pub interval: Span,
    /// The NIC whose clock `ptp4l` steers; `None` when that is the system's.
    pub phc: Option<u32>,
    /// Whose slots are closed.
    pub closes: Closes,
    /// Where the record goes, if anywhere.
    pub record: Option<PathBuf>,
}

impl Watch {
    /// The number of the NIC's clock of an interface, for [`Watch::phc`].
    ///
    /// **Errors**: there is no such interface, or it has no clock.
    pub fn phc_of(interface: &IfName) -> Result<u32, DatapathError> {
        let failed = |why: String| DatapathError::Link { link: interface.clone(), why };
        let abilities =
            timestamp_abilities(interface).map_err(|error| failed(error.to_string()))?;
        abilities.phc.ok_or_else(|| failed("it has no clock (`ethtool -T` says so)".to_owned()))
    }

    /// How often a clock should be looked at of which nothing is known but the longest silence.
    pub fn usual_interval(silence: Span) -> Span {
        look_interval(Span::from_ms(125), silence)
    }
}

/// How often a clock is looked at that gets the time so often.
pub(super) fn look_interval(sync_interval: Span, silence: Span) -> Span {
    let wanted = (sync_interval.as_ns() / 2).min(silence.as_ns() / 4);
    Span::from_ns(wanted.clamp(20_000_000, 500_000_000))
}

/// Watches until it is asked to end.
///
/// **Errors**: what is to be watched or closed is not there.
pub fn watch(spec: Watch, tell: &mut dyn FnMut(&str)) -> Result<(), DatapathError> {
    let requests = EndRequests::new()
        .map_err(|error| DatapathError::Invalid(format!("cannot wait for signals: {error}")))?;
    let journal = Journal::begin(&format!("watching the clock {}", spec.name))?;
    prepare(&spec.name, &journal)?;
    let mut watcher = Watcher::new(spec, &journal)?;
    watcher.connect()?;
    while !requests.take() {
        watcher.step(&[], false, tell)?;
        let _ = event::wait_readable(&[requests.as_fd()], Some(watcher.spec.interval));
    }
    watcher.close(tell);
    drop(watcher);
    Ok(journal.finish()?)
}

/// **Errors**: a clock is watched under that name.
pub(super) fn refuse_second(name: &str) -> Result<(), DatapathError> {
    match super::find(Some(name)) {
        Ok(status) => Err(DatapathError::Invalid(format!(
            "process {} watches the clock `{name}` already: `timewire clock stop --name {name}` \
             ends it, `--name` chooses another",
            status.pid
        ))),
        Err(_) => Ok(()),
    }
}

/// Makes the directory of a clock, unless somebody has it; it goes when the journal is finished.
///
/// **Errors**: a clock is watched under that name.
pub(super) fn prepare(name: &str, journal: &Journal) -> Result<PathBuf, DatapathError> {
    let directory = directory(name)?;
    refuse_second(name)?;
    // What is left of a process that was killed together with its watchdog.
    for file in fs::read_dir(&directory).into_iter().flatten().flatten() {
        let _ = fs::remove_file(file.path());
    }
    let parent = directory.parent().expect("invariant: it is in the runtime directory");
    fs::create_dir_all(parent).map_err(DatapathError::file("create", parent))?;
    journal.record(Undo::RemoveDir { path: directory.clone() })?;
    match fs::create_dir(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(DatapathError::file("create", &directory)(error))
        }
        _ => Ok(directory),
    }
}

/// The watch while it goes on.
pub(super) struct Watcher {
    pub(super) spec: Watch,
    directory: PathBuf,
    guard: SyncGuard,
    memory: Memory,
    client: Option<Client>,
    nic: Option<NicClock>,
    closers: Vec<Closer>,
    record: Option<SyncFile>,
    leap: Option<LeapSeconds>,
    status_path: PathBuf,
    next_status: Instant<Mono>,
    /// What is not to be said again.
    silent: bool,
    unheard: Unheard,
}

impl Watcher {
    /// Everything but the talk with `ptp4l`; slots are closed from here on.
    pub(super) fn new(spec: Watch, journal: &Journal) -> Result<Watcher, DatapathError> {
        let directory = directory(&spec.name)?;
        let status = directory.join("status.json");
        for path in [file::unfinished(&status), status, directory.join("question")] {
            journal.record(Undo::RemoveFile { path })?;
        }
        let guard = SyncGuard::new(clock::now(), spec.limits)
            .map_err(|error| DatapathError::Invalid(error.to_string()))?;
        let nic = match spec.phc {
            None => None,
            Some(number) => Some(NicClock::open(number).map_err(|error| {
                DatapathError::Invalid(format!("cannot open /dev/ptp{number}: {error}"))
            })?),
        };
        let record = spec.record.as_deref().map(|path| SyncFile::create(path, &[])).transpose()?;
        let closers = Closer::all(&spec.closes)?;
        Ok(Watcher {
            status_path: directory.join("status.json"),
            directory,
            guard,
            memory: Memory::default(),
            client: None,
            nic,
            closers,
            record,
            leap: LeapSeconds::of_this_host(),
            next_status: Instant::from_ns(0),
            silent: false,
            unheard: Unheard::new(clock::now()),
            spec,
        })
    }

    /// Finds the `ptp4l`.
    ///
    /// **Errors**: nobody answers.
    pub(super) fn connect(&mut self) -> Result<(), DatapathError> {
        let own = self.directory.join("question");
        let client = match self.spec.hears {
            Some(hears) => Client::new(&self.spec.socket, &own, hears),
            None => Client::find(&self.spec.socket, &own),
        };
        self.client = Some(client.map_err(|error| DatapathError::Invalid(error.to_string()))?);
        Ok(())
    }

    /// Whether `ptp4l` has answered the last question.
    pub(super) fn is_answered(&self) -> bool {
        self.client.is_some() && !self.silent
    }

    /// One look and everything that follows from it.
    pub(super) fn step(
        &mut self,
        daemons: &[DaemonStatus],
        daemon_ended: bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), DatapathError> {
        let look = self.look()?;
        let said = match daemon_ended {
            true => Heard::Lost(Loss::DaemonEnded),
            false => heard(&look, self.spec.role, &mut self.memory),
        };
        let actions = self.guard.on(clock::now(), said);
        let why = self.guard.loss().map(|loss| loss.to_string());
        let offset = look.offset();
        for closer in &mut self.closers {
            closer.tell(actions.open_until, offset, why.as_deref());
        }
        if let Some(change) = actions.change {
            self.changed(change, tell);
        }
        self.keep(&look);
        let now = clock::now::<Mono>();
        let (hears, interfaces) = (self.hears(), self.spec.interfaces.clone());
        if let Some(client) = &mut self.client
            && let Some(why) = self.unheard.look(now, &look, client, (hears, &interfaces))
        {
            self.event("waiting", &why, tell);
        }
        if actions.change.is_some() || now >= self.next_status {
            self.next_status = now + STATUS;
            status::write(&self.status_path, &self.status(&look, daemons))?;
        }
        Ok(())
    }

    /// The end: what was open stays so no longer than anybody says.
    pub(super) fn close(&mut self, tell: &mut dyn FnMut(&str)) {
        for closer in &mut self.closers {
            closer.tell(None, None, Some("nobody watches it any more"));
        }
        self.event("ended", "the watch was ended", tell);
    }

    /// Writes an event down and says it.
    pub(super) fn event(&mut self, what: &str, why: &str, tell: &mut dyn FnMut(&str)) {
        if let Some(record) = &mut self.record {
            let raw_ns = phc::kernel_clocks().map_or(0, |clocks| clocks.raw_ns);
            record.event(SyncEvent { raw_ns, what: what.to_owned(), why: why.to_owned() });
        }
        tell(&format!("{what}: {why}"));
    }

    fn changed(&mut self, change: Change, tell: &mut dyn FnMut(&str)) {
        match change {
            Change::Locked { after } => {
                let after = Span::from_ns(after.as_ns() / 1_000_000 * 1_000_000);
                self.event("locked", &format!("the clock is on time, after {after}"), tell);
            }
            Change::Lost(loss) => self.event("lost", &loss.to_string(), tell),
        }
    }

    fn look(&mut self) -> Result<Look, DatapathError> {
        let failed = |error| DatapathError::Invalid(format!("the kernel hides its clock: {error}"));
        let look = match &mut self.client {
            Some(client) => Looked { client, nic: self.nic.as_ref() }.look().map_err(failed)?,
            None => Look {
                ptp: Err("nobody was asked yet".to_owned()),
                nic: None,
                kernel: steering::steering(steering::Steered::System).map_err(failed)?,
            },
        };
        self.silent = look.ptp.is_err();
        Ok(look)
    }

    /// A sample for the record; that it cannot be written is no reason to let go of the slots.
    fn keep(&mut self, look: &Look) {
        if let Some(record) = &mut self.record
            && let Ok(sample) = sample(self.nic.as_ref(), self.spec.phc, Some(look))
        {
            record.sample(sample);
        }
    }

    fn status(&self, look: &Look, daemons: &[DaemonStatus]) -> ClockStatus {
        let me = Process::this().ok();
        let ptp = look.ptp.as_ref().ok();
        let offset = look.offset();
        ClockStatus {
            schema: CLOCK_STATUS_SCHEMA.to_owned(),
            name: self.spec.name.clone(),
            pid: std::process::id(),
            start_ticks: me.map_or(0, |process| process.start_ticks),
            written_ns: clock::now::<Mono>().as_ns(),
            socket: self.spec.socket.display().to_string(),
            domain: self.hears().map_or(0, |hears| hears.domain),
            daemons: daemons.to_vec(),
            guard: self.guard_status(),
            offset_ns: offset.map(|offset| offset.ahead.as_ns()),
            offset_error_ns: offset.map(|offset| offset.error.as_ns()),
            ports: ptp.iter().flat_map(|p| &p.ports).map(ToString::to_string).collect(),
            identity: ptp.map(|p| p.clock.to_string()),
            giver: ptp.map(|p| p.giver.to_string()),
            silent: look.ptp.as_ref().err().cloned(),
            tai_offset_s: look.kernel.tai_offset_s,
            giver_tai_offset_s: ptp.and_then(|p| p.time.valid_utc_offset_s()),
            kernel_synchronised: look.kernel.synchronised,
            kernel_max_error_ns: look.kernel.max_error.as_ns(),
            frequency_ppb: ppb(look.kernel.frequency),
            closes: self.closers.iter().map(Closer::status).collect(),
            notes: self.notes(look),
        }
    }

    fn guard_status(&self) -> GuardStatus {
        let limits = self.guard.limits();
        let (good, needed) = self.guard.good_samples().unwrap_or((0, limits.good_samples));
        GuardStatus {
            on_time: self.guard.loss().is_none(),
            why: self.guard.loss().map(|loss| loss.to_string()),
            for_ns: (clock::now::<Mono>() - self.guard.since()).as_ns(),
            losses: self.guard.losses(),
            good_samples: good,
            good_samples_needed: needed,
            offset_limit_ns: limits.offset.as_ns(),
            silence_limit_ns: limits.silence.as_ns(),
        }
    }

    /// What is asked hears.
    fn hears(&self) -> Option<Hears> {
        self.client.as_ref().map(Client::hears).or(self.spec.hears)
    }

    /// Whether the clock is on time; else why not, with the reason of a wait.
    pub(super) fn not_on_time(&self) -> Option<String> {
        let loss = self.guard.loss()?.to_string();
        Some(match &self.unheard.why {
            Some(why) => format!("{loss}; {why}"),
            None => loss,
        })
    }

    fn notes(&self, look: &Look) -> Vec<String> {
        let utc_s = clock::now::<timewire_base::Utc>().as_ns() / 1_000_000_000;
        let mut notes: Vec<String> = self.unheard.why.iter().cloned().collect();
        if let (Some(Err(why)), Some(number)) = (&look.nic, self.spec.phc) {
            notes.push(format!("/dev/ptp{number} cannot be read: {why}"));
        }
        notes.extend(leap::judge(look.kernel.tai_offset_s, self.leap.as_ref(), utc_s));
        let flags = look.ptp.as_ref().map_or(0, |followed| followed.time.flags);
        if flags & (TimeProperties::LEAP_61 | TimeProperties::LEAP_59) != 0 {
            notes
                .push("the giver announces a leap second for the end of this day (UTC)".to_owned());
        }
        notes
    }
}

/// The limits as the guard takes them.
pub(super) fn guard_limits(limits: &SyncLimits) -> GuardLimits {
    let good_samples = u32::try_from(limits.good_samples.get()).unwrap_or(u32::MAX);
    GuardLimits { offset: limits.offset, good_samples, silence: limits.silence }
}

/// The kernel's parts per million times 65536 as parts per billion, rounded towards zero.
pub(crate) fn ppb(frequency: i64) -> i64 {
    frequency.saturating_mul(1_000) / 65_536
}

/// The file that a daemon's words go to.
pub(super) fn log_file(path: &Path) -> Result<File, DatapathError> {
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    let mut file = file.map_err(DatapathError::file("create", path))?;
    // A line between one life and the next.
    let _ = writeln!(file, "--");
    Ok(file)
}
