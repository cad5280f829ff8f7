// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run on hosts does of the host settings of a station: applied before its first phase,
//! taken back after its last.
//!
//! Not here: applying them (`timewire-host`), on a host by itself (`timewire apply`).

use timewire_base::{IfName, StationName};
use timewire_model::scenario::Name;
use timewire_model::scenario::host::{DesiredHost, HostSettings};

use crate::network::Obstacle;

/// The file of the groups on a host.
pub const GROUPS: &str = "groups.yaml";
/// The program that has them in force.
pub const GROUPED: &str = "groups";
/// The words that start it.
pub const START: [&str; 3] = ["group", "start", GROUPS];
/// The words that succeed once they are in force.
pub const ASK: [&str; 2] = ["group", "show"];
/// How often it is asked for that, a tenth of a second apart.
pub const TRIES: u32 = 100;

/// The parts of host settings, each a network file; `None` where a part is empty.
pub struct HostPart {
    /// What `apply` sets.
    pub settings: Option<String>,
    /// What `group start` has in force.
    pub groups: Option<String>,
}

/// The parts of a station's host settings.
pub fn parts(network: &Name, station: &StationName, host: &DesiredHost) -> HostPart {
    let text = |host: DesiredHost| {
        let file = HostSettings::new(network.clone(), station.clone(), host);
        serde_json::to_string_pretty(&file).expect("invariant: it has text keys")
    };
    let mut settings = host.clone();
    let has_groups = settings.groups.take().is_some();
    settings.clock = None;
    let has_settings = !settings.interfaces.is_empty() || !settings.sysctls.is_empty();
    let mut groups = host.clone();
    groups.clock = None;
    groups.interfaces.clear();
    groups.sysctls.clear();
    HostPart {
        settings: has_settings.then(|| text(settings)),
        groups: has_groups.then(|| text(groups)),
    }
}

/// What of host settings a run has a use of its own for: state, disciplines and filters of the
/// interfaces that take part, and what the MAC does where there is one.
pub fn in_the_way(
    station: &StationName,
    host: &DesiredHost,
    interfaces: &[IfName],
    has_mac: bool,
) -> Vec<Obstacle> {
    let own = host.interfaces.iter().filter(|it| interfaces.contains(&it.name));
    let keys = own.flat_map(|it| {
        let keys = [
            ("transmit", it.transmit.is_some()),
            ("marks", !it.marks.is_empty()),
            ("up", it.up.is_some()),
            ("receive", has_mac && it.receive.is_some()),
        ];
        keys.into_iter().filter(|key| key.1).map(|(key, _)| (&it.name, key))
    });
    keys.map(|(interface, key)| Obstacle {
        what: format!("station {station}"),
        why: format!("host: `{key}` of {interface}: the run puts its own there; leave it out"),
    })
    .collect()
}

/// Which stations' clocks the run leaves to others, in a sentence.
pub fn clocks_by_hand<'a>(
    stations: impl Iterator<Item = (&'a StationName, Option<&'a DesiredHost>)>,
) -> Option<String> {
    let with_clock = stations.filter(|(_, host)| host.is_some_and(|it| it.clock.is_some()));
    let names: Vec<&str> = with_clock.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!("clocks are not started by a run, but by `timewire clock start` before it: {names}")
    })
}

/// Which stations' host settings a place without hosts leaves out, in a sentence.
pub fn not_applied<'a>(
    stations: impl Iterator<Item = (&'a StationName, Option<&'a DesiredHost>)>,
) -> Option<String> {
    let names: Vec<&str> =
        stations.filter(|(_, host)| host.is_some()).map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!("host settings are applied on hosts, not here: {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_tsn::file;

    const TEXT: &str = "timewire: 1\nkind: network\nname: n\nstations:\n- name: a\n  host:\n\
        \x20   interfaces:\n\
        \x20   - name: eth0\n\
        \x20     mtu: 1400\n\
        \x20     receive: { classes: [{ name: c, priority: 1, matches: [{ port: 5 }] }] }\n\
        \x20   - name: eth1\n\
        \x20     marks: [{ protocol: udp, to_port: 5000, priority: 6 }]\n\
        \x20     transmit: { classes: [{ priorities: [3], queues: 1@0 }, { queues: 1@1 }] }\n\
        \x20   sysctls: [{ name: net.core.netdev_budget, value: '600' }]\n\
        \x20   groups: { name: g, policy: priority, highest: 40,\n\
        \x20     members: [{ is: { kind: process, pid: 1 }, priority: 1 }] }\n\
        \x20   clock: { interfaces: [eth0], role: receiver }\n";

    #[test]
    fn t0_settings_and_groups_are_apart_and_clocks_are_left() {
        let of = file::host_settings("x", TEXT, None).unwrap_or_else(|it| panic!("{it}"));
        let both = parts(&of.network, &of.station, &of.host);
        let (applied, grouped) = (both.settings.unwrap(), both.groups.unwrap());
        let applied = file::host_settings("applied", &applied, None).unwrap().host;
        assert_eq!((applied.interfaces.len(), applied.sysctls.len()), (2, 1));
        assert!(applied.groups.is_none() && applied.clock.is_none());
        let grouped = file::host_settings("grouped", &grouped, None).unwrap().host;
        assert!(grouped.groups.is_some() && grouped.interfaces.is_empty());
        let stations = || std::iter::once((&of.station, Some(&of.host)));
        assert!(clocks_by_hand(stations()).unwrap().ends_with(": a"));
        assert!(not_applied(stations()).unwrap().ends_with(": a"));
        assert_eq!(not_applied(std::iter::once((&of.station, None))), None);
        let in_the_way = |interface| {
            let own = [IfName::new(interface).unwrap()];
            let all = in_the_way(&of.station, &of.host, &own, interface == "eth0");
            all.into_iter().map(|it| it.why).collect::<Vec<_>>().join("\n")
        };
        assert!(in_the_way("eth0").contains("host: `receive` of eth0: the run puts its own"));
        let why = in_the_way("eth1");
        assert!(why.contains("`transmit` of eth1") && why.contains("`marks` of eth1"), "{why}");
    }
}
