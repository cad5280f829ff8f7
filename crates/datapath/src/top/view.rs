// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look as text. With the look before it, counts are rates.

use timewire_base::Span;

use super::{InterfaceLook, Look, QdiscLook, ThreadLook, slots_of};
use crate::clock::ClockStatus;
use crate::control::Status;
use crate::streams::clocks::ClockBasis;

/// How much of it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Letters of a line.
    pub columns: usize,
    /// Lines; all without.
    pub lines: Option<usize>,
}

/// The text, each line with its end. What matters most stands first, so that a small terminal has
/// it.
pub fn view(look: &Look, before: Option<&Look>, room: Room) -> String {
    let since = before.and_then(|before| Some((before, look.since(before)?)));
    let mut lines = Vec::new();
    clock(&mut lines, look);
    for mac in &look.macs {
        let then = since.and_then(|(before, span)| {
            let same = |it: &&Status| it.name == mac.name && it.pid == mac.pid;
            Some((before.macs.iter().find(same)?, span))
        });
        of_mac(&mut lines, mac, then);
    }
    interfaces(&mut lines, look, since);
    programs(&mut lines, look);
    threads(&mut lines, look, since);
    lines.extend(look.notes.iter().map(|note| format!("note: {note}")));
    fit(&lines, room)
}

