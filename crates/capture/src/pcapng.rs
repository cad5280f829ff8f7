// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks of a capture file that Wireshark and `tcpdump` read: frames with timestamps in
//! nanoseconds, their direction, and what was dropped.
//!
//! Every block is written whole into a buffer of the caller, or not at all: put one after the other
//! they are the file. Nothing is allocated. First a section ([`Section`]), then its interfaces
//! ([`Interface`]), which are numbered from 0 in this order, then packets ([`Packet`]) and, when
//! the capture ends, the counters of each interface ([`InterfaceStatistics`]).
//!
//! Numbers are little endian, whatever the machine: a file has the same bytes everywhere.
//!
//! **Source**: draft-ietf-opsawg-pcapng-03: 3 (blocks, options), 4.1 (section), 4.2 (interface),
//! 4.3 (enhanced packet), 4.6 (statistics).
//!
//! Not here: files and when to begin another (`timewire-datapath`), reading captures
//! ([`crate::pcap`]).

#[cfg(test)]
pub(crate) mod tests;

use thiserror::Error;
use timewire_base::Instant;

use crate::timestamps::{ClockScale, TimestampClock};

/// Why a block was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PcapngError {
    /// The buffer is too short. Nothing of use is in it.
    #[error("a block of {needed} bytes does not fit {room}")]
    NoRoom {
        /// Bytes that the block takes.
        needed: usize,
        /// Bytes that there are.
        room: usize,
    },
    /// An option is longer than its 16 bits of length allow.
    #[error("an option of {bytes} bytes is longer than {max}")]
    LongOption {
        /// Bytes that it has.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A frame is longer than any.
    #[error("a frame of {bytes} bytes is longer than {max}")]
    LongFrame {
        /// Bytes that it has.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// More bytes of a frame are given than it had.
    #[error("{captured} bytes of a frame of {original}")]
    MoreThanAll {
        /// Bytes that are given.
        captured: usize,
        /// Bytes that it had.
        original: u32,
    },
    /// The format has no time before 1970.
    #[error("{ns} ns lies before 1970, and a capture has no such time")]
    Before1970 {
        /// The time.
        ns: i64,
    },
}

/// The longest text or other option. **Units**: bytes.
pub const MAX_OPTION_BYTES: usize = 65_535;
/// The longest frame. **Units**: bytes; as `tcpdump` accepts.
pub const MAX_FRAME_BYTES: usize = 262_144;

/// The start of a file, or of a part of it that stands alone. Texts may be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section<'a> {
    /// What machine captured.
    pub hardware: &'a str,
    /// Its operating system.
    pub os: &'a str,
    /// The program.
    pub application: &'a str,
    /// Anything else.
    pub comment: &'a str,
}

/// Which clock the timestamps of an interface are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureClock {
    /// UTC: written as they are.
    Utc,
    /// TAI: written as they are, and the reader is told to subtract so many seconds (37 since 2017)
    /// to show UTC.
    Tai {
        /// TAI less UTC. **Units**: seconds.
        ahead_s: i32,
    },
    /// Another, written as it is; a reader shows it as if it were UTC.
    Other,
}

impl CaptureClock {
    /// The clock of a timestamp, where TAI is so many seconds ahead of UTC. A NIC's clock usually
    /// shows TAI, but only its user knows.
    pub fn of(clock: TimestampClock, tai_ahead_s: i32) -> CaptureClock {
        match clock {
            TimestampClock::Utc => CaptureClock::Utc,
            TimestampClock::Tai => CaptureClock::Tai { ahead_s: tai_ahead_s },
            TimestampClock::Mono | TimestampClock::Phc(_) => CaptureClock::Other,
        }
    }
}

/// An Ethernet interface that frames were captured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Its name.
    pub name: &'a str,
    /// What else to say of it, such as which timestamps these are; may be empty.
    pub description: &'a str,
    /// At most so many bytes of a frame are given; 0 for all.
    pub snap_len: u32,
    /// The clock of its timestamps.
    pub clock: CaptureClock,
}

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Number of its interface in the section.
    pub interface: u32,
    /// Its timestamp, on the interface's clock. **Units**: nanoseconds since the clock's epoch.
    pub at_ns: i64,
    /// Its bytes from the destination address on, without the check sequence; the first of them
    /// when it is cut.
    pub frame: &'a [u8],
    /// How long it was. **Units**: bytes.
    pub original_len: u32,
    /// Which way it went, when known.
    pub direction: Option<Direction>,
    /// A number that names the same frame wherever else it was captured.
    pub packet_id: Option<u64>,
    /// What to say of it; may be empty.
    pub comment: &'a str,
}

impl<'a> Packet<'a> {
    /// A whole frame, of which nothing else is known.
    pub fn whole<S: ClockScale>(interface: u32, at: Instant<S>, frame: &'a [u8]) -> Packet<'a> {
        Packet {
            interface,
            at_ns: at.as_ns(),
            frame,
            original_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            direction: None,
            packet_id: None,
            comment: "",
        }
    }
}

/// What an interface counted, at a time of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceStatistics {
    /// Number of the interface in the section.
    pub interface: u32,
    /// When it was read. **Units**: nanoseconds since the epoch of the interface's clock.
    pub at_ns: i64,
    /// Frames that it received, where known.
    pub received: Option<u64>,
    /// Frames that the interface dropped for want of room, where known.
    pub dropped: Option<u64>,
}

