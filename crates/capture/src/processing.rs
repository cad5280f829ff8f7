// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of each message of a run went, from the captures of its hosts: on the transmit
//! side, from the program's mark to the driver; on the link; on the receive side, from the stack to
//! the program's mark.
//!
//! Messages are known by their tag, which says whose they are and their number. Nothing is
//! guessed: a message with a point missing is told as incomplete, one with two for the same as
//! ambiguous, and the figures are of the others.
//!
//! - *Driver*: the mark of the sending station's MAC; without a MAC, the event that the driver of
//!   one of the station's interfaces to the network is given the frame.
//! - *Stack*: the first event at the receiving station that its stack takes the frame in.
//!
//! Not here: the whole way of each packet (`packet_path`), taking captures (`timewire-runner`).

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{Instant, Span, Tai};

use crate::analyse::{receive_bins, transfer_bins};
use crate::capture::{CaptureHeader, HookCount, Note};
use crate::event::{Event, Hook};
use crate::summary::{ProcessingSummary, TracedSummary};
use timewire_stats::Distribution;

/// Points at which programs of a run send a message. The value of the mark is the stream's port,
/// but for `talk.send`, whose tag has the stream's number.
pub const SENT: [&str; 5] =
    ["REMOTE_STIMULUS_SENT", "client.send", "server.send", "talker.send", "talk.send"];
/// Points at which they have read one.
pub const RECEIVED: [&str; 5] = [
    "REMOTE_STIMULUS_RECD",
    "client.receive",
    "server.receive",
    "listener.receive",
    "listen.received",
];
/// The point at which a MAC hands a frame to the device.
pub const MAC_TRANSMIT: &str = "mac.transmit";
/// What the header's `meta` calls the names of the stations' interfaces to the network, with a
/// space between them.
pub const LINK: &str = "link";

/// How the messages of a stream are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// By the port that is the value of its marks.
    Port(u64),
    /// By the number that they carry; as they come to this station. All packets of the capture
    /// are of numbered streams, then.
    Number {
        /// The number.
        stream: u16,
        /// The station.
        listener: String,
    },
}

/// What is asked of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The streams, with their names.
    pub streams: Vec<(Known, String)>,
    /// Messages count that are sent from here on,
    pub from: Instant<Tai>,
    /// up to here.
    pub to: Instant<Tai>,
    /// The cycle of the schedule, for the bins.
    pub cycle: Span,
}

/// Puts the points of messages together, event by event.
#[derive(Clone, Debug)]
pub struct Processing {
    wanted: Wanted,
    /// Of the tag of a packet, what tells its message.
    of_tag: u64,
    /// Their names.
    stations: BTreeMap<Station, String>,
    /// Of each station, the indices of its interfaces to the network.
    links: BTreeSet<(Station, u32)>,
    /// By capture and number.
    points: BTreeMap<(usize, u64), What>,
    messages: BTreeMap<u64, Message>,
    /// TAI less the clock of the first capture, which is that of all.
    tai_ahead_ns: Option<i128>,
    losses: BTreeMap<usize, BTreeMap<String, HookCount>>,
    left_out: u64,
}

/// A capture, and the number of a station in it.
type Station = (usize, u8);

/// Most messages of a run that are followed, and most times that one of them is seen somewhere.
const MAX_MESSAGES: usize = 1 << 20;
const MAX_TIMES: usize = 64;

/// Keeps a time, or counts that there was no room for it.
fn keep<T>(times: &mut Vec<T>, time: T, left_out: &mut u64) {
    if times.len() < MAX_TIMES {
        times.push(time);
    } else {
        *left_out += 1;
    }
}

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Sent,
    Received,
    MacTransmit,
}

/// Where and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    station: Station,
    at_ns: i64,
}

/// The number of a stream and that of its message, without the addresses.
const OF_STREAM: u64 = 0x7fff_ffff_ffff;

/// What was seen of one message.
#[derive(Clone, Debug, Default)]
struct Message {
    /// With the port, or the number of the stream.
    sent: Vec<(At, u64)>,
    received: Vec<(At, u64)>,
    mac: Vec<At>,
    driver: Vec<At>,
    stack: Vec<At>,
}

