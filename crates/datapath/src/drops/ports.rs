// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a talker hears, port by port, of messages that did not leave.

use crate::heard::Hear;
use crate::talker::{StreamEvent, StreamSpec, TalkerReport};
use crate::transmit::{TransmitOptions, Transport};
use timewire_base::IfName;

use super::{DropCause, Heard, QdiscCounts, Socket, causes};

/// Counts for each port of a talker, and the counters of the queueing disciplines before it sends.
#[derive(Clone, Debug)]
pub struct PortDrops {
    /// By the number of a stream.
    port_by_number: Vec<usize>,
    /// In the order of the streams.
    port_of: Vec<usize>,
    sockets: Vec<(Socket, Heard)>,
    before: QdiscCounts,
}

impl PortDrops {
    /// Of a talker that has these; its frames leave through `interface`, where that is known. The
    /// counters are those of before: reading them takes a program and some milliseconds, so neither
    /// a start that is near nor memory shared with the kernel should be there by then.
    pub fn new(
        ports: &[(Transport, TransmitOptions)],
        streams: &[StreamSpec],
        interface: Option<&IfName>,
        before: QdiscCounts,
    ) -> PortDrops {
        let number = |stream: &StreamSpec| usize::from(stream.number);
        let most = streams.iter().map(number).max().unwrap_or(0);
        let mut port_by_number = vec![0; most + 1];
        for stream in streams {
            port_by_number[number(stream)] = stream.port;
        }
        let interface = interface.map(ToString::to_string);
        let socket = |options: &TransmitOptions| options.socket(interface.clone());
        PortDrops {
            port_by_number,
            port_of: streams.iter().map(|stream| stream.port).collect(),
            sockets: ports.iter().map(|(_, it)| (socket(it), Heard::default())).collect(),
            before,
        }
    }

    /// In the loop of the talker: nothing is allocated.
    #[inline]
    pub fn note(&mut self, event: &StreamEvent) {
        let port = self.port_by_number.get(usize::from(event.stream));
        if let Some((_, heard)) = port.and_then(|port| self.sockets.get_mut(*port)) {
            heard.event(&event.what);
        }
    }

    /// Why they did not leave.
    pub fn causes(mut self, report: &TalkerReport) -> Vec<DropCause> {
        let mut not_taken = vec![0; self.sockets.len()];
        for (port, told) in self.port_of.iter().zip(&report.streams) {
            not_taken[*port] += told.counters.not_taken;
        }
        for ((_, heard), not_taken) in self.sockets.iter_mut().zip(not_taken) {
            heard.complete(not_taken);
        }
        causes(&self.sockets, &self.before)
    }
}
