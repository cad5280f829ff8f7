// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which message a transmit timestamp belongs to, and which messages never got theirs.
//!
//! Linux numbers what a socket sends (`SO_TIMESTAMPING` with `SOF_TIMESTAMPING_OPT_ID`): 32 bits,
//! from 0 when the option is set, wrapping. Timestamps come back on the error queue, each with the
//! number: or not at all, twice, after those of newer messages, of a number nobody knows, or from a
//! clock that somebody set meanwhile. A [`TimestampMatcher`] says of every timestamp which of these
//! it is, and of every message what it got. Every timestamp is counted once, and every timestamp
//! that was awaited ends as matched, suspect or missing ([`PointCounts`]).
//!
//! **What the kernel counts** (linux v6.12; all but `EPERM` seen so on 6.18). A message that was
//! sent takes a number. One that was refused:
//!
//! - UDP, refused while it was put together (`EMSGSIZE`, no memory): not taken;
//!   `net/ipv4/ip_output.c:__ip_append_data` gives it back. Before Linux 6.9 and its backports it
//!   keeps the number.
//! - UDP, refused when it was whole (`EPERM` of a filter, `ENOBUFS` with `IP_RECVERR`): **taken**;
//!   it may have a timestamp at `Sched` (`net/ipv4/ip_output.c:ip_send_skb`).
//! - Packet socket, `EMSGSIZE` by 1 to 4 bytes: **taken**; `net/packet/af_packet.c:packet_snd`
//!   numbers it before it looks whether these are a VLAN tag.
//! - Packet socket, `EMSGSIZE` by more, `EINVAL` of a short one: not taken.
//! - Packet socket, `ENOBUFS` because the queueing discipline dropped it: **taken**, with a
//!   timestamp at `Sched`.
//!
//! So [`TimestampMatcher::failed`] has to be told which. From Linux 6.13 a sender can give the
//! number itself (`SCM_TS_OPT_ID`), and then nothing has to be guessed.
//!
//! Where a frame passes several devices (VLAN, bond), each may timestamp it at `Sched`
//! (`Documentation/networking/timestamping.rst`, 1.3.1): the first is matched, the others are
//! duplicates. Nothing is allocated after construction.

mod kinds;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use timewire_base::{Instant, Span};

pub use kinds::{ClockScale, ClockTime, PointSet, TimestampClock, TransmitPoint};

/// What is still believed of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchLimits {
    /// How long after its send a message's timestamps may still come; looked at in
    /// [`TimestampMatcher::expire`].
    pub timeout: Span,
    /// How far a timestamp may lie outside where it can lie (before its send, before an earlier
    /// timestamp point, later than the timeout) before it is suspected. Clocks are read one after
    /// the other, so this is above zero in practice.
    pub step: Span,
}

/// Whether the kernel numbered a message that it refused; see the table of the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// It took the number: the next message has the next.
    Counted,
    /// It did not: the next message has this one's.
    NotCounted,
}

/// What a timestamp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first of its message at its timestamp point.
    Matched {
        /// Which message: the number, unwrapped.
        seq: u64,
        /// Whether the message has all that it awaits.
        complete: bool,
    },
    /// The first of its message at its timestamp point, but its clock cannot have shown that.
    Suspect {
        /// Which message: the number, unwrapped.
        seq: u64,
        /// Why.
        why: Suspicion,
        /// Whether the message has all that it awaits.
        complete: bool,
    },
    /// The message has a timestamp of this timestamp point. The first one stays.
    Duplicate {
        /// Which message: the number, unwrapped.
        seq: u64,
        /// Whether it says something else than the first.
        differs: bool,
    },
    /// The message had been given up without it.
    TooLate {
        /// Which message: the number, unwrapped.
        seq: u64,
    },
    /// Of no message that is known.
    Unknown {
        /// Why.
        why: UnknownTimestamp,
    },
}

