// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slots that follow from the streams: how long each station needs in every cycle for what it
//! sends, and so how long the cycle is.

use timewire_base::{Instant, Span, StationName};

use super::check::{LARGEST_MESSAGE, frame_of};
use super::item::Reader;
use super::model::{Scenario, Stream};
use super::record::record;
use super::segment_network::Origin;
use super::value::{ByteCount, Name};
use crate::tdm::{Slot, TdmSchedule};

record! {
    /// Slots that follow from the streams. The slot of a station has room for one message of each
    /// measured stream that it sends, in the load with the most, and of cyclic streams and
    /// pipelines for as many as come in a cycle. Floods take what is left: their frames fit, and a
    /// slot for floods alone has room for one.
    pub struct FromStreams {
        /// Part of each slot before its first frame is on the link: for what takes time at its
        /// start on the stations at hand. It is measured, and does not follow from the streams.
        start: Span = "0us",
        /// Slots are made a whole multiple of this, without their guard.
        step: Span = "1us",
        /// Whether all slots are as long as the longest that measured streams need, also those of
        /// stations that send nothing.
        equal: bool = "false",
        /// The stations that get a slot, in their order; without it, all of the file.
        stations: Option<Vec<StationName>>,
    }
}

/// A schedule whose slots are not known before the streams are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub from: FromStreams,
    /// The cycle, when the file has one.
    pub cycle: Option<Span>,
    pub base_time: Instant<timewire_base::Tai>,
    pub guard: Span,
}

/// What a station sends in a cycle, in the load with the most of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Frames of measured streams.
    pub frames: u64,
    /// How long they are on the link, with preamble, check sequence and gap.
    pub busy: Span,
}

impl Wanted {
    /// The schedule until the streams are known: it has the right type, and nobody sees it.
    pub fn placeholder() -> Option<TdmSchedule> {
        let (offset, guard) = (Span::ZERO, Span::ZERO);
        let station = StationName::new("nobody").ok()?;
        let slot = Slot { station, offset, transmit: Span::from_ns(1), guard };
        TdmSchedule::new(Instant::from_ns(0), Span::from_ns(1), vec![slot]).ok()
    }
}

/// Makes the slots where the file wants it; whether there are some.
pub(super) fn make(scenario: &mut Scenario, origin: &Origin, reader: &mut Reader) -> bool {
    let Some(wanted) = &origin.wanted else { return true };
    let before = reader.problems.len();
    check(wanted, reader);
    if reader.problems.len() > before {
        return false;
    }
    match fitting(scenario, wanted, reader) {
        Some(schedule) => {
            scenario.schedule = schedule;
            true
        }
        None => false,
    }
}

/// The slots in a cycle that has room for what comes in it; `None` after telling why there is none.
fn fitting(scenario: &Scenario, wanted: &Wanted, reader: &mut Reader) -> Option<TdmSchedule> {
    let asked = wanted.cycle;
    let mut cycle = asked.unwrap_or(Span::ZERO);
    for _ in 0..MAX_ROUNDS {
        let slots = slots(scenario, wanted, cycle);
        let Some(end) = slots.last().map(end_of) else {
            let message = "no station sends anything that a slot could be made for".to_owned();
            let hint = "add to `streams`, or the stations that send to `stations`";
            reader.fail_at("schedule.from_streams", message, hint);
            return None;
        };
        if end > LONGEST_CYCLE {
            break;
        }
        if asked.is_some_and(|asked| end > asked) {
            let message = format!("the slots that the streams need are {end} together");
            let hint = "leave `cycle_time` out, so that it follows from them; or make messages, \
                        `start`, `step` or `guard` shorter";
            reader.fail_at("schedule.cycle_time", message, hint);
            return None;
        }
        if asked.is_none() && end > cycle {
            // More messages of a period come in a longer cycle.
            cycle = end;
            continue;
        }
        let schedule = TdmSchedule::new(wanted.base_time, cycle, slots);
        return schedule
            .map_err(|error| reader.fail_at("schedule.from_streams", error.to_string(), ""))
            .ok();
    }
    too_much(scenario, reader);
    None
}

