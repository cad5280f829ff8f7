// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `ethtool`, `ip` and `hwstamp_ctl` print, and the kernel's files, as values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::setting::Value;

/// `name: value` lines of a text.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.trim(), value.trim()))
}

/// The part after the line that begins with this.
fn after<'a>(text: &'a str, heading: &str) -> &'a str {
    text.find(heading).map_or("", |at| &text[at..])
}

/// What is now, of `ethtool -l` and `ethtool -g`: names as `ethtool -L` and `-G` take them.
pub(super) fn current(text: &str) -> Value {
    let names = [
        ("RX", "rx"),
        ("RX Mini", "rx-mini"),
        ("RX Jumbo", "rx-jumbo"),
        ("TX", "tx"),
        ("Other", "other"),
        ("Combined", "combined"),
    ];
    let known = |(name, value): (&str, &str)| {
        let (_, word) = names.iter().find(|(shown, _)| *shown == name)?;
        value.parse::<u64>().ok().map(|number| ((*word).to_owned(), number.to_string()))
    };
    let section = after(text, "Current hardware settings");
    let fields: BTreeMap<String, String> = pairs(section).filter_map(known).collect();
    if fields.is_empty() {
        return Value::Unknown("ethtool shows none".to_owned());
    }
    Value::Fields(fields)
}

/// `ethtool -k`: those that can be changed.
pub(super) fn features(text: &str) -> Value {
    let of_line = |(name, value): (&str, &str)| {
        let on = value.split_whitespace().next()?;
        let is_fixed = value.contains("[fixed]");
        let is_known = matches!(on, "on" | "off");
        (is_known && !is_fixed).then(|| (name.to_owned(), on.to_owned()))
    };
    Value::Fields(pairs(text).filter_map(of_line).collect())
}

/// `ethtool -c`.
pub(super) fn coalescing(text: &str) -> Value {
    let mut fields = BTreeMap::new();
    for (name, value) in pairs(text) {
        if name == "Adaptive RX" {
            // `Adaptive RX: off  TX: off`
            let mut words = value.split_whitespace();
            if let Some(rx) = words.next().filter(|word| matches!(*word, "on" | "off")) {
                fields.insert("adaptive-rx".to_owned(), rx.to_owned());
            }
            if let Some(tx) = words.nth(1).filter(|word| matches!(*word, "on" | "off")) {
                fields.insert("adaptive-tx".to_owned(), tx.to_owned());
            }
        } else if value.parse::<u64>().is_ok() {
            fields.insert(name.to_owned(), value.to_owned());
        }
    }
    if fields.is_empty() {
        return Value::Unknown("ethtool shows none".to_owned());
    }
    Value::Fields(fields)
}

/// `ethtool --show-eee`.
pub(super) fn eee(text: &str) -> Value {
    match pairs(text).find(|(name, _)| *name == "EEE status").map(|(_, value)| value) {
        Some(value) if value.starts_with("enabled") => Value::text("on"),
        Some(value) if value.starts_with("disabled") => Value::text("off"),
        _ => Value::Unknown("the NIC has none".to_owned()),
    }
}

/// `ethtool --show-mm`: what `ethtool --set-mm` takes.
pub(super) fn mac_merge(text: &str) -> Value {
    let names = [
        ("pMAC enabled", "pmac-enabled"),
        ("TX enabled", "tx-enabled"),
        ("TX minimum fragment size", "tx-min-frag-size"),
        ("Verify enabled", "verify-enabled"),
        ("Verify time", "verify-time"),
    ];
    let known = |(name, value): (&str, &str)| {
        let (_, word) = names.iter().find(|(shown, _)| *shown == name)?;
        Some(((*word).to_owned(), value.to_owned()))
    };
    let fields: BTreeMap<String, String> = pairs(text).filter_map(known).collect();
    if fields.is_empty() {
        return Value::Unknown("the NIC has none".to_owned());
    }
    Value::Fields(fields)
}

