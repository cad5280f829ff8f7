// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table that the authors of the kernel's launch times show, from settings: how far from its
//! time a frame leaves, slept for and paced.

use timewire_lab::fixture::{Statistics, Talker};
use timewire_lab::trial::{self, Trial};

use super::station::{Station, file, pair, transmit};
use super::{LATE, TIMER, play, shifted, us};

pub const TRIALS: &[Trial] = &[Trial::new("t4_applied_launch_error_table", table)];

/// **Units**: microseconds.
const DELTA: i64 = 130;

fn table() {
    println!("launch error in ns of virtual time, frames of 322 bytes, {}", trial::kernel_name());
    println!("{:<6} {:>9} {:>9} {}", "", "interval", "delta", Statistics::HEADER);
    let desired = format!(
        "classes: [{{ priorities: [3], queues: 1@0, launch_time: {{ delta: {DELTA}us }} }}, \
         {{ queues: 1@1 }}]"
    );
    let path = file(&transmit(&desired));
    let bench = pair();
    Station::of(&bench, "a").with(&path, || {
        for (interval, count) in [(1_000, 2_000), (250, 8_000)] {
            let flow = || Talker::new("a", "b").length(322).every(us(interval)).count(count);
            let row = |kind: &str, delta: &str, statistics: Statistics| {
                println!("{kind:<6} {:>9} {delta:>9} {statistics}", format!("{interval} us"));
            };
            let outcome = play(&bench, &[flow()]);
            let plain = outcome.flow(0).late_by(TIMER);
            row("plain", "-", plain.statistics(|fate| fate.lateness().as_ns()));
            let outcome = play(&bench, &[flow().priority(3).launch(us(DELTA + 100))]);
            let paced = outcome.flow(0).late_by(shifted(-DELTA * 1_000, &LATE));
            let error = |at: i64| at + DELTA * 1_000;
            let statistics = paced.statistics(|fate| error(fate.lateness().as_ns()));
            row("etf", &format!("{DELTA} us"), statistics);
        }
    });
}
