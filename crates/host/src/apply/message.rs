// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A `taprio` with more entries than `tc` has room for, as a message to the kernel. `tc` writes its
//! message into 1024 bytes; the kernel takes what an attribute holds.
//!
//! **Source**: `linux v6.12 include/uapi/linux/pkt_sched.h` (`TCA_TAPRIO_ATTR_*`,
//! `struct tc_mqprio_qopt`, `struct tc_sizespec`), `include/uapi/linux/rtnetlink.h`
//! (`struct tcmsg`, `TCA_*`).

use std::fmt;

use timewire_sys::netlink::{self, Attributes};
use timewire_tsn::qdisc::{
    FramePreemption, GateOperation, InstallVerb, Qdisc, QdiscAction, QdiscClock, QdiscCommand,
    QdiscPosition, SizeTable, Taprio, TaprioMode, TrafficClasses,
};

use crate::HostError;
use crate::tool::Tool;

/// The command, when it is one of `tc` that `tc` itself has no room for.
pub(super) fn beyond_tc(tool: Tool, arguments: &[String]) -> Option<QdiscCommand> {
    if tool != Tool::Tc || arguments.first().is_none_or(|word| word != "qdisc") {
        return None;
    }
    let command = QdiscCommand::of_message(&arguments.join(" ")).ok()?;
    command.check_tc_message().is_err().then_some(command)
}

/// What stands before the line where it is shown: no shell can run it.
pub(super) fn write_note(f: &mut fmt::Formatter<'_>, command: &QdiscCommand) -> fmt::Result {
    let Some(Qdisc::Taprio(taprio)) = command.qdisc() else { return Ok(()) };
    let (count, room) = (taprio.options().entries.len(), taprio.entries_in_tc_message());
    write!(f, "# by rtnetlink, for tc has room for {room} of {count} entries: ")
}

/// Puts it there.
///
/// **Errors**: the kernel refuses; the message names what it says.
pub(super) fn send(command: &QdiscCommand) -> Result<(), HostError> {
    let failed = |why: String| {
        let (count, device) = (entries_of(command), command.device());
        let place = command.place().map_or_else(|| "root".to_owned(), |place| place.to_string());
        let command = format!("RTM_NEWQDISC dev {device} {place} taprio, {count} entries");
        HostError::ToolFailed { command, status: "rtnetlink".to_owned(), line: None, stderr: why }
    };
    let index = timewire_sys::interface_index(command.device());
    let index = index.map_err(|error| failed(error.to_string()))?;
    let Some((flags, body)) = body(command, index) else {
        return Err(failed("it is no taprio that is put somewhere".to_owned()));
    };
    netlink::request(RTM_NEWQDISC, flags, &body).map_err(|error| failed(error.to_string()))
}

fn entries_of(command: &QdiscCommand) -> usize {
    match command.qdisc() {
        Some(Qdisc::Taprio(taprio)) => taprio.options().entries.len(),
        _ => 0,
    }
}

const RTM_NEWQDISC: u16 = 36;
const TC_H_ROOT: u32 = u32::MAX;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STAB: u16 = 8;

/// Flags and body of the message; `None` for another command.
fn body(command: &QdiscCommand, interface: u32) -> Option<(u16, Vec<u8>)> {
    let QdiscAction::Install { verb, qdisc: Qdisc::Taprio(taprio) } = command.action() else {
        return None;
    };
    // NLM_F_REPLACE is 0x100, NLM_F_EXCL 0x200, NLM_F_CREATE 0x400.
    let flags = match verb {
        InstallVerb::Add => 0x600,
        InstallVerb::Change => 0,
        InstallVerb::Replace => 0x500,
        InstallVerb::Link => 0x100,
    };
    let parent = match command.place()? {
        QdiscPosition::Root => TC_H_ROOT,
        QdiscPosition::Parent(class) => u32::from(class.major) << 16 | u32::from(class.minor),
    };
    let handle = command.handle().map_or(0, |handle| u32::from(handle.get()) << 16);
    let mut attributes = Attributes::new();
    attributes.put(TCA_KIND, b"taprio\0").nest(TCA_OPTIONS, &options(taprio));
    if let Some(table) = command.size_table() {
        attributes.nest(TCA_STAB, &size_table(table));
    }
    // Family and padding, interface, handle, parent, information.
    let head = [0, interface, handle, parent, 0].map(u32::to_ne_bytes).concat();
    Some((flags, [&head, attributes.as_bytes()].concat()))
}

