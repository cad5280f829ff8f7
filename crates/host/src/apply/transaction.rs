// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A change of a host as one transaction: observe, plan, record, do, read back, compare; and the
//! way back, from any point, to exactly what was there.
//!
//! Both ways are driven by what the host has, not by what was done: a step that was half done, or
//! done twice, is brought to its end in the same way.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use timewire_base::IfName;

use super::change::Goal;
use super::command::Command;
use super::plan::{DOWN, Goals, Plan, Refusal, Step, diff};
use super::setting::{Difference, Setting, Settings, Value};
use crate::HostError;

/// A host whose settings can be read and changed.
pub trait Host {
    /// What a setting has. That there is no such thing, or that the host does not say, is a value.
    ///
    /// **Errors**: a tool is missing, or says something that is not understood.
    fn observe(&mut self, setting: &Setting) -> Result<Value, HostError>;

    /// The VLAN sub-interfaces of an interface.
    ///
    /// **Errors**: as for `observe`.
    fn upper(&mut self, interface: &IfName) -> Result<Vec<IfName>, HostError>;

    /// Carries out a command.
    ///
    /// **Errors**: it failed.
    fn execute(&mut self, command: &Command) -> Result<(), HostError>;
}

/// Where a transaction is recorded.
pub trait Log {
    /// Appends an entry; it is kept for good when this returns.
    ///
    /// **Errors**: it is not.
    fn append(&mut self, entry: &Entry) -> Result<(), HostError>;
}

/// An entry of the record of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// What was there and what is to be done; nothing of it was done yet.
    Began {
        /// What was there, of all settings that are changed or may be disturbed.
        before: Settings,
        /// What is desired.
        desired: Settings,
        /// The steps.
        plan: Plan,
    },
    /// A step is done next.
    Step {
        /// Its number, from 0.
        step: usize,
    },
    /// Further steps, because the first ones disturbed something.
    Again {
        /// They follow those that are there already.
        plan: Plan,
    },
    /// All was done and was read back.
    Applied {
        /// What is there now.
        after: Settings,
        /// When it is taken back by itself unless confirmed; nanoseconds since boot.
        confirm_by_ns: Option<u64>,
    },
    /// It stays.
    Confirmed,
    /// What is restored, whatever is there now; nothing of that was done yet.
    Undoing {
        /// What is to be there: what was there before, but for what someone else changed since.
        goals: Settings,
    },
    /// Restoring ended, with differences.
    Left {
        /// What is not as it was.
        differences: Vec<Difference>,
    },
}

/// What a record says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoLog {
    /// What was there before.
    pub before: Settings,
    /// What is desired.
    pub desired: Settings,
    /// All steps.
    pub steps: Vec<Step>,
    /// How many of them were begun.
    pub begun: usize,
    /// What was there after, when all was done.
    pub after: Option<Settings>,
    /// When it is taken back by itself; nanoseconds since boot.
    pub confirm_by_ns: Option<u64>,
    /// What was being restored.
    pub undoing: Option<Settings>,
    /// What was left when restoring ended.
    pub left: Vec<Difference>,
}

impl UndoLog {
    /// Takes one more entry in.
    pub fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Began { before, desired, plan } => {
                *self = UndoLog { before, desired, steps: plan.steps, ..UndoLog::default() };
            }
            Entry::Step { step } => self.begun = self.begun.max(step + 1),
            Entry::Again { plan } => self.steps.extend(plan.steps),
            Entry::Applied { after, confirm_by_ns } => {
                self.after = Some(after);
                self.confirm_by_ns = confirm_by_ns;
            }
            Entry::Confirmed => self.confirm_by_ns = None,
            Entry::Undoing { goals } => self.undoing = Some(goals),
            Entry::Left { differences } => self.left = differences,
        }
    }

    /// The settings that the steps that were begun change or may disturb.
    fn touched(&self) -> BTreeSet<Setting> {
        let begun = self.steps.iter().take(self.begun);
        let changed: BTreeSet<Setting> = begun.map(|step| step.setting.clone()).collect();
        let disturbed = changed.iter().flat_map(|setting| self.disturbed(setting));
        let disturbed: BTreeSet<Setting> = disturbed.collect();
        changed.into_iter().chain(disturbed).collect()
    }

    /// The settings of the snapshot that a change of this one may disturb.
    fn disturbed(&self, setting: &Setting) -> Vec<Setting> {
        let interface = setting.interface().map(IfName::as_str);
        let of_vlan = |(setting, value): (&Setting, &Value)| match (setting, value) {
            (Setting::Vlan { interface: name }, Value::Fields(fields)) => {
                (fields.get("link").map(String::as_str) == interface).then(|| name.clone())
            }
            _ => None,
        };
        let upper: Vec<IfName> = self.before.iter().filter_map(of_vlan).collect();
        let disturbed = setting.may_disturb(&upper).into_iter();
        disturbed.filter(|setting| self.before.has(setting)).collect()
    }
}

