// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire plan`: tables in, a summary, JSON and tables out, and exit codes.

use std::fs;

use crate::support::{Scratch, timewire};

const TASK: &str = "stream,src,dst,size,period,deadline,jitter
0,2,[3],1000,100000,100000,100000
1,3,[2],100,200000,7000,0
";
const TOPO: &str = "link,q_num,rate,t_proc,t_prop
\"(0, 1)\",8,1,2000,0
\"(1, 0)\",8,1,2000,0
\"(0, 2)\",8,1,2000,0
\"(2, 0)\",8,1,2000,0
\"(1, 3)\",8,1,2000,0
\"(3, 1)\",8,1,2000,0
\"(0, 4)\",8,1,2000,0
\"(4, 0)\",8,1,2000,0
\"(1, 5)\",8,1,2000,0
\"(5, 1)\",8,1,2000,0
";

#[test]
fn t1_a_plan_is_summed_up_explained_and_written() {
    let scratch = Scratch::new();
    let (task, topo) = (scratch.write("task.csv", TASK), scratch.write("topo.csv", TOPO));
    let prefix = scratch.path().join("out").display().to_string();
    let said = timewire(&["plan", "--tsnkit", &task, &topo, "--export-tsnkit", &prefix]).done();
    assert!(
        said.stdout.starts_with(
            "2 of 2 streams are admitted; 6 nodes, 10 links, cycle 200us\nbusiest links: "
        ),
        "{said:?}"
    );
    let offsets = fs::read_to_string(format!("{prefix}-OFFSET.csv")).unwrap();
    assert_eq!(offsets, "stream,frame,offset\n0,0,0\n1,0,0\n");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 7);
    let again = timewire(&["plan", "--tsnkit", &task, &topo, "--export-tsnkit", &prefix]);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("out-GCL.csv: it is there; --force writes over it"), "{again:?}");

    let drawing = scratch.path().join("plan.svg").display().to_string();
    let said =
        timewire(&["plan", "--tsnkit", &task, &topo, "--explain", "0", "--gantt", &drawing]).done();
    let svg = fs::read_to_string(drawing).unwrap();
    // Two messages of stream 0 on three links in a cycle of 200 us.
    assert_eq!(svg.matches("<title>0, frame 0").count(), 6);
    assert!(said.stdout.contains("(0, 1)           copy 0 frame 0 queue 7 at"), "{said:?}");
    assert!(said.stdout.ends_with("latency 28us\n"), "{said:?}");
}

