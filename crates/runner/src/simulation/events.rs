// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happened to each frame of a simulation as a capture of events, which `timewire trace` reads
//! as it reads those of kernels: release, queues, transmissions, receptions and drops.
//!
//! Things that are known before they happen wait until their time has come, so the capture is in
//! the order of time; memory is in proportion to the frames on their way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fs::File;
use std::io::{self, BufWriter};
use std::net::Ipv4Addr;

use timewire_capture::capture::{CaptureHeader, ClockSample, HookCount, Note, Station, Writer};
use timewire_capture::event::{Event, Flags, Hook};
use timewire_sim::net::{LostBy, Network, PortIndex, Seen, What};

use crate::RunnerError;
use crate::error::invalid;

use super::names::Rows;

/// Hooks that a simulation has.
const HOOKS: [Hook; 8] = [
    Hook::Marker,
    Hook::DeviceQueue,
    Hook::DriverStart,
    Hook::DriverDone,
    Hook::StackReceive,
    Hook::SocketQueue,
    Hook::SocketReceive,
    Hook::Drop,
];
/// The point at which applications release messages.
const RELEASE: u64 = 1;
/// Numbers of reasons to drop a frame begin here, beyond those that kernels have.
const REASONS: u64 = 1_000;
/// Preamble, check sequence and gap; the header of Ethernet; those of IPv4 and UDP. **Units**:
/// bytes.
const AROUND_BYTES: u32 = 24;
const ETHERNET_BYTES: u16 = 14;
const UDP_BYTES: u16 = 28;
/// What an object has that is a socket.
const SOCKET: u64 = 1 << 63;
/// Threads with this bit receive.
const READER: u32 = 1 << 31;

/// Which copy of which frame.
type Key = (usize, u32, u8);

/// Writes the capture of one run.
pub struct Events {
    writer: Writer<BufWriter<File>>,
    wanted: BTreeSet<usize>,
    /// Index among the capture's stations of each node that is one.
    stations: BTreeMap<usize, u8>,
    ports: Vec<Port>,
    /// Where each stream starts.
    talkers: Vec<usize>,
    places: BTreeMap<Key, FramePosition>,
    /// A frame that leaves a port: who goes on as it, and where it has been told.
    leaving: Option<Leaving>,
    later: BinaryHeap<Reverse<Later>>,
    sequence: u64,
    objects: u64,
    free_sockets: Vec<u64>,
    sockets: u64,
    counts: BTreeMap<&'static str, u64>,
    failed: Option<io::Error>,
}

struct Port {
    node: usize,
    segment: Option<usize>,
}

/// Where a copy of a frame is.
#[derive(Clone, Copy)]
struct FramePosition {
    object: u64,
    at: (u8, u32),
    /// It is on its way there until then, from there. **Units**: picoseconds.
    from: (u64, (u8, u32)),
}

struct Leaving {
    place: FramePosition,
    taken: bool,
    told: Vec<usize>,
}

/// An event whose time is to come.
struct Later {
    at_ps: u64,
    sequence: u64,
    event: Event,
    key: Option<Key>,
    /// A socket that is free then.
    socket: Option<u64>,
}

impl PartialEq for Later {
    fn eq(&self, other: &Later) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Later {}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Later) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Later {
    fn cmp(&self, other: &Later) -> std::cmp::Ordering {
        (self.at_ps, self.sequence).cmp(&(other.at_ps, other.sequence))
    }
}

impl Events {
    /// Begins a capture of these streams.
    ///
    /// **Errors**: it cannot be written; more stations than a capture names.
    pub fn create(
        out: File,
        (network, rows): (&Network, &Rows),
        (wanted, case): (&BTreeSet<usize>, &str),
    ) -> Result<Events, RunnerError> {
        let ports = ports(network);
        let nodes = on_the_way(network, wanted)?;
        if nodes.len() > MAX_STATIONS {
            return Err(RunnerError::Invalid(format!(
                "{} stations and bridges are on the ways of what is traced, and a capture names \
                 at most {MAX_STATIONS}; name fewer streams: --trace=STREAM,...",
                nodes.len()
            )));
        }
        let stations: BTreeMap<usize, u8> = nodes.into_iter().zip(0_u8..).collect();
        let station = |node: &usize| station(*node, &ports, rows);
        let mut meta = BTreeMap::from([("case".to_owned(), case.to_owned())]);
        meta.extend(
            LostBy::ALL
                .iter()
                .map(|by| (CaptureHeader::reason_key(reason(*by)), by.name().to_owned())),
        );
        let header = CaptureHeader {
            host: "simulated".to_owned(),
            boot: format!("simulated {case}"),
            kernel: "simulated".to_owned(),
            writer: concat!("timewire ", env!("CARGO_PKG_VERSION")).to_owned(),
            stations: stations.keys().map(station).collect(),
            hooks: HOOKS.iter().map(|hook| hook.name().to_owned()).collect(),
            missing: BTreeMap::new(),
            filter: String::new(),
            keep_one_of: 1,
            meta,
        };
        let mut events = Events {
            writer: Writer::new(BufWriter::new(out), &header).map_err(invalid)?,
            wanted: wanted.clone(),
            stations,
            ports,
            talkers: network.streams.iter().map(|stream| stream.from).collect(),
            places: BTreeMap::new(),
            leaving: None,
            later: BinaryHeap::new(),
            sequence: 0,
            objects: 0,
            free_sockets: Vec::new(),
            sockets: 0,
            counts: BTreeMap::new(),
            failed: None,
        };
        events.notes(network, rows).map_err(invalid)?;
        Ok(events)
    }

