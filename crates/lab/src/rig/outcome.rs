// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What became of the frames, and assertions on it. One that fails prints the frames it fails for,
//! the worst first.
//!
//! Not here: how it came about (`traffic`).

use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;

use timewire_base::{Instant, Span, Tai};
use timewire_sys::error_queue::LaunchRefusal;

/// What became of all flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// In the order they were given.
    pub flows: Vec<Flow>,
}

impl Outcome {
    /// One flow, counted from 0.
    ///
    /// **Panics** when there is none.
    pub fn flow(&self, number: usize) -> &Flow {
        &self.flows[number]
    }

    /// The flow of each frame that arrived, in the order of their arrival. At one station that
    /// order is the listener's, also for frames of one instant.
    pub fn order(&self) -> Vec<usize> {
        let flows = self.flows.iter().enumerate();
        let arrivals = flows.flat_map(|(number, flow)| {
            flow.fates.iter().filter_map(move |fate| Some((fate.received?, number)))
        });
        let mut arrivals: Vec<_> = arrivals.collect();
        arrivals.sort_by_key(|(arrival, _)| (arrival.at, arrival.place));
        arrivals.into_iter().map(|(_, number)| number).collect()
    }
}

/// What became of one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Who speaks to whom.
    pub name: String,
    /// Its frames, in the order they were sent.
    pub fates: Vec<Fate>,
}

/// What became of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Counted from 0.
    pub sequence: u32,
    /// The instant it was planned for.
    pub planned: Instant<Tai>,
    /// Its launch time, if it had one.
    pub launch: Option<Instant<Tai>>,
    /// When it was given to the kernel.
    pub sent: Instant<Tai>,
    /// The error of the system call, if the kernel did not take it.
    pub not_taken: Option<i32>,
    /// What the error queue said of it.
    pub refused: Option<LaunchRefusal>,
    /// Its first arrival.
    pub received: Option<Arrival>,
    /// How often it arrived.
    pub copies: u32,
}

/// A frame at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The kernel's receive stamp.
    pub at: Instant<Tai>,
    /// Its place among all that arrived at the station, from 0.
    pub place: usize,
    /// Without check sequence. **Units**: bytes.
    pub length: u32,
}

impl Fate {
    pub(super) fn new(
        sequence: u32,
        planned: Instant<Tai>,
        launch: Option<Instant<Tai>>,
        sent: Instant<Tai>,
        not_taken: Option<i32>,
    ) -> Fate {
        Fate {
            sequence,
            planned,
            launch,
            sent,
            not_taken,
            refused: None,
            received: None,
            copies: 0,
        }
    }

    /// From the planned instant to the arrival.
    ///
    /// **Panics** when it did not arrive.
    pub fn lateness(&self) -> Span {
        self.arrived() - self.planned
    }

    /// When it arrived.
    ///
    /// **Panics** when it did not.
    pub fn arrived(&self) -> Instant<Tai> {
        self.received.unwrap_or_else(|| panic!("frame {} did not arrive", self.sequence)).at
    }
}

impl Flow {
    pub(super) fn new(name: String, fates: Vec<Fate>) -> Flow {
        Flow { name, fates }
    }

    /// How many arrived.
    pub fn received(&self) -> usize {
        self.fates.iter().filter(|fate| fate.received.is_some()).count()
    }

    /// Those that arrived, by the time of it.
    pub fn by_arrival(&self) -> Vec<Fate> {
        let mut fates: Vec<_> =
            self.fates.iter().filter(|fate| fate.received.is_some()).copied().collect();
        fates.sort_by_key(|fate| (fate.arrived(), fate.sequence));
        fates
    }

    /// How many the error queue said this of.
    pub fn refused(&self, why: LaunchRefusal) -> usize {
        self.fates.iter().filter(|fate| fate.refused == Some(why)).count()
    }

    /// From each arrival to the next.
    pub fn gaps(&self) -> Vec<Span> {
        let fates = self.by_arrival();
        fates.windows(2).map(|pair| pair[1].arrived() - pair[0].arrived()).collect()
    }

    /// **Panics** unless every frame arrived exactly once and in order; returns itself.
    #[track_caller]
    pub fn complete(&self) -> &Flow {
        let bad: Vec<_> = self.fates.iter().filter(|fate| fate.copies != 1).collect();
        assert!(
            bad.is_empty(),
            "{}: {} of {} frames did not arrive once\n{}",
            self.name,
            bad.len(),
            self.fates.len(),
            table(bad.into_iter().map(|fate| (fate, i64::from(fate.copies))), "copies")
        );
        let order = self.by_arrival().iter().map(|fate| fate.sequence).collect::<Vec<_>>();
        assert!(order.is_sorted(), "{}: frames overtook one another: {order:?}", self.name);
        self
    }

