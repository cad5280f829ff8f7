// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that two captures saw, found by their tags alone, before anything is known of the
//! clocks.
//!
//! A tag that was sent or received more than once in a capture is left out: which of them it was
//! cannot be told yet. When there are too many tags, those whose number ends in enough zero bits
//! stay, which are the same in every capture.

use std::collections::BTreeMap;

use super::Crossing;
use crate::event::{Event, Flags, Hook};

/// Once a tag was met again.
const TWICE: u64 = u64::MAX;

/// One capture's packets.
#[derive(Debug, Default)]
struct Seen {
    /// When the driver was given the packet last.
    sent: BTreeMap<u64, u64>,
    /// When the host saw it first.
    received: BTreeMap<u64, u64>,
    /// The event before: hooks of one packet on its way up follow each other.
    upwards: BTreeMap<u64, u64>,
}

/// Takes the events of captures, each in order of time, and gives the packets between two of them.
#[derive(Debug)]
pub struct Crossings {
    captures: Vec<Seen>,
    most: usize,
    /// A tag is kept when all these bits of its disguise are zero.
    mask: u64,
}

impl Crossings {
    /// Of so many captures; at most `most` tags of each are kept at a time.
    pub fn new(captures: usize, most: usize) -> Crossings {
        let captures = (0..captures).map(|_| Seen::default()).collect();
        Crossings { captures, most: most.max(1), mask: 0 }
    }

    /// Takes the next event of a capture.
    ///
    /// **Panics** when there is no such capture.
    pub fn event(&mut self, capture: usize, event: &Event) {
        if event.tag == 0 || event.flags.has(Flags::OTHER) || mixed(event.tag) & self.mask != 0 {
            return;
        }
        let seen = &mut self.captures[capture];
        match event.hook {
            Hook::DriverStart => once(&mut seen.sent, event),
            // The first hook of the way up timestamps; the others of the same buffer are the same
            // packet.
            Hook::ReceiveQueue | Hook::NapiReceive | Hook::StackReceive => {
                match seen.upwards.insert(event.tag, event.object) {
                    Some(object) if object == event.object => {}
                    _ => once(&mut seen.received, event),
                }
            }
            _ => return,
        }
        let tags = |seen: &Seen| seen.sent.len().max(seen.received.len());
        while tags(&self.captures[capture]) > self.most {
            self.thin();
        }
    }

    /// Keeps every second tag, in all captures.
    fn thin(&mut self) {
        self.mask = self.mask << 1 | 1;
        let mask = self.mask;
        for seen in &mut self.captures {
            for times in [&mut seen.sent, &mut seen.received, &mut seen.upwards] {
                times.retain(|tag, _| mixed(*tag) & mask == 0);
            }
        }
    }

    /// The packets between two captures, whichever sent them.
    pub fn between(&self, a: usize, b: usize) -> Vec<Crossing> {
        let (one, two) = (&self.captures[a], &self.captures[b]);
        let forward = common(&one.sent, &two.received);
        let back = common(&two.sent, &one.received);
        let forward = forward.map(|(a_ns, b_ns)| Crossing { from_a: true, a_ns, b_ns });
        let back = back.map(|(b_ns, a_ns)| Crossing { from_a: false, a_ns, b_ns });
        forward.chain(back).collect()
    }
}

fn once(times: &mut BTreeMap<u64, u64>, event: &Event) {
    times.entry(event.tag).and_modify(|at| *at = TWICE).or_insert(event.at_ns);
}

/// Sent and received, each once.
fn common<'a>(
    sent: &'a BTreeMap<u64, u64>,
    received: &'a BTreeMap<u64, u64>,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    sent.iter().filter_map(|(tag, sent)| {
        let received = received.get(tag)?;
        (*sent != TWICE && *received != TWICE).then_some((*sent, *received))
    })
}

/// Sequence numbers next to each other differ in their low bits; their disguise in all.
///
/// **Source**: the finalizer of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, OOPSLA 2014).
pub(super) fn mixed(tag: u64) -> u64 {
    let tag = (tag ^ (tag >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let tag = (tag ^ (tag >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    tag ^ (tag >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(hook: Hook, tag: u64, object: u64, at_ns: u64) -> Event {
        Event {
            at_ns,
            object,
            tag,
            aux: 0,
            interface: 2,
            thread: 0,
            cpu: 0,
            flags: Flags::default(),
            length: 64,
            hook,
            station: 0,
        }
    }

    #[test]
    fn t0_a_packet_is_known_by_its_tag_on_both_sides() {
        let mut crossings = Crossings::new(3, 100);
        // From 0 to 1: the first hook of the way up counts.
        crossings.event(0, &event(Hook::DeviceQueue, 7, 1, 90));
        crossings.event(0, &event(Hook::DriverStart, 7, 1, 100));
        crossings.event(1, &event(Hook::NapiReceive, 7, 5, 5_100));
        crossings.event(1, &event(Hook::StackReceive, 7, 5, 5_200));
        // Back.
        crossings.event(1, &event(Hook::DriverStart, 8, 1, 5_300));
        crossings.event(0, &event(Hook::StackReceive, 8, 1, 400));
        // Received twice, sent twice, without a tag, not asked for: left out.
        crossings.event(0, &event(Hook::DriverStart, 9, 1, 500));
        crossings.event(1, &event(Hook::StackReceive, 9, 5, 5_500));
        crossings.event(1, &event(Hook::StackReceive, 9, 6, 5_600));
        crossings.event(0, &event(Hook::DriverStart, 10, 1, 500));
        crossings.event(0, &event(Hook::DriverStart, 10, 1, 500));
        crossings.event(1, &event(Hook::StackReceive, 10, 5, 5_500));
        crossings.event(0, &event(Hook::DriverStart, 0, 1, 500));
        crossings.event(1, &event(Hook::StackReceive, 0, 5, 5_500));
        let other = Event { flags: Flags::OTHER, ..event(Hook::DriverStart, 11, 1, 500) };
        crossings.event(0, &other);
        crossings.event(1, &event(Hook::StackReceive, 11, 5, 5_500));
        let found = crossings.between(0, 1);
        assert_eq!(
            found,
            [
                Crossing { from_a: true, a_ns: 100, b_ns: 5_100 },
                Crossing { from_a: false, a_ns: 400, b_ns: 5_300 },
            ]
        );
        assert_eq!(crossings.between(0, 2), []);
        let turned = crossings.between(1, 0);
        assert_eq!(turned[1], Crossing { from_a: false, a_ns: 5_100, b_ns: 100 });
    }

    #[test]
    fn t0_too_many_tags_are_thinned_alike() {
        let mut crossings = Crossings::new(2, 50);
        for tag in 1..=10_000 {
            crossings.event(0, &event(Hook::DriverStart, tag, 1, tag));
        }
        for tag in 1..=10_000 {
            crossings.event(1, &event(Hook::StackReceive, tag, tag, tag + 3));
        }
        let found = crossings.between(0, 1);
        assert!((20..=50).contains(&found.len()), "{}", found.len());
        assert!(found.iter().all(|crossing| crossing.b_ns == crossing.a_ns + 3));
        // They are spread over all the time.
        assert!(found.iter().any(|crossing| crossing.a_ns < 2_500));
        assert!(found.iter().any(|crossing| crossing.a_ns > 7_500));
    }
}
