// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a talker hears, port by port, of messages that did not leave.
//!
//! Not here: why they did not (`crate::drops`).

use timewire_base::IfName;
use timewire_path::talker::{StreamEvent, StreamSpec, TalkerReport};

use super::plan::Plan;
use crate::drops::{self, DropCause, Heard, QdiscCounts, Socket};

/// Counts for each port of a plan.
#[derive(Clone, Debug)]
pub(super) struct PortDrops {
    port_by_number: Vec<usize>,
    heard: Vec<Heard>,
}

impl PortDrops {
    pub(super) fn new(made: &Plan) -> PortDrops {
        let number = |stream: &StreamSpec| usize::from(stream.number);
        let most = made.streams.iter().map(number).max().unwrap_or(0);
        let mut port_by_number = vec![0; most + 1];
        for stream in &made.streams {
            port_by_number[number(stream)] = stream.port;
        }
        PortDrops { port_by_number, heard: vec![Heard::default(); made.ports.len()] }
    }

    /// In the loop of the talker: nothing is allocated.
    #[inline]
    pub(super) fn note(&mut self, event: &StreamEvent) {
        let port = self.port_by_number[usize::from(event.stream)];
        self.heard[port].event(&event.what);
    }

    /// Why they did not leave.
    pub(super) fn causes(
        mut self,
        made: &Plan,
        interface: Option<&IfName>,
        report: &TalkerReport,
        before: &QdiscCounts,
    ) -> Vec<DropCause> {
        let mut not_taken = vec![0; self.heard.len()];
        for (stream, told) in made.streams.iter().zip(&report.streams) {
            not_taken[stream.port] += told.counters.not_taken;
        }
        for (heard, not_taken) in self.heard.iter_mut().zip(not_taken) {
            heard.complete(not_taken);
        }
        let interface = interface.map(ToString::to_string);
        let ports = made.ports.iter();
        let sockets = ports.map(|(_, options)| Socket::of(interface.clone(), options));
        let sockets: Vec<_> = sockets.zip(self.heard).collect();
        drops::causes(&sockets, before)
    }
}
