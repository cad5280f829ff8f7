// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result tables of tsnkit 0.3, read back as a plan: routes, starts at the talkers, queues, and
//! windows of the gates, in which frames are followed from link to link.
//!
//! A frame starts in the first window of its queue that has room for it once it is there; frames
//! take windows in the order in which they come. Where there is no such window it starts at once,
//! and who checks the plan finds the gate shut.
//!
//! A stream with a start for each of several intervals of a cycle becomes as many streams, `0#1`
//! for the second of stream 0.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use timewire_base::Span;

use super::csv::{Row, Table, TableError, quoted};
use crate::model::{
    Admission, GateWindow, LinkId, Network, Plan, PortGates, Problem, Release, Stream, StreamId,
    Transmission, greatest_divisor,
};

/// The names and contents of the tables.
#[derive(Clone, Copy, Debug)]
pub struct TsnkitTables<'a> {
    /// `link,queue,start,end,cycle`.
    pub gcl: (&'a str, &'a [u8]),
    /// `stream,frame,offset`.
    pub offset: (&'a str, &'a [u8]),
    /// `stream,frame,link,queue`.
    pub queue: (&'a str, &'a [u8]),
    /// `stream,link`.
    pub route: (&'a str, &'a [u8]),
    /// `stream,frame,delay`, where there is one.
    pub delay: Option<(&'a str, &'a [u8])>,
}

/// What the tables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TsnkitResult {
    /// The streams, as the tables have them.
    pub problem: Problem,
    /// Their plan; its gates say nothing of entries and spare time.
    pub plan: Plan,
    /// The delays that the tables claim.
    pub delays: Vec<(StreamId, Span)>,
}

const LONGEST_NS: i64 = 4_000_000_000_000_000;
/// The most frames of all streams in a cycle on all their links.
const MAX_INSTANCES: i64 = 20_000_000;
/// The most windows that are looked at for one frame.
const MAX_LOOKS: usize = 10_000;

const FRAME: (&str, &[&str]) = ("frame", &["ins"]);
const GCL: &[(&str, &[&str])] =
    &[("link", &[]), ("queue", &[]), ("start", &[]), ("end", &[]), ("cycle", &[])];
const OFFSET: &[(&str, &[&str])] = &[("stream", &[]), FRAME, ("offset", &[])];
const QUEUE: &[(&str, &[&str])] = &[("stream", &[]), FRAME, ("link", &[]), ("queue", &[])];
const ROUTE: &[(&str, &[&str])] = &[("stream", &[]), ("link", &[])];
const DELAY: &[(&str, &[&str])] = &[("stream", &[]), FRAME, ("delay", &[])];

/// Reads the tables of a result for a problem.
///
/// **Errors**: the first mistake, with its place and what would be right.
pub fn read_tsnkit_result(
    problem: &Problem,
    tables: &TsnkitTables,
) -> Result<TsnkitResult, TableError> {
    let network = problem.network();
    let named = |table: &(&str, &[u8])| table.0.to_owned();
    let mut links = BTreeMap::new();
    for (index, link) in network.links().iter().enumerate() {
        links.insert(link.name.as_str(), LinkId::from_index(index));
    }
    let names = Names { problem, links };
    let offsets = offsets(&names, tables.offset)?;
    let (problem, parts) = divided(problem, &offsets).map_err(|what| TableError {
        file: named(&tables.offset),
        line: 1,
        column: "offset".to_owned(),
        what,
        remedy: "as many starts as intervals in a cycle, or one".to_owned(),
    })?;
    let routes = routes(&names, tables.route)?;
    let queues = queues(&names, tables.queue)?;
    for (own, part) in &parts {
        let links = routes.get(own).into_iter().flatten();
        let has = |link: &LinkId| queues.contains_key(&(*own, *part, *link));
        if let Some(missed) = links.copied().find(|link| !has(link)) {
            let (stream, link) = (&names.problem.stream(*own).name, &network.link(missed).name);
            return Err(TableError {
                file: named(&tables.queue),
                line: 1,
                column: "queue".to_owned(),
                what: format!("frame {part} of stream {stream} has no queue on {link}"),
                remedy: "a line for each frame and link of a route".to_owned(),
            });
        }
    }
    let mut gates = Gates::read(&names, tables.gcl)?;
    let instances = problem.streams().iter().zip(&parts).map(|(stream, (own, _))| {
        let turns = problem.cycle().as_ns() / stream.interval.as_ns();
        let links = routes.get(own).map_or(0, Vec::len);
        turns.saturating_mul(i64::try_from(links).unwrap_or(i64::MAX))
    });
    let instances = instances.fold(0, i64::saturating_add);
    if instances > MAX_INSTANCES {
        return Err(TableError {
            file: named(&tables.route),
            line: 1,
            column: String::new(),
            what: format!("{instances} frames in a cycle of {}", problem.cycle()),
            remedy: format!("at most {MAX_INSTANCES}"),
        });
    }
    let given = Given { problem: &problem, parts: &parts, offsets, routes, queues };
    let admitted = given.follow(&mut gates);
    let plan =
        Plan { cycle: problem.cycle(), admitted, refused: Vec::new(), gates: gates.windows() };
    let delays = tables.delay.map_or(Ok(Vec::new()), |table| delays(&names, &parts, table))?;
    Ok(TsnkitResult { problem, plan, delays })
}

