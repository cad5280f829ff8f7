// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured and what it came to: the record format, statistics, findings, the summary.
//!
//! Not here: taking stamps (`timewire-path`), drawing (`timewire-report`).
#![forbid(unsafe_code)]

pub mod stats;
pub mod summary;
