// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements of this host, each an experiment of its own: made ready, run, taken back.
//!
//! Not here: what a user types (`timewire-cli`), the data path itself (`timewire-datapath`).

pub mod bench;
mod exchange;
pub mod launch;
pub mod nic_clock;
pub mod path;
pub mod receive;
mod run;
mod text;

pub use run::{EndpointSetup, Measurement, Report, Session, run};
