// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Axes: from a value to a place in the figure, and the ticks between.

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// Values `lo..=hi` on places `from..=to`.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    scale: Scale,
    pub lo: f64,
    pub hi: f64,
    pub from: f64,
    pub to: f64,
}

/// A place worth a line; only some have room for a label.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub value: f64,
    pub label: Option<String>,
}

impl Axis {
    /// Equal steps; an empty range is widened so that every value has a place.
    pub fn linear((lo, hi): (f64, f64), (from, to): (f64, f64)) -> Axis {
        Axis { scale: Scale::Linear, lo, hi: if hi > lo { hi } else { lo + 1.0 }, from, to }
    }

    /// Equal ratios; `lo` has to be above zero.
    pub fn log((lo, hi): (f64, f64), (from, to): (f64, f64)) -> Axis {
        assert!(lo > 0.0, "a log axis starts above zero");
        Axis { scale: Scale::Log, lo, hi: if hi > lo { hi } else { lo * 10.0 }, from, to }
    }

    /// Times of `lo..=hi` nanoseconds on a log axis, widened to whole steps of 1, 2, 5.
    pub fn log_time(lo_ns: f64, hi_ns: f64, places: (f64, f64)) -> Axis {
        let lo = step_floor(lo_ns.max(100.0));
        let hi = step_ceil(hi_ns.max(lo * 10.0));
        Axis::log((lo, hi), places)
    }

    /// The place of a value; values beyond the ends sit at the ends.
    pub fn at(&self, value: f64) -> f64 {
        let v = value.clamp(self.lo, self.hi);
        let part = match self.scale {
            Scale::Linear => (v - self.lo) / (self.hi - self.lo),
            Scale::Log => (v / self.lo).log10() / (self.hi / self.lo).log10(),
        };
        self.from + part * (self.to - self.from)
    }

    /// Ticks of a time axis, values in nanoseconds, labels in microseconds.
    pub fn ticks(&self) -> Vec<Tick> {
        match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Log => self.log_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<Tick> {
        let step = step_ceil((self.hi - self.lo) / 7.0);
        let mut ticks: Vec<Tick> = Vec::new();
        let first = (self.lo / step).ceil();
        // Far from zero, a step may be too small to lead anywhere.
        for n in 0..=8 {
            let value = (first + f64::from(n)) * step;
            let is_new = ticks.last().is_none_or(|last| value > last.value);
            if is_new && value <= self.hi + step * 1e-9 {
                ticks.push(Tick { value, label: Some(micro(value)) });
            }
        }
        ticks
    }

    fn log_ticks(&self) -> Vec<Tick> {
        let decades = (self.hi / self.lo).log10();
        let mut ticks = Vec::new();
        let mut decade = 10_f64.powf(self.lo.log10().floor());
        while decade <= self.hi * 1.001 {
            for factor in [1.0, 2.0, 5.0] {
                let value = decade * factor;
                if value < self.lo * 0.999 || value > self.hi * 1.001 {
                    continue;
                }
                let whole = (factor - 1.0).abs() < 0.5;
                let labelled = whole || decades < 2.5;
                ticks.push(Tick { value, label: labelled.then(|| micro(value)) });
            }
            decade *= 10.0;
        }
        ticks
    }
}

fn micro(ns: f64) -> String {
    let us = ns / 1e3;
    if us < 0.95 && us > 0.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

/// The largest of 1, 2, 5 times a power of ten that is not above `value`.
fn step_floor(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let part = value / decade;
    decade
        * if part >= 4.999 {
            5.0
        } else if part >= 1.999 {
            2.0
        } else {
            1.0
        }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `value`.
fn step_ceil(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let part = value / decade;
    let up = [1.0, 2.0, 5.0].into_iter().find(|step| part <= step * 1.0001);
    decade * up.unwrap_or(10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().filter_map(|t| t.label).collect()
    }

    #[test]
    fn t0_ticks_are_few_whatever_the_ends() {
        let far = i64::MAX as f64;
        for lo in [-far, -1.0, 0.0, 1e-9, 1.0, 1_800_000_000_000_000_000.0, far] {
            for wide in [0.0, 1e-9, 1.0, 256.0, 1e6, far, 1e300] {
                let ticks = Axis::linear((lo, lo + wide), (0.0, 1.0)).ticks();
                assert!(ticks.len() <= 9, "{lo} and {wide}: {ticks:?}");
                assert!(ticks.is_sorted_by(|one, two| one.value < two.value), "{ticks:?}");
                if lo > 0.0 {
                    let ticks = Axis::log((lo, lo + wide), (0.0, 1.0)).ticks();
                    assert!(ticks.len() < 1_000, "{lo} and {wide}: {} ticks", ticks.len());
                }
            }
        }
    }

    #[test]
    fn t0_places_and_ticks_of_both_scales() {
        let line = Axis::linear((0.0, 2_080_000.0), (60.0, 546.0));
        assert_eq!(labels(&line), ["0", "500", "1000", "1500", "2000"]);
        assert!((line.at(1_040_000.0) - 303.0).abs() < 1e-9);
        assert!((line.at(9e9) - 546.0).abs() < 1e-9, "beyond the end sits at the end");

        let log = Axis::log_time(35_000.0, 2_300_000.0, (0.0, 100.0));
        assert_eq!(labels(&log), ["20", "50", "100", "200", "500", "1000", "2000", "5000"]);
        let wide = Axis::log_time(3_000.0, 80_000_000.0, (0.0, 100.0));
        assert_eq!(labels(&wide), ["10", "100", "1000", "10000", "100000"]);
        assert!(wide.at(2_000.0).abs() < 1e-9);
    }

    #[test]
    fn t0_a_single_value_still_has_an_axis() {
        let line = Axis::linear((0.0, 0.0), (0.0, 10.0));
        assert!(line.at(0.0).abs() < 1e-9 && !line.ticks().is_empty());
        let log = Axis::log_time(0.0, 0.0, (0.0, 10.0));
        assert!(!log.ticks().is_empty());
    }
}
