// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications: when frames are released, and what follows when they arrive.
//!
//! Not here: the way of a frame (`engine.rs`).

use std::sync::Arc;

use timewire_base::Sequence;

use timewire_mac::port::{AsyncShaper, Ps};

use super::delay::ps;
use super::describe::{StreamSpec, Traffic};
use super::engine::{Kind, Simulation};
use super::frame::{Frame, Tags, slot};
use super::observe::What;
use super::route::index;
use super::stats::{Latencies, LostBy, StreamResult};

/// A stream that runs.
#[repr(C)]
pub(super) struct Flow {
    /// Of its frames; of a replay, each frame has a length of its own.
    tags: Tags,
    pub launch: Option<Ps>,
    /// One for each hop behind the first; none when it is not shaped.
    pub shapers: Vec<AsyncShaper>,
    pub from: u32,
    to: u32,
    traffic: Traffic,
    random: Sequence,
    /// When the period began, or begins, by the clock of its station.
    due: i64,
    /// Frames of this period that were released.
    burst: u32,
    number: u32,
    outstanding: Option<u32>,
    /// Streams that wait for frames of this one.
    followers: Vec<u32>,
    /// How much later than due its application is.
    pub late: u64,
    pub babble_until: u64,
    entered: u64,
    pub result: StreamResult,
}

impl Flow {
    pub fn new(
        spec: &StreamSpec,
        (hops, several): (usize, bool),
        random: Sequence,
        latencies: Latencies,
    ) -> Flow {
        let shapers = spec.shape.map(|limits| vec![AsyncShaper::new(limits); hops]);
        let is_timed = spec.launch.is_some() || spec.shape.is_some();
        let tags = Tags::new(spec.class, spec.frame.wire_len().get(), is_timed);
        Flow {
            tags: if several { tags.with(Tags::SEVERAL) } else { tags },
            launch: spec.launch.map(Ps::from_span),
            shapers: shapers.unwrap_or_default(),
            from: index(spec.from),
            to: index(spec.to),
            traffic: spec.traffic.clone(),
            random,
            due: 0,
            burst: 0,
            number: 0,
            outstanding: None,
            followers: Vec::new(),
            late: 0,
            babble_until: 0,
            entered: 0,
            result: StreamResult { latencies, ..StreamResult::default() },
        }
    }

    /// Of a frame of that number.
    fn tags_of(&self, number: u32) -> Tags {
        match &self.traffic {
            Traffic::Replay { frames, .. } => {
                frames.wire_bytes(number).map_or(self.tags, |bytes| self.tags.of_length(bytes))
            }
            _ => self.tags,
        }
    }
}

impl Simulation {
    pub(super) fn begin_flow(&mut self, stream: u32) {
        let place = slot(stream);
        match self.flows[place].traffic.clone() {
            Traffic::Cyclic { period, offset, .. } => {
                let local = self.nodes[slot(self.flows[place].from)].clock.local(0);
                let (period, offset) = (Ps::from_span(period).get(), Ps::from_span(offset).get());
                // The first time of the stream that its clock has yet to reach.
                self.flows[place].due = local + (offset - local).rem_euclid(period);
                self.next_period(stream);
            }
            Traffic::Sporadic { gap } => {
                let at = gap.draw(&mut self.flows[place].random);
                self.at(at, Kind::Release, stream, 0);
            }
            Traffic::Request { answer, first, .. } => {
                self.flows[answer].followers.push(stream);
                self.at(ps(first), Kind::Release, stream, 0);
            }
            Traffic::After { stream: cause, .. } => self.flows[cause].followers.push(stream),
            Traffic::Replay { offset, .. } => {
                let local = self.nodes[slot(self.flows[place].from)].clock.local(0);
                self.flows[place].due = local.saturating_add(Ps::from_span(offset).get());
                self.next_of_replay(stream);
            }
        }
    }

