// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ten thousand small networks at random with faults at random: none panics, every frame is
//! accounted for, and the same seed gives the same outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use timewire_base::{BitsPerSecond, FrameLen, Span};
use timewire_sim::net::{
    Access, ClockSpec, Delay, Fault, FaultKind, LinkSpec, MediumSpec, Network, NodeSpec, Observer,
    PortIndex, Replay, Seen, SimOutcome, Simulation, StreamSpec, SyncSpec, Traffic, What,
    plain_port,
};
use timewire_tsn::port::{AsyncLimits, CreditRules, GateEntry, GateList, Order, PortConfig, Ps};

const SEEDS: u64 = 10_000;
/// Runs this seed only.
const ONE_SEED: &str = "TIMEWIRE_SIM_SEED";

#[test]
#[allow(clippy::disallowed_methods, reason = "the seed of a test is not the simulator's input")]
fn t2_random_networks_with_random_faults_lose_no_frame_unseen() {
    let one = std::env::var(ONE_SEED).ok().map(|seed| seed.parse::<u64>().unwrap());
    let seeds = one.map_or(0..SEEDS, |seed| seed..seed + 1);
    let (mut sent, mut delivered, mut lost, mut outside, mut collisions) = (0, 0, 0, 0, 0);
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    for seed in seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| Simulation::run(&network(seed)).unwrap()));
        let repeat = format!("{ONE_SEED}={seed} cargo test -p timewire-sim --test all net_seeds::");
        let Ok(outcome) = outcome else { panic!("a panic; to repeat it:\n  {repeat}") };
        assert_eq!(outcome.violations, [], "to repeat it:\n  {repeat}");
        if seed % 16 == 0 {
            let again = Simulation::run(&network(seed)).unwrap();
            assert!(again == outcome, "not the same twice; to repeat it:\n  {repeat}");
        }
        let sum = |of: fn(&timewire_sim::net::StreamResult) -> u64| -> u64 {
            outcome.streams.iter().map(of).sum()
        };
        sent += sum(|stream| stream.sent);
        delivered += sum(|stream| stream.delivered);
        lost += sum(|stream| stream.lost_total());
        outside += sum(|stream| stream.outside_windows);
        collisions += outcome.collisions;
        digest.outcome(&outcome);
        balanced(&outcome, &repeat);
    }
    println!("{sent} sent, {delivered} delivered, {lost} lost, {outside} outside, {collisions}");
    // The networks do something: a test of networks in which nothing happens would pass too.
    assert!(one.is_some() || (delivered > sent / 8 && lost > sent / 50));
    assert!(one.is_some() || (outside > 0 && collisions > 1_000));
    assert!(
        one.is_some() || digest.0 == DIGEST,
        "a seed no longer gives what it gave: the digest is {:#018x}. If that is meant, say so in \
         CHANGELOG.md",
        digest.0
    );
}

/// What an observer of all frames was told: how many arrived, and how many did not.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<(u64, u64)>>);

impl Observer for Counts {
    fn seen(&mut self, seen: &Seen) {
        let mut counts = self.0.lock().unwrap();
        match seen.what {
            What::Delivered { .. } => counts.0 += 1,
            What::Missed { .. } => counts.1 += 1,
            _ => {}
        }
    }
}

