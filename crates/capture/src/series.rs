// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values over time in a grid of fixed size, for drawing: ten values and ten million take the same
//! room, and a single value beyond a threshold is as visible among the latter as among the former.
//! Same values, same grid.

use crate::summary::StreamClass;

/// The time series of one stream of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamTimeSeries {
    /// Name of the stream.
    pub name: String,
    /// Whether it is served before best effort.
    pub class: StreamClass,
    /// `Send -> Receive` of each message received, by its `Send`.
    pub transfer: TimeSeries,
}

/// Values over time.
///
/// **Units**: nanoseconds. **Shape**: [`TimeSeries::ROWS`] rows of [`TimeSeries::COLUMNS`] cells; a
/// value is in the row and column in whose part of the range it lies.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeSeries {
    /// The first instant.
    pub from_ns: i64,
    /// The last.
    pub to_ns: i64,
    /// The smallest value.
    pub least_ns: i64,
    /// The largest.
    pub most_ns: i64,
    /// Whether rows are of equal ratios, not of equal steps.
    pub log: bool,
    /// Good up to the first, bad beyond the second; `None`: all are alike.
    pub thresholds_ns: Option<[i64; 2]>,
    /// How many values are good, between the thresholds, and bad; without thresholds all are good.
    pub counts: [u64; 3],
    /// For each cell, which of the three it has: a bit each.
    cells: Vec<u8>,
}

impl TimeSeries {
    /// Cells side by side.
    pub const COLUMNS: usize = 240;
    /// Cells above each other.
    pub const ROWS: usize = 60;

    /// Of `(instant, value)` in any order; `None` of nothing.
    pub fn of(
        points: impl Iterator<Item = (i64, i64)> + Clone,
        thresholds_ns: Option<[i64; 2]>,
    ) -> Option<TimeSeries> {
        let (at, value) = points.clone().next()?;
        let start = (at, at, value, value);
        let (from_ns, to_ns, least_ns, most_ns) =
            points.clone().fold(start, |(from, to, least, most), (at, value)| {
                (from.min(at), to.max(at), least.min(value), most.max(value))
            });
        // A few values far from all others would leave one row to these.
        let log = least_ns > 0 && most_ns / least_ns >= 8;
        let mut series = TimeSeries {
            from_ns,
            to_ns,
            least_ns,
            most_ns,
            log,
            thresholds_ns,
            counts: [0; 3],
            cells: vec![0; TimeSeries::COLUMNS * TimeSeries::ROWS],
        };
        for (at, value) in points {
            let class = series.class_of(value);
            series.counts[class] += 1;
            let cell = series.row_of(value) * TimeSeries::COLUMNS + series.column_of(at);
            series.cells[cell] |= 1 << class;
        }
        Some(series)
    }

    /// 0: good, 1: between the thresholds, 2: bad.
    fn class_of(&self, value_ns: i64) -> usize {
        let Some([first, second]) = self.thresholds_ns else { return 0 };
        usize::from(value_ns > first) + usize::from(value_ns > second)
    }

    fn column_of(&self, at_ns: i64) -> usize {
        let part = i128::from(at_ns) - i128::from(self.from_ns);
        let whole = (i128::from(self.to_ns) - i128::from(self.from_ns)).max(1);
        let column = part * i128::try_from(TimeSeries::COLUMNS).unwrap_or(1) / whole;
        usize::try_from(column).unwrap_or(0).min(TimeSeries::COLUMNS - 1)
    }

    fn row_of(&self, value_ns: i64) -> usize {
        let part = match self.log {
            true => (as_f64(value_ns) / as_f64(self.least_ns)).ln() / self.span(),
            false => (as_f64(value_ns) - as_f64(self.least_ns)) / self.span(),
        };
        let rows = (1..TimeSeries::ROWS).take_while(|row| part * ROWS_F64 >= place(*row));
        rows.count()
    }

    /// What the rows divide.
    fn span(&self) -> f64 {
        let span = match self.log {
            true => (as_f64(self.most_ns) / as_f64(self.least_ns)).ln(),
            false => as_f64(self.most_ns) - as_f64(self.least_ns),
        };
        if span > 0.0 { span } else { 1.0 }
    }

    /// Cells side by side that have a value of a class: the row from below, the first column, and
    /// the first one beyond.
    pub fn runs(&self, class: usize) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let rows = self.cells.chunks(TimeSeries::COLUMNS).enumerate();
        rows.flat_map(move |(row, cells)| {
            let has = move |column: usize| cells[column] & (1 << class) != 0;
            let starts = (0..cells.len()).filter(move |&at| has(at) && (at == 0 || !has(at - 1)));
            starts.map(move |start| {
                let end = (start..cells.len()).find(|&at| !has(at)).unwrap_or(cells.len());
                (row, start, end)
            })
        })
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

const ROWS_F64: f64 = TimeSeries::ROWS as f64;

/// A row is a small number.
fn place(row: usize) -> f64 {
    row as f64
}

#[expect(clippy::cast_precision_loss, reason = "for drawing: finer than a row")]
fn as_f64(ns: i64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_nothing_has_no_series_and_one_value_has_one_cell() {
        assert_eq!(TimeSeries::of([].into_iter(), None), None);
        let one = TimeSeries::of([(7, 5)].into_iter(), Some([1, 4])).unwrap();
        assert_eq!((one.count(), one.counts), (1, [0, 0, 1]));
        assert_eq!(one.runs(2).collect::<Vec<_>>(), [(0, 0, 1)]);
        assert_eq!(one.runs(0).count(), 0);
    }

    #[test]
    fn t0_one_bad_value_among_many_has_its_cell() {
        let all = || (0..100_000_i64).map(|at| (at, if at == 50_000 { 9_000 } else { 100 }));
        let series = TimeSeries::of(all(), Some([500, 1_000])).unwrap();
        assert!(series.log);
        assert_eq!(series.counts, [99_999, 0, 1]);
        assert_eq!(series.runs(0).collect::<Vec<_>>(), [(0, 0, TimeSeries::COLUMNS)]);
        assert_eq!(series.runs(2).collect::<Vec<_>>(), [(TimeSeries::ROWS - 1, 120, 121)]);
        let backwards: Vec<_> = all().rev().collect();
        let other = TimeSeries::of(backwards.into_iter(), Some([500, 1_000])).unwrap();
        assert_eq!(other, series, "the order does not matter");
    }

    #[test]
    fn t0_negative_and_extreme_values_have_a_row() {
        let points = [(0, -100), (10, 0), (20, 100)];
        let series = TimeSeries::of(points.into_iter(), None).unwrap();
        assert!(!series.log);
        let rows: Vec<usize> = series.runs(0).map(|(row, ..)| row).collect();
        assert_eq!(rows, [0, 30, 59]);
        let far = [(i64::MIN, i64::MIN), (i64::MAX, i64::MAX)];
        let far = TimeSeries::of(far.into_iter(), None).unwrap();
        assert_eq!(far.runs(0).collect::<Vec<_>>(), [(0, 0, 1), (59, 239, 240)]);
    }
}
