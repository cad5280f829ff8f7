// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the slots of a TDM schedule to the gates of one station: `taprio` as the backend of the
//! schedule.
//!
//! ```text
//! slot of the station                                        of others
//! |<------------ transmit ------------>|<-- guard -->|
//! |<------ gates open ------>|<------- gates closed ------- ... ------>|
//!                            |<- rest->|  what taprio does not keep free by itself
//! ```

use std::fmt;

use thiserror::Error;
use timewire_base::{
    BitsPerSecond, FrameLen, GateMask, SocketPriority, Span, StationName, TrafficClass, TxQueue,
    Window,
};

use super::{
    GateControlEntry, QdiscClock, QdiscError, QueueRange, SizeTable, Taprio, TaprioMode,
    TaprioOptions, TrafficClasses, taprio_duration,
};
use timewire_model::scenario::Scenario;
use timewire_model::tdm::TdmSchedule;

/// The interface that carries the slots out, and who is urgent on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TdmPort {
    /// The rate of the link.
    pub link: BitsPerSecond,
    /// The rate that the interface states, from which `taprio` computes how long a frame lasts:
    /// that of `ethtool`, and 10 Mbit/s when it states none. It is 10 Gbit/s of a virtual Ethernet
    /// pair, whatever the link behind it does.
    pub stated: BitsPerSecond,
    /// The longest frame that will be sent, a tag included.
    pub largest: FrameLen,
    /// The socket priorities of the real-time class; all others are best effort.
    pub urgent: Vec<SocketPriority>,
}

impl TdmPort {
    /// A station's interface in the laboratory: a virtual Ethernet pair, which states 10 Gbit/s
    /// whatever the segment's rate (linux v6.12 `drivers/net/veth.c:veth_get_link_ksettings`).
    pub fn virtual_of(scenario: &Scenario) -> TdmPort {
        TdmPort {
            link: scenario.segment().rate,
            stated: BitsPerSecond::new(10_000_000_000).expect("invariant: in range"),
            largest: FrameLen::new(LARGEST_FRAME).expect("invariant: in range"),
            urgent: vec![Scenario::real_time_priority()],
        }
    }
}

/// The longest frame of a segment, as Linux counts: 1500 bytes and the Ethernet header.
const LARGEST_FRAME: u32 = 1_514;

/// A schedule that `taprio` cannot carry out for this station.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TdmTaprioError {
    /// The station may never send.
    #[error("`{station}` has no slot: there is no gate to open")]
    NoSlot {
        /// Whose slot.
        station: StationName,
    },
    /// The gates would have to close before they open.
    #[error(
        "the slot of `{station}` at {offset} transmits for {transmit}: frames of up to {largest} \
         bytes need more than {least}"
    )]
    SlotTooShort {
        /// Whose slot.
        station: StationName,
        /// Its start in the cycle.
        offset: Span,
        /// How long it transmits.
        transmit: Span,
        /// The longest frame.
        largest: u32,
        /// What it must exceed.
        least: Span,
    },
    /// Linux would refuse the result.
    #[error(transparent)]
    Qdisc(#[from] QdiscError),
}

/// The gates of one station, and the size table that they are computed with: without it, a frame
/// lasts 24 bytes shorter for `taprio` than on the link.
///
/// Prints the words of `tc` after the handle: `stab overhead 24 taprio num_tc 2 ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TdmTaprio {
    /// What is added to each frame.
    pub size_table: SizeTable,
    /// The gates.
    pub taprio: Taprio,
}

impl fmt::Display for TdmTaprio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.size_table, self.taprio)
    }
}

/// The best-effort class has the number 0 and queue 0.
const BEST_EFFORT: u64 = 0;
/// The real-time class has the number 1 and queue 1: `taprio` serves the higher number first.
const REAL_TIME: u64 = 1;

