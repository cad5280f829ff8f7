// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrival and service curves: concave and convex piecewise linear functions, and the operations
//! of min-plus algebra on them, exact.
//!
//! **Source**: Le Boudec, Thiran: Network Calculus, chapters 1 and 3; Bouillard, Boyer,
//! Le Corronc: Deterministic Network Calculus, chapter 4.

use std::cmp::{Ordering, Reverse};

use super::{CalculusError, Ratio};

/// A straight line: its value at zero and its slope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AffineCurve {
    at_zero: Ratio,
    slope: Ratio,
}

impl AffineCurve {
    fn at(&self, t: Ratio) -> Result<Ratio, CalculusError> {
        self.slope.times(t)?.plus(self.at_zero)
    }

    /// Where the two lines meet; their slopes differ.
    fn meets(&self, other: &AffineCurve) -> Result<Ratio, CalculusError> {
        other.at_zero.minus(self.at_zero)?.over(self.slope.minus(other.slope)?)
    }
}

/// How much can arrive in a time: the least of several token buckets, and nothing in no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Burst ascending, rate descending; each is the least somewhere after zero.
    lines: Vec<AffineCurve>,
}

impl Arrival {
    /// No traffic.
    pub fn nothing() -> Arrival {
        Arrival { lines: vec![AffineCurve { at_zero: Ratio::ZERO, slope: Ratio::ZERO }] }
    }

    /// At most `burst` at once, and `rate` in the long run.
    ///
    /// **Errors**: a negative number.
    pub fn bucket(rate: Ratio, burst: Ratio) -> Result<Arrival, CalculusError> {
        Arrival::buckets(&[(rate, burst)])
    }

    /// All of these limits at once, each `(rate, burst)`.
    ///
    /// **Errors**: a negative number, or no bucket at all.
    pub fn buckets(limits: &[(Ratio, Ratio)]) -> Result<Arrival, CalculusError> {
        if limits.is_empty() {
            return Err(CalculusError::Empty);
        }
        if limits.iter().any(|(rate, burst)| rate.is_negative() || burst.is_negative()) {
            return Err(CalculusError::Negative);
        }
        let lines = limits.iter().map(|&(slope, at_zero)| AffineCurve { at_zero, slope }).collect();
        Ok(Arrival { lines: lower_envelope(lines)? })
    }

    /// What can arrive at once.
    pub fn burst(&self) -> Ratio {
        self.lines[0].at_zero
    }

    /// The rate in the long run.
    pub fn rate(&self) -> Ratio {
        self.last().slope
    }

    /// The buckets, `(rate, burst)`, by ascending burst.
    pub fn limits(&self) -> Vec<(Ratio, Ratio)> {
        self.lines.iter().map(|line| (line.slope, line.at_zero)).collect()
    }

    fn last(&self) -> &AffineCurve {
        self.lines.last().expect("invariant: an arrival curve has a line")
    }

    /// The times where the least line changes, each with the line from there on; the first is zero.
    fn pieces(&self) -> Result<Vec<(Ratio, AffineCurve)>, CalculusError> {
        pieces(&self.lines)
    }

    /// The most that arrives in any time just longer than `t`.
    pub fn at(&self, t: Ratio) -> Result<Ratio, CalculusError> {
        let values = self.lines.iter().map(|line| line.at(t));
        least(values)
    }

    /// Both together.
    ///
    /// **Errors**: numbers beyond 127 bits.
    pub fn plus(&self, other: &Arrival) -> Result<Arrival, CalculusError> {
        let (a, b) = (self.pieces()?, other.pieces()?);
        let (mut i, mut j) = (0, 0);
        let mut lines = Vec::with_capacity(a.len() + b.len());
        loop {
            let (x, y) = (a[i].1, b[j].1);
            let at_zero = x.at_zero.plus(y.at_zero)?;
            lines.push(AffineCurve { at_zero, slope: x.slope.plus(y.slope)? });
            match (a.get(i + 1), b.get(j + 1)) {
                (None, None) => break,
                (Some(_), None) => i += 1,
                (None, Some(_)) => j += 1,
                (Some((s, _)), Some((t, _))) => {
                    (i, j) = (i + usize::from(s <= t), j + usize::from(t <= s));
                }
            }
        }
        Ok(Arrival { lines: lower_envelope(lines)? })
    }

