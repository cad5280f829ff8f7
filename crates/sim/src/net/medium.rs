// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A segment that several stations share, one frame at a time: contention, in turn, or a token.

use std::collections::VecDeque;

use timewire_base::Sequence;

use timewire_tsn::port::Ps;

use super::delay::{below, ps};
use super::describe::{Access, MediumSpec, Network};
use super::engine::{Kind, Simulation, truth};
use super::frame::{Frame, slot};
use super::route::index;
use super::stats::LostBy;

/// A segment that runs.
pub(super) struct Medium {
    access: Access,
    ports: Vec<u32>,
    /// The frame that each station has begun to send, or has to send again.
    hands: Vec<Option<Hand>>,
    /// Frames of each station that have collided and whose gate has closed since, in their order.
    aside: Vec<Vec<Hand>>,
    /// Stations that heard it busy, in the order in which they did.
    waiting: VecDeque<usize>,
    sending: Option<Sending>,
    /// From then on a station may begin that has to hear that the segment is free.
    free_from: u64,
    /// Who sent last, and when its gap ends: nobody has to tell it that its own frame has left.
    own_gap: Option<(usize, u64)>,
    /// Until then after a collision there are stations that have not heard it.
    deaf_until: u64,
    delay: u64,
    gap: u64,
    jam: u64,
    slot_time: u64,
    token_time: u64,
    token_since: u64,
    holder: usize,
    /// Events of an earlier transmission mean nothing.
    epoch: u32,
    random: Sequence,
}

struct Hand {
    frame: Frame,
    class: usize,
    lasts: u64,
    attempts: u32,
    ready: u64,
}

#[derive(Clone, Copy)]
struct Sending {
    place: usize,
    start: u64,
    ends: u64,
}

/// **Source**: IEEE 802.3-2022, 4.4.2: attemptLimit, backoffLimit, slotTime, jamSize.
const ATTEMPTS: u32 = 16;
const BACKOFF_LIMIT: u32 = 10;
const SLOT_BYTES: u32 = 64;
const JAM_BYTES: u32 = 4;
/// A token is a frame of 64 bytes.
const TOKEN_BYTES: u32 = 84;

impl Medium {
    pub fn new(spec: &MediumSpec, number: usize, network: &Network, random: Sequence) -> Medium {
        let rate = spec.stations[0].1.rate;
        let time = |bytes| Ps::of_bytes(bytes, rate).get().unsigned_abs();
        let port = |place| index(network.medium_port(number, place).0);
        Medium {
            access: spec.access.clone(),
            ports: (0..spec.stations.len()).map(port).collect(),
            hands: spec.stations.iter().map(|_| None).collect(),
            aside: spec.stations.iter().map(|_| Vec::new()).collect(),
            waiting: VecDeque::new(),
            sending: None,
            free_from: 0,
            own_gap: None,
            deaf_until: 0,
            delay: ps(spec.delay),
            gap: time(timewire_tsn::port::GAP_BYTES),
            jam: time(JAM_BYTES),
            slot_time: time(SLOT_BYTES),
            token_time: time(TOKEN_BYTES),
            token_since: 0,
            holder: 0,
            epoch: 0,
            random,
        }
    }

    /// Frames that stations have begun to send.
    pub fn held(&self) -> impl Iterator<Item = &Frame> {
        let all = self.hands.iter().flatten().chain(self.aside.iter().flatten());
        all.map(|hand| &hand.frame)
    }

    /// The same of one station.
    pub fn held_by(&self, place: usize) -> impl Iterator<Item = &Frame> {
        self.hands[place].iter().chain(&self.aside[place]).map(|hand| &hand.frame)
    }

    /// How many frames of a class a station has out of its queue that wait for the first of them.
    pub fn behind(&self, place: usize, class: usize) -> usize {
        let all = self.hands[place].iter().chain(&self.aside[place]);
        all.filter(|hand| hand.class == class).count().saturating_sub(1)
    }

    /// Whether a frame of a station is on the segment.
    pub fn is_sending(&self, place: usize) -> bool {
        self.sending.is_some_and(|sending| sending.place == place)
    }

    /// A station starts again; what it sends right now goes to its end.
    pub fn drop_hands(&mut self, place: usize) -> Vec<Frame> {
        let mut dropped = std::mem::take(&mut self.aside[place]);
        if !self.is_sending(place) {
            dropped.extend(self.hands[place].take());
        }
        dropped.into_iter().map(|hand| hand.frame).collect()
    }

    /// From when on a station may begin.
    fn free_for(&self, place: usize) -> u64 {
        match self.own_gap {
            Some((own, ends)) if own == place => ends,
            _ => self.free_from,
        }
    }

    fn wait(&mut self, place: usize) {
        if !self.waiting.contains(&place) {
            self.waiting.push_back(place);
        }
    }
}