/// The gates of one station: open in its slots for both classes, closed in all others, carried out
/// by a timer of the kernel on `CLOCK_TAI`.
///
/// Within a slot the real-time class goes first. `taprio` starts a frame only when it ends, at the
/// stated rate, before the gates close; the gates close as much earlier than the slot's transmit
/// time as the longest frame lasts longer on the link than `taprio` computes. So a frame that
/// starts while the gates are open ends within the transmit time.
///
/// The list starts with the first slot of the station, and so the base time is that slot's start in
/// the schedule's first cycle.
///
/// **Limits**: the interface needs two transmit queues, and `taprio` must find the link idle. It
/// does not on an interface that states a higher rate than its link has: frames then leave `taprio`
/// faster than the link takes them, and the ones that wait behind it leave the slot. Frames longer
/// than `largest`, as segmentation in the device makes them, end late.
///
/// **Errors**: a station without a slot; a slot too short for the longest frame; a cycle longer
/// than 2^31 - 1 ns; more slots of the station than `tc` has room for (15 at least).
///
/// **Source**: `linux v6.12 net/sched/sch_taprio.c:taprio_dequeue_from_txq`,
/// `taprio_entry_allows_tx`, `length_to_duration`, `fill_sched_entry`.
pub fn taprio_of_station(
    schedule: &TdmSchedule,
    station: &StationName,
    port: &TdmPort,
) -> Result<TdmTaprio, TdmTaprioError> {
    let windows = schedule.windows_of(station);
    let windows = windows.windows();
    let Some(first) = windows.first() else {
        return Err(TdmTaprioError::NoSlot { station: station.clone() });
    };
    let size_table = SizeTable::ETHERNET;
    let mut entries = Vec::new();
    for (index, window) in windows.iter().enumerate() {
        let next = match windows.get(index + 1) {
            Some(next) => next.offset,
            None => first.offset + schedule.cycle(),
        };
        let open = open_length(window, next, port, size_table).ok_or_else(|| {
            TdmTaprioError::SlotTooShort {
                station: station.clone(),
                offset: window.offset,
                transmit: window.length,
                largest: port.largest.get(),
                least: reserve(port, size_table) + shortest(port),
            }
        })?;
        let closed = next - (window.offset + open);
        entries
            .push(GateControlEntry::set_gates(GateMask::of(&[best_effort(), real_time()]), open));
        if closed != Span::ZERO {
            entries.push(GateControlEntry::set_gates(GateMask::CLOSED, closed));
        }
    }
    let base_time = Span::from_ns(schedule.base_time().as_ns());
    let base_time = base_time.checked_add(first.offset).unwrap_or(Span::MAX);
    let taprio = Taprio::new(TaprioOptions {
        classes: Some(best_effort_and_real_time(&port.urgent)?),
        mode: TaprioMode::Software,
        clock: Some(QdiscClock::Tai),
        base_time,
        cycle_time: schedule.cycle(),
        entries,
        ..TaprioOptions::default()
    })?;
    taprio.check_tc_message()?;
    Ok(TdmTaprio { size_table, taprio })
}

/// How long the gates are open in this window; `None` when that is too short for `taprio`.
fn open_length(window: &Window, next: Span, port: &TdmPort, table: SizeTable) -> Option<Span> {
    let shortest = shortest(port);
    let mut open = window.length - reserve(port, table);
    let closed = next - (window.offset + open);
    // An entry shorter than the shortest frame is refused; closing earlier is always safe.
    if Span::ZERO < closed && closed < shortest {
        open = next - window.offset - shortest;
    }
    (open >= shortest && open > Span::ZERO).then_some(open)
}

/// How much longer than `taprio` computes a frame can last on the link.
///
/// The difference grows or falls evenly between the shortest frame, the shortest that is not padded
/// and the longest, so one of these has the largest.
fn reserve(port: &TdmPort, table: SizeTable) -> Span {
    let ends = [SHORTEST_SENT, SHORTEST_UNPADDED.min(port.largest.get()), port.largest.get()];
    ends.into_iter()
        .map(|bytes| {
            let frame = FrameLen::new(bytes).expect("invariant: no longer than `largest`");
            let computed = taprio_duration(bytes.saturating_add(table.overhead()), port.stated);
            port.link.duration_of(frame.wire_len()) - computed
        })
        .fold(Span::ZERO, Span::max)
}

fn shortest(port: &TdmPort) -> Span {
    taprio_duration(SHORTEST_UNPADDED, port.stated)
}

/// A header alone: the driver pads it after `taprio` has seen it.
const SHORTEST_SENT: u32 = 14;
const SHORTEST_UNPADDED: u32 = 60;

fn best_effort() -> TrafficClass {
    TrafficClass::new(BEST_EFFORT).expect("invariant: 0 is a traffic class")
}

fn real_time() -> TrafficClass {
    TrafficClass::new(REAL_TIME).expect("invariant: 1 is a traffic class")
}

