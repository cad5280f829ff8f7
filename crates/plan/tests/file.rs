// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans of files of networks: found, checked, bounded, and written for Linux.
#![expect(clippy::disallowed_methods, reason = "a committed file is read by the test")]

use timewire_base::Span;
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::network::NetworkFile;
use timewire_plan::check::{Verdict, check, judge};
use timewire_plan::file::{self, FileProblem, RenderError};
use timewire_plan::model::{Certificate, Plan};
use timewire_plan::synth::{Options, plan};
use timewire_tsn::file::ParseFile;

const CELL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/networks/planned-cell.network.yaml");

fn planned(text: &str) -> (NetworkFile, FileProblem, Plan) {
    let network = NetworkFile::parse("test", text).unwrap_or_else(|errors| panic!("{errors}"));
    let given = file::problem(&network).unwrap();
    let found = plan(given.problem.clone(), Options::default(), 1_000_000);
    let report = check(&given.problem, &found).unwrap();
    assert_eq!(report.findings, [], "a plan holds");
    (network, given, found)
}

fn cell() -> String {
    std::fs::read_to_string(CELL).unwrap()
}

/// Two stations at a bridge; `more` are keys of the stream.
fn pair(device: &str, more: &str) -> String {
    format!(
        "timewire: 1\nkind: network\nname: pair\nduration: 10ms\nsync_error: 0ns\n\
         stations: [{{ name: a, device: {{ {device} }} }}, {{ name: b }}]\n\
         bridges: [{{ name: br, forward: 2us }}]\n\
         links: [{{ between: [a, br] }}, {{ between: [br, b] }}]\n\
         streams:\n- {{ name: s, talker: a, listeners: b, class: 7, size: 54B, {more} }}\n\
         - {{ name: rest, talker: a, listeners: b, size: 1472B, \
         kind: cyclic, period: 10ms }}\n"
    )
}

const CYCLIC: &str = "kind: cyclic, period: 1ms, offset: 100us, scheduled: true";

#[test]
fn t1_every_stream_of_the_shipped_file_has_a_place() {
    let (network, given, plan) = planned(&cell());
    assert_eq!((plan.admitted.len(), plan.refused.len()), (7, 0));
    let alarm = given.problem.find("alarm").unwrap();
    assert_eq!(given.problem.stream(alarm).interval, Span::from_ms(4));
    let bounds = file::bounds(&network, &given, &plan).unwrap();
    assert_eq!(bounds.len(), 2);
    for bound in bounds {
        assert!(bound.bound.is_ok(), "{bound:?}");
    }
}

#[test]
fn t0_times_follow_from_the_file() {
    let (_, given, plan) = planned(&pair("", CYCLIC));
    let sent = &plan.admitted[0].transmissions;
    // 54 bytes of payload are 104 with headers, tag and check sequence, 124 with what is around:
    // 9.92 us at 100 Mbit/s and 2 ns of margin, then 500 ns of cable and 2 us in the bridge.
    assert_eq!(given.problem.stream(plan.admitted[0].stream).length_bytes, 104);
    assert_eq!(sent[0].start, Span::from_us(100));
    assert_eq!(sent[1].start - sent[0].start, Span::from_ns(9_922 + 500 + 2_000));
}

#[test]
fn t0_what_cannot_be_is_refused_with_a_reason() {
    let place = "kind: cyclic, period: 1ms, scheduled: true, max_latency: 20us";
    let (_, _, plan) = planned(&pair("", place));
    let reason = &plan.refused[0].certificate;
    let needed = Span::from_ns(2 * (9_922 + 500) + 2_000);
    assert!(
        matches!(reason, Certificate::MinimumLatency { needed: own, .. } if *own == needed),
        "{reason:?}"
    );
    let (_, _, plan) = planned(&pair("gate_entries: 0", CYCLIC));
    assert!(matches!(plan.refused[0].certificate, Certificate::NoInstant { .. }));
}

