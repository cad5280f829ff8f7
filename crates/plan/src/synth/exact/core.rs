// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream and those beside it, as a question of how far apart they start.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::super::Planner;
use super::super::table::{MAX_PIECES, divisor};
use super::LinkId;
use super::cases::{Apart, Question};
use super::ring::Ring;

/// Frames of a message, at most; who has more is in no core.
const MAX_FRAMES: u32 = 16;
/// Spans that are forbidden to a stream by those that stay, at most.
const MAX_SPANS: i64 = 1 << 14;

/// When a part occupies a link, from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub link: LinkId,
    pub start: i64,
    pub length: i64,
}

/// What of a stream is looked at: it moves as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub id: usize,
    pub links: Vec<LinkId>,
    pub interval: i64,
    pub frames: Vec<Frame>,
    /// The first and last start; any, when it does not begin at the talker.
    pub window: (i64, i64),
}

impl Part {
    pub fn shares(&self, other: &Part) -> bool {
        self.links.iter().any(|link| other.links.contains(link))
    }

    /// Whether one can be exchanged for the other.
    fn is_like(&self, other: &Part) -> bool {
        (&self.links, self.interval, &self.frames, self.window)
            == (&other.links, other.interval, &other.frames, other.window)
    }

    /// What is forbidden to the start of another after this one's.
    fn ring(&self, other: &Part) -> Ring {
        let spans = self.frames.iter().flat_map(|own| {
            let meets = other.frames.iter().filter(|frame| frame.link == own.link);
            meets.map(|frame| {
                let first = own.start - frame.start - frame.length + 1;
                (first, own.start - frame.start + own.length)
            })
        });
        Ring::new(divisor(self.interval, other.interval), spans)
    }
}

impl Planner {
    /// The parts of a stream that it has in any plan: links that it cannot avoid, each after the
    /// one before it.
    pub(super) fn parts(&self, id: usize) -> Vec<Part> {
        let (stream, network) = (self.stream(id), self.problem.network());
        let Some(shape) = self.seats[id].shape.as_ref().filter(|_| stream.frames <= MAX_FRAMES)
        else {
            return Vec::new();
        };
        let mut chains: Vec<Vec<LinkId>> = Vec::new();
        for link in self.unavoidable(id) {
            let from = network.link(link).from;
            let follows = |chain: &&mut Vec<LinkId>| {
                chain.iter().any(|before| network.link(*before).to == from)
            };
            match chains.iter_mut().find(follows).filter(|_| stream.copies == 1) {
                Some(chain) => chain.push(link),
                None => chains.push(vec![link]),
            }
        }
        let sent = shape.sent(network, stream);
        let part = |links: Vec<LinkId>| {
            let at_talker = network.link(links[0]).from == stream.talker;
            let first = sent.iter().find(|sent| sent.link == links[0]).map_or(0, |sent| sent.start);
            let own = sent.iter().filter(|sent| links.contains(&sent.link));
            let own = own.filter(|sent| at_talker || sent.frame == 0);
            let frames = own.map(|sent| Frame {
                link: sent.link,
                start: sent.start - first,
                length: network.occupancy(sent.link, stream.length_bytes).as_ns(),
            });
            let interval = stream.interval.as_ns();
            let window = if at_talker { self.window(id) } else { (0, interval - 1) };
            Part { id, frames: frames.collect(), interval, window, links }
        };
        chains.into_iter().map(part).collect()
    }

    /// A stream on its whole way, as one part, with what it keeps free around its frames.
    pub(super) fn whole(&self, id: usize) -> Vec<Part> {
        let Some(shape) = &self.seats[id].shape else { return Vec::new() };
        let frames = shape.stretches.iter().map(|stretch| Frame {
            link: stretch.link,
            start: stretch.start,
            length: stretch.length,
        });
        let (links, interval) = (shape.trees.concat(), self.stream(id).interval.as_ns());
        vec![Part { id, links, interval, frames: frames.collect(), window: self.window(id) }]
    }

