// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that empties the kernel's rings into a capture, and notes what else is learned.
//!
//! Every 5 ms it takes what is there, so a ring must hold what comes in the longest time for which
//! the thread gets no CPU: 16 MiB hold 350 000 events. Nothing wakes it: a wake-up would cost those
//! that are traced more than an event.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use timewire_base::{Mono, Tai, Utc};
use timewire_bpf::BpfError;
use timewire_bpf::trace::{Level, Settings, Tracer, Troubles};
use timewire_capture::capture::{CaptureHeader, ClockSample, HookCount, Item, Note, Writer};
use timewire_capture::event::{EVENT_BYTES, Event, Hook};
use timewire_sys::clock;

use super::TraceError;
use super::stations::{look, watch};
use crate::markers::Marks;

pub use super::stations::StationAt;

/// Between two looks at the rings.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Most threads and flows that are remembered as noted.
const MAX_KNOWN: usize = 1 << 16;
/// Between two notes of what is learned.
const NOTES: Duration = Duration::from_secs(1);

/// Where events and notes go.
pub trait Sink: Send + 'static {
    /// Takes events, as the kernel's programs wrote them.
    ///
    /// **Errors**: they could not be kept; the capture ends then.
    fn events(&mut self, events: &[[u8; EVENT_BYTES]]) -> io::Result<()>;

    /// Takes a note.
    ///
    /// **Errors**: as [`Sink::events`].
    fn note(&mut self, note: &Note) -> io::Result<()>;

    /// Hands on what was held back.
    ///
    /// **Errors**: as [`Sink::events`].
    fn flush(&mut self) -> io::Result<()>;

    /// How often [`Sink::passed`] is to be told; `None` for never.
    fn every(&self) -> Option<Duration> {
        None
    }

    /// So far it has got everything.
    fn passed(&mut self, passed: Passed) {
        let _ = passed;
    }
}

/// How far a capture has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Events before this have been handed on.
    ///
    /// **Units**: ns of `CLOCK_MONOTONIC`.
    pub upto_ns: u64,
    /// How often each hook was reached since the start, read after that.
    pub hooks: BTreeMap<String, HookCount>,
    /// When they had been read.
    ///
    /// **Units**: ns of `CLOCK_MONOTONIC`.
    pub now_ns: u64,
}

impl<W: Write + Send + 'static> Sink for Writer<W> {
    fn events(&mut self, events: &[[u8; EVENT_BYTES]]) -> io::Result<()> {
        events.iter().try_for_each(|event| self.event_bytes(event))
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        Writer::note(self, note)
    }

    fn flush(&mut self) -> io::Result<()> {
        Writer::flush(self)
    }
}

/// How far the host's clock is from the one that gives the time, asked once a second.
pub type ClockOffset = Box<dyn FnMut() -> Option<i64> + Send>;

/// What a capture is taken of.
#[derive(Default)]
pub struct Request {
    /// What the programs are asked for; its stations are replaced by `stations`.
    pub settings: Settings,
    /// The filter as text, for the header.
    pub filter: String,
    /// The stations, by their numbers.
    pub stations: Vec<StationAt>,
    /// Anything else for the header.
    pub meta: BTreeMap<String, String>,
    /// Where synchronisation can be asked.
    pub offset: Option<ClockOffset>,
    /// Marks of programs, when they are to be in it.
    pub marks: Option<Marks>,
}

/// What a capture came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Events handed on.
    pub events: u64,
    /// By the names of hooks.
    pub hooks: BTreeMap<String, HookCount>,
    /// What befell packets.
    pub troubles: Troubles,
}

/// What a capture leaves: its sink, the programs, and what it came to.
pub type Ended<S> = Result<(S, Tracer, Collected), TraceError>;

/// A capture that is being taken.
#[derive(Debug)]
pub struct Collector<S> {
    thread: Option<JoinHandle<Ended<S>>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    events: AtomicU64,
}

