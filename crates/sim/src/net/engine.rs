// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulation: what happens next, ports and links.

use std::collections::BTreeMap;

use timewire_base::Sequence;
use timewire_tsn::port::{
    AsyncGroup, Gate, GateList, Now, Offered, PREAMBLE_BYTES, Ps, Refused, Started, Wake,
};

use super::app::{App, Flow, steady_clocks};
use super::clock::NetClock;
use super::delay::{Delay, ps};
use super::describe::{NetError, Network};
use super::frame::{Frame, NO_PORT, Slab, Tags, slot};
use super::medium::Medium;
use super::noted::Noted;
use super::observe::{Observer, What, place};
use super::ports::{NO_PEER, PortMore, PortState, VARIES, ports};
use super::queue::{Event, EventQueue};
use super::route::{Routes, index};
use super::stats::{Latencies, LostBy, SimOutcome, StreamResult, Violation};
use super::tree::Listeners;
use crate::SimTime;

/// A kind of event. At one instant they go in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fault,
    FaultEnds,
    Clock,
    /// A frame comes to the queue of the next port of its way.
    Enter,
    /// A frame has arrived at the end of its way.
    Deliver,
    Release,
    Timeout,
    Babble,
    MediumFree,
    Wake,
    Token,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Fault,
        Kind::FaultEnds,
        Kind::Clock,
        Kind::Enter,
        Kind::Deliver,
        Kind::Release,
        Kind::Timeout,
        Kind::Babble,
        Kind::MediumFree,
        Kind::Wake,
        Kind::Token,
    ];

    /// Its place in [`Kind::ALL`].
    const fn rank(self) -> u64 {
        match self {
            Kind::Fault => 0,
            Kind::FaultEnds => 1,
            Kind::Clock => 2,
            Kind::Enter => 3,
            Kind::Deliver => 4,
            Kind::Release => 5,
            Kind::Timeout => 6,
            Kind::Babble => 7,
            Kind::MediumFree => 8,
            Kind::Wake => 9,
            Kind::Token => 10,
        }
    }
}

const _: () = {
    let mut place: u64 = 0;
    let mut all = Kind::ALL.as_slice();
    while let [kind, rest @ ..] = all {
        assert!(kind.rank() == place, "each kind is at its rank");
        (all, place) = (rest, place + 1);
    }
};

/// A station or bridge. What is always the same about it, its ports and streams know themselves.
pub(super) struct Node {
    /// How many faults have it down.
    pub down: u32,
    pub cut_through_bytes: Option<u32>,
    pub clock: NetClock,
    pub random: Sequence,
    pub send: Delay,
    pub receive: Delay,
    pub forward: Delay,
    pub ports: Vec<u32>,
    /// Streams of which it releases frames by its clock, where that does not go on as it does.
    pub releases: Vec<u32>,
}

impl Event {
    /// Its kind, and what it happens to.
    pub(super) fn what(&self) -> (Kind, u32) {
        let kind = Kind::ALL[usize::try_from(self.key >> 60).unwrap_or(0)];
        (kind, u32::try_from(self.key >> 32 & 0x0fff_ffff).unwrap_or(0))
    }
}

/// A network that runs.
pub struct Simulation {
    pub(super) now: u64,
    until: u64,
    warm_up: u64,
    tolerance: Ps,
    pub(super) queue: EventQueue,
    pub(super) number: u32,
    pub(super) nodes: Vec<Node>,
    /// How many faults have nodes down: without one, no frame asks.
    pub(super) nodes_down: u32,
    pub(super) ports: Vec<PortState>,
    pub(super) port_more: Vec<PortMore>,
    pub(super) flows: Vec<Flow>,
    pub(super) apps: Vec<App>,
    pub(super) results: Vec<StreamResult>,
    /// Arrivals that are not in the results yet.
    pub(super) noted: Noted,
    /// Of each flow, those who listen when there are several; apart, as few flows have them.
    pub(super) several: Vec<Option<Box<Listeners>>>,
    pub(super) media: Vec<Medium>,
    pub(super) slab: Slab,
    pub(super) routes: Routes,
    pub(super) faults: Vec<super::describe::Fault>,
    pub(super) master_lost: u32,
    /// Times of causes, for what follows them.
    pub(super) causes: Slab,
    /// By node, by who sends to one of its ports (a segment, or the port at the other end of a
    /// link), and by class.
    groups: BTreeMap<(u32, (bool, u32), usize), AsyncGroup>,
    /// [`PortMore::forwarded`], of a port on a segment and a node there.
    forwarded: BTreeMap<(u32, u32), u64>,
    pub(super) events: u64,
    /// After so many events memory is looked at.
    pub(super) next_look: u64,
    pub(super) hops: u64,
    pub(super) collisions: u64,
    violations: Vec<Violation>,
    pub(super) observer: Option<Box<dyn Observer>>,
}

