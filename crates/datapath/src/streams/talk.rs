// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Talking: one thread sends, another shows how it goes and waits for the request to end.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::record::Recorder;
use crate::talker::{
    LiveCounters, StreamCounters, StreamEvent, StreamEventKind, StreamSpec, Talker, TalkerReport,
    TimestampFaults,
};
use crate::transmit::{LaunchRefusal, TimestampTime, TxPoint};
use serde::Serialize;
use serde_json::Value as Json;
use timewire_base::{Span, Tai};
use timewire_capture::record::{Record, TimestampPoint};
use timewire_host::timestamping::Timestamped;
use timewire_stats::{HistogramSummary, Statistics};
use timewire_sys::clock;
use timewire_sys::event::{self, EndRequests, Wake};

use super::directory::{Directory, HOST_CLOCK, NIC_CLOCK};
use super::marks::TalkMarks;
use super::plan::{Plan, Spec, plan};
use super::{ThreadSpec, TrafficError};
use crate::drops::{DropCause, PortDrops, QdiscCounts};
use crate::timestamping;

/// The `schema` field of what a talker did.
pub const TALK_SCHEMA: &str = "timewire.talk/1";
/// How often it is told how it goes.
const TELL: Span = Span::from_ms(200);

/// What to send, and what becomes of it.
#[derive(Clone, Debug)]
pub struct TalkRequest {
    /// What is sent.
    pub spec: Spec,
    /// It ends after so long.
    pub duration: Option<Span>,
    /// How long before a message is due the thread spins; `None` for the talker's own.
    pub spin: Option<Span>,
    /// The sending thread.
    pub thread: ThreadSpec,
    /// A directory for records.
    pub out: Option<PathBuf>,
    /// What the user wrote, for the directory.
    pub told: Json,
}

/// How it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TalkProgress {
    /// Since it began.
    pub elapsed: Span,
    /// Messages given to the kernel.
    pub sent: u64,
    /// Messages left out.
    pub skipped: u64,
    /// Messages that the kernel did not take.
    pub not_taken: u64,
    /// Messages dropped because of their launch time.
    pub launch_refused: u64,
    /// Timestamps that came back.
    pub timestamps: u64,
}

/// What happens while it talks.
#[derive(Debug)]
pub enum TalkEvent<'a> {
    /// It begins.
    Talking {
        /// Each port, in words.
        ports: &'a [String],
        /// What could not be had.
        notes: &'a [String],
    },
    /// How it goes.
    Progress(TalkProgress),
}

/// What a talker did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TalkOutcome {
    /// Format and version.
    pub schema: String,
    /// Each port, in words.
    pub ports: Vec<String>,
    /// From the first cycle to the last timestamp.
    pub elapsed_ns: i64,
    /// Whether somebody ended it before it was done.
    pub ended_early: bool,
    /// Each stream, as it was given.
    pub streams: Vec<TalkedStream>,
    /// All streams together.
    pub total: StreamCounters,
    /// From the time that the thread was to wake to that when it did.
    pub wake: LatenessSummary,
    /// Rounds in which it did not sleep, because something was due already.
    pub busy_rounds: u64,
    /// Times that frames stayed in the ring of AF_XDP until the next flush.
    pub delayed: u64,
    /// ICMP and other errors about earlier messages.
    pub other_errors: u64,
    /// Timestamps that came twice, too late, or from a clock that was set.
    pub timestamp_faults: TimestampFaults,
    /// Reports about messages that are not known any more or were not taken.
    pub unknown_reports: u64,
    /// Reports that were lost because they were not asked for in time.
    pub lost_reports: u64,
    /// Why messages did not leave, with the queueing discipline that dropped them.
    pub drop_causes: Vec<DropCause>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TalkedStream {
    /// Its number.
    pub stream: u16,
    /// Where it went.
    pub to: String,
    /// What became of its messages.
    #[serde(flatten)]
    pub counters: StreamCounters,
    /// From the time that a message was due to that when it was written for the kernel.
    pub lateness: LatenessSummary,
}

/// How late something was.
///
/// **Units**: nanoseconds. Smallest, largest and mean are exact, percentiles are off by at most a
/// 64th of themselves. All times are 0 when `count` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatenessSummary {
    /// How often it was measured.
    pub count: u64,
    /// Smallest.
    pub min_ns: i64,
    /// Median.
    pub p50_ns: i64,
    /// 99 %.
    pub p99_ns: i64,
    /// Largest.
    pub max_ns: i64,
    /// Arithmetic mean.
    pub mean_ns: f64,
}

