// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The port of `timewire_tsn`, of which simulations are made, and the kernel: the same frames go
//! through both, and each must leave both at the same time and in the same order. That a
//! comparison can fail is part of it: ports that are slightly wrong must not agree.
//!
//! The kernel's interface is a veth, which takes a frame in no time. Where frames queue for the
//! link itself, a wire of 10 Gbit/s follows, and its end is compared instead of the release.

use std::ops::RangeInclusive;

use timewire_base::{BitsPerSecond, Instant, Span, Tai};
use timewire_lab::fixture::{Bench, Fixture, Statistics, Talker, TrafficOutcome};
use timewire_lab::trial::{self, Trial};
use timewire_tsn::port::{
    CLASSES, ClassConfig, CreditRules, GateEntry, GateList, Now, Offered, Order, Port, PortConfig,
    Ps,
};

use super::taprio::classes;
use super::{TIMER, TIMER_ON_GRID, etf, next_cycle, ns, play, plus, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_agree_gates", gates).since(6, 3),
    Trial::new("t4_agree_launch_times", launch_times),
    Trial::new("t4_agree_credit_on_the_grid", credit_on_the_grid),
    Trial::new("t4_agree_credit_of_several_lengths", credit_of_several_lengths),
    Trial::new("t4_agree_credit_while_frames_come", credit_while_frames_come),
    Trial::new("t4_agree_strict_priority", strict_priority),
];

/// What a veth says it has, and the wires here.
const TEN_GIGABIT: u64 = 10_000_000_000;
/// Preamble, check sequence and gap. **Units**: bytes.
const OVERHEAD: u32 = 24;
/// A wire's, beside its rate; whole readings.
const WIRE: Span = Span::from_us(32);
/// The wire takes whole nanoseconds for a frame, rounded down (linux v6.12
/// `net/sched/sch_netem.c:packet_time_ns`); this many may queue for it.
const WIRE_ROUNDING: RangeInclusive<i64> = -16..=0;

fn port(bits_per_second: u64) -> PortConfig {
    PortConfig {
        rate: BitsPerSecond::new(bits_per_second).unwrap(),
        classes: [ClassConfig::default(); CLASSES],
        gates: None,
        hold_advance: Ps::ZERO,
    }
}

/// Which instant of a frame is compared.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// It leaves the discipline.
    Released,
    /// It is at the end of the wire, gap included.
    Ended,
}

/// What was done in the kernel, as a port is to do it.
struct Kernel<'a> {
    outcome: &'a TrafficOutcome,
    /// Where the port's time begins.
    origin: Instant<Tai>,
    /// Of each flow.
    class: &'a [usize],
    /// How long before its launch time a frame leaves.
    delta: Span,
    moment: Moment,
}

/// A frame that left both. Times are of the port, from the origin.
#[derive(Clone, Copy, Debug)]
struct Pair {
    flow: usize,
    sequence: u32,
    /// When the port started it. **Units**: picoseconds.
    start: i64,
    /// When it was there, and when the port says so. **Units**: nanoseconds, the latter rounded
    /// down.
    kernel: i64,
    port: i64,
}

impl Pair {
    fn late(&self) -> i64 {
        self.kernel - self.port
    }
}

