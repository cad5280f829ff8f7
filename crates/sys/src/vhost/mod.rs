// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a device in user space needs to serve a kernel over vhost-user: messages with descriptors,
//! the kernel's memory, and the rings in it.
//!
//! Not here: the vhost-user messages themselves and what a device does (`timewire-lab`).

mod memory;
mod message;
mod ring;

pub use memory::{GuestMemory, NoSuchMemory};
pub use message::{receive_with_descriptors, send_with_descriptors, which_readable};
pub use ring::{Chain, RingError, SplitRing};
