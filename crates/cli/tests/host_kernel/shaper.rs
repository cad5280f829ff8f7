// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The credit-based shaper of the kernel from host settings: its rate, and its bursts.

use timewire_base::Span;
use timewire_lab::fixture::{Bench, Fixture, Flow, Talker};
use timewire_lab::trial::Trial;

use super::play;
use super::station::{Station, file, transmit};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_applied_shaper_holds_1_mbit_within_1_percent", slow),
    Trial::new("t4_applied_shaper_holds_50_mbit_within_1_percent", fast),
    Trial::new("t4_applied_shaper_keeps_bursts_within_its_credits", bursts),
    Trial::new("t4_applied_shaper_is_that_of_an_interface_without_classes", alone),
    Trial::new("t4_credit_behind_gates_is_told_by_every_verb_about_a_host", behind_gates),
];

/// What a veth states. **Units**: bit/s.
const PORT: i64 = 10_000_000_000;
/// Longest frame of the class, as Linux counts it. **Units**: bytes.
const FRAME: i64 = 322;
/// On the link. **Units**: bytes.
const AROUND: i64 = 24;

fn reserving(mbit: i64) -> String {
    format!(
        "{{ credit: {{ from: reservation, rate: {mbit}Mbit, frame: {}B, port: 10Gbit }} }}",
        FRAME + AROUND
    )
}

/// Applies this transmit side at `a`, and takes it back after the work.
#[track_caller]
fn with(desired: &str, work: impl FnOnce(&Bench)) {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").timeout(Span::from_secs(3));
    let bench = fixture.build().unwrap();
    Station::of(&bench, "a").with(&file(&transmit(desired)), || work(&bench));
}

fn flow(count: u32) -> Talker {
    Talker::new("a", "b").priority(3).length(u32::try_from(FRAME).unwrap()).burst(count)
}

/// The rate of a flow that always had frames waiting, with everything that is on the link.
///
/// **Units**: bit/s.
fn rate_of(flow: &Flow) -> i64 {
    let fates = flow.complete().by_arrival();
    let (first, last) = (fates[0].arrived(), fates[fates.len() - 1].arrived());
    let frames = i64::try_from(fates.len() - 1).unwrap();
    frames * (FRAME + AROUND) * 8 * 1_000_000_000 / (last - first).as_ns()
}

#[track_caller]
fn check_rate(flow: &Flow, mbit: i64) {
    let (rate, wanted) = (rate_of(flow), mbit * 1_000_000);
    println!("reserved {wanted} bit/s, sent {rate} bit/s");
    assert!((rate - wanted).abs() * 100 <= wanted, "{rate} bit/s are not {wanted}");
}

fn slow() {
    rate(1);
}

fn fast() {
    rate(50);
}

fn rate(mbit: i64) {
    let desired = format!(
        "overhead: {AROUND}B\nclasses: [{{ priorities: [3], queues: 1@0, shaper: {} }}, \
         {{ queues: 1@1 }}]",
        reserving(mbit)
    );
    with(&desired, |bench| {
        let outcome = play(bench, &[flow(300), Talker::new("a", "b").count(100)]);
        check_rate(outcome.flow(0), mbit);
        // The other class is not shaped.
        outcome.flow(1).complete();
    });
}

/// In no interval does the class send more than its rate allows and its credits together: a window
/// begins with at most hiCredit and ends with at least loCredit.
fn bursts() {
    let mbit = 20;
    let desired = format!(
        "overhead: {AROUND}B\nclasses: [{{ priorities: [3], queues: 1@0, shaper: {} }}, \
         {{ queues: 1@1 }}]",
        reserving(mbit)
    );
    with(&desired, |bench| {
        let bursts = flow(7).every(Span::from_us(3_000)).count(40);
        let outcome = play(bench, &[bursts]);
        let fates = outcome.flow(0).complete().by_arrival();
        // As Annex L computes them for one frame of 1542 bytes before the class.
        let bits = (FRAME + AROUND) * 8;
        let idle = mbit * 1_000_000;
        let high = 1_542 * 8 * idle / PORT + 8;
        let low = bits * (PORT - idle) / PORT + 8;
        let mut most = 0;
        for (first, from) in fates.iter().enumerate() {
            for (last, to) in fates.iter().enumerate().skip(first) {
                let frames = i64::try_from(last - first + 1).unwrap();
                // A frame arrives when it starts; it ends as long after as the port needs for it.
                let time = (to.arrived() - from.arrived()).as_ns() + bits * 1_000_000_000 / PORT;
                // The kernel forgives a byte of each frame, and of each timer.
                let over = frames * bits - idle * time / 1_000_000_000 - frames * 8;
                most = most.max(over);
            }
        }
        println!("at most {most} bits beyond the rate; the credits are {high} and -{low} bits");
        assert!(most <= high + low, "{most} bits beyond the rate, credits {high} and {low}");
        // The bound is not idle: a single frame takes nearly all of it.
        assert!(most * 2 > low, "{most}");
    });
}

fn alone() {
    with(&format!("overhead: {AROUND}B\nshaper: {}", reserving(20)), |bench| {
        let outcome = play(bench, &[flow(200).priority(0)]);
        check_rate(outcome.flow(0), 20);
    });
}

/// One figure: what `doctor` and `apply` tell of a file, `status` and `snapshot` tell of the host.
fn behind_gates() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b");
    let bench = fixture.build().unwrap();
    let station = Station::of(&bench, "a");
    let path = file(&transmit(&format!(
        "overhead: {AROUND}B\nclasses: [{{ queues: 1@0 }}, {{ priorities: [3], queues: 1@1, \
         shaper: {{ credit: {{ from: slopes, idle_slope: 50Mbit, port: 10Gbit, hi_credit: 0, \
         lo_credit: -995 }} }} }}]\ngates: {{ entries: [{{ open: [1], interval: 512us }}, \
         {{ open: [0], interval: 512us }}] }}"
    )));
    let told = "class 1: credit of 50.000 Mbit/s behind a gate that is open for 50.0 % of the \
                cycle carries 50.000 Mbit/s by IEEE 802.1Q, and 25.000 to 32.773 Mbit/s with Linux";
    let text = |verb: &[&str]| {
        let ended = station.timewire(verb);
        ended.out + &ended.err
    };
    let doctor = text(&["doctor", path.to_str().unwrap()]);
    assert!(doctor.contains(told), "{doctor}");
    assert!(!text(&["snapshot", "eth0"]).contains("gated credit"));
    station.with(&path, || {
        let shown = told.replace("class 1:", "class 1 (100:2):");
        for verb in [&["snapshot", "eth0"][..], &["status"]] {
            let said = text(verb);
            assert!(said.contains(&shown), "{verb:?}: {said}");
        }
        for (verb, at) in [
            (&["snapshot", "eth0", "--json"][..], "/state/interfaces/eth0/gated_credit/0"),
            (&["status", "--json"], "/gated_credit/0"),
        ] {
            let value: serde_json::Value = serde_json::from_str(&text(verb)).unwrap();
            let found = &value.pointer(at).unwrap_or_else(|| panic!("{verb:?}: {value}"));
            let numbers = [&found["class"], &found["linux_least_bps"], &found["linux_most_bps"]];
            assert_eq!(numbers, [1, 25_000_000, 32_773_437], "{verb:?}: {found}");
        }
    });
}
