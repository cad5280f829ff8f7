// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The straight lines that run below some points and above others.

/// A point: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// What lines can be at one place: their values, and their slopes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Room {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) rate_low: f64,
    pub(super) rate_high: f64,
}

impl Room {
    /// What both leave; `None` when they do not meet.
    pub(super) fn cut(&self, other: &Room) -> Option<Room> {
        let cut = Room {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
            rate_low: self.rate_low.max(other.rate_low),
            rate_high: self.rate_high.min(other.rate_high),
        };
        (cut.low <= cut.high && cut.rate_low <= cut.rate_high).then_some(cut)
    }
}

/// Halvings of an interval of slopes; 2000 ppm become 1e-13 of themselves.
const HALVINGS: usize = 60;
/// Thirds are left away more slowly.
const THIRDS: usize = 110;

/// The values at `at`, and the slopes, of all lines whose slope is at most `steepest` and that are
/// below each of `upper` and above each of `lower`, where `slack` is forgiven; `None` when there is
/// no such line. Both sets have points. The room can be larger than right by less than a
/// nanosecond; it is never smaller by more than rounding.
pub(super) fn room(
    upper: &[Point],
    lower: &[Point],
    at: f64,
    slack: f64,
    steepest: f64,
) -> Option<Room> {
    let upper = hull(upper, |turn| turn <= 0.0);
    let lower = hull(lower, |turn| turn >= 0.0);
    // The highest and the lowest value at `at` of a line of one slope; the first is a concave
    // function of the slope, the second a convex one.
    let high = |slope: f64| {
        let values = upper.iter().map(|point| point.y + slack - slope * (point.x - at));
        values.fold(f64::INFINITY, f64::min)
    };
    let low = |slope: f64| {
        let values = lower.iter().map(|point| point.y - slack - slope * (point.x - at));
        values.fold(f64::NEG_INFINITY, f64::max)
    };
    let gap = |slope: f64| high(slope) - low(slope);
    let widest = argmax(gap, -steepest, steepest);
    if gap(widest) < 0.0 {
        return None;
    }
    let rate_low = edge(gap, widest, -steepest);
    let rate_high = edge(gap, widest, steepest);
    let highest = argmax(high, rate_low, rate_high);
    let lowest = argmax(|slope| -low(slope), rate_low, rate_high);
    Some(Room { low: low(lowest), high: high(highest), rate_low, rate_high })
}

/// The points of a set that a line can touch from one side, in order of `x`. `leaves` tells from
/// the turn at a point whether it is left away.
fn hull(points: &[Point], leaves: fn(f64) -> bool) -> Vec<Point> {
    let mut hull: Vec<Point> = Vec::new();
    for point in points {
        while let [.., one, two] = hull[..] {
            let turn = (two.x - one.x) * (point.y - one.y) - (two.y - one.y) * (point.x - one.x);
            if !leaves(turn) {
                break;
            }
            hull.pop();
        }
        hull.push(*point);
    }
    hull
}

/// Where a concave function has its maximum.
fn argmax(of: impl Fn(f64) -> f64, mut from: f64, mut to: f64) -> f64 {
    for _ in 0..THIRDS {
        let third = (to - from) / 3.0;
        if of(from + third) < of(to - third) {
            from += third;
        } else {
            to -= third;
        }
    }
    f64::midpoint(from, to)
}

/// How far towards `end` a concave function stays above zero, from `inside` where it is; a little
/// farther.
fn edge(of: impl Fn(f64) -> f64, inside: f64, end: f64) -> f64 {
    if of(end) >= 0.0 {
        return end;
    }
    let (mut inside, mut outside) = (inside, end);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(inside, outside);
        if of(middle) >= 0.0 {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    outside
}
