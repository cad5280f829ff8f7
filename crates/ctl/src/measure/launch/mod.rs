// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transmit accuracy: how far from its launch time a frame leaves, by the ways that Linux and
//! Timewire have of making it leave on time, side by side and interleaved.
//!
//! ```text
//! plain        sleep until the launch time, send
//! etf          send before it with SO_TXTIME; the kernel holds the frame until delta before it
//! etf-offload  the same, and the card holds the frame
//! mac          Timewire's MAC, whose slot begins at the launch time; the frame waits for it
//! ```
//!
//! Not here: the command line (`timewire-cli`), sending and stamping (`timewire_path::talker`).

mod delta;
pub mod gates;
pub mod limit;
pub mod result;
mod shot;
mod text;
mod way;

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use timewire_base::{IfName, SocketPriority, Span};
use timewire_host::stamping::{Stamped, Stamping};
use timewire_lab::LabError;
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_sys::phc::stamp_abilities;
use timewire_sys::scheduler::{self, Attributes, RtPriority};
use timewire_sys::sending_of;

use super::bench::{End, Pair, PairSpec};
use crate::station::GROUP_PRIORITY;
use crate::{CtlError, stamping};
use delta::Search;
use result::{Absent, Facts, Fate, Measured, SCHEMA, Shot, Show, SmallestDelta, Trial};
use shot::{Shooting, Studio};
use way::{Ready, Unavailable};

/// How frames get their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The program sleeps until the launch time and sends.
    Plain,
    /// `etf` in the kernel.
    Etf,
    /// `etf`, and the card.
    EtfOffload,
    /// Timewire's own MAC.
    Mac,
}

impl Way {
    fn has_launch_times(self) -> bool {
        matches!(self, Way::Etf | Way::EtfOffload)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Plain => "plain",
            Way::Etf => "etf",
            Way::EtfOffload => "etf-offload",
            Way::Mac => "mac",
        })
    }
}

/// Where frames are stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tap {
    /// By the sender's card, as the frame leaves.
    TxHardware,
    /// By the sender's kernel, as the frame is handed to the interface.
    TxSoftware,
    /// By the kernel where the frame arrives, on the same host.
    Peer,
}

impl fmt::Display for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tap::TxHardware => "tx-hardware",
            Tap::TxSoftware => "tx-software",
            Tap::Peer => "peer",
        })
    }
}

/// Between which stations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Bench => f.write_str("a pair of namespaces on a veth"),
            Place::Interface { interface, peer: Some(peer) } => write!(f, "{interface} to {peer}"),
            Place::Interface { interface, peer: None } => write!(f, "{interface}"),
        }
    }
}

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where.
    pub place: Place,
    /// Which ways.
    pub ways: Vec<Way>,
    /// From one launch time to the next: one column each.
    pub cycles: Vec<Span>,
    /// Frames of each column, over all repeats.
    pub count: u64,
    /// How often the columns take turns.
    pub repeats: u32,
    /// **Units**: bytes with Ethernet header, without check sequence.
    pub size: u32,
    /// The delta of `etf`; `None` for [`DELTA`], or the smallest when that is searched.
    pub delta: Option<Span>,
    /// How long before launch time less delta a frame is given to the kernel; `None` for what
    /// [`Request::ahead_of`] says.
    pub ahead: Option<Span>,
    /// Whether to search the smallest delta.
    pub find_delta: bool,
    /// Whether the sender runs by `SCHED_FIFO`.
    pub real_time: bool,
    /// The socket priority of the frames.
    pub priority: SocketPriority,
    /// Which stamps the table is about.
    pub at: Option<Tap>,
    /// Whether the interface may be taken from all other programs meanwhile.
    pub whole_interface: bool,
    /// The program `timewire`, for the MAC.
    pub program: PathBuf,
    /// What the figures may be.
    pub limits: Vec<limit::Limit>,
}

