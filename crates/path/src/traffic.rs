// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs that talk: the request/response client and server whose transfers are measured, and
//! the flood they compete with. Each runs from one instant to another, in its own process, so that
//! it can be put into the priority group like any program.
//!
//! Not here: frames that are not UDP; the station's MAC, which these programs know nothing of.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Port, SduLen, SocketPriority, Span, Tai};
use timewire_sys::clock;
use timewire_sys::udp::{Received, StampedUdp};
use timewire_trace::record::{Record, Tap};

use crate::message::{MIN_MESSAGE, seq_of, stamp};
use crate::record::Recorder;
use crate::release::SlotTimer;
use crate::{kernel_stamp_as_tai, now};

/// Index of a stream's flows in a record file's list: requests, then responses.
pub const REQUEST: u16 = 0;
/// See [`REQUEST`].
pub const RESPONSE: u16 = 1;

/// The longest time a server waits before it looks at the clock again.
const LOOK: Span = Span::from_ms(20);
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
    fn wait(&mut self) {
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
}

impl Task {
    /// A socket at its address and this port.
    fn socket(&self, port: u16) -> io::Result<StampedUdp> {
        let socket = StampedUdp::bind(SocketAddrV4::new(self.address, port))?;
        if let Some(number) = self.priority {
            let priority = SocketPriority::new(number.into()).map_err(io::Error::other)?;
            socket.set_priority(priority)?;
        }
        Ok(socket)
    }
}

struct Stamper<'a> {
    recorder: &'a Recorder,
    station: u8,
    tai_offset: Span,
}

impl Stamper<'_> {
    fn record(&self, at: Instant<Tai>, tap: Tap, flow: u16, seq: u32) {
        let station = self.station;
        self.recorder.push(Record {
            at_ns: at.as_ns(),
            seq,
            frame_len: 0,
            tap,
            station,
            flow,
            flags: 0,
            clock: 0,
        });
    }

    fn received(&self, at: Instant<Tai>, message: &Received, flow: u16, seq: u32) {
        match message.stamp {
            Some(stamp) => {
                self.record(kernel_stamp_as_tai(stamp, self.tai_offset), Tap::RxSw, flow, seq);
            }
            None => self.recorder.add_lost(1),
        }
        self.record(at, Tap::Receive, flow, seq);
    }
}

fn message_buffer(task: &Task) -> Vec<u8> {
    let length = usize::try_from(task.message).expect("invariant: u32 fits usize on Linux");
    vec![0; length.max(MIN_MESSAGE)]
}

/// Sends requests to `server` and waits for each response, `timeout` at most.
///
/// **Errors**: the socket cannot be made, or sending fails for another reason than a full queue.
pub fn client(
    task: &Task,
    server: Ipv4Addr,
    mut pace: Pace,
    timeout: Span,
    recorder: &Recorder,
) -> io::Result<()> {
    let socket = task.socket(0)?;
    let to = SocketAddr::from((server, task.port.get()));
    let stamper = Stamper { recorder, station: task.station, tai_offset: clock::tai_offset() };
    let mut message = message_buffer(task);
    clock::sleep_until(task.start);
    for seq in 0_u32.. {
        pace.wait();
        let sent = now();
        if sent >= task.end {
            break;
        }
        stamp(&mut message, seq);
        stamper.record(sent, Tap::Send, REQUEST, seq);
        if !send(&socket, &message, to)? {
            // Counted as lost by its missing arrival; give the full queue a moment.
            clock::sleep_until(sent + FLOOD_TICK);
            continue;
        }
        await_response(&socket, seq, sent + timeout, &stamper)?;
    }
    Ok(())
}

/// Receives until the response `seq` came or the time is over. A late response of an earlier
/// request is recorded too: it was received, only not in time.
fn await_response(
    socket: &StampedUdp,
    seq: u32,
    until: Instant<Tai>,
    stamper: &Stamper<'_>,
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
            stamper.received(at, &message, RESPONSE, got);
            if got == seq {
                return Ok(());
            }
        }
    }
}

/// Answers requests until `drain` after the end, so that the last ones are answered too.
///
/// **Errors**: as [`client`].
pub fn server(task: &Task, mut pace: Pace, drain: Span, recorder: &Recorder) -> io::Result<()> {
    let socket = task.socket(task.port.get())?;
    socket.set_timeout(LOOK)?;
    let stamper = Stamper { recorder, station: task.station, tai_offset: clock::tai_offset() };
    let mut response = message_buffer(task);
    let mut into = [0; 2_048];
    loop {
        let message = socket.receive(&mut into)?;
        let at = now();
        if at >= task.end + drain {
            return Ok(());
        }
        let Some(message) = message else { continue };
        let Some(seq) = seq_of(&into[..message.length]) else {
            continue;
        };
        stamper.received(at, &message, REQUEST, seq);
        pace.wait();
        stamp(&mut response, seq);
        stamper.record(now(), Tap::Send, RESPONSE, seq);
        send(&socket, &response, message.from)?;
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
pub fn flood(task: &Task, to: Ipv4Addr, flow: FloodRate) -> io::Result<()> {
    let socket = task.socket(0)?;
    let to = SocketAddr::from((to, task.port.get()));
    let message = message_buffer(task);
    let per_message = u64::from(wire_bytes(task.message)) * 8;
    clock::sleep_until(task.start);
    let mut sent = 0_u64;
    loop {
        let tick = now();
        if tick >= task.end {
            return Ok(());
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
            send(&socket, &message, to)?;
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

/// Sends one message; whether the stack took it. A full queue is no failure of the program.
fn send(socket: &StampedUdp, message: &[u8], to: SocketAddr) -> io::Result<bool> {
    match socket.send_to(message, to) {
        Ok(()) => Ok(true),
        Err(error)
            if error.kind() == io::ErrorKind::WouldBlock
                || error.raw_os_error() == Some(105 /* ENOBUFS */) =>
        {
            Ok(false)
        }
        // A refused earlier message is told on the next send; the next one may well arrive.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}
