// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chains: points that one tag passes one after the other, markers of programs and hooks of the
//! kernel, on as many stations as there are: the parts of a pipeline.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use timewire_base::Span;

use super::culprit::Known;
use super::identity::{Map, own_tag};
use super::table::ratio;
use super::{Point, Settings};
use crate::event::{Event, Flags, Hook};
use timewire_stats::{HistogramSummary, LogHistogram};

/// One point: `NAME` or `STATION.NAME`; the name of a marker's point, or of a hook. A dot in the
/// name of a marker's point is fine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ChainPoint {
    /// At this station only.
    pub station: Option<String>,
    /// A hook's name (`driver-start`) stands for that hook, any other for markers.
    pub name: String,
}

impl FromStr for ChainPoint {
    type Err = String;
    fn from_str(text: &str) -> Result<ChainPoint, String> {
        let (station, name) = match text.split_once('.') {
            Some((station, name)) => (Some(station), name),
            None => (None, text),
        };
        if name.is_empty() || station.is_some_and(str::is_empty) {
            return Err(format!("`{text}` is no point: NAME or STATION.NAME"));
        }
        Ok(ChainPoint { station: station.map(str::to_owned), name: name.to_owned() })
    }
}

impl TryFrom<String> for ChainPoint {
    type Error = String;
    fn try_from(text: String) -> Result<ChainPoint, String> {
        text.parse()
    }
}

impl From<ChainPoint> for String {
    fn from(point: ChainPoint) -> String {
        point.to_string()
    }
}

impl std::fmt::Display for ChainPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.station {
            Some(station) => write!(f, "{station}.{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Two points at least, in their order.
    pub points: Vec<ChainPoint>,
    /// From the first to the last it may take so long.
    pub deadline: Option<Span>,
}

/// What the tags of a chain came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChainReport {
    /// The chain's name.
    pub name: String,
    /// Tags that passed all points in their order, and nothing was lost meanwhile.
    pub complete: u64,
    /// Of these, those that took longer than the deadline.
    pub missed: u64,
    /// Tags around which events were lost.
    pub lossy: u64,
    /// Tags that passed a point twice, or two points in the wrong order.
    pub ambiguous: u64,
    /// Times that a tag had no room: it was not followed, and nothing is known of it.
    pub left_out: u64,
    /// Tags that did not pass all: by the first point that is missing.
    pub unfinished: BTreeMap<String, u64>,
    /// From each point to the next, then from the first to the last, of complete ones.
    pub parts: Vec<ChainPart>,
}

/// From one point to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChainPart {
    /// From.
    pub from: String,
    /// To.
    pub to: String,
    /// How long it took.
    pub times: HistogramSummary,
    /// Share of the time from the first point to the last.
    pub share: f64,
}

/// A tag on its way.
#[derive(Clone, Debug)]
struct TagChain {
    at: Vec<Option<(i64, u32, u8)>>,
    twice: bool,
    last: i64,
}

#[derive(Clone, Debug)]
struct Watch {
    chain: Chain,
    ways: Map<u64, TagChain>,
    /// When to look at a tag that has passed all points; those that have not are swept.
    full: VecDeque<(i64, u64)>,
    swept: i64,
    parts: Vec<(LogHistogram, i128)>,
    complete: u64,
    missed: u64,
    lossy: u64,
    ambiguous: u64,
    left_out: u64,
    unfinished: Vec<u64>,
}

/// Chains, and the points of each.
type Route = Vec<(usize, usize)>;

/// Watches chains. It keeps the tags that are on their way.
#[derive(Clone, Debug)]
pub struct Chains {
    watches: Vec<Watch>,
    /// Which points of chains an event of this capture, station, hook and object is.
    routes: Map<(u8, u8, u8, u64), Route>,
    hooks: Vec<Hook>,
    window_ns: i64,
    longest_ns: i64,
    /// Tags on their way, and routes, at most.
    most: usize,
}

