// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent of a station: performs what its machine decides, over links, programs, files and the
//! host. One thread decides; what may take long has threads of its own.
//!
//! Not here: the decisions (`protocol`), links (`links`).

mod before;
pub(crate) mod ledger;
mod part;
pub(crate) mod post;
pub(crate) mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use crate::links::{Link, LinkError, Log};
use crate::protocol::agent::{Action, Entry, Event, compact};
use crate::protocol::journal::Side;
use crate::protocol::message::{FromAgent, Lack, Standing, ToAgent};
use crate::protocol::{Agent, CommandOutcome, ExperimentId, FailureKind, Now};
use timewire_base::{FileError, Instant, Mono, Tai};
use timewire_sys::clock;
use timewire_sys::namespace::{Capabilities, Capability};

use ledger::Ledger;
use part::Part;
use post::{Post, Posted};
use timewire_datapath::DatapathError;

/// Where and as what an agent works.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Its journal, and the records that wait for their controllers.
    pub directory: PathBuf,
    /// This program, for commands that begin with `timewire`.
    pub program: PathBuf,
    /// Whether this station ends with its experiment, so that it is not compared with before.
    pub is_disposable: bool,
}

/// An agent.
pub struct AgentService {
    options: AgentOptions,
    log: Log,
    machine: Agent,
    ledger: Ledger,
    parts: BTreeMap<ExperimentId, Arc<Part>>,
    /// Tasks that go on.
    tasks: BTreeSet<(ExperimentId, u32)>,
    posts: BTreeMap<u64, Post>,
    /// The link over which the controller of an experiment spoke last.
    talks: BTreeMap<ExperimentId, u64>,
    inbox: mpsc::Receiver<Input>,
    to_inbox: SyncSender<Input>,
}

/// What an agent hears of the world.
enum Input {
    Link(Box<Link>),
    Posted(u64, Posted),
    Did(Event),
    End,
}

/// Gives an agent links, and ends it.
#[derive(Clone)]
pub struct AgentHandle(SyncSender<Input>);

impl AgentHandle {
    /// A link of a controller, proven to be one.
    pub fn take(&self, link: Link) {
        // An agent that has ended takes no links.
        let _ = self.0.send(Input::Link(Box::new(link)));
    }

    /// Ends the agent: it restores what it holds, and returns from [`AgentService::run`].
    pub fn end(&self) {
        let _ = self.0.send(Input::End);
    }
}

