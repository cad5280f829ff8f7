// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marks of user programs: what a program did when, for which packet, written into memory that a
//! collector reads. A mark costs a reading of the clock and a few nanoseconds; without a collector
//! that listens, one load.
//!
//! Each thread has a ring of its own, a file in memory. One thread writes it and one collector
//! reads it: no lock, no system call, no allocation in a mark. A ring that is full keeps what it
//! has, and what finds no room is counted.
//!
//! Not here: the bytes of the file (`layout`), marks from C (`timewire_mark.h`), what marks come to
//! (`timewire-capture`).

mod layout;
mod place;
mod reader;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use layout::{Entry, Head, Kind};
use place::{Directory, Hold, Role, Spec};

use crate::namespace::effective_user;
pub use place::{RunPlace, VARIABLE};
pub use reader::{Mark, News, Reader, Totals, Users};

/// The tag of a message with Timewire's own header: its stream and its number in it.
pub const fn tag(stream: u32, seq: u32) -> u64 {
    // The const form of two lossless conversions.
    u64::from_le_bytes({
        let (stream, seq) = (stream.to_le_bytes(), seq.to_le_bytes());
        [seq[0], seq[1], seq[2], seq[3], stream[0], stream[1], stream[2], stream[3]]
    })
}

/// A point of a program at which it puts marks ([`Markers::point`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point(u16);

/// A sum that a program keeps ([`Markers::counter`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(u16);

/// How often which values came, by powers of two ([`Markers::histogram`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram(u16);

impl Point {
    /// The number of a point that there is not: its marks are counted and go nowhere.
    pub const NONE: Point = Point(u16::MAX);

    /// Its number in its ring.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The point with this number in its ring.
    pub const fn from_number(number: u16) -> Point {
        Point(number)
    }
}

impl Counter {
    /// The one that is there.
    pub const fn from_number(number: u16) -> Counter {
        Counter(number)
    }

    /// Where its value is.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl Histogram {
    /// The one that is there.
    pub const fn from_number(number: u16) -> Histogram {
        Histogram(number)
    }

    /// Where its values are.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// What a mark needs of a ring: `struct tw_marker` of `timewire_mark.h`, whose inline functions do
/// what those of [`Markers`] do.
#[derive(Debug)]
#[repr(C)]
pub struct RawMarkers {
    base: *mut u8,
    cpu: *const AtomicU32,
    /// What reads the clock from C.
    clock: unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int,
    /// Number of the next record.
    next: Cell<u64>,
    /// The first number for which there may be no room.
    limit: Cell<u64>,
    /// Records of the ring less one.
    mask: u64,
    /// Its logarithm.
    shift: u32,
    /// Words for counters and histograms.
    words: u32,
}

/// What a thread without a ring looks at: nobody listens.
static NOBODY: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
const _: () = assert!(layout::AT_LISTENING < 64 * 4);
/// The CPU of a thread that cannot know it.
static NO_CPU: AtomicU32 = AtomicU32::new(u32::MAX);

/// The ring of the thread that opened it. It stays with that thread.
///
/// A child process that goes on without `exec` must not use those of its parent.
#[derive(Debug)]
pub struct Markers {
    raw: RawMarkers,
    ring: Option<Ring>,
    points: RefCell<Points>,
    stays: PhantomData<*mut ()>,
}

/// The file behind a ring.
#[derive(Debug)]
struct Ring {
    file: File,
    directory: Directory,
    name: String,
    bytes: usize,
}

/// What has been named.
#[derive(Debug, Default)]
struct Points {
    entries: Vec<Entry>,
    words: usize,
}

impl Markers {
    /// Records of a ring that is asked for nothing else: 11 ms at 1.5 million marks per second.
    pub const USUAL: u32 = 1 << 14;
    /// Points, counters and histograms of a thread at most.
    pub const POINTS: usize = layout::POINTS;
    /// **Units**: bytes of a name.
    pub const NAME: usize = layout::NAME_ROOM;

