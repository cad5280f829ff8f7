// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The filters of `tc` that give frames a socket priority: `flower` or `matchall` with `skbedit`,
//! on the egress of `clsact`, which a frame passes before its class is chosen (linux v6.12
//! `net/core/dev.c:__dev_queue_xmit`).

use std::fmt::Write;

use serde_json::{Value as Json, json};
use timewire_base::IfName;

use timewire_model::scenario::host::{AddressPrefix, EtherType, IpVersion, Mark};

/// The preference of the first filter; they are numbered from here.
const FIRST_PREFERENCE: usize = 100;

/// One filter: the words of `tc` after `filter add dev IF egress`, and what `tc -j filter show`
/// says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkFilter {
    preference: usize,
    protocol: &'static str,
    other: Option<u16>,
    keys: Vec<(&'static str, String)>,
    priority: u64,
}

impl MarkFilter {
    /// The filters of an interface's marks. A mark that both IP versions can fit makes two.
    pub fn of_marks(marks: &[Mark]) -> Vec<MarkFilter> {
        let both = marks.iter().flat_map(|mark| {
            let versions: Vec<Option<IpVersion>> = match (is_ip(mark), version(mark)) {
                (false, _) => vec![None],
                (true, Some(version)) => vec![Some(version)],
                (true, None) => vec![Some(IpVersion::V4), Some(IpVersion::V6)],
            };
            versions.into_iter().map(move |version| (mark, version))
        });
        both.enumerate().map(|(i, (mark, version))| MarkFilter::new(i, mark, version)).collect()
    }

    fn new(index: usize, mark: &Mark, version: Option<IpVersion>) -> MarkFilter {
        let number = mark.ethertype.map(EtherType::get);
        let (protocol, other) = match (version, number) {
            (Some(IpVersion::V4), _) | (None, Some(0x0800)) => ("ip", None),
            (Some(IpVersion::V6), _) | (None, Some(0x86dd)) => ("ipv6", None),
            (None, Some(number)) => ("", Some(number)),
            (None, None) => ("all", None),
        };
        let mut keys = Vec::new();
        let mut word = |name, text: Option<String>| {
            keys.extend(text.map(|text| (name, text)));
        };
        word("dst_mac", mark.destination.map(|mac| mac.to_string()));
        word("ip_proto", mark.protocol.map(|protocol| protocol.word().to_owned()));
        // A prefix of no bits is no key; what it says is the IP version.
        let prefix = |it: Option<AddressPrefix>| it.filter(|it| it.bits() > 0);
        word("dst_ip", prefix(mark.to_address).map(|it| it.to_string()));
        word("src_ip", prefix(mark.from_address).map(|it| it.to_string()));
        word("dst_port", mark.to_port.map(|port| port.get().to_string()));
        word("src_port", mark.from_port.map(|port| port.get().to_string()));
        let tos = |dscp: u64| format!("0x{:02x}/0xfc", dscp << 2);
        word("ip_tos", mark.dscp.map(|dscp| tos(dscp.get())));
        let preference = FIRST_PREFERENCE + index;
        MarkFilter { preference, protocol, other, keys, priority: mark.priority.get() }
    }

    /// The words after `tc filter add dev IF egress`.
    pub fn words(&self) -> String {
        let mut text = format!("pref {} protocol {}", self.preference, self.protocol_word());
        let kind = if self.keys.is_empty() { "matchall" } else { "flower" };
        write!(text, " handle 1 {kind}").expect("invariant: text can be written");
        for (name, word) in &self.keys {
            write!(text, " {name} {word}").expect("invariant: text can be written");
        }
        // `tc` reads the number as that of a class: hexadecimal, and with a colon it says so.
        write!(text, " action skbedit priority :{:x}", self.priority)
            .expect("invariant: text can be written");
        text
    }

