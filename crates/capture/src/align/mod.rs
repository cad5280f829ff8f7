// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far the clocks of two hosts are apart, from the packets between them alone.
//!
//! A packet arrives after it was sent. So each packet from `a` to `b` says that `b`'s clock is
//! ahead of `a`'s by at most the difference of its two timestamps, and each packet the other way
//! that it is ahead by at least that. Where both clocks run evenly, the difference over time is a
//! straight line below all points of the one kind and above all of the other; [`estimate`] finds,
//! for every second, the lowest and the highest value such a line can have. Half of what is between
//! them is the bound. Nothing is assumed about delays, which may differ between the ways and from
//! packet to packet: the bound is half of the smallest round trip at best.
//!
//! What is assumed is said in [`Assumptions`]: that the rates of the clocks are near to each other
//! and change slowly. A clock that is stepped or steered hard breaks that; where no line fits,
//! nothing is said ([`Alignment::contradictions`]).
//!
//! **Source**: the lines between two hulls are those of L. Zhang, Z. Liu and C. H. Xia, *Clock
//! synchronization algorithms for network measurements*, INFOCOM 2002; the bounds are ours.
//!
//! Not here: which packets were the same ([`Crossings`]), hosts whose clocks are synchronised
//! ([`Synchronised`]), more than two hosts ([`Timeline`]).

mod crossings;
mod line;
mod synchronised;
mod timeline;
mod twins;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use line::{Point, Room};

pub use crossings::Crossings;
pub use synchronised::Synchronised;
pub use timeline::{Agreement, ClockRelation, Common, PairInput, Timeline, TimelineError};
pub use twins::{Shared, Twins};

/// A packet that was timestamped by both hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Whether `a` sent it; otherwise `b` did.
    pub from_a: bool,
    /// Its timestamp by `a`'s clock.
    pub a_ns: u64,
    /// Its timestamp by `b`'s clock.
    pub b_ns: u64,
}

/// What is taken for granted about two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assumptions {
    /// The rates of the clocks differ by no more.
    ///
    /// **Units**: parts per million.
    pub rate_ppm: f64,
    /// In a second, the difference of the rates changes by no more.
    ///
    /// **Units**: parts per billion.
    pub wander_ppb: f64,
}

impl Default for Assumptions {
    /// Two free quartz clocks (each within 100 ppm), or clocks that NTP may slew (500 ppm), whose
    /// temperature changes slowly: about a tenth of a degree in a second.
    fn default() -> Assumptions {
        Assumptions { rate_ppm: 700.0, wander_ppb: 20.0 }
    }
}

/// Where no alignment can be found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AlignError {
    /// Packets went one way only, or none did.
    #[error(
        "packets must go both ways: {a_to_b} were found from the first host to the second and \
         {b_to_a} back"
    )]
    OneWay {
        /// From the first to the second.
        a_to_b: usize,
        /// Back.
        b_to_a: usize,
    },
    /// The timestamps are farther apart than their numbers can say.
    #[error("the clocks are more than 292 years apart")]
    TooFar,
    /// No even clocks fit the packets anywhere.
    #[error(
        "no two even clocks fit these packets: a clock was stepped, or packets were taken for each \
         other"
    )]
    Contradiction,
}

/// What is known at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knot {
    /// When, by `a`'s clock.
    pub a_ns: u64,
    /// `b` is ahead by at least so much.
    pub low_ns: i64,
    /// And by at most so much.
    pub high_ns: i64,
    /// The rate of `b` less that of `a`, at least.
    ///
    /// **Units**: parts per billion.
    pub rate_low_ppb: f64,
    /// And at most.
    pub rate_high_ppb: f64,
}

/// How far `b`'s clock is ahead of `a`'s, over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alignment {
    /// In the order of time; none where no line fits.
    pub knots: Vec<Knot>,
    /// What was taken for granted.
    pub assumptions: Assumptions,
    /// Packets from `a` to `b`.
    pub a_to_b: usize,
    /// Packets back.
    pub b_to_a: usize,
    /// Instants at which no line fits the packets around, at any length.
    pub contradictions: usize,
}

/// **Units**: ns between two knots.
const STEP_NS: u64 = 1_000_000_000;
/// **Units**: ns; the one best packet of each way in so long is used.
const BUCKET_NS: u64 = 31_250_000;
/// **Units**: s; how far from a knot packets are looked at. Shorter suits clocks that wander,
/// longer few packets. Each gives an interval that holds, so that they can be cut with each other.
const REACHES_S: [f64; 6] = [0.6, 1.2, 2.5, 5.0, 10.0, 20.0];
/// **Units**: ns; for rounding to whole ones, and of the search.
const ROUNDING_NS: f64 = 2.0;

