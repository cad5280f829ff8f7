// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything at once: events go in; tables, the worst packet paths and chains come out. Memory is
//! that of open packet paths, of the rows and of what is kept.

use std::collections::BTreeMap;

use timewire_base::CyclicWindows;

use super::bounds::left;
use super::chain::{Chain, ChainReport, Chains};
use super::context::Context;
use super::culprit::{Known, judge, sentence};
use super::follow::{Counts, Held, PacketPaths};
use super::table::{Filter, Row, Tables};
use super::worst::{Judged, Keep, Worst};
use super::{CaptureInfo, ClockMap, Loss, Observer, PacketPath, Point, Settings};
use crate::capture::{CaptureHeader, Note};
use crate::event::Event;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How packet paths are made.
    pub settings: Settings,
    /// Which of them are in the tables and among the worst.
    pub filter: Filter,
    /// How many of the worst are kept.
    pub keep: Keep,
    /// Flows with rows of their own.
    pub flows: usize,
    /// Chains of markers.
    pub chains: Vec<Chain>,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            settings: Settings::default(),
            filter: Filter::default(),
            keep: Keep::default(),
            flows: 256,
            chains: Vec::new(),
        }
    }
}

/// Analyses captures.
#[derive(Debug)]
pub struct Analysis<C> {
    packet_paths: PacketPaths<C>,
    filter: Filter,
    tables: Tables,
    worst: Worst,
    chains: Chains,
    known: Known,
    untimed: u64,
    context: Context,
}

/// What sees events and packet paths while they pass.
struct Seen<'a, C, O> {
    clocks: &'a C,
    filter: &'a Filter,
    tables: &'a mut Tables,
    worst: &'a mut Worst,
    chains: &'a mut Chains,
    known: &'a Known,
    untimed: &'a mut u64,
    context: &'a mut Context,
    lost: &'a [super::losses::Intervals],
    also: &'a mut O,
}

impl<C: ClockMap, O: Observer> Observer for Seen<'_, C, O> {
    fn event(&mut self, capture: usize, point: &Point, event: &Event) {
        self.context.event(point, event);
        let lost = |from, to| self.lost.iter().any(|lost| lost.overlap(from, to));
        self.chains.event(point, event, self.known, lost);
        self.also.event(capture, point, event);
    }

    fn packet_path(&mut self, packet_path: &PacketPath) {
        self.also.packet_path(packet_path);
        if !self.filter.takes(packet_path) {
            return;
        }
        // A difference of two clocks of which nothing is known is no time.
        if !packet_path.is_timed() {
            *self.untimed += 1;
            return;
        }
        self.tables.add(packet_path);
        let (known, context, clocks) = (self.known, &*self.context, self.clocks);
        self.worst.add(packet_path, |packet_path| {
            let verdict = judge(packet_path, known, context, clocks);
            (verdict, sentence(packet_path, &verdict, known))
        });
    }
}

impl<C: ClockMap> Analysis<C> {
    /// Of these captures.
    pub fn new(captures: Vec<CaptureInfo>, clocks: C, wanted: Wanted) -> Analysis<C> {
        let context = Context::new(wanted.settings.bounds.spans);
        Analysis {
            chains: Chains::new(wanted.chains, &wanted.settings),
            packet_paths: PacketPaths::new(captures, clocks, wanted.settings),
            filter: wanted.filter,
            tables: Tables::new(wanted.flows),
            worst: Worst::new(wanted.keep),
            known: Known::default(),
            untimed: 0,
            context,
        }
    }

    /// A capture's header: names of its stations.
    pub fn header(&mut self, capture: usize, header: &CaptureHeader) {
        self.known.header(capture, header);
        self.chains.learned();
    }

    /// A capture's note: names, queueing disciplines, clocks. Losses are told with
    /// [`CaptureInfo`] or [`Analysis::lose`].
    pub fn note(&mut self, capture: usize, note: &Note) {
        self.known.learn(capture, note);
        self.chains.learned();
    }