    /// The arguments of `tc` that put it on an interface.
    pub fn add(&self, device: &IfName) -> String {
        format!("filter add dev {device} egress {}", self.words())
    }

    /// The arguments of `tc` that take it away.
    pub fn delete(&self, device: &IfName) -> String {
        let (preference, protocol) = (self.preference, self.protocol_word());
        format!("filter del dev {device} egress pref {preference} protocol {protocol}")
    }

    fn protocol_word(&self) -> String {
        match self.other {
            Some(number) => format!("0x{number:04x}"),
            None => self.protocol.to_owned(),
        }
    }
}

fn is_ip(mark: &Mark) -> bool {
    let address = mark.to_address.is_some() || mark.from_address.is_some();
    mark.protocol.is_some() || mark.dscp.is_some() || address
}

/// The IP version that a mark names, by an address or by an EtherType.
fn version(mark: &Mark) -> Option<IpVersion> {
    let prefix = mark.to_address.or(mark.from_address);
    let number = mark.ethertype.map(EtherType::get);
    prefix.map(AddressPrefix::version).or(match number {
        Some(0x0800) => Some(IpVersion::V4),
        Some(0x86dd) => Some(IpVersion::V6),
        _ => None,
    })
}

/// `linux v6.12 include/uapi/linux/if_ether.h`: `ETH_P_ALL`, `ETH_P_IP`, `ETH_P_IPV6`.
const ALL: u16 = 0x0003;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// What `tc -N -j filter show dev IF egress` shows (without `-N` many EtherTypes have names), as
/// the words of each filter, in its order, the form of [`MarkFilter::words`].
///
/// **Errors**: a filter that is no mark; it is named, since taking it for one would lose it.
pub fn shown_filters(json: &str) -> Result<Vec<String>, String> {
    let text = if json.trim().is_empty() { "[]" } else { json };
    let list: Vec<Json> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    // The head of a preference comes without options.
    let filters = list.iter().filter(|filter| filter.get("options").is_some());
    filters.map(|filter| words_of(filter).ok_or_else(|| format!("`{filter}` is no mark"))).collect()
}

