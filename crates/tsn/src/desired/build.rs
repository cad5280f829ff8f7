// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A desired configuration becomes a tree, or a list of what is wrong with it.

use std::collections::BTreeMap;

use timewire_base::{GateMask, IfName, Span, TrafficClass};

use super::shaper;
use super::{DesiredError, QdiscNode, QdiscTree};
use crate::qdisc::{
    Cbs, ClassId, ClassRate, Etf, EtfFlags, FramePreemption, GateControlEntry, GateOperation,
    Handle, MAX_SHOWN_ENTRIES, Mqprio, MqprioHardware, MqprioOptions, MqprioShaper, Qdisc,
    QdiscClock, QdiscError, QdiscPosition, QueueRange, SizeTable, Taprio, TaprioMode,
    TaprioOptions, TrafficClasses,
};
use timewire_model::scenario::host::{
    Class, GateMode, Gates, Hardware, LaunchTime, PreemptionOperation, Shaper, Transmit,
};

/// The name of a root in whose classes others stand, when the desired configuration has none.
pub(super) const ROOT: Handle = Handle::new(0x100);

/// How many socket priorities there are.
const PRIORITIES: usize = 16;

/// What is wrong so far.
#[derive(Default)]
pub(super) struct Wrong(pub(super) Vec<DesiredError>);

impl Wrong {
    pub(super) fn add(&mut self, key: &str, message: impl Into<String>, hint: &str) {
        let (key, message, hint) = (key.to_owned(), message.into(), hint.to_owned());
        self.0.push(DesiredError { key, message, hint });
    }
}

pub(super) fn tree(device: &IfName, desired: &Transmit) -> Result<QdiscTree, Vec<DesiredError>> {
    let mut wrong = Wrong::default();
    let table = size_table(desired, &mut wrong);
    let parts = if desired.classes.is_empty() {
        single(desired, table, &mut wrong).map(|root| (root, Vec::new()))
    } else {
        several(desired, table, &mut wrong)
    };
    match parts {
        Some((root, children)) if wrong.0.is_empty() => {
            let warnings = super::warning::of(desired, &root, &children);
            Ok(QdiscTree { device: device.clone(), root, children, warnings })
        }
        _ => Err(wrong.0),
    }
}

fn size_table(desired: &Transmit, wrong: &mut Wrong) -> Option<SizeTable> {
    let bytes = desired.overhead?.get();
    let Ok(overhead) = u16::try_from(bytes) else {
        let message = format!("{bytes}B are more than the 65535 that Linux can add to a frame");
        wrong.add("overhead", message, "Ethernet has 24B on the link that Linux does not count");
        return None;
    };
    let in_class = desired.classes.iter().any(|class| class.shaper.is_some());
    if desired.gates.is_none() && desired.shaper.is_none() && !in_class {
        let message = "nothing here computes with the length of a frame";
        wrong.add("overhead", message, "it is for gates and shapers: leave it out");
    }
    Some(SizeTable::new(overhead))
}

/// An interface as one queue.
fn single(desired: &Transmit, table: Option<SizeTable>, wrong: &mut Wrong) -> Option<QdiscNode> {
    if desired.gates.is_some() {
        let hint = "name at least one class, with its queues";
        wrong.add("gates", "gates are of classes, and there are none", hint);
    }
    if desired.hardware != Hardware::Software {
        let message = "there are no classes that the NIC could keep apart";
        wrong.add("hardware", message, "name classes, or leave it out");
    }
    for (key, queue) in [
        ("shaper.queue", desired.shaper.as_ref().and_then(|shaper| shaper.queue)),
        ("launch_time.queue", desired.launch_time.as_ref().and_then(|launch| launch.queue)),
    ] {
        if queue.is_some() {
            wrong.add(key, "without classes the interface is one queue", "leave it out");
        }
    }
    let qdisc = match (&desired.shaper, &desired.launch_time) {
        (Some(shaper), None) => Qdisc::Cbs(shaper::cbs("shaper", shaper, wrong)?),
        (None, Some(launch)) => Qdisc::Etf(etf("launch_time", launch, wrong)?),
        (Some(_), Some(_)) => {
            let hint = "give them classes with queues of their own";
            wrong.add("launch_time", "one queue has a shaper or launch times, not both", hint);
            return None;
        }
        (None, None) => {
            if desired.gates.is_none() {
                let hint = "write `classes`, a `shaper` or a `launch_time`";
                wrong.add("", "nothing is desired of transmit", hint);
            }
            return None;
        }
    };
    let size_table = table.filter(|_| desired.shaper.is_some());
    Some(QdiscNode { place: QdiscPosition::Root, handle: desired.handle, size_table, qdisc })
}