/// What the tables' names mean.
struct Names<'a> {
    problem: &'a Problem,
    links: BTreeMap<&'a str, LinkId>,
}

impl Names<'_> {
    fn stream(&self, table: &Table, row: &Row) -> Result<StreamId, TableError> {
        let text = table.field(row, "stream");
        let whole = text.strip_suffix(".0").unwrap_or(text);
        self.problem.find(whole).ok_or_else(|| {
            let what = format!("{} is no stream of the task", quoted(text));
            row.error("stream", &what, "the number of a stream")
        })
    }

    fn link(&self, table: &Table, row: &Row) -> Result<LinkId, TableError> {
        let text = table.field(row, "link");
        let inner = text.trim_matches(|c| "()[] ".contains(c));
        let name = inner.split_once(',').map(|(a, b)| format!("({}, {})", a.trim(), b.trim()));
        let found = name.and_then(|name| self.links.get(name.as_str()).copied());
        found.ok_or_else(|| {
            let what = format!("{} is no link of the network", quoted(text));
            row.error("link", &what, "two numbers of nodes, such as \"(0, 1)\"")
        })
    }
}

fn frame(table: &Table, row: &Row) -> Result<u32, TableError> {
    let number = table.number(row, "frame", 0, 1_000_000, "a frame")?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// By stream and interval of the cycle: the start at the talker.
type Offsets = BTreeMap<(StreamId, u32), i64>;

fn offsets(names: &Names, table: (&str, &[u8])) -> Result<Offsets, TableError> {
    let table = Table::read(table.0, table.1, OFFSET)?;
    let mut all = Offsets::new();
    for row in table.rows() {
        let key = (names.stream(&table, row)?, frame(&table, row)?);
        let offset = table.number(row, "offset", 0, LONGEST_NS, "nanoseconds")?;
        if all.insert(key, offset).is_some() {
            return Err(row.error("frame", "it was there before", "each frame of a stream once"));
        }
    }
    Ok(all)
}

/// By stream of the divided problem: the stream of the task and its interval of the cycle.
type Parts = Vec<(StreamId, u32)>;

/// Streams with several starts, each interval on its own.
fn divided(problem: &Problem, offsets: &Offsets) -> Result<(Problem, Parts), String> {
    let mut made =
        Problem::new(problem.network().clone(), Vec::new()).map_err(|error| error.to_string())?;
    let mut parts = Parts::new();
    for (index, stream) in problem.streams().iter().enumerate() {
        let id = StreamId::from_index(index);
        let last = offsets.range((id, 0)..=(id, u32::MAX)).next_back();
        let count = last.map_or(1, |((_, frame), _)| i64::from(*frame) + 1);
        for part in 0..count {
            let number = u32::try_from(part).unwrap_or(u32::MAX);
            let one = if count == 1 { stream.clone() } else { interval(stream, part, count)? };
            made.add(one).map_err(|error| error.to_string())?;
            parts.push((id, number));
        }
    }
    Ok((made, parts))
}

/// One interval of several as a stream of its own.
fn interval(stream: &Stream, part: i64, count: i64) -> Result<Stream, String> {
    let long = || format!("{count} starts of stream {} are too many", stream.name);
    let mut one = stream.clone();
    one.name = format!("{}#{part}", stream.name);
    one.interval = stream.interval.checked_mul(count).ok_or_else(long)?;
    let earliest = stream.interval.checked_mul(part).ok_or_else(long)?;
    let latest = Some(earliest + stream.interval - Span::from_ns(1));
    one.release = Release { earliest, latest };
    Ok(one)
}

fn routes(
    names: &Names,
    table: (&str, &[u8]),
) -> Result<BTreeMap<StreamId, Vec<LinkId>>, TableError> {
    let table = Table::read(table.0, table.1, ROUTE)?;
    let mut all: BTreeMap<StreamId, Vec<LinkId>> = BTreeMap::new();
    for row in table.rows() {
        let (stream, link) = (names.stream(&table, row)?, names.link(&table, row)?);
        all.entry(stream).or_default().push(link);
    }
    let network = names.problem.network();
    for (id, links) in &mut all {
        *links = outwards(network, names.problem.stream(*id), links);
    }
    Ok(all)
}

/// The links of a stream from its talker; what does not hang together comes last.
fn outwards(network: &Network, stream: &Stream, links: &[LinkId]) -> Vec<LinkId> {
    let mut leaving: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, link) in links.iter().enumerate() {
        leaving.entry(network.link(*link).from.0).or_default().push(place);
    }
    let (mut taken, mut order) = (vec![false; links.len()], Vec::new());
    let mut open = vec![stream.talker.0];
    while let Some(node) = open.pop() {
        for place in leaving.remove(&node).into_iter().flatten() {
            taken[place] = true;
            order.push(links[place]);
            open.push(network.link(links[place]).to.0);
        }
    }
    order.extend(links.iter().zip(taken).filter(|(_, taken)| !taken).map(|(link, _)| *link));
    order
}