/// A message whose points are all there.
struct Whole {
    sent_ns: i64,
    driver_ns: i64,
    stack_ns: i64,
    received_ns: i64,
    by_mac: bool,
}

/// Why a message has no figures.
enum Without {
    Incomplete,
    Ambiguous,
}

impl Processing {
    /// Without captures yet.
    pub fn new(wanted: Wanted) -> Processing {
        let is_numbered =
            wanted.streams.iter().any(|(known, _)| matches!(known, Known::Number { .. }));
        Processing {
            of_tag: if is_numbered { OF_STREAM } else { u64::MAX },
            stations: BTreeMap::new(),
            links: BTreeSet::new(),
            wanted,
            points: BTreeMap::new(),
            messages: BTreeMap::new(),
            tai_ahead_ns: None,
            losses: BTreeMap::new(),
            left_out: 0,
        }
    }

    /// Takes the header of a capture.
    pub fn header(&mut self, capture: usize, header: &CaptureHeader) {
        let links: Vec<&str> =
            header.meta.get(LINK).into_iter().flat_map(|it| it.split(' ')).collect();
        for (station, number) in header.stations.iter().zip(0..) {
            self.stations.insert((capture, number), station.name.clone());
            let found =
                station.interfaces.iter().filter(|(_, name)| links.contains(&name.as_str()));
            self.links.extend(found.map(|(index, _)| ((capture, number), *index)));
        }
    }

    /// Takes a note of a capture.
    pub fn note(&mut self, capture: usize, note: &Note) {
        match note {
            Note::Point { point, name, .. } => {
                let what = match name.as_str() {
                    name if SENT.contains(&name) => What::Sent,
                    name if RECEIVED.contains(&name) => What::Received,
                    MAC_TRANSMIT => What::MacTransmit,
                    _ => return,
                };
                self.points.insert((capture, *point), what);
            }
            Note::Clocks(sample) if capture == 0 => {
                let ahead = i128::from(sample.realtime_ahead_ns) + i128::from(sample.tai_ahead_ns);
                self.tai_ahead_ns.get_or_insert(ahead);
            }
            Note::Losses(counts) => {
                self.losses.insert(capture, counts.clone());
            }
            _ => {}
        }
    }

    /// Takes an event of a capture, and its time on the clock of the first one.
    pub fn event(&mut self, capture: usize, at_ns: i64, event: &Event) {
        if event.tag == 0 || event.station == Event::NO_STATION {
            return;
        }
        let at = At { station: (capture, event.station), at_ns };
        let is_link = self.links.contains(&(at.station, event.interface));
        let what = match event.hook {
            Hook::Marker => match self.points.get(&(capture, event.object)) {
                Some(what) => Some(*what),
                None => return,
            },
            Hook::DriverStart if is_link => None,
            Hook::StackReceive => None,
            _ => return,
        };
        let tag = event.tag & self.of_tag;
        let of = if self.of_tag == OF_STREAM { tag >> 32 } else { event.aux };
        if self.messages.len() >= MAX_MESSAGES && !self.messages.contains_key(&tag) {
            self.left_out += 1;
            return;
        }
        let message = self.messages.entry(tag).or_default();
        let points = match (what, event.hook) {
            (Some(What::Sent), _) => {
                return keep(&mut message.sent, (at, of), &mut self.left_out);
            }
            (Some(What::Received), _) => {
                return keep(&mut message.received, (at, of), &mut self.left_out);
            }
            (Some(What::MacTransmit), _) => &mut message.mac,
            (None, Hook::DriverStart) => &mut message.driver,
            (None, _) => &mut message.stack,
        };
        keep(points, at, &mut self.left_out);
    }

    /// What it came to; `captures` and `page` are for the summary.
    pub fn finish(self, captures: Vec<String>, page: String) -> TracedSummary {
        let lost: u64 = self.losses.values().flat_map(BTreeMap::values).map(|it| it.lost).sum();
        // For what had no room nothing is known, either.
        let lost = lost.saturating_add(self.left_out);
        let of = |(known, name): &(Known, String)| self.stream(known, name);
        let streams = self.wanted.streams.iter().map(of).collect();
        TracedSummary { captures, page, lost, streams }
    }

