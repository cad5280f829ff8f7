// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tracing costs those that are traced, and what it loses: one thread sends and receives small
//! messages of UDP at both ends of a virtual pair. Without tracing, with events at seven hooks of
//! each packet, and with a filter that fits none, in turns, so that all meet the same disturbances;
//! then `ftrace`, `perf record` and `bpftrace` at the same seven, where they are. Run as root with
//! `cargo bench -p timewire-bpf --bench trace_cost [-- --quick]`.
//!
//! With `--instructions`, in an emulated machine in which a nanosecond is an instruction, the cost
//! is exact, and held to its bounds.
//!
//! Not here: what a marker of a program costs.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

mod others;
#[path = "../../tests/support/mod.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use support::Pair;
use timewire_bpf::trace::{Mode, Settings, Tracer};
use timewire_capture::event::Hook;
use timewire_capture::filter::Filter;
use timewire_sys::clock::thread_time;

const PORT: u16 = 7106;
/// Packets of a batch.
const BATCH: u32 = 400;
/// The hooks of the seven stages.
const SEVEN: [Hook; 7] = [
    Hook::SocketSend,
    Hook::DeviceQueue,
    Hook::DriverStart,
    Hook::ReceiveQueue,
    Hook::StackReceive,
    Hook::SocketQueue,
    Hook::SocketReceive,
];
/// **Units**: instructions.
const MAX_PER_EVENT: f64 = 900.0;
const MAX_PER_OTHER_PACKET: f64 = 2000.0;

fn main() -> ExitCode {
    let asked = |word: &str| std::env::args().any(|argument| argument == word);
    let (quick, counts) = (asked("--quick"), asked("--instructions"));
    let run = move || {
        let pair = match Pair::make(PORT) {
            Ok(pair) => pair,
            Err(error) => {
                eprintln!("SKIP: {error}");
                return ExitCode::SUCCESS;
            }
        };
        if counts {
            return instructions(&pair);
        }
        wall_time(&pair, if quick { 5 } else { 20 });
        others::compare(&pair, if quick { 10 } else { 50 });
        burst(&pair, Duration::from_secs(if quick { 1 } else { 4 }));
        ExitCode::SUCCESS
    };
    std::thread::spawn(run).join().unwrap()
}

/// Sends and receives so many messages, in both directions by turns.
fn exchange(pair: &Pair, packets: u32) {
    let message = [7; 64];
    let mut buffer = [0; 64];
    for n in 0..packets {
        let (from, to) = if n % 2 == 0 { (0, 1) } else { (1, 0) };
        pair.sockets[from].send(&message).unwrap();
        assert_eq!(pair.sockets[to].recv(&mut buffer).unwrap(), 64);
    }
}

/// **Units**: nanoseconds of the thread a packet, in each of so many batches.
fn batches(pair: &Pair, count: u32, mut after: impl FnMut()) -> Vec<f64> {
    let one = |_| {
        let begun = thread_time();
        exchange(pair, BATCH);
        let spent = thread_time().as_ns() - begun.as_ns();
        after();
        f64::from(u32::try_from(spent).unwrap()) / f64::from(BATCH)
    };
    (0..count).map(one).collect()
}

fn tracer(text: &str, hooks: &[Hook], mode: Mode) -> Tracer {
    let filter = Filter::parse(text).unwrap().compile().unwrap();
    let settings = Settings { filter, hooks: hooks.to_vec(), mode, ..Settings::default() };
    Tracer::open(&settings).unwrap()
}

fn matching() -> String {
    format!("udp port {PORT}")
}

/// A filter of the same kind that fits nothing here.
fn fitting_nothing() -> String {
    format!("udp port {}", PORT + 1)
}

struct Samples(Vec<f64>);

