// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames through small random networks, one event after the other: what happens there never
//! exceeds the bounds. It knows no curve.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    route: usize,
    hop: usize,
    bits: i64,
    born: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Ends first, so that what comes at the same time finds the port free.
    Done(usize),
    Comes(Frame),
    Queued(usize, Frame),
    Look(usize),
}

#[derive(Default)]
struct Port {
    queues: [VecDeque<Frame>; 8],
    /// What is being sent: its class (8: somebody else's) and when it ends.
    sending: Option<(usize, Option<Frame>, i64)>,
    /// Credit in bit/s times ns, and when it was that.
    credit: [i128; 8],
    since: i64,
    backlog: [i64; 8],
    /// Regulators: by stream when its bucket is full again, by input and class the last release.
    full: Vec<i64>,
    released: Vec<[i64; 8]>,
}

struct Simulation<'a> {
    problem: &'a Problem,
    routes: &'a [Route],
    schemes: &'a [PortScheme],
    ports: Vec<Port>,
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    count: u64,
    random: Random,
    /// By route: the least and the longest of its frames.
    latency: Vec<(i64, i64)>,
}

impl Simulation<'_> {
    fn at(&mut self, time: i64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    fn rate(&self, port: usize) -> i64 {
        i64::try_from(self.problem.network().links()[port].rate.get()).unwrap()
    }

    fn run(&mut self) {
        for route in 0..self.routes.len() {
            let stream = self.problem.stream(self.routes[route].stream).clone();
            let interval = stream.interval.as_ns();
            let offset = match self.random.below(3) {
                0 => 0,
                _ => i64::try_from(self.random.below(interval.unsigned_abs())).unwrap(),
            };
            let bits = i64::from(stream.length_bytes + 20) * 8;
            for message in 0..6 {
                let born = offset + message * interval;
                for _ in 0..stream.frames {
                    self.at(born, Event::Comes(Frame { route, hop: 0, bits, born }));
                }
            }
        }
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            match event {
                Event::Comes(frame) => self.comes(now, frame),
                Event::Queued(port, frame) => self.queued(now, port, frame),
                Event::Done(port) => self.done(now, port),
                Event::Look(port) => self.look(now, port),
            }
        }
    }

    fn class(&self, frame: Frame) -> usize {
        usize::from(self.problem.stream(self.routes[frame.route].stream).priority)
    }

    /// Into the queue, or first through the regulator of its input and class.
    fn comes(&mut self, now: i64, frame: Frame) {
        let route = &self.routes[frame.route];
        let (port, class) = (route.links[frame.hop].index(), self.class(frame));
        let regulated = self.schemes[port].classes[class] == Selection::Regulated;
        if !regulated || frame.hop == 0 {
            return self.queued(now, port, frame);
        }
        let stream = self.problem.stream(route.stream);
        let input = route.links[frame.hop - 1].index();
        let depth = frame.bits * i64::from(stream.frames);
        // Tokens as time: a message of `depth` bits in each interval.
        let fill = |bits: i64| (bits * stream.interval.as_ns() + depth - 1) / depth;
        let here = &mut self.ports[port];
        let full = here.full[frame.route];
        let ready = now.max(full - fill(depth - frame.bits)).max(here.released[input][class]);
        here.full[frame.route] = full.max(ready) + fill(frame.bits);
        here.released[input][class] = ready;
        self.at(ready, Event::Queued(port, frame));
    }

    fn queued(&mut self, now: i64, port: usize, frame: Frame) {
        let class = self.class(frame);
        self.credits(now, port);
        let rate = self.rate(port);
        let here = &mut self.ports[port];
        here.queues[class].push_back(frame);
        let mut waits: i64 = here.queues[class].iter().map(|frame| frame.bits).sum();
        if let Some((sending, _, ends)) = here.sending
            && sending == class
        {
            waits += (ends - now) * (rate / 1_000_000) / 1_000;
        }
        here.backlog[class] = here.backlog[class].max(waits);
        self.at(now, Event::Look(port));
    }

    /// Credit as it is now.
    fn credits(&mut self, now: i64, port: usize) {
        let rate = i128::from(self.rate(port));
        let here = &mut self.ports[port];
        let passed = i128::from(now - here.since);
        here.since = now;
        for class in 0..8 {
            let Selection::Credit { idle_slope } = self.schemes[port].classes[class] else {
                continue;
            };
            let idle = i128::from(idle_slope.get());
            let sending = here.sending.is_some_and(|(sending, ..)| sending == class);
            let credit = &mut here.credit[class];
            if sending {
                *credit += (idle - rate) * passed;
            } else if !here.queues[class].is_empty() {
                *credit += idle * passed;
            } else {
                *credit = (*credit + idle * passed).min(0);
            }
        }
    }

    fn done(&mut self, now: i64, port: usize) {
        self.credits(now, port);
        let (class, frame, _) = self.ports[port].sending.take().unwrap();
        if let Some(frame) = frame {
            if self.ports[port].queues[class].is_empty() {
                let credit = &mut self.ports[port].credit[class];
                *credit = (*credit).min(0);
            }
            let links = &self.routes[frame.route].links;
            if frame.hop + 1 == links.len() {
                let (least, most) = &mut self.latency[frame.route];
                *least = (*least).min(now - frame.born);
                *most = (*most).max(now - frame.born);
            } else {
                self.at(now, Event::Comes(Frame { hop: frame.hop + 1, ..frame }));
            }
        }
        self.at(now, Event::Look(port));
    }

    /// How long the class's gate stays open; `Err`: when it opens.
    fn gate(&self, now: i64, port: usize, class: usize) -> Result<i64, i64> {
        let Some(gates) = &self.schemes[port].gates else { return Ok(i64::MAX) };
        let cycle = gates.cycle.as_ns();
        let open = |time: i64| {
            let phase = Span::from_ns(time % cycle);
            let mut windows = gates.windows.iter();
            let window = windows.find(|window| window.start <= phase && phase < window.end)?;
            (window.open >> class & 1 == 1).then_some((window.end - phase).as_ns())
        };
        let mut ends = now;
        while let Some(more) = open(ends).filter(|_| ends < now + cycle) {
            ends += more;
        }
        if ends > now {
            return Ok(ends - now);
        }
        // It opens when a window begins.
        let starts = gates.windows.iter().flat_map(|window| {
            let start = now - now % cycle + window.start.as_ns();
            [start, start + cycle]
        });
        let next = starts.filter(|start| *start > now && open(*start).is_some()).min();
        Err(next.unwrap_or(now + cycle))
    }

    /// Sends the next frame if the port is free and one may go.
    fn look(&mut self, now: i64, port: usize) {
        if self.ports[port].sending.is_some() {
            return;
        }
        self.credits(now, port);
        let rate = self.rate(port);
        let length = |bits: i64| bits * 1_000 / (rate / 1_000_000);
        let mut again = i64::MAX;
        for class in (0..8).rev() {
            let Some(frame) = self.ports[port].queues[class].front().copied() else { continue };
            if let Selection::Credit { idle_slope } = self.schemes[port].classes[class]
                && self.ports[port].credit[class] < 0
            {
                let idle = i128::from(idle_slope.get());
                let wait = (-self.ports[port].credit[class] + idle - 1) / idle;
                again = again.min(now + i64::try_from(wait).unwrap());
                continue;
            }
            match self.gate(now, port, class) {
                Ok(left) if left >= length(frame.bits) => {
                    self.ports[port].queues[class].pop_front();
                    let ends = now + length(frame.bits);
                    self.ports[port].sending = Some((class, Some(frame), ends));
                    return self.at(ends, Event::Done(port));
                }
                Ok(left) => again = again.min(now + left),
                Err(opens) => again = again.min(opens),
            }
        }
        // Somebody else's frame, if there is anybody, whenever nobody can be seen to need the port.
        let other = i64::from(self.schemes[port].other_bytes);
        let waiting = self.ports[port].queues.iter().any(|queue| !queue.is_empty());
        if other > 0 && (waiting || self.random.below(2) == 0) {
            let bits = (other + 20) * 8;
            let ends = now + length(bits);
            self.ports[port].sending = Some((8, None, ends));
            return self.at(ends, Event::Done(port));
        }
        if waiting {
            self.at(again.max(now + 1), Event::Look(port));
        }
    }
}

