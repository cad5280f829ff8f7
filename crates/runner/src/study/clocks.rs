// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clocks of captures on one timeline: those of one boot share a clock; others are compared by
//! the packets between them and by their samples of synchronised clocks.

use std::sync::Arc;

use serde::Serialize;
use timewire_capture::align::{
    self, Alignment, Assumptions, ClockRelation, Crossings, PairInput, Synchronised, Timeline,
    TimelineError,
};
use timewire_capture::capture::ClockSample;
use timewire_capture::packet_path::{ClockMap, Common};

use super::error::unaligned;
use super::{CaptureReport, StudyError};

/// How a host's clock is compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "way", rename_all = "kebab-case")]
pub enum ClockWay {
    /// It is the clock of all.
    Itself,
    /// By packets between it and another host.
    Packets {
        /// The other.
        to: String,
    },
    /// Both are synchronised.
    Synchronised {
        /// The other.
        to: String,
    },
}

/// A host's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aligned {
    /// The host.
    pub host: String,
    /// How it is compared.
    #[serde(flatten)]
    pub way: ClockWay,
    /// The largest bound of a comparison with the clock of all, over the captured time; `None`
    /// where nothing is known at some time.
    ///
    /// **Units**: ns.
    pub bound_ns: Option<u64>,
    /// Its rate less that of the clock of all, where packets tell it.
    ///
    /// **Units**: parts per billion.
    pub rate_ppb: Option<f64>,
    /// Instants at which packets contradict each other: steps of a clock.
    pub contradictions: usize,
    /// Its bound is the one that was stated, since nothing on the host told it.
    pub stated: bool,
}

/// Packets and synchronisation that do not agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Disagreement {
    /// The hosts.
    pub hosts: (String, String),
    /// Packets put the second's clock so far ahead, with their bound.
    pub packets_ns: (i64, u64),
    /// Synchronisation does so.
    pub synchronised_ns: (i64, u64),
    /// So far they are apart beyond their bounds; 0 when they agree.
    pub excess_ns: u64,
}

/// The clocks of all captures.
#[derive(Clone, Debug)]
pub struct Clocks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The host of each capture.
    hosts: Vec<usize>,
    /// Of each capture, by time.
    samples: Vec<Vec<ClockSample>>,
    /// `None` with one host.
    timeline: Option<Timeline>,
    aligned: Vec<Aligned>,
    agreements: Vec<Disagreement>,
    /// Hosts whose bound was stated.
    stated: Vec<bool>,
}

/// A capture whose clock is compared.
pub(super) struct Compared<'a> {
    pub report: &'a CaptureReport,
    pub samples: &'a [ClockSample],
    /// Captures with the same number are of one kernel.
    pub kernel: usize,
}

/// What clocks are compared by, beside their samples.
pub(super) struct Grounds<'a> {
    /// By the numbers of kernels.
    pub crossings: Option<&'a Crossings>,
    pub assumptions: Assumptions,
    /// The clocks of two hosts are at most so far apart, where nothing tells it.
    pub stated_ns: Option<u64>,
}

