// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The controller of an experiment on many stations: performs what its machine decides, over links
//! that it makes again when they break, and a directory with journal and records.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::links::{Link, LinkError};
use crate::protocol::controller::{Action, End, Entry, Event, Failure};
use crate::protocol::journal::Side;
use crate::protocol::message::FromAgent;
use crate::protocol::{Backoff, Controller, Now, Phase, Plan, Record, RecordName};
use timewire_base::{Failure as _, Mono, StationName, Tai};
use timewire_sys::clock;
use timewire_sys::file::sync_directory_of;

use crate::station::ledger::Ledger;
use crate::station::post::{Post, Posted};
use crate::station::until;
use timewire_datapath::DatapathError;

/// How stations are reached.
pub trait Connect: Send + Sync {
    /// A new link to the agent of a station.
    ///
    /// **Errors**: it cannot be made now; it is tried again.
    fn connect(&self, station: &StationName) -> Result<Link, LinkError>;

    /// Whether its agent is a program that connecting starts, and that may need a while for it.
    fn starts_program(&self, _station: &StationName) -> bool {
        false
    }
}

/// What is told while an experiment goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrchestratorEvent {
    /// A phase begins.
    Phase(Phase),
    /// Something failed.
    Failed(Failure),
    /// A station cannot be reached now.
    Unreached {
        /// Which.
        station: StationName,
        /// Why.
        why: String,
    },
}

enum Input {
    Linked(StationName, Box<Link>),
    Posted(StationName, u64, Posted),
    Unreached(StationName, LinkError),
    Checked(Event),
}

/// How many things the controller may be told before it looks.
const INBOX: usize = 4_096;
/// How long it waits before it looks whether it is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// From when on which stations are to be connected to.
type Wanted = (Mutex<BTreeMap<StationName, Instant>>, Condvar);

/// The threads that make links, one for each station.
struct Makers {
    /// The stations that need one, and from when on.
    wanted: Arc<Wanted>,
    over: Arc<AtomicBool>,
}

impl Makers {
    fn start(
        stations: &[StationName],
        connect: &Arc<dyn Connect>,
        to_inbox: &SyncSender<Input>,
    ) -> Result<Makers, DatapathError> {
        let wanted = stations.iter().map(|name| (name.clone(), Instant::now())).collect();
        let wanted = Arc::new((Mutex::new(wanted), Condvar::new()));
        let over = Arc::new(AtomicBool::new(false));
        let makers = Makers { wanted, over };
        for station in stations {
            let (connect, to_inbox) = (Arc::clone(connect), to_inbox.clone());
            let (wanted, over) = (Arc::clone(&makers.wanted), Arc::clone(&makers.over));
            let station = station.clone();
            let thread = thread::Builder::new().name(format!("link-{station}"));
            let work = move || make_links(&station, connect.as_ref(), &to_inbox, &wanted, &over);
            thread.spawn(work).map_err(DatapathError::thread)?;
        }
        Ok(makers)
    }

    fn want(&self, station: &StationName, after: Duration) {
        let (stations, changed) = &*self.wanted;
        let mut stations = stations.lock().unwrap_or_else(PoisonError::into_inner);
        stations.insert(station.clone(), Instant::now() + after);
        changed.notify_all();
    }
}

impl Drop for Makers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.wanted.1.notify_all();
    }
}

