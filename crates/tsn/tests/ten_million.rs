// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Four stations share one line for ten million frames of virtual time: random arrivals, lengths,
//! priorities, late calls, lost synchronisation and changes of the windows. A judge with its own
//! arithmetic looks at every frame on the line. Not one may lie outside its station's windows,
//! cross a change, or meet another frame.

use timewire_base::{BitsPerSecond, CyclicWindows, FrameLen, Instant, Priority, Span, Tai, Window};
use timewire_tsn::{Config, Event, Machine, Mode, Next, QueueIndex, QueueSet};

const STATIONS: usize = 4;
const FRAMES: u64 = 10_000_000;
const START: i64 = 1_700_000_000_000_000_000;
const NEVER: i64 = i64::MAX;
/// From a command to the earliest change; the stations hear of it within the first half.
const NOTICE: i64 = 400_000;

#[test]
fn t0_ten_million_frames_stay_in_their_windows() {
    let outcome = Segment::new(7).run(FRAMES);
    println!("{outcome:?}");
    assert_eq!(outcome.released, FRAMES);
    assert_eq!(outcome.outside, 0);
    assert_eq!(outcome.overlaps, 0);
    assert_eq!(outcome.unsynchronised, 0);
    assert_eq!(outcome.out_of_order, 0);
    // The run was worth something: all that may happen did happen.
    assert!(outcome.changes > 1_000 && outcome.missed_windows > 1_000);
    assert!(outcome.dropped_full > 1_000 && outcome.dropped_oversize > 1_000);
    assert!(outcome.held_unsynchronised > 1_000);
}

#[test]
fn t0_the_same_seed_gives_the_same_run() {
    let [one, two, other] = [3, 3, 4].map(|seed| Segment::new(seed).run(200_000));
    assert_eq!(one, two);
    assert_ne!(one.digest, other.digest);
}

#[test]
fn t0_the_judge_condemns_what_is_wrong() {
    let plan = |base, from| Plan {
        from,
        base,
        cycle: 1_000,
        windows: [vec![(0, 100), (200, 100)], vec![(500, 300)], vec![], vec![]],
    };
    let judge = || Judge::new(plan(0, i64::MIN));
    let mut good = judge();
    for (station, start, end) in [(0, 0, 100), (0, 200, 300), (1, 500, 600), (0, 1_000, 1_001)] {
        good.see(station, start, end);
    }
    assert_eq!((good.outside, good.overlaps), (0, 0));
    for (station, start, end) in [(0, -1, 50), (0, 1, 101), (0, 100, 110), (0, 90, 210), (2, 0, 1)]
    {
        let mut judge = judge();
        judge.see(station, start, end);
        assert_eq!(judge.outside, 1, "{station} {start} {end}");
    }
    let mut meeting = judge();
    meeting.see(0, 0, 50);
    meeting.see(0, 49, 60);
    assert_eq!(meeting.overlaps, 1);
    let mut change = judge();
    change.plans.push(plan(50, 2_050));
    change.see(0, 2_000, 2_050);
    change.see(0, 2_050, 2_150);
    assert_eq!(change.outside, 0);
    let mut crossing = judge();
    crossing.plans.push(plan(50, 2_050));
    crossing.see(0, 2_000, 2_051);
    assert_eq!(crossing.outside, 1);
}

/// The windows of all stations from one instant on, as plain numbers.
struct Plan {
    from: i64,
    base: i64,
    cycle: i64,
    windows: [Vec<(i64, i64)>; STATIONS],
}

impl Plan {
    fn for_station(&self, station: usize) -> CyclicWindows {
        let windows = self.windows[station].iter().map(|&(offset, length)| Window {
            offset: Span::from_ns(offset),
            length: Span::from_ns(length),
        });
        let (base, cycle) = (Instant::from_ns(self.base), Span::from_ns(self.cycle));
        CyclicWindows::new(base, cycle, windows.collect()).unwrap()
    }
}

/// Looks at the frames on the line in the order in which they start, and counts what is wrong.
struct Judge {
    plans: Vec<Plan>,
    line_free: i64,
    outside: u64,
    overlaps: u64,
}

impl Judge {
    fn new(plan: Plan) -> Judge {
        Judge { plans: vec![plan], line_free: i64::MIN, outside: 0, overlaps: 0 }
    }