    /// A ring for the calling thread, in the directory that [`VARIABLE`] names, or else in
    /// `/dev/shm/timewire-markers-USER`. With the variable `off` it is [`Markers::off`].
    ///
    /// `records` are rounded up to a power of two, 64 to 1048576. All memory is taken now: 32 bytes
    /// for each, and 16 KiB.
    ///
    /// **Errors**: no memory; the directory cannot be used, is not the user's, or could be meddled
    /// with by others.
    pub fn open(records: u32) -> io::Result<Markers> {
        match Spec::of_environment() {
            Spec::Off => Ok(Markers::off()),
            Spec::At(path) => Markers::open_at(&path, records),
            Spec::Usual => Markers::open_at(&place::of_user(effective_user()), records),
        }
    }

    /// The same for programs that go on without it.
    pub fn open_or_off() -> Markers {
        Markers::open(Markers::USUAL).unwrap_or_else(|_| Markers::off())
    }

    /// No ring: marks go nowhere, and cost what they cost when nobody listens.
    pub fn off() -> Markers {
        let raw = RawMarkers {
            base: NOBODY.as_ptr().cast::<u8>().cast_mut(),
            cpu: &raw const NO_CPU,
            clock: libc::clock_gettime,
            next: Cell::new(0),
            limit: Cell::new(0),
            mask: 0,
            shift: 0,
            words: 0,
        };
        Markers { raw, ring: None, points: RefCell::default(), stays: PhantomData }
    }

    /// A ring in this directory.
    ///
    /// **Errors**: as [`Markers::open`].
    pub fn open_at(directory: &Path, records: u32) -> io::Result<Markers> {
        let about = |error: io::Error| {
            io::Error::new(error.kind(), format!("marks in {}: {error}", directory.display()))
        };
        let own = effective_user();
        let directory = Directory::open(directory, own, true).map_err(about)?;
        let is_awaited = is_awaited(&directory, own);
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(&directory, is_awaited));

        let capacity = records.clamp(layout::FEWEST, layout::MAX_SLOTS).next_power_of_two();
        let head = Head {
            capacity,
            process: std::process::id(),
            thread: thread_number(),
            opened_ns: now_ns(),
            name: thread_name(),
        };
        let (file, name) = make(&directory, &head).map_err(about)?;
        let (ring, base) = Ring::map(file, directory, name, &head).map_err(about)?;
        let raw = RawMarkers {
            base,
            cpu: own_cpu(),
            clock: libc::clock_gettime,
            next: Cell::new(0),
            limit: Cell::new(u64::from(capacity)),
            mask: u64::from(capacity - 1),
            shift: capacity.trailing_zeros(),
            words: u32::try_from(layout::WORDS).expect("invariant: a thousand"),
        };
        let markers =
            Markers { raw, ring: Some(ring), points: RefCell::default(), stays: PhantomData };
        let raw = &markers.raw;
        raw.word(layout::AT_READ + 8).store(u64::MAX, Ordering::Relaxed);
        raw.listening().store(u32::from(is_awaited), Ordering::Relaxed);
        let bytes = head.to_bytes();
        for at in (8..layout::HEAD).step_by(8) {
            raw.word(at).store(u64::from_ne_bytes(word_of(&bytes, at)), Ordering::Relaxed);
        }
        // From here on a collector takes it for a ring.
        raw.word(0).store(u64::from_ne_bytes(word_of(&bytes, 0)), Ordering::Release);
        Ok(markers)
    }

    /// Whether there is a ring.
    pub fn is_open(&self) -> bool {
        self.ring.is_some()
    }

    /// Whether a collector listens.
    #[inline]
    pub fn is_listened_to(&self) -> bool {
        self.raw.listening().load(Ordering::Relaxed) != 0
    }

    /// Marks that no collector has taken yet.
    pub fn unread(&self) -> u64 {
        if !self.is_open() {
            return 0;
        }
        let read = u64::from_le(self.raw.word(layout::AT_READ).load(Ordering::Relaxed));
        self.raw.next.get().wrapping_sub(read)
    }

    /// What a mark needs, for code that writes it by itself; valid as long as this is.
    pub fn raw(&self) -> *const RawMarkers {
        &raw const self.raw
    }

    /// A point of this name; the same for the same name. Threads of a process that give a point the
    /// same name have one point in the capture.
    ///
    /// **Errors**: the name is empty, longer than [`Markers::NAME`] bytes, has control characters,
    /// or is that of a counter or histogram; [`Markers::POINTS`] are there.
    pub fn point(&self, name: &str) -> io::Result<Point> {
        self.entry(Kind::Mark, name).map(|(number, _)| Point(number))
    }

