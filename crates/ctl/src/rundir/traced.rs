// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the capture of a case says of its messages.
//!
//! Not here: the figures (`timewire_trace::processing`), taking the capture (`experiment`).

use std::fs::File;
use std::path::Path;

use timewire_trace::capture::{CaptureError, Item, Reader};
use timewire_trace::processing::{Processing, Wanted};
use timewire_trace::summary::{Finding, Outcome, TracedSummary};

use super::{CaseMeta, RunDir};
use crate::experiment::tracing::LINK;

/// The figures of a case; none where it was not traced.
///
/// **Errors**: a note that says why a capture that there should be has none.
pub(super) fn of_case(
    directory: &RunDir,
    id: &str,
    case: &CaseMeta,
) -> Result<Option<TracedSummary>, Finding> {
    let Some(name) = &case.trace else { return Ok(None) };
    let path = directory.case_path(id).join(name);
    let failed = |why: String| Finding {
        id: "capture-unusable".to_owned(),
        outcome: Outcome::Note,
        limit: String::new(),
        measured: format!("{id} has no figures of traced messages: {why}"),
        note: path.display().to_string(),
    };
    let file = File::open(&path).map_err(|error| failed(error.to_string()))?;
    let below = |name: &str| {
        let path = directory.case_path(id).join(name);
        path.strip_prefix(directory.path()).unwrap_or(&path).display().to_string()
    };
    let page = Path::new(name).with_extension("html").display().to_string();
    let processing = read(file, case).map_err(|error| failed(error.to_string()))?;
    Ok(Some(processing.finish(below(name), below(&page))))
}

fn read(file: File, case: &CaseMeta) -> Result<Processing, CaptureError> {
    let mut reader = Reader::new(file)?;
    let streams = case.streams.iter();
    let streams = streams.filter_map(|it| Some((it.port?.get().into(), it.name.clone())));
    let wanted = Wanted {
        streams: streams.collect(),
        from: case.from_ns,
        to: case.to_ns,
        cycle: case.cycle(),
        link: reader.header().meta.get(LINK).cloned().unwrap_or_default(),
    };
    let mut processing = Processing::new(reader.header(), wanted);
    while let Some(item) = reader.next()? {
        match item {
            Item::Event(event) => processing.event(&event),
            Item::Note(note) => processing.note(&note),
        }
    }
    Ok(processing)
}
