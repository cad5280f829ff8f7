// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links that are cut completely into frames: problems that are known to have a plan, and the same
//! with one frame more. The same for the same seed.

use timewire_base::{BitsPerSecond, Sequence, Span};
use timewire_plan::model::{Link, Network, NetworkOptions, Node, NodeId, Problem, Role, Stream};

/// Intervals that divide each other, and some that do not. **Units**: milliseconds.
const HARMONIC: &[i64] = &[1, 2, 4, 8];
const MIXED: &[i64] = &[1, 2, 5, 10];
/// The shortest frame. **Units**: bytes, with [`OVERHEAD`].
const SHORTEST: i64 = 84;
const OVERHEAD: i64 = 20;

/// What to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    pub harmonic: bool,
    /// About so many streams.
    pub streams: usize,
    /// Of the link that is cut; a frame may be shorter than planned, or missing, for less than 100.
    pub load_percent: i64,
    /// Bytes of the link in a millisecond: 12 500 or 125 000.
    pub bytes: i64,
    /// Stations on either side of the link: one is all of a link, of more the link is the trunk.
    pub stations: usize,
    pub seed: u64,
}

/// A frame of the plan that is not told. Times are bytes of the link.
struct Frame {
    every: i64,
    start: i64,
    length: i64,
}

impl Packing {
    /// The one of so many different ones with this seed.
    pub fn of(seed: u64) -> Packing {
        let mut random = Sequence::new(seed ^ 0x7061_636b);
        let number = |below: usize| i64::try_from(below).unwrap_or(0);
        Packing {
            harmonic: seed.is_multiple_of(2),
            streams: 20 + random.below(181),
            load_percent: 92 + number(random.below(9)),
            bytes: [12_500, 125_000][random.below(2)],
            stations: [1, 1, 4, 8][random.below(4)],
            seed,
        }
    }

