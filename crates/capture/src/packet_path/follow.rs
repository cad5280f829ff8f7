// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Follows packets on the hosts: which buffer an event belongs to, and whether it is still the same
//! packet that is in it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::arrivals::Arrivals;
use super::bounds::left;
use super::identity::{Map, own_tag};
use super::losses::Intervals;
use super::node::{NodeRef, Nodes, Parent};
use super::socket::Socket;
use super::stage::{
    DEVICE_QUEUE, DRIVER_DONE, DRIVER_START, RECEIVE, SOCKET_QUEUE, STACK_RECEIVE, rank,
};
use super::{
    CaptureInfo, ClockMap, Common, Loss, Observer, PacketPath, PathOutcome, Point, Rule, Settings,
    Status,
};
use crate::event::{Event, Flags, Hook};

/// How many there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Events that came later than the order allows; they count as lost.
    pub late: u64,
    /// Packet paths by status and outcome, a drop without its reason.
    pub packet_paths: BTreeMap<(Status, &'static str), u64>,
    /// Packet paths that ended with a drop, by capture and the kernel's reason.
    pub drops: BTreeMap<(usize, u64), u64>,
    /// Messages that were received and have no packet: the tracing began or lost it in between.
    pub unmatched_receives: u64,
    /// Most buffers that were followed at once.
    pub most_open: usize,
    /// What had no room ([`Bounds`](super::Bounds)), by its name.
    pub left_out: super::LeftOut,
}

/// How much an analysis keeps in mind: memory is in proportion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Packets on their way, and those whose packet paths wait to come out.
    pub packets: usize,
    /// Events that wait for earlier ones.
    pub events: usize,
    /// Sockets.
    pub sockets: usize,
    /// Threads.
    pub threads: usize,
    /// Times at which events were lost.
    pub losses: usize,
    /// Names of threads, flows and points, and steps of clocks.
    pub names: usize,
}

/// Makes packet paths of events.
///
/// Events are given in the order of the common scale, those of one capture up to
/// [`Settings::reorder_ns`] out of it.
#[derive(Debug)]
pub struct PacketPaths<C> {
    clocks: Arc<C>,
    pub(super) settings: Settings,
    pub(super) captures: Vec<Capture>,
    waiting: Vec<(Point, Event)>,
    kept: usize,
    newest: i64,
    pub(super) passed: i64,
    swept: i64,
    pub(super) nodes: Nodes,
    /// The node in each buffer.
    pub(super) live: Map<(u8, u64), NodeRef>,
    /// The latest markers, by capture, station and tag; and in which order they came.
    markers: Map<(u8, u8, u64), Point>,
    marked: VecDeque<((u8, u8, u64), i64)>,
    /// Frames that drivers have shown.
    pub(super) arrivals: Arrivals,
    /// Nodes that came by a wire, and when their transmission is decided.
    pub(super) births: VecDeque<(i64, NodeRef)>,
    /// Nodes that will be seen again soon or never: when, and how many points they have.
    pub(super) moving: VecDeque<(i64, NodeRef, usize)>,
    /// Nodes whose end is known, and when they come out.
    pub(super) done: VecDeque<(i64, NodeRef)>,
    pub(super) scratch: PacketPath,
    pub(super) counts: Counts,
}

/// What is known of one capture's kernel.
#[derive(Debug)]
pub(super) struct Capture {
    pub info: CaptureInfo,
    /// When events of packet paths were lost, and of sockets.
    pub lost: Intervals,
    pub sockets_lost: Intervals,
    pub cpus: Vec<Cpu>,
    pub threads: Map<u32, Thread>,
    pub sockets: Map<u64, Socket>,
}

impl Capture {
    pub fn watches(&self, hook: Hook) -> bool {
        self.info.hooks.contains(&hook)
    }

    /// Messages in the queues of its sockets.
    pub fn messages(&self) -> usize {
        self.sockets.values().map(Socket::messages).sum()
    }
}

