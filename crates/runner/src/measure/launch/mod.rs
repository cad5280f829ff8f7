// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transmit accuracy: how far from its launch time a frame leaves, by the ways that Linux and
//! Timewire have of making it leave on time, side by side and interleaved.
//!
//! ```text
//! plain        sleep until the launch time, send
//! etf          send before it with SO_TXTIME; the kernel holds the frame until delta before it
//! etf-offload  the same, and the NIC holds the frame
//! mac          Timewire's MAC, whose slot begins at the launch time; the frame waits for it
//! ```
//!
//! Not here: the command line (`timewire-cli`), sending and timestamping
//! (`timewire_datapath::talker`).

mod delta;
pub mod gates;
pub mod limit;
pub mod result;
mod shot;
mod text;
mod way;

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use timewire_base::{Failure, IfName, SocketPriority, Span};
use timewire_host::timestamping::Timestamped;
use timewire_lab::LabError;
use timewire_sys::phc::timestamp_abilities;
use timewire_sys::scheduler::{self, Attributes, RtPriority};
use timewire_sys::sending_of;

use super::bench::{End, Pair};
use super::run::{EndpointSetup, Measurement, Session, order};
use crate::RunnerError;
use delta::Search;
use result::{
    Absent, Conclusion, Conditions, Facts, Fate, Measured, SCHEMA, Shot, Show, SmallestDelta,
    Trial, Unavailable,
};
use shot::{SenderSetup, Shooting, Taken};
use timewire_datapath::DatapathError;
use timewire_datapath::station::GROUP_PRIORITY;
use way::Ready;

/// How frames get their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchMethod {
    /// The program sleeps until the launch time and sends.
    Plain,
    /// `etf` in the kernel.
    Etf,
    /// `etf`, and the NIC.
    EtfOffload,
    /// Timewire's own MAC.
    Mac,
}

impl LaunchMethod {
    fn has_launch_times(self) -> bool {
        matches!(self, LaunchMethod::Etf | LaunchMethod::EtfOffload)
    }
}

impl fmt::Display for LaunchMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LaunchMethod::Plain => "plain",
            LaunchMethod::Etf => "etf",
            LaunchMethod::EtfOffload => "etf-offload",
            LaunchMethod::Mac => "mac",
        })
    }
}

/// Where frames are timestamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimestampPoint {
    /// By the sender's NIC, as the frame leaves.
    TxHardware,
    /// By the sender's kernel, as the frame is handed to the interface.
    TxSoftware,
    /// By the kernel where the frame arrives, on the same host.
    Peer,
}

impl fmt::Display for TimestampPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimestampPoint::TxHardware => "tx-hardware",
            TimestampPoint::TxSoftware => "tx-software",
            TimestampPoint::Peer => "peer",
        })
    }
}

/// Between which stations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// A pair that is made for it, in namespaces.
    Bench,
    /// A real interface, and perhaps another one of this host at the other end of its cable.
    Interface {
        /// Which sends.
        interface: IfName,
        /// Which receives.
        peer: Option<IfName>,
    },
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoints::Bench => f.write_str("a pair of namespaces on a veth"),
            Endpoints::Interface { interface, peer: Some(peer) } => {
                write!(f, "{interface} to {peer}")
            }
            Endpoints::Interface { interface, peer: None } => write!(f, "{interface}"),
        }
    }
}

/// What is asked for of frames that are sent and timestamped, whatever is measured of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmitSpec {
    /// Where.
    pub place: Endpoints,
    /// Frames of each column, over all repeats.
    pub count: u64,
    /// **Units**: bytes with Ethernet header, without check sequence.
    pub size: u32,
    /// Whether the sender runs by `SCHED_FIFO`.
    pub real_time: bool,
    /// Which timestamps the table is about.
    pub at: Option<TimestampPoint>,
    /// Whether the interface may be taken from all other programs meanwhile.
    pub whole_interface: bool,
    /// What the figures may be.
    pub limits: Vec<limit::Limit>,
}

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// With which frames.
    pub frames: TransmitSpec,
    /// Which ways.
    pub ways: Vec<LaunchMethod>,
    /// From one launch time to the next: one column each.
    pub cycles: Vec<Span>,
    /// How often the columns take turns.
    pub repeats: u32,
    /// The delta of `etf`; `None` for [`DELTA`], or the smallest when that is searched.
    pub delta: Option<Span>,
    /// How long before launch time less delta a frame is given to the kernel; `None` for what
    /// [`Request::ahead_of`] says.
    pub ahead: Option<Span>,
    /// Whether to search the smallest delta.
    pub find_delta: bool,
    /// The socket priority of the frames.
    pub priority: SocketPriority,
    /// The program `timewire`, for the MAC.
    pub program: PathBuf,
}

