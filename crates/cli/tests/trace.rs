// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire trace` between two stations of this kernel: captures, packet paths, parts and views.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support;
use crate::support::{Host, TIMEWIRE, run, wait_until};
use crate::tables;
use serde_json::Value as Json;

/// Two stations that see each other, and a listener at the second that hears so many messages.
fn stations() -> Option<Host> {
    let host = Host::start()?;
    for line in [
        "ip netns add alpha",
        "ip netns add beta",
        "ip -n alpha link add eth0 address 02:00:00:00:00:01 type veth \
         peer name eth0 address 02:00:00:00:00:02 netns beta",
        "ip -n alpha address add 10.9.0.1/24 dev eth0",
        "ip -n beta address add 10.9.0.2/24 dev eth0",
        "ip -n alpha link set eth0 up",
        "ip -n beta link set eth0 up",
        "ip -n alpha neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev eth0",
    ] {
        host.tool(line);
    }
    wait_until("the carrier is noticed", || {
        let shown = host.tool("ip -n alpha -details link show dev eth0");
        shown.contains("state UP") && !shown.contains("qdisc noop")
    });
    Some(host)
}

/// Whether the kernel can do it; says so if not.
fn traced(host: &Host) -> bool {
    let said = host.timewire(&["trace", "record", "--only", "counters", "--for", "10ms"]);
    if said.code == Some(4) {
        eprintln!("SKIP: no tracing on this kernel: {}", said.stderr.trim());
        return false;
    }
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    true
}

/// Packet paths of 200 that may be lossy: the call of a reader that was awake had not ended when
/// the next message came, which is not guessed.
const EARLY: u64 = 3;

/// What is traced: packets of other namespaces are, too, so each test has a port of its own.
fn record(port: &str) -> Vec<String> {
    let filter = format!("udp port {port}");
    let words = ["trace", "record", "--station", "alpha", "--station", "beta", "--filter"];
    let words = words.into_iter().chain([filter.as_str(), "--out", "here.twc"]);
    words.map(str::to_owned).collect()
}

/// A capture of so many messages; `talk` runs in the first station.
fn capture(host: &Host, port: &str, messages: u32) {
    let to = format!("10.9.0.2:{port}");
    let listener = host.spawn_in("beta", &[TIMEWIRE, "listen", &to, "--for", "60s"]);
    wait_until("it listens", || listener.stderr().contains("listening"));
    let count = messages.to_string();
    let talk = ["talk", &to, "--cycle", "2ms", "--tolerance", "20s", "--count", &count];
    let command = [&["--", "ip", "netns", "exec", "alpha", TIMEWIRE][..], &talk].concat();
    let record = record(port);
    let record: Vec<&str> = record.iter().map(String::as_str).collect();
    let said = host.timewire(&[&record[..], &["--json"], &command].concat()).done();
    let json: Json = said.stdout.lines().last().unwrap().parse().unwrap();
    assert_eq!(json["lost"], 0, "{said:?}");
    listener.signal("INT");
    listener.end();
}

