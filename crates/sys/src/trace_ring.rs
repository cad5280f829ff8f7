// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings of records that programs in the kernel write and this process reads, without a system call
//! and without a copy: two maps of the kernel (`BPF_F_MMAPABLE` arrays), mapped.
//!
//! **Shape**: the first map has one value for each CPU: at its byte 0 the count of records that
//! were taken (u64, written here alone), the rest are words that the programs count in. The second
//! has the records of all CPUs, `slots` of 48 bytes each; a record whose first word is 0 is none
//! yet. A program takes a slot, writes the record and its first word last.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// **Units**: bytes of a record.
pub const RECORD_BYTES: usize = 48;

/// The system calls that send a message.
pub const SENDING_CALLS: [libc::c_long; 4] =
    [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_write];

/// Memory that is shared with the kernel.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is not tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
        // SAFETY: a new shared mapping without an address hint has no preconditions.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("invariant: mmap without hint is never null");
        Ok(Mapping { base, bytes })
    }

    /// The word at a byte.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "{at} is no word of {}", self.bytes);
        // SAFETY: the word lies in the mapping, which lives as long as `self`, and is aligned (a
        // mapping begins with a page); others touch it as a whole word only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping that `new` made, and no reference is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The rings of all CPUs.
#[derive(Debug)]
pub struct TraceRings {
    cpus: Mapping,
    records: Mapping,
    count: usize,
    cpu_bytes: usize,
    slots: usize,
}

impl TraceRings {
    /// Maps the two maps: `cpus` has `count` values of `cpu_bytes`, `records` has `count * slots`
    /// records.
    ///
    /// **Errors**: maps that are smaller or may not be mapped.
    ///
    /// **Panics** when `slots` is no power of two, or a value is no whole number of words.
    pub fn map(
        cpus: BorrowedFd<'_>,
        records: BorrowedFd<'_>,
        count: usize,
        cpu_bytes: usize,
        slots: usize,
    ) -> io::Result<TraceRings> {
        assert!(slots.is_power_of_two() && cpu_bytes.is_multiple_of(8), "invariant: the shape");
        let cpus = Mapping::new(cpus, count * cpu_bytes)?;
        let records = Mapping::new(records, count * slots * RECORD_BYTES)?;
        Ok(TraceRings { cpus, records, count, cpu_bytes, slots })
    }

    /// How many CPUs there are.
    pub fn cpus(&self) -> usize {
        self.count
    }

    /// A word of a CPU's value.
    ///
    /// **Panics** when there is no such CPU or word.
    pub fn word(&self, cpu: usize, word: usize) -> u64 {
        assert!(cpu < self.count && (word + 1) * 8 <= self.cpu_bytes, "no word {word} of {cpu}");
        self.cpus.word(cpu * self.cpu_bytes + word * 8).load(Ordering::Relaxed)
    }

    /// Takes the records of a CPU that are there now, in the order of their slots, at most as many
    /// as fit a ring; tells how many. The slices are of the ring itself.
    ///
    /// **Panics** when there is no such CPU.
    pub fn drain(&mut self, cpu: usize, take: &mut dyn FnMut(&[[u8; RECORD_BYTES]])) -> usize {
        assert!(cpu < self.count, "there is no CPU {cpu}");
        let tail = self.cpus.word(cpu * self.cpu_bytes);
        let mut taken = tail.load(Ordering::Relaxed);
        let mut all = 0;
        while all < self.slots {
            let within = u64::try_from(self.slots - 1).expect("invariant: usize fits u64") & taken;
            let first = usize::try_from(within).expect("invariant: less than the slots");
            let most = (self.slots - first).min(self.slots - all);
            let ready = (0..most).take_while(|n| self.mark(cpu, first + n) != 0).count();
            if ready == 0 {
                break;
            }
            let start = (cpu * self.slots + first) * RECORD_BYTES;
            // SAFETY: the records lie in the mapping; the kernel has written the mark of each last
            // (it was read with acquire), and does not touch them again until `tail` has passed
            // them; nobody else does, for `self` is borrowed exclusively. Bytes need no alignment.
            let records = unsafe {
                let base = self.records.base.as_ptr().add(start).cast::<[u8; RECORD_BYTES]>();
                std::slice::from_raw_parts(base, ready)
            };
            take(records);
            for n in first..first + ready {
                self.slot(cpu, n).store(0, Ordering::Relaxed);
            }
            taken += u64::try_from(ready).expect("invariant: usize fits u64");
            // The kernel must see the slots empty when it sees them free.
            tail.store(taken, Ordering::Release);
            all += ready;
        }
        all
    }

    fn mark(&self, cpu: usize, slot: usize) -> u64 {
        self.slot(cpu, slot).load(Ordering::Acquire)
    }

    /// The first word of a record.
    fn slot(&self, cpu: usize, slot: usize) -> &AtomicU64 {
        self.records.word((cpu * self.slots + slot) * RECORD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, FromRawFd};

    use super::*;

    /// Memory that both sides can have.
    fn memory(bytes: usize) -> File {
        // SAFETY: the name is NUL-terminated; the descriptor is new and nobody else owns it.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"ring".as_ptr(), 0)) };
        file.set_len(u64::try_from(bytes).unwrap()).unwrap();
        file
    }

    #[test]
    fn t0_records_come_once_and_in_order_and_only_when_they_are_whole() {
        const SLOTS: usize = 8;
        let (cpus, records) = (memory(2 * 64), memory(2 * SLOTS * RECORD_BYTES));
        let open = || TraceRings::map(cpus.as_fd(), records.as_fd(), 2, 64, SLOTS).unwrap();
        let (mut reader, writer) = (open(), open());
        let put = |cpu: usize, number: u64| {
            let slot = usize::try_from(number).unwrap() % SLOTS;
            writer.slot(cpu, slot).store(number + 1, Ordering::Release);
        };
        let mut taken = Vec::new();
        let mut drain = |cpu: usize| {
            taken.clear();
            let mut batches = 0;
            reader.drain(cpu, &mut |records| {
                batches += 1;
                let mark = |r: &[u8; 48]| u64::from_le_bytes(r[..8].try_into().unwrap());
                taken.extend(records.iter().map(mark));
            });
            (taken.clone(), batches)
        };
        assert_eq!(drain(0), (vec![], 0));
        (0..6).for_each(|n| put(0, n));
        put(0, 7);
        // The slot between is not written yet.
        assert_eq!(drain(0), ((1..=6).collect(), 1));
        assert_eq!(drain(0), (vec![], 0));
        assert_eq!(drain(1), (vec![], 0));
        put(0, 6);
        put(0, 8);
        assert_eq!(drain(0), (vec![7, 8, 9], 2));
        assert_eq!((writer.word(0, 0), writer.word(1, 0)), (9, 0));
        assert!((0..SLOTS).all(|slot| writer.mark(0, slot) == 0));
        // A full ring is taken once, also if it fills up again meanwhile.
        (9..17).for_each(|n| put(0, n));
        assert_eq!(drain(0), ((10..=17).collect(), 2));
    }
}
