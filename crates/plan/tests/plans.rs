// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans for made-up and hand-made problems, looked through transmission by transmission, and the
//! reasons of refusals.

use std::collections::BTreeMap;

use timewire_base::{BitsPerSecond, Span};
use timewire_plan::generate::{Recipe, Topology};
use timewire_plan::model::{
    Certificate, DeviceLimits, Forwarding, Link, LinkId, Network, NetworkOptions, Node, NodeId,
    Plan, Problem, Role, Route, Stream,
};
use timewire_plan::synth::{Budget, Change, Options, Planner, plan};

fn us(us: i64) -> Span {
    Span::from_us(us)
}

/// What is wrong with a plan, by the definitions of the model: order and pauses on each way, the
/// latency, and that no two frames are on a link at once.
fn faults(problem: &Problem, plan: &Plan) -> Vec<String> {
    let network = problem.network();
    let mut faults = Vec::new();
    let mut links: BTreeMap<LinkId, Vec<(i64, i64, usize)>> = BTreeMap::new();
    for admission in &plan.admitted {
        let stream = problem.stream(admission.stream);
        let mut there: BTreeMap<(u8, NodeId, u32), i64> = BTreeMap::new();
        let mut first = i64::MAX;
        for sent in &admission.transmissions {
            let link = network.link(sent.link);
            let length = network.occupancy(sent.link, stream.length_bytes).as_ns();
            let start = sent.start.as_ns();
            first = first.min(start);
            let ready = there.get(&(sent.copy, link.from, sent.frame)).copied();
            if link.from != stream.talker && ready.is_none_or(|ready| ready > start) {
                faults.push(format!("{} leaves {} before it comes", stream.name, link.name));
            }
            let node = network.node(link.to);
            let until = match node.forwarding {
                Forwarding::CutThrough { .. } => 0,
                Forwarding::StoreAndForward => length,
            };
            let wait = node.processing_max + network.options().sync_error + link.propagation;
            there.insert((sent.copy, link.to, sent.frame), start + until + wait.as_ns());
            if stream.listeners.contains(&link.to) {
                let latency = start + length + link.propagation.as_ns() - first;
                if latency > stream.latency_max.as_ns() {
                    faults.push(format!("{} is late: {latency}", stream.name));
                }
            }
            let turns = problem.cycle().as_ns() / stream.interval.as_ns();
            for turn in 0..turns {
                let at = start + turn * stream.interval.as_ns();
                let at = at.rem_euclid(problem.cycle().as_ns());
                let all = links.entry(sent.link).or_default();
                all.push((at, at + length, admission.stream.index()));
            }
        }
        for listener in &stream.listeners {
            for copy in 0..stream.copies {
                if !there.contains_key(&(copy, *listener, stream.frames - 1)) {
                    faults.push(format!("{} does not reach {listener:?}", stream.name));
                }
            }
        }
    }
    for (link, mut busy) in links {
        busy.sort_unstable();
        let first = busy[0];
        busy.push((first.0 + problem.cycle().as_ns(), first.1, first.2));
        for pair in busy.windows(2) {
            if pair[0].1 > pair[1].0 {
                faults.push(format!("{link:?}: {pair:?}"));
            }
        }
    }
    for gates in &plan.gates {
        let ordered = gates.windows.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let whole = gates.windows.iter().all(|w| w.start < w.end && w.end <= gates.cycle);
        if !ordered || !whole {
            faults.push(format!("gates of {:?}", gates.link));
        }
    }
    faults
}

fn solve(problem: &Problem, seed: u64) -> Plan {
    let plan = plan(problem.clone(), Options { seed, ..Options::default() }, 3_000_000);
    assert_eq!(faults(problem, &plan), Vec::<String>::new(), "seed {seed}");
    assert_eq!(plan.admitted.len() + plan.refused.len(), problem.streams().len());
    plan
}

