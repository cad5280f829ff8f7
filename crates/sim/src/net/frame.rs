// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames as they are on their way, and where those are kept that no port has.

use timewire_tsn::port::CLASSES;

use super::route::index;

/// A frame on its way, with all that a hop needs to know of it and of its stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// **Units**: picoseconds since the start.
    pub created: u64,
    pub stream: u32,
    pub number: u32,
    /// The place among the ways' hops of the port that it comes to, waits in or is sent by; behind
    /// the last one when it is on the last link. Of a copy for one of several listeners, its place
    /// in their tree, counted from where the stream's hops begin.
    pub at: u32,
    pub tags: Tags,
}

/// What is known of a frame beside where it is: its length, its class, and what happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tags(u32);

impl Tags {
    const CLASS: u32 = 24;
    const BYTES: u32 = 23;
    /// A place of a [`Slab`] that has no frame, which would have a length.
    const NO_FRAME: Tags = Tags(0);
    pub const DAMAGED: Tags = Tags(1 << 27);
    /// Other streams wait for frames of its stream.
    pub const FOLLOWED: Tags = Tags(1 << 23);
    /// The link went down under it; it is counted already.
    pub const GONE: Tags = Tags(1 << 28);
    /// No port has sent it yet.
    pub const FRESH: Tags = Tags(1 << 29);
    /// It has a launch time, or is shaped by bridges.
    pub const TIMED: Tags = Tags(1 << 30);
    /// Its stream has several listeners: the way is a tree.
    pub const SEVERAL: Tags = Tags(1 << 31);

    pub fn new(class: usize, wire_bytes: u32, is_timed: bool) -> Tags {
        let timed = if is_timed { Tags::TIMED } else { Tags(0) };
        debug_assert!(class < CLASSES && wire_bytes < 1 << Tags::BYTES);
        Tags(index(class) << Tags::CLASS | wire_bytes).with(Tags::FRESH).with(timed)
    }

    /// The same, of a frame of another length.
    pub fn of_length(self, wire_bytes: u32) -> Tags {
        debug_assert!(wire_bytes < 1 << Tags::BYTES);
        Tags(self.0 >> Tags::BYTES << Tags::BYTES | wire_bytes)
    }

    pub fn wire_bytes(self) -> u32 {
        self.0 & ((1 << Tags::BYTES) - 1)
    }

    pub fn class(self) -> usize {
        slot(self.0 >> Tags::CLASS & 7)
    }

    pub fn has(self, other: Tags) -> bool {
        self.0 & other.0 != 0
    }

    pub fn with(self, other: Tags) -> Tags {
        Tags(self.0 | other.0)
    }

    pub fn without(self, other: Tags) -> Tags {
        Tags(self.0 & !other.0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub frame: Frame,
    /// When its last bit arrives.
    pub arrives: u64,
}

// A frame in flight is as small as promised.
const _: () = assert!(size_of::<InFlight>() <= 32);

pub(super) const NO_PORT: u32 = u32::MAX;

/// Frames between two ports, and in applications.
#[derive(Debug, Default)]
pub(super) struct Slab {
    pub frames: Vec<InFlight>,
    free: Vec<u32>,
}

impl Slab {
    pub fn put(&mut self, frame: Frame, arrives: u64) -> u32 {
        let flying = InFlight { frame, arrives };
        match self.free.pop() {
            Some(place) => {
                self.frames[slot(place)] = flying;
                place
            }
            None => {
                self.frames.push(flying);
                index(self.frames.len() - 1)
            }
        }
    }

    pub fn take(&mut self, place: u32) -> InFlight {
        let taken = self.frames[slot(place)];
        self.frames[slot(place)].frame.tags = Tags::NO_FRAME;
        self.free.push(place);
        taken
    }

    /// How many are in use.
    pub fn count(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// Those that are in use.
    pub fn live(&mut self) -> impl Iterator<Item = &mut InFlight> {
        self.frames.iter_mut().filter(|flying| flying.frame.tags != Tags::NO_FRAME)
    }
}

pub(super) fn slot(number: u32) -> usize {
    usize::try_from(number).expect("invariant: 32 bits fit a place")
}