impl LatenessSummary {
    fn of(lateness: &HistogramSummary) -> LatenessSummary {
        let Statistics { count, min_ns, p50_ns, p99_ns, max_ns, mean_ns, .. } = **lateness;
        LatenessSummary { count, min_ns, p50_ns, p99_ns, max_ns, mean_ns }
    }
}

fn progress(live: &LiveCounters, elapsed: Span) -> TalkProgress {
    let counted = live.total();
    TalkProgress {
        elapsed,
        sent: counted.sent,
        skipped: counted.skipped_woke_late + counted.skipped_overran,
        not_taken: counted.not_taken,
        launch_refused: counted.launch_invalid + counted.launch_missed,
        timestamps: counted.timestamps,
    }
}

/// Talks until all streams have ended, the time is over or somebody ends it by a signal.
///
/// **Errors**: streams that cannot be; a port that cannot be opened; files that cannot be written.
pub fn run(
    request: &TalkRequest,
    on: &mut dyn FnMut(&TalkEvent<'_>) -> io::Result<()>,
) -> Result<TalkOutcome, TrafficError> {
    let ends = EndRequests::new().map_err(TrafficError::system("wait for signals"))?;
    let done = Wake::new().map_err(TrafficError::system("wait for the talker"))?;
    let counted = QdiscCounts::now();
    let made = plan(&request.spec)?;
    let mut notes: Vec<String> = Vec::new();
    let wanted = Timestamped { sent: request.spec.points.hardware, received: false };
    let nic = timestamping::begin(request.spec.interface.as_ref(), wanted, &mut notes)?;
    let mut talker = Talker::new(&made.ports, &made.streams)?;
    if let Some(spin) = request.spin {
        talker.set_spin(spin);
    }
    let ports: Vec<String> =
        talker.ports().iter().map(|port| port.mode().name.to_owned()).collect();
    notes.extend(talker.ports().iter().flat_map(|port| port.mode().fallbacks.iter().cloned()));
    let directory = request.out.as_ref().map(|path| {
        let flows = made.streams.iter().zip(&made.names);
        let flows = flows.map(|(stream, to)| format!("{} to {to}", stream.number)).collect();
        Directory::create(path, "talk", &request.told, None, request.spec.interface.as_ref(), flows)
    });
    let mut directory = directory.transpose()?;
    let recorder = directory.as_mut().and_then(Directory::take_recorder);
    on(&TalkEvent::Talking { ports: &ports, notes: &notes })
        .map_err(TrafficError::system("print"))?;
    let interface = request.spec.interface.as_ref();
    let mut drops = PortDrops::new(&made.ports, &made.streams, interface, counted);
    let (stop, live) = (AtomicBool::new(false), talker.live());
    let start = clock::now::<Tai>();
    let end = request.duration.map(|duration| start.saturating_add(duration));
    let sent = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tw-talker".to_owned());
        let (stop, done, made) = (&stop, &done, &made);
        let (talker, recorder) = (&mut talker, recorder.as_ref());
        let thread = thread.spawn_scoped(scope, move || {
            let ended = request.thread.enter().and_then(|notes| {
                let flows = Flows::new(&made.streams);
                let marks = TalkMarks::new();
                let mut on = |event: StreamEvent| {
                    drops.note(&event);
                    // Mostly nobody wants to hear of it, and what tells is all in one place.
                    if recorder.is_some() || marks.are_listened_to() {
                        let StreamEvent { stream, seq, what } = event;
                        hear(&marks, recorder, &flows, &StreamEvent { stream, seq, what });
                    }
                };
                let ended = talker.run(stop, end, &mut on);
                ended.map(|()| (notes, drops)).map_err(TrafficError::from)
            });
            // The other side looks from time to time all the same.
            let _ = done.set();
            ended
        });
        let thread = thread.map_err(TrafficError::system("start the sending thread"))?;
        let mut early = false;
        let shown = loop {
            if done.clear() || thread.is_finished() {
                break Ok(());
            }
            if ends.take() {
                early = true;
                stop.store(true, Ordering::Relaxed);
            }
            let elapsed = clock::now::<Tai>() - start;
            if let Err(error) = on(&TalkEvent::Progress(progress(&live, elapsed))) {
                stop.store(true, Ordering::Relaxed);
                break Err(error);
            }
            if let Err(error) = event::wait_readable(&[ends.as_fd(), done.as_fd()], Some(TELL)) {
                stop.store(true, Ordering::Relaxed);
                break Err(error);
            }
        };
        let ended = thread.join();
        let told = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        shown.map_err(TrafficError::system("show how it goes"))?;
        Ok::<_, TrafficError>((early, told))
    })?;
    let (ended_early, (mut of_thread, drops)) = sent;
    of_thread.extend(timestamping::end(nic)?);
    if !of_thread.is_empty() {
        on(&TalkEvent::Talking { ports: &[], notes: &of_thread })
            .map_err(TrafficError::system("print"))?;
    }
    let elapsed = clock::now::<Tai>() - start;
    let report = talker.report();
    let drop_causes = drops.causes(&report);
    let mut outcome = outcome(&made, ports, report, elapsed, ended_early);
    outcome.drop_causes = drop_causes;
    if let Some(directory) = directory {
        directory.finish(recorder, &outcome)?;
    }
    Ok(outcome)
}

