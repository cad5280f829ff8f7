// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random networks and streams, planned, and the plan checked by what shares nothing with the
//! search: no finding, and every reason of a refusal holds or says itself that it is no proof.
//!
//! `TIMEWIRE_FUZZ_PLANS=1000000 cargo test --release -p timewire-plan --test all checked::` does so
//! many; `TIMEWIRE_FUZZ_FROM` is the first seed.
#![allow(clippy::disallowed_methods, reason = "how long to go on is told from outside")]

use timewire_base::{BitsPerSecond, Span};
use timewire_plan::check::{Verdict, check, check_while};
use timewire_plan::model::{
    Certificate, DeviceLimits, Forwarding, Link, LinkId, Network, NetworkOptions, Node, NodeId,
    Plan, PortGates, Problem, Release, Reserve, Role, Route, Stream,
};
use timewire_plan::synth::{Budget, Change, Options, Planner, Progress, plan};

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 20).unwrap() % n
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Once in so many.
    pub(super) fn rarely(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

fn ns(ns: usize) -> Span {
    Span::from_ns(i64::try_from(ns).unwrap())
}

fn limits(random: &mut Random) -> DeviceLimits {
    DeviceLimits {
        queues: random.of(&[1, 4, 8]),
        gate_entries: random.of(&[None, None, Some(0), Some(8), Some(63), Some(256)]),
        interval_min: random.of(&[1, 1, 35, 500].map(Span::from_ns)),
        interval_max: random.of(&[None, None, Some(Span::from_us(100))]),
        granularity: random.of(&[1, 1, 8, 100].map(Span::from_ns)),
        cycle_max: random.of(&[None, None, None, Some(Span::from_ms(2))]),
        openings: random.of(&[None, None, None, Some(1), Some(3)]),
        changes_apart: random.rarely(4),
        launch_time: !random.rarely(4),
        device: None,
    }
}

/// Bridges in a line, ring or tree with chords; stations at one bridge, some at two.
fn network(random: &mut Random) -> Network {
    let (bridges, stations) = (1 + random.below(5), 2 + random.below(6));
    let plain = random.rarely(2);
    let mut nodes = Vec::new();
    for index in 0..bridges + stations {
        let role = if index < bridges { Role::Bridge } else { Role::EndStation };
        let processing_min = ns(random.of(&[0, 500, 1_000]));
        let mut node = Node {
            processing_min,
            processing_max: processing_min + ns(random.of(&[0, 0, 100, 2_000])),
            forwarding: match random.below(3) {
                0 => Forwarding::CutThrough { header_bytes: random.of(&[22, 64, 2_000]) },
                _ => Forwarding::StoreAndForward,
            },
            correction: ns(random.of(&[0, 0, 30, 1_000])),
            early: ns(random.of(&[0, 100])),
            ..Node::new(format!("n{index}"), role)
        };
        if !plain {
            node.limits = limits(random);
        }
        nodes.push(node);
    }
    let mut edges = Vec::new();
    for index in 1..bridges {
        edges.push((index, if random.rarely(3) { random.below(index) } else { index - 1 }));
    }
    if bridges > 2 && random.rarely(2) {
        edges.push((0, bridges - 1));
    }
    for station in bridges..bridges + stations {
        let first = random.below(bridges);
        edges.push((station, first));
        if bridges > 1 && random.rarely(3) {
            edges.push((station, (first + 1) % bridges));
        }
    }
    let mut links = Vec::new();
    for (index, (a, b)) in edges.into_iter().enumerate() {
        let rate = BitsPerSecond::new(random.of(&[100, 1_000, 1_000, 2_500]) * 1_000_000).unwrap();
        let propagation = ns(random.of(&[0, 50, 500]));
        for (way, from, to) in [("forth", a, b), ("back", b, a)] {
            links.push(Link {
                name: format!("{way}{index}"),
                from: NodeId::from_index(from),
                to: NodeId::from_index(to),
                rate,
                propagation,
            });
        }
    }
    let options = NetworkOptions {
        overhead_bytes: random.of(&[0, 20]),
        sync_error: ns(random.of(&[0, 0, 20, 500])),
        reserve: random.rarely(3).then(|| Reserve {
            every: ns(random.of(&[50_000, 125_000, 300_000])),
            lasts: ns(random.of(&[2_000, 15_000])),
        }),
        rate_error_ppm: random.of(&[0, 200, 5_000]),
    };
    Network::new(nodes, links, options).unwrap()
}

/// A way from the talker to the listener, by depth.
fn any_way(
    random: &mut Random,
    network: &Network,
    from: NodeId,
    to: NodeId,
) -> Option<Vec<LinkId>> {
    let mut way: Vec<LinkId> = Vec::new();
    let (mut at, mut been) = (from, vec![from]);
    while at != to {
        let next: Vec<usize> = (0..network.links().len())
            .filter(|index| {
                let link = &network.links()[*index];
                let ends = link.to == to || network.node(link.to).role == Role::Bridge;
                link.from == at && ends && !been.contains(&link.to)
            })
            .collect();
        if next.is_empty() {
            return None;
        }
        let link = LinkId::from_index(next[random.below(next.len())]);
        way.push(link);
        at = network.link(link).to;
        been.push(at);
    }
    Some(way)
}

pub(super) fn stream(
    random: &mut Random,
    network: &Network,
    index: usize,
    periods: &[i64],
) -> Stream {
    let stations: Vec<NodeId> = (0..network.nodes().len())
        .map(NodeId::from_index)
        .filter(|id| network.node(*id).role == Role::EndStation)
        .collect();
    let talker = random.below(stations.len());
    let listener = (talker + 1 + random.below(stations.len() - 1)) % stations.len();
    let (talker, listener) = (stations[talker], stations[listener]);
    let interval = Span::from_us(random.of(periods));
    let length = u32::try_from(64 + random.below(1_455)).unwrap();
    let mut stream = Stream::new(format!("s{index}"), talker, listener, interval, length);
    if random.rarely(4) {
        let more = stations.iter().filter(|id| **id != talker && **id != listener);
        stream.listeners.extend(more.take(1 + random.below(3)));
    } else if random.rarely(4)
        && let Some(way) = any_way(random, network, talker, listener)
    {
        stream.route = Route::Given(vec![way]);
    } else if random.rarely(5) {
        stream.copies = 2;
    }
    stream.frames = u32::try_from(1 + random.below(3) * random.below(2)).unwrap();
    stream.priority = u8::try_from(random.below(8)).unwrap();
    let part = |percent: usize| ns(percent * usize::try_from(interval.as_ns()).unwrap() / 100);
    stream.latency_max = part(if random.rarely(6) { 1_000 } else { 10 + random.below(150) });
    if random.rarely(4) {
        stream.jitter_max = Some(ns(random.of(&[0, 200, 5_000])));
    }
    if random.rarely(4) {
        let earliest = random.below(60);
        let latest = part(earliest + random.below(39));
        stream.release = Release { earliest: part(earliest), latest: Some(latest) };
    }
    stream
}

pub(super) fn problem(seed: u64) -> Problem {
    let mut random = Random::new(seed);
    let network = network(&mut random);
    let periods: &[i64] =
        random.of(&[&[100, 200, 400], &[100, 250, 500], &[150, 200, 250], &[64, 96, 1_000]]);
    let count = 1 + random.below(24);
    let streams = (0..count).map(|index| stream(&mut random, &network, index, periods));
    let streams = streams.collect();
    Problem::new(network, streams).unwrap()
}

/// What was seen, so that the test knows that it looked at something.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) admitted: usize,
    /// By kind of certificate.
    proven: [usize; 8],
    unproven: usize,
}