    fn next_period(&mut self, stream: u32) {
        let flow = &mut self.flows[slot(stream)];
        let Traffic::Cyclic { jitter, .. } = &flow.traffic else { return };
        let jitter = i64::try_from(jitter.draw(&mut flow.random)).unwrap_or(0);
        let local = flow.due.saturating_add(jitter);
        let at = self.nodes[slot(flow.from)].clock.truth(local, self.now);
        self.at(at, Kind::Release, stream, 0);
    }

    pub(super) fn release(&mut self, stream: u32, arg: u32) {
        let place = slot(stream);
        let number = self.flows[place].number;
        match &self.flows[place].traffic {
            Traffic::Cyclic { frames, spacing, period, .. } => {
                let (frames, spacing, period) = (*frames, ps(*spacing), Ps::from_span(*period));
                self.emit(stream, self.now, number);
                let local = self.nodes[slot(self.flows[place].from)].clock.local(self.now);
                let flow = &mut self.flows[place];
                flow.burst += 1;
                if flow.burst < frames {
                    return self.at(self.now.saturating_add(spacing), Kind::Release, stream, 0);
                }
                flow.burst = 0;
                flow.due = flow.due.saturating_add(period.get());
                if flow.due < local {
                    // The clock jumped, or the burst is longer than its period.
                    let missed = (local - flow.due).div_euclid(period.get()) + 1;
                    flow.due += missed * period.get();
                }
                self.next_period(stream);
            }
            Traffic::Sporadic { gap } => {
                let gap = gap.clone();
                self.emit(stream, self.now, number);
                let wait = gap.draw(&mut self.flows[place].random).max(1);
                self.at(self.now.saturating_add(wait), Kind::Release, stream, 0);
            }
            Traffic::Request { timeout, .. } => {
                let timeout = ps(*timeout);
                self.flows[place].outstanding = Some(number);
                // Before it is sent: the answer may be here at once.
                self.at(self.now.saturating_add(timeout), Kind::Timeout, stream, number);
                self.emit(stream, self.now, number);
            }
            Traffic::After { from_cause, .. } => {
                let from_cause = *from_cause;
                let cause = self.causes.take(arg).frame;
                let created = if from_cause { cause.created } else { self.now };
                self.emit(stream, created, cause.number);
            }
            Traffic::Replay { .. } => {
                self.emit(stream, self.now, number);
                self.next_of_replay(stream);
            }
        }
    }

    fn next_of_replay(&mut self, stream: u32) {
        let flow = &self.flows[slot(stream)];
        let Traffic::Replay { frames, .. } = &flow.traffic else { return };
        let Some(at_ps) = frames.at_ps(flow.number) else { return };
        let local = flow.due.saturating_add(at_ps);
        let at = self.nodes[slot(flow.from)].clock.truth(local, self.now);
        self.at(at, Kind::Release, stream, 0);
    }

    pub(super) fn timed_out(&mut self, stream: u32, number: u32) {
        let flow = &mut self.flows[slot(stream)];
        if flow.outstanding == Some(number) {
            flow.result.timeouts += 1;
            flow.outstanding = None;
            self.release(stream, 0);
        }
    }

    pub(super) fn babble(&mut self, stream: u32) {
        let flow = &self.flows[slot(stream)];
        if self.now >= flow.babble_until {
            return;
        }
        let (number, wire_bytes) = (flow.number, flow.tags.wire_bytes());
        let first = self.routes.hop(self.routes.starts[slot(stream)]).port();
        let lasts = self.ports[slot(first)].port.duration(wire_bytes).get();
        self.emit(stream, self.now, number);
        self.at(self.now + lasts.unsigned_abs().max(1), Kind::Babble, stream, 0);
    }

