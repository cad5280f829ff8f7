// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many hosts on the clock of one: each is led to it by way of the hosts between them, over the
//! best of what is known of each pair.

use thiserror::Error;

use super::{Ahead, Alignment, Synchronised};

/// What is known of two hosts; the numbers are places in the list of hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct PairInput {
    /// The first.
    pub a: usize,
    /// The second.
    pub b: usize,
    /// Their clocks, by the packets between them.
    pub alignment: Alignment,
}

/// How the clock of a host is led to the next one's.
#[derive(Clone, Debug, PartialEq)]
pub enum ClockRelation {
    /// It is the clock of all.
    Itself,
    /// By the packets between it and `next`.
    Packets {
        /// The host that it is led to.
        next: usize,
        /// The pair in the list that [`Timeline::new`] was given.
        pair: usize,
    },
    /// Both are synchronised.
    Synchronised {
        /// The host that it is led to.
        next: usize,
    },
}

/// A time on the clock of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// **Units**: ns of the reference host's `CLOCK_MONOTONIC`.
    pub ns: i64,
    /// Either way.
    ///
    /// **Units**: ns.
    pub bound_ns: u64,
}

/// Hosts that no packet and no synchronisation joins.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TimelineError {
    /// These have no way to the reference.
    #[error(
        "nothing joins the clocks of hosts {hosts:?} to that of host {reference}: they need \
         packets both ways between them, or synchronised clocks"
    )]
    Apart {
        /// The reference.
        reference: usize,
        /// Those without a way.
        hosts: Vec<usize>,
    },
}

/// The clocks of all hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    ways: Vec<ClockRelation>,
    pairs: Vec<PairInput>,
    synchronised: Vec<Synchronised>,
}

/// How a pair's two sources agree, at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// `b` less `a`, by packets.
    pub packets: Ahead,
    /// `b` less `a`, by synchronisation.
    pub synchronised: Ahead,
}

impl Agreement {
    /// How far the two are apart, beyond what their bounds allow; 0 when they agree.
    pub fn excess_ns(&self) -> u64 {
        let apart = self.packets.ns.abs_diff(self.synchronised.ns);
        apart.saturating_sub(self.packets.bound_ns).saturating_sub(self.synchronised.bound_ns)
    }
}

/// What shares a clock's rate of this much of a bound is lost by looking a little beside the right
/// time.
const SHARE: u64 = 1_000;

impl Timeline {
    /// Leads every host to `reference`. `synchronised` has an entry for each host, perhaps an empty
    /// one.
    ///
    /// **Errors**: hosts that cannot be led there.
    pub fn new(
        reference: usize,
        pairs: Vec<PairInput>,
        synchronised: Vec<Synchronised>,
    ) -> Result<Timeline, TimelineError> {
        let hosts = synchronised.len();
        let mut found: Vec<Option<(u64, ClockRelation)>> = vec![None; hosts];
        found[reference] = Some((0, ClockRelation::Itself));
        let mut done = vec![false; hosts];
        let mut timeline = Timeline { ways: Vec::new(), pairs, synchronised };
        // The nearest by the sum of bounds comes next, as by E. W. Dijkstra (1959).
        while let Some(host) = (0..hosts)
            .filter(|host| !done[*host] && found[*host].is_some())
            .min_by_key(|host| found[*host].as_ref().map(|(sum, _)| *sum))
        {
            done[host] = true;
            let sum = found[host].as_ref().map_or(0, |(sum, _)| *sum);
            for (other, edge, way) in timeline.edges(host) {
                let whole = sum.saturating_add(edge);
                if !done[other] && found[other].as_ref().is_none_or(|(old, _)| whole < *old) {
                    found[other] = Some((whole, way));
                }
            }
        }
        let apart: Vec<usize> = (0..hosts).filter(|host| found[*host].is_none()).collect();
        if !apart.is_empty() {
            return Err(TimelineError::Apart { reference, hosts: apart });
        }
        timeline.ways = found.into_iter().flatten().map(|(_, way)| way).collect();
        Ok(timeline)
    }

