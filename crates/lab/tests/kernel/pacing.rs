// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disciplines that a schedule meets on its way: fq, netem, mqprio.

use timewire_lab::fixture::{Fixture, Launch, LaunchClock, Statistics, Talker, Transport};
use timewire_lab::trial::Trial;

use super::{TIMER, play, plus, shifted, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_fq_keeps_launch_times_of_the_monotonic_clock", fq),
    Trial::new("t4_netem_delays_by_what_it_is_told", netem),
    Trial::new("t4_mqprio_has_a_queue_for_every_class", mqprio),
];

/// linux v6.12 `net/sched/sch_fq.c`: its timer may be up to `timer_slack` late, 10 us.
fn fq() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").ipv6().qdisc("a", "b", "root fq");
    let bench = fixture.build().unwrap();
    for transport in [Transport::Udp4, Transport::Udp6, Transport::Frames] {
        let launch = Launch { lead: us(1_000), deadline: false, clock: LaunchClock::Mono };
        let flow = Talker::new("a", "b").over(transport).every(us(250)).count(200);
        let outcome = play(&bench, &[flow.launch_as(launch)]);
        let flow = outcome.flow(0).late_by(plus(0..=10_000, &TIMER));
        println!("{}", Statistics::HEADER);
        println!("{}", flow.statistics(|fate| fate.lateness().as_ns()));
    }
}

/// linux v6.12 `net/sched/sch_netem.c`.
fn netem() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").qdisc("a", "b", "root netem delay 5ms");
    let bench = fixture.build().unwrap();
    let outcome = play(&bench, &[Talker::new("a", "b").every(us(97)).count(500)]);
    outcome.flow(0).late_by(shifted(5_000_000, &plus(TIMER, &TIMER)));
}

/// The map of its manual page: priority 2 is class 1, priority 3 is class 0, all others are class
/// 2, which has two queues.
fn mqprio() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b");
    let map = "num_tc 3 map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@1 2@2";
    fixture.qdisc("a", "b", &format!("root handle 100: mqprio {map} hw 0"));
    let bench = fixture.build().unwrap();
    let flows: Vec<_> = (0..16).map(|priority| Talker::new("a", "b").priority(priority)).collect();
    let outcome = play(&bench, &flows);
    for flow in &outcome.flows {
        flow.late_by(TIMER);
    }
    let mut sent = [0; 8];
    for discipline in bench.disciplines("a", "b").unwrap() {
        if let Some(queue) = discipline.parent.strip_prefix("100:") {
            sent[queue.parse::<usize>().unwrap() - 1] += discipline.sent;
        }
    }
    assert_eq!((sent[0], sent[1], sent[2] + sent[3], sent[4..].iter().sum()), (1, 1, 14, 0));
}
