// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A made-up summary of the size and shape of a real one: three message sizes, four cases, two
//! loads. Deterministic. It measures nothing; it is for looking at the report and for its tests.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the sample is made up of small numbers"
)]

use serde_json::{Value, json};
use timewire_capture::summary::Summary;

const STATIONS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
const CASES: [(&str, &str); 4] = [
    ("plain", "Plain Ethernet"),
    ("tdm", "TDM"),
    ("tdm-priority", "TDM with priorities"),
    ("tdm-priority-aligned", "TDM with priorities and slot-aligned release"),
];

/// Message bytes, cycle, published mean of the three scenarios.
const SCENARIOS: [(&str, u32, i64, i64); 3] = [
    ("transfer-64", 64, 1_040_000, 592_000),
    ("transfer-256", 256, 1_200_000, 698_000),
    ("transfer-1472", 1472, 1_920_000, 1_244_000),
];

/// The whole summary, as the types read it.
pub fn summary() -> Summary {
    serde_json::from_value(value()).expect("the sample has the shape of a summary")
}

fn value() -> Value {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut cases = Vec::new();
    for scenario in &SCENARIOS {
        for (name, title) in CASES {
            for load in ["alone", "flood"] {
                cases.push(case(&mut random, scenario, name, title, load));
            }
        }
    }
    json!({
        "schema": "timewire.summary/1",
        "tool": "timewire 0.1.0",
        "title": "Real-time transfer on a shared segment",
        "started_utc_ns": 1_795_183_387_000_000_000_i64,
        "elapsed_ns": 96_400_000_000_i64,
        "complete": true,
        "environment": environment(),
        "cases": cases,
        "findings": findings(),
        "verdict": "fail",
    })
}

fn findings() -> Value {
    let one = |id: &str, verdict: &str, limit: &str, measured: &str, note: &str| {
        let verdict = Some(verdict).filter(|verdict| !verdict.is_empty());
        json!({"id": id, "verdict": verdict, "limit": limit, "measured": measured, "note": note})
    };
    json!([
        one(
            "priorities-help-under-flood",
            "pass",
            "64 B under flood: p99 with priorities at most half of p99 without",
            "1071.4 us against 5210.9 us, ratio 0.21",
            ""
        ),
        one(
            "aligned-release-quarters-median",
            "pass",
            "64 B: aligned median at most a quarter of TDM's",
            "66.2 us against 566.1 us, ratio 0.12",
            ""
        ),
        one(
            "no-frame-outside",
            "fail",
            "no frame outside its slot by more than the bound of the timestamp",
            "3 of 159842 frames in transfer-64/tdm/flood, worst 61.3 us",
            "The MAC thread of gamma was off its CPU for 72 us inside its slot."
        ),
        one("nothing-lost", "pass", "no real-time message lost with priorities", "0 of 24000", ""),
        one(
            "load-was-there",
            "inconclusive",
            "best-effort load at least 2000 frames/s per station",
            "no counter from delta",
            "delta's flood program ended early, so its load is not known."
        ),
        one(
            "one-cycle",
            "pass",
            "99 % of real-time messages within one cycle, alone",
            "992.8 us of 1040 us",
            ""
        ),
        one("socket", "", "", "AF_XDP native on all four stations", ""),
    ])
}

fn environment() -> Value {
    let fact = |area: &str, name: &str, value: &str, level: &str| {
        object(["area", "name", "value", "level"], [area, name, value, level])
    };
    json!([
        fact("kernel", "release", "6.18.44 x86_64", "ok"),
        fact("kernel", "preemption", "PREEMPT_DYNAMIC, none", "degraded"),
        fact("kernel", "timer frequency", "HZ=250, high-resolution timers on", "ok"),
        fact("cpu", "model", "Intel Xeon, 2 virtual CPUs under a hypervisor", "degraded"),
        fact("cpu", "isolated", "none", "degraded"),
        fact("cpu", "frequency governor", "not visible to the guest", "missing"),
        fact("clock", "clock source", "tsc", "ok"),
        fact("clock", "scale", "CLOCK_TAI, one clock for all stations", "ok"),
        fact("clock", "hardware clock", "none: software timestamps are used", "missing"),
        fact("privilege", "real-time class", "SCHED_FIFO 80 granted", "ok"),
        fact("privilege", "locked memory", "all pages locked", "ok"),
        fact("interface alpha/phy0", "driver", "veth, AF_XDP native mode", "ok"),
        fact("interface alpha/phy0", "checksum offload", "off, as redirected frames need it", "ok"),
        fact("interface bravo/phy0", "driver", "veth, AF_XDP native mode", "ok"),
    ])
}

