// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications: when frames are released, and what follows when they arrive.

use std::sync::Arc;

use timewire_base::Sequence;

use timewire_tsn::port::{AsyncShaper, Ps};

use super::delay::ps;
use super::describe::{FaultKind, Network, NodeSpec, StreamSpec, Traffic};
use super::engine::{ANY_PORT, Kind, Simulation};
use super::frame::{Frame, Tags, slot};
use super::observe::What;
use super::ports::{VARIES, fixed};
use super::route::index;
use super::stats::LostBy;

/// A stream that runs, as far as its usual frames need it: one line of a cache.
#[repr(C, align(64))]
pub(super) struct Flow {
    /// Of its frames; of a replay, each frame has a length of its own.
    tags: Tags,
    pub from: u32,
    to: u32,
    number: u32,
    /// Frames that its application released, where one listens.
    pub sent: u64,
    /// Of one whose frames come evenly by a clock that is always right: its period. Else 0.
    always: u64,
    /// When the period began, or begins, by the clock of its station.
    due: i64,
    entered: u64,
    /// The place of its first hop.
    first: u32,
    /// The port of its station that it sends by; [`ANY_PORT`] of one that has several listeners.
    pub first_port: u32,
    /// How long its station takes to send a frame, its application's delay included, or
    /// [`VARIES`].
    sends: u32,
    /// How long the station at its end takes to receive one, or [`VARIES`].
    receives: u32,
}

const _: () = assert!(size_of::<Flow>() == 64);

/// The rest of a stream.
pub(super) struct App {
    pub launch: Option<Ps>,
    /// One for each hop behind the first; none when it is not shaped.
    pub shapers: Vec<AsyncShaper>,
    traffic: Traffic,
    random: Sequence,
    /// Frames of this period that were released.
    burst: u32,
    outstanding: Option<u32>,
    /// Streams that wait for frames of this one.
    followers: Vec<u32>,
    /// How much later than due it is.
    late: u64,
    pub babble_until: u64,
    /// When its next frame is released by the clock of its station, which may yet be set.
    release: Option<i64>,
    /// How often that was reckoned anew: only the last event counts.
    reckoned: u32,
}

impl Flow {
    /// `steady`: the clock of its station is always right, or always as wrong.
    pub fn new(
        spec: &StreamSpec,
        (first, first_port): (u32, u32),
        several: bool,
        network: &Network,
        steady: bool,
    ) -> Flow {
        let is_timed = spec.launch.is_some() || spec.shape.is_some();
        let tags = Tags::new(spec.class, spec.frame.wire_len().get(), is_timed);
        let always = match &spec.traffic {
            Traffic::Cyclic { period, jitter, frames: 1, .. }
                if steady && jitter.fixed() == Some(0) =>
            {
                ps(*period)
            }
            _ => 0,
        };
        Flow {
            tags: if several { tags.with(Tags::SEVERAL) } else { tags },
            from: index(spec.from),
            to: index(spec.to),
            number: 0,
            sent: 0,
            always,
            due: 0,
            entered: 0,
            first,
            first_port: if several { ANY_PORT } else { first_port },
            sends: fixed(&network.nodes[spec.from].send),
            receives: fixed(&network.nodes[spec.to].receive),
        }
    }
}

impl App {
    pub fn new(spec: &StreamSpec, hops: usize, random: Sequence) -> App {
        let shapers = spec.shape.map(|limits| vec![AsyncShaper::new(limits); hops]);
        App {
            launch: spec.launch.map(Ps::from_span),
            shapers: shapers.unwrap_or_default(),
            traffic: spec.traffic.clone(),
            random,
            burst: 0,
            outstanding: None,
            followers: Vec::new(),
            late: 0,
            babble_until: 0,
            release: None,
            reckoned: 0,
        }
    }

    /// What frames of that number have, of those that a stream's frames have.
    fn tags_of(&self, number: u32, tags: Tags) -> Tags {
        match &self.traffic {
            Traffic::Replay { frames, .. } => {
                frames.wire_bytes(number).map_or(tags, |bytes| tags.of_length(bytes))
            }
            _ => tags,
        }
    }
}

/// Which stations' clocks are never set, nor step, nor drift: between two instants they count what
/// passes.
pub(super) fn steady_clocks(network: &Network) -> Vec<bool> {
    let is_steady = |node: &NodeSpec| {
        let clock = &node.clock;
        clock.drift_ppb == 0 && clock.wander_ppb == 0 && clock.sync.is_none()
    };
    let mut steady: Vec<bool> = network.nodes.iter().map(is_steady).collect();
    for fault in &network.faults {
        if let FaultKind::ClockStep(node, _) | FaultKind::ClockDrift(node, _) = fault.kind {
            steady[node] = false;
        }
    }
    steady
}

