// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wall time of writing and reading a capture of ten million events, on one core and without a
//! disk. Run with `cargo bench -p timewire-capture --bench capture`.

use std::hint::black_box;
use std::time::Instant;

use timewire_capture::capture::{CaptureHeader, Item, Reader, Station, Writer};
use timewire_capture::event::{EVENT_BYTES, Event, Flags, Hook};
use timewire_capture::filter::{Facts, Filter, Match};

const EVENTS: u64 = 10_000_000;
const CPUS: u64 = 4;
/// Events that a ring has when it is emptied.
const BURST: u64 = 4_000;
const FRAMES: u32 = 1_000_000;

fn main() {
    println!("capture: {EVENTS} events of {CPUS} rings, emptied in bursts of {BURST}");
    let rings = rings();
    let mut writer = Writer::new(Vec::with_capacity(1 << 29), &header()).expect("a header");
    let started = clock();
    for n in 0..EVENTS {
        let at = usize::try_from(n).expect("invariant: few events") % rings.len();
        let mut event = rings[at];
        // The time, as a ring would have it.
        event[..8].copy_from_slice(&at_ns(n).to_le_bytes());
        writer.event_bytes(black_box(&event)).expect("memory takes all");
    }
    let file = writer.finish().expect("memory takes all");
    line("write", started);
    let bytes = u64::try_from(file.len()).expect("invariant: a length fits");
    println!("{:>24} {:>10.2} bytes an event", "", ratio(bytes, EVENTS));

    let started = clock();
    let mut reader = Reader::new(&file[..]).expect("what was written");
    let (mut given, mut sum) = (0_u64, 0_u64);
    while let Some(item) = reader.next().expect("memory does not fail") {
        if let Item::Event(event) = item {
            given += 1;
            sum = sum.wrapping_add(event.at_ns ^ event.object);
        }
    }
    black_box(sum);
    line("read, in order", started);
    assert_eq!((given, reader.health().disordered), (EVENTS, 0));
    assert!(reader.health().is_whole());

    println!("filter: ns per frame, the reference of the programs in the kernel");
    for text in ["", "udp port 7000", "host 10.0.0.1 and udp port 7000 or ether proto 0x88f7"] {
        let compiled = Filter::parse(text).and_then(|filter| filter.compile());
        let compiled = compiled.expect("a filter that fits");
        println!("{:>10.1}  `{text}`", judged(&compiled));
    }
}

/// Event `n` of the file: bursts of one ring after another, each in order.
fn at_ns(n: u64) -> u64 {
    let round = n / (CPUS * BURST);
    let (cpu, place) = (n / BURST % CPUS, n % BURST);
    1_000_000_000 + (round * BURST + place) * 800 * CPUS + cpu * 137
}

fn rings() -> Vec<[u8; EVENT_BYTES]> {
    (0..4096_u64)
        .map(|n| {
            let event = Event {
                at_ns: 0,
                object: n << 8,
                tag: n << 32 | n,
                aux: n,
                interface: 2,
                thread: 100,
                cpu: 1,
                flags: Flags::default(),
                length: 106,
                hook: Hook::ALL[usize::try_from(n % 22).expect("invariant: small")],
                station: 0,
            };
            event.to_bytes()
        })
        .collect()
}

fn header() -> CaptureHeader {
    let station = Station { name: "alpha".to_owned(), ..Station::default() };
    CaptureHeader { stations: vec![station], keep_one_of: 1, ..CaptureHeader::default() }
}

fn judged(compiled: &Match) -> f64 {
    let mut frame = [0_u8; 60];
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
    frame[23] = 17;
    let keys = Facts::of_frame(&frame).expect("a frame").keys();
    let started = clock();
    for _ in 0..FRAMES {
        black_box(compiled.holds(black_box(&keys)));
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(FRAMES)
}

fn line(what: &str, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    let each = seconds * 1e9 / ratio(EVENTS, 1);
    println!("{what:>24} {each:>10.1} ns an event, {seconds:.2} s");
}

#[expect(clippy::cast_precision_loss, reason = "a figure of a few digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures wall time")]
fn clock() -> Instant {
    Instant::now()
}
