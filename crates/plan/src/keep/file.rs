// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reservations of a plan as JSON Lines: a line for the network, then one for each stream in
//! the order of names, so that files can be compared line by line.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::ser::Formatter;
use timewire_base::Span;

use crate::model::{Arrival, Network, Plan, Problem, Stream, Transmission};

/// The format of a file of reservations, in its first line.
pub const SCHEMA: &str = "timewire.reservations/1";

/// The reservations of the streams that a plan admits, with what each stream asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservations {
    /// The name of the network.
    pub network: String,
    /// By name.
    pub streams: Vec<Reservation>,
}

/// A stream and when its frames start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// The stream's name.
    pub name: String,
    /// Who sends.
    pub talker: String,
    /// Who receives.
    pub listeners: Vec<String>,
    /// One message in each.
    #[serde(rename = "period_ns")]
    pub interval: Span,
    /// Frames of a message.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub frames: u32,
    /// Length of each frame. **Units**: bytes, without the network's overhead.
    pub length_bytes: u32,
    /// Its traffic class.
    pub class: u8,
    /// How many copies go over ways that share no link.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub copies: u32,
    /// Whether messages come at any time, with the interval as the least distance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sporadic: bool,
    /// The first frame starts at the talker not before.
    #[serde(rename = "earliest_ns", default, skip_serializing_if = "is_zero")]
    pub earliest: Span,
    /// Nor after; `None`: anywhere in the interval.
    #[serde(rename = "latest_ns", default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Span>,
    /// The longest allowed latency; `None`: the interval.
    #[serde(rename = "max_latency_ns", default, skip_serializing_if = "Option::is_none")]
    pub latency_max: Option<Span>,
    /// How much the latency may differ; `None`: anything.
    #[serde(rename = "max_jitter_ns", default, skip_serializing_if = "Option::is_none")]
    pub jitter_max: Option<Span>,
    /// When its frames start.
    #[serde(rename = "start_ns")]
    pub starts: Starts,
}

/// When the frames of a stream start on each link, from the start of the stream's interval.
///
/// **Shape**: by copy; by link from the talker outwards, each after the link before it; by frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Starts(pub Vec<Vec<(String, Vec<Span>)>>);

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

fn is_zero(span: &Span) -> bool {
    *span == Span::ZERO
}

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    schema: String,
    network: String,
}

/// What is wrong with a file of reservations, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}\n  remedy: {remedy}")]
pub struct ReservationError {
    /// The file, as it was named.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in bytes.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

impl Reservations {
    /// The reservations of all streams that a plan admits.
    pub fn of(network: &str, problem: &Problem, plan: &Plan) -> Reservations {
        let reservation = |admission: &crate::model::Admission| {
            let stream = problem.stream(admission.stream);
            Reservation::of(problem.network(), stream, &admission.transmissions)
        };
        let mut streams: Vec<Reservation> = plan.admitted.iter().map(reservation).collect();
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        Reservations { network: network.to_owned(), streams }
    }

    /// The text of the file: the same reservations have the same text.
    pub fn to_text(&self) -> String {
        let head = Head { schema: SCHEMA.to_owned(), network: self.network.clone() };
        let mut text = line(&head);
        text.extend(self.streams.iter().map(line));
        text
    }

    /// Reads such a file; `file` is for the messages.
    ///
    /// **Errors**: the first thing that is not understood, with its place.
    pub fn read(file: &str, text: &str) -> Result<Reservations, ReservationError> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let error = |line: usize, column: usize, what: String, remedy: &str| ReservationError {
            file: file.to_owned(),
            line: line + 1,
            column: column.max(1),
            what,
            remedy: remedy.to_owned(),
        };
        let Some((at, first)) = lines.next() else {
            return Err(error(0, 1, "it is empty".to_owned(), HEAD));
        };
        let head: Head = serde_json::from_str(first)
            .map_err(|why| error(at, why.column(), without_place(&why), HEAD))?;
        if head.schema != SCHEMA {
            let what = format!("`{}` is no schema of a plan's reservations", head.schema);
            return Err(error(at, 1, what, HEAD));
        }
        let mut streams: Vec<Reservation> = Vec::new();
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for (at, line) in lines {
            let read: Reservation = serde_json::from_str(line)
                .map_err(|why| error(at, why.column(), without_place(&why), STREAM))?;
            read.check().map_err(|(what, remedy)| {
                error(at, 1, format!("stream {}: {what}", read.name), remedy)
            })?;
            if let Some(before) = names.insert(read.name.clone(), at) {
                let what = format!("stream {} is in line {} already", read.name, before + 1);
                return Err(error(at, 1, what, "remove one of the two lines"));
            }
            streams.push(read);
        }
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Reservations { network: head.network, streams })
    }
}

/// What the first line is, and the others.
const HEAD: &str = "the first line is {\"schema\": \"timewire.reservations/1\", \"network\": \
                    \"NAME\"}; `timewire plan FILE --out PLAN` writes such a file";
const STREAM: &str = "a line is {\"name\": ..., \"talker\": ..., \"listeners\": [...], \
                      \"period_ns\": ..., \"length_bytes\": ..., \"class\": ..., \"start_ns\": \
                      {\"LINK\": START, ...}}";

/// The words of serde_json without the place, which is that in the line.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    if error.is_data() { what.to_owned() } else { format!("this is no JSON: {what}") }
}

/// The longest interval, and the latest start that is read. **Units**: ns.
const LONGEST_NS: i64 = 1_000_000_000_000;

