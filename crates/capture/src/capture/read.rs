// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading a capture: events in the order of their times, notes, and what became of the file.
//!
//! **Order.** Rings of several CPUs are emptied one after the other, so events come to the file
//! somewhat out of order. The reader holds back a window of events and gives the earliest. An event
//! that is earlier than one already given is given all the same, and counted.
//!
//! **Damage.** A block counts when head and content fit their checksums and it is of this capture.
//! Else the reader looks for the next that does. Blocks are numbered and say how many events were
//! before them, so what is missing is known exactly, but for what a torn end had.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::block::{
    BLOCK_MAGIC, CAPTURE_VERSION, CLOSE_BYTES, CLOSE_MAGIC, End, HEAD_BYTES, Head, START_BYTES,
    START_MAGIC, STORED_BYTES, content, field,
};
use super::notes::NoteBounds;
use super::{CAPTURE_SCHEMA, CaptureHeader, Note};
use crate::event::{EVENT_BYTES, Event};

/// Events that a reader holds back, unless told otherwise; it has room for twice as many.
pub const WINDOW: usize = 1 << 18;
/// **Units**: bytes read at once.
const CHUNK: usize = 1 << 18;

/// Why a capture cannot be read at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It does not start as a capture does.
    #[error("this is no capture: it does not start with the .twc magic")]
    NotACapture,
    /// Another version of the layout.
    #[error("the capture has version {found}; this program reads up to version {supported}")]
    Version {
        /// What the file says.
        found: u16,
        /// The newest that is read.
        supported: u16,
    },
    /// The header is damaged or cut short.
    #[error("the header of the capture is damaged: {what}")]
    HeaderDamaged {
        /// What does not fit.
        what: &'static str,
    },
    /// The header's JSON is not that of a capture.
    #[error("the header of the capture cannot be read: {why}")]
    HeaderContent {
        /// What the JSON reader said, or which schema was found.
        why: String,
    },
    /// The source failed.
    #[error("reading the capture: {0}")]
    Io(#[from] io::Error),
}

/// One thing of a capture.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// A note. It comes no later than the events that were written after it.
    Note(Note),
}

/// What became of a file, as far as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The writer closed the file.
    pub clean_end: bool,
    /// **Units**: bytes at the end of the file that are no whole block: what a killed writer left.
    pub torn_bytes: u64,
    /// Places within the file where blocks cannot be read.
    pub damaged: u64,
    /// **Units**: bytes there.
    pub damaged_bytes: u64,
    /// Blocks that are missing, by the numbers of those that came after.
    pub missing_blocks: u64,
    /// Events that are missing, as the blocks that came after say.
    pub missing_events: u64,
    /// Blocks that came again, or later than one with a higher number; left out.
    pub repeated_blocks: u64,
    /// Blocks of a sort that this version does not know; left out.
    pub unknown_blocks: u64,
    /// Events of hooks that this version does not know; left out.
    pub unknown_events: u64,
    /// Notes that this version does not know; left out.
    pub unknown_notes: u64,
    /// Notes of more names, values and clocks than a reader keeps; left out.
    #[serde(default)]
    pub notes_left_out: u64,
    /// Events that came later than the window allows: given after one that is later than they.
    pub disordered: u64,
}

impl Health {
    /// Nothing is missing, left out or in the wrong place.
    pub fn is_whole(&self) -> bool {
        *self == Health { clean_end: true, ..Health::default() }
    }

    /// What was read and not understood, or left out, each with its count.
    pub fn left_out(&self) -> Vec<String> {
        [
            (self.unknown_blocks, "blocks of a sort that this version does not know"),
            (self.unknown_events, "events of hooks that this version does not know"),
            (self.unknown_notes, "notes that this version does not know"),
            (self.notes_left_out, "notes of more names, values and clocks than are kept"),
            (self.repeated_blocks, "blocks that came again or too late"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}: left out"))
        .collect()
    }
}

/// Reads a capture from its start to its end, with bounded memory.
#[derive(Debug)]
pub struct Reader<R: Read> {
    source: Source<R>,
    header: CaptureHeader,
    capture: u32,
    next_number: u64,
    events_seen: u64,
    end: Option<End>,
    /// Where the block that says so stands.
    end_at: Option<u64>,
    health: Health,
    notes: VecDeque<Note>,
    bounds: NoteBounds,
    order: Order,
    finished: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// **Errors**: no capture, a version that this program does not read, a damaged header.
    pub fn new(source: R) -> Result<Reader<R>, CaptureError> {
        Reader::with_window(source, WINDOW)
    }

