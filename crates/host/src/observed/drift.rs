// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What differs between two observations of a host, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use serde_json::Value;

use super::Observed;

/// A longer value is cut in a message. **Units**: characters.
const SHOWN: usize = 120;

/// What an earlier and a later observation of a host say of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// A sentence for each difference; interfaces first.
    pub changed: Vec<String>,
    /// What could not be read before, and why. Whether it was changed nobody knows.
    pub not_compared: Vec<String>,
}

impl Observed {
    /// What is not in a later observation as it is in this one, and what cannot be compared.
    pub fn drift(&self, later: &Observed) -> Drift {
        let mut drift = Drift::default();
        compare("", &self.settings, &later.settings, &mut drift);
        let Drift { changed: mut found, mut not_compared } = drift;
        for (name, before) in &self.sysctls {
            // One that appears or goes belongs to a module or an interface.
            if let Some(after) = later.sysctls.get(name).filter(|after| *after != before) {
                let name = name.replace('/', ".");
                found.push(format!("sysctl {name}: {} -> {}", cut(before), cut(after)));
            }
        }
        for (kind, before) in &self.network {
            if let Some(after) = later.network.get(kind) {
                sets(kind, before, after, &mut found);
            }
        }
        self.drift_of_threads(later, &mut found);
        for (owner, title) in later.owners.iter().filter(|(o, _)| !self.owners.contains_key(*o)) {
            found.push(format!("{owner} goes on ({title})"));
        }
        if self.applied != later.applied {
            let name = |applied: &Option<String>| {
                applied.as_ref().map_or("nothing".to_owned(), |name| format!("`{name}`"))
            };
            let (before, after) = (name(&self.applied), name(&later.applied));
            found.push(format!("applied: {before} -> {after}"));
        }
        for (what, why) in
            later.unknown.iter().filter(|(what, _)| !self.unknown.contains_key(*what))
        {
            found.push(format!("{what}: not known whether it is as before: {why}"));
        }
        // What it is like now says nothing where it was not known before.
        not_compared.extend(self.unknown.iter().map(|(what, why)| format!("{what}: {why}")));
        Drift { changed: found, not_compared }
    }

    fn drift_of_threads(&self, later: &Observed, found: &mut Vec<String>) {
        // Threads of one process that were changed alike are one change.
        let mut changed: BTreeMap<(&str, &str, &str, &str), usize> = BTreeMap::new();
        for (key, before) in &self.threads {
            let after = later.threads.get(key).filter(|a| a.scheduling != before.scheduling);
            let Some(after) = after else { continue };
            let pid = key.split('-').next().unwrap_or_default();
            let change =
                (pid, before.name.as_str(), &*before.scheduling, after.scheduling.as_str());
            *changed.entry(change).or_default() += 1;
        }
        for ((pid, name, before, after), count) in changed {
            let threads = if count > 1 { format!(", {count} threads") } else { String::new() };
            found.push(format!("process {pid} ({name}{threads}): {before} -> {after}"));
        }
    }
}

fn cut(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= SHOWN {
        return text;
    }
    text.chars().take(SHOWN).collect::<String>() + " ..."
}

/// A value of a setting, for people.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => cut(text),
        other => cut(&other.to_string()),
    }
}

fn sets(what: &str, before: &BTreeSet<String>, after: &BTreeSet<String>, found: &mut Vec<String>) {
    found.extend(before.difference(after).map(|one| format!("{what} {} is gone", cut(one))));
    found.extend(after.difference(before).map(|one| format!("{what} {} was added", cut(one))));
}

/// Whether a prefix is of IPv6's link-local unicast addresses (RFC 4291, 2.5.6).
fn is_link_local(prefix: &str) -> bool {
    let address = prefix.split('/').next().unwrap_or_default();
    address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local())
}

/// Whether these disciplines are those that the kernel puts on an interface by itself when it is up
/// for the first time, and leaves there: without handles, where there were none before.
fn are_the_kernels_first(before: &Value, after: &Value) -> bool {
    let is_own = |qdisc: &Value| qdisc["handle"] == "0:";
    before.as_array().is_some_and(Vec::is_empty)
        && after.as_array().is_some_and(|all| all.iter().all(is_own))
}

/// Why a value of a setting could not be read.
fn unreadable(value: &Value) -> Option<&str> {
    let only = value.as_object().filter(|object| object.len() == 1)?;
    only.get("unreadable")?.as_str()
}

/// The texts of a list that has nothing else.
fn texts(value: &Value) -> Option<BTreeSet<String>> {
    let list = value.as_array()?;
    list.iter().map(|one| one.as_str().map(str::to_owned)).collect()
}

