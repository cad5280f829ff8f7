// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream whose starts nobody tells: what is said of any start is what trying every start says.

use proptest::prelude::*;
use serde_json::{Value, json};
use timewire_model::scenario::network::NetworkFile;
use timewire_plan::check::Rule;
use timewire_plan::file::{self, FileProblem, Held, hold};
use timewire_tsn::file::ParseFile;

/// All times are multiples of it: a frame of 84 bytes with all around it takes 84 of them.
const STEP: i64 = 8;
/// Starts are tried so far apart: a hop of 672, 500 and 400 ns is an odd number of them.
const TRIED: usize = 4;

/// A talker, two bridges, a listener; frames of 84 bytes on the wire, each 8 us.
fn network(latency: i64, offset: i64, burst: i64) -> (NetworkFile, FileProblem) {
    let text = format!(
        "timewire: 1
kind: network
name: line
duration: 1ms
sync_error: 0ns
stations: [{{ name: a }}, {{ name: b }}]
bridges: [{{ name: x, forward: 400ns }}, {{ name: y, forward: 400ns }}]
links:
- {{ between: [a, x], rate: 1Gbit }}
- {{ between: [x, y], rate: 1Gbit }}
- {{ between: [y, b], rate: 1Gbit }}
streams:
- {{ name: s, talker: a, listeners: b, class: 3, size: 14B, scheduled: true,
    max_latency: {latency}ns, kind: cyclic, period: 8us, offset: {offset}ns, burst: {burst} }}
"
    );
    let network = NetworkFile::parse("line", &text).unwrap_or_else(|errors| panic!("{errors}"));
    let given = file::problem(&network).unwrap();
    (network, given)
}

/// Gates of a port: class 3 is open in windows of a cycle that begins at 0.
fn gates(interface: &str, cycle: i64, windows: &[(i64, i64)]) -> Value {
    gates_from(0, interface, cycle, windows)
}

/// The same of a cycle that begins at an instant.
fn gates_from(base: i64, interface: &str, cycle: i64, windows: &[(i64, i64)]) -> Value {
    let (mut entries, mut at) = (Vec::new(), 0);
    let mut add = |open: u8, lasts: i64| {
        if lasts > 0 {
            let index = entries.len();
            entries.push(json!({"index": index, "operation-name": "set-gate-states",
                "gate-states-value": open, "time-interval-value": lasts}));
        }
    };
    for (from, until) in windows {
        add(1, from - at);
        add(8, until - from);
        at = *until;
    }
    add(1, cycle - at);
    let cycle = json!({"numerator": cycle, "denominator": 1_000_000_000});
    let base = json!({"seconds": "0", "nanoseconds": base});
    let table = json!({"gate-enabled": true, "admin-base-time": base, "admin-cycle-time": cycle,
        "admin-control-list": {"gate-control-entry": entries}});
    json!({"interfaces": {"interface": [
        {"name": interface, "bridge-port": {"gate-parameter-table": table}},
    ]}})
}

/// Windows in order, at multiples of the step.
fn windows(cycle: i64) -> impl Strategy<Value = Vec<(i64, i64)>> {
    let place = 0..=cycle / STEP;
    prop::collection::btree_set(place, 2..7).prop_map(|places| {
        let places: Vec<i64> = places.into_iter().collect();
        places.chunks_exact(2).map(|pair| (pair[0] * STEP, pair[1] * STEP)).collect()
    })
}

fn is_good(held: &Held) -> bool {
    let bad = [Rule::GateShut, Rule::Latency];
    held.configured.undecided.is_empty()
        && !held.configured.report.findings.iter().any(|finding| bad.contains(&finding.rule))
}

type Files = Vec<(String, Vec<u8>)>;

fn said(network: &NetworkFile, given: &FileProblem, files: &Files) -> Held {
    hold(network, given, files, &mut || true).unwrap_or_else(|error| panic!("{error}"))
}

fn file(name: &str, value: &Value) -> (String, Vec<u8>) {
    (name.to_owned(), value.to_string().into_bytes())
}

