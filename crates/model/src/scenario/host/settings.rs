// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host settings of one station of a network file, which is what the verbs of a host take.

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use timewire_base::StationName;

use super::DesiredHost;
use crate::scenario::change::find;
use crate::scenario::error::{Mark, Problem};
use crate::scenario::item::Item;
use crate::scenario::network::NetworkCases;
use crate::scenario::suggest::{did_you_mean, listed};
use crate::scenario::value::Name;
use crate::scenario::{FurtherChecks, ScenarioErrors, tree};

/// What is to be set on the host of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// Name of the network.
    pub network: Name,
    /// The station.
    pub station: StationName,
    /// What is to be set.
    pub host: DesiredHost,
    /// No other station of the file has host settings.
    is_only: bool,
}

impl HostSettings {
    /// Those of the only station of a network.
    pub fn new(network: Name, station: StationName, host: DesiredHost) -> HostSettings {
        HostSettings { network, station, host, is_only: true }
    }

    /// Reads and checks a network file, which needs no streams, and takes the host settings of this
    /// station, or those of the only one that has some; `file_name` is for the messages. Callers
    /// use `timewire_tsn::file`, which has the further checks.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place; no station or
    /// several have host settings, or this one has none.
    pub fn parse_with(
        further: &dyn FurtherChecks,
        file_name: &str,
        text: &str,
        station: Option<&StationName>,
    ) -> Result<HostSettings, ScenarioErrors> {
        let file = NetworkCases::parse_without_streams(further, file_name, text)?.base;
        let (network, stations) = (file.name, file.stations);
        let stations: Vec<_> = stations.into_iter().map(|one| (one.name, one.host)).collect();
        let is_there = station.is_some_and(|it| stations.iter().any(|(name, _)| name == it));
        let with_host = |(name, host): (StationName, Option<DesiredHost>)| Some((name, host?));
        let mut all: Vec<_> = stations.into_iter().filter_map(with_host).collect();
        let index = match station {
            None if all.len() == 1 => Some(0),
            None => None,
            Some(asked) => all.iter().position(|(name, _)| name == asked),
        };
        let Some(index) = index else {
            let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            let problem = match station.filter(|_| is_there) {
                Some(station) => without_host(mark_of_stations(text), station, &names),
                None => not_chosen(mark_of_stations(text), station, &names),
            };
            return Err(ScenarioErrors::new(file_name, text, vec![problem]));
        };
        let is_only = all.len() == 1;
        let (station, host) = all.swap_remove(index);
        Ok(HostSettings { network, station, host, is_only })
    }

    /// The name in `status` and messages: that of the network, and of several stations with host
    /// settings `NETWORK.STATION`.
    pub fn name(&self) -> String {
        match self.is_only {
            true => self.network.to_string(),
            false => format!("{}.{}", self.network, self.station),
        }
    }
}

/// Writes a network file with this station alone, with all defaults of its host filled in.
impl Serialize for HostSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let station = json!({"name": self.station.as_str(), "host": self.host.emit()});
        let network = self.network.as_str();
        let file: Json =
            json!({"timewire": 1, "kind": "network", "name": network, "stations": [station]});
        file.serialize(serializer)
    }
}

/// Why the host settings of no station were taken.
fn not_chosen(mark: Mark, station: Option<&StationName>, names: &[&str]) -> Problem {
    let (message, hint) = match (station, names) {
        (_, []) => (
            "no station has `host`".to_owned(),
            "write what is to be set under `host` of the station that this host is".to_owned(),
        ),
        (None, _) => (
            format!("{} stations have `host`", names.len()),
            format!("say which with --station: {}", listed(names.iter().copied())),
        ),
        (Some(station), _) => (
            format!(
                "there is no station `{station}`{}",
                did_you_mean(station.as_str(), names.iter().copied())
            ),
            having(names),
        ),
    };
    Problem { key: "stations".to_owned(), ..Problem::new(mark, message, &hint) }
}

/// A station that is there was asked for, and has nothing to be set.
fn without_host(mark: Mark, station: &StationName, names: &[&str]) -> Problem {
    let message = format!("station `{station}` has no `host`");
    let hint = match names {
        [] => "write what is to be set under its `host`".to_owned(),
        names => having(names),
    };
    Problem { key: "stations".to_owned(), ..Problem::new(mark, message, &hint) }
}

fn having(names: &[&str]) -> String {
    format!("those that have `host`: {}", listed(names.iter().copied()))
}

/// Where the stations are in a text that was read before.
fn mark_of_stations(text: &str) -> Mark {
    let root = tree::parse(text).expect("invariant: the text was read before");
    find(&root, &["stations"]).map_or(root.mark, |node| node.mark)
}
