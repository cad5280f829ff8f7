// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the queueing disciplines of a real kernel do, to the nanosecond of virtual time. Each test
//! states what the kernel's own arithmetic gives; `docs/src/reference/laboratory-tests.md` collects
//! it.
//!
//! Not here: what it means for a schedule (`timewire-tsn`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

mod agree;
mod apply;
mod bridge;
mod cbs;
mod clock;
mod etf;
mod isochron;
mod pacing;
mod selftests;
mod snapshot;
mod taprio;
mod txtime_assist;

use std::ops::RangeInclusive;
use std::process::ExitCode;

use timewire_base::{Instant, Span, Tai};
use timewire_lab::cache::fingerprint;
use timewire_lab::fixture::{Bench, Talker, TrafficOutcome};
use timewire_lab::trial;

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for of_file in [
        clock::TRIALS,
        taprio::TRIALS,
        txtime_assist::TRIALS,
        etf::TRIALS,
        cbs::TRIALS,
        pacing::TRIALS,
        bridge::TRIALS,
        isochron::TRIALS,
        selftests::TRIALS,
        snapshot::TRIALS,
        apply::TRIALS,
        agree::TRIALS,
    ] {
        trials.extend_from_slice(of_file);
    }
    trial::main(&trials)
}

/// A reading of the machine's clock is a multiple of this (linux v6.12
/// `arch/um/kernel/time.c:timer_read`). **Units**: nanoseconds.
const QUANTUM: i64 = 256;

/// How late a timer is. It is set one nanosecond late (`itimer_next_event`), and the reading at
/// its interrupt is rounded down to the quantum. When that reading is still before the timer, it is
/// set again with the smallest delta, 500 ns and one (`TIMER_MIN_DELTA`), after which the next
/// reading but one at most has come: two quanta less the distance to the grid.
const TIMER: RangeInclusive<i64> = 0..=511;

/// How late a timer is that is due on the grid of readings: not, but for one in 256, because the
/// late nanosecond of each adds up.
const TIMER_ON_GRID: RangeInclusive<i64> = 0..=256;

fn ns(ns: i64) -> Span {
    Span::from_ns(ns)
}

fn us(us: i64) -> Span {
    Span::from_us(us)
}

/// One range after another.
fn plus(a: RangeInclusive<i64>, b: &RangeInclusive<i64>) -> RangeInclusive<i64> {
    a.start() + b.start()..=a.end() + b.end()
}

/// Moves a range.
fn shifted(by: i64, range: &RangeInclusive<i64>) -> RangeInclusive<i64> {
    by + range.start()..=by + range.end()
}

/// The first instant of a cycle at or after another one; cycles begin with TAI.
fn next_cycle(at: Instant<Tai>, cycle: Span) -> Instant<Tai> {
    let rest = (-at.as_ns()).rem_euclid(cycle.as_ns());
    at + ns(rest)
}

/// Runs flows, and writes a fingerprint of all timestamps, so that repeated runs are compared.
fn play(bench: &Bench, talkers: &[Talker]) -> TrafficOutcome {
    let outcome = bench.play(talkers).unwrap();
    println!("timestamps {}", fingerprint(&[&format!("{outcome:?}")]));
    outcome
}
