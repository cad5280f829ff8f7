// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each way to spoil a plan, and the finding that it must bring.

use super::*;

/// Spoils a valid plan somewhere, and says which finding on which link or stream must tell of it.
type Spoil = fn(&mut World, &mut Random) -> (Rule, Option<LinkId>, Option<StreamId>);

/// A random transmission: its place among the admissions and in its own.
fn any(world: &World, random: &mut Random) -> (usize, usize) {
    let admission = random.below(world.plan.admitted.len());
    (admission, random.below(world.plan.admitted[admission].transmissions.len()))
}

fn one(world: &mut World, place: (usize, usize)) -> &mut Transmission {
    &mut world.plan.admitted[place.0].transmissions[place.1]
}

/// A transmission that is not a talker's.
fn forwarded(world: &World, random: &mut Random) -> (usize, usize) {
    loop {
        let place = any(world, random);
        let link = world.plan.admitted[place.0].transmissions[place.1].link;
        if world.links[link.index()].from.0 < 4 {
            return place;
        }
    }
}

fn id(place: (usize, usize)) -> Option<StreamId> {
    Some(StreamId::from_index(place.0))
}

/// A bridge's port with gates.
fn gates(world: &World, random: &mut Random) -> usize {
    loop {
        let place = random.below(world.plan.gates.len());
        if world.links[world.plan.gates[place].link.index()].from.0 < 4 {
            return place;
        }
    }
}

fn sender<'a>(world: &'a mut World, gates: &PortGates) -> &'a mut DeviceLimits {
    let node = world.links[gates.link.index()].from.index();
    &mut world.nodes[node].limits
}

