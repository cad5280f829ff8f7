// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a run directory can be held against another's: series of values, texts of scenarios,
//! snapshots of hosts; and transfer times for other programs.

use std::collections::BTreeMap;
use std::fs;

use timewire_capture::analyse::{CaseSeries, CaseTransfers, series, transfers};
use timewire_host::snapshot::Snapshot;

use super::{CaseMeta, RunDir, read_json_if_there};
use crate::RunnerError;

/// Snapshots of a run by `SCENARIO.STATION`, each with why it cannot be read where it cannot.
pub type HostsBefore = BTreeMap<String, Result<Snapshot, String>>;

impl RunDir {
    /// What each case timestamped, value by value, in the order in which they ran. Cases that did
    /// not run are left out.
    ///
    /// **Errors**: a file does not hold what it should.
    pub fn series(&self) -> Result<Vec<CaseSeries>, RunnerError> {
        let mut found = Vec::new();
        for id in &self.meta()?.cases {
            let path = self.case_path(id).join("case.json");
            if let Some(case) = read_json_if_there::<CaseMeta>(&path)? {
                let input = self.input(id, case)?;
                found.push(series(input).map_err(|error| self.unfit(id, &error))?);
            }
        }
        Ok(found)
    }

    /// The transfer times of each case, each with its `Send`, in the order in which they ran. Cases
    /// that did not run are left out.
    ///
    /// **Errors**: a file does not hold what it should.
    pub fn transfers(&self) -> Result<Vec<CaseTransfers>, RunnerError> {
        let mut found = Vec::new();
        for id in &self.meta()?.cases {
            let path = self.case_path(id).join("case.json");
            if let Some(case) = read_json_if_there::<CaseMeta>(&path)? {
                found.push(transfers(&self.input(id, case)?));
            }
        }
        Ok(found)
    }

    /// The text of each scenario or network by name, as it was read.
    ///
    /// **Errors**: one is missing.
    pub fn scenario_texts(&self) -> Result<BTreeMap<String, String>, RunnerError> {
        let text = |name: &String| {
            let path = self.scenario_path(name);
            let text = fs::read_to_string(&path).map_err(RunnerError::file("read", &path))?;
            Ok((name.clone(), text))
        };
        let meta = self.meta()?;
        let mut texts: BTreeMap<_, _> =
            meta.scenarios.iter().map(text).collect::<Result<_, RunnerError>>()?;
        for name in meta.networks {
            let path = self.network_path(&name);
            let text = fs::read_to_string(&path).map_err(RunnerError::file("read", &path))?;
            texts.insert(name, text);
        }
        Ok(texts)
    }

    /// What the hosts were like before the run; nothing where it kept no snapshots.
    ///
    /// **Errors**: the directory cannot be read.
    pub fn hosts_before(&self) -> Result<HostsBefore, RunnerError> {
        let directory = self.path().join("hosts");
        let mut found = BTreeMap::new();
        if !directory.is_dir() {
            return Ok(found);
        }
        for entry in fs::read_dir(&directory).map_err(RunnerError::file("read", &directory))? {
            let entry = entry.map_err(RunnerError::file("read", &directory))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(host) = name.strip_suffix(".before.json") else { continue };
            let text = fs::read_to_string(entry.path()).map_err(|error| error.to_string());
            let snapshot = text.and_then(|text| Snapshot::parse(&text));
            found.insert(host.to_owned(), snapshot);
        }
        Ok(found)
    }
}
