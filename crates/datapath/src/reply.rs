// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams whose messages are not due once in each period: answers and steps of a chain, each sent
//! after a message that was received; requests, each sent after the answer to the one before; and
//! messages at times of their own.
//!
//! ```text
//! After:    received ---- work ---> sent
//! Request:  sent -> answered ---- think ---> sent       sent ---- timeout ---> sent
//! At:       start ---- its time ---> sent
//! ```
//!
//! A message has the header of [`Probe`]. Of a chain whose latency counts from its start, the time
//! in the header is that of the message before.
//!
//! Not here: messages in each period (`talker`), timestamps of what was received (`listen`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use serde::{Deserialize, Serialize};
use timewire_base::wire::{Frame, MacAddress};
use timewire_base::{IfName, Instant, Mono, SocketPriority, Span, Tai};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_sys::filter::FrameFilter;

use crate::listen::{ReceiveOptions, ReceiveTimestamps, Receiver, Source};
use crate::now;
use crate::probe::Probe;
use crate::streams::marks::TalkMarks;
use crate::streams::plan::ETHERTYPE;
use crate::talker::{FrameContent, FrameHeader, Template, VlanTag};
use crate::transmit::{TransmitOptions, Transmitter, Transport, TxReport};

/// The streams of one program, which hears one interface at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyTask {
    /// Where messages are received.
    pub hears: Option<IfName>,
    /// The VLAN of all of them, where they have one.
    pub hears_vid: Option<u16>,
    /// When it may begin to send by itself.
    pub start: Instant<Tai>,
    /// No message is sent by itself at or after; without, it goes on until it is asked to end.
    pub end: Option<Instant<Tai>>,
    /// What it sends.
    pub streams: Vec<ReplyStream>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyStream {
    /// Its number in messages.
    pub stream: u16,
    /// Where it leaves.
    pub interface: IfName,
    /// The destination of its frames.
    pub to: MacAddress,
    /// Their VLAN.
    pub vid: u16,
    /// Their priority code point, and the priority of the socket.
    pub class: u8,
    /// What follows the EtherType. **Units**: bytes; at least [`Probe::LEN`] are sent.
    pub size: u32,
    /// When a message is sent.
    pub when: SendWhen,
}

/// When a message is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SendWhen {
    /// After each message of another stream, with its number.
    After {
        /// That stream.
        stream: u16,
        /// How long after it was received.
        work: Span,
        /// The time in its header is that of the other message, and so much later: that one was
        /// handed over so long before its start. Without it, it is the time of the sending.
        from_start: Option<Span>,
    },
    /// After the answer to the one before, or without one after the timeout.
    Request {
        /// The stream of the answers, which have the numbers of requests.
        answer: u16,
        /// How long after the answer was received.
        think: Span,
        /// How long after a request that is not answered.
        timeout: Span,
        /// When the first is sent, after the start.
        first: Span,
    },
    /// At times of its own.
    At {
        /// From the start to the first, and from each to the next.
        gaps: Vec<Span>,
    },
}

/// What was sent of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyCounts {
    /// Its number.
    pub stream: u16,
    /// Messages that the kernel took.
    pub sent: u64,
    /// Messages that it did not take.
    pub not_taken: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
}

/// The `schema` field of what was sent.
pub const REPLY_SCHEMA: &str = "timewire.reply/1";

/// What a program sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyOutcome {
    /// Format and version.
    pub schema: String,
    /// Each stream.
    pub streams: Vec<ReplyCounts>,
}

/// Sends until it is done or asked to end.
///
/// **Errors**: an interface is not there or has no privilege (CAP_NET_RAW), or went away.
pub fn reply(task: &ReplyTask) -> io::Result<ReplyOutcome> {
    // Before any thread: all of them leave the signals to us.
    let ends = EndRequests::new()?;
    let failed = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    // Others would wake this program for nothing.
    let filter =
        FrameFilter { ethertype: Some(ETHERTYPE), vid: task.hears_vid, ..FrameFilter::default() };
    let timestamps = ReceiveTimestamps { software: false, hardware: false };
    let options = ReceiveOptions { filter, timestamps, ..ReceiveOptions::default() };
    let open = |interface: &IfName| {
        let source = Source::Frames { interface: interface.clone() };
        Receiver::open(&source, &options).map_err(|error| failed(&error))
    };
    let mut receiver = task.hears.as_ref().map(open).transpose()?;
    let ports = task.streams.iter().map(|stream| Port::open(stream).map_err(|it| failed(&it)));
    let mut ports = ports.collect::<io::Result<Vec<Port>>>()?;
    let mut replies = Replies::new(task);
    let marks = TalkMarks::new();
    while !replies.is_over(now()) && !ends.take() {
        let due = replies.due().map_or(Span::MAX, |due| due - now());
        let wait = due.clamp(Span::ZERO, LOOK);
        match &mut receiver {
            Some(receiver) => {
                let mut each = |arrival: crate::listen::Arrival<'_>| {
                    if let Some(heard) = header_of(arrival.bytes) {
                        replies.hear(&heard, arrival.user);
                        send_due(&mut replies, &mut ports, &marks);
                    }
                };
                receiver.receive(Some(wait), &mut each)?;
            }
            None => clock::sleep_until(clock::now::<Mono>() + wait),
        }
        send_due(&mut replies, &mut ports, &marks);
    }
    let counts = replies.streams.iter().zip(&mut ports);
    let counts = counts.map(|(stream, port)| {
        let not_taken = port.not_taken();
        let ReplyCounts { sent, .. } = stream.counts;
        ReplyCounts { sent: sent.saturating_sub(not_taken), not_taken, ..stream.counts }
    });
    Ok(ReplyOutcome { schema: REPLY_SCHEMA.to_owned(), streams: counts.collect() })
}

