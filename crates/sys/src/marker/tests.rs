// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marks from the program to the collector: order, wrap, loss, ends of both sides, and files that
//! lie.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use tempfile::TempDir;

use super::layout::{self, AT_LISTENING, AT_LOST, AT_READ, AT_WRITTEN, Head};
use super::*;

/// A directory of its own that is made by whom it is given to, gone at the end.
struct TestDirectory {
    path: PathBuf,
    _beneath: TempDir,
}

impl TestDirectory {
    fn new() -> TestDirectory {
        let beneath = tempfile::tempdir().unwrap();
        TestDirectory { path: beneath.path().join("marks"), _beneath: beneath }
    }

    fn reader(&self) -> Reader {
        Reader::open_at(&self.path, Users::Own).unwrap()
    }

    fn ring(&self, records: u32) -> Markers {
        Markers::open_at(&self.path, records).unwrap()
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.path).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|it| it == "ring")).collect()
    }
}
#[derive(Default)]
struct Heard {
    marks: Vec<Mark>,
    points: Vec<(u64, u32, String)>,
    threads: Vec<(u32, String)>,
    counters: Vec<(String, u64)>,
    histograms: Vec<(String, u64, u64, u64)>,
}

impl Heard {
    fn hear(&mut self, news: News<'_>) {
        match news {
            News::Mark(mark) => self.marks.push(mark),
            News::Thread { thread, name } => self.threads.push((thread, name.to_owned())),
            News::Point { point, process, name } => {
                self.points.push((point, process, name.to_owned()));
            }
            News::Counter { name, value, .. } => self.counters.push((name.to_owned(), value)),
            News::Histogram { name, buckets, sum, .. } => {
                self.histograms.push((
                    name.to_owned(),
                    buckets.iter().fold(0_u64, |sum, it| sum.wrapping_add(*it)),
                    buckets[3],
                    sum,
                ));
            }
        }
    }
}

fn drain(reader: &mut Reader) -> Heard {
    let mut heard = Heard::default();
    // Looks for new rings, too, however short the time was.
    reader.look();
    reader.take(&mut |news| heard.hear(news));
    reader.bury(&mut |news| heard.hear(news));
    heard
}

#[test]
fn t0_the_tag_has_the_stream_above_the_number() {
    assert_eq!(tag(7, 9), 7 << 32 | 9);
    assert_eq!(tag(u32::MAX, u32::MAX), u64::MAX);
}

#[test]
fn t3_marks_arrive_in_order_with_their_point_thread_and_cpu() {
    let place = TestDirectory::new();
    let mut reader = place.reader();
    let ring = place.ring(64);
    let (one, two) = (ring.point("one").unwrap(), ring.point("two").unwrap());
    assert_eq!(ring.point("one").unwrap(), one);
    let before = now_ns();
    ring.mark(two, tag(3, 4), 5);
    ring.mark(one, 0, u64::MAX);
    ring.mark_at(one, before + 1, 1, 2);
    let after = now_ns();
    let heard = drain(&mut reader);
    let seen: Vec<_> = heard.marks.iter().map(|it| (it.point, it.tag, it.value)).collect();
    assert_eq!(seen, [(2, 3 << 32 | 4, 5), (1, 0, u64::MAX), (1, 1, 2)]);
    assert!(heard.marks.iter().all(|it| (before..=after).contains(&it.at_ns)), "{before} {after}");
    assert!(heard.marks.iter().all(|it| it.thread == thread_number()));
    let process = std::process::id();
    assert_eq!(heard.points, [(1, process, "one".to_owned()), (2, process, "two".to_owned())]);
    assert_eq!(heard.threads.len(), 1);
    let names = fs::read_to_string("/proc/thread-self/comm").unwrap();
    assert_eq!(heard.threads[0], (thread_number(), names.trim_end().to_owned()));
    // Where the C library says where the kernel tells it, it is one that there is.
    if !std::ptr::eq(own_cpu(), &raw const NO_CPU) {
        let cpus = std::thread::available_parallelism().unwrap().get().max(4_096);
        assert!(heard.marks.iter().all(|it| usize::from(it.cpu) < cpus), "{:?}", heard.marks);
    }
}

