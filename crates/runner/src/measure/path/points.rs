// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The points that a message passes from one program to another, and perhaps back, and what lies
//! between them.
//!
//! ```text
//! out:   due  send  sched  tx-sw  tx-hw | rx-hw  rx-xdp  rx-sw  user
//! back:                                   send | rx-hw  rx-xdp  rx-sw  user
//! ```

use serde::Serialize;
use timewire_base::Span;
use timewire_stats::{HistogramSummary, LogHistogram};

/// A point of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// The time of the plan.
    Due,
    /// The sending program writes it.
    Send,
    /// Before the queueing discipline.
    Sched,
    /// The driver has it.
    TxSw,
    /// The NIC has sent it.
    TxHw,
    /// The other NIC has it.
    FarRxHw,
    /// The XDP program of the other end has it.
    FarRxXdp,
    /// The kernel of the other end has it.
    FarRxSw,
    /// The program of the other end has it.
    FarUser,
    /// The other end sends it back.
    FarSend,
    /// The NIC has it again.
    RxHw,
    /// The XDP program has it again.
    RxXdp,
    /// The kernel has it again.
    RxSw,
    /// The sending program has it again.
    User,
}

impl Point {
    /// Every one, in the order in which a message passes them.
    pub const ALL: [Point; 14] = [
        Point::Due,
        Point::Send,
        Point::Sched,
        Point::TxSw,
        Point::TxHw,
        Point::FarRxHw,
        Point::FarRxXdp,
        Point::FarRxSw,
        Point::FarUser,
        Point::FarSend,
        Point::RxHw,
        Point::RxXdp,
        Point::RxSw,
        Point::User,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Point::Due => "due",
            Point::Send => "send",
            Point::Sched => "sched",
            Point::TxSw => "tx-sw",
            Point::TxHw => "tx-hw",
            Point::FarRxHw => "far rx-hw",
            Point::FarRxXdp => "far rx-xdp",
            Point::FarRxSw => "far rx-sw",
            Point::FarUser => "far user",
            Point::FarSend => "far send",
            Point::RxHw => "rx-hw",
            Point::RxXdp => "rx-xdp",
            Point::RxSw => "rx-sw",
            Point::User => "user",
        }
    }

    fn index(self) -> usize {
        Point::ALL.iter().position(|it| *it == self).expect("invariant: the list is complete")
    }

    /// Whether the other end timestamps it.
    pub fn is_far(self) -> bool {
        (Point::FarRxHw..=Point::FarSend).contains(&self)
    }
}

/// The times at which one message passed its points.
///
/// **Units**: nanoseconds of TAI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage([Option<i64>; Point::ALL.len()]);

impl Passage {
    /// When it passed a point.
    pub fn get(&self, point: Point) -> Option<i64> {
        self.0[point.index()]
    }

    /// It passed a point then; what is known already stays.
    pub fn set(&mut self, point: Point, ns: Option<i64>) {
        let place = &mut self.0[point.index()];
        *place = place.or(ns);
    }

    fn between(&self, from: Point, to: Point) -> Option<Span> {
        Some(Span::from_ns(self.get(to)?.saturating_sub(self.get(from)?)))
    }
}

/// How the clock of the other end relates to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarClock {
    /// It is the same, or so close that times between them are told.
    Comparable,
    /// Times between the two ends mean nothing.
    Foreign,
}

/// How long something took over all messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageSummary {
    /// What, as `send -> sched`.
    pub stage: String,
    /// How long.
    pub times: HistogramSummary,
}

