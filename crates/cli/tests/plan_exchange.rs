// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire plan --streams`, `--status` and `--check`: what others ask for and what they have.

use std::fs;

use crate::support::{Scratch, timewire};
use serde_json::Value;

/// Talkers with launch times, so that only the bridge has gates.
const NETWORK: &str = "timewire: 1
kind: network
name: pair
duration: 10ms
sync_error: 200ns
stations:
- { name: a, mac: ['02:00:00:00:00:0a'], device: { launch_time: 100us } }
- { name: b, mac: ['02:00:00:00:00:0b'] }
- { name: c }
bridges:
- { name: br, forward: 2us, device: { interval_min: 480ns } }
links:
- { between: [a, br], rate: 1Gbit }
- { between: [br, b], rate: 1Gbit }
- { between: [br, c], rate: 1Gbit }
";

/// A stream from `a` to `b`, begun at 100 us; one to `b` and `c`; one that would be late.
fn asked() -> String {
    let stream = |number: u8, latency: u64, listeners: &str| {
        format!(
            "{{\"stream-id\": \"02-00-00-00-00-0a:00-{number:02}\", \"talker\": {{
              \"end-station-interfaces\": [{{\"mac-address\": \"02-00-00-00-00-0a\"}}],
              \"traffic-specification\": {{
                \"interval\": {{\"numerator\": 1, \"denominator\": 1000}},
                \"max-frames-per-interval\": 1, \"max-frame-size\": 100,
                \"time-aware\": {{\"earliest-transmit-offset\": 100000}}}},
              \"user-to-network-requirements\": {{\"max-latency\": {latency}}}}},
             \"listener\": [{listeners}]}}"
        )
    };
    let to = |index: u8, station: &str| {
        format!(
            "{{\"index\": {index}, \"end-station-interfaces\": \
             [{{\"interface-name\": \"{station}\"}}]}}"
        )
    };
    let both = format!("{}, {}", to(0, "b"), to(1, "c"));
    format!(
        "{{\"ieee802-dot1q-cnc-config:cnc-config\": {{\"domain\": [{{\"domain-id\": \"d\", \
         \"cuc\": [{{\"cuc-id\": \"u\", \"stream\": [{}, {}, {}]}}]}}]}}}}",
        stream(1, 300_000, &to(0, "b")),
        stream(2, 300_000, &both),
        stream(3, 101_000, &to(0, "b")),
    )
}

#[test]
fn t1_streams_that_are_asked_for_are_planned_simulated_and_answered() {
    let scratch = Scratch::new();
    let network = scratch.write("network.yaml", NETWORK);
    let request = scratch.write("asked.json", &asked());
    let answer = scratch.join("answer.json");
    let words =
        ["plan", &network, "--streams", &request, "--status", &answer, "--simulate", "--json"];
    let said = timewire(&words);
    assert_eq!(said.code, Some(1), "{said:?}");
    let report = said.json();
    assert_eq!((&report["admitted"], &report["refused"]), (&2.into(), &1.into()));
    let rows = report["asked_for"].as_array().unwrap();
    let codes: Vec<u64> = rows.iter().map(|row| row["failure_code"].as_u64().unwrap()).collect();
    assert_eq!(codes, [0, 0, 21]);
    // The second has two listeners; the third is rejected.
    let simulated: Vec<bool> =
        rows.iter().map(|row| row["in_simulation"].as_bool().unwrap()).collect();
    assert_eq!(simulated, [true, true, false]);
    assert!(
        report["simulation"]["limits"].as_array().unwrap().iter().all(|it| it["verdict"] == "pass")
    );
    let answer: Value = serde_json::from_str(&fs::read_to_string(&answer).unwrap()).unwrap();
    let list = "/ieee802-dot1q-cnc-config:cnc-config/domain/0/cuc/0/stream";
    let streams = answer.pointer(list).unwrap().as_array().unwrap();
    let offset = "/talker/interface-configuration/interface-list/0/config-list/0/time-aware-offset";
    assert!(streams[0].pointer(offset).unwrap().as_u64().unwrap() >= 100_000);
    assert_eq!(streams[2]["status-info"]["failure-code"], 21);
    let again = timewire(&words);
    assert_eq!(again.code, Some(2), "the answer is there: {again:?}");
    let said = timewire(&[
        "plan",
        &network,
        "--streams",
        &request,
        "--explain",
        "02-00-00-00-00-0A:00-01",
    ]);
    assert!(said.stdout.starts_with("s-02000000000a-0001: "), "{said:?}");
}

#[test]
fn t1_requests_that_are_none_change_nothing() {
    let scratch = Scratch::new();
    let network = scratch.write("network.yaml", NETWORK);
    let answer = scratch.join("answer.json");
    let cases = [
        (asked().replace("\"denominator\": 1000", "\"denominator\": 7"), "nanoseconds"),
        (asked().replace("\"b\"", "\"nobody\""), "is of no station"),
        ("{".to_owned(), "it is no JSON"),
    ];
    for (text, message) in cases {
        let request = scratch.write("asked.json", &text);
        let said = timewire(&["plan", &network, "--streams", &request, "--status", &answer]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(message) && said.stderr.contains("remedy: "), "{said:?}");
        assert!(!fs::exists(&answer).unwrap());
    }
    let alone = timewire(&["plan", &network]);
    assert!(alone.stderr.contains("there is no stream"), "{alone:?}");
}

