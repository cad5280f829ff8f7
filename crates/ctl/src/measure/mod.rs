// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements of this host, each an experiment of its own: made ready, run, taken back.
//!
//! Not here: what a user types (`timewire-cli`), the data path itself (`timewire-path`).

pub mod bench;
pub mod card_clock;
mod error;
mod exchange;
pub mod launch;
pub mod path;
pub mod receive;

pub use error::MeasureError;
