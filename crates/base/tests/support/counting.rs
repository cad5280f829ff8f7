// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An allocator that counts what each thread asks for, apart, for tests of what must not allocate
//! and of what must not need more than so much memory; and the calls of all threads together, for
//! a test that has its process for itself. Tests of all crates include this file by its path.
#![allow(dead_code, reason = "no test uses all of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::from_ref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Counts the calls of this thread, the bytes that it has, and the most that it had; and the calls
/// of all threads, from the first question for them on.
struct Counting;

/// Calls of all threads but the first.
static ALL: AtomicU64 = AtomicU64::new(0);
static COUNTS_ALL: AtomicBool = AtomicBool::new(false);
/// The thread that asked first: it runs the tests, and allocates when it likes.
static FIRST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(more: isize) {
    let now = NOW.get() + more;
    NOW.set(now);
    MOST.set(MOST.get().max(now));
}

fn call(more: isize) {
    CALLS.set(CALLS.get() + 1);
    count(more);
    // The address of what a thread has for itself is its own as long as it lives.
    let here = CALLS.with(|calls| from_ref(calls).addr());
    match FIRST.load(Relaxed) {
        0 => FIRST.store(here, Relaxed),
        first if first != here && COUNTS_ALL.load(Relaxed) => {
            ALL.fetch_add(1, Relaxed);
        }
        _ => {}
    }
}

fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

// SAFETY: every call goes on unchanged to the system allocator, which keeps the contract; counting
// touches atomics and numbers of the thread that need no destructor, and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        call(signed(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        call(-signed(layout.size()));
        // SAFETY: the pointer came from one of these functions, so from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        call(signed(layout.size()));
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old and the new place may be there at once.
        call(signed(size));
        count(-signed(layout.size()));
        // SAFETY: as for `dealloc`; the caller vouches for the size.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Calls of the allocator by this thread so far.
pub fn calls() -> u64 {
    CALLS.get()
}

/// Calls of the allocator so far, since this was asked first, by all threads but the one that runs
/// the tests.
pub fn calls_of_all() -> u64 {
    COUNTS_ALL.store(true, Relaxed);
    ALL.load(Relaxed)
}

/// Fails unless calls of this thread and of those that it starts are counted.
pub fn check_that_all_count() {
    let before = calls_of_all();
    drop(std::hint::black_box(Box::new(1)));
    let own = calls_of_all() - before;
    assert!(own >= 2, "{own} calls of this thread were counted");
    // What starting one costs is more than this one call.
    let of_another = || {
        let before = calls_of_all();
        drop(std::hint::black_box(Box::new(1)));
        calls_of_all() - before
    };
    let of_another = std::thread::scope(|scope| scope.spawn(of_another).join());
    assert!(of_another.is_ok_and(|calls| calls >= 2), "a thread that was started is not counted");
}

/// Calls of the allocator meanwhile.
pub fn calls_during(run: impl FnOnce()) -> u64 {
    let before = calls();
    run();
    calls() - before
}

/// The most memory that this thread had meanwhile beyond what it had before, and what came of it.
///
/// **Units**: bytes.
pub fn memory_of<T>(run: impl FnOnce() -> T) -> (u64, T) {
    let before = NOW.get();
    MOST.set(before);
    let found = run();
    let most = MOST.get().saturating_sub(before).max(0).unsigned_abs();
    (u64::try_from(most).expect("invariant: 64 bits hold an address"), found)
}

/// A number that looks random.
pub fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