    /// As [`Reader::new`], with so many events held back for order; at least 1.
    ///
    /// **Errors**: as [`Reader::new`].
    pub fn with_window(source: R, window: usize) -> Result<Reader<R>, CaptureError> {
        let mut source =
            Source { inner: source, buffer: Vec::new(), at: 0, offset: 0, ended: false };
        let available = source.fill(START_BYTES)?;
        let start = source.bytes();
        if available < 10 || start[..8] != START_MAGIC {
            return Err(CaptureError::NotACapture);
        }
        match u16::from_le_bytes(field(start, 8)) {
            1 => {}
            found => {
                return Err(CaptureError::Version { found, supported: CAPTURE_VERSION });
            }
        }
        if available < START_BYTES {
            return Err(CaptureError::HeaderDamaged { what: "the file ends within it" });
        }
        source.skip(START_BYTES);
        let (header, capture) = read_header(&mut source)?;
        Ok(Reader {
            source,
            header,
            capture,
            next_number: 1,
            events_seen: 0,
            end: None,
            end_at: None,
            health: Health::default(),
            notes: VecDeque::new(),
            bounds: NoteBounds::default(),
            order: Order::new(window.max(1)),
            finished: false,
        })
    }

    /// What the numbers in the events stand for.
    pub fn header(&self) -> &CaptureHeader {
        &self.header
    }

    /// What became of the file, as far as it was read.
    pub fn health(&self) -> Health {
        Health { disordered: self.order.disordered, ..self.health }
    }

    /// What the writer said when it closed the file; `None` until it was read.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// **Units**: bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.source.offset
    }

    /// The next event or note; `None` at the end.
    ///
    /// **Errors**: the source fails. Damage of the file is counted, not an error.
    #[expect(clippy::should_implement_trait, reason = "it may fail, and is no iterator")]
    pub fn next(&mut self) -> Result<Option<Item>, CaptureError> {
        loop {
            if let Some(note) = self.notes.pop_front() {
                return Ok(Some(Item::Note(note)));
            }
            if let Some(event) = self.order.next() {
                return Ok(Some(Item::Event(event)));
            }
            if self.finished {
                return Ok(None);
            }
            self.refill()?;
        }
    }

    /// Reads until the window is full, a note came, or the file ends.
    fn refill(&mut self) -> Result<(), CaptureError> {
        self.order.make_room();
        while !self.order.is_full() && self.notes.is_empty() {
            if !self.read_block()? {
                self.finished = true;
                break;
            }
        }
        if self.finished || self.order.is_full() {
            self.order.settle(self.finished);
        }
        Ok(())
    }

    /// Reads the next whole block, past damage; `false` at the end of the file.
    fn read_block(&mut self) -> Result<bool, CaptureError> {
        let mut bad = 0;
        loop {
            let available = self.source.fill(HEAD_BYTES)?;
            if self.is_close(available) && bad == 0 {
                // It says where the end block is, as far as nothing before that is missing.
                let says = u64::from_le_bytes(field(self.source.bytes(), 8));
                if self.health.is_whole() && self.end_at.is_some_and(|at| at != says) {
                    self.health.damaged += 1;
                    self.health.damaged_bytes += length(available);
                }
                self.source.skip(available);
                return Ok(false);
            }
            if available < HEAD_BYTES {
                // Whatever cannot be read up to the end is its torn end.
                self.health.torn_bytes += bad + length(available);
                self.source.skip(available);
                return Ok(false);
            }
            if let Some((head, bytes)) = self.whole_block()? {
                if bad > 0 {
                    self.health.damaged += 1;
                    self.health.damaged_bytes += bad;
                }
                self.take(&head, bytes);
                self.source.skip(HEAD_BYTES + bytes);
                return Ok(true);
            }
            // The next place where a block may begin; its content may be of another.
            let rest = self.source.bytes();
            let magic = rest[1..].windows(BLOCK_MAGIC.len()).position(|some| some == BLOCK_MAGIC);
            let skipped = magic.map_or(rest.len() + 1 - BLOCK_MAGIC.len(), |at| at + 1);
            bad += length(skipped);
            self.source.skip(skipped);
        }
    }

