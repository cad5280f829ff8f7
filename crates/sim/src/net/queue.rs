// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to happen, in its order: wheels of 32 slots, each as fine as a slot of the one above,
//! and in front of them what comes next, sorted.
//!
//! An event moves once for each five bits by which its time differs from now, and not even that
//! often: a slot with few events is sorted as it is. So the cost does not grow with the number of
//! events as that of a heap does, and no width has to be chosen. Memory is that of the events, and
//! a slot that is used next has the memory of the one that was emptied last.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something at an instant. At the same instant the lower key goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    /// **Units**: picoseconds since the start.
    pub time: u64,
    /// Kind, object and number: a total order that depends on nothing but the simulation.
    pub key: u64,
    pub arg: u32,
    /// The port that it may concern at once: a number, or what the engine says of all or none.
    pub port: u32,
}

// One and a half of them are a line of a cache at most.
const _: () = assert!(size_of::<Event>() <= 24);

#[derive(Debug)]
pub(super) struct EventQueue {
    /// The instant of the event that was taken last; nothing earlier can come.
    last: u64,
    /// All events before `front_ends`, the next one at the end.
    front: Vec<Event>,
    front_ends: u64,
    /// How many were put among those of the front.
    among: u32,
    /// Those for which there is no room in front, because too much happens at one instant.
    crowd: BinaryHeap<Reverse<Event>>,
    /// No event of the wheels is before it. Their places follow from where they differ from it.
    base: u64,
    wheels: Vec<Wheel>,
    /// Bit `n`: wheel `n` has events.
    filled: u32,
    /// Memory of slots that had many.
    spare: Vec<Vec<Event>>,
}

#[derive(Debug)]
struct Wheel {
    /// Bit `n`: slot `n` has events.
    filled: u32,
    slots: [Vec<Event>; 1 << SLOT_BITS],
}

const SLOT_BITS: u32 = 5;
const SLOTS: u64 = 1 << SLOT_BITS;
const WHEELS: u32 = u64::BITS.div_ceil(SLOT_BITS);
/// So many events of a slot are sorted one after the other.
const SORTED: usize = 16;
/// So many by the next bits of their times, where events that come later hardly fall among them.
const SORTED_CALM: usize = 128;
const AMONG: u32 = 4;
/// Until there are so many in front, the next slots are taken, too.
const GATHERED: usize = 8;
/// Nothing is put among more than these.
const FRONT_MOST: usize = 64;

impl Wheel {
    /// `shift`: of its lowest bit of a time.
    #[inline(always)]
    fn put(&mut self, event: Event, shift: u32, spare: &mut Vec<Vec<Event>>) {
        let slot = event.time >> shift & (SLOTS - 1);
        let list = &mut self.slots[index(slot)];
        if self.filled >> slot & 1 == 0 {
            self.filled |= 1 << slot;
            if list.capacity() == 0
                && let Some(spare) = spare.pop()
            {
                *list = spare;
            }
        }
        list.push(event);
    }
}

impl Wheel {
    /// Its first slot with events, which are to be taken.
    fn take_first(&mut self) -> u32 {
        let slot = self.filled.trailing_zeros();
        self.filled &= self.filled - 1;
        slot
    }
}

impl EventQueue {
    pub fn new() -> EventQueue {
        let wheel = |_| Wheel { filled: 0, slots: std::array::from_fn(|_| Vec::new()) };
        EventQueue {
            last: 0,
            front: Vec::with_capacity(FRONT_MOST + 1),
            front_ends: 0,
            among: 0,
            crowd: BinaryHeap::new(),
            base: 0,
            wheels: (0..WHEELS).map(wheel).collect(),
            filled: 0,
            spare: Vec::new(),
        }
    }

    /// **Panics** when the event is before the last one that was taken.
    #[inline]
    pub fn push(&mut self, event: Event) {
        assert!(event.time >= self.last, "an event lies in the past");
        if event.time >= self.front_ends {
            return self.put(event);
        }
        if self.front.len() < FRONT_MOST {
            let place = self.front.partition_point(|other| *other > event);
            self.among += 1;
            return self.front.insert(place, event);
        }
        if self.thin() { self.push(event) } else { self.crowd.push(Reverse(event)) }
    }