/// The delta when nobody says one: that of the table that the authors of launch times show.
pub const DELTA: Span = Span::from_us(130);
/// The largest delta that is tried, and the most that a frame can be given ahead.
pub const MOST: Span = Span::from_ms(10);
/// **Units**: bytes; the shortest Ethernet frame without check sequence.
const SHORTEST: u32 = 60;
/// Header, and what the network layer may have at most on usual links.
const LONGEST: u32 = 1_514;
/// Frames of a run at most: they stay in memory.
const MOST_FRAMES: u64 = 20_000_000;

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

    /// **Errors**: a wish that cannot be.
    fn check(&self) -> Result<(), CtlError> {
        let wrong = |why: String| Err(CtlError::Invalid(why));
        if self.ways.is_empty() || self.cycles.is_empty() {
            return wrong("nothing to measure: name at least one way and one cycle".to_owned());
        }
        if let Some(cycle) = self.cycles.iter().find(|cycle| **cycle < Span::from_us(10)) {
            return wrong(format!("a cycle of {cycle} is too short: at least 10us"));
        }
        if !(SHORTEST..=LONGEST).contains(&self.size) {
            let size = self.size;
            return wrong(format!("frames of {size} bytes are not {SHORTEST} to {LONGEST}"));
        }
        if self.repeats == 0 || self.count < u64::from(self.repeats) || self.count > MOST_FRAMES {
            return wrong(format!(
                "{} frames in {} repeats: at least one in each, and {MOST_FRAMES} at most",
                self.count, self.repeats
            ));
        }
        result::names().check(&self.limits)?;
        let ahead = self.ahead.unwrap_or(Span::ZERO);
        for (name, span) in [("a delta", self.delta.unwrap_or(DELTA)), ("ahead", ahead)] {
            if span.is_negative() || span > MOST {
                return wrong(format!("{name} of {span} is not 0ns to {MOST}"));
            }
        }
        Ok(())
    }
}

/// Measures. `tell` hears what is being done.
///
/// A request to end (SIGINT, SIGTERM) ends it with what was measured so far.
///
/// **Errors**: a wish that cannot be, no privilege, no such interface, or the host could not be put
/// back. That a way does not work here is none: it is told in the result.
pub fn run(
    request: &Request,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<(Measured, Vec<Shot>), CtlError> {
    request.check()?;
    let requests = EndRequests::new()
        .map_err(|error| CtlError::Invalid(format!("cannot wait for signals: {error}")))?;
    match &request.place {
        Place::Bench => {
            let pair = Pair::create(PairSpec { queues: 2, ipv6: false }, tell)?;
            let studio = studio_at(&pair);
            let work = || Session::new(request, studio, &requests)?.run(tell);
            let measured = pair.at(End::A, work)?;
            pair.destroy()?;
            measured
        }
        Place::Interface { interface, peer } => {
            let studio = studio_of(interface, peer.as_ref())?;
            let mut session = Session::new(request, studio, &requests)?;
            let card = session.have_stamped(interface)?;
            let (mut measured, shots) = session.run(tell)?;
            measured.notes.extend(stamping::end(card)?);
            Ok((measured, shots))
        }
    }
}

/// The first station of a pair, which sends to the other.
fn studio_at(pair: &Pair) -> Studio {
    Studio {
        interface: pair.interface(),
        destination: pair.mac(End::B),
        peer: Some((Some(pair.netns(End::B)), pair.interface())),
        is_bench: true,
    }
}

/// **Errors**: one of the interfaces is not there.
fn studio_of(interface: &IfName, peer: Option<&IfName>) -> Result<Studio, CtlError> {
    let address = |name: &IfName| {
        let missing =
            |source: std::io::Error| CtlError::Link { link: name.clone(), why: source.to_string() };
        sending_of(name).map(|found| found.address).map_err(missing)
    };
    address(interface)?;
    let destination = peer.map_or(Ok(NEAREST_BRIDGE), address)?;
    let peer = peer.map(|peer| (None, peer.clone()));
    Ok(Studio { interface: interface.clone(), destination, peer, is_bench: false })
}

fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

fn scheduling(real_time: bool) -> String {
    match real_time {
        true => format!("sender by SCHED_FIFO {GROUP_PRIORITY}"),
        false => "sender as any program".to_owned(),
    }
}

/// Bridges do not forward what is sent to this group: frames end at the other end of the cable.
///
/// **Source**: IEEE Std 802.1Q-2022, table 8-1.
const NEAREST_BRIDGE: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];

/// A measurement that runs.
struct Session<'a> {
    request: &'a Request,
    studio: Studio,
    requests: &'a EndRequests,
    /// Runs so far: their frames carry the number.
    runs: u16,
    ended: bool,
    shots: Vec<Shot>,
    absent: Vec<Absent>,
    notes: Vec<String>,
    delta: Span,
}

