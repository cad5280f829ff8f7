// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A listener needs no more memory for twice as many messages, whatever they are: every table that
//! numbers, sources and kinds of messages can fill has a bound, and what has no room is counted.

use std::net::SocketAddr;

use timewire_base::{Instant, Span};
use timewire_capture::stream::sequence::SequenceLimits;
use timewire_datapath::listen::{Arrival, Listener, ListenerOptions};
use timewire_datapath::probe::Probe;

use crate::counting::{memory_of, mixed};

/// Streams that are told apart here.
const STREAMS: usize = 50;
/// Messages of the shorter run.
const MESSAGES: u64 = 10_000;

fn address(n: u64) -> SocketAddr {
    let [a, b, c, d, port @ ..] = mixed(n).to_le_bytes();
    SocketAddr::from(([a, b, c, d], u16::from_le_bytes([port[0], port[1]])))
}

fn probe(n: u64, number: u64, seq: u64) -> Vec<u8> {
    let mut message = vec![0; 46];
    let of = Probe {
        stream: u16::try_from(number % 0x7fff).unwrap(),
        seq: u32::try_from(seq & 0xffff_ffff).unwrap(),
        time: Instant::from_ns(i64::try_from(n).unwrap()),
        is_launch: false,
        skipped: Some(u32::try_from(mixed(n) & 0xffff_ffff).unwrap()),
    };
    of.write(&mut message);
    message
}

/// A frame with this content behind addresses and an EtherType that follow from a number.
fn frame(n: u64, content: &[u8]) -> Vec<u8> {
    let [a, b, c, d, ethertype @ ..] = mixed(n).to_le_bytes();
    let header = [2, 0, 0, 0, 0, 1, 2, 0, a, b, c, d, 0x90 | ethertype[0], ethertype[1]];
    [&header[..], content].concat()
}

/// A message, and who sent it over UDP.
type Made = fn(u64) -> (Vec<u8>, Option<SocketAddr>);

/// Each fills tables with numbers of its own; whole frames have no sender over UDP.
const KINDS: [(&str, Made); 8] = [
    ("every message another number", |n| (probe(n, n, 0), Some(address(0)))),
    ("every message another source", |n| (probe(n, 3, 0), Some(address(n)))),
    ("another number and source", |n| (probe(n, mixed(n), 0), Some(address(n)))),
    ("any number in one stream", |n| (probe(n, 3, mixed(n)), Some(address(0)))),
    ("frames of any source", |n| (frame(n, &probe(n, 3, 0)), None)),
    ("no header, any source", |n| (vec![7; 40], Some(address(n)))),
    ("no header, any length", |n| (vec![7; usize::try_from(n % 1_400).unwrap()], None)),
    ("frames of any EtherType", |n| (frame(n, &[7; 46]), None)),
];

/// The most memory that a listener had, and what it counted.
fn run(made: Made, messages: u64) -> (u64, Listener) {
    memory_of(|| listener_after(made, messages))
}

fn listener_after(made: Made, messages: u64) -> Listener {
    let is_frames = made(0).1.is_none();
    let mut listener = Listener::new(
        is_frames,
        ListenerOptions {
            sequence: SequenceLimits::default(),
            longest: Span::from_ms(1),
            cycle: None,
            hardware_ahead: None,
            streams: STREAMS,
        },
    );
    for n in 0..messages {
        let (bytes, from) = made(n);
        let at = Instant::from_ns(i64::try_from(n).unwrap() * 1_000);
        let _ = listener.arrived(&Arrival {
            bytes: &bytes,
            length: u32::try_from(bytes.len()).unwrap(),
            from,
            tag: None,
            hardware_ns: None,
            driver: None,
            kernel: Some(at),
            user: at,
        });
    }
    listener
}

#[test]
fn t0_a_listener_needs_no_more_memory_for_more_messages() {
    for (what, made) in KINDS {
        let (once, _) = run(made, MESSAGES);
        let (twice, listener) = run(made, 2 * MESSAGES);
        assert!(twice <= once + 65_536, "{what}: {once} bytes, then {twice}");
        let counters = listener.counters();
        let counted = counters.known + counters.unknown + counters.no_room;
        assert_eq!(counted, 2 * MESSAGES, "{what}: {counters:?}");
        let (kinds, more) = listener.others();
        let told: u64 = kinds.iter().map(|(_, count)| count).sum();
        assert_eq!(told + more, counters.unknown, "{what}");
        assert!(listener.len() <= STREAMS && kinds.len() <= 64, "{what}");
    }
}
