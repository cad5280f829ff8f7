// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holds gates as they are configured against streams: from the starts at the talkers the frames
//! are followed over the links, through the gates as they are, and the result is judged as a plan.
//! Of a stream whose starts are not known, whether it has some with which it arrives in time.
//!
//! It shares the words of [`crate::model`] with the search and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::Span;

use super::alone::{self, Alone, Starts};
use super::finding::Findings;
use super::times::{forwarding, occupancy};
use super::{
    CheckError, Finding, MAX_INSTANCES, Report, Rule, check_while, greatest_common_divisor,
};
use crate::model::{
    Admission, GateWindow, LinkId, Plan, PortGates, Problem, Role, Route, Stream, StreamId,
    Transmission,
};

/// The gates of a port as it has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStates {
    /// Which port: the one that sends on this link.
    pub link: LinkId,
    /// When a cycle begins.
    pub base: Span,
    /// It repeats with this; above zero.
    pub cycle: Span,
    /// By state: bit `n` is set when queue `n` is open; and how long it lasts. The last lasts until
    /// the cycle ends, and what is beyond it does not come.
    pub states: Vec<(u8, Span)>,
    /// By priority: its queue.
    pub queues: [u8; 8],
}

/// What is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// By link; ports without gates are not there.
    pub ports: Vec<PortStates>,
    /// When frames start at their talkers, from the start of the stream's interval: by stream, link
    /// and frame.
    pub starts: BTreeMap<(StreamId, LinkId, u32), Span>,
}

/// What was found, and what could not be looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The plan that the configuration amounts to.
    pub plan: Plan,
    /// What contradicts the streams.
    pub report: Report,
    /// Streams without starts: only whether each has some by itself was looked for.
    pub without_starts: Vec<StreamId>,
    /// Those of them that have too many starts to look at each, and none of those that were looked
    /// at is in time.
    pub undecided: Vec<StreamId>,
    /// Streams whose ways the configuration does not tell: nothing was looked for.
    pub without_way: Vec<StreamId>,
}

