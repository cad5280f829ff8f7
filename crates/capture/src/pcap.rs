// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading captures of other tools, and of `listen --pcap`: pcapng and classic pcap, of Ethernet,
//! one frame after the other. Only the block at hand is in memory.
//!
//! **Source**: draft-ietf-opsawg-pcapng-03: 3.1 (blocks), 4.1 (section), 4.2 (interface), 4.3
//! (enhanced packet); draft-ietf-opsawg-pcap-06: 4 (file header), 5 (packet record).

use std::collections::BTreeMap;
use std::io::{self, Read};

use thiserror::Error;

/// Why a capture cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PcapError {
    /// The source fails.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is neither of the two formats.
    #[error("it is no capture: it begins neither as pcapng nor as pcap")]
    NotACapture,
    /// It ends within a block.
    #[error("it ends within the block that begins at byte {offset}")]
    Truncated {
        /// Where the block begins.
        offset: u64,
    },
    /// Something in it cannot be.
    #[error("the block at byte {offset} is damaged: {what}")]
    Damaged {
        /// Where the block begins.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Its frames are not of Ethernet.
    #[error("its packets are of link type {found}; only Ethernet, 1, has what is asked for")]
    LinkType {
        /// What it is.
        found: u16,
    },
    /// A packet without a time.
    #[error("the packet at byte {offset} has no time, as simple packet blocks have none")]
    NoTime {
        /// Where its block begins.
        offset: u64,
    },
}

/// A frame of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// When it was captured; times finer than a nanosecond are cut. **Units**: ns since 1970.
    pub at_ns: i64,
    /// Its length when it was on the link, without its check sequence. **Units**: bytes.
    pub original_len: u32,
    /// What was captured of it.
    pub bytes: &'a [u8],
}

/// Reads a capture.
#[derive(Debug)]
pub struct PcapReader<R> {
    source: R,
    block: Vec<u8>,
    /// Of the next block. **Units**: bytes.
    offset: u64,
    big: bool,
    format: Format,
    unread: BTreeMap<Unread, u64>,
}

/// What a capture has and is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unread {
    /// A block of this type.
    Block(u32),
    /// An option of interfaces with this code.
    InterfaceOption(u16),
    /// Check sequences at the ends of frames, which are taken for data. **Units**: bytes of one.
    CheckSequence(u8),
    /// Frames that the capturing program says it lost.
    Lost,
    /// What is beyond the kinds that are counted apart.
    Further,
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Block(kind) => write!(f, "blocks of type {kind:#x}"),
            Unread::InterfaceOption(code) => write!(f, "interface options of code {code}"),
            Unread::CheckSequence(bytes) => {
                write!(f, "interfaces whose frames end with check sequences of {bytes} bytes")
            }
            Unread::Lost => write!(f, "frames that the capturing program lost"),
            Unread::Further => write!(f, "blocks and options of further kinds"),
        }
    }
}

#[derive(Debug)]
enum Format {
    /// Nanoseconds of a unit of the time.
    Classic(i64),
    /// The interfaces of the section.
    Blocks(Vec<Clock>),
}

/// How an interface counts time.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Units in a second.
    per_second: u64,
    /// **Units**: seconds.
    ahead: i64,
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
/// The form of a packet before the enhanced one.
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
/// Names, statistics, secrets, a journal: nothing of frames.
const BESIDE: [u32; 3] = [4, 9, 10];
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const ETHERNET: u16 = 1;
const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;
const CHECK_SEQUENCE: u16 = 13;
/// Comments, names, addresses, speed, time zone, filter, programs and devices.
const SAYS_NOTHING: [u16; 13] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 15, 16];
/// Of a packet: frames lost before it; of statistics: by the interface, by the program.
const PACKET_LOST: [u16; 1] = [4];
const STATISTICS_LOST: [u16; 2] = [5, 7];
/// Kinds of what is not read that are counted apart.
const MAX_KINDS: usize = 256;
/// Interfaces of a section.
const MAX_INTERFACES: usize = 1 << 16;
/// No block of a capture is longer. **Units**: bytes.
const LONGEST: usize = 16 << 20;
const BILLION: i128 = 1_000_000_000;

