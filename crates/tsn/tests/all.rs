// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one program: a file here is a module of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod any_host;
mod any_text;
mod bad;
mod classify;
#[path = "../../base/tests/support/counting.rs"]
mod counting;
mod desired;
mod from_streams;
mod guard;
mod hosts;
mod machine;
mod no_alloc;
mod port;
mod properties;
mod qdisc;
mod shipped;
mod ten_million;