    /// **Panics** unless no frame arrived; returns itself.
    #[track_caller]
    pub fn silent(&self) -> &Flow {
        let came = self.fates.iter().filter(|fate| fate.received.is_some());
        let table = table(came.map(|fate| (fate, fate.lateness().as_ns())), "lateness");
        assert_eq!(self.received(), 0, "{}: frames arrived\n{table}", self.name);
        self
    }

    /// **Panics** unless a value of every frame that arrived is in a range; returns itself.
    #[track_caller]
    pub fn each(
        &self,
        what: &str,
        range: RangeInclusive<i64>,
        value: impl Fn(&Fate) -> i64,
    ) -> &Flow {
        let values = self.fates.iter().filter(|fate| fate.received.is_some());
        let bad: Vec<_> = values
            .map(|fate| (fate, value(fate)))
            .filter(|(_, value)| !range.contains(value))
            .collect();
        assert!(
            bad.is_empty(),
            "{}: {what} of {} of {} frames is not in {range:?} ns\n{}",
            self.name,
            bad.len(),
            self.fates.len(),
            table(bad.into_iter(), what)
        );
        self
    }

    /// **Panics** unless every frame arrived once, so long after its planned instant.
    #[track_caller]
    pub fn late_by(&self, range: RangeInclusive<i64>) -> &Flow {
        self.complete().each("lateness", range, |fate| fate.lateness().as_ns())
    }

    /// **Panics** unless every frame that arrived did so while a gate was open.
    #[track_caller]
    pub fn inside(&self, gates: &Gates) -> &Flow {
        self.each("time outside the gates", 0..=0, |fate| gates.outside(fate.arrived()))
    }

    /// Statistics of a value of the frames that arrived.
    pub fn statistics(&self, value: impl Fn(&Fate) -> i64) -> Statistics {
        let values: Vec<_> =
            self.fates.iter().filter(|fate| fate.received.is_some()).map(value).collect();
        Statistics::of(&values)
    }
}

/// Windows of a cycle that begins with TAI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gates {
    cycle: Span,
    base: Span,
    open: Vec<(Span, Span)>,
}

impl Gates {
    /// All closed.
    pub fn new(cycle: Span) -> Gates {
        Gates { cycle, base: Span::ZERO, open: Vec::new() }
    }

    /// Has cycles begin at this instant instead of at whole multiples of themselves.
    pub fn based(mut self, base: Instant<Tai>) -> Gates {
        self.base = Span::from_ns(base.as_ns());
        self
    }

    /// Open from here to there, without the end.
    pub fn open(mut self, from: Span, to: Span) -> Gates {
        self.open.push((from, to));
        self
    }

    /// How far an instant is from the nearest open window that has begun; 0 inside.
    fn outside(&self, at: Instant<Tai>) -> i64 {
        let phase = self.phase(at);
        let inside = |&(from, to): &(Span, Span)| (from.as_ns()..to.as_ns()).contains(&phase);
        if self.open.iter().any(inside) {
            return 0;
        }
        let cycle = self.cycle.as_ns();
        let since_end = |&(_, to): &(Span, Span)| (phase - to.as_ns()).rem_euclid(cycle) + 1;
        self.open.iter().map(since_end).min().unwrap_or(i64::MAX)
    }

    fn phase(&self, at: Instant<Tai>) -> i64 {
        (at.as_ns() - self.base.as_ns()).rem_euclid(self.cycle.as_ns())
    }

    /// How long the window that an instant is in has been open; `None` outside.
    pub fn since_opening(&self, at: Instant<Tai>) -> Option<Span> {
        let phase = Span::from_ns(self.phase(at));
        let window = self.open.iter().find(|(from, to)| *from <= phase && phase < *to);
        window.map(|(from, _)| phase - *from)
    }
}

/// Of a number of values in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// The smallest; 0 without values.
    pub min: i64,
    /// The largest; 0 without values.
    pub max: i64,
    /// The mean; 0 without values.
    pub mean: f64,
    /// The standard deviation of the values.
    pub stddev: f64,
    /// How many.
    pub count: usize,
}

impl Statistics {
    /// Of these values.
    #[expect(clippy::cast_precision_loss, reason = "statistics of values far below 2^53")]
    pub fn of(values: &[i64]) -> Statistics {
        let count = values.len();
        let divisor = count.max(1) as f64;
        let mean = values.iter().map(|value| *value as f64).sum::<f64>() / divisor;
        let square = |value: &i64| (*value as f64 - mean).powi(2);
        let stddev = (values.iter().map(square).sum::<f64>() / divisor).sqrt();
        let min = values.iter().min().copied().unwrap_or(0);
        let max = values.iter().max().copied().unwrap_or(0);
        Statistics { min, max, mean, stddev, count }
    }
}

