// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Talkers and listeners: machines that are told the time.
//!
//! A talker's `next(now)` answers with a packet and its launch time, with the time to ask again, or
//! with the end. A listener's `receive(now, packet)` says what became of the packet, and its
//! `present(now)` what is to be presented by now; both count in [`StreamCounters`].
//!
//! Not here: what a packet says ([`crate::pdu`]), files ([`crate::media`]), the Ethernet header.

mod aaf;
mod control;
mod crf;
mod cvf;
mod order;
mod pace;

pub use aaf::{AafListener, AafListenerConfig, AafTalker, AafTalkerConfig, ByteOrder, Sound, Tail};
pub use control::{Control, ControlFormat, ControlListener, ControlTalker};
pub use crf::{CrfListener, CrfTalker, CrfTalkerConfig};
pub use cvf::{AccessUnit, CvfListener, CvfListenerConfig, CvfTalker, CvfTalkerConfig};

use timewire_base::{Instant, Tai};

/// A packet that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch<'a> {
    /// When it is to be sent.
    pub launch_time: Instant<Tai>,
    /// When its payload is to be presented; `None` when it does not say.
    pub presentation_time: Option<Instant<Tai>>,
    /// The packet, after the EtherType.
    pub bytes: &'a [u8],
}

/// What a talker has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// This, now.
    Packet(Launch<'a>),
    /// Nothing before this time.
    At(Instant<Tai>),
    /// A packet is due, its media is not there.
    Starved,
    /// Nothing any more.
    Done,
}

/// What a listener does with packets that come after their presentation time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// They are counted and discarded, as a player must.
    #[default]
    Discard,
    /// They are counted and presented all the same, as a recorder may.
    Keep,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It will be presented.
    Kept,
    /// Another stream's.
    OtherStream,
    /// This stream's, in a format that is not this stream's.
    OtherFormat,
    /// It was here before.
    Duplicate,
    /// It came after its presentation time, or after it was given up.
    Late,
    /// It is further ahead than there is room for.
    TooFar,
    /// It is longer than there is room for.
    TooLong,
}

/// What a listener counted, in packets.
///
/// `received` is `presented` + `duplicates` + `discarded` + those still waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Of this stream and format.
    pub received: u64,
    /// Handed on.
    pub presented: u64,
    /// Not there when they were to be presented, for whatever reason.
    pub lost: u64,
    /// Received more than once.
    pub duplicates: u64,
    /// Received after one with a higher number.
    pub reordered: u64,
    /// Received after their presentation time, or after they were given up.
    pub late: u64,
    /// Received and not kept: late, too far ahead or too long.
    pub discarded: u64,
    /// Of another stream.
    pub other_stream: u64,
    /// Of this stream in another format.
    pub other_format: u64,
    /// No packet of this kind.
    pub malformed: u64,
    /// How often `mr` toggled, in the order of arrival.
    pub media_restarts: u64,
    /// With a time that the talker does not vouch for (`tu`).
    pub uncertain: u64,
    /// With reserved bits that are not zero.
    pub reserved: u64,
    /// Audio whose timestamp is off the rate of the samples by more than half a packet.
    pub irregular: u64,
}

/// The flags of a received packet, counted.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    media_restart: Option<bool>,
}

impl Flags {
    /// Counts, and says whether the media's clock started anew.
    fn count(
        &mut self,
        counters: &mut StreamCounters,
        media_restart: bool,
        uncertain: bool,
        reserved: &crate::pdu::Reserved,
    ) -> bool {
        counters.received += 1;
        counters.uncertain += u64::from(uncertain);
        counters.reserved += u64::from(!reserved.is_zero());
        let toggled = self.media_restart.is_some_and(|before| before != media_restart);
        self.media_restart = Some(media_restart);
        counters.media_restarts += u64::from(toggled);
        toggled
    }
}
