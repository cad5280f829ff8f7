// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which kind of file a text is, by its first keys, whatever is wrong with the rest: for messages
//! about a file of another kind than was asked for.

use std::fmt;

use super::error::Problem;
use super::suggest::did_you_mean;
use super::tree::{self, Node, Value};

/// The kinds of files in YAML or JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A network of one segment, which programs on stations and the simulator carry out.
    Segment,
    /// Any other network.
    Network,
    /// A network file with nothing but host settings.
    HostSettings,
    /// A network file with phases and no streams.
    Steps,
    /// A network file with programs and no streams.
    Programs,
    /// Where the stations of a network are.
    Hosts,
    /// What this program wrote, by its schema.
    Written(String),
}

impl FileKind {
    /// The kind of a text; `None` when it could be any, or none.
    pub fn of(text: &str) -> Option<FileKind> {
        let root = tree::parse(text).ok()?;
        let Value::Map(entries) = &root.value else { return None };
        let value =
            |name: &str| entries.iter().find(|(key, _)| key.text == name).map(|(_, value)| value);
        let value = |name: &str| value(name).filter(|node| !node.is_absent());
        let has = |name: &str| value(name).is_some();
        if let Some(schema) = value("schema").and_then(scalar).filter(|it| is_ours(it)) {
            return Some(FileKind::Written(schema.to_owned()));
        }
        let of_stations = |name: &str| {
            let Some(Value::List(stations)) = value("stations").map(|node| &node.value) else {
                return false;
            };
            stations.iter().any(|station| key(station, name))
        };
        let has_steps = || of_stations("phases") && !has("streams") && !has("programs");
        let has_links = has("links") || has("bridges");
        let network =
            if has("segments") && !has_links { FileKind::Segment } else { FileKind::Network };
        match value("kind").and_then(scalar) {
            Some("network") => {
                let keys = ["links", "bridges", "segments", "streams", "programs", "experiment"];
                let is_network = keys.iter().any(|key| has(key));
                return Some(if has("programs") && !has("streams") {
                    FileKind::Programs
                } else if has_steps() {
                    FileKind::Steps
                } else if !is_network && of_stations("host") {
                    FileKind::HostSettings
                } else {
                    network
                });
            }
            Some("hosts") => return Some(FileKind::Hosts),
            _ => {}
        }
        let of_networks = ["links", "bridges", "host", "stations", "segments", "experiment"];
        of_networks.iter().any(|key| has(key)).then_some(network)
    }

    /// The verb that takes a file of this kind and name.
    pub fn taken_by(&self, file: &str) -> Option<String> {
        Some(match self {
            FileKind::Segment => format!("timewire run {file}"),
            FileKind::Network => format!("timewire plan {file}"),
            FileKind::HostSettings => format!("timewire apply {file}"),
            FileKind::Steps => format!("timewire run {file} --on HOSTS"),
            FileKind::Programs => format!("timewire run {file} --on lab:uml"),
            FileKind::Hosts => format!("timewire run NETWORK --on {file}"),
            FileKind::Written(_) => return None,
        })
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileKind::Written(schema) => write!(f, "output of schema `{schema}`"),
            FileKind::Segment => f.write_str("a network of one segment"),
            FileKind::Network => f.write_str("a network file"),
            FileKind::HostSettings => f.write_str("a network file with host settings alone"),
            FileKind::Steps => f.write_str("a network file with phases alone"),
            FileKind::Programs => f.write_str("a network file with programs alone"),
            FileKind::Hosts => f.write_str("a hosts file"),
        }
    }
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

fn key(node: &Node, name: &str) -> bool {
    matches!(&node.value, Value::Map(entries) if entries.iter().any(|(key, _)| key.text == name))
}

/// That a text says to be of a kind that there is not: nothing else in it would be worth telling.
pub(super) fn unknown_kind(root: &Node) -> Option<Problem> {
    const KINDS: [&str; 2] = ["network", "hosts"];
    let Value::Map(entries) = &root.value else { return None };
    let (_, node) = entries.iter().find(|(key, _)| key.text == "kind")?;
    let word = scalar(node).filter(|word| !KINDS.contains(word))?;
    let meant = did_you_mean(word, KINDS);
    let message = format!("`{word}` is no kind of file{meant}");
    let hint = "the kinds are: `network`, `hosts`";
    Some(Problem { key: "kind".to_owned(), ..Problem::new(node.mark, message, hint) })
}

fn is_ours(schema: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "./-_".contains(c);
    schema.starts_with("timewire.") && schema.len() < 60 && schema.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_each_kind_is_known_however_broken_the_rest_is() {
        for (text, kind) in [
            ("kind: network\nexperiment: 5", FileKind::Network),
            ("kind: network\nsegments: 5", FileKind::Segment),
            ("kind: network\nexperiment: 5\nsegments: 7", FileKind::Segment),
            ("kind: network\nsegments: 5\nlinks: 7", FileKind::Network),
            ("kind: network\nhost: 1", FileKind::Network),
            ("kind: network\nstations: [{name: a, host: 7}]", FileKind::HostSettings),
            ("kind: network\nstations: [{name: a, host: 7}]\nlinks: []", FileKind::Network),
            ("timewire: 1\nlinks: []", FileKind::Network),
            ("timewire: 1\nhost: ", FileKind::Network),
            ("name: x\nsegments: {}", FileKind::Segment),
            ("kind: network\nstations: [{name: a, phases: 1}]", FileKind::Steps),
            ("kind: network\nstreams: 1\nstations: [{name: a, phases: 1}]", FileKind::Network),
            ("kind: network\nprograms: 5", FileKind::Programs),
            ("kind: network\nprograms: []\nlinks: []", FileKind::Programs),
            ("kind: network\nprograms: 5\nstreams: 1", FileKind::Network),
            ("kind: hosts\nstations: 3", FileKind::Hosts),
            (r#"{"schema": "timewire.summary/1"}"#, FileKind::Written("timewire.summary/1".into())),
        ] {
            assert_eq!(FileKind::of(text), Some(kind), "{text}");
        }
        for text in ["", "a: b", "[1]", "x", "timewire: 1", "schema: 'timewire.\u{1b}[31m'", "a: ["]
        {
            assert_eq!(FileKind::of(text), None, "{text}");
        }
    }
}
