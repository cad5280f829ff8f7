// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The path through AF_XDP: a program, and a socket on each receive queue, in the best mode that
//! works.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use timewire_base::IfName;
use timewire_bpf::listen::{Listen, ListenCounters, MAX_QUEUES, Metadata};
use timewire_bpf::{AttachMode, attached};
use timewire_sys::FrameMemory;
use timewire_sys::event::AnyReadable;
use timewire_sys::filter::FrameFilter;
use timewire_sys::nic::{LinkBefore, receive_queues};
use timewire_sys::receive::{Arrival, SocketOptions, take_error};
use timewire_sys::xsk::{XskListener, XskQueue};

use super::{ListenError, XdpMode};

/// A program and its sockets.
#[derive(Debug)]
pub(super) struct XdpPort {
    /// One for each queue that is heard; at least one.
    sockets: Vec<XskListener>,
    /// Where there are several: readable while one of them is.
    any: Option<AnyReadable>,
    /// The socket that is looked at first next time, so that none waits for another.
    first: usize,
    /// What had come on queues without a socket before the last socket was there.
    before: u64,
    // Behind the sockets: frames go up the stack again before the program goes.
    program: Listen,
    interface: IfName,
    is_zero_copy: bool,
    has_hardware: bool,
    polls_device: bool,
}

/// What is tried: how the program is attached, whether the driver is asked for timestamps, whether
/// the socket is without a copy.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    mode: AttachMode,
    zero_copy: bool,
    hardware: bool,
}

/// The kernel takes a queue from a closed socket a moment later; until then it is busy.
const FREED_WITHIN: Duration = Duration::from_millis(300);

/// Tries again for so long as that can be why.
fn once_free<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && begun.elapsed() < FREED_WITHIN =>
            {
                std::thread::sleep(FREED_WITHIN / 60);
            }
            result => return result,
        }
    }
}

impl XdpPort {
    /// Opens the first way that works; says in `refused` what did not.
    pub(super) fn open(
        on: (u32, &IfName, Option<u32>),
        mode: XdpMode,
        filter: &FrameFilter,
        options: SocketOptions,
        refused: &mut Vec<String>,
    ) -> Result<XdpPort, ListenError> {
        let (index, interface, queue) = on;
        if let Ok(Some(found)) = attached(index) {
            let (program, name, link) = (found.program, found.name, found.link);
            let interface = interface.clone();
            return Err(ListenError::InTheWay { interface, program, name, link });
        }
        let link = LinkBefore::of(interface);
        let mut is_forbidden = false;
        for attempt in attempts(mode, options.timestamps.hardware) {
            match XdpPort::attempt(on, attempt, filter, options) {
                Ok(port) => {
                    refused.extend(link.is_back());
                    return Ok(port);
                }
                Err((why, forbidden)) => {
                    is_forbidden |= forbidden;
                    refused.push(format!("{}: {why}", attempt.describe()));
                }
            }
        }
        Err(ListenError::NoXdp {
            interface: interface.clone(),
            queue,
            refused: std::mem::take(refused),
            is_forbidden,
        })
    }

    fn attempt(
        (index, interface, queue): (u32, &IfName, Option<u32>),
        attempt: Attempt,
        filter: &FrameFilter,
        options: SocketOptions,
    ) -> Result<XdpPort, (String, bool)> {
        let program = Listen::attach(index, attempt.mode, filter, attempt.hardware)
            .map_err(|error| (error.to_string(), error.is_forbidden()))?;
        let queues = match queue {
            Some(queue) => Queues { first: queue, count: 1, are_known: true },
            None => Queues::of(interface)?,
        };
        let place = |queue| XskQueue { interface: index, queue, zero_copy: attempt.zero_copy };
        let sockets = queues.open(&place, options)?;
        for (queue, socket) in (queues.first..).zip(&sockets) {
            program
                .set_socket(queue, socket.as_fd())
                .map_err(|error| (error.to_string(), error.is_forbidden()))?;
        }
        let any = (sockets.len() > 1).then(|| AnyReadable::of(sockets.iter().map(AsFd::as_fd)));
        let any = any.transpose().map_err(|error| (format!("wait for all: {error}"), false))?;
        let counters = program.counters();
        let before = counters.map_err(|error| (error.to_string(), error.is_forbidden()))?;
        Ok(XdpPort {
            sockets,
            any,
            first: 0,
            before: before.without_socket,
            program,
            interface: interface.clone(),
            is_zero_copy: attempt.zero_copy,
            has_hardware: attempt.hardware,
            polls_device: options.busy_poll.is_some(),
        })
    }