#[test]
fn t0_a_file_that_cannot_be_planned_says_where() {
    let cases = [
        ("class: 7, size: 54B", "class: 0, size: 54B", "streams[0].class"),
        ("name: rest", "name: rest, class: 7", "streams[1].class"),
        ("offset: 100us", "spacing: 1us", "streams[0].spacing"),
        ("offset: 100us", "offset: 1ms", "streams[0].offset"),
        ("kind: cyclic, period: 1ms, offset: 100us", "kind: flood, rate: 1Mbit", "streams[0].kind"),
        ("scheduled: true", "scheduled: true, max_latency: 0us", "streams[0].max_latency"),
        ("forward: 2us", "forward: { kind: exponential, mean: 1us }", "bridges[0].forward"),
        ("device: {  }", "device: { queues: 1 }", "streams[1].class"),
    ];
    for (from, to, key) in cases {
        let text = pair("", CYCLIC).replace(from, to);
        let errors = NetworkFile::parse("test", &text).expect_err(to).to_string();
        assert!(errors.contains(key), "{to}: {errors}");
    }
}

#[test]
fn t1_host_settings_are_accepted_by_their_reader() {
    let (network, given, plan) = planned(&cell());
    let files = file::render(&network, &given, &plan).unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names.iter().filter(|name| name.ends_with(".launch.csv")).count(), 5, "{names:?}");
    let hosts = files.iter().filter(|file| file.name.ends_with(".host.yaml"));
    let mut ports = 0;
    for host in hosts {
        let read = HostSettings::parse(&host.name, &host.text);
        ports += read.unwrap_or_else(|errors| panic!("{errors}")).host.interfaces.len();
    }
    assert_eq!(ports, plan.gates.len());
    let lines = |name: &str| files.iter().find(|file| file.name == name).unwrap().text.clone();
    let west = lines("west.tc");
    assert_eq!(west.lines().count(), 3, "to plc-1, drive-1 and north: {west}");
    assert!(west.lines().all(|line| line.contains(" root handle 100: ")), "{west}");
    assert!(west.contains("stab overhead 28") && west.contains(" taprio "), "{west}");
    // The talker with launch times has etf below, and its gates only keep others away.
    let plc = lines("plc-1.tc");
    assert!(plc.contains(" etf ") && plc.contains("delta 100000"), "{plc}");
    let plc: Vec<&str> = plc.lines().collect();
    assert!(plc.len() == 3 && plc[0] == plc[2], "the gates are started again: {plc:?}");
    let rows = lines("plc-1.launch.csv");
    let row: Vec<&str> = rows.lines().nth(1).unwrap().split(',').collect();
    let [start, launch] = [5, 6].map(|column| row[column].parse::<i64>().unwrap());
    assert_eq!(launch - start, 100_000, "{rows}");
}

#[test]
fn t0_states_that_the_kernel_refuses_are_named() {
    // Two frames that follow each other with less than a frame between them.
    let text = pair("", CYCLIC).replace(
        "scheduled: true",
        "scheduled: true }\n- { name: t, talker: a, listeners: b, \
         class: 7, size: 54B, kind: cyclic, period: 1ms, offset: 110us, scheduled: true",
    );
    let (network, given, plan) = planned(&text);
    assert_eq!(plan.admitted.len(), 2);
    let refused = file::render(&network, &given, &plan).unwrap_err();
    let least = Span::from_ns(4_800);
    assert!(
        matches!(&refused, RenderError::Short { lasts, least: own, .. }
            if *lasts < least && *own == least),
        "{refused}"
    );
}

#[test]
fn t0_the_planned_file_is_a_network_with_gates() {
    let (network, given, plan) = planned(&pair("launch_time: 50us", CYCLIC));
    let planned = file::planned(&network, &given, &plan).unwrap();
    assert_eq!(planned.ports.len(), 3);
    assert!(planned.streams.iter().all(|stream| !stream.scheduled));
    assert_eq!(planned.streams[0].launch, Some(Span::from_us(50)));
    assert_eq!(planned.limits.len(), 3);
}

#[test]
fn t0_launch_times_that_the_gates_do_not_take_are_named() {
    // The start is at 100 us and the window as long as the frame, 9920 ns, and its margin of 2 ns,
    // in a cycle of 1 ms.
    let rendered = |lead: &str| {
        let text = pair(&format!("launch_time: {lead}"), CYCLIC);
        let (network, given, plan) = planned(&text);
        file::render(&network, &given, &plan)
    };
    for lead in ["1ms", "50us", "990078ns", "9922ns"] {
        assert!(rendered(lead).is_ok(), "{lead}: {:?}", rendered(lead));
    }
    for (lead, launch) in [("990079ns", 90_079), ("3ns", 100_003), ("9921ns", 109_921)] {
        let refused = rendered(lead).unwrap_err();
        assert!(
            matches!(&refused, RenderError::Across { launch: own, .. }
                if *own == Span::from_ns(launch)),
            "{lead}: {refused}"
        );
    }
}