impl Simulation {
    /// The network at its start.
    ///
    /// **Errors**: a network that cannot be; the first thing that is wrong.
    pub fn new(network: &Network) -> Result<Simulation, NetError> {
        network.check()?;
        let seed = network.seed;
        let nodes = network.nodes.iter().enumerate().map(|(number, spec)| Node {
            forward: spec.forward.clone(),
            send: spec.send.clone(),
            receive: spec.receive.clone(),
            cut_through_bytes: spec.cut_through_bytes,
            clock: NetClock::new(spec.clock, sequence(seed, 1, number)),
            random: sequence(seed, 2, number),
            down: 0,
            ports: Vec::new(),
            releases: Vec::new(),
        });
        let mut routes = Routes::of(network)?;
        let more: usize = network.more_listeners.values().map(Vec::len).sum();
        let rows = network.streams.len() + more;
        let steady = steady_clocks(network);
        let flows = network.streams.iter().enumerate();
        let (flows, apps): (Vec<Flow>, Vec<App>) = flows
            .map(|(number, spec)| {
                let several = routes.trees.contains_key(&number);
                let way = (routes.first(index(number)), slot(routes.hops_of(index(number))));
                let random = sequence(seed, STREAM, number);
                let first = (way.0, routes.hop(way.0).port());
                let flow = Flow::new(spec, first, several, network, steady[spec.from]);
                (flow, App::new(spec, way.1, random))
            })
            .unzip();
        let results = flows.iter().map(|_| StreamResult {
            latencies: Latencies::of_one_of(rows),
            ..StreamResult::default()
        });
        let results = results.collect();
        let several = (0..flows.len()).map(|number| {
            let tree = routes.trees.remove(&number)?;
            Some(Box::new(Listeners::new(tree, &Latencies::of_one_of(rows))))
        });
        let several = several.collect();
        let (ports, port_more) = ports(network);
        let mut simulation = Simulation {
            now: 0,
            until: ps(network.duration),
            warm_up: ps(network.warm_up),
            tolerance: Ps::from_span(network.tolerance),
            queue: EventQueue::new(),
            number: 0,
            nodes: nodes.collect(),
            nodes_down: 0,
            ports,
            port_more,
            noted: Noted::of(flows.len()),
            flows,
            apps,
            results,
            several,
            media: network
                .media
                .iter()
                .enumerate()
                .map(|(number, spec)| Medium::new(spec, number, network, sequence(seed, 5, number)))
                .collect(),
            slab: Slab::default(),
            routes,
            faults: network.faults.clone(),
            master_lost: 0,
            causes: Slab::default(),
            groups: BTreeMap::new(),
            forwarded: BTreeMap::new(),
            events: 0,
            next_look: 1,
            hops: 0,
            collisions: 0,
            violations: Vec::new(),
            observer: None,
        };
        simulation.begin();
        Ok(simulation)
    }

    /// Runs the network to its end.
    ///
    /// **Errors**: as [`Simulation::new`] and [`Simulation::go_on`].
    pub fn run(network: &Network) -> Result<SimOutcome, NetError> {
        let mut simulation = Simulation::new(network)?;
        while simulation.go_on(u64::MAX)? {}
        Ok(simulation.finish())
    }

    /// Handles at most so many events; whether there are more before the end.
    ///
    /// **Errors**: more frames are on their way than memory is given for; the simulation is of no
    /// use then.
    pub fn go_on(&mut self, events: u64) -> Result<bool, NetError> {
        let mut left = events;
        while left > 0 {
            let part = left.min(self.next_look - self.events);
            for _ in 0..part {
                let Some(event) = self.queue.pop(self.until) else { return Ok(false) };
                self.now = event.time;
                self.events += 1;
                self.handle(event);
            }
            left -= part;
            if self.events == self.next_look {
                self.look_at_memory()?;
            }
        }
        Ok(true)
    }

