// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of tsnkit 0.3: streams and network in, a plan out.
//!
//! Its arithmetic has no overhead around frames. A rate is a code: 1 for 1 Gbit/s, and 10, 100 and
//! 1000 for a tenth, a hundredth and a thousandth of it, as its documentation says. The processing
//! of a link is that of the node that sends on it. A node with one link out and one in is an end
//! station.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use timewire_base::{BitsPerSecond, Span};

use super::csv::{Row, Table, TableError, quoted};
use crate::model::{Link, Network, NetworkOptions, Node, NodeId, Plan, Problem, Role, Stream};
use crate::words;

/// How the tables are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tsnkit {
    /// Lengths are rounded up to 100 bytes, and times to 100 ns, as tsnkit does.
    pub round: bool,
    /// Bytes around each frame; tsnkit has 0.
    pub overhead_bytes: u32,
}

/// The tables of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TsnkitPlan {
    /// `link,queue,start,end,cycle`: a window for each transmission; one that goes beyond the end
    /// of the cycle is two.
    pub gcl: String,
    /// `stream,frame,offset`: starts at the talker.
    pub offset: String,
    /// `stream,frame,link,queue`.
    pub queue: String,
    /// `stream,link`.
    pub route: String,
    /// `stream,frame,delay`: from the start at the talker to the last listener.
    pub delay: String,
}

