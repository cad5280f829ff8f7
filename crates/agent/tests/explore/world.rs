// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated experiment: a controller and agents with disks, hosts, programs and clocks, a
//! network between them, and what must hold whatever goes wrong. What must hold is checked against
//! what really happened here, not against what the machines believe.

use std::collections::{BTreeMap, BTreeSet};

use timewire_agent::protocol::controller::{ActualStart, End};
use timewire_agent::protocol::journal::{self, Side};
use timewire_agent::protocol::message::{FromAgent, ToAgent};
use timewire_agent::protocol::{
    Agent, CommandOutcome, Controller, FailureKind, Now, Phase, Plan, Record, RecordName, Restored,
    Task, agent, controller,
};
use timewire_base::{Instant, StationName};

use super::chance::{Chance, Fate, Kill, MS};

/// Bytes of a piece of a record here.
const PIECE: usize = 7;
/// No experiment here may take longer.
const LONGEST: i64 = 400_000 * MS;
/// How long restoring a host takes.
const RESTORING: i64 = 5 * MS;
/// How long looking at a host takes.
const SURVEYING: i64 = 3 * MS;

#[derive(Clone, Debug)]
enum Happening {
    ToAgent(usize, Vec<u8>),
    ToController(usize, Vec<u8>),
    AgentTick(usize),
    ControllerTick,
    Agent(usize, u32, agent::Event),
    TaskStarts(usize, u32, u32, Task),
    Controller(u32, controller::Event),
    StartAgent(usize),
    StartController,
}

/// What an agent's machine is like, beside the agent.
struct Host {
    name: StationName,
    machine: Option<Agent>,
    /// Counts its lives; what was begun in one does not end in another.
    life: u32,
    disk: Vec<u8>,
    changed: bool,
    restoring: bool,
    programs: BTreeSet<u32>,
    /// When it really started tasks, by its own clock.
    starts: BTreeMap<u32, i64>,
    records: BTreeMap<RecordName, Vec<u8>>,
    /// What it said it would keep.
    promised: BTreeSet<RecordName>,
    /// The highest command that it began in an experiment.
    highest: u32,
    clock: i64,
    heard: i64,
    /// What the controller gave it.
    lease: i64,
    /// Whether it has looked at what it was like before.
    looked: bool,
}

pub struct World {
    plan: Plan,
    chance: Chance,
    now: i64,
    queue: BTreeMap<(i64, u64), Happening>,
    queued: u64,
    controller: Option<Controller>,
    life: u32,
    disk: Vec<u8>,
    store: BTreeMap<(StationName, RecordName), Vec<u8>>,
    /// The records that were found whole, and are on disk.
    safe: BTreeSet<(StationName, RecordName)>,
    hosts: Vec<Host>,
    /// When the last message of each direction (to an agent or not) and station arrives.
    last: BTreeMap<(bool, usize), i64>,
    /// How often each command was begun.
    begun: BTreeMap<(usize, u32), u32>,
    /// How often each step was begun, and those that were done.
    tries: BTreeMap<(usize, String), u32>,
    done: BTreeSet<(usize, String)>,
    /// Which stations began with what starts at the common instant, and when.
    starts: Vec<(usize, i64)>,
    pub end: Option<End>,
    pub stepped: bool,
    controller_is_gone: bool,
}

/// The bytes of a record: some have several pieces, some none.
fn content(station: usize, name: &RecordName) -> Vec<u8> {
    let text = format!("{station} {name} ").repeat(1 + station % 2);
    if name.as_str() == "empty" { Vec::new() } else { text.into_bytes() }
}