fn object<const N: usize>(keys: [&str; N], values: [&str; N]) -> Value {
    keys.into_iter().zip(values).map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

type Scenario = (&'static str, u32, i64, i64);

fn case(random: &mut Random, scenario: &Scenario, name: &str, title: &str, load: &str) -> Value {
    let &(scenario_name, bytes, cycle, published) = scenario;
    let flood = load == "flood";
    let tdm = name != "plain";
    let control: Vec<i64> = (0..4_000).map(|_| transfer(random, name, flood, cycle)).collect();
    let mut streams = vec![stream(random, "control", "real_time", &control, cycle, tdm)];
    if flood {
        for (name, count, deadline) in [("files", 4_000, cycle), ("flood-alpha", 6_000, 0)] {
            let times: Vec<i64> = (0..count).map(|_| best_effort(random, tdm, cycle)).collect();
            streams.push(stream(random, name, "best_effort", &times, deadline, tdm));
        }
    }
    let outside = if flood && name == "tdm" && bytes == 64 { 3 } else { 0 };
    let publish = (name != "plain" && !flood).then(|| {
        json!({
            "source": "TDM Ethernet thesis, table 5.1: four PCs on a 100 Mbit/s hub",
            "transfer_mean_ns": published,
        })
    });
    json!({
        "id": format!("{scenario_name}/{name}/{load}"), "scenario": scenario_name,
        "case": name, "title": title, "load": load, "message_bytes": bytes, "cycle_ns": cycle,
        "tdm": tdm, "slots": if tdm { slots(cycle) } else { json!([]) }, "published": publish,
        "streams": streams, "wire": wire(random, tdm, flood, cycle, outside),
        "macs": if tdm { macs(random, flood) } else { json!([]) },
    })
}

fn transfer(random: &mut Random, case: &str, flood: bool, cycle: i64) -> i64 {
    let stack = 32_000 + random.tail(9_000.0);
    let slot = cycle / 4;
    match (case, flood) {
        ("plain", false) => stack + random.tail(6_000.0),
        ("plain", true) => stack + random.tail(240_000.0),
        ("tdm", true) => stack + random.below(cycle) + cycle * (random.tail(1_100.0) / 1_000),
        ("tdm" | "tdm-priority", _) => {
            let rare = if random.below(700) == 0 { cycle } else { 0 };
            stack + random.below(cycle - slot / 4) + rare
        }
        _ => {
            let rare = if random.below(900) == 0 { cycle } else { 0 };
            stack + 20_000 + random.tail(5_000.0) + rare
        }
    }
}

fn best_effort(random: &mut Random, tdm: bool, cycle: i64) -> i64 {
    let rare = if random.below(60) == 0 { random.below(30 * cycle) } else { 0 };
    let wait = if tdm { random.below(2 * cycle) } else { random.tail(380_000.0) };
    45_000 + random.tail(22_000.0) + wait + rare
}

fn stream(
    random: &mut Random,
    name: &str,
    class: &str,
    times: &[i64],
    deadline: i64,
    tdm: bool,
) -> Value {
    let late = times.iter().filter(|t| deadline > 0 && **t > deadline).count();
    let lost = if class == "best_effort" { 37 } else { 0 };
    let receive: Vec<i64> = times.iter().map(|_| 6_000 + random.tail(3_000.0)).collect();
    let wait: Vec<i64> = times.iter().zip(&receive).map(|(t, r)| (t - r - 9_000).max(0)).collect();
    json!({
        "name": name, "class": class, "sent": times.len() + lost, "received": times.len(),
        "lost": lost, "late": late, "deadline_ns": deadline,
        "transfer": distribution(times, 10_000),
        "slot_wait": tdm.then(|| distribution(&wait, 10_000)),
        "receive": distribution(&receive, 1_000),
    })
}

fn distribution(times: &[i64], bin: i64) -> Value {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let n = sorted.len();
    let rank = |q: f64| sorted[((q * n as f64).ceil() as usize).clamp(1, n) - 1];
    let mean = sorted.iter().map(|t| *t as f64).sum::<f64>() / n as f64;
    let square = sorted.iter().map(|t| (*t as f64 - mean).powi(2)).sum::<f64>();
    let mut counts = vec![0_u64; 1_600];
    let mut beyond = 0;
    for time in &sorted {
        match counts.get_mut((time / bin) as usize) {
            Some(count) => *count += 1,
            None => beyond += 1,
        }
    }
    let mut cdf: Vec<(f64, i64)> =
        (1..100).map(|p| (f64::from(p) / 100.0, rank(f64::from(p) / 100.0))).collect();
    cdf.extend(
        (1..=90).map(|p| 1.0 - 10_f64.powf(-2.0 - f64::from(p) / 45.0)).map(|q| (q, rank(q))),
    );
    cdf.push((1.0, sorted[n - 1]));
    json!({
        "count": n, "min_ns": sorted[0], "p50_ns": rank(0.5), "p90_ns": rank(0.9),
        "p99_ns": rank(0.99), "p999_ns": rank(0.999), "max_ns": sorted[n - 1],
        "peak_to_peak_ns": sorted[n - 1] - sorted[0], "mean_ns": mean,
        "stddev_ns": (square / (n as f64 - 1.0)).sqrt(),
        "histogram": {"bin_ns": bin, "counts": counts, "beyond": beyond}, "cdf": cdf,
    })
}

fn slots(cycle: i64) -> Value {
    let slot = cycle / 4;
    let one = |(at, station): (usize, &&str)| {
        json!({
            "station": station, "offset_ns": at as i64 * slot, "transmit_ns": slot - 40_000,
            "guard_ns": 40_000,
        })
    };
    STATIONS.iter().enumerate().map(one).collect()
}

fn wire(random: &mut Random, tdm: bool, flood: bool, cycle: i64, outside: u64) -> Value {
    let bin = 2_000;
    let mut frames = 0;
    let mut phases = Vec::new();
    for (at, station) in STATIONS.iter().enumerate() {
        let mut counts = vec![0_u64; (cycle / bin) as usize];
        let wanted = if flood { 10_000 } else { 2_000 };
        for _ in 0..wanted {
            let spread =
                if flood { random.below(cycle / 4 - 52_000) } else { random.tail(14_000.0) };
            let phase = match tdm {
                true => at as i64 * cycle / 4 + 900 + spread.min(cycle / 4 - 52_000),
                false => random.below(cycle),
            };
            counts[((phase / bin) as usize).min((cycle / bin) as usize - 1)] += 1;
        }
        if *station == "gamma" {
            for n in 0..outside {
                counts[((cycle * 3 / 4 + 20_000 + 18_000 * n as i64) / bin) as usize] += 1;
            }
        }
        frames += counts.iter().sum::<u64>();
        phases.push(json!({"station": station, "bin_ns": bin, "counts": counts}));
    }
    json!({
        "frames": frames, "outside_slots": outside, "in_guard": if tdm && flood { 41 } else { 0 },
        "worst_outside_ns": if outside > 0 { 61_300 } else { 0 }, "unobserved": 0,
        "timestamp_bound_p999_ns": tdm.then_some(8_400),
        "timestamp_bound_max_ns": tdm.then_some(74_900),
        "phases": phases,
    })
}

fn macs(random: &mut Random, flood: bool) -> Value {
    let one = |(at, station): (usize, &&str)| {
        let control = if at < 2 { 4_000_u64 } else { 0 };
        let bulk = if flood { 10_000 } else { 12 };
        let dropped = if flood { random.below(2_000) as u64 } else { 0 };
        json!({
            "station": station, "socket": "af_xdp native", "released": control + bulk,
            "missed_slots": random.below(9) as u64 / 6, "ingress_dropped": 0,
            "queues": [
                {"name": "1", "arrived": control, "released": control, "dropped_full": 0,
                    "dropped_oversize": 0},
                {"name": "default", "arrived": bulk + dropped, "released": bulk,
                    "dropped_full": dropped, "dropped_oversize": 0},
            ],
        })
    };
    STATIONS.iter().enumerate().map(one).collect()
}

/// A small generator of pseudo-random numbers, so that the sample is the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, end: i64) -> i64 {
        (self.next() * end as f64) as i64
    }

    fn tail(&mut self, mean: f64) -> i64 {
        (-(1.0 - self.next()).ln() * mean) as i64
    }
}
