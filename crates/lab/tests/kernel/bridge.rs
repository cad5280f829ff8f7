// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gates on a bridge between a talker and a listener; and the checks of the kernel's own test of
//! them (linux v6.16 `tools/testing/selftests/net/forwarding/tc_taprio.sh`), which wants hardware,
//! in software and without tolerance.

use timewire_base::{BitsPerSecond, IfName, Instant, Span, Tai, Utc};
use timewire_lab::fixture::{Bench, Fixture, Gates, Statistics, Talker};
use timewire_lab::ns;
use timewire_lab::trial::Trial;
use timewire_sys::netlink::{self, Attributes};
use timewire_sys::{clock, machine};

use super::taprio::classes;
use super::{QUANTUM, TIMER, next_cycle, play, plus, shifted, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_two_hops_with_gates_have_one_latency", two_hops),
    Trial::new("t4_a_bridge_does_not_know_the_rate_of_its_link", overload),
    Trial::new("t4_tc_taprio_open_closed_in_band_out_of_band", four_checks),
    Trial::new("t4_tc_taprio_max_sdu", max_sdu),
    Trial::new("t4_tc_taprio_clock_jump_backward_holds_the_gates", jump_backward),
    Trial::new("t4_tc_taprio_clock_jump_forward_leaves_the_gates_right", jump_forward),
];

const VLAN: u16 = 10;

/// A talker that launches on time, one that does not, a bridge with gates towards a listener.
fn line() -> Bench {
    let gigabit = BitsPerSecond::new(1_000_000_000).unwrap();
    let mut fixture = Fixture::new();
    fixture.station("talker").station("noise").station("listener").bridge("sw").vlan(VLAN);
    fixture.wire("talker", "sw", gigabit, us(1)).wire("noise", "sw", gigabit, us(1));
    fixture.wire("sw", "listener", gigabit, us(1));
    fixture.qdisc("talker", "sw", "root etf clockid CLOCK_TAI delta 32000");
    // Class 5 has the first 128 us of 512, class 0 the next 256, nobody the rest.
    let schedule = "base-time 0 clockid CLOCK_TAI sched-entry S 20 128000 sched-entry S 1 256000 \
                    sched-entry S 0 128000";
    fixture.qdisc("sw", "listener", &format!("root taprio {} {schedule}", classes(8)));
    fixture.build().unwrap()
}

/// The frame reaches the bridge before its gate opens, and leaves when it does: launch 32 us
/// before the gate, on the listener's link for 346 bytes at 1 Gbit/s and 1 us.
fn two_hops() {
    let bench = line();
    println!("latency from the opening of the gate, ns");
    println!("{}", Statistics::HEADER);
    // The kernel carries the tag apart, so on the wire the frame counts four bytes less.
    let on_link = 1_000 + (322 + 24) * 8;
    for alone in [true, false] {
        let start = next_cycle(bench.soon(), us(512));
        let stream = Talker::new("talker", "listener").priority(5).tagged(VLAN).length(326);
        let mut flows = vec![stream.from(start).every(us(512)).count(1_000).launch(us(160))];
        if !alone {
            let noise = Talker::new("noise", "listener").tagged(VLAN).length(1_500);
            flows.push(noise.from(start + us(7)).every(us(43)).count(12_000));
        }
        let outcome = play(&bench, &flows);
        // Sent so early that it is at the gate before it opens; the gate's timer, the link's timer.
        let expected = shifted(on_link, &plus(TIMER, &TIMER));
        let stream = outcome.flow(0).late_by(expected);
        println!("{}", stream.statistics(|fate| fate.lateness().as_ns() - on_link));
        if !alone {
            outcome.flow(1).complete();
        }
    }
}

/// taprio lets a window carry what 10 Gbit/s could, which a link of 1 Gbit/s cannot: what is left
/// of it is on the link when the next class is to have it.
fn overload() {
    let bench = line();
    let start = next_cycle(bench.soon(), us(512));
    let stream = Talker::new("talker", "listener").priority(5).tagged(VLAN).length(326);
    let stream = stream.from(start).every(us(512)).count(200).launch(us(160));
    let noise = Talker::new("noise", "listener").tagged(VLAN).length(1_000).from(start + us(7));
    let outcome = play(&bench, &[stream, noise.every(us(10)).count(8_000)]);
    let late = outcome.flow(0).complete().statistics(|fate| fate.lateness().as_ns());
    // 51 frames of 8160 ns in a cycle, from 128 us on: until 34 us into the next one.
    assert!(late.max > 30_000, "{late:?}");
}

