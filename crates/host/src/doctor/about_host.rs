// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be said of a host in general: kernel, CPUs, scheduling, clocks, privilege, tools.

use timewire_base::Span;

use super::finding::{Check, Finding, State};
use super::mend;
use super::{Probe, ProbeOutcome, Probes};
use crate::snapshot::Snapshot;
use crate::snapshot::model::{Cpus, HostSettings, Preemption, Reading};

/// What something asks of the host beside what everything does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// Several hosts have to agree on the time.
    pub clock: bool,
    /// Programs that may run with real-time priority for as long as they like.
    pub groups: bool,
    /// Processes with reservations.
    pub deadline: bool,
    /// Processes kept on CPUs.
    pub cpu_sets: bool,
}

/// The findings about the host.
pub(super) fn findings(snapshot: &Snapshot, probes: &Probes, needs: Needs) -> Vec<Finding> {
    let host = &snapshot.settings.host;
    let mut all = vec![privilege(snapshot), tools(probes), lockdown(host), preemption(host)];
    all.extend(cpus(host, probes));
    all.push(fifo(probes));
    all.push(deadline(probes, needs.deadline));
    all.push(throttling(host, needs.groups));
    all.push(cpu_sets(probes, needs.cpu_sets));
    all.push(lock(probes));
    all.push(timers(probes));
    all.push(source(host));
    all.push(tai(host, needs.clock));
    all.push(synchronised(snapshot, probes, needs.clock));
    all.extend(wake_ups(probes));
    all
}

/// A state for something that counts only when it is needed.
pub(super) fn if_needed(needed: bool, state: State) -> State {
    if needed || state == State::Ok { state } else { State::NotAsked }
}

fn unreadable<T>(reading: &Reading<T>) -> String {
    format!("unknown: {}", reading.why_not().unwrap_or("it was not read"))
}

fn privilege(snapshot: &Snapshot) -> Finding {
    let privilege = &snapshot.settings.host.privilege;
    let id = Check::Privilege;
    if privilege.initial_user_namespace.known() == Some(&false) {
        let found = "in a user namespace: only its own networks can be changed";
        return Finding::new(id, State::Degraded, found).mended_by("run it as root: sudo timewire");
    }
    match privilege.missing.known() {
        Some(missing) if missing.is_empty() => Finding::ok(id, "all that is needed"),
        Some(missing) => {
            Finding::new(id, State::Degraded, format!("without {}", missing.join(" ")))
                .mended_by("run it as root: sudo timewire")
        }
        None => Finding::new(id, State::Degraded, unreadable(&privilege.missing)),
    }
}

fn tools(probes: &Probes) -> Finding {
    let tools =
        [(Probe::ToolIp, "iproute2"), (Probe::ToolTc, "iproute2"), (Probe::ToolEthtool, "ethtool")];
    let missing: Vec<_> = tools.into_iter().filter(|(probe, _)| !probes.works(*probe)).collect();
    if missing.is_empty() {
        return Finding::ok(Check::Tools, "ip, tc, ethtool");
    }
    let names: Vec<_> = missing.iter().map(|(probe, _)| &probe.id()["tool.".len()..]).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    Finding::new(Check::Tools, State::Degraded, format!("without {}", names.join(", ")))
        .mended_by(mend::install(&packages))
}

fn lockdown(host: &HostSettings) -> Finding {
    let id = Check::Lockdown;
    match &host.kernel.lockdown {
        Reading::Known(mode) if mode != "none" => {
            let line = host.kernel.command_line.known();
            let asks = line.is_none_or(|words| words.iter().any(|w| w.starts_with("lockdown=")));
            let by_line = asks.then(|| mend::boot_without("lockdown"));
            Finding::new(id, State::Degraded, mode)
                .mended_by_all(by_line.into_iter().collect())
                .mended_by("mokutil --disable-validation, where Secure Boot asks for the lockdown")
        }
        Reading::Known(mode) => Finding::ok(id, mode),
        other => Finding::ok(id, other.why_not().unwrap_or_default()),
    }
}