    fn see(&mut self, station: usize, start: i64, end: i64) {
        let after = self.plans.iter().position(|plan| plan.from > start);
        let (plan, until) = match after {
            Some(next) => (&self.plans[next - 1], self.plans[next].from),
            None => (self.plans.last().unwrap(), NEVER),
        };
        let cycles = (start - plan.base).div_euclid(plan.cycle);
        let cycle_start = plan.base + cycles * plan.cycle;
        let inside = |&(offset, length): &(i64, i64)| {
            cycle_start + offset <= start && end <= cycle_start + offset + length
        };
        if end > until || !plan.windows[station].iter().any(inside) {
            self.outside += 1;
        }
        if start < self.line_free {
            self.overlaps += 1;
        }
        self.line_free = end;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    released: u64,
    outside: u64,
    overlaps: u64,
    unsynchronised: u64,
    out_of_order: u64,
    changes: u64,
    missed_windows: u64,
    held_unsynchronised: u64,
    dropped_full: u64,
    dropped_oversize: u64,
    virtual_ns: i64,
    digest: u64,
}

/// What one station still has to be told.
enum Command {
    SetWindows(CyclicWindows, i64),
    ClockSync(bool),
}

struct Station {
    machine: Machine<u64>,
    queues: Vec<QueueIndex>,
    margin: i64,
    line_free: i64,
    next_arrival: i64,
    next_tick: i64,
    command: Option<(i64, Command)>,
    synchronised: bool,
    arrived: u64,
    last_of_queue: [u64; QueueIndex::COUNT],
}

struct Segment {
    random: SplitMix64,
    stations: Vec<Station>,
    judge: Judge,
    next_command: i64,
    not_before: i64,
    outcome: Outcome,
}

impl Segment {
    fn new(seed: u64) -> Segment {
        let mut random = SplitMix64(seed);
        let plan = random_plan(&mut random, i64::MIN, START);
        let stations = (0..STATIONS).map(|n| Station::new(n, &plan)).collect();
        Segment {
            random,
            stations,
            judge: Judge::new(plan),
            next_command: START + 3_000_000,
            not_before: START,
            outcome: Outcome::default(),
        }
    }

    fn run(mut self, frames: u64) -> Outcome {
        let mut now = START;
        while self.outcome.released < frames {
            let due = |station: &Station| {
                let command = station.command.as_ref().map_or(NEVER, |c| c.0);
                station.next_arrival.min(station.next_tick).min(command)
            };
            let times = self.stations.iter().map(due);
            let (station, at) = times.enumerate().min_by_key(|&(_, at)| at).unwrap();
            if self.next_command <= at {
                now = self.next_command;
                self.command(now);
            } else {
                assert!(at >= now, "virtual time runs forward");
                now = at;
                self.call(station, now);
            }
        }
        self.finish(now)
    }

    /// Lets one station do what is due.
    fn call(&mut self, n: usize, now: i64) {
        let station = &mut self.stations[n];
        let event = if station.command.as_ref().is_some_and(|c| c.0 <= now) {
            match station.command.take().unwrap().1 {
                Command::SetWindows(windows, not_before) => Event::SetWindows {
                    windows: Some(windows),
                    not_before: Instant::from_ns(not_before),
                },
                Command::ClockSync(synchronised) => {
                    station.synchronised = synchronised;
                    if !synchronised {
                        let back = now + 1 + self.random.below(2_000_000);
                        station.command = Some((back, Command::ClockSync(true)));
                    }
                    Event::ClockSync(synchronised)
                }
            }
        } else if station.next_arrival <= now {
            station.next_arrival = now + self.random.below(24_000);
            station.arrive(&mut self.random)
        } else {
            Event::Tick
        };
        let changed = matches!(event, Event::SetWindows { .. });
        let actions = station.machine.on(Instant::<Tai>::from_ns(now), event);
        if changed {
            let ours = station.machine.pending().map(|p| p.config_change_time.as_ns());
            assert_eq!(ours, self.judge.plans.last().map(|plan| plan.from));
        }
        station.next_tick = match actions.next {
            Next::Now => now + self.random.below(150),
            Next::WhenFrameArrives => NEVER,
            Next::At(at) => at.as_ns() + lateness(&mut self.random),
        };
        if let Some(frame) = actions.transmit {
            self.transmitted(n, now, frame);
        }
    }

    fn transmitted(&mut self, n: usize, now: i64, frame: u64) {
        let station = &mut self.stations[n];
        let (id, queue, bytes) = (frame >> 24, frame >> 16 & 0xff, frame & 0xffff);
        let start = now.max(station.line_free);
        // At 1 Gbit/s: 8 ns per byte, with check sequence, preamble and gap.
        let end = start + (i64::try_from(bytes.max(60)).unwrap() + 24) * 8;
        station.line_free = end;
        // What the machine promises holds up to its margin.
        self.judge.see(n, start, end + station.margin);
        self.judge.line_free = end;
        let last = &mut station.last_of_queue[usize::try_from(queue).unwrap()];
        self.outcome.out_of_order += u64::from(id <= *last);
        *last = id;
        self.outcome.unsynchronised += u64::from(!station.synchronised);
        self.outcome.released += 1;
        let seen = (frame << 2 | n as u64) ^ start.unsigned_abs();
        self.outcome.digest = SplitMix64(self.outcome.digest ^ seen).next();
    }

    /// Makes other windows for everybody, or takes the synchronisation from one station.
    fn command(&mut self, now: i64) {
        self.next_command = now + 3_000_000 + self.random.below(30_000_000);
        if self.random.below(4) == 0 {
            let n = usize::try_from(self.random.below(4)).unwrap();
            self.stations[n].command = Some((now, Command::ClockSync(false)));
            return;
        }
        self.not_before = now + NOTICE;
        let plan = random_plan(&mut self.random, self.not_before, now);
        for (n, station) in self.stations.iter_mut().enumerate() {
            let command = Command::SetWindows(plan.for_station(n), self.not_before);
            station.command = Some((now + self.random.below(NOTICE / 2), command));
        }
        self.judge.plans.push(plan);
        // The two last are enough, and looked through for every frame.
        if self.judge.plans.len() > 2 {
            self.judge.plans.remove(0);
        }
        self.outcome.changes += 1;
    }

