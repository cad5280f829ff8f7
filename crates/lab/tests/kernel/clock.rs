// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What everything else is measured with: timers, links, and that a run can be repeated.

use timewire_base::{BitsPerSecond, Mono, Tai, Utc};
use timewire_lab::fixture::{Fixture, Talker, Transport};
use timewire_lab::trial::Trial;
use timewire_sys::clock;

use super::{QUANTUM, TIMER, TIMER_ON_GRID, play, plus, shifted, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_readings_lie_on_one_grid", readings),
    Trial::new("t4_a_sleeper_wakes_within_two_readings", sleeper),
    Trial::new("t4_a_wire_takes_the_time_of_its_rate", wire),
    Trial::new("t4_every_transport_arrives_as_planned", transports),
    Trial::new("t4_the_same_experiment_gives_the_same_timestamps", everything).repeated(3).loaded(),
];

fn readings() {
    for _ in 0..10 {
        let (mono, utc, tai) = (clock::now::<Mono>(), clock::now::<Utc>(), clock::now::<Tai>());
        for reading in [mono.as_ns(), utc.as_ns(), tai.as_ns()] {
            assert_eq!(reading % QUANTUM, 0);
        }
        // Each reading costs one quantum, and nothing else costs anything.
        assert_eq!(tai.as_ns() - utc.as_ns() - 37_000_000_000, QUANTUM);
        assert_eq!((clock::now::<Mono>() - mono).as_ns(), 3 * QUANTUM);
    }
}

fn sleeper() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b");
    let bench = fixture.build().unwrap();
    // 125 us is no multiple of the quantum, 128 us is one.
    let flow = |cycle| Talker::new("a", "b").every(us(cycle)).count(500);
    play(&bench, &[flow(125)]).flow(0).late_by(TIMER);
    let outcome = play(&bench, &[flow(128)]);
    let on_grid = outcome.flow(0).late_by(TIMER_ON_GRID);
    let late = on_grid.fates.iter().filter(|fate| fate.lateness().as_ns() > 0).count();
    assert!(late <= 500 / 256 + 8, "{late} of 500 timers on the grid were late");
}

fn wire() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b");
    fixture.wire("a", "b", BitsPerSecond::new(1_000_000_000).unwrap(), us(32));
    let bench = fixture.build().unwrap();
    // With 24 bytes around it a frame is 1024 bytes long: 8192 ns, 32 quanta.
    let burst = Talker::new("a", "b").length(1_000).every(us(320)).count(20).burst(16);
    let outcome = play(&bench, &[burst]);
    let both = plus(TIMER_ON_GRID, &TIMER_ON_GRID);
    outcome.flow(0).complete().each("error of the link", both, |fate| {
        let place = i64::from(fate.sequence % 16) + 1;
        fate.lateness().as_ns() - 32_000 - 8_192 * place
    });
    // Both directions at once, each with its own time; 84 bytes are 672 ns.
    let flow = |from, to| Talker::new(from, to).length(60).every(us(10)).count(200);
    let outcome = play(&bench, &[flow("a", "b"), flow("b", "a")]);
    let expected = shifted(32_000 + 672, &plus(TIMER, &TIMER));
    outcome.flow(0).late_by(expected.clone());
    outcome.flow(1).late_by(expected);
}

fn transports() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").ipv6();
    let bench = fixture.build().unwrap();
    let flow = |transport, length| {
        Talker::new("a", "b").over(transport).length(length).every(us(250)).count(50)
    };
    let flows = [
        flow(Transport::Frames, 322),
        flow(Transport::Udp4, 322),
        flow(Transport::Udp6, 322),
        flow(Transport::Frames, 326).tagged(10),
    ];
    let outcome = play(&bench, &flows);
    for (flow, length) in outcome.flows.iter().zip([322, 322, 322, 326]) {
        flow.late_by(TIMER);
        assert!(flow.fates.iter().all(|fate| fate.received.unwrap().length == length));
    }
}

/// A bit of everything that the other tests use, under load on the host.
fn everything() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").station("c").bridge("x").vlan(10);
    let rate = BitsPerSecond::new(100_000_000).unwrap();
    fixture.wire("a", "x", rate, us(1)).wire("b", "x", rate, us(2)).link("x", "c");
    fixture.qdisc("a", "x", "root etf clockid CLOCK_TAI delta 100000");
    fixture.qdisc(
        "x",
        "c",
        "root taprio num_tc 2 map 0 0 0 0 0 1 queues 1@0 1@1 base-time 0 clockid CLOCK_TAI \
         sched-entry S 2 300000 sched-entry S 1 700000",
    );
    let bench = fixture.build().unwrap();
    let launched = Talker::new("a", "c").priority(5).tagged(10).length(322);
    let flows = [
        launched.every(us(250)).count(100).launch(us(300)),
        Talker::new("b", "c").priority(0).tagged(10).length(1_000).every(us(131)).count(190),
    ];
    let outcome = play(&bench, &flows);
    outcome.flow(0).complete();
    outcome.flow(1).complete();
}