#[test]
fn t2_copies_for_several_listeners_and_replays_are_accounted_for() {
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    let (mut copies, mut lost) = (0, 0);
    for seed in 0..SEVERAL_SEEDS {
        let network = several(seed);
        let outcome = Simulation::run(&network).unwrap();
        let counts = Counts::default();
        let mut simulation = Simulation::new(&network).unwrap();
        simulation.observe(Box::new(counts.clone()));
        while simulation.go_on(u64::MAX).unwrap() {}
        assert!(simulation.finish() == outcome, "an observer changes nothing; seed {seed}");
        assert_eq!(outcome.violations, [], "seed {seed}");
        let sum = |of: fn(&timewire_sim::net::StreamResult) -> u64| -> u64 {
            outcome.streams.iter().map(of).sum()
        };
        let told = (sum(|stream| stream.delivered), sum(|stream| stream.lost_total()));
        assert_eq!(*counts.0.lock().unwrap(), told, "seed {seed}");
        balanced(&outcome, &format!("seed {seed}"));
        digest.outcome(&outcome);
        for result in outcome.listeners.values().flatten() {
            copies += result.delivered;
            lost += result.lost_total();
            digest.all(result.lost);
            let longest = result.latencies.max_ps().unwrap_or(0);
            digest.all([result.sent, result.delivered, result.in_flight, longest]);
        }
    }
    println!("{copies} copies arrived and {lost} did not");
    assert!(copies > 10 * SEVERAL_SEEDS && lost > SEVERAL_SEEDS);
    assert_eq!(digest.0, SEVERAL_DIGEST, "the digest is {:#018x}", digest.0);
}

const SEVERAL_SEEDS: u64 = 1_000;
/// Everything that came out of these seeds, as it was when releases came to go by clocks that are
/// set.
const SEVERAL_DIGEST: u64 = 0x2c8c_e031_deb4_1a3f;

/// A network with more listeners, and captured frames in some.
fn several(seed: u64) -> Network {
    let (mut network, mut dice) = (network(seed), Dice(!seed));
    for number in 0..network.streams.len() {
        let spec = &network.streams[number];
        let free = |node: &usize| *node != spec.from && *node != spec.to;
        let mut others: Vec<usize> = (0..network.nodes.len()).filter(free).collect();
        let more = dice.place(4).min(others.len());
        let taken = (0..more).map(|_| others.swap_remove(dice.place(others.len())));
        let taken: Vec<usize> = taken.collect();
        if !taken.is_empty() {
            network.more_listeners.insert(number, taken);
        }
    }
    let cyclic = matches!(network.streams[0].traffic, Traffic::Cyclic { .. });
    let babbles = network.faults.iter().any(|fault| fault.kind == FaultKind::Babble(0));
    if cyclic && !babbles {
        let (mut frames, mut at) = (Replay::default(), Span::ZERO);
        for _ in 0..dice.below(40) {
            at += dice.ns(50_000);
            let length = FrameLen::new(60 + u32::try_from(dice.below(1_455)).unwrap()).unwrap();
            frames.push(at, length).unwrap();
        }
        let offset = dice.ns(100_000);
        network.streams[0].traffic = Traffic::Replay { frames: Arc::new(frames), offset };
    }
    network
}

/// Everything that came out of all seeds, as it was when releases came to go by clocks that are
/// set.
const DIGEST: u64 = 0x66c4_b03f_07ba_7478;

/// FNV-1a over numbers.
struct Digest(u64);

