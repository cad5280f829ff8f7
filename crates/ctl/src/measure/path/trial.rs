// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One trial: so many messages at one rate over the way, and what became of them.
//!
//! Not here: which rates (`search`), what is made of the times (`taps`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use timewire_base::{Instant, Mono, Span, Tai};
use timewire_lab::LabError;
use timewire_path::listen::{Arrival, FrameFilter, ReceiveOptions, ReceiveStamps, Receiver};
use timewire_path::probe::Probe;
use timewire_path::talker::{Destination, StreamEvent, StreamEventKind};
use timewire_path::transmit::{
    StampTime, TransmitOptions, Transmitter, Transport, TxReport, TxTap, TxTaps,
};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_sys::filter::content_of;

use super::reflect::{answer, read};
use super::taps::{Passage, Point};
use super::{PathSpec, Way};
use crate::CardStamping;
use crate::drops::{DropCause, Hear, Heard, QdiscCounts, causes};
use crate::measure::MeasureError;
use crate::measure::bench::End;
use crate::measure::card_clock::{CardStamps, Look, Mapping, look};
use crate::measure::exchange::{
    SLICE, STREAM, Sending, Signals, bench_addresses, bench_frames, mute, source_of,
    wait_for_stamps, wait_of,
};
use crate::measure::receive::plan::Over;

/// Most messages of a trial.
pub(super) const MOST: u64 = 1_000_000;

/// What came of a trial.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) planned: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Whether the talker sent as fast as it was to.
    pub(super) kept_pace: bool,
    /// Stamps of the talker that did not come.
    pub(super) stamps_missing: u64,
    /// Each message that came, in the order of their numbers.
    pub(super) passages: Vec<Passage>,
    pub(super) card: CardStamps,
    pub(super) ended_early: bool,
    /// Why messages did not leave.
    pub(super) drop_causes: Vec<DropCause>,
}

impl Trial {
    /// Whether nothing was lost at the rate that was to be.
    pub(super) fn lost_nothing(&self) -> bool {
        self.kept_pace && self.sent == self.planned && self.received == self.sent
    }
}

/// What the talker saw.
struct Talked {
    planned: u64,
    sent: u64,
    stamps_missing: u64,
    kept_pace: bool,
    drop_causes: Vec<DropCause>,
    passages: Vec<Passage>,
}

/// Sends `count` messages at a rate; with `taps`, asks for the talker's stamps too.
pub(super) fn run(
    spec: &PathSpec,
    way: &Way,
    rate: u32,
    count: u64,
    taps: bool,
    ends: &EndRequests,
) -> Result<Trial, MeasureError> {
    let signals = Signals::default();
    let (ready, opened) = sync_channel(2);
    let card = match spec.stamps {
        CardStamping::Unused => Err("its stamps were not asked for".to_owned()),
        CardStamping::AsItIs | CardStamping::Told => card_of(way),
    };
    let has_card = card.is_ok();
    let before = near_side(way, QdiscCounts::now)?;
    let (talked, received, ended_early) = thread::scope(|scope| {
        let signals = &signals;
        let far = way.bench().map(|pair| {
            let ready = ready.clone();
            scope.spawn(move || -> Result<(Vec<Passage>, Vec<DropCause>), MeasureError> {
                pair.inside(End::B, || match spec.reflect {
                    true => Ok((Vec::new(), reflect(spec, way, signals, &ready)?)),
                    false => {
                        let came = receive(spec, way, End::B, count, false, signals, &ready)?;
                        Ok((came, Vec::new()))
                    }
                })?
            })
        });
        let near = spec.reflect.then(|| {
            let ready = ready.clone();
            scope.spawn(move || -> Result<Vec<Passage>, MeasureError> {
                near_side(way, || receive(spec, way, End::A, count, has_card, signals, &ready))?
            })
        });
        drop(ready);
        let ends_of_way = usize::from(far.is_some()) + usize::from(near.is_some());
        let is_open = (0..ends_of_way).all(|_| opened.recv().is_ok());
        if !is_open {
            signals.stop();
        }
        let talker = is_open.then(|| {
            scope.spawn(move || -> Result<Talked, MeasureError> {
                let taps = TxTaps { sched: taps, software: taps, hardware: taps && has_card };
                let talked =
                    near_side(way, || talk(spec, way, (rate, count), taps, before, signals));
                signals.talker_ended();
                talked?
            })
        });
        let ended_early = is_open && signals.wait(ends);
        let talked = talker.map(|it| it.join().expect("invariant: talkers do not panic"));
        let far = far.map(|it| it.join().expect("invariant: receivers do not panic"));
        let near = near.map(|it| it.join().expect("invariant: receivers do not panic"));
        (talked, (far, near), ended_early)
    });
    let (far, near) = (received.0.transpose()?, received.1.transpose()?);
    let Some(mut talked) = talked.transpose()? else {
        return Err(MeasureError::Invalid("a receiver ended before the trial".to_owned()));
    };
    let (far, answers) = far.unzip();
    DropCause::merge(&mut talked.drop_causes, &answers.unwrap_or_default());
    let came = if spec.reflect { near } else { far }.unwrap_or_default();
    let mapping = card.and_then(|card| Mapping::new(card, card_of(way)?, spec.max_clock_error));
    Ok(join(talked, came, mapping, ended_early))
}

