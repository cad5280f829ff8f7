// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame memory: one locked mapping cut into equal buffers. AF_XDP uses it as its UMEM,
//! AF_PACKET reads into it and sends from it, so that a frame is never copied in user space and
//! nothing is allocated once traffic runs.
//!
//! Frames are named by plain values, so a queue can hold them; their bytes are only touched here.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Where the bytes of one received frame lie in the [`FrameMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub(crate) address: u64,
    pub(crate) length: u32,
}

impl Frame {
    /// Length in bytes, without the check sequence.
    pub fn len(self) -> u32 {
        self.length
    }

    /// Whether there are no bytes.
    pub fn is_empty(self) -> bool {
        self.length == 0
    }
}

/// A mapping of equal frame buffers.
///
/// **Shape**: `count` buffers of [`FrameMemory::BUFFER`] bytes each.
#[derive(Debug)]
pub struct FrameMemory {
    base: NonNull<u8>,
    count: u32,
}

// SAFETY: the mapping is plain memory, not tied to a thread; all access goes through raw copies
// that check their bounds.
unsafe impl Send for FrameMemory {}
// SAFETY: as above; `&FrameMemory` hands out no references into the mapping.
unsafe impl Sync for FrameMemory {}

impl FrameMemory {
    /// Size of one buffer: holds a 1522-byte frame and the headroom that XDP asks for.
    pub const BUFFER: u32 = 2_048;
    /// Room kept before a frame read from AF_PACKET, as XDP keeps it.
    pub(crate) const HEADROOM: u32 = 256;

    /// Maps memory for so many frames, populated at once.
    pub fn new(count: u32) -> io::Result<Arc<FrameMemory>> {
        let bytes = Self::bytes_of(count);
        // SAFETY: an anonymous private mapping with no address hint has no preconditions.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("invariant: mmap without hint is never null");
        Ok(Arc::new(FrameMemory { base, count }))
    }

    /// How many buffers there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    fn bytes_of(count: u32) -> usize {
        usize::try_from(count).expect("invariant: u32 fits usize on Linux") * Self::BUFFER as usize
    }

    pub(crate) fn byte_len(&self) -> usize {
        Self::bytes_of(self.count)
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Pointer to `length` bytes at `address`, after checking that they lie in the mapping.
    pub(crate) fn at(&self, address: u64, length: u32) -> *mut u8 {
        let start = usize::try_from(address).expect("invariant: an address lies in the mapping");
        let end = start + length as usize;
        assert!(end <= self.byte_len(), "frame at {start}..{end} lies outside the frame memory");
        // SAFETY: start <= end <= the size of the mapping, so the result stays inside or at its
        // end.
        unsafe { self.base.as_ptr().add(start) }
    }

    /// Copies the first bytes of a frame; returns how many there were.
    pub fn copy_prefix(&self, frame: Frame, into: &mut [u8]) -> usize {
        let wanted = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let count = frame.length.min(wanted);
        let from = self.at(frame.address, count);
        // SAFETY: `at` checked that `count` bytes are inside the mapping, `into` holds at least as
        // many, and the two cannot overlap because nobody holds a reference into the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), count as usize) };
        count as usize
    }

    /// Overwrites the buffer `index` with the bytes of a frame; for senders that make frames.
    ///
    /// **Panics** when the frame is longer than a buffer can hold or there is no such buffer.
    pub fn write(&self, index: u32, bytes: &[u8]) -> Frame {
        assert!(index < self.count, "no buffer {index} of {}", self.count);
        let length = u32::try_from(bytes.len()).expect("invariant: a frame fits its buffer");
        assert!(length <= Self::BUFFER - Self::HEADROOM, "{length} bytes exceed a buffer");
        let address = u64::from(index) * u64::from(Self::BUFFER) + u64::from(Self::HEADROOM);
        let to = self.at(address, length);
        // SAFETY: `at` checked the bounds; nobody holds a reference into the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Frame { address, length }
    }

    /// Which buffer a frame lies in.
    pub fn buffer_of(&self, frame: Frame) -> u32 {
        u32::try_from(frame.address / u64::from(Self::BUFFER))
            .expect("invariant: an address lies in the mapping")
    }
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this size, and with the last owner gone no
        // socket of ours uses it (each keeps an `Arc`).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.byte_len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_frames_keep_their_bytes_and_their_buffer() {
        let memory = FrameMemory::new(4).unwrap();
        let frame = memory.write(3, b"hello, wire");
        assert_eq!((frame.len(), memory.buffer_of(frame)), (11, 3));
        let mut into = [0; 5];
        assert_eq!(memory.copy_prefix(frame, &mut into), 5);
        assert_eq!(&into, b"hello");
        assert_eq!(memory.copy_prefix(frame, &mut [0; 64]), 11);
    }

    #[test]
    #[should_panic(expected = "outside the frame memory")]
    fn t0_a_frame_outside_the_memory_is_a_bug() {
        let memory = FrameMemory::new(1).unwrap();
        memory.copy_prefix(Frame { address: 2_040, length: 9 }, &mut [0; 16]);
    }
}
