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
//! Not here: launch times (`super`), the arithmetic (`timewire_capture::gate`).

mod plan;
pub mod result;
mod text;

use std::fs;

use timewire_base::{IfName, Span, Tai};
use timewire_datapath::talker::{Cadence, StreamEvent, StreamEventKind, StreamSpec};
use timewire_datapath::transmit::{TransmitOptions, Transport, TxPoint, TxPoints};
use timewire_host::apply::DesiredState;
use timewire_sys::clock;

use super::super::exchange::timestamp_ns;
use super::super::run::{EndpointSetup, Measurement, Session};
use super::result::{Conclusion, Conditions, Fate, Unavailable};
use super::shot::{self, SETTLE, START_LEAD, SenderSetup, Sending, Sent, TIMEOUT};
use super::{Endpoints, MAX_FRAMES, TimestampPoint, TransmitSpec, way};
use crate::RunnerError;
use plan::Plan;
use result::{Frame, Measured, SCHEMA, Shot};

pub use plan::{GatesSpec, parse_list};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// With which frames; their number is that of each class.
    pub frames: TransmitSpec,
    /// Which gates.
    pub gates: GatesSpec,
    /// They are in force already: nothing is changed.
    pub applied: bool,
    /// From one frame of a class to the next; `None` for what meets every phase of the cycle.
    pub every: Option<Span>,
}

/// The shortest time from one frame to the next, unless it is said.
const MIN_SPACING: Span = Span::from_us(20);
/// Schedules that begin later are not waited for.
const FAR: Span = Span::from_secs(60);
/// Bytes that may wait in the kernel: closed gates keep many frames.
const WAITING: u32 = 16 << 20;

impl Request {
    /// Not a fraction of the cycle with small numbers, so that frames meet it in all phases: 0.618
    /// of it, and as many whole ones as make that long enough for the sender.
    fn every(&self, cycle: Span) -> Span {
        self.every.unwrap_or_else(|| {
            let cycle = cycle.as_ns();
            let part = (cycle / 1_000 * 618).max(1);
            let whole = ((MIN_SPACING.as_ns() - part).max(0) + cycle - 1) / cycle;
            Span::from_ns(part + whole * cycle)
        })
    }

    fn plan(&self) -> Result<Plan, RunnerError> {
        let bench = IfName::new("eth0").expect("invariant: a plain name");
        let interface = match &self.frames.place {
            Endpoints::Bench => &bench,
            Endpoints::Interface { interface, .. } => interface,
        };
        let mut plan = plan::plan(&self.gates, interface)?;
        plan.schedule.applied_before = self.applied;
        Ok(plan)
    }

    /// What of the result is known without a frame.
    fn frame_of(&self, plan: Plan, rate: Rate) -> Measured {
        Measured {
            conditions: Conditions::now(SCHEMA, &self.frames.place),
            schedule: plan.schedule,
            every_ns: self.every(plan.cycle).as_ns(),
            frame_bytes: self.frames.size,
            frame_ns: rate.time_of(self.frames.size + plan.overhead).as_ns(),
            rate_mbit: rate.0,
            scheduling: self.frames.scheduling(),
            classes: Vec::new(),
            drop_causes: Vec::new(),
            absent: None,
            conclusion: Conclusion::default(),
            shots: Vec::new(),
        }
    }

    /// Puts the gates on the interface and sends.
    fn send(
        &self,
        setup: &SenderSetup,
        session: &mut Session<'_>,
    ) -> Result<Measured, RunnerError> {
        let mut plan = self.plan()?;
        let waits = Span::from_ns(plan.base.as_ns().saturating_sub(clock::now::<Tai>().as_ns()));
        if waits > FAR {
            let why = format!("the gates begin in {waits}: at most {FAR} are waited for");
            return Err(RunnerError::Invalid(why));
        }
        session.notes.append(&mut plan.notes);
        let nothing = |plan: Plan, why: Unavailable| {
            Ok(Measured { absent: Some(why), ..self.frame_of(plan, Rate::SLOWEST) })
        };
        let mut held = None;
        if !self.applied {
            (session.tell)("putting the gates on the interface");
            let mut wanted = DesiredState::default();
            wanted.tree(&setup.interface, &plan.tree);
            match way::hold(&wanted, plan.is_offloaded)? {
                Ok(gates) => held = Some(gates),
                Err(unavailable) => return nothing(plan, unavailable),
            }
        }
        (session.tell)(&format!("sending in {} classes", plan.classes.len()));
        let mut shots: Vec<Shot> =
            plan.classes.iter().map(|one| one.shot(self.frames.count)).collect();
        let (sender, phc) = shot::sender_point(self.frames.at, &setup.interface);
        let (ports, streams) = ports_and_streams(self, &plan, setup, sender);
        // A frame can wait for its gate for a cycle, and behind others for more.
        let settle = SETTLE + plan.cycle + plan.cycle;
        let sending = Sending {
            frames: &self.frames,
            setup,
            ports,
            streams,
            interface: &setup.interface,
            phc,
            settle,
            last_wait: Some(SETTLE + SETTLE + settle),
        };
        let sent = sending.send(&session.ends, &mut |event| note_event(&mut shots, event));
        let rate = Rate::of(&setup.interface);
        if let Some(held) = held {
            held.end()?;
        }
        match sent? {
            Ok(sent) => {
                session.notes.extend_from_slice(&sent.notes);
                Ok(self.measured(self.frame_of(plan, rate), shots, sender, sent))
            }
            Err(unavailable) => nothing(plan, unavailable),
        }
    }

