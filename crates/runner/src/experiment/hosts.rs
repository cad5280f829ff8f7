// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host and each station's interfaces were like before and after an experiment.

use std::path::{Path, PathBuf};

use timewire_host::snapshot::Snapshot;
use timewire_lab::Lab;
use timewire_model::scenario::Scenario;

use crate::RunnerError;
use crate::rundir::{Moment, RunDir};

/// Keeps a snapshot of each station of a scenario.
pub(super) fn save(
    directory: &RunDir,
    scenario: &Scenario,
    lab: &Lab,
    moment: Moment,
) -> Result<(), RunnerError> {
    let netns = lab.stations().iter().map(|station| lab.station_netns_path(station));
    let netns = netns.collect::<Result<Vec<PathBuf>, _>>()?;
    let paths: Vec<&Path> = netns.iter().map(PathBuf::as_path).collect();
    for (station, snapshot) in lab.stations().iter().zip(Snapshot::of_networks(&paths)?) {
        directory.write_host(scenario.name.as_str(), station.as_str(), moment, &snapshot)?;
    }
    Ok(())
}