/// Aligns two clocks.
///
/// **Errors**: [`AlignError`]; then nothing is known.
pub fn estimate(crossings: &[Crossing], assumptions: Assumptions) -> Result<Alignment, AlignError> {
    let a_to_b = crossings.iter().filter(|crossing| crossing.from_a).count();
    let b_to_a = crossings.len() - a_to_b;
    let (Some(first), Some(last)) = (
        crossings.iter().map(|crossing| crossing.a_ns).min(),
        crossings.iter().map(|crossing| crossing.a_ns).max(),
    ) else {
        return Err(AlignError::OneWay { a_to_b, b_to_a });
    };
    if a_to_b == 0 || b_to_a == 0 {
        return Err(AlignError::OneWay { a_to_b, b_to_a });
    }
    let base = ahead(&crossings[0])?;
    let points = thinned(crossings, first, base)?;
    let mut knots = Vec::new();
    let mut contradictions = 0;
    let count = (last - first).div_ceil(STEP_NS).max(1);
    for number in 0..=count {
        // Evenly spread, the last one at the last packet.
        let at = first
            + u64::try_from(u128::from(last - first) * u128::from(number) / u128::from(count))
                .expect("invariant: within the span");
        match knot(&points, at, first, base, assumptions) {
            Some(knot) if knots.last().is_none_or(|before: &Knot| before.a_ns < at) => {
                knots.push(knot);
            }
            Some(_) => {}
            None => contradictions += 1,
        }
    }
    if knots.is_empty() {
        return Err(AlignError::Contradiction);
    }
    Ok(Alignment { knots, assumptions, a_to_b, b_to_a, contradictions })
}

fn ahead(crossing: &Crossing) -> Result<i64, AlignError> {
    let difference = i128::from(crossing.b_ns) - i128::from(crossing.a_ns);
    i64::try_from(difference).map_err(|_| AlignError::TooFar)
}

/// The best packets of both ways: `x` in seconds since `first`, `y` in nanoseconds above `base`.
struct Points {
    /// The difference is below each of these.
    upper: Vec<Point>,
    /// And above each of these.
    lower: Vec<Point>,
}

fn seconds(ns: u64) -> f64 {
    // Exact below 2^53 ns, 104 days; beyond, to a few nanoseconds of time, not of difference.
    #[expect(clippy::cast_precision_loss, reason = "said above")]
    let ns = ns as f64;
    ns / 1e9
}

fn nanoseconds(difference: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "differences to the base are small")]
    let difference = difference as f64;
    difference
}

/// One packet of each way for each bucket: that with the least delay. To leave out the others
/// widens the bound, but never breaks it.
fn thinned(crossings: &[Crossing], first: u64, base: i64) -> Result<Points, AlignError> {
    let mut all = Points { upper: Vec::new(), lower: Vec::new() };
    for crossing in crossings {
        let y = ahead(crossing)?.checked_sub(base).ok_or(AlignError::TooFar)?;
        let point = Point { x: seconds(crossing.a_ns - first), y: nanoseconds(y) };
        if crossing.from_a { all.upper.push(point) } else { all.lower.push(point) }
    }
    // Which has the least delay shows only beside the difference's own change; a rough one will do.
    let slope = (rough_slope(&all.upper, f64::min) + rough_slope(&all.lower, f64::max)) / 2.0;
    Ok(Points {
        upper: best(all.upper, slope, |this, other| this < other),
        lower: best(all.lower, slope, |this, other| this > other),
    })
}

/// From the best point of the first third to the best of the last.
fn rough_slope(points: &[Point], better: fn(f64, f64) -> f64) -> f64 {
    let end = points.iter().map(|point| point.x).fold(0.0, f64::max);
    let of = |wanted: &dyn Fn(f64) -> bool| {
        let these = points.iter().filter(|point| wanted(point.x));
        these.copied().reduce(|one, two| {
            if better(one.y, two.y).total_cmp(&one.y).is_eq() { one } else { two }
        })
    };
    match (of(&|x| x <= end / 3.0), of(&|x| x >= end * 2.0 / 3.0)) {
        (Some(early), Some(late)) if late.x > early.x => (late.y - early.y) / (late.x - early.x),
        _ => 0.0,
    }
}

