// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making somebody a member of a group, changing what it has, letting it go. Each is recorded in
//! the journal before it is done.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use timewire_sys::namespace::Process;
use timewire_sys::scheduler::{self, Attributes, RtPriority};
use timewire_tsn::groups::Scheduling;

use super::cgroup::{self, MemberCgroup};
use super::release::{Gate, Release};
use super::resolve::{self, Who};
use crate::journal::{EntryId, Journal};
use crate::scheduling::{self, ROUNDS, SavedThread};
use crate::{HostError, Undo};

/// What a member is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub scheduling: Scheduling,
    pub cpus: Option<Vec<u32>>,
    /// Whether it has windows, and so must be stopped and continued.
    pub windowed: bool,
}

impl Given {
    fn attributes(&self) -> Attributes {
        let priority =
            |number| RtPriority::new(number).expect("invariant: a plan has priorities of 1 to 99");
        match self.scheduling {
            Scheduling::Fifo { priority: number } => Attributes::fifo(priority(number)),
            Scheduling::RoundRobin { priority: number } => {
                Attributes::round_robin(priority(number))
            }
            Scheduling::Deadline { runtime, deadline, period } => {
                Attributes::deadline(runtime, deadline, period)
            }
        }
    }

    fn cpu_list(&self) -> Option<String> {
        let cpus = self.cpus.as_ref()?.iter().map(u32::to_string);
        Some(cpus.collect::<Vec<_>>().join(","))
    }
}

/// A member, or one process of it.
#[derive(Debug)]
pub(crate) struct Held {
    /// Where the member stands in the tree.
    pub key: String,
    pub who: Who,
    pub given: Given,
    pub parts: Vec<Part>,
    /// The member that has started it, when it was found by looking for it.
    pub born_of: Option<Process>,
    /// What it works without.
    pub notes: Vec<String>,
    /// Whether what it starts becomes a member, too.
    pub is_followed: bool,
}

/// One thing that was changed for a member.
#[derive(Debug)]
pub(crate) enum Part {
    /// A setting of the kernel.
    Setting { entry: EntryId },
    /// Threads.
    Threads { entry: EntryId, release: Release, reach: Reach },
}

/// Which threads of a process are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All, and what they start.
    All,
    /// This one; what it starts has nothing of it.
    One(u32),
}

impl Held {
    /// Makes somebody a member. On an error nothing is changed.
    pub(crate) fn join(
        journal: &Journal,
        key: &str,
        who: Who,
        given: Given,
    ) -> Result<Held, HostError> {
        Held::new(key, who, given).join_whole(journal)
    }

    /// The same of one process in no tree, whose threads alone are meant.
    pub(crate) fn join_alone(
        journal: &Journal,
        process: Process,
        given: Given,
    ) -> Result<Held, HostError> {
        let held = Held::new("", Who::Process(process), given);
        Held { is_followed: false, ..held }.join_whole(journal)
    }

    pub(super) fn new(key: &str, who: Who, given: Given) -> Held {
        let (key, parts, notes) = (key.to_owned(), Vec::new(), Vec::new());
        Held { key, who, given, parts, born_of: None, notes, is_followed: true }
    }

    fn join_whole(mut self, journal: &Journal) -> Result<Held, HostError> {
        match self.try_join(journal) {
            Ok(()) => Ok(self),
            Err(error) => {
                self.leave(journal)?;
                Err(error)
            }
        }
    }

