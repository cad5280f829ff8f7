// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which message of which stream a report is about. Timestamps are judged by the matcher of
//! `timewire_capture`; the ledger adds what that does not know: the stream, its sequence number,
//! and the launch time, which is all that a refusal names.

use std::collections::VecDeque;

use timewire_base::{Instant, Span, Tai};
use timewire_capture::timestamps::{
    ClockTime, Counting, MatchLimits, PointSet, TimestampClock, TimestampMatcher, TransmitPoint,
    Verdict,
};

use super::report::TimestampFaults;
use crate::transmit::{TimestampTime, TxPoint, TxPoints};

/// Messages that are remembered; reports come within milliseconds.
const REMEMBERED: usize = 16_384;
/// Runs that are remembered.
const RUNS: usize = 512;
/// How long a timestamp may take, on top of what a message is handed over ahead of its launch time.
/// A closed gate or a shaper can hold a frame for seconds.
const TIMEOUT: Span = Span::from_secs(10);
/// By how much a timestamp may lie before its message was written: the clock is being steered.
const STEP: Span = Span::from_ms(1);
/// The clock of a port's NIC: there is one at most, and no other to tell it from.
const NIC: TimestampClock = TimestampClock::Phc(0);

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: u32,
    pub(crate) stream: u16,
    pub(crate) seq: u32,
    pub(crate) launch: Option<Instant<Tai>>,
    /// How many timestamps it has.
    pub(crate) timestamps: u8,
    /// Its launch time was refused.
    refused: bool,
    /// It was not taken.
    pub(crate) not_taken: bool,
}

/// Messages of a stream that is alone on its port, with numbers and launch times in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The number of the last one.
    pub(crate) last: u32,
    pub(crate) count: u32,
    pub(crate) stream: u16,
    pub(crate) first_seq: u32,
    /// That of the last one.
    pub(crate) launch: Instant<Tai>,
    /// From each launch time to the next.
    pub(crate) cycle: Span,
}

/// What a timestamp is to the talker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timestamped {
    /// The first of its message at its timestamp point.
    First {
        /// The number of its stream,
        stream: u16,
        /// and its own there.
        seq: u32,
    },
    /// Another one, or one that came when it was given up: counted in [`Ledger::faults`].
    Again,
    /// Of no message that is known, or that was taken.
    Unknown,
}

/// The messages of one port, by number.
#[derive(Debug)]
pub(crate) struct Ledger {
    entries: Box<[Option<Entry>; REMEMBERED]>,
    last: u32,
    /// Messages that have no entries yet.
    runs: VecDeque<Run>,
    /// None where no timestamps come back.
    matcher: Option<TimestampMatcher<Tai>>,
}

impl Ledger {
    /// Of a port that timestamps at these points, whose messages are handed over so much ahead of
    /// their launch times at most. Its first message has the number `first`.
    pub(crate) fn new(first: u32, points: TxPoints, ahead: Span) -> Ledger {
        let asked = [
            (points.sched, TransmitPoint::Sched),
            (points.software, TransmitPoint::Software),
            (points.hardware, TransmitPoint::Hardware),
        ];
        let set = asked.into_iter().filter(|(is_asked, _)| *is_asked);
        let set = set.fold(PointSet::EMPTY, |set, (_, point)| set.with(point));
        let limits =
            MatchLimits { timeout: TIMEOUT.checked_add(ahead).unwrap_or(Span::MAX), step: STEP };
        let matcher = (!set.is_empty())
            .then(|| TimestampMatcher::starting_at(first.into(), REMEMBERED, set, limits));
        let entries = vec![None; REMEMBERED].into_boxed_slice();
        let entries = entries.try_into().expect("invariant: just made so long");
        Ledger { entries, last: first, runs: VecDeque::with_capacity(RUNS), matcher }
    }

    #[inline]
    fn slot(id: u32) -> usize {
        usize::try_from(id).expect("invariant: u32 fits usize") % REMEMBERED
    }

    /// A message was written at this time; numbers follow one another.
    #[inline(always)]
    pub(crate) fn note(
        &mut self,
        id: u32,
        (stream, seq): (u16, u32),
        launch: Option<Instant<Tai>>,
        at: Instant<Tai>,
    ) {
        let entry =
            Entry { id, stream, seq, launch, timestamps: 0, refused: false, not_taken: false };
        self.entries[Self::slot(id)] = Some(entry);
        self.last = id;
        if let Some(matcher) = &mut self.matcher {
            matcher.sent(id, at).expect("invariant: a port numbers its messages in turn");
        }
    }

    /// Whether what it knows of a message is when it was written, too.
    pub(crate) fn wants_timestamps(&self) -> bool {
        self.matcher.is_some()
    }

    /// As [`Ledger::note`] of each message of a run; nobody waits for their timestamps.
    pub(crate) fn note_run(&mut self, run: Run) {
        debug_assert!(!self.wants_timestamps(), "timestamps need the time of each");
        if self.runs.len() == RUNS {
            self.runs.pop_front();
        }
        self.runs.push_back(run);
        self.last = run.last;
    }