/// Puts what both ends saw of each message together.
fn join(
    talked: Talked,
    mut came: Vec<Passage>,
    mapping: Result<Mapping, String>,
    ended_early: bool,
) -> Trial {
    let is_there =
        |it: &Passage| [Point::User, Point::FarUser].iter().any(|p| it.get(*p).is_some());
    let received = came.iter().filter(|it| is_there(it)).count();
    for (message, sent) in came.iter_mut().zip(&talked.passages) {
        Point::ALL.iter().for_each(|point| message.set(*point, sent.get(*point)));
    }
    let passages =
        came.iter().filter(|it| is_there(it)).map(|it| mapped(it, mapping.as_ref().ok()));
    Trial {
        planned: talked.planned,
        sent: talked.sent,
        received: u64::try_from(received).unwrap_or(u64::MAX),
        kept_pace: talked.kept_pace,
        drop_causes: talked.drop_causes,
        stamps_missing: talked.stamps_missing,
        passages: passages.collect(),
        card: match mapping {
            Ok(mapping) => CardStamps::known(&mapping),
            Err(why) => CardStamps::unknown(why),
        },
        ended_early,
    }
}

/// With the card's stamps brought over to the system's clock, or without them.
fn mapped(message: &Passage, mapping: Option<&Mapping>) -> Passage {
    let mut all = Passage::default();
    for point in Point::ALL {
        let ns = message.get(point);
        let is_card = matches!(point, Point::TxHw | Point::RxHw);
        all.set(
            point,
            match (is_card, mapping) {
                (false, _) => ns,
                (true, Some(mapping)) => ns.map(|ns| mapping.tai_ns(ns)),
                (true, None) => None,
            },
        );
    }
    all
}

fn card_of(way: &Way) -> Result<Look, String> {
    match way {
        Way::Bench(_) => Err("the bench's interfaces have no clock".to_owned()),
        Way::Peer { interface: None, .. } => {
            Err("without --interface nobody knows which card it is".to_owned())
        }
        Way::Peer { interface: Some(interface), .. } => look(interface),
    }
}

fn near_side<T: Send>(way: &Way, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    match way {
        Way::Bench(pair) => pair.inside(End::A, work),
        Way::Peer { .. } => Ok(work()),
    }
}

fn talk(
    spec: &PathSpec,
    way: &Way,
    (rate, count): (u32, u64),
    taps: TxTaps,
    before: QdiscCounts,
    signals: &Signals,
) -> Result<Talked, MeasureError> {
    let (port, to) = port_of(spec, way);
    let interface = match way {
        Way::Bench(pair) => Some(pair.interface()),
        Way::Peer { interface, .. } => interface.clone(),
    };
    let port = (port, TransmitOptions { taps, ..TransmitOptions::default() });
    let (count_of, payload) = (Some(count), spec.payload);
    let talker = Sending { port, interface, to, rate, count: count_of, payload, before }.ready()?;
    let (start, cycle) = (talker.start, talker.cycle);
    let room = usize::try_from(count.min(MOST)).unwrap_or(0);
    let mut passages = vec![Passage::default(); room];
    let mut last = start;
    let each = &mut |event| note(&event, &mut passages, &mut last);
    let (report, drop_causes) = talker.talk(signals, each)?;
    let counters = report.counters;
    // A hundredth and a scheduler's turn more than the plan.
    let planned = cycle.as_ns().saturating_mul(i64::try_from(count).unwrap_or(i64::MAX));
    let allowed = Span::from_ns(planned / 100 * 101) + Span::from_ms(5);
    Ok(Talked {
        planned: count,
        sent: counters.sent,
        stamps_missing: counters.stamps_missing,
        kept_pace: last - start <= allowed,
        drop_causes,
        passages,
    })
}

