// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mark that the MAC's thread puts for each frame that it hands to the device. Where frames go
//! out by AF_XDP, no tracepoint of the kernel sees them: this stands in its place.

use std::io;

use timewire_base::{Instant, Mono};
use timewire_capture::identity::identify;
use timewire_sys::marker::{Markers, Point};
use timewire_sys::{Frame, FrameMemory, clock};

/// Point: a MAC hands a frame to the device. Tag: of the frame; value: its bytes.
pub const TRANSMIT: &str = "mac.transmit";

/// Bytes of a frame that tell which packet it is.
const LOOKED_AT: usize = 128;

/// The marks of one MAC's thread; a load for each frame when nobody listens.
pub(crate) struct FrameMarks {
    markers: Markers,
    transmit: Point,
}

impl FrameMarks {
    /// For the calling thread. Without memory for a ring there are no marks.
    pub(crate) fn open() -> io::Result<FrameMarks> {
        let markers = Markers::open_or_off();
        let transmit = markers.point(TRANSMIT)?;
        Ok(FrameMarks { markers, transmit })
    }

    /// The time at which a frame is handed over, where somebody wants to know it.
    pub(crate) fn before(&self) -> Option<Instant<Mono>> {
        self.markers.is_listened_to().then(clock::now)
    }

    /// Tells of a frame that was handed over at that time. After it has gone, so that it does not
    /// go later; its buffer still has its bytes.
    pub(crate) fn sent(&self, at: Option<Instant<Mono>>, memory: &FrameMemory, frame: Frame) {
        let Some(at) = at else { return };
        let mut bytes = [0; LOOKED_AT];
        let length = memory.copy_prefix(frame, &mut bytes);
        let tag = identify(&bytes[..length], None).map_or(0, |identity| identity.tag);
        let at_ns = u64::try_from(at.as_ns()).unwrap_or(0);
        self.markers.mark_at(self.transmit, at_ns, tag, frame.len().into());
    }
}
