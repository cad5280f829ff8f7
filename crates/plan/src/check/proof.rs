// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges a proof by cases: derives when each stream is on the links that it names, and follows the
//! cases. It chooses nothing, so it is short; no proof is accepted whose cases leave one out or
//! whose ends do not contradict themselves.

use super::certificate::{Judge, Judged, ensure};
use super::times::{forwarding, occupancy};
use super::{Verdict, greatest_common_divisor as divisor_of};
use crate::model::{CasePart, LinkId, Split, Stream};

/// What is gone through at most; a proof that needs more is none.
const MAX_PARTS: usize = 32;
const MAX_ENTRIES: usize = 10_000;
const MAX_FRAMES: u32 = 16;
const MAX_ROUNDS: u64 = 1 << 21;

/// A stream on the links of a part.
struct Moves<'a> {
    stream: &'a Stream,
    links: &'a [LinkId],
    /// Link, start after the part's own, length; in nanoseconds as all numbers here.
    frames: Vec<(LinkId, i64, i64)>,
    /// The first and last start.
    window: (i64, i64),
}

/// Distances between two starts that are forbidden: spans `[start, end)` of a turn that repeats.
struct Shut {
    one: usize,
    other: usize,
    turn: i64,
    spans: Vec<(i64, i64)>,
    /// The same, the last end first.
    back: Vec<(i64, i64)>,
}

/// `most[a][b]`: start b is at most so long after start a. Start 0 is the beginning of time.
type Most = Vec<Vec<i64>>;

impl Judge<'_> {
    /// Parts that are fixed in themselves have no starts together: every case contradicts itself.
    pub(super) fn cases(&self, parts: &[CasePart], tree: &[Option<Split>]) -> Judged {
        ensure(parts.len() <= MAX_PARTS && tree.len() <= MAX_ENTRIES, "it is too long")?;
        self.distinct(&parts.iter().map(|part| part.stream).collect::<Vec<_>>())?;
        let moves: Vec<Moves> =
            parts.iter().map(|part| self.moves(part)).collect::<Result<_, _>>()?;
        let mut shut = Vec::new();
        for (other, of_other) in moves.iter().enumerate() {
            for (one, of_one) in moves[..other].iter().enumerate() {
                shut.extend(forbidden(one + 1, of_one, other + 1, of_other));
            }
        }
        let mut most = vec![vec![i64::MAX / 8; moves.len() + 1]; moves.len() + 1];
        let mut holds = (0..most.len()).all(|start| lower(&mut most, start, start, 0));
        for (one, other, least, longest) in first_bounds(&moves) {
            holds = holds && lower(&mut most, one, other, longest);
            holds = holds && lower(&mut most, other, one, -least);
        }
        let mut rest = tree.iter();
        let mut rounds = MAX_ROUNDS;
        // Each case that is open: its bounds, `None` when they contradict each other.
        let mut open: Vec<Option<Most>> = vec![holds.then_some(most)];
        while let Some(case) = open.pop() {
            let followed = match case {
                Some(most) => follow(most, &shut, &mut rounds)?,
                None => None,
            };
            match rest.next().ok_or("a case is left out")? {
                None => ensure(followed.is_none(), "a case does not contradict itself")?,
                Some(split) => {
                    let index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
                    let (one, other) = (index(split.one), index(split.other));
                    ensure(one.max(other) <= moves.len() && one != other, "a part is not there")?;
                    let bound = split.most.as_ns();
                    ensure(
                        bound.checked_abs().is_some_and(|it| it < i64::MAX / 8),
                        "a time is out of bounds",
                    )?;
                    let case = |one, other, bound| {
                        let mut most = followed.clone()?;
                        lower(&mut most, one, other, bound).then_some(most)
                    };
                    open.push(case(other, one, -bound - 1));
                    open.push(case(one, other, bound));
                }
            }
        }
        ensure(rest.next().is_none(), "there are more cases than there can be")?;
        Ok(Verdict::Proven)
    }

    /// When a stream is on the links of a part, if they are on its way in any plan and one leads
    /// to the next. Copies may take one each, so only one link of theirs is a part.
    fn moves<'a>(&'a self, part: &'a CasePart) -> Result<Moves<'a>, String> {
        let stream = self.problem.stream(part.stream);
        let first = *part.links.first().ok_or("a part has no links")?;
        ensure(part.links.len() == 1 || stream.copies == 1, "copies have no common way")?;
        ensure(stream.frames <= MAX_FRAMES, "it is too long")?;
        self.forced(part.stream, first)?;
        let at_talker = self.network.link(first).from == stream.talker;
        let count = if at_talker { stream.frames } else { 1 };
        let length = |link| occupancy(self.network, link, stream);
        let mut starts: Vec<(LinkId, Vec<i64>)> =
            vec![(first, (0..count).map(|frame| i64::from(frame) * length(first)).collect())];
        for link in &part.links[1..] {
            self.forced(part.stream, *link)?;
            let from = self.network.link(*link).from;
            let (before, there) = starts
                .iter()
                .find(|(before, _)| self.network.link(*before).to == from)
                .ok_or("a part is not connected")?;
            ensure(starts.iter().all(|(before, _)| before != link), "a link is named twice")?;
            let step = forwarding(self.network, *before, *link, stream);
            let mut own: Vec<i64> = Vec::new();
            for start in there {
                let free = own.last().map_or(i64::MIN, |last| last + length(*link));
                own.push((start + step).max(free));
            }
            starts.push((*link, own));
        }
        let frames = starts
            .iter()
            .flat_map(|(link, starts)| starts.iter().map(|start| (*link, *start, length(*link))));
        let any = (0, stream.interval.as_ns() - 1);
        let asked = (stream.release.earliest.as_ns(), stream.release_latest().as_ns());
        let window = if at_talker { asked } else { any };
        Ok(Moves { stream, links: &part.links, frames: frames.collect(), window })
    }
}

