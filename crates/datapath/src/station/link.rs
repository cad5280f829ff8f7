// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interfaces of a station: what the link is like before it is touched, the virtual pair for
//! the local stack, the addresses and routes that move there, and keeping the kernel itself from
//! speaking on the link. Everything that is changed is journaled first.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use timewire_base::wire::MacAddress;
use timewire_base::{FileError, IfName};
use timewire_host::journal::Journal;
use timewire_host::tool::{self, Tool};
use timewire_host::{HostError, Undo, Uptime};

use super::StationSpec;
use super::address::LinkAddress;
use crate::DatapathError;

/// What must be known of the link before it is touched.
pub(super) struct LinkState {
    pub(super) address: MacAddress,
    mtu: u64,
    is_up: bool,
    /// In the kernel's order: the first of a subnet is its primary one.
    pub(super) addresses: Vec<LinkAddress>,
    /// As `ip route add` takes them; those that the kernel makes by itself are not among them.
    routes: Vec<String>,
}

impl LinkState {
    pub(super) fn read(link: &IfName) -> Result<LinkState, DatapathError> {
        let bad = |why: &str| DatapathError::Link { link: link.clone(), why: why.to_owned() };
        if let Err(error) = timewire_sys::interface_index(link) {
            return Err(bad(&error.to_string()));
        }
        let text = tool::run(Tool::Ip, &["-j", "address", "show", "dev", link.as_str()])?;
        let list: Value = serde_json::from_str(&text).map_err(|_| bad("`ip` wrote no JSON"))?;
        let entry = list.get(0).ok_or_else(|| bad("`ip` does not know it"))?;
        if entry["link_type"] != "ether" {
            return Err(bad("it is no Ethernet interface"));
        }
        let address = entry["address"].as_str().and_then(|it| it.parse().ok());
        let address: MacAddress = address.ok_or_else(|| bad("it has no Ethernet address"))?;
        let (infos, now) = (entry["addr_info"].as_array().into_iter().flatten(), Uptime::now());
        let addresses = infos.filter_map(|info| LinkAddress::read(info, (link, address), now));
        let mut routes = Vec::new();
        for family in ["-4", "-6"] {
            let words = [family, "route", "show", "table", "all", "dev", link.as_str()];
            let shown = tool::run(Tool::Ip, &words)?;
            routes.extend(shown.lines().filter_map(|line| route_text(line, family == "-6")));
        }
        Ok(LinkState {
            address,
            mtu: entry["mtu"].as_u64().unwrap_or(1_500),
            is_up: entry["flags"].as_array().is_some_and(|flags| flags.contains(&"UP".into())),
            addresses: addresses.collect(),
            routes,
        })
    }
}

/// A line of `ip route show` as `ip route add` takes it; `None` for those that come by themselves
/// with an address or a router's advertisement.
fn route_text(line: &str, ipv6: bool) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let from = words.iter().position(|word| *word == "proto").and_then(|at| words.get(at + 1));
    if matches!(from, Some(&"kernel" | &"ra")) {
        return None;
    }
    let states = ["linkdown", "dead"];
    let text: Vec<&str> = words.into_iter().filter(|word| !states.contains(word)).collect();
    let text = text.join(" ");
    Some(match text.strip_prefix("default") {
        Some(rest) if ipv6 => format!("::/0{rest}"),
        _ => text,
    })
}

/// The name of the virtual interface's far side: `tw0` and `tw0-mac`.
pub(super) fn far_name(stack: &IfName) -> Result<IfName, DatapathError> {
    IfName::new(&format!("{stack}-mac")).map_err(|_| {
        DatapathError::Invalid(format!(
            "`{stack}` is too long for the virtual interface: at most 11 characters, since its far \
             side is called `{stack}-mac`"
        ))
    })
}

