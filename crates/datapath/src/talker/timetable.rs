// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which frame of which stream is due when, and what is left out when it is too late: the part of a
//! talker that reads no clock and sends nothing.
//!
//! Frames come out by the time they are due, of one time by the order of the streams, and those of
//! one stream in their order.

use timewire_base::{CyclicWindows, Instant, Span, Tai};

use crate::release::next_release;

/// When the messages of a stream are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// At `start` and every `cycle` after it.
    Cycle {
        /// One of the times; those before the talker starts are left out, uncounted.
        start: Instant<Tai>,
        /// **Units**: longer than zero.
        cycle: Span,
    },
    /// So long before each window starts.
    Slots {
        /// The windows.
        windows: CyclicWindows,
        /// How long before.
        lead: Span,
    },
    /// When a program posts them.
    Posted,
}

/// The times of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cadence: Cadence,
    pub(crate) frames: u32,
    pub(crate) spacing: Span,
    pub(crate) cycles: Option<u64>,
    pub(crate) deadline: Span,
    pub(crate) send_late: bool,
}

/// Why a frame was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// It came due while the thread slept, which woke only after its deadline.
    WokeLate,
    /// Its deadline passed while the thread was busy with what was due before.
    Overran,
}

/// When the thread last slept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    pub(crate) from: Instant<Tai>,
    pub(crate) until: Instant<Tai>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Send a frame.
    Send {
        stream: usize,
        /// When it was due.
        due: Instant<Tai>,
        /// Whether its deadline has passed.
        late: bool,
    },
    /// Leave so many frames out.
    Skip { stream: usize, frames: u64, why: Miss },
}

/// A stream that is alone, of one frame in each cycle, and has more than the next one.
#[derive(Debug)]
pub(crate) struct Lone {
    /// When its next frame is due.
    pub(crate) due: Instant<Tai>,
    pub(crate) cycle: Span,
    /// Cycles left, the next one included: more than one.
    pub(crate) left: u64,
}

/// Of a stream that is alone: a cycle after a time that has come is never out of range.
const LONGEST: Span = Span::from_secs(1_000_000);

#[derive(Debug)]
struct Row {
    plan: Plan,
    /// When the first frame of this cycle is due.
    cycle: Instant<Tai>,
    /// The next frame of it.
    frame: u32,
    /// Cycles left, this one included.
    left: u64,
}

/// All streams; allocates only in `new`.
#[derive(Debug)]
pub(crate) struct Timetable {
    rows: Vec<Row>,
    /// The streams that have not ended, with the time at which the next frame of each is due: a
    /// binary heap whose first element is the smallest.
    heap: Vec<(Instant<Tai>, usize)>,
}

impl Timetable {
    /// Nothing is due before `from`.
    pub(crate) fn new(plans: Vec<Plan>, from: Instant<Tai>) -> Timetable {
        let mut heap = Vec::with_capacity(plans.len());
        let mut rows = Vec::with_capacity(plans.len());
        for plan in plans {
            let first = match &plan.cadence {
                Cadence::Cycle { start, cycle } => Some(first_at_or_after(*start, *cycle, from)),
                Cadence::Slots { windows, lead } => next_release(windows, *lead, from),
                Cadence::Posted => None,
            };
            let left = plan.cycles.unwrap_or(u64::MAX);
            if let Some(first) = first.filter(|_| left > 0 && plan.frames > 0) {
                heap.push((first, rows.len()));
            }
            rows.push(Row { plan, cycle: first.unwrap_or(from), frame: 0, left });
        }
        // Sorted, it is a heap.
        heap.sort_unstable();
        Timetable { rows, heap }
    }

