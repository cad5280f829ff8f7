// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making a declared network: one namespace per node and per wire, the links between them, the
//! bridges' tables, addresses, disciplines.
//!
//! Nothing speaks unasked: no spanning tree, no multicast snooping, no address resolution (every
//! station knows every other), no IPv6 unless it was asked for.
//!
//! Not here: what runs on it (`bench`, `traffic`).

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Deserialize;
use timewire_host::tool::{self, Tool, netns_path};

use super::bench::Bench;
use super::spec::{Rig, Wire, mac_text};
use crate::{LabError, ns};

impl Rig {
    /// Makes it. It needs root in a kernel that has what the disciplines need: in a laboratory
    /// machine, as a rule.
    ///
    /// **Errors**: a mistake in the declaration, a missing tool, a refusal of the kernel. Nothing
    /// is left then.
    pub fn build(&self) -> Result<Bench, LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        self.check()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("twrig-{}-{count}", std::process::id());
        let bench = Bench::of(self.clone(), prefix);
        bench.make()?;
        Ok(bench)
    }
}

impl Bench {
    fn make(&self) -> Result<(), LabError> {
        let names = self.namespaces();
        let lines: Vec<_> = names.iter().map(|name| format!("netns add {name}")).collect();
        tool::batch(Tool::Ip, None, &lines)?;
        for name in &names {
            let ipv6 = self.rig.ipv6;
            ns::in_namespace(&netns_path(name), || set_ipv6(ipv6))?
                .map_err(|source| LabError::Namespace { what: format!("set up {name}"), source })?;
        }
        tool::batch(Tool::Ip, None, &self.link_lines())?;
        for (node, described) in self.rig.nodes.iter().enumerate() {
            let netns = self.netns_name(node);
            let lines = if described.is_bridge {
                self.bridge_lines(node)
            } else {
                self.station_lines(node)
            };
            tool::batch(Tool::Ip, Some(&netns), &lines)?;
        }
        for (at, link) in self.rig.links.iter().enumerate() {
            if self.rig.has_wire(link) {
                let netns = self.wire_name(at);
                let up = ["link set w0 up", "link set w1 up"].map(str::to_owned);
                tool::batch(Tool::Ip, Some(&netns), &up)?;
                tool::batch(Tool::Tc, Some(&netns), &wire_lines(link.wire))?;
            }
        }
        self.wait_for_links()?;
        self.set_bridges_up()?;
        self.add_disciplines()
    }

