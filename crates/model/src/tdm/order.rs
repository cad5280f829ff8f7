// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of slots along pipelines: a computation in steps that are on different stations waits
//! at each for that station's slot, so the slots stand in the order of the steps.

use std::collections::BTreeMap;

use timewire_base::{Span, StationName};

use super::{Slot, TdmSchedule};

/// Up to so many slots behind the first every order is tried.
const ALL: usize = 7;
/// With more, at most so many slots and hand-overs are looked at: a second or two in a build
/// without optimisation. Two hundred stations against a pipeline through all of them need 32
/// million.
const MAX_LOOKS: usize = 50_000_000;

impl TdmSchedule {
    /// The same slots one after the other, the first the first, in the order in which what these
    /// pipelines (stations from source to sink) hand on waits least: the sum, over all hand-overs
    /// but the last, of the time from the start of a slot of the station before to the next start
    /// of a slot of the station after, in the mean over its slots. Of orders that are as good, the
    /// one that is first by the order of the slots now.
    ///
    /// With at most eight slots no other order is better. With more it is one that no single slot
    /// at another place makes better; with hundreds, the best of the orders that there is time to
    /// try, and never a worse one than now.
    #[must_use]
    pub fn along(&self, pipelines: &[&[StationName]]) -> TdmSchedule {
        let first: Vec<usize> = (0..self.slots.len()).collect();
        let mut waits = Waits::of(self, pipelines);
        let best = if first.len() <= ALL + 1 {
            waits.best_of_all(&first)
        } else {
            waits.moved(first, MAX_LOOKS)
        };
        let slots = self.placed(&best);
        TdmSchedule::new(self.base_time, self.cycle, slots)
            .expect("invariant: the slots are as long together as before")
    }

    fn placed(&self, order: &[usize]) -> Vec<Slot> {
        let mut offset = Span::ZERO;
        let place = |&index: &usize| {
            let slot = Slot { offset, ..self.slots[index].clone() };
            offset = offset + slot.transmit + slot.guard;
            slot
        };
        order.iter().map(place).collect()
    }
}

/// What waits how long in an order of the slots. Stations are numbers here, and times nanoseconds:
/// many orders are looked at.
struct Waits {
    cycle: i64,
    /// Of each slot: its station, and how long it is with its guard.
    slots: Vec<(usize, i64)>,
    /// Hand-overs, from station to station.
    hops: Vec<(usize, usize)>,
    /// Of each station, when its slots start, in the order that was looked at last.
    starts: Vec<Vec<i64>>,
    /// Orders that were looked at.
    orders: usize,
}

impl Waits {
    fn of(schedule: &TdmSchedule, pipelines: &[&[StationName]]) -> Waits {
        let mut numbers: BTreeMap<&StationName, usize> = BTreeMap::new();
        for slot in &schedule.slots {
            let next = numbers.len();
            numbers.entry(&slot.station).or_insert(next);
        }
        let number = |station| numbers.get(station).copied();
        let slots = schedule.slots.iter().filter_map(|slot| {
            Some((number(&slot.station)?, (slot.transmit + slot.guard).as_ns()))
        });
        let hops = pipelines
            .iter()
            // The last station ends the computation: it waits for no slot.
            .flat_map(|stations| stations[..stations.len().saturating_sub(1)].windows(2))
            .filter_map(|pair| Some((number(pair.first()?)?, number(pair.get(1)?)?)));
        Waits {
            cycle: schedule.cycle.as_ns(),
            slots: slots.collect(),
            hops: hops.collect(),
            starts: vec![Vec::new(); numbers.len()],
            orders: 0,
        }
    }

