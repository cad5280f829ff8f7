// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the texts of several measurements have in common.

use timewire_stats::{HistogramSummary, Statistics};

/// Smallest, percentiles, largest, mean and standard deviation, in microseconds.
pub(super) fn times_us(times: &HistogramSummary) -> String {
    let Statistics { min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns, .. } = times.statistics;
    let [min, p50, p90, p99, p999, max] =
        [min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns].map(|ns| us(as_f64(ns)));
    let (mean, stddev) = (us(times.mean_ns), us(times.stddev_ns));
    format!("{min:>9}{p50:>9}{p90:>9}{p99:>9}{p999:>9}{max:>10}{mean:>9}{stddev:>9}")
}

fn us(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "printed with five digits")]
fn as_f64(ns: i64) -> f64 {
    ns as f64
}

/// A table: a row for each figure, a cell in it for each column.
pub(super) struct Table<'a, C> {
    pub(super) text: &'a mut String,
    pub(super) columns: &'a [C],
    /// **Units**: characters of the names of rows, and of a cell.
    pub(super) widths: (usize, usize),
}

impl<C> Table<'_, C> {
    pub(super) fn row(&mut self, name: &str, cell: impl Fn(&C) -> String) {
        let (head, width) = self.widths;
        let mut line = format!("{name:<head$}");
        for column in self.columns {
            line += &format!(" {:>width$}", cell(column));
        }
        *self.text += line.trim_end();
        self.text.push('\n');
    }
}
