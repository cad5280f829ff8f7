// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedule as a file writes it: who carries it out, when programs send, and the slots, which
//! may leave out their offset, and then follow the slot before them, and their guard, and then have
//! the common one.

use serde_json::{Value as Json, json};
use timewire_base::{Instant, Span, StationName};

use super::from_streams::{FromStreams, Wanted};
use super::item::{Item, Reader};
use super::model::{CaseBackend, Release, Scenario, Stream};
use super::record::{choice, record};
use super::tree::Node;
use crate::tdm::{Slot, TdmError, TdmSchedule};

record! {
    /// Who may send when.
    struct ScheduleDraft {
        /// What kind of schedule it is.
        kind: ScheduleKind,
        /// What carries it out.
        by: ScheduleBy = "mac",
        /// When programs of streams with a class above 0 send.
        release: Release = "free",
        /// With another release than `free`: how long before the slot of its station a program
        /// sends. Long enough for the message to pass the stack, short enough to be fresh.
        lead: Option<Span>,
        /// Length of the cycle, which repeats for ever. Without it, the cycle ends with the last
        /// slot and its guard.
        cycle_time: Option<Span>,
        /// When a cycle starts, as time on the TAI scale since 1970.
        base_time: Span = "0s",
        /// Guard of a slot that gives none: silence after it, for the error of the clocks.
        guard: Span = "0us",
        /// How long frames may be on the link in a slot that does not say so.
        transmit: Option<Span>,
        /// The order of the slots.
        order: SlotOrder = "as-written",
        /// Instead of `slots`: they follow from the streams.
        from_streams: Option<FromStreams>,
        /// The slots of the cycle. A station may have several, or none.
        slots: Option<Vec<SlotDraft>>,
    }
}

choice! {
    /// What carries the schedule out. All but `mac` need a kernel that has the queueing
    /// disciplines, as the laboratory's own does.
    pub enum ScheduleBy {
        /// Timewire's own MAC, as `mac` says; or the backend that `timewire run --backend` names.
        Mac = "mac",
        /// The queueing discipline taprio of the kernel.
        Taprio = "taprio",
        /// taprio in its txtime-assist mode over the queueing discipline etf.
        TaprioAssist = "taprio-assist",
        /// The queueing discipline etf, by a launch time in the slots for each real-time frame;
        /// best effort goes at any time.
        Etf = "etf",
        /// The queueing discipline cbs: no slots; the real-time class of each station is shaped to
        /// its rate.
        Cbs = "cbs",
    }
}

choice! {
    /// In which order slots stand in the cycle.
    enum SlotOrder {
        /// As they are written.
        AsWritten = "as-written",
        /// So that what the pipelines of the file hand on waits least for the next slot. The first
        /// slot stays the first; slots have no offsets of their own.
        AlongPipelines = "along-pipelines",
    }
}

choice! {
    /// What kind of schedule it is.
    enum ScheduleKind {
        /// Time-division multiplexing: in each slot of the cycle, one station may send.
        Tdm = "tdm",
    }
}

record! {
    /// One slot of the cycle; or the name of its station alone.
    struct SlotDraft by "station" {
        /// The station that may send.
        station: StationName,
        /// Start in the cycle; without it, directly after the slot before, its guard included.
        offset: Option<Span>,
        /// How long frames of the station may be on the link; without it, as the schedule says.
        transmit: Option<Span>,
        /// Silence after that; without it, the guard of the schedule.
        guard: Option<Span>,
    }
}

/// The schedule of a network of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetSchedule {
    /// Who may send when; of slots that follow from the streams, nothing yet.
    pub slots: TdmSchedule,
    /// What carries it out.
    pub by: ScheduleBy,
    /// When programs of streams with a class above 0 send.
    pub release: Release,
    /// How long before the slot of its station such a program sends.
    pub lead: Option<Span>,
    /// Whether the slots are to stand in the order of the pipelines.
    pub(super) is_along_pipelines: bool,
    /// What the slots are to follow from.
    pub(super) wanted: Option<Wanted>,
}

impl NetSchedule {
    /// Whether nothing but the MAC and slots as they are written are asked for, which the simulator
    /// of networks has.
    pub(super) fn is_plain(&self) -> bool {
        let NetSchedule { slots: _, by, release, lead, is_along_pipelines, wanted } = self;
        let is_of_mac = *by == ScheduleBy::Mac && *release == Release::Free && lead.is_none();
        is_of_mac && !is_along_pipelines && wanted.is_none()
    }

