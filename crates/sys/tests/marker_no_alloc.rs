// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marking neither allocates nor frees: with a listener, without one, with a full ring, off. In a
//! file of its own: it has an allocator that counts.
//!
//! Not here: what marks come to (`timewire_sys::marker`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use timewire_sys::marker::{Markers, Reader, Users, tag};

/// Counts what each thread asks of the allocator, apart.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes on unchanged to the system allocator, which keeps the contract; counting
// touches a number of the thread that needs no destructor, and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the pointer came from `alloc` above, so from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn t3_marking_neither_allocates_nor_frees() {
    let name = format!("timewire-marks-no-alloc-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let unheard = Markers::open_at(&directory, 64).unwrap();
    let reader = Reader::open_at(&directory, Users::Own).unwrap();
    let heard = Markers::open_at(&directory, 64).unwrap();
    drop(reader);
    let reader = Reader::open_at(&directory, Users::Own).unwrap();
    let off = Markers::off();
    for markers in [&heard, &unheard, &off] {
        let (point, counter) = (markers.point("p").unwrap(), markers.counter("c").unwrap());
        let histogram = markers.histogram("h").unwrap();
        let before = CALLS.get();
        for number in 0..1_000 {
            markers.mark(point, tag(1, number), 2);
            markers.mark_at(point, 3, 4, 5);
            markers.count(counter, 6);
            markers.observe(histogram, u64::from(number));
        }
        assert_eq!(CALLS.get(), before);
    }
    assert!(heard.is_listened_to());
    let before = CALLS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert!(CALLS.get() > before, "it counts");
    drop((heard, unheard));
    // Neither ring was read: each kept 64 of 2000.
    assert_eq!(reader.finish(&mut |_| {}).lost, 1_936 * 2);
    std::fs::remove_dir_all(&directory).unwrap();
}
