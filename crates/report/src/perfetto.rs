// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A timeline as a file for Perfetto: one file for all hosts, whose clocks are already one.
//!
//! Tracks are nested as `host > station > line`; what overlaps on a line is on tracks of the same
//! name, which Perfetto shows as one. Every stage is a slice, every queue a counter, every window
//! of a station a slice. The slices of a packet path carry its number as the flow, so that arrows
//! lead from host to host. Names and numbers of fields are those of Perfetto's `TracePacket`.
//!
//! **Source**: perfetto v0.59 protos/perfetto/trace/{trace_packet,clock_snapshot}.proto and
//! track_event/{track_event,track_descriptor,counter_descriptor,debug_annotation}.proto.
//!
//! Perfetto has no name for a scale that several hosts share; the file calls it `BOOTTIME`, its
//! default, and says how far UTC is ahead where that is known. There is no machine in it
//! (`machine_id`): that would have Perfetto translate clocks of hosts once more.

use crate::timeline::{Flow, Lane, LaneKind, TimelineInput, rows};

/// The file.
///
/// The same timeline gives the same bytes.
pub fn file(input: &TimelineInput) -> Vec<u8> {
    let base = input.span_ns().map_or(0, |(from, _)| from.min(0));
    let mut writer = Writer { out: Vec::new(), base };
    let (from, _) = input.span_ns().unwrap_or_default();
    writer.clocks(from, input.utc_ahead_ns);
    let (rows, counts) = rows(&input.intervals, input.lanes.len());
    let tracks = writer.tracks(input, &counts);
    let mut timed = Timed::default();
    stages(&mut timed, input, &rows, &tracks);
    for mark in &input.events {
        let mut event = Message::default();
        event.number(TYPE, INSTANT).number(TRACK_UUID, tracks[mark.lane][0]);
        event.text(NAME, &input.names[mark.name]);
        if let Some(number) = mark.packet_path {
            event.fixed(FLOW_IDS, flow(number));
        }
        timed.push(mark.at_ns, &event);
    }
    for band in &input.bands {
        let track = tracks[band.lane][0];
        timed.slice((band.from_ns, band.to_ns), track, &input.names[band.name], |_| {});
    }
    for count in &input.counts {
        let mut event = Message::default();
        event.number(TYPE, COUNTER).number(TRACK_UUID, tracks[count.lane][0]);
        event.number(COUNTER_VALUE, count.value);
        timed.push(count.at_ns, &event);
    }
    writer.timed(timed);
    writer.out
}

/// What stands before everything: what was lost, which streams have one number, what is shown.
fn about(input: &TimelineInput) -> impl Iterator<Item = &str> {
    input.losses.iter().chain(&input.clashes).chain(&input.extent).map(String::as_str)
}

/// What the file is of: what was lost, then what is in it, then how large it is; a line each, for a
/// terminal.
pub fn said(input: &TimelineInput, file: &[u8]) -> String {
    let mut out = String::new();
    for line in about(input) {
        out += line;
        out.push('\n');
    }
    out += &format!("{} bytes for ui.perfetto.dev or trace_processor\n", file.len());
    out
}

fn stages(timed: &mut Timed, input: &TimelineInput, rows: &[usize], tracks: &[Vec<u64>]) {
    // The last slice of a packet path ends its flow.
    let mut last = std::collections::BTreeMap::new();
    for (at, interval) in input.intervals.iter().enumerate() {
        if let Some(number) = interval.packet_path {
            last.insert(number, at);
        }
    }
    for (at, interval) in input.intervals.iter().enumerate() {
        let track = tracks[interval.lane][rows[at]];
        let (from, to) = (interval.from_ns, interval.to_ns);
        let end = to.max(from);
        timed.slice((from, end), track, &input.names[interval.name], |event| {
            let Some(number) = interval.packet_path else { return };
            let ends = last.get(&number) == Some(&at);
            event.fixed(if ends { TERMINATING_FLOW_IDS } else { FLOW_IDS }, flow(number));
            event.argument("packet_path", |note| note.number(UINT_VALUE, number));
            let found = input.packet_paths.binary_search_by_key(&number, |path| path.number);
            if let (true, Ok(found)) = (ends, found) {
                whole(event, &input.packet_paths[found]);
            }
            if to < from {
                // Two clocks disagree; a slice cannot end before it begins.
                let ns = to.saturating_sub(from);
                event.argument("ns", |note| note.signed(INT_VALUE, ns));
            }
            if interval.bound_ns > 0 {
                event.argument("bound_ns", |note| note.number(UINT_VALUE, interval.bound_ns));
            }
        });
    }
}

