// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The distribution's kernel in an emulated machine whose time is counted in instructions: for what
//! User-Mode Linux lacks. It has BTF, kprobes and XDP in drivers, and NICs with a clock of
//! their own and hardware timestamps. It needs no root and no virtualisation by the processor.
//!
//! Not here: User-Mode Linux (`crate::uml`), which boots in a fraction of a second.

mod cpio;
mod decompress;
mod image;
pub mod init;
mod kernel;
mod machine;
mod modules;
pub mod nic;

pub use kernel::{About, Kernel};
pub use machine::{MAX_NICS, Machine};
