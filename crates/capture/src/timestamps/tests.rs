// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of timestamps, each with its exact counts; and the matcher against a naive one.
//!
//! Not here: timestamps of a kernel (`timewire-datapath`).

mod faults;
mod model;

use timewire_base::{Instant, Mono, Span, Tai};

use super::*;

const MS: i64 = 1_000_000;
const US: i64 = 1_000;
const LIMITS: MatchLimits =
    MatchLimits { timeout: Span::from_ms(5), step: Span::from_ns(100 * US) };

fn two_points() -> PointSet {
    PointSet::of(&[TransmitPoint::Sched, TransmitPoint::Software])
}

fn mono(ns: i64) -> ClockTime {
    ClockTime { clock: TimestampClock::Mono, ns }
}

fn at(ns: i64) -> Instant<Mono> {
    Instant::from_ns(ns)
}

#[test]
fn t0_messages_close_in_order_and_say_what_is_missing() {
    let mut matcher = TimestampMatcher::<Mono>::new(8, two_points(), LIMITS);
    for id in 0..3 {
        assert_eq!(matcher.sent(id, at(i64::from(id) * MS)), Ok(None));
    }
    let full = matcher.timestamped(TransmitPoint::Sched, 1, mono(MS));
    assert_eq!(full, Verdict::Matched { seq: 1, complete: false });
    let full = matcher.timestamped(TransmitPoint::Software, 1, mono(MS + 7));
    assert_eq!(full, Verdict::Matched { seq: 1, complete: true });
    assert_eq!(matcher.expire(at(5 * MS)).next(), None, "the oldest may still get its timestamps");
    let closed: Vec<_> = matcher.expire(at(5 * MS + 1)).collect();
    let first = Closed {
        seq: 0,
        sent_at: Some(at(0)),
        timestamps: [None; 4],
        suspect: PointSet::EMPTY,
        missing: two_points(),
        end: End::GivenUp,
    };
    let timestamps = [Some(mono(MS)), Some(mono(MS + 7)), None, None];
    let missing = PointSet::EMPTY;
    let second =
        Closed { seq: 1, sent_at: Some(at(MS)), timestamps, missing, end: End::Complete, ..first };
    assert_eq!(closed, [first, second]);
    assert_eq!(matcher.open(), 1);
    let last: Vec<_> = matcher.finish().map(|closed| (closed.seq, closed.end)).collect();
    assert_eq!(last, [(2, End::GivenUp)]);
    assert_eq!(matcher.finish().next(), None);
}

#[test]
fn t0_a_full_matcher_gives_up_the_oldest_and_forgets_it_with_its_successor() {
    let mut matcher = TimestampMatcher::<Mono>::new(2, two_points(), LIMITS);
    assert_eq!(matcher.sent(0, at(0)), Ok(None));
    assert_eq!(matcher.sent(1, at(1)), Ok(None));
    let closed = matcher.sent(2, at(2)).unwrap().unwrap();
    assert_eq!((closed.seq, closed.end, closed.missing), (0, End::Overrun, two_points()));
    let forgotten = Verdict::Unknown { why: UnknownTimestamp::Forgotten };
    assert_eq!(matcher.timestamped(TransmitPoint::Sched, 0, mono(0)), forgotten);
    assert_eq!(matcher.counts(TransmitPoint::Sched).missing, 1);
    assert_eq!((matcher.open(), matcher.sent_count()), (2, 3));
}

#[test]
fn t0_a_refused_message_has_a_number_when_the_kernel_counted_it() {
    let mut matcher = TimestampMatcher::<Mono>::new(8, two_points(), LIMITS);
    assert_eq!(matcher.failed(0, Counting::NotCounted), Ok(None));
    assert_eq!(matcher.next_id(), 0);
    assert_eq!(matcher.failed(0, Counting::Counted), Ok(None));
    assert_eq!((matcher.next_id(), matcher.refused_count(), matcher.sent_count()), (1, 1, 0));
    let wrong = TimestampError::OutOfTurn { id: 0, expected: 1 };
    assert_eq!(matcher.sent(0, at(0)), Err(wrong));
    // The discipline saw it before it dropped it.
    let seen = matcher.timestamped(TransmitPoint::Sched, 0, mono(5));
    assert_eq!(seen, Verdict::Matched { seq: 0, complete: true });
    let closed = matcher.expire(at(0)).next().unwrap();
    assert_eq!((closed.end, closed.missing, closed.sent_at), (End::Refused, PointSet::EMPTY, None));
    let late = matcher.timestamped(TransmitPoint::Software, 0, mono(5));
    assert_eq!(late, Verdict::TooLate { seq: 0 });
}