    /// What can come out of a server with this service: the deconvolution.
    ///
    /// `None`: the server's backlog is without bound.
    ///
    /// **Errors**: numbers beyond 127 bits.
    pub fn after(&self, service: &Service) -> Result<Option<Arrival>, CalculusError> {
        if self.rate() > service.rate() {
            return Ok(None);
        }
        let (before, start) = (service.pieces()?, self.turning_point(service)?);
        // From the instant of the greatest backlog the curve goes on as the arrival does, or as
        // the service did before, whichever is steeper.
        let mut steps: Vec<(Ratio, Option<Ratio>)> = Vec::new();
        let arriving = self.pieces()?;
        for (index, (from, line)) in arriving.iter().enumerate() {
            let end = arriving.get(index + 1).map(|(end, _)| *end);
            if end.is_none_or(|end| end > start) {
                let length = end.map(|end| end.minus((*from).max(start))).transpose()?;
                steps.push((line.slope, length));
            }
        }
        for (index, (from, line)) in before.iter().enumerate() {
            let end = before.get(index + 1).map_or(start, |(end, _)| (*end).min(start));
            if end > *from {
                steps.push((line.slope, Some(end.minus(*from)?)));
            }
        }
        steps.sort_by_key(|step| Reverse(step.0));
        let (mut t, mut value) = (Ratio::ZERO, self.backlog_at(service, start)?);
        let mut lines = Vec::new();
        for (slope, length) in steps {
            lines.push(AffineCurve { at_zero: value.minus(slope.times(t)?)?, slope });
            let Some(length) = length else { break };
            (t, value) = (t.plus(length)?, value.plus(slope.times(length)?)?);
        }
        Ok(Some(Arrival { lines: lower_envelope(lines)? }))
    }

    /// The longest time for which a bit can wait with first come, first served: the horizontal
    /// deviation. `None`: without bound.
    ///
    /// **Errors**: numbers beyond 127 bits.
    pub fn delay(&self, service: &Service) -> Result<Option<Ratio>, CalculusError> {
        if self.rate() > service.rate() {
            return Ok(None);
        }
        let mut longest = Ratio::ZERO;
        for (t, _) in self.pieces()? {
            let served = service.reaches(self.at(t)?)?.ok_or(CalculusError::Empty)?;
            longest = longest.max(served.minus(t)?);
        }
        for (t, line) in service.pieces()? {
            if let Some(arrived) = self.reaches(line.at(t)?)? {
                longest = longest.max(t.minus(arrived)?);
            }
        }
        Ok(Some(longest))
    }

    /// The most that can wait: the vertical deviation. `None`: without bound.
    ///
    /// **Errors**: numbers beyond 127 bits.
    pub fn backlog(&self, service: &Service) -> Result<Option<Ratio>, CalculusError> {
        if self.rate() > service.rate() {
            return Ok(None);
        }
        Ok(Some(self.backlog_at(service, self.turning_point(service)?)?))
    }

    /// The longest time for which the server can be busy, whatever it serves first. `None`:
    /// for ever.
    ///
    /// **Errors**: numbers beyond 127 bits.
    pub fn busy(&self, service: &Service) -> Result<Option<Ratio>, CalculusError> {
        if self.rate() >= service.rate() {
            return Ok(None);
        }
        // The difference is concave, so it crosses zero once: where first some line of service is
        // above some line of arrival.
        let crossings = self.lines.iter().flat_map(|arriving| {
            let served = service.lines.iter().filter(|line| line.slope > arriving.slope);
            served.map(|line| arriving.meets(line))
        });
        let crossing = least(crossings)?;
        Ok(Some(crossing.max(Ratio::ZERO)))
    }

    fn backlog_at(&self, service: &Service, t: Ratio) -> Result<Ratio, CalculusError> {
        self.at(t)?.minus(service.at(t)?)
    }

    /// The first instant of the greatest backlog; the rate is not above the service's.
    fn turning_point(&self, service: &Service) -> Result<Ratio, CalculusError> {
        let mut times: Vec<Ratio> = self.pieces()?.into_iter().map(|(t, _)| t).collect();
        times.extend(service.pieces()?.into_iter().map(|(t, _)| t));
        times.sort();
        let mut best = (Ratio::ZERO, self.backlog_at(service, Ratio::ZERO)?);
        for t in times {
            let backlog = self.backlog_at(service, t)?;
            if backlog > best.1 {
                best = (t, backlog);
            }
        }
        Ok(best.0)
    }

