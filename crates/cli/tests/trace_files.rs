// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire trace show`, `info`, `export` and `merge` of captures that are made here: one kernel
//! captured twice, reasons of drops, notes of a later version.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::support::TIMEWIRE;
use serde_json::Value as Json;
use tempfile::tempdir;
use timewire_capture::capture::{CaptureHeader, Note, Station, Writer};
use timewire_capture::event::{Event, Flags, Hook};

fn header(host: &str, boot: &str) -> CaptureHeader {
    let station = Station {
        name: host.to_owned(),
        namespace: 1,
        interfaces: BTreeMap::from([(2, "eth0".to_owned()), (3, "eth1".to_owned())]),
    };
    CaptureHeader {
        host: host.to_owned(),
        boot: boot.to_owned(),
        stations: vec![station],
        hooks: Hook::ALL.iter().map(|hook| hook.name().to_owned()).collect(),
        keep_one_of: 1,
        meta: BTreeMap::from([
            (CaptureHeader::reason_key(6), "TCP_MD5FAILURE".to_owned()),
            (CaptureHeader::subsystem_key(3), "OPENVSWITCH".to_owned()),
        ]),
        ..CaptureHeader::default()
    }
}

/// A packet that a bridge receives, forwards and receives again, and that is dropped in the end.
fn packet(number: u64, reason: u64) -> Vec<Event> {
    let at = 1_000_000_000 + number * 100_000;
    let one = |after: u64, hook, interface| Event {
        at_ns: at + after,
        object: 0x1000 + number,
        tag: (1 << 32) | (number % 50),
        aux: 0,
        interface,
        thread: 11,
        cpu: 1,
        flags: Flags::TAGGED,
        length: 100,
        hook,
        station: 0,
    };
    vec![
        one(0, Hook::ReceiveQueue, 2),
        one(1_000, Hook::StackReceive, 2),
        one(2_000, Hook::DriverStart, 3),
        one(3_000, Hook::DriverDone, 3),
        one(4_000, Hook::ReceiveQueue, 4),
        one(5_000, Hook::StackReceive, 4),
        Event { aux: reason, ..one(6_000, Hook::Drop, 4) },
    ]
}

fn write(file: &Path, header: &CaptureHeader, events: &[Event], notes: &[Note]) {
    let mut writer = Writer::new(File::create(file).unwrap(), header).unwrap();
    notes.iter().for_each(|note| writer.note(note).unwrap());
    events.iter().for_each(|event| writer.event(event).unwrap());
    writer.finish().unwrap();
}

/// The program with at most 2 GB of memory.
fn limited(arguments: &[&str]) -> (Option<i32>, String, String) {
    let run = Command::new("sh")
        .args(["-c", "ulimit -v 2000000; exec \"$0\" \"$@\"", TIMEWIRE])
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (run.status.code(), text(&run.stdout), text(&run.stderr))
}