    fn measured(
        &self,
        mut whole: Measured,
        mut shots: Vec<Shot>,
        sender: TimestampPoint,
        sent: Sent,
    ) -> Measured {
        for (stream, seq, at) in sent.arrivals {
            if let Some(frame) = frame(&mut shots, stream, seq) {
                // The first of its number.
                frame.peer_ns.get_or_insert(at.as_ns());
            }
        }
        let length = Span::from_ns(whole.frame_ns);
        let shown = self.frames.at.unwrap_or(sender);
        let of = |shot: &Shot| {
            let nic = sent.nic.as_ref();
            result::class(shot, sender, sent.has_peer, nic, shown, (&whole.schedule, length))
        };
        whole.classes = shots.iter().map(of).collect();
        whole.conclusion.limits = result::checked(&self.frames.limits, &whole.classes);
        whole.conclusion.ended_early = sent.ended;
        Measured { drop_causes: sent.drop_causes, shots, ..whole }
    }
}

impl Measurement for Request {
    type Report = Measured;

    fn check(&self) -> Result<(), RunnerError> {
        let wrong = |why: String| Err(RunnerError::Invalid(why));
        if self.every.is_some_and(|every| every < Span::from_us(1)) {
            return wrong("a frame every 1us at most".to_owned());
        }
        if self.frames.count == 0 || self.frames.count > MAX_FRAMES {
            return wrong(format!("1 to {MAX_FRAMES} frames of each class"));
        }
        self.frames.check(&result::names())?;
        let is_bench = self.frames.place == Endpoints::Bench;
        if !is_bench && !self.applied && !self.frames.whole_interface {
            return wrong(
                "gates are for all programs of an interface: --whole-interface allows to put them \
                 there, --applied measures those that are there"
                    .to_owned(),
            );
        }
        if self.applied && is_bench {
            return wrong("gates that are there already are those of an --interface".to_owned());
        }
        self.plan().map(drop)
    }

    fn endpoints(&self, session: &mut Session<'_>) -> Result<EndpointSetup, RunnerError> {
        self.frames.endpoints(self.plan()?.queues.max(2), session)
    }

    fn measure(
        &self,
        endpoints: &EndpointSetup,
        session: &mut Session<'_>,
    ) -> Result<Measured, RunnerError> {
        self.frames.sending(endpoints, |setup| self.send(&setup, session))
    }
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
    setup: &SenderSetup,
    sender: TimestampPoint,
) -> (Vec<(Transport, TransmitOptions)>, Vec<StreamSpec>) {
    let cycle = request.every(plan.cycle);
    // Not before the gates work: they do from the cycle after the next on.
    let start = clock::now::<Tai>().max(plan.base) + START_LEAD + plan.cycle + plan.cycle;
    let step = cycle.as_ns() / i64::try_from(plan.classes.len().max(1)).unwrap_or(1);
    let (mut ports, mut streams) = (Vec::new(), Vec::new());
    for (index, class) in plan.classes.iter().enumerate() {
        let points = TxPoints {
            sched: true,
            software: sender == TimestampPoint::TxSoftware,
            hardware: sender == TimestampPoint::TxHardware,
        };
        let options = TransmitOptions {
            priority: Some(class.priority),
            points,
            buffer_bytes: Some(WAITING),
            ..TransmitOptions::default()
        };
        ports.push((Transport::Frames { interface: setup.interface.clone() }, options));
        let to = shot::destination(setup);
        let number = u16::try_from(index + 1).expect("invariant: at most 16 classes");
        let nth = i64::try_from(index).expect("invariant: at most 16 classes");
        streams.push(StreamSpec {
            port: index,
            offset: Span::from_ns(step * nth),
            cycles: Some(request.frames.count),
            deadline: Some(TIMEOUT),
            send_late: true,
            ..StreamSpec::new(number, to, Cadence::Cycle { start, cycle }, request.frames.payload())
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
        StreamEventKind::Timestamp { point: TxPoint::Sched, at } => {
            frame.ready_ns = Some(timestamp_ns(at));
        }
        StreamEventKind::Timestamp { at, .. } => frame.sender_ns = Some(timestamp_ns(at)),
        StreamEventKind::NotTaken { .. } => frame.fate = Fate::NotTaken,
        // No launch times, and their fate is that of all frames at first.
        StreamEventKind::LaunchRefused { .. } | StreamEventKind::Skipped { .. } => {}
    }
}