/// A tree of bridges with stations; in a tree no queue depends on itself.
fn tree(random: &mut Random) -> (Problem, Vec<Route>) {
    let bridges = 1 + random.below(4);
    let stations = 2 + random.below(5);
    let mut edges: Vec<(u32, u32, u64)> = Vec::new();
    let mut parents = vec![0_usize];
    for index in 1..bridges + stations {
        let parent = random.below(index.min(bridges));
        let rate = if random.below(3) == 0 { 1_000 } else { 100 };
        let (one, two) = (u32::try_from(index).unwrap(), u32::try_from(parent).unwrap());
        edges.extend([(one, two, rate), (two, one, rate)]);
        parents.push(usize::try_from(parent).unwrap());
    }
    let role = |index| if index < bridges { Role::Bridge } else { Role::EndStation };
    let nodes =
        (0..bridges + stations).map(|index| node(usize::try_from(index).unwrap(), role(index)));
    let network = network(nodes.collect(), &edges);
    let up = |mut at: usize| {
        let mut way = vec![at];
        while at > 0 {
            at = parents[at];
            way.push(at);
        }
        way
    };
    let (mut streams, mut routes) = (Vec::new(), Vec::new());
    for index in 0..1 + random.below(7) {
        let talker = bridges + random.below(stations);
        let listener = bridges + (talker - bridges + 1 + random.below(stations - 1)) % stations;
        let [from, to] = [talker, listener].map(|node| usize::try_from(node).unwrap());
        let id = |node: usize| NodeId(u32::try_from(node).unwrap());
        let interval = Span::from_us([250, 500, 1_000][usize::try_from(random.below(3)).unwrap()]);
        let length = u32::try_from(64 + random.below(1_100)).unwrap();
        let mut stream = Stream::new(format!("s{index}"), id(from), id(to), interval, length);
        stream.frames = u32::try_from(1 + random.below(2)).unwrap();
        stream.priority = u8::try_from(4 + random.below(4)).unwrap();
        let (mut there, mut back) = (up(from), up(to));
        while there.len() > 1 && back.len() > 1 && there[there.len() - 2] == back[back.len() - 2] {
            there.pop();
            back.pop();
        }
        back.pop();
        there.extend(back.into_iter().rev());
        let links = there.windows(2).map(|pair| {
            let found = |edge: &(u32, u32, u64)| {
                (NodeId(edge.0), NodeId(edge.1)) == (id(pair[0]), id(pair[1]))
            };
            LinkId::from_index(edges.iter().position(found).unwrap())
        });
        routes.push(Route {
            stream: StreamId::from_index(streams.len()),
            links: links.collect(),
            together: 0,
        });
        streams.push(stream);
    }
    (Problem::new(network, streams).unwrap(), routes)
}

