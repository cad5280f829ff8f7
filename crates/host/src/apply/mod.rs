// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changing the settings of a host as one transaction that can always be taken back: what is there,
//! what is wished, the steps between them, the record of them, and the way back.
//!
//! Not here: what is wished of an interface's transmit side (`timewire_sched::desired`), processes
//! that run as long as something is wanted (receive classes, groups, clock daemons).

mod change;
mod command;
pub(crate) mod foreign;
pub mod keeper;
mod plan;
mod read;
mod real;
pub mod record;
mod setting;
mod transaction;
mod tree;
mod wish;

pub use change::Goal;
pub use command::Command;
pub use plan::{Goals, Plan, Reason, Refusal, Step, diff};
pub use real::RealHost;
pub(crate) use real::napi_threads;
pub use setting::{
    ALL, Difference, PollingFile, Setting, Settings, ThreadScheduling, ThreadState, ThreadsOf,
    Value,
};
pub use transaction::{
    Entry, Failure, Host, Log, Outcome, State, Story, Undone, apply, observe, plan, roll_back,
    scope, status, undo,
};
pub use tree::{QdiscNode, QdiscTree};
pub use wish::{Wished, wished};
