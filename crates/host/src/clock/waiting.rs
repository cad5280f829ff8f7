// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a `ptp4l` hears nobody who gives the time, as far as its counters and the bridges of this
//! host tell, and what helps.

use serde_json::Value;
use timewire_base::{IfName, Span};

use super::dataset::PortStats;

/// Places of messages in [`PortStats`], by their type.
///
/// **Source**: IEEE 1588-2019, table 36.
const PEER_DELAY_REQUEST: usize = 0x2;
const ANNOUNCE: usize = 0xb;
/// Bit of `group_fwd_mask` that has a bridge forward 01-80-C2-00-00-0E.
///
/// **Source**: linux v6.12 Documentation/networking/bridge.rst, net/bridge/br_input.c.
const FORWARDS_0E: u64 = 1 << 0x0e;

/// A bridge of this host on the way from an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnTheWay {
    /// The interface.
    pub interface: IfName,
    /// The bridge.
    pub bridge: String,
    /// Whether it forwards 01-80-C2-00-00-0E.
    pub forwards: bool,
}

/// What is known of the wait.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// IEEE 802.1AS, whose messages go to a link-local address.
    pub gptp: bool,
    /// PTP domain.
    pub domain: u8,
    /// For so long nothing was heard.
    pub unheard: Span,
    /// What its ports counted; none where it does not say.
    pub ports: &'a [PortStats],
    /// Bridges of this host.
    pub bridges: &'a [OnTheWay],
    /// It is to give the time: nobody who gives it is waited for.
    pub gives: bool,
}

/// How often Announce messages came.
pub fn announced(ports: &[PortStats]) -> u64 {
    ports.iter().map(|port| port.received[ANNOUNCE]).fold(0, u64::saturating_add)
}

/// The reason, and what helps; `None` where there is nothing to say.
pub fn why(waiting: &Waiting<'_>) -> Option<String> {
    let sum = |which: usize| -> u64 { waiting.ports.iter().map(|port| port.received[which]).sum() };
    let peers = sum(PEER_DELAY_REQUEST);
    if waiting.gives {
        return (waiting.gptp && !waiting.ports.is_empty() && peers == 0).then(|| {
            format!(
                "no neighbour has asked for the delay of its link in {}, so gPTP gives it no \
                 time: {}",
                waiting.unheard,
                link_local(waiting.bridges)
            )
        });
    }
    let heard = format!("no Announce message was heard for {}", waiting.unheard);
    let domain = waiting.domain;
    Some(if !waiting.gptp {
        format!(
            "{heard}: no transmitter of domain {domain} is on this network, it speaks gPTP, or \
             another transport than this one (`transport: l2`, `udp4`, `udp6`)"
        )
    } else if peers > 0 {
        format!(
            "{heard}, and a gPTP neighbour is there: it gives no time in domain {domain}; one \
             station of the network needs `role: transmitter`"
        )
    } else {
        format!("{heard}, nor any gPTP neighbour: {}", link_local(waiting.bridges))
    })
}

fn link_local(bridges: &[OnTheWay]) -> String {
    let blocks: Vec<String> = bridges
        .iter()
        .filter(|it| !it.forwards)
        .map(|it| format!("{} of this host, behind {}", it.bridge, it.interface))
        .collect();
    let who = match blocks.is_empty() {
        true => "a switch without gPTP".to_owned(),
        false => format!("the bridge {}", blocks.join(", and ")),
    };
    format!(
        "gPTP goes to 01-80-C2-00-00-0E, which bridges do not forward (IEEE 802.1Q-2022, 8.6.3), \
         so {who} stops it. On such a network set `gptp: false` at every station, with `transport: \
         udp4` or `l2`, whose addresses are forwarded; otherwise look for a station without \
         power, a cable, or one that does not speak gPTP"
    )
}

/// The bridges that an interface is a port of, or whose port is the other end of it, by `ip -json
/// -details link show`. Those of another network namespace are not in it.
pub fn bridges(interfaces: &[IfName], links: &str) -> Vec<OnTheWay> {
    let links: Vec<Value> = serde_json::from_str(links).unwrap_or_default();
    let named = |name: &str| links.iter().find(|link| link["ifname"] == name);
    let mut found = Vec::new();
    for interface in interfaces {
        let Some(own) = named(interface.as_str()) else { continue };
        let is_pair = own["linkinfo"]["info_kind"] == "veth";
        let peer = own["link"].as_str().filter(|_| is_pair).and_then(named);
        for port in [Some(own), peer].into_iter().flatten() {
            let Some(master) = port["master"].as_str().and_then(named) else { continue };
            if master["linkinfo"]["info_kind"] == "bridge" {
                let of_port = mask(&port["linkinfo"]["info_slave_data"]["group_fwd_mask"]);
                let of_bridge = mask(&master["linkinfo"]["info_data"]["group_fwd_mask"]);
                found.push(OnTheWay {
                    interface: interface.clone(),
                    bridge: master["ifname"].as_str().unwrap_or_default().to_owned(),
                    forwards: (of_port | of_bridge) & FORWARDS_0E != 0,
                });
            }
        }
    }
    found
}

