// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One trial: so many messages at one rate over the way, and what became of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use timewire_base::wire::Frame;
use timewire_base::{Instant, Mono, Span, Tai};
use timewire_datapath::listen::{
    Arrival, FrameFilter, ReceiveOptions, ReceiveTimestamps, Receiver,
};
use timewire_datapath::probe::Probe;
use timewire_datapath::talker::{Destination, StreamEvent, StreamEventKind};
use timewire_datapath::transmit::{
    TransmitOptions, Transmitter, Transport, TxPoint, TxPoints, TxReport,
};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;

use super::points::{Passage, Point};
use super::reflect::{answer, read};
use super::{PathSpec, TrialReport};
use crate::RunnerError;
use crate::measure::bench::End;
use crate::measure::exchange::{
    self, Opened, Receiving, SLICE, STREAM, Sending, Signals, Talking, bench_addresses,
    bench_frames, mute, source_of, timestamp_ns, wait_for_timestamps, wait_of,
};
use crate::measure::nic_clock::{Mapping, NicTimestamps};
use crate::measure::receive::plan::Over;
use crate::measure::run::EndpointSetup;
use timewire_datapath::NicTimestamping;
use timewire_datapath::drops::{DropCause, Hear, Heard, QdiscCounts, causes};

/// Most messages of a trial.
pub(super) const MAX_MESSAGES: u64 = 1_000_000;

/// What came of a trial.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) report: TrialReport,
    /// Timestamps of the talker that did not come.
    pub(super) timestamps_missing: u64,
    /// Each message that came, in the order of their numbers.
    pub(super) passages: Vec<Passage>,
    pub(super) nic: NicTimestamps,
    pub(super) ended_early: bool,
}

/// What the talker saw.
struct Talked {
    /// Of which nothing was received yet.
    report: TrialReport,
    timestamps_missing: u64,
    passages: Vec<Passage>,
}

/// Sends `count` messages at a rate; with `points`, asks for the talker's timestamps too.
pub(super) fn run(
    spec: &PathSpec,
    way: &EndpointSetup,
    rate: u32,
    count: u64,
    points: bool,
    ends: &EndRequests,
) -> Result<Trial, RunnerError> {
    let nic = match spec.timestamps {
        NicTimestamping::Unused => Err("its timestamps were not asked for".to_owned()),
        NicTimestamping::AsItIs | NicTimestamping::Told => way.look(),
    };
    let has_nic = nic.is_ok();
    let before = way.inside(End::A, QdiscCounts::now)?;
    let mut receivers: Vec<Receiving<'_, Came>> = Vec::new();
    if way.pair().is_some() {
        receivers.push(Box::new(move |signals, opened| {
            way.inside(End::B, || match spec.reflect {
                true => Ok((Vec::new(), reflect(spec, way, signals, opened)?)),
                false => receive(spec, way, End::B, count, false, signals, opened),
            })?
        }));
    }
    if spec.reflect {
        receivers.push(Box::new(move |signals, opened| {
            way.inside(End::A, || receive(spec, way, End::A, count, has_nic, signals, opened))?
        }));
    }
    let points = TxPoints { sched: points, software: points, hardware: points && has_nic };
    let talker: Talking<'_, Talked> = Box::new(move |signals| {
        way.inside(End::A, || talk(spec, way, (rate, count), points, before, signals))?
    });
    let (received, talked, ended_early) = exchange::run(ends, receivers, Some(talker))?;
    let mut talked = talked.expect("invariant: all receivers were open");
    received
        .iter()
        .for_each(|(_, causes)| DropCause::merge(&mut talked.report.drop_causes, causes));
    // The end of the way is the last of the receivers.
    let came = received.into_iter().next_back().map(|(came, _)| came).unwrap_or_default();
    let mapping = nic.and_then(|nic| Mapping::new(nic, way.look()?, spec.max_clock_error));
    Ok(join(talked, came, mapping, ended_early))
}

