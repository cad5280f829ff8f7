// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured and what it came to: the record format, findings, the summary.
//!
//! Bytes and values go in, bytes and values come out: the stations' records ([`record`]) become one
//! [`summary::CaseSummary`] per case ([`analyse`]), the limits of the scenario become findings and
//! a verdict ([`judge`]). The events of captures ([`event`]) become the ways of packets
//! ([`packet_path`]), and those of a run's messages its figures ([`processing`]). While a stream
//! runs, [`stream`] sums it up, [`timestamps`] says which message a transmit timestamp belongs to,
//! and [`pcapng`] writes frames for other programs to read, and [`pcap`] reads those of others.
//!
//! Not here: statistics (`timewire-stats`), taking timestamps (`timewire-datapath`), drawing
//! (`timewire-report`).
#![forbid(unsafe_code)]

pub mod align;
pub mod analyse;
pub mod capture;
pub mod event;
pub mod filter;
pub mod gate;
pub mod identity;
pub mod judge;
pub mod kernel;
pub mod marker;
pub mod packet_path;
pub mod pcap;
pub mod pcapng;
pub mod processing;
pub mod record;
pub mod series;
pub mod stream;
pub mod summary;
pub mod sync;
pub mod table;
pub mod timestamps;
