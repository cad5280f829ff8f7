// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a capture shows while it is taken: a copy of what is collected goes to a thread of its own,
//! which analyses it and tells a viewer once in an interval.
//!
//! The collector never waits for it. What finds no room on the way is counted, and the packet paths
//! around it are lossy; the capture has it all the same. The thread is as nice as one can be, so
//! that it takes no CPU that others want. Memory is bounded however long it runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use timewire_base::{Mono, Span};
use timewire_capture::capture::{CaptureHeader, HookCount, Note};
use timewire_capture::event::{EVENT_BYTES, Event, Hook};
use timewire_capture::packet_path::analysis::{Analysis, Wanted};
use timewire_capture::packet_path::worst::{Judged, Keep};
use timewire_capture::packet_path::{CaptureInfo, Loss, Observer, OneClock, Settings};
use timewire_sys::clock;
use timewire_sys::scheduler::{Attributes, set_attributes};

use super::collect::{Passed, Sink};

/// Most events that wait to be analysed: 3 MiB. With more the view would be late where CPUs are
/// busy, instead of sparse.
const MAX_WAITING: usize = 1 << 16;
/// Most packets that are followed at once; with more, events are not shown until it is fewer.
const MAX_PACKETS: usize = 1 << 16;
/// Most notes that wait; names that are not noted are shown as numbers.
const MAX_NOTES: usize = 1 << 14;
/// Most portions on the way.
const PORTIONS: usize = 16;
/// How often a portion goes. Losses are known of each, before the packet paths around it come out.
const EVERY: Duration = Duration::from_millis(50);
/// A program that marks a point may be interrupted between the time that it notes and the mark
/// itself: so long events wait for earlier ones.
const HELD_BACK: Duration = Duration::from_millis(250);
/// But no more of them than this: 14 MiB.
const MAX_HELD_BACK: usize = 1 << 18;
/// Threads and sockets of which nothing was seen for so long are forgotten.
const FORGET_AFTER: Span = Span::from_secs(60);
/// A packet that rests longer is shown where it was last seen.
const LONGEST: Span = Span::from_secs(5);

/// Who looks.
pub trait Viewer: Observer + Send + 'static {
    /// The capture begins.
    fn begin(&mut self, header: &CaptureHeader);

    /// An interval is over.
    ///
    /// **Errors**: nothing more can be shown; the capture goes on.
    fn moment(&mut self, moment: &Moment<'_>) -> io::Result<()>;
}

/// What there is at the end of an interval; packet paths and events were told before.
#[derive(Debug)]
pub struct Moment<'a> {
    /// Since the start.
    pub elapsed: Span,
    /// How often each hook was reached since the start.
    pub hooks: &'a BTreeMap<String, HookCount>,
    /// Events that are in the capture and were not analysed, since the start.
    pub not_shown: u64,
    /// The slowest packet path since the start.
    pub slowest: Option<&'a Judged>,
    /// The slowest of the interval, by the capture and the station where it ended.
    pub of_stations: BTreeMap<(u8, u8), Judged>,
    /// Whether the capture has ended.
    pub is_last: bool,
}

/// What is handed over at once.
#[derive(Debug, Default)]
struct Portion {
    events: Vec<[u8; EVENT_BYTES]>,
    notes: Vec<Note>,
    passed: Passed,
    not_shown: u64,
}

/// Analyses what it is given.
struct Follow<V> {
    analysis: Analysis<OneClock>,
    viewer: V,
    every_ns: u64,
    /// What is between the time of an event and its writing in the kernel.
    reorder_ns: u64,
    held_back_ns: u64,
    /// Events that may have others before them.
    early: Vec<Event>,
    hooks: BTreeMap<String, HookCount>,
    not_shown: u64,
    begun_ns: u64,
    passed_ns: u64,
    told_ns: u64,
    forgot_ns: u64,
    most_packets: usize,
}

