// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedule as a scenario writes it: slots may leave out their offset, and then follow the slot
//! before them, and their guard, and then have the common one.
//!
//! Not here: what a schedule must be (`tdm`).

use serde_json::Value as Json;
use timewire_base::{Instant, Span, StationName};

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
        /// Length of the cycle, which repeats for ever.
        cycle: Span,
        /// When a cycle starts, as time on the TAI scale since 1970.
        base_time: Span = "0s",
        /// Guard of a slot that gives none: silence after it, for the error of the clocks.
        guard: Span = "0us",
        /// The order of the slots.
        order: SlotOrder = "as_written",
        /// The slots of the cycle. A station may have several, or none.
        slots: Vec<SlotDraft>,
    }
}

choice! {
    /// In which order slots stand in the cycle.
    enum SlotOrder {
        /// As they are written.
        AsWritten = "as_written",
        /// So that what the pipelines of the scenario hand on waits least for the next slot. The
        /// first slot stays the first; slots have no offsets of their own.
        AlongPipelines = "along_pipelines",
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
    /// One slot of the cycle.
    struct SlotDraft {
        /// The station that may send.
        station: StationName,
        /// Start in the cycle; without it, directly after the slot before, its guard included.
        offset: Option<Span>,
        /// How long frames of the station may be on the link.
        transmit: Span,
        /// Silence after that; without it, the guard of the schedule.
        guard: Option<Span>,
    }
}

impl Item for TdmSchedule {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let draft = ScheduleDraft::read(node, reader)?;
        if draft.order == SlotOrder::AlongPipelines {
            reader.is_ordered = true;
            let path = reader.path().to_owned();
            if !reader.has_pipelines {
                let message = "such a file has no pipelines".to_owned();
                reader.fail_at(&format!("{path}.order"), message, "remove it");
            }
            for (index, _) in draft.slots.iter().enumerate().filter(|it| it.1.offset.is_some()) {
                let message = "a slot with an offset stands where it is".to_owned();
                let hint = "remove it, or `order: along_pipelines`";
                reader.fail_at(&format!("{path}.slots[{index}].offset"), message, hint);
            }
        }
        let slots = resolve(&draft);
        let problems = TdmSchedule::problems(draft.cycle, &slots);
        let path = reader.path().to_owned();
        for problem in &problems {
            let (key, hint) = explain(problem, &slots);
            reader.fail_at(&format!("{path}.{key}"), problem.to_string(), &hint);
        }
        let base_time = Instant::from_ns(draft.base_time.as_ns());
        TdmSchedule::new(base_time, draft.cycle, slots).ok()
    }

    fn emit(&self) -> Option<Json> {
        let slots = self.slots().iter().map(|slot| SlotDraft {
            station: slot.station.clone(),
            offset: Some(slot.offset),
            transmit: slot.transmit,
            guard: Some(slot.guard),
        });
        ScheduleDraft {
            kind: ScheduleKind::Tdm,
            cycle: self.cycle(),
            base_time: Span::from_ns(self.base_time().as_ns()),
            guard: Span::ZERO,
            order: SlotOrder::AsWritten,
            slots: slots.collect(),
        }
        .emit()
    }

    fn schema() -> Json {
        ScheduleDraft::schema()
    }
}

/// Puts the slots into the order of the pipelines.
pub(super) fn order(scenario: &mut Scenario, reader: &mut Reader) {
    let pipelines: Vec<&[StationName]> = scenario
        .traffic
        .iter()
        .filter_map(|stream| match stream {
            Stream::Pipeline(pipeline) => Some(&pipeline.stations[..]),
            Stream::RequestResponse(_) | Stream::Flood(_) => None,
        })
        .collect();
    if pipelines.is_empty() {
        let message = "there is no pipeline in `traffic` that slots could be put along".to_owned();
        let hint = "add one (`kind: pipeline`), or remove `order`";
        return reader.fail_at("schedule.order", message, hint);
    }
    scenario.schedule = scenario.schedule.along(&pipelines);
}

/// Gives each slot its offset and its guard. An offset beyond 292 years saturates; it is beyond any
/// cycle.
fn resolve(draft: &ScheduleDraft) -> Vec<Slot> {
    let mut next = Span::ZERO;
    let slots = draft.slots.iter().map(|slot| {
        let guard = slot.guard.unwrap_or(draft.guard);
        let offset = slot.offset.unwrap_or(next);
        let end = offset.checked_add(slot.transmit).and_then(|end| end.checked_add(guard));
        next = end.unwrap_or(Span::MAX);
        Slot { station: slot.station.clone(), offset, transmit: slot.transmit, guard }
    });
    slots.collect()
}

/// The key to point at, and what to do.
fn explain(problem: &TdmError, slots: &[Slot]) -> (String, String) {
    match problem {
        TdmError::EmptyCycle { .. } => ("cycle".into(), "give the cycle a length".into()),
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
