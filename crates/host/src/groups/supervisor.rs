// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that opens and closes windows: it sleeps on TAI until the next one begins or ends,
//! stops those whose window is over and lets those go on whose window begins. It counts how late it
//! was and who did not stop.
//!
//! A new set of windows gets a new thread; the old one ends at its next look.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use timewire_base::{CyclicWindows, Instant, Phase, Span, Tai};
use timewire_sys::clock;
use timewire_sys::scheduler::{self, Attributes, RtPriority};

use super::release::Gate;
use crate::HostError;

/// Who runs in which windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Windowed {
    /// Where the member stands in the tree.
    pub key: String,
    pub windows: CyclicWindows,
    pub gates: Vec<Gate>,
}

/// How well the windows of a member were kept since its windows are as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Windows that were opened.
    pub opened: u64,
    /// Windows of which nothing was seen, because the supervisor was held up.
    pub missed: u64,
    /// Openings and closings that were later than [`TOLERANCE`].
    pub late: u64,
    /// How late the supervisor woke up at most, ns; the rest of what follows is the kernel's work.
    pub wake_late_max_ns: i64,
    /// All such times, ns.
    pub wake_late_sum_ns: i64,
    /// Edges of windows that were waited for: how many times are in the sums.
    pub edges: u64,
    /// How late all openings and closings were, to the end of the system call, ns.
    pub late_sum_ns: i64,
    /// The latest opening, from the start of the window to the end of the system call, ns.
    pub open_late_max_ns: i64,
    /// The latest closing, from the end of the window to the end of the system call, ns.
    pub close_late_max_ns: i64,
    /// How often somebody still ran when the next window began.
    pub not_stopped: u64,
    /// How often the kernel refused to stop or continue somebody.
    pub refused: u64,
}

impl Kept {
    /// Counts an opening or closing; how late it was, ns.
    fn edge(&mut self, wake: Span, done: Span) -> i64 {
        self.edges += 1;
        self.wake_late_max_ns = self.wake_late_max_ns.max(wake.as_ns());
        self.wake_late_sum_ns = self.wake_late_sum_ns.saturating_add(wake.as_ns());
        self.late_sum_ns = self.late_sum_ns.saturating_add(done.as_ns());
        self.late += u64::from(done > TOLERANCE);
        done.as_ns()
    }
}

/// An opening or closing that is later counts as late.
pub const TOLERANCE: Span = Span::from_us(100);
/// The longest sleep: by so much windows are wrong after a step of the clock.
const LONGEST_SLEEP: Span = Span::from_ms(500);

#[derive(Debug)]
struct Entry {
    windowed: Windowed,
    /// When the window that is open ends.
    open_until: Option<Instant<Tai>>,
    /// When the next window begins, as known at the last look.
    next_start: Option<Instant<Tai>>,
    kept: Kept,
}

#[derive(Debug, Default)]
struct Table {
    generation: u64,
    entries: Vec<Entry>,
}

/// The thread and what it keeps. Dropping it lets everybody go on.
#[derive(Debug)]
pub(crate) struct Supervisor {
    table: Arc<Mutex<Table>>,
    priority: u8,
    thread: Option<thread::JoinHandle<()>>,
}

impl Supervisor {
    /// Nobody has windows.
    pub(crate) fn new() -> Supervisor {
        Supervisor { table: Arc::default(), priority: 0, thread: None }
    }

    /// Keeps these windows instead of those before, from now on. Who has none any more goes on.
    ///
    /// **Errors**: no thread with that priority; all is as it was.
    pub(crate) fn install(
        &mut self,
        windowed: Vec<Windowed>,
        priority: u8,
    ) -> Result<(), HostError> {
        let started = if windowed.is_empty() { None } else { Some(self.start(priority)?) };
        let mut table = lock(&self.table);
        table.generation += 1;
        let mut before = std::mem::take(&mut table.entries);
        for windowed in windowed {
            let same = before.iter().position(|entry| {
                entry.windowed.key == windowed.key && entry.windowed.windows == windowed.windows
            });
            let entry = match same {
                Some(index) => {
                    let entry = before.swap_remove(index);
                    open_those_not_in(&entry.windowed.gates, &windowed.gates);
                    // A new process of the member is brought to where the others are.
                    let open = entry.open_until.is_some();
                    for gate in windowed.gates.iter().filter(|g| !entry.windowed.gates.contains(g))
                    {
                        let _ = gate.set(open);
                    }
                    Entry { windowed, ..entry }
                }
                None => Entry::new(windowed),
            };
            table.entries.push(entry);
        }
        let kept: Vec<Gate> = table.entries.iter().flat_map(|e| e.windowed.gates.clone()).collect();
        for entry in &before {
            open_those_not_in(&entry.windowed.gates, &kept);
        }
        look(&mut table.entries);
        let generation = table.generation;
        drop(table);
        self.priority = priority;
        if let Some(start) = started {
            // It waits for this before its first look.
            let _ = start.go.send(generation);
            self.thread = Some(start.thread);
        }
        Ok(())
    }

    /// How well each member's windows were kept.
    pub(crate) fn kept(&self) -> Vec<(String, Kept)> {
        let table = lock(&self.table);
        table.entries.iter().map(|e| (e.windowed.key.clone(), e.kept)).collect()
    }