impl Samples {
    fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

fn lost(tracer: &Tracer) -> u64 {
    tracer.counts().unwrap().values().map(|count| count.lost).sum()
}

fn wall_time(pair: &Pair, rounds: u32) {
    let kinds = [
        ("nothing", None),
        ("7 hooks, every packet", Some((matching(), Mode::Events))),
        ("7 hooks, no packet", Some((fitting_nothing(), Mode::Events))),
        ("counters, every packet", Some((matching(), Mode::Counters))),
        ("histograms, every packet", Some((matching(), Mode::Histograms))),
    ];
    let mut samples: Vec<Samples> = kinds.iter().map(|_| Samples(Vec::new())).collect();
    let (mut events, mut missed) = (vec![0; kinds.len()], vec![0; kinds.len()]);
    for _ in 0..rounds {
        for (n, (_, kind)) in kinds.iter().enumerate() {
            let mut tracer = kind.as_ref().map(|(text, mode)| tracer(text, &SEVEN, *mode));
            let drain = || {
                let drained = tracer.as_mut().map(|tracer| tracer.drain(&mut |_| {}));
                events[n] += drained.unwrap_or(0);
            };
            samples[n].0.extend(batches(pair, 10, drain));
            missed[n] += tracer.as_ref().map_or(0, lost);
        }
    }
    let packets = rounds * 10 * BATCH;
    println!("{packets} packets of each kind; nanoseconds of the CPU a packet");
    println!(
        "{:<26} {:>8} {:>8} {:>8} {:>8} {:>9} {:>6}",
        "", "least", "median", "added", "added", "events", "lost"
    );
    for (n, (name, _)) in kinds.iter().enumerate() {
        let (least, median) = (samples[n].least(), samples[n].median());
        println!(
            "{name:<26} {least:>8.0} {median:>8.0} {:>8.0} {:>8.0} {:>9} {:>6}",
            least - samples[0].least(),
            median - samples[0].median(),
            events[n],
            missed[n],
        );
    }
    println!("(to be: every packet at most 1000 more, no packet at most 300 more)\n");
}

/// As many events as one thread can make, up to 1.5 million a second, while another empties the
/// rings.
fn burst(pair: &Pair, length: Duration) {
    let mut tracer = tracer(&matching(), &SEVEN, Mode::Events);
    let per_ms = 1500 / u32::try_from(SEVEN.len()).unwrap() + 1;
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let (spent, drained, sent) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut drained = 0;
            loop {
                let last = is_over.load(std::sync::atomic::Ordering::Relaxed);
                drained += tracer.drain(&mut |events| {
                    std::hint::black_box(events);
                });
                if last {
                    return (thread_time(), drained);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let begun = Instant::now();
        let mut sent = 0;
        while begun.elapsed() < length {
            let due = u32::try_from(begun.elapsed().as_millis()).unwrap() * per_ms;
            while sent < due {
                exchange(pair, per_ms);
                sent += per_ms;
                if begun.elapsed() >= length {
                    break;
                }
            }
            std::thread::yield_now();
        }
        let took = begun.elapsed();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let (spent, drained) = reader.join().unwrap();
        (spent, drained, (sent, took))
    });
    let (packets, took) = sent;
    let expected = u64::from(packets) * u64::try_from(SEVEN.len()).unwrap();
    let count = f64::from(u32::try_from(drained).unwrap());
    println!(
        "{:.2} M events/s for {:.1} s, ring of 16 MiB: {drained} of {expected} kept, {} lost; \
         {:.1} ns of the reader's CPU an event\n",
        count / took.as_secs_f64() / 1e6,
        took.as_secs_f64(),
        lost(&tracer),
        f64::from(u32::try_from(spent.as_ns()).unwrap()) / count,
    );
}

/// In a machine where a nanosecond is an instruction.
fn instructions(pair: &Pair) -> ExitCode {
    let least = |tracer: Option<Tracer>| {
        let mut tracer = tracer;
        let mut drained = 0;
        let samples = Samples(batches(pair, 20, || {
            drained += tracer.as_mut().map_or(0, |tracer| tracer.drain(&mut |_| {}));
        }));
        (samples.least(), drained)
    };
    let open = |text: &str| Some(tracer(text, &SEVEN, Mode::Events));
    let (nothing, _) = least(None);
    let (traced, events) = least(open(&matching()));
    let (other, none) = least(open(&fitting_nothing()));
    let per_packet = f64::from(u32::try_from(events).unwrap()) / f64::from(20 * BATCH);
    let per_event = (traced - nothing) / per_packet;
    println!("instructions a packet: {nothing:.0}; traced {traced:.0}, not asked for {other:.0}");
    println!("events a packet: {per_packet:.2}, and {none} of those not asked for");
    println!("{:<32} {:>12} {:>12}", "instructions per event", "counted", "bound");
    println!("{:<32} {per_event:>12.0} {MAX_PER_EVENT:>12.0}", "asked for");
    let more = other - nothing;
    println!("{:<32} {more:>12.0} {MAX_PER_OTHER_PACKET:>12.0}", "a packet not asked for");
    println!("each alone, of packets not asked for:");
    for hook in SEVEN {
        let (alone, _) = least(Some(tracer(&fitting_nothing(), &[hook], Mode::Events)));
        println!("{:<32} {:>12.0}", hook.name(), alone - nothing);
    }
    let is_right = per_packet >= 4.0 && none == 0 && per_event > 0.0;
    // Kernels that lack some of the hooks share the work of the first among fewer events.
    let is_whole = per_packet >= 7.0;
    if is_right && (!is_whole || per_event <= MAX_PER_EVENT) && more <= MAX_PER_OTHER_PACKET {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
