// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small problems, held against trying every start; and what becomes of proofs that are changed.

mod packing;

use timewire_base::{BitsPerSecond, Sequence, Span};

use super::*;
use crate::check::{Verdict, judge};
use crate::model::{
    Admission, Link, Network, NetworkOptions, Node, NodeId, Plan, Problem, Refusal, Release, Role,
    Stream,
};
use crate::synth::reason::Triage;
use crate::synth::{Budget, Options};

fn ns(ns: i64) -> Span {
    Span::from_ns(ns)
}

/// Stations 0 to 5, three at each of two bridges; a byte takes 1 ns.
fn network(processing: i64) -> Network {
    let mut nodes: Vec<Node> =
        (0..6).map(|n| Node::new(format!("e{n}"), Role::EndStation)).collect();
    for name in ["b6", "b7"] {
        let mut node = Node::new(name, Role::Bridge);
        (node.processing_min, node.processing_max) = (ns(processing), ns(processing));
        nodes.push(node);
    }
    let pairs = [(0, 6), (1, 6), (2, 6), (3, 7), (4, 7), (5, 7), (6, 7)];
    let links = pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
    let link = |(from, to)| Link {
        name: format!("{from}-{to}"),
        from: NodeId(from),
        to: NodeId(to),
        rate: BitsPerSecond::new(8_000_000_000).unwrap(),
        propagation: Span::ZERO,
    };
    let options = NetworkOptions { overhead_bytes: 0, ..NetworkOptions::default() };
    Network::new(nodes, links.map(link).collect(), options).unwrap()
}

fn stream(name: &str, from: u32, to: u32, interval: i64, bytes: u32) -> Stream {
    let mut stream = Stream::new(name, NodeId(from), NodeId(to), ns(interval), bytes);
    stream.latency_max = Span::from_us(1);
    stream
}

fn some_problem(seed: u64) -> Problem {
    let mut random = Sequence::new(seed);
    let network = network(i64::try_from(random.below(3)).unwrap());
    let families: [&[i64]; 4] =
        [&[6, 9, 12], &[8, 12, 16], &[10, 15, 20, 30], &[6, 8, 10, 12, 15, 20]];
    let intervals = families[random.below(4)];
    let most_bytes = 1 + random.below(4);
    let ends = [1, 3][random.below(2)];
    let streams = (0..2 + random.below(5)).map(|number| {
        let end = |random: &mut Sequence| u32::try_from(random.below(ends)).unwrap();
        let to = if random.below(4) == 0 { 2 } else { 3 + end(&mut random) };
        let from = end(&mut random) % 2;
        let interval = intervals[random.below(intervals.len())];
        let bytes = 1 + u32::try_from(random.below(most_bytes)).unwrap();
        let mut stream = stream(&format!("s{number}"), from, to, interval, bytes);
        stream.frames = if random.below(6) == 0 && bytes < 3 { 2 } else { 1 };
        if random.below(6) == 0 {
            let earliest = i64::try_from(random.below(4)).unwrap();
            let latest = earliest + i64::try_from(random.below(3)).unwrap();
            stream.release = Release { earliest: ns(earliest), latest: Some(ns(latest)) };
        }
        stream
    });
    let streams = streams.collect();
    Problem::new(network, streams).unwrap()
}

/// The nanoseconds in which a message that starts at 0 is on each link of its way, by its ends
/// (6 and 7 are the bridges): frames of one rate never meet on their way.
fn busy(problem: &Problem, stream: &Stream) -> Vec<((u32, u32), i64)> {
    let (from, to) = (stream.talker.0, stream.listeners[0].0);
    let (first, last) = (if from < 3 { 6 } else { 7 }, if to < 3 { 6 } else { 7 });
    let mut way = vec![(from, first), (first, last), (last, to)];
    way.retain(|(from, to)| from != to);
    let processing = problem.network().nodes()[6].processing_max.as_ns();
    let length = i64::from(stream.length_bytes);
    let all = way.into_iter().zip(0..).flat_map(|(link, hop)| {
        let start = hop * (length + processing);
        (0..length * i64::from(stream.frames)).map(move |at| (link, start + at))
    });
    all.collect()
}

