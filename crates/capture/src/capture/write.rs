// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writing a capture: events and notes in, whole blocks out.
//!
//! Nothing is allocated for an event. What is written is never changed: a program that is killed
//! leaves all blocks that it had handed out, and one torn at most.

use std::io::{self, Write};

use serde::Serialize;

use super::block::{
    BLOCK_BYTES, End, HEAD_BYTES, Head, MAX_CONTENT_BYTES, MAX_HEADER_BYTES, STORED_BYTES, close,
    content, field, start,
};
use super::{CAPTURE_SCHEMA, CaptureHeader, Note};
use crate::event::{EVENT_BYTES, Event};

/// Notes are written when they have so many bytes, or when events are.
const NOTES_BYTES: usize = 32_768;
/// Stations that the events of a capture can name.
pub(super) const MAX_STATIONS: usize = 255;

/// Writes a capture. To drop it without [`Writer::finish`] leaves a file without its end, and
/// without what came since the last [`Writer::flush`].
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    /// A block of events: room for its head, and what it has so far.
    events: Box<[u8]>,
    filled: usize,
    head: Head,
    /// A block of notes, in the same way.
    notes: Vec<u8>,
    note_count: u32,
    capture: u32,
    number: u64,
    written_events: u64,
    written_bytes: u64,
    end: End,
}

impl<W: Write> Writer<W> {
    /// Begins a capture.
    ///
    /// **Errors**: those of the sink; a header that the format cannot carry
    /// ([`io::ErrorKind::InvalidInput`]).
    pub fn new(out: W, header: &CaptureHeader) -> io::Result<Writer<W>> {
        if header.stations.len() > MAX_STATIONS {
            let count = header.stations.len();
            return Err(invalid(format!("{count} stations; a capture has {MAX_STATIONS} at most")));
        }
        let json = serde_json::to_vec(&Tagged { schema: CAPTURE_SCHEMA, header })?;
        if json.len() > MAX_HEADER_BYTES {
            return Err(invalid(format!("a header of {} bytes is too long", json.len())));
        }
        let mut writer = Writer {
            out,
            events: vec![0; BLOCK_BYTES].into_boxed_slice(),
            filled: HEAD_BYTES,
            head: Head::default(),
            notes: Vec::with_capacity(2 * NOTES_BYTES),
            note_count: 0,
            capture: crc32fast::hash(&json),
            number: 0,
            written_events: 0,
            written_bytes: 0,
            end: End::default(),
        };
        writer.notes.resize(HEAD_BYTES, 0);
        writer.put(&start())?;
        writer.put_block(content::HEADER, 1, &json)?;
        Ok(writer)
    }

