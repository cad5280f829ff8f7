// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A clock as a stream: sent by this host's time, and followed.

use serde::{Deserialize, Serialize};
use timewire_avtp::pdu::{CrfClock, Pdu, StreamId};
use timewire_avtp::stream::{CrfListener, CrfTalker, CrfTalkerConfig, Next, Received};
use timewire_avtp::{AvtpError, Ppb, SrClass};
use timewire_base::wire::MacAddress;
use timewire_base::{IfName, Instant, Span, Tai};

use super::listen::Counters;
use super::margin::Margins;
use super::sender::{Sender, Source, soon};
use super::talk::end_requests;
use super::unread::{Clash, NotUnderstood, Talkers, Unread};
use super::{Arrived, Ended, Inlet, Limits, Outlet, Sent, StreamError, Timeliness};

/// A clock to be sent.
#[derive(Clone, Debug)]
pub struct ClockSpec {
    /// The stream's name.
    pub stream: StreamId,
    /// Which clock it is.
    pub clock: CrfClock,
    /// Timestamps in a packet.
    pub timestamps_per_packet: u16,
    /// How much faster than nominal it runs.
    pub rate: Ppb,
    /// Added to the times of events; `None` takes that of the class.
    pub transit: Option<Span>,
    /// Whose transit time it is.
    pub class: SrClass,
    /// So many packets; `None` goes on until it is ended.
    pub packets: Option<u64>,
    /// Where it leaves.
    pub outlet: Outlet,
}

struct Clock {
    talker: CrfTalker,
    left: Option<u64>,
}

impl Source for Clock {
    fn next(&mut self, now: Instant<Tai>) -> Next<'_> {
        if self.left == Some(0) {
            return Next::Done;
        }
        let next = self.talker.next(now);
        if let (Next::Packet(_), Some(left)) = (&next, &mut self.left) {
            *left -= 1;
        }
        next
    }
}

/// Sends a clock, so many packets of it or until someone asks to end.
///
/// **Errors**: no such interface, no privilege, a clock that cannot be, the interface failed.
pub fn talk(spec: &ClockSpec) -> Result<Sent, StreamError> {
    let lead = spec.outlet.launch.unwrap_or(Span::ZERO);
    let talker = CrfTalker::new(CrfTalkerConfig {
        stream: spec.stream,
        clock: spec.clock,
        timestamps_per_packet: spec.timestamps_per_packet,
        transit: spec.transit.unwrap_or(spec.class.max_transit()),
        start: soon(lead),
        lead,
        rate: spec.rate,
    })?;
    let sender = Sender::open(&spec.outlet)?;
    sender.run(&mut Clock { talker, left: spec.packets }, &end_requests()?)
}

/// A clock to be followed.
#[derive(Clone, Debug)]
pub struct FollowSpec {
    /// The interface.
    pub interface: IfName,
    /// The stream; `None` takes the first clock that is heard.
    pub stream: Option<StreamId>,
    /// Its destination; `None` takes any.
    pub to: Option<MacAddress>,
    /// Timestamps that the rate is judged by, 2 to 1024.
    pub window: usize,
    /// When to end without being asked.
    pub limits: Limits,
    /// How far the talker's clock is from this host's at most; `None`: it is not known, unless the
    /// talker is on this host.
    pub clock_error: Option<Span>,
}

/// What was found of a clock, to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// `timewire.avtp-crf/1`.
    pub schema: String,
    /// The stream's name, when one was heard.
    pub stream: Option<String>,
    /// What the clock is.
    pub media_clock: Option<String>,
    /// Why it ended.
    pub ended: Ended,
    /// Its packets.
    pub packets: Counters,
    /// How much faster than nominal it ran over the window, against this host's TAI.
    ///
    /// **Units**: parts per billion; `None` with fewer than two timestamps.
    pub rate_ppb: Option<i64>,
    /// The last timestamp. **Units**: nanoseconds of TAI.
    pub last_ns: Option<i64>,
    /// How they came, by the clocks of talker and listener; a packet's presentation time is its
    /// last timestamp.
    #[serde(flatten)]
    pub timeliness: Timeliness,
    /// Packets that are not understood, by kind and stream.
    pub not_understood: Vec<NotUnderstood>,
    /// Another talker with the stream's name.
    pub clash: Option<Clash>,
}

/// The `schema` of [`Followed`].
pub const CRF_SCHEMA: &str = "timewire.avtp-crf/1";