/// The delta when nobody says one: that of the table that the authors of launch times show.
pub const DELTA: Span = Span::from_us(130);
/// The largest delta that is tried, and the most that a frame can be given ahead.
pub const MAX_DELTA: Span = Span::from_ms(10);
/// **Units**: bytes; the Ethernet header.
const HEADER: u32 = 14;
/// **Units**: bytes; the shortest Ethernet frame without check sequence.
const SHORTEST: u32 = 60;
/// Header, and what the network layer may have at most on usual links.
const LONGEST: u32 = 1_514;
/// Frames of a run at most: they stay in memory.
const MAX_FRAMES: u64 = 20_000_000;

impl TransmitSpec {
    /// **Errors**: a request that cannot be.
    fn check(&self, names: &limit::Names) -> Result<(), RunnerError> {
        let wrong = |why: String| Err(RunnerError::Invalid(why));
        if !(SHORTEST..=LONGEST).contains(&self.size) {
            let size = self.size;
            return wrong(format!("frames of {size} bytes are not {SHORTEST} to {LONGEST}"));
        }
        if self.at == Some(TimestampPoint::Peer)
            && matches!(self.place, Endpoints::Interface { peer: None, .. })
        {
            return wrong(
                "timestamps of the peer need the interface at the other end: --peer".to_owned(),
            );
        }
        names.check(&self.limits)
    }

    /// The interface that sends and where to, and of the bench a pair with so many queues.
    fn endpoints(
        &self,
        queues: u32,
        session: &mut Session<'_>,
    ) -> Result<EndpointSetup, RunnerError> {
        match &self.place {
            Endpoints::Bench => EndpointSetup::bench(queues, session.tell),
            Endpoints::Interface { interface, .. } => Ok(EndpointSetup::interface(Some(interface))),
        }
    }

    /// Sends from the endpoints; of the bench, at its first station.
    fn sending<T: Send>(
        &self,
        endpoints: &EndpointSetup,
        work: impl FnOnce(SenderSetup) -> Result<T, RunnerError> + Send,
    ) -> Result<T, RunnerError> {
        match &self.place {
            Endpoints::Bench => {
                let pair = endpoints.pair().expect("invariant: the bench is a pair");
                pair.at(End::A, || work(setup_at(pair)))?
            }
            Endpoints::Interface { interface, peer } => work(setup_of(interface, peer.as_ref())?),
        }
    }

    /// **Units**: bytes behind the Ethernet header.
    fn payload(&self) -> usize {
        usize::try_from(self.size - HEADER).expect("invariant: 32 bits fit")
    }

    fn scheduling(&self) -> String {
        match self.real_time {
            true => format!("sender by SCHED_FIFO {GROUP_PRIORITY}"),
            false => "sender as any program".to_owned(),
        }
    }
}

impl Request {
    /// How long before launch time less delta a frame is given to the kernel. Unless it is said:
    /// half a millisecond, or for shorter cycles so that the sender does not work just when the
    /// kernel lets another frame go.
    pub fn ahead_of(&self, cycle: Span) -> Span {
        self.ahead.unwrap_or_else(|| {
            if cycle >= Span::from_ms(1) {
                return Span::from_us(500);
            }
            let whole = 300_000 / cycle.as_ns();
            Span::from_ns(cycle.as_ns() * whole + cycle.as_ns() / 2)
        })
    }
}

impl Measurement for Request {
    type Report = Measured;