/// An interface with traffic classes.
fn several(
    desired: &Transmit,
    table: Option<SizeTable>,
    wrong: &mut Wrong,
) -> Option<(QdiscNode, Vec<QdiscNode>)> {
    let count = desired.classes.len();
    if count > PRIORITIES {
        let message = format!("{count} classes are more than the 16 that Linux keeps");
        wrong.add("classes", message, "join some of them");
        return None;
    }
    for (key, given) in
        [("shaper", desired.shaper.is_some()), ("launch_time", desired.launch_time.is_some())]
    {
        if given {
            let message = format!("the `{key}` of an interface with classes is that of a class");
            wrong.add(key, message, &format!("write it as `classes[N].{key}`"));
        }
    }
    let before = wrong.0.len();
    let map = map(&desired.classes, wrong);
    let queues = queues(desired, wrong);
    options_of_classes(desired, wrong);
    if wrong.0.len() > before {
        return None;
    }
    let number = u64::try_from(count).expect("invariant: at most 16");
    let classes = TrafficClasses::new(number, map, queues);
    let classes = classes.map_err(|error| wrong.add("classes", error.to_string(), "")).ok()?;
    let root = match &desired.gates {
        Some(gates) => taprio(desired, gates, classes, wrong).map(Qdisc::Taprio),
        None => mqprio(desired, classes, wrong).map(Qdisc::Mqprio),
    };
    let children = children(desired, table, wrong);
    let handle = if children.is_empty() { desired.handle } else { desired.handle.or(Some(ROOT)) };
    // The root of mqprio sees no frame: the length is computed by what stands in its classes.
    let size_table = table.filter(|_| desired.gates.is_some());
    Some((QdiscNode { place: QdiscPosition::Root, handle, size_table, qdisc: root? }, children))
}

/// The class of each socket priority.
fn map(classes: &[Class], wrong: &mut Wrong) -> [TrafficClass; PRIORITIES] {
    let mut of: [Option<usize>; PRIORITIES] = [None; PRIORITIES];
    let mut rest = None;
    for (index, class) in classes.iter().enumerate() {
        let key = format!("classes[{index}].priorities");
        let Some(priorities) = &class.priorities else {
            match rest {
                None => rest = Some(index),
                Some(first) => {
                    let message = format!(
                        "the classes {first} and {index} both take all socket priorities that no \
                         other class has"
                    );
                    wrong.add(&key, message, "write `priorities` in all classes but one");
                }
            }
            continue;
        };
        if priorities.is_empty() {
            wrong.add(&key, "no frame would go to this class", "name socket priorities, 0 to 15");
        }
        for (place, priority) in priorities.iter().enumerate() {
            let number = usize::try_from(priority.get()).expect("invariant: read as 0 to 15");
            if let Some(other) = of[number] {
                let message = match other == index {
                    true => format!("the socket priority {number} is there before"),
                    false => format!("the socket priority {number} is in class {other}, too"),
                };
                let hint = "name each socket priority once";
                wrong.add(&format!("{key}[{place}]"), message, hint);
            }
            of[number] = Some(index);
        }
    }
    let missing: Vec<String> =
        of.iter().enumerate().filter(|(_, c)| c.is_none()).map(|(n, _)| n.to_string()).collect();
    match rest {
        None if !missing.is_empty() => {
            let message = format!("no class has the socket priorities {}", missing.join(", "));
            let hint = "leave `priorities` out in one class: it then has all that no other has";
            wrong.add("classes", message, hint);
        }
        Some(index) if missing.is_empty() => {
            let message = "all 16 socket priorities are in other classes";
            let hint = "write `priorities` here, or remove the class";
            wrong.add(&format!("classes[{index}]"), message, hint);
        }
        _ => {}
    }
    of.map(|class| {
        let class = class.or(rest).unwrap_or(0);
        u64::try_from(class)
            .ok()
            .and_then(|n| TrafficClass::new(n).ok())
            .expect("invariant: at most 16 classes")
    })
}