    fn notes(&mut self, network: &Network, rows: &Rows) -> io::Result<()> {
        self.writer.note(&Note::Point {
            point: RELEASE,
            name: "release".to_owned(),
            process: 0,
        })?;
        // Simulated time is TAI and UTC alike, and nothing reads it late.
        self.writer.note(&Note::Clocks(ClockSample {
            monotonic_ns: 0,
            realtime_ahead_ns: 0,
            tai_ahead_ns: 0,
            error_ns: 0,
            offset_ns: Some(0),
        }))?;
        for stream in self.wanted.clone() {
            let Some(spec) = network.streams.get(stream) else { continue };
            let of_stream = || rows.all().iter().filter(|row| row.stream == stream);
            let name = of_stream().map(|row| row.name.split('>').next().unwrap_or("")).next();
            let name = name.unwrap_or("").to_owned();
            let to = match of_stream().count() {
                1 => address(10, of_stream().map(|row| row.to).next().unwrap_or(0)),
                _ => address(239, stream),
            };
            let port = 10_000 + stream % 50_000;
            let flow = format!("{name}, UDP {}:{port} > {to}:{port}", address(10, spec.from));
            let number = number(stream);
            self.writer.note(&Note::Flow { flow: number, name: flow })?;
            for thread in [number, number | READER] {
                self.writer.note(&Note::Thread { thread, name: name.clone() })?;
            }
        }
        Ok(())
    }

    /// Something happened to a frame.
    pub fn seen(&mut self, seen: &Seen) {
        if self.failed.is_some() || !self.wanted.contains(&seen.stream) {
            return;
        }
        if let Err(error) = self.take(seen) {
            self.failed = Some(error);
        }
    }

