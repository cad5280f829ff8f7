// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The observer of a shared segment: sees every frame that each station puts on it, timestamped by
//! the kernel where it arrives. In the laboratory that is the hub, and the timestamp is taken in
//! the sender's own call, before anything is queued: later than the release by that call only.
//!
//! Works with CAP_NET_RAW alone.

use std::io;

use serde::{Deserialize, Serialize};
use timewire_base::wire::{Frame, MacAddress};
use timewire_base::{IfName, Instant, Mono, Port, Span, Tai};
use timewire_capture::identity::identify;
use timewire_capture::record::{Record, TimestampPoint};
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};
use timewire_sys::{clock, interface_index};

use crate::message::seq_of;
use crate::record::Recorder;
use crate::{kernel_timestamp_as_tai, now};

/// Buffer per hub port: a busy segment for a second.
const BUFFER: u32 = 16 << 20;
/// Frames taken at a time from one port.
const BATCH: usize = 32;
/// How often waiting frames are taken. Their timestamps are the kernel's, and the buffer holds many
/// times as much, so that nobody is woken for every single frame.
const POLL_INTERVAL: Span = Span::from_ms(5);

/// An interface at which frames of the segment arrive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedPort {
    /// The interface.
    pub interface: IfName,
    /// The index, in the record file's list, of the only station behind it; without, each frame is
    /// of the station that has its source address.
    pub station: Option<u8>,
}

/// A port whose messages are known. Of the one with the index `i` in a list, flow `2 i` of the
/// record file is the messages to it, flow `2 i + 1` the answers from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredPort {
    /// The port.
    pub port: Port,
    /// Its messages have no number of ours and are known by their content; nothing is an answer.
    pub by_content: bool,
}

/// The index of the station that a frame is of, by its source address; that of none, which is
/// behind the last, for others.
fn sender(captured: &[u8], stations: &[MacAddress]) -> u8 {
    let source = Frame::parse(captured).map(|frame| frame.source());
    let known = stations.iter().position(|station| Some(*station) == source);
    u8::try_from(known.unwrap_or(stations.len())).unwrap_or(u8::MAX)
}

/// Records every frame until `end`. `addresses` are those of the stations, in the order of the
/// record file's list.
///
/// **Errors**: no such interface, or no privilege.
pub fn observe(
    hub: &[ObservedPort],
    addresses: &[MacAddress],
    ports: &[MeasuredPort],
    end: Instant<Tai>,
    recorder: &Recorder,
) -> io::Result<()> {
    let options = PacketOptions { receive: true, timestamps: true, buffer_bytes: BUFFER };
    let mut sockets = Vec::new();
    for port in hub {
        let interface = interface_index(&port.interface)?;
        sockets.push((port.station, PacketSocket::open(interface, options)?));
    }
    let tai_offset = clock::tai_offset();
    let mut batch = [Observed::default(); BATCH];
    loop {
        let over = now() >= end;
        if !over {
            clock::sleep_until(clock::now::<Mono>() + POLL_INTERVAL);
        }
        for (station, socket) in &mut sockets {
            // Everything that waits is taken; at the end, up to the first frame after it.
            let mut more = true;
            while more {
                let count = socket.observe(&mut batch)?;
                more = count > 0;
                for frame in &batch[..count] {
                    match frame
                        .timestamp
                        .map(|timestamp| kernel_timestamp_as_tai(timestamp, tai_offset))
                    {
                        Some(at) if at < end => {
                            let captured = &frame.prefix[..frame.prefix_len];
                            let station = station.unwrap_or_else(|| sender(captured, addresses));
                            recorder.push(record(frame, at, station, ports));
                        }
                        Some(_) => more = false,
                        None => recorder.add_lost(1),
                    }
                }
            }
        }
        if over {
            break;
        }
    }
    for (_, socket) in &mut sockets {
        recorder.add_lost(u64::from(socket.take_drops()?));
    }
    Ok(())
}

