// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program of an experiment on its station: started with a process group of its own, ended with
//! all that is left in that group, and found again by a mark in its environment.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{self, Duration};

use crate::protocol::{CommandOutcome, FailureKind, Program};
use timewire_base::{Instant, Tai};
use timewire_host::journal;
use timewire_host::watchdog::WATCHDOG_VERB;
use timewire_sys::children::{GroupSignal, signal_group, spawn_leader, wait_for_end};
use timewire_sys::clock;
use timewire_sys::namespace::Process;

/// What marks the programs of an experiment's station, in their environment.
pub(crate) const MARK: &str = "TIMEWIRE_PART";
/// How long a program has to end when it is asked to.
const TIMEOUT: Duration = Duration::from_secs(3);

/// In a program of the phase `run` and of those after it: the instant at which that phase was to
/// begin here, nanoseconds of TAI.
const START: &str = "TIMEWIRE_START";

/// What a program is started in.
pub(super) struct Surroundings<'a> {
    /// Marks the programs of the experiment.
    pub(super) mark: &'a str,
    /// Where it works, and its output goes.
    pub(super) directory: &'a Path,
    /// When the phase `run` was to begin.
    pub(super) start: Option<Instant<Tai>>,
}

/// A program that was started.
#[derive(Debug)]
pub(super) struct Running {
    program: Program,
    /// What it writes to stderr.
    errors: PathBuf,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    /// `None` once it was waited for: its number may be another's then.
    leader: Option<u32>,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts it; when it ran, as soon as that was known.
    ///
    /// **Errors**: no such program, or no such file.
    pub fn start(
        program: &Program,
        own: &Path,
        surroundings: &Surroundings<'_>,
    ) -> io::Result<(Arc<Running>, Instant<Tai>)> {
        let Some((first, rest)) = program.command.split_first() else {
            return Err(io::Error::other("the command has no words"));
        };
        let Surroundings { mark, directory, start } = surroundings;
        let output = |kind: &str| File::create(directory.join(format!("{}.{kind}", program.name)));
        let mut command = match first.as_str() {
            "timewire" => Command::new(own),
            other => Command::new(other),
        };
        command.args(rest).current_dir(directory).envs(&program.environment).env(MARK, mark);
        if let Some(start) = start {
            command.env(START, start.as_ns().to_string());
        }
        command.stdin(Stdio::null()).stdout(output("out")?).stderr(output("err")?);
        let state = Mutex::new(State { leader: None, status: None });
        let (program, ended) = (program.clone(), Condvar::new());
        let errors = directory.join(format!("{}.err", program.name));
        let running = Arc::new(Running { program, errors, state, ended });
        let (tell, told) = mpsc::channel();
        let watched = Arc::clone(&running);
        // The kernel kills the child with the thread that started it: this one, which waits for it.
        thread::Builder::new().name("program".to_owned()).spawn(move || {
            watched.watch(command, &tell);
        })?;
        let began = told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")))?;
        Ok((running, began))
    }

    fn watch(&self, command: Command, tell: &mpsc::Sender<io::Result<Instant<Tai>>>) {
        let mut child = match spawn_leader(command) {
            Ok(child) => child,
            Err(error) => {
                // Nobody waits only when the agent ends.
                let _ = tell.send(Err(error));
                return;
            }
        };
        let began = clock::now::<Tai>();
        self.state().leader = Some(child.id());
        let _ = tell.send(Ok(began));
        // An error would be that it was waited for, which only happens below.
        let _ = wait_for_end(child.id());
        let mut state = self.state();
        // Whatever it has started and left behind; its number is not free before it is waited for.
        let _ = signal_group(child.id(), GroupSignal::Kill);
        state.leader = None;
        state.status = Some(child.wait().unwrap_or_else(|_| ExitStatus::from_raw(0x7f00)));
        self.ended.notify_all();
    }

