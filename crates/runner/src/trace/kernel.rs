// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the running kernel calls its numbers, for the header of a capture: so that the names are
//! right wherever the capture is read.

use std::collections::BTreeMap;
use std::fs;

use timewire_capture::capture::CaptureHeader;
use timewire_capture::kernel::{DropReasons, enumerations};

/// Types of the kernel (`vmlinux`) and of its modules.
const TYPES: &str = "/sys/kernel/btf";
/// Most interrupts whose names are kept.
const MAX_INTERRUPTS: usize = 1_024;

/// Puts names of reasons of drops and of interrupts into the `meta` of a header, as far as this
/// kernel tells them.
pub(super) fn name_numbers(meta: &mut BTreeMap<String, String>) {
    let reasons = drop_reasons();
    let names = reasons.names.into_iter();
    meta.extend(names.map(|(reason, name)| (CaptureHeader::reason_key(reason), name)));
    let subsystems = reasons.subsystems.into_iter();
    meta.extend(subsystems.map(|(at, name)| (CaptureHeader::subsystem_key(at), name)));
    let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let interrupts = interrupts(&text).into_iter().take(MAX_INTERRUPTS);
    meta.extend(interrupts.map(|(at, name)| (CaptureHeader::interrupt_key(at), name)));
}

/// The reasons of this kernel and of the modules that are loaded.
fn drop_reasons() -> DropReasons {
    let Ok(kernel) = fs::read(format!("{TYPES}/vmlinux")) else { return DropReasons::default() };
    let wanted = |name: &str| name.ends_with("drop_reason") || name == "skb_drop_reason_subsys";
    let mut all = enumerations(&kernel, None, wanted).unwrap_or_default();
    let modules = fs::read_dir(TYPES).into_iter().flatten().flatten();
    for module in modules.filter(|module| module.file_name() != "vmlinux") {
        let Ok(bytes) = fs::read(module.path()) else { continue };
        // A reason of a module whose types cannot be read has no name, and is told as unknown.
        all.extend(enumerations(&kernel, Some(&bytes), wanted).unwrap_or_default());
    }
    DropReasons::of(&all)
}

/// Names of numbered interrupts, of `/proc/interrupts`: the columns behind the counts of the CPUs.
fn interrupts(text: &str) -> BTreeMap<u64, String> {
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |head| head.split_whitespace().count());
    let name = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let name = rest.split_whitespace().skip(cpus).last()?;
        Some((number, name.to_owned()))
    };
    lines.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_interrupts_have_the_names_of_their_handlers() {
        let text = "           CPU0       CPU1       \n  \
                    24:        0     129841  IO-APIC  24-edge      virtio0-input.0\n \
                    NMI:          0          0   Non-maskable interrupts\n";
        assert_eq!(interrupts(text), BTreeMap::from([(24, "virtio0-input.0".to_owned())]));
        assert!(interrupts("").is_empty());
    }

    #[test]
    fn t3_this_kernel_names_its_reasons() {
        if fs::metadata(format!("{TYPES}/vmlinux")).is_err() {
            eprintln!("SKIP: this kernel has no {TYPES}/vmlinux");
            return;
        }
        let reasons = drop_reasons();
        if reasons.names.is_empty() {
            eprintln!("SKIP: this kernel has no reasons of drops");
            return;
        }
        assert!(reasons.names.values().any(|name| name == "NO_SOCKET"), "{reasons:?}");
        assert!(reasons.names.values().all(|name| !name.starts_with("SKB_DROP_")), "{reasons:?}");
        let mut header = CaptureHeader::default();
        name_numbers(&mut header.meta);
        for (reason, name) in &reasons.names {
            assert_eq!(header.reason(*reason), *name);
        }
        assert!(header.reason(0xfffe).starts_with("unknown reason 65534 (subsystem "));
    }
}
