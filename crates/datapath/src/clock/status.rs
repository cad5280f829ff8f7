// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a clock is, as the process that watches it keeps it in a file for others to read.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timewire_base::{FileError, Instant, Mono, Span};
use timewire_host::journal::runtime_dir;
use timewire_sys::clock;
use timewire_sys::file::{self, Access};
use timewire_sys::namespace::Process;

use super::directory;
use crate::DatapathError;

/// The `schema` field of a [`ClockStatus`].
pub const CLOCK_STATUS_SCHEMA: &str = "timewire.clock-status/1";
/// How long ending may take.
const END: Duration = Duration::from_secs(10);
/// A status is written twice a second; one older than this is not believed.
const STALE: Span = Span::from_secs(5);

/// How a clock is; the `--json` form of `clock status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockStatus {
    /// Format and version.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The process that watches it.
    pub pid: u32,
    /// When that started, clock ticks since boot.
    pub start_ticks: u64,
    /// When this was written, by `CLOCK_MONOTONIC` of this host.
    pub written_ns: i64,
    /// Where `ptp4l` is asked.
    pub socket: String,
    /// PTP domain.
    pub domain: u8,
    /// The daemons that were started; none when those of others are watched.
    pub daemons: Vec<DaemonStatus>,
    /// Whether the clock is on time.
    pub guard: GuardStatus,
    /// How much the system's clock is ahead of what gives the time.
    pub offset_ns: Option<i64>,
    /// The error of comparing it; `ptp4l`'s own timestamps are not in it.
    pub offset_error_ns: Option<i64>,
    /// What the ports of `ptp4l` do.
    pub ports: Vec<String>,
    /// This clock.
    pub identity: Option<String>,
    /// The clock that gives the time.
    pub giver: Option<String>,
    /// Why `ptp4l` did not answer.
    pub silent: Option<String>,
    /// TAI - UTC that the kernel has.
    pub tai_offset_s: i32,
    /// TAI - UTC that the giver says, when it is sure.
    pub giver_tai_offset_s: Option<i16>,
    /// Whether the kernel takes its clock for synchronised.
    pub kernel_synchronised: bool,
    /// The kernel's bound of the error.
    pub kernel_max_error_ns: i64,
    /// How much the clock is made to go faster, parts per billion.
    pub frequency_ppb: i64,
    /// Whose slots are closed when it is not on time.
    pub closes: Vec<CloseStatus>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A daemon that was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Its program.
    pub program: String,
    /// Its process, while it runs.
    pub pid: Option<u32>,
    /// How often it ended by itself and was started again.
    pub restarts: u64,
    /// How it ended last.
    pub ended: Option<String>,
    /// What it says.
    pub log: String,
}

/// Whether the clock is on time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuardStatus {
    /// Whether it is.
    pub on_time: bool,
    /// Why not.
    pub why: Option<String>,
    /// For how long it is as it is.
    pub for_ns: i64,
    /// How often it was and then was not any more.
    pub losses: u64,
    /// Good samples one after another, while it is not on time.
    pub good_samples: u32,
    /// So many are needed.
    pub good_samples_needed: u32,
    /// Farther off than this it is not.
    pub offset_limit_ns: i64,
    /// Without a sample for so long it is not.
    pub silence_limit_ns: i64,
}

/// Whose slots are closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloseStatus {
    /// `MAC NAME` or `interface NAME`.
    pub what: String,
    /// Frames that found the interface's gate open.
    pub passed: Option<u64>,
    /// Frames that found it closed, and were dropped.
    pub dropped: Option<u64>,
    /// Why the last word did not get there.
    pub failed: Option<String>,
}

/// The names of the clocks that are watched, sorted.
pub fn running() -> Result<Vec<String>, DatapathError> {
    let parent = runtime_dir()?.join("clock");
    let entries = match fs::read_dir(&parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(DatapathError::file("read", &parent)(error)),
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| read(name).is_ok_and(|status| status.is_some()))
        .collect();
    names.sort();
    Ok(names)
}

