// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens to each frame, for those who write it down. Nobody has to: a simulation that is
//! not watched asks once at each place whether it is.

use super::describe::PortIndex;
use super::engine::Simulation;
use super::frame::{Frame, slot};
use super::stats::LostBy;

/// Who is told. What is told comes in the order of time.
pub trait Observer: Send {
    /// Something happened to a frame.
    fn seen(&mut self, seen: &Seen);
}

/// Something that happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When. **Units**: picoseconds since the start.
    pub at_ps: u64,
    /// From when its latency counts. **Units**: picoseconds since the start.
    pub created_ps: u64,
    /// Its stream.
    pub stream: usize,
    /// Its number in the stream.
    pub number: u32,
    /// Which port of the stream's way it is at, or comes to next, from 0.
    pub hop: u8,
    /// Its length on the link, preamble and gap included. **Units**: bytes.
    pub wire_bytes: u32,
    /// What.
    pub what: What,
}

/// What happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Its application released it.
    Released,
    /// It came to the queue of a port.
    Queued {
        /// The port.
        port: PortIndex,
    },
    /// The port begins to send it.
    Started {
        /// The port.
        port: PortIndex,
        /// Its class there.
        class: usize,
    },
    /// Its last bit leaves the port, now or at a time that is known already.
    Ended {
        /// The port.
        port: PortIndex,
        /// When. **Units**: picoseconds since the start.
        at_ps: u64,
    },
    /// It will be at a node, or so much of it that the node goes on with it, unless it is lost
    /// before. The frame's `hop` is the one that it has there.
    Reaches {
        /// The port that it comes from.
        port: PortIndex,
        /// The node.
        node: usize,
        /// When. **Units**: picoseconds since the start.
        at_ps: u64,
    },
    /// It has arrived.
    Delivered {
        /// Where.
        node: usize,
        /// When the application has it. **Units**: picoseconds since the start.
        received_ps: u64,
    },
    /// It is lost, where it is or on its way to where it will be.
    Lost {
        /// Why.
        by: LostBy,
    },
    /// A listener does not get it, because it was lost: told for each, right after
    /// [`What::Lost`].
    Missed {
        /// The listener.
        node: usize,
    },
}

impl Simulation {
    /// Tells an observer from now on; in place of the one before.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Something happened to a frame. It is copied, so that one of which nobody is told need not
    /// be in memory.
    #[inline(always)]
    pub(super) fn tell(&mut self, frame: &Frame, what: What) {
        if self.observer.is_some() {
            self.tell_observer(*frame, what);
        }
    }

    /// A frame is lost, and each listener that it was on its way to does not get it.
    #[cold]
    pub(super) fn tell_loss(&mut self, frame: Frame, by: LostBy) {
        self.tell(&frame, What::Lost { by });
        for node in self.behind(&frame) {
            self.tell(&frame, What::Missed { node });
        }
    }

    #[cold]
    fn tell_observer(&mut self, frame: Frame, what: What) {
        // On its last link it is still at the last port, but for copies that go to listeners.
        let last = u8::try_from(self.routes.hops_of(frame.stream) - 1).unwrap_or(u8::MAX);
        let seen = Seen {
            at_ps: self.now,
            created_ps: frame.created,
            stream: slot(frame.stream),
            number: frame.number,
            hop: self.routes.place(&frame).min(last),
            wire_bytes: frame.tags.wire_bytes(),
            what,
        };
        if let Some(observer) = &mut self.observer {
            observer.seen(&seen);
        }
    }
}

/// The port of a number.
pub(super) fn place(port: u32) -> PortIndex {
    PortIndex(slot(port))
}