impl Digest {
    fn add(&mut self, number: u64) {
        for byte in number.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn all<const N: usize>(&mut self, numbers: [u64; N]) {
        numbers.into_iter().for_each(|number| self.add(number));
    }

    /// All but how it was computed: in how many events, with how many frames at a time.
    fn outcome(&mut self, outcome: &SimOutcome) {
        self.all([outcome.hops, outcome.collisions]);
        for stream in &outcome.streams {
            let of = &stream.latencies;
            let known = [of.min_ps(), of.max_ps(), of.mean_ps(), of.at_ppm(500_000)];
            self.all(known.map(|ps| ps.unwrap_or(u64::MAX)));
            self.all(stream.lost);
            self.all([stream.sent, stream.delivered, stream.in_flight, of.count()]);
            self.all([stream.outside_windows, stream.timeouts]);
        }
    }
}

fn balanced(outcome: &SimOutcome, repeat: &str) {
    for stream in &outcome.streams {
        let sum = stream.delivered + stream.lost_total() + stream.in_flight;
        assert_eq!(stream.sent, sum, "to repeat it:\n  {repeat}");
        assert!(stream.latencies.count() <= stream.delivered);
    }
}

/// SplitMix64, with the draws that a generator needs.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn place(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound.try_into().unwrap())).unwrap()
    }

    fn ns(&mut self, bound: u64) -> Span {
        Span::from_ns(i64::try_from(self.below(bound)).unwrap())
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn delay(&mut self) -> Delay {
        match self.below(8) {
            0 => Delay::Uniform(Span::ZERO, self.ns(20_000)),
            1 => Delay::Normal { mean: self.ns(10_000), deviation: self.ns(5_000) },
            2 => Delay::Exponential { min: self.ns(1_000), mean: self.ns(9_000) },
            3 => Delay::Empirical(vec![self.ns(1_000), self.ns(9_000)]),
            4 => Delay::Fixed(self.ns(5_000)),
            _ => Delay::NONE,
        }
    }

    fn gates(&mut self) -> GateList {
        let entries: Vec<GateEntry> = (0..1 + self.below(4))
            .map(|_| GateEntry {
                open: u8::try_from(self.below(256)).unwrap(),
                interval: Span::from_ns(1_000) + self.ns(200_000),
                hold: self.one_in(5),
            })
            .collect();
        let base = i64::try_from(self.below(1_000_000_000)).unwrap();
        GateList::new(Ps::new(base), None, &entries).unwrap()
    }

    fn port(&mut self, rate: u64) -> PortConfig {
        let mut port = plain_port(BitsPerSecond::new(rate).unwrap());
        if self.one_in(4) {
            port.gates = Some(self.gates());
        }
        for class in 0..8 {
            let config = &mut port.classes[class];
            config.order = match self.below(8) {
                0 => Order::Timed,
                1 => Order::TimedStrict,
                _ => Order::Arrival,
            };
            config.capacity = if self.one_in(3) { Some(4) } else { None };
            if self.one_in(6) {
                let rules = match self.below(2) {
                    0 => CreditRules::Standard,
                    _ => CreditRules::Linux { hi_credit: 200, lo_credit: -1_400 },
                };
                let idle = rate / 10 + self.below(rate / 2);
                config.credit = Some((BitsPerSecond::new(idle).unwrap(), rules));
            }
            config.preemptable = class < 3 && self.one_in(4);
        }
        port.hold_advance = Ps::of_bytes(143, port.rate);
        port
    }

    fn clock(&mut self) -> ClockSpec {
        if self.one_in(2) {
            return ClockSpec::default();
        }
        let sync = SyncSpec {
            interval: Span::from_ns(10_000) + self.ns(2_000_000),
            error: self.ns(2_000),
            bias: self.ns(1_000),
            rate: self.one_in(2),
        };
        ClockSpec {
            offset: self.ns(20_000) - self.ns(20_000),
            drift_ppb: i32::try_from(self.below(200_000)).unwrap() - 100_000,
            wander_ppb: u32::try_from(self.below(1_000)).unwrap(),
            sync: self.one_in(2).then_some(sync),
        }
    }
}

/// A tree of up to seven nodes, with a shared segment in some, and up to seven streams.
fn network(seed: u64) -> Network {
    let mut dice = Dice(seed);
    let mut network = Network::empty(Span::from_us(1_500), seed);
    let count = 2 + dice.place(6);
    for _ in 0..count {
        network.nodes.push(NodeSpec {
            forward: dice.delay(),
            send: dice.delay(),
            receive: dice.delay(),
            cut_through_bytes: dice.one_in(3).then_some(64),
            clock: dice.clock(),
        });
    }
    for node in 1..count {
        let rate = [10_000_000, 100_000_000, 1_000_000_000][dice.place(3)];
        let peer = dice.place(node);
        let ends = [(peer, dice.port(rate)), (node, dice.port(rate))];
        let (loss_ppb, corrupt_ppb) =
            if dice.one_in(5) { (50_000_000, 50_000_000) } else { (0, 0) };
        network.links.push(LinkSpec { ends, delay: dice.ns(2_000), loss_ppb, corrupt_ppb });
    }
    if dice.one_in(2) {
        let access = match dice.below(4) {
            0 => Access::InTurn,
            1 => Access::Token { hold: dice.ns(300_000), pass: dice.ns(5_000) },
            _ => Access::Contention,
        };
        let delay = dice.ns(2_000);
        let first = network.nodes.len();
        let stations = 2 + dice.place(4);
        network.nodes.resize(first + stations, NodeSpec::default());
        let mut on: Vec<_> = (0..stations).map(|n| (first + n, dice.port(10_000_000))).collect();
        // One of the tree is a station of the segment.
        on.push((dice.place(count), dice.port(10_000_000)));
        let (stations, loss_ppb, corrupt_ppb) = (on, 0, 0);
        network.media = vec![MediumSpec { access, delay, stations, loss_ppb, corrupt_ppb }];
    }
    for _ in 0..1 + dice.below(7) {
        stream(&mut dice, &mut network);
    }
    for _ in 0..dice.below(4) {
        fault(&mut dice, &mut network);
    }
    network
}

