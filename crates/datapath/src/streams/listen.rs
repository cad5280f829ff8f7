// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listening: one thread receives and counts, another shows, serves and writes what it counted. The
//! receiving thread sums up one stream between two looks at its source, so that thousands of them
//! do not keep it from receiving.
//!
//! Not here: the arithmetic of a stream (`timewire_capture::stream`), what is shown (`view`).

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Queue, SyncSender, sync_channel};

use crate::listen::{
    Arrival, Known, Listener, ListenerOptions, ReceiveOptions, Receiver, Source, StreamKey, Take,
    WaySummaries,
};
use crate::record::Recorder;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use timewire_base::{IfName, Instant, Span, Tai};
use timewire_capture::record::{Record, TimestampPoint};
use timewire_capture::stream::StreamSnapshot;
use timewire_capture::stream::phase::PhaseCycle;
use timewire_capture::stream::sequence::SequenceLimits;
use timewire_host::timestamping::Timestamped;
use timewire_stats::HistogramSummary;
use timewire_sys::clock;
use timewire_sys::event::{self, EndRequests, Wake};

use super::capture::{Capture, CaptureOptions};
use super::clocks::{ClockBound, Clocks};
use super::directory::{Directory, HOST_CLOCK, NIC_CLOCK, SENDER_CLOCK};
use super::marks::ListenMarks;
use super::metrics::Exposition;
use super::others::OtherMessages;
use super::reflect::Reflector;
use super::{ThreadSpec, TrafficError};
use crate::drops::{AnswerCounts, QdiscCounts};
use crate::timestamping;

/// The `schema` field of what a listener heard.
pub const LISTEN_SCHEMA: &str = "timewire.listen/1";
/// Most streams that are told apart.
pub const MAX_STREAMS: usize = 4_096;
/// How long the thread waits for a message before it looks whether to end.
const POLL_INTERVAL: Span = Span::from_ms(50);
/// How long it waits for the kernel to begin to timestamp, before it listens.
const TIMESTAMPS_WITHIN: Span = Span::from_secs(2);
/// Why a queue is not heard though all were to be.
const OTHER_QUEUES: &str = "the interface has got more of them since listening began";
/// Words of the receiving thread that are not taken yet, at most.
const MAX_WORDS: usize = 4;
/// How often captured frames are given to be written.
const PASS_ON: Span = Span::from_ms(100);

/// What to listen to, and what becomes of it.
#[derive(Clone, Debug)]
pub struct ListenRequest {
    /// Where messages come from.
    pub source: Source,
    /// How they are received.
    pub options: ReceiveOptions,
    /// Where the time that a message takes ends: `Receive`, `RxSw`, `RxXdp` or `RxHw`.
    pub ends_at: TimestampPoint,
    /// How far the NIC's clock is ahead of TAI.
    pub hardware_ahead: Option<Span>,
    /// How far clocks are apart at most, where nothing else tells it.
    pub clock_error: Option<Span>,
    /// The cycle that arrivals are laid over.
    pub cycle: Option<PhaseCycle>,
    /// It ends after so long.
    pub duration: Option<Span>,
    /// It ends after so many messages of streams.
    pub count: Option<u64>,
    /// How often it is summed up.
    pub every: Span,
    /// Whether each message is answered.
    pub reflect: bool,
    /// The receiving thread.
    pub thread: ThreadSpec,
    /// A directory for records.
    pub out: Option<PathBuf>,
    /// A capture.
    pub capture: Option<CaptureOptions>,
    /// Where the counters are served.
    pub prometheus: Option<SocketAddr>,
    /// What the user wrote, for the directory.
    pub told: Json,
}