#[test]
fn t1_one_kernel_that_was_captured_twice_is_shown_once() {
    let place = tempdir().unwrap();
    let (first, second) = (place.path().join("first.twc"), place.path().join("second.twc"));
    let events: Vec<Event> = (0..2_000).flat_map(|number| packet(number, 6)).collect();
    // The second program runs some 700 ns later, has another disguise of buffers, began later, and
    // was told another boot.
    let later = events[1_000..].iter();
    let later: Vec<Event> = later
        .map(|event| Event { at_ns: event.at_ns + 700, object: event.object ^ 0xabcd, ..*event })
        .collect();
    write(&first, &header("one", "boot 1"), &events, &[]);
    write(&second, &header("two", "boot 2"), &later, &[]);
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    let show = |files: &[&str]| {
        let (code, json, error) = limited(&[&["trace", "show", "--all", "--json"], files].concat());
        assert_eq!(code, Some(0), "{error}");
        serde_json::from_str::<Json>(&json).unwrap()
    };
    let (alone, both) = (show(&[first]), show(&[second, first]));
    for key in ["events", "packet_paths", "drops"] {
        let named = |json: &Json| json[key].to_string().replace("\"capture\":1", "\"capture\":0");
        assert_eq!(named(&both), named(&alone), "{key}");
    }
    assert!(both["captures"][0]["twin"]["of"].as_str().unwrap().ends_with("first.twc"));
    assert!(both["captures"][1]["twin"].is_null());
    let (code, text, _) = limited(&["trace", "show", "--all", first, second]);
    assert_eq!(code, Some(0));
    assert!(text.contains("second.twc is left out: it is of the same kernel as"), "{text}");
    // A station of the one that is left out cannot be shown, and merging would double all.
    let (code, _, error) = limited(&["trace", "show", "--station", "two", first, second]);
    assert_eq!(code, Some(2));
    assert!(error.contains("show that capture alone"), "{error}");
    write(Path::new(second), &header("two", "boot 1"), &later, &[]);
    let out = place.path().join("merged.twc");
    let (code, _, error) =
        limited(&["trace", "merge", first, second, "--out", out.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(error.contains("leave one of them out") && !out.exists(), "{error}");
}

#[test]
fn t1_reasons_of_drops_have_names_in_every_output() {
    let place = tempdir().unwrap();
    let capture = place.path().join("drops.twc");
    let reasons = [6, 0x3_0007, 6, 99];
    let events: Vec<Event> =
        (0..).zip(reasons).flat_map(|(number, reason)| packet(number, reason)).collect();
    write(&capture, &header("one", "boot 1"), &events, &[]);
    let capture = capture.to_str().unwrap();
    let names = [
        "TCP_MD5FAILURE",
        "unknown reason 7 (subsystem OPENVSWITCH)",
        "unknown reason 99 (subsystem 0)",
    ];
    let file = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (csv, jsonl, parquet, html, perfetto) =
        (file("a.csv"), file("a.jsonl"), file("a.parquet"), file("a.html"), file("a.pftrace"));
    let outputs = ["--csv", &csv, "--jsonl", &jsonl, "--parquet", &parquet, "--html", &html];
    let more = ["--perfetto", &perfetto, capture];
    let show = ["trace", "show", "--all", "--worst", "9"];
    let (code, text, error) = limited(&[&show[..], &outputs, &more].concat());
    assert_eq!(code, Some(0), "{error}");
    let (_, json, _) = limited(&["trace", "show", "--json", "--all", capture]);
    let (_, info, _) = limited(&["trace", "info", capture]);
    let (_, info_json, _) = limited(&["trace", "info", "--json", capture]);
    let export = |format: &str| limited(&["trace", "export", "--as", format, capture]).1;
    let packets = file("a.pcapng");
    let (code, _, error) =
        limited(&["trace", "export", "--as", "pcapng", "--out", &packets, capture]);
    assert_eq!(code, Some(0), "{error}");
    let read = |file: &str| String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned();
    let all = [
        ("text", text),
        ("JSON", json),
        ("info", info),
        ("info as JSON", info_json),
        ("CSV", read(&csv)),
        ("JSON Lines", read(&jsonl)),
        ("Parquet", read(&parquet)),
        ("page", read(&html)),
        ("Perfetto", read(&perfetto)),
        ("events as CSV", export("csv")),
        ("events as JSON Lines", export("jsonl")),
        ("pcapng", read(&packets)),
    ];
    for (output, text) in &all {
        for name in names {
            assert!(text.contains(name), "{name} is not in {output}: {text}");
        }
    }
    let json: Json = serde_json::from_str(&all[1].1).unwrap();
    let unnamed = json["drops"].as_array().unwrap().iter().filter(|it| it["has_name"] == false);
    assert_eq!(unnamed.map(|it| it["packet_paths"].as_u64().unwrap()).sum::<u64>(), 2);
    assert!(all[0].1.contains("dropped: 2 TCP_MD5FAILURE, 1 unknown"), "{}", all[0].1);
}

/// Names without end: those that have no room are counted, and a limit that depends on what was not
/// read is not kept.
#[test]
fn t1_what_is_not_read_makes_a_judgement_inconclusive() {
    let place = tempdir().unwrap();
    let capture = place.path().join("names.twc");
    let notes: Vec<Note> =
        (0..270_000).map(|thread| Note::Thread { thread, name: "t".to_owned() }).collect();
    let events: Vec<Event> = (0..10).flat_map(|number| packet(number, 6)).collect();
    write(&capture, &header("one", "boot 1"), &events, &notes);
    let capture = capture.to_str().unwrap();
    let (code, text, _) = limited(&["trace", "show", "--all", capture]);
    assert_eq!(code, Some(0));
    let said = "notes of more names, values and clocks than are kept: left out";
    assert!(text.contains(said), "{text}");
    let (code, _, error) = limited(&["trace", "show", "--all", "--below", "1s", capture]);
    assert_eq!(code, Some(1));
    assert!(error.contains("INCONCLUSIVE: ") && error.contains(said), "{error}");
    let (_, info, _) = limited(&["trace", "info", capture]);
    assert!(info.contains(said), "{info}");
}

#[test]
fn t1_talkers_with_one_number_are_two_streams_in_every_output_and_the_clash_is_named() {
    let place = tempdir().unwrap();
    let capture = place.path().join("two.twc");
    let name = |of: u32| format!("stream 3, UDP 10.0.0.{of}:7000 > 10.0.0.9:7001");
    let flow = |of: u32| of << 16 | 3;
    let notes = [1, 2].map(|of| Note::Flow { flow: flow(of), name: name(of) });
    let of_flow = |(number, of): (u64, u32)| {
        let tag = (u64::from(flow(of)) << 32) | (number / 2);
        packet(number, 6).into_iter().map(move |event| Event { tag, ..event })
    };
    let events: Vec<Event> = (0..20).zip([1, 2].into_iter().cycle()).flat_map(of_flow).collect();
    write(&capture, &header("one", "boot 1"), &events, &notes);
    let capture = capture.to_str().unwrap();
    let file = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (csv, jsonl, html) = (file("a.csv"), file("a.jsonl"), file("a.html"));
    let outputs = ["--csv", &csv, "--jsonl", &jsonl, "--html", &html];
    let show = ["trace", "show", "--all", "--worst", "9"];
    let (code, text, error) = limited(&[&show[..], &outputs, &[capture]].concat());
    assert_eq!(code, Some(0), "{error}");
    let (_, json, _) = limited(&["trace", "show", "--json", "--all", capture]);
    let told: serde_json::Value = serde_json::from_str(&json).unwrap();
    let clash = &told["clashes"][0];
    assert_eq!((&clash["stream"], &clash["one_row"]), (&3.into(), &false.into()), "{told}");
    let said = "clash: stream number 3 is of several talkers, each a stream: ";
    assert!(text.contains(said), "{text}");
    let files = [&csv, &jsonl, &html].map(|path| fs::read_to_string(path).unwrap());
    assert!(files[2].contains(said), "{html}");
    for of in [1, 2] {
        assert!(text.contains(&name(of)), "{text}");
        assert!(clash["flows"].as_array().unwrap().contains(&name(of).into()));
        for (output, path) in files.iter().zip([&csv, &jsonl, &html]) {
            let shown = output.replace("\\u003e", ">").replace("&gt;", ">");
            assert!(shown.contains(&name(of)), "{path}");
        }
        let row = told["rows"].as_array().unwrap();
        assert!(row.iter().any(|row| row["flow"] == name(of)), "{told}");
    }
    // Packet paths of both have the same numbers, and are never taken for one another.
    assert_eq!(files[0].lines().count(), 1 + 20);
}