pub(super) fn make_interfaces(
    journal: &Journal,
    spec: &StationSpec,
    far: &IfName,
    link: &LinkState,
) -> Result<(), DatapathError> {
    let stack = &spec.stack;
    journal.record(Undo::DeleteLink { netns: None, name: stack.clone() })?;
    let LinkState { address, mtu, .. } = link;
    tool::batch(
        Tool::Ip,
        None,
        &[format!(
            "link add {stack} address {address} mtu {mtu} numtxqueues 1 numrxqueues 1 txqueuelen \
             1000 type veth peer name {far} mtu {mtu} numtxqueues 1 numrxqueues 1"
        )],
    )?;
    // The stack's own frames must be whole when they reach the MAC: checksums filled in, no larger
    // than the link takes, tags in place.
    for name in [stack, far] {
        let features =
            ["tx", "sg", "gso", "tso", "gro", "rxvlan", "txvlan", "tx-vlan-stag-hw-insert"];
        let mut off = vec!["-K", name.as_str()];
        off.extend(features.iter().flat_map(|feature| [*feature, "off"]));
        tool::run(Tool::Ethtool, &off)?;
    }
    // Neither the far side nor the link itself may speak: only the MAC does, and only in its slots.
    silence(journal, far)?;
    let mut lines = vec![format!("link set {far} up"), format!("link set {stack} up")];
    if spec.move_addresses {
        lines.extend(take_addresses(journal, &spec.link, link)?);
    }
    tool::batch(Tool::Ip, None, &lines)?;
    silence(journal, &spec.link)?;
    if !link.is_up {
        journal.record(Undo::SetLinkDown { name: spec.link.clone() })?;
    }
    let mut lines = vec![format!("link set {} up", spec.link)];
    if spec.move_addresses {
        let add = |what: &str, value: &str| format!("{what} add {value} dev {stack}");
        let now = Uptime::now();
        lines.extend(link.addresses.iter().map(|address| add("address", &address.moved(now))));
        lines.extend(link.routes.iter().map(|route| add("route", route)));
    }
    let is_moved = |address: &&String| {
        spec.move_addresses && link.addresses.iter().any(|it| it.name == **address)
    };
    let new = spec.addresses.iter().filter(|address| !is_moved(address));
    lines.extend(new.map(|address| format!("address add {address} dev {stack}")));
    Ok(tool::batch(Tool::Ip, None, &lines)?)
}

/// The lines that take the link's addresses away; the kernel takes the routes that hang on them.
fn take_addresses(
    journal: &Journal,
    name: &IfName,
    link: &LinkState,
) -> Result<Vec<String>, DatapathError> {
    // In this order: what is recorded last is restored first, and a route needs an address.
    for route in &link.routes {
        journal.record(Undo::AddRoute { interface: name.clone(), route: route.clone() })?;
    }
    // The last first, so that the first is the first again.
    for address in link.addresses.iter().rev() {
        let (interface, expiry) = (name.clone(), address.expiry);
        let address = address.whole();
        journal.record(Undo::AddAddress { netns: None, interface, address, expiry })?;
    }
    // A primary address takes its secondary ones along.
    let take = |address: &LinkAddress| format!("address del {} dev {name}", address.own());
    Ok(link.addresses.iter().rev().map(take).collect())
}

/// Keeps the kernel from sending on an interface by itself, and from taking frames there for the
/// addresses of another one: those come once more through the MAC.
fn silence(journal: &Journal, name: &IfName) -> Result<(), DatapathError> {
    let silent = [
        // No IPv6 at all.
        ("ipv6", "disable_ipv6", "1"),
        // No answers to address resolution.
        ("ipv4", "arp_ignore", "8"),
        // Whoever sent a frame is reached through another interface, so it is dropped.
        ("ipv4", "rp_filter", "1"),
    ];
    for (family, setting, value) in silent {
        let path = PathBuf::from(format!("/proc/sys/net/{family}/conf/{name}/{setting}"));
        // A kernel without IPv6 needs nothing.
        let Ok(was) = fs::read_to_string(&path) else { continue };
        let was = was.trim();
        if was != value {
            journal.record(Undo::WriteSetting { path: path.clone(), value: was.to_owned() })?;
            fs::write(&path, value).map_err(FileError::unusable::<HostError>("write", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_routes_are_read_as_they_are_written() {
        let v4 = |line| route_text(line, false);
        assert_eq!(v4("10.1.0.0/24 proto kernel scope link src 10.1.0.1"), None);
        assert_eq!(v4("local 10.1.0.1 table local proto kernel scope host src 10.1.0.1"), None);
        let other = "10.9.0.0/16 via 10.1.0.254 table 100";
        assert_eq!(v4(other).unwrap(), other);
        let dhcp = "default via 10.1.0.254 proto dhcp metric 100";
        assert_eq!(v4(&format!("{dhcp} linkdown ")).unwrap(), dhcp);
        let v6 = |line| route_text(line, true);
        assert_eq!(v6("default via fe80::1 proto ra metric 1024 expires 9sec pref medium"), None);
        let default = v6("default via fd00::2 metric 1024 pref medium");
        assert_eq!(default.unwrap(), "::/0 via fd00::2 metric 1024 pref medium");
        assert_eq!(v6("fd01::/64 metric 1024").unwrap(), "fd01::/64 metric 1024");
    }

    #[test]
    fn t0_the_far_side_has_a_name_the_kernel_takes() {
        assert_eq!(far_name(&IfName::new("tw0").unwrap()).unwrap().as_str(), "tw0-mac");
        assert!(far_name(&IfName::new("elevenchars").unwrap()).is_ok());
        assert!(far_name(&IfName::new("twelve-chars").unwrap()).is_err());
    }
}
