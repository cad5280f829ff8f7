// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user's own program in a case: started with what it may want to know in its environment, and
//! ended with the case.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Span, Tai};
use timewire_sys::children::{GroupSignal, signal_group, spawn_leader, wait_for_end};
use timewire_sys::clock;

use crate::RunnerError;
use crate::error::Context as _;

/// How a program is started, and when it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnProgram {
    /// Its name, for messages.
    pub name: String,
    /// For the shell.
    pub command: String,
    /// What is added to its environment.
    pub environment: BTreeMap<String, String>,
    /// The files that it needs; they can be executed.
    pub files: Vec<String>,
    /// Where it works and its files are; made where there is none.
    pub directory: PathBuf,
    /// When messages begin: `TIMEWIRE_START`.
    pub start: Instant<Tai>,
    /// When they end: `TIMEWIRE_END`.
    pub end: Instant<Tai>,
    /// How long after the end it is asked to end.
    pub drain: Span,
}

/// How long a program may take to end when it is asked to.
const TIMEOUT: Span = Span::from_secs(2);

impl OwnProgram {
    /// Runs it to the end of the case. One that ends before is no failure if it says so with its
    /// exit code.
    ///
    /// **Errors**: it cannot be started; it ended by itself, and not well.
    pub fn run(&self) -> Result<(), RunnerError> {
        let directory = &self.directory;
        fs::create_dir_all(directory).map_err(RunnerError::file("create", directory))?;
        for file in &self.files {
            let path = directory.join(file);
            let cannot = |error| RunnerError::file("execute", &path)(error);
            let mut mode = fs::metadata(&path).map_err(cannot)?.permissions();
            mode.set_mode(mode.mode() | 0o111);
            fs::set_permissions(&path, mode).map_err(RunnerError::file("execute", &path))?;
        }
        let mut command = Command::new("sh");
        command.args(["-c", &self.command]).current_dir(directory).envs(&self.environment);
        command.env("TIMEWIRE_START", self.start.as_ns().to_string());
        command.env("TIMEWIRE_END", self.end.as_ns().to_string());
        let cannot = || format!("program `{}`", self.name);
        // The kernel kills the child with this thread, which waits for its end.
        let mut child = spawn_leader(command).with_context(cannot)?;
        let (leader, over) = (child.id(), self.end.saturating_add(self.drain));
        let (ended, is_over) = mpsc::channel();
        let was_asked = thread::scope(|scope| {
            let asks = scope.spawn(move || end_at(leader, over, &is_over));
            let waited = wait_for_end(leader);
            drop(ended);
            waited.map(|()| asks.join().unwrap_or(false))
        });
        let was_asked = was_asked.with_context(cannot)?;
        // Whatever it has left behind; its number is not free before it is waited for.
        let _ = signal_group(leader, GroupSignal::Kill);
        self.judge(child.wait().with_context(cannot)?, was_asked)
    }

    fn judge(&self, status: ExitStatus, was_asked: bool) -> Result<(), RunnerError> {
        if status.success() || was_asked {
            return Ok(());
        }
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no status".to_owned(),
        };
        Err(RunnerError::Invalid(format!(
            "program `{}` ended before the case did, with {how}: {}",
            self.name, self.command
        )))
    }

    /// Moves its times: those that it has count from this instant.
    pub fn begin_after(&mut self, since: Span) {
        self.start = self.start.saturating_add(since);
        self.end = self.end.saturating_add(since);
    }
}

/// Writes files into a directory, with the directories that they are in.
///
/// **Errors**: the first that cannot be written.
pub fn write_files(directory: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<(), RunnerError> {
    for (name, bytes) in files {
        let path = directory.join(name);
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent).map_err(RunnerError::file("create", parent))?;
        fs::write(&path, bytes).map_err(RunnerError::file("write", &path))?;
    }
    Ok(())
}

/// Asks a group to end at an instant, and makes it end when it does not; whether it was asked.
/// Returns when the other end of the channel is gone.
fn end_at(leader: u32, over: Instant<Tai>, is_over: &Receiver<()>) -> bool {
    let left = over - clock::now::<Tai>();
    if !runs_for(left, is_over) {
        return false;
    }
    // Ended meanwhile is as well.
    let _ = signal_group(leader, GroupSignal::End);
    if runs_for(TIMEOUT, is_over) {
        let _ = signal_group(leader, GroupSignal::Kill);
        let _ = is_over.recv();
    }
    true
}

/// Waits so long, or until the other end is gone; whether that is still there.
fn runs_for(time: Span, is_over: &Receiver<()>) -> bool {
    let time = Duration::from_nanos(u64::try_from(time.as_ns()).unwrap_or(0));
    matches!(is_over.recv_timeout(time), Err(RecvTimeoutError::Timeout))
}