impl TsnkitPlan {
    /// The end of each file's name, and its text.
    pub fn files(&self) -> [(&'static str, &str); 5] {
        [
            ("-GCL.csv", &self.gcl),
            ("-OFFSET.csv", &self.offset),
            ("-QUEUE.csv", &self.queue),
            ("-ROUTE.csv", &self.route),
            ("-DELAY.csv", &self.delay),
        ]
    }
}

const LONGEST_NS: i64 = 1_000_000_000_000;
const TASK: &[(&str, &[&str])] = &[
    ("stream", &["id"]),
    ("src", &[]),
    ("dst", &[]),
    ("size", &[]),
    ("period", &[]),
    ("deadline", &[]),
    ("jitter", &[]),
];
const TOPO: &[(&str, &[&str])] =
    &[("link", &[]), ("q_num", &[]), ("rate", &[]), ("t_proc", &[]), ("t_prop", &[])];

/// A problem from a table of streams and a table of links, each with its file's name.
///
/// **Errors**: the first mistake, with its place and what would be right.
pub fn read_tsnkit(
    task: (&str, &[u8]),
    topo: (&str, &[u8]),
    how: Tsnkit,
) -> Result<Problem, TableError> {
    let links = Table::read(topo.0, topo.1, TOPO)?;
    let (network, ids) = network(&links, how)?;
    let table = Table::read(task.0, task.1, TASK)?;
    let empty = |error: crate::model::ModelError| {
        table.error(&error.to_string(), "see the bounds of a stream in the book")
    };
    let mut problem = Problem::new(network, Vec::new()).map_err(empty)?;
    for row in table.rows() {
        let stream = stream(&table, row, &problem, &ids, how)?;
        problem.add(stream).map_err(|error| {
            row.error("", &error.to_string(), "streams differ in their number; mind the bounds")
        })?;
    }
    Ok(problem)
}

/// Nodes by their number in the tables.
type Ids = BTreeMap<i64, NodeId>;

fn network(table: &Table, how: Tsnkit) -> Result<(Network, Ids), TableError> {
    let mut ends = Vec::new();
    let mut count: BTreeMap<i64, usize> = BTreeMap::new();
    for row in table.rows() {
        let pair = link(table, row)?;
        *count.entry(pair.0).or_insert(0) += 1;
        *count.entry(pair.1).or_insert(0) += 1;
        ends.push(pair);
    }
    let ids: Ids = count.keys().enumerate().map(|(n, id)| (*id, NodeId::from_index(n))).collect();
    let role = |links: usize| if links == 2 { Role::EndStation } else { Role::Bridge };
    let mut nodes: Vec<Node> =
        count.iter().map(|(id, links)| Node::new(id.to_string(), role(*links))).collect();
    let mut links = Vec::new();
    for (row, (from, to)) in table.rows().iter().zip(ends) {
        let code = table.number(row, "rate", 1, 1000, "Gbit/s in this part")?;
        if ![1, 10, 100, 1000].contains(&code) {
            let remedy = "1 for 1 Gbit/s, 10 for 100 Mbit/s, 100 for 10 Mbit/s, 1000 for 1 Mbit/s";
            return Err(row.error("rate", &format!("{code} is no code of a rate"), remedy));
        }
        let bps = 1_000_000_000 / u64::try_from(code).unwrap_or(1);
        let rate = BitsPerSecond::new(bps).expect("invariant: a million or more");
        let round = |ns: i64| Span::from_ns(if how.round { (ns + 99) / 100 * 100 } else { ns });
        let processing = round(table.number(row, "t_proc", 0, LONGEST_NS, "nanoseconds")?);
        let propagation = round(table.number(row, "t_prop", 0, LONGEST_NS, "nanoseconds")?);
        let queues = table.number(row, "q_num", 1, 8, "queues")?;
        let node = &mut nodes[ids[&from].index()];
        node.processing_max = node.processing_max.max(processing);
        node.processing_min = node.processing_max;
        node.limits.queues = node.limits.queues.min(u8::try_from(queues).unwrap_or(8));
        let (from_id, to_id) = (ids[&from], ids[&to]);
        let name = format!("({from}, {to})");
        links.push(Link { name, from: from_id, to: to_id, rate, propagation });
    }
    let options = NetworkOptions {
        overhead_bytes: how.overhead_bytes,
        sync_error: Span::ZERO,
        ..NetworkOptions::default()
    };
    let network = Network::new(nodes, links, options).map_err(|error| {
        table.error(&error.to_string(), "each line is one direction between two nodes, once")
    })?;
    Ok((network, ids))
}

fn link(table: &Table, row: &Row) -> Result<(i64, i64), TableError> {
    let text = table.field(row, "link");
    let inner = text.trim_matches(|c| "()[] ".contains(c));
    let ends = inner.split_once(',').and_then(|(from, to)| {
        let (from, to) = (from.trim().parse::<i64>().ok()?, to.trim().parse::<i64>().ok()?);
        let range = 0..=i64::from(u32::MAX);
        (range.contains(&from) && range.contains(&to)).then_some((from, to))
    });
    let remedy = "two numbers of nodes, such as \"(0, 1)\"";
    match ends {
        Some((from, to)) if from == to => {
            Err(row.error("link", &format!("{} goes nowhere", quoted(text)), remedy))
        }
        Some(ends) => Ok(ends),
        None => Err(row.error("link", &format!("{} is no link", quoted(text)), remedy)),
    }
}

fn stream(
    table: &Table,
    row: &Row,
    problem: &Problem,
    ids: &Ids,
    how: Tsnkit,
) -> Result<Stream, TableError> {
    let number = table.number(row, "stream", 0, i64::from(u32::MAX), "a stream")?;
    let talker = station(row, "src", table.field(row, "src"), problem, ids)?;
    let text = table.field(row, "dst");
    let inner = text.trim_matches(|c| "[]() ".contains(c));
    let mut listeners = Vec::new();
    for one in inner.split(',').filter(|one| !one.trim().is_empty()) {
        let listener = station(row, "dst", one.trim(), problem, ids)?;
        if listener == talker || listeners.contains(&listener) {
            let what = format!("{} has the talker or a listener twice", quoted(text));
            return Err(row.error("dst", &what, "other end stations, each once, such as [9]"));
        }
        listeners.push(listener);
    }
    if listeners.is_empty() {
        let what = format!("{} names no listener", quoted(text));
        return Err(row.error("dst", &what, "a list of end stations, such as [9]"));
    }
    let size = table.number(row, "size", 1, 1 << 23, "bytes")?;
    let size = if how.round { (size + 99) / 100 * 100 } else { size };
    let period = table.number(row, "period", 1, LONGEST_NS, "nanoseconds")?;
    let deadline = table.number(row, "deadline", 1, LONGEST_NS, "nanoseconds")?;
    let jitter = table.number(row, "jitter", 0, LONGEST_NS, "nanoseconds")?;
    let length = u32::try_from(size).unwrap_or(u32::MAX);
    let name = number.to_string();
    let mut stream = Stream::new(name, talker, talker, Span::from_ns(period), length);
    stream.listeners = listeners;
    stream.latency_max = Span::from_ns(deadline);
    stream.jitter_max = Some(Span::from_ns(jitter));
    Ok(stream)
}

fn station(
    row: &Row,
    column: &str,
    text: &str,
    problem: &Problem,
    ids: &Ids,
) -> Result<NodeId, TableError> {
    let remedy = "the number of an end station: a node with one link out and one in";
    let found = text.parse::<i64>().ok().and_then(|id| ids.get(&id));
    let Some(id) = found else {
        let what = format!("{} is no node of the network", quoted(text));
        return Err(row.error(column, &what, remedy));
    };
    if problem.network().node(*id).role == Role::Bridge {
        return Err(row.error(column, &format!("node {text} is a bridge"), remedy));
    }
    Ok(*id)
}

/// The most windows of a table.
const MAX_WINDOWS: i64 = 1 << 22;

/// The tables of a plan, for its admitted streams.
///
/// **Errors**: a cycle has more windows than a table is written for.
pub fn write_tsnkit(problem: &Problem, plan: &Plan) -> Result<TsnkitPlan, String> {
    let windows = plan.admitted.iter().map(|admission| {
        let turns = plan.cycle.as_ns() / problem.stream(admission.stream).interval.as_ns();
        turns.saturating_mul(i64::try_from(admission.transmissions.len()).unwrap_or(i64::MAX))
    });
    let windows = windows.fold(0, i64::saturating_add);
    if windows > MAX_WINDOWS {
        let cycle = plan.cycle;
        return Err(format!("{windows} windows in the cycle of {cycle}; at most {MAX_WINDOWS}"));
    }
    let mut out = TsnkitPlan {
        gcl: "link,queue,start,end,cycle\n".to_owned(),
        offset: "stream,frame,offset\n".to_owned(),
        queue: "stream,frame,link,queue\n".to_owned(),
        route: "stream,link\n".to_owned(),
        delay: "stream,frame,delay\n".to_owned(),
    };
    let mut windows: Vec<(u32, i64, i64, u8)> = Vec::new();
    let cycle = plan.cycle.as_ns();
    for admission in &plan.admitted {
        let stream = problem.stream(admission.stream);
        let name = &stream.name;
        let interval = stream.interval.as_ns();
        for sent in &admission.transmissions {
            let link = problem.network().link(sent.link);
            let length = problem.network().occupancy(sent.link, stream.length_bytes).as_ns();
            let mut start = sent.start.as_ns().rem_euclid(interval);
            while start < cycle {
                let end = start + length;
                windows.push((sent.link.0, start, end.min(cycle), sent.queue));
                if end > cycle {
                    windows.push((sent.link.0, 0, end - cycle, sent.queue));
                }
                start += interval;
            }
            let (label, frame, queue) = (&link.name, sent.frame, sent.queue);
            // Text goes into memory, which does not fail.
            let _ = writeln!(out.queue, "{name},{frame},\"{label}\",{queue}");
            if sent.frame == 0 {
                let _ = writeln!(out.route, "{name},\"{label}\"");
            }
            if link.from == stream.talker && sent.copy == 0 {
                let _ = writeln!(out.offset, "{name},{frame},{}", sent.start.as_ns());
            }
        }
        let latency = words::latency(problem, plan, admission.stream);
        let _ = writeln!(out.delay, "{name},0,{}", latency.map_or(0, Span::as_ns));
    }
    windows.sort_unstable();
    for (link, start, end, queue) in windows {
        let label = &problem.network().links()[usize::try_from(link).unwrap_or(0)].name;
        let _ = writeln!(out.gcl, "\"{label}\",{queue},{start},{end},{cycle}");
    }
    Ok(out)
}
