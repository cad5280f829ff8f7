// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the captures of a case say of its messages.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use timewire_capture::capture::{CaptureError, CaptureHeader, Item, Note, Reader};
use timewire_capture::event::Event;
use timewire_capture::packet_path::{Observer, Point};
use timewire_capture::processing::{Known, Processing, Wanted};
use timewire_capture::summary::{Finding, TracedSummary};

use super::{CaseMeta, RunDir};
use crate::study::{Audience, Study};

/// A stream at one of its listeners, in its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberedMeta {
    /// The number of the stream.
    pub stream: u16,
    /// The station that hears it.
    pub listener: String,
}

/// The figures of a case; none where it was not traced.
///
/// **Errors**: a note that says why captures that there should be have none.
pub(super) fn of_case(
    directory: &RunDir,
    id: &str,
    case: &CaseMeta,
) -> Result<Option<TracedSummary>, Finding> {
    if case.traces.is_empty() {
        return Ok(None);
    }
    let place = directory.case_path(id);
    let paths: Vec<PathBuf> = case.traces.iter().map(|name| place.join(name)).collect();
    let failed = |why: String| Finding {
        id: "capture-unusable".to_owned(),
        verdict: None,
        limit: String::new(),
        measured: format!("{id} has no figures of traced messages: {why}"),
        note: place.display().to_string(),
    };
    let processing = match paths.as_slice() {
        [only] => read(only, case).map_err(|error| failed(error.to_string()))?,
        _ => joined(&paths, case).map_err(&failed)?,
    };
    let below =
        |path: &Path| path.strip_prefix(directory.path()).unwrap_or(path).display().to_string();
    let captures = paths.iter().map(|path| below(path)).collect();
    Ok(Some(processing.finish(captures, below(&place.join(PAGE)))))
}

/// The page of what was traced, in the directory of a case.
const PAGE: &str = "trace.html";

fn processing(case: &CaseMeta) -> Processing {
    let streams = case.streams.iter().filter_map(|it| {
        let known = match (&it.port, &it.numbered) {
            (Some(port), _) => Known::Port(port.get().into()),
            (None, Some(NumberedMeta { stream, listener })) => {
                Known::Number { stream: *stream, listener: listener.clone() }
            }
            (None, None) => return None,
        };
        Some((known, it.name.clone()))
    });
    let (streams, cycle) = (streams.collect(), case.cycle());
    Processing::new(Wanted { streams, from: case.from_ns, to: case.to_ns, cycle })
}

/// One capture, whose clock is that of all stations.
fn read(path: &Path, case: &CaseMeta) -> Result<Processing, CaptureError> {
    let mut reader = Reader::new(File::open(path)?)?;
    let mut processing = processing(case);
    processing.header(0, reader.header());
    while let Some(item) = reader.next()? {
        match item {
            Item::Event(event) => {
                processing.event(0, i64::try_from(event.at_ns).unwrap_or(i64::MAX), &event);
            }
            Item::Note(note) => processing.note(0, &note),
        }
    }
    Ok(processing)
}

/// Those of several hosts, on the clock of the first.
fn joined(paths: &[PathBuf], case: &CaseMeta) -> Result<Processing, String> {
    let mut joined = Joined(processing(case));
    let clock_error = case.clock_bound.as_ref().map(|bound| bound.bound_ns.as_ns().unsigned_abs());
    let study = Study { captures: paths.to_vec(), clock_error_ns: clock_error, ..Study::default() };
    study.run(&mut joined, &mut |_| true).map_err(|error| error.to_string())?;
    Ok(joined.0)
}

struct Joined(Processing);

impl Observer for Joined {
    fn event(&mut self, capture: usize, point: &Point, event: &Event) {
        self.0.event(capture, point.at_ns, event);
    }
}

impl Audience for Joined {
    fn header(&mut self, capture: usize, header: &CaptureHeader) {
        self.0.header(capture, header);
    }

    fn note(&mut self, capture: usize, note: &Note) {
        self.0.note(capture, note);
    }
}
