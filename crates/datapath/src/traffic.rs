// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs that talk: the request/response client and server and the cyclic talker and
//! listener, whose transfers are measured, and the flood they compete with. Each runs from one
//! instant to another, in its own process, so that it can be put into the priority group like any
//! program.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};
use timewire_base::drops::{Heard, Socket, SocketLaunch, is_full};
use timewire_base::{CyclicWindows, Instant, Port, SduLen, SocketPriority, Span, Tai};
use timewire_capture::marker::udp_flow;
use timewire_capture::record::{Record, TimestampPoint};
use timewire_sys::clock;
use timewire_sys::error_queue::{self, LaunchRefusal, Report};
use timewire_sys::marker::{self, Markers, Point};
use timewire_sys::talk::LaunchMode;
use timewire_sys::udp::{Received, TimestampedUdp};
use timewire_tsn::{DueTimes, LaunchTimes};

use crate::heard::Hear;
use crate::message::{MIN_MESSAGE, seq_of, timestamp};
use crate::record::Recorder;
use crate::release::SlotTimer;
use crate::{kernel_timestamp_as_tai, now};

/// Index of a stream's flows in a record file's list: requests, or all messages where nothing is
/// answered; then responses.
pub const REQUEST: u16 = 0;
/// See [`REQUEST`].
pub const RESPONSE: u16 = 1;

/// The longest time a server waits before it looks at the clock again.
pub(crate) const POLL_INTERVAL: Span = Span::from_ms(20);

/// How often a flood wakes to send what is due.
const FLOOD_TICK: Span = Span::from_ms(1);

/// When a program sends.
#[derive(Clone, Debug)]
pub enum Pace {
    /// As soon as it can: a client when the last response came, a server when a request came.
    Closed,
    /// At whole multiples of this time (TAI), at most one message each.
    Every(Span),
    /// Just before each slot.
    Aligned(SlotTimer),
}

impl Pace {
    pub(crate) fn wait(&mut self) {
        match self {
            Pace::Closed => {}
            Pace::Every(every) => {
                let at = now();
                let since = at.as_ns().rem_euclid(every.as_ns().max(1));
                clock::sleep_until(at + *every - Span::from_ns(since));
            }
            Pace::Aligned(timer) => {
                timer.wait();
            }
        }
    }
}

/// What a program needs to know; `start` and `end` bound its sending.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Own address.
    pub address: Ipv4Addr,
    /// The server's port.
    pub port: Port,
    /// UDP payload. **Units**: bytes.
    pub message: u32,
    /// Nothing is sent before.
    pub start: Instant<Tai>,
    /// Nothing is sent at or after.
    pub end: Instant<Tai>,
    /// Index of the own station in the record file's list.
    pub station: u8,
    /// Socket priority of what is sent; without, 0.
    #[serde(default)]
    pub priority: Option<u8>,
    /// Launch times of what is sent; without, it is sent at once.
    #[serde(default)]
    pub launch: Option<LaunchTask>,
}

/// How a program's messages get their launch times.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchTask {
    /// When they may be on the link.
    pub windows: CyclicWindows,
    /// How long one of them is on the link.
    pub busy: Span,
    /// What a message needs from the program to the queueing discipline.
    pub margin: Span,
    /// How long before its launch time the queueing discipline sends a frame, so how much later
    /// than the instant on the link the launch time is.
    pub delta: Span,
}

impl Task {
    /// How its messages are sent, to find out why some did not leave.
    pub fn socket_settings(&self) -> Socket {
        let launch = self.launch.as_ref();
        Socket {
            interface: None,
            launch: launch.map(|_| SocketLaunch { is_tai: true, deadline: false }),
            priority: self.priority.and_then(|it| SocketPriority::new(it.into()).ok()),
            bypasses_qdisc: false,
        }
    }

    /// A socket at its address and this port.
    pub(crate) fn socket(&self, port: u16) -> io::Result<TimestampedUdp> {
        let socket = TimestampedUdp::bind(SocketAddrV4::new(self.address, port))?;
        if let Some(number) = self.priority {
            let priority = SocketPriority::new(number.into()).map_err(io::Error::other)?;
            socket.set_priority(priority)?;
        }
        Ok(socket)
    }
}

/// A socket, and the launch times of what is sent through it.
pub(crate) struct Sender {
    socket: TimestampedUdp,
    launch: Option<Launcher>,
    /// Of messages that did not leave.
    heard: Heard,
}