/// Why a clock cannot have shown what a timestamp says.
///
/// **Units**: `by` is the whole distance, of which [`MatchLimits`] allow less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// It lies so far before the send.
    BeforeSend {
        /// How far.
        by: Span,
    },
    /// It lies so far after the send: later than the timeout.
    AfterTimeout {
        /// How far.
        by: Span,
    },
    /// It lies on the wrong side of another timestamp of the message, of the same clock.
    AgainstPoint {
        /// Of which timestamp point.
        other: TransmitPoint,
        /// How far.
        by: Span,
    },
    /// Its clock, of which nothing else is known, went so much further (less, when negative) than
    /// the clock of the sends since its last timestamp at this point. Two delays differ by no more
    /// than the timeout, so a smaller step is not seen; [`TimestampMatcher::relate`] makes it
    /// seen.
    Stepped {
        /// How far.
        by: Span,
    },
}

/// Why a timestamp is of no known message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownTimestamp {
    /// No message with this number was sent yet.
    NotYetSent,
    /// The number is from before the first message.
    NeverSent,
    /// So many messages followed that it is forgotten.
    Forgotten,
    /// The message is known, and nobody asked for this timestamp point.
    NotAwaited,
}

/// Exact counts of one timestamp point. `awaited = matched + suspect + missing + those still open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointCounts {
    /// Timestamps that messages wait or waited for.
    pub awaited: u64,
    /// First timestamps that are believed.
    pub matched: u64,
    /// First timestamps that are not believed.
    pub suspect: u64,
    /// Timestamps that did not come before their message was given up.
    pub missing: u64,
    /// Further timestamps of the same message.
    pub duplicate: u64,
    /// Of these, such as say something else than the first.
    pub differing: u64,
    /// Timestamps that came after their message had been given up.
    pub late: u64,
    /// Timestamps of no known message, or at this timestamp point without being asked for.
    pub unknown: u64,
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has all its timestamps.
    Complete,
    /// The timeout was over.
    GivenUp,
    /// As many newer messages as the matcher remembers were sent.
    Overrun,
    /// The kernel refused it, and counted it; its timestamps are not awaited.
    Refused,
}

/// A message that nothing is awaited of any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed<S: ClockScale> {
    /// Its number, unwrapped.
    pub seq: u64,
    /// When it was sent; `None` when it was refused at once.
    pub sent_at: Option<Instant<S>>,
    /// Its timestamps, in the order of [`TransmitPoint::ALL`].
    pub timestamps: [Option<ClockTime>; 4],
    /// Those of them that are not believed.
    pub suspect: PointSet,
    /// What did not come.
    pub missing: PointSet,
    /// How it ended.
    pub end: End,
}

/// A call that does not fit what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TimestampError {
    /// Numbers are given out one after the other.
    #[error("message {id} is out of turn: the next has number {expected}")]
    OutOfTurn {
        /// What was given.
        id: u32,
        /// The number of the next message.
        expected: u32,
    },
    /// Only the newest message can be taken back, while nothing was closed after it.
    #[error("message {id} cannot be taken back: it is not the newest, or is closed")]
    NotNewest {
        /// What was given.
        id: u32,
    },
    /// A timestamp of the message came, so the kernel has counted it.
    #[error("message {id} has a timestamp, so the kernel has counted it")]
    HasTimestamp {
        /// What was given.
        id: u32,
    },
    /// The message was closed, or never sent.
    #[error("message {id} is not open")]
    NotOpen {
        /// What was given.
        id: u32,
    },
    /// There is no room for the relation of another clock.
    #[error("{max} clocks are related already")]
    TooManyClocks {
        /// The bound.
        max: usize,
    },
}

/// Matches timestamps with messages; see the [module](self).
///
/// `S` is the scale on which sends are timed. One that never steps (`Mono`) makes the timeout
/// independent of who sets the clock; one that the timestamps share makes every timestamp
/// checkable.
#[derive(Debug)]
pub struct TimestampMatcher<S: ClockScale> {
    slots: Box<[Option<Slot<S>>]>,
    points: PointSet,
    limits: MatchLimits,
    first: u64,
    /// What makes a place of a number, of a capacity that is a power of two.
    mask: Option<usize>,
    /// The oldest message that is open; all from here to `next` are.
    oldest: u64,
    next: u64,
    /// What is awaited has to be added to: see [`TimestampMatcher::counts`].
    counts: [PointCounts; 4],
    /// Messages that were taken as they were sent: each awaits a timestamp at each of the timestamp
    /// points.
    taken: u64,
    refused: u64,
    relations: [Option<Relation>; MAX_CLOCKS],
    references: [Option<Reference>; MAX_CLOCKS],
    oldest_reference: usize,
}

