// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans that keep the reservations of an earlier one: a network is planned again after a few
//! changes, and all other streams stay where they are.
//!
//! Reservations come from a file ([`Reservations`]). Those of streams that are as they were pass
//! the checker ([`crate::check`]) before anything is placed beside them.
//!
//! Not here: the search beside them (`crate::synth`), reading the file (`timewire-cli`).

mod changes;
mod file;

pub use changes::{Change, Changes};
pub use file::{Reservation, ReservationError, Reservations, SCHEMA, Starts};

use std::collections::BTreeMap;

use timewire_base::Span;

use crate::check::{CheckError, check_while};
use crate::model::{
    Admission, Arrival, Certificate, LinkId, Plan, PortGates, Problem, Refusal, Route, Stream,
    StreamId, Transmission,
};
use crate::synth::{
    Budget, Options, Planner, Repeated, Unseated, gate_limit_of, gates_of_port, queue_of,
};
use crate::words;

/// Why reservations are not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// They contradict the network, its streams, or each other.
    #[error("{}", told(findings, *count))]
    Findings {
        /// The first of them, in words.
        findings: Vec<String>,
        /// How many there are.
        count: usize,
    },
    /// The port cannot have the gates.
    #[error("{why}")]
    Gates {
        /// Why not.
        why: String,
    },
    /// A frame waits on its way.
    #[error(
        "stream {stream}: frame {frame} starts on link {link} at {start} and could start at \
         {without}; no frame of a plan waits on its way"
    )]
    Waits {
        /// Whose.
        stream: String,
        /// Where.
        link: String,
        /// Which frame, from 0.
        frame: u32,
        /// When it starts.
        start: Span,
        /// When it would, without waiting.
        without: Span,
    },
    /// Two streams that hold by the checker and are closer than in any plan of the search.
    #[error("stream {stream}: on link {link} it may come before {other} has left")]
    Close {
        /// Who.
        stream: String,
        /// Where.
        link: String,
        /// Whom it may meet.
        other: String,
    },
    /// They cannot be judged.
    #[error("{0}")]
    Unchecked(#[from] CheckError),
    /// It was ended on request.
    #[error("ended on request")]
    Ended,
}

fn told(findings: &[String], count: usize) -> String {
    let more = match count.saturating_sub(findings.len()) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    findings.join("\n  ") + &more
}

/// The most contradictions that an error has in words.
const MAX_TOLD: usize = 8;

/// A problem whose streams have the reservations of an earlier plan, as far as they did not change.
///
/// ```
/// use timewire_base::Span;
/// use timewire_plan::generate::{Recipe, Topology};
/// use timewire_plan::keep::{Replan, Reservations};
/// use timewire_plan::model::{Problem, Stream};
/// use timewire_plan::synth::{Budget, Options, plan};
///
/// // A ring of four bridges with two stations each, and twenty streams.
/// let mut problem = Recipe::new(Topology::Ring(4), 2, 20, 1).problem()?;
/// let earlier = plan(problem.clone(), Options::default(), 1_000_000);
/// let earlier = Reservations::of("ring", &problem, &earlier);
/// // The text is what a file has.
/// let earlier = Reservations::read("ring.plan", &earlier.to_text())?;
///
/// // One stream more: 100 bytes in each millisecond.
/// let (talker, listener) = (problem.streams()[0].talker, problem.streams()[0].listeners[0]);
/// problem.add(Stream::new("new", talker, listener, Span::from_ms(1), 100))?;
/// let mut replan = Replan::new(problem, Options::default(), &earlier, &mut || true)?;
/// // No stream of the earlier plan may be moved.
/// replan.run(0, &mut Budget { work: 1_000_000, go_on: &mut |_| true });
/// let changes = replan.changes();
/// assert_eq!((changes.kept, changes.moved.len()), (20, 0));
/// assert_eq!(changes.added[0].name, "new");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replan<'a> {
    planner: Planner,
    /// Streams that are to be placed.
    new: Vec<usize>,
    earlier: &'a Reservations,
    /// By stream: its reservation.
    known: BTreeMap<StreamId, &'a Reservation>,
    /// How streams differ from what their reservations are for.
    differences: BTreeMap<StreamId, Vec<String>>,
}

