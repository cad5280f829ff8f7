// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeping the clock on time and saying so: starts linuxptp as a desired configuration has it,
//! watches what it does, and closes the real-time slots of those that were named when the clock is
//! not on time.
//!
//! Not here: linuxptp's configuration and messages (`timewire_host::clock`), the decision
//! (`timewire_tsn::SyncGuard`).

mod closer;
mod discover;
mod look;
mod status;
mod supervisor;
mod unheard;
mod watcher;

pub use closer::Closes;
pub(crate) use discover::{Asked, ask_any};
pub use discover::{Ptp4l, ptp4l_instances};
pub use look::{Followed, Look, Looked, heard};
pub use status::{
    CLOCK_STATUS_SCHEMA, ClockStatus, CloseStatus, DaemonStatus, GuardStatus, find, running, stop,
};
pub use supervisor::{Start, plan_for, start};
pub(crate) use watcher::ppb;
pub use watcher::{Watch, watch};

use std::path::PathBuf;

use timewire_host::journal::runtime_dir;

use crate::DatapathError;

/// The directory of the daemons, sockets and state of that name.
///
/// **Errors**: a name that no file can have, or no runtime directory.
pub fn directory(name: &str) -> Result<PathBuf, DatapathError> {
    let fits = !name.is_empty()
        && name.len() <= 32
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.starts_with('.');
    if !fits {
        return Err(DatapathError::Invalid(format!(
            "`{name}` is no name of a clock: 1 to 32 of a-z, A-Z, 0-9, `-`, `_`, `.`, not starting \
             with a dot"
        )));
    }
    Ok(runtime_dir()?.join("clock").join(name))
}
