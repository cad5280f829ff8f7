// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the CPUs did besides: interrupts, deferred work, polls of drivers. The latest of each CPU
//! are kept, as long as they may explain a packet path.

use std::collections::VecDeque;

use super::Point;
use super::identity::Map;
use crate::event::{Event, Hook};

/// Most spans that are kept of a CPU.
const KEPT: usize = 8_192;

/// What a CPU did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy {
    pub from: i64,
    pub to: i64,
    pub kind: Kind,
    /// The interrupt's number, the kind of deferred work, or the frames of a poll.
    pub what: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Interrupt,
    Softirq,
    Poll,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    interrupt: Option<(i64, u64)>,
    softirq: Option<(i64, u64)>,
    spans: VecDeque<Busy>,
    /// What was before this is forgotten.
    forgotten: Option<i64>,
}

/// What the CPUs of all captures did.
#[derive(Clone, Debug)]
pub(super) struct Context {
    cpus: Map<(u8, u16), Cpu>,
    /// Spans of all CPUs, and how many they may be.
    kept: usize,
    most: usize,
    /// Spans that were forgotten since there were too many of all.
    left_out: usize,
}

impl Context {
    /// Keeps at most so many spans.
    pub fn new(most: usize) -> Context {
        Context { cpus: Map::default(), kept: 0, most, left_out: 0 }
    }

    pub fn event(&mut self, point: &Point, event: &Event) {
        use Hook::{IrqEntry, IrqExit, NapiPoll, SoftirqEntry, SoftirqExit};
        if !matches!(event.hook, IrqEntry | IrqExit | NapiPoll | SoftirqEntry | SoftirqExit) {
            return;
        }
        let cpu = self.cpus.entry((point.capture, point.cpu)).or_default();
        let now = point.at_ns;
        let ended = match event.hook {
            IrqEntry => {
                cpu.interrupt = Some((now, event.aux));
                None
            }
            SoftirqEntry => {
                cpu.softirq = Some((now, event.aux));
                None
            }
            IrqExit => cpu.interrupt.take().map(|(from, what)| (from, Kind::Interrupt, what)),
            SoftirqExit => cpu.softirq.take().map(|(from, what)| (from, Kind::Softirq, what)),
            _ => Some((now, Kind::Poll, event.aux >> 32)),
        };
        if let Some((from, kind, what)) = ended {
            if cpu.spans.len() >= KEPT {
                cpu.forgotten = cpu.spans.pop_front().map(|span| span.to);
                self.kept -= 1;
            }
            cpu.spans.push_back(Busy { from, to: now, kind, what });
            self.kept += 1;
        }
        if self.kept > self.most {
            for cpu in self.cpus.values_mut() {
                cpu.forgotten = cpu.spans.back().map_or(cpu.forgotten, |span| Some(span.to));
                cpu.spans = VecDeque::new();
            }
            self.left_out += std::mem::take(&mut self.kept);
        }
    }

    /// Spans that had no room.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// What a CPU did in `[from, to]`, cut to it. `None` when some of it is forgotten.
    pub fn during(&self, (capture, cpu): (u8, u16), (from, to): (i64, i64)) -> Option<Vec<Busy>> {
        let Some(cpu) = self.cpus.get(&(capture, cpu)) else { return Some(Vec::new()) };
        if cpu.forgotten.is_some_and(|until| until >= from) {
            return None;
        }
        // Ends ascend.
        let first = cpu.spans.partition_point(|span| span.to < from);
        let spans = cpu.spans.range(first..).filter(|span| span.from <= to);
        let cut = |span: &Busy| Busy { from: span.from.max(from), to: span.to.min(to), ..*span };
        Some(spans.map(cut).collect())
    }
}
