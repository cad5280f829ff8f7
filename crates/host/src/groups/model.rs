// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A model in force, and its switch to another one as a transaction: all members change or none.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use timewire_model::scenario::host::MemberKind;
use timewire_sys::namespace::{self, OnParentDeath, Process};
use timewire_sys::scheduler::{self, Attributes, RtPriority};
use timewire_tsn::groups::{Assignment, Facts, GroupPlan};

use super::hold::{Given, Held, Part, Reach};
use super::release::Gate;
use super::resolve::{self, Wanted, Who};
use super::steps::{self, Desired, Step, What};
use super::supervisor::{Supervisor, Windowed};
use crate::journal::{EntryId, Journal};
use crate::scheduling::{SavedThread, online_cpus};
use crate::{HostError, Undo};

/// A tree of groups in force. Dropping it lets all members go and ends the programs it started.
#[derive(Debug)]
pub struct Model {
    pub(super) journal: Arc<Journal>,
    pub(super) supervisor: Supervisor,
    pub(super) held: Vec<Held>,
    programs: Vec<Program>,
    /// Programs that were ended and may still be dying.
    ended: Vec<Child>,
    pub(super) plan: Option<GroupPlan>,
    /// What went wrong while members were followed.
    pub(super) troubles: Vec<String>,
    /// What the thread that called first had.
    own: Option<SavedThread>,
}

/// A program that was started.
#[derive(Debug)]
struct Program {
    process: Process,
    child: Child,
    /// Ends it.
    kill: EntryId,
}

/// What takes a step back.
enum Inverse {
    /// End it and let it go.
    Unstart(Who),
    /// Let it go again: the one that was held last.
    Unjoin(Who),
    /// Give it back what it had.
    ChangeBack(Who, String, Given),
    /// Make it a member again.
    Rejoin { key: String, who: Who, given: Given, born_of: Option<Process> },
}

impl Model {
    /// Nobody is a member. What it will change is undone by this journal; the calling thread has to
    /// live as long as the model, because the programs that it starts end with it.
    pub fn new(journal: Arc<Journal>) -> Model {
        Model {
            journal,
            supervisor: Supervisor::new(),
            held: Vec::new(),
            programs: Vec::new(),
            ended: Vec::new(),
            plan: None,
            troubles: Vec::new(),
            own: None,
        }
    }

    /// Puts the calling thread above all members, or they could keep it from ever running again.
    /// What it starts is scheduled as usual.
    fn go_above(&mut self, priority: u8) -> Result<(), HostError> {
        let failed = |source| HostError::Scheduling {
            what: "raise the priority",
            pid: std::process::id(),
            source,
        };
        if self.own.is_none() {
            let this = Process::this().map_err(failed)?;
            self.own = SavedThread::of(this, scheduler::thread_id()).map_err(failed)?;
        }
        let number = RtPriority::new(priority).expect("invariant: a plan has priorities to 99");
        let wanted = Attributes::fifo(number).not_inherited();
        scheduler::set_attributes(0, &wanted).map_err(failed)
    }

    fn go_back(&mut self) {
        if let Some(own) = self.own.take() {
            // A thread can always give up a priority, and no other is changed.
            let _ = scheduler::set_attributes(own.tid, &own.attributes);
        }
    }

    /// Puts another plan in force. Members of both go on without a stop.
    ///
    /// **Errors**: somebody is not there, or the kernel refuses a step; then the old plan is in
    /// force as before. `NotUndone` when even that fails.
    pub fn switch(&mut self, plan: &GroupPlan) -> Result<(), HostError> {
        self.switch_with(plan, &mut |_| Ok(()))
    }

    /// As [`Model::switch`], with something that is asked before each step and may refuse it.
    ///
    /// **Errors**: as there, and those of `before`.
    pub fn switch_with(
        &mut self,
        plan: &GroupPlan,
        before: &mut dyn FnMut(&Step) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        self.switch_from(plan, false, before)
    }

    /// As [`Model::switch`], for a plan that differs from the old one by a member or two. The
    /// others stay who they are: a program that has ended is not started again, and what it has
    /// left running goes on.
    ///
    /// **Errors**: as there.
    pub fn amend(&mut self, plan: &GroupPlan) -> Result<(), HostError> {
        self.switch_from(plan, true, &mut |_| Ok(()))
    }