/// Whether two are on a link at once when the other starts so much later, for each of a turn: by
/// every nanosecond of all their intervals.
fn meets(problem: &Problem, one: &Stream, other: &Stream) -> Vec<bool> {
    let turns = (one.interval.as_ns(), other.interval.as_ns());
    let cycle = turns.0 * turns.1;
    let of_one: BTreeSet<((u32, u32), i64)> = busy(problem, one).into_iter().collect();
    let mut taken = std::collections::BTreeMap::new();
    for (link, at) in of_one {
        let list =
            taken.entry(link).or_insert_with(|| vec![false; usize::try_from(cycle).unwrap()]);
        for turn in 0..turns.1 {
            list[usize::try_from((at + turn * turns.0) % cycle).unwrap()] = true;
        }
    }
    let of_other = busy(problem, other);
    let meet = |by: i64| {
        of_other.iter().filter_map(|(link, at)| Some((taken.get(link)?, at))).any(|(list, at)| {
            (0..turns.0).any(|k| list[usize::try_from((at + by + k * turns.1) % cycle).unwrap()])
        })
    };
    let turn = crate::model::greatest_divisor(one.interval, other.interval).as_ns();
    (0..turn).map(meet).collect()
}

/// Tries every start of every stream.
struct Brute {
    windows: Vec<(i64, i64)>,
    /// By stream, one before it, and how much later it starts.
    meets: Vec<Vec<Vec<bool>>>,
}

impl Brute {
    fn new(problem: &Problem) -> Brute {
        let streams = problem.streams();
        let window = |s: &Stream| (s.release.earliest.as_ns(), s.release_latest().as_ns());
        let rows = |(own, other): (usize, &Stream)| -> Vec<Vec<bool>> {
            streams[..own].iter().map(|one| meets(problem, one, other)).collect()
        };
        Brute {
            windows: streams.iter().map(window).collect(),
            meets: streams.iter().enumerate().map(rows).collect(),
        }
    }

    fn fits(&self, starts: &[i64], start: i64) -> bool {
        let own = starts.len();
        starts.iter().enumerate().all(|(other, at)| {
            let meets = &self.meets[own][other];
            let turn = i64::try_from(meets.len()).unwrap();
            !meets[usize::try_from((start - at).rem_euclid(turn)).unwrap()]
        })
    }

    fn has_plan(&self, starts: &mut Vec<i64>) -> bool {
        let Some(&(first, last)) = self.windows.get(starts.len()) else { return true };
        for start in first..=last {
            if self.fits(starts, start) {
                starts.push(start);
                if self.has_plan(starts) {
                    return true;
                }
                starts.pop();
            }
        }
        false
    }
}

/// A planner with a way for each stream that is short enough alone.
fn planner(problem: &Problem) -> Option<Planner> {
    let mut planner = Planner::new(problem.clone(), Options::default());
    let links = problem.network().links().len();
    // Each with a triage of its own: reasons that name others are for the question here.
    let ways = (0..problem.streams().len())
        .map(|id| planner.find_way(id, Some(&mut Triage::new(links))))
        .collect::<Vec<_>>();
    ways.iter().all(Result::is_ok).then_some(planner)
}

fn verdict(problem: &Problem, certificate: &Certificate) -> Verdict {
    let admitted = (1..problem.streams().len())
        .map(|id| Admission { stream: StreamId::from_index(id), transmissions: Vec::new() })
        .collect();
    let refusal = Refusal { stream: StreamId(0), certificate: certificate.clone() };
    judge(problem, &Plan { admitted, ..Plan::default() }, &refusal)
}

