// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times that a run recorded, as what software of a simulation needs: between two taps of the
//! messages in a record file, or a column of a CSV file.
//!
//! Not here: the record file (`timewire_trace::record`), drawing one of the times (`timewire-sim`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use timewire_base::Span;
use timewire_sched::scenario::network::NetRecorded;
use timewire_trace::record::{RecordFile, Tap};

/// Most times of a file: 32 MiB.
const MOST: usize = 1 << 22;

/// The times of a file, in their order.
///
/// **Errors**: it cannot be read, has none, or one that cannot be.
pub fn read(beside: &Path, wanted: &NetRecorded) -> anyhow::Result<Vec<Span>> {
    let path = beside.join(wanted.file.as_str());
    let shown = path.display();
    let bytes = fs::read(&path).with_context(|| format!("cannot read the times of {shown}"))?;
    let times = match &wanted.column {
        Some(column) => of_column(&bytes, column.as_str()),
        None => of_records(&bytes, wanted),
    };
    let times = times.with_context(|| format!("cannot take times from {shown}"))?;
    if times.is_empty() {
        bail!("cannot take times from {shown}: there is none of what is asked for");
    }
    if times.len() > MOST {
        bail!("cannot take times from {shown}: {} are more than {MOST}", times.len());
    }
    Ok(times)
}

fn of_records(bytes: &[u8], wanted: &NetRecorded) -> anyhow::Result<Vec<Span>> {
    let file = RecordFile::decode(bytes)?;
    let (from, to) = (tap(wanted.from.as_str())?, tap(wanted.to.as_str())?);
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
    for record in of_flow().filter(|record| record.tap == from) {
        begun.entry((record.flow, record.seq)).or_insert(record.at_ns);
    }
    let mut times = Vec::new();
    for record in of_flow().filter(|record| record.tap == to) {
        if let Some(began) = begun.remove(&(record.flow, record.seq)) {
            times.push(span(record.at_ns.saturating_sub(began))?);
        }
    }
    Ok(times)
}

fn tap(name: &str) -> anyhow::Result<Tap> {
    Tap::ALL.into_iter().find(|tap| tap.name() == name).with_context(|| {
        let all: Vec<&str> = Tap::ALL.iter().map(|tap| tap.name()).collect();
        format!("`{name}` is no tap; there are {}", all.join(", "))
    })
}

fn of_column(bytes: &[u8], column: &str) -> anyhow::Result<Vec<Span>> {
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
fn span(ns: i64) -> anyhow::Result<Span> {
    let span = Span::from_ns(ns);
    if span.is_negative() || span > timewire_sim::net::Network::LONGEST {
        bail!("{span} is no time that software needs");
    }
    Ok(span)
}
