// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An allocator that counts, for tests of what must not allocate. It counts for every thread but
//! the one that runs the tests, which allocates when it likes: so for the test's own and all that
//! the code under test starts. Nothing else may run: each such test has a file of its own.
//!
//! Not here: the tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::from_ref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts what all threads but the first ask of the allocator.
struct Counting;

/// Calls of the allocator so far.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// The first thread that asked for anything: the process's first, since no other ran before.
static FIRST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Its address is the thread's own as long as the thread lives, and the first one outlives all.
    static HERE: u8 = const { 0 };
}

fn count() {
    let here = HERE.with(|here| from_ref(here).addr());
    let first = FIRST.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|first| first != here) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls of the allocator so far, of all threads but the one that runs the tests.
pub fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Fails unless calls of this thread and of those that it starts are counted.
pub fn check_that_it_counts() {
    let before = calls();
    drop(std::hint::black_box(Box::new(1)));
    let own = calls() - before;
    assert!(own >= 2, "{own} calls of this thread were counted");
    // What starting one costs is more than this one call.
    let of_another = std::thread::spawn(|| {
        let before = calls();
        drop(std::hint::black_box(Box::new(1)));
        calls() - before
    });
    assert!(of_another.join().unwrap() >= 2, "a thread that was started is not counted");
}

// SAFETY: every call goes on unchanged to the system allocator, which keeps the contract; counting
// touches atomics and a thread-local without destructor, and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the pointer came from `alloc` or `realloc` above, so from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`; the caller vouches for the size.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
