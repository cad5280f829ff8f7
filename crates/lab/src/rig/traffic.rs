// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Talkers and listeners: a thread that wakes at planned instants and sends, and threads that note
//! every frame of a rig that arrives. None of them ever spins.
//!
//! Not here: what is concluded (`outcome`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use timewire_base::{IfName, Instant, Mono, Span, Tai};
use timewire_sys::clock::{self, KernelClock};
use timewire_sys::error_queue::{self, Report};
use timewire_sys::event::{Wake, wait_readable};
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};
use timewire_sys::talk::{LaunchMode, TalkOptions, TalkSocket};

use super::bench::Bench;
use super::frame::{self, Header, Identity};
use super::outcome::{Arrival, Fate, Flow, Outcome};
use super::spec::Rig;
use crate::{LabError, ns};

/// A clock that launch times can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchClock {
    /// As `etf` and `taprio` want it.
    Tai,
    /// As `fq` wants it.
    Mono,
}

/// How a talker's frames get their launch time, which is the planned instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// How long before it the frame is sent; a negative lead sends it too late.
    pub lead: Span,
    /// The launch time is the latest moment instead of the exact one.
    pub deadline: bool,
    /// The clock it is of.
    pub clock: LaunchClock,
}

/// What a talker sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Whole frames, with the tag of [`Talker::tagged`].
    Frames,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6; the rig needs it ([`Rig::ipv6`]).
    Udp6,
}

/// A flow: who sends what to whom, and when.
#[derive(Clone, Debug)]
pub struct Talker {
    from: String,
    to: String,
    priority: u32,
    tag: Option<(u16, u8)>,
    length: u32,
    start: Option<Instant<Tai>>,
    cycle: Span,
    count: u32,
    burst: u32,
    launch: Option<Launch>,
    transport: Transport,
    clocked: bool,
}

impl Talker {
    /// One frame of 100 bytes, of priority 0, at [`Bench::soon`], sent when it is planned.
    pub fn new(from: &str, to: &str) -> Talker {
        Talker {
            from: from.to_owned(),
            to: to.to_owned(),
            priority: 0,
            tag: None,
            length: 100,
            start: None,
            cycle: Span::ZERO,
            count: 1,
            burst: 1,
            launch: None,
            transport: Transport::Frames,
            clocked: false,
        }
    }

    /// `SO_PRIORITY`, and with a tag also the PCP.
    pub fn priority(mut self, priority: u32) -> Talker {
        self.priority = priority;
        self
    }

    /// Sends frames with a tag of this VLAN and the priority as PCP.
    pub fn tagged(mut self, vid: u16) -> Talker {
        let pcp = u8::try_from(self.priority.min(7)).expect("invariant: at most 7");
        self.tag = Some((vid, pcp));
        self
    }

    /// The length of its frames with header and tag, without check sequence: at least 60 bytes.
    pub fn length(mut self, bytes: u32) -> Talker {
        self.length = bytes;
        self
    }

    /// When the first frame is planned.
    pub fn from(mut self, start: Instant<Tai>) -> Talker {
        self.start = Some(start);
        self
    }

    /// From one planned instant to the next.
    pub fn every(mut self, cycle: Span) -> Talker {
        self.cycle = cycle;
        self
    }

    /// How many planned instants.
    pub fn count(mut self, count: u32) -> Talker {
        self.count = count;
        self
    }

    /// How many frames at each of them, one after the other.
    pub fn burst(mut self, frames: u32) -> Talker {
        self.burst = frames;
        self
    }

    /// Gives every frame a launch time of TAI: the planned instant, a lead after its sending.
    pub fn launch(self, lead: Span) -> Talker {
        self.launch_as(Launch { lead, deadline: false, clock: LaunchClock::Tai })
    }

    /// Gives every frame a launch time.
    pub fn launch_as(mut self, launch: Launch) -> Talker {
        self.launch = Some(launch);
        self
    }

    /// What it sends.
    pub fn over(mut self, transport: Transport) -> Talker {
        self.transport = transport;
        self
    }

    /// Reads the clock after each sending; in virtual time that costs 256 ns, which the next frame
    /// of a burst is late by. Otherwise [`Fate::sent`] is the instant it was to be sent at.
    pub fn clocked(mut self) -> Talker {
        self.clocked = true;
        self
    }

