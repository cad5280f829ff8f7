// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The road through AF_XDP: program and socket in the best mode that works.
//!
//! Not here: what the program does (`timewire_bpf::listen`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use timewire_base::IfName;
use timewire_bpf::listen::{Listen, ListenCounters, Metadata};
use timewire_bpf::{AttachMode, attached};
use timewire_sys::FrameMemory;
use timewire_sys::filter::FrameFilter;
use timewire_sys::receive::{Arrival, SocketOptions};
use timewire_sys::xsk::{XskListener, XskQueue};

use super::{ListenError, XdpMode};

/// A program and its socket.
#[derive(Debug)]
pub(super) struct XdpPort {
    socket: XskListener,
    // Behind the socket: frames go up the stack again before the program goes.
    program: Listen,
    interface: IfName,
    is_zero_copy: bool,
    has_hardware: bool,
    polls_device: bool,
}

/// What is tried: how the program is attached, whether the driver is asked for stamps, whether the
/// socket is without a copy.
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
        on: (u32, &IfName, u32),
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
        let mut is_forbidden = false;
        for attempt in attempts(mode, options.stamps.hardware) {
            match XdpPort::attempt(on, attempt, filter, options) {
                Ok(port) => return Ok(port),
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
        (index, interface, queue): (u32, &IfName, u32),
        attempt: Attempt,
        filter: &FrameFilter,
        options: SocketOptions,
    ) -> Result<XdpPort, (String, bool)> {
        let program = Listen::attach(index, attempt.mode, filter, attempt.hardware)
            .map_err(|error| (error.to_string(), error.is_forbidden()))?;
        let place = XskQueue { interface: index, queue, zero_copy: attempt.zero_copy };
        let buffers = options.buffer_bytes / FrameMemory::BUFFER;
        let open = || XskListener::open(buffers, place, options.busy_poll);
        let socket = once_free(open).map_err(|error| {
            // Memory that counts as locked, and more than this process may lock.
            let is_too_much = error.raw_os_error() == Some(105 /* ENOBUFS */);
            let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied || is_too_much;
            (format!("AF_XDP socket: {error}"), is_forbidden)
        })?;
        program
            .set_socket(queue, socket.as_fd())
            .map_err(|error| (error.to_string(), error.is_forbidden()))?;
        Ok(XdpPort {
            socket,
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
        attempt.describe()
    }

    pub(super) fn receive(&mut self, each: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        if self.polls_device || self.socket.wants_wakeup() {
            self.socket.poll_device()?;
        }
        let count = self.socket.receive::<{ Metadata::LEN }>(&mut |frame| {
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
        });
        Ok(count)
    }

    pub(super) fn drops(&self) -> io::Result<u64> {
        self.socket.drops()
    }

    pub(super) fn counters(&self) -> Result<ListenCounters, ListenError> {
        let interface = || self.interface.clone();
        self.program
            .counters()
            .map_err(|source| ListenError::Bpf { interface: interface(), source })
    }
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Attempt {
    fn describe(self) -> String {
        let copy = if self.zero_copy { "zero copy" } else { "copy" };
        let stamps = if self.hardware { ", the driver is asked for the card's stamps" } else { "" };
        format!("AF_XDP {}, {copy}{stamps}", self.mode)
    }
}

/// What is tried for a mode, best first. Stamps of the card come before a mode without them.
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
    fn t0_the_best_is_tried_first_and_a_wish_is_kept_to() {
        let told = |mode, hardware| -> Vec<String> {
            attempts(mode, hardware).into_iter().map(Attempt::describe).collect()
        };
        let plain = ["AF_XDP native, zero copy", "AF_XDP native, copy", "AF_XDP generic, copy"];
        assert_eq!(told(XdpMode::Auto, false), plain);
        assert_eq!(told(XdpMode::Auto, true).len(), 5);
        assert_eq!(told(XdpMode::Native, false), plain[1..2]);
        assert_eq!(told(XdpMode::Generic, true), plain[2..]);
        assert!(told(XdpMode::ZeroCopy, true)[0].ends_with("the card's stamps"));
    }
}
