// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of one or more hosts, read together: their clocks are brought onto one timeline, and
//! the packets in them become packet paths.
//!
//! The files are read twice: first for what is lost, for samples of clocks and for packets that
//! two hosts saw; then for everything else. Memory is bounded whatever their length.
//!
//! Not here: taking captures (`trace`), what packet paths are (`timewire_capture::packet_path`),
//! how clocks are compared (`timewire_capture::align`).

mod clocks;
mod error;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;
use timewire_base::CyclicWindows;
use timewire_capture::align::{Assumptions, Crossings, Shared, Twins};
use timewire_capture::capture::{
    CaptureHeader, ClockSample, Health, HookCount, Item, Note, Reader,
};
use timewire_capture::event::{Event, Hook};
use timewire_capture::packet_path::analysis::{Analysis, Wanted};
use timewire_capture::packet_path::{CaptureInfo, ClockMap, Observer};

pub use clocks::{Aligned, ClockWay, Clocks, Disagreement};
use clocks::{Compared, Grounds};
pub use error::StudyError;

/// Most tags that are kept of each host to compare clocks.
const MAX_TAGS: usize = 1 << 18;
/// Most events that are kept of each capture to find those of one kernel.
const MAX_EVENTS: usize = 1 << 16;
/// Events after which progress is told.
const TOLD_EVERY: u64 = 1 << 14;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// The captures; the clock of the first one's host is that of all.
    pub captures: Vec<PathBuf>,
    /// What to make of them.
    pub wanted: Wanted,
    /// What is taken for granted about clocks that nobody synchronises.
    pub assumptions: Assumptions,
    /// When stations may send, by their names.
    pub schedules: BTreeMap<String, CyclicWindows>,
    /// The clocks of two hosts are at most so far apart, where their captures do not tell it.
    ///
    /// **Units**: ns.
    pub clock_error_ns: Option<u64>,
}

/// What was found of one capture, beside its packet paths.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureReport {
    /// Its file.
    pub file: PathBuf,
    /// Its header.
    pub header: CaptureHeader,
    /// Events in it.
    pub events: u64,
    /// The first and the last timestamp, of its own clock.
    ///
    /// **Units**: ns.
    pub from_ns: u64,
    /// As before.
    pub to_ns: u64,
    /// How often each hook was reached, and what of it was lost, as the capture says last.
    pub hooks: BTreeMap<String, HookCount>,
    /// How the file is.
    pub health: Health,
    /// It saw what another capture of the same kernel saw, and is left out.
    pub twin: Option<Twin>,
}

/// A capture that is left out.
#[derive(Clone, Debug, Serialize)]
pub struct Twin {
    /// The capture that stands for it.
    pub of: PathBuf,
    /// What both have.
    pub shared: Shared,
}

impl Twin {
    /// Of the events that were looked at, those that only the capture that is left out has.
    pub fn only_here(&self) -> usize {
        self.shared.only_second()
    }
}

impl CaptureReport {
    /// Events that had no room, or that are missing in the file.
    pub fn lost(&self) -> u64 {
        let lost: u64 = self.hooks.values().map(|count| count.lost).sum();
        lost + self.health.missing_events
    }
}

/// What a study came to.
#[derive(Debug)]
pub struct Studied {
    /// Of each capture.
    pub captures: Vec<CaptureReport>,
    /// How the clocks of the hosts are compared.
    pub clocks: Clocks,
    /// Tables, worst packet paths, chains.
    pub analysis: Analysis<Clocks>,
    /// Whether it was ended before all events were gone through.
    pub ended_early: bool,
}

/// Who is told what passes while captures are read.
pub trait Audience: Observer {
    /// A capture's header, before anything else of it.
    fn header(&mut self, capture: usize, header: &CaptureHeader) {
        let _ = (capture, header);
    }

    /// A note, before the events that were written after it.
    fn note(&mut self, capture: usize, note: &Note) {
        let _ = (capture, note);
    }
}

/// Keeps every packet path.
impl Audience for Vec<timewire_capture::packet_path::PacketPath> {}

/// What the first reading brings.
struct First {
    report: CaptureReport,
    info: CaptureInfo,
    samples: Vec<ClockSample>,
    /// Captures with the same number are of one kernel.
    kernel: usize,
}

impl First {
    fn compared(&self) -> Compared<'_> {
        Compared { report: &self.report, samples: &self.samples, kernel: self.kernel }
    }
}

/// What captures have in common.
struct Pairs {
    crossings: Option<Crossings>,
    twins: Twins,
}

