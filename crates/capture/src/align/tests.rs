// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::capture::ClockSample;

/// A simulated pair of hosts.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Differences of timestamps at the start.
    offset: i64,
    rate_ppb: f64,
    /// The rate swings with this second derivative at most.
    wander_ppb: f64,
    swing_s: f64,
    /// Shortest delays of both ways.
    delay: (u32, u32),
    /// Mean of what queueing adds.
    queueing: (u32, u32),
    /// Mean time between packets of both ways.
    every_us: (u32, u32),
    seconds: u32,
    seed: u64,
}

/// xorshift64*: the tests need a seeded stream of numbers and nothing more.
struct Numbers(u64);

impl Numbers {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = u32::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32).unwrap();
        (f64::from(high) + 0.5) / 4_294_967_296.0
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "tests")]
fn whole(value: f64) -> i64 {
    value.round() as i64
}

const START: u64 = 5_000_000_000;

impl Case {
    /// `b` less `a` at a time of `a`, seconds from the start.
    fn truth(&self, s: f64) -> f64 {
        let angle = std::f64::consts::TAU * s / self.swing_s;
        let amplitude = self.wander_ppb * (self.swing_s / std::f64::consts::TAU).powi(2);
        self.rate_ppb * s + amplitude * angle.sin()
    }

    fn at(&self, s: f64) -> i64 {
        self.offset + whole(self.truth(s))
    }

    /// `b`'s timestamp of what happens when `a`'s clock shows `s` seconds.
    fn b_ns(&self, s: f64) -> u64 {
        let a = START + u64::try_from(whole(s * 1e9)).unwrap();
        a.checked_add_signed(self.at(s)).unwrap()
    }

    fn crossings(&self) -> Vec<Crossing> {
        let mut numbers = Numbers(self.seed | 1);
        let mut all = Vec::new();
        for from_a in [true, false] {
            let (every, delay, queueing) = match from_a {
                true => (self.every_us.0, self.delay.0, self.queueing.0),
                false => (self.every_us.1, self.delay.1, self.queueing.1),
            };
            let mut s = 0.0;
            while s < f64::from(self.seconds) {
                let late = f64::from(delay) + numbers.exponential(f64::from(queueing) + 1e-9);
                let arrives = s + late / 1e9;
                let a_at = if from_a { s } else { arrives };
                all.push(Crossing {
                    from_a,
                    a_ns: START + u64::try_from(whole(a_at * 1e9)).unwrap(),
                    b_ns: self.b_ns(if from_a { arrives } else { s }),
                });
                s += numbers.exponential(f64::from(every)) / 1e6;
            }
        }
        all
    }
}

fn case() -> impl Strategy<Value = Case> {
    // Half of them leave nothing to hide behind: hardly any delay, no queueing.
    let delay = || prop_oneof![0..300_u32, 100..50_000_u32];
    let queueing = || prop_oneof![Just(0_u32), 0..300_000_u32];
    let every = || 2_000..200_000_u32;
    (
        -4_000_000_000_i64..1_000_000_000_000_000_000,
        -200_000.0..200_000.0_f64,
        0.0..20.0_f64,
        3.0..60.0_f64,
        (delay(), delay()),
        (queueing(), queueing()),
        (every(), every()),
        1..16_u32,
        any::<u64>(),
    )
        .prop_map(
            |(offset, rate_ppb, wander_ppb, swing_s, delay, queueing, every_us, seconds, seed)| {
                Case {
                    offset,
                    rate_ppb,
                    wander_ppb,
                    swing_s,
                    delay,
                    queueing,
                    every_us,
                    seconds,
                    seed,
                }
            },
        )
}

/// Looks at the estimate all over, also beyond the ends.
fn check(case: &Case, alignment: &Alignment) -> Result<(), TestCaseError> {
    let mut numbers = Numbers(case.seed ^ 0x55 | 1);
    for _ in 0..40 {
        let s = numbers.unit() * f64::from(case.seconds) * 1.1;
        let a_ns = START + u64::try_from(whole(s * 1e9)).unwrap();
        let found = alignment.at(a_ns);
        let found = found.ok_or_else(|| TestCaseError::fail(format!("nothing at {s}")))?;
        let truth = case.at(s);
        prop_assert!(
            truth.abs_diff(found.ns) <= found.bound_ns,
            "at {s} s: {} is {} off, bound {}",
            found.ns,
            truth.abs_diff(found.ns),
            found.bound_ns
        );
        let back = alignment.at_b(case.b_ns(s)).expect("known at a is known at b");
        prop_assert!(truth.abs_diff(back.ns) <= back.bound_ns, "back at {s} s: {back:?}");
    }
    Ok(())
}

