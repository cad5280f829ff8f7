// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gate conformance: frames of every traffic class are given to `taprio` in all phases of its
//! cycle, and where they leave is held against the windows of their class.
//!
//! ```text
//! class 1 |  closed  |###### open ######|  closed  |
//!          f -waits-> L    f L     f       (guard) -> next window
//!                     |
//!                     how late the gate opened
//! ```
//!
//! Not here: launch times (`super`), the arithmetic (`timewire_trace::gate`).

mod plan;
pub mod result;
mod text;

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use timewire_base::{IfName, Span, Tai};
use timewire_host::apply::Wished;
use timewire_path::talker::{
    Cadence, Destination, FrameContent, FrameHeader, StreamEvent, StreamEventKind, StreamSpec,
    Talker,
};
use timewire_path::transmit::{StampTime, TransmitOptions, Transport, TxTap, TxTaps};
use timewire_sys::clock;
use timewire_sys::event::{EndRequests, Wake, wait_readable};
use timewire_sys::phc::CardClock;

use super::super::bench::{End, Pair, PairSpec};
use super::limit::Limit;
use super::result::{CardClockSeen, Fate};
use super::shot::{self, ETHERTYPE, HEADER, PATIENCE, SETTLE, SOON, Studio};
use super::way::{self, Unavailable};
use super::{LONGEST, MOST_FRAMES, Place, SHORTEST, Tap, has_hardware, run_real_time};
use crate::CtlError;
use crate::drops::{DropCause, PortDrops, QdiscCounts};
use plan::Plan;
use result::{Absent, Frame, Measured, SCHEMA, Shot};

pub use plan::{GatesWish, parse_list};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where.
    pub place: Place,
    /// Which gates.
    pub gates: GatesWish,
    /// They are in force already: nothing is changed.
    pub applied: bool,
    /// From one frame of a class to the next; `None` for what meets every phase of the cycle.
    pub every: Option<Span>,
    /// Frames of each class.
    pub count: u64,
    /// **Units**: bytes with Ethernet header, without check sequence.
    pub size: u32,
    /// Whether the sender runs by `SCHED_FIFO`.
    pub real_time: bool,
    /// Which stamps the table is about.
    pub at: Option<Tap>,
    /// Whether the interface may be taken from all other programs meanwhile.
    pub whole_interface: bool,
    /// What the figures may be.
    pub limits: Vec<Limit>,
}

/// The shortest time from one frame to the next, unless it is said.
const OFTEN: Span = Span::from_us(20);
/// Schedules that begin later are not waited for.
const FAR: Span = Span::from_secs(60);
/// Bytes that may wait in the kernel: closed gates keep many frames.
const WAITING: u32 = 16 << 20;

impl Request {
    fn check(&self) -> Result<(), CtlError> {
        let wrong = |why: String| Err(CtlError::Invalid(why));
        if self.every.is_some_and(|every| every < Span::from_us(1)) {
            return wrong("a frame every 1us at most".to_owned());
        }
        if !(SHORTEST..=LONGEST).contains(&self.size) {
            let size = self.size;
            return wrong(format!("frames of {size} bytes are not {SHORTEST} to {LONGEST}"));
        }
        if self.count == 0 || self.count > MOST_FRAMES {
            return wrong(format!("1 to {MOST_FRAMES} frames of each class"));
        }
        if self.at == Some(Tap::Peer) && matches!(self.place, Place::Interface { peer: None, .. }) {
            return wrong("stamps of the peer need the interface there: --peer".to_owned());
        }
        if matches!(self.place, Place::Interface { .. }) && !self.applied && !self.whole_interface {
            return wrong(
                "gates are for all programs of an interface: --whole-interface allows to put them \
                 there, --applied measures those that are there"
                    .to_owned(),
            );
        }
        if self.applied && self.place == Place::Bench {
            return wrong("gates that are there already are those of an --interface".to_owned());
        }
        result::names().check(&self.limits)
    }

    /// Not a fraction of the cycle with small numbers, so that frames meet it in all phases: 0.618
    /// of it, and as many whole ones as make that long enough for the sender.
    fn every(&self, cycle: Span) -> Span {
        self.every.unwrap_or_else(|| {
            let cycle = cycle.as_ns();
            let part = (cycle / 1_000 * 618).max(1);
            let whole = ((OFTEN.as_ns() - part).max(0) + cycle - 1) / cycle;
            Span::from_ns(part + whole * cycle)
        })
    }
}