    fn planned(&self, start: Instant<Tai>, sequence: u32) -> Instant<Tai> {
        start + Span::from_ns(self.cycle.as_ns() * i64::from(sequence / self.burst.max(1)))
    }

    fn frames(&self) -> u32 {
        self.count * self.burst
    }
}

/// A sending socket of either clock.
#[derive(Debug)]
enum Socket {
    Tai(TalkSocket<Tai>),
    Mono(TalkSocket<Mono>),
}

impl Socket {
    fn send(&self, bytes: &[u8], launch: Option<Instant<Tai>>, ahead: i64) -> io::Result<()> {
        match self {
            Socket::Tai(socket) => socket.send(bytes, launch),
            Socket::Mono(socket) => {
                socket.send(bytes, launch.map(|at| Instant::from_ns(at.as_ns() - ahead)))
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tai(socket) => socket.as_fd(),
            Socket::Mono(socket) => socket.as_fd(),
        }
    }

    /// Launch times of reports as TAI.
    fn tai_of(&self, launch_ns: i64, ahead: i64) -> Instant<Tai> {
        match self {
            Socket::Tai(_) => Instant::from_ns(launch_ns),
            Socket::Mono(_) => Instant::from_ns(launch_ns + ahead),
        }
    }
}

/// A talker with its socket.
struct Ready<'a> {
    talker: &'a Talker,
    /// Of its first frame.
    identity: Identity,
    socket: Socket,
    header: Header,
    start: Instant<Tai>,
    /// How far TAI is ahead of the monotonic clock.
    ahead: i64,
}

impl Ready<'_> {
    fn bytes(&self, sequence: u32) -> Vec<u8> {
        let identity = Identity { sequence, ..self.identity };
        let length = usize::try_from(self.talker.length).expect("invariant: 32 bits fit");
        match self.talker.transport {
            Transport::Frames => frame::whole(&self.header, identity, length),
            Transport::Udp4 => frame::payload(identity, length.saturating_sub(UDP4)),
            Transport::Udp6 => frame::payload(identity, length.saturating_sub(UDP6)),
        }
    }

    fn planned(&self, sequence: u32) -> Instant<Tai> {
        self.talker.planned(self.start, sequence)
    }

    /// When a frame is given to the kernel.
    fn wake(&self, sequence: u32) -> Instant<Tai> {
        let lead = self.talker.launch.map_or(Span::ZERO, |launch| launch.lead);
        self.planned(sequence) + -lead
    }

    fn send(&self, sequence: u32) -> Fate {
        let planned = self.planned(sequence);
        let launch = self.talker.launch.map(|_| planned);
        let bytes = self.bytes(sequence);
        let refused = self.socket.send(&bytes, launch, self.ahead).err();
        let wake = self.wake(sequence);
        let sent = if self.talker.clocked { clock::now::<Tai>() } else { wake };
        let not_taken = refused.and_then(|error| error.raw_os_error());
        Fate::new(sequence, planned, launch, sent, not_taken)
    }

    /// Whether anything can come back.
    fn hears(&self) -> bool {
        self.talker.launch.is_some()
    }

    /// Takes what has come back so far. Of several frames with one launch time the first is meant.
    fn hear(&self, fates: &mut [Fate]) {
        while let Ok(Some(report)) = error_queue::take(self.socket.fd()) {
            if let Report::Refused { why, launch_ns } = report {
                let launch = Some(self.socket.tai_of(launch_ns, self.ahead));
                let open = |fate: &&mut Fate| fate.launch == launch && fate.refused.is_none();
                if let Some(fate) = fates.iter_mut().find(open) {
                    fate.refused = Some(why);
                }
            }
        }
    }
}

