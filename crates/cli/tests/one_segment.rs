// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network file of one segment without an experiment: the same messages in every place.

use serde_json::Value as Json;

use crate::on_hosts::Stations;
use crate::support::{Host, Said, Scratch, has_kernel, timewire};

const NETWORK: &str = "timewire: 1
kind: network
name: segment
duration: 600ms
warm_up: 100ms
stations: [alpha, { name: beta, receive: 1us }]
segments: [{ rate: 100Mbit }]
schedule: { kind: tdm, transmit: 400us, guard: 100us, slots: [alpha, beta] }
streams:
  - { name: state, talker: alpha, listeners: beta, class: 7, size: 64B, period: 5ms,
      max_latency: 1ms, max_jitter: 1ms, max_loss: 0% }
  - { name: events, talker: beta, listeners: alpha, size: 400B, kind: sporadic,
      gap: { kind: exponential, mean: 3ms } }
  - { name: load, talker: alpha, listeners: beta, size: 512B, kind: flood, rate: 5Mbit }
";

/// Without what depends on how fast a host is.
fn without_limits() -> String {
    NETWORK.replace("\n      max_latency: 1ms, max_jitter: 1ms, max_loss: 0% }", " }")
}

fn run(scratch: &Scratch, words: &[&str]) -> Said {
    let file = scratch.join("segment.yaml");
    timewire(&[&["run", &file, "--json"], words].concat())
}

/// Messages that each measured stream sent in the time that is counted.
fn sent(summary: &Json) -> Vec<(&str, u64)> {
    let streams = summary["cases"][0]["streams"].as_array().unwrap();
    let of = |stream: &'_ &Json| stream["name"] != "load";
    streams
        .iter()
        .filter(of)
        .map(|stream| (stream["name"].as_str().unwrap(), stream["sent"].as_u64().unwrap()))
        .collect()
}

fn limits(summary: &Json) -> Vec<(&str, &str)> {
    let limits = summary["findings"].as_array().unwrap().iter();
    let limits = limits.filter_map(|it| Some((it["id"].as_str()?, it["verdict"].as_str()?)));
    limits.collect()
}

#[test]
fn t4_kernels_in_virtual_time_send_the_messages_of_the_simulator() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("segment.yaml", NETWORK);
    let out = [scratch.join("sim"), scratch.join("lab")];
    let sim = run(&scratch, &["--on", "sim", "--out", &out[0]]).done().json();
    let lab = run(&scratch, &["--on", "lab:uml", "--out", &out[1]]).done().json();
    assert_eq!(sent(&lab), sent(&sim));
    assert_eq!(limits(&lab), limits(&sim));
    let all = ["segment/state-latency", "segment/state-jitter", "segment/state-lost"];
    assert_eq!(limits(&lab), all.map(|id| (id, "pass")));
    assert_eq!(lab["cases"][0]["id"], sim["cases"][0]["id"]);
    assert_eq!(lab["cases"][0]["wire"]["outside_slots"], 0, "{lab:#}");
    let said = timewire(&["compare", "--places", &out[0], &out[1], "--json"]).done().json();
    let state = said["streams"].as_array().unwrap().iter().find(|it| it["stream"] == "state");
    for figures in state.unwrap()["figures"].as_array().unwrap() {
        assert_eq!(figures["promise"]["limit_ns"], 1_000_000, "{said:#}");
        assert!(figures["max_ns"].as_i64() < Some(1_000_000), "{said:#}");
    }
}

#[test]
fn t3_agents_and_namespaces_send_the_messages_of_the_simulator() {
    let Some(stations) = Stations::start() else { return };
    let host: &Host = &stations.host;
    host.scratch().write("segment.yaml", &without_limits());
    let before = stations.look();
    let places = ["sim", "lab", "hosts.yaml"];
    let summaries = places.map(|place| {
        let words = ["run", "segment.yaml", "--on", place, "--json", "--out"];
        let said = host.timewire(&[&words[..], &[&place[..3]]].concat()).done();
        let told = "times to send and to receive are those of the place: beta\n";
        assert_eq!(said.stderr.contains(told), place != "sim", "{said:?}");
        said.json()
    });
    let [sim, lab, hosts] = &summaries;
    for place in [lab, hosts] {
        assert_eq!(place["cases"][0]["id"], sim["cases"][0]["id"]);
        let streams = place["cases"][0]["streams"].as_array().unwrap().iter();
        let skipped: u64 = streams.map(|it| it["skipped"].as_u64().unwrap()).sum();
        for ((name, here), (of, there)) in sent(place).into_iter().zip(sent(sim)) {
            // A host that stalls leaves messages out, and sends others after the end.
            let all = here + skipped + there / 4;
            assert!(name == of && here <= there + 3 && all >= there, "{name}: {place:#}");
        }
    }
    assert_eq!(hosts["cases"][0]["macs"].as_array().unwrap().len(), 2);
    for place in ["lab", "hosts.yaml"] {
        let words = ["run", "segment.yaml", "--on", place, "--trace", "--json", "--out"];
        let said = host.timewire(&[&words[..], &[&format!("{place}-traced")]].concat());
        if said.stderr.contains("cannot trace: ") {
            eprintln!("SKIP: no tracing on this kernel: {}", said.stderr.trim());
            break;
        }
        // Of each message the time is known on the transmit side, the link and the receive side.
        let summary = said.done().json();
        for (traced, measured) in traced_streams(&summary) {
            let count = measured["sent"].as_u64();
            assert!(count > Some(20), "{place}: {measured:#}");
            // One at an end of what is counted can be on either side of it.
            let seen = traced["sent"].as_u64().unwrap();
            assert!(seen.abs_diff(count.unwrap()) <= 1, "{place}: {traced:#}");
            let whole = traced["transmit"]["count"].as_u64();
            assert!(whole > Some(20) && whole <= Some(seen), "{place}: {traced:#}");
        }
    }
    assert_eq!(stations.look(), before);
}

