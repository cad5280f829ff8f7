// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `ip -j` prints: links, addresses, routes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::snapshot::Reading;
use crate::snapshot::model::{AddressState, BpfProgram, Vlan, VlanMapping};

/// The objects of a list.
///
/// **Errors**: it is no list of objects.
pub fn objects(text: &str) -> Result<Vec<Value>, String> {
    // Without an interface or route `ip` prints nothing at all.
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Value::Array(list) = value else { return Err("`ip` printed no list".to_owned()) };
    // Interfaces that vanished while it printed are empty objects.
    Ok(list.into_iter().filter(|one| one.as_object().is_some_and(|one| !one.is_empty())).collect())
}

/// A text of an object.
pub fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

/// A number of an object.
pub fn number(object: &Value, key: &str) -> Option<u64> {
    object.get(key).and_then(Value::as_u64)
}

/// A list of texts of an object.
pub fn words(object: &Value, key: &str) -> Vec<String> {
    let list = object.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The VLAN of a link that is one.
pub fn vlan(link: &Value) -> Option<Vlan> {
    let info = link.get("linkinfo").filter(|info| text(info, "info_kind") == Some("vlan"))?;
    let data = info.get("info_data")?;
    let map = |key: &str| {
        let list = data.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let one = |pair: &Value| {
            let end = |key| number(pair, key).and_then(|end| u32::try_from(end).ok());
            Some(VlanMapping { from: end("from")?, to: end("to")? })
        };
        let mut pairs: Vec<VlanMapping> = list.iter().filter_map(one).collect();
        // The kernel keeps them in the order in which they were given.
        pairs.sort();
        pairs
    };
    Some(Vlan {
        id: number(data, "id").and_then(|id| u32::try_from(id).ok())?,
        protocol: text(data, "protocol").unwrap_or_default().to_owned(),
        flags: words(data, "flags"),
        egress: map("egress_qos"),
        ingress: map("ingress_qos"),
    })
}

/// The XDP programs of a link.
pub fn xdp(link: &Value) -> Reading<Vec<BpfProgram>> {
    let Some(xdp) = link.get("xdp") else { return Reading::Known(Vec::new()) };
    let attached = xdp.get("attached").and_then(Value::as_array);
    let list = attached.cloned().unwrap_or_else(|| vec![xdp.clone()]);
    let one = |entry: &Value| {
        let program = entry.get("prog")?;
        let mode = match number(entry, "mode").or_else(|| number(xdp, "mode"))? {
            1 => "driver",
            2 => "generic",
            3 => "offloaded",
            _ => "several",
        };
        Some(BpfProgram {
            id: number(program, "id").and_then(|id| u32::try_from(id).ok())?,
            name: text(program, "name").map(str::to_owned),
            mode: Some(mode.to_owned()),
        })
    };
    Reading::Known(list.iter().filter_map(one).collect())
}

/// What the kernel counted of a link.
pub fn counters(link: &Value) -> Reading<BTreeMap<String, u64>> {
    let Some(counted) = link.get("stats64").or_else(|| link.get("stats")) else {
        return Reading::Absent("`ip` printed no statistics".to_owned());
    };
    let mut found = BTreeMap::new();
    for direction in ["rx", "tx"] {
        let part = counted.get(direction).and_then(Value::as_object);
        for (key, value) in part.into_iter().flatten() {
            if let Some(value) = value.as_u64() {
                found.insert(format!("{direction}_{key}"), value);
            }
        }
    }
    Reading::Known(found)
}

/// The addresses of an interface, and those that are not simply there.
pub fn addresses(list: &[Value], interface: &str) -> (Vec<String>, Vec<AddressState>) {
    let own = list.iter().filter(|one| text(one, "ifname") == Some(interface));
    let all = own.filter_map(|one| one.get("addr_info")?.as_array()).flatten();
    let (mut addresses, mut states) = (Vec::new(), Vec::new());
    for info in all {
        let (Some(local), Some(length)) = (text(info, "local"), number(info, "prefixlen")) else {
            continue;
        };
        let address = format!("{local}/{length}");
        let flags: Vec<String> = ["tentative", "dadfailed", "deprecated"]
            .into_iter()
            .filter(|flag| info.get(*flag).and_then(Value::as_bool) == Some(true))
            .map(str::to_owned)
            .collect();
        if !flags.is_empty() {
            states.push(AddressState { address: address.clone(), flags });
        }
        addresses.push(address);
    }
    addresses.sort();
    (addresses, states)
}

/// The routes through an interface that someone gave, in the words of `ip route`, sorted. Those of
/// the kernel follow from the addresses.
pub fn routes(list: &[Value], interface: &str) -> Vec<String> {
    const KEYS: [(&str, &str); 8] = [
        ("gateway", "via"),
        ("dev", "dev"),
        ("table", "table"),
        ("protocol", "proto"),
        ("scope", "scope"),
        ("prefsrc", "src"),
        ("metric", "metric"),
        ("pref", "pref"),
    ];
    let own = list.iter().filter(|route| text(route, "dev") == Some(interface));
    let given = own.filter(|route| text(route, "protocol") != Some("kernel"));
    let one = |route: &Value| {
        let mut line = String::new();
        if let Some(kind) = text(route, "type").filter(|kind| *kind != "unicast") {
            line = format!("{kind} ");
        }
        line.push_str(text(route, "dst").unwrap_or("default"));
        for (key, name) in KEYS {
            match route.get(key) {
                Some(Value::String(value)) => line.push_str(&format!(" {name} {value}")),
                Some(Value::Number(value)) => line.push_str(&format!(" {name} {value}")),
                _ => {}
            }
        }
        line
    };
    let mut routes: Vec<String> = given.map(one).collect();
    routes.sort();
    routes
}