struct Launcher {
    times: LaunchTimes,
    task: LaunchTask,
    /// Launch time and number of the messages sent last, to know those by that are refused.
    last: VecDeque<(i64, u32)>,
}

impl Sender {
    pub(crate) fn new(task: &Task, port: u16) -> io::Result<Sender> {
        let socket = task.socket(port)?;
        let heard = Heard::default();
        let Some(task) = task.launch.clone() else {
            return Ok(Sender { socket, launch: None, heard });
        };
        socket.set_launch(LaunchMode { deadline: false, report: true })?;
        let times = LaunchTimes::new(task.windows.clone(), task.margin);
        let last = VecDeque::with_capacity(REMEMBERED);
        Ok(Sender { socket, launch: Some(Launcher { times, task, last }), heard })
    }

    /// Where it sends from.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_address()
    }

    /// Sends one message, at its launch time if it has one; whether the stack took it.
    pub(crate) fn send(
        &mut self,
        message: &[u8],
        to: SocketAddrV4,
        (flow, seq): (u16, u32),
        timestamper: &Timestamper<'_>,
    ) -> io::Result<bool> {
        let sent = match &mut self.launch {
            None => self.socket.send_to(message, to.into()),
            Some(_) => self.send_at(message, to, (flow, seq), timestamper)?,
        };
        let is_taken = taken(sent, &mut self.heard)?;
        if !is_taken {
            timestamper.record(now(), TimestampPoint::NotTaken, flow, seq);
        }
        Ok(is_taken)
    }

    fn send_at(
        &mut self,
        message: &[u8],
        to: SocketAddrV4,
        (flow, seq): (u16, u32),
        timestamper: &Timestamper<'_>,
    ) -> io::Result<io::Result<()>> {
        let launcher = self.launch.as_mut().expect("invariant: called with launch times");
        let task = &launcher.task;
        let Some(on_link) = launcher.times.next(now(), task.busy) else {
            return Err(io::Error::other("no window has room for a message"));
        };
        timestamper.record(on_link, TimestampPoint::Scheduled, flow, seq);
        let launch = on_link + task.delta;
        if launcher.last.len() == REMEMBERED {
            launcher.last.pop_front();
        }
        launcher.last.push_back((launch.as_ns(), seq));
        self.heard.past += u64::from(launch < now());
        Ok(self.socket.send_at(message, to, launch))
    }

    /// What became of messages that did not leave.
    pub(crate) fn heard(&self) -> Heard {
        self.heard
    }

    /// Records what the queueing discipline said of launch times that it did not keep.
    pub(crate) fn take_refusals(
        &mut self,
        flow: u16,
        timestamper: &Timestamper<'_>,
    ) -> io::Result<()> {
        let Some(launcher) = &self.launch else {
            return if self.socket.takes_errors() { drain(&self.socket) } else { Ok(()) };
        };
        while let Some(report) = error_queue::take(self.socket.as_fd())? {
            let Report::Refused { why, launch_ns } = report else { continue };
            self.heard.launch_refused(why);
            let found = launcher.last.iter().find(|(launch, _)| *launch == launch_ns);
            let Some(&(_, seq)) = found else {
                timestamper.recorder.add_lost(1);
                continue;
            };
            let point = match why {
                LaunchRefusal::Invalid => TimestampPoint::LaunchRefused,
                LaunchRefusal::Missed => TimestampPoint::LaunchMissed,
            };
            timestamper.record(Instant::from_ns(launch_ns), point, flow, seq);
        }
        Ok(())
    }
}

/// How many messages of a program can wait for what becomes of them.
const REMEMBERED: usize = 64;

pub(crate) struct Timestamper<'a> {
    recorder: &'a Recorder,
    station: u8,
    tai_offset: Span,
}

