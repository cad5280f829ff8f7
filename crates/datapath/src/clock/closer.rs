// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closing slots: a MAC of ours by its control socket, a queueing discipline of the kernel by a
//! program before it. Both are told until when they may be open and close by themselves.

use std::time::Duration;

use timewire_base::{IfName, Instant, Mono, Span};
use timewire_bpf::egress::EgressGate;
use timewire_sys::phc::Relation;
use timewire_sys::{clock, interface_index};

use super::status::CloseStatus;
use crate::DatapathError;
use crate::control::{Client, OnTime, Request};

/// Whose slots are closed.
#[derive(Clone, Debug, Default)]
pub struct Closes {
    /// MACs of ours, by name.
    pub macs: Vec<String>,
    /// Interfaces whose discipline the kernel has, with the priorities that are held back before
    /// each; bit N is priority N.
    pub interfaces: Vec<(IfName, u16)>,
}

/// One of them.
pub(super) struct Closer {
    kind: Kind,
    /// Why the last word did not get there.
    failed: Option<String>,
}

enum Kind {
    Mac { name: String, client: Client, hangs: Hangs },
    Kernel { name: IfName, gate: EgressGate },
}

impl Closer {
    /// All that are named, closed.
    ///
    /// **Errors**: an interface is missing, or the kernel refuses the program. A MAC may start
    /// later.
    pub(super) fn all(closes: &Closes) -> Result<Vec<Closer>, DatapathError> {
        let mut all = Vec::new();
        for (name, priorities) in &closes.interfaces {
            let index = interface_index(name).map_err(|error| DatapathError::Link {
                link: name.clone(),
                why: error.to_string(),
            })?;
            let gate = EgressGate::attach(index, *priorities)
                .map_err(|source| DatapathError::Gate { link: name.clone(), source })?;
            all.push(Closer { kind: Kind::Kernel { name: name.clone(), gate }, failed: None });
        }
        for name in &closes.macs {
            let client = Client::new(name).with_timeout(TIMEOUT);
            let kind = Kind::Mac { name: name.clone(), client, hangs: Hangs::default() };
            all.push(Closer { kind, failed: None });
        }
        Ok(all)
    }

    /// Says until when slots may be open. That it did not get there is in the status: a MAC that
    /// hears nothing closes by itself.
    pub(super) fn tell(
        &mut self,
        until: Option<Instant<Mono>>,
        offset: Option<Relation>,
        why: Option<&str>,
    ) {
        let result = match &mut self.kind {
            Kind::Mac { client, hangs, .. } => {
                let now = clock::now::<Mono>();
                if hangs.is_spared(now, until) {
                    // Why is known from the last time.
                    return;
                }
                let word = OnTime {
                    hold_ns: until.map(|until| until - now),
                    offset_ns: offset.map(|offset| offset.ahead),
                    offset_error_ns: offset.map(|offset| offset.error),
                    by: format!("process {}", std::process::id()),
                    why: why.map(str::to_owned),
                };
                let said = client.ask(&Request::OnTime { word });
                let timed_out = said.as_ref().is_err_and(is_late);
                hangs.note(clock::now(), until, timed_out);
                match said {
                    Ok(_) => Ok(()),
                    Err(_) if timed_out => {
                        Err(format!("it has not answered within {} ms", TIMEOUT.as_millis()))
                    }
                    Err(error) => Err(error.to_string()),
                }
            }
            Kind::Kernel { gate, .. } => gate.open_until(until).map_err(|error| error.to_string()),
        };
        self.failed = result.err();
    }

    pub(super) fn status(&self) -> CloseStatus {
        let (what, counters) = match &self.kind {
            Kind::Mac { name, .. } => (format!("MAC {name}"), None),
            Kind::Kernel { name, gate } => (format!("interface {name}"), gate.counters().ok()),
        };
        CloseStatus {
            what,
            passed: counters.map(|counters| counters.passed),
            dropped: counters.map(|counters| counters.dropped),
            failed: self.failed.clone(),
        }
    }
}

/// Whether a MAC takes too long to answer, so that those after it are not kept waiting each time.
#[derive(Clone, Copy, Debug, Default)]
struct Hangs {
    /// Until when it is left alone.
    spared_until: Option<Instant<Mono>>,
    /// Whether it was last told that slots may be open.
    told_open: bool,
}

impl Hangs {
    /// Whether it is not told this now. That slots are to close it is always told once.
    fn is_spared(&self, now: Instant<Mono>, until: Option<Instant<Mono>>) -> bool {
        let closes = until.is_none() && self.told_open;
        !closes && self.spared_until.is_some_and(|spared| now < spared)
    }

    /// It was told. One that only was slow this once hears the next word long before the last one
    /// is over.
    fn note(&mut self, now: Instant<Mono>, until: Option<Instant<Mono>>, timed_out: bool) {
        self.told_open = until.is_some();
        let left = until.map_or(SPARED, |until| Span::from_ns((until - now).as_ns() / 4));
        self.spared_until = timed_out.then(|| now + left.clamp(Span::ZERO, SPARED));
    }
}

/// Whether an answer did not come in time.
fn is_late(error: &DatapathError) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error, DatapathError::Control { source, .. }
        if matches!(source.kind(), TimedOut | WouldBlock))
}

/// How long a MAC may take to answer; others wait meanwhile, and the clock is not looked at.
const TIMEOUT: Duration = Duration::from_millis(50);
/// For how long one that did not answer is left alone at most.
const SPARED: Span = Span::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_mac_that_hangs_is_left_alone_but_told_to_close() {
        let at = |ms: i64| Instant::<Mono>::from_ns(ms * 1_000_000);
        let mut hangs = Hangs::default();
        assert!(!hangs.is_spared(at(0), Some(at(3_000))));
        hangs.note(at(0), Some(at(8_000)), true);
        assert!(hangs.is_spared(at(999), Some(at(8_000))));
        assert!(!hangs.is_spared(at(1_000), Some(at(8_000))));
        // To close it is told at once, and once.
        assert!(!hangs.is_spared(at(10), None));
        hangs.note(at(10), None, true);
        assert!(hangs.is_spared(at(20), None));
        // Not for so long that what it was told is over.
        hangs.note(at(2_000), Some(at(2_100)), true);
        assert!(hangs.is_spared(at(2_024), Some(at(2_100))));
        assert!(!hangs.is_spared(at(2_025), Some(at(2_100))));
        hangs.note(at(3_000), Some(at(6_000)), false);
        assert!(!hangs.is_spared(at(3_001), Some(at(6_000))));
    }
}