impl Reservation {
    fn of(network: &Network, stream: &Stream, sent: &[Transmission]) -> Reservation {
        let node = |id| network.node(id).name.clone();
        let latency_max = Some(stream.latency_max).filter(|most| *most != stream.interval);
        Reservation {
            name: stream.name.clone(),
            talker: node(stream.talker),
            listeners: stream.listeners.iter().map(|id| node(*id)).collect(),
            interval: stream.interval,
            frames: stream.frames,
            length_bytes: stream.length_bytes,
            class: stream.priority,
            copies: stream.copies.into(),
            sporadic: stream.arrival == Arrival::Sporadic,
            earliest: stream.release.earliest,
            latest: stream.release.latest,
            latency_max,
            jitter_max: stream.jitter_max,
            starts: Starts::of(network, sent),
        }
    }

    /// **Errors**: a number out of its bounds, with what would be right.
    fn check(&self) -> Result<(), (String, &'static str)> {
        let ns = self.interval.as_ns();
        if !(1..=LONGEST_NS).contains(&ns) {
            return Err((format!("period_ns is {ns}"), "1 to 1000000000000"));
        }
        if self.length_bytes == 0 || self.length_bytes > crate::model::MAX_BYTES {
            let what = format!("length_bytes is {}", self.length_bytes);
            return Err((what, "at least 1 and at most 16 MiB"));
        }
        let copies = usize::try_from(self.copies).unwrap_or(usize::MAX);
        if self.starts.0.len() != copies {
            let what = format!("start_ns has {} ways for {copies} copies", self.starts.0.len());
            return Err((what, "a group of links, or with `copies` a list of as many groups"));
        }
        for (link, starts) in self.starts.0.iter().flatten() {
            if u32::try_from(starts.len()) != Ok(self.frames) {
                let (have, want) = (starts.len(), self.frames);
                let what = format!("link {link} has {have} starts for {want} frames");
                return Err((what, "a start for each frame, in a list where there are several"));
            }
            if let Some(wrong) = starts.iter().find(|at| !(0..=LONGEST_NS).contains(&at.as_ns())) {
                let what = format!("link {link} has the start {}", wrong.as_ns());
                return Err((what, "0 to 1000000000000 ns"));
            }
        }
        if self.starts.0.iter().any(Vec::is_empty) {
            return Err(("start_ns has no link".to_owned(), "each link of the way with its start"));
        }
        Ok(())
    }
}

impl Starts {
    /// Of a stream's transmissions, which are in the order of a plan.
    pub(super) fn of(network: &Network, sent: &[Transmission]) -> Starts {
        let copies = sent.chunk_by(|a, b| a.copy == b.copy);
        let links = |copy: &[Transmission]| {
            let links = copy.chunk_by(|a, b| a.link == b.link);
            links
                .map(|frames| {
                    let link = network.link(frames[0].link).name.clone();
                    (link, frames.iter().map(|frame| frame.start).collect())
                })
                .collect()
        };
        Starts(copies.map(links).collect())
    }

    /// When the first frame starts at the talker.
    pub fn first(&self) -> Option<Span> {
        self.0.first()?.first()?.1.first().copied()
    }
}

/// One line of JSON, with a blank behind each comma and colon.
fn line<T: Serialize>(value: &T) -> String {
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, Spaced);
    value.serialize(&mut writer).expect("invariant: texts and numbers are JSON");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("invariant: JSON is UTF-8")
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

/// The links of a copy.
struct Way<'a>(&'a [(String, Vec<Span>)]);

impl Serialize for Way<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (link, starts) in self.0 {
            match starts.as_slice() {
                [start] => map.serialize_entry(link, start)?,
                several => map.serialize_entry(link, several)?,
            }
        }
        map.end()
    }
}

impl Serialize for Starts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [way] => Way(way).serialize(serializer),
            several => serializer.collect_seq(several.iter().map(|way| Way(way))),
        }
    }
}

impl<'de> Deserialize<'de> for Starts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Starts, D::Error> {
        from.deserialize_any(AnyStarts)
    }
}

struct AnyStarts;

impl<'de> Visitor<'de> for AnyStarts {
    type Value = Starts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a group of links with their starts, or a list of such groups")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Starts, A::Error> {
        let mut links: Vec<(String, Vec<Span>)> = Vec::new();
        while let Some((link, Frames(starts))) = from.next_entry::<String, Frames>()? {
            if links.iter().any(|(before, _)| *before == link) {
                return Err(A::Error::custom(format!("link `{link}` is there twice")));
            }
            links.push((link, starts));
        }
        Ok(Starts(vec![links]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Starts, A::Error> {
        let mut ways = Vec::new();
        while let Some(Starts(mut way)) = from.next_element()? {
            match (way.pop(), way.is_empty()) {
                (Some(way), true) => ways.push(way),
                _ => return Err(A::Error::custom("a list of ways in a list of ways")),
            }
        }
        Ok(Starts(ways))
    }
}

/// The starts of the frames on a link.
struct Frames(Vec<Span>);

impl<'de> Deserialize<'de> for Frames {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Frames, D::Error> {
        from.deserialize_any(AnyFrames)
    }
}

struct AnyFrames;

impl<'de> Visitor<'de> for AnyFrames {
    type Value = Frames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a start in whole nanoseconds, or a list of them, one for each frame")
    }

    fn visit_u64<E: serde::de::Error>(self, ns: u64) -> Result<Frames, E> {
        let start =
            i64::try_from(ns).map_err(|_| E::custom(format!("the start {ns} is too late")))?;
        Ok(Frames(vec![Span::from_ns(start)]))
    }

    fn visit_i64<E: serde::de::Error>(self, ns: i64) -> Result<Frames, E> {
        Ok(Frames(vec![Span::from_ns(ns)]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Frames, A::Error> {
        let mut starts = Vec::new();
        while let Some(start) = from.next_element()? {
            starts.push(start);
        }
        Ok(Frames(starts))
    }
}
