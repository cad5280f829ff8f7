// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a talker's clock may be from this host's: a latency is a difference of the two, and is
//! told with that bound or not at all.
//!
//! The clock is one where the talker is known to be on this host: it sends from an address of the
//! listener's network namespace. Namespaces of one kernel share its clock, too, but the messages do
//! not say that they come from one.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, UdpSocket};

use crate::listen::{Source, StreamSource};
use serde::{Deserialize, Serialize};
use timewire_base::wire::MacAddress;
use timewire_base::{IfName, Span};
use timewire_capture::record::TimestampPoint;
use timewire_sys::own_link_addresses;

/// By what the bound is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockBasis {
    /// Both ends have the same clock.
    OneClock,
    /// The user said it.
    Stated,
    /// It is not known.
    Unknown,
}

/// How far two clocks are apart at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockBound {
    /// By what it is known.
    pub basis: ClockBasis,
    /// The bound; `null` where it is not known. **Units**: nanoseconds.
    pub error_ns: Option<i64>,
    /// Why no difference of the two is told; `null` where the bound is known.
    pub reason: Option<String>,
}

const UNKNOWN: &str = "clock error unknown; not shown (state it with --clock-error)";

impl ClockBound {
    /// Of one clock.
    pub fn one() -> ClockBound {
        ClockBound { basis: ClockBasis::OneClock, error_ns: Some(0), reason: None }
    }

    /// As the user says, or unknown if nothing is said.
    pub fn stated(error: Option<Span>) -> ClockBound {
        match error {
            Some(error) => ClockBound {
                basis: ClockBasis::Stated,
                error_ns: Some(error.as_ns()),
                reason: None,
            },
            None => ClockBound {
                basis: ClockBasis::Unknown,
                error_ns: None,
                reason: Some(UNKNOWN.to_owned()),
            },
        }
    }

    /// In words.
    pub fn describe(&self) -> String {
        match (self.basis, self.error_ns) {
            (ClockBasis::OneClock, _) => "one clock".to_owned(),
            (_, Some(error)) => {
                format!("clock error ±{}, as --clock-error states", Span::from_ns(error))
            }
            (_, None) => self.reason.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
        }
    }

    /// How far a clock is off from what gives the time, by a comparison with its own error: both,
    /// or the bound that was stated, or neither.
    pub fn off_by(&self, compared: Option<(i64, i64)>, giver: &str) -> String {
        let stated = || match self.basis {
            ClockBasis::Stated => format!("; {}", self.describe()),
            ClockBasis::OneClock | ClockBasis::Unknown => String::new(),
        };
        match (compared, self.error_ns) {
            (Some((offset, error)), _) => {
                let (offset, error) = (Span::from_ns(offset), Span::from_ns(error));
                format!("off by {offset} (comparing {error}) from {giver}{}", stated())
            }
            (None, Some(error)) => {
                format!("off by at most {} from {giver}{}", Span::from_ns(error), stated())
            }
            (None, None) => format!("off from {giver}: {}", self.describe()),
        }
    }

    /// A time as text. One that is within the error is told as the most that it can be: nothing
    /// below the error is claimed.
    pub fn within(&self, ns: i64, text: impl Fn(i64) -> String) -> String {
        match self.error_ns {
            Some(error @ 1..) if ns.saturating_abs() <= error => {
                format!("<={}", text(ns.saturating_add(error)))
            }
            _ => text(ns),
        }
    }
}

/// What a listener knows of the clocks of its talkers.
#[derive(Debug)]
pub struct Clocks {
    stated: Option<Span>,
    heard_by: HeardBy,
    /// Whether the times of messages end by the NIC's clock.
    ends_at_nic: bool,
    known: BTreeMap<StreamSource, bool>,
}

/// What of a message's source says that it is sent on this host.
#[derive(Debug)]
enum HeardBy {
    /// Everything: loopback.
    Loopback,
    /// The address of UDP: the kernel lets none come in from elsewhere with an own one.
    Udp,
    /// The address of the frame is one of these.
    Frames(Vec<MacAddress>),
}

impl Clocks {
    /// Of messages of a source whose times end at a timestamp point.
    pub fn new(source: &Source, ends_at: TimestampPoint, stated: Option<Span>) -> Clocks {
        let heard_by = match source {
            Source::Udp(_) => HeardBy::Udp,
            Source::Frames { interface }
            | Source::Ring { interface }
            | Source::Xdp { interface, .. } => match interface.as_str() {
                "lo" => HeardBy::Loopback,
                _ => HeardBy::Frames(own_link_addresses()),
            },
        };
        let ends_at_nic = ends_at == TimestampPoint::RxHw;
        Clocks { stated, heard_by, ends_at_nic, known: BTreeMap::new() }
    }

    /// Of frames on an interface whose times end at the kernel.
    pub fn of_frames(interface: &IfName, stated: Option<Span>) -> Clocks {
        let source = Source::Frames { interface: interface.clone() };
        Clocks::new(&source, TimestampPoint::RxSw, stated)
    }

