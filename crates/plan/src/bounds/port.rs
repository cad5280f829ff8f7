// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a port guarantees to one traffic class.

use timewire_base::{BitsPerSecond, Span};

use super::{BoundsError, Cause, CreditClass, credit_bounds};
use crate::calculus::{Arrival, Ratio, Service};
use crate::model::{LinkId, PortGates};

/// How the frames of a class are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// Whenever no higher class has any.
    #[default]
    Strict,
    /// When it has credit as well.
    Credit {
        /// The rate that it reserves.
        idle_slope: BitsPerSecond,
    },
    /// By strict priority, after each stream has been brought back to its own rate and burst
    /// (asynchronous traffic shaping).
    Regulated,
}

/// Which classes are open from `start` to `end` of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassWindow {
    /// From the start of the cycle.
    pub start: Span,
    /// Not beyond its end.
    pub end: Span,
    /// Bit 7 is class 7.
    pub open: u8,
    /// Whether preemptable frames hold back meanwhile, and [`PortScheme::hold_advance`] before.
    pub hold: bool,
}

/// A port's gates. What is in no window is shut for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassGates {
    /// It repeats with this.
    pub cycle: Span,
    /// In order.
    pub windows: Vec<ClassWindow>,
}

impl ClassGates {
    /// Those of a plan: each window for its queue alone, and the time between for all queues that
    /// have no window. Preemptable frames hold back for a window.
    pub fn beside(gates: &PortGates) -> ClassGates {
        let scheduled = gates.windows.iter().fold(0_u8, |mask, window| mask | bit(window.queue));
        let between = |start, end| ClassWindow { start, end, open: !scheduled, hold: false };
        let (mut windows, mut until) = (Vec::new(), Span::ZERO);
        for window in &gates.windows {
            if window.start > until {
                windows.push(between(until, window.start));
            }
            let (start, end, open) = (window.start, window.end, bit(window.queue));
            windows.push(ClassWindow { start, end, open, hold: true });
            until = window.end;
        }
        if until < gates.cycle {
            windows.push(between(until, gates.cycle));
        }
        ClassGates { cycle: gates.cycle, windows }
    }

    fn is_valid(&self) -> bool {
        let mut until = Span::ZERO;
        self.cycle > Span::ZERO
            && self.windows.iter().all(|window| {
                let valid = window.start >= until && window.end > window.start;
                until = window.end;
                valid && window.end <= self.cycle
            })
    }
}

fn bit(class: u8) -> u8 {
    1_u8.checked_shl(class.into()).unwrap_or(0)
}

/// How a port chooses what to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortScheme {
    /// By class, 0 to 7; the higher goes first.
    pub classes: [Selection; 8],
    /// When classes may send; `None`: always.
    pub gates: Option<ClassGates>,
    /// Classes whose frames can be interrupted by those that are not; bit 7 is class 7.
    pub preemptable: u8,
    /// The longest frame of anybody else, who is below all streams; without the network's
    /// overhead; 0: there is nobody else. **Units**: bytes.
    pub other_bytes: u32,
    /// Anybody else can be interrupted.
    pub other_preemptable: bool,
    /// How long before a window with hold preemptable frames hold back.
    pub hold_advance: Span,
}

impl Default for PortScheme {
    /// Strict priority beside ordinary traffic: 1522 bytes are a tagged frame with check sequence.
    fn default() -> PortScheme {
        PortScheme {
            classes: [Selection::Strict; 8],
            gates: None,
            preemptable: 0,
            other_bytes: 1_522,
            other_preemptable: false,
            hold_advance: Span::ZERO,
        }
    }
}

impl PortScheme {
    /// Whether a frame of one class goes before a frame of another that waits, too: express before
    /// preemptable, else the higher class.
    ///
    /// **Source**: IEEE 802.3-2022, 99.3; IEEE 802.1Q-2022, 6.7.2.
    pub(super) fn goes_before(&self, one: u8, other: u8) -> bool {
        let is_preemptable = |class| self.preemptable & bit(class) != 0;
        match (is_preemptable(one), is_preemptable(other)) {
            (false, true) => true,
            (true, false) => false,
            _ => one > other,
        }
    }
}