    fn try_join(&mut self, journal: &Journal) -> Result<(), HostError> {
        match self.who.clone() {
            Who::Process(process) | Who::Program { process, .. } => {
                if process
                    == Process::this().map_err(|e| HostError::kernel("read /proc/self", e))?
                {
                    return Err(HostError::OwnProcess { pid: process.pid });
                }
                let deadline = matches!(self.given.scheduling, Scheduling::Deadline { .. });
                let reach = if deadline { Reach::One(process.pid) } else { Reach::All };
                self.join_threads(journal, process, reach)?;
                let stop = |gate: &Gate| {
                    // Until its first window it does not run.
                    let what = || format!("stop process {}", process.pid);
                    gate.set(false).map_err(|e| HostError::kernel(what(), e))
                };
                if self.given.windowed { self.gates().iter().try_for_each(stop) } else { Ok(()) }
            }
            Who::Thread { process, tid, .. } => {
                self.join_threads(journal, process, Reach::One(tid))
            }
            Who::Napi(interface) => {
                let setting = PathBuf::from(format!("/sys/class/net/{interface}/threaded"));
                let unsupported = || HostError::Unsupported {
                    what: format!("NAPI threads of {interface}"),
                    missing: "its driver does not poll (no NAPI), or not as it is set now"
                        .to_owned(),
                };
                self.set(journal, &setting, "1").map_err(|error| match error {
                    HostError::File(error) if error.kind() == Some(io::ErrorKind::Unsupported) => {
                        unsupported()
                    }
                    other => other,
                })?;
                let threads = resolve::napi_threads(&interface)?;
                if threads.is_empty() {
                    return Err(unsupported());
                }
                self.join_kernel_threads(journal, threads)
            }
            Who::Interrupt(interface) => {
                let numbers = resolve::interrupts(&interface);
                if numbers.is_empty() {
                    return Err(HostError::NobodyThere {
                        what: format!("{interface} has no interrupt of its own"),
                    });
                }
                if let Some(cpus) = self.given.cpu_list() {
                    for number in &numbers {
                        let file = format!("/proc/irq/{number}/smp_affinity_list");
                        self.set(journal, &PathBuf::from(file), &cpus)?;
                    }
                }
                let threads = resolve::interrupt_threads(&numbers);
                if threads.is_empty() && self.given.cpus.is_none() {
                    return Err(HostError::Unsupported {
                        what: format!("threads of the interrupts of {interface}"),
                        missing: "this kernel serves them at once; boot it with `threadirqs`, or \
                                  give the group `cpus`"
                            .to_owned(),
                    });
                }
                if threads.is_empty() {
                    self.notes.push(format!(
                        "interrupts of {interface} have no threads here and go before everything \
                         on their CPUs"
                    ));
                }
                self.join_kernel_threads(journal, threads)
            }
            Who::Softirq(cpu) => {
                let thread = resolve::kernel_threads(&format!("ksoftirqd/{cpu}"));
                if thread.is_empty() {
                    let what = format!("there is no softirq thread of a CPU {cpu}");
                    return Err(HostError::NobodyThere { what });
                }
                self.join_kernel_threads(journal, thread)
            }
        }
    }

    /// What its threads are given. Those of softirqs and interrupts are bound to their CPUs.
    fn given_to_threads(&self) -> Given {
        let bound = matches!(self.who, Who::Softirq(_) | Who::Interrupt(_));
        let cpus = self.given.cpus.clone().filter(|_| !bound);
        Given { cpus, ..self.given.clone() }
    }

    fn join_kernel_threads(
        &mut self,
        journal: &Journal,
        threads: Vec<Process>,
    ) -> Result<(), HostError> {
        for thread in threads {
            self.join_threads(journal, thread, Reach::One(thread.pid))?;
        }
        Ok(())
    }

    /// Changes a setting that is not so yet.
    fn set(&mut self, journal: &Journal, path: &PathBuf, value: &str) -> Result<(), HostError> {
        let before = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
        let before = before.trim_end().to_owned();
        if before == value {
            return Ok(());
        }
        let entry = journal.record(Undo::WriteSetting { path: path.clone(), value: before })?;
        match fs::write(path, value) {
            Ok(()) => {
                self.parts.push(Part::Setting { entry });
                Ok(())
            }
            Err(error) => {
                // The kernel takes a setting whole or not at all.
                journal.forget(entry)?;
                Err(HostError::file("write", path, error))
            }
        }
    }

