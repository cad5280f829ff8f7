// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same figures as [`super::analyse`] takes, not yet put together: value by value, in the order
//! of time, because what follows each other closely in time resembles each other.

use crate::summary::{SlotPromise, StreamClass};

use super::messages::{Message, is_late, messages};
use super::{AnalyseError, CaseInput, StreamInput, wire};

/// What one case timestamped, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseSeries {
    /// `SCENARIO/CASE/LOAD`.
    pub id: String,
    /// One entry per measured stream.
    pub streams: Vec<StreamSeries>,
    /// For each frame on the segment that its backend promised to keep in a slot, whether it was
    /// outside, by the time of its timestamp. `None` where no slots were promised.
    pub outside: Option<Vec<bool>>,
    /// Frames that nobody observed, and that are not in `outside`.
    pub unobserved: u64,
}

/// What the messages of one stream timestamped, in the order of their `Send`.
///
/// **Units**: times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSeries {
    /// Name of the stream.
    pub name: String,
    /// Whether it is served before best effort.
    pub class: StreamClass,
    /// `Send -> Receive` of each message received.
    pub transfer: Vec<i64>,
    /// `Send -> Segment` of each message seen on the segment.
    pub slot_wait: Vec<i64>,
    /// `RxSw -> Receive` of each message received with a timestamp of the kernel.
    pub receive: Vec<i64>,
    /// For each message that was to be sent, whether the kernel did not take it.
    pub skipped: Vec<bool>,
    /// For each message sent, whether it was never received.
    pub lost: Vec<bool>,
    /// For each message sent, whether it was received after its deadline.
    pub late: Vec<bool>,
}

/// Takes the series of one case. Same input, same output.
///
/// **Errors**: slots or a cycle that cannot exist.
pub fn series(mut input: CaseInput) -> Result<CaseSeries, AnalyseError> {
    input.slots.sort_by_key(|slot| slot.offset_ns);
    let promise = input.backend.as_ref().map_or(SlotPromise::All, |backend| backend.slots);
    let judged = input.tdm && !input.slots.is_empty() && promise != SlotPromise::None;
    let outside = match judged {
        true => Some(wire::outside(&input, promise == SlotPromise::RealTime)?),
        false => None,
    };
    let deadlines = input.streams.iter().map(|stream| stream.deadline.as_ns());
    let streams = input.streams.iter().zip(messages(&input)).zip(deadlines);
    Ok(CaseSeries {
        id: format!("{}/{}/{}", input.scenario, input.case, input.load),
        streams: streams
            .map(|((stream, messages), deadline_ns)| {
                of_stream(stream.name.clone(), stream.class, &messages, deadline_ns)
            })
            .collect(),
        outside,
        unobserved: input.observers.iter().map(wire::unobserved).fold(0, u64::saturating_add),
    })
}

/// When the messages of one case were sent, and how long they took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseTransfers {
    /// `SCENARIO/CASE/LOAD`.
    pub id: String,
    /// The start of the measured interval. **Units**: nanoseconds of TAI.
    pub from_ns: i64,
    /// One entry per measured stream.
    pub streams: Vec<StreamTransfers>,
}

/// The messages of one stream, in the order of their `Send`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamTransfers {
    /// Name of the stream.
    pub name: String,
    /// `Send`, and `Send -> Receive` of a message that was received. **Units**: nanoseconds.
    pub messages: Vec<(i64, Option<i64>)>,
}

/// Takes the transfer times of one case, each with its `Send`. Same input, same output.
pub fn transfers(input: &CaseInput) -> CaseTransfers {
    let of_stream = |(stream, found): (&StreamInput, Vec<Message>)| {
        let took = |m: &Message| m.received_ns.map(|at| at.saturating_sub(m.sent_ns));
        let messages = found.iter().map(|m| (m.sent_ns, took(m))).collect();
        StreamTransfers { name: stream.name.clone(), messages }
    };
    CaseTransfers {
        id: format!("{}/{}/{}", input.scenario, input.case, input.load),
        from_ns: input.from.as_ns(),
        streams: input.streams.iter().zip(messages(input)).map(of_stream).collect(),
    }
}

fn of_stream(
    name: String,
    class: StreamClass,
    messages: &[Message],
    deadline_ns: i64,
) -> StreamSeries {
    let since = |from: i64, to: i64| to.saturating_sub(from);
    let sent = || messages.iter().filter(|m| !m.is_skipped);
    StreamSeries {
        name,
        class,
        transfer: messages.iter().filter_map(|m| Some(since(m.sent_ns, m.received_ns?))).collect(),
        slot_wait: messages.iter().filter_map(|m| Some(since(m.sent_ns, m.segment_ns?))).collect(),
        receive: messages.iter().filter_map(|m| Some(since(m.rx_sw_ns?, m.received_ns?))).collect(),
        skipped: messages.iter().map(|m| m.is_skipped).collect(),
        lost: sent().map(|m| m.received_ns.is_none()).collect(),
        late: sent()
            .map(|m| m.received_ns.is_some_and(|at| is_late(since(m.sent_ns, at), deadline_ns)))
            .collect(),
    }
}
