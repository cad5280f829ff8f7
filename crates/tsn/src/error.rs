// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this crate refuses to build.

use thiserror::Error;
use timewire_base::{Priority, Span};

/// A machine, a set of queues or a list of port rules that cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MacError {
    /// A time of the configuration is negative or absurdly long.
    #[error("{what} of {span} cannot be: it takes 0ns to {max}")]
    Span {
        /// Which time.
        what: &'static str,
        /// What was given.
        span: Span,
        /// The bound.
        max: Span,
    },
    /// A guard that would open without a sample.
    #[error("no good sample cannot be enough to open: it takes 1 or more")]
    NoSamples,
    /// The queues would hold no frame, or more than memory should.
    #[error("queues of {frames} frames cannot be: a queue takes 1 to {max} frames")]
    QueueCapacity {
        /// What was given.
        frames: usize,
        /// The bound.
        max: usize,
    },
    /// Two queues of the same priority.
    #[error("priority {} is given to two queues: each queue needs its own", .priority.get())]
    DuplicatePriority {
        /// The priority given twice.
        priority: Priority,
    },
    /// One port with two rules.
    #[error(
        "port {port} has two rules, priority {} and priority {}: a port takes one",
        .first.get(), .second.get()
    )]
    DuplicatePort {
        /// The port given twice.
        port: u16,
        /// Its priority in the earlier rule.
        first: Priority,
        /// Its priority in the later rule.
        second: Priority,
    },
    /// More rules than a list takes.
    #[error("{count} port rules are more than the {max} that a list takes")]
    TooManyRules {
        /// What was given.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// More queues than there are priorities.
    #[error(
        "{queues} queues cannot be: there are {max} priorities, and the default queue is extra"
    )]
    TooManyQueues {
        /// What was given.
        queues: usize,
        /// The bound.
        max: usize,
    },
    /// The rules name more priorities than there are queues.
    #[error(
        "the number of queues is {queues}, but the rules name {priorities} priorities: \
         say {priorities}"
    )]
    TooFewQueues {
        /// How many queues were asked for, the default queue not counted.
        queues: usize,
        /// How many different priorities the rules name.
        priorities: usize,
    },
}
