// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handing packets to an interface: each at its launch time, or before it with the launch time
//! beside it.

use std::fmt;

use crate::transmit::{
    LaunchOptions, LaunchRefusal, NotSent, TransmitOptions, Transmitter, Transport, TxReport,
};
use serde::{Deserialize, Serialize};
use timewire_avtp::stream::{Launch, Next};
use timewire_base::{IfName, Instant, SocketPriority, Span, Tai};
use timewire_sys::event::{self, EndRequests};
use timewire_sys::{Sending, clock, sending_of};

use crate::drops::{self, DropCause, Hear, Heard, QdiscCounts, Socket};

use super::{Route, StreamError, Times, TimesSummary};

/// Where a stream leaves, and how.
#[derive(Clone, Debug)]
pub struct Outlet {
    /// The interface.
    pub interface: IfName,
    /// Its frames' header.
    pub route: Route,
    /// The priority of its packets in this host: by it the queueing disciplines choose the class.
    pub priority: SocketPriority,
    /// How long before its launch time each packet is handed to the kernel, which keeps it until
    /// then (`SO_TXTIME`); `None` hands it over at its launch time.
    pub launch: Option<Span>,
}

/// What gives packets and launch times.
pub(super) trait Source {
    /// The next packet when it is time, as the talkers of `timewire-avtp` answer.
    fn next(&mut self, now: Instant<Tai>) -> Next<'_>;
}

/// Packets that did not leave, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchCounts {
    /// The kernel did not take them when they were handed over.
    pub not_taken: u64,
    /// The queueing discipline refused their launch time: past, or not its clock or mode.
    pub launch_invalid: u64,
    /// They waited in the queueing discipline until their launch time was over.
    pub launch_missed: u64,
}

impl LaunchCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.not_taken + self.launch_invalid + self.launch_missed
    }
}

/// What was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Packets handed to the kernel.
    pub packets: u64,
    /// Launch time of the first. **Units**: nanoseconds of TAI.
    pub first_launch_ns: Option<i64>,
    /// Launch time of the last. **Units**: nanoseconds of TAI.
    pub last_launch_ns: Option<i64>,
    /// Those that did not leave.
    pub refused: LaunchCounts,
    /// Why they did not.
    pub drop_causes: Vec<DropCause>,
    /// How long after its time each was handed over: its launch time, less the lead when there is
    /// one.
    pub handed_over_late: Option<TimesSummary>,
    /// It was ended before all was sent.
    pub ended_early: bool,
}

/// An open way out.
pub(super) struct Sender {
    port: Transmitter,
    interface: IfName,
    header: Vec<u8>,
    lead: Option<Span>,
    packets: u64,
    first: Option<Instant<Tai>>,
    last: Option<Instant<Tai>>,
    refused: LaunchCounts,
    socket: Socket,
    heard: Heard,
    before: QdiscCounts,
    late: Times,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("interface", &self.interface).finish_non_exhaustive()
    }
}

/// What an interface takes in one frame.
///
/// **Errors**: no such interface.
pub(super) fn sending(interface: &IfName) -> Result<Sending, StreamError> {
    sending_of(interface)
        .map_err(|source| StreamError::Interface { what: format!("interface {interface}"), source })
}

impl Sender {
    /// Opens the interface.
    ///
    /// **Errors**: no such interface, no privilege, no launch times.
    pub(super) fn open(outlet: &Outlet) -> Result<Sender, StreamError> {
        let source = sending(&outlet.interface)?.address;
        let options = TransmitOptions {
            priority: Some(outlet.priority),
            launch: outlet.launch.map(|_| LaunchOptions::default()),
            ..TransmitOptions::default()
        };
        let transport = Transport::Frames { interface: outlet.interface.clone() };
        let socket = options.socket(Some(outlet.interface.to_string()));
        let before = QdiscCounts::now();
        // A sleep ends 50 us late otherwise; where that is refused, the report shows it.
        let _ = clock::set_timer_slack(Span::from_ns(1));
        Ok(Sender {
            port: Transmitter::open(&transport, &options)?,
            interface: outlet.interface.clone(),
            header: outlet.route.header(source),
            lead: outlet.launch,
            packets: 0,
            first: None,
            last: None,
            refused: LaunchCounts::default(),
            socket,
            heard: Heard::default(),
            before,
            late: Times::default(),
        })
    }