/// The queues of each class, or none at all.
fn queues(desired: &Transmit, wrong: &mut Wrong) -> Vec<QueueRange> {
    let given: Vec<(usize, QueueRange)> = desired
        .classes
        .iter()
        .enumerate()
        .filter_map(|(index, class)| Some((index, class.queues?)))
        .collect();
    let may_lack = desired.hardware == Hardware::Dcb && desired.gates.is_none();
    if may_lack && given.is_empty() {
        return Vec::new();
    }
    for (index, class) in desired.classes.iter().enumerate() {
        if class.queues.is_none() {
            let hint = match may_lack {
                true => "write them for all classes, or for none: then the NIC chooses",
                false => "write `queues: 1@0` for one queue, from queue 0",
            };
            let message = format!("class {index} has no `queues`");
            wrong.add(&format!("classes[{index}]"), message, hint);
        }
    }
    let shared = desired.gates.as_ref().is_some_and(|gates| gates.mode == GateMode::TxtimeAssist);
    for (place, (index, range)) in given.iter().enumerate() {
        for (other, before) in &given[..place] {
            let first = range.offset.get().max(before.offset.get());
            if !shared && u32::from(first) < range.end().min(before.end()) {
                let message = format!("queue {first} is of class {other} ({before}), too");
                let hint = "give each class queues of its own; classes share queues only under \
                            gates with `mode: txtime_assist`";
                wrong.add(&format!("classes[{index}].queues"), message, hint);
            }
        }
    }
    given.into_iter().map(|(_, range)| range).collect()
}

/// Keys of classes that need other keys.
fn options_of_classes(desired: &Transmit, wrong: &mut Wrong) {
    let offloaded = desired.gates.as_ref().is_some_and(|gates| gates.mode == GateMode::FullOffload);
    if desired.gates.is_some() && desired.hardware != Hardware::Software {
        let hint = "leave it out; gates are done by the NIC with `mode: full_offload`";
        wrong.add("hardware", "with gates, `gates.mode` says what the NIC does", hint);
    }
    for (index, class) in desired.classes.iter().enumerate() {
        let key = |field: &str| format!("classes[{index}].{field}");
        let rates = [("rate_min", class.rate_min), ("rate_max", class.rate_max)];
        for (field, rate) in rates {
            let Some(rate) = rate else { continue };
            if desired.gates.is_some() || desired.hardware != Hardware::Offload {
                let hint = "write `hardware: offload`, without gates; or give the class a `shaper`";
                let message = format!("only the NIC keeps the `{field}` of a class");
                wrong.add(&key(field), message, hint);
            } else if !rate.get().is_multiple_of(8) {
                let message = format!("{rate} is no whole number of bytes per second");
                wrong.add(&key(field), message, "Linux counts it in those: use a multiple of 8bit");
            }
        }
        if let (Some(min), Some(max)) = (class.rate_min, class.rate_max)
            && min > max
        {
            let message = format!("{min} are more than the `rate_max` of {max}");
            wrong.add(&key("rate_min"), message, "write at most that");
        }
        if class.max_sdu.is_some() && desired.gates.is_none() {
            let hint = "write `gates`, or leave it out; the interface's `mtu` bounds all classes";
            wrong.add(&key("max_sdu"), "only gates bound the packets of a class", hint);
        }
        if class.preemptible && !offloaded && desired.hardware == Hardware::Software {
            let hint = match desired.gates {
                Some(_) => "write `mode: full_offload` in `gates`",
                None => "write `hardware: offload`",
            };
            wrong.add(&key("preemptible"), "only a NIC can interrupt frames", hint);
        }
        if class.shaper.is_some() && class.launch_time.is_some() {
            let hint = "make two classes of it";
            let message = "a class has a shaper or launch times, not both";
            wrong.add(&key("launch_time"), message, hint);
        }
    }
}

fn preemption(classes: &[Class]) -> Vec<FramePreemption> {
    let of = |class: &Class| match class.preemptible {
        true => FramePreemption::Preemptible,
        false => FramePreemption::Express,
    };
    let last = classes.iter().rposition(|class| class.preemptible);
    last.map(|last| classes[..=last].iter().map(of).collect()).unwrap_or_default()
}