fn whole_parts(planner: &Planner) -> Vec<Part> {
    let count = planner.problem.streams().len();
    let parts = (0..count).map(|id| planner.parts(id));
    parts.map(|mut parts| (parts.len() == 1).then(|| parts.remove(0)).unwrap()).collect()
}

/// What is decided is what trying every start says; a proof is accepted and holds after those who
/// are not needed were left out; places are places.
#[test]
fn t0_small_cores_are_decided_as_by_trying_every_start() {
    let (mut plans, mut proofs, mut deep) = (0, 0, 0);
    for seed in 0..10_000 {
        let problem = some_problem(seed);
        let Some(planner) = planner(&problem) else { continue };
        let brute = Brute::new(&problem);
        let has_plan = brute.has_plan(&mut Vec::new());
        let core = whole_parts(&planner);
        let mut steps = 1 << 22;
        match decide(&core::question(&core), &mut steps) {
            Answer::Starts(_) => assert!(has_plan, "seed {seed}"),
            Answer::None(tree) => {
                assert!(!has_plan, "seed {seed}");
                proofs += 1;
                deep += usize::from(tree.len() > 1);
                let least = least(core.clone(), tree, &mut steps);
                assert_eq!(verdict(&problem, &least), Verdict::Proven, "seed {seed}: {least:?}");
            }
            Answer::Open => panic!("seed {seed}: it takes too long"),
        }
        let question = planner.question_beside(&core, &mut steps).unwrap();
        match decide(&question, &mut steps) {
            Answer::Starts(starts) => {
                plans += 1;
                for (place, start) in starts[1..].iter().enumerate() {
                    let (first, last) = brute.windows[place];
                    assert!((first..=last).contains(start), "seed {seed}");
                    assert!(brute.fits(&starts[1..=place], *start), "seed {seed}");
                }
            }
            Answer::None(_) => assert!(!has_plan, "seed {seed}"),
            Answer::Open => panic!("seed {seed}: it takes too long"),
        }
    }
    println!("{plans} with a plan, {proofs} without, {deep} of these with cases");
    assert!(plans > 2_000 && proofs > 2_000 && deep > 80, "{plans} {proofs} {deep}");
}

/// No proof is accepted for streams that have a plan, whatever it says.
#[test]
fn t0_no_proof_by_cases_is_accepted_for_streams_that_have_a_plan() {
    let mut refused = 0;
    for seed in 0..1_500 {
        let problem = some_problem(seed);
        let Some(planner) = planner(&problem) else { continue };
        if !Brute::new(&problem).has_plan(&mut Vec::new()) {
            continue;
        }
        let parts: Vec<CasePart> = whole_parts(&planner)
            .into_iter()
            .map(|part| CasePart { stream: StreamId::from_index(part.id), links: part.links })
            .collect();
        let mut random = Sequence::new(seed);
        for _ in 0..4 {
            let mut tree = Vec::new();
            any_tree(&mut random, parts.len() + 1, 6, &mut tree);
            let certificate = Certificate::Cases { parts: parts.clone(), tree };
            let verdict = verdict(&problem, &certificate);
            let wrong = matches!(verdict, Verdict::Wrong { .. });
            assert!(wrong, "seed {seed}: {certificate:?}");
            refused += 1;
        }
    }
    assert!(refused > 1_000, "{refused}");
}

fn any_tree(random: &mut Sequence, starts: usize, depth: u32, tree: &mut Vec<Option<Split>>) {
    if depth == 0 || random.below(4) == 0 {
        return tree.push(None);
    }
    let number = |random: &mut Sequence| u32::try_from(random.below(starts)).unwrap();
    let (one, other) = (number(random), number(random));
    let most = ns(i64::try_from(random.below(50)).unwrap() - 25);
    tree.push(Some(Split { one, other, most }));
    any_tree(random, starts, depth - 1, tree);
    any_tree(random, starts, depth - 1, tree);
}

