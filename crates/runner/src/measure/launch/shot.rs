// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One trial: frames that a talker sends, with the timestamps that come back and those of the peer;
//! of launch times, those of one way and cycle.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use timewire_base::wire::Frame;
use timewire_base::{CyclicWindows, Failure, IfName, Instant, Span, Tai};
use timewire_datapath::DatapathError;
use timewire_datapath::probe::Probe;
use timewire_datapath::talker::{
    Cadence, Destination, FrameContent, FrameHeader, StreamEvent, StreamEventKind, StreamSpec,
    Talker, TalkerError,
};
use timewire_datapath::transmit::{
    LaunchOptions, LaunchRefusal, TransmitOptions, Transport, TxPoint, TxPoints,
};
use timewire_lab::ns;
use timewire_sys::event::{EndRequests, Wake, wait_readable};
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};
use timewire_sys::phc::NicClock;
use timewire_sys::{clock, interface_index};

use super::super::exchange::timestamp_ns;
use super::result::{Fate, NicClockSeen, Sample, Shot, Unavailable};
use super::{LaunchMethod, Request, TimestampPoint, TransmitSpec, has_hardware, run_real_time};
use crate::RunnerError;
use crate::error::{Context as _, invalid};
use timewire_datapath::drops::{DropCause, PortDrops, QdiscCounts};

/// Where the frames go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SenderSetup {
    /// Of the calling thread's network namespace.
    pub(super) interface: IfName,
    pub(super) destination: [u8; 6],
    /// The interface at the other end, and its namespace where that is another.
    pub(super) peer: Option<(Option<PathBuf>, IfName)>,
    /// Whether it was made for the measurement.
    pub(super) is_bench: bool,
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shooting<'a> {
    pub(super) request: &'a Request,
    pub(super) setup: &'a SenderSetup,
    pub(super) way: LaunchMethod,
    pub(super) cycle: Span,
    pub(super) repeat: u32,
    pub(super) frames: u64,
    pub(super) delta: Span,
    /// What its frames carry, so that late ones of another run are known.
    pub(super) run: u16,
    /// The interface and slots of the MAC, when it is that.
    pub(super) mac: Option<(&'a IfName, &'a CyclicWindows)>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) shot: Shot,
    pub(super) ended: bool,
    pub(super) notes: Vec<String>,
}

/// Streams that are sent and timestamped.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    pub(super) frames: &'a TransmitSpec,
    pub(super) setup: &'a SenderSetup,
    pub(super) ports: Vec<(Transport, TransmitOptions)>,
    pub(super) streams: Vec<StreamSpec>,
    /// The interface that the frames are given to.
    pub(super) interface: &'a IfName,
    /// The number of the NIC's clock, of its timestamps.
    pub(super) phc: Option<u32>,
    /// How long frames may be under way after the last one was sent.
    pub(super) settle: Span,
    /// How long the talker waits for the reports of the last frames.
    pub(super) last_wait: Option<Span>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Sent {
    /// At the peer: stream, sequence number, when.
    pub(super) arrivals: Vec<(u16, u32, Instant<Tai>)>,
    /// Whether there is a peer.
    pub(super) has_peer: bool,
    /// The NIC's clock, before and after.
    pub(super) nic: Option<NicClockSeen>,
    pub(super) drop_causes: Vec<DropCause>,
    pub(super) ended: bool,
    pub(super) notes: Vec<String>,
}

/// The EtherType for local experiments. **Source**: IEEE Std 802-2014, 9.2.4.
pub(super) const ETHERTYPE: u16 = 0x88b5;
/// From the start of the talker to the first frame's hand-over.
pub(super) const START_LEAD: Span = Span::from_ms(20);
/// How long a frame may be under way.
pub(super) const SETTLE: Span = Span::from_ms(20);
/// Buffer of the listening socket. **Units**: bytes.
const BUFFER: u32 = 16 << 20;
/// A frame that is not sent in time is sent late: the error is to be seen.
pub(super) const TIMEOUT: Span = Span::from_secs(3_600);

/// How long before its slot a frame is given to the MAC.
pub(super) fn mac_lead(cycle: Span) -> Span {
    Span::from_ns(cycle.as_ns() / 4).min(Span::from_us(100))
}