/// `hwstamp_ctl -i IF`.
pub(super) fn timestamping(text: &str) -> Value {
    let number = |name: &str| {
        let section = after(text, "current settings");
        let mut words = section.split_whitespace().skip_while(move |word| *word != name);
        words.nth(1).and_then(|word| word.parse::<u32>().ok())
    };
    match (number("tx_type"), number("rx_filter")) {
        (Some(tx), Some(rx)) => Value::fields([("tx", tx.to_string()), ("rx", rx.to_string())]),
        _ => Value::Unknown("the driver does not say what it timestamps".to_owned()),
    }
}

/// `ethtool -n`: rules by their location, in the words that `ethtool -N` takes. One that is not
/// understood is there as it was printed.
pub(super) fn steering(text: &str) -> Value {
    let mut rules: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut location = None;
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("Filter:") {
            location = Some(number.trim().to_owned());
            rules.insert(number.trim().to_owned(), Vec::new());
        } else if let Some(lines) = location.as_ref().and_then(|at| rules.get_mut(at)) {
            lines.extend(Some(line.trim()).filter(|line| !line.is_empty()));
        }
    }
    let words = |lines: &[&str]| rule(lines).unwrap_or_else(|| lines.join("; "));
    Value::Fields(rules.iter().map(|(at, lines)| (at.clone(), words(lines))).collect())
}

/// A rule in the words of `ethtool -N`, in the order in which a desired configuration has them;
/// `None` for one that does more than a desired configuration can say.
///
/// **Source**: `ethtool v6.1 rxclass.c:rxclass_print_nfc_rule`.
fn rule(lines: &[&str]) -> Option<String> {
    let mut fields = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        fields.insert(name.trim(), value.trim());
    }
    let kind = match fields.remove("Flow Type")? {
        "Raw Ethernet" => "ether",
        "UDP over IPv4" => "udp4",
        _ => return None,
    };
    let queue = fields.remove("Action")?.strip_prefix("Direct to queue ")?.parse::<u64>().ok()?;
    let mut words = format!("flow-type {kind}");
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    for (name, word) in [
        ("Src MAC addr", "src"),
        ("Dest MAC addr", "dst"),
        ("Ethertype", "proto"),
        ("Dest port", "dst-port"),
        ("VLAN", "vlan"),
    ] {
        let Some((value, mask)) = fields.remove(name).and_then(|text| text.split_once(" mask: "))
        else {
            continue;
        };
        let is_mac = name.ends_with("MAC addr");
        let all = if is_mac { "FF:FF:FF:FF:FF:FF" } else { "0xffff" };
        if mask.eq_ignore_ascii_case(all) {
            continue;
        }
        words += &match word {
            "src" | "dst" if mask == "00:00:00:00:00:00" => {
                format!(" {word} {}", value.to_ascii_lowercase())
            }
            "proto" if number(mask)? == 0 => format!(" proto {:#06x}", number(value)?),
            "dst-port" if number(mask)? == 0 => format!(" dst-port {}", number(value)?),
            "vlan" => format!(" vlan {:#x} m {:#x}", number(value)?, number(mask)?),
            _ => return None,
        };
    }
    // All that is left must be open.
    let open = |value: &&str| match value.split_once(" mask: ") {
        Some((_, mask)) => {
            mask.chars().all(|c| "0x255.fF:".contains(c)) && !matches!(mask, "0x0" | "0.0.0.0")
        }
        None => false,
    };
    let is_open = fields.values().all(open);
    is_open.then(|| format!("{words} action {queue}"))
}

/// `ip -j -d link show dev IF`: the one interface.
pub(super) fn link(text: &str) -> Option<Json> {
    let list: Vec<Json> = serde_json::from_str(text).ok()?;
    list.into_iter().find(|one| one.get("ifname").is_some())
}

pub(super) fn is_up(link: &Json) -> bool {
    let flags = link.get("flags").and_then(Json::as_array);
    flags.is_some_and(|flags| flags.iter().any(|flag| flag == "UP"))
}

pub(super) fn kind(link: &Json) -> Option<&str> {
    link.get("linkinfo")?.get("info_kind")?.as_str()
}

