// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machines of an experiment on many stations: one controller, an agent on each station, phases
//! with barriers, over a network that loses things and with machines that die.
//!
//! Both sides are machines that are told what happened and what time it is, and answer with actions
//! in the order in which they are to be done. What must not be forgotten is an action of its own,
//! `Append`, and comes before the action that it is about: a side that is killed between two
//! actions starts again from its journal.
//!
//! * [`Plan`]: stations, and what each does in which phase.
//! * [`Controller`]: leads the stations through the phases.
//! * [`Agent`]: does what one station is asked to, once, and restores its host in every case.
//! * [`message`]: what they say to each other.
//! * [`journal`]: how their entries are written and read again.
//!
//! Not here: links (`links`), files, programs and the host (`station`).
#![forbid(unsafe_code)]

pub mod agent;
mod backoff;
pub mod base64;
mod clock;
pub mod controller;
pub mod journal;
pub mod message;
mod name;
mod outcome;
mod plan;
mod task;

pub use agent::Agent;
pub use backoff::Backoff;
pub use clock::{ClockBound, Now};
pub use controller::Controller;
pub use name::{ExperimentId, NameError, RecordName, WordName};
pub use outcome::{CommandOutcome, FailureKind, Record, Restored, Why};
pub use plan::{MAX_TASK, Part, Phase, Plan, PlanError, Retry, StationPlan, Step, Timing};
pub use task::{Program, Task};
