// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams that come to those of an earlier plan, which stay where they are, or of which at most so
//! many are moved.

use std::collections::BTreeMap;

use timewire_base::Span;

use super::repair::NEVER;
use super::table::Item;
use super::{Budget, Planner, SEARCH_STEPS, Seat, Shape};
use crate::model::{Admission, Certificate, LinkId, StreamId};

/// What it costs to move a stream of the earlier plan where some may be; others cost 1.
const KEPT_WEIGHT: u64 = 4;

/// For so many rejected streams it is looked how many moves would admit them.
const MAX_COUNTED: usize = 8;

/// Why a stream of a plan is not seated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unseated {
    /// This frame waits on its way, and a plan of this search has none that does.
    Waits {
        /// Where.
        link: LinkId,
        /// Which frame.
        frame: u32,
        /// When it starts.
        start: Span,
        /// When it would, without waiting.
        without: Span,
    },
    /// One of the two may come before the other has left, in another queue.
    Close {
        /// Where.
        link: LinkId,
        /// The other.
        other: Option<StreamId>,
    },
}

/// What is kept while others are placed.
struct Kept {
    /// By stream: whether it stays.
    stays: Vec<bool>,
    /// How many may be moved.
    allowed: usize,
    /// How many were.
    moved: usize,
}

impl Kept {
    /// These were moved.
    fn count(&mut self, moved: &[usize]) {
        for other in moved {
            self.moved += usize::from(self.stays[*other]);
            self.stays[*other] = false;
        }
    }

    /// How many are moved in all, with these.
    fn with(&self, moved: &[usize]) -> usize {
        self.moved + moved.iter().filter(|other| self.stays[**other]).count()
    }
}

impl Planner {
    /// Seats a stream where a plan has it, without a search.
    ///
    /// **Errors**: the search has no such place.
    pub(crate) fn seat(&mut self, admission: &Admission) -> Result<(), Unseated> {
        let id = admission.stream.index();
        let Some(first) = admission.transmissions.first() else { return Ok(()) };
        let (network, stream) = (self.problem.network(), self.stream(id));
        let mut trees: Vec<Vec<LinkId>> = vec![Vec::new(); usize::from(stream.copies)];
        for sent in admission.transmissions.iter().filter(|sent| sent.frame == 0) {
            trees[usize::from(sent.copy)].push(sent.link);
        }
        let shape = Shape::new(network, stream, trees);
        let start = first.start;
        let own = self.transmissions(admission.stream, &shape, start.as_ns());
        for (planned, own) in admission.transmissions.iter().zip(&own) {
            if planned.start != own.start {
                let (link, frame) = (planned.link, planned.frame);
                let (start, without) = (planned.start, own.start);
                return Err(Unseated::Waits { link, frame, start, without });
            }
        }
        if let Some((link, other)) = self.close(id, &shape, start.as_ns()) {
            return Err(Unseated::Close { link, other });
        }
        self.set_way(id, Some(shape));
        self.put(id, start.as_ns());
        Ok(())
    }

    /// What a stream would meet.
    fn close(&self, id: usize, shape: &Shape, start: i64) -> Option<(LinkId, Option<StreamId>)> {
        let class = self.seats[id].class;
        shape.stretches.iter().find_map(|stretch| {
            let at = start + stretch.start;
            let meets = |item: &&Item| {
                let every = self.table.divisor(class, item.class);
                let ahead = (item.start - at).rem_euclid(every);
                let behind = (at - item.start).rem_euclid(every);
                ahead < stretch.length || behind < item.length
            };
            let other = self.table.items(stretch.link.index()).iter().find(meets)?;
            Some((stretch.link, other.owner().map(StreamId::from_index)))
        })
    }

    /// Gives each of the new streams, which are all without a place, one beside the others, of
    /// which at most so many are moved, or a reason; whether the budget ended it while some still
    /// looked for a place. It looks at no other stream when all fit at once.
    pub(crate) fn run_beside(
        &mut self,
        mut new: Vec<usize>,
        moves: usize,
        budget: &mut Budget,
    ) -> bool {
        new.retain(|id| self.seats.get(*id).is_some_and(|seat| seat.start.is_none()));
        let mut stays = vec![true; self.seats.len()];
        new.iter().for_each(|id| stays[*id] = false);
        let mut kept = Kept { stays, allowed: moves, moved: 0 };
        self.ended = false;
        self.sort(&mut new);
        let mut left = self.fit_new(&new, budget);
        if left.is_empty() {
            return false;
        }
        if new.len() > 1 && !self.ended {
            self.weigh(&kept, NEVER);
            left = self.repair(left, budget, SEARCH_STEPS.min(budget.work / 2));
            self.refuse_overfull(&new);
        }
        if moves > 0 {
            self.weigh(&kept, KEPT_WEIGHT);
            left.retain(|id| !self.move_for(*id, &mut kept, budget));
        }
        let is_cut = self.ended || (!left.is_empty() && !self.may_go_on(left.len(), budget));
        self.explain_beside(&left, &mut kept);
        self.weights.fill(1);
        is_cut
    }