impl<'a> Timestamper<'a> {
    /// `station` is the index in the record file's list.
    pub(crate) fn new(recorder: &'a Recorder, station: u8) -> Timestamper<'a> {
        Timestamper { recorder, station, tai_offset: clock::tai_offset() }
    }

    pub(crate) fn record(&self, at: Instant<Tai>, point: TimestampPoint, flow: u16, seq: u32) {
        let station = self.station;
        self.recorder.push(Record {
            at_ns: at.as_ns(),
            seq,
            frame_len: 0,
            point,
            station,
            flow,
            flags: 0,
            clock: 0,
        });
    }

    pub(crate) fn received(&self, at: Instant<Tai>, message: &Received, flow: u16, seq: u32) {
        match message.timestamp {
            Some(timestamp) => {
                self.record(
                    kernel_timestamp_as_tai(timestamp, self.tai_offset),
                    TimestampPoint::RxSw,
                    flow,
                    seq,
                );
            }
            None => self.recorder.add_lost(1),
        }
        self.record(at, TimestampPoint::Receive, flow, seq);
    }
}

/// The marks of a program; a load each when nobody listens.
struct Marks {
    markers: Markers,
    /// Just before it sends.
    send: Point,
    /// When it has a message.
    receive: Point,
    own: SocketAddr,
    /// Value of the marks: the stream's port.
    port: u64,
    /// The upper halves of the tags of what is sent to and received from this one.
    flows: Option<(SocketAddr, u32, u32)>,
}

impl Marks {
    fn new(role: &str, task: &Task, own: io::Result<SocketAddr>) -> io::Result<Marks> {
        let markers = Markers::open_or_off();
        let send = markers.point(&format!("{role}.send"))?;
        let receive = markers.point(&format!("{role}.receive"))?;
        let port = task.port.get().into();
        Ok(Marks { markers, send, receive, own: own?, port, flows: None })
    }

    fn flows(&mut self, other: SocketAddr) -> (u32, u32) {
        match self.flows {
            Some((of, to, from)) if of == other => (to, from),
            _ => {
                let flows = (udp_flow(self.own, other), udp_flow(other, self.own));
                self.flows = Some((other, flows.0, flows.1));
                flows
            }
        }
    }

    fn sends(&mut self, to: SocketAddr, seq: u32) {
        if self.markers.is_listened_to() {
            let tag = marker::tag(self.flows(to).0, seq);
            self.markers.mark(self.send, tag, self.port);
        }
    }

    fn received(&mut self, from: SocketAddr, seq: u32) {
        if self.markers.is_listened_to() {
            let tag = marker::tag(self.flows(from).1, seq);
            self.markers.mark(self.receive, tag, self.port);
        }
    }
}

pub(crate) fn message_buffer(task: &Task) -> Vec<u8> {
    let length = usize::try_from(task.message).expect("invariant: u32 fits usize on Linux");
    vec![0; length.max(MIN_MESSAGE)]
}

/// Sends requests to `server` and waits for each response, `timeout` at most. What it heard of
/// messages that did not leave.
///
/// **Errors**: the socket cannot be made, or sending fails for another reason than a full queue.
pub fn client(
    task: &Task,
    server: Ipv4Addr,
    mut pace: Pace,
    timeout: Span,
    recorder: &Recorder,
) -> io::Result<Heard> {
    let mut messages = Numbered::begin("client", task, server, recorder)?;
    loop {
        pace.wait();
        let Some(SentMessage { seq, at, is_taken }) = messages.send()? else { break };
        if !is_taken {
            // Recorded as not taken; give the full queue a moment.
            clock::sleep_until(at + FLOOD_TICK);
            continue;
        }
        let Numbered { sender, timestamper, marks, .. } = &mut messages;
        await_response(&sender.socket, seq, at + timeout, timestamper, marks)?;
        messages.take_refusals()?;
    }
    messages.take_refusals()?;
    Ok(messages.sender.heard())
}

/// Messages to one address, with numbers that count up from 0, each recorded and marked.
struct Numbered<'a> {
    sender: Sender,
    to: SocketAddrV4,
    timestamper: Timestamper<'a>,
    marks: Marks,
    message: Vec<u8>,
    /// None is sent at or after it.
    end: Instant<Tai>,
    seq: u32,
}

/// One of them.
struct SentMessage {
    seq: u32,
    at: Instant<Tai>,
    /// Whether the stack took it.
    is_taken: bool,
}

