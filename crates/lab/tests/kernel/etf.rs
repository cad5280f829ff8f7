// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launch times: linux v6.12 `net/sched/sch_etf.c`.

use std::ops::RangeInclusive;

use timewire_base::Span;
use timewire_lab::fixture::{Bench, Fixture, Launch, LaunchClock, Statistics, Talker};
use timewire_lab::trial::{self, Trial};
use timewire_sys::error_queue::LaunchRefusal;

use super::{TIMER, play, shifted, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_etf_launch_error_table", table),
    Trial::new("t4_etf_needs_a_delta_of_512_ns", smallest_delta),
    Trial::new("t4_etf_refuses_launch_times_it_cannot_keep", refused),
    Trial::new("t4_etf_sends_in_order_of_launch_times", sorted),
    Trial::new("t4_etf_in_deadline_mode_sends_at_once", deadline),
];

/// How late etf sends, counted from launch time less delta: a timer, but the frame leaves only when
/// that instant is past (`etf_dequeue_timesortedlist`: `ktime_after`), so that a reading that hits
/// it is one too early.
pub const LATE: RangeInclusive<i64> = 1..=512;

const ENOBUFS: i32 = 105;

fn with_delta(delta: Span, more: &str) -> Bench {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b");
    let map = "num_tc 3 map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@1 2@2";
    fixture.qdisc("a", "b", &format!("root handle 100: mqprio {map} hw 0"));
    let delta = delta.as_ns();
    fixture.qdisc("a", "b", &format!("parent 100:1 etf clockid CLOCK_TAI delta {delta} {more}"));
    fixture.build().unwrap()
}

/// The table that the kernel's authors show for their disciplines: 322-byte frames.
fn table() {
    println!("launch error in ns of virtual time, frames of 322 bytes, {}", trial::kernel_name());
    println!("{:<6} {:>9} {:>9} {}", "", "interval", "delta", Statistics::HEADER);
    for interval in [1_000, 250] {
        let flow = || Talker::new("a", "b").priority(3).length(322).every(us(interval)).count(500);
        let row = |kind: &str, delta: &str, statistics: Statistics| {
            println!("{kind:<6} {:>9} {delta:>9} {statistics}", format!("{interval} us"));
        };
        let bench = with_delta(us(100), "");
        // Of another class: without etf.
        let outcome = play(&bench, &[flow().priority(2)]);
        let plain = outcome.flow(0).late_by(TIMER);
        row("plain", "-", plain.statistics(|fate| fate.lateness().as_ns()));
        drop(bench);
        for delta in [20, 100, 200] {
            let bench = with_delta(us(delta), "");
            let outcome = play(&bench, &[flow().launch(us(delta + 100))]);
            let flow = outcome.flow(0).late_by(shifted(-delta * 1_000, &LATE));
            let error = |at: i64| at + delta * 1_000;
            let statistics = flow.statistics(|fate| error(fate.lateness().as_ns()));
            row("etf", &format!("{delta} us"), statistics);
        }
    }
}

/// Less, and the timer at launch time less delta can come after the launch time: then the frame is
/// dropped (`timesortedlist_drop`).
fn smallest_delta() {
    println!("frames missed of 200, by delta in ns:");
    for delta in [0, 128, 256, 384, 511, 512, 1_000] {
        let bench = with_delta(Span::from_ns(delta), "");
        let flow = Talker::new("a", "b").priority(3).every(us(125)).count(200);
        let outcome = play(&bench, &[flow.launch(us(50))]);
        let flow = outcome.flow(0);
        let missed = flow.refused(LaunchRefusal::Missed);
        println!("{delta:>6} {missed:>4}");
        assert_eq!(missed + flow.received(), 200);
        flow.each("lateness", -delta + 1..=0, |fate| fate.lateness().as_ns());
        match delta {
            0 => assert_eq!(missed, 200),
            1..=384 => assert!(missed > 0),
            512.. => assert_eq!(missed, 0),
            _ => {}
        }
        let dropped = bench.counted("a", "b", "etf").unwrap().dropped;
        assert_eq!(dropped, u64::try_from(missed).unwrap());
    }
}

/// `is_packet_valid`: each of these is dropped as it comes; who asked for it is told.
fn refused() {
    let bench = with_delta(us(100), "");
    let flow = || Talker::new("a", "b").priority(3).every(us(1_000)).count(20);
    // In the past by 1 us.
    let late = flow().launch(us(-1));
    let tai = Launch { lead: us(200), deadline: false, clock: LaunchClock::Tai };
    let wrong_clock = flow().launch_as(Launch { clock: LaunchClock::Mono, ..tai });
    let wrong_mode = flow().launch_as(Launch { deadline: true, ..tai });
    let none = flow();
    for flow in [late, wrong_clock, wrong_mode, none.clone()] {
        let outcome = play(&bench, std::slice::from_ref(&flow));
        let flow_outcome = outcome.flow(0).silent();
        assert!(flow_outcome.fates.iter().all(|fate| fate.not_taken == Some(ENOBUFS)));
        // A socket without launch times has nobody to tell.
        let told = if flow_outcome.fates[0].launch.is_some() { 20 } else { 0 };
        assert_eq!(flow_outcome.refused(LaunchRefusal::Invalid), told);
    }
    // A frame in time is sent all the same.
    let outcome = play(&bench, &[flow().launch(us(200))]);
    outcome.flow(0).late_by(shifted(-100_000, &LATE));
    // Before the launch time of one that was sent already, though not in the past.
    let start = bench.soon();
    let first = flow().count(1).from(start + us(90)).launch(us(200));
    let second = flow().count(1).from(start + us(80)).launch(us(80));
    let outcome = play(&bench, &[first, second]);
    outcome.flow(0).complete();
    assert_eq!(outcome.flow(1).silent().refused(LaunchRefusal::Invalid), 1);
}

/// Sent first, launched last.
fn sorted() {
    let bench = with_delta(us(100), "");
    let start = bench.soon();
    let flow = |launch: i64, lead: i64| {
        let flow = Talker::new("a", "b").priority(3).from(start + us(launch));
        flow.every(us(1_000)).count(100).launch(us(lead))
    };
    // All sent at 0, 1 and 2 us of each millisecond.
    let outcome = play(&bench, &[flow(600, 600), flow(500, 499), flow(400, 398)]);
    for flow in &outcome.flows {
        flow.late_by(shifted(-100_000, &LATE));
    }
}

/// The launch time is then the latest moment, and the frame leaves as soon as the interface is
/// free.
fn deadline() {
    let bench = with_delta(us(100), "deadline_mode");
    let launch = Launch { lead: us(300), deadline: true, clock: LaunchClock::Tai };
    let flow = Talker::new("a", "b").priority(3).every(us(250)).count(200).launch_as(launch);
    let outcome = play(&bench, &[flow]);
    outcome.flow(0).late_by(shifted(-300_000, &TIMER));
}