fn mqprio(desired: &Transmit, classes: TrafficClasses, wrong: &mut Wrong) -> Option<Mqprio> {
    let rates = |of: fn(&Class) -> Option<timewire_base::BitsPerSecond>| -> Vec<ClassRate> {
        if desired.classes.iter().all(|class| of(class).is_none()) {
            return Vec::new();
        }
        let rate = |class| of(class).map_or(0, |rate| rate.get() / 8);
        desired.classes.iter().map(|class| ClassRate::from_bytes_per_second(rate(class))).collect()
    };
    let (min_rate, max_rate) = (rates(|class| class.rate_min), rates(|class| class.rate_max));
    let limited = !min_rate.is_empty() || !max_rate.is_empty();
    let hardware = match desired.hardware {
        Hardware::Software => MqprioHardware::None,
        Hardware::Dcb => MqprioHardware::Dcb,
        Hardware::Offload if limited => MqprioHardware::Channel(MqprioShaper::BwRlimit),
        Hardware::Offload => MqprioHardware::Channel(MqprioShaper::Dcb),
    };
    let preemption = preemption(&desired.classes);
    let mqprio = MqprioOptions { classes, hardware, min_rate, max_rate, preemption };
    Mqprio::new(mqprio).map_err(|error| wrong.add("classes", error.to_string(), "")).ok()
}

fn taprio(
    desired: &Transmit,
    gates: &Gates,
    classes: TrafficClasses,
    wrong: &mut Wrong,
) -> Option<Taprio> {
    let before = wrong.0.len();
    let entries = entries(desired, gates, wrong);
    modes(desired, gates, wrong);
    if wrong.0.len() > before {
        return None;
    }
    let mode = match gates.mode {
        GateMode::Software => TaprioMode::Software,
        GateMode::TxtimeAssist => TaprioMode::TxtimeAssist,
        GateMode::FullOffload => TaprioMode::FullOffload,
    };
    let max_sdu = desired.classes.iter().map(|class| class.max_sdu.map_or(0, |bytes| bytes.get()));
    let mut max_sdu: Vec<u32> = max_sdu.collect();
    let kept = max_sdu.iter().rposition(|bytes| *bytes != 0).map_or(0, |last| last + 1);
    max_sdu.truncate(kept);
    let taprio = Taprio::new(TaprioOptions {
        classes: Some(classes),
        mode,
        clock: (mode != TaprioMode::FullOffload).then_some(QdiscClock::Tai),
        base_time: gates.base_time,
        cycle_time: gates.cycle_time.unwrap_or(Span::ZERO),
        cycle_time_extension: gates.cycle_extension.unwrap_or(Span::ZERO),
        entries,
        txtime_delay: gates.txtime_delay.unwrap_or(Span::ZERO),
        max_sdu,
        preemption: preemption(&desired.classes),
    });
    taprio.map_err(|error| refused(&error, wrong)).ok()
}

/// The key of what `taprio` refuses.
fn refused(error: &QdiscError, wrong: &mut Wrong) {
    let hint = "the kernel keeps a cycle of 2147483647ns at most";
    let (key, message, hint) = match error {
        QdiscError::Interval { index, interval } => {
            let message = format!("{interval} is not 1ns to 4294967295ns");
            (format!("gates.entries[{index}].interval"), message, "")
        }
        QdiscError::CycleRange { cycle, .. } => {
            ("gates.entries".to_owned(), format!("the entries last {cycle}"), hint)
        }
        QdiscError::DelayRange { .. } => {
            ("gates.txtime_delay".to_owned(), error.to_string(), "write a shorter one")
        }
        _ => ("gates".to_owned(), error.to_string(), ""),
    };
    wrong.add(&key, message, hint);
}

