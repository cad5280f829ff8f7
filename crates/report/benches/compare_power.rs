// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often a comparison finds a difference that is there, and how often one that is not: the
//! table of `docs/src/reference/compare.md`. Everything follows from seeds; nothing is timed.
//!
//! `cargo bench -p timewire-report --bench compare_power`

use timewire_report::compare::synthetic::Latencies;
use timewire_report::compare::{Rules, Verdict, compare_times};

/// Pairs of runs for each row and length.
const PAIRS: u32 = 100;
const LENGTHS: [usize; 4] = [1_000, 3_000, 10_000, 30_000];
/// By how much all times of B are longer, in per cent.
const LONGER: [u32; 6] = [0, 3, 5, 8, 12, 20];
/// How much each message resembles the one before.
const MEMORY: f64 = 0.6;

fn main() {
    println!("| true difference | messages | p50 | p99 | mean |");
    println!("| --- | --- | --- | --- | --- |");
    for longer in LONGER {
        for (length, at) in LENGTHS.into_iter().zip(0_u64..) {
            let mut found = [[0_u32; 3]; 3];
            // The longest runs are the dearest, and the surest.
            let pairs = match length {
                0..10_000 => PAIRS,
                10_000..30_000 => PAIRS / 2,
                _ => PAIRS / 4,
            };
            for pair in 0..pairs {
                let seed = u64::from(longer) << 48 | at << 40 | u64::from(pair);
                take(&mut found, seed, (length, 1.0 + f64::from(longer) / 100.0));
            }
            let cells = found.map(|[worse, same, inconclusive]| {
                let percent = |count: u32| count * 100 / pairs;
                format!("{} / {} / {}", percent(worse), percent(same), percent(inconclusive))
            });
            println!("| {longer} % | {length} | {} |", cells.join(" | "));
        }
    }
}

fn take(found: &mut [[u32; 3]; 3], seed: u64, (length, factor): (usize, f64)) {
    let a = Latencies::new(seed << 1, MEMORY).take(length, 1.0);
    let b = Latencies::new(seed << 1 | 1, MEMORY).take(length, factor);
    let compared = compare_times(&a, &b, &Rules::default());
    for (counts, metric) in found.iter_mut().zip(compared) {
        match metric.verdict {
            Verdict::Worse => counts[0] += 1,
            Verdict::Same => counts[1] += 1,
            Verdict::Better | Verdict::Inconclusive | Verdict::Shown => counts[2] += 1,
        }
    }
}
