// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gates of each port: a window for every transmission, joined and widened where the port's
//! limits ask for it. A frame of a plan leaves at once when it comes, so a window may be longer
//! than what is sent in it; the time is lost only to other traffic.

use timewire_base::Span;

use super::shape::Sent;
use super::table::{Item, MAX_PIECES, divisor};
use super::{Planner, shape};
use crate::model::{Certificate, DeviceLimits, GateWindow, LinkId, Network, PortGates, Reserve};

/// What repeats on a link.
#[derive(Clone, Copy, Debug)]
pub struct Repeated {
    pub start: i64,
    pub length: i64,
    pub interval: i64,
    pub queue: u8,
}

impl Planner {
    /// Everything sent on each link; only on the `wanted` ones, if told.
    fn sent(&self, wanted: Option<&[bool]>) -> Vec<Vec<Repeated>> {
        let network = self.problem.network();
        let mut links = vec![Vec::new(); network.links().len()];
        for id in 0..self.seats.len() {
            for (link, sent) in self.sent_by(id) {
                if wanted.is_none_or(|wanted| wanted[link.index()]) {
                    links[link.index()].push(sent);
                }
            }
        }
        links
    }

    /// Everything that a stream sends; nothing when it is rejected.
    fn sent_by(&self, id: usize) -> Vec<(LinkId, Repeated)> {
        let network = self.problem.network();
        let seat = &self.seats[id];
        let (Some(shape), Some(start)) = (&seat.shape, seat.start) else { return Vec::new() };
        let stream = self.stream(id);
        let sent = shape.sent(network, stream).into_iter();
        sent.map(|Sent { link, start: after, .. }| {
            let sent = Repeated {
                start: start + after,
                length: network.occupancy(link, stream.length_bytes).as_ns(),
                interval: stream.interval.as_ns(),
                queue: shape::queue(network, link, stream.priority),
            };
            (link, sent)
        })
        .collect()
    }

    /// The first port on a stream's way that cannot have the list for what is on it.
    pub(super) fn full_port(&self, id: usize) -> Option<Certificate> {
        let network = self.problem.network();
        let trees = self.seats[id].shape.iter().flat_map(|shape| shape.trees.iter().flatten());
        for &link in trees {
            let limits = &network.node(network.link(link).from).limits;
            let reserve = network.options().reserve;
            let is_limited = is_limited(limits, reserve);
            if limits.gate_entries == Some(0) || (!is_limited && self.has_few_windows(link, limits))
            {
                continue;
            }
            let streams = self.streams_on(link);
            let frames = |id: &usize| {
                let stream = self.stream(*id);
                (stream.interval.as_ns(), i64::from(stream.frames))
            };
            let most = windows_at_most(streams.iter().map(frames), limits, network.grid(link).0);
            if !is_limited && most.is_ok() {
                continue;
            }
            let sent = streams.iter().flat_map(|other| self.sent_by(*other));
            let sent: Vec<Repeated> =
                sent.filter(|(on, _)| *on == link).map(|(_, sent)| sent).collect();
            if let Err(needed) = port(link, &sent, limits, network) {
                return Some(gate_limit(link, needed, limits));
            }
        }
        None
    }

    /// Whether there are few enough windows, if each stream had as many frames as any has.
    fn has_few_windows(&self, link: LinkId, limits: &DeviceLimits) -> bool {
        let counts = self.table.stretches(link.index());
        let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let frames = |count: i64| count.saturating_mul(self.most_frames);
        let each = used.map(|(class, count)| (self.table.interval(class), frames(*count)));
        windows_at_most(each, limits, self.problem.network().grid(link).0).is_ok()
    }

