// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading what a host is like, apart from its interfaces.

use std::collections::BTreeMap;

use serde_json::Value;
use timewire_base::Span;
use timewire_sys::namespace::Capability;

use super::{parsed, served};
use crate::snapshot::Reading;
use crate::snapshot::model::{
    ClockSettings, ClockState, HostCounters, HostSettings, HostState, Kernel, Preemption,
    Privilege, PtpClock, SchedulingSettings, Softnet,
};
use crate::snapshot::source::{KernelThread, Question, Source};

/// What was set.
pub fn settings(source: &dyn Source, threads: &Reading<Vec<KernelThread>>) -> HostSettings {
    HostSettings {
        kernel: kernel(source),
        cpus: super::cpu::cpus(source),
        clock: clock(source),
        ptp: ptp(source),
        scheduling: scheduling(source),
        softirq_threads: served::softirq_threads(threads),
        sysctls: sysctls(source),
        privilege: privilege(source),
        tools: tools(source),
    }
}

/// What came of it.
pub fn state(source: &dyn Source) -> HostState {
    let number = |question| source.ask(question).then(|value| json_number(&value));
    let programs = source.ask(Question::ClockPrograms);
    HostState {
        taken_utc_ns: number(Question::Now).known().copied().unwrap_or_default(),
        clock: source.ask(Question::Clock).parse(serde_json::from_value::<ClockState>),
        clock_programs: programs.parse(serde_json::from_value::<Vec<String>>),
        cpu_dma_latency_us: number(Question::CpuDmaLatency),
    }
}

/// What was counted.
pub fn counters(source: &dyn Source) -> HostCounters {
    let softnet = source.read("/proc/net/softnet_stat").parse(|text| softnet(&text));
    HostCounters { softnet }
}

fn json_number(value: &Value) -> Reading<i64> {
    match value.as_i64() {
        Some(number) => Reading::Known(number),
        None => Reading::Unreadable(format!("`{value}` is no number")),
    }
}

fn kernel(source: &dyn Source) -> Kernel {
    let version = source.read("/proc/sys/kernel/version");
    let realtime = source.read("/sys/kernel/realtime").known().is_some_and(|text| text == "1");
    let command_line = source.read("/proc/cmdline");
    let line = command_line.known().cloned().unwrap_or_default();
    let release = source.read("/proc/sys/kernel/osrelease");
    let chosen = source.read("/sys/kernel/debug/sched/preempt");
    Kernel {
        preemption: match version.known() {
            _ if realtime => Preemption::Rt,
            Some(version) => preemption(version),
            None => Preemption::Unknown,
        },
        preemption_mode: chosen.parse(|text| chosen_of(&text, ['(', ')'])),
        config: source
            .ask(Question::KernelConfig)
            .parse(serde_json::from_value::<BTreeMap<String, String>>),
        machine: source.read("/proc/sys/kernel/arch"),
        lockdown: source
            .read("/sys/kernel/security/lockdown")
            .parse(|text| chosen_of(&text, ['[', ']'])),
        virtual_time: timewire_sys::clock::line_makes_virtual(&line),
        command_line: command_line
            .map(|text| text.split_ascii_whitespace().map(str::to_owned).collect()),
        release,
        version,
    }
}

fn preemption(version: &str) -> Preemption {
    let model = version.split_whitespace().find(|word| word.starts_with("PREEMPT"));
    match model {
        Some("PREEMPT_RT") => Preemption::Rt,
        Some("PREEMPT_DYNAMIC") => Preemption::Dynamic,
        Some("PREEMPT_LAZY") => Preemption::Lazy,
        Some(_) => Preemption::Full,
        None => Preemption::None,
    }
}

/// The bracketed word of `none [integrity] confidentiality`.
fn chosen_of(text: &str, [open, close]: [char; 2]) -> Result<String, String> {
    let bracketed = text.split_once(open).and_then(|(_, rest)| rest.split_once(close));
    bracketed.map(|(word, _)| word.to_owned()).ok_or_else(|| format!("`{text}` chooses nothing"))
}

fn clock(source: &dyn Source) -> ClockSettings {
    const AT: &str = "/sys/devices/system/clocksource/clocksource0";
    let offset = source.ask(Question::Clock).then(|clock| {
        json_number(clock.get("tai_offset_ns").unwrap_or(&Value::Null)).map(Span::from_ns)
    });
    ClockSettings {
        source: source.read(&format!("{AT}/current_clocksource")),
        available_sources: source
            .read(&format!("{AT}/available_clocksource"))
            .map(|text| text.split_whitespace().map(str::to_owned).collect()),
        tai_offset: offset,
        timer_slack: parsed(source.read("/proc/self/timerslack_ns")).map(Span::from_ns),
    }
}

