// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a listener says of a stream while it listens: what was lost, how long messages took, when
//! they came. All memory is allocated at construction; an arrival allocates nothing.
//!
//! The definitions are in `docs/src/reference/streams.md`.
//!
//! Not here: sockets and stamps (`timewire-path`), what is computed from the records of a run
//! (`analyse`, `stats`).

pub mod histogram;
pub mod phase;
pub mod sequence;
mod sums;

use serde::{Deserialize, Serialize};
use timewire_base::{FrameLen, Instant, Span, Tai};

use crate::record::Tap;
use histogram::{BatchedHistogram, HistogramSummary};
use phase::{PhaseCycle, PhaseHistogram, PhaseSummary};
use sequence::{Arrived, SequenceCounts, SequenceLimits, SequenceWatch};
use sums::as_f64;

/// The `schema` field of a snapshot.
pub const STREAM_SCHEMA: &str = "timewire.stream/1";

/// How a stream is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// The two taps whose distance is given with each arrival.
    pub taps: (Tap, Tap),
    /// What is remembered of its sequence numbers.
    pub sequence: SequenceLimits,
    /// Times up to this have bins of their own; see [`histogram::LogHistogram::up_to`].
    pub longest: Span,
    /// The cycle that arrivals are laid over, if there is one.
    pub cycle: Option<PhaseCycle>,
}

/// A message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant<Tai>,
    /// Its sequence number.
    pub number: u32,
    /// Its length.
    pub length: FrameLen,
    /// From the first of [`StreamConfig::taps`] to the second; `None` when either is not known.
    pub between: Option<Span>,
}

/// Everything of one stream.
#[derive(Clone, Debug)]
pub struct StreamStats {
    taps: (Tap, Tap),
    sequence: SequenceWatch,
    between: BatchedHistogram,
    gaps: BatchedHistogram,
    phase: Option<PhaseHistogram>,
    total: Amount,
    interval: Amount,
    /// The first arrival with its amount, which no rate counts; and the last.
    ends: Option<(Instant<Tai>, Amount, Instant<Tai>)>,
    /// The last arrival that was not a duplicate.
    last_new: Option<Instant<Tai>>,
    since: Instant<Tai>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    frames: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }

    fn less(self, other: Amount) -> Amount {
        Amount { frames: self.frames - other.frames, bytes: self.bytes - other.bytes }
    }

    /// `None` when no time passed, or the clock was put back.
    fn rate(self, over_ns: i128) -> Option<Rate> {
        let ns = u128::try_from(over_ns).ok().filter(|&ns| ns > 0)?;
        let per_second = |count: u128| as_f64(count) * 1e9 / as_f64(ns);
        let bits = u128::from(self.bytes) * 8;
        Some(Rate {
            frames_per_s: per_second(self.frames.into()),
            frame_bits_per_s: per_second(bits),
        })
    }
}

/// How much in a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Frames per second.
    pub frames_per_s: f64,
    /// Bits per second of frames without check sequence, preamble and gap.
    pub frame_bits_per_s: f64,
}

/// A stream as it is now.
///
/// **Units**: as the names end; instants are TAI. Frames and bytes count every arrival, also
/// duplicates; histograms and the phase leave duplicates out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamSnapshot {
    /// Format and version.
    pub schema: String,
    /// When it was taken.
    pub at_ns: i64,
    /// Arrivals.
    pub frames: u64,
    /// Their lengths, without check sequences.
    pub frame_bytes: u64,
    /// When the first came; `null` of none.
    pub first_ns: Option<i64>,
    /// When the last came; `null` of none.
    pub last_ns: Option<i64>,
    /// Since the snapshot before (or the start); negative when the clock was put back.
    pub interval_ns: i64,
    /// Arrivals in the interval.
    pub interval_frames: u64,
    /// Rate in the interval; `null` when no time passed.
    pub interval_rate: Option<Rate>,
    /// Rate from the first arrival, which is not counted, to the last; `null` for fewer than two.
    pub total_rate: Option<Rate>,
    /// What the sequence numbers say.
    pub sequence: SequenceCounts,
    /// The tap from which `between` is measured.
    pub from_tap: String,
    /// The tap to which `between` is measured.
    pub to_tap: String,
    /// How long messages took from the one tap to the other.
    pub between: HistogramSummary,
    /// From one arrival to the next.
    pub inter_arrival: HistogramSummary,
    /// Where in the cycle they came.
    pub phase: Option<PhaseSummary>,
}

impl StreamStats {
    /// A stream of which nothing came yet; the first interval begins now.
    ///
    /// **Panics** when a limit is outside its bounds.
    pub fn new(config: StreamConfig, now: Instant<Tai>) -> StreamStats {
        StreamStats {
            taps: config.taps,
            sequence: SequenceWatch::new(config.sequence),
            between: BatchedHistogram::up_to(config.longest),
            gaps: BatchedHistogram::up_to(config.longest),
            phase: config.cycle.map(PhaseHistogram::new),
            total: Amount::default(),
            interval: Amount::default(),
            ends: None,
            last_new: None,
            since: now,
        }
    }

    /// A message came.
    #[inline]
    pub fn arrived(&mut self, arrival: Arrival) -> Arrived {
        let Arrival { at, number, length, between } = arrival;
        let amount = Amount { frames: 1, bytes: u64::from(length.get()) };
        self.total.add(amount);
        self.interval.add(amount);
        match &mut self.ends {
            Some((_, _, last)) => *last = at,
            none => *none = Some((at, amount, at)),
        }
        let arrived = self.sequence.arrived(number);
        if arrived == Arrived::Duplicate {
            return arrived;
        }
        if let Some(between) = between {
            self.between.record(between);
        }
        if let Some(last) = self.last_new.replace(at) {
            self.gaps.record(Span::from_ns(at.as_ns().saturating_sub(last.as_ns())));
        }
        if let Some(phase) = &mut self.phase {
            phase.record(at);
        }
        arrived
    }

