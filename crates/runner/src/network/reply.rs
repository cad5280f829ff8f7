// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program of a station that sends what no talker does, in a process of its own.

use std::io::{self, Write as _};
use std::path::Path;

use timewire_base::Instant;
use timewire_datapath::files::read_json;
use timewire_datapath::reply::{ReplyTask, reply};
use timewire_sys::scheduler::{self, Attributes, RtPriority};

use crate::RunnerError;
use crate::error::invalid;
use crate::program::start_of_phase;

/// Sends what a file says, and prints what it sent as JSON. The times of one that has an end count
/// from the begin of the phase `run`.
///
/// **Errors**: the file is none; there is no privilege; an interface went away.
pub fn send_replies(file: &Path) -> Result<(), RunnerError> {
    let failed = |error: io::Error| invalid(error.to_string());
    let mut task: ReplyTask = read_json(file)?;
    if task.end.is_some() {
        let since = start_of_phase()? - Instant::from_ns(0);
        task.start = task.start.saturating_add(since);
        task.end = task.end.map(|end| end.saturating_add(since));
    }
    let priority = RtPriority::new(PRIORITY).expect("invariant: it lies in the kernel's range");
    let set = scheduler::set_attributes(0, &Attributes::fifo(priority));
    set.map_err(RunnerError::file("set SCHED_FIFO of", Path::new("this program")))?;
    let _ = timewire_sys::clock::set_timer_slack(timewire_base::Span::from_ns(1));
    let sent = reply(&task).map_err(failed)?;
    let text = serde_json::to_string(&sent).map_err(|error| invalid(error.to_string()))?;
    writeln!(io::stdout(), "{text}").map_err(failed)
}

/// As talkers have it.
pub(super) const PRIORITY: u8 = 50;
