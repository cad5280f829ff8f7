// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was on the segment: `segment.jsonl`, with every instant to the picosecond, and
//! `segment.pcapng`, for the tools that read captures, with nanoseconds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use timewire_base::{Instant, StationName, Tai};
use timewire_sim::{Link, Passage, PortIndex, SegmentKind};

use super::SegmentLab;
use crate::LabError;

/// Version of `segment.jsonl`.
pub const TRACE_SCHEMA: &str = "timewire.segment-trace/1";
/// How much of a frame is in `segment.jsonl`. **Units**: bytes.
const PREFIX: usize = 64;

/// Both files.
pub struct Trace {
    lines: BufWriter<File>,
    capture: BufWriter<File>,
    lines_path: PathBuf,
    capture_path: PathBuf,
    names: Vec<StationName>,
    is_hub: bool,
    epoch: Instant<Tai>,
    count: u64,
}

#[derive(Serialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
enum TraceLine<'a> {
    Segment(Header<'a>),
    Frame(Frame<'a>),
}

/// First line.
#[derive(Serialize)]
struct Header<'a> {
    schema: &'a str,
    kind: &'a str,
    rate_bps: u64,
    delay_ns: i64,
    epoch_tai_ns: i64,
    stations: &'a [StationName],
}

#[derive(Serialize)]
struct Frame<'a> {
    number: u64,
    link: &'a str,
    from: &'a StationName,
    /// Since the epoch.
    ready_ps: u64,
    start_ps: u64,
    end_ps: u64,
    /// Rounded down.
    start_tai_ns: i64,
    end_tai_ns: i64,
    found_busy_with: Option<&'a StationName>,
    length: usize,
    bytes: String,
}

impl Trace {
    /// Creates both files in a directory.
    pub fn create(lab: &SegmentLab, out: &Path) -> Result<Trace, LabError> {
        let create = |name: &str| {
            let path = out.join(name);
            let file = File::create(&path).map_err(LabError::file("create", &path))?;
            Ok::<_, LabError>((BufWriter::new(file), path))
        };
        let (lines, lines_path) = create("segment.jsonl")?;
        let (capture, capture_path) = create("segment.pcapng")?;
        let names: Vec<_> = lab.stations.iter().map(|station| station.name.clone()).collect();
        let is_hub = lab.segment.kind == SegmentKind::Hub;
        let epoch = lab.epoch;
        let mut trace =
            Trace { lines, capture, lines_path, capture_path, names, is_hub, epoch, count: 0 };
        let names = trace.names.clone();
        trace.line(&TraceLine::Segment(Header {
            schema: TRACE_SCHEMA,
            kind: if is_hub { "hub" } else { "switch" },
            rate_bps: lab.segment.rate.get(),
            delay_ns: lab.segment.delay.as_ns(),
            epoch_tai_ns: epoch.as_ns(),
            stations: &names,
        }))?;
        trace.block(&section())?;
        for link in trace.links() {
            trace.block(&interface(&trace.link_name(link)))?;
        }
        Ok(trace)
    }

    /// How many frames it has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A frame whose first bit is on a link now.
    pub fn frame(&mut self, passage: &Passage) -> Result<(), LabError> {
        self.count += 1;
        let tai = |at: timewire_sim::SimTime| at.tai_floor(self.epoch).as_ns();
        let (start_tai_ns, end_tai_ns) = (tai(passage.start), tai(passage.end));
        let prefix = &passage.frame[..passage.frame.len().min(PREFIX)];
        let names = self.names.clone();
        let link = self.link_name(passage.link);
        self.line(&TraceLine::Frame(Frame {
            number: passage.number,
            link: &link,
            from: &names[passage.from.0],
            ready_ps: passage.ready.as_ps(),
            start_ps: passage.start.as_ps(),
            end_ps: passage.end.as_ps(),
            start_tai_ns,
            end_tai_ns,
            found_busy_with: passage.found_busy_with.map(|port| &names[port.0]),
            length: passage.frame.len(),
            bytes: hex(prefix),
        }))?;
        let index = self.links().iter().position(|link| *link == passage.link).unwrap_or(0);
        self.block(&packet(index, start_tai_ns, &passage.frame))
    }

