// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The marks of a talker and a listener, for a trace. When nobody listens, each is a load.
//!
//! A mark has the tag that its message has in a trace, but for the upper 16 bits, which are of the
//! message's addresses; of those a talker and a listener do not know all.

use crate::talker::{StreamEvent, StreamEventKind};
use timewire_base::{Instant, Mono, Span, Tai};
use timewire_sys::clock;
use timewire_sys::marker::{Markers, Point, tag};

fn named(name: &str) -> (Markers, Point) {
    let markers = Markers::open_or_off();
    // A ring that is new has room for a point.
    let point = markers.point(name).unwrap_or(Point::NONE);
    (markers, point)
}

/// `talk.send`: when a message was written for the kernel; the value is how late that was, in ns.
#[derive(Debug)]
pub(crate) struct TalkMarks {
    markers: Markers,
    send: Point,
}

impl TalkMarks {
    /// For the calling thread.
    pub(crate) fn new() -> TalkMarks {
        let (markers, send) = named("talk.send");
        TalkMarks { markers, send }
    }

    /// Whether anybody wants them.
    #[inline]
    pub(super) fn are_listened_to(&self) -> bool {
        self.markers.is_listened_to()
    }

    pub(super) fn mark(&self, event: &StreamEvent) {
        let StreamEventKind::Sent { due, at, .. } = event.what else { return };
        if !self.markers.is_listened_to() {
            return;
        }
        // In this order: a pause between the two makes no mark later than its message.
        let now = clock::now::<Mono>();
        let ago = clock::now::<Tai>() - at;
        self.sent(event.stream, event.seq, now - ago, at - due);
    }

    /// The time at which a message is about to be written, where somebody wants to know it.
    pub(crate) fn before(&self) -> Option<Instant<Mono>> {
        self.markers.is_listened_to().then(clock::now)
    }

    /// A message of a stream was written then, so late.
    pub(crate) fn sent(&self, stream: u16, seq: u32, at: Instant<Mono>, late: Span) {
        let (at_ns, late) = (at.as_ns(), late.as_ns());
        if let (Ok(at_ns), Ok(late)) = (u64::try_from(at_ns), u64::try_from(late.max(0))) {
            self.markers.mark_at(self.send, at_ns, tag(stream.into(), seq), late);
        }
    }
}

/// `listen.received`: when a message was known for what it is; the value is its length in bytes.
#[derive(Debug)]
pub(super) struct ListenMarks {
    markers: Markers,
    received: Point,
}

impl ListenMarks {
    /// For the calling thread.
    pub(super) fn new() -> ListenMarks {
        let (markers, received) = named("listen.received");
        ListenMarks { markers, received }
    }

    #[inline]
    pub(super) fn mark(&self, stream: u16, seq: u32, length: u32) {
        if self.markers.is_listened_to() {
            self.write(stream, seq, length);
        }
    }

    #[cold]
    fn write(&self, stream: u16, seq: u32, length: u32) {
        self.markers.mark(self.received, tag(stream.into(), seq), length.into());
    }
}
