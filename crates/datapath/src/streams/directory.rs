// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory that keeps what a talker or a listener did.
//!
//! ```text
//! traffic.json               what it was told
//! host.before.json, .after.json
//!                            what the host and its interface were like
//! talker.twr, listener.twr   each timestamp of each message
//! report.json                what it counted; written last
//! ```

use std::path::{Path, PathBuf};

use crate::record::Recorder;
use serde::Serialize;
use serde_json::json;
use timewire_base::{IfName, Span};
use timewire_capture::record::{ClockInfo, RecordHeader};
use timewire_host::snapshot::Snapshot;
use timewire_sys::clock;

use super::TrafficError;
use crate::DatapathError;
use crate::files;

const TRAFFIC_SCHEMA: &str = "timewire.traffic/1";

/// Clocks of the record files, by their numbers.
pub(super) const HOST_CLOCK: u8 = 0;
pub(super) const NIC_CLOCK: u8 = 1;
/// Of a listener: the clock by which its talkers timestamped their messages.
pub(super) const SENDER_CLOCK: u8 = 2;

/// An open directory with its records.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    interfaces: Vec<IfName>,
    recorder: Option<Recorder>,
}

impl Directory {
    /// Makes it and its record file. `role` is `talk` or `listen`; the clocks of NIC and talker
    /// are at most so far `apart` from the host's, if that was said.
    ///
    /// **Errors**: it exists and is not empty; a file cannot be written.
    pub(super) fn create(
        path: &Path,
        role: &str,
        told: &impl Serialize,
        apart: Option<Span>,
        interface: Option<&IfName>,
        flows: Vec<String>,
    ) -> Result<Directory, TrafficError> {
        let path = files::empty_directory(path)?;
        let interfaces: Vec<IfName> = interface.into_iter().cloned().collect();
        let meta = json!({
            "schema": TRAFFIC_SCHEMA,
            "tool": concat!("timewire ", env!("CARGO_PKG_VERSION")),
            "role": role,
            "started_tai_ns": clock::now::<timewire_base::Tai>().as_ns(),
            "told": told,
        });
        files::write_json(&path.join("traffic.json"), &meta)?;
        let mut directory = Directory { path, interfaces, recorder: None };
        directory.write_host("before")?;
        let writer = if role == "talk" { "talker" } else { "listener" };
        let clock = |name: &str, error_ns| ClockInfo {
            name: name.to_owned(),
            error_bound: Span::from_ns(error_ns),
        };
        let apart = apart.map_or(i64::MAX, Span::as_ns);
        let clocks = vec![clock("TAI", 1), clock("nic", apart), clock("TAI of the talker", apart)];
        let header = RecordHeader {
            writer: writer.to_owned(),
            case: role.to_owned(),
            clocks,
            stations: vec!["here".to_owned(), "talker".to_owned()],
            flows,
            ..RecordHeader::default()
        };
        let file = directory.path.join(format!("{writer}.twr"));
        let recorder =
            Recorder::create(&file, &header).map_err(DatapathError::file("create", &file))?;
        directory.recorder = Some(recorder);
        Ok(directory)
    }

    /// Where the measuring thread puts its records; it is given back to [`Directory::finish`].
    pub(super) fn take_recorder(&mut self) -> Option<Recorder> {
        self.recorder.take()
    }

    /// Closes the records and writes what was counted.
    ///
    /// **Errors**: a file cannot be written.
    pub(super) fn finish(
        self,
        recorder: Option<Recorder>,
        report: &impl Serialize,
    ) -> Result<(), TrafficError> {
        if let Some(recorder) = recorder {
            recorder.finish().map_err(DatapathError::file("write records in", &self.path))?;
        }
        self.write_host("after")?;
        files::write_json(&self.path.join("report.json"), report)?;
        Ok(())
    }

    fn write_host(&self, moment: &str) -> Result<(), TrafficError> {
        let snapshot = Snapshot::of_this_host(&self.interfaces)?;
        let path = self.path.join(format!("host.{moment}.json"));
        files::write_whole(&path, snapshot.to_text().as_bytes())?;
        Ok(())
    }
}
