// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real Linux kernel as a program of the host (User-Mode Linux), in virtual time: it has every
//! queueing discipline for time-sensitive networks, and its timing is exact and repeatable. It
//! needs no root, no module and no hardware.
//!
//! Not here: a kernel with hardware (`qemu`), stations on the host's own kernel (`crate::Lab`).

pub mod config;
mod kernel;
pub(crate) mod machine;
mod prebuilt;
mod registers;
pub mod segment;

pub use kernel::{About, BUILD_TOOLS, DEFAULT_SERIES, Kernel, Origin};
pub use machine::{Connection, Finished, Machine, Running, Time};