/// A number as `ip` writes it: in JSON's way, or as text with `0x` or without.
fn mask(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_default();
    let of_text = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    value.as_u64().unwrap_or_else(|| of_text.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::dataset::PortIdentity;

    fn stats(peers: u64, announces: u64) -> PortStats {
        let mut received = [0; 16];
        (received[PEER_DELAY_REQUEST], received[ANNOUNCE]) = (peers, announces);
        PortStats { port: PortIdentity::default(), received, sent: [0; 16] }
    }

    #[test]
    fn t0_the_reason_of_each_wait() {
        let eth0 = || IfName::new("eth0").unwrap();
        let bridge =
            |forwards| vec![OnTheWay { interface: eth0(), bridge: "br0".to_owned(), forwards }];
        let cases = [
            // gPTP, gives, neighbours, bridge: what is said and what is not.
            ((true, false, 0, None), "a switch without gPTP stops it", "br0"),
            ((true, false, 0, Some(false)), "the bridge br0 of this host, behind eth0", "a switch"),
            ((true, false, 0, Some(true)), "a switch without gPTP stops it", "br0"),
            ((true, false, 5, None), "needs `role: transmitter`", "01-80-C2"),
            ((false, false, 0, None), "no transmitter of domain 3", "01-80-C2"),
            ((true, true, 0, None), "gives it no time", "Announce"),
        ];
        for ((gptp, gives, peers, on_the_way), said, unsaid) in cases {
            let bridges = on_the_way.map_or(Vec::new(), bridge);
            let ports = [stats(peers, 0)];
            let unheard = Span::from_secs(10);
            let (ports, bridges) = (&ports[..], &bridges[..]);
            let waiting = Waiting { gptp, domain: 3, unheard, ports, bridges, gives };
            let why = why(&waiting).unwrap();
            assert!(why.contains(said) && !why.contains(unsaid), "{said}: {why}");
            assert!(why.contains("10s"), "{why}");
        }
        let heard = [stats(5, 0)];
        let waiting = Waiting {
            gptp: true,
            domain: 0,
            unheard: Span::ZERO,
            ports: &heard,
            bridges: &[],
            gives: true,
        };
        assert_eq!(why(&waiting), None);
        assert_eq!(announced(&[stats(1, 4), stats(1, 3)]), 7);
    }

    #[test]
    fn t0_bridges_of_this_host_are_found() {
        // As iproute2 6.1 writes it, without what is not looked at.
        let links = |of_bridge: &str, of_port: &str| {
            format!(
                r#"[{{"ifname":"lo"}},
                {{"ifname":"eth0","linkinfo":{{"info_kind":"veth"}},"link_index":9,
                  "link_netnsid":0}},
                {{"ifname":"br0","linkinfo":{{"info_kind":"bridge",
                  "info_data":{{"group_fwd_mask":{of_bridge}}}}}}},
                {{"ifname":"pa","link":"va","master":"br0","linkinfo":{{"info_kind":"veth",
                  "info_slave_kind":"bridge","info_slave_data":{{"group_fwd_mask":{of_port}}}}}}},
                {{"ifname":"va","link":"pa","linkinfo":{{"info_kind":"veth"}}}}]"#
            )
        };
        let names = ["va", "eth0", "gone"].map(|name| IfName::new(name).unwrap());
        for (of_bridge, of_port, forwards) in [
            ("\"0\"", "\"0\"", false),
            ("\"0x4000\"", "\"0\"", true),
            ("\"0x0\"", "\"16384\"", true),
            ("16384", "0", true),
            ("\"0x3fff\"", "null", false),
        ] {
            let (interface, bridge) = (names[0].clone(), "br0".to_owned());
            let found = bridges(&names, &links(of_bridge, of_port));
            assert_eq!(found, [OnTheWay { interface, bridge, forwards }], "{of_bridge} {of_port}");
        }
        assert_eq!(bridges(&names, "no JSON"), []);
    }
}
