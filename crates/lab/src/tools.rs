// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of the host that make a kernel of the laboratory (`make`, `apt-get`, `dpkg-deb`, `xz`):
//! each leads a process group of its own, and all of them can be ended at once, from any thread.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use timewire_sys::children::{GroupSignal, signal_group, wait_for_end};
use timewire_sys::namespace::{self, OnParentDeath};

/// Programs that run.
struct Tools(Mutex<State>);

struct State {
    /// Leaders of groups, which were not waited for.
    leaders: BTreeSet<u32>,
    is_ended: bool,
}

/// Those of this process.
static TOOLS: Tools = Tools::new();

/// Kills all that run, with what they have started, and lets none start any more: what needs one
/// fails, and takes back what it has begun.
pub fn end_all() {
    TOOLS.end_all();
}

/// Whether [`end_all`] was called.
pub fn is_ended() -> bool {
    TOOLS.state().is_ended
}

/// Starts one. It dies with the calling thread.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    TOOLS.spawn(command)
}

/// Waits for the end of one whose words were read, before its number can be another's.
pub(crate) fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    TOOLS.wait(child)
}

/// Waits for the end of one; what it said to pipes.
pub(crate) fn output_of(child: &mut Child) -> io::Result<Output> {
    TOOLS.output_of(child)
}

/// Runs one without input to its end; what it said.
pub(crate) fn output(command: Command) -> io::Result<Output> {
    TOOLS.output(command)
}

impl Tools {
    const fn new() -> Tools {
        Tools(Mutex::new(State { leaders: BTreeSet::new(), is_ended: false }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_all(&self) {
        let mut state = self.state();
        state.is_ended = true;
        for leader in &state.leaders {
            // It fails only for one that has gone.
            let _ = signal_group(*leader, GroupSignal::Kill);
        }
    }

    fn spawn(&self, command: Command) -> io::Result<Child> {
        let mut state = self.state();
        if state.is_ended {
            return Err(io::Error::other("ended on request"));
        }
        let child = namespace::spawn(command, None, OnParentDeath::Kill)?;
        state.leaders.insert(child.id());
        Ok(child)
    }

    fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let ended = wait_for_end(child.id());
        self.state().leaders.remove(&child.id());
        ended?;
        child.wait()
    }

    fn output_of(&self, child: &mut Child) -> io::Result<Output> {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr) = thread::scope(|scope| {
            let errors = scope.spawn(|| all_of(stderr));
            (all_of(stdout), errors.join().expect("invariant: reading does not panic"))
        });
        let status = self.wait(child)?;
        Ok(Output { status, stdout: stdout?, stderr: stderr? })
    }

    fn output(&self, mut command: Command) -> io::Result<Output> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.output_of(&mut self.spawn(command)?)
    }
}

fn all_of(from: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t3_all_are_ended_at_once_and_none_starts_any_more() {
        let tools = Tools::new();
        let mut command = Command::new("sh");
        // It keeps the pipe open, too.
        command.args(["-c", "sleep 1000 & wait"]);
        let said = thread::scope(|scope| {
            let ran = scope.spawn(|| tools.output(command));
            while tools.state().leaders.is_empty() {
                thread::yield_now();
            }
            tools.end_all();
            ran.join().unwrap()
        });
        assert!(!said.unwrap().status.success());
        assert!(tools.state().leaders.is_empty());
        let refused = tools.output(Command::new("true")).unwrap_err();
        assert_eq!(refused.to_string(), "ended on request");
    }
}