/// 123 bytes of a frame cannot be divided into two fragments of the least length, so an express
/// frame waits for them, with preamble and gap. **Source**: IEEE 802.3-2022, 99.4.
pub(super) const FRAGMENT_BITS: u64 = 143 * 8;
/// What each interruption adds to the frame that is interrupted: preamble, gap and check sequence.
pub(super) const INTERRUPTION_BITS: u64 = 24 * 8;

/// What one class sends to a port, all bursts and rates rounded up.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    pub(super) arrival: Option<Arrival>,
    /// The same with what each of its frames adds when it interrupts another.
    pub(super) interrupting: Option<Arrival>,
    pub(super) longest_bits: u64,
    /// Its bound here, once it is known: bits that wait.
    pub(super) backlog_bits: Option<u64>,
}

/// Time is in nanoseconds and amounts in bits, so a rate is bit/s over 10^9.
pub(super) fn slope(bits_per_second: u64) -> Result<Ratio, BoundsError> {
    Ok(Ratio::new(bits_per_second.into(), 1_000_000_000)?)
}

/// One class of one port, and the others there.
pub(super) struct Queue<'a> {
    pub(super) link: LinkId,
    pub(super) class: u8,
    pub(super) rate: BitsPerSecond,
    pub(super) overhead_bytes: u32,
    pub(super) scheme: &'a PortScheme,
    pub(super) loads: &'a [Load],
}