fn entries(desired: &Transmit, gates: &Gates, wrong: &mut Wrong) -> Vec<GateControlEntry> {
    let count = desired.classes.len();
    let preempts = desired.classes.iter().any(|class| class.preemptible);
    let mut entries = Vec::new();
    for (index, entry) in gates.entries.iter().enumerate() {
        let key = |field: &str| format!("gates.entries[{index}].{field}");
        let mut open = Vec::new();
        for (place, class) in entry.open.iter().enumerate() {
            let key = key(&format!("open[{place}]"));
            let class = TrafficClass::new(class.get()).expect("invariant: read as 0 to 15");
            if class.index() >= count {
                let message = format!("there is no class {class}");
                wrong.add(&key, message, &format!("the classes are 0 to {}", count - 1));
            }
            if open.contains(&class) {
                wrong.add(&key, format!("class {class} is open already"), "name it once");
            }
            open.push(class);
        }
        let operation = match entry.operation {
            None => GateOperation::SetGates,
            Some(PreemptionOperation::Hold) => GateOperation::SetAndHold,
            Some(PreemptionOperation::Release) => GateOperation::SetAndRelease,
        };
        if entry.operation.is_some() && !(preempts && gates.mode == GateMode::FullOffload) {
            let hint = "write `preemptible: true` in a class and `mode: full_offload` in `gates`, \
                        or leave it out";
            wrong.add(&key("operation"), "there are no preemptible frames to hold", hint);
        }
        let gate_states = GateMask::of(&open);
        entries.push(GateControlEntry { operation, gate_states, interval: entry.interval });
    }
    if entries.is_empty() {
        let hint = "write at least one, such as `{ open: [0], interval: 300us }`";
        wrong.add("gates.entries", "there is no entry", hint);
    }
    if entries.len() > MAX_SHOWN_ENTRIES {
        let count = entries.len();
        let message = format!("{count} entries: the kernel shows a list of {MAX_SHOWN_ENTRIES}");
        wrong.add("gates.entries", message, "join entries, or make the cycle shorter");
    }
    cycle(gates, wrong);
    entries
}

/// **Source**: `linux v6.12 net/sched/sch_taprio.c:setup_first_end_time`, `advance_sched`: entries
/// longer than the cycle are cut off, and a cycle longer than its entries starts over with them.
fn cycle(gates: &Gates, wrong: &mut Wrong) {
    let intervals = gates.entries.iter().map(|entry| entry.interval);
    let sum = intervals.fold(Span::ZERO, |sum, one| sum.checked_add(one).unwrap_or(Span::MAX));
    let Some(cycle) = gates.cycle_time.filter(|_| !gates.entries.is_empty()) else { return };
    if cycle < sum {
        let message = format!("a cycle of {cycle} cuts off the entries, which last {sum}");
        wrong.add("gates.cycle_time", message, &format!("write {sum}, or leave it out"));
    } else if cycle > sum {
        let message = format!("the entries last {sum} of the cycle of {cycle}");
        let rest = cycle - sum;
        let hint = format!(
            "say which gates are open for the rest: `{{ open: [], interval: {rest} }}` as the last \
             entry closes all"
        );
        wrong.add("gates.cycle_time", message, &hint);
    }
}

/// What the mode of the gates needs of the classes.
fn modes(desired: &Transmit, gates: &Gates, wrong: &mut Wrong) {
    let assisted = gates.mode == GateMode::TxtimeAssist;
    if gates.txtime_delay.is_some() && !assisted {
        let message = "only `mode: txtime_assist` gives frames a launch time";
        wrong.add("gates.txtime_delay", message, "leave it out");
    }
    if !assisted {
        return;
    }
    for (index, class) in desired.classes.iter().enumerate() {
        let Some(range) = class.queues else { continue };
        for queue in u32::from(range.offset.get())..range.end() {
            let kept = desired.classes.iter().any(|other| {
                let has = |range: QueueRange| {
                    (u32::from(range.offset.get())..range.end()).contains(&queue)
                };
                let only = |launch: &LaunchTime| {
                    launch.queue.is_none_or(|only| only.get() == u64::from(queue))
                };
                other.queues.is_some_and(has) && other.launch_time.as_ref().is_some_and(only)
            });
            if !kept {
                let message = format!(
                    "nothing keeps the launch times that `mode: txtime_assist` gives to frames of \
                     queue {queue}"
                );
                let hint = "write `launch_time: { delta: 200us, skip_sock_check: true }`";
                wrong.add(&format!("classes[{index}]"), message, hint);
                break;
            }
        }
        if class.launch_time.as_ref().is_some_and(|launch| !launch.skip_sock_check) {
            let message = "frames have their launch time from `mode: txtime_assist`, not from \
                           their socket, and would all be dropped";
            let key = format!("classes[{index}].launch_time.skip_sock_check");
            wrong.add(&key, message, "write `skip_sock_check: true`");
        }
    }
}