    fn weigh(&mut self, kept: &Kept, weight: u64) {
        for (own, stays) in self.weights.iter_mut().zip(&kept.stays) {
            *own = if *stays { weight } else { 1 };
        }
    }

    /// Places for those that fit at once; who is left.
    fn fit_new(&mut self, new: &[usize], budget: &mut Budget) -> Vec<usize> {
        let mut left = Vec::new();
        for (number, &id) in new.iter().enumerate() {
            if self.is_ended(number, budget) {
                left.push(id);
                continue;
            }
            if let Err(reason) = self.find_way(id, None) {
                self.seats[id].reason = Some(reason);
            } else if !self.fit(id) && !self.fit_elsewhere(id) {
                left.push(id);
            } else if let Some(full) = self.full_port(id) {
                self.take(id);
                self.seats[id].reason = Some(full);
            }
        }
        left
    }

    /// Takes new streams off ports that cannot have their list.
    fn refuse_overfull(&mut self, new: &[usize]) {
        let mut changed = true;
        while changed {
            changed = false;
            for &id in new.iter().rev() {
                if self.seats[id].start.is_none() {
                    continue;
                }
                if let Some(full) = self.full_port(id) {
                    self.take(id);
                    self.seats[id].reason = Some(full);
                    changed = true;
                }
            }
        }
    }

    /// Moves others for a stream, if so many may still be moved.
    fn move_for(&mut self, id: usize, kept: &mut Kept, budget: &mut Budget) -> bool {
        let waiting = self.seats.len() - self.placed;
        if self.ended || !self.may_go_on(waiting, budget) {
            return false;
        }
        let left = kept.allowed - kept.moved;
        // Of those that are touched, some come back to where they were. First as it is counted.
        for touched in [usize::MAX, left, left.saturating_mul(2).saturating_add(2)] {
            self.weigh(kept, KEPT_WEIGHT);
            let stays = &kept.stays;
            let Some(before) = self.make_room(id, touched, &|other| stays[other]) else {
                continue;
            };
            let moved = self.moved(&before);
            if kept.with(&moved) <= kept.allowed {
                kept.count(&moved);
                return true;
            }
            self.undo(id, before);
        }
        false
    }

    /// Those who are elsewhere than they were.
    fn moved(&self, before: &BTreeMap<usize, Seat>) -> Vec<usize> {
        let trees = |seat: &Seat| seat.shape.as_ref().map(|shape| shape.trees.clone());
        let is_other = |id: usize, was: &Seat| {
            let own = &self.seats[id];
            own.start != was.start || trees(own) != trees(was)
        };
        before.iter().filter(|(id, was)| is_other(**id, was)).map(|(id, _)| *id).collect()
    }

    /// Reasons for those who are left: a proof, or how many others have to be moved.
    fn explain_beside(&mut self, left: &[usize], kept: &mut Kept) {
        let allowed = u32::try_from(kept.allowed).unwrap_or(u32::MAX);
        let mut counted = 0;
        for &id in left {
            if self.ended {
                self.seats[id].reason = Some(Certificate::NotFound { tried: self.table.work });
                continue;
            }
            let mut reason = self.explain(id);
            if !reason.is_proof() {
                counted += 1;
                let needed = if counted > MAX_COUNTED { None } else { self.count_for(id, kept) };
                reason = Certificate::Kept { needed, allowed };
            }
            if self.seats[id].start.is_none() {
                self.seats[id].reason = Some(reason);
            }
        }
    }

    /// How many of the earlier plan have to be moved for a stream, by what is found. Nothing is
    /// moved, except where so many may be.
    fn count_for(&mut self, id: usize, kept: &mut Kept) -> Option<u32> {
        self.weigh(kept, KEPT_WEIGHT);
        let stays = &kept.stays;
        let before = self.make_room(id, usize::MAX, &|other| stays[other])?;
        let others = self.moved(&before);
        let moved = kept.with(&others);
        if moved <= kept.allowed {
            kept.count(&others);
        } else {
            self.undo(id, before);
        }
        u32::try_from(moved).ok()
    }
}