// Blocks, 4; options of each, 3.5 and 4.1 to 4.6.
const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
const LINKTYPE_ETHERNET: u16 = 1;
const NANOSECONDS: u8 = 9;
const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_HARDWARE: u16 = 2;
const SHB_OS: u16 = 3;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
const EPB_FLAGS: u16 = 2;
const EPB_PACKETID: u16 = 5;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;

impl Section<'_> {
    /// Writes the block; returns its length.
    ///
    /// **Errors**: no room; a text is too long.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, PcapngError> {
        let mut block = Block::start(out, SECTION_HEADER);
        block.u32(BYTE_ORDER);
        block.u16(1);
        block.u16(0);
        // The length of the section is not known as it begins.
        block.u64(u64::MAX);
        block.text(OPT_COMMENT, self.comment)?;
        block.text(SHB_HARDWARE, self.hardware)?;
        block.text(SHB_OS, self.os)?;
        block.text(SHB_USERAPPL, self.application)?;
        block.end()
    }
}

impl Interface<'_> {
    /// Writes the block; returns its length.
    ///
    /// **Errors**: no room; a text is too long.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, PcapngError> {
        let mut block = Block::start(out, INTERFACE_DESCRIPTION);
        block.u16(LINKTYPE_ETHERNET);
        block.u16(0);
        block.u32(self.snap_len);
        block.text(IF_NAME, self.name)?;
        block.text(IF_DESCRIPTION, self.description)?;
        block.option(IF_TSRESOL, &[NANOSECONDS])?;
        if let CaptureClock::Tai { ahead_s } = self.clock {
            block.option(IF_TSOFFSET, &(-i64::from(ahead_s)).to_le_bytes())?;
        }
        block.end()
    }
}

impl Packet<'_> {
    /// Writes the block; returns its length, at most 80 bytes more than frame and comment.
    ///
    /// **Errors**: no room; frame or comment is too long; the timestamp lies before 1970.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, PcapngError> {
        let bytes = self.frame.len();
        let captured = u32::try_from(bytes).ok().filter(|_| bytes <= MAX_FRAME_BYTES);
        let captured = captured.ok_or(PcapngError::LongFrame { bytes, max: MAX_FRAME_BYTES })?;
        if captured > self.original_len {
            let original = self.original_len;
            return Err(PcapngError::MoreThanAll { captured: bytes, original });
        }
        let mut block = Block::start(out, ENHANCED_PACKET);
        block.u32(self.interface);
        block.time(self.at_ns)?;
        block.u32(captured);
        block.u32(self.original_len);
        block.padded(self.frame);
        block.text(OPT_COMMENT, self.comment)?;
        if let Some(direction) = self.direction {
            let flags: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            block.option(EPB_FLAGS, &flags.to_le_bytes())?;
        }
        if let Some(id) = self.packet_id {
            block.option(EPB_PACKETID, &id.to_le_bytes())?;
        }
        block.end()
    }
}

impl InterfaceStatistics {
    /// Writes the block; returns its length.
    ///
    /// **Errors**: no room; the time lies before 1970.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, PcapngError> {
        let mut block = Block::start(out, INTERFACE_STATISTICS);
        block.u32(self.interface);
        block.time(self.at_ns)?;
        for (code, count) in [(ISB_IFRECV, self.received), (ISB_IFDROP, self.dropped)] {
            if let Some(count) = count {
                block.option(code, &count.to_le_bytes())?;
            }
        }
        block.end()
    }
}

/// A block as it is written. What does not fit is only counted, so that the end can say how much
/// room is needed.
struct Block<'a> {
    out: &'a mut [u8],
    len: usize,
    options: bool,
}

impl<'a> Block<'a> {
    fn start(out: &'a mut [u8], kind: u32) -> Block<'a> {
        let mut block = Block { out, len: 0, options: false };
        block.u32(kind);
        // The length stands here when it is known.
        block.u32(0);
        block
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(place) = self.out.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
        }
        self.len = end;
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
        self.bytes(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// The high half goes first.
    fn time(&mut self, ns: i64) -> Result<(), PcapngError> {
        let ns = u64::try_from(ns).map_err(|_| PcapngError::Before1970 { ns })?.to_le_bytes();
        self.bytes(&ns[4..]);
        self.bytes(&ns[..4]);
        Ok(())
    }

    fn option(&mut self, code: u16, value: &[u8]) -> Result<(), PcapngError> {
        let (bytes, max) = (value.len(), MAX_OPTION_BYTES);
        let len = u16::try_from(bytes).map_err(|_| PcapngError::LongOption { bytes, max })?;
        self.u16(code);
        self.u16(len);
        self.padded(value);
        self.options = true;
        Ok(())
    }

    fn text(&mut self, code: u16, text: &str) -> Result<(), PcapngError> {
        if text.is_empty() { Ok(()) } else { self.option(code, text.as_bytes()) }
    }

    fn end(mut self) -> Result<usize, PcapngError> {
        if self.options {
            self.u16(OPT_END);
            self.u16(0);
        }
        let needed = self.len + 4;
        let room = self.out.len();
        let len = u32::try_from(needed).expect("invariant: frame and options are bounded");
        self.u32(len);
        if needed > room {
            return Err(PcapngError::NoRoom { needed, room });
        }
        self.out[4..8].copy_from_slice(&len.to_le_bytes());
        Ok(needed)
    }
}
