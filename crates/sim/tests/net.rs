// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks whose figures theory knows.

use timewire_base::{BitsPerSecond, FrameLen, Span};
use timewire_sim::net::{
    Access, ClockSpec, Delay, Fault, FaultKind, LinkSpec, LostBy, MediumSpec, NetError, Network,
    NodeSpec, PhaseSearch, SimOutcome, Simulation, StreamResult, StreamSpec, SyncSpec, Traffic,
    plain_port,
};
use timewire_tsn::port::{AsyncLimits, CreditRules, GateEntry, GateList, Order, PortConfig, Ps};

fn us(us: i64) -> Span {
    Span::from_us(us)
}

fn rate(mbit: u64) -> BitsPerSecond {
    BitsPerSecond::new(mbit * 1_000_000).unwrap()
}

fn cyclic(from: usize, to: usize, bytes: u32, period: Span, offset: Span) -> StreamSpec {
    let frame = FrameLen::new(bytes).unwrap();
    let traffic = burst(period, offset, 1);
    StreamSpec { from, to, class: 0, frame, traffic, launch: None, shape: None }
}

fn burst(period: Span, offset: Span, frames: u32) -> Traffic {
    Traffic::Cyclic { period, offset, jitter: Delay::NONE, frames, spacing: us(0) }
}

/// So many nodes in a row, with links of 100 Mbit/s without delay.
fn line(nodes: usize, duration: Span) -> Network {
    let mut network = Network::empty(duration, 1);
    network.nodes = vec![NodeSpec::default(); nodes];
    network.links = (1..nodes).map(|n| LinkSpec::plain(n - 1, n, rate(100), us(0))).collect();
    network
}

fn run(network: &Network) -> SimOutcome {
    let outcome = Simulation::run(network).unwrap();
    assert_eq!(outcome.violations, []);
    outcome
}

fn least_and_most(outcome: &SimOutcome, stream: usize) -> (u64, u64) {
    let latencies = &outcome.streams[stream].latencies;
    (latencies.min_ps().unwrap(), latencies.max_ps().unwrap())
}

#[test]
fn t2_a_frame_takes_its_length_at_each_hop() {
    let mut network = line(4, Span::from_ms(10));
    for link in &mut network.links {
        link.delay = Span::from_ns(50);
    }
    network.nodes[1].forward = Delay::Fixed(us(2));
    network.streams = vec![cyclic(0, 3, 1_000, us(1_000), us(0))];
    // 1000 bytes, check sequence, preamble: 1012 bytes at 80 ns, three times.
    let one = 1_012 * 80_000 + 50_000;
    assert_eq!(least_and_most(&run(&network), 0), (3 * one + 2_000_000, 3 * one + 2_000_000));
    // Cut through: 64 bytes and the preamble at each bridge instead of the whole.
    for node in &mut network.nodes {
        node.cut_through_bytes = Some(64);
    }
    let head = 72 * 80_000 + 50_000;
    let through = 2 * head + one + 2_000_000;
    assert_eq!(least_and_most(&run(&network), 0), (through, through));
    // A faster link cannot begin before everything is there.
    network.links[1] = LinkSpec::plain(1, 2, rate(1_000), us(0));
    let mixed = one + 2_000_000 + 72 * 8_000 + one;
    assert_eq!(least_and_most(&run(&network), 0), (mixed, mixed));
}

#[test]
fn t2_a_queue_of_regular_arrivals_is_exact() {
    // D/D/1: five streams at the same instant; a frame is 10 us on the link, 125 bytes.
    let mut network = line(2, Span::from_ms(100));
    network.streams = (0..5).map(|_| cyclic(0, 1, 101, us(100), us(0))).collect();
    let outcome = run(&network);
    for (place, stream) in (0..).zip(&outcome.streams) {
        let latency = 10_000_000 * (place + 1) - 12 * 80_000;
        assert_eq!(stream.latencies.min_ps(), Some(latency));
        assert_eq!(stream.latencies.max_ps(), Some(latency));
        assert_eq!((stream.sent, stream.lost_total()), (1_001, 0));
        assert_eq!(stream.delivered + stream.in_flight, 1_001);
    }
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "statistics of a test")]
fn t2_a_queue_of_random_arrivals_waits_as_theory_says() {
    // M/D/1, 60 %: a frame is 10 us on the link, and the mean wait is rho S / (2 (1 - rho)).
    let waits = (0..40).map(|seed| {
        let mut network = line(2, Span::from_ms(200));
        network.seed = seed;
        network.warm_up = Span::from_ms(5);
        let gap = Delay::Exponential { min: us(0), mean: Span::from_ns(16_667) };
        network.streams = vec![cyclic(0, 1, 101, us(1), us(0))];
        network.streams[0].traffic = Traffic::Sporadic { gap };
        let mean = run(&network).streams[0].latencies.mean_ps().unwrap();
        (mean as f64 - 10_000_000.0 + 960_000.0) / 1e6
    });
    let waits: Vec<f64> = waits.collect();
    let n = waits.len() as f64;
    let mean = waits.iter().sum::<f64>() / n;
    let variance = waits.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let theory = 0.6 * 10.0 / (2.0 * 0.4);
    // 99.9 % of Student's t with 39 degrees of freedom, for 40 independent runs of 12 000 frames.
    let half = 3.56 * (variance / n).sqrt();
    assert!((mean - theory).abs() < half, "{mean} +- {half}, {theory}");
    assert!(half < 0.2, "{half}");
}