/// How the clock of that name is, or the only one.
///
/// **Errors**: there is none, or several.
pub fn find(name: Option<&str>) -> Result<ClockStatus, DatapathError> {
    let names = running()?;
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name.to_owned(),
        (None, [only]) => only.clone(),
        (None, []) => {
            let none = "no clock is watched here: `timewire clock start` starts one";
            return Err(DatapathError::Invalid(none.to_owned()));
        }
        (None, several) => {
            return Err(DatapathError::Invalid(format!(
                "several clocks are watched: {}; say which with `--name`",
                several.join(", ")
            )));
        }
    };
    read(&name)?.ok_or_else(|| {
        let running = match names.as_slice() {
            [] => "none is".to_owned(),
            names => format!("these are: {}", names.join(", ")),
        };
        DatapathError::Invalid(format!("no clock is watched as `{name}`; {running}"))
    })
}

/// Asks the process that watches a clock to end, and waits until it has restored the host.
///
/// **Errors**: it does not end; `NotUndone` when something could not be restored.
pub fn stop(status: &ClockStatus) -> Result<(), DatapathError> {
    let process = Process { pid: status.pid, start_ticks: status.start_ticks };
    let failed =
        |error| DatapathError::Invalid(format!("cannot end process {}: {error}", status.pid));
    process.ask_to_end().map_err(failed)?;
    let give_up = std::time::Instant::now() + END;
    while process.is_alive() {
        if std::time::Instant::now() > give_up {
            return Err(DatapathError::Invalid(format!(
                "process {} (clock `{}`) has not ended within {} s",
                status.pid,
                status.name,
                END.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(timewire_host::finish_of_dead(process, END)?)
}

/// What a process that is alive says; `None` when none is.
fn read(name: &str) -> Result<Option<ClockStatus>, DatapathError> {
    let path = directory(name)?.join("status.json");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DatapathError::file("read", &path)(error)),
    };
    let status: ClockStatus =
        serde_json::from_str(&text).map_err(|error| FileError::content(path, error))?;
    let process = Process { pid: status.pid, start_ticks: status.start_ticks };
    Ok(process.is_alive().then(|| judge_age(status, clock::now())))
}

/// What was on time when it was last heard of may not be so any more.
fn judge_age(mut status: ClockStatus, now: Instant<Mono>) -> ClockStatus {
    let age = now - Instant::from_ns(status.written_ns);
    if age > STALE {
        let said = Span::from_ns(age.as_ns() / 1_000_000 * 1_000_000);
        let guard = &mut status.guard;
        (guard.on_time, guard.for_ns) = (false, age.as_ns());
        guard.why = Some(format!("the process that watches it has said nothing for {said}"));
    }
    status
}

/// Writes it whole.
pub(super) fn write(path: &Path, status: &ClockStatus) -> Result<(), DatapathError> {
    let text = serde_json::to_vec_pretty(status).expect("invariant: plain values are JSON");
    file::replace(path, &text, Access::Umask).map_err(DatapathError::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_an_old_status_is_not_on_time() {
        let text = r#"{"schema": "timewire.clock-status/1", "name": "a", "pid": 1,
            "start_ticks": 1, "written_ns": 1000, "socket": "s", "domain": 0, "daemons": [],
            "guard": {"on_time": true, "why": null, "for_ns": 7, "losses": 0, "good_samples": 0,
                "good_samples_needed": 8, "offset_limit_ns": 1000, "silence_limit_ns": 3},
            "offset_ns": 1, "offset_error_ns": 0, "ports": [], "identity": null, "giver": null,
            "silent": null, "tai_offset_s": 37, "giver_tai_offset_s": null,
            "kernel_synchronised": true, "kernel_max_error_ns": 0, "frequency_ppb": 0,
            "closes": [], "notes": []}"#;
        let status: ClockStatus = serde_json::from_str(text).unwrap();
        let at = |ns| judge_age(status.clone(), Instant::from_ns(ns));
        assert_eq!(at(5_000_001_000), status);
        let old = at(6_000_001_000).guard;
        let why = "the process that watches it has said nothing for 6s";
        assert_eq!((old.on_time, old.why.as_deref()), (false, Some(why)));
    }
}
