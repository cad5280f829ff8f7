// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of the one thread, and memory, of an analysis of generated events: packet paths,
//! tables, the worst, a chain. Run with `cargo bench -p timewire-capture --bench packet_paths [--
//! MILLIONS]`.

use std::hint::black_box;

use timewire_base::Span;
use timewire_capture::capture::Note;
use timewire_capture::event::{Event, Flags, Hook};
use timewire_capture::packet_path::analysis::{Analysis, Wanted};
use timewire_capture::packet_path::chain::Chain;
use timewire_capture::packet_path::{CaptureInfo, Observer, OneClock, PacketPath};

/// Of one packet: markers, send call, one hop with a queueing discipline, a reader that sleeps, and
/// the interrupt and softirq around it.
const EVENTS: u64 = 20;
/// **Units**: ns from one packet to the next.
const APART: u64 = 10_000;

fn main() {
    #[expect(clippy::disallowed_methods, reason = "a benchmark takes arguments")]
    let millions = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(10_u64);
    let packets = millions * 1_000_000 / EVENTS;
    let before = peak_kib();
    println!("{} events of {packets} packets, one in {APART} ns", packets * EVENTS);
    for (name, copies) in [("one receiver", 0), ("three receivers", 2)] {
        let (seconds, events, packet_paths) = run(packets, copies);
        let each = seconds * 1e9 / float(events);
        println!(
            "{name}: {events} events in {seconds:.2} s of a CPU, {each:.0} ns each; {packet_paths} \
             packet paths, at most {} MiB more than at the start",
            (peak_kib() - before) / 1_024
        );
    }
}

/// Counts what comes out.
#[derive(Default)]
struct Count(u64);

impl Observer for Count {
    fn packet_path(&mut self, packet_path: &PacketPath) {
        self.0 += 1;
        black_box(packet_path);
    }
}

fn run(packets: u64, copies: u64) -> (f64, u64, u64) {
    let points = ["sample", "driver-start", "actuate"];
    let chains = vec![Chain {
        name: "pipeline".to_owned(),
        points: points.iter().map(|text| text.parse().expect("invariant: a point")).collect(),
        deadline: Some(Span::from_us(20)),
    }];
    let mut analysis =
        Analysis::new(vec![CaptureInfo::all()], OneClock, Wanted { chains, ..Wanted::default() });
    for (point, name) in [(7, "sample"), (8, "actuate")] {
        analysis.note(0, &Note::Point { point, name: name.to_owned(), process: 1 });
    }
    let mut count = Count::default();
    let mut events = 0;
    let mut all = Vec::new();
    let start = cpu_seconds();
    for packet in 0..packets {
        all.clear();
        generate(packet, copies, &mut all);
        for event in &all {
            analysis.event(0, event, &mut count);
        }
        events += all.len();
    }
    analysis.finish(&mut count);
    let seconds = cpu_seconds() - start;
    let rows = analysis.rows();
    let packet_paths = rows.first().map_or(0, |row| row.times.count);
    assert_eq!(packet_paths, packets * (copies + 1), "every packet was followed");
    assert_eq!(analysis.chains()[0].complete, packets, "and every chain");
    (seconds, u64::try_from(events).expect("invariant: a length"), count.0)
}

/// The events of one packet. Times vary, so that the tables have more than one bin.
fn generate(packet: u64, copies: u64, into: &mut Vec<Event>) {
    use Hook::*;
    // A cheap permutation: it looks random enough for a histogram.
    let vary = packet.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    let at = 1_000 + packet * APART;
    let object = 0xffff_8000 + packet % 512 * 256;
    let tag = ((packet % 50 + 1) << 32) | (packet & 0xffff_ffff);
    let event = |after, hook, object, tag| Event {
        at_ns: at + after,
        object,
        tag,
        aux: 0,
        interface: 2,
        thread: 10,
        cpu: 0,
        flags: Flags::TAGGED,
        length: 100,
        hook,
        station: 0,
    };
    let sent = |after, hook| event(after, hook, object, tag);
    let came = |after, hook| Event { station: 1, cpu: 1, thread: 20, ..sent(after + vary, hook) };
    let read = |after, hook, socket| Event { object: socket, tag: 0, ..came(after, hook) };
    into.extend([
        event(0, Marker, 7, tag),
        event(100, SendEnter, 0, 0),
        Event { aux: 0x50, ..sent(300, DeviceQueue) },
        Event { aux: (1 << 48) | (packet % 4), ..sent(400, QdiscEnqueue) },
        Event { aux: 1 << 48, ..sent(600, QdiscDequeue) },
        sent(700, DriverStart),
        sent(800, DriverDone),
        Event { aux: 58, length: 58, ..event(900, SocketSend, 0x50, 0) },
        Event { tag: 0, object: 0, aux: 24, ..came(1_000, IrqEntry) },
        Event { tag: 0, object: 0, aux: 24, ..came(1_100, IrqExit) },
        Event { tag: 0, object: 0, aux: 3, ..came(1_200, SoftirqEntry) },
        came(1_300, NapiReceive),
        came(1_400, StackReceive),
    ]);
    for copy in 0..copies {
        let clone = object + 64 * (copy + 1);
        let queue = Event { object: clone, aux: 0x70 + copy, ..came(1_450 + copy, SocketQueue) };
        into.push(queue);
    }
    into.extend([
        Event { aux: 0x60, ..came(1_500, SocketQueue) },
        Event { aux: 20, ..read(1_510, Waking, 0x60) },
        Event { tag: 0, object: 0, aux: (1 << 32) | 64, ..came(1_600, NapiPoll) },
        Event { tag: 0, object: 0, aux: 3, ..came(1_700, SoftirqExit) },
        Event { aux: 30, cpu: 2, ..read(2_000, SwitchIn, 0x60) },
        Event { aux: 58, length: 58, cpu: 2, ..read(2_200, SocketReceive, 0x60) },
        Event { object: 8, ..came(2_400, Marker) },
    ]);
    for copy in 0..copies {
        let read = Event { aux: 58, length: 58, ..read(2_500 + copy, SocketReceive, 0x70 + copy) };
        into.push(read);
    }
}

/// Time that this thread has had a CPU.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|text| text.parse().ok());
    float(ns.expect("invariant: Linux tells")) / 1e9
}

/// Most memory that the process had. **Units**: KiB.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures memory")]
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn float(count: u64) -> f64 {
    count as f64
}