/// Random selections; credit for the classes 6 and 5 only when each gets at least what it needs.
fn scheme(random: &mut Random, rate: u64, kind: u64) -> PortScheme {
    let other_bytes = [0, 64, 1_522][usize::try_from(random.below(3)).unwrap()];
    let mut scheme = PortScheme { other_bytes, ..PortScheme::default() };
    let share = |percent| BitsPerSecond::new(rate / 100 * percent).unwrap();
    match kind {
        1 => {
            scheme.classes[6] = Selection::Credit { idle_slope: share(20 + random.below(30)) };
            scheme.classes[5] = Selection::Credit { idle_slope: share(10 + random.below(30)) };
        }
        2 => scheme.classes[4..].fill(Selection::Regulated),
        3 => {
            let cut = i64::try_from(30 + random.below(40)).unwrap();
            let window = |start, end, open| ClassWindow {
                start: Span::from_us(start * 5),
                end: Span::from_us(end * 5),
                open,
                hold: false,
            };
            let masks = [0xd0, 0x70, 0xf0, 0x80];
            let low = [0x30, 0xf0, 0x7f, 0x70];
            let pick = usize::try_from(random.below(4)).unwrap();
            let windows = vec![window(0, cut, masks[pick]), window(cut, 100, low[pick])];
            scheme.gates = Some(ClassGates { cycle: Span::from_us(500), windows });
            scheme.other_bytes = 0;
        }
        _ => {}
    }
    scheme
}

/// Bridges, each linked to each other and with a station; streams over some of them in any order,
/// so that queues depend on each other in circles.
fn circles(random: &mut Random) -> (Problem, Vec<Route>) {
    let bridges = u32::try_from(3 + random.below(3)).unwrap();
    let mut edges: Vec<(u32, u32, u64)> = Vec::new();
    for one in 0..bridges {
        edges.extend((0..bridges).filter(|it| *it != one).map(|other| (one, other, 100)));
        edges.extend([(one, bridges + one, 100), (bridges + one, one, 100)]);
    }
    let role = |index| if index < bridges { Role::Bridge } else { Role::EndStation };
    let nodes = (0..2 * bridges).map(|index| node(usize::try_from(index).unwrap(), role(index)));
    let network = network(nodes.collect(), &edges);
    let (mut streams, mut routes) = (Vec::new(), Vec::new());
    for index in 0..3 + random.below(10) {
        let mut left: Vec<u32> = (0..bridges).collect();
        let count = usize::try_from(3 + random.below(u64::from(bridges) - 2)).unwrap();
        let mut take = || {
            let place = random.below(u64::try_from(left.len()).unwrap());
            left.swap_remove(usize::try_from(place).unwrap())
        };
        let order: Vec<u32> = (0..count).map(|_| take()).collect();
        let ends = [order[0], order[count - 1]].map(|bridge| bridges + bridge);
        let way = [&[ends[0]], &order[..], &[ends[1]]].concat();
        let link = |pair: &[u32]| {
            let found = edges.iter().position(|edge| [edge.0, edge.1] == *pair);
            LinkId::from_index(found.unwrap())
        };
        let links = way.windows(2).map(link).collect();
        let interval = Span::from_us([250, 500, 1_000][usize::try_from(random.below(3)).unwrap()]);
        let length = u32::try_from(64 + random.below(500)).unwrap();
        let [talker, listener] = ends.map(NodeId);
        let mut stream = Stream::new(format!("s{index}"), talker, listener, interval, length);
        stream.frames = u32::try_from(1 + random.below(2)).unwrap();
        stream.priority = u8::try_from(4 + random.below(4)).unwrap();
        routes.push(Route { stream: StreamId::from_index(streams.len()), links, together: 0 });
        streams.push(stream);
    }
    (Problem::new(network, streams).unwrap(), routes)
}

