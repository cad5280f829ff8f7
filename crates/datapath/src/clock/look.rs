// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One look at the clock and at those who keep it, and what it means for the guard.

use timewire_base::Span;
use timewire_host::clock::client::{Client, ClientError};
use timewire_host::clock::dataset::{
    ClockIdentity, DataSet, DataSetId, PortState, TimeProperties, TimeStatus,
};
use timewire_model::scenario::host::ClockRole;
use timewire_sys::phc::{CrossTimestamp, NicClock, Relation};
use timewire_sys::steering::{self, Steered, Steering};
use timewire_tsn::{Heard, Loss};

/// What there is to look at.
#[derive(Debug)]
pub struct Looked<'a> {
    /// Who is asked.
    pub client: &'a mut Client,
    /// The clock that `ptp4l` steers, when that is a NIC's.
    pub nic: Option<&'a NicClock>,
}

/// What one look showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// What `ptp4l` follows, unless it did not say.
    pub ptp: Result<Followed, String>,
    /// How much the NIC's clock is ahead of the system's, or why it cannot be read; `None` without
    /// a NIC.
    pub nic: Option<Result<(Relation, CrossTimestamp), String>>,
    /// How the system's clock is steered.
    pub kernel: Steering,
}

/// What a `ptp4l` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Who it is.
    pub clock: ClockIdentity,
    /// Who gives the time.
    pub giver: ClockIdentity,
    /// How far it is off.
    pub status: TimeStatus,
    /// What time is given.
    pub time: TimeProperties,
    /// What its ports do.
    pub ports: Vec<PortState>,
}

/// What a guard's owner remembers from one look to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    last_ingress_ns: i64,
    /// It has followed another clock, so by itself it is not the segment's time.
    has_followed: bool,
}

impl Looked<'_> {
    /// Looks.
    ///
    /// **Errors**: the kernel does not say how its clock is. That `ptp4l` does not answer is no
    /// error.
    pub fn look(&mut self) -> std::io::Result<Look> {
        Ok(Look {
            ptp: self.followed().map_err(|error| error.to_string()),
            nic: self.nic.map(|nic| nic.ahead_of_realtime().map_err(|error| error.to_string())),
            kernel: steering::steering(Steered::System)?,
        })
    }

    fn followed(&mut self) -> Result<Followed, ClientError> {
        let default = self.client.default_data_set()?;
        let ports = self.client.ports(&default)?;
        let DataSet::Parent(parent) = self.client.ask(DataSetId::Parent)? else {
            unreachable!("`ask` takes only the data set that it asked about")
        };
        Ok(Followed {
            clock: default.clock,
            giver: parent.grandmaster,
            status: self.client.time_status()?,
            time: self.client.time_properties()?,
            ports: ports.into_iter().map(|port| port.state).collect(),
        })
    }
}

impl Look {
    /// How much the system's clock is ahead of what gives the time, with the error of comparing it;
    /// `None` when nobody can say.
    pub fn offset(&self) -> Option<Relation> {
        let followed = self.ptp.as_ref().ok()?;
        let own = if followed.follows() { followed.status.offset_ns } else { 0 };
        let nic = match &self.nic {
            None => return Some(Relation { ahead: Span::from_ns(own), error: Span::ZERO }),
            // It says nothing about the system's clock, by which slots go.
            Some(Err(_)) => return None,
            Some(Ok((nic, _))) => nic,
        };
        // A NIC has the time of PTP, which is TAI unless the giver says that it is a scale of its
        // own; `phc2sys` goes by the same rule.
        let is_tai = followed.time.flags & TimeProperties::PTP_TIMESCALE != 0;
        let utc_offset_s = if is_tai { followed.time.utc_offset_s } else { 0 };
        let ahead = i64::from(utc_offset_s) * 1_000_000_000 - nic.ahead.as_ns();
        let ahead = own.checked_add(ahead).map_or(Span::MAX, Span::from_ns);
        Some(Relation { ahead, error: nic.error })
    }
}

