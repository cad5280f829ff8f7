// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of a capture as pcapng, for Wireshark and its like.
//!
//! A capture has no frames. What its flows are named for is put into headers again: addresses,
//! protocol and ports. A frame is cut behind them, and is as long as it was; MAC addresses of IP,
//! VLAN tags, the content and all else are not known. Of a packet without a named flow there are no
//! bytes at all. Where packets are received the kernel no longer counts the Ethernet header; it is
//! counted here, as on a device that has one. Where they are dropped either may be.
//!
//! **Shape**: each interface of a station at each hook is an interface of its own, named
//! `STATION:INTERFACE@HOOK`. The timestamps are UTC by the capture's own samples of its clocks;
//! without samples they are those of the capture. The packet's number is its tag, the same wherever
//! the packet was seen; its comment says what else the event knows.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::IpAddr;

use super::{CaptureError, CaptureHeader, ClockSample, Item, Names, Reader};
use crate::event::{Event, Hook};
use crate::filter::{Facts, FlowFacts};
use crate::pcapng::{CaptureClock, Direction, Interface, Packet, PcapngError, Section};

/// Hooks that see packets, and which way those go there. In this order a packet passes them.
const OF_PACKETS: [(Hook, Option<Direction>); 11] = [
    (Hook::DeviceQueue, Some(Direction::Outbound)),
    (Hook::QdiscEnqueue, Some(Direction::Outbound)),
    (Hook::QdiscDequeue, Some(Direction::Outbound)),
    (Hook::DriverStart, Some(Direction::Outbound)),
    (Hook::DriverDone, Some(Direction::Outbound)),
    (Hook::Xdp, Some(Direction::Inbound)),
    (Hook::ReceiveQueue, Some(Direction::Inbound)),
    (Hook::NapiReceive, Some(Direction::Inbound)),
    (Hook::StackReceive, Some(Direction::Inbound)),
    (Hook::SocketQueue, Some(Direction::Inbound)),
    (Hook::Drop, None),
];

/// Hooks that see each packet once on each interface: as it goes, as it comes, and where it was
/// dropped.
pub const ONCE: [Hook; 3] = [Hook::DriverStart, Hook::StackReceive, Hook::Drop];

/// Whether packets are seen at a hook, so that [`export_packets`] can write them.
pub fn sees_packets(hook: Hook) -> bool {
    OF_PACKETS.iter().any(|(known, _)| *known == hook)
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketsReport {
    /// Packets.
    pub packets: u64,
    /// Of those, without any bytes: their flow has no name.
    pub without_bytes: u64,
}

/// Writes the packets that were seen at these hooks; the names are of the same capture
/// ([`super::Info::read`]).
///
/// **Errors**: source or sink fails.
pub fn export_packets<R: Read, W: Write>(
    reader: &mut Reader<R>,
    names: &Names,
    hooks: &[Hook],
    out: &mut W,
) -> Result<PacketsReport, CaptureError> {
    let header = reader.header().clone();
    let to_utc = ToUtc::new(&names.clocks);
    let mut blocks = Blocks { out, block: vec![0; 512] };
    let os = format!("Linux {}", header.kernel);
    let comment = "headers are made of the names of flows; MAC addresses of IP, VLAN tags and \
                   content are not known";
    let section = Section { hardware: &header.host, os: &os, application: &header.writer, comment };
    blocks.put(|block| section.write(block))?;
    let of = |name: &String| FlowFacts::of_name(name).map(|flow| headers(flow.facts()));
    let known = names.flows.iter().filter_map(|(flow, name)| Some((*flow, of(name)?)));
    let known: BTreeMap<u32, Headers> = known.collect();
    let mut interfaces: BTreeMap<(u8, u32, Hook), u32> = BTreeMap::new();
    let mut report = PacketsReport::default();
    while let Some(item) = reader.next()? {
        let Item::Event(event) = item else { continue };
        let seen = OF_PACKETS.iter().find(|(hook, _)| *hook == event.hook);
        let Some((_, direction)) = seen.filter(|_| hooks.contains(&event.hook)) else { continue };
        let next = u32::try_from(interfaces.len()).unwrap_or(u32::MAX);
        let place = (event.station, event.interface, event.hook);
        let interface = *interfaces.entry(place).or_insert(next);
        if interface == next {
            let name = interface_name(&event, &header);
            let clock = to_utc.clock();
            let interface =
                Interface { name: &name, description: "Timewire trace", snap_len: 0, clock };
            blocks.put(|block| interface.write(block))?;
        }
        let flow = known.get(&event.flow()).filter(|_| event.tag != 0);
        let length = match direction {
            Some(Direction::Inbound) => event.length.saturating_add(ETHERNET_BYTES),
            _ => event.length,
        };
        let mut frame = flow.map(|headers| headers.of(length)).unwrap_or_default();
        frame.truncate(usize::from(length));
        report.packets += 1;
        report.without_bytes += u64::from(flow.is_none());
        let comment = comment_of(&event, names, &header);
        let packet = Packet {
            interface,
            at_ns: to_utc.at(event.at_ns),
            frame: &frame,
            original_len: u32::from(length),
            direction: *direction,
            packet_id: Some(event.tag).filter(|tag| *tag != 0),
            comment: &comment,
        };
        blocks.put(|block| packet.write(block))?;
    }
    Ok(report)
}

/// Blocks on their way out.
struct Blocks<'a, W> {
    out: &'a mut W,
    block: Vec<u8>,
}

