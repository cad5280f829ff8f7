// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Eight messages, three timestamp points, one fault at a time. Every case runs with the numbers 0
//! to 7, with the wrap at 2^32 in the midst of them, and with a later wrap; the counts are the
//! same.

use super::*;

const MESSAGES: u32 = 8;
/// UTC is behind TAI, on which the sends are timed.
const UTC_AHEAD: Span = Span::from_secs(-37);
const NIC: TimestampClock = TimestampClock::Phc(3);
/// The NIC's clock, whose relation nobody told, shows quite another time.
const NIC_AHEAD_NS: i64 = 1_234_567 * MS;

/// What happens, in this order. Message `k` is sent at `k` milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Sent(u32),
    Refused(u32, Counting),
    /// Timestamp point, message, nanoseconds to add to what a good clock would show.
    Timestamp(TransmitPoint, u32, i64),
    /// Milliseconds.
    Expire(i64),
}
use Event::{Expire, Sent, Timestamp};
use TransmitPoint::{Acknowledged, Hardware, Sched, Software};

/// The counts of a timestamp point: matched, suspect, missing, duplicate, differing, late, unknown.
type Counts = [u64; 7];
const GOOD: Counts = [8, 0, 0, 0, 0, 0, 0];

/// Everything goes well.
fn good() -> Vec<Event> {
    let each =
        |k| [Sent(k), Timestamp(Sched, k, 0), Timestamp(Software, k, 0), Timestamp(Hardware, k, 0)];
    (0..MESSAGES).flat_map(each).chain([Expire(100)]).collect()
}

fn without(lost: impl Fn(TransmitPoint, u32) -> bool) -> Vec<Event> {
    let kept = |event: &Event| !matches!(*event, Timestamp(point, k, _) if lost(point, k));
    good().into_iter().filter(kept).collect()
}

/// Those timestamps come only after `after`, in their order.
fn moved(those: impl Fn(TransmitPoint, u32) -> bool, after: Event) -> Vec<Event> {
    let rest = without(&those);
    let at = rest.iter().position(|event| *event == after).unwrap() + 1;
    let is_one = |event: &Event| matches!(*event, Timestamp(point, k, _) if those(point, k));
    let moved: Vec<Event> = good().into_iter().filter(is_one).collect();
    [&rest[..at], &moved, &rest[at..]].concat()
}

fn with(new: &[Event], after: Event) -> Vec<Event> {
    let events = good();
    let at = events.iter().position(|event| *event == after).unwrap() + 1;
    [&events[..at], new, &events[at..]].concat()
}

/// From a message on (and up to another), the clock of a timestamp point shows something else.
fn stepped(point: TransmitPoint, messages: std::ops::Range<u32>, by: i64) -> Vec<Event> {
    let step = |event| match event {
        Timestamp(at, k, 0) if at == point && messages.contains(&k) => Timestamp(at, k, by),
        other => other,
    };
    good().into_iter().map(step).collect()
}

fn counts_of(first: u64, events: &[Event], name: &str) -> [Counts; 4] {
    let points = PointSet::of(&[Sched, Software, Hardware]);
    let mut matcher = TimestampMatcher::<Tai>::starting_at(first, 16, points, LIMITS);
    matcher.relate(TimestampClock::Utc, UTC_AHEAD, Span::from_ns(US)).unwrap();
    let id = |k: u32| id_of(first).wrapping_add(k);
    let time = |k: u32| i64::from(k) * MS;
    for event in events {
        match *event {
            Sent(k) => assert_eq!(matcher.sent(id(k), Instant::from_ns(time(k))), Ok(None)),
            Event::Refused(k, counting) => {
                assert_eq!(matcher.failed(id(k), counting), Ok(None), "{name}");
            }
            Timestamp(point, k, by) => {
                let delay = [10, 20, 30, 40][point.index()] * US;
                let (clock, ahead) = match point {
                    Hardware => (NIC, NIC_AHEAD_NS),
                    _ => (TimestampClock::Utc, UTC_AHEAD.as_ns()),
                };
                let ns = time(k).wrapping_add(delay + ahead).saturating_add(by);
                matcher.timestamped(point, id(k), ClockTime { clock, ns });
            }
            Expire(ms) => {
                for closed in matcher.expire(Instant::from_ns(ms * MS)) {
                    let k = u32::try_from(closed.seq - first).unwrap();
                    let sent = closed.sent_at.map(Instant::as_ns);
                    assert!(sent.is_none_or(|sent| sent == time(k)), "{name}: {closed:?}");
                }
            }
        }
    }
    assert_eq!(matcher.open(), 0, "{name}");
    TransmitPoint::ALL.map(|point| {
        let c = matcher.counts(point);
        assert_eq!(c.awaited, c.matched + c.suspect + c.missing, "{name}: {point:?}");
        [c.matched, c.suspect, c.missing, c.duplicate, c.differing, c.late, c.unknown]
    })
}

