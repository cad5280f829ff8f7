// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How numbers are written for people.

/// Nanoseconds as microseconds with one digit behind the point.
///
/// **Units**: nanoseconds in, microseconds out.
pub(super) fn us(ns: i64) -> String {
    let tenths = (i128::from(ns) + if ns < 0 { -50 } else { 50 }) / 100;
    let sign = if tenths < 0 { "-" } else { "" };
    let tenths = tenths.unsigned_abs();
    format!("{sign}{}.{}", tenths / 10, tenths % 10)
}

/// With one digit behind the point.
pub(super) fn rate(per_second: f64) -> String {
    format!("{per_second:.1}")
}

/// A count that stays exact to 2^53.
#[expect(clippy::cast_precision_loss, reason = "rates and bars: 16 digits are enough")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

/// A table: the first row is its head, and all cells but those of the last column, if it is text,
/// stand at the right.
pub(super) fn table(rows: &[Vec<String>], text_columns: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let gap = if column == 0 { "" } else { "  " };
            line += gap;
            line += &if text_columns.contains(&column) {
                format!("{cell}{pad}")
            } else {
                format!("{pad}{cell}")
            };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_times_are_rounded_to_a_tenth_of_a_microsecond() {
        let cases = [(0, "0.0"), (49, "0.0"), (50, "0.1"), (12_345, "12.3"), (-12_350, "-12.4")];
        for (ns, text) in cases {
            assert_eq!(us(ns), text);
        }
        assert_eq!(us(i64::MIN), "-9223372036854775.8");
    }

    #[test]
    fn t0_columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "x"], ["100", "word"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows, &[1]), "  a  x\n100  word\n");
        assert_eq!(table(&rows, &[]), "  a     x\n100  word\n");
    }
}
