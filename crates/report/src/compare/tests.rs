// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the comparison says of series whose difference is known.

use super::synthetic::Latencies;
use super::*;

const MEMORY: f64 = 0.6;
const PAIRS: u64 = 200;

/// In how many of [`PAIRS`] pairs of runs of 3000 messages something is worse, something better,
/// and all the same.
fn verdicts(factor: f64, rules: Rules) -> [u64; 3] {
    with_memory(MEMORY, factor, rules)
}

fn with_memory(memory: f64, factor: f64, rules: Rules) -> [u64; 3] {
    let mut found = [0; 3];
    for pair in 0..PAIRS {
        let a = Latencies::new(2 * pair, memory).take(3_000, 1.0);
        let b = Latencies::new(2 * pair + 1, memory).take(3_000, factor);
        let all = compare_times(&a, &b, &Rules { seed: pair, ..rules });
        assert_eq!(all.len(), 3);
        let any = |verdict| u64::from(all.iter().any(|metric| metric.verdict == verdict));
        found[0] += any(Verdict::Worse);
        found[1] += any(Verdict::Better);
        found[2] += u64::from(all.iter().all(|metric| metric.verdict == Verdict::Same));
    }
    found
}

/// The most alarms of so many pairs at this level that four deviations of chance allow.
fn allowed(level: f64) -> u64 {
    let expected = level * 200.0;
    let most = expected + 4.0 * (expected * (1.0 - level)).sqrt();
    (0..=PAIRS).take_while(|&count| (count as f64) <= most).last().unwrap()
}

/// Without a tolerance every alarm of two equal sources is false, and the level is all that keeps
/// them rare.
#[test]
fn t0_false_alarms_are_at_most_the_level() {
    for level in [0.10, 0.01] {
        let rules = Rules { tolerance: 0.0, confidence: 1.0 - level, ..Rules::default() };
        let [worse, better, _] = verdicts(1.0, rules);
        let most = allowed(level);
        assert!(worse + better <= most, "{worse} worse, {better} better, at most {most}");
    }
}

/// Sources that keep to a level for hundreds of messages, as on a machine that others use.
#[test]
fn t0_a_long_memory_raises_no_more_alarms() {
    for memory in [0.95, 0.99, 0.997] {
        let rules = Rules { tolerance: 0.0, confidence: 0.99, ..Rules::default() };
        let [worse, better, _] = with_memory(memory, 1.0, rules);
        let most = allowed(0.01);
        assert!(worse + better <= most, "memory {memory}: {worse} worse, {better} better");
    }
}

/// A difference of exactly the tolerance is the hardest that is not worse; only one side can be
/// wrong there.
#[test]
fn t0_a_difference_of_the_tolerance_is_no_alarm() {
    let rules = Rules { confidence: 0.9, ..Rules::default() };
    let [worse, better, _] = verdicts(1.05, rules);
    assert!(worse <= allowed(0.05) && better == 0, "{worse} worse, {better} better");
}

#[test]
fn t0_differences_are_found_both_ways_and_none_is_the_same() {
    let [worse, better, same] = verdicts(1.25, Rules::default());
    assert!(worse >= 195 && better == 0 && same == 0, "{worse} {better} {same}");
    let [worse, better, same] = verdicts(0.8, Rules::default());
    assert!(worse == 0 && better >= 195 && same == 0, "{worse} {better} {same}");
}

#[test]
fn t0_the_same_values_are_the_same_and_too_few_are_open() {
    let series = Latencies::new(9, MEMORY).take(3_000, 1.0);
    for metric in compare_times(&series, &series, &Rules::default()) {
        assert_eq!(metric.verdict, Verdict::Same, "{metric:?}");
        assert_eq!(metric.ratio, Some(Interval::exactly(1.0)));
    }
    let other = Latencies::new(10, MEMORY).take(3_000, 1.5);
    let compared = compare_times(&series[..500], &other[..500], &Rules::default());
    let verdicts: Vec<_> = compared.iter().map(|metric| metric.verdict).collect();
    assert_eq!(verdicts, [Verdict::Worse, Verdict::Inconclusive, Verdict::Worse], "{compared:?}");
    assert_eq!(compared[1].why, "fewer than 10 values lie beyond this percentile");
    for metric in compare_times(&series[..60], &other[..60], &Rules::default()) {
        assert_eq!(metric.verdict, Verdict::Inconclusive, "{metric:?}");
    }
    for metric in compare_times(&series, &[], &Rules::default()) {
        assert_eq!((metric.verdict, metric.why.as_str()), (Verdict::Inconclusive, "no values"));
    }
}

#[test]
fn t0_the_same_seed_gives_the_same_intervals() {
    let a = Latencies::new(1, MEMORY).take(1_000, 1.0);
    let b = Latencies::new(2, MEMORY).take(1_000, 1.0);
    let with = |seed| compare_times(&a, &b, &Rules { seed, ..Rules::default() });
    assert_eq!(with(3), with(3));
    assert_ne!(with(3), with(4));
}
