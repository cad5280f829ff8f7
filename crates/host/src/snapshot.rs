// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host is like, as far as it matters for timing: a list of facts, each with a judgement.
//! Reading them changes nothing; what cannot be read is left out or said to be missing.
//!
//! Not here: facts about one interface, and what a run needed and could not have (the caller adds).

use std::fs;

use timewire_sys::clock;
use timewire_sys::namespace::{Capabilities, Capability};
use timewire_sys::scheduler;

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

/// Looks at the host.
pub fn facts() -> Vec<Fact> {
    let mut facts = kernel();
    facts.extend(cpu());
    facts.extend(clocks());
    facts.extend(scheduling());
    facts.extend(privilege());
    facts.extend(tools());
    facts
}

fn fact(area: &'static str, name: &'static str, level: Level, value: impl Into<String>) -> Fact {
    Fact { area, name, value: value.into(), level }
}

fn kernel() -> Vec<Fact> {
    let mut facts = Vec::new();
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    facts.push(fact("kernel", "release", Level::Ok, release));
    let version = read("/proc/sys/kernel/version").unwrap_or_default();
    facts.push(preemption(&version, read("/sys/kernel/realtime").as_deref()));
    if let Some(text) = read("/sys/kernel/security/lockdown") {
        let mode = selected(&text);
        let level = if mode == "none" { Level::Ok } else { Level::Degraded };
        let note = if mode == "none" { "" } else { ": some tracing is refused" };
        facts.push(fact("kernel", "lockdown", level, format!("{mode}{note}")));
    }
    facts
}

fn preemption(version: &str, realtime: Option<&str>) -> Fact {
    let is_rt = realtime == Some("1") || version.contains("PREEMPT_RT");
    let model = version.split_whitespace().find(|word| word.starts_with("PREEMPT"));
    match (is_rt, model) {
        (true, _) => fact("kernel", "preemption", Level::Ok, "PREEMPT_RT"),
        (false, model) => fact(
            "kernel",
            "preemption",
            Level::Degraded,
            format!("{}: no real-time preemption, wake-ups can be late", model.unwrap_or("none")),
        ),
    }
}

fn cpu() -> Vec<Fact> {
    let mut facts = Vec::new();
    let info = read("/proc/cpuinfo").unwrap_or_default();
    facts.push(fact("cpu", "model", Level::Ok, cpu_model(&info)));
    let online = read("/sys/devices/system/cpu/online").unwrap_or_default();
    let count = parse_cpu_list(&online).len();
    facts.push(fact("cpu", "online", Level::Ok, format!("{count} ({online})")));
    facts.push(match read("/sys/devices/system/cpu/isolated") {
        Some(list) if !list.is_empty() => fact("cpu", "isolated", Level::Ok, list),
        _ => fact("cpu", "isolated", Level::Degraded, "none: real-time threads share their CPUs"),
    });
    let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    if let Some(governor) = read(governor) {
        let level = if governor == "performance" { Level::Ok } else { Level::Degraded };
        facts.push(fact("cpu", "frequency governor", level, governor));
    }
    let virtual_cpu = flags(&info).any(|flag| flag == "hypervisor");
    facts.push(if virtual_cpu {
        let why = "yes: the host of this virtual machine can stop any thread at any time";
        fact("cpu", "virtual machine", Level::Degraded, why)
    } else {
        fact("cpu", "virtual machine", Level::Ok, "no")
    });
    facts
}

/// The model as x86 (`model name`) and some Arm and RISC-V kernels (`Model`, `uarch`) give it.
fn cpu_model(info: &str) -> String {
    let value = |key: &str| {
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()).next()
    };
    let model = value("model name").or_else(|| value("Model")).or_else(|| value("uarch"));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), str::to_owned)
}

fn flags(info: &str) -> impl Iterator<Item = &str> {
    let line = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    line.split_once(':').map_or("", |(_, flags)| flags).split_whitespace()
}

/// CPUs of a list such as `0-3,8`.
fn parse_cpu_list(list: &str) -> Vec<u32> {
    let ranges = list.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    });
    ranges.flatten().collect()
}

fn clocks() -> Vec<Fact> {
    let mut facts = Vec::new();
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    if let Some(source) = read(source) {
        let fast = ["tsc", "kvm-clock", "arch_sys_counter", "riscv_clocksource"];
        let good = fast.contains(&source.as_str());
        let level = if good { Level::Ok } else { Level::Degraded };
        let note = if good { "" } else { ": slow to read" };
        facts.push(fact("clock", "source", level, format!("{source}{note}")));
    }
    let offset = clock::tai_offset();
    facts.push(fact("clock", "TAI - UTC", Level::Ok, offset.to_string()));
    facts.push(match clock::discipline() {
        Ok(state) if state.synchronised => {
            let error = state.max_error;
            fact("clock", "synchronisation", Level::Ok, format!("yes, within {error}"))
        }
        Ok(_) => fact(
            "clock",
            "synchronisation",
            Level::Degraded,
            "none: fine on one host, not between hosts",
        ),
        Err(error) => fact("clock", "synchronisation", Level::Missing, error.to_string()),
    });
    if let Some(slack) = read("/proc/self/timerslack_ns") {
        facts.push(fact("clock", "timer slack", Level::Ok, format!("{slack}ns")));
    }
    facts
}

