// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedule as a scenario writes it: slots may leave out their offset, and then follow the slot
//! before them, and their guard, and then have the common one.
//!
//! Not here: what a schedule must be (`tdm`), slots from the streams (`from_streams.rs`).

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
        /// Length of the cycle, which repeats for ever. With `from_streams` it may be left out, and
        /// then follows from the slots.
        cycle: Option<Span>,
        /// When a cycle starts, as time on the TAI scale since 1970.
        base_time: Span = "0s",
        /// Guard of a slot that gives none: silence after it, for the error of the clocks.
        guard: Span = "0us",
        /// The order of the slots.
        order: SlotOrder = "as_written",
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
        let path = reader.path().to_owned();
        let written = draft.slots.as_deref().unwrap_or_default();
        if draft.order == SlotOrder::AlongPipelines {
            reader.is_ordered = true;
            if !reader.has_pipelines {
                let message = "such a file has no pipelines".to_owned();
                reader.fail_at(&format!("{path}.order"), message, "remove it");
            }
            for (index, _) in written.iter().enumerate().filter(|it| it.1.offset.is_some()) {
                let message = "a slot with an offset stands where it is".to_owned();
                let hint = "remove it, or `order: along_pipelines`";
                reader.fail_at(&format!("{path}.slots[{index}].offset"), message, hint);
            }
        }
        let base_time = Instant::from_ns(draft.base_time.as_ns());
        if let Some(from) = draft.from_streams {
            if !reader.has_pipelines {
                let message = "such a file has no streams that slots follow from".to_owned();
                reader.fail_at(&format!("{path}.from_streams"), message, "write `slots`");
            }
            if draft.slots.is_some() {
                let message = "the slots follow from the streams, and are written too".to_owned();
                let hint = "remove `slots`, or `from_streams`";
                reader.fail_at(&format!("{path}.slots"), message, hint);
            }
            reader.wanted =
                Some(Wanted { from, cycle: draft.cycle, base_time, guard: draft.guard });
            return Wanted::placeholder();
        }
        let missing = [
            ("cycle", draft.cycle.is_none(), "Length of the cycle, which repeats for ever."),
            (
                "slots",
                draft.slots.is_none(),
                "The slots of the cycle. Or write `from_streams: {}` instead.",
            ),
        ];
        for (key, _, what) in missing.into_iter().filter(|it| it.1) {
            reader.fail(
                node.mark,
                format!("the key `{key}` is missing"),
                &format!("{key}: {what}"),
            );
        }
        let cycle = draft.cycle?;
        let slots = resolve(draft.slots.as_deref()?, draft.guard);
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
            transmit: slot.transmit,
            guard: Some(slot.guard),
        });
        ScheduleDraft {
            kind: ScheduleKind::Tdm,
            cycle: Some(self.cycle()),
            base_time: Span::from_ns(self.base_time().as_ns()),
            guard: Span::ZERO,
            order: SlotOrder::AsWritten,
            from_streams: None,
            slots: Some(slots.collect()),
        }
        .emit()
    }

    fn schema() -> Json {
        let mut schema = ScheduleDraft::schema();
        schema["oneOf"] = json!([
            {"required": ["cycle", "slots"], "not": {"required": ["from_streams"]}},
            {"required": ["from_streams"], "not": {"required": ["slots"]}},
        ]);
        schema
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
fn resolve(drafts: &[SlotDraft], guard: Span) -> Vec<Slot> {
    let mut next = Span::ZERO;
    let slots = drafts.iter().map(|slot| {
        let guard = slot.guard.unwrap_or(guard);
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