fn kind(certificate: &Certificate) -> usize {
    match certificate {
        Certificate::NoPath { .. } => 0,
        Certificate::NoInstant { .. } => 1,
        Certificate::MinimumLatency { .. } => 2,
        Certificate::Window { .. } => 3,
        Certificate::LinkLoad { .. } => 4,
        Certificate::PairConflict { .. } => 5,
        Certificate::Cases { .. } => 6,
        _ => 7,
    }
}

/// Gates that may not change with those of another port change at instants of their own.
fn look_at_changes(seed: u64, network: &Network, gates: &PortGates) {
    let (step, first) = network.grid(gates.link);
    let limits = &network.node(network.link(gates.link).from).limits;
    if !limits.changes_apart {
        return;
    }
    assert_eq!(gates.cycle.as_ns() % step.as_ns(), 0, "seed {seed}: {gates:?}");
    let (Some(one), Some(last)) = (gates.windows.first(), gates.windows.last()) else { return };
    // A window that goes over the turn of the cycle.
    let turns = one.start == Span::ZERO && last.end == gates.cycle;
    let edges = gates.windows.iter().flat_map(|window| [window.start, window.end]);
    for at in edges.filter(|at| !(turns && [Span::ZERO, gates.cycle].contains(at))) {
        let off = (at - first).as_ns() % step.as_ns();
        assert_eq!(off, 0, "seed {seed}: {at} by {step} from {first}: {gates:?}");
    }
}

