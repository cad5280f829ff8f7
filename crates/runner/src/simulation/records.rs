// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of a simulation as record files, one of each station: `Send`, `Segment` and
//! `Receive` as a real run has them. A message is written once it has arrived or is lost, so what
//! is on its way at the end is in no file; memory is in proportion to what is on its way.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use timewire_base::Span;
use timewire_capture::record::{ClockInfo, Encoder, Record, RecordHeader, TimestampPoint};
use timewire_sim::net::{Seen, What};

use crate::RunnerError;
use crate::error::{Context as _, invalid};

use super::names::Rows;

/// Timestamps are whole nanoseconds of times in picoseconds.
const ERROR_BOUND: Span = Span::from_ns(1);
/// Preamble, check sequence and gap. **Units**: bytes.
const AROUND_BYTES: u32 = 24;

/// Writes the records of one run.
pub struct Records {
    stations: BTreeMap<usize, RecordWriter>,
    /// By stream and listener: the flow in the files of its talker and of its listener.
    flows: BTreeMap<(usize, usize), Flow>,
    listeners: Vec<usize>,
    /// Messages on their way, by stream and number.
    open: BTreeMap<(usize, u32), Open>,
    failed: Option<RunnerError>,
}

/// A record file that is written. It is open only while a block is written: there may be more files
/// than a process may open.
pub(crate) struct RecordWriter {
    path: PathBuf,
    encoder: Encoder,
}

impl RecordWriter {
    /// Makes the file.
    ///
    /// **Errors**: it cannot be written, or the header names too much.
    pub(crate) fn create(path: PathBuf, header: &RecordHeader) -> Result<Self, RunnerError> {
        let (encoder, first) = Encoder::new(header).map_err(invalid)?;
        let cannot = || format!("cannot write {}", path.display());
        let file = File::create(&path).with_context(cannot)?;
        file.write_all_at(&first, 0).with_context(cannot)?;
        Ok(RecordWriter { path, encoder })
    }

