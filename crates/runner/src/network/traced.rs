// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The capture of a network's run: on hosts a program on each node takes one, around all other
//! steps of the phases `open` to `close`; in a laboratory one of all nodes is taken from outside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use timewire_agent::sweep::Marks;
use timewire_base::StationName;
use timewire_datapath::streams::plan::ETHERTYPE;
use timewire_model::scenario::network::NetworkFile;
use timewire_sys::marker::RunPlace;

use super::{Compiled, EXPERIMENT, Site};
use crate::RunnerError;
use crate::error::{Context as _, invalid};
use crate::experiment::station_trace::StationTrace;
use crate::experiment::tracing::{self, FILE, Tracing};
use crate::trace::collect::StationAt;

/// What a capture is taken of, at a station; beside it, the capture.
const TRACE: &str = "timewire-trace.json";
/// The program that takes it.
const TRACED: &str = "timewire-trace";

/// The messages of talkers and of those that answer them.
fn filter() -> String {
    format!("ether proto {ETHERTYPE:#06x}")
}

/// Whether packets can be traced here.
///
/// **Errors**: no privilege, or a kernel without what is needed.
pub fn can_be_traced() -> Result<(), RunnerError> {
    tracing::check()
}

impl Compiled {
    /// Has a capture be taken: by each host, or of all nodes of a laboratory from outside.
    ///
    /// **Errors**: a name cannot be.
    pub fn trace(&mut self, file: &NetworkFile, site: Site<'_>) -> Result<(), RunnerError> {
        self.traced = true;
        let Site::Hosts(hosts) = site else { return Ok(()) };
        let case = format!("{}.{}", self.case, self.load);
        let stations = self.experiment["stations"].as_array_mut();
        for node in stations.into_iter().flatten() {
            let name = node["name"].as_str().unwrap_or_default().to_owned();
            let station = StationName::new(&name).map_err(invalid)?;
            let links = file.links.iter().filter(|link| link.between.contains(&station));
            let far = links.flat_map(|it| it.between.iter().find(|end| **end != station));
            let interfaces = far.filter_map(|far| hosts.interface(&station, far)).cloned();
            let trace = StationTrace {
                interfaces: interfaces.collect(),
                station,
                case: case.clone(),
                filter: filter(),
            };
            let from = format!("{name}/{TRACE}");
            let text = serde_json::to_string_pretty(&trace).map_err(invalid)?;
            self.files.insert(from.clone(), text + "\n");
            let begin = vec![
                json!({"put": TRACE, "from": from}),
                json!({"start": ["timewire", "__trace", TRACE], "name": TRACED}),
                json!({"run": ["timewire", "__trace", TRACE, "--wait"],
                       "name": "timewire-trace-begun"}),
            ];
            let steps = |phase: &Json| phase["steps"].as_array().cloned().unwrap_or_default();
            let open = [begin, steps(&node["phases"]["open"])].concat();
            let close = [steps(&node["phases"]["close"]), vec![json!({"stop": TRACED})]].concat();
            node["phases"]["open"] = json!({"steps": open});
            node["phases"]["close"] = json!({"steps": close});
        }
        Ok(())
    }

    /// Puts the captures of nodes into the directory of the case; the names of all. Of one that is
    /// missing the summary says so.
    pub(super) fn keep_captures(
        &self,
        case: &Path,
        records: &Path,
    ) -> Result<Vec<String>, RunnerError> {
        if !self.traced {
            return Ok(Vec::new());
        }
        if case.join(FILE).exists() {
            return Ok(vec![FILE.to_owned()]);
        }
        let mut names = Vec::new();
        let stations = self.experiment["stations"].as_array();
        for node in stations.into_iter().flatten() {
            let node = node["name"].as_str().unwrap_or_default();
            let name = format!("trace.{node}.twc");
            let (from, to) = (records.join(node).join(FILE), case.join(&name));
            match fs::copy(&from, &to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(RunnerError::file("copy", &from)(error));
                }
                _ => names.push(name),
            }
        }
        Ok(names)
    }
}

/// A capture of all nodes of a laboratory, that is being taken.
pub struct LaboratoryTrace {
    tracing: Tracing,
    /// After the capture: until then marks are put there.
    place: RunPlace,
}

impl LaboratoryTrace {
    /// Begins the capture of a case in its directory; of nodes in these network namespaces.
    ///
    /// **Errors**: it cannot be taken, or not be written.
    pub fn start(
        compiled: &Compiled,
        nodes: impl Iterator<Item = (String, PathBuf)>,
        case: &Path,
    ) -> Result<LaboratoryTrace, RunnerError> {
        let place = RunPlace::new().context("cannot make a directory for marks of programs")?;
        let stations = nodes.map(|(name, netns)| StationAt { name, netns }).collect();
        let links = compiled.experiment["network"]["links"].as_array().map_or(0, Vec::len);
        let links: Vec<String> = (0..links).map(|number| format!("eth{number}")).collect();
        let id = format!("{}.{}", compiled.case, compiled.load);
        let of = (id.as_str(), links.join(" "));
        let tracing = Tracing::start(&filter(), of, (stations, &place), case)?;
        Ok(LaboratoryTrace { tracing, place })
    }

    /// Where programs are to put their marks.
    pub fn marks(&self) -> Marks {
        Marks::In(self.place.path().to_owned())
    }

    /// Ends it.
    ///
    /// **Errors**: it could not be written.
    pub fn finish(self) -> Result<(), RunnerError> {
        self.tracing.finish()
    }
}

/// Where the records of nodes are, in the directory of a case.
pub(super) fn records(case: &Path, trial: &str) -> PathBuf {
    case.join(EXPERIMENT).join(trial).join("records")
}