    /// Whether something else happens at the instant of the event that was taken last.
    #[inline]
    pub fn more_now(&self) -> bool {
        self.front.last().is_some_and(|next| next.time == self.last)
            || self.crowd.peek().is_some_and(|Reverse(next)| next.time == self.last)
    }

    /// The other events of that instant, the next one first; `None` when they are too many.
    pub fn others_now(&self) -> Option<impl Iterator<Item = &Event>> {
        let now = |event: &&Event| event.time == self.last;
        self.crowd.is_empty().then(|| self.front.iter().rev().take_while(now))
    }

    /// The next event, unless it is later than `until`.
    #[inline]
    pub fn pop(&mut self, until: u64) -> Option<Event> {
        if !self.crowd.is_empty() {
            return self.pop_crowd(until);
        }
        while self.front.is_empty() {
            self.refill()?;
        }
        let next = self.front.pop_if(|next| next.time <= until)?;
        self.last = next.time;
        Some(next)
    }

    fn pop_crowd(&mut self, until: u64) -> Option<Event> {
        let Reverse(crowd) = *self.crowd.peek()?;
        let next = self.front.last().copied().unwrap_or(crowd).min(crowd);
        if next.time > until {
            return None;
        }
        if next == crowd {
            self.crowd.pop();
        } else {
            self.front.pop();
        }
        self.last = next.time;
        Some(next)
    }

    /// Puts an event into the wheel of the highest bits in which it differs from `base`.
    fn put(&mut self, event: Event) {
        let differs = 63 - ((event.time ^ self.base) | 1).leading_zeros();
        let wheel = differs / SLOT_BITS;
        self.filled |= 1 << wheel;
        self.wheels[index(wheel.into())].put(event, wheel * SLOT_BITS, &mut self.spare);
    }

    /// Sorts what comes next, or spreads it over finer slots; `None` when there is nothing.
    fn refill(&mut self) -> Option<()> {
        if self.filled == 0 {
            return None;
        }
        let number = self.filled.trailing_zeros();
        let shift = number * SLOT_BITS;
        // What is above the bits of this wheel is the same in all of its events.
        let above = self.base.checked_shr(shift + SLOT_BITS).unwrap_or(0);
        let above = above.checked_shl(shift + SLOT_BITS).unwrap_or(0);
        let wheel = &mut self.wheels[index(number.into())];
        let slot = wheel.take_first();
        let list = &mut wheel.slots[index(slot.into())];
        // What is long in coming falls behind a long front, too.
        let most = if self.among > AMONG { SORTED } else { SORTED_CALM };
        let few = list.len() <= most;
        self.base = above | u64::from(slot) << shift;
        if few {
            let mut last = slot;
            self.among = 0;
            self.front.clear();
            if list.len() > SORTED {
                scatter_into(&mut self.front, list, shift);
                list.clear();
            } else {
                sort_into(&mut self.front, list);
                list.clear();
                // Slots with one event each are taken together.
                while self.front.len() < GATHERED && wheel.filled != 0 {
                    let next = wheel.filled.trailing_zeros();
                    if self.front.len() + wheel.slots[index(next.into())].len() > SORTED {
                        break;
                    }
                    last = wheel.take_first();
                    let list = &mut wheel.slots[index(last.into())];
                    sort_into(&mut self.front, list);
                    list.clear();
                }
                self.front.reverse();
            }
            self.front_ends = (above | u64::from(last) << shift).saturating_add(1 << shift);
        }
        if wheel.filled == 0 {
            self.filled &= self.filled - 1;
        }
        if few {
            return Some(());
        }
        let mut list = std::mem::take(&mut wheel.slots[index(slot.into())]);
        if number == 0 {
            self.among = 0;
            self.front_ends = self.base.saturating_add(1);
            list.sort_unstable_by(|one, other| other.cmp(one));
            std::mem::swap(&mut self.front, &mut list);
        } else {
            // All wheels below are empty: the next slot that is looked at is one of these.
            self.filled |= 1 << (number - 1);
            let finer = &mut self.wheels[index(u64::from(number - 1))];
            for event in list.drain(..) {
                finer.put(event, shift - SLOT_BITS, &mut self.spare);
            }
        }
        self.spare.push(list);
        Some(())
    }

