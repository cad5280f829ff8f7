// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets: the k-th message that is queued is the k-th that is read. The length of each is held
//! against it, and after a loss nothing is believed until the socket is known to be empty.

use std::collections::VecDeque;

use super::follow::PacketPaths;
use super::identity::Map;
use super::node::NodeRef;
use super::{ClockMap, PathOutcome, Point, Rule, Why};
use crate::event::{Event, Flags, Hook};

/// A socket that is read.
#[derive(Debug, Default)]
pub(super) struct Socket {
    queue: VecDeque<Entry>,
    /// When its queue was last known to be what `queue` is. `None`: when the capture began.
    known: Option<i64>,
    /// The reader was woken; it got a CPU.
    woken: Option<Point>,
    running: Option<Point>,
    /// When a call that read ended last.
    ended: Option<i64>,
    /// A message was read, with this length, of which nothing said that it is in the queue.
    early: Option<(Point, u16)>,
    /// Of each flow: how much longer what was queued is than the message.
    around: Map<u32, i32>,
    /// When anything of it was seen last.
    touched: i64,
}

#[derive(Debug)]
struct Entry {
    /// `None`: a message that was not asked for.
    node: Option<NodeRef>,
    at_ns: i64,
    tag: u64,
    length: u16,
    /// The CPU that queued it.
    cpu: u16,
    /// It was in no queue any more; the call that read it had not ended.
    taken: bool,
}

/// Most messages in a socket; a socket with more is not read.
const MAX_MESSAGES: usize = 65_536;
/// A packet socket gives the header of the link, which is not counted when the frame is queued.
///
/// **Units**: bytes. **Source**: linux v6.12 net/packet/af_packet.c:packet_rcv (`skb_push`).
const ETHERNET: i32 = 14;
/// The VLAN tag is taken out of a frame after it was received and before a packet socket has it.
///
/// **Units**: bytes. **Source**: linux v6.12 net/core/dev.c:__netif_receive_skb_core
/// (`skb_vlan_untag`).
const VLAN: i32 = 4;
/// The system call found no message: `-EAGAIN`.
const EMPTY: i64 = -11;

impl<C: ClockMap> PacketPaths<C> {
    fn socket(&mut self, point: &Point, socket: u64) -> &mut Socket {
        let sockets = &mut self.captures[usize::from(point.capture)].sockets;
        let socket = sockets.entry(socket).or_default();
        socket.touched = socket.touched.max(point.at_ns);
        socket
    }

    /// A message enters a socket's queue.
    pub(super) fn socket_queue(&mut self, point: Point, event: &Event) {
        let early = self.socket(&point, event.aux).early.take();
        let cpu = self.cpu(&point);
        cpu.queued = Some((event.aux, point.at_ns));
        cpu.tapped = Some((event.object, event.tag)).filter(|(object, _)| *object != 0);
        if early.is_some_and(|(read, length)| self.was_read(read, length, &point, event)) {
            return;
        }
        let node = (event.object != 0 && !event.flags.has(Flags::OTHER))
            .then(|| self.enter_socket(point, event));
        if event.flags.has(Flags::ALONE) {
            let taken = self.socket(&point, event.aux).being_read();
            self.empty_socket(&point, event.aux);
            self.socket(&point, event.aux).queue.extend(taken);
        }
        let socket = self.socket(&point, event.aux);
        if socket.queue.len() >= MAX_MESSAGES {
            socket.queue.clear();
            socket.known = Some(i64::MIN);
        }
        let at_ns = point.at_ns;
        let (tag, length, cpu) = (event.tag, event.length, point.cpu);
        socket.queue.push_back(Entry { node, at_ns, tag, length, cpu, taken: false });
    }

    /// A reader that is awake can take a message before the kernel tells that it is there: it is
    /// in the queue by then. That was so when the socket was known to be empty, and the packet was
    /// on its way to it.
    fn was_read(&mut self, read: Point, length: u16, point: &Point, event: &Event) -> bool {
        if event.object == 0 || event.flags.has(Flags::OTHER) || event.flags.has(Flags::ALONE) {
            return false;
        }
        let Some(node) = self.same_packet(point, event) else { return false };
        let on_its_way = |last: &Point| {
            last.hook == Hook::StackReceive
                && last.at_ns <= read.at_ns
                && read.at_ns <= point.at_ns
                && last.station == read.station
        };
        if !self.nodes[node].last().is_some_and(on_its_way)
            || !self.socket_is_sure(point, event.aux)
        {
            return false;
        }
        let entry = Entry {
            node: Some(node),
            at_ns: point.at_ns,
            tag: event.tag,
            length: event.length,
            cpu: point.cpu,
            taken: true,
        };
        let socket = self.socket(point, event.aux);
        if !socket.queue.is_empty() || !socket.fits(&entry, length) {
            return false;
        }
        self.counts.unmatched_receives -= 1;
        self.nodes.set_tag(node, event);
        self.nodes[node].socket = event.aux;
        self.add(node, Point { rule: Rule::SocketOrder, ..read });
        let marker = self.marker_of(&read, event);
        if let Some(marker) = marker.filter(|it| it.at_ns >= read.at_ns) {
            self.add(node, Point { rule: Rule::Marker, ..marker });
        } else {
            self.received(&read, node);
        }
        self.end(node, PathOutcome::Received);
        true
    }