    fn switch_from(
        &mut self,
        plan: &GroupPlan,
        amend: bool,
        before: &mut dyn FnMut(&Step) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        let desired = self.desired(plan, amend)?;
        // While it changes, above the members of both.
        let before_priority = self.plan.as_ref().map_or(1, |plan| plan.supervisor_priority);
        self.go_above(before_priority.max(plan.supervisor_priority))?;
        let result = self.switch_to(plan, &desired, before);
        let after = self.plan.as_ref().map(|plan| plan.supervisor_priority);
        match after {
            Some(priority) => self.go_above(priority)?,
            None => self.go_back(),
        }
        result
    }

    fn switch_to(
        &mut self,
        plan: &GroupPlan,
        desired: &[Desired],
        before: &mut dyn FnMut(&Step) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        let (steps, ends) = steps::steps(&self.held, desired);
        // Steps name members by their number at the start, which changes when others go.
        let who: Vec<Who> = self.held.iter().map(|held| held.who.clone()).collect();
        let ends: Vec<Who> = ends.into_iter().map(|index| who[index].clone()).collect();
        let mut done = Vec::new();
        for step in &steps {
            let result =
                before(step).and_then(|()| self.step(step, &who, desired, plan, &mut done));
            if let Err(error) = result {
                self.take_back(done)?;
                return Err(error);
            }
        }
        self.plan = Some(plan.clone());
        self.troubles.clear();
        for who in ends {
            self.end(&who)?;
        }
        Ok(())
    }

    /// Who is to be a member.
    fn desired(&self, plan: &GroupPlan, amend: bool) -> Result<Vec<Desired>, HostError> {
        let mut desired: Vec<Desired> = Vec::new();
        let online = online_cpus().ok();
        for member in plan.members() {
            let of_member = |source: HostError| HostError::GroupMember {
                member: member.member.to_string(),
                source: Box::new(source),
            };
            let given = given(member);
            if let (Some(cpus), Some(online)) = (&given.cpus, &online)
                && let Some(cpu) = cpus.iter().find(|cpu| !online.iter().any(|o| o == **cpu))
            {
                let what = format!("there is no CPU {cpu} here, only {online}");
                return Err(of_member(HostError::NobodyThere { what }));
            }
            let key = self.key_of(member, plan);
            let found = match (key, resolve::resolve(&member.member)) {
                // Who has joined since the last look of a name, and a number that is another's by
                // now, are not what was asked for.
                (Some(key), _) if amend => self.left_of(key),
                // It has ended as a member; what it has started may still be one.
                (Some(key), Err(HostError::NoProcess { .. } | HostError::NobodyThere { .. })) => {
                    self.left_of(key)
                }
                (_, found) => found.map_err(of_member)?,
            };
            for wanted in found {
                if let Some(other) = desired.iter().find(|other| overlap(&other.wanted, &wanted)) {
                    let what = format!("it is a member before, at groups{}", other.key);
                    return Err(of_member(HostError::NobodyThere { what }));
                }
                desired.push(Desired { key: member.key.clone(), wanted, given: given.clone() });
            }
        }
        // What a member has started without a control group goes where the member goes.
        for held in &self.held {
            let Some(root) = held.born_of.filter(|_| !held.has_ended()) else { continue };
            let of_root = desired.iter().find(|desired| {
                matches!(&desired.wanted, Wanted::There(Who::Process(process)) if *process == root)
            });
            if let Some(Desired { key, given, .. }) = of_root.cloned() {
                desired.push(Desired { key, wanted: Wanted::There(held.who.clone()), given });
            }
        }
        Ok(desired)
    }

    /// Where a member of a new plan stands in the plan in force, if it is there. Several programs
    /// can be written alike; they are told apart by their order.
    fn key_of(&self, member: &Assignment, plan: &GroupPlan) -> Option<&str> {
        let alike = |other: &&Assignment| other.member == member.member;
        let nth = plan.members().filter(alike).position(|other| other.key == member.key)?;
        let mut of_plan = self.plan.iter().flat_map(GroupPlan::members).filter(alike);
        of_plan.nth(nth).map(|other| other.key.as_str())
    }

    /// Who is held as the member that stands there, and not only for having been started by it.
    fn left_of(&self, key: &str) -> Vec<Wanted> {
        let held = self.held.iter().filter(|held| held.key == key);
        let roots = held.filter(|held| held.born_of.is_none() && !held.has_ended());
        roots.map(|held| Wanted::There(held.who.clone())).collect()
    }

