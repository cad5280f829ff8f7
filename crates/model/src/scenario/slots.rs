// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedule as a scenario writes it: slots may leave out their offset, and then follow the slot
//! before them, and their guard, and then have the common one.

use serde_json::{Value as Json, json};
use timewire_base::{Instant, Span, StationName};

use super::from_streams::{FromStreams, Wanted};
use super::item::{Item, Reader};
use super::model::{Scenario, Stream};
use super::record::{choice, record};
use super::tree::Node;
use crate::tdm::{Slot, TdmError, TdmSchedule};

record! {
    /// Who may send when.
    struct ScheduleDraft {
        /// What kind of schedule it is.
        kind: ScheduleKind,
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
        /// Instead of `slots`: they follow from the streams of the scenario.
        from_streams: Option<FromStreams>,
        /// The slots of the cycle. A station may have several, or none.
        slots: Option<Vec<SlotDraft>>,
    }
}

choice! {
    /// In which order slots stand in the cycle.
    enum SlotOrder {
        /// As they are written.
        AsWritten = "as-written",
        /// So that what the pipelines of the scenario hand on waits least for the next slot. The
        /// first slot stays the first; slots have no offsets of their own.
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

impl Item for TdmSchedule {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let draft = ScheduleDraft::read(node, reader)?;
        let path = reader.path().to_owned();
        let written = draft.slots.as_deref().unwrap_or_default();
        if draft.order == SlotOrder::AlongPipelines {
            reader.is_ordered = true;
            if !reader.has_pipelines {
                let message = "pipelines are in files whose cases have a `backend`".to_owned();
                reader.fail_at(&format!("{path}.order"), message, "remove it");
            }
            for (index, _) in written.iter().enumerate().filter(|it| it.1.offset.is_some()) {
                let message = "a slot with an offset stands where it is".to_owned();
                let hint = "remove it, or `order: along-pipelines`";
                reader.fail_at(&format!("{path}.slots[{index}].offset"), message, hint);
            }
        }
        let base_time = Instant::from_ns(draft.base_time.as_ns());
        if let Some(from) = draft.from_streams {
            if !reader.has_pipelines {
                let message = "slots follow from the streams of files whose cases have a `backend`"
                    .to_owned();
                reader.fail_at(&format!("{path}.from_streams"), message, "write `slots`");
            }
            if draft.slots.is_some() {
                let message = "the slots follow from the streams, and are written too".to_owned();
                let hint = "remove `slots`, or `from_streams`";
                reader.fail_at(&format!("{path}.slots"), message, hint);
            }
            reader.wanted =
                Some(Wanted { from, cycle: draft.cycle_time, base_time, guard: draft.guard });
            return Wanted::placeholder();
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
        TdmSchedule::new(base_time, cycle, slots).ok()
    }

    fn emit(&self) -> Option<Json> {
        let slots = self.slots().iter().map(|slot| SlotDraft {
            station: slot.station.clone(),
            offset: Some(slot.offset),
            transmit: Some(slot.transmit),
            guard: Some(slot.guard),
        });
        ScheduleDraft {
            kind: ScheduleKind::Tdm,
            cycle_time: Some(self.cycle()),
            base_time: Span::from_ns(self.base_time().as_ns()),
            guard: Span::ZERO,
            transmit: None,
            order: SlotOrder::AsWritten,
            from_streams: None,
            slots: Some(slots.collect()),
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