#[test]
fn t0_a_gate_that_opens_late_is_no_reason_for_a_late_frame() {
    let (network, given) = network(4_400, 0, 1);
    let late = gates("eth1", 8_000, &[(6_400, 7_200)]);
    let files = vec![file("y.yang.json", &late)];
    let held = said(&network, &given, &files);
    assert!(is_good(&held), "{held:?}");
    // From a start at 0 it would take longer.
    let launch = "stream,frame,interface,priority,interval_ns,start_ns,launch_ns,bytes\n\
                  s,0,eth0,3,8000,0,,64\n";
    let mut told = files.clone();
    told.push(("a.launch.csv".to_owned(), launch.as_bytes().to_vec()));
    assert!(!is_good(&said(&network, &given, &told)));
    // A window that is too short is one for no start.
    let files = vec![file("y.yang.json", &gates("eth1", 8_000, &[(6_400, 7_000)]))];
    let held = said(&network, &given, &files);
    assert_eq!(held.configured.report.findings[0].rule, Rule::GateShut);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Gates at the talker, or none, and at both bridges, with cycles that divide the interval.
    #[test]
    fn t0_any_start_is_as_good_as_the_best_of_all_starts(
        latency in 300..1_000_i64,
        offset in 0..900_i64,
        talker in prop::option::of(windows(8_000)),
        first in windows(4_000),
        second in windows(8_000),
    ) {
        let (network, given) = network(latency * STEP, offset * STEP, 1);
        let mut files = vec![
            file("x.yang.json", &gates("eth1", 4_000, &first)),
            file("y.yang.json", &gates("eth1", 8_000, &second)),
        ];
        files.extend(talker.map(|windows| file("a.yang.json", &gates("eth0", 8_000, &windows))));
        let any = said(&network, &given, &files);
        prop_assert!(any.configured.undecided.is_empty());
        let head = "stream,frame,interface,priority,interval_ns,start_ns,launch_ns,bytes";
        let tries = |start: i64| {
            let table = format!("{head}\ns,0,eth0,3,8000,{start},,64\n");
            let mut files = files.clone();
            files.push(("a.launch.csv".to_owned(), table.into_bytes()));
            is_good(&said(&network, &given, &files))
        };
        let best = (offset * STEP..8_000).step_by(TRIED).any(tries);
        prop_assert_eq!(is_good(&any), best, "{:?}", any.configured.report.findings);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The same of messages of several frames, one behind the other at the talker.
    #[test]
    fn t0_any_start_of_a_burst_is_as_good_as_the_best_of_all_starts(
        latency in 400..1_000_i64,
        burst in 2..4_i64,
        first in windows(8_000),
        second in windows(4_000),
    ) {
        let (any, best) = of_a_burst(latency, burst, &first, &second);
        prop_assert_eq!(any, best);
    }
}

/// Whether a burst is good when nobody tells its start, and with the best of all starts. A burst
/// may go on into the next cycle: so it always starts at 0, and the gates are earlier instead.
fn of_a_burst(
    latency: i64,
    burst: i64,
    first: &[(i64, i64)],
    second: &[(i64, i64)],
) -> (bool, bool) {
    let (network, given) = network(latency * STEP, 0, burst);
    let files = |base: i64| {
        vec![
            file("x.yang.json", &gates_from(base, "eth1", 8_000, first)),
            file("y.yang.json", &gates_from(base, "eth1", 4_000, second)),
        ]
    };
    let head = "stream,frame,interface,priority,interval_ns,start_ns,launch_ns,bytes";
    let rows = (0..burst).map(|frame| format!("s,{frame},eth0,3,8000,{},,64\n", 673 * frame));
    let table = format!("{head}\n{}", rows.collect::<String>());
    let tries = |start: i64| {
        let mut files = files((8_000 - start) % 8_000);
        files.push(("a.launch.csv".to_owned(), table.clone().into_bytes()));
        is_good(&said(&network, &given, &files))
    };
    let any = is_good(&said(&network, &given, &files(0)));
    // A frame after another is a whole occupancy later: 673 ns with its margin.
    (any, (0..8_000).any(tries))
}

#[test]
fn t0_a_burst_may_go_on_into_the_next_cycle_and_start_between_two_steps() {
    assert_eq!(of_a_burst(959, 3, &[(0, 2_312)], &[(544, 2_544)]), (true, true));
}