impl Simulation {
    /// Whether a station of a segment has no room for a frame, what has collided and waits being
    /// counted with its queue.
    pub(super) fn is_full_beside(&self, port: u32, class: usize) -> bool {
        let medium = self.port_more[slot(port)].medium;
        let behind = |(medium, place)| self.media[slot(medium)].behind(slot(place), class);
        self.ports[slot(port)].port.is_full(class, medium.map_or(0, behind))
    }

    pub(super) fn begin_medium(&mut self, number: usize) {
        if let Access::Token { .. } = self.media[number].access {
            self.at(0, Kind::Token, index(number), 0);
        }
    }

    /// A station may have something to send.
    pub(super) fn medium_try(&mut self, number: usize, place: usize) {
        let now = self.now;
        let medium = &mut self.media[number];
        if let Access::Token { .. } = medium.access {
            return;
        }
        let contends = medium.access == Access::Contention;
        if let Some(sending) = medium.sending {
            // A station hears what began a while ago, and not what begins.
            if contends && sending.place != place && now <= sending.start + medium.delay {
                return self.collide(number, place, Some(sending));
            }
            return medium.wait(place);
        }
        let free = medium.free_for(place);
        if now < free {
            if !contends {
                return medium.wait(place);
            }
            if now <= medium.deaf_until {
                return self.collide(number, place, None);
            }
            let port = medium.ports[place];
            return self.wake(port, free);
        }
        // In turn, who waits is ahead of who could begin sooner.
        if !contends && now < medium.free_from && !medium.waiting.is_empty() {
            return medium.wait(place);
        }
        if self.fetch(number, place) {
            self.begin_to_send(number, place);
        }
    }

    /// Takes the next frame of a station in hand; whether it has one that may go now.
    fn fetch(&mut self, number: usize, place: usize) -> bool {
        let port = self.media[number].ports[place];
        if let Some(hand) = &self.media[number].hands[place]
            && hand.ready > self.now
        {
            let clocks = self.clocks(self.port_more[slot(port)].node);
            let (ready, class, lasts) = (hand.ready, hand.class, truth(hand.lasts));
            if self.ports[slot(port)].port.lets_again(clocks, class, lasts).is_ok() {
                self.wake(port, ready);
                return false;
            }
        }
        if self.take_again(number, place) {
            return true;
        }
        loop {
            let clocks = self.clocks(self.port_more[slot(port)].node);
            let polled = self.ports[slot(port)].port.poll(clocks);
            if let Some(frame) = polled.dropped {
                self.lose(frame, LostBy::NeverFits);
                continue;
            }
            let Some(started) = polled.started else {
                self.wake_by(port, polled.wake);
                return false;
            };
            self.started(&started, port, clocks);
            let lasts = (started.ends - clocks.truth).get().unsigned_abs();
            let (frame, class) = (started.item, started.class);
            let hand = Hand { frame, class, lasts, attempts: 0, ready: 0 };
            let medium = &mut self.media[number];
            if medium.aside[place].iter().any(|other| other.class == class) {
                // It does not overtake.
                medium.aside[place].push(hand);
                continue;
            }
            medium.hands[place] = Some(hand);
            return true;
        }
    }

    /// Takes a frame in hand that has collided: gates and slots are for every attempt, and while
    /// that of one class is closed, those of others are not.
    fn take_again(&mut self, number: usize, place: usize) -> bool {
        let medium = &mut self.media[number];
        let port = medium.ports[place];
        if let Some(hand) = medium.hands[place].take() {
            let at = medium.aside[place].iter().position(|other| other.class == hand.class);
            let at = at.unwrap_or(medium.aside[place].len());
            medium.aside[place].insert(at, hand);
        }
        let clocks = self.clocks(self.port_more[slot(port)].node);
        let (mut at, mut seen) = (0, 0_u8);
        while let Some(hand) = self.media[number].aside[place].get(at) {
            let (bit, ready, lasts) = (1_u8 << hand.class, hand.ready, truth(hand.lasts));
            let is_first = seen & bit == 0;
            seen |= bit;
            let again = self.ports[slot(port)].port.lets_again(clocks, hand.class, lasts);
            match again {
                _ if !is_first => at += 1,
                Ok(()) if ready <= self.now => {
                    let medium = &mut self.media[number];
                    medium.hands[place] = Some(medium.aside[place].remove(at));
                    return true;
                }
                Ok(()) => {
                    self.wake(port, ready);
                    at += 1;
                }
                Err(Some(wake)) => {
                    self.wake_by(port, wake);
                    at += 1;
                }
                Err(None) => {
                    let hand = self.media[number].aside[place].remove(at);
                    self.lose(hand.frame, LostBy::NeverFits);
                }
            }
        }
        false
    }