#[test]
fn t3_the_ring_wraps_and_marks_go_on() {
    let place = TestDirectory::new();
    let mut reader = place.reader();
    let ring = place.ring(64);
    let point = ring.point("p").unwrap();
    let mut next = 0;
    for round in 0..200_u64 {
        let count = round % 65;
        for value in next..next + count {
            ring.mark(point, 0, value);
        }
        let heard = drain(&mut reader);
        let values: Vec<u64> = heard.marks.iter().map(|it| it.value).collect();
        assert_eq!(values, (next..next + count).collect::<Vec<_>>(), "round {round}");
        next += count;
    }
    assert!(next > 64 * 64);
    assert_eq!(reader.totals(), Totals { told: next, ..Totals::default() });
}

#[test]
fn t3_a_full_ring_keeps_what_it_has_and_counts_the_rest() {
    let place = TestDirectory::new();
    let mut reader = place.reader();
    let ring = place.ring(128);
    let point = ring.point("p").unwrap();
    for value in 0..300 {
        ring.mark(point, 0, value);
    }
    assert_eq!(ring.unread(), 128);
    let heard = drain(&mut reader);
    assert_eq!(ring.unread(), 0);
    let values: Vec<u64> = heard.marks.iter().map(|it| it.value).collect();
    assert_eq!(values, (0..128).collect::<Vec<_>>());
    assert_eq!((reader.totals().told, reader.totals().lost), (128, 172));
    ring.mark(point, 0, 300);
    assert_eq!(drain(&mut reader).marks.len(), 1);
    assert_eq!(reader.totals().lost, 172);
}

#[test]
fn t3_without_a_listener_nothing_is_written() {
    let place = TestDirectory::new();
    let ring = place.ring(64);
    let point = ring.point("p").unwrap();
    ring.mark(point, 0, 1);
    let bytes = fs::read(&place.files()[0]).unwrap();
    assert_eq!(layout::u64_at(&bytes, AT_WRITTEN), 0);
    assert!(bytes[layout::AT_RECORDS..].iter().all(|&byte| byte == 0));
    assert!(!ring.is_listened_to());

    let mut reader = place.reader();
    assert!(ring.is_listened_to());
    ring.mark(point, 0, 2);
    assert_eq!(drain(&mut reader).marks.len(), 1);
    drop(reader);
    assert!(!ring.is_listened_to());
    // The program ends, and leaves nothing.
    drop(ring);
    assert_eq!(place.files().len(), 0);
}

#[test]
fn t3_marks_of_a_thread_that_ends_at_once_are_read() {
    let place = TestDirectory::new();
    let mut reader = place.reader();
    let ends = || {
        let ring = place.ring(64);
        let point = ring.point("short").unwrap();
        ring.mark(point, 0, 1);
        let counter = ring.counter("all").unwrap();
        ring.count(counter, 5);
    };
    std::thread::scope(|scope| scope.spawn(ends).join().unwrap());
    let heard = drain(&mut reader);
    assert_eq!((heard.marks.len(), heard.counters), (1, vec![("all".to_owned(), 5)]));
    assert_eq!((place.files().len(), reader.rings()), (0, 0));
}

#[test]
fn t3_only_one_reader_has_a_ring_and_the_next_goes_on() {
    let place = TestDirectory::new();
    let (mut one, mut two) = (place.reader(), place.reader());
    let ring = place.ring(64);
    let point = ring.point("p").unwrap();
    ring.mark(point, 0, 1);
    assert_eq!(drain(&mut one).marks.len(), 1);
    assert_eq!(drain(&mut two).marks.len(), 0);
    drop(one);
    // As after a reader that was killed: it did not say that it does not listen any more.
    let file = fs::File::options().write(true).open(&place.files()[0]).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1, 0, 0, 0], 128).unwrap();
    for value in 2..102 {
        ring.mark(point, 0, value);
    }
    let heard = drain(&mut two);
    // The ring was opened after this reader, whose time it is that it found no room in.
    assert_eq!((heard.marks.len(), two.totals().lost), (64, 36));
    ring.mark(point, 0, 200);
    assert_eq!(drain(&mut two).marks.len(), 1);
}

#[test]
fn t3_what_was_marked_before_the_reader_came_is_not_told() {
    let place = TestDirectory::new();
    let first = place.reader();
    let ring = place.ring(64);
    let point = ring.point("p").unwrap();
    ring.mark(point, 0, 1);
    drop(first);
    let mut second = place.reader();
    ring.mark(point, 0, 2);
    let heard = drain(&mut second);
    assert_eq!(heard.marks.iter().map(|it| it.value).collect::<Vec<_>>(), [2]);
    assert_eq!(second.totals().older, 1);
}