/// By stream, interval and link: its queue.
type Queues = BTreeMap<(StreamId, u32, LinkId), u8>;

fn queues(names: &Names, table: (&str, &[u8])) -> Result<Queues, TableError> {
    let table = Table::read(table.0, table.1, QUEUE)?;
    let mut all = Queues::new();
    for row in table.rows() {
        let link = names.link(&table, row)?;
        let key = (names.stream(&table, row)?, frame(&table, row)?, link);
        let queue = table.number(row, "queue", 0, 7, "a queue")?;
        all.insert(key, u8::try_from(queue).unwrap_or(7));
    }
    Ok(all)
}

fn delays(
    names: &Names,
    parts: &Parts,
    table: (&str, &[u8]),
) -> Result<Vec<(StreamId, Span)>, TableError> {
    let table = Table::read(table.0, table.1, DELAY)?;
    let mut all = Vec::new();
    for row in table.rows() {
        let part = (names.stream(&table, row)?, frame(&table, row)?);
        let delay = table.number(row, "delay", 0, LONGEST_NS, "nanoseconds")?;
        let Some(place) = parts.iter().position(|own| *own == part) else {
            return Err(row.error("frame", "it has no start", "a frame of the table of offsets"));
        };
        all.push((StreamId::from_index(place), Span::from_ns(delay)));
    }
    Ok(all)
}

/// A window, and until when frames have taken it.
struct Window {
    start: i64,
    end: i64,
    taken: i64,
}

/// The windows of all ports.
struct Gates {
    cycles: BTreeMap<LinkId, i64>,
    /// By link and queue, in order.
    windows: BTreeMap<(LinkId, u8), Vec<Window>>,
}