/// Stations and bridges by name (`b...`), and connections both ways at 1 Gbit/s.
fn network(nodes: &[&str], pairs: &[(usize, usize)], options: NetworkOptions) -> Network {
    let role = |name: &str| if name.starts_with('b') { Role::Bridge } else { Role::EndStation };
    let nodes: Vec<Node> = nodes.iter().map(|name| Node::new(*name, role(name))).collect();
    let mut links = Vec::new();
    for &(a, b) in pairs {
        for (from, to) in [(a, b), (b, a)] {
            links.push(Link {
                name: format!("{}-{}", nodes[from].name, nodes[to].name),
                from: NodeId::from_index(from),
                to: NodeId::from_index(to),
                rate: BitsPerSecond::new(1_000_000_000).expect("a rate"),
                propagation: Span::ZERO,
            });
        }
    }
    Network::new(nodes, links, options).expect("a network")
}

/// Two talkers and two listeners at two bridges.
fn dumbbell() -> Network {
    let nodes = ["a", "b", "c", "d", "b1", "b2"];
    let pairs = [(0, 4), (1, 4), (4, 5), (5, 2), (5, 3)];
    let nodes = nodes.map(|name| if name == "b" { "e" } else { name });
    network(&nodes, &pairs, NetworkOptions::default())
}

fn reasons(network: Network, streams: Vec<Stream>) -> (Plan, Vec<Certificate>) {
    let problem = Problem::new(network, streams).expect("streams");
    let plan = solve(&problem, 0);
    let all = plan.refused.iter().map(|refusal| refusal.certificate.clone()).collect();
    (plan, all)
}

#[test]
fn t0_made_up_problems_have_plans_without_faults() {
    let topologies = [
        Topology::Line(5),
        Topology::Ring(6),
        Topology::Tree(7),
        Topology::Mesh(8),
        Topology::Torus(3, 4),
        Topology::FatTree { pods: 2, width: 2, cores: 2 },
    ];
    for seed in 0..60 {
        let number = usize::try_from(seed).unwrap();
        let mut recipe = Recipe::new(topologies[number % 6], 1 + number % 3, 60, seed);
        recipe.lengths = (64, 1500);
        if seed % 2 == 1 {
            recipe.intervals = [250, 400, 500, 1000].map(Span::from_us).to_vec();
            recipe.processing = (us(1), us(2));
            recipe.options.sync_error = Span::from_ns(50);
        }
        solve(&recipe.problem().unwrap(), seed);
    }
}

#[test]
fn t0_what_is_known_to_have_a_plan_gets_one() {
    for seed in 0..12 {
        let mut recipe = Recipe::new(Topology::Ring(6), 1, 120, seed);
        recipe.lengths = (200, 1500);
        (recipe.load_percent, recipe.solvable) = (60, true);
        let problem = recipe.problem().unwrap();
        let plan = solve(&problem, seed);
        assert_eq!(plan.refused, [], "seed {seed}");
    }
}

#[test]
fn t0_the_same_input_has_the_same_plan() {
    let mut recipe = Recipe::new(Topology::Mesh(8), 1, 200, 5);
    recipe.lengths = (400, 1500);
    let problem = recipe.problem().unwrap();
    assert_eq!(solve(&problem, 3), solve(&problem, 3));
}

#[test]
fn t0_frames_follow_each_other_without_a_pause() {
    let mut stream = Stream::new("one", NodeId(0), NodeId(2), us(1000), 980);
    stream.frames = 2;
    let (plan, none) = reasons(dumbbell(), vec![stream]);
    assert!(none.is_empty());
    // 980 + 20 bytes at 1 Gbit/s are 8 us.
    let starts: Vec<i64> =
        plan.admitted[0].transmissions.iter().map(|sent| sent.start.as_ns()).collect();
    assert_eq!(starts, [0, 8_000, 8_000, 16_000, 16_000, 24_000]);
}

