// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a simulation has a bound: frames that pile up are an error that names who sends
//! them and where they wait, before the allocator has nothing left.

use timewire_tsn::port::{Now, Ps};

use super::describe::{NetError, Network, PortIndex};
use super::engine::{ANY_PORT, Kind, Simulation};
use super::frame::slot;
use super::observe::place;
use super::route::index;
use crate::SimTime;

/// Events from one look to the next. One brings a frame, or as many as a stream has listeners.
const LOOK_EVERY: u64 = 1 << 16;
/// And for each port, as a look is at all of them.
const LOOK_EVERY_OF_PORT: u64 = 32;

impl Simulation {
    /// Whether the frames on their way, and what else is to happen, have room.
    ///
    /// **Errors**: they have not.
    #[cold]
    pub(super) fn look_at_memory(&mut self) -> Result<(), NetError> {
        let ports = u64::try_from(self.ports.len()).unwrap_or(u64::MAX);
        self.next_look = self.events + LOOK_EVERY.max(LOOK_EVERY_OF_PORT.saturating_mul(ports));
        let handled = u32::try_from(self.events & u64::from(u32::MAX)).unwrap_or(0);
        // Each frame between ports or in an application is of one event, or of none when that would
        // be after the end.
        let events = slot(self.number.wrapping_sub(handled));
        let between = events.max(self.slab.count() + self.causes.count());
        let waits = |port: usize| (self.waiting_at(port), port);
        let all = (0..self.ports.len()).map(waits);
        let waiting: usize = all.clone().map(|(count, _)| count).sum();
        let usual = self.flows.len() + 2 * self.ports.len() + self.nodes.len() + self.faults.len();
        if between + waiting <= Network::MAX_IN_FLIGHT + usual {
            return Ok(());
        }
        let (most, port) = all.max().unwrap_or((0, 0));
        Err(if most >= between { self.too_many_at(port) } else { self.too_many_between() })
    }

    /// Frames at a port that are not on its link yet.
    fn waiting_at(&self, port: usize) -> usize {
        let beside = match self.port_more[port].medium {
            Some((medium, place)) if self.ports[port].is_shared => {
                self.media[slot(medium)].held_by(slot(place)).count()
            }
            _ => 0,
        };
        self.ports[port].port.held() + beside
    }

    fn too_many_at(&mut self, port: usize) -> NetError {
        let mut frames = self.ports[port].port.flush(Now { truth: Ps::MAX, local: Ps::MAX });
        if let Some((medium, place)) = self.port_more[port].medium {
            frames.extend(self.media[slot(medium)].held_by(slot(place)));
        }
        let stream = self.most_of(frames.iter().map(|frame| frame.stream));
        self.too_many(stream, PortIndex(port), true)
    }

    /// Of the frames between ports, and of what applications wait for, most is of one stream.
    fn too_many_between(&mut self) -> NetError {
        let frames = self.slab.live().chain(self.causes.live());
        let mut streams: Vec<u32> = frames.map(|flying| flying.frame.stream).collect();
        while let Some(event) = self.queue.pop(u64::MAX) {
            if let (Kind::Timeout, stream) = event.what() {
                streams.push(stream);
            }
        }
        let stream = self.most_of(streams.into_iter());
        let flow = &self.flows[stream];
        let port = match flow.first_port {
            ANY_PORT => self.routes.hop(self.routes.first(index(stream))).port(),
            port => port,
        };
        self.too_many(stream, place(port), false)
    }

    fn most_of(&self, streams: impl Iterator<Item = u32>) -> usize {
        let mut counts = vec![0_usize; self.flows.len()];
        streams.for_each(|stream| counts[slot(stream)] += 1);
        let most = (0..counts.len()).max_by_key(|stream| (counts[*stream], counts.len() - *stream));
        most.unwrap_or(0)
    }

    fn too_many(&self, stream: usize, port: PortIndex, waits: bool) -> NetError {
        let (max, at) = (Network::MAX_IN_FLIGHT, SimTime::from_ps(self.now));
        NetError::TooManyFrames { max, at, stream, port, waits }
    }
}