impl Queue<'_> {
    /// What the class is served with at least. `None`: a higher class is without bound.
    pub(super) fn service(&self) -> Result<Option<Service>, BoundsError> {
        let closed = self.closed()?;
        let rate = slope(self.rate.get())?;
        let whole = Service::rate_latency(rate, Ratio::ZERO)?;
        let credits = self.credits()?;
        let mut above = closed.clone();
        let mut shaped = Arrival::nothing();
        for class in self.before(self.class) {
            let load = &self.loads[usize::from(class)];
            if load.arrival.is_none() {
                continue;
            }
            let Some(sent) = self.sent(class)? else { return Ok(None) };
            match credits.iter().find(|(known, _, _)| *known == class) {
                Some((_, idle, bound)) => {
                    let burst = bound.hi_credit.minus(bound.lo_credit)?.ceil();
                    let limit = Arrival::bucket(*idle, Ratio::whole(burst))?;
                    shaped = shaped.plus(&tighter(&limit, &sent)?)?;
                }
                None => above = above.plus(&sent)?,
            }
        }
        let lower = Ratio::from(self.lower_bits());
        if let Some((_, idle, bound)) = credits.iter().find(|(class, _, _)| *class == self.class) {
            return self.credited(*idle, bound.wait_bits, &above, lower).map(Some);
        }
        let block = Arrival::bucket(Ratio::ZERO, lower)?;
        Ok(Some(whole.left_by(&above.plus(&shaped)?.plus(&block)?)?))
    }

    /// With credit: its slope in the time that strict classes above leave, after the longest wait.
    ///
    /// **Source**: Mohammadpour, Stai, Mohiuddin, Le Boudec: Latency and Backlog Bounds in TSN with
    /// Credit Based Shapers and Asynchronous Traffic Shaping (2018), theorem 1.
    fn credited(
        &self,
        idle: Ratio,
        wait_bits: Ratio,
        above: &Arrival,
        lower: Ratio,
    ) -> Result<Service, BoundsError> {
        let rate = slope(self.rate.get())?;
        let limits = above.limits();
        let (taken, burst) = limits[limits.len() - 1];
        let left = rate.minus(taken)?;
        if left <= Ratio::ZERO {
            return Ok(Service::greatest(&[])?);
        }
        let meanwhile = taken.times(lower)?.over(rate)?;
        let latency = wait_bits.plus(burst)?.plus(meanwhile)?.over(left)?;
        Ok(Service::rate_latency(idle.times(left)?.over(rate)?, latency)?)
    }

    /// What a higher class sends in any time: what arrives, where whoever waits is sent at once;
    /// else what waits may come on top of it.
    fn sent(&self, class: u8) -> Result<Option<Arrival>, BoundsError> {
        let load = &self.loads[usize::from(class)];
        let interrupts = self.is_preemptable(self.class) && !self.is_preemptable(class);
        let arrival = if interrupts { &load.interrupting } else { &load.arrival };
        let Some(arrival) = arrival else { return Ok(Some(Arrival::nothing())) };
        let Some(backlog) = load.backlog_bits else { return Ok(None) };
        let has_credit = self.has_credit(class) || self.before(class).any(|it| self.has_credit(it));
        if self.scheme.gates.is_none() && !has_credit {
            return Ok(Some(arrival.clone()));
        }
        // Whatever is sent had arrived before or waited when the time began.
        let mut waits = u128::from(backlog);
        if interrupts {
            // Frames of the least length are interrupted for most often: 64 bytes and the overhead.
            let frame = u128::from(load.longest_bits.clamp(1, 672));
            waits += waits.div_ceil(frame) * u128::from(INTERRUPTION_BITS);
        }
        let waits = i128::try_from(waits).unwrap_or(i128::MAX);
        let more = Arrival::bucket(Ratio::ZERO, Ratio::whole(waits))?;
        Ok(Some(arrival.plus(&more)?))
    }

    /// The classes that go before one.
    fn before(&self, class: u8) -> impl Iterator<Item = u8> + '_ {
        (0..8).filter(move |other| self.scheme.goes_before(*other, class))
    }

    fn has_credit(&self, class: u8) -> bool {
        matches!(self.scheme.classes[usize::from(class)], Selection::Credit { .. })
    }

    fn is_preemptable(&self, class: u8) -> bool {
        self.scheme.preemptable & bit(class) != 0
    }

    /// The longest frame from below that can be under way when a frame of the class comes.
    fn lower_bits(&self) -> u64 {
        self.lower_than(self.class)
    }

    fn lower_than(&self, class: u8) -> u64 {
        let cut = |bits: u64, preemptable: bool| {
            if preemptable && !self.is_preemptable(class) { bits.min(FRAGMENT_BITS) } else { bits }
        };
        let mut longest = 0;
        for lower in (0..8).filter(|lower| self.scheme.goes_before(class, *lower)) {
            if self.open_together(lower, class) {
                let bits = self.loads[usize::from(lower)].longest_bits;
                longest = longest.max(cut(bits, self.is_preemptable(lower)));
            }
        }
        let other = self.scheme.other_bytes;
        if other > 0 {
            let bits = u64::from(other.saturating_add(self.overhead_bytes)) * 8;
            longest = longest.max(cut(bits, self.scheme.other_preemptable));
        }
        longest
    }

    fn open_together(&self, one: u8, other: u8) -> bool {
        let both = bit(one) | bit(other);
        let Some(gates) = &self.scheme.gates else { return true };
        gates.windows.iter().any(|window| window.open & both == both)
    }

    /// Each class with credit, from the highest: its slope and what its credit can be.
    fn credits(&self) -> Result<Vec<(u8, Ratio, super::CreditBound)>, BoundsError> {
        let mut classes = Vec::new();
        for class in (0..8_u8).rev() {
            if let Selection::Credit { idle_slope } = self.scheme.classes[usize::from(class)] {
                let longest_bits = self.loads[usize::from(class)].longest_bits;
                classes.push((class, CreditClass { idle_slope, longest_bits }));
            } else if !classes.is_empty()
                && self.loads[usize::from(class)].arrival.is_some()
                && (0..class).any(|lower| self.has_credit(lower))
            {
                return Err(BoundsError::Between { link: self.link, class });
            }
        }
        let Some((lowest, _)) = classes.last() else { return Ok(Vec::new()) };
        let lower = match &self.scheme.gates {
            None => self.lower_than(*lowest),
            // Who is open together with whom differs from class to class.
            Some(_) => {
                let each = classes.iter().map(|(class, _)| self.lower_than(*class));
                each.max().unwrap_or(0)
            }
        };
        let plain: Vec<CreditClass> = classes.iter().map(|(_, class)| *class).collect();
        let bounds = credit_bounds(self.rate, &plain, lower)?;
        classes
            .into_iter()
            .zip(bounds)
            .map(|((class, credit), bound)| Ok((class, slope(credit.idle_slope.get())?, bound)))
            .collect()
    }

    /// The time in which the class's gate is shut, or too near to it for its longest frame, as
    /// traffic that goes first: its rate and burst.
    fn closed(&self) -> Result<Arrival, BoundsError> {
        let Some(gates) = &self.scheme.gates else { return Ok(Arrival::nothing()) };
        if !gates.is_valid() {
            return Err(BoundsError::Gates { link: self.link });
        }
        let rate = u128::from(self.rate.get());
        let guard = self.longest_ns(rate);
        let cycle = gates.cycle.as_ns();
        let open = self.usable(gates, guard);
        let time: i64 = open.iter().map(|(start, end)| end - start).sum();
        let shut = cycle - time;
        let most = most_shut(&open, cycle, shut);
        let all = slope(self.rate.get())?;
        let rate = all.times(Ratio::new(shut.into(), cycle.into())?)?;
        let burst = all.times(Ratio::new(most, cycle.into())?)?;
        Ok(Arrival::bucket(rate, Ratio::whole(burst.ceil()))?)
    }

    /// When a frame of the class may start so that its longest ends in time. A window that goes on
    /// over the turn of the cycle is one: a frame may end in its second part.
    fn usable(&self, gates: &ClassGates, guard: i64) -> Vec<(i64, i64)> {
        let cycle = gates.cycle.as_ns();
        let mut open = joined(gates, self.class);
        if self.is_preemptable(self.class) {
            for window in gates.windows.iter().filter(|window| window.hold) {
                let advance = self.scheme.hold_advance.as_ns().min(cycle);
                let after = self.rest_after(window).min(cycle);
                let held = (window.start.as_ns() - advance, window.end.as_ns() + after);
                open = without(&open, cycle, held);
            }
        }
        if open.first() == Some(&(0, cycle)) {
            return open;
        }
        let goes_on = open.first().filter(|first| first.0 == 0).map_or(0, |first| first.1);
        for window in &mut open {
            let more = if window.1 == cycle { goes_on } else { 0 };
            window.1 = window.1.saturating_add(more).saturating_sub(guard).min(window.1);
        }
        open.retain(|(start, end)| end > start);
        open
    }

    /// How long the rest of a frame takes that a hold has interrupted: it goes first after that. A
    /// frame whose gate shuts for the hold would have ended before.
    fn rest_after(&self, window: &ClassWindow) -> i64 {
        let shuts = window.open & self.scheme.preemptable == 0;
        let loads = self.loads.iter().enumerate();
        let own = loads.filter(|(class, _)| self.scheme.preemptable >> class & 1 == 1);
        let longest = own.map(|(_, load)| load.longest_bits).max().unwrap_or(0);
        let rest = if shuts { FRAGMENT_BITS } else { longest };
        let bits = u128::from(rest + INTERRUPTION_BITS) * 1_000_000_000;
        i64::try_from(bits.div_ceil(u128::from(self.rate.get()))).unwrap_or(i64::MAX)
    }

    /// How long the longest frame of the class takes, rounded up.
    fn longest_ns(&self, rate: u128) -> i64 {
        let longest = u128::from(self.loads[usize::from(self.class)].longest_bits);
        i64::try_from((longest * 1_000_000_000).div_ceil(rate)).unwrap_or(i64::MAX)
    }

    /// Why more comes than is served.
    pub(super) fn shortage(
        &self,
        arriving: &Arrival,
        service: &Service,
    ) -> Result<Cause, BoundsError> {
        if let Some(gates) = &self.scheme.gates {
            let lengths = |guard| {
                let open = self.usable(gates, guard).into_iter();
                open.map(|(start, end)| end - start)
            };
            let needed = self.longest_ns(u128::from(self.rate.get()));
            if lengths(0).next().is_none() {
                return Ok(Cause::Shut);
            }
            if lengths(needed).next().is_none() {
                let longest = longest_window(gates, self.class);
                let (needed, longest) = (Span::from_ns(needed), Span::from_ns(longest));
                return Ok(Cause::NoWindow { needed, longest });
            }
        }
        let bps = |rate: Ratio| rate.times(Ratio::whole(1_000_000_000));
        let up = |rate: Ratio| bps(rate).map(|it| u64::try_from(it.ceil()).unwrap_or(u64::MAX));
        let mut higher = Ratio::ZERO;
        for class in self.before(self.class) {
            if let Some(sent) = self.sent(class)? {
                higher = higher.plus(sent.rate())?;
            }
        }
        let reserved_bps = match self.scheme.classes[usize::from(self.class)] {
            Selection::Credit { idle_slope } => Some(idle_slope.get()),
            _ => None,
        };
        Ok(Cause::Overload {
            arriving_bps: up(arriving.rate())?,
            left_bps: u64::try_from(bps(service.rate())?.floor()).unwrap_or(0),
            link_bps: self.rate.get(),
            gates_bps: up(self.closed()?.rate())?,
            higher_bps: up(higher)?,
            reserved_bps,
        })
    }
}

