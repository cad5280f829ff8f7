// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far apart two starts may be: what is forbidden repeats with the greatest common divisor of
//! both intervals.

/// Distances that are forbidden, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    every: i64,
    /// Sorted, neither overlapping nor touching, within the first turn.
    shut: Vec<(i64, i64)>,
}

impl Ring {
    /// From spans `[first, end)` that may lie anywhere.
    pub fn new(every: i64, spans: impl Iterator<Item = (i64, i64)>) -> Ring {
        let mut all = Vec::new();
        for (first, end) in spans {
            if end - first >= every {
                return Ring { every, shut: vec![(0, every)] };
            }
            let start = first.rem_euclid(every);
            let end = start + (end - first);
            if end <= every {
                all.push((start, end));
            } else {
                all.extend([(start, every), (0, end - every)]);
            }
        }
        all.retain(|(start, end)| start < end);
        all.sort_unstable();
        let mut shut: Vec<(i64, i64)> = Vec::with_capacity(all.len());
        for (start, end) in all {
            match shut.last_mut() {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => shut.push((start, end)),
            }
        }
        Ring { every, shut }
    }

    /// Whether no distance is allowed.
    pub fn is_shut(&self) -> bool {
        self.shut.first() == Some(&(0, self.every))
    }

    /// Whether every distance is.
    pub fn is_open(&self) -> bool {
        self.shut.is_empty()
    }

    /// How many forbidden spans there are.
    pub fn spans(&self) -> usize {
        self.shut.len()
    }

    /// The share that is forbidden. **Units**: millionths.
    pub fn density(&self) -> u64 {
        let sum: i64 = self.shut.iter().map(|(start, end)| end - start).sum();
        let share = i128::from(sum) * 1_000_000 / i128::from(self.every);
        u64::try_from(share).unwrap_or(1_000_000)
    }

    /// The forbidden span that holds a distance; it may begin before the turn or end after it.
    fn around(&self, distance: i64) -> Option<(i64, i64)> {
        let turn = distance.div_euclid(self.every) * self.every;
        let at = distance - turn;
        let place = self.shut.partition_point(|(_, end)| *end <= at);
        let &(start, end) = self.shut.get(place).filter(|(start, _)| *start <= at)?;
        let (first, last) = (self.shut[0], self.shut[self.shut.len() - 1]);
        let wraps = first.0 == 0 && last.1 == self.every && self.shut.len() > 1;
        let start = if wraps && start == 0 { last.0 - self.every } else { start };
        let end = if wraps && end == self.every { first.1 + self.every } else { end };
        Some((start + turn, end + turn))
    }

    /// The first allowed distance at or after this one. Not for one that is shut.
    pub fn at_least(&self, distance: i64) -> i64 {
        self.around(distance).map_or(distance, |(_, end)| end)
    }

    /// The last allowed distance at or before this one. Not for one that is shut.
    pub fn at_most(&self, distance: i64) -> i64 {
        self.around(distance).map_or(distance, |(start, _)| start - 1)
    }

    /// A forbidden span between two allowed distances: the longest within a turn around their
    /// middle. `None`: all between them are allowed.
    pub fn between(&self, least: i64, most: i64) -> Option<(i64, i64)> {
        let middle = least + (most - least) / 2;
        let turn = middle.div_euclid(self.every) * self.every;
        let mut best: Option<(i64, i64)> = None;
        for turn in [turn, turn - self.every, turn + self.every] {
            for &(start, _) in &self.shut {
                let Some(span) = self.around(start + turn) else { continue };
                let inside = least < span.0 && span.1 <= most;
                if inside && best.is_none_or(|best| span.1 - span.0 > best.1 - best.0) {
                    best = Some(span);
                }
            }
            if best.is_some() {
                break;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use timewire_base::Sequence;

    use super::*;

    #[test]
    fn t0_a_ring_is_a_list_of_distances() {
        for seed in 0..2_000 {
            let mut random = Sequence::new(seed);
            let mut number = |bound: usize| i64::try_from(random.below(bound)).unwrap();
            let every = 5 + number(30);
            let spans: Vec<(i64, i64)> = (0..1 + number(4))
                .map(|_| {
                    let first = number(100) - 50;
                    (first, first + number(8))
                })
                .collect();
            let shut = |at: i64| {
                spans
                    .iter()
                    .any(|(first, end)| (*first..*end).any(|one| (one - at).rem_euclid(every) == 0))
            };
            let ring = Ring::new(every, spans.iter().copied());
            let open: Vec<i64> = (-200..200).filter(|at| !shut(*at)).collect();
            assert_eq!(ring.is_shut(), open.is_empty(), "seed {seed}");
            assert_eq!(ring.is_open(), open.len() == 400, "seed {seed}");
            if open.is_empty() {
                continue;
            }
            for at in -80..80 {
                assert_eq!(Some(ring.at_least(at)), open.iter().copied().find(|o| *o >= at));
                assert_eq!(Some(ring.at_most(at)), open.iter().copied().rfind(|o| *o <= at));
            }
            let (a, b) = (ring.at_least(number(80) - 40), ring.at_most(number(80)));
            let gap = (a..=b).any(shut);
            assert_eq!(ring.between(a, b).is_some(), gap, "seed {seed}: {ring:?} {a} {b}");
            if let Some((start, end)) = ring.between(a, b) {
                assert!(a < start && end <= b && (start..end).all(shut));
                assert!(!shut(start - 1) && !shut(end));
            }
        }
    }
}
