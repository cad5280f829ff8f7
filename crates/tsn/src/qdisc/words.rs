// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of `tc`, one by one, and the numbers among them as the C library reads them.
//!
//! `tc` stops reading, or passes over the rest, at some words that it does not understand, and
//! keeps the last of a setting that stands twice. Here both are errors.

use timewire_base::Span;

use super::QdiscError;

/// The words of a command that are still to be read.
pub(super) struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
    seen: Vec<&'static str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Words<'a> {
        Words { words: text.split_whitespace().collect(), at: 0, seen: Vec::new() }
    }

    /// The next word, which stays.
    pub(super) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    pub(super) fn take(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// The word that must follow.
    pub(super) fn need(&mut self, wanted: &'static str) -> Result<&'a str, QdiscError> {
        self.take().ok_or_else(|| QdiscError::Missing {
            after: self.words.last().map_or_else(String::new, |word| (*word).to_owned()),
            wanted,
        })
    }

    /// Notes a setting that may stand once.
    pub(super) fn once(&mut self, key: &'static str) -> Result<(), QdiscError> {
        if self.seen.contains(&key) {
            return Err(QdiscError::Twice { word: key.to_owned() });
        }
        self.seen.push(key);
        Ok(())
    }

    /// Forgets what may stand once: the discipline's own settings begin.
    pub(super) fn fresh(&mut self) {
        self.seen.clear();
    }

    /// Every word from here on for which `read` finds a value, at most `max`.
    pub(super) fn run<T>(
        &mut self,
        key: &'static str,
        max: usize,
        of: &'static str,
        read: impl Fn(&str) -> Option<Result<T, QdiscError>>,
    ) -> Result<Vec<T>, QdiscError> {
        self.once(key)?;
        let mut values = Vec::new();
        while let Some(value) = self.peek().and_then(&read) {
            values.push(value?);
            self.at += 1;
        }
        if values.len() > max {
            return Err(QdiscError::TooMany { key, count: values.len(), max, of });
        }
        if values.is_empty() {
            return Err(match self.peek() {
                None => QdiscError::Missing { after: key.to_owned(), wanted: "a value" },
                Some(word) => value(key, word, "a list of values"),
            });
        }
        Ok(values)
    }

    /// A whole number in this range, as `strtol` reads it in base 10.
    pub(super) fn decimal(
        &mut self,
        key: &'static str,
        least: i64,
        most: i64,
    ) -> Result<i64, QdiscError> {
        self.number(key, least, most, 10)
    }

    /// A whole number in this range, as `strtol` reads it in base 0: `0x1f`, `017` and `31` alike.
    pub(super) fn any_base(
        &mut self,
        key: &'static str,
        least: i64,
        most: i64,
    ) -> Result<i64, QdiscError> {
        self.number(key, least, most, 0)
    }

    fn number(
        &mut self,
        key: &'static str,
        least: i64,
        most: i64,
        base: u32,
    ) -> Result<i64, QdiscError> {
        self.once(key)?;
        let word = self.need("a number")?;
        integer(word, base)
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| value(key, word, &format!("a whole number, {least} to {most}")))
    }

    /// Nanoseconds, all 64 bits of them.
    pub(super) fn nanoseconds(&mut self, key: &'static str) -> Result<Span, QdiscError> {
        self.decimal(key, i64::MIN, i64::MAX).map(Span::from_ns)
    }
}

/// A wrong value.
pub(super) fn value(key: &'static str, text: &str, why: &str) -> QdiscError {
    QdiscError::Value { key, text: text.to_owned(), why: why.to_owned() }
}

/// Whether `word` is `full` or begins it, as `matches` of iproute2 decides.
pub(super) fn begins(word: &str, full: &str) -> bool {
    !word.is_empty() && full.starts_with(word)
}

/// As `strtol` reads it, the whole word: base 10, 16, or 0 for what the digits say.
pub(super) fn integer(word: &str, base: u32) -> Option<i64> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, base) = match (base, hexadecimal) {
        (0 | 16, Some(rest)) => (rest, 16),
        (0, None) if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        (0, None) => (digits, 10),
        (base, _) => (digits, base),
    };
    // `from_str_radix` would take another sign.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, base).ok()?;
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_numbers_read_as_the_c_library_reads_them() {
        let cases = [
            ("12", 10, Some(12)),
            ("012", 10, Some(12)),
            ("012", 0, Some(10)),
            ("0", 0, Some(0)),
            ("08", 0, None),
            ("0x1F", 0, Some(31)),
            ("0x1F", 10, None),
            ("1f", 16, Some(31)),
            ("-3", 0, Some(-3)),
            ("+3", 10, Some(3)),
            ("--3", 10, None),
            ("-", 10, None),
            ("", 10, None),
            ("3us", 10, None),
            ("-9223372036854775808", 10, Some(i64::MIN)),
            ("9223372036854775808", 10, None),
        ];
        for (word, base, number) in cases {
            assert_eq!(integer(word, base), number, "{word} base {base}");
        }
    }

    #[test]
    fn t0_a_word_may_be_cut_short() {
        assert!(begins("del", "delete") && begins("delete", "delete"));
        assert!(!begins("", "delete") && !begins("deleted", "delete"));
    }
}
