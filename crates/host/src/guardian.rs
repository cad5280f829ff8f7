// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guardian: a second process that outlives its owner and then carries out the owner's journal.
//! It holds the read end of a pipe whose write end only the owner has; the kernel closes that in
//! every kind of death. It holds the journal's lock as long as it lives.
//!
//! The guardian is this same program, started as `PROGRAM __guardian JOURNAL`; the program's main
//! function calls [`guardian_main`] for that, before anything else.
//!
//! Not here: what is in a journal (`journal`).

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use timewire_sys::namespace::{self, Process};

use crate::HostError;
use crate::journal;

/// The first argument of a guardian.
pub const GUARDIAN_VERB: &str = "__guardian";

/// The owner's side.
#[derive(Debug)]
pub(crate) struct Guardian {
    process: Child,
    pipe: PipeWriter,
}

impl Guardian {
    /// Starts one for a journal and waits until it is on guard.
    pub(crate) fn start(journal: &Path) -> Result<Guardian, HostError> {
        let (program, arguments) = program(GUARDIAN_VERB);
        let failed = |why: String| {
            let shown = env::current_exe().unwrap_or_else(|_| program.clone());
            HostError::Guardian { program: shown.display().to_string(), why }
        };
        let (reader, pipe) = io::pipe().map_err(|e| failed(e.to_string()))?;
        let mut process = Command::new(&program)
            .args(arguments)
            .arg(journal)
            // Ctrl-C is for the owner, also before this one has a session of its own.
            .process_group(0)
            .stdin(Stdio::from(reader))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let stdout = process.stdout.take().expect("invariant: stdout was piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        if lines.any(|line| line.ends_with(READY)) {
            return Ok(Guardian { process, pipe });
        }
        let status = process.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        Err(failed(format!("it ended ({status}) before it said that it is on guard")))
    }

    /// Ends it; it does nothing.
    pub(crate) fn dismiss(mut self) {
        // It may have been killed, and then there is nobody to tell.
        let _ = self.pipe.write_all(&[DISMISSED]);
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// How a second process of this program is started: the program, and what comes before the path.
pub(crate) fn program(verb: &str) -> (PathBuf, Vec<String>) {
    let own = || (PathBuf::from("/proc/self/exe"), vec![verb.to_owned()]);
    match PROGRAM.get() {
        Some((program, arguments)) if verb == GUARDIAN_VERB => (program.clone(), arguments.clone()),
        _ => own(),
    }
}

/// Has guardians started as `program arguments... JOURNAL` instead of `__guardian` of this program,
/// for a program whose main function is not its own, such as a test. The first call counts.
pub fn set_program(program: PathBuf, arguments: Vec<String>) {
    // A second call is a second test of the same program, which says the same.
    let _ = PROGRAM.set((program, arguments));
}

/// What a guardian does, from its start to its end: stdin is the pipe, stdout the way to say that
/// it is on guard, stderr for what it did.
///
/// **Errors**: the journal cannot be locked, or carried out; say so and exit with 3.
pub fn guardian_main(journal: &Path) -> Result<(), HostError> {
    // Fails only for a process group leader, which then has a group of its own, as wanted.
    let _ = namespace::new_session();
    namespace::ignore_requests_to_end();
    // Whatever directory the owner stands in, it can be unmounted.
    let _ = env::set_current_dir("/");
    let file = File::open(journal).map_err(|e| HostError::file("open", journal, e))?;
    if !journal::lock_if_current(&file, journal)? {
        let source = io::Error::other("it has a guardian already");
        return Err(HostError::file("lock", journal, source));
    }
    // Where nobody reads it the owner has been killed meanwhile, and the journal is carried out.
    let _ = writeln!(io::stdout().lock(), "{READY}");
    let mut message = Vec::new();
    // An error is as good as the end: the owner cannot say any more that all is well.
    let _ = io::stdin().lock().read_to_end(&mut message);
    if message.contains(&DISMISSED) || !journal.exists() {
        return Ok(());
    }
    // The pipe closes a moment before the kernel has told the owner's tools to die with it.
    while journal::owner_of(journal).is_some_and(Process::is_alive) {
        thread::sleep(OWNER_ENDS);
    }
    let done = journal::carry_out_locked(journal)?;
    // Nobody may be left to read this.
    let _ = io::stderr().write_all(format!("timewire: {done}\n").as_bytes());
    if done.failures.is_empty() {
        Ok(())
    } else {
        Err(HostError::NotUndone { path: journal.into(), failures: done.failures })
    }
}

static PROGRAM: OnceLock<(PathBuf, Vec<String>)> = OnceLock::new();
/// How long the end of a killed process may take, each time we look.
const OWNER_ENDS: Duration = Duration::from_millis(1);
const READY: &str = "timewire guardian: on guard";
const DISMISSED: u8 = b'd';
