// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine is told once, when it is built.

use timewire_base::{BitsPerSecond, Span};

use crate::MacError;

/// The fixed part of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rate of the link.
    pub rate: BitsPerSecond,
    /// Longest time between the `now` of the call that released a frame and the frame's first bit
    /// on an idle line: the caller's own delay and the device's. Added to every frame's duration
    /// before the fit check, so that a frame that starts this late still ends inside its window.
    pub margin: Span,
    /// Line time that may be handed to the device in advance. With zero, one frame at a time: the
    /// next one is released when the line has finished the one before.
    ///
    /// More keeps the line busy in spite of late calls. What is handed over cannot be taken back
    /// when the clock steps or a more urgent frame arrives.
    pub ahead: Span,
    /// When the windows bind best-effort frames.
    pub mode: Mode,
    /// Line time of every window kept for best-effort frames, the default queue, while any wait:
    /// prioritised frames take at most the rest.
    ///
    /// Two things follow from frames having a length. The first prioritised frame of a window may
    /// always use the whole window, or a share too large would shut prioritised frames out for
    /// ever. And the share holds prioritised frames back only while the waiting best-effort frame
    /// fits what remains of the window, so a share shorter than that frame may serve nobody.
    pub best_effort_share: Span,
    /// **Units**: frames, per queue. All queues together are reserved when the machine is built.
    pub queue_capacity: usize,
}

/// When the windows bind best-effort frames. Prioritised frames leave in windows only, in both
/// modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Always.
    Tdm,
    /// Only while real-time traffic exists on the segment. Otherwise best-effort frames leave at
    /// any time, also while the clock is not synchronised.
    ///
    /// Real-time traffic exists for `idle_after` since a prioritised frame arrived here or the
    /// caller saw one of another station, and as long as a prioritised frame waits here that could
    /// leave. A machine that has just started listens for `idle_after` first.
    Hybrid {
        /// How long after the last real-time frame the segment counts as idle.
        idle_after: Span,
    },
}

impl Config {
    /// Longest time accepted anywhere in a configuration; keeps all sums within 64 bits.
    pub const MAX_SPAN: Span = Span::from_secs(3_600);
    /// Most frames per queue.
    pub const MAX_QUEUE_CAPACITY: usize = 65_536;

    /// **Errors**: a negative or too long time, a capacity of zero or too many frames.
    pub(crate) fn check(&self) -> Result<(), MacError> {
        let idle_after = match self.mode {
            Mode::Tdm => Span::ZERO,
            Mode::Hybrid { idle_after } => idle_after,
        };
        let spans = [
            ("a margin", self.margin),
            ("an advance", self.ahead),
            ("a best-effort share", self.best_effort_share),
            ("an idle time", idle_after),
        ];
        for (what, span) in spans {
            if span.is_negative() || span > Self::MAX_SPAN {
                return Err(MacError::Span { what, span, max: Self::MAX_SPAN });
            }
        }
        if !(1..=Self::MAX_QUEUE_CAPACITY).contains(&self.queue_capacity) {
            return Err(MacError::QueueCapacity {
                frames: self.queue_capacity,
                max: Self::MAX_QUEUE_CAPACITY,
            });
        }
        Ok(())
    }
}
