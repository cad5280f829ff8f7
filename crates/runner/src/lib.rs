// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment from a file to its verdict: stations and programs brought up and run, measured,
//! traced, judged, and kept in a run directory.
//!
//! Not here: what runs on one station (`timewire-datapath`), the laboratory's links
//! (`timewire-lab`), drawing (`timewire-report`), the command line (`timewire-cli`).

pub mod doctor;
mod error;
pub mod experiment;
pub mod host_part;
pub mod kernels;
pub mod markers;
pub mod measure;
pub mod network;
mod own_program;
pub mod program;
pub mod reports;
pub mod rundir;
pub mod simulation;
pub mod study;
pub mod trace;

pub use error::RunnerError;
