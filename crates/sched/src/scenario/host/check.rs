// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold between the keys of a host.
//!
//! Not here: what a single key takes (its type), an interface without its transmit side
//! (`check_card`).

use std::collections::BTreeMap;

use super::{
    HostWish, Scheduling, SchedulingPolicy, check_card, clock, groups_check, marks, receive,
};
use crate::desired::QdiscTree;
use crate::scenario::item::Reader;

/// Compares the values under `path` with each other.
pub(in crate::scenario) fn check(path: &str, host: &HostWish, reader: &mut Reader) {
    let mut interfaces = BTreeMap::new();
    let mut vlans = BTreeMap::new();
    for (i, interface) in host.interfaces.iter().enumerate() {
        let key = format!("{path}.interfaces[{i}]");
        if interfaces.insert(&interface.name, i).is_some() {
            let message = format!("{} is there before", interface.name);
            let hint = "write everything about an interface in one entry";
            reader.fail_at(&format!("{key}.name"), message, hint);
        }
        check_card::check(&key, interface, reader);
        check_card::check_vlans(&key, interface, &mut vlans, reader);
        marks::check(&format!("{key}.marks"), &interface.marks, reader);
        if let Some(wanted) = &interface.receive {
            receive::check(&format!("{key}.receive"), wanted, reader);
        }
        if let Some(transmit) = &interface.transmit {
            let tree = QdiscTree::of_wish(&interface.name, transmit);
            for error in tree.err().unwrap_or_default() {
                let dot = if error.key.is_empty() { "" } else { "." };
                let key = format!("{key}.transmit{dot}{}", error.key);
                reader.fail_at(&key, error.message, &error.hint);
            }
        }
    }
    check_sysctls(path, host, reader);
    if let Some(group) = &host.groups {
        groups_check::check(&format!("{path}.groups"), group, reader);
    }
    if let Some(wanted) = &host.clock {
        clock::check(&format!("{path}.clock"), wanted, reader);
    }
}

fn check_sysctls(path: &str, host: &HostWish, reader: &mut Reader) {
    let mut names = BTreeMap::new();
    for (i, sysctl) in host.sysctls.iter().enumerate() {
        let key = |field: &str| format!("{path}.sysctls[{i}].{field}");
        let name = sysctl.name.as_str();
        let parts: Vec<&str> = name.split('.').collect();
        let is_part = |part: &&str| {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || b == b'@';
            !part.is_empty() && part.bytes().all(allowed)
        };
        if parts.len() < 2 || !parts.iter().all(is_part) {
            let hint = "write the path below /proc/sys with dots, such as net.core.netdev_budget";
            reader.fail_at(&key("name"), format!("`{name}` names no setting of the kernel"), hint);
        }
        if names.insert(name, i).is_some() {
            reader.fail_at(&key("name"), format!("{name} is there before"), "write it once");
        }
        let value = sysctl.value.as_str();
        if value.is_empty() || value.contains('\n') || value.len() > MAX_VALUE {
            let message = format!("a value is one line of 1 to {MAX_VALUE} bytes");
            reader.fail_at(&key("value"), message, "write it as `sysctl` shows it");
        }
    }
}

/// The kernel takes a page at most.
const MAX_VALUE: usize = 1024;

/// A policy has a priority exactly when it is a real-time one; `key` is that of the scheduling.
pub(super) fn check_scheduling(key: &str, scheduling: &Scheduling, reader: &mut Reader) {
    let policy = scheduling.policy;
    let real_time = policy != SchedulingPolicy::Other;
    match (real_time, scheduling.priority) {
        (true, None) => {
            let message = format!("the policy `{}` needs a `priority`", policy.word());
            reader.fail_at(key, message, "write 1 to 99; 50 is that of interrupt threads");
        }
        (false, Some(_)) => {
            let message = "only `fifo` and `rr` have a real-time priority".to_owned();
            reader.fail_at(&format!("{key}.priority"), message, "leave it out");
        }
        _ => {}
    }
}