/// Sends the frames of one way and cycle, and gathers their timestamps.
///
/// **Errors**: what does not come of the way that is measured: no listener, no thread.
pub(super) fn take(
    shooting: &Shooting<'_>,
    ends: &EndRequests,
) -> Result<Result<Taken, Unavailable>, RunnerError> {
    let &Shooting { request, setup, way, cycle, repeat, .. } = shooting;
    let mut samples = vec![Sample::default(); usize::try_from(shooting.frames).unwrap_or(0)];
    let (sender, phc) = match shooting.mac {
        // Timestamps of the stack's interface would be from before the MAC.
        Some(_) => (None, None),
        None => {
            let (point, phc) = sender_point(request.frames.at, &setup.interface);
            (Some(point), phc)
        }
    };
    let (port, stream) = port_and_stream(shooting, sender);
    let sending = Sending {
        frames: &request.frames,
        setup,
        ports: vec![port],
        streams: vec![stream],
        interface: shooting.mac.map_or(&setup.interface, |(stack, _)| stack),
        phc,
        settle: SETTLE,
        last_wait: None,
    };
    let lead = shooting.mac.map_or(Span::ZERO, |_| mac_lead(cycle));
    let sent = sending.send(ends, &mut |event| note_event(&mut samples, event, lead))?;
    let Sent { arrivals, has_peer, nic, drop_causes, ended, notes } = match sent {
        Ok(sent) => sent,
        Err(unavailable) => return Ok(Err(unavailable)),
    };
    for (_, seq, at) in arrivals {
        let index = usize::try_from(seq).unwrap_or(usize::MAX);
        if let Some(sample) = samples.get_mut(index) {
            // The first of its number.
            sample.peer_ns.get_or_insert(at.as_ns());
        }
    }
    let shot = Shot { way, cycle, repeat, sender, has_peer, nic, samples, drop_causes };
    Ok(Ok(Taken { shot, ended, notes }))
}

impl Sending<'_> {
    /// Sends them all, or until it is asked to end. `on` hears of each frame in the loop of the
    /// talker.
    ///
    /// **Errors**: no listener, no thread.
    pub(super) fn send(
        self,
        ends: &EndRequests,
        on: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Result<Sent, Unavailable>, RunnerError> {
        let Sending { ports, streams, settle, .. } = &self;
        let counted = QdiscCounts::now();
        let mut talker = match Talker::new(ports, streams) {
            Ok(talker) => talker,
            Err(error) => return Ok(Err(refused(&error))),
        };
        self.last_wait.into_iter().for_each(|span| talker.set_last_wait(span));
        let mut dropped = PortDrops::new(ports, streams, Some(self.interface), counted);
        let listener = listener(self.setup)?;
        let has_peer = listener.is_some();
        let nic = self.phc.map(|number| NicClock::open(number).map_err(|error| (number, error)));
        let look = || nic.as_ref().and_then(|nic| nic.as_ref().ok()).and_then(seen);
        let before = look();
        let (stop, done) = (AtomicBool::new(false), wake()?);
        let over = wake()?;
        let (sent, heard, ended) = thread::scope(|scope| {
            let (over, done) = (&over, &done);
            let hearing = listener.map(|socket| scope.spawn(move || listen(socket, streams, over)));
            let sending = scope.spawn(|| {
                let note = self.frames.real_time.then(run_real_time).flatten();
                let result = talker.run(&stop, None, &mut |event| {
                    dropped.note(&event);
                    on(event);
                });
                // Whoever waits for it would wait for ever.
                done.set().expect("invariant: an event counter takes one");
                (result, note)
            });
            let mut ended = false;
            while !sending.is_finished() {
                // A spurious end of the wait is one more look.
                let _ = wait_readable(&[done.as_fd(), ends.as_fd()], None);
                if ends.take() {
                    ended = true;
                    stop.store(true, Ordering::Relaxed);
                }
                if done.clear() {
                    break;
                }
            }
            let sent = joined(sending.join());
            clock::sleep_until(clock::now::<Tai>() + *settle);
            over.set().expect("invariant: an event counter takes one");
            (sent, hearing.map(|hearing| joined(hearing.join())), ended)
        });
        let (result, note) = sent;
        result.map_err(invalid)?;
        let mut notes: Vec<String> = note.into_iter().collect();
        let heard = heard.transpose().context("cannot listen at the peer")?.unwrap_or_default();
        if heard.lost > 0 {
            notes.push(format!("the peer's socket lost {} frames for want of room", heard.lost));
        }
        let report = talker.report();
        let drop_causes = dropped.causes(&report);
        if !report.timestamp_faults.is_empty() {
            notes.push(format!(
                "transmit timestamps not as they should be: {}",
                report.timestamp_faults
            ));
        }
        if report.lost_reports + report.unknown_reports > 0 {
            notes.push(format!(
                "{} reports of the kernel were lost and {} were of no known frame",
                report.lost_reports, report.unknown_reports
            ));
        }
        let after = look();
        if let Some(Err((number, error))) = &nic {
            notes.push(format!("/dev/ptp{number} cannot be opened: {error}"));
        }
        let nic = before.zip(after).map(|(before, after)| NicClockSeen {
            most_ns: before.most_ns.max(after.most_ns),
            ..before
        });
        Ok(Ok(Sent { arrivals: heard.arrivals, has_peer, nic, drop_causes, ended, notes }))
    }
}

