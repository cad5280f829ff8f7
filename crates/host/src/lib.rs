// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changing a host so that it never hurts it. Every change is recorded as a value that undoes it,
//! on disk, before it is made (`journal`); a watchdog process carries the open ones out when the
//! process that made the changes dies, and the next start does so when even the watchdog was killed
//! (`recovery`).
//!
//! Not here: the system calls (`timewire-sys`), what is set up for a laboratory (`timewire-lab`).

pub mod apply;
pub mod clock;
pub mod doctor;
pub mod group;
pub mod groups;
pub mod journal;
pub mod observed;
pub mod pins;
pub mod snapshot;
pub mod timestamping;
pub mod tool;

mod error;
mod expiry;
mod recovery;
mod scheduling;
mod undo;

pub use error::HostError;
pub use expiry::{Expiry, Uptime};
pub use journal::watchdog;
#[cfg(fuzzing)]
pub use recovery::read_log;
pub use recovery::{finish_of_dead, recover, watchdog_main};
pub use scheduling::SavedThread;
pub use undo::Undo;