fn gates(entries: &[(u8, i64)]) -> Option<GateList> {
    let entry = |&(open, us): &(u8, i64)| {
        let interval = Span::from_us(us);
        GateEntry { open, interval, hold: false }
    };
    let entries: Vec<GateEntry> = entries.iter().map(entry).collect();
    Some(GateList::new(Ps::ZERO, None, &entries).unwrap())
}

#[test]
fn t2_networks_that_cannot_be_are_refused() {
    type Change = fn(&mut Network);
    let good = || {
        let mut network = line(3, us(100));
        network.streams = vec![cyclic(0, 2, 101, us(10), us(0))];
        network
    };
    let refused = |change: Change| {
        let mut network = good();
        change(&mut network);
        Simulation::run(&network).unwrap_err().to_string()
    };
    assert!(Simulation::run(&good()).is_ok());
    let cases: [(Change, &str); 8] = [
        (|it| it.streams[0].to = 9, "node 9 does not exist: there are 3"),
        (|it| drop(it.links.pop()), "stream 0 has no way from node 0 to node 2"),
        (|it| it.streams[0].traffic = burst(us(0), us(0), 1), "the period of stream 0 is zero"),
        (
            |it| {
                let gap = Delay::Exponential { min: us(0), mean: us(0) };
                it.streams[0].traffic = Traffic::Sporadic { gap };
            },
            "the gap of stream 0 is zero",
        ),
        (|it| it.streams[0].launch = Some(Span::MAX), "is longer than 86400s"),
        (|it| it.nodes[1].clock.drift_ppb = -1_000_000_000, "by more than 100000 ppm"),
        (|it| it.streams[0].class = 8, "class 8 does not exist"),
        (
            // Their sum would not fit the time of a simulation.
            |it| {
                let kind = |by| FaultKind::ClockStep(1, Span::from_secs(by));
                let fault = |by| Fault { at: us(1), lasts: us(0), kind: kind(by) };
                it.faults = [50_000, -50_000].map(fault).into();
            },
            "a clock's offset and jumps together of 100000s is longer than 86400s",
        ),
    ];
    for (change, said) in cases {
        let text = refused(change);
        assert!(text.contains(said), "{text}");
    }
    let mut long = line(300, us(1));
    long.streams = vec![cyclic(0, 299, 101, us(10), us(0))];
    let text = Simulation::run(&long).unwrap_err().to_string();
    assert!(text.contains("299 hops of a stream are more than 255"), "{text}");
}

#[test]
fn t2_gates_delay_until_the_window() {
    let mut network = line(3, Span::from_ms(50));
    network.links[1].ends[0].1.gates = gates(&[(0x80, 100), (0x7f, 900)]);
    network.streams =
        vec![cyclic(0, 2, 101, us(1_000), us(200)), cyclic(0, 2, 1_514, us(1_000), us(0))];
    network.streams[0].class = 7;
    let outcome = run(&network);
    // Ready at the bridge at 200 + 9.04 us, sent at 1000 us.
    let latency = 800_000_000 + 9_040_000;
    assert_eq!(least_and_most(&outcome, 0), (latency, latency));
    assert_eq!(outcome.streams[1].outside_windows, 0);
}