#[test]
fn t1_gates_of_a_bridge_are_instance_data() {
    let (network, given, plan) =
        planned(&pair("", CYCLIC).replace("forward: 2us", "forward: 2us, device: { queues: 4 }"));
    let files = file::render(&network, &given, &plan).unwrap();
    let found = files.iter().filter(|file| file.name.ends_with(".yang.json")).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "only of the bridge");
    let data: serde_json::Value = serde_json::from_str(&found[0].text).unwrap();
    let interface = &data["ietf-interfaces:interfaces"]["interface"][0];
    assert_eq!(interface["name"], "eth1");
    let port = &interface["ieee802-dot1q-bridge:bridge-port"];
    let table = &port["ieee802-dot1q-sched-bridge:gate-parameter-table"];
    assert_eq!(table["admin-cycle-time"], serde_json::json!({"numerator": 1, "denominator": 1000}));
    assert_eq!(table["admin-gate-states"], 15);
    let entries = table["admin-control-list"]["gate-control-entry"].as_array().unwrap();
    let row = |place: usize, key: &str| entries[place][key].as_u64().unwrap();
    // The frame starts at 112422 ns, and with four queues the highest is 3.
    let states: Vec<_> = (0..3).map(|place| row(place, "gate-states-value")).collect();
    assert_eq!(states, [0b0111, 0b1000, 0b0111]);
    let times: Vec<_> = (0..3).map(|place| row(place, "time-interval-value")).collect();
    // A fifth of a thousandth longer than the frame.
    assert_eq!(times, [112_422, 9_922, 877_656]);
    assert_eq!((entries.len(), row(2, "index")), (3, 2));
}

/// A talker with launch times and no gates, and a bridge: a burst of six planned frames goes to one
/// station, `rest` to another; `more` are lines of streams.
fn burst(bridge: &str, more: &str) -> String {
    format!(
        "timewire: 1\nkind: network\nname: burst\nduration: 10ms\n\
         stations: [{{ name: a, device: {{ gate_entries: 0, launch_time: 50us }} }}, \
         {{ name: b }}, {{ name: c }}]\n\
         bridges: [{{ name: br, forward: 2us, device: {{ {bridge} }} }}]\n\
         links: [{{ between: [a, br] }}, {{ between: [br, b] }}, {{ between: [br, c] }}]\n\
         streams:\n- {{ name: s, talker: a, listeners: b, class: 7, size: 1400B, \
         kind: cyclic, period: 1ms, burst: 6, scheduled: true }}\n{more}"
    )
}

const REST: &str = "- { name: rest, talker: a, listeners: c, size: 100B, \
                    kind: cyclic, period: 1ms }\n";

/// Whoever comes when the first of six frames of 117 us begins waits for all of them.
#[test]
fn t0_others_wait_for_planned_frames_where_no_gate_keeps_them_apart() {
    let (network, given, plan) = planned(&burst("", REST));
    assert_eq!(plan.gates.len(), 1, "only the bridge has gates");
    let bounds = file::bounds(&network, &given, &plan).unwrap();
    let latency = bounds[0].bound.clone().unwrap().0;
    assert!(latency > Span::from_ns(6 * 117_280), "{latency}");
    let (network, given, plan) = planned(&burst("gate_entries: 0", REST));
    let none = file::bounds(&network, &given, &plan).unwrap_err();
    assert_eq!(none.to_string(), "br>b class 7: br has no gates, and planned frames go through it");
}

/// Nothing repeats with streams that have no place, so their intervals may have any multiple.
#[test]
fn t0_bounds_need_no_common_cycle() {
    let flood = |number: u64, bytes: u64, mbit: u64| {
        format!(
            "- {{ name: f{number}, talker: b, listeners: c, size: {bytes}B, \
             kind: flood, rate: {mbit}Mbit }}\n"
        )
    };
    let rows = [(1, 1_001, 7), (2, 1_003, 11), (3, 1_007, 13), (4, 1_013, 17)];
    let more: String = rows.map(|(number, bytes, mbit)| flood(number, bytes, mbit)).concat();
    let (network, given, plan) = planned(&burst("", &more));
    let bounds = file::bounds(&network, &given, &plan).unwrap();
    assert_eq!(bounds.len(), 4);
    assert!(bounds.iter().all(|bound| bound.bound.is_ok()), "{bounds:?}");
}

