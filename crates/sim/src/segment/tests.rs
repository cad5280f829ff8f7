// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames on a hub and through a switch.

use proptest::prelude::*;

use super::*;

const A: PortIndex = PortIndex(0);
const B: PortIndex = PortIndex(1);
const C: PortIndex = PortIndex(2);

fn config(kind: SegmentKind) -> SegmentConfig {
    SegmentConfig {
        kind,
        rate: BitsPerSecond::new(100_000_000).unwrap(),
        delay: Span::from_ns(500),
        loss: Loss::default(),
        seed: 1,
    }
}

/// From the station of a port to that of another, or to all.
fn frame(from: PortIndex, to: Option<PortIndex>, bytes: usize) -> Vec<u8> {
    let address = |port: PortIndex| [2, 0, 0, 0, 0, u8::try_from(port.0).unwrap()];
    let mut frame = to.map_or([0xff; 6], address).to_vec();
    frame.extend(address(from));
    frame.resize(bytes.max(14), 0x55);
    frame
}

fn send(
    segment: &mut Segment,
    at_ns: u64,
    from: PortIndex,
    to: Option<PortIndex>,
    bytes: usize,
) -> Actions {
    let event = Event::Send { port: from, tag: at_ns, frame: frame(from, to, bytes) };
    segment.on(SimTime::from_ns(at_ns), event)
}

/// Everything that is still to happen, each with its time.
fn rest(segment: &mut Segment) -> Vec<(SimTime, Actions)> {
    let mut all = Vec::new();
    while let Some(at) = segment.next() {
        all.push((at, segment.on(at, Event::Due)));
    }
    all
}

fn deliveries(all: &[(SimTime, Actions)]) -> Vec<(u64, PortIndex, u64)> {
    all.iter()
        .flat_map(|(at, actions)| {
            actions.deliveries.iter().map(|d| (at.as_ps() / 1_000, d.port, d.number))
        })
        .collect()
}

#[test]
fn t0_a_frame_arrives_after_its_bits_and_the_delay() {
    let mut segment = Segment::new(config(SegmentKind::Hub), 3);
    let event = Event::Send { port: A, tag: 9, frame: frame(A, Some(B), 1_514) };
    let actions = segment.on(SimTime::from_ns(1_000), event);
    let passage = &actions.passages[0];
    assert_eq!((passage.start, passage.found_busy_with), (SimTime::from_ns(1_000), None));
    // 8 + 1514 + 4 bytes, 80 ns each.
    assert_eq!(passage.end, SimTime::from_ns(1_000 + 1_526 * 80));
    let all = rest(&mut segment);
    assert_eq!(all[0].1.sent, [(A, 9)]);
    assert_eq!(all[0].0, passage.end);
    // A hub tells everyone but the sender.
    let at = 1_000 + 1_526 * 80 + 500;
    assert_eq!(deliveries(&all), [(at, B, 1), (at, C, 1)]);
}

#[test]
fn t0_on_a_hub_the_second_waits_and_it_is_told() {
    let mut segment = Segment::new(config(SegmentKind::Hub), 3);
    send(&mut segment, 0, A, None, 60);
    let event = Event::Send { port: B, tag: 0, frame: frame(B, None, 20) };
    let early = segment.on(SimTime::from_ns(100), event);
    assert_eq!(early.passages, []);
    let all = rest(&mut segment);
    let passage = all.iter().find_map(|(_, actions)| actions.passages.first()).unwrap();
    // 84 bytes with preamble and gap.
    assert_eq!(passage.start, SimTime::from_ns(84 * 80));
    assert_eq!((passage.ready, passage.found_busy_with), (SimTime::from_ns(100), Some(A)));
    assert_eq!(passage.frame.len(), 60);
    assert_eq!((segment.counters(A).found_busy, segment.counters(B).found_busy), (0, 1));
    // Exactly at the end of the gap the medium is free.
    send(&mut segment, 2 * 84 * 80, C, None, 60);
    assert_eq!(segment.counters(C).found_busy, 0);
}

#[test]
fn t0_a_switch_learns_and_queues() {
    let mut segment = Segment::new(config(SegmentKind::Switch), 3);
    // Unknown: to both others. The answer: to the asker only.
    send(&mut segment, 0, A, Some(B), 60);
    let link = 72 * 80 + 500;
    assert_eq!(deliveries(&rest(&mut segment)), [(2 * link, B, 1), (2 * link, C, 1)]);
    send(&mut segment, 100_000, B, Some(A), 60);
    assert_eq!(deliveries(&rest(&mut segment)), [(100_000 + 2 * link, A, 2)]);
    // Two to the same port at once: the second waits for the first and its gap.
    send(&mut segment, 200_000, A, Some(B), 60);
    send(&mut segment, 200_000, C, Some(B), 60);
    let all = rest(&mut segment);
    let at = 200_000 + 2 * link;
    assert_eq!(deliveries(&all), [(at, B, 3), (at + 84 * 80, B, 4)]);
    // Full duplex: nobody found another's frame before its own.
    assert_eq!(segment.counters(C).found_busy, 0);
}

