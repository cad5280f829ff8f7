// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames as they were captured: their times and lengths.

use std::fmt;

use timewire_base::{FrameLen, Span};

use super::describe::Network;

/// Frames to send again: so long after the first, and how long each is. Ten bytes of memory each.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Replay {
    /// **Units**: nanoseconds after the start.
    at_ns: Vec<u64>,
    /// Without check sequence. **Units**: bytes.
    lengths: Vec<u16>,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replay of {} frames", self.lengths.len())
    }
}

impl Replay {
    /// Most frames: 160 MiB of memory.
    pub const MAX_FRAMES: usize = 1 << 24;

    /// Adds a frame. One that comes later than any simulation lasts is left out, and one before
    /// the start or before the last counts as at the same time.
    ///
    /// **Errors**: there are [`Replay::MAX_FRAMES`] already.
    pub fn push(&mut self, at: Span, length: FrameLen) -> Result<(), FullReplay> {
        if at > Network::LONGEST {
            return Ok(());
        }
        if self.lengths.len() >= Self::MAX_FRAMES {
            return Err(FullReplay);
        }
        let at_ns = u64::try_from(at.as_ns()).unwrap_or(0);
        self.at_ns.push(at_ns.max(self.at_ns.last().copied().unwrap_or(0)));
        self.lengths.push(u16::try_from(length.get()).unwrap_or(u16::MAX));
        Ok(())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lengths.len()
    }

    /// The longest frame; `None` without any.
    pub fn longest(&self) -> Option<FrameLen> {
        self.lengths.iter().max().and_then(|length| FrameLen::new(u32::from(*length)).ok())
    }

    /// When each is due after the start, and its length without check sequence. **Units**: bytes.
    pub fn each(&self) -> impl Iterator<Item = (Span, u16)> {
        let due = self.at_ns.iter().map(|ns| Span::from_ns(i64::try_from(*ns).unwrap_or(i64::MAX)));
        due.zip(self.lengths.iter().copied())
    }

    /// When a frame is due. **Units**: picoseconds after the start.
    pub(super) fn at_ps(&self, number: u32) -> Option<i64> {
        let at_ns = self.at_ns.get(usize::try_from(number).ok()?)?;
        i64::try_from(*at_ns).ok()?.checked_mul(1_000)
    }

    /// The length of a frame on the link, preamble and gap included. **Units**: bytes.
    pub(super) fn wire_bytes(&self, number: u32) -> Option<u32> {
        let length = self.lengths.get(usize::try_from(number).ok()?)?;
        FrameLen::new(u32::from(*length)).ok().map(|length| length.wire_len().get())
    }
}

/// A replay takes no more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a replay takes {} frames at most", Replay::MAX_FRAMES)]
pub struct FullReplay;
