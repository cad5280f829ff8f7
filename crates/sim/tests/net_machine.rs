// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port of the simulator with the slots of a schedule, and the machine that sends on real
//! interfaces: the same frames leave at the same nanoseconds, in windows and queues at random.

use std::sync::{Arc, Mutex};

use timewire_base::{
    BitsPerSecond, CyclicWindows, FrameLen, Instant, Priority, Sequence, Span, Window,
};
use timewire_sim::net::{
    LinkSpec, Network, NodeSpec, Observer, Replay, Seen, Simulation, StreamSpec, Traffic, What,
};
use timewire_tsn::port::{GateEntry, GateList, Ps};
use timewire_tsn::{Config, Event, Machine, Mode, Next, QueueIndex, QueueSet};

const CYCLE: i64 = 1_000_000;
const CLASSES: usize = 8;

fn rate() -> BitsPerSecond {
    // Eighty nanoseconds a byte: both count in whole ones.
    BitsPerSecond::new(100_000_000).unwrap()
}

fn below(random: &mut Sequence, bound: u64) -> i64 {
    i64::try_from(random.next() % bound).unwrap()
}

/// A frame: when it comes, its class and its length.
type Arrival = (i64, usize, u32);

/// Frames at different nanoseconds, in the order of time.
fn arrivals(random: &mut Sequence) -> Vec<Arrival> {
    let mut all: Vec<Arrival> = (0..150)
        .map(|_| {
            let class = usize::try_from(random.next() % 8).unwrap();
            let at = below(random, 1_000_000) * 8 + i64::try_from(class).unwrap();
            let bytes = u32::try_from(60 + random.next() % 1_455).unwrap();
            (at, class, bytes)
        })
        .collect();
    all.sort_unstable();
    all.dedup_by_key(|(at, ..)| *at);
    all
}

/// One to three windows that do not touch: offset and length.
fn windows(random: &mut Sequence) -> Vec<(i64, i64)> {
    let count = 1 + below(random, 3);
    let part = CYCLE / count;
    let window = |place: i64, random: &mut Sequence| {
        let offset = place * part + below(random, 50_000);
        (offset, 20_000 + below(random, 200_000))
    };
    (0..count).map(|place| window(place, random)).collect()
}

struct Starts(Arc<Mutex<Vec<(i64, usize, u32)>>>);

impl Observer for Starts {
    fn seen(&mut self, seen: &Seen) {
        if let What::Started { .. } = seen.what {
            assert_eq!(seen.at_ps % 1_000, 0);
            let ns = i64::try_from(seen.at_ps / 1_000).unwrap();
            self.0.lock().unwrap().push((ns, seen.stream, seen.number));
        }
    }
}

/// When each frame starts, as the simulator has it: time, class, number in its class.
fn simulated(frames: &[Arrival], windows: &[(i64, i64)], until: i64) -> Vec<(i64, usize, u32)> {
    let mut network = Network::empty(Span::from_ns(until), 1);
    network.nodes = vec![NodeSpec::default(); 2];
    network.links = vec![LinkSpec::plain(0, 1, rate(), Span::ZERO)];
    let (mut entries, mut end) = (Vec::new(), 0);
    let mut entry = |open, ns: i64| {
        if ns > 0 {
            let interval = Span::from_ns(ns);
            entries.push(GateEntry { open, interval, hold: false });
        }
    };
    for (offset, length) in windows {
        entry(0, offset - end);
        entry(0xff, *length);
        end = offset + length;
    }
    entry(0, CYCLE - end);
    let list = GateList::new(Ps::ZERO, Some(Span::from_ns(CYCLE)), &entries).unwrap();
    network.links[0].ends[0].1.gates = Some(list);
    for class in 0..CLASSES {
        let mut replay = Replay::default();
        for (at, _, bytes) in frames.iter().filter(|frame| frame.1 == class) {
            replay.push(Span::from_ns(*at), FrameLen::new(*bytes).unwrap()).unwrap();
        }
        let frame = replay.longest().unwrap_or(FrameLen::new(60).unwrap());
        let traffic = Traffic::Replay { frames: Arc::new(replay), offset: Span::ZERO };
        let stream =
            StreamSpec { from: 0, to: 1, class, frame, traffic, launch: None, shape: None };
        network.streams.push(stream);
    }
    let starts = Arc::new(Mutex::new(Vec::new()));
    let mut simulation = Simulation::new(&network).unwrap();
    simulation.observe(Box::new(Starts(Arc::clone(&starts))));
    while simulation.go_on(u64::MAX).unwrap() {}
    assert_eq!(simulation.finish().violations, []);
    let starts = starts.lock().unwrap();
    starts.clone()
}

