// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user's own program in a case: started with what it may want to know in its environment, and
//! ended with the case.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Span, Tai};
use timewire_sys::children::{GroupSignal, signal_group, spawn_leader, wait_for_end};
use timewire_sys::clock;
use timewire_sys::namespace::spawn_first_process;

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
            make_executable(&directory.join(file))?;
        }
        let mut command = Command::new("sh");
        command.args(["-c", &self.command]).current_dir(directory).envs(&self.environment);
        command.env("TIMEWIRE_START", self.start.as_ns().to_string());
        command.env("TIMEWIRE_END", self.end.as_ns().to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let cannot = || format!("program `{}`", self.name);
        // The kernel kills the child with this thread, which waits for its end.
        let mut child = spawn_leader(command).with_context(cannot)?;
        let said = [
            child.stdout.take().map(|from| pass_on(from, io::stdout())),
            child.stderr.take().map(|from| pass_on(from, io::stderr())),
        ];
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
        let status = child.wait().with_context(cannot)?;
        // What is in another session may hold its end of these until this process has ended.
        for said in said.into_iter().flatten() {
            let _ = said.recv_timeout(LAST_WORDS);
        }
        self.judge(status, was_asked)
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

/// Lets a file of a program's be executed.
///
/// **Errors**: it is not there, or not ours.
pub fn make_executable(path: &Path) -> Result<(), RunnerError> {
    let mut mode = fs::metadata(path).map_err(RunnerError::file("execute", path))?.permissions();
    mode.set_mode(mode.mode() | 0o111);
    fs::set_permissions(path, mode).map_err(RunnerError::file("execute", path))
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

/// Passes on what a program says, up to [`MAX_SAID`]; the rest is read and dropped, with a word on
/// it. The channel ends with the last byte.
fn pass_on(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
) -> Receiver<()> {
    let (ends, ended) = mpsc::channel();
    thread::spawn(move || {
        let _ends: mpsc::Sender<()> = ends;
        let mut left = MAX_SAID;
        let mut bytes = [0; 16_384];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if left == 0 {
                continue;
            }
            let kept = count.min(left);
            left -= kept;
            // An error: nobody reads it any more.
            let _ = to.write_all(&bytes[..kept]).and_then(|()| to.flush());
            if left == 0 {
                let _ = to.write_all(b"\n... (the rest of what it says is left out)\n");
            }
        }
    });
    ended
}

/// How much of what a program says is kept. **Units**: bytes.
const MAX_SAID: usize = 4 << 20;
/// How long its last words may take.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Runs the program of a file in a process of its own, the first one of a process namespace; its
/// exit code, or `None` where there is no privilege for that, or no such thing.
///
/// **Errors**: it cannot be started.
pub fn run_alone(file: &Path, from_start: bool) -> Result<Option<ExitCode>, RunnerError> {
    let own = env::current_exe().context("the path of this program")?;
    let mut command = Command::new(own);
    command.arg("__program").arg(file).arg("--alone");
    if from_start {
        command.arg("--from-start");
    }
    let mut child = match spawn_first_process(command) {
        // A kernel without process namespaces says that there is no such flag.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ) =>
        {
            return Ok(None);
        }
        child => child.context("a process namespace")?,
    };
    let code = child.wait().context("a process namespace")?.code();
    Ok(Some(
        code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_what_a_program_says_is_kept_up_to_a_bound() {
        let path = env::temp_dir().join(format!("tw-said-{}", std::process::id()));
        for (length, kept, is_cut) in
            [(10, 10, false), (MAX_SAID, MAX_SAID, true), (MAX_SAID + 99_999, MAX_SAID, true)]
        {
            let said = io::Cursor::new(vec![b'x'; length]);
            // The other end is gone when all has been read.
            assert!(pass_on(said, fs::File::create(&path).unwrap()).recv().is_err());
            let written = fs::read(&path).unwrap();
            assert!(written[..kept].iter().all(|byte| *byte == b'x'), "{length}");
            assert_eq!(written[kept..].is_empty(), !is_cut, "{length}");
            assert!(written.len() < kept + 100, "{length}: {}", written.len());
        }
        fs::remove_file(&path).unwrap();
    }
}
