// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of IEEE 1722 as an interface receives them, each with its time, until something ends it.

use std::os::fd::AsFd;

use crate::listen::{FrameFilter, ReceiveOptions, Receiver, Source};
use serde::{Deserialize, Serialize};
use timewire_avtp::pdu::ETHERTYPE;
use timewire_base::wire::MacAddress;
use timewire_base::{IfName, Instant, Mono, Span, Tai};
use timewire_sys::event::{self, EndRequests};
use timewire_sys::receive::take_group;
use timewire_sys::{clock, interface_index};

use super::sender::sending;
use super::talk::end_requests;
use super::{StreamError, payload};

/// An interface that is listened to.
#[derive(Debug)]
pub struct Inlet {
    interface: IfName,
    receiver: Receiver,
    requests: EndRequests,
}

/// When to end without being asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// So long after the beginning.
    pub duration: Option<Span>,
    /// After so many packets of the stream.
    pub packets: Option<u64>,
    /// When none came for so long, after the first.
    pub idle: Option<Span>,
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Someone asked for it.
    Asked,
    /// The time was over.
    Duration,
    /// All packets came that were waited for.
    Packets,
    /// No more packets came.
    Idle,
    /// The interface went down or away.
    Interface,
}

/// A packet that came.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// When the kernel received it.
    pub at: Instant<Tai>,
    /// Who sent it.
    pub source: MacAddress,
    /// The packet, and what the link padded it with.
    pub payload: &'a [u8],
}

/// How often limits are looked at while nothing comes.
const POLL_INTERVAL: Span = Span::from_ms(100);
/// Addresses, type and two tags.
const HEADERS: u32 = 14 + 2 * 4;
/// No NIC has frames longer than these. **Units**: bytes.
const LONGEST_PAYLOAD: u32 = 9_000;

impl Inlet {
    /// Opens an interface for the packets to one destination, or to any: NICs drop the multicast
    /// frames that nobody asked for.
    ///
    /// **Errors**: no such interface, no privilege.
    pub fn open(interface: &IfName, to: Option<MacAddress>) -> Result<Inlet, StreamError> {
        let filter =
            FrameFilter { ethertype: Some(ETHERTYPE), destination: to, ..FrameFilter::default() };
        let longest = longest_payload(interface)? + HEADERS;
        let options = ReceiveOptions { filter, longest, ..ReceiveOptions::default() };
        let source = Source::Frames { interface: interface.clone() };
        // Before frames come, so that none of them is missed.
        let requests = end_requests()?;
        let receiver = Receiver::open(&source, &options)?;
        // An address of a single station needs no membership.
        if to.is_none_or(MacAddress::is_group) {
            let joined = interface_index(interface)
                .and_then(|index| take_group(receiver.as_fd(), index, to.map(|to| to.0)));
            joined.map_err(|source| StreamError::Interface {
                what: format!("receiving multicast frames of {interface}"),
                source,
            })?;
        }
        Ok(Inlet { interface: interface.clone(), receiver, requests })
    }

    /// Hands over packets until something ends it; `each` says which of them count.
    ///
    /// **Errors**: waiting failed; those of `each` end it.
    pub fn run(
        &mut self,
        limits: Limits,
        each: &mut dyn FnMut(Arrived<'_>) -> Result<bool, StreamError>,
    ) -> Result<Ended, StreamError> {
        let begun: Instant<Mono> = clock::now();
        let (mut last, mut packets, mut failed) = (None, 0, None);
        loop {
            let now: Instant<Mono> = clock::now();
            let mut left = POLL_INTERVAL;
            let ends = [
                (limits.duration.map(|span| begun.saturating_add(span)), Ended::Duration),
                (limits.idle.zip(last).map(|(span, at)| at_plus(at, span)), Ended::Idle),
            ];
            for (at, why) in ends {
                let Some(at) = at else { continue };
                if now >= at {
                    return Ok(why);
                }
                left = left.min(at - now);
            }
            let fds = [self.receiver.as_fd(), self.requests.as_fd()];
            let waited = event::wait_readable(&fds, Some(left));
            waited.map_err(|source| self.broken(source))?;
            let mut count = 0;
            let received = self.receiver.receive(Some(Span::ZERO), &mut |arrival| {
                let is_over = limits.packets.is_some_and(|most| packets >= most);
                let Some(payload) = payload(arrival.bytes) else { return };
                if is_over || failed.is_some() {
                    return;
                }
                let at = arrival.kernel.unwrap_or(arrival.user);
                let source = MacAddress(
                    *arrival.bytes[6..].first_chunk().expect("invariant: it has a payload"),
                );
                match each(Arrived { at, source, payload }) {
                    Ok(true) => (packets, count) = (packets + 1, count + 1),
                    Ok(false) => {}
                    Err(error) => failed = Some(error),
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if received.is_err() {
                return Ok(Ended::Interface);
            }
            if count > 0 {
                last = Some(clock::now::<Mono>());
            }
            if limits.packets.is_some_and(|most| packets >= most) {
                return Ok(Ended::Packets);
            }
            if self.requests.take() {
                return Ok(Ended::Asked);
            }
        }
    }

    /// Packets that this host lost because it was too slow.
    ///
    /// **Errors**: the kernel does not tell.
    pub fn drops(&mut self) -> Result<u64, StreamError> {
        self.receiver.drops().map_err(|source| self.broken(source))
    }

    fn broken(&self, source: std::io::Error) -> StreamError {
        StreamError::Interface { what: format!("receiving on {}", self.interface), source }
    }
}

fn at_plus(at: Instant<Mono>, span: Span) -> Instant<Mono> {
    at.saturating_add(span)
}

/// The longest payload of a frame that can come.
///
/// **Errors**: no such interface.
pub(super) fn longest_payload(interface: &IfName) -> Result<u32, StreamError> {
    Ok(sending(interface)?.payload.min(LONGEST_PAYLOAD))
}
