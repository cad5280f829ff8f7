// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counters of a talker while it runs, for another thread: the talker stores them soon after
//! each change (50 ms at most while it sends, at once before it waits longer), the reader loads
//! them, and neither waits. Each counter is right; two of them may be of
//! moments that are some nanoseconds apart.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use timewire_base::Span;

use super::report::{COUNTERS, StreamCounters};

/// The counters of all streams of a talker; of none unless a talker made them.
#[derive(Debug, Default)]
pub struct LiveCounters {
    streams: Box<[LiveStream]>,
}

#[derive(Debug)]
struct LiveStream {
    number: u16,
    counters: [AtomicU64; COUNTERS],
    latest_ns: AtomicI64,
}

impl LiveCounters {
    pub(crate) fn new(numbers: impl Iterator<Item = u16>) -> LiveCounters {
        let stream = |number| LiveStream {
            number,
            counters: [const { AtomicU64::new(0) }; COUNTERS],
            latest_ns: AtomicI64::new(0),
        };
        LiveCounters { streams: numbers.map(stream).collect() }
    }

    /// The counters of a stream and how late its latest frame was written, of those that were sent;
    /// `None` for a number that no stream has.
    pub fn of(&self, stream: u16) -> Option<(StreamCounters, Span)> {
        let found = self.streams.iter().find(|one| one.number == stream)?;
        let values = std::array::from_fn(|at| found.counters[at].load(Ordering::Relaxed));
        let latest = Span::from_ns(found.latest_ns.load(Ordering::Relaxed));
        Some((StreamCounters::from_values(values), latest))
    }

    /// The counters of all streams together.
    pub fn total(&self) -> StreamCounters {
        let mut total = StreamCounters::default();
        for stream in &self.streams {
            let values = std::array::from_fn(|at| stream.counters[at].load(Ordering::Relaxed));
            total.add(&StreamCounters::from_values(values));
        }
        total
    }

    /// Stores the counters of the stream at this place.
    pub(crate) fn store(&self, index: usize, counters: &StreamCounters, latest: Span) {
        let live = &self.streams[index];
        for (to, value) in live.counters.iter().zip(counters.values()) {
            to.store(value, Ordering::Relaxed);
        }
        live.latest_ns.store(latest.as_ns(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_counters_come_back_as_they_were_stored() {
        let live = LiveCounters::new([4, 2].into_iter());
        let counters =
            StreamCounters::from_values(std::array::from_fn(|at| u64::try_from(at).unwrap() + 1));
        assert_eq!(
            (counters.planned, counters.not_filled, counters.timestamps_missing),
            (1, 6, 13)
        );
        live.store(1, &counters, Span::from_us(7));
        assert_eq!(live.of(2), Some((counters, Span::from_us(7))));
        assert_eq!(live.of(4), Some((StreamCounters::default(), Span::ZERO)));
        live.store(0, &counters, Span::ZERO);
        let total = live.total();
        assert_eq!((total.planned, total.not_filled, total.timestamps_missing), (2, 12, 26));
        assert_eq!(live.of(1), None);
    }
}
