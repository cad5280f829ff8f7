// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling groups in force: a tree of groups as it was planned, the threads that it speaks of
//! with the priorities, CPUs, reservations and windows that it gives them, and what they had
//! before, in the journal.
//!
//! A member is followed through fork, exec and exit by a control group of its own; where there are
//! none, what it starts is looked for, and windows are kept by signals.
//!
//! Not here: what Linux makes of a tree (`timewire_tsn::groups`), who asks for it
//! (`timewire-runner`).

mod cgroup;
mod hold;
mod model;
mod release;
mod resolve;
mod status;
mod steps;
mod supervisor;

pub use cgroup::MemberCgroup;
pub(crate) use hold::{Given, Held};
pub use model::{Model, facts};
pub(crate) use release::KIND;
pub use release::Release;
pub use status::{MemberStatus, ModelStatus, RowStatus, STATUS_SCHEMA};
pub use steps::Step;
pub use supervisor::{Kept, TOLERANCE};

use std::time::Duration;

/// How often the owner of a model calls [`Model::follow`].
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);