/// Most clocks besides that of the sends.
const MAX_CLOCKS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Slot<S: ClockScale> {
    seq: u64,
    sent_at: Option<Instant<S>>,
    refused: bool,
    awaited: PointSet,
    suspect: PointSet,
    /// The timestamp points of which there are timestamps.
    here: PointSet,
    timestamps: [Option<ClockTime>; 4],
}

impl<S: ClockScale> Slot<S> {
    #[inline]
    fn outstanding(&self) -> PointSet {
        self.awaited.without(self.here)
    }

    /// Whether a timestamp lies on the wrong side of another one.
    #[inline]
    fn against_points(
        &self,
        point: TransmitPoint,
        time: ClockTime,
        step: Span,
    ) -> Option<Suspicion> {
        if self.here.is_empty() {
            return None;
        }
        TransmitPoint::ALL.into_iter().find_map(|other| {
            let timestamp =
                self.timestamps[other.index()].filter(|timestamp| timestamp.clock == time.clock)?;
            let before = if other < point { (timestamp, time) } else { (time, timestamp) };
            let by = wide(before.0.ns) - wide(before.1.ns);
            let wrong = !self.suspect.has(other) && by > wide(step.as_ns());
            wrong.then(|| Suspicion::AgainstPoint { other, by: narrow(by) })
        })
    }

    fn close(&self, otherwise: End) -> Closed<S> {
        let missing = self.outstanding();
        let end = match (self.refused, missing.is_empty()) {
            (true, _) => End::Refused,
            (false, true) => End::Complete,
            (false, false) => otherwise,
        };
        let Slot { seq, sent_at, timestamps, suspect, .. } = *self;
        Closed { seq, sent_at, timestamps, suspect, missing, end }
    }
}

/// `clock` shows so much more than the clock of the sends.
#[derive(Clone, Copy, Debug)]
struct Relation {
    clock: TimestampClock,
    ahead: Span,
    bound: Span,
}

/// The last timestamp at a timestamp point of a clock that is not related, with the send that it
/// belongs to.
#[derive(Clone, Copy, Debug)]
struct Reference {
    point: TransmitPoint,
    clock: TimestampClock,
    timestamp_ns: i64,
    sent_ns: i64,
}

impl<S: ClockScale> TimestampMatcher<S> {
    /// Most messages that a matcher can remember.
    pub const MAX_CAPACITY: usize = 1 << 20;

    /// A matcher that remembers the last `capacity` messages and awaits timestamps at these points
    /// of each. The first message has number 0. To miss nothing, `capacity` is more than the
    /// messages sent in [`MatchLimits::timeout`].
    ///
    /// **Panics** when `capacity` is zero or above [`TimestampMatcher::MAX_CAPACITY`], or a limit
    /// is negative.
    pub fn new(capacity: usize, points: PointSet, limits: MatchLimits) -> TimestampMatcher<S> {
        TimestampMatcher::starting_at(0, capacity, points, limits)
    }

    /// As [`TimestampMatcher::new`], on a socket that has sent before: the next message has the low
    /// 32 bits of `first` for its number.
    pub fn starting_at(
        first: u64,
        capacity: usize,
        points: PointSet,
        limits: MatchLimits,
    ) -> TimestampMatcher<S> {
        assert!(
            (1..=Self::MAX_CAPACITY).contains(&capacity),
            "a matcher remembers 1 to {} messages, not {capacity}",
            Self::MAX_CAPACITY,
        );
        let negative = limits.timeout.is_negative() || limits.step.is_negative();
        assert!(!negative, "limits of a matcher are not negative");
        TimestampMatcher {
            slots: vec![None; capacity].into_boxed_slice(),
            points,
            limits,
            first,
            mask: capacity.is_power_of_two().then(|| capacity - 1),
            oldest: first,
            next: first,
            counts: [PointCounts::default(); 4],
            taken: 0,
            refused: 0,
            relations: [None; MAX_CLOCKS],
            references: [None; MAX_CLOCKS],
            oldest_reference: 0,
        }
    }

