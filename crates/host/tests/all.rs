// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one program: a file here is a module of it.
//! Tests whose executable is also what they start have a main of their own (`Cargo.toml`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod apply_model;
mod clock_config;
mod doctor;
mod doctor_station;
mod management;
mod model;
mod snapshot;