    fn enter_socket(&mut self, point: Point, event: &Event) -> NodeRef {
        let node = match self.same_packet(&point, event) {
            Some(node) => {
                self.push(node, point, event, Rule::Object);
                node
            }
            None => {
                let copy = self.copied_from(&point, event);
                let node = self.nodes.add(point.capture, event);
                let rule = self.copy(node, copy);
                self.add(node, Point { rule, ..point });
                self.bind(&point, event, node);
                node
            }
        };
        self.nodes[node].socket = event.aux;
        node
    }

    /// The socket has no message now: those that should be in it have been read unseen.
    fn empty_socket(&mut self, point: &Point, socket: u64) {
        let found = self.socket(point, socket);
        found.known = Some(point.at_ns);
        for entry in std::mem::take(&mut found.queue) {
            if let Some(node) = entry.node.filter(|&node| self.nodes.get(node).is_some()) {
                self.nodes[node].why.get_or_insert(Why::SocketEmpty);
                self.end(node, PathOutcome::Queued);
            }
        }
    }

    /// A packet was dropped from a socket's queue.
    pub(super) fn leave_socket(&mut self, node: NodeRef) {
        let found = &self.nodes[node];
        let queued = found.points.iter().rev().nth(1).filter(|p| p.hook == Hook::SocketQueue);
        let Some(&point) = queued else { return };
        let socket = found.socket;
        self.socket(&point, socket).queue.retain(|entry| entry.node != Some(node));
    }

    pub(super) fn waking(&mut self, point: Point, event: &Event) {
        if event.object == 0 {
            return;
        }
        let because = self.cpu(&point).queued.filter(|(socket, _)| *socket == event.object);
        let socket = self.socket(&point, event.object);
        socket.woken = Some(point);
        socket.running = None;
        if let Some((_, at_ns)) = because {
            self.slept_until(&point, event.object, at_ns);
        }
    }

    /// The reader slept on this socket when this CPU queued its message: it had found the socket
    /// empty. What other CPUs queued after that message is still there. So is, when nothing was
    /// lost, what is right before it, while the CPUs of those messages have not come to waking the
    /// reader; the socket is known no better then.
    fn slept_until(&mut self, point: &Point, socket: u64, at_ns: i64) {
        let capture = &self.captures[usize::from(point.capture)];
        let Some(found) = capture.sockets.get(&socket) else { return };
        let this = |entry: &Entry| entry.cpu == point.cpu && entry.at_ns == at_ns;
        let Some(index) = found.queue.iter().rposition(this) else { return };
        let cpu = |entry: &Entry| &capture.cpus[usize::from(entry.cpu)];
        let wakes = |entry: &&Entry| cpu(entry).queued == Some((socket, entry.at_ns));
        let before = found.queue.iter().take(index).rev().take_while(wakes).count();
        let known = found.known;
        let kept = self.socket(point, socket).queue.split_off(index - before);
        self.empty_socket(point, socket);
        let found = self.socket(point, socket);
        found.queue = kept;
        if before > 0 {
            found.known = known;
        }
    }

    pub(super) fn switch_in(&mut self, point: Point, event: &Event) {
        if event.object == 0 {
            return;
        }
        let socket = self.socket(&point, event.object);
        let reader = socket.woken.filter(|woken| woken.aux == u64::from(point.thread));
        if reader.is_some() && socket.running.is_none() {
            socket.running = Some(point);
        }
    }

