// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages from one station to another to which nothing comes back, at a fixed period or at any
//! time: the keys, what is measured, and what must hold between the keys.

use timewire_base::{Port, Priority, Span, StationName};

use super::item::Reader;
use super::model::{Measured, MessageFlow, StreamClass, filled};
use super::network::{NetDelay, NetDrawn};
use super::value::{ByteCount, Name};

/// A measured stream: the talker sends a message in each period, and nothing comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cyclic {
    /// Name of the stream.
    pub name: Name,
    /// The station that sends.
    pub talker: StationName,
    /// The station that receives.
    pub listeners: StationName,
    /// Length of the messages (UDP payload).
    pub size: ByteCount,
    /// From one message to the next. Of messages that are due while the talker waits for its
    /// slot, or wakes up late, all but the latest are left out, and counted as skipped.
    pub period: Span,
    /// When a message is due: so long after each whole multiple of the period (TAI).
    pub offset: Span,
    /// Its transmit and receive queue in the cases that use priorities, 1 first. A stream with
    /// a priority is a real-time stream: its programs run with a real-time policy. Without,
    /// it is best effort.
    pub priority: Option<Priority>,
    /// UDP port of the listener; no other stream may use it. Without, the next free one from
    /// 15001 on.
    pub port: Option<Port>,
    /// A message that arrives later than this after it was sent is counted as late; without it,
    /// one period.
    pub deadline: Option<Span>,
    /// In which loads of the experiment the stream runs; without it, in all.
    pub loads: Option<Vec<Name>>,
}

/// A measured stream: the talker sends messages at any time, with a gap before the next, and
/// nothing comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sporadic {
    /// Name of the stream.
    pub name: Name,
    /// The station that sends.
    pub talker: StationName,
    /// The station that receives.
    pub listeners: StationName,
    /// Length of the messages (UDP payload).
    pub size: ByteCount,
    /// From one message to the next; the same `seed` gives the same gaps in every place.
    pub gap: NetDelay,
    /// Its transmit and receive queue in the cases that use priorities, 1 first. A stream with
    /// a priority is a real-time stream: its programs run with a real-time policy. Without,
    /// it is best effort.
    pub priority: Option<Priority>,
    /// UDP port of the listener; no other stream may use it. Without, the next free one from
    /// 15001 on.
    pub port: Option<Port>,
    /// A message that arrives later than this after it was sent is counted as late; without it,
    /// none is.
    pub deadline: Option<Span>,
    /// In which loads of the experiment the stream runs; without it, in all.
    pub loads: Option<Vec<Name>>,
}

impl Cyclic {
    /// UDP port of the listener.
    ///
    /// **Panics**: never, of a file that was read.
    pub fn port(&self) -> Port {
        filled(self.port)
    }

    /// Whether it goes before others.
    pub fn class(&self) -> StreamClass {
        StreamClass::of(self.priority)
    }

    pub(super) fn measured(&self) -> Measured<'_> {
        Measured {
            name: self.name.clone(),
            class: self.class(),
            deadline: self.deadline.unwrap_or(self.period),
            size: self.size,
            period: Some(self.period),
            way: MessageFlow::OneWay { port: self.port() },
            senders: vec![&self.talker],
        }
    }
}

impl Sporadic {
    pub(super) fn measured(&self) -> Measured<'_> {
        Measured {
            name: self.name.clone(),
            class: StreamClass::of(self.priority),
            deadline: self.deadline.unwrap_or(Span::ZERO),
            size: self.size,
            period: None,
            way: MessageFlow::OneWay { port: filled(self.port) },
            senders: vec![&self.talker],
        }
    }
}

pub(super) fn check_sporadic(reader: &mut Reader, at: &str, stream: &Sporadic) {
    if let NetDelay::Drawn(NetDrawn::Recorded(_)) = &stream.gap {
        let message = "recorded times are read by the simulator of networks alone".to_owned();
        let key = format!("{at}.gap");
        reader.fail_at(&key, message, "write the times: `{ kind: empirical, times: [...] }`");
    }
    deadline(reader, at, stream.deadline);
}

fn deadline(reader: &mut Reader, at: &str, deadline: Option<Span>) {
    if deadline == Some(Span::ZERO) {
        let message = "a deadline of 0ns is missed by every message".into();
        reader.fail_at(&format!("{at}.deadline"), message, "one period is usual");
    }
}

pub(super) fn check_cyclic(reader: &mut Reader, at: &str, stream: &Cyclic) {
    if stream.offset >= stream.period {
        let message = format!("an offset of {} is no part of {}", stream.offset, stream.period);
        reader.fail_at(&format!("{at}.offset"), message, "write less than the `period`");
    }
    deadline(reader, at, stream.deadline);
}