#[test]
fn t3_every_packet_has_a_packet_path_whose_stages_sum_to_its_length() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    capture(&host, "7001", 200);
    let scratch = host.scratch();
    let views =
        ["--html", "a.html", "--perfetto", "a.trace", "--csv", "a.csv", "--jsonl", "a.jsonl"];
    let table = ["--parquet", "a.parquet"];
    let show = [&["trace", "show", "here.twc", "--json"][..], &views, &table].concat();
    let said = host.timewire(&show).done().json();
    let counts: Vec<&Json> = said["packet_paths"].as_array().unwrap().iter().collect();
    let count = |status: &str, outcome: &str| -> u64 {
        let is = |it: &&&Json| it["status"] == status && it["outcome"] == outcome;
        counts.iter().filter(is).map(|it| it["count"].as_u64().unwrap()).sum()
    };
    let (whole, early) = (count("complete", "received"), count("lossy", "queued"));
    assert_eq!(whole + early, 200, "{counts:?}");
    assert!(early <= EARLY, "{counts:?}");
    assert_eq!(said["clocks"][0]["way"], "itself");
    let lines = fs::read_to_string(scratch.path().join("a.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 200);
    for line in lines.lines() {
        let packet_path: Json = line.parse().unwrap();
        let stages = packet_path["stages"].as_array().unwrap();
        let sum: i64 = stages.iter().map(|stage| stage["ns"].as_i64().unwrap()).sum();
        assert_eq!(packet_path["end_to_end_ns"], sum, "{packet_path}");
        assert!(stages.len() >= 4 || packet_path["status"] != "complete", "{packet_path}");
    }
    let longest = &said["longest"][0]["sentence"];
    assert!(longest.as_str().unwrap().contains(" us of "), "{longest}");
    // The views are there and are of this capture.
    let page = fs::read_to_string(scratch.path().join("a.html")).unwrap();
    assert!(page.contains("10.9.0.2:7001") && page.ends_with("</html>\n"));
    assert!(fs::metadata(scratch.path().join("a.trace")).unwrap().len() > 10_000);
    let csv = fs::read_to_string(scratch.path().join("a.csv")).unwrap();
    assert_eq!(csv.lines().count(), 201);
    assert_eq!(tables::parquet_as_csv(scratch.path().join("a.parquet")), csv);
    // Files that are there are not written over.
    let said = host.timewire(&show);
    assert!(said.code == Some(2) && said.stderr.contains("--force writes over it"), "{said:?}");
    // A limit that nothing keeps.
    let said = host.timewire(&["trace", "show", "here.twc", "--below", "1ns"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let said = host.timewire(&["trace", "show", "here.twc", "--station", "gamma"]);
    said.failed(2, "error: there is no station `gamma`; there are alpha, beta\n");
}

/// What `--live` prints of so many messages to this port, with more words, until the talker ends.
fn live(host: &Host, port: &str, messages: u32, more: &[&str]) -> support::Said {
    let to = format!("10.9.0.2:{port}");
    let listener = host.spawn_in("beta", &[TIMEWIRE, "listen", &to, "--for", "60s"]);
    wait_until("it listens", || listener.stderr().contains("listening"));
    let count = messages.to_string();
    let talk = ["talk", &to, "--cycle", "10ms", "--tolerance", "20s", "--count", &count, "--json"];
    let talk = [&["ip", "netns", "exec", "alpha", TIMEWIRE][..], &talk].concat().join(" ");
    let silent = format!("exec {talk} > said.txt");
    let filter = format!("udp port {port}");
    let record = ["trace", "record", "--station", "alpha", "--station", "beta", "--live"];
    let words = [&record[..], &["--filter", &filter], more, &["--", "sh", "-c", &silent]].concat();
    let said = host.timewire(&words);
    listener.signal("INT");
    listener.end();
    said
}

#[test]
fn t3_packet_paths_are_shown_while_they_are_recorded() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    let said = live(&host, "7005", 300, &["--json", "--out", "here.twc"]).done();
    let lines: Vec<Json> = said.stdout.lines().map(|line| line.parse().unwrap()).collect();
    let (result, intervals) = lines.split_last().unwrap();
    assert_eq!(result["type"], "result");
    assert!(intervals.len() >= 2, "three seconds: {said:?}");
    assert!(intervals.iter().all(|line| line["type"] == "interval"));
    let number = |json: &Json| json.as_u64().unwrap();
    let last = &intervals.last().unwrap()["data"];
    let sum: u64 = intervals.iter().map(|it| number(&it["data"]["packet_paths"]["last"])).sum();
    assert_eq!((number(&last["packet_paths"]["all"]), sum), (300, 300), "{last}");
    assert!(number(&intervals[0]["data"]["packet_paths"]["all"]) < 300, "they come while it runs");
    assert_eq!(last["not_shown"]["all"], 0);
    let stages = last["stages"].as_array().unwrap();
    let of = |name: &str| stages.iter().find(|stage| stage["stage"] == name).unwrap();
    assert_eq!(
        (&of("end-to-end")["all"]["count"], &of("qdisc")["all"]["count"]),
        (&300.into(), &300.into())
    );
    for interval in intervals {
        let stations = interval["data"]["stations"].as_array().unwrap();
        let names: Vec<&Json> = stations.iter().map(|station| &station["station"]).collect();
        assert_eq!(names[..2], ["alpha", "beta"], "{interval}");
        if number(&stations[1]["received"]) > 0 {
            let slowest = stations[1]["slowest"].as_str().unwrap();
            assert!(
                slowest.starts_with("packet path ") && slowest.contains(" us of "),
                "{slowest}"
            );
        }
    }
    // The view and the capture have the same.
    let shown = host.timewire(&["trace", "show", "here.twc", "--json"]).done().json();
    assert_eq!(
        (&shown["packet_paths"][0]["status"], &shown["packet_paths"][0]["count"]),
        (&"complete".into(), &300.into())
    );
    assert_eq!(
        number(&result["data"]["events"]),
        number(&host.timewire(&["trace", "info", "here.twc", "--json"]).done().json()["events"])
    );
    assert_eq!(last["hooks"]["driver-start"]["all"]["written"], 300);
}

#[test]
fn t3_without_a_file_the_view_is_lines_and_ends_with_who_reads_it() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    let said = live(&host, "7006", 150, &[]).done();
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert!(lines[0].contains(" events/s, ") && lines[0].contains(" packet paths, "), "{said:?}");
    assert!(said.stdout.contains(": 150 packet paths\n"), "{said:?}");
    assert!(said.stdout.contains("\nslowest of all: packet path "), "{said:?}");
    // The summary as without a view.
    assert!(said.stdout.contains("\nno event was lost\n") && said.stdout.contains(" events\n"));
    assert!(!said.stdout.contains('\x1b'), "{said:?}");
    assert_eq!(host.scratch().list().iter().filter(|name| name.ends_with(".twc")).count(), 0);
    // Nobody reads any more.
    let record = format!("{TIMEWIRE} trace record --live --filter 'udp port 7006' | head -n 1");
    let first = host.tool_words("", &["sh", "-c", &record]);
    assert!(first.contains(" events/s, ") && first.lines().count() == 1, "{first}");
    // With a file it goes on.
    let out = "--out on.twc --for 3s | head -n 1";
    let record = format!("{TIMEWIRE} trace record --live --filter 'udp port 7006' {out}");
    host.tool_words("", &["sh", "-c", &record]);
    let info = host.timewire(&["trace", "info", "on.twc", "--json"]).done().json();
    assert_eq!(info["health"]["clean_end"], true, "{info}");
}

#[test]
fn t3_on_a_terminal_the_view_is_drawn_over_itself_until_the_user_ends_it() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    let there = run(Command::new("sh").args(["-c", "command -v script"]));
    if there.code != Some(0) {
        return eprintln!("SKIP: script (package bsdutils) is needed for a terminal");
    }
    let record = format!(
        "stty rows 20 cols 60; exec {TIMEWIRE} trace record --live --filter 'udp port 7007' \
         --station alpha --station beta --out here.twc"
    );
    // What a command says stands above the view, all of it.
    let says = format!(
        "stty rows 20 cols 60; exec {TIMEWIRE} trace record --live --filter 'udp port 7007' -- \
         sh -c 'echo one; sleep 2.5; echo two >&2; printf three'"
    );
    let said = host.tool_words("", &["script", "-qefc", &says, "/dev/null"]);
    assert!(said.contains("one\r\n") && said.contains("\x1b[Jtwo\r\nno event"), "{said:?}");
    assert!(said.contains("\x1b[Jthree\r\nno event"), "{said:?}");
    let terminal = host.spawn_in("", &["script", "-qefc", &record, "terminal.txt"]);
    let text =
        || fs::read_to_string(host.scratch().path().join("terminal.txt")).unwrap_or_default();
    let drawn = || text().matches("\x1b[J").count();
    wait_until("it is drawn again", || drawn() >= 1);
    let to = "10.9.0.2:7007";
    let listener = host.spawn_in("beta", &[TIMEWIRE, "listen", to, "--for", "60s"]);
    wait_until("it listens", || listener.stderr().contains("listening"));
    let talk = ["talk", to, "--cycle", "2ms", "--tolerance", "20s", "--count", "100"];
    run(host.command("alpha", &[TIMEWIRE]).args(talk)).done();
    let before = drawn();
    wait_until("it is drawn with them", || drawn() >= before + 2);
    // What Ctrl-C sends.
    let ours =
        |p: &&support::Process| p.command.starts_with(TIMEWIRE) && p.command.contains("--live");
    let processes = host.processes();
    processes.iter().find(ours).unwrap().signal("INT");
    terminal.end();
    let text = text();
    let views: Vec<&str> = text.split("\x1b[J").collect();
    let (last, views) = views.split_last().unwrap();
    assert!(views.iter().any(|view| view.contains("slowest now at beta: ")), "{views:?}");
    for view in &views[1..] {
        let lines: Vec<&str> = view.lines().collect();
        assert!(lines.len() <= 20 && lines[0].contains("event"), "{view:?}");
        assert!(lines.iter().all(|line| line.trim_end().chars().count() <= 60), "{view:?}");
    }
    assert!(last.contains(": 100 packet paths\r\n") && last.contains("slowest of all: "), "{last}");
    assert!(last.contains("\r\nno event was lost\r\n") && last.contains(" events\r\n"), "{last}");
    let info = host.timewire(&["trace", "info", "here.twc", "--json"]).done().json();
    assert_eq!(
        (&info["health"]["clean_end"], &info["hooks"]["driver-start"]),
        (&true.into(), &100.into())
    );
}