#[test]
fn t0_cut_through_starts_with_the_header_and_rates_that_differ_store() {
    let mut network = network(&["a", "b1", "c"], &[(0, 1), (1, 2)], NetworkOptions::default());
    let mut nodes = network.nodes().to_vec();
    nodes[1].forwarding = Forwarding::CutThrough { header_bytes: 50 };
    let options = network.options();
    network = Network::new(nodes.clone(), network.links().to_vec(), options).unwrap();
    let stream = Stream::new("one", NodeId(0), NodeId(2), us(1000), 980);
    let (plan, _) = reasons(network.clone(), vec![stream.clone()]);
    assert_eq!(plan.admitted[0].transmissions[1].start, Span::from_ns(400));
    let mut links = network.links().to_vec();
    links[2].rate = BitsPerSecond::new(100_000_000).unwrap();
    let network = Network::new(nodes, links, options).unwrap();
    let (plan, _) = reasons(network, vec![stream]);
    assert_eq!(plan.admitted[0].transmissions[1].start, us(8));
}

#[test]
fn t0_multicast_is_a_tree_and_copies_share_no_link() {
    let mut many = Stream::new("many", NodeId(0), NodeId(2), us(1000), 100);
    many.listeners = vec![NodeId(2), NodeId(3), NodeId(1)];
    let (plan, none) = reasons(dumbbell(), vec![many]);
    assert!(none.is_empty());
    assert_eq!(plan.admitted[0].transmissions.len(), 5, "the bridges' link once");

    let pairs = [(0, 1), (0, 2), (1, 3), (2, 3)];
    let mut network = network(&["a", "b1", "b2", "c"], &pairs, NetworkOptions::default());
    let mut twice = Stream::new("twice", NodeId(0), NodeId(3), us(1000), 100);
    twice.copies = 2;
    let (plan, none) = reasons(network.clone(), vec![twice.clone()]);
    assert!(none.is_empty());
    let mut links: Vec<LinkId> =
        plan.admitted[0].transmissions.iter().map(|sent| sent.link).collect();
    links.dedup();
    assert_eq!(links.len(), 4);
    // Without one of the ways there is no second.
    let links = network.links()[..6].to_vec();
    network = Network::new(network.nodes().to_vec(), links, network.options()).unwrap();
    let (_, none) = reasons(network, vec![twice]);
    assert_eq!(none, [Certificate::NoPath { listener: NodeId(3), copies: 2 }]);
}

#[test]
fn t0_a_refusal_says_why() {
    let stream =
        |name, interval, bytes| Stream::new(name, NodeId(0), NodeId(2), us(interval), bytes);
    // Three links of 8 us each.
    let mut quick = stream("quick", 1000, 980);
    quick.latency_max = us(23);
    let (_, none) = reasons(dumbbell(), vec![quick]);
    assert!(matches!(
        &none[..],
        [Certificate::MinimumLatency { needed, allowed, path, .. }]
            if *needed == us(24) && *allowed == us(23) && path.len() == 3
    ));
    let (_, none) = reasons(dumbbell(), vec![stream("long", 7, 980)]);
    assert!(matches!(&none[..], [Certificate::MinimumLatency { .. }]));
    let mut long = stream("long", 7, 980);
    long.latency_max = us(100);
    let (_, none) = reasons(dumbbell(), vec![long]);
    assert!(matches!(
        &none[..],
        [Certificate::Window { needed, available, .. }]
            if *needed == us(8) && *available == us(7)
    ));
    // 8 us of each 10 us, and 8 us of each 15 us.
    let mut pair = vec![stream("one", 10, 980), stream("other", 15, 980)];
    for stream in &mut pair {
        stream.latency_max = us(100);
    }
    let (_, none) = reasons(dumbbell(), pair);
    assert!(matches!(
        &none[..],
        [Certificate::PairConflict { needed, divisor, .. }]
            if *needed == us(16) && *divisor == us(5)
    ));
    let mut full: Vec<Stream> = (0..4).map(|n| stream(["p", "q", "r", "s"][n], 30, 980)).collect();
    for stream in &mut full {
        stream.latency_max = us(100);
    }
    let (plan, none) = reasons(dumbbell(), full);
    assert_eq!(plan.admitted.len(), 3);
    assert!(matches!(
        &none[..],
        [Certificate::LinkLoad { streams, needed, cycle, .. }]
            if streams.len() == 4 && *needed == us(32) && *cycle == us(30)
    ));
}

