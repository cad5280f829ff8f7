// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The matcher against one that remembers everything in a map and computes with plain numbers.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const CAPACITY: u64 = 6;
const MAX_AGE: i64 = 50;
const STEP: i64 = 5;

#[derive(Clone, Copy, Debug)]
enum Op {
    Sent {
        wait: i64,
    },
    Refused {
        counted: bool,
    },
    TakeBack,
    /// Messages back from the next (negative: ahead), delay, and which of two values it tells.
    Timestamp {
        point: usize,
        back: i64,
        delay: i64,
    },
    Expire {
        wait: i64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..30_i64).prop_map(|wait| Op::Sent { wait }),
        1 => any::<bool>().prop_map(|counted| Op::Refused { counted }),
        1 => Just(Op::TakeBack),
        9 => (0..4_usize, -2..10_i64, -10..70_i64)
            .prop_map(|(point, back, delay)| Op::Timestamp { point, back, delay }),
        2 => (0..60_i64).prop_map(|wait| Op::Expire { wait }),
    ]
}

#[derive(Debug, Default)]
struct Message {
    sent: Option<i64>,
    refused: bool,
    closed: bool,
    got: HashMap<usize, (i64, bool)>,
}

#[derive(Debug, Default)]
struct Naive {
    messages: HashMap<u64, Message>,
    next: u64,
    /// What the counters are to show, by timestamp point.
    counts: [PointCounts; 4],
    closed: Vec<(u64, End, Vec<usize>)>,
}

/// All but the acknowledgement are awaited.
const AWAITED: [usize; 3] = [0, 1, 2];

impl Naive {
    fn add(&mut self, sent: Option<i64>) {
        let open = self.messages.values().filter(|message| !message.closed).count();
        if u64::try_from(open).unwrap() == CAPACITY {
            self.close(self.next - CAPACITY, End::Overrun);
        }
        if let Some(old) = self.next.checked_sub(CAPACITY) {
            self.messages.remove(&old);
        }
        let message = Message { sent, refused: sent.is_none(), ..Message::default() };
        self.messages.insert(self.next, message);
        self.next += 1;
    }

    fn close(&mut self, seq: u64, end: End) {
        let message = self.messages.get_mut(&seq).unwrap();
        message.closed = true;
        let absent = |point: &usize| !message.got.contains_key(point);
        let missing: Vec<usize> =
            AWAITED.into_iter().filter(|point| !message.refused && absent(point)).collect();
        let end = match (message.refused, missing.is_empty()) {
            (true, _) => End::Refused,
            (false, true) => End::Complete,
            _ => end,
        };
        missing.iter().for_each(|&point| self.counts[point].missing += 1);
        self.closed.push((seq, end, missing));
    }

    fn expire(&mut self, now: Option<i64>) {
        let mut open: Vec<u64> = self.messages.keys().copied().collect();
        open.sort_unstable();
        for seq in open {
            let message = &self.messages[&seq];
            if message.closed {
                continue;
            }
            let full =
                message.refused || AWAITED.iter().all(|point| message.got.contains_key(point));
            let over = match (now, message.sent) {
                (Some(now), Some(sent)) => now - sent > MAX_AGE,
                _ => true,
            };
            if !full && !over {
                break;
            }
            self.close(seq, End::GivenUp);
        }
    }

    fn timestamp(&mut self, point: usize, seq: i64, value: i64) {
        let counts = &mut self.counts[point];
        let message = u64::try_from(seq).ok().and_then(|seq| self.messages.get_mut(&seq));
        let Some(message) = message.filter(|_| AWAITED.contains(&point)) else {
            counts.unknown += 1;
            return;
        };
        if let Some(&(first, _)) = message.got.get(&point) {
            counts.duplicate += 1;
            counts.differing += u64::from(first != value);
            return;
        }
        if message.closed {
            counts.late += 1;
            return;
        }
        let delay = message.sent.map(|sent| value - sent);
        let outside = delay.is_some_and(|delay| !(-STEP..=MAX_AGE + STEP).contains(&delay));
        let crossed = message.got.iter().any(|(&other, &(at, believed))| {
            let by = if other < point { at - value } else { value - at };
            believed && by > STEP
        });
        let believed = !outside && !crossed;
        message.got.insert(point, (value, believed));
        if believed { counts.matched += 1 } else { counts.suspect += 1 }
    }
}

fn closed_of(closed: Closed<Mono>) -> (u64, End, Vec<usize>) {
    (closed.seq, closed.end, closed.missing.iter().map(TransmitPoint::index).collect())
}

proptest! {
    #[test]
    fn t0_agrees_with_a_matcher_that_forgets_only_what_it_must(
        ops in proptest::collection::vec(op(), 0..200),
        first in prop_oneof![Just(0_u64), (1_u64 << 32) - 20..1 << 32],
    ) {
        let limits =
            MatchLimits { timeout: Span::from_ns(MAX_AGE), step: Span::from_ns(STEP) };
        let points = PointSet::of(&TransmitPoint::ALL[..3]);
        let capacity = usize::try_from(CAPACITY).unwrap();
        let mut matcher = TimestampMatcher::<Mono>::starting_at(first, capacity, points, limits);
        let mut naive = Naive { next: first, ..Naive::default() };
        let mut closed = Vec::new();
        let mut now = 0;
        for op in ops {
            match op {
                Op::Sent { wait } => {
                    now += wait;
                    naive.add(Some(now));
                    let over = matcher.sent(matcher.next_id(), at(now)).unwrap();
                    closed.extend(over.map(closed_of));
                }
                Op::Refused { counted: true } => {
                    naive.add(None);
                    let over = matcher.failed(matcher.next_id(), Counting::Counted).unwrap();
                    closed.extend(over.map(closed_of));
                }
                Op::Refused { counted: false } => {
                    matcher.failed(matcher.next_id(), Counting::NotCounted).unwrap();
                }
                Op::TakeBack => {
                    let newest = naive.next.checked_sub(1);
                    let message = newest.and_then(|seq| naive.messages.get(&seq));
                    let fits = message.is_some_and(|it| !it.closed && it.got.is_empty());
                    let id = matcher.next_id().wrapping_sub(1);
                    prop_assert_eq!(matcher.failed(id, Counting::NotCounted).is_ok(), fits);
                    if fits {
                        naive.next -= 1;
                        naive.messages.remove(&naive.next);
                    }
                }
                Op::Timestamp { point, back, delay } => {
                    let seq = i64::try_from(naive.next).unwrap() - back;
                    let known = u64::try_from(seq).ok().and_then(|seq| naive.messages.get(&seq));
                    let value = known.and_then(|message| message.sent).unwrap_or(now) + delay;
                    naive.timestamp(point, seq, value);
                    let id = id_of(u64::try_from(seq.rem_euclid(1 << 32)).unwrap());
                    matcher.timestamped(TransmitPoint::ALL[point], id, mono(value));
                }
                Op::Expire { wait } => {
                    now += wait;
                    naive.expire(Some(now));
                    closed.extend(matcher.expire(at(now)).map(closed_of));
                }
            }
            for point in TransmitPoint::ALL {
                let counts = PointCounts { awaited: 0, ..matcher.counts(point) };
                prop_assert_eq!(counts, naive.counts[point.index()], "{:?} {:?}", op, point);
            }
        }
        naive.expire(None);
        closed.extend(matcher.finish().map(closed_of));
        prop_assert_eq!(closed, naive.closed);
        for point in TransmitPoint::ALL {
            let c = matcher.counts(point);
            prop_assert_eq!(c.awaited, c.matched + c.suspect + c.missing);
        }
    }
}
