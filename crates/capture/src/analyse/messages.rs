// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of the measured streams: each one's timestamps put together by flow and sequence
//! number.

use super::{CaseInput, Notes, StreamInput, receive_bins};
use crate::record::{RecordFile, TimestampPoint};
use crate::series::{StreamTimeSeries, TimeSeries};
use crate::summary::{LaunchSummary, StreamSummary};
use timewire_base::Span;
use timewire_stats::Distribution;

/// The numbers of all streams, and the time series of the first ones.
pub(super) fn summarise(
    input: &CaseInput,
    notes: &mut Notes,
) -> (Vec<StreamSummary>, Vec<StreamTimeSeries>) {
    let timestamps = timestamps(input, notes);
    let series = series(input, &timestamps);
    let streams = input.streams.iter().zip(timestamps.chunks(FLOWS));
    let streams = streams.map(|(stream, flows)| summarise_stream(input, stream, flows, notes));
    (streams.collect(), series)
}

/// Streams of each class whose time series are taken: more are not drawn.
const SERIES: usize = 4;

fn series(input: &CaseInput, timestamps: &[FlowTimestamps]) -> Vec<StreamTimeSeries> {
    let mut found: Vec<StreamTimeSeries> = Vec::new();
    for (stream, flows) in input.streams.iter().zip(timestamps.chunks(FLOWS)) {
        if found.iter().filter(|it| it.class == stream.class).count() == SERIES {
            continue;
        }
        let of_flow = |flow| transfers(input, flow);
        let deadline_ns = stream.deadline.as_ns();
        let thresholds = (deadline_ns > 0).then_some([deadline_ns / 2, deadline_ns]);
        if let Some(transfer) = TimeSeries::of(flows.iter().flat_map(of_flow), thresholds) {
            found.push(StreamTimeSeries {
                name: stream.name.clone(),
                class: stream.class,
                transfer,
            });
        }
    }
    found
}

/// `Send`, and `Send -> Receive`, of the received messages of a flow.
fn transfers<'a>(
    input: &'a CaseInput,
    flow: &'a FlowTimestamps,
) -> impl Iterator<Item = (i64, i64)> + Clone + 'a {
    let sent = flow.send.0.iter().filter(|&&(_, at)| input.measures(at));
    sent.filter_map(|&(seq, at)| Some((at, flow.receive.of(seq)?.saturating_sub(at))))
}

/// One message of the measured interval.
///
/// **Units**: nanoseconds of TAI; `None` where there is no such timestamp.
pub(super) struct Message {
    pub sent_ns: i64,
    pub segment_ns: Option<i64>,
    pub rx_sw_ns: Option<i64>,
    pub received_ns: Option<i64>,
    /// The kernel did not take it.
    pub is_skipped: bool,
}

/// The messages of each stream, of all its flows, in the order in which they were sent.
pub(super) fn messages(input: &CaseInput) -> Vec<Vec<Message>> {
    let mut notes = Notes { case: String::new(), list: Vec::new() };
    let timestamps = timestamps(input, &mut notes);
    let of_flow = |flow: &FlowTimestamps| {
        let sent = flow.send.0.iter().filter(|&&(_, at)| input.measures(at));
        let message = |&(seq, sent_ns): &(u32, i64)| {
            let received_ns = flow.receive.of(seq);
            Message {
                sent_ns,
                segment_ns: flow.segment.of(seq),
                // As in the summary: a message counts there once it is received.
                rx_sw_ns: received_ns.and_then(|_| flow.rx_sw.of(seq)),
                received_ns,
                is_skipped: flow.is_skipped(seq),
            }
        };
        sent.map(message).collect::<Vec<_>>()
    };
    let of_stream = |flows: &[FlowTimestamps]| {
        let mut all: Vec<Message> = flows.iter().flat_map(of_flow).collect();
        // Stable: at the same instant, the order of the flows.
        all.sort_by_key(|message| message.sent_ns);
        all
    };
    timestamps.chunks(FLOWS).map(of_stream).collect()
}

/// The timestamps of every flow of every stream, [`FLOWS`] of each in the order of the streams.
fn timestamps(input: &CaseInput, notes: &mut Notes) -> Vec<FlowTimestamps> {
    let names: Vec<[String; FLOWS]> = input.streams.iter().map(|s| flow_names(&s.name)).collect();
    let mut timestamps: Vec<FlowTimestamps> =
        names.iter().flatten().map(|_| FlowTimestamps::new()).collect();
    for file in input.files() {
        collect(file, names.as_flattened(), &mut timestamps);
    }
    for (flow, name) in timestamps.iter_mut().zip(names.as_flattened()) {
        if input.until_kernel {
            flow.receive = std::mem::replace(&mut flow.rx_sw, Timestamps(Vec::new()));
        }
        flow.sort(name, notes);
    }
    timestamps
}