    /// Sends all that a source has, or until someone asks to end.
    ///
    /// **Errors**: the socket cannot be read.
    pub(super) fn run(
        mut self,
        source: &mut dyn Source,
        requests: &EndRequests,
    ) -> Result<Sent, StreamError> {
        let mut looked: Instant<Tai> = clock::now();
        let ended_early = loop {
            let now = clock::now();
            match source.next(now) {
                Next::Packet(launch) => self.put(now, launch),
                Next::At(at) => {
                    self.flush()?;
                    if now - looked > POLL_INTERVAL || at - now > POLL_INTERVAL {
                        looked = now;
                        if rest(at, requests)? {
                            break true;
                        }
                    }
                    clock::sleep_until(at);
                }
                Next::Starved | Next::Done => break false,
            }
        };
        self.done(ended_early)
    }

    /// Sends the rest, waits for what the kernel has to say about it, and tells it all.
    ///
    /// **Errors**: as [`Sender::run`].
    pub(super) fn done(mut self, ended_early: bool) -> Result<Sent, StreamError> {
        self.flush()?;
        if let (Some(last), Some(_)) = (self.last, self.lead) {
            clock::sleep_until(last.saturating_add(AFTERMATH));
            self.flush()?;
        }
        // The send call of those fails as well.
        let invalid = self.refused.launch_invalid;
        self.refused.not_taken = self.refused.not_taken.saturating_sub(invalid);
        Ok(Sent {
            packets: self.packets,
            first_launch_ns: self.first.map(Instant::as_ns),
            last_launch_ns: self.last.map(Instant::as_ns),
            refused: self.refused,
            drop_causes: drops::causes(&[(self.socket, self.heard)], &self.before),
            handed_over_late: self.late.summary(),
            ended_early,
        })
    }

    /// Lets a packet go with the next flush.
    pub(super) fn put(&mut self, now: Instant<Tai>, launch: Launch<'_>) {
        self.packets += 1;
        self.first.get_or_insert(launch.launch_time);
        self.last = Some(launch.launch_time);
        let due = launch.launch_time.saturating_add(-self.lead.unwrap_or(Span::ZERO));
        self.late.record(now - due);
        let length = self.header.len() + launch.bytes.len();
        let at = self.lead.map(|_| launch.launch_time);
        self.heard.past += u64::from(at.is_some_and(|at| at < now));
        let Some(buffer) = self.port.message_buffer(length) else {
            self.refused.not_taken += 1;
            self.heard.again += 1;
            return;
        };
        let (header, payload) = buffer.split_at_mut(self.header.len());
        header.copy_from_slice(&self.header);
        payload.copy_from_slice(launch.bytes);
        if let Err(why) = self.port.send(length, None, at) {
            self.refused.not_taken += 1;
            self.heard.again += u64::from(matches!(why, NotSent::Full));
        }
    }

    /// Hands over what waits, and hears what became of earlier packets.
    ///
    /// **Errors**: the socket cannot be read.
    pub(super) fn flush(&mut self) -> Result<(), StreamError> {
        self.port.flush();
        let (refused, heard) = (&mut self.refused, &mut self.heard);
        let read = self.port.reports(&mut |report| {
            heard.report(&report);
            match report {
                TxReport::NotTaken { .. } => refused.not_taken += 1,
                TxReport::LaunchRefused { why: LaunchRefusal::Invalid, .. } => {
                    refused.launch_invalid += 1;
                }
                TxReport::LaunchRefused { why: LaunchRefusal::Missed, .. } => {
                    refused.launch_missed += 1;
                }
                TxReport::Timestamp { .. } | TxReport::Other { .. } => {}
            }
        });
        read.map_err(|source| StreamError::Interface {
            what: format!("sending on {}", self.interface),
            source,
        })
    }
}

/// How often a request to end is looked for.
const POLL_INTERVAL: Span = Span::from_ms(10);
/// How long after its launch time the kernel has told what became of a packet.
const AFTERMATH: Span = Span::from_ms(10);

/// Waits until shortly before an instant, or for a request to end, and says whether there was one.
///
/// **Errors**: waiting failed.
pub(super) fn rest(until: Instant<Tai>, requests: &EndRequests) -> Result<bool, StreamError> {
    use std::os::fd::AsFd;
    let left = until - clock::now::<Tai>() - POLL_INTERVAL;
    if left > Span::ZERO {
        let waited = event::wait_readable(&[requests.as_fd()], Some(left));
        let what = || "waiting".to_owned();
        waited.map_err(|source| StreamError::Interface { what: what(), source })?;
    }
    Ok(requests.take())
}

/// When a stream begins that is told no time: soon, and where the intervals of both classes begin.
pub(super) fn soon(lead: Span) -> Instant<Tai> {
    let earliest = clock::now::<Tai>().saturating_add(lead).saturating_add(Span::from_ms(50));
    let grid = Span::from_ms(10).as_ns();
    Instant::from_ns((earliest.as_ns() + grid - 1).div_euclid(grid) * grid)
}