#[derive(Debug, Default)]
pub(super) struct Cpu {
    /// Drivers at work, the innermost last: buffer, interface, node, its points by then.
    drivers: Vec<(u64, u32, NodeRef, usize)>,
    /// The packet of the last event, with its points by then; and of the last `stack-receive`.
    pub last: Option<(NodeRef, usize)>,
    pub stack: Option<(NodeRef, usize)>,
    /// The last event put a packet into this socket, at this time.
    pub queued: Option<(u64, i64)>,
    /// The buffer and the tag of the last packet that it put into a socket.
    pub tapped: Option<(u64, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The send call that it is in.
    call: Option<Point>,
    /// Packets since then.
    sent: Vec<NodeRef>,
    /// What it received last.
    received: Option<NodeRef>,
    /// When it was seen last.
    pub touched: i64,
}

/// Linux `SKB_DROP_REASON_NOT_SPECIFIED`: before Linux 6.2, and since. What the other number is,
/// there (consumed, no socket), is never said of a frame that a driver frees.
///
/// **Source**: linux v6.1 include/net/dropreason.h, v6.12 include/net/dropreason-core.h.
const NOT_SPECIFIED: [u64; 2] = [1, 2];
/// Tables of sockets and threads are held against their bounds every so many events.
const TABLES_EVERY: usize = 1_024;
/// Most drivers above each other; more are left over from lost events.
const NESTED: usize = 8;
/// Most packets of one send call that are kept in mind.
const PER_CALL: usize = 4_096;

impl<C: ClockMap> PacketPaths<C> {
    /// Of these captures, whose clocks the map knows.
    ///
    /// **Panics** when there are more than 255.
    pub fn new(captures: Vec<CaptureInfo>, clocks: C, settings: Settings) -> PacketPaths<C> {
        assert!(captures.len() <= 255, "at most 255 captures have numbers");
        let mut packet_paths = PacketPaths {
            clocks: Arc::new(clocks),
            settings,
            captures: Vec::new(),
            waiting: Vec::new(),
            kept: 0,
            newest: i64::MIN,
            passed: i64::MIN,
            swept: i64::MIN,
            nodes: Nodes::default(),
            live: Map::default(),
            markers: Map::default(),
            marked: VecDeque::new(),
            arrivals: Arrivals::default(),
            births: VecDeque::new(),
            moving: VecDeque::new(),
            done: VecDeque::new(),
            scratch: empty(),
            counts: Counts::default(),
        };
        for (index, info) in captures.into_iter().enumerate() {
            let losses = info.losses.clone();
            packet_paths.captures.push(Capture {
                info,
                lost: Intervals::default(),
                sockets_lost: Intervals::default(),
                cpus: Vec::new(),
                threads: Map::default(),
                sockets: Map::default(),
            });
            losses.iter().for_each(|&loss| packet_paths.lose(index, loss));
        }
        packet_paths
    }

    /// The clocks it was given.
    pub fn clocks(&self) -> Arc<C> {
        Arc::clone(&self.clocks)
    }

    /// How many there were until now.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { most_open: self.nodes.most, ..self.counts.clone() };
        let each = [(left::POINTS, self.nodes.refused), (left::ARRIVALS, self.arrivals.left_out())];
        for (what, count) in each.into_iter().filter(|(_, count)| *count > 0) {
            counts.left_out.insert(what, u64::try_from(count).unwrap_or(u64::MAX));
        }
        counts
    }

    /// Events of a capture were lost. It counts for packet paths that have not come out: tell
    /// losses at the beginning, or within [`Settings::window_ns`].
    pub fn lose(&mut self, capture: usize, loss: Loss) {
        let from = self.clocks.to_common(capture, loss.from_ns);
        let to = self.clocks.to_common(capture, loss.to_ns);
        let wide = |at: Common| i64::try_from(at.bound_ns).unwrap_or(i64::MAX);
        let (from, to) =
            (from.ns.saturating_sub(wide(from)), to.ns.saturating_add(wide(to)).max(from.ns));
        if loss.concerns_packet_paths() {
            self.captures[capture].lost.add(from, to);
        }
        if loss.concerns_sockets() {
            self.captures[capture].sockets_lost.add(from, to);
        }
    }