/// What a listener has heard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenSnapshot {
    /// Format and version.
    pub schema: String,
    /// From where, in words.
    pub source: String,
    /// How it is received, in words.
    pub mode: String,
    /// Since it began to listen.
    pub elapsed_ns: i64,
    /// Messages of streams.
    pub messages: u64,
    /// Messages without a header of ours.
    pub others: u64,
    /// What those were: each kind, of the first 64; more are in one entry at the end.
    pub not_understood: Vec<OtherMessages>,
    /// Messages of streams beyond [`MAX_STREAMS`].
    pub no_room: u64,
    /// Messages that were lost between kernel and program, because it was too slow.
    pub dropped: u64,
    /// Frames that fit the filter, on receive queues that AF_XDP does not hear; `null` elsewhere.
    pub other_queues: Option<u64>,
    /// Messages of streams without a timestamp of NIC, driver or kernel.
    pub not_timestamped: u64,
    /// Answers, and messages that could not be answered; `null` when none was to be.
    pub answers: Option<AnswerCounts>,
    /// Frames in capture files; `null` without a capture.
    pub capture: Option<CaptureCounts>,
    /// Each stream, by its number.
    pub streams: Vec<HeardStream>,
    /// Ways through this host, over all streams; those that there are timestamps for.
    pub ways: Vec<HostLatency>,
    /// Why no judgement can be made of it: what was not heard, or not understood; empty if all was.
    pub inconclusive: Vec<String>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeardStream {
    /// Its number.
    pub stream: u16,
    /// Who sends it: address and port of UDP, or the address that frames come from.
    pub source: String,
    /// Whether another source sends a stream with this number.
    pub clash: bool,
    /// Its flow in records; not the number where another source was heard with it before.
    pub flow: u16,
    /// How far its talker's clock is from the one that its latency ends by.
    pub clock: ClockBound,
    /// What is known of it.
    #[serde(flatten)]
    pub seen: StreamSnapshot,
}

impl HeardStream {
    fn new((key, seen): (StreamKey, StreamSnapshot), clocks: &mut Clocks) -> HeardStream {
        let StreamKey { number: stream, source, flow } = key;
        let clock = clocks.of(source);
        let between = seen.between.filter(|_| clock.error_ns.is_some());
        let seen = StreamSnapshot { between, ..seen };
        HeardStream { stream, source: source.to_string(), clash: false, flow, clock, seen }
    }

    /// Its number, and its source where that is needed to tell it from others.
    pub fn name(&self) -> String {
        match self.clash {
            true => format!("{} of {}", self.stream, self.source),
            false => self.stream.to_string(),
        }
    }
}

impl ListenSnapshot {
    /// Numbers that several sources have, each with these, in words.
    pub fn clashes(&self) -> Vec<String> {
        let same = |one: &HeardStream, other: &HeardStream| one.stream == other.stream;
        let several = self.streams.chunk_by(same).filter(|streams| streams.len() > 1);
        let words = |streams: &[HeardStream]| {
            let sources: Vec<_> = streams.iter().map(|it| it.source.as_str()).collect();
            format!(
                "stream {} comes from {} sources, each counted by itself: {}",
                streams[0].stream,
                sources.len(),
                sources.join(", ")
            )
        };
        several.map(words).collect()
    }
}

/// Marks the streams whose number another one has; they are in the order of their numbers.
fn mark_clashes(streams: &mut [HeardStream]) {
    for same in streams.chunk_by_mut(|one, other| one.stream == other.stream) {
        let clash = same.len() > 1;
        same.iter_mut().for_each(|stream| stream.clash = clash);
    }
}

/// What became of captured frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureCounts {
    /// In the files, or on their way.
    pub frames: u64,
    /// Not captured, because the files are written too slowly.
    pub lost: u64,
}

/// How long messages took between two timestamp points of this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostLatency {
    /// From where.
    pub from_point: String,
    /// To where.
    pub to_point: String,
    /// How far the clocks of the two are apart.
    pub clock: ClockBound,
    /// How long; `null` where the bound of the clocks is not known.
    pub between: Option<HistogramSummary>,
}

