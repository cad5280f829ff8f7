// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers in the words of a finding. A measured number is rounded up, so that a number that is
//! above its limit never reads as if it were within it.

/// A time in microseconds: `612us`, `7512.4us`.
pub(super) fn time(ns: f64) -> String {
    format!("{}us", up(ns / 1e3, 1))
}

/// A part of a whole: `0.3 % (12 of 4000)`.
pub(super) fn share(part: u64, whole: u64) -> String {
    let of_all = super::count_f64(part) / super::count_f64(whole);
    format!("{} ({part} of {whole})", percent(of_all))
}

/// A share of 1 in percent: `0.3 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", up(share * 100.0, 4))
}

/// Rounds up to so many decimals, leaves out zeros at the end.
pub(super) fn up(value: f64, decimals: i32) -> String {
    let scale = 10_f64.powi(decimals);
    let (scaled, nearest) = (value * scale, (value * scale).round());
    // What differs from a whole number only by the error of the arithmetic is that number.
    let whole = if (scaled - nearest).abs() < 1e-6 { nearest } else { scaled.ceil() };
    // Adding zero makes a negative zero positive.
    let digits = usize::try_from(decimals).unwrap_or(0);
    let text = format!("{:.digits$}", whole / scale + 0.0);
    let (number, fraction) = text.split_once('.').unwrap_or((&text, ""));
    match fraction.trim_end_matches('0') {
        "" => number.to_owned(),
        fraction => format!("{number}.{fraction}"),
    }
}