pub(super) fn look(seed: u64, problem: &Problem, plan: &Plan, seen: &mut Seen) {
    let report = check(problem, plan).unwrap();
    let words: Vec<String> = report.findings.iter().map(|it| it.describe(problem)).collect();
    assert!(report.is_clean(), "seed {seed}: {words:#?}\n{:#?}", report.verdicts);
    seen.admitted += plan.admitted.len();
    plan.gates.iter().for_each(|gates| look_at_changes(seed, problem.network(), gates));
    for (refusal, (id, verdict)) in plan.refused.iter().zip(&report.verdicts) {
        assert_eq!(refusal.stream, *id);
        match verdict {
            Verdict::Proven => seen.proven[kind(&refusal.certificate)] += 1,
            Verdict::NotProven => {
                assert!(!refusal.certificate.is_proof(), "seed {seed}: {refusal:?}");
                seen.unproven += 1;
            }
            Verdict::Wrong { why } => panic!("seed {seed}: {refusal:?}: {why}"),
        }
    }
}

#[test]
fn t0_what_is_planned_holds_and_what_is_refused_has_a_reason() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    let count = number("TIMEWIRE_FUZZ_PLANS").unwrap_or(10_000);
    let from: u64 = number("TIMEWIRE_FUZZ_FROM").unwrap_or(0);
    let mut seen = Seen::default();
    for seed in from..from + count {
        let problem = problem(seed);
        let plan = plan(problem.clone(), Options { seed, routes: 3 }, 20_000);
        look(seed, &problem, &plan, &mut seen);
    }
    println!("{count} plans: {seen:?}");
    assert!(seen.admitted > 10_000, "{seen:?}");
    assert!(seen.proven[..7].iter().all(|count| *count > 10), "{seen:?}");
}

/// Wherever the search is ended, at whatever question whether to go on: every stream has an answer,
/// and what is planned until then holds.
#[test]
fn t0_a_search_that_is_ended_at_any_question_gives_a_plan_that_holds() {
    let (mut seen, mut none, mut parts) = (Seen::default(), 0, 0);
    for seed in 0..1_500 {
        let problem = problem(seed);
        let search = |most: usize| {
            let mut planner = Planner::new(problem.clone(), Options { seed, routes: 3 });
            let mut asked = 0;
            let mut go_on = |_: &Progress| {
                asked += 1;
                asked <= most
            };
            let cut = planner.run(&mut Budget { work: 100_000, go_on: &mut go_on });
            (planner.plan(), asked, cut)
        };
        let (whole, questions, _) = search(usize::MAX);
        let mut random = Random::new(seed);
        for most in [0, random.below(questions + 1), random.below(questions + 1)] {
            let (plan, asked, cut) = search(most);
            assert!(asked > most || plan == whole, "seed {seed}: {most} questions");
            let answers = plan.admitted.len() + plan.refused.len();
            assert_eq!(answers, problem.streams().len(), "seed {seed}: {most} questions");
            look(seed, &problem, &plan, &mut seen);
            none += usize::from(cut && plan.admitted.is_empty());
            parts += usize::from(cut && !plan.admitted.is_empty());
        }
    }
    println!("{seen:?}: {none} without any, {parts} in part");
    assert!(none > 100 && parts > 100, "{none} without any, {parts} in part");
}

