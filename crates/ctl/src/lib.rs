// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is put together from the parts below: a station that runs its MAC and takes requests, an
//! experiment that runs stations and programs, and the run directory that keeps what came of it.
//!
//! Not here: the frames (`timewire-path`), the laboratory's links (`timewire-lab`), drawing
//! (`timewire-report`), the command line (`timewire-cli`).

pub mod control;
mod error;
pub mod experiment;
pub mod program;
pub mod rundir;
pub mod station;

pub use error::CtlError;