    /// A sum of means, each rounded down.
    ///
    /// **Units**: nanoseconds.
    fn cost(&mut self, order: &[usize]) -> i64 {
        self.orders += 1;
        self.starts.iter_mut().for_each(Vec::clear);
        let mut at = 0;
        for &slot in order {
            let (station, length) = self.slots[slot];
            self.starts[station].push(at);
            at += length;
        }
        let wait = |&(from, to): &(usize, usize)| {
            let (from, to) = (&self.starts[from], &self.starts[to]);
            let next = |at: i64| {
                let later = to.get(to.partition_point(|&start| start <= at));
                later.copied().unwrap_or(to[0] + self.cycle) - at
            };
            let count = i64::try_from(from.len()).unwrap_or(i64::MAX).max(1);
            from.iter().map(|&at| next(at)).sum::<i64>() / count
        };
        self.hops.iter().map(wait).sum()
    }

    /// The best order that begins with the first.
    fn best_of_all(&mut self, first: &[usize]) -> Vec<usize> {
        let mut best = (self.cost(first), first.to_vec());
        let mut order = first.to_vec();
        // Every permutation of the rest, in lexicographic order.
        while next_permutation(&mut order[1..]) {
            let this = self.cost(&order);
            if this < best.0 {
                best = (this, order.clone());
            }
        }
        best.1
    }

    /// Moves each slot to its best place, again and again until all are there; but looks at no more
    /// than `looks` slots and hand-overs.
    fn moved(&mut self, mut order: Vec<usize>, looks: usize) -> Vec<usize> {
        let slots_of = |&(from, _): &(usize, usize)| {
            self.slots.iter().filter(|(station, _)| *station == from).count()
        };
        let each = self.slots.len() + self.hops.iter().map(slots_of).sum::<usize>();
        let most = looks / each;
        let mut now = self.cost(&order);
        let mut stays = 0;
        for slot in (1..order.len()).cycle() {
            if stays + 1 == order.len() {
                break;
            }
            stays += 1;
            let from = order.iter().position(|&it| it == slot);
            let from = from.expect("invariant: each slot is somewhere");
            let mut best = None;
            order.remove(from);
            for to in (1..=order.len()).filter(|&to| to != from) {
                if self.orders >= most {
                    break;
                }
                order.insert(to, slot);
                let this = self.cost(&order);
                order.remove(to);
                if this < now {
                    (now, best, stays) = (this, Some(to), 0);
                }
            }
            order.insert(best.unwrap_or(from), slot);
            if self.orders >= most {
                break;
            }
        }
        order
    }
}

