// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once it runs, the MAC neither allocates nor frees, whatever its carrier, and it rests when there
//! is nothing to do. In a file of its own: all allocations of the process are counted.
//!
//! Not here: the machine alone (`timewire-mac`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "data_path/station.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod station;

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use station::{OTHER, now, on_each_carrier, ports, run, spec, start, total, windows};
use timewire_base::Span;
use timewire_path::mac::MacSpec;
use timewire_sys::clock;

/// Counts what the whole process asks of the allocator.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes on unchanged to the system allocator, which keeps the contract; counting
// touches an atomic and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` or `realloc` above, so from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as for `dealloc`; the caller vouches for the size.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// One test at a time: nothing else of this process may run meanwhile.
static ALONE: Mutex<()> = Mutex::new(());

/// What the allocator was asked for while this thread slept.
fn calls_while_asleep(span: Span) -> u64 {
    let before = CALLS.load(Ordering::Relaxed);
    clock::sleep_until(now() + span);
    CALLS.load(Ordering::Relaxed) - before
}

#[test]
fn t3_a_running_mac_neither_allocates_nor_frees() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    on_each_carrier(|_, carrier| {
        run("ip", "address add 10.77.0.1/24 dev tw0");
        run("ip", "neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev tw0");
        let tdm = windows(now(), Span::from_ms(1), Span::from_us(300));
        let mut mac = start(MacSpec {
            windows: Some(tdm),
            send: ports(&[(15_001, 1)]),
            recv: ports(&[(15_001, 1)]),
            ..spec(carrier)
        });
        // The test's own process must not speak, or it would be counted.
        let mut flood = Command::new("bash");
        let script = "while true; do
            printf x > /dev/udp/10.77.0.2/15001
            printf x > /dev/udp/10.77.0.2/9
        done";
        flood.args(["-c", script]);
        let mut flood = flood.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let before = station::wait_for(&mut mac, "frames come", |s| total(s).released > 100);
        let calls = calls_while_asleep(Span::from_ms(700));
        let after = mac.status().unwrap();
        flood.kill().unwrap();
        flood.wait().unwrap();
        let moved = total(&after).released - total(&before).released;
        eprintln!("  {calls} calls, {moved} frames");
        assert!(moved > 100, "only {moved} frames moved");
        assert_eq!(calls, 0);
        mac.stop().unwrap();
    });
}

/// CPU time of this process's threads of a name. **Units**: nanoseconds.
fn cpu_time(of: &str) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = entry.unwrap().path();
        let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        if read("comm").trim() == of {
            sum += read("schedstat").split(' ').next().unwrap_or("0").parse::<u64>().unwrap_or(0);
        }
    }
    sum
}

#[test]
fn t3_a_mac_rests_when_it_has_nothing_to_do_and_when_its_link_is_gone() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for lost in [None, Some("phy0"), Some("tw0")] {
        on_each_carrier(|station, carrier| {
            let mut mac = start(spec(carrier));
            station.stack.send(&station::raw(OTHER, 100, 1));
            station.wire.expect(1);
            if let Some(lost) = lost {
                run("ip", &format!("link del {lost}"));
            }
            let threads = ["tw-mac", "tw-receive"];
            let before = threads.map(cpu_time);
            let span = Span::from_ms(400);
            clock::sleep_until(now() + span);
            let after = threads.map(cpu_time);
            let busy = after.iter().sum::<u64>().saturating_sub(before.iter().sum());
            eprintln!("  without {lost:?}: busy for {} us of {span}", busy / 1_000);
            assert!(busy < 40_000_000, "busy for {busy} ns of {span}");
            assert_eq!(mac.ended().is_some(), lost.is_some());
        });
    }
}
