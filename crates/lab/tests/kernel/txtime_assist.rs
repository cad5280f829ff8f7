// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gates as launch times: taprio with `flags 0x1` over etf (linux v6.12
//! `net/sched/sch_taprio.c:get_packet_txtime`).

use timewire_lab::fixture::{Bench, Fixture, Gates, Talker};
use timewire_lab::trial::Trial;

use super::etf::LATE;
use super::taprio::classes;
use super::{next_cycle, play, plus, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_txtime_assist_sends_delta_before_the_gate", before_the_gate),
    Trial::new("t4_txtime_assist_queues_frames_one_after_the_other", queued),
];

const DELTA_US: i64 = 64;
const DELAY_US: i64 = 128;

fn assisted() -> Bench {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b");
    fixture.qdisc(
        "a",
        "b",
        &format!(
            "root handle 100: taprio {} base-time 0 clockid CLOCK_TAI flags 0x1 \
             txtime-delay {}000 sched-entry S 2 320000 sched-entry S 1 320000",
            classes(2),
            DELAY_US
        ),
    );
    for class in 1..=2 {
        let etf = format!("etf clockid CLOCK_TAI delta {DELTA_US}000 skip_sock_check");
        fixture.qdisc("a", "b", &format!("parent 100:{class} {etf}"));
    }
    fixture.build().unwrap()
}

/// A frame gets the launch time of now and the delay, or of the next opening when that is in no
/// gate of its class; etf sends it a delta before that, gate or no gate.
fn before_the_gate() {
    let bench = assisted();
    let start = next_cycle(bench.soon(), us(640));
    let flow = |offset| {
        Talker::new("a", "b").priority(1).from(start + us(offset)).every(us(640)).count(100)
    };
    // Sent at 32 us: launch at 160 us, inside. Sent at 288 us: launch at 416 us would be outside,
    // so it is at 640 us.
    let outcome = play(&bench, &[flow(32), flow(288)]);
    let inside = outcome.flow(0).complete();
    inside.each("error of the launch", plus(0..=256, &LATE), |fate| {
        fate.lateness().as_ns() - (DELAY_US - DELTA_US) * 1_000
    });
    let outside = outcome.flow(1).complete();
    outside.each("error of the opening", LATE, |fate| {
        fate.lateness().as_ns() - (640 - 288 - DELTA_US) * 1_000
    });
    // So on the link the gate is open from a delta before its time on.
    let moved = Gates::new(us(640)).based(start - us(DELTA_US)).open(us(0), us(320));
    outside.inside(&moved);
    inside.inside(&moved);
}

/// Each frame's launch is the end of the one before it, at the speed of the interface: 10 Gbit/s.
fn queued() {
    let bench = assisted();
    let start = next_cycle(bench.soon(), us(640)) + us(400);
    // 1280 bytes: 1024 ns, 4 quanta.
    let burst = Talker::new("a", "b").priority(1).length(1_280).from(start).burst(20);
    let outcome = play(&bench, &[burst.every(us(6_400)).count(10)]);
    outcome.flow(0).complete().each("error of the place in the queue", LATE, |fate| {
        let place = i64::from(fate.sequence % 20);
        fate.lateness().as_ns() - (240 - DELTA_US) * 1_000 - place * 1_024
    });
}
