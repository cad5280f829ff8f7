// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages made up: of which stream they are, what is usual, how long they took.

use proptest::prelude::*;

use super::*;
use crate::ptp_frame;

fn options() -> ListenerOptions {
    ListenerOptions {
        sequence: SequenceLimits { window: 64, leap: 1_000 },
        longest: Span::from_ms(100),
        cycle: Some(PhaseCycle {
            base_time: Instant::from_ns(0),
            cycle_time: Span::from_us(100),
            bins: 10,
        }),
        hardware_ahead: Some(Span::from_us(5)),
        streams: 2,
    }
}

fn message(stream: u16, seq: u32, is_launch: bool) -> [u8; 30] {
    let mut bytes = [0; 30];
    let time = Instant::from_ns(1_000_000);
    Probe { stream, seq, time, is_launch, skipped: None }.write(&mut bytes);
    bytes
}

fn arrival(bytes: &[u8]) -> Arrival<'_> {
    Arrival {
        bytes,
        length: u32::try_from(bytes.len()).unwrap(),
        from: Some("10.0.0.1:9".parse().unwrap()),
        tag: None,
        hardware_ns: Some(1_015_000),
        driver: None,
        kernel: Some(Instant::from_ns(1_012_000)),
        user: Instant::from_ns(1_040_000),
    }
}

#[test]
fn t0_each_stream_has_its_own_order_latency_and_phase() {
    let mut listener = Listener::new(false, options());
    for seq in [0, 1, 1, 3] {
        let bytes = message(7, seq, false);
        let known = listener.arrived(&arrival(&bytes)).unwrap();
        let hardware = Instant::from_ns(1_010_000);
        assert_eq!((known.at, known.latency), (hardware, Span::from_us(40)));
    }
    let bytes = message(3, 9, true);
    listener.arrived(&arrival(&bytes)).unwrap();
    // One that says the other time has no latency of the same kind.
    let bytes = message(3, 10, false);
    listener.arrived(&arrival(&bytes)).unwrap();
    assert_eq!(listener.arrived(&arrival(&message(1, 0, false))), None);
    assert_eq!(listener.arrived(&arrival(b"something else")), None);
    let expected = ListenerCounters { known: 6, unknown: 1, no_room: 1, not_timestamped: 0 };
    assert_eq!(listener.counters(), expected);
    listener.finish();
    let snapshots = listener.snapshot(Instant::from_ns(2_000_000));
    let [(three, launched), (seven, sent)] = &snapshots[..] else { panic!("{snapshots:?}") };
    assert_eq!((three.number, seven.number), (3, 7));
    let (sequence, between) = (&sent.sequence, sent.between.as_ref().unwrap());
    assert_eq!((sequence.received, sequence.duplicate, sequence.lost), (3, 1, 1));
    assert_eq!((between.count, between.min_ns, between.max_ns), (3, 40_000, 40_000));
    let phase = sent.phase.as_ref().unwrap();
    assert_eq!((phase.min_ns, phase.max_ns), (Some(10_000), Some(10_000)));
    assert_eq!((sent.frames, sent.frame_bytes), (4, 4 * 72));
    assert_eq!((launched.frames, launched.between.as_ref().unwrap().count), (2, 1));
    assert_ne!(launched.from_point, sent.from_point);
}