/// Whether there was one after it.
fn next_permutation(order: &mut [usize]) -> bool {
    let Some(from) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else { return false };
    let with = order.iter().rposition(|&it| it > order[from]);
    order.swap(from, with.expect("invariant: the one behind is larger"));
    order[from + 1..].reverse();
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use timewire_base::Instant;

    use super::*;

    fn name(text: &str) -> StationName {
        text.parse().unwrap()
    }

    fn schedule(stations: &[&str]) -> TdmSchedule {
        let slot = |(index, station): (i64, &&str)| Slot {
            station: name(station),
            offset: Span::from_us(index * 260),
            transmit: Span::from_us(220),
            guard: Span::from_us(40),
        };
        let slots = (0..).zip(stations).map(slot).collect();
        let cycle = Span::from_us(260 * i64::try_from(stations.len()).unwrap());
        TdmSchedule::new(Instant::from_ns(0), cycle, slots).unwrap()
    }

    fn order(schedule: &TdmSchedule) -> Vec<String> {
        schedule.slots().iter().map(|slot| slot.station.to_string()).collect()
    }

    fn waits(schedule: &TdmSchedule, pipeline: &[StationName]) -> i64 {
        let order: Vec<usize> = (0..schedule.slots.len()).collect();
        Waits::of(schedule, &[pipeline]).cost(&order)
    }

    #[test]
    fn t0_slots_follow_the_computation() {
        let against = schedule(&["alpha", "beta", "gamma", "delta"]);
        let pipeline = ["delta", "gamma", "beta"].map(name);
        let along = against.along(&[&pipeline]);
        // beta only ends it, so the first order with delta just before gamma is as good as any.
        assert_eq!(order(&along), ["alpha", "beta", "delta", "gamma"]);
        assert_eq!((along.cycle(), along.slots().len()), (against.cycle(), 4));
        // Two that go opposite ways cannot both be served: nothing is better than what is there.
        let back = ["gamma", "delta", "beta"].map(name);
        let both = against.along(&[&pipeline, &back]);
        assert_eq!(order(&both), ["alpha", "beta", "gamma", "delta"]);
    }

    #[test]
    fn t0_many_slots_are_put_in_order_too() {
        let names: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let reversed: Vec<StationName> = names[1..].iter().rev().map(|it| name(it)).collect();
        let before = schedule(&names);
        let along = before.along(&[&reversed]);
        // Each step a slot later instead of eleven: no order does better.
        assert_eq!(waits(&before, &reversed), 9 * 11 * 260_000);
        assert_eq!(waits(&along, &reversed), 9 * 260_000);
    }

    /// A pipeline through hundreds of stations, against the order of their slots.
    #[test]
    fn t0_hundreds_of_slots_take_a_bounded_time() {
        let names: Vec<String> = (0..400).map(|n| format!("s{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let reversed: Vec<StationName> = names[1..].iter().rev().map(|it| name(it)).collect();
        let schedule = schedule(&names);
        let mut search = Waits::of(&schedule, &[&reversed]);
        let first: Vec<usize> = (0..names.len()).collect();
        let before = search.cost(&first);
        let looks = 2_000_000;
        let order = search.moved(first, looks);
        // An order is 400 slots and 397 hand-overs.
        assert!(search.orders <= looks / 797 + 1, "{} orders", search.orders);
        let after = search.cost(&order);
        assert!(after < before, "{after} {before}");
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!((order[0], sorted), (0, (0..400).collect()));
    }

    proptest! {
        /// The second method: each wait looked for by itself.
        #[test]
        fn t0_waits_are_what_they_are_said_to_be(
            stations in prop::collection::vec(0_usize..4, 2..9),
            way in prop::collection::vec(0_usize..5, 2..6),
        ) {
            let all = ["s0", "s1", "s2", "s3", "s4"];
            let named: Vec<&str> = stations.iter().map(|&n| all[n]).collect();
            let schedule = schedule(&named);
            let cycle = schedule.cycle().as_ns();
            let starts = |n: usize| -> Vec<i64> {
                let own = schedule.slots().iter().filter(|slot| slot.station == name(all[n]));
                own.map(|slot| slot.offset.as_ns()).collect()
            };
            let hops = way[..way.len() - 1].windows(2);
            let expected: i64 = hops.map(|hop| {
                let (from, to) = (starts(hop[0]), starts(hop[1]));
                let next = |at: i64| to.iter().map(|to| (to - at - 1).rem_euclid(cycle) + 1).min();
                let waits: Vec<i64> = from.iter().filter_map(|&at| next(at)).collect();
                waits.iter().sum::<i64>() / i64::try_from(waits.len().max(1)).unwrap()
            }).sum();
            let way: Vec<StationName> = way.iter().map(|&n| name(all[n])).collect();
            prop_assert_eq!(waits(&schedule, &way), expected);
        }

        #[test]
        fn t0_no_order_of_few_slots_is_better(
            stations in prop::collection::vec(0_usize..4, 2..6),
            way in Just([0, 1, 2, 3].map(|n| format!("s{n}"))).prop_shuffle(),
        ) {
            let all = ["s0", "s1", "s2", "s3"];
            let named: Vec<&str> = stations.iter().map(|&n| all[n]).collect();
            let before = schedule(&named);
            let way: Vec<StationName> = way.iter().map(|it| name(it)).collect();
            let along = before.along(&[&way]);
            let least = waits(&along, &way);
            let mut costs = Waits::of(&before, &[&way]);
            let mut order: Vec<usize> = (0..named.len()).collect();
            loop {
                prop_assert!(least <= costs.cost(&order));
                if !next_permutation(&mut order[1..]) {
                    break;
                }
            }
            // Nothing is lost.
            let sorted = |schedule: &TdmSchedule| {
                let mut all: Vec<_> =
                    schedule.slots().iter().map(|it| it.station.to_string()).collect();
                all.sort();
                all
            };
            prop_assert_eq!(sorted(&before), sorted(&along));
        }
    }
}