/// How many things an agent may be told before it looks.
const INBOX: usize = 1_024;
/// How long an agent waits at most before it looks again.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl AgentService {
    /// Opens the agent's directory, and restores what a killed agent left.
    ///
    /// What it has to say of its controllers goes to the log.
    ///
    /// **Errors**: the directory cannot be used, another agent uses it, or its journal is damaged.
    pub fn open(options: AgentOptions, log: Log) -> Result<AgentService, DatapathError> {
        let directory = &options.directory;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(DatapathError::file("create", directory))?;
        let path = directory.join("journal");
        let (ledger, entries) = Ledger::open::<Entry>(&path, Side::Agent, compact)?;
        let (machine, actions) = Agent::resume(&entries);
        let (to_inbox, inbox) = mpsc::sync_channel(INBOX);
        let mut service = AgentService {
            options,
            log,
            machine: machine.lacking(lacks()),
            ledger,
            parts: BTreeMap::new(),
            tasks: BTreeSet::new(),
            posts: BTreeMap::new(),
            talks: BTreeMap::new(),
            inbox,
            to_inbox,
        };
        service.remove_strays()?;
        service.perform(actions)?;
        Ok(service)
    }

    /// What gives it links.
    pub fn handle(&self) -> AgentHandle {
        AgentHandle(self.to_inbox.clone())
    }

    /// Serves until it is told to end; then, and when `with_links` and none is left, it restores
    /// what it holds. What could not be restored then.
    ///
    /// **Errors**: the journal cannot be written. The host is restored as far as it can be.
    pub fn run(mut self, with_links: bool) -> Result<Vec<String>, DatapathError> {
        let mut had_links = false;
        loop {
            let input = match self.inbox.recv_timeout(until(self.machine.wake_at(), POLL_INTERVAL))
            {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Input::End),
            };
            match input {
                Some(Input::End) => break,
                Some(Input::Link(link)) => {
                    had_links = true;
                    self.take(*link)?;
                }
                Some(Input::Posted(link, Posted::Message(bytes))) => self.message(link, &bytes)?,
                Some(Input::Posted(link, Posted::Gone(error))) => {
                    let post = self.posts.remove(&link);
                    // A goodbye is how links end.
                    if let Some(post) = post.filter(|_| !matches!(error, LinkError::Closed { .. }))
                    {
                        (self.log)(&format!("link of {}: {error}", post.peer()));
                    }
                }
                Some(Input::Did(event)) => self.did(event)?,
                None => self.tell(Event::Tick)?,
            }
            if with_links && had_links && self.posts.is_empty() {
                break;
            }
        }
        self.close()
    }

    /// Restores what is held: the journal says to the next agent that this one ended.
    fn close(mut self) -> Result<Vec<String>, DatapathError> {
        let (machine, actions) = Agent::resume(&self.entries()?);
        self.machine = machine;
        let is_restoring = |s: &Standing| matches!(s, Standing::Restoring { .. });
        let held = self.machine.experiments().filter(|(_, _, standing)| is_restoring(standing));
        let held: BTreeSet<ExperimentId> = held.map(|(id, _, _)| id.clone()).collect();
        self.perform(actions)?;
        while self.machine.experiments().any(|(_, _, standing)| is_restoring(standing)) {
            match self.inbox.recv_timeout(POLL_INTERVAL) {
                Ok(Input::Did(event)) => self.did(event)?,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let mut all = Vec::new();
        for (experiment, _, standing) in self.machine.experiments() {
            if let Standing::Restored { restored, .. } = standing
                && held.contains(experiment)
            {
                all.extend(restored.left.iter().cloned());
            }
        }
        Ok(all)
    }

    fn entries(&self) -> Result<Vec<Entry>, DatapathError> {
        let path = self.options.directory.join("journal");
        let bytes = fs::read(&path).map_err(DatapathError::file("read", &path))?;
        let reading = crate::protocol::journal::read(Side::Agent, &bytes);
        let reading = reading.map_err(|error| FileError::content(path, error))?;
        Ok(reading.entries)
    }

    fn take(&mut self, link: Link) -> Result<(), DatapathError> {
        let to_inbox = self.to_inbox.clone();
        let number = self.posts.last_key_value().map_or(0, |(last, _)| *last) + 1;
        let told = move |posted| to_inbox.send(Input::Posted(number, posted)).is_ok();
        let post = Post::over(link, told).map_err(DatapathError::thread)?;
        self.posts.insert(number, post);
        Ok(())
    }

    fn message(&mut self, link: u64, bytes: &[u8]) -> Result<(), DatapathError> {
        match ToAgent::decode(bytes) {
            Ok(message) => {
                self.talks.insert(message.experiment.clone(), link);
                self.tell(Event::Heard(message))
            }
            Err(error) => {
                if let Some(post) = self.posts.remove(&link) {
                    (self.log)(&format!("link of {} is closed: {error}", post.peer()));
                    post.close(&error.to_string());
                }
                Ok(())
            }
        }
    }

    /// Something that was asked for has happened.
    fn did(&mut self, event: Event) -> Result<(), DatapathError> {
        if let Event::Ended { experiment, number, .. } = &event {
            self.tasks.remove(&(experiment.clone(), *number));
        }
        self.tell(event)
    }

    fn tell(&mut self, event: Event) -> Result<(), DatapathError> {
        let now = Now { mono: clock::now::<Mono>(), tai: clock::now::<Tai>() };
        let actions = self.machine.on(now, event);
        self.perform(actions)
    }

    /// Performs actions, and then what follows from them.
    fn perform(&mut self, actions: Vec<Action>) -> Result<(), DatapathError> {
        let mut read = Vec::new();
        for action in actions {
            match action {
                Action::Append(entry) => self.ledger.append(&entry)?,
                Action::Answer(message) => self.answer(&message),
                Action::Survey { experiment } => {
                    self.spawn(experiment, move |part, experiment| {
                        let outcome = part.survey();
                        Event::Surveyed { experiment, outcome }
                    })?;
                }
                Action::Start { experiment, number, task, at } => {
                    self.tasks.insert((experiment.clone(), number));
                    self.part(&experiment).begin(number);
                    self.spawn(experiment, move |part, experiment| {
                        let (outcome, began) = part.perform(number, &task, at);
                        Event::Ended { experiment, number, outcome, began }
                    })?;
                }
                Action::Stop { experiment, number } => self.part(&experiment).abort(number),
                Action::Halt { experiment, number } => {
                    let tasks = self.tasks_of(&experiment);
                    self.spawn(experiment, move |part, experiment| {
                        part.halt(&tasks);
                        let outcome = CommandOutcome::Done { exit: None };
                        Event::Ended { experiment, number, outcome, began: None }
                    })?;
                }
                Action::Keep { experiment, number } => {
                    self.spawn(experiment, move |part, experiment| {
                        let outcome = match part.records() {
                            Ok(records) => CommandOutcome::Kept { records },
                            Err(why) => CommandOutcome::failed(FailureKind::NotStarted, why),
                        };
                        Event::Ended { experiment, number, outcome, began: None }
                    })?;
                }
                Action::Restore { experiment } => {
                    let tasks = self.tasks_of(&experiment);
                    self.spawn(experiment, move |part, experiment| Event::Restored {
                        experiment,
                        restored: part.restore(&tasks),
                    })?;
                }
                Action::Read { experiment, record, offset } => {
                    let bytes = self.part(&experiment).read(&record, offset);
                    read.push(Event::Read { experiment, record, offset, bytes });
                }
                Action::Drop { experiment, record } => self.part(&experiment).drop_record(&record),
                Action::Forget { experiment } => {
                    self.part(&experiment).forget();
                    self.parts.remove(&experiment);
                    self.talks.remove(&experiment);
                }
            }
        }
        read.into_iter().try_for_each(|event| self.tell(event))
    }

    fn answer(&self, message: &FromAgent) {
        let link = self.talks.get(&message.experiment);
        if let Some(post) = link.and_then(|link| self.posts.get(link)) {
            post.send(message.encode());
        }
    }

    fn spawn(
        &mut self,
        experiment: ExperimentId,
        work: impl FnOnce(&Part, ExperimentId) -> Event + Send + 'static,
    ) -> Result<(), DatapathError> {
        let (part, to_inbox) = (self.part(&experiment), self.to_inbox.clone());
        let thread = thread::Builder::new().name("task".to_owned());
        let spawned = thread.spawn(move || {
            // An agent that has ended does not ask.
            let _ = to_inbox.send(Input::Did(work(&part, experiment)));
        });
        spawned.map(drop).map_err(DatapathError::thread)
    }

    fn part(&mut self, experiment: &ExperimentId) -> Arc<Part> {
        let directory = self.experiments().join(experiment.as_str());
        let is_compared = !self.options.is_disposable;
        let before = is_compared.then(|| self.befores().join(experiment.as_str()));
        let program = self.options.program.clone();
        let new = || Arc::new(Part::new(directory, before, program, experiment));
        Arc::clone(self.parts.entry(experiment.clone()).or_insert_with(new))
    }

    fn tasks_of(&self, experiment: &ExperimentId) -> Vec<u32> {
        let of = self.tasks.iter().filter(|(id, _)| id == experiment);
        of.map(|(_, number)| *number).collect()
    }

    fn experiments(&self) -> PathBuf {
        self.options.directory.join("experiments")
    }

    /// Where it is written what the host was like before each experiment.
    fn befores(&self) -> PathBuf {
        self.options.directory.join("before")
    }

    /// Removes directories of experiments that are over: their end was written, and then this
    /// agent was killed.
    fn remove_strays(&self) -> Result<(), DatapathError> {
        let known: BTreeSet<&str> =
            self.machine.experiments().map(|(id, _, _)| id.as_str()).collect();
        for directory in [self.experiments(), self.befores()] {
            fs::create_dir_all(&directory).map_err(DatapathError::file("create", &directory))?;
            let listing =
                fs::read_dir(&directory).map_err(DatapathError::file("read", &directory))?;
            for entry in listing.flatten() {
                if entry.file_name().to_str().is_some_and(|name| known.contains(name)) {
                    continue;
                }
                let path: &Path = &entry.path();
                let removed = match path.is_dir() {
                    true => fs::remove_dir_all(path),
                    false => fs::remove_file(path),
                };
                removed.map_err(DatapathError::file("remove", path))?;
            }
        }
        Ok(())
    }
}

/// What this process lacks to change its host.
fn lacks() -> Vec<Lack> {
    let held = Capabilities::of_this_process();
    let lacks = |one: &Capability| held.as_ref().is_ok_and(|held| !held.has(*one));
    let needed = [Capability::NetAdmin];
    let name = |one: Capability| Lack::Capability(one.name().to_owned());
    needed.into_iter().filter(lacks).map(name).collect()
}

/// For a wait until an instant of this scale.
pub(crate) fn until(at: Option<Instant<Mono>>, most: Duration) -> Duration {
    let Some(at) = at else { return most };
    let left = (at - clock::now::<Mono>()).as_ns().max(0);
    Duration::from_nanos(left.unsigned_abs()).min(most)
}