/// In the columns of [`Statistics::HEADER`].
impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statistics { min, max, mean, stddev, count } = self;
        write!(f, "{min:>8} {max:>8} {:>8} {mean:>9.1} {stddev:>8.1} {count:>6}", max - min)
    }
}

impl Statistics {
    /// What the columns are.
    pub const HEADER: &str = "     min      max    pk-pk      mean   stddev  count";
}

/// The frames with the largest values first, and only so many.
fn table<'a>(rows: impl Iterator<Item = (&'a Fate, i64)>, what: &str) -> String {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(fate, value)| (std::cmp::Reverse(value.unsigned_abs()), fate.sequence));
    let mut text = format!("{:>6} {what:>24} {:>12} {:>12}  end\n", "frame", "planned", "lateness");
    for (fate, value) in rows.iter().take(ROWS) {
        let end = match (fate.received, fate.refused, fate.not_taken) {
            (Some(_), _, _) => format!("received {}", fate.copies),
            (None, Some(why), _) => format!("refused: {why:?}"),
            (None, None, Some(errno)) => format!("not taken: errno {errno}"),
            (None, None, None) => "lost".to_owned(),
        };
        let late = fate.received.map_or("-".to_owned(), |_| fate.lateness().as_ns().to_string());
        let second = fate.planned.as_ns().rem_euclid(1_000_000_000);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>6} {value:>24} {:>12} {late:>12}  {end}",
            fate.sequence,
            format!(".{second:09}")
        );
    }
    if rows.len() > ROWS {
        let _ = writeln!(text, "and {} more", rows.len() - ROWS);
    }
    text
}

const ROWS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(arrivals: &[Option<i64>]) -> Flow {
        let fate = |(sequence, at): (u32, &Option<i64>)| {
            let planned = Instant::from_ns(i64::from(sequence) * 100);
            let mut fate = Fate::new(sequence, planned, None, planned, None);
            fate.received = at.map(|at| Arrival { at: Instant::from_ns(at), place: 0, length: 60 });
            fate.copies = u32::from(at.is_some());
            fate
        };
        Flow::new("a -> b".to_owned(), (0..).zip(arrivals).map(fate).collect())
    }

    fn said(check: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let panic = std::panic::catch_unwind(check).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap()
    }

    #[test]
    fn t0_gates_have_a_begin_but_no_end() {
        let gates = Gates::new(Span::from_ns(100)).open(Span::from_ns(10), Span::from_ns(20));
        let outside = |ns| gates.outside(Instant::from_ns(ns));
        assert_eq!([110, 119, 120, 125, 109].map(outside), [0, 0, 1, 6, 90]);
        let based = gates.clone().based(Instant::from_ns(5));
        assert_eq!(based.outside(Instant::from_ns(115)), 0);
        assert_eq!(gates.since_opening(Instant::from_ns(213)), Some(Span::from_ns(3)));
        assert_eq!(gates.since_opening(Instant::from_ns(220)), None);
    }

    #[test]
    fn t0_a_failed_check_shows_the_worst_frame_first() {
        let flow = flow(&[Some(5), Some(190), Some(207)]);
        flow.complete().late_by(5..=90);
        let text = said(|| drop(flow.late_by(0..=6).clone()));
        let rows: Vec<_> = text.lines().skip(2).collect();
        assert!(rows[0].trim_start().starts_with('1') && rows[1].trim_start().starts_with('2'));
        assert!(text.starts_with("a -> b: lateness of 2 of 3 frames is not in 0..=6 ns"), "{text}");
    }

    #[test]
    fn t0_lost_doubled_and_overtaking_frames_are_found() {
        let lost = flow(&[Some(5), None]);
        assert!(
            said(|| drop(lost.complete().clone())).contains("1 of 2 frames did not arrive once")
        );
        let overtaken = flow(&[Some(300), Some(200)]);
        assert!(
            said(|| drop(overtaken.complete().clone())).contains("overtook one another: [1, 0]")
        );
        assert_eq!(overtaken.gaps(), [Span::from_ns(100)]);
        assert!(said(|| drop(lost.silent().clone())).contains("frames arrived"));
    }

    #[test]
    fn t0_statistics_are_of_all_values() {
        let all = Statistics::of(&[2, 4, 4, 4, 5, 5, 7, 9]);
        let shown = "       2        9        7       5.0      2.0      8";
        assert_eq!(all.to_string(), shown);
        assert_eq!(Statistics::HEADER.len(), shown.len());
        assert_eq!(Statistics::of(&[]).count, 0);
    }
}