#[test]
fn t0_three_that_meet_in_pairs_are_a_clique() {
    // Any two of 6, 10 and 15 have another divisor; 2 divides none of 3 and 5 alone, but all
    // three of these have the divisor 4 us: 12, 20 and 28.
    let stream = |name, interval| {
        let mut stream = Stream::new(name, NodeId(0), NodeId(2), us(interval), 180);
        stream.latency_max = us(100);
        stream
    };
    let all = vec![stream("p", 12), stream("q", 20), stream("r", 28)];
    let (_, none) = reasons(dumbbell(), all.clone());
    assert!(matches!(
        &none[..],
        [Certificate::Clique { streams, needed, divisor, .. }]
            if streams.len() == 3 && *needed == Span::from_ns(4800) && *divisor == us(4)
    ));
    // Nobody is moved in vain before that is told.
    let problem = Problem::new(dumbbell(), all).expect("a problem");
    let mut planner = Planner::new(problem, Options::default());
    let ended = planner.run(&mut Budget { work: 1_000_000, go_on: &mut |_| true });
    assert!(!ended && planner.work() < 1000, "{} steps", planner.work());
}

#[test]
fn t0_one_that_is_in_the_way_of_two_cliques_is_the_one_without_a_place() {
    // `x` comes first and is in a clique with `a` and `b` on its talker's link, and with `c` and
    // `d` on its listener's.
    let nodes = ["p", "q", "r", "s", "b"];
    let star = network(&nodes, &[(0, 4), (1, 4), (2, 4), (3, 4)], NetworkOptions::default());
    let stream = |name, talker, listener, interval| {
        let (talker, listener) = (NodeId(talker), NodeId(listener));
        let mut stream = Stream::new(name, talker, listener, us(interval), 180);
        stream.latency_max = us(100);
        stream
    };
    let mut all = vec![stream("x", 0, 1, 12), stream("a", 0, 2, 20), stream("b", 0, 2, 28)];
    all.extend([stream("c", 3, 1, 44), stream("d", 3, 1, 52)]);
    let (plan, none) = reasons(star, all);
    assert_eq!(plan.refused.iter().map(|refusal| refusal.stream.0).collect::<Vec<_>>(), [0]);
    assert!(matches!(&none[..], [Certificate::Clique { .. }]));
}

#[test]
fn t0_who_names_one_without_a_place_is_asked_again() {
    // The first two cannot be together; the third only meets the one that is refused.
    let stream = |name, interval, priority| {
        let mut stream = Stream::new(name, NodeId(0), NodeId(2), us(interval), 980);
        (stream.latency_max, stream.priority) = (us(100), priority);
        stream
    };
    let all = vec![stream("p", 20, 7), stream("q", 30, 6), stream("r", 40, 5)];
    let (plan, none) = reasons(dumbbell(), all);
    assert_eq!(plan.admitted.len(), 2, "20 and 40 us go together");
    assert!(matches!(&none[..], [Certificate::PairConflict { .. }]));
}

#[test]
fn t0_given_ways_and_releases_are_kept() {
    let pairs = [(0, 1), (0, 2), (1, 3), (2, 3)];
    let network = network(&["a", "b1", "b2", "c"], &pairs, NetworkOptions::default());
    for way in [[LinkId(0), LinkId(4)], [LinkId(2), LinkId(6)]] {
        let mut stream = Stream::new("one", NodeId(0), NodeId(3), us(1000), 100);
        stream.route = Route::Given(vec![way.to_vec()]);
        stream.release.earliest = us(40);
        stream.release.latest = Some(us(41));
        let (plan, _) = reasons(
            network.clone(),
            vec![stream.clone(), {
                let mut other = stream;
                other.name = "other".to_owned();
                other
            }],
        );
        let starts: Vec<Span> = plan.admitted.iter().map(|a| a.transmissions[0].start).collect();
        assert_eq!(starts, [us(40), Span::from_ns(40_960)]);
        assert!(plan.admitted.iter().all(|a| a.transmissions[1].link == way[1]));
    }
}

