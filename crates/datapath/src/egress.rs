// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where released frames leave the MAC: through AF_XDP or AF_PACKET, alike to its caller.

use timewire_base::drops::EAGAIN;
use timewire_sys::packet::PacketSocket;
use timewire_sys::xsk::{SendError, XskSender};
use timewire_sys::{Frame, FrameMemory};

/// What became of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is gone; its buffer comes back through [`Egress::reclaim`].
    OnItsWay,
    /// It is gone; its buffer is free again.
    Gone,
    /// The device did not take it, for this error; its buffer is free again.
    Refused(i32),
    /// The device did not take it now: it goes with the next frame, and its buffer comes back
    /// through [`Egress::reclaim`].
    Late,
}

/// Where released frames go out.
pub(crate) enum Egress {
    Xsk(XskSender),
    Packet(PacketSocket),
}

impl Egress {
    /// Sends one frame at once.
    pub(crate) fn send(&mut self, memory: &FrameMemory, frame: Frame) -> Sent {
        match self {
            Egress::Xsk(sender) => match sender.send(frame) {
                Ok(()) => Sent::OnItsWay,
                Err(SendError::Full) => Sent::Refused(EAGAIN),
                Err(SendError::Kept(_)) => Sent::Late,
            },
            Egress::Packet(socket) => match socket.send(memory, frame) {
                Ok(()) => Sent::Gone,
                Err(error) => Sent::Refused(error.raw_os_error().unwrap_or(0)),
            },
        }
    }

    /// Takes buffers of sent frames back.
    pub(crate) fn reclaim(&mut self, free: &mut Vec<u32>) {
        match self {
            Egress::Xsk(sender) => sender.reclaim(free),
            Egress::Packet(_) => {}
        }
    }
}