/// The topology and schedule of the kernel's test: class 6 is always open, class 5 in the first
/// half of 10 ms, class 4 never.
struct TcTaprio {
    bench: Bench,
}

const CYCLE: Span = Span::from_ms(10);

impl TcTaprio {
    fn without_gates() -> TcTaprio {
        let mut fixture = Fixture::new();
        fixture
            .station("h1")
            .station("h2")
            .bridge("sw")
            .link("h1", "sw")
            .link("sw", "h2")
            .vlan(VLAN);
        TcTaprio { bench: fixture.build().unwrap() }
    }

    fn new() -> TcTaprio {
        let test = TcTaprio::without_gates();
        let line = format!(
            "qdisc add dev DEV root stab overhead 24 taprio {} base-time 0 clockid CLOCK_TAI \
             sched-entry S 61 5000000 sched-entry S 41 5000000",
            classes(8)
        );
        test.bench.tc("sw", "h2", &line).unwrap();
        test
    }

    /// Frames of a priority, so long after the start of each cycle.
    fn flow(&self, priority: u32, after: Span) -> Talker {
        let start = next_cycle(self.bench.soon(), CYCLE) + after;
        let flow = Talker::new("h1", "h2").priority(priority).tagged(VLAN).from(start);
        flow.every(CYCLE).count(100)
    }
}

fn four_checks() {
    let test = TcTaprio::new();
    let run = |priority, after| {
        let outcome = play(&test.bench, &[test.flow(priority, us(after))]);
        outcome.flows.into_iter().next().unwrap()
    };
    run(6, 2_500).late_by(TIMER);
    run(6, 7_500).late_by(TIMER);
    run(4, 2_500).silent();
    run(5, 2_500).late_by(TIMER);
    // The kernel's test allows no less than 2.5 ms and no more than the length of the path beyond.
    run(5, 7_500).late_by(shifted(2_500_000, &TIMER));
}

/// A frame of 100 bytes is at the bridge one of 96, and its tag beside it; without header it has 82
/// (`taprio_skb_exceeds_queue_max_sdu`, `taprio_update_queue_max_sdu`).
fn max_sdu() {
    for (most, passes) in [(82, true), (81, false)] {
        let test = TcTaprio::without_gates();
        test.add_with_max_sdu(most);
        let outcome = play(&test.bench, &[test.flow(6, us(2_500))]);
        if passes {
            outcome.flow(0).late_by(TIMER);
        } else {
            outcome.flow(0).silent();
        }
        let dropped = test.bench.counted("sw", "h2", "taprio").unwrap().dropped;
        assert_eq!(dropped, if passes { 0 } else { 100 });
    }
}

impl TcTaprio {
    /// The schedule, and what class 6 may send; not every version of `tc` knows that.
    fn add_with_max_sdu(&self, bytes: u32) {
        let interface = IfName::new(&self.bench.interface("sw", "h2")).unwrap();
        let asked = ns::in_namespace(&self.bench.netns("sw"), || {
            let index = timewire_sys::interface_index(&interface).unwrap();
            netlink::request(RTM_NEWQDISC, CREATE_EXCLUSIVE, &new_taprio(index, 6, bytes))
        });
        asked.unwrap().unwrap();
    }
}

