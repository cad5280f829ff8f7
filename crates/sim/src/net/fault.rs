// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes wrong, and when it is over.

use super::delay::ps;
use super::describe::FaultKind;
use super::engine::{Kind, Simulation};
use super::frame::{Tags, slot};
use super::ports::PortMore;
use super::route::index;
use super::stats::LostBy;

impl Simulation {
    pub(super) fn fault_begins(&mut self, number: usize) {
        let fault = self.faults[number].clone();
        let ends = self.now + ps(fault.lasts);
        match fault.kind {
            FaultKind::ClockStep(node, by) => {
                self.nodes[node].clock.step(self.now, by);
                return self.clock_changed(index(node));
            }
            FaultKind::ClockDrift(node, ppb) => {
                self.nodes[node].clock.drift(self.now, ppb);
                return self.clock_changed(index(node));
            }
            FaultKind::Gates { port, change, gates } => {
                self.ports[port.0].port.set_gates(change, gates.map(|list| *list));
                return self.kick(index(port.0));
            }
            FaultKind::Babble(stream) => {
                let flow = &mut self.apps[stream];
                let quiet = self.now >= flow.babble_until;
                flow.babble_until = flow.babble_until.max(ends);
                if quiet {
                    self.babble(index(stream));
                }
                return;
            }
            FaultKind::LinkDown(link) => self.link_down(link),
            FaultKind::Restart(node) => self.restart(index(node)),
            FaultKind::Loss(link, ppb) => {
                self.roughen_link(link, |port| port.loss_ppb += u64::from(ppb));
            }
            FaultKind::Corruption(link, ppb) => {
                self.roughen_link(link, |port| port.corrupt_ppb += u64::from(ppb));
            }
            FaultKind::MasterLost => self.master_lost += 1,
            FaultKind::LateApplication(stream, by) => self.be_late(stream, |late| late + ps(by)),
        }
        self.at(ends, Kind::FaultEnds, index(number), 0);
    }

    pub(super) fn fault_ends(&mut self, number: usize) {
        match self.faults[number].kind {
            FaultKind::LinkDown(link) => {
                self.roughen_link(link, |port| port.down -= 1);
            }
            FaultKind::Restart(node) => {
                self.nodes[node].down -= 1;
                self.nodes_down -= 1;
            }
            FaultKind::Loss(link, ppb) => {
                self.roughen_link(link, |port| port.loss_ppb -= u64::from(ppb));
            }
            FaultKind::Corruption(link, ppb) => {
                self.roughen_link(link, |port| port.corrupt_ppb -= u64::from(ppb));
            }
            FaultKind::MasterLost => self.master_lost -= 1,
            FaultKind::LateApplication(stream, by) => self.be_late(stream, |late| late - ps(by)),
            _ => {}
        }
    }

    /// Something changes of what becomes of frames on a link.
    fn roughen_link(&mut self, link: usize, change: impl Fn(&mut PortMore)) {
        for port in [2 * link, 2 * link + 1] {
            self.roughen(port, &change);
        }
    }

    /// What is on the link is lost.
    fn link_down(&mut self, link: usize) {
        let ports = [index(2 * link), index(2 * link + 1)];
        self.roughen_link(link, |port| port.down += 1);
        let now = self.now;
        self.lose_flying(LostBy::LinkDown, |port, arrives| ports.contains(&port) && arrives > now);
    }

    /// What the node keeps, and what it has not sent to the last bit, is lost.
    fn restart(&mut self, node: u32) {
        self.nodes[slot(node)].down += 1;
        self.nodes_down += 1;
        let clocks = self.clocks(node);
        for place in 0..self.nodes[slot(node)].ports.len() {
            let number = self.nodes[slot(node)].ports[place];
            if let Some((medium, station)) = self.port_more[slot(number)].medium {
                let is_sending = self.media[slot(medium)].is_sending(slot(station));
                for frame in self.media[slot(medium)].drop_hands(slot(station)) {
                    if !is_sending {
                        self.ports[slot(number)].free_at = self.now;
                    }
                    self.lose(frame, LostBy::Restart);
                }
            } else {
                self.ports[slot(number)].free_at = self.now;
                let (now, delay) = (self.now, self.port_more[slot(number)].delay);
                self.lose_flying(LostBy::Restart, |port, arrives| {
                    port == number && arrives > now + delay
                });
            }
            for frame in self.ports[slot(number)].port.flush(clocks) {
                self.lose(frame, LostBy::Restart);
            }
        }
    }

    fn lose_flying(&mut self, by: LostBy, whose: impl Fn(u32, u64) -> bool) {
        let mut lost = Vec::new();
        let mut slab = std::mem::take(&mut self.slab);
        for flying in slab.live() {
            let frame = &mut flying.frame;
            if !frame.tags.has(Tags::GONE) && whose(self.sent_by(frame), flying.arrives) {
                frame.tags = frame.tags.with(Tags::GONE);
                lost.push(*frame);
            }
        }
        self.slab = slab;
        for frame in lost {
            self.lose(frame, by);
        }
    }
}