#[test]
fn t0_the_end_of_a_batch_is_taken_back_newest_first() {
    let mut matcher = TimestampMatcher::<Mono>::new(8, two_points(), LIMITS);
    for id in 0..4 {
        assert_eq!(matcher.sent(id, at(0)), Ok(None));
    }
    matcher.timestamped(TransmitPoint::Sched, 1, mono(1));
    let not_newest = |id| Err(TimestampError::NotNewest { id });
    assert_eq!(matcher.failed(2, Counting::NotCounted), not_newest(2));
    assert_eq!(matcher.failed(3, Counting::NotCounted), Ok(None));
    assert_eq!(matcher.failed(2, Counting::NotCounted), Ok(None));
    assert_eq!(
        matcher.failed(1, Counting::NotCounted),
        Err(TimestampError::HasTimestamp { id: 1 })
    );
    assert_eq!(matcher.next_id(), 2);
    assert_eq!(matcher.counts(TransmitPoint::Software).awaited, 2);
    // Number 2 is given anew.
    assert_eq!(matcher.sent(2, at(9)), Ok(None));
    assert_eq!(matcher.failed(2, Counting::Counted), Ok(None));
    assert_eq!(matcher.failed(7, Counting::Counted), Err(TimestampError::NotOpen { id: 7 }));
    let ends: Vec<_> = matcher.finish().map(|closed| closed.end).collect();
    assert_eq!(ends, [End::GivenUp, End::GivenUp, End::Refused]);
    assert_eq!(matcher.failed(2, Counting::NotCounted), not_newest(2), "it is closed");
    let sched = PointCounts { awaited: 2, matched: 1, missing: 1, ..PointCounts::default() };
    assert_eq!(matcher.counts(TransmitPoint::Sched), sched);
}

#[test]
fn t0_clocks_are_compared_only_when_told_how() {
    let points = PointSet::of(&[TransmitPoint::Hardware]);
    let mut matcher = TimestampMatcher::<Tai>::new(8, points, LIMITS);
    let nic = |ns| ClockTime { clock: TimestampClock::Phc(0), ns };
    for id in 0..4 {
        assert_eq!(matcher.sent(id, Instant::from_ns(0)), Ok(None));
    }
    let year = 365 * 86_400_000 * MS;
    let unrelated = matcher.timestamped(TransmitPoint::Hardware, 0, nic(year));
    assert_eq!(unrelated, Verdict::Matched { seq: 0, complete: true });
    // Unrelated, it still cannot have gone further than two delays differ.
    let why = Suspicion::Stepped { by: Span::from_ns(-year) };
    let stepped = matcher.timestamped(TransmitPoint::Hardware, 1, nic(0));
    assert_eq!(stepped, Verdict::Suspect { seq: 1, why, complete: true });
    let bound = Span::from_ns(10);
    matcher.relate(TimestampClock::Phc(0), Span::from_ns(year), bound).unwrap();
    let edge = year - 100 * US - 10;
    let within = matcher.timestamped(TransmitPoint::Hardware, 2, nic(edge));
    assert_eq!(within, Verdict::Matched { seq: 2, complete: true });
    let why = Suspicion::BeforeSend { by: Span::from_ns(100 * US + 11) };
    let outside = matcher.timestamped(TransmitPoint::Hardware, 3, nic(edge - 1));
    assert_eq!(outside, Verdict::Suspect { seq: 3, why, complete: true });
    for phc in 1..8 {
        matcher.relate(TimestampClock::Phc(phc), Span::ZERO, Span::ZERO).unwrap();
    }
    let ninth = matcher.relate(TimestampClock::Utc, Span::ZERO, Span::ZERO);
    assert_eq!(ninth, Err(TimestampError::TooManyClocks { max: 8 }));
    matcher.relate(TimestampClock::Phc(0), Span::ZERO, Span::ZERO).unwrap();
}

#[test]
fn t0_extreme_times_neither_panic_nor_pass() {
    let mut matcher = TimestampMatcher::<Mono>::new(4, two_points(), LIMITS);
    matcher.relate(TimestampClock::Utc, Span::from_ns(i64::MIN), Span::MAX).unwrap();
    matcher.sent(0, at(i64::MAX)).unwrap();
    let why = Suspicion::BeforeSend { by: Span::MAX };
    let verdict = matcher.timestamped(TransmitPoint::Sched, 0, mono(i64::MIN));
    assert_eq!(verdict, Verdict::Suspect { seq: 0, why, complete: false });
    let utc = ClockTime { clock: TimestampClock::Utc, ns: i64::MAX };
    let verdict = matcher.timestamped(TransmitPoint::Software, 0, utc);
    assert!(matches!(verdict, Verdict::Matched { complete: true, .. }), "{verdict:?}");
    assert_eq!(matcher.expire(at(i64::MIN)).count(), 1);
}