    fn stream(&self, known: &Known, name: &str) -> ProcessingSummary {
        let (of_stream, listener) = match known {
            Known::Port(port) => (*port, None),
            Known::Number { stream, listener } => (u64::from(*stream), Some(listener)),
        };
        let is_there = |at: &At| listener.is_none() || self.stations.get(&at.station) == listener;
        let (mut sent, mut incomplete, mut ambiguous) = (0, 0, 0);
        let mut whole = Vec::new();
        for message in self.messages.values() {
            let is_own = |it: &&(At, u64)| it.1 == of_stream;
            // Of one whose sending was not seen, the time at which it came.
            let mut received = message.received.iter().filter(|(at, _)| is_there(at));
            let first = message.sent.iter().find(is_own).or_else(|| received.find(is_own));
            let Some((first, _)) = first else { continue };
            if !self.measures(first.at_ns) {
                continue;
            }
            sent += 1;
            match message.joined(&is_there) {
                Ok(found) => whole.push(found),
                Err(Without::Incomplete) => incomplete += 1,
                Err(Without::Ambiguous) => ambiguous += 1,
            }
        }
        let between = |part: fn(&Whole) -> (i64, i64)| {
            let length = |whole: &Whole| {
                let (from, to) = part(whole);
                to.saturating_sub(from)
            };
            whole.iter().map(length).collect::<Vec<i64>>()
        };
        let long = transfer_bins(self.wanted.cycle);
        let driver: BTreeSet<&str> = whole
            .iter()
            .map(|whole| if whole.by_mac { MAC_TRANSMIT } else { Hook::DriverStart.name() })
            .collect();
        let driver = driver.into_iter().map(str::to_owned).collect();
        ProcessingSummary {
            stream: name.to_owned(),
            sent,
            incomplete,
            ambiguous,
            driver,
            transmit: Distribution::of(between(|it| (it.sent_ns, it.driver_ns)), long),
            link: Distribution::of(between(|it| (it.driver_ns, it.stack_ns)), receive_bins()),
            receive: Distribution::of(between(|it| (it.stack_ns, it.received_ns)), receive_bins()),
            transfer: Distribution::of(between(|it| (it.sent_ns, it.received_ns)), long),
        }
    }

    /// Whether a message sent then counts. Without the clocks of the capture all do.
    fn measures(&self, at_ns: i64) -> bool {
        let Some(ahead) = self.tai_ahead_ns else { return true };
        let tai = i128::from(at_ns) + ahead;
        (i128::from(self.wanted.from.as_ns())..i128::from(self.wanted.to.as_ns())).contains(&tai)
    }
}

impl Message {
    /// As it came to one of these stations.
    fn joined(&self, is_there: &dyn Fn(&At) -> bool) -> Result<Whole, Without> {
        let (sent, of) = only(&self.sent)?;
        let received = self.received.iter().filter(|(at, _)| is_there(at));
        let (received, to) = only(&received.copied().collect::<Vec<_>>())?;
        let at_sender = |all: &[At]| -> Vec<At> {
            all.iter().copied().filter(|at| at.station == sent.station).collect()
        };
        let (mac, driver) = (at_sender(&self.mac), at_sender(&self.driver));
        let by_mac = !mac.is_empty();
        let driver = only(if by_mac { &mac } else { &driver })?;
        let here = self.stack.iter().filter(|at| at.station == received.station);
        let stack = here.min_by_key(|at| at.at_ns).ok_or(Without::Incomplete)?;
        let times = [sent.at_ns, driver.at_ns, stack.at_ns, received.at_ns];
        // What is not in this order does not belong together.
        if of != to || sent.station == received.station || !times.is_sorted() {
            return Err(Without::Ambiguous);
        }
        let [sent_ns, driver_ns, stack_ns, received_ns] = times;
        Ok(Whole { sent_ns, driver_ns, stack_ns, received_ns, by_mac })
    }
}

fn only<T: Copy>(all: &[T]) -> Result<T, Without> {
    match all {
        [] => Err(Without::Incomplete),
        [one] => Ok(*one),
        _ => Err(Without::Ambiguous),
    }
}

#[cfg(test)]
mod tests;
