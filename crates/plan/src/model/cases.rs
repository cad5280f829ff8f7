// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A proof by cases: a few streams on links that they cannot avoid, and how far apart they start.

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
