// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times that a run recorded, as what software of a simulation needs: between two timestamp points
//! of the messages in a record file, or a column of a CSV file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use timewire_base::Span;
use timewire_capture::record::{RecordFile, TimestampPoint};
use timewire_model::scenario::network::NetRecorded;

use crate::RunnerError;
use crate::error::{Context as _, invalid};

/// Most times of a file: 32 MiB.
const MAX_TIMES: usize = 1 << 22;

/// The times of a file, in their order.
///
/// **Errors**: it cannot be read, has none, or one that cannot be.
pub fn read(beside: &Path, wanted: &NetRecorded) -> Result<Vec<Span>, RunnerError> {
    let path = beside.join(wanted.file.as_str());
    let shown = path.display();
    let bytes = fs::read(&path).with_context(|| format!("cannot read the times of {shown}"))?;
    let times = match &wanted.column {
        Some(column) => of_column(&bytes, column.as_str()),
        None => of_records(&bytes, wanted),
    };
    let times = times.with_context(|| format!("cannot take times from {shown}"))?;
    if times.is_empty() {
        return Err(RunnerError::Invalid(format!(
            "cannot take times from {shown}: there is none of what is asked for"
        )));
    }
    if times.len() > MAX_TIMES {
        return Err(RunnerError::Invalid(format!(
            "cannot take times from {shown}: {} are more than {MAX_TIMES}",
            times.len()
        )));
    }
    Ok(times)
}

fn of_records(bytes: &[u8], wanted: &NetRecorded) -> Result<Vec<Span>, RunnerError> {
    let file = RecordFile::decode(bytes).map_err(invalid)?;
    let (from, to) = (point(wanted.from.as_str())?, point(wanted.to.as_str())?);
    let flow = match &wanted.flow {
        None => None,
        Some(name) => {
            let place = file.header.flows.iter().position(|flow| flow == name.as_str());
            let known = || format!("there is no flow `{name}`; there are {:?}", file.header.flows);
            Some(place.with_context(known)?)
        }
    };
    let mut begun: BTreeMap<(u16, u32), i64> = BTreeMap::new();
    let of_flow = || {
        let records = file.records.iter();
        records.filter(|record| flow.is_none_or(|flow| usize::from(record.flow) == flow))
    };
    for record in of_flow().filter(|record| record.point == from) {
        begun.entry((record.flow, record.seq)).or_insert(record.at_ns);
    }
    let mut times = Vec::new();
    for record in of_flow().filter(|record| record.point == to) {
        if let Some(began) = begun.remove(&(record.flow, record.seq)) {
            times.push(span(record.at_ns.saturating_sub(began))?);
        }
    }
    Ok(times)
}

fn point(name: &str) -> Result<TimestampPoint, RunnerError> {
    TimestampPoint::ALL.into_iter().find(|point| point.name() == name).with_context(|| {
        let all: Vec<&str> = TimestampPoint::ALL.iter().map(|point| point.name()).collect();
        format!("`{name}` is no timestamp point; there are {}", all.join(", "))
    })
}

fn of_column(bytes: &[u8], column: &str) -> Result<Vec<Span>, RunnerError> {
    let text = std::str::from_utf8(bytes).context("it is no text")?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or("").split(',').map(str::trim).collect();
    let place = names.iter().position(|name| *name == column);
    let place = place.with_context(|| {
        format!("there is no column `{column}` in its first line; there are {}", names.join(", "))
    })?;
    let mut times = Vec::new();
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let cell = line.split(',').nth(place).map_or("", str::trim);
        // Where a row has no such time, nothing was measured.
        if cell.is_empty() {
            continue;
        }
        let ns = cell.parse::<i64>().ok();
        let place = || format!("line {}: `{cell}` is no whole number of nanoseconds", number + 2);
        times.push(span(ns.with_context(place)?)?);
    }
    Ok(times)
}

/// No time is negative, or longer than a simulation.
fn span(ns: i64) -> Result<Span, RunnerError> {
    let span = Span::from_ns(ns);
    if span.is_negative() || span > timewire_sim::net::Network::LONGEST {
        return Err(RunnerError::Invalid(format!("{span} is no time that software needs")));
    }
    Ok(span)
}