    /// Whether the thread has ended although there are windows to keep.
    pub(crate) fn has_failed(&self) -> bool {
        let wanted = !lock(&self.table).entries.is_empty();
        wanted && self.thread.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    fn start(&self, priority: u8) -> Result<Start, HostError> {
        let failed = |e| HostError::kernel("start the thread that opens windows", e);
        let number = RtPriority::new(priority).ok_or_else(|| {
            failed(io::Error::new(io::ErrorKind::InvalidInput, "priorities go from 1 to 99"))
        })?;
        let table = Arc::clone(&self.table);
        let (go, wait) = std::sync::mpsc::channel();
        let (tell, ready) = std::sync::mpsc::channel();
        let body = move || {
            let set = scheduler::set_attributes(0, &Attributes::fifo(number).not_inherited());
            let _ = clock::set_timer_slack(Span::from_ns(1));
            let good = set.is_ok();
            let _ = tell.send(set);
            if good && let Ok(generation) = wait.recv() {
                keep(&table, generation);
            }
        };
        let thread =
            thread::Builder::new().name("tw-windows".into()).spawn(body).map_err(failed)?;
        match ready.recv() {
            Ok(Ok(())) => Ok(Start { thread, go }),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(failed(io::Error::other("it ended at once"))),
        }
    }
}

/// A thread that waits for its first look.
struct Start {
    thread: thread::JoinHandle<()>,
    go: std::sync::mpsc::Sender<u64>,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        table.generation += 1;
        for entry in std::mem::take(&mut table.entries) {
            open_those_not_in(&entry.windowed.gates, &[]);
        }
    }
}

impl Entry {
    fn new(windowed: Windowed) -> Entry {
        // Until its first window nobody runs.
        for gate in &windowed.gates {
            let _ = gate.set(false);
        }
        Entry { windowed, open_until: None, next_start: None, kept: Kept::default() }
    }

    fn set(&mut self, open: bool) {
        for gate in &self.windowed.gates {
            if gate.set(open).is_err() {
                self.kept.refused += 1;
            }
        }
    }

    /// Closes it if its window is over; the next thing to look for.
    fn close_if_over(&mut self, now: Instant<Tai>) {
        let Some(until) = self.open_until.filter(|until| *until <= now) else {
            return;
        };
        // Windows that touch are one for who runs in them.
        if let Some(Phase::Inside { start, end }) = self.windowed.windows.phase(now)
            && start == until
        {
            self.open_until = Some(end);
            self.kept.opened += 1;
            return;
        }
        self.set(false);
        self.open_until = None;
        let late = self.kept.edge(now - until, clock::now::<Tai>() - until);
        self.kept.close_late_max_ns = self.kept.close_late_max_ns.max(late);
    }

    /// Opens it if it is in a window; when to look again.
    fn open_if_due(&mut self, now: Instant<Tai>) -> Option<Instant<Tai>> {
        let phase = self.windowed.windows.phase(now)?;
        let expected = self.next_start.filter(|start| *start <= now);
        match phase {
            Phase::Inside { end, .. } if self.open_until.is_some() => {
                // After a step of the clock it may be another window.
                self.open_until = Some(end);
                Some(end)
            }
            Phase::Inside { start, end } => {
                if self.kept.opened > 0 && self.windowed.gates.iter().any(Gate::is_leaking) {
                    self.kept.not_stopped += 1;
                }
                self.set(true);
                self.open_until = Some(end);
                self.next_start = None;
                // The first one is not late: nobody had asked for it before.
                if expected.is_some() {
                    let late = self.kept.edge(now - start, clock::now::<Tai>() - start);
                    self.kept.open_late_max_ns = self.kept.open_late_max_ns.max(late);
                }
                self.kept.missed += u64::from(expected.is_some_and(|first| first < start));
                self.kept.opened += 1;
                Some(end)
            }
            Phase::Before { start, .. } => {
                if self.open_until.take().is_some() {
                    // The clock stepped back out of the window.
                    self.set(false);
                }
                self.kept.missed += u64::from(expected.is_some());
                self.next_start = Some(start);
                Some(start)
            }
        }
    }
}

/// Closes first, so that nobody runs in another's window; when to look again.
fn look(entries: &mut [Entry]) -> Option<Instant<Tai>> {
    let now = clock::now::<Tai>();
    for entry in entries.iter_mut() {
        entry.close_if_over(now);
    }
    entries.iter_mut().filter_map(|entry| entry.open_if_due(now)).min()
}

/// The thread, until there are other windows.
fn keep(table: &Mutex<Table>, generation: u64) {
    loop {
        let next = {
            let mut table = lock(table);
            if table.generation != generation {
                return;
            }
            look(&mut table.entries)
        };
        let latest = clock::now::<Tai>() + LONGEST_SLEEP;
        clock::sleep_until(next.map_or(latest, |next| next.min(latest)));
    }
}

fn open_those_not_in(gates: &[Gate], kept: &[Gate]) {
    for gate in gates.iter().filter(|gate| !kept.contains(gate)) {
        // What is gone needs nothing; the release of the member says what is refused.
        let _ = gate.set(true);
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // A panic elsewhere must not leave anybody stopped.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