fn note(event: &StreamEvent, passages: &mut [Passage], last: &mut Instant<Tai>) {
    let index = usize::try_from(event.seq).unwrap_or(usize::MAX);
    let Some(passage) = passages.get_mut(index) else { return };
    match event.what {
        StreamEventKind::Sent { due, at, .. } => {
            *last = at;
            passage.set(Point::Due, Some(due.as_ns()));
            passage.set(Point::Send, Some(at.as_ns()));
        }
        StreamEventKind::Stamp { tap, at } => {
            let ns = match at {
                StampTime::System(at) => at.as_ns(),
                StampTime::Card { ns } => ns,
            };
            let point = match tap {
                TxTap::Sched => Point::Sched,
                TxTap::Software | TxTap::Freed => Point::TxSw,
                TxTap::Hardware => Point::TxHw,
            };
            passage.set(point, Some(ns));
        }
        StreamEventKind::NotTaken { .. }
        | StreamEventKind::LaunchRefused { .. }
        | StreamEventKind::Skipped { .. } => {}
    }
}

/// What sends at the near end, and where to.
fn port_of(spec: &PathSpec, way: &Way) -> (Transport, Destination) {
    let any = |to: &SocketAddr| -> IpAddr {
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { [0_u16; 8].into() }
    };
    match way {
        Way::Peer { to, interface } => {
            let from = SocketAddr::new(any(to), spec.port);
            let device = interface.clone();
            (Transport::Udp { from, to: Some(*to), device }, Destination::Port)
        }
        Way::Bench(pair) => {
            if spec.over != Over::Udp {
                return bench_frames(pair, spec.port);
            }
            let (from, to) = bench_addresses(pair, spec.port);
            let to = Some(to.into());
            (Transport::Udp { from: from.into(), to, device: None }, Destination::Port)
        }
    }
}

fn options_of(spec: &PathSpec, hardware: bool, port: u16) -> ReceiveOptions {
    let wait = wait_of(spec.wait);
    let udp_port = (spec.over != Over::Udp).then_some(port);
    let filter = FrameFilter { udp_port, ..FrameFilter::default() };
    let stamps = ReceiveStamps { software: true, hardware };
    ReceiveOptions { stamps, wait, filter, ..ReceiveOptions::default() }
}

/// What receives at one end, and what takes the messages there that only a packet socket reads.
fn open(
    spec: &PathSpec,
    way: &Way,
    end: End,
    hardware: bool,
) -> Result<(Receiver, Option<UdpSocket>), MeasureError> {
    let port = if end == End::A { spec.port.wrapping_add(1) } else { spec.port };
    let (interface, any) = match way {
        Way::Bench(pair) => (Some(pair.interface()), IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        Way::Peer { to, interface } if to.is_ipv4() => {
            (interface.clone(), Ipv4Addr::UNSPECIFIED.into())
        }
        Way::Peer { interface, .. } => (interface.clone(), [0_u16; 8].into()),
    };
    let at = SocketAddr::new(any, port);
    let source = source_of(spec.over, at, interface, None);
    let receiver = Receiver::open(&source, &options_of(spec, hardware, port))?;
    let mute = mute(spec.over, at);
    wait_for_stamps(&receiver);
    Ok((receiver, mute))
}

/// The end of the way: notes what came, by number.
fn receive(
    spec: &PathSpec,
    way: &Way,
    end: End,
    count: u64,
    hardware: bool,
    signals: &Signals,
    ready: &SyncSender<()>,
) -> Result<Vec<Passage>, MeasureError> {
    let opened = open(spec, way, end, hardware);
    let (mut receiver, _mute) = opened.inspect_err(|_| signals.receiver_ended())?;
    let mut passages = vec![Passage::default(); usize::try_from(count.min(MOST)).unwrap_or(0)];
    let mut received = 0;
    let _ = ready.try_send(());
    let mut last = clock::now::<Mono>();
    let result = loop {
        let mut each = |arrival: Arrival<'_>| {
            received += u64::from(take(&arrival, spec.over, end, &mut passages));
        };
        let came = match receiver.receive(Some(SLICE), &mut each) {
            Ok(came) => came,
            Err(error) => break Err(MeasureError::kernel("receive", error)),
        };
        let now = clock::now::<Mono>();
        if came > 0 {
            last = now;
        }
        if signals.is_over(received, now, last) {
            break Ok(());
        }
    };
    signals.receiver_ended();
    result.map(|()| passages)
}