impl<V: Viewer> Follow<V> {
    fn new(header: &CaptureHeader, begun_ns: u64, every: Span, mut viewer: V) -> Follow<V> {
        let settings = Settings { longest_ns: LONGEST.as_ns(), ..Settings::default() };
        let reorder_ns = settings.reorder_ns.unsigned_abs();
        let keep = Keep { longest: 1, of_stations: true, ..Keep::default() };
        let wanted = Wanted { settings, keep, flows: 0, ..Wanted::default() };
        let mut analysis = Analysis::new(vec![CaptureInfo::of(header)], OneClock, wanted);
        analysis.header(0, header);
        viewer.begin(header);
        Follow {
            analysis,
            viewer,
            every_ns: every.as_ns().unsigned_abs(),
            reorder_ns,
            held_back_ns: u64::try_from(HELD_BACK.as_nanos()).unwrap_or(u64::MAX),
            early: Vec::new(),
            hooks: BTreeMap::new(),
            not_shown: 0,
            begun_ns,
            passed_ns: begun_ns,
            told_ns: begun_ns,
            forgot_ns: begun_ns,
            most_packets: MAX_PACKETS,
        }
    }

    fn take(&mut self, portion: Portion) -> io::Result<()> {
        let Portion { mut events, notes, passed, mut not_shown } = portion;
        notes.iter().for_each(|note| self.analysis.note(0, note));
        if self.analysis.held().packets > self.most_packets {
            not_shown += count(events.len());
            events.clear();
        }
        self.lose(&passed, not_shown);
        self.not_shown += not_shown;
        // CPUs are emptied one after the other, too: of the later ones there are events that those
        // of the first ones are still to come before.
        self.early.extend(events.iter().filter_map(Event::from_bytes));
        self.early.sort_by_key(|event| event.at_ns);
        let mut upto = passed.upto_ns.saturating_sub(self.held_back_ns);
        if let Some(surplus) = self.early.len().checked_sub(MAX_HELD_BACK) {
            upto = self.early.get(surplus).map_or(upto, |event| event.at_ns.max(upto));
        }
        let ready = self.early.partition_point(|event| event.at_ns < upto);
        for event in self.early.drain(..ready) {
            self.analysis.event(0, &event, &mut self.viewer);
        }
        self.analysis.settle(signed(upto), &mut self.viewer);
        self.hooks = passed.hooks;
        self.passed_ns = passed.upto_ns;
        if self.passed_ns.saturating_sub(self.forgot_ns) >= FORGET_AFTER.as_ns().unsigned_abs() / 4
        {
            self.forgot_ns = self.passed_ns;
            self.analysis.forget(FORGET_AFTER.as_ns());
        }
        if self.passed_ns.saturating_sub(self.told_ns) >= self.every_ns {
            self.told_ns = self.passed_ns;
            self.tell(false)?;
        }
        Ok(())
    }

    /// What was lost since the portion before, in the kernel or on the way here.
    fn lose(&mut self, passed: &Passed, not_shown: u64) {
        let (from_ns, to_ns) = (self.passed_ns.saturating_sub(self.reorder_ns), passed.now_ns);
        let mut info = CaptureInfo::default();
        info.add_losses((from_ns, &self.hooks), (to_ns, &passed.hooks));
        if not_shown > 0 {
            let any = |hook| Loss { hook, from_ns, to_ns, events: not_shown };
            // Of which hooks they were nobody has looked.
            info.losses.extend([Hook::DriverStart, Hook::SocketQueue].map(any));
        }
        info.losses.into_iter().for_each(|loss| self.analysis.lose(0, loss));
    }

    fn tell(&mut self, is_last: bool) -> io::Result<()> {
        let of_stations = self.analysis.take_of_stations();
        let moment = Moment {
            elapsed: Span::from_ns(signed(self.passed_ns.saturating_sub(self.begun_ns))),
            hooks: &self.hooks,
            not_shown: self.not_shown,
            slowest: self.analysis.longest().first(),
            of_stations,
            is_last,
        };
        self.viewer.moment(&moment)
    }