fn best(mut points: Vec<Point>, slope: f64, better: fn(f64, f64) -> bool) -> Vec<Point> {
    points.sort_by(|one, two| one.x.total_cmp(&two.x));
    let width = seconds(BUCKET_NS);
    let mut kept: Vec<Point> = Vec::new();
    let mut bucket = f64::NEG_INFINITY;
    for point in points {
        let this = (point.x / width).floor();
        let residual = |point: &Point| point.y - slope * point.x;
        match kept.last_mut() {
            Some(last) if this.total_cmp(&bucket).is_eq() => {
                if better(residual(&point), residual(last)) {
                    *last = point;
                }
            }
            _ => kept.push(point),
        }
        bucket = this;
    }
    kept
}

/// The interval at one instant: what all reaches leave.
fn knot(points: &Points, at: u64, first: u64, base: i64, assumptions: Assumptions) -> Option<Knot> {
    let x = seconds(at - first);
    let mut found: Option<Room> = None;
    for reach in REACHES_S {
        let (upper, lower) = (near(&points.upper, x, reach), near(&points.lower, x, reach));
        if upper.is_empty() || lower.is_empty() {
            continue;
        }
        let ends = |points: &[Point]| (points[0].x, points[points.len() - 1].x);
        let ((a, b), (c, d)) = (ends(upper), ends(lower));
        let length = b.max(d).max(x) - a.min(c).min(x);
        // Of all straight lines the best one is nowhere farther from a curve whose second
        // derivative is at most `wander` (Chebyshev).
        let bend = assumptions.wander_ppb * length * length / 16.0;
        let Some(room) = line::room(upper, lower, x, bend, assumptions.rate_ppm * 1e3) else {
            continue;
        };
        let room = Room {
            low: room.low - bend,
            high: room.high + bend,
            // The curve's own rate at one instant.
            rate_low: room.rate_low - assumptions.wander_ppb * length / 2.0,
            rate_high: room.rate_high + assumptions.wander_ppb * length / 2.0,
        };
        found = match found {
            None => Some(room),
            // Two intervals that both hold and do not meet: an assumption is wrong here.
            Some(before) => Some(before.cut(&room)?),
        };
    }
    let room = found?;
    let whole = |value: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "differences to the base are small")]
        let value = value as i64;
        value.checked_add(base)
    };
    Some(Knot {
        a_ns: at,
        low_ns: whole((room.low - ROUNDING_NS).floor())?,
        high_ns: whole((room.high + ROUNDING_NS).ceil())?,
        rate_low_ppb: room.rate_low,
        rate_high_ppb: room.rate_high,
    })
}

fn near(points: &[Point], x: f64, reach: f64) -> &[Point] {
    let from = points.partition_point(|point| point.x < x - reach);
    let to = points.partition_point(|point| point.x <= x + reach);
    &points[from..to]
}

/// A difference of two clocks, and how far it can be from right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ahead {
    /// The one clock less the other.
    ///
    /// **Units**: ns.
    pub ns: i64,
    /// Either way.
    ///
    /// **Units**: ns.
    pub bound_ns: u64,
}

impl Ahead {
    /// The middle of an interval.
    fn between(low: i64, high: i64) -> Ahead {
        let width = high.abs_diff(low);
        let half = i64::try_from(width / 2).expect("invariant: half of 64 bits");
        Ahead { ns: low.saturating_add(half), bound_ns: width.div_ceil(2) }
    }
}

impl Alignment {
    /// How far `b` is ahead when `a`'s clock shows `a_ns`; `None` where nothing is known: next to
    /// an instant at which no line fits.
    ///
    /// Before the first and after the last packet the bound grows with what is known of the rate.
    pub fn at(&self, a_ns: u64) -> Option<Ahead> {
        let after = self.knots.partition_point(|knot| knot.a_ns < a_ns);
        match (after.checked_sub(1).map(|before| &self.knots[before]), self.knots.get(after)) {
            (_, Some(knot)) if knot.a_ns == a_ns => Some(Ahead::between(knot.low_ns, knot.high_ns)),
            (Some(before), Some(after)) => {
                // Otherwise a knot is missing between them.
                let joined = after.a_ns - before.a_ns <= STEP_NS * 3 / 2;
                joined.then(|| self.within(before, after, a_ns))
            }
            (Some(edge), None) | (None, Some(edge)) => Some(self.beyond(edge, a_ns)),
            (None, None) => None,
        }
    }

