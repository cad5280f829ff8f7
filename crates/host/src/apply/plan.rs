// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From what a host has and what it is to have to the steps that change it, in an order in which
//! none of them spoils another.
//!
//! ```text
//! VLANs, sysctls -> link down -> disciplines away -> channels, rings, offloads, ... -> polling,
//! CPUs of queues -> disciplines -> CPUs of transmit queues -> link up -> addresses, routes ->
//! scheduling of threads
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use timewire_base::IfName;

use super::change::{Goal, NO_RECEIVE, commands, commands_again};
use super::command::Command;
use super::setting::{PollingFile, Setting, Settings, ThreadsOf, Value};
use super::tree::QdiscTree;

/// One change, and what takes it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is changed.
    pub setting: Setting,
    /// Why.
    pub reason: Reason,
    /// What it has before this step.
    pub from: Value,
    /// What it has after it.
    pub to: Value,
    /// What does it.
    pub commands: Vec<Command>,
    /// What takes it back.
    pub undo: Vec<Command>,
}

impl Step {
    /// `1500 -> 9000`; of fields, those that change.
    pub fn change(&self) -> String {
        let (from, to) = self.from.differing(&self.to);
        format!("{from} -> {to}")
    }
}

/// Why a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is desired, or it is restored.
    Goal,
    /// Another step needs it.
    Needed,
    /// Another step may have spoiled it.
    Kept,
}

/// Steps, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
}

/// Something that is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What was to be changed.
    pub setting: Setting,
    /// Why it is not.
    pub why: String,
    /// Whether this host, its NIC or its tools have no such thing.
    pub unsupported: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.why)
    }
}

/// What each setting is to be brought to.
pub type Goals = BTreeMap<Setting, Goal>;

/// What is to be done, and what cannot be done.
///
/// `observed` has every setting of `goals` and all that they may disturb.
pub fn diff(observed: &Settings, goals: &Goals) -> (Plan, Vec<Refusal>) {
    let mut planner = Planner { observed, goals, ranked: Vec::new(), refusals: Vec::new() };
    let own = |setting: &Setting| matches!(setting, Setting::Qdiscs { .. } | Setting::Link { .. });
    let unmet = goals.iter().filter(|(setting, goal)| !goal.is_met_by(observed.get(setting)));
    for (setting, goal) in unmet.filter(|(setting, _)| !own(setting)) {
        let from = planner.expected(setting);
        planner.change(rank(setting, &goal.value), setting, &from, goal);
    }
    let all = goals.keys().chain(observed.keys()).filter_map(Setting::interface);
    for interface in all.cloned().collect::<BTreeSet<IfName>>() {
        planner.interface(&interface);
    }
    planner.ranked.sort_by_key(|(rank, _)| *rank);
    let steps = planner.ranked.into_iter().map(|(_, step)| step).collect();
    (Plan { steps }, planner.refusals)
}

struct Planner<'a> {
    observed: &'a Settings,
    goals: &'a Goals,
    ranked: Vec<(u32, Step)>,
    refusals: Vec<Refusal>,
}