#[test]
fn t2_a_clock_that_is_wrong_sends_outside_the_windows() {
    let mut network = line(2, Span::from_ms(100));
    network.links[0].ends[0].1.gates = gates(&[(0x01, 100), (0x00, 900)]);
    network.streams = vec![cyclic(0, 1, 101, us(1_000), us(95))];
    // The frames wait for the next window, and leave at its start.
    assert_eq!(run(&network).streams[0].outside_windows, 0);
    network.nodes[0].clock = ClockSpec { offset: us(3), ..ClockSpec::default() };
    let outcome = run(&network);
    let result = &outcome.streams[0];
    assert!(result.outside_windows >= result.delivered && result.delivered > 95);
    // Synchronised from the start on, and released well within the window.
    let error = Span::from_ns(100);
    let sync = SyncSpec { interval: Span::from_ms(10), error, bias: us(0), rate: true };
    network.nodes[0].clock.sync = Some(sync);
    network.streams[0].traffic = burst(us(1_000), us(20), 1);
    assert_eq!(run(&network).streams[0].outside_windows, 0);
    // The master is lost, and the clock goes its own way: 1000 ppm are 85 us in 85 ms.
    network.nodes[0].clock.drift_ppb = 1_000_000;
    network.nodes[0].clock.sync = Some(SyncSpec { rate: false, ..sync });
    assert_eq!(run(&network).streams[0].outside_windows, 0, "10 us in 10 ms");
    let at = Span::from_ms(15);
    network.faults = vec![Fault { at, lasts: Span::from_ms(85), kind: FaultKind::MasterLost }];
    assert!(run(&network).streams[0].outside_windows > 50);
}

#[test]
fn t2_the_tolerance_is_how_far_beyond_a_window_a_transmission_may_be() {
    let mut network = line(2, Span::from_ms(20));
    // The window is as long as the frame, 10 us, and the clock is 3 us ahead.
    network.links[0].ends[0].1.gates = gates(&[(0x01, 10), (0x00, 990)]);
    network.streams = vec![cyclic(0, 1, 101, us(1_000), us(95))];
    network.nodes[0].clock = ClockSpec { offset: us(3), ..ClockSpec::default() };
    for (tolerance, is_kept) in
        [(us(0), false), (Span::from_ns(2_999), false), (us(3), true), (us(4), true), (us(7), true)]
    {
        network.tolerance = tolerance;
        let result = run(&network).streams[0].clone();
        let outside = if is_kept { 0 } else { result.sent };
        assert_eq!(result.outside_windows, outside, "{tolerance}");
    }
}

#[test]
fn t2_credit_spaces_a_burst_at_the_reserved_rate() {
    let mut network = line(2, Span::from_ms(100));
    let shaped = &mut network.links[0].ends[0].1.classes[6];
    shaped.credit = Some((rate(20), CreditRules::Standard));
    network.streams = vec![cyclic(0, 1, 101, us(1_000), us(0))];
    network.streams[0].class = 6;
    network.streams[0].traffic = burst(us(10_000), us(0), 20);
    // 10 us each, at a fifth of the rate: the last of 20 starts 19 * 50 us after the first.
    assert_eq!(least_and_most(&run(&network), 0), (9_040_000, 19 * 50_000_000 + 9_040_000));
}

#[test]
fn t2_preemption_bounds_what_an_express_frame_waits() {
    let mut network = line(2, Span::from_ms(300));
    network.streams = vec![cyclic(0, 1, 60, us(997), us(0)), cyclic(0, 1, 1_514, us(124), us(0))];
    network.streams[0].class = 7;
    let blocked = least_and_most(&run(&network), 0).1;
    assert!(blocked > 100_000_000, "a long frame blocks for up to 123 us: {blocked}");
    network.links[0].ends[0].1.classes[0].preemptable = true;
    let outcome = run(&network);
    // 72 bytes of its own, and 143 bytes at most before it.
    let bound = (72 + 143) * 80_000;
    assert!(least_and_most(&outcome, 0).1 <= bound);
    assert_eq!(outcome.streams[1].lost_total(), 0);
}