const SPOILS: &[(&str, Spoil)] = &[
    ("an unknown stream is admitted", |world, random| {
        let extra = world.plan.admitted[random.below(8)].transmissions.clone();
        world.plan.admitted.push(Admission { stream: StreamId(99), transmissions: extra });
        (Rule::UnknownStream, None, Some(StreamId(99)))
    }),
    ("a stream is admitted twice", |world, random| {
        let twice = world.plan.admitted[random.below(8)].clone();
        let id = twice.stream;
        world.plan.admitted.push(twice);
        (Rule::StreamTwice, None, Some(id))
    }),
    ("a stream is admitted and refused", |world, random| {
        let stream = StreamId::from_index(random.below(8));
        let certificate = crate::model::Certificate::NotFound { tried: 1 };
        world.plan.refused.push(Refusal { stream, certificate });
        (Rule::StreamTwice, None, Some(stream))
    }),
    ("a stream is forgotten", |world, random| {
        let gone = world.plan.admitted.remove(random.below(8));
        (Rule::StreamMissing, None, Some(gone.stream))
    }),
    ("a link that is not there", |world, random| {
        let place = any(world, random);
        one(world, place).link = LinkId(77);
        (Rule::UnknownLink, Some(LinkId(77)), id(place))
    }),
    ("a frame that is not there", |world, random| {
        let place = any(world, random);
        one(world, place).frame = 9;
        (Rule::UnknownFrame, None, id(place))
    }),
    ("a copy that is not there", |world, random| {
        let place = any(world, random);
        one(world, place).copy = 3;
        (Rule::UnknownFrame, None, id(place))
    }),
    ("a frame twice", |world, random| {
        let place = any(world, random);
        let twice = *one(world, place);
        world.plan.admitted[place.0].transmissions.push(twice);
        (Rule::FrameTwice, Some(twice.link), id(place))
    }),
    ("a frame is lost on one link", |world, random| {
        let lost = world.plan.admitted[0].transmissions.remove(random.below(8));
        (Rule::FrameMissing, Some(lost.link), Some(StreamId(0)))
    }),
    ("a copy is left out", |world, _| {
        world.plan.admitted[3].transmissions.retain(|one| one.copy == 0);
        (Rule::CopyMissing, None, Some(StreamId(3)))
    }),
    ("a start before zero", |world, random| {
        let place = any(world, random);
        one(world, place).start = Span::from_ns(-5);
        (Rule::StartRange, None, id(place))
    }),
    ("a start beyond time", |world, random| {
        let place = any(world, random);
        one(world, place).start = Span::from_ns(i64::MAX - 3);
        (Rule::StartRange, None, id(place))
    }),
    ("a link of the way is left out", |world, _| {
        world.plan.admitted[0].transmissions.retain(|one| one.link != link(0, 1));
        (Rule::Path, Some(link(1, 2)), Some(StreamId(0)))
    }),
    ("the way through another station", |world, _| {
        let around = Transmission { link: link(5, 1), ..world.plan.admitted[0].transmissions[0] };
        world.plan.admitted[0].transmissions.push(around);
        (Rule::Path, Some(link(5, 1)), Some(StreamId(0)))
    }),
    ("the last link is left out", |world, _| {
        world.plan.admitted[2].transmissions.retain(|one| one.link != link(1, 5));
        (Rule::ListenerMissed, None, Some(StreamId(2)))
    }),
    ("a link that nobody needs", |world, _| {
        let mut extra = world.plan.admitted[4].transmissions.clone();
        extra.retain(|one| one.link == link(1, 2));
        extra.iter_mut().for_each(|one| one.link = link(1, 0));
        world.plan.admitted[4].transmissions.extend(extra);
        (Rule::UselessLink, Some(link(1, 0)), Some(StreamId(4)))
    }),
    ("another way than the given one", |world, _| {
        world.streams[1].route = Route::Given(vec![tree(&[(5, 1), (1, 0), (0, 3), (3, 7)])]);
        (Rule::RouteDiffers, None, Some(StreamId(1)))
    }),
    ("two copies on one link", |world, _| {
        for one in &mut world.plan.admitted[3].transmissions {
            if one.link == link(4, 3) {
                one.link = link(4, 0);
            }
        }
        (Rule::CopiesShare, Some(link(4, 0)), Some(StreamId(3)))
    }),
    ("a frame that leaves before it is there", |world, random| {
        let place = forwarded(world, random);
        one(world, place).start = one(world, place).start - Span::from_ns(1);
        let link = one(world, place).link;
        (Rule::Causality, Some(link), id(place))
    }),
    ("a bridge that is slower than planned", |world, _| {
        world.nodes[2].processing_max = Span::from_ns(1_001);
        (Rule::Causality, Some(link(2, 6)), Some(StreamId(0)))
    }),
    ("clocks that differ more than planned", |world, _| {
        world.options.sync_error = Span::from_ns(21);
        (Rule::Causality, Some(link(0, 1)), Some(StreamId(0)))
    }),
    ("frames of a message exchanged", |world, _| {
        let all = &mut world.plan.admitted[0].transmissions;
        (all[0].start, all[1].start) = (all[1].start, all[0].start);
        (Rule::FrameOrder, Some(link(4, 0)), Some(StreamId(0)))
    }),
    ("two at once", |world, _| {
        let start = world.plan.admitted[0].transmissions[0].start;
        world.plan.admitted[3].transmissions[0].start = start + Span::from_ns(100);
        (Rule::Overlap, Some(link(4, 0)), Some(StreamId(3)))
    }),
    ("the overhead is forgotten", |world, _| {
        world.options.overhead_bytes = 21;
        (Rule::GateShut, Some(link(4, 0)), Some(StreamId(0)))
    }),
    ("a stream that starts before its release", |world, _| {
        let start = world.plan.admitted[1].transmissions[0].start;
        world.streams[1].release.earliest = start + Span::from_ns(1);
        (Rule::Release, Some(link(5, 1)), Some(StreamId(1)))
    }),
    ("a stream that starts after its release", |world, random| {
        let place = random.below(8);
        let all = &mut world.plan.admitted[place].transmissions;
        let interval = world.streams[place].interval;
        all.iter_mut().for_each(|one| one.start += interval);
        let link = all[0].link;
        (Rule::Release, Some(link), id((place, 0)))
    }),
    ("less latency is allowed", |world, random| {
        let place = random.below(8);
        world.streams[place].latency_max = Span::from_ns(3_000);
        (Rule::Latency, None, id((place, 0)))
    }),
    ("a queue that the port does not have", |world, random| {
        let place = forwarded(world, random);
        one(world, place).queue = 8;
        let link = one(world, place).link;
        (Rule::Queue, Some(link), id(place))
    }),
    ("a window of a queue that the port does not have", |world, random| {
        let place = gates(world, random);
        world.plan.gates[place].windows[0].queue = 200;
        (Rule::Queue, Some(world.plan.gates[place].link), None)
    }),
    ("gates of a port are left out", |world, random| {
        let place = gates(world, random);
        let gone = world.plan.gates.remove(place);
        (Rule::GatesMissing, Some(gone.link), None)
    }),
    ("gates of a port twice", |world, random| {
        let place = gates(world, random);
        let twice = world.plan.gates[place].clone();
        world.plan.gates.push(twice.clone());
        (Rule::GatesUnexpected, Some(twice.link), None)
    }),
    ("gates of a port without any", |world, random| {
        let place = gates(world, random);
        let gates = world.plan.gates[place].clone();
        sender(world, &gates).gate_entries = Some(0);
        (Rule::GatesUnexpected, Some(gates.link), None)
    }),
    ("a window too late", |world, random| {
        let place = gates(world, random);
        let gates = &mut world.plan.gates[place];
        let window = &mut gates.windows[0];
        window.start += Span::from_ns(1);
        (Rule::GateShut, Some(gates.link), None)
    }),
    ("a window for another queue", |world, random| {
        let place = gates(world, random);
        let gates = &mut world.plan.gates[place];
        let last = gates.windows.len() - 1;
        gates.windows[last].queue ^= 1;
        (Rule::GateShut, Some(gates.link), None)
    }),
    ("an empty window", |world, random| {
        let place = gates(world, random);
        let gates = &mut world.plan.gates[place];
        gates.windows[0].end = gates.windows[0].start;
        (Rule::GateWindows, Some(gates.link), None)
    }),
    ("a window beyond the cycle", |world, random| {
        let place = gates(world, random);
        let gates = &mut world.plan.gates[place];
        let last = gates.windows.len() - 1;
        gates.windows[last].end = gates.cycle + Span::from_ns(1);
        (Rule::GateWindows, Some(gates.link), None)
    }),
    ("windows out of order", |world, random| {
        let place = loop {
            let place = gates(world, random);
            if world.plan.gates[place].windows.len() > 1 {
                break place;
            }
        };
        world.plan.gates[place].windows.swap(0, 1);
        (Rule::GateWindows, Some(world.plan.gates[place].link), None)
    }),
    ("a window longer than what is sent", |world, random| {
        loop {
            let place = gates(world, random);
            let gates = &mut world.plan.gates[place];
            let window = random.below(gates.windows.len());
            let next = gates.windows.get(window + 1).map_or(gates.cycle, |next| next.start);
            if gates.windows[window].end < next {
                gates.windows[window].end = next;
                return (Rule::GateSpare, Some(gates.link), None);
            }
        }
    }),
    ("more spare time than there is", |world, random| {
        let place = gates(world, random);
        world.plan.gates[place].spare = Span::from_ns(1);
        (Rule::GateSpare, Some(world.plan.gates[place].link), None)
    }),
    ("entries are miscounted", |world, random| {
        let place = gates(world, random);
        world.plan.gates[place].entries -= 1;
        (Rule::GateCount, Some(world.plan.gates[place].link), None)
    }),
    ("more entries than the port has", |world, random| {
        let place = gates(world, random);
        let gates = world.plan.gates[place].clone();
        sender(world, &gates).gate_entries = Some(gates.entries - 1);
        (Rule::GateEntries, Some(gates.link), None)
    }),
    ("entries that are too short", |world, random| {
        let place = gates(world, random);
        let gates = world.plan.gates[place].clone();
        sender(world, &gates).interval_min = us(300);
        (Rule::IntervalShort, Some(gates.link), None)
    }),
    ("entries that are longer than the port can have", |world, random| {
        let place = gates(world, random);
        let gates = world.plan.gates[place].clone();
        // What is too long takes several entries.
        sender(world, &gates).interval_max = Some(us(1));
        (Rule::GateCount, Some(gates.link), None)
    }),
    ("a coarser grain", |world, _| {
        world.nodes[1].limits.granularity = us(7);
        (Rule::Granularity, Some(link(1, 2)), None)
    }),
    ("one opening for each queue", |world, _| {
        world.nodes[4].limits.openings = Some(1);
        world.nodes[1].limits.openings = Some(1);
        (Rule::Openings, Some(link(1, 2)), None)
    }),
    ("a cycle that is longer than the port can have", |world, random| {
        let place = gates(world, random);
        let gates = world.plan.gates[place].clone();
        sender(world, &gates).cycle_max = Some(gates.cycle - Span::from_ns(1));
        (Rule::CycleLong, Some(gates.link), None)
    }),
    ("two ports of a device that change their gates at once", |world, random| {
        let (one, other, at) = loop {
            let [one, other] = [gates(world, random), gates(world, random)];
            let from = |place: usize| world.links[world.plan.gates[place].link.index()].from;
            let start = world.plan.gates[one].windows[0].start;
            if one != other && from(one) == from(other) && start > Span::ZERO {
                break (one, other, start);
            }
        };
        let cycle = world.plan.cycle;
        let changed = &mut world.plan.gates[other];
        let queue = changed.windows[0].queue;
        changed.windows = vec![GateWindow { start: at, end: cycle, queue }];
        changed.cycle = cycle;
        let later = world.plan.gates[one.max(other)].clone();
        sender(world, &later).changes_apart = true;
        (Rule::Together, Some(later.link), None)
    }),
    ("a talker without gates and launch time", |world, _| {
        world.nodes[5].limits.gate_entries = Some(0);
        world.nodes[5].limits.launch_time = false;
        world.plan.gates.retain(|gates| gates.link != link(5, 1));
        (Rule::LaunchTime, Some(link(5, 1)), Some(StreamId(1)))
    }),
    ("a cycle that is no multiple", |world, random| {
        world.plan.cycle += us(1);
        (Rule::Cycle, None, Some(StreamId::from_index(random.below(8))))
    }),
    ("gates with a cycle of their own", |world, random| {
        let place = gates(world, random);
        let gates = &mut world.plan.gates[place];
        gates.cycle += Span::from_ns(1);
        (Rule::PortCycle, Some(gates.link), None)
    }),
    ("bridges without gates, which let frames go early", |world, _| {
        for node in &mut world.nodes[..4] {
            node.limits.gate_entries = Some(0);
        }
        (Rule::Jitter, None, Some(StreamId(0)))
    }),
    ("a wait in a queue while another goes", |world, _| {
        // Two frames of stream 0 wait on the second bridge for 30 us; stream 4 goes meanwhile.
        for place in [0, 1, 4] {
            world.plan.admitted[place].transmissions.iter_mut().for_each(|one| one.queue = 7);
        }
        for one in &mut world.plan.admitted[0].transmissions {
            if [link(1, 2), link(2, 6)].contains(&one.link) {
                one.start += us(400);
            }
        }
        (Rule::Isolation, Some(link(1, 2)), Some(StreamId(0)))
    }),
    ("a refusal with a wrong reason", |world, random| {
        let stream = world.plan.admitted.remove(random.below(8)).stream;
        let certificate = crate::model::Certificate::Window {
            link: link(0, 1),
            needed: us(1_000),
            available: us(1),
        };
        world.plan.refused.push(Refusal { stream, certificate });
        (Rule::Certificate, None, Some(stream))
    }),
];

#[test]
fn t0_every_corruption_brings_its_finding() {
    assert!(SPOILS.len() >= 30);
    let mut rules = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let valid = World::planned(seed);
        for (index, (name, spoil)) in SPOILS.iter().enumerate() {
            let mut world = valid.clone();
            let mut random = Random(seed * 1_000 + u64::try_from(index).unwrap() + 17);
            let (rule, link, stream) = spoil(&mut world, &mut random);
            rules.insert(rule);
            let report = world.report();
            let told = report.findings.iter().any(|finding| {
                finding.rule == rule
                    && (link.is_none() || finding.link == link)
                    && stream.is_none_or(|stream| finding.streams.contains(&stream))
            });
            let problem = world.problem();
            let words: Vec<String> =
                report.findings.iter().take(9).map(|it| it.describe(&problem)).collect();
            assert!(told, "seed {seed}, {name}: {rule:?} {link:?} {stream:?} of {words:#?}");
        }
    }
    assert!(rules.len() >= 30, "{} rules: {rules:?}", rules.len());
}