/// What a transaction came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// All is as desired already; nothing was changed, nothing is recorded.
    Nothing,
    /// All was done.
    Done {
        /// What is there now.
        after: Settings,
    },
}

/// A transaction that did not come to its end.
#[derive(Debug)]
pub enum Failure {
    /// Nothing was changed.
    Refused(Vec<Refusal>),
    /// The host could not be read, or nothing could be recorded; nothing was changed.
    Unread(HostError),
    /// A step failed, or did not take. What was done was taken back.
    Failed {
        /// Which, as `step 3 of 7 (eth0: MTU)`.
        at: String,
        /// Why.
        why: String,
        /// What could not be restored; none is a host as it was.
        left: Vec<Difference>,
        /// Why not.
        reasons: Vec<String>,
    },
}

/// All settings that are to be read for a desired configuration: its own, and all that changing
/// them may disturb.
///
/// **Errors**: the host cannot be read.
pub fn scope(host: &mut dyn Host, desired: &Settings) -> Result<BTreeSet<Setting>, HostError> {
    let mut scope: BTreeSet<Setting> = desired.keys().cloned().collect();
    for setting in desired.keys() {
        let upper = match setting.interface() {
            Some(interface) => host.upper(interface)?,
            None => Vec::new(),
        };
        scope.extend(setting.may_disturb(&upper));
    }
    Ok(scope)
}

/// Reads these settings.
///
/// **Errors**: the host cannot be read.
pub fn observe<'a>(
    host: &mut dyn Host,
    settings: impl IntoIterator<Item = &'a Setting>,
) -> Result<Settings, HostError> {
    let mut observed = Settings::new();
    for setting in settings {
        observed.set(setting.clone(), host.observe(setting)?);
    }
    Ok(observed)
}

/// The goals of a desired configuration: what is desired, and all else as it was. An interface that
/// is to be down cannot keep its addresses and routes, and one that is to have other channels only
/// the CPUs of those queues that there are `now`.
fn goals(desired: &Settings, before: &Settings, now: &Settings) -> Goals {
    let goes_down = |interface: &IfName| {
        let link = Setting::Link { interface: interface.clone() };
        *desired.get(&link) == Value::text(DOWN)
    };
    let stays = |setting: &Setting| match setting {
        Setting::Addresses { interface }
        | Setting::Neighbours { interface }
        | Setting::Routes { interface } => !goes_down(interface),
        // A sub-interface carries no longer packets than the interface below it.
        Setting::Mtu { .. } => false,
        // How many there are depends on other settings, and none of them was asked about.
        Setting::Threads { .. } => false,
        _ => true,
    };
    let mut goals = Goals::new();
    for (setting, value) in before.iter() {
        if desired.has(setting) {
            goals.insert(setting.clone(), Goal::desired(desired.get(setting).clone()));
        } else if let Setting::Rps { interface } | Setting::Xps { interface } = setting
            && desired.has(&Setting::Channels { interface: interface.clone() })
        {
            goals.insert(setting.clone(), Goal::desired(value.common(now.get(setting))));
        } else if stays(setting) && value.is_known() {
            goals.insert(setting.clone(), Goal::exactly(value.clone()));
        }
    }
    goals
}

/// Compares a host with a desired configuration: what is there, and what is to be done.
///
/// **Errors**: the host cannot be read, or what is desired cannot be done, or not be taken back.
pub fn plan(host: &mut dyn Host, desired: &Settings) -> Result<(Settings, Plan), Failure> {
    let scope = scope(host, desired).map_err(Failure::Unread)?;
    let before = observe(host, &scope).map_err(Failure::Unread)?;
    let (plan, refusals) = diff(&before, &goals(desired, &before, &before));
    if refusals.is_empty() { Ok((before, plan)) } else { Err(Failure::Refused(refusals)) }
}