    fn check(&self) -> Result<(), RunnerError> {
        let wrong = |why: String| Err(RunnerError::Invalid(why));
        self.frames.check(&result::names())?;
        if self.ways.is_empty() || self.cycles.is_empty() {
            return wrong("nothing to measure: name at least one way and one cycle".to_owned());
        }
        if let Some(cycle) = self.cycles.iter().find(|cycle| **cycle < Span::from_us(10)) {
            return wrong(format!("a cycle of {cycle} is too short: at least 10us"));
        }
        let (count, repeats) = (self.frames.count, self.repeats);
        if repeats == 0 || count < u64::from(repeats) || count > MAX_FRAMES {
            return wrong(format!(
                "{count} frames in {repeats} repeats: at least one in each, and {MAX_FRAMES} at \
                 most"
            ));
        }
        let ahead = self.ahead.unwrap_or(Span::ZERO);
        for (name, span) in [("a delta", self.delta.unwrap_or(DELTA)), ("ahead", ahead)] {
            if span.is_negative() || span > MAX_DELTA {
                return wrong(format!("{name} of {span} is not 0ns to {MAX_DELTA}"));
            }
        }
        Ok(())
    }

    fn endpoints(&self, session: &mut Session<'_>) -> Result<EndpointSetup, RunnerError> {
        self.frames.endpoints(2, session)
    }

    /// If its timestamps are to be shown.
    fn timestamped(&self, endpoints: &EndpointSetup) -> Timestamped {
        let at = self.frames.at;
        let is_needed = at != Some(TimestampPoint::TxSoftware)
            && self.ways.iter().any(|way| *way != LaunchMethod::Mac);
        let can = |name| at == Some(TimestampPoint::TxHardware) || has_hardware(name).is_some();
        let sent = is_needed && endpoints.named().is_some_and(can);
        Timestamped { sent, received: false }
    }

    /// Where nobody asked for those of the NIC by name.
    fn has_other_timestamps(&self) -> bool {
        self.frames.at != Some(TimestampPoint::TxHardware)
    }

    fn measure(
        &self,
        endpoints: &EndpointSetup,
        session: &mut Session<'_>,
    ) -> Result<Measured, RunnerError> {
        self.frames.sending(endpoints, |setup| Trials::new(self, setup, session).run())
    }
}

/// The first station of a pair, which sends to the other.
fn setup_at(pair: &Pair) -> SenderSetup {
    SenderSetup {
        interface: pair.interface(),
        destination: pair.mac(End::B).0,
        peer: Some((Some(pair.netns(End::B)), pair.interface())),
        is_bench: true,
    }
}

/// **Errors**: one of the interfaces is not there.
fn setup_of(interface: &IfName, peer: Option<&IfName>) -> Result<SenderSetup, RunnerError> {
    let address = |name: &IfName| {
        let missing = |source: std::io::Error| DatapathError::Link {
            link: name.clone(),
            why: source.to_string(),
        };
        sending_of(name).map(|found| found.address.0).map_err(missing)
    };
    address(interface)?;
    let destination = peer.map_or(Ok(NEAREST_BRIDGE), address)?;
    let peer = peer.map(|peer| (None, peer.clone()));
    Ok(SenderSetup { interface: interface.clone(), destination, peer, is_bench: false })
}

/// Bridges do not forward what is sent to this group: frames end at the other end of the cable.
///
/// **Source**: IEEE Std 802.1Q-2022, table 8-1.
const NEAREST_BRIDGE: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];

/// The trials of all ways.
struct Trials<'a, 'b> {
    request: &'a Request,
    setup: SenderSetup,
    session: &'a mut Session<'b>,
    /// Runs so far: their frames carry the number.
    runs: u16,
    ended: bool,
    shots: Vec<Shot>,
    absent: Vec<Absent>,
    delta: Span,
}

impl<'a, 'b> Trials<'a, 'b> {
    fn new(
        request: &'a Request,
        setup: SenderSetup,
        session: &'a mut Session<'b>,
    ) -> Trials<'a, 'b> {
        Trials {
            request,
            setup,
            session,
            runs: 0,
            ended: false,
            shots: Vec::new(),
            absent: Vec::new(),
            delta: request.delta.unwrap_or(DELTA),
        }
    }