impl<S: Sink> Collector<S> {
    /// Puts the programs to work and starts the thread; `sink` makes of the header what events go
    /// to. From its return on packets are seen.
    ///
    /// **Errors**: a station that is none, no privilege, a kernel without what is needed
    /// ([`TraceError::is_unsupported`]), a sink that cannot be.
    pub fn start(
        request: Request,
        sink: impl FnOnce(&CaptureHeader) -> io::Result<S>,
    ) -> Result<Collector<S>, TraceError> {
        let Request { mut settings, filter, stations, meta, offset, marks } = request;
        let mut notes = Vec::new();
        let mut found = Vec::new();
        for (number, at) in (0_u8..).zip(&stations) {
            let (station, qdiscs) = look(at, number)?;
            found.push(station);
            notes.extend(qdiscs);
        }
        settings.stations = found.iter().map(|station| station.namespace).collect();
        let mut tracer = Tracer::open(&settings)?;
        let mut missing = tracer.missing().clone();
        if tracer.has_xdp() {
            missing.extend(watch(&mut tracer, &stations, &found)?);
        }
        let read = |path: &str| {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|source| TraceError::Host { what: path.to_owned(), source });
            text.map(|text| text.trim().to_owned())
        };
        let mut header = CaptureHeader {
            host: read("/proc/sys/kernel/hostname")?,
            boot: read("/proc/sys/kernel/random/boot_id")?,
            kernel: read("/proc/sys/kernel/osrelease")?,
            writer: format!("timewire {}", env!("CARGO_PKG_VERSION")),
            stations: found,
            hooks: tracer.hooks().iter().map(|hook| hook.name().to_owned()).collect(),
            missing,
            filter,
            keep_one_of: settings.keep_one_of.max(1),
            meta,
        };
        if marks.is_some() {
            header.hooks.push(Hook::Marker.name().to_owned());
        }
        let beyond = |level: &&Level| **level != Level::Tracepoint;
        let levels: Vec<_> = tracer.levels().iter().filter(|it| beyond(&it.1)).collect();
        if !levels.is_empty() {
            let said =
                |(hook, level): &(&Hook, &Level)| format!("{} {}", hook.name(), level.name());
            let said: Vec<_> = levels.iter().map(said).collect();
            header.meta.insert("levels".to_owned(), said.join(", "));
        }
        // It says which packet was alone in its socket.
        header.meta.insert("alone".to_owned(), "yes".to_owned());
        super::kernel::name_numbers(&mut header.meta);
        let mut sink = sink(&header).map_err(TraceError::Write)?;
        for note in &notes {
            sink.note(note).map_err(TraceError::Write)?;
        }
        let shared = Arc::new(Shared::default());
        let inside = Arc::clone(&shared);
        let marked = Marked { marks, namespaces: settings.stations, threads: BTreeMap::new() };
        let known = Known::default();
        let drain = Drain { tracer, sink, offset, marked, shared: inside, known };
        let thread = std::thread::Builder::new()
            .name("tw-collect".to_owned())
            .spawn(move || drain.run())
            .map_err(|source| TraceError::Host { what: "a new thread".to_owned(), source })?;
        Ok(Collector { thread: Some(thread), shared })
    }

    /// Events handed on so far.
    pub fn events(&self) -> u64 {
        self.shared.events.load(Ordering::Relaxed)
    }

    /// Whether it has ended by itself, with an error that [`Collector::finish`] tells.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Takes the programs off, takes the events that are left, and hands the sink back, flushed;
    /// and the programs, whose counters and histograms can still be read.
    ///
    /// **Errors**: of the sink, or of the programs.
    pub fn finish(mut self) -> Ended<S> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("invariant: taken here alone");
        thread.thread().unpark();
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<S> Drop for Collector<S> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The one who drops it wants no result.
            let _ = thread.join();
        }
    }
}

/// What was noted already.
#[derive(Default)]
struct Known {
    threads: BTreeMap<u32, String>,
    flows: BTreeSet<u32>,
    /// Of marks, when they have ended.
    marks: Option<HookCount>,
}

struct Drain<S> {
    tracer: Tracer,
    sink: S,
    offset: Option<ClockOffset>,
    marked: Marked,
    shared: Arc<Shared>,
    known: Known,
}