/// Two talkers with one number, over UDP, over UDP in whole frames, and in frames.
#[test]
fn t0_a_stream_is_its_source_and_its_number() {
    let of = |last: u8, kind, seq| {
        let time = Instant::from_ns(1_000_000);
        let mut bytes =
            frame(kind, &Probe { stream: 7, seq, time, is_launch: false, skipped: None });
        bytes[11] = last;
        if matches!(kind, Kind::Udp) {
            bytes[29] = last;
        }
        bytes
    };
    for kind in [None, Some(Kind::Udp), Some(Kind::Plain { ethertype: 0x88b5 })] {
        let mut listener =
            Listener::new(kind.is_some(), ListenerOptions { hardware_ahead: None, ..options() });
        for seq in 0..200 {
            for last in [1, 2] {
                let bytes = match kind {
                    None => message(7, seq, false).to_vec(),
                    Some(kind) => of(last, kind, seq),
                };
                let from = Some(SocketAddr::from(([10, 0, 0, last], 9)));
                let arrival = Arrival { from, hardware_ns: None, ..arrival(&bytes) };
                let known = listener.arrived(&arrival).unwrap();
                assert_eq!(known.flow, if last == 1 { 7 } else { Probe::MAX_STREAM + 1 });
            }
        }
        listener.finish();
        let snapshots = listener.snapshot(Instant::from_ns(2_000_000));
        assert_eq!(snapshots.len(), 2);
        for ((key, seen), last) in snapshots.iter().zip([1, 2]) {
            let sequence = &seen.sequence;
            assert_eq!((sequence.received, sequence.duplicate, sequence.lost), (200, 0, 0));
            let expected = match kind {
                Some(Kind::Plain { .. }) => format!("02:02:02:02:02:0{last}"),
                Some(_) => format!("10.0.0.{}:9", if last == 1 { 1 } else { 2 }),
                None => format!("10.0.0.{last}:9"),
            };
            assert_eq!((key.number, key.source.to_string()), (7, expected));
        }
    }
}

#[test]
fn t0_the_time_that_messages_take_ends_where_one_wants() {
    let bytes = message(7, 0, false);
    for (point, took) in [
        (TimestampPoint::Receive, Some(40)),
        (TimestampPoint::RxSw, Some(12)),
        (TimestampPoint::RxHw, Some(10)),
        (TimestampPoint::RxXdp, None),
    ] {
        let mut listener = Listener::new(false, options()).ending_at(point);
        assert_eq!(listener.arrived(&arrival(&bytes)).unwrap().latency, Span::from_us(40));
        assert_eq!((listener.len(), listener.is_empty()), (1, false));
        let (number, seen) = listener.snapshot_of(0, Instant::from_ns(0)).unwrap();
        assert_eq!((number.number, seen.to_point.as_str()), (7, point.name()));
        let between = seen.between.as_ref().unwrap();
        assert_eq!(between.count, u64::from(took.is_some()));
        assert_eq!(between.max_ns, took.map_or(Span::ZERO, Span::from_us).as_ns());
        assert!(listener.snapshot_of(1, Instant::from_ns(0)).is_none());
    }
}

#[test]
fn t0_ways_have_the_messages_that_have_both_timestamps() {
    let mut listener = Listener::new(false, options());
    let bytes = message(7, 0, false);
    listener.arrived(&arrival(&bytes));
    let driver = Some(Instant::from_ns(1_030_000));
    listener.arrived(&Arrival { driver, hardware_ns: None, kernel: None, ..arrival(&bytes) });
    let bare = Arrival { hardware_ns: None, kernel: None, ..arrival(&bytes) };
    let known = listener.arrived(&bare).unwrap();
    assert_eq!((known.at, listener.counters().not_timestamped), (bare.user, 1));
    let ways = listener.ways();
    let only = |it: Option<HistogramSummary>| it.map(|it| (it.count, it.min_ns));
    assert_eq!(only(ways.hardware_to_kernel), Some((1, 2_000)));
    assert_eq!(only(ways.kernel_to_user), Some((1, 28_000)));
    assert_eq!(only(ways.driver_to_user), Some((1, 10_000)));
    // Without knowing the NIC's clock its timestamp says nothing of the others.
    let unknown = ListenerOptions { hardware_ahead: None, ..options() };
    let mut listener = Listener::new(false, unknown);
    let known = listener.arrived(&arrival(&bytes)).unwrap();
    assert_eq!(Some(known.at), arrival(&bytes).kernel);
    assert_eq!(listener.ways().hardware_to_kernel, None);
}

#[test]
fn t0_a_message_may_say_any_time() {
    for (said, took) in [(i64::MIN, i64::MAX), (i64::MAX, 1_040_000 - i64::MAX)] {
        let mut listener = Listener::new(false, options());
        let mut bytes = [0; 30];
        let time = Instant::from_ns(said);
        Probe { stream: 7, seq: 0, time, is_launch: false, skipped: None }.write(&mut bytes);
        let known = listener.arrived(&arrival(&bytes)).unwrap();
        assert_eq!(known.latency, Span::from_ns(took));
        assert_eq!(
            listener.snapshot(Instant::from_ns(1))[0].1.between.as_ref().unwrap().max_ns,
            took
        );
    }
}