    /// The key of the first thing that is more.
    pub(super) fn first_of_programs(&self) -> &'static str {
        match () {
            () if self.by != ScheduleBy::Mac => "schedule.by",
            () if self.release != Release::Free => "schedule.release",
            () if self.lead.is_some() => "schedule.lead",
            () if self.wanted.is_some() => "schedule.from_streams",
            () => "schedule.order",
        }
    }

    /// With these slots in place of those that follow from something.
    pub(super) fn with_slots(&self, slots: TdmSchedule) -> NetSchedule {
        NetSchedule { slots, is_along_pipelines: false, wanted: None, ..self.clone() }
    }

    /// The stations that slots are to be made for, as they are written.
    pub(super) fn wanted_stations(&self) -> &[StationName] {
        self.wanted.as_ref().and_then(|it| it.from.stations.as_deref()).unwrap_or_default()
    }
}

impl ScheduleBy {
    /// What carries out a case with this schedule.
    pub(super) fn backend(self) -> CaseBackend {
        match self {
            ScheduleBy::Mac => CaseBackend::Mac,
            ScheduleBy::Taprio => CaseBackend::Taprio,
            ScheduleBy::TaprioAssist => CaseBackend::TaprioAssist,
            ScheduleBy::Etf => CaseBackend::Etf,
            ScheduleBy::Cbs => CaseBackend::Cbs,
        }
    }
}

impl Item for NetSchedule {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let draft = ScheduleDraft::read(node, reader)?;
        let is_along_pipelines = draft.order == SlotOrder::AlongPipelines;
        let (by, release, lead) = (draft.by, draft.release, draft.lead);
        let (slots, wanted) = read_slots(node, draft, reader)?;
        Some(NetSchedule { slots, by, release, lead, is_along_pipelines, wanted })
    }

    fn emit(&self) -> Option<Json> {
        let is_made = self.wanted.is_some();
        let slots = self.slots.slots().iter().map(|slot| SlotDraft {
            station: slot.station.clone(),
            offset: Some(slot.offset).filter(|_| !self.is_along_pipelines),
            transmit: Some(slot.transmit),
            guard: Some(slot.guard),
        });
        let (cycle_time, base_time, guard) = match &self.wanted {
            Some(wanted) => (wanted.cycle, wanted.base_time, wanted.guard),
            None => (Some(self.slots.cycle()), self.slots.base_time(), Span::ZERO),
        };
        ScheduleDraft {
            kind: ScheduleKind::Tdm,
            by: self.by,
            release: self.release,
            lead: self.lead,
            cycle_time,
            base_time: Span::from_ns(base_time.as_ns()),
            guard,
            transmit: None,
            order: match self.is_along_pipelines {
                true => SlotOrder::AlongPipelines,
                false => SlotOrder::AsWritten,
            },
            from_streams: self.wanted.as_ref().map(|wanted| wanted.from.clone()),
            slots: (!is_made).then(|| slots.collect()),
        }
        .emit()
    }

    fn schema() -> Json {
        let mut schema = ScheduleDraft::schema();
        schema["oneOf"] = json!([
            {"required": ["slots"], "not": {"required": ["from_streams"]}},
            {"required": ["from_streams"], "not": {"required": ["slots"]}},
        ]);
        schema
    }
}

