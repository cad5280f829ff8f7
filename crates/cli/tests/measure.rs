// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire measure receive` and `measure path` as commands: what is counted, in which order
//! messages passed their timestamps, and what the host is like afterwards, however they ended.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{Host, Said, Scratch, TIMEWIRE, timewire, wait_until};
use serde_json::Value;

/// Counts that are the same however busy the host is, and times in order.
fn check_receive(report: &Value, of: u64, combinations: usize) {
    let all = report["combinations"].as_array().unwrap();
    assert_eq!(all.len(), combinations);
    for one in all {
        let name = one["name"].as_str().unwrap();
        for (count, wanted) in [("sent", of), ("received", of), ("lost", 0), ("duplicate", 0)] {
            assert_eq!(one[count], wanted, "{count} of {name}");
        }
        let is_xdp = name.starts_with("xdp");
        let stages: Vec<_> = one["stages"].as_array().unwrap().iter().collect();
        let names: Vec<_> = stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
        let wanted = match is_xdp {
            true => ["send->driver", "driver->user", "send->user"],
            false => ["send->kernel", "kernel->user", "send->user"],
        };
        assert_eq!(names, wanted, "{name}");
        for stage in stages {
            assert!(stage["all"]["min_ns"].as_i64().unwrap() >= 0, "{name}: {stage}");
            assert!(stage["all"]["max_ns"].as_i64() < Some(60_000_000_000), "{name}: {stage}");
        }
        for point in one["points"].as_array().unwrap() {
            let ns = |part: &str| point[part].as_i64().unwrap();
            assert!(ns("driver_ns") >= 0 && ns("stack_ns") >= 0, "{name}: {point}");
            assert_eq!(ns("driver_ns") + ns("stack_ns"), ns("complete_ns"), "{name}: {point}");
        }
    }
}

/// The JSON that a command printed; `None`, said loudly, where the kernel has no AF_XDP.
fn json_of(said: Said) -> Option<Value> {
    if said.code == Some(4) {
        eprintln!("SKIP: {}", said.stderr.trim());
        return None;
    }
    Some(said.done().json())
}

#[test]
fn t3_every_source_and_way_to_wait_gets_every_message_in_order() {
    let Some(host) = Host::start() else { return };
    let ways = ["--rate", "400", "--count", "60", "--repeat", "1", "--wait", "block,poll,busy"];
    let measure = |more: &[&str]| {
        json_of(host.timewire(&[&["measure", "receive", "--json"], &ways[..], more].concat()))
    };
    if let Some(report) = measure(&["--over", "udp,frames,ring"]) {
        check_receive(&report, 60, 9);
        assert_eq!(report["schema"], "timewire.measure-receive/1");
        assert_eq!(report["compare"], "over");
    }
    if let Some(report) = measure(&["--over", "xdp:generic,xdp:native"]) {
        check_receive(&report, 60, 6);
    }
    host.is_clean();
}

#[test]
fn t3_a_real_time_receiver_that_spins_rests_and_says_so() {
    let Some(host) = Host::start() else { return };
    let words = "measure receive --over udp,frames --wait poll --rate 1000 --count 300 --repeat 2 \
                 --sweep policy=fifo:10 --sweep sockets=0,3udp+2packet --sweep load=0,20 \
                 --sweep rps=off,0 --json --plot plot.svg";
    let words: Vec<_> = words.split_ascii_whitespace().collect();
    let Some(report) = json_of(host.timewire(&words)) else { return };
    let all = report["combinations"].as_array().unwrap();
    assert_eq!(all.len(), 16);
    for one in all {
        let count = |name: &str| one[name].as_u64().unwrap();
        assert_eq!((count("sent"), count("lost"), count("rounds")), (600, 0, 2), "{one}");
        let stack = &one["stages"][1]["all"];
        // What is left out is told: nothing is missing from the sum, since a round begins when the
        // kernel timestamps. On a busy machine all can come during rests; the stage is not there
        // then.
        assert_eq!(count("not_timestamped"), 0, "{one}");
        let measured = stack["count"].as_u64().unwrap_or(0);
        assert_eq!(measured + count("during_rest"), 600, "{one}");
        assert!(count("during_rest") > 0, "{one}");
        let others = if one["settings"]["sockets"] == "0" { 0 } else { 600 };
        assert!(count("read_by_others") >= others, "{one}");
    }
    let plot = fs::read_to_string(host.scratch().path().join("plot.svg")).unwrap();
    assert!(plot.starts_with("<svg ") && plot.contains("policy=fifo:10"));
    host.is_clean();
}

