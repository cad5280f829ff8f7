// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receive path and the whole path where nothing takes time but looking at the clock: what is
//! measured then is the measurement's own error.

use serde_json::Value;
use timewire_lab::trial::Trial;

use super::station::Station;

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_measured_receiving_takes_what_looks_at_the_clock_take", receive).repeated(2),
    Trial::new("t4_measured_path_takes_what_looks_at_the_clock_take", path),
];

/// A reading of the machine's clock is a multiple of this, and each look moves it by one.
const CLOCK_READING: i64 = 256;

fn measured(words: &str) -> Value {
    let words: Vec<_> = words.split_ascii_whitespace().collect();
    let said = Station::machine().timewire(&words).well();
    serde_json::from_str(&said).unwrap()
}

/// Smallest and largest of a summary, in looks at the clock.
fn looks(times: &Value) -> (i64, i64) {
    let of = |name: &str| times[name].as_i64().unwrap();
    for name in ["min_ns", "max_ns"] {
        assert_eq!(of(name) % CLOCK_READING, 0, "{times}");
    }
    (of("min_ns") / CLOCK_READING, of("max_ns") / CLOCK_READING)
}

/// The kernel itself looks some times between its timestamp of a frame and the end of the call that
/// brings it: to wake the program, to switch to it, to end its wait.
const TO_USER: std::ops::RangeInclusive<i64> = 2..=20;

#[track_caller]
fn within(times: &Value, range: std::ops::RangeInclusive<i64>) {
    let (least, most) = looks(times);
    assert!(range.contains(&least) && range.contains(&most), "{least} to {most}: {times}");
}

fn receive() {
    let report = measured(
        "measure receive --over udp,frames,ring --rate 100,1000 --count 300 --repeat 2 --json",
    );
    let all = report["combinations"].as_array().unwrap();
    assert_eq!(all.len(), 6);
    for one in all {
        let name = one["name"].as_str().unwrap();
        assert_eq!((&one["sent"], &one["lost"]), (&600.into(), &0.into()), "{name}");
        for stage in one["stages"].as_array().unwrap() {
            println!("{name} {} {:?}", stage["stage"], looks(&stage["all"]));
            within(
                &stage["all"],
                match stage["stage"].as_str().unwrap() {
                    "send->kernel" => 0..=6,
                    "kernel->user" => TO_USER,
                    _ => 2..=26,
                },
            );
        }
    }
}

/// Checks the stages of a step; how many there are.
fn check_stages(step: &Value) -> usize {
    let stages = step["stages"].as_array().unwrap();
    for stage in stages {
        let (name, times) = (stage["stage"].as_str().unwrap(), &stage["times"]);
        println!("{name} {}", times["mean_ns"]);
        match name {
            // When a message is due is not on the grid of the clock's readings.
            "due -> send" => {
                assert!(times["max_ns"].as_i64() < Some(20 * CLOCK_READING), "{times}")
            }
            // Nobody looks between these: the way itself takes nothing.
            "sched -> tx-sw" | "tx-sw -> far rx-sw" => within(times, 0..=0),
            "far user -> far send" => within(times, 1..=1),
            "send -> sched" | "far send -> rx-sw" => within(times, 0..=6),
            "far rx-sw -> far user" | "rx-sw -> user" => within(times, TO_USER),
            "one way: send -> far user" => within(times, 2..=26),
            "out: send -> far user" | "back: far send -> user" => within(times, 2..=26),
            "round trip less the far end" | "round trip: send -> user" => within(times, 4..=53),
            _ => panic!("{name} is not known"),
        }
    }
    stages.len()
}

fn path() {
    let report = measured("measure path --rate 500 --trial 1s --loads 10,100 --json");
    assert_eq!(report["steps"].as_array().unwrap().iter().map(check_stages).sum::<usize>(), 12);
    let report = measured("measure path --rate 500 --trial 1s --loads 100 --reflect --json");
    assert_eq!(check_stages(&report["steps"][0]), 12);
    // In virtual time nothing is too fast: the search ends where it begins.
    let report = measured("measure path --most 2000 --trial 100ms --loads 50 --json");
    assert_eq!(report["full_rate"], 2_000);
    assert_eq!(report["search"].as_array().unwrap().len(), 1);
}