#[test]
fn t3_two_threads_have_one_point_by_one_name() {
    let place = TestDirectory::new();
    let mut reader = place.reader();
    let work = |value| {
        let ring = place.ring(64);
        ring.point("own").unwrap();
        ring.mark(ring.point("same").unwrap(), 0, value);
    };
    let work = &work;
    std::thread::scope(|scope| {
        for value in [1, 2] {
            scope.spawn(move || work(value));
        }
    });
    let heard = drain(&mut reader);
    assert_eq!(heard.marks.len(), 2);
    assert_eq!(heard.marks[0].point, heard.marks[1].point);
    assert_ne!(heard.marks[0].thread, heard.marks[1].thread);
    assert_eq!(heard.points.len(), 2);
}

#[test]
fn t3_counters_and_histograms_are_told_when_they_change() {
    let place = TestDirectory::new();
    let mut reader = place.reader();
    let ring = place.ring(64);
    let (frames, sizes) = (ring.counter("frames").unwrap(), ring.histogram("sizes").unwrap());
    ring.count(frames, 2);
    ring.count(frames, 40);
    for value in [0, 1, 4, 7, 8, u64::MAX] {
        ring.observe(sizes, value);
    }
    reader.look();
    let told = |reader: &mut Reader| {
        let mut heard = Heard::default();
        reader.values(&mut |news| heard.hear(news));
        (heard.counters, heard.histograms)
    };
    let sum = 19;
    let (counters, histograms) = told(&mut reader);
    assert_eq!(counters, [("frames".to_owned(), 42)]);
    // 4 and 7 have three bits.
    assert_eq!(histograms, [("sizes".to_owned(), 6, 2, sum)]);
    assert_eq!(told(&mut reader), (vec![], vec![]));
    ring.count(frames, 1);
    assert_eq!(told(&mut reader).0, [("frames".to_owned(), 43)]);
}

