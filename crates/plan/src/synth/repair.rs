// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cheapest place for a message that fits nowhere: where the fewest others have to go, weighed
//! by how often they had to before (Morris, "The breakout method for escaping from local minima",
//! 1993, with whole streams as what breaks out).

use timewire_base::Sequence;

use super::shape::Stretch;
use super::table::{MAX_PIECES, Table};

/// At this price something is in the way that cannot go. As many as there can be have a sum.
pub const NEVER: u64 = 1 << 40;

/// Where a stream is among the weights; what is nobody's is behind them.
fn place_of(stream: u32, weights: &[u64]) -> usize {
    usize::try_from(stream).map_or(weights.len(), |place| place.min(weights.len()))
}

/// A start and what is in its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub start: i64,
    pub price: u64,
    pub evicted: Vec<usize>,
}

/// Scratch memory of the sweep.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Instant, whether the conflict begins or ends there, and with whom.
    events: Vec<(i64, i32, u32)>,
    /// By stream: how many conflicts there are with it now.
    now: Vec<i32>,
}

impl Sweep {
    /// The cheapest start between `from` and `until`, both included; one of the cheapest by chance.
    pub fn cheapest(
        &mut self,
        table: &mut Table,
        class: usize,
        stretches: &[Stretch],
        (from, until): (i64, i64),
        weights: &[u64],
        random: &mut Sequence,
    ) -> Offer {
        self.collect(table, class, stretches, from, until);
        table.work += u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        self.events.sort_unstable();
        self.now.resize(weights.len() + 1, 0);
        let (mut price, mut best, mut start) = (0u64, u64::MAX, from);
        let mut equal = 0;
        let mut next = 0;
        let mut at = from;
        loop {
            while let Some(&(_, change, stream)) =
                self.events.get(next).filter(|(instant, ..)| *instant <= at)
            {
                let place = place_of(stream, weights);
                let count = &mut self.now[place];
                let was = *count;
                *count += change;
                let weight = weights.get(place).copied().unwrap_or(NEVER);
                match (was, *count) {
                    (0, 1..) => price += weight,
                    (1.., 0) => price -= weight,
                    _ => {}
                }
                next += 1;
            }
            if price < best {
                (best, start, equal) = (price, at, 1);
            } else if price == best {
                equal += 1;
                if random.below(equal) == 0 {
                    start = at;
                }
            }
            match self.events.get(next) {
                Some(&(instant, ..)) if instant <= until => at = instant,
                _ => break,
            }
        }
        for (_, _, stream) in self.events.drain(..) {
            self.now[place_of(stream, weights)] = 0;
        }
        let evicted = in_the_way(table, class, stretches, start);
        Offer { start, price: best, evicted }
    }

    /// When conflicts begin and end, for starts from `from` to `until`.
    fn collect(&mut self, table: &Table, class: usize, all: &[Stretch], from: i64, until: i64) {
        for stretch in all {
            for item in table.items(stretch.link.index()) {
                let every = table.divisor(class, item.class);
                // Starts strictly between these meet the item, and again with every turn. Too many
                // turns count as one that never ends: a start is then seldom thought to be free.
                let first = item.start - stretch.start - stretch.length + 1;
                let width = stretch.length + item.length - 1;
                if width >= every || (until - from) / every > MAX_PIECES {
                    self.events.push((from, 1, item.stream));
                    continue;
                }
                let mut begin = from + (first - from).rem_euclid(every);
                if begin + width > from + every {
                    self.events.push((from, 1, item.stream));
                    self.events.push((begin + width - every, -1, item.stream));
                }
                while begin <= until {
                    self.events.push((begin, 1, item.stream));
                    self.events.push((begin + width, -1, item.stream));
                    begin += every;
                }
            }
        }
    }
}

/// How many steps a sweep over so much time takes, at least about as many as it does.
pub fn effort<'a>(
    table: &Table,
    class: usize,
    stretches: impl Iterator<Item = &'a Stretch>,
    time: i64,
) -> u64 {
    let items = stretches.flat_map(|stretch| table.items(stretch.link.index()));
    let events = items.map(|item| 2 * (time / table.divisor(class, item.class) + 1));
    events.fold(0, |sum, events| sum.saturating_add(events.unsigned_abs()))
}

/// Everyone who is on a link when the message would be.
pub fn in_the_way(table: &Table, class: usize, stretches: &[Stretch], start: i64) -> Vec<usize> {
    let mut found = Vec::new();
    for stretch in stretches {
        let at = start + stretch.start;
        for item in table.items(stretch.link.index()) {
            let every = table.divisor(class, item.class);
            let ahead = (item.start - at).rem_euclid(every);
            let behind = (at - item.start).rem_euclid(every);
            if ahead < stretch.length || behind < item.length {
                found.extend(item.owner());
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LinkId;

    #[test]
    fn t0_the_cheapest_place_is_the_cheapest_of_all() {
        for seed in 0..400 {
            let mut random = Sequence::new(seed);
            let mut number =
                |least: i64, bound: usize| least + i64::try_from(random.below(bound)).unwrap();
            let mut table = Table::new(2);
            let stretch = |link, start, length| Stretch { link: LinkId(link), start, length };
            let mut weights = Vec::new();
            for stream in 0..12 {
                let interval = [24, 36, 12, 48][usize::try_from(number(0, 4)).unwrap()];
                let class = table.class(interval);
                let own = [stretch(0, 0, number(1, 4)), stretch(1, 5, number(1, 4))];
                if let Some(start) = table.fit(class, &own, number(0, 12), interval * 2) {
                    table.put(stream, class, start, &own);
                }
                weights.push(u64::try_from(number(1, 5)).unwrap());
            }
            let class = table.class(36);
            let own = [stretch(0, 0, number(2, 4)), stretch(1, 3, number(2, 4))];
            let price = |start| -> u64 {
                let all = in_the_way(&table, class, &own, start);
                all.iter().map(|s| weights[*s]).sum()
            };
            let slow = (2..=31).map(price).min().unwrap();
            let mut sweep = Sweep::default();
            let mut random = Sequence::new(seed);
            let offer = sweep.cheapest(&mut table, class, &own, (2, 31), &weights, &mut random);
            assert_eq!(offer.price, slow, "seed {seed}");
            let paid: u64 = offer.evicted.iter().map(|s| weights[*s]).sum();
            assert_eq!(paid, slow, "seed {seed}");
            assert!((2..=31).contains(&offer.start), "seed {seed}");
        }
    }
}
