// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why frames did not leave: real disciplines drop them, and who sent them names the cause, the
//! discipline and what would be right.

use std::fs;
use std::net::Ipv4Addr;

use serde_json::Value as Json;
use timewire_base::{Port, Span};
use timewire_capture::record::{RecordFile, RecordHeader, TimestampPoint};
use timewire_datapath::pipeline::{Next, Source, Step};
use timewire_datapath::traffic::{FloodRate, Task};
use timewire_lab::trial::Trial;
use timewire_runner::program::{Program, ProgramPace, Records};
use timewire_sys::clock;
use timewire_tsn::qdisc::ShownQdisc;

use super::station::{Station, pair};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_talk_names_why_etf_taprio_and_full_queues_drop_its_frames", named).since(6, 3),
    Trial::new("t4_every_sender_names_why_its_frames_did_not_leave", every_sender).since(6, 3),
];

/// The discipline, the words of `talk`, which causes are told, and of which discipline.
type Row = (&'static str, &'static str, &'static [&'static str], &'static str);

const ETF: &str = "qdisc replace dev DEV root handle 100: etf clockid CLOCK_TAI delta 400000";
/// Class 1 is open for 640 ns: 800 bytes at 10 Gbit/s.
const SHORT: &str = "qdisc replace dev DEV root handle 100: taprio num_tc 2 map 0 1 queues 1@0 \
     1@1 base-time 0 clockid CLOCK_TAI sched-entry S 2 640 sched-entry S 1 319360";
const HALVES: &str = "qdisc replace dev DEV root handle 100: taprio num_tc 2 map 0 1 queues \
     1@0 1@1 base-time 0 clockid CLOCK_TAI sched-entry S 3 500000 sched-entry S 2 500000";
/// With a transmit queue length of 1 (the limit of the pfifo of each class), one of four frames
/// waits for its gate.
const LIMITED: &str = "qdisc replace dev DEV root handle 100: taprio num_tc 2 map 0 1 queues 1@0 \
     1@1 base-time 0 clockid CLOCK_TAI sched-entry S 1 500000 sched-entry S 2 500000";

const ROWS: &[Row] = &[
    (ETF, "", &["no_launch_time"], "100:"),
    (ETF, "--launch 1ns", &["launch_past"], "100:"),
    (ETF, "--launch 1ms --deadline", &["launch_mode"], "100:"),
    (SHORT, "--priority 1 --size 900B", &["frame_too_long"], "100:"),
    (
        HALVES,
        "--priority 1 --size 1400B --offset 499900ns --launch 100us",
        &["across_entry"],
        "100:",
    ),
    (
        HALVES,
        "--priority 0 --offset 700us --launch 100us",
        &["outside_gate", "frame_too_long"],
        "100:",
    ),
    (LIMITED, "--priority 1 --offset 100us --per-cycle 4 --spacing 1us", &["queue_full"], "0:"),
];

fn named() {
    let bench = pair();
    let station = Station::of(&bench, "a");
    for (discipline, words, causes, handle) in ROWS {
        let case = format!("{words} {causes:?}");
        let length = if *discipline == LIMITED { "1" } else { "1000" };
        station.run("ip", &["link", "set", "eth0", "txqueuelen", length]).well();
        bench.tc("a", "b", discipline).unwrap();
        let dropped = || {
            let shown = station.run("tc", &["-s", "-j", "qdisc", "show", "dev", "eth0"]).well();
            let shown = ShownQdisc::objects(&shown).unwrap();
            let own = shown.iter().filter(|qdisc| qdisc["handle"] == *handle);
            own.map(|qdisc| qdisc["drops"].as_u64().unwrap()).sum::<u64>()
        };
        let before = dropped();
        let talk = |more: &str| {
            let all = format!(
                "talk ff:ff:ff:ff:ff:ff --interface eth0 --cycle 1ms --count 40 {words} {more}"
            );
            station.timewire(&all.split_whitespace().collect::<Vec<_>>())
        };
        let ended = talk("--json");
        println!("{case}: {}{}", ended.out, ended.err);
        assert_eq!((ended.code, ended.err.as_str()), (1, ""), "{case}");
        let told: Json = serde_json::from_str(&ended.out).unwrap();
        let [cause] = &told["drop_causes"].as_array().unwrap()[..] else {
            panic!("{case}: {told}");
        };
        let of = |key: &str| -> Vec<&Json> {
            cause["candidates"].as_array().unwrap().iter().map(|it| &it[key]).collect()
        };
        assert_eq!(of("cause"), *causes, "{case}");
        assert!(of("handle").iter().all(|it| *it == handle), "{case}: {cause}");
        assert!(of("interface").iter().all(|it| *it == "eth0"), "{case}: {cause}");
        let total = &told["total"];
        let lost = total["not_taken"].as_u64().unwrap() + total["launch_invalid"].as_u64().unwrap();
        assert!(lost > 0, "{case}: {total}");
        // Each frame once: as the talker counts it, as it is told, and as the discipline does.
        assert_eq!((cause["frames"].as_u64(), dropped() - before), (Some(lost), lost), "{case}");
        let text = talk("").out;
        assert!(text.contains(&format!(" {handle} ")) && text.contains(" of eth0: "), "{text}");
        bench.tc("a", "b", "qdisc del dev DEV root").unwrap();
    }
    // Where all leave, nothing is told.
    let ended = station.timewire(&[
        "talk",
        "ff:ff:ff:ff:ff:ff",
        "--interface",
        "eth0",
        "--count",
        "5",
        "--json",
    ]);
    let told: Json = serde_json::from_str(&ended.well()).unwrap();
    assert_eq!(told["drop_causes"], serde_json::json!([]));
}