    /// The head of the block that stands here, and the bytes of its content, when it is whole.
    fn whole_block(&mut self) -> Result<Option<(Head, usize)>, CaptureError> {
        let head = self.source.bytes().first_chunk().and_then(Head::from_bytes);
        let head = head.filter(|head| head.capture == self.capture);
        let Some((head, bytes)) = head.and_then(|head| Some((head, head.content_bytes()?))) else {
            return Ok(None);
        };
        if self.source.fill(HEAD_BYTES + bytes)? < HEAD_BYTES + bytes {
            return Ok(None);
        }
        let all = &self.source.bytes()[HEAD_BYTES..HEAD_BYTES + bytes];
        Ok((crc32fast::hash(all) == head.content_crc).then_some((head, bytes)))
    }

    fn is_close(&self, available: usize) -> bool {
        available == CLOSE_BYTES && self.source.bytes()[..8] == CLOSE_MAGIC
    }

    fn take(&mut self, head: &Head, bytes: usize) {
        if head.number < self.next_number {
            self.health.repeated_blocks += 1;
            return;
        }
        self.health.missing_blocks += head.number - self.next_number;
        self.next_number = head.number.saturating_add(1);
        self.health.missing_events += head.events_before.saturating_sub(self.events_seen);
        self.events_seen = self.events_seen.max(head.events_before);
        let all = &self.source.bytes()[HEAD_BYTES..HEAD_BYTES + bytes];
        match head.content {
            content::EVENTS => {
                self.events_seen = self.events_seen.saturating_add(u64::from(head.count));
                for stored in all.as_chunks::<STORED_BYTES>().0 {
                    match restored(stored, head.base_ns) {
                        Some(event) => self.order.held.push(event),
                        None => self.health.unknown_events += 1,
                    }
                }
            }
            content::NOTES => {
                for line in all.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    match serde_json::from_slice(line) {
                        Ok(note) if !self.bounds.admits(&note) => self.health.notes_left_out += 1,
                        Ok(note) => self.notes.push_back(note),
                        Err(_) => self.health.unknown_notes += 1,
                    }
                }
            }
            content::END => match serde_json::from_slice(all) {
                Ok(end) => {
                    self.end = Some(end);
                    self.end_at = Some(self.source.offset);
                    self.health.clean_end = true;
                }
                Err(_) => self.health.unknown_blocks += 1,
            },
            _ => self.health.unknown_blocks += 1,
        }
    }
}

impl<R: Read + Seek> Reader<R> {
    /// What the writer said when it closed the file, read from there; `None` when it did not, or
    /// its end is damaged. The reader goes on where it was.
    ///
    /// **Errors**: the source fails.
    pub fn find_end(&mut self) -> Result<Option<End>, CaptureError> {
        let inner = &mut self.source.inner;
        let here = inner.stream_position()?;
        let found = find_end(inner, self.capture);
        inner.seek(SeekFrom::Start(here))?;
        Ok(found?)
    }
}

fn find_end<R: Read + Seek>(source: &mut R, capture: u32) -> io::Result<Option<End>> {
    let length = source.seek(SeekFrom::End(0))?;
    let Some(close) = length.checked_sub(16) else { return Ok(None) };
    source.seek(SeekFrom::Start(close))?;
    let mut bytes = [0; CLOSE_BYTES];
    source.read_exact(&mut bytes)?;
    let at = u64::from_le_bytes(field(&bytes, 8));
    if bytes[..8] != CLOSE_MAGIC || at >= close {
        return Ok(None);
    }
    source.seek(SeekFrom::Start(at))?;
    let mut bytes = [0; HEAD_BYTES];
    if source.read_exact(&mut bytes).is_err() {
        return Ok(None);
    }
    let head = Head::from_bytes(&bytes)
        .filter(|head| head.capture == capture && head.content == content::END);
    let Some((head, bytes)) = head.and_then(|head| Some((head, head.content_bytes()?))) else {
        return Ok(None);
    };
    let mut all = vec![0; bytes];
    if source.read_exact(&mut all).is_err() || crc32fast::hash(&all) != head.content_crc {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&all).ok())
}