pub(super) fn etf(key: &str, launch: &LaunchTime, wrong: &mut Wrong) -> Option<Etf> {
    let flags = EtfFlags {
        offload: launch.offload,
        deadline_mode: launch.deadline,
        skip_sock_check: launch.skip_sock_check,
    };
    let etf = Etf::new(launch.delta, flags);
    let refused = |_| {
        let message = format!("{} is more than 2147483647ns", launch.delta);
        wrong.add(&format!("{key}.delta"), message, "some hundred microseconds are usual");
    };
    etf.map_err(refused).ok()
}

/// What stands in the queues of the classes.
fn children(desired: &Transmit, table: Option<SizeTable>, wrong: &mut Wrong) -> Vec<QdiscNode> {
    let major = desired.handle.unwrap_or(ROOT).get();
    // The gates compute lengths at the root, but not when the NIC has them.
    let at_root = desired.gates.as_ref().is_some_and(|gates| gates.mode != GateMode::FullOffload);
    let table = table.filter(|_| !at_root);
    let mut by_queue: BTreeMap<u32, (usize, QdiscNode)> = BTreeMap::new();
    for (index, class) in desired.classes.iter().enumerate() {
        let wanted = [
            class.shaper.as_ref().map(|shaper| in_class_shaper(index, shaper, wrong)),
            class.launch_time.as_ref().map(|launch| in_class_launch(index, launch, wrong)),
        ];
        for (key, only, qdisc) in wanted.into_iter().flatten() {
            let Some(qdisc) = qdisc else { continue };
            let Some(range) = class.queues else {
                let message = "the NIC chooses the queues of the class, so none can be named";
                wrong.add(&key, message, "write `queues` for all classes");
                continue;
            };
            let all = u32::from(range.offset.get())..range.end();
            let only = only.and_then(|only| u32::try_from(only).ok());
            if let Some(only) = only.filter(|only| !all.contains(only)) {
                let message = format!("queue {only} is not of class {index}, which has {range}");
                let hint = format!("name one of {} to {}", all.start, all.end - 1);
                wrong.add(&format!("{key}.queue"), message, &hint);
                continue;
            }
            for queue in all.filter(|queue| only.is_none_or(|only| only == *queue)) {
                let size_table = table.filter(|_| matches!(qdisc, Qdisc::Cbs(_)));
                let place = QdiscPosition::Parent(class_of(major, queue));
                let node = QdiscNode { place, handle: None, size_table, qdisc: qdisc.clone() };
                match by_queue.get(&queue) {
                    Some((other, before)) if *before != node => {
                        let message = format!("class {other} has another for queue {queue}");
                        let hint = "classes that share a queue share what stands in it: write it \
                                    for one of them";
                        wrong.add(&key, message, hint);
                    }
                    _ => {
                        by_queue.insert(queue, (index, node));
                    }
                }
            }
        }
    }
    by_queue.into_values().map(|(_, node)| node).collect()
}

type InClass = (String, Option<u64>, Option<Qdisc>);

fn in_class_shaper(index: usize, shaper: &Shaper, wrong: &mut Wrong) -> InClass {
    let key = format!("classes[{index}].shaper");
    let cbs: Option<Cbs> = shaper::cbs(&key, shaper, wrong);
    (key, shaper.queue.map(|queue| queue.get()), cbs.map(Qdisc::Cbs))
}

fn in_class_launch(index: usize, launch: &LaunchTime, wrong: &mut Wrong) -> InClass {
    let key = format!("classes[{index}].launch_time");
    let etf = etf(&key, launch, wrong);
    (key, launch.queue.map(|queue| queue.get()), etf.map(Qdisc::Etf))
}

/// Queue n is class n + 1.
fn class_of(major: u16, queue: u32) -> ClassId {
    let minor = u16::try_from(queue + 1).expect("invariant: queues are read as up to 65534");
    ClassId { major, minor }
}

/// The queue of a class of the root.
pub(super) fn queue_of(place: QdiscPosition) -> Option<u16> {
    match place {
        QdiscPosition::Root => None,
        QdiscPosition::Parent(class) => class.minor.checked_sub(1),
    }
}
