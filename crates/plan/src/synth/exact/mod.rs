// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides small hard cores: a stream that was rejected and those that leave it the least room.
//! Either there are places for them beside all others, or it is proven that there are none for them
//! even without all others.
//!
//! Not here: going through the cases ([`cases`]), who judges the proof (`crate::check`).

mod bins;
mod cases;
mod core;
mod order;
mod overfull;
mod packing;
mod ring;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use self::cases::{Answer, decide};
use self::core::{Beside, Part};
use super::table::Item;
use super::{Budget, Planner};
use crate::model::{CasePart, Certificate, LinkId, Split, StreamId};

/// The most steps for all streams that are left, and for one of them; and for packing links.
const MAX_STEPS: u64 = 1 << 22;
const PACK_STEPS: u64 = 1 << 24;
const PACK_PROOF_STEPS: u64 = 1 << 18;
const STEPS_EACH: u64 = 1 << 19;
/// The most streams of a core without others, and beside others.
const MAX_PARTS: usize = 24;
const MAX_MOVED: usize = 12;
/// The most streams of a link that are looked at for a core.
const MAX_BESIDE: usize = 400;

impl Planner {
    /// Decides those that are left, as far as the steps go; who is still rejected, with a proof or
    /// without.
    pub(super) fn decide(
        &mut self,
        left: Vec<usize>,
        most: u64,
        budget: &mut Budget,
    ) -> Vec<usize> {
        let left = self.pack_or_refute(left, most);
        let mut allowed = MAX_STEPS.min(most);
        let mut still = Vec::new();
        let mut count = u64::try_from(left.len()).unwrap_or(u64::MAX);
        for (number, id) in left.into_iter().enumerate() {
            if self.is_ended(number, budget) {
                still.push(id);
                continue;
            }
            if !self.is_proven(id) || self.names_refused(id) {
                self.seats[id].reason = Some(self.explain(id));
            }
            if !self.is_proven(id) {
                let before = (allowed / count).min(STEPS_EACH);
                let mut steps = before;
                let decided = self.prove(id, &mut steps) || self.place_core(id, &mut steps);
                allowed -= before - steps;
                self.table.work += before - steps;
                if !decided {
                    self.seats[id].reason = None;
                }
            }
            count -= 1;
            if self.seats[id].start.is_none() {
                still.push(id);
            }
        }
        still
    }

    /// Packs links of those who are left anew, or proves that it does not go; who is left.
    fn pack_or_refute(&mut self, left: Vec<usize>, most: u64) -> Vec<usize> {
        let work = self.table.work;
        let mut packing = PACK_STEPS.min(most);
        let mut proofs = packing / 4;
        for &id in &left {
            if !self.ended && (!self.is_proven(id) || self.names_refused(id)) {
                let before = PACK_PROOF_STEPS.min(proofs);
                let mut steps = before;
                if let Some(proof) = self.refute(id, &mut steps) {
                    self.seats[id].reason = Some(proof);
                }
                proofs -= before - steps;
                packing -= before - steps;
            }
        }
        let open = left.iter().any(|id| !self.is_proven(*id));
        let left = if open && !self.ended { self.pack(left, &mut packing) } else { left };
        self.table.work = work + (PACK_STEPS.min(most) - packing);
        left
    }

    fn is_proven(&self, id: usize) -> bool {
        self.seats[id].reason.as_ref().is_some_and(Certificate::is_proof)
    }

    /// Whether moving others cannot make them fewer: each has a proof, and no two proofs name the
    /// same stream, so that each costs one its place.
    pub(super) fn is_least(&self, left: &[usize]) -> bool {
        let mut named = BTreeSet::new();
        left.iter().all(|&id| {
            let streams = match &self.seats[id].reason {
                Some(reason) if reason.is_proof() => reason.others(),
                _ => return false,
            };
            let own = StreamId::from_index(id);
            let mut others = streams.into_iter().filter(|other| *other != own);
            named.insert(own) && others.all(|other| named.insert(other))
        })
    }