    /// A sum of this name, 0 at first.
    ///
    /// **Errors**: as [`Markers::point`]; there is no room for its value.
    pub fn counter(&self, name: &str) -> io::Result<Counter> {
        self.entry(Kind::Counter, name).map(|(_, slot)| Counter(slot))
    }

    /// A histogram of this name. There is room for 15.
    ///
    /// **Errors**: as [`Markers::counter`].
    pub fn histogram(&self, name: &str) -> io::Result<Histogram> {
        self.entry(Kind::Histogram, name).map(|(_, slot)| Histogram(slot))
    }

    fn entry(&self, kind: Kind, name: &str) -> io::Result<(u16, u16)> {
        let wrong = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !layout::is_name(name) {
            let most = Markers::NAME;
            return wrong(format!("the name {name:?}: 1 to {most} bytes, no control characters"));
        }
        let mut points = self.points.borrow_mut();
        if let Some(number) = points.entries.iter().position(|it| it.name == name) {
            let entry = &points.entries[number];
            if entry.kind != kind {
                return wrong(format!("{name:?} is the name of something else already"));
            }
            return Ok((short(number), entry.slot));
        }
        let number = points.entries.len();
        if number == layout::POINTS {
            return wrong(format!("{name:?}: {number} points are there, and there is no room"));
        }
        let slot = points.words;
        if slot + kind.words() > layout::WORDS {
            return wrong(format!("{name:?}: no room for its values"));
        }
        let entry = Entry { kind, slot: short(slot), name: name.to_owned() };
        if self.is_open() {
            let bytes = entry.to_bytes();
            for at in (0..layout::POINT).step_by(8) {
                let word = self.raw.word(layout::AT_TABLE + number * layout::POINT + at);
                word.store(u64::from_ne_bytes(word_of(&bytes, at)), Ordering::Relaxed);
            }
            let count = u64::from(short(number)) + 1;
            self.raw.word(layout::AT_POINTS).store(count.to_le(), Ordering::Release);
        }
        points.words += kind.words();
        let slot = entry.slot;
        points.entries.push(entry);
        Ok((short(number), slot))
    }

    /// Says that the program is at this point, with this packet ([`tag`]; 0 for none), and a value
    /// of its own. Nothing happens when nobody listens.
    #[inline]
    pub fn mark(&self, point: Point, tag: u64, value: u64) {
        self.raw.mark(point, tag, value);
    }

    /// The same for a time that is known already.
    ///
    /// **Units**: `at_ns` is nanoseconds of `CLOCK_MONOTONIC`.
    #[inline]
    pub fn mark_at(&self, point: Point, at_ns: u64, tag: u64, value: u64) {
        if self.is_listened_to() && self.raw.has_room() {
            self.raw.put(point, at_ns, tag, value);
        }
    }

    /// Adds to a sum, whether somebody listens or not; it wraps.
    #[inline]
    pub fn count(&self, counter: Counter, more: u64) {
        self.raw.count(counter, more);
    }

    /// Counts a value in a histogram, whether somebody listens or not.
    #[inline]
    pub fn observe(&self, histogram: Histogram, value: u64) {
        self.raw.observe(histogram, value);
    }
}

impl RawMarkers {
    /// [`Markers::mark`].
    #[inline]
    pub fn mark(&self, point: Point, tag: u64, value: u64) {
        if self.listening().load(Ordering::Relaxed) != 0 && self.has_room() {
            self.put(point, now_ns(), tag, value);
        }
    }

    /// [`Markers::count`].
    #[inline]
    pub fn count(&self, counter: Counter, more: u64) {
        self.add(u32::from(counter.0), 1, 0, more);
    }

    /// [`Markers::observe`].
    #[inline]
    pub fn observe(&self, histogram: Histogram, value: u64) {
        let words = layout::HISTOGRAM_WORDS;
        let bits = usize::try_from(u64::BITS - value.leading_zeros()).unwrap_or(0);
        let slot = u32::from(histogram.0);
        self.add(slot, words, bits, 1);
        self.add(slot, words, layout::BUCKETS, value);
    }