    pub fn intervals(&self) -> &'static [i64] {
        if self.harmonic { HARMONIC } else { MIXED }
    }

    fn cycle(&self) -> i64 {
        self.intervals()[3] * self.bytes
    }

    /// The problem; it has a plan with all streams.
    pub fn problem(&self) -> Problem {
        let mut random = Sequence::new(self.seed);
        let mut frames = self.frames(&mut random);
        self.lighten(&mut frames, &mut random);
        self.network(&frames, &mut random)
    }

    /// What is left of the link in a cycle. **Units**: bytes.
    pub fn spare(&self, problem: &Problem) -> i64 {
        let busy = problem.streams().iter().map(|stream| {
            let turns = self.cycle() / self.every(stream);
            (i64::from(stream.length_bytes) + OVERHEAD) * turns
        });
        self.cycle() - busy.sum::<i64>()
    }

    fn every(&self, stream: &Stream) -> i64 {
        stream.interval.as_ns() / 1_000_000 * self.bytes
    }

    /// The problem with one more stream of an interval by chance, which leaves `left` of what is
    /// spare, if there is as much; more than there is makes it impossible by its load.
    pub fn with_one_more(&self, left: i64) -> Option<Problem> {
        let mut problem = self.problem();
        let mut random = Sequence::new(self.seed ^ 1);
        let spare = self.spare(&problem) - left;
        let interval = self.intervals()[random.below(4)];
        let length = spare / (self.intervals()[3] / interval);
        let first = problem.streams().first()?;
        let (from, to) = (first.talker, first.listeners[0]);
        let bytes = u32::try_from(length - OVERHEAD).ok().filter(|bytes| *bytes >= 64)?;
        let mut more = Stream::new("more", from, to, Span::from_ms(interval), bytes);
        more.latency_max = Span::from_ms(100);
        problem.add(more).ok()?;
        Some(problem)
    }

    /// A problem that has no plan, though the link has time for all: frames of which so many lie
    /// in a millisecond, and one more than that in all of them.
    pub fn too_coarse(&self) -> Problem {
        let mut random = Sequence::new(self.seed ^ 2);
        let intervals = self.intervals();
        let in_each = 1 + i64::try_from(random.below(4)).unwrap_or(0);
        let mut frames = Vec::new();
        let mut add = |interval: i64, length| {
            frames.push(Frame { every: interval * self.bytes, start: 0, length });
        };
        for _ in 0..3 {
            add(1, self.bytes / 10);
        }
        let least = (self.bytes - 3 * (self.bytes / 10)) / (in_each + 1) + 1;
        let mut left = in_each * intervals[3] + 1;
        while left > 0 {
            let interval = intervals[1 + random.below(3)];
            let turns = intervals[3] / interval;
            let longer = random.below(usize::try_from(least / 25).unwrap_or(1));
            let length = least + i64::try_from(longer).unwrap_or(0);
            // Most are of the longest interval.
            let fits = turns == 1 || (turns <= left / 2 && random.below(4) == 0);
            if fits {
                add(interval, length);
                left -= turns;
            }
        }
        self.network(&frames, &mut random)
    }

    /// Every instant of every cycle belongs to a frame.
    fn frames(&self, random: &mut Sequence) -> Vec<Frame> {
        let mut part = |percent: (i64, i64)| {
            let width = usize::try_from(percent.1 - percent.0).unwrap_or(0);
            let chosen = percent.0 + i64::try_from(random.below(width)).unwrap_or(0);
            self.bytes * chosen / 100
        };
        let intervals = self.intervals();
        let first = part((10, 35));
        let second: Vec<i64> = (0..2).map(|_| part((10, 25))).collect();
        let third: Vec<i64> = (0..intervals[2]).map(|_| part((8, 20))).collect();
        // By millisecond of the cycle: what the first two or three leave.
        let place = |at: i64, of: &[i64]| of[usize::try_from(at).unwrap_or(0) % of.len()];
        let left = |at| self.bytes - first - place(at, &second) - place(at, &third);
        let all: i64 = first
            + second.iter().chain(&third).sum::<i64>()
            + (0..intervals[3]).map(left).sum::<i64>();
        let mean = (all / i64::try_from(self.streams).unwrap_or(1)).max(SHORTEST);
        let mut frames = Vec::new();
        let mut cut = |interval: i64, mut start: i64, length: i64, random: &mut Sequence| {
            for length in pieces(length, mean, random) {
                frames.push(Frame { every: interval * self.bytes, start, length });
                start += length;
            }
        };
        cut(1, 0, first, random);
        for (at, length) in (0..).zip(&second) {
            cut(2, at * self.bytes + first, *length, random);
        }
        for (at, length) in (0..).zip(&third) {
            // What shares no millisecond with the second interval alone lies at the end.
            let start = match self.harmonic {
                true => first + place(at, &second),
                false => self.bytes - length,
            };
            cut(intervals[2], at * self.bytes + start, *length, random);
        }
        for at in 0..intervals[3] {
            let before = if self.harmonic { place(at, &third) } else { 0 };
            let start = at * self.bytes + first + place(at, &second) + before;
            cut(intervals[3], start, left(at), random);
        }
        frames
    }

    /// Shortens frames, or takes them out, until the load is what is asked for.
    fn lighten(&self, frames: &mut Vec<Frame>, random: &mut Sequence) {
        let cycle = self.cycle();
        let share = |frame: &Frame| frame.length * (cycle / frame.every);
        let mut over = cycle * (100 - self.load_percent) / 100;
        let whole = random.below(2) == 0;
        for _ in 0..10_000 {
            let place = random.below(frames.len());
            let turns = cycle / frames[place].every;
            if whole && share(&frames[place]) <= over {
                over -= share(&frames.swap_remove(place));
            } else {
                let most = (over / turns).min(frames[place].length - SHORTEST).max(0);
                let most = if whole { most } else { most.min(40) };
                frames[place].length -= most;
                over -= most * turns;
            }
            if over < cycle / frames[0].every {
                break;
            }
        }
    }

    /// Streams of these frames, in any order.
    fn network(&self, frames: &[Frame], random: &mut Sequence) -> Problem {
        let mut order: Vec<usize> = (0..frames.len()).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, random.below(place + 1));
        }
        let trunk = self.stations > 1;
        // By stream: its station on either side. Who would meet another on its own link there is at
        // the next station.
        let mut sides = [Vec::new(), Vec::new()];
        for (side, homes) in sides.iter_mut().enumerate() {
            for (number, &own) in order.iter().enumerate() {
                let mut home = random.below(self.stations);
                let is_taken = |home: usize| {
                    (0..number).any(|other| {
                        homes[other] == home && meet(side, &frames[own], &frames[order[other]])
                    })
                };
                while trunk && is_taken(home) {
                    home += 1;
                }
                homes.push(home);
            }
        }
        let counts = sides.each_ref().map(|homes| homes.iter().max().map_or(1, |most| most + 1));
        let network = network(counts, trunk, self.bytes);
        let node = |side: usize, home: usize| {
            let before = if side == 0 { 0 } else { counts[0] };
            NodeId::from_index(before + home)
        };
        let streams = order.iter().enumerate().map(|(number, &own)| {
            let (from, to) = (node(0, sides[0][number]), node(1, sides[1][number]));
            let interval = Span::from_ms(frames[own].every / self.bytes);
            let bytes = u32::try_from(frames[own].length - OVERHEAD).unwrap_or(1);
            let mut stream = Stream::new(format!("s{number}"), from, to, interval, bytes);
            stream.latency_max = Span::from_ms(100);
            stream
        });
        Problem::new(network, streams.collect()).expect("invariant: streams of the network")
    }
}