    /// What the sequence numbers say so far.
    pub fn sequence(&self) -> SequenceCounts {
        self.sequence.counts()
    }

    /// The stream is over: numbers that are open are lost.
    pub fn finish(&mut self) {
        self.sequence.finish();
    }

    /// The stream as it is now; ends the interval and begins the next. Allocates.
    pub fn snapshot(&mut self, now: Instant<Tai>) -> StreamSnapshot {
        let interval = std::mem::take(&mut self.interval);
        let over = distance(self.since, now);
        self.since = now;
        let total_rate = self.ends.and_then(|(first, of_first, last)| {
            self.total.less(of_first).rate(distance(first, last))
        });
        StreamSnapshot {
            schema: STREAM_SCHEMA.to_owned(),
            at_ns: now.as_ns(),
            frames: self.total.frames,
            frame_bytes: self.total.bytes,
            first_ns: self.ends.map(|(first, ..)| first.as_ns()),
            last_ns: self.ends.map(|(_, _, last)| last.as_ns()),
            interval_ns: i64::try_from(over).unwrap_or(i64::MAX),
            interval_frames: interval.frames,
            interval_rate: interval.rate(over),
            total_rate,
            sequence: self.sequence.counts(),
            from_tap: self.taps.0.name().to_owned(),
            to_tap: self.taps.1.name().to_owned(),
            between: self.between.settle().summary(),
            inter_arrival: self.gaps.settle().summary(),
            phase: self.phase.as_ref().map(PhaseHistogram::summary),
        }
    }
}

fn distance(from: Instant<Tai>, to: Instant<Tai>) -> i128 {
    i128::from(to.as_ns()) - i128::from(from.as_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn config() -> StreamConfig {
        StreamConfig {
            taps: (Tap::Send, Tap::Receive),
            sequence: SequenceLimits::default(),
            longest: Span::from_secs(1),
            cycle: Some(PhaseCycle {
                base_time: Instant::from_ns(0),
                cycle_time: Span::from_ms(1),
                bins: 4,
            }),
        }
    }

    fn arrival(at_ns: i64, number: u32) -> Arrival {
        Arrival {
            at: Instant::from_ns(at_ns),
            number,
            length: FrameLen::new(100).unwrap(),
            between: Some(Span::from_ns(40)),
        }
    }

    #[test]
    fn t0_a_stream_is_summed_up() {
        let mut stats = StreamStats::new(config(), Instant::from_ns(0));
        // One a millisecond, 300 us into the cycle; number 3 is lost, number 5 comes twice.
        for number in [0, 1, 2, 4, 5] {
            let at = i64::from(number) * MS + 300_000;
            assert!(matches!(stats.arrived(arrival(at, number)), Arrived::Ahead { .. }));
        }
        let again = Arrival { between: Some(Span::from_ms(9)), ..arrival(5 * MS + 300_001, 5) };
        assert_eq!(stats.arrived(again), Arrived::Duplicate);
        let now = stats.snapshot(Instant::from_ns(10 * MS));
        assert_eq!((now.frames, now.frame_bytes, now.interval_frames), (6, 600, 6));
        assert_eq!((now.first_ns, now.last_ns), (Some(300_000), Some(5 * MS + 300_001)));
        assert_eq!((now.sequence.received, now.sequence.open), (5, 1));
        assert_eq!((now.sequence.duplicate, now.sequence.lost), (1, 0));
        assert_eq!((now.between.count, now.between.max_ns), (5, 40));
        let gaps = &now.inter_arrival;
        assert_eq!((gaps.count, gaps.min_ns, gaps.max_ns), (4, MS, 2 * MS));
        assert_eq!(now.phase.as_ref().unwrap().counts, [0, 5, 0, 0]);
        let rate = now.interval_rate.unwrap();
        assert!((rate.frames_per_s - 600.0).abs() < 1e-9, "{rate:?}");
        assert!((rate.frame_bits_per_s - 480_000.0).abs() < 1e-6, "{rate:?}");
        let rate = now.total_rate.unwrap();
        assert!((rate.frames_per_s - 5e9 / 5_000_001.0).abs() < 1e-9, "{rate:?}");

        stats.arrived(arrival(12 * MS, 6));
        stats.finish();
        let next = stats.snapshot(Instant::from_ns(12 * MS));
        assert_eq!((next.interval_ns, next.interval_frames, next.frames), (2 * MS, 1, 7));
        assert_eq!((next.sequence.lost, next.sequence.open), (1, 0));
        let text = serde_json::to_string(&next).unwrap();
        assert_eq!(serde_json::from_str::<StreamSnapshot>(&text).unwrap(), next);
    }

    #[test]
    fn t0_nothing_came_and_the_clock_was_put_back() {
        let quiet = StreamConfig { cycle: None, ..config() };
        let mut stats = StreamStats::new(quiet, Instant::from_ns(5));
        let none = stats.snapshot(Instant::from_ns(5));
        assert_eq!((none.interval_rate, none.total_rate, none.first_ns), (None, None, None));
        assert_eq!((none.from_tap.as_str(), none.to_tap.as_str()), ("Send", "Receive"));
        stats.arrived(Arrival { between: None, ..arrival(100, 0) });
        stats.arrived(arrival(40, 1));
        let back = stats.snapshot(Instant::from_ns(1));
        assert_eq!((back.interval_ns, back.interval_rate, back.total_rate), (-4, None, None));
        assert_eq!((back.inter_arrival.min_ns, back.between.count), (-60, 1));
    }
}