/// A check that is ended says that, and has found nothing that the whole one does not find.
#[test]
fn t0_a_check_that_is_ended_at_any_question_says_so() {
    let mut parts = 0;
    for seed in 0..600 {
        let problem = problem(seed);
        let mut plan = plan(problem.clone(), Options { seed, routes: 3 }, 20_000);
        // Starts that were planned for others.
        let mut random = Random::new(seed);
        for admission in &mut plan.admitted {
            for sent in &mut admission.transmissions {
                if random.rarely(4) {
                    sent.start = ns(random.below(1_000_000));
                }
            }
        }
        let mut questions = 0;
        let whole = check_while(&problem, &plan, &mut || {
            questions += 1;
            true
        });
        let whole = whole.unwrap();
        assert!(!whole.ended_early);
        for most in [0, random.below(questions), random.below(questions)] {
            let mut asked = 0;
            let part = check_while(&problem, &plan, &mut || {
                asked += 1;
                asked <= most
            });
            let part = part.unwrap();
            assert!(part.ended_early && !part.is_clean(), "seed {seed}: {most} of {questions}");
            let known = |it| whole.findings.contains(it);
            assert!(part.findings.iter().all(known), "seed {seed}: {most} of {questions}");
            parts += usize::from(!part.findings.is_empty());
        }
    }
    assert!(parts > 100, "{parts} with findings");
}

/// The same when half of the streams come later, and some go: each plan on the way holds, and a
/// refusal changes nothing.
#[test]
fn t0_plans_hold_while_streams_come_and_go() {
    let (mut seen, mut moves, mut full) = (Seen::default(), 0, 0);
    for seed in 0..600 {
        let whole = problem(seed);
        let (first, more) = whole.streams().split_at(whole.streams().len() / 2);
        let part = Problem::new(whole.network().clone(), first.to_vec()).unwrap();
        let mut planner = Planner::new(part, Options { seed, routes: 3 });
        planner.run(&mut Budget { work: 20_000, go_on: &mut |_| true });
        let mut random = Random::new(seed);
        for stream in more {
            let before = planner.plan();
            match planner.add(stream.clone(), random.below(4)).unwrap() {
                Change::Admitted { moved, .. } => moves += moved.len(),
                Change::Refused(reason) => {
                    full += usize::from(matches!(reason, Certificate::GateLimit { .. }));
                    let tried = planner.plan();
                    assert_eq!(tried.admitted, before.admitted, "seed {seed}");
                    assert_eq!(tried.gates, before.gates, "seed {seed}");
                }
            }
            let (problem, plan) = (planner.problem().clone(), planner.plan());
            look(seed, &problem, &plan, &mut seen);
            if random.rarely(3) && !problem.streams().is_empty() {
                let gone = random.below(problem.streams().len());
                planner.remove(timewire_plan::model::StreamId::from_index(gone));
                let (problem, plan) = (planner.problem().clone(), planner.plan());
                look(seed, &problem, &plan, &mut seen);
            }
        }
    }
    println!("{seen:?}, {moves} moved, {full} by gates");
    assert!(moves > 10 && full > 10, "{moves} moved, {full} by gates");
}
