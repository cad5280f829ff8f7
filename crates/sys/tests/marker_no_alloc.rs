// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marking neither allocates nor frees: with a listener, without one, with a full ring, off. In a
//! file of its own: it has an allocator that counts.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../base/tests/support/counting.rs"]
mod counting;

use timewire_sys::marker::{Markers, Reader, Users, tag};

use counting::calls;

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
        let before = calls();
        for number in 0..1_000 {
            markers.mark(point, tag(1, number), 2);
            markers.mark_at(point, 3, 4, 5);
            markers.count(counter, 6);
            markers.observe(histogram, u64::from(number));
        }
        assert_eq!(calls(), before);
    }
    assert!(heard.is_listened_to());
    let before = calls();
    drop(std::hint::black_box(Box::new(1)));
    assert!(calls() > before, "it counts");
    drop((heard, unheard));
    // Neither ring was read: each kept 64 of 2000.
    assert_eq!(reader.finish(&mut |_| {}).lost, 1_936 * 2);
    std::fs::remove_dir_all(&directory).unwrap();
}