/// The `drop_causes` of programs whose sockets have no launch times, on an `etf`.
const UNTIMED: [&str; 3] = [
    "avtp crf talk --interface eth0 --stream 7 --vlan none --packets 40 --json",
    "talk ff:ff:ff:ff:ff:ff --interface eth0 --cycle 1ms --count 40 --json",
    "talk 10.9.0.2:7000 --interface eth0 --cycle 1ms --count 40 --json",
];

fn every_sender() {
    let bench = pair();
    let station = Station::of(&bench, "a");
    for words in [
        "address replace 10.9.0.1/24 dev eth0",
        "neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent",
    ] {
        station.run("ip", &words.split(' ').collect::<Vec<_>>()).well();
    }
    bench.tc("a", "b", ETF).unwrap();
    for words in UNTIMED {
        let ended = station.timewire(&words.split(' ').collect::<Vec<_>>());
        let told: Json = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{ended:?}"));
        names_etf(words, &told["drop_causes"], "no_launch_time", 40);
    }
    // Programs of scenarios, each in a process of its own as there.
    for (role, is_recorded) in [("client", true), ("pipeline", true), ("flood", false)] {
        let file = format!("/tmp/drops-{role}.json");
        let told = serde_json::json!({ "program": program(role) });
        fs::write(&file, told.to_string()).unwrap();
        station.timewire(&["__program", &file]).well();
        let told = fs::read(format!("/tmp/drops-{role}.drops.json")).unwrap();
        let told: Json = serde_json::from_slice(&told).unwrap();
        assert_eq!(told["program"], format!("drops-{role}"));
        let frames = told["drop_causes"][0]["frames"].as_u64().unwrap();
        assert!(frames > 0, "{role}: {told}");
        names_etf(role, &told["drop_causes"], "no_launch_time", frames);
        if is_recorded {
            let bytes = fs::read(format!("/tmp/drops-{role}.twr")).unwrap();
            let records = RecordFile::decode(&bytes).unwrap().records;
            let not_taken =
                records.iter().filter(|it| it.point == TimestampPoint::NotTaken).count();
            assert_eq!(u64::try_from(not_taken).unwrap(), frames, "{role}");
        }
    }
    bench.tc("a", "b", "qdisc del dev DEV root").unwrap();
    // A frame that is longer than every window of its class.
    let ended = station.timewire(&[
        "measure",
        "launch",
        "--count",
        "40",
        "--size",
        "1400B",
        "--json",
        "--interface",
        "eth0",
        "--whole-interface",
        "--gates",
        "S 1 640ns, S 2 319360ns",
    ]);
    let told: Json = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{ended:?}"));
    let causes = &told["drop_causes"][0];
    assert_eq!(causes["frames"], 40, "{told}");
    assert_eq!(causes["candidates"][0]["qdisc"], "taprio", "{causes}");
}

#[track_caller]
fn names_etf(who: &str, causes: &Json, cause: &str, frames: u64) {
    let [one] = &causes.as_array().unwrap()[..] else { panic!("{who}: {causes}") };
    let [candidate] = &one["candidates"].as_array().unwrap()[..] else { panic!("{who}: {one}") };
    assert_eq!(one["frames"], frames, "{who}: {one}");
    assert_eq!(
        ["cause", "qdisc", "handle", "interface"].map(|key| candidate[key].as_str().unwrap()),
        [cause, "etf", "100:", "eth0"],
        "{who}"
    );
}

fn program(role: &str) -> Program {
    let start = clock::now() + Span::from_ms(300);
    let address = Ipv4Addr::new(10, 9, 0, 1);
    let task = Task {
        address,
        port: Port::new(7_000).unwrap(),
        message: 64,
        start,
        end: start + Span::from_ms(20),
        station: 0,
        priority: None,
        launch: None,
    };
    let header = RecordHeader {
        writer: role.to_owned(),
        clocks: timewire_datapath::clocks(),
        stations: vec!["a".to_owned()],
        flows: vec!["one".to_owned(), "two".to_owned()],
        ..RecordHeader::default()
    };
    let records = Records { path: format!("/tmp/drops-{role}.twr").into(), header };
    let to = Ipv4Addr::new(10, 9, 0, 2);
    match role {
        "client" => Program::Client {
            task,
            server: to,
            pace: ProgramPace::Closed,
            timeout: Span::from_ms(5),
            records,
        },
        "pipeline" => Program::Pipeline {
            step: Step {
                place: 0,
                from: Source::Own(Span::from_ms(1)),
                to: Some(Next { address: to, port: task.port }),
                components: 1,
                compute: Span::ZERO,
                is_paced: false,
            },
            task,
            pace: ProgramPace::Closed,
            drain: Span::ZERO,
            records,
        },
        _ => Program::Flood { task, to, flow: FloodRate { bits_per_second: 10_000_000, burst: 1 } },
    }
}