    pub(super) fn describe(&self) -> String {
        let attempt = Attempt {
            mode: self.program.mode(),
            zero_copy: self.is_zero_copy,
            hardware: self.has_hardware,
        };
        match self.sockets.len() {
            1 => attempt.describe(),
            queues => format!("{}, {queues} queues", attempt.describe()),
        }
    }

    /// Hands over what waits on one queue, each in its turn.
    pub(super) fn receive(&mut self, each: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        for socket in &self.sockets {
            if self.polls_device || socket.wants_wakeup() {
                socket.poll_device()?;
            }
        }
        for turn in 0..self.sockets.len() {
            let place = (self.first + turn) % self.sockets.len();
            let count = take(&mut self.sockets[place], each);
            if count > 0 {
                self.first = place + 1;
                return Ok(count);
            }
        }
        Ok(0)
    }

    /// The error of one of the sockets, if there is one.
    pub(super) fn take_error(&self) -> io::Result<()> {
        self.sockets.iter().try_for_each(|socket| take_error(socket.as_fd()))
    }

    pub(super) fn drops(&self) -> io::Result<u64> {
        self.sockets.iter().map(XskListener::drops).sum()
    }

    pub(super) fn counters(&self) -> Result<ListenCounters, ListenError> {
        let interface = || self.interface.clone();
        let counters = self
            .program
            .counters()
            .map_err(|source| ListenError::Bpf { interface: interface(), source })?;
        let without_socket = counters.without_socket.saturating_sub(self.before);
        Ok(ListenCounters { without_socket, ..counters })
    }
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.any {
            Some(any) => any.as_fd(),
            None => self.sockets[0].as_fd(),
        }
    }
}

