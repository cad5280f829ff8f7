// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a listener says of a stream while it listens: what was lost, how long messages took, when
//! they came. All memory is allocated at construction; an arrival allocates nothing: it is kept as
//! it comes, and many are counted at once.
//!
//! The definitions are in `docs/src/reference/streams.md`.
//!
//! Not here: sockets and timestamps (`timewire-datapath`), what is computed from the records of a
//! run (`analyse`).

pub mod phase;
pub mod sequence;

use serde::{Deserialize, Serialize};
use timewire_base::{FrameLen, Instant, Span, Tai};

use timewire_stats::{BATCH, HistogramSummary, LogHistogram};

use crate::record::TimestampPoint;
use phase::{PhaseCycle, PhaseHistogram, PhaseSummary};
use sequence::{Arrived, SequenceCounts, SequenceLimits, SequenceWatch};

/// The `schema` field of a snapshot.
pub const STREAM_SCHEMA: &str = "timewire.stream/1";

/// How a stream is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// The two timestamp points whose distance is given with each arrival.
    pub points: (TimestampPoint, TimestampPoint),
    /// What is remembered of its sequence numbers.
    pub sequence: SequenceLimits,
    /// Times up to this have bins of their own; see [`LogHistogram::up_to`].
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
    /// From the first of [`StreamConfig::points`] to the second; `None` when either is not known.
    pub between: Option<Span>,
}

/// Everything of one stream.
#[derive(Clone, Debug)]
pub struct StreamStats {
    points: (TimestampPoint, TimestampPoint),
    waiting: Waiting,
    sequence: SequenceWatch,
    between: LogHistogram,
    gaps: LogHistogram,
    phase: Option<PhaseHistogram>,
    total: Amount,
    interval: Amount,
    /// The first arrival with its amount, which no rate counts; and the last.
    ends: Option<(Instant<Tai>, Amount, Instant<Tai>)>,
    /// The last arrival that was not a duplicate.
    last_new: Option<Instant<Tai>>,
    since: Instant<Tai>,
    /// What the last message said that its sender did not send, and of which life of the sender.
    said: Option<(u32, u64)>,
}

/// Arrivals that are not counted yet, in order.
#[derive(Clone, Debug)]
struct Waiting {
    count: usize,
    at: [i64; BATCH],
    number: [u32; BATCH],
    length: [u32; BATCH],
    between: [i64; BATCH],
    /// A bit for each arrival, the first one's lowest: that [`Arrival::between`] is not known.
    unknown: u64,
}

const _: () = assert!(BATCH == 64, "a bit for each");

#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    frames: u64,
    bytes: u64,
}

impl Amount {
    /// Of frames that are so long.
    fn of(lengths: &[u32]) -> Amount {
        let frames = u64::try_from(lengths.len()).expect("invariant: a length fits 64 bits");
        // Lengths of 32 bits: there are too few of them to overflow.
        let bytes = lengths.iter().fold(0_u64, |sum, &one| sum.wrapping_add(one.into()));
        Amount { frames, bytes }
    }