    /// Who is on a link.
    fn streams_on(&self, link: LinkId) -> Vec<usize> {
        let items = self.table.items(link.index()).iter();
        let mut streams: Vec<usize> = items.filter_map(Item::owner).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// The gates of all ports that have gates and send something.
    pub(super) fn gates(&self) -> Vec<PortGates> {
        let network = self.problem.network();
        let mut all = Vec::new();
        for (index, sent) in self.sent(None).iter().enumerate() {
            let link = LinkId::from_index(index);
            let limits = &network.node(network.link(link).from).limits;
            if !sent.is_empty() && limits.gate_entries != Some(0) {
                all.extend(port(link, sent, limits, network).ok());
            }
        }
        all
    }

    /// By link: whether its list must be made to know that there can be one. The others have room
    /// for every window there can be.
    fn hard_ports(&self) -> Vec<bool> {
        let network = self.problem.network();
        let limits = |link: usize| {
            let link = LinkId::from_index(link);
            &network.node(network.link(link).from).limits
        };
        let mut ports: Vec<(Option<i64>, i64)> = (0..network.links().len())
            .map(|link| (Some(network.grid(LinkId::from_index(link)).0.as_ns()), 0))
            .collect();
        for (link, interval, _) in self.uses() {
            let cycle = &mut ports[link].0;
            *cycle = cycle.and_then(|cycle| common_multiple(cycle, interval));
        }
        for (link, interval, frames) in self.uses() {
            let (cycle, windows) = &mut ports[link];
            let times = cycle.map_or(i64::MAX, |cycle| cycle / interval);
            *windows = windows.saturating_add(times.saturating_mul(frames));
        }
        let is_hard = |(link, (_, windows)): (usize, (Option<i64>, i64))| {
            let limits = limits(link);
            let asked = windows > 0 && limits.gate_entries != Some(0);
            asked && (is_limited(limits, network.options().reserve) || windows > MAX_PIECES)
        };
        ports.into_iter().enumerate().map(is_hard).collect()
    }

    /// Who has a place, on each of its links: link, interval and frames.
    fn uses(&self) -> impl Iterator<Item = (usize, i64, i64)> + '_ {
        let placed = self.seats.iter().zip(self.problem.streams());
        placed.filter(|(seat, _)| seat.start.is_some()).flat_map(|(seat, stream)| {
            let links = seat.shape.iter().flat_map(|shape| shape.trees.iter().flatten());
            let (interval, frames) = (stream.interval.as_ns(), i64::from(stream.frames));
            links.map(move |link| (link.index(), interval, frames))
        })
    }

    /// Takes streams with long intervals off ports that cannot have their list.
    pub(super) fn keep_gate_limits(&mut self) {
        let hard = self.hard_ports();
        if !hard.contains(&true) {
            return;
        }
        let network = self.problem.network();
        let mut over = Vec::new();
        for (index, sent) in self.sent(Some(&hard)).into_iter().enumerate() {
            if !hard[index] {
                continue;
            }
            let link = LinkId::from_index(index);
            let limits = network.node(network.link(link).from).limits;
            let mut intervals: Vec<i64> = sent.iter().map(|sent| sent.interval).collect();
            intervals.sort_unstable();
            intervals.dedup();
            let mut kept = sent;
            while let (Err(needed), Some(most)) =
                (port(link, &kept, &limits, network), intervals.pop())
            {
                kept.retain(|sent| sent.interval < most);
                over.push((link, most, needed));
                if kept.is_empty() {
                    break;
                }
            }
        }
        let changed = !over.is_empty();
        for (link, interval, needed) in over {
            self.refuse_on(link, interval, needed);
        }
        // Other gaps are the shortest on the ports that lost a stream: their lists are others.
        if changed {
            self.keep_gate_limits();
        }
    }

    fn refuse_on(&mut self, link: LinkId, interval: i64, needed: u32) {
        let mut streams = self.streams_on(link);
        streams.retain(|id| self.stream(*id).interval.as_ns() == interval);
        let network = self.problem.network();
        let reason = gate_limit(link, needed, &network.node(network.link(link).from).limits);
        for id in streams {
            self.take(id);
            self.seats[id].reason = Some(reason.clone());
        }
    }
}

pub fn gate_limit(link: LinkId, needed: u32, limits: &DeviceLimits) -> Certificate {
    let most = u32::try_from(MAX_PIECES).unwrap_or(u32::MAX);
    let allowed = limits.gate_entries.map_or(most, |entries| entries.min(most));
    Certificate::GateLimit { link, needed, allowed }
}

/// The intervals of what is sent, one window in each.
fn each(sent: &[Repeated]) -> impl Iterator<Item = (i64, i64)> + Clone {
    sent.iter().map(|one| (one.interval, 1))
}