impl Gates {
    fn read(names: &Names, table: (&str, &[u8])) -> Result<Gates, TableError> {
        let table = Table::read(table.0, table.1, GCL)?;
        let mut gates = Gates { cycles: BTreeMap::new(), windows: BTreeMap::new() };
        for row in table.rows() {
            let link = names.link(&table, row)?;
            let queue = table.number(row, "queue", 0, 7, "a queue")?;
            let queue = u8::try_from(queue).unwrap_or(7);
            let cycle = table.number(row, "cycle", 1, LONGEST_NS, "nanoseconds")?;
            let start = table.number(row, "start", 0, LONGEST_NS, "nanoseconds")?;
            let end = table.number(row, "end", start, LONGEST_NS, "nanoseconds")?;
            if start >= cycle || end > start + cycle {
                let what = format!("it begins or lasts beyond the cycle of {cycle}");
                return Err(row.error("start", &what, "a window within its cycle"));
            }
            if *gates.cycles.entry(link).or_insert(cycle) != cycle {
                return Err(row.error("cycle", "the link had another", "one cycle for a link"));
            }
            if end > start {
                let window = Window { start, end, taken: start };
                gates.windows.entry((link, queue)).or_default().push(window);
            }
        }
        for ((link, _), windows) in &mut gates.windows {
            let cycle = gates.cycles[link];
            windows.sort_unstable_by_key(|window| (window.start, window.end));
            // One that ends with the cycle goes on with one that begins with it.
            let wraps = windows.len() > 1
                && windows[0].start == 0
                && windows.last().is_some_and(|last| last.end == cycle);
            if wraps {
                let first = windows.remove(0);
                if let Some(last) = windows.last_mut() {
                    last.end += first.end;
                }
            }
        }
        Ok(gates)
    }

    /// The first instant from `at` in a window with room for so long. Windows that are taken are
    /// passed over.
    fn fit(&self, link: LinkId, queue: u8, at: i64, length: i64) -> Option<i64> {
        let windows = self.windows.get(&(link, queue))?;
        let cycle = self.cycles[&link];
        let (phase, round) = (at.rem_euclid(cycle), at.div_euclid(cycle) * cycle);
        // A window that goes over the end of the cycle is there from the cycle before.
        let turns = [round - cycle, round, round + cycle];
        let looks = turns.into_iter().flat_map(|turn| {
            let from = match turn - round {
                0 => windows.partition_point(|window| window.end <= phase),
                shift if shift < 0 => windows.partition_point(|window| window.end <= cycle),
                _ => 0,
            };
            windows[from..].iter().map(move |window| (turn, window))
        });
        let fits = |(turn, window): (i64, &Window)| {
            let start = at.max(turn + window.start).max(turn + window.taken);
            (start + length <= turn + window.end).then_some(start)
        };
        looks.take(MAX_LOOKS).find_map(fits)
    }

    /// A frame is sent then.
    fn take(&mut self, link: LinkId, queue: u8, start: i64, length: i64) {
        let Some(cycle) = self.cycles.get(&link) else { return };
        let phase = start.rem_euclid(*cycle);
        let Some(windows) = self.windows.get_mut(&(link, queue)) else { return };
        for at in [phase, phase + cycle] {
            let place = windows.partition_point(|window| window.end <= at);
            if let Some(window) = windows.get_mut(place)
                && window.start <= at
            {
                window.taken = window.taken.max(at + length);
                return;
            }
        }
    }

    /// As a plan has them: touching ones of a queue are one.
    fn windows(&self) -> Vec<PortGates> {
        let mut ports: BTreeMap<LinkId, Vec<(i64, i64, u8)>> = BTreeMap::new();
        for ((link, queue), windows) in &self.windows {
            let cycle = self.cycles[link];
            let list = ports.entry(*link).or_default();
            for window in windows {
                list.push((window.start, window.end.min(cycle), *queue));
                if window.end > cycle {
                    list.push((0, window.end - cycle, *queue));
                }
            }
        }
        let made = ports.into_iter().map(|(link, mut list)| {
            list.sort_unstable();
            let mut windows: Vec<GateWindow> = Vec::new();
            for (start, end, queue) in list {
                let (start, end) = (Span::from_ns(start), Span::from_ns(end));
                match windows.last_mut() {
                    Some(last) if last.end == start && last.queue == queue => last.end = end,
                    _ => windows.push(GateWindow { start, end, queue }),
                }
            }
            let cycle = Span::from_ns(self.cycles[&link]);
            PortGates { link, cycle, windows, entries: 0, spare: Span::ZERO }
        });
        made.collect()
    }
}