/// Each start lies within its window, or within what the others see of its interval. If that holds
/// for all, one of them may be 0. Parts that are the same may be put in order.
fn first_bounds(moves: &[Moves]) -> Vec<(usize, usize, i64, i64)> {
    let turn = |place: usize| {
        let own = &moves[place];
        let others = moves.iter().enumerate().filter(|(other, of)| {
            *other != place && own.links.iter().any(|link| of.links.contains(link))
        });
        others.fold(1, |turn, (_, of)| {
            let common = divisor_of(own.stream.interval.as_ns(), of.stream.interval.as_ns());
            turn / divisor_of(turn, common) * common
        })
    };
    let turns: Vec<i64> = (0..moves.len()).map(turn).collect();
    let is_free = |place: usize| moves[place].window.1 - moves[place].window.0 + 1 >= turns[place];
    let all_free = (0..moves.len()).all(is_free);
    let mut bounds = Vec::new();
    for (place, own) in moves.iter().enumerate() {
        let (least, most) = if is_free(place) { (0, turns[place] - 1) } else { own.window };
        bounds.push((0, place + 1, least, if all_free && place == 0 { 0 } else { most }));
        let like = |other: &Moves| {
            let interval = own.stream.interval == other.stream.interval;
            interval && own.window == other.window && own.frames == other.frames
        };
        if let Some(before) = moves[..place].iter().rposition(like) {
            bounds.push((before + 1, place + 1, 0, i64::MAX / 8));
        }
    }
    bounds
}

/// Two frames on one link are disjoint in all intervals exactly if they are modulo the greatest
/// common divisor of these.
fn forbidden(one: usize, of_one: &Moves, other: usize, of_other: &Moves) -> Option<Shut> {
    let turn = divisor_of(of_one.stream.interval.as_ns(), of_other.stream.interval.as_ns());
    let mut spans = Vec::new();
    for (link, start, length) in &of_one.frames {
        for (_, after, busy) in of_other.frames.iter().filter(|(on, ..)| on == link) {
            let width = (length + busy - 1).min(turn);
            let first = (start - after - busy + 1).rem_euclid(turn);
            spans.push((first, (first + width).min(turn)));
            spans.push((0, first + width - turn));
        }
    }
    spans.retain(|(start, end)| start < end);
    spans.sort_unstable();
    let mut back = spans.clone();
    back.sort_unstable_by_key(|(_, end)| -end);
    (!spans.is_empty()).then_some(Shut { one, other, turn, spans, back })
}

impl Shut {
    /// The first distance at or after this one that is allowed; `None`: there is none.
    fn at_least(&self, distance: i64) -> Option<i64> {
        let base = distance - distance.rem_euclid(self.turn);
        let mut at = distance - base;
        for turn in [0, self.turn, 2 * self.turn] {
            for (start, end) in &self.spans {
                if start + turn <= at && at < end + turn {
                    at = end + turn;
                }
            }
        }
        (base + at - distance <= self.turn).then_some(base + at)
    }

    /// The last one at or before.
    fn at_most(&self, distance: i64) -> Option<i64> {
        let base = distance - distance.rem_euclid(self.turn);
        let mut at = distance - base;
        for turn in [0, self.turn, 2 * self.turn] {
            for (start, end) in &self.back {
                if start - turn <= at && at < end - turn {
                    at = start - turn - 1;
                }
            }
        }
        (distance - base - at <= self.turn).then_some(base + at)
    }
}

/// Bounds one distance and all sums with it; whether that contradicts nothing.
fn lower(most: &mut Most, one: usize, other: usize, bound: i64) -> bool {
    if bound >= most[one][other] {
        return true;
    }
    if one == other {
        most[one][one] = bound;
        return bound >= 0;
    }
    if bound + most[other][one] < 0 {
        return false;
    }
    let after = most[other].clone();
    for row in most.iter_mut() {
        let until = row[one] + bound;
        for (to, old) in row.iter_mut().enumerate() {
            *old = (*old).min(until + after[to]);
        }
    }
    true
}

/// Moves bounds off what is forbidden until none moves; `None`: they contradict each other.
fn follow(mut most: Most, shut: &[Shut], rounds: &mut u64) -> Result<Option<Most>, String> {
    let mut moved = true;
    while moved {
        moved = false;
        for pair in shut {
            *rounds = rounds.checked_sub(1).ok_or("it takes too long to go through")?;
            let (one, other) = (pair.one, pair.other);
            let (first, last) = (-most[other][one], most[one][other]);
            let (Some(least), Some(longest)) = (pair.at_least(first), pair.at_most(last)) else {
                return Ok(None);
            };
            if (least, longest) != (first, last) {
                moved = true;
                let holds = lower(&mut most, other, one, -least);
                if !holds || !lower(&mut most, one, other, longest) {
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(most))
}
