// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire compare` and `run --baseline`, with real runs.

use std::fs;

use crate::support::{Host, PLAIN_CASE, Scratch, Tiny, has_kernel, timewire};
use serde_json::Value;

const TDM_CASE: &str = "{ name: tdm, title: TDM }";

/// A scenario whose messages wait for slots of a cycle of so many milliseconds.
fn scenario(scratch: &Scratch, file: &str, cycle_ms: u32) -> String {
    let transmit = format!("transmit: {}us", cycle_ms * 500 - 50);
    let text = Tiny { name: "tiny", cases: TDM_CASE, more: "" }.text();
    let text = text.replace("cycle_time: 1ms", &format!("cycle_time: {cycle_ms}ms"));
    let text = text.replace("transmit: 450us", &transmit);
    let text = text.replace("\nduration: 250ms", "\nduration: 2050ms");
    let text = text.replace("quick_duration: 250ms", "quick_duration: 550ms");
    let text = text.replace("deadline: 1ms", "deadline: 20ms");
    scratch.write(file, &text)
}

fn metric<'a>(comparison: &'a Value, name: &str) -> &'a Value {
    let metrics = comparison["cases"][0]["metrics"].as_array().expect("a list");
    metrics.iter().find(|metric| metric["metric"] == name).expect("the metric is there")
}

#[test]
fn t3_a_run_is_the_same_as_itself_and_slots_of_a_longer_cycle_are_worse() {
    let Some(host) = Host::start() else { return };
    let short = scenario(host.scratch(), "short.yaml", 1);
    let long = scenario(host.scratch(), "long.yaml", 4);
    host.timewire(&["run", &short, "--out", "a"]).done();

    let same = host.timewire(&["compare", "a", "a"]).done();
    assert!(same.stdout.contains("\nverdict: SAME (0 worse, 0 better, "), "{same:?}");
    assert_eq!(same.stderr, "");

    let run = host.timewire(&["run", &long, "--out", "b", "--baseline", "a"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(1), ""), "{run:?}");
    assert!(run.stdout.contains("\nverdict: PASS (no limits were set)\n"), "{run:?}");
    assert!(run.stdout.contains("\nagainst the baseline:\n"), "{run:?}");
    assert!(run.stdout.contains("\nverdict: WORSE ("), "{run:?}");
    assert!(run.stdout.contains("\n  - "), "the texts of the scenarios differ: {run:?}");

    let read = |name: &str| fs::read_to_string(host.scratch().path().join(name)).expect("a file");
    // A run directory is named as it was found; the run found its own by its whole path.
    let b = host.scratch().join("b");
    let said = host.timewire(&["compare", "a", &b, "--json", "--html", "page.html"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(1), ""));
    assert_eq!(said.stdout, read("b/comparison.json"), "the same bytes as those of the run");
    assert_eq!(read("page.html"), read("b/comparison.html"));
    let comparison = said.json();
    assert_eq!(comparison["schema"], "timewire.comparison/1");
    assert_eq!(comparison["verdict"], "worse");
    assert!(comparison["hosts"]["compared"].as_u64() >= Some(2), "{comparison}");
    for name in ["latency-p50", "latency-mean", "slot-wait-p50"] {
        let found = metric(&comparison, name);
        assert_eq!(found["verdict"], "worse", "{found}");
        assert!(found["ratio"]["low"].as_f64() > Some(1.05), "{found}");
    }
    assert_eq!(metric(&comparison, "latency-max")["verdict"], "shown");

    // How long receivers took is the host's affair; in virtual time nothing is worse.
    let better = host.timewire(&["compare", "b", "a", "--json"]).json();
    assert_eq!(metric(&better, "latency-p50")["verdict"], "better");
    host.is_clean();
}

/// Where time is virtual, however busy the machine is.
#[test]
fn t4_a_run_that_changed_nothing_is_the_same_and_longer_slots_are_worse() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let (short, long) = (scenario(&scratch, "short.yaml", 1), scenario(&scratch, "long.yaml", 4));
    let [good, again, slow] = ["good", "again", "slow"].map(|name| scratch.join(name));
    let run = |file: &str, out: &str, more: &[&str]| {
        timewire(&[&["run", file, "--quick", "--on", "lab:uml", "--out", out], more].concat())
    };
    run(&short, &good, &[]).done();
    let against = |file: &str, out: &str| run(file, out, &["--baseline", &good]);
    let same = against(&short, &again).done();
    assert!(
        same.stdout.contains("\nverdict: SAME (0 worse, 0 better, 12 same, 0 inconclusive"),
        "{same:?}"
    );
    let worse = against(&long, &slow);
    assert_eq!((worse.code, worse.stderr.as_str()), (Some(1), ""), "{worse:?}");
    assert!(worse.stdout.contains("\nverdict: WORSE ("), "{worse:?}");
    assert!(worse.stdout.contains("latency-p50"), "{worse:?}");
}

#[test]
fn t3_runs_without_a_case_in_common_are_not_compared() {
    let Some(host) = Host::start() else { return };
    for (name, out) in [("tiny", "a"), ("other", "b")] {
        let file = format!("{name}.yaml");
        let file = host.scratch().write(&file, &Tiny { name, cases: PLAIN_CASE, more: "" }.text());
        host.timewire(&["run", &file, "--out", out]).done();
    }
    host.timewire(&["compare", "a", "b"]).failed(
        2,
        "error: the runs have no case in common: a has tiny/plain/alone, b has \
         other/plain/alone\n",
    );
    let other = host.scratch().join("other.yaml");
    for more in [&["--out", "c"][..], &["--dry-run"]] {
        let arguments = [&["run", &other, "--baseline", "a"], more].concat();
        host.timewire(&arguments).failed(
            2,
            "error: the baseline a has no case of these networks; it has tiny/plain/alone\n",
        );
    }
    assert!(!host.scratch().path().join("c").exists(), "nothing was run");
    host.is_clean();
}

#[test]
fn t1_wrong_use_is_named() {
    timewire(&["compare", "no-such", "no-such"]).failed(
        2,
        "error: no-such: no such directory, so it is no run directory of `timewire run`, `sim` \
         or `demo`\n",
    );
    let said = timewire(&["compare", "a", "b", "--tolerance", "5"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("a share is in per cent"), "{said:?}");
    let said = timewire(&["run", "no-such.yaml", "--confidence", "100%"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("it is in per cent, from 50% to 99.9999%"), "{said:?}");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/tdm-64.yaml");
    timewire(&["run", file, "--dry-run", "--seed", "3"])
        .failed(2, "error: --seed is for a comparison; name the run with --baseline DIR\n");
}
