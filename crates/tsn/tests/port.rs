// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port against theory: what it sends is computed by hand, or by a second method.

use proptest::prelude::*;
use timewire_base::{BitsPerSecond, Span};
use timewire_tsn::port::{
    CLASSES, ClassConfig, CreditRules, EXPRESS_WAIT_BYTES, Gate, GateEntry, GateList, Now, Offered,
    Order, Port, PortConfig, Ps, Refused, Started,
};

fn config(rate: u64) -> PortConfig {
    PortConfig {
        rate: BitsPerSecond::new(rate).unwrap(),
        classes: [ClassConfig::default(); CLASSES],
        gates: None,
        hold_advance: Ps::ZERO,
    }
}

fn now(ps: i64) -> Now {
    Now { truth: Ps::new(ps), local: Ps::new(ps) }
}

fn us(us: i64) -> i64 {
    us * 1_000_000
}

fn frame(item: u32, class: usize, wire_bytes: u32) -> Offered<u32> {
    Offered { item, class, wire_bytes, not_before: Ps::ZERO }
}

/// What happened: start and end of each transmission, and frames that had ended.
#[derive(Default)]
struct Log {
    started: Vec<(i64, Started<u32>)>,
    finished: Vec<(i64, u32)>,
    dropped: Vec<u32>,
}

/// Offers frames at their times, and polls whenever the port wants it, up to `until`.
fn run(port: &mut Port<u32>, frames: &[(i64, Offered<u32>)], until: i64) -> Log {
    let (mut log, mut at, mut next) = (Log::default(), 0, 0);
    loop {
        while next < frames.len() && frames[next].0 <= at {
            port.offer(now(at), frames[next].1).unwrap();
            next += 1;
        }
        let polled = port.poll(now(at));
        log.finished.extend(polled.finished.map(|item| (at, item)));
        log.started.extend(polled.started.map(|started| (at, started)));
        log.dropped.extend(polled.dropped);
        let offered = frames.get(next).map_or(i64::MAX, |(at, _)| *at);
        let again = if polled.dropped.is_some() { at } else { i64::MAX };
        let wake = polled.wake.truth.min(polled.wake.local).get();
        // A port that sends is free later even when it has nothing more to do then.
        let before = at;
        at = wake.min(offered).min(again);
        assert!(at >= before, "time goes on");
        if at > until || at == i64::MAX {
            return log;
        }
    }
}

#[test]
fn t0_the_most_urgent_class_goes_first() {
    let mut port = Port::new(&config(100_000_000));
    let frames = [(0, frame(1, 0, 1_538)), (0, frame(2, 3, 84)), (1, frame(3, 7, 84))];
    let log = run(&mut port, &frames, us(1_000));
    let order: Vec<(i64, u32)> = log.started.iter().map(|(at, s)| (*at, s.item)).collect();
    assert_eq!(order, [(0, 2), (6_720_000, 3), (13_440_000, 1)]);
    let mut port = Port::new(&PortConfig {
        classes: [ClassConfig { capacity: Some(1), ..Default::default() }; CLASSES],
        ..config(100_000_000)
    });
    port.offer(now(0), frame(1, 0, 84)).unwrap();
    assert_eq!(port.offer(now(0), frame(2, 0, 84)), Err(Refused::Full));
    assert_eq!((port.held(), port.flush(now(0)), port.held()), (1, vec![1], 0));
}

/// Class 6 may use a fifth of 100 Mbit/s.
fn shaped(rules: CreditRules) -> PortConfig {
    let mut config = config(100_000_000);
    config.classes[6].credit = Some((BitsPerSecond::new(20_000_000).unwrap(), rules));
    config
}

#[test]
fn t0_credit_makes_the_staircase_of_the_standard() {
    let frames: Vec<_> = (0..50).map(|n| (0, frame(n, 6, 1_538))).collect();
    let mut port = Port::new(&shaped(CreditRules::Standard));
    let log = run(&mut port, &frames, us(10_000));
    // A frame takes 123.04 us and five times that of a fifth of the rate.
    for (number, (at, _)) in (0..).zip(&log.started) {
        assert_eq!(*at, number * 5 * 123_040_000);
    }
    assert_eq!(log.started.len(), 17);
}