    /// Takes an event.
    pub fn event(&mut self, capture: usize, event: &Event, out: &mut impl Observer) {
        if self.hold(capture, event) {
            self.settle_ready(out);
        }
    }

    /// Keeps an event until those before it must have come; says when enough are kept.
    pub(super) fn hold(&mut self, capture: usize, event: &Event) -> bool {
        self.counts.events += 1;
        let number = u8::try_from(capture).expect("invariant: at most 255 captures");
        let point = Point::of(number, event, self.clocks.to_common(capture, event.at_ns));
        if point.at_ns < self.passed {
            self.counts.late += 1;
            self.captures[capture].lost.add(point.at_ns, self.passed);
            self.captures[capture].sockets_lost.add(point.at_ns, self.passed);
            return false;
        }
        self.newest = self.newest.max(point.at_ns);
        self.waiting.push((point, *event));
        self.waiting.len() >= (2 * self.kept + 1_024).min(self.settings.bounds.waiting + 1)
    }

    /// Takes the events before which none can come any more.
    pub(super) fn settle_ready(&mut self, out: &mut impl Observer) {
        self.take_until(self.newest.saturating_sub(self.settings.reorder_ns), out);
        let bound = self.settings.bounds.waiting;
        if self.waiting.len() > bound {
            // They are in order now. What comes later and is earlier counts as late.
            self.take_until(self.waiting[bound / 2].0.at_ns, out);
        }
    }

    /// Takes what has been given until now as all that there is before `at`; for those who watch
    /// while it goes on. What is given of an earlier time afterwards counts as lost.
    ///
    /// **Units**: ns of the common scale.
    pub fn settle(&mut self, upto_ns: i64, out: &mut impl Observer) {
        self.take_until(upto_ns, out);
        if upto_ns > self.passed {
            self.advance(upto_ns, out);
        }
    }