fn options(taprio: &Taprio) -> Attributes {
    let given = taprio.options();
    let mut all = Attributes::new();
    if let Some(classes) = &given.classes {
        all.put(1, &priority_map(classes));
    }
    let mut list = Attributes::new();
    for entry in &given.entries {
        let operation = match entry.operation {
            GateOperation::SetAndHold => 1_u8,
            GateOperation::SetAndRelease => 2,
            _ => 0,
        };
        let interval = u32::try_from(entry.interval.as_ns()).unwrap_or(u32::MAX);
        let mut one = Attributes::new();
        one.put(2, &[operation]);
        one.put(3, &entry.gate_states.bits().to_ne_bytes());
        one.put(4, &interval.to_ne_bytes());
        list.nest(1, &one);
    }
    all.nest(2, &list).put(3, &given.base_time.as_ns().to_ne_bytes());
    if let Some(clock) = given.clock {
        // CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI.
        let number: i32 = match clock {
            QdiscClock::Realtime => 0,
            QdiscClock::Monotonic => 1,
            QdiscClock::Boottime => 7,
            QdiscClock::Tai => 11,
        };
        all.put(5, &number.to_ne_bytes());
    }
    for (kind, span) in [(8, given.cycle_time), (9, given.cycle_time_extension)] {
        if span.as_ns() != 0 {
            all.put(kind, &span.as_ns().to_ne_bytes());
        }
    }
    if given.mode != TaprioMode::Software {
        all.put(10, &given.mode.flags().to_ne_bytes());
    }
    if given.txtime_delay.as_ns() != 0 {
        let delay = u32::try_from(given.txtime_delay.as_ns()).unwrap_or(u32::MAX);
        all.put(11, &delay.to_ne_bytes());
    }
    let classes = (0_u32..).take(given.max_sdu.len().max(given.preemption.len()));
    for (place, class) in classes.enumerate() {
        let mut one = Attributes::new();
        one.put(1, &class.to_ne_bytes());
        if let Some(bytes) = given.max_sdu.get(place) {
            one.put(2, &bytes.to_ne_bytes());
        }
        if let Some(preemption) = given.preemption.get(place) {
            let number: u32 = match preemption {
                FramePreemption::Express => 1,
                FramePreemption::Preemptible => 2,
            };
            one.put(3, &number.to_ne_bytes());
        }
        all.nest(12, &one);
    }
    all
}

/// `struct tc_mqprio_qopt`: how many classes, the class of each priority, whether the device does
/// it, how many queues each class has, and from which on.
fn priority_map(classes: &TrafficClasses) -> Vec<u8> {
    let mut map = vec![classes.count()];
    map.extend(classes.map().iter().map(|class| class.get()));
    map.push(0);
    let mut numbers = [[0_u16; 16]; 2];
    for (place, range) in classes.queues().iter().enumerate().take(16) {
        numbers[0][place] = range.count;
        numbers[1][place] = range.offset.get();
    }
    map.extend(numbers.concat().into_iter().flat_map(u16::to_ne_bytes));
    map
}

/// `struct tc_sizespec` with an overhead alone, as `tc` writes it for `stab overhead BYTES`.
fn size_table(table: SizeTable) -> Attributes {
    let mut base = vec![0; 4];
    base.extend(table.overhead().to_ne_bytes());
    // Link layer, shortest length, longest length, size of the table.
    base.extend([0_u32; 4].map(u32::to_ne_bytes).concat());
    let mut all = Attributes::new();
    all.put(1, &base);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(entries: usize) -> Vec<String> {
        let entries = " sched-entry S 1 300000 sched-entry S 2 700000".repeat(entries / 2);
        let line = format!(
            "qdisc add dev lo root handle 100: stab overhead 24 taprio num_tc 2 map 0 1 queues 1@0 \
             1@1 base-time 5{entries} clockid CLOCK_TAI"
        );
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn t0_only_what_tc_has_no_room_for_goes_by_a_message() {
        assert_eq!(beyond_tc(Tool::Tc, &line(10)), None);
        assert_eq!(beyond_tc(Tool::Ip, &line(100)), None);
        let command = beyond_tc(Tool::Tc, &line(100)).unwrap();
        let (flags, bytes) = body(&command, 1).unwrap();
        assert_eq!(flags, 0x600);
        // The head, the kind, the options with classes, list and base time and clock, the table.
        let options = 4 + 88 + (4 + 100 * 28) + 12 + 8;
        assert_eq!(bytes.len(), 20 + 12 + options + (4 + 4 + 24));
        let shown = crate::apply::Command::Run { tool: Tool::Tc, arguments: line(100) };
        let shown = shown.to_string();
        let start = "# by rtnetlink, for tc has room for 30 of 100 entries: tc qdisc add dev lo ";
        assert!(shown.starts_with(start), "{shown}");
    }
}