#[test]
fn t0_gates_keep_the_limits_of_the_port() {
    for (seed, limits) in [
        DeviceLimits { gate_entries: Some(16), ..DeviceLimits::default() },
        DeviceLimits { gate_entries: Some(3), ..DeviceLimits::default() },
        DeviceLimits { openings: Some(1), ..DeviceLimits::default() },
        DeviceLimits {
            interval_min: us(5),
            granularity: Span::from_ns(800),
            gate_entries: Some(64),
            ..DeviceLimits::default()
        },
    ]
    .into_iter()
    .enumerate()
    {
        let recipe = Recipe::new(Topology::Line(3), 3, 120, u64::try_from(seed).unwrap());
        let problem = recipe.problem().unwrap();
        let mut nodes = problem.network().nodes().to_vec();
        for node in &mut nodes {
            node.limits = limits;
        }
        let links = problem.network().links().to_vec();
        let network = Network::new(nodes, links, problem.network().options()).unwrap();
        let problem = Problem::new(network, problem.streams().to_vec()).unwrap();
        let plan = solve(&problem, 0);
        assert_eq!(plan.refused, []);
        for gates in &plan.gates {
            assert!(gates.entries <= limits.gate_entries.unwrap_or(u32::MAX));
            if limits.openings.is_some() {
                assert_eq!(gates.windows.len(), 1);
            }
            let mut before = Span::ZERO;
            for window in &gates.windows {
                assert!(window.end - window.start >= limits.interval_min);
                let gap = window.start - before;
                assert!(gap == Span::ZERO || gap >= limits.interval_min, "{window:?}");
                before = window.end;
                let on_grid = window.start.as_ns() % limits.granularity.as_ns() == 0;
                assert!(on_grid, "{window:?}");
            }
            covers(&problem, &plan, gates.link);
        }
    }
}

/// Every transmission lies in a window of its queue.
fn covers(problem: &Problem, plan: &Plan, link: LinkId) {
    let gates = plan.gates.iter().find(|gates| gates.link == link).expect("gates");
    for admission in &plan.admitted {
        let stream = problem.stream(admission.stream);
        for sent in admission.transmissions.iter().filter(|sent| sent.link == link) {
            let length = problem.network().occupancy(link, stream.length_bytes);
            for turn in 0..gates.cycle.as_ns() / stream.interval.as_ns() {
                let at = sent.start.as_ns() + turn * stream.interval.as_ns();
                let at = Span::from_ns(at.rem_euclid(gates.cycle.as_ns()));
                let fits = gates.windows.iter().any(|w| {
                    let end = (at + length).min(gates.cycle);
                    w.queue == sent.queue && w.start <= at && end <= w.end
                });
                assert!(fits, "{} on {link:?} at {at:?}", stream.name);
            }
        }
    }
}

#[test]
fn t0_streams_come_and_go_while_others_stay() {
    let recipe = Recipe::new(Topology::Ring(6), 2, 80, 9);
    let all = recipe.problem().unwrap();
    let problem = Problem::new(all.network().clone(), all.streams()[..60].to_vec()).unwrap();
    let mut planner = Planner::new(problem, Options::default());
    planner.run(&mut Budget { work: 1_000_000, go_on: &mut |_| true });
    let planned = planner.plan();
    planner.prepare();
    assert_eq!(planner.plan(), planned);
    for (number, stream) in all.streams()[60..].iter().enumerate() {
        let before = by_name(&planner.problem().clone(), &planner.plan());
        let change = planner.add(stream.clone(), 0).unwrap();
        assert!(matches!(&change, Change::Admitted { moved, .. } if moved.is_empty()));
        let problem = planner.problem().clone();
        let plan = planner.plan();
        assert_eq!(faults(&problem, &plan), Vec::<String>::new());
        let after = by_name(&problem, &plan);
        assert!(before.iter().all(|(name, sent)| after[name] == *sent));
        let victim = timewire_plan::model::StreamId::from_index(number * 3);
        let name = problem.stream(victim).name.clone();
        planner.remove(victim);
        let problem = planner.problem().clone();
        let left = by_name(&problem, &planner.plan());
        assert!(!left.contains_key(&name));
        assert!(left.iter().all(|(name, sent)| after[name] == *sent));
        assert_eq!(problem.find(&name), None);
    }
}