impl<'a> Replan<'a> {
    /// Seats the streams that did not change. Reservations of streams that are gone are left out,
    /// and those of changed ones. `go_on` is asked once in a while, as by [`check_while`].
    ///
    /// **Errors**: the reservations that are kept do not hold in this network, or are none that the
    /// search could have found.
    pub fn new(
        problem: Problem,
        options: Options,
        earlier: &'a Reservations,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Replan<'a>, KeepError> {
        let links = links_by_name(&problem);
        let mut known = BTreeMap::new();
        let mut differences = BTreeMap::new();
        let mut admitted = Vec::new();
        for reservation in &earlier.streams {
            let Some(id) = problem.find(&reservation.name) else { continue };
            known.insert(id, reservation);
            match reservation.holds_for(&problem, problem.stream(id), &links) {
                Ok(trees) => admitted.push(admission(&problem, id, &trees)),
                Err(other) => {
                    differences.insert(id, other);
                }
            }
        }
        admitted.sort_by_key(|admission| admission.stream);
        judge(&problem, &admitted, go_on)?;
        let mut is_new = vec![true; problem.streams().len()];
        admitted.iter().for_each(|admission| is_new[admission.stream.index()] = false);
        let new = (0..is_new.len()).filter(|index| is_new[*index]).collect();
        let mut planner = Planner::new(problem, options);
        for admission in &admitted {
            planner
                .seat(admission)
                .map_err(|why| unseated(planner.problem(), admission.stream, why))?;
        }
        Ok(Replan { planner, new, earlier, known, differences })
    }

    /// Places all other streams beside those that are kept, of which at most so many are moved, or
    /// gives them reasons; whether the budget ended it while some still looked for a place. Called
    /// again, it does nothing.
    pub fn run(&mut self, moves: usize, budget: &mut Budget) -> bool {
        self.planner.run_beside(std::mem::take(&mut self.new), moves, budget)
    }

    /// The planner with the streams so far: [`Planner::prepare`] before [`Replan::run`] makes the
    /// first additions as quick as later ones.
    pub fn planner(&mut self) -> &mut Planner {
        &mut self.planner
    }

    /// The planner alone.
    pub fn into_planner(self) -> Planner {
        self.planner
    }

    /// What differs between the earlier reservations and the plan.
    pub fn changes(&mut self) -> Changes {
        let plan = self.planner.plan();
        self.changes_to(&plan)
    }

    /// The same, of a plan that the planner gave.
    pub fn changes_to(&self, plan: &Plan) -> Changes {
        changes::of(self, plan)
    }

    /// The gates that the earlier reservations stand for, by link; `None`: the port cannot have
    /// them. Links that are gone are left out.
    fn earlier_gates(&self) -> BTreeMap<LinkId, Option<PortGates>> {
        let problem = self.planner.problem();
        let links = links_by_name(problem);
        let network = problem.network();
        let mut sent = Sent::new();
        for reservation in &self.earlier.streams {
            for (name, starts) in reservation.starts.0.iter().flatten() {
                let Some(link) = links.get(name.as_str()) else { continue };
                let length = network.occupancy(*link, reservation.length_bytes);
                let queue = queue_of(network, *link, reservation.class);
                let interval = reservation.interval.as_ns();
                sent.entry(*link).or_default().extend(starts.iter().map(|start| Repeated {
                    start: start.as_ns(),
                    length: length.as_ns(),
                    interval,
                    queue,
                }));
            }
        }
        let gates = ports(problem, &sent);
        gates.map(|(link, gates)| (link, gates.ok())).collect()
    }
}

/// What is sent on each link.
type Sent = BTreeMap<LinkId, Vec<Repeated>>;

/// The gates of those ports that have gates.
fn ports<'a>(
    problem: &'a Problem,
    sent: &'a Sent,
) -> impl Iterator<Item = (LinkId, Result<PortGates, u32>)> + 'a {
    let network = problem.network();
    let limits = |link: LinkId| &network.node(network.link(link).from).limits;
    let gated = sent.iter().filter(move |(link, _)| limits(**link).gate_entries != Some(0));
    gated.map(move |(link, sent)| (*link, gates_of_port(*link, sent, limits(*link), network)))
}

fn links_by_name(problem: &Problem) -> BTreeMap<&str, LinkId> {
    let links = problem.network().links().iter().enumerate();
    links.map(|(index, link)| (link.name.as_str(), LinkId::from_index(index))).collect()
}

/// By copy, link and frame.
type Trees<'a> = Vec<Vec<(LinkId, &'a [Span])>>;