#[test]
fn t0_whole_frames_are_known_by_what_they_carry() {
    let mut listener = Listener::new(true, options());
    let mut frame = [ptp_frame::DESTINATION, [2, 0, 0, 0, 0, 1]].concat();
    frame.extend(ptp_frame::ETHERTYPE.to_be_bytes());
    frame.resize(14 + ptp_frame::CONTENT, 0);
    let probe =
        Probe { stream: 5, seq: 1, time: Instant::from_ns(0), is_launch: false, skipped: None };
    let ours = ptp_frame::PtpProbe { domain: 200, probe };
    ours.write([2, 0, 0, 0, 0, 1], &mut frame[14..]);
    let known = listener.arrived(&Arrival { from: None, ..arrival(&frame) }).unwrap();
    assert_eq!(known.probe, probe);
    let snapshots = listener.snapshot(Instant::from_ns(1));
    assert_eq!((snapshots[0].0.number, snapshots[0].1.frame_bytes), (5, 86));
}

/// A frame with our header behind one EtherType, or as it may be otherwise.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain { ethertype: u16 },
    Tagged,
    Udp,
    Ptp,
}

fn frame(kind: Kind, probe: &Probe) -> Vec<u8> {
    let mut frame = vec![2; 12];
    match kind {
        Kind::Plain { ethertype } => frame.extend(ethertype.to_be_bytes()),
        Kind::Tagged => frame.extend([0x81, 0, 0x60, 5, 0x88, 0xb5]),
        Kind::Udp => {
            frame.extend([8, 0, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 40, 0, 0]);
        }
        Kind::Ptp => {
            let mut content = [0; ptp_frame::CONTENT];
            let ours = ptp_frame::PtpProbe { domain: 200, probe: *probe };
            ours.write([2, 0, 0, 0, 0, 1], &mut content);
            frame.extend(ptp_frame::ETHERTYPE.to_be_bytes());
            frame.extend(content);
            return frame;
        }
    }
    let start = frame.len();
    frame.resize(start + 32, 0);
    probe.write(&mut frame[start..]);
    frame
}

#[test]
fn t0_the_third_message_of_a_stream_is_usual_and_what_differs_is_not() {
    let unknown = ListenerOptions { hardware_ahead: None, ..options() };
    let mut listener = Listener::new(true, unknown);
    let plain = Kind::Plain { ethertype: 0x88b5 };
    let of = |kind, stream, seq, is_launch| {
        let time = Instant::from_ns(1_000_000);
        frame(kind, &Probe { stream, seq, time, is_launch, skipped: None })
    };
    fn bare(bytes: &[u8]) -> Arrival<'_> {
        Arrival { hardware_ns: None, from: None, ..arrival(bytes) }
    }
    for seq in 0..2 {
        let bytes = of(plain, 1, seq, false);
        assert_eq!(listener.arrived_as_usual(&bare(&bytes)), None);
        listener.arrived(&bare(&bytes)).unwrap();
    }
    let bytes = of(plain, 1, 2, false);
    let unusual = [
        of(plain, 2, 2, false),
        of(plain, 1, 2, true),
        of(Kind::Plain { ethertype: 0x88b6 }, 1, 2, false),
        of(Kind::Tagged, 1, 2, false),
        of(Kind::Ptp, 1, 2, false),
        bytes[..35].to_vec(),
    ];
    for other in &unusual {
        assert_eq!(listener.arrived_as_usual(&bare(other)), None);
    }
    for other in [arrival(&bytes), Arrival { kernel: None, ..bare(&bytes) }] {
        assert_eq!(listener.arrived_as_usual(&other), None);
    }
    let known = listener.arrived_as_usual(&bare(&bytes)).unwrap();
    assert_eq!((known.probe.stream, known.probe.seq), (1, 2));
    assert_eq!((known.at, known.latency), (arrival(&bytes).kernel.unwrap(), Span::from_us(40)));
    // Where the time ends elsewhere, no message is usual.
    let mut listener = listener.ending_at(TimestampPoint::RxSw);
    for _ in 0..3 {
        assert_eq!(listener.arrived_as_usual(&bare(&bytes)), None);
        listener.arrived(&bare(&bytes)).unwrap();
    }
    assert_eq!(listener.counters().known, 6);
}