fn preemption(host: &HostSettings) -> Finding {
    let id = Check::Preemption;
    if host.kernel.virtual_time {
        return Finding::ok(id, VIRTUAL);
    }
    let found = match host.kernel.preemption {
        Preemption::Rt => return Finding::ok(id, "PREEMPT_RT"),
        Preemption::Dynamic => match host.kernel.preemption_mode.known() {
            Some(mode) => format!("PREEMPT_DYNAMIC, {mode}"),
            None => "PREEMPT_DYNAMIC".to_owned(),
        },
        Preemption::Full => "PREEMPT".to_owned(),
        Preemption::Lazy => "PREEMPT_LAZY".to_owned(),
        Preemption::None => "at some points of the kernel only".to_owned(),
        Preemption::Unknown => "unknown".to_owned(),
    };
    let machine = host.kernel.machine.known().map_or("", String::as_str);
    Finding::new(id, State::Degraded, found).mended_by_all(mend::real_time_kernel(machine))
}

fn cpus(host: &HostSettings, probes: &Probes) -> Vec<Finding> {
    let (cpus, virtual_time) = (&host.cpus, host.kernel.virtual_time);
    let mut all = Vec::new();
    let online = cpus.online.known();
    let count = online.map_or(0, crate::snapshot::model::CpuSet::len);
    all.push(match count {
        0 => Finding::new(Check::CpuCount, State::Degraded, unreadable(&cpus.online)),
        1 if virtual_time => Finding::ok(Check::CpuCount, format!("1; {VIRTUAL}")),
        1 => Finding::new(Check::CpuCount, State::Degraded, "1"),
        _ => Finding::ok(Check::CpuCount, count.to_string()),
    });
    let isolated = cpus.isolated.known().filter(|cpus| !cpus.is_empty());
    all.push(match (isolated, online.and_then(|cpus| cpus.iter().last())) {
        (Some(isolated), _) => Finding::ok(Check::CpuIsolated, isolated.to_string()),
        (None, Some(last)) if count > 1 => {
            Finding::new(Check::CpuIsolated, State::Degraded, "none").mended_by(mend::boot_with(
                &format!("isolcpus={last} nohz_full={last} rcu_nocbs={last} irqaffinity=0"),
            ))
        }
        _ => Finding::new(Check::CpuIsolated, State::NotAsked, "there is one CPU for everything"),
    });
    all.push(match cpus.virtual_machine.known() {
        Some(true) if virtual_time => Finding::ok(Check::CpuVirtual, VIRTUAL),
        Some(true) => Finding::new(Check::CpuVirtual, State::Degraded, "a virtual machine"),
        Some(false) => Finding::ok(Check::CpuVirtual, "no virtual machine"),
        None => Finding::new(Check::CpuVirtual, State::NotAsked, unreadable(&cpus.virtual_machine)),
    });
    all.push(governor(cpus));
    all.push(idle(cpus, probes));
    all.push(match cpus.smt.known().map(String::as_str) {
        Some("on") => {
            let found = "two threads on each core";
            Finding::new(Check::CpuSmt, State::Degraded, found)
                .mended_by("echo off >/sys/devices/system/cpu/smt/control")
        }
        Some(other) => Finding::ok(Check::CpuSmt, other),
        None => Finding::ok(Check::CpuSmt, cpus.smt.why_not().unwrap_or_default()),
    });
    all
}

fn governor(cpus: &Cpus) -> Finding {
    let id = Check::CpuGovernor;
    let known = cpus.each.values().filter_map(|cpu| cpu.governor.known());
    let mut governors: Vec<_> = known.map(String::as_str).collect();
    governors.sort_unstable();
    governors.dedup();
    match governors.as_slice() {
        [] => Finding::ok(id, "nobody changes it"),
        ["performance"] => Finding::ok(id, "performance"),
        others => Finding::new(id, State::Degraded, others.join(", "))
            .mended_by(mend::install(&["linux-cpupower"]))
            .mended_by("cpupower frequency-set --governor performance"),
    }
}

/// Why little matters in the laboratory.
const VIRTUAL: &str = "time is virtual: computing takes none";

/// A state from which waking up takes longer than this counts as deep. **Units**: microseconds.
const DEEP_US: u64 = 20;

