// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending a file as a stream.

use serde::{Deserialize, Serialize};
use timewire_avtp::pdu::StreamId;
use timewire_avtp::{Reservation, SrClass};
use timewire_base::{Instant, SduLen, Span, Tai};
use timewire_sys::event::EndRequests;

use super::media::{Made, Manner};
use super::sender::{Sender, sending, soon};
use super::{Media, Outlet, Sent, StreamError};

/// A file to be sent, and how.
#[derive(Clone, Debug)]
pub struct TalkSpec {
    /// The stream's name.
    pub stream: StreamId,
    /// Paces the packets.
    pub class: SrClass,
    /// Presentation time less launch time; `None` takes that of the class.
    pub transit: Option<Span>,
    /// When the first packet is launched; `None` for soon.
    pub start: Option<Instant<Tai>>,
    /// Over and over, until it is ended.
    pub repeat: bool,
    /// Samples of every channel in a packet of audio; `None` for those of an interval.
    pub samples_per_packet: Option<u16>,
    /// Where it leaves.
    pub outlet: Outlet,
}

/// A stream that is ready to be sent.
pub struct Plan {
    sender: Sender,
    made: Made,
    requests: EndRequests,
    spec: TalkSpec,
    start: Instant<Tai>,
    media: String,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// What was sent, to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AvtpTalkReport {
    /// `timewire.avtp-talk/1`.
    pub schema: String,
    /// The stream's name.
    pub stream: String,
    /// What it is.
    pub media: String,
    /// Presentation time less launch time; of video, of the end of the frame period.
    pub transit_ns: i64,
    /// Packets, and what became of them.
    pub sent: Sent,
}

/// The `schema` of [`AvtpTalkReport`].
pub const TALK_SCHEMA: &str = "timewire.avtp-talk/1";

/// **Errors**: signals cannot be waited for.
pub(super) fn end_requests() -> Result<EndRequests, StreamError> {
    EndRequests::new()
        .map_err(|error| StreamError::Invalid(format!("cannot wait for signals: {error}")))
}

/// The longest payload of a frame that streams use of an interface.
pub(super) fn mtu(outlet: &Outlet) -> Result<SduLen, StreamError> {
    let payload = sending(&outlet.interface)?.payload.min(LONGEST_FRAME);
    SduLen::new(payload).map_err(|error| StreamError::Invalid(error.to_string()))
}

/// No NIC has frames longer than these; loopback interfaces say 64 KiB. **Units**: bytes.
const LONGEST_FRAME: u32 = 9_000;

impl Plan {
    /// Opens the interface and cuts the file into packets; nothing is sent yet.
    ///
    /// **Errors**: no such interface, no privilege; settings that do not fit the file.
    pub fn new(media: &Media, spec: TalkSpec) -> Result<Plan, StreamError> {
        let lead = spec.outlet.launch.unwrap_or(Span::ZERO);
        let start = spec.start.unwrap_or_else(|| soon(lead));
        let manner = Manner {
            stream: spec.stream,
            class: spec.class,
            transit: spec.transit.unwrap_or(spec.class.max_transit()),
            start,
            lead,
            mtu: mtu(&spec.outlet)?,
            repeat: spec.repeat,
            samples_per_packet: spec.samples_per_packet,
        };
        let made = media.talker(manner)?;
        let sender = Sender::open(&spec.outlet)?;
        let media = format!("{}, {}", media.describe(), made.packing);
        Ok(Plan { sender, made, requests: end_requests()?, spec, start, media })
    }

    /// What the stream is.
    pub fn media(&self) -> &str {
        &self.media
    }

    /// What it reserves.
    pub fn reservation(&self) -> Reservation {
        self.made.reservation
    }

    /// When its first packet is launched.
    pub fn start(&self) -> Instant<Tai> {
        self.start
    }

    /// Sends it, to its end or until someone asks to end.
    ///
    /// **Errors**: the interface failed.
    pub fn run(mut self) -> Result<AvtpTalkReport, StreamError> {
        let sent = self.sender.run(self.made.source.as_mut(), &self.requests)?;
        let transit = self.spec.transit.unwrap_or(self.spec.class.max_transit());
        Ok(AvtpTalkReport {
            schema: TALK_SCHEMA.to_owned(),
            stream: self.spec.stream.to_string(),
            media: self.media,
            transit_ns: transit.as_ns(),
            sent,
        })
    }
}
