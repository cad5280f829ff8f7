// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of slots along pipelines: a computation in steps that are on different stations waits
//! at each for that station's slot, so the slots stand in the order of the steps.
//!
//! Not here: which pipelines there are (`scenario`).

use timewire_base::{Span, StationName};

use super::{Slot, TdmSchedule};

/// Up to so many slots behind the first every order is tried.
const ALL: usize = 7;

impl TdmSchedule {
    /// The same slots one after the other, the first the first, in the order in which what these
    /// pipelines (stations from source to sink) hand on waits least: the sum, over all hand-overs
    /// but the last, of the time from the start of a slot of the station before to the next start
    /// of a slot of the station after, in the mean over its slots. Of orders that are as good, the
    /// one that is first by the order of the slots now.
    ///
    /// With at most eight slots no other order is better. With more it is one that no single slot
    /// at another place makes better.
    #[must_use]
    pub fn along(&self, pipelines: &[&[StationName]]) -> TdmSchedule {
        let hops: Vec<(&StationName, &StationName)> = pipelines
            .iter()
            // The last station ends the computation: it waits for no slot.
            .flat_map(|stations| stations[..stations.len().saturating_sub(1)].windows(2))
            .filter_map(|pair| pair.first().zip(pair.get(1)))
            .collect();
        let cost = |order: &[usize]| self.waits(order, &hops);
        let first: Vec<usize> = (0..self.slots.len()).collect();
        let best =
            if first.len() <= ALL + 1 { best_of_all(&first, cost) } else { moved(first, cost) };
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

    /// A sum of means, each rounded down.
    ///
    /// **Units**: nanoseconds.
    fn waits(&self, order: &[usize], hops: &[(&StationName, &StationName)]) -> i64 {
        let slots = self.placed(order);
        let starts = |station: &StationName| -> Vec<i64> {
            let own = slots.iter().filter(|slot| slot.station == *station);
            own.map(|slot| slot.offset.as_ns()).collect()
        };
        let wait = |(from, to): &(&StationName, &StationName)| {
            let (from, to) = (starts(from), starts(to));
            let cycle = self.cycle.as_ns();
            let next = |at: i64| to.iter().map(|&to| (to - at - 1).rem_euclid(cycle) + 1).min();
            let waits: Vec<i64> = from.iter().filter_map(|&at| next(at)).collect();
            let count = i64::try_from(waits.len()).unwrap_or(i64::MAX).max(1);
            waits.iter().sum::<i64>() / count
        };
        hops.iter().map(wait).sum()
    }
}

/// The best order that begins with the first.
fn best_of_all(first: &[usize], cost: impl Fn(&[usize]) -> i64) -> Vec<usize> {
    let mut best = (cost(first), first.to_vec());
    let mut order = first.to_vec();
    // Every permutation of the rest, in lexicographic order.
    while next_permutation(&mut order[1..]) {
        let this = cost(&order);
        if this < best.0 {
            best = (this, order.clone());
        }
    }
    best.1
}

/// Whether there was one after it.
fn next_permutation(order: &mut [usize]) -> bool {
    let Some(from) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else { return false };
    let with = order.iter().rposition(|&it| it > order[from]);
    order.swap(from, with.expect("invariant: the one behind is larger"));
    order[from + 1..].reverse();
    true
}

/// Moves single slots to better places until there is none.
fn moved(mut order: Vec<usize>, cost: impl Fn(&[usize]) -> i64) -> Vec<usize> {
    let mut now = cost(&order);
    loop {
        let mut best = None;
        for from in 1..order.len() {
            for to in (1..order.len()).filter(|&to| to != from) {
                let mut other = order.clone();
                let slot = other.remove(from);
                other.insert(to, slot);
                let this = cost(&other);
                if this < best.as_ref().map_or(now, |(cost, _)| *cost) {
                    best = Some((this, other));
                }
            }
        }
        let Some((cost, other)) = best else { return order };
        (now, order) = (cost, other);
    }
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
        let hops: Vec<_> = reversed[..10].windows(2).map(|two| (&two[0], &two[1])).collect();
        let all: Vec<usize> = (0..12).collect();
        // Each step a slot later instead of eleven: no order does better.
        assert_eq!(before.waits(&all, &hops), 9 * 11 * 260_000);
        assert_eq!(along.waits(&all, &hops), 9 * 260_000);
    }

    proptest! {
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
            let hops: Vec<_> = way[..3].windows(2).map(|two| (&two[0], &two[1])).collect();
            let least = along.waits(&(0..named.len()).collect::<Vec<_>>(), &hops);
            let mut order: Vec<usize> = (0..named.len()).collect();
            loop {
                prop_assert!(least <= before.waits(&order, &hops));
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