    fn step(
        &mut self,
        step: &Step,
        who: &[Who],
        desired: &[Desired],
        plan: &GroupPlan,
        done: &mut Vec<Inverse>,
    ) -> Result<(), HostError> {
        match step.what {
            What::Join(to) => {
                let Desired { key, wanted, given } = &desired[to];
                let held = match wanted {
                    Wanted::There(who) => self.join(key, who, given.clone(), None)?,
                    Wanted::Program(run) => self.start(key, run, given)?,
                };
                done.push(match wanted {
                    Wanted::There(_) => Inverse::Unjoin(held.who.clone()),
                    Wanted::Program(_) => Inverse::Unstart(held.who.clone()),
                });
                self.held.push(held);
                Ok(())
            }
            What::Change(from, to) => {
                let index = self.index_of(&who[from]);
                let journal = Arc::clone(&self.journal);
                let held = &mut self.held[index];
                let (key, before) = (held.key.clone(), held.given.clone());
                held.change(&journal, desired[to].given.clone())?;
                held.key.clone_from(&desired[to].key);
                done.push(Inverse::ChangeBack(who[from].clone(), key, before));
                Ok(())
            }
            What::Again(from, to) => {
                let born_of = self.held[self.index_of(&who[from])].born_of;
                self.leave(&who[from], done)?;
                let Desired { key, given, .. } = &desired[to];
                let held = self.join(key, &who[from], given.clone(), born_of)?;
                done.push(Inverse::Unjoin(held.who.clone()));
                self.held.push(held);
                Ok(())
            }
            What::Leave(from) => self.leave(&who[from], done),
            What::Windows => self.install(plan),
        }
    }

    fn join(
        &self,
        key: &str,
        who: &Who,
        given: Given,
        born_of: Option<Process>,
    ) -> Result<Held, HostError> {
        let joined = Held::join(&self.journal, key, who.clone(), given);
        joined.map(|held| Held { born_of, ..held }).map_err(|source| match source {
            gone @ HostError::NoProcess { .. } => gone,
            source => HostError::GroupMember { member: who.to_string(), source: Box::new(source) },
        })
    }