impl Chains {
    /// **Panics** when a chain has fewer than two points.
    pub fn new(chains: Vec<Chain>, settings: &Settings) -> Chains {
        let mut hooks = vec![Hook::Marker];
        let named = chains.iter().flat_map(|chain| &chain.points);
        hooks.extend(named.filter_map(|point| Hook::from_name(&point.name)));
        let watch = |chain: Chain| {
            assert!(chain.points.len() >= 2, "a chain has two points at least");
            let times = || LogHistogram::up_to(Span::from_secs(100));
            Watch {
                parts: chain.points.iter().map(|_| (times(), 0)).collect(),
                unfinished: vec![0; chain.points.len()],
                chain,
                ways: Map::default(),
                full: VecDeque::new(),
                swept: i64::MIN,
                complete: 0,
                missed: 0,
                lossy: 0,
                ambiguous: 0,
                left_out: 0,
            }
        };
        Chains {
            watches: chains.into_iter().map(watch).collect(),
            routes: Map::default(),
            hooks,
            window_ns: settings.window_ns,
            longest_ns: settings.longest_ns,
            most: settings.bounds.tags,
        }
    }

    /// Names have been learned.
    pub(super) fn learned(&mut self) {
        self.routes.clear();
    }

    pub(super) fn event(
        &mut self,
        point: &Point,
        event: &Event,
        known: &Known,
        lost: impl Fn(i64, i64) -> bool,
    ) {
        if self.watches.is_empty() {
            return;
        }
        self.settle(point.at_ns, &lost);
        if event.tag == 0 || !self.hooks.contains(&event.hook) {
            return;
        }
        let object = if event.hook == Hook::Marker { event.object } else { 0 };
        let key = (point.capture, point.station, event.hook.number(), object);
        if !self.routes.contains_key(&key) {
            let route = self.route(point, event, known);
            if self.routes.len() >= self.most {
                self.routes.clear();
            }
            self.routes.insert(key, route);
        }
        let routes = self.routes.get(&key).expect("invariant: it was put there");
        for &(chain, index) in routes {
            self.watches[chain].pass(index, point, event, (self.window_ns, self.most));
        }
    }

    fn route(&self, point: &Point, event: &Event, known: &Known) -> Route {
        let capture = usize::from(point.capture);
        let name = match event.hook {
            Hook::Marker => known.points.get(&(capture, event.object)).map(String::as_str),
            hook => Some(hook.name()),
        };
        let station = known.station(capture, point.station);
        let fits = |wanted: &ChainPoint| {
            let here = wanted.station.as_ref().is_none_or(|wanted| *wanted == station);
            // A marker's own name can have a dot in it.
            let whole = || name.is_some_and(|name| wanted.to_string() == name);
            here && Some(wanted.name.as_str()) == name || whole()
        };
        let mut found = Vec::new();
        for (chain, watch) in self.watches.iter().enumerate() {
            for (index, wanted) in watch.chain.points.iter().enumerate() {
                if fits(wanted) {
                    found.push((chain, index));
                }
            }
        }
        found
    }

    fn settle(&mut self, now: i64, lost: &impl Fn(i64, i64) -> bool) {
        let (window, longest) = (self.window_ns, self.longest_ns);
        for watch in &mut self.watches {
            while watch.full.front().is_some_and(|&(at, _)| at <= now) {
                let Some((_, tag)) = watch.full.pop_front() else { break };
                let Some(way) = watch.ways.get(&tag) else { continue };
                if way.last.saturating_add(window) > now {
                    // Something came since, and will have it looked at again.
                    continue;
                }
                watch.settle(tag, window, lost);
            }
            if now.saturating_sub(watch.swept) >= longest / 4 {
                watch.swept = now;
                let old = |way: &TagChain| way.last.saturating_add(longest) <= now;
                let ways = watch.ways.iter().filter(|(_, way)| old(way));
                let tags: Vec<u64> = ways.map(|(&tag, _)| tag).collect();
                tags.into_iter().for_each(|tag| watch.settle(tag, window, lost));
            }
        }
    }

    /// Ends: tags on their way are unfinished.
    pub(super) fn finish(&mut self, lost: impl Fn(i64, i64) -> bool) {
        let window = self.window_ns;
        for watch in &mut self.watches {
            let tags: Vec<u64> = watch.ways.keys().copied().collect();
            tags.into_iter().for_each(|tag| watch.settle(tag, window, &lost));
            watch.full.clear();
        }
    }

    /// Tags of all chains that had no room.
    pub(super) fn left_out(&self) -> u64 {
        self.watches.iter().map(|watch| watch.left_out).sum()
    }