    /// Puts the later events of the front back, so that it is short; whether it is now.
    fn thin(&mut self) -> bool {
        let cut = self.front[self.front.len() - SORTED].time;
        // Those of one instant stay together.
        let later = self.front.partition_point(|event| event.time > cut);
        if later > 0 && self.crowd.is_empty() {
            self.front_ends = cut + 1;
            let mut list = self.spare.pop().unwrap_or_default();
            list.extend(self.front.drain(..later));
            for event in list.drain(..) {
                self.put(event);
            }
            self.spare.push(list);
        }
        self.front.len() < FRONT_MOST
    }
}

/// Puts a few events behind earlier ones, in their order. Most came in the order of their time.
#[inline(always)]
fn sort_into(sorted: &mut Vec<Event>, list: &[Event]) {
    for event in list {
        let mut at = sorted.len();
        sorted.push(*event);
        while at > 0 && sorted[at - 1] > *event {
            sorted[at] = sorted[at - 1];
            at -= 1;
        }
        sorted[at] = *event;
    }
}

/// Sorts more of them, of one slot, the last one first: by the next bits of their times, then among
/// their neighbours. `shift`: of the slot; its events do not differ in what is above.
#[inline(never)]
fn scatter_into(sorted: &mut Vec<Event>, list: &[Event], shift: u32) {
    const PARTS: usize = 64;
    const MASK: u64 = 63;
    let low = shift.saturating_sub(PARTS.trailing_zeros());
    let part = |event: &Event| index(!(event.time >> low) & MASK);
    let mut places = [0_u16; PARTS];
    for event in list {
        places[part(event)] += 1;
    }
    let most = places.iter().copied().max().map_or(0, usize::from);
    if most > SORTED {
        // Many at one instant, or nearly.
        sorted.extend_from_slice(list);
        return sorted.sort_unstable_by(|one, other| other.cmp(one));
    }
    let mut next = 0;
    for place in &mut places {
        next += std::mem::replace(place, next);
    }
    // All of them are written again.
    sorted.extend_from_slice(list);
    for event in list {
        let place = &mut places[part(event)];
        sorted[usize::from(*place)] = *event;
        *place += 1;
    }
    for end in 1..sorted.len() {
        let event = sorted[end];
        let mut at = end;
        while at > 0 && sorted[at - 1] < event {
            sorted[at] = sorted[at - 1];
            at -= 1;
        }
        if at < end {
            sorted[at] = event;
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("invariant: a slot has a place")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Many at one of them, few or many in a slot.
    fn instant() -> impl Strategy<Value = u64> {
        prop_oneof![0..50_u64, Just(7), 0..9_000_u64, 0..1_u64 << 40]
    }

    /// At once, soon, or at any time.
    fn after() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 0..40_u64, 0..500_000_u64, 0..1_u64 << 50]
    }

    proptest! {
        #[test]
        fn t0_events_come_in_the_order_of_time_and_key(
            first in proptest::collection::vec((instant(), 0..9_u64), 0..400),
            later in proptest::collection::vec((after(), 0..9_u64), 0..800),
        ) {
            let mut queue = EventQueue::new();
            let event = |(time, key), arg| Event { time, key, arg, port: 0 };
            let mut all = Vec::new();
            for (arg, part) in (0..).zip(&first) {
                queue.push(event(*part, arg));
                all.push(event(*part, arg));
            }
            let mut later = later.iter();
            let mut taken = Vec::new();
            while let Some(now) = queue.pop(u64::MAX) {
                taken.push(now);
                prop_assert_eq!(queue.more_now(), all.len() > taken.len() && {
                    let left = all.iter().filter(|event| event.time == now.time).count();
                    left > taken.iter().filter(|event: &&Event| event.time == now.time).count()
                });
                // Each event causes others, at once or later.
                for (after, key) in later.by_ref().take(2) {
                    // At the same instant, a cause is not before its effect in any other way.
                    let key = key + if *after == 0 { now.key } else { 0 };
                    let arg = 1_000 + u32::try_from(all.len()).unwrap();
                    let next = Event { time: now.time + after, key, arg, port: 0 };
                    queue.push(next);
                    all.push(next);
                }
            }
            all.sort_unstable();
            prop_assert_eq!(taken, all);
        }
    }

    #[test]
    fn t0_what_is_too_late_stays() {
        let mut queue = EventQueue::new();
        queue.push(Event { time: 10, key: 0, arg: 0, port: 0 });
        assert_eq!(queue.pop(9), None);
        assert!(queue.pop(10).is_some() && !queue.more_now() && queue.pop(u64::MAX).is_none());
    }
}