#[test]
fn t2_the_rest_of_a_frame_goes_by_the_clock_that_jumped() {
    let mut network = line(2, us(900));
    let port = &mut network.links[0].ends[0].1;
    port.classes[0].preemptable = true;
    let state = |us, hold| GateEntry { open: 0xff, interval: Span::from_us(us), hold };
    port.gates =
        Some(GateList::new(Ps::ZERO, None, &[state(100, false), state(900, true)]).unwrap());
    network.streams = vec![cyclic(0, 1, 1_514, us(1_000), us(50))];
    assert_eq!(run(&network).streams[0].delivered, 0, "the rest waits until 1000 us");
    // 50 us and a little, then from 200 us on, when the clock says 1000: not by the old wake.
    network.faults =
        vec![Fault { at: us(200), lasts: us(0), kind: FaultKind::ClockStep(0, us(800)) }];
    let outcome = run(&network);
    assert!(least_and_most(&outcome, 0).1 < 250_000_000, "{:?}", outcome.streams[0].latencies);
}

/// What is due next comes when the clock that was set says so.
#[test]
fn t2_a_message_is_released_by_the_clock_that_was_set() {
    let sent = |kind| {
        let mut network = line(2, us(29_500));
        let mut stream = cyclic(0, 1, 114, us(10_000), us(0));
        if let Traffic::Cyclic { frames, spacing, .. } = &mut stream.traffic {
            (*frames, *spacing) = (2, us(4_000));
        }
        network.streams = vec![stream];
        network.faults = vec![Fault { at: us(22_000), lasts: us(0), kind }];
        run(&network).streams[0].sent
    };
    // At 0, 4, 10, 14, 20 and 24 ms.
    assert_eq!(sent(FaultKind::ClockStep(1, us(9_000))), 6, "the clock of another");
    assert_eq!(
        sent(FaultKind::ClockStep(0, us(1_000))),
        7,
        "at 23 and 29 ms in place of 24 and 30"
    );
    assert_eq!(sent(FaultKind::ClockStep(0, us(-9_000))), 5, "not before 33 ms");
    assert_eq!(sent(FaultKind::ClockDrift(0, -100_000_000)), 6, "at 24.2 ms");
}

/// Releases and windows of a talker go by its clock.
#[test]
fn t2_a_clock_that_changes_its_rate_is_one_that_had_it() {
    let mut network = line(2, Span::from_ms(50));
    let state = |us, open| GateEntry { open, interval: Span::from_us(us), hold: false };
    network.links[0].ends[0].1.gates =
        Some(GateList::new(Ps::ZERO, None, &[state(100, 0xff), state(900, 0)]).unwrap());
    network.streams = vec![cyclic(0, 1, 114, us(1_000), us(900))];
    let drift = |at, ppb| Fault { at, lasts: us(0), kind: FaultKind::ClockDrift(0, ppb) };
    let mut from_start = network.clone();
    from_start.nodes[0].clock.drift_ppb = 50_000_000;
    let from_start = run(&from_start);
    network.faults = vec![drift(us(0), 50_000_000)];
    let changed = run(&network);
    let told = |it: &SimOutcome| (it.streams[0].delivered, least_and_most(it, 0).1);
    assert_eq!(told(&changed), told(&from_start));
    assert_eq!(changed.streams[0].delivered, 52, "5 % more cycles in 50 ms");
    // Half of the time at the rate, then a tenth too slow.
    network.faults.push(drift(us(25_000), -100_000_000));
    assert_eq!(run(&network).streams[0].delivered, 48);
    network.faults.push(drift(us(0), 100_000_001));
    assert!(Simulation::new(&network).is_err());
}

fn medium(access: Access, stations: usize, duration: Span) -> Network {
    let mut network = Network::empty(duration, 1);
    network.nodes = vec![NodeSpec::default(); stations];
    let port = |node| -> (usize, PortConfig) { (node, plain_port(rate(10))) };
    let stations = (0..stations).map(port).collect();
    let delay = us(1);
    network.media = vec![MediumSpec { access, delay, stations, loss_ppb: 0, corrupt_ppb: 0 }];
    network
}

#[test]
fn t2_stations_contend_and_back_off() {
    let mut network = medium(Access::Contention, 3, Span::from_ms(500));
    network.streams = vec![cyclic(0, 2, 101, us(1_000), us(0))];
    let alone = run(&network);
    // 113 bytes at 800 ns, and the delay.
    assert_eq!(least_and_most(&alone, 0), (91_400_000, 91_400_000));
    assert_eq!(alone.collisions, 0);
    network.streams.push(cyclic(1, 2, 101, us(1_000), us(0)));
    let both = run(&network);
    assert!(both.collisions >= 500, "they begin together each time: {}", both.collisions);
    let delivered = both.streams.iter().map(|s| s.delivered).sum::<u64>();
    assert!(delivered > 990, "but come through: {delivered}");
    // Within the delay of the segment they do not hear each other; after it, they do.
    let apart = |later: i64| {
        let mut network = network.clone();
        network.streams[1] = cyclic(1, 2, 101, us(1_000), Span::from_ns(later));
        run(&network).collisions
    };
    assert!(apart(900) > 0 && apart(1_100) == 0);
}