    /// What there was until now.
    pub fn reports(&self) -> Vec<ChainReport> {
        self.watches.iter().map(Watch::report).collect()
    }
}

impl Watch {
    fn settle(&mut self, tag: u64, window: i64, lost: &impl Fn(i64, i64) -> bool) {
        let Some(way) = self.ways.remove(&tag) else { return };
        let from = way.at.iter().flatten().map(|at| at.0).min().unwrap_or(way.last);
        self.end(&way, lost(from.saturating_sub(window), way.last.saturating_add(window)));
    }

    fn pass(&mut self, index: usize, point: &Point, event: &Event, (window, most): (i64, usize)) {
        let count = self.chain.points.len();
        let fresh = || TagChain { at: vec![None; count], twice: false, last: point.at_ns };
        let tag = self.tag(event);
        if self.ways.len() >= most && !self.ways.contains_key(&tag) {
            self.left_out += 1;
            return;
        }
        let way = self.ways.entry(tag).or_insert_with(fresh);
        let place = &mut way.at[index];
        match place {
            // Of a hook the first counts: devices above each other pass it more than once.
            Some(_) if event.hook == Hook::Marker => way.twice = true,
            Some(_) => return,
            None => *place = Some((point.at_ns, point.bound_ns, point.capture)),
        }
        way.last = way.last.max(point.at_ns);
        // One that is full already waits to be looked at.
        if way.at.iter().all(Option::is_some) && self.full.len() < 2 * most {
            self.full.push_back((point.at_ns.saturating_add(window), tag));
        }
    }

    /// Where an event's tag stands. Markers of a stream's messages know less of the tag than the
    /// kernel does of the packets.
    fn tag(&self, event: &Event) -> u64 {
        let of_kernel = event.hook != Hook::Marker && event.flags.has(Flags::TAGGED);
        let has_markers =
            || self.chain.points.iter().any(|point| Hook::from_name(&point.name).is_none());
        match of_kernel && !self.ways.contains_key(&event.tag) && has_markers() {
            true => own_tag(event.tag),
            false => event.tag,
        }
    }

    fn end(&mut self, way: &TagChain, lost: bool) {
        let passed: Vec<(i64, u32, u8)> = way.at.iter().map_while(|at| *at).collect();
        let wrong = way.at.iter().flatten().collect::<Vec<_>>().windows(2).any(|two| {
            let apart = two[0].2 != two[1].2;
            let bound = if apart { i64::from(two[0].1) + i64::from(two[1].1) } else { 0 };
            two[1].0 < two[0].0 - bound
        });
        if way.twice || wrong {
            self.ambiguous += 1;
        } else if lost {
            self.lossy += 1;
        } else if passed.len() < way.at.len() {
            self.unfinished[passed.len()] += 1;
        } else {
            self.complete += 1;
            let total = passed[passed.len() - 1].0 - passed[0].0;
            let each = passed.windows(2).map(|two| two[1].0 - two[0].0);
            for ((times, sum), ns) in self.parts.iter_mut().zip(each.chain([total])) {
                times.record(Span::from_ns(ns));
                *sum += i128::from(ns);
            }
            let late = |deadline: Span| total > deadline.as_ns();
            self.missed += u64::from(self.chain.deadline.is_some_and(late));
        }
    }

    fn report(&self) -> ChainReport {
        let names: Vec<String> = self.chain.points.iter().map(ToString::to_string).collect();
        let whole = self.parts.last().map_or(0, |part| part.1);
        let mut ends: Vec<(&String, &String)> = names.iter().zip(&names[1..]).collect();
        ends.push((&names[0], &names[names.len() - 1]));
        let part =
            |((times, sum), (from, to)): (&(LogHistogram, i128), (&String, &String))| ChainPart {
                from: from.clone(),
                to: to.clone(),
                times: times.summary(),
                share: ratio(*sum, whole),
            };
        let missing = names.iter().cloned().zip(self.unfinished.iter().copied());
        ChainReport {
            name: self.chain.name.clone(),
            complete: self.complete,
            missed: self.missed,
            lossy: self.lossy,
            ambiguous: self.ambiguous,
            left_out: self.left_out,
            unfinished: missing.filter(|&(_, count)| count > 0).collect(),
            parts: self.parts.iter().zip(ends).map(part).collect(),
        }
    }
}