    /// Notes each message of the runs: one of them is asked for, which is rare.
    fn unfold(&mut self) {
        while let Some(run) = self.runs.pop_front() {
            let Run { last, count, stream, first_seq, mut launch, cycle } = run;
            for back in 0..count {
                let (id, seq) = (last.wrapping_sub(back), first_seq.wrapping_add(count - 1 - back));
                // Its place is that of a later one, if it is forgotten.
                if Self::distance(id, self.last) < REMEMBERED {
                    let (timestamps, refused, not_taken) = (0, false, false);
                    let at = Some(launch);
                    self.entries[Self::slot(id)] =
                        Some(Entry { id, stream, seq, launch: at, timestamps, refused, not_taken });
                }
                launch = launch - cycle;
            }
        }
    }

    fn distance(from: u32, to: u32) -> usize {
        usize::try_from(to.wrapping_sub(from)).expect("invariant: u32 fits usize")
    }

    #[inline]
    fn entry(&mut self, id: u32) -> Option<&mut Entry> {
        self.entries[Self::slot(id)].as_mut().filter(|entry| entry.id == id)
    }

    /// The message that was not taken; from now on timestamps of it are not known. Of one with a
    /// launch time it may still be told that this was why.
    pub(crate) fn not_taken(&mut self, id: u32) -> Option<Entry> {
        self.unfold();
        let entry = self.entry(id).filter(|entry| !entry.not_taken)?;
        entry.not_taken = true;
        let entry = *entry;
        if let Some(matcher) = &mut self.matcher {
            // It fails only for one that was given up; then nothing of it is awaited anyway.
            let _ = matcher.failed(id, Counting::Counted);
        }
        Some(entry)
    }

    /// What a timestamp is.
    #[inline(always)]
    pub(crate) fn timestamped(
        &mut self,
        id: u32,
        point: TxPoint,
        at: TimestampTime,
    ) -> Timestamped {
        let point = match point {
            TxPoint::Sched => TransmitPoint::Sched,
            TxPoint::Software | TxPoint::Freed => TransmitPoint::Software,
            TxPoint::Hardware => TransmitPoint::Hardware,
        };
        let time = match at {
            TimestampTime::System(at) => at.into(),
            TimestampTime::Nic { ns } => ClockTime { clock: NIC, ns },
        };
        let Some(matcher) = &mut self.matcher else { return Timestamped::Unknown };
        match matcher.timestamped(point, id, time) {
            // What a suspect one says is for the reader to judge, who is told how many there are.
            Verdict::Matched { .. } | Verdict::Suspect { .. } => {}
            Verdict::Duplicate { .. } | Verdict::TooLate { .. } => return Timestamped::Again,
            Verdict::Unknown { .. } => return Timestamped::Unknown,
        }
        match self.entry(id).filter(|entry| !entry.not_taken) {
            Some(entry) => {
                entry.timestamps = entry.timestamps.wrapping_add(1);
                Timestamped::First { stream: entry.stream, seq: entry.seq }
            }
            None => Timestamped::Unknown,
        }
    }

    /// Gives up what was awaited for too long.
    pub(crate) fn expire(&mut self, now: Instant<Tai>) {
        if let Some(matcher) = &mut self.matcher {
            matcher.forget(now);
        }
    }

    /// Timestamps that were not the first and good one of their message.
    pub(crate) fn faults(&self) -> TimestampFaults {
        let mut faults = TimestampFaults::default();
        if let Some(matcher) = &self.matcher {
            for point in TransmitPoint::ALL {
                let counts = matcher.counts(point);
                faults.suspect += counts.suspect;
                faults.duplicate += counts.duplicate;
                faults.differing += counts.differing;
                faults.late += counts.late;
            }
        }
        faults
    }