/// Everything that contradicts the streams. `others` has a bit for each priority that frames
/// without a place have.
///
/// It goes on as long as `go_on` says so, as [`super::check_while`].
///
/// **Errors**: cycles that are too long to go through.
pub fn check_configured(
    problem: &Problem,
    configuration: &Configuration,
    others: u8,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Configured, CheckError> {
    let network = problem.network();
    let ports = configuration.ports.iter().map(|port| (port.link, Port::new(port)));
    let view = View { problem, ports: ports.collect() };
    let mut findings = Findings::new(go_on);
    for port in &configuration.ports {
        device(problem, port, &mut findings);
    }
    let (mut without_starts, mut without_way) = (Vec::new(), Vec::new());
    let mut undecided = Vec::new();
    let mut plan = Plan { cycle: problem.cycle(), ..Plan::default() };
    for (index, stream) in problem.streams().iter().enumerate() {
        if findings.is_over() {
            break;
        }
        let id = StreamId::from_index(index);
        let Route::Given(trees) = &stream.route else {
            without_way.push(id);
            continue;
        };
        let starts = |link: LinkId, frame: u32| {
            configuration.starts.get(&(id, link, frame)).map(|start| start.as_ns())
        };
        let talks = |link: &&LinkId| network.link(**link).from == stream.talker;
        let firsts: Vec<LinkId> = trees.iter().flatten().filter(talks).copied().collect();
        let known = |link: &LinkId| (0..stream.frames).all(|frame| starts(*link, frame).is_some());
        if firsts.iter().all(known) {
            let sent = view.follow(id, trees, starts);
            plan.admitted.push(Admission { stream: id, transmissions: sent });
        } else {
            without_starts.push(id);
            let stream = problem.stream(id);
            let gates = |link: LinkId| {
                let port = view.ports.get(&link)?;
                let (queue, length) = (port.queue_of(stream), occupancy(network, link, stream));
                Some(Starts::new(&port.open[usize::from(queue)], port.cycle, length, stream))
            };
            let finding = |rule| Finding::of(rule).streams(&[id]);
            match alone::any_start(network, stream, trees, gates) {
                Alone::InTime => {}
                Alone::Shut(link) => findings.add(finding(Rule::GateShut).link(link)),
                Alone::Late(latency) => {
                    let most = stream.latency_max.as_ns();
                    findings.add(finding(Rule::Latency).found(latency, most));
                }
                Alone::Undecided => undecided.push(id),
            }
        }
    }
    if findings.is_over() {
        // The rest would be told of streams that were not looked at.
        let report = findings.report(Vec::new(), 0, 0);
        return Ok(Configured { plan, report, without_starts, undecided, without_way });
    }
    let used = view.passes(&plan, others, &mut findings)?;
    let streams = &without_starts;
    let (problem, mut plan) = (problem.clone(), plan);
    plan.gates = view.gates(&used);
    // A stream without an answer was told of above.
    let told = |finding: &Finding| {
        finding.rule == Rule::StreamMissing
            && finding.streams.iter().all(|id| streams.contains(id) || without_way.contains(id))
    };
    let judged = check_while(&problem, &plan, &mut || !findings.is_over())?;
    for finding in judged.findings {
        // Numbers of the list that the plan does not have; states were judged as they are.
        let of_the_list = matches!(
            finding.rule,
            Rule::GateSpare
                | Rule::GateCount
                | Rule::GateEntries
                | Rule::IntervalShort
                | Rule::Granularity
                | Rule::GateShut
        );
        let has_gates = finding.link.is_some_and(|link| view.ports.contains_key(&link));
        let is_there = finding.rule == Rule::GatesMissing && has_gates;
        if !(of_the_list || is_there || told(&finding)) {
            findings.add(finding);
        }
    }
    let report = findings.report(Vec::new(), judged.instances, judged.transmissions);
    Ok(Configured { plan, report, without_starts, undecided, without_way })
}

/// What a device cannot have.
fn device(problem: &Problem, port: &PortStates, findings: &mut Findings<'_>) {
    let network = problem.network();
    let limits = &network.node(network.link(port.link).from).limits;
    let finding = |rule| Finding::of(rule).link(port.link);
    let count = i64::try_from(port.states.len()).unwrap_or(i64::MAX);
    if let Some(most) = limits.gate_entries.map(i64::from).filter(|most| count > *most) {
        findings.add(finding(Rule::GateEntries).found(count, most));
    }
    let (least, grain) = (limits.interval_min.as_ns(), limits.granularity.as_ns());
    let mut at = 0_i64;
    for (open, lasts) in &port.states {
        let lasts = lasts.as_ns();
        if lasts < least && port.states.len() > 1 {
            findings.add(finding(Rule::IntervalShort).at(at).found(lasts, least));
        }
        if let Some(most) = limits.interval_max.map(Span::as_ns).filter(|most| lasts > *most) {
            findings.add(finding(Rule::IntervalLong).at(at).found(lasts, most));
        }
        if (port.base.as_ns() % grain + at % grain) % grain != 0 {
            findings.add(finding(Rule::Granularity).at(at).found(at, grain));
        }
        if let Some(queue) = (0..8_u8).rev().find(|queue| open & (1 << queue) != 0)
            && queue >= limits.queues
        {
            findings.add(finding(Rule::Queue).at(at).found(queue.into(), limits.queues.into()));
        }
        at = at.saturating_add(lasts);
    }
    let cycle = port.cycle.as_ns();
    if cycle % grain != 0 {
        findings.add(finding(Rule::Granularity).at(cycle).found(cycle, grain));
    }
    if let Some(most) = limits.cycle_max.map(Span::as_ns).filter(|most| cycle > *most) {
        findings.add(finding(Rule::CycleLong).found(cycle, most));
    }
    if let Some(most) = limits.openings.map(i64::from) {
        // A driver that counts looks at the list from its first state, not at its turn.
        for queue in 0..8 {
            let is_open = |at: usize| port.states[at].0 & (1 << queue) != 0;
            let opens = |at: &usize| is_open(*at) && (*at == 0 || !is_open(*at - 1));
            let opened = (0..port.states.len()).filter(opens).count();
            let opened = i64::try_from(opened).unwrap_or(i64::MAX);
            if opened > most {
                findings.add(finding(Rule::Openings).found(opened, most));
            }
        }
    }
}

/// A port's gates by queue.
struct Port<'a> {
    given: &'a PortStates,
    cycle: i64,
    /// Whole states from the start of a cycle that begins with time: what is open, from, until.
    states: Vec<(u8, i64, i64)>,
    /// By queue: when it is open in two cycles, joined where they touch.
    open: Vec<Vec<(i64, i64)>>,
}