/// Ten thousand random cases of skew, drift, asymmetry and queueing.
#[test]
fn t0_the_error_is_never_above_the_bound() {
    let mut runner = TestRunner::new(Config::with_cases(10_000));
    let aligned = std::cell::Cell::new(0_u32);
    runner
        .run(&case(), |case| match estimate(&case.crossings(), Assumptions::default()) {
            Ok(alignment) => {
                prop_assert_eq!(alignment.contradictions, 0);
                aligned.set(aligned.get() + 1);
                check(&case, &alignment)
            }
            Err(other) => Err(TestCaseError::fail(other.to_string())),
        })
        .unwrap();
    assert!(aligned.get() > 0);
}

fn quiet() -> Case {
    Case {
        offset: 123_456_789_012,
        rate_ppb: 23_700.0,
        wander_ppb: 5.0,
        swing_s: 40.0,
        delay: (450, 700),
        queueing: (2_000, 2_000),
        every_us: (10_000, 10_000),
        seconds: 15,
        seed: 7,
    }
}

#[test]
fn t0_a_quiet_segment_is_aligned_to_a_microsecond() {
    let case = quiet();
    let alignment = estimate(&case.crossings(), Assumptions::default()).unwrap();
    check(&case, &alignment).unwrap();
    let (smallest, largest) = alignment.bounds_ns();
    // Half of the smallest round trip, 575 ns, is what nobody can undercut.
    assert!((575..800).contains(&smallest) && largest <= 1_000, "{smallest} {largest}");
    let rate = alignment.rate_ppb().unwrap();
    assert!((rate - 23_700.0).abs() < 100.0, "{rate}");
}

#[test]
fn t0_asymmetry_is_within_the_bound_and_is_not_hidden() {
    let case = Case { delay: (100, 80_000), queueing: (0, 0), ..quiet() };
    let alignment = estimate(&case.crossings(), Assumptions::default()).unwrap();
    check(&case, &alignment).unwrap();
    let (smallest, _) = alignment.bounds_ns();
    assert!(smallest >= 40_000, "{smallest}");
}

#[test]
fn t0_packets_must_go_both_ways() {
    let crossings: Vec<Crossing> =
        quiet().crossings().into_iter().filter(|crossing| crossing.from_a).collect();
    let error = estimate(&crossings, Assumptions::default()).unwrap_err();
    assert_eq!(error, AlignError::OneWay { a_to_b: crossings.len(), b_to_a: 0 });
    let error = estimate(&[], Assumptions::default()).unwrap_err();
    assert_eq!(error, AlignError::OneWay { a_to_b: 0, b_to_a: 0 });
}

#[test]
fn t0_a_step_leaves_a_gap_and_the_rest_is_right() {
    let case = quiet();
    let step = START + 7_300_000_000;
    let mut crossings = case.crossings();
    for crossing in crossings.iter_mut().filter(|crossing| crossing.a_ns > step) {
        crossing.b_ns += 40_000;
    }
    let alignment = estimate(&crossings, Assumptions::default()).unwrap();
    assert!(alignment.contradictions > 0);
    assert_eq!(alignment.at(step), None);
    for (s, moved) in [(2.0, 0), (13.0, 40_000)] {
        let found = alignment.at(START + u64::try_from(whole(s * 1e9)).unwrap()).unwrap();
        assert!((case.at(s) + moved).abs_diff(found.ns) <= found.bound_ns, "{s}");
    }
}

#[test]
fn t0_packets_taken_for_each_other_are_refused() {
    // An answer that seems to arrive before it was sent.
    let mut crossings = quiet().crossings();
    for crossing in &mut crossings {
        if crossing.from_a {
            crossing.b_ns -= 1_000_000;
        }
    }
    let error = estimate(&crossings, Assumptions::default()).unwrap_err();
    assert_eq!(error, AlignError::Contradiction);
}

fn sample(monotonic_ns: u64, ahead: i64, offset_ns: Option<i64>) -> ClockSample {
    ClockSample {
        monotonic_ns,
        realtime_ahead_ns: ahead,
        tai_ahead_ns: 37_000_000_000,
        error_ns: 100,
        offset_ns,
    }
}

