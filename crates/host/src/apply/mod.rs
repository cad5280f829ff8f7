// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changing the settings of a host as one transaction that can always be taken back: what is there,
//! what is desired, the steps between them, and the way back.
//!
//! Not here: what is desired of an interface's transmit side (`timewire_tsn::desired`), processes
//! that run as long as something is wanted (receive classes, groups, clock daemons).

pub mod applied;
mod change;
mod command;
mod desired;
pub(crate) mod foreign;
mod message;
mod plan;
mod read;
mod real;
mod setting;
pub mod store;
mod transaction;
mod tree;

pub use applied::Transaction;
pub use change::Goal;
pub use command::Command;
pub use desired::{DesiredState, wanted};
pub use plan::{Goals, Plan, Reason, Refusal, Step, diff};
pub use real::RealHost;
pub(crate) use real::napi_threads;
pub use setting::{
    ALL, Difference, PollingFile, Setting, Settings, ThreadScheduling, ThreadState, ThreadsOf,
    Value,
};
pub use transaction::{
    Entry, Failure, Host, Log, State, TransactionOutcome, UndoLog, Undone, apply, observe, plan,
    roll_back, scope, status, undo,
};
pub use tree::{QdiscNode, QdiscTree};