impl Study {
    /// Reads the captures and analyses them. `also` sees every event and packet path; `progress` is
    /// told the share that is done, 0 to 1, and says whether to go on: without, what comes of it is
    /// of the events until then.
    ///
    /// **Errors**: a file that is no capture, or cannot be read; hosts whose clocks nothing joins;
    /// an end before any packet path could be found.
    pub fn run(
        &self,
        also: &mut impl Audience,
        progress: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Studied, StudyError> {
        if self.captures.is_empty() {
            return Err(StudyError::Nothing);
        }
        let bytes: u64 = self.captures.iter().map(|file| size(file)).sum::<Result<_, _>>()?;
        let mut done = Done { bytes: 2 * bytes, read: 0, told: progress, is_over: false };
        let mut pairs =
            Pairs { crossings: None, twins: Twins::new(self.captures.len(), MAX_EVENTS) };
        let mut firsts = self.first(&mut pairs, &mut done)?;
        leave_out_twins(&mut firsts, &pairs.twins);
        let compared: Vec<Compared<'_>> = firsts.iter().map(First::compared).collect();
        let grounds = Grounds {
            crossings: pairs.crossings.as_ref(),
            assumptions: self.assumptions,
            stated_ns: self.clock_error_ns,
        };
        let clocks = Clocks::of(&compared, &grounds)?;
        let infos = firsts.iter().map(|first| first.info.clone()).collect();
        let mut analysis = Analysis::new(infos, clocks.clone(), self.wanted.clone());
        for (capture, first) in firsts.iter().enumerate() {
            analysis.header(capture, &first.report.header);
            also.header(capture, &first.report.header);
            for (station, number) in first.report.header.stations.iter().zip(0_u8..) {
                if let Some(windows) = self.schedules.get(&station.name) {
                    analysis.schedule(capture, number, windows.clone());
                }
            }
        }
        let twins = firsts.iter().map(|first| first.report.twin.is_some()).collect::<Vec<_>>();
        self.second((&clocks, &twins), &mut analysis, also, &mut done)?;
        analysis.finish(also);
        let captures = firsts.into_iter().map(|first| first.report).collect();
        Ok(Studied { captures, clocks, analysis, ended_early: done.is_over })
    }

    fn first(&self, pairs: &mut Pairs, done: &mut Done<'_>) -> Result<Vec<First>, StudyError> {
        let mut boots: Vec<String> = Vec::new();
        let mut readers = Vec::new();
        for file in &self.captures {
            let reader = open(file)?;
            let boot = &reader.header().boot;
            // One that does not know its boot shares its clock with no other.
            let same = |known: &String| !boot.is_empty() && known == boot;
            let host = boots.iter().position(same).unwrap_or_else(|| {
                boots.push(boot.clone());
                boots.len() - 1
            });
            readers.push((host, reader));
        }
        if boots.len() > 1 {
            pairs.crossings = Some(Crossings::new(boots.len(), MAX_TAGS));
        }
        let mut firsts = Vec::new();
        for ((host, reader), file) in readers.into_iter().zip(&self.captures) {
            let capture = firsts.len();
            firsts.push(first(file, (capture, host), reader, pairs, done)?);
        }
        Ok(firsts)
    }

    /// Gives all events in the order of the common clock, as far as each capture is in order.
    fn second(
        &self,
        (clocks, twins): (&Clocks, &[bool]),
        analysis: &mut Analysis<Clocks>,
        also: &mut impl Audience,
        done: &mut Done<'_>,
    ) -> Result<(), StudyError> {
        let before = done.read;
        let mut readers = Vec::new();
        let mut next = Vec::new();
        for (capture, file) in self.captures.iter().enumerate() {
            readers.push(open(file)?);
            if twins[capture] {
                next.push(None);
                continue;
            }
            next.push(step(file, &mut readers[capture], |note| {
                analysis.note(capture, note);
                also.note(capture, note);
            })?);
        }
        let mut count = 0_u64;
        // The next by the common clock, of all captures.
        while let Some((capture, event)) = next
            .iter()
            .enumerate()
            .filter_map(|(capture, next): (usize, &Option<Event>)| Some((capture, (*next)?)))
            .min_by_key(|(capture, event)| clocks.to_common(*capture, event.at_ns).ns)
        {
            analysis.event(capture, &event, also);
            let (file, reader) = (&self.captures[capture], &mut readers[capture]);
            next[capture] = step(file, reader, |note| {
                analysis.note(capture, note);
                also.note(capture, note);
            })?;
            count += 1;
            if count.is_multiple_of(TOLD_EVERY) {
                done.read = before + readers.iter().map(Reader::bytes).sum::<u64>();
                done.tell();
                if done.is_over {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The next event of a capture; notes before it are told.
fn step(
    file: &Path,
    reader: &mut Reader<File>,
    mut note: impl FnMut(&Note),
) -> Result<Option<Event>, StudyError> {
    loop {
        let failed = |source| StudyError::Capture { file: file.to_owned(), source };
        match reader.next().map_err(failed)? {
            Some(Item::Note(found)) => note(&found),
            Some(Item::Event(event)) => return Ok(Some(event)),
            None => return Ok(None),
        }
    }
}

/// Progress over all files, each read twice.
struct Done<'a> {
    bytes: u64,
    read: u64,
    told: &'a mut dyn FnMut(f64) -> bool,
    /// Nobody wants to go on.
    is_over: bool,
}

impl Done<'_> {
    fn tell(&mut self) {
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = self.read as f64 / self.bytes.max(1) as f64;
        self.is_over |= !(self.told)(share.min(1.0));
    }
}

fn size(file: &Path) -> Result<u64, StudyError> {
    let meta = std::fs::metadata(file);
    let read = |source| StudyError::Open { file: file.to_owned(), source };
    Ok(meta.map_err(read)?.len())
}

fn open(file: &Path) -> Result<Reader<File>, StudyError> {
    let opened =
        File::open(file).map_err(|source| StudyError::Open { file: file.to_owned(), source })?;
    Reader::new(opened).map_err(|source| StudyError::Capture { file: file.to_owned(), source })
}

fn first(
    file: &Path,
    (capture, host): (usize, usize),
    mut reader: Reader<File>,
    pairs: &mut Pairs,
    done: &mut Done<'_>,
) -> Result<First, StudyError> {
    let header = reader.header().clone();
    let mut info = CaptureInfo::of(&header);
    let mut samples = Vec::new();
    let (mut from_ns, mut to_ns, mut events) = (u64::MAX, 0, 0_u64);
    let mut losses = Losses::default();
    let before = done.read;
    loop {
        let item = reader.next();
        let failed = |source| StudyError::Capture { file: file.to_owned(), source };
        match item.map_err(failed)? {
            Some(Item::Event(event)) => {
                events += 1;
                from_ns = from_ns.min(event.at_ns);
                to_ns = to_ns.max(event.at_ns);
                pairs.twins.event(capture, &header.stations, &event);
                if let Some(crossings) = &mut pairs.crossings {
                    crossings.event(host, &event);
                }
                if events.is_multiple_of(TOLD_EVERY) {
                    done.read = before + reader.bytes();
                    done.tell();
                    if done.is_over {
                        return Err(StudyError::EndRequested);
                    }
                }
            }
            Some(Item::Note(Note::Losses(now))) => losses.counted(now),
            Some(Item::Note(Note::Clocks(sample))) => {
                losses.sampled(sample.monotonic_ns, &mut info);
                samples.push(sample);
            }
            Some(Item::Note(_)) => {}
            None => break,
        }
    }
    done.read = before + reader.bytes();
    losses.sampled(to_ns, &mut info);
    let hooks = losses.last;
    let health = reader.health();
    if health.missing_events > 0 || health.missing_blocks > 0 || health.damaged > 0 {
        // Nobody knows of which hooks, nor when.
        for hook in info.hooks.clone() {
            info.losses.push(missing(hook, from_ns.min(to_ns), to_ns, health.missing_events));
        }
    }
    let from_ns = from_ns.min(to_ns);
    let (file, twin) = (file.to_owned(), None);
    let report = CaptureReport { file, header, events, from_ns, to_ns, hooks, health, twin };
    Ok(First { report, info, samples, kernel: host })
}

/// Of captures of one kernel that saw the same packets, the one with the most events stands for
/// all: a packet would be followed twice otherwise, and come from itself.
fn leave_out_twins(firsts: &mut [First], twins: &Twins) {
    let mut order: Vec<usize> = (0..firsts.len()).collect();
    order.sort_by_key(|&capture| std::cmp::Reverse(firsts[capture].report.events));
    for (place, &capture) in order.iter().enumerate() {
        let mut before = order[..place].iter().filter(|&&of| firsts[of].report.twin.is_none());
        let found = before.find_map(|&of| {
            let shared = twins.between(of, capture);
            shared.is_one_kernel().then_some((of, shared))
        });
        if let Some((of, shared)) = found {
            let kernel = firsts[of].kernel;
            let twin = Twin { of: firsts[of].report.file.clone(), shared };
            (firsts[capture].kernel, firsts[capture].report.twin) = (kernel, Some(twin));
        }
    }
}

/// When events were lost: notes come earlier than the events that they stand behind, so it is the
/// samples of clocks around a count that tell its time.
#[derive(Default)]
struct Losses {
    /// The last count.
    last: BTreeMap<String, HookCount>,
    /// The last sample before it.
    last_ns: u64,
    /// The last sample of all.
    sample_ns: u64,
    /// A count that waits for the sample behind it: the one before, and the sample before that.
    waiting: Option<(u64, BTreeMap<String, HookCount>)>,
}

impl Losses {
    fn counted(&mut self, now: BTreeMap<String, HookCount>) {
        let before = std::mem::replace(&mut self.last, now);
        let from = std::mem::replace(&mut self.last_ns, self.sample_ns);
        // Two counts without a sample between them are as one.
        self.waiting.get_or_insert((from, before));
    }

    fn sampled(&mut self, at_ns: u64, info: &mut CaptureInfo) {
        if let Some((from, before)) = self.waiting.take() {
            // Captures that were put together can have one's notes behind the other's.
            let from = if at_ns < from { 0 } else { from };
            info.add_losses((from, &before), (at_ns.max(self.sample_ns), &self.last));
        }
        self.sample_ns = at_ns;
    }
}

fn missing(
    hook: Hook,
    from_ns: u64,
    to_ns: u64,
    events: u64,
) -> timewire_capture::packet_path::Loss {
    timewire_capture::packet_path::Loss { hook, from_ns, to_ns, events: events.max(1) }
}

#[cfg(test)]
mod tests;