#[test]
fn t0_three_hosts_are_led_to_one_clock() {
    let one = quiet();
    let two = Case { rate_ppb: -48_000.0, offset: -3_000_000_000, seed: 99, ..quiet() };
    let three = Case { delay: (90_000, 90_000), seed: 100, ..quiet() };
    let align = |case: &Case| estimate(&case.crossings(), Assumptions::default()).unwrap();
    let pairs = vec![
        PairInput { a: 0, b: 1, alignment: align(&one) },
        PairInput { a: 0, b: 2, alignment: align(&two) },
        // A worse way to host 1.
        PairInput { a: 0, b: 1, alignment: align(&three) },
    ];
    let none = vec![Synchronised::default(); 3];
    let timeline = Timeline::new(1, pairs.clone(), none.clone()).unwrap();
    assert_eq!(*timeline.way(0), ClockRelation::Packets { next: 1, pair: 0 });
    assert_eq!(*timeline.way(2), ClockRelation::Packets { next: 0, pair: 1 });
    // One instant by all three clocks: `a` of both pairs is host 0.
    let s = 6.25;
    let right = i64::try_from(one.b_ns(s)).unwrap();
    for (host, timestamp) in [(0, START + 6_250_000_000), (1, one.b_ns(s)), (2, two.b_ns(s))] {
        let found = timeline.to_common(host, timestamp).unwrap();
        assert!(right.abs_diff(found.ns) <= found.bound_ns, "{host}: {found:?} for {right}");
        assert!(found.bound_ns <= 2_500, "{host}: {found:?}");
    }
    let apart = Timeline::new(1, pairs[..1].to_vec(), none).unwrap_err();
    assert_eq!(apart, TimelineError::Apart { reference: 1, hosts: vec![2] });
}

#[test]
fn t0_synchronisation_stands_beside_packets() {
    let case = Case { rate_ppb: 0.0, wander_ppb: 0.0, offset: 1_000_000_000, ..quiet() };
    let alignment = estimate(&case.crossings(), Assumptions::default()).unwrap();
    let seconds = |from: u64, ahead: i64, offset| -> Synchronised {
        let at = |n: u64| sample(from + n * 1_000_000_000, ahead, offset);
        Synchronised::new((0..16).map(at).collect())
    };
    let a = seconds(START, 9_000_000_000, Some(-150));
    let pairs = vec![PairInput { a: 0, b: 1, alignment }];
    // b's clock began a second earlier, so TAI is ahead of it by a second less.
    let told = |b: Synchronised| Timeline::new(0, pairs.clone(), vec![a.clone(), b]).unwrap();
    let good = told(seconds(START + 1_000_000_000, 8_000_000_000, Some(200)));
    // 250 ns and 300 ns are less than half a round trip.
    assert_eq!(*good.way(1), ClockRelation::Synchronised { next: 0 });
    let agreement = good.agreement(0, START + 3_141_592_653).unwrap();
    assert_eq!(agreement.synchronised, Ahead { ns: 1_000_000_000, bound_ns: 550 });
    assert_eq!(agreement.excess_ns(), 0);
    let common = good.to_common(1, START + 5_000_000_000).unwrap();
    assert_eq!(common, Common { ns: 9_000_000_000, bound_ns: 550 });
    // A ptp4l that is sure and wrong.
    let bad = told(seconds(START + 1_000_000_000, 8_000_050_000, Some(200)));
    assert!(bad.agreement(0, START + 3_000_000_000).unwrap().excess_ns() > 48_000);
}

#[test]
fn t0_nothing_is_said_of_a_clock_that_was_stepped_or_is_free() {
    let of = |samples: Vec<ClockSample>| Synchronised::new(samples);
    let stepped = of(vec![sample(1_000, 50, Some(0)), sample(2_000, 900, Some(0))]);
    assert_eq!(stepped.at(1_500), None);
    assert_eq!(stepped.steps().collect::<Vec<_>>(), [(1_000, 2_000)]);
    let free = of(vec![sample(1_000, 50, None), sample(2_000, 50, None)]);
    assert_eq!((free.at(1_500), free.largest_bound()), (None, None));
    let good = of(vec![sample(1_000, 50, Some(-7)), sample(2_000, 60, Some(3))]);
    assert_eq!(good.at(1_500).unwrap(), Ahead { ns: 37_000_000_055, bound_ns: 112 });
    assert_eq!((good.at(999), good.at(2_001)), (None, None));
    assert!(good.at(1_000).is_some() && good.at(2_000).is_some());
    assert_eq!(good.steps().count(), 0);
    // By TAI, where a step leads back.
    assert_eq!(good.at_tai(37_000_001_560), good.at(1_510));
    assert_eq!(BTreeMap::from([(1, good.at_tai(5))]), BTreeMap::from([(1, None)]));
}