impl Followed {
    /// Whether it compares itself with another clock. How closely it follows that one, the offset
    /// says: a `ptp4l` that only compares calls itself uncalibrated for ever.
    pub fn follows(&self) -> bool {
        let follows = |state| matches!(state, &PortState::Receiver | &PortState::Uncalibrated);
        self.giver != self.clock && self.ports.iter().any(follows)
    }

    /// Whether it gives the time itself.
    pub fn gives(&self) -> bool {
        let gives = |state| matches!(state, &PortState::Transmitter | &PortState::Grandmaster);
        self.giver == self.clock && self.ports.iter().any(gives)
    }
}

/// What a look means for the guard.
///
/// Who gives the time is on time, but only if that is its part: a clock that has followed another
/// and now gives the time itself has lost it, and the others may follow somebody else.
pub fn heard(look: &Look, role: ClockRole, memory: &mut Memory) -> Heard {
    // By its silence the guard knows.
    let Ok(followed) = &look.ptp else { return Heard::Nothing };
    if matches!(look.nic, Some(Err(_))) {
        return Heard::Lost(Loss::Nic);
    }
    if followed.follows() {
        memory.has_followed = true;
        let segment = followed.time.valid_utc_offset_s();
        if segment.is_some_and(|segment| i32::from(segment) != look.kernel.tai_offset_s) {
            return Heard::Lost(Loss::TaiOffset);
        }
        if followed.status.ingress_ns == memory.last_ingress_ns {
            return Heard::Nothing;
        }
        memory.last_ingress_ns = followed.status.ingress_ns;
    } else {
        let may_give = match role {
            ClockRole::Transmitter => true,
            ClockRole::Auto => !memory.has_followed,
            ClockRole::Receiver => false,
        };
        if !followed.gives() || !may_give {
            return Heard::Lost(Loss::NotFollowing);
        }
    }
    match look.offset() {
        None => Heard::Nothing,
        Some(Relation { ahead, error }) => {
            // The error adds to what it is off, on the side on which it is off.
            let off = ahead.as_ns().saturating_abs().saturating_add(error.as_ns());
            let sign = if ahead.is_negative() { -1 } else { 1 };
            Heard::Offset(Span::from_ns(off * sign))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(ports: &[PortState], giver: u8, status: TimeStatus) -> Look {
        let kernel = Steering {
            frequency: 0,
            offset: Span::ZERO,
            max_error: Span::ZERO,
            estimated_error: Span::ZERO,
            synchronised: true,
            tai_offset_s: 37,
        };
        let time = TimeProperties { utc_offset_s: 37, ..TimeProperties::default() };
        let identity = |last| ClockIdentity([0, 0, 0, 0, 0, 0, 0, last]);
        let ptp = Followed {
            clock: identity(1),
            giver: identity(giver),
            status,
            time,
            ports: ports.to_vec(),
        };
        Look { ptp: Ok(ptp), nic: None, kernel }
    }

    fn off(ns: i64) -> Heard {
        Heard::Offset(Span::from_ns(ns))
    }

    #[test]
    fn t0_a_sample_counts_once() {
        let memory = &mut Memory::default();
        let status = TimeStatus { offset_ns: -70, ingress_ns: 5, ..TimeStatus::default() };
        let follows = look(&[PortState::Receiver], 2, status);
        assert_eq!(heard(&follows, ClockRole::Auto, memory), off(-70));
        assert_eq!(heard(&follows, ClockRole::Auto, memory), Heard::Nothing);
        let silent = Look { ptp: Err("dead".to_owned()), ..follows };
        assert_eq!(heard(&silent, ClockRole::Auto, memory), Heard::Nothing);
    }

    #[test]
    fn t0_a_lone_clock_is_on_time_only_if_that_is_its_part() {
        let alone = look(&[PortState::Transmitter], 1, TimeStatus::default());
        let lost = Heard::Lost(Loss::NotFollowing);
        let fresh = || Memory::default();
        assert_eq!(heard(&alone, ClockRole::Transmitter, &mut fresh()), off(0));
        assert_eq!(heard(&alone, ClockRole::Auto, &mut fresh()), off(0));
        assert_eq!(heard(&alone, ClockRole::Receiver, &mut fresh()), lost);
        let memory = &mut fresh();
        let status = TimeStatus { ingress_ns: 5, ..TimeStatus::default() };
        let _ = heard(&look(&[PortState::Receiver], 2, status), ClockRole::Auto, memory);
        assert_eq!(heard(&alone, ClockRole::Auto, memory), lost);
        for state in [PortState::Listening, PortState::Faulty, PortState::Passive] {
            let idle = look(&[state], 1, TimeStatus::default());
            assert_eq!(heard(&idle, ClockRole::Transmitter, &mut fresh()), lost, "{state}");
        }
    }

    #[test]
    fn t0_the_wrong_tai_offset_is_a_loss_when_the_giver_is_sure() {
        let status = TimeStatus { ingress_ns: 5, ..TimeStatus::default() };
        let mut follows = look(&[PortState::Receiver], 2, status);
        follows.kernel.tai_offset_s = 0;
        assert_eq!(heard(&follows, ClockRole::Auto, &mut Memory::default()), off(0));
        follows.ptp.as_mut().unwrap().time.flags = TimeProperties::UTC_OFFSET_VALID;
        let lost = Heard::Lost(Loss::TaiOffset);
        assert_eq!(heard(&follows, ClockRole::Auto, &mut Memory::default()), lost);
    }

    #[test]
    fn t0_a_nic_that_cannot_be_read_is_a_loss() {
        let status = TimeStatus { offset_ns: 1, ingress_ns: 5, ..TimeStatus::default() };
        let mut follows = look(&[PortState::Receiver], 2, status);
        let memory = &mut Memory::default();
        assert_eq!(heard(&follows, ClockRole::Auto, memory), off(1));
        follows.nic = Some(Err("no such device".to_owned()));
        // At once, not only with the next sample.
        assert_eq!(heard(&follows, ClockRole::Auto, memory), Heard::Lost(Loss::Nic));
        assert_eq!(follows.offset(), None);
        let gives = Look { ptp: look(&[PortState::Grandmaster], 1, status).ptp, ..follows };
        let lost = heard(&gives, ClockRole::Transmitter, &mut Memory::default());
        assert_eq!(lost, Heard::Lost(Loss::Nic));
    }

    #[test]
    fn t0_with_a_nic_the_way_to_the_system_counts_too() {
        let status = TimeStatus { offset_ns: 100, ingress_ns: 5, ..TimeStatus::default() };
        let mut follows = look(&[PortState::Receiver], 2, status);
        let nic = |ns| Relation { ahead: Span::from_ns(ns), error: Span::from_ns(7) };
        // The NIC is 37 s and 30 ns ahead of the system's clock, so that is 30 ns behind.
        follows.nic = Some(Ok((nic(37_000_000_030), CrossTimestamp::Extended)));
        follows.ptp.as_mut().unwrap().time.flags = TimeProperties::PTP_TIMESCALE;
        assert_eq!(heard(&follows, ClockRole::Auto, &mut Memory::default()), off(77));
        follows.nic = Some(Ok((nic(37_000_000_300), CrossTimestamp::Extended)));
        assert_eq!(heard(&follows, ClockRole::Auto, &mut Memory::default()), off(-207));
        // Nothing overflows.
        follows.ptp.as_mut().unwrap().status.offset_ns = i64::MAX;
        assert!(matches!(
            heard(&follows, ClockRole::Auto, &mut Memory::default()),
            Heard::Offset(off) if off > Span::from_secs(1)
        ));
    }
}
