// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times as people read them: few digits, one unit, and the same time when they are read back.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use timewire_base::{Span, parse_span};

/// The number and the unit of a printed time.
fn parts(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap();
    text.split_at(at)
}

proptest! {
    #[test]
    fn t0_a_time_has_few_digits_before_its_unit_and_reads_back(
        digits in 0_u32..19,
        number in any::<i64>(),
    ) {
        let span = Span::from_ns(number % 10_i64.pow(digits));
        let text = span.to_string();
        prop_assert_eq!(parse_span(&text), Ok(span), "{}", text);
        let (number, unit) = parts(&text);
        prop_assert!(["s", "ms", "us", "ns"].contains(&unit), "{}", text);
        let whole = number.trim_start_matches('-').split('.').next().unwrap();
        // Seconds have no larger unit.
        prop_assert!(unit == "s" || whole.len() <= 5, "{}", text);
        prop_assert!(!number.contains(['e', ' ', ',', '_']), "{}", text);
    }
}