/// Flows that a stream can have: one way, request, response.
const FLOWS: usize = 3;

fn flow_names(stream: &str) -> [String; FLOWS] {
    [stream.to_owned(), format!("{stream}.request"), format!("{stream}.response")]
}

/// The timestamps of one flow at the four timestamp points of a message.
struct FlowTimestamps {
    send: Timestamps,
    segment: Timestamps,
    rx_sw: Timestamps,
    receive: Timestamps,
    scheduled: Timestamps,
    refused: Timestamps,
    missed: Timestamps,
    not_taken: Timestamps,
}

impl FlowTimestamps {
    fn new() -> FlowTimestamps {
        let [send, segment, rx_sw, receive, scheduled, refused, missed, not_taken] =
            [const { Timestamps(Vec::new()) }; 8];
        FlowTimestamps { send, segment, rx_sw, receive, scheduled, refused, missed, not_taken }
    }

    fn at_mut(&mut self, point: TimestampPoint) -> Option<&mut Timestamps> {
        match point {
            TimestampPoint::Send => Some(&mut self.send),
            TimestampPoint::Segment => Some(&mut self.segment),
            TimestampPoint::RxSw => Some(&mut self.rx_sw),
            TimestampPoint::Receive => Some(&mut self.receive),
            TimestampPoint::Scheduled => Some(&mut self.scheduled),
            TimestampPoint::LaunchRefused => Some(&mut self.refused),
            TimestampPoint::LaunchMissed => Some(&mut self.missed),
            TimestampPoint::NotTaken => Some(&mut self.not_taken),
            _ => None,
        }
    }

    /// Whether a message was not sent, since the kernel did not take it.
    fn is_skipped(&self, seq: u32) -> bool {
        self.not_taken.of(seq).is_some() && self.receive.of(seq).is_none()
    }

    /// Sorts, counts each message once per timestamp point, and notes what does not fit together.
    fn sort(&mut self, flow: &str, notes: &mut Notes) {
        let launch = [
            TimestampPoint::Scheduled,
            TimestampPoint::LaunchRefused,
            TimestampPoint::LaunchMissed,
            TimestampPoint::NotTaken,
        ];
        for point in [
            TimestampPoint::Send,
            TimestampPoint::Segment,
            TimestampPoint::RxSw,
            TimestampPoint::Receive,
        ]
        .into_iter()
        .chain(launch)
        {
            let Some(timestamps) = self.at_mut(point) else {
                continue;
            };
            let what = format!("more {} timestamps of {flow} than messages", point.name());
            let why = "a message was timestamped twice at one timestamp point; the earliest \
                timestamp counts";
            notes.count(timestamps.sort(), "timestamps-repeated", &what, why);
        }
        let unsent = self.receive.0.iter().filter(|&&(seq, _)| self.send.of(seq).is_none());
        let what = format!("messages of {flow} received without a Send timestamp");
        let why = "they are not counted: either the sender's records are incomplete, or the \
                   messages are not from this run";
        notes.count(total(unsent), "received-not-sent", &what, why);
    }
}

/// `(sequence number, time in ns)`; once sorted, one per number.
struct Timestamps(Vec<(u32, i64)>);

impl Timestamps {
    /// Sorts and keeps the earliest of each number; says how many were left out.
    fn sort(&mut self) -> u64 {
        let before = self.0.len();
        self.0.sort_unstable();
        self.0.dedup_by_key(|&mut (seq, _)| seq);
        u64::try_from(before - self.0.len()).expect("invariant: a length fits 64 bits")
    }

    fn of(&self, seq: u32) -> Option<i64> {
        let index = self.0.binary_search_by_key(&seq, |&(seq, _)| seq).ok()?;
        Some(self.0[index].1)
    }
}

fn collect(file: &RecordFile, names: &[String], timestamps: &mut [FlowTimestamps]) {
    let of_stream = |flow: &String| names.iter().position(|name| name == flow);
    let wanted: Vec<Option<usize>> = file.header.flows.iter().map(of_stream).collect();
    for record in &file.records {
        let flow = wanted.get(usize::from(record.flow)).copied().flatten();
        let timestamps = flow.and_then(|flow| timestamps[flow].at_mut(record.point));
        if let Some(timestamps) = timestamps {
            timestamps.0.push((record.seq, record.at_ns));
        }
    }
}