fn compare(path: &str, before: &Value, after: &Value, drift: &mut Drift) {
    if let Some(why) = unreadable(before) {
        return drift.not_compared.push(format!("{path}: {}", cut(why)));
    }
    if path.ends_with(" qdiscs") && are_the_kernels_first(before, after) {
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path} {key}") };
    if let (Some(old), Some(mut new)) = (texts(before), texts(after)) {
        if path.ends_with(" addresses") {
            // The kernel's own, a moment after an interface has its backend.
            new.retain(|address| old.contains(address) || !is_link_local(address));
        }
        return sets(path, &old, &new, &mut drift.changed);
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        if before != after {
            drift.changed.push(format!("{path}: {} -> {}", shown(before), shown(after)));
        }
        return;
    };
    // Only the words of these two say nothing.
    let is_frame = path.is_empty() || path == "interfaces";
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let name = match (path, key.as_str()) {
            ("", "interfaces") => "interfaces".to_owned(),
            ("interfaces", name) => format!("interface {name}"),
            (_, key) => below(key),
        };
        let found = &mut drift.changed;
        match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) => compare(&name, old, new, drift),
            (Some(_), None) if is_frame => found.push(format!("{name} is gone")),
            (None, Some(_)) if is_frame => found.push(format!("{name} was added")),
            (Some(old), None) => found.push(format!("{name}: {} -> none", shown(old))),
            (None, Some(new)) => found.push(format!("{name}: none -> {}", shown(new))),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Thread;
    use super::*;

    fn observed() -> Observed {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let thread =
            |scheduling: &str| Thread { name: "app".into(), scheduling: scheduling.into() };
        Observed {
            boot: "b".into(),
            settings: json!({
                "host": {"clock": {"source": "tsc"}},
                "interfaces": {"eth0": {"up": true, "mtu": 1500, "addresses": ["10.0.0.1/24"]}},
            }),
            sysctls: [("net/ipv4/ip_forward".into(), "0".into())].into(),
            network: [("rule".into(), lines(&["0: from all lookup local"]))].into(),
            threads: [("7-1/7", "SCHED_OTHER 0"), ("7-1/8", "SCHED_OTHER 0")]
                .map(|(key, scheduling)| (key.to_owned(), thread(scheduling)))
                .into(),
            owners: BTreeMap::new(),
            applied: None,
            unknown: BTreeMap::new(),
        }
    }

    #[test]
    fn t0_each_difference_is_named_and_equal_hosts_have_none() {
        assert_eq!(observed().drift(&observed()), Drift::default());
        type Change = fn(&mut Observed);
        let cases: [(Change, &[&str]); 10] = [
            (
                |o| o.settings["interfaces"]["eth0"]["addresses"] = json!(["10.9.0.1/24"]),
                &[
                    "interface eth0 addresses 10.0.0.1/24 is gone",
                    "interface eth0 addresses 10.9.0.1/24 was added",
                ],
            ),
            (
                |o| {
                    let with = json!(["10.0.0.1/24", "fe80::1/64", "fd00::1/64"]);
                    o.settings["interfaces"]["eth0"]["addresses"] = with;
                },
                &["interface eth0 addresses fd00::1/64 was added"],
            ),
            (
                |o| o.settings["interfaces"]["eth0"]["mtu"] = json!(1400),
                &["interface eth0 mtu: 1500 -> 1400"],
            ),
            (
                |o| o.settings["interfaces"] = json!({"tw0": {}}),
                &["interface eth0 is gone", "interface tw0 was added"],
            ),
            (
                |o| o.settings["host"]["clock"]["source"] = json!("hpet"),
                &["host clock source: tsc -> hpet"],
            ),
            (
                |o| drop(o.sysctls.insert("net/ipv4/ip_forward".into(), "1".into())),
                &["sysctl net.ipv4.ip_forward: 0 -> 1"],
            ),
            // A module's parameters come with the module.
            (|o| drop(o.sysctls.insert("net/sctp/x".into(), "1".into())), &[]),
            (
                |o| o.network.values_mut().for_each(BTreeSet::clear),
                &["rule 0: from all lookup local is gone"],
            ),
            (
                |o| o.threads.values_mut().for_each(|t| t.scheduling = "SCHED_FIFO 9".into()),
                &["process 7 (app, 2 threads): SCHED_OTHER 0 -> SCHED_FIFO 9"],
            ),
            (
                |o| {
                    o.owners.insert("process 9".into(), "MAC on eth0".into());
                    o.applied = Some("host".into());
                    o.unknown.insert("rule".into(), "there is no `ip`".into());
                    o.network.clear();
                },
                &[
                    "process 9 goes on (MAC on eth0)",
                    "applied: nothing -> `host`",
                    "rule: not known whether it is as before: there is no `ip`",
                ],
            ),
        ];
        for (change, expected) in cases {
            let mut later = observed();
            change(&mut later);
            assert_eq!(observed().drift(&later).changed, expected);
            assert!(observed().drift(&later).not_compared.is_empty());
        }
    }

    #[test]
    fn t0_disciplines_that_the_kernel_puts_first_are_no_change() {
        let with = |qdiscs: Value| {
            let mut observed = observed();
            observed.settings["interfaces"]["eth0"]["qdiscs"] = qdiscs;
            observed
        };
        let none = with(json!([]));
        let own = json!({"kind": "noqueue", "handle": "0:", "parent": "root"});
        assert_eq!(none.drift(&with(json!([own.clone()]))), Drift::default());
        let other = json!({"kind": "tbf", "handle": "8001:", "parent": "root"});
        for (before, after) in [
            (json!([]), json!([other.clone()])),
            (json!([]), json!([own.clone(), other.clone()])),
            (json!([own.clone()]), json!([{"kind": "mq", "handle": "0:", "parent": "root"}])),
            (json!([other]), json!([own])),
        ] {
            let drift = with(before).drift(&with(after));
            assert_eq!(drift.changed.len(), 1, "{drift:?}");
        }
    }

    #[test]
    fn t0_what_is_not_known_before_is_not_compared_whatever_comes_later() {
        let mut before = observed();
        before.settings["interfaces"]["eth0"]["mtu"] = json!({"unreadable": "EPERM"});
        before.unknown.insert("rule".into(), "there is no `ip`".into());
        before.network.clear();
        let named = ["interface eth0 mtu: EPERM", "rule: there is no `ip`"];
        for later in [before.clone(), observed()] {
            let drift = before.drift(&later);
            assert_eq!(
                (drift.changed.len(), drift.not_compared),
                (0, named.map(str::to_owned).to_vec())
            );
        }
        // What could be read before and cannot now is a difference.
        assert_eq!(observed().drift(&before).changed.len(), 2);
    }
}
