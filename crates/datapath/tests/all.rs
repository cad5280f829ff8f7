// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one program: a file here is a module of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../base/tests/support/alone.rs"]
mod alone;
mod avtp_memory;
#[path = "../../base/tests/support/counting.rs"]
mod counting;
mod data_path;
mod listen;
mod listen_queues;
mod mac_rests;
mod memory;
mod no_alloc;
mod no_alloc_listen;
#[path = "data_path/station.rs"]
mod station;
mod talk;
mod talk_no_alloc;