    /// Adds an event.
    ///
    /// **Errors**: those of the sink, when a block is full.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.event_bytes(&event.to_bytes())
    }

    /// Adds an event as the kernel's program wrote it, of whatever hook.
    ///
    /// **Errors**: as [`Writer::event`].
    #[inline]
    pub fn event_bytes(&mut self, event: &[u8; EVENT_BYTES]) -> io::Result<()> {
        let at_ns = u64::from_le_bytes(field(event, 0));
        let mut after = i32::try_from(at_ns.wrapping_sub(self.head.base_ns).cast_signed());
        let room = BLOCK_BYTES - self.filled >= STORED_BYTES;
        if self.head.count > 0 && !(room && after.is_ok()) {
            self.put_events()?;
        }
        if self.head.count == 0 {
            self.head.base_ns = at_ns;
            after = Ok(0);
        }
        let after = after.expect("invariant: the block would have been written");
        self.head.earliest = self.head.earliest.min(after);
        self.head.latest = self.head.latest.max(after);
        self.head.count += 1;
        let stored = &mut self.events[self.filled..self.filled + STORED_BYTES];
        stored[..4].copy_from_slice(&after.to_le_bytes());
        stored[4..].copy_from_slice(&event[8..]);
        self.filled += STORED_BYTES;
        Ok(())
    }

    /// Adds a note.
    ///
    /// **Errors**: those of the sink; a note longer than [`MAX_CONTENT_BYTES`].
    pub fn note(&mut self, note: &Note) -> io::Result<()> {
        let mut line = serde_json::to_vec(note)?;
        line.push(b'\n');
        if line.len() > MAX_CONTENT_BYTES {
            return Err(invalid(format!("a note of {} bytes is too long", line.len())));
        }
        if self.notes.len() + line.len() > HEAD_BYTES + MAX_CONTENT_BYTES {
            self.put_notes()?;
        }
        self.notes.extend_from_slice(&line);
        self.note_count += 1;
        if let Note::Losses(losses) = note {
            self.end.losses = Some(losses.clone());
        }
        if self.notes.len() >= NOTES_BYTES { self.put_notes() } else { Ok(()) }
    }

    /// Writes what is held back. A block that is not full costs its head of 64 bytes all the same.
    ///
    /// **Errors**: those of the sink.
    pub fn flush(&mut self) -> io::Result<()> {
        self.put_notes()?;
        self.put_events()?;
        self.out.flush()
    }

    /// **Units**: bytes handed to the sink so far.
    pub fn bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Events so far, with those held back.
    pub fn events(&self) -> u64 {
        self.written_events + u64::from(self.head.count)
    }

    /// Closes the capture and hands the sink back.
    ///
    /// **Errors**: those of the sink.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        let at = self.written_bytes;
        self.end.events = self.written_events;
        let json = serde_json::to_vec(&self.end)?;
        self.put_block(content::END, 1, &json)?;
        self.put(&close(at))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put_events(&mut self) -> io::Result<()> {
        if self.head.count == 0 {
            return Ok(());
        }
        // What was learned before these events stands before them.
        self.put_notes()?;
        let time = |after: i32| self.head.base_ns.wrapping_add_signed(i64::from(after));
        let (earliest, latest) = (time(self.head.earliest), time(self.head.latest));
        let end = &mut self.end;
        end.first_ns = Some(end.first_ns.map_or(earliest, |first| first.min(earliest)));
        end.last_ns = Some(end.last_ns.map_or(latest, |last| last.max(latest)));
        let content = &self.events[HEAD_BYTES..self.filled];
        let head = Head {
            content: content::EVENTS,
            bytes: u32::try_from(content.len()).expect("invariant: less than 64 KiB"),
            capture: self.capture,
            number: self.number,
            events_before: self.written_events,
            content_crc: crc32fast::hash(content),
            ..self.head
        };
        self.events[..HEAD_BYTES].copy_from_slice(&head.to_bytes());
        // Whatever becomes of the write, these events are done with: a reader finds what is whole.
        let filled = self.filled;
        self.number += 1;
        self.written_events += u64::from(head.count);
        self.head = Head::default();
        self.filled = HEAD_BYTES;
        let result = self.out.write_all(&self.events[..filled]);
        self.written_bytes += length(filled);
        result
    }

    fn put_notes(&mut self) -> io::Result<()> {
        if self.note_count == 0 {
            return Ok(());
        }
        let content = &self.notes[HEAD_BYTES..];
        let head = Head {
            content: content::NOTES,
            bytes: u32::try_from(content.len()).expect("invariant: at most 1 MiB"),
            capture: self.capture,
            count: self.note_count,
            number: self.number,
            events_before: self.written_events,
            content_crc: crc32fast::hash(content),
            ..Head::default()
        };
        self.notes[..HEAD_BYTES].copy_from_slice(&head.to_bytes());
        self.number += 1;
        self.note_count = 0;
        let result = self.out.write_all(&self.notes);
        self.written_bytes += length(self.notes.len());
        self.notes.truncate(HEAD_BYTES);
        result
    }

    fn put_block(&mut self, kind: u8, count: u32, content: &[u8]) -> io::Result<()> {
        let head = Head {
            content: kind,
            bytes: u32::try_from(content.len()).expect("invariant: at most 16 MiB"),
            capture: self.capture,
            count,
            number: self.number,
            events_before: self.written_events,
            content_crc: crc32fast::hash(content),
            ..Head::default()
        };
        self.number += 1;
        self.put(&head.to_bytes())?;
        self.put(content)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written_bytes += length(bytes.len());
        self.out.write_all(bytes)
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("invariant: a length fits 64 bits")
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[derive(Serialize)]
struct Tagged<'a> {
    schema: &'static str,
    #[serde(flatten)]
    header: &'a CaptureHeader,
}
