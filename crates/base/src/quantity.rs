// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quantities as people write them: a number and its unit, `125us`, `100Mbit`, `1522B`. A bare
//! number is an error that shows what it could have meant, because a wrong unit is found too late.

use thiserror::Error;

use crate::{BitsPerSecond, Span};

/// Text that is no quantity of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// A number without its unit.
    #[error("`{text}` has no unit: did you mean {}?", .readings.join(", "))]
    NoUnit {
        /// What was given.
        text: String,
        /// The likely readings.
        readings: Vec<String>,
    },
    /// A unit of another kind, or none at all.
    #[error("`{text}` has the unit `{unit}`: {what} takes {takes}")]
    WrongUnit {
        /// What was given.
        text: String,
        /// The unit that was read.
        unit: String,
        /// What kind of quantity was wanted.
        what: &'static str,
        /// The units of that kind.
        takes: &'static str,
    },
    /// No number in front of the unit.
    #[error("`{text}` is no quantity: {what} is a number and a unit, such as {example}")]
    NotANumber {
        /// What was given.
        text: String,
        /// What kind of quantity was wanted.
        what: &'static str,
        /// A correct one.
        example: &'static str,
    },
    /// The value is no whole number of the base unit, too large, or zero where that means nothing.
    #[error("`{text}` cannot be kept: {why}")]
    OutOfRange {
        /// What was given.
        text: String,
        /// Which bound it misses.
        why: &'static str,
    },
}

struct Kind {
    what: &'static str,
    takes: &'static str,
    example: &'static str,
    units: &'static [(&'static str, u64)],
    readings: [&'static str; 3],
}

const TIME: Kind = Kind {
    what: "a time",
    takes: "ns, us, ms or s",
    example: "125us",
    units: &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)],
    readings: ["us", "ms", "ns"],
};
const RATE: Kind = Kind {
    what: "a rate",
    takes: "bit, kbit, Mbit or Gbit (per second)",
    example: "100Mbit",
    units: &[("bit", 1), ("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000)],
    readings: ["Mbit", "Gbit", "kbit"],
};
const LENGTH: Kind = Kind {
    what: "a length",
    takes: "B, kB or KiB",
    example: "1522B",
    units: &[("B", 1), ("kB", 1_000), ("KiB", 1_024)],
    readings: ["B", "kB", "KiB"],
};

/// Reads a time such as `125us` or `1.04ms`.
///
/// **Errors**: no unit, another unit, no number, finer than a nanosecond, beyond 292 years.
pub fn parse_span(text: &str) -> Result<Span, QuantityError> {
    let (negative, magnitude) = match text.trim().strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.trim()),
    };
    let ns = parse(magnitude, text, &TIME)?;
    let ns = i64::try_from(ns).map_err(|_| QuantityError::OutOfRange {
        text: text.to_owned(),
        why: "a time has at most 292 years",
    })?;
    Ok(if negative { -Span::from_ns(ns) } else { Span::from_ns(ns) })
}

/// Reads a rate such as `100Mbit` (decimal multiples of bit per second).
///
/// **Errors**: as [`parse_span`]; zero and more than 10 Tbit/s.
pub fn parse_rate(text: &str) -> Result<BitsPerSecond, QuantityError> {
    let bps = parse(text.trim(), text, &RATE)?;
    BitsPerSecond::new(bps).ok_or_else(|| QuantityError::OutOfRange {
        text: text.to_owned(),
        why: "a link has more than zero and at most 10000Gbit",
    })
}

/// Reads a length such as `1522B`.
///
/// **Errors**: as [`parse_span`]; more than 4 GiB.
pub fn parse_bytes(text: &str) -> Result<u32, QuantityError> {
    let bytes = parse(text.trim(), text, &LENGTH)?;
    u32::try_from(bytes).map_err(|_| QuantityError::OutOfRange {
        text: text.to_owned(),
        why: "a length has less than 4 GiB",
    })
}

