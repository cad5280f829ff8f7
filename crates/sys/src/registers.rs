// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of a PCI device, as the kernel shows them in the device's file `resource0`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};

/// Registers of 32 bits, mapped until dropped.
#[derive(Debug)]
pub struct Registers {
    start: NonNull<libc::c_void>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to the thread that made it.
unsafe impl Send for Registers {}

impl Registers {
    /// Maps a resource of a device.
    ///
    /// **Errors**: needs root and a kernel that allows it while a driver has the device
    /// (`iomem=relaxed`): `EINVAL` or `PermissionDenied` otherwise.
    pub fn open(resource: &Path) -> io::Result<Registers> {
        let file = File::options().read(true).write(true).open(resource)?;
        let length = usize::try_from(file.metadata()?.len())
            .map_err(|_| io::Error::other("a resource larger than memory"))?;
        // SAFETY: a new shared mapping at an address of the kernel's choice, of a live descriptor,
        // as long as the resource; it replaces no other.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED => Ok(Registers { start, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Reads a register, with whatever reading it does to the device.
    ///
    /// **Panics** outside the resource, or off a boundary of four bytes.
    pub fn read(&self, offset: usize) -> u32 {
        // SAFETY: `at` gives an aligned address inside the mapping, which lives as long as `self`;
        // a device may change it at any time, hence volatile.
        unsafe { self.at(offset).read_volatile() }
    }

    /// Writes a register.
    ///
    /// **Panics** as [`Registers::read`].
    pub fn write(&self, offset: usize, value: u32) {
        // SAFETY: as in `read`; the mapping is writable.
        unsafe { self.at(offset).write_volatile(value) }
    }

    fn at(&self, offset: usize) -> *mut u32 {
        assert!(
            offset.is_multiple_of(4) && offset + 4 <= self.length,
            "a register inside the resource"
        );
        self.start.as_ptr().wrapping_byte_add(offset).cast()
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nobody uses it any more. A failure
        // leaves a mapping behind, which harms nobody.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_registers_are_read_and_written_where_they_are() {
        let path = std::env::temp_dir().join(format!("timewire-registers-{}", std::process::id()));
        std::fs::write(&path, [0_u8; 4096]).unwrap();
        let registers = Registers::open(&path).unwrap();
        registers.write(8, 0x0102_0304);
        assert_eq!((registers.read(8), registers.read(12)), (0x0102_0304, 0));
        drop(registers);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[8..12], 0x0102_0304_u32.to_ne_bytes());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    #[should_panic(expected = "inside the resource")]
    fn t0_a_register_outside_is_refused() {
        let path = std::env::temp_dir().join(format!("timewire-outside-{}", std::process::id()));
        std::fs::write(&path, [0_u8; 16]).unwrap();
        let registers = Registers::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        registers.read(16);
    }
}
