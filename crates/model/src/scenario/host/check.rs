// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold between the keys of a host.

use std::collections::BTreeMap;

use super::{DesiredHost, check_nic, clock, groups_check, marks, receive};
use crate::scenario::FurtherChecks;
use crate::scenario::item::Reader;

/// Compares the values under `path` with each other.
pub(in crate::scenario) fn check(
    path: &str,
    host: &DesiredHost,
    further: &dyn FurtherChecks,
    reader: &mut Reader,
) {
    let mut interfaces = BTreeMap::new();
    let mut vlans = BTreeMap::new();
    for (i, interface) in host.interfaces.iter().enumerate() {
        let key = format!("{path}.interfaces[{i}]");
        if interfaces.insert(&interface.name, i).is_some() {
            let message = format!("{} is there before", interface.name);
            let hint = "write everything about an interface in one entry";
            reader.fail_at(&format!("{key}.name"), message, hint);
        }
        check_nic::check(&key, interface, reader);
        check_nic::check_vlans(&key, interface, &mut vlans, reader);
        marks::check(&format!("{key}.marks"), &interface.marks, reader);
        if let Some(wanted) = &interface.receive {
            receive::check(&format!("{key}.receive"), wanted, reader);
        }
        if let Some(transmit) = &interface.transmit {
            for refused in further.transmit(&interface.name, transmit) {
                let dot = if refused.key.is_empty() { "" } else { "." };
                let key = format!("{key}.transmit{dot}{}", refused.key);
                reader.fail_at(&key, refused.message, &refused.hint);
            }
        }
    }
    check_sysctls(path, host, reader);
    if let Some(group) = &host.groups {
        groups_check::check(&format!("{path}.groups"), group, further, reader);
    }
    if let Some(wanted) = &host.clock {
        clock::check(&format!("{path}.clock"), wanted, reader);
    }
}

fn check_sysctls(path: &str, host: &DesiredHost, reader: &mut Reader) {
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
