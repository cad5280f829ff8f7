// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings of a guest's devices, in memory that the guest writes, and attributes of netlink.
#![no_main]

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use libfuzzer_sys::fuzz_target;
use timewire_sys::vhost::{GuestMemory, SplitRing};

const BYTES: u64 = 1 << 16;

fn memory() -> (File, GuestMemory) {
    let path = timewire_fuzz::file("guest", &vec![0; 1 << 16]);
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file of ours");
    let shared: OwnedFd = file.try_clone().expect("a descriptor").into();
    let mut memory = GuestMemory::new();
    memory.add(&shared, 0, BYTES, 0, 0).expect("a region of the file");
    (file, memory)
}

thread_local! {
    static MEMORY: (File, GuestMemory) = memory();
}

fuzz_target!(|data: &[u8]| {
    for (_, value) in timewire_sys::generic::attributes(data) {
        let _ = timewire_sys::generic::attributes(&value);
    }
    MEMORY.with(|(file, memory)| ring(file, memory, data));
});

fn ring(file: &File, memory: &GuestMemory, data: &[u8]) {
    let Some(([size, a, b, c], content)) = data.split_first_chunk::<4>() else { return };
    let mut all = vec![0; 1 << 16];
    let length = content.len().min(all.len());
    all[..length].copy_from_slice(&content[..length]);
    file.write_all_at(&all, 0).expect("a file of ours");
    let place = |byte: &u8| u64::from(*byte) * 256;
    let size = 1 << (size % 17);
    let Ok(mut ring) = SplitRing::new(size, place(a), place(b), place(c)) else { return };
    for _ in 0..64 {
        let Ok(Some(chain)) = ring.pop(memory) else { break };
        if let Ok(bytes) = chain.read(memory, 2_000) {
            assert!(bytes.len() <= 2_000);
        }
        let _ = chain.write(memory, b"some bytes");
        let _ = ring.give_back(memory, chain.head, 10);
    }
}