/// Hands over all that is due.
fn send_due(replies: &mut Replies<'_>, ports: &mut [Port], marks: &TalkMarks) {
    loop {
        let (at, due) = (now(), replies.due());
        let Some(Message { place, seq, time }) = replies.take(at) else { return };
        let before = marks.before();
        ports[place].send(seq, time.unwrap_or(at));
        if let Some(before) = before {
            marks.sent(ports[place].stream, seq, before, at - due.unwrap_or(at));
        }
    }
}

/// The header of a message that was received.
fn header_of(frame: &[u8]) -> Option<Probe> {
    let frame = Frame::parse(frame).filter(|it| it.ethertype() == Some(ETHERTYPE))?;
    Probe::parse(frame.payload())
}

/// A message that is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    /// Its stream, by its place in the task.
    place: usize,
    seq: u32,
    /// The time in its header; now, where that is not another one.
    time: Option<Instant<Tai>>,
}

/// Something that is due, in the order of its time and of when that became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at_ns: i64,
    order: u64,
    place: usize,
    seq: u32,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A message is sent, with this time in its header.
    Send { time_ns: Option<i64> },
    /// A request has waited for its answer long enough.
    TimeOut,
}

#[derive(Debug)]
struct Stream<'a> {
    of: &'a ReplyStream,
    /// The number of its next message, unless that is the number of another one.
    next: u32,
    /// The request that waits for its answer.
    outstanding: Option<u32>,
    counts: ReplyCounts,
}

/// What is due, by what was received: no clock, no port.
#[derive(Debug)]
struct Replies<'a> {
    streams: Vec<Stream<'a>>,
    due: BinaryHeap<Reverse<Due>>,
    order: u64,
    end: Option<Instant<Tai>>,
    /// It sends something by itself, and ends when all of that was sent.
    is_own: bool,
}

impl<'a> Replies<'a> {
    fn new(task: &'a ReplyTask) -> Replies<'a> {
        let stream = |of: &'a ReplyStream| {
            let counts = ReplyCounts { stream: of.stream, ..ReplyCounts::default() };
            Stream { of, next: 0, outstanding: None, counts }
        };
        let mut replies = Replies {
            streams: task.streams.iter().map(stream).collect(),
            due: BinaryHeap::new(),
            order: 0,
            end: task.end,
            is_own: task.streams.iter().any(|it| !matches!(it.when, SendWhen::After { .. })),
        };
        for (place, of) in task.streams.iter().enumerate() {
            match &of.when {
                SendWhen::After { .. } => {}
                SendWhen::Request { first, .. } => {
                    replies.send_at(task.start.saturating_add(*first), place, 0)
                }
                SendWhen::At { gaps } => {
                    let mut at = task.start;
                    for (seq, gap) in (0..).zip(gaps) {
                        at = at.saturating_add(*gap);
                        replies.send_at(at, place, seq);
                    }
                }
            }
        }
        replies
    }

    fn push(&mut self, at: Instant<Tai>, place: usize, seq: u32, what: What) {
        self.order += 1;
        self.due.push(Reverse(Due { at_ns: at.as_ns(), order: self.order, place, seq, what }));
    }

    /// A message that follows none, unless it would be sent too late.
    fn send_at(&mut self, at: Instant<Tai>, place: usize, seq: u32) {
        if self.end.is_none_or(|end| at < end) {
            self.push(at, place, seq, What::Send { time_ns: None });
        }
    }

    /// When something is due next.
    fn due(&self) -> Option<Instant<Tai>> {
        self.due.peek().map(|Reverse(due)| Instant::from_ns(due.at_ns))
    }

