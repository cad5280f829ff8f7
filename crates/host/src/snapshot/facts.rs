// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host's part of a snapshot means for timing: a list of facts, each with a judgement.
//! What a host does not tell is left out or said to be missing.

use std::collections::BTreeMap;

use timewire_base::Span;

use super::model::{
    ClockSettings, ClockState, Cpus, HostSettings, HostState, Kernel, Preemption, Privilege,
    Reading, SchedulingSettings, Snapshot,
};
use super::read;
use super::source::Live;
use crate::HostError;
use crate::tool::Tool;

/// One fact about the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it is about: `kernel`, `cpu`, `clock`, `scheduling`, `privilege` or `tools`.
    pub area: &'static str,
    /// What was looked at.
    pub name: &'static str,
    /// What was found, and why it matters when it is not as it should be.
    pub value: String,
    /// Whether that is good enough.
    pub level: Level,
}

/// How good a fact is for exact timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be, or neutral.
    Ok,
    /// It works, less exactly.
    Degraded,
    /// Not available.
    Missing,
}

impl Snapshot {
    /// What the host's part of it says, judged.
    pub fn facts(&self) -> Vec<Fact> {
        judge(&self.settings.host, &self.state.host)
    }
}

/// Looks at this host, without its interfaces.
pub fn facts() -> Vec<Fact> {
    let (settings, state) = read::host_alone(&Live);
    judge(&settings, &state)
}

fn judge(settings: &HostSettings, state: &HostState) -> Vec<Fact> {
    let mut facts = kernel(&settings.kernel);
    facts.extend(cpu(&settings.cpus, &settings.kernel));
    facts.extend(clocks(&settings.clock, &state.clock));
    facts.extend(scheduling(&settings.scheduling, &settings.privilege));
    facts.extend(privilege(&settings.privilege));
    facts.extend(tools(&settings.tools));
    facts
}

fn fact(area: &'static str, name: &'static str, level: Level, value: impl Into<String>) -> Fact {
    Fact { area, name, value: value.into(), level }
}

/// The value of something that every host has, or why it cannot be told.
fn plain(reading: &Reading<String>) -> String {
    let text = reading.known().map(String::as_str).or_else(|| reading.why_not());
    text.unwrap_or_default().to_owned()
}

fn kernel(kernel: &Kernel) -> Vec<Fact> {
    let mut facts = vec![fact("kernel", "release", Level::Ok, plain(&kernel.release))];
    facts.push(preemption(kernel.preemption));
    if let Some(mode) = kernel.lockdown.known() {
        let level = if mode == "none" { Level::Ok } else { Level::Degraded };
        let note = if mode == "none" { "" } else { ": some tracing is refused" };
        facts.push(fact("kernel", "lockdown", level, format!("{mode}{note}")));
    }
    facts
}

fn preemption(found: Preemption) -> Fact {
    let model = match found {
        Preemption::Rt => return fact("kernel", "preemption", Level::Ok, "PREEMPT_RT"),
        Preemption::Dynamic => "PREEMPT_DYNAMIC",
        Preemption::Full => "PREEMPT",
        Preemption::Lazy => "PREEMPT_LAZY",
        Preemption::None => "none",
        Preemption::Unknown => "unknown",
    };
    let value = format!("{model}: no real-time preemption, wake-ups can be late");
    fact("kernel", "preemption", Level::Degraded, value)
}

fn cpu(cpus: &Cpus, kernel: &Kernel) -> Vec<Fact> {
    let machine = || kernel.machine.known().cloned().unwrap_or(std::env::consts::ARCH.to_owned());
    let model = cpus.model.known().cloned().unwrap_or_else(machine);
    let mut facts = vec![fact("cpu", "model", Level::Ok, model)];
    if let Some(online) = cpus.online.known() {
        facts.push(fact("cpu", "online", Level::Ok, format!("{} ({online})", online.len())));
    }
    facts.push(match cpus.isolated.known() {
        Some(list) if !list.is_empty() => fact("cpu", "isolated", Level::Ok, list.to_string()),
        _ => fact("cpu", "isolated", Level::Degraded, "none: real-time threads share their CPUs"),
    });
    let governor = cpus.each.values().next().and_then(|cpu| cpu.governor.known());
    if let Some(governor) = governor {
        let level = if governor == "performance" { Level::Ok } else { Level::Degraded };
        facts.push(fact("cpu", "frequency governor", level, governor.as_str()));
    }
    facts.push(if cpus.virtual_machine.known() == Some(&true) && !kernel.virtual_time {
        let why = "yes: the host of this virtual machine can stop any thread at any time";
        fact("cpu", "virtual machine", Level::Degraded, why)
    } else {
        fact("cpu", "virtual machine", Level::Ok, "no")
    });
    facts
}