fn stream(dice: &mut Dice, network: &mut Network) {
    let nodes = network.nodes.len();
    let from = dice.place(nodes);
    let to = (from + 1 + dice.place(nodes - 1)) % nodes;
    let period = Span::from_ns(20_000) + dice.ns(400_000);
    let traffic = match dice.below(4) {
        0 => Traffic::Sporadic { gap: Delay::Exponential { min: dice.ns(20_000), mean: period } },
        _ => Traffic::Cyclic {
            period,
            offset: dice.ns(400_000),
            jitter: dice.delay(),
            frames: u32::try_from(1 + dice.below(3)).unwrap(),
            spacing: dice.ns(5_000),
        },
    };
    let max_residence = dice.ns(1_000_000);
    let rate = BitsPerSecond::new(1_000_000 + dice.below(50_000_000)).unwrap();
    let shape = AsyncLimits { rate, burst_bytes: 3_000, max_residence };
    let number = network.streams.len();
    let frame = FrameLen::new(60 + u32::try_from(dice.below(1_455)).unwrap()).unwrap();
    network.streams.push(StreamSpec {
        from,
        to,
        class: dice.place(8),
        frame,
        traffic,
        launch: dice.one_in(4).then(|| dice.ns(100_000)),
        shape: dice.one_in(6).then_some(shape),
    });
    if dice.one_in(4) {
        // Somebody answers, and the stream asks again only then.
        let answer = StreamSpec {
            from: to,
            to: from,
            traffic: Traffic::After { stream: number, work: dice.delay(), from_cause: true },
            ..network.streams[number].clone()
        };
        network.streams.push(answer);
        network.streams[number].traffic = Traffic::Request {
            answer: number + 1,
            think: dice.delay(),
            timeout: Span::from_us(1) + dice.ns(500_000),
            first: dice.ns(100_000),
        };
    }
}

fn fault(dice: &mut Dice, network: &mut Network) {
    let (links, streams) = (network.links.len(), network.streams.len());
    let kind = match dice.below(9) {
        0 => FaultKind::Loss(dice.place(links), 300_000_000),
        1 => FaultKind::Corruption(dice.place(links), 300_000_000),
        2 => FaultKind::LinkDown(dice.place(links)),
        3 => FaultKind::Babble(dice.place(streams)),
        4 => FaultKind::Restart(dice.place(network.nodes.len())),
        5 => {
            FaultKind::ClockStep(dice.place(network.nodes.len()), dice.ns(90_000) - dice.ns(90_000))
        }
        6 => FaultKind::MasterLost,
        7 => FaultKind::LateApplication(dice.place(streams), dice.ns(100_000)),
        _ => FaultKind::Gates {
            port: PortIndex(dice.place(2 * links)),
            change: Ps::from_span(dice.ns(1_500_000)),
            gates: if dice.one_in(3) { None } else { Some(Box::new(dice.gates())) },
        },
    };
    network.faults.push(Fault { at: dice.ns(1_500_000), lasts: dice.ns(800_000), kind });
}