    /// Writes what is still in memory.
    pub fn finish(&mut self) -> Result<(), LabError> {
        self.lines.flush().map_err(LabError::file("write", &self.lines_path))?;
        self.capture.flush().map_err(LabError::file("write", &self.capture_path))
    }

    fn links(&self) -> Vec<Link> {
        if self.is_hub {
            return vec![Link::Medium];
        }
        let both = |port| [Link::Up(PortIndex(port)), Link::Down(PortIndex(port))];
        (0..self.names.len()).flat_map(both).collect()
    }

    fn link_name(&self, link: Link) -> String {
        match link {
            Link::Medium => "hub".to_owned(),
            Link::Up(port) => format!("{}>switch", self.names[port.0]),
            Link::Down(port) => format!("switch>{}", self.names[port.0]),
        }
    }

    fn line(&mut self, line: &TraceLine<'_>) -> Result<(), LabError> {
        let text = serde_json::to_string(line).expect("invariant: plain values");
        writeln!(self.lines, "{text}").map_err(LabError::file("write", &self.lines_path))
    }

    fn block(&mut self, bytes: &io::Result<Vec<u8>>) -> Result<(), LabError> {
        let failed = LabError::file("write", &self.capture_path);
        match bytes {
            Ok(bytes) => self.capture.write_all(bytes).map_err(failed),
            Err(error) => Err(failed(error.kind().into())),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A block of pcapng (draft-ietf-opsawg-pcapng): type, length, body to a multiple of four, length.
fn block(kind: u32, body: &[u8]) -> io::Result<Vec<u8>> {
    let padded = body.len().next_multiple_of(4);
    let length = u32::try_from(padded + 12).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend(body);
    bytes.resize(8 + padded, 0);
    bytes.extend(length.to_le_bytes());
    Ok(bytes)
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap_or(0);
    let mut bytes = [code.to_le_bytes(), length.to_le_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn section() -> io::Result<Vec<u8>> {
    let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    body.extend([1, 0, 0, 0]);
    // Its length is not given.
    body.extend([0xff; 8]);
    block(0x0a0d_0d0a, &body)
}

fn interface(name: &str) -> io::Result<Vec<u8>> {
    const ETHERNET: u16 = 1;
    let mut body = [ETHERNET.to_le_bytes(), [0; 2]].concat();
    body.extend(0_u32.to_le_bytes());
    body.extend(option(2, name.as_bytes()));
    // Timestamps count 10^-9 seconds.
    body.extend(option(9, &[9]));
    body.extend(option(0, &[]));
    block(1, &body)
}

fn packet(interface: usize, at_ns: i64, frame: &[u8]) -> io::Result<Vec<u8>> {
    let interface = u32::try_from(interface).map_err(|_| io::ErrorKind::InvalidData)?;
    let length = u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let timestamp = u64::try_from(at_ns).map_err(|_| io::ErrorKind::InvalidData)?.to_le_bytes();
    let (low, high) = timestamp.split_at(4);
    let mut body = interface.to_le_bytes().to_vec();
    body.extend(high);
    body.extend(low);
    body.extend(length.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend(frame);
    block(6, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_blocks_of_a_capture_have_their_lengths() {
        let bytes = packet(1, 0x0102_0304_0506_0708, &[0xaa; 5]).unwrap();
        assert_eq!(bytes.len(), 8 + 20 + 8 + 4);
        assert_eq!(bytes[..8], [6, 0, 0, 0, 40, 0, 0, 0]);
        assert_eq!(bytes[8..20], [1, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5]);
        assert_eq!(bytes[20..28], [5, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(bytes[28..36], [0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0, 0, 0]);
        assert_eq!(bytes[36..], [40, 0, 0, 0]);
        let named = interface("hub").unwrap();
        assert_eq!(named[16..24], [2, 0, 3, 0, b'h', b'u', b'b', 0]);
        assert_eq!(section().unwrap().len(), 28);
        assert!(packet(0, -1, &[]).is_err());
    }
}