/// Marks of programs, and where the programs are.
struct Marked {
    marks: Option<Marks>,
    /// Of the stations, by their numbers.
    namespaces: Vec<u64>,
    /// The station of each thread.
    threads: BTreeMap<u32, u8>,
}

impl Marked {
    /// The station of a thread; none when it has ended or is in another namespace.
    fn look(&mut self, thread: u32) {
        if self.threads.len() > MAX_KNOWN {
            // They are looked at again when they are seen again.
            self.threads.clear();
        }
        let namespace = std::fs::metadata(format!("/proc/{thread}/ns/net")).map(|meta| meta.ino());
        let station = namespace.ok().and_then(|namespace| {
            let place = self.namespaces.iter().position(|station| *station == namespace)?;
            u8::try_from(place).ok()
        });
        self.threads.insert(thread, station.unwrap_or(Event::NO_STATION));
    }

    /// Hands on what there is, with the stations; how many events.
    fn hand_on<S: Sink>(
        &mut self,
        sink: &mut S,
        items: impl FnOnce(&mut Option<Marks>, &mut dyn FnMut(Item)),
    ) -> io::Result<u64> {
        let mut all = Vec::new();
        items(&mut self.marks, &mut |item| all.push(item));
        let mut count = 0;
        for item in all {
            match item {
                Item::Note(note) => {
                    if let Note::Thread { thread, .. } = note {
                        self.look(thread);
                    }
                    sink.note(&note)?;
                }
                Item::Event(mut event) => {
                    if !self.threads.contains_key(&event.thread) {
                        self.look(event.thread);
                    }
                    event.station =
                        self.threads.get(&event.thread).copied().unwrap_or(Event::NO_STATION);
                    sink.events(&[event.to_bytes()])?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

impl<S: Sink> Drain<S> {
    fn run(mut self) -> Ended<S> {
        let mut noted: Option<Instant> = None;
        let mut told: Option<Instant> = None;
        while !self.shared.is_over.load(Ordering::Relaxed) {
            if noted.is_none_or(|noted| noted.elapsed() >= NOTES) {
                noted = Some(Instant::now());
                self.note()?;
                self.sink.flush().map_err(TraceError::Write)?;
            }
            let begun = Instant::now();
            let upto_ns = monotonic_ns();
            self.take()?;
            let every = self.sink.every();
            if every.is_some_and(|every| told.is_none_or(|told| told.elapsed() >= every)) {
                told = Some(begun);
                self.tell(upto_ns)?;
            }
            // When that took long there is more already.
            std::thread::park_timeout(POLL_INTERVAL.saturating_sub(begun.elapsed()));
        }
        self.tracer.stop();
        while self.take()? > 0 {}
        let mut last = None;
        let left = self.marked.hand_on(&mut self.sink, |marks, on| {
            last = marks.take().map(|marks| marks.finish(&mut |item| on(item)));
        });
        self.shared.events.fetch_add(left.map_err(TraceError::Write)?, Ordering::Relaxed);
        self.known.marks = last;
        let upto_ns = monotonic_ns();
        let hooks = self.note()?;
        if self.sink.every().is_some() {
            self.tell(upto_ns)?;
        }
        self.sink.flush().map_err(TraceError::Write)?;
        let events = self.shared.events.load(Ordering::Relaxed);
        let collected = Collected { events, hooks, troubles: self.tracer.troubles() };
        Ok((self.sink, self.tracer, collected))
    }

    fn take(&mut self) -> Result<usize, TraceError> {
        let mut failed = None;
        let sink = &mut self.sink;
        let taken = self.tracer.drain(&mut |events| {
            if failed.is_none() {
                failed = sink.events(events).err();
            }
        });
        if let Some(error) = failed {
            return Err(TraceError::Write(error));
        }
        let marks = self.marked.hand_on(&mut self.sink, |marks, on| {
            if let Some(marks) = marks {
                marks.drain(&mut |item| on(item));
            }
        });
        let count = u64::try_from(taken).expect("invariant: usize fits u64");
        let count = count + marks.map_err(TraceError::Write)?;
        self.shared.events.fetch_add(count, Ordering::Relaxed);
        Ok(taken)
    }

    /// Notes what has become known, the clocks and the losses.
    fn note(&mut self) -> Result<BTreeMap<String, HookCount>, TraceError> {
        let mut notes = vec![Note::Clocks(self.clocks())];
        for (thread, name) in self.tracer.threads()? {
            if self.known.threads.get(&thread) != Some(&name) {
                self.known.threads.insert(thread, name.clone());
                notes.push(Note::Thread { thread, name });
            }
        }
        // Threads and flows come and go for hours; one that is noted again does no harm.
        if self.known.threads.len() > MAX_KNOWN {
            self.known.threads.clear();
        }
        if self.known.flows.len() > MAX_KNOWN {
            self.known.flows.clear();
        }
        for (flow, name) in self.tracer.flows()? {
            if self.known.flows.insert(flow) {
                notes.push(Note::Flow { flow, name: name.to_string() });
            }
        }
        let values = self.marked.hand_on(&mut self.sink, |marks, on| {
            if let Some(marks) = marks {
                marks.values(&mut |item| on(item));
            }
        });
        values.map_err(TraceError::Write)?;
        let counts = self.counts()?;
        notes.push(Note::Losses(counts.clone()));
        // Events were lost between the sample before the last count and this one.
        notes.push(Note::Clocks(self.clocks()));
        for note in &notes {
            self.sink.note(note).map_err(TraceError::Write)?;
        }
        Ok(counts)
    }

    fn counts(&self) -> Result<BTreeMap<String, HookCount>, BpfError> {
        let counts = self.tracer.counts()?.into_iter();
        let marks = self.marked.marks.as_ref().map(Marks::count).or(self.known.marks);
        let all = counts.chain(marks.map(|marks| (Hook::Marker, marks)));
        Ok(all.map(|(hook, count)| (hook.name().to_owned(), count)).collect())
    }

    /// Tells the sink that it has everything before an instant.
    fn tell(&mut self, upto_ns: u64) -> Result<(), TraceError> {
        let hooks = self.counts()?;
        self.sink.passed(Passed { upto_ns, hooks, now_ns: monotonic_ns() });
        Ok(())
    }

    fn clocks(&mut self) -> ClockSample {
        let before = clock::now::<Mono>().as_ns();
        let (utc, tai) = (clock::now::<Utc>().as_ns(), clock::now::<Tai>().as_ns());
        let after = clock::now::<Mono>().as_ns();
        let middle = before + (after - before) / 2;
        ClockSample {
            monotonic_ns: middle.unsigned_abs(),
            realtime_ahead_ns: utc - middle,
            // The two are whole seconds apart.
            tai_ahead_ns: (tai - utc + 500_000_000).div_euclid(1_000_000_000) * 1_000_000_000,
            error_ns: (after - before).unsigned_abs(),
            offset_ns: self.offset.as_mut().and_then(|offset| offset()),
        }
    }
}

fn monotonic_ns() -> u64 {
    clock::now::<Mono>().as_ns().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::path::Path;
    use std::process::Command;

    use timewire_capture::capture::{Item, Reader};
    use timewire_capture::event::{Event, Flags, Hook};
    use timewire_capture::filter::Filter;
    use timewire_sys::namespace::{Namespace, unshare};

    use timewire_base::Failure as _;

    use super::*;

    fn ip(arguments: &[&str]) {
        assert!(Command::new("ip").args(arguments).status().unwrap().success());
    }

    /// Loopback, in a network namespace of its own.
    fn alone() -> Result<StationAt, String> {
        unshare(&[Namespace::Network]).map_err(|error| error.to_string())?;
        ip(&["link", "set", "lo", "up"]);
        let thread = timewire_sys::scheduler::thread_id();
        let netns = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
        Ok(StationAt { name: "only".to_owned(), netns: Path::new(&netns).to_owned() })
    }

    fn collected(keep_one_of: u32) -> Option<(Vec<Event>, Vec<Note>, CaptureHeader, Collected)> {
        let station = match alone() {
            Ok(station) => station,
            Err(error) => {
                eprintln!("SKIP: {error}");
                return None;
            }
        };
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = receiver.local_addr().unwrap().port();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let filter = Filter::parse(&format!("udp dst port {port}")).unwrap();
        let settings =
            Settings { filter: filter.compile().unwrap(), keep_one_of, ..Settings::default() };
        let request = Request {
            settings,
            filter: filter.text().to_owned(),
            stations: vec![station],
            ..Request::default()
        };
        let collector = match Collector::start(request, |header| Writer::new(Vec::new(), header)) {
            Ok(collector) => collector,
            Err(error) if error.is_unsupported() => {
                eprintln!("SKIP: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        for n in 0..1000_u32 {
            sender.send(&n.to_le_bytes()).unwrap();
            assert_eq!(receiver.recv(&mut [0; 8]).unwrap(), 4);
        }
        let (writer, _, collected) = collector.finish().unwrap();
        let file = writer.finish().unwrap();
        let mut reader = Reader::new(&file[..]).unwrap();
        let header = reader.header().clone();
        let (mut events, mut notes) = (Vec::new(), Vec::new());
        while let Some(item) = reader.next().unwrap() {
            match item {
                Item::Event(event) => events.push(event),
                Item::Note(note) => notes.push(note),
            }
        }
        Some((events, notes, header, collected))
    }

    /// The tests trace in threads of their own, which alone are in their namespaces.
    fn run(test: fn()) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn t3_what_happens_to_packets_stands_in_the_capture() {
        run(|| {
            let Some((events, notes, header, collected)) = collected(1) else { return };
            let watched = |hook: Hook| header.hooks.contains(&hook.name().to_owned());
            let of = |hook: Hook| events.iter().filter(move |event| event.hook == hook);
            for hook in [Hook::DeviceQueue, Hook::DriverStart, Hook::StackReceive] {
                let tagged = of(hook).filter(|event| event.tag != 0).count();
                assert_eq!((of(hook).count(), tagged), (1000, 1000), "{hook:?}");
            }
            if watched(Hook::SocketReceive) && watched(Hook::SocketQueue) {
                assert_eq!(of(Hook::SocketReceive).count(), 1000);
                let alone = of(Hook::SocketQueue).filter(|e| e.flags.has(Flags::ALONE));
                assert_eq!(alone.count(), 1000);
            }
            assert!(events.iter().filter(|e| e.tag != 0).all(|e| e.station == 0));
            assert_eq!(u64::try_from(events.len()).unwrap(), collected.events);
            let written: u64 = collected.hooks.values().map(|hook| hook.written).sum();
            assert_eq!(written, collected.events);
            assert!(collected.hooks.values().all(|hook| hook.lost == 0), "{collected:?}");
            let flow = |note: &&Note| match note {
                Note::Flow { name, .. } => name.starts_with("UDP 127.0.0.1:"),
                _ => false,
            };
            assert_eq!(notes.iter().filter(flow).count(), 1);
            assert!(notes.iter().any(|note| matches!(note, Note::Clocks(_))));
            assert!(notes.iter().any(|note| matches!(note, Note::Thread { .. })));
            let interfaces = &header.stations[0].interfaces;
            assert!(interfaces.values().any(|name| name == "lo"), "{interfaces:?}");
        });
    }

    #[test]
    fn t3_of_the_packets_that_are_kept_the_whole_way_is() {
        run(|| {
            let Some((events, _, header, _)) = collected(10) else { return };
            let mut ways: BTreeMap<u64, Vec<Hook>> = BTreeMap::new();
            for event in events.iter().filter(|event| event.tag != 0) {
                ways.entry(event.tag).or_default().push(event.hook);
            }
            assert!((50..200).contains(&ways.len()), "{}", ways.len());
            let expected = ways.values().next().unwrap();
            let mut sorted = expected.clone();
            sorted.sort();
            for way in ways.values() {
                let mut way = way.clone();
                way.sort();
                assert_eq!(way, sorted);
            }
            // Others are there for the order within their socket.
            if header.hooks.contains(&Hook::SocketQueue.name().to_owned()) {
                let others = events.iter().filter(|event| event.flags.has(Flags::OTHER)).count();
                assert!(others > 500, "{others}");
            }
        });
    }
}
