// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `measure launch --gates` says of `taprio` is the kernel's own arithmetic, and what a table
//! made by hand from its frames says.

use std::fs;

use serde_json::Value as Json;
use timewire_base::Tai;
use timewire_lab::trial::{self, Trial};
use timewire_sys::clock;

use super::station::{Station, pair};
use super::{TIMER, shifted, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_measured_gates_are_the_kernels_arithmetic", interface),
    // Making its own pair takes an older kernel too long.
    Trial::new("t4_measured_gates_of_a_pair_are_the_kernels_arithmetic", own_pair).since(6, 3),
    Trial::new("t4_measured_gates_show_frames_outside_the_windows", others),
];

/// A timestamp at the peer has one reading of the clock more than the timer.
const AT_PEER: i64 = 256;
/// What readings of the clock by another thread can add in between.
const DISTURBED: i64 = 8 * 256;

fn class(measured: &Json, number: usize) -> &Json {
    &measured["classes"][number]
}

fn at<'a>(class: &'a Json, point: &str) -> &'a Json {
    class["points"].as_array().unwrap().iter().find(|at| at["point"] == point).unwrap()
}

fn figure(spread: &Json, name: &str) -> i64 {
    spread[name].as_i64().unwrap_or_else(|| panic!("{name} of {spread}"))
}

/// The frames of a class that have a timestamp: when they were ready, and the timestamp.
fn frames(table: &str, class: usize, column: usize) -> Vec<(i64, i64)> {
    let of_class = |line: &&str| line.split(',').next() == Some(&class.to_string());
    let frame = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        Some((cells[3].parse().ok()?, cells[column].parse().ok()?))
    };
    table.lines().filter(of_class).filter_map(frame).collect()
}

/// By hand: how many left in the window, and, of each cycle, how late the first one was that had
/// waited, and the first of all.
fn by_hand(frames: &[(i64, i64)], cycle: i64, open: (i64, i64)) -> (u64, Vec<i64>, Vec<i64>) {
    let mut cycles = std::collections::BTreeMap::<i64, Vec<(i64, i64)>>::new();
    for &(ready, left) in frames {
        let phase = left % cycle;
        if (open.0..open.1).contains(&phase) {
            let start = left - phase + open.0;
            cycles.entry(start).or_default().push((ready - start, left - start));
        }
    }
    let inside = cycles.values().map(|list| u64::try_from(list.len()).unwrap()).sum();
    let first = cycles.values().map(|list| list.iter().map(|one| one.1).min().unwrap());
    let waited = cycles
        .values()
        .filter_map(|list| list.iter().filter(|(ready, _)| *ready < 0).map(|one| one.1).min());
    (inside, waited.collect(), first.collect())
}

fn agrees(spread: &Json, by_hand: &[i64]) {
    assert_eq!(spread["count"], by_hand.len(), "{spread}");
    assert_eq!(figure(spread, "min_ns"), *by_hand.iter().min().unwrap());
    assert_eq!(figure(spread, "max_ns"), *by_hand.iter().max().unwrap());
    let mut sorted = by_hand.to_vec();
    sorted.sort_unstable();
    assert_eq!(figure(spread, "p50_ns"), sorted[(sorted.len() - 1) / 2]);
    assert_eq!(figure(spread, "p90_ns"), sorted[(sorted.len() * 9).div_ceil(10) - 1]);
}

/// Puts the gates on an interface, and takes them away.
fn interface() {
    let bench = pair();
    let station = Station::of(&bench, "a");
    let before = station.snapshot();
    own(&station, "--interface eth0 --whole-interface", &[("tx-software", 4, 0)]);
    assert!(station.snapshot() == before, "it is as before");
}

fn own_pair() {
    own(&Station::machine(), "--bench", &[("tx-software", 4, 0), ("peer", 5, AT_PEER)]);
}