    /// The number that the kernel gives the next message.
    #[inline]
    pub fn next_id(&self) -> u32 {
        id_of(self.next)
    }

    /// How many messages are open.
    pub fn open(&self) -> usize {
        usize::try_from(self.next - self.oldest).expect("invariant: no more than the capacity")
    }

    /// How many messages were taken, without those that were refused.
    pub fn sent_count(&self) -> u64 {
        self.next - self.first - self.refused
    }

    /// How many messages were refused and counted.
    pub fn refused_count(&self) -> u64 {
        self.refused
    }

    /// The counts of a timestamp point.
    pub fn counts(&self, point: TransmitPoint) -> PointCounts {
        let counts = self.counts[point.index()];
        let taken = if self.points.has(point) { self.taken } else { 0 };
        PointCounts { awaited: counts.awaited.wrapping_add(taken), ..counts }
    }

    /// Says that a clock shows `ahead` more than the clock of the sends, to within `bound`; from
    /// now on its timestamps are compared with their sends. To be said again whenever it is
    /// measured anew: until then a clock that stepped makes all its timestamps suspect, because
    /// they are.
    ///
    /// **Errors**: too many clocks.
    pub fn relate(
        &mut self,
        clock: TimestampClock,
        ahead: Span,
        bound: Span,
    ) -> Result<(), TimestampError> {
        let same = |known: &Option<Relation>| known.is_some_and(|known| known.clock == clock);
        let place = self.relations.iter().position(same);
        let place = place.or_else(|| self.relations.iter().position(Option::is_none));
        let place = place.ok_or(TimestampError::TooManyClocks { max: MAX_CLOCKS })?;
        self.relations[place] = Some(Relation { clock, ahead, bound });
        Ok(())
    }

    /// A message was handed to the kernel and taken. Call it before the error queue is read again.
    /// Returns the oldest message when it had to be closed to make room.
    ///
    /// **Errors**: another message is next.
    #[inline(always)]
    pub fn sent(&mut self, id: u32, at: Instant<S>) -> Result<Option<Closed<S>>, TimestampError> {
        self.is_next(id)?;
        self.taken += 1;
        Ok(self.push(Slot {
            seq: self.next,
            sent_at: Some(at),
            refused: false,
            awaited: self.points,
            suspect: PointSet::EMPTY,
            here: PointSet::EMPTY,
            timestamps: [None; 4],
        }))
    }

    /// The kernel refused a message. It may or may not have been reported as
    /// [`sent`](TimestampMatcher::sent) before: a batch is reported whole, and then its end taken
    /// back, newest first. `counting` says whether it has the number for good; see the table of the
    /// [module](self).
    ///
    /// A counted one is closed as [`End::Refused`], and nothing of it is missing; timestamps that
    /// it got before it was dropped are matched all the same.
    ///
    /// **Errors**: it is neither next nor open; it is to be taken back and is not the newest or has
    /// a timestamp.
    pub fn failed(
        &mut self,
        id: u32,
        counting: Counting,
    ) -> Result<Option<Closed<S>>, TimestampError> {
        match (counting, id == self.next_id()) {
            (Counting::NotCounted, true) => Ok(None),
            (Counting::NotCounted, false) => self.take_back(id).map(|()| None),
            (Counting::Counted, true) => {
                self.refused += 1;
                Ok(self.push(Slot {
                    seq: self.next,
                    sent_at: None,
                    refused: true,
                    awaited: PointSet::EMPTY,
                    suspect: PointSet::EMPTY,
                    here: PointSet::EMPTY,
                    timestamps: [None; 4],
                }))
            }
            (Counting::Counted, false) => self.refuse(id).map(|()| None),
        }
    }

    /// A timestamp came.
    #[inline(always)]
    pub fn timestamped(&mut self, point: TransmitPoint, id: u32, time: ClockTime) -> Verdict {
        if let Some(verdict) = self.expected(point, id, time) {
            self.counts[point.index()].matched += 1;
            return verdict;
        }
        self.timestamped_otherwise(point, id, time)
    }