impl Kernel<'_> {
    /// Sends the frames through a port: in the order of their starts.
    fn through(&self, config: &PortConfig) -> Vec<Pair> {
        let since = |at: Instant<Tai>| (at - self.origin).as_ns();
        let mut frames = Vec::new();
        for (flow, described) in self.outcome.flows.iter().enumerate() {
            frames.extend(described.complete().fates.iter().map(|fate| (fate.sent, flow, *fate)));
        }
        // One thread sends, for the flows in their order.
        frames.sort_by_key(|(sent, flow, fate)| (*sent, *flow, fate.sequence));
        let offered = frames.iter().enumerate().map(|(item, (sent, flow, fate))| {
            let length = fate.received.map_or(0, |arrival| arrival.length);
            let launch = fate.launch.map_or(0, |at| since(at) - self.delta.as_ns());
            let not_before = Ps::from_span(ns(launch));
            let class = self.class[*flow];
            let wire_bytes = (length + OVERHEAD).max(84);
            (since(*sent) * 1_000, Offered { item, class, wire_bytes, not_before })
        });
        let times = departures(config, &offered.collect::<Vec<_>>());
        let pairs = frames.iter().zip(times).filter_map(|((_, flow, fate), times)| {
            let (start, end) = times?;
            let (port, way) = match self.moment {
                Moment::Released => (start, Span::ZERO),
                Moment::Ended => (end, WIRE),
            };
            let kernel = since(fate.arrived()) - way.as_ns();
            let port = port.div_euclid(1_000);
            Some(Pair { flow: *flow, sequence: fate.sequence, start, kernel, port })
        });
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_by_key(|pair| pair.start);
        pairs
    }

    /// What speaks against it that this port and the kernel are the same.
    fn against(
        &self,
        config: &PortConfig,
        allowed: &RangeInclusive<i64>,
    ) -> (Vec<Pair>, Vec<String>) {
        let pairs = self.through(config);
        let mut bad: Vec<String> = pairs
            .iter()
            .filter(|pair| !allowed.contains(&pair.late()))
            .map(|pair| format!("late by {} ns: {pair:?}", pair.late()))
            .collect();
        let kernel = self.outcome.order();
        if pairs.len() != kernel.len() {
            bad.push(format!("{} frames left the kernel, {} the port", kernel.len(), pairs.len()));
        }
        let flows = pairs.iter().map(|pair| pair.flow);
        if let Some(place) = flows.zip(&kernel).position(|(port, kernel)| port != *kernel) {
            bad.push(format!("another order from frame {place}, {:?}", pairs.get(place)));
        }
        (pairs, bad)
    }

    /// **Panics** unless the port agrees, every frame as late as allowed, and none of those that
    /// are wrong does.
    fn agrees(
        &self,
        what: &str,
        config: &PortConfig,
        allowed: &RangeInclusive<i64>,
        wrong: &[(&str, PortConfig)],
    ) {
        let (pairs, bad) = self.against(config, allowed);
        let late: Vec<i64> = pairs.iter().map(Pair::late).collect();
        println!("{what}, {}: kernel later than port, ns", trial::kernel_name());
        println!("{}\n{}", Statistics::HEADER, Statistics::of(&late));
        let worst = bad.iter().take(8).cloned().collect::<Vec<_>>().join("\n");
        assert!(bad.is_empty(), "{what}: {} breaches of {allowed:?}\n{worst}", bad.len());
        for (how, config) in wrong {
            let (_, bad) = self.against(config, allowed);
            println!("{how}: {} breaches", bad.len());
            assert!(!bad.is_empty(), "{what}: a port with {how} agrees, too");
        }
    }
}

/// Start and end of each frame, from frames with the times of their arrival, in their order.
/// **Units**: picoseconds.
fn departures(config: &PortConfig, offered: &[(i64, Offered<usize>)]) -> Vec<Option<(i64, i64)>> {
    let mut port = Port::new(config);
    let mut times = vec![None; offered.len()];
    let (mut next, mut wake) = (0, i64::MAX);
    loop {
        let arrival = offered.get(next).map_or(i64::MAX, |(at, _)| *at);
        let at = arrival.min(wake);
        if at == i64::MAX {
            return times;
        }
        let now = Now { truth: Ps::new(at), local: Ps::new(at) };
        // One at a time, as the kernel looks at its queues with each.
        if arrival == at {
            // What is refused has no times.
            let _ = port.offer(now, offered[next].1);
            next += 1;
        }
        let polled = port.poll(now);
        if let Some(started) = polled.started {
            times[started.item] = Some((at, started.ends.get()));
        }
        wake = polled.wake.truth.min(polled.wake.local).get();
        assert!(wake > at, "the port does not get on at {at} ps");
    }
}

