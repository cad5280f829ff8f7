// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed workloads to count instructions of: `mac_instructions FRAMES NAME`. Two runs with
//! different numbers of frames, subtracted, leave the cost of a frame without that of starting up.
//! The bounds are in `instructions.txt`.
//!
//! - `machine`: one arrival and one tick per frame at the pace of the line, behind eight queues and
//!   windows with a best-effort share; other windows every 4096 frames.
//! - `overload`: the same behind 33 full queues; of three frames that arrive, some two are dropped.
//! - `classify`: one classification by 14 rules per frame.

use std::hint::black_box;

use timewire_base::{
    BitsPerSecond, CyclicWindows, FrameLen, Instant, Port, Priority, Span, Tai, Window,
};
use timewire_tsn::{Config, Event, Machine, Mode, Next, PortRules, QueueSet};

const FRAMES_PER_CHANGE: u64 = 4_096;

fn main() {
    // `cargo bench` adds an option of its own.
    #[expect(clippy::disallowed_methods, reason = "a benchmark takes arguments")]
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|text| !text.starts_with('-')).collect();
    let frames = arguments.first().map_or(Ok(20_000), |text| text.parse::<u64>());
    let name = arguments.get(1).map_or("machine", String::as_str);
    let done = match (name, frames) {
        ("machine", Ok(frames)) => machine(frames, &[1, 5, 9, 13, 17, 21, 25], 1),
        ("overload", Ok(frames)) => {
            machine(frames, &(1..=u64::from(Priority::MAX)).collect::<Vec<_>>(), 3)
        }
        ("classify", Ok(frames)) => classify(frames),
        _ => {
            eprintln!("usage: mac_instructions [FRAMES [machine | overload | classify]]");
            #[expect(clippy::disallowed_methods, reason = "a benchmark is a program")]
            std::process::exit(2);
        }
    };
    println!("{name}: {done}");
}

/// Runs the machine with `arrivals` frames for each tick, `frames` frames in all.
fn machine(frames: u64, priorities: &[u64], arrivals: u64) -> String {
    let config = Config {
        rate: BitsPerSecond::new(100_000_000).expect("invariant: a rate"),
        margin: Span::from_us(2),
        ahead: Span::from_us(20),
        mode: Mode::Tdm,
        best_effort_share: Span::from_us(20),
        queue_capacity: 64,
    };
    let priorities: Vec<Priority> =
        priorities.iter().filter_map(|&n| Priority::new(n).ok()).collect();
    let set = QueueSet::new(&priorities).expect("invariant: distinct priorities");
    let mut queues: Vec<_> = priorities.iter().map(|&p| set.queue_for(Some(p))).collect();
    queues.push(set.queue_for(None));
    let mut machine =
        Machine::new(config, Some(windows(0)), set).expect("invariant: a configuration");
    let mut now = Instant::<Tai>::from_ns(0);
    let mut next = machine.on(now, Event::ClockSync(true)).next;

    let mut random = SplitMix64(1);
    for n in 0..frames {
        let [low, high, pick, ..] = random.next().to_le_bytes();
        let length = FrameLen::new(60 + u32::from(u16::from_le_bytes([low, high]) % 1_455));
        let length = length.expect("invariant: a frame");
        let queue = queues[usize::from(pick) % queues.len()];
        next = machine.on(now, Event::Arrive { frame: n, length, queue }).next;
        if n % FRAMES_PER_CHANGE == 0 {
            let windows = Some(windows(n / FRAMES_PER_CHANGE));
            next = machine.on(now, Event::SetWindows { windows, not_before: now }).next;
        }
        if n % arrivals == 0 {
            if let Next::At(at) = next {
                now = now.max(at);
            }
            next = machine.on(now, Event::Tick).next;
        }
    }
    format!("{:?}, then {next:?}", machine.counters().total())
}

/// The four slots of 220 us and 40 us that belong to one station in turn.
fn windows(turn: u64) -> CyclicWindows {
    let offset = Span::from_us(i64::try_from(turn % 4).expect("invariant: below 4") * 260);
    let window = Window { offset, length: Span::from_us(220) };
    CyclicWindows::new(Instant::from_ns(0), Span::from_us(1_040), vec![window])
        .expect("invariant: a window inside the cycle")
}

fn classify(frames: u64) -> String {
    let rule = |n| Some((Port::new(15_000 + n).ok()?, Priority::new(n / 2 + 1).ok()?));
    let rules: Vec<(Port, Priority)> = (0_u64..14).filter_map(rule).collect();
    let rules = PortRules::new(7, &rules).expect("invariant: distinct ports");
    let mut frame = [0_u8; 60];
    frame[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0x00, 0, 46]);
    frame[23] = 17;
    let mut found = 0_u64;
    for n in 0..frames {
        let port = 15_000 + u16::from(n.to_le_bytes()[0] % 20);
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        found += u64::from(rules.classify(black_box(&frame)).is_some());
    }
    format!("{found} of {frames} have a priority")
}

/// Vigna's generator: a fixed sequence on every machine.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