/// The common cycle, which is on the port's grid, and how many windows there are at most, from each
/// interval and how many windows it has.
///
/// **Errors**: they are too many; how many.
fn windows_at_most(
    intervals: impl Iterator<Item = (i64, i64)> + Clone,
    limits: &DeviceLimits,
    grid: Span,
) -> Result<(i64, i64), u32> {
    let mut cycle = grid.as_ns();
    for (interval, _) in intervals.clone() {
        cycle = common_multiple(cycle, interval).ok_or(Certificate::TOO_LONG)?;
    }
    if limits.cycle_max.is_some_and(|most| cycle > most.as_ns()) {
        return Err(Certificate::TOO_LONG);
    }
    let windows = intervals.map(|(interval, times)| (cycle / interval).saturating_mul(times));
    let count = windows.fold(0, i64::saturating_add);
    if count > MAX_PIECES {
        Err(u32::try_from(count).unwrap_or(u32::MAX))
    } else {
        Ok((cycle, count))
    }
}

fn common_multiple(cycle: i64, interval: i64) -> Option<i64> {
    if cycle % interval == 0 {
        return Some(cycle);
    }
    cycle.checked_mul(interval / divisor(cycle, interval))
}

/// The gates of a port.
///
/// **Errors**: its list cannot hold them, however much they are joined; how many entries they need.
pub fn port(
    link: LinkId,
    sent: &[Repeated],
    limits: &DeviceLimits,
    network: &Network,
) -> Result<PortGates, u32> {
    let (step, first) = network.grid(link);
    let (cycle, count) = windows_at_most(each(sent), limits, step)?;
    let mut windows: Vec<(i64, i64, u8)> = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for one in sent {
        let mut start = one.start.rem_euclid(one.interval);
        while start < cycle {
            let end = start + one.length;
            windows.push((start, end.min(cycle), one.queue));
            if end > cycle {
                windows.push((0, end - cycle, one.queue));
            }
            start += one.interval;
        }
    }
    windows.sort_unstable();
    let used: i64 = windows.iter().map(|(start, end, _)| end - start).sum();
    let mut windows = match limits.changes_apart {
        true => apart(&windows, cycle, (step.as_ns(), first.as_ns())),
        false => widened(windows, cycle, limits),
    };
    let reserve = network.options().reserve;
    let entries = join_all(&mut windows, cycle, limits);
    if !reserve.is_none_or(|reserve| is_free(&windows, cycle, reserve)) {
        return Err(Certificate::NOT_FREE);
    }
    if limits.gate_entries.is_some_and(|most| entries > most) {
        return Err(entries);
    }
    let open: i64 = windows.iter().map(|(start, end, _)| end - start).sum();
    let window = |(start, end, queue)| GateWindow {
        start: Span::from_ns(start),
        end: Span::from_ns(end),
        queue,
    };
    Ok(PortGates {
        link,
        cycle: Span::from_ns(cycle),
        windows: windows.into_iter().map(window).collect(),
        entries,
        spare: Span::from_ns(open - used),
    })
}

/// Whether no window has time that is kept free.
fn is_free(windows: &[(i64, i64, u8)], cycle: i64, reserve: Reserve) -> bool {
    let (every, lasts) = (divisor(cycle, reserve.every.as_ns()), reserve.lasts.as_ns());
    windows.iter().all(|(start, end, _)| {
        let at = start % every;
        at >= lasts && at + (end - start) <= every
    })
}

/// Whether a port's list must be made to know that there can be one, however few its windows are.
fn is_limited(limits: &DeviceLimits, reserve: Option<Reserve>) -> bool {
    limits.interval_max.is_some() || limits.cycle_max.is_some() || reserve.is_some()
}

/// Windows on the port's grid, none and no gap shorter than its shortest interval.
fn widened(sorted: Vec<(i64, i64, u8)>, cycle: i64, limits: &DeviceLimits) -> Vec<(i64, i64, u8)> {
    let grid = limits.granularity.as_ns();
    let least = limits.interval_min.as_ns().max(1);
    let mut all: Vec<(i64, i64, u8)> = Vec::with_capacity(sorted.len());
    for (start, end, queue) in sorted {
        let start = start.min((cycle - least).max(0));
        let start = start - start % grid;
        let start = if start < least { 0 } else { start };
        let end = end.max(start + least);
        let end = (end + grid - 1) / grid * grid;
        let end = if end + least > cycle { cycle } else { end };
        match all.last_mut() {
            Some(last) if last.2 == queue && start < last.1 + least => last.1 = last.1.max(end),
            _ => all.push((start, end, queue)),
        }
    }
    all
}