    /// Closes the capture.
    ///
    /// **Errors**: the first failure to write, now or earlier.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.until(u64::MAX)?;
        let count = |hook: Hook| {
            let written = self.counts.get(hook.name()).copied().unwrap_or(0);
            (hook.name().to_owned(), HookCount { seen: written, written, lost: 0 })
        };
        let losses = HOOKS.into_iter().map(count).collect();
        self.writer.note(&Note::Losses(losses))?;
        let file = self.writer.finish()?;
        file.into_inner().map(drop).map_err(io::IntoInnerError::into_error)
    }

    fn take(&mut self, seen: &Seen) -> io::Result<()> {
        self.until(seen.at_ps)?;
        let key = (seen.stream, seen.number, seen.hop);
        match seen.what {
            What::Released => self.released(seen, key),
            What::Queued { port } => self.queued(seen, key, port),
            What::Started { port, class } => {
                let class = u64::try_from(class).unwrap_or(0);
                let Some(place) = self.places.get(&key).copied() else { return Ok(()) };
                let at = self.of_port(port);
                let event =
                    Event { aux: class, ..self.event(Hook::DriverStart, seen, place.object, at) };
                self.write(&event)
            }
            What::Ended { port, at_ps } => {
                let Some(place) = self.places.remove(&key) else { return Ok(()) };
                let event = self.event(Hook::DriverDone, seen, place.object, self.of_port(port));
                self.leaving = Some(Leaving { place, taken: false, told: Vec::new() });
                self.at(at_ps, event, None, None);
                Ok(())
            }
            What::Reaches { port, node, at_ps } => {
                self.reaches(seen, key, (port, node, at_ps));
                Ok(())
            }
            What::Delivered { node, received_ps } => self.delivered(seen, key, node, received_ps),
            What::Lost { by } => self.lost(seen, key, by),
            What::Missed { .. } => Ok(()),
        }
    }

    fn released(&mut self, seen: &Seen, key: Key) -> io::Result<()> {
        // Its place is known when it is queued; until then it is with its program.
        let Some(row) = self.talker(seen.stream) else { return Ok(()) };
        let object = self.object();
        let place = FramePosition { object, at: (row, 0), from: (0, (row, 0)) };
        self.places.insert(key, place);
        let event = Event {
            thread: number(seen.stream),
            ..self.event(Hook::Marker, seen, RELEASE, (row, 0))
        };
        self.write(&event)
    }

    fn queued(&mut self, seen: &Seen, key: Key, port: PortIndex) -> io::Result<()> {
        let Some(place) = self.places.get_mut(&key) else { return Ok(()) };
        let released = place.at.1 == 0;
        let object = place.object;
        let at = self.of_port(port);
        if let Some(place) = self.places.get_mut(&key) {
            (place.at, place.from.0) = (at, 0);
        }
        let mut event = self.event(Hook::DeviceQueue, seen, object, at);
        if released {
            (event.aux, event.thread) =
                (SOCKET | u64::from(number(seen.stream)), number(seen.stream));
        }
        self.write(&event)
    }

    /// A copy of the frame that leaves a port is on its way to a node.
    fn reaches(&mut self, seen: &Seen, key: Key, (port, node, at_ps): (PortIndex, usize, u64)) {
        let from = self.of_port(port);
        let at = self.entrance(port, node);
        let Some(leaving) = &mut self.leaving else { return };
        let first = !std::mem::replace(&mut leaving.taken, true);
        let known = leaving.told.contains(&node);
        leaving.told.push(node);
        let object = if first { leaving.place.object } else { self.object() };
        self.places.insert(key, FramePosition { object, at, from: (at_ps, from) });
        if !known {
            let mut event = self.event(Hook::StackReceive, seen, object, at);
            event.length = event.length.saturating_sub(ETHERNET_BYTES);
            self.at(at_ps, event, Some(key), None);
        }
    }

    fn delivered(&mut self, seen: &Seen, key: Key, node: usize, at_ps: u64) -> io::Result<()> {
        let Some(place) = self.places.remove(&key) else { return Ok(()) };
        let Some(station) = self.stations.get(&node).copied() else { return Ok(()) };
        let socket = self.free_sockets.pop().unwrap_or_else(|| {
            self.sockets += 1;
            SOCKET | 1 << 40 | self.sockets
        });
        let mut queued = self.event(Hook::SocketQueue, seen, place.object, place.at);
        queued.length = queued.length.saturating_sub(ETHERNET_BYTES);
        queued.aux = socket;
        self.write(&queued)?;
        let received = Event {
            object: socket,
            length: queued.length.saturating_sub(UDP_BYTES),
            aux: u64::from(queued.length.saturating_sub(UDP_BYTES)),
            thread: number(seen.stream) | READER,
            interface: 0,
            station,
            hook: Hook::SocketReceive,
            ..queued
        };
        self.at(at_ps, received, None, Some(socket));
        Ok(())
    }

    fn lost(&mut self, seen: &Seen, key: Key, by: LostBy) -> io::Result<()> {
        let Some(place) = self.places.remove(&key) else { return Ok(()) };
        let at = if seen.at_ps < place.from.0 { place.from.1 } else { place.at };
        if seen.at_ps < place.from.0 {
            // What it would have reached, it does not.
            self.later.retain(|Reverse(later)| later.key != Some(key));
        }
        let event = Event { aux: reason(by), ..self.event(Hook::Drop, seen, place.object, at) };
        self.write(&event)
    }

    fn event(
        &self,
        hook: Hook,
        seen: &Seen,
        object: u64,
        (station, interface): (u8, u32),
    ) -> Event {
        let length = seen.wire_bytes.saturating_sub(AROUND_BYTES);
        Event {
            at_ns: seen.at_ps / 1_000,
            object,
            tag: u64::from(number(seen.stream)) << 32 | u64::from(seen.number),
            aux: 0,
            interface,
            thread: 0,
            cpu: u16::try_from(interface % 65_536).unwrap_or(0),
            flags: Flags::default(),
            length: u16::try_from(length).unwrap_or(u16::MAX),
            hook,
            station,
        }
    }

    fn object(&mut self) -> u64 {
        self.objects += 1;
        self.objects
    }

    /// The station of a stream's program.
    fn talker(&self, stream: usize) -> Option<u8> {
        self.talkers.get(stream).and_then(|node| self.stations.get(node)).copied()
    }

    /// Station and interface of a port.
    fn of_port(&self, port: PortIndex) -> (u8, u32) {
        let node = self.ports.get(port.0).map_or(usize::MAX, |port| port.node);
        let station = self.stations.get(&node).copied().unwrap_or(Event::NO_STATION);
        (station, interface(port.0))
    }

    /// Where a frame comes in at a node that left a port.
    fn entrance(&self, port: PortIndex, node: usize) -> (u8, u32) {
        let segment = self.ports.get(port.0).and_then(|port| port.segment);
        let there = |(_, it): &(usize, &Port)| it.node == node && it.segment == segment;
        let own = match segment {
            None => port.0 ^ 1,
            Some(_) => self.ports.iter().enumerate().find(there).map_or(port.0, |found| found.0),
        };
        let station = self.stations.get(&node).copied().unwrap_or(Event::NO_STATION);
        (station, interface(own))
    }

    fn at(&mut self, at_ps: u64, event: Event, key: Option<Key>, socket: Option<u64>) {
        self.sequence += 1;
        let event = Event { at_ns: at_ps / 1_000, ..event };
        let sequence = self.sequence;
        self.later.push(Reverse(Later { at_ps, sequence, event, key, socket }));
    }

    /// Writes what has its time by then.
    fn until(&mut self, at_ps: u64) -> io::Result<()> {
        while self.later.peek().is_some_and(|Reverse(later)| later.at_ps <= at_ps) {
            let Some(Reverse(later)) = self.later.pop() else { break };
            self.free_sockets.extend(later.socket);
            self.write(&later.event)?;
        }
        Ok(())
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        *self.counts.entry(event.hook.name()).or_default() += 1;
        self.writer.event(event)
    }
}