#[test]
fn t0_credit_reaches_both_its_bounds_exactly() {
    let mut port = Port::new(&shaped(CreditRules::Standard));
    // A frame of best effort begins, and at once one of class 6 waits for it.
    port.offer(now(0), frame(1, 0, 1_538)).unwrap();
    assert_eq!(port.poll(now(0)).started.unwrap().item, 1);
    port.offer(now(0), frame(2, 6, 1_538)).unwrap();
    let free = 123_040_000;
    // hiCredit: the longest interference times idleSlope / rate, 2460.8 bits.
    assert_eq!(port.credit_bits(now(free), 6), Some(2_460));
    assert_eq!(port.poll(now(free)).started.unwrap().item, 2);
    // While it is sent, the credit falls by 9843.2 bits (sendSlope): loCredit from zero.
    assert_eq!(port.credit_bits(now(2 * free - 1), 6), Some(-7_383));
    port.offer(now(2 * free), frame(3, 6, 84)).unwrap();
    let wake = port.poll(now(2 * free)).wake.truth;
    assert_eq!(wake, Ps::new(2 * free + 7_382_400_000_000 / 20_000), "7382.4 bits at 20 Mbit/s");
    // Without interference the next frame starts at zero and ends at loCredit.
    assert_eq!(port.poll(now(wake.get())).started.unwrap().item, 3);
    // What is left over when nothing waits is lost.
    assert_eq!(port.credit_bits(now(us(5_000)), 6), Some(0));
    port.offer(now(us(6_000)), frame(4, 6, 84)).unwrap();
    assert_eq!(port.credit_bits(now(us(6_000)), 6), Some(0));
}

#[test]
fn t0_credit_stands_still_while_the_gate_is_closed() {
    let gates = [(0x40, 250), (0x01, 250)].map(|(open, us)| GateEntry {
        open,
        interval: Span::from_us(us),
        hold: false,
    });
    let gates = GateList::new(Ps::ZERO, None, &gates).unwrap();
    let mut port = Port::new(&PortConfig { gates: Some(gates), ..shaped(CreditRules::Standard) });
    port.offer(now(0), frame(1, 6, 1_538)).unwrap();
    port.offer(now(0), frame(2, 6, 1_538)).unwrap();
    assert_eq!(port.poll(now(0)).started.unwrap().item, 1);
    // Open for half of the cycle, so it grows with 40 Mbit/s. Left at 123.04 us with -7382.4 bits;
    // grows until 250 us, and from 500 us on. 126.96 us at 40 Mbit/s are 5078.4 bits.
    assert_eq!(port.credit_bits(now(us(250)), 6), Some(-2_304));
    assert_eq!(port.credit_bits(now(us(500)), 6), Some(-2_304));
    let at = us(500) + 57_600_000;
    assert!(port.poll(now(at - 1)).started.is_none());
    assert_eq!(port.poll(now(at)).started.unwrap().item, 2);
}

/// Class 6 may send in the first so many nanoseconds of a cycle.
fn first_part(ns: i64, cycle: i64) -> GateList {
    let entry = |open, ns| GateEntry { open, interval: Span::from_ns(ns), hold: false };
    GateList::new(Ps::ZERO, None, &[entry(0x40, ns), entry(0x01, cycle - ns)]).unwrap()
}

/// Over a cycle the class has what it reserves, however short its gate is open.
#[test]
fn t0_credit_behind_a_gate_gives_the_reserved_rate() {
    for open in [250_000, 400_000, 900_000] {
        let gates = Some(first_part(open, 1_000_000));
        let mut port = Port::new(&PortConfig { gates, ..shaped(CreditRules::Standard) });
        let frames: Vec<_> = (0..2_000).map(|n| (0, frame(n, 6, 500))).collect();
        let log = run(&mut port, &frames, us(200_000));
        // 20 Mbit/s for 200 ms; what does not fit into the end of a window comes with the next.
        let sent = log.started.len() * 500 * 8;
        assert!((3_900_000..=4_010_000).contains(&sent), "{open}: {sent} bits");
    }
}

/// Credit that is back a moment after the gate has closed is not asked for every moment until it
/// opens again.
#[test]
fn t0_a_port_waits_for_the_gate_and_not_for_credit_that_stands_still() {
    // A frame takes 123.04 us, and its credit at 41.013266 Mbit/s is back 300.000493 us after its
    // start.
    let gates = Some(first_part(300_000, 615_199));
    let mut port = Port::new(&PortConfig { gates, ..shaped(CreditRules::Standard) });
    port.offer(now(0), frame(1, 6, 1_538)).unwrap();
    port.offer(now(0), frame(2, 6, 1_538)).unwrap();
    let (mut at, mut polls, mut starts) = (0, 0, Vec::new());
    while starts.len() < 2 {
        let polled = port.poll(now(at));
        starts.extend(polled.started.map(|started| (at, started.item)));
        at = polled.wake.truth.min(polled.wake.local).get();
        polls += 1;
        assert!(polls < 10, "{at} ps: {starts:?}");
    }
    assert_eq!(
        starts,
        [(0, 1), (615_199_000 + 493, 2)],
        "the part of a nanosecond that was missing"
    );
}

