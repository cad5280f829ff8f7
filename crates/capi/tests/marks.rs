// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marks from C and Python: the inline functions of the header write the bytes that Rust writes,
//! and a collector reads them.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};

use crate::library::{WARNINGS, build, command, compile, has, here, library, run};
use timewire::*;
use timewire_sys::marker::{Markers, News, Reader, Users, tag};

/// A directory for rings, new.
fn place(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rings-of-{test}"));
    let _ = fs::remove_dir_all(&path);
    path
}

/// The bytes of the only ring that is in a directory.
fn ring(path: &Path) -> Vec<u8> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let rings: Vec<_> = names.filter(|it| it.extension().is_some_and(|it| it == "ring")).collect();
    assert_eq!(rings.len(), 1, "{rings:?}");
    fs::read(&rings[0]).unwrap()
}

/// A ring without what differs from thread to thread: who it is, since when, on which CPU.
fn without_self(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[20..64].fill(0);
    for record in bytes[16_384..].chunks_exact_mut(32) {
        record[28..30].fill(0);
    }
    bytes
}

/// What both do: more marks than there is room for, in a ring that the reader has been at once.
const SOURCE: &str = "\
#include \"timewire_mark.h\"
int main(void)
{
	tw_marker *it;
	int one, two, sum, sizes;
	if (tw_marker_open(100, &it) < 0)
		return 1;
	one = tw_marker_point(it, \"one\");
	sum = tw_marker_counter(it, \"sum\");
	two = tw_marker_point(it, \"two\");
	sizes = tw_marker_histogram(it, \"sizes\");
	for (uint32_t i = 0; i < 200; i++) {
		uint64_t at = UINT64_C(1) << 62 | i;
		tw_mark_at(it, i % 3 ? one : two, at, tw_tag(i, ~i), ~(uint64_t)i);
		tw_count(it, sum, i);
		tw_observe(it, sizes, i ? UINT64_C(3) << (i % 62) : 0);
	}
	tw_count(it, -1, 1);
	tw_count(it, 5000, 1);
	tw_observe(it, 1020, 1);
	return tw_marker_close(it);
}
";

fn in_rust(directory: &Path) {
    let it = Markers::open_at(directory, 100).unwrap();
    let (one, sum) = (it.point("one").unwrap(), it.counter("sum").unwrap());
    let (two, sizes) = (it.point("two").unwrap(), it.histogram("sizes").unwrap());
    for i in 0..200_u32 {
        let wide = u64::from(i);
        it.mark_at(if i % 3 == 0 { two } else { one }, 1 << 62 | wide, tag(i, !i), !wide);
        it.count(sum, wide);
        it.observe(sizes, if i == 0 { 0 } else { 3 << (i % 62) });
    }
}

#[test]
fn t3_c_and_rust_write_the_same_bytes() {
    if !has("cc") {
        return;
    }
    let library = library("marks_bytes");
    let (source, program) = (library.join("bytes.c"), library.join("bytes"));
    fs::write(&source, SOURCE).unwrap();
    let include = here("include");
    let mut arguments = vec!["-std=c11", "-O2", "-I", include.to_str().unwrap()];
    arguments.extend(WARNINGS);
    arguments.extend([source.to_str().unwrap(), "-o", program.to_str().unwrap()]);
    arguments.extend(["-L", library.to_str().unwrap(), "-ltimewire"]);
    compile("cc", &arguments);

    let (of_c, of_rust) = (place("c"), place("rust"));
    // As long as somebody listens, a ring that is closed stays.
    let mut readers = [&of_c, &of_rust].map(|path| Reader::open_at(path, Users::Own).unwrap());
    run(command(&program, &library, &[]).env("TIMEWIRE_MARKERS", &of_c));
    in_rust(&of_rust);
    let (c, rust) = (without_self(ring(&of_c)), without_self(ring(&of_rust)));
    assert_eq!(c.len(), 16_384 + 128 * 32);
    for (at, (c, rust)) in c.chunks(32).zip(rust.chunks(32)).enumerate() {
        assert_eq!(c, rust, "at byte {}", at * 32);
    }
    // And that is what was meant.
    for reader in &mut readers {
        let mut marks = Vec::new();
        while reader.totals().told == 0 {
            reader.drain(&mut |news| {
                if let News::Mark(mark) = news {
                    marks.push((mark.point, mark.at_ns, mark.tag, mark.value));
                }
            });
        }
        assert_eq!((marks.len(), reader.totals().lost, reader.totals().unsound), (128, 72, 0));
        // Points have the numbers in which they are met.
        assert_eq!(marks[3], (2, 1 << 62 | 3, 3 << 32 | 0xffff_fffc, !3));
        assert_eq!(marks[4].0, 1);
    }
}

#[test]
fn t1_the_header_of_marks_is_c11_and_cpp17_by_itself() {
    for (compiler, standard, suffix) in
        [("cc", "-std=c11", "c"), ("cc", "-std=c2x", "c"), ("c++", "-std=c++17", "cpp")]
    {
        if !has(compiler) {
            return;
        }
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header-of-marks");
        fs::create_dir_all(&directory).unwrap();
        let source = directory.join(format!("alone.{suffix}"));
        let twice = "#include \"timewire_mark.h\"\n#include \"timewire_mark.h\"\n";
        let uses = "void use(tw_marker *it);\nvoid use(tw_marker *it) { tw_mark(it, 1, 2, 3); }\n";
        fs::write(&source, format!("{twice}{uses}")).unwrap();
        let include = here("include");
        let mut arguments = vec![standard, "-fsyntax-only", "-I", include.to_str().unwrap()];
        arguments.extend(WARNINGS);
        arguments.push(source.to_str().unwrap());
        compile(compiler, &arguments);
    }
}

#[test]
fn t3_the_example_marks_whether_somebody_listens_or_not() {
    if !has("cc") {
        return;
    }
    let library = library("marks_example");
    let program = build("examples/marks.c", &library);
    let path = place("example");
    for spec in ["off", path.to_str().unwrap()] {
        let said = run(command(&program, &library, &["20"]).env("TIMEWIRE_MARKERS", spec));
        assert_eq!(said, "cycles 20\n");
    }
    let mut reader = Reader::open_at(&path, Users::Own).unwrap();
    run(command(&program, &library, &["20"]).env("TIMEWIRE_MARKERS", &path));
    let (mut tags, mut points, mut sizes) = (Vec::new(), Vec::new(), 0);
    while reader.totals().told == 0 {
        reader.drain(&mut |news| match news {
            News::Mark(mark) => tags.push(mark.tag),
            News::Point { name, .. } => points.push(name.to_owned()),
            News::Histogram { buckets, .. } => sizes += buckets.iter().sum::<u64>(),
            _ => {}
        });
    }
    assert_eq!(points, ["loop.begin", "loop.end"]);
    assert_eq!(tags, (0..40).map(|number| tag(7, number / 2)).collect::<Vec<_>>());
    assert_eq!(sizes, 20);
}

#[test]
fn t3_python_marks() {
    if !has("python3") {
        return;
    }
    let (library, path) = (library("marks_python"), place("python"));
    let mut reader = Reader::open_at(&path, Users::Own).unwrap();
    let program = "\
import timewire as tw
with tw.Marker() as marks:
    point = marks.point('seen')
    marks.mark(point, tw.tag(3, 4), 5)
    marks.mark(point)
    marks.count(marks.counter('all'), 2)
    marks.observe(marks.histogram('bytes'), 9)
print(tw.udp_flow(tw.address('10.0.0.1:1'), tw.address('10.0.0.2:2')))
";
    let said = run(Command::new("python3")
        .args(["-B", "-c", program])
        .env("PYTHONPATH", here("python"))
        .env("TIMEWIRE_LIBRARY", library.join("libtimewire.so"))
        .env("TIMEWIRE_MARKERS", &path));
    let flow =
        timewire_datapath::udp_flow("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
    assert_eq!(said.trim(), flow.to_string());
    let mut heard = Vec::new();
    while reader.totals().told == 0 {
        reader.drain(&mut |news| match news {
            News::Mark(mark) => heard.push((mark.tag, mark.value)),
            News::Counter { name: "all", value, .. } => heard.push((0, value)),
            News::Histogram { name: "bytes", sum, .. } => heard.push((0, sum)),
            _ => {}
        });
    }
    assert_eq!(heard, [(3 << 32 | 4, 5), (0, 0), (0, 2), (0, 9)]);
}

#[test]
fn t3_wrong_use_of_marks_is_an_error_and_null_is_none() {
    let name = |text: &str| CString::new(text).unwrap();
    let mut marks = null();
    // SAFETY: names that end with a zero; markers that are null, of this thread, or only compared.
    unsafe {
        assert_eq!(tw_marker_open(64, null_mut()), -1);
        assert_eq!(tw_marker_open(64, &raw mut marks), 0);
        assert!(!marks.is_null());
        let point = tw_marker_point(marks, name("a").as_ptr());
        assert_eq!((point, tw_marker_point(marks, name("a").as_ptr())), (0, 0));
        assert_eq!(tw_marker_point(marks, null()), -1);
        assert_eq!(tw_marker_point(marks, name("").as_ptr()), -1);
        assert_eq!(tw_marker_counter(marks, name("a").as_ptr()), -1);
        for number in [0, -1, 63, 64, i32::MAX] {
            tw_marker_mark(marks, number, 1, 2);
            tw_marker_count(marks, number, 1);
            tw_marker_observe(marks, number, 1);
        }
        // Another thread's.
        let address = marks.addr();
        let other = std::thread::spawn(move || {
            let marks = std::ptr::without_provenance(address);
            let point = tw_marker_point(marks, CString::new("b").unwrap().as_ptr());
            (point, tw_marker_close(marks))
        });
        assert_eq!(other.join().unwrap(), (-1, -1));
        assert_eq!((tw_marker_close(marks), tw_marker_close(marks)), (0, -1));
        assert_eq!(tw_marker_point(marks, name("a").as_ptr()), -1);

        assert_eq!(tw_marker_point(null(), name("a").as_ptr()), 0);
        tw_marker_mark(null(), 0, 1, 2);
        tw_marker_count(null(), 0, 1);
        tw_marker_observe(null(), 0, 1);
        assert_eq!(tw_marker_close(null()), 0);
        let (mut flow, one) = (0, Address { family: 4, port: 1, ..Address::default() });
        let none = Address::default();
        assert_eq!(tw_marker_flow(&raw const one, &raw const none, &raw mut flow), -1);
        assert_eq!(tw_marker_flow(&raw const one, null(), &raw mut flow), -1);
        assert_eq!(tw_marker_flow(&raw const one, &raw const one, &raw mut flow), 0);
        assert_ne!(flow, 0);
    }
}
