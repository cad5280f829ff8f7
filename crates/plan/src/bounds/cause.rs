// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a queue has no bound, and which queue is to blame.

use std::sync::Arc;

use timewire_base::Span;

use crate::model::{LinkId, Problem};

/// A traffic class of the port that sends on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortClass {
    /// The port that sends on this link.
    pub link: LinkId,
    /// The traffic class.
    pub class: u8,
}

/// Why there is no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoBound {
    /// The first queue of the stream that has none.
    pub first: PortClass,
    /// The queue with the cause: the same, or one that the first depends on.
    pub origin: PortClass,
    /// What is wrong there.
    pub cause: Arc<Cause>,
}

/// What leaves a queue without bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// In the long run more comes than is left for the class.
    Overload {
        /// What comes. **Units**: bit/s, rounded up.
        arriving_bps: u64,
        /// What is left. **Units**: bit/s, rounded down.
        left_bps: u64,
        /// The link's rate. **Units**: bit/s.
        link_bps: u64,
        /// What the time takes in which the gate is shut, or too near to it for the longest frame.
        /// **Units**: bit/s, rounded up.
        gates_bps: u64,
        /// What higher classes send. **Units**: bit/s, rounded up.
        higher_bps: u64,
        /// What the class reserves by credit. **Units**: bit/s.
        reserved_bps: Option<u64>,
    },
    /// The gate is never open.
    Shut,
    /// The longest frame fits no window of the gate.
    NoWindow {
        /// How long it takes.
        needed: Span,
        /// The longest window.
        longest: Span,
    },
    /// Each of these queues depends on the one before it, and the first on the last, and their
    /// delays grow with each other without end.
    Circular {
        /// In the order of dependence, the first of the file first.
        queues: Vec<PortClass>,
    },
    /// What waits, or for how long, is beyond 63 bits.
    TooLarge,
}

impl Cause {
    /// One word for machines.
    pub fn kind(&self) -> &'static str {
        match self {
            Cause::Overload { .. } => "overload",
            Cause::Shut => "shut",
            Cause::NoWindow { .. } => "no_window",
            Cause::Circular { .. } => "circular",
            Cause::TooLarge => "too_large",
        }
    }

    /// The cause as a sentence, with the names of the problem.
    pub fn describe(&self, problem: &Problem) -> String {
        match self {
            Cause::Overload { .. } => self.overload(),
            Cause::Shut => "the gate is never open".to_owned(),
            Cause::NoWindow { needed, longest } => format!(
                "the longest frame takes {needed} and fits no window: the longest of them is \
                 {longest}"
            ),
            Cause::Circular { queues } => circle(problem, queues),
            Cause::TooLarge => "what waits there is beyond 63 bits".to_owned(),
        }
    }

    fn overload(&self) -> String {
        let Cause::Overload {
            arriving_bps,
            left_bps,
            link_bps,
            gates_bps,
            higher_bps,
            reserved_bps,
        } = self
        else {
            return String::new();
        };
        let mut takes = Vec::new();
        if *gates_bps > 0 {
            takes.push(format!("the gate leaves out {}", mbit(*gates_bps, true)));
        }
        if *higher_bps > 0 {
            takes.push(format!("higher classes send {}", mbit(*higher_bps, true)));
        }
        if let Some(reserved) = reserved_bps {
            takes.push(format!("the class reserves {}", mbit(*reserved, false)));
        }
        let because = if takes.is_empty() { "" } else { ": " };
        format!(
            "{} come and {} of {} are left{because}{}",
            mbit(*arriving_bps, true),
            mbit(*left_bps, false),
            mbit(*link_bps, false),
            takes.join(", ")
        )
    }
}

/// How many queues of a circle are named.
const NAMED: usize = 8;

fn circle(problem: &Problem, queues: &[PortClass]) -> String {
    let one = queues.iter().all(|queue| queue.class == queues[0].class);
    let name = |queue: &PortClass| match one {
        true => problem.network().link(queue.link).name.clone(),
        false => queue.describe(problem),
    };
    let mut names: Vec<String> = queues.iter().take(NAMED).map(name).collect();
    if queues.len() > NAMED {
        names.push(format!("{} more", queues.len() - NAMED));
    }
    let first = queues.first().map_or_else(String::new, name);
    let names = names.join(", ");
    format!(
        "circular dependency: the delays of {names}, and {first} again, grow with each other \
         without end"
    )
}

/// With three digits after the point, rounded up or down.
fn mbit(bps: u64, up: bool) -> String {
    let kbit = if up { bps.div_ceil(1_000) } else { bps / 1_000 };
    match kbit % 1_000 {
        0 => format!("{} Mbit/s", kbit / 1_000),
        rest => format!("{}.{rest:03} Mbit/s", kbit / 1_000),
    }
}

impl PortClass {
    /// The names of port and class.
    pub fn describe(&self, problem: &Problem) -> String {
        format!("{} class {}", problem.network().link(self.link).name, self.class)
    }
}