/// What happens while it listens.
#[derive(Debug)]
pub enum ListenEvent<'a> {
    /// It listens: from now on nothing is missed.
    Listening {
        /// From where, in words.
        source: &'a str,
        /// How, in words.
        mode: &'a str,
        /// What was tried and did not work, and what works less well.
        notes: &'a [String],
        /// Where the counters are served.
        prometheus: Option<SocketAddr>,
    },
    /// What to know about the end.
    Noted(&'a str),
    /// It was summed up.
    Heard(&'a ListenSnapshot),
}

/// From the receiving thread.
enum Word {
    Listening { mode: String, place: String, notes: Vec<String> },
    Heard(Box<ListenSnapshot>),
}

/// Listens until it is over or somebody ends it by a signal; what was heard in all.
///
/// **Errors**: the source cannot be opened; files cannot be written; the address for counters is
/// taken.
pub fn run(
    request: &ListenRequest,
    on: &mut dyn FnMut(&ListenEvent<'_>) -> io::Result<()>,
) -> Result<ListenSnapshot, TrafficError> {
    let ends = EndRequests::new().map_err(TrafficError::system("wait for signals"))?;
    let wake = Wake::new().map_err(TrafficError::system("wait for the listener"))?;
    let exposition = request.prometheus.map(Exposition::start).transpose()?;
    // Behind all numbers are streams whose number another source had before.
    let further = (1..=MAX_STREAMS).map(|n| format!("further source {n}"));
    let numbers = 0..=crate::probe::Probe::MAX_STREAM;
    let flows = numbers.map(|n| n.to_string()).chain(further);
    let interface = interface_of(&request.source);
    let (told, apart) = (&request.told, request.clock_error);
    let directory = request
        .out
        .as_ref()
        .map(|path| Directory::create(path, "listen", told, apart, interface, flows.collect()));
    let mut directory = directory.transpose()?;
    let recorder = directory.as_mut().and_then(Directory::take_recorder);
    let mut notes = Vec::new();
    let wanted = Timestamped { sent: false, received: request.options.timestamps.hardware };
    let nic = timestamping::begin(interface, wanted, &mut notes)?;
    let (words, said) = sync_channel(MAX_WORDS);
    let stop = AtomicBool::new(false);
    let heard = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tw-listener".to_owned());
        let (stop, wake) = (&stop, &wake);
        let thread = thread.spawn_scoped(scope, move || {
            let teller = Teller { words, wake };
            let done = receive(request, recorder, notes, stop, &teller);
            drop(teller.words);
            // Nobody waits any more when this fails.
            let _ = wake.set();
            done
        });
        let thread = thread.map_err(TrafficError::system("start the receiving thread"))?;
        let shown = tell(&said, &ends, wake, stop, exposition.as_ref(), on);
        stop.store(true, Ordering::Relaxed);
        let done = thread.join();
        let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        shown.map_err(TrafficError::system("print"))?;
        Ok::<_, TrafficError>(done)
    })?;
    if let Some(exposition) = exposition {
        exposition.end();
    }
    if let Some(note) = timestamping::end(nic)? {
        on(&ListenEvent::Noted(&note)).map_err(TrafficError::system("print"))?;
    }
    let Done { heard, recorder } = heard;
    if let Some(directory) = directory {
        directory.finish(recorder, &heard)?;
    }
    Ok(heard)
}

fn interface_of(source: &Source) -> Option<&IfName> {
    match source {
        Source::Udp(place) => place.device.as_ref(),
        Source::Frames { interface }
        | Source::Ring { interface }
        | Source::Xdp { interface, .. } => Some(interface),
    }
}