impl Simulation {
    pub(super) fn begin_flow(&mut self, stream: u32) {
        let place = slot(stream);
        let traffic = self.apps[place].traffic.clone();
        let by_clock = matches!(traffic, Traffic::Cyclic { .. } | Traffic::Replay { .. });
        if by_clock && self.flows[place].always == 0 {
            self.nodes[slot(self.flows[place].from)].releases.push(stream);
        }
        match traffic {
            Traffic::Cyclic { period, offset, .. } => {
                let local = self.nodes[slot(self.flows[place].from)].clock.local(0);
                let (period, offset) = (Ps::from_span(period).get(), Ps::from_span(offset).get());
                // The first time of the stream that its clock has yet to reach.
                self.flows[place].due = local + (offset - local).rem_euclid(period);
                self.next_period(stream);
            }
            Traffic::Sporadic { gap } => {
                let at = gap.draw(&mut self.apps[place].random);
                self.at(at, Kind::Release, stream, 0);
            }
            Traffic::Request { answer, first, .. } => {
                self.follows(stream, answer);
                self.at(ps(first), Kind::Release, stream, 0);
            }
            Traffic::After { stream: cause, .. } => self.follows(stream, cause),
            Traffic::Replay { offset, .. } => {
                let local = self.nodes[slot(self.flows[place].from)].clock.local(0);
                self.flows[place].due = local.saturating_add(Ps::from_span(offset).get());
                self.next_of_replay(stream);
            }
        }
    }

    fn follows(&mut self, stream: u32, cause: usize) {
        self.apps[cause].followers.push(stream);
        let flow = &mut self.flows[cause];
        flow.tags = flow.tags.with(Tags::FOLLOWED);
    }

    fn next_period(&mut self, stream: u32) {
        let (flow, app) = (&self.flows[slot(stream)], &mut self.apps[slot(stream)]);
        let Traffic::Cyclic { jitter, .. } = &app.traffic else { return };
        let jitter = i64::try_from(jitter.draw(&mut app.random)).unwrap_or(0);
        let local = flow.due.saturating_add(jitter);
        self.release_at(stream, local);
    }

    /// The next release, when the clock of its station reads this.
    fn release_at(&mut self, stream: u32, local: i64) {
        let (flow, app) = (&self.flows[slot(stream)], &mut self.apps[slot(stream)]);
        app.release = Some(local);
        let (at, reckoned) =
            (self.nodes[slot(flow.from)].clock.truth(local, self.now), app.reckoned);
        self.at(at, Kind::Release, stream, reckoned);
    }

    /// The clock of a station goes otherwise: what it releases comes at other instants.
    pub(super) fn reckon_releases(&mut self, node: u32) {
        for place in 0..self.nodes[slot(node)].releases.len() {
            let stream = self.nodes[slot(node)].releases[place];
            let app = &mut self.apps[slot(stream)];
            app.reckoned = app.reckoned.wrapping_add(1);
            if let Some(local) = app.release {
                self.release_at(stream, local);
            }
        }
    }

