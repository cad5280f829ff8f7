// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The largest rate at which nothing is lost, by halving what is not known: the search of RFC 2544,
//! 26.1.

/// A search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The largest rate known to lose nothing; 0 is.
    good: u32,
    /// The smallest rate known to lose something.
    bad: Option<u32>,
    most: u32,
    percent: u32,
}

impl Search {
    /// For a rate of 1 to `most`, known in the end to so many per cent of itself.
    ///
    /// **Units**: frames per second.
    pub fn new(most: u32, percent: u32) -> Search {
        Search { good: 0, bad: None, most: most.max(1), percent }
    }

    /// The rate to try next; `None` when it is known well enough.
    pub fn next(&self) -> Option<u32> {
        let Some(bad) = self.bad else {
            return (self.good < self.most).then_some(self.most);
        };
        let open = bad - self.good;
        let close = u64::from(open) * 100 <= u64::from(self.good) * u64::from(self.percent);
        (open > 1 && !close).then(|| self.good + open / 2)
    }

    /// What trying a rate came to.
    pub fn tried(&mut self, rate: u32, lost_nothing: bool) {
        if lost_nothing {
            self.good = self.good.max(rate);
        } else {
            self.bad = Some(self.bad.map_or(rate, |bad| bad.min(rate)));
        }
    }

    /// The largest rate that lost nothing; `None` when every one lost something.
    pub fn found(&self) -> Option<u32> {
        (self.good > 0).then_some(self.good)
    }
}

/// So many per cent of a rate, at least 1 frame per second.
pub fn share_of(rate: u32, percent: u32) -> u32 {
    let share = u64::from(rate) * u64::from(percent) / 100;
    u32::try_from(share).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(most: u32, percent: u32, limit: u32) -> (Option<u32>, Vec<u32>) {
        let (mut search, mut tried) = (Search::new(most, percent), Vec::new());
        while let Some(rate) = search.next() {
            tried.push(rate);
            search.tried(rate, rate <= limit);
        }
        (search.found(), tried)
    }

    #[test]
    fn t0_the_largest_rate_is_found_in_few_trials() {
        let all_good = (Some(1_000), vec![1_000]);
        assert_eq!(search(1_000, 5, 1_000), all_good);
        let (found, tried) = search(1_000_000, 5, 200_000);
        assert_eq!(tried[..4], [1_000_000, 500_000, 250_000, 125_000]);
        assert!(found.unwrap() <= 200_000 && found.unwrap() >= 190_000 && tried.len() <= 9);
        assert_eq!(search(1_000, 0, 377).0, Some(377));
        assert_eq!(search(64, 5, 0), (None, vec![64, 32, 16, 8, 4, 2, 1]));
    }

    #[test]
    fn t0_shares_are_at_least_one_frame() {
        assert_eq!((share_of(1_000, 75), share_of(3, 10), share_of(7, 100)), (750, 1, 7));
        assert_eq!(share_of(u32::MAX, 100), u32::MAX);
    }

    #[test]
    fn t0_what_is_found_is_good_and_close_to_what_is_not() {
        for most in [1, 2, 3, 1_000, 65_537, 1_999_999] {
            for percent in [0, 1, 5, 19] {
                for limit in [1, 2, 7, 999, 1_000, 1_001, 60_000, 1_999_998, 2_000_000] {
                    let (found, tried) = search(most, percent, limit);
                    let found = found.unwrap();
                    assert!(found <= limit && tried.len() <= 23, "{most} {percent} {limit}");
                    let gap = u64::from(limit.min(most) - found) * 100;
                    let allowed = u64::from(found) * u64::from(percent);
                    assert!(gap <= allowed, "{most} {percent} {limit}: {found}");
                }
            }
        }
    }
}
