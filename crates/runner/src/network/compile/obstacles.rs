// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a file a place cannot carry out, and what it does otherwise.

use timewire_base::{IfName, Span};
use timewire_model::scenario::network::{NetCbsRules, NetDelay, NetDrawn, NetTraffic};

use crate::host_part;

use super::super::segment::is_set;
use super::replies::MOST_MESSAGES;
use super::{Compiler, MAX_STREAMS, Obstacle, Site, obstacle, whole_us};

impl Compiler<'_> {
    /// What the file asks for and kernels do not do.
    pub(super) fn obstacles(&self) -> Vec<Obstacle> {
        let mut found = Vec::new();
        let mut refuse = |what: String, why: &str| found.push(obstacle(&what, why.to_owned()));
        for segment in &self.file.segments {
            refuse(
                format!("segment {}", segment.name),
                "kernels have a segment without links and bridges beside it, and in no run with \
                 such networks; simulate it: `--on sim`",
            );
        }
        if self.file.schedule.is_some() && self.file.segments.is_empty() {
            refuse("schedule".to_owned(), "slots are of shared segments");
        }
        for program in &self.file.programs {
            refuse(
                format!("program {}", program.name),
                "programs run on one segment, or without streams on kernels of their own",
            );
        }
        if !self.file.faults.is_empty() {
            refuse("faults".to_owned(), "only the simulator makes them");
        }
        for link in &self.file.links {
            if link.loss.0 > 0 || link.corruption.0 > 0 {
                let name = format!("link {}-{}", link.between[0], link.between[1]);
                refuse(name, "only the simulator loses or damages frames");
            }
        }
        for bridge in self.file.bridges.iter().filter(|it| it.cut_through.is_some()) {
            refuse(format!("bridge {}", bridge.name), "Linux bridges store and forward");
        }
        for (number, port) in self.file.ports.iter().enumerate() {
            let name = || format!("ports[{number}]");
            if !port.preemptable.is_empty() {
                refuse(name(), "`preemptable`: frames are preempted by NICs, not by kernels");
            }
            if !port.ats.is_empty() {
                refuse(name(), "`ats`: Linux has no asynchronous traffic shaping");
            }
            if port.capacity.is_some() {
                refuse(name(), "`capacity`: queues of kernels are as they are");
            }
            if port.cbs.iter().any(|it| it.rules == NetCbsRules::Linux) {
                refuse(name(), "`rules: linux`: credit follows from the rate here");
            }
        }
        for (number, stream) in self.file.streams.iter().enumerate() {
            let varies = |delay: &NetDelay| matches!(delay, NetDelay::Drawn(_));
            let is_recorded = |it: &NetDelay| matches!(it, NetDelay::Drawn(NetDrawn::Recorded(_)));
            let why = match &stream.traffic {
                NetTraffic::Cyclic(it) if it.jitter != NetDelay::Fixed(Span::ZERO) => {
                    "`jitter`: a talker sends when it is due"
                }
                NetTraffic::Sporadic(it) if is_recorded(&it.gap) => {
                    "`gap`: recorded times are the simulator's"
                }
                NetTraffic::Sporadic(_) if self.times_of(number, stream).len() > MOST_MESSAGES => {
                    "it has more than 400000 messages: make `gap` or `duration` another"
                }
                NetTraffic::Request(it) if varies(&it.think) => {
                    "`think`: a program takes one time, not one that differs"
                }
                NetTraffic::After(it) if varies(&it.work) => {
                    "`work`: a program takes one time, not one that differs"
                }
                NetTraffic::Sporadic(_) | NetTraffic::Request(_) | NetTraffic::After(_)
                    if stream.launch.is_some() =>
                {
                    "`launch`: only talkers of cyclic streams have launch times"
                }
                NetTraffic::RequestResponse(_) | NetTraffic::Pipeline(_) => {
                    "programs on one segment send it; with links, a stream `kind: request` and one \
                     `kind: after`, or a chain of `kind: after`"
                }
                NetTraffic::Replay(_) => "a talker replays no capture; simulate it: timewire sim",
                _ if stream.ats.is_some() => "`ats`: Linux has no asynchronous traffic shaping",
                _ => continue,
            };
            refuse(format!("stream {}", stream.name), why);
        }
        if let Site::Hosts(hosts) = self.site {
            for link in &self.file.links {
                for end in 0..2 {
                    let (own, far) = (&link.between[end], &link.between[1 - end]);
                    if hosts.station(own).is_none() {
                        refuse(own.to_string(), "the hosts file has no station of this name");
                    } else if hosts.interface(own, far).is_none() {
                        let why = format!("the hosts file names no interface at its link to {far}");
                        refuse(own.to_string(), &why);
                    }
                }
            }
        }
        if let Site::Hosts(_) = self.site {
            for station in &self.file.stations {
                let Some(host) = &station.host else { continue };
                let own = self.interfaces(&station.name);
                let own: Vec<IfName> = own.iter().filter_map(|it| IfName::new(it).ok()).collect();
                found.extend(host_part::in_the_way(&station.name, host, &own, false));
            }
        }
        if self.file.streams.len() > MAX_STREAMS {
            let why = "each has a VLAN of its own, and there are no more".to_owned();
            found.push(obstacle(&format!("{} streams", self.file.streams.len()), why));
        }
        found
    }

    /// What is done otherwise than the file says.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let has_gates = self.file.ports.iter().any(|port| port.gates.is_some());
        if has_gates && self.file.streams.iter().any(|stream| self.admission(stream).is_none()) {
            let note = "behind gates, classes that share a gate close two of their longest frames \
                        earlier, so they carry less than in the simulator";
            notes.push(note.to_owned());
        }
        let hosts = || self.file.stations.iter().map(|it| (&it.name, it.host.as_ref()));
        if matches!(self.site, Site::Hosts(_)) {
            notes.extend(host_part::clocks_by_hand(hosts()));
            notes
                .push("rates and delays of the links are taken to be those of the file".to_owned());
            return notes;
        }
        notes.extend(host_part::not_applied(hosts()));
        let rounded: Vec<String> = self
            .file
            .links
            .iter()
            .filter(|link| whole_us(link.delay) != link.delay)
            .map(|link| format!("{}-{}", link.between[0], link.between[1]))
            .collect();
        if !rounded.is_empty() {
            notes.push(format!(
                "delays of links are rounded up to whole microseconds, which promises allow for: \
                 {}",
                rounded.join(", ")
            ));
        }
        let clocks = self.file.stations.iter().map(|it| (&it.name, &it.clock));
        let clocks = clocks.chain(self.file.bridges.iter().map(|it| (&it.name, &it.clock)));
        let own: Vec<String> =
            clocks.filter(|(_, clock)| is_set(clock)).map(|(name, _)| name.to_string()).collect();
        if !own.is_empty() {
            notes.push(format!(
                "all stations and bridges share one clock, which does not drift: {}",
                own.join(", ")
            ));
        }
        notes
    }
}
