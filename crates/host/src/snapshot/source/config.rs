// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's configuration, where the kernel or the distribution has it readable.

use std::collections::BTreeMap;

use super::Source;
use crate::snapshot::Reading;

/// Options of the kernel that decide what is possible or how exact it is.
const OPTIONS: [&str; 66] = [
    "PREEMPT_RT",
    "PREEMPT_DYNAMIC",
    "PREEMPT",
    "PREEMPT_LAZY",
    "PREEMPT_VOLUNTARY",
    "PREEMPT_NONE",
    "HZ",
    "NO_HZ_FULL",
    "NO_HZ_IDLE",
    "HIGH_RES_TIMERS",
    "RCU_NOCB_CPU",
    "RCU_BOOST",
    "CPU_ISOLATION",
    "CPUSETS",
    "RT_GROUP_SCHED",
    "CGROUP_SCHED",
    "SCHED_CLASS_EXT",
    "IRQ_FORCED_THREADING",
    "CPU_FREQ",
    "CPU_IDLE",
    "INTEL_IDLE",
    "HW_LATENCY_TRACER",
    "OSNOISE_TRACER",
    "TIMERLAT_TRACER",
    "SCHED_TRACER",
    "FTRACE",
    "KPROBES",
    "BPF_SYSCALL",
    "BPF_JIT",
    "DEBUG_INFO_BTF",
    "BPF_EVENTS",
    "XDP_SOCKETS",
    "NET_SCHED",
    "NET_SCH_MQPRIO",
    "NET_SCH_TAPRIO",
    "NET_SCH_ETF",
    "NET_SCH_CBS",
    "NET_SCH_FQ",
    "NET_SCH_NETEM",
    "NET_SCH_TBF",
    "NET_SCH_HTB",
    "NET_SCH_PRIO",
    "NET_SCH_INGRESS",
    "NET_CLS_FLOWER",
    "NET_CLS_U32",
    "NET_CLS_BPF",
    "NET_CLS_ACT",
    "NET_ACT_SKBEDIT",
    "NET_ACT_GATE",
    "VLAN_8021Q",
    "VETH",
    "BRIDGE",
    "NET_NS",
    "USER_NS",
    "PACKET",
    "NETWORK_PHY_TIMESTAMPING",
    "PTP_1588_CLOCK",
    "PTP_1588_CLOCK_KVM",
    "NET_RX_BUSY_POLL",
    "RPS",
    "XPS",
    "DCB",
    "ETHTOOL_NETLINK",
    "UML",
    "UML_TIME_TRAVEL_SUPPORT",
    "IKCONFIG_PROC",
];

/// Of `/proc/config.gz`, or of the file that the distribution installs.
pub fn read(source: &impl Source) -> Reading<BTreeMap<String, String>> {
    let pattern = format!("^CONFIG_({})=", OPTIONS.join("|"));
    let release = source.read("/proc/sys/kernel/osrelease");
    let installed = format!("/boot/config-{}", release.known().map_or("", String::as_str));
    let mut why = format!("neither /proc/config.gz nor {installed} can be read");
    for path in ["/proc/config.gz", &installed] {
        // `zgrep` reads both; of a whole configuration little matters here.
        match source.run(&["zgrep", "-E", &pattern, path]) {
            Reading::Known(output) if output.code == Some(0) => {
                return Reading::Known(options(&output.stdout));
            }
            Reading::Known(_) => {}
            other => why = other.why_not().unwrap_or_default().to_owned(),
        }
    }
    Reading::Unreadable(why)
}

fn options(text: &str) -> BTreeMap<String, String> {
    // What is not written is not set: it was switched off, or its conditions do not hold.
    let mut found: BTreeMap<String, String> =
        OPTIONS.iter().map(|name| ((*name).to_owned(), "n".to_owned())).collect();
    for line in text.lines() {
        if let Some((name, value)) = line.strip_prefix("CONFIG_").and_then(|l| l.split_once('='))
            && let Some(known) = found.get_mut(name)
        {
            *known = value.trim_matches('"').to_owned();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_options_that_are_not_written_are_not_set() {
        let found = options("CONFIG_HZ=250\n# CONFIG_PREEMPT_RT is not set\nCONFIG_OTHER=y\n");
        assert_eq!((found["HZ"].as_str(), found["PREEMPT_RT"].as_str()), ("250", "n"));
        assert_eq!(found.len(), OPTIONS.len());
    }
}