/// What is known of a packet path as a whole, as arguments of its last slice.
fn whole(event: &mut Message, path: &Flow) {
    event.argument("state", |note| note.text(STRING_VALUE, &path.state));
    event.argument("flow", |note| note.text(STRING_VALUE, &path.flow));
    event.argument("end_to_end_ns", |note| note.signed(INT_VALUE, path.length_ns));
    if path.bound_ns > 0 {
        event.argument("end_to_end_bound_ns", |note| note.number(UINT_VALUE, path.bound_ns));
    }
    if !path.sentence.is_empty() {
        event.argument("why", |note| note.text(STRING_VALUE, &path.sentence));
    }
}

/// Flow 0 is none.
fn flow(number: u64) -> u64 {
    number.wrapping_add(1)
}

// Trace
const PACKET: u32 = 1;
// TracePacket
const CLOCK_SNAPSHOT: u32 = 6;
const TIMESTAMP: u32 = 8;
const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
const TRACK_EVENT: u32 = 11;
const TRACK_DESCRIPTOR: u32 = 60;
// ClockSnapshot, ClockSnapshot.Clock
const CLOCKS: u32 = 1;
const CLOCK_ID: u32 = 1;
const CLOCK_TIMESTAMP: u32 = 2;
const REALTIME: u64 = 1;
const BOOTTIME: u64 = 6;
// TrackDescriptor
const UUID: u32 = 1;
const TRACK_NAME: u32 = 2;
const PARENT_UUID: u32 = 5;
const TRACK_COUNTER: u32 = 8;
const CHILD_ORDERING: u32 = 11;
const SIBLING_ORDER_RANK: u32 = 12;
const DESCRIPTION: u32 = 14;
const EXPLICIT: u64 = 3;
// CounterDescriptor
const UNIT_NAME: u32 = 6;
// TrackEvent
const DEBUG_ANNOTATIONS: u32 = 4;
const TYPE: u32 = 9;
const TRACK_UUID: u32 = 11;
const NAME: u32 = 23;
const COUNTER_VALUE: u32 = 30;
const FLOW_IDS: u32 = 47;
const TERMINATING_FLOW_IDS: u32 = 48;
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
// DebugAnnotation
const UINT_VALUE: u32 = 3;
const INT_VALUE: u32 = 4;
const STRING_VALUE: u32 = 6;
const ANNOTATION_NAME: u32 = 10;

/// A protocol buffers message while it is written.
///
/// **Source**: protobuf.dev, "Encoding".
#[derive(Clone, Debug, Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 127).expect("invariant: seven bits");
            value >>= 7;
            if value == 0 {
                self.bytes.push(low);
                return;
            }
            self.bytes.push(low | 128);
        }
    }

    fn tag(&mut self, field: u32, wire: u64) {
        self.varint((u64::from(field) << 3) | wire);
    }

    fn number(&mut self, field: u32, value: u64) -> &mut Message {
        self.tag(field, 0);
        self.varint(value);
        self
    }

    fn signed(&mut self, field: u32, value: i64) -> &mut Message {
        self.number(field, u64::from_le_bytes(value.to_le_bytes()))
    }

    fn fixed(&mut self, field: u32, value: u64) -> &mut Message {
        self.tag(field, 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn text(&mut self, field: u32, text: &str) -> &mut Message {
        self.bytes(field, text.as_bytes())
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Message {
        self.tag(field, 2);
        self.varint(u64::try_from(bytes.len()).expect("invariant: memory is below 2^64 bytes"));
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// An argument, which Perfetto shows with the slice.
    fn argument(&mut self, name: &str, fill: impl FnOnce(&mut Message) -> &mut Message) {
        self.message(DEBUG_ANNOTATIONS, |note| {
            fill(note.text(ANNOTATION_NAME, name));
        });
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) -> &mut Message {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.bytes)
    }
}

/// Events with their time and where they are in `bytes`, which has one after the other. Those of a
/// track are put in its order, which sorting keeps.
#[derive(Default)]
struct Timed {
    events: Vec<(i64, std::ops::Range<usize>)>,
    bytes: Vec<u8>,
}

impl Timed {
    fn push(&mut self, at_ns: i64, event: &Message) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&event.bytes);
        self.events.push((at_ns, start..self.bytes.len()));
    }

    fn slice(
        &mut self,
        (from, to): (i64, i64),
        track: u64,
        name: &str,
        fill: impl FnOnce(&mut Message),
    ) {
        let mut begin = Message::default();
        begin.number(TYPE, SLICE_BEGIN).number(TRACK_UUID, track).text(NAME, name);
        fill(&mut begin);
        self.push(from, &begin);
        let mut end = Message::default();
        end.number(TYPE, SLICE_END).number(TRACK_UUID, track);
        self.push(to, &end);
    }
}