impl<'a> Session<'a> {
    fn new(
        request: &'a Request,
        studio: Studio,
        requests: &'a EndRequests,
    ) -> Result<Session<'a>, CtlError> {
        if request.at == Some(Tap::Peer) && studio.peer.is_none() {
            let why = "stamps of the peer need the interface at the other end: --peer".to_owned();
            return Err(CtlError::Invalid(why));
        }
        Ok(Session {
            request,
            studio,
            requests,
            runs: 0,
            ended: false,
            shots: Vec::new(),
            absent: Vec::new(),
            notes: Vec::new(),
            delta: request.delta.unwrap_or(DELTA),
        })
    }

    /// Has the card stamp, if its stamps are to be shown. Where nobody asked for them by name,
    /// it is no error that it cannot.
    fn have_stamped(&mut self, interface: &IfName) -> Result<Option<Stamping>, CtlError> {
        let at = self.request.at;
        let is_needed =
            at != Some(Tap::TxSoftware) && self.request.ways.iter().any(|w| *w != Way::Mac);
        let can = at == Some(Tap::TxHardware) || has_hardware(interface).is_some();
        let wanted = Stamped { sent: is_needed && can, received: false };
        match stamping::begin(Some(interface), wanted, &mut self.notes) {
            Err(error) if at != Some(Tap::TxHardware) => {
                self.notes.push(error.to_string());
                Ok(None)
            }
            result => Ok(result?),
        }
    }

    fn run(
        mut self,
        tell: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(Measured, Vec<Shot>), CtlError> {
        let smallest = if self.request.find_delta { self.find_delta(tell)? } else { None };
        if let (None, Some(found)) = (self.request.delta, &smallest) {
            self.delta = found.delta_ns.map_or(self.delta, Span::from_ns);
        }
        let repeats = u64::from(self.request.repeats);
        for repeat in 0..self.request.repeats {
            // What is left over is in the first repeats.
            let rest = u64::from(u64::from(repeat) < self.request.count % repeats);
            let frames = self.request.count / repeats + rest;
            let mut ways = self.request.ways.clone();
            // None is always the first after what was before.
            let first = usize::try_from(repeat).unwrap_or(0) % ways.len();
            ways.rotate_left(first);
            for way in ways {
                if self.ended || self.absent.iter().any(|absent| absent.way == way) {
                    continue;
                }
                tell(&format!("repeat {} of {repeats}: {way}", repeat + 1));
                self.shoot(way, repeat, frames)?;
            }
        }
        Ok(self.measured(smallest))
    }

    /// All cycles of one way.
    fn shoot(&mut self, way: Way, repeat: u32, frames: u64) -> Result<(), CtlError> {
        let cycles = self.request.cycles.clone();
        let mut kept = None;
        for cycle in cycles {
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
                Way::Mac => ready.end()?,
                _ => kept = Some(ready),
            }
        }
        kept.map_or(Ok(()), Ready::end)
    }

    fn lacks(&mut self, way: Way, unavailable: Unavailable) {
        let Unavailable { why, unsupported } = unavailable;
        self.absent.push(Absent { way, why, unsupported });
    }

    /// `None` when it cannot be had, which is noted.
    fn ready(&mut self, way: Way, cycle: Span, delta: Span) -> Result<Option<Ready>, CtlError> {
        match way::ready(self.request, &self.studio, way, cycle, delta)? {
            Ok(ready) => Ok(Some(ready)),
            Err(unavailable) => {
                self.lacks(way, unavailable);
                Ok(None)
            }
        }
    }

    fn take(
        &mut self,
        way: Way,
        cycle: Span,
        repeat: u32,
        frames: u64,
        ready: &Ready,
        delta: Span,
    ) -> Result<Result<Shot, Unavailable>, CtlError> {
        self.runs = self.runs % timewire_path::probe::Probe::MAX_STREAM + 1;
        let shooting = Shooting {
            request: self.request,
            studio: &self.studio,
            way,
            cycle,
            repeat,
            frames,
            delta,
            run: self.runs,
            mac: ready.mac(),
        };
        let taken = shot::take(&shooting, self.requests)?;
        self.ended |= taken.ended;
        for note in taken.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        Ok(taken.shot)
    }

    fn find_delta(
        &mut self,
        tell: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Option<SmallestDelta>, CtlError> {
        let ways = &self.request.ways;
        let Some(&way) = ways.iter().find(|way| way.has_launch_times()) else {
            self.notes.push("a delta is searched for etf only, which was not asked for".to_owned());
            return Ok(None);
        };
        let frames = (self.request.count / 4).clamp(1, 1_000);
        let search = Search {
            from: self.delta,
            most: MOST,
            frames,
            confirm: self.request.count.max(frames),
        };
        let mut trials = Vec::new();
        let found = delta::smallest(search, |delta, frames| {
            tell(&format!("trying {way} with a delta of {delta}"));
            let trial = self.attempt(way, delta, frames)?;
            trials.extend(trial);
            Ok::<_, CtlError>(trial)
        })?;
        if trials.is_empty() {
            return Ok(None);
        }
        if trials.iter().any(|trial| trial.invalid > 0) {
            self.notes.push(
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
    fn attempt(&mut self, way: Way, delta: Span, frames: u64) -> Result<Option<Trial>, CtlError> {
        let cycles = self.request.cycles.clone();
        let Some(ready) = self.ready(way, cycles[0], delta)? else { return Ok(None) };
        let mut trial = Trial { delta_ns: delta.as_ns(), frames: 0, missed: 0, invalid: 0 };
        for cycle in cycles {
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

    fn measured(self, smallest_delta: Option<SmallestDelta>) -> (Measured, Vec<Shot>) {
        let Session { request, studio, shots, absent, notes, delta, ended, .. } = self;
        let facts = |way: Way, cycle: Span| Facts {
            delta: way.has_launch_times().then_some(delta),
            lead: match way {
                Way::Plain => None,
                Way::Etf | Way::EtfOffload => Some(delta + request.ahead_of(cycle)),
                Way::Mac => Some(shot::mac_lead(cycle)),
            },
        };
        let has_mac = shots.iter().any(|shot| shot.way == Way::Mac);
        let show = match request.at {
            Some(tap) => Show::Only(tap),
            None if has_mac && studio.peer.is_some() => Show::Peer,
            None => Show::Sender,
        };
        let columns = result::columns(&shots, &facts, show);
        let ratios = result::ratios(&columns);
        let limits = result::checked(&request.limits, &columns);
        let measured = Measured {
            schema: SCHEMA.to_owned(),
            kernel: kernel_release(),
            place: request.place.to_string(),
            virtual_time: clock::is_virtual(),
            frame_bytes: request.size,
            repeats: request.repeats,
            scheduling: scheduling(request.real_time),
            columns,
            absent,
            ratios,
            smallest_delta,
            limits,
            notes,
            ended_early: ended,
        };
        (measured, shots)
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

/// Whether the interface has stamps of its card.
fn has_hardware(interface: &IfName) -> Option<Option<u32>> {
    let abilities = stamp_abilities(interface).ok()?;
    abilities.hardware.then_some(abilities.phc)
}

/// Writes the result and every frame into a directory that is empty or not there:
/// `launch.json`, `launch.txt` and `frames.csv`.
///
/// **Errors**: the directory has something in it, or cannot be written.
pub fn write_run(path: &Path, measured: &Measured, shots: &[Shot]) -> Result<(), CtlError> {
    write_result(path, "launch", measured, measured.text())?;
    let file = path.join("frames.csv");
    let write = || -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(fs::File::create(&file)?);
        writeln!(out, "way,cycle_ns,repeat,seq,launch_ns,sent_ns,sender_ns,peer_ns,fate")?;
        for shot in shots {
            for (seq, sample) in shot.samples.iter().enumerate() {
                let stamp = |ns: Option<i64>| ns.map_or(String::new(), |ns| ns.to_string());
                writeln!(
                    out,
                    "{},{},{},{seq},{},{},{},{},{}",
                    shot.way,
                    shot.cycle.as_ns(),
                    shot.repeat,
                    sample.launch_ns,
                    sample.sent_ns,
                    stamp(sample.sender_ns),
                    stamp(sample.peer_ns),
                    sample.fate.word(),
                )?;
            }
        }
        out.flush()
    };
    write().map_err(CtlError::file("write", &file))
}

/// `NAME.json` and `NAME.txt` in a directory that is empty or not there.
fn write_result(
    path: &Path,
    name: &str,
    measured: &impl Serialize,
    text: String,
) -> Result<(), CtlError> {
    fs::create_dir_all(path).map_err(CtlError::file("create", path))?;
    let mut listing = fs::read_dir(path).map_err(CtlError::file("list", path))?;
    if listing.next().is_some() {
        let why = format!("{} is not empty: name another directory", path.display());
        return Err(CtlError::Invalid(why));
    }
    let json = serde_json::to_string_pretty(measured)
        .map_err(|error| CtlError::Content { path: path.to_owned(), why: error.to_string() })?;
    for (extension, text) in [("json", json + "\n"), ("txt", text)] {
        let file = path.join(format!("{name}.{extension}"));
        fs::write(&file, text).map_err(CtlError::file("write", &file))?;
    }
    Ok(())
}

impl From<LabError> for Unavailable {
    fn from(error: LabError) -> Unavailable {
        Unavailable { unsupported: error.is_unsupported(), why: error.to_string() }
    }
}
