// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timestamps the messages of somebody else's program at its host: where the interface sends or
//! receives the frame. The program need not know of it.
//!
//! A message has no number of ours, so its record has a number by its content. Whoever has the
//! records of both ends tells messages apart that have the same.

use std::io;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use timewire_base::wire::Frame;
use timewire_base::{Mono, Span};
use timewire_capture::record::{Record, TimestampPoint};
use timewire_sys::filter::FrameFilter;
use timewire_sys::packet::{FrameDirection, Observed, PacketSocket};
use timewire_sys::{clock, interface_with_address};

use crate::observe::content_number;
use crate::record::Recorder;
use crate::traffic::Task;
use crate::{kernel_timestamp_as_tai, now};

/// Room for messages that wait. **Units**: bytes.
const BUFFER: u32 = 8 << 20;
/// Messages taken at a time.
const BATCH: usize = 32;
/// How often waiting messages are taken; their timestamps are the kernel's.
const POLL_INTERVAL: Span = Span::from_ms(5);

/// Whose messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Between {
    /// The talker.
    pub from: Ipv4Addr,
    /// The listener.
    pub to: Ipv4Addr,
}

/// Which end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The talker's: timestamp point `Send`, as the frame leaves the interface's queueing
    /// discipline.
    Talker,
    /// The listener's: timestamp point `Receive`, as the kernel has the frame.
    Listener,
}

/// Records each UDP message from the talker to the task's port of the listener that the interface
/// with the task's address sends or receives, until `drain` after the end. Fragments are none.
///
/// **Errors**: no interface has the address, or no privilege (CAP_NET_RAW).
pub fn monitor(
    task: &Task,
    between: Between,
    end: End,
    drain: Span,
    recorder: &Recorder,
) -> io::Result<()> {
    let interface = interface_with_address(task.address)?;
    let (direction, point) = match end {
        End::Talker => (FrameDirection::Sent, TimestampPoint::Send),
        End::Listener => (FrameDirection::Received, TimestampPoint::Receive),
    };
    let filter = FrameFilter { udp_port: Some(task.port.get()), ..FrameFilter::default() };
    let mut socket = PacketSocket::observing(interface, direction, &filter, BUFFER)?;
    let tai_offset = clock::tai_offset();
    let until = task.end + drain;
    let mut batch = [Observed::default(); BATCH];
    loop {
        let is_over = now() >= until;
        if !is_over {
            clock::sleep_until(clock::now::<Mono>() + POLL_INTERVAL);
        }
        loop {
            let count = socket.observe(&mut batch)?;
            for frame in batch[..count].iter().filter(|frame| between.has(frame)) {
                match record(frame, point, task.station, tai_offset) {
                    Some(record) => recorder.push(record),
                    None => recorder.add_lost(1),
                }
            }
            if count == 0 {
                break;
            }
        }
        if is_over {
            recorder.add_lost(u64::from(socket.take_drops()?));
            return Ok(());
        }
    }
}

impl Between {
    fn has(&self, frame: &Observed) -> bool {
        let ip = Frame::parse(&frame.prefix[..frame.prefix_len]).and_then(|frame| frame.ip());
        ip.is_some_and(|ip| ip.addresses() == (self.from.into(), self.to.into()))
    }
}

fn record(
    frame: &Observed,
    point: TimestampPoint,
    station: u8,
    tai_offset: Span,
) -> Option<Record> {
    let at = kernel_timestamp_as_tai(frame.timestamp?, tai_offset);
    Some(Record {
        at_ns: at.as_ns(),
        seq: content_number(&frame.prefix[..frame.prefix_len])?,
        frame_len: u16::try_from(frame.length).unwrap_or(u16::MAX),
        point,
        station,
        flow: 0,
        flags: 0,
        clock: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_messages_are_those_of_the_talker_to_the_listener() {
        let [alpha, beta, gamma] = [1, 2, 3].map(|last| Ipv4Addr::new(10, 77, 0, last));
        let frame = |from: Ipv4Addr, to: Ipv4Addr| {
            let mut observed = Observed { length: 60, prefix_len: 60, ..Observed::default() };
            observed.prefix[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
            observed.prefix[16..18].copy_from_slice(&46_u16.to_be_bytes());
            observed.prefix[23] = 17;
            observed.prefix[26..30].copy_from_slice(&from.octets());
            observed.prefix[30..34].copy_from_slice(&to.octets());
            observed
        };
        let between = Between { from: alpha, to: beta };
        assert!(between.has(&frame(alpha, beta)));
        for (from, to) in [(alpha, gamma), (gamma, beta), (beta, alpha)] {
            assert!(!between.has(&frame(from, to)), "{from} to {to}");
        }
        let arp = Observed { length: 60, prefix_len: 60, ..Observed::default() };
        assert!(!between.has(&arp));
    }
}
