// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The watchdog: a second process that outlives its owner and then carries out the owner's undo
//! log, or does so when the time of a change is over. It holds the read end of a pipe whose write
//! end only the owner has; the kernel closes that in every kind of death. It is there before the
//! log is: a log that nobody watches would stay until the next start of the program.
//!
//! The watchdog is this same program, started as `PROGRAM __watchdog LOG`; the program's main
//! function calls `recovery::watchdog_main` for that, before anything else.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use timewire_sys::namespace;

use super::file::{read, read_head};
use super::inverse::{Due, Kind, POLL_INTERVAL};
use super::place::{owner_of, try_lock};
use super::rollback::{carry_out, roll_back};
use crate::HostError;

/// The first argument of a watchdog.
pub const WATCHDOG_VERB: &str = "__watchdog";

/// The owner's side.
#[derive(Debug)]
pub(super) struct Watchdog {
    process: Child,
    pipe: PipeWriter,
    answers: BufReader<ChildStdout>,
}

impl Watchdog {
    /// Starts one for a log that is to be written next. What it says goes where this process'
    /// messages go, or to a file.
    pub fn start(log: &Path, said: Option<&Path>) -> Result<Watchdog, HostError> {
        let (program, arguments) = program();
        let failed = |why: io::Error| failure(why.to_string());
        let (reader, pipe) = io::pipe().map_err(failed)?;
        let mut command = Command::new(&program);
        if let Some(said) = said {
            let file = OpenOptions::new().create(true).append(true).open(said);
            command.stderr(file.map_err(|e| HostError::file("open", said, e))?);
        }
        let mut process = command
            .args(arguments)
            .arg(log)
            // Ctrl-C is for the owner, also before this one has a session of its own.
            .process_group(0)
            .stdin(Stdio::from(reader))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stdout = process.stdout.take().expect("invariant: stdout was piped");
        Ok(Watchdog { process, pipe, answers: BufReader::new(stdout) })
    }

    /// Tells it that the log has begun, and waits until it is on guard.
    pub fn begin(&mut self) -> Result<(), HostError> {
        // One that has ended answers nothing, either.
        let _ = self.pipe.write_all(&[BEGUN]);
        if (&mut self.answers).lines().map_while(Result::ok).any(|line| line.ends_with(READY)) {
            return Ok(());
        }
        let status = self.process.wait().map_or_else(|e| e.to_string(), |it| it.to_string());
        Err(failure(format!("it ended ({status}) before it said that it is on guard")))
    }

    /// Ends it; it does nothing.
    pub fn dismiss(mut self) {
        // It may have been killed, and then there is nobody to tell.
        let _ = self.pipe.write_all(&[DISMISSED]);
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// The program of watchdogs, and what comes before the log.
fn program() -> (PathBuf, Vec<String>) {
    let own = || (PathBuf::from("/proc/self/exe"), vec![WATCHDOG_VERB.to_owned()]);
    PROGRAM.get().cloned().unwrap_or_else(own)
}

fn failure(why: String) -> HostError {
    let shown = env::current_exe().unwrap_or_else(|_| program().0);
    HostError::Watchdog { program: shown.display().to_string(), why }
}

/// Has watchdogs started as `program arguments... LOG` instead of `__watchdog` of this program, for
/// a program whose main function is not its own, such as a test. The first call counts.
pub fn set_program(program: PathBuf, arguments: Vec<String>) {
    // A second call is a second test of the same program, which says the same.
    let _ = PROGRAM.set((program, arguments));
}

/// What a watchdog does, from its start to its end: stdin is the pipe, stdout the way to say that
/// it is on guard, stderr for what it did.
pub(crate) fn main(path: &Path, kinds: &[Kind]) -> Result<(), HostError> {
    // Fails only for a process group leader, which then has a group of its own, as wanted.
    let _ = namespace::new_session();
    namespace::ignore_requests_to_end();
    // Whatever directory the owner stands in, it can be unmounted.
    let _ = env::set_current_dir("/");
    // An error is as good as the end.
    let mut first = [0];
    let _ = io::stdin().lock().read_exact(&mut first);
    match first {
        [BEGUN] => {}
        [DISMISSED] => return Ok(()),
        // The owner was killed, perhaps after it had begun its log, which is empty then; one with
        // changes in it is of somebody else.
        _ if path.exists() && read(path, kinds)?.open.is_empty() => {}
        _ => return Ok(()),
    }
    let lock = match owner_of(path) {
        Some(_) => {
            let already = || HostError::file("lock", path, io::Error::other("it has a watchdog"));
            Some(try_lock(path)?.ok_or_else(already)?)
        }
        None => None,
    };
    let head = read_head(path)?;
    // Where nobody reads it the owner has been killed meanwhile, and the log is carried out.
    let _ = writeln!(io::stdout().lock(), "{READY}");
    let mut message = Vec::new();
    // An error is as good as the end: the owner cannot say any more that all is well.
    let _ = io::stdin().lock().read_to_end(&mut message);
    if message.contains(&DISMISSED) {
        return Ok(());
    }
    while path.exists() {
        let content = match read(path, kinds) {
            Err(_) if !path.exists() => return Ok(()),
            content => content?,
        };
        if content.head != head {
            return Ok(());
        }
        let done = match (content.due(), &lock) {
            (Due::Never, _) => return Ok(()),
            // The pipe closes a moment before the kernel has told the owner's tools to die with it.
            (Due::Later(moment), _) => {
                thread::sleep(moment);
                continue;
            }
            (Due::Now(_), Some(_)) => roll_back(path, content)?,
            (Due::Now(_), None) => carry_out(path, kinds)?,
        };
        let Some(done) = done else {
            // Someone else holds the lock: they do it, or they undo, or they confirm.
            thread::sleep(POLL_INTERVAL);
            continue;
        };
        // Nobody may be left to read this.
        let _ = io::stderr().write_all(format!("timewire: {done}\n").as_bytes());
        if !done.failures.is_empty() {
            return Err(HostError::NotUndone { path: path.into(), failures: done.failures });
        }
        return Ok(());
    }
    Ok(())
}

static PROGRAM: OnceLock<(PathBuf, Vec<String>)> = OnceLock::new();
const READY: &str = "timewire watchdog: on guard";
/// The owner has begun the log.
const BEGUN: u8 = b'b';
/// The owner needs no watchdog any more.
const DISMISSED: u8 = b'd';