    /// Of the talker of a stream. A source is looked up once.
    pub fn of(&mut self, source: StreamSource) -> ClockBound {
        let heard_by = &self.heard_by;
        let is_here = self.known.entry(source).or_insert_with(|| match (heard_by, source) {
            (HeardBy::Loopback, _) => true,
            (HeardBy::Udp, StreamSource::Udp(address)) => is_own(address.ip()),
            (HeardBy::Frames(own), StreamSource::Frames(address)) => own.contains(&address),
            // A frame of UDP may say any address.
            (HeardBy::Udp | HeardBy::Frames(_), _) => false,
        });
        match *is_here && !self.ends_at_nic {
            true => ClockBound::one(),
            false => ClockBound::stated(self.stated),
        }
    }

    /// Of the NIC's clock and the host's.
    pub fn of_the_nic(&self) -> ClockBound {
        ClockBound::stated(self.stated)
    }
}

/// Whether it is an address of this network namespace: the kernel binds a socket to no other,
/// unless it is told to, and then nothing is known.
fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let foreign = fs::read_to_string(format!("/proc/sys/net/{family}/ip_nonlocal_bind"));
    foreign.is_ok_and(|text| text.trim() == "0") && UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the comparison that there is and what is stated.
    #[test]
    fn t0_a_clock_that_is_off_is_told_with_its_error_or_not_at_all() {
        let us = Some(Span::from_us(5));
        for (compared, stated, told) in [
            (Some((-40, 7)), None, "off by -40ns (comparing 7ns) from x"),
            (
                Some((-40, 7)),
                us,
                "off by -40ns (comparing 7ns) from x; clock error ±5us, as --clock-error states",
            ),
            (None, us, "off by at most 5us from x; clock error ±5us, as --clock-error states"),
            (
                None,
                None,
                "off from x: clock error unknown; not shown (state it with --clock-error)",
            ),
        ] {
            assert_eq!(ClockBound::stated(stated).off_by(compared, "x"), told);
        }
    }

    use crate::listen::UdpPlace;

    #[test]
    fn t0_the_clock_is_one_only_where_the_source_is_on_this_host() {
        let bind = "0.0.0.0:1".parse().unwrap();
        let udp = Source::Udp(UdpPlace { bind, device: None, group: None });
        let frames = |name: &str| Source::Frames { interface: name.parse().unwrap() };
        let from = |text: &str| StreamSource::Udp(text.parse().unwrap());
        let (here, mapped, there) =
            (from("127.0.0.1:9"), from("[::ffff:127.0.0.1]:9"), from("192.0.2.1:9"));
        let other = StreamSource::Frames(MacAddress([2, 0, 0, 0, 0xfe, 0xfe]));
        let is_there = fs::read_to_string("/proc/sys/net/ipv4/ip_nonlocal_bind");
        if !is_there.is_ok_and(|text| text.trim() == "0") {
            eprintln!("SKIP: any address can be bound here");
            return;
        }
        for (source, ends_at, from, is_one) in [
            (&udp, TimestampPoint::Receive, here, true),
            (&udp, TimestampPoint::Receive, mapped, true),
            (&udp, TimestampPoint::RxSw, here, true),
            (&udp, TimestampPoint::RxHw, here, false),
            (&udp, TimestampPoint::Receive, there, false),
            (&udp, TimestampPoint::Receive, StreamSource::Unknown, false),
            (&frames("lo"), TimestampPoint::Receive, here, true),
            (&frames("nosuch0"), TimestampPoint::Receive, here, false),
            (&frames("nosuch0"), TimestampPoint::Receive, other, false),
            (
                &frames("nosuch0"),
                TimestampPoint::Receive,
                StreamSource::Frames(MacAddress([0; 6])),
                false,
            ),
        ] {
            for stated in [None, Some(Span::from_us(5))] {
                let bound = Clocks::new(source, ends_at, stated).of(from);
                let expected = if is_one { ClockBound::one() } else { ClockBound::stated(stated) };
                assert_eq!(bound, expected, "{source} {ends_at:?} {from}");
                assert_eq!(bound.error_ns.is_none(), bound.reason.is_some());
            }
        }
        for address in own_link_addresses() {
            let mut clocks = Clocks::new(&frames("nosuch0"), TimestampPoint::Receive, None);
            assert_eq!(clocks.of(StreamSource::Frames(address)), ClockBound::one());
        }
    }

    #[test]
    fn t0_nothing_below_the_bound_is_claimed() {
        let bound = ClockBound::stated(Some(Span::from_ns(500)));
        let text = |ns: i64| ns.to_string();
        for (ns, told) in [(501, "501"), (500, "<=1000"), (-500, "<=0"), (-501, "-501")] {
            assert_eq!(bound.within(ns, text), told);
            assert_eq!(ClockBound::one().within(ns, text), ns.to_string());
        }
    }
}