fn wired(disciplines: &[&str]) -> Bench {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b");
    fixture.wire("a", "b", BitsPerSecond::new(TEN_GIGABIT).unwrap(), WIRE);
    for words in disciplines {
        fixture.qdisc("a", "b", words);
    }
    fixture.build().unwrap()
}

fn linked(disciplines: &[&str]) -> Bench {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").timeout(Span::from_secs(2));
    for words in disciplines {
        fixture.qdisc("a", "b", words);
    }
    fixture.build().unwrap()
}

/// Three gates, two of them open at once for a while, and frames of seven lengths, whose size table
/// adds what the link does. Those that come 768 ns before a gate closes show the guard: the short
/// one fits with 288 ns to spare, the long one lacks 462.
fn gates() {
    const ENTRIES: [(u8, i64); 3] = [(1, 320), (6, 320), (2, 384)];
    let entries =
        ENTRIES.map(|(mask, length)| format!("sched-entry S {mask:x} {}", length * 1_000));
    let bench = wired(&[&format!(
        "root stab overhead {OVERHEAD} taprio {} base-time 0 clockid CLOCK_TAI {}",
        classes(3),
        entries.join(" ")
    )]);
    let cycle = us(1_024);
    let origin = next_cycle(bench.soon(), cycle);
    let (mut flows, mut class) = (Vec::new(), Vec::new());
    // Half way between the gates, each by itself.
    for (number, (of, length)) in
        (0..).zip([(0, 60), (1, 300), (2, 1_514), (0, 1_000), (1, 60), (2, 128)])
    {
        let start = origin + us(32 + 64 * number);
        let flow = Talker::new("a", "b").priority(of).length(length).from(start);
        flows.push(flow.every(us(384)).count(200));
        class.push(usize::try_from(of).unwrap());
    }
    for (of, closes) in [(0, 320), (2, 640), (1, 1_024)] {
        for (length, after) in [(576, 0), (1_514, 1)] {
            let start = origin + us(closes + 1_024 * after) + -ns(768);
            let flow = Talker::new("a", "b").priority(of).length(length).from(start);
            flows.push(flow.every(us(2 * 1_024)).count(30));
            class.push(usize::try_from(of).unwrap());
        }
    }
    let outcome = play(&bench, &flows);
    let list = |base: Ps, first: i64| {
        let entry = |(open, length)| GateEntry { open, interval: us(length), hold: false };
        let mut entries = ENTRIES.map(entry);
        entries[0].interval = us(first);
        GateList::new(base, Some(cycle), &entries).unwrap()
    };
    let with = |gates| PortConfig { gates: Some(gates), ..port(TEN_GIGABIT) };
    let kernel = Kernel {
        outcome: &outcome,
        origin,
        class: &class,
        delta: Span::ZERO,
        moment: Moment::Ended,
    };
    let right = with(list(Ps::ZERO, 320));
    let slow = PortConfig { rate: BitsPerSecond::new(5_000_000_000).unwrap(), ..right.clone() };
    let wrong = [
        ("a base 2 us late", with(list(Ps::from_span(us(2)), 320))),
        ("an entry 1 us short", with(list(Ps::ZERO, 319))),
        ("half the rate", slow),
    ];
    // The gate's timer, or that of the sender; the wire's.
    let allowed = plus(plus(TIMER_ON_GRID, &TIMER), &WIRE_ROUNDING);
    kernel.agrees("gates", &right, &allowed, &wrong);
}

