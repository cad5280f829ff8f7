// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Classes, gates and launch times from host settings, and what frames do under them.

use timewire_base::{Instant, Span, Tai};
use timewire_lab::fixture::{Bench, Gates, Launch, LaunchClock, Talker, Transport};
use timewire_lab::trial::Trial;
use timewire_sys::error_queue::LaunchRefusal;

use super::station::{Station, file, pair, transmit};
use super::{LATE, TIMER, play, shifted, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_applied_mqprio_has_a_queue_for_every_class", mqprio),
    Trial::new("t4_applied_marks_put_frames_of_other_programs_into_classes", marks),
    Trial::new("t4_applied_taprio_lets_no_frame_start_in_a_closed_gate", gates),
    Trial::new("t4_applied_taprio_with_more_entries_than_tc_has_room_for_is_obeyed", long_list),
    Trial::new("t4_applied_taprio_bounds_the_packets_of_a_class", max_sdu).since(6, 3),
    Trial::new("t4_applied_txtime_assist_sends_delta_before_the_gate", assist),
    Trial::new("t4_applied_etf_sends_at_the_launch_time", launch),
    Trial::new("t4_applied_etf_in_deadline_mode_sends_at_once", deadline),
    Trial::new("t4_applied_etf_without_socket_check_takes_frames_without_launch_times", unchecked),
    Trial::new("t4_applied_etf_is_that_of_an_interface_without_classes", alone),
];

/// Applies this transmit side at `a`, and takes it back after the work.
#[track_caller]
fn with(desired: &str, work: impl FnOnce(&Bench)) {
    let bench = pair();
    Station::of(&bench, "a").with(&file(&transmit(desired)), || work(&bench));
}

/// The first instant of a cycle at or after another one; cycles begin with TAI.
fn next_cycle(at: Instant<Tai>, cycle: Span) -> Instant<Tai> {
    at + Span::from_ns((-at.as_ns()).rem_euclid(cycle.as_ns()))
}

fn mqprio() {
    let desired = "\
classes:
  - { priorities: [3], queues: 1@0 }
  - { priorities: [2], queues: 1@1 }
  - { queues: 2@2 }
";
    with(desired, |bench| {
        let flows: Vec<_> = (0..16).map(|p| Talker::new("a", "b").priority(p)).collect();
        let outcome = play(bench, &flows);
        for flow in &outcome.flows {
            flow.late_by(TIMER);
        }
        let sent = sent_by_queue(bench);
        assert_eq!((sent[0], sent[1], sent[2] + sent[3], sent[4..].iter().sum()), (1, 1, 14, 0));
    });
}

/// The programs set no priority; the filters before the classes do.
fn marks() {
    let desired = "\
classes:
  - { priorities: [3], queues: 1@0 }
  - { priorities: [10], queues: 1@1 }
  - { queues: 1@2 }
";
    let marks = [
        "        marks:",
        "          - { priority: 3, ethertype: 0x88b5 }",
        // One that `tc` has a name for.
        "          - { priority: 5, ethertype: 0x88a4 }",
        "          - { priority: 10, protocol: udp, to_address: 0.0.0.0/0 }",
    ];
    let bench = pair();
    Station::of(&bench, "a").with(&file(&(transmit(desired) + &marks.join("\n"))), || {
        let frames = Talker::new("a", "b").count(5);
        let datagrams = Talker::new("a", "b").over(Transport::Udp4).count(7);
        for flow in &play(&bench, &[frames, datagrams]).flows {
            flow.complete();
        }
        assert_eq!(sent_by_queue(&bench)[..3], [5, 7, 0]);
    });
}

/// Frames that left through each queue.
fn sent_by_queue(bench: &Bench) -> [u64; 8] {
    let mut sent = [0; 8];
    for discipline in bench.disciplines("a", "b").unwrap() {
        // What filters hang on has a place beyond all queues.
        let class = discipline.parent.split_once(':').map_or("0", |(_, class)| class);
        let queue = usize::from_str_radix(class, 16).unwrap().wrapping_sub(1);
        if let Some(sent) = sent.get_mut(queue) {
            *sent += discipline.sent;
        }
    }
    sent
}

/// Class 0 may send in the first half of 640 us, class 1 in the second.
fn gates() {
    alternating(1);
}

/// As many as a dump of the kernel shows; `tc` has room for some 30.
fn long_list() {
    alternating(440);
}

/// So many times in a cycle.
fn alternating(times: usize) {
    let halves = "    - { open: [0], interval: 320us }\n    - { open: [1], interval: 320us }\n";
    let desired = format!(
        "classes:\n  - {{ priorities: [1], queues: 1@0 }}\n  - {{ queues: 1@1 }}\n\
         gates:\n  entries:\n{}",
        halves.repeat(times)
    );
    with(&desired, |bench| {
        // 97 us share no factor with the cycle: frames meet the gates in every phase.
        let flow = |priority| Talker::new("a", "b").priority(priority).every(us(97)).count(1_500);
        let outcome = play(bench, &[flow(1), flow(0)]);
        let cycle = us(640);
        let first = Gates::new(cycle).open(us(0), us(320));
        let second = Gates::new(cycle).open(us(320), us(640));
        for (flow, gates) in outcome.flows.iter().zip([&first, &second]) {
            flow.complete().inside(gates);
            let waited = flow.statistics(|fate| fate.lateness().as_ns());
            println!("{} waited in ns {waited}", flow.name);
            // Frames that meet a closed gate wait for it, the others do not: both happened.
            assert!(waited.max > 300_000 && waited.min <= 511, "{waited}");
        }
    });
}