/// Brings a host to a desired configuration.
///
/// `confirm_by_ns` says, when all is done, by when it must be confirmed; `progress` hears of each
/// step before it is done.
///
/// **Errors**: [`Failure`]; but for what it names, the host is as it was.
pub fn apply(
    host: &mut dyn Host,
    log: &mut dyn Log,
    desired: &Settings,
    confirm_by_ns: &dyn Fn() -> Option<u64>,
    progress: &mut dyn FnMut(usize, usize, &Step),
) -> Result<TransactionOutcome, Failure> {
    let (before, plan) = plan(host, desired)?;
    if plan.steps.is_empty() {
        return Ok(TransactionOutcome::Nothing);
    }
    let began = Entry::Began { before, desired: desired.clone(), plan };
    log.append(&began).map_err(Failure::Unread)?;
    let mut undo_log = UndoLog::default();
    undo_log.take(began);
    match carry_out(host, log, &mut undo_log, progress) {
        Ok(after) => {
            let applied = Entry::Applied { after: after.clone(), confirm_by_ns: confirm_by_ns() };
            match log.append(&applied) {
                Ok(()) => Ok(TransactionOutcome::Done { after }),
                Err(error) => Err(take_back(
                    host,
                    log,
                    &undo_log,
                    ("the record".to_owned(), error.to_string()),
                )),
            }
        }
        Err(failed) => Err(take_back(host, log, &undo_log, failed)),
    }
}

/// Where it failed, and why.
type Failed = (String, String);

fn carry_out(
    host: &mut dyn Host,
    log: &mut dyn Log,
    undo_log: &mut UndoLog,
    progress: &mut dyn FnMut(usize, usize, &Step),
) -> Result<Settings, Failed> {
    let reading = |error: HostError| ("reading back".to_owned(), error.to_string());
    for _ in 0..ROUNDS {
        while undo_log.begun < undo_log.steps.len() {
            let (step, count) = (undo_log.begun, undo_log.steps.len());
            let what = undo_log.steps[step].clone();
            progress(step, count, &what);
            let at = || format!("step {} of {count} ({})", step + 1, what.setting);
            let entry = Entry::Step { step };
            log.append(&entry).map_err(|error| (at(), error.to_string()))?;
            undo_log.take(entry);
            for command in &what.commands {
                host.execute(command).map_err(|error| (at(), error.to_string()))?;
            }
        }
        let after = observe(host, undo_log.before.keys()).map_err(reading)?;
        let goals = goals(&undo_log.desired, &undo_log.before, &after);
        let (plan, refusals) = diff(&after, &goals);
        if let Some(refusal) = refusals.first() {
            return Err(("reading back".to_owned(), refusal.to_string()));
        }
        if plan.steps.is_empty() {
            return match unmet(&goals, &after) {
                None => Ok(after),
                Some(difference) => Err(("reading back".to_owned(), difference.to_string())),
            };
        }
        let again = Entry::Again { plan };
        log.append(&again).map_err(|error| ("the record".to_owned(), error.to_string()))?;
        undo_log.take(again);
    }
    let after = observe(host, undo_log.before.keys()).map_err(reading)?;
    let why = unmet(&goals(&undo_log.desired, &undo_log.before, &after), &after).map_or_else(
        || "it takes more and more steps".to_owned(),
        |difference| format!("after {ROUNDS} attempts, {difference}"),
    );
    Err(("reading back".to_owned(), why))
}

/// The first goal that is not met.
fn unmet(goals: &Goals, have: &Settings) -> Option<Difference> {
    let (setting, goal) =
        goals.iter().find(|(setting, goal)| !goal.is_met_by(have.get(setting)))?;
    let (was, is) = (goal.value.clone(), have.get(setting).clone());
    Some(Difference { setting: setting.clone(), was, is })
}

fn take_back(
    host: &mut dyn Host,
    log: &mut dyn Log,
    undo_log: &UndoLog,
    (at, why): Failed,
) -> Failure {
    let Undone { left, reasons, .. } = roll_back(host, log, undo_log);
    Failure::Failed { at, why, left, reasons }
}

/// What restoring came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// What was restored.
    pub restored: Vec<Setting>,
    /// What is not as it was.
    pub left: Vec<Difference>,
    /// Why it is not.
    pub reasons: Vec<String>,
}

/// Takes back what a transaction did that did not come to its end: all that its begun steps change
/// or may disturb, whatever it has now.
pub fn roll_back(host: &mut dyn Host, log: &mut dyn Log, undo_log: &UndoLog) -> Undone {
    let goals = match &undo_log.undoing {
        Some(goals) => goals.clone(),
        None => {
            let touched = undo_log.touched();
            undo_log.before.only(|setting| touched.contains(setting))
        }
    };
    let recorded = log.append(&Entry::Undoing { goals: goals.clone() });
    let mut undone = restore(host, &goals);
    // A host is restored also when that cannot be recorded.
    undone.reasons.extend(recorded.err().map(|error| error.to_string()));
    finish(log, undone)
}

