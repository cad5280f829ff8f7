// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The phases of cyclic streams that hurt most: tried at random first, then near the worst.

use timewire_base::{Sequence, Span};

use super::delay::below;
use super::describe::{NetError, Network, Traffic};
use super::engine::Simulation;
use super::stats::SimOutcome;

/// A search for bad phases: what it tries follows from a seed.
pub struct PhaseSearch {
    network: Network,
    cyclic: Vec<usize>,
    random: Sequence,
    tried: u32,
    worst: Option<Trial>,
}

/// A network with certain phases, and what became of it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// When each cyclic stream begins in its period: number of the stream, offset.
    pub offsets: Vec<(usize, Span)>,
    /// What came out.
    pub outcome: SimOutcome,
    /// How bad it was.
    pub score: u64,
}

/// So many trials are random before one is near the worst of them.
const RANDOM_TRIALS: u32 = 8;
/// Events between two questions whether a trial goes on.
const EVENTS: u64 = 200_000;
/// Almost together. **Units**: nanoseconds.
const BESIDE_NS: i64 = 1_000;

impl PhaseSearch {
    /// Searches the phases of a network; the first trial has those that are given.
    pub fn new(network: Network, seed: u64) -> PhaseSearch {
        let is_cyclic =
            |number: &usize| matches!(network.streams[*number].traffic, Traffic::Cyclic { .. });
        let cyclic = (0..network.streams.len()).filter(is_cyclic).collect();
        PhaseSearch { network, cyclic, random: Sequence::new(seed), tried: 0, worst: None }
    }

    /// One more trial, whose badness `score` tells; the worst so far. A trial is broken off, and
    /// counts nothing, when `go_on` says so; `None` when it was the first.
    ///
    /// **Errors**: as [`Simulation::run`].
    pub fn step(
        &mut self,
        score: impl Fn(&SimOutcome) -> u64,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<&Trial>, NetError> {
        if self.tried > 0 {
            self.propose();
        }
        let mut simulation = Simulation::new(&self.network)?;
        while simulation.go_on(EVENTS)? {
            if !go_on() {
                return Ok(self.worst.as_ref());
            }
        }
        self.tried += 1;
        let outcome = simulation.finish();
        let score = score(&outcome);
        if self.worst.as_ref().is_none_or(|worst| score > worst.score) {
            let offsets = self.cyclic.iter().map(|number| (*number, self.offset(*number)));
            self.worst = Some(Trial { offsets: offsets.collect(), outcome, score });
        }
        Ok(self.worst.as_ref())
    }

    /// So many trials have ended.
    pub fn tried(&self) -> u32 {
        self.tried
    }

    fn offset(&self, stream: usize) -> Span {
        match self.network.streams[stream].traffic {
            Traffic::Cyclic { offset, .. } => offset,
            _ => Span::ZERO,
        }
    }

    fn propose(&mut self) {
        let near = self.tried > RANDOM_TRIALS;
        if let (true, Some(worst)) = (near, &self.worst) {
            for (number, span) in &worst.offsets {
                if let Traffic::Cyclic { offset, .. } = &mut self.network.streams[*number].traffic {
                    *offset = *span;
                }
            }
        }
        let count = u64::try_from(self.cyclic.len()).unwrap_or(0);
        let moves = usize::try_from(below(self.random.next(), count)).unwrap_or(0);
        for (place, number) in self.cyclic.clone().into_iter().enumerate() {
            // Near the worst, one stream moves, and about one more.
            if near && place != moves && below(self.random.next(), count) != 0 {
                continue;
            }
            let other = self.cyclic[usize::try_from(below(self.random.next(), count)).unwrap_or(0)];
            let beside = self.offset(other).as_ns();
            let follows = near && below(self.random.next(), 2) == 0;
            if let Traffic::Cyclic { period, offset, .. } =
                &mut self.network.streams[number].traffic
            {
                let period = period.as_ns();
                let drawn = below(self.random.next(), period.unsigned_abs());
                let drawn = i64::try_from(drawn).unwrap_or(0);
                // Streams hurt each other most when they come almost together.
                let ns = if follows { beside + drawn % BESIDE_NS } else { drawn };
                *offset = Span::from_ns(ns.rem_euclid(period));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use timewire_base::{BitsPerSecond, FrameLen};

    use super::super::delay::Delay;
    use super::super::describe::{LinkSpec, NodeSpec, StreamSpec};
    use super::*;

    #[test]
    fn t0_no_trial_is_the_worst_again() {
        let mut network = Network::empty(Span::from_us(1), 1);
        network.nodes = vec![NodeSpec::default(); 2];
        let rate = BitsPerSecond::new(100_000_000).unwrap();
        network.links = vec![LinkSpec::plain(0, 1, rate, Span::ZERO)];
        let stream = StreamSpec {
            from: 0,
            to: 1,
            class: 0,
            frame: FrameLen::new(300).unwrap(),
            traffic: Traffic::Cyclic {
                period: Span::from_ms(1),
                offset: Span::ZERO,
                jitter: Delay::NONE,
                frames: 1,
                spacing: Span::ZERO,
            },
            launch: None,
            shape: None,
        };
        network.streams = vec![stream; 4];
        let mut search = PhaseSearch::new(network, 3);
        for trial in 0..100 {
            let worst = search.step(|_| 0, || true).unwrap().unwrap().offsets.clone();
            let tried: Vec<_> =
                search.cyclic.iter().map(|number| (*number, search.offset(*number))).collect();
            assert!(trial == 0 || tried != worst, "trial {trial}");
        }
    }
}
