// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of an experiment that hold something until they are asked to end, and others that wait
//! until it is there.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use timewire_datapath::files::{read_json, write_json};
use timewire_sys::event::{EndRequests, wait_readable};

use crate::RunnerError;
use crate::error::Context;

/// How far it is.
#[derive(Serialize, Deserialize)]
struct Begun {
    /// What stands in the way.
    failed: Option<String>,
}

/// Beside the file that describes what is held.
fn begun_path(file: &Path) -> PathBuf {
    file.with_extension("begun")
}

/// Tells who waits that it is there, or why not.
pub(super) fn tell<T>(file: &Path, begun: &Result<T, RunnerError>) -> Result<(), RunnerError> {
    let failed = begun.as_ref().err().map(ToString::to_string);
    Ok(write_json(&begun_path(file), &Begun { failed })?)
}

/// Waits until somebody asks to end.
pub(super) fn until_end(requests: &EndRequests) -> Result<(), RunnerError> {
    while !requests.take() {
        wait_readable(&[requests.as_fd()], None).context("cannot wait for signals")?;
    }
    Ok(())
}

/// Waits until what a file describes is there.
///
/// **Errors**: it cannot be, or is not within ten seconds.
pub fn wait(file: &Path) -> Result<(), RunnerError> {
    let (path, began) = (begun_path(file), Instant::now());
    while !path.exists() {
        if began.elapsed() > LONGEST {
            let (file, within) = (file.display(), LONGEST.as_secs());
            return Err(RunnerError::Invalid(format!("{file} did not begin within {within} s")));
        }
        thread::sleep(POLL_INTERVAL);
    }
    let Begun { failed } = read_json(&path)?;
    failed.map_or(Ok(()), |why| Err(RunnerError::Invalid(why)))
}

const LONGEST: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::invalid;

    #[test]
    fn t1_who_waits_is_told_what_stands_in_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("connection.json");
        tell(&file, &Ok(())).unwrap();
        wait(&file).unwrap();
        tell::<()>(&file, &Err(invalid("there is no interface eth7"))).unwrap();
        assert_eq!(wait(&file).unwrap_err().to_string(), "there is no interface eth7");
    }
}