impl Bench {
    /// Runs these flows together, until all frames were sent and had time to arrive.
    ///
    /// **Errors**: a socket cannot be had.
    pub fn play(&self, talkers: &[Talker]) -> Result<Outcome, LabError> {
        let soon = self.soon();
        let listeners = self.listeners(talkers)?;
        let _sinks = self.sinks(talkers)?;
        let ahead = tai_ahead_of_mono();
        let mut ready = Vec::new();
        let run = self.next_run();
        for (flow, talker) in (0..).zip(talkers) {
            let identity = Identity { run, flow, sequence: 0 };
            ready.push(self.ready(identity, talker, talker.start.unwrap_or(soon), ahead)?);
        }
        let last = |one: &Ready<'_>| {
            let last = one.talker.planned(one.start, one.talker.frames().saturating_sub(1));
            let lead = one.talker.launch.map_or(Span::ZERO, |launch| launch.lead);
            last.max(last + -lead)
        };
        let end =
            ready.iter().map(last).max().unwrap_or(soon) + self.rig.patience.unwrap_or(PATIENCE);
        let wake = Wake::new().map_err(failed("make an event"))?;
        let (fates, arrivals) = thread::scope(|scope| {
            let hearing: Vec<_> =
                listeners.into_iter().map(|one| scope.spawn(|| listen(one, &wake))).collect();
            let mut fates = joined(scope.spawn(|| talk(&ready)));
            clock::sleep_until(end);
            for (one, fates) in ready.iter().zip(&mut fates) {
                one.hear(fates);
            }
            // A listener that cannot be told to end would never be joined.
            wake.set().expect("invariant: an event counter takes one");
            let arrivals = hearing.into_iter().flat_map(joined);
            let arrivals: Vec<_> = arrivals.filter(|(identity, _)| identity.run == run).collect();
            (fates, arrivals)
        });
        Ok(gather(talkers, fates, &arrivals))
    }

    fn ready<'a>(
        &self,
        identity: Identity,
        talker: &'a Talker,
        start: Instant<Tai>,
        ahead: i64,
    ) -> Result<Ready<'a>, LabError> {
        let (from, to) = (self.node(&talker.from), self.node(&talker.to));
        let launch =
            talker.launch.map(|launch| LaunchMode { deadline: launch.deadline, report: true });
        let options = TalkOptions { priority: talker.priority, launch };
        let open = || match talker.launch.map(|launch| launch.clock) {
            Some(LaunchClock::Mono) => self.socket(talker, options).map(Socket::Mono),
            _ => self.socket(talker, options).map(Socket::Tai),
        };
        let socket = ns::in_namespace(&self.netns(&talker.from), open)?
            .map_err(failed(&format!("open a socket at {}", talker.from)))?;
        let header = Header { to: Rig::mac(to, 0), from: Rig::mac(from, 0), tag: talker.tag };
        Ok(Ready { talker, identity, socket, header, start, ahead })
    }

    /// In the namespace of the talker.
    fn socket<S: KernelClock>(
        &self,
        talker: &Talker,
        options: TalkOptions,
    ) -> io::Result<TalkSocket<S>> {
        let address = |node: &str| self.address(node, talker.transport);
        match talker.transport {
            Transport::Frames => {
                TalkSocket::frames(timewire_sys::interface_index(&first_interface())?, options)
            }
            Transport::Udp4 | Transport::Udp6 => {
                let from = SocketAddr::new(address(&talker.from), 0);
                TalkSocket::udp(from, SocketAddr::new(address(&talker.to), PORT), options)
            }
        }
    }

    fn address(&self, node: &str, transport: Transport) -> IpAddr {
        let number = u8::try_from(self.node(node) + 1).expect("invariant: rigs are small");
        match transport {
            Transport::Udp6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into()).into(),
            _ => Ipv4Addr::new(10, 77, 0, number).into(),
        }
    }

    /// One listener at each station that is spoken to.
    fn listeners(&self, talkers: &[Talker]) -> Result<Vec<PacketSocket>, LabError> {
        let mut stations: Vec<_> = talkers.iter().map(|talker| talker.to.as_str()).collect();
        stations.sort_unstable();
        stations.dedup();
        let options = PacketOptions { receive: true, stamps: true, buffer_bytes: BUFFER };
        let open = || {
            let index = timewire_sys::interface_index(&first_interface())?;
            PacketSocket::open(index, options)
        };
        let mut sockets = Vec::new();
        for station in stations {
            let socket = ns::in_namespace(&self.netns(station), open)?;
            sockets.push(socket.map_err(failed(&format!("listen at {station}")))?);
        }
        Ok(sockets)
    }

    /// Sockets that UDP messages go to, so that nobody answers that there is none.
    fn sinks(&self, talkers: &[Talker]) -> Result<Vec<UdpSocket>, LabError> {
        let over_udp = talkers.iter().filter(|talker| talker.transport != Transport::Frames);
        let mut places: Vec<_> = over_udp
            .map(|talker| (talker.to.clone(), self.address(&talker.to, talker.transport)))
            .collect();
        places.sort_unstable();
        places.dedup();
        let mut sinks = Vec::new();
        for (station, address) in places {
            let bind = || UdpSocket::bind((address, PORT));
            let sink = ns::in_namespace(&self.netns(&station), bind)?;
            sinks.push(sink.map_err(failed(&format!("bind {address} at {station}")))?);
        }
        Ok(sinks)
    }
}