/// A sender needs nobody to tell it that its own frame has left; the others hear of it later.
#[test]
fn t2_between_frames_of_one_sender_is_a_gap_and_no_delay() {
    let token = Access::Token { hold: Span::from_ms(10), pass: us(0) };
    for access in [Access::Contention, Access::InTurn, token.clone()] {
        let mut network = medium(access.clone(), 3, Span::from_ms(20));
        network.media[0].delay = us(5);
        network.streams = vec![cyclic(0, 2, 60, Span::from_ms(20), us(100))];
        network.streams[0].traffic = burst(Span::from_ms(20), us(100), 11);
        let (least, most) = least_and_most(&run(&network), 0);
        // 84 bytes with preamble and gap.
        assert_eq!(most - least, 10 * 67_200_000, "{access:?}");
        // Beside a second sender, its frames come between, or collide with those of the first.
        let mut other = cyclic(1, 2, 60, Span::from_ms(20), us(110));
        other.traffic = burst(Span::from_ms(20), us(110), 11);
        network.streams.push(other);
        let outcome = run(&network);
        assert_eq!(outcome.streams.iter().map(|it| it.delivered).sum::<u64>(), 22, "{access:?}");
        assert_eq!(outcome.collisions > 0, access == Access::Contention, "{access:?}");
        let (_, most) = least_and_most(&outcome, 0);
        match access {
            // Its second frame waited before the other's first; from then on the other's are
            // between, and each begins a delay later than the end before it.
            Access::InTurn => assert_eq!(most - least, 67_200_000 + 18 * 72_200_000),
            Access::Token { .. } => assert_eq!(most - least, 10 * 67_200_000),
            Access::Contention => {}
        }
    }
}

/// Gates are for every attempt, and a frame that waits for its window keeps none of another class.
#[test]
fn t2_a_frame_that_has_collided_keeps_to_its_gate() {
    let mut network = medium(Access::Contention, 4, Span::from_ms(1_000));
    for (_, port) in &mut network.media[0].stations {
        // In each millisecond, 600 us for long frames and 400 us for class 7.
        port.gates = gates(&[(0x01, 600), (0x80, 400)]);
    }
    network.streams = (0..3).map(|from| cyclic(from, 3, 400, us(5_000), us(0))).collect();
    network.streams.push(cyclic(0, 3, 60, us(1_000), us(650)));
    network.streams[3].class = 7;
    let outcome = run(&network);
    assert!(outcome.collisions > 100, "{}", outcome.collisions);
    for (index, stream) in outcome.streams.iter().enumerate() {
        assert_eq!((stream.outside_windows, stream.lost), (0, Default::default()), "{index}");
    }
    // 72 bytes at 800 ns, and the delay: nobody else may send then.
    assert_eq!(least_and_most(&outcome, 3), (58_600_000, 58_600_000));
    // One of the long frames had to wait for another window.
    assert!((0..3).any(|stream| least_and_most(&outcome, stream).1 > 1_000_000_000));
}

#[test]
fn t2_too_many_collisions_lose_frames() {
    // Everybody always has something to send.
    let mut network = medium(Access::Contention, 40, Span::from_ms(2_000));
    network.streams = (1..40).map(|from| cyclic(from, 0, 60, us(1_000), us(0))).collect();
    let outcome = run(&network);
    let collisions = LostBy::ALL.iter().position(|by| *by == LostBy::Collisions).unwrap();
    assert!(outcome.streams.iter().map(|stream| stream.lost[collisions]).sum::<u64>() > 0);
    let delivered: u64 = outcome.streams.iter().map(|stream| stream.delivered).sum();
    // 67.2 us each would be 29 761; Ethernet under overload still carries much of it.
    assert!((8_000..26_000).contains(&delivered), "{delivered}");
}