impl<W: Write> Blocks<'_, W> {
    fn put(
        &mut self,
        write: impl Fn(&mut [u8]) -> Result<usize, PcapngError>,
    ) -> Result<(), CaptureError> {
        let length = match write(&mut self.block) {
            Err(PcapngError::NoRoom { needed, .. }) => {
                self.block.resize(needed, 0);
                write(&mut self.block)
            }
            other => other,
        };
        let length = length.map_err(|error| CaptureError::Io(std::io::Error::other(error)))?;
        Ok(self.out.write_all(&self.block[..length])?)
    }
}

fn interface_name(event: &Event, header: &CaptureHeader) -> String {
    let station = header.stations.get(usize::from(event.station));
    let interface = station.and_then(|station| station.interfaces.get(&event.interface));
    let station = station.map_or("(no station)", |station| &station.name);
    let hook = event.hook.name();
    match interface {
        Some(interface) => format!("{station}:{interface}@{hook}"),
        None => format!("{station}:{}@{hook}", event.interface),
    }
}

fn comment_of(event: &Event, names: &Names, header: &CaptureHeader) -> String {
    let mut text = format!("CPU {}", event.cpu);
    if event.thread != 0 {
        text += &match names.threads.get(&event.thread) {
            Some(name) => format!(", thread {name} ({})", event.thread),
            None => format!(", thread {}", event.thread),
        };
    }
    match event.hook {
        Hook::Drop => text += &format!(", dropped: {}", header.reason(event.aux)),
        Hook::DriverStart => text += &format!(", queue {}", event.aux),
        Hook::DriverDone if event.aux.cast_signed() != 0 => {
            text += &format!(", the driver said {}", event.aux.cast_signed());
        }
        Hook::QdiscEnqueue | Hook::QdiscDequeue => {
            let handle = u32::try_from(event.aux >> 32).unwrap_or(0);
            let kind = names.qdiscs.get(&(event.station, event.interface, handle));
            text += &format!(", {} {:x}:", kind.map_or("qdisc", String::as_str), handle >> 16);
            let waiting = event.aux & 0xffff_ffff;
            if waiting != 0xffff_ffff {
                text += &format!(", {waiting} frames in it");
            }
        }
        _ => {}
    }
    text
}

/// From the capture's clock to UTC.
struct ToUtc {
    /// By time: from when on, and how far UTC is ahead.
    samples: Vec<(u64, i64)>,
}

impl ToUtc {
    fn new(clocks: &[ClockSample]) -> ToUtc {
        let each = clocks.iter().map(|sample| (sample.monotonic_ns, sample.realtime_ahead_ns));
        let mut samples: Vec<(u64, i64)> = each.collect();
        samples.sort_unstable();
        ToUtc { samples }
    }

    fn clock(&self) -> CaptureClock {
        if self.samples.is_empty() { CaptureClock::Other } else { CaptureClock::Utc }
    }

    /// By the last sample before it; before all, by the first.
    fn at(&self, ns: u64) -> i64 {
        let before = self.samples.partition_point(|(since, _)| *since <= ns);
        let ahead = self.samples.get(before.saturating_sub(1)).map_or(0, |(_, ahead)| *ahead);
        i64::try_from(ns).unwrap_or(i64::MAX).saturating_add(ahead)
    }
}