impl Port<'_> {
    fn new(given: &PortStates) -> Port<'_> {
        let cycle = given.cycle.as_ns().max(1);
        let base = given.base.as_ns().rem_euclid(cycle);
        let (mut states, mut at) = (Vec::new(), 0);
        for (index, (open, lasts)) in given.states.iter().enumerate() {
            let last = index + 1 == given.states.len();
            let end = if last { cycle } else { at + lasts.as_ns().min(cycle) };
            let end = end.min(cycle);
            if at < end {
                // The base turns the list; what goes over the end of the cycle is two.
                let (from, until) = (at + base, end + base);
                if from >= cycle {
                    states.push((*open, from - cycle, until - cycle));
                } else if until > cycle {
                    states.push((*open, from, cycle));
                    states.push((*open, 0, until - cycle));
                } else {
                    states.push((*open, from, until));
                }
            }
            at = end;
        }
        states.sort_unstable_by_key(|(_, from, _)| *from);
        let open = (0..8).map(|queue| open(&states, queue, cycle)).collect();
        Port { given, cycle, states, open }
    }

    /// The first instant at or after `at` from which the queue's gate is open for so long.
    fn fit(&self, queue: u8, at: i64, length: i64) -> Option<i64> {
        let open = self.open.get(usize::from(queue))?;
        let (phase, round) = (at.rem_euclid(self.cycle), at.div_euclid(self.cycle) * self.cycle);
        if let [(0, end)] = open.as_slice()
            && *end == 2 * self.cycle
        {
            return Some(at);
        }
        let first = open.partition_point(|(_, end)| *end <= phase);
        let fits = open[first..].iter().find_map(|(from, end)| {
            let start = (*from).max(phase);
            (start + length <= *end).then_some(start)
        });
        fits.map(|start| round + start)
    }

    /// Where in a cycle so many intervals end that began with one.
    fn shift(&self, turn: i64, interval: i64) -> i64 {
        let ns = (i128::from(turn) * i128::from(interval)).rem_euclid(i128::from(self.cycle));
        i64::try_from(ns).unwrap_or(0)
    }

    fn is_open(&self, queue: u8, at: i64, length: i64) -> bool {
        self.fit(queue, at, length) == Some(at)
    }

    /// Which queues are open at some time of it.
    fn mask(&self, at: i64, length: i64) -> u8 {
        let mut mask = 0;
        for turn in [0, self.cycle] {
            let from = at.rem_euclid(self.cycle) - turn;
            for (open, start, end) in &self.states {
                if *start < from + length && from < *end {
                    mask |= open;
                }
            }
        }
        mask
    }

    fn queue_of(&self, stream: &Stream) -> u8 {
        self.given.queues[usize::from(stream.priority.min(7))].min(7)
    }
}

fn open(states: &[(u8, i64, i64)], queue: u8, cycle: i64) -> Vec<(i64, i64)> {
    let mut all: Vec<(i64, i64)> = Vec::new();
    for turn in [0, cycle] {
        for (_, from, until) in states.iter().filter(|(open, ..)| open & (1 << queue) != 0) {
            match all.last_mut() {
                Some(last) if last.1 == from + turn => last.1 = until + turn,
                _ => all.push((from + turn, until + turn)),
            }
        }
    }
    all
}

struct View<'a> {
    problem: &'a Problem,
    ports: BTreeMap<LinkId, Port<'a>>,
}

