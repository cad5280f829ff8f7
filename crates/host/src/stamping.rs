// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Telling a card what to stamp for as long as a program needs it. What it stamped before is in a
//! journal of its own, so a guardian puts that back when the program is killed.
//!
//! What is stamped already stays so: a card is never told to stamp less. Of received frames it is
//! told to stamp all; a card that cannot do that, PTP's event messages.
//!
//! Not here: the system calls (`timewire_sys::card`), settings that stay (`apply`), the clock's
//! daemons, which tell the card themselves.

use std::io;

use timewire_base::IfName;
use timewire_sys::card::{self, StampFilters};

use crate::journal::Journal;
use crate::{HostError, Undo};

/// What is to be stamped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamped {
    /// Sent frames that ask for it.
    pub sent: bool,
    /// Received frames.
    pub received: bool,
}

/// A card that stamps what is needed. Ends with [`Stamping::end`]; dropping it does the same, but
/// says nothing.
#[derive(Debug)]
pub struct Stamping {
    interface: IfName,
    before: StampFilters,
    now: StampFilters,
    journal: Option<Journal>,
}

impl Stamping {
    /// Has the card of an interface stamp.
    ///
    /// **Errors**: it cannot, or the caller may not tell it; it stamps what it did.
    pub fn begin(interface: &IfName, wanted: Stamped) -> Result<Stamping, HostError> {
        let cannot = |error| refused(interface, error);
        let before = card::stamp_filters(interface).map_err(cannot)?;
        let as_it_is =
            || Stamping { interface: interface.clone(), before, now: before, journal: None };
        let choices = choices(before, wanted);
        let is_enough = choices.last() == Some(&before);
        let mut refusal = None;
        for asked in choices {
            if asked == before {
                return Ok(as_it_is());
            }
            let journal = Journal::begin(&format!("what the card of {interface} stamps"))?;
            let entry = journal.record(undo(interface, before, asked))?;
            match card::set_stamp_filters(interface, asked) {
                Ok(now) => {
                    if now != asked {
                        // More than was asked for.
                        journal.record(undo(interface, before, now))?;
                        journal.forget(entry)?;
                    }
                    let interface = interface.clone();
                    return Ok(Stamping { interface, before, now, journal: Some(journal) });
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

    /// Whether of received frames PTP's only are stamped.
    pub fn is_ptp_only(&self) -> bool {
        self.now.stamps_ptp() && !self.now.stamps_all()
    }

    /// What the card stamps now and did before, in words; `None` when it was not told anything.
    pub fn told(&self) -> Option<String> {
        let Stamping { interface, before, now, journal } = self;
        journal.as_ref()?;
        Some(format!("the card of {interface} stamps {}, was {}", words(*now), words(*before)))
    }

    /// Has it stamp what it stamped before; what was done, in words.
    ///
    /// **Errors**: it could not be put back; the journal stays and is named.
    pub fn end(mut self) -> Result<Option<String>, HostError> {
        let Some(journal) = self.journal.take() else { return Ok(None) };
        let Stamping { interface, before, now, .. } = &self;
        let is_ours = card::stamp_filters(interface).is_ok_and(|filters| filters == *now);
        journal.finish()?;
        Ok(Some(match is_ours {
            true => format!("the card of {interface} stamps {} again", words(*before)),
            false => format!("what the card of {interface} stamps was changed since, and left so"),
        }))
    }
}

/// What to ask a card for, the best first.
fn choices(before: StampFilters, wanted: Stamped) -> Vec<StampFilters> {
    let tx = match wanted.sent && !before.stamps_sent() {
        true => StampFilters::ALL.tx,
        false => before.tx,
    };
    if !wanted.received || before.stamps_all() {
        return vec![StampFilters::of(tx, before.rx)];
    }
    let ptp = if before.stamps_ptp() { before.rx } else { StampFilters::PTP.rx };
    vec![StampFilters::of(tx, StampFilters::ALL.rx), StampFilters::of(tx, ptp)]
}

fn undo(interface: &IfName, before: StampFilters, given: StampFilters) -> Undo {
    Undo::RestoreStampFilters {
        interface: interface.clone(),
        tx: [before.tx, given.tx],
        rx: [before.rx, given.rx],
    }
}

/// A card that is gone, or that stamps something else by now, is left alone.
pub(crate) fn restore(interface: &IfName, tx: [i32; 2], rx: [i32; 2]) -> io::Result<()> {
    let [before, given] = [0, 1].map(|index| StampFilters::of(tx[index], rx[index]));
    match card::stamp_filters(interface) {
        Ok(now) if now == given => card::set_stamp_filters(interface, before).map(drop),
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(()),
        Err(error) => Err(error),
    }
}

fn words(filters: StampFilters) -> String {
    let received = match filters {
        it if it.stamps_all() => "all received frames".to_owned(),
        it if it.stamps_ptp() => "received PTP event messages".to_owned(),
        it if it.rx == 0 => "no received frames".to_owned(),
        it => format!("received frames by HWTSTAMP_FILTER {}", it.rx),
    };
    let sent = if filters.stamps_sent() { "sent frames" } else { "no sent frames" };
    format!("{sent} and {received}")
}

fn refused(interface: &IfName, error: io::Error) -> HostError {
    let why = match error.raw_os_error() {
        Some(EOPNOTSUPP | ENOTTY | EINVAL) => "its driver has no stamps of the card".to_owned(),
        Some(ERANGE) => "neither all frames nor PTP's".to_owned(),
        _ => {
            let what = format!("tell the card of {interface} what to stamp (CAP_NET_ADMIN)");
            return HostError::kernel(what, error);
        }
    };
    HostError::CannotStamp { interface: interface.clone(), why }
}

// From linux v6.12 include/uapi/asm-generic: errno-base.h, errno.h.
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOTTY: i32 = 25;
const ERANGE: i32 = 34;
const EOPNOTSUPP: i32 = 95;

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Stamped = Stamped { sent: true, received: true };

    #[test]
    fn t0_a_card_is_asked_for_all_then_for_ptp_and_never_for_less() {
        let (off, all, ptp) = (StampFilters::default(), StampFilters::ALL, StampFilters::PTP);
        assert_eq!(choices(off, BOTH), [all, ptp]);
        assert_eq!(choices(all, BOTH), [all]);
        // A clock daemon has it stamp PTP: whether it can do more is tried.
        assert_eq!(choices(ptp, BOTH), [all, ptp]);
        let sent = Stamped { sent: true, received: false };
        assert_eq!(choices(off, sent), [StampFilters::of(1, 0)]);
        assert_eq!(choices(ptp, sent), [ptp]);
        let received = Stamped { sent: false, received: true };
        assert_eq!(choices(off, received), [StampFilters::of(0, 1), StampFilters::of(0, 12)]);
        // PTP straight over Ethernet only is enough.
        assert_eq!(choices(StampFilters::of(1, 9), received)[1], StampFilters::of(1, 9));
    }

    #[test]
    fn t0_what_is_stamped_is_told_in_words() {
        assert_eq!(words(StampFilters::default()), "no sent frames and no received frames");
        assert_eq!(words(StampFilters::PTP), "sent frames and received PTP event messages");
        assert_eq!(words(StampFilters::ALL), "sent frames and all received frames");
        assert!(words(StampFilters::of(0, 4)).ends_with("HWTSTAMP_FILTER 4"));
    }

    #[test]
    fn t0_an_interface_without_a_card_is_refused_in_words() {
        let lo = IfName::new("lo").unwrap();
        let error = Stamping::begin(&lo, BOTH).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        let expected = "the card of lo cannot stamp: its driver has no stamps of the card";
        assert_eq!(error.to_string(), expected);
    }
}