fn clocks(clock: &ClockSettings, state: &Reading<ClockState>) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(source) = clock.source.known() {
        let good = clock.reads_fast() == Some(true);
        let level = if good { Level::Ok } else { Level::Degraded };
        let note = if good { "" } else { ": slow to read" };
        facts.push(fact("clock", "source", level, format!("{source}{note}")));
    }
    facts.push(match &clock.tai_offset {
        Reading::Known(offset) => fact("clock", "TAI - UTC", Level::Ok, offset.to_string()),
        other => fact("clock", "TAI - UTC", Level::Missing, other.why_not().unwrap_or_default()),
    });
    facts.push(match state {
        Reading::Known(state) if state.synchronised => {
            let error = state.max_error;
            fact("clock", "synchronisation", Level::Ok, format!("yes, within {error}"))
        }
        Reading::Known(_) => fact(
            "clock",
            "synchronisation",
            Level::Degraded,
            "none: fine on one host, not between hosts",
        ),
        other => {
            fact("clock", "synchronisation", Level::Missing, other.why_not().unwrap_or_default())
        }
    });
    if let Some(slack) = clock.timer_slack.known() {
        facts.push(fact("clock", "timer slack", Level::Ok, format!("{}ns", slack.as_ns())));
    }
    facts
}

fn scheduling(scheduling: &SchedulingSettings, privilege: &Privilege) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let (Some(runtime), Some(period)) =
        (scheduling.rt_runtime.known(), scheduling.rt_period.known())
    {
        facts.push(throttling(*runtime, *period));
    }
    let capabilities = privilege.capabilities.known();
    let may_lock = capabilities.is_some_and(|held| held.iter().any(|one| one == "CAP_IPC_LOCK"));
    facts.push(match &scheduling.locked_memory_bytes {
        Reading::Known(None) => fact("scheduling", "locked memory", Level::Ok, "unlimited"),
        Reading::Known(Some(bytes)) if may_lock => {
            let value = format!("{bytes}B, and CAP_IPC_LOCK lifts the limit");
            fact("scheduling", "locked memory", Level::Ok, value)
        }
        Reading::Known(Some(bytes)) => {
            fact("scheduling", "locked memory", Level::Degraded, format!("{bytes}B at most"))
        }
        other => {
            fact("scheduling", "locked memory", Level::Missing, other.why_not().unwrap_or_default())
        }
    });
    facts
}

fn throttling(runtime: Option<Span>, period: Span) -> Fact {
    let (level, value) = match runtime {
        None => (Level::Ok, "off".to_owned()),
        Some(runtime) => {
            let us = |span: Span| span.as_ns() / 1_000;
            let value =
                format!("{}us of {}us: threads that spin are stopped", us(runtime), us(period));
            (Level::Degraded, value)
        }
    };
    fact("scheduling", "real-time throttling", level, value)
}

fn privilege(privilege: &Privilege) -> Vec<Fact> {
    let mut facts = Vec::new();
    let listed = |reading: &Reading<Vec<String>>| {
        reading.known().filter(|names| !names.is_empty()).map(|names| names.join(" "))
    };
    if let Some(held) = listed(&privilege.capabilities) {
        facts.push(fact("privilege", "capabilities", Level::Ok, held));
    }
    if let Some(missing) = listed(&privilege.missing) {
        facts.push(fact("privilege", "capabilities not held", Level::Missing, missing));
    }
    if privilege.initial_user_namespace.known() == Some(&false) {
        let value = "inside one: capabilities hold for its own networks, not for scheduling or BPF";
        facts.push(fact("privilege", "user namespace", Level::Degraded, value));
    }
    facts
}

fn tools(tools: &BTreeMap<String, Reading<String>>) -> Vec<Fact> {
    let version = |tool: Tool| match tools.get(tool.program()) {
        Some(Reading::Known(text)) => fact("tools", tool.program(), Level::Ok, text.as_str()),
        _ => {
            let missing =
                HostError::ToolMissing { program: tool.program(), package: tool.package() };
            fact("tools", tool.program(), Level::Missing, missing.to_string())
        }
    };
    Tool::ALL.into_iter().map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_judgements_say_why() {
        let plain = preemption(Preemption::Dynamic);
        assert_eq!(plain.level, Level::Degraded);
        assert!(plain.value.starts_with("PREEMPT_DYNAMIC: no real-time preemption"));
        assert_eq!(preemption(Preemption::Rt).level, Level::Ok);
        assert_eq!(throttling(None, Span::from_secs(1)).level, Level::Ok);
        let throttled = throttling(Some(Span::from_ms(950)), Span::from_secs(1));
        assert_eq!(throttled.level, Level::Degraded);
        assert!(throttled.value.starts_with("950000us of 1000000us"), "{}", throttled.value);
    }

    #[test]
    fn t0_this_host_has_facts_of_every_area() {
        let facts = facts();
        for area in ["kernel", "cpu", "clock", "scheduling", "privilege", "tools"] {
            assert!(facts.iter().any(|fact| fact.area == area), "{area}");
        }
        assert!(facts.iter().all(|fact| !fact.value.is_empty() && !fact.value.contains('\n')));
    }
}