    fn begin_to_send(&mut self, number: usize, place: usize) {
        let now = self.now;
        let Some(hand) = &self.media[number].hands[place] else { return };
        let (lasts, class, stream) = (hand.lasts, hand.class, hand.frame.stream);
        if hand.attempts > 0 {
            // Again, and perhaps no longer where it was to be.
            self.look_at_windows(self.media[number].ports[place], class, stream, lasts);
        }
        let medium = &mut self.media[number];
        let ends = now + lasts;
        medium.sending = Some(Sending { place, start: now, ends });
        medium.free_from = ends + medium.delay;
        medium.own_gap = Some((place, ends));
        medium.epoch = medium.epoch.wrapping_add(1);
        let (last_bit, epoch) = (ends - medium.gap, medium.epoch);
        self.at(last_bit, Kind::MediumFree, index(number), epoch);
    }

    fn collide(&mut self, number: usize, place: usize, with: Option<Sending>) {
        if !self.fetch(number, place) {
            return;
        }
        let medium = &mut self.media[number];
        if let Some(sending) = with {
            self.collisions += 1;
            medium.deaf_until = sending.start + medium.delay;
            medium.sending = None;
            medium.own_gap = None;
            // Both have heard each other and told everybody.
            medium.free_from = self.now + medium.delay + medium.jam + medium.gap;
            medium.epoch = medium.epoch.wrapping_add(1);
            let (at, epoch) = (medium.free_from, medium.epoch);
            self.at(at, Kind::MediumFree, index(number), epoch);
            self.back_off(number, sending.place);
        }
        self.back_off(number, place);
    }

    /// Waits a random time before the next attempt, or gives up.
    fn back_off(&mut self, number: usize, place: usize) {
        let medium = &mut self.media[number];
        let port = medium.ports[place];
        let Some(mut hand) = medium.hands[place].take() else { return };
        hand.attempts += 1;
        if hand.attempts >= ATTEMPTS {
            medium.wait(place);
            return self.lose(hand.frame, LostBy::Collisions);
        }
        let slots = below(medium.random.next(), 1 << hand.attempts.min(BACKOFF_LIMIT));
        hand.ready = medium.free_from + slots * medium.slot_time;
        let ready = hand.ready;
        medium.hands[place] = Some(hand);
        self.wake(port, ready);
    }

    /// The last bit of a frame has left, or the segment is free again.
    pub(super) fn medium_free(&mut self, number: usize, epoch: u32) {
        let medium = &mut self.media[number];
        if epoch != medium.epoch {
            return;
        }
        if let Some(sending) = medium.sending.take() {
            return self.last_bit(number, sending);
        }
        match self.media[number].access {
            Access::Token { .. } => self.hold_token(number),
            Access::Contention => {
                let waiting = std::mem::take(&mut self.media[number].waiting);
                for place in waiting {
                    self.wake(self.media[number].ports[place], self.now);
                }
            }
            Access::InTurn => {
                while self.media[number].sending.is_none() {
                    let medium = &mut self.media[number];
                    let Some(&place) = medium.waiting.front() else { return };
                    if self.now < medium.free_for(place) {
                        return;
                    }
                    medium.waiting.pop_front();
                    if self.fetch(number, place) {
                        self.begin_to_send(number, place);
                    }
                }
            }
        }
    }

    /// The last bit of a frame has left. Its sender may begin again after a gap; the others hear of
    /// it a delay later.
    fn last_bit(&mut self, number: usize, sending: Sending) {
        let medium = &mut self.media[number];
        let (free_from, epoch) = (medium.free_from, medium.epoch);
        let (port, hand) = (medium.ports[sending.place], medium.hands[sending.place].take());
        match medium.access {
            Access::Token { .. } => medium.waiting.clear(),
            Access::Contention => {
                medium.wait(sending.place);
                for place in std::mem::take(&mut medium.waiting) {
                    let medium = &self.media[number];
                    self.wake(medium.ports[place], medium.free_for(place));
                }
            }
            Access::InTurn => {
                medium.wait(sending.place);
                if free_from > sending.ends {
                    self.at(free_from, Kind::MediumFree, index(number), epoch);
                }
            }
        }
        if let Some(hand) = hand {
            self.depart(hand.frame, port, sending.ends, None);
        }
        if self.media[number].access != Access::Contention {
            self.at(sending.ends, Kind::MediumFree, index(number), epoch);
        }
    }

    pub(super) fn token_arrives(&mut self, number: usize, place: u32) {
        let medium = &mut self.media[number];
        (medium.holder, medium.token_since) = (slot(place), self.now);
        self.hold_token(number);
    }

    /// The holder of the token sends, or passes it on.
    fn hold_token(&mut self, number: usize) {
        let medium = &self.media[number];
        let Access::Token { hold, pass } = &medium.access else { return };
        let (hold, pass, holder) = (ps(*hold), ps(*pass), medium.holder);
        let first = self.now == medium.token_since;
        let holds = first || self.now - medium.token_since < hold;
        if holds && self.fetch(number, holder) {
            return self.begin_to_send(number, holder);
        }
        let medium = &self.media[number];
        let next = (holder + 1) % medium.ports.len();
        // A token that takes no time would go round for ever at one instant.
        let takes = (pass + medium.token_time + medium.delay).max(1);
        self.at(self.now + takes, Kind::Token, index(number), index(next));
    }
}
