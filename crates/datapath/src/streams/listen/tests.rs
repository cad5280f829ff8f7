// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a listener has heard, made up for tests, and how it is passed on.

use super::*;
use timewire_base::FrameLen;
use timewire_capture::stream::{self, StreamConfig, StreamStats};

#[test]
fn t0_sums_that_nobody_takes_do_not_pile_up() {
    let (words, said) = sync_channel(MAX_WORDS);
    let wake = Wake::new().unwrap();
    let teller = Teller { words, wake: &wake };
    let sum = |messages| Word::Heard(Box::new(ListenSnapshot { messages, ..heard() }));
    for messages in 0..50 {
        teller.say(sum(messages));
    }
    let taken = || said.try_iter().filter(|word| matches!(word, Word::Heard(_))).count();
    assert_eq!(taken(), MAX_WORDS);
    teller.say(sum(50));
    assert_eq!(taken(), 1, "as soon as somebody takes them, they go on");
}

/// Two streams: number 1 with 100 messages of which one is lost, number 7 with five.
pub(in super::super) fn heard() -> ListenSnapshot {
    let stream = |number: u16, numbers: &[u32]| {
        let cycle =
            PhaseCycle { base_time: Instant::from_ns(0), cycle_time: Span::from_ms(1), bins: 64 };
        let config = StreamConfig {
            points: (TimestampPoint::Send, TimestampPoint::Receive),
            sequence: SequenceLimits::default(),
            longest: Span::from_secs(10),
            cycle: Some(cycle),
        };
        let mut stats = StreamStats::new(config, Instant::from_ns(0));
        for &seq in numbers {
            // From 10 us in steps of 0.2 us.
            let took = Span::from_ns(10_000 + i64::from(seq) * 200);
            let at = Instant::from_ns(i64::from(seq) * 1_000_000 + 250_000) + took;
            let length = FrameLen::new(106).unwrap();
            let between = Some(took);
            stats.arrived(stream::Arrival { at, number: seq, length, between });
        }
        stats.finish();
        let seen = stats.snapshot(Instant::from_ns(101_000_000));
        let source = format!("10.0.0.{number}:15000");
        let clock = ClockBound::one();
        HeardStream { stream: number, source, clash: false, flow: number, clock, seen }
    };
    let first: Vec<u32> = (0..=100).filter(|seq| *seq != 50).collect();
    ListenSnapshot {
        schema: LISTEN_SCHEMA.to_owned(),
        source: "UDP on 10.0.0.2:15001".to_owned(),
        mode: "UDP socket".to_owned(),
        elapsed_ns: 101_000_000,
        messages: 105,
        others: 3,
        not_understood: Vec::new(),
        no_room: 0,
        dropped: 0,
        other_queues: None,
        not_timestamped: 0,
        answers: None,
        capture: None,
        streams: vec![stream(1, &first), stream(7, &[0, 1, 2, 3, 4])],
        ways: Vec::new(),
        inconclusive: Vec::new(),
    }
}
