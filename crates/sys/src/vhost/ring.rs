// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device's side of a split virtqueue (virtio 1.2, 2.7), without indirect descriptors and
//! without event indices: neither is offered.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{Ordering, fence};

use super::{GuestMemory, NoSuchMemory};

const DESCRIPTOR_BYTES: u64 = 16;
const FLAG_NEXT: u16 = 1;
const FLAG_WRITE: u16 = 2;
const FLAG_INDIRECT: u16 = 4;
const AVAIL_NO_INTERRUPT: u16 = 1;
const USED_NO_NOTIFY: u16 = 1;

/// A ring that breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// It points to memory that is not shared.
    Memory(NoSuchMemory),
    /// Its size is not a power of two up to 32768.
    Size(u32),
    /// A descriptor's number is beyond the table.
    Descriptor(u16),
    /// A chain is longer than the table, so it runs in a circle.
    Circle,
    /// An indirect descriptor, which was not offered.
    Indirect,
    /// More buffers are offered than there are descriptors.
    Overrun,
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingError::Memory(error) => error.fmt(f),
            RingError::Size(size) => write!(f, "a ring of {size} descriptors"),
            RingError::Descriptor(index) => write!(f, "there is no descriptor {index}"),
            RingError::Circle => f.write_str("a chain of descriptors without an end"),
            RingError::Indirect => f.write_str("an indirect descriptor, which was not offered"),
            RingError::Overrun => f.write_str("more buffers than descriptors"),
        }
    }
}

impl Error for RingError {}

impl From<NoSuchMemory> for RingError {
    fn from(error: NoSuchMemory) -> RingError {
        RingError::Memory(error)
    }
}

/// Buffers that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// By this number they are given back.
    pub head: u16,
    /// To be read: address and length.
    pub readable: Vec<(u64, u32)>,
    /// To be written: address and length.
    pub writable: Vec<(u64, u32)>,
}

impl Chain {
    /// All bytes to be read, one after the other.
    ///
    /// **Errors**: a buffer that is not shared; more than `most` bytes are cut off.
    pub fn read(&self, memory: &GuestMemory, most: usize) -> Result<Vec<u8>, RingError> {
        let mut bytes = Vec::new();
        for (address, length) in &self.readable {
            let length = usize::try_from(*length).unwrap_or(usize::MAX).min(most - bytes.len());
            let start = bytes.len();
            bytes.resize(start + length, 0);
            memory.read(*address, &mut bytes[start..])?;
        }
        Ok(bytes)
    }

    /// Writes bytes into the buffers to be written; `false`, and nothing is promised about them,
    /// when they do not fit.
    ///
    /// **Errors**: a buffer that is not shared.
    pub fn write(&self, memory: &GuestMemory, bytes: &[u8]) -> Result<bool, RingError> {
        let mut rest = bytes;
        for (address, length) in &self.writable {
            let length = usize::try_from(*length).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at(length);
            memory.write(*address, now)?;
            rest = later;
        }
        Ok(rest.is_empty())
    }
}

/// A ring, and how far this side has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitRing {
    size: u16,
    descriptors: u64,
    available: u64,
    used: u64,
    next_available: u16,
    next_used: u16,
}

impl SplitRing {
    /// A ring of so many descriptors, with its three parts at addresses of the guest.
    ///
    /// **Errors**: a size that no ring has.
    pub fn new(
        size: u32,
        descriptors: u64,
        available: u64,
        used: u64,
    ) -> Result<SplitRing, RingError> {
        let small = u16::try_from(size).ok().filter(|s| s.is_power_of_two() && *s <= 32_768);
        let size = small.ok_or(RingError::Size(size))?;
        Ok(SplitRing { size, descriptors, available, used, next_available: 0, next_used: 0 })
    }

    /// Tells the other side not to say when it adds buffers: they are looked for when needed.
    ///
    /// **Errors**: the ring is not in shared memory.
    pub fn be_quiet(&self, memory: &GuestMemory) -> Result<(), RingError> {
        Ok(memory.release_u16(self.used, USED_NO_NOTIFY)?)
    }

