// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An address of a link, as `ip -j address show` tells it: how it is taken away, put on the virtual
//! interface, and given back with all that it had.

use std::net::Ipv6Addr;

use serde_json::Value;
use timewire_base::IfName;
use timewire_base::wire::MacAddress;
use timewire_host::{Expiry, Uptime};

/// An address that somebody gave the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkAddress {
    /// `10.77.0.1/24`, as a person writes it.
    pub(super) name: String,
    /// The same, with a peer where it has one: what takes it away.
    own: String,
    /// The rest, but its label and its times.
    more: String,
    /// Its label, where that is not the link's name.
    label: Option<String>,
    /// When it ends.
    pub(super) expiry: Option<Expiry>,
}

/// What `ip` writes for a time without an end.
const FOREVER: u64 = 0xffff_ffff;

impl LinkAddress {
    /// `None` for those that the kernel gives a link by itself, and will give it again.
    pub(super) fn read(
        info: &Value,
        (link, mac): (&IfName, MacAddress),
        now: Uptime,
    ) -> Option<LinkAddress> {
        let local = info["local"].as_str()?;
        let prefix = info["prefixlen"].as_u64()?;
        let is_set = |flag: &str| info[flag] == true;
        let by_kernel = info["protocol"].as_str().is_some_and(|by| by.starts_with("kernel"));
        let is_link_local = info["family"] == "inet6" && info["scope"] == "link";
        let is_from_mac = local.parse() == Ok(link_local(mac));
        if info["scope"] == "host" || is_set("temporary") {
            return None;
        }
        if is_link_local && (by_kernel || is_from_mac) {
            return None;
        }
        let own = match info["address"].as_str() {
            Some(peer) => format!("{local} peer {peer}/{prefix}"),
            None => format!("{local}/{prefix}"),
        };
        let mut more = String::new();
        let mut add = |word: &str, value: &str| more += &format!(" {word} {value}");
        if let Some(broadcast) = info["broadcast"].as_str() {
            add("brd", broadcast);
        }
        if let Some(scope) = info["scope"].as_str().filter(|scope| *scope != "global") {
            add("scope", scope);
        }
        if let Some(metric) = info["metric"].as_u64() {
            add("metric", &metric.to_string());
        }
        for flag in ["home", "mngtmpaddr", "nodad", "noprefixroute", "autojoin"] {
            if is_set(flag) {
                more += &format!(" {flag}");
            }
        }
        let ends = |key: &str| info[key].as_u64().filter(|left| *left < FOREVER);
        let (valid, preferred) = (ends("valid_life_time"), ends("preferred_life_time"));
        let label = info["label"].as_str().filter(|label| *label != link.as_str());
        Some(LinkAddress {
            name: format!("{local}/{prefix}"),
            own,
            more,
            label: label.map(str::to_owned),
            expiry: (valid.is_some() || preferred.is_some()).then(|| Expiry {
                valid_s: valid.map(|left| now.after(left)),
                preferred_s: preferred.map(|left| now.after(left)),
            }),
        })
    }

    /// As `ip address del` takes it.
    pub(super) fn own(&self) -> &str {
        &self.own
    }

    /// As `ip address add` takes it for the link, but its times.
    pub(super) fn whole(&self) -> String {
        let label = self.label.as_ref().map(|label| format!(" label {label}"));
        format!("{}{}{}", self.own, self.more, label.unwrap_or_default())
    }

    /// As `ip address add` takes it for another interface; labels begin with the interface's name.
    pub(super) fn moved(&self, now: Uptime) -> String {
        let times = self.expiry.map(|expiry| expiry.words(now).unwrap_or_default());
        format!("{}{}{}", self.own, self.more, times.unwrap_or_default())
    }
}