impl Planner<'_> {
    /// What a setting will have when its turn comes: queues come and go with channels.
    fn expected(&self, setting: &Setting) -> Value {
        let have = self.observed.get(setting);
        let (interface, own) = match setting {
            Setting::Rps { interface } => (interface, "rx"),
            Setting::Xps { interface } => (interface, "tx"),
            _ => return have.clone(),
        };
        let channels = Setting::Channels { interface: interface.clone() };
        let now = self.observed.get(&channels);
        let goal = self.goals.get(&channels).filter(|goal| !goal.is_met_by(now));
        let (Some(goal), Value::Fields(queues)) = (goal, have) else { return have.clone() };
        let Value::Fields(counts) = goal.whole(now) else { return have.clone() };
        let count = |name| counts.get(name).and_then(|count| count.parse::<usize>().ok());
        let count = count(own).unwrap_or(0) + count("combined").unwrap_or(0);
        let queue = |number: usize| number.to_string();
        let cpus = |queue: &String| queues.get(queue).cloned().unwrap_or_default();
        let expected = (0..count).map(queue).map(|queue| (queue.clone(), cpus(&queue)));
        Value::Fields(expected.collect())
    }

    fn change(&mut self, rank: u32, setting: &Setting, from: &Value, goal: &Goal) {
        let result = self.why_not(setting, from).map_or_else(
            || {
                let whole = goal.whole(from);
                let forward = commands(setting, from, goal)?;
                let undo = commands(setting, &whole, &Goal::exactly(from.clone()))
                    .map_err(|why| format!("cannot be restored: {why}"))?;
                Ok((whole, forward, undo))
            },
            Err,
        );
        match result {
            Ok((_, commands, _)) if commands.is_empty() => {}
            Ok((to, commands, undo)) => {
                let (setting, from) = (setting.clone(), from.clone());
                let step = Step { setting, reason: Reason::Goal, from, to, commands, undo };
                self.ranked.push((rank, step));
            }
            Err(why) => {
                // What is there and in the way is a refusal like any other.
                let is_in_the_way = matches!(
                    setting,
                    Setting::Marks { .. } | Setting::Routes { .. } | Setting::Qdiscs { .. }
                );
                let unsupported =
                    matches!(from, Value::Unknown(_) | Value::Absent) && !is_in_the_way;
                let setting = setting.clone();
                self.refusals.push(Refusal { setting, why, unsupported });
            }
        }
    }

    /// What is missing for a setting to be changed at all.
    fn why_not(&self, setting: &Setting, from: &Value) -> Option<String> {
        if *from != Value::Absent {
            return None;
        }
        let goal = |setting: &Setting| self.goals.get(setting).map(|goal| &goal.value);
        match setting {
            Setting::Vlan { .. } => None,
            Setting::Threads { interface, of: ThreadsOf::Napi } => {
                let file = PollingFile::Threaded;
                let threaded = Setting::Polling { interface: interface.clone(), file };
                let on = Value::text("1");
                let goal = goal(&threaded).unwrap_or_else(|| self.observed.get(&threaded));
                (*goal != on).then(|| "there are none: it needs `threaded: true`".to_owned())
            }
            Setting::Threads { .. } => Some("its interrupts have no threads".to_owned()),
            Setting::Sysctl { name } => {
                let made = |setting: &Setting| match setting {
                    Setting::Vlan { interface } => {
                        name.contains(&interface.as_str().replace('.', "/"))
                    }
                    _ => false,
                };
                let is_made = self.goals.keys().any(made);
                (!is_made).then(|| "this kernel has no such setting".to_owned())
            }
            other => {
                let interface = other.interface()?;
                let vlan = Setting::Vlan { interface: interface.clone() };
                let is_made = goal(&vlan).is_some_and(|value| *value != Value::Absent);
                (!is_made).then(|| format!("there is no interface {interface}"))
            }
        }
    }

    /// Link and disciplines of an interface, which depend on each other and on its channels.
    fn interface(&mut self, interface: &IfName) {
        let own = |make: fn(IfName) -> Setting| make(interface.clone());
        let link = own(|interface| Setting::Link { interface });
        let qdiscs = own(|interface| Setting::Qdiscs { interface });
        let channels = own(|interface| Setting::Channels { interface });
        let observed = self.observed;
        let is_unmet = |setting: &Setting| {
            self.goals.get(setting).is_some_and(|goal| !goal.is_met_by(observed.get(setting)))
        };
        let (have_link, have) = (observed.get(&link), observed.get(&qdiscs));
        let is_up = *have_link == Value::text(UP);
        let wants = match self.goals.get(&link) {
            Some(goal) => goal.value.clone(),
            None => have_link.clone(),
        };
        // A link that goes down ends a taprio's timer, which nothing but a new one starts again.
        let revives = !is_up
            && wants == Value::text(UP)
            && matches!(have, Value::Qdiscs(tree)
                if tree.own().next().is_some_and(|root| root.kind == "taprio"));
        let is_in_the_way =
            is_unmet(&channels) && matches!(have, Value::Qdiscs(tree) if !tree.is_of_kernel());
        let clears = is_in_the_way || revives;
        let installs = clears || is_unmet(&qdiscs);
        let kept = Goal::exactly(have.clone());
        let goal = self.goals.get(&qdiscs).unwrap_or(&kept);
        let cycles = installs
            && is_up
            && matches!(&goal.value, Value::Qdiscs(tree) if tree.needs_link_down());
        let (up, down) = (Value::text(UP), Value::text(DOWN));
        let wants_up = wants == up;
        let none = Value::Qdiscs(QdiscTree::of_kernel());
        let mut from = have;
        let refused = self.refusals.len();
        if clears {
            self.change(QDISCS_AWAY, &qdiscs, have, &Goal::desired(none.clone()));
            from = &none;
        }
        if installs {
            self.change(QDISCS, &qdiscs, from, goal);
        }
        if self.refusals.len() > refused {
            // Nothing may be done that would take away what cannot be built again.
            self.ranked.retain(|(_, step)| step.setting != channels && step.setting != qdiscs);
            if is_in_the_way {
                let why = "it would take the queueing disciplines away".to_owned();
                self.refusals.push(Refusal { setting: channels, why, unsupported: false });
            }
            return;
        }
        if is_up && (cycles || wants == down) {
            for setting in [
                own(|interface| Setting::Addresses { interface }),
                own(|interface| Setting::Routes { interface }),
            ] {
                if let Value::Unknown(why) = observed.get(&setting) {
                    let why = format!("they would be lost while the link is down: {why}");
                    self.refusals.push(Refusal { setting, why, unsupported: false });
                }
            }
            let gates = matches!(&goal.value, Value::Qdiscs(tree) if tree.needs_link_down());
            // While it is down, some things of a NIC cannot be changed.
            let rank = if installs && gates { LINK_DOWN } else { LINK_DOWN_LAST };
            self.change(rank, &link, &up, &Goal::desired(down.clone()));
            self.mark(&link, wants_up, interface);
        }
        if wants_up && (cycles || !is_up) {
            let from = if cycles { &down } else { have_link };
            self.change(LINK_UP, &link, from, &Goal::desired(up));
            self.mark(&link, cycles, interface);
        }
        if cycles && wants_up {
            self.keep_addresses(interface);
        }
    }

    /// Says of the last step that another one needs it, and lets its undo give back what going down
    /// takes.
    fn mark(&mut self, link: &Setting, is_needed: bool, interface: &IfName) {
        let again = self.again(interface);
        let last = self.ranked.last_mut().filter(|(_, step)| step.setting == *link);
        let Some((rank, step)) = last else { return };
        if is_needed {
            step.reason = Reason::Needed;
        }
        if matches!(*rank, LINK_DOWN | LINK_DOWN_LAST) {
            step.undo.extend(again.into_iter().flat_map(|(_, _, commands)| commands));
        }
    }

    /// Addresses and routes that an interface and those on top of it have, with what gives them
    /// back.
    fn again(&self, interface: &IfName) -> Vec<(Setting, Value, Vec<Command>)> {
        let is_on_top = |name: &IfName| {
            let vlan = self.observed.get(&Setting::Vlan { interface: name.clone() });
            matches!(vlan, Value::Fields(fields)
                if fields.get("link").map(String::as_str) == Some(interface.as_str()))
        };
        let all = self.observed.iter().filter(|(setting, _)| match setting {
            Setting::Addresses { interface: name }
            | Setting::Neighbours { interface: name }
            | Setting::Routes { interface: name } => name == interface || is_on_top(name),
            _ => false,
        });
        let mut again = Vec::new();
        for (setting, value) in all {
            let value = self.goals.get(setting).map_or(value, |goal| &goal.value);
            let commands = commands_again(setting, value);
            if !commands.is_empty() {
                again.push((setting.clone(), value.clone(), commands));
            }
        }
        again
    }

    fn keep_addresses(&mut self, interface: &IfName) {
        for (setting, value, commands) in self.again(interface) {
            // A step that brings them to their goal does it already.
            if self.ranked.iter().any(|(_, step)| step.setting == setting) {
                continue;
            }
            let rank = rank(&setting, &value);
            let (from, to) = (value.clone(), value);
            let reason = Reason::Kept;
            let step = Step { setting, reason, from, to, commands, undo: Vec::new() };
            self.ranked.push((rank, step));
        }
    }
}