/// Hands over what waits on one queue.
fn take(socket: &mut XskListener, each: &mut dyn FnMut(Arrival<'_>)) -> usize {
    socket.receive::<{ Metadata::LEN }>(&mut |frame| {
        let Metadata { driver, hardware_ns } = Metadata::decode(&frame.metadata);
        each(Arrival {
            bytes: frame.bytes,
            length: u32::try_from(frame.bytes.len()).expect("invariant: in a buffer"),
            from: None,
            tag: None,
            hardware_ns,
            driver,
            kernel: None,
            user: frame.user,
        });
    })
}

/// The queues that are to be heard.
#[derive(Clone, Copy, Debug)]
struct Queues {
    first: u32,
    count: u32,
    /// Whether the driver told how many there are; else there are those that a socket can be on.
    are_known: bool,
}

impl Queues {
    /// All of an interface.
    fn of(interface: &IfName) -> Result<Queues, (String, bool)> {
        let told = receive_queues(interface).ok().filter(|count| *count > 0);
        match told {
            Some(count) if count > MAX_QUEUES => Err((
                format!(
                    "{interface} has {count} receive queues, of which {MAX_QUEUES} can be heard: \
                     choose one of them"
                ),
                false,
            )),
            Some(count) => Ok(Queues { first: 0, count, are_known: true }),
            None => Ok(Queues { first: 0, count: MAX_QUEUES, are_known: false }),
        }
    }

    /// A socket on each: on one memory, of which each has its part, where the kernel shares it
    /// between queues; else each with a memory of its own.
    ///
    /// **Errors**: one queue is without a socket, so its frames would not be heard.
    fn open(
        self,
        place: &dyn Fn(u32) -> XskQueue,
        options: SocketOptions,
    ) -> Result<Vec<XskListener>, (String, bool)> {
        let (least, most) = XskListener::BUFFERS;
        let sharers = if self.are_known { self.count } else { 1 };
        let each = (options.buffer_bytes / FrameMemory::BUFFER / sharers).clamp(least, most);
        let memory = FrameMemory::new(each * sharers)
            .map_err(|error| (format!("memory of AF_XDP: {error}"), false))?;
        let mut sockets: Vec<XskListener> = Vec::new();
        for turn in 0..self.count {
            let on = place(self.first + turn);
            let part = turn * each..(turn + 1) * each;
            let owner = sockets.first();
            let shared = || XskListener::open(&memory, part.clone(), owner, on, options.busy_poll);
            let alone = || {
                let memory = FrameMemory::new(each)?;
                XskListener::open(&memory, 0..each, None, on, options.busy_poll)
            };
            let opened = match turn < sharers {
                true if turn > 0 => once_free(shared).or_else(|_| once_free(alone)),
                true => once_free(shared),
                false => once_free(alone),
            };
            match opened {
                Ok(socket) => sockets.push(socket),
                // There is no such queue, and so none after it.
                Err(error)
                    if !self.are_known && turn > 0 && error.raw_os_error() == Some(EINVAL) =>
                {
                    break;
                }
                Err(error) => {
                    // Memory that counts as locked, and more than this process may lock.
                    let is_too_much = error.raw_os_error() == Some(ENOBUFS);
                    let is_forbidden =
                        error.kind() == io::ErrorKind::PermissionDenied || is_too_much;
                    return Err((
                        format!("AF_XDP socket on queue {}: {error}", on.queue),
                        is_forbidden,
                    ));
                }
            }
        }
        Ok(sockets)
    }
}

const EINVAL: i32 = 22;
const ENOBUFS: i32 = 105;

impl Attempt {
    fn describe(self) -> String {
        let copy = if self.zero_copy { "zero copy" } else { "copy" };
        let timestamps =
            if self.hardware { ", the driver is asked for the NIC's timestamps" } else { "" };
        format!("AF_XDP {}, {copy}{timestamps}", self.mode)
    }
}

/// What is tried for a mode, best first. Timestamps of the NIC come before a mode without them.
fn attempts(mode: XdpMode, hardware: bool) -> Vec<Attempt> {
    let (zero_copy, native, generic) =
        ((AttachMode::Native, true), (AttachMode::Native, false), (AttachMode::Generic, false));
    let ways = match mode {
        XdpMode::Auto => vec![zero_copy, native, generic],
        XdpMode::Generic => vec![generic],
        XdpMode::Native => vec![native],
        XdpMode::ZeroCopy => vec![zero_copy],
    };
    let way = |(mode, zero_copy), hardware| Attempt { mode, zero_copy, hardware };
    let with = ways.iter().filter(|way| hardware && way.0 == AttachMode::Native);
    with.map(|it| way(*it, true)).chain(ways.iter().map(|it| way(*it, false))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_best_is_tried_first_and_a_spec_is_kept_to() {
        let told = |mode, hardware| -> Vec<String> {
            attempts(mode, hardware).into_iter().map(Attempt::describe).collect()
        };
        let plain = ["AF_XDP native, zero copy", "AF_XDP native, copy", "AF_XDP generic, copy"];
        assert_eq!(told(XdpMode::Auto, false), plain);
        assert_eq!(told(XdpMode::Auto, true).len(), 5);
        assert_eq!(told(XdpMode::Native, false), plain[1..2]);
        assert_eq!(told(XdpMode::Generic, true), plain[2..]);
        assert!(told(XdpMode::ZeroCopy, true)[0].ends_with("the NIC's timestamps"));
    }
}