fn wake() -> Result<Wake, RunnerError> {
    Wake::new().context("cannot make an event")
}

/// Where the sender's side timestamps, and with which NIC's clock.
pub(super) fn sender_point(
    at: Option<TimestampPoint>,
    interface: &IfName,
) -> (TimestampPoint, Option<u32>) {
    match (at, has_hardware(interface)) {
        (Some(TimestampPoint::TxSoftware), _) | (None | Some(TimestampPoint::Peer), None) => {
            (TimestampPoint::TxSoftware, None)
        }
        (Some(TimestampPoint::TxHardware), None) => (TimestampPoint::TxHardware, None),
        (_, Some(phc)) => (TimestampPoint::TxHardware, phc),
    }
}

/// Where frames go and what is in them: a probe.
pub(super) fn destination(setup: &SenderSetup) -> Destination {
    Destination::Frame(FrameHeader {
        source: None,
        destination: setup.destination,
        vlan: None,
        content: FrameContent::EtherType(ETHERTYPE),
    })
}

fn options(shooting: &Shooting<'_>, sender: Option<TimestampPoint>) -> TransmitOptions {
    let points = TxPoints {
        sched: false,
        software: sender == Some(TimestampPoint::TxSoftware),
        hardware: sender == Some(TimestampPoint::TxHardware),
    };
    TransmitOptions {
        priority: Some(shooting.request.priority),
        launch: shooting.way.has_launch_times().then(LaunchOptions::default),
        points,
        ..TransmitOptions::default()
    }
}

fn port_and_stream(
    shooting: &Shooting<'_>,
    sender: Option<TimestampPoint>,
) -> ((Transport, TransmitOptions), StreamSpec) {
    let &Shooting { request, setup, way, cycle, .. } = shooting;
    let has_launch = way.has_launch_times();
    let lead = has_launch.then(|| shooting.delta + request.ahead_of(cycle));
    let options = options(shooting, sender);
    let cadence = match shooting.mac {
        Some((_, windows)) => Cadence::Slots { windows: windows.clone(), lead: mac_lead(cycle) },
        None => Cadence::Cycle { start: first(cycle, lead.unwrap_or(Span::ZERO)), cycle },
    };
    let (to, payload) = (destination(setup), request.frames.payload());
    let stream = StreamSpec {
        cycles: Some(shooting.frames),
        launch_lead: lead,
        deadline: Some(TIMEOUT),
        send_late: true,
        ..StreamSpec::new(shooting.run, to, cadence, payload)
    };
    let interface = shooting.mac.map_or(&setup.interface, |(stack, _)| stack).clone();
    ((Transport::Frames { interface }, options), stream)
}

/// The first launch time: a while from now, and a multiple of the cycle since TAI began, so that
/// the same phases come in every run.
fn first(cycle: Span, lead: Span) -> Instant<Tai> {
    let soon = clock::now::<Tai>() + START_LEAD + lead;
    let rest = soon.as_ns().rem_euclid(cycle.as_ns());
    soon + Span::from_ns(cycle.as_ns() - rest)
}

