// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transports of bytes in both directions: a pair of descriptors, or TLS over TCP. Reading and
//! writing go on at once, from two threads, and every wait has an end.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::Connection;
use timewire_base::Span;
use timewire_sys::event;

/// What came of reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The other end sends no more.
    End,
}

/// A transport.
#[derive(Debug)]
pub(crate) enum Wire {
    Plain(Plain),
    Tls(Box<Tls>),
}

impl Wire {
    /// Reads what is there, waiting so long for the first byte.
    pub(crate) fn read(&self, buffer: &mut [u8], timeout: Duration) -> io::Result<Got> {
        let end = Instant::now() + timeout;
        match self {
            Wire::Plain(plain) => plain.read(buffer, end),
            Wire::Tls(tls) => tls.read(buffer, end),
        }
    }

    /// Whether something could be written at once.
    pub(crate) fn has_room(&self) -> io::Result<bool> {
        let fd = match self {
            Wire::Plain(plain) => plain.output.as_fd(),
            Wire::Tls(tls) => tls.socket.as_fd(),
        };
        event::wait_writable(fd, Some(Span::ZERO))
    }

    /// Writes everything. One caller at a time.
    ///
    /// **Errors**: `TimedOut` when the other end takes nothing for so long; the transport is of no
    /// use then.
    pub(crate) fn write(&self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        match self {
            Wire::Plain(plain) => write_patiently(&plain.output, bytes, PIPE_BYTES, timeout),
            Wire::Tls(tls) => tls.write(bytes, timeout),
        }
    }
}

/// Two descriptors, or one twice.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) input: File,
    pub(crate) output: File,
    /// The program whose stdio they are; dropped last, when it has seen its input end.
    pub(crate) _program: Option<Program>,
}

impl Plain {
    fn read(&self, buffer: &mut [u8], end: Instant) -> io::Result<Got> {
        if !wait_readable(self.input.as_fd(), end)? {
            return Ok(Got::Nothing);
        }
        match (&self.input).read(buffer) {
            Ok(0) => Ok(Got::End),
            Ok(count) => Ok(Got::Bytes(count)),
            Err(error) if is_nothing(&error) => Ok(Got::Nothing),
            Err(error) => Err(error),
        }
    }
}

/// A program that carries a link. It has some time to end by itself, then it is killed.
#[derive(Debug)]
pub(crate) struct Program(pub(crate) Child);

impl Drop for Program {
    fn drop(&mut self) {
        let end = Instant::now() + PROGRAM_ENDS_WITHIN;
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() >= end {
                // Gone already is as good.
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// TLS over TCP.
#[derive(Debug)]
pub(crate) struct Tls {
    socket: TcpStream,
    session: Mutex<Connection>,
    /// Held from taking ciphertext out of the session until it is written: its order is part of it.
    output: Mutex<()>,
}

impl Tls {
    /// After the handshake; the socket does not block.
    pub(crate) fn new(socket: TcpStream, session: Connection) -> Tls {
        Tls { socket, session: Mutex::new(session), output: Mutex::new(()) }
    }

    fn read(&self, buffer: &mut [u8], end: Instant) -> io::Result<Got> {
        let mut has_read = false;
        loop {
            match lock(&self.session).reader().read(buffer) {
                Ok(0) => return Ok(Got::End),
                Ok(count) => return Ok(Got::Bytes(count)),
                Err(error) if is_nothing(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Got::End),
                Err(error) => return Err(error),
            }
            // Records without content could come for ever.
            if has_read && Instant::now() >= end || !wait_readable(self.socket.as_fd(), end)? {
                return Ok(Got::Nothing);
            }
            has_read = true;
            let mut session = lock(&self.session);
            match session.read_tls(&mut &self.socket) {
                Ok(_) => {}
                Err(error) if is_nothing(&error) => continue,
                Err(error) => return Err(error),
            }
            let state = session.process_new_packets();
            let wants_write = session.wants_write();
            drop(session);
            if wants_write && let Ok(_output) = self.output.try_lock() {
                // When it is taken, its owner writes this with its own.
                self.flush(ANSWER_TIMEOUT)?;
            }
            state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    fn write(&self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        let _output = lock(&self.output);
        for part in bytes.chunks(RECORD_BYTES) {
            lock(&self.session).writer().write_all(part)?;
            self.flush(timeout)?;
        }
        Ok(())
    }

    /// Writes the ciphertext that waits. The caller holds `output`.
    fn flush(&self, timeout: Duration) -> io::Result<()> {
        let mut ciphertext = Vec::new();
        let mut session = lock(&self.session);
        while session.wants_write() {
            session.write_tls(&mut ciphertext)?;
        }
        drop(session);
        write_patiently(&self.socket, &ciphertext, SOCKET_BYTES, timeout)
    }
}

/// What was shared stays whole when a thread panicked: every change of it is one call.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

pub(crate) fn span(duration: Duration) -> Span {
    Span::from_ns(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// Waits until a descriptor is readable; `false` when it is not by then.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, end: Instant) -> io::Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // A signal ends the wait without a word.
        match event::wait_readable(&[fd], Some(span(left)))? {
            true => return Ok(true),
            false if left.is_zero() => return Ok(false),
            false => {}
        }
    }
}

/// Writes everything; every part must be taken within the time.
fn write_patiently<W: AsFd>(
    output: &W,
    mut bytes: &[u8],
    part: usize,
    timeout: Duration,
) -> io::Result<()>
where
    for<'a> &'a W: io::Write,
{
    let mut end = Instant::now() + timeout;
    while !bytes.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if !event::wait_writable(output.as_fd(), Some(span(left)))? {
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            continue;
        }
        let mut writer = output;
        match writer.write(&bytes[..bytes.len().min(part)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                end = Instant::now() + timeout;
            }
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A pipe that is writable takes so much without blocking (POSIX, `PIPE_BUF`). **Units**: bytes.
const PIPE_BYTES: usize = 4_096;
const SOCKET_BYTES: usize = 65_536;
/// The most of one record of TLS. **Units**: bytes.
const RECORD_BYTES: usize = 16_384;
/// How long a reader waits to get an answer of TLS itself out.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const PROGRAM_ENDS_WITHIN: Duration = Duration::from_secs(2);