struct Writer {
    out: Vec<u8>,
    /// What is 0 in the file: below zero, there are no times.
    base: i64,
}

impl Writer {
    fn packet(&mut self, fill: impl FnOnce(&mut Message)) {
        let mut packet = Message::default();
        packet.number(TRUSTED_PACKET_SEQUENCE_ID, 1);
        fill(&mut packet);
        let mut outer = Message { bytes: std::mem::take(&mut self.out) };
        outer.bytes(PACKET, &packet.bytes);
        self.out = outer.bytes;
    }

    fn at(&self, ns: i64) -> u64 {
        let since = i128::from(ns) - i128::from(self.base);
        u64::try_from(since).expect("invariant: nothing is before the base")
    }

    fn clocks(&mut self, from: i64, utc_ahead_ns: Option<i64>) {
        let at = self.at(from);
        let utc = utc_ahead_ns.and_then(|ahead| from.checked_add(ahead));
        let utc = utc.and_then(|utc| u64::try_from(utc).ok());
        self.packet(|packet| {
            packet.number(TIMESTAMP, at).message(CLOCK_SNAPSHOT, |snapshot| {
                for (clock, time) in [(BOOTTIME, Some(at)), (REALTIME, utc)] {
                    let Some(time) = time else { continue };
                    snapshot.message(CLOCKS, |one| {
                        one.number(CLOCK_ID, clock).number(CLOCK_TIMESTAMP, time);
                    });
                }
            });
        });
    }

    /// Writes what tracks there are; the numbers of each line's.
    fn tracks(&mut self, input: &TimelineInput, rows: &[usize]) -> Vec<Vec<u64>> {
        let mut next = 1;
        let mut number = || {
            next += 1;
            next - 1
        };
        let said = about(input).collect::<Vec<_>>().join("; ");
        let mut hosts = Vec::new();
        for (rank, host) in (0..).zip(&input.hosts) {
            let uuid = number();
            let bound = match host.bound_ns {
                0 => String::new(),
                ns => format!(" (clock +-{ns} ns)"),
            };
            let name = format!("{}{bound}", host.name);
            self.track(&Track { uuid, name: &name, about: &said, rank, ..Track::default() });
            hosts.push(uuid);
        }
        let mut station: Option<(&Lane, u64)> = None;
        let mut tracks = Vec::new();
        for (rank, (lane, rows)) in (0..).zip(input.lanes.iter().zip(rows)) {
            let host = hosts.get(lane.host).copied();
            let same =
                |&(one, _): &(&Lane, u64)| (one.host, &one.station) == (lane.host, &lane.station);
            let parent = match station.filter(same) {
                Some((_, uuid)) => Some(uuid),
                None if lane.station.is_empty() => host,
                None => {
                    let uuid = number();
                    let name = &lane.station;
                    self.track(&Track { uuid, parent: host, name, rank, ..Track::default() });
                    station = Some((lane, uuid));
                    Some(uuid)
                }
            };
            let is_counter = lane.kind == LaneKind::Queue;
            let own: Vec<u64> = (0..(*rows).max(1)).map(|_| number()).collect();
            for &uuid in &own {
                let name = &lane.name;
                self.track(&Track { uuid, parent, name, is_counter, rank, about: "" });
            }
            tracks.push(own);
        }
        tracks
    }

    fn track(&mut self, track: &Track<'_>) {
        self.packet(|packet| {
            packet.message(TRACK_DESCRIPTOR, |out| {
                out.number(UUID, track.uuid).text(TRACK_NAME, track.name);
                if let Some(parent) = track.parent {
                    out.number(PARENT_UUID, parent);
                }
                out.number(CHILD_ORDERING, EXPLICIT).number(SIBLING_ORDER_RANK, track.rank);
                if track.is_counter {
                    out.message(TRACK_COUNTER, |counter| {
                        counter.text(UNIT_NAME, "frames");
                    });
                }
                if !track.about.is_empty() {
                    out.text(DESCRIPTION, track.about);
                }
            });
        });
    }

    fn timed(&mut self, mut timed: Timed) {
        timed.events.sort_by_key(|(at, _)| *at);
        for (at, event) in timed.events {
            let at = self.at(at);
            self.packet(|packet| {
                packet.number(TIMESTAMP, at).bytes(TRACK_EVENT, &timed.bytes[event]);
            });
        }
    }
}

#[derive(Default)]
struct Track<'a> {
    uuid: u64,
    parent: Option<u64>,
    name: &'a str,
    is_counter: bool,
    rank: u64,
    about: &'a str,
}