    fn end(&mut self) -> io::Result<()> {
        for event in self.early.drain(..) {
            self.analysis.event(0, &event, &mut self.viewer);
        }
        self.analysis.finish(&mut self.viewer);
        self.tell(true)
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).expect("invariant: usize fits u64")
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// A view that runs beside a capture.
#[derive(Debug)]
pub struct Live {
    /// None: the view has ended by itself.
    to: Option<SyncSender<Portion>>,
    pending: Portion,
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Events on the way.
    waiting: AtomicUsize,
    /// The capture has ended as it should: the last moment is told.
    is_whole: AtomicBool,
}

impl Live {
    /// Begins to show a capture with this header, once `every` of its time.
    ///
    /// **Errors**: no thread.
    pub fn start(header: &CaptureHeader, every: Span, viewer: impl Viewer) -> io::Result<Live> {
        let (to, from) = sync_channel(PORTIONS);
        let shared = Arc::new(Shared::default());
        let inside = Arc::clone(&shared);
        let begun_ns = clock::now::<Mono>().as_ns().unsigned_abs();
        let mut follow = Follow::new(header, begun_ns, every, viewer);
        let thread = std::thread::Builder::new().name("tw-live".to_owned()).spawn(move || {
            // It works at any niceness.
            let _ = set_attributes(0, &Attributes { nice: 19, ..Attributes::default() });
            show(&mut follow, &from, &inside)
        })?;
        Ok(Live { to: Some(to), pending: Portion::default(), shared, thread })
    }

    fn events(&mut self, events: &[[u8; EVENT_BYTES]]) {
        let waiting = self.shared.waiting.load(Ordering::Relaxed) + self.pending.events.len();
        let taken = if self.to.is_some() { MAX_WAITING.saturating_sub(waiting) } else { 0 };
        let taken = taken.min(events.len());
        self.pending.events.extend_from_slice(&events[..taken]);
        self.pending.not_shown += count(events.len() - taken);
    }

    fn note(&mut self, note: &Note) {
        let concerns =
            !matches!(note, Note::Losses(_) | Note::Counter { .. } | Note::Histogram { .. });
        if concerns && self.to.is_some() && self.pending.notes.len() < MAX_NOTES {
            self.pending.notes.push(note.clone());
        }
    }

    /// Hands over what there is, when there is room; otherwise the next time.
    fn passed(&mut self, passed: Passed) {
        self.pending.passed = passed;
        let Some(to) = &self.to else { return };
        let portion = std::mem::take(&mut self.pending);
        let events = portion.events.len();
        self.shared.waiting.fetch_add(events, Ordering::Relaxed);
        match to.try_send(portion) {
            Ok(()) => {}
            Err(TrySendError::Full(portion)) => {
                self.shared.waiting.fetch_sub(events, Ordering::Relaxed);
                self.pending = portion;
            }
            Err(TrySendError::Disconnected(_)) => self.to = None,
        }
    }

    /// Shows what is left, and the last moment; waits for it.
    ///
    /// **Errors**: what the viewer said when it ended.
    pub fn end(self) -> io::Result<()> {
        self.shared.is_whole.store(true, Ordering::Relaxed);
        let is_left = self.pending.passed.upto_ns > 0;
        if let Some(to) = self.to.filter(|_| is_left) {
            // Who is gone has said why.
            let _ = to.send(self.pending);
        }
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn show<V: Viewer>(
    follow: &mut Follow<V>,
    from: &Receiver<Portion>,
    shared: &Shared,
) -> io::Result<()> {
    for portion in from {
        let events = portion.events.len();
        let taken = follow.take(portion);
        shared.waiting.fetch_sub(events, Ordering::Relaxed);
        taken?;
    }
    if shared.is_whole.load(Ordering::Relaxed) { follow.end() } else { Ok(()) }
}

/// A sink that is shown, when a view goes with it.
#[derive(Debug)]
pub struct Shown<S> {
    /// Where everything goes.
    pub sink: S,
    /// What shows it.
    pub live: Option<Live>,
}

impl<S: Sink> Sink for Shown<S> {
    fn events(&mut self, events: &[[u8; EVENT_BYTES]]) -> io::Result<()> {
        self.sink.events(events)?;
        if let Some(live) = &mut self.live {
            live.events(events);
        }
        Ok(())
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.sink.note(note)?;
        if let Some(live) = &mut self.live {
            live.note(note);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    fn every(&self) -> Option<Duration> {
        self.live.as_ref().map(|_| EVERY)
    }

    fn passed(&mut self, passed: Passed) {
        if let Some(live) = &mut self.live {
            live.passed(passed);
        }
    }
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Sink for Nowhere {
    fn events(&mut self, _: &[[u8; EVENT_BYTES]]) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