/// Stations that a capture names.
const MAX_STATIONS: usize = 255;

/// The flow of a stream, and its threads.
fn number(stream: usize) -> u32 {
    u32::try_from(stream + 1).unwrap_or(READER - 1) & !READER
}

fn interface(port: usize) -> u32 {
    u32::try_from(port + 1).unwrap_or(u32::MAX)
}

fn reason(by: LostBy) -> u64 {
    let place = LostBy::ALL.iter().position(|other| *other == by).unwrap_or(0);
    REASONS + u64::try_from(place).unwrap_or(0)
}

/// The ports of a network by their numbers.
fn ports(network: &Network) -> Vec<Port> {
    let links = network.links.iter().flat_map(|link| &link.ends);
    let links = links.map(|(node, _)| Port { node: *node, segment: None });
    let media = network.media.iter().enumerate().flat_map(|(number, medium)| {
        let port = move |(node, _): &(usize, _)| Port { node: *node, segment: Some(number) };
        medium.stations.iter().map(port)
    });
    links.chain(media).collect()
}

/// All stations and bridges that frames of these streams come to.
fn on_the_way(network: &Network, wanted: &BTreeSet<usize>) -> Result<BTreeSet<usize>, RunnerError> {
    let (ports, ways) = (ports(network), network.ways().map_err(invalid)?);
    let mut nodes = BTreeSet::new();
    for stream in wanted {
        let (Some(spec), Some(way)) = (network.streams.get(*stream), ways.get(*stream)) else {
            continue;
        };
        nodes.extend(way.iter().filter_map(|port| ports.get(port.0)).map(|port| port.node));
        nodes.insert(spec.from);
        nodes.extend(network.listeners(*stream));
    }
    Ok(nodes)
}

/// A node as a capture names it, with an interface for each of its ports.
fn station(node: usize, ports: &[Port], rows: &Rows) -> Station {
    let far = |place: usize, port: &Port| match port.segment {
        None => rows.node(ports.get(place ^ 1).map_or(usize::MAX, |port| port.node)).to_owned(),
        Some(number) => rows.segment(number).to_owned(),
    };
    let own = ports.iter().enumerate().filter(|(_, port)| port.node == node);
    let interfaces =
        own.map(|(place, port)| (interface(place), format!("to-{}", far(place, port))));
    Station {
        name: rows.node(node).to_owned(),
        namespace: u64::try_from(node + 1).unwrap_or(u64::MAX),
        interfaces: interfaces.collect(),
    }
}

fn address(net: u8, host: usize) -> Ipv4Addr {
    let [_, a, b, c] = u32::try_from(host + 1).unwrap_or(0).to_be_bytes();
    Ipv4Addr::new(net, a, b, c)
}