/// The body of a request for the schedule of [`TcTaprio`]: linux v6.12
/// `include/uapi/linux/{rtnetlink,pkt_sched}.h`.
fn new_taprio(interface: u32, class: u32, max_sdu: u32) -> Vec<u8> {
    let mut map = vec![8_u8, 0, 1, 2, 3, 4, 5, 6, 7];
    map.resize(1 + 16 + 1, 0);
    for classes in [[1_u16, 1, 1, 1, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5, 6, 7]] {
        map.extend(classes.map(u16::to_ne_bytes).concat());
        map.extend([0; 16]);
    }
    let mut entries = Attributes::new();
    for (gates, interval) in [(0x61_u32, 5_000_000_u32), (0x41, 5_000_000)] {
        let mut entry = Attributes::new();
        entry.put(2, &[0]).put(3, &gates.to_ne_bytes()).put(4, &interval.to_ne_bytes());
        entries.nest(1, &entry);
    }
    let mut limit = Attributes::new();
    limit.put(1, &class.to_ne_bytes()).put(2, &max_sdu.to_ne_bytes());
    let mut options = Attributes::new();
    options.put(1, &map).nest(2, &entries).put(3, &0_i64.to_ne_bytes());
    // CLOCK_TAI.
    options.put(5, &11_i32.to_ne_bytes()).nest(12, &limit);
    let mut all = Attributes::new();
    all.put(1, b"taprio\0").nest(2, &options);
    // A tcmsg: family, interface, handle, parent (the root), information.
    let numbers = [0, interface, 0, u32::MAX, 0];
    [&numbers.map(u32::to_ne_bytes).concat(), all.as_bytes()].concat()
}

const RTM_NEWQDISC: u16 = 36;
const CREATE_EXCLUSIVE: u16 = 0x600;

/// Moves the machine's clock, and says where it was.
fn jump(bench: &Bench, at: Instant<Tai>, by: Span) -> Instant<Tai> {
    bench.sleep_until(at);
    let now = clock::now::<Utc>();
    let tai = clock::now::<Tai>();
    machine::set_clock(now + by).unwrap();
    tai
}

/// The gates' timer is of TAI: after a step back they stay as they are until TAI has come to where
/// it was.
fn jump_backward() {
    let test = TcTaprio::new();
    for (phase, is_open) in [(7_500, false), (2_500, true)] {
        let at = next_cycle(test.bench.soon(), CYCLE) + us(phase);
        let was = jump(&test.bench, at, Span::from_ms(-100));
        // When the gates go on: at the end of the half in which the step was.
        let goes_on = next_cycle(was, Span::from_ms(5));
        let start = goes_on + Span::from_ms(-95);
        let flow =
            Talker::new("h1", "h2").priority(5).tagged(VLAN).from(start).every(us(700)).count(250);
        let outcome = play(&test.bench, &[flow]);
        let flow = outcome.flow(0).complete();
        let gates = Gates::new(CYCLE).open(Span::ZERO, Span::from_ms(5));
        flow.each("lateness", 0..=95_000_511, |fate| {
            if fate.planned >= goes_on {
                // As without the step.
                let since = gates.since_opening(fate.arrived()).expect("open").as_ns();
                return if TIMER.contains(&since) { since } else { fate.lateness().as_ns() };
            }
            let expected = if is_open { fate.planned } else { goes_on };
            let error = (fate.arrived() - expected).as_ns();
            assert!(TIMER.contains(&error), "{fate:?}");
            error
        });
    }
}

/// After a step forward the timer runs through all entries that were left out, in one instant, and
/// nothing is sent in between.
fn jump_forward() {
    let test = TcTaprio::new();
    let bench = &test.bench;
    let start = next_cycle(bench.soon(), CYCLE) + us(7_000);
    let waiting = Talker::new("h1", "h2").priority(5).tagged(VLAN).from(start).count(1);
    let outcome = std::thread::scope(|scope| {
        let jumping = scope.spawn(|| jump(bench, start + us(500), Span::from_secs(1)));
        let outcome = play(bench, &[waiting]);
        jumping.join().unwrap();
        outcome
    });
    // By the clock that has jumped: to the next opening, and the second. The step moves gates close
    // behind the kernel's tick, and a timer that is due within 500 ns of another one waits for one
    // more reading.
    let late = outcome.flow(0).complete().fates[0].lateness().as_ns() - 1_000_000_000;
    assert!((3_000_000..=3_000_511 + QUANTUM).contains(&late), "{late}");
    // From then on everything is as before.
    let flow = test.flow(5, us(7_500));
    let outcome = play(bench, &[flow]);
    outcome.flow(0).late_by(shifted(2_500_000, &TIMER));
}
