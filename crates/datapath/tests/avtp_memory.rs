// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listeners of IEEE 1722 streams need no more memory for more packets, whatever they are; what
//! has no room in a table is counted.

use timewire_avtp::media::h264::StartCodes;
use timewire_avtp::pdu::StreamId;
use timewire_avtp::stream::Late;
use timewire_base::{IfName, Instant, Span};
use timewire_datapath::avtp::can::Gatherer;
use timewire_datapath::avtp::crf::{FollowSpec, Follower};
use timewire_datapath::avtp::{
    Arrived, Clash, Ended, Limits, ListenSpec, Listener, NotUnderstood, Times,
};

use crate::counting::{memory_of, mixed};

/// The stream that is listened to.
const STREAM: u64 = 0x0200_0000_0001_0007;
/// Packets of the shorter run.
const PACKETS: u64 = 3_000;
const NOW: i64 = 1_800_000_000_000_000_000;

/// A packet and who sends it.
type Made = fn(u64) -> (Vec<u8>, [u8; 6]);

const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn byte(n: u64) -> u8 {
    n.to_le_bytes()[0]
}

fn any(n: u64) -> Vec<u8> {
    let words = (0..10).flat_map(|word| mixed(n * 16 + word).to_le_bytes());
    words.take(usize::try_from(mixed(n) % 64).unwrap() + 12).collect()
}

/// A packet with a stream and a timestamp in its header.
fn packet(subtype: u8, stream: u64, number: u64, time: Option<u64>, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![subtype, 0x80 | u8::from(time.is_some()), byte(number), 0];
    packet.extend(stream.to_be_bytes());
    packet.extend(&time.unwrap_or(0).to_be_bytes()[4..]);
    packet.extend(rest);
    packet
}

/// Two channels of 16 bits at 48 kHz, six samples.
fn audio(stream: u64, number: u64, time: Option<u64>) -> Vec<u8> {
    let rest = [&[2, 0x50, 2, 16, 0, 24, 0, 0][..], &[7; 24]].concat();
    packet(2, stream, number, time, &rest)
}

/// H.264: a part of a NAL unit whose end does not come.
fn video(stream: u64, number: u64, time: Option<u64>, end: bool) -> Vec<u8> {
    let rest = [2, 1, 0, 0, 0, 12, if end { 0x10 } else { 0 }, 0, 0, 0, 0, 0, 0x7c, 0x05];
    packet(3, stream, number, time, &[&rest[..], &[9; 6]].concat())
}

/// A clock of 48 kHz, one timestamp.
fn clock(stream: u64, number: u64, kind: u8, time: u64) -> Vec<u8> {
    let mut packet = vec![4, 0x80, byte(number), kind];
    packet.extend(stream.to_be_bytes());
    packet.extend([0, 0, 0xbb, 0x80, 0, 8, 0, 96]);
    packet.extend(time.to_be_bytes());
    packet
}

/// A CAN frame in a packet with a time.
fn control(stream: u64, number: u64, time: u64, kind: u8) -> Vec<u8> {
    let message = [kind << 1, 4, 0, 0, 0, 0, 1, 0x23, 1, 2, 3, 4, 5, 6, 7, 8];
    let rest = [&[0, 0, 0, 0, 0, 16, 0, 0][..], &message].concat();
    packet(5, stream, number, Some(time), &rest)
}

/// Each fills tables with numbers of its own.
const KINDS: [(&str, Made); 17] = [
    ("any bytes", |n| (any(n), ONE)),
    ("any bytes of the stream", |n| {
        let mut packet = any(n);
        packet[1] |= 0x80;
        packet[4..12].copy_from_slice(&STREAM.to_be_bytes());
        (packet, ONE)
    }),
    ("any bytes, any source", |n| (any(n), *mixed(n).to_le_bytes().first_chunk().unwrap())),
    ("any stream of audio", |n| (audio(mixed(n), n, Some(n)), ONE)),
    ("another stream of control", |n| (control(n, n, n, 1), ONE)),
    ("any subtype of any stream", |n| (packet(byte(n), mixed(n), n, None, &[3; 24]), ONE)),
    ("audio of any source", |n| {
        let source = *mixed(n).to_le_bytes().first_chunk().unwrap();
        (audio(STREAM, n, Some(n * 125_000)), source)
    }),
    ("audio, any number, no time", |n| (audio(STREAM, mixed(n), None), ONE)),
    ("audio, any number and time", |n| (audio(STREAM, mixed(n), Some(mixed(n + 1))), ONE)),
    ("audio, always the same", |_| (audio(STREAM, 3, Some(5)), ONE)),
    ("audio far ahead", |n| (audio(STREAM, n, Some(n * 125_000 + 2_000_000_000)), ONE)),
    ("video, any number and time", |n| {
        (video(STREAM, mixed(n), Some(mixed(n + 1)), n % 3 == 0), ONE)
    }),
    ("video without an end", |n| (video(STREAM, n, Some(5), false), ONE)),
    ("clock, any number and time", |n| (clock(STREAM, mixed(n), 1, mixed(n + 1)), ONE)),
    ("any kind of clock", |n| (clock(STREAM, n, byte(mixed(n)), n), ONE)),
    ("control, any number and time", |n| (control(STREAM, mixed(n), mixed(n + 1), 1), ONE)),
    ("any message of control", |n| (control(STREAM, n, n, byte(mixed(n)) >> 1), ONE)),
];