fn finish(log: &mut dyn Log, mut undone: Undone) -> Undone {
    if !undone.left.is_empty() {
        let entry = Entry::Left { differences: undone.left.clone() };
        undone.reasons.extend(log.append(&entry).err().map(|error| error.to_string()));
    }
    undone
}

/// Takes back a transaction that came to its end. What someone else changed since stays, and is
/// told, unless `force`; what only may have been disturbed and was changed since always stays.
///
/// **Errors**: the host cannot be read; nothing was changed.
pub fn undo(
    host: &mut dyn Host,
    log: &mut dyn Log,
    undo_log: &UndoLog,
    force: bool,
) -> Result<Undone, HostError> {
    let Some(after) = &undo_log.after else {
        let mut undone = roll_back(host, log, undo_log);
        if force {
            let now = observe(host, &undo_log.touched())?;
            undone.left.retain(|left| !is_gone_for_good(&left.setting, &now, &undo_log.before));
        }
        return Ok(undone);
    };
    let touched = undo_log.touched();
    let mut now = observe(host, &touched)?;
    if force {
        // What belonged to an interface that is gone is gone with it; nothing can restore it.
        now = now.only(|setting| !is_gone_for_good(setting, &now, &undo_log.before));
    }
    // All others were only given back what they had.
    let is_changed = |setting: &Setting| undo_log.desired.has(setting);
    let mut goals = Settings::new();
    let mut foreign = Vec::new();
    for (setting, is) in now.iter() {
        let was = undo_log.before.get(setting);
        let is_ours = is.is_same(was)
            || match &undo_log.undoing {
                // An earlier undo has decided it.
                Some(goals) => goals.get(setting).is_same(was),
                None => is.is_same(after.get(setting)) || is_as_desired(undo_log, setting, is),
            };
        if is_ours || (force && is_changed(setting)) {
            goals.set(setting.clone(), was.clone());
            continue;
        }
        if !is_changed(setting) {
            // What an earlier undo may have disturbed is to be as that found it.
            let found = undo_log.undoing.as_ref().map_or(is, |goals| goals.get(setting));
            goals.set(setting.clone(), found.clone());
            continue;
        }
        goals.set(setting.clone(), is.clone());
        let (setting, was, is) = (setting.clone(), was.clone(), is.clone());
        foreign.push(Difference { setting, was, is });
    }
    let recorded = log.append(&Entry::Undoing { goals: goals.clone() });
    let mut undone = restore(host, &goals);
    // A host is restored also when that cannot be recorded.
    undone.reasons.extend(recorded.err().map(|error| error.to_string()));
    for difference in foreign {
        let why = "someone else changed it since (--force restores it all the same)";
        undone.reasons.push(format!("{}: {why}", difference.setting));
        undone.left.push(difference);
    }
    Ok(finish(log, undone))
}

/// Whether a setting is one of an interface that is not there any more and cannot come back: a
/// VLAN interface can, as long as the one below it is there.
fn is_gone_for_good(setting: &Setting, now: &Settings, before: &Settings) -> bool {
    if *now.get(setting) != Value::Absent {
        return false;
    }
    let is_gone = |interface: &str| {
        let mut of_it = now.iter().filter(|(setting, _)| {
            let comes_and_goes = matches!(setting, Setting::Vlan { .. } | Setting::Threads { .. });
            let name = setting.interface().map(IfName::as_str);
            name == Some(interface) && !comes_and_goes
        });
        of_it.any(|(_, is)| *is == Value::Absent)
    };
    let below = |vlan: &IfName| match before.get(&Setting::Vlan { interface: vlan.clone() }) {
        Value::Fields(fields) => fields.get("link").cloned(),
        _ => None,
    };
    let Some(interface) = setting.interface() else { return false };
    match setting {
        Setting::Threads { .. } => false,
        Setting::Vlan { .. } => below(interface).is_some_and(|link| is_gone(&link)),
        _ => below(interface).is_none_or(|link| is_gone(&link)),
    }
}

/// Whether disciplines are still the desired ones. A taprio that has started since shows a bound
/// for payloads that it did not show before.
fn is_as_desired(undo_log: &UndoLog, setting: &Setting, is: &Value) -> bool {
    matches!(setting, Setting::Qdiscs { .. })
        && undo_log.desired.has(setting)
        && undo_log.desired.get(setting).is_met_by(is)
}