    fn take_until(&mut self, upto_ns: i64, out: &mut impl Observer) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|(point, _)| point.at_ns);
        let ready = waiting.partition_point(|(point, _)| point.at_ns <= upto_ns);
        for (index, (point, event)) in waiting.drain(..ready).enumerate() {
            self.advance(point.at_ns, out);
            out.event(usize::from(point.capture), &point, &event);
            self.take(point, &event);
            self.make_room(out);
            if index.is_multiple_of(TABLES_EVERY) {
                self.bound_tables();
            }
        }
        self.kept = waiting.len();
        self.waiting = waiting;
    }

    /// Ends: every packet path comes out.
    pub fn finish(&mut self, out: &mut impl Observer) {
        self.take_until(i64::MAX, out);
        let end = self.passed.saturating_add(self.settings.window_ns);
        self.advance(end, out);
        for node in self.nodes.open() {
            if self.nodes[node].ended.is_none() {
                self.end_where_it_is(node);
            }
        }
        self.advance(i64::MAX, out);
    }

    /// Forgets threads and sockets of which nothing was seen for so long, and when exactly events
    /// were lost before that: for those who watch for hours. A socket that is forgotten is not
    /// known until a message is alone in it.
    ///
    /// **Units**: ns; at least [`Settings::longest_ns`].
    pub fn forget(&mut self, idle_ns: i64) {
        let idle = idle_ns.max(self.settings.longest_ns);
        let before = self.passed.saturating_sub(idle);
        for capture in &mut self.captures {
            capture.threads.retain(|_, thread| thread.touched >= before);
            capture.sockets.retain(|_, socket| socket.forget(before));
            capture.lost.coarsen(before);
            capture.sockets_lost.coarsen(before);
        }
    }

    /// How much is kept in mind.
    pub fn held(&self) -> Held {
        let all = |count: fn(&Capture) -> usize| self.captures.iter().map(count).sum();
        Held {
            packets: self.nodes.count() + self.arrivals.len(),
            events: self.waiting.len(),
            sockets: all(|capture| capture.sockets.len()),
            threads: all(|capture| capture.threads.len()),
            losses: all(|capture| capture.lost.len() + capture.sockets_lost.len()),
            names: 0,
        }
    }

    /// Time has come so far.
    fn advance(&mut self, now: i64, out: &mut impl Observer) {
        loop {
            let next = |deadline: Option<i64>| deadline.filter(|&at| at <= now);
            let birth = next(self.births.front().map(|entry| entry.0));
            let moving = next(self.moving.front().map(|entry| entry.0));
            let done = next(self.done.front().map(|entry| entry.0));
            // Of one instant: decide, then end, then give out.
            let first = [birth, moving, done].into_iter().flatten().min();
            if first.is_none() {
                break;
            }
            if first == birth {
                let (at, node) = self.births.pop_front().expect("invariant: it was there");
                self.passed = self.passed.max(at.min(now));
                self.decide(node);
            } else if first == moving {
                let (at, node, points) = self.moving.pop_front().expect("invariant: it was there");
                self.passed = self.passed.max(at.min(now));
                let still = |n: &&super::node::Node| n.ended.is_none() && n.points.len() == points;
                if self.nodes.get(node).filter(still).is_some() {
                    self.end_where_it_is(node);
                }
            } else {
                let (_, node) = self.done.pop_front().expect("invariant: it was there");
                self.give(node, out);
            }
        }
        if now != i64::MAX {
            self.passed = now;
            if now.saturating_sub(self.swept) >= self.settings.longest_ns / 4 {
                self.sweep();
            }
        }
    }

    /// Ends what rests too long.
    fn sweep(&mut self) {
        self.swept = self.passed;
        let old = self.passed.saturating_sub(self.settings.longest_ns);
        for node in self.nodes.open() {
            let found = &self.nodes[node];
            if found.ended.is_none() && found.last().is_some_and(|last| last.at_ns < old) {
                self.end_where_it_is(node);
            }
        }
    }

    pub(super) fn end_where_it_is(&mut self, node: NodeRef) {
        let outcome = match self.nodes[node].last().map(|last| last.hook) {
            Some(Hook::DriverStart | Hook::DriverDone) => PathOutcome::Sent,
            Some(Hook::SocketQueue) => PathOutcome::Queued,
            _ => PathOutcome::Unseen,
        };
        if outcome == PathOutcome::Queued {
            self.in_doubtful_socket(node);
        }
        self.end(node, outcome);
    }

    /// Its end is known.
    pub(super) fn end(&mut self, node: NodeRef, outcome: PathOutcome) {
        let found = &mut self.nodes[node];
        if found.ended.is_some() {
            return;
        }
        found.ended = Some(outcome);
        let key = (found.capture, found.object);
        if self.live.get(&key) == Some(&node) {
            self.live.remove(&key);
        }
        self.done.push_back((self.passed.saturating_add(self.settings.window_ns), node));
    }

    pub(super) fn cpu(&mut self, point: &Point) -> &mut Cpu {
        let cpus = &mut self.captures[usize::from(point.capture)].cpus;
        let index = usize::from(point.cpu);
        if cpus.len() <= index {
            cpus.resize_with(index + 1, Cpu::default);
        }
        &mut cpus[index]
    }

    fn take(&mut self, point: Point, event: &Event) {
        let other = event.flags.has(Flags::OTHER);
        match event.hook {
            Hook::DeviceQueue
            | Hook::QdiscEnqueue
            | Hook::QdiscDequeue
            | Hook::DriverStart
            | Hook::ReceiveQueue
            | Hook::NapiReceive
            | Hook::StackReceive
            | Hook::Drop
                if event.object != 0 && !other =>
            {
                self.packet(point, event);
            }
            Hook::DriverDone if !other => self.driver_done(point, event),
            Hook::Xdp if event.tag != 0 => {
                let Settings { window_ns, bounds, .. } = self.settings;
                self.arrivals.seen(&point, event.tag, window_ns, bounds.arrivals);
            }
            Hook::SocketQueue => self.socket_queue(point, event),
            Hook::Waking => self.waking(point, event),
            Hook::SwitchIn => self.switch_in(point, event),
            Hook::SocketReceive => self.socket_receive(point, event),
            Hook::Marker if event.tag != 0 => self.marker(point, event),
            Hook::SendEnter => {
                let thread = self.thread(&point);
                thread.call = Some(point);
                thread.sent.clear();
            }
            Hook::SocketSend => self.socket_send(point, event),
            Hook::TransmitTimestamp => self.transmit_timestamp(point, event),
            _ => {}
        }
        if !matches!(event.hook, Hook::SocketQueue) {
            self.cpu(&point).queued = None;
        }
    }

    fn thread(&mut self, point: &Point) -> &mut Thread {
        let threads = &mut self.captures[usize::from(point.capture)].threads;
        let thread = threads.entry(point.thread).or_default();
        thread.touched = thread.touched.max(point.at_ns);
        thread
    }

    /// Something that happens to a packet in its buffer.
    fn packet(&mut self, point: Point, event: &Event) {
        if self.is_left_by_sockets(&point, event) {
            return;
        }
        let known = self.same_packet(&point, event);
        if known.is_some_and(|node| self.is_freed_by_driver(node, &point, event)) {
            return;
        }
        let shown = self.shown_by_driver(&point, event, known);
        let node = match known {
            Some(node) => {
                if let Some(shown) = shown {
                    self.push(node, shown, event, Rule::CopyByTag);
                }
                self.push(node, point, event, Rule::Object);
                node
            }
            None => match self.begin(point, event, shown) {
                Some(node) => node,
                None => return,
            },
        };
        let points = self.nodes[node].points.len();
        let moving = self.passed.saturating_add(self.settings.window_ns);
        match event.hook {
            Hook::Drop => {
                self.end(node, PathOutcome::Dropped { reason: event.aux });
                self.leave_socket(node);
                return;
            }
            Hook::DriverStart => {
                let drivers = &mut self.cpu(&point).drivers;
                if drivers.len() >= NESTED {
                    drivers.remove(0);
                }
                drivers.push((event.object, event.interface, node, points));
                self.moving.push_back((moving, node, points));
            }
            Hook::ReceiveQueue | Hook::NapiReceive => {
                self.moving.push_back((moving, node, points));
            }
            Hook::StackReceive => {
                self.moving.push_back((moving, node, points));
                self.cpu(&point).stack = Some((node, points));
            }
            _ => {}
        }
        self.cpu(&point).last = Some((node, points));
    }

    /// Packet sockets have taken the frame, each for itself, and nothing else of the host wants it:
    /// the kernel drops what is left.
    ///
    /// **Source**: linux v6.12 net/core/dev.c:__netif_receive_skb_core (`deliver_skb`, `drop`).
    fn is_left_by_sockets(&mut self, point: &Point, event: &Event) -> bool {
        let unhandled = self.captures[usize::from(point.capture)].info.unhandled;
        event.hook == Hook::Drop
            && Some(event.aux) == unhandled
            && self.cpu(point).tapped.take() == Some((event.object, event.tag))
    }

    /// A driver that has sent a frame frees it later, and some say it in the words of a drop, but
    /// without a reason.
    fn is_freed_by_driver(&self, node: NodeRef, point: &Point, event: &Event) -> bool {
        let done = |last: &Point| last.hook == Hook::DriverDone && last.port() == point.port();
        event.hook == Hook::Drop
            && NOT_SPECIFIED.contains(&event.aux)
            && self.nodes[node].last().is_some_and(done)
    }

    pub(super) fn push(&mut self, node: NodeRef, point: Point, event: &Event, rule: Rule) {
        self.nodes.set_tag(node, event);
        self.add(node, Point { rule, ..point });
    }

    /// Adds a point to a node, as far as there is room.
    pub(super) fn add(&mut self, node: NodeRef, point: Point) {
        self.nodes.push(node, point, self.settings.bounds.packet_path_points);
    }

    /// The frame that the driver has shown of a packet that comes up now, of this node if its
    /// buffer is known.
    fn shown_by_driver(
        &mut self,
        point: &Point,
        event: &Event,
        known: Option<NodeRef>,
    ) -> Option<Point> {
        if !is_reception(event.hook) {
            return None;
        }
        // When the driver that sent it was done says nothing of its way.
        let mut back = known.into_iter().flat_map(|node| self.nodes[node].points.iter().rev());
        let before = back.find(|point| point.hook != Hook::DriverDone);
        let (at_ns, came) = before.map_or((i64::MIN, false), |before| {
            (before.at_ns, is_reception(before.hook) && before.port() == point.port())
        });
        if came {
            return None;
        }
        let shown = self.arrivals.received(point, event.tag, self.settings.window_ns);
        shown.filter(|shown| shown.at_ns >= at_ns)
    }

    pub(super) fn bound_to(&self, point: &Point, event: &Event) -> Option<NodeRef> {
        let node = *self.live.get(&(point.capture, event.object))?;
        self.nodes.get(node).filter(|found| found.ended.is_none())?;
        Some(node)
    }

    pub(super) fn bind(&mut self, point: &Point, event: &Event, node: NodeRef) {
        let before = self.live.insert((point.capture, event.object), node);
        if let Some(before) = before.filter(|&before| before != node) {
            // Its buffer has another packet now. That of a message is freed before its
            // `socket-receive`, which is still to come.
            let gone = |found: &super::node::Node| {
                let in_socket = found.last().is_some_and(|last| last.hook == Hook::SocketQueue);
                found.ended.is_none() && !in_socket
            };
            if self.nodes.get(before).is_some_and(gone) {
                self.end_where_it_is(before);
            }
        }
    }

    /// The packet that is in this buffer, when this event can be its next.
    pub(super) fn same_packet(&self, point: &Point, event: &Event) -> Option<NodeRef> {
        let node = self.bound_to(point, event)?;
        let found = &self.nodes[node];
        if found.tag != 0 && event.tag != 0 && found.tag != event.tag {
            return None;
        }
        let back = found.points.iter().rev();
        let (before, last) = back.filter_map(|p| Some((rank_of(p.hook)?, p))).next()?;
        let first = event.flags.has(Flags::FIRST);
        if event.hook == Hook::Drop {
            return (!first).then_some(node);
        }
        if first && !(before == RECEIVE && event.tag != 0 && event.hook == Hook::StackReceive) {
            return None;
        }
        let here = last.station == point.station;
        let elsewhere = !here || last.interface != point.interface;
        let above = || {
            let cpu = self.captures[usize::from(point.capture)].cpus.get(usize::from(point.cpu));
            cpu.is_some_and(|cpu| cpu.drivers.iter().any(|&(_, _, driver, _)| driver == node))
        };
        let watched = |hook| self.captures[usize::from(point.capture)].watches(hook);
        let next = match (before, rank_of(event.hook)?) {
            _ if is_detail(event.hook) => {
                here && (before == DEVICE_QUEUE
                    || (before >= RECEIVE && !watched(Hook::DeviceQueue)))
            }
            (DEVICE_QUEUE, DEVICE_QUEUE) => here && elsewhere,
            (DEVICE_QUEUE, DRIVER_START) => here,
            (DRIVER_START | DRIVER_DONE, DEVICE_QUEUE | DRIVER_START) => here && above(),
            (RECEIVE | STACK_RECEIVE, DEVICE_QUEUE | DRIVER_START) => here,
            (DEVICE_QUEUE, RECEIVE | STACK_RECEIVE) => {
                event.tag != 0 || !watched(Hook::DriverStart)
            }
            (DRIVER_START | DRIVER_DONE, RECEIVE | STACK_RECEIVE) => true,
            (RECEIVE, RECEIVE | STACK_RECEIVE) => here,
            (STACK_RECEIVE, RECEIVE) => here && elsewhere,
            (STACK_RECEIVE, STACK_RECEIVE) => here && elsewhere,
            (_, SOCKET_QUEUE) => before < SOCKET_QUEUE && (here || before <= DRIVER_DONE),
            _ => false,
        };
        next.then_some(node)
    }

    /// A packet that was not in this buffer before, and the frame that its driver has shown.
    /// `None` when it need not be followed.
    fn begin(&mut self, point: Point, event: &Event, shown: Option<Point>) -> Option<NodeRef> {
        if event.hook == Hook::Drop && event.tag == 0 {
            return None;
        }
        let receive = is_reception(event.hook);
        let local = event.hook == Hook::DeviceQueue && event.aux != 0;
        // A copy is known by what its CPU did just before: look before the buffer is taken over.
        let copy = (!receive && !local).then(|| self.copied_from(&point, event));
        let node = self.nodes.add(point.capture, event);
        let mut rule = Rule::First;
        if local {
            rule = self.sending(node, &point, event);
        } else if receive && event.tag != 0 {
            self.nodes[node].parent = Parent::Open;
            let deadline = self.passed.saturating_add(self.settings.window_ns);
            self.births.push_back((deadline, node));
        } else if let Some(copy) = copy {
            rule = self.copy(node, copy);
        }
        if let Some(shown) = shown {
            self.add(node, Point { rule, ..shown });
            rule = Rule::CopyByTag;
        }
        self.add(node, Point { rule, ..point });
        self.bind(&point, event, node);
        Some(node)
    }

    /// A packet of a program here: its marker and its send call.
    fn sending(&mut self, node: NodeRef, point: &Point, event: &Event) -> Rule {
        self.nodes[node].sender = event.aux;
        let mut rule = Rule::First;
        let thread = self.thread(point);
        let call = thread.call.filter(|_| thread.sent.len() < PER_CALL);
        if call.is_some() {
            thread.sent.push(node);
        }
        let marker = self.marker_of(point, event);
        let before = call.map_or(point.at_ns, |call| call.at_ns);
        if let Some(marker) = marker.filter(|marker| marker.at_ns <= before) {
            self.add(node, marker);
            rule = Rule::Marker;
        }
        if let Some(call) = call {
            self.add(node, Point { rule, ..call });
            rule = Rule::SendCall;
        }
        rule
    }

    /// The marker of a message that is sent now: with its tag, or by the same thread with what a
    /// program knows of it.
    pub(super) fn marker_of(&self, point: &Point, event: &Event) -> Option<Point> {
        let of = |tag| self.markers.get(&(point.capture, point.station, tag)).copied();
        of(event.tag).or_else(|| {
            let own = of(own_tag(event.tag)).filter(|_| event.flags.has(Flags::TAGGED));
            own.filter(|marker| marker.thread == point.thread)
        })
    }

    /// The send call ends: its packets are those of its socket.
    fn socket_send(&mut self, point: Point, event: &Event) {
        let thread = self.thread(&point);
        thread.call = None;
        for node in std::mem::take(&mut thread.sent) {
            if self.nodes.get(node).is_some_and(|found| found.sender == event.object) {
                self.nodes[node].call_checked = true;
            }
        }
    }

    /// A timestamp may come when its packet is on another station, or its packet path is at an end.
    fn transmit_timestamp(&mut self, point: Point, event: &Event) {
        let sent = |node: &NodeRef| {
            let found = &self.nodes[*node];
            let here = |it: &&Point| it.hook == Hook::DriverStart && it.port() == point.port();
            let same = (found.capture, found.object) == (point.capture, event.object);
            let started = found.points.iter().rev().find(here)?;
            (same && !found.closed).then_some((started.at_ns, *node))
        };
        let all = self.nodes.with_tag(event.tag).take(super::join::LOOKED_AT);
        if let Some((_, node)) = all.filter_map(|node| sent(&node)).max_by_key(|sent| sent.0) {
            self.nodes.timestamp(node, Point { rule: Rule::Object, ..point });
        }
    }

    fn driver_done(&mut self, point: Point, event: &Event) {
        let drivers = &mut self.cpu(&point).drivers;
        let this = |&(object, interface, ..): &(u64, u32, NodeRef, usize)| {
            object == event.object && interface == event.interface
        };
        let Some(index) = drivers.iter().rposition(this) else { return };
        let (_, _, node, points) = drivers[index];
        drivers.truncate(index);
        // It may be on another station already, or read and gone.
        let Some(found) = self.nodes.get(node) else { return };
        if found.ended.is_some() || found.points.len() != points {
            return;
        }
        if event.aux != 0 {
            // The driver did not take it: it goes back, and is given to it again.
            self.nodes.pop(node);
            return;
        }
        self.add(node, Point { rule: Rule::Object, ..point });
        let moving = self.passed.saturating_add(self.settings.window_ns);
        self.moving.push_back((moving, node, points + 1));
        self.cpu(&point).last = Some((node, points + 1));
    }

    /// A marker: of a message that will be sent, or of one that was received.
    fn marker(&mut self, point: Point, event: &Event) {
        let received = self.thread(&point).received.take();
        if let Some(node) = received {
            let this = |found: &&super::node::Node| {
                let same = found.tag == event.tag || own_tag(found.tag) == event.tag;
                !found.closed && same && event.tag != 0
            };
            if self.nodes.get(node).filter(this).is_some() {
                self.add(node, Point { rule: Rule::Marker, ..point });
            }
        }
        let key = (point.capture, point.station, event.tag);
        self.markers.insert(key, point);
        self.marked.push_back((key, point.at_ns));
        let old = point.at_ns.saturating_sub(self.settings.longest_ns);
        // Of as many as there may be threads the oldest goes: mostly its message was sent.
        let most = self.settings.bounds.endpoints;
        while self.marked.len() > most || self.marked.front().is_some_and(|m| m.1 < old) {
            let Some((key, at)) = self.marked.pop_front() else { break };
            if self.markers.get(&key).is_some_and(|marker| marker.at_ns == at) {
                self.markers.remove(&key);
            }
        }
    }

    /// What a thread received last; its marker may follow.
    pub(super) fn received(&mut self, point: &Point, node: NodeRef) {
        self.thread(point).received = Some(node);
    }
}

/// The rank on the way, details with the stage that they tell of.
fn rank_of(hook: Hook) -> Option<u8> {
    if is_detail(hook) { Some(DEVICE_QUEUE) } else { rank(hook) }
}

fn is_reception(hook: Hook) -> bool {
    matches!(hook, Hook::ReceiveQueue | Hook::NapiReceive | Hook::StackReceive)
}

fn is_detail(hook: Hook) -> bool {
    matches!(hook, Hook::QdiscEnqueue | Hook::QdiscDequeue)
}

pub(super) fn empty() -> PacketPath {
    PacketPath {
        number: 0,
        tag: 0,
        tagged: false,
        status: Status::Complete,
        why: None,
        outcome: PathOutcome::Unseen,
        points: Vec::new(),
        stages: Vec::new(),
        timestamps: Vec::new(),
    }
}