/// The value of a link that is up.
pub(super) const UP: &str = "up";
/// The value of a link that is down.
pub(super) const DOWN: &str = "down";

const LINK_DOWN: u32 = 30;
const QDISCS_AWAY: u32 = 40;
const QDISCS: u32 = 90;
const LINK_UP: u32 = 100;
const LINK_DOWN_LAST: u32 = 105;

/// Where in the order a setting is changed, disciplines and links apart.
fn rank(setting: &Setting, to: &Value) -> u32 {
    match setting {
        Setting::Vlan { .. } if *to == Value::Absent => 10,
        Setting::Vlan { .. } => 20,
        Setting::Sysctl { .. } => 25,
        Setting::Link { .. } => LINK_DOWN,
        // Before they go.
        Setting::Threads { .. } if *to == Value::Absent => 45,
        // A virtual pair polls only with an offload that may go after this, or come before.
        Setting::Polling { file: PollingFile::Threaded, .. } if *to == Value::text("0") => 48,
        // A program of the driver's binds channels, MTU and offloads.
        Setting::Receive { .. } if *to == Value::text(NO_RECEIVE) => 46,
        Setting::Channels { .. } => 50,
        Setting::Rings { .. } => 51,
        Setting::Mtu { .. } => 52,
        Setting::Features { .. } => 53,
        Setting::Coalescing { .. } => 54,
        Setting::Eee { .. } => 55,
        Setting::MacMerge { .. } => 56,
        Setting::Timestamping { .. } => 57,
        Setting::Steering { .. } => 58,
        Setting::Receive { .. } => 59,
        Setting::Polling { .. } => 60,
        Setting::Rps { .. } => 70,
        Setting::Interrupts { .. } => 71,
        Setting::Qdiscs { .. } => QDISCS,
        Setting::Marks { .. } => 96,
        // Traffic classes forget them.
        Setting::Xps { .. } => 95,
        Setting::Addresses { .. } => 110,
        Setting::Neighbours { .. } => 115,
        Setting::Routes { .. } => 120,
        Setting::Threads { .. } => 130,
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            let why = match step.reason {
                Reason::Goal => step.change(),
                Reason::Needed => format!("{} (another step needs it)", step.change()),
                Reason::Kept => "again, because the link was down".to_owned(),
            };
            writeln!(f, "# step {}: {}: {why}", index + 1, step.setting)?;
            for command in &step.commands {
                writeln!(f, "{command}")?;
            }
            for command in &step.undo {
                writeln!(f, "#   undo: {command}")?;
            }
        }
        Ok(())
    }
}