/// A VLAN sub-interface.
pub(super) fn vlan(link: &Json) -> Value {
    if kind(link) != Some("vlan") {
        return Value::Unknown("there is an interface of this name that is no VLAN".to_owned());
    }
    let data = link.get("linkinfo").and_then(|info| info.get("info_data"));
    let id = data.and_then(|data| data.get("id")).and_then(Json::as_u64);
    let lower = link.get("link").and_then(Json::as_str);
    let (Some(id), Some(lower)) = (id, lower) else {
        return Value::Unknown("ip does not say of which interface it is".to_owned());
    };
    let mut fields =
        BTreeMap::from([("link".to_owned(), lower.to_owned()), ("id".to_owned(), id.to_string())]);
    for (direction, key) in [("egress", "egress_qos"), ("ingress", "ingress_qos")] {
        let map = data.and_then(|data| data.get(key)).and_then(Json::as_array);
        for pair in map.into_iter().flatten() {
            let number = |name| pair.get(name).and_then(Json::as_u64);
            if let (Some(from), Some(to)) = (number("from"), number("to")) {
                fields.insert(format!("{direction} {from}"), to.to_string());
            }
        }
    }
    Value::Fields(fields)
}

/// `ip -j address show dev IF`: what someone gave it. What a router or a DHCP server gave for a
/// time and what the kernel makes of the NIC's address comes again by itself.
pub(super) fn addresses(text: &str) -> Option<Value> {
    let link = link(text)?;
    let mut list = Vec::new();
    for address in link.get("addr_info")?.as_array()? {
        let word = |key| address.get(key).and_then(Json::as_str);
        let flag = |key| address.get(key).and_then(Json::as_bool) == Some(true);
        let is_local = word("family") == Some("inet6") && word("scope") == Some("link");
        if flag("dynamic") || flag("temporary") || flag("mngtmpaddr") || is_local {
            continue;
        }
        let (Some(local), Some(prefix)) =
            (word("local"), address.get("prefixlen").and_then(Json::as_u64))
        else {
            continue;
        };
        let mut words = match word("address") {
            Some(peer) => format!("{local} peer {peer}/{prefix}"),
            None => format!("{local}/{prefix}"),
        };
        for key in ["broadcast", "scope", "label"] {
            if let Some(value) =
                word(key).filter(|_| key != "label" || word("family") == Some("inet"))
            {
                words += &format!(" {key} {value}");
            }
        }
        for key in ["noprefixroute", "nodad", "home"] {
            if flag(key) {
                words += &format!(" {key}");
            }
        }
        list.push(words);
    }
    Some(Value::List(list))
}

/// `ip -j neighbour show dev IF nud permanent`.
pub(super) fn neighbours(text: &str) -> Option<Value> {
    let list: Vec<Json> = match text.trim() {
        "" => Vec::new(),
        text => serde_json::from_str(text).ok()?,
    };
    let words = |one: &Json| {
        let word = |key| one.get(key).and_then(Json::as_str);
        Some(format!("{} lladdr {} nud permanent", word("dst")?, word("lladdr")?))
    };
    let mut list: Vec<String> = list.iter().filter_map(words).collect();
    list.sort();
    Some(Value::List(list))
}

/// `ip -j [-6] route show table all dev IF`: what someone made, those without a gateway first.
pub(super) fn routes(text: &str, family: &str) -> Option<Vec<String>> {
    let list: Vec<Json> = serde_json::from_str(text).ok()?;
    let mut direct = BTreeSet::new();
    let mut through = BTreeSet::new();
    for route in &list {
        let word = |key| route.get(key).and_then(Json::as_str);
        if matches!(word("protocol"), Some("kernel" | "ra" | "redirect")) {
            continue;
        }
        let mut words = family.to_owned();
        if let Some(kind) = word("type").filter(|kind| *kind != "unicast") {
            words += &format!("{kind} ");
        }
        // `default` is of IPv4 unless the words say otherwise.
        words += word("dst")?;
        for (key, name) in [
            ("gateway", "via"),
            ("prefsrc", "src"),
            ("protocol", "proto"),
            ("scope", "scope"),
            ("table", "table"),
        ] {
            if let Some(value) = word(key) {
                words += &format!(" {name} {value}");
            }
        }
        if let Some(metric) = route.get("metric").and_then(Json::as_u64) {
            words += &format!(" metric {metric}");
        }
        let flags = route.get("flags").and_then(Json::as_array);
        if flags.is_some_and(|flags| flags.iter().any(|flag| flag == "onlink")) {
            words += " onlink";
        }
        let set = if word("gateway").is_some() { &mut through } else { &mut direct };
        set.insert(words);
    }
    Some(direct.into_iter().chain(through).collect())
}

