// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending streams and listening to them, as `timewire talk` and `timewire listen` do: from what
//! was asked for to what is printed, scraped, captured and kept.
//!
//! Not here: the sending and receiving threads' inner loops (`talker`, `listen`), experiments that
//! compare cases (`measure`, `experiment`), the command line (`timewire-cli`).

mod capture;
pub mod clocks;
mod directory;
mod error;
pub mod expect;
pub mod listen;
pub(crate) mod marks;
pub mod metrics;
mod numbers;
pub mod others;
pub mod plan;
pub mod reflect;
pub mod talk;
mod thread;
pub mod told;
pub mod view;

pub use capture::CaptureOptions;
pub use error::TrafficError;
pub use thread::ThreadSpec;
