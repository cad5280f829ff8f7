// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Planned gates of a bridge as instance data of YANG, in JSON.
//!
//! **Source**: IEEE 802.1Qcw-2023, module `ieee802-dot1q-sched` of 2023-10-22 and
//! `ieee802-dot1q-sched-bridge`, which puts it below a bridge port; the table of
//! classes of `ieee802-dot1q-bridge`; RFC 7951 for the encoding, by
//! which numbers of 64 bits are text.
//!
//! Not here: bringing it to a device.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use timewire_base::Span;

use super::planned::states;
use crate::model::{PortGates, greatest_divisor};

/// The table of one port. Classes are the queues of the plan; bit 7 is class 7. Its numbers have 32
/// bits, and so has the longest cycle of a host file.
pub(super) fn interface(
    name: &str,
    gates: &PortGates,
    queues: u64,
    classes: &BTreeMap<u64, u8>,
) -> Value {
    let planned = gates.windows.iter().fold(0_u8, |mask, window| mask | 1 << window.queue.min(7));
    let all = u8::try_from((1_u64 << queues.min(8)) - 1).unwrap_or(u8::MAX);
    let entries = states(gates).into_iter().enumerate().map(|(index, (queue, lasts))| {
        json!({
            "index": index,
            "operation-name": "ieee802-dot1q-sched:set-gate-states",
            "time-interval-value": lasts.as_ns(),
            "gate-states-value": queue.map_or(all & !planned, |queue| 1 << queue.min(7)),
        })
    });
    let entries: Vec<Value> = entries.collect();
    let second = Span::from_secs(1);
    let shared = greatest_divisor(gates.cycle, second).as_ns();
    json!({
        "name": name,
        "ieee802-dot1q-bridge:bridge-port": {
            "traffic-class": { "traffic-class-map": map(classes, planned, queues) },
            "ieee802-dot1q-sched-bridge:gate-parameter-table": {
                "gate-enabled": true,
                "admin-gate-states": all,
                "admin-control-list": { "gate-control-entry": entries },
                "admin-cycle-time": {
                    "numerator": gates.cycle.as_ns() / shared,
                    "denominator": second.as_ns() / shared,
                },
                "admin-base-time": { "seconds": "0", "nanoseconds": 0 },
                "config-change": true,
            },
        },
    })
}

/// The class of each priority: that of the planned streams in it, or one below all planned.
fn map(classes: &BTreeMap<u64, u8>, planned: u8, queues: u64) -> Vec<Value> {
    let below = planned.trailing_zeros().saturating_sub(1).min(7);
    let class = |priority: u64| {
        let own = classes.get(&priority).copied().map(u64::from);
        own.unwrap_or(priority.min(below.into()))
    };
    let row = |priority: u64| {
        json!({
            "priority": priority,
            "available-traffic-class": [{
                "num-traffic-class": queues.min(8),
                "traffic-class": class(priority),
            }],
        })
    };
    (0..8).map(row).collect()
}

/// All interfaces of a bridge.
pub(super) fn document(interfaces: &[Value]) -> String {
    format!("{:#}\n", json!({"ietf-interfaces:interfaces": {"interface": interfaces}}))
}