/// What lies between the points that messages passed, in their order, and after that the whole.
///
/// A point counts when at least half of the messages have it. With the clock of the other end
/// foreign, the time on both links together is told instead: all of it less what the other end took
/// by its own clock.
pub fn stages(messages: &[Passage], far: FarClock) -> Vec<StageSummary> {
    let is_there = |point: Point| {
        let count = messages.iter().filter(|it| it.get(point).is_some()).count();
        count > 0 && count * 2 >= messages.len()
    };
    let there: Vec<Point> = Point::ALL.into_iter().filter(|point| is_there(*point)).collect();
    let mut all = Vec::new();
    for pair in there.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        if far == FarClock::Foreign && from.is_far() != to.is_far() {
            continue;
        }
        let name = format!("{} -> {}", from.name(), to.name());
        all.extend(summary(name, messages, |it| it.between(from, to)));
    }
    let is_back = is_there(Point::User);
    let end = if is_back { Point::User } else { Point::FarUser };
    if is_back && far == FarClock::Comparable {
        let out = |it: &Passage| it.between(Point::Send, Point::FarUser);
        all.extend(summary("out: send -> far user".to_owned(), messages, out));
        let back = |it: &Passage| it.between(Point::FarSend, Point::User);
        all.extend(summary("back: far send -> user".to_owned(), messages, back));
    }
    if is_back {
        let own = |it: &Passage| {
            let first = there.iter().copied().find(|point| point.is_far())?;
            let far = it.between(first, Point::FarSend)?;
            Some(Span::from_ns(it.between(Point::Send, Point::User)?.as_ns() - far.as_ns()))
        };
        all.extend(summary("round trip less the far end".to_owned(), messages, own));
    }
    if is_back || far == FarClock::Comparable {
        let name = match is_back {
            true => "round trip: send -> user",
            false => "one way: send -> far user",
        };
        all.extend(summary(name.to_owned(), messages, |it| it.between(Point::Send, end)));
    }
    all
}

fn summary(
    stage: String,
    messages: &[Passage],
    time: impl Fn(&Passage) -> Option<Span>,
) -> Option<StageSummary> {
    let mut times = LogHistogram::new();
    messages.iter().filter_map(time).for_each(|it| times.record(it));
    (times.count() > 0).then(|| StageSummary { stage, times: times.summary() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(times: &[(Point, i64)]) -> Passage {
        let mut passage = Passage::default();
        times.iter().for_each(|(point, ns)| passage.set(*point, Some(*ns)));
        passage
    }

    fn told(stages: &[StageSummary]) -> Vec<(&str, u64, i64, i64)> {
        let of = |it: &'_ StageSummary| (it.times.count, it.times.min_ns, it.times.max_ns);
        stages.iter().map(|it| (it.stage.as_str(), of(it).0, of(it).1, of(it).2)).collect()
    }

    const OUT: [(Point, i64); 4] =
        [(Point::Due, 0), (Point::Send, 5), (Point::TxSw, 9), (Point::FarUser, 29)];

    #[test]
    fn t0_neighbours_that_are_there_are_told_and_the_whole() {
        let late = passage(&[(Point::Due, 100), (Point::Send, 107), (Point::FarUser, 157)]);
        let stages = stages(&[passage(&OUT), late], FarClock::Comparable);
        let wanted = [
            ("due -> send", 2, 5, 7),
            // One of two has it, and that is half.
            ("send -> tx-sw", 1, 4, 4),
            ("tx-sw -> far user", 1, 20, 20),
            ("one way: send -> far user", 2, 24, 50),
        ];
        assert_eq!(told(&stages), wanted);
        let lone = [passage(&OUT), late, late];
        assert_eq!(told(&super::stages(&lone, FarClock::Comparable))[1].0, "send -> far user");
        assert_eq!(told(&super::stages(&[], FarClock::Comparable)), []);
    }

    #[test]
    fn t0_a_foreign_clock_tells_only_what_it_can() {
        // The other end is 1000 ahead.
        let there_and_back = passage(&[
            (Point::Send, 5),
            (Point::FarRxSw, 1_025),
            (Point::FarUser, 1_030),
            (Point::FarSend, 1_032),
            (Point::RxSw, 52),
            (Point::User, 60),
        ]);
        let foreign = stages(&[there_and_back], FarClock::Foreign);
        let wanted = [
            ("far rx-sw -> far user", 1, 5, 5),
            ("far user -> far send", 1, 2, 2),
            ("rx-sw -> user", 1, 8, 8),
            ("round trip less the far end", 1, 48, 48),
            ("round trip: send -> user", 1, 55, 55),
        ];
        assert_eq!(told(&foreign), wanted);
        let comparable = stages(&[there_and_back], FarClock::Comparable);
        assert!(told(&comparable).contains(&("out: send -> far user", 1, 1_025, 1_025)));
        let one_way = stages(&[passage(&OUT)], FarClock::Foreign);
        assert_eq!(told(&one_way), [("due -> send", 1, 5, 5), ("send -> tx-sw", 1, 4, 4)]);
    }

    #[test]
    fn t0_the_first_timestamp_of_a_point_stays() {
        let mut passage = passage(&[(Point::Sched, 3)]);
        passage.set(Point::Sched, Some(9));
        passage.set(Point::Sched, None);
        assert_eq!(passage.get(Point::Sched), Some(3));
        assert!(Point::ALL.is_sorted());
    }
}