fn ptp(source: &dyn Source) -> Reading<BTreeMap<u32, PtpClock>> {
    let clocks = match source.list("/sys/class/ptp") {
        Reading::Absent(_) => {
            return Reading::Absent("this kernel has no PTP hardware clocks".to_owned());
        }
        clocks => clocks,
    };
    clocks.map(|names| {
        let index = |name: String| name.strip_prefix("ptp")?.parse::<u32>().ok();
        names.into_iter().filter_map(index).map(|index| (index, ptp_clock(source, index))).collect()
    })
}

fn ptp_clock(source: &dyn Source, index: u32) -> PtpClock {
    let at = format!("/sys/class/ptp/ptp{index}");
    let number = |name: &str| {
        let reading: Reading<u64> = parsed(source.read(&format!("{at}/{name}")));
        reading.known().copied().unwrap_or_default()
    };
    let cross = source.ask(Question::CrossTimestamps(index));
    PtpClock {
        name: source.read(&format!("{at}/clock_name")).known().cloned().unwrap_or_default(),
        max_adjustment_ppb: number("max_adjustment"),
        alarms: number("n_alarms"),
        external_timestamps: number("n_external_timestamps"),
        periodic_outputs: number("n_periodic_outputs"),
        pins: number("n_programmable_pins"),
        pulse_per_second: number("pps_available") == 1,
        cross_timestamps: cross.parse(serde_json::from_value::<bool>),
        interface: source
            .list(&format!("{at}/device/net"))
            .known()
            .and_then(|names| names.first().cloned()),
    }
}

fn scheduling(source: &dyn Source) -> SchedulingSettings {
    let number = |name: &str| parsed::<i64>(source.read(&format!("/proc/sys/kernel/{name}")));
    let us = |name: &str| number(name).map(Span::from_us);
    let limits = source.read("/proc/self/limits");
    let limit = |name: &str| limits.clone().parse(|text| limit(&text, name));
    SchedulingSettings {
        rt_runtime: number("sched_rt_runtime_us").map(|us| (us >= 0).then(|| Span::from_us(us))),
        rt_period: us("sched_rt_period_us"),
        deadline_period_min: us("sched_deadline_period_min_us"),
        deadline_period_max: us("sched_deadline_period_max_us"),
        rr_slice: number("sched_rr_timeslice_ms").map(Span::from_ms),
        group_rt_runtime: group_rt_runtime(source),
        locked_memory_bytes: limit("Max locked memory"),
        rt_priority_limit: limit("Max realtime priority"),
    }
}

/// The soft limit of a line such as `Max locked memory  8388608  8388608  bytes`.
fn limit(limits: &str, name: &str) -> Result<Option<u64>, String> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name));
    let soft = line.and_then(|line| line.split_whitespace().next());
    match soft {
        Some("unlimited") => Ok(None),
        Some(number) => number.parse().map(Some).map_err(|_| format!("`{number}` is no limit")),
        None => Err(format!("/proc/self/limits has no `{name}`")),
    }
}

/// Only groups of the first version have such a budget.
fn group_rt_runtime(source: &dyn Source) -> Reading<Span> {
    source.read("/proc/self/cgroup").then(|text| {
        let group = text.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|controller| controller == "cpu").then_some(path)
        });
        match group {
            Some(path) => {
                let file = format!("/sys/fs/cgroup/cpu{path}/cpu.rt_runtime_us");
                parsed::<i64>(source.read(&file)).map(Span::from_us)
            }
            None => Reading::Absent("its control groups have no budget for it".to_owned()),
        }
    })
}

/// Kernel parameters that are looked for also where a kernel has them not, beside all `net.core`
/// and all `kernel.sched_*`.
const WANTED: [&str; 22] = [
    "kernel.nmi_watchdog",
    "kernel.numa_balancing",
    "kernel.perf_event_paranoid",
    "kernel.sched_rt_period_us",
    "kernel.sched_rt_runtime_us",
    "kernel.timer_migration",
    "kernel.unprivileged_bpf_disabled",
    "kernel.watchdog",
    "kernel.watchdog_cpumask",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.netdev_tstamp_prequeue",
    "net.core.rps_sock_flow_entries",
    "net.core.skb_defer_max",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv6.conf.all.disable_ipv6",
    "net.ipv6.conf.default.disable_ipv6",
    "vm.compaction_proactiveness",
    "vm.stat_interval",
];