fn make_links(
    station: &StationName,
    connect: &dyn Connect,
    to_inbox: &SyncSender<Input>,
    (stations, changed): &Wanted,
    over: &AtomicBool,
) {
    loop {
        let mut stations = stations.lock().unwrap_or_else(PoisonError::into_inner);
        while !over.load(Ordering::Acquire) {
            let left = stations.get(station).map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let woken = changed.wait_timeout(stations, left.unwrap_or(Duration::from_secs(1)));
            (stations, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
        if over.load(Ordering::Acquire) {
            return;
        }
        stations.remove(station);
        drop(stations);
        let input = match connect.connect(station) {
            Ok(link) => Input::Linked(station.clone(), Box::new(link)),
            Err(error) => Input::Unreached(station.clone(), error),
        };
        if to_inbox.send(input).is_err() {
            return;
        }
    }
}

/// A link to a station.
struct Linked {
    number: u64,
    post: Post,
    /// Whether anything came over it that was understood.
    has_spoken: bool,
}

/// Performs an experiment, or goes on with it where a killed controller left off.
pub struct Orchestrator {
    machine: Controller,
    ledger: Ledger,
    directory: PathBuf,
    posts: BTreeMap<StationName, Linked>,
    links: u64,
    /// How long until each is tried again.
    backoffs: BTreeMap<StationName, Backoff>,
    /// Why a station could not be reached, as it was told last.
    unreached: BTreeMap<StationName, String>,
    inbox: mpsc::Receiver<Input>,
    to_inbox: SyncSender<Input>,
    first: Vec<Action>,
    /// What happened while actions were performed.
    next: VecDeque<Event>,
    /// How many failures were told of.
    told: usize,
    end: Option<End>,
}

impl Orchestrator {
    /// Opens or makes the directory of an experiment. When there is a journal in it, its plan is
    /// the one that counts.
    ///
    /// **Errors**: the plan cannot be carried out; the directory cannot be used; its journal is
    /// damaged, in use, or of another experiment.
    pub fn open(directory: &Path, plan: Plan) -> Result<Orchestrator, DatapathError> {
        fs::create_dir_all(directory).map_err(DatapathError::file("create", directory))?;
        let path = directory.join("journal");
        let (ledger, entries) = Ledger::open::<Entry>(&path, Side::Controller, |all| all)?;
        let now = now();
        let (machine, first) = match Controller::resume(&entries, now) {
            Some((machine, _)) if machine.plan().experiment != plan.experiment => {
                return Err(DatapathError::Invalid(format!(
                    "{}: it is of the experiment {}, not {}",
                    path.display(),
                    machine.plan().experiment,
                    plan.experiment
                )));
            }
            Some(resumed) => resumed,
            None => Controller::begin(plan, now)
                .map_err(|error| DatapathError::Invalid(error.to_string()))?,
        };
        let (to_inbox, inbox) = mpsc::sync_channel(INBOX);
        Ok(Orchestrator {
            machine,
            ledger,
            directory: directory.to_owned(),
            posts: BTreeMap::new(),
            links: 0,
            backoffs: BTreeMap::new(),
            unreached: BTreeMap::new(),
            inbox,
            to_inbox,
            first,
            next: VecDeque::new(),
            told: 0,
            end: None,
        })
    }

    /// Orchestrates it to its end. `is_asked_to_end` is looked at ten times a second: when it says
    /// so, report and teardown follow at once.
    ///
    /// **Errors**: the journal cannot be written. Stations end by their leases then.
    pub fn run(
        mut self,
        connect: &Arc<dyn Connect>,
        is_asked_to_end: &mut dyn FnMut() -> bool,
        tell: &mut dyn FnMut(OrchestratorEvent),
    ) -> Result<End, DatapathError> {
        let first = std::mem::take(&mut self.first);
        self.perform(first, tell)?;
        let stations: Vec<StationName> =
            self.machine.plan().stations.iter().map(|station| station.name.clone()).collect();
        for station in stations.iter().filter(|station| connect.starts_program(station)) {
            self.tell(Event::Starting { station: station.clone() }, tell)?;
        }
        let makers = Makers::start(&stations, connect, &self.to_inbox)?;
        loop {
            if let Some(end) = self.end.take() {
                return Ok(end);
            }
            let event = match self.inbox.recv_timeout(until(self.machine.wake_at(), POLL_INTERVAL))
            {
                Ok(Input::Linked(station, link)) => {
                    if self.take(&station, *link).is_err() {
                        self.again(&station, &makers);
                    }
                    Some(Event::Linked { station })
                }
                Ok(Input::Unreached(station, error)) => {
                    let is_final = error.is_final();
                    Some(self.unreached(station, with_hint(&error), is_final, &makers, tell))
                }
                Ok(Input::Checked(event)) => Some(event),
                Ok(Input::Posted(station, link, posted)) => {
                    self.posted(&station, link, posted, &makers, tell)
                }
                Err(RecvTimeoutError::Timeout) => Some(Event::Tick),
                Err(RecvTimeoutError::Disconnected) => None,
            };
            if is_asked_to_end() {
                self.tell(Event::End, tell)?;
            }
            if let Some(event) = event {
                self.tell(event, tell)?;
            }
        }
    }

    fn take(&mut self, station: &StationName, link: Link) -> std::io::Result<()> {
        self.links += 1;
        let (number, to_inbox, name) = (self.links, self.to_inbox.clone(), station.clone());
        let told = move |posted| to_inbox.send(Input::Posted(name.clone(), number, posted)).is_ok();
        let post = Post::over(link, told)?;
        self.posts.insert(station.clone(), Linked { number, post, has_spoken: false });
        Ok(())
    }

    /// A link is made again after a while.
    fn again(&mut self, station: &StationName, makers: &Makers) {
        let after = self.backoffs.entry(station.clone()).or_default().failed();
        makers.want(station, Duration::from_nanos(after.as_ns().max(0).unsigned_abs()));
    }

    /// There is no link, or none of use. It is tried again, and told when there is something new
    /// to say.
    fn unreached(
        &mut self,
        station: StationName,
        why: String,
        is_final: bool,
        makers: &Makers,
        tell: &mut dyn FnMut(OrchestratorEvent),
    ) -> Event {
        if self.unreached.get(&station) != Some(&why) {
            self.unreached.insert(station.clone(), why.clone());
            tell(OrchestratorEvent::Unreached { station: station.clone(), why: why.clone() });
        }
        self.again(&station, makers);
        Event::Unreached { station, why, is_final }
    }

    fn posted(
        &mut self,
        station: &StationName,
        link: u64,
        posted: Posted,
        makers: &Makers,
        tell: &mut dyn FnMut(OrchestratorEvent),
    ) -> Option<Event> {
        let current = self.posts.get_mut(station).filter(|linked| linked.number == link);
        match posted {
            Posted::Message(bytes) => match FromAgent::decode(&bytes) {
                Ok(message) => {
                    if let Some(linked) = current {
                        linked.has_spoken = true;
                        self.backoffs.entry(station.clone()).or_default().worked();
                        self.unreached.remove(station);
                    }
                    Some(Event::Heard { station: station.clone(), message })
                }
                Err(error) => {
                    current?.post.close(&error.to_string());
                    self.posts.remove(station);
                    Some(self.unreached(station.clone(), error.to_string(), true, makers, tell))
                }
            },
            Posted::Gone(error) => {
                // Whom the agent does not understand, it leaves with a goodbye.
                let is_refusal = !current?.has_spoken && matches!(error, LinkError::Closed { .. });
                self.posts.remove(station);
                let is_final = is_refusal || error.is_final();
                Some(self.unreached(station.clone(), with_hint(&error), is_final, makers, tell))
            }
        }
    }

    fn tell(
        &mut self,
        event: Event,
        tell: &mut dyn FnMut(OrchestratorEvent),
    ) -> Result<(), DatapathError> {
        let actions = self.machine.on(now(), event);
        self.perform(actions, tell)?;
        // What follows from an action comes after all that was decided with it.
        while let Some(next) = self.next.pop_front() {
            let actions = self.machine.on(now(), next);
            self.perform(actions, tell)?;
        }
        Ok(())
    }

    fn perform(
        &mut self,
        actions: Vec<Action>,
        tell: &mut dyn FnMut(OrchestratorEvent),
    ) -> Result<(), DatapathError> {
        for action in actions {
            match action {
                Action::Append(entry) => {
                    self.ledger.append(&entry)?;
                    if let Entry::Group { phase, .. } = &entry {
                        tell(OrchestratorEvent::Phase(*phase));
                    }
                }
                Action::Send { station, message } => {
                    if let Some(Linked { post, .. }) = self.posts.get(&station) {
                        post.send(message.encode());
                    }
                }
                Action::Store { station, record, offset, bytes } => {
                    if let Err(error) = self.store(&station, &record, offset, &bytes) {
                        let outcome = Err(error.to_string());
                        self.next.push_back(Event::Stored { station, record, outcome });
                    }
                }
                Action::Check { station, record } => self.check(station, record)?,
                Action::End(end) => self.end = Some(end),
            }
        }
        for failure in self.machine.failures().iter().skip(self.told) {
            tell(OrchestratorEvent::Failed(failure.clone()));
        }
        self.told = self.machine.failures().len();
        Ok(())
    }

    fn path(&self, station: &StationName, record: &RecordName) -> PathBuf {
        record_path(&self.directory, station, record)
    }

    fn store(
        &self,
        station: &StationName,
        record: &RecordName,
        offset: u64,
        bytes: &[u8],
    ) -> std::io::Result<()> {
        let path = part_of(&self.path(station, record));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.create(true).write(true).truncate(offset == 0).open(&path)?;
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)
    }

    /// Checks a record in a thread of its own: a large one takes longer than a lease.
    fn check(&self, station: StationName, record: Record) -> Result<(), DatapathError> {
        let (path, to_inbox) = (self.path(&station, &record.name), self.to_inbox.clone());
        let work = move || {
            let outcome = keep_if_whole(&path, &record.digest);
            let event = Event::Stored { station, record: record.name, outcome };
            // A controller that has ended does not ask.
            let _ = to_inbox.send(Input::Checked(event));
        };
        let thread = thread::Builder::new().name("check".to_owned());
        thread.spawn(work).map(drop).map_err(DatapathError::thread)
    }
}

/// An error, with what can be done about it.
fn with_hint(error: &LinkError) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

/// Whether a record is whole; then it is on disk under its name.
fn keep_if_whole(path: &Path, digest: &str) -> Result<(), String> {
    let part = part_of(path);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = File::open(&part).map_err(failed)?;
    if crate::links::digest(&mut file).map_err(failed)? != digest {
        return Err("it changed while it was fetched".to_owned());
    }
    let keep = || {
        file.sync_all()?;
        fs::rename(&part, path)?;
        sync_directory_of(path)
    };
    keep().map_err(failed)
}

/// Where a record of a station is in the directory of an experiment.
pub fn record_path(directory: &Path, station: &StationName, record: &RecordName) -> PathBuf {
    directory.join("records").join(station.as_str()).join(record.as_str())
}

/// Where it is until it is whole. No record's name has this: none has a `~`.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("~");
    PathBuf::from(name)
}

fn now() -> Now {
    Now { mono: clock::now::<Mono>(), tai: clock::now::<Tai>() }
}