/// The messages that came to an end of the way, and why answers of it did not leave.
type Came = (Vec<Passage>, Vec<DropCause>);

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
    let received = u64::try_from(received).unwrap_or(u64::MAX);
    Trial {
        report: TrialReport { received, ..talked.report },
        timestamps_missing: talked.timestamps_missing,
        passages: passages.collect(),
        nic: match mapping {
            Ok(mapping) => NicTimestamps::known(&mapping),
            Err(why) => NicTimestamps::unknown(why),
        },
        ended_early,
    }
}

/// With the NIC's timestamps brought over to the system's clock, or without them.
fn mapped(message: &Passage, mapping: Option<&Mapping>) -> Passage {
    let mut all = Passage::default();
    for point in Point::ALL {
        let ns = message.get(point);
        let is_nic = matches!(point, Point::TxHw | Point::RxHw);
        all.set(
            point,
            match (is_nic, mapping) {
                (false, _) => ns,
                (true, Some(mapping)) => ns.map(|ns| mapping.tai_ns(ns)),
                (true, None) => None,
            },
        );
    }
    all
}

fn talk(
    spec: &PathSpec,
    way: &EndpointSetup,
    (rate, count): (u32, u64),
    points: TxPoints,
    before: QdiscCounts,
    signals: &Signals,
) -> Result<Talked, RunnerError> {
    let (port, to) = port_of(spec, way);
    let interface = way.name();
    let port = (port, TransmitOptions { points, ..TransmitOptions::default() });
    let (count_of, payload) = (Some(count), spec.payload);
    let talker = Sending { port, interface, to, rate, count: count_of, payload, before }.ready()?;
    let (start, cycle) = (talker.start, talker.cycle);
    let room = usize::try_from(count.min(MAX_MESSAGES)).unwrap_or(0);
    let mut passages = vec![Passage::default(); room];
    let mut last = start;
    let each = &mut |event| note(&event, &mut passages, &mut last);
    let (report, drop_causes) = talker.talk(signals, each)?;
    let counters = report.counters;
    // A hundredth and a scheduler's turn more than the plan.
    let planned = cycle.as_ns().saturating_mul(i64::try_from(count).unwrap_or(i64::MAX));
    let allowed = Span::from_ns(planned / 100 * 101) + Span::from_ms(5);
    Ok(Talked {
        report: TrialReport {
            rate,
            planned: count,
            sent: counters.sent,
            received: 0,
            kept_pace: last - start <= allowed,
            drop_causes,
        },
        timestamps_missing: counters.timestamps_missing,
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
        StreamEventKind::Timestamp { point, at } => {
            let point = match point {
                TxPoint::Sched => Point::Sched,
                TxPoint::Software | TxPoint::Freed => Point::TxSw,
                TxPoint::Hardware => Point::TxHw,
            };
            passage.set(point, Some(timestamp_ns(at)));
        }
        StreamEventKind::NotTaken { .. }
        | StreamEventKind::LaunchRefused { .. }
        | StreamEventKind::Skipped { .. } => {}
    }
}

/// What sends at the near end, and where to.
fn port_of(spec: &PathSpec, way: &EndpointSetup) -> (Transport, Destination) {
    let (from, to, device) = match (way.pair(), spec.to) {
        (Some(pair), _) if spec.over != Over::Udp => return bench_frames(pair, spec.port),
        (Some(pair), _) => {
            let (from, to) = bench_addresses(pair, spec.port);
            (from.into(), Some(to.into()), None)
        }
        (None, to) => (SocketAddr::new(any(spec), spec.port), to, way.name()),
    };
    (Transport::Udp { from, to, device }, Destination::Port)
}

/// Every address of this host, of the kind of those of the other end.
fn any(spec: &PathSpec) -> IpAddr {
    match spec.to {
        Some(SocketAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn options_of(spec: &PathSpec, hardware: bool, port: u16) -> ReceiveOptions {
    let wait = wait_of(spec.wait);
    let udp_port = (spec.over != Over::Udp).then_some(port);
    let filter = FrameFilter { udp_port, ..FrameFilter::default() };
    let timestamps = ReceiveTimestamps { software: true, hardware };
    ReceiveOptions { timestamps, wait, filter, ..ReceiveOptions::default() }
}

/// What receives at one end, and what takes the messages there that only a packet socket reads.
fn open(
    spec: &PathSpec,
    way: &EndpointSetup,
    end: End,
    hardware: bool,
) -> Result<(Receiver, Option<UdpSocket>), RunnerError> {
    let port = if end == End::A { spec.port.wrapping_add(1) } else { spec.port };
    let at = SocketAddr::new(any(spec), port);
    let source = source_of(spec.over, at, way.name(), None);
    let receiver = Receiver::open(&source, &options_of(spec, hardware, port))?;
    let mute = mute(spec.over, at);
    wait_for_timestamps(&receiver);
    Ok((receiver, mute))
}

/// The end of the way: notes what came, by number.
fn receive(
    spec: &PathSpec,
    way: &EndpointSetup,
    end: End,
    count: u64,
    hardware: bool,
    signals: &Signals,
    opened: Opened,
) -> Result<Came, RunnerError> {
    let (mut receiver, _mute) = open(spec, way, end, hardware)?;
    let mut passages =
        vec![Passage::default(); usize::try_from(count.min(MAX_MESSAGES)).unwrap_or(0)];
    let mut received = 0;
    opened.tell();
    let mut last = clock::now::<Mono>();
    loop {
        let mut each = |arrival: Arrival<'_>| {
            received += u64::from(take(&arrival, spec.over, end, &mut passages));
        };
        let came = receiver
            .receive(Some(SLICE), &mut each)
            .map_err(|error| RunnerError::kernel("receive", error))?;
        let now = clock::now::<Mono>();
        if came > 0 {
            last = now;
        }
        if signals.is_over(received, now, last) {
            return Ok((passages, Vec::new()));
        }
    }
}

/// Notes a message; whether it is a new one.
fn take(arrival: &Arrival<'_>, over: Over, end: End, passages: &mut [Passage]) -> bool {
    let message = match over {
        Over::Udp => Some(arrival.bytes),
        _ => Frame::parse(arrival.bytes).and_then(|frame| frame.content_of(arrival.whole_length())),
    };
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
    way: &EndpointSetup,
    signals: &Signals,
    opened: Opened,
) -> Result<Vec<DropCause>, RunnerError> {
    let (mut heard, before) = (Heard::default(), QdiscCounts::now());
    let (mut receiver, _mute) = open(spec, way, End::B, false)?;
    let transport = match way.pair() {
        Some(pair) if spec.over != Over::Udp => Transport::Frames { interface: pair.interface() },
        _ => Transport::Udp { from: (Ipv4Addr::UNSPECIFIED, 0).into(), to: None, device: None },
    };
    let mut back = Transmitter::open(&transport, &TransmitOptions::default())?;
    opened.tell();
    while !signals.is_stopped() {
        turn(&mut receiver, &mut back, spec.over != Over::Udp, &mut heard)?;
    }
    let interface = way.name().map(|name| name.to_string());
    Ok(causes(&[(TransmitOptions::default().socket(interface), heard)], &before))
}

/// Receives what is there and sends it back; how many were to be answered.
pub(super) fn turn(
    receiver: &mut Receiver,
    back: &mut Transmitter,
    is_frame: bool,
    heard: &mut Heard,
) -> Result<u64, RunnerError> {
    let (mut buffer, mut came) = (Vec::with_capacity(2_048), 0);
    let each = &mut |arrival: Arrival<'_>| {
        came += u64::from(answer(&arrival, is_frame, &mut buffer, back, heard));
    };
    receiver.receive(Some(SLICE), each).map_err(|error| RunnerError::kernel("receive", error))?;
    if came > 0 {
        back.flush();
        let report = &mut |report: TxReport| heard.report(&report);
        back.reports(report).map_err(|error| RunnerError::kernel("send back", error))?;
    }
    Ok(came)
}
