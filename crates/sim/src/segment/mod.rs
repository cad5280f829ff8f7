// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of one hop: a hub or a switch, with one port for each station.
//!
//! A frame occupies a link from the first bit of its preamble to the last bit of its check
//! sequence, and the next may start a gap later (12 bytes). It arrives whole, a delay after its
//! last bit. Frames shorter than 60 bytes are padded with zeros, as a NIC does.
//!
//! - **Hub**: one medium for all, one frame at a time. Who finds it busy waits, and frames go in
//!   the order in which they came. A real hub's stations would collide and back off at random;
//!   here the frame waits, and it is counted and traced that it did, and for whom.
//! - **Switch**: each port has a link of its own in either direction. A frame that has arrived
//!   whole is put behind those that wait for the port of its destination, without further delay.
//!   Where a source address was seen last is where its frames go; unknown and group addresses go to
//!   all other ports.
//!
//! Every receiver of a link loses a frame, independently, with the probability of [`Loss`].
//!
//! Not here: stations' queues and gates; a bridge with gates.

mod link;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use timewire_base::{BitsPerSecond, Sequence, Span};

use crate::SimTime;
use link::FifoLink;

/// A port, and the station behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortIndex(pub usize);

/// What stands in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// One medium that everybody shares.
    Hub,
    /// Store and forward, full duplex.
    Switch,
}

/// How often a receiver loses a frame.
///
/// **Units**: parts per billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Loss(u32);

impl Loss {
    /// Every frame.
    pub const ALL: u32 = 1_000_000_000;

    /// `None` for more than [`Loss::ALL`].
    pub const fn from_ppb(ppb: u32) -> Option<Loss> {
        if ppb > Loss::ALL { None } else { Some(Loss(ppb)) }
    }
}

/// What a segment is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Hub or switch.
    pub kind: SegmentKind,
    /// Rate of every link.
    pub rate: BitsPerSecond,
    /// From a link's one end to its other; of a hub, from any station to any other. Not negative.
    pub delay: Span,
    /// Of every receiver of every link.
    pub loss: Loss,
    /// Of the sequence that decides about loss.
    pub seed: u64,
}

/// A link in one direction, or the medium of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// The medium.
    Medium,
    /// From a station to the switch.
    Up(PortIndex),
    /// From the switch to a station.
    Down(PortIndex),
}

/// What happens to a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A station hands over a frame, without check sequence; `tag` comes back with
    /// [`Actions::sent`].
    Send {
        /// The station's port.
        port: PortIndex,
        /// The station's name for it.
        tag: u64,
        /// Destination, source, type, payload.
        frame: Vec<u8>,
    },
    /// The time that [`Segment::next`] named has come.
    Due,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Frames whose first bit is on a link now.
    pub passages: Vec<Passage>,
    /// Frames whose last bit has left their station now: port and tag.
    pub sent: Vec<(PortIndex, u64)>,
    /// Frames that are at a station now.
    pub deliveries: Vec<Delivery>,
}

/// A frame on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The frame's number, from 1, in the order in which frames were handed over; the same on all
    /// of its links.
    pub number: u64,
    /// Which link.
    pub link: Link,
    /// The port of the station that sent it.
    pub from: PortIndex,
    /// When it could have started, had the link been free.
    pub ready: SimTime,
    /// First bit of the preamble.
    pub start: SimTime,
    /// Last bit of the check sequence.
    pub end: SimTime,
    /// Whose frame was on the link, or in the gap after it, when this one was ready.
    pub found_busy_with: Option<PortIndex>,
    /// The frame, padded, without check sequence.
    pub frame: Arc<[u8]>,
}

/// A frame that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The receiver.
    pub port: PortIndex,
    /// Its number.
    pub number: u64,
    /// The frame, padded, without check sequence.
    pub frame: Arc<[u8]>,
}

/// What a port has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames handed over by its station.
    pub sent: u64,
    /// Of these, those that found another station's frame on the medium.
    pub found_busy: u64,
    /// Frames that arrived at its station.
    pub delivered: u64,
    /// Frames that were lost on the way to its station, or from it to the switch.
    pub lost: u64,
    /// Frames to its station that found the switch's queue full.
    pub queue_full: u64,
}

/// A frame on its way.
#[derive(Clone, Debug)]
struct Parcel {
    number: u64,
    from: PortIndex,
    frame: Arc<[u8]>,
}

#[derive(Clone, Debug)]
enum Due {
    Starts(Passage),
    Leaves { port: PortIndex, tag: u64 },
    Reaches { link: Link, parcel: Parcel },
}

/// The network. See the module.
#[derive(Debug)]
pub struct Segment {
    config: SegmentConfig,
    losses: Sequence,
    frames: u64,
    medium: FifoLink,
    up: Vec<FifoLink>,
    down: Vec<FifoLink>,
    addresses: BTreeMap<[u8; 6], PortIndex>,
    counters: Vec<PortCounters>,
    /// By time, then in the order in which they were planned.
    agenda: BinaryHeap<Reverse<(SimTime, u64)>>,
    planned: u64,
    entries: BTreeMap<u64, Due>,
}

impl Segment {
    /// How many frames wait for a port of a switch at most, the one on the link included.
    pub const QUEUE_FRAMES: usize = 1_024;

    /// A segment with so many ports.
    pub fn new(config: SegmentConfig, ports: usize) -> Segment {
        let line = || FifoLink::new(config.rate);
        Segment {
            config,
            losses: Sequence::new(config.seed),
            frames: 0,
            medium: line(),
            up: (0..ports).map(|_| line()).collect(),
            down: (0..ports).map(|_| line()).collect(),
            addresses: BTreeMap::new(),
            counters: vec![PortCounters::default(); ports],
            agenda: BinaryHeap::new(),
            planned: 0,
            entries: BTreeMap::new(),
        }
    }