impl<'a> Numbered<'a> {
    /// Makes the socket, and returns when the task starts. `role` is a part of the names of marks.
    fn begin(
        role: &str,
        task: &Task,
        to: Ipv4Addr,
        recorder: &'a Recorder,
    ) -> io::Result<Numbered<'a>> {
        let sender = Sender::new(task, 0)?;
        let messages = Numbered {
            to: SocketAddrV4::new(to, task.port.get()),
            timestamper: Timestamper::new(recorder, task.station),
            marks: Marks::new(role, task, sender.local_address())?,
            sender,
            message: message_buffer(task),
            end: task.end,
            seq: 0,
        };
        clock::sleep_until(task.start);
        Ok(messages)
    }

    /// Sends the next one; `None` when the task is over.
    fn send(&mut self) -> io::Result<Option<SentMessage>> {
        let at = now();
        if at >= self.end {
            return Ok(None);
        }
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        timestamp(&mut self.message, seq);
        self.timestamper.record(at, TimestampPoint::Send, REQUEST, seq);
        self.marks.sends(self.to.into(), seq);
        let numbered = (REQUEST, seq);
        let is_taken = self.sender.send(&self.message, self.to, numbered, &self.timestamper)?;
        Ok(Some(SentMessage { seq, at, is_taken }))
    }

    fn take_refusals(&mut self) -> io::Result<()> {
        self.sender.take_refusals(REQUEST, &self.timestamper)
    }
}

/// Receives until the response `seq` came or the time is over. A late response of an earlier
/// request is recorded too: it was received, only not in time.
fn await_response(
    socket: &TimestampedUdp,
    seq: u32,
    until: Instant<Tai>,
    timestamper: &Timestamper<'_>,
    marks: &mut Marks,
) -> io::Result<()> {
    let mut into = [0; 2_048];
    loop {
        let left = until - now();
        if left <= Span::ZERO {
            return Ok(());
        }
        socket.set_timeout(left)?;
        let Some(message) = socket.receive(&mut into)? else {
            continue;
        };
        let at = now();
        if let Some(got) = seq_of(&into[..message.length]) {
            marks.received(message.from, got);
            timestamper.received(at, &message, RESPONSE, got);
            if got == seq {
                return Ok(());
            }
        }
    }
}

/// When a talker's messages are due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Due {
    /// In each period. Of messages that are due while another waits for its pace, all but the
    /// latest are left out.
    InPeriods {
        /// From one message to the next.
        period: Span,
        /// So long after each whole multiple of the period (TAI).
        offset: Span,
    },
    /// So long after the start of the task each.
    Listed(Vec<Span>),
}

impl Due {
    /// The instants, of a task that starts then.
    pub fn times(&self, start: Instant<Tai>) -> DueTimes {
        match self {
            Due::InPeriods { period, offset } => DueTimes::in_periods(*period, *offset),
            Due::Listed(times) => DueTimes::listed(start, times),
        }
    }
}

/// Sends a message to `to` whenever one is due, when `pace` lets it. What it heard of messages that
/// did not leave.
///
/// **Errors**: as [`client`].
pub fn talker(
    task: &Task,
    to: Ipv4Addr,
    due: &Due,
    mut pace: Pace,
    recorder: &Recorder,
) -> io::Result<Heard> {
    let mut messages = Numbered::begin("talker", task, to, recorder)?;
    let mut due = due.times(task.start);
    while let Some(at) = due.next(now()) {
        clock::sleep_until(at);
        pace.wait();
        // One that the stack does not take is recorded as such.
        let is_over = messages.send()?.is_none();
        messages.take_refusals()?;
        if is_over {
            break;
        }
    }
    Ok(messages.sender.heard())
}

/// Receives what a [`talker`] sends, until `drain` after the end.
///
/// **Errors**: the socket cannot be made.
pub fn listener(task: &Task, drain: Span, recorder: &Recorder) -> io::Result<()> {
    let socket = task.socket(task.port.get())?;
    socket.set_timeout(POLL_INTERVAL)?;
    let timestamper = Timestamper::new(recorder, task.station);
    let mut marks = Marks::new("listener", task, socket.local_address())?;
    let mut into = [0; 2_048];
    loop {
        let message = socket.receive(&mut into)?;
        let at = now();
        if at >= task.end + drain {
            return Ok(());
        }
        let Some(message) = message else { continue };
        let Some(seq) = seq_of(&into[..message.length]) else { continue };
        marks.received(message.from, seq);
        timestamper.received(at, &message, REQUEST, seq);
    }
}

