// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program of its own writes into the messages of its cycles, each just before it is sent.

use timewire_base::{Instant, Tai};

/// A message that is due, to be filled.
#[derive(Debug)]
pub struct Draft<'a> {
    /// The number of its stream.
    pub stream: u16,
    /// Its sequence number there.
    pub seq: u32,
    /// When it is due.
    pub due: Instant<Tai>,
    /// Its launch time.
    pub launch: Option<Instant<Tai>>,
    /// What is to be filled, all zero: the payload behind the header of
    /// [`Probe`](crate::probe::Probe), or all of it of a stream that is plain. Right in the memory
    /// that the kernel reads, with AF_XDP and the ring.
    pub payload: &'a mut [u8],
}

/// What is to become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// It is sent, unless filling took so long that its deadline has passed.
    Send,
    /// It is left out and counted.
    LeaveOut,
}