/// Two classes with a queue each: best effort, and real time by socket priority.
///
/// **Errors**: none that can happen; the tables are checked like any other.
pub(crate) fn best_effort_and_real_time(
    urgent: &[SocketPriority],
) -> Result<TrafficClasses, QdiscError> {
    let mut map = [best_effort(); super::class::PRIORITIES];
    for priority in urgent {
        map[priority.index()] = real_time();
    }
    let queue = |number| -> Result<QueueRange, QdiscError> {
        Ok(QueueRange { count: 1, offset: TxQueue::new(number)? })
    };
    TrafficClasses::new(2, map, vec![queue(BEST_EFFORT)?, queue(REAL_TIME)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use timewire_base::Instant;
    use timewire_model::tdm::Slot;

    fn name(text: &str) -> StationName {
        StationName::new(text).unwrap()
    }

    fn schedule(cycle: i64, slots: &[(&str, i64, i64, i64)]) -> TdmSchedule {
        let slots = slots.iter().map(|&(station, offset, transmit, guard)| Slot {
            station: name(station),
            offset: Span::from_ns(offset),
            transmit: Span::from_ns(transmit),
            guard: Span::from_ns(guard),
        });
        TdmSchedule::new(Instant::from_ns(1_000_000), Span::from_ns(cycle), slots.collect())
            .unwrap()
    }

    fn port(link: u64, stated: u64, largest: u32) -> TdmPort {
        TdmPort {
            link: BitsPerSecond::new(link * 1_000_000).unwrap(),
            stated: BitsPerSecond::new(stated * 1_000_000).unwrap(),
            largest: FrameLen::new(largest).unwrap(),
            urgent: vec![SocketPriority::new(5).unwrap()],
        }
    }

    #[test]
    fn t0_the_thesis_schedule_as_words_of_tc() {
        let slots = [
            ("a", 0, 220_000, 40_000),
            ("b", 260_000, 220_000, 40_000),
            ("c", 520_000, 220_000, 40_000),
        ];
        let s = schedule(1_040_000, &slots);
        // The interface states the rate of its link: only padding is unknown to taprio, 46 bytes.
        let words = taprio_of_station(&s, &name("b"), &port(100, 100, 1_514)).unwrap().to_string();
        assert_eq!(
            words,
            "stab overhead 24 taprio num_tc 2 map 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 \
             queues 1@0 1@1 base-time 1260000 sched-entry S 03 216320 sched-entry S 00 823680 \
             cycle-time 1040000 clockid CLOCK_TAI"
        );
        // A virtual pair states 10 Gbit/s: taprio knows next to nothing of the 123.04 us that the
        // longest frame lasts, and computes 1538 bytes * 800 ps.
        let s = taprio_of_station(&s, &name("b"), &port(100, 10_000, 1_514)).unwrap();
        let open = s.taprio.options().entries[0].interval;
        assert_eq!(open, Span::from_ns(220_000 - 123_040 + 1_230));
    }

    #[test]
    fn t0_what_cannot_be_carried_out_is_said() {
        let s = schedule(1_040_000, &[("a", 0, 100_000, 0)]);
        let text =
            |station, port| taprio_of_station(&s, &name(station), &port).unwrap_err().to_string();
        assert_eq!(text("b", port(100, 100, 1_514)), "`b` has no slot: there is no gate to open");
        assert_eq!(
            text("a", port(100, 10_000, 1_514)),
            "the slot of `a` at 0ns transmits for 100us: frames of up to 1514 bytes need more than \
             121.858us"
        );
        let long = schedule(3_000_000_000, &[("a", 0, 1_000_000, 0)]);
        let error = taprio_of_station(&long, &name("a"), &port(100, 100, 1_514)).unwrap_err();
        assert_eq!(error.to_string(), "a cycle-time of 3s is not 0ns to 2147483647ns");
    }

    proptest! {
        /// second method: every frame length, at the last instant at which `taprio` starts it.
        #[test]
        fn t0_a_frame_that_taprio_starts_ends_within_the_slot(
            link in prop::sample::select(vec![10_u64, 100, 1_000, 2_500, 10_000]),
            stated in prop::sample::select(vec![10_u64, 100, 1_000, 2_500, 10_000, 40_000]),
            largest in 14_u32..9_000,
            transmit in 1_000_i64..20_000_000,
            second in prop::option::of(1_i64..1_000_000),
            idle in 0_i64..1_000_000,
        ) {
            let port = port(link, stated, largest);
            let mut slots = vec![("a", 0, transmit, 0)];
            let mut end = transmit;
            if let Some(gap) = second {
                slots.push(("a", transmit + gap, transmit, 0));
                end = 2 * transmit + gap;
            }
            let s = schedule(end + idle, &slots);
            let Ok(found) = taprio_of_station(&s, &name("a"), &port) else { return Ok(()) };
            let o = found.taprio.options();
            let sum = o.entries.iter().fold(0, |sum, e| sum + e.interval.as_ns());
            prop_assert_eq!(sum, s.cycle().as_ns());
            let mut at = 0;
            for entry in &o.entries {
                let close = at + entry.interval.as_ns();
                prop_assert!(entry.interval >= taprio_duration(60, port.stated));
                if entry.gate_states == GateMask::CLOSED {
                    at = close;
                    continue;
                }
                let slot = s.slots().iter().find(|slot| slot.offset.as_ns() == at).unwrap();
                let slot_end = at + slot.transmit.as_ns();
                for bytes in 14..=largest {
                    let computed = taprio_duration(bytes + 24, port.stated).as_ns();
                    let start = close - computed - 1;
                    let frame = FrameLen::new(bytes).unwrap();
                    let lasts = port.link.duration_of(frame.wire_len()).as_ns();
                    prop_assert!(start < at || start + lasts <= slot_end, "{} bytes", bytes);
                }
                at = close;
            }
        }
    }
}
