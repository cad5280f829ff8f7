// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Telling a NIC what to timestamp for as long as a program needs it. What it timestamped before is
//! in a journal of its own, so a watchdog restores that when the program is killed.
//!
//! What is timestamped already stays so: a NIC is never told to timestamp less. Of received frames
//! it is told to timestamp all; a NIC that cannot do that, PTP's event messages.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use timewire_base::IfName;
use timewire_sys::nic::{self, TimestampFilters};

use crate::HostError;
use crate::journal::{Inverse, Journal, Kind};

/// What is to be timestamped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamped {
    /// Sent frames that ask for it.
    pub sent: bool,
    /// Received frames.
    pub received: bool,
}

/// A NIC that timestamps what is needed. Ends with [`Timestamping::end`]; dropping it does the
/// same, but says nothing.
#[derive(Debug)]
pub struct Timestamping {
    interface: IfName,
    before: TimestampFilters,
    now: TimestampFilters,
    journal: Option<Journal>,
}

impl Timestamping {
    /// Has the NIC of an interface timestamp.
    ///
    /// **Errors**: it cannot, or the caller may not tell it; it timestamps what it did.
    pub fn begin(interface: &IfName, wanted: Timestamped) -> Result<Timestamping, HostError> {
        let cannot = |error| refused(interface, error);
        let before = nic::timestamp_filters(interface).map_err(cannot)?;
        let as_it_is =
            || Timestamping { interface: interface.clone(), before, now: before, journal: None };
        let choices = choices(before, wanted);
        let is_enough = choices.last() == Some(&before);
        let mut refusal = None;
        for asked in choices {
            if asked == before {
                return Ok(as_it_is());
            }
            let journal = Journal::begin(&format!("what the NIC of {interface} timestamps"))?;
            let entry = journal.record(undo(interface, before, asked))?;
            match nic::set_timestamp_filters(interface, asked) {
                Ok(now) => {
                    if now != asked {
                        // More than was asked for.
                        journal.record(undo(interface, before, now))?;
                        journal.forget(entry)?;
                    }
                    let interface = interface.clone();
                    return Ok(Timestamping { interface, before, now, journal: Some(journal) });
                }
                Err(error) => {
                    journal.forget(entry)?;
                    journal.finish()?;
                    let is_range = error.raw_os_error() == Some(ERANGE);
                    refusal = Some(error);
                    if !is_range && is_enough {
                        return Ok(as_it_is());
                    }
                    if !is_range {
                        break;
                    }
                }
            }
        }
        Err(cannot(refusal.unwrap_or_else(|| io::ErrorKind::Unsupported.into())))
    }

    /// Whether of received frames PTP's only are timestamped.
    pub fn is_ptp_only(&self) -> bool {
        self.now.timestamps_ptp() && !self.now.timestamps_all()
    }

    /// What the NIC timestamps now and did before, in words; `None` when it was not told anything.
    pub fn told(&self) -> Option<String> {
        let Timestamping { interface, before, now, journal } = self;
        journal.as_ref()?;
        Some(format!("the NIC of {interface} timestamps {}, was {}", words(*now), words(*before)))
    }

    /// Has it timestamp what it timestamped before; what was done, in words.
    ///
    /// **Errors**: it could not be restored; the journal stays and is named.
    pub fn end(mut self) -> Result<Option<String>, HostError> {
        let Some(journal) = self.journal.take() else { return Ok(None) };
        let Timestamping { interface, before, now, .. } = &self;
        let is_ours = nic::timestamp_filters(interface).is_ok_and(|filters| filters == *now);
        journal.finish()?;
        Ok(Some(match is_ours {
            true => format!("the NIC of {interface} timestamps {} again", words(*before)),
            false => {
                format!("what the NIC of {interface} timestamps was changed since, and left so")
            }
        }))
    }
}

/// What to ask a NIC for, the best first.
fn choices(before: TimestampFilters, wanted: Timestamped) -> Vec<TimestampFilters> {
    let tx = match wanted.sent && !before.timestamps_sent() {
        true => TimestampFilters::ALL.tx,
        false => before.tx,
    };
    if !wanted.received || before.timestamps_all() {
        return vec![TimestampFilters::of(tx, before.rx)];
    }
    let ptp = if before.timestamps_ptp() { before.rx } else { TimestampFilters::PTP.rx };
    vec![TimestampFilters::of(tx, TimestampFilters::ALL.rx), TimestampFilters::of(tx, ptp)]
}

fn undo(
    interface: &IfName,
    before: TimestampFilters,
    given: TimestampFilters,
) -> RestoreTimestampFilters {
    RestoreTimestampFilters {
        interface: interface.clone(),
        tx: [before.tx, given.tx],
        rx: [before.rx, given.rx],
    }
}

