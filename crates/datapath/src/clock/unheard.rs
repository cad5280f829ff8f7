// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notices that nobody who gives the time is heard, and asks why, so that nobody waits without a
//! reason.

use timewire_base::{IfName, Instant, Mono, Span};
use timewire_host::clock::client::{Client, Hears};
use timewire_host::clock::dataset::PortStats;
use timewire_host::clock::waiting::{self, Waiting};
use timewire_host::tool::{self, Tool};

use super::look::Look;

/// So long nothing is said: a best master is found within some Announce intervals.
const PATIENT: Span = Span::from_secs(10);
/// Between two questions for the counters of the ports.
const EVERY: Span = Span::from_secs(2);

/// For how long nobody has been heard.
#[derive(Debug)]
pub(super) struct Unheard {
    since: Instant<Mono>,
    next: Instant<Mono>,
    announced: u64,
    /// The reason, once it was told.
    pub why: Option<String>,
}

impl Unheard {
    pub fn new(now: Instant<Mono>) -> Unheard {
        Unheard { since: now, next: now, announced: 0, why: None }
    }

    /// After a look: the reason, the first time that there is one.
    pub fn look(
        &mut self,
        now: Instant<Mono>,
        look: &Look,
        client: &mut Client,
        (hears, interfaces): (Option<Hears>, &[IfName]),
    ) -> Option<String> {
        let Ok(followed) = &look.ptp else { return None };
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        let ports = client.stats().unwrap_or_default();
        self.judge(now, (followed.follows(), followed.gives()), &ports, |unheard, gives| {
            let links = tool::run(Tool::Ip, &["-json", "-details", "link", "show"]);
            let bridges = waiting::bridges(interfaces, &links.unwrap_or_default());
            let gptp = hears.is_some_and(|hears| hears.transport_specific == 1);
            let domain = hears.map_or(0, |hears| hears.domain);
            let (ports, bridges) = (&ports, &bridges);
            waiting::why(&Waiting { gptp, domain, unheard, ports, bridges, gives })
        })
    }

    /// The same with what a look showed; `why` is asked when it is time.
    fn judge(
        &mut self,
        now: Instant<Mono>,
        (follows, gives): (bool, bool),
        ports: &[PortStats],
        why: impl FnOnce(Span, bool) -> Option<String>,
    ) -> Option<String> {
        let announced = waiting::announced(ports);
        if follows || announced != self.announced {
            (self.since, self.announced, self.why) = (now, announced, None);
            return None;
        }
        let unheard = now - self.since;
        if unheard < PATIENT {
            return None;
        }
        let whole = Span::from_secs(unheard.as_ns() / 1_000_000_000);
        let found = why(whole, gives);
        let is_new = self.why.is_none() && found.is_some();
        self.why = found;
        self.why.clone().filter(|_| is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_wait_is_told_once_and_again_after_it_was_heard() {
        let at = |s: i64| Instant::<Mono>::from_ns(s * 1_000_000_000);
        let heard = |announces| {
            let mut received = [0; 16];
            received[0xb] = announces;
            [PortStats { port: Default::default(), received, sent: [0; 16] }]
        };
        let mut unheard = Unheard::new(at(0));
        let mut told = Vec::new();
        let rows = [
            // At, follows, Announce messages, reason asked for.
            (9, false, 0),
            (11, false, 0),
            (13, false, 0),
            (15, true, 4),
            (24, false, 4),
            (26, false, 4),
            (30, false, 5),
            (39, false, 5),
        ];
        for (s, follows, announces) in rows {
            let why = |span: Span, _| Some(format!("since {span}"));
            let said = unheard.judge(at(s), (follows, false), &heard(announces), why);
            told.extend(said.map(|said| (s, said)));
        }
        assert_eq!(told, [(11, "since 11s".to_owned()), (26, "since 11s".to_owned())]);
        assert_eq!(unheard.why, None);
    }
}