/// Name, what happens, and what is counted at `Sched`, `Software`, `Hardware`.
type Case = (&'static str, Vec<Event>, [Counts; 3]);

fn missing_cases() -> Vec<Case> {
    let run = |k: u32| (2..5).contains(&k);
    let lost = |n| [8 - n, 0, n, 0, 0, 0, 0];
    vec![
        ("none", good(), [GOOD; 3]),
        ("missing first", without(|_, k| k == 0), [lost(1); 3]),
        ("missing last", without(|_, k| k == 7), [lost(1); 3]),
        ("missing run", without(|_, k| run(k)), [lost(3); 3]),
        ("missing every other", without(|_, k| k % 2 == 1), [lost(4); 3]),
        ("missing all", without(|_, _| true), [lost(8); 3]),
        (
            "missing one timestamp point of one",
            without(|t, k| t == Software && k == 3),
            [GOOD, lost(1), GOOD],
        ),
        (
            "missing one timestamp point of all",
            without(|t, _| t == Hardware),
            [GOOD, GOOD, lost(8)],
        ),
        (
            "missing another timestamp point each time",
            without(|t, k| TransmitPoint::ALL[usize::try_from(k % 3).unwrap()] == t),
            [lost(3), lost(3), lost(2)],
        ),
    ]
}

fn duplicate_cases() -> Vec<Case> {
    let twice = [8, 0, 0, 1, 0, 0, 0];
    let again = [Timestamp(Software, 3, 0)];
    let other = [Timestamp(Software, 3, 1)];
    let all: Vec<Event> = (0..MESSAGES).map(|k| Timestamp(Sched, k, 0)).collect();
    vec![
        ("duplicate at once", with(&again, Timestamp(Software, 3, 0)), [GOOD, twice, GOOD]),
        ("duplicate later", with(&again, Sent(6)), [GOOD, twice, GOOD]),
        ("duplicate after expiry", with(&again, Expire(100)), [GOOD, twice, GOOD]),
        (
            "duplicate of another value",
            with(&other, Timestamp(Software, 3, 0)),
            [GOOD, [8, 0, 0, 1, 1, 0, 0], GOOD],
        ),
        (
            "duplicate of another value after expiry",
            with(&other, Expire(100)),
            [GOOD, [8, 0, 0, 1, 1, 0, 0], GOOD],
        ),
        (
            "duplicate three times",
            with(&again.repeat(3), Sent(6)),
            [GOOD, [8, 0, 0, 3, 0, 0, 0], GOOD],
        ),
        ("duplicate all", with(&all, Expire(100)), [[8, 0, 0, 8, 0, 0, 0], GOOD, GOOD]),
    ]
}

fn late_cases() -> Vec<Case> {
    let late = |n| [8 - n, 0, n, 0, 0, n, 0];
    let late_twice = [7, 0, 1, 0, 0, 2, 0];
    let one = |point, k| move |t, n| t == point && n == k;
    let mut twice = moved(one(Hardware, 2), Expire(100));
    twice.push(Timestamp(Hardware, 2, 0));
    let mut early = moved(one(Software, 1), Timestamp(Hardware, 7, 0));
    // The timeout of message 1 is over at 6 ms; exactly then it is not.
    let at = early.iter().position(|event| *event == Timestamp(Hardware, 7, 0)).unwrap() + 1;
    let mut in_time = early.clone();
    early.splice(at..at, [Expire(7)]);
    in_time.splice(at..at, [Expire(6)]);
    vec![
        ("late one timestamp point", moved(one(Hardware, 2), Expire(100)), [GOOD, GOOD, late(1)]),
        ("late all timestamp points of one", moved(|_, k| k == 7, Expire(100)), [late(1); 3]),
        ("late all", moved(|_, _| true, Expire(100)), [late(8); 3]),
        ("late and again", twice, [GOOD, GOOD, late_twice]),
        ("late by a nanosecond", early, [GOOD, late(1), GOOD]),
        ("as late as allowed", in_time, [GOOD; 3]),
    ]
}

fn order_cases() -> Vec<Case> {
    let mut backwards: Vec<Event> = (0..MESSAGES).map(Sent).collect();
    let reversed = good().into_iter().rev().filter(|event| matches!(event, Timestamp(..)));
    backwards.extend(reversed.chain([Expire(100)]));
    vec![
        ("reordered two", moved(|_, k| k == 2, Timestamp(Hardware, 3, 0)), [GOOD; 3]),
        ("reordered far", moved(|_, k| k == 0, Timestamp(Hardware, 7, 0)), [GOOD; 3]),
        (
            "reordered timestamp points",
            moved(|t, _| t == Sched, Timestamp(Hardware, 7, 0)),
            [GOOD; 3],
        ),
        ("reordered all, backwards", backwards, [GOOD; 3]),
    ]
}

fn unknown_cases() -> Vec<Case> {
    let unknown = |n| [8, 0, 0, 0, 0, 0, n];
    let far = 1_000_000;
    let refused = |counting| {
        let event = Event::Refused(4, counting);
        // A number that is not taken goes to the next message.
        let shift = u32::from(counting == Counting::Counted);
        let later = |event| match event {
            Sent(k) if k >= 4 => Sent(k + shift),
            Timestamp(point, k, by) if k >= 4 => Timestamp(point, k + shift, by),
            other => other,
        };
        let mut events: Vec<Event> = good().into_iter().map(later).collect();
        let at = events.iter().position(|event| *event == Sent(4 + shift)).unwrap();
        events.insert(at, event);
        events
    };
    let mut seen = refused(Counting::Counted);
    let at = seen.iter().position(|event| matches!(event, Event::Refused(..))).unwrap();
    seen.insert(at + 1, Timestamp(Sched, 4, 0));
    vec![
        ("unknown: next", with(&[Timestamp(Sched, 4, 0)], Timestamp(Hardware, 3, 0)), {
            // Its own timestamp is matched all the same.
            [unknown(1), GOOD, GOOD]
        }),
        (
            "unknown: far ahead",
            with(&[Timestamp(Sched, far, 0)], Sent(4)),
            [unknown(1), GOOD, GOOD],
        ),
        (
            "unknown: before the first",
            with(&[Timestamp(Sched, 0_u32.wrapping_sub(1), 0)], Sent(4)),
            [unknown(1), GOOD, GOOD],
        ),
        (
            "unknown: timestamp point nobody asked for",
            with(&[Timestamp(Acknowledged, 3, 0)], Sent(4)),
            [GOOD; 3],
        ),
        ("refused and not counted", refused(Counting::NotCounted), [GOOD; 3]),
        ("refused and counted", refused(Counting::Counted), [GOOD; 3]),
        ("refused, counted, seen", seen, [[9, 0, 0, 0, 0, 0, 0], GOOD, GOOD]),
    ]
}

fn step_cases() -> Vec<Case> {
    let suspect = |n| [8 - n, n, 0, 0, 0, 0, 0];
    let second = 1_000 * MS;
    let mut cases = vec![
        // Of a related clock every timestamp is wrong until it is related anew.
        ("step forward at sched", stepped(Sched, 5..8, second), [suspect(3), GOOD, GOOD]),
        ("step back at sched", stepped(Sched, 5..8, -second), [suspect(3), GOOD, GOOD]),
        ("step forward at software", stepped(Software, 5..8, second), [GOOD, suspect(3), GOOD]),
        ("step back at software", stepped(Software, 5..8, -second), [GOOD, suspect(3), GOOD]),
        // Of one that is not, the step shows once.
        ("step forward at hardware", stepped(Hardware, 5..8, second), [GOOD, GOOD, suspect(1)]),
        ("step back at hardware", stepped(Hardware, 5..8, -second), [GOOD, GOOD, suspect(1)]),
        ("one wrong at hardware", stepped(Hardware, 5..6, second), [GOOD, GOOD, suspect(2)]),
        ("one wrong at sched", stepped(Sched, 5..6, -second), [suspect(1), GOOD, GOOD]),
        ("small step back", stepped(Sched, 5..8, -111 * US), [GOOD; 3]),
        ("small step back, seen", stepped(Sched, 5..8, -111 * US - 1), [suspect(3), GOOD, GOOD]),
        ("timestamp points as allowed", stepped(Sched, 5..8, 110 * US), [GOOD; 3]),
        ("timestamp points crossed", stepped(Sched, 5..8, 110 * US + 1), [GOOD, suspect(3), GOOD]),
        ("small step of the NIC", stepped(Hardware, 5..8, 5_100 * US), [GOOD; 3]),
        (
            "larger step of the NIC",
            stepped(Hardware, 5..8, 5_100 * US + 1),
            [GOOD, GOOD, suspect(1)],
        ),
    ];
    // The clock steps and the first timestamp after it is lost: the next one shows it.
    let mut lost = stepped(Hardware, 5..8, -second);
    lost.retain(|event| *event != Timestamp(Hardware, 5, -second));
    cases.push(("step back and missing", lost, [GOOD, GOOD, [6, 1, 1, 0, 0, 0, 0]]));
    cases
}

#[test]
fn t0_faults_of_timestamps_are_counted_exactly() {
    let groups = [
        missing_cases(),
        duplicate_cases(),
        late_cases(),
        order_cases(),
        unknown_cases(),
        step_cases(),
    ];
    let cases: Vec<Case> = groups.into_iter().flatten().collect();
    let names: std::collections::BTreeSet<&str> = cases.iter().map(|case| case.0).collect();
    assert_eq!((names.len(), cases.len()), (48, 48), "each has a name of its own");
    for (name, events, expected) in &cases {
        for first in [0, (1 << 32) - 4, 5 * (1 << 32) - 4] {
            let counts = counts_of(first, events, name);
            assert_eq!(counts[..3], expected[..], "{name}, first {first}");
            let nobody = u64::from(*name == "unknown: timestamp point nobody asked for");
            assert_eq!(counts[3], [0, 0, 0, 0, 0, 0, nobody], "{name}");
        }
    }
}