    fn add(&mut self, other: Amount) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }

    fn less(self, other: Amount) -> Amount {
        Amount { frames: self.frames - other.frames, bytes: self.bytes - other.bytes }
    }

    /// `None` when no time passed, or the clock was set back.
    fn rate(self, over_ns: i128) -> Option<Rate> {
        let ns = u128::try_from(over_ns).ok().filter(|&ns| ns > 0)?;
        #[expect(clippy::cast_precision_loss, reason = "rates: one rounding to 53 bits")]
        let per_second = |count: u128| count as f64 * 1e9 / ns as f64;
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
    /// Since the snapshot before (or the start); negative when the clock was set back.
    pub interval_ns: i64,
    /// Arrivals in the interval.
    pub interval_frames: u64,
    /// Rate in the interval; `null` when no time passed.
    pub interval_rate: Option<Rate>,
    /// Rate from the first arrival, which is not counted, to the last; `null` for fewer than two.
    pub total_rate: Option<Rate>,
    /// What the sequence numbers say.
    pub sequence: SequenceCounts,
    /// Numbers of messages that their sender did not send, as it says itself; they are not among
    /// the lost. `null` where its messages do not say.
    pub skipped: Option<u64>,
    /// The timestamp point from which `between` is measured.
    pub from_point: String,
    /// The timestamp point to which `between` is measured.
    pub to_point: String,
    /// How long messages took from the one timestamp point to the other; `null` where it is not
    /// known how far the clocks of the two are apart.
    pub between: Option<HistogramSummary>,
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
            points: config.points,
            waiting: Waiting {
                count: 0,
                at: [0; BATCH],
                number: [0; BATCH],
                length: [0; BATCH],
                between: [0; BATCH],
                unknown: 0,
            },
            sequence: SequenceWatch::new(config.sequence),
            between: LogHistogram::up_to(config.longest),
            gaps: LogHistogram::up_to(config.longest),
            phase: config.cycle.map(PhaseHistogram::new),
            total: Amount::default(),
            interval: Amount::default(),
            ends: None,
            last_new: None,
            since: now,
            said: None,
        }
    }

    /// The message that comes next says how many its sender has not sent so far, modulo 2^32.
    #[inline]
    pub fn said_not_sent(&mut self, total: u32) {
        if self.said.is_none_or(|(before, _)| before != total) {
            self.not_sent_changed(total);
        }
    }

    #[cold]
    fn not_sent_changed(&mut self, total: u32) {
        self.settle();
        let life = self.sequence.counts().restarts;
        let more = match self.said {
            // One that was overtaken says less.
            Some((before, of)) if of == life => match total.wrapping_sub(before) {
                more if more < 1 << 31 => more,
                _ => return,
            },
            _ => 0,
        };
        self.said = Some((total, life));
        self.sequence.said_skipped(more);
    }

    /// A message came.
    #[inline]
    pub fn arrived(&mut self, arrival: Arrival) {
        let Arrival { at, number, length, between } = arrival;
        let waiting = &mut self.waiting;
        // A power of two, so that no place is out of bounds.
        let place = waiting.count % BATCH;
        waiting.at[place] = at.as_ns();
        waiting.number[place] = number;
        waiting.length[place] = length.get();
        match between {
            Some(between) => waiting.between[place] = between.as_ns(),
            None => waiting.unknown |= 1 << place,
        }
        waiting.count = place + 1;
        if waiting.count == BATCH {
            self.settle();
        }
    }

    /// Counts what waits.
    fn settle(&mut self) {
        let count = std::mem::take(&mut self.waiting.count);
        let waiting = &self.waiting;
        let (Some(&first), Some(&last)) = (waiting.at.first(), waiting.at[..count].last()) else {
            return;
        };
        let (first, last) = (Instant::from_ns(first), Instant::from_ns(last));
        let amount = Amount::of(&waiting.length[..count]);
        self.total.add(amount);
        self.interval.add(amount);
        match &mut self.ends {
            Some((.., end)) => *end = last,
            none => *none = Some((first, Amount::of(&waiting.length[..1]), last)),
        }
        let mut place = 0;
        while place < count {
            let numbers = &self.waiting.number[place..count];
            let taken = match self.sequence.arrived_in_order(numbers) {
                0 if self.sequence.arrived(numbers[0]) == Arrived::Duplicate => 0,
                0 => 1,
                many => many,
            };
            self.take_new(place, taken);
            place += taken.max(1);
        }
        self.waiting.unknown = 0;
    }

    /// So many arrivals that wait, from that one on, are no duplicates.
    fn take_new(&mut self, from: usize, count: usize) {
        let at = &self.waiting.at[from..from + count];
        let (Some(&first), Some(&last)) = (at.first(), at.last()) else { return };
        let between = &self.waiting.between[from..from + count];
        let unknown = self.waiting.unknown >> from;
        if unknown == 0 {
            self.between.record_all(between);
        } else {
            let known = between.iter().enumerate().filter(|(nth, _)| unknown >> nth & 1 == 0);
            known.for_each(|(_, &between)| self.between.record(Span::from_ns(between)));
        }
        let mut gaps = [0; BATCH];
        let pairs = at.iter().zip(&at[1..]).zip(&mut gaps);
        // From one time since 1970 to another there is no overflow.
        if at.iter().fold(0, |all, &at| all | at) >= 0 {
            pairs.for_each(|((from, to), gap)| *gap = to.wrapping_sub(*from));
        } else {
            pairs.for_each(|((from, to), gap)| *gap = to.saturating_sub(*from));
        }
        if let Some(before) = self.last_new.replace(Instant::from_ns(last)) {
            self.gaps.record(Span::from_ns(first.saturating_sub(before.as_ns())));
        }
        self.gaps.record_all(&gaps[..count - 1]);
        if let Some(phase) = &mut self.phase {
            at.iter().for_each(|&at| phase.record(Instant::from_ns(at)));
        }
    }

    /// The stream is over: numbers that are open are lost.
    pub fn finish(&mut self) {
        self.settle();
        self.sequence.finish();
    }

    /// The stream as it is now; ends the interval and begins the next. Allocates.
    pub fn snapshot(&mut self, now: Instant<Tai>) -> StreamSnapshot {
        self.settle();
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
            skipped: self.said.map(|_| self.sequence.skipped()),
            from_point: self.points.0.name().to_owned(),
            to_point: self.points.1.name().to_owned(),
            between: Some(self.between.summary()),
            inter_arrival: self.gaps.summary(),
            phase: self.phase.as_ref().map(PhaseHistogram::summary),
        }
    }
}