    /// All veth pairs, each end made where it belongs.
    fn link_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, link) in self.rig.links.iter().enumerate() {
            let [a, b] = link.ends;
            let end = |on: usize, towards: usize| {
                let name = self.rig.interface(on, towards).expect("invariant: they are linked");
                let number = self.rig.links_of(on).take_while(|l| !std::ptr::eq(*l, link)).count();
                let mac = if self.rig.nodes[on].is_bridge {
                    String::new()
                } else {
                    format!("address {} ", mac_text(Rig::mac(on, number)))
                };
                format!("{name} netns {} {mac}{QUEUES}", self.netns_name(on))
            };
            if self.rig.has_wire(link) {
                let wire = self.wire_name(at);
                for (side, end) in [("w0", end(a, b)), ("w1", end(b, a))] {
                    lines.push(format!(
                        "link add {end} type veth peer name {side} netns {wire} {QUEUES}"
                    ));
                }
            } else {
                lines.push(format!("link add {} type veth peer name {}", end(a, b), end(b, a)));
            }
        }
        lines
    }

    fn station_lines(&self, node: usize) -> Vec<String> {
        let mut lines = vec!["link set lo up".to_owned()];
        for at in 0..self.rig.links_of(node).count() {
            lines.push(format!("link set eth{at} up"));
        }
        if self.rig.links_of(node).next().is_none() {
            return lines;
        }
        let number = node + 1;
        lines.push(format!("addr add 10.77.0.{number}/24 dev eth0"));
        if self.rig.ipv6 {
            lines.push(format!("addr add fd77::{number:x}/64 dev eth0 nodad"));
        }
        for (other, described) in self.rig.nodes.iter().enumerate() {
            if other == node || described.is_bridge {
                continue;
            }
            let (number, mac) = (other + 1, mac_text(Rig::mac(other, 0)));
            lines.push(format!("neigh add 10.77.0.{number} lladdr {mac} dev eth0 nud permanent"));
            if self.rig.ipv6 {
                lines.push(format!(
                    "neigh add fd77::{number:x} lladdr {mac} dev eth0 nud permanent"
                ));
            }
        }
        lines
    }

    fn bridge_lines(&self, node: usize) -> Vec<String> {
        let mut lines = vec![
            "link add br0 type bridge vlan_filtering 1 stp_state 0 mcast_snooping 0".to_owned(),
            "link set br0 up".to_owned(),
        ];
        let prefix = self.rig.prefix(node);
        for at in 0..self.rig.links_of(node).count() {
            let port = format!("{prefix}{at}");
            lines.push(format!("link set {port} master br0"));
            lines.push(format!("link set {port} type bridge_slave learning off"));
            lines.push(format!("link set {port} up"));
        }
        lines
    }

    /// Where the stations are, which VLANs there are, and which priority a PCP means.
    fn set_bridges_up(&self) -> Result<(), LabError> {
        for (node, described) in self.rig.nodes.iter().enumerate() {
            if !described.is_bridge {
                continue;
            }
            let (mut tables, mut filters) = (Vec::new(), Vec::new());
            for at in 0..self.rig.links_of(node).count() {
                let port = format!("{}{at}", self.rig.prefix(node));
                let vlans = self.rig.vlans.iter();
                tables.extend(vlans.map(|vid| format!("vlan add dev {port} vid {vid}")));
                filters.push(format!("qdisc add dev {port} clsact"));
                filters.extend((0..8).map(|pcp| {
                    format!(
                        "filter add dev {port} ingress protocol 802.1Q flower vlan_prio {pcp} \
                         action skbedit priority {pcp}"
                    )
                }));
            }
            for (station, described) in self.rig.nodes.iter().enumerate() {
                let hop = self.rig.next_hop(node, station).filter(|_| !described.is_bridge);
                if let Some(port) = hop.and_then(|hop| self.rig.interface(node, hop)) {
                    for number in 0..self.rig.links_of(station).count() {
                        let mac = mac_text(Rig::mac(station, number));
                        tables.push(format!("fdb replace {mac} dev {port} master static"));
                    }
                }
            }
            let netns = self.netns_name(node);
            tool::batch(Tool::Bridge, Some(&netns), &tables)?;
            tool::batch(Tool::Tc, Some(&netns), &filters)?;
        }
        Ok(())
    }

    fn add_disciplines(&self) -> Result<(), LabError> {
        for node in 0..self.rig.nodes.len() {
            let of_node = self.rig.lines.iter().filter(|line| line.on == node);
            let lines: Vec<_> = of_node
                .map(|line| {
                    let interface = self.rig.interface(line.on, line.towards);
                    let interface = interface.expect("invariant: checked at the start");
                    format!("qdisc add dev {interface} {}", line.text)
                })
                .collect();
            tool::batch(Tool::Tc, Some(&self.netns_name(node)), &lines)?;
        }
        Ok(())
    }

    /// Waits until every interface says that it is up, and every port forwards.
    fn wait_for_links(&self) -> Result<(), LabError> {
        for netns in self.namespaces() {
            let ready = (0..LOOKS).any(|look| {
                if look > 0 {
                    std::thread::sleep(LOOK_EVERY);
                }
                is_up(&netns).unwrap_or(false)
            });
            if !ready {
                return Err(LabError::NotReady { waiting: netns });
            }
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
struct Interface {
    ifname: String,
    operstate: String,
}

fn is_up(netns: &str) -> Result<bool, LabError> {
    let text = tool::run(Tool::Ip, &["-n", netns, "-j", "link", "show"])?;
    let interfaces: Vec<Interface> =
        serde_json::from_str(&text).map_err(|error| LabError::ToolOutput {
            command: format!("ip -n {netns} -j link show"),
            why: error.to_string(),
        })?;
    let waits = |interface: &Interface| {
        let counts = interface.ifname.starts_with(['e', 'p', 'w']);
        counts && interface.operstate != "UP"
    };
    Ok(!interfaces.iter().any(waits))
}

/// Both directions: whatever arrives at one end leaves at the other, at the link's rate.
///
/// It is a copy that leaves. It has forgotten the socket that the frame came from, and so has not,
/// like the frame itself, that socket's launch times for a discipline of the next node. The frame
/// itself is for nobody here, and ends.
fn wire_lines(wire: Option<Wire>) -> Vec<String> {
    let mut lines = Vec::new();
    for (from, to) in [("w0", "w1"), ("w1", "w0")] {
        if let Some(Wire { rate, delay }) = wire {
            let (rate, delay) = (rate.get(), delay.as_ns() / 1_000);
            lines.push(format!(
                "qdisc add dev {to} root netem limit 100000 delay {delay}us rate {rate}bit \
                 {OVERHEAD}"
            ));
        }
        lines.push(format!("qdisc add dev {from} clsact"));
        lines.push(format!(
            "filter add dev {from} ingress matchall action mirred egress mirror dev {to}"
        ));
    }
    lines
}

/// In the namespace of the calling thread, for all interfaces to come.
fn set_ipv6(wanted: bool) -> io::Result<()> {
    let settings: &[(&str, &str)] = if wanted {
        &[("addr_gen_mode", "1"), ("accept_ra", "0"), ("router_solicitations", "0")]
    } else {
        &[("disable_ipv6", "1")]
    };
    for scope in ["all", "default"] {
        for (setting, value) in settings {
            let path = format!("/proc/sys/net/ipv6/conf/{scope}/{setting}");
            // A kernel without IPv6 needs nothing.
            if Path::new(&path).exists() {
                fs::write(path, value)?;
            }
        }
    }
    Ok(())
}

const QUEUES: &str = "numtxqueues 8 numrxqueues 8";
/// Check sequence, preamble and gap. **Units**: bytes.
const OVERHEAD: u32 = 24;
const LOOKS: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(200);