#[test]
fn t0_credit_grows_by_the_gates_of_its_time() {
    let behind = || {
        let gates = Some(first_part(400_000, 1_000_000));
        let mut port = Port::new(&PortConfig { gates, ..shaped(CreditRules::Standard) });
        port.set_gates(Ps::new(us(600)), None);
        port
    };
    let log = run(&mut behind(), &[1, 2, 3].map(|n| (0, frame(n, 6, 1_538))), us(10_000));
    // With 50 Mbit/s behind the gate the second goes after twice its length. 4608 bits are missing
    // when the gate closes, and come with 20 Mbit/s from 600 us on.
    let starts: Vec<i64> = log.started.iter().map(|(at, _)| *at).collect();
    assert_eq!(starts, [0, 246_080_000, us(600) + 230_400_000]);
    // The same when nothing waits at the change.
    let at = |n: u32| if n < 3 { 0 } else { us(700) };
    let log = run(&mut behind(), &[1, 2, 3].map(|n| (at(n), frame(n, 6, 1_538))), us(10_000));
    assert_eq!(log.started[2].0, us(600) + 230_400_000);
}

#[test]
fn t0_linux_counts_whole_bytes_without_overhead() {
    let rules = CreditRules::Linux { hi_credit: 30, lo_credit: -1_470 };
    let mut port = Port::new(&shaped(rules));
    let frames: Vec<_> = (0..4).map(|n| (0, frame(n, 6, 1_524))).collect();
    let log = run(&mut port, &frames, us(10_000));
    // 1500 bytes cost 1500 * 10/12.5 = 1200 bytes of credit and are taken to need 120 us; at
    // 2.5 MB/s, 1200 bytes are back after 480 us, which a timer counts while the link sends the
    // last of its 121.92 us.
    let starts: Vec<i64> = log.started.iter().map(|(at, _)| at / 1_000).collect();
    assert_eq!(starts, [0, 600_000, 1_200_000, 1_800_000]);
}

/// At 3.75 MB/s a byte takes 266.7 ns: a timer set for 266 ns finds none, again and again.
#[test]
fn t0_linux_credit_comes_back_also_when_a_byte_takes_no_whole_nanoseconds() {
    let rules = CreditRules::Linux { hi_credit: 30, lo_credit: -1_500 };
    let mut port = Port::new(&PortConfig {
        classes: {
            let mut classes = shaped(rules).classes;
            classes[6].credit = Some((BitsPerSecond::new(30_000_000).unwrap(), rules));
            classes
        },
        ..shaped(rules)
    });
    let frames: Vec<_> = (0..3).map(|n| (0, frame(n, 6, 1_026))).collect();
    let log = run(&mut port, &frames, us(1_000));
    // 1002 bytes cost 701 (8.75/12.5) and take 80 160 ns; 701 bytes are back after 186 933.3 ns.
    let starts: Vec<i64> = log.started.iter().map(|(at, _)| at / 1_000).collect();
    assert_eq!(starts, [0, 267_094, 534_188]);
}

/// The timer runs also when nothing waits; what is then above zero is lost with the next frame.
#[test]
fn t0_linux_saves_no_credit_while_nothing_waits() {
    let rules = CreditRules::Linux { hi_credit: 3_000, lo_credit: -1_470 };
    let mut port = Port::new(&shaped(rules));
    let frames: Vec<_> = [0, 50_000, 50_000].map(|at| (us(at), frame(0, 6, 1_524))).into();
    let log = run(&mut port, &frames, us(60_000));
    let starts: Vec<i64> = log.started.iter().map(|(at, _)| at / 1_000).collect();
    assert_eq!(starts, [0, 50_000_000, 50_600_000]);
}