/// Brings settings to what they are to have. What fails is tried again in the next round, since
/// another step may have stood in its way.
fn restore(host: &mut dyn Host, values: &Settings) -> Undone {
    let goals: Goals = values
        .iter()
        .map(|(setting, value)| (setting.clone(), Goal::exactly(value.clone())))
        .collect();
    let mut restored = BTreeSet::new();
    let mut failures: BTreeMap<Setting, String> = BTreeMap::new();
    for round in 1..=ROUNDS {
        let Ok(now) = observe(host, values.keys()) else { break };
        let (plan, refusals) = diff(&now, &goals);
        failures = refusals.into_iter().map(|refusal| (refusal.setting, refusal.why)).collect();
        if plan.steps.is_empty() {
            break;
        }
        let mut still_up = BTreeSet::new();
        let mut held = BTreeSet::new();
        let mut unmade = BTreeSet::new();
        for step in plan.steps {
            let interface = step.setting.interface().cloned();
            let is_link = matches!(step.setting, Setting::Link { .. });
            if is_link && unmade.contains(&interface) && round < ROUNDS {
                // Up with it, a taprio that was to be made anew would be taken for one that runs.
                continue;
            }
            if matches!(step.setting, Setting::Qdiscs { .. }) && still_up.contains(&interface) {
                // What needs the link to be down does harm while it is up.
                let why = "the link does not go down".to_owned();
                failures.insert(step.setting, why);
                continue;
            }
            // What comes after a step that failed may be what that needs, as a virtual pair needs
            // an offload and a link that is up for its threads to go.
            if held.contains(&interface) && round < ROUNDS && can_wait(&step.setting) {
                continue;
            }
            let done = step.commands.iter().try_for_each(|command| host.execute(command));
            match done {
                Ok(()) => drop(restored.insert(step.setting)),
                Err(error) => {
                    if matches!(step.setting, Setting::Qdiscs { .. }) {
                        unmade.insert(interface.clone());
                    }
                    if is_link && step.to == Value::text(DOWN) {
                        still_up.insert(interface.clone());
                    }
                    held.insert(interface);
                    failures.insert(step.setting, error.to_string());
                }
            }
        }
    }
    let left = match observe(host, values.keys()) {
        Ok(now) => values.differences(&now),
        Err(error) => unread(values, &error),
    };
    let is_left = |setting: &Setting| left.iter().any(|left| left.setting == *setting);
    restored.retain(|setting| !is_left(setting));
    let failures = failures.into_iter().filter(|(setting, _)| is_left(setting));
    let reasons = failures.map(|(setting, why)| format!("{setting}: {why}")).collect();
    Undone { restored: restored.into_iter().collect(), left, reasons }
}

/// Whether restoring a setting can wait for the next round.
fn can_wait(setting: &Setting) -> bool {
    !matches!(
        setting,
        Setting::Link { .. }
            | Setting::Qdiscs { .. }
            | Setting::Addresses { .. }
            | Setting::Neighbours { .. }
            | Setting::Routes { .. }
    )
}

/// A host that cannot be read may have anything.
fn unread(values: &Settings, error: &HostError) -> Vec<Difference> {
    let unknown = |(setting, was): (&Setting, &Value)| Difference {
        setting: setting.clone(),
        was: was.clone(),
        is: Value::Unknown(error.to_string()),
    };
    values.iter().map(unknown).collect()
}

/// What a setting of a transaction has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// What was applied.
    Applied,
    /// What it was before.
    Undone,
    /// Something else.
    Drifted,
}

/// Compares a host with what was applied.
///
/// **Shape**: of each setting that was changed, what was applied or desired, what it has, and which
/// of the three that is.
///
/// **Errors**: the host cannot be read.
pub fn status(
    host: &mut dyn Host,
    undo_log: &UndoLog,
) -> Result<Vec<(Difference, State)>, HostError> {
    let after = undo_log.after.as_ref().unwrap_or(&undo_log.desired);
    let changed = after.iter().filter(|(setting, value)| {
        undo_log.desired.has(setting)
            || (undo_log.before.get(setting) != *value && value.is_known())
    });
    let mut all = Vec::new();
    for (setting, value) in changed {
        let is = host.observe(setting)?;
        let state = if is.is_same(value) || undo_log.desired.has(setting) && value.is_met_by(&is) {
            State::Applied
        } else if is.is_same(undo_log.before.get(setting)) {
            State::Undone
        } else {
            State::Drifted
        };
        all.push((Difference { setting: setting.clone(), was: value.clone(), is }, state));
    }
    Ok(all)
}

/// How often what is there is read and what is missing done.
const ROUNDS: usize = 5;