    /// Where it is, and where it ends.
    pub fn progress(&self) -> (SimTime, SimTime) {
        (SimTime::from_ps(self.now), SimTime::from_ps(self.until))
    }

    /// Events that were handled so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Frames that ports have sent so far.
    pub fn hops(&self) -> u64 {
        self.hops
    }

    /// Counts what is still on its way, and holds the books against each other.
    pub fn finish(mut self) -> SimOutcome {
        let live = self.slab.live().filter(|flying| !flying.frame.tags.has(Tags::GONE));
        let mut left: Vec<Frame> = live.map(|flying| flying.frame).collect();
        let clock = Now { truth: Ps::MAX, local: Ps::MAX };
        for port in &mut self.ports {
            left.extend(port.port.flush(clock));
        }
        left.extend(self.media.iter().flat_map(Medium::held).copied());
        for frame in left {
            self.count(&frame, |result| result.in_flight += 1);
        }
        self.noted.put_down(&mut self.results);
        let mut listeners = BTreeMap::new();
        let results = std::mem::take(&mut self.results).into_iter().enumerate();
        let mut streams = Vec::with_capacity(results.len());
        for (number, mut all) in results {
            all.sent = self.flows[number].sent;
            let mut is_balanced = all.is_balanced();
            if let Some(several) = self.several[number].take() {
                is_balanced = several.results.iter().all(StreamResult::is_balanced);
                several.results.iter().for_each(|result| all.merge(result));
                listeners.insert(number, several.results);
            }
            if !is_balanced {
                self.violated("a frame neither arrived nor was lost nor is on its way");
            }
            streams.push(all);
        }
        SimOutcome {
            streams,
            listeners,
            events: self.events,
            hops: self.hops,
            collisions: self.collisions,
            violations: self.violations,
            most_in_flight: self.slab.frames.len(),
        }
    }

    fn begin(&mut self) {
        for port in 0..self.ports.len() {
            let node = slot(self.port_more[port].node);
            self.nodes[node].ports.push(index(port));
        }
        for node in 0..self.nodes.len() {
            if let Some(interval) = self.nodes[node].clock.interval() {
                self.at(interval, Kind::Clock, index(node), 0);
            }
        }
        for stream in 0..self.flows.len() {
            self.begin_flow(index(stream));
        }
        for fault in 0..self.faults.len() {
            self.at(ps(self.faults[fault].at), Kind::Fault, index(fault), 0);
        }
        for medium in 0..self.media.len() {
            self.begin_medium(medium);
        }
    }

    /// Something happens at an instant.
    pub(super) fn at(&mut self, time: u64, kind: Kind, object: u32, arg: u32) {
        let port = match kind {
            // A segment's other stations hear it.
            Kind::Wake if !self.ports[slot(object)].is_shared => object,
            Kind::Release => self.flows[slot(object)].first_port,
            _ => ANY_PORT,
        };
        self.at_port(time, kind, (object, arg), port);
    }

    /// A frame of the slab, of a stream and at a place, comes to a port.
    #[inline(always)]
    pub(super) fn enters_at(&mut self, time: u64, (stream, place): (u32, u32), port: u32) {
        self.at_port(time, Kind::Enter, (stream, place), port);
    }

    /// A frame of the slab comes to the end of its way.
    pub(super) fn delivered_at(&mut self, time: u64, place: u32, frame: &Frame) {
        // An application that waits for the frame may send one at once.
        let port = if frame.tags.has(Tags::FOLLOWED) { ANY_PORT } else { NO_PORT };
        self.at_port(time, Kind::Deliver, (frame.stream, place), port);
    }

    /// `port`: see [`Event::port`].
    #[inline(always)]
    fn at_port(&mut self, time: u64, kind: Kind, (object, arg): (u32, u32), port: u32) {
        if time > self.until {
            // It never happens; a frame that waits for it is on its way at the end.
            return;
        }
        self.number = self.number.wrapping_add(1);
        let key = kind.rank() << 60 | u64::from(object) << 32 | u64::from(self.number);
        self.queue.push(Event { time, key, arg, port });
    }