    /// Starts a program, which waits before its first instruction until it is a member.
    fn start(&mut self, key: &str, run: &[String], given: &Given) -> Result<Held, HostError> {
        let failed = |e| HostError::kernel(format!("start `{}`", run.join(" ")), e);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "kill -STOP $$ && exec \"$@\"", "sh"]).args(run);
        command.stdin(Stdio::null());
        let mut child = namespace::spawn(command, None, OnParentDeath::Kill).map_err(failed)?;
        let begin = || {
            let process = Process::of(child.id()).map_err(failed)?;
            let kill = Undo::KillProcess { pid: process.pid, start_ticks: process.start_ticks };
            let kill = self.journal.record(kill)?;
            let begin = || {
                let give_up = Instant::now() + START;
                while !process.is_stopped() {
                    if !process.is_alive() || Instant::now() > give_up {
                        return Err(failed(std::io::Error::other("it does not start")));
                    }
                    thread::sleep(Duration::from_micros(200));
                }
                let who = Who::Program { run: run.to_vec(), process };
                let mut held = self.join(key, &who, given.clone(), None)?;
                // By signals it is stopped already, and goes on with its first window.
                let by_signals = held.gates().iter().any(|gate| matches!(gate, Gate::Signals(_)));
                if given.windowed && by_signals {
                    return Ok(held);
                }
                match process.go_on().map_err(failed) {
                    Ok(()) => Ok(held),
                    Err(error) => held.leave(&self.journal).and(Err(error)),
                }
            };
            match begin() {
                Ok(held) => Ok((held, process, kill)),
                Err(error) => self.journal.undo(kill).and(Err(error)),
            }
        };
        match begin() {
            Ok((held, process, kill)) => {
                self.programs.push(Program { process, child, kill });
                Ok(held)
            }
            Err(error) => {
                // It may have ended already.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn index_of(&self, who: &Who) -> usize {
        let found = self.held.iter().position(|held| held.who == *who);
        found.expect("invariant: who is named by a step is held")
    }

    fn leave(&mut self, who: &Who, done: &mut Vec<Inverse>) -> Result<(), HostError> {
        let index = self.index_of(who);
        let journal = Arc::clone(&self.journal);
        let held = &mut self.held[index];
        held.leave(&journal)?;
        let Held { key, who, given, born_of, .. } = self.held.remove(index);
        done.push(Inverse::Rejoin { key, who, given, born_of });
        Ok(())
    }

    /// Ends a program and lets it go.
    fn end(&mut self, who: &Who) -> Result<(), HostError> {
        let index = self.index_of(who);
        let mut held = self.held.remove(index);
        // What it has started ends too, where the kernel can do that.
        let places = held.parts.iter().filter_map(|part| match part {
            Part::Threads { release, .. } => release.place.as_ref(),
            Part::Setting { .. } => None,
        });
        for place in places {
            let _ = place.kill();
        }
        let ended = self.reap(who);
        let left = held.leave(&self.journal);
        self.wait_for_ended(TIMEOUT);
        ended.and(left)
    }

    /// Waits a while for programs that were ended. Not longer: another member of their priority
    /// that never sleeps can keep them from dying.
    fn wait_for_ended(&mut self, timeout: Duration) {
        let give_up = Instant::now() + timeout;
        loop {
            self.ended.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if self.ended.is_empty() || Instant::now() > give_up {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the process of a program, if it has not ended.
    fn reap(&mut self, who: &Who) -> Result<(), HostError> {
        let Who::Program { process, .. } = who else { return Ok(()) };
        let index = self.programs.iter().position(|program| program.process == *process);
        let Some(index) = index else { return Ok(()) };
        let program = self.programs.remove(index);
        self.ended.push(program.child);
        self.journal.undo(program.kill)
    }

    /// Takes steps back, the latest first, so that the plan before is in force again.
    fn take_back(&mut self, done: Vec<Inverse>) -> Result<(), HostError> {
        let mut failures = Vec::new();
        for inverse in done.into_iter().rev() {
            let result = match inverse {
                Inverse::Unstart(who) => self.end(&who),
                Inverse::Unjoin(who) => self.leave(&who, &mut Vec::new()),
                Inverse::ChangeBack(who, key, given) => {
                    let index = self.index_of(&who);
                    let journal = Arc::clone(&self.journal);
                    self.held[index].key = key;
                    self.held[index].change(&journal, given)
                }
                Inverse::Rejoin { key, who, given, born_of } => {
                    self.join(&key, &who, given, born_of).map(|held| self.held.push(held))
                }
            };
            match result {
                // Who has ended meanwhile is not missed.
                Ok(()) | Err(HostError::NoProcess { .. }) => {}
                Err(error) => failures.push(error.to_string()),
            }
        }
        let windows = match self.plan.clone() {
            Some(plan) => self.install(&plan),
            None => self.supervisor.install(Vec::new(), 1),
        };
        failures.extend(windows.err().map(|error| error.to_string()));
        if failures.is_empty() {
            return Ok(());
        }
        Err(HostError::NotUndone { path: self.journal.path().to_owned(), failures })
    }

    /// Keeps the windows of a plan.
    fn install(&mut self, plan: &GroupPlan) -> Result<(), HostError> {
        let of_member = |member: &Assignment| {
            let windows = member.windows.clone()?;
            let its = self.held.iter().filter(|held| held.key == member.key);
            let gates = its.flat_map(Held::gates).collect();
            Some(Windowed { key: member.key.clone(), windows, gates })
        };
        let windowed = plan.members().filter_map(of_member).collect();
        self.supervisor.install(windowed, plan.supervisor_priority)
    }

    /// Looks for what members have started and who has ended. Call it every
    /// [`super::POLL_INTERVAL`].
    ///
    /// **Errors**: windows are not kept any more; let the model go.
    pub fn follow(&mut self) -> Result<(), HostError> {
        if self.supervisor.has_failed() {
            let source = std::io::Error::other("the thread that opens windows has ended");
            return Err(HostError::kernel("keep the windows", source));
        }
        let Some(plan) = self.plan.clone() else { return Ok(()) };
        let mut changed = self.forget_ended();
        for (key, who, given, born_of) in self.newcomers(&plan) {
            let windowed = given.windowed;
            match self.join(&key, &who, given, born_of) {
                Ok(held) => {
                    self.held.push(held);
                    changed |= windowed;
                }
                Err(HostError::NoProcess { .. }) => {}
                Err(error) => self.trouble(format!("{who}: {error}")),
            }
        }
        if changed { self.install(&plan) } else { Ok(()) }
    }

    fn trouble(&mut self, what: String) {
        if !self.troubles.contains(&what) && self.troubles.len() < MAX_TROUBLES {
            self.troubles.push(what);
        }
    }

    /// Whether one with windows is among them.
    fn forget_ended(&mut self) -> bool {
        self.wait_for_ended(Duration::ZERO);
        for program in &mut self.programs {
            // Without this it stays as a zombie.
            let _ = program.child.try_wait();
        }
        let mut windowed = false;
        let mut index = 0;
        while index < self.held.len() {
            if !self.held[index].has_ended() {
                index += 1;
                continue;
            }
            let journal = Arc::clone(&self.journal);
            match self.held[index].leave(&journal) {
                Ok(()) => {
                    let held = self.held.remove(index);
                    windowed |= held.given.windowed;
                    if let Err(error) = self.reap(&held.who) {
                        self.trouble(error.to_string());
                    }
                }
                Err(error) => {
                    self.trouble(error.to_string());
                    index += 1;
                }
            }
        }
        windowed
    }

    /// Who is to be a member since the last look: threads by their name, and what members without
    /// a control group have started.
    fn newcomers(&self, plan: &GroupPlan) -> Vec<(String, Who, Given, Option<Process>)> {
        let mut found = Vec::new();
        let is_new = |who: &Who| self.held.iter().all(|held| held.who != *who);
        for member in plan.members() {
            let by_thread = matches!(&member.member, MemberKind::Process(p) if p.thread.is_some());
            if by_thread {
                for wanted in resolve::resolve(&member.member).unwrap_or_default() {
                    if let Wanted::There(who) = wanted
                        && is_new(&who)
                    {
                        found.push((member.key.clone(), who, given(member), None));
                    }
                }
            }
        }
        let not_scheduled = self.held.iter().filter(|held| {
            held.parts.iter().any(|part| {
                matches!(part, Part::Threads { release, reach: Reach::All, .. }
                    if release.place.is_none())
            })
        });
        for held in not_scheduled.filter(|held| held.born_of.is_none()) {
            let (Who::Process(root) | Who::Program { process: root, .. }) = &held.who else {
                continue;
            };
            // Children whose parent has ended are known by having been found before.
            let family = self.held.iter().filter(|other| other.born_of == Some(*root));
            let pids: BTreeSet<u32> = family.chain([held]).flat_map(Held::processes).collect();
            for child in resolve::descendants(&pids) {
                let who = Who::Process(child);
                if is_new(&who) {
                    found.push((held.key.clone(), who, held.given.clone(), Some(*root)));
                }
            }
        }
        found
    }

    /// Ends it: all have what they had before. Dropping does the same, and only prints what fails.
    ///
    /// **Errors**: what could not be undone; the journal still has it.
    pub fn finish(mut self) -> Result<(), HostError> {
        self.release_all()
    }

    fn release_all(&mut self) -> Result<(), HostError> {
        let mut failures = Vec::new();
        // All of them first: one that goes on could keep another from dying.
        for program in &self.programs {
            let _ = program.process.kill();
        }
        let windows = self.supervisor.install(Vec::new(), 1);
        failures.extend(windows.err().map(|error| error.to_string()));
        while let Some(last) = self.held.last().map(|held| held.who.clone()) {
            let result = match last {
                Who::Program { .. } => self.end(&last),
                _ => self.leave(&last, &mut Vec::new()),
            };
            if let Err(error) = result {
                failures.push(error.to_string());
                self.held.retain(|held| held.who != last);
            }
        }
        self.wait_for_ended(START);
        self.go_back();
        if failures.is_empty() {
            return Ok(());
        }
        Err(HostError::NotUndone { path: self.journal.path().to_owned(), failures })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Err(error) = self.release_all() {
            let _ = writeln!(std::io::stderr(), "timewire: {error}");
        }
    }
}

/// What a plan depends on, as it is on this host.
pub fn facts() -> Facts {
    let Ok(online) = online_cpus() else { return Facts::unknown() };
    let cpus = u32::try_from(online.iter().count()).unwrap_or(u32::MAX);
    let setting = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok()?;
        u64::try_from(text.trim().parse::<i64>().ok()?).ok()
    };
    // A runtime of -1 is no bound.
    let share = setting("sched_rt_runtime_us").zip(setting("sched_rt_period_us"));
    let runtime = fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").unwrap_or_default();
    let mut facts =
        Facts::of(cpus, share.map(|(runtime, period)| runtime * 1_000_000 / period.max(1)));
    facts.is_unbounded = runtime.trim() == "-1";
    facts.polled = resolve::polled();
    facts
}

fn given(member: &Assignment) -> Given {
    Given {
        scheduling: member.scheduling,
        cpus: member.cpus.as_ref().map(|cpus| cpus.iter().collect()),
        windowed: member.windows.is_some(),
    }
}

/// Whether two speak of the same threads.
fn overlap(a: &Wanted, b: &Wanted) -> bool {
    let (Wanted::There(a), Wanted::There(b)) = (a, b) else { return false };
    match (a, b) {
        (Who::Process(whole), Who::Thread { process, .. })
        | (Who::Thread { process, .. }, Who::Process(whole)) => whole == process,
        _ => a == b,
    }
}

/// How long a program may take to wait for its first instruction.
const START: Duration = Duration::from_secs(10);
/// How long a step waits for a program that it has ended.
const TIMEOUT: Duration = Duration::from_millis(200);
const MAX_TROUBLES: usize = 32;
