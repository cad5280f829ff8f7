// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wall time of the machine alone, per frame: one arrival and one tick, with the virtual clock
//! moving at the pace of the line. Run with `cargo bench -p timewire-tsn --bench mac`.

use std::hint::black_box;

use timewire_base::{
    BitsPerSecond, CyclicWindows, FrameLen, Instant, Port, Priority, Span, Tai, Window,
};
use timewire_tsn::{Config, Event, Machine, Mode, Next, PortRules, QueueIndex, QueueSet};

const FRAMES: u32 = 1_000_000;
const ROUNDS: usize = 5;

fn main() {
    println!("machine: arrive + tick, ns per frame (best of {ROUNDS} rounds of {FRAMES})");
    println!("{:>8} {:>14} {:>14} {:>14}", "queues", "waiting", "pass-through", "windows");
    for queues in [1, 8, 33] {
        for waiting in [0, 1_000] {
            let none = best(|| machine(queues, waiting, None));
            let windows = best(|| machine(queues, waiting, Some(windows())));
            println!("{queues:>8} {waiting:>14} {none:>14.1} {windows:>14.1}");
        }
    }
    println!("classify: ns per frame");
    for rules in [1, 8, 64] {
        println!("{rules:>8} {:>14} {:>14.1}", "rules", best(|| classify(rules)));
    }
}

fn best(mut run: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds that one frame takes with so many frames waiting all the time, spread over the
/// queues.
fn machine(queues: usize, waiting: usize, windows: Option<CyclicWindows>) -> f64 {
    let config = Config {
        rate: BitsPerSecond::new(1_000_000_000).expect("invariant: a rate"),
        margin: Span::from_us(2),
        ahead: Span::ZERO,
        mode: Mode::Tdm,
        best_effort_share: Span::ZERO,
        queue_capacity: 1_024,
    };
    let priorities: Vec<Priority> =
        (1..33).filter_map(|n| Priority::new(n).ok()).take(queues - 1).collect();
    let set = QueueSet::new(&priorities).expect("invariant: distinct priorities");
    let mut indexes: Vec<QueueIndex> = priorities.iter().map(|&p| set.queue_for(Some(p))).collect();
    indexes.push(QueueIndex::DEFAULT);
    let length = FrameLen::new(60).expect("invariant: a frame");
    let mut machine = Machine::new(config, windows, set).expect("invariant: a configuration");

    let mut now = Instant::<Tai>::from_ns(0);
    let _ = black_box(machine.on(now, Event::ClockSync(true)));
    let mut turn = (0..).map(|n: usize| indexes[n % indexes.len()]);
    let mut arrive = |frame: usize| Event::Arrive {
        frame,
        length,
        queue: turn.next().expect("invariant: endless"),
    };
    // Let them wait behind a clock that stands still and a line that is busy.
    for frame in 0..=waiting {
        let _ = black_box(machine.on(now, arrive(frame)));
    }
    let before = machine.counters().total().released;
    let started = clock();
    for _ in 0..FRAMES {
        let mut actions = black_box(machine.on(black_box(now), arrive(7)));
        while actions.transmit.is_none() {
            match actions.next {
                Next::At(at) => now = at,
                Next::Now | Next::WhenFrameArrives => {}
            }
            actions = black_box(machine.on(black_box(now), Event::Tick));
        }
    }
    let elapsed = started.elapsed();
    let total = machine.counters().total();
    assert_eq!((total.dropped_full, total.released - before), (0, u64::from(FRAMES)));
    elapsed.as_secs_f64() * 1e9 / f64::from(FRAMES)
}

/// Windows that the station owns all the time, 220 us each.
fn windows() -> CyclicWindows {
    let window = |offset| Window { offset: Span::from_us(offset), length: Span::from_us(220) };
    let windows = (0..4).map(|n| window(n * 220)).collect();
    CyclicWindows::new(Instant::from_ns(0), Span::from_us(880), windows)
        .expect("invariant: windows inside the cycle")
}

fn classify(count: u16) -> f64 {
    let priority = |n: u16| Priority::new(u64::from(n % 32) + 1).expect("invariant: a priority");
    let port = |n: u16| Port::new(u64::from(n) + 1_000).expect("invariant: a port");
    let list: Vec<_> = (0..count).map(|n| (port(n), priority(n))).collect();
    let rules = PortRules::new(32, &list).expect("invariant: distinct ports");
    let mut frame = [0_u8; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..18].copy_from_slice(&[0x45, 0, 0, 46]);
    frame[23] = 17;
    let started = clock();
    for n in 0..FRAMES {
        frame[36..38].copy_from_slice(&(1_000 + u16::from(n.to_le_bytes()[0])).to_be_bytes());
        black_box(rules.classify(black_box(&frame)));
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(FRAMES)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures wall time")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