#[test]
fn t1_a_refused_stream_has_a_reason_and_exit_code_1() {
    let scratch = Scratch::new();
    let task = scratch.write("task.csv", &TASK.replace("7000", "6000"));
    let topo = scratch.write("topo.csv", TOPO);
    let said = timewire(&["plan", "--tsnkit", &task, &topo]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let reason = "1: (3, 1), (1, 0), (0, 2) class 7: alone in the network it needs 6400ns to 2 \
                  over 3 links; it may take 6us\n";
    assert!(said.stdout.contains(&format!("refused: 1 with a proof, 0 without\n  {reason}")));
    let said = timewire(&["plan", "--tsnkit", &task, &topo, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&json["admitted"], &json["refused"]), (&1.into(), &1.into()));
    assert_eq!(json["streams"][1]["certificate"]["kind"], "minimum_latency");
    assert_eq!(json["streams"][1]["class"], 7);
    assert_eq!(json["streams"][1]["ports"], serde_json::json!(["(3, 1)", "(1, 0)", "(0, 2)"]));
    assert_eq!(
        (&json["schema"], &json["checked"]),
        (&"timewire.network-plan/1".into(), &true.into())
    );
    let said = timewire(&["plan", "--tsnkit", &task, &topo, "--json", "--explain", "1"]);
    let alone: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(
        (&alone["schema"], &alone["name"]),
        (&"timewire.planned-stream/1".into(), &"1".into())
    );
    assert_eq!(json["streams"][0]["latency_ns"], 28_000);
    assert_eq!(json["ports"][0]["entries"], 3);
}

#[test]
fn t1_wrong_tables_and_names_change_nothing() {
    let scratch = Scratch::new();
    let task = scratch.write("task.csv", &TASK.replace("1000,", "many,"));
    let topo = scratch.write("topo.csv", TOPO);
    let prefix = scratch.path().join("out").display().to_string();
    let said = timewire(&["plan", "--tsnkit", &task, &topo, "--export-tsnkit", &prefix]);
    said.failed(
        2,
        &format!(
            "error: {task}:2: column `size`: `many` is no whole number\n  \
             remedy: a whole number of bytes from 1 to 8388608\n"
        ),
    );
    let task = scratch.write("task.csv", TASK);
    timewire(&["plan", "--tsnkit", &task, &topo, "--explain", "7"])
        .failed(2, "error: there is no stream 7; there are 0, 1\n");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
}

/// Three of 45 us in each 200 us are admitted, and one more in each 300 us is not: what is free
/// modulo 100 us is shorter. With few steps it is looked for until the limit; with more there is a
/// proof, which ends the search and says whom it is about.
#[test]
fn t1_a_search_ends_by_one_limit_and_says_when_it_did() {
    let scratch = Scratch::new();
    let mut task = "stream,src,dst,size,period,deadline,jitter\n".to_owned();
    for (stream, period) in [(0, 200_000), (1, 200_000), (2, 200_000)] {
        task.push_str(&format!("{stream},2,[3],5625,{period},1000000,1000000\n"));
    }
    let topo = scratch.write("topo.csv", TOPO);
    let three = scratch.write("three.csv", &task);
    let said = timewire(&["plan", "--tsnkit", &three, &topo, "--steps", "1"]).done();
    assert!(!said.stdout.contains("ended by its limit"), "{said:?}");

    let four = scratch.write("four.csv", &(task + "3,2,[3],5625,300000,1000000,1000000\n"));
    let said = timewire(&["plan", "--tsnkit", &four, &topo, "--steps", "100"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("; ended by its limit\n"), "{said:?}");
    let said = timewire(&["plan", "--tsnkit", &four, &topo, "--steps", "20000"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(!said.stdout.contains("ended by its limit"), "{said:?}");
    let explain = ["plan", "--tsnkit", &four, &topo, "--steps", "20000", "--explain", "3"];
    let reason = "4 streams (3, 0, 1, 2) meet on links that they cannot avoid ((0, 1), (2, 0), \
                  (1, 3)), however they start; one of them needs another interval, length or way";
    let said = timewire(&explain);
    assert!(
        said.stdout.contains(&format!("rejected: (2, 0), (0, 1), (1, 3) class 7: {reason}\n")),
        "{said:?}"
    );
    let said = timewire(&[&explain[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&json["proof"], &json["reason"]), (&true.into(), &reason.into()));
    assert_eq!(json["certificate"]["kind"], "cases");
    let both = ["plan", "--tsnkit", &four, &topo, "--steps", "1", "--time-limit", "1s"];
    let said = timewire(&both);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("--time-limit"), "{said:?}");
}

#[test]
fn t1_an_option_of_tables_is_refused_with_a_file() {
    for words in [&["--overhead", "20"][..], &["--round"]] {
        let said = timewire(&[&["plan", "network.yaml"][..], words].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        let why = format!("the argument '[FILE]' cannot be used with '{}", words[0]);
        assert!(said.stderr.contains(&why), "{said:?}");
    }
}

/// Streams between neighbours of a line, so that all are admitted: 20 MB of JSON.
fn many(streams: usize, bridges: usize) -> (String, String) {
    let mut task = "stream,src,dst,size,period,deadline,jitter\n".to_owned();
    let mut topo = "link,q_num,rate,t_proc,t_prop\n".to_owned();
    let mut join = |a: usize, b: usize| {
        for (from, to) in [(a, b), (b, a)] {
            topo.push_str(&format!("\"({from}, {to})\",8,1,2000,0\n"));
        }
    };
    for bridge in 0..bridges {
        if bridge + 1 < bridges {
            join(bridge, bridge + 1);
        }
        join(bridge, bridges + bridge);
    }
    for stream in 0..streams {
        let from = stream % bridges;
        let to = if from + 4 < bridges { from + 4 } else { from - 4 };
        let (from, to) = (bridges + from, bridges + to);
        task.push_str(&format!("{stream},{from},[{to}],64,8000000,8000000,8000000\n"));
    }
    (task, topo)
}

/// A plan is written while it is gone through: all of its JSON would need more than 300 MB.
#[test]
fn t1_json_of_many_streams_needs_no_memory_of_its_length() {
    let scratch = Scratch::new();
    let (task, topo) = many(20_000, 200);
    let (task, topo) = (scratch.write("task.csv", &task), scratch.write("topo.csv", &topo));
    let out = scratch.path().join("plan.json").display().to_string();
    let command = env!("CARGO_BIN_EXE_timewire");
    let bounded = format!(
        "ulimit -v 200000; \
         exec {command} plan --tsnkit {task} {topo} --steps 1000000 --json > {out}"
    );
    let ended = std::process::Command::new("sh").args(["-c", &bounded]).status().unwrap();
    assert_eq!(ended.code(), Some(0));
    let text = fs::read(&out).unwrap();
    assert!(text.len() > 20_000_000, "{}", text.len());
    let plan: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(plan["streams"].as_array().unwrap().len(), 20_000);
    assert_eq!(plan["admitted"], 20_000);
}

/// No verb puts JSON together before it prints it: `output::json` writes it as it goes.
#[test]
fn t0_no_verb_makes_a_text_of_json_to_print() {
    let mut files = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let (mut seen, mut found) = (0, Vec::new());
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for call in text.split("output::print(").skip(1) {
            seen += 1;
            let call = call.split(';').next().unwrap();
            if call.contains("to_string_pretty") || call.contains("to_json()") {
                found.push(format!("{}: {call}", path.display()));
            }
        }
    }
    assert!(seen > 50, "{seen} calls");
    assert_eq!(found, Vec::<String>::new());
}