/// Steps are the same on every machine; those of a stream are more only where ways are longer.
#[test]
fn t0_planning_takes_few_steps_for_each_stream() {
    let fat = |pods| Topology::FatTree { pods, width: 4, cores: 5 };
    for (topology, stations, streams, most) in [
        (Topology::Torus(4, 3), 4, 1_250, 18),
        (Topology::Torus(7, 7), 4, 5_000, 38),
        (fat(2), 8, 1_250, 24),
        (fat(8), 8, 5_000, 35),
    ] {
        let mut recipe = Recipe::new(topology, stations, streams, 1);
        recipe.lengths = (64, 200);
        recipe.intervals = [1, 2, 4, 8].map(Span::from_ms).to_vec();
        let mut planner = Planner::new(recipe.problem().unwrap(), Options::default());
        planner.run(&mut Budget { work: u64::MAX, go_on: &mut |_| true });
        assert_eq!(planner.plan().admitted.len(), streams);
        let steps = planner.work().div_ceil(u64::try_from(streams).unwrap());
        assert!(steps <= most, "{topology:?}: {steps} steps for each stream, at most {most}");
    }
}

/// However many others there are to move, who is added gets an answer soon.
#[test]
fn t0_an_addition_has_an_end() {
    let recipe = Recipe { lengths: (1_000, 1_500), ..Recipe::new(Topology::Line(4), 2, 600, 3) };
    let all = recipe.problem().unwrap();
    let (first, more) = all.streams().split_at(all.streams().len() - 40);
    let problem = Problem::new(all.network().clone(), first.to_vec()).unwrap();
    let mut planner = Planner::new(problem, Options::default());
    planner.run(&mut Budget { work: 100_000, go_on: &mut |_| true });
    for stream in more {
        let before = planner.work();
        planner.add(stream.clone(), 1_000).unwrap();
        let steps = planner.work() - before;
        assert!(steps < 110_000, "{steps} steps");
        let problem = planner.problem().clone();
        assert_eq!(faults(&problem, &planner.plan()), Vec::<String>::new());
    }
}

fn by_name(
    problem: &Problem,
    plan: &Plan,
) -> BTreeMap<String, Vec<timewire_plan::model::Transmission>> {
    let name = |id| problem.stream(id).name.clone();
    plan.admitted.iter().map(|a| (name(a.stream), a.transmissions.clone())).collect()
}

#[test]
fn t0_room_is_made_with_few_moves_or_nothing_changes() {
    // The first has the only instant that the last may have.
    let mut late = Stream::new("late", NodeId(0), NodeId(2), us(100), 980);
    late.release.latest = Some(Span::ZERO);
    let first = Stream::new("first", NodeId(0), NodeId(2), us(100), 980);
    let problem = Problem::new(dumbbell(), vec![first]).unwrap();
    let mut planner = Planner::new(problem, Options::default());
    planner.run(&mut Budget { work: 1_000, go_on: &mut |_| true });
    let before = planner.plan();
    let change = planner.add(late.clone(), 0).unwrap();
    assert!(matches!(change, Change::Refused(Certificate::NotFound { .. })));
    assert_eq!(planner.plan(), before);
    let change = planner.add(late.clone(), 1).unwrap();
    assert!(matches!(change, Change::Admitted { moved, .. } if moved.len() == 1));
    let problem = planner.problem().clone();
    assert_eq!(faults(&problem, &planner.plan()), Vec::<String>::new());
    assert!(planner.add(late, 1).is_err(), "the name is taken");
}