    /// The oldest message with this launch time whose refusal is not known yet.
    pub(crate) fn refused(&mut self, launch: Instant<Tai>) -> Option<Entry> {
        self.unfold();
        let oldest = Self::slot(self.last.wrapping_add(1));
        let slots = (oldest..REMEMBERED).chain(0..oldest);
        for slot in slots {
            if let Some(entry) = &mut self.entries[slot]
                && entry.launch == Some(launch)
                && !entry.refused
            {
                entry.refused = true;
                return Some(*entry);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: TxPoints = TxPoints { sched: true, software: true, hardware: true };
    const AT: TimestampTime = TimestampTime::System(Instant::from_ns(5));

    fn seq(found: Timestamped) -> Option<u32> {
        match found {
            Timestamped::First { seq, .. } => Some(seq),
            Timestamped::Again | Timestamped::Unknown => None,
        }
    }

    #[test]
    fn t0_a_report_finds_its_message_once() {
        let launch = Some(Instant::from_ns(77));
        let first = u32::MAX - 1;
        let mut ledger = Ledger::new(first, ALL, Span::ZERO);
        for n in 0..4 {
            ledger.note(first.wrapping_add(n), (9, n), launch, Instant::from_ns(0));
        }
        assert_eq!(seq(ledger.timestamped(1, TxPoint::Sched, AT)), Some(3));
        assert_eq!(ledger.timestamped(1, TxPoint::Sched, AT), Timestamped::Again);
        let nic = TimestampTime::Nic { ns: -1 };
        assert_eq!(seq(ledger.timestamped(1, TxPoint::Hardware, nic)), Some(3));
        assert_eq!(ledger.timestamped(2, TxPoint::Sched, AT), Timestamped::Unknown);
        let refused = |ledger: &mut Ledger| ledger.refused(Instant::from_ns(77)).map(|e| e.seq);
        let seen: Vec<_> = std::iter::from_fn(|| refused(&mut ledger)).collect();
        assert_eq!(seen, [0, 1, 2, 3]);
        assert_eq!(ledger.refused(Instant::from_ns(78)), None);
        // Not taken, and then told why.
        assert!(ledger.not_taken(first).is_some() && ledger.not_taken(first).is_none());
        assert_eq!(ledger.timestamped(first, TxPoint::Software, AT), Timestamped::Unknown);
        // Forgotten after as many others.
        for n in 0..u32::try_from(REMEMBERED).unwrap() {
            ledger.note(2 + n, (1, n), None, Instant::from_ns(0));
        }
        assert_eq!(ledger.not_taken(1), None);
        assert_eq!(ledger.timestamped(1, TxPoint::Software, AT), Timestamped::Unknown);
        assert_eq!(ledger.not_taken(2).map(|entry| entry.stream), Some(1));
        assert_eq!(ledger.not_taken(2), None);
    }

    #[test]
    fn t0_messages_of_a_run_are_as_if_each_was_noted() {
        let launch_only = TxPoints::default();
        let (mut each, mut runs) =
            (Ledger::new(0, launch_only, Span::ZERO), Ledger::new(0, launch_only, Span::ZERO));
        let cycle = Span::from_us(100);
        let launch = |id: u32| Instant::from_ns(7 + i64::from(id) * 100_000);
        let (mut id, mut seq) = (0_u32, 5_u32);
        // More than are remembered, with gaps between the runs in the sequence.
        for count in (1..=64).cycle().take(700) {
            for k in 0..count {
                let launch = Some(launch(id + k));
                each.note(id + k, (3, seq + k), launch, Instant::from_ns(0));
            }
            let last = id + count - 1;
            let launch = launch(last);
            runs.note_run(Run { last, count, stream: 3, first_seq: seq, launch, cycle });
            (id, seq) = (id + count, seq + count + 2);
            if count == 40 {
                let asked = id - 20;
                assert_eq!(runs.not_taken(asked), each.not_taken(asked));
                let time = Instant::from_ns(7 + i64::from(id - 3) * 100_000);
                assert_eq!(runs.refused(time), each.refused(time));
            }
        }
        for asked in id.saturating_sub(16_384)..id {
            let time = Instant::from_ns(7 + i64::from(asked) * 100_000);
            assert_eq!(runs.refused(time), each.refused(time), "{asked}");
        }
        assert_eq!(runs.not_taken(id - 16_385), None);
    }

    #[test]
    fn t0_timestamps_that_are_not_what_they_should_be_are_counted_by_kind() {
        let ahead = Span::from_ms(5);
        let mut ledger = Ledger::new(0, ALL, ahead);
        let s = |ms: i64| TimestampTime::System(Instant::from_ns(ms * 1_000_000));
        for n in 0..4 {
            ledger.note(n, (1, n), None, Instant::from_ns(i64::from(n) * 1_000_000));
        }
        assert_eq!(seq(ledger.timestamped(0, TxPoint::Software, s(1))), Some(0));
        assert_eq!(ledger.timestamped(0, TxPoint::Software, s(1)), Timestamped::Again);
        assert_eq!(ledger.timestamped(0, TxPoint::Software, s(2)), Timestamped::Again);
        // The clock was set back by a second: told all the same, and counted.
        assert_eq!(seq(ledger.timestamped(1, TxPoint::Software, s(-999))), Some(1));
        // Out of order is no fault.
        assert_eq!(seq(ledger.timestamped(3, TxPoint::Sched, s(3))), Some(3));
        assert_eq!(seq(ledger.timestamped(2, TxPoint::Sched, s(2))), Some(2));
        // Timeout is over only when the longest lead is added to it.
        ledger.expire(Instant::from_ns((TIMEOUT + ahead).as_ns() + 1_000_000));
        assert_eq!(ledger.timestamped(0, TxPoint::Sched, s(1)), Timestamped::Again);
        assert_eq!(seq(ledger.timestamped(1, TxPoint::Sched, s(2))), Some(1));
        let faults = TimestampFaults { suspect: 1, duplicate: 2, differing: 1, late: 1 };
        assert_eq!(ledger.faults(), faults);
    }
}
