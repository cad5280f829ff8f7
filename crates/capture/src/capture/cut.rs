// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A part of a capture: of a time, stations, hooks, flows, or by a filter.
//!
//! Timestamps, numbers and tags are as they were. All notes are kept: counts of losses are those of
//! the whole capture.

use std::collections::BTreeSet;
use std::io::{Read, Write};

use super::{CaptureError, CaptureHeader, Item, Names, Reader, Writer};
use crate::event::{Event, Hook};
use crate::filter::{EventFilter, Filter};

/// What is kept; what is empty or `None` asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// From this time on. **Units**: ns of the capture's clock.
    pub from_ns: Option<u64>,
    /// Up to before this time.
    pub until_ns: Option<u64>,
    /// Indexes of stations.
    pub stations: BTreeSet<u8>,
    /// Hooks.
    pub hooks: BTreeSet<Hook>,
    /// Upper halves of tags.
    pub flows: BTreeSet<u32>,
    /// Where this holds.
    pub filter: Option<Filter>,
}

/// What came of a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Events that were kept.
    pub kept: u64,
    /// Events that were left out.
    pub left_out: u64,
    /// Of those, events of which it is not known whether the filter holds.
    pub undecided: u64,
}

impl Cut {
    /// The header of the part: that of the whole, and in `meta` what was cut.
    pub fn header(&self, whole: &CaptureHeader) -> CaptureHeader {
        let mut header = whole.clone();
        let mut said = Vec::new();
        said.extend(self.from_ns.map(|at| format!("from {at} ns")));
        said.extend(self.until_ns.map(|at| format!("until {at} ns")));
        let station = |index: &u8| match whole.stations.get(usize::from(*index)) {
            Some(station) => format!("station \"{}\"", station.name),
            None => format!("station {index}"),
        };
        said.extend(either(self.stations.iter().map(station)));
        said.extend(either(self.hooks.iter().map(|hook| format!("hook {}", hook.name()))));
        said.extend(either(self.flows.iter().map(|flow| format!("flow {flow:#010x}"))));
        said.extend(self.filter.as_ref().map(|filter| filter.text().to_owned()));
        let before = header.meta.remove("cut").into_iter();
        let all: Vec<String> = before.chain([said.join("; ")]).filter(|s| !s.is_empty()).collect();
        if !all.is_empty() {
            header.meta.insert("cut".to_owned(), all.join("; then "));
        }
        header
    }

    /// Copies what is kept. The writer was begun with [`Cut::header`]; the names are of the whole
    /// capture ([`super::Info::read`]).
    ///
    /// **Errors**: source or sink fails.
    pub fn copy<R: Read, W: Write>(
        &self,
        reader: &mut Reader<R>,
        names: &Names,
        writer: &mut Writer<W>,
    ) -> Result<CutReport, CaptureError> {
        let header = reader.header().clone();
        let filter = self.filter.as_ref().map(|filter| filter.of_events(&header, names));
        let mut report = CutReport::default();
        while let Some(item) = reader.next()? {
            match item {
                Item::Note(note) => writer.note(&note)?,
                Item::Event(event) => match self.holds(&event, filter.as_ref()) {
                    Some(true) => {
                        report.kept += 1;
                        writer.event(&event)?;
                    }
                    decided => {
                        report.left_out += 1;
                        report.undecided += u64::from(decided.is_none());
                    }
                },
            }
        }
        Ok(report)
    }

    fn holds(&self, event: &Event, filter: Option<&EventFilter<'_>>) -> Option<bool> {
        let plain = self.from_ns.is_none_or(|from| event.at_ns >= from)
            && self.until_ns.is_none_or(|until| event.at_ns < until)
            && (self.stations.is_empty() || self.stations.contains(&event.station))
            && (self.hooks.is_empty() || self.hooks.contains(&event.hook))
            && (self.flows.is_empty() || event.tag != 0 && self.flows.contains(&event.flow()));
        if !plain {
            return Some(false);
        }
        filter.map_or(Some(true), |filter| filter.holds(event))
    }
}

fn either(words: impl Iterator<Item = String>) -> Option<String> {
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(" or "))
}