    /// When the next frame is due; `None` when all streams have ended.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Instant<Tai>> {
        self.heap.first().map(|(due, _)| *due)
    }

    /// The stream that is alone, if it is one whose frames are all alike.
    pub(crate) fn lone(&self) -> Option<Lone> {
        let ([row], [(due, _)]) = (&self.rows[..], &self.heap[..]) else { return None };
        let Cadence::Cycle { cycle, .. } = row.plan.cadence else { return None };
        let is_one = row.plan.frames == 1 && row.left > 1 && cycle <= LONGEST;
        is_one.then_some(Lone { due: *due, cycle, left: row.left })
    }

    /// The stream that is alone has gone on so far.
    pub(crate) fn set_lone(&mut self, Lone { due, left, .. }: Lone) {
        (self.rows[0].cycle, self.rows[0].left, self.heap[0].0) = (due, left, due);
    }

    /// What to do next at this time; `None` when nothing is due yet.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant<Tai>, sleep: Sleep) -> Option<Due> {
        let (due, stream) = *self.heap.first()?;
        if due > now {
            return None;
        }
        let row = &mut self.rows[stream];
        let latest = due.saturating_add(row.plan.deadline);
        let late = now > latest;
        let next = if !late || row.plan.send_late {
            row.step();
            Due::Send { stream, due, late }
        } else {
            // Still in time when the thread woke, it was kept from sending by what it sent before.
            let is_woken_late = sleep.from <= due && latest < sleep.until;
            let why = if is_woken_late { Miss::WokeLate } else { Miss::Overran };
            Due::Skip { stream, frames: row.skip(now, why), why }
        };
        if row.left > 0 {
            self.heap[0] = (row.due(), stream);
        } else {
            self.heap.swap_remove(0);
        }
        if self.heap.len() > 1 {
            self.sink();
        }
        Some(next)
    }

    /// Moves the first of the heap to its place.
    fn sink(&mut self) {
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let is_right = right < self.heap.len() && self.heap[right] < self.heap[left];
            let least = if is_right { right } else { left };
            if least >= self.heap.len() || self.heap[at] <= self.heap[least] {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

impl Row {
    #[inline]
    fn due(&self) -> Instant<Tai> {
        if self.frame == 0 {
            return self.cycle;
        }
        self.cycle.saturating_add(times(self.plan.spacing, self.frame.into()))
    }

    /// Goes on to the next frame.
    #[inline]
    fn step(&mut self) {
        self.frame += 1;
        if self.frame < self.plan.frames {
            return;
        }
        if let (Cadence::Cycle { cycle, .. }, 1..) = (&self.plan.cadence, self.left) {
            self.frame = 0;
            self.left -= 1;
            self.cycle = self.cycle.saturating_add(*cycle);
        } else {
            self.next_cycles(1);
        }
    }

    fn next_cycles(&mut self, count: u64) {
        self.frame = 0;
        self.left = self.left.saturating_sub(count);
        let next = match &self.plan.cadence {
            Cadence::Cycle { cycle, .. } => Some(self.cycle.saturating_add(times(*cycle, count))),
            Cadence::Slots { windows, lead } => {
                next_release(windows, *lead, self.cycle.saturating_add(Span::from_ns(1)))
            }
            Cadence::Posted => None,
        };
        match next {
            Some(next) => self.cycle = next,
            None => self.left = 0,
        }
    }

    /// Leaves out the next frame, or all cycles of which every frame is too late; returns how many
    /// frames that is.
    ///
    /// A thread that is too busy leaves out everything that is due: were it to stay a deadline
    /// behind, leaving frames out one by one could take all its time.
    fn skip(&mut self, now: Instant<Tai>, why: Miss) -> u64 {
        if let (Cadence::Cycle { cycle, .. }, 0) = (&self.plan.cadence, self.frame) {
            let last = times(self.plan.spacing, u64::from(self.plan.frames - 1));
            let last = self.cycle.saturating_add(last);
            let past = match why {
                Miss::Overran => now.as_ns().saturating_sub(last.as_ns()),
                // `now` is after the deadline of the first frame, not always of the last.
                Miss::WokeLate => {
                    let latest = last.saturating_add(self.plan.deadline);
                    now.as_ns().saturating_sub(latest.as_ns()).saturating_sub(1)
                }
            };
            if let Ok(over) = u64::try_from(past.div_euclid(cycle.as_ns())) {
                let count = over.saturating_add(1).min(self.left);
                self.next_cycles(count);
                return count.saturating_mul(self.plan.frames.into());
            }
        }
        self.step();
        1
    }
}

fn first_at_or_after(start: Instant<Tai>, cycle: Span, from: Instant<Tai>) -> Instant<Tai> {
    if start >= from {
        return start;
    }
    let behind = from.as_ns().saturating_sub(start.as_ns());
    let since = behind.rem_euclid(cycle.as_ns());
    if since == 0 { from } else { from.saturating_add(cycle - Span::from_ns(since)) }
}

/// A span so often; the longest one when it does not fit.
fn times(span: Span, count: u64) -> Span {
    i64::try_from(count).ok().and_then(|count| span.checked_mul(count)).unwrap_or(Span::MAX)
}

#[cfg(test)]
mod tests {
    use timewire_base::Window;

    use super::*;

    fn at(us: i64) -> Instant<Tai> {
        Instant::from_ns(us * 1_000)
    }

    fn plan(start: i64, cycle: i64) -> Plan {
        Plan {
            cadence: Cadence::Cycle { start: at(start), cycle: Span::from_us(cycle) },
            frames: 1,
            spacing: Span::ZERO,
            cycles: None,
            deadline: Span::from_us(cycle),
            send_late: false,
        }
    }

    const AWAKE: Sleep = Sleep { from: Instant::from_ns(0), until: Instant::from_ns(0) };

    /// What is sent until a time by a thread that is always on time.
    fn sent(table: &mut Timetable, until: i64) -> Vec<(usize, i64)> {
        let mut sent = Vec::new();
        while let Some(due) = table.next_due().filter(|due| *due < at(until)) {
            match table.take(due, AWAKE).unwrap() {
                Due::Send { stream, due, late: false } => sent.push((stream, due.as_ns() / 1_000)),
                other => panic!("{other:?}"),
            }
        }
        sent
    }

    #[test]
    fn t0_frames_come_by_time_then_by_stream() {
        let plans =
            vec![plan(20, 100), plan(0, 50), plan(20, 100), Plan { frames: 2, ..plan(0, 100) }];
        let mut table = Timetable::new(plans, at(0));
        let expected = [(1, 0), (3, 0), (3, 0), (0, 20), (2, 20), (1, 50), (1, 100), (3, 100)];
        assert_eq!(sent(&mut table, 120)[..8], expected);
    }

    #[test]
    fn t0_a_stream_starts_with_its_first_time_that_is_not_over_and_ends_by_count() {
        let limited =
            Plan { cycles: Some(2), frames: 3, spacing: Span::from_us(10), ..plan(5, 100) };
        let mut table = Timetable::new(vec![limited], at(106));
        let expected = [205, 215, 225, 305, 315, 325].map(|due| (0, due));
        assert_eq!(sent(&mut table, 10_000), expected);
        assert_eq!(table.next_due(), None);
        let on_time = Timetable::new(vec![plan(5, 100)], at(105));
        assert_eq!(on_time.next_due(), Some(at(105)));
        for never in [Plan { cycles: Some(0), ..plan(0, 1) }, Plan { frames: 0, ..plan(0, 1) }] {
            assert_eq!(Timetable::new(vec![never], at(0)).next_due(), None);
        }
    }

    #[test]
    fn t0_slots_are_taken_before_their_start_once_each() {
        let slot = Window { offset: Span::from_us(260), length: Span::from_us(220) };
        let windows = CyclicWindows::new(at(0), Span::from_us(1_040), vec![slot]).unwrap();
        let cadence = Cadence::Slots { windows, lead: Span::from_us(40) };
        let mut table = Timetable::new(vec![Plan { cadence, ..plan(0, 1) }], at(221));
        assert_eq!(sent(&mut table, 3_000), [(0, 1_260), (0, 2_300)]);
    }

    #[test]
    fn t0_what_is_too_late_is_left_out_and_the_cause_is_known() {
        let mut table = Timetable::new(vec![plan(0, 100), plan(30, 100)], at(0));
        // Slept from -10 to 135: both frames came due meanwhile.
        let slept = Sleep { from: at(-10), until: at(135) };
        let mut told = Vec::new();
        while let Some(due) = table.take(at(135), slept) {
            told.push(due);
        }
        let skip = |stream, frames, why| Due::Skip { stream, frames, why };
        let send = |stream, due| Due::Send { stream, due: at(due), late: false };
        assert_eq!(
            told,
            [skip(0, 1, Miss::WokeLate), skip(1, 1, Miss::WokeLate), send(0, 100), send(1, 130)]
        );
        // Busy until 450 with these: all that is due is left out, and it is on time again.
        assert_eq!(table.take(at(450), slept), Some(skip(0, 3, Miss::Overran)));
        assert_eq!(table.take(at(450), slept), Some(skip(1, 3, Miss::Overran)));
        assert_eq!(table.take(at(450), slept), None);
        assert_eq!(table.take(at(500), slept), Some(send(0, 500)));
    }

    #[test]
    fn t0_exactly_at_its_deadline_a_frame_is_not_late() {
        for (now, late) in [(100_000, false), (100_001, true)] {
            let now = Instant::from_ns(now);
            let sending = Plan { send_late: true, ..plan(0, 100) };
            let mut table = Timetable::new(vec![sending], at(0));
            assert_eq!(table.take(now, AWAKE), Some(Due::Send { stream: 0, due: at(0), late }));
            let mut table = Timetable::new(vec![plan(0, 100)], at(0));
            let is_skipped = matches!(table.take(now, AWAKE), Some(Due::Skip { .. }));
            assert_eq!(is_skipped, late);
        }
    }

    #[test]
    fn t0_a_leap_of_the_clock_is_left_out_at_once_and_counted() {
        let burst =
            Plan { frames: 3, spacing: Span::from_us(20), cycles: Some(1_000_000), ..plan(0, 100) };
        let mut table = Timetable::new(vec![burst], at(0));
        assert!(matches!(table.take(at(0), AWAKE), Some(Due::Send { .. })));
        let (mut skipped, mut calls) = (0, 0);
        let now = at(50_000_110);
        while let Some(due) = table.take(now, AWAKE) {
            calls += 1;
            match due {
                Due::Skip { frames, .. } => skipped += frames,
                Due::Send { due, .. } => assert!(due >= at(50_000_010), "{due:?}"),
            }
        }
        assert!(calls < 12, "{calls} calls");
        // Two of the first cycle, and all of those that are due as a whole.
        assert_eq!(skipped, 2 + 3 * 500_000);
    }

    #[test]
    fn t0_no_frame_is_lost_between_sent_and_left_out() {
        let mut seed = 7_u64;
        let mut table = Timetable::new(
            vec![Plan { frames: 4, spacing: Span::from_us(7), cycles: Some(500), ..plan(3, 50) }],
            at(0),
        );
        let (mut now, mut total) = (at(0), 0);
        while table.next_due().is_some() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now = now + Span::from_ns(i64::try_from(seed >> 48).unwrap());
            while let Some(due) = table.take(now, AWAKE) {
                total += match due {
                    Due::Send { .. } => 1,
                    Due::Skip { frames, .. } => frames,
                };
            }
        }
        assert_eq!(total, 2_000);
    }
}
