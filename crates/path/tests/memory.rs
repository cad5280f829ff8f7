// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A listener needs no more memory for twice as many messages, whatever they are: every table that
//! numbers, sources and kinds of messages can fill has a bound, and what has no room is counted.
//!
//! Not here: what becomes of messages (`listen`).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;

use timewire_base::{Instant, Span};
use timewire_path::listen::{Arrival, Listener, ListenerOptions};
use timewire_path::probe::Probe;
use timewire_trace::stream::sequence::SequenceLimits;

/// Counts the bytes that this thread has, and the most that it had.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(more: isize) {
    let now = NOW.with(|now| {
        now.set(now.get() + more);
        now.get()
    });
    MOST.with(|most| most.set(most.get().max(now)));
}

fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

// SAFETY: every call goes on unchanged to the system allocator, which keeps the contract; counting
// touches thread-local cells without destructors and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the pointer came from `alloc` or `realloc`, so from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: as for `dealloc`; the caller vouches for the size.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Streams that are told apart here.
const STREAMS: usize = 50;
/// Messages of the shorter run.
const MESSAGES: u64 = 10_000;

/// A number that looks random.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

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
fn run(made: Made, messages: u64) -> (isize, Listener) {
    let start = NOW.with(Cell::get);
    MOST.with(|most| most.set(start));
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
    (MOST.with(Cell::get) - start, listener)
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