#[test]
fn t0_a_full_queue_of_a_switch_drops() {
    let fast = BitsPerSecond::new(1_000_000_000).unwrap();
    let mut segment = Segment::new(SegmentConfig { rate: fast, ..config(SegmentKind::Switch) }, 3);
    send(&mut segment, 0, B, None, 60);
    rest(&mut segment);
    for _ in 0..2_000 {
        send(&mut segment, 1_000_000, A, Some(B), 60);
        send(&mut segment, 1_000_000, C, Some(B), 60);
    }
    let arrived = deliveries(&rest(&mut segment)).len();
    let full = segment.counters(B).queue_full;
    assert!(full > 0);
    assert_eq!(u64::try_from(arrived).unwrap() + full, 4_000);
}

#[test]
fn t0_loss_is_seeded() {
    let lossy = |seed| SegmentConfig {
        loss: Loss::from_ppb(250_000_000).unwrap(),
        seed,
        ..config(SegmentKind::Hub)
    };
    let arrivals = |seed| {
        let mut segment = Segment::new(lossy(seed), 2);
        let sent = |n: u64| send(&mut segment, n * 10_000, A, Some(B), 60).deliveries;
        let mut numbers: Vec<u64> = (0..1_000).flat_map(sent).map(|d| d.number).collect();
        numbers.extend(deliveries(&rest(&mut segment)).iter().map(|(_, _, number)| number));
        let PortCounters { lost, delivered, .. } = segment.counters(B);
        assert_eq!((lost + delivered, delivered), (1_000, u64::try_from(numbers.len()).unwrap()));
        numbers
    };
    assert_eq!(arrivals(3), arrivals(3));
    assert_ne!(arrivals(3), arrivals(4));
    assert!((700..800).contains(&arrivals(3).len()));
    assert!(Loss::from_ppb(1_000_000_001).is_none());
}

proptest! {
    /// On any link frames are apart by at least the gap, in the order of readiness; each arrives
    /// exactly its bits and the delay after its start; nothing is lost without loss.
    #[test]
    fn t0_one_frame_at_a_time_on_every_link(
        is_hub in any::<bool>(),
        frames in proptest::collection::vec(
            (0..50_000_u64, 0..3_usize, 0..3_usize, 20..1_514_usize),
            1..100,
        ),
    ) {
        let kind = if is_hub { SegmentKind::Hub } else { SegmentKind::Switch };
        let mut segment = Segment::new(config(kind), 3);
        let mut frames = frames;
        frames.sort_unstable();
        let mut passages = Vec::new();
        let mut delivered = 0;
        let mut wanted = 0;
        for (at, from, to, bytes) in frames {
            let to = Some(PortIndex(to)).filter(|to| to.0 != from);
            wanted += if is_hub || to.is_none() { 2 } else { 0 };
            let actions = send(&mut segment, at, PortIndex(from), to, bytes);
            passages.extend(actions.passages);
            delivered += actions.deliveries.len();
        }
        for (at, actions) in rest(&mut segment) {
            prop_assert!(actions.passages.iter().all(|p| p.start == at && p.ready <= p.start));
            let arrives = |d: &Delivery| {
                passages.iter().any(|p: &Passage| {
                    p.number == d.number && p.end.plus_ps(500_000) == at
                })
            };
            prop_assert!(actions.deliveries.iter().all(arrives));
            delivered += actions.deliveries.len();
            passages.extend(actions.passages);
        }
        if is_hub {
            prop_assert_eq!(delivered, wanted);
        } else {
            prop_assert!(delivered >= wanted);
        }
        for (i, one) in passages.iter().enumerate() {
            let bits = u64::try_from(one.frame.len() + 12).unwrap() * 80;
            prop_assert_eq!(one.end.ps_since(one.start), bits * 1_000);
            if let Some(next) = passages[i + 1..].iter().find(|p| p.link == one.link) {
                prop_assert!(next.start >= one.end.plus_ps(12 * 80_000));
                prop_assert!(next.ready >= one.ready);
                prop_assert!(next.found_busy_with.is_some() || next.start == next.ready);
            }
        }
    }
}