fn fit(lines: &[String], room: Room) -> String {
    let most = room.lines.unwrap_or(usize::MAX).saturating_sub(1).max(1);
    let mut out = String::new();
    for line in lines.iter().take(most) {
        let plain = line.chars().map(|c| if c.is_control() { '?' } else { c });
        out.extend(plain.take(room.columns));
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    out
}

fn clock(lines: &mut Vec<String>, look: &Look) {
    match &look.clock {
        None => lines.push("clock: nobody says how it is".to_owned()),
        Some(clock) => {
            let how = if clock.synchronised { "synchronised" } else { "NOT synchronised" };
            lines.push(format!(
                "clock: {how}, error at most {}, still to correct {}, {} ppb",
                clock.max_error, clock.offset, clock.frequency_ppb
            ));
        }
    }
    if look.clock_error.basis == ClockBasis::Stated && look.clocks.is_empty() {
        lines.push(format!("  {}", look.clock_error.describe()));
    }
    for ClockStatus { name, guard, offset_ns, offset_error_ns, giver, .. } in &look.clocks {
        let how = match &guard.why {
            None => "on time".to_owned(),
            Some(why) => format!("NOT on time: {why}"),
        };
        let giver = giver.as_deref().unwrap_or("nobody");
        // A difference of clocks without the error of its comparison is none.
        let off = look.clock_error.off_by(offset_ns.zip(*offset_error_ns), giver);
        lines.push(format!("  watched as `{name}`: {how}; {off}; lost {} times", guard.losses));
    }
    for found in look.ptp4l.iter().filter(|found| found.watched_as.is_none()) {
        let whose = found.whose();
        lines.push(format!(
            "  {whose}, asked with `clock status --socket {}`",
            found.socket.display()
        ));
    }
}

/// What was counted since, by second.
fn rate(now: u64, then: Option<u64>, span: Option<Span>) -> String {
    match (then.and_then(|then| now.checked_sub(then)), span) {
        (Some(more), Some(span)) => format!("{:.1}/s", float(more) / (span.as_us_f64() / 1e6)),
        _ => now.to_string(),
    }
}

fn of_mac(lines: &mut Vec<String>, mac: &Status, then: Option<(&Status, Span)>) {
    lines.push(format!(
        "MAC `{}`: station {} on {}, {}; clock: {}",
        mac.name, mac.station, mac.link, mac.transmit.socket, mac.clock
    ));
    match &mac.schedule {
        None => lines.push("  no schedule: frames leave at once".to_owned()),
        Some(schedule) => {
            let slots = slots_of(schedule, &mac.station);
            let slots = slots.iter().map(|(at, long)| format!("{at} for {long}"));
            let slots: Vec<String> = slots.collect();
            let all = schedule.slots().len();
            lines.push(format!(
                "  cycle {}, {} of {all} slots: {}",
                schedule.cycle(),
                slots.len(),
                if slots.is_empty() { "none is its own".to_owned() } else { slots.join(", ") }
            ));
        }
    }
    let span = then.map(|(_, span)| span);
    for queue in &mac.transmit.queues {
        let before =
            then.and_then(|(then, _)| then.transmit.queues.iter().find(|it| it.name == queue.name));
        let arrived = rate(queue.arrived, before.map(|it| it.arrived), span);
        let released = rate(queue.released, before.map(|it| it.released), span);
        lines.push(format!(
            "  queue {:<10} arrived {arrived:>12}  released {released:>12}  dropped {:>8}",
            queue.name,
            queue.dropped_full + queue.dropped_oversize
        ));
    }
    lines.push(format!(
        "  missed slots {}, dropped at ingress {}, held for the clock {}, not sent {}",
        mac.transmit.missed_slots,
        mac.transmit.ingress_dropped,
        mac.held_unsynchronised,
        mac.not_sent
    ));
}

fn interfaces(lines: &mut Vec<String>, look: &Look, since: Option<(&Look, Span)>) {
    let head = ["in", "out", "in Mbit/s", "out Mbit/s", "drops", "errors"];
    let [came, went, in_rate, out_rate, drops, errors] = head;
    lines.push(format!(
        "{:<16} {:<8} {came:>11} {went:>11} {in_rate:>10} {out_rate:>10} {drops:>8} {errors:>7}",
        "interface", "state"
    ));
    for one in &look.interfaces {
        let then =
            since.and_then(|(before, _)| before.interfaces.iter().find(|it| it.name == one.name));
        of_interface(lines, one, then, since.map(|(_, span)| span));
    }
}

fn of_interface(
    lines: &mut Vec<String>,
    one: &InterfaceLook,
    then: Option<&InterfaceLook>,
    span: Option<Span>,
) {
    let count = |key: &str| one.counters.get(key).copied().unwrap_or(0);
    let before = |key: &str| then.and_then(|then| then.counters.get(key).copied());
    let frames = |key: &str| rate(count(key), before(key), span);
    let megabits = |key: &str| match (before(key), span) {
        (Some(then), Some(span)) => {
            let bits = float(count(key).saturating_sub(then)) * 8.0;
            format!("{:.3}", bits / span.as_us_f64())
        }
        _ => "-".to_owned(),
    };
    lines.push(format!(
        "{:<16} {:<8} {:>11} {:>11} {:>10} {:>10} {:>8} {:>7}",
        one.name,
        one.operstate,
        frames("rx_packets"),
        frames("tx_packets"),
        megabits("rx_bytes"),
        megabits("tx_bytes"),
        count("rx_dropped") + count("tx_dropped"),
        count("rx_errors") + count("tx_errors")
    ));
    for qdisc in &one.qdiscs {
        // The kernel's own on a virtual interface has no queue.
        if qdisc.kind == "noqueue" {
            continue;
        }
        let same = |it: &&QdiscLook| (&it.handle, &it.parent) == (&qdisc.handle, &qdisc.parent);
        let then = then.and_then(|then| then.qdiscs.iter().find(same));
        lines.push(format!(
            "  {:<10} {:<8} {:<10} sent {:>12}  queued {:>6} ({} bytes)  drops {:>8}  late {:>8}",
            qdisc.kind,
            qdisc.handle,
            qdisc.parent,
            rate(qdisc.packets, then.map(|it| it.packets), span),
            qdisc.queued,
            qdisc.backlog_bytes,
            qdisc.drops,
            qdisc.overlimits
        ));
        if let Some(words) = &qdisc.words {
            lines.push(format!("    {words}"));
        }
    }
}

fn programs(lines: &mut Vec<String>, look: &Look) {
    for one in &look.programs {
        lines.push(format!("program {:>7} {:<8} {}", one.pid, one.verb, one.arguments.join(" ")));
    }
    if let Some(groups) = &look.groups {
        lines.push(format!(
            "groups of process {}: {} rows (`timewire group show` has them)",
            groups.pid,
            groups.rows.len()
        ));
    }
}

fn threads(lines: &mut Vec<String>, look: &Look, since: Option<(&Look, Span)>) {
    let (kernels, own): (Vec<&ThreadLook>, Vec<&ThreadLook>) =
        look.threads.iter().partition(|thread| thread.kernel);
    lines.push(format!(
        "real-time threads: {} of programs, {} of the kernel",
        own.len(),
        kernels.len()
    ));
    // Those of the kernel follow, since they are on every host.
    for thread in own.into_iter().chain(kernels) {
        let busy = since.and_then(|(before, span)| {
            let same = |it: &&ThreadLook| (it.pid, it.thread) == (thread.pid, thread.thread);
            let then = before.threads.iter().find(same)?.ran_ns?;
            let more = float(thread.ran_ns?.saturating_sub(then));
            Some(format!("{:.1} %", more / (span.as_us_f64() * 10.0)))
        });
        lines.push(format!(
            "  {:>7} {:<16} {:<8} {:>3}  cpu {:>3}  busy {:>8}",
            thread.thread,
            thread.name,
            thread.policy,
            thread.priority,
            thread.cpu,
            busy.as_deref().unwrap_or("-")
        ));
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{ProgramLook, TOP_SCHEMA};
    use super::*;
    use crate::streams::clocks::ClockBound;

    fn look(seconds: i64, packets: u64) -> Look {
        let counters = [("rx_packets", packets), ("rx_bytes", packets * 125), ("tx_dropped", 3)];
        let counters: BTreeMap<String, u64> =
            counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let qdisc = QdiscLook {
            kind: "taprio".to_owned(),
            handle: "100:".to_owned(),
            parent: "root".to_owned(),
            packets: packets * 2,
            drops: 5,
            overlimits: 6,
            queued: 7,
            backlog_bytes: 700,
            words: Some("taprio num_tc 2".to_owned()),
            gates: None,
        };
        Look {
            schema: TOP_SCHEMA,
            taken_utc_ns: seconds * 1_000_000_000,
            clock: None,
            clocks: Vec::new(),
            clock_error: ClockBound::stated(None),
            ptp4l: Vec::new(),
            macs: Vec::new(),
            interfaces: vec![InterfaceLook {
                name: "eth0".to_owned(),
                operstate: "UP".to_owned(),
                speed_mbps: Some(1_000),
                counters,
                qdiscs: vec![qdisc],
            }],
            programs: vec![ProgramLook {
                pid: 9,
                verb: "talk".to_owned(),
                arguments: vec!["a\u{1b}[2J".to_owned()],
            }],
            groups: None,
            threads: vec![ThreadLook {
                pid: 9,
                thread: 10,
                name: "tw-talk".to_owned(),
                policy: "fifo",
                priority: 80,
                cpu: 1,
                kernel: false,
                ran_ns: Some(packets * 1_000_000),
            }],
            notes: vec!["something".to_owned()],
        }
    }

    const ALL: Room = Room { columns: usize::MAX, lines: None };

    #[test]
    fn t1_the_first_look_has_counts_and_the_next_has_rates() {
        let first = view(&look(10, 1_000), None, ALL);
        assert_eq!(first, include_str!("first.txt"), "\n{first}");
        let next = view(&look(12, 3_000), Some(&look(10, 1_000)), ALL);
        assert_eq!(next, include_str!("next.txt"), "\n{next}");
        // A clock that was set back, and counters that began again, give no rates.
        let back = view(&look(8, 3_000), Some(&look(10, 1_000)), ALL);
        assert!(!back.contains("0/s"), "{back}");
        let again = view(&look(12, 10), Some(&look(10, 1_000)), ALL);
        assert!(!again.contains("0/s"), "{again}");
    }

    #[test]
    fn t0_it_fits_its_room_and_steers_no_terminal() {
        let text = view(&look(10, 1_000), None, Room { columns: 30, lines: Some(4) });
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(!view(&look(10, 1_000), None, ALL).contains('\u{1b}'));
    }
}
