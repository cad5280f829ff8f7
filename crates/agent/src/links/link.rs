// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link: messages in both directions, in order, with signs of life and a goodbye.
//!
//! Within a link a message arrives once and after those before it, or the link ends with an error:
//! its transport keeps the order. Nothing is repeated on another link; who needs that numbers the
//! messages.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::{Duration, Instant};

use crate::links::error::{LinkError, protocol};
use crate::links::frame::{self, Assembler, Kind, REASON_BYTES};
use crate::links::identity::Fingerprint;
use crate::links::listener::LinkSlot;
use crate::links::wire::{Got, Wire, lock};

/// The bounds of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// The longest message that is received. **Units**: bytes.
    pub message_bytes: usize,
    /// After so long without a message a sign of life is sent.
    pub keep_alive: Duration,
    /// After so long without a byte the other end counts as gone.
    pub silence: Duration,
    /// By when the handshake must be over.
    pub handshake: Duration,
}

impl Default for LinkLimits {
    fn default() -> LinkLimits {
        LinkLimits {
            message_bytes: 1 << 20,
            keep_alive: Duration::from_secs(5),
            silence: Duration::from_secs(20),
            handshake: Duration::from_secs(20),
        }
    }
}

/// Who is at the other end, as far as it was proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A station, by its key.
    Station {
        /// Its key.
        fingerprint: Fingerprint,
        /// The name it had when it was paired; empty when only its fingerprint was given.
        name: String,
        /// Where the connection comes from or goes to.
        address: String,
    },
    /// A process on this machine, of this user or root.
    Local {
        /// Its user.
        user: u32,
        /// Its number; 0 when it is in another namespace of processes.
        pid: u32,
    },
    /// Whoever has the other end of our stdin and stdout, or of a program's: `ssh` has proven it.
    Stdio,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Station { fingerprint, name, address } if name.is_empty() => {
                write!(f, "{fingerprint} at {address}")
            }
            Peer::Station { name, address, .. } => write!(f, "{name} at {address}"),
            Peer::Local { user, pid } => write!(f, "process {pid} of user {user}"),
            Peer::Stdio => f.write_str("stdin and stdout"),
        }
    }
}

#[derive(Debug)]
struct Shared {
    wire: Wire,
    limits: LinkLimits,
    /// The longest message that the other end takes. **Units**: bytes.
    most: usize,
    peer: Peer,
    binding: Option<[u8; 32]>,
    /// When something was sent last.
    sent: Mutex<Instant>,
    ended: AtomicBool,
    /// Its end tells the thread that sends signs of life.
    _life: mpsc::Sender<()>,
    /// The place among the links of a listener.
    _place: Option<LinkSlot>,
}

impl Shared {
    fn send(&self, kind: Kind, payload: &[u8], timeout: Duration) -> Result<(), LinkError> {
        let mut sent = lock(&self.sent);
        if self.ended.load(Ordering::Acquire) {
            return Err(LinkError::Cut { why: "it was ended before".to_owned() });
        }
        let done = self.wire.write(&frame::encode(kind, payload), timeout);
        *sent = Instant::now();
        done.map_err(|error| {
            // A part of the frame may be out: whatever followed would be read wrongly.
            self.ended.store(true, Ordering::Release);
            lost(&error, timeout)
        })
    }

    fn close(&self, reason: &str) {
        let mut end = reason.len().min(REASON_BYTES);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        // The other end may be gone, which is what a goodbye is about.
        let _ = self.send(Kind::Close, &reason.as_bytes()[..end], GOODBYE_TIMEOUT);
        self.ended.store(true, Ordering::Release);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Acquire) {
            self.close("it is not needed any more");
        }
    }
}

fn lost(error: &io::Error, timeout: Duration) -> LinkError {
    match error.kind() {
        io::ErrorKind::TimedOut => LinkError::Silent { seconds: timeout.as_secs() },
        _ => LinkError::Cut { why: error.to_string() },
    }
}

