// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What mends things on Debian, as commands.

use timewire_base::IfName;

use super::finding::Check;

/// A NIC that does what this one does not.
pub(super) const TIMESTAMPING_NIC: &str =
    "a NIC that timestamps all frames, such as an i210 or i225";

/// What mends a finding where nothing more exact is known: there is always something, if only
/// another machine or another desired configuration.
pub(super) fn otherwise(check: Check, interface: Option<&IfName>) -> String {
    let name = interface.map_or("the interface", IfName::as_str);
    let without = |key: &str| format!("a file without `{key}` of {name}");
    match check {
        Check::Privilege
        | Check::SchedulingFifo
        | Check::SchedulingDeadline
        | Check::MemoryLock => "run it as root: sudo timewire".to_owned(),
        Check::Tools | Check::ClockTools => install(&["iproute2", "ethtool", "linuxptp"]),
        Check::CpuVirtual => "a machine of its own, or CPUs that its host pins to it".to_owned(),
        Check::CpuCount | Check::LabCpus => "a machine with more CPUs".to_owned(),
        Check::Lockdown
        | Check::Preemption
        | Check::CpuIsolated
        | Check::CpuGovernor
        | Check::CpuIdle
        | Check::CpuSmt
        | Check::CpuSets
        | Check::ClockTimers
        | Check::ClockSource
        | Check::WakeUps
        | Check::SchedulingThrottling => {
            "a machine and kernel that are set up for real time: see `timewire doctor`".to_owned()
        }
        Check::ClockTai | Check::ClockSynchronised | Check::ClockError => {
            "host settings with `clock`: timewire apply FILE".to_owned()
        }
        Check::Link => "the name of an interface that `ip link` shows".to_owned(),
        Check::LinkUp => format!("ip link set dev {name} up, and a cable"),
        Check::LinkRate | Check::LinkDuplex => format!("ethtool -s {name} autoneg on"),
        Check::LinkMtu => format!("ip link set dev {name} mtu 1500"),
        Check::LinkQueues => {
            format!("fewer classes or queues in the file, or a NIC with more queues than {name}")
        }
        Check::LinkEee => without("eee"),
        Check::LinkCoalescing => without("coalescing"),
        Check::LinkRings => without("rings"),
        Check::LinkFeatures | Check::LinkVlanTag => without("features"),
        Check::LinkSteering => format!("{}, or a NIC with ntuple filters", without("steering")),
        Check::LinkClock | Check::LinkTimestamps => TIMESTAMPING_NIC.to_owned(),
        Check::LinkPreemption => without("mac_merge"),
        Check::LinkXdp => format!("ip link set dev {name} xdp off"),
        Check::LinkQdisc => format!("tc qdisc del dev {name} root"),
        Check::LinkRoute => "--confirm-within 30s, or another interface".to_owned(),
        Check::LinkNapi => without("napi"),
        Check::LinkQueueCpus => format!("{} and `xps`", without("rps")),
        Check::LinkVlan => without("vlans"),
        Check::QdiscTaprioOffload => "`mode: software` in `gates`".to_owned(),
        Check::QdiscEtfOffload => "`offload: false` in `launch_time`".to_owned(),
        Check::QdiscCbsOffload => "`offload: false` in `shaper`".to_owned(),
        Check::QdiscMqprio | Check::QdiscTaprio | Check::QdiscEtf | Check::QdiscCbs => {
            "a kernel with the queueing discipline (CONFIG_NET_SCH_*)".to_owned()
        }
        Check::Xdp => "a NIC whose driver has XDP, such as an i210 or i225".to_owned(),
        Check::CpuMap => "a kernel with CONFIG_BPF_SYSCALL".to_owned(),
        Check::Tcx => "Linux 6.6 or newer".to_owned(),
        Check::LabNetem | Check::LabTbf | Check::Backend => laboratory(),
        Check::Guard => "a longer `guard` in `schedule`".to_owned(),
        Check::Spin | Check::Margin => "a longer `margin` or `spin` of the MAC".to_owned(),
        Check::LaunchDelta => "a longer `launch_delta` in `mac`".to_owned(),
        Check::Gates => "longer gates, or a host that wakes up in time".to_owned(),
        Check::GroupsPolling => "a higher priority for the threads that receive".to_owned(),
        Check::Sysctl => "a name that `sysctl -a` shows".to_owned(),
    }
}

/// Installs packages.
pub(super) fn install(packages: &[&str]) -> String {
    format!("apt-get install {}", packages.join(" "))
}

/// Adds words to the kernel's command line, from the next start on.
pub(super) fn boot_with(words: &str) -> String {
    format!(
        "sed -i 's/^GRUB_CMDLINE_LINUX_DEFAULT=\"/&{words} /' /etc/default/grub && update-grub, \
         and start anew"
    )
}

/// Takes a parameter off the kernel's command line, from the next start on.
pub(super) fn boot_without(parameter: &str) -> String {
    format!(
        "sed -i '/^GRUB_CMDLINE_LINUX/s/ *\\b{parameter}=[^ \"]*//g' /etc/default/grub && \
         update-grub, and start anew"
    )
}

/// A kernel that can be interrupted nearly everywhere, as Debian has it for this machine.
pub(super) fn real_time_kernel(machine: &str) -> Vec<String> {
    let flavour = match machine {
        "x86_64" => "rt-amd64",
        "aarch64" => "rt-arm64",
        "armv7l" => "rt-armmp",
        _ => return Vec::new(),
    };
    vec![format!("apt-get install linux-image-{flavour}, and start anew")]
}

/// A kernel that has what the running one lacks.
pub(super) fn other_kernel(machine: &str, option: &str) -> String {
    let flavour = match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "armv7l" => "armmp",
        "riscv64" => "riscv64",
        _ => return format!("a kernel with {option}"),
    };
    format!("a kernel with {option}, as Debian has: apt-get install linux-image-{flavour}")
}

/// A run of a scenario where everything is there.
pub(super) fn laboratory() -> String {
    "timewire run --on lab:uml FILE".to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// What the command, of which only the file is another, makes of a file.
    fn edited(command: &str, before: &str) -> String {
        let (command, _) = command.split_once(" && ").unwrap();
        let (script, file) = command.strip_prefix("sed -i ").unwrap().rsplit_once(' ').unwrap();
        assert_eq!(file, "/etc/default/grub");
        let mut sed = Command::new("sed");
        let sed = sed.arg(script.trim_matches('\'')).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut sed = sed.spawn().unwrap();
        sed.stdin.take().unwrap().write_all(before.as_bytes()).unwrap();
        String::from_utf8(sed.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn t0_words_are_put_into_the_command_line_of_the_kernel() {
        let before = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n";
        assert_eq!(
            edited(&boot_with("isolcpus=3"), before),
            "GRUB_CMDLINE_LINUX_DEFAULT=\"isolcpus=3 quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n"
        );
    }

    #[test]
    fn t0_a_parameter_is_taken_off_the_command_line_of_the_kernel() {
        let before = "# lockdown=x\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet lockdown=integrity nosmt\"\n\
                      GRUB_CMDLINE_LINUX=\"lockdown=confidentiality\"\n";
        assert_eq!(
            edited(&boot_without("lockdown"), before),
            "# lockdown=x\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet nosmt\"\nGRUB_CMDLINE_LINUX=\"\"\n"
        );
    }

    #[test]
    fn t0_only_debian_s_machines_have_its_kernel() {
        assert_eq!(
            real_time_kernel("x86_64"),
            ["apt-get install linux-image-rt-amd64, and start anew"]
        );
        assert!(real_time_kernel("riscv64").is_empty());
    }
}
