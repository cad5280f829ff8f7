// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that takes part without a MAC, in a process of its own: the address of a station, the
//! queueing disciplines that carry a schedule out, the bridge that the host becomes, until the
//! process ends.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use timewire_base::IfName;
use timewire_datapath::files::read_json;
use timewire_host::HostError;
use timewire_host::Undo;
use timewire_host::journal::Journal;
use timewire_host::tool::{self, Tool};
use timewire_sys::event::EndRequests;

use super::held;
use crate::RunnerError;
use crate::error::{Context, invalid};

/// What a host is to have while it takes part.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// Its interfaces.
    pub interfaces: Vec<ConnectedInterface>,
    /// The bridge that it becomes.
    pub bridge: Option<ConnectedBridge>,
}

/// What an interface is to have.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectedInterface {
    /// The interface.
    pub interface: IfName,
    /// Address and prefix length, as `10.77.0.1/24`. One that is there stays.
    pub address: Option<String>,
    /// The disciplines, as `tc qdisc replace dev INTERFACE` takes them.
    pub qdiscs: Vec<String>,
    /// Whether nobody else may have put anything on it, also where nothing is put on it here.
    pub alone: bool,
}

/// A bridge that forwards VLANs of streams and nothing else, so nothing goes round a ring; the tag
/// gives a frame its PCP as its priority.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectedBridge {
    /// What it is called.
    pub name: IfName,
    /// Its ports, each with the VLANs that it is a member of.
    pub ports: BTreeMap<IfName, Vec<u16>>,
}

/// Makes the connection of a file and holds it until somebody asks to end; then the host is as it
/// was before.
///
/// **Errors**: it cannot be made, or not be undone.
pub fn hold(file: &Path) -> Result<(), RunnerError> {
    // Before any thread is started, so that all of them leave the signals to us.
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let connection: Connection = read_json(file)?;
    let made = connection.make();
    held::tell(file, &made)?;
    let journal = made?;
    held::until_end(&requests)?;
    Ok(journal.finish()?)
}

impl Connection {
    /// Makes it; what the journal has undoes it. Before the first change, all that stands in the
    /// way is known.
    fn make(&self) -> Result<Journal, RunnerError> {
        let mut links = Vec::new();
        for own in &self.interfaces {
            let link = Link::read(&own.interface)?;
            let has_qdiscs = own.alone || !own.qdiscs.is_empty();
            let is_port = own.alone || self.is_port(&own.interface);
            link.is_free(&own.interface, has_qdiscs, is_port)?;
            links.push(link);
        }
        if let Some(ConnectedBridge { name, .. }) = &self.bridge
            && tool::run(Tool::Ip, &["link", "show", "dev", name.as_str()]).is_ok()
        {
            let why = format!("there is an interface {name}: `ip link del {name}` takes it away");
            return Err(invalid(why));
        }
        let names: Vec<&str> = self.interfaces.iter().map(|it| it.interface.as_str()).collect();
        let journal = Journal::begin(&format!("the station on {}", names.join(", ")))?;
        for (own, link) in self.interfaces.iter().zip(&links) {
            own.make(link, &journal)?;
        }
        if let Some(bridge) = &self.bridge {
            bridge.make(&journal)?;
        }
        // Below `taprio` anything that comes later stops the gates.
        for own in &self.interfaces {
            own.make_qdiscs(&journal)?;
        }
        Ok(journal)
    }

    /// Whether an interface becomes a port of the bridge.
    fn is_port(&self, interface: &IfName) -> bool {
        self.bridge.as_ref().is_some_and(|bridge| bridge.ports.contains_key(interface))
    }
}

impl ConnectedInterface {
    fn make(&self, link: &Link, journal: &Journal) -> Result<(), RunnerError> {
        let interface = &self.interface;
        if let Some(address) = self.address.as_ref().filter(|it| !link.addresses.contains(it)) {
            let (interface, address) = (interface.clone(), address.clone());
            journal.record(Undo::DeleteAddress { interface, address: address.clone() })?;
            ip(&[format!("addr add {address} dev {}", self.interface)])?;
        }
        if !link.is_up {
            journal.record(Undo::SetLinkDown { name: interface.clone() })?;
            ip(&[format!("link set {interface} up")])?;
        }
        Ok(())
    }

    fn make_qdiscs(&self, journal: &Journal) -> Result<(), RunnerError> {
        let interface = &self.interface;
        if self.qdiscs.is_empty() {
            return Ok(());
        }
        journal.record(Undo::DeleteRootQdisc { interface: interface.clone() })?;
        let line = |qdisc: &String| format!("qdisc replace dev {interface} {qdisc}");
        let lines: Vec<String> = self.qdiscs.iter().map(line).collect();
        Ok(tool::batch(Tool::Tc, None, &lines)?)
    }
}

