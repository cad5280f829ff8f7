// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why frames of a talker did not leave: real disciplines drop them, and `talk` names the cause,
//! the discipline and what would be right.
//!
//! Not here: the decision from counters alone (`timewire-ctl`).

use serde_json::Value as Json;
use timewire_lab::trial::Trial;
use timewire_sched::qdisc::ShownQdisc;

use super::station::{Station, pair};

pub const TRIALS: &[Trial] =
    &[Trial::new("t4_talk_names_why_etf_taprio_and_full_queues_drop_its_frames", named)
        .since(6, 3)];

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