/// Each frame that comes has Linux look, and a look loses the rest of a byte.
#[test]
fn t0_linux_loses_the_rest_of_a_byte_whenever_a_frame_comes() {
    let rules = CreditRules::Linux { hi_credit: 30, lo_credit: -1_470 };
    let mut port = Port::new(&shaped(rules));
    let frames: Vec<_> = [0, 0, 130_300, 130_600].map(|at| (at * 1_000, frame(0, 6, 1_524))).into();
    let log = run(&mut port, &frames, us(1_000));
    // 10 300 ns are 25.75 bytes, then 300 ns 0.75: 25 count, and 1175 bytes take 470 us.
    let starts: Vec<i64> = log.started.iter().map(|(at, _)| at / 1_000).collect();
    assert_eq!(starts, [0, 600_600]);
}

#[test]
fn t0_a_frame_starts_only_where_it_ends_within_its_window() {
    let entries = [(0x80, 100), (0x01, 300)].map(|(open, us)| GateEntry {
        open,
        interval: Span::from_us(us),
        hold: false,
    });
    let gates = GateList::new(Ps::ZERO, None, &entries).unwrap();
    let mut port = Port::new(&PortConfig { gates: Some(gates), ..config(100_000_000) });
    let frames: Vec<_> = (0..4).map(|n| (us(50), frame(n, 0, 1_250))).collect();
    let log = run(&mut port, &frames, us(2_000));
    let starts: Vec<i64> = log.started.iter().map(|(at, _)| at / 1_000_000).collect();
    assert_eq!(starts, [100, 200, 300, 500], "100 us each, exactly three in 300 us");
    let log = run(&mut port, &[], 0);
    assert!(log.started.is_empty());
    assert_eq!(port.offer(now(us(5_000)), frame(9, 7, 1_251)), Err(Refused::NeverFits));
    assert_eq!(port.offer(now(us(5_000)), frame(9, 3, 84)), Err(Refused::NeverFits));
}

#[test]
fn t0_a_change_of_gates_waits_for_no_frame_and_loses_what_no_longer_fits() {
    let list = |open| {
        let entry = GateEntry { open, interval: Span::from_us(100), hold: false };
        GateList::new(Ps::ZERO, None, &[entry]).unwrap()
    };
    let mut port = Port::new(&PortConfig { gates: Some(list(0x01)), ..config(100_000_000) });
    port.set_gates(Ps::new(us(150)), Some(list(0x80)));
    let frames = [(us(90), frame(1, 0, 1_250)), (us(90), frame(2, 7, 84))];
    let log = run(&mut port, &frames, us(1_000));
    let starts: Vec<(i64, u32)> = log.started.iter().map(|(at, s)| (*at, s.item)).collect();
    assert_eq!(starts, [(us(150), 2)]);
    assert_eq!(log.dropped, [1]);
}

#[test]
fn t0_frames_leave_at_their_launch_times_by_the_stations_clock() {
    let mut config = config(1_000_000_000);
    config.classes[7].order = Order::TimedStrict;
    let mut port = Port::new(&config);
    let timed = |item, at| Offered { not_before: Ps::new(at), ..frame(item, 7, 84) };
    let local = |truth: i64| Now { truth: Ps::new(truth), local: Ps::new(truth + 5) };
    port.offer(local(0), timed(1, us(20))).unwrap();
    port.offer(local(0), timed(2, us(10))).unwrap();
    assert_eq!(port.offer(local(us(2)), timed(3, us(2))), Err(Refused::Late));
    let polled = port.poll(local(0));
    assert_eq!((polled.wake.local, polled.wake.truth), (Ps::new(us(10)), Ps::MAX));
    assert!(port.poll(local(us(10) - 6)).started.is_none());
    assert_eq!(port.poll(local(us(10) - 5)).started.unwrap().item, 2);
    assert_eq!(port.poll(local(us(20))).started.unwrap().item, 1);
}

fn preemptive(rate: u64) -> PortConfig {
    let mut config = config(rate);
    config.classes[0].preemptable = true;
    config
}

