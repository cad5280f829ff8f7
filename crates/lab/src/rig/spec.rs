// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a test declares: stations, bridges, links, disciplines.
//!
//! Not here: making it (`build`), traffic (`traffic`).

use std::collections::VecDeque;

use timewire_base::{BitsPerSecond, Span, StationName};

use crate::LabError;

/// A declaration of a network. Mistakes in it show when it is built.
#[derive(Clone, Debug, Default)]
pub struct Rig {
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
    pub(super) lines: Vec<Line>,
    pub(super) vlans: Vec<u16>,
    pub(super) ipv6: bool,
    pub(super) patience: Option<Span>,
    alike: bool,
    mistake: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub name: String,
    pub is_bridge: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Both ends, as indices of nodes.
    pub ends: [usize; 2],
    /// `None`: it takes no time at all.
    pub wire: Option<Wire>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub rate: BitsPerSecond,
    pub delay: Span,
}

/// A discipline on one interface.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub on: usize,
    pub towards: usize,
    pub text: String,
}

impl Rig {
    /// Nothing yet.
    pub fn new() -> Rig {
        Rig::default()
    }

    /// An end station. Its interfaces are `eth0`, `eth1`, ... in the order of its links.
    pub fn station(&mut self, name: &str) -> &mut Rig {
        self.node(name, false)
    }

    /// A bridge. Its ports are `p0`, `p1`, ... in the order of its links. It knows where every
    /// station is, gives a frame the priority of its PCP (0 without a tag), and lets through
    /// untagged frames and those of the VLANs of [`Rig::vlan`].
    pub fn bridge(&mut self, name: &str) -> &mut Rig {
        self.node(name, true)
    }

    /// A link that takes no time: what one end sends the other receives in the same instant.
    pub fn link(&mut self, a: &str, b: &str) -> &mut Rig {
        self.connect(a, b, None)
    }

    /// A link with a rate and, on top of the time that a frame takes, a delay of whole
    /// microseconds. Each direction has its own. A frame is counted with check sequence, preamble
    /// and gap (24 bytes more than Linux counts), a tag not: the kernel carries it apart from the
    /// frame.
    pub fn wire(&mut self, a: &str, b: &str, rate: BitsPerSecond, delay: Span) -> &mut Rig {
        if delay.as_ns() % 1_000 != 0 || delay.is_negative() {
            self.wrong(format!("a delay of {delay} is no number of whole microseconds"));
        }
        self.connect(a, b, Some(Wire { rate, delay }))
    }

    /// Puts a discipline on the interface of one node towards another, as the words of a `tc qdisc
    /// add dev ...`: `root handle 100: taprio ...`, `parent 100:1 etf ...`. In the order of the
    /// calls, after all links are up.
    pub fn qdisc(&mut self, on: &str, towards: &str, words: &str) -> &mut Rig {
        let (on, towards) = (self.index(on), self.index(towards));
        self.lines.push(Line { on, towards, text: words.to_owned() });
        self
    }

    /// A VLAN of all bridges, tagged on all ports.
    pub fn vlan(&mut self, identifier: u16) -> &mut Rig {
        self.vlans.push(identifier);
        self
    }

    /// Has IPv6 beside IPv4. Stations then report their addresses on the links for the first
    /// seconds.
    pub fn ipv6(&mut self) -> &mut Rig {
        self.ipv6 = true;
        self
    }

    /// Has the ports of bridges be called `eth0`, `eth1`, ... too, as planned files call them.
    pub fn ports_like_stations(&mut self) -> &mut Rig {
        self.alike = true;
        self
    }

    /// How long after the last sending frames are waited for: 200 ms when nothing is said.
    pub fn patience(&mut self, span: Span) -> &mut Rig {
        self.patience = Some(span);
        self
    }

    fn node(&mut self, name: &str, is_bridge: bool) -> &mut Rig {
        if let Err(error) = StationName::new(name) {
            self.wrong(error.to_string());
        } else if self.nodes.iter().any(|node| node.name == name) {
            self.wrong(format!("two nodes are called {name}"));
        }
        self.nodes.push(Node { name: name.to_owned(), is_bridge });
        self
    }

    fn connect(&mut self, a: &str, b: &str, wire: Option<Wire>) -> &mut Rig {
        let ends = [self.index(a), self.index(b)];
        if ends[0] == ends[1] {
            self.wrong(format!("a link of {a} with itself"));
        }
        self.links.push(Link { ends, wire });
        self
    }