#[test]
fn t2_a_token_gives_each_station_its_turn() {
    let token = Access::Token { hold: us(100), pass: us(0) };
    let mut network = medium(token, 4, Span::from_ms(1_000));
    network.streams = vec![cyclic(1, 0, 101, us(777), us(0))];
    let outcome = run(&network);
    // A round of the idle token: 4 * (67.2 + 1) us; a frame waits a round at most.
    let (round, frame) = (4 * 68_200_000, 91_400_000);
    let (least, most) = least_and_most(&outcome, 0);
    assert!(least >= frame && most <= frame + round && most > frame + round * 9 / 10);
    assert_eq!(outcome.collisions, 0);
    let mut network = medium(Access::InTurn, 4, Span::from_ms(100));
    network.streams = (1..4).map(|from| cyclic(from, 0, 101, us(1_000), us(0))).collect();
    let outcome = run(&network);
    // One after the other; the next begins when it hears the end.
    for (place, stream) in (0..).zip(&outcome.streams) {
        assert_eq!(stream.latencies.max_ps(), Some(frame + place * 101_000_000));
    }
}

#[test]
fn t2_requests_pipelines_and_their_timeouts() {
    let mut network = line(3, Span::from_ms(100));
    let mut request = cyclic(0, 2, 101, us(1), us(0));
    let think = Delay::Fixed(us(10));
    request.traffic = Traffic::Request { answer: 1, think, timeout: us(500), first: us(0) };
    let mut answer = cyclic(2, 0, 101, us(1), us(0));
    let work = Delay::Fixed(us(5));
    answer.traffic = Traffic::After { stream: 0, work, from_cause: true };
    network.streams = vec![request, answer];
    let outcome = run(&network);
    // Two hops: a whole frame each, with nothing before it.
    let way = 2 * 9_040_000;
    assert_eq!(least_and_most(&outcome, 0), (way, way));
    assert_eq!(least_and_most(&outcome, 1), (2 * way + 5_000_000, 2 * way + 5_000_000));
    assert_eq!(outcome.streams[0].sent, 100_000_000_000 / (2 * way + 15_000_000) + 1);
    let at = Span::from_ms(50);
    network.faults = vec![Fault { at, lasts: us(5_000), kind: FaultKind::LinkDown(1) }];
    let outcome = run(&network);
    let timeouts = outcome.streams[0].timeouts;
    assert!(timeouts == 10 || timeouts == 11, "one each half millisecond: {timeouts}");
    assert_eq!(outcome.streams.iter().map(|s| s.lost_total()).sum::<u64>(), timeouts);
}

#[test]
fn t2_faults_are_counted_by_their_reason() {
    let mut network = line(3, Span::from_ms(100));
    network.streams = vec![cyclic(0, 2, 101, us(100), us(0))];
    let lost = |network: &Network, by: LostBy| {
        let outcome = run(network);
        let index = LostBy::ALL.iter().position(|other| *other == by).unwrap();
        assert_eq!(outcome.streams[0].lost_total(), outcome.streams[0].lost[index]);
        outcome.streams[0].lost[index]
    };
    // Frames are released at 10.1 ms and each 100 us up to 20.0 ms: 100 of them.
    let fault = |kind| Fault { at: us(10_050), lasts: us(10_000), kind };
    network.faults = vec![fault(FaultKind::LinkDown(1))];
    assert_eq!(lost(&network, LostBy::LinkDown), 100);
    network.faults = vec![fault(FaultKind::Restart(1))];
    assert_eq!(lost(&network, LostBy::Restart), 100);
    network.faults = vec![fault(FaultKind::Loss(0, 1_000_000_000))];
    assert_eq!(lost(&network, LostBy::Link), 100);
    network.faults = vec![fault(FaultKind::Corruption(0, 500_000_000))];
    assert!((25..75).contains(&lost(&network, LostBy::Corrupted)));
    network.faults = vec![fault(FaultKind::LateApplication(0, us(70)))];
    let outcome = run(&network);
    assert_eq!(least_and_most(&outcome, 0), (18_080_000, 88_080_000));
    // A talker that has gone mad fills the link, and everybody else's frames behind it.
    network.streams.push(cyclic(1, 2, 1_000, us(50_000), us(0)));
    network.links[1].ends[0].1.classes[0].capacity = Some(2);
    network.faults = vec![fault(FaultKind::Babble(1))];
    assert!(lost(&network, LostBy::QueueFull) > 5, "of 100");
    network.streams[0].class = 7;
    assert_eq!(lost(&network, LostBy::QueueFull), 0, "class 7 does not mind");
}