/// Notes a message; whether it is a new one.
fn take(arrival: &Arrival<'_>, over: Over, end: End, passages: &mut [Passage]) -> bool {
    let message = if over == Over::Udp { Some(arrival.bytes) } else { content_of(arrival.bytes) };
    let probe = message.and_then(|message| Some((message, Probe::parse(message)?)));
    let Some((message, probe)) = probe.filter(|(_, probe)| probe.stream == STREAM) else {
        return false;
    };
    let index = usize::try_from(probe.seq).unwrap_or(usize::MAX);
    let Some(passage) = passages.get_mut(index) else { return false };
    let points = match end {
        End::B => [Point::FarRxHw, Point::FarRxXdp, Point::FarRxSw, Point::FarUser],
        End::A => [Point::RxHw, Point::RxXdp, Point::RxSw, Point::User],
    };
    if passage.get(points[3]).is_some() {
        return false;
    }
    if end == End::A {
        read(message, passage);
    }
    let ns = |at: Option<Instant<Tai>>| at.map(Instant::as_ns);
    let user = Some(arrival.user.as_ns());
    let times = [arrival.hardware_ns, ns(arrival.driver), ns(arrival.kernel), user];
    points.iter().zip(times).for_each(|(point, ns)| passage.set(*point, ns));
    true
}

/// The far end of a round trip on the bench; why answers of its did not leave.
fn reflect(
    spec: &PathSpec,
    way: &Way,
    signals: &Signals,
    ready: &SyncSender<()>,
) -> Result<Vec<DropCause>, MeasureError> {
    let (mut heard, before) = (Heard::default(), QdiscCounts::now());
    let (mut receiver, _mute) = open(spec, way, End::B, false)?;
    let transport = match way.bench() {
        Some(pair) if spec.over != Over::Udp => Transport::Frames { interface: pair.interface() },
        _ => Transport::Udp { from: (Ipv4Addr::UNSPECIFIED, 0).into(), to: None, device: None },
    };
    let mut back = Transmitter::open(&transport, &TransmitOptions::default())?;
    let _ = ready.try_send(());
    while !signals.is_stopped() {
        turn(&mut receiver, &mut back, spec.over != Over::Udp, &mut heard)?;
    }
    let interface = way.bench().map(|pair| pair.interface().to_string());
    Ok(causes(&[(TransmitOptions::default().socket(interface), heard)], &before))
}

/// Receives what is there and sends it back; how many were to be answered.
pub(super) fn turn(
    receiver: &mut Receiver,
    back: &mut Transmitter,
    is_frame: bool,
    heard: &mut Heard,
) -> Result<u64, MeasureError> {
    let (mut buffer, mut came) = (Vec::with_capacity(2_048), 0);
    let each = &mut |arrival: Arrival<'_>| {
        came += u64::from(answer(&arrival, is_frame, &mut buffer, back, heard));
    };
    receiver.receive(Some(SLICE), each).map_err(|error| MeasureError::kernel("receive", error))?;
    if came > 0 {
        back.flush();
        let report = &mut |report: TxReport| heard.report(&report);
        back.reports(report).map_err(|error| MeasureError::kernel("send back", error))?;
    }
    Ok(came)
}
