// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A collector of marks. It finds rings, says that it listens, takes what is in them, and removes
//! the files of programs that have ended.
//!
//! Files are read with `pread` and never mapped: who writes one could cut it short at any time.
//! What they say is believed of nothing but themselves.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use super::layout::{self, Entry, Head, Kind, Record, lap, u64_at};
use super::now_ns;
use super::place::{self, Directory, Hold, Role, Spec};
use crate::namespace::effective_user;

/// Files of a directory that are looked at.
pub(super) const MAX_NAMES: usize = 4_096;
/// Rings that are read at a time.
const MAX_RINGS: usize = 2_048;
/// Names of points over all processes.
const MAX_POINTS: usize = 65_536;
/// Records taken with one call.
const BATCH: usize = 2_048;
/// How often new rings and ended programs are looked for. **Units**: ns.
const LOOK_NS: u64 = 20_000_000;
/// Times that a ring may say of itself what cannot be before what it has is given up.
const STRIKES: u32 = 3;

/// Whose marks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// The caller's and root's.
    Own,
    /// Everybody's that can be opened; for root. What they say is theirs to make up.
    All,
}

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// **Units**: ns of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The number of its point in the capture.
    pub point: u64,
    /// Which packet; 0 for none.
    pub tag: u64,
    /// The program's own value.
    pub value: u64,
    /// The thread, by its own account.
    pub thread: u32,
    /// Its CPU; 65535 when it is unknown.
    pub cpu: u16,
}

/// What a collector learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum News<'a> {
    /// A thread has a ring.
    Thread {
        /// Its number, by its own account.
        thread: u32,
        /// Its name when it opened the ring.
        name: &'a str,
    },
    /// A point that marks will have. Before the first of them.
    Point {
        /// Its number in the capture, from 1.
        point: u64,
        /// Whose it is, by its own account.
        process: u32,
        /// Its name.
        name: &'a str,
    },
    /// A mark. In the order of time for each thread, and in none between threads.
    Mark(Mark),
    /// What a counter has come to; not told again before it changes.
    Counter {
        /// Whose it is.
        process: u32,
        /// Which thread's; a process has the sum over its threads.
        thread: u32,
        /// Its name.
        name: &'a str,
        /// All that was added since the ring was opened.
        value: u64,
    },
    /// What a histogram has come to; not told again before it changes.
    Histogram {
        /// Whose it is.
        process: u32,
        /// Which thread's.
        thread: u32,
        /// Its name.
        name: &'a str,
        /// How often a value had 0 bits, 1 bit, ... 64 bits.
        buckets: &'a [u64; layout::BUCKETS],
        /// The sum of all values; it wraps.
        sum: u64,
    },
}

/// What became of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Marks that were told.
    pub told: u64,
    /// Marks that found their ring full.
    pub lost: u64,
    /// Records that were none, or of no known point.
    pub unsound: u64,
    /// Marks from before the reader was opened, left by another: not told.
    pub older: u64,
    /// Files that could not be read as rings, or may not, when it last looked.
    pub refused: u64,
}

/// Reads the marks of all programs. One reader has a ring at a time; another one waits for it.
#[derive(Debug)]
pub struct Reader {
    users: Users,
    own: u32,
    places: Vec<RingDirectory>,
    rings: Vec<Ring>,
    pub(super) shared: Shared,
    looked_ns: u64,
    /// Says that the rings of all users are read.
    awaits_all: Option<File>,
}

#[derive(Debug)]
struct RingDirectory {
    path: PathBuf,
    directory: Directory,
    /// Whose rings may be in it.
    owner: Option<u32>,
    /// Says that its rings are read.
    awaits: Option<File>,
}

/// What is common to all rings.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) since_ns: u64,
    totals: Totals,
    points: BTreeMap<(u32, String), u64>,
    batch: Box<[u8]>,
}

#[derive(Debug)]
struct Ring {
    place: usize,
    name: String,
    file: File,
    head: Head,
    read: u64,
    lost: u64,
    strikes: u32,
    points: Vec<Option<Known>>,
    values: Vec<u8>,
}

/// A point of a ring, or a counter or histogram.
#[derive(Debug)]
struct Known {
    entry: Entry,
    number: u64,
}

impl Reader {
    /// Reads rings in the directory that [`super::VARIABLE`] names, or else in those of the users
    /// under `/dev/shm`. From now on programs that start know that somebody listens.
    ///
    /// **Errors**: the own directory cannot be had.
    pub fn open(users: Users) -> io::Result<Reader> {
        match Spec::of_environment() {
            Spec::At(path) => Reader::open_at(&path, users),
            Spec::Off | Spec::Usual => {
                let own = effective_user();
                let mut reader = Reader::empty(users);
                reader.watch(&place::of_user(own), own, Some(own))?;
                if users == Users::All && own == 0 {
                    let shared = Directory::open(Path::new(place::SHARED), 0, false)?;
                    reader.awaits_all = Some(shared.listen(place::LISTENING_TO_ALL)?);
                }
                reader.look();
                Ok(reader)
            }
        }
    }

