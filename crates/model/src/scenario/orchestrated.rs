// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network as the orchestrator of agents carries it out: what each station does in which phase,
//! with variables and limits on numbers. Timewire makes it of a network file, and keeps it as JSON
//! in a run directory.

use serde::{Serialize, Serializer};
use timewire_base::StationName;

use super::ScenarioErrors;
use super::item::{Item, Reader};
use super::network::NetworkFile;
use super::phases::{CheckSpec, NodePhases, TimingSpec, Variable};
use super::record::{default_value, record};
use super::tree;
use super::value::{Count, Name, Text};
pub use super::wiring::{NetworkSpec, WireSpec};

record! {
    /// What the stations of an experiment do.
    pub struct Orchestrated {
        /// Short name, part of the names of its trials.
        name: Name,
        /// What it is for, for people.
        description: Text = "''",
        /// What is varied; every combination is performed.
        variables: Vec<Variable> = "[]",
        /// Variables that change together instead: the first values of all, the second of all.
        together: Vec<Vec<Name>> = "[]",
        /// How often each combination is performed.
        repeats: Count<1, 1000> = "1",
        /// The order of all trials is random, and the same for the same seed.
        seed: Count<0, 0xffff_ffff> = "0",
        /// How long things may take.
        timing: TimingSpec = "{}",
        /// The links of the stations, where they are made for the run.
        network: Option<NetworkSpec>,
        /// What the stations do.
        stations: Vec<StationPart>,
        /// Limits on numbers in the records of each trial.
        checks: Vec<CheckSpec> = "[]",
    }
}

record! {
    /// What a station does.
    pub struct StationPart {
        /// Its name, as in the hosts file.
        name: StationName,
        /// Phase by phase.
        phases: NodePhases = "{}",
    }
}

impl Orchestrated {
    /// Reads what was written as JSON; `file_name` is for the messages.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place.
    pub fn parse(file_name: &str, text: &str) -> Result<Orchestrated, ScenarioErrors> {
        let failed = |problems| ScenarioErrors::new(file_name, text, problems);
        let root = tree::parse(text).map_err(failed)?;
        let mut reader = Reader::new(root.mark);
        let file = Orchestrated::read(&root, &mut reader);
        file.filter(|_| reader.problems.is_empty()).ok_or_else(|| failed(reader.problems))
    }

    /// What the stations and bridges of a network without streams do, on the links of the file.
    pub fn of(file: &NetworkFile) -> Orchestrated {
        let experiment = file.experiment.as_ref();
        // A bridge is only there for the links, unless it does something.
        let own = file.phases().filter(|(name, phases)| {
            phases.is_some_and(|it| !it.are_empty())
                || file.stations.iter().any(|it| it.name == **name)
        });
        let stations = own.map(|(name, phases)| StationPart {
            name: name.clone(),
            phases: phases.cloned().unwrap_or_else(|| default_value("{}")),
        });
        Orchestrated {
            name: file.name.clone(),
            description: file.description.clone(),
            variables: experiment.map_or_else(Vec::new, |it| it.variables.clone()),
            together: experiment.map_or_else(Vec::new, |it| it.together.clone()),
            repeats: experiment.map_or_else(|| default_value("1"), |it| it.repeats),
            seed: file.seed,
            timing: experiment.map_or_else(|| default_value("{}"), |it| it.timing.clone()),
            network: (!file.links.is_empty()).then(|| NetworkSpec {
                bridges: file.bridges.iter().map(|it| it.name.clone()).collect(),
                links: file.links.iter().map(WireSpec::of).collect(),
            }),
            stations: stations.collect(),
            checks: file.checks.clone(),
        }
    }
}

/// Writes it as [`Orchestrated::parse`] reads it, with all defaults filled in.
impl Serialize for Orchestrated {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.emit().serialize(serializer)
    }
}