fn too_much(scenario: &Scenario, reader: &mut Reader) {
    let often = scenario.streams.iter().enumerate().filter_map(|(i, stream)| match stream {
        Stream::Pipeline(pipeline) => Some((pipeline.period?, i)),
        Stream::Cyclic(stream) => Some((stream.period, i)),
        Stream::RequestResponse(_) | Stream::Sporadic(_) | Stream::Flood(_) => None,
    });
    let (key, hint) = match often.min() {
        Some((period, i)) => (
            format!("streams[{i}].period"),
            format!("a message every {period} comes faster than slots pass: make it longer"),
        ),
        None => ("schedule.from_streams".to_owned(), "make `start` or `step` shorter".to_owned()),
    };
    let message = format!("no cycle of at most {LONGEST_CYCLE} has room for what the streams send");
    reader.fail_at(&key, message, &hint);
}

fn check(wanted: &Wanted, reader: &mut Reader) {
    let FromStreams { step, stations, .. } = &wanted.from;
    let at = "schedule.from_streams";
    if *step == Span::ZERO {
        let message = "every length is a multiple of 0ns".to_owned();
        reader.fail_at(&format!("{at}.step"), message, "write 1ns for slots as short as can be");
    }
    if wanted.cycle == Some(Span::ZERO) {
        let hint = "give the cycle a length, or leave it out";
        reader.fail_at("schedule.cycle_time", "a cycle of 0ns has no length".to_owned(), hint);
    }
    let stations = stations.as_deref().unwrap_or_default();
    for (i, station) in stations.iter().enumerate() {
        if stations[..i].contains(station) {
            let message = format!("`{station}` has a slot already");
            reader.fail_at(&format!("{at}.stations[{i}]"), message, "remove it");
        }
    }
}

/// One slot for each station that needs one, one after the other. Lengths saturate; they are beyond
/// any cycle then.
fn slots(scenario: &Scenario, wanted: &Wanted, cycle: Span) -> Vec<Slot> {
    let from = &wanted.from;
    let all = scenario.stations.iter().map(|station| &station.name);
    let all: Vec<&StationName> = match &from.stations {
        Some(stations) => stations.iter().collect(),
        None => all.collect(),
    };
    let lengths: Vec<Option<Span>> =
        all.iter().map(|station| length(scenario, from, station, cycle)).collect();
    // A flood takes what is left: it makes no slots longer, but its frames must fit.
    let of_floods = all.iter().filter_map(|station| scenario.frame_of_floods(station));
    let of_measured = all.iter().zip(&lengths).filter(|it| scenario.room(it.0, cycle).is_some());
    let longest = of_measured
        .filter_map(|(_, length)| *length)
        .chain(of_floods.map(|busy| up_to_step(sum([scenario.mac.margin, busy]), from.step)))
        .max();
    let mut offset = Span::ZERO;
    let place = |(station, length): (&StationName, Option<Span>)| {
        let transmit = if from.equal { longest } else { length }?;
        let slot = Slot { station: station.clone(), offset, transmit, guard: wanted.guard };
        offset = end_of(&slot);
        Some(slot)
    };
    all.into_iter().zip(lengths).filter_map(place).collect()
}

/// How long a slot of this station transmits; `None` when it sends nothing.
fn length(
    scenario: &Scenario,
    from: &FromStreams,
    station: &StationName,
    cycle: Span,
) -> Option<Span> {
    let (start, margin) = (from.start, scenario.mac.margin);
    let room = scenario.room(station, cycle);
    let flood = scenario.frame_of_floods(station);
    let length = match (room, flood) {
        (Some(room), None) => sum([start, margin, room]),
        (Some(room), Some(flood)) => sum([start, margin, room]).max(sum([margin, flood])),
        (None, Some(flood)) => sum([start, margin, flood.max(scenario.mac.best_effort_share)]),
        (None, None) => return None,
    };
    Some(up_to_step(length, from.step))
}