    fn finish(mut self, now: i64) -> Outcome {
        for station in &self.stations {
            let counters = station.machine.counters();
            let total = counters.total();
            let dropped = total.dropped_full + total.dropped_oversize;
            assert_eq!(total.arrived, station.arrived);
            assert_eq!(total.arrived, total.released + dropped + total.depth);
            assert!(total.high_water <= station.machine.config().queue_capacity as u64);
            assert_eq!(counters.clock_steps_back, 0);
            self.outcome.missed_windows += counters.missed_windows;
            self.outcome.held_unsynchronised += counters.held_unsynchronised;
            self.outcome.dropped_full += total.dropped_full;
            self.outcome.dropped_oversize += total.dropped_oversize;
        }
        self.outcome.outside = self.judge.outside;
        self.outcome.overlaps = self.judge.overlaps;
        self.outcome.virtual_ns = now - START;
        self.outcome
    }
}

impl Station {
    /// Each station is set up differently.
    fn new(n: usize, plan: &Plan) -> Station {
        let margin = [0, 200, 1_000, 2_500][n];
        let config = Config {
            rate: BitsPerSecond::new(1_000_000_000).unwrap(),
            margin: Span::from_ns(margin),
            ahead: Span::from_us([0, 20, 0, 60][n]),
            mode: Mode::Tdm,
            best_effort_share: Span::from_us([0, 0, 15, 30][n]),
            queue_capacity: [64, 16, 200, 32][n],
        };
        let priorities: &[u64] = [&[1, 2, 3][..], &[5], &[1, 8, 16, 32], &[]][n];
        let priorities: Vec<_> = priorities.iter().map(|&p| Priority::new(p).unwrap()).collect();
        let set = QueueSet::new(&priorities).unwrap();
        let mut queues: Vec<_> = priorities.iter().map(|&p| set.queue_for(Some(p))).collect();
        queues.push(QueueIndex::DEFAULT);
        let mut machine = Machine::new(config, Some(plan.for_station(n)), set).unwrap();
        let _ = machine.on(Instant::from_ns(START), Event::ClockSync(true));
        Station {
            machine,
            queues,
            margin,
            line_free: i64::MIN,
            next_arrival: START,
            next_tick: NEVER,
            command: None,
            synchronised: true,
            arrived: 0,
            last_of_queue: [0; QueueIndex::COUNT],
        }
    }

    /// The handle says everything the judge must know: number, queue and length of the frame.
    fn arrive(&mut self, random: &mut SplitMix64) -> Event<u64> {
        self.arrived += 1;
        let pick = random.below(i64::try_from(self.queues.len()).unwrap()).unsigned_abs();
        let most = if random.below(2) == 0 { 80 } else { 1_455 };
        let bytes = 60 + random.below(most).unsigned_abs();
        Event::Arrive {
            frame: self.arrived << 24 | pick << 16 | bytes,
            length: FrameLen::new(u32::try_from(bytes).unwrap()).unwrap(),
            queue: self.queues[usize::try_from(pick).unwrap()],
        }
    }
}

/// A cycle of 4 to 12 windows in random order, some of them touching, some too short for long
/// frames.
fn random_plan(random: &mut SplitMix64, not_before: i64, now: i64) -> Plan {
    let mut windows: [Vec<(i64, i64)>; STATIONS] = Default::default();
    let mut at = random.below(10_000);
    let count = 4 + random.below(9);
    for n in 0..count {
        let station = if n < 4 { n } else { random.below(4) };
        let length = 5_000 + random.below(150_000);
        windows[usize::try_from(station).unwrap()].push((at, length));
        at += length + random.below(3) * random.below(10_000);
    }
    let cycle = at + random.below(5_000);
    let base = now - 1_000_000_000 + random.below(2_000_000_000);
    // Counted up from a cycle start before, not by the arithmetic of the product.
    let mut from = not_before;
    if not_before != i64::MIN {
        from = base - ((base - not_before) / cycle + 2) * cycle;
        while from < not_before {
            from += cycle;
        }
    }
    Plan { from, base, cycle, windows }
}

/// Mostly none to speak of, sometimes a fraction of a window, rarely whole cycles.
fn lateness(random: &mut SplitMix64) -> i64 {
    match random.below(1_000) {
        0 => random.below(4_000_000),
        1..=50 => random.below(30_000),
        _ => random.below(200),
    }
}

/// Vigna's generator: a fixed sequence for each seed.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below `bound`.
    fn below(&mut self, bound: i64) -> i64 {
        let wide = u128::from(self.next()) * u128::try_from(bound).unwrap();
        i64::try_from(wide >> 64).unwrap()
    }
}