/// As the machine of real interfaces has it, called whenever it asks and when a frame comes.
fn really(frames: &[Arrival], windows: &[(i64, i64)], until: i64) -> Vec<(i64, usize, u32)> {
    let config = Config {
        rate: rate(),
        margin: Span::ZERO,
        ahead: Span::ZERO,
        mode: Mode::Tdm,
        best_effort_share: Span::ZERO,
        queue_capacity: 1_024,
    };
    let each = windows.iter().map(|(offset, length)| Window {
        offset: Span::from_ns(*offset),
        length: Span::from_ns(*length),
    });
    let at = |ns: i64| Instant::from_ns(ns);
    let windows = CyclicWindows::new(at(0), Span::from_ns(CYCLE), each.collect()).unwrap();
    let urgency: Vec<Priority> = (1..8).map(|it| Priority::new(it).unwrap()).collect();
    let set = QueueSet::new(&urgency).unwrap();
    let mut machine = Machine::new(config, Some(windows), set).unwrap();
    let _ = machine.on(at(-CYCLE), Event::ClockSync(true));
    let mut numbers = [0; CLASSES];
    let (mut started, mut next) = (Vec::new(), frames.iter().peekable());
    let mut tick: Option<i64> = None;
    loop {
        let comes = next.peek().map(|frame| frame.0);
        let Some(now) = [comes, tick].into_iter().flatten().min().filter(|now| *now <= until)
        else {
            return started;
        };
        // What comes at this instant is there before anything is chosen.
        let event = match comes.filter(|comes| *comes == now).and_then(|_| next.next()) {
            None => Event::Tick,
            Some((_, class, bytes)) => {
                let number = numbers[*class];
                numbers[*class] += 1;
                let length = FrameLen::new(*bytes).unwrap();
                // Priority 1 is the most urgent; class 0 is best effort.
                let priority = Priority::new(8 - u64::try_from(*class).unwrap());
                let queue = match class {
                    0 => QueueIndex::DEFAULT,
                    _ => set.queue_for(priority.ok()),
                };
                Event::Arrive { frame: (*class, number), length, queue }
            }
        };
        let actions = machine.on(at(now), event);
        started.extend(actions.transmit.map(|(class, number)| (now, class, number)));
        tick = match actions.next {
            Next::At(at) => Some(at.as_ns()),
            Next::Now => Some(now),
            Next::WhenFrameArrives => None,
        };
    }
}

#[test]
fn t2_a_port_with_slots_sends_as_the_machine_of_real_interfaces_does() {
    let (mut sent, mut waited) = (0, 0);
    for seed in 0..200 {
        let mut random = Sequence::new(seed);
        let (frames, windows) = (arrivals(&mut random), windows(&mut random));
        let until = 200_000_000;
        let simulated = simulated(&frames, &windows, until);
        assert_eq!(simulated, really(&frames, &windows, until), "seed {seed}: {windows:?}");
        sent += simulated.len();
        let at_once = |start: &&(i64, usize, u32)| frames.iter().any(|frame| frame.0 == start.0);
        waited += simulated.iter().filter(|start| !at_once(start)).count();
    }
    assert!(sent > 20_000 && waited > sent / 2, "{sent} {waited}");
}
