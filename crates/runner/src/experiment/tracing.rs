// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The capture of one case: the packets of the measured streams on their way through the stations,
//! and the marks of the programs and MACs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use timewire_base::IfName;
use timewire_bpf::trace::{Settings, Tracer};
use timewire_capture::capture::{Note, Writer};
use timewire_capture::event::{EVENT_BYTES, Event};
use timewire_capture::filter::Filter;
use timewire_capture::processing::LINK;
use timewire_model::scenario::{MessageFlow, Name, Scenario};
use timewire_sys::marker::{RunPlace, Users};

use crate::RunnerError;
use crate::markers::Marks;
use crate::trace::TraceError;
use crate::trace::collect::{Collector, Request, Sink, StationAt};

/// The capture of a case, in its directory.
pub(crate) const FILE: &str = "trace.twc";

/// A capture that is being taken.
pub(crate) struct Tracing {
    collector: Collector<OfStations>,
    path: PathBuf,
}

/// Leaves out what happened elsewhere than at a station: at the hub, which stands for a cable, and
/// in programs that have nothing to do with the run.
pub(super) struct OfStations(pub(super) Writer<BufWriter<File>>);

impl Sink for OfStations {
    fn events(&mut self, events: &[[u8; EVENT_BYTES]]) -> io::Result<()> {
        let at_station = |event: &&[u8; EVENT_BYTES]| {
            Event::from_bytes(event).is_some_and(|event| event.station != Event::NO_STATION)
        };
        events.iter().filter(at_station).try_for_each(|event| self.0.event_bytes(event))
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.0.note(note)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether packets can be traced here: tried before anything is made.
///
/// **Errors**: no privilege, or a kernel without what is needed.
pub(crate) fn check() -> Result<(), RunnerError> {
    Tracer::open(&Settings::default()).map(drop).map_err(|error| TraceError::from(error).into())
}

impl Tracing {
    /// Begins; from its return on packets and marks are seen. Of the case with this name, at
    /// stations with these interfaces to the network.
    ///
    /// **Errors**: it cannot be taken, or not be written.
    pub(crate) fn start(
        filter: &str,
        (id, links): (&str, String),
        (stations, place): (Vec<StationAt>, &RunPlace),
        directory: &Path,
    ) -> Result<Tracing, RunnerError> {
        let filter = Filter::parse(filter).map_err(super::backend::invalid)?;
        let marks = Marks::open_at(place.path(), Users::Own).map_err(|error| {
            RunnerError::Invalid(format!("cannot listen to the marks of programs: {error}"))
        })?;
        let request = Request {
            settings: Settings {
                filter: filter.compile().map_err(super::backend::invalid)?,
                ..Settings::default()
            },
            filter: filter.text().to_owned(),
            stations,
            meta: BTreeMap::from([("case".to_owned(), id.to_owned()), (LINK.to_owned(), links)]),
            offset: None,
            marks: Some(marks),
        };
        let path = directory.join(FILE);
        let file = File::create(&path).map_err(RunnerError::file("create", &path))?;
        let sink = |header: &_| Writer::new(BufWriter::new(file), header).map(OfStations);
        Ok(Tracing { collector: Collector::start(request, sink)?, path })
    }

    /// Ends it, with all that is still under way to the file.
    ///
    /// **Errors**: it could not be written.
    pub(crate) fn finish(self) -> Result<(), RunnerError> {
        let (OfStations(writer), tracer, _) = self.collector.finish()?;
        drop(tracer);
        let write = |error: io::Error| RunnerError::file("write", &self.path)(error);
        let file = writer.finish().map_err(write)?;
        file.into_inner().map_err(|error| write(error.into_error())).map(drop)
    }
}

/// The interfaces of a station, as a capture has them.
pub(super) fn names(interfaces: &[IfName]) -> String {
    interfaces.iter().map(IfName::as_str).collect::<Vec<_>>().join(" ")
}

/// The messages of the measured streams, in tcpdump's words.
pub(super) fn filter_text(scenario: &Scenario, load: &Name) -> String {
    let words = scenario.measured_in(load).filter_map(|stream| match stream.way {
        MessageFlow::Asked { port } => Some(format!("udp port {}", port.get())),
        MessageFlow::OneWay { port } => Some(format!("udp dst port {}", port.get())),
        MessageFlow::Whole => None,
    });
    words.collect::<Vec<_>>().join(" or ")
}