/// Whoever is left in a small problem gets a place if there is a plan for all, also where moving
/// did not find it in as many steps; and a proof if there is none.
#[test]
fn t0_small_problems_are_decided_to_the_end() {
    let (mut missed, mut refused) = (0, 0);
    for seed in 0..1_500 {
        let problem = some_problem(seed);
        let Some(mut planner) = planner(&problem) else { continue };
        let has_plan = Brute::new(&problem).has_plan(&mut Vec::new());
        let waiting: Vec<usize> =
            planner.order().into_iter().filter(|id| !planner.fit(*id)).collect();
        let mut budget = Budget { work: u64::MAX, go_on: &mut |_| true };
        let left = planner.repair(waiting, &mut budget, 50);
        let still = planner.decide(left.clone(), 1 << 24, &mut budget);
        assert_eq!(still.is_empty(), has_plan, "seed {seed}: {still:?}");
        missed += usize::from(has_plan && !left.is_empty());
        refused += still.len();
        planner.settle(still);
        let report = crate::check::check(&problem, &planner.plan()).unwrap();
        assert!(report.is_clean(), "seed {seed}: {:?}", report.findings);
        let proven = report.verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Proven);
        assert!(proven, "seed {seed}: {:?}", planner.plan().refused);
    }
    println!("{missed} found that were missed before, {refused} refused");
    assert!(missed > 0 && refused > 500, "{missed} {refused}");
}

/// Streams that were put beside each other by chance, as many as went.
fn full_problem(seed: u64) -> Problem {
    let mut random = Sequence::new(seed);
    let mut problem = Problem::new(network(0), Vec::new()).unwrap();
    let mut placed: Vec<(Stream, usize)> = Vec::new();
    for number in 0..60 {
        let end = |random: &mut Sequence| u32::try_from(random.below(2)).unwrap();
        let (from, to) = (end(&mut random), 3 + end(&mut random));
        let interval = [12, 18, 24, 36][random.below(4)];
        let bytes = 1 + u32::try_from(random.below(4)).unwrap();
        let stream = stream(&format!("s{number}"), from, to, interval, bytes);
        let start = random.below(usize::try_from(interval).unwrap());
        let free = placed.iter().all(|(other, at)| {
            let meets = meets(&problem, other, &stream);
            !meets[(start + 36 * meets.len() - at) % meets.len()]
        });
        if free {
            placed.push((stream.clone(), start));
            problem.add(stream).unwrap();
        }
    }
    problem
}

/// Streams that are known to have a plan, on full links: moving misses some in a few steps, and
/// deciding cores finds them.
#[test]
fn t0_cores_are_found_that_moving_misses_in_few_steps() {
    let (mut missed, mut found) = (0, 0);
    for seed in 0..300 {
        let problem = full_problem(seed);
        let Some(mut planner) = planner(&problem) else { continue };
        let waiting: Vec<usize> =
            planner.order().into_iter().filter(|id| !planner.fit(*id)).collect();
        let mut budget = Budget { work: u64::MAX, go_on: &mut |_| true };
        let left = planner.repair(waiting, &mut budget, 200);
        if left.is_empty() {
            continue;
        }
        missed += 1;
        let still = planner.decide(left, 1 << 20, &mut budget);
        let proven = still.iter().any(|id| planner.is_proven(*id));
        assert!(!proven, "seed {seed}: there is a plan for all");
        found += usize::from(still.is_empty());
        planner.settle(still);
        let report = crate::check::check(&problem, &planner.plan()).unwrap();
        assert!(report.is_clean(), "seed {seed}: {:?}", report.findings);
    }
    println!("{missed} missed, {found} of them found");
    assert!(missed > 30 && found == missed, "{missed} {found}");
}