    pub(super) fn release(&mut self, stream: u32, arg: u32) {
        let place = slot(stream);
        let Flow { number, always, .. } = self.flows[place];
        if always > 0 {
            self.emit(stream, self.now, number);
            return self.at(self.now.saturating_add(always), Kind::Release, stream, 0);
        }
        match &self.apps[place].traffic {
            // The clock was set since.
            Traffic::Cyclic { .. } | Traffic::Replay { .. } if arg != self.apps[place].reckoned => {
            }
            Traffic::Cyclic { frames, spacing, period, .. } => {
                let (frames, spacing, period) =
                    (*frames, Ps::from_span(*spacing), Ps::from_span(*period));
                self.emit(stream, self.now, number);
                let local = self.nodes[slot(self.flows[place].from)].clock.local(self.now);
                let app = &mut self.apps[place];
                app.burst += 1;
                if app.burst < frames {
                    return self.release_at(stream, local.saturating_add(spacing.get()));
                }
                app.burst = 0;
                let flow = &mut self.flows[place];
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
                let wait = gap.draw(&mut self.apps[place].random).max(1);
                self.at(self.now.saturating_add(wait), Kind::Release, stream, 0);
            }
            Traffic::Request { timeout, .. } => {
                let timeout = ps(*timeout);
                self.apps[place].outstanding = Some(number);
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
        let Traffic::Replay { frames, .. } = &self.apps[slot(stream)].traffic else { return };
        let at_ps = frames.at_ps(flow.number);
        let local = at_ps.map(|at_ps| flow.due.saturating_add(at_ps));
        self.apps[slot(stream)].release = local;
        if let Some(local) = local {
            self.release_at(stream, local);
        }
    }

    pub(super) fn timed_out(&mut self, stream: u32, number: u32) {
        let app = &mut self.apps[slot(stream)];
        if app.outstanding == Some(number) {
            app.outstanding = None;
            self.results[slot(stream)].timeouts += 1;
            self.release(stream, 0);
        }
    }

    pub(super) fn babble(&mut self, stream: u32) {
        let flow = &self.flows[slot(stream)];
        if self.now >= self.apps[slot(stream)].babble_until {
            return;
        }
        let (number, wire_bytes) = (flow.number, flow.tags.wire_bytes());
        let first = self.routes.hop(flow.first).port();
        let lasts = self.ports[slot(first)].port.duration(wire_bytes).get();
        self.emit(stream, self.now, number);
        self.at(self.now + lasts.unsigned_abs().max(1), Kind::Babble, stream, 0);
    }

    /// A frame is released.
    fn emit(&mut self, stream: u32, created: u64, number: u32) {
        let flow = &mut self.flows[slot(stream)];
        flow.number = flow.number.wrapping_add(1);
        if self.nodes_down > 0 && self.nodes[slot(flow.from)].down > 0 {
            return;
        }
        if flow.tags.has(Tags::SEVERAL) {
            let several = self.several[slot(stream)].iter_mut();
            several.flat_map(|it| &mut it.results).for_each(|result| result.sent += 1);
        } else {
            flow.sent += 1;
        }
        let takes = match flow.sends {
            VARIES => {
                let node = &mut self.nodes[slot(flow.from)];
                node.send.draw(&mut node.random) + self.apps[slot(stream)].late
            }
            takes => takes.into(),
        };
        let ready = self.now.saturating_add(takes).max(flow.entered);
        flow.entered = ready;
        let tags = match flow.always {
            0 => self.apps[slot(stream)].tags_of(number, flow.tags),
            _ => flow.tags,
        };
        let frame = Frame { created, stream, number, at: flow.first, tags };
        self.tell(&frame, What::Released);
        let Some(tree) = self.tree(&frame).map(Arc::clone) else {
            return self.set_out(frame, ready, self.flows[slot(stream)].first_port);
        };
        for root in &tree.roots {
            let frame = self.routes.moved(frame, *root);
            self.set_out(frame, ready, self.routes.hop(frame.at).port());
        }
    }

    /// The application of a stream is late by another time.
    pub(super) fn be_late(&mut self, stream: usize, change: impl FnOnce(u64) -> u64) {
        let (flow, app) = (&mut self.flows[stream], &mut self.apps[stream]);
        app.late = change(app.late);
        flow.sends = match app.late {
            0 => fixed(&self.nodes[slot(flow.from)].send),
            _ => VARIES,
        };
    }

    fn set_out(&mut self, frame: Frame, ready: u64, port: u32) {
        if ready == self.now {
            return self.enter(frame, port);
        }
        let place = self.slab.put(frame, ready);
        self.enters_at(ready, (frame.stream, place), port);
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
        if self.nodes_down > 0 && self.nodes[to].down > 0 {
            return self.lose(frame, LostBy::Restart);
        }
        if frame.tags.has(Tags::DAMAGED) {
            return self.lose(frame, LostBy::Corrupted);
        }
        let takes = match self.flows[stream].receives {
            takes if !WATCHED && takes != VARIES => takes.into(),
            _ => {
                let node = &mut self.nodes[to];
                node.receive.draw(&mut node.random)
            }
        };
        let received = self.now.saturating_add(takes);
        let latency = self.counts(frame.created).then(|| received - frame.created);
        if WATCHED {
            self.tell(&frame, What::Delivered { node: to, received_ps: received });
        }
        match listener.and_then(|it| Some((it, self.several[stream].as_mut()?))) {
            None => self.noted.note(&mut self.results, frame.stream, latency),
            Some((listener, several)) => several.results[listener].arrived(1, latency.as_slice()),
        }
        if frame.tags.has(Tags::FOLLOWED) {
            self.follow_all(frame, to, received);
        }
    }

    /// What waits at a node for a frame that has arrived there.
    fn follow_all(&mut self, frame: Frame, to: usize, received: u64) {
        let stream = slot(frame.stream);
        for place in 0..self.apps[stream].followers.len() {
            let follower = self.apps[stream].followers[place];
            // Others wait for this stream at another of its listeners.
            if slot(self.flows[slot(follower)].from) == to {
                self.follow(follower, frame, received);
            }
        }
    }

    fn follow(&mut self, follower: u32, cause: Frame, received: u64) {
        let app = &mut self.apps[slot(follower)];
        match &app.traffic {
            Traffic::Request { think, .. } if app.outstanding == Some(cause.number) => {
                app.outstanding = None;
                let at = received.saturating_add(think.draw(&mut app.random));
                self.at(at, Kind::Release, follower, 0);
            }
            Traffic::After { work, .. } => {
                let at = received.saturating_add(work.draw(&mut app.random));
                let place = self.causes.put(cause, at);
                self.at(at, Kind::Release, follower, place);
            }
            _ => {}
        }
    }
}