/// Lets a NIC timestamp what it timestamped before, if it still timestamps what it was told to:
/// whoever told it something else since, needs that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "restore_timestamp_filters")]
struct RestoreTimestampFilters {
    /// The interface, in the namespace of the process that undoes.
    interface: IfName,
    /// What it timestamped of sent frames, and what it was told to: `HWTSTAMP_TX_...`.
    tx: [i32; 2],
    /// The same of received frames: `HWTSTAMP_FILTER_...`.
    rx: [i32; 2],
}

/// Of undo logs.
pub(crate) const KIND: Kind = Kind::of::<RestoreTimestampFilters>(&["restore_timestamp_filters"]);

impl Inverse for RestoreTimestampFilters {
    fn undo(&self) -> Result<(), HostError> {
        let RestoreTimestampFilters { interface, tx, rx } = self;
        let [before, given] = [0, 1].map(|index| TimestampFilters::of(tx[index], rx[index]));
        let restored = match nic::timestamp_filters(interface) {
            Ok(now) if now == given => nic::set_timestamp_filters(interface, before).map(drop),
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(()),
            Err(error) => Err(error),
        };
        restored.map_err(|e| HostError::kernel(self.to_string(), e))
    }
}

impl fmt::Display for RestoreTimestampFilters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "let the NIC of {} timestamp what it timestamped before", self.interface)
    }
}

fn words(filters: TimestampFilters) -> String {
    let received = match filters {
        it if it.timestamps_all() => "all received frames".to_owned(),
        it if it.timestamps_ptp() => "received PTP event messages".to_owned(),
        it if it.rx == 0 => "no received frames".to_owned(),
        it => format!("received frames by HWTSTAMP_FILTER {}", it.rx),
    };
    let sent = if filters.timestamps_sent() { "sent frames" } else { "no sent frames" };
    format!("{sent} and {received}")
}

fn refused(interface: &IfName, error: io::Error) -> HostError {
    let why = match error.raw_os_error() {
        Some(EOPNOTSUPP | ENOTTY | EINVAL) => "its driver has no timestamps of the NIC".to_owned(),
        Some(ERANGE) => "neither all frames nor PTP's".to_owned(),
        _ => {
            let what = format!("tell the NIC of {interface} what to timestamp (CAP_NET_ADMIN)");
            return HostError::kernel(what, error);
        }
    };
    HostError::CannotTimestamp { interface: interface.clone(), why }
}

// From linux v6.12 include/uapi/asm-generic: errno-base.h, errno.h.
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOTTY: i32 = 25;
const ERANGE: i32 = 34;
const EOPNOTSUPP: i32 = 95;

#[cfg(test)]
mod tests {
    use timewire_base::Failure as _;

    use super::*;

    const BOTH: Timestamped = Timestamped { sent: true, received: true };

    #[test]
    fn t0_a_nic_is_asked_for_all_then_for_ptp_and_never_for_less() {
        let (off, all, ptp) =
            (TimestampFilters::default(), TimestampFilters::ALL, TimestampFilters::PTP);
        assert_eq!(choices(off, BOTH), [all, ptp]);
        assert_eq!(choices(all, BOTH), [all]);
        // A clock daemon has it timestamp PTP: whether it can do more is tried.
        assert_eq!(choices(ptp, BOTH), [all, ptp]);
        let sent = Timestamped { sent: true, received: false };
        assert_eq!(choices(off, sent), [TimestampFilters::of(1, 0)]);
        assert_eq!(choices(ptp, sent), [ptp]);
        let received = Timestamped { sent: false, received: true };
        assert_eq!(
            choices(off, received),
            [TimestampFilters::of(0, 1), TimestampFilters::of(0, 12)]
        );
        // PTP straight over Ethernet only is enough.
        assert_eq!(choices(TimestampFilters::of(1, 9), received)[1], TimestampFilters::of(1, 9));
    }

    #[test]
    fn t0_what_is_timestamped_is_told_in_words() {
        assert_eq!(words(TimestampFilters::default()), "no sent frames and no received frames");
        assert_eq!(words(TimestampFilters::PTP), "sent frames and received PTP event messages");
        assert_eq!(words(TimestampFilters::ALL), "sent frames and all received frames");
        assert!(words(TimestampFilters::of(0, 4)).ends_with("HWTSTAMP_FILTER 4"));
    }

    #[test]
    fn t0_an_interface_without_a_nic_is_refused_in_words() {
        let lo = IfName::new("lo").unwrap();
        let error = Timestamping::begin(&lo, BOTH).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        let expected = "the NIC of lo cannot timestamp: its driver has no timestamps of the NIC";
        assert_eq!(error.to_string(), expected);
    }
}