    fn handle(&mut self, event: Event) {
        let (kind, object) = event.what();
        match kind {
            Kind::Fault => self.fault_begins(slot(object)),
            Kind::FaultEnds => self.fault_ends(slot(object)),
            Kind::Clock => self.clock_ticks(object),
            Kind::Enter => {
                let flying = self.slab.take(event.arg);
                if !flying.frame.tags.has(Tags::GONE) {
                    self.enter(flying.frame, event.port);
                }
            }
            Kind::Deliver => {
                let flying = self.slab.take(event.arg);
                if !flying.frame.tags.has(Tags::GONE) {
                    self.deliver(flying.frame);
                }
            }
            Kind::Release => self.release(object, event.arg),
            Kind::Timeout => self.timed_out(object, event.arg),
            Kind::Babble => self.babble(object),
            Kind::MediumFree => self.medium_free(slot(object), event.arg),
            Kind::Wake => {
                let port = &mut self.ports[slot(object)];
                if port.wake_at == self.now {
                    port.wake_at = u64::MAX;
                    self.poll(object);
                }
            }
            Kind::Token => self.token_arrives(slot(object), event.arg),
        }
    }

    fn clock_ticks(&mut self, node: u32) {
        let lost = self.master_lost > 0;
        let clock = &mut self.nodes[slot(node)].clock;
        clock.tick(self.now, lost);
        if let Some(interval) = clock.interval() {
            self.at(self.now + interval, Kind::Clock, node, 0);
        }
        self.clock_changed(node);
    }

    /// What waits for a reading of a clock waits for another instant now.
    pub(super) fn clock_changed(&mut self, node: u32) {
        self.reckon_releases(node);
        for place in 0..self.nodes[slot(node)].ports.len() {
            let port = self.nodes[slot(node)].ports[place];
            if self.ports[slot(port)].port.minds_clock() {
                self.kick(port);
            }
        }
    }

    pub(super) fn clocks(&self, node: u32) -> Now {
        let local = self.nodes[slot(node)].clock.local(self.now);
        Now { truth: truth(self.now), local: Ps::new(local) }
    }

    pub(super) fn lose(&mut self, frame: Frame, by: LostBy) {
        if self.observer.is_some() {
            self.tell_loss(frame, by);
        }
        self.count(&frame, |result| result.lost[by.index()] += 1);
    }

