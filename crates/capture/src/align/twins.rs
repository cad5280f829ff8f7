// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of one kernel that saw the same packets: two programs at one tracepoint run one after
//! the other on the same CPU, in the same thread, and read the same clock. What a header says of
//! its boot is not needed for that: programs in containers can be told different ones.
//!
//! Events are known by hook, CPU, thread, interface, length, tag and the millisecond; one that a
//! capture has twice is left out. What both know to be of different network namespaces are two
//! events, as when a bridge gives a frame to two stations. When there are too many, those whose
//! hash ends in enough zero bits stay, which are the same in every capture.

use std::collections::BTreeMap;

use serde::Serialize;

use super::crossings::mixed;
use crate::capture::Station;
use crate::event::{Event, Flags, Hook};

/// The two programs of a tracepoint run within this time, but for interrupts between them.
///
/// **Units**: ns.
const NEAR_NS: u64 = 100_000;
/// Events are looked up by their time in these.
///
/// **Units**: ns, a power of two: a millisecond.
const MOMENT_BITS: u32 = 20;
/// One of so many events may be in another moment by chance.
const CHANCE: usize = 50;
/// Fewer events in common are taken for chance.
const MIN_COMMON_EVENTS: usize = 16;

/// Takes the events of captures and tells which of them saw the same.
#[derive(Debug)]
pub struct Twins {
    /// Of each capture: an event, `None` when it was there twice.
    captures: Vec<BTreeMap<u64, Option<Seen>>>,
    most: usize,
    mask: u64,
}

/// When and where an event was.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at_ns: u64,
    /// Its network namespace; 0 where the capture does not say.
    namespace: u64,
}

impl Seen {
    fn can_be(self, other: Seen) -> bool {
        self.namespace == other.namespace || self.namespace == 0 || other.namespace == 0
    }
}

/// What two captures have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// Events that were looked at, of the first and of the second.
    pub looked_at: (usize, usize),
    /// Events that both have.
    pub common: usize,
    /// Of these, those that both have at the same time.
    pub same_time: usize,
}

impl Shared {
    /// Of the events of the second that were looked at, those that the first has not.
    pub fn only_second(&self) -> usize {
        let only = self.looked_at.1.saturating_sub(self.common);
        if only <= self.looked_at.1 / CHANCE { 0 } else { only }
    }

    /// Whether they are of one kernel, and saw the same.
    pub fn is_one_kernel(&self) -> bool {
        self.same_time >= MIN_COMMON_EVENTS && self.same_time.saturating_mul(10) >= self.common * 9
    }
}

impl Twins {
    /// Of so many captures; at most `most` events of each are kept.
    pub fn new(captures: usize, most: usize) -> Twins {
        Twins { captures: vec![BTreeMap::new(); captures], most: most.max(1), mask: 0 }
    }

    /// Takes an event of a capture, whose stations are these.
    ///
    /// **Panics** when there is no such capture.
    pub fn event(&mut self, capture: usize, stations: &[Station], event: &Event) {
        if event.tag == 0 || event.flags.has(Flags::OTHER) || event.hook == Hook::Marker {
            return;
        }
        let place = u64::from(event.hook.number()) << 56
            ^ u64::from(event.cpu) << 40
            ^ u64::from(event.length) << 24;
        let who = u64::from(event.thread) << 32 | u64::from(event.interface);
        let key = mixed(mixed(mixed(event.tag) ^ place) ^ who);
        let key = mixed(key ^ event.at_ns >> MOMENT_BITS);
        if key & self.mask != 0 {
            return;
        }
        let station = stations.get(usize::from(event.station));
        let namespace = station.map_or(0, |station| station.namespace);
        let new = Seen { at_ns: event.at_ns, namespace };
        let seen = &mut self.captures[capture];
        seen.entry(key).and_modify(|seen| *seen = None).or_insert(Some(new));
        while self.captures[capture].len() > self.most {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.captures.iter_mut().for_each(|seen| seen.retain(|key, _| key & mask == 0));
        }
    }

    /// What two captures have in common.
    pub fn between(&self, a: usize, b: usize) -> Shared {
        let once = |capture: usize| {
            let all = self.captures[capture].iter();
            all.filter_map(|(key, seen)| Some((key, (*seen)?)))
        };
        let (mut common, mut same_time) = (0, 0);
        for (key, seen) in once(a) {
            let other = self.captures[b].get(key).copied().flatten();
            if let Some(other) = other.filter(|other| other.can_be(seen)) {
                common += 1;
                same_time += usize::from(other.at_ns.abs_diff(seen.at_ns) <= NEAR_NS);
            }
        }
        Shared { looked_at: (once(a).count(), once(b).count()), common, same_time }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet_path::tests::ev;

    fn events(count: u64) -> impl Iterator<Item = Event> {
        (1..=count).map(|n| {
            let hook = if n % 2 == 0 { Hook::DriverStart } else { Hook::StackReceive };
            ev(n * 50_000, hook, n, n / 2 + 1).by(7).cpu(1)
        })
    }

    fn station(namespace: u64) -> Station {
        Station { name: "s".to_owned(), namespace, interfaces: BTreeMap::new() }
    }

    proptest! {
        #[test]
        fn t0_one_kernel_is_known_and_two_are_not(
            count in 40_u64..3_000,
            later in 0_u64..5_000,
            away in 200_000_u64..1 << 50,
            again in any::<bool>(),
            most in 64_usize..2_000,
        ) {
            let mut twins = Twins::new(5, most);
            let (stations, others) = ([station(17)], [station(18)]);
            for mut event in events(count) {
                if again {
                    event.tag %= 8;
                }
                twins.event(0, &stations, &event);
                // The same kernel, another disguise of the buffer.
                let twin = Event { at_ns: event.at_ns + later, object: !event.object, ..event };
                twins.event(1, &[], &twin);
                // Another host with another clock, and one whose threads are others.
                twins.event(2, &stations, &Event { at_ns: event.at_ns + away, ..event });
                twins.event(3, &stations, &Event { thread: 8, ..event });
                // Another station of the kernel, to which a bridge gave the frame as well.
                twins.event(4, &others, &event);
            }
            let shared = twins.between(0, 1);
            prop_assert!(shared.same_time == shared.common);
            prop_assert_eq!(shared.is_one_kernel(), shared.common >= MIN_COMMON_EVENTS);
            prop_assert!(count < 400 || again || shared.is_one_kernel(), "{shared:?}");
            // Chance is for many.
            let few = count.min(2 * u64::try_from(most).unwrap()) < 2_000;
            prop_assert!(few || shared.only_second() == 0, "{shared:?}");
            prop_assert!(!twins.between(0, 2).is_one_kernel());
            prop_assert!(!twins.between(3, 0).is_one_kernel());
            prop_assert_eq!(twins.between(4, 0).common, 0);
            prop_assert!(twins.captures.iter().all(|seen| seen.len() <= most));
        }
    }
}