fn sysctls(source: &dyn Source) -> BTreeMap<String, Reading<String>> {
    let mut names: Vec<String> = WANTED.iter().map(|name| (*name).to_owned()).collect();
    let listed = |directory: &str, wanted: &dyn Fn(&str) -> bool| -> Vec<String> {
        let at = format!("/proc/sys/{}", directory.replace('.', "/"));
        let found = source.list(&at).known().cloned().unwrap_or_default();
        let chosen = found.into_iter().filter(|name| wanted(name));
        chosen.map(|name| format!("{directory}.{name}")).collect()
    };
    names.extend(listed("kernel", &|name| name.starts_with("sched_")));
    // The key of the hash is a secret.
    names.extend(listed("net.core", &|name| name != "netdev_rss_key"));
    names.sort();
    names.dedup();
    let read = |name: String| {
        let text = source.read(&format!("/proc/sys/{}", name.replace('.', "/")));
        (name, text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    names.into_iter().map(read).collect()
}

fn privilege(source: &dyn Source) -> Privilege {
    let status = source.read("/proc/self/status");
    let effective = status.parse(|text| {
        let hex = text.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim);
        let hex = hex.ok_or_else(|| "/proc/self/status has no CapEff".to_owned())?;
        u64::from_str_radix(hex, 16).map_err(|_| format!("`{hex}` is no set of capabilities"))
    });
    let names = |held: bool| {
        effective.clone().map(|set| {
            let has = |capability: &Capability| (set >> capability.bit() & 1 == 1) == held;
            let chosen = Capability::ALL.into_iter().filter(has);
            chosen.map(|capability| capability.name().to_owned()).collect()
        })
    };
    let mapping = source.read("/proc/self/uid_map");
    let user = source.ask(Question::User).known().and_then(Value::as_u64);
    Privilege {
        capabilities: names(true),
        missing: names(false),
        initial_user_namespace: mapping
            .map(|text| text.split_whitespace().eq(["0", "0", "4294967295"])),
        user: user.and_then(|user| u32::try_from(user).ok()).unwrap_or_default(),
    }
}

/// Programs that Timewire runs, and how each says its version.
const TOOLS: [(&str, &str); 10] = [
    ("ip", "-V"),
    ("tc", "-V"),
    ("bridge", "-V"),
    ("ethtool", "--version"),
    ("ptp4l", "-v"),
    ("phc2sys", "-v"),
    ("ts2phc", "-v"),
    ("pmc", "-v"),
    ("chrt", "--version"),
    ("taskset", "--version"),
];

fn tools(source: &dyn Source) -> BTreeMap<String, Reading<String>> {
    let version = |(program, option): (&str, &str)| {
        let said = source.run(&[program, option]).map(|output| {
            let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
            said.lines().next().unwrap_or_default().to_owned()
        });
        (program.to_owned(), said)
    };
    TOOLS.into_iter().map(version).collect()
}

/// Rows of hexadecimal numbers: frames, dropped, squeezed, ..., the CPU in the 13th column of
/// newer kernels.
///
/// **Source**: `linux v6.12 net/core/net-procfs.c:softnet_seq_show`.
fn softnet(text: &str) -> Result<BTreeMap<u32, Softnet>, String> {
    let row = |(row, line): (usize, &str)| {
        let numbers: Result<Vec<u64>, _> =
            line.split_whitespace().map(|word| u64::from_str_radix(word, 16)).collect();
        let numbers = numbers.map_err(|_| format!("row {row} of softnet_stat has no numbers"))?;
        let [processed, dropped, squeezed, ..] = numbers[..] else {
            return Err(format!("row {row} of softnet_stat is short"));
        };
        let cpu = numbers.get(12).copied().map_or_else(|| u32::try_from(row), u32::try_from);
        let cpu = cpu.map_err(|_| format!("row {row} of softnet_stat is of no CPU"))?;
        Ok((cpu, Softnet { processed, dropped, squeezed }))
    };
    text.lines().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_version_tells_how_a_kernel_preempts() {
        for (version, expected) in [
            ("#1 SMP PREEMPT_RT Debian 6.1.76-1", Preemption::Rt),
            ("#1 SMP PREEMPT_DYNAMIC Debian", Preemption::Dynamic),
            ("#1 SMP PREEMPT Thu", Preemption::Full),
            ("#1 SMP Thu", Preemption::None),
        ] {
            assert_eq!(preemption(version), expected, "{version}");
        }
        assert_eq!(chosen_of("none [integrity]", ['[', ']']).unwrap(), "integrity");
        assert!(chosen_of("none", ['[', ']']).is_err());
    }

    #[test]
    fn t0_limits_are_read() {
        let text = "Limit\nMax locked memory         8388608    8388608     bytes\n\
                    Max realtime priority     unlimited  0\n";
        assert_eq!(limit(text, "Max locked memory").unwrap(), Some(8_388_608));
        assert_eq!(limit(text, "Max realtime priority").unwrap(), None);
        assert!(limit(text, "Max nothing").is_err());
    }

    #[test]
    fn t0_rows_of_received_frames_name_their_cpu() {
        let row = |cpu: &str| format!("0000000a 1 2{} {cpu} 0 0", " 0".repeat(9));
        let found = softnet(&format!("{}\n{}", row("00000002"), row("00000005"))).unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [2, 5]);
        assert_eq!(found[&2], Softnet { processed: 10, dropped: 1, squeezed: 2 });
        assert_eq!(softnet("1 2 3").unwrap().len(), 1);
        assert!(softnet("1 2").is_err());
        assert!(softnet("x").is_err());
    }
}
