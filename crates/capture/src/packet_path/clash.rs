// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams with one number: a stream is its source and its number, and each talker chooses
//! numbers for itself. Each such stream has packet_paths and figures of its own; that there are
//! several is told.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// Flows of a clash that are named.
const MAX_FLOWS: usize = 16;
/// Clashes that are told.
const MAX_CLASHES: usize = 64;

/// Something that more than one stream has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Clash {
    /// The number; `None` where it is the key of correlation itself.
    pub stream: Option<u32>,
    /// The streams, by their sources; the first 16.
    pub flows: Vec<String>,
    /// Further ones, which are not named.
    pub more: usize,
    /// Whether they are in one row of the tables, since their hashes are one.
    pub one_row: bool,
}

impl Clash {
    fn of(stream: Option<u32>, names: &BTreeSet<&str>, one_row: bool) -> Clash {
        let flows: Vec<String> =
            names.iter().take(MAX_FLOWS).map(|name| (*name).to_owned()).collect();
        Clash { stream, more: names.len() - flows.len(), flows, one_row }
    }

    /// In one line.
    pub fn describe(&self) -> String {
        let all = self.flows.join("; ");
        let more = match self.more {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        match self.stream {
            Some(stream) => {
                format!("stream number {stream} is of several talkers, each a stream: {all}{more}")
            }
            None => format!("several streams have one hash, and are in one row: {all}{more}"),
        }
    }
}

/// Of the names of flows, and of those that had another name before; with how many clashes more
/// there are than are told.
pub(super) fn clashes<'a>(
    names: impl Iterator<Item = &'a str>,
    shared: &'a BTreeMap<u32, BTreeSet<String>>,
) -> (Vec<Clash>, usize) {
    let mut by_number: BTreeMap<u32, BTreeMap<(&str, &str), &str>> = BTreeMap::new();
    for name in names {
        let Some((number, (from, to))) = numbered(name) else { continue };
        let streams = by_number.entry(number).or_default();
        // An answer has the number of what it answers, perhaps with other ports.
        let is_answer =
            |(of, at): &(&str, &str)| host_of(of) == host_of(to) && host_of(at) == host_of(from);
        if !streams.keys().any(is_answer) {
            streams.insert((from, to), name);
        }
    }
    let several = |streams: &BTreeMap<(&str, &str), &str>| {
        streams.keys().map(|(from, _)| from).collect::<BTreeSet<_>>().len() > 1
    };
    let mut all: Vec<Clash> = by_number
        .iter()
        .filter(|(_, streams)| several(streams))
        .map(|(number, streams)| {
            Clash::of(Some(*number), &streams.values().copied().collect(), false)
        })
        .collect();
    all.extend(shared.values().map(|names| {
        let names = names.iter().map(String::as_str).collect();
        Clash::of(None, &names, true)
    }));
    let more = all.len().saturating_sub(MAX_CLASHES);
    all.truncate(MAX_CLASHES);
    (all, more)
}

/// An address without its port; that of Ethernet has none.
fn host_of(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, _)) if host.contains('.') || host.contains(']') => host,
        _ => address,
    }
}

/// Number, source and destination of `stream 3, UDP 10.0.0.1:7000 > 10.0.0.2:7001`.
fn numbered(name: &str) -> Option<(u32, (&str, &str))> {
    let (number, rest) = name.strip_prefix("stream ")?.split_once(", ")?;
    let (from, to) = rest.split_once(" > ")?;
    // Without the protocol or EtherType.
    let from = from.rsplit_once(' ').map_or(from, |(_, from)| from);
    Some((number.parse().ok()?, (from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_two_talkers_with_one_number_are_a_clash_and_answers_are_not() {
        let none = BTreeMap::new();
        let told = |names: &[&str]| clashes(names.iter().copied(), &none).0;
        let one = "stream 3, UDP 10.0.0.1:7000 > 10.0.0.9:7001";
        let answer = "stream 3, UDP 10.0.0.9:7001 > 10.0.0.1:7000";
        let other = "stream 3, UDP 10.0.0.2:7000 > 10.0.0.9:7001";
        let elsewhere = "stream 4, UDP 10.0.0.2:7000 > 10.0.0.9:7001";
        let frames = "stream 3, 0x88b5 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff";
        let next_port = "stream 3, UDP 10.0.0.9:45001 > 10.0.0.1:7001";
        assert!(told(&[one, next_port]).is_empty() && told(&[next_port, one]).is_empty());
        assert!(told(&[one, answer, elsewhere, "UDP 10.0.0.3:1 > 10.0.0.9:2"]).is_empty());
        // To two destinations from one source.
        assert!(told(&[one, "stream 3, UDP 10.0.0.1:7000 > 10.0.0.8:7001"]).is_empty());
        for names in [[one, other], [one, frames], [frames, other]] {
            let [clash] = &told(&names)[..] else { panic!("{names:?}") };
            assert_eq!((clash.stream, clash.flows.len(), clash.one_row), (Some(3), 2, false));
            assert!(names.iter().all(|name| clash.describe().contains(name)));
        }
        let shared = BTreeMap::from([(7, BTreeSet::from([one.to_owned(), other.to_owned()]))]);
        let (all, more) = clashes([one].into_iter(), &shared);
        assert_eq!((all.len(), all[0].one_row, more), (1, true, 0));
    }

    #[test]
    fn t0_very_many_are_counted_and_not_named() {
        let none = BTreeMap::new();
        let of = |number: u32, source: u32| {
            format!("stream {number}, UDP 10.0.{}.{}:1 > 10.9.0.9:2", source / 250, source % 250)
        };
        let names: Vec<String> = (0..100).flat_map(|n| [of(n, 1), of(n, 2)]).collect();
        let (all, more) = clashes(names.iter().map(String::as_str), &none);
        assert_eq!((all.len(), more), (MAX_CLASHES, 36));
        let names: Vec<String> = (0..100).map(|source| of(3, source)).collect();
        let (all, _) = clashes(names.iter().map(String::as_str), &none);
        assert_eq!((all[0].flows.len(), all[0].more), (MAX_FLOWS, 84));
        assert!(all[0].describe().ends_with("; and 84 more"));
    }
}