#[test]
fn t2_a_queue_takes_as_many_frames_as_it_has_room_for() {
    // Each takes 100 us on the link; ten at once, of which one is on the link and three wait.
    let mut network = line(2, Span::from_ms(9));
    network.streams = vec![cyclic(0, 1, 1_226, us(10_000), us(0))];
    network.streams[0].traffic = burst(us(10_000), us(0), 10);
    let full = |network: &Network| {
        let stream = &run(network).streams[0];
        (stream.delivered, stream.lost[0], stream.lost_total())
    };
    for list in [None, gates(&[(0xff, 1_000)])] {
        network.links[0].ends[0].1.gates = list;
        network.links[0].ends[0].1.classes[0].capacity = Some(3);
        assert_eq!(full(&network), (4, 6, 6));
        network.links[0].ends[0].1.classes[0].capacity = None;
        assert_eq!(full(&network), (10, 0, 0));
    }
    // Another class has a queue of its own.
    network.links[0].ends[0].1.classes[1].capacity = Some(3);
    assert_eq!(full(&network), (10, 0, 0));
}

#[test]
fn t2_what_has_collided_and_waits_is_in_the_queue_of_its_station() {
    // Two stations that cannot hear each other for longer than a frame takes: both only collide,
    // sixteen times, while ever more frames come.
    let sends = |capacity| {
        let mut network = Network::empty(Span::from_ms(10), 1);
        network.nodes = vec![NodeSpec::default(); 2];
        let mut port = plain_port(rate(100));
        port.classes[0].capacity = capacity;
        // The gate closes now and then, and what has collided is put aside.
        port.gates = gates(&[(0xff, 150), (0, 50)]);
        network.media = vec![MediumSpec {
            access: Access::Contention,
            delay: us(40),
            stations: vec![(0, port.clone()), (1, port)],
            loss_ppb: 0,
            corrupt_ppb: 0,
        }];
        network.streams = vec![cyclic(0, 1, 64, us(10), us(0)), cyclic(1, 0, 64, us(10), us(0))];
        let outcome = run(&network);
        let sum = |of: fn(&StreamResult) -> u64| outcome.streams.iter().map(of).sum::<u64>();
        (sum(|it| it.in_flight), sum(|it| it.lost[0]))
    };
    let (waiting, full) = sends(Some(5));
    // Of each station five wait and one is in hand.
    assert!(waiting <= 12 && full > 100, "{waiting} {full}");
    let (waiting, full) = sends(None);
    assert!(waiting > 100 && full == 0, "{waiting} {full}");
}

#[test]
fn t2_frames_that_pile_up_without_a_bound_are_an_error() {
    let fails = |network: &Network| match Simulation::run(network).unwrap_err() {
        NetError::TooManyFrames { stream, port, waits, .. } => (stream, port.0, waits),
        error => panic!("{error}"),
    };
    // The second stream brings a frame each 10 ns to the second link, which takes 6.7 us for one.
    let mut network = line(3, Span::from_secs(10));
    network.links[0] = LinkSpec::plain(0, 1, rate(100_000), us(0));
    network.streams =
        vec![cyclic(0, 2, 64, us(10_000), us(0)), cyclic(0, 2, 64, Span::from_ns(10), us(0))];
    assert_eq!(fails(&network), (1, 2, true));
    // With a bound the rest is lost, and counted.
    network.duration = us(10_000);
    network.links[1].ends[0].1.classes[0].capacity = Some(100);
    let outcome = run(&network);
    assert!(outcome.streams[1].lost[0] > 990_000, "{:?}", outcome.streams[1].lost);
    assert!(outcome.most_in_flight < 1_000);
    // As many on a link that is a minute long.
    network.links[1] = LinkSpec::plain(1, 2, rate(100_000), Span::from_secs(60));
    network.duration = Span::from_secs(10);
    assert_eq!(fails(&network), (1, 0, false));
    // Where collided frames wait for a gate, and where several listen.
    let mut port = plain_port(rate(100));
    port.gates = gates(&[(0xff, 10), (0, 100_000)]);
    network.links.truncate(1);
    network.media = vec![MediumSpec {
        access: Access::InTurn,
        delay: us(0),
        stations: vec![(1, port.clone()), (2, port)],
        loss_ppb: 0,
        corrupt_ppb: 0,
    }];
    network.more_listeners.insert(1, vec![1]);
    assert_eq!(fails(&network), (1, 2, true));
}