    /// The question for streams on their whole ways beside all that stay where they are. `None`:
    /// it is too long.
    pub(super) fn question_beside(&self, core: &[Part], steps: &mut u64) -> Option<Question> {
        let mut question =
            Question { starts: core.len() + 1, bounds: Vec::new(), apart: apart(core) };
        for (place, part) in core.iter().enumerate() {
            question.bounds.push((0, place + 1, part.window.0, part.window.1));
            let class = self.seats[part.id].class;
            let mut spans = Vec::new();
            for frame in &part.frames {
                for item in self.table.items(frame.link.index()) {
                    *steps = steps.checked_sub(1)?;
                    let stays = |core: &Part| usize::try_from(item.stream) != Ok(core.id);
                    if !core.iter().all(stays) {
                        continue;
                    }
                    let every = self.table.divisor(class, item.class);
                    let first = item.start - frame.start - frame.length + 1;
                    let end = item.start - frame.start + item.length;
                    if part.interval / every > MAX_SPANS.min(MAX_PIECES) {
                        return None;
                    }
                    spans.extend(
                        (0..part.interval / every).map(|k| (first + k * every, end + k * every)),
                    );
                    *steps = steps.checked_sub(u64::try_from(part.interval / every).ok()?)?;
                }
            }
            let ring = Ring::new(part.interval, spans.into_iter());
            question.apart.push(Apart { one: 0, other: place + 1, ring });
        }
        Some(question)
    }
}

fn apart(core: &[Part]) -> Vec<Apart> {
    let mut all = Vec::new();
    for (other, part) in core.iter().enumerate() {
        for (one, before) in core[..other].iter().enumerate() {
            let ring = before.ring(part);
            if !ring.is_open() {
                all.push(Apart { one: one + 1, other: other + 1, ring });
            }
        }
    }
    all
}

/// The question for parts beside nothing else. What repeats makes a first start free to choose, and
/// the order of parts that are alike does not matter.
pub fn question(core: &[Part]) -> Question {
    let turns: Vec<i64> = core.iter().map(|part| turn(core, part)).collect();
    let free = |(part, turn): (&Part, &i64)| part.window.1 - part.window.0 + 1 >= *turn;
    let all_free = core.iter().zip(&turns).all(free);
    let mut bounds = Vec::new();
    for (place, (part, turn)) in core.iter().zip(&turns).enumerate() {
        let (least, most) = match (free((part, turn)), all_free && place == 0) {
            (_, true) => (0, 0),
            (true, _) => (0, turn - 1),
            (false, _) => part.window,
        };
        bounds.push((0, place + 1, least, most));
        if let Some(like) = core[..place].iter().rposition(|before| before.is_like(part)) {
            bounds.push((like + 1, place + 1, 0, i64::MAX / 8));
        }
    }
    Question { starts: core.len() + 1, bounds, apart: apart(core) }
}

/// With what a part repeats, as far as the others see.
fn turn(core: &[Part], part: &Part) -> i64 {
    let others = core.iter().filter(|other| other.id != part.id && other.shares(part));
    let common = others.map(|other| divisor(part.interval, other.interval));
    common.fold(1, |all, one| all / divisor(all, one) * one)
}

/// Parts that may come into a core, each with how little room it leaves to it.
#[derive(Default)]
pub struct Beside {
    parts: Vec<(u64, Part)>,
    known: BTreeSet<usize>,
    /// How many of the core are reckoned with.
    counted: usize,
    /// How many of the core had those around them come in here.
    pub looked: usize,
}

impl Beside {
    /// One more stream, if it is new here and in the core, with that of its parts which shares
    /// most with the core: one of each stream is enough.
    pub fn add(&mut self, id: usize, parts: impl FnOnce() -> Vec<Part>, core: &[Part]) {
        if core.iter().any(|own| own.id == id) || !self.known.insert(id) {
            return;
        }
        let counted = &core[..self.counted];
        let parts = parts().into_iter().map(|part| {
            let density = |own: &Part| own.ring(&part).density();
            let all: u64 = core.iter().map(density).sum();
            (all, counted.iter().map(density).sum(), part)
        });
        let best = parts.max_by_key(|(all, ..)| *all);
        self.parts.extend(best.map(|(_, counted, part)| (counted, part)));
    }

    /// Takes who leaves the core the least room. `None`: there is nobody who touches it, or no
    /// steps are left.
    pub fn densest(&mut self, core: &[Part], steps: &mut u64) -> Option<Part> {
        for own in &core[self.counted..] {
            *steps = steps.checked_sub(4 * u64::try_from(self.parts.len()).ok()?)?;
            for (density, part) in &mut self.parts {
                *density += own.ring(part).density();
            }
        }
        self.counted = core.len();
        let all = self.parts.iter().enumerate();
        let best = all.max_by_key(|(_, (density, part))| (*density, Reverse(part.id)));
        let place = best.filter(|(_, (density, _))| *density > 0).map(|(place, _)| place)?;
        Some(self.parts.swap_remove(place).1)
    }
}