/// A link, both directions. Dropping it says goodbye.
#[derive(Debug)]
pub struct Link {
    sender: Sender,
    receiver: Receiver,
}

impl Link {
    /// Greets the other end and waits for its greeting.
    pub(crate) fn open(
        wire: Wire,
        peer: Peer,
        binding: Option<[u8; 32]>,
        limits: LinkLimits,
        end: Instant,
        place: Option<LinkSlot>,
    ) -> Result<Link, LinkError> {
        let own = u32::try_from(limits.message_bytes).unwrap_or(u32::MAX);
        let left = || end.saturating_duration_since(Instant::now());
        let hello = frame::encode(Kind::Hello, &frame::hello(own));
        let greeted = wire.write(&hello, left());
        let mut assembler = Assembler::new(limits.message_bytes);
        let theirs = loop {
            match assembler.next().map_err(protocol)? {
                Some((Kind::Hello, payload)) => break frame::read_hello(&payload),
                Some((kind, _)) => break Err(format!("it began with {kind:?}")),
                None => {}
            }
            if left().is_zero() {
                return Err(LinkError::Silent { seconds: limits.handshake.as_secs() });
            }
            fill(&wire, &mut assembler, left())?;
        };
        let theirs = theirs.map_err(protocol)?;
        // Last, since what the other end said before it left tells more.
        greeted.map_err(|error| lost(&error, limits.handshake))?;
        let (life, ended) = mpsc::channel();
        let most = usize::try_from(theirs).unwrap_or(usize::MAX).min(MESSAGE_CEILING);
        let shared = Arc::new(Shared {
            wire,
            limits,
            most,
            peer,
            binding,
            sent: Mutex::new(Instant::now()),
            ended: AtomicBool::new(false),
            _life: life,
            _place: place,
        });
        keep_alive(Arc::downgrade(&shared), limits.keep_alive, ended)?;
        let receiver = Receiver { shared: Arc::clone(&shared), assembler, quiet: Duration::ZERO };
        Ok(Link { sender: Sender { shared }, receiver })
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.sender.shared.peer
    }

    /// What only the two ends of this connection know; `None` without TLS.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        self.sender.shared.binding
    }

    /// The two directions, for two threads. The link ends with the later of them.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// The two directions, borrowed.
    pub fn halves(&mut self) -> (&Sender, &mut Receiver) {
        (&self.sender, &mut self.receiver)
    }

    /// As [`Sender::send`].
    pub fn send(&self, message: &[u8]) -> Result<(), LinkError> {
        self.sender.send(message)
    }

    /// As [`Receiver::receive`].
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, LinkError> {
        self.receiver.receive(timeout)
    }
}

/// The direction to the other end; its clones send one after the other.
#[derive(Clone, Debug)]
pub struct Sender {
    shared: Arc<Shared>,
}

impl Sender {
    /// Sends a message, and returns when the transport has it: that it arrived is for an answer to
    /// tell.
    ///
    /// **Errors**: a message longer than the other end takes, and the link stays; the link is over,
    /// or the other end took nothing for [`LinkLimits::silence`], and it is over from now on.
    pub fn send(&self, message: &[u8]) -> Result<(), LinkError> {
        self.send_within(message, self.shared.limits.silence)
    }

    /// As [`Sender::send`], to another end that may take nothing for so long, such as one that
    /// waits for its disk.
    ///
    /// **Errors**: as [`Sender::send`].
    pub fn send_within(&self, message: &[u8], timeout: Duration) -> Result<(), LinkError> {
        let most = self.shared.most;
        if message.len() > most {
            return Err(LinkError::TooLong { bytes: message.len(), most });
        }
        self.shared.send(Kind::Message, message, timeout)
    }

    /// The longest message that the other end takes. **Units**: bytes.
    pub fn most_bytes(&self) -> usize {
        self.shared.most
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Ends the link and tells the other end why, in at most 512 bytes.
    pub fn close(&self, reason: &str) {
        self.shared.close(reason);
    }
}

/// The direction from the other end.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    assembler: Assembler,
    /// How long it was waited here since a byte came.
    quiet: Duration,
}