fn idle(cpus: &Cpus, probes: &Probes) -> Finding {
    let id = Check::CpuIdle;
    let states = cpus.each.values().filter_map(|cpu| cpu.idle_states.known()).flatten();
    let deepest = states.filter(|state| !state.disabled).max_by_key(|state| state.latency_us);
    match deepest {
        Some(state) if state.latency_us > DEEP_US => {
            let found = format!("{}, {}us to wake up", state.name, state.latency_us);
            if probes.works(Probe::WakeAtOnce) {
                let found = format!("{found}; Timewire asks for none while it runs");
                return Finding::ok(id, found);
            }
            Finding::new(id, State::Degraded, found)
                .mended_by(mend::install(&["linux-cpupower"]))
                .mended_by(format!("cpupower idle-set --disable-by-latency {DEEP_US}"))
        }
        Some(state) => {
            Finding::ok(id, format!("{}, {}us to wake up", state.name, state.latency_us))
        }
        None => Finding::ok(id, "no deep sleep is known"),
    }
}

fn fifo(probes: &Probes) -> Finding {
    let id = Check::SchedulingFifo;
    match probes.of(Probe::Fifo) {
        ProbeOutcome::Works { found } => Finding::ok(id, format!("SCHED_FIFO {found}")),
        ProbeOutcome::Forbidden { said } => Finding::new(id, State::Degraded, said)
            .mended_by("run it as root: sudo timewire")
            .mended_by("sysctl -w kernel.sched_rt_runtime_us=950000, where root is refused too"),
        other => Finding::new(id, State::Degraded, other.text()),
    }
}

fn deadline(probes: &Probes, needed: bool) -> Finding {
    let id = Check::SchedulingDeadline;
    match probes.of(Probe::Deadline) {
        ProbeOutcome::Works { found } => Finding::ok(id, format!("SCHED_DEADLINE {found}")),
        ProbeOutcome::Forbidden { said } => {
            Finding::new(id, if_needed(needed, State::Degraded), said)
                .mended_by("run it as root: sudo timewire")
        }
        other => Finding::new(id, if_needed(needed, State::Missing), other.text()),
    }
}

fn throttling(host: &HostSettings, groups: bool) -> Finding {
    let id = Check::SchedulingThrottling;
    let scheduling = &host.scheduling;
    if host.kernel.virtual_time {
        return Finding::ok(id, VIRTUAL);
    }
    // Whoever restores the host is an ordinary process.
    let unbounded = |found: String| {
        let found = format!("{found}: a member that never sleeps cannot be taken back");
        Finding::new(id, State::Degraded, found)
            .mended_by("sysctl -w kernel.sched_rt_runtime_us=950000")
    };
    match (scheduling.rt_runtime.known(), scheduling.rt_period.known()) {
        (Some(None), _) if groups => unbounded("all of it".to_owned()),
        (Some(None), _) => Finding::ok(id, "all of it"),
        (Some(Some(runtime)), Some(period)) if runtime >= period => {
            let found = format!("{runtime} of {period}");
            if groups { unbounded(found) } else { Finding::ok(id, found) }
        }
        (Some(Some(runtime)), period) => {
            let of = period.map(|period| format!(" of {period}")).unwrap_or_default();
            let found = format!("{runtime}{of}");
            if groups {
                let found = format!("{found}; the rest is for what takes the groups back");
                return Finding::ok(id, found);
            }
            Finding::new(id, State::Degraded, found).mended_by(
                "sysctl -w kernel.sched_rt_runtime_us=-1, only where no real-time thread spins",
            )
        }
        (None, _) => Finding::new(id, State::NotAsked, unreadable(&scheduling.rt_runtime)),
    }
}

fn cpu_sets(probes: &Probes, needed: bool) -> Finding {
    let id = Check::CpuSets;
    match probes.of(Probe::CpuSets) {
        ProbeOutcome::Works { found } => Finding::ok(id, found),
        other => Finding::new(id, if_needed(needed, State::Degraded), other.text())
            .mended_by(mend::boot_with("systemd.unified_cgroup_hierarchy=1")),
    }
}

