// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several captures of one boot, on one timeline.
//!
//! Captures of one boot have one clock, so their events are put in order and nothing else happens
//! to their timestamps. Stations of the same namespace become one; numbers of stations and points
//! are changed where two captures use one for different things. Objects stay as they are: they are
//! disguised for each capture, so the same packet has another object in another.
//!
//! Captures of several boots have several clocks and stay apart ([`by_boot`]): what reads them
//! takes several files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{Read, Write};

use thiserror::Error;

use super::write::MAX_STATIONS;
use super::{CaptureError, CaptureHeader, HookCount, Item, Names, Note, Reader, Station, Writer};
use crate::event::{Event, Hook};

/// Why captures cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There are none.
    #[error("there is nothing to merge")]
    Nothing,
    /// They are not of one boot.
    #[error(
        "capture {capture} is of another boot ({boot}) than the first ({first}): they share no \
         clock, and stay files of their own"
    )]
    Boots {
        /// Which, from 0.
        capture: usize,
        /// Its boot.
        boot: String,
        /// That of the first.
        first: String,
    },
    /// Together they have too many stations.
    #[error("together they have {count} stations; a capture has {max} at most")]
    Stations {
        /// How many.
        count: usize,
        /// The bound.
        max: usize,
    },
}

/// Which captures are of the same boot: for each boot the indexes of its captures, in the order of
/// the first of each.
pub fn by_boot(headers: &[&CaptureHeader]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, header) in headers.iter().enumerate() {
        // A capture that does not know its boot shares its clock with no other.
        let same = |group: &&mut Vec<usize>| {
            !header.boot.is_empty() && headers[group[0]].boot == header.boot
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// How captures become one.
#[derive(Clone, Debug)]
pub struct Merge {
    header: CaptureHeader,
    sources: Vec<Renumber>,
}

/// New numbers of what a capture has numbers for, where they differ.
#[derive(Clone, Debug, Default)]
struct Renumber {
    stations: Vec<u8>,
    points: BTreeMap<u64, u64>,
}

/// What a merge did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeReport {
    /// Events of each capture.
    pub events: Vec<u64>,
}

impl Merge {
    /// From the headers of captures and what their notes say.
    ///
    /// **Errors**: they are not of one boot, or have too many stations.
    pub fn new(captures: &[(&CaptureHeader, &Names)]) -> Result<Merge, MergeError> {
        let (first, _) = captures.first().ok_or(MergeError::Nothing)?;
        let mut all = (*first).clone();
        let mut sources = Vec::new();
        let mut points = BTreeMap::new();
        let used = captures.iter().flat_map(|(_, names)| names.points.keys()).max();
        let mut free = used.map_or(0, |point| point.wrapping_add(1));
        for (capture, (header, names)) in captures.iter().enumerate() {
            if header.boot != first.boot || header.boot.is_empty() && capture > 0 {
                let (boot, first) = (header.boot.clone(), first.boot.clone());
                return Err(MergeError::Boots { capture, boot, first });
            }
            if capture > 0 {
                join(&mut all, header);
            }
            let stations = header.stations.iter().map(|station| place(&mut all.stations, station));
            let stations: Vec<usize> = stations.collect();
            let count = all.stations.len();
            if count > MAX_STATIONS {
                return Err(MergeError::Stations { count, max: MAX_STATIONS });
            }
            let stations = stations.into_iter().map(u8::try_from);
            let stations = Result::from_iter(stations).expect("invariant: at most 255 stations");
            let points = renumbered(&mut points, names, &mut free);
            sources.push(Renumber { stations, points });
        }
        // What one of them watched is not missing in all.
        let watched = &all.hooks;
        all.missing.retain(|hook, _| !watched.contains(hook));
        Ok(Merge { header: all, sources })
    }

    /// The header of the whole: the writer is begun with it.
    pub fn header(&self) -> &CaptureHeader {
        &self.header
    }

    /// Puts the captures together; the readers are at the start, in the order of [`Merge::new`].
    ///
    /// **Errors**: a source or the sink fails.
    ///
    /// **Panics** when there are not as many readers as captures.
    pub fn copy<R: Read, W: Write>(
        &self,
        readers: &mut [Reader<R>],
        writer: &mut Writer<W>,
    ) -> Result<MergeReport, CaptureError> {
        assert_eq!(readers.len(), self.sources.len(), "as many readers as captures");
        let mut losses = vec![BTreeMap::new(); readers.len()];
        let mut report = MergeReport { events: vec![0; readers.len()] };
        let mut heads = BinaryHeap::new();
        let mut waiting = vec![None; readers.len()];
        let mut refill = (0..readers.len()).collect::<Vec<usize>>();
        loop {
            while let Some(source) = refill.pop() {
                match readers[source].next()? {
                    None => {}
                    Some(Item::Event(event)) => {
                        heads.push(Reverse((event.at_ns, source)));
                        waiting[source] = Some(event);
                    }
                    Some(Item::Note(note)) => {
                        let note = self.note(source, note, &mut losses);
                        writer.note(&note)?;
                        refill.push(source);
                    }
                }
            }
            let Some(Reverse((_, source))) = heads.pop() else { return Ok(report) };
            if let Some(event) = waiting[source].take() {
                report.events[source] += 1;
                writer.event(&self.event(source, event))?;
            }
            refill.push(source);
        }
    }

    fn event(&self, source: usize, event: Event) -> Event {
        let renumber = &self.sources[source];
        let object = match event.hook {
            Hook::Marker => renumber.points.get(&event.object).copied().unwrap_or(event.object),
            _ => event.object,
        };
        Event { object, station: renumber.station(event.station), ..event }
    }

    fn note(&self, source: usize, note: Note, losses: &mut [BTreeMap<String, HookCount>]) -> Note {
        let renumber = &self.sources[source];
        match note {
            Note::Point { point, name, process } => {
                let point = renumber.points.get(&point).copied().unwrap_or(point);
                Note::Point { point, name, process }
            }
            Note::Qdisc { station, interface, handle, kind } => {
                Note::Qdisc { station: renumber.station(station), interface, handle, kind }
            }
            Note::Losses(counts) => {
                losses[source] = counts;
                let mut sum: BTreeMap<String, HookCount> = BTreeMap::new();
                for (hook, count) in losses.iter().flatten() {
                    let all = sum.entry(hook.clone()).or_default();
                    all.seen = all.seen.saturating_add(count.seen);
                    all.written = all.written.saturating_add(count.written);
                    all.lost = all.lost.saturating_add(count.lost);
                }
                Note::Losses(sum)
            }
            note => note,
        }
    }
}

impl Renumber {
    fn station(&self, station: u8) -> u8 {
        self.stations.get(usize::from(station)).copied().unwrap_or(Event::NO_STATION)
    }
}

/// The index of a station among all.
fn place(stations: &mut Vec<Station>, station: &Station) -> usize {
    let same = |known: &Station| match station.namespace {
        0 => known == station,
        namespace => known.namespace == namespace,
    };
    let index = stations.iter().position(same).unwrap_or(stations.len());
    match stations.get_mut(index) {
        Some(known) => {
            for (number, name) in &station.interfaces {
                known.interfaces.entry(*number).or_insert_with(|| name.clone());
            }
        }
        None => stations.push(station.clone()),
    }
    index
}

/// Takes over what a header says beside its stations.
fn join(all: &mut CaptureHeader, header: &CaptureHeader) {
    for hook in &header.hooks {
        if !all.hooks.contains(hook) {
            all.hooks.push(hook.clone());
        }
    }
    for (hook, why) in &header.missing {
        all.missing.entry(hook.clone()).or_insert_with(|| why.clone());
    }
    if all.filter != header.filter {
        let either = |text: &str| !text.is_empty();
        let both = either(&all.filter) && either(&header.filter);
        // One that took all packets makes all of it.
        all.filter =
            if both { format!("({}) or ({})", all.filter, header.filter) } else { String::new() };
    }
    all.keep_one_of = all.keep_one_of.min(header.keep_one_of);
    for (key, value) in &header.meta {
        let known = all.meta.entry(key.clone()).or_insert_with(|| value.clone());
        if known != value {
            known.push_str("; ");
            known.push_str(value);
        }
    }
}

/// New numbers for points whose number is taken by another.
fn renumbered(
    points: &mut BTreeMap<u64, (String, u32)>,
    names: &Names,
    free: &mut u64,
) -> BTreeMap<u64, u64> {
    let mut changed = BTreeMap::new();
    for (point, whose) in &names.points {
        let known = points.entry(*point).or_insert_with(|| whose.clone());
        if known == whose {
            continue;
        }
        let same = points.iter().find(|(_, known)| *known == whose).map(|(number, _)| *number);
        let number = same.unwrap_or_else(|| {
            while points.contains_key(free) {
                *free = free.wrapping_add(1);
            }
            points.insert(*free, whose.clone());
            *free
        });
        changed.insert(*point, number);
    }
    changed
}