#[test]
fn t0_why_there_are_no_bounds_is_said_with_names() {
    let why = |text: &str| {
        let (network, given, plan) = planned(text);
        let bounds = file::bounds(&network, &given, &plan);
        bounds.and_then(|mut it| it.remove(0).bound).unwrap_err().to_string()
    };
    let rest = |more: &str| REST.replace("kind: cyclic, period: 1ms", more);
    let late = rest(
        "kind: cyclic, period: 1ms, burst: 1000, jitter: { kind: uniform, min: 0us, max: 9ms }",
    );
    assert_eq!(
        why(&burst("", &late)),
        "a>br class 0: nothing bounds rest: 11000 frames can come at once, more than 4096"
    );
    let line = burst("", REST).replace("between: [br, c]", "between: [b, c]");
    assert_eq!(why(&line), "b>c class 0: rest goes through the station b");
}

#[test]
fn t0_jitter_that_cannot_be_kept_has_a_reason_with_its_parts() {
    // Two bridges whose forwarding differs by 1 us and 3 us, and clocks that differ by 100 ns.
    let network = |west: &str, east: &str, jitter: &str| {
        format!(
            "timewire: 1\nkind: network\nname: line\nduration: 10ms\nsync_error: 100ns\n\
             stations: [{{ name: a }}, {{ name: b }}]\nbridges:\n\
             - {{ name: west, forward: {{ kind: uniform, min: 2us, max: 3us }}, \
             device: {{ {west} }} }}\n\
             - {{ name: east, forward: {{ kind: uniform, min: 2us, max: 5us }}, \
             device: {{ {east} }} }}\n\
             links: [{{ between: [a, west] }}, {{ between: [west, east] }}, \
             {{ between: [east, b] }}]\nstreams:\n\
             - {{ name: s, talker: a, listeners: b, class: 7, size: 54B, \
             kind: cyclic, period: 1ms, scheduled: true, max_jitter: {jitter} }}\n"
        )
    };
    // Forwarding differs by 1 us and 3 us, a frame is there up to a gap of 960 ns (and one more)
    // and its margin of 2 ns early, and clocks err by 100 ns on either side. The margin is no part
    // of a proof: it is of this frame.
    let (west_adds, east_adds) = (1_000 + 961 + 202, 3_000 + 961 + 202);
    let sure = east_adds - 2;
    let none = "gate_entries: 0";
    let few = "gate_entries: 100";
    // By kind of the bridges: what is too little, the parts, and whether that is proven. Frames of
    // `b` come to `east` past no other bridge, so that only what `east` adds is sure in all plans.
    let cases = [
        (none, none, west_adds + east_adds - 1, [west_adds, east_adds], false),
        (none, none, sure - 1, [0, sure], true),
        ("", none, sure - 1, [0, sure], true),
        (none, few, west_adds + east_adds - 1, [west_adds, east_adds], false),
    ];
    for (west, east, jitter, parts, proof) in cases {
        let (_, given, found) = planned(&network(west, east, &format!("{jitter}ns")));
        let reason = &found.refused[0].certificate;
        let Certificate::Jitter { parts: own, needed, proof: is, .. } = reason else {
            panic!("{reason:?}");
        };
        let own: Vec<i64> = own[1..].iter().map(|part| part.as_ns()).collect();
        assert_eq!((needed.as_ns(), *is, own), (parts[0] + parts[1], proof, parts.to_vec()));
        let verdict = judge(&given.problem, &found, &found.refused[0]);
        let wanted = if proof { Verdict::Proven } else { Verdict::NotProven };
        assert_eq!(verdict, wanted, "{west}, {east}, {jitter}");
        let said = timewire_plan::words::reason(&given.problem, reason);
        assert!(said.contains(&format!("east {}ns", parts[1])), "{said}");
        assert_eq!(said.ends_with("this is no proof"), !proof, "{said}");
        // So much is enough, but where the planner knows no plan that differs less.
        let enough = if proof { east_adds } else { jitter + 1 };
        let (_, _, found) = planned(&network(west, east, &format!("{enough}ns")));
        assert_eq!(found.refused.is_empty(), (west, east) != (none, none) || !proof);
    }
    // Gates of their own for each frame hold everything back.
    let (_, _, found) = planned(&network(none, "", "0ns"));
    assert_eq!(found.refused, []);
}