/// Measures. `tell` hears what is being done.
///
/// A request to end (SIGINT, SIGTERM) ends it with what was measured so far.
///
/// **Errors**: a wish that cannot be, no privilege, no such interface, or the host could not be put
/// back. That this kernel has no gates is none: it is told in the result.
pub fn run(
    request: &Request,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<(Measured, Vec<Shot>), CtlError> {
    request.check()?;
    let requests = EndRequests::new()
        .map_err(|error| CtlError::Invalid(format!("cannot wait for signals: {error}")))?;
    match &request.place {
        Place::Bench => {
            let name = IfName::new("eth0").expect("invariant: a plain name");
            let plan = plan::plan(&request.gates, &name)?;
            let pair = Pair::create(PairSpec { queues: plan.queues.max(2), ipv6: false }, tell)?;
            let studio = super::studio_at(&pair);
            let measured = pair.at(End::A, || measure(request, plan, &studio, &requests, tell))?;
            pair.destroy()?;
            measured
        }
        Place::Interface { interface, peer } => {
            let plan = plan::plan(&request.gates, interface)?;
            let studio = super::studio_of(interface, peer.as_ref())?;
            measure(request, plan, &studio, &requests, tell)
        }
    }
}

fn measure(
    request: &Request,
    mut plan: Plan,
    studio: &Studio,
    requests: &EndRequests,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<(Measured, Vec<Shot>), CtlError> {
    let waits = Span::from_ns(plan.base.as_ns().saturating_sub(clock::now::<Tai>().as_ns()));
    if waits > FAR {
        let why = format!("the gates begin in {waits}: at most {FAR} are waited for");
        return Err(CtlError::Invalid(why));
    }
    plan.schedule.applied_before = request.applied;
    let mut held = None;
    if !request.applied {
        tell("putting the gates on the interface");
        let mut wished = Wished::default();
        wished.tree(&studio.interface, &plan.tree);
        match way::hold(&wished, plan.is_offloaded)? {
            Ok(gates) => held = Some(gates),
            Err(unavailable) => return Ok(nothing(request, &plan, unavailable)),
        }
    }
    tell(&format!("sending in {} classes", plan.classes.len()));
    let taken = take(request, &plan, studio, requests);
    if let Some(held) = held {
        held.end()?;
    }
    match taken? {
        Ok(taken) => Ok(measured(request, plan, taken, studio.peer.is_some())),
        Err(unavailable) => Ok(nothing(request, &plan, unavailable)),
    }
}

fn nothing(request: &Request, plan: &Plan, unavailable: Unavailable) -> (Measured, Vec<Shot>) {
    let Unavailable { why, unsupported } = unavailable;
    let absent = Some(Absent { why, unsupported });
    (Measured { absent, ..frame_of(request, plan, Rate::SLOWEST) }, Vec::new())
}

/// What of the result is known without a frame.
fn frame_of(request: &Request, plan: &Plan, rate: Rate) -> Measured {
    Measured {
        schema: SCHEMA.to_owned(),
        kernel: super::kernel_release(),
        place: request.place.to_string(),
        virtual_time: clock::is_virtual(),
        schedule: plan.schedule.clone(),
        every_ns: request.every(plan.cycle).as_ns(),
        frame_bytes: request.size,
        frame_ns: rate.time_of(request.size + plan.overhead).as_ns(),
        rate_mbit: rate.0,
        scheduling: super::scheduling(request.real_time),
        classes: Vec::new(),
        drop_causes: Vec::new(),
        absent: None,
        limits: Vec::new(),
        notes: plan.notes.clone(),
        ended_early: false,
    }
}

fn measured(request: &Request, plan: Plan, taken: Taken, has_peer: bool) -> (Measured, Vec<Shot>) {
    let Taken { shots, sender, card, rate, ended, notes, drop_causes } = taken;
    let mut whole = frame_of(request, &plan, rate);
    let length = Span::from_ns(whole.frame_ns);
    let shown = request.at.unwrap_or(sender);
    let of = |shot: &Shot| {
        let card = card.as_ref();
        result::class(shot, sender, has_peer, card, shown, (&plan.schedule, length))
    };
    whole.classes = shots.iter().map(of).collect();
    whole.limits = result::checked(&request.limits, &whole.classes);
    whole.notes.extend(notes);
    whole.drop_causes = drop_causes;
    whole.ended_early = ended;
    (whole, shots)
}

/// The rate that the discipline computes with. **Units**: Mbit/s.
#[derive(Clone, Copy, Debug)]
struct Rate(u64);

impl Rate {
    /// What it takes an interface for that says nothing.
    const SLOWEST: Rate = Rate(10);

    /// **Source**: linux v6.12 `net/sched/sch_taprio.c:taprio_set_picos_per_byte`.
    fn of(interface: &IfName) -> Rate {
        let text = fs::read_to_string(format!("/sys/class/net/{interface}/speed"));
        let speed = text.ok().and_then(|text| text.trim().parse().ok());
        speed.filter(|speed| *speed > 0).map_or(Rate::SLOWEST, Rate)
    }

    /// **Source**: linux v6.12 `net/sched/sch_taprio.c:length_to_duration`.
    fn time_of(self, bytes: u32) -> Span {
        let picos = u64::from(bytes) * (8_000_000 / self.0);
        Span::from_ns(i64::try_from(picos / 1_000).unwrap_or(i64::MAX))
    }
}

struct Taken {
    shots: Vec<Shot>,
    sender: Tap,
    card: Option<CardClockSeen>,
    rate: Rate,
    ended: bool,
    notes: Vec<String>,
    drop_causes: Vec<DropCause>,
}

/// Sends in all classes, and gathers the stamps.
fn take(
    request: &Request,
    plan: &Plan,
    studio: &Studio,
    requests: &EndRequests,
) -> Result<Result<Taken, Unavailable>, CtlError> {
    let invalid = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| CtlError::Invalid(format!("cannot {what}: {error}"))
    };
    let hardware = has_hardware(&studio.interface);
    let (sender, phc) = match (request.at, hardware) {
        (Some(Tap::TxSoftware), _) | (None | Some(Tap::Peer), None) => (Tap::TxSoftware, None),
        (Some(Tap::TxHardware), None) => (Tap::TxHardware, None),
        (_, Some(phc)) => (Tap::TxHardware, phc),
    };
    let counted = QdiscCounts::now();
    let (ports, streams) = ports_and_streams(request, plan, studio, sender);
    let mut drops = PortDrops::new(&ports, &streams, Some(&studio.interface), counted);
    let mut talker = match Talker::new(&ports, &streams) {
        Ok(talker) => talker,
        Err(error) => return Ok(Err(shot::refused(&error))),
    };
    // A frame can wait for its gate for a cycle, and behind others for more.
    let settle = SETTLE + plan.cycle + plan.cycle;
    talker.set_last_wait(SETTLE + SETTLE + settle);
    let listener = shot::listener(studio)?;
    let card = phc.map(|number| CardClock::open(number).map_err(|error| (number, error)));
    let look = || card.as_ref().and_then(|card| card.as_ref().ok()).and_then(shot::seen);
    let before = look();
    let mut shots: Vec<Shot> = plan.classes.iter().map(|one| one.shot(request.count)).collect();
    let stop = AtomicBool::new(false);
    let (done, over) = (Wake::new(), Wake::new());
    let (done, over) = (done.map_err(invalid("wait"))?, over.map_err(invalid("wait"))?);
    let last = u16::try_from(shots.len()).expect("invariant: at most 16 classes");
    let (sent, heard, ended) = thread::scope(|scope| {
        let over = &over;
        let hearing =
            listener.map(|socket| scope.spawn(move || shot::listen(socket, 1..=last, over)));
        let sending = scope.spawn(|| {
            let note = request.real_time.then(run_real_time).flatten();
            let result = talker.run(&stop, None, &mut |event| {
                drops.note(&event);
                note_event(&mut shots, event);
            });
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
        let sent = shot::joined(sending.join());
        clock::sleep_until(clock::now::<Tai>() + settle);
        over.set().expect("invariant: an event counter takes one");
        (sent, hearing.map(|hearing| shot::joined(hearing.join())), ended)
    });
    let (result, note) = sent;
    result.map_err(|error| CtlError::Invalid(error.to_string()))?;
    let mut notes: Vec<String> = note.into_iter().collect();
    if let Some(heard) = heard {
        let heard = heard.map_err(invalid("listen at the peer"))?;
        for (stream, seq, at) in heard.arrivals {
            if let Some(frame) = frame(&mut shots, stream, seq) {
                // The first of its number.
                frame.peer_ns.get_or_insert(at.as_ns());
            }
        }
        if heard.lost > 0 {
            notes.push(format!("the peer's socket lost {} frames for want of room", heard.lost));
        }
    }
    let report = talker.report();
    let drop_causes = drops.causes(&report);
    if !report.stamp_faults.is_empty() {
        notes.push(format!("transmit stamps not as they should be: {}", report.stamp_faults));
    }
    if report.lost_reports > 0 {
        notes.push(format!("{} reports of the kernel were lost", report.lost_reports));
    }
    if let Some(Err((number, error))) = &card {
        notes.push(format!("/dev/ptp{number} cannot be opened: {error}"));
    }
    let card = match (before, look()) {
        (Some(before), Some(after)) => {
            Some(CardClockSeen { most_ns: before.most_ns.max(after.most_ns), ..before })
        }
        _ => None,
    };
    let rate = Rate::of(&studio.interface);
    Ok(Ok(Taken { shots, sender, card, rate, ended, notes, drop_causes }))
}

impl plan::PlannedClass {
    fn shot(&self, count: u64) -> Shot {
        Shot {
            class: self.class.get(),
            priority: self.priority.get(),
            times: self.times.clone(),
            frames: vec![Frame::default(); usize::try_from(count).unwrap_or(0)],
        }
    }
}

/// A port and a stream for each class; streams are numbered from 1.
fn ports_and_streams(
    request: &Request,
    plan: &Plan,
    studio: &Studio,
    sender: Tap,
) -> (Vec<(Transport, TransmitOptions)>, Vec<StreamSpec>) {
    let cycle = request.every(plan.cycle);
    // Not before the gates work: they do from the cycle after the next on.
    let start = clock::now::<Tai>().max(plan.base) + SOON + plan.cycle + plan.cycle;
    let step = cycle.as_ns() / i64::try_from(plan.classes.len().max(1)).unwrap_or(1);
    let (mut ports, mut streams) = (Vec::new(), Vec::new());
    for (index, class) in plan.classes.iter().enumerate() {
        let taps = TxTaps {
            sched: true,
            software: sender == Tap::TxSoftware,
            hardware: sender == Tap::TxHardware,
        };
        let options = TransmitOptions {
            priority: Some(class.priority),
            taps,
            buffer_bytes: Some(WAITING),
            ..TransmitOptions::default()
        };
        ports.push((Transport::Frames { interface: studio.interface.clone() }, options));
        let to = Destination::Frame(FrameHeader {
            source: None,
            destination: studio.destination,
            vlan: None,
            content: FrameContent::EtherType(ETHERTYPE),
        });
        let number = u16::try_from(index + 1).expect("invariant: at most 16 classes");
        let nth = i64::try_from(index).expect("invariant: at most 16 classes");
        let payload = usize::try_from(request.size - HEADER).expect("invariant: 32 bits fit");
        streams.push(StreamSpec {
            port: index,
            offset: Span::from_ns(step * nth),
            cycles: Some(request.count),
            deadline: Some(PATIENCE),
            send_late: true,
            ..StreamSpec::new(number, to, Cadence::Cycle { start, cycle }, payload)
        });
    }
    (ports, streams)
}

fn frame(shots: &mut [Shot], stream: u16, seq: u32) -> Option<&mut Frame> {
    let shot = shots.get_mut(usize::from(stream).checked_sub(1)?)?;
    shot.frames.get_mut(usize::try_from(seq).ok()?)
}

/// In the loop of the talker: nothing is allocated.
fn note_event(shots: &mut [Shot], event: StreamEvent) {
    let Some(frame) = frame(shots, event.stream, event.seq) else { return };
    match event.what {
        StreamEventKind::Sent { at, .. } => {
            frame.sent_ns = at.as_ns();
            frame.fate = Fate::Sent;
        }
        StreamEventKind::Stamp { tap, at } => {
            let ns = match at {
                StampTime::System(at) => at.as_ns(),
                StampTime::Card { ns } => ns,
            };
            match tap {
                TxTap::Sched => frame.ready_ns = Some(ns),
                _ => frame.sender_ns = Some(ns),
            }
        }
        StreamEventKind::NotTaken { .. } => frame.fate = Fate::NotTaken,
        // No launch times, and their fate is that of all frames at first.
        StreamEventKind::LaunchRefused { .. } | StreamEventKind::Skipped { .. } => {}
    }
}

/// Writes the result and every frame into a directory that is empty or not there: `gates.json`,
/// `gates.txt` and `frames.csv`.
///
/// **Errors**: the directory has something in it, or cannot be written.
pub fn write_run(path: &Path, measured: &Measured, shots: &[Shot]) -> Result<(), CtlError> {
    super::write_result(path, "gates", measured, measured.text())?;
    let file = path.join("frames.csv");
    let write = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(fs::File::create(&file)?);
        writeln!(out, "class,seq,sent_ns,ready_ns,sender_ns,peer_ns,fate")?;
        let stamp = |ns: Option<i64>| ns.map_or(String::new(), |ns| ns.to_string());
        for Shot { class, frames, .. } in shots {
            for (seq, frame) in frames.iter().enumerate() {
                let Frame { sent_ns, ready_ns, sender_ns, peer_ns, fate } = *frame;
                let stamps = [ready_ns, sender_ns, peer_ns].map(stamp).join(",");
                writeln!(out, "{class},{seq},{sent_ns},{stamps},{}", fate.word())?;
            }
        }
        out.flush()
    };
    write().map_err(CtlError::file("write", &file))
}
