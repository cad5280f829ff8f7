// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which priority a frame has, by the UDP or TCP port it goes to or comes from.
//!
//! It allocates nothing and fails open: a frame that is a fragment, cut short, deeper nested or in
//! any way doubtful has no priority and goes to the default queue.

use timewire_base::wire::{Frame, Ports};
use timewire_base::{Port, Priority};

use crate::{MacError, QueueSet};

/// A list of ports and their priorities: that of transmission (`send`) or of reception (`recv`).
///
/// Several ports may share a priority, and with it a queue.
///
/// **Shape**: sorted by port, each port once, at most [`PortRules::MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortRules {
    /// Apart from the priorities, so that a look-up stays within two cache lines.
    ports: Vec<u16>,
    priorities: Vec<Priority>,
}

impl PortRules {
    /// Most rules in a list.
    pub const MAX: usize = 64;

    /// Checks a list in any order. `queues` is how many prioritised queues the caller asks for, the
    /// default queue not counted; there must be one for each priority that the rules name. More are
    /// accepted, and not made, since no frame could ever come to them. No queues and no rules put
    /// everything into the default queue.
    ///
    /// **Errors**: a port listed twice, even with the same priority; too many rules; more than 32
    /// queues; fewer queues than priorities named.
    pub fn new(queues: usize, rules: &[(Port, Priority)]) -> Result<PortRules, MacError> {
        if rules.len() > Self::MAX {
            return Err(MacError::TooManyRules { count: rules.len(), max: Self::MAX });
        }
        let max = usize::from(Priority::MAX);
        if queues > max {
            return Err(MacError::TooManyQueues { queues, max });
        }
        let mut sorted = rules.to_vec();
        sorted.sort_by_key(|&(port, _)| port); // stable: of two rules the earlier stays first
        for pair in sorted.windows(2) {
            let ((port, first), (other, second)) = (pair[0], pair[1]);
            if port == other {
                return Err(MacError::DuplicatePort { port: port.get(), first, second });
            }
        }
        let rules = PortRules {
            ports: sorted.iter().map(|&(port, _)| port.get()).collect(),
            priorities: sorted.iter().map(|&(_, priority)| priority).collect(),
        };
        let priorities = rules.queue_set().len();
        if queues < priorities {
            return Err(MacError::TooFewQueues { queues, priorities });
        }
        Ok(rules)
    }

    /// One queue for each priority that the rules name.
    pub fn queue_set(&self) -> QueueSet {
        let mut set = QueueSet::default();
        for &priority in &self.priorities {
            set.insert(priority);
        }
        set
    }

    /// The rules, sorted by port.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = (u16, Priority)> {
        self.ports.iter().copied().zip(self.priorities.iter().copied())
    }

    /// The priority of a frame as Linux sees it (from the destination address, without the check
    /// sequence): that of the port it goes to, else that of the port it comes from, so that the
    /// answers of a server count as well. `None` for everything else: the default queue.
    pub fn classify(&self, frame: &[u8]) -> Option<Priority> {
        self.classify_captured(frame, frame.len())
    }

    /// As [`PortRules::classify`], of a frame of `length` bytes of which only the first are at
    /// hand.
    pub fn classify_captured(&self, captured: &[u8], length: usize) -> Option<Priority> {
        if self.ports.is_empty() {
            return None;
        }
        let Ports { source, destination, .. } = Frame::parse(captured)?.ports(length)?;
        self.priority_of(destination).or_else(|| self.priority_of(source))
    }

    fn priority_of(&self, port: u16) -> Option<Priority> {
        let index = self.ports.binary_search(&port).ok()?;
        self.priorities.get(index).copied()
    }
}
