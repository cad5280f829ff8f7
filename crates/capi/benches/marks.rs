// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a mark costs, from Rust and from C: with a collector that listens and reads meanwhile, with
//! nobody listening, and reading the clock alone, which is most of it. Run with
//! `cargo bench -p timewire-capi --bench marks [-- --quick]`.
//!
//! They take turns in batches, so that all meet the same disturbances; the least of all batches is
//! what the code takes, the median what it took. Before the next batch the collector has taken the
//! marks of the last one: to write them again, their memory comes back from its CPU.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "../tests/library/mod.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod library;

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use library::{compile, has, here, library, run};
use timewire_base::{Mono, Span};
use timewire_sys::clock;
use timewire_sys::marker::{Markers, Reader, Users, tag};

/// Marks of a batch.
const BATCH: u32 = 1_000;

const SOURCE: &str = "\
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include \"timewire_mark.h\"
#define BATCH 1000
static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
int main(int argc, char **argv)
{
	int batches = atoi(argv[argc - 1]), point;
	volatile uint64_t sink = 0;
	tw_marker *it;
	if (tw_marker_open(0, &it) < 0)
		return 1;
	point = tw_marker_point(it, \"bench\");
	for (int batch = 0; batch < batches; batch++) {
		uint64_t a = now(), b, c;
		for (uint32_t i = 0; i < BATCH; i++)
			sink += now();
		b = now();
		for (uint32_t i = 0; i < BATCH; i++)
			tw_mark(it, point, tw_tag(1, i), i);
		c = now();
		while (tw_marker_listening(it) &&
		       __atomic_load_n(tw_marker_word(it, TW_MARKER_AT_READ), __ATOMIC_RELAXED) !=
			       it->next)
			tw_sleep_until(tw_now() + 100000, 0);
		printf(\"%llu %llu\\n\", (unsigned long long)(b - a), (unsigned long long)(c - b));
	}
	return tw_marker_close(it);
}
";

/// Of one kind of batch. **Units**: ns for each.
struct Cost {
    least: f64,
    median: f64,
}

fn cost(mut batches: Vec<f64>) -> Cost {
    batches.sort_by(f64::total_cmp);
    let each = f64::from(BATCH);
    Cost { least: batches[0] / each, median: batches[batches.len() / 2] / each }
}

fn timed(body: impl FnOnce()) -> f64 {
    let begin = clock::now::<Mono>();
    body();
    let took: Span = clock::now::<Mono>() - begin;
    took.as_us_f64() * 1e3
}

fn in_rust(directory: &Path, batches: u32) -> (Cost, Cost) {
    let it = Markers::open_at(directory, Markers::USUAL).unwrap();
    let point = it.point("bench").unwrap();
    let (mut clocks, mut marks) = (Vec::new(), Vec::new());
    for _ in 0..batches {
        clocks.push(timed(|| {
            for _ in 0..BATCH {
                black_box(clock::now::<Mono>());
            }
        }));
        marks.push(timed(|| {
            for i in 0..BATCH {
                it.mark(point, tag(1, i), u64::from(i));
            }
        }));
        while it.is_listened_to() && it.unread() > 0 {
            clock::sleep_until(clock::now::<Mono>() + Span::from_us(100));
        }
    }
    (cost(clocks), cost(marks))
}

fn in_c(program: &Path, library: &Path, directory: &Path, batches: u32) -> (Cost, Cost) {
    let said = run(library::command(program, library, &[&batches.to_string()])
        .env("TIMEWIRE_MARKERS", directory));
    let pairs = said.lines().map(|line| line.split_once(' ').unwrap());
    let (clocks, marks) =
        pairs.map(|(a, b)| (a.parse::<f64>().unwrap(), b.parse::<f64>().unwrap())).unzip();
    (cost(clocks), cost(marks))
}

/// With a collector that reads all the time, the marks that it was told and those that were lost.
fn heard<R: Send>(directory: &Path, body: impl FnOnce() -> R + Send) -> (R, u64, u64) {
    let mut reader = Reader::open_at(directory, Users::Own).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                reader.drain(&mut |news| {
                    black_box(&news);
                });
                // As a collector does that has other rings to read, too.
                clock::sleep_until(clock::now::<Mono>() + Span::from_ms(1));
            }
            reader.finish(&mut |news| {
                black_box(&news);
            })
        });
        let result = body();
        is_done.store(true, Ordering::Release);
        let totals = collector.join().unwrap();
        (result, totals.told, totals.lost)
    })
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let batches = if quick { 100 } else { 1_000 };
    let library = library("marks_bench");
    let directory = library.join("rings");
    let program = library.join("marks");
    let mut languages = vec!["Rust"];
    if has("cc") {
        let (source, include) = (library.join("marks.c"), here("include"));
        fs::write(&source, SOURCE).unwrap();
        let paths = [&include, &source, &program, &library].map(|path| path.to_str().unwrap());
        let [include, source, program, library] = paths;
        let arguments = ["-std=c11", "-O2", "-I", include, source, "-o", program, "-L", library];
        compile("cc", &[&arguments[..], &["-ltimewire"]].concat());
        languages.push("C");
    }
    println!("{batches} batches of {BATCH}; ns each, least and median of the batches");
    println!(
        "{:<6} {:<10} {:>7} {:>7} {:>7} {:>7} {:>12} {:>9} {:>7}",
        "from", "collector", "clock", "median", "mark", "median", "mark/clock", "told", "lost"
    );
    for language in languages {
        for listens in [true, false] {
            let measure = || match language {
                "C" => in_c(&program, &library, &directory, batches),
                _ => in_rust(&directory, batches),
            };
            let ((clock, mark), told, lost) =
                if listens { heard(&directory, measure) } else { (measure(), 0, 0) };
            println!(
                "{language:<6} {:<10} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>12.2} {told:>9} {lost:>7}",
                if listens { "listens" } else { "none" },
                clock.least,
                clock.median,
                mark.least,
                mark.median,
                mark.least / clock.least,
            );
        }
    }
}