/// Launch times one reading apart, of frames that take three and more, sent in another order.
fn launch_times() {
    const DELTA: Span = Span::from_ns(102_400);
    let map = "num_tc 1 map 0 queues 1@0";
    let bench = wired(&[
        &format!("root handle 100: mqprio {map} hw 0"),
        &format!("parent 100:1 etf clockid CLOCK_TAI delta {}", DELTA.as_ns()),
    ]);
    let origin = bench.soon();
    let flows: Vec<_> = [(1_000, 0, 300), (1_514, 256, 400), (60, 512, 500), (300, 64_000, 200)]
        .map(|(length, after, lead)| {
            let start = origin + us(1_000) + ns(after);
            let flow = Talker::new("a", "b").length(length).from(start).every(us(640)).count(200);
            flow.launch(us(lead))
        })
        .into();
    let outcome = play(&bench, &flows);
    let class = [0; 4];
    let kernel =
        Kernel { outcome: &outcome, origin, class: &class, delta: DELTA, moment: Moment::Ended };
    let mut right = port(TEN_GIGABIT);
    right.classes[0].order = Order::TimedStrict;
    let allowed = plus(plus(etf::LATE, &TIMER), &WIRE_ROUNDING);
    let slow = PortConfig { rate: BitsPerSecond::new(5_000_000_000).unwrap(), ..right.clone() };
    let wrong = [("no launch times", port(TEN_GIGABIT)), ("half the rate", slow)];
    kernel.agrees("launch times", &right, &allowed, &wrong);
    let early = Kernel { delta: DELTA + us(2), ..kernel };
    let (_, bad) = early.against(&right, &allowed);
    assert!(!bad.is_empty(), "another delta agrees, too");
}

/// A class 0 of this idle slope, in kbit/s, as it is in Linux.
fn shaped(idle: u64, hi: i32) -> (String, PortConfig) {
    let send = i64::try_from(idle).unwrap() - 10_000_000;
    let words =
        format!("parent 100:1 cbs idleslope {idle} sendslope {send} hicredit {hi} locredit -2000");
    let rules = CreditRules::Linux { hi_credit: hi, lo_credit: -2_000 };
    (words, credit(idle * 1_000, rules))
}

fn credit(idle: u64, rules: CreditRules) -> PortConfig {
    let mut config = port(TEN_GIGABIT);
    config.classes[0].credit = Some((BitsPerSecond::new(idle).unwrap(), rules));
    config
}

/// A byte of credit takes a reading, and so does a third of a frame: nothing is rounded, and the
/// staircase is the same to a reading. The second burst, after a pause, must be as the first.
fn credit_on_the_grid() {
    let (words, right) = shaped(31_250, 3_000);
    let bench = linked(&["root handle 100: mqprio num_tc 1 map 0 queues 1@0 hw 0", &words]);
    let origin = bench.soon();
    let flow = Talker::new("a", "b").length(960).from(origin).burst(60).every(us(64_000)).count(4);
    let outcome = play(&bench, &[flow]);
    let kernel = Kernel {
        outcome: &outcome,
        origin,
        class: &[0],
        delta: Span::ZERO,
        moment: Moment::Released,
    };
    let linux = CreditRules::Linux { hi_credit: 3_000, lo_credit: -2_000 };
    let forgiving = CreditRules::Linux { hi_credit: 3_000, lo_credit: -956 };
    let wrong = [
        ("a slope 8 kbit/s greater", credit(31_258_000, linux)),
        ("a byte of low credit less than a frame", credit(31_250_000, forgiving)),
        ("the credit of the standard", credit(31_250_000, CreditRules::Standard)),
    ];
    kernel.agrees("credit on the grid", &right, &plus(TIMER_ON_GRID, &TIMER_ON_GRID), &wrong);
}