/// A mask of CPUs as the kernel prints it, `1,0000000f`, as a list: `0-3,32`. No CPU is empty.
pub(super) fn cpus_of_mask(mask: &str) -> Option<String> {
    let mut cpus = Vec::new();
    for (index, word) in mask.trim().split(',').rev().enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        let base = u32::try_from(index).ok()? * 32;
        cpus.extend((0..32).filter(|bit| word & 1 << bit != 0).map(|bit| base + bit));
    }
    Some(cpu_list(&cpus))
}

/// CPUs in ascending order as the kernel writes them.
pub(super) fn cpu_list(cpus: &[u32]) -> String {
    let ranges = cpus.chunk_by(|a, b| a + 1 == *b);
    let range = |range: &[u32]| match range {
        [first, .., last] => format!("{first}-{last}"),
        other => other.iter().map(u32::to_string).collect(),
    };
    ranges.map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_ethtool_is_read() {
        let text = "Channel parameters for v0:\nPre-set maximums:\nRX:\t\t4\nTX:\t\t4\n\
                    Other:\t\tn/a\nCombined:\tn/a\nCurrent hardware settings:\nRX:\t\t2\n\
                    TX:\t\t3\nOther:\t\tn/a\nCombined:\tn/a\n";
        assert_eq!(current(text), Value::fields([("rx", "2"), ("tx", "3")]));
        let text = "Features for v0:\nrx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n\
                    \ttx-checksum-sctp: off\n";
        let wanted = Value::fields([("rx-checksumming", "on"), ("tx-checksum-sctp", "off")]);
        assert_eq!(features(text), wanted);
        let text = "Coalesce parameters for eth0:\nAdaptive RX: n/a  TX: off\n\
                    stats-block-usecs:\tn/a\n\nrx-usecs:\t3\nrx-frames:\tn/a\n";
        let wanted = Value::fields([("adaptive-tx", "off"), ("rx-usecs", "3")]);
        assert_eq!(coalescing(text), wanted);
        assert_eq!(
            eee("EEE settings for eth0:\n\tEEE status: enabled - inactive\n"),
            Value::text("on")
        );
        let text = "MAC Merge layer state for eth0:\npMAC enabled: on\nTX enabled: off\n\
                    TX active: off\nTX minimum fragment size: 60\nVerify enabled: off\n\
                    Verify time: 10\n";
        let wanted = [
            ("pmac-enabled", "on"),
            ("tx-enabled", "off"),
            ("tx-min-frag-size", "60"),
            ("verify-enabled", "off"),
            ("verify-time", "10"),
        ];
        assert_eq!(mac_merge(text), Value::fields(wanted));
        let text = "current settings:\ntx_type 1\nrx_filter 12\n";
        assert_eq!(timestamping(text), Value::fields([("tx", "1"), ("rx", "12")]));
        let text = "4 RX rings available\nTotal 1 rules\n\nFilter: 15\n\tFlow Type: Raw Ethernet\n\
                    \tAction: Direct to queue 2\n\n";
        assert_eq!(steering(text), Value::fields([("15", "flow-type ether action 2")]));
        assert!(!current("").is_known() && !coalescing("").is_known() && !eee("").is_known());
    }

    #[test]
    fn t0_steering_rules_are_read_as_they_are_given() {
        let text = "4 RX rings available\nTotal 3 rules\n\nFilter: 3\n\tFlow Type: Raw Ethernet\n\
                    \tSrc MAC addr: 00:00:00:00:00:00 mask: FF:FF:FF:FF:FF:FF\n\
                    \tDest MAC addr: 01:80:C2:00:00:0E mask: 00:00:00:00:00:00\n\
                    \tEthertype: 0x88F7 mask: 0x0\n\tVLAN EtherType: 0x0 mask: 0xffff\n\
                    \tVLAN: 0xa000 mask: 0x1fff\n\tUser-defined: 0x0 mask: 0xffffffffffffffff\n\
                    \tAction: Direct to queue 2\n\nFilter: 4\n\tFlow Type: UDP over IPv4\n\
                    \tSrc IP addr: 0.0.0.0 mask: 255.255.255.255\n\
                    \tDest IP addr: 0.0.0.0 mask: 255.255.255.255\n\tTOS: 0x0 mask: 0xff\n\
                    \tSrc port: 0 mask: 0xffff\n\tDest port: 319 mask: 0x0\n\
                    \tAction: Direct to queue 1\n\nFilter: 5\n\tFlow Type: UDP over IPv4\n\
                    \tSrc IP addr: 10.0.0.1 mask: 0.0.0.0\n\tAction: Drop\n";
        let Value::Fields(rules) = steering(text) else { panic!("fields") };
        let first =
            "flow-type ether dst 01:80:c2:00:00:0e proto 0x88f7 vlan 0xa000 m 0x1fff action 2";
        assert_eq!(rules["3"], first);
        assert_eq!(rules["4"], "flow-type udp4 dst-port 319 action 1");
        assert!(rules["5"].starts_with("Flow Type: UDP over IPv4; Src IP"), "{}", rules["5"]);
    }

    #[test]
    fn t0_masks_of_cpus_are_read() {
        for (mask, wanted) in [("0", ""), ("10f", "0-3,8"), ("00000001,80000000", "31-32")] {
            assert_eq!(cpus_of_mask(mask).unwrap(), wanted, "{mask}");
        }
        assert_eq!(cpus_of_mask("x"), None);
    }

    #[test]
    fn t0_ip_is_read() {
        let text = r#"[{},{"ifname":"eth0.5","link":"eth0","flags":["UP"],"linkinfo":{"info_kind":
            "vlan","info_data":{"protocol":"802.1Q","id":5,"flags":["REORDER_HDR"],
            "ingress_qos":[{"from":5,"to":3}],"egress_qos":[{"from":3,"to":5}]}}}]"#;
        let link = link(text).unwrap();
        assert!(is_up(&link));
        assert_eq!(
            vlan(&link),
            Value::fields([("link", "eth0"), ("id", "5"), ("egress 3", "5"), ("ingress 5", "3")])
        );
        let text = r#"[{"ifname":"v0","addr_info":[
            {"family":"inet","local":"10.9.0.1","prefixlen":24,"scope":"global","label":"v0"},
            {"family":"inet6","local":"fd00::1","prefixlen":64,"scope":"global","tentative":true},
            {"family":"inet6","local":"fd00::2","prefixlen":64,"scope":"global","dynamic":true},
            {"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]}]"#;
        let wanted = ["10.9.0.1/24 scope global label v0", "fd00::1/64 scope global"];
        assert_eq!(addresses(text), Some(Value::List(wanted.map(str::to_owned).to_vec())));
        let text = r#"[{"dst":"10.9.0.2","lladdr":"02:00:00:00:00:02","state":["PERMANENT"]}]"#;
        let wanted = vec!["10.9.0.2 lladdr 02:00:00:00:00:02 nud permanent".to_owned()];
        assert_eq!(neighbours(text), Some(Value::List(wanted)));
        assert_eq!(neighbours(""), Some(Value::List(Vec::new())));
        let text = r#"[{"dst":"10.9.0.0/24","protocol":"kernel","scope":"link","flags":[]},
            {"dst":"default","gateway":"10.9.0.2","metric":100,"flags":[]},
            {"dst":"10.10.0.0/16","scope":"link","table":"7","flags":["onlink"]}]"#;
        let wanted = ["10.10.0.0/16 scope link table 7 onlink", "default via 10.9.0.2 metric 100"];
        assert_eq!(routes(text, "").unwrap(), wanted);
    }
}