impl<R: Read> PcapReader<R> {
    /// Begins.
    ///
    /// **Errors**: the source fails, or it is no capture of Ethernet.
    pub fn new(mut source: R) -> Result<PcapReader<R>, PcapError> {
        let mut magic = [0; 4];
        if read_all(&mut source, &mut magic)? < magic.len() {
            return Err(PcapError::NotACapture);
        }
        let (block, unread) = (Vec::new(), BTreeMap::new());
        let mut reader =
            PcapReader { source, block, offset: 0, big: false, format: CLASSIC_US, unread };
        let (big, unit_ns) = match magic {
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1_000),
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1_000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                reader.format = Format::Blocks(Vec::new());
                reader.section()?;
                return Ok(reader);
            }
            _ => return Err(PcapError::NotACapture),
        };
        (reader.big, reader.format) = (big, Format::Classic(unit_ns));
        reader.fill(20)?;
        // The upper half of the link type says how long check sequences are.
        let (link, upper) = (reader.number(16) & 0xffff, reader.number(16) >> 16);
        // In units of 2 bytes, behind a bit that says that there are any.
        if upper & 0x0400 != 0 {
            let bytes = u8::try_from(2 * (upper >> 12)).unwrap_or(u8::MAX);
            reader.not_read(Unread::CheckSequence(bytes), 1);
        }
        reader.offset = 24;
        check_link(u16::try_from(link).unwrap_or(u16::MAX))?;
        Ok(reader)
    }

    /// The next frame; `None` at the end.
    ///
    /// **Errors**: the source fails or ends within a block, or what is there cannot be.
    // Borrows from the reader, which an iterator cannot.
    #[allow(clippy::should_implement_trait, reason = "a frame borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<Captured<'_>>, PcapError> {
        match self.format {
            Format::Classic(unit_ns) => self.record(unit_ns),
            Format::Blocks(_) => self.packet(),
        }
    }

    /// What was not read so far, with its count.
    pub fn unread(&self) -> &BTreeMap<Unread, u64> {
        &self.unread
    }

    fn not_read(&mut self, what: Unread, count: u64) {
        let known = self.unread.contains_key(&what) || self.unread.len() < MAX_KINDS;
        let sum = self.unread.entry(if known { what } else { Unread::Further }).or_default();
        *sum = sum.saturating_add(count);
    }

    fn record(&mut self, unit_ns: i64) -> Result<Option<Captured<'_>>, PcapError> {
        if !self.begin(16)? {
            return Ok(None);
        }
        let [seconds, units, kept, original_len] = [0, 4, 8, 12].map(|at| self.number(at));
        let length = self.length(kept)?;
        self.fill(length)?;
        self.offset += 16 + u64::from(kept);
        let at_ns = i64::from(seconds) * 1_000_000_000 + i64::from(units) * unit_ns;
        Ok(Some(Captured { at_ns, original_len, bytes: &self.block }))
    }

    fn packet(&mut self) -> Result<Option<Captured<'_>>, PcapError> {
        loop {
            if !self.begin(8)? {
                return Ok(None);
            }
            let kind = self.number(0);
            if kind == SECTION {
                self.section()?;
                continue;
            }
            let total = self.number(4);
            let length = self.length(total)?;
            if length < 12 || length % 4 != 0 {
                return Err(self.damaged("its length is none that a block has"));
            }
            self.fill(length - 8)?;
            match kind {
                INTERFACE => self.interface()?,
                SIMPLE_PACKET => return Err(PcapError::NoTime { offset: self.offset }),
                PACKET | OLD_PACKET => {
                    let (at_ns, original_len, kept) = self.enhanced(kind, length)?;
                    let options = 20 + kept.next_multiple_of(4);
                    let lost = self.counted(options, &PACKET_LOST);
                    let lost = lost + if kind == OLD_PACKET { self.old_lost() } else { 0 };
                    self.lost(lost);
                    self.offset += u64::from(total);
                    let bytes = &self.block[20..20 + kept];
                    return Ok(Some(Captured { at_ns, original_len, bytes }));
                }
                STATISTICS => {
                    let lost = self.counted(12, &STATISTICS_LOST);
                    self.lost(lost);
                }
                kind if BESIDE.contains(&kind) => {}
                kind => self.not_read(Unread::Block(kind), 1),
            }
            self.offset += u64::from(total);
        }
    }

    fn lost(&mut self, count: u64) {
        if count > 0 {
            self.not_read(Unread::Lost, count);
        }
    }

    /// The sum of counters of 8 bytes among the options from there on.
    fn counted(&self, mut at: usize, codes: &[u16]) -> u64 {
        let end = self.block.len().saturating_sub(4);
        let mut sum = 0_u64;
        while at + 4 <= end {
            let (code, length) = (self.half(at), usize::from(self.half(at + 2)));
            let value = self.block.get(at + 4..at + 4 + length).filter(|_| at + 4 + length <= end);
            let Some(value) = value.filter(|_| code != 0) else { break };
            if let (true, Ok(value)) = (codes.contains(&code), <[u8; 8]>::try_from(value)) {
                let value =
                    if self.big { u64::from_be_bytes(value) } else { u64::from_le_bytes(value) };
                sum = sum.saturating_add(value);
            }
            at += 4 + length.next_multiple_of(4);
        }
        sum
    }

    /// What a packet of the old form says was lost before it; all ones where it does not know.
    fn old_lost(&self) -> u64 {
        let lost = self.half(2);
        if lost == u16::MAX { 0 } else { lost.into() }
    }

    /// A section begins; the four bytes of its type are read.
    fn section(&mut self) -> Result<(), PcapError> {
        // The block's length and the byte order that it is in; of a later section, the length is
        // read already.
        let read = if self.offset == 0 { 0 } else { 4 };
        let mut head = self.block.get(4..4 + read).unwrap_or_default().to_vec();
        self.fill(8 - read)?;
        head.extend_from_slice(&self.block);
        self.big = match head[4..] {
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            _ => return Err(self.damaged("it names no byte order")),
        };
        self.block = head;
        let total = self.number(0);
        let length = self.length(total)?;
        if length < 28 || length % 4 != 0 {
            return Err(self.damaged("its length is none that a section has"));
        }
        self.fill(length - 12)?;
        self.offset += u64::from(total);
        self.format = Format::Blocks(Vec::new());
        Ok(())
    }

    fn interface(&mut self) -> Result<(), PcapError> {
        if self.block.len() < 12 {
            return Err(self.damaged("it is too short for an interface"));
        }
        check_link(self.half(0))?;
        let mut clock = Clock { per_second: 1_000_000, ahead: 0 };
        let mut at = 8;
        let end = self.block.len() - 4;
        while at + 4 <= end {
            let (code, length) = (self.half(at), usize::from(self.half(at + 2)));
            let value = self.block.get(at + 4..at + 4 + length).filter(|_| at + 4 + length <= end);
            let Some(value) = value else {
                return Err(self.damaged("an option is longer than its block"));
            };
            match (code, value) {
                (0, _) => break,
                (TIME_RESOLUTION, [resolution]) => {
                    clock.per_second = match resolution & 0x7f {
                        power if resolution & 0x80 != 0 => 1_u64.checked_shl(power.into()),
                        power => 10_u64.checked_pow(power.into()),
                    }
                    .ok_or_else(|| self.damaged("no clock has such a resolution"))?;
                }
                (TIME_OFFSET, value) => {
                    let value = <[u8; 8]>::try_from(value)
                        .map_err(|_| self.damaged("the offset of its times has not 8 bytes"))?;
                    clock.ahead = match self.big {
                        true => i64::from_be_bytes(value),
                        false => i64::from_le_bytes(value),
                    };
                }
                (CHECK_SEQUENCE, [0]) => {}
                (CHECK_SEQUENCE, [bytes]) => {
                    let bytes = *bytes;
                    self.not_read(Unread::CheckSequence(bytes), 1);
                }
                (code, _) if SAYS_NOTHING.contains(&code) => {}
                (code, _) => self.not_read(Unread::InterfaceOption(code), 1),
            }
            at += 4 + length.next_multiple_of(4);
        }
        match &mut self.format {
            Format::Blocks(interfaces) if interfaces.len() < MAX_INTERFACES => {
                interfaces.push(clock);
                Ok(())
            }
            _ => Err(self.damaged("it is one interface more than a capture has")),
        }
    }

    /// Time, length, and how much of the frame is there.
    fn enhanced(&self, kind: u32, length: usize) -> Result<(i64, u32, usize), PcapError> {
        if length < 32 {
            return Err(self.damaged("it is too short for a packet"));
        }
        let [interface, high, low, kept, original_len] =
            [0, 4, 8, 12, 16].map(|at| self.number(at));
        let interface = if kind == OLD_PACKET { self.half(0).into() } else { interface };
        let Format::Blocks(interfaces) = &self.format else {
            return Err(self.damaged("it is of the other format"));
        };
        let clock = usize::try_from(interface).ok().and_then(|number| interfaces.get(number));
        let clock = clock.ok_or_else(|| self.damaged("its interface was not described"))?;
        let kept = usize::try_from(kept).ok().filter(|kept| *kept <= length - 32);
        let kept = kept.ok_or_else(|| self.damaged("its packet is longer than it is"))?;
        let units = i128::from(u64::from(high) << 32 | u64::from(low));
        let at_ns = (units * BILLION).div_euclid(i128::from(clock.per_second))
            + i128::from(clock.ahead) * BILLION;
        let at_ns = i64::try_from(at_ns).map_err(|_| self.damaged("its time is beyond 2262"))?;
        Ok((at_ns, original_len, kept))
    }

    /// Reads so many bytes into the block; `false` at the end of the source.
    fn begin(&mut self, bytes: usize) -> Result<bool, PcapError> {
        self.block.clear();
        self.block.resize(bytes, 0);
        match read_all(&mut self.source, &mut self.block)? {
            0 => Ok(false),
            read if read == bytes => Ok(true),
            _ => Err(PcapError::Truncated { offset: self.offset }),
        }
    }

    fn fill(&mut self, bytes: usize) -> Result<(), PcapError> {
        self.block.clear();
        self.block.resize(bytes, 0);
        match read_all(&mut self.source, &mut self.block)? {
            read if read == bytes => Ok(()),
            _ => Err(PcapError::Truncated { offset: self.offset }),
        }
    }

    fn length(&self, bytes: u32) -> Result<usize, PcapError> {
        let length = usize::try_from(bytes).ok().filter(|length| *length <= LONGEST);
        length.ok_or_else(|| self.damaged("it says that it is longer than 16 MiB"))
    }

    fn damaged(&self, what: &'static str) -> PcapError {
        PcapError::Damaged { offset: self.offset, what }
    }

    fn number(&self, at: usize) -> u32 {
        let bytes = self.block.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        let bytes: [u8; 4] = bytes.expect("invariant: the block is long enough");
        if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn half(&self, at: usize) -> u16 {
        let bytes = self.block.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        let bytes: [u8; 2] = bytes.expect("invariant: the block is long enough");
        if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }
}

