// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where intervals of one line overlap, they are drawn below each other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Interval;

/// The row of each interval on its line: the lowest that is free when it begins. Intervals of a
/// row do not overlap; they may touch.
///
/// **Shape**: as `intervals`, which ascend by their begin; then how many rows each line has.
pub(crate) fn rows(intervals: &[Interval], lanes: usize) -> (Vec<usize>, Vec<usize>) {
    let mut count = vec![0; lanes];
    let mut free: Vec<BinaryHeap<Reverse<usize>>> = vec![BinaryHeap::new(); lanes];
    let mut busy: Vec<BinaryHeap<Reverse<(i64, usize)>>> = vec![BinaryHeap::new(); lanes];
    let place = |it: &Interval| {
        let (free, busy) = (&mut free[it.lane], &mut busy[it.lane]);
        while let Some(&Reverse((end, row))) = busy.peek() {
            if end > it.from_ns {
                break;
            }
            busy.pop();
            free.push(Reverse(row));
        }
        let row = free.pop().map_or_else(
            || {
                count[it.lane] += 1;
                count[it.lane] - 1
            },
            |Reverse(row)| row,
        );
        busy.push(Reverse((it.to_ns.max(it.from_ns), row)));
        row
    };
    let rows = intervals.iter().map(place).collect();
    (rows, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_rows_hold_what_does_not_overlap() {
        // A made-up sequence that overlaps in many ways.
        let mut intervals: Vec<Interval> = (0_i64..400)
            .map(|n| {
                let from_ns = n * 7 % 311;
                let to_ns = from_ns + n * 13 % 29;
                Interval {
                    from_ns,
                    to_ns,
                    lane: usize::from(n % 3 == 0),
                    name: 0,
                    bound_ns: 0,
                    packet_path: None,
                }
            })
            .collect();
        intervals.sort();
        let (rows, count) = rows(&intervals, 2);
        let mut most = [0, 0];
        for (at, one) in intervals.iter().enumerate() {
            assert!(rows[at] < count[one.lane]);
            for other in 0..at {
                let two = intervals[other];
                let same = two.lane == one.lane && rows[other] == rows[at];
                assert!(!same || two.to_ns <= one.from_ns, "{two:?} and {one:?}");
            }
            let open = |two: &&Interval| two.lane == one.lane && two.to_ns > one.from_ns;
            let before = intervals[..at].iter().filter(open).count();
            most[one.lane] = before.max(most[one.lane]);
        }
        // No more rows than there ever were at once.
        assert!(count[0] <= most[0] + 1 && count[1] <= most[1] + 1, "{count:?} {most:?}");
        assert!(count[0] > 1);
    }
}