    /// Reads rings in this directory only.
    ///
    /// **Errors**: the directory cannot be had, is not the caller's or root's, or could be meddled
    /// with by others.
    pub fn open_at(directory: &Path, users: Users) -> io::Result<Reader> {
        let mut reader = Reader::empty(users);
        let owner = match users {
            Users::Own => Some(reader.own),
            Users::All => None,
        };
        reader.watch(directory, reader.own, owner)?;
        reader.look();
        Ok(reader)
    }

    fn empty(users: Users) -> Reader {
        let shared = Shared {
            since_ns: now_ns(),
            totals: Totals::default(),
            points: BTreeMap::new(),
            batch: vec![0; BATCH * layout::RECORD].into(),
        };
        Reader {
            users,
            own: effective_user(),
            places: Vec::new(),
            rings: Vec::new(),
            shared,
            looked_ns: 0,
            awaits_all: None,
        }
    }

    fn watch(&mut self, path: &Path, of: u32, owner: Option<u32>) -> io::Result<()> {
        let about = |error: io::Error| {
            io::Error::new(error.kind(), format!("marks in {}: {error}", path.display()))
        };
        let is_own = of == self.own;
        let directory = Directory::open(path, of, is_own).map_err(about)?;
        let awaits = is_own.then(|| directory.listen(place::LISTENING)).transpose();
        let awaits = awaits.map_err(about)?;
        self.places.push(RingDirectory { path: path.to_owned(), directory, owner, awaits });
        Ok(())
    }

    /// What became of marks until now.
    pub fn totals(&self) -> Totals {
        self.shared.totals
    }

    /// How many threads have a ring that is read.
    pub fn rings(&self) -> usize {
        self.rings.len()
    }