/// The longest time for which a class's gate is open, over the turn of the cycle as well.
fn longest_window(gates: &ClassGates, class: u8) -> i64 {
    let open = joined(gates, class);
    let lengths = open.iter().map(|(start, end)| end - start);
    let turn = match (open.first(), open.last()) {
        (Some((0, first)), Some((start, end))) if *end == gates.cycle.as_ns() => {
            first + end - start
        }
        _ => 0,
    };
    lengths.fold(turn, i64::max).min(gates.cycle.as_ns())
}

/// How much more is shut than on average, at most, from the end of a window until one opens; times
/// the cycle. What is shut since the cycle began, less the average, is the same a cycle later, so
/// the greatest at a start and the least at an end are the two instants.
fn most_shut(open: &[(i64, i64)], cycle: i64, shut: i64) -> i128 {
    let mut used = 0;
    let mut range: Option<(i128, i128)> = None;
    for (start, end) in open {
        let beyond = |at: i64, used: i64| {
            i128::from(at - used) * i128::from(cycle) - i128::from(at) * i128::from(shut)
        };
        let opens = beyond(*start, used);
        used += end - start;
        let ends = beyond(*end, used);
        range =
            Some(range.map_or((ends, opens), |(least, most)| (least.min(ends), most.max(opens))));
    }
    range.map_or(i128::from(cycle) * i128::from(cycle), |(least, most)| (most - least).max(0))
}