fn parse(magnitude: &str, whole: &str, kind: &Kind) -> Result<u64, QuantityError> {
    let split = magnitude.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
    let (number, unit) = match split {
        Some(at) => (&magnitude[..at], magnitude[at..].trim_start()),
        None => (magnitude, ""),
    };
    let not_a_number = || QuantityError::NotANumber {
        text: whole.to_owned(),
        what: kind.what,
        example: kind.example,
    };
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(not_a_number());
    }
    if unit.is_empty() {
        return Err(QuantityError::NoUnit {
            text: whole.to_owned(),
            readings: kind.readings.iter().map(|r| format!("{whole}{r}")).collect(),
        });
    }
    let Some(&(_, factor)) = kind.units.iter().find(|(name, _)| *name == unit) else {
        return Err(QuantityError::WrongUnit {
            text: whole.to_owned(),
            unit: unit.to_owned(),
            what: kind.what,
            takes: kind.takes,
        });
    };
    let digits = number.replace('_', "");
    let (whole_part, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    if fraction.contains('.') || (digits.contains('.') && fraction.is_empty()) {
        return Err(not_a_number());
    }
    exact(whole_part, fraction, factor).ok_or_else(|| QuantityError::OutOfRange {
        text: whole.to_owned(),
        why: "it is too large, or finer than the smallest unit",
    })
}

/// `whole.fraction * factor`, only when that is a whole number that fits.
fn exact(whole: &str, fraction: &str, factor: u64) -> Option<u64> {
    let units = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        return Some(units);
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = fraction.parse::<u128>().ok()?.checked_mul(u128::from(factor))?;
    if part % scale != 0 {
        return None;
    }
    units.checked_add(u64::try_from(part / scale).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn t0_good_quantities() {
        let spans = [
            ("125us", 125_000),
            ("1.04ms", 1_040_000),
            ("2s", 2_000_000_000),
            ("0ns", 0),
            ("-40us", -40_000),
            ("1_000 ns", 1_000),
            ("5µs", 5_000),
        ];
        for (text, ns) in spans {
            assert_eq!(parse_span(text), Ok(Span::from_ns(ns)), "{text}");
        }
        assert_eq!(parse_rate("100Mbit").unwrap().get(), 100_000_000);
        assert_eq!(parse_rate("2.5Gbit").unwrap().get(), 2_500_000_000);
        assert_eq!(parse_bytes("1522B"), Ok(1_522));
    }

    #[test]
    fn t0_bad_quantities_say_what_would_be_right() {
        let cases = [
            ("125", "`125` has no unit: did you mean 125us, 125ms, 125ns?"),
            ("125Mbit", "`125Mbit` has the unit `Mbit`: a time takes ns, us, ms or s"),
            ("fast", "`fast` is no quantity: a time is a number and a unit, such as 125us"),
            ("0.5ns", "`0.5ns` cannot be kept: it is too large, or finer than the smallest unit"),
            ("1.2.3us", "`1.2.3us` is no quantity: a time is a number and a unit, such as 125us"),
            ("1.us", "`1.us` is no quantity: a time is a number and a unit, such as 125us"),
            ("", "`` is no quantity: a time is a number and a unit, such as 125us"),
            ("10000000000s", "`10000000000s` cannot be kept: a time has at most 292 years"),
        ];
        for (text, message) in cases {
            assert_eq!(parse_span(text).unwrap_err().to_string(), message);
        }
        assert!(parse_rate("0Mbit").is_err());
        assert!(parse_bytes("1500").unwrap_err().to_string().contains("1500B"));
    }

    proptest! {
        #[test]
        fn t0_printed_spans_read_back(ns in -(1_i64 << 60)..(1_i64 << 60)) {
            let span = Span::from_ns(ns);
            prop_assert_eq!(parse_span(&span.to_string()), Ok(span));
        }

        #[test]
        fn t0_any_text_is_read_or_refused(text in "\\PC{0,24}") {
            let _ = (parse_span(&text), parse_rate(&text), parse_bytes(&text));
        }
    }
}