    /// Whether nothing will be sent any more.
    fn is_over(&self, at: Instant<Tai>) -> bool {
        let is_idle = self.due.is_empty() && self.streams.iter().all(|it| it.outstanding.is_none());
        match self.end {
            // Of the last request the answer is waited for.
            Some(end) => is_idle && (self.is_own || at >= end),
            None => is_idle && self.is_own,
        }
    }

    /// A message was received.
    fn hear(&mut self, heard: &Probe, received: Instant<Tai>) {
        let Probe { stream, seq, time, .. } = *heard;
        for place in 0..self.streams.len() {
            let of = self.streams[place].of;
            match &of.when {
                SendWhen::After { stream: cause, work, from_start } if *cause == stream => {
                    let time_ns = from_start.map(|ahead| time.saturating_add(ahead).as_ns());
                    self.push(received.saturating_add(*work), place, seq, What::Send { time_ns });
                }
                SendWhen::Request { answer, think, .. }
                    if *answer == stream && self.streams[place].outstanding == Some(seq) =>
                {
                    self.streams[place].outstanding = None;
                    let next = self.streams[place].next;
                    self.send_at(received.saturating_add(*think), place, next);
                }
                _ => {}
            }
        }
    }

    /// The next message that is due by then, which is sent now.
    fn take(&mut self, at: Instant<Tai>) -> Option<Message> {
        loop {
            let is_due = |due: &Reverse<Due>| due.0.at_ns <= at.as_ns();
            let Reverse(Due { place, seq, what, .. }) = *self.due.peek().filter(|it| is_due(it))?;
            self.due.pop();
            match what {
                What::TimeOut => {
                    if self.streams[place].outstanding == Some(seq) {
                        self.streams[place].outstanding = None;
                        self.streams[place].counts.timeouts += 1;
                        let next = self.streams[place].next;
                        self.send_at(at, place, next);
                    }
                }
                What::Send { time_ns } => {
                    let own = &mut self.streams[place];
                    own.counts.sent += 1;
                    own.next = seq.wrapping_add(1);
                    if let SendWhen::Request { timeout, .. } = own.of.when {
                        own.outstanding = Some(seq);
                        self.push(at.saturating_add(timeout), place, seq, What::TimeOut);
                    }
                    return Some(Message { place, seq, time: time_ns.map(Instant::from_ns) });
                }
            }
        }
    }
}

/// Where a stream leaves.
struct Port {
    stream: u16,
    /// Messages that did not fit.
    refused: u64,
    transmitter: Transmitter,
    header: Template,
    /// A message, of which header and time are written anew.
    image: Box<[u8]>,
    content: usize,
}

impl Port {
    fn open(of: &ReplyStream) -> Result<Port, crate::transmit::PortError> {
        let transport = Transport::Frames { interface: of.interface.clone() };
        let priority = SocketPriority::new(of.class.into()).ok();
        let options = TransmitOptions { priority, ..TransmitOptions::default() };
        let transmitter = Transmitter::open(&transport, &options)?;
        let header = FrameHeader {
            source: None,
            destination: of.to.0,
            vlan: Some(VlanTag { vid: of.vid, pcp: of.class }),
            content: FrameContent::EtherType(ETHERTYPE),
        };
        let header = Template::new(&header, transmitter.address().unwrap_or_default());
        let content = usize::try_from(of.size).unwrap_or(usize::MAX).max(Probe::LEN);
        let image = header.image(content);
        Ok(Port { stream: of.stream, refused: 0, transmitter, header, image, content })
    }

    fn send(&mut self, seq: u32, time: Instant<Tai>) {
        let Port { stream, header, image, content, transmitter, .. } = self;
        let message = header.number(image, *content, seq);
        Probe { stream: *stream, seq, time, is_launch: false, skipped: None }.write(message);
        // A port that is full says so of the message that did not fit.
        if transmitter.send_copy(image, None, None).is_err() {
            self.refused += 1;
        }
        transmitter.flush();
    }

    /// Messages that the kernel did not take.
    fn not_taken(&mut self) -> u64 {
        let mut count = self.refused;
        // An error queue that cannot be read has nothing to tell.
        let _ = self.transmitter.reports(&mut |report| {
            count += u64::from(matches!(report, TxReport::NotTaken { .. }));
        });
        count
    }
}