#[test]
fn t0_a_link_too_slow_for_any_reckoning_is_refused() {
    let network = dumbbell();
    let slow = |bps| {
        let mut links = network.links().to_vec();
        links[3].rate = BitsPerSecond::new(bps).unwrap();
        Network::new(network.nodes().to_vec(), links, network.options())
    };
    assert!(slow(100_000).is_ok());
    let why = slow(99_999).unwrap_err().to_string();
    assert_eq!(why, "link b1-e: rate is 99999; it must be at least 100000 bit/s");
    // At the bound the longest message of all is judged as it was planned.
    let network = slow(100_000).unwrap();
    let mut stream = Stream::new("long", NodeId(0), NodeId(1), Span::from_secs(1_000), 16 << 20);
    stream.frames = 4096;
    let problem = Problem::new(network, vec![stream]).unwrap();
    let plan = plan(problem.clone(), Options::default(), 1_000);
    assert!(plan.refused[0].certificate.is_proof());
    assert_eq!(timewire_plan::check::check(&problem, &plan).unwrap().findings, []);
}

/// 2 us and 1000 s: the first would be in each interval of the second half a billion times.
#[test]
fn t0_intervals_that_have_little_to_do_with_each_other_take_little_memory() {
    let stream = |name, interval| {
        let mut stream = Stream::new(name, NodeId(0), NodeId(2), interval, 80);
        stream.latency_max = us(100);
        stream
    };
    let (short, long) = (stream("short", us(2)), stream("long", Span::from_secs(1_000)));
    let problem = Problem::new(dumbbell(), vec![short.clone(), long.clone()]).unwrap();
    let plan = plan(problem, Options::default(), 100_000);
    let none: Vec<Certificate> = plan.refused.into_iter().map(|it| it.certificate).collect();
    assert!(matches!(none[..], [Certificate::GateLimit { needed, allowed, .. }]
        if needed == 500_000_001 && allowed == 1 << 20));
    // The other way round: the long one has its line when the short one comes.
    let problem = Problem::new(dumbbell(), vec![long]).unwrap();
    let mut planner = Planner::new(problem, Options::default());
    planner.run(&mut Budget { work: 1_000, go_on: &mut |_| true });
    let change = planner.add(short, 1).unwrap();
    assert!(matches!(change, Change::Refused(Certificate::GateLimit { .. })), "{change:?}");
}

/// 1 ms is no multiple of 7 ns, so states on that grid repeat after 7 ms.
#[test]
fn t0_the_cycle_of_a_port_is_on_its_grid() {
    let grained = |grain| {
        let network = dumbbell();
        let mut nodes = network.nodes().to_vec();
        nodes[0].limits.granularity = Span::from_ns(grain);
        let network = Network::new(nodes, network.links().to_vec(), network.options()).unwrap();
        // 120 + 20 bytes are 1120 ns, which is a multiple of 7.
        let stream = Stream::new("one", NodeId(0), NodeId(2), us(1000), 120);
        Problem::new(network, vec![stream]).unwrap()
    };
    let (fine, coarse) = (grained(1), grained(7));
    let found = solve(&coarse, 0);
    assert_eq!(found.gates[0].cycle, us(7000));
    assert_eq!(found.gates[0].windows.len(), 7);
    assert_eq!(timewire_plan::check::check(&coarse, &found).unwrap().findings, []);
    let findings = timewire_plan::check::check(&coarse, &solve(&fine, 0)).unwrap().findings;
    let words: Vec<String> = findings.iter().map(|it| it.describe(&coarse)).collect();
    let said = "a gate changes where the port cannot; link a-b1; at 1000000 ns; \
                1000000 ns, should be a multiple of 7 ns";
    assert_eq!(words, [said]);
}