#[test]
fn t3_a_path_is_told_point_by_point() {
    let Some(host) = Host::start() else { return };
    for over in ["udp", "frames", "ring", "xdp:generic", "xdp:native"] {
        for reflect in [false, true] {
            let words = "measure path --rate 300 --trial 200ms --loads 50,100 --json --over";
            let mut words: Vec<_> = words.split_ascii_whitespace().chain([over]).collect();
            words.extend(reflect.then_some("--reflect"));
            let Some(report) = json_of(host.timewire(&words)) else { continue };
            assert_eq!(report["steps"].as_array().unwrap().len(), 2);
            for (step, count) in report["steps"].as_array().unwrap().iter().zip([30, 60]) {
                assert_eq!((&step["sent"], &step["received"]), (&count.into(), &count.into()));
                assert_eq!(step["timestamps_missing"], 0, "{over}");
                let stages = step["stages"].as_array().unwrap();
                let entry = if over.starts_with("xdp") { "rx-xdp" } else { "rx-sw" };
                let first = ["due -> send", "send -> sched", "sched -> tx-sw"];
                let names: Vec<_> = stages.iter().map(|it| it["stage"].as_str().unwrap()).collect();
                assert_eq!(names[..3], first);
                assert_eq!(names[3], format!("tx-sw -> far {entry}"));
                let whole =
                    if reflect { "round trip: send -> user" } else { "one way: send -> far user" };
                assert_eq!(names.last(), Some(&whole));
                for stage in stages {
                    assert!(stage["times"]["min_ns"].as_i64() >= Some(0), "{over}: {stage}");
                    assert_eq!(stage["times"]["count"], count, "{over}: {stage}");
                }
            }
        }
    }
    host.is_clean();
}

#[test]
fn t3_a_search_ends_with_a_rate_that_loses_nothing() {
    let Some(host) = Host::start() else { return };
    let words = "measure path --most 400 --resolution 50 --trial 100ms --loads 50 --json";
    let words: Vec<_> = words.split_ascii_whitespace().collect();
    let report = host.timewire(&words).json();
    let tried = report["search"].as_array().unwrap();
    assert_eq!(tried[0]["rate"], 400);
    let good = |it: &&Value| it["sent"] == it["received"] && it["kept_pace"] == true;
    let best = tried.iter().filter(good).map(|it| it["rate"].as_u64().unwrap()).max();
    assert_eq!(report["full_rate"].as_u64(), best, "{report}");
    host.is_clean();
}