/// The slots that are written, or what they are to follow from.
fn read_slots(
    node: &Node,
    draft: ScheduleDraft,
    reader: &mut Reader,
) -> Option<(TdmSchedule, Option<Wanted>)> {
    let path = reader.path().to_owned();
    let written = draft.slots.as_deref().unwrap_or_default();
    if draft.order == SlotOrder::AlongPipelines {
        for (index, _) in written.iter().enumerate().filter(|it| it.1.offset.is_some()) {
            let message = "a slot with an offset stands where it is".to_owned();
            let hint = "remove it, or `order: along-pipelines`";
            reader.fail_at(&format!("{path}.slots[{index}].offset"), message, hint);
        }
    }
    let base_time = Instant::from_ns(draft.base_time.as_ns());
    if let Some(from) = draft.from_streams {
        if draft.slots.is_some() {
            let message = "the slots follow from the streams, and are written too".to_owned();
            let hint = "remove `slots` (`slots: null` where a file is included), or `from_streams`";
            reader.fail_at(&format!("{path}.slots"), message, hint);
        }
        let wanted = Wanted { from, cycle: draft.cycle_time, base_time, guard: draft.guard };
        return Some((Wanted::placeholder()?, Some(wanted)));
    }
    let Some(drafts) = draft.slots.as_deref() else {
        let hint = "slots: The slots of the cycle. Or write `from_streams: {}` instead.";
        reader.fail(node.mark, "the key `slots` is missing".to_owned(), hint);
        return None;
    };
    let mut complete = true;
    for (index, _) in drafts.iter().enumerate().filter(|it| it.1.transmit.is_none()) {
        if draft.transmit.is_none() {
            let message = "the slot has no length".to_owned();
            let hint = "add `transmit: 220us` to it, or to the schedule for all slots";
            reader.fail_at(&format!("{path}.slots[{index}]"), message, hint);
            complete = false;
        }
    }
    if !complete {
        return None;
    }
    let slots = resolve(drafts, draft.transmit.unwrap_or(Span::ZERO), draft.guard);
    let end = |slot: &Slot| {
        slot.offset.checked_add(slot.transmit).and_then(|end| end.checked_add(slot.guard))
    };
    let last = slots.iter().map(|slot| end(slot).unwrap_or(Span::MAX)).max();
    let cycle = draft.cycle_time.or(last).unwrap_or(Span::from_ns(1));
    let problems = TdmSchedule::problems(cycle, &slots);
    for problem in &problems {
        let (key, hint) = explain(problem, &slots);
        reader.fail_at(&format!("{path}.{key}"), problem.to_string(), &hint);
    }
    Some((TdmSchedule::new(base_time, cycle, slots).ok()?, None))
}

/// Puts the slots into the order of the pipelines.
pub(super) fn order(scenario: &mut Scenario, reader: &mut Reader) {
    let pipelines: Vec<&[StationName]> = scenario
        .streams
        .iter()
        .filter_map(|stream| match stream {
            Stream::Pipeline(pipeline) => Some(&pipeline.stations[..]),
            Stream::RequestResponse(_)
            | Stream::Cyclic(_)
            | Stream::Sporadic(_)
            | Stream::Flood(_) => None,
        })
        .collect();
    if pipelines.is_empty() {
        let message = "there is no pipeline in `streams` that slots could be put along".to_owned();
        let hint = "add one (`kind: pipeline`), or remove `order`";
        return reader.fail_at("schedule.order", message, hint);
    }
    scenario.schedule = scenario.schedule.along(&pipelines);
}

/// Gives each slot its offset, length and guard. An offset beyond 292 years saturates; it is beyond
/// any cycle.
fn resolve(drafts: &[SlotDraft], transmit: Span, guard: Span) -> Vec<Slot> {
    let mut next = Span::ZERO;
    let slots = drafts.iter().map(|slot| {
        let guard = slot.guard.unwrap_or(guard);
        let offset = slot.offset.unwrap_or(next);
        let transmit = slot.transmit.unwrap_or(transmit);
        let end = offset.checked_add(transmit).and_then(|end| end.checked_add(guard));
        next = end.unwrap_or(Span::MAX);
        Slot { station: slot.station.clone(), offset, transmit, guard }
    });
    slots.collect()
}

/// The key to point at, and what to do.
fn explain(problem: &TdmError, slots: &[Slot]) -> (String, String) {
    match problem {
        TdmError::EmptyCycle { .. } => ("cycle_time".into(), "give the cycle a length".into()),
        TdmError::NoSlots => {
            ("slots".into(), "add `- { station: ..., transmit: ... }` for each sender".into())
        }
        TdmError::EmptySlot { index, .. } => {
            (format!("slots[{index}].transmit"), "give it a length, or remove the slot".into())
        }
        TdmError::BeforeCycle { index, .. } => (format!("slots[{index}].offset"), String::new()),
        TdmError::NegativeGuard { index, .. } => (format!("slots[{index}].guard"), String::new()),
        TdmError::BeyondCycle { index, end, .. } => {
            let total = slots
                .iter()
                .try_fold(Span::ZERO, |sum, slot| {
                    sum.checked_add(slot.transmit)?.checked_add(slot.guard)
                })
                .unwrap_or(Span::MAX);
            let hint = format!(
                "all slots with their guards together are {total}: make them shorter, or the \
                 cycle at least {}",
                (*end).max(total)
            );
            (format!("slots[{index}].transmit"), hint)
        }
        TdmError::Overlap { index, end, .. } => {
            let hint = format!("start it at {end} or later, or leave `offset` out");
            (format!("slots[{index}].offset"), hint)
        }
        TdmError::TooMany { .. } => ("slots".into(), String::new()),
    }
}
