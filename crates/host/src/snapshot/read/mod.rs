// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading a snapshot from a source.
//!
//! Not here: where answers come from (`source`), what the values mean (`model`).

mod cpu;
mod ethtool;
mod host;
mod interface;
mod ip;
mod served;
mod tc;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use serde_json::Value;
use timewire_base::IfName;

use super::model::{Counters, HostSettings, HostState, Reading, SCHEMA, Settings, Snapshot, State};
use super::source::{Question, Source};
use crate::HostError;

/// A value of one word.
fn parsed<T: FromStr>(text: Reading<String>) -> Reading<T> {
    text.parse(|text| text.trim().parse::<T>().map_err(|_| format!("`{text}` makes no sense here")))
}

impl Snapshot {
    /// Reads a host and these interfaces with the VLANs on them, or all interfaces when none is
    /// named.
    ///
    /// **Errors**: interfaces cannot be listed; one of these is not there.
    pub fn read(source: &dyn Source, interfaces: &[IfName]) -> Result<Snapshot, HostError> {
        with_host(source, host_alone(source), interfaces)
    }
}

/// Interfaces, beside a host that was read already.
pub fn with_host(
    source: &dyn Source,
    (of_host, state_of_host): (HostSettings, HostState),
    interfaces: &[IfName],
) -> Result<Snapshot, HostError> {
    let links = listed(source, &["ip", "-j", "-d", "-s", "link", "show"]);
    let links = match links {
        Reading::Known(links) => links,
        other => {
            let why = other.why_not().unwrap_or_default().to_owned();
            return Err(HostError::Unreadable { what: "the list of interfaces", why });
        }
    };
    let named = chosen(&links, interfaces)?;
    let addresses = listed(source, &["ip", "-j", "addr", "show"]);
    let routes = all_routes(source);
    let threads = source.ask(Question::KernelThreads).parse(serde_json::from_value);
    let no_sysfs = foreign_sysfs(source, &links);
    let reader = interface::Reader {
        source,
        threads: &threads,
        addresses: &addresses,
        routes: &routes,
        no_sysfs: no_sysfs.as_deref(),
    };
    let (mut settings, mut states, mut counters) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (name, link) in named {
        let (setting, state, counter) = reader.read(name.as_str(), link);
        settings.insert(name.clone(), setting);
        states.insert(name.clone(), state);
        counters.insert(name, counter);
    }
    Ok(Snapshot {
        schema: SCHEMA.to_owned(),
        tool: concat!("timewire ", env!("CARGO_PKG_VERSION")).to_owned(),
        settings: Settings { host: of_host, interfaces: settings },
        state: State { host: state_of_host, interfaces: states },
        counters: Counters { host: host::counters(source), interfaces: counters },
    })
}

/// A host without its interfaces.
pub fn host_alone(source: &dyn Source) -> (HostSettings, HostState) {
    let threads = source.ask(Question::KernelThreads).parse(serde_json::from_value);
    (host::settings(source, &threads), host::state(source))
}

fn listed(source: &dyn Source, words: &[&str]) -> Reading<Vec<Value>> {
    source.run(words).then(|output| match output.code {
        Some(0) => Reading::Known(output.stdout).parse(|text| ip::objects(&text)),
        _ => Reading::Unreadable(format!("`{}`: {}", words.join(" "), output.stderr)),
    })
}

fn all_routes(source: &dyn Source) -> Reading<Vec<Value>> {
    let of = |family| listed(source, &["ip", "-j", family, "route", "show", "table", "all"]);
    of("-4").then(|v4| {
        // A kernel without IPv6 has no such table.
        let v6 = of("-6").known().cloned().unwrap_or_default();
        Reading::Known([v4, v6].concat())
    })
}

/// The links of these names and of the VLANs on them.
fn chosen<'a>(
    links: &'a [Value],
    interfaces: &[IfName],
) -> Result<Vec<(IfName, &'a Value)>, HostError> {
    let name = |link: &Value| ip::text(link, "ifname").and_then(|name| IfName::new(name).ok());
    let all: Vec<(IfName, &Value)> =
        links.iter().filter_map(|link| Some((name(link)?, link))).collect();
    if let Some(missing) = interfaces.iter().find(|one| all.iter().all(|(name, _)| name != *one)) {
        let there = all.iter().map(|(name, _)| name.to_string()).collect();
        return Err(HostError::NoInterface { name: missing.clone(), there });
    }
    let is_wanted = |(name, link): &(IfName, &Value)| {
        let lower = ip::text(link, "link").filter(|_| ip::vlan(link).is_some());
        interfaces.is_empty()
            || interfaces.contains(name)
            || interfaces.iter().any(|wanted| lower == Some(wanted.as_str()))
    };
    Ok(all.into_iter().filter(is_wanted).collect())
}

/// Why `/sys` is not about the interfaces that `ip` printed; `None` when it is.
fn foreign_sysfs(source: &dyn Source, links: &[Value]) -> Option<String> {
    let printed: BTreeSet<(String, u64)> = links
        .iter()
        .filter_map(|link| {
            Some((ip::text(link, "ifname")?.to_owned(), ip::number(link, "ifindex")?))
        })
        .collect();
    let names = match source.list("/sys/class/net") {
        Reading::Known(names) => names,
        other => return Some(format!("/sys/class/net: {}", other.why_not().unwrap_or_default())),
    };
    let index = |name: String| {
        let index: Reading<u64> = parsed(source.read(&format!("/sys/class/net/{name}/ifindex")));
        // Files such as `bonding_masters` stand there, too.
        index.known().copied().map(|index| (name, index))
    };
    let shown: BTreeSet<(String, u64)> = names.into_iter().filter_map(index).collect();
    (shown != printed).then(|| "/sys is about another network namespace".to_owned())
}
