// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire plan --out` and `--keep`: a network is planned again after changes, and streams that
//! did not change stay where they are.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Scratch, timewire};

/// Three stations at a bridge, and these streams.
fn network(streams: &[&str]) -> String {
    let mut text = "timewire: 1\nkind: network\nname: cell\nduration: 10ms\nstations: [a, b, c]\n\
                    bridges: [{ name: br, forward: 2us }]\n\
                    links:\n"
        .to_owned();
    for station in ["a", "b", "c"] {
        text.push_str(&format!("  - {{ between: [{station}, br], rate: 1Gbit }}\n"));
    }
    text.push_str("streams:\n");
    for stream in streams {
        text.push_str(&format!("  - {{ {stream}, class: 7, scheduled: true }}\n"));
    }
    text
}

const ONE: &str = "name: one, talker: a, listeners: c, size: 500B, period: 1ms";
const TWO: &str = "name: two, talker: b, listeners: c, size: 1000B, period: 1ms";
const THREE: &str = "name: three, talker: a, listeners: b, size: 200B, period: 500us";

fn reservations(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn t1_a_plan_is_a_file_with_a_line_for_each_stream() {
    let scratch = Scratch::new();
    let file = scratch.write("n.yaml", &network(&[TWO, ONE]));
    let plan = scratch.join("n.plan");
    timewire(&["plan", &file, "--out", &plan]).done();
    let text = fs::read_to_string(&plan).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "{\"schema\": \"timewire.reservations/1\", \"network\": \"cell\"}");
    assert!(
        lines[1].starts_with("{\"name\": \"one\", \"talker\": \"a\", \"listeners\": [\"c\"], ")
    );
    assert!(lines[2].starts_with("{\"name\": \"two\", "), "{text}");
    assert_eq!(lines.len(), 3, "{text}");
    // The order of the file of the network says nothing.
    let other = scratch.write("other.yaml", &network(&[ONE, TWO]));
    let again = scratch.join("again.plan");
    timewire(&["plan", &other, "--keep", &plan, "--out", &again]).done();
    assert_eq!(fs::read_to_string(&again).unwrap(), text);
    let said = timewire(&["plan", &file, "--out", &plan]);
    assert!(said.code == Some(2) && said.stderr.contains("--force writes over it"), "{said:?}");
    timewire(&["plan", &file, "--keep", &plan, "--out", &plan, "--force"]).done();
    assert_eq!(fs::read_to_string(&plan).unwrap(), text);
    let said = timewire(&["plan", &file, "--out", &file, "--force"]);
    assert!(said.code == Some(2) && said.stderr.contains("is the network"), "{said:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), network(&[TWO, ONE]));
}

#[test]
fn t1_added_removed_and_changed_streams_are_told_and_others_stay() {
    let scratch = Scratch::new();
    let first = scratch.write("first.yaml", &network(&[ONE, TWO]));
    let plan = scratch.join("first.plan");
    timewire(&["plan", &first, "--out", &plan]).done();
    let before = reservations(&plan);
    let more = scratch.write("more.yaml", &network(&[THREE, ONE, TWO]));
    let next = scratch.join("more.plan");
    let said = timewire(&["plan", &more, "--keep", &plan, "--out", &next]).done();
    assert!(said.stdout.contains("2 kept, 0 moved, 1 added, 0 changed, 0 removed\n"), "{said:?}");
    assert!(said.stdout.contains("\n  added three: start none -> "), "{said:?}");
    assert!(said.stdout.contains("\ngates differ at 2 ports: a>br, br>b\n"), "{said:?}");
    let after = reservations(&next);
    assert_eq!((&after[0], &after[2]), (&before[0], &before[1]), "{after:?}");

    let longer = TWO.replace("1000B", "1200B");
    let less = scratch.write("less.yaml", &network(&[&longer, THREE]));
    let said = timewire(&["plan", &less, "--keep", &next]).done();
    assert!(said.stdout.contains("1 kept, 0 moved, 0 added, 1 changed, 1 removed\n"), "{said:?}");
    assert!(said.stdout.contains(" (frame length 1050B -> 1250B)\n"), "{said:?}");
    let json = timewire(&["plan", &less, "--keep", &next, "--json"]).done().json();
    let changes = &json["changes"];
    assert_eq!(changes["kept"], 1);
    assert_eq!(changes["removed"][0]["name"], "one");
    assert_eq!(changes["removed"][0]["new_start_ns"], Value::Null);
    assert_eq!(changes["removed"][0]["old_start_ns"], before[0]["start_ns"]);
    assert_eq!(changes["changed"][0]["differences"][0], "frame length 1050B -> 1250B");
    assert!(changes["changed"][0]["new_start_ns"]["b>br"].is_u64(), "{changes}");
    assert_eq!(changes["ports"], serde_json::json!(["a>br", "b>br", "br>c"]));
    for time in ["read_cpu_ns", "earlier_plan_cpu_ns", "cpu_ns", "check_cpu_ns"] {
        assert!(json["search"][time].is_u64(), "{time}: {}", json["search"]);
    }
}

/// Two of 12 us in each 100 us lie so that nothing of 60 us fits between them.
#[test]
fn t1_a_stream_without_room_says_how_many_moves_would_do() {
    let scratch = Scratch::new();
    let early = |name: &str, size: u32, at: &str| {
        format!("name: {name}, talker: a, listeners: b, size: {size}B, period: 100us, offset: {at}")
    };
    let (one, two) = (early("one", 1454, "0us"), early("two", 1454, "20us"));
    let long = "name: long, talker: a, listeners: b, size: 1454B, period: 100us, burst: 5";
    let streams = [one.as_str(), two.as_str()];
    let file = scratch.write("first.yaml", &network(&streams));
    let plan = scratch.join("first.plan");
    timewire(&["plan", &file, "--out", &plan]).done();
    // The second is put into the middle.
    let text = fs::read_to_string(&plan).unwrap();
    let own = reservations(&plan).remove(1)["start_ns"].clone();
    let start = own["a>br"].as_i64().unwrap();
    let later = 50_000 - start;
    let moved = text.replace(&format!("\"a>br\": {start}"), "\"a>br\": 50000").replace(
        &format!("\"br>b\": {}", own["br>b"]),
        &format!("\"br>b\": {}", own["br>b"].as_i64().unwrap() + later),
    );
    assert_ne!(moved, text);
    let plan = scratch.write("moved.plan", &moved);
    let file = scratch.write("more.yaml", &network(&[&one, &two, long]));
    let said = timewire(&["plan", &file, "--keep", &plan]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let reason = "class 7: there is room for it only when kept streams move, 1 by what was found; \
                  0 may; this is no proof\n";
    assert!(said.stdout.contains(reason), "{said:?}");
    assert!(said.stdout.contains("2 kept, 0 moved, 0 added"), "{said:?}");
    let said = timewire(&["plan", &file, "--keep", &plan, "--moves", "1"]).done();
    assert!(said.stdout.contains("1 kept, 1 moved, 1 added, 0 changed, 0 removed\n"), "{said:?}");
    assert!(said.stdout.contains("\n  moved "), "{said:?}");
}

#[test]
fn t1_a_plan_that_does_not_hold_is_refused_with_its_place() {
    let scratch = Scratch::new();
    let file = scratch.write("n.yaml", &network(&[ONE, TWO]));
    let plan = scratch.join("n.plan");
    timewire(&["plan", &file, "--out", &plan]).done();
    let text = fs::read_to_string(&plan).unwrap();
    let refused = |text: &str| {
        let plan = scratch.write("wrong.plan", text);
        let said = timewire(&["plan", &file, "--keep", &plan, "--out", &scratch.join("new.plan")]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(!Path::new(&scratch.join("new.plan")).exists());
        said.stderr.replace(&plan, "PLAN")
    };
    assert_eq!(
        refused(&text.replace("\"cell\"", "\"hall\"")),
        "error: PLAN:1: this is a plan of the network hall, and not of cell\n  remedy: --keep \
         takes a plan of the same network; after a change of its name, write the new one there\n"
    );
    let said = refused(&text.replace("\"class\"", "\"klass\""));
    assert!(said.starts_with("error: PLAN:2:"), "{said}");
    assert!(said.contains(": unknown field `klass`, expected one of `name`, "), "{said}");
    let starts = reservations(&plan);
    let (first, second) = (&starts[0]["start_ns"]["br>c"], &starts[1]["start_ns"]["br>c"]);
    let said =
        refused(&text.replace(&format!("\"br>c\": {second}"), &format!("\"br>c\": {first}")));
    assert!(said.starts_with("error: PLAN: its reservations do not hold: "), "{said}");
    assert!(said.contains("two transmissions at once; link br>c; stream two, one;"), "{said}");
    assert!(said.ends_with(
        "\n  remedy: take the lines of these streams out, and they are planned anew; or plan \
         without --keep\n"
    ));
    let said = refused(&fs::read_to_string(&file).unwrap());
    assert!(said.starts_with("error: PLAN:1:2: this is no JSON: "), "{said}");
}

/// What is rendered, simulated and checked is the plan with what was kept.
#[test]
fn t2_a_kept_plan_is_rendered_simulated_and_checked() {
    let scratch = Scratch::new();
    let networks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/networks");
    let cell = fs::read_to_string(networks.join("planned-cell.network.yaml")).unwrap();
    let file = scratch.write("cell.yaml", &cell);
    let plan = scratch.join("cell.plan");
    timewire(&["plan", &file, "--out", &plan]).done();
    let more = format!(
        "{cell}  - {{ name: more, talker: plc-2, listeners: drive-1, class: 7, size: 300B,\n      \
         period: 1ms, scheduled: true }}\n"
    );
    let more = scratch.write("more.yaml", &more);
    let (next, rendered) = (scratch.join("more.plan"), scratch.join("rendered"));
    let said = timewire(&[
        "plan",
        &more,
        "--keep",
        &plan,
        "--out",
        &next,
        "--render",
        &rendered,
        "--simulate",
    ])
    .done();
    assert!(said.stdout.contains("7 kept, 0 moved, 1 added, 0 changed, 0 removed\n"), "{said:?}");
    assert!(said.stdout.contains("PASS planned-lost-more: lost of more is 0 of"), "{said:?}");
    let said = timewire(&["plan", &more, "--check", &rendered, "--keep", &next]).done();
    assert!(said.stdout.ends_with("PASS: nothing contradicts the streams\n"), "{said:?}");
    let said = timewire(&["plan", &more, "--check", &rendered, "--keep", &plan]).done();
    let none = format!("not checked: {plan} has no reservation for 1 streams\n");
    assert!(said.stdout.contains(&none), "{said:?}");
    let text = fs::read_to_string(&next).unwrap();
    let wrong = scratch
        .write("wrong.plan", &text.replace("\"period_ns\": 500000", "\"period_ns\": 1000000"));
    let said = timewire(&["plan", &more, "--check", &rendered, "--keep", &wrong]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("is another one now: period 1ms -> 500us\n"), "{said:?}");
}

/// Tables have no name of a network but that of their file.
#[test]
fn t1_plans_of_tables_are_kept() {
    let scratch = Scratch::new();
    let head = "stream,src,dst,size,period,deadline,jitter\n";
    let (one, two) = ("0,2,[3],1000,100000,100000,100000\n", "1,3,[2],100,200000,9000,0\n");
    let topo = "link,q_num,rate,t_proc,t_prop\n\"(0, 1)\",8,1,2000,0\n\"(1, 0)\",8,1,2000,0\n\
                \"(0, 2)\",8,1,2000,0\n\"(2, 0)\",8,1,2000,0\n\"(1, 3)\",8,1,2000,0\n\
                \"(3, 1)\",8,1,2000,0\n\"(0, 4)\",8,1,2000,0\n\"(4, 0)\",8,1,2000,0\n";
    let topo = scratch.write("topo.csv", topo);
    let first = scratch.write("first.csv", &format!("{head}{one}"));
    let plan = scratch.join("t.plan");
    timewire(&["plan", "--tsnkit", &first, &topo, "--out", &plan]).done();
    let text = fs::read_to_string(&plan).unwrap();
    assert!(text.starts_with("{\"schema\": \"timewire.reservations/1\", \"network\": \"topo\"}\n"));
    let both = scratch.write("both.csv", &format!("{head}{one}{two}"));
    let said = timewire(&["plan", "--tsnkit", &both, &topo, "--keep", &plan]).done();
    assert!(said.stdout.contains("1 kept, 0 moved, 1 added, 0 changed, 0 removed\n"), "{said:?}");
    let said = timewire(&["plan", "--tsnkit", &both, &topo, "--moves", "1"]);
    assert!(said.code == Some(2) && said.stderr.contains("--keep"), "{said:?}");
}