fn digest(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn step_of(task: &Task) -> String {
    task.program().expect("tasks here are programs").name.to_string()
}

fn phase_of(step: &str) -> Phase {
    let phase = step.split('-').next().unwrap_or_default();
    Phase::ALL.into_iter().find(|p| p.name() == phase).expect("steps here are PHASE-NUMBER")
}

impl World {
    pub fn new(plan: Plan, mut chance: Chance) -> World {
        let quarter = plan.timing.clock_within.as_ns() / 4;
        let host = |station: &timewire_agent::protocol::StationPlan| Host {
            name: station.name.clone(),
            machine: None,
            life: 0,
            disk: Vec::new(),
            changed: false,
            restoring: false,
            programs: BTreeSet::new(),
            starts: BTreeMap::new(),
            records: BTreeMap::new(),
            promised: BTreeSet::new(),
            highest: 0,
            clock: match chance.random.happens(chance.off) {
                true => 3 * 4 * quarter,
                false => chance.random.between(-quarter, quarter),
            },
            heard: 0,
            lease: plan.timing.lease.as_ns(),
            looked: false,
        };
        let hosts = plan.stations.iter().map(host).collect();
        World {
            plan,
            chance,
            now: 1_000 * MS,
            queue: BTreeMap::new(),
            queued: 0,
            controller: None,
            life: 0,
            disk: Vec::new(),
            store: BTreeMap::new(),
            safe: BTreeSet::new(),
            hosts,
            last: BTreeMap::new(),
            begun: BTreeMap::new(),
            tries: BTreeMap::new(),
            done: BTreeSet::new(),
            starts: Vec::new(),
            end: None,
            stepped: false,
            controller_is_gone: false,
        }
    }

    /// How many actions there were.
    pub fn actions(&self) -> u64 {
        self.chance.actions
    }

    /// When the first and the last station began with what starts at the common instant.
    pub fn first_and_last_start(&self) -> (i64, i64) {
        let times = || self.starts.iter().map(|(_, at)| *at);
        (times().min().unwrap_or(0), times().max().unwrap_or(0))
    }

    /// Runs the experiment until nothing happens any more, and looks at what is left.
    pub fn run(&mut self) {
        for index in 0..self.hosts.len() {
            self.start_agent(index);
        }
        self.start_controller();
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            assert!(at < LONGEST, "the experiment does not end");
            self.now = at;
            self.happen(happening);
            self.check_leases();
        }
        self.check_end();
    }

    fn after(&mut self, span: i64, happening: Happening) {
        self.queued += 1;
        self.queue.insert((self.now + span, self.queued), happening);
    }

    fn time(&self, clock: i64) -> Now {
        Now { mono: Instant::from_ns(self.now), tai: Instant::from_ns(self.now + clock) }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::StartAgent(index) => self.start_agent(index),
            Happening::StartController => self.start_controller(),
            Happening::ToAgent(index, bytes) => {
                if let Some(step) = self.chance.step(self.now) {
                    self.hosts[index].clock += step;
                    self.stepped = true;
                }
                let message = ToAgent::decode(&bytes).unwrap();
                if self.hosts[index].machine.is_some() {
                    self.hosts[index].heard = self.now;
                    self.agent(index, agent::Event::Heard(message));
                }
            }
            Happening::ToController(index, bytes) => {
                let message = FromAgent::decode(&bytes).unwrap();
                let station = self.hosts[index].name.clone();
                self.lead(controller::Event::Heard { station, message });
            }
            Happening::AgentTick(index) => {
                let due = |agent: &Agent| {
                    agent.wake_at().is_some_and(|at| at <= Instant::from_ns(self.now))
                };
                if self.hosts[index].machine.as_ref().is_some_and(due) {
                    self.agent(index, agent::Event::Tick);
                }
            }
            Happening::ControllerTick => {
                let due = |controller: &Controller| {
                    controller.wake_at().is_some_and(|at| at <= Instant::from_ns(self.now))
                };
                if self.controller.as_ref().is_some_and(due) {
                    self.lead(controller::Event::Tick);
                }
            }
            Happening::Agent(index, life, event) => {
                if self.hosts[index].life == life && self.hosts[index].machine.is_some() {
                    self.agent_did(index, event);
                }
            }
            Happening::TaskStarts(index, life, number, task) => {
                if self.hosts[index].life == life && self.hosts[index].programs.contains(&number) {
                    self.task_starts(index, number, &task);
                }
            }
            Happening::Controller(life, event) => {
                if self.life == life {
                    if let controller::Event::Stored { station, record, outcome: Ok(()) } = &event {
                        self.safe.insert((station.clone(), record.clone()));
                    }
                    self.lead(event);
                }
            }
        }
    }

    fn start_agent(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        host.life += 1;
        host.heard = self.now;
        let reading = journal::read(Side::Agent, &host.disk).unwrap();
        host.disk.truncate(reading.whole);
        if reading.whole == 0 {
            host.disk = journal::header(Side::Agent);
        }
        let (machine, actions) = Agent::resume(&agent::compact(reading.entries));
        host.machine = Some(machine);
        self.agent_does(index, actions);
    }

    fn start_controller(&mut self) {
        self.life += 1;
        let reading = journal::read(Side::Controller, &self.disk).unwrap();
        self.disk.truncate(reading.whole);
        if reading.whole == 0 {
            self.disk = journal::header(Side::Controller);
        }
        let now = self.time(0);
        let resumed = Controller::resume(&reading.entries, now);
        let (machine, actions) =
            resumed.unwrap_or_else(|| Controller::begin(self.plan.clone(), now).unwrap());
        self.controller = Some(machine);
        self.controller_does(actions);
    }

    fn agent(&mut self, index: usize, event: agent::Event) {
        let now = self.time(self.hosts[index].clock);
        let Some(machine) = &mut self.hosts[index].machine else { return };
        let actions = machine.on(now, event);
        self.agent_does(index, actions);
    }

    /// Something that the host was asked for is done.
    fn agent_did(&mut self, index: usize, event: agent::Event) {
        let host = &mut self.hosts[index];
        match &event {
            agent::Event::Ended { number, .. } => {
                host.programs.remove(number);
            }
            agent::Event::Restored { .. } => {
                (host.changed, host.restoring) = (false, false);
                host.programs.clear();
            }
            _ => {}
        }
        self.agent(index, event);
    }

    fn lead(&mut self, event: controller::Event) {
        let now = self.time(0);
        let Some(machine) = &mut self.controller else { return };
        let actions = machine.on(now, event);
        self.controller_does(actions);
    }

    fn agent_does(&mut self, index: usize, actions: Vec<agent::Action>) {
        for action in actions {
            if let Some(kill) = self.chance.kill(self.now) {
                return self.kill_agent(index, kill, &action);
            }
            self.agent_acts(index, action);
        }
        if let Some(at) = self.hosts[index].machine.as_ref().and_then(Agent::wake_at) {
            self.after((at.as_ns() - self.now).max(0), Happening::AgentTick(index));
        }
    }

    fn kill_agent(&mut self, index: usize, kill: Kill, action: &agent::Action) {
        let host = &mut self.hosts[index];
        if let agent::Action::Append(entry) = action {
            let line = journal::line(entry);
            host.disk.extend_from_slice(&line[..line.len() * kill.torn / 8]);
            if kill.torn == 8 {
                promise(host, entry);
            }
        }
        host.machine = None;
        host.life += 1;
        host.restoring = false;
        if let Some(span) = kill.restart {
            self.after(span, Happening::StartAgent(index));
        }
    }

    fn agent_acts(&mut self, index: usize, action: agent::Action) {
        let life = self.hosts[index].life;
        let host = &mut self.hosts[index];
        match action {
            agent::Action::Append(entry) => {
                promise(host, &entry);
                if let agent::Entry::Began { lease, .. } = &entry {
                    host.lease = lease.as_ns();
                }
                host.disk.extend(journal::line(&entry));
            }
            agent::Action::Answer(message) => {
                let bytes = message.encode();
                self.send(Happening::ToController(index, bytes));
            }
            agent::Action::Survey { experiment } => {
                host.looked = true;
                let surveyed = agent::Event::Surveyed { experiment, outcome: Ok(()) };
                self.after(SURVEYING, Happening::Agent(index, life, surveyed));
            }
            agent::Action::Start { number, task, at, .. } => {
                let wait = at.map_or(0, |at| at.as_ns() - self.now - host.clock).max(0);
                host.programs.insert(number);
                self.task_begins(index, number, &task);
                self.after(wait, Happening::TaskStarts(index, life, number, task));
            }
            agent::Action::Stop { experiment, number } => {
                let outcome = CommandOutcome::failed(FailureKind::Stopped, "stopped");
                let ended = self.ended(index, experiment, number, outcome);
                self.after(MS, Happening::Agent(index, life, ended));
            }
            agent::Action::Halt { experiment, number } => {
                host.highest = host.highest.max(number);
                let running: Vec<u32> = host.programs.iter().copied().collect();
                for number in running {
                    let outcome = CommandOutcome::failed(FailureKind::Stopped, "stopped");
                    let ended = self.ended(index, experiment.clone(), number, outcome);
                    self.after(MS, Happening::Agent(index, life, ended));
                }
                let outcome = CommandOutcome::Done { exit: None };
                let ended = agent::Event::Ended { experiment, number, outcome, began: None };
                self.after(MS, Happening::Agent(index, life, ended));
            }
            agent::Action::Keep { experiment, number } => {
                let outcome = CommandOutcome::Kept { records: self.keep(index) };
                let ended = agent::Event::Ended { experiment, number, outcome, began: None };
                self.after(MS, Happening::Agent(index, life, ended));
            }
            agent::Action::Restore { experiment } => {
                host.restoring = true;
                let restored = agent::Event::Restored { experiment, restored: Restored::default() };
                self.after(RESTORING, Happening::Agent(index, life, restored));
            }
            agent::Action::Read { experiment, record, offset } => {
                let bytes = read(host, &record, offset);
                let read = agent::Event::Read { experiment, record, offset, bytes };
                self.after(MS / 10, Happening::Agent(index, life, read));
            }
            agent::Action::Drop { record, .. } => {
                let is_safe = self.safe.contains(&(host.name.clone(), record.clone()));
                assert!(is_safe, "{record} is dropped before it is stored");
                host.records.remove(&record);
            }
            agent::Action::Forget { .. } => {
                assert!(host.records.is_empty(), "{} forgets records", host.name);
                assert!(!host.changed && host.programs.is_empty(), "{} forgets", host.name);
            }
        }
    }

    /// Closes the records of a host.
    fn keep(&mut self, index: usize) -> Vec<Record> {
        let host = &mut self.hosts[index];
        for name in ["a", "dir/b", "empty"] {
            let name = RecordName::new(name).unwrap();
            // A record that the controller has is not made anew.
            let key = (host.name.clone(), name.clone());
            let is_there = self.safe.contains(&key);
            if !is_there || !host.promised.contains(&name) {
                host.records.insert(name.clone(), content(index, &name));
            }
        }
        let record = |(name, bytes): (&RecordName, &Vec<u8>)| Record {
            name: name.clone(),
            bytes: bytes.len() as u64,
            digest: digest(bytes),
        };
        host.records.iter().map(record).collect()
    }

    fn send(&mut self, happening: Happening) {
        let fate = self.chance.fate(self.now);
        // Some are lost with their link, and there is a new one.
        let (Happening::ToAgent(index, _) | Happening::ToController(index, _)) = &happening else {
            unreachable!("only messages are sent")
        };
        if fate == Fate::Lost && self.chance.random.happens(300) {
            let station = self.hosts[*index].name.clone();
            let linked = controller::Event::Linked { station };
            self.after(MS, Happening::Controller(self.life, linked));
        }
        let copies = match fate {
            Fate::Lost => 0,
            Fate::Arrives | Fate::Late => 1,
            Fate::Twice => 2,
        };
        for _ in 0..copies {
            let mut way = self.chance.way(fate, self.now);
            if self.chance.repeated > 0 {
                // Under TCP none overtakes another.
                let direction = match &happening {
                    Happening::ToAgent(index, _) => (true, *index),
                    Happening::ToController(index, _) => (false, *index),
                    _ => unreachable!("only messages are sent"),
                };
                let last = self.last.entry(direction).or_default();
                *last = (*last).max(self.now + way);
                way = *last - self.now;
            }
            self.after(way, happening.clone());
        }
    }

    fn controller_does(&mut self, actions: Vec<controller::Action>) {
        for action in actions {
            if let Some(kill) = self.chance.kill(self.now) {
                if let controller::Action::Append(entry) = &action {
                    let line = journal::line(entry);
                    self.disk.extend_from_slice(&line[..line.len() * kill.torn / 8]);
                }
                self.controller = None;
                self.life += 1;
                // What was not synced is not there.
                let safe = &self.safe;
                self.store.retain(|key, _| safe.contains(key));
                match kill.restart {
                    Some(span) => self.after(span, Happening::StartController),
                    None => self.controller_is_gone = true,
                }
                return;
            }
            self.controller_acts(action);
        }
        if let Some(at) = self.controller.as_ref().and_then(Controller::wake_at) {
            self.after((at.as_ns() - self.now).max(0), Happening::ControllerTick);
        }
    }

    fn controller_acts(&mut self, action: controller::Action) {
        match action {
            controller::Action::Append(entry) => self.disk.extend(journal::line(&entry)),
            controller::Action::Send { station, message } => {
                let index = self.hosts.iter().position(|host| host.name == station).unwrap();
                self.send(Happening::ToAgent(index, message.encode()));
            }
            controller::Action::Store { station, record, offset, bytes } => {
                let stored = self.store.entry((station, record)).or_default();
                if offset == 0 {
                    stored.clear();
                }
                assert_eq!(stored.len() as u64, offset, "a piece at the wrong place");
                stored.extend(bytes);
            }
            controller::Action::Check { station, record } => {
                let stored = &self.store[&(station.clone(), record.name.clone())];
                let fits = digest(stored) == record.digest;
                let outcome = if fits { Ok(()) } else { Err("differs".to_owned()) };
                let record = record.name;
                let event = controller::Event::Stored { station, record, outcome };
                self.after(MS, Happening::Controller(self.life, event));
            }
            controller::Action::End(end) => self.end = Some(end),
        }
    }

    /// An agent is about to begin a task: once for each command, while it takes part, and after all
    /// that comes before.
    fn task_begins(&mut self, index: usize, number: u32, task: &Task) {
        let step = step_of(task);
        let host = &mut self.hosts[index];
        assert!(!host.restoring, "{} begins {step} while it restores its host", host.name);
        host.changed = true;
        let times = self.begun.entry((index, number)).or_default();
        *times += 1;
        assert_eq!(*times, 1, "{}: command {number} ran twice", host.name);
        let highest = host.highest;
        assert!(number > highest, "{} begins {step} after command {highest}", host.name);
        host.highest = number;
        let (phase, allowed) = (phase_of(&step), 1 + self.retries(index, &step));
        let times = self.tries.entry((index, step.clone())).or_default();
        *times += 1;
        assert!(*times <= allowed, "station {index}: {step} ran {times} times of {allowed}");
        if phase >= Phase::Report {
            return;
        }
        let order =
            |index: usize| self.plan.stations[index].parts.get(&phase).map_or(0, |part| part.order);
        for (other, host) in self.hosts.iter().enumerate() {
            let is_free = phase > Phase::Setup || order(other) > order(index);
            assert!(
                host.looked || is_free,
                "{step} of station {index} before {} has looked",
                host.name
            );
        }
        for (other, station) in self.plan.stations.iter().enumerate() {
            for (earlier, part) in &station.parts {
                let before = *earlier < phase || (*earlier == phase && order(other) < order(index));
                for done in part.steps.iter().filter(|_| before) {
                    let done = (other, step_of(&done.task));
                    assert!(self.done.contains(&done), "{index} begins {step} before {done:?}");
                }
            }
        }
    }

    fn retries(&self, index: usize, step: &str) -> u32 {
        let parts = self.plan.stations[index].parts.values();
        let mut steps = parts.flat_map(|part| &part.steps);
        steps.find(|s| step_of(&s.task) == step).map_or(0, |step| step.retry.times)
    }

    /// The end of a task, with when it started by its host's clock.
    fn ended(
        &self,
        index: usize,
        experiment: timewire_agent::protocol::ExperimentId,
        number: u32,
        outcome: CommandOutcome,
    ) -> agent::Event {
        let began = self.hosts[index].starts.get(&number).copied().map(Instant::from_ns);
        agent::Event::Ended { experiment, number, outcome, began }
    }

    fn task_starts(&mut self, index: usize, number: u32, task: &Task) {
        let (takes, outcome) = self.chance.task(self.now);
        let step = step_of(task);
        let is_first_try = self.tries[&(index, step.clone())] == 1;
        if phase_of(&step) == Phase::Run && step.ends_with("-0") && is_first_try {
            self.starts.push((index, self.now));
        }
        if outcome == (CommandOutcome::Done { exit: Some(0) }) && takes < 1_000 * MS {
            self.done.insert((index, step));
        }
        let host = &mut self.hosts[index];
        host.starts.insert(number, self.now + host.clock);
        let ended = self.ended(index, self.plan.experiment.clone(), number, outcome);
        self.after(takes, Happening::Agent(index, self.hosts[index].life, ended));
    }

    /// A host is changed only while its agent hears of the controller, or restores it, or is dead.
    fn check_leases(&self) {
        for host in self.hosts.iter().filter(|host| host.machine.is_some()) {
            let is_held = host.restoring || self.now <= host.heard + host.lease;
            assert!(is_held || !host.changed, "{} stays changed without a lease", host.name);
        }
    }

    fn check_end(&self) {
        let hosts = self.hosts.iter().filter(|host| host.machine.is_some());
        for host in hosts {
            assert!(!host.changed, "{} stays changed", host.name);
            assert!(host.programs.is_empty(), "{} has programs", host.name);
        }
        for (index, host) in self.hosts.iter().enumerate() {
            for record in &host.promised {
                let whole = content(index, record);
                let key = (host.name.clone(), record.clone());
                let stored = self.store.get(&key).filter(|_| self.safe.contains(&key));
                let is_there = host.records.get(record) == Some(&whole) || stored == Some(&whole);
                assert!(is_there, "{}: {record} is lost", host.name);
            }
        }
        let Some(end) = &self.end else {
            return assert!(self.controller_is_gone, "the controller does not end");
        };
        for host in &self.hosts {
            let told = &end.stations[&host.name];
            let is_told = told.restored.as_ref().is_some_and(|it| it.left.is_empty());
            assert!(!is_told || !host.changed, "{} is said to be as it was", host.name);
            for record in &told.records {
                let stored = self.store.get(&(host.name.clone(), record.name.clone()));
                assert!(stored.is_some_and(|bytes| digest(bytes) == record.digest));
            }
        }
        if end.failures.is_empty() {
            self.check_success(end);
        }
    }

    /// What a success promises.
    fn check_success(&self, end: &End) {
        for (index, station) in self.plan.stations.iter().enumerate() {
            let steps = station.parts.values().flat_map(|part| &part.steps);
            for step in steps.map(|step| step_of(&step.task)) {
                assert!(self.done.contains(&(index, step.clone())), "{index}: {step} was not done");
            }
            let told = &end.stations[&station.name];
            assert_eq!(told.restored, Some(Restored::default()));
            assert_eq!((told.records.len(), told.missing.len()), (3, 0));
        }
        let within = self.plan.timing.clock_within.as_ns();
        if let [start] = end.starts.as_slice()
            && !self.stepped
        {
            for (index, began) in &self.starts {
                let host = &self.hosts[*index];
                let told = start.stations[&host.name];
                let by_its_clock = Instant::from_ns(began + host.clock);
                assert_eq!(told.actual, ActualStart::Started(by_its_clock), "{}", host.name);
                let apart = (began - start.at.as_ns()).abs();
                assert!(apart <= within, "a station began {apart} ns from the common start");
            }
        }
    }
}

fn promise(host: &mut Host, entry: &agent::Entry) {
    if let agent::Entry::Ended { outcome: CommandOutcome::Kept { records }, .. } = entry {
        host.promised.extend(records.iter().map(|record| record.name.clone()));
    }
}

fn read(host: &Host, record: &RecordName, offset: u64) -> Result<Vec<u8>, String> {
    let bytes = host.records.get(record).ok_or("no such record")?;
    let from = usize::try_from(offset).unwrap().min(bytes.len());
    Ok(bytes[from..bytes.len().min(from + PIECE)].to_vec())
}