/// The headers of a flow's frames, as far as they are known. The lengths in them are put in for
/// each frame.
#[derive(Clone, Debug)]
struct Headers {
    bytes: Vec<u8>,
    /// What is behind the Ethernet header.
    network: Network,
    udp: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Ip4,
    Ip6,
    Other,
}

const ETHERNET: usize = 14;
const ETHERNET_BYTES: u16 = 14;
const IP4: usize = 20;
const IP6: usize = 40;
const UDP: usize = 8;
const HOP_LIMIT: u8 = 64;

fn headers(facts: &Facts) -> Headers {
    let mut bytes = Vec::with_capacity(ETHERNET + IP6 + UDP);
    bytes.extend(facts.ether_destination.0);
    bytes.extend(facts.ether_source.0);
    bytes.extend(facts.ether_type.to_be_bytes());
    let (Some(addresses), Some(protocol)) = (facts.addresses, facts.protocol) else {
        return Headers { bytes, network: Network::Other, udp: false };
    };
    let network = match addresses {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend([0x45, 0, 0, 0, 0, 0, 0, 0, HOP_LIMIT, protocol, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            Network::Ip4
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            bytes.extend([0x60, 0, 0, 0, 0, 0, protocol, HOP_LIMIT]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            Network::Ip6
        }
        _ => return Headers { bytes, network: Network::Other, udp: false },
    };
    let udp = protocol == 17 && facts.ports.is_some();
    if let Some((from, to)) = facts.ports {
        // TCP and SCTP begin with the ports, too, and what follows is not known.
        bytes.extend(from.to_be_bytes());
        bytes.extend(to.to_be_bytes());
        if udp {
            bytes.extend([0; 4]);
        }
    }
    Headers { bytes, network, udp }
}

impl Headers {
    /// The bytes of a frame of this length.
    fn of(&self, length: u16) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let behind = |header: usize| {
            let header = u16::try_from(header).expect("invariant: a hundred at most");
            length.saturating_sub(header).to_be_bytes()
        };
        let payload = match self.network {
            Network::Ip4 => {
                bytes[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&behind(ETHERNET));
                let sum = checksum(&bytes[ETHERNET..ETHERNET + IP4]).to_be_bytes();
                bytes[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum);
                ETHERNET + IP4
            }
            Network::Ip6 => {
                bytes[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&behind(ETHERNET + IP6));
                ETHERNET + IP6
            }
            Network::Other => return bytes,
        };
        if self.udp {
            bytes[payload + 4..payload + 6].copy_from_slice(&behind(payload));
        }
        bytes
    }
}

/// Of an IP header whose own checksum is 0 (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).expect("invariant: folded twice")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{event, written};
    use super::super::{Info, Note};
    use super::*;
    use crate::event::Flags;
    use crate::pcapng::tests::read;

    const FLOW: u32 = 0x1234_5678;

    fn of(hook: Hook, at_ns: u64, flow: u32, length: u16) -> Event {
        let tag = u64::from(flow) << 32 | u64::from(flow != 0);
        Event { hook, tag, length, aux: 2, flags: Flags::default(), ..event(at_ns, 0) }
    }

    fn exported(events: &[Event], notes: &[Note], hooks: &[Hook]) -> (PacketsReport, Vec<u8>) {
        let bytes = written(events, notes, 10);
        let (_, names) = Info::read(&mut Reader::new(&bytes[..]).unwrap()).unwrap();
        let mut out = Vec::new();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        let report = export_packets(&mut reader, &names, hooks, &mut out).unwrap();
        (report, out)
    }

    fn clocks(monotonic_ns: u64, realtime_ahead_ns: i64) -> Note {
        let (tai_ahead_ns, error_ns) = (37_000_000_000, 10);
        Note::Clocks(ClockSample {
            monotonic_ns,
            realtime_ahead_ns,
            tai_ahead_ns,
            error_ns,
            offset_ns: None,
        })
    }

    #[test]
    fn t1_packets_have_interfaces_times_numbers_and_headers() {
        let notes = [
            Note::Flow { flow: FLOW, name: "stream 3, UDP 10.0.0.1:7000 > 10.0.0.2:7001".into() },
            Note::Thread { thread: 100, name: "talk".into() },
            clocks(100, 1_000_000_000_000),
            clocks(200, 1_000_000_000_007),
        ];
        let events = [
            of(Hook::DriverStart, 150, FLOW, 60),
            of(Hook::SocketSend, 160, FLOW, 18),
            of(Hook::StackReceive, 210, FLOW, 46),
            of(Hook::Drop, 220, 0, 90),
        ];
        let (report, out) = exported(&events, &notes, &ONCE);
        assert_eq!(report, PacketsReport { packets: 3, without_bytes: 1 });
        let blocks = read(&out);
        let kinds: Vec<u32> = blocks.iter().map(|block| block.kind).collect();
        assert_eq!(kinds[1..], [1, 6, 1, 6, 1, 6]);
        let name = |block: usize| String::from_utf8(blocks[block].options[&2].clone()).unwrap();
        let names = [name(1), name(3), name(5)];
        assert_eq!(
            names,
            ["alpha:eth0@driver-start", "alpha:eth0@stack-receive", "alpha:eth0@drop"]
        );
        let word = |block: usize, at: usize| {
            u64::from(u32::from_le_bytes(blocks[block].fixed[at..at + 4].try_into().unwrap()))
        };
        let time = |block: usize| word(block, 4) << 32 | word(block, 8);
        assert_eq!(
            [time(2), time(4), time(6)],
            [1_000_000_000_150, 1_000_000_000_217, 1_000_000_000_227]
        );
        // Headers only, and as long as it was.
        assert_eq!([word(2, 12), word(2, 16)], [42, 60]);
        assert_eq!([word(4, 12), word(4, 16)], [42, 60]);
        assert_eq!([word(6, 12), word(6, 16)], [0, 90]);
        // IPv4: 46 bytes, and a checksum that makes the sum all ones; UDP: 26.
        let frame = &blocks[2].fixed[20..62];
        assert_eq!((frame[16], frame[17], frame[38], frame[39]), (0, 46, 0, 26));
        assert_eq!(checksum(&frame[14..34]), 0);
        let facts = Facts::of_frame(frame).unwrap();
        assert_eq!(facts.ports, Some((7000, 7001)));
        // The same number wherever it was seen; none without a flow.
        assert_eq!(blocks[2].options[&5], blocks[4].options[&5]);
        assert!(!blocks[6].options.contains_key(&5));
        let said = |block: usize| String::from_utf8(blocks[block].options[&1].clone()).unwrap();
        assert_eq!(said(2), "CPU 1, thread talk (100), queue 2");
        assert_eq!(said(6), "CPU 1, thread talk (100), dropped: unknown reason 2 (subsystem 0)");
        // In the low two bits of the flags: 1 for those that came, 2 for those that went.
        let ways = [2, 4].map(|block| blocks[block].options[&2][0] & 3);
        assert_eq!(ways, [2, 1]);
    }

    #[test]
    fn t0_without_samples_the_time_is_the_captures_own() {
        let (_, out) = exported(&[of(Hook::DriverStart, 150, 0, 60)], &[], &ONCE);
        let blocks = read(&out);
        assert_eq!(blocks[2].fixed[8..12], 150_u32.to_le_bytes());
    }

    #[test]
    fn t0_only_hooks_that_see_packets_are_written() {
        let all: Vec<Event> =
            Hook::ALL.into_iter().zip(1..).map(|(hook, at)| of(hook, at, FLOW, 60)).collect();
        let (report, _) = exported(&all, &[], &Hook::ALL);
        assert_eq!(report, PacketsReport { packets: 11, without_bytes: 11 });
        assert!(ONCE.into_iter().all(sees_packets) && !sees_packets(Hook::Waking));
    }

    proptest! {
        /// What a name says is in the headers that are made of it, whatever the length.
        #[test]
        fn t0_headers_say_what_the_flow_is_named(
            name in prop_oneof![
                Just("TCP 10.0.0.1:80 > 10.255.0.2:65535"),
                Just("UDP [fd00::1]:7000 > [fe80::2]:7001"),
                Just("SCTP 1.2.3.4:9 > 4.3.2.1:10"),
                Just("IP 50 10.0.0.1 > 10.0.0.2"),
                Just("0x88f7 02:00:00:00:00:01 > 01:1b:19:00:00:00"),
            ],
            length: u16,
        ) {
            let named = FlowFacts::of_name(name).unwrap();
            let headers = headers(named.facts());
            let frame = headers.of(length);
            let mut read = Facts::of_frame(&frame).unwrap();
            // Where lengths and checksums are is tested above.
            read.kind = named.facts().kind;
            prop_assert_eq!(&read, named.facts());
            prop_assert!(frame.len() <= ETHERNET + IP6 + UDP);
        }
    }
}
