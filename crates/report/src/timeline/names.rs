// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What captures call their stations, interfaces, threads, points and flows.

use std::collections::BTreeMap;

use timewire_capture::capture::{CaptureHeader, ClockSample, HookCount, Note};
use timewire_capture::event::Event;

/// The names in captures' headers and notes, and what they say of losses.
#[derive(Clone, Debug, Default)]
pub struct Names {
    headers: BTreeMap<usize, CaptureHeader>,
    threads: BTreeMap<(usize, u32), String>,
    points: BTreeMap<(usize, u64), String>,
    qdiscs: BTreeMap<(usize, u8, u32, u32), String>,
    flows: BTreeMap<u32, String>,
    losses: BTreeMap<usize, BTreeMap<String, HookCount>>,
    clocks: BTreeMap<usize, ClockSample>,
}

/// **Units**: characters of a name that are shown; it stands at everything that has it.
const LONGEST: usize = 128;
/// Hooks whose losses are told one by one, at most.
const MAX_LOSSES: usize = 100;

/// A name as it is shown.
fn short(name: &str) -> String {
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

impl Names {
    /// A capture's header.
    pub fn header(&mut self, capture: usize, header: &CaptureHeader) {
        let mut header = header.clone();
        header.host = short(&header.host);
        for station in &mut header.stations {
            station.name = short(&station.name);
            station.interfaces.values_mut().for_each(|name| *name = short(name));
        }
        header.meta.values_mut().for_each(|value| *value = short(value));
        self.headers.insert(capture, header);
    }

    /// A capture's note.
    pub fn note(&mut self, capture: usize, note: &Note) {
        match note {
            Note::Thread { thread, name } => {
                self.threads.insert((capture, *thread), short(name));
            }
            Note::Point { point, name, .. } => {
                self.points.insert((capture, *point), short(name));
            }
            Note::Flow { flow, name } => {
                self.flows.insert(*flow, short(name));
            }
            Note::Qdisc { station, interface, handle, kind } => {
                self.qdiscs.insert((capture, *station, *interface, *handle), short(kind));
            }
            Note::Clocks(sample) => {
                self.clocks.entry(capture).or_insert(*sample);
            }
            Note::Losses(losses) => {
                self.losses.insert(capture, losses.clone());
            }
            // What programs counted is no place on a timeline.
            Note::Counter { .. } | Note::Histogram { .. } => {}
        }
    }

    /// A host's name, or its number.
    pub fn host(&self, capture: usize) -> String {
        let named = self.headers.get(&capture).map(|header| header.host.clone());
        named.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("host {capture}"))
    }

    /// A station's name, or its number; empty for none of the stations.
    pub fn station(&self, capture: usize, station: u8) -> String {
        if station == Event::NO_STATION {
            return String::new();
        }
        let header = self.headers.get(&capture);
        let found = header.and_then(|header| header.stations.get(usize::from(station)));
        found.map_or_else(|| format!("station {station}"), |found| found.name.clone())
    }

    /// An interface's name, or its index.
    pub fn interface(&self, capture: usize, station: u8, interface: u32) -> String {
        let header = self.headers.get(&capture);
        let found = header.and_then(|header| header.stations.get(usize::from(station)));
        let name = found.and_then(|found| found.interfaces.get(&interface));
        name.map_or_else(|| format!("interface {interface}"), Clone::clone)
    }

    /// A thread's name with its number.
    pub fn thread(&self, capture: usize, thread: u32) -> String {
        match self.threads.get(&(capture, thread)) {
            Some(name) => format!("{name} ({thread})"),
            None => format!("thread {thread}"),
        }
    }

    /// The name of a marker's point, or its number.
    pub fn point(&self, capture: usize, point: u64) -> String {
        let name = self.points.get(&(capture, point));
        name.map_or_else(|| format!("point {point}"), Clone::clone)
    }

    /// A queueing discipline, as `tc` writes it.
    pub fn qdisc(&self, capture: usize, station: u8, interface: u32, handle: u32) -> String {
        let kind = self.qdiscs.get(&(capture, station, interface, handle));
        let kind = kind.map_or("qdisc", String::as_str);
        format!("{kind} {:x}:{:x}", handle >> 16, handle & 0xffff)
    }

    /// The reason of a drop in words.
    pub fn reason(&self, capture: usize, reason: u64) -> String {
        let header = self.headers.get(&capture);
        match header {
            Some(header) => header.reason(reason),
            None => CaptureHeader::default().reason(reason),
        }
    }

    /// An interrupt: its number, with its name where that is known.
    pub fn interrupt(&self, capture: usize, interrupt: u64) -> String {
        let header = self.headers.get(&capture);
        header.map_or_else(|| interrupt.to_string(), |header| header.interrupt(interrupt))
    }

    /// A flow in words, or its number.
    pub fn flow(&self, flow: u32) -> String {
        self.flows.get(&flow).cloned().unwrap_or_else(|| format!("flow {flow:08x}"))
    }

    /// What was lost, a sentence for each host and hook that lost any; the most first, and one for
    /// all beyond the first [`MAX_LOSSES`].
    pub fn losses(&self) -> Vec<String> {
        let of = |(&capture, hooks): (&usize, &BTreeMap<String, HookCount>)| {
            let lost = hooks.iter().filter(|(_, count)| count.lost > 0);
            let host = self.host(capture);
            let line = |(hook, count): (&String, &HookCount)| {
                let (lost, all) = (count.lost, count.lost.saturating_add(count.written));
                (lost, format!("{host}: {lost} of {all} events of {} were lost", short(hook)))
            };
            lost.map(line).collect::<Vec<_>>()
        };
        let mut all: Vec<(u64, String)> = self.losses.iter().flat_map(of).collect();
        all.sort_by_key(|(lost, _)| std::cmp::Reverse(*lost));
        let more = all.split_off(all.len().min(MAX_LOSSES));
        let mut lines: Vec<String> = all.into_iter().map(|(_, line)| line).collect();
        if !more.is_empty() {
            let lost = more.iter().map(|(lost, _)| *lost).fold(0, u64::saturating_add);
            lines.push(format!("{lost} events of {} further hooks were lost", more.len()));
        }
        lines
    }

    /// The first sample of a capture's clocks.
    pub(super) fn clocks(&self, capture: usize) -> Option<&ClockSample> {
        self.clocks.get(&capture)
    }

    /// The numbers of the captures that are known.
    pub(super) fn captures(&self) -> impl Iterator<Item = usize> {
        self.headers.keys().copied()
    }
}
