// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Planned gates of a bridge as instance data of YANG, in JSON.
//!
//! **Source**: IEEE 802.1Qcw-2023, module `ieee802-dot1q-sched` of 2023-10-22 and
//! `ieee802-dot1q-sched-bridge`, which puts it below a bridge port; the table of traffic classes of
//! `ieee802-dot1q-types` of 2023-10-22; RFC 7951 for the encoding, by which numbers of 64 bits are
//! text.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use timewire_base::Span;
use timewire_model::scenario::network::NetDevice;

use crate::model::{PortGates, greatest_divisor};

/// The table of one port. Classes are the queues of the plan; bit 7 is class 7. Its numbers have 32
/// bits, and so has the longest cycle of host settings.
pub(super) fn interface(
    name: &str,
    gates: &PortGates,
    (base, states): (Span, &[(Option<u8>, Span)]),
    device: &NetDevice,
    queues_of: &BTreeMap<u8, BTreeSet<u64>>,
) -> Value {
    let queues = device.queues.get().min(8);
    let planned = queues_of.keys().fold(0_u8, |mask, queue| mask | 1 << queue.min(&7));
    let all = u8::try_from((1_u64 << queues) - 1).unwrap_or(u8::MAX);
    let entries = states.iter().enumerate().map(|(index, (queue, lasts))| {
        json!({
            "index": index,
            "operation-name": "ieee802-dot1q-sched:set-gate-states",
            "time-interval-value": lasts.as_ns(),
            "gate-states-value": queue.map_or(all & !planned, |queue| 1 << queue.min(7)),
        })
    });
    let entries: Vec<Value> = entries.collect();
    let longest = states.iter().map(|(_, lasts)| *lasts).max().unwrap_or(gates.cycle);
    // A list is held against what its port supports: the limits of the device, or what is asked of
    // one whose limits nobody told.
    let supported = |limit: Option<Span>, asked: Span| limit.unwrap_or(asked).max(asked);
    let count = u64::try_from(entries.len()).unwrap_or(u64::MAX);
    let list_max = device.gate_entries.map_or(count, |most| most.get().max(count));
    let second = Span::from_secs(1).as_ns();
    let table = table(classes_of(queues_of, queues), queues);
    let interval_max = supported(device.interval_max, longest).as_ns().min(i64::from(u32::MAX));
    json!({
        "name": name,
        "type": "iana-if-type:ethernetCsmacd",
        "ieee802-dot1q-bridge:bridge-port": {
            "traffic-class": { "traffic-class-table": table },
            "ieee802-dot1q-sched-bridge:gate-parameter-table": {
                "gate-enabled": true,
                "admin-gate-states": all,
                "admin-control-list": { "gate-control-entry": entries },
                "admin-cycle-time": rational(gates.cycle),
                "admin-base-time": {
                    "seconds": (base.as_ns() / second).to_string(),
                    "nanoseconds": base.as_ns() % second,
                },
                "config-change": true,
                "supported-list-max": list_max,
                "supported-cycle-max": rational(supported(device.cycle_max, gates.cycle)),
                "supported-interval-max": interval_max,
            },
        },
    })
}

/// A fraction of a second.
fn rational(span: Span) -> Value {
    let second = Span::from_secs(1);
    let shared = greatest_divisor(span, second).as_ns();
    json!({ "numerator": span.as_ns() / shared, "denominator": second.as_ns() / shared })
}

/// The class of each priority: that of the planned streams in it, or one below all planned.
pub(super) fn classes_of(planned: &BTreeMap<u8, BTreeSet<u64>>, queues: u64) -> [u8; 8] {
    let below = planned.keys().next().map_or(7, |first| first.saturating_sub(1));
    let last = u8::try_from(queues.clamp(1, 8) - 1).unwrap_or(7);
    let mut all = [0; 8];
    for (priority, class) in (0_u8..).zip(&mut all) {
        let own = planned.iter().find(|(_, all)| all.contains(&priority.into()));
        *class = own.map_or(priority.min(below), |(queue, _)| *queue).min(last);
    }
    all
}

fn table(classes: [u8; 8], queues: u64) -> Value {
    let mut table = json!({ "number-of-traffic-classes": queues });
    for (priority, class) in classes.into_iter().enumerate() {
        table[format!("priority{priority}")] = json!(class);
    }
    table
}

/// All interfaces of a bridge.
pub(super) fn document(interfaces: &[Value]) -> String {
    format!("{:#}\n", json!({"ietf-interfaces:interfaces": {"interface": interfaces}}))
}