/// The address that a link with this MAC address has by itself.
///
/// **Source**: RFC 4291, appendix A.
fn link_local(MacAddress(mac): MacAddress) -> Ipv6Addr {
    let mut bytes = [0_u8; 16];
    bytes[..2].copy_from_slice(&[0xfe, 0x80]);
    bytes[8..11].copy_from_slice(&mac[..3]);
    bytes[8] ^= 2;
    bytes[11..13].copy_from_slice(&[0xff, 0xfe]);
    bytes[13..].copy_from_slice(&mac[3..]);
    Ipv6Addr::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What iproute2 6.1 writes, shortened; one with `protocol` is of iproute2 6.3.
    const SHOWN: &str = r#"[
        {"family": "inet", "local": "10.57.0.1", "prefixlen": 24, "scope": "link", "label": "dx0",
         "valid_life_time": 4294967295, "preferred_life_time": 4294967295},
        {"family": "inet", "local": "10.55.0.1", "prefixlen": 24, "broadcast": "10.55.0.255",
         "scope": "global", "label": "dx0:a",
         "valid_life_time": 4294967295, "preferred_life_time": 4294967295},
        {"family": "inet", "local": "10.56.0.1", "address": "10.56.0.9", "prefixlen": 32,
         "metric": 50, "scope": "global", "dynamic": true, "label": "dx0",
         "valid_life_time": 3000, "preferred_life_time": 1000},
        {"family": "inet", "local": "10.55.0.2", "prefixlen": 24, "scope": "global",
         "secondary": true, "label": "dx0",
         "valid_life_time": 4294967295, "preferred_life_time": 4294967295},
        {"family": "inet6", "local": "fd56::1", "prefixlen": 64, "scope": "global", "home": true,
         "mngtmpaddr": true, "valid_life_time": 4294967295, "preferred_life_time": 4294967295},
        {"family": "inet6", "local": "fd55::1", "prefixlen": 64, "scope": "global", "nodad": true,
         "deprecated": true, "dynamic": true, "noprefixroute": true,
         "valid_life_time": 900, "preferred_life_time": 0},
        {"family": "inet6", "local": "fd56::1234", "prefixlen": 64, "scope": "global",
         "temporary": true, "valid_life_time": 900, "preferred_life_time": 0},
        {"family": "inet6", "local": "fe80::77", "prefixlen": 64, "scope": "link",
         "valid_life_time": 4294967295, "preferred_life_time": 4294967295},
        {"family": "inet6", "local": "fe80::48e:10ff:fe99:b675", "prefixlen": 64, "scope": "link",
         "valid_life_time": 4294967295, "preferred_life_time": 4294967295},
        {"family": "inet6", "local": "fe80::5", "prefixlen": 64, "scope": "link",
         "protocol": "kernel_ll",
         "valid_life_time": 4294967295, "preferred_life_time": 4294967295}
    ]"#;

    #[test]
    fn t0_an_address_is_given_back_with_all_that_it_had() {
        let link = IfName::new("dx0").unwrap();
        let mac = MacAddress([0x06, 0x8e, 0x10, 0x99, 0xb6, 0x75]);
        let shown: Value = serde_json::from_str(SHOWN).unwrap();
        let begun = Uptime::of_seconds(100);
        let all = shown.as_array().unwrap().iter();
        let all: Vec<LinkAddress> =
            all.filter_map(|info| LinkAddress::read(info, (&link, mac), begun)).collect();
        let whole: Vec<String> = all.iter().map(LinkAddress::whole).collect();
        assert_eq!(
            whole,
            [
                "10.57.0.1/24 scope link",
                "10.55.0.1/24 brd 10.55.0.255 label dx0:a",
                "10.56.0.1 peer 10.56.0.9/32 metric 50",
                "10.55.0.2/24",
                "fd56::1/64 home mngtmpaddr",
                "fd55::1/64 nodad noprefixroute",
                "fe80::77/64 scope link",
            ]
        );
        assert_eq!(all[2].own(), "10.56.0.1 peer 10.56.0.9/32");
        assert_eq!(all[1].moved(begun), "10.55.0.1/24 brd 10.55.0.255");
        // Times go on.
        let later = Uptime::of_seconds(400);
        let moved = all[2].moved(later);
        assert_eq!(moved, "10.56.0.1 peer 10.56.0.9/32 metric 50 valid_lft 2700 preferred_lft 700");
        assert_eq!(
            all[5].expiry.and_then(|expiry| expiry.words(later)).as_deref(),
            Some(" valid_lft 600 preferred_lft 0")
        );
        assert_eq!(all[5].expiry.and_then(|it| it.words(Uptime::of_seconds(1_000))), None);
    }
}
