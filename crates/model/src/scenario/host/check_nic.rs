// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold between the keys of an interface, but for what it does on transmit and on
//! receive.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{IfName, Span};

use super::{DesiredInterface, Napi, QueueCpus, Scheduling, SchedulingPolicy, Steering, Vlan};
use crate::scenario::item::Reader;

/// Compares the values of an interface with each other; `path` is its key.
pub(super) fn check(path: &str, interface: &DesiredInterface, reader: &mut Reader) {
    check_channels(path, interface, reader);
    check_times(path, interface, reader);
    check_features(path, interface, reader);
    if let Some(napi) = &interface.napi {
        check_napi(&format!("{path}.napi"), napi, reader);
    }
    if let Some(scheduling) = interface.interrupts.as_ref().and_then(|i| i.scheduling.as_ref()) {
        check_scheduling(&format!("{path}.interrupts.scheduling"), scheduling, reader);
    }
    check_queues(&format!("{path}.rps"), &interface.rps, reader);
    check_queues(&format!("{path}.xps"), &interface.xps, reader);
    let mut places = BTreeSet::new();
    for (i, rule) in interface.steering.iter().enumerate() {
        let key = format!("{path}.steering[{i}]");
        check_steering(&key, rule, reader);
        if let Some(location) = rule.location
            && !places.insert(location)
        {
            let message = format!("the place {} has another rule", location.get());
            reader.fail_at(&format!("{key}.location"), message, "give each rule its own");
        }
    }
}

fn check_channels(path: &str, interface: &DesiredInterface, reader: &mut Reader) {
    let Some(channels) = &interface.channels else { return };
    let number = |count: Option<super::Queues>| count.map(super::Queues::get);
    let (rx, tx, both) = (number(channels.rx), number(channels.tx), number(channels.combined));
    for (field, own) in [("rx", rx), ("tx", tx)] {
        if own == Some(0) && both == Some(0) {
            let message = format!("{field} and combined are both 0: no queue would be left");
            let hint = "leave one of them at 1 or more";
            reader.fail_at(&format!("{path}.channels.{field}"), message, hint);
        }
    }
    let all = |own: Option<u64>| Some(own.unwrap_or(0) + both?);
    let (rx, tx) = (all(rx).filter(|_| rx.is_some()), all(tx).filter(|_| tx.is_some()));
    for (i, rule) in interface.steering.iter().enumerate() {
        let queue = rule.queue.get();
        if rx.is_some_and(|count| queue >= count) {
            let message = format!("there are {} receive queues, from 0", rx.unwrap_or(0));
            let key = format!("{path}.steering[{i}].queue");
            reader.fail_at(&key, message, "name one of them, or write more in `channels`");
        }
    }
    let transmit = interface.transmit.as_ref();
    for (i, class) in transmit.iter().flat_map(|transmit| transmit.classes.iter().enumerate()) {
        let end = class.queues.map(|range| u64::from(range.end()));
        if let (Some(end), Some(count)) = (end, tx)
            && end > count
        {
            let message = format!("there are {count} transmit queues, from 0");
            let key = format!("{path}.transmit.classes[{i}].queues");
            reader.fail_at(&key, message, "name some of them, or write more in `channels`");
        }
    }
}

/// Times that the kernel takes in coarser steps.
fn check_times(path: &str, interface: &DesiredInterface, reader: &mut Reader) {
    if let Some(coalescing) = &interface.coalescing {
        for (field, time) in [("rx", coalescing.rx), ("tx", coalescing.tx)] {
            let Some(time) = time else { continue };
            let key = format!("{path}.coalescing.{field}");
            if time.as_ns() % 1_000 != 0 {
                let message = format!("{time} is no whole number of microseconds");
                reader.fail_at(&key, message, "write the one below or above it");
            } else if time > Span::from_secs(1) {
                let message = format!("{time} is longer than a second");
                reader.fail_at(&key, message, "a NIC waits for microseconds: 0us is not at all");
            }
        }
    }
    if let Some(merge) = &interface.mac_merge {
        let key = |field: &str| format!("{path}.mac_merge.{field}");
        if let Some(time) = merge.verify_time {
            let range = Span::from_us(1_000)..=Span::from_us(128_000);
            if time.as_ns() % 1_000_000 != 0 || !range.contains(&time) {
                let message = format!("{time} is not a whole number of milliseconds, 1 to 128");
                reader.fail_at(&key("verify_time"), message, "write one, such as 10ms");
            }
        }
        if let Some(bytes) = merge.fragment
            && bytes.get() % 64 != 60
        {
            let message = format!("{} is none of 60, 124, 188 and 252", bytes.get());
            reader.fail_at(&key("fragment"), message, "write one of these");
        }
        if merge.tx == Some(true) && merge.pmac == Some(false) {
            let message = "a NIC that preempts must take preempted frames".to_owned();
            reader.fail_at(&key("pmac"), message, "write `pmac: true`");
        }
    }
}

fn check_features(path: &str, interface: &DesiredInterface, reader: &mut Reader) {
    let mut names = BTreeSet::new();
    for (i, feature) in interface.features.iter().enumerate() {
        let key = format!("{path}.features[{i}].name");
        let name = feature.name.as_str();
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
        let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts || !name.bytes().all(allowed) {
            let message = format!("`{name}` is no name of an offload");
            let hint = "write it as `ethtool -k` shows it, such as generic-receive-offload";
            reader.fail_at(&key, message, hint);
        }
        if !names.insert(name) {
            reader.fail_at(&key, format!("{name} is there before"), "write it once");
        }
    }
}