fn outcome(
    made: &Plan,
    ports: Vec<String>,
    report: TalkerReport,
    elapsed: Span,
    ended_early: bool,
) -> TalkOutcome {
    let mut total = StreamCounters::default();
    let mut streams = Vec::with_capacity(report.streams.len());
    for (stream, to) in report.streams.into_iter().zip(&made.names) {
        total.add(&stream.counters);
        streams.push(TalkedStream {
            stream: stream.stream,
            to: to.clone(),
            counters: stream.counters,
            lateness: LatenessSummary::of(&stream.lateness),
        });
    }
    TalkOutcome {
        schema: TALK_SCHEMA.to_owned(),
        ports,
        elapsed_ns: elapsed.as_ns(),
        ended_early,
        streams,
        total,
        wake: LatenessSummary::of(&report.wake_lateness),
        busy_rounds: report.busy_rounds,
        delayed: report.delayed,
        other_errors: report.other_errors,
        timestamp_faults: report.timestamp_faults,
        unknown_reports: report.unknown_reports,
        lost_reports: report.lost_reports,
        drop_causes: Vec::new(),
    }
}

/// The flow of each stream's number, in the records.
struct Flows {
    by_number: Vec<u16>,
}

impl Flows {
    fn new(streams: &[StreamSpec]) -> Flows {
        let most = streams.iter().map(|stream| usize::from(stream.number)).max().unwrap_or(0);
        let mut by_number = vec![Record::NO_FLOW; most + 1];
        for (flow, stream) in (0..).zip(streams) {
            by_number[usize::from(stream.number)] = flow;
        }
        Flows { by_number }
    }
}

#[inline(never)]
fn hear(marks: &TalkMarks, recorder: Option<&Recorder>, flows: &Flows, event: &StreamEvent) {
    marks.mark(event);
    if let Some(recorder) = recorder {
        record(recorder, flows, event);
    }
}

fn record(recorder: &Recorder, flows: &Flows, event: &StreamEvent) {
    let flow = flows.by_number[usize::from(event.stream)];
    let whole = Record {
        at_ns: 0,
        seq: event.seq,
        frame_len: 0,
        point: TimestampPoint::Send,
        station: 0,
        flow,
        flags: 0,
        clock: HOST_CLOCK,
    };
    match event.what {
        StreamEventKind::Sent { due, at, launch } => {
            let due = launch.unwrap_or(due);
            recorder.push(Record { at_ns: due.as_ns(), point: TimestampPoint::Scheduled, ..whole });
            recorder.push(Record { at_ns: at.as_ns(), ..whole });
        }
        StreamEventKind::Timestamp { point, at } => {
            let point = match point {
                TxPoint::Sched => TimestampPoint::QdiscEnter,
                TxPoint::Software | TxPoint::Freed => TimestampPoint::TxSw,
                TxPoint::Hardware => TimestampPoint::TxHw,
            };
            let (at_ns, clock) = match at {
                TimestampTime::System(at) => (at.as_ns(), HOST_CLOCK),
                TimestampTime::Nic { ns } => (ns, NIC_CLOCK),
            };
            recorder.push(Record { at_ns, point, clock, ..whole });
        }
        StreamEventKind::LaunchRefused { why, launch } => {
            let point = match why {
                LaunchRefusal::Invalid => TimestampPoint::LaunchRefused,
                LaunchRefusal::Missed => TimestampPoint::LaunchMissed,
            };
            recorder.push(Record { at_ns: launch.as_ns(), point, ..whole });
        }
        // It has no timestamp: that it is missing at the listener is known by its number.
        StreamEventKind::NotTaken { .. } | StreamEventKind::Skipped { .. } => {}
    }
}