    /// The hosts that can be led to this one: which, the largest bound, how.
    fn edges(&self, host: usize) -> Vec<(usize, u64, ClockRelation)> {
        let by_packets = self.pairs.iter().enumerate().filter_map(|(number, pair)| {
            let other = match host {
                _ if host == pair.a => pair.b,
                _ if host == pair.b => pair.a,
                _ => return None,
            };
            let (_, bound) = pair.alignment.bounds_ns();
            Some((other, bound, ClockRelation::Packets { next: host, pair: number }))
        });
        let largest = |host: usize| self.synchronised[host].largest_bound();
        let by_clock = largest(host).into_iter().flat_map(|mine| {
            let others = (0..self.synchronised.len()).filter(move |other| *other != host);
            others.filter_map(move |other| {
                let bound = mine.saturating_add(largest(other)?);
                Some((other, bound, ClockRelation::Synchronised { next: host }))
            })
        });
        by_packets.chain(by_clock).collect()
    }

    /// How a host is led to the next.
    pub fn way(&self, host: usize) -> &ClockRelation {
        &self.ways[host]
    }

    /// A time of a host's clock on the clock of all; `None` where nothing is known.
    pub fn to_common(&self, host: usize, at_ns: u64) -> Option<Common> {
        self.led(host, at_ns, false)
    }

    /// As [`Timeline::to_common`]; where nothing is known, what the nearest instants make likely,
    /// with the largest bound there is.
    pub fn nearest(&self, host: usize, at_ns: u64) -> Option<Common> {
        self.led(host, at_ns, true)
    }

    fn led(&self, host: usize, at_ns: u64, nearest: bool) -> Option<Common> {
        let (mut host, mut at, mut bound) = (host, at_ns, 0_u64);
        loop {
            let (next, ahead) = match self.ways[host] {
                ClockRelation::Itself => {
                    return Some(Common { ns: i64::try_from(at).ok()?, bound_ns: bound });
                }
                ClockRelation::Packets { next, pair } => {
                    (next, by_packets(&self.pairs[pair], host, at, nearest)?)
                }
                ClockRelation::Synchronised { next } => {
                    let found = self.by_clock(host, next, at);
                    let likely = || if nearest { self.likely(host, next, at) } else { None };
                    (next, found.or_else(likely)?)
                }
            };
            let beside = if bound == 0 { 0 } else { bound / SHARE + 1 };
            bound = bound.saturating_add(ahead.bound_ns).saturating_add(beside);
            at = at.checked_add_signed(ahead.ns)?;
            host = next;
        }
    }

    fn by_clock(&self, host: usize, next: usize, at: u64) -> Option<Ahead> {
        let mine = self.synchronised[host].at(at)?;
        let its = self.synchronised[next].at_tai(at.checked_add_signed(mine.ns)?)?;
        Some(Ahead {
            ns: mine.ns.checked_sub(its.ns)?,
            bound_ns: mine.bound_ns.saturating_add(its.bound_ns),
        })
    }

    /// As [`Timeline::by_clock`], from the nearest samples.
    fn likely(&self, host: usize, next: usize, at: u64) -> Option<Ahead> {
        let mine = self.synchronised[host].nearest(at)?;
        let tai = at.checked_add_signed(mine.ns)?;
        // Near enough to find the sample: both clocks show about the same TAI.
        let its = self.synchronised[next].nearest(tai.min(at))?;
        Some(Ahead { ns: mine.ns.checked_sub(its.ns)?, bound_ns: u64::MAX })
    }

    /// What packets and synchronisation each say of a pair in the list, at a time of its first
    /// host; `None` where one of them says nothing.
    pub fn agreement(&self, pair: usize, a_ns: u64) -> Option<Agreement> {
        let of = self.pairs.get(pair)?;
        Some(Agreement {
            packets: of.alignment.at(a_ns)?,
            synchronised: self.by_clock(of.a, of.b, a_ns)?,
        })
    }

    /// What is known of the pairs.
    pub fn pairs(&self) -> &[PairInput] {
        &self.pairs
    }
}

/// How far the next host's clock is ahead of that of `host`.
fn by_packets(pair: &PairInput, host: usize, at: u64, nearest: bool) -> Option<Ahead> {
    let alignment = &pair.alignment;
    if host == pair.a {
        return if nearest { alignment.nearest(at) } else { alignment.at(at) };
    }
    let ahead = if nearest { alignment.nearest_b(at) } else { alignment.at_b(at) }?;
    Some(Ahead { ns: ahead.ns.checked_neg()?, bound_ns: ahead.bound_ns })
}