#[test]
fn t3_a_capture_is_cut_merged_and_exported() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    capture(&host, "7002", 50);
    let info = |file: &str| host.timewire(&["trace", "info", file, "--json"]).done().json();
    let whole = info("here.twc");
    assert_eq!(whole["hooks"]["driver-start"], 50, "{whole}");
    assert_eq!(whole["lost"], 0);
    // The header has the names of this kernel's numbers; events are small.
    let header = u64::try_from(whole["header"].to_string().len()).unwrap();
    let (bytes, events) = (whole["bytes"].as_u64().unwrap(), whole["events"].as_u64().unwrap());
    assert!(bytes - header < 60 * events, "{whole}");
    let names = whole["flows"].as_array().unwrap();
    assert!(names[0]["name"].as_str().unwrap().contains("> 10.9.0.2:7002"), "{names:?}");
    let cut = |station: &str| {
        let out = format!("{station}.twc");
        host.timewire(&["trace", "cut", "here.twc", "--station", station, "-o", &out]).done();
        info(&out)["events"].as_u64().unwrap()
    };
    let parts = cut("alpha") + cut("beta");
    host.timewire(&["trace", "merge", "alpha.twc", "beta.twc", "-o", "again.twc"]).done();
    assert_eq!(info("again.twc")["events"], parts);
    let csv = host.timewire(&["trace", "export", "alpha.twc", "--as", "csv"]).done().stdout;
    assert!(csv.starts_with("time_ns,hook,station,"), "{csv}");
    assert_eq!(csv.matches(",driver-start,alpha,").count(), 50);
    let parquet = ["trace", "export", "alpha.twc", "--as", "parquet", "-o", "alpha.parquet"];
    let said = host.timewire(&parquet).done().stdout;
    assert_eq!(said, format!("{} events\n", csv.lines().count() - 1));
    assert_eq!(tables::parquet_as_csv(host.scratch().path().join("alpha.parquet")), csv);
    // A part may take the place of the whole that it is cut from, and several that of one of them.
    let file = |name: &str| host.scratch().path().join(name);
    fs::copy(file("here.twc"), file("self.twc")).unwrap();
    let all = ["trace", "cut", "self.twc", "-o", "self.twc"];
    let said = host.timewire(&all);
    assert!(said.code == Some(2) && said.stderr.contains("--force writes over it"), "{said:?}");
    host.timewire(&[&all[..], &["--station", "alpha", "--force"]].concat()).done();
    host.timewire(&["trace", "merge", "self.twc", "beta.twc", "-o", "self.twc", "--force"]).done();
    assert_eq!(info("self.twc")["events"], parts);
    // What cannot be written whole is not written, and says which file it was.
    for format in ["csv", "parquet"] {
        let export = ["trace", "export", "here.twc", "--as", format, "-o", "/dev/full"];
        let full = host.timewire(&export);
        assert!(full.code == Some(2) && full.stderr.contains("cannot write /dev/full"), "{full:?}");
        assert!(!full.stderr.contains("reading"), "{full:?}");
    }
    // Each packet once as it goes and once as it comes, with the headers that are known.
    let packets = ["trace", "export", "here.twc", "--as", "pcapng", "-o", "here.pcapng"];
    let said = host.timewire(&packets).done().stdout;
    assert_eq!(said, "100 packets\n");
    let bytes = fs::read(file("here.pcapng")).unwrap();
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    let has = |part: &[u8]| bytes.windows(part.len()).filter(|window| *window == part).count();
    assert_eq!(has(&[10, 9, 0, 1, 10, 9, 0, 2]), 100, "addresses of each");
    assert_eq!((has(b"alpha:eth0@driver-start"), has(b"beta:eth0@stack-receive")), (1, 1));
    let wrong = ["trace", "export", "here.twc", "--as", "pcapng", "--hooks", "waking"];
    let said = host.timewire(&wrong);
    assert!(said.code == Some(2) && said.stderr.contains("is no hook; there are dev"), "{said:?}");
    let drivers = ["trace", "cut", "here.twc", "--hooks", "driver-start", "-o", "d.twc", "--json"];
    assert_eq!(host.timewire(&drivers).done().json()["kept"], 50);
    let wrong =
        host.timewire(&["trace", "cut", "here.twc", "--filter", "udp prot 7", "-o", "x.twc"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("right would be"), "{wrong:?}");
    assert!(!host.scratch().path().join("x.twc").exists());
}