/// All talkers in one thread, so that those of one instant do not wait for one another's readings
/// of the clock.
fn talk(ready: &[Ready<'_>]) -> Vec<Vec<Fate>> {
    // Refused only for a value that is out of range.
    let _ = clock::set_timer_slack(Span::from_ns(1));
    let of_one = |(number, one): (usize, &Ready<'_>)| {
        let sequences = 0..one.talker.frames();
        sequences.map(|at| (one.wake(at), number, at)).collect::<Vec<_>>()
    };
    let mut plan: Vec<_> = ready.iter().enumerate().flat_map(of_one).collect();
    plan.sort_unstable();
    let mut fates: Vec<Vec<Fate>> = ready.iter().map(|_| Vec::new()).collect();
    for instant in plan.chunk_by(|a, b| a.0 == b.0) {
        clock::sleep_until(instant[0].0);
        for (_, number, sequence) in instant {
            fates[*number].push(ready[*number].send(*sequence));
        }
        for (one, fates) in ready.iter().zip(&mut fates).filter(|(one, _)| one.hears()) {
            one.hear(fates);
        }
    }
    fates
}

fn listen(mut socket: PacketSocket, wake: &Wake) -> Vec<(Identity, Arrival)> {
    let offset = clock::tai_offset();
    let mut got = vec![Observed::default(); BATCH];
    let mut arrivals = Vec::new();
    loop {
        let fds = [socket.as_fd(), wake.as_fd()];
        wait_readable(&fds, None).expect("invariant: both descriptors are ours");
        let count = socket.observe(&mut got).expect("invariant: the interface stays");
        for one in &got[..count] {
            let identity = frame::identity(&one.prefix[..one.prefix_len]);
            if let (Some(identity), Some(stamp)) = (identity, one.stamp) {
                let at = Instant::from_ns(stamp.as_ns() + offset.as_ns());
                let place = arrivals.len();
                arrivals.push((identity, Arrival { at, place, length: one.length }));
            }
        }
        let told = wait_readable(&[wake.as_fd()], Some(Span::ZERO));
        // It stays set for the others.
        if count == 0 && told.expect("invariant: the descriptor is ours") {
            let lost = socket.take_drops().expect("invariant: the interface stays");
            assert_eq!(lost, 0, "a listener's buffer of {BUFFER} bytes was too small");
            return arrivals;
        }
    }
}

fn gather(talkers: &[Talker], fates: Vec<Vec<Fate>>, arrivals: &[(Identity, Arrival)]) -> Outcome {
    let mut flows: Vec<Flow> = talkers
        .iter()
        .zip(fates)
        .map(|(talker, fates)| Flow::new(format!("{} -> {}", talker.from, talker.to), fates))
        .collect();
    for (identity, arrival) in arrivals {
        let flow = flows.get_mut(usize::from(identity.flow));
        let at = usize::try_from(identity.sequence).unwrap_or(usize::MAX);
        if let Some(fate) = flow.and_then(|flow| flow.fates.get_mut(at)) {
            fate.copies += 1;
            fate.received.get_or_insert(*arrival);
        }
    }
    Outcome { flows }
}

/// How far TAI is ahead of the monotonic clock; the two readings around are equally far away in
/// virtual time.
fn tai_ahead_of_mono() -> i64 {
    let (before, tai, after) = (clock::now::<Mono>(), clock::now::<Tai>(), clock::now::<Mono>());
    tai.as_ns() - (before.as_ns() + after.as_ns()) / 2
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn failed(what: &str) -> impl Fn(io::Error) -> LabError + use<> {
    let what = what.to_owned();
    move |source| LabError::Namespace { what: what.clone(), source }
}

fn first_interface() -> IfName {
    IfName::new("eth0").expect("invariant: a plain name")
}

const BATCH: usize = 32;
/// Room for what arrives in one instant. **Units**: bytes.
const BUFFER: u32 = 8 << 20;
const PORT: u16 = 7_788;
/// How long after the last sending frames are waited for.
const PATIENCE: Span = Span::from_ms(200);
/// Ethernet, IP and UDP headers. **Units**: bytes.
const UDP4: usize = 42;
const UDP6: usize = 62;