impl Clocks {
    /// Compares.
    ///
    /// **Errors**: hosts that nothing joins.
    pub(super) fn of(
        captures: &[Compared<'_>],
        grounds: &Grounds<'_>,
    ) -> Result<Clocks, StudyError> {
        let mut kernels: Vec<usize> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        let mut hosts = Vec::new();
        let mut samples_of: Vec<Vec<ClockSample>> = Vec::new();
        let mut samples = Vec::new();
        for capture in captures {
            let host = kernels.iter().position(|known| *known == capture.kernel);
            let host = host.unwrap_or_else(|| {
                kernels.push(capture.kernel);
                names.push(capture.report.header.host.clone());
                samples_of.push(Vec::new());
                kernels.len() - 1
            });
            hosts.push(host);
            samples_of[host].extend_from_slice(capture.samples);
            let mut sorted = capture.samples.to_vec();
            sorted.sort_by_key(|sample| sample.monotonic_ns);
            samples.push(sorted);
        }
        let stated = samples_of.iter_mut().map(|samples| state(samples, grounds.stated_ns));
        let stated = stated.collect();
        let (timeline_of, aligned, agreements) = (None, Vec::new(), Vec::new());
        let mut inner =
            Inner { hosts, samples, timeline: timeline_of, aligned, agreements, stated };
        if let Some(crossings) = grounds.crossings.filter(|_| kernels.len() > 1) {
            let synchronised = samples_of.into_iter().map(Synchronised::new).collect();
            let all = (names.as_slice(), kernels.as_slice());
            inner.timeline = Some(timeline(all, crossings, synchronised, grounds.assumptions)?);
        }
        inner.describe(&names, captures);
        Ok(Clocks { inner: Arc::new(inner) })
    }

    /// The clock of each host.
    pub fn aligned(&self) -> &[Aligned] {
        &self.inner.aligned
    }

    /// What packets and synchronisation say of the same pair, where both say something: each pair
    /// where they are farthest apart.
    pub fn agreements(&self) -> &[Disagreement] {
        &self.inner.agreements
    }
}

/// Gives samples that say nothing of synchronisation the bound that was stated, half of it to each
/// of two hosts; whether there were any.
fn state(samples: &mut [ClockSample], stated_ns: Option<u64>) -> bool {
    let Some(stated_ns) = stated_ns else { return false };
    let mut any = false;
    for sample in samples.iter_mut().filter(|sample| sample.offset_ns.is_none()) {
        sample.offset_ns = Some(i64::try_from(stated_ns.div_ceil(2)).unwrap_or(i64::MAX));
        any = true;
    }
    any
}

fn timeline(
    (names, kernels): (&[String], &[usize]),
    crossings: &Crossings,
    synchronised: Vec<Synchronised>,
    assumptions: Assumptions,
) -> Result<Timeline, StudyError> {
    let mut pairs = Vec::new();
    let mut why = Vec::new();
    for a in 0..names.len() {
        for b in a + 1..names.len() {
            let crossed = crossings.between(kernels[a], kernels[b]);
            match align::estimate(&crossed, assumptions) {
                Ok(alignment) => pairs.push(PairInput { a, b, alignment }),
                Err(error) => why.push(unaligned(&names[a], &names[b], &error)),
            }
        }
    }
    Timeline::new(0, pairs, synchronised).map_err(|error| {
        let TimelineError::Apart { reference, hosts } = error;
        let hosts = hosts.into_iter().map(|host| names[host].clone()).collect();
        StudyError::Apart { reference: names[reference].clone(), hosts, why }
    })
}

impl Inner {
    fn describe(&mut self, names: &[String], captures: &[Compared<'_>]) {
        for (host, name) in names.iter().enumerate() {
            let way =
                self.timeline.as_ref().map_or(&ClockRelation::Itself, |found| found.way(host));
            let of = |way: &ClockRelation| match way {
                ClockRelation::Itself => (ClockWay::Itself, None),
                ClockRelation::Packets { next, pair } => {
                    (ClockWay::Packets { to: names[*next].clone() }, Some(*pair))
                }
                ClockRelation::Synchronised { next } => {
                    (ClockWay::Synchronised { to: names[*next].clone() }, None)
                }
            };
            let (way, pair) = of(way);
            let times = captures.iter().zip(&self.hosts).filter(|(_, of)| **of == host);
            let mut bound_ns = Some(0);
            for (Compared { report, .. }, _) in times {
                let known = self.bound(host, report.from_ns, report.to_ns);
                bound_ns = bound_ns.zip(known).map(|(one, two): (u64, u64)| one.max(two));
            }
            let alignment = pair.and_then(|pair| self.pair(pair));
            // The list has them in the order of the hosts; the reference can be either of the two.
            let turned = alignment.is_some_and(|(a, _)| a == host);
            let rate_ppb = alignment.and_then(|(_, found)| found.rate_ppb());
            self.aligned.push(Aligned {
                host: name.clone(),
                way,
                bound_ns,
                rate_ppb: rate_ppb.map(|rate| if turned { -rate } else { rate }),
                contradictions: alignment.map_or(0, |(_, found)| found.contradictions),
                stated: self.stated[host],
            });
        }
        let Some(timeline) = &self.timeline else { return };
        for (number, pair) in timeline.pairs().iter().enumerate() {
            let at = pair.alignment.knots.iter().map(|knot| knot.a_ns);
            let both = at.filter_map(|at| timeline.agreement(number, at));
            if let Some(worst) = both.max_by_key(|both| {
                (both.excess_ns(), both.packets.ns.abs_diff(both.synchronised.ns))
            }) {
                self.agreements.push(Disagreement {
                    hosts: (names[pair.a].clone(), names[pair.b].clone()),
                    packets_ns: (worst.packets.ns, worst.packets.bound_ns),
                    synchronised_ns: (worst.synchronised.ns, worst.synchronised.bound_ns),
                    excess_ns: worst.excess_ns(),
                });
            }
        }
    }

    fn pair(&self, pair: usize) -> Option<(usize, &Alignment)> {
        let pair = self.timeline.as_ref()?.pairs().get(pair)?;
        Some((pair.a, &pair.alignment))
    }

    /// The largest bound over a time, looked at in a hundred places.
    fn bound(&self, host: usize, from_ns: u64, to_ns: u64) -> Option<u64> {
        let Some(timeline) = &self.timeline else { return Some(0) };
        let step = ((to_ns - from_ns) / 100).max(1);
        let mut largest = 0;
        let mut at = from_ns;
        while at <= to_ns {
            largest = largest.max(timeline.to_common(host, at)?.bound_ns);
            at = at.checked_add(step)?;
        }
        Some(largest)
    }
}

impl ClockMap for Clocks {
    fn to_common(&self, capture: usize, at_ns: u64) -> Common {
        let plain = |bound_ns| Common { ns: i64::try_from(at_ns).unwrap_or(i64::MAX), bound_ns };
        let Some(timeline) = &self.inner.timeline else { return plain(0) };
        let host = self.inner.hosts[capture];
        match timeline.to_common(host, at_ns) {
            Some(found) => Common { ns: found.ns, bound_ns: found.bound_ns },
            // Nothing is known just here: the nearest that is, with a bound that says so.
            None => timeline.nearest(host, at_ns).map_or_else(
                || plain(u64::MAX),
                |found| Common { ns: found.ns, bound_ns: u64::MAX },
            ),
        }
    }

    fn to_tai(&self, capture: usize, at_ns: u64) -> Option<i64> {
        let samples = &self.inner.samples[capture];
        let after = samples.partition_point(|sample| sample.monotonic_ns <= at_ns);
        // The last that was read before; before the first one, the first.
        let sample = samples.get(after.saturating_sub(1))?;
        let ahead = sample.realtime_ahead_ns.checked_add(sample.tai_ahead_ns)?;
        i64::try_from(at_ns).ok()?.checked_add(ahead)
    }
}