/// What was traced of each stream, beside what was measured of it.
fn traced_streams(summary: &Json) -> Vec<(&Json, &Json)> {
    let case = &summary["cases"][0];
    let measured = case["streams"].as_array().unwrap();
    let traced = case["traced"]["streams"].as_array().unwrap();
    assert_eq!(traced.len(), measured.len(), "{case:#}");
    traced.iter().zip(measured).collect()
}

#[test]
fn t2_what_kernels_do_not_do_is_told_with_its_place() {
    let scratch = Scratch::new();
    let refused = |text: &str, code: i32, says: &[&str]| {
        scratch.write("segment.yaml", text);
        let said = run(&scratch, &["--dry-run"]);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.stderr.ends_with("nothing was run\n"), "{said:?}");
        for word in says {
            assert!(said.stderr.contains(word), "{word}: {said:?}");
        }
    };
    let token = NETWORK.replace("[{ rate: 100Mbit }]", "[{ access: token, loss: 1% }]");
    let token = token.replace("schedule:", "# schedule:");
    refused(
        &token,
        4,
        &[
            "segment.yaml:7:22: segments[0].access: kernels pass no token",
            "segment.yaml:7:35: segments[0].loss: only the simulator loses frames",
            "segment.yaml: 2 errors",
        ],
    );
    let several = NETWORK.replace("period: 5ms", "period: 5ms, jitter: 1us");
    refused(&several, 4, &["streams[0].jitter: a talker sends when it is due"]);
    let wrong = NETWORK.replace("period: 5ms", "period: 0ms");
    refused(&wrong, 2, &["streams[0].period: it takes time"]);
    // What is right is shown, and the simulator takes both.
    scratch.write("segment.yaml", NETWORK);
    let said = timewire(&["run", &scratch.join("segment.yaml"), "--dry-run"]).done();
    let shown =
        "  1 case x 1 load\n  state-latency  latency-max of state in network/all at most 1ms\n";
    assert!(said.stdout.contains(shown), "{said:?}");
    scratch.write("segment.yaml", &token);
    assert_eq!(run(&scratch, &["--on", "sim", "--dry-run"]).code, Some(0));
}

const CASES: &str = "experiment:
  loads: [alone, load]
  cases:
    - { name: plain, change: { schedule: null } }
    - { name: slots, change: { streams: { state: { class: 0, max_latency: null } } } }
    - { name: priorities, title: Slots with priorities }
limits:
  - { id: priorities-help, metric: latency-mean, stream: state, case: priorities, load: load,
      relative_to: { case: slots }, at_most: 0.8 }
";

/// Cases that leave the schedule or the classes out, in two places under the same names.
#[test]
fn t4_cases_of_one_segment_are_judged_alike_in_two_places() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    // As much as the slots of the talker take, so that without priorities messages wait.
    let busy = NETWORK.replace("rate: 5Mbit }", "rate: 35Mbit, loads: [load] }");
    scratch.write("segment.yaml", &(busy + CASES));
    let out = [scratch.join("sim"), scratch.join("lab")];
    let sim = run(&scratch, &["--on", "sim", "--out", &out[0]]).done().json();
    let lab = run(&scratch, &["--on", "lab:uml", "--out", &out[1]]).done().json();
    let ids = |summary: &Json| {
        let cases = summary["cases"].as_array().unwrap().iter();
        let of = |it: &Json| (it["id"].clone(), it["title"].clone(), it["tdm"].clone());
        cases.map(of).collect::<Vec<_>>()
    };
    assert_eq!(ids(&sim), ids(&lab));
    let sorted = |summary: &Json| {
        let all = limits(summary).into_iter().map(|(id, it)| (id.to_owned(), it.to_owned()));
        all.collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(sorted(&sim), sorted(&lab));
    assert_eq!(sorted(&lab)["segment/priorities-help"], "pass", "{lab:#}");
    assert_eq!(sorted(&lab).len(), 1 + 4 + 2 * 6, "{:?}", sorted(&lab));
}