/// Pieces that fill a length, none shorter than the shortest frame.
fn pieces(length: i64, mean: i64, random: &mut Sequence) -> Vec<i64> {
    let (mut left, mut pieces) = (length, Vec::new());
    while left >= 2 * SHORTEST {
        let width = usize::try_from(2 * (mean - SHORTEST) + 1).unwrap_or(1);
        let piece = SHORTEST + i64::try_from(random.below(width)).unwrap_or(0);
        let piece = piece.min(left);
        let piece = if left - piece < SHORTEST { left } else { piece };
        pieces.push(piece);
        left -= piece;
    }
    if left > 0 {
        pieces.push(left);
    }
    pieces
}

/// Whether two frames meet on a link before or behind the trunk, if both are on it.
fn meet(side: usize, one: &Frame, other: &Frame) -> bool {
    let at = |frame: &Frame| match side {
        0 => frame.start - frame.length,
        _ => frame.start + frame.length,
    };
    let (mut every, mut rest) = (one.every, other.every);
    while rest != 0 {
        (every, rest) = (rest, every % rest);
    }
    let ahead = (at(other) - at(one)).rem_euclid(every);
    let behind = (at(one) - at(other)).rem_euclid(every);
    ahead < one.length || behind < other.length
}

/// Talkers, listeners, and one link between two bridges, or none but that.
fn network(counts: [usize; 2], trunk: bool, bytes: i64) -> Network {
    let mut nodes = Vec::new();
    for (side, count) in counts.into_iter().enumerate() {
        for home in 0..count {
            nodes.push(Node::new(format!("{}{home}", ["t", "l"][side]), Role::EndStation));
        }
    }
    let mut pairs = Vec::new();
    if trunk {
        let bridge = nodes.len();
        nodes.extend(["b0", "b1"].map(|name| Node::new(name, Role::Bridge)));
        pairs.push((bridge, bridge + 1));
        pairs.extend((0..counts[0]).map(|home| (home, bridge)));
        pairs.extend((0..counts[1]).map(|home| (bridge + 1, counts[0] + home)));
    } else {
        pairs.push((0, counts[0]));
    }
    let link = |(from, to): (usize, usize)| Link {
        name: format!("{}-{}", nodes[from].name, nodes[to].name),
        from: NodeId::from_index(from),
        to: NodeId::from_index(to),
        rate: BitsPerSecond::new(u64::try_from(bytes * 8_000).unwrap_or(1)).expect("a rate"),
        propagation: Span::ZERO,
    };
    let links = pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]).map(link).collect();
    Network::new(nodes, links, NetworkOptions::default()).expect("invariant: links of its nodes")
}
