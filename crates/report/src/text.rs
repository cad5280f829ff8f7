// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Escaped text and printed numbers, the same on the page and in the terminal.

use std::fmt;

/// Appends formatted text to a `&mut String`.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        std::fmt::Write::write_fmt($out, format_args!($($arg)*))
            .expect("invariant: a String takes any text")
    };
}
pub(crate) use put;

/// Text as HTML content or as a quoted attribute: nothing in it is markup.
pub(crate) struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(is_special) {
            f.write_str(&rest[..at])?;
            let mut tail = rest[at..].chars();
            f.write_str(match tail.next() {
                Some('&') => "&amp;",
                Some('<') => "&lt;",
                Some('>') => "&gt;",
                Some('"') => "&quot;",
                Some('\'') => "&#39;",
                _ => "\u{fffd}",
            })?;
            rest = tail.as_str();
        }
        f.write_str(rest)
    }
}

fn is_special(c: char) -> bool {
    matches!(c, '&' | '<' | '>' | '"' | '\'') || is_unprintable(c)
}

/// Control characters, and those that change the direction of the text around them: neither belongs
/// to a name, and both can make a reader see something else than what was measured.
pub(crate) fn is_unprintable(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Microseconds with one decimal.
pub(crate) fn us(ns: i64) -> String {
    us_f64(as_f64(ns))
}

/// Microseconds to the nanosecond.
pub(crate) fn us_exact(ns: i64) -> String {
    format!("{:.3}", as_f64(ns) / 1e3)
}

/// Microseconds with one decimal, of fractional nanoseconds.
pub(crate) fn us_f64(ns: f64) -> String {
    format!("{:.1}", ns / 1e3)
}

/// Microseconds of a configured time: whole where it is whole.
pub(crate) fn us_whole(ns: i64) -> String {
    if ns % 1_000 == 0 { format!("{}", ns / 1_000) } else { format!("{}", as_f64(ns) / 1e3) }
}

/// A time with its unit.
pub(crate) fn duration(ns: i64) -> String {
    let (value, size) = (as_f64(ns), ns.unsigned_abs());
    match size {
        0..1_000 => format!("{ns} ns"),
        1_000..10_000 => format!("{:.2} µs", value / 1e3),
        10_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..10_000_000 => format!("{:.2} ms", value / 1e6),
        10_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.3} s", value / 1e9),
    }
}

/// A count in running text: bare digits, as in tables and in what the command prints, so that one
/// number looks the same everywhere and can be searched for.
pub(crate) fn digits(count: u64) -> String {
    count.to_string()
}

/// `part` of `whole` in per cent; never rounds something to nothing, nor nearly all to all.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let percent = count_f64(part) * 100.0 / count_f64(whole);
    match part {
        0 => "0 %".to_owned(),
        _ if part == whole => "100 %".to_owned(),
        _ if percent < 0.001 => "<0.001 %".to_owned(),
        _ if percent < 1.0 => format!("{percent:.3} %"),
        _ if percent < 99.9 => format!("{percent:.1} %"),
        _ => ">99.9 %".to_owned(),
    }
}

/// For drawing and means: 53 bits of nanoseconds are 104 days.
pub(crate) fn as_f64(ns: i64) -> f64 {
    ns as f64
}

/// For drawing and shares: exact below 2^53.
pub(crate) fn count_f64(count: u64) -> f64 {
    count as f64
}

/// When a run began; a simulation has no such time, and has 0 for it.
pub(crate) fn began(started_utc_ns: i64) -> String {
    if started_utc_ns == 0 { "simulated".to_owned() } else { utc(started_utc_ns) }
}

/// Date and time, `2026-11-20 14:03:07 UTC`.
fn utc(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let (mut days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let mut year = 1970;
    while days < 0 {
        year -= 1;
        days += days_in_year(year);
    }
    while days >= days_in_year(year) {
        days -= days_in_year(year);
        year += 1;
    }
    let mut month = 1;
    while days >= days_in_month(year, month) {
        days -= days_in_month(year, month);
        month += 1;
    }
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{:02} UTC", days + 1, second % 60)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_year(year: i64) -> i64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_in_month(year: i64, month: u32) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_markup_and_control_characters_are_escaped() {
        let text = "<a href=\"x\">'&'</a>\u{1b}[31m\u{202e}é";
        let want = "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;\u{fffd}[31m\u{fffd}é";
        assert_eq!(Escaped(text).to_string(), want);
        assert_eq!(Escaped("plain").to_string(), "plain");
    }

    #[test]
    fn t0_shares_never_round_to_nothing_or_to_all() {
        let cases = [
            (0, 0, "–"),
            (0, 9, "0 %"),
            (1, 10_000_000, "<0.001 %"),
            (31, 100_000, "0.031 %"),
            (1, 3, "33.3 %"),
            (999_999, 1_000_000, ">99.9 %"),
            (7, 7, "100 %"),
        ];
        for (part, whole, want) in cases {
            assert_eq!(share(part, whole), want, "{part} of {whole}");
        }
    }

    #[test]
    fn t0_numbers_and_dates() {
        assert_eq!(us(1_049), "1.0");
        assert_eq!(us(1_051), "1.1");
        assert_eq!(us(-250), "-0.2");
        assert_eq!(us_whole(1_040_000), "1040");
        assert_eq!(us_whole(1_500), "1.5");
        assert_eq!(digits(7), "7");
        assert_eq!(digits(1_234_567), "1234567");
        assert_eq!((&*began(0), &*began(-1)), ("simulated", "1969-12-31 23:59:59 UTC"));
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(-1), "1969-12-31 23:59:59 UTC");
        assert_eq!(utc(1_709_164_800_000_000_000), "2024-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_183_387_000_000_000), "2026-11-20 14:03:07 UTC");
    }
}