impl Receiver {
    /// The next message, or `None` when the time is over before one is whole.
    ///
    /// **Errors**: [`LinkError::Closed`] after a goodbye, [`LinkError::Cut`] without one,
    /// [`LinkError::Silent`] after [`LinkLimits::silence`] of waiting here in which no byte
    /// came, [`LinkError::Protocol`]. The link is over then.
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, LinkError> {
        let end = Instant::now() + timeout;
        let received = self.receive_until(end);
        if received.is_err() {
            self.shared.ended.store(true, Ordering::Release);
        }
        received
    }

    fn receive_until(&mut self, end: Instant) -> Result<Option<Vec<u8>>, LinkError> {
        let mut has_read = false;
        loop {
            while let Some((kind, payload)) = self.assembler.next().map_err(protocol)? {
                match kind {
                    Kind::Message => return Ok(Some(payload)),
                    Kind::Alive => {}
                    Kind::Hello => return Err(protocol("a second hello")),
                    Kind::Close => return Err(LinkError::Closed { reason: reason(&payload) }),
                }
            }
            // What has come is looked at once, also when there is no time; then the time counts,
            // also for an other end that goes on saying what is no message.
            if has_read && Instant::now() >= end {
                return Ok(None);
            }
            let left = end.saturating_duration_since(Instant::now());
            let silence = self.shared.limits.silence;
            let timeout = left.min(silence.saturating_sub(self.quiet));
            let waiting = Instant::now();
            has_read = true;
            if fill(&self.shared.wire, &mut self.assembler, timeout)? {
                self.quiet = Duration::ZERO;
                continue;
            }
            // Silence while nobody listened is not the other end's.
            self.quiet += waiting.elapsed();
            if self.quiet >= silence {
                return Err(LinkError::Silent { seconds: silence.as_secs() });
            }
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }
}

/// A goodbye's reason, fit to be shown.
fn reason(payload: &[u8]) -> String {
    let text = String::from_utf8_lossy(payload);
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Reads once; whether something came.
fn fill(wire: &Wire, assembler: &mut Assembler, timeout: Duration) -> Result<bool, LinkError> {
    let mut buffer = [0; 16_384];
    match wire.read(&mut buffer, timeout) {
        Ok(Got::Bytes(count)) => {
            assembler.add(&buffer[..count]);
            Ok(true)
        }
        Ok(Got::Nothing) => Ok(false),
        Ok(Got::End) if assembler.is_within_a_frame() => {
            Err(LinkError::Cut { why: "it ended in the middle of a message".to_owned() })
        }
        Ok(Got::End) => Err(LinkError::Cut { why: "it ended without a goodbye".to_owned() }),
        Err(error) if is_refusal(&error) => Err(LinkError::NotTrusted),
        Err(error) => Err(LinkError::Cut { why: error.to_string() }),
    }
}

/// Whether the other end said, in the words of TLS, that it does not know our key.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    let found = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    found == Some(&rustls::Error::AlertReceived(rustls::AlertDescription::AccessDenied))
}

/// Starts the thread that sends a sign of life whenever nothing was sent for so long.
fn keep_alive(
    link: Weak<Shared>,
    every: Duration,
    ended: mpsc::Receiver<()>,
) -> Result<(), LinkError> {
    let work = move || {
        while ended.recv_timeout(every / 2) == Err(mpsc::RecvTimeoutError::Timeout) {
            let Some(link) = link.upgrade() else { return };
            // Who does not listen has something to hear already.
            let room = link.wire.has_room().unwrap_or(true);
            let due = room && lock(&link.sent).elapsed() >= every / 2;
            if due && link.send(Kind::Alive, &[], link.limits.silence).is_err() {
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("link".to_owned()).spawn(work);
    started.map(drop).map_err(crate::links::error::system("start a thread"))
}

const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);
/// No message is longer, whatever the other end would take. **Units**: bytes.
const MESSAGE_CEILING: usize = 1 << 30;