    fn run(mut self) -> Result<Measured, RunnerError> {
        let smallest = if self.request.find_delta { self.find_delta()? } else { None };
        if let (None, Some(found)) = (self.request.delta, &smallest) {
            self.delta = found.delta_ns.map_or(self.delta, Span::from_ns);
        }
        let (count, repeats) = (self.request.frames.count, u64::from(self.request.repeats));
        let ways = &self.request.ways;
        for repeat in 0..self.request.repeats {
            // What is left over is in the first repeats.
            let rest = u64::from(u64::from(repeat) < count % repeats);
            let frames = count / repeats + rest;
            for at in order(ways.len(), usize::try_from(repeat).unwrap_or(0)) {
                let way = ways[at];
                if self.ended || self.absent.iter().any(|absent| absent.way == way) {
                    continue;
                }
                (self.session.tell)(&format!("repeat {} of {repeats}: {way}", repeat + 1));
                self.shoot(way, repeat, frames)?;
            }
        }
        Ok(self.measured(smallest))
    }

    /// All cycles of one way.
    fn shoot(&mut self, way: LaunchMethod, repeat: u32, frames: u64) -> Result<(), RunnerError> {
        let mut kept = None;
        for &cycle in &self.request.cycles {
            if self.ended {
                break;
            }
            // What the kernel is given serves all cycles; the MAC has its own for each.
            let ready = match kept.take() {
                Some(ready) => ready,
                None => match self.ready(way, cycle, self.delta)? {
                    Some(ready) => ready,
                    None => return Ok(()),
                },
            };
            let shot = self.take(way, cycle, repeat, frames, &ready, self.delta)?;
            match shot {
                Ok(shot) => self.shots.push(shot),
                Err(unavailable) => {
                    self.lacks(way, unavailable);
                    ready.end()?;
                    return Ok(());
                }
            }
            match way {
                LaunchMethod::Mac => ready.end()?,
                _ => kept = Some(ready),
            }
        }
        kept.map_or(Ok(()), Ready::end)
    }

    fn lacks(&mut self, way: LaunchMethod, reason: Unavailable) {
        self.absent.push(Absent { way, reason });
    }

    /// `None` when it cannot be had, which is noted.
    fn ready(
        &mut self,
        way: LaunchMethod,
        cycle: Span,
        delta: Span,
    ) -> Result<Option<Ready>, RunnerError> {
        match way::ready(self.request, &self.setup, way, cycle, delta)? {
            Ok(ready) => Ok(Some(ready)),
            Err(unavailable) => {
                self.lacks(way, unavailable);
                Ok(None)
            }
        }
    }

    fn take(
        &mut self,
        way: LaunchMethod,
        cycle: Span,
        repeat: u32,
        frames: u64,
        ready: &Ready,
        delta: Span,
    ) -> Result<Result<Shot, Unavailable>, RunnerError> {
        self.runs = self.runs % timewire_datapath::probe::Probe::MAX_STREAM + 1;
        let shooting = Shooting {
            request: self.request,
            setup: &self.setup,
            way,
            cycle,
            repeat,
            frames,
            delta,
            run: self.runs,
            mac: ready.mac(),
        };
        let taken = shot::take(&shooting, &self.session.ends)?;
        Ok(taken.map(|Taken { shot, ended, notes }| {
            self.ended |= ended;
            let known = &mut self.session.notes;
            notes.into_iter().for_each(|note| {
                if !known.contains(&note) {
                    known.push(note);
                }
            });
            shot
        }))
    }

    fn find_delta(&mut self) -> Result<Option<SmallestDelta>, RunnerError> {
        let ways = &self.request.ways;
        let Some(&way) = ways.iter().find(|way| way.has_launch_times()) else {
            let why = "a delta is searched for etf only, which was not asked for";
            self.session.notes.push(why.to_owned());
            return Ok(None);
        };
        let count = self.request.frames.count;
        let frames = (count / 4).clamp(1, 1_000);
        let search =
            Search { from: self.delta, most: MAX_DELTA, frames, confirm: count.max(frames) };
        let mut trials = Vec::new();
        let found = delta::smallest(search, |delta, frames| {
            (self.session.tell)(&format!("trying {way} with a delta of {delta}"));
            let trial = self.attempt(way, delta, frames)?;
            trials.extend(trial);
            Ok::<_, RunnerError>(trial)
        })?;
        if trials.is_empty() {
            return Ok(None);
        }
        if trials.iter().any(|trial| trial.invalid > 0) {
            self.session.notes.push(
                "frames came to etf after their launch time while a delta was searched: the \
                 sender woke too late, for which a longer --ahead is right, not a delta"
                    .to_owned(),
            );
        }
        Ok(Some(SmallestDelta {
            delta_ns: found.map(Span::as_ns),
            confirmed_by: trials.last().map_or(0, |trial| trial.frames),
            cycles_ns: self.request.cycles.iter().map(|cycle| cycle.as_ns()).collect(),
            trials,
        }))
    }