#[test]
fn t3_a_recorder_that_is_killed_leaves_what_it_has_recorded() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    let record = record("7003");
    let recorder = host.spawn(&record.iter().map(String::as_str).collect::<Vec<_>>());
    let info = || host.timewire(&["trace", "info", "here.twc", "--json"]);
    let file = host.scratch().path().join("here.twc");
    wait_until("it records", || fs::metadata(&file).is_ok_and(|meta| meta.len() > 0));
    // Until the flush of each second there is nothing to be found.
    wait_until("packets are in the file", || {
        host.command("alpha", &[TIMEWIRE, "talk", "10.9.0.2:7003", "--count", "20"])
            .output()
            .unwrap();
        info().json()["hooks"]["driver-start"].as_u64().unwrap_or(0) > 0
    });
    recorder.signal("KILL");
    recorder.end();
    let said = info().done().json();
    assert_eq!(said["health"]["clean_end"], false, "{said}");
    assert!(said["hooks"]["driver-start"].as_u64().unwrap() > 0, "{said}");
    assert!(host.timewire(&["trace", "info", "here.twc"]).done().stdout.contains("did not end it"));
}

/// A recorder of a command; what the command says goes into a file that the test can wait for.
fn recorder_of(host: &Host, more: &[&str], script: &str) -> support::Running {
    let words = ["trace", "record", "--station", "alpha", "--out", "here.twc", "--json"];
    host.spawn(&[&words[..], more, &["--", "sh", "-c", script]].concat())
}

