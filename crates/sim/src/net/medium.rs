// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A segment that several stations share, one frame at a time: contention, in turn, or a token.

use std::collections::VecDeque;

use timewire_base::Sequence;

use timewire_tsn::port::Ps;

use super::delay::{below, ps};
use super::describe::{Access, MediumSpec, Network};
use super::engine::{Kind, Simulation};
use super::frame::{Frame, slot};
use super::route::index;
use super::stats::LostBy;

/// A segment that runs.
pub(super) struct Medium {
    access: Access,
    ports: Vec<u32>,
    /// The frame that each station has begun to send, or has to send again.
    hands: Vec<Option<Hand>>,
    /// Stations that heard it busy, in the order in which they did.
    waiting: VecDeque<usize>,
    sending: Option<Sending>,
    /// From then on a station may begin.
    free_from: u64,
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
            waiting: VecDeque::new(),
            sending: None,
            free_from: 0,
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
        self.hands.iter().flatten().map(|hand| &hand.frame)
    }

    /// A station starts again; what it sends right now goes to its end.
    pub fn drop_hand(&mut self, place: usize) -> Option<Frame> {
        if self.sending.is_some_and(|sending| sending.place == place) {
            return None;
        }
        self.hands[place].take().map(|hand| hand.frame)
    }

    fn wait(&mut self, place: usize) {
        if !self.waiting.contains(&place) {
            self.waiting.push_back(place);
        }
    }
}

impl Simulation {
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
        if now < medium.free_from {
            if contends && now <= medium.deaf_until {
                return self.collide(number, place, None);
            }
            return medium.wait(place);
        }
        if self.fetch(number, place) {
            self.begin_to_send(number, place);
        }
    }

    /// Takes the next frame of a station in hand; whether it has one that may go now.
    fn fetch(&mut self, number: usize, place: usize) -> bool {
        let port = self.media[number].ports[place];
        if let Some(hand) = &self.media[number].hands[place] {
            let ready = hand.ready;
            if ready > self.now {
                self.wake(port, ready);
                return false;
            }
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
            self.media[number].hands[place] = Some(hand);
            return true;
        }
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
            let at = medium.free_from;
            medium.wait(sending.place);
            let (port, hand) = (medium.ports[sending.place], medium.hands[sending.place].take());
            if let Some(hand) = hand {
                self.depart(hand.frame, port, sending.ends, None);
            }
            return self.at(at, Kind::MediumFree, index(number), epoch);
        }
        match self.media[number].access {
            Access::Token { .. } => {
                self.media[number].waiting.clear();
                self.hold_token(number);
            }
            Access::Contention => {
                let waiting = std::mem::take(&mut self.media[number].waiting);
                for place in waiting {
                    self.wake(self.media[number].ports[place], self.now);
                }
            }
            Access::InTurn => {
                while self.media[number].sending.is_none() {
                    let Some(place) = self.media[number].waiting.pop_front() else { return };
                    self.medium_try(number, place);
                }
            }
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
