// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one program: a file here is a module of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../base/tests/support/alone.rs"]
mod alone;
#[path = "../../base/tests/support/counting.rs"]
mod counting;
mod examples;
mod header;
mod library;
mod marks;
mod misuse;
mod no_alloc;
mod talker;