impl View<'_> {
    /// The frames of a stream on all links: at each bridge, as soon as they are there and the gate
    /// lets them.
    fn follow(
        &self,
        id: StreamId,
        trees: &[Vec<LinkId>],
        starts: impl Fn(LinkId, u32) -> Option<i64>,
    ) -> Vec<Transmission> {
        let (network, stream) = (self.problem.network(), self.problem.stream(id));
        let mut all: Vec<Transmission> = Vec::new();
        for (copy, tree) in (0_u8..).zip(trees) {
            for link in tree {
                let from = network.link(*link).from;
                let busy = occupancy(network, *link, stream);
                let port = self.ports.get(link);
                let last = network.node(from).limits.queues.saturating_sub(1);
                let plain = stream.priority.min(last);
                let queue = port.map_or(plain, |port| port.queue_of(stream));
                let mut free = i64::MIN;
                for frame in 0..stream.frames {
                    let before = all.iter().rev().find(|sent| {
                        sent.copy == copy
                            && sent.frame == frame
                            && network.link(sent.link).to == from
                    });
                    let ready = match before {
                        Some(sent) => {
                            sent.start.as_ns() + forwarding(network, sent.link, *link, stream)
                        }
                        None => starts(*link, frame).unwrap_or(0),
                    };
                    let ready = ready.max(free);
                    let start = match (port, before) {
                        (Some(port), Some(_)) => port.fit(queue, ready, busy).unwrap_or(ready),
                        _ => ready,
                    };
                    free = start + busy;
                    let start = Span::from_ns(start);
                    all.push(Transmission { link: *link, frame, copy, queue, start });
                }
            }
        }
        all
    }

    /// What each frame finds at the gates; the ports that frames leave by.
    fn passes(
        &self,
        plan: &Plan,
        others: u8,
        findings: &mut Findings<'_>,
    ) -> Result<BTreeSet<LinkId>, CheckError> {
        let network = self.problem.network();
        let (mut used, mut instances) = (BTreeSet::new(), 0_u64);
        for admission in &plan.admitted {
            let stream = self.problem.stream(admission.stream);
            for sent in &admission.transmissions {
                used.insert(sent.link);
                let Some(port) = self.ports.get(&sent.link) else { continue };
                let node = network.node(network.link(sent.link).from);
                let launched = node.role == Role::EndStation && node.limits.launch_time;
                let length = occupancy(network, sent.link, stream);
                let turns = turns(port.cycle, stream.interval.as_ns());
                instances = instances.saturating_add(turns.unsigned_abs());
                if instances > MAX_INSTANCES {
                    return Err(CheckError::TooMany { instances, most: MAX_INSTANCES });
                }
                let planned = self.planned(port);
                let mine = 1_u8 << sent.queue;
                let with_others = self.queues(port, others) & mine != 0;
                let (mut shut, mut shared) = (None, with_others.then_some(sent.start.as_ns()));
                for turn in 0..turns {
                    let at = sent.start.as_ns() + port.shift(turn, stream.interval.as_ns());
                    if !port.is_open(sent.queue, at, length) {
                        shut = shut.or(Some(at));
                    }
                    // Launch times keep planned frames apart, whatever the gates of theirs do.
                    let apart = if launched { planned } else { mine };
                    if port.mask(at, length) & !apart & !mine != 0 {
                        shared = shared.or(Some(at));
                    }
                    if shut.is_some() && shared.is_some() {
                        break;
                    }
                }
                for (rule, at) in [(Rule::GateShut, shut), (Rule::GateShared, shared)] {
                    if let Some(at) = at {
                        let finding = Finding::of(rule).link(sent.link).frame(sent.frame);
                        findings.add(finding.streams(&[admission.stream]).at(at));
                    }
                }
            }
        }
        Ok(used)
    }

    /// The queues of a port for priorities.
    fn queues(&self, port: &Port, priorities: u8) -> u8 {
        let of = (0..8_usize).filter(|priority| priorities & (1 << priority) != 0);
        of.fold(0, |mask, priority| mask | 1 << port.given.queues[priority].min(7))
    }

    /// The queues of all streams.
    fn planned(&self, port: &Port) -> u8 {
        let streams = self.problem.streams().iter();
        streams.fold(0, |mask, stream| mask | 1 << port.queue_of(stream))
    }

    /// Gates as a plan has them: for ports that open one planned queue at a time. A talker with
    /// launch times has no need of them.
    fn gates(&self, used: &BTreeSet<LinkId>) -> Vec<PortGates> {
        let network = self.problem.network();
        let mut all = Vec::new();
        for (link, port) in self.ports.iter().filter(|(link, _)| used.contains(link)) {
            let node = network.node(network.link(*link).from);
            let planned = self.planned(port);
            let single = port.states.iter().all(|(open, ..)| (open & planned).count_ones() <= 1);
            if !single || node.role == Role::EndStation && node.limits.launch_time {
                continue;
            }
            let times = self.times(*link, port.cycle);
            let count = i64::try_from(port.states.len()).unwrap_or(i64::MAX);
            // The check tells that the cycles do not fit.
            let times = if times.saturating_mul(count) > MAX_WINDOWS { 1 } else { times };
            let mut windows: Vec<GateWindow> = Vec::new();
            for turn in 0..times {
                let shift = turn * port.cycle;
                for (open, from, until) in &port.states {
                    let Some(queue) = (0..8).find(|queue| open & planned & (1 << queue) != 0)
                    else {
                        continue;
                    };
                    let start = Span::from_ns(from + shift);
                    let end = Span::from_ns(until + shift);
                    windows.push(GateWindow { start, end, queue });
                }
            }
            let cycle = Span::from_ns(port.cycle * times);
            all.push(PortGates { link: *link, cycle, windows, entries: 0, spare: Span::ZERO });
        }
        all
    }

    /// How many cycles of the port make a whole number of intervals of all streams there; one when
    /// that is too long.
    fn times(&self, link: LinkId, cycle: i64) -> i64 {
        let mut times = 1_i64;
        for stream in self.problem.streams() {
            let Route::Given(trees) = &stream.route else { continue };
            if trees.iter().flatten().any(|own| *own == link) {
                let interval = stream.interval.as_ns();
                let length = cycle.saturating_mul(times);
                let more = interval / greatest_common_divisor(length, interval);
                times = times.saturating_mul(more);
                if times > MAX_TURNS {
                    return 1;
                }
            }
        }
        times
    }
}

/// The most windows that are made so.
const MAX_WINDOWS: i64 = 1 << 20;
/// The most cycles of a port that are written one after the other.
const MAX_TURNS: i64 = 100_000;

/// How many intervals pass until they begin with a cycle again.
fn turns(cycle: i64, interval: i64) -> i64 {
    cycle / greatest_common_divisor(cycle, interval)
}