fn words_of(filter: &Json) -> Option<String> {
    let options = filter.get("options")?;
    let kind = filter["kind"].as_str().filter(|kind| ["flower", "matchall"].contains(kind))?;
    let protocol = match filter["protocol"].as_str()? {
        // An EtherType as a number is between brackets, without the zeros in front.
        text if text.starts_with('[') => {
            match text.trim_matches(|c| c == '[' || c == ']').parse::<u16>().ok()? {
                ALL => "all".to_owned(),
                IPV4 => "ip".to_owned(),
                IPV6 => "ipv6".to_owned(),
                number => format!("0x{number:04x}"),
            }
        }
        text => text.to_owned(),
    };
    let mut words =
        format!("pref {} protocol {protocol} handle 1 {kind}", filter["pref"].as_u64()?);
    if options["handle"].as_u64()? != 1 || options.get("in_hw").is_some_and(|v| *v == json!(true)) {
        return None;
    }
    let none = serde_json::Map::new();
    let keys = options.get("keys").and_then(Json::as_object).unwrap_or(&none);
    const ORDER: [&str; 7] =
        ["dst_mac", "ip_proto", "dst_ip", "src_ip", "dst_port", "src_port", "ip_tos"];
    let known = |key: &str| ORDER.contains(&key) || key == "eth_type" || key == "ip_tos_mask";
    if keys.keys().any(|key| !known(key)) {
        return None;
    }
    for key in ORDER {
        let Some(value) = keys.get(key) else { continue };
        match (key, value) {
            ("ip_tos", value) => {
                if keys.get("ip_tos_mask")?.as_str()? != "fc" {
                    return None;
                }
                write!(words, " ip_tos 0x{:02x}/0xfc", value.as_u64()?).ok()?;
            }
            (key, Json::String(text)) => write!(words, " {key} {text}").ok()?,
            (key, value) => write!(words, " {key} {}", value.as_u64()?).ok()?,
        }
    }
    let [action] = options.get("actions")?.as_array()?.as_slice() else {
        return None;
    };
    let allowed =
        ["order", "kind", "priority", "control_action", "index", "ref", "bind", "not_in_hw"];
    let plain = action.as_object()?.keys().all(|key| allowed.contains(&key.as_str()));
    if !plain || action["kind"] != "skbedit" || action["control_action"]["type"] != "pipe" {
        return None;
    }
    let minor = action["priority"].as_str()?.strip_prefix(':')?;
    write!(words, " action skbedit priority :{minor}").ok()?;
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::ParseFile;
    use timewire_model::scenario::host::HostSettings;

    /// What tc of iproute2 6.1.0 showed on Linux 6.12 of the filters below.
    const SHOWN: &str = include_str!("../../tests/fixtures/tc-filter-marks.json");

    fn marks(text: &str) -> Vec<MarkFilter> {
        let text = format!(
            "timewire: 1\nkind: network\nname: x\n\
             stations: [{{name: alpha, host: {{interfaces: [{{name: eth0, marks: [{text}]}}]}}}}]\n"
        );
        let file = HostSettings::parse("marks.yaml", &text).unwrap();
        MarkFilter::of_marks(&file.host.interfaces[0].marks)
    }

    #[test]
    fn t1_marks_are_filters() {
        let filters = marks(
            "{priority: 3, protocol: udp, to_port: 7100, to_address: 10.0.0.0/24},\
             {priority: 10, dscp: 46},\
             {priority: 6, ethertype: '0x22f0', destination: '02:00:00:00:00:01'},\
             {priority: 1}",
        );
        let words: Vec<String> = filters.iter().map(MarkFilter::words).collect();
        assert_eq!(
            words,
            [
                "pref 100 protocol ip handle 1 flower ip_proto udp dst_ip 10.0.0.0/24 \
                 dst_port 7100 action skbedit priority :3",
                "pref 101 protocol ip handle 1 flower ip_tos 0xb8/0xfc action skbedit priority :a",
                "pref 102 protocol ipv6 handle 1 flower ip_tos 0xb8/0xfc \
                 action skbedit priority :a",
                "pref 103 protocol 0x22f0 handle 1 flower dst_mac 02:00:00:00:00:01 \
                 action skbedit priority :6",
                "pref 104 protocol all handle 1 matchall action skbedit priority :1",
            ]
        );
        assert_eq!(shown_filters(SHOWN).unwrap(), words);
        let mut numeric = SHOWN.to_owned();
        for (name, number) in [("all", "[3]"), ("ip", "[2048]"), ("ipv6", "[34525]")] {
            let protocol = |word: &str| format!("\"protocol\":\"{word}\"");
            numeric = numeric.replace(&protocol(name), &protocol(number));
        }
        assert_ne!(numeric, SHOWN);
        assert_eq!(shown_filters(&numeric).unwrap(), words);
        let eth0 = IfName::new("eth0").unwrap();
        assert_eq!(filters[1].delete(&eth0), "filter del dev eth0 egress pref 101 protocol ip");
    }

    #[test]
    fn t0_what_is_no_mark_is_named() {
        let foreign = [
            SHOWN.replace("skbedit", "gact"),
            SHOWN.replace("\"ip_tos_mask\":\"fc\"", "\"ip_tos_mask\":\"ff\""),
            SHOWN.replace("dst_port", "vlan_id"),
            SHOWN.replace("matchall", "u32"),
            SHOWN.replace("\"priority\":\":1\"", "\"mark\":7"),
        ];
        for text in foreign {
            assert!(shown_filters(&text).unwrap_err().contains("is no mark"));
        }
        assert_eq!(shown_filters("\n"), Ok(Vec::new()));
        assert!(shown_filters("garbage").is_err());
    }
}