    /// When so much can have arrived at the earliest; `None`: never.
    fn reaches(&self, amount: Ratio) -> Result<Option<Ratio>, CalculusError> {
        let mut latest = Ratio::ZERO;
        for line in &self.lines {
            if line.at_zero >= amount {
                continue;
            }
            if line.slope == Ratio::ZERO {
                return Ok(None);
            }
            latest = latest.max(amount.minus(line.at_zero)?.over(line.slope)?);
        }
        Ok(Some(latest))
    }
}

/// How much is served at least in a time: the greatest of several lines and of nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Rate ascending; the first is zero, each is the greatest somewhere.
    lines: Vec<AffineCurve>,
}

impl Service {
    /// Nothing for `latency`, then `rate`.
    ///
    /// **Errors**: a negative number.
    pub fn rate_latency(rate: Ratio, latency: Ratio) -> Result<Service, CalculusError> {
        Service::greatest(&[(rate, latency)])
    }

    /// Each of these guarantees at once, each `(rate, latency)`.
    ///
    /// **Errors**: a negative number.
    pub fn greatest(guarantees: &[(Ratio, Ratio)]) -> Result<Service, CalculusError> {
        if guarantees.iter().any(|(rate, latency)| rate.is_negative() || latency.is_negative()) {
            return Err(CalculusError::Negative);
        }
        let mut lines = Vec::new();
        for &(slope, latency) in guarantees {
            lines.push(AffineCurve { at_zero: Ratio::ZERO.minus(slope.times(latency)?)?, slope });
        }
        Service::of(lines)
    }

    fn of(mut lines: Vec<AffineCurve>) -> Result<Service, CalculusError> {
        lines.push(AffineCurve { at_zero: Ratio::ZERO, slope: Ratio::ZERO });
        Ok(Service { lines: upper_envelope(lines)? })
    }

    /// The rate in the long run.
    pub fn rate(&self) -> Ratio {
        self.lines.last().expect("invariant: a service curve has a line").slope
    }

    /// The guarantees, `(rate, latency)`, by ascending rate; none for no service.
    ///
    /// **Errors**: numbers beyond 127 bits.
    pub fn guarantees(&self) -> Result<Vec<(Ratio, Ratio)>, CalculusError> {
        let lines = self.lines.iter().filter(|line| line.slope > Ratio::ZERO);
        lines
            .map(|line| {
                let latency = Ratio::ZERO.minus(line.at_zero)?.over(line.slope)?;
                Ok((line.slope, latency))
            })
            .collect()
    }

    /// What is served at least within `t`.
    pub fn at(&self, t: Ratio) -> Result<Ratio, CalculusError> {
        greatest(self.lines.iter().map(|line| line.at(t)))
    }

    fn pieces(&self) -> Result<Vec<(Ratio, AffineCurve)>, CalculusError> {
        pieces(&self.lines)
    }

    /// When so much has been served at the latest; for nothing, when service begins. `None`: never.
    fn reaches(&self, amount: Ratio) -> Result<Option<Ratio>, CalculusError> {
        let mut earliest: Option<Ratio> = None;
        for line in self.lines.iter().filter(|line| line.slope > Ratio::ZERO) {
            let t = amount.minus(line.at_zero)?.over(line.slope)?;
            earliest = Some(earliest.map_or(t, |earliest| earliest.min(t)));
        }
        Ok(earliest)
    }

    /// One server after the other: the convolution.
    ///
    /// **Errors**: numbers beyond 127 bits.
    pub fn then(&self, next: &Service) -> Result<Service, CalculusError> {
        let mut steps: Vec<(Ratio, Option<Ratio>)> = Vec::new();
        for service in [self, next] {
            let pieces = service.pieces()?;
            for (index, (from, line)) in pieces.iter().enumerate() {
                let end = pieces.get(index + 1).map(|(end, _)| end.minus(*from)).transpose()?;
                steps.push((line.slope, end));
            }
        }
        steps.sort_by_key(|step| step.0);
        let (mut t, mut value, mut lines) = (Ratio::ZERO, Ratio::ZERO, Vec::new());
        for (slope, length) in steps {
            lines.push(AffineCurve { at_zero: value.minus(slope.times(t)?)?, slope });
            let Some(length) = length else { break };
            (t, value) = (t.plus(length)?, value.plus(slope.times(length)?)?);
        }
        Service::of(lines)
    }