fn record(frame: &Observed, at: Instant<Tai>, station: u8, ports: &[MeasuredPort]) -> Record {
    let mut record = Record {
        at_ns: at.as_ns(),
        seq: 0,
        frame_len: u16::try_from(frame.length).unwrap_or(u16::MAX),
        point: TimestampPoint::Segment,
        station,
        flow: Record::NO_FLOW,
        flags: 0,
        clock: 0,
    };
    let captured = &frame.prefix[..frame.prefix_len];
    let length = usize::try_from(frame.length).unwrap_or(usize::MAX);
    let Some(found) = Frame::parse(captured).and_then(|frame| frame.ports(length)) else {
        return record;
    };
    let known = |measured: &MeasuredPort| {
        let port = measured.port.get();
        found.destination == port || (found.source == port && !measured.by_content)
    };
    let Some(index) = ports.iter().position(known) else { return record };
    let measured = &ports[index];
    let content = captured.get(found.content_at..).unwrap_or_default();
    let seq = match measured.by_content {
        true => content_number(captured),
        false => seq_of(content),
    };
    if let Some(seq) = seq {
        let response = !measured.by_content && found.source == measured.port.get();
        let flow = 2 * index + usize::from(response);
        record.flow = u16::try_from(flow).unwrap_or(Record::NO_FLOW);
        record.seq = seq;
    }
    record
}

/// A number that a message has everywhere and that few others have, by its content: for messages
/// of programs that number nothing themselves. `frame` may be cut off behind what headers take.
pub(crate) fn content_number(frame: &[u8]) -> Option<u32> {
    let low = identify(frame, None)?.tag & u64::from(u32::MAX);
    u32::try_from(low).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An untagged IPv4 UDP frame with the mark of a measured message.
    fn frame(source: u16, destination: u16, seq: u32) -> Observed {
        let mut observed = Observed { length: 50, prefix_len: 50, ..Observed::default() };
        let bytes = &mut observed.prefix;
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14] = 0x45;
        bytes[16..18].copy_from_slice(&36_u16.to_be_bytes());
        bytes[23] = 17;
        bytes[34..36].copy_from_slice(&source.to_be_bytes());
        bytes[36..38].copy_from_slice(&destination.to_be_bytes());
        bytes[38..40].copy_from_slice(&16_u16.to_be_bytes());
        crate::message::timestamp(&mut bytes[42..50], seq);
        observed
    }

    #[test]
    fn t0_flows_are_known_by_port_and_direction() {
        let port = |port, by_content| MeasuredPort { port: Port::new(port).unwrap(), by_content };
        let ports = [port(15_001, false), port(16_001, false), port(18_001, true)];
        let at = Instant::from_ns(7);
        let of = |observed: &Observed| {
            let record = record(observed, at, 2, &ports);
            (record.flow, record.seq, record.station, record.frame_len)
        };
        assert_eq!(of(&frame(40_000, 15_001, 9)), (0, 9, 2, 50));
        assert_eq!(of(&frame(15_001, 40_000, 9)), (1, 9, 2, 50));
        assert_eq!(of(&frame(40_000, 16_001, 9)), (2, 9, 2, 50));
        assert_eq!(of(&frame(40_000, 17_001, 9)), (Record::NO_FLOW, 0, 2, 50));
        let mut flood = frame(40_000, 15_001, 9);
        flood.prefix[46] = 0;
        assert_eq!(of(&flood), (Record::NO_FLOW, 0, 2, 50));
        // Of a program that numbers nothing: the same content has the same number, also behind a
        // tag, and what comes from its port is no answer.
        let mut own = frame(40_000, 18_001, 9);
        own.prefix[42..50].copy_from_slice(b"anything");
        let (flow, number, ..) = of(&own);
        assert_eq!(flow, 4);
        let mut other = own;
        other.prefix[49] ^= 1;
        assert_ne!(of(&other).1, number);
        let mut tagged = own;
        tagged.prefix[12..16].copy_from_slice(&[0x81, 0, 0x60, 5]);
        tagged.prefix[16..54].copy_from_slice(&own.prefix[12..50]);
        (tagged.length, tagged.prefix_len) = (54, 54);
        assert_eq!(of(&tagged), (4, number, 2, 54));
        assert_eq!(of(&frame(18_001, 40_000, 9)).0, Record::NO_FLOW);
    }

    #[test]
    fn t0_stations_are_known_by_the_source_of_their_frames() {
        let stations = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
        let from = |last: u8| {
            let mut bytes = frame(1, 2, 3).prefix[..50].to_vec();
            bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, last]);
            bytes
        };
        assert_eq!([1, 2, 3].map(|last| sender(&from(last), &stations)), [0, 1, 2]);
        assert_eq!(sender(&[], &stations), 2, "too short");
    }
}