fn refused(error: &TalkerError) -> Unavailable {
    match error {
        TalkerError::Port(port) => {
            let hint = port.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            Unavailable { why: format!("{port}{hint}"), unsupported: port.is_unsupported() }
        }
        other => Unavailable::new(other.to_string()),
    }
}

/// In the loop of the talker: nothing is allocated.
fn note_event(samples: &mut [Sample], event: StreamEvent, mac_lead: Span) {
    let index = usize::try_from(event.seq).unwrap_or(usize::MAX);
    let Some(sample) = samples.get_mut(index) else { return };
    match event.what {
        StreamEventKind::Sent { due, at, launch } => {
            sample.launch_ns = launch.unwrap_or(due + mac_lead).as_ns();
            sample.sent_ns = at.as_ns();
            sample.fate = Fate::Sent;
        }
        StreamEventKind::Timestamp { point: TxPoint::Software | TxPoint::Hardware, at } => {
            sample.sender_ns = Some(timestamp_ns(at));
        }
        StreamEventKind::Timestamp { .. } => {}
        // The kernel tells both of a frame whose launch time it refuses; why is what counts.
        StreamEventKind::NotTaken { .. } if sample.fate == Fate::Sent => {
            sample.fate = Fate::NotTaken;
        }
        StreamEventKind::NotTaken { .. } => {}
        StreamEventKind::LaunchRefused { why, .. } => {
            sample.fate = match why {
                LaunchRefusal::Invalid => Fate::Invalid,
                LaunchRefusal::Missed => Fate::Missed,
            };
        }
        // Their fate is that of all samples at first.
        StreamEventKind::Skipped { .. } => {}
    }
}

fn listener(setup: &SenderSetup) -> Result<Option<PacketSocket>, RunnerError> {
    let Some((netns, interface)) = &setup.peer else { return Ok(None) };
    let options = PacketOptions { receive: true, timestamps: true, buffer_bytes: BUFFER };
    let open = || PacketSocket::open(interface_index(interface)?, options);
    let socket = match netns {
        Some(netns) => ns::in_namespace(netns, open)?,
        None => open(),
    };
    let failed = |source: io::Error| DatapathError::Link {
        link: interface.clone(),
        why: format!("cannot listen there: {source}"),
    };
    Ok(Some(socket.map_err(failed)?))
}

#[derive(Debug, Default)]
struct Heard {
    /// Stream, sequence number, when.
    arrivals: Vec<(u16, u32, Instant<Tai>)>,
    /// Frames that the socket had no room for.
    lost: u32,
}

/// Hears these streams until it is over.
fn listen(mut socket: PacketSocket, streams: &[StreamSpec], over: &Wake) -> io::Result<Heard> {
    let is_ours = |probe: &Probe| streams.iter().any(|stream| stream.number == probe.stream);
    let offset = clock::tai_offset();
    let mut heard = Heard::default();
    let mut got = vec![Observed::default(); 32];
    loop {
        wait_readable(&[socket.as_fd(), over.as_fd()], None)?;
        let count = socket.observe(&mut got)?;
        for frame in &got[..count] {
            let bytes = &frame.prefix[..frame.prefix_len];
            let ours = Frame::parse(bytes).filter(|it| it.ethertype() == Some(ETHERTYPE));
            let Some(content) = ours.map(|frame| frame.payload()) else { continue };
            let probe = Probe::parse(content).filter(is_ours);
            if let (Some(probe), Some(timestamp)) = (probe, frame.timestamp) {
                let at = Instant::from_ns(timestamp.as_ns()) + offset;
                heard.arrivals.push((probe.stream, probe.seq, at));
            }
        }
        if count == 0 && over.clear() {
            heard.lost = socket.take_drops()?;
            return Ok(heard);
        }
    }
}

/// How far a NIC's clock is from TAI.
fn seen(nic: &NicClock) -> Option<NicClockSeen> {
    let (relation, _) = nic.ahead_of_realtime().ok()?;
    let ahead = relation.ahead - clock::tai_offset();
    let most_ns = ahead.as_ns().saturating_abs().saturating_add(relation.error.as_ns());
    Some(NicClockSeen { device: nic.path().display().to_string(), most_ns })
}

fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
