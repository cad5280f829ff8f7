// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the messages of one sender are due. Launch times: for each frame the next instant in its
//! windows at which the link is free of its own earlier frames, and the frame ends before the
//! window does. Due times: of messages with a period, those that a late sender still sends.

use std::collections::VecDeque;

use timewire_base::{CyclicWindows, Instant, Phase, Span, Tai};

/// Gives launch times. It reads no clock and remembers only when its last frame ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTimes {
    windows: CyclicWindows,
    margin: Span,
    /// Before it, the link has the frame launched last.
    free: Instant<Tai>,
}

impl LaunchTimes {
    /// Launch times in these windows, at least `margin` after the moment they are asked for: what
    /// a frame needs to reach the queue that keeps the launch time.
    pub fn new(windows: CyclicWindows, margin: Span) -> LaunchTimes {
        LaunchTimes { windows, margin, free: Instant::from_ns(i64::MIN) }
    }

    /// The launch time of a frame that is on the link for `busy`: the first instant *at or after*
    /// now and the margin and the end of the last frame, such that the frame ends inside the same
    /// window. The link is the frame's from then on. `None` when no window is that long.
    pub fn next(&mut self, now: Instant<Tai>, busy: Span) -> Option<Instant<Tai>> {
        let mut from = now.saturating_add(self.margin).max(self.free);
        // Beyond one cycle all windows have been seen.
        for _ in 0..=self.windows.windows().len() {
            let (Phase::Inside { start, end } | Phase::Before { start, end }) =
                self.windows.phase(from)?;
            let launch = start.max(from);
            let over = launch.saturating_add(busy);
            if over <= end {
                self.free = over;
                return Some(launch);
            }
            from = end;
        }
        None
    }
}

/// Gives the instants at which the messages of a talker are due. It reads no clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTimes(Due);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Due {
    InPeriods { period: Span, offset: Span, last: Option<Instant<Tai>> },
    Listed(VecDeque<Instant<Tai>>),
}

impl DueTimes {
    /// `offset` after each whole multiple of the period. A period of nothing is one of a
    /// nanosecond.
    pub fn in_periods(period: Span, offset: Span) -> DueTimes {
        let period = period.max(Span::from_ns(1));
        DueTimes(Due::InPeriods { period, offset, last: None })
    }

    /// So long after a start each, in their order.
    pub fn listed(start: Instant<Tai>, times: &[Span]) -> DueTimes {
        DueTimes(Due::Listed(times.iter().map(|after| start.saturating_add(*after)).collect()))
    }

    /// When the next message is due; `None` after the last of a list.
    ///
    /// In periods, it is one period after the last one, also when that is over, but of several that
    /// are over the latest; the first is due after now. So a sender that is late by less than a
    /// period loses no message and sends no two at once. Of a list none is left out.
    pub fn next(&mut self, now: Instant<Tai>) -> Option<Instant<Tai>> {
        let (period, offset, last) = match &mut self.0 {
            Due::InPeriods { period, offset, last } => (*period, *offset, last),
            Due::Listed(times) => return times.pop_front(),
        };
        let since = now.saturating_add(-offset).as_ns().rem_euclid(period.as_ns());
        let latest = now.saturating_add(-Span::from_ns(since));
        let next = match *last {
            None => latest.saturating_add(period),
            Some(last) => latest.max(last.saturating_add(period)),
        };
        *last = Some(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use timewire_base::Window;

    use super::*;

    fn at(ns: i64) -> Instant<Tai> {
        Instant::from_ns(ns)
    }

    fn windows(list: &[(i64, i64)]) -> CyclicWindows {
        let list = list.iter().map(|&(offset, length)| Window {
            offset: Span::from_ns(offset),
            length: Span::from_ns(length),
        });
        CyclicWindows::new(at(0), Span::from_ns(100), list.collect()).unwrap()
    }

    fn times(list: &[(i64, i64)]) -> LaunchTimes {
        LaunchTimes::new(windows(list), Span::from_ns(5))
    }

    #[test]
    fn t0_frames_of_one_slot_follow_one_another() {
        let mut times = times(&[(20, 30)]);
        let busy = Span::from_ns(12);
        let launched: Vec<_> = (0..5).map(|_| times.next(at(0), busy).unwrap().as_ns()).collect();
        // Two in each slot: a third one would end after it.
        assert_eq!(launched, [20, 32, 120, 132, 220]);
    }

    #[test]
    fn t0_a_frame_needs_its_margin_and_its_room() {
        let next = |now, busy| times(&[(20, 30)]).next(at(now), Span::from_ns(busy));
        assert_eq!(next(15, 30), Some(at(20)));
        assert_eq!(next(16, 30), Some(at(120)));
        assert_eq!(next(16, 29), Some(at(21)));
        assert_eq!(next(44, 1), Some(at(49)));
        assert_eq!(next(45, 1), Some(at(120)));
        assert_eq!(next(0, 31), None);
        assert_eq!(times(&[]).next(at(0), Span::from_ns(1)), None);
    }

    #[test]
    fn t0_a_late_sender_loses_no_message_unless_a_period_is_over() {
        let mut due = DueTimes::in_periods(Span::from_ns(100), Span::from_ns(30));
        let asked =
            [(0, 30), (30, 130), (131, 230), (329, 330), (431, 430), (431, 530), (900, 830)];
        for (now, expected) in asked {
            assert_eq!(due.next(at(now)), Some(at(expected)), "at {now}");
        }
        let times = || DueTimes::in_periods(Span::from_ns(100), Span::from_ns(30));
        let first = |now| times().next(at(now));
        assert_eq!([first(29), first(30), first(-171)], [30, 130, -170].map(|it| Some(at(it))));
        let mut due = DueTimes::listed(at(7), &[Span::ZERO, Span::from_ns(3)]);
        let asked = [9, 9, 90].map(|now| due.next(at(now)));
        assert_eq!(asked, [Some(at(7)), Some(at(10)), None]);
    }

    #[test]
    fn t0_a_slot_that_is_too_short_is_passed_over() {
        let mut times = times(&[(0, 10), (40, 20)]);
        assert_eq!(times.next(at(-5), Span::from_ns(15)), Some(at(40)));
        assert_eq!(times.next(at(-5), Span::from_ns(6)), Some(at(100)));
    }

    proptest! {
        /// second method: every instant, one by one.
        #[test]
        fn t0_no_earlier_instant_would_have_done(
            list in proptest::collection::vec((0_i64..80, 1_i64..20), 1..4),
            frames in proptest::collection::vec((0_i64..60, 1_i64..18), 1..8),
        ) {
            let built = list.iter().map(|&(offset, length)| Window {
                offset: Span::from_ns(offset),
                length: Span::from_ns(length),
            });
            let Ok(windows) = CyclicWindows::new(at(0), Span::from_ns(100), built.collect()) else {
                return Ok(());
            };
            let mut times = LaunchTimes::new(windows, Span::from_ns(5));
            let (mut now, mut free) = (0, i64::MIN);
            for (pause, busy) in frames {
                now += pause;
                let good = |t: i64| {
                    let offset = t.rem_euclid(100);
                    list.iter().any(|&(o, l)| o <= offset && offset + busy <= o + l)
                };
                let from = (now + 5).max(free);
                // A window is tried once in a cycle.
                let expected = (from..from + 201).find(|&t| good(t));
                let got = times.next(at(now), Span::from_ns(busy)).map(Instant::as_ns);
                prop_assert_eq!(got, expected);
                if let Some(launch) = got {
                    free = launch + busy;
                }
            }
        }
    }
}
