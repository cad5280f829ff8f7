// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What classes with credit carry behind the gates of a file.

use serde::Serialize;
use timewire_base::Span;
use timewire_model::scenario::network::{NetPort, NetworkFile};
use timewire_tsn::qdisc::{CreditRange, GatedRate};

use super::{ends, link_name};
use crate::model::LinkId;

/// A class with credit behind a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GatedClass {
    /// The port: the link that it sends on.
    pub port: String,
    /// The traffic class.
    pub class: u8,
    /// Its rates.
    #[serde(flatten)]
    pub rate: GatedRate,
}

/// Those of every port of a file that has both credit and gates.
pub fn gated_classes(file: &NetworkFile) -> Vec<GatedClass> {
    let mut found = Vec::new();
    for link in (0..2 * file.links.len()).map(LinkId::from_index) {
        let (own, far, place) = ends(file, link);
        let is_this =
            |port: &&NetPort| port.of.contains(own) && port.to.as_ref().is_none_or(|to| to == far);
        let ports = || file.ports.iter().filter(is_this);
        let Some(gates) = ports().filter_map(|port| port.gates.as_ref()).next_back() else {
            continue;
        };
        let sum = gates.entries.iter().fold(Span::ZERO, |sum, entry| sum + entry.interval);
        let rest = gates.cycle_time.unwrap_or(sum) - sum;
        for credit in ports().flat_map(|port| &port.cbs) {
            let mut states: Vec<(bool, Span)> = gates
                .entries
                .iter()
                .map(|entry| (entry.open.contains(&credit.class), entry.interval))
                .collect();
            if let Some(last) = states.last_mut() {
                last.1 += rest;
            }
            let port = file.links[place].rate;
            let range = match (credit.hi_credit, credit.lo_credit) {
                (Some(hi), Some(lo)) => {
                    CreditRange::of_bytes(i64::from(hi.get()), -i64::from(lo.get()))
                }
                // Where Linux' are not given, those that it would have.
                _ => CreditRange::of_frames(credit.idle_slope, port, LONGEST, LONGEST),
            };
            let rate = GatedRate::of(credit.idle_slope, port, range, &states);
            let class = u8::try_from(credit.class.get()).unwrap_or(7);
            let port = link_name(file, link);
            found.extend(rate.map(|rate| GatedClass { port, class, rate }));
        }
    }
    found
}

/// The longest frame without a tag, with everything that is on the link. **Units**: bytes.
const LONGEST: u64 = 1_538;

/// A line for each class and rate, with the ports that have it.
pub fn gated_text(classes: &[GatedClass]) -> String {
    let mut lines: Vec<(&GatedClass, Vec<&str>)> = Vec::new();
    for one in classes {
        let same = |(first, _): &&mut (&GatedClass, Vec<&str>)| {
            (first.class, first.rate) == (one.class, one.rate)
        };
        match lines.iter_mut().find(same) {
            Some((_, ports)) => ports.push(&one.port),
            None => lines.push((one, vec![&one.port])),
        }
    }
    let line = |(one, ports): (&GatedClass, Vec<&str>)| {
        let more = match ports.len() {
            0..=2 => String::new(),
            count => format!(" and {} more", count - 2),
        };
        let named = ports[..ports.len().min(2)].join(", ");
        format!("{named}{more} class {}: {}\n", one.class, one.rate)
    };
    lines.into_iter().map(line).collect()
}
