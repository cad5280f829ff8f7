// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrivals, as they came, before they are put down to their streams: results of many streams are
//! much memory, and each frame belongs to another of them, so they are put down many at a time,
//! sorted.

use super::frame::slot;
use super::stats::StreamResult;

/// An arrival: the stream, and the latency or [`NOT_COUNTED`].
type Arrival = (u32, u64);

/// That of a frame from before the time whose latencies count.
const NOT_COUNTED: u64 = u64::MAX;

/// So many of each stream are put down at a time, on average,
const OF_EACH: usize = 16;
/// and of all together at most: 16 MiB, and half of that to sort them.
const MAX_NOTED: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Noted {
    arrivals: Vec<Arrival>,
    /// How many are put down together.
    most: usize,
    /// For each stream, how many arrived; then where the next of its latencies goes.
    places: Vec<u32>,
    sorted: Vec<u64>,
}

impl Noted {
    /// Of so many streams.
    pub fn of(streams: usize) -> Noted {
        let most = streams.saturating_mul(OF_EACH).clamp(1, MAX_NOTED);
        Noted { arrivals: Vec::new(), most, places: vec![0; streams], sorted: Vec::new() }
    }

    /// A frame of a stream has arrived; its latency, if it counts. **Units**: picoseconds.
    #[inline]
    pub fn note(&mut self, results: &mut [StreamResult], stream: u32, latency: Option<u64>) {
        self.arrivals.push((stream, latency.unwrap_or(NOT_COUNTED)));
        if self.arrivals.len() == self.most {
            self.put_down(results);
        }
    }

    /// Puts all down to their streams, those of each in their order.
    #[inline(never)]
    pub fn put_down(&mut self, results: &mut [StreamResult]) {
        self.places.fill(0);
        for (stream, _) in &self.arrivals {
            self.places[slot(*stream)] += 1;
        }
        let mut next = 0;
        for place in &mut self.places {
            next += std::mem::replace(place, next);
        }
        self.sorted.clear();
        self.sorted.resize(self.arrivals.len(), 0);
        for (stream, latency) in self.arrivals.drain(..) {
            let place = &mut self.places[slot(stream)];
            self.sorted[slot(*place)] = latency;
            *place += 1;
        }
        // Each place is behind the last of its stream now.
        let mut from = 0;
        for (result, ends) in results.iter_mut().zip(&self.places) {
            let own = &self.sorted[from..slot(*ends)];
            from = slot(*ends);
            // Around the first that counts they may arrive in another order.
            let mut left = own;
            while !left.is_empty() {
                let counted = left.iter().take_while(|latency| **latency != NOT_COUNTED).count();
                let (these, others) = left.split_at(counted);
                let not = others.iter().take_while(|latency| **latency == NOT_COUNTED).count();
                result.arrived(counted + not, these);
                left = &others[not..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Latencies;
    use proptest::prelude::*;

    /// The stream and the latency, if it counts.
    fn arrival() -> impl Strategy<Value = (u32, Option<u64>)> {
        (0..5_u32, proptest::option::of(0..99_u64))
    }

    proptest! {
        #[test]
        fn t0_arrivals_come_to_their_streams_in_their_order(
            arrivals in proptest::collection::vec(arrival(), 0..400),
            room in 1..100_usize,
        ) {
            let latencies = Latencies::of_one_of(room << 17);
            let empty = StreamResult { latencies, ..StreamResult::default() };
            let (mut together, mut alone) = (vec![empty.clone(); 5], vec![empty; 5]);
            let mut noted = Noted::of(5);
            for (stream, latency) in &arrivals {
                noted.note(&mut together, *stream, *latency);
                alone[slot(*stream)].arrived(1, latency.as_slice());
            }
            noted.put_down(&mut together);
            prop_assert_eq!(together, alone);
        }
    }
}