fn lock(probes: &Probes) -> Finding {
    let id = Check::MemoryLock;
    match probes.of(Probe::LockMemory) {
        ProbeOutcome::Works { found } => Finding::ok(id, found),
        other => Finding::new(id, State::Degraded, other.text())
            .mended_by("run it as root: sudo timewire")
            .mended_by("a line `@USERS - memlock unlimited` in /etc/security/limits.conf"),
    }
}

fn timers(probes: &Probes) -> Finding {
    let id = Check::ClockTimers;
    match probes.of(Probe::Timers) {
        ProbeOutcome::Works { found } => Finding::ok(id, found),
        other @ ProbeOutcome::Untried { .. } => Finding::new(id, State::Degraded, other.text())
            .mended_by("ask again while the host has less to do"),
        other => {
            Finding::new(id, State::Missing, other.text()).mended_by(mend::boot_with("highres=on"))
        }
    }
}

fn source(host: &HostSettings) -> Finding {
    let id = Check::ClockSource;
    match host.clock.source.known() {
        // What a machine of the laboratory reads takes no time, as all that it does.
        Some(source) if host.kernel.virtual_time => Finding::ok(id, source),
        Some(source) if host.clock.reads_fast() == Some(true) => Finding::ok(id, source),
        Some(source) => {
            let finding = Finding::new(id, State::Degraded, source);
            let available = host.clock.available_sources.known();
            if available.is_some_and(|all| all.iter().any(|one| one == "tsc")) {
                let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
                finding.mended_by(format!("echo tsc >{file}"))
            } else {
                finding
            }
        }
        None => Finding::new(id, State::NotAsked, unreadable(&host.clock.source)),
    }
}

fn tai(host: &HostSettings, needed: bool) -> Finding {
    let id = Check::ClockTai;
    match host.clock.tai_offset.known() {
        Some(&offset) if offset == Span::ZERO => {
            Finding::new(id, if_needed(needed, State::Degraded), "0s: nobody has set it").mended_by(
                "host settings with `clock: {interfaces: [...], tai_offset: 37}`: \
                            timewire apply FILE",
            )
        }
        Some(offset) => Finding::ok(id, offset.to_string()),
        None => Finding::new(id, State::NotAsked, unreadable(&host.clock.tai_offset)),
    }
}

fn synchronised(snapshot: &Snapshot, probes: &Probes, needed: bool) -> Finding {
    let id = Check::ClockSynchronised;
    let programs = snapshot.state.host.clock_programs.known();
    let by = programs.filter(|all| !all.is_empty()).map(|all| format!(" by {}", all.join(", ")));
    let by = by.unwrap_or_default();
    match snapshot.state.host.clock.known() {
        Some(clock) if clock.synchronised => {
            Finding::ok(id, format!("within {}{by}", clock.max_error))
        }
        Some(_) => {
            let finding = Finding::new(id, if_needed(needed, State::Degraded), format!("no{by}"));
            let finding = if probes.works(Probe::ToolPtp4l) {
                finding
            } else {
                finding.mended_by(mend::install(&["linuxptp"]))
            };
            finding
                .mended_by("host settings with `clock: {interfaces: [...]}`: timewire apply FILE")
        }
        None => {
            let found = unreadable(&snapshot.state.host.clock);
            Finding::new(id, if_needed(needed, State::Degraded), found)
        }
    }
}

/// What was measured, for the best policy that could be had. It is a fact and no judgement, but
/// for what [`schedule`](super::about_scenario) compares it with.
fn wake_ups(probes: &Probes) -> Option<Finding> {
    let best = probes.wake_ups.last()?;
    Some(Finding::ok(
        Check::WakeUps,
        format!(
            "measured here just now, no promise: {} of {} {} sleeps at most {} late, 99% {}, the \
             latest {}",
            "half",
            best.samples,
            best.policy,
            rounded_up(best.p50_ns),
            rounded_up(best.p99_ns),
            rounded_up(best.max_ns)
        ),
    ))
}

/// A measured time as it is told: in whole microseconds, unless it has few.
pub(super) fn rounded_up(ns: i64) -> Span {
    if ns < 10_000 { Span::from_ns(ns) } else { Span::from_us((ns + 999) / 1_000) }
}
