// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings of marks, as another program may leave them: a sound ring, with pieces written over it. A
//! piece is its place (two bytes), its length (one byte) and that many bytes.
#![no_main]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use timewire_sys::marker::{Markers, Reader, Users};

thread_local! {
    static RING: (Markers, PathBuf, Vec<u8>) = ring();
}

fn ring() -> (Markers, PathBuf, Vec<u8>) {
    let directory = timewire_fuzz::directory().join("rings");
    let reader = Reader::open_at(&directory, Users::Own).expect("a directory of ours");
    let markers = Markers::open_at(&directory, 64).expect("a ring");
    let point = markers.point("cycle").expect("a point");
    let counter = markers.counter("messages").expect("a counter");
    let histogram = markers.histogram("times").expect("a histogram");
    for tag in 0..40 {
        markers.mark(point, tag, 7);
        markers.count(counter, 1);
        markers.observe(histogram, tag);
    }
    drop(reader);
    let rings = fs::read_dir(&directory).expect("a directory of ours");
    let mut paths = rings.filter_map(|entry| Some(entry.ok()?.path()));
    let path = paths.find(|path| path.extension().is_some_and(|end| end == "ring"));
    let path = path.expect("the ring has a file");
    let bytes = fs::read(&path).expect("a file of ours");
    (markers, path, bytes)
}

fuzz_target!(|data: &[u8]| {
    RING.with(|(_markers, path, sound)| {
        let mut bytes = sound.clone();
        let mut rest = data;
        while let Some(([low, high, length], more)) = rest.split_first_chunk::<3>() {
            let (piece, more) = more.split_at(usize::from(*length).min(more.len()));
            let at = usize::from(u16::from_le_bytes([*low, *high])) % bytes.len();
            let end = (at + piece.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&piece[..end - at]);
            rest = more;
        }
        let file = OpenOptions::new().write(true).open(path).expect("a file of ours");
        file.write_all_at(&bytes, 0).expect("a file of ours");
        let directory = path.parent().expect("a file in a directory");
        let mut reader = Reader::open_at(directory, Users::Own).expect("a directory of ours");
        for _ in 0..2 {
            reader.drain(&mut |_| {});
            reader.values(&mut |_| {});
        }
        let _ = reader.finish(&mut |_| {});
    });
});