    /// Adds a record.
    ///
    /// **Errors**: a block that it filled cannot be written.
    pub(crate) fn push(&mut self, record: &Record) -> Result<(), RunnerError> {
        let Some(block) = self.encoder.push(record) else { return Ok(()) };
        write(&self.path, block.bytes, block.offset)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Closes the file.
    ///
    /// **Errors**: it cannot be written.
    pub(crate) fn finish(self) -> Result<(), RunnerError> {
        self.finish_with_lost(0)
    }

    /// Closes the file, of which timestamps had to be given up.
    ///
    /// **Errors**: it cannot be written.
    pub(crate) fn finish_with_lost(self, lost: u64) -> Result<(), RunnerError> {
        let last = self.encoder.finish(lost);
        write(&self.path, &last.bytes[..], last.offset)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The clock of simulated records.
pub(crate) fn simulated_clock() -> ClockInfo {
    ClockInfo { name: "simulated time".to_owned(), error_bound: ERROR_BOUND }
}

#[derive(Clone, Copy)]
struct Flow {
    from: usize,
    at_talker: u16,
    at_listener: u16,
}

#[derive(Clone, Copy)]
struct Open {
    /// When its first bit was on a link.
    started_ps: Option<u64>,
    /// Listeners that it has not reached, and that have not missed it.
    left: usize,
}

impl Records {
    /// Makes the files in a directory; their names are in the order of the stations.
    ///
    /// **Errors**: a file cannot be written, or a station has more streams than a file names.
    pub fn create(directory: &Path, case: &str, rows: &Rows) -> Result<Records, RunnerError> {
        let mut names: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let mut flows = BTreeMap::new();
        for row in rows.all() {
            let mut place = |node: usize| {
                let names = names.entry(node).or_default();
                names.push(row.name.clone());
                u16::try_from(names.len() - 1).ok().filter(|flow| *flow != Record::NO_FLOW)
            };
            let (at_talker, at_listener) = (place(row.from), place(row.to));
            let (Some(at_talker), Some(at_listener)) = (at_talker, at_listener) else {
                let node = if at_talker.is_none() { row.from } else { row.to };
                return Err(RunnerError::Invalid(format!(
                    "{} talks or listens to more than 65535 streams, and a record file can name \
                     no more; leave out --out, or split the streams",
                    rows.node(node)
                )));
            };
            flows.insert((row.stream, row.to), Flow { from: row.from, at_talker, at_listener });
        }
        let mut stations = BTreeMap::new();
        for (node, flows) in names {
            let header = RecordHeader {
                writer: format!("{} simulated", rows.node(node)),
                case: case.to_owned(),
                clocks: vec![simulated_clock()],
                stations: vec![rows.node(node).to_owned()],
                flows,
                meta: BTreeMap::new(),
            };
            let path = directory.join(file_name(rows.node(node)));
            stations.insert(node, RecordWriter::create(path, &header)?);
        }
        let listeners = rows.listeners().to_vec();
        Ok(Records { stations, flows, listeners, open: BTreeMap::new(), failed: None })
    }

    /// The files, relative to the directory.
    pub fn files(&self) -> Vec<String> {
        let name =
            |it: &RecordWriter| it.path.file_name().map(|name| name.to_string_lossy().into());
        self.stations.values().filter_map(name).collect()
    }

    /// Something happened to a frame.
    pub fn seen(&mut self, seen: &Seen) {
        let key = (seen.stream, seen.number);
        match seen.what {
            What::Released => {
                let left = self.listeners.get(seen.stream).copied().unwrap_or(0);
                self.open.insert(key, Open { started_ps: None, left });
            }
            What::Started { .. } => {
                if let Some(open) = self.open.get_mut(&key) {
                    open.started_ps.get_or_insert(seen.at_ps);
                }
            }
            What::Delivered { node, received_ps } => {
                self.ended(seen, node, Some(received_ps));
            }
            What::Missed { node } => self.ended(seen, node, None),
            _ => {}
        }
    }

    /// Closes the files.
    ///
    /// **Errors**: the first failure to write, now or earlier.
    pub fn finish(self) -> Result<(), RunnerError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.stations.into_values().try_for_each(RecordWriter::finish)
    }

    /// A message has arrived at a listener, or will not.
    fn ended(&mut self, seen: &Seen, node: usize, received_ps: Option<u64>) {
        let key = (seen.stream, seen.number);
        let Some(open) = self.open.get_mut(&key) else { return };
        open.left = open.left.saturating_sub(1);
        let started_ps = open.started_ps;
        if open.left == 0 {
            self.open.remove(&key);
        }
        let Some(flow) = self.flows.get(&(seen.stream, node)).copied() else { return };
        // All from one timestamp that is rounded down: differences are rounded up, as `sim` prints.
        let sent_ns = i64::try_from(seen.created_ps / 1_000).unwrap_or(i64::MAX);
        let after = |ps: u64| {
            let ns = ps.saturating_sub(seen.created_ps).div_ceil(1_000);
            sent_ns.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX))
        };
        let frame = seen.wire_bytes.saturating_sub(AROUND_BYTES);
        let record = |point, at_ns, flow| Record {
            at_ns,
            seq: seen.number,
            frame_len: u16::try_from(frame).unwrap_or(u16::MAX),
            point,
            station: 0,
            flow,
            flags: 0,
            clock: 0,
        };
        self.push(flow.from, &record(TimestampPoint::Send, sent_ns, flow.at_talker));
        if let Some(ps) = started_ps {
            self.push(flow.from, &record(TimestampPoint::Segment, after(ps), flow.at_talker));
        }
        if let Some(ps) = received_ps {
            self.push(node, &record(TimestampPoint::RxSw, after(seen.at_ps), flow.at_listener));
            self.push(node, &record(TimestampPoint::Receive, after(ps), flow.at_listener));
        }
    }

    fn push(&mut self, node: usize, record: &Record) {
        let Some(station) = self.stations.get_mut(&node).filter(|_| self.failed.is_none()) else {
            return;
        };
        self.failed = station.push(record).err();
    }
}

fn write(path: &Path, bytes: &[u8], offset: u64) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all_at(bytes, offset)
}

fn file_name(station: &str) -> String {
    format!("{station}.twr")
}
