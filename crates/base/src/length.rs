// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The three lengths of one frame. Rate arithmetic takes `WireLen` only, because the link is busy
//! for the preamble, the check sequence and the gap as well.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Ethernet header without a tag: two addresses and the EtherType.
const HEADER: u32 = 14;
/// Frame check sequence.
const FCS: u32 = 4;
/// Preamble, start delimiter and the smallest gap between frames.
const PREAMBLE_AND_GAP: u32 = 8 + 12;
/// Smallest frame without the check sequence; shorter ones are padded on the wire.
const MIN_FRAME: u32 = 60;

/// A length that no frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LengthError {
    /// The frame is longer than any this type can carry.
    #[error("{bytes} bytes is longer than the longest frame ({max} bytes)")]
    TooLong {
        /// What was asked for.
        bytes: u64,
        /// The bound.
        max: u32,
    },
}

/// The payload of a frame (MSDU), as `queueMaxSDU` of IEEE 802.1Q counts it.
///
/// **Units**: bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SduLen(u32);

/// A frame as Linux sees it: header and payload, without the check sequence.
///
/// **Units**: bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FrameLen(u32);

/// A frame as the link carries it: padded, with check sequence, preamble, start delimiter and gap.
///
/// **Units**: bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireLen(u32);

/// Longest length accepted: a 64 KiB super-frame is no frame of a link.
const MAX: u32 = 65_535;

impl SduLen {
    /// A payload of so many bytes.
    ///
    /// **Errors**: longer than 65 535 bytes.
    pub const fn new(bytes: u32) -> Result<SduLen, LengthError> {
        if bytes > MAX {
            return Err(LengthError::TooLong { bytes: bytes as u64, max: MAX });
        }
        Ok(SduLen(bytes))
    }

    /// The untagged frame that carries this payload.
    pub const fn frame_len(self) -> FrameLen {
        FrameLen(self.0 + HEADER)
    }

    /// **Units**: bytes.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl FrameLen {
    /// A frame of so many bytes without its check sequence.
    ///
    /// **Errors**: longer than 65 535 bytes.
    pub const fn new(bytes: u32) -> Result<FrameLen, LengthError> {
        if bytes > MAX {
            return Err(LengthError::TooLong { bytes: bytes as u64, max: MAX });
        }
        Ok(FrameLen(bytes))
    }

    /// What the link is busy with: at least 64 bytes of frame, plus preamble and gap.
    pub const fn wire_len(self) -> WireLen {
        let frame = if self.0 < MIN_FRAME { MIN_FRAME } else { self.0 };
        WireLen(frame + FCS + PREAMBLE_AND_GAP)
    }

    /// **Units**: bytes.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl WireLen {
    /// **Units**: bytes.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for FrameLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_lengths_of_the_smallest_and_the_largest_frame() {
        // 64 B on the wire plus 20 B of preamble and gap; 1518 B plus 20 B.
        assert_eq!(FrameLen::new(42).unwrap().wire_len().get(), 84);
        assert_eq!(FrameLen::new(60).unwrap().wire_len().get(), 84);
        assert_eq!(SduLen::new(1500).unwrap().frame_len().wire_len().get(), 1538);
        assert!(FrameLen::new(70_000).is_err());
    }
}