/// Four of 8 us in 30 us: the last is refused, and the reason names all. One is taken out, and the
/// last has its number.
#[test]
fn t0_a_reason_goes_with_those_that_it_names() {
    let stream = |name: &str| {
        let mut stream = Stream::new(name, NodeId(0), NodeId(2), us(30), 980);
        stream.latency_max = us(100);
        stream
    };
    let mut pair = [stream("y"), stream("x")];
    for stream in &mut pair {
        (stream.talker, stream.listeners) = (NodeId(2), vec![NodeId(0)]);
    }
    (pair[0].interval, pair[1].interval) = (us(15), us(10));
    let full = ["p", "q", "r", "s"].map(stream);
    let streams = full.into_iter().chain(pair).collect();
    let problem = Problem::new(dumbbell(), streams).unwrap();
    let mut planner = Planner::new(problem, Options::default());
    planner.run(&mut Budget { work: 100_000, go_on: &mut |_| true });
    let refused = |planner: &mut Planner| -> Vec<(String, Certificate)> {
        let (problem, plan) = (planner.problem().clone(), planner.plan());
        assert_eq!(timewire_plan::check::check(&problem, &plan).unwrap().findings, []);
        let name = |id| problem.stream(id).name.clone();
        plan.refused.into_iter().map(|it| (name(it.stream), it.certificate)).collect()
    };
    let before = refused(&mut planner);
    assert!(matches!(&before[..], [(s, Certificate::LinkLoad { .. }),
        (y, Certificate::PairConflict { .. })] if s == "s" && y == "y"));
    planner.remove(planner.problem().find("p").unwrap());
    let after = refused(&mut planner);
    let of = |name: &str| after.iter().find(|(own, _)| own == name).map(|(_, why)| why);
    assert!(matches!(of("s"), Some(Certificate::NotFound { .. })), "there is room for it now");
    assert!(matches!(of("y"), Some(Certificate::PairConflict { .. })), "nothing changed for it");
}

/// What no divisor and no load refutes is refuted by cases, in words that one can act on, and the
/// search ends with it: no more streams could have had a place.
#[test]
fn t0_what_no_divisor_refutes_is_refuted_by_cases() {
    let stream = |name: &str, from, to, interval, bytes| {
        let mut stream = Stream::new(name, NodeId(from), NodeId(to), us(interval), bytes);
        stream.latency_max = us(100);
        stream
    };
    // 20 us and 4 us have room for each other in the 50 us that 100 and 150 us have in common; but
    // one falls 16 us behind the other on each link, and there are three.
    let pair = vec![stream("slow", 0, 2, 100, 2_480), stream("quick", 0, 2, 150, 480)];
    // Two of 8 us each start within 9 us, and a third does not.
    let mut three =
        vec![stream("p", 0, 2, 300, 980), stream("q", 1, 2, 300, 980), stream("r", 0, 3, 300, 980)];
    for stream in &mut three {
        stream.release.latest = Some(us(9));
    }
    for (streams, words) in [
        (
            pair,
            "2 streams (quick, slow) meet on links that they cannot avoid (a-b1, b1-b2, b2-c), \
             however they start; one of them needs another interval, length or way",
        ),
        (
            three,
            "3 streams (r, p, q) meet on links that they cannot avoid (b1-b2, a-b1, b2-c), however \
             they start in each of 2 cases of who goes first; one of them needs another interval, \
             length or way",
        ),
    ] {
        let problem = Problem::new(dumbbell(), streams).unwrap();
        let mut planner = Planner::new(problem.clone(), Options::default());
        let ended = planner.run(&mut Budget { work: 50_000_000, go_on: &mut |_| true });
        assert!(!ended && planner.work() < 5_000_000, "{} steps", planner.work());
        let plan = planner.plan();
        assert_eq!(plan.refused.len(), 1);
        let certificate = &plan.refused[0].certificate;
        assert!(certificate.is_proof());
        assert_eq!(timewire_plan::words::reason(&problem, certificate), words);
        let report = timewire_plan::check::check(&problem, &plan).unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
        let verdict = &report.verdicts[0].1;
        assert_eq!(*verdict, timewire_plan::check::Verdict::Proven);
    }
}
