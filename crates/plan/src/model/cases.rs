// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proofs by cases: a few streams on links that they cannot avoid, and how far apart they start; or
//! all streams of a link, and in which of its bins they are.

use serde::{Deserialize, Serialize};
use timewire_base::Span;

use super::{LinkId, StreamId};

/// A stream on a part of its way that it cannot avoid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CasePart {
    /// Which stream.
    pub stream: StreamId,
    /// **Shape**: each link but the first begins at the bridge where an earlier one ends. The part
    /// starts when the stream's first frame starts on the first of them.
    pub links: Vec<LinkId>,
}

/// Two cases that leave nothing out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// A part, by its number from 1; 0 is the beginning of time.
    pub one: u32,
    /// Another.
    pub other: u32,
    /// In the first case the other starts at most so long after the one, in the second one later.
    pub most: Span,
}

/// What a proof that streams do not fit into bins says of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackingCase {
    /// Each bin in which a stream may be first is a case.
    Split {
        /// The stream, by its place in the proof, from 0.
        stream: u32,
    },
    /// The streams without a bin have more frames so long than there is room for, if each bin has
    /// as many of the shortest of these as it can.
    Count {
        /// Frames of this length or a greater one.
        least: Span,
    },
    /// The streams without a bin have more time than there is, if each bin is filled as far as
    /// lengths of different streams fill it.
    Sums,
}