#[test]
fn t3_a_command_that_is_ended_with_the_recording_has_not_failed() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    let said = recorder_of(&host, &["--for", "100ms"], "sleep 600").end();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.stderr.contains("the command ended"), "{said:?}");
    let said = recorder_of(&host, &["--force"], "exit 3").end();
    assert!(said.code == Some(1) && said.stderr.contains("exit status: 3"), "{said:?}");
    // One that does not want to end is killed at the second request; the capture is whole.
    let obstinate = "trap '' TERM INT; echo > there; while :; do sleep 0.05; done";
    let mut recorder = recorder_of(&host, &["--force"], obstinate);
    wait_until("the command runs", || host.scratch().path().join("there").exists());
    wait_until("it is ended", || {
        recorder.signal("INT");
        recorder.has_ended()
    });
    assert_eq!(recorder.end().code, Some(0));
    let info = host.timewire(&["trace", "info", "here.twc", "--json"]).done().json();
    assert_eq!(info["health"]["clean_end"], true, "{info}");
}

#[test]
fn t3_a_capture_is_replaced_only_by_one_that_began() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    let old = host.scratch().write("here.twc", "what was there");
    let words = ["trace", "record", "--station", "alpha", "--out", "here.twc"];
    let said = host.timewire(&[&words[..], &["--for", "1ms"]].concat());
    assert!(said.code == Some(2) && said.stderr.contains("--force writes over it"), "{said:?}");
    for more in [&["--", "no-such-program"][..], &["--station", "gamma"]] {
        let said = host.timewire(&[&words[..], &["--force"], more].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert_eq!(fs::read_to_string(host.see(&old)).unwrap(), "what was there");
    }
    host.timewire(&[&words[..], &["--force", "--for", "1ms"]].concat()).done();
    host.timewire(&["trace", "info", "here.twc"]).done();
    assert_eq!(host.scratch().list(), ["here.twc"]);
}