/// Passes on what the receiving thread says, until it has ended.
fn tell(
    said: &Queue<Word>,
    ends: &EndRequests,
    wake: &Wake,
    stop: &AtomicBool,
    exposition: Option<&Exposition>,
    on: &mut dyn FnMut(&ListenEvent<'_>) -> io::Result<()>,
) -> io::Result<()> {
    use std::os::fd::AsFd;
    use std::sync::mpsc::TryRecvError;
    loop {
        event::wait_readable(&[ends.as_fd(), wake.as_fd()], None)?;
        wake.clear();
        if ends.take() {
            stop.store(true, Ordering::Relaxed);
        }
        loop {
            match said.try_recv() {
                Ok(Word::Listening { mode, place, notes }) => {
                    let (source, mode, notes) = (&place[..], &mode[..], &notes[..]);
                    let prometheus = exposition.map(Exposition::address);
                    on(&ListenEvent::Listening { source, mode, notes, prometheus })?;
                }
                Ok(Word::Heard(heard)) => {
                    let heard = Arc::new(*heard);
                    if let Some(exposition) = exposition {
                        exposition.publish(Arc::clone(&heard));
                    }
                    on(&ListenEvent::Heard(&heard))?;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
}

/// The receiving thread's way to the one that shows.
struct Teller<'a> {
    words: SyncSender<Word>,
    wake: &'a Wake,
}

impl Teller<'_> {
    /// Never waits. Where what was said before was not taken, since nobody reads what is printed,
    /// a sum is left out: the next one has it, too.
    fn say(&self, word: Word) {
        // The other side ends after this one only.
        let _ = self.words.try_send(word);
        let _ = self.wake.set();
    }
}

/// What the receiving thread leaves.
struct Done {
    heard: ListenSnapshot,
    recorder: Option<Recorder>,
}

fn receive(
    request: &ListenRequest,
    recorder: Option<Recorder>,
    mut notes: Vec<String>,
    stop: &AtomicBool,
    teller: &Teller<'_>,
) -> Result<Done, TrafficError> {
    let before = request.reflect.then(QdiscCounts::now);
    notes.extend(request.thread.enter()?);
    let mut receiver = Receiver::open(&request.source, &request.options)?;
    notes.extend(receiver.refused().iter().cloned());
    notes.extend(match receiver.wait_for_timestamps(TIMESTAMPS_WITHIN) {
        Ok(true) => None,
        Ok(false) => {
            Some(format!("the kernel has not begun to timestamp within {TIMESTAMPS_WITHIN}"))
        }
        Err(error) => Some(format!(
            "first messages may lack the kernel's timestamp: loopback does not work here ({error})"
        )),
    });
    let interface = interface_of(&request.source);
    let is_frames = !matches!(request.source, Source::Udp(_));
    let place = match receiver.local_address() {
        Ok(Some(address)) => format!("UDP on {address}"),
        _ => request.source.to_string(),
    };
    let reflector =
        before.map(|before| Reflector::new(&receiver, interface, is_frames, before)).transpose()?;
    let capture = request
        .capture
        .as_ref()
        .map(|options| Capture::create(options, interface.map_or("", IfName::as_str), &place));
    let options = ListenerOptions {
        sequence: SequenceLimits::default(),
        longest: Span::from_secs(10),
        cycle: request.cycle,
        hardware_ahead: request.hardware_ahead,
        streams: MAX_STREAMS,
    };
    let capture = capture.transpose()?;
    let only_counts = recorder.is_none() && capture.is_none() && reflector.is_none();
    let start = clock::now::<Tai>();
    let mut ears = ListenThread {
        listener: Listener::new(is_frames, options).ending_at(request.ends_at),
        recorder,
        capture,
        reflector,
        marks: ListenMarks::new(),
        left: request.count.unwrap_or(u64::MAX),
        start,
        place: place.clone(),
        mode: receiver.mode().to_owned(),
        clocks: Clocks::new(&request.source, request.ends_at, request.clock_error),
        is_frames,
        is_one_queue: matches!(request.source, Source::Xdp { queue: Some(_), .. }),
        only_counts,
    };
    teller.say(Word::Listening { mode: ears.mode.clone(), place, notes });
    let end = request.duration.map(|duration| start.saturating_add(duration));
    ears.listen(&mut receiver, request.every, end, stop, teller)?;
    ears.finish(&mut receiver)
}

/// What the receiving thread has.
struct ListenThread {
    listener: Listener,
    recorder: Option<Recorder>,
    capture: Option<Capture>,
    reflector: Option<Reflector>,
    marks: ListenMarks,
    /// Messages until it ends; so many as never come, if it does not.
    left: u64,
    start: Instant<Tai>,
    place: String,
    mode: String,
    clocks: Clocks,
    is_frames: bool,
    /// Whether one receive queue alone was asked for.
    is_one_queue: bool,
    /// Whether messages are counted and nothing else.
    only_counts: bool,
}

/// Takes what comes.
struct Hearing<'a> {
    ears: &'a mut ListenThread,
    /// The time of the last message.
    now: &'a mut Instant<Tai>,
}

impl Take for Hearing<'_> {
    #[inline(always)]
    fn take(&mut self, arrival: Arrival<'_>) {
        *self.now = arrival.user;
        self.ears.arrived(arrival);
    }
}

/// What there is to do beside receiving, and when.
struct Duties {
    every: Span,
    /// The next time to sum up.
    next: Instant<Tai>,
    /// The next time to give captured frames to be written.
    pass_on: Option<Instant<Tai>>,
    /// When it ends.
    end: Option<Instant<Tai>>,
    summing: Option<SummingUp>,
}

/// A summing up that goes on.
struct SummingUp {
    at: Instant<Tai>,
    streams: Vec<HeardStream>,
}

impl Duties {
    /// Nothing is to be done before.
    fn quiet_until(&self) -> Instant<Tai> {
        if self.summing.is_some() {
            return Instant::from_ns(i64::MIN);
        }
        self.pass_on.map_or(self.awaited(), |pass_on| pass_on.min(self.awaited()))
    }

    /// What is to be done in time: waiting ends then.
    fn awaited(&self) -> Instant<Tai> {
        self.end.map_or(self.next, |end| end.min(self.next))
    }
}

impl ListenThread {
    fn listen(
        &mut self,
        receiver: &mut Receiver,
        every: Span,
        end: Option<Instant<Tai>>,
        stop: &AtomicBool,
        teller: &Teller<'_>,
    ) -> Result<(), TrafficError> {
        let next = self.start.saturating_add(every);
        let pass_on = self.capture.as_ref().map(|_| self.start.saturating_add(PASS_ON));
        let mut duties = Duties { every, next, pass_on, end, summing: None };
        let mut now = self.start;
        // In most rounds there is nothing to do, which is known by one look.
        let (mut quiet_until, mut awaited) = (now, duties.awaited());
        while !stop.load(Ordering::Relaxed) && self.left != 0 {
            if now >= quiet_until {
                if duties.end.is_some_and(|end| now >= end) {
                    break;
                }
                self.attend(&mut duties, now, receiver, teller)?;
                (quiet_until, awaited) = (duties.quiet_until(), duties.awaited());
            }
            let wait =
                if now < quiet_until { POLL_INTERVAL.min(awaited - now) } else { Span::ZERO };
            // The time of the last message is that of the loop: no other clock is read for it.
            let got = receiver.receive_some(Some(wait), &mut Hearing { ears: self, now: &mut now });
            match got {
                Ok(0) => now = clock::now(),
                Ok(_) => {}
                Err(error) => {
                    let what = format!("receive {}", self.place);
                    return Err(TrafficError::system(&what)(error));
                }
            }
            if let Some(reflector) = &mut self.reflector {
                reflector.flush();
            }
        }
        Ok(())
    }

    /// Does what there is to do now: of a summing up one stream.
    fn attend(
        &mut self,
        duties: &mut Duties,
        now: Instant<Tai>,
        receiver: &mut Receiver,
        teller: &Teller<'_>,
    ) -> Result<(), TrafficError> {
        if now >= duties.next && duties.summing.is_none() {
            duties.summing = Some(SummingUp { at: now, streams: Vec::new() });
            // Those that were missed, as while the machine slept, are left out.
            duties.next = now.saturating_add(duties.every);
        }
        if let (Some(pass_on), Some(capture)) = (&mut duties.pass_on, &mut self.capture)
            && now >= *pass_on
        {
            *pass_on = now.saturating_add(PASS_ON);
            capture.pass_on();
        }
        let Some(so_far) = &mut duties.summing else { return Ok(()) };
        match self.listener.snapshot_of(so_far.streams.len(), so_far.at) {
            Some(stream) => so_far.streams.push(HeardStream::new(stream, &mut self.clocks)),
            None => {
                let streams = std::mem::take(&mut so_far.streams);
                let heard = self.heard(receiver, so_far.at, streams)?;
                teller.say(Word::Heard(Box::new(heard)));
                duties.summing = None;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn arrived(&mut self, arrival: Arrival<'_>) {
        if self.left == 0 {
            return;
        }
        if self.only_counts {
            self.count(&arrival);
        } else {
            self.count_and_more(arrival);
        }
    }

    #[inline(always)]
    fn count(&mut self, arrival: &Arrival<'_>) -> Option<Known> {
        let known = self.listener.arrived(arrival)?;
        self.marks.mark(known.probe.stream, known.probe.seq, arrival.length);
        self.left -= 1;
        Some(known)
    }

    /// Counts a message, and captures, answers and records it.
    #[inline(never)]
    fn count_and_more(&mut self, arrival: Arrival<'_>) {
        if let Some(capture) = &mut self.capture {
            capture.take(&arrival);
        }
        let Some(known) = self.count(&arrival) else { return };
        if let Some(reflector) = &mut self.reflector {
            reflector.answer(&arrival);
        }
        if let Some(recorder) = &self.recorder {
            record(recorder, &arrival, known, self.is_frames);
        }
    }

    fn heard(
        &mut self,
        receiver: &mut Receiver,
        now: Instant<Tai>,
        mut streams: Vec<HeardStream>,
    ) -> Result<ListenSnapshot, TrafficError> {
        mark_clashes(&mut streams);
        let dropped = receiver.drops();
        let dropped = dropped.map_err(TrafficError::system("read what was dropped"))?;
        let other_queues = receiver.counters().transpose()?.map(|it| it.without_socket);
        let unheard = other_queues.filter(|count| *count > 0 && !self.is_one_queue);
        let unheard = unheard.map(|count| {
            format!("{count} frames came on receive queues that were not heard: {OTHER_QUEUES}")
        });
        let counters = self.listener.counters();
        let capture = self.capture.as_ref().map(|capture| {
            let (frames, lost) = capture.counts();
            CaptureCounts { frames, lost }
        });
        let answers = self.reflector.as_ref().map(Reflector::counts);
        Ok(ListenSnapshot {
            schema: LISTEN_SCHEMA.to_owned(),
            source: self.place.clone(),
            mode: self.mode.clone(),
            elapsed_ns: (now - self.start).as_ns(),
            messages: counters.known,
            others: counters.unknown,
            not_understood: OtherMessages::of(&self.listener),
            no_room: counters.no_room,
            dropped,
            other_queues,
            not_timestamped: counters.not_timestamped,
            answers,
            capture,
            streams,
            ways: ways(self.listener.ways(), &self.clocks),
            inconclusive: unheard.into_iter().collect(),
        })
    }

    fn finish(mut self, receiver: &mut Receiver) -> Result<Done, TrafficError> {
        self.listener.finish();
        let now = clock::now::<Tai>();
        let streams = self.listener.snapshot(now).into_iter();
        let streams = streams.map(|it| HeardStream::new(it, &mut self.clocks)).collect();
        let mut heard = self.heard(receiver, now, streams)?;
        heard.answers = self.reflector.as_ref().map(Reflector::ended);
        if let Some(recorder) = &self.recorder {
            recorder.add_lost(heard.dropped);
        }
        if let Some(capture) = self.capture.take() {
            capture.finish(heard.dropped)?;
        }
        Ok(Done { heard, recorder: self.recorder })
    }
}

fn ways(ways: WaySummaries, clocks: &Clocks) -> Vec<HostLatency> {
    let WaySummaries { hardware_to_kernel, kernel_to_user, driver_to_user } = ways;
    let all = [
        (TimestampPoint::RxHw, TimestampPoint::RxSw, hardware_to_kernel),
        (TimestampPoint::RxSw, TimestampPoint::Receive, kernel_to_user),
        (TimestampPoint::RxXdp, TimestampPoint::Receive, driver_to_user),
    ];
    let way = |(from, to, between): (TimestampPoint, TimestampPoint, Option<HistogramSummary>)| {
        let name = |point: TimestampPoint| point.name().to_owned();
        let clock = match from {
            TimestampPoint::RxHw => clocks.of_the_nic(),
            _ => ClockBound::one(),
        };
        let between = Some(between?).filter(|_| clock.error_ns.is_some());
        Some(HostLatency { from_point: name(from), to_point: name(to), clock, between })
    };
    all.into_iter().filter_map(way).collect()
}

/// `known` by value: so it is written to memory only where messages are recorded.
#[inline(never)]
fn record(recorder: &Recorder, arrival: &Arrival<'_>, known: Known, is_frames: bool) {
    let probe = &known.probe;
    // Of a UDP message the frame is not known.
    let frame_len = u16::try_from(arrival.length).ok().filter(|_| is_frames).unwrap_or(0);
    let whole = Record {
        at_ns: 0,
        seq: probe.seq,
        frame_len,
        point: TimestampPoint::Receive,
        station: 0,
        flow: known.flow,
        flags: 0,
        clock: HOST_CLOCK,
    };
    let point = if probe.is_launch { TimestampPoint::Scheduled } else { TimestampPoint::Send };
    let at_ns = probe.time.as_ns();
    recorder.push(Record { at_ns, point, station: 1, clock: SENDER_CLOCK, ..whole });
    if let Some(at_ns) = arrival.hardware_ns {
        recorder.push(Record { at_ns, point: TimestampPoint::RxHw, clock: NIC_CLOCK, ..whole });
    }
    let timestamps = [
        (TimestampPoint::RxXdp, arrival.driver),
        (TimestampPoint::RxSw, arrival.kernel),
        (TimestampPoint::Receive, Some(arrival.user)),
    ];
    for (point, at) in timestamps {
        if let Some(at) = at {
            recorder.push(Record { at_ns: at.as_ns(), point, ..whole });
        }
    }
}

/// What the last line of `--json` says.
pub fn final_object(heard: &ListenSnapshot, judged: &[super::expect::Judged]) -> Json {
    json!({"type": "result", "data": {"heard": heard, "expectations": judged}})
}

#[cfg(test)]
pub(super) mod tests;