/// What was told in the end: packets of the stream, and those that were not.
struct ListenTotals {
    received: u64,
    others: Option<u64>,
    not_understood: Vec<NotUnderstood>,
    clash: Option<Clash>,
}

fn feed(made: Made, packets: u64, take: &mut dyn FnMut(Arrived<'_>)) {
    for n in 0..packets {
        let (payload, source) = made(n);
        let at = Instant::from_ns(NOW + i64::try_from(n).unwrap() * 125_000);
        take(Arrived { at, source: timewire_base::wire::MacAddress(source), payload: &payload });
    }
}

fn recorded(made: Made, packets: u64, stream: Option<StreamId>) -> ListenTotals {
    let spec = ListenSpec {
        interface: IfName::new("lo").unwrap(),
        stream,
        to: None,
        out: "/dev/null".into(),
        force: true,
        limits: Limits::default(),
        late: Late::Keep,
        start_codes: StartCodes::Shortest,
        max_access_unit: 100_000,
        clock_error: None,
    };
    let mut listener = Listener::new(&spec, 1_500).unwrap();
    feed(made, packets, &mut |arrived| {
        listener.take(arrived).unwrap();
    });
    let heard = listener.finish().unwrap();
    let (not_understood, clash) = (heard.not_understood, heard.clash);
    ListenTotals {
        received: heard.packets.received,
        others: Some(heard.others),
        not_understood,
        clash,
    }
}

fn followed(made: Made, packets: u64, stream: Option<StreamId>) -> ListenTotals {
    let spec = FollowSpec {
        interface: IfName::new("lo").unwrap(),
        stream,
        to: None,
        window: 1_024,
        limits: Limits::default(),
        clock_error: None,
    };
    let mut follower = Follower::new(&spec);
    feed(made, packets, &mut |arrived| {
        follower.take(arrived).unwrap();
    });
    let found = follower.finish(Ended::Asked);
    let (not_understood, clash) = (found.not_understood, found.clash);
    ListenTotals { received: found.packets.received, others: None, not_understood, clash }
}

fn gathered(made: Made, packets: u64, stream: Option<StreamId>) -> ListenTotals {
    let interface = IfName::new("lo").unwrap();
    let stream = stream.unwrap_or(StreamId::from_bits(STREAM));
    let mut gatherer = Gatherer::new(&interface, None, stream);
    feed(made, packets, &mut |arrived| {
        gatherer.take(arrived, &mut |_| Ok(())).unwrap();
    });
    let found = gatherer.finish(Ended::Asked);
    let (not_understood, clash) = (found.not_understood, found.clash);
    ListenTotals { received: found.packets.received, others: None, not_understood, clash }
}

type Listening = fn(Made, u64, Option<StreamId>) -> ListenTotals;

#[test]
fn t0_a_listener_of_streams_needs_no_more_memory_for_more_packets() {
    let listeners: [(&str, Listening); 3] =
        [("avtp listen", recorded), ("crf listen", followed), ("can listen", gathered)];
    let (mut most_received, mut overflowed) = ([0; 3], [false; 3]);
    for (at, (who, listening)) in listeners.into_iter().enumerate() {
        for (what, made) in KINDS {
            for stream in [None, Some(StreamId::from_bits(STREAM))] {
                let (once, _) = memory_of(|| listening(made, PACKETS, stream));
                let (more, told) = memory_of(|| listening(made, 4 * PACKETS, stream));
                // Margins are kept one by one up to a number of their own, and sorted.
                let margins = if told.received > 0 { 4 * PACKETS * 24 } else { 0 };
                let most = once + margins + 16_384;
                assert!(more <= most, "{who}, {what}: {once} bytes, then {more}");
                assert!(told.not_understood.len() <= 65, "{who}, {what}");
                let clash = told.clash.as_ref().map_or(0, |clash| clash.packets);
                assert!(told.clash.is_none_or(|clash| clash.others.len() <= 16), "{who}, {what}");
                let unread: u64 = told.not_understood.iter().map(|it| it.packets).sum();
                if let Some(others) = told.others {
                    let all = told.received + others + unread + clash;
                    assert_eq!(all, 4 * PACKETS, "{who}, {what}: none is forgotten");
                }
                most_received[at] = told.received.max(most_received[at]);
                overflowed[at] |= told.not_understood.iter().any(|it| it.format == "others");
            }
        }
    }
    // The kinds do what they are for.
    assert!(most_received.iter().all(|received| *received > PACKETS), "{most_received:?}");
    assert!(overflowed.iter().all(|it| *it), "{overflowed:?}");
}

#[test]
fn t0_times_are_kept_one_by_one_up_to_a_number_of_them() {
    let kept = |count: u64| {
        memory_of(|| {
            let mut times = Times::default();
            for n in 0..count {
                times.record(Span::from_ns(mixed(n).cast_signed()));
            }
            times.summary().unwrap().count
        })
    };
    let ((once, _), (more, count)) = (kept(4_200_000), kept(6_000_000));
    assert!(more <= once && once < 100_000_000, "{once} bytes, then {more}");
    assert_eq!(count, 6_000_000);
}