/// A clock in words.
fn describe(clock: CrfClock) -> String {
    let CrfClock { kind, pull, base_frequency_hz, interval } = clock;
    let (numerator, denominator) = pull.factor();
    let pull = if numerator == denominator {
        String::new()
    } else {
        format!(" x {numerator}/{denominator}")
    };
    format!("{kind:?} of {base_frequency_hz} Hz{pull}, a timestamp every {interval}")
}

/// Follows a clock, packet by packet, in memory that has a bound.
#[derive(Debug)]
pub struct Follower<'a> {
    spec: &'a FollowSpec,
    following: Option<(StreamId, CrfClock, CrfListener)>,
    margins: Margins,
    unread: Unread,
    talkers: Talkers,
}

impl<'a> Follower<'a> {
    /// One that has heard nothing.
    pub fn new(spec: &'a FollowSpec) -> Follower<'a> {
        Follower {
            spec,
            following: None,
            margins: Margins::new(&spec.interface, spec.clock_error),
            unread: Unread::default(),
            talkers: Talkers::default(),
        }
    }

    fn wanted(&self) -> Option<StreamId> {
        self.following.as_ref().map(|(stream, ..)| *stream).or(self.spec.stream)
    }

    /// Takes a packet; whether it is one of the clock.
    ///
    /// **Errors**: a window that cannot be.
    pub fn take(
        &mut self,
        Arrived { at, source, payload }: Arrived<'_>,
    ) -> Result<bool, StreamError> {
        let crf = match Pdu::parse(payload) {
            Ok(Pdu::Crf(crf)) => crf,
            Ok(other) => {
                self.unread.not_taken(payload, &other, "it is no clock");
                return Ok(false);
            }
            Err(error) => {
                self.unread.failed(payload, error);
                return Ok(false);
            }
        };
        if self.wanted().is_some_and(|stream| stream != crf.stream) {
            return Ok(false);
        }
        if crf.timestamps().is_none() {
            self.unread.not_taken(payload, &Pdu::Crf(crf), "type at byte 3 is one of the user");
            return Ok(false);
        }
        if self.following.is_none() {
            let listener = match CrfListener::new(crf.stream, crf.clock, self.spec.window) {
                Ok(listener) => listener,
                // The window is the user's; all else the packet's.
                Err(error @ AvtpError::Range { .. }) => return Err(error.into()),
                Err(error) => {
                    self.unread.failed(payload, error);
                    return Ok(false);
                }
            };
            self.following = Some((crf.stream, crf.clock, listener));
        }
        let Some((_, _, listener)) = &mut self.following else { return Ok(false) };
        if !self.talkers.is_first(source) {
            return Ok(false);
        }
        let received = listener.receive(at, payload);
        if matches!(received, Ok(Received::Kept | Received::Late))
            && let Some(last) = crf.timestamps().and_then(|times| times.iter().last())
        {
            self.margins.record(source, last - at);
        }
        let counts = !matches!(received, Err(_) | Ok(Received::OtherFormat));
        if !counts {
            let why = "it is of another clock than the first";
            self.unread.not_taken(payload, &Pdu::Crf(crf), why);
        }
        Ok(counts)
    }

    /// What was found, and why it ended.
    pub fn finish(self, ended: Ended) -> Followed {
        let wanted = self.wanted();
        let following = self.following.as_ref();
        let counters = following.map(|(_, _, listener)| listener.counters());
        let last = following.and_then(|(_, _, listener)| listener.last());
        Followed {
            schema: CRF_SCHEMA.to_owned(),
            stream: following.map(|(stream, ..)| stream.to_string()),
            media_clock: following.map(|(_, clock, _)| describe(*clock)),
            ended,
            packets: counters.unwrap_or_default().into(),
            rate_ppb: following.and_then(|(_, _, listener)| listener.rate()).map(Ppb::get),
            last_ns: last.map(Instant::as_ns),
            timeliness: self.margins.told(),
            not_understood: self.unread.told(wanted),
            clash: self.talkers.clash(),
        }
    }
}

/// Follows a clock until a limit is reached or someone asks to end. `tell` is told once when the
/// interface is open.
///
/// **Errors**: no such interface, no privilege, a window that cannot be.
pub fn follow(spec: &FollowSpec, tell: &mut dyn FnMut()) -> Result<Followed, StreamError> {
    let mut inlet = Inlet::open(&spec.interface, spec.to)?;
    let mut follower = Follower::new(spec);
    tell();
    let ended = inlet.run(spec.limits, &mut |arrived| follower.take(arrived))?;
    Ok(follower.finish(ended))
}
