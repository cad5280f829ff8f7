// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host settings on a kernel, in virtual time: `timewire apply` puts them there, they read back
//! as they were desired, frames obey them to the nanosecond, and `timewire undo` leaves everything
//! as it was, to the byte.
//!
//! Not here: what the kernel's disciplines do in general (`tests/kernel` of `timewire-lab`), every
//! way that a transaction can fail (`timewire-host`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

mod avtp;
mod drops;
mod examples;
mod gates;
mod launch;
mod measure;
mod planned;
mod shaper;
mod station;
mod table;
mod talk;
mod traffic;
mod vlan;

use std::process::ExitCode;

use timewire_base::Span;
use timewire_lab::cache::fingerprint;
use timewire_lab::fixture::{Bench, Talker, TrafficOutcome};
use timewire_lab::trial;

fn main() -> ExitCode {
    let of_files = [
        traffic::TRIALS,
        shaper::TRIALS,
        vlan::TRIALS,
        avtp::TRIALS,
        examples::TRIALS,
        planned::TRIALS,
        launch::TRIALS,
        table::TRIALS,
        measure::TRIALS,
        gates::TRIALS,
        talk::TRIALS,
        drops::TRIALS,
    ];
    trial::main(&of_files.concat())
}

/// How late a timer of the machine is, and how late a frame leaves `etf`: see the page "Tests in
/// the laboratory's kernel".
const TIMER: std::ops::RangeInclusive<i64> = 0..=511;
const LATE: std::ops::RangeInclusive<i64> = 1..=512;

fn us(us: i64) -> Span {
    Span::from_us(us)
}

/// Moves a range.
fn shifted(by: i64, range: &std::ops::RangeInclusive<i64>) -> std::ops::RangeInclusive<i64> {
    by + range.start()..=by + range.end()
}

/// Runs flows, and writes a fingerprint of all timestamps, so that repeated runs are compared.
fn play(bench: &Bench, talkers: &[Talker]) -> TrafficOutcome {
    let outcome = bench.play(talkers).unwrap();
    println!("timestamps {}", fingerprint(&[&format!("{outcome:?}")]));
    outcome
}