    /// The next buffers that the other side has added.
    ///
    /// **Errors**: a ring that breaks the rules.
    pub fn pop(&mut self, memory: &GuestMemory) -> Result<Option<Chain>, RingError> {
        let end = memory.acquire_u16(self.available + 2)?;
        let waiting = end.wrapping_sub(self.next_available);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > self.size {
            return Err(RingError::Overrun);
        }
        let slot = self.available + 4 + 2 * u64::from(self.next_available % self.size);
        let head = memory.acquire_u16(slot)?;
        let chain = self.chain(memory, head)?;
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(chain))
    }

    fn chain(&self, memory: &GuestMemory, head: u16) -> Result<Chain, RingError> {
        let mut chain = Chain { head, readable: Vec::new(), writable: Vec::new() };
        let mut index = head;
        for _ in 0..self.size {
            if index >= self.size {
                return Err(RingError::Descriptor(index));
            }
            let mut bytes = [0; 16];
            memory.read(self.descriptors + DESCRIPTOR_BYTES * u64::from(index), &mut bytes)?;
            let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
            let address = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
            let length = u32::from_le_bytes([l0, l1, l2, l3]);
            let flags = u16::from_le_bytes([f0, f1]);
            if flags & FLAG_INDIRECT != 0 {
                return Err(RingError::Indirect);
            }
            let list =
                if flags & FLAG_WRITE == 0 { &mut chain.readable } else { &mut chain.writable };
            list.push((address, length));
            if flags & FLAG_NEXT == 0 {
                return Ok(chain);
            }
            index = u16::from_le_bytes([n0, n1]);
        }
        Err(RingError::Circle)
    }

    /// Gives buffers back, with so many bytes written to them.
    ///
    /// **Errors**: the ring is not in shared memory.
    pub fn give_back(
        &mut self,
        memory: &GuestMemory,
        head: u16,
        written: u32,
    ) -> Result<(), RingError> {
        let slot = self.used + 4 + 8 * u64::from(self.next_used % self.size);
        let mut entry = [0; 8];
        entry[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        entry[4..].copy_from_slice(&written.to_le_bytes());
        memory.write(slot, &entry)?;
        self.next_used = self.next_used.wrapping_add(1);
        Ok(memory.release_u16(self.used + 2, self.next_used)?)
    }

    /// Whether the other side wants to be told about buffers given back.
    ///
    /// **Errors**: the ring is not in shared memory.
    pub fn wants_interrupt(&self, memory: &GuestMemory) -> Result<bool, RingError> {
        // What was given back must be visible before the request is read (virtio 1.2, 2.7.7.1).
        fence(Ordering::SeqCst);
        Ok(memory.acquire_u16(self.available)? & AVAIL_NO_INTERRUPT == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::file;
    use super::*;

    const SIZE: u32 = 8;
    const TABLE: u64 = 0;
    const AVAIL: u64 = 0x400;
    const USED: u64 = 0x800;
    const DATA: u64 = 0xc00;

    fn ring() -> (GuestMemory, SplitRing) {
        let mut memory = GuestMemory::new();
        memory.add(&file(4_096), 0, 4_096, 0, 0).unwrap();
        (memory, SplitRing::new(SIZE, TABLE, AVAIL, USED).unwrap())
    }

    /// What a driver does.
    fn describe(memory: &GuestMemory, index: u16, at: u64, length: u32, flags: u16, next: u16) {
        let mut bytes = at.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        memory.write(TABLE + 16 * u64::from(index), &bytes).unwrap();
    }

    fn offer(memory: &GuestMemory, head: u16) {
        let index = memory.acquire_u16(AVAIL + 2).unwrap();
        memory.release_u16(AVAIL + 4 + 2 * u64::from(index % 8), head).unwrap();
        memory.release_u16(AVAIL + 2, index.wrapping_add(1)).unwrap();
    }

    #[test]
    fn t0_buffers_go_there_and_back() {
        let (memory, mut ring) = ring();
        assert_eq!(ring.pop(&memory), Ok(None));
        memory.write(DATA, b"abcdef").unwrap();
        describe(&memory, 3, DATA, 4, FLAG_NEXT, 5);
        describe(&memory, 5, DATA + 4, 2, FLAG_NEXT, 1);
        describe(&memory, 1, DATA + 64, 3, FLAG_WRITE, 0);
        offer(&memory, 3);
        let chain = ring.pop(&memory).unwrap().unwrap();
        assert_eq!(chain.read(&memory, 100), Ok(b"abcdef".to_vec()));
        assert_eq!(chain.read(&memory, 5), Ok(b"abcde".to_vec()));
        assert_eq!(chain.write(&memory, b"xyz"), Ok(true));
        assert_eq!(chain.write(&memory, b"wxyz"), Ok(false));
        assert_eq!(ring.pop(&memory), Ok(None));
        ring.give_back(&memory, 3, 3).unwrap();
        assert_eq!(memory.acquire_u16(USED + 2), Ok(1));
        let mut entry = [0; 8];
        memory.read(USED + 4, &mut entry).unwrap();
        assert_eq!(entry, [3, 0, 0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn t0_indices_wrap() {
        let (memory, mut ring) = ring();
        describe(&memory, 0, DATA, 1, 0, 0);
        for _ in 0..70_000 {
            offer(&memory, 0);
            let chain = ring.pop(&memory).unwrap().unwrap();
            ring.give_back(&memory, chain.head, 0).unwrap();
        }
        assert_eq!(memory.acquire_u16(USED + 2), memory.acquire_u16(AVAIL + 2));
        assert_eq!(ring.pop(&memory), Ok(None));
    }

    #[test]
    fn t0_specs_are_heard_and_told() {
        let (memory, ring) = ring();
        assert_eq!(ring.wants_interrupt(&memory), Ok(true));
        memory.release_u16(AVAIL, AVAIL_NO_INTERRUPT).unwrap();
        assert_eq!(ring.wants_interrupt(&memory), Ok(false));
        ring.be_quiet(&memory).unwrap();
        assert_eq!(memory.acquire_u16(USED), Ok(1));
    }

    #[test]
    fn t0_broken_rings_are_refused() {
        let (memory, mut ring) = ring();
        describe(&memory, 0, DATA, 1, FLAG_NEXT, 0);
        offer(&memory, 0);
        assert_eq!(ring.pop(&memory), Err(RingError::Circle));
        describe(&memory, 0, DATA, 1, FLAG_NEXT, 8);
        assert_eq!(ring.pop(&memory), Err(RingError::Descriptor(8)));
        describe(&memory, 0, DATA, 1, FLAG_INDIRECT, 0);
        assert_eq!(ring.pop(&memory), Err(RingError::Indirect));
        describe(&memory, 0, 1 << 40, 1, 0, 0);
        let chain = ring.pop(&memory).unwrap().unwrap();
        assert!(matches!(chain.read(&memory, 9), Err(RingError::Memory(_))));
        memory.release_u16(AVAIL + 2, 100).unwrap();
        assert_eq!(ring.pop(&memory), Err(RingError::Overrun));
        for size in [0, 3, 65_536] {
            assert_eq!(SplitRing::new(size, 0, 0, 0), Err(RingError::Size(size)));
        }
    }
}
