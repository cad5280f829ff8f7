// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run: the frames of one way and cycle, sent by a talker, with the stamps that come back and
//! those of the peer.
//!
//! Not here: what the stamps come to (`result`), making the interface ready (`way`).

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use timewire_base::{CyclicWindows, IfName, Instant, Span, Tai};
use timewire_lab::ns;
use timewire_path::probe::Probe;
use timewire_path::talker::{
    Cadence, Destination, FrameContent, FrameHeader, StreamEvent, StreamEventKind, StreamSpec,
    Talker, TalkerError,
};
use timewire_path::transmit::{
    LaunchOptions, LaunchRefusal, StampTime, TransmitOptions, Transport, TxTap, TxTaps,
};
use timewire_sys::event::{EndRequests, Wake, wait_readable};
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};
use timewire_sys::phc::CardClock;
use timewire_sys::{clock, interface_index};

use super::result::{CardClockSeen, Fate, Sample, Shot};
use super::way::Unavailable;
use super::{Request, Tap, Way, has_hardware, run_real_time};
use crate::CtlError;
use crate::drops::{DropCause, PortDrops, QdiscCounts};

/// Where the frames go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Studio {
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
    pub(super) studio: &'a Studio,
    pub(super) way: Way,
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
    pub(super) shot: Result<Shot, Unavailable>,
    pub(super) ended: bool,
    pub(super) notes: Vec<String>,
}

/// The EtherType for local experiments. **Source**: IEEE Std 802-2014, 9.2.4.
pub(super) const ETHERTYPE: u16 = 0x88b5;
pub(super) const HEADER: u32 = 14;
/// From the start of the talker to the first frame's hand-over.
pub(super) const SOON: Span = Span::from_ms(20);
/// How long frames may be under way after the last one was sent.
pub(super) const SETTLE: Span = Span::from_ms(20);
/// Buffer of the listening socket. **Units**: bytes.
const BUFFER: u32 = 16 << 20;
/// A frame that is not sent in time is sent late: the error is to be seen.
pub(super) const PATIENCE: Span = Span::from_secs(3_600);

/// How long before its slot a frame is given to the MAC.
pub(super) fn mac_lead(cycle: Span) -> Span {
    Span::from_ns(cycle.as_ns() / 4).min(Span::from_us(100))
}