#[test]
fn t2_nothing_waits_for_a_frame_that_was_lost() {
    // The first frame, 121 us on the link, is lost with its station; the next one is 6 us on it.
    let mut network = line(3, us(900));
    network.nodes[1].forward = Delay::Fixed(us(2));
    network.streams =
        vec![cyclic(0, 2, 1_500, us(1_000), us(0)), cyclic(0, 2, 64, us(1_000), us(20))];
    network.faults = vec![Fault { at: us(10), lasts: us(1), kind: FaultKind::Restart(0) }];
    let outcome = run(&network);
    let restart = LostBy::ALL.iter().position(|by| *by == LostBy::Restart).unwrap();
    assert_eq!((outcome.streams[0].lost[restart], outcome.streams[1].delivered), (1, 1));
    // 64 bytes, check sequence and preamble.
    let two_hops = 2 * 76 * 80_000 + 2_000_000;
    assert_eq!(least_and_most(&outcome, 1), (two_hops, two_hops));
}

#[test]
fn t2_a_frame_for_one_bridge_of_a_segment_does_not_wait_for_another_bridge() {
    // Station 0 and bridges 1 and 2 on a segment, and behind the bridges 3 and 4.
    let mut network = medium(Access::InTurn, 3, us(900));
    network.nodes = vec![NodeSpec::default(); 5];
    network.links =
        vec![LinkSpec::plain(1, 3, rate(100), us(0)), LinkSpec::plain(2, 4, rate(100), us(0))];
    network.nodes[1].forward = Delay::Fixed(us(300));
    network.streams =
        vec![cyclic(0, 3, 101, us(1_000), us(0)), cyclic(0, 4, 101, us(1_000), us(200))];
    let outcome = run(&network);
    // 113 bytes at 10 and at 100 Mbit/s, and 1 us of the segment.
    let two_hops = 113 * (800_000 + 80_000) + 1_000_000;
    assert_eq!(least_and_most(&outcome, 0), (two_hops + 300_000_000, two_hops + 300_000_000));
    assert_eq!(least_and_most(&outcome, 1), (two_hops, two_hops));
}

#[test]
fn t2_the_worst_phases_are_worse_and_repeatable() {
    let mut network = line(2, Span::from_ms(20));
    network.streams = (0..4).map(|n| cyclic(0, 1, 1_000, us(1_000), us(n * 250))).collect();
    let score = |outcome: &SimOutcome| outcome.streams[0].latencies.max_ps().unwrap_or(0);
    let given = score(&run(&network));
    let search = |seed| {
        let mut search = PhaseSearch::new(network.clone(), seed);
        (1..120).for_each(|_| drop(search.step(score, || true).unwrap().cloned()));
        let worst = search.step(score, || true).unwrap().unwrap();
        (worst.score, worst.offsets.clone())
    };
    let (worst, offsets) = search(5);
    assert!(worst > 3 * given + given / 2 && worst <= 4 * 81_920_000, "{worst} {given}");
    assert_eq!(search(5), (worst, offsets));
}

#[test]
fn t2_asynchronous_shaping_spaces_a_burst_at_the_bridge() {
    let max_residence = Span::from_ms(10);
    let limits = AsyncLimits { rate: rate(10), burst_bytes: 125, max_residence };
    let mut network = line(3, Span::from_ms(50));
    for class in &mut network.links[1].ends[0].1.classes {
        class.order = Order::Timed;
    }
    network.streams = vec![cyclic(0, 2, 101, us(10_000), us(0))];
    network.streams[0].shape = Some(limits);
    network.streams[0].traffic = burst(us(10_000), us(0), 10);
    // At the bridge one frame goes at once, the others 100 us (125 bytes at 10 Mbit/s) apart.
    assert_eq!(least_and_most(&run(&network), 0), (18_080_000, 900_000_000 + 18_080_000));
    // What comes in at the same port in the same class waits behind it, wherever it goes.
    network.nodes.push(NodeSpec::default());
    network.links.push(LinkSpec::plain(1, 3, rate(100), us(0)));
    for class in &mut network.links[2].ends[0].1.classes {
        class.order = Order::Timed;
    }
    network.streams[0].traffic = burst(us(10_000), us(0), 3);
    network.streams.push(cyclic(0, 3, 101, us(10_000), us(50)));
    network.streams[1].shape = Some(limits);
    assert_eq!(least_and_most(&run(&network), 1), (168_080_000, 168_080_000));
    // In another class it does not.
    network.streams[1].class = 1;
    assert_eq!(least_and_most(&run(&network), 1), (18_080_000, 18_080_000));
}