    /// What is left when the others may go first at any time. The service must be strict.
    ///
    /// **Errors**: numbers beyond 127 bits.
    pub fn left_by(&self, others: &Arrival) -> Result<Service, CalculusError> {
        Service::of(self.differences(others, Ratio::ZERO)?)
    }

    /// What is left when all are served in order of arrival, by the member of the family of
    /// leftover curves with the latency after which nothing of the others' burst is left.
    ///
    /// **Source**: Le Boudec, Thiran, proposition 6.2.1.
    ///
    /// **Errors**: numbers beyond 127 bits.
    pub fn left_in_order(&self, others: &Arrival) -> Result<Service, CalculusError> {
        match others.delay(self)? {
            Some(delay) if others.burst() > Ratio::ZERO || others.rate() > Ratio::ZERO => {
                Service::of(self.less_after(others, delay)?)
            }
            Some(_) => Ok(self.clone()),
            None => Service::of(Vec::new()),
        }
    }

    /// The greatest convex curve that is nothing until `shift` and below the difference after.
    fn less_after(
        &self,
        others: &Arrival,
        shift: Ratio,
    ) -> Result<Vec<AffineCurve>, CalculusError> {
        let mut lines = Vec::new();
        for line in self.differences(others, shift)? {
            // A line that is above zero at the shift is lowered: before it nothing is promised.
            let there = line.at(shift)?;
            let lowered = there.max(Ratio::ZERO);
            lines.push(AffineCurve { at_zero: line.at_zero.minus(lowered)?, slope: line.slope });
        }
        Ok(lines)
    }

    /// Each line of service less each line of arrival `shift` later: the greatest over the former
    /// of the least over the latter is the difference, but only pairs that meet in time bound it.
    fn differences(
        &self,
        others: &Arrival,
        shift: Ratio,
    ) -> Result<Vec<AffineCurve>, CalculusError> {
        let (served, arriving) = (self.pieces()?, others.pieces()?);
        let mut starts: Vec<Ratio> = served.iter().map(|(t, _)| *t).collect();
        for (t, _) in &arriving {
            starts.push(t.plus(shift)?);
        }
        starts.sort();
        starts.dedup();
        let mut lines = Vec::new();
        for t in starts.into_iter().filter(|t| *t >= shift) {
            let line = active(&served, t);
            let other = active(&arriving, t.minus(shift)?);
            let shifted = other.at_zero.minus(other.slope.times(shift)?)?;
            let slope = line.slope.minus(other.slope)?;
            if !slope.is_negative() {
                lines.push(AffineCurve { at_zero: line.at_zero.minus(shifted)?, slope });
            }
        }
        Ok(lines)
    }
}

/// The line from the latest start that is not after `t`; the first starts at zero.
fn active(pieces: &[(Ratio, AffineCurve)], t: Ratio) -> AffineCurve {
    let after = pieces.partition_point(|(start, _)| *start <= t);
    pieces[after - 1].1
}

fn pieces(lines: &[AffineCurve]) -> Result<Vec<(Ratio, AffineCurve)>, CalculusError> {
    let mut pieces = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        let start = if index == 0 { Ratio::ZERO } else { lines[index - 1].meets(line)? };
        pieces.push((start, *line));
    }
    Ok(pieces)
}

/// Those lines that are the least somewhere after zero, by descending slope.
fn lower_envelope(lines: Vec<AffineCurve>) -> Result<Vec<AffineCurve>, CalculusError> {
    envelope(lines, |a, b| b.cmp(a))
}

/// Those lines that are the greatest somewhere after zero, by ascending slope.
fn upper_envelope(lines: Vec<AffineCurve>) -> Result<Vec<AffineCurve>, CalculusError> {
    envelope(lines, Ratio::cmp)
}