fn restored(stored: &[u8; STORED_BYTES], base_ns: u64) -> Option<Event> {
    let after = i32::from_le_bytes(field(stored, 0));
    let mut bytes = [0; EVENT_BYTES];
    bytes[..8].copy_from_slice(&base_ns.wrapping_add_signed(i64::from(after)).to_le_bytes());
    bytes[8..].copy_from_slice(&stored[4..]);
    Event::from_bytes(&bytes)
}

#[derive(Deserialize)]
struct Schema {
    schema: String,
}

fn read_header<R: Read>(source: &mut Source<R>) -> Result<(CaptureHeader, u32), CaptureError> {
    let damaged = |what| CaptureError::HeaderDamaged { what };
    if source.fill(HEAD_BYTES)? < HEAD_BYTES {
        return Err(damaged("the file ends within it"));
    }
    let head = source.bytes().first_chunk().and_then(Head::from_bytes);
    let head = head.filter(|head| head.content == content::HEADER && head.number == 0);
    let head = head.ok_or(damaged("its head does not fit its checksum"))?;
    let bytes = head.content_bytes().ok_or(damaged("it is longer than any"))?;
    if source.fill(HEAD_BYTES + bytes)? < HEAD_BYTES + bytes {
        return Err(damaged("the file ends within it"));
    }
    let json = &source.bytes()[HEAD_BYTES..HEAD_BYTES + bytes];
    if crc32fast::hash(json) != head.content_crc || head.capture != head.content_crc {
        return Err(damaged("it does not fit its checksum"));
    }
    let unread = |error: serde_json::Error| CaptureError::HeaderContent { why: error.to_string() };
    let Schema { schema } = serde_json::from_slice(json).map_err(unread)?;
    if schema != CAPTURE_SCHEMA {
        let why = format!("its schema is `{schema}`, not `{CAPTURE_SCHEMA}`");
        return Err(CaptureError::HeaderContent { why });
    }
    let header = serde_json::from_slice(json).map_err(unread)?;
    source.skip(HEAD_BYTES + bytes);
    Ok((header, head.capture))
}

/// Bytes of a source, as many in a row as a block has.
#[derive(Debug)]
struct Source<R> {
    inner: R,
    buffer: Vec<u8>,
    at: usize,
    offset: u64,
    ended: bool,
}

impl<R: Read> Source<R> {
    /// Reads until there are so many bytes, or the source ends; how many there are.
    fn fill(&mut self, wanted: usize) -> io::Result<usize> {
        if self.bytes().len() < wanted && !self.ended {
            self.buffer.drain(..self.at);
            self.at = 0;
            let more = (wanted - self.buffer.len()).max(CHUNK);
            let more = u64::try_from(more).expect("invariant: a length fits 64 bits");
            // All of it at once, or up to the end: `read_to_end` goes on after an interruption.
            let read = self.inner.by_ref().take(more).read_to_end(&mut self.buffer)?;
            self.ended = length(read) < more;
        }
        Ok(self.bytes().len())
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += length(bytes);
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("invariant: a length fits 64 bits")
}

/// Events on their way to their order.
#[derive(Debug)]
struct Order {
    /// First those that are given out, from `next` to `settled`; the others wait for more.
    held: Vec<Event>,
    next: usize,
    settled: usize,
    window: usize,
    latest_ns: u64,
    disordered: u64,
}

impl Order {
    fn new(window: usize) -> Order {
        Order { held: Vec::new(), next: 0, settled: 0, window, latest_ns: 0, disordered: 0 }
    }

    #[inline]
    fn next(&mut self) -> Option<Event> {
        if self.next == self.settled {
            return None;
        }
        let event = self.held[self.next];
        self.next += 1;
        if event.at_ns < self.latest_ns {
            self.disordered += 1;
        } else {
            self.latest_ns = event.at_ns;
        }
        Some(event)
    }

    fn make_room(&mut self) {
        self.held.drain(..self.settled);
        (self.next, self.settled) = (0, 0);
    }

    fn is_full(&self) -> bool {
        self.held.len() >= 2 * self.window
    }

    /// Sorts; all but the window can be given out, at the end all.
    fn settle(&mut self, all: bool) {
        // Stable: of two at the same time the first written is first.
        self.held.sort_by_key(|event| event.at_ns);
        let kept = if all { 0 } else { self.window };
        self.settled = self.held.len().saturating_sub(kept);
    }
}
