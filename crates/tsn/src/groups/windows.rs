// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Windows within windows: when both of two cycles let something run.

use timewire_base::{CyclicWindows, Span, Window};

/// The times that lie in windows of both, both cycles beginning with the time scale. The cycle is
/// the least common multiple; windows that touch become one.
///
/// **Errors**: a sentence, when that needs more windows than a cycle can have.
pub(super) fn intersection(a: &CyclicWindows, b: &CyclicWindows) -> Result<CyclicWindows, String> {
    let (first, second) = (a.cycle().as_ns(), b.cycle().as_ns());
    let too_many = || {
        format!(
            "the cycles {} and {} meet so seldom that more than {} windows are needed",
            a.cycle(),
            b.cycle(),
            CyclicWindows::MAX_WINDOWS
        )
    };
    let cycle = (first / gcd(first, second)).checked_mul(second).ok_or_else(too_many)?;
    // Every window of the shorter cycle comes so often.
    let repeats = cycle / first.min(second);
    if repeats > MAX_REPEATS {
        return Err(too_many());
    }
    let mut both: Vec<Window> = Vec::new();
    let (a, b) = (unrolled(a, cycle), unrolled(b, cycle));
    let (mut i, mut j) = (0, 0);
    while let (Some(&(start_a, end_a)), Some(&(start_b, end_b))) = (a.get(i), b.get(j)) {
        let (start, end) = (start_a.max(start_b), end_a.min(end_b));
        if start < end {
            match both.last_mut() {
                Some(last) if (last.offset + last.length).as_ns() == start => {
                    last.length += Span::from_ns(end - start);
                }
                _ => both.push(Window {
                    offset: Span::from_ns(start),
                    length: Span::from_ns(end - start),
                }),
            }
        }
        if end_a <= end_b {
            i += 1;
        } else {
            j += 1;
        }
    }
    if both.len() > CyclicWindows::MAX_WINDOWS {
        return Err(too_many());
    }
    CyclicWindows::new(timewire_base::Instant::from_ns(0), Span::from_ns(cycle), both)
        .map_err(|error| error.to_string())
}

/// The windows of a cycle as often as they come in a longer one, start and end.
fn unrolled(windows: &CyclicWindows, cycle: i64) -> Vec<(i64, i64)> {
    let own = windows.cycle().as_ns();
    (0..cycle / own)
        .flat_map(|n| {
            windows.windows().iter().map(move |window| {
                let start = n * own + window.offset.as_ns();
                (start, start + window.length.as_ns())
            })
        })
        .collect()
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// More would be more windows than a cycle can have, but for windows that never meet.
const MAX_REPEATS: i64 = 4_096;