#[test]
fn t3_wrong_words_are_refused_before_anything_is_traced() {
    let Some(host) = stations() else { return };
    for (more, why) in [
        (&["--filter", "udp prot 7"][..], "right would be"),
        (&["--hooks", "nowhere"], "is no hook; there are"),
        (&["--tag", "3"], "is no place: OFFSET:WIDTH"),
        (&["--station", "a/b"], "is no station"),
        (&["--keep-one-of", "0"], "invalid value '0'"),
    ] {
        let words = ["trace", "record", "-o", "no.twc"];
        let said = host.timewire(&[&words[..], more].concat());
        assert!(said.code == Some(2) && said.stderr.contains(why), "{said:?}");
        assert!(!host.scratch().path().join("no.twc").exists());
    }
    let said = host.timewire(&["trace", "record", "-o", "no.twc", "--station", "gamma"]);
    assert!(said.code == Some(2) || said.code == Some(4), "{said:?}");
    assert!(!host.scratch().path().join("no.twc").exists(), "{said:?}");
    for (words, why) in [
        (&["trace", "record"][..], "--out <FILE>"),
        (&["trace", "record", "--live", "--only", "counters"], "cannot be used with"),
        (&["trace", "show", "none.twc"], "cannot open none.twc"),
    ] {
        let said = host.timewire(words);
        assert!(said.code == Some(2) && said.stderr.contains(why), "{said:?}");
    }
}

#[test]
fn t3_a_capture_says_how_far_the_clock_is_from_the_one_it_follows() {
    let there = Command::new("sh").args(["-c", "command -v ptp4l"]).output();
    if !there.is_ok_and(|there| there.status.success()) {
        return eprintln!("SKIP: ptp4l and pmc (package linuxptp) are needed");
    }
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    let clock = |seconds: &str, out: &str| {
        let filter = ["--filter", "udp port 7004", "--station", "alpha"];
        let record = ["trace", "record", "-o", out, "--for", seconds];
        host.timewire(&[&record[..], &filter].concat()).done();
        host.timewire(&["trace", "info", out, "--json"]).done().json()["clock"].clone()
    };
    let alone = clock("100ms", "alone.twc");
    assert_eq!(alone["largest_offset_ns"], Json::Null, "{alone}");
    assert!(alone["samples"].as_u64().unwrap() >= 2, "{alone}");
    let daemon = ["ptp4l", "-i", "eth0", "-S", "-m", "--masterOnly", "1"];
    let often = ["--logAnnounceInterval", "-3", "--announceReceiptTimeout", "2"];
    let daemon = host.spawn_in("alpha", &[&daemon[..], &often].concat());
    let mut number = 0;
    wait_until("the daemon gives the time, and a capture says so", || {
        number += 1;
        let with = clock("100ms", &format!("{number}.twc"));
        !with["largest_offset_ns"].is_null()
    });
    daemon.signal("TERM");
    daemon.end();
}

/// Records into `here.twc` with more words while a talker in the first station sends so many
/// messages, and a listener in the second one hears them.
fn recorded(host: &Host, more: &[&str], listen: &[&str], talk: &[&str]) {
    let listener = host.spawn_in("beta", &[&[TIMEWIRE, "listen", "--for", "60s"], listen].concat());
    wait_until("it listens", || listener.stderr().contains("listening"));
    let record = ["trace", "record", "--station", "alpha", "--station", "beta", "--force", "-o"];
    let talker = ["--", "ip", "netns", "exec", "alpha", TIMEWIRE, "talk", "--cycle", "2ms"];
    let words = [&record[..], &["here.twc"], more, &talker, &["--tolerance", "20s"], talk];
    host.timewire(&words.concat()).done();
    listener.signal("INT");
    listener.end();
}

