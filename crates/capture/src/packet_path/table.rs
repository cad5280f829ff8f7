// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables: how long each stage took, over all packet paths, of each flow and at each hop. Memory is
//! that of the rows, however many packet paths there are.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use timewire_base::Span;

use super::identity::Map;
use super::{PacketPath, Parts, PathOutcome, Status};
use timewire_stats::{HistogramSummary, LogHistogram};

/// Which packet paths are looked at. The default: complete ones that a program received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Those that begin at this instant or later.
    ///
    /// **Units**: ns of the common scale.
    pub from_ns: i64,
    /// Those that begin before it.
    ///
    /// **Units**: ns of the common scale.
    pub to_ns: i64,
    /// Of these flows; empty for all.
    pub flows: BTreeSet<u32>,
    /// That pass one of these stations, of a capture; empty for all.
    pub stations: BTreeSet<(usize, u8)>,
    /// In which a stage with these parts took longer than that.
    pub longer: Option<(Parts, Span)>,
    /// Also those that are not complete.
    pub any_status: bool,
    /// Also those that no program received.
    pub any_outcome: bool,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter {
            from_ns: i64::MIN,
            to_ns: i64::MAX,
            flows: BTreeSet::new(),
            stations: BTreeSet::new(),
            longer: None,
            any_status: false,
            any_outcome: false,
        }
    }
}

impl Filter {
    /// Whether a packet path is one of them.
    pub fn takes(&self, packet_path: &PacketPath) -> bool {
        (self.any_status || packet_path.status == Status::Complete)
            && (self.any_outcome || packet_path.outcome == PathOutcome::Received)
            && (self.from_ns..self.to_ns).contains(&packet_path.from_ns())
            && (self.flows.is_empty() || self.flows.contains(&packet_path.flow()))
            && (self.stations.is_empty()
                || packet_path
                    .points
                    .iter()
                    .any(|p| self.stations.contains(&(usize::from(p.capture), p.station))))
            && self.longer.is_none_or(|(parts, than)| {
                packet_path.stages.iter().any(|s| s.parts.has(parts) && s.ns > than.as_ns())
            })
    }
}

/// Of which packet paths, or of which part of them, a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// All, at all hops.
    All,
    /// Of a flow.
    Flow(u32),
    /// Of flows for which there was no room.
    OtherFlows,
    /// At the n-th hop of all, from 0, where it is at this station of a capture.
    Hop(u8, u8, u8),
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Of what.
    pub scope: Scope,
    /// The stage's name, or `end-to-end`.
    pub stage: String,
    /// How long it took.
    pub times: HistogramSummary,
    /// Its share of the time of all packet paths of the scope, 1 for all of it; at a hop, of all
    /// packet paths.
    pub share: f64,
    /// The largest bound of its times, where they lie between two clocks; 0 elsewhere.
    pub bound_ns: u64,
}

#[derive(Clone, Debug)]
struct Cell {
    scope: Scope,
    /// `None`: from end to end.
    stage: Option<Parts>,
    times: LogHistogram,
    sum_ns: i128,
    bound_ns: u64,
}

/// The name of the row of whole packet paths.
pub const END_TO_END: &str = "end-to-end";

/// Sums packet paths up.
#[derive(Clone, Debug)]
pub struct Tables {
    cells: Vec<Cell>,
    places: Map<(Scope, Option<Parts>), usize>,
    flows: BTreeSet<u32>,
    most_flows: usize,
    left_out: u64,
}

/// Most rows: hops, stations and stages are numbers of a file, which can say anything.
const MAX_ROWS: usize = 4_096;

impl Tables {
    /// With rows of their own for so many flows, those that come first.
    pub fn new(most_flows: usize) -> Tables {
        let (cells, places, flows) = (Vec::new(), Map::default(), BTreeSet::new());
        Tables { cells, places, flows, most_flows, left_out: 0 }
    }

    /// Stages that had no row.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds a packet path.
    pub fn add(&mut self, packet_path: &PacketPath) {
        let flow = packet_path.flow();
        let known = self.flows.contains(&flow);
        let flow = if known || self.flows.len() < self.most_flows {
            if !known {
                self.flows.insert(flow);
            }
            Scope::Flow(flow)
        } else {
            Scope::OtherFlows
        };
        let all = (packet_path.end_to_end_ns(), packet_path.bound_ns());
        for scope in [Scope::All, flow] {
            self.record(scope, None, all);
        }
        for stage in &packet_path.stages {
            let at = &packet_path.points[stage.from];
            let hop = Scope::Hop(stage.hop, at.capture, at.station);
            for scope in [Scope::All, flow, hop] {
                self.record(scope, Some(stage.parts), (stage.ns, stage.bound_ns));
            }
        }
    }

    fn record(&mut self, scope: Scope, stage: Option<Parts>, (ns, bound_ns): (i64, u64)) {
        let cells = &mut self.cells;
        if cells.len() >= MAX_ROWS && !self.places.contains_key(&(scope, stage)) {
            self.left_out += 1;
            return;
        }
        let place = *self.places.entry((scope, stage)).or_insert_with(|| {
            let times = LogHistogram::up_to(Span::from_secs(100));
            cells.push(Cell { scope, stage, times, sum_ns: 0, bound_ns: 0 });
            cells.len() - 1
        });
        let cell = &mut self.cells[place];
        cell.times.record(Span::from_ns(ns));
        cell.sum_ns += i128::from(ns);
        cell.bound_ns = cell.bound_ns.max(bound_ns);
    }

    /// The rows: by scope, whole packet paths first, then stages in the order of a packet's way.
    pub fn rows(&self) -> Vec<Row> {
        let whole = |scope| {
            let scope = if matches!(scope, Scope::Hop(..)) { Scope::All } else { scope };
            self.places.get(&(scope, None)).map_or(0, |&place| self.cells[place].sum_ns)
        };
        let mut cells: Vec<&Cell> = self.cells.iter().collect();
        cells.sort_by_key(|cell| (cell.scope, cell.stage));
        let row = |cell: &&Cell| Row {
            scope: cell.scope,
            stage: cell.stage.map_or(END_TO_END.to_owned(), Parts::name),
            times: cell.times.summary(),
            share: ratio(cell.sum_ns, whole(cell.scope)),
            bound_ns: cell.bound_ns,
        };
        cells.iter().map(row).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people: one rounding to 53 bits")]
pub(super) fn ratio(part: i128, whole: i128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