/// A payload of so many bytes passes, one byte more does not.
fn max_sdu() {
    let desired = "\
classes:
  - { priorities: [1], queues: 1@0, max_sdu: 300B }
  - { queues: 1@1 }
gates: { entries: [{ open: [0, 1], interval: 640us }] }
";
    let bench = pair();
    let station = Station::of(&bench, "a");
    let path = file(&transmit(desired));
    // `tc` knows the word from iproute2 6.2 on. An older one refuses it, and then nothing is left
    // behind: that much is tested, and the bound itself is not.
    let old = station.run("tc", &["qdisc", "add", "dev", "lo", "root", "taprio", "max-sdu", "1"]);
    if old.err.contains("Unknown argument") {
        let told = station.refuses(&path, "eth0");
        assert!(told.err.contains("max-sdu"), "{told:?}");
        eprintln!("SKIP: this tc does not know max-sdu; that of iproute2 6.2 does");
        return;
    }
    station.with(&path, || {
        let flow =
            |length| Talker::new("a", "b").priority(1).length(length).every(us(100)).count(20);
        let outcome = play(&bench, &[flow(314), flow(315)]);
        outcome.flow(0).complete();
        outcome.flow(1).silent();
    });
}

/// Each frame has a launch time from the gates: an etf below keeps it.
fn assist() {
    let desired = "\
classes:
  - { priorities: [1], queues: 1@0, launch_time: { delta: 64us, skip_sock_check: true } }
  - { queues: 1@1, launch_time: { delta: 64us, skip_sock_check: true } }
gates:
  mode: txtime_assist
  txtime_delay: 128us
  entries:
    - { open: [0], interval: 320us }
    - { open: [1], interval: 320us }
";
    with(desired, |bench| {
        let start = next_cycle(bench.soon(), us(640));
        let flow = |offset| {
            Talker::new("a", "b").priority(1).from(start + us(offset)).every(us(640)).count(100)
        };
        let outcome = play(bench, &[flow(32), flow(288)]);
        let allowed = 0..=256 + LATE.end();
        outcome
            .flow(0)
            .complete()
            .each("error of the launch", allowed, |fate| fate.lateness().as_ns() - 64_000);
        outcome.flow(1).complete().each("error of the opening", LATE, |fate| {
            fate.lateness().as_ns() - (640 - 288 - 64) * 1_000
        });
        let moved = Gates::new(us(640)).based(start - us(64)).open(us(0), us(320));
        outcome.flow(0).inside(&moved);
        outcome.flow(1).inside(&moved);
    });
}

fn classes_with(launch: &str) -> String {
    format!(
        "classes: [{{ priorities: [3], queues: 1@0, launch_time: {launch} }}, {{ queues: 1@1 }}]"
    )
}

fn launch() {
    with(&classes_with("{ delta: 100us }"), |bench| {
        let flow = Talker::new("a", "b").priority(3).every(us(250)).count(400);
        let outcome = play(bench, &[flow.clone().launch(us(200)), flow.clone().priority(0)]);
        outcome.flow(0).late_by(shifted(-100_000, &LATE));
        outcome.flow(1).late_by(TIMER);
        // Its class drops what has no launch time, and what is late.
        let outcome = play(bench, &[flow.clone(), flow.launch(us(-1))]);
        outcome.flow(0).silent();
        let late = outcome.flow(1).silent();
        assert_eq!(late.refused(LaunchRefusal::Invalid), 400);
    });
}

fn deadline() {
    with(&classes_with("{ delta: 100us, deadline: true }"), |bench| {
        let launch = Launch { lead: us(300), deadline: true, clock: LaunchClock::Tai };
        let flow = Talker::new("a", "b").priority(3).every(us(250)).count(200).launch_as(launch);
        play(bench, &[flow]).flow(0).late_by(shifted(-300_000, &TIMER));
    });
}

/// What has no launch time has the time 0, and that is past: etf takes it, and drops it when it
/// comes to send it.
fn unchecked() {
    with(&classes_with("{ delta: 100us, skip_sock_check: true }"), |bench| {
        let flow = Talker::new("a", "b").priority(3).every(us(250)).count(100);
        let outcome = play(bench, &[flow.clone().launch(us(200))]);
        outcome.flow(0).late_by(shifted(-100_000, &LATE));
        let outcome = play(bench, &[flow]);
        outcome.flow(0).silent();
    });
}

fn alone() {
    with("launch_time: { delta: 100us }", |bench| {
        let flow = Talker::new("a", "b").priority(5).every(us(250)).count(200).launch(us(200));
        play(bench, &[flow]).flow(0).late_by(shifted(-100_000, &LATE));
    });
}