#[test]
fn t1_what_was_rendered_is_checked() {
    let scratch = Scratch::new();
    let text = format!(
        "{NETWORK}streams:\n- {{ name: s, talker: a, listeners: b, class: 7, size: 58B, \
         kind: cyclic, period: 1ms, scheduled: true, max_latency: 20us }}\n"
    );
    let network = scratch.write("network.yaml", &text);
    let dir = scratch.join("out");
    timewire(&["plan", &network, "--render", &dir]).done();
    let said = timewire(&["plan", &network, "--check", &dir]).done();
    assert!(said.stdout.ends_with("nothing contradicts the streams\n"), "{said:?}");
    let gates = scratch.join("out/br.yang.json");
    let good = fs::read_to_string(&gates).unwrap();
    fs::write(&gates, good.replace("\"nanoseconds\": 0", "\"nanoseconds\": 500000")).unwrap();
    let said = timewire(&["plan", &network, "--check", &dir, "--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let report = said.json();
    assert_eq!(
        (&report["schema"], &report["verdict"]),
        (&"timewire.plan-check/2".into(), &"fail".into())
    );
    assert_eq!(report["findings"][0]["rule"], "latency", "{report}");
    // Without the launch table only the gates are looked at.
    fs::write(&gates, good).unwrap();
    fs::remove_file(scratch.join("out/a.launch.csv")).unwrap();
    let said = timewire(&["plan", &network, "--check", &dir]).done();
    assert!(said.stdout.contains("not checked: 1 streams have no starts"), "{said:?}");
    let empty = scratch.join("");
    let said = timewire(&["plan", &network, "--check", &empty]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

/// What is not understood is named with file, place and count, in text and in JSON; exit code 1.
#[test]
fn t1_what_is_not_interpreted_is_named_and_inconclusive() {
    let scratch = Scratch::new();
    let text = format!(
        "{NETWORK}streams:\n- {{ name: s, talker: a, listeners: b, class: 7, size: 58B, \
         kind: cyclic, period: 1ms, scheduled: true, max_latency: 20us }}\n"
    );
    let network = scratch.write("network.yaml", &text);
    let dir = scratch.join("out");
    timewire(&["plan", &network, "--render", &dir]).done();
    let gates = scratch.join("out/br.yang.json");
    let good = fs::read_to_string(&gates).unwrap();
    let entry = "\"operation-name\"";
    fs::write(&gates, good.replace(entry, &format!("\"x:hold\": 1, {entry}"))).unwrap();
    fs::write(scratch.join("out/br.yang"), "gates").unwrap();
    let said = timewire(&["plan", &network, "--check", &dir]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let named = "not interpreted: br.yang.json: /ietf-interfaces:interfaces/interface/\
                 ieee802-dot1q-bridge:bridge-port/ieee802-dot1q-sched-bridge:gate-parameter-table/\
                 admin-control-list/gate-control-entry/x:hold (3 times)\n";
    assert!(said.stdout.contains(named), "{said:?}");
    assert!(said.stdout.contains("not interpreted: br.yang: the whole file"), "{said:?}");
    assert!(said.stdout.contains("\nINCONCLUSIVE: nothing that was judged"), "{said:?}");
    let report = timewire(&["plan", &network, "--check", &dir, "--json"]).json();
    assert_eq!(report["verdict"], "inconclusive");
    assert_eq!(report["not_interpreted"][0]["file"], "br.yang.json");
    assert_eq!(report["not_interpreted"][0]["count"], 3);
    // The same of a request.
    let request = asked().replace("\"stream-id\"", "\"x:jitter\": 1, \"stream-id\"");
    let request = scratch.write("asked.json", &request);
    let network = scratch.write("alone.yaml", NETWORK);
    let said = timewire(&["plan", &network, "--streams", &request]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("cuc/stream/x:jitter (3 times)\nINCONCLUSIVE: "), "{said:?}");
    let report = timewire(&["plan", &network, "--streams", &request, "--json"]).json();
    assert_eq!(report["not_interpreted"][0]["count"], 3);
}

#[test]
fn t1_tables_of_results_are_checked() {
    let scratch = Scratch::new();
    let task = scratch.write(
        "task.csv",
        "stream,src,dst,size,period,deadline,jitter\n0,2,[3],1000,100000,100000,0\n",
    );
    let link = |from: u8, to: u8| format!("\"({from}, {to})\",8,1,2000,0\n");
    let links = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 3), (3, 1), (0, 4), (4, 0), (1, 5), (5, 1)];
    let links: String = links.into_iter().map(|(from, to)| link(from, to)).collect();
    let topo = scratch.write("topo.csv", &format!("link,q_num,rate,t_proc,t_prop\n{links}"));
    let prefix = scratch.join("out");
    timewire(&["plan", "--tsnkit", &task, &topo, "--export-tsnkit", &prefix]).done();
    let check = ["plan", "--tsnkit", &task, &topo, "--check", &prefix];
    let said = timewire(&check).done();
    assert!(said.stdout.ends_with("nothing contradicts the streams\n"), "{said:?}");
    let (delays, table) = (scratch.join("out-DELAY.csv"), scratch.join("out-GCL.csv"));
    fs::write(&delays, "stream,frame,delay\n0,0,27000\n").unwrap();
    let said = timewire(&check);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("stream 0 takes 28us; the table of delays has 27us"), "{said:?}");
    fs::remove_file(delays).unwrap();
    let said = timewire(&check).done();
    assert!(said.stdout.contains("not checked: there is no table of delays"), "{said:?}");
    let gates = fs::read_to_string(&table).unwrap();
    fs::write(&table, gates.replace(",10000,18000,", ",10000,17000,")).unwrap();
    let said = timewire(&check);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("outside the windows of its queue; link (0, 1)"), "{said:?}");
}
