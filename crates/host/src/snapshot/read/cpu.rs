// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading what the CPUs are like and how they sleep.

use crate::snapshot::Reading;
use crate::snapshot::model::{Cpu, CpuSet, Cpus, IdleState};
use crate::snapshot::source::Source;

use super::parsed;

const AT: &str = "/sys/devices/system/cpu";

/// All of them.
pub fn cpus(source: &dyn Source) -> Cpus {
    let info = source.read("/proc/cpuinfo");
    let list = |name: &str| parsed::<CpuSet>(source.read(&format!("{AT}/{name}")));
    let online = list("online");
    let each = online.known().cloned().unwrap_or_default();
    let governor = match source.read(&format!("{AT}/cpuidle/current_governor_ro")) {
        Reading::Known(name) => Reading::Known(name),
        _ => source.read(&format!("{AT}/cpuidle/current_governor")),
    };
    Cpus {
        model: info.clone().parse(|info| model(&info).ok_or("/proc/cpuinfo names no model")),
        possible: list("possible"),
        isolated: list("isolated"),
        nohz_full: list("nohz_full"),
        smt: source.read(&format!("{AT}/smt/control")),
        virtual_machine: info.parse(|info| {
            is_virtual(&info)
                .ok_or("CPUs of this architecture do not tell whether they are virtual")
        }),
        idle_driver: source.read(&format!("{AT}/cpuidle/current_driver")),
        idle_governor: governor,
        each: each.iter().map(|number| (number, cpu(source, number))).collect(),
        online,
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
}

/// The model as x86 (`model name`) and some Arm and RISC-V kernels (`Model`, `uarch`) give it.
fn model(info: &str) -> Option<String> {
    let names = ["model name", "Model", "uarch"];
    names.iter().find_map(|name| field(info, name)).map(str::to_owned)
}

/// x86 has a flag for it; a kernel that runs as a program is stopped by its host, too.
fn is_virtual(info: &str) -> Option<bool> {
    if field(info, "vendor_id") == Some("User Mode Linux") {
        return Some(true);
    }
    field(info, "flags").map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn cpu(source: &dyn Source, number: u32) -> Cpu {
    let at = format!("{AT}/cpu{number}");
    let read = |name: &str| source.read(&format!("{at}/{name}"));
    Cpu {
        package: parsed(read("topology/physical_package_id")),
        core: parsed(read("topology/core_id")),
        siblings: parsed(read("topology/thread_siblings_list")),
        frequency_driver: read("cpufreq/scaling_driver"),
        governor: read("cpufreq/scaling_governor"),
        frequency_min_khz: parsed(read("cpufreq/scaling_min_freq")),
        frequency_max_khz: parsed(read("cpufreq/scaling_max_freq")),
        energy_preference: read("cpufreq/energy_performance_preference"),
        resume_latency_us: read("power/pm_qos_resume_latency_us"),
        idle_states: source.list(&format!("{at}/cpuidle")).then(|names| {
            let mut numbers: Vec<u32> =
                names.iter().filter_map(|name| name.strip_prefix("state")?.parse().ok()).collect();
            numbers.sort_unstable();
            let states = numbers.into_iter().map(|state| idle_state(source, &at, state));
            match states.collect::<Result<Vec<_>, String>>() {
                Ok(states) => Reading::Known(states),
                Err(why) => Reading::Unreadable(why),
            }
        }),
    }
}

fn idle_state(source: &dyn Source, cpu: &str, state: u32) -> Result<IdleState, String> {
    let read = |name: &str| {
        let path = format!("{cpu}/cpuidle/state{state}/{name}");
        let text = source.read(&path);
        text.known().cloned().ok_or_else(|| format!("{path}: {}", text.why_not().unwrap_or("")))
    };
    let number = |name: &str| -> Result<u64, String> {
        let text = read(name)?;
        text.parse().map_err(|_| format!("{cpu}/cpuidle/state{state}/{name} is `{text}`"))
    };
    Ok(IdleState {
        name: read("name")?,
        latency_us: number("latency")?,
        residency_us: number("residency")?,
        disabled: number("disable")? != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_cpus_say_what_they_are() {
        let info = "processor : 0\nmodel name\t: A CPU\nflags\t\t: fpu hypervisor\n";
        assert_eq!(model(info).as_deref(), Some("A CPU"));
        assert_eq!(is_virtual(info), Some(true));
        assert_eq!(is_virtual("flags : fpu\n"), Some(false));
        assert_eq!(is_virtual("vendor_id : User Mode Linux\n"), Some(true));
        assert_eq!((model(""), is_virtual("Features : fp\n")), (None, None));
    }
}
