// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One stream more or less in a plan that is in force.

use std::collections::{BTreeMap, VecDeque};

use super::{Planner, Seat, repair};
use crate::model::{Certificate, ModelError, Stream, StreamId};

/// What an added stream did to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is admitted; these streams have other instants than before, and all others are as they
    /// were.
    Admitted {
        /// Who was added.
        stream: StreamId,
        /// Who was moved for it.
        moved: Vec<StreamId>,
    },
    /// It has none, and nothing has changed: it is not part of the problem.
    Refused(Certificate),
}

/// The steps in which room for an added stream is found, or not: some milliseconds. Who has more
/// time plans anew.
const STEPS: u64 = 100_000;

impl Planner {
    /// Makes what additions look into, which else the first ones on each link do: busy time of each
    /// link as seen from each interval.
    pub fn prepare(&mut self) {
        self.table.complete();
    }

    /// Adds a stream, moving at most so many others. It takes a bounded number of steps, so that
    /// one that is refused for want of room might have had some.
    ///
    /// **Errors**: it is no stream of this network.
    pub fn add(&mut self, stream: Stream, moves: usize) -> Result<Change, ModelError> {
        let id = self.problem.add(stream)?.index();
        let class = self.table.class(self.problem.streams()[id].interval.as_ns());
        self.seats.push(Seat { class, shape: None, start: None, reason: None });
        self.weights.push(1);
        self.most_frames = self.most_frames.max(i64::from(self.stream(id).frames));
        let reason = match self.find_way(id, None) {
            Err(reason) => reason,
            Ok(()) => {
                let moved = match self.fit(id) || self.fit_elsewhere(id) {
                    true => Some(BTreeMap::new()),
                    false if moves == 0 => None,
                    false => self.make_room(id, moves, &|_| true),
                };
                match (moved, self.full_port(id)) {
                    (Some(moved), None) => {
                        let stream = StreamId::from_index(id);
                        let moved = moved.into_keys().map(StreamId::from_index).collect();
                        return Ok(Change::Admitted { stream, moved });
                    }
                    (Some(_), Some(full)) => full,
                    (None, _) => self.explain(id),
                }
            }
        };
        self.remove(StreamId::from_index(id));
        Ok(Change::Refused(reason))
    }

    /// Takes a stream out. Nothing else moves; the last stream takes its number.
    ///
    /// **Panics** for an id of another problem.
    pub fn remove(&mut self, id: StreamId) {
        let index = id.index();
        if self.seats[index].start.is_some() {
            self.take(index);
        }
        self.set_way(index, None);
        self.problem.remove(id);
        self.seats.swap_remove(index);
        self.weights.swap_remove(index);
        let last = StreamId::from_index(self.seats.len());
        if let Some(Seat { shape: Some(shape), .. }) = self.seats.get(index) {
            self.table.rename(last.0, id.0, &shape.stretches);
        }
        if self.placed < self.seats.len() {
            for seat in self.seats.iter_mut().filter(|seat| seat.start.is_none()) {
                seat.reason = seat.reason.take().and_then(|reason| reason.without(id, last));
            }
        }
    }

    /// Evicts the cheapest others and finds them other places, without a limit on how often one is
    /// moved but on how many that count are, and on the steps; who was moved, with the seat that
    /// each had. `None`: there is no room, and nothing has changed.
    pub(super) fn make_room(
        &mut self,
        id: usize,
        moves: usize,
        counts: &dyn Fn(usize) -> bool,
    ) -> Option<BTreeMap<usize, Seat>> {
        let mut sweep = repair::Sweep::default();
        let mut before: BTreeMap<usize, Seat> = BTreeMap::new();
        let mut queue = VecDeque::from([id]);
        let until = self.table.work + STEPS;
        while let Some(next) = queue.pop_front() {
            if next != id && self.fit(next) {
                continue;
            }
            if self.table.work.saturating_add(self.effort(next)) > until {
                queue.push_front(next);
                break;
            }
            let offer = self.offer(next, &mut sweep);
            if offer.price >= repair::NEVER {
                queue.push_front(next);
                break;
            }
            let new = offer.evicted;
            let others = new.iter().filter(|other| !before.contains_key(other) && **other != id);
            let all = before.keys().chain(others).filter(|other| counts(**other));
            if all.count() > moves {
                queue.push_front(next);
                break;
            }
            for other in new {
                if other != id {
                    before.entry(other).or_insert_with(|| self.seats[other].clone());
                }
                self.take(other);
                queue.push_back(other);
            }
            self.put(next, offer.start);
            self.weights[next] += 1;
        }
        let mut touched = before.keys().copied().chain([id]);
        if queue.is_empty() && touched.all(|other| self.full_port(other).is_none()) {
            return Some(before);
        }
        self.undo(id, before);
        None
    }

    /// Takes a stream off, and gives those that were moved for it the seats that they had.
    pub(super) fn undo(&mut self, id: usize, before: BTreeMap<usize, Seat>) {
        for other in before.keys().copied().chain([id]) {
            if self.seats[other].start.is_some() {
                self.take(other);
            }
        }
        for (other, seat) in before {
            self.set_way(other, seat.shape);
            if let Some(start) = seat.start {
                self.put(other, start);
            }
        }
    }
}