/// How long it waits for a message before it looks whether to end.
const LOOK: Span = Span::from_ms(40);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: i64) -> Instant<Tai> {
        Instant::from_ns(us * 1_000)
    }

    fn us(us: i64) -> Span {
        Span::from_us(us)
    }

    fn stream(stream: u16, when: SendWhen) -> ReplyStream {
        let interface = IfName::new("eth0").unwrap();
        let to = MacAddress([3, 0, 0, 0, 0, 1]);
        ReplyStream { stream, interface, to, vid: 10, class: 5, size: 64, when }
    }

    fn task(streams: Vec<ReplyStream>, end: Option<i64>) -> ReplyTask {
        ReplyTask { hears: None, hears_vid: None, start: at(1_000), end: end.map(at), streams }
    }

    fn heard(stream: u16, seq: u32, sent: i64) -> Probe {
        Probe { stream, seq, time: at(sent), is_launch: false, skipped: None }
    }

    #[test]
    fn t0_an_answer_leaves_after_its_work_with_the_number_of_what_it_follows() {
        let after = |from_start| SendWhen::After { stream: 1, work: us(50), from_start };
        for (from_start, time) in [(None, None), (Some(us(5)), Some(at(905)))] {
            let task = task(vec![stream(2, after(from_start))], None);
            let mut replies = Replies::new(&task);
            assert_eq!((replies.due(), replies.is_over(at(9_999))), (None, false));
            replies.hear(&heard(9, 6, 900), at(1_000));
            assert_eq!(replies.due(), None, "a stream that it does not follow");
            replies.hear(&heard(1, 7, 900), at(1_000));
            assert_eq!(replies.due(), Some(at(1_050)));
            assert_eq!(replies.take(at(1_049)), None);
            assert_eq!(replies.take(at(1_050)), Some(Message { place: 0, seq: 7, time }));
            assert_eq!(replies.take(at(1_050)), None);
            assert_eq!(replies.streams[0].counts.sent, 1);
        }
    }

    #[test]
    fn t0_a_request_waits_for_its_answer_or_its_timeout() {
        let when = SendWhen::Request { answer: 2, think: us(10), timeout: us(100), first: us(30) };
        let task = task(vec![stream(1, when)], Some(1_400));
        let mut replies = Replies::new(&task);
        let message = |seq| Some(Message { place: 0, seq, time: None });
        assert_eq!(replies.due(), Some(at(1_030)));
        assert_eq!(replies.take(at(1_030)), message(0));
        // The answer, and the next request after it; a second answer is none.
        replies.hear(&heard(2, 0, 0), at(1_080));
        replies.hear(&heard(2, 0, 0), at(1_081));
        assert_eq!(replies.take(at(1_090)), message(1));
        assert_eq!(replies.take(at(1_129)), None);
        // The timeout of the first request is over and of no matter.
        assert_eq!(replies.take(at(1_130)), None);
        // An answer to another request is none; after the timeout the next one goes at once.
        replies.hear(&heard(2, 0, 0), at(1_150));
        assert_eq!(replies.take(at(1_190)), message(2));
        assert_eq!(
            replies.streams[0].counts,
            ReplyCounts { stream: 1, sent: 3, not_taken: 0, timeouts: 1 }
        );
        // No request at or after the end, but the last one is waited for.
        replies.hear(&heard(2, 2, 0), at(1_280));
        assert_eq!(replies.take(at(1_290)), message(3));
        assert!(!replies.is_over(at(1_401)), "it waits for the last answer");
        replies.hear(&heard(2, 3, 0), at(1_395));
        // The time of its timeout is left.
        assert_eq!(replies.take(at(1_401)), None);
        assert!(replies.is_over(at(1_401)));
    }

    #[test]
    fn t0_messages_at_times_of_their_own_end_with_the_last() {
        let when = SendWhen::At { gaps: vec![us(5), us(1), us(494)] };
        let task = task(vec![stream(1, when)], Some(1_400));
        let mut replies = Replies::new(&task);
        let sent = |replies: &mut Replies<'_>, us| replies.take(at(us)).map(|it| it.seq);
        assert_eq!(sent(&mut replies, 1_004), None);
        assert_eq!(sent(&mut replies, 1_007), Some(0));
        assert_eq!(sent(&mut replies, 1_007), Some(1));
        // The last one would be sent after the end.
        assert!(replies.is_over(at(1_008)));
    }

    #[test]
    fn t0_messages_of_other_programs_are_none() {
        let header = FrameHeader {
            source: None,
            destination: [1; 6],
            vlan: Some(VlanTag { vid: 12, pcp: 3 }),
            content: FrameContent::EtherType(ETHERTYPE),
        };
        let template = Template::new(&header, [2; 6]);
        let mut image = template.image(46);
        assert_eq!(header_of(&image), None);
        let probe = heard(3, 4, 5);
        probe.write(template.number(&mut image, 46, 4));
        assert_eq!(header_of(&image), Some(probe));
        image[17] ^= 1;
        assert_eq!(header_of(&image), None, "another EtherType");
    }
}