    /// When something happens by itself; then it wants [`Event::Due`].
    pub fn next(&self) -> Option<SimTime> {
        self.agenda.peek().map(|Reverse((at, _))| *at)
    }

    /// What the port has seen so far.
    pub fn counters(&self, port: PortIndex) -> PortCounters {
        self.counters[port.0]
    }

    /// Takes an event.
    ///
    /// **Panics**: a port that there is not, or a time before the last call's.
    pub fn on(&mut self, now: SimTime, event: Event) -> Actions {
        let mut actions = Actions::default();
        self.due(now, &mut actions);
        if let Event::Send { port, tag, frame } = event {
            self.send(now, port, tag, frame);
            // It may be on the link at once.
            self.due(now, &mut actions);
        }
        actions
    }

    fn due(&mut self, now: SimTime, actions: &mut Actions) {
        while let Some(Reverse((at, number))) = self.agenda.peek().copied() {
            if at > now {
                return;
            }
            self.agenda.pop();
            let entry = self.entries.remove(&number);
            match entry.expect("invariant: what is on the agenda has an entry") {
                Due::Starts(passage) => actions.passages.push(passage),
                Due::Leaves { port, tag } => actions.sent.push((port, tag)),
                Due::Reaches { link, parcel } => self.reaches(at, link, &parcel, actions),
            }
        }
    }

    fn plan(&mut self, at: SimTime, due: Due) {
        self.planned += 1;
        self.entries.insert(self.planned, due);
        self.agenda.push(Reverse((at, self.planned)));
    }

    fn send(&mut self, now: SimTime, port: PortIndex, tag: u64, mut frame: Vec<u8>) {
        frame.resize(frame.len().max(link::MIN_FRAME), 0);
        self.frames += 1;
        self.counters[port.0].sent += 1;
        let parcel = Parcel { number: self.frames, from: port, frame: frame.into() };
        let link = match self.config.kind {
            SegmentKind::Hub => Link::Medium,
            SegmentKind::Switch => Link::Up(port),
        };
        let passage = self.pass(now, link, parcel);
        if passage.found_busy_with.is_some_and(|other| other != port) {
            self.counters[port.0].found_busy += 1;
        }
        self.plan(passage.end, Due::Leaves { port, tag });
    }

    /// Puts a frame on a link, behind those that are before it.
    fn pass(&mut self, ready: SimTime, link: Link, parcel: Parcel) -> Passage {
        let line = self.line(link);
        let slot = line.occupy(ready, parcel.from, parcel.frame.len());
        let passage = Passage {
            number: parcel.number,
            link,
            from: parcel.from,
            ready,
            start: slot.start,
            end: slot.end,
            found_busy_with: slot.found_busy_with,
            frame: Arc::clone(&parcel.frame),
        };
        self.plan(slot.start, Due::Starts(passage.clone()));
        self.plan(slot.end.plus(self.config.delay), Due::Reaches { link, parcel });
        passage
    }

    fn line(&mut self, link: Link) -> &mut FifoLink {
        match link {
            Link::Medium => &mut self.medium,
            Link::Up(port) => &mut self.up[port.0],
            Link::Down(port) => &mut self.down[port.0],
        }
    }

    /// A frame has come to the other end of a link.
    fn reaches(&mut self, now: SimTime, link: Link, parcel: &Parcel, actions: &mut Actions) {
        match link {
            Link::Medium => {
                for port in self.all_but(parcel.from) {
                    self.deliver(port, parcel, actions);
                }
            }
            Link::Down(port) => self.deliver(port, parcel, actions),
            Link::Up(port) if self.is_lost() => self.counters[port.0].lost += 1,
            Link::Up(port) => self.forward(now, port, parcel),
        }
    }

    fn all_but(&self, port: PortIndex) -> Vec<PortIndex> {
        (0..self.counters.len()).map(PortIndex).filter(|other| *other != port).collect()
    }

    fn is_lost(&mut self) -> bool {
        self.losses.happens(self.config.loss.0, Loss::ALL)
    }

    fn deliver(&mut self, port: PortIndex, parcel: &Parcel, actions: &mut Actions) {
        if self.is_lost() {
            self.counters[port.0].lost += 1;
            return;
        }
        self.counters[port.0].delivered += 1;
        let (number, frame) = (parcel.number, Arc::clone(&parcel.frame));
        actions.deliveries.push(Delivery { port, number, frame });
    }

    fn forward(&mut self, now: SimTime, from: PortIndex, parcel: &Parcel) {
        let (destination, source) = (address(&parcel.frame, 0), address(&parcel.frame, 6));
        if !is_group(source) {
            self.addresses.insert(source, from);
        }
        let known = self.addresses.get(&destination).filter(|_| !is_group(destination));
        let ports = match known {
            Some(port) if *port == from => Vec::new(),
            Some(port) => vec![*port],
            None => self.all_but(from),
        };
        for port in ports {
            if self.down[port.0].waiting(now) >= Segment::QUEUE_FRAMES {
                self.counters[port.0].queue_full += 1;
            } else {
                self.pass(now, Link::Down(port), parcel.clone());
            }
        }
    }
}

/// Six bytes of a frame; frames are padded to 60 before anyone looks.
fn address(frame: &[u8], at: usize) -> [u8; 6] {
    frame[at..at + 6].try_into().expect("invariant: six bytes")
}

fn is_group(address: [u8; 6]) -> bool {
    address[0] & 1 != 0
}
