// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times as an interval log of HdrHistogram, which its tools in many languages read: a line for
//! each series and interval, whose tag is the name of the series, with a compressed histogram of
//! version 2.
//!
//! A message is in the interval in which it began. Histograms keep three significant digits, so a
//! percentile is off by at most a thousandth of itself; counts are exact. An interval in which a
//! series had no message has a line, too, with an empty histogram.
//!
//! **Source**: HdrHistogram 2.2.2 `HistogramLogWriter` and `HistogramLogReader`, log format 1.3.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};
use timewire_base::Span;

/// Times of one kind, in the order in which they began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HdrSeries {
    /// Its name in the log. What a tag cannot have is written as `_`.
    pub name: String,
    /// When the first interval begins. **Units**: nanoseconds of TAI.
    pub from_ns: i64,
    /// When the last one ends, the first instant outside. **Units**: nanoseconds of TAI.
    pub to_ns: i64,
    /// When a message began, and how long it took if it came to its end. **Units**: nanoseconds.
    pub times: Vec<(i64, Option<i64>)>,
}

/// A log to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HdrLog {
    /// What the times are from and to, for people.
    pub what: String,
    /// Length of an interval, at least [`HdrLog::SHORTEST`]; the last of a series may be shorter.
    pub interval: Span,
    /// All series.
    pub series: Vec<HdrSeries>,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HistogramLine {
    from_ns: i64,
    series: usize,
    to_ns: i64,
}

impl HdrLog {
    /// Times of intervals are written in milliseconds.
    pub const SHORTEST: Span = Span::from_ms(1);

    /// How many lines it has.
    ///
    /// **Panics** when the interval is too short.
    pub fn lines(&self) -> u64 {
        let step = self.step().unsigned_abs();
        let of = |series: &HdrSeries| {
            let length = series.to_ns.saturating_sub(series.from_ns).max(0);
            length.unsigned_abs().div_ceil(step)
        };
        self.series.iter().map(of).fold(0, u64::saturating_add)
    }

    fn step(&self) -> i64 {
        assert!(self.interval >= HdrLog::SHORTEST, "an interval is at least a millisecond");
        self.interval.as_ns()
    }

    /// Writes it, in the order of time. The same log gives the same bytes.
    ///
    /// **Errors**: of the writer.
    ///
    /// **Panics** when the interval is too short.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let lines = self.all_lines();
        let base_ns = lines.first().map_or(0, |line| line.from_ns.max(0));
        let base_ns = base_ns - base_ns % HdrLog::SHORTEST.as_ns();
        let base = SystemTime::UNIX_EPOCH + since(0, base_ns);
        let mut head = IntervalLogWriterBuilder::new();
        head.add_comment("[Histogram log format version 1.3]");
        head.add_comment(&format!(
            " {}; nanoseconds, interval maxima in milliseconds; times are TAI",
            plain(&self.what)
        ));
        for series in &self.series {
            head.add_comment(&series.account());
        }
        head.with_start_time(base).with_base_time(base);
        head.with_max_value_divisor(1e6);
        let mut serializer = V2DeflateSerializer::new();
        let mut writer = head.begin_log_with(out, &mut serializer)?;
        let mut histogram = self.histogram();
        for line in lines {
            let series = &self.series[line.series];
            histogram.reset();
            for time in series.within(line.from_ns, line.to_ns) {
                histogram.record(time).expect("invariant: none is above the largest");
            }
            let name = series.tag();
            let tag = Tag::new(&name).expect("invariant: a tag without what it cannot have");
            let start = since(base_ns, line.from_ns);
            let length = since(line.from_ns, line.to_ns);
            writer.write_histogram(&histogram, start, length, Some(tag)).map_err(|error| {
                match error {
                    IntervalLogWriterError::IoError(error) => error,
                    IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
                }
            })?;
        }
        Ok(())
    }

    /// Of the same bounds for all lines, so that readers can add them up as they are.
    fn histogram(&self) -> Histogram<u64> {
        let all = self.series.iter().flat_map(|series| &series.times);
        let largest = all.filter_map(|(_, took)| *took).max().unwrap_or(0).max(2);
        let largest = largest.unsigned_abs();
        Histogram::new_with_bounds(1, largest, DIGITS).expect("invariant: bounds that may be")
    }

    fn all_lines(&self) -> Vec<HistogramLine> {
        let step = self.step();
        let mut lines = Vec::new();
        for (number, series) in self.series.iter().enumerate() {
            let mut from_ns = series.from_ns;
            while from_ns < series.to_ns {
                let to_ns = from_ns.saturating_add(step).min(series.to_ns);
                lines.push(HistogramLine { from_ns, series: number, to_ns });
                from_ns = to_ns;
            }
        }
        lines.sort_unstable();
        lines
    }
}

