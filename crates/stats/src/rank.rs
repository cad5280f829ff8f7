// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Percentiles by nearest rank: the smallest value that at least so many of all do not exceed.

/// The rank, 1 to `count`, of the value that at least `ppm` millionths of so many values do not
/// exceed; 1 of none.
pub fn rank(count: u64, ppm: u32) -> u64 {
    let rank = (u128::from(count) * u128::from(ppm)).div_ceil(1_000_000);
    u64::try_from(rank).unwrap_or(count).min(count).max(1)
}

/// The smallest value that at least `ppm` millionths of all do not exceed; `None` of none.
///
/// **Shape**: ascending.
pub fn nearest_rank<T: Copy>(sorted: &[T], ppm: u32) -> Option<T> {
    let rank = rank(u64::try_from(sorted.len()).ok()?, ppm);
    sorted.get(usize::try_from(rank - 1).ok()?).copied()
}

/// The value in the middle, of an even count the lower one; `None` of none.
///
/// **Shape**: ascending.
pub fn median<T: Copy>(sorted: &[T]) -> Option<T> {
    nearest_rank(sorted, 500_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_ranks_of_few_and_of_many() {
        assert_eq!([0, 1, 500_000, 500_001, 1_000_000].map(|ppm| rank(4, ppm)), [1, 1, 2, 3, 4]);
        assert_eq!((rank(0, 500_000), rank(u64::MAX, 1_000_000)), (1, u64::MAX));
        assert_eq!(rank(4, 2_000_000), 4, "not beyond the last");
        assert_eq!(nearest_rank::<i64>(&[], 500_000), None);
        assert_eq!([1, 2, 3].map(|len| median(&[7, 8, 9][..len])), [Some(7), Some(7), Some(8)]);
        assert_eq!(nearest_rank(&[1.5, 2.5], 990_000), Some(2.5));
    }
}