/// What was compared, by kind of selection: how many streams, and how near the nearest came to its
/// bound, in thousandths.
#[derive(Default)]
struct Compared {
    bounded: [u32; 4],
    nearest: [i64; 4],
}

impl Compared {
    /// Simulates a network, where it has bounds; nothing in it exceeds them.
    fn add(&mut self, seed: u64, mut random: Random, (problem, routes): (&Problem, &[Route])) {
        let kind = seed % 4;
        let links = problem.network().links();
        let schemes: Vec<PortScheme> =
            links.iter().map(|link| scheme(&mut random, link.rate.get(), kind)).collect();
        let bounds = bound(problem, routes, &schemes).unwrap();
        if bounds.streams.iter().any(|stream| stream.latency.is_none()) {
            return;
        }
        let port = || Port {
            full: vec![i64::MIN / 4; routes.len()],
            released: vec![[0; 8]; links.len()],
            ..Port::default()
        };
        let mut simulation = Simulation {
            problem,
            routes,
            schemes: &schemes,
            ports: links.iter().map(|_| port()).collect(),
            events: BinaryHeap::new(),
            count: 0,
            random,
            latency: vec![(i64::MAX, 0); routes.len()],
        };
        simulation.run();
        let place = usize::try_from(kind).unwrap();
        for (stream, (least, seen)) in bounds.streams.iter().zip(&simulation.latency) {
            let most = stream.latency.unwrap().as_ns();
            assert!(*seen <= most, "seed {seed}, {:?}: {seen} ns of {most}", stream.stream);
            let (differs, jitter) = (seen - least, stream.jitter.unwrap().as_ns());
            assert!(differs <= jitter, "seed {seed}, {:?}: {differs} of {jitter}", stream.stream);
            self.bounded[place] += 1;
            self.nearest[place] = self.nearest[place].max(seen * 1_000 / most);
        }
        for queue in &bounds.queues {
            let seen = simulation.ports[queue.link.index()].backlog[usize::from(queue.class)];
            let most = i64::try_from(queue.backlog_bytes.unwrap()).unwrap() * 8;
            assert!(seen <= most, "seed {seed}, {queue:?}: {seen} bits");
        }
    }
}

fn seeded(seed: u64) -> Random {
    Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn t0_no_simulated_network_exceeds_its_bounds() {
    let mut all = Compared::default();
    for seed in 0..6_000_u64 {
        let mut random = seeded(seed);
        let (problem, routes) = tree(&mut random);
        all.add(seed, random, (&problem, &routes));
    }
    // It compared something, and came near: strict priority, credit, regulators, gates.
    assert!(all.bounded.iter().all(|count| *count > 500), "{:?}", all.bounded);
    assert!(all.nearest.iter().all(|permille| *permille > 600), "{:?}", all.nearest);
}

#[test]
fn t0_no_simulated_circle_exceeds_its_bounds() {
    let mut all = Compared::default();
    let mut circular = 0;
    for seed in 0..6_000_u64 {
        let mut random = seeded(seed);
        let (problem, routes) = circles(&mut random);
        circular += u32::from(is_circular(&routes));
        all.add(seed, random, (&problem, &routes));
    }
    assert!(circular > 1_000, "{circular} networks have circles");
    assert!(all.bounded.iter().all(|count| *count > 500), "{:?}", all.bounded);
    assert!(all.nearest.iter().all(|permille| *permille > 300), "{:?}", all.nearest);
}

/// Whether some link comes before itself.
fn is_circular(routes: &[Route]) -> bool {
    let mut left: Vec<(LinkId, LinkId)> =
        routes.iter().flat_map(|it| it.links.windows(2).map(|pair| (pair[0], pair[1]))).collect();
    loop {
        let count = left.len();
        let fed: Vec<LinkId> = left.iter().map(|(_, to)| *to).collect();
        left.retain(|(from, _)| fed.contains(from));
        if left.len() == count {
            return count > 0;
        }
    }
}