    /// Looks for a proof in cores that grow by who leaves the least room.
    fn prove(&mut self, id: usize, steps: &mut u64) -> bool {
        let parts = self.parts(id);
        let share = *steps / 2 / u64::try_from(parts.len().max(1)).unwrap_or(1);
        for part in parts {
            let mut own = share;
            *steps -= own;
            let mut core = vec![part];
            if let Some(tree) = self.contradiction(&mut core, &mut own) {
                self.seats[id].reason = Some(least(core, tree, &mut own));
            }
            *steps += own;
            if self.is_proven(id) {
                return true;
            }
        }
        false
    }

    /// Lets a core grow until its cases contradict themselves.
    fn contradiction(&self, core: &mut Vec<Part>, steps: &mut u64) -> Option<Tree> {
        let mut beside = Beside::default();
        while core.len() < MAX_PARTS {
            core.push(self.next(core, &mut beside, Planner::parts, steps)?);
            match decide(&core::question(core), steps) {
                Answer::None(tree) => return Some(tree),
                Answer::Open => return None,
                Answer::Starts(_) => {}
            }
        }
        None
    }

    /// The next one of a core: of those who share a link with it, those of its first streams first.
    fn next(
        &self,
        core: &[Part],
        beside: &mut Beside,
        parts: fn(&Planner, usize) -> Vec<Part>,
        steps: &mut u64,
    ) -> Option<Part> {
        loop {
            if let Some(next) = beside.densest(core, steps) {
                return Some(next);
            }
            let around = self.around(core.get(beside.looked)?);
            for other in around {
                *steps = steps.checked_sub(16)?;
                beside.add(other, || parts(self, other), core);
            }
            beside.looked += 1;
        }
    }

    /// Looks for places for a stream and a few others beside all that stay.
    fn place_core(&mut self, id: usize, steps: &mut u64) -> bool {
        let mut core: Vec<Part> = self.whole(id);
        let Some((core, starts)) = self.places(&mut core, steps) else { return false };
        for part in core {
            if self.seats[part.id].start.is_some() {
                self.take(part.id);
            }
        }
        for (part, start) in core.iter().zip(starts) {
            self.put(part.id, start);
        }
        true
    }

    /// Lets a core grow until there are starts for it beside all others.
    fn places<'a>(
        &self,
        core: &'a mut Vec<Part>,
        steps: &mut u64,
    ) -> Option<(&'a [Part], Vec<i64>)> {
        let mut beside = Beside::default();
        while core.len() < MAX_MOVED {
            core.push(self.next(core, &mut beside, Planner::whole, steps)?);
            let question = self.question_beside(core, steps)?;
            match decide(&question, steps) {
                Answer::Starts(starts) => return Some((core, starts[1..].to_vec())),
                Answer::Open => return None,
                Answer::None(_) => {}
            }
        }
        None
    }

    /// Who has a place on a link of a part.
    fn around(&self, part: &Part) -> BTreeSet<usize> {
        let links = part.frames.iter().map(|frame| frame.link.index());
        let items = links.flat_map(|link| self.table.items(link).iter().take(MAX_BESIDE));
        let others = items.filter_map(Item::owner);
        others.filter(|other| *other != part.id).collect()
    }
}

type Tree = Vec<Option<cases::Split>>;

/// The certificate for a core, after all were left out who are not needed.
fn least(mut core: Vec<Part>, mut tree: Tree, steps: &mut u64) -> Certificate {
    let mut place = core.len();
    while place > 1 {
        place -= 1;
        let mut fewer = core.clone();
        fewer.remove(place);
        if let Answer::None(shorter) = decide(&core::question(&fewer), steps) {
            (core, tree) = (fewer, shorter);
            place = place.min(core.len());
        }
    }
    let part = |part: Part| CasePart { stream: StreamId::from_index(part.id), links: part.links };
    let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    let split = |split: cases::Split| Split {
        one: number(split.one),
        other: number(split.other),
        most: timewire_base::Span::from_ns(split.most),
    };
    Certificate::Cases {
        parts: core.into_iter().map(part).collect(),
        tree: tree.into_iter().map(|entry| entry.map(split)).collect(),
    }
}