    /// A frame is released.
    fn emit(&mut self, stream: u32, created: u64, number: u32) {
        let flow = &mut self.flows[slot(stream)];
        flow.number = flow.number.wrapping_add(1);
        let node = &mut self.nodes[slot(flow.from)];
        if node.down > 0 {
            return;
        }
        if flow.tags.has(Tags::SEVERAL) {
            let several = self.several[slot(stream)].iter_mut();
            several.flat_map(|it| &mut it.results).for_each(|result| result.sent += 1);
        } else {
            flow.result.sent += 1;
        }
        let ready = self.now.saturating_add(node.send.draw(&mut node.random) + flow.late);
        let ready = ready.max(flow.entered);
        flow.entered = ready;
        let (at, tags) = (self.routes.starts[slot(stream)], flow.tags_of(number));
        let frame = Frame { created, stream, number, at, tags };
        self.tell(&frame, What::Released);
        let Some(tree) = self.tree(&frame).map(Arc::clone) else {
            return self.set_out(frame, ready);
        };
        for root in &tree.roots {
            self.set_out(self.routes.moved(frame, *root), ready);
        }
    }

    fn set_out(&mut self, frame: Frame, ready: u64) {
        if ready == self.now {
            return self.enter(frame);
        }
        let place = self.slab.put(frame, ready);
        self.at(ready, Kind::Enter, frame.stream, place);
    }

    /// Where the way of a frame ends, and which of several listeners that is.
    pub(super) fn end_of(&self, frame: &Frame) -> (Option<usize>, usize) {
        match self.tree(frame) {
            None => (None, slot(self.flows[slot(frame.stream)].to)),
            Some(tree) => {
                let (listener, node) = tree.listener(self.routes.place(frame));
                (Some(listener), slot(node))
            }
        }
    }

    /// A frame has arrived.
    pub(super) fn deliver(&mut self, frame: Frame) {
        if frame.tags.has(Tags::SEVERAL) || self.observer.is_some() {
            self.deliver_to::<true>(frame);
        } else {
            self.deliver_to::<false>(frame);
        }
    }

    /// `WATCHED`: somebody may be told, or there are several listeners.
    fn deliver_to<const WATCHED: bool>(&mut self, frame: Frame) {
        let stream = slot(frame.stream);
        let (listener, to) =
            if WATCHED { self.end_of(&frame) } else { (None, slot(self.flows[stream].to)) };
        if self.nodes[to].down > 0 {
            return self.lose(frame, LostBy::Restart);
        }
        if frame.tags.has(Tags::DAMAGED) {
            return self.lose(frame, LostBy::Corrupted);
        }
        let node = &mut self.nodes[to];
        let received = self.now.saturating_add(node.receive.draw(&mut node.random));
        let counts = self.counts(frame.created);
        if WATCHED {
            self.tell(&frame, What::Delivered { node: to, received_ps: received });
        }
        let result = match listener.and_then(|it| Some((it, self.several[stream].as_mut()?))) {
            None => &mut self.flows[stream].result,
            Some((listener, several)) => &mut several.results[listener],
        };
        result.delivered += 1;
        if counts {
            result.latencies.add(received - frame.created);
        }
        for place in 0..self.flows[stream].followers.len() {
            let follower = self.flows[stream].followers[place];
            if slot(self.flows[slot(follower)].from) != to {
                // It waits for this stream at another of its listeners.
                continue;
            }
            self.follow(follower, frame, received);
        }
    }

    fn follow(&mut self, follower: u32, cause: Frame, received: u64) {
        let flow = &mut self.flows[slot(follower)];
        match &flow.traffic {
            Traffic::Request { think, .. } if flow.outstanding == Some(cause.number) => {
                flow.outstanding = None;
                let at = received.saturating_add(think.draw(&mut flow.random));
                self.at(at, Kind::Release, follower, 0);
            }
            Traffic::After { work, .. } => {
                let at = received.saturating_add(work.draw(&mut flow.random));
                let place = self.causes.put(cause, at);
                self.at(at, Kind::Release, follower, place);
            }
            _ => {}
        }
    }
}