/// A proof with cases, and the problem that it is of.
fn some_proof() -> (Problem, Vec<CasePart>, Vec<Option<Split>>) {
    let late = |mut stream: Stream| {
        stream.release = Release { earliest: ns(1), latest: Some(ns(4)) };
        stream
    };
    // Any two of 3 ns each start within 4 ns on the link between the bridges; three do not.
    let streams = vec![
        late(stream("p", 0, 3, 40, 3)),
        late(stream("q", 1, 4, 40, 3)),
        late(stream("r", 2, 5, 40, 3)),
        stream("s", 3, 0, 40, 3),
    ];
    let problem = Problem::new(network(1), streams).unwrap();
    let planner = planner(&problem).unwrap();
    let core: Vec<Part> = (0..3).map(|id| planner.parts(id).remove(0)).collect();
    let mut steps = 10_000;
    let Answer::None(tree) = decide(&core::question(&core), &mut steps) else { panic!("a plan") };
    match least(core, tree, &mut steps) {
        Certificate::Cases { parts, tree } => (problem, parts, tree),
        other => panic!("{other:?}"),
    }
}

type Change = fn(&mut Vec<CasePart>, &mut Vec<Option<Split>>);

#[test]
fn t0_a_proof_by_cases_that_is_changed_is_refused() {
    let (problem, parts, tree) = some_proof();
    assert!(parts.len() == 3 && tree.len() > 1, "{parts:?} {tree:?}");
    let certificate = |change: Change| {
        let (mut parts, mut tree) = (parts.clone(), tree.clone());
        change(&mut parts, &mut tree);
        Certificate::Cases { parts, tree }
    };
    assert_eq!(verdict(&problem, &certificate(|_, _| ())), Verdict::Proven);
    let last = LinkId(13);
    assert_eq!(problem.network().link(last).from, NodeId(7));
    let changes: [(Change, &str); 16] = [
        (|_, tree| _ = tree.pop(), "a case is left out"),
        (|_, tree| tree.clear(), "a case is left out"),
        (|_, tree| tree.push(None), "there are more cases than there can be"),
        (|_, tree| *tree = vec![None], "a case does not contradict itself"),
        (|_, tree| tree[0] = tree[0].map(|s| Split { one: 4, ..s }), "a part is not there"),
        (|_, tree| tree[0] = tree[0].map(|s| Split { one: s.other, ..s }), "a part is not there"),
        (
            |_, tree| tree[0] = tree[0].map(|s| Split { most: ns(i64::MIN), ..s }),
            "a time is out of bounds",
        ),
        (
            |_, tree| tree[0] = tree[0].map(|s| Split { most: s.most + ns(1_000), ..s }),
            "a case does not contradict itself",
        ),
        (|_, tree| *tree = vec![None; 10_001], "it is too long"),
        (|parts, _| _ = parts.remove(0), "the refused stream is not named"),
        (|parts, tree| (_, *tree) = (parts.pop(), vec![None]), "a case does not contradict itself"),
        (|parts, _| parts[1] = parts[2].clone(), "a stream is named twice"),
        (|parts, _| parts[1].stream = StreamId(9), "a stream is named that is not admitted"),
        (|parts, _| parts[1].links.clear(), "a part has no links"),
        (|parts, _| parts[1].links.push(LinkId(13)), "a stream can avoid the link"),
        (|parts, _| _ = parts[1].links.remove(1), "a part is not connected"),
    ];
    for (change, why) in changes {
        let certificate = certificate(change);
        let wrong = Verdict::Wrong { why: why.to_owned() };
        assert_eq!(verdict(&problem, &certificate), wrong, "{certificate:?}");
    }
    // The same proof for the same streams with a little more room.
    let mut streams = problem.streams().to_vec();
    streams[1].release.latest = Some(ns(10));
    let roomy = Problem::new(problem.network().clone(), streams).unwrap();
    let wrong = verdict(&roomy, &certificate(|_, _| ()));
    assert!(matches!(wrong, Verdict::Wrong { .. }), "{wrong:?}");
}