    /// **Panics** never: the offset is a constant of the layout.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: callers give offsets inside the mapping, which is aligned to a page, in multiples
        // of eight; with no ring only `listening` is looked at. Whoever else has the file mapped
        // may write at any time, which atomics allow. The mapping lives as long as `self`.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }
    }

    #[inline]
    fn listening(&self) -> &AtomicU32 {
        // SAFETY: as in `word`; the block of a thread without a ring has it, too.
        unsafe { &*self.base.add(layout::AT_LISTENING).cast::<AtomicU32>() }
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.next.get() != self.limit.get() || self.has_new_room()
    }

    /// Asks how far the collector has come.
    #[cold]
    fn has_new_room(&self) -> bool {
        let read = u64::from_le(self.word(layout::AT_READ).load(Ordering::Acquire));
        let check = u64::from_le(self.word(layout::AT_READ + 8).load(Ordering::Acquire));
        let next = self.next.get();
        // Both are written by one call, which might be seen half done.
        if check == !read && next.wrapping_sub(read) <= self.mask {
            self.limit.set(read.wrapping_add(self.mask + 1));
            return true;
        }
        let lost = self.word(layout::AT_LOST);
        let more = u64::from_le(lost.load(Ordering::Relaxed)).wrapping_add(1);
        lost.store(more.to_le(), Ordering::Relaxed);
        false
    }

    #[inline]
    fn put(&self, point: Point, at_ns: u64, tag: u64, value: u64) {
        let next = self.next.get();
        let lap = (next >> self.shift).wrapping_add(1) & 0xffff;
        // SAFETY: `cpu` points to this thread's own area, which the kernel writes and which lives
        // as long as the thread does, or to a static; `Markers` does not leave its thread.
        let cpu = u64::from(unsafe { &*self.cpu }.load(Ordering::Relaxed)) & 0xffff;
        let last = u64::from(point.0) | lap << 16 | cpu << 32;
        let index = usize::try_from(next & self.mask).expect("invariant: at most a million");
        let at = layout::AT_RECORDS + index * layout::RECORD;
        for (offset, word) in [(0, at_ns), (8, tag), (16, value), (24, last)] {
            self.word(at + offset).store(word.to_le(), Ordering::Relaxed);
        }
        self.next.set(next.wrapping_add(1));
        self.word(layout::AT_WRITTEN).store(next.wrapping_add(1).to_le(), Ordering::Release);
    }

    #[inline]
    fn add(&self, slot: u32, words: usize, offset: usize, more: u64) {
        let slot = usize::try_from(slot).expect("invariant: 16 bits");
        if slot + words > usize::try_from(self.words).expect("invariant: a thousand") {
            return;
        }
        // The one thread that writes it.
        let word = self.word(layout::AT_VALUES + (slot + offset) * 8);
        let sum = u64::from_le(word.load(Ordering::Relaxed)).wrapping_add(more);
        word.store(sum.to_le(), Ordering::Relaxed);
    }
}

impl Ring {
    /// Reserves the memory and maps it; the file is gone when that fails.
    fn map(
        file: File,
        directory: Directory,
        name: String,
        head: &Head,
    ) -> io::Result<(Ring, *mut u8)> {
        let map = || {
            let length = libc::off_t::try_from(head.file_bytes()).map_err(io::Error::other)?;
            // Memory that is missing is an error here, and a signal in a mark otherwise.
            // SAFETY: a live descriptor and integers.
            let result = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) };
            if result != 0 {
                return Err(io::Error::from_raw_os_error(result));
            }
            let bytes = usize::try_from(length).map_err(io::Error::other)?;
            // SAFETY: a shared mapping of a file with no address hint has no preconditions.
            let base = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_POPULATE,
                    file.as_raw_fd(),
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok((base.cast::<u8>(), bytes))
        };
        match map() {
            Ok((base, bytes)) => Ok((Ring { file, directory, name, bytes }, base)),
            Err(error) => {
                let _ = directory.remove(&name);
                Err(error)
            }
        }
    }
}

impl Drop for Markers {
    fn drop(&mut self) {
        let Some(ring) = self.ring.take() else { return };
        // The last marks are written before anybody finds the lock free.
        fence(Ordering::SeqCst);
        let is_read = place::is_held(&ring.file, Role::Reader);
        let is_awaited = self.is_listened_to() && is_awaited(&ring.directory, effective_user());
        // Who reads it, or will, removes it.
        if !is_read && !is_awaited {
            let _ = ring.directory.remove(&ring.name);
        }
        // SAFETY: the mapping was made with this size, and nothing uses it after this; `raw` goes
        // with `self`.
        unsafe { libc::munmap(self.raw.base.cast(), ring.bytes) };
    }
}