    /// All cycles with one delta; `None` when it cannot be had, or the measurement was ended.
    fn attempt(
        &mut self,
        way: LaunchMethod,
        delta: Span,
        frames: u64,
    ) -> Result<Option<Trial>, RunnerError> {
        let cycles = &self.request.cycles;
        let Some(ready) = self.ready(way, cycles[0], delta)? else { return Ok(None) };
        let mut trial = Trial { delta_ns: delta.as_ns(), frames: 0, missed: 0, invalid: 0 };
        for &cycle in cycles {
            let shot = match self.take(way, cycle, 0, frames, &ready, delta)? {
                Ok(shot) if !self.ended => shot,
                Ok(_) => return ready.end().map(|()| None),
                Err(unavailable) => {
                    self.lacks(way, unavailable);
                    return ready.end().map(|()| None);
                }
            };
            for sample in &shot.samples {
                trial.frames += 1;
                trial.missed += u64::from(sample.fate == Fate::Missed);
                trial.invalid += u64::from(sample.fate == Fate::Invalid);
            }
        }
        ready.end()?;
        Ok(Some(trial))
    }

    fn measured(self, smallest_delta: Option<SmallestDelta>) -> Measured {
        let Trials { request, setup, shots, absent, delta, ended, .. } = self;
        let facts = |way: LaunchMethod, cycle: Span| Facts {
            delta: way.has_launch_times().then_some(delta),
            lead: match way {
                LaunchMethod::Plain => None,
                LaunchMethod::Etf | LaunchMethod::EtfOffload => {
                    Some(delta + request.ahead_of(cycle))
                }
                LaunchMethod::Mac => Some(shot::mac_lead(cycle)),
            },
        };
        let has_mac = shots.iter().any(|shot| shot.way == LaunchMethod::Mac);
        let show = match request.frames.at {
            Some(point) => Show::Only(point),
            None if has_mac && setup.peer.is_some() => Show::Peer,
            None => Show::Sender,
        };
        let columns = result::columns(&shots, &facts, show);
        Measured {
            conditions: Conditions::now(SCHEMA, &request.frames.place),
            frame_bytes: request.frames.size,
            repeats: request.repeats,
            scheduling: request.frames.scheduling(),
            absent,
            ratios: result::ratios(&columns),
            smallest_delta,
            conclusion: Conclusion {
                limits: result::checked(&request.frames.limits, &columns),
                notes: Vec::new(),
                ended_early: ended,
            },
            columns,
            shots,
        }
    }
}

/// Lets the calling thread run by `SCHED_FIFO`; why not, when it is refused.
fn run_real_time() -> Option<String> {
    let priority = RtPriority::new(GROUP_PRIORITY)
        .expect("invariant: the priority lies in the kernel's range");
    let wanted = Attributes::fifo(priority).not_inherited();
    let error = scheduler::set_attributes(0, &wanted).err()?;
    Some(format!("the sender ran without real-time priority: {error} (CAP_SYS_NICE)"))
}

/// Whether the interface has timestamps of its NIC.
fn has_hardware(interface: &IfName) -> Option<Option<u32>> {
    let abilities = timestamp_abilities(interface).ok()?;
    abilities.hardware.then_some(abilities.phc)
}

/// A cell of `frames.csv`.
fn cell(ns: Option<i64>) -> String {
    ns.map_or(String::new(), |ns| ns.to_string())
}

impl From<LabError> for Unavailable {
    fn from(error: LabError) -> Unavailable {
        Unavailable { unsupported: error.is_unsupported(), why: error.to_string() }
    }
}