/// Sends the frames and gathers their stamps.
///
/// **Errors**: what does not come of the way that is measured: no listener, no thread.
pub(super) fn take(shooting: &Shooting<'_>, requests: &EndRequests) -> Result<Taken, CtlError> {
    let invalid = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| CtlError::Invalid(format!("cannot {what}: {error}"))
    };
    let mut notes = Vec::new();
    let (sender, phc) = sender_tap(shooting);
    let unavailable = |why: Unavailable| Taken { shot: Err(why), ended: false, notes: Vec::new() };
    let counted = QdiscCounts::now();
    let (port, stream) = port_and_stream(shooting, sender);
    let (ports, streams) = ([port], [stream]);
    let mut talker = match Talker::new(&ports, &streams) {
        Ok(talker) => talker,
        Err(error) => return Ok(unavailable(refused(&error))),
    };
    let listener = listener(shooting.studio)?;
    let has_peer = listener.is_some();
    let card = phc.map(|number| CardClock::open(number).map_err(|error| (number, error)));
    let before = card.as_ref().and_then(|card| card.as_ref().ok()).and_then(seen);
    let (stop, done) = (AtomicBool::new(false), Wake::new().map_err(invalid("make an event"))?);
    let over = Wake::new().map_err(invalid("make an event"))?;
    let mut samples = vec![Sample::default(); usize::try_from(shooting.frames).unwrap_or(0)];
    let lead = shooting.mac.map_or(Span::ZERO, |_| mac_lead(shooting.cycle));
    let stack = shooting.mac.map_or(&shooting.studio.interface, |(stack, _)| stack);
    let mut dropped = PortDrops::new(&ports, &streams, Some(stack), counted);
    let (sent, arrived, ended) = thread::scope(|scope| {
        let hearing = listener.map(|socket| {
            let (over, run) = (&over, shooting.run);
            scope.spawn(move || listen(socket, run..=run, over))
        });
        let sending = scope.spawn(|| {
            let note = shooting.request.real_time.then(run_real_time).flatten();
            let mut on = |event: StreamEvent| {
                dropped.note(&event);
                note_event(&mut samples, event, lead);
            };
            let result = talker.run(&stop, None, &mut on);
            // Whoever waits for it would wait for ever.
            done.set().expect("invariant: an event counter takes one");
            (result, note)
        });
        let mut ended = false;
        while !sending.is_finished() {
            // A spurious end of the wait is one more look.
            let _ = wait_readable(&[done.as_fd(), requests.as_fd()], None);
            if requests.take() {
                ended = true;
                stop.store(true, Ordering::Relaxed);
            }
            if done.clear() {
                break;
            }
        }
        let sent = joined(sending.join());
        clock::sleep_until(clock::now::<Tai>() + SETTLE);
        over.set().expect("invariant: an event counter takes one");
        (sent, hearing.map(|hearing| joined(hearing.join())), ended)
    });
    let (result, note) = sent;
    notes.extend(note);
    result.map_err(|error| CtlError::Invalid(error.to_string()))?;
    if let Some(heard) = arrived {
        let heard = heard.map_err(invalid("listen at the peer"))?;
        for (_, seq, at) in heard.arrivals {
            let index = usize::try_from(seq).unwrap_or(usize::MAX);
            if let Some(sample) = samples.get_mut(index) {
                // The first of its number.
                sample.peer_ns.get_or_insert(at.as_ns());
            }
        }
        if heard.lost > 0 {
            notes.push(format!("the peer's socket lost {} frames for want of room", heard.lost));
        }
    }
    let report = talker.report();
    let drop_causes: Vec<DropCause> = dropped.causes(&report);
    if !report.stamp_faults.is_empty() {
        notes.push(format!("transmit stamps not as they should be: {}", report.stamp_faults));
    }
    if report.lost_reports + report.unknown_reports > 0 {
        notes.push(format!(
            "{} reports of the kernel were lost and {} were of no known frame",
            report.lost_reports, report.unknown_reports
        ));
    }
    let after = card.as_ref().and_then(|card| card.as_ref().ok()).and_then(seen);
    if let Some(Err((number, error))) = &card {
        notes.push(format!("/dev/ptp{number} cannot be opened: {error}"));
    }
    let card = match (before, after) {
        (Some(before), Some(after)) => {
            Some(CardClockSeen { most_ns: before.most_ns.max(after.most_ns), ..before })
        }
        _ => None,
    };
    let &Shooting { way, cycle, repeat, .. } = shooting;
    let shot = Shot { way, cycle, repeat, sender, has_peer, card, samples, drop_causes };
    Ok(Taken { shot: Ok(shot), ended, notes })
}

/// Where the sender's side stamps, and with which card's clock.
fn sender_tap(shooting: &Shooting<'_>) -> (Option<Tap>, Option<u32>) {
    if shooting.mac.is_some() {
        // Stamps of the stack's interface would be from before the MAC.
        return (None, None);
    }
    let hardware = has_hardware(&shooting.studio.interface);
    match (shooting.request.at, hardware) {
        (Some(Tap::TxSoftware), _) | (None | Some(Tap::Peer), None) => {
            (Some(Tap::TxSoftware), None)
        }
        (Some(Tap::TxHardware), None) => (Some(Tap::TxHardware), None),
        (_, Some(phc)) => (Some(Tap::TxHardware), phc),
    }
}

fn options(shooting: &Shooting<'_>, sender: Option<Tap>) -> TransmitOptions {
    let taps = TxTaps {
        sched: false,
        software: sender == Some(Tap::TxSoftware),
        hardware: sender == Some(Tap::TxHardware),
    };
    TransmitOptions {
        priority: Some(shooting.request.priority),
        launch: shooting.way.has_launch_times().then(LaunchOptions::default),
        taps,
        ..TransmitOptions::default()
    }
}