    /// When a station may send.
    pub fn schedule(&mut self, capture: usize, station: u8, windows: CyclicWindows) {
        self.known.schedule.insert((capture, station), windows);
    }

    /// As [`PacketPaths::lose`].
    pub fn lose(&mut self, capture: usize, loss: Loss) {
        self.packet_paths.lose(capture, loss);
    }

    /// Takes an event, as [`PacketPaths::event`]; `also` is told what passes.
    pub fn event(&mut self, capture: usize, event: &Event, also: &mut impl Observer) {
        if self.packet_paths.hold(capture, event) {
            self.pass(also, |packet_paths, seen| packet_paths.settle_ready(seen));
        }
    }

    /// As [`PacketPaths::settle`].
    pub fn settle(&mut self, upto_ns: i64, also: &mut impl Observer) {
        self.pass(also, |packet_paths, seen| packet_paths.settle(upto_ns, seen));
    }

    /// Ends: every packet path comes out, and every chain.
    pub fn finish(&mut self, also: &mut impl Observer) {
        self.pass(also, |packet_paths, seen| packet_paths.finish(seen));
        let lost: Vec<_> = self.packet_paths.captures.iter().map(|c| c.lost.clone()).collect();
        self.chains.finish(|from, to| lost.iter().any(|lost| lost.overlap(from, to)));
    }

    fn pass<O: Observer>(
        &mut self,
        also: &mut O,
        act: impl FnOnce(&mut PacketPaths<C>, &mut Seen<'_, C, O>),
    ) {
        let clocks = self.packet_paths.clocks();
        let lost: Vec<_> = self.packet_paths.captures.iter().map(|c| c.lost.clone()).collect();
        let mut seen = Seen {
            clocks: clocks.as_ref(),
            filter: &self.filter,
            tables: &mut self.tables,
            worst: &mut self.worst,
            chains: &mut self.chains,
            known: &self.known,
            untimed: &mut self.untimed,
            context: &mut self.context,
            lost: &lost,
            also,
        };
        act(&mut self.packet_paths, &mut seen);
    }

    /// How many there were until now, and what had no room.
    pub fn counts(&self) -> Counts {
        let mut counts = self.packet_paths.counts();
        let whole = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        for (what, count) in [
            (left::STAGES, self.tables.left_out()),
            (left::SPANS, whole(self.context.left_out())),
            (left::TAGS, self.chains.left_out()),
            (left::STEPS, whole(self.known.left_out())),
            (left::UNTIMED, self.untimed),
        ] {
            if count > 0 {
                counts.left_out.insert(what, count);
            }
        }
        counts
    }

    /// The tables' rows.
    pub fn rows(&self) -> Vec<Row> {
        self.tables.rows()
    }

    /// The worst packet paths.
    pub fn worst(&self) -> &Worst {
        &self.worst
    }

    /// The longest packet paths, descending.
    pub fn longest(&self) -> &[Judged] {
        self.worst.longest()
    }

    /// As [`Worst::take_of_stations`].
    pub fn take_of_stations(&mut self) -> BTreeMap<(u8, u8), Judged> {
        self.worst.take_of_stations()
    }

    /// As [`PacketPaths::forget`]; names, too, when there are very many.
    pub fn forget(&mut self, idle_ns: i64) {
        self.packet_paths.forget(idle_ns);
        self.known.forget();
    }

    /// How much is kept in mind, beside tables and the worst packet paths, which have bounds.
    pub fn held(&self) -> Held {
        Held { names: self.known.held(), ..self.packet_paths.held() }
    }

    /// Frames of drivers among the packets of [`Analysis::held`].
    #[cfg(test)]
    pub(super) fn held_arrivals(&self) -> usize {
        self.packet_paths.held_arrivals()
    }

    /// The chains.
    pub fn chains(&self) -> Vec<ChainReport> {
        self.chains.reports()
    }

    /// What the notes told.
    pub fn known(&self) -> &Known {
        &self.known
    }
}