fn scheduling() -> Vec<Fact> {
    let number = |path| read(path).and_then(|text| text.parse::<i64>().ok());
    let mut facts = Vec::new();
    let runtime = number("/proc/sys/kernel/sched_rt_runtime_us");
    let period = number("/proc/sys/kernel/sched_rt_period_us");
    if let (Some(runtime), Some(period)) = (runtime, period) {
        facts.push(throttling(runtime, period));
    }
    facts.push(match scheduler::locked_memory_limit() {
        Ok(None) => fact("scheduling", "locked memory", Level::Ok, "unlimited"),
        Ok(Some(bytes)) if may_lock() => {
            let value = format!("{bytes}B, and CAP_IPC_LOCK lifts the limit");
            fact("scheduling", "locked memory", Level::Ok, value)
        }
        Ok(Some(bytes)) => {
            fact("scheduling", "locked memory", Level::Degraded, format!("{bytes}B at most"))
        }
        Err(error) => fact("scheduling", "locked memory", Level::Missing, error.to_string()),
    });
    facts
}

fn throttling(runtime_us: i64, period_us: i64) -> Fact {
    let (level, value) = match runtime_us {
        -1 => (Level::Ok, "off".to_owned()),
        _ => {
            let value = format!("{runtime_us}us of {period_us}us: threads that spin are stopped");
            (Level::Degraded, value)
        }
    };
    fact("scheduling", "real-time throttling", level, value)
}

fn may_lock() -> bool {
    Capabilities::of_this_process().is_ok_and(|caps| caps.has(Capability::IpcLock))
}

fn privilege() -> Vec<Fact> {
    let Ok(held) = Capabilities::of_this_process() else {
        return Vec::new();
    };
    let (present, absent): (Vec<_>, Vec<_>) =
        Capability::ALL.into_iter().partition(|capability| held.has(*capability));
    let names = |list: Vec<Capability>| {
        list.into_iter().map(Capability::name).collect::<Vec<_>>().join(" ")
    };
    let mut facts = Vec::new();
    if !present.is_empty() {
        facts.push(fact("privilege", "capabilities", Level::Ok, names(present)));
    }
    if !absent.is_empty() {
        facts.push(fact("privilege", "capabilities not held", Level::Missing, names(absent)));
    }
    let mapping = read("/proc/self/uid_map").unwrap_or_default();
    if !is_initial_mapping(&mapping) {
        let value = "inside one: capabilities hold for its own networks, not for scheduling or BPF";
        facts.push(fact("privilege", "user namespace", Level::Degraded, value));
    }
    facts
}

/// Whether a `uid_map` is that of the host's first user namespace.
fn is_initial_mapping(text: &str) -> bool {
    text.split_whitespace().eq(["0", "0", "4294967295"])
}

fn tools() -> Vec<Fact> {
    let version = |tool: Tool| match tool.version() {
        Ok(text) => fact("tools", tool.program(), Level::Ok, text),
        Err(error) => fact("tools", tool.program(), Level::Missing, error.to_string()),
    };
    Tool::ALL.into_iter().map(version).collect()
}

/// The bracketed word of `none [integrity] confidentiality`.
fn selected(text: &str) -> &str {
    let start = text.find('[').map_or(0, |at| at + 1);
    let end = text.find(']').unwrap_or(text.len());
    &text[start..end]
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_kernel_texts_are_read() {
        assert_eq!(selected("none [integrity] confidentiality"), "integrity");
        assert_eq!(selected("plain"), "plain");
        assert_eq!(parse_cpu_list("0-2,5"), [0, 1, 2, 5]);
        assert!(parse_cpu_list("").is_empty());
        assert!(is_initial_mapping("         0          0 4294967295"));
        assert!(!is_initial_mapping("         0       1000          1"));
        let info = "processor : 0\nmodel name\t: A CPU\nflags\t\t: fpu hypervisor\n";
        assert_eq!(cpu_model(info), "A CPU");
        assert!(flags(info).any(|flag| flag == "hypervisor"));
        assert_eq!(cpu_model(""), std::env::consts::ARCH);
    }

    #[test]
    fn t0_judgements_say_why() {
        let plain = preemption("#1 SMP PREEMPT_DYNAMIC x", None);
        assert_eq!(plain.level, Level::Degraded);
        assert!(plain.value.starts_with("PREEMPT_DYNAMIC: no real-time preemption"));
        assert_eq!(preemption("#1 SMP PREEMPT_RT x", None).level, Level::Ok);
        assert_eq!(preemption("#1 SMP", Some("1")).level, Level::Ok);
        assert_eq!(throttling(-1, 1_000_000).level, Level::Ok);
        assert_eq!(throttling(950_000, 1_000_000).level, Level::Degraded);
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