impl Scenario {
    /// What a station sends of the measured streams in each cycle, in the load with the most: one
    /// message of each stream that waits for its answer before the next, and of cyclic streams and
    /// pipelines as many as come.
    pub fn need_of(&self, station: &StationName) -> Need {
        let cycle = self.schedule.cycle();
        let needs = self.experiment.loads.iter().map(|load| {
            let [first, second] = self.needs_in(load, station, cycle);
            let frames = first.frames.saturating_add(second.frames);
            Need { frames, busy: sum([first.busy, second.busy]) }
        });
        needs.max_by_key(|need| need.busy).unwrap_or_default()
    }

    /// Room on the link that a station needs in each cycle for measured streams; `None` when it
    /// sends none.
    fn room(&self, station: &StationName, cycle: Span) -> Option<Span> {
        let share = self.mac.best_effort_share;
        let needs = self.experiment.loads.iter().map(|load| {
            let [first, others] = self.needs_in(load, station, cycle);
            (sum([first.busy, others.busy.max(share)]), first.frames.max(others.frames))
        });
        needs.max().filter(|(_, frames)| *frames > 0).map(|(room, _)| room)
    }

    /// The longest frame of floods.
    fn frame_of_floods(&self, station: &StationName) -> Option<Span> {
        let floods = self.floods().filter(|flood| flood.talker == *station);
        floods.map(|flood| self.busy(flood.size.get())).max()
    }

    /// Of the streams with a priority, and of the others.
    fn needs_in(&self, load: &Name, station: &StationName, cycle: Span) -> [Need; 2] {
        let mut needs = [Need::default(); 2];
        let measured = |stream: &&Stream| !matches!(stream, Stream::Flood(_));
        for stream in self.streams.iter().filter(measured).filter(|it| it.runs_in(load)) {
            let sends = stream.senders().into_iter().filter(|(_, name)| *name == station).count();
            let in_cycle = match stream {
                Stream::Pipeline(pipeline) => pipeline.period.map_or(1, |it| ceil(cycle, it)),
                Stream::Cyclic(stream) => ceil(cycle, stream.period),
                Stream::RequestResponse(_) | Stream::Sporadic(_) | Stream::Flood(_) => 1,
            };
            let frames = in_cycle.saturating_mul(u64::try_from(sends).unwrap_or(u64::MAX));
            let ports = stream.ports();
            let first = self.queues.send.iter().any(|entry| ports.contains(&entry.port));
            let need = &mut needs[usize::from(!first)];
            need.frames = need.frames.saturating_add(frames);
            let busy = self.busy(stream.size().get());
            let busy = busy.checked_mul(i64::try_from(frames).unwrap_or(i64::MAX));
            need.busy = sum([need.busy, busy.unwrap_or(Span::MAX)]);
        }
        needs
    }

    /// How long the frame of a message is on the segment, with preamble, check sequence and gap.
    pub fn on_link(&self, message: ByteCount) -> Span {
        self.busy(message.get())
    }

    /// How long the frame of a message is on the link. One that fits no frame is an error that is
    /// told elsewhere.
    fn busy(&self, message: u32) -> Span {
        self.segment().rate.duration_of(frame_of(message.min(LARGEST_MESSAGE)).wire_len())
    }
}

/// Longest cycle that is made: what has no room in it has none in a longer one.
const LONGEST_CYCLE: Span = Span::from_secs(1);
/// Lengths of the cycle that are tried, each longer than the one before.
const MAX_ROUNDS: usize = 1_000;

fn sum<const N: usize>(parts: [Span; N]) -> Span {
    let all = parts.into_iter().try_fold(Span::ZERO, Span::checked_add);
    all.unwrap_or(Span::MAX)
}

fn end_of(slot: &Slot) -> Span {
    sum([slot.offset, slot.transmit, slot.guard])
}

/// How many of these begin in so long, at least one.
pub(super) fn ceil(length: Span, period: Span) -> u64 {
    let (length, period) = (length.as_ns().max(1), period.as_ns().max(1));
    u64::try_from((length - 1) / period + 1).unwrap_or(1)
}

/// The least multiple of the step that is as long.
fn up_to_step(length: Span, step: Span) -> Span {
    let step = step.as_ns().max(1);
    let steps = (length.as_ns().max(1) - 1) / step + 1;
    Span::from_ns(step).checked_mul(steps).unwrap_or(Span::MAX)
}