fn own(station: &Station, place: &str, points: &[(&str, usize, i64)]) {
    println!("{}", trial::kernel_name());
    let words = "measure launch --count 300 --json --out /tmp/gates-own ".to_owned() + place;
    let words = words + " --gates";
    let mut arguments: Vec<&str> = words.split_whitespace().collect();
    arguments.push("S 1 300us, S 2 300us, S 4 400us");
    arguments.extend(["--limit", "outside=0,lost=0,opening-p90=511ns,opening-min=0ns"]);
    let ended = station.timewire(&arguments);
    assert_eq!(ended.code, 0, "{ended:?}");
    let measured: Json = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(measured["schema"], "timewire.measure-gates/1");
    // 322 bytes at 10 Gbit/s, in whole picoseconds for a byte.
    assert_eq!((&measured["rate_mbit"], &measured["frame_ns"]), (&10_000.into(), &257.into()));
    let table = fs::read_to_string("/tmp/gates-own/frames.csv").unwrap();
    let windows = [(0, 300_000), (300_000, 600_000), (600_000, 1_000_000)];
    for (number, open) in windows.into_iter().enumerate() {
        let class = class(&measured, number);
        assert_eq!(
            (&class["shown"], &class["counts"]["sent"]),
            (&"tx-software".into(), &300.into())
        );
        for &(point, column, late) in points {
            let at = at(class, point);
            assert_eq!((&at["timestamped"], &at["inside"]), (&300.into(), &300.into()), "{at}");
            assert!(at["before"].is_null() && at["after"].is_null(), "{at}");
            let (inside, waited, first) = by_hand(&frames(&table, number, column), 1_000_000, open);
            assert_eq!(at["inside"], inside);
            agrees(&at["opening"], &waited);
            agrees(&at["first"], &first);
            println!("class {number} {point}: opening {}", at["opening"]);
            let most = TIMER.end() + late;
            assert!(figure(&at["opening"], "min_ns") >= 0);
            assert!(figure(&at["opening"], "p90_ns") <= most);
            // The sender wakes for another class in the very moment, in some of the cycles.
            assert!(figure(&at["opening"], "max_ns") <= most + DISTURBED);
            // Some had to wait, most of the others came into the open gate.
            assert!((30..270).contains(&waited.len()), "{}", waited.len());
            // What was sent last was decided a reading of the clock or two before its timestamp.
            assert!(figure(&at["unused"], "min_ns") >= -most, "{at}");
        }
    }
}

/// The gates that are in force are not those that are said: class 0 has 64 us more, and class 1
/// has them not.
fn others() {
    let bench = pair();
    let line = "qdisc add dev DEV root taprio num_tc 2 map 0 1 queues 1@0 1@1 base-time 0 clockid \
                CLOCK_TAI sched-entry S 1 320000 sched-entry S 2 320000";
    bench.tc("a", "b", line).unwrap();
    let station = Station::of(&bench, "a");
    // Until the schedule begins, the kernel shows it as one to come.
    clock::sleep_until(clock::now::<Tai>() + us(20_000));
    let before = station.snapshot();
    let words = "measure launch --interface eth0 --applied --count 500 --json --limit \
                 opening-max=3us,opening-min=0ns --gates";
    let mut arguments: Vec<&str> = words.split_whitespace().collect();
    arguments.push("S 1 256us, S 2 384us");
    let ended = station.timewire(&arguments);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(station.snapshot() == before, "nothing is changed");
    let measured: Json = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(measured["schedule"]["applied_before"], true);
    let verdicts = measured["limits"].as_array().unwrap().iter().map(|one| &one["verdict"]);
    assert_eq!(verdicts.collect::<Vec<_>>(), ["pass", "pass", "fail", "pass"], "{measured}");
    let (zero, one) = (class(&measured, 0), class(&measured, 1));
    let (zero, one) = (at(zero, "tx-software"), at(one, "tx-software"));
    println!("{}: class 0 after {}", trial::kernel_name(), zero["after"]);
    // A tenth of all phases is closed by what is said and open in truth; and half of the gap of
    // 384 us is nearer to the closing.
    let after = figure(&zero["after"], "count");
    assert!((25..100).contains(&after), "{zero}");
    assert!(figure(&zero["after"], "max_ns") < 64_000 && zero["before"].is_null(), "{zero}");
    assert_eq!(figure(zero, "inside") + after, 500);
    assert_eq!((figure(one, "inside"), figure(one, "lost")), (500, 0), "{one}");
    let late = shifted(64_000, &TIMER);
    for name in ["min_ns", "p50_ns", "p90_ns"] {
        assert!(late.contains(&figure(&one["opening"], name)), "{one}");
    }
    assert!(figure(&one["opening"], "max_ns") <= late.end() + DISTURBED, "{one}");
}
