// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls Timewire makes, one function each, with owned descriptors and `io::Result`.
//! All unsafe code of the data path lives here.
//!
//! Linux only. Functions say which capability they need.
//!
//! Not here: eBPF loading (`timewire-bpf`), what the calls are put together to
//! (`timewire-path`, `timewire-host`).

pub mod clock;
pub mod error_queue;
pub mod event;
pub mod machine;
mod memory;
pub mod namespace;
pub mod netlink;
pub mod packet;
mod randomness;
pub mod registers;
pub mod scheduler;
mod socket;
pub mod talk;
pub mod udp;
pub mod vhost;
pub mod xsk;

pub use memory::{Frame, FrameMemory};
pub use randomness::Randomness;
pub use socket::{Interfaces, interface_index};
