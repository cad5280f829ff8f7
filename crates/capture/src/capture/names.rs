// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The notes of a capture, gathered; and an overview of what is in it.

use std::collections::BTreeMap;
use std::io::Read;

use serde::{Deserialize, Serialize};

use super::{CaptureError, CaptureHeader, ClockSample, Health, HookCount, Item, Note, Reader};
use crate::event::{Event, Hook};

/// What the notes say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names of threads.
    pub threads: BTreeMap<u32, String>,
    /// Names of points, and whose they are.
    pub points: BTreeMap<u64, (String, u32)>,
    /// Names of flows, by the upper half of their tags.
    pub flows: BTreeMap<u32, String>,
    /// Kinds of queueing disciplines: by station, interface and handle.
    pub qdiscs: BTreeMap<(u8, u32, u32), String>,
    /// All samples of the clocks.
    pub clocks: Vec<ClockSample>,
    /// What counters of programs came to: by process, thread and name.
    pub counters: BTreeMap<(u32, u32, String), u64>,
    /// What histograms of programs came to: counts of values by their number of bits, and the sum.
    pub histograms: BTreeMap<(u32, u32, String), (Vec<u64>, u64)>,
    /// The last count of losses.
    pub losses: Option<BTreeMap<String, HookCount>>,
}

impl Names {
    /// Takes a note in; a later one about the same thing is that which counts.
    pub fn add(&mut self, note: Note) {
        match note {
            Note::Thread { thread, name } => drop(self.threads.insert(thread, name)),
            Note::Point { point, name, process } => {
                self.points.insert(point, (name, process));
            }
            Note::Flow { flow, name } => drop(self.flows.insert(flow, name)),
            Note::Clocks(sample) => self.clocks.push(sample),
            Note::Qdisc { station, interface, handle, kind } => {
                self.qdiscs.insert((station, interface, handle), kind);
            }
            Note::Losses(losses) => self.losses = Some(losses),
            Note::Counter { process, thread, name, value, .. } => {
                self.counters.insert((process, thread, name), value);
            }
            Note::Histogram { process, thread, name, buckets, sum, .. } => {
                self.histograms.insert((process, thread, name), (buckets, sum));
            }
        }
    }
}

/// What is in a capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// Its header.
    pub header: CaptureHeader,
    /// **Units**: bytes of the file.
    pub bytes: u64,
    /// Events that were read.
    pub events: u64,
    /// **Units**: bytes of the file for each; 0 without events.
    pub bytes_per_event: f64,
    /// The time of the earliest. **Units**: ns of the capture's clock.
    pub first_ns: Option<u64>,
    /// The time of the latest.
    pub last_ns: Option<u64>,
    /// Events of each hook that had any, by its name.
    pub hooks: BTreeMap<String, u64>,
    /// Events of each station that had any, by its name; those of none under the empty name.
    pub stations: BTreeMap<String, u64>,
    /// Events of each CPU that had any.
    pub cpus: BTreeMap<u16, u64>,
    /// Events of drops by their reason.
    pub drops: BTreeMap<String, u64>,
    /// The last that was said about losses.
    pub losses: Option<BTreeMap<String, HookCount>>,
    /// What became of the file.
    pub health: Health,
}

impl Info {
    /// Reads a capture to its end, and what its notes say.
    ///
    /// **Errors**: the source fails.
    pub fn read<R: Read>(reader: &mut Reader<R>) -> Result<(Info, Names), CaptureError> {
        let mut names = Names::default();
        let mut counts = Counts::default();
        while let Some(item) = reader.next()? {
            match item {
                Item::Event(event) => counts.add(&event),
                Item::Note(note) => names.add(note),
            }
        }
        let header = reader.header().clone();
        let by_hook = Hook::ALL.iter().zip(&counts.hooks[1..]);
        let hooks = by_hook.map(|(hook, count)| (hook.name().to_owned(), *count));
        let mut stations = BTreeMap::new();
        for (number, count) in counts.stations.iter().enumerate().filter(|(_, count)| **count > 0) {
            let name = header.stations.get(number).map_or("", |station| station.name.as_str());
            *stations.entry(name.to_owned()).or_default() += count;
        }
        let mut drops = BTreeMap::new();
        for (reason, count) in counts.drops {
            *drops.entry(header.reason(reason)).or_default() += count;
        }
        if counts.other_drops > 0 {
            drops.insert("further reasons".to_owned(), counts.other_drops);
        }
        let (bytes, events) = (reader.bytes(), counts.events);
        let info = Info {
            bytes,
            events,
            bytes_per_event: if events == 0 { 0.0 } else { ratio(bytes, events) },
            first_ns: counts.times.map(|times| times.0),
            last_ns: counts.times.map(|times| times.1),
            hooks: hooks.filter(|(_, count)| *count > 0).collect(),
            stations,
            cpus: counts.cpus,
            drops,
            losses: names.losses.clone(),
            health: reader.health(),
            header,
        };
        Ok((info, names))
    }

    /// Events that are known to be lost: before they were written, and with damaged blocks.
    pub fn lost(&self) -> u64 {
        let counts = self.losses.iter().flat_map(|losses| losses.values());
        counts.map(|count| count.lost).fold(self.health.missing_events, u64::saturating_add)
    }
}

struct Counts {
    events: u64,
    times: Option<(u64, u64)>,
    hooks: [u64; Hook::ALL.len() + 1],
    stations: [u64; 256],
    cpus: BTreeMap<u16, u64>,
    drops: BTreeMap<u64, u64>,
    other_drops: u64,
}

/// Most reasons of drops that are counted apart.
const MAX_REASONS: usize = 1_024;

impl Default for Counts {
    fn default() -> Counts {
        let (hooks, stations) = ([0; Hook::ALL.len() + 1], [0; 256]);
        let (cpus, drops) = (BTreeMap::new(), BTreeMap::new());
        Counts { events: 0, times: None, hooks, stations, cpus, drops, other_drops: 0 }
    }
}

impl Counts {
    fn add(&mut self, event: &Event) {
        self.events += 1;
        let (first, last) = self.times.unwrap_or((event.at_ns, event.at_ns));
        self.times = Some((first.min(event.at_ns), last.max(event.at_ns)));
        self.hooks[usize::from(event.hook.number())] += 1;
        self.stations[usize::from(event.station)] += 1;
        *self.cpus.entry(event.cpu).or_default() += 1;
        if event.hook == Hook::Drop {
            let known = self.drops.contains_key(&event.aux);
            match known || self.drops.len() < MAX_REASONS {
                true => *self.drops.entry(event.aux).or_default() += 1,
                false => self.other_drops += 1,
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure of a few digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
