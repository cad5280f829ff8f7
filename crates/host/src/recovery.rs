// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoing what was left behind, of all features: by the next start of the program, or by a
//! watchdog.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use timewire_sys::namespace::Process;

use crate::apply::applied;
use crate::clock::steering;
use crate::journal::{self, Kind, Leftovers, watchdog};
use crate::{HostError, groups, pins, timestamping, undo};

/// All that an undo log can have.
const KINDS: &[Kind] =
    &[undo::KIND, pins::KIND, groups::KIND, steering::KIND, timestamping::KIND, applied::KIND];

/// Finds the undo logs whose owner and watchdog are both dead, and what is applied in this network
/// namespace and was not confirmed in time, and carries them out. Call it at the start of every
/// program that changes the host.
///
/// A damaged log is not touched; it is among the failures.
///
/// **Errors**: the directory of the logs cannot be listed.
pub fn recover() -> Result<Vec<Leftovers>, HostError> {
    // What is started next has its socket and its messages in this directory, too. Whoever cannot
    // have one is told when a change is recorded.
    let _ = journal::process_log_dir();
    let applied = applied::logs_here().into_iter().map(|path| (None, path));
    let logs = journal::abandoned()?.into_iter().map(|(owner, path)| (Some(owner), path));
    let mut found = Vec::new();
    for (owner, path) in logs.chain(applied) {
        found.extend(journal::carry_out(&path, KINDS).unwrap_or_else(|error| {
            // One damaged log must not keep the others from being carried out.
            Some(Leftovers::unread(owner.map_or(0, |owner| owner.pid), &error))
        }));
    }
    Ok(found)
}

/// Waits until what a process has changed is undone that has ended; does it when nobody is at it.
///
/// **Errors**: `NotUndone`: something could not be undone, or not for so long; its log stays.
pub fn finish_of_dead(owner: Process, timeout: Duration) -> Result<(), HostError> {
    let give_up = Instant::now() + timeout;
    loop {
        let mut logs = journal::abandoned()?.into_iter();
        let Some((_, path)) = logs.find(|(dead, _)| *dead == owner) else { return Ok(()) };
        let failures = match journal::carry_out(&path, KINDS) {
            Ok(found) => found.map(|found| found.failures).unwrap_or_default(),
            Err(error) => vec![error.to_string()],
        };
        if !failures.is_empty() {
            return Err(HostError::NotUndone { path, failures });
        }
        if Instant::now() > give_up {
            let failures = vec!["another process has not finished with it".to_owned()];
            return Err(HostError::NotUndone { path, failures });
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What a watchdog does, from its start to its end.
///
/// **Errors**: the log cannot be locked, or not wholly carried out; say so and exit with 3.
pub fn watchdog_main(log: &Path) -> Result<(), HostError> {
    watchdog::main(log, KINDS)
}

/// Reads an undo log, for fuzzing.
///
/// **Errors**: it cannot be read, or is none.
#[cfg(fuzzing)]
pub fn read_log(path: &Path) -> Result<(), HostError> {
    journal::read(path, KINDS).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::journal::read_inverse;

    #[test]
    fn t0_every_kind_of_change_is_read_back_and_no_other() {
        let fields = json!({
            "netns": null, "name": "lo", "path": "/no-such/a", "interface": "lo", "address": "",
            "route": "", "value": "", "mode": "", "taken_by": 1, "former": "", "marker": "",
            "pid": 1, "start_ticks": 1, "nic": 7, "frequency": 1, "tai_offset_s": null,
            "synchronised": null, "tx": [0, 0], "rx": [0, 0], "place": null, "signals": false,
            "given": [], "threads": [], "file": "", "by_hand": [], "held": false,
        });
        let with = |kind: &str| {
            let mut fields = fields.clone();
            fields["kind"] = kind.into();
            read_inverse(fields, KINDS).map(|undo| undo.to_string())
        };
        let names = KINDS.iter().flat_map(Kind::names);
        let words: Vec<String> = names.map(|name| with(name).unwrap()).collect();
        // Two of one kind would be told in the same words.
        let distinct: std::collections::BTreeSet<&String> = words.iter().collect();
        assert_eq!((words.len(), distinct.len()), (19, 19), "{words:?}");
        assert_eq!(with("sing").unwrap_err().to_string(), "unknown kind of change `sing`");
    }
}