/// Whether a collector is there that will find a ring in this directory.
fn is_awaited(directory: &Directory, own: u32) -> bool {
    directory.is_listened_to(place::LISTENING, &[0, own])
        || Directory::open(Path::new(place::SHARED), own, false)
            .is_ok_and(|it| it.is_listened_to(place::LISTENING_TO_ALL, &[0]))
}

/// Removes what killed programs left and nobody reads.
fn sweep(directory: &Directory, is_awaited: bool) {
    if is_awaited {
        return;
    }
    for name in directory.rings(reader::MAX_NAMES) {
        let Ok(file) = directory.existing(&name, true) else { continue };
        // One that is being made has its lock from its first moment, but for one; it is empty then.
        let is_made = file.metadata().is_ok_and(|it| it.is_file() && it.len() > 0);
        if is_made && !place::is_held(&file, Role::Writer) && !place::is_held(&file, Role::Reader) {
            let _ = directory.remove(&name);
        }
    }
}

/// A file that is new and locked.
fn make(directory: &Directory, head: &Head) -> io::Result<(File, String)> {
    // The same numbers can be in use in another process namespace, or left over.
    for attempt in 0..1_000 {
        let name = format!("{}-{}-{attempt}{}", head.process, head.thread, place::SUFFIX);
        match directory.make(&name) {
            Ok(file) => {
                if place::hold(&file, Role::Writer, Hold::Alone)? {
                    return Ok((file, name));
                }
                let _ = directory.remove(&name);
                return Err(io::Error::other("somebody else has locked the new file"));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("a thousand files of this thread are there"))
}

/// Where the kernel says on which CPU this thread runs, if it does.
fn own_cpu() -> *const AtomicU32 {
    /// Where `cpu_id` is in `struct rseq`: `linux v6.12 include/uapi/linux/rseq.h`.
    const CPU: isize = 4;
    // SAFETY: texts that end with a zero; the answers are null or symbols of the C library that are
    // of these types (`sys/rseq.h` of the GNU C library 2.35 and later).
    let (offset, size) = unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
        if offset.is_null() || size.is_null() {
            return &raw const NO_CPU;
        }
        (*offset.cast::<libc::ptrdiff_t>(), *size.cast::<libc::c_uint>())
    };
    match (size, thread_pointer()) {
        (1.., Some(thread)) => thread.wrapping_offset(offset + CPU).cast(),
        _ => &raw const NO_CPU,
    }
}

fn thread_pointer() -> Option<*const u8> {
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
    {
        let pointer: *const u8;
        // SAFETY: the first word of a thread's block is its own address (System V ABI, thread-local
        // storage); reading it touches nothing else.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) pointer,
                options(nostack, readonly, preserves_flags));
        }
        Some(pointer)
    }
    #[cfg(target_arch = "aarch64")]
    {
        let pointer: *const u8;
        // SAFETY: reads a register.
        unsafe {
            std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer,
                options(nomem, nostack, preserves_flags));
        }
        Some(pointer)
    }
    #[cfg(not(any(
        all(target_arch = "x86_64", target_pointer_width = "64"),
        target_arch = "aarch64"
    )))]
    None
}

fn thread_number() -> u32 {
    // SAFETY: gettid() has no preconditions and cannot fail.
    u32::try_from(unsafe { libc::gettid() }).unwrap_or(0)
}

/// From the kernel itself: what was looked up in `/proc/thread-self` has to be forgotten by who
/// waits for the process, and Linux 6.12 spins there (`fs/dcache.c:shrink_dcache_parent`) until
/// another thread is through with the same. Where computing takes no time that is for ever.
fn thread_name() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, the last of them zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..length]).into_owned()
}

/// **Units**: nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill in, and the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec
        .cast_unsigned()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec.cast_unsigned())
}

fn word_of(bytes: &[u8], at: usize) -> [u8; 8] {
    *bytes[at..].first_chunk().expect("invariant: a multiple of eight inside the bytes")
}

fn short(value: usize) -> u16 {
    u16::try_from(value).expect("invariant: points and words are a thousand at most")
}
