// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why messages of a case's programs did not leave, as the programs wrote it.

use std::fs;
use std::path::Path;

use timewire_base::FileError;
use timewire_capture::summary::{Finding, ProgramDrops};

use crate::RunnerError;
use crate::program::DROPS;

/// Of each program that had some, by their names.
///
/// **Errors**: a file does not hold what it should.
pub(super) fn of_case(directory: &Path) -> Result<Vec<ProgramDrops>, RunnerError> {
    let failed = RunnerError::file("read", directory);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(RunnerError::file("read", directory))?.path();
        if path.file_name().is_none_or(|name| !name.to_string_lossy().ends_with(DROPS)) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(RunnerError::file("read", &path))?;
        let drops: ProgramDrops =
            serde_json::from_str(&text).map_err(|error| FileError::content(path, error))?;
        found.push(drops);
    }
    found.sort_by(|a, b| a.program.cmp(&b.program));
    Ok(found)
}

/// The same as notes of the run.
pub(super) fn notes(id: &str, all: &[ProgramDrops]) -> Vec<Finding> {
    let of_program = |drops: &ProgramDrops| -> Vec<Finding> {
        let note = |cause: &timewire_base::drops::DropCause| Finding {
            id: "drop_causes".to_owned(),
            verdict: None,
            limit: String::new(),
            measured: format!("{id}: {}: {cause}", drops.program),
            note: "these messages are skipped, not lost: they were not sent".to_owned(),
        };
        drops.drop_causes.iter().map(note).collect()
    };
    all.iter().flat_map(of_program).collect()
}