#[test]
fn t3_another_program_answers_across_hosts() {
    let Some(host) = Host::start() else { return };
    host.tool("ip link set lo up");
    let answering = host.spawn(&["measure", "path", "--answer", "127.0.0.1:9700"]);
    wait_until("it answers", || {
        host.tool("cat /proc/net/udp").contains(&format!("{:04X} ", 9_700))
    });
    let words = "measure path --to 127.0.0.1:9700 --reflect --rate 200 --trial 200ms --loads 100";
    let mut words: Vec<_> = words.split_ascii_whitespace().chain(["--json"]).collect();
    let foreign = host.timewire(&words).done().json();
    assert_eq!(
        (&foreign["far_clock"], &foreign["steps"][0]["received"]),
        (&"foreign".into(), &40.into())
    );
    let names = |report: &Value| {
        let stages = report["steps"][0]["stages"].as_array().unwrap().clone();
        stages.iter().map(|it| it["stage"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(names(&foreign).contains(&"round trip less the far end".to_owned()));
    assert!(!names(&foreign).iter().any(|name| name.starts_with("out:")), "{foreign}");
    words.extend(["--far-clock-error", "1us"]);
    let told = host.timewire(&words).done().json();
    assert_eq!(told["far_clock"]["within"], 1_000);
    assert!(names(&told).contains(&"out: send -> far user".to_owned()), "{told}");
    answering.signal("INT");
    let said = answering.end();
    assert_eq!(said.code, Some(0));
    assert!(said.stderr.contains("80 messages answered"), "{said:?}");
}

const BUDGET: &str = "/proc/sys/net/core/netdev_budget";

/// Settings of receiving are the whole kernel's, so this is about the machine itself.
#[test]
fn t3_settings_are_as_before_after_every_kind_of_end() {
    let before = match fs::read_to_string(BUDGET) {
        Ok(before) if timewire_sys::namespace::effective_user() == 0 => before,
        _ => {
            eprintln!("SKIP: needs root in the first network namespace");
            return;
        }
    };
    let other = if before.trim() == "417" { "418" } else { "417" };
    let scratch = Scratch::new();
    for (signal, code) in [("INT", Some(2)), ("TERM", Some(2)), ("KILL", None)] {
        let log = fs::File::create(scratch.path().join("log")).unwrap();
        let mut measuring = Command::new(TIMEWIRE)
            .args(["measure", "receive", "--over", "udp", "--rate", "100", "--for", "600s"])
            .args(["--sweep", &format!("netdev_budget={other}")])
            .stdin(Stdio::null())
            .stdout(log)
            .spawn()
            .unwrap();
        let pid = measuring.id();
        wait_until("the setting is made", || {
            let now = fs::read_to_string(BUDGET).unwrap();
            now.trim() == other || measuring.try_wait().unwrap().is_some()
        });
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
        assert!(sent.unwrap().success());
        assert_eq!(measuring.wait().unwrap().code(), code, "{signal}");
        wait_until("the setting is restored", || fs::read_to_string(BUDGET).unwrap() == before);
        wait_until("the namespaces are gone", || {
            let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
            let ours = format!("twbench-{pid}-");
            !names.map(|it| it.file_name()).any(|it| it.to_string_lossy().starts_with(&ours))
        });
        let said = fs::read_to_string(scratch.path().join("log")).unwrap();
        assert_eq!(said.contains("ended on request"), code.is_some(), "{said}");
    }
}

#[test]
fn t1_what_cannot_be_measured_is_refused_in_words() {
    for (words, message) in [
        ("receive --count 0", "error: a round needs more than nothing\n"),
        ("receive --repeat 0", "error: a combination is measured at least once\n"),
        ("receive --payload 17B", "error: a message has 18 to 1472 bytes\n"),
        ("receive --thresholds 5us,2us", "error: the thresholds must be above zero and ascend\n"),
        ("receive --rate 0", "error: a rate is 1 to 5000000 frames per second\n"),
        ("receive --compare wait", "error: wait has one value only: nothing to compare\n"),
        (
            "receive --rate 1000000 --for 60s",
            "error: a round of 60000000 messages is too long, at most 2000000: repeat shorter \
             ones\n",
        ),
        (
            "path --over ring --to 127.0.0.1:9 --reflect",
            "error: ring is for the bench; to others it is udp\n",
        ),
        (
            "path --to 127.0.0.1:9",
            "error: a message to another host must come back: add --reflect\n",
        ),
        ("path --reflect --payload 49B", "error: a message has 50 to 1472 bytes here\n"),
        ("path --loads 0", "error: a load is 1 to 200 percent of the full rate\n"),
    ] {
        let words: Vec<_> = ["measure"].into_iter().chain(words.split(' ')).collect();
        timewire(&words).failed(2, message);
    }
    let sweep = timewire(&["measure", "receive", "--sweep", "speed=1"]);
    assert_eq!(sweep.code, Some(2));
    assert!(sweep.stderr.contains("`speed` is none of netdev_budget"), "{sweep:?}");
}