/// Windows that begin and end at the port's own instants only, not at the turn of the cycle.
fn apart(sorted: &[(i64, i64, u8)], cycle: i64, (step, first): (i64, i64)) -> Vec<(i64, i64, u8)> {
    let mut pieces = Vec::with_capacity(sorted.len());
    for &(start, end, queue) in sorted {
        let start = (start - first).div_euclid(step) * step + first;
        let end = first - (first - end).div_euclid(step) * step;
        if end - start >= cycle {
            return vec![(0, cycle, queue)];
        }
        pieces.push((start.max(0), end.min(cycle), queue));
        if start < 0 {
            pieces.push((start + cycle, cycle, queue));
        }
        if end > cycle {
            pieces.push((0, end - cycle, queue));
        }
    }
    pieces.sort_unstable();
    let mut all: Vec<(i64, i64, u8)> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match all.last_mut() {
            Some(last) if last.2 == piece.2 && piece.0 <= last.1 => last.1 = last.1.max(piece.1),
            _ => all.push(piece),
        }
    }
    all
}

/// Fills the shortest gaps until the port's limits are met, or nothing is left to fill; how many
/// entries the list has then. States that are longer than an entry can be have several.
fn join_all(windows: &mut Vec<(i64, i64, u8)>, cycle: i64, limits: &DeviceLimits) -> u32 {
    let mut aim = limits.gate_entries;
    loop {
        join(windows, cycle, (limits.openings, aim));
        let count = entries(windows, cycle, limits);
        let over = limits.gate_entries.map_or(0, |most| count.saturating_sub(most));
        if over == 0 || windows.len() < 2 || aim == Some(1) {
            return count;
        }
        aim = aim.map(|aim| aim.saturating_sub(over).max(1));
    }
}

/// Fills the shortest gaps until there are as few openings and states.
fn join(
    windows: &mut Vec<(i64, i64, u8)>,
    cycle: i64,
    (openings, most): (Option<u32>, Option<u32>),
) {
    let openings = openings.and_then(|most| usize::try_from(most).ok());
    let most = most.and_then(|most| usize::try_from(most).ok());
    if openings.is_none() && most.is_none() {
        return;
    }
    let mut gaps: Vec<i64> =
        windows.windows(2).map(|pair| pair[1].0 - pair[0].1).filter(|gap| *gap > 0).collect();
    gaps.sort_unstable();
    // A window that goes over the turn of the cycle opens once.
    let turns = matches!(windows.as_slice(), [first, .., last] if first.0 == 0 && last.1 == cycle);
    let opened = gaps.len() + usize::from(!turns);
    let by_openings = openings.map_or(0, |most| opened.saturating_sub(most));
    let edges = windows.first().map_or(0, |first| usize::from(first.0 > 0))
        + windows.last().map_or(0, |last| usize::from(last.1 < cycle));
    let list = windows.len() + gaps.len() + edges;
    // Each filled gap saves its own entry and one of the two windows.
    let by_entries = most.map_or(0, |most| list.saturating_sub(most).div_ceil(2));
    let filled = by_openings.max(by_entries).min(gaps.len());
    if filled == 0 && most.is_none_or(|most| list <= most) {
        return;
    }
    let limit = if filled == 0 { 0 } else { gaps[filled - 1] };
    let mut equal = filled - gaps.partition_point(|gap| *gap < limit).min(filled);
    let mut joined: Vec<(i64, i64, u8)> = Vec::new();
    for &(start, end, queue) in windows.iter() {
        let gap = joined.last().map_or(i64::MAX, |last| start - last.1);
        let fill = gap < limit || (gap == limit && equal > 0 && filled > 0);
        match joined.last_mut() {
            Some(last) if fill => {
                if gap == limit {
                    equal -= 1;
                }
                last.1 = end;
            }
            _ => joined.push((start, end, queue)),
        }
    }
    let too_many = |count: usize| most.is_some_and(|most| 2 * count - 1 + edges > most);
    if let ([only], true) = (joined.as_mut_slice(), too_many(1)) {
        (only.0, only.1) = (0, cycle);
    }
    *windows = joined;
}

/// How many entries a list of these windows and the time between them has.
fn entries(windows: &[(i64, i64, u8)], cycle: i64, limits: &DeviceLimits) -> u32 {
    let most = limits.interval_max.map_or(i64::MAX, |most| most.as_ns().max(1));
    let pieces = |length: i64| if length <= 0 { 0 } else { (length - 1) / most + 1 };
    let mut count = 0;
    let mut at = 0;
    for (start, end, _) in windows {
        count += pieces(start - at) + pieces(end - start);
        at = *end;
    }
    u32::try_from(count + pieces(cycle - at)).unwrap_or(u32::MAX)
}