/// Every packet path in the capture, complete or not.
fn packet_paths(host: &Host) -> Vec<Json> {
    let show = ["trace", "show", "here.twc", "--all", "--jsonl", "here.jsonl", "--force"];
    host.timewire(&show).done();
    let lines = fs::read_to_string(host.scratch().path().join("here.jsonl")).unwrap();
    lines.lines().map(|line| line.parse().unwrap()).collect()
}

/// The flows of the packet paths, by their last words.
fn flows(host: &Host) -> BTreeSet<String> {
    let all = packet_paths(host);
    assert!(!all.is_empty());
    let last = |it: &Json| it["flow"].as_str().unwrap().split(' ').next_back().unwrap().to_owned();
    all.iter().map(last).collect()
}

#[test]
fn t3_packets_are_asked_for_by_their_sender_and_their_interface() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    // Both ways: the talker's, and the listener's answers to them.
    let to = "10.9.0.2:7008";
    let both = |filter: &str| {
        recorded(&host, &["--filter", filter], &[to, "--reflect"], &[to, "--count", "50"]);
        flows(&host)
    };
    let all = both("udp port 7008");
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(both("process tw-talker and udp port 7008"), BTreeSet::from([to.to_owned()]));
    let answers = both("process tw-listener and udp port 7008");
    assert!(answers.len() == 1 && !answers.contains(to), "{answers:?}");
    assert!(answers.first().unwrap().starts_with("10.9.0.1:"), "{answers:?}");
    // Where a frame is received nobody knows its sender: it is not that of the name.
    let others = both("udp port 7008 and not process tw-listener");
    assert!(others.len() == 2 && others.contains(to), "{others:?}");
    // By number: one of two talkers.
    let numbered = host.spawn_in(
        "alpha",
        &[TIMEWIRE, "talk", "10.9.0.2:7009", "--cycle", "2ms", "--tolerance", "60s"],
    );
    let filter = format!("process {} and udp portrange 7008-7009", numbered.pid());
    recorded(&host, &["--filter", &filter], &[to], &[to, "--count", "50"]);
    assert_eq!(flows(&host), BTreeSet::from(["10.9.0.2:7009".to_owned()]));
    // By the interface: a second wire.
    for line in [
        "ip -n alpha link add wire1 type veth peer name wire2 netns beta",
        "ip -n alpha address add 10.9.1.1/24 dev wire1",
        "ip -n beta address add 10.9.1.2/24 dev wire2",
        "ip -n alpha link set wire1 up",
        "ip -n beta link set wire2 up",
    ] {
        host.tool(line);
    }
    let far = "10.9.1.2:7009";
    let second =
        host.spawn_in("alpha", &[TIMEWIRE, "talk", far, "--cycle", "2ms", "--tolerance", "60s"]);
    for (interface, wanted) in [("wire1", far), ("eth0", to)] {
        let filter = format!("interface {interface} and udp dst portrange 7008-7009");
        recorded(&host, &["--filter", &filter], &[to], &[to, "--count", "50"]);
        let found = flows(&host);
        assert!(found.contains(wanted), "{interface}: {found:?}");
        assert_eq!(found.contains(far), interface == "wire1", "{interface}: {found:?}");
    }
    for running in [numbered, second] {
        running.signal("INT");
        running.end();
    }
}