/// Those lines that are the last in this order somewhere after zero, by their slopes in it.
fn envelope(
    mut lines: Vec<AffineCurve>,
    order: fn(&Ratio, &Ratio) -> Ordering,
) -> Result<Vec<AffineCurve>, CalculusError> {
    lines.sort_by(|a, b| order(&a.slope, &b.slope).then(order(&a.at_zero, &b.at_zero)));
    let mut kept: Vec<AffineCurve> = Vec::with_capacity(lines.len());
    for line in lines {
        while let Some(last) = kept.last() {
            let hidden = order(&last.at_zero, &line.at_zero).is_le()
                || match kept.len().checked_sub(2).map(|index| kept[index]) {
                    Some(before) => before.meets(&line)? <= before.meets(last)?,
                    None => false,
                };
            if !hidden {
                break;
            }
            kept.pop();
        }
        kept.push(line);
    }
    Ok(kept)
}

fn least(
    values: impl Iterator<Item = Result<Ratio, CalculusError>>,
) -> Result<Ratio, CalculusError> {
    let mut least: Option<Ratio> = None;
    for value in values {
        let value = value?;
        least = Some(least.map_or(value, |least| least.min(value)));
    }
    least.ok_or(CalculusError::Empty)
}

fn greatest(
    values: impl Iterator<Item = Result<Ratio, CalculusError>>,
) -> Result<Ratio, CalculusError> {
    let mut greatest: Option<Ratio> = None;
    for value in values {
        let value = value?;
        greatest = Some(greatest.map_or(value, |greatest| greatest.max(value)));
    }
    greatest.ok_or(CalculusError::Empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ratio(num: i128, den: i128) -> Ratio {
        Ratio::new(num, den).unwrap()
    }

    fn whole(pairs: &[(i128, i128)]) -> Vec<(Ratio, Ratio)> {
        pairs.iter().map(|&(a, b)| (Ratio::whole(a), Ratio::whole(b))).collect()
    }

    #[test]
    fn t0_buckets_that_never_bind_are_left_out() {
        let arrival = Arrival::buckets(&whole(&[(5, 25), (6, 30), (1, 100), (5, 40)])).unwrap();
        assert_eq!(arrival.limits(), whole(&[(5, 25), (1, 100)]));
        let service = Service::greatest(&whole(&[(4, 10), (3, 20), (50, 1000)])).unwrap();
        assert_eq!(service.guarantees().unwrap(), whole(&[(4, 10), (50, 1000)]));
    }

    #[test]
    fn t0_peak_rate_shortens_the_wait() {
        // 100 a unit for the first 20, then 10; served with 20 after 3: 20 + 80 at 80/90 units...
        let arrival = Arrival::buckets(&whole(&[(100, 20), (10, 110)])).unwrap();
        let service = Service::rate_latency(Ratio::whole(20), Ratio::whole(3)).unwrap();
        // The buckets meet at 1: 120 has come, is served at 3 + 6, and has waited 8.
        assert_eq!(arrival.delay(&service).unwrap(), Some(Ratio::whole(8)));
        // At 3 there are 140.
        assert_eq!(arrival.backlog(&service).unwrap(), Some(Ratio::whole(140)));
        // 10 t + 110 = 20 (t - 3) at 17.
        assert_eq!(arrival.busy(&service).unwrap(), Some(Ratio::whole(17)));
    }

    #[test]
    fn t0_unbounded_is_told() {
        let arrival = Arrival::bucket(Ratio::whole(20), Ratio::whole(1)).unwrap();
        let equal = Service::rate_latency(Ratio::whole(20), Ratio::whole(3)).unwrap();
        assert_eq!(arrival.busy(&equal).unwrap(), None);
        assert!(arrival.delay(&equal).unwrap().is_some());
        let slow = Service::rate_latency(Ratio::whole(19), Ratio::whole(3)).unwrap();
        assert_eq!(arrival.delay(&slow).unwrap(), None);
        assert_eq!(arrival.after(&slow).unwrap(), None);
        assert_eq!(Arrival::buckets(&[]), Err(CalculusError::Empty));
        let negative = Arrival::bucket(Ratio::whole(-1), Ratio::ZERO);
        assert_eq!(negative, Err(CalculusError::Negative));
    }

    fn any_arrival() -> impl Strategy<Value = Arrival> {
        proptest::collection::vec((0_i128..20, 0_i128..60), 1..4)
            .prop_map(|limits| Arrival::buckets(&whole(&limits)).unwrap())
    }

    fn any_service() -> impl Strategy<Value = Service> {
        proptest::collection::vec((1_i128..40, 0_i128..20), 1..4)
            .prop_map(|limits| Service::greatest(&whole(&limits)).unwrap())
    }

    /// Instants to compare at: quarters of units.
    fn grid() -> impl Iterator<Item = Ratio> {
        (0..160).map(|quarter| ratio(quarter, 4))
    }

    proptest! {
        /// second method: each operation against its definition on a grid of instants.
        #[test]
        fn t0_operations_are_what_their_definitions_say(
            a in any_arrival(), b in any_arrival(), s in any_service(), z in any_service(),
        ) {
            let (sum, both) = (a.plus(&b).unwrap(), s.then(&z).unwrap());
            let rest = s.left_by(&b).unwrap();
            let (out, backlog) = (a.after(&s).unwrap(), a.backlog(&s).unwrap());
            for t in grid() {
                prop_assert_eq!(
                    sum.at(t).unwrap(), a.at(t).unwrap().plus(b.at(t).unwrap()).unwrap()
                );
                let left = s.at(t).unwrap().minus(b.at(t).unwrap()).unwrap();
                if b.rate() < s.rate() {
                    prop_assert!(rest.at(t).unwrap() >= left);
                }
                if let Some(backlog) = backlog {
                    prop_assert!(
                        a.at(t).unwrap().minus(s.at(t).unwrap()).unwrap() <= backlog
                    );
                }
                for u in grid().step_by(7) {
                    let later = t.plus(u).unwrap();
                    let split = s.at(t).unwrap().plus(z.at(u).unwrap()).unwrap();
                    prop_assert!(both.at(later).unwrap() <= split);
                    if let Some(out) = &out {
                        let least = a.at(later).unwrap().minus(s.at(u).unwrap()).unwrap();
                        prop_assert!(out.at(t).unwrap() >= least);
                    }
                }
            }
        }

        /// A bit that arrives at any instant has left when the bound says, and not always sooner.
        #[test]
        fn t0_the_delay_is_the_greatest_horizontal_distance(
            a in any_arrival(), s in any_service(),
        ) {
            if let Some(delay) = a.delay(&s).unwrap() {
                for t in grid() {
                    prop_assert!(s.at(t.plus(delay).unwrap()).unwrap() >= a.at(t).unwrap());
                }
                let less = delay.minus(ratio(1, 1_000)).unwrap();
                let reached = a.pieces().unwrap().into_iter().map(|(t, _)| t).chain(
                    s.pieces().unwrap().into_iter().map(|(t, line)| {
                        a.reaches(line.at(t).unwrap()).unwrap().unwrap_or(Ratio::ZERO)
                    }),
                ).any(|t| {
                    // Just after the instant: a curve without a burst starts there.
                    let t = t.plus(ratio(1, 100_000)).unwrap();
                    let then = t.plus(less).unwrap();
                    then.is_negative() || s.at(then).unwrap() < a.at(t).unwrap()
                });
                prop_assert!(delay == Ratio::ZERO || a.rate() == Ratio::ZERO || reached);
            }
        }

        /// The leftover of order of arrival is below every definition's curve and convex.
        #[test]
        fn t0_what_is_left_in_order_is_promised_by_the_family(
            b in any_arrival(), s in any_service(),
        ) {
            let left = s.left_in_order(&b).unwrap();
            if let Some(shift) = b.delay(&s).unwrap() {
                for t in grid() {
                    let late = t.minus(shift).unwrap();
                    if b.burst() == Ratio::ZERO && b.rate() == Ratio::ZERO {
                        prop_assert_eq!(&left, &s);
                    } else if late <= Ratio::ZERO {
                        prop_assert_eq!(left.at(t).unwrap(), Ratio::ZERO);
                    } else {
                        let member = s.at(t).unwrap().minus(b.at(late).unwrap()).unwrap();
                        prop_assert!(left.at(t).unwrap() <= member.max(Ratio::ZERO));
                    }
                }
            }
        }
    }
}
