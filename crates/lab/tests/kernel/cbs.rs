// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credits: linux v6.12 `net/sched/sch_cbs.c`, in software. It counts in whole bytes, at the speed
//! that the interface says it has: a veth says 10 Gbit/s.

use timewire_base::Span;
use timewire_lab::rig::{Bench, Flow, Rig, Statistics, Talker};
use timewire_lab::trial::{self, Trial};

use super::play;

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_cbs_staircase", staircase),
    Trial::new("t4_cbs_forgives_what_exceeds_its_low_credit", low_credit),
    Trial::new("t4_cbs_does_not_shape_with_the_slope_of_another_port", wrong_port),
    Trial::new("t4_cbs_saves_no_credit_while_idle", idle),
];

/// **Units**: bytes a second.
const PORT: i64 = 1_250_000_000;
/// **Units**: bytes.
const LENGTH: u32 = 1_000;

/// A class with these slopes, in kbit/s, and low credit, in bytes.
fn shaped(idle: i64, send: i64, low: i64) -> Bench {
    let mut rig = Rig::new();
    rig.station("a").station("b").link("a", "b").patience(Span::from_secs(2));
    let map = "num_tc 3 map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@1 2@2";
    rig.qdisc("a", "b", &format!("root handle 100: mqprio {map} hw 0"));
    let slopes = format!("idleslope {idle} sendslope {send}");
    rig.qdisc("a", "b", &format!("parent 100:1 cbs {slopes} hicredit 3000 locredit {low}"));
    rig.build().unwrap()
}

fn burst(count: u32) -> Talker {
    Talker::new("a", "b").priority(3).length(LENGTH).burst(count)
}

/// From one frame to the next, as `cbs_dequeue_soft` computes it: the frame's time on the link,
/// then the time that the idle slope takes to give back the credit the frame took, both in whole
/// nanoseconds and bytes.
fn gap(idle_kbit: i64, send_kbit: i64, low: i64) -> i64 {
    let (idle, send, length) = (idle_kbit * 125, send_kbit * 125, i64::from(LENGTH));
    let credit = (length * send / PORT).max(low);
    length * 1_000_000_000 / PORT + -credit * 1_000_000_000 / idle
}

/// Each gap is the expected one but for two timers, one at the frame's end and one when the credit
/// is back; and when those were late the credit of that time is kept.
fn check(flow: &Flow, expected: i64) -> Statistics {
    let gaps: Vec<_> = flow.complete().gaps().iter().map(|gap| gap.as_ns() - expected).collect();
    let bad: Vec<_> = gaps.iter().filter(|error| !(-1_022..=1_022).contains(*error)).collect();
    assert!(bad.is_empty(), "gaps of {expected} ns are wrong by {bad:?}");
    Statistics::of(&gaps)
}

fn staircase() {
    println!("class bandwidth, frames of {LENGTH} bytes, {}", trial::kernel_name());
    println!("{:>9} {:>10}  error of the gap in ns", "idleslope", "gap in ns");
    println!("{:>9} {:>10} {}", "", "", Statistics::HEADER);
    for idle in [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000] {
        let send = idle - 10_000_000;
        let bench = shaped(idle, send, -2_000);
        let outcome = play(&bench, &[burst(200)]);
        let expected = gap(idle, send, -2_000);
        let statistics = check(outcome.flow(0), expected);
        println!("{idle:>9} {expected:>10} {statistics}");
        // The bandwidth is the idle slope, but for the byte that each frame's credit is rounded by.
        let bits = i64::from(LENGTH) * 8;
        let ideal = bits * 1_000_000 / idle;
        assert!((ideal - expected).abs() <= 8 * 1_000_000 / idle, "{expected} is not {ideal}");
        #[expect(clippy::cast_precision_loss, reason = "a byte's time is far below 2^53 ns")]
        let byte = (8_000_000 / idle) as f64;
        assert!(statistics.mean >= -1.0 && statistics.mean <= byte.max(1_022.0));
    }
}

/// A frame never takes more than the low credit, so with one that is too small for the frames the
/// class gets more than its bandwidth.
fn low_credit() {
    let (idle, send) = (10_000, -9_990_000);
    let bench = shaped(idle, send, -100);
    let outcome = play(&bench, &[burst(200)]);
    let expected = gap(idle, send, -100);
    assert_eq!(expected, 800 + 80_000);
    check(outcome.flow(0), expected);
}

/// The slopes of a port of 100 Mbit/s on one that says 10 Gbit/s: a hundred times the bandwidth,
/// and nobody says so.
fn wrong_port() {
    let (idle, send) = (10_000, -90_000);
    let bench = shaped(idle, send, -2_000);
    let outcome = play(&bench, &[burst(200)]);
    let expected = gap(idle, send, -2_000);
    assert_eq!(expected, 800 + 9 * 800);
    check(outcome.flow(0), expected);
}

/// However long nothing was sent, the second frame waits as long as ever: credit is kept only while
/// frames wait (`cbs_enqueue_soft`), so that the high credit is never reached.
fn idle() {
    let (idle, send) = (10_000, -9_990_000);
    let bench = shaped(idle, send, -2_000);
    let flow = burst(3).every(super::us(100_000)).count(5);
    let outcome = play(&bench, &[flow]);
    let expected = gap(idle, send, -2_000);
    outcome.flow(0).complete().each("error of the place", 0..=3_066, |fate| {
        fate.lateness().as_ns() - i64::from(fate.sequence % 3) * expected
    });
}