impl ConnectedBridge {
    fn make(&self, journal: &Journal) -> Result<(), RunnerError> {
        let ConnectedBridge { name, ports } = self;
        journal.record(Undo::DeleteLink { netns: None, name: name.clone() })?;
        ip(&[
            format!(
                "link add {name} type bridge vlan_filtering 1 vlan_default_pvid 0 stp_state 0 \
                 mcast_snooping 0"
            ),
            format!("link set dev {name} up"),
        ])?;
        for (port, vlans) in ports {
            journal.record(Undo::DeleteClsact { interface: port.clone() })?;
            let mut lines = vec![format!("qdisc add dev {port} clsact")];
            lines.extend((0..8).map(|pcp| {
                format!(
                    "filter add dev {port} ingress protocol 802.1Q flower vlan_prio {pcp} action \
                     skbedit priority {pcp}"
                )
            }));
            tool::batch(Tool::Tc, None, &lines)?;
            ip(&[format!("link set dev {port} master {name}")])?;
            let lines: Vec<String> =
                vlans.iter().map(|vlan| format!("vlan add dev {port} vid {vlan}")).collect();
            tool::batch(Tool::Bridge, None, &lines)?;
        }
        Ok(())
    }
}

fn ip(lines: &[String]) -> Result<(), HostError> {
    tool::batch(Tool::Ip, None, lines)
}

/// An interface before.
struct Link {
    /// With prefix lengths.
    addresses: Vec<String>,
    is_up: bool,
    /// The kind of the root's discipline, where somebody has put one there.
    qdisc: Option<String>,
    /// Whether there are filters of received frames.
    has_clsact: bool,
    /// What it is a port of.
    master: Option<String>,
}

impl Link {
    fn read(interface: &IfName) -> Result<Link, RunnerError> {
        let json = |text: &str| -> Result<Json, RunnerError> {
            serde_json::from_str(text).with_context(|| format!("cannot read {interface}"))
        };
        let shown = tool::run(Tool::Ip, &["-j", "addr", "show", "dev", interface.as_str()])?;
        let shown = json(&shown)?;
        let entry = shown.as_array().and_then(|all| all.iter().find(|it| it["ifname"].is_string()));
        let entry = entry.with_context(|| format!("there is no interface {interface}"))?;
        let address = |info: &Json| {
            Some(format!("{}/{}", info["local"].as_str()?, info["prefixlen"].as_u64()?))
        };
        let addresses = entry["addr_info"].as_array().into_iter().flatten().filter_map(address);
        let flags = entry["flags"].as_array().into_iter().flatten();
        let qdiscs = tool::run(Tool::Tc, &["-j", "qdisc", "show", "dev", interface.as_str()])?;
        let qdiscs = json(&qdiscs)?;
        let mut all = qdiscs.as_array().into_iter().flatten();
        let root = all.clone().find(|it| it["root"] == true);
        // Those that the kernel puts there by itself have no handle.
        let qdisc = root.filter(|root| root["handle"] != "0:").and_then(|it| it["kind"].as_str());
        Ok(Link {
            addresses: addresses.collect(),
            is_up: flags.into_iter().any(|flag| flag == "UP"),
            qdisc: qdisc.map(str::to_owned),
            has_clsact: all.any(|it| it["kind"] == "clsact" || it["kind"] == "ingress"),
            master: entry["master"].as_str().map(str::to_owned),
        })
    }

    /// Whether it can have disciplines, or be a port of a bridge.
    ///
    /// **Errors**: somebody else has put something there.
    fn is_free(
        &self,
        interface: &IfName,
        has_qdiscs: bool,
        is_port: bool,
    ) -> Result<(), RunnerError> {
        if let Some(kind) = self.qdisc.as_ref().filter(|_| has_qdiscs) {
            return Err(invalid(format!(
                "{interface} has a queueing discipline of its own, {kind}: `tc qdisc del dev \
                 {interface} root` takes it away"
            )));
        }
        if let Some(master) = self.master.as_ref().filter(|_| is_port) {
            return Err(invalid(format!(
                "{interface} is a port of {master}: `ip link set dev {interface} nomaster` takes \
                 it out"
            )));
        }
        if self.has_clsact && is_port {
            return Err(invalid(format!(
                "{interface} has filters of received frames: `tc qdisc del dev {interface} \
                 clsact` takes them away"
            )));
        }
        Ok(())
    }
}