/// How many messages were due and not sent: the talker woke up too late for them. One at an end of
/// what is counted can be on either side of it.
fn not_sent(input: &CaseInput, stream: &StreamInput, sent: u64) -> u64 {
    let Some(period) = stream.period.filter(|it| *it > Span::ZERO) else { return 0 };
    let periods = (input.to - input.from).as_ns() / period.as_ns();
    u64::try_from(periods).unwrap_or(0).saturating_sub(sent + 1)
}

/// Whether a message came after its deadline; a stream without one has zero.
pub(super) fn is_late(transfer_ns: i64, deadline_ns: i64) -> bool {
    deadline_ns > 0 && transfer_ns > deadline_ns
}

/// What the messages of one flow, or of several, came to.
#[derive(Default)]
struct Tally {
    sent: u64,
    skipped: u64,
    received: u64,
    late: u64,
    backwards: u64,
    transfer: Vec<i64>,
    slot_wait: Vec<i64>,
    receive: Vec<i64>,
    launched: u64,
    refused: u64,
    missed: u64,
    launch_error: Vec<i64>,
}

impl Tally {
    fn of(input: &CaseInput, deadline_ns: i64, flow: &FlowTimestamps) -> Tally {
        let mut tally = Tally::default();
        for &(seq, sent_ns) in flow.send.0.iter().filter(|&&(_, at)| input.measures(at)) {
            let is_skipped = flow.is_skipped(seq);
            tally.sent += u64::from(!is_skipped);
            tally.skipped += u64::from(is_skipped);
            let segment_ns = flow.segment.of(seq);
            if let Some(segment_ns) = segment_ns {
                tally.slot_wait.push(segment_ns.saturating_sub(sent_ns));
            }
            if let Some(scheduled_ns) = flow.scheduled.of(seq) {
                tally.launched += 1;
                let error_ns = segment_ns.map(|at| at.saturating_sub(scheduled_ns));
                tally.launch_error.extend(error_ns);
            }
            tally.refused += u64::from(flow.refused.of(seq).is_some());
            tally.missed += u64::from(flow.missed.of(seq).is_some());
            let Some(received_ns) = flow.receive.of(seq) else {
                continue;
            };
            let transfer_ns = received_ns.saturating_sub(sent_ns);
            tally.received += 1;
            tally.late += u64::from(is_late(transfer_ns, deadline_ns));
            tally.backwards += u64::from(transfer_ns < 0);
            tally.transfer.push(transfer_ns);
            if let Some(rx_sw_ns) = flow.rx_sw.of(seq) {
                tally.receive.push(received_ns.saturating_sub(rx_sw_ns));
            }
        }
        tally
    }

    fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.skipped += other.skipped;
        self.received += other.received;
        self.late += other.late;
        self.backwards += other.backwards;
        self.transfer.extend(&other.transfer);
        self.slot_wait.extend(&other.slot_wait);
        self.receive.extend(&other.receive);
        self.launched += other.launched;
        self.refused += other.refused;
        self.missed += other.missed;
        self.launch_error.extend(&other.launch_error);
    }
}

fn summarise_stream(
    input: &CaseInput,
    stream: &StreamInput,
    flows: &[FlowTimestamps],
    notes: &mut Notes,
) -> StreamSummary {
    let deadline_ns = stream.deadline.as_ns();
    let [mut all, request, response] =
        [0, 1, 2].map(|flow| Tally::of(input, deadline_ns, &flows[flow]));
    all.add(&request);
    all.add(&response);
    all.skipped += not_sent(input, stream, all.sent + all.skipped);
    let what = format!("messages of {} received before they were sent", stream.name);
    let why = "the clocks of sender and receiver disagree by more than the transfer takes";
    notes.count(all.backwards, "clocks-disagree", &what, why);
    let bins = input.transfer_bins();
    let launch = (all.launched > 0).then(|| LaunchSummary {
        launched: all.launched,
        refused: all.refused,
        missed: all.missed,
        error: Distribution::of(std::mem::take(&mut all.launch_error), receive_bins()),
    });
    StreamSummary {
        name: stream.name.clone(),
        class: stream.class,
        sent: all.sent,
        received: all.received,
        skipped: all.skipped,
        lost: all.sent - all.received,
        late: all.late,
        deadline_ns,
        transfer: Distribution::of(all.transfer, bins),
        transfer_request: Distribution::of(request.transfer, bins),
        transfer_response: Distribution::of(response.transfer, bins),
        slot_wait: Distribution::of(all.slot_wait, bins),
        receive: Distribution::of(all.receive, receive_bins()),
        launch,
        promise: None,
    }
}

fn total<T>(items: impl Iterator<Item = T>) -> u64 {
    u64::try_from(items.count()).expect("invariant: a count fits 64 bits")
}