    pub(super) fn violated(&mut self, what: &'static str) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation { at: SimTime::from_ps(self.now), what });
        }
    }

    /// The port that has sent a frame, or [`NO_PORT`].
    pub(super) fn sent_by(&self, frame: &Frame) -> u32 {
        if frame.tags.has(Tags::FRESH) {
            return NO_PORT;
        }
        match self.tree(frame) {
            None => self.routes.hop(frame.at - 1).port(),
            Some(tree) => tree.sent_by(self.routes.place(frame)),
        }
    }

    /// A frame comes to the queue of the port of its hop.
    pub(super) fn enter(&mut self, frame: Frame, number: u32) {
        if (self.nodes_down > 0 || frame.tags.has(Tags::DAMAGED))
            && let Some(by) = self.lost_at(number, &frame)
        {
            return self.lose(frame, by);
        }
        let (class, wire_bytes) = (frame.tags.class(), frame.tags.wire_bytes());
        // Who is told is told of a queue, too.
        let waits = frame.tags.has(Tags::TIMED)
            || self.ports[slot(number)].is_shared
            || self.observer.is_some()
            || self.concerned_now(number);
        let port = &mut self.ports[slot(number)].port;
        if !waits && let Some(started) = port.pass(truth(self.now), frame, class, wire_bytes) {
            return self.go(&started, number);
        }
        self.tell(&frame, What::Queued { port: place(number) });
        let clocks = self.clocks(self.port_more[slot(number)].node);
        let Some(not_before) = self.not_before(&frame, number, clocks) else {
            return self.lose(frame, LostBy::Shaped);
        };
        if self.ports[slot(number)].is_shared && self.is_full_beside(number, class) {
            return self.lose(frame, LostBy::QueueFull);
        }
        let offered = Offered { item: frame, class, wire_bytes, not_before };
        match self.ports[slot(number)].port.offer(clocks, offered) {
            Ok(()) => self.kick(number),
            Err(Refused::Full) => self.lose(frame, LostBy::QueueFull),
            Err(Refused::Late) => self.lose(frame, LostBy::Late),
            Err(Refused::NeverFits) => self.lose(frame, LostBy::NeverFits),
        }
    }

    /// Why the node of a port does not take a frame.
    #[cold]
    fn lost_at(&self, port: u32, frame: &Frame) -> Option<LostBy> {
        let node = &self.nodes[slot(self.port_more[slot(port)].node)];
        if node.down > 0 {
            return Some(LostBy::Restart);
        }
        let checks = node.cut_through_bytes.is_none();
        (frame.tags.has(Tags::DAMAGED) && checks).then_some(LostBy::Corrupted)
    }

    /// The launch time of a frame, or its time of asynchronous shaping; `None` when that discards
    /// it.
    fn not_before(&mut self, frame: &Frame, port: u32, clocks: Now) -> Option<Ps> {
        if !frame.tags.has(Tags::TIMED) {
            return Some(Ps::ZERO);
        }
        let sent_by = self.sent_by(frame);
        let flow = &mut self.apps[slot(frame.stream)];
        if frame.tags.has(Tags::FRESH) {
            let Some(launch) = flow.launch else { return Some(Ps::ZERO) };
            let node = self.port_more[slot(port)].node;
            let released = self.nodes[slot(node)].clock.local(frame.created);
            return Some(Ps::new(released) + launch);
        }
        // Of all that comes in at one port, and goes where it may: 802.1Q-2022, 8.6.5.6.
        let heard_at = match self.port_more.get(slot(sent_by)).and_then(|it| it.medium) {
            Some((medium, _)) => (true, medium),
            None => (false, sent_by),
        };
        let group = (self.port_more[slot(port)].node, heard_at, frame.tags.class());
        let hop = frame.at - self.routes.first(frame.stream);
        let Some(shaper) = flow.shapers.get_mut(slot(hop)) else {
            return Some(Ps::ZERO);
        };
        let group = self.groups.entry(group).or_default();
        shaper.eligible(group, clocks.local, frame.tags.wire_bytes())
    }

    /// Something changed at a port. What else happens at this instant happens first.
    pub(super) fn kick(&mut self, port: u32) {
        if self.concerned_now(port) {
            self.wake(port, self.now);
        } else {
            self.poll(port);
        }
    }

    /// Whether something else at this instant may concern a port.
    #[inline(always)]
    fn concerned_now(&self, port: u32) -> bool {
        self.queue.more_now() && self.may_concern(port)
    }

    /// The larger a network, the more happens in it at one instant, elsewhere. What cannot be told
    /// at a glance may concern the port.
    #[inline(never)]
    fn may_concern(&self, port: u32) -> bool {
        let Some(mut others) = self.queue.others_now() else { return true };
        others.any(|event| event.port == port || event.port == ANY_PORT)
    }

    pub(super) fn wake(&mut self, port: u32, time: u64) {
        let time = time.max(self.now);
        let state = &mut self.ports[slot(port)];
        if time < state.wake_at {
            state.wake_at = time;
            self.at(time, Kind::Wake, port, 0);
        }
    }

    pub(super) fn wake_by(&mut self, port: u32, wake: Wake) {
        let truth = u64::try_from(wake.truth.get()).unwrap_or(self.now);
        let local = match wake.local {
            Ps::MAX => u64::MAX,
            local => {
                let node = self.port_more[slot(port)].node;
                self.nodes[slot(node)].clock.truth(local.get(), self.now)
            }
        };
        let time = if wake.truth == Ps::MAX { local } else { truth.min(local) };
        if time != u64::MAX {
            self.wake(port, time);
        }
    }

    fn poll(&mut self, port: u32) {
        if self.ports[slot(port)].is_shared
            && let Some((medium, place)) = self.port_more[slot(port)].medium
        {
            return self.medium_try(slot(medium), slot(place));
        }
        loop {
            let state = &self.ports[slot(port)];
            // The station's clock is not looked at when nothing goes by it.
            let local = truth(self.now);
            let plain = Now { truth: local, local };
            let clocks = match state.port.is_plain() {
                true => plain,
                false => self.clocks(self.port_more[slot(port)].node),
            };
            let polled = self.ports[slot(port)].port.poll(clocks);
            if let Some(frame) = polled.finished {
                let ends = self.now + self.port_more[slot(port)].gap;
                self.depart(frame, port, ends, None);
            }
            if let Some(started) = polled.started {
                self.started(&started, port, clocks);
                if !started.preemptable {
                    let ends = u64::try_from(started.ends.get()).unwrap_or(self.now);
                    self.depart(started.item, port, ends, Some(self.now));
                }
            }
            if let Some(frame) = polled.dropped {
                self.lose(frame, LostBy::NeverFits);
                continue;
            }
            return self.wake_by(port, polled.wake);
        }
    }

    /// A transmission begins at a port without gates; nothing interrupts it.
    #[inline(always)]
    fn go(&mut self, started: &Started<Frame>, port: u32) {
        self.hops += 1;
        let ends = u64::try_from(started.ends.get()).unwrap_or(self.now);
        let state = &mut self.ports[slot(port)];
        let free_at = std::mem::replace(&mut state.free_at, ends);
        if self.now < free_at {
            self.violated(OVERLAP);
        }
        self.depart(started.item, port, ends, Some(self.now));
    }

    /// A transmission begins: what must hold is checked.
    pub(super) fn started(&mut self, started: &Started<Frame>, port: u32, clocks: Now) {
        self.hops += 1;
        let state = &mut self.ports[slot(port)];
        let overlaps = self.now < state.free_at;
        if !started.preemptable {
            state.free_at = u64::try_from(started.ends.get()).unwrap_or(0);
        }
        if overlaps {
            self.violated(OVERLAP);
        }
        if started.resumed {
            return;
        }
        self.tell(&started.item, What::Started { port: place(port), class: started.class });
        let lasts = started.ends - clocks.truth;
        let Some(gates) = self.ports[slot(port)].port.gates() else { return };
        let kept = within(gates, started.class, clocks.local, lasts);
        self.look_at_windows(port, started.class, started.item.stream, lasts.get().unsigned_abs());
        if !kept {
            self.violated("a frame is outside the window of its class");
        }
    }

    /// Whether a transmission that begins now is where it should be by the right time.
    pub(super) fn look_at_windows(&mut self, port: u32, class: usize, stream: u32, lasts: u64) {
        let truth = |ps: u64| Ps::new(i64::try_from(ps).unwrap_or(i64::MAX));
        let Some(gates) = self.ports[slot(port)].port.gates() else { return };
        let (start, lasts) = (truth(self.now), truth(lasts));
        let tolerance = self.tolerance;
        let (first, last) = (start + tolerance, start + lasts - tolerance);
        let kept = if first < last {
            // What is more than the tolerance away from both ends lies in a window.
            within(gates, class, first, last - first)
        } else {
            // A window that takes the frame at all is as long, so none is stepped over.
            let step = usize::try_from(lasts.get().max(1)).unwrap_or(usize::MAX);
            let mut between = (last.get() - 1..first.get()).step_by(step).map(Ps::new);
            let open = |at: Ps| within(gates, class, at, Ps::new(1));
            open(first) || between.any(open)
        };
        if !kept {
            self.results[slot(stream)].outside_windows += 1;
        }
    }

    /// A frame has a link for itself until `ends`, gap included; `since` when it is known from the
    /// start that nothing interrupts it.
    pub(super) fn depart(&mut self, mut frame: Frame, port: u32, ends: u64, since: Option<u64>) {
        let state = &self.ports[slot(port)];
        let arrives = ends.saturating_add_signed(state.lag);
        if state.is_rough {
            match self.befalls(port) {
                Some(LostBy::Corrupted) => frame.tags = frame.tags.with(Tags::DAMAGED),
                Some(by) => return self.lose(frame, by),
                None => {}
            }
        }
        frame.tags = frame.tags.without(Tags::FRESH);
        if frame.tags.has(Tags::SEVERAL) || self.observer.is_some() {
            return self.depart_watched(frame, port, (ends, arrives, since));
        }
        let hop = self.routes.hop(frame.at);
        frame.at += 1;
        if hop.is_last() {
            let place = self.slab.put(frame, arrives);
            return self.delivered_at(arrives, place, &frame);
        }
        self.go_to_next::<false>(frame, port, (arrives, since), None);
    }

    /// A frame that `port` has sent comes to the queue of the port where it is now; how long
    /// forwarding takes, as given or drawn. `WATCHED`: somebody may be told.
    #[inline(always)]
    pub(super) fn go_to_next<const WATCHED: bool>(
        &mut self,
        frame: Frame,
        port: u32,
        (arrives, since): (u64, Option<u64>),
        takes: Option<u64>,
    ) -> u64 {
        let fixed = self.ports[slot(port)].takes;
        if !WATCHED && fixed != VARIES {
            let place = self.slab.put(frame, arrives);
            let port = self.routes.hop(frame.at).port();
            let ready = arrives.saturating_add(fixed.into());
            self.enters_at(ready, (frame.stream, place), port);
            return fixed.into();
        }
        self.go_as_node_says::<WATCHED>(frame, port, (arrives, since), takes)
    }

    /// The same where the node at the other end is asked.
    #[inline(never)]
    fn go_as_node_says<const WATCHED: bool>(
        &mut self,
        frame: Frame,
        port: u32,
        (arrives, since): (u64, Option<u64>),
        takes: Option<u64>,
    ) -> u64 {
        let (state, more) = (&self.ports[slot(port)], &self.port_more[slot(port)]);
        let onward = self.routes.hop(frame.at).port();
        let peer = match more.peer {
            NO_PEER => self.port_more[slot(onward)].node,
            peer => peer,
        };
        let mut ready = arrives;
        if let (Some(bytes), Some(since)) = (self.nodes[slot(peer)].cut_through_bytes, since)
            && self.ports[slot(onward)].port.rate() <= state.port.rate()
        {
            let head = state.port.duration(bytes + PREAMBLE_BYTES);
            let head = u64::try_from(head.get()).unwrap_or(0);
            ready = ready.min(since + head + more.delay);
        }
        if WATCHED {
            self.tell(&frame, What::Reaches { port: place(port), node: slot(peer), at_ps: ready });
        }
        let node = &mut self.nodes[slot(peer)];
        let takes = takes.unwrap_or_else(|| node.forward.draw(&mut node.random));
        let mut ready = ready.saturating_add(takes);
        if self.ports[slot(port)].takes == VARIES {
            let more = &mut self.port_more[slot(port)];
            let forwarded = match more.peer {
                // Each node that hears a segment has an order of its own.
                NO_PEER => self.forwarded.entry((port, peer)).or_default(),
                _ => &mut more.forwarded,
            };
            ready = ready.max(*forwarded);
            *forwarded = ready;
        }
        let place = self.slab.put(frame, arrives);
        self.enters_at(ready, (frame.stream, place), onward);
        takes
    }

    /// Whether latencies of frames of that time count.
    pub(super) fn counts(&self, created: u64) -> bool {
        created >= self.warm_up
    }
}

/// An event that may concern any port at once. One that concerns none has [`NO_PORT`].
pub(super) const ANY_PORT: u32 = u32::MAX - 1;
const MAX_VIOLATIONS: usize = 100;
const OVERLAP: &str = "a port sends two frames at the same time";

pub(super) fn truth(now: u64) -> Ps {
    Ps::new(i64::try_from(now).expect("invariant: shorter than 106 days"))
}

fn within(gates: &GateList, class: usize, from: Ps, lasts: Ps) -> bool {
    match gates.gate(class, from) {
        Gate::Open { until } => from + lasts <= until,
        Gate::Closed { .. } => false,
    }
}

/// The kind of random numbers that a stream has.
pub(super) const STREAM: u64 = 3;

/// A sequence of its own for everything that is random: what is added elsewhere changes none.
pub(super) fn sequence(seed: u64, kind: u64, number: usize) -> Sequence {
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    let mut mixed = Sequence::new(seed.rotate_left(17) ^ kind << 56 ^ number);
    Sequence::new(mixed.next() ^ seed)
}