    /// The node of this name; the first one, and a mistake, when there is none.
    fn index(&mut self, name: &str) -> usize {
        let found = self.nodes.iter().position(|node| node.name == name);
        if found.is_none() {
            self.wrong(format!("there is no node {name}"));
        }
        found.unwrap_or(0)
    }

    fn wrong(&mut self, why: String) {
        self.mistake.get_or_insert(why);
    }

    /// **Errors**: a mistake in the declaration.
    pub(super) fn check(&self) -> Result<(), LabError> {
        let lonely = |line: &&Line| self.interface(line.on, line.towards).is_none();
        let why = match (&self.mistake, self.lines.iter().find(lonely)) {
            (Some(why), _) => why.clone(),
            (None, Some(line)) => {
                let name = |node: usize| &self.nodes[node].name;
                format!("{} has no link to {}", name(line.on), name(line.towards))
            }
            (None, None) => return Ok(()),
        };
        Err(LabError::Spec { why })
    }

    /// Whether a namespace of its own carries the link: to a bridge always.
    pub(super) fn has_wire(&self, link: &Link) -> bool {
        link.wire.is_some() || link.ends.iter().any(|end| self.nodes[*end].is_bridge)
    }

    /// The links of a node, in order.
    pub(super) fn links_of(&self, node: usize) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| link.ends.contains(&node))
    }

    /// What the interface towards a neighbour is called.
    pub(super) fn interface(&self, on: usize, towards: usize) -> Option<String> {
        let at = self.links_of(on).position(|link| link.ends.contains(&towards))?;
        let prefix = self.prefix(on);
        Some(format!("{prefix}{at}"))
    }

    /// What the names of a node's interfaces begin with.
    pub(super) fn prefix(&self, node: usize) -> &'static str {
        if self.nodes[node].is_bridge && !self.alike { "p" } else { "eth" }
    }

    /// The neighbour of a bridge through which the shortest way to a station leads.
    pub(super) fn next_hop(&self, bridge: usize, station: usize) -> Option<usize> {
        // From the station outwards, through bridges only.
        let mut from = vec![None; self.nodes.len()];
        let mut waiting = VecDeque::from([station]);
        while let Some(node) = waiting.pop_front() {
            for link in self.links_of(node) {
                let other = if link.ends[0] == node { link.ends[1] } else { link.ends[0] };
                if self.nodes[other].is_bridge && from[other].is_none() {
                    from[other] = Some(node);
                    waiting.push_back(other);
                }
            }
        }
        from[bridge]
    }

    /// The Ethernet address of a station's interface.
    pub(super) fn mac(station: usize, interface: usize) -> [u8; 6] {
        let byte = |number: usize| u8::try_from(number).expect("invariant: rigs are small");
        [2, 0x77, 0, 0, byte(station + 1), byte(interface)]
    }
}

pub(super) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_interfaces_are_numbered_by_link_and_ways_go_through_bridges() {
        let mut rig = Rig::new();
        rig.station("a").bridge("x").bridge("y").station("b").station("c");
        rig.link("a", "x").link("x", "y").link("y", "b").link("c", "x");
        assert!(rig.check().is_ok());
        assert_eq!(rig.interface(1, 2).as_deref(), Some("p1"));
        assert_eq!(rig.interface(1, 4).as_deref(), Some("p2"));
        assert_eq!(rig.interface(3, 2).as_deref(), Some("eth0"));
        assert_eq!(rig.interface(0, 3), None);
        let alike = rig.clone().ports_like_stations().interface(1, 4);
        assert_eq!(alike.as_deref(), Some("eth2"));
        let hops: Vec<_> = [0, 3, 4].map(|to| (rig.next_hop(1, to), rig.next_hop(2, to))).into();
        assert_eq!(hops, [(Some(0), Some(1)), (Some(2), Some(3)), (Some(4), Some(1))]);
    }

    #[test]
    fn t0_mistakes_are_named() {
        let said = |rig: &Rig| rig.check().unwrap_err().to_string();
        let mut rig = Rig::new();
        rig.station("a").station("b");
        assert!(said(rig.clone().link("a", "z")).ends_with("there is no node z"));
        assert!(said(rig.clone().link("a", "a")).ends_with("a link of a with itself"));
        assert!(said(rig.clone().qdisc("a", "b", "root fq")).ends_with("a has no link to b"));
        assert!(said(rig.clone().station("a")).ends_with("two nodes are called a"));
        let rate = BitsPerSecond::new(1).unwrap();
        assert!(said(rig.clone().wire("a", "b", rate, Span::from_ns(1))).contains(" 1ns "));
        assert!(said(rig.clone().station("A!")).contains("A!"));
    }
}