    fn join_threads(
        &mut self,
        journal: &Journal,
        process: Process,
        reach: Reach,
    ) -> Result<(), HostError> {
        let mut release = Release {
            pid: process.pid,
            start_ticks: process.start_ticks,
            place: None,
            signals: false,
            given: Vec::new(),
            threads: Vec::new(),
        };
        let mut found = new_threads(process, reach, &release)?;
        if found.is_empty() {
            return Err(HostError::NoProcess { pid: process.pid });
        }
        let to_threads = self.given_to_threads();
        let attributes = to_threads.attributes();
        // What one thread starts inherits nothing; another of its process that has the same has
        // it from somebody else.
        if reach == Reach::All {
            release.given.push((attributes.policy, attributes.rt_priority));
        }
        release.threads.append(&mut found);
        let mut cpus_in_place = false;
        if reach == Reach::All && self.is_followed {
            static NUMBER: AtomicU64 = AtomicU64::new(1);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            match cgroup::place_for(process.pid, number) {
                Ok(place) => release.place = Some(place),
                Err(why) => self.no_place(&why),
            }
        }
        let by_signals = reach == Reach::All && self.given.windowed && release.place.is_none();
        if by_signals && matches!(self.who, Who::Process(_)) && process.is_stopped() {
            let what = format!(
                "process {} is stopped by somebody else: windows by signals would let it go on",
                process.pid
            );
            return Err(HostError::NobodyThere { what });
        }
        // With both ways out; which one is taken is known after it was tried.
        release.signals = reach == Reach::All && self.given.windowed;
        let entry = journal.record(release.clone())?;
        if let Some(place) = &release.place {
            match place.make().and_then(|()| place.enter(process.pid)) {
                Ok(()) => {
                    release.signals = false;
                    let cpus = self.given.cpu_list();
                    if cpus.is_some() {
                        cpus_in_place = place.set_cpus(cpus.as_deref()).unwrap_or(false);
                    }
                }
                Err(error) => {
                    self.no_place(&error.to_string());
                    let _ = place.leave(|_| {});
                    release.place = None;
                }
            }
        }
        let mut part = Part::Threads { entry, release, reach };
        part.record_again(journal)?;
        let given = part.give(journal, &to_threads, cpus_in_place);
        self.parts.push(part);
        given
    }

    fn no_place(&mut self, why: &str) {
        self.notes.push(format!(
            "{}: no control group for it ({why}): what it starts is looked for every {} ms{}",
            self.who,
            super::POLL_INTERVAL.as_millis(),
            if self.given.windowed { ", and it is stopped by signals" } else { "" }
        ));
    }

    /// Gives it something else, without letting it go. On an error it has what it had.
    pub(crate) fn change(&mut self, journal: &Journal, given: Given) -> Result<(), HostError> {
        let before = std::mem::replace(&mut self.given, given);
        let to_threads = self.given_to_threads();
        let mut result = Ok(());
        for part in &mut self.parts {
            if result.is_ok() {
                result = part.change(journal, &to_threads);
            }
        }
        if result.is_err() {
            self.given = before;
            let to_threads = self.given_to_threads();
            for part in &mut self.parts {
                // It had this a moment ago, so the kernel takes it; what it refuses is in the
                // journal.
                let _ = part.change(journal, &to_threads);
            }
        }
        result
    }

    /// Whether it can be changed in place; else it leaves and joins again.
    pub(crate) fn can_change_to(&self, given: &Given) -> bool {
        let of_process = matches!(self.who, Who::Process(_) | Who::Program { .. });
        let deadline = |given: &Given| matches!(given.scheduling, Scheduling::Deadline { .. });
        let signals = self.parts.iter().any(|part| {
            matches!(part, Part::Threads { release, reach: Reach::All, .. }
                if release.place.is_none())
        });
        // The CPUs that it had before are not known any more, only those that it leaves with.
        let gains_all_cpus = self.given.cpus.is_some() && given.cpus.is_none();
        let other_class = of_process && deadline(&self.given) != deadline(given);
        let other_signals = signals && self.given.windowed != given.windowed;
        let interrupts = matches!(self.who, Who::Interrupt(_)) && self.given.cpus != given.cpus;
        !(gains_all_cpus || interrupts || other_class || other_signals)
    }

