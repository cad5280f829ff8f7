// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queues in circles of dependence, and those behind them: bounds that fit each other.
//!
//! Bursts are taken as they leave their talkers, and all delays as nothing; then each queue is
//! bounded again and again with what the others came to, until none grows. All steps only grow with
//! what they are given, and every delay that is no less than what follows from all delays together
//! holds, however they were found; where they grow without end, there is none to be had this way.
//!
//! **Source**: Thomas, Le Boudec, Mifdaoui: On Cyclic Dependencies and Regulators in Time-Sensitive
//! Networks (2019), FP-TFA; Plassart, Le Boudec: Equivalent Versions of Total Flow Analysis (2021).

use std::cmp::Reverse;

use super::network::{Work, port_class};
use super::{BoundsError, Cause};

/// How often each queue is bounded at most.
const ROUNDS: u32 = 400;
/// Delays that are longer grow without end. **Units**: ns.
const LONGEST: i64 = 10_000_000_000;

impl Work<'_> {
    /// Bounds the used queues that are not done; whether they came to rest. Where they did not,
    /// they are as if nobody had looked at them.
    ///
    /// **Errors**: settings that have no bound.
    pub(super) fn settle(&mut self) -> Result<bool, BoundsError> {
        let open = |queue: &usize| !self.queues[*queue].is_empty() && !self.done[*queue];
        let mut open: Vec<usize> = (0..self.queues.len()).filter(open).collect();
        // The higher classes of a port first: the lower ones wait for them.
        open.sort_by_key(|queue| (queue / 8, Reverse(queue % 8)));
        for queue in &open {
            self.delays[*queue] = Some(0);
            for hop in &self.queues[*queue] {
                self.hops[*hop].burst_bits = Some(self.hops[*hop].source_bits);
            }
        }
        for _ in 0..ROUNDS {
            let mut grows = false;
            let mut ends = false;
            for queue in &open {
                let before = self.delays[*queue];
                self.bound_again(*queue)?;
                let delay = self.delays[*queue];
                grows |= delay != before;
                ends |= delay.is_some_and(|delay| delay > LONGEST) || self.is_too_large(*queue);
            }
            if !grows {
                return Ok(true);
            }
            if ends {
                break;
            }
        }
        for queue in open {
            self.forget(queue);
            (self.without[queue], self.done[queue]) = (None, false);
        }
        Ok(false)
    }

    fn bound_again(&mut self, queue: usize) -> Result<(), BoundsError> {
        self.without[queue] = None;
        self.queue(queue).map_err(|error| error.at(port_class(queue)))?;
        if self.without[queue].is_some() {
            self.forget(queue);
        }
        Ok(())
    }

    fn forget(&mut self, queue: usize) {
        self.delays[queue] = None;
        self.loads[queue / 8][queue % 8].backlog_bits = None;
    }

    fn is_too_large(&self, queue: usize) -> bool {
        let cause = self.without[queue].as_ref().map(|(_, cause)| &**cause);
        matches!(cause, Some(Cause::TooLarge))
    }
}