/// Significant digits of a histogram.
const DIGITS: u8 = 3;

impl HdrSeries {
    /// A series over all of its messages, in any order, that begins at this instant at the latest.
    pub fn new(name: String, from_ns: i64, mut times: Vec<(i64, Option<i64>)>) -> HdrSeries {
        times.sort_by_key(|time| time.0);
        let from_ns = times.first().map_or(from_ns, |first| first.0.min(from_ns));
        let to_ns = times.last().map_or(from_ns, |last| last.0.saturating_add(1));
        HdrSeries { name, from_ns, to_ns, times }
    }

    fn tag(&self) -> String {
        let fits = |c: char| !c.is_whitespace() && !c.is_control() && c != ',';
        self.name.chars().map(|c| if fits(c) { c } else { '_' }).collect()
    }

    /// The times of an interval that a histogram can have.
    fn within(&self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = u64> {
        let first = self.times.partition_point(|time| time.0 < from_ns);
        let end = self.times.partition_point(|time| time.0 < to_ns);
        self.times[first..end].iter().filter_map(|(_, took)| u64::try_from((*took)?).ok())
    }

    /// What its histograms have, and what they do not have.
    fn account(&self) -> String {
        let open = self.times.iter().filter(|(_, took)| took.is_none()).count();
        let below = self.times.iter().filter(|(_, took)| took.is_some_and(|ns| ns < 0)).count();
        format!(
            " {}: {} messages; in no histogram: {open} without a second timestamp, {below} below \
                zero",
            self.tag(),
            self.times.len()
        )
    }
}

/// From one instant to a later one; none to an earlier one.
fn since(from_ns: i64, to_ns: i64) -> Duration {
    Duration::from_nanos(u64::try_from(to_ns.saturating_sub(from_ns)).unwrap_or(0))
}

/// Without what would end a line of comment.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, times: &[(i64, Option<i64>)]) -> HdrSeries {
        HdrSeries::new(name.to_owned(), i64::MAX, times.to_vec())
    }

    fn text(log: &HdrLog) -> String {
        let mut out = Vec::new();
        log.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn t1_a_log_has_a_line_for_each_series_and_interval() {
        const S: i64 = 1_000_000_000;
        let a = series("a, b\n", &[(7 * S + 2_600_000, Some(3)), (5 * S + 1, Some(2_000_000))]);
        let b = series("b", &[(5 * S, None), (5 * S + 3, Some(-1)), (5 * S + 4, Some(0))]);
        let log =
            HdrLog { what: "x\ny".to_owned(), interval: Span::from_ms(1_000), series: vec![a, b] };
        assert_eq!(log.lines(), 4);
        let text = text(&log);
        let (heads, lines): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('#'));
        assert_eq!(
            heads,
            [
                "#[Histogram log format version 1.3]",
                "# x_y; nanoseconds, interval maxima in milliseconds; times are TAI",
                "# a__b_: 2 messages; in no histogram: 0 without a second timestamp, 0 below zero",
                "# b: 3 messages; in no histogram: 1 without a second timestamp, 1 below zero",
                "#[StartTime: 5.000 (seconds since epoch)]",
                "#[BaseTime: 5.000 (seconds since epoch)]",
                "#[MaxValueDivisor: 1000000.000]",
            ]
        );
        let starts: Vec<&str> =
            lines.iter().map(|line| line.split_once("HIST").unwrap().0).collect();
        assert_eq!(
            starts,
            [
                "Tag=b,0.000,0.000,0.000,",
                "Tag=a__b_,0.000,1.000,2.001,",
                "Tag=a__b_,1.000,1.000,0.000,",
                "Tag=a__b_,2.000,0.003,0.000,",
            ]
        );
    }

    #[test]
    fn t0_nothing_and_the_largest_can_be_written() {
        let log = HdrLog { interval: HdrLog::SHORTEST, ..HdrLog::default() };
        assert_eq!((log.lines(), text(&log).lines().count()), (0, 5));
        let far = series("far", &[(i64::MAX - 1, Some(i64::MAX)), (i64::MAX - 1, Some(1))]);
        let log = HdrLog { interval: HdrLog::SHORTEST, series: vec![far], ..HdrLog::default() };
        assert_eq!(text(&log).lines().count(), 7);
    }

    #[test]
    #[should_panic(expected = "an interval is at least a millisecond")]
    fn t0_an_interval_that_cannot_be_told_is_a_mistake() {
        HdrLog::default().lines();
    }
}