    /// Lets it go: it has what it had before.
    pub(crate) fn leave(&mut self, journal: &Journal) -> Result<(), HostError> {
        while let Some(part) = self.parts.last() {
            let (Part::Setting { entry } | Part::Threads { entry, .. }) = part;
            journal.undo(*entry)?;
            self.parts.pop();
        }
        Ok(())
    }

    /// What stops and continues it.
    pub(crate) fn gates(&self) -> Vec<Gate> {
        let gate = |part: &Part| match part {
            Part::Threads { release, reach: Reach::All, .. } => Some(match &release.place {
                Some(place) => Gate::Cgroup(place.clone()),
                None => Gate::Signals(release.process()),
            }),
            _ => None,
        };
        self.parts.iter().filter_map(gate).collect()
    }

    /// How many threads it had when it became one.
    pub(crate) fn threads_at_start(&self) -> usize {
        let of = |part: &Part| match part {
            Part::Threads { release, .. } => release.threads.len(),
            Part::Setting { .. } => 0,
        };
        self.parts.iter().map(of).sum()
    }

    /// The processes in it, with what they have started.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        for part in &self.parts {
            if let Part::Threads { release, .. } = part {
                match &release.place {
                    Some(place) => found.extend(place.processes()),
                    None if release.process().is_alive() => found.push(release.pid),
                    None => {}
                }
            }
        }
        found
    }

    /// The threads in it: process and thread.
    pub(crate) fn threads(&self) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        for part in &self.parts {
            match part {
                Part::Threads { release, reach: Reach::One(tid), .. } => {
                    if release.process().is_alive() {
                        found.push((release.pid, *tid));
                    }
                }
                Part::Threads { release, .. } => {
                    let pids = match &release.place {
                        Some(place) => place.processes(),
                        None => vec![release.pid],
                    };
                    for process in pids.into_iter().filter_map(|pid| Process::of(pid).ok()) {
                        let tids = scheduling::threads(process).unwrap_or_default();
                        found.extend(tids.into_iter().map(|tid| (process.pid, tid)));
                    }
                }
                Part::Setting { .. } => {}
            }
        }
        found
    }

    /// Whether nobody is left of it.
    pub(crate) fn has_ended(&self) -> bool {
        let mut of_threads = self.parts.iter().filter_map(|part| match part {
            Part::Threads { release, reach, .. } => Some((release, reach)),
            Part::Setting { .. } => None,
        });
        let ended = |(release, reach): (&Release, &Reach)| {
            let members = release.place.as_ref().is_some_and(|place| !place.processes().is_empty());
            let alive = match reach {
                Reach::All => release.process().is_alive(),
                Reach::One(tid) => {
                    PathBuf::from(format!("/proc/{}/task/{tid}", release.pid)).exists()
                        && release.process().is_alive()
                }
            };
            !members && !alive
        };
        !matches!(self.who, Who::Interrupt(_)) && of_threads.all(ended)
    }
}

impl Part {
    /// The journal has what is known now.
    fn record_again(&mut self, journal: &Journal) -> Result<(), HostError> {
        if let Part::Threads { entry, release, .. } = self {
            let newer = journal.record(release.clone())?;
            journal.forget(std::mem::replace(entry, newer))?;
        }
        Ok(())
    }

    fn change(&mut self, journal: &Journal, given: &Given) -> Result<(), HostError> {
        let Part::Threads { release, reach, .. } = self else {
            return Ok(());
        };
        let wanted = given.attributes();
        let pair = (wanted.policy, wanted.rt_priority);
        if *reach == Reach::All && !release.given.contains(&pair) {
            release.given.push(pair);
        }
        let mut in_place = false;
        if let (Some(place), Reach::All, Some(cpus)) = (&release.place, reach, given.cpu_list()) {
            in_place = place.set_cpus(Some(&cpus)).unwrap_or(false);
        }
        self.record_again(journal)?;
        self.give(journal, given, in_place)
    }