    /// What few timestamps are.
    #[cold]
    fn timestamped_otherwise(&mut self, point: TransmitPoint, id: u32, time: ClockTime) -> Verdict {
        let verdict = self.judge(point, id, time);
        let counts = &mut self.counts[point.index()];
        match verdict {
            Verdict::Matched { .. } => counts.matched += 1,
            Verdict::Suspect { .. } => counts.suspect += 1,
            Verdict::TooLate { .. } => counts.late += 1,
            Verdict::Unknown { .. } => counts.unknown += 1,
            Verdict::Duplicate { differs, .. } => {
                counts.duplicate += 1;
                counts.differing += u64::from(differs);
            }
        }
        verdict
    }

    /// Closes, oldest first, the messages that are complete, were refused, or whose timeout is
    /// over at `now`; stops at the first that still waits. So they come in the order of their
    /// numbers, and a complete one at most the timeout after it is. Those not taken from the
    /// iterator stay open.
    pub fn expire(&mut self, now: Instant<S>) -> Expired<'_, S> {
        Expired { matcher: self, now: Some(now) }
    }

    /// Closes what [`TimestampMatcher::expire`] does, and tells nothing of it.
    pub fn forget(&mut self, now: Instant<S>) {
        while let Some(missing) = self.is_over(Some(now)) {
            self.count_missing(missing);
            self.oldest += 1;
        }
    }

    /// What the oldest message misses, if it is to be closed.
    #[inline]
    fn is_over(&self, now: Option<Instant<S>>) -> Option<PointSet> {
        let slot = self.slots[self.place(self.oldest)].as_ref()?;
        if slot.seq != self.oldest || self.oldest >= self.next {
            return None;
        }
        let missing = slot.outstanding();
        if missing.is_empty() {
            return Some(missing);
        }
        let over = match (now, slot.sent_at) {
            (Some(now), Some(sent)) => {
                let waited = wide(now.as_ns()) - wide(sent.as_ns());
                waited > wide(self.limits.timeout.as_ns())
            }
            _ => true,
        };
        over.then_some(missing)
    }

    #[inline]
    fn count_missing(&mut self, missing: PointSet) {
        if !missing.is_empty() {
            missing.iter().for_each(|point| self.counts[point.index()].missing += 1);
        }
    }

    /// Closes all that is open: the sender is done and waits no longer.
    pub fn finish(&mut self) -> Expired<'_, S> {
        Expired { matcher: self, now: None }
    }

    #[inline]
    fn is_next(&self, id: u32) -> Result<(), TimestampError> {
        let expected = self.next_id();
        if id == expected { Ok(()) } else { Err(TimestampError::OutOfTurn { id, expected }) }
    }

    #[inline]
    fn place(&self, seq: u64) -> usize {
        let capacity = u64::try_from(self.slots.len()).expect("invariant: a length fits 64 bits");
        match self.mask {
            Some(mask) => usize::try_from(seq).unwrap_or(usize::MAX) & mask,
            None => usize::try_from(seq % capacity).expect("invariant: an index of the slots"),
        }
    }

    #[inline]
    fn push(&mut self, slot: Slot<S>) -> Option<Closed<S>> {
        let full = self.open() == self.slots.len();
        let closed = if full { self.close_oldest(End::Overrun) } else { None };
        let place = self.place(slot.seq);
        self.slots[place] = Some(slot);
        self.next += 1;
        closed
    }

    /// The open or remembered message of a number; its place.
    fn find(&self, id: u32) -> Result<usize, UnknownTimestamp> {
        let back = self.next_id().wrapping_sub(id);
        if back == 0 || back > u32::MAX / 2 {
            return Err(UnknownTimestamp::NotYetSent);
        }
        let seq = self.next.checked_sub(u64::from(back)).ok_or(UnknownTimestamp::NeverSent)?;
        if seq < self.first {
            return Err(UnknownTimestamp::NeverSent);
        }
        let place = self.place(seq);
        match &self.slots[place] {
            Some(slot) if slot.seq == seq => Ok(place),
            _ => Err(UnknownTimestamp::Forgotten),
        }
    }

    fn find_open(&self, id: u32) -> Option<usize> {
        let place = self.find(id).ok()?;
        self.slots[place].filter(|slot| slot.seq >= self.oldest).map(|_| place)
    }

    fn take_back(&mut self, id: u32) -> Result<(), TimestampError> {
        let newest = id == self.next_id().wrapping_sub(1);
        let place =
            self.find_open(id).filter(|_| newest).ok_or(TimestampError::NotNewest { id })?;
        let slot = self.slots[place].expect("invariant: a found message is in its slot");
        if !slot.here.is_empty() {
            return Err(TimestampError::HasTimestamp { id });
        }
        self.refused -= u64::from(slot.refused);
        self.stop_waiting(slot.awaited);
        self.slots[place] = None;
        self.next -= 1;
        Ok(())
    }

    fn refuse(&mut self, id: u32) -> Result<(), TimestampError> {
        let place = self.find_open(id).ok_or(TimestampError::NotOpen { id })?;
        let slot = self.slots[place].as_mut().expect("invariant: a found message is in its slot");
        let outstanding = slot.outstanding();
        slot.awaited = slot.awaited.without(outstanding);
        self.refused += u64::from(!slot.refused);
        slot.refused = true;
        self.stop_waiting(outstanding);
        Ok(())
    }

    fn stop_waiting(&mut self, points: PointSet) {
        for point in points.iter() {
            let awaited = &mut self.counts[point.index()].awaited;
            *awaited = awaited.wrapping_sub(1);
        }
    }

    #[cold]
    fn close_oldest(&mut self, otherwise: End) -> Option<Closed<S>> {
        let place = self.place(self.oldest);
        let slot = self.slots[place].filter(|slot| slot.seq == self.oldest);
        let closed = slot.filter(|_| self.oldest < self.next)?.close(otherwise);
        self.count_missing(closed.missing);
        self.oldest += 1;
        Some(closed)
    }

    /// What nearly all timestamps are: the first at its timestamp point of an open message, by the
    /// clock of the sends alone, after the send and in the order of the way. `None` leaves it to
    /// [`TimestampMatcher::judge`].
    #[inline(always)]
    fn expected(&mut self, point: TransmitPoint, id: u32, time: ClockTime) -> Option<Verdict> {
        if self.relations[0].is_some() || time.clock != S::CLOCK {
            return None;
        }
        let back = self.next_id().wrapping_sub(id);
        let seq = self.next.checked_sub(u64::from(back)).filter(|_| back > 0)?;
        if seq < self.oldest {
            return None;
        }
        let place = self.place(seq);
        let slot = self.slots[place].as_mut().filter(|slot| slot.seq == seq)?;
        let delay = time.ns.checked_sub(slot.sent_at?.as_ns())?;
        let is_first = slot.awaited.has(point) && !slot.here.has(point);
        if !is_first || !(0..=self.limits.timeout.as_ns()).contains(&delay) {
            return None;
        }
        // None of the others is more than a step after the last of them, so it is enough that
        // this one is not before that.
        if let Some(last) = slot.here.last() {
            let at = slot.timestamps[last.index()]?;
            let is_behind = last < point && at.clock == time.clock && at.ns <= time.ns;
            if !is_behind || !slot.suspect.is_empty() {
                return None;
            }
        }
        slot.timestamps[point.index()] = Some(time);
        slot.here = slot.here.with(point);
        Some(Verdict::Matched { seq, complete: slot.outstanding().is_empty() })
    }

    fn judge(&mut self, point: TransmitPoint, id: u32, time: ClockTime) -> Verdict {
        let place = match self.find(id) {
            Ok(place) => place,
            Err(why) => return Verdict::Unknown { why },
        };
        if !self.points.has(point) {
            return Verdict::Unknown { why: UnknownTimestamp::NotAwaited };
        }
        let slot = self.slots[place].as_ref().expect("invariant: a found message is in its slot");
        let (seq, sent_at) = (slot.seq, slot.sent_at);
        if let Some(first) = slot.timestamps[point.index()] {
            return Verdict::Duplicate { seq, differs: first != time };
        }
        if seq < self.oldest {
            return Verdict::TooLate { seq };
        }
        let by_send = sent_at.and_then(|sent| match self.relation(time.clock) {
            Some(relation) => self.against_send(sent, relation, time),
            None => self.against_last(sent, point, time),
        });
        let slot = self.slots[place].as_mut().expect("invariant: a found message is in its slot");
        let why = by_send.or_else(|| slot.against_points(point, time, self.limits.step));
        slot.timestamps[point.index()] = Some(time);
        slot.here = slot.here.with(point);
        if !slot.awaited.has(point) {
            slot.awaited = slot.awaited.with(point);
            let awaited = &mut self.counts[point.index()].awaited;
            *awaited = awaited.wrapping_add(1);
        }
        if why.is_some() {
            slot.suspect = slot.suspect.with(point);
        }
        let complete = slot.outstanding().is_empty();
        match why {
            Some(why) => Verdict::Suspect { seq, why, complete },
            None => Verdict::Matched { seq, complete },
        }
    }

    #[inline]
    fn relation(&self, clock: TimestampClock) -> Option<Relation> {
        let itself = Relation { clock, ahead: Span::ZERO, bound: Span::ZERO };
        // They fill from the first place on.
        let known = self.relations.iter().map_while(Option::as_ref);
        let known = known.into_iter().find(|known| known.clock == clock);
        known.copied().or((clock == S::CLOCK).then_some(itself))
    }

    fn against_send(
        &self,
        sent: Instant<S>,
        relation: Relation,
        time: ClockTime,
    ) -> Option<Suspicion> {
        let delay = wide(time.ns) - wide(relation.ahead.as_ns()) - wide(sent.as_ns());
        let allowed = wide(self.limits.step.as_ns()) + wide(relation.bound.as_ns());
        if -delay > allowed {
            Some(Suspicion::BeforeSend { by: narrow(-delay) })
        } else if delay > wide(self.limits.timeout.as_ns()) + allowed {
            Some(Suspicion::AfterTimeout { by: narrow(delay) })
        } else {
            None
        }
    }

    /// Compares how far two clocks went, never what they show.
    fn against_last(
        &mut self,
        sent: Instant<S>,
        point: TransmitPoint,
        time: ClockTime,
    ) -> Option<Suspicion> {
        let now =
            Reference { point, clock: time.clock, timestamp_ns: time.ns, sent_ns: sent.as_ns() };
        let same = |last: &Reference| last.point == point && last.clock == time.clock;
        let Some(last) = self.references.iter_mut().flatten().find(|last| same(last)) else {
            self.references[self.oldest_reference] = Some(now);
            self.oldest_reference = (self.oldest_reference + 1) % MAX_CLOCKS;
            return None;
        };
        let timestamps = wide(now.timestamp_ns) - wide(last.timestamp_ns);
        let further = timestamps - (wide(now.sent_ns) - wide(last.sent_ns));
        *last = now;
        let allowed = wide(self.limits.timeout.as_ns()) + wide(self.limits.step.as_ns());
        (further.abs() > allowed).then(|| Suspicion::Stepped { by: narrow(further) })
    }
}

/// Messages that are closed as they are taken; see [`TimestampMatcher::expire`].
#[derive(Debug)]
pub struct Expired<'a, S: ClockScale> {
    matcher: &'a mut TimestampMatcher<S>,
    now: Option<Instant<S>>,
}

impl<S: ClockScale> Iterator for Expired<'_, S> {
    type Item = Closed<S>;

    fn next(&mut self) -> Option<Closed<S>> {
        self.matcher.is_over(self.now)?;
        self.matcher.close_oldest(End::GivenUp)
    }
}

#[inline]
fn id_of(seq: u64) -> u32 {
    u32::try_from(seq % (1 << 32)).expect("invariant: the low 32 bits")
}

fn wide(ns: i64) -> i128 {
    i128::from(ns)
}

/// Saturates: for showing.
fn narrow(ns: i128) -> Span {
    let end = if ns < 0 { i64::MIN } else { i64::MAX };
    Span::from_ns(i64::try_from(ns).unwrap_or(end))
}