fn port_and_stream(
    shooting: &Shooting<'_>,
    sender: Option<Tap>,
) -> ((Transport, TransmitOptions), StreamSpec) {
    let &Shooting { request, studio, way, cycle, .. } = shooting;
    let has_launch = way.has_launch_times();
    let lead = has_launch.then(|| shooting.delta + request.ahead_of(cycle));
    let options = options(shooting, sender);
    let cadence = match shooting.mac {
        Some((_, windows)) => Cadence::Slots { windows: windows.clone(), lead: mac_lead(cycle) },
        None => Cadence::Cycle { start: first(cycle, lead.unwrap_or(Span::ZERO)), cycle },
    };
    let header = FrameHeader {
        source: None,
        destination: studio.destination,
        vlan: None,
        content: FrameContent::EtherType(ETHERTYPE),
    };
    let payload = usize::try_from(request.size - HEADER).expect("invariant: 32 bits fit");
    let to = Destination::Frame(header);
    let stream = StreamSpec {
        cycles: Some(shooting.frames),
        launch_lead: lead,
        deadline: Some(PATIENCE),
        send_late: true,
        ..StreamSpec::new(shooting.run, to, cadence, payload)
    };
    let interface = shooting.mac.map_or(&studio.interface, |(stack, _)| stack).clone();
    ((Transport::Frames { interface }, options), stream)
}

/// The first launch time: a while from now, and a multiple of the cycle since TAI began, so that
/// the same phases come in every run.
fn first(cycle: Span, lead: Span) -> Instant<Tai> {
    let soon = clock::now::<Tai>() + SOON + lead;
    let rest = soon.as_ns().rem_euclid(cycle.as_ns());
    soon + Span::from_ns(cycle.as_ns() - rest)
}

pub(super) fn refused(error: &TalkerError) -> Unavailable {
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
        StreamEventKind::Stamp { tap, at } => {
            if matches!(tap, TxTap::Software | TxTap::Hardware) {
                let ns = match at {
                    StampTime::System(at) => at.as_ns(),
                    StampTime::Card { ns } => ns,
                };
                sample.sender_ns = Some(ns);
            }
        }
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

pub(super) fn listener(studio: &Studio) -> Result<Option<PacketSocket>, CtlError> {
    let Some((netns, interface)) = &studio.peer else { return Ok(None) };
    let options = PacketOptions { receive: true, stamps: true, buffer_bytes: BUFFER };
    let open = || PacketSocket::open(interface_index(interface)?, options);
    let socket = match netns {
        Some(netns) => ns::in_namespace(netns, open)?,
        None => open(),
    };
    let failed = |source: io::Error| CtlError::Link {
        link: interface.clone(),
        why: format!("cannot listen there: {source}"),
    };
    socket.map(Some).map_err(failed)
}

#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Stream, sequence number, when.
    pub(super) arrivals: Vec<(u16, u32, Instant<Tai>)>,
    /// Frames that the socket had no room for.
    pub(super) lost: u32,
}

/// Hears these streams until it is over.
pub(super) fn listen(
    mut socket: PacketSocket,
    streams: RangeInclusive<u16>,
    over: &Wake,
) -> io::Result<Heard> {
    let offset = clock::tai_offset();
    let mut heard = Heard::default();
    let mut got = vec![Observed::default(); 32];
    loop {
        wait_readable(&[socket.as_fd(), over.as_fd()], None)?;
        let count = socket.observe(&mut got)?;
        for frame in &got[..count] {
            let bytes = &frame.prefix[..frame.prefix_len];
            let Some((header, content)) = bytes.split_at_checked(14) else { continue };
            if header[12..] != ETHERTYPE.to_be_bytes() {
                continue;
            }
            let probe = Probe::parse(content).filter(|probe| streams.contains(&probe.stream));
            if let (Some(probe), Some(stamp)) = (probe, frame.stamp) {
                let at = Instant::from_ns(stamp.as_ns()) + offset;
                heard.arrivals.push((probe.stream, probe.seq, at));
            }
        }
        if count == 0 && over.clear() {
            heard.lost = socket.take_drops()?;
            return Ok(heard);
        }
    }
}

/// How far a card's clock is from TAI.
pub(super) fn seen(card: &CardClock) -> Option<CardClockSeen> {
    let (relation, _) = card.ahead_of_realtime().ok()?;
    let ahead = relation.ahead - clock::tai_offset();
    let most_ns = ahead.as_ns().saturating_abs().saturating_add(relation.error.as_ns());
    Some(CardClockSeen { device: card.path().display().to_string(), most_ns })
}

pub(super) fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
