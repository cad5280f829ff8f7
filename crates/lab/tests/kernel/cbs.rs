// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credits: linux v6.12 `net/sched/sch_cbs.c`, in software. It counts in whole bytes, at the speed
//! that the interface says it has: a veth says 10 Gbit/s.

use timewire_base::{BitsPerSecond, Span};
use timewire_lab::fixture::{Bench, Fate, Fixture, Flow, Gates, Statistics, Talker};
use timewire_lab::trial::{self, Trial};
use timewire_tsn::qdisc::{CreditRange, GatedRate};

use super::{play, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_cbs_staircase", staircase),
    Trial::new("t4_cbs_forgives_what_exceeds_its_low_credit", low_credit),
    Trial::new("t4_cbs_does_not_shape_with_the_slope_of_another_port", wrong_port),
    Trial::new("t4_cbs_saves_no_credit_while_idle", idle),
    Trial::new("t4_cbs_behind_gates_carries_what_is_told", gated),
];

/// **Units**: bytes a second.
const PORT: i64 = 1_250_000_000;
/// **Units**: bytes.
const LENGTH: u32 = 1_000;

/// A class with these slopes, in kbit/s, and low credit, in bytes.
fn shaped(idle: i64, send: i64, low: i64) -> Bench {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").timeout(Span::from_secs(2));
    let map = "num_tc 3 map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@1 2@2";
    fixture.qdisc("a", "b", &format!("root handle 100: mqprio {map} hw 0"));
    let slopes = format!("idleslope {idle} sendslope {send}");
    fixture.qdisc("a", "b", &format!("parent 100:1 cbs {slopes} hicredit 3000 locredit {low}"));
    fixture.build().unwrap()
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
    let flow = burst(3).every(us(100_000)).count(5);
    let outcome = play(&bench, &[flow]);
    let expected = gap(idle, send, -2_000);
    outcome.flow(0).complete().each("error of the place", 0..=3_066, |fate| {
        fate.lateness().as_ns() - i64::from(fate.sequence % 3) * expected
    });
}

/// A class with credit on a port with gates: the child of `taprio`, open for the first part of a
/// cycle.
fn gated_class(idle: i64, (hi, low): (i64, i64), open: Span, cycle: Span) -> Bench {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").timeout(Span::from_secs(3));
    let map = "num_tc 3 map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@1 2@2";
    let (open, shut) = (open.as_ns(), (cycle - open).as_ns());
    let gates = format!("sched-entry S 1 {open} sched-entry S 6 {shut}");
    let taprio = format!("root handle 100: taprio {map} base-time 0 clockid CLOCK_TAI {gates}");
    fixture.qdisc("a", "b", &taprio);
    let slopes = format!("idleslope {idle} sendslope {}", idle - 10_000_000);
    fixture.qdisc("a", "b", &format!("parent 100:1 cbs {slopes} hicredit {hi} locredit {low}"));
    let bench = fixture.build().unwrap();
    // The discipline below has stopped the gates (`taprio_reset`); the schedule starts them anew.
    let again = format!("root handle 100: taprio base-time 0 clockid CLOCK_TAI {gates}");
    bench.tc("a", "b", &format!("qdisc replace dev DEV {again}")).unwrap();
    bench
}

/// What `plan`, `doctor` and the others tell of credit behind gates with Linux ([`GatedRate`]),
/// held against the kernel, with frames always waiting: half a gate gives 50 Mbit/s neither the 50
/// of the standard nor 25, but what the credit of a frame adds in each cycle.
fn gated() {
    let cycle = us(1_024);
    let low = i64::from(LENGTH);
    println!("frames of {LENGTH} bytes, bit/s, {}", trial::kernel_name());
    println!(
        "{:>9} {:>6} {:>9} {:>10} {:>10} {:>10}",
        "idleslope", "open", "hicredit", "least", "sent", "most"
    );
    for (idle, open, hi) in [
        (50_000, 512, 0),
        (50_000, 512, 1_000),
        (50_000, 512, 2_000),
        (50_000, 512, 100_000),
        (20_000, 256, 0),
        (20_000, 256, 1_000),
        (10_000, 768, 0),
        (100_000, 64, 0),
    ] {
        let open = us(open);
        let bench = gated_class(idle, (hi, -low), open, cycle);
        let outcome = play(&bench, &[burst(400)]);
        let gates = Gates::new(cycle).open(Span::ZERO, open);
        let flow = outcome.flow(0);
        flow.complete().inside(&gates);
        // Whole cycles, from the first opening that has frames to the last.
        let fates = flow.by_arrival();
        let cycle_of = |fate: &Fate| fate.arrived().as_ns().div_euclid(cycle.as_ns());
        let (first, last) = (cycle_of(&fates[0]) + 1, cycle_of(&fates[fates.len() - 1]));
        let whole = fates.iter().filter(|&fate| (first..last).contains(&cycle_of(fate))).count();
        let time = (last - first) * cycle.as_ns();
        let sent = i64::try_from(whole).unwrap() * low * 8 * 1_000_000_000 / time;
        let told = told(idle, (hi, -low), open, cycle);
        let [least, most, standard] =
            [told.linux_least_bps, told.linux_most_bps, told.standard_bps]
                .map(|bps| i64::try_from(bps).unwrap());
        println!("{idle:>9} {open:>6} {hi:>9} {least:>10} {sent:>10} {most:>10}");
        // A cycle has whole frames, and over all of them one more or less. Linux 6.1 sends one more
        // in each cycle than 6.12 does.
        let frame = low * 8 * 1_000_000_000 / time;
        let older = trial::kernel_name().contains(" 6.1.");
        let each = if older { low * 8 * 1_000_000_000 / cycle.as_ns() } else { 0 };
        let most = most + each;
        assert!(least - frame <= sent && sent <= most + frame, "{least} {sent} {most}");
        // The bounds say something: what is sent is neither.
        assert!(sent > least && (sent < standard || most >= standard), "{least} {sent} {standard}");
    }
}

fn told(idle: i64, (hi, low): (i64, i64), open: Span, cycle: Span) -> GatedRate {
    let [rate, port] = [idle * 1_000, PORT * 8]
        .map(|bps| BitsPerSecond::new(u64::try_from(bps).unwrap()).unwrap());
    let states = [(true, open), (false, cycle - open)];
    GatedRate::of(rate, port, CreditRange::of_bytes(hi, low), &states).unwrap()
}