    /// As [`Alignment::at`]; where nothing is known, what the nearest instants make likely, with
    /// the largest bound there is.
    pub fn nearest(&self, a_ns: u64) -> Option<Ahead> {
        self.at(a_ns).or_else(|| {
            let after = self.knots.partition_point(|knot| knot.a_ns < a_ns);
            let before = self.knots.get(after.checked_sub(1)?)?;
            let between = self.within(before, self.knots.get(after)?, a_ns);
            Some(Ahead { bound_ns: u64::MAX, ..between })
        })
    }

    fn within(&self, before: &Knot, after: &Knot, a_ns: u64) -> Ahead {
        let length = after.a_ns - before.a_ns;
        let part = u128::from(a_ns - before.a_ns);
        let blend = |from: i64, to: i64| -> i64 {
            let rise = i128::from(to) - i128::from(from);
            let part = i128::try_from(part).expect("invariant: below 2^64");
            let value = i128::from(from) + rise * part / i128::from(length);
            i64::try_from(value).expect("invariant: between two of 64 bits")
        };
        // The curve is no farther than this from its chord.
        let bend = self.assumptions.wander_ppb * seconds(length).powi(2) / 8.0;
        let slack = rounded_up(bend) + 1;
        Ahead::between(
            blend(before.low_ns, after.low_ns).saturating_sub(slack),
            blend(before.high_ns, after.high_ns).saturating_add(slack),
        )
    }

    fn beyond(&self, edge: &Knot, a_ns: u64) -> Ahead {
        let away = seconds(a_ns.abs_diff(edge.a_ns));
        let sign = if a_ns > edge.a_ns { 1.0 } else { -1.0 };
        let bend = self.assumptions.wander_ppb * away * away / 2.0 + 1.0;
        let (one, two) = (edge.rate_low_ppb * away * sign, edge.rate_high_ppb * away * sign);
        let (low, high) = (one.min(two) - bend, one.max(two) + bend);
        Ahead::between(
            edge.low_ns.saturating_sub(rounded_up(-low)),
            edge.high_ns.saturating_add(rounded_up(high)),
        )
    }

    /// How far `b` is ahead when `b`'s own clock shows `b_ns`.
    pub fn at_b(&self, b_ns: u64) -> Option<Ahead> {
        self.by_b(b_ns, Alignment::at)
    }

    /// As [`Alignment::nearest`], when `b`'s own clock shows `b_ns`.
    pub fn nearest_b(&self, b_ns: u64) -> Option<Ahead> {
        self.by_b(b_ns, Alignment::nearest)
    }

    fn by_b(&self, b_ns: u64, at: fn(&Alignment, u64) -> Option<Ahead>) -> Option<Ahead> {
        // The difference changes so little in the time that it is off by, that two rounds will do.
        let mut a_ns = self.a_of(b_ns, i128::from(self.knots.first()?.low_ns))?;
        for _ in 0..2 {
            a_ns = self.a_of(b_ns, i128::from(self.nearest(a_ns)?.ns))?;
        }
        let found = at(self, a_ns)?;
        // Off by at most the bound in `a`'s time, so by the rate's share of it in the difference.
        let share = seconds(found.bound_ns) * self.assumptions.rate_ppm * 1e3;
        let extra = u64::try_from(rounded_up(share)).unwrap_or(0) + 1;
        Some(Ahead { ns: found.ns, bound_ns: found.bound_ns.saturating_add(extra) })
    }

    fn a_of(&self, b_ns: u64, ahead: i128) -> Option<u64> {
        u64::try_from((i128::from(b_ns) - ahead).max(0)).ok()
    }

    /// The rate of `b` less that of `a` over the whole, in parts per billion; `None` from one
    /// instant alone.
    pub fn rate_ppb(&self) -> Option<f64> {
        let (first, last) = (self.knots.first()?, self.knots.last()?);
        let middle = |knot: &Knot| Ahead::between(knot.low_ns, knot.high_ns).ns;
        let time = seconds(last.a_ns - first.a_ns);
        (time > 0.0).then(|| nanoseconds(middle(last) - middle(first)) / time)
    }

    /// The smallest and the largest bound at the knots.
    pub fn bounds_ns(&self) -> (u64, u64) {
        let bound = |knot: &Knot| Ahead::between(knot.low_ns, knot.high_ns).bound_ns;
        let all = self.knots.iter().map(bound);
        (all.clone().min().unwrap_or(0), all.max().unwrap_or(0))
    }
}

/// The next whole number of nanoseconds.
fn rounded_up(ns: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "saturates; bounds are far below")]
    let whole = ns.ceil() as i64;
    whole
}

#[cfg(test)]
mod tests;
