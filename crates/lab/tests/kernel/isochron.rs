// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gate example in the manual page of isochron (`isochron-send(8)`): traffic class 4 has the
//! first 50 us of 500, classes 0 to 3 have the rest; the sender's window is that of its class, so
//! it wakes as early as it may, when its window of the cycle before has just ended.
//!
//! The example's gates are in the NIC; here they are in software.

use timewire_base::{Instant, Tai};
use timewire_lab::fixture::{Fixture, Gates, Statistics, Talker};
use timewire_lab::trial::Trial;

use super::{TIMER, next_cycle, play, us};

pub const TRIALS: &[Trial] = &[Trial::new("t4_isochron_gate_example", example)];

fn example() {
    let mut fixture = Fixture::new();
    fixture.station("sender").station("receiver").link("sender", "receiver");
    fixture.qdisc(
        "sender",
        "receiver",
        "root taprio num_tc 5 map 0 1 2 3 4 queues 1@0 1@1 1@2 1@3 1@4 base-time 0 \
         clockid CLOCK_TAI sched-entry S 10 50000 sched-entry S 0f 450000",
    );
    let bench = fixture.build().unwrap();
    let scheduled = next_cycle(bench.soon(), us(500));
    // --cycle-time 0.0005 --frame-size 64 --priority 4 --window-size 50000: the advance time is the
    // cycle less the window.
    let wake: Instant<Tai> = scheduled - us(500 - 50);
    let isochron = Talker::new("sender", "receiver").priority(4).length(64).from(wake);
    let isochron = isochron.every(us(500)).count(500);
    let others = |class| {
        let flow = Talker::new("sender", "receiver").priority(class).length(1_000).from(wake);
        flow.every(us(97)).count(2_500)
    };
    let outcome = play(&bench, &[isochron, others(0), others(3)]);
    let window = |from, to| Gates::new(us(500)).open(us(from), us(to));
    // Software transmit timestamp less scheduled time, as isochron reports it.
    let error = |fate: &timewire_lab::fixture::Fate| fate.lateness().as_ns() - 450_000;
    let isochron = outcome.flow(0).complete();
    isochron.inside(&window(0, 50)).each("error of the opening", TIMER, error);
    outcome.flow(1).complete().inside(&window(50, 500));
    outcome.flow(2).complete().inside(&window(50, 500));
    println!("sent after the scheduled time, ns\n{}", Statistics::HEADER);
    println!("{}", isochron.statistics(error));
}