/// Answers requests until `drain` after the end, so that the last ones are answered too.
///
/// **Errors**: as [`client`].
pub fn server(task: &Task, mut pace: Pace, drain: Span, recorder: &Recorder) -> io::Result<Heard> {
    let mut sender = Sender::new(task, task.port.get())?;
    sender.socket.set_timeout(POLL_INTERVAL)?;
    let timestamper = Timestamper::new(recorder, task.station);
    let own = sender.local_address();
    let mut marks = Marks::new("server", task, own)?;
    let mut response = message_buffer(task);
    let mut into = [0; 2_048];
    loop {
        let message = sender.socket.receive(&mut into)?;
        let at = now();
        sender.take_refusals(RESPONSE, &timestamper)?;
        if at >= task.end + drain {
            return Ok(sender.heard());
        }
        let Some(message) = message else { continue };
        let Some(seq) = seq_of(&into[..message.length]) else {
            continue;
        };
        marks.received(message.from, seq);
        timestamper.received(at, &message, REQUEST, seq);
        pace.wait();
        timestamp(&mut response, seq);
        timestamper.record(now(), TimestampPoint::Send, RESPONSE, seq);
        let SocketAddr::V4(from) = message.from else {
            unreachable!("an IPv4 socket hears IPv4 addresses only")
        };
        marks.sends(message.from, seq);
        sender.send(&response, from, (RESPONSE, seq), &timestamper)?;
    }
}

/// What the link is busy with for one message: UDP, IPv4 and Ethernet come on top.
fn wire_bytes(message: u32) -> u32 {
    let sdu = message.saturating_add(8 + 20);
    SduLen::new(sdu).map_or(u32::MAX, |sdu| sdu.frame_len().wire_len().get())
}

/// How much a flood sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloodRate {
    /// Mean rate, as the link is kept busy by it.
    pub bits_per_second: u64,
    /// Messages sent at once, 1 at least.
    pub burst: u64,
}

/// Sends to `to` at a steady mean rate of the link's time, a millisecond's worth at a time. Not
/// measured; it has no mark, so nobody takes it for a measured message.
///
/// **Errors**: as [`client`].
pub fn flood(task: &Task, to: Ipv4Addr, flow: FloodRate) -> io::Result<Heard> {
    let socket = task.socket(0)?;
    let to = SocketAddr::from((to, task.port.get()));
    let message = message_buffer(task);
    let per_message = u64::from(wire_bytes(task.message)) * 8;
    clock::sleep_until(task.start);
    let (mut sent, mut heard) = (0_u64, Heard::default());
    loop {
        let tick = now();
        if tick >= task.end {
            return Ok(heard);
        }
        let elapsed = u128::try_from((tick - task.start).as_ns()).unwrap_or(0);
        let due = elapsed * u128::from(flow.bits_per_second)
            / 1_000_000_000
            / u128::from(per_message * flow.burst);
        let due = u64::try_from(due).unwrap_or(u64::MAX).saturating_mul(flow.burst);
        // A tick that came late sends at most two ticks' worth: the rate is not caught up with.
        let per_tick = (flow.bits_per_second / 1_000 / per_message + 1).max(flow.burst);
        sent = sent.max(due.saturating_sub(2 * per_tick));
        while sent < due {
            taken(socket.send_to(&message, to), &mut heard)?;
            if socket.takes_errors() {
                drain(&socket)?;
            }
            sent += 1;
        }
        clock::sleep_until(tick + FLOOD_TICK);
    }
}

/// Keeps a port open without reading it, so that floods meet a socket and not an error message.
///
/// **Errors**: the socket cannot be made.
pub fn sink(task: &Task) -> io::Result<()> {
    let _socket = task.socket(task.port.get())?;
    clock::sleep_until(task.end + Span::from_ms(200));
    Ok(())
}

/// Takes what ICMP messages said out of the error queue.
fn drain(socket: &TimestampedUdp) -> io::Result<()> {
    while error_queue::take(socket.as_fd())?.is_some() {}
    Ok(())
}

/// Whether the stack took a message; why not, is counted. A full queue is no failure of the
/// program, and neither is the error of an earlier message: the next one may well arrive.
fn taken(sent: io::Result<()>, heard: &mut Heard) -> io::Result<bool> {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let Err(error) = sent else { return Ok(true) };
    let kind = error.kind();
    let Some(errno) = error.raw_os_error() else { return Err(error) };
    if is_full(errno) || matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable) {
        heard.not_taken(errno);
        return Ok(false);
    }
    Err(error)
}
