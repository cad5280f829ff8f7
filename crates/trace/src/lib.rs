// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured and what it came to: the record format, statistics, findings, the summary.
//!
//! Bytes and values go in, bytes and values come out: the stations' records ([`record`]) become one
//! [`summary::CaseSummary`] per case ([`analyse`]), the limits of the scenario become findings and
//! a verdict ([`judge`]). The events of captures ([`event`]) become the ways of packets
//! ([`journey`]), and those of a run's messages its figures ([`processing`]). While a stream runs,
//! [`stream`] sums it up, [`stamps`] says which message a transmit stamp belongs to, and [`pcapng`]
//! writes frames for other programs to read, and [`pcap`] reads those of others.
//!
//! Not here: taking stamps (`timewire-path`), drawing (`timewire-report`).
#![forbid(unsafe_code)]

pub mod align;
pub mod analyse;
pub mod capture;
pub mod course;
pub mod event;
pub mod filter;
pub mod gate;
pub mod identity;
pub mod journey;
pub mod judge;
pub mod kernel;
pub mod marker;
pub mod pcap;
pub mod pcapng;
pub mod processing;
pub mod record;
pub mod stamps;
pub mod stats;
pub mod stream;
pub mod summary;
pub mod sync;
pub mod table;
