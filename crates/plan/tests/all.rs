// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one program: a file here is a module of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agree;
mod any_start;
mod checked;
mod configured;
mod devices;
mod file;
mod keep;
mod keep_wrong;
mod no_bound;
mod packings;
mod plans;
mod rendered;
mod reserve;
mod tsnbench;
mod tsnkit;
mod tsnkit_result;
mod uni;
mod unread;