    /// Waits for its end.
    pub fn wait(&self) -> CommandOutcome {
        let mut state = self.state();
        loop {
            if let Some(status) = state.status {
                return self.outcome(status, false);
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Asks it to end, and makes it end when it does not.
    pub fn stop(&self) -> CommandOutcome {
        self.signal(GroupSignal::End);
        let give_up = time::Instant::now() + TIMEOUT;
        let mut state = self.state();
        loop {
            if let Some(status) = state.status {
                return self.outcome(status, true);
            }
            let left = give_up.saturating_duration_since(time::Instant::now());
            if left.is_zero() {
                drop(state);
                self.signal(GroupSignal::Kill);
                let outcome = self.wait();
                let why = format!("it did not end within {} s of SIGTERM", TIMEOUT.as_secs());
                return match outcome {
                    CommandOutcome::Done { .. } => outcome,
                    _ => CommandOutcome::failed(FailureKind::Exited, why),
                };
            }
            (state, _) =
                self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes it end now.
    pub fn kill(&self) {
        self.signal(GroupSignal::Kill);
    }

    fn signal(&self, signal: GroupSignal) {
        let state = self.state();
        if let Some(leader) = state.leader {
            // An error: it has taken another user's rights. It dies with this thread at the latest.
            let _ = signal_group(leader, signal);
        }
    }

    fn outcome(&self, status: ExitStatus, was_asked: bool) -> CommandOutcome {
        let accepted = |code: i32| {
            code == 0 || self.program.accept.iter().any(|accepted| i32::from(*accepted) == code)
        };
        match (status.code(), status.signal()) {
            (Some(code), _) if accepted(code) => CommandOutcome::Done { exit: Some(code) },
            // Most programs end by the signal that asks them to.
            (None, Some(SIGTERM)) if was_asked => CommandOutcome::Done { exit: None },
            (code, signal) => {
                let signal = || signal.map_or("no status".to_owned(), |s| format!("signal {s}"));
                let how = code.map_or_else(signal, |code| format!("exit code {code}"));
                let why = match last_line(&self.errors) {
                    Some(line) => format!("{how}: {line}"),
                    None => how,
                };
                CommandOutcome::failed(FailureKind::Exited, why)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of the signal.
const SIGTERM: i32 = 15;

/// Ends all programs with this mark, also those that left their group, or whose agent was killed:
/// first they are asked to, since some have changed the host and restore it. Watchdogs stay, for
/// their work begins now.
pub(super) fn end_marked(mark: &str) {
    marked(mark).iter().filter(|one| !one.is_watchdog).for_each(|one| {
        // Gone meanwhile is as well; one that was stopped hears nothing before it goes on.
        let _ = one.process.ask_to_end().and_then(|()| one.process.go_on());
    });
    let began = time::Instant::now();
    loop {
        let mut rest = marked(mark);
        rest.retain(|one| !one.is_watchdog);
        let timeout = match rest.iter().any(|one| journal::is_owner(one.process)) {
            true => UNDO_TIMEOUT,
            false => TIMEOUT,
        };
        if rest.is_empty() {
            return;
        }
        if began.elapsed() > timeout {
            rest.iter().for_each(|one| drop(one.process.kill()));
        }
        if began.elapsed() > timeout + TIMEOUT {
            // Not even a signal ends it; what it still does shows in the comparison of the host.
            return;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Waits until the watchdogs with this mark have done their work; those that have not.
pub(super) fn await_watchdogs(mark: &str) -> Vec<String> {
    let give_up = time::Instant::now() + UNDO_TIMEOUT;
    loop {
        let rest = marked(mark);
        if rest.is_empty() {
            return Vec::new();
        }
        if time::Instant::now() > give_up {
            let of = |one: &Marked| {
                let (pid, words) = (one.process.pid, &one.words);
                format!("process {pid} ({words}) has not ended")
            };
            return rest.iter().map(of).collect();
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// A process that an experiment started here.
struct Marked {
    process: Process,
    words: String,
    is_watchdog: bool,
}

fn marked(mark: &str) -> Vec<Marked> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir("/proc") else { return found };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids.filter(|pid| *pid != std::process::id()) {
        let Ok(process) = Process::of(pid) else { continue };
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        let is_marked = environment.split(|byte| *byte == 0).any(|e| e == wanted.as_bytes());
        if !is_marked || !process.is_alive() {
            continue;
        }
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
        let is_watchdog = words.split(' ').nth(1) == Some(WATCHDOG_VERB);
        found.push(Marked { process, words, is_watchdog });
    }
    found
}

/// How long undoing may take.
pub(super) const UNDO_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether a process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The last line of a program's stderr that has words, cut and without control characters; `None`
/// when there is none.
fn last_line(file: &Path) -> Option<String> {
    let mut file = File::open(file).ok()?;
    let length = file.seek(SeekFrom::End(0)).ok()?;
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(LAST_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let line: Vec<char> = line.chars().filter(|c| !c.is_control()).collect();
    if line.len() <= LAST_CHARS {
        return Some(line.into_iter().collect());
    }
    // What was tried comes first and the cause last: of a long line both are told.
    let (first, last) = (&line[..LAST_CHARS / 3], &line[line.len() - LAST_CHARS * 2 / 3..]);
    Some(format!("{} ... {}", String::from_iter(first), String::from_iter(last)))
}

/// How much of the end of stderr is looked at. **Units**: bytes.
const LAST_BYTES: u64 = 4_096;
/// How much of its last line is told. **Units**: characters.
const LAST_CHARS: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_the_last_line_with_words_is_told() {
        let path = std::env::temp_dir().join(format!("tw-stderr-{}", std::process::id()));
        let long = "x".repeat(500) + &"y".repeat(500);
        let both = "x".repeat(LAST_CHARS / 3) + " ... " + &"y".repeat(LAST_CHARS * 2 / 3);
        for (text, last) in [
            ("", None),
            ("\n \n", None),
            ("a\nerror: b\n\n", Some("error: b")),
            ("a\n\u{1b}[31mc", Some("[31mc")),
            (long.as_str(), Some(&both)),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(last_line(&path).as_deref(), last);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(last_line(&path), None);
    }
}