#[test]
fn t3_names_and_room_have_ends() {
    let place = TestDirectory::new();
    let ring = place.ring(64);
    for name in ["", "a\nb", &"x".repeat(48)] {
        assert_eq!(ring.point(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
    }
    ring.point(&"x".repeat(47)).unwrap();
    assert!(ring.counter(&"x".repeat(47)).is_err());
    for number in 0..15 {
        ring.histogram(&format!("h{number}")).unwrap();
    }
    assert!(ring.histogram("h15").unwrap_err().to_string().contains("no room for its values"));
    for number in 16..layout::POINTS {
        ring.point(&format!("p{number}")).unwrap();
    }
    assert!(ring.point("more").unwrap_err().to_string().contains("64 points"));
}

#[test]
fn t3_points_of_an_off_ring_are_points_all_the_same() {
    let ring = Markers::off();
    let point = ring.point("p").unwrap();
    ring.mark(point, 1, 2);
    ring.count(ring.counter("c").unwrap(), 1);
    ring.observe(ring.histogram("h").unwrap(), 1);
    assert!(!ring.is_open() && !ring.is_listened_to());
}

/// Set in a child process of a test: the directory in which it marks until it is killed.
const CHILD: &str = "TIMEWIRE_TEST_MARKING_CHILD";

#[test]
fn t3_marks_of_a_killed_program_are_read_and_its_file_goes() {
    if let Some(path) = std::env::var_os(CHILD) {
        let ring = Markers::open_at(path.as_ref(), 1 << 12).unwrap();
        let point = ring.point("child").unwrap();
        for value in 0..1_000 {
            ring.mark(point, 0, value);
        }
        // SAFETY: kills this process, which is what is tested.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    let place = TestDirectory::new();
    let mut reader = place.reader();
    let name = "marker::tests::t3_marks_of_a_killed_program_are_read_and_its_file_goes";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(CHILD, &place.path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(place.files().len(), 1);
    let heard = drain(&mut reader);
    let values: Vec<u64> = heard.marks.iter().map(|it| it.value).collect();
    assert_eq!(values, (0..1_000).collect::<Vec<_>>());
    assert_eq!(heard.points, [(1, child.id(), "child".to_owned())]);
    assert_eq!(place.files().len(), 0);
}

#[test]
fn t3_marks_are_whole_while_another_thread_reads_them() {
    let place = TestDirectory::new();
    let mut reader = place.reader();
    let is_done = AtomicBool::new(false);
    const MARKS: u64 = 200_000;
    let heard = std::thread::scope(|scope| {
        scope.spawn(|| {
            let ring = place.ring(256);
            let point = ring.point("p").unwrap();
            for value in 0..MARKS {
                ring.mark(point, value, !value);
            }
            is_done.store(true, Ordering::Release);
        });
        let mut heard = Heard::default();
        while !is_done.load(Ordering::Acquire) {
            reader.drain(&mut |news| heard.hear(news));
        }
        heard
    });
    let mut marks = heard.marks;
    reader.look();
    reader.take(&mut |news| {
        if let News::Mark(mark) = news {
            marks.push(mark);
        }
    });
    let totals = reader.totals();
    assert_eq!((totals.told + totals.lost, totals.unsound), (MARKS, 0), "{totals:?}");
    assert!(marks.iter().all(|it| it.value == !it.tag));
    assert!(marks.is_sorted_by_key(|it| (it.tag, it.at_ns)));
}

#[test]
fn t3_directories_and_files_of_others_are_refused() {
    let place = TestDirectory::new();
    fs::create_dir(&place.path).unwrap();
    fs::set_permissions(&place.path, fs::Permissions::from_mode(0o777)).unwrap();
    let why = Markers::open_at(&place.path, 64).unwrap_err().to_string();
    assert!(why.contains("other users may remove files of it"), "{why}");
    fs::set_permissions(&place.path, fs::Permissions::from_mode(0o700)).unwrap();

    let elsewhere = TestDirectory::new();
    symlink(&place.path, &elsewhere.path).unwrap();
    assert!(Markers::open_at(&elsewhere.path, 64).is_err());
    assert!(Reader::open_at(&elsewhere.path, Users::Own).is_err());
    fs::remove_file(&elsewhere.path).unwrap();

    // A link in the directory, a second name, a file that is none, a directory, a pipe.
    let ring = elsewhere.ring(64);
    let file = elsewhere.files().remove(0);
    symlink(&file, place.path.join("link.ring")).unwrap();
    fs::hard_link(&file, place.path.join("name.ring")).unwrap();
    fs::write(place.path.join("text.ring"), "TWmarks1").unwrap();
    fs::create_dir(place.path.join("directory.ring")).unwrap();
    let mut reader = place.reader();
    assert_eq!(drain(&mut reader).marks.len(), 0);
    assert_eq!(reader.rings(), 0);
    assert!(!ring.is_listened_to());
    // The text was no ring, and nobody holds it: it is removed.
    assert!(!place.path.join("text.ring").exists());
    reader.look();
    assert_eq!(reader.totals().refused, 3);
}

#[test]
fn t3_a_file_that_is_cut_short_ends_its_ring_only() {
    let place = TestDirectory::new();
    let mut reader = place.reader();
    let (good, bad) = (place.ring(64), place.ring(64));
    assert_eq!(drain(&mut reader).marks.len(), 0);
    let cut = bad.ring.as_ref().unwrap();
    let (p, q) = (good.point("p").unwrap(), bad.point("q").unwrap());
    good.mark(p, 0, 1);
    bad.mark(q, 0, 2);
    // Not below its header: the memory of this process goes with the file.
    cut.file.set_len(16_384).unwrap();
    let heard = drain(&mut reader);
    assert_eq!(heard.marks.iter().map(|it| it.value).collect::<Vec<_>>(), [1]);
    assert_eq!(reader.totals().unsound, 1);
    assert_eq!((reader.rings(), cut.file.metadata().unwrap().len()), (1, 16_384));
}

/// A ring with anything in it, some of which is often right.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let number = || prop_oneof![Just(0_u64), 0_u64..130, any::<u64>(), Just(u64::MAX)];
    let bytes = proptest::collection::vec(any::<u8>(), 16_384 + 64 * 32);
    let numbers = (number(), number(), number(), number(), number());
    (bytes, numbers, any::<bool>(), 0_usize..20_000, 0_u8..4, 0_u64..3).prop_map(
        |(mut bytes, (read, check, written, lost, points), is_sound, length, kind, lap)| {
            let head =
                Head { capacity: 64, process: 1, thread: 2, opened_ns: 3, name: "n".to_owned() };
            bytes[..layout::HEAD].copy_from_slice(&head.to_bytes());
            let check = if is_sound { !read } else { check };
            for (at, value) in [
                (AT_READ, read),
                (AT_READ + 8, check),
                (AT_WRITTEN, written),
                (AT_LOST, lost),
                (layout::AT_POINTS, points),
            ] {
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            for at in (layout::AT_TABLE..layout::AT_VALUES).step_by(layout::POINT) {
                bytes[at] = kind;
                bytes[at + 3] &= 3;
            }
            for at in (layout::AT_RECORDS..bytes.len()).step_by(layout::RECORD) {
                bytes[at + 24] &= 0x7f;
                bytes[at + 25] = 0;
                bytes[at + 26..at + 28].copy_from_slice(&lap.to_le_bytes()[..2]);
            }
            if length < 2_000 {
                bytes.truncate(length * 8);
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn t3_whatever_is_in_a_file_the_reader_goes_on(bytes in hostile(), other in hostile()) {
        let place = TestDirectory::new();
        let mut reader = place.reader();
        let honest = place.ring(64);
        let point = honest.point("honest").unwrap();
        let path = place.path.join("1-2-0.ring");
        fs::write(&path, &bytes).unwrap();
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        prop_assert!(place::hold(&file, Role::Writer, Hold::Alone).unwrap());

        let mut told = 0;
        for (round, contents) in [&bytes, &other].into_iter().enumerate() {
            // What an honest ring says comes through in any company.
            honest.mark(point, 77, u64::try_from(round).unwrap());
            let heard = drain(&mut reader);
            reader.values(&mut |_| {});
            let count = heard.marks.iter().filter(|it| it.thread == thread_number()).count();
            prop_assert_eq!(count, 1);
            for mark in &heard.marks {
                prop_assert!((1..=65).contains(&mark.point));
                prop_assert!(mark.at_ns >= reader.shared.since_ns);
            }
            prop_assert!(heard.marks.len() <= 65);
            told += heard.marks.len();
            prop_assert_eq!(reader.totals().told, u64::try_from(told).unwrap());
            // The file changes under the reader.
            fs::write(&path, contents).unwrap();
        }
        drop(file);
        // A program that another test starts just now has the descriptor, and with it the lock,
        // for a moment longer.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while path.exists() && std::time::Instant::now() < deadline {
            drain(&mut reader);
            std::thread::yield_now();
        }
        prop_assert!(!path.exists());
        prop_assert_eq!(reader.rings(), 1);
    }
}

#[test]
fn t3_what_killed_programs_left_is_swept_when_nobody_reads() {
    let place = TestDirectory::new();
    let left = place.ring(64);
    let file = place.files().remove(0);
    // A copy is as a file whose program was killed: nobody holds its lock.
    let copy = file.with_file_name("9-9-0.ring");
    fs::copy(&file, &copy).unwrap();
    let directory = Directory::open(&place.path, effective_user(), false).unwrap();
    sweep(&directory, true);
    assert!(copy.exists());
    sweep(&directory, false);
    assert!(!copy.exists() && file.exists());
    assert_eq!(left.raw().cast::<u8>().align_offset(8), 0);
}

#[test]
fn t3_the_flag_that_somebody_listens_is_where_c_looks() {
    let place = TestDirectory::new();
    let reader = place.reader();
    let ring = place.ring(64);
    let file = fs::read(&place.files()[0]).unwrap();
    assert_eq!(layout::u32_at(&file, AT_LISTENING), 1);
    assert_eq!((size_of::<RawMarkers>(), align_of::<RawMarkers>()), (56, 8));
    drop((ring, reader));
}

#[test]
fn t0_the_place_of_a_run_is_its_own_and_goes_with_it() {
    let (one, other) = (RunPlace::new().unwrap(), RunPlace::new().unwrap());
    assert_ne!(one.path(), other.path());
    // One that a killed run left: its lock is free.
    let left = one.path().with_file_name(format!("timewire-run-{}-left", std::process::id()));
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join(".run"), "").unwrap();
    let third = RunPlace::new().unwrap();
    assert!(!left.exists());
    assert!(one.path().exists() && other.path().exists() && third.path().exists());
    let path = one.path().to_owned();
    drop(one);
    assert!(!path.exists());
}
