// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The capture of one station on its host, in a process of its own that ends on request: the
//! packets of the measured streams and the marks of the programs that the experiment starts there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use timewire_base::{IfName, StationName};
use timewire_bpf::trace::Settings;
use timewire_capture::capture::Writer;
use timewire_capture::filter::Filter;
use timewire_capture::processing::LINK;
use timewire_datapath::files::read_json;
use timewire_sys::event::EndRequests;
use timewire_sys::marker::{self, RunPlace, Users};

use super::backend::invalid;
use super::held;
use super::tracing::{FILE, OfStations, names};
use crate::RunnerError;
use crate::error::Context as _;
use crate::markers::Marks;
use crate::trace::collect::{Collector, Request, StationAt};

/// What is captured at a station, in its own network namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationTrace {
    /// The station.
    pub station: StationName,
    /// Its interfaces to the network.
    pub interfaces: Vec<IfName>,
    /// The case and load.
    pub case: String,
    /// The packets, in tcpdump's words.
    pub filter: String,
}

/// Takes the capture that a file describes, beside the file, until somebody asks to end. Programs
/// put their marks where [`marker::VARIABLE`] says, which is made for this.
///
/// **Errors**: it cannot be taken, or not be written.
pub fn hold(file: &Path) -> Result<(), RunnerError> {
    // Before any thread is started, so that all of them leave the signals to us.
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let trace: StationTrace = read_json(file)?;
    let path = file.with_file_name(FILE);
    let begun = trace.begin(&path);
    held::tell(file, &begun)?;
    let (collector, _place) = begun?;
    held::until_end(&requests)?;
    let (OfStations(writer), tracer, _) = collector.finish()?;
    drop(tracer);
    let write = |error: io::Error| RunnerError::file("write", &path)(error);
    let file = writer.finish().map_err(write)?;
    file.into_inner().map_err(|error| write(error.into_error())).map(drop)
}

impl StationTrace {
    fn begin(&self, path: &Path) -> Result<(Collector<OfStations>, RunPlace), RunnerError> {
        let marks = |error: io::Error| {
            RunnerError::Invalid(format!("cannot listen to the marks of programs: {error}"))
        };
        let markers = std::env::var_os(marker::VARIABLE)
            .with_context(|| format!("{} does not say where marks are", marker::VARIABLE))?;
        let place = RunPlace::at(Path::new(&markers)).map_err(marks)?;
        let filter = Filter::parse(&self.filter).map_err(invalid)?;
        let netns = PathBuf::from("/proc/self/ns/net");
        let request = Request {
            settings: Settings {
                filter: filter.compile().map_err(invalid)?,
                ..Settings::default()
            },
            filter: filter.text().to_owned(),
            stations: vec![StationAt { name: self.station.to_string(), netns }],
            meta: BTreeMap::from([
                ("case".to_owned(), self.case.clone()),
                (LINK.to_owned(), names(&self.interfaces)),
            ]),
            offset: timewire_datapath::ptp_offset().map(|offset| Box::new(offset) as _),
            marks: Some(Marks::open_at(place.path(), Users::Own).map_err(marks)?),
        };
        let file = File::create(path).map_err(RunnerError::file("create", path))?;
        let sink = |header: &_| Writer::new(BufWriter::new(file), header).map(OfStations);
        Ok((Collector::start(request, sink)?, place))
    }
}