    /// A message leaves a socket: a program has it.
    pub(super) fn socket_receive(&mut self, point: Point, event: &Event) {
        let result = event.aux.cast_signed();
        if event.flags.has(Flags::PEEKED) || result < 0 {
            if result == EMPTY {
                self.empty_socket(&point, event.object);
            }
            return;
        }
        let sure = self.socket_is_sure(&point, event.object);
        let socket = self.socket(&point, event.object);
        socket.ended = Some(point.at_ns);
        // Where the collector knows the message's tag, it says more than the order.
        let tagged = |entry: &Entry| event.tag != 0 && entry.tag == event.tag;
        let mut by_tag = false;
        if let Some(index) = socket.queue.iter().position(tagged) {
            by_tag = true;
            let passed: Vec<Entry> = socket.queue.drain(..index).collect();
            for node in passed.into_iter().filter_map(|entry| entry.node) {
                if self.nodes.get(node).is_some() {
                    self.nodes[node].why.get_or_insert(Why::SocketEmpty);
                    self.end(node, PathOutcome::Queued);
                }
            }
        }
        let socket = self.socket(&point, event.object);
        let Some(entry) = socket.queue.pop_front() else {
            socket.early = sure.then_some((point, event.length));
            self.counts.unmatched_receives += 1;
            return;
        };
        let Some(node) = entry.node else { return };
        let fits = socket.fits(&entry, event.length);
        let after = |p: &Point| p.at_ns >= entry.at_ns;
        let woken = socket.woken.filter(after);
        let running = socket.running.filter(after);
        if self.nodes.get(node).is_none_or(|found| found.ended.is_some()) {
            return;
        }
        if let Some(woken) = woken.filter(|_| running.is_some()) {
            self.add(node, Point { rule: Rule::Woken, ..woken });
        }
        if let Some(running) = running {
            self.add(node, Point { rule: Rule::Woken, ..running });
        }
        let rule = if by_tag { Rule::Tag } else { Rule::SocketOrder };
        self.add(node, Point { rule, ..point });
        let found = &mut self.nodes[node];
        if !fits {
            found.why = Some(Why::Length { queued: entry.length, read: event.length });
        } else if !sure && !by_tag {
            found.why.get_or_insert(Why::SocketAfterLoss);
        }
        self.received(&point, node);
        self.end(node, PathOutcome::Received);
    }

    /// A message that was not read: not even that is known after a loss.
    pub(super) fn in_doubtful_socket(&mut self, node: NodeRef) {
        let found = &self.nodes[node];
        let Some(&point) = found.last() else { return };
        let now = Point { at_ns: self.passed, ..point };
        let socket = found.socket;
        if !self.socket_is_sure(&now, socket) {
            self.nodes[node].why.get_or_insert(Why::SocketAfterLoss);
        }
    }

    /// Whether the queue is known to be what it is taken for.
    fn socket_is_sure(&mut self, point: &Point, socket: u64) -> bool {
        let known = self.socket(point, socket).known;
        let capture = &self.captures[usize::from(point.capture)];
        let begins_sure = !capture.info.tells_alone;
        (known.is_some() || begins_sure)
            && !capture.sockets_lost.overlap(known.unwrap_or(i64::MIN), point.at_ns)
    }
}

/// Most flows of a socket whose lengths are kept in mind.
const FLOWS: usize = 4_096;

impl Socket {
    /// Messages in its queue.
    pub fn messages(&self) -> usize {
        self.queue.len()
    }

    /// Forgets what can be learned again; `false` when nothing was seen of it since.
    pub fn forget(&self, before: i64) -> bool {
        self.touched >= before
    }

    /// The last message, when its reader has got a CPU for it and has not said since that it has
    /// it: a message leaves the queue before its call ends. Once only: what is not read by the next
    /// time was read unseen.
    fn being_read(&mut self) -> Option<Entry> {
        let running = self.running?;
        let last = self.queue.back().filter(|last| !last.taken && running.at_ns >= last.at_ns)?;
        let ended = self.ended.is_some_and(|ended| ended >= last.at_ns);
        (!ended).then(|| self.queue.pop_back()).flatten().map(|it| Entry { taken: true, ..it })
    }

    /// Whether a message of this length can be what a frame carried: of one flow, what is around
    /// the message is always as long.
    fn fits(&mut self, entry: &Entry, read: u16) -> bool {
        if entry.length == u16::MAX || read == u16::MAX {
            return true;
        }
        let around = i32::from(entry.length) - i32::from(read);
        if around < 0 && ![-ETHERNET, VLAN - ETHERNET].contains(&around) {
            return false;
        }
        let flow = u32::try_from(entry.tag >> 32).expect("invariant: 32 bits are left");
        if self.around.len() > FLOWS {
            self.around.clear();
        }
        match self.around.insert(flow, around) {
            Some(before) => before == around,
            None => true,
        }
    }
}
