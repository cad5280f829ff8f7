// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changing a host so that it never hurts it. Every change is recorded as a value that undoes it,
//! on disk, before it is made; a guardian process carries the open ones out when the process that
//! made the changes dies, and the next start does so when even the guardian was killed.
//!
//! Not here: the system calls (`timewire-sys`), what is set up for a laboratory (`timewire-lab`).

pub mod apply;
pub mod clock;
pub mod doctor;
pub mod group;
pub mod groups;
pub mod guardian;
pub mod journal;
pub mod observed;
pub mod pins;
pub mod snapshot;
pub mod stamping;
pub mod tool;

mod error;
mod scheduling;
mod undo;

pub use error::HostError;
pub use scheduling::SavedThread;
pub use undo::Undo;