struct Given<'a> {
    problem: &'a Problem,
    parts: &'a Parts,
    offsets: Offsets,
    routes: BTreeMap<StreamId, Vec<LinkId>>,
    queues: Queues,
}

impl Given<'_> {
    /// The frames of all streams, in the order in which they are there.
    fn follow(&self, gates: &mut Gates) -> Vec<Admission> {
        let network = self.problem.network();
        let mut admitted: BTreeMap<StreamId, Vec<Option<Transmission>>> = BTreeMap::new();
        let mut open: BinaryHeap<Reverse<(i64, StreamId, usize)>> = BinaryHeap::new();
        for (place, (own, part)) in self.parts.iter().enumerate() {
            let id = StreamId::from_index(place);
            let stream = self.problem.stream(id);
            let (Some(offset), Some(links)) =
                (self.offsets.get(&(*own, *part)), self.routes.get(own))
            else {
                continue;
            };
            let start = stream.release.earliest.as_ns() + offset;
            admitted.insert(id, vec![None; links.len()]);
            for (hop, link) in links.iter().enumerate() {
                if network.link(*link).from == stream.talker {
                    open.push(Reverse((start, id, hop)));
                }
            }
        }
        while let Some(Reverse((at, id, hop))) = open.pop() {
            let (own, part) = self.parts[id.index()];
            let Some(sent) = admitted.get_mut(&id) else { continue };
            if sent[hop].is_some() {
                continue;
            }
            let (stream, links) = (self.problem.stream(id), &self.routes[&own]);
            let link = links[hop];
            let queue = self.queues.get(&(own, part, link)).copied().unwrap_or(0);
            let length = network.occupancy(link, stream.length_bytes);
            let fits = gates.fit(link, queue, at, length.as_ns());
            let start = fits.filter(|start| *start < 2 * LONGEST_NS).unwrap_or(at);
            self.taken(gates, stream, link, queue, start);
            let there = start + length.as_ns() + network.link(link).propagation.as_ns();
            let there = there + network.node(network.link(link).to).processing_max.as_ns();
            let there = there + network.options().sync_error.as_ns();
            for (next, after) in links.iter().enumerate() {
                if network.link(*after).from == network.link(link).to && sent[next].is_none() {
                    open.push(Reverse((there, id, next)));
                }
            }
            let start = Span::from_ns(start);
            sent[hop] = Some(Transmission { link, frame: 0, copy: 0, queue, start });
        }
        // Links that nothing comes to are told as they stand, for who checks.
        let rest = |id: StreamId, hop: usize| {
            let (own, part) = self.parts[id.index()];
            let link = self.routes[&own][hop];
            let queue = self.queues.get(&(own, part, link)).copied().unwrap_or(0);
            Transmission { link, frame: 0, copy: 0, queue, start: Span::ZERO }
        };
        let made = admitted.into_iter().map(|(id, sent)| {
            let each = sent.into_iter().enumerate();
            let transmissions = each.map(|(hop, sent)| sent.unwrap_or_else(|| rest(id, hop)));
            Admission { stream: id, transmissions: transmissions.collect() }
        });
        made.collect()
    }

    fn taken(&self, gates: &mut Gates, stream: &Stream, link: LinkId, queue: u8, start: i64) {
        let length = self.problem.network().occupancy(link, stream.length_bytes).as_ns();
        let Some(cycle) = gates.cycles.get(&link).copied() else { return };
        let shared = greatest_divisor(Span::from_ns(cycle), stream.interval).as_ns();
        // A cycle that does not fit to the interval is told by who checks.
        let turns = (cycle / shared).min(MAX_INSTANCES);
        let turns = turns.min(self.problem.cycle().as_ns() / stream.interval.as_ns());
        for turn in 0..turns {
            gates.take(link, queue, start + turn * stream.interval.as_ns(), length);
        }
    }
}