    /// Takes what there is; returns how many marks that was. Call it at least every few
    /// milliseconds: a ring has room for as many marks as its thread asked for. Looks for new rings
    /// and ended programs from time to time.
    pub fn drain(&mut self, on: &mut impl FnMut(News<'_>)) -> u64 {
        let before = self.shared.totals.told;
        let looks = now_ns().wrapping_sub(self.looked_ns) >= LOOK_NS;
        if looks {
            self.look();
        }
        self.take(on);
        if looks {
            self.bury(on);
        }
        self.shared.totals.told - before
    }

    pub(super) fn take(&mut self, on: &mut impl FnMut(News<'_>)) {
        for ring in &mut self.rings {
            ring.tell_thread_once(on);
            ring.drain(&mut self.shared, on);
        }
    }

    /// Tells counters and histograms that have changed. Once a second is usual.
    pub fn values(&mut self, on: &mut impl FnMut(News<'_>)) {
        for ring in &mut self.rings {
            ring.tell_values(&mut self.shared, on);
        }
    }

    /// Stops listening, and takes what is left.
    pub fn finish(mut self, on: &mut impl FnMut(News<'_>)) -> Totals {
        self.look();
        self.awaits_all = None;
        for place in &mut self.places {
            place.awaits = None;
        }
        for ring in &self.rings {
            ring.listen(false);
        }
        self.take(on);
        self.bury(on);
        self.values(on);
        self.shared.totals
    }

    /// Looks for directories and rings that are new.
    pub(super) fn look(&mut self) {
        self.looked_ns = now_ns();
        if self.awaits_all.is_some() {
            self.look_for_users();
        }
        self.shared.totals.refused = 0;
        for place in 0..self.places.len() {
            for name in self.places[place].directory.rings(MAX_NAMES) {
                let is_known = |ring: &Ring| ring.place == place && ring.name == name;
                if self.rings.len() >= MAX_RINGS || self.rings.iter().any(is_known) {
                    continue;
                }
                match self.attach(place, &name) {
                    Ok(Some(ring)) => self.rings.push(ring),
                    Ok(None) => {}
                    Err(_) => self.shared.totals.refused += 1,
                }
            }
        }
    }

    fn look_for_users(&mut self) {
        let Ok(shared) = Directory::open(Path::new(place::SHARED), 0, false) else { return };
        for name in shared.names(MAX_NAMES).unwrap_or_default() {
            let Some(user) = place::user_of(&name) else { continue };
            let path = place::of_user(user);
            if self.places.iter().all(|it| it.path != path) {
                // One that is not its user's is passed over.
                let _ = self.watch(&path, user, Some(user));
            }
        }
    }

    /// Begins to read a ring; `None` when there is none yet, or another reader has it.
    fn attach(&self, place: usize, name: &str) -> io::Result<Option<Ring>> {
        let RingDirectory { directory, owner, .. } = &self.places[place];
        let file = match directory.existing(name, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let about = file.metadata()?;
        if !self.may_be_read(&about, *owner) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut bytes = [0; layout::HEAD];
        let head = match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Head::from_bytes(&bytes),
            Err(_) => None,
        };
        let Some(head) = head.filter(|head| about.len() >= head.file_bytes()) else {
            if about.len() > 0 && !place::is_held(&file, Role::Writer) {
                // Who began to make it has ended.
                let _ = directory.remove(name);
            }
            return Err(io::ErrorKind::InvalidData.into());
        };
        if !place::hold(&file, Role::Reader, Hold::Alone)? {
            return Ok(None);
        }
        let [read, check] = words(&file, layout::AT_READ)?;
        let [written, lost] = words(&file, layout::AT_WRITTEN)?;
        let is_sound = check == !read && written.wrapping_sub(read) <= u64::from(head.capacity);
        let is_new = head.opened_ns >= self.shared.since_ns;
        let ring = Ring {
            place,
            name: name.to_owned(),
            file,
            read: if is_sound { read } else { written },
            lost: if is_new { 0 } else { lost },
            head,
            strikes: 0,
            points: Vec::new(),
            values: Vec::new(),
        };
        ring.acknowledge();
        ring.listen(true);
        Ok(Some(ring))
    }

    fn may_be_read(&self, about: &Metadata, owner: Option<u32>) -> bool {
        let user = about.uid();
        let is_believed = match owner {
            Some(owner) => user == owner || user == 0,
            None => self.users == Users::All || user == self.own || user == 0,
        };
        // A second name for a file could be anybody's.
        about.is_file() && about.nlink() == 1 && is_believed
    }

    /// Takes what is left of programs that have ended, and removes their files.
    pub(super) fn bury(&mut self, on: &mut impl FnMut(News<'_>)) {
        let mut at = 0;
        while at < self.rings.len() {
            if !self.rings[at].is_over() {
                at += 1;
                continue;
            }
            let mut ring = self.rings.swap_remove(at);
            // What it wrote between the last look and its end; if it makes no sense, it never will.
            for _ in 0..STRIKES {
                ring.drain(&mut self.shared, on);
            }
            ring.tell_values(&mut self.shared, on);
            let _ = self.places[ring.place].directory.remove(&ring.name);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        for ring in &self.rings {
            ring.listen(false);
        }
    }
}

impl Ring {
    fn listen(&self, listens: bool) {
        // A file that was cut short is not made longer.
        if self.is_whole() {
            let _ = self
                .file
                .write_all_at(&u32::from(listens).to_le_bytes(), u64_of(layout::AT_LISTENING));
        }
    }

    fn acknowledge(&self) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.read.to_le_bytes());
        bytes[8..].copy_from_slice(&(!self.read).to_le_bytes());
        if self.is_whole() {
            let _ = self.file.write_all_at(&bytes, u64_of(layout::AT_READ));
        }
    }

    fn is_whole(&self) -> bool {
        self.file.metadata().is_ok_and(|it| it.len() >= self.head.file_bytes())
    }

    /// Whether nobody will write it any more.
    fn is_over(&self) -> bool {
        !place::is_held(&self.file, Role::Writer) || !self.is_whole()
    }

    fn tell_thread_once(&mut self, on: &mut impl FnMut(News<'_>)) {
        let name = std::mem::take(&mut self.head.name);
        if !name.is_empty() {
            on(News::Thread { thread: self.head.thread, name: &name });
        }
    }

    fn drain(&mut self, shared: &mut Shared, on: &mut impl FnMut(News<'_>)) {
        let Ok([written, lost]) = words(&self.file, layout::AT_WRITTEN) else { return };
        // Whoever reads records now sees what was written before that number.
        fence(Ordering::Acquire);
        shared.totals.lost = shared.totals.lost.saturating_add(lost.saturating_sub(self.lost));
        self.lost = self.lost.max(lost);
        let capacity = u64::from(self.head.capacity);
        let mut left = written.wrapping_sub(self.read);
        if left > capacity {
            // Seen half written, or made up.
            self.strikes += 1;
            if self.strikes >= STRIKES {
                shared.totals.unsound = shared.totals.unsound.saturating_add(1);
                (self.read, self.strikes) = (written, 0);
                self.acknowledge();
            }
            return;
        }
        self.strikes = 0;
        if left == 0 {
            return;
        }
        let mut batch = std::mem::take(&mut shared.batch);
        while left > 0 {
            let index = self.read & (capacity - 1);
            let count = left.min(capacity - index).min(u64_of(BATCH));
            let bytes = usize::try_from(count).expect("invariant: a batch") * layout::RECORD;
            let at = u64_of(layout::AT_RECORDS) + index * u64_of(layout::RECORD);
            if self.file.read_exact_at(&mut batch[..bytes], at).is_err() {
                shared.totals.unsound = shared.totals.unsound.saturating_add(left);
                self.read = written;
                break;
            }
            for (number, bytes) in (0..).zip(batch[..bytes].chunks_exact(layout::RECORD)) {
                self.take(self.read.wrapping_add(number), Record::from_bytes(bytes), shared, on);
            }
            self.read = self.read.wrapping_add(count);
            left -= count;
        }
        shared.batch = batch;
        self.acknowledge();
    }

    fn take(
        &mut self,
        index: u64,
        record: Record,
        shared: &mut Shared,
        on: &mut impl FnMut(News<'_>),
    ) {
        if record.lap != lap(index, self.head.capacity) {
            shared.totals.unsound += 1;
            return;
        }
        if record.at_ns < shared.since_ns {
            shared.totals.older += 1;
            return;
        }
        let number = usize::from(record.point);
        if number >= self.points.len() && number < layout::POINTS {
            self.learn(shared, on);
        }
        let point = match self.points.get(number) {
            Some(Some(known)) if known.entry.kind == Kind::Mark => known.number,
            _ => {
                shared.totals.unsound += 1;
                return;
            }
        };
        shared.totals.told += 1;
        on(News::Mark(Mark {
            at_ns: record.at_ns,
            point,
            tag: record.tag,
            value: record.value,
            thread: self.head.thread,
            cpu: record.cpu,
        }));
    }

    /// Reads the points that are new in the table.
    fn learn(&mut self, shared: &mut Shared, on: &mut impl FnMut(News<'_>)) {
        let Ok([count]) = words(&self.file, layout::AT_POINTS) else { return };
        fence(Ordering::Acquire);
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(layout::POINTS);
        while self.points.len() < count {
            let mut bytes = [0; layout::POINT];
            let at = layout::AT_TABLE + self.points.len() * layout::POINT;
            if self.file.read_exact_at(&mut bytes, u64_of(at)).is_err() {
                return;
            }
            let entry = Entry::from_bytes(&bytes);
            let known = entry.and_then(|entry| self.number(entry, shared, on));
            self.points.push(known);
        }
    }

    fn number(
        &self,
        entry: Entry,
        shared: &mut Shared,
        on: &mut impl FnMut(News<'_>),
    ) -> Option<Known> {
        if entry.kind != Kind::Mark {
            return Some(Known { entry, number: 0 });
        }
        let process = self.head.process;
        let key = (process, entry.name.clone());
        if let Some(&number) = shared.points.get(&key) {
            return Some(Known { entry, number });
        }
        if shared.points.len() >= MAX_POINTS {
            return None;
        }
        let number = u64_of(shared.points.len()) + 1;
        shared.points.insert(key, number);
        on(News::Point { point: number, process, name: &entry.name });
        Some(Known { entry, number })
    }

    fn tell_values(&mut self, shared: &mut Shared, on: &mut impl FnMut(News<'_>)) {
        self.learn(shared, on);
        if self.points.iter().flatten().all(|it| it.entry.kind == Kind::Mark) {
            return;
        }
        let mut now = vec![0; layout::WORDS * 8];
        if self.file.read_exact_at(&mut now, u64_of(layout::AT_VALUES)).is_err() {
            return;
        }
        // What has never been told is told also when it is zero.
        self.values.resize(now.len(), 0xff);
        let (process, thread) = (self.head.process, self.head.thread);
        for Known { entry, .. } in self.points.iter().flatten() {
            let from = usize::from(entry.slot) * 8;
            let range = from..from + entry.kind.words() * 8;
            if now[range.clone()] == self.values[range.clone()] {
                continue;
            }
            let (name, bytes) = (entry.name.as_str(), &now[range]);
            match entry.kind {
                Kind::Mark => {}
                Kind::Counter => {
                    on(News::Counter { process, thread, name, value: u64_at(bytes, 0) });
                }
                Kind::Histogram => {
                    let buckets = &std::array::from_fn(|bits| u64_at(bytes, bits * 8));
                    let sum = u64_at(bytes, layout::BUCKETS * 8);
                    on(News::Histogram { process, thread, name, buckets, sum });
                }
            }
        }
        self.values = now;
    }
}

fn words<const N: usize>(file: &File, at: usize) -> io::Result<[u64; N]> {
    let mut bytes = [0; 24];
    let bytes = &mut bytes[..N * 8];
    file.read_exact_at(bytes, u64_of(at))?;
    Ok(std::array::from_fn(|word| u64_at(bytes, word * 8)))
}

fn u64_of(value: usize) -> u64 {
    u64::try_from(value).expect("invariant: an offset fits 64 bits")
}