const CLASSIC_US: Format = Format::Classic(1_000);

fn check_link(found: u16) -> Result<(), PcapError> {
    if found == ETHERNET { Ok(()) } else { Err(PcapError::LinkType { found }) }
}

/// Fills a buffer, as far as the source has bytes; how many there were.
fn read_all(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;
    use timewire_base::{Instant, Utc};

    use super::*;
    use crate::pcapng::{CaptureClock, Interface, Packet, Section};

    fn all(bytes: &[u8]) -> Result<Vec<(i64, u32, Vec<u8>)>, PcapError> {
        let mut reader = PcapReader::new(bytes)?;
        let mut found = Vec::new();
        while let Some(it) = reader.next()? {
            found.push((it.at_ns, it.original_len, it.bytes.to_vec()));
        }
        Ok(found)
    }

    fn why(bytes: &[u8]) -> String {
        all(bytes).unwrap_err().to_string()
    }

    /// A file in either byte order: numbers of 16 and 32 bits, and bytes as they are.
    enum Part<'a> {
        Half(u16),
        Number(u32),
        Bytes(&'a [u8]),
    }
    use Part::{Bytes, Half, Number};

    fn file(big: bool, parts: &[Part<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        for part in parts {
            match part {
                Half(it) if big => out.extend(it.to_be_bytes()),
                Half(it) => out.extend(it.to_le_bytes()),
                Number(it) if big => out.extend(it.to_be_bytes()),
                Number(it) => out.extend(it.to_le_bytes()),
                Bytes(it) => out.extend(*it),
            }
        }
        out
    }

    #[test]
    fn t0_what_is_written_as_pcapng_is_read_again() {
        let (mut out, mut length) = (vec![0; 4_096], 0);
        length += Section::default().write(&mut out).unwrap();
        for name in ["one", "two"] {
            let clock = CaptureClock::Utc;
            let interface = Interface { name, description: "", snap_len: 0, clock };
            length += interface.write(&mut out[length..]).unwrap();
        }
        for (interface, at) in [(0, 1_767_323_045_123_456_789), (1, 1_767_323_045_123_456_790)] {
            let frame = [7; 61];
            let packet = Packet {
                original_len: 1_500,
                comment: "cut",
                ..Packet::whole(interface, Instant::<Utc>::from_ns(at), &frame)
            };
            length += packet.write(&mut out[length..]).unwrap();
        }
        let found = all(&out[..length]).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], (1_767_323_045_123_456_789, 1_500, vec![7; 61]));
        assert_eq!(found[1].0, 1_767_323_045_123_456_790);
        // A second section has interfaces of its own.
        let twice = [&out[..length], &out[..length]].concat();
        assert_eq!(all(&twice).unwrap().len(), 4);
        let begins = length - 4;
        let cut = why(&out[..begins]);
        assert!(cut.starts_with("it ends within the block that begins at byte "), "{cut}");
    }

    #[test]
    fn t0_classic_captures_are_read_in_both_orders_and_units() {
        for big in [true, false] {
            for (magic, ns) in [(0xa1b2_c3d4, 3_000), (0xa1b2_3c4d, 3)] {
                let head = [Number(magic), Half(2), Half(4), Number(0), Number(0), Number(96)];
                let mut bytes = file(big, &head);
                bytes.extend(file(big, &[Number(1)]));
                let record = [Number(5), Number(3), Number(2), Number(60), Bytes(&[1, 2])];
                bytes.extend(file(big, &record));
                assert_eq!(all(&bytes).unwrap(), [(5_000_000_000 + ns, 60, vec![1, 2])]);
                bytes.pop();
                assert_eq!(why(&bytes), "it ends within the block that begins at byte 24");
                bytes[if big { 23 } else { 20 }] = 113;
                assert!(why(&bytes).contains("link type 113"));
            }
        }
    }

    #[test]
    fn t0_what_is_not_read_is_named_with_its_count() {
        for big in [true, false] {
            let head = [Number(0xa1b2_c3d4), Half(2), Half(4), Number(0), Number(0), Number(96)];
            let link = [Number(0x2400_0001)];
            let classic = [file(big, &head), file(big, &link)].concat();
            let reader = PcapReader::new(&classic[..]).unwrap();
            assert_eq!(reader.unread(), &BTreeMap::from([(Unread::CheckSequence(4), 1)]));
            let eight = |n: u64| if big { n.to_be_bytes() } else { n.to_le_bytes() };
            let (five, seven) = (eight(5), eight(7));
            let section = [Number(SECTION), Number(28), Number(0x1a2b_3c4d), Half(1), Half(0)];
            let section_end = [Number(u32::MAX), Number(u32::MAX), Number(28)];
            let interface = [
                Number(INTERFACE),
                Number(36),
                Half(1),
                Half(0),
                Number(0),
                // An option that nobody knows, a check sequence, a name.
                Half(99),
                Half(0),
                Half(13),
                Half(1),
                Bytes(&[4, 0, 0, 0]),
                Half(2),
                Half(0),
                Number(36),
            ];
            let packet = [
                Number(PACKET),
                Number(52),
                Number(0),
                Number(0),
                Number(9),
                Number(2),
                Number(2),
                Bytes(&[1, 2, 0, 0]),
                Half(4),
                Half(8),
                Bytes(&five),
                Half(0),
                Half(0),
                Number(52),
            ];
            let old = [
                Number(OLD_PACKET),
                Number(36),
                Half(0),
                Half(3),
                Number(0),
                Number(9),
                Number(2),
                Number(2),
                Bytes(&[3, 4, 0, 0]),
                Number(36),
            ];
            let statistics = [
                Number(STATISTICS),
                Number(36),
                Number(0),
                Number(0),
                Number(0),
                Half(5),
                Half(8),
                Bytes(&seven),
                Number(36),
            ];
            let odd = [Number(0x0bad), Number(12), Number(12)];
            let parts =
                [&section[..], &section_end, &interface, &packet, &old, &statistics, &odd, &odd];
            let bytes: Vec<u8> = parts.iter().flat_map(|part| file(big, part)).collect();
            let mut reader = PcapReader::new(&bytes[..]).unwrap();
            let mut frames = Vec::new();
            while let Some(it) = reader.next().unwrap() {
                frames.push(it.bytes.to_vec());
            }
            assert_eq!(frames, [[1, 2], [3, 4]]);
            let expected = [
                (Unread::Block(0x0bad), 2),
                (Unread::InterfaceOption(99), 1),
                (Unread::CheckSequence(4), 1),
                (Unread::Lost, 5 + 3 + 7),
            ];
            assert_eq!(reader.unread(), &BTreeMap::from(expected));
        }
    }

    #[test]
    fn t0_times_of_other_resolutions_become_nanoseconds() {
        let length = 0xffff_ffff;
        for big in [true, false] {
            let with = |resolution: u8| {
                let section = [
                    Number(0x0a0d_0d0a),
                    Number(28),
                    Number(0x1a2b_3c4d),
                    Half(1),
                    Half(0),
                    Number(length),
                    Number(length),
                    Number(28),
                ];
                let ahead = if big { 1_i64.to_be_bytes() } else { 1_i64.to_le_bytes() };
                let interface = [
                    Number(1),
                    Number(44),
                    Half(1),
                    Half(0),
                    Number(0),
                    Half(9),
                    Half(1),
                    Bytes(&[resolution, 0, 0, 0]),
                    Half(14),
                    Half(8),
                    Bytes(&ahead),
                    Half(0),
                    Half(0),
                    Number(44),
                ];
                let packet = [
                    Number(6),
                    Number(36),
                    Number(0),
                    Number(0),
                    Number(2_048),
                    Number(1),
                    Number(60),
                    Bytes(&[9, 0, 0, 0]),
                    Number(36),
                ];
                [&section[..], &interface[..], &packet[..]].map(|part| file(big, part)).concat()
            };
            assert_eq!(all(&with(0x80 | 11)).unwrap(), [(2_000_000_000, 60, vec![9])]);
            assert_eq!(all(&with(12)).unwrap()[0].0, 1_000_000_002);
            assert_eq!(all(&with(3)).unwrap()[0].0, 3_048_000_000);
            assert!(why(&with(20)).contains("no clock has such a resolution"));
        }
    }

    #[test]
    fn t0_other_files_are_refused() {
        let begins = "it is no capture: it begins neither as pcapng nor as pcap";
        assert_eq!(why(b""), begins);
        assert_eq!(why(b"timewire: 1\n"), begins);
        let section = [Number(0x0a0d_0d0a), Number(28), Number(7)];
        let found = why(&file(true, &section));
        assert_eq!(found, "the block at byte 0 is damaged: it names no byte order");
    }

    proptest! {
        #[test]
        fn t0_no_bytes_make_it_fall(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..3_usize,
        ) {
            let heads: [&[u8]; 3] = [
                &[],
                &[
                    0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0,
                    0,
                ],
                &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255,
                  255, 255, 255, 255, 255, 255, 28, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0,
                  0, 0, 0, 20, 0, 0, 0, 6, 0, 0, 0],
            ];
            let _ = all(&[heads[kind], &bytes[..]].concat());
        }
    }
}