#[test]
fn t3_interrupts_and_calls_are_events_when_they_are_asked_for() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    let to = "10.9.0.2:7010";
    let filter = ["--filter", "udp port 7010"];
    recorded(&host, &filter, &[to], &[to, "--count", "50"]);
    let hooks =
        || host.timewire(&["trace", "info", "here.twc", "--json"]).done().json()["hooks"].clone();
    let usual = hooks();
    let more =
        ["irq-entry", "irq-exit", "softirq-entry", "softirq-exit", "napi-poll", "send-enter"];
    assert!(more.iter().all(|hook| usual[hook].as_u64().unwrap_or(0) == 0), "{usual}");
    recorded(
        &host,
        &[&filter[..], &["--interrupts", "--calls"]].concat(),
        &[to],
        &[to, "--count", "50"],
    );
    let found = hooks();
    // Each packet on this wire is received in deferred work.
    let count = |hook: &str| found[hook].as_u64().unwrap_or(0);
    assert!(count("softirq-entry") > 0 && count("napi-poll") > 0, "{found}");
    assert!(count("softirq-entry").abs_diff(count("softirq-exit")) <= 64, "{found}");
    assert!(count("irq-entry").abs_diff(count("irq-exit")) <= 64, "{found}");
    assert!(count("send-enter") > 0, "{found}");
    let csv = host.timewire(&["trace", "export", "here.twc", "--as", "csv"]).done().stdout;
    let softirqs: Vec<Vec<&str>> = csv
        .lines()
        .map(|line| line.split(',').collect())
        .filter(|cells: &Vec<&str>| cells[1].starts_with("softirq-"))
        .collect();
    // One after the other on each CPU, of the kinds that there are; 3 is to receive. The hooks are
    // not put on and taken off at one instant.
    for cpu in softirqs.iter().map(|cells| cells[5]).collect::<BTreeSet<_>>() {
        let here: Vec<&str> = softirqs.iter().filter(|c| c[5] == cpu).map(|c| c[1]).collect();
        let begun = here.iter().take_while(|it| **it == here[0]).count();
        let ended = here.iter().rev().take_while(|it| *it == here.last().unwrap()).count();
        assert!(begun.max(ended) < 64, "CPU {cpu}: {here:?}");
        let here = &here[begun - 1..(here.len() + 1 - ended).max(begun)];
        assert!(here.windows(2).all(|two| two[0] != two[1]), "CPU {cpu}: {here:?}");
    }
    let kinds: BTreeSet<u64> = softirqs.iter().map(|cells| cells[14].parse().unwrap()).collect();
    assert!(kinds.contains(&3) && kinds.iter().all(|kind| *kind < 10), "{kinds:?}");
    // The call is where the way through the stack begins.
    let all = packet_paths(&host);
    assert_eq!(all.len(), 50);
    begin_with_their_calls(&all.iter().collect::<Vec<_>>());
}

/// Packet paths begin with their call, where there is one of their own: not with the first of a
/// thread that was not followed before, and not with later messages of one call.
fn begin_with_their_calls(all: &[&Json]) {
    let mut called = 0;
    for packet_path in all {
        let stages = packet_path["stages"].as_array().unwrap();
        let names: Vec<&str> = stages.iter().map(|it| it["stage"].as_str().unwrap()).collect();
        // Marks are there when the talker's were found in time.
        let way = names.strip_prefix(&["app"]).unwrap_or(&names);
        let own = way.starts_with(&["send", "qdisc"]);
        assert!(own || way[0] == "qdisc" || way[0] == "app+send", "{packet_path}");
        called += usize::from(own);
        assert!(names.last().unwrap().ends_with("read"), "{packet_path}");
    }
    assert!(called > 0, "{all:?}");
}

#[test]
fn t3_frames_of_packet_sockets_have_packet_paths_from_program_to_program() {
    let Some(host) = stations() else { return };
    if !traced(&host) {
        return;
    }
    // Messages of this host use the same buffers after the frames: they are not those frames.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let (to, _from) = UnixDatagram::pair().unwrap();
                (0..8).for_each(|_| drop(to.send(&[0; 78])));
            }
        });
        let interface = ["--interface", "eth0"];
        let talk = [&["02:00:00:00:00:02", "--count", "200"], &interface[..]].concat();
        // Other packets of this kind are those of other namespaces.
        let filter =
            "ether proto 0x88b5 and ether src 02:00:00:00:00:01 and ether dst 02:00:00:00:00:02";
        recorded(&host, &["--filter", filter, "--calls"], &interface, &talk);
        is_over.store(true, Ordering::Relaxed);
    });
    let all = packet_paths(&host);
    let ours = |it: &&Json| it["stages"][0]["station"] == "alpha";
    let ours: Vec<&Json> = all.iter().filter(ours).collect();
    assert_eq!(ours.len(), 200);
    let whole = |it: &&Json| it["outcome"] == "received" && it["status"] == "complete";
    let (whole, others): (Vec<&Json>, Vec<&Json>) = ours.into_iter().partition(whole);
    let early = |it: &&Json| it["status"] == "lossy" && it["why"]["why"] == "socket-empty";
    assert!(others.iter().all(early) && others.len() as u64 <= EARLY, "{others:?}");
    begin_with_their_calls(&whole);
}
