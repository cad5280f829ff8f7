// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is put together from the parts below: a station that runs its MAC and takes requests, an
//! experiment that runs stations and programs, and the run directory that keeps what came of it.
//!
//! Not here: the frames (`timewire-path`), the laboratory's links (`timewire-lab`), drawing
//! (`timewire-report`), the command line (`timewire-cli`).

pub mod agent;
pub mod avtp;
pub mod campaign;
pub mod clock;
pub mod conductor;
pub mod control;
pub mod doctor;
pub mod drops;
mod error;
pub mod experiment;
pub mod groups;
pub mod markers;
pub mod measure;
pub mod program;
pub mod receive;
pub mod rundir;
mod stamping;
pub mod station;
pub mod study;
mod sync;
pub mod top;
pub mod trace;
pub mod traffic;

pub use error::CtlError;
pub use stamping::CardStamping;
pub use sync::ptp_offset;