/// A message: its frame, and how it came.
fn any_arrival() -> impl Strategy<Value = (Vec<u8>, Arrival<'static>)> {
    let kind = prop_oneof![
        20 => Just(Kind::Plain { ethertype: 0x88b5 }),
        1 => any::<u16>().prop_map(|ethertype| Kind::Plain { ethertype }),
        1 => Just(Kind::Plain { ethertype: 0x0800 }),
        1 => Just(Kind::Tagged),
        1 => Just(Kind::Udp),
        1 => Just(Kind::Ptp),
    ];
    let stream = prop_oneof![20 => Just(1_u16), 3 => 0_u16..4];
    let seq = prop_oneof![9 => 0_u32..100, 1 => any::<u32>()];
    let time = prop_oneof![9 => 0_i64..2_000_000, 1 => any::<i64>()];
    let skipped = prop_oneof![1 => Just(None), 9 => Just(Some(3)), 1 => (0_u32..9).prop_map(Some)];
    let header = (kind, stream, seq, time, (prop::bool::weighted(0.1), skipped));
    let change = prop_oneof![
        20 => Just((None::<(usize, u8)>, usize::MAX)),
        1 => (0_usize..80).prop_map(|cut| (None, cut)),
        2 => (0_usize..80, any::<u8>()).prop_map(|change| (Some(change), usize::MAX)),
    ];
    let rare = |ns| prop_oneof![9 => Just(None), 1 => Just(Some(ns))];
    let timestamps = (rare(1_015_000_i64), rare(1_030_000), prop::bool::weighted(0.95));
    let taken = (0_i64..1_000_000, prop_oneof![9 => Just(0), 1 => any::<u32>()]);
    (header, change, timestamps, taken).prop_map(|(header, (change, cut), timestamps, taken)| {
        let (kind, stream, seq, time, (is_launch, skipped)) = header;
        let time = Instant::from_ns(time);
        let skipped = skipped.filter(|_| !matches!(kind, Kind::Ptp));
        let mut bytes = frame(kind, &Probe { stream, seq, time, is_launch, skipped });
        if let Some((at, value)) = change {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut);
        let (hardware_ns, driver, is_timestamped) = timestamps;
        let length = u32::try_from(bytes.len()).unwrap().max(taken.1);
        let arrival = Arrival {
            bytes: &[],
            length,
            hardware_ns,
            driver: driver.map(Instant::from_ns),
            kernel: is_timestamped.then(|| Instant::from_ns(1_012_000)),
            user: Instant::from_ns(1_040_000 + taken.0),
            ..self::arrival(&[])
        };
        (bytes, arrival)
    })
}

proptest! {
    #[test]
    fn t0_a_usual_message_is_taken_as_any(
        arrivals in proptest::collection::vec(any_arrival(), 1..300),
        is_frames in prop::bool::weighted(0.9),
        ahead in prop_oneof![Just(None), Just(Some(Span::from_us(5)))],
        ends in prop_oneof![
            5 => Just(TimestampPoint::Receive), 1 => Just(TimestampPoint::RxSw),
            1 => Just(TimestampPoint::RxXdp),
            1 => Just(TimestampPoint::RxHw),
        ],
    ) {
        let options = ListenerOptions { hardware_ahead: ahead, ..options() };
        let listener = || Listener::new(is_frames, options).ending_at(ends);
        let (mut one, mut other) = (listener(), listener());
        for (bytes, arrival) in &arrivals {
            let arrival = Arrival { bytes, ..*arrival };
            prop_assert_eq!(one.arrived(&arrival), other.arrived_in_any_way(&arrival));
            prop_assert_eq!(one.counters(), other.counters());
        }
        prop_assert_eq!(one.ways(), other.ways());
        for _ in 0..2 {
            let now = Instant::from_ns(5_000_000);
            let [mut seen, mut expected] = [one.snapshot(now), other.snapshot(now)];
            for (_, seen) in seen.iter_mut().chain(&mut expected) {
                // The first interval begins when the stream was known.
                (seen.interval_ns, seen.interval_rate) = (0, None);
            }
            prop_assert_eq!(seen, expected);
            one.finish();
            other.finish();
        }
    }
}
