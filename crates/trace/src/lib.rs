// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured and what it came to: the record format, statistics, findings, the summary.
//!
//! Bytes and values go in, bytes and values come out: the stations' records ([`record`]) become one
//! [`summary::CaseSummary`] per case ([`analyse`]), the limits of the scenario become findings and
//! a verdict ([`judge`]).
//!
//! Not here: taking stamps (`timewire-path`), drawing (`timewire-report`).
#![forbid(unsafe_code)]

pub mod analyse;
pub mod judge;
pub mod record;
pub mod stats;
pub mod summary;