#[test]
fn t0_an_express_frame_waits_at_most_143_bytes_wherever_it_comes() {
    for (rate, byte) in [(1_000_000_000, 8_000), (100_000_000, 80_000)] {
        let mut worst = (0, 0);
        for length in (84..400).chain([1_538]) {
            for arrival in 0..i64::from(length) {
                let mut port = Port::new(&preemptive(rate));
                // A moment after a byte began is worst; at that byte is another moment.
                let comes = arrival * byte + 1;
                let frames = [(0, frame(1, 0, length)), (comes, frame(2, 7, 84))];
                let log = run(&mut port, &frames, us(1_000_000));
                let at = log.started.iter().find(|(_, s)| s.item == 2).unwrap().0;
                worst = worst.max((at - comes, length));
                assert_eq!(log.finished.len(), 1, "the rest follows");
                // Each cut costs preamble, check sequence and gap of a fragment.
                let cuts = i64::try_from(log.started.len()).unwrap() - 2;
                let total = (i64::from(length) + 84 + 24 * cuts) * byte;
                assert_eq!((log.finished[0].0 + 12 * byte).max(at + 84 * byte), total);
            }
        }
        assert_eq!(worst, (i64::from(EXPRESS_WAIT_BYTES) * byte - 1, EXPRESS_WAIT_BYTES));
    }
}

#[test]
fn t0_a_hold_keeps_the_link_free_for_express_frames() {
    let entries = [(0xff, 80, false), (0xff, 20, true)].map(|(open, us, hold)| GateEntry {
        open,
        interval: Span::from_us(us),
        hold,
    });
    let gates = GateList::new(Ps::ZERO, None, &entries).unwrap();
    let advance = Ps::of_bytes(EXPRESS_WAIT_BYTES, BitsPerSecond::new(1_000_000_000).unwrap());
    let mut config = preemptive(1_000_000_000);
    (config.gates, config.hold_advance) = (Some(gates), advance);
    let mut port = Port::new(&config);
    let mut frames: Vec<_> = (0..40).map(|n| (0, frame(n, 0, 1_538))).collect();
    frames.push((us(80), frame(100, 7, 84)));
    let log = run(&mut port, &frames, us(1_000));
    let express = log.started.iter().find(|(_, s)| s.item == 100).unwrap();
    assert_eq!(express.0, us(80), "it waits for nothing");
    for (at, started) in log.started.iter().filter(|(_, s)| s.item != 100) {
        assert!(at % us(100) < us(80), "{at} {started:?}");
    }
    assert_eq!(log.finished.len(), 40);
}

proptest! {
    /// No overlap on the link, frames of ordinary classes within their windows, and nothing lost.
    #[test]
    fn t0_any_port_keeps_its_promises(
        offers in proptest::collection::vec((0..400_i64, 0..4_usize, 84..600_u32), 1..60),
        entries in proptest::collection::vec((0..16_u8, 60..200_i64), 1..5),
        shaped in 0..3_usize, preemptable in any::<bool>(), gated in any::<bool>(),
    ) {
        let list: Vec<GateEntry> = entries.iter().map(|(open, us)| GateEntry {
            open: *open, interval: Span::from_us(*us), hold: false,
        }).collect();
        let mut config = config(100_000_000);
        let gates = GateList::new(Ps::ZERO, None, &list).unwrap();
        config.gates = gated.then(|| gates.clone());
        config.classes[shaped].credit =
            Some((BitsPerSecond::new(30_000_000).unwrap(), CreditRules::Standard));
        config.classes[0].preemptable = preemptable;
        let mut port: Port<u32> = Port::new(&config);
        let mut times: Vec<i64> = offers.iter().map(|(us, ..)| us * 1_000_000).collect();
        times.sort_unstable();
        let mut frames = Vec::new();
        for (n, (at, (_, class, wire))) in (0..).zip(times.iter().zip(&offers)) {
            let frame = frame(n, *class, *wire);
            let fits = !gated || port.duration(*wire) <= gates.longest(*class);
            if fits { frames.push((*at, frame)); }
        }
        let log = run(&mut port, &frames, us(10_000_000));
        prop_assert_eq!(port.held(), 0, "all were sent in ten seconds");
        prop_assert!(log.dropped.is_empty());
        let done = log.finished.len()
            + log.started.iter().filter(|(_, s)| !s.preemptable).count();
        prop_assert_eq!(done, frames.len());
        let mut free = 0;
        for (index, (at, started)) in log.started.iter().enumerate() {
            prop_assert!(*at >= free);
            let next = log.started.get(index + 1).map_or(i64::MAX, |(at, _)| *at);
            free = started.ends.get().min(if started.preemptable { next } else { i64::MAX });
            if gated && !started.resumed {
                let inside = match gates.gate(started.class, Ps::new(*at)) {
                    Gate::Open { until } => started.ends <= until,
                    Gate::Closed { .. } => false,
                };
                prop_assert!(inside);
            }
        }
    }
}
