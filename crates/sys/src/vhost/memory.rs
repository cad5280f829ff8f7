// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of another kernel, as far as it shares it.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::socket::check;

/// An address range that the other kernel does not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchMemory {
    /// Its first address.
    pub address: u64,
    /// **Units**: bytes.
    pub length: usize,
}

impl fmt::Display for NoSuchMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x} are not in the memory it shares", self.length, self.address)
    }
}

impl Error for NoSuchMemory {}

/// Mappings of another kernel's memory. Both sides read and write it at any time, so what is read
/// is bytes without meaning until they have been checked; nothing here hands out references.
#[derive(Debug, Default)]
pub struct GuestMemory {
    regions: Vec<Region>,
}

#[derive(Debug)]
struct Region {
    guest: u64,
    user: u64,
    length: usize,
    start: NonNull<u8>,
}

// SAFETY: a region is a mapping that any thread of the process may use; it is only accessed through
// raw pointers, volatile or atomic, and unmapped by its owner.
unsafe impl Send for Region {}

impl GuestMemory {
    /// None yet.
    pub fn new() -> GuestMemory {
        GuestMemory::default()
    }

    /// Maps a region: `length` bytes of the file from `offset` on are at `guest` for the devices'
    /// descriptors, and at `user` for the addresses of rings.
    ///
    /// **Errors**: those of `mmap()`; a region longer than the file, which could be mapped but not
    /// used; a length of zero.
    pub fn add(
        &mut self,
        file: &OwnedFd,
        offset: u64,
        length: u64,
        guest: u64,
        user: u64,
    ) -> io::Result<()> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "no region of the file");
        let end = offset.checked_add(length).ok_or_else(invalid)?;
        let bytes = usize::try_from(length).map_err(|_| invalid())?;
        let at = libc::off_t::try_from(offset).map_err(|_| invalid())?;
        guest.checked_add(length).and(user.checked_add(length)).ok_or_else(invalid)?;
        if end > file_length(file)? {
            return Err(invalid());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of a file, wherever there is room; it replaces nothing.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), at)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(invalid)?;
        self.regions.push(Region { guest, user, length: bytes, start });
        Ok(())
    }

    /// The address for descriptors of a ring's address.
    ///
    /// **Errors**: it is in no region.
    pub fn guest_address(&self, user: u64) -> Result<u64, NoSuchMemory> {
        let inside = |region: &&Region| {
            user.checked_sub(region.user)
                .is_some_and(|at| usize::try_from(at).is_ok_and(|at| at < region.length))
        };
        let region = self.regions.iter().find(inside);
        let region = region.ok_or(NoSuchMemory { address: user, length: 1 })?;
        Ok(region.guest + (user - region.user))
    }

    /// Copies bytes out.
    ///
    /// **Errors**: they are not all in one region.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), NoSuchMemory> {
        let from = self.pointer(address, bytes.len())?;
        for (i, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: `from` starts `bytes.len()` bytes inside a live mapping; volatile, because
            // the other kernel may write them meanwhile.
            *byte = unsafe { ptr::read_volatile(from.as_ptr().add(i)) };
        }
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// **Errors**: as [`GuestMemory::read`].
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), NoSuchMemory> {
        let to = self.pointer(address, bytes.len())?;
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: as in `read`; nothing of this process has a reference to them.
            unsafe { ptr::write_volatile(to.as_ptr().add(i), *byte) };
        }
        Ok(())
    }

    /// Reads a number that the other kernel publishes with what it wrote before.
    ///
    /// **Errors**: as [`GuestMemory::read`]; an odd address.
    pub fn acquire_u16(&self, address: u64) -> Result<u16, NoSuchMemory> {
        Ok(u16::from_le(self.atomic(address)?.load(Ordering::Acquire)))
    }

    /// Publishes a number, and with it what was written before.
    ///
    /// **Errors**: as [`GuestMemory::acquire_u16`].
    pub fn release_u16(&self, address: u64, value: u16) -> Result<(), NoSuchMemory> {
        self.atomic(address)?.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    fn atomic(&self, address: u64) -> Result<&AtomicU16, NoSuchMemory> {
        let at = self.pointer(address, 2)?.cast::<u16>();
        if !at.is_aligned() {
            return Err(NoSuchMemory { address, length: 2 });
        }
        // SAFETY: aligned, inside a mapping that lives as long as `self`, and this process never
        // makes a reference to it that is not atomic.
        Ok(unsafe { AtomicU16::from_ptr(at.as_ptr()) })
    }

    fn pointer(&self, address: u64, length: usize) -> Result<NonNull<u8>, NoSuchMemory> {
        let within = |region: &Region| {
            let at = usize::try_from(address.checked_sub(region.guest)?).ok()?;
            let end = at.checked_add(length)?;
            // SAFETY: `at` is at most the region's length.
            (end <= region.length).then(|| unsafe { region.start.add(at) })
        };
        self.regions.iter().find_map(within).ok_or(NoSuchMemory { address, length })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap() gave; pointers into it do not outlive `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn file_length(file: &OwnedFd) -> io::Result<u64> {
    // SAFETY: all-zero is a valid stat (plain integers).
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a live descriptor and a writable stat.
    check(unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) })?;
    u64::try_from(stat.st_size).map_err(|_| io::Error::other("a file of negative length"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::FromRawFd;

    /// A file in memory.
    pub fn file(bytes: u64) -> OwnedFd {
        // SAFETY: a NUL-terminated name and a valid flag.
        let fd = check(unsafe { libc::memfd_create(c"t".as_ptr(), libc::MFD_CLOEXEC) }).unwrap();
        // SAFETY: the descriptor is new and nobody else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes).unwrap();
        file.into()
    }

    #[test]
    fn t0_memory_is_read_and_written_where_it_is() {
        let file = file(8_192);
        let (mut one, mut other) = (GuestMemory::new(), GuestMemory::new());
        one.add(&file, 4_096, 4_096, 0x10_000, 0x90_000).unwrap();
        other.add(&file, 0, 8_192, 0, 0).unwrap();
        one.write(0x10_010, b"hello").unwrap();
        let mut bytes = [0; 5];
        other.read(4_096 + 16, &mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        other.release_u16(4_096, 0x1234).unwrap();
        assert_eq!(one.acquire_u16(0x10_000), Ok(0x1234));
        assert_eq!(one.guest_address(0x90_010), Ok(0x10_010));
    }

    #[test]
    fn t0_memory_that_is_not_shared_is_refused() {
        let file = file(4_096);
        let mut memory = GuestMemory::new();
        assert!(memory.add(&file, 0, 8_192, 0, 0).is_err());
        assert!(memory.add(&file, 0, 4_096, u64::MAX - 10, 0).is_err());
        assert!(memory.add(&file, u64::MAX, 4_096, 0, 0).is_err());
        memory.add(&file, 0, 4_096, 0x1000, 0x1000).unwrap();
        let mut bytes = [0; 2];
        for address in [0, 0xfff, 0x1fff, 0x2000, u64::MAX] {
            let refused = memory.read(address, &mut bytes).unwrap_err();
            assert_eq!((refused.address, refused.length), (address, 2));
        }
        assert!(memory.acquire_u16(0x1001).is_err());
        assert!(memory.guest_address(0x2000).is_err() && memory.guest_address(0xfff).is_err());
    }
}