/// Slopes and lengths as they come. Two timers bring a frame's credit back, and what each is late
/// by counts in whole bytes: the rest of a byte is lost, and adds up over a burst.
fn credit_of_several_lengths() {
    for idle in [2_000, 10_000, 30_000, 100_000] {
        let (words, right) = shaped(idle, 3_000);
        let bench = linked(&["root handle 100: mqprio num_tc 1 map 0 queues 1@0 hw 0", &words]);
        let origin = bench.soon();
        let lengths = [1_000, 300, 1_514, 61];
        let flows: Vec<_> = lengths
            .map(|length| {
                let flow = Talker::new("a", "b").length(length).from(origin).burst(3);
                flow.every(us(256_000)).count(4)
            })
            .into();
        let outcome = play(&bench, &flows);
        let kernel = Kernel {
            outcome: &outcome,
            origin,
            class: &[0; 4],
            delta: Span::ZERO,
            moment: Moment::Released,
        };
        let linux = CreditRules::Linux { hi_credit: 3_000, lo_credit: -2_000 };
        let wrong = [("a slope 1 % greater", credit(idle * 1_010, linux))];
        let before = i64::try_from(lengths.len() * 3 - 1).unwrap();
        let byte = 8_000_000 / i64::try_from(idle).unwrap() + 1;
        let allowed = 0..=TIMER.end() + before * 2 * byte.min(*TIMER.end());
        kernel.agrees(&format!("credit at {idle} kbit/s"), &right, &allowed, &wrong);
        for pair in kernel.through(&right).windows(2) {
            let change = pair[1].late() - pair[0].late();
            let same_burst = pair[1].sequence / 3 == pair[0].sequence / 3;
            assert!(!same_burst || change.abs() <= 1_022, "{change} ns at {pair:?}");
        }
    }
}

/// A long frame, and short ones that come while its credit comes back. Each makes the kernel look
/// and lose the rest of a byte: 3.84 bytes after the one before, that is 3.36 us.
fn credit_while_frames_come() {
    const SHORT: u32 = 60;
    let (words, right) = shaped(2_000, 3_000);
    let bench = linked(&["root handle 100: mqprio num_tc 1 map 0 queues 1@0 hw 0", &words]);
    let origin = bench.soon();
    let long = Talker::new("a", "b").length(1_000).from(origin);
    let short = Talker::new("a", "b").length(100).from(origin + us(32));
    let outcome = play(&bench, &[long, short.every(ns(15_360)).count(SHORT)]);
    let kernel = Kernel {
        outcome: &outcome,
        origin,
        class: &[0; 2],
        delta: Span::ZERO,
        moment: Moment::Released,
    };
    let linux = CreditRules::Linux { hi_credit: 3_000, lo_credit: -2_000 };
    let wrong = [("a slope 4 % greater", credit(2_080_000, linux))];
    // The sender's timer at the last look, and two for each frame.
    let allowed = 0..=TIMER.end() * (2 + 2 * i64::from(SHORT));
    kernel.agrees("credit while frames come", &right, &allowed, &wrong);
}

/// Bands behind a token bucket for one frame, which so is a link: a frame is chosen when the one
/// before has ended. Frames are of one length, because the bucket waits for the frame that is to
/// go, and a link for the one that went.
fn strict_priority() {
    let bench = linked(&[
        &format!("root handle 1: tbf rate 100mbit burst 1000 limit 1000000 overhead {OVERHEAD}"),
        "parent 1:1 handle 2: prio bands 3 priomap 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 2",
    ]);
    let origin = bench.soon();
    let plan: [(u32, i64, u32); 5] =
        [(0, 0, 12), (1, 100, 5), (2, 200, 3), (2, 500, 1), (1, 1_000, 2)];
    let flows: Vec<_> = plan
        .map(|(priority, start, burst)| {
            let flow = Talker::new("a", "b").priority(priority).length(1_000).burst(burst);
            flow.from(origin + us(start)).every(us(4_096)).count(20)
        })
        .into();
    let outcome = play(&bench, &flows);
    let class = plan.map(|(priority, ..)| usize::try_from(priority).unwrap());
    let of = |class| Kernel {
        outcome: &outcome,
        origin,
        class,
        delta: Span::ZERO,
        moment: Moment::Released,
    };
    // The bucket is full after one frame and forgets what its timers are late by.
    let allowed = plus(TIMER_ON_GRID, &TIMER);
    let right = port(100_000_000);
    let wrong = [("1 % more rate", port(101_000_000))];
    of(&class).agrees("strict priority", &right, &allowed, &wrong);
    let (_, bad) = of(&class.map(|class| 2 - class)).against(&right, &allowed);
    assert!(!bad.is_empty(), "priorities the other way round agree, too");
}