fn check_napi(key: &str, napi: &Napi, reader: &mut Reader) {
    let threaded = napi.threaded == Some(true);
    for (field, given) in [("scheduling", napi.scheduling.is_some()), ("cpus", napi.cpus.is_some())]
    {
        if given && !threaded {
            let message = "without `threaded: true` there are no threads".to_owned();
            reader.fail_at(&format!("{key}.{field}"), message, "write `threaded: true` beside it");
        }
    }
    if let Some(scheduling) = &napi.scheduling {
        check_scheduling(&format!("{key}.scheduling"), scheduling, reader);
    }
    let polls = napi.defer_hard_irqs.is_some_and(|polls| polls.get() > 0);
    if polls && napi.gro_flush_timeout.is_none_or(|time| time == Span::ZERO) {
        let message = "interrupts are put off by polls that a timer starts".to_owned();
        let hint = "write the time between them, such as `gro_flush_timeout: 20us`";
        reader.fail_at(&format!("{key}.defer_hard_irqs"), message, hint);
    }
}

fn check_queues(key: &str, list: &[QueueCpus], reader: &mut Reader) {
    let mut queues = BTreeSet::new();
    for (i, one) in list.iter().enumerate() {
        match one.queue {
            None if list.len() > 1 => {
                let message = "an entry without `queue` is for all of them".to_owned();
                reader.fail_at(&format!("{key}[{i}]"), message, "write `queue` in each entry");
            }
            Some(queue) if !queues.insert(queue) => {
                let message = format!("queue {} is there before", queue.get());
                reader.fail_at(&format!("{key}[{i}].queue"), message, "write it once");
            }
            _ => {}
        }
    }
}

/// EtherTypes that other keys are for.
const OTHER_KEYS: [(u16, &str); 2] =
    [(0x0800, "name a `udp_port` of IPv4"), (0x86dd, "rules for IPv6 are not taken yet")];

fn check_steering(key: &str, rule: &Steering, reader: &mut Reader) {
    let layer2 = [rule.destination.is_some(), rule.source.is_some(), rule.ethertype.is_some()];
    let tagged = rule.pcp.is_some() || rule.vlan.is_some();
    if !layer2.contains(&true) && !tagged && rule.udp_port.is_none() {
        let hint = "name a destination, source, ethertype, pcp, vlan or udp_port";
        reader.fail_at(key, "the rule fits every frame".to_owned(), hint);
    }
    if rule.udp_port.is_some() && layer2.contains(&true) {
        let message =
            "a NIC looks at addresses and EtherType of a frame, or at its port".to_owned();
        let hint = "keep `udp_port`, or the others; `pcp` and `vlan` go with both";
        reader.fail_at(&format!("{key}.udp_port"), message, hint);
    }
    let other = rule.ethertype.and_then(|ethertype| {
        let entry = OTHER_KEYS.iter().find(|(number, _)| *number == ethertype.get());
        entry.map(|(_, hint)| (ethertype, *hint))
    });
    if let Some((ethertype, hint)) = other {
        let message = format!("{ethertype} is not told apart by its EtherType");
        reader.fail_at(&format!("{key}.ethertype"), message, hint);
    }
}

/// The sub-interfaces of one interface; `names` are those of the host so far.
pub(super) fn check_vlans(
    path: &str,
    interface: &DesiredInterface,
    names: &mut BTreeMap<IfName, String>,
    reader: &mut Reader,
) {
    let mut ids = BTreeSet::new();
    for (i, vlan) in interface.vlans.iter().enumerate() {
        let key = format!("{path}.vlans[{i}]");
        if !ids.insert(vlan.id) {
            let message = format!("{} has the VLAN {} before", interface.name, vlan.id.get());
            reader.fail_at(&format!("{key}.id"), message, "write it once");
        }
        match vlan.name_on(&interface.name) {
            None => {
                let (name, id) = (&interface.name, vlan.id.get());
                let message = format!("`{name}.{id}` is longer than the 15 bytes of a name");
                reader.fail_at(&key, message, "give it a `name`");
            }
            Some(name) => {
                let of = format!("VLAN {} of {}", vlan.id.get(), interface.name);
                let before = names.insert(name.clone(), of);
                let before =
                    before.or_else(|| (name == interface.name).then(|| "the interface".to_owned()));
                if let Some(other) = before {
                    let message = format!("{other} is called {name}, too");
                    reader.fail_at(&format!("{key}.name"), message, "give each its own name");
                }
            }
        }
        check_maps(&key, vlan, reader);
    }
}

fn check_maps(key: &str, vlan: &Vlan, reader: &mut Reader) {
    let mut priorities = BTreeSet::new();
    for (i, pair) in vlan.egress.iter().enumerate() {
        if !priorities.insert(pair.priority) {
            let message = format!("the priority {} is there before", pair.priority.get());
            let hint = "a priority goes to one PCP";
            reader.fail_at(&format!("{key}.egress[{i}].priority"), message, hint);
        }
    }
    let mut codes = BTreeSet::new();
    for (i, pair) in vlan.ingress.iter().enumerate() {
        if !codes.insert(pair.pcp) {
            let message = format!("the PCP {} is there before", pair.pcp.get());
            let hint = "a PCP goes to one priority";
            reader.fail_at(&format!("{key}.ingress[{i}].pcp"), message, hint);
        }
    }
}

/// A policy has a priority exactly when it is a real-time one; `key` is that of the scheduling.
fn check_scheduling(key: &str, scheduling: &Scheduling, reader: &mut Reader) {
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