/// When the class's gate is open, windows that touch joined within the cycle.
fn joined(gates: &ClassGates, class: u8) -> Vec<(i64, i64)> {
    let mut open: Vec<(i64, i64)> = Vec::new();
    for window in gates.windows.iter().filter(|window| window.open & bit(class) != 0) {
        let (start, end) = (window.start.as_ns(), window.end.as_ns());
        match open.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => open.push((start, end)),
        }
    }
    open
}

/// What is left of `open` beside a stretch, which may begin before the cycle and end after it.
fn without(open: &[(i64, i64)], cycle: i64, (from, until): (i64, i64)) -> Vec<(i64, i64)> {
    let mut left = open.to_vec();
    for shift in [-cycle, 0, cycle] {
        let (from, until) = (from + shift, until + shift);
        let parts = |(start, end): (i64, i64)| [(start, end.min(from)), (start.max(until), end)];
        left = left.into_iter().flat_map(parts).filter(|(start, end)| end > start).collect();
    }
    left
}

/// Both limits at once.
fn tighter(one: &Arrival, other: &Arrival) -> Result<Arrival, BoundsError> {
    let mut limits = one.limits();
    limits.extend(other.limits());
    Ok(Arrival::buckets(&limits)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// second method: from the end of each window to the start of each that follows.
    fn slow(open: &[(i64, i64)], cycle: i64, shut: i64) -> i128 {
        let mut most = i128::from(if open.is_empty() { cycle } else { 0 }) * i128::from(cycle);
        for (index, (_, from)) in open.iter().enumerate() {
            let mut used = 0;
            for step in 1..=open.len() {
                let next = open[(index + step) % open.len()];
                let turn = if index + step >= open.len() { cycle } else { 0 };
                let passed = next.0 + turn - from;
                let more = i128::from(passed - used) * i128::from(cycle)
                    - i128::from(passed) * i128::from(shut);
                most = most.max(more);
                used += next.1 - next.0;
            }
        }
        most
    }

    proptest::proptest! {
        #[test]
        fn t0_what_is_shut_at_most_is_the_worst_of_all_pairs(
            lengths in proptest::collection::vec((0_i64..30, 1_i64..30), 0..8),
            rest in 0_i64..30,
        ) {
            let (mut open, mut at) = (Vec::new(), 0);
            for (gap, length) in lengths {
                open.push((at + gap, at + gap + length));
                at += gap + length;
            }
            let cycle = at + rest + 1;
            let shut = cycle - open.iter().map(|(start, end)| end - start).sum::<i64>();
            let (quick, slow) = (most_shut(&open, cycle, shut), slow(&open, cycle, shut));
            proptest::prop_assert_eq!(quick, slow);
        }
    }
}