fn distance(from: Instant<Tai>, to: Instant<Tai>) -> i128 {
    i128::from(to.as_ns()) - i128::from(from.as_ns())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    fn config() -> StreamConfig {
        StreamConfig {
            points: (TimestampPoint::Send, TimestampPoint::Receive),
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
            stats.arrived(arrival(at, number));
        }
        let again = Arrival { between: Some(Span::from_ms(9)), ..arrival(5 * MS + 300_001, 5) };
        stats.arrived(again);
        let now = stats.snapshot(Instant::from_ns(10 * MS));
        assert_eq!((now.frames, now.frame_bytes, now.interval_frames), (6, 600, 6));
        assert_eq!((now.first_ns, now.last_ns), (Some(300_000), Some(5 * MS + 300_001)));
        assert_eq!((now.sequence.received, now.sequence.open), (5, 1));
        assert_eq!((now.sequence.duplicate, now.sequence.lost), (1, 0));
        let between = now.between.as_ref().unwrap();
        assert_eq!((between.count, between.max_ns), (5, 40));
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
    fn t0_nothing_came_and_the_clock_was_set_back() {
        let quiet = StreamConfig { cycle: None, ..config() };
        let mut stats = StreamStats::new(quiet, Instant::from_ns(5));
        let none = stats.snapshot(Instant::from_ns(5));
        assert_eq!((none.interval_rate, none.total_rate, none.first_ns), (None, None, None));
        assert_eq!((none.from_point.as_str(), none.to_point.as_str()), ("Send", "Receive"));
        stats.arrived(Arrival { between: None, ..arrival(100, 0) });
        stats.arrived(arrival(40, 1));
        let back = stats.snapshot(Instant::from_ns(1));
        assert_eq!((back.interval_ns, back.interval_rate, back.total_rate), (-4, None, None));
        assert_eq!((back.inter_arrival.min_ns, back.between.unwrap().count), (-60, 1));
    }

    /// Counts one arrival after the other.
    struct Each {
        sequence: SequenceWatch,
        between: LogHistogram,
        gaps: LogHistogram,
        phase: PhaseHistogram,
        total: Amount,
        interval_frames: u64,
        ends: Option<(i64, i64)>,
        last_new: Option<i64>,
    }

    impl Each {
        fn new(config: StreamConfig) -> Each {
            Each {
                sequence: SequenceWatch::new(config.sequence),
                between: LogHistogram::up_to(config.longest),
                gaps: LogHistogram::up_to(config.longest),
                phase: PhaseHistogram::new(config.cycle.unwrap()),
                total: Amount::default(),
                interval_frames: 0,
                ends: None,
                last_new: None,
            }
        }

        fn arrived(&mut self, arrival: &Arrival) {
            let at = arrival.at.as_ns();
            self.total.frames += 1;
            self.total.bytes += u64::from(arrival.length.get());
            self.interval_frames += 1;
            self.ends = Some((self.ends.map_or(at, |ends| ends.0), at));
            if self.sequence.arrived(arrival.number) == Arrived::Duplicate {
                return;
            }
            arrival.between.into_iter().for_each(|between| self.between.record(between));
            if let Some(last) = self.last_new.replace(at) {
                self.gaps.record(Span::from_ns(at.saturating_sub(last)));
            }
            self.phase.record(arrival.at);
        }

        fn agrees(&mut self, seen: &StreamSnapshot) {
            assert_eq!((seen.frames, seen.frame_bytes), (self.total.frames, self.total.bytes));
            assert_eq!(seen.interval_frames, std::mem::take(&mut self.interval_frames));
            assert_eq!(seen.first_ns.zip(seen.last_ns), self.ends);
            assert_eq!(seen.sequence, self.sequence.counts());
            assert_eq!(seen.between, Some(self.between.summary()));
            assert_eq!(seen.inter_arrival, self.gaps.summary());
            assert_eq!(seen.phase, Some(self.phase.summary()));
        }
    }

    /// A message's number relative to that of the one before.
    fn step() -> impl Strategy<Value = u32> {
        prop_oneof![
            300 => Just(1_u32),
            // Gaps, swapped and late ones, twice, begun anew.
            10 => 2_u32..80,
            10 => (0_u32..80).prop_map(u32::wrapping_neg),
            1 => any::<u32>(),
        ]
    }

    proptest! {
        #[test]
        fn t0_counting_many_at_once_is_counting_each(
            steps in proptest::collection::vec(
                (step(), 0_i64..3_000_000, 60_u32..1_500, 0_u8..100),
                1..1_000,
            ),
            start in prop_oneof![any::<u32>(), u32::MAX - 500..=u32::MAX],
            few in any::<bool>(),
        ) {
            let sequence = SequenceLimits { window: 64, leap: 1_000 };
            let config = StreamConfig { sequence, ..config() };
            let mut each = Each::new(config);
            let mut stats = StreamStats::new(config, Instant::from_ns(0));
            let (mut number, mut at) = (start, 0_i64);
            for (step, later, length, chance) in steps {
                number = number.wrapping_add(step);
                // Now and then the clock is set back, or has no bounds.
                at = match chance {
                    0 => at.saturating_sub(10 * later),
                    1 => i64::MIN + later,
                    2 => i64::MAX - later,
                    _ => at.saturating_add(later),
                };
                let between = Some(Span::from_ns(later * 40)).filter(|_| chance > 20 || few);
                let length = FrameLen::new(length).unwrap();
                let arrival = Arrival { at: Instant::from_ns(at), number, length, between };
                each.arrived(&arrival);
                stats.arrived(arrival);
                if chance == 99 {
                    each.agrees(&stats.snapshot(Instant::from_ns(MS)));
                }
                if chance == 98 && few {
                    each.sequence.finish();
                    stats.finish();
                }
            }
            each.agrees(&stats.snapshot(Instant::from_ns(MS)));
        }
    }

    /// What a network does to a message: it comes, is lost, comes twice, or so many later.
    #[derive(Clone, Copy, Debug)]
    enum Fate {
        Comes,
        Lost,
        Twice,
        Later(usize),
    }

    proptest! {
        /// What a talker leaves out and what the network loses are two counts, whatever is lost,
        /// doubled and overtaken beside.
        #[test]
        fn t0_what_was_skipped_is_not_lost(
            events in proptest::collection::vec(
                (
                    prop_oneof![6 => Just(0_u32), 2 => 1_u32..9, 1 => 9_u32..900],
                    prop_oneof![
                        12 => Just(Fate::Comes), 3 => Just(Fate::Lost), 1 => Just(Fate::Twice),
                        2 => (1_usize..6).prop_map(Fate::Later),
                    ],
                ),
                2..300,
            ),
            start in prop_oneof![any::<u32>(), u32::MAX - 300..=u32::MAX],
        ) {
            let (mut number, mut total) = (start, 7_u32);
            let mut arrivals = Vec::new();
            let (mut lost, mut skipped) = (0_u64, 0_u64);
            let last = events.len() - 1;
            for (nth, &(left_out, fate)) in events.iter().enumerate() {
                if nth > 0 {
                    number = number.wrapping_add(left_out);
                    total = total.wrapping_add(left_out);
                    skipped += u64::from(left_out);
                }
                // The first and the last come in their turn, so that all others lie between.
                let fate = if nth == 0 || nth == last { Fate::Comes } else { fate };
                let place = |later: usize| (nth + later).min(last - 1) * 2 + 1;
                match fate {
                    Fate::Comes => arrivals.push((nth * 2, number, total)),
                    Fate::Lost => lost += 1,
                    Fate::Twice => {
                        arrivals.push((nth * 2, number, total));
                        arrivals.push((place(0), number, total));
                    }
                    Fate::Later(by) => arrivals.push((place(by), number, total)),
                }
                number = number.wrapping_add(1);
            }
            arrivals.sort_by_key(|it| it.0);
            // No restart is to be seen in many skipped ones, and all that is late is in the window.
            let sequence = SequenceLimits { window: 16_384, leap: 1 << 20 };
            let config = StreamConfig { sequence, cycle: None, ..config() };
            let mut stats = StreamStats::new(config, Instant::from_ns(0));
            for (at, (_, number, total)) in (1_i64..).zip(&arrivals) {
                stats.said_not_sent(*total);
                stats.arrived(Arrival {
                    at: Instant::from_ns(at),
                    number: *number,
                    length: FrameLen::new(100).unwrap(),
                    between: None,
                });
            }
            stats.finish();
            let seen = stats.snapshot(Instant::from_ns(MS));
            prop_assert_eq!(seen.skipped, Some(skipped));
            prop_assert_eq!((seen.sequence.lost, seen.sequence.open), (lost, 0));
        }
    }
}