impl Reservation {
    /// The reservation with the links of this network.
    ///
    /// **Errors**: it is for another stream than this one; how that differs.
    fn holds_for(
        &self,
        problem: &Problem,
        stream: &Stream,
        links: &BTreeMap<&str, LinkId>,
    ) -> Result<Trees<'_>, Vec<String>> {
        let mut other = self.differences(problem, stream);
        let mut trees: Trees<'_> = Vec::new();
        for way in &self.starts.0 {
            let mut tree = Vec::new();
            for (name, starts) in way {
                match links.get(name.as_str()) {
                    Some(link) => tree.push((*link, starts.as_slice())),
                    None => other.push(format!("link {name} is gone")),
                }
            }
            trees.push(tree);
        }
        if let (Route::Given(given), true) = (&stream.route, other.is_empty()) {
            let sorted = |links: &mut dyn Iterator<Item = LinkId>| {
                let mut links: Vec<LinkId> = links.collect();
                links.sort_unstable();
                links
            };
            let own = trees.iter().map(|tree| sorted(&mut tree.iter().map(|(link, _)| *link)));
            if !own.eq(given.iter().map(|tree| sorted(&mut tree.iter().copied()))) {
                other.push("another path".to_owned());
            }
        }
        if other.is_empty() { Ok(trees) } else { Err(other) }
    }

    /// How a stream differs from the one that the reservation is for.
    fn differences(&self, problem: &Problem, stream: &Stream) -> Vec<String> {
        let node = |id| problem.network().node(id).name.as_str();
        let listeners: Vec<&str> = stream.listeners.iter().map(|id| node(*id)).collect();
        let optional = |span: Option<Span>| span.map_or("none".to_owned(), |span| span.to_string());
        let arrival = |sporadic| if sporadic { "sporadic" } else { "periodic" }.to_owned();
        let latency_max = self.latency_max.unwrap_or(self.interval);
        let rows = [
            ("talker", self.talker.clone(), node(stream.talker).to_owned()),
            ("listeners", self.listeners.join(", "), listeners.join(", ")),
            ("period", self.interval.to_string(), stream.interval.to_string()),
            ("frames", self.frames.to_string(), stream.frames.to_string()),
            ("frame length", bytes(self.length_bytes), bytes(stream.length_bytes)),
            ("class", self.class.to_string(), stream.priority.to_string()),
            ("copies", self.copies.to_string(), stream.copies.to_string()),
            ("arrival", arrival(self.sporadic), arrival(stream.arrival == Arrival::Sporadic)),
            ("earliest", self.earliest.to_string(), stream.release.earliest.to_string()),
            ("latest", optional(self.latest), optional(stream.release.latest)),
            ("max_latency", latency_max.to_string(), stream.latency_max.to_string()),
            ("max_jitter", optional(self.jitter_max), optional(stream.jitter_max)),
        ];
        let differ = rows.into_iter().filter(|(_, was, is)| was != is);
        differ.map(|(what, was, is)| format!("{what} {was} -> {is}")).collect()
    }
}

fn bytes(bytes: u32) -> String {
    format!("{bytes}B")
}

fn admission(problem: &Problem, id: StreamId, trees: &Trees<'_>) -> Admission {
    let (network, class) = (problem.network(), problem.stream(id).priority);
    let mut transmissions = Vec::new();
    for (copy, tree) in (0..).zip(trees) {
        for &(link, starts) in tree {
            let queue = queue_of(network, link, class);
            let sent = (0..).zip(starts).map(|(frame, start)| Transmission {
                link,
                frame,
                copy,
                queue,
                start: *start,
            });
            transmissions.extend(sent);
        }
    }
    Admission { stream: id, transmissions }
}

/// Holds reservations against the checker.
///
/// **Errors**: it finds something, or is ended.
fn judge(
    problem: &Problem,
    admitted: &[Admission],
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), KeepError> {
    let network = problem.network();
    let mut sent = Sent::new();
    let mut is_kept = vec![false; problem.streams().len()];
    for admission in admitted {
        let stream = problem.stream(admission.stream);
        is_kept[admission.stream.index()] = true;
        for it in &admission.transmissions {
            sent.entry(it.link).or_default().push(Repeated {
                start: it.start.as_ns(),
                length: network.occupancy(it.link, stream.length_bytes).as_ns(),
                interval: stream.interval.as_ns(),
                queue: it.queue,
            });
        }
    }
    let mut gates = Vec::new();
    let mut full = None;
    for (link, port) in ports(problem, &sent) {
        match port {
            Ok(port) => gates.push(port),
            Err(needed) => {
                let limits = &network.node(network.link(link).from).limits;
                full = full.or(Some(gate_limit_of(link, needed, limits)));
            }
        }
    }
    let others = is_kept.iter().enumerate().filter(|(_, is_kept)| !**is_kept);
    let refused = others.map(|(index, _)| Refusal {
        stream: StreamId::from_index(index),
        certificate: Certificate::NotFound { tried: 0 },
    });
    let plan = Plan {
        cycle: problem.cycle(),
        admitted: admitted.to_vec(),
        refused: refused.collect(),
        gates,
    };
    let report = check_while(problem, &plan, go_on)?;
    if report.ended_early {
        return Err(KeepError::Ended);
    }
    // Frames that overlap may be why a port cannot have its gates.
    if let (true, Some(full)) = (report.findings.iter().all(is_about_gates), full) {
        return Err(KeepError::Gates { why: words::reason(problem, &full) });
    }
    if report.findings.is_empty() {
        return Ok(());
    }
    let told = report.findings.iter().take(MAX_TOLD);
    let findings = told.map(|finding| finding.describe(problem)).collect();
    let left_out = usize::try_from(report.left_out).unwrap_or(usize::MAX);
    Err(KeepError::Findings { findings, count: report.findings.len().saturating_add(left_out) })
}

fn is_about_gates(finding: &crate::check::Finding) -> bool {
    finding.rule == crate::check::Rule::GatesMissing
}

fn unseated(problem: &Problem, id: StreamId, why: Unseated) -> KeepError {
    let stream = problem.stream(id).name.clone();
    let name = |link| problem.network().link(link).name.clone();
    match why {
        Unseated::Waits { link, frame, start, without } => {
            KeepError::Waits { stream, link: name(link), frame, start, without }
        }
        Unseated::Close { link, other } => {
            let other = other.map(|other| problem.stream(other).name.clone());
            let other = other.unwrap_or_else(|| "time that is kept free".to_owned());
            KeepError::Close { stream, link: name(link), other }
        }
    }
}