    /// Gives it to all threads, also to those born while this runs.
    fn give(
        &mut self,
        journal: &Journal,
        given: &Given,
        cpus_in_place: bool,
    ) -> Result<(), HostError> {
        let Part::Threads { release, reach, .. } = self else {
            return Ok(());
        };
        let (reach, process) = (*reach, release.process());
        let cpus = given.cpus.as_deref().filter(|_| !cpus_in_place);
        for saved in release.threads.clone() {
            give(process, &saved, given, reach, cpus)?;
        }
        let children: Vec<u32> =
            release.place.as_ref().map(MemberCgroup::processes).unwrap_or_default();
        for child in children.into_iter().filter(|pid| *pid != process.pid) {
            let Ok(child) = Process::of(child) else { continue };
            for tid in scheduling::threads(child).unwrap_or_default() {
                let Ok(now) = scheduler::attributes(tid) else { continue };
                if release.has_inherited(&now) {
                    let like = SavedThread { tid, ..release.threads[0].clone() };
                    give_to(child, &like, given, reach, cpus)?;
                }
            }
        }
        for _ in 0..ROUNDS {
            let Part::Threads { release, .. } = self else { break };
            let new = new_threads(process, reach, release)?;
            // One that was born of a member has it already, and goes back to what that had.
            let wanted = given.attributes();
            let new: Vec<SavedThread> = new
                .into_iter()
                .filter(|thread| {
                    let now = thread.attributes;
                    (now.policy, now.rt_priority) != (wanted.policy, wanted.rt_priority)
                })
                .collect();
            if new.is_empty() {
                break;
            }
            // Those with what was given earlier have inherited it, and are not worth remembering.
            let mut strangers = new.clone();
            strangers.retain(|thread| !release.has_inherited(&thread.attributes));
            release.threads.append(&mut strangers);
            self.record_again(journal)?;
            for thread in &new {
                give(process, thread, given, reach, cpus)?;
            }
        }
        Ok(())
    }
}

/// Threads of a process that are not known yet.
fn new_threads(
    process: Process,
    reach: Reach,
    release: &Release,
) -> Result<Vec<SavedThread>, HostError> {
    let failed =
        |source| HostError::Scheduling { what: "read the scheduling", pid: process.pid, source };
    let known = |thread: &SavedThread| {
        let mut saved = release.threads.iter();
        saved.any(|s| (s.tid, s.start_ticks) == (thread.tid, thread.start_ticks))
    };
    let mut new = Vec::new();
    if !process.is_alive() {
        return Ok(new);
    }
    for tid in scheduling::threads(process).map_err(failed)? {
        if let Reach::One(only) = reach
            && tid != only
        {
            continue;
        }
        if let Some(thread) = SavedThread::of(process, tid).map_err(failed)?
            && !known(&thread)
        {
            new.push(thread);
        }
    }
    Ok(new)
}

/// Gives a thread of the process what its group has, unless it is another by now.
fn give(
    process: Process,
    saved: &SavedThread,
    given: &Given,
    reach: Reach,
    cpus: Option<&[u32]>,
) -> Result<(), HostError> {
    match SavedThread::of(process, saved.tid) {
        Ok(Some(now)) if now.start_ticks == saved.start_ticks => {
            give_to(process, saved, given, reach, cpus)
        }
        _ => Ok(()),
    }
}

fn give_to(
    process: Process,
    saved: &SavedThread,
    given: &Given,
    reach: Reach,
    cpus: Option<&[u32]>,
) -> Result<(), HostError> {
    let (tid, wanted) = (saved.tid, given.attributes());
    let wanted = match reach {
        Reach::All => wanted.with_reset_on_fork(saved.attributes),
        Reach::One(_) => wanted.not_inherited(),
    };
    let refused = |what: &'static str| {
        move |source: io::Error| HostError::Scheduling { what, pid: process.pid, source }
    };
    if let Some(cpus) = cpus {
        let set = scheduling::gone_is_none(scheduler::set_affinity(tid, cpus));
        set.map_err(refused("change the CPUs"))?;
    }
    let set = scheduling::gone_is_none(scheduler::set_attributes(tid, &wanted));
    set.map(drop).map_err(|source| {
        if wanted.is_deadline() {
            let wanted = given.scheduling.to_string();
            return HostError::NotAdmitted { wanted, tid, source };
        }
        refused("change the scheduling")(source)
    })
}
