// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels on a simulated segment: every instant on the segment is the one that arithmetic says.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

mod kernels;

use std::fs;
use std::process::{Command, ExitCode};

use timewire_base::{BitsPerSecond, Span};
use timewire_lab::uml::segment::{KernelStation, SegmentLab};
use timewire_sim::{LocalNs, Loss, SegmentConfig, SegmentKind, SimTime, StationClock};

use kernels::{Frame, Ran, lab, run, scripted, station, try_run};

fn main() -> ExitCode {
    kernels::main(&[
        ("t4_an_answer_leaves_when_the_question_has_arrived", arrival),
        ("t4_a_switch_stores_and_forwards", switch),
        ("t4_the_same_description_gives_the_same_bytes", repeatable),
        ("t4_a_fast_clock_sends_early_by_exactly_its_drift", drift),
        ("t4_an_offset_is_seen_in_the_phase", offset),
        ("t4_gates_keep_frames_apart_until_drift_has_eaten_the_guard", gates),
        ("t4_ptp4l_finds_the_drift_of_a_clock", ptp),
        ("t4_a_duration_ends_who_still_runs", duration),
        ("t4_a_station_that_fails_is_named", failure),
    ])
}

/// When stations start what they run.
const START_NS: u64 = 1_000_000_000;
const DELAY_PS: u64 = 500_000;
/// A timer of these kernels is at most this late: they count time in steps of 256 ns, and look at
/// the clock before they set a timer and after it.
const LATE_NS: u64 = 3 * 256;
/// A byte at 100 Mbit/s.
const BYTE_PS: u64 = 80_000;

fn segment(kind: SegmentKind) -> SegmentConfig {
    SegmentConfig {
        kind,
        rate: BitsPerSecond::new(100_000_000).unwrap(),
        delay: Span::from_ns(500),
        loss: Loss::default(),
        seed: 1,
    }
}

fn hub() -> SegmentConfig {
    segment(SegmentKind::Hub)
}

fn fast(ppb: i32) -> StationClock {
    StationClock::new(Span::ZERO, ppb).unwrap()
}

/// Preamble, frame and check sequence.
fn bits_ps(frame: &Frame) -> u64 {
    (frame.length + 12) * BYTE_PS
}

/// Computing takes no time in these kernels, so the answer is ready at the very picosecond at which
/// the question has arrived whole.
fn arrival() -> Option<String> {
    let asks = station(1, fast(-3_210), &["ask", "10.77.0.2", "20"]);
    let echoes = station(2, fast(12_345), &["echo", "20"]);
    let ran = lab("arrival", hub(), vec![asks, echoes]);
    let (questions, answers) = (ran.datagrams("a"), ran.datagrams("b"));
    assert_eq!((questions.len(), answers.len()), (20, 20));
    for (question, answer) in questions.iter().zip(&answers) {
        assert_eq!(question.end_ps, question.start_ps + bits_ps(question));
        assert_eq!(answer.ready_ps, question.end_ps + DELAY_PS);
        // The gap after the question is over when the answer's first bit may follow.
        assert_eq!(answer.start_ps, (question.end_ps + 12 * BYTE_PS).max(answer.ready_ps));
    }
    let round_trips: Vec<u64> = ran.output(0).lines().map(|line| line.parse().unwrap()).collect();
    let exact = |i: usize| (answers[i].end_ps + DELAY_PS - questions[i].ready_ps) / 1_000;
    for (i, measured) in round_trips.iter().enumerate().skip(1) {
        // Two looks at a clock of 256 ns.
        assert!(measured.abs_diff(exact(i)) <= 3 * 256, "{measured} for {}", exact(i));
    }
    None
}

fn switch() -> Option<String> {
    let asks = station(1, fast(0), &["ask", "10.77.0.3", "5"]);
    let idle = station(2, fast(0), &["listen", "0"]);
    let echoes = station(3, fast(0), &["echo", "5"]);
    let ran = lab("switch", segment(SegmentKind::Switch), vec![asks, idle, echoes]);
    let hops = |from: &str, link: &str| {
        let on = |frame: &Frame| frame.link == link;
        ran.datagrams(from).into_iter().filter(on).collect::<Vec<_>>()
    };
    let (up, down, back) = (hops("a", "a>switch"), hops("a", "switch>c"), hops("c", "c>switch"));
    assert_eq!((up.len(), down.len(), back.len()), (5, 5, 5));
    // The switch knows both by then: nobody else hears them.
    assert_eq!(hops("a", "switch>b"), []);
    for ((up, down), back) in up.iter().zip(&down).zip(&back) {
        assert_eq!(down.start_ps, up.end_ps + DELAY_PS);
        assert_eq!(back.ready_ps, down.end_ps + DELAY_PS);
    }
    assert_eq!(ran.summary.stations[1].exit_code, Some(0));
    None
}

fn repeatable() -> Option<String> {
    let lossy = SegmentConfig { loss: Loss::from_ppb(100_000_000).unwrap(), ..hub() };
    let once = || {
        let talker = station(1, fast(0), &["talk", "10.77.0.2", "40", "200", "1ms"]);
        let floods = station(2, fast(50_000), &["flood", "10.77.0.3", "20", "9", "700"]);
        let listener = station(3, fast(-20_000), &["listen", "1000"]);
        let mut lab = SegmentLab::new(lossy, vec![talker, floods, listener]);
        lab.duration = Some(Span::from_ms(1_100));
        let ran = run("repeatable", &lab);
        assert!(ran.summary.stations[2].lost > 5, "{:?}", ran.summary);
        assert!(ran.summary.stations[0].found_busy > 0, "{:?}", ran.summary);
        (ran.file("segment.jsonl"), ran.file("segment.pcapng"), ran.summary.simulated_ns)
    };
    let first = once();
    assert!(first.0.len() > 50_000);
    assert!(first == once(), "two runs differ");
    None
}

/// The starts of the datagrams that a talker sends every millisecond of its clock.
fn starts(name: &str, clock: &StationClock) -> Vec<u64> {
    let talker = station(1, clock.clone(), &["talk", "10.77.0.2", "300", "100", "1ms"]);
    let listener = station(2, fast(0), &["listen", "300"]);
    let ran = lab(name, hub(), vec![talker, listener]);
    let datagrams = ran.datagrams("a");
    assert_eq!(datagrams.len(), 300);
    assert!(datagrams.iter().all(|frame| frame.ready_ps == frame.start_ps));
    datagrams.iter().map(|frame| frame.start_ps).collect()
}

fn drift() -> Option<String> {
    let right = starts("right", &fast(0));
    let clock = fast(100_000);
    let early = starts("early", &clock);
    for (i, (right, early)) in (1_u64..).zip(right.iter().zip(&early)) {
        // The right clock counts simulated nanoseconds; the talker's does what it does at the same
        // readings.
        assert_eq!(right % 1_000, 0);
        let reading = right / 1_000;
        assert_eq!(SimTime::from_ps(*early), clock.reaches(LocalNs(reading)).unwrap(), "{i}");
        // In simulated time it gains 100 ns every millisecond, from the start of the simulation on.
        let gained_ps = right - early;
        assert_eq!(gained_ps, early / 10_000, "{i}");
        // And it is in time by its own clock.
        let late = reading - (START_NS + i * 1_000_000);
        assert!(late <= LATE_NS, "{late} ns late");
    }
    None
}

fn offset() -> Option<String> {
    let right = starts("right", &fast(0));
    let ahead = starts("ahead", &StationClock::new(Span::from_us(5), 0).unwrap());
    for (right, ahead) in right.iter().zip(&ahead) {
        assert!((right - ahead).abs_diff(5_000_000) <= LATE_NS * 1_000, "{right} and {ahead}");
    }
    None
}

const CYCLE_NS: u64 = 1_000_000;
const CYCLES: u64 = 250;
/// The first opens at the start of a cycle, for so long; then the guard, then the second.
const OPEN_NS: u64 = 373_000;
const GUARD_NS: u64 = 10_000;

/// A station that sends more than its gate lets through. The size table adds preamble, check
/// sequence and gap to what `taprio` counts; without it the kernel lets frames through that end
/// after their gate has closed.
fn gated(number: u8, clock: StationClock, entries: &str) -> KernelStation {
    let script = format!(
        "set -e\n\
         ethtool eth0\n\
         tc qdisc replace dev eth0 root handle 100: stab overhead 24 taprio num_tc 2 \
         map 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 queues 1@0 1@1 \
         base-time $((TIMEWIRE_START + {CYCLE_NS})) {entries} flags 0x0 clockid CLOCK_TAI\n\
         exec $0 flood 10.77.0.3 {CYCLES} 12 400\n"
    );
    scripted(number, clock, 2, &script)
}

/// The frames of each cycle of the two gated stations.
fn gated_run(name: &str, second: StationClock) -> Ran {
    let rest = CYCLE_NS - OPEN_NS;
    let first = gated(1, fast(0), &format!("sched-entry S 01 {OPEN_NS} sched-entry S 00 {rest}"));
    let before = OPEN_NS + GUARD_NS;
    let after = CYCLE_NS - before - OPEN_NS;
    let entries =
        format!("sched-entry S 00 {before} sched-entry S 01 {OPEN_NS} sched-entry S 00 {after}");
    let stations = vec![first, gated(2, second, &entries), station(3, fast(0), &["sink"])];
    let mut lab = SegmentLab::new(hub(), stations);
    lab.duration = Some(Span::from_ms(1_400));
    run(name, &lab)
}

/// What happened in a cycle.
struct Cycle {
    /// Its start, by the right clock.
    start_ns: u64,
    /// When another frame could follow the last one of the first station.
    free_ps: u64,
    /// When the first frame of the second station was ready,
    ready_ps: u64,
    /// and whether it found a frame of the first one on the medium.
    meets: bool,
}

/// All cycles but those at the edges of the run.
fn cycles(ran: &Ran) -> Vec<Cycle> {
    let (a, b) = (ran.datagrams("a"), ran.datagrams("b"));
    let cycle = |number: u64| {
        let start_ns = START_NS + number * CYCLE_NS;
        let inside = |frame: &&Frame| frame.ready_ps / 1_000 / CYCLE_NS == start_ns / CYCLE_NS;
        let last = a.iter().rfind(inside).unwrap();
        let first = b.iter().find(inside).unwrap();
        let meets = first.busy_with.as_deref() == Some("a");
        Cycle { start_ns, free_ps: last.end_ps + 12 * BYTE_PS, ready_ps: first.ready_ps, meets }
    };
    (2..CYCLES - 2).map(cycle).collect()
}

fn gates() -> Option<String> {
    if Command::new("tc").arg("-V").output().is_err() || Command::new("ethtool").output().is_err() {
        return Some("tc and ethtool are needed".to_owned());
    }
    let equal = gated_run("equal", fast(0));
    for number in 0..2 {
        let code = equal.summary.stations[number].exit_code;
        assert_eq!(code, Some(0), "{}", equal.errors(number));
        // The rate of the link is known to the kernel, and to taprio's guard band.
        assert!(equal.output(number).contains("Speed: 100Mb/s"), "{}", equal.output(number));
    }
    let met = |ran: &Ran| {
        let other = |frame: &&Frame| frame.busy_with.as_deref() == Some("a");
        ran.datagrams("b").iter().filter(other).count()
    };
    assert_eq!(met(&equal), 0);
    for cycle in cycles(&equal) {
        // Both are busy to the edges of their windows.
        let of_cycle = |ps: u64| ps / 1_000 - cycle.start_ns;
        assert!((OPEN_NS - 2_000..=OPEN_NS + LATE_NS).contains(&of_cycle(cycle.free_ps)));
        let late = of_cycle(cycle.ready_ps) - OPEN_NS - GUARD_NS;
        assert!(late <= LATE_NS, "the gate opens {late} ns late");
    }

    // From the start on, the second clock gains 100 ns every millisecond.
    let clock = fast(0).drifting_from(SimTime::from_ns(START_NS), 100_000).unwrap();
    let drifting = cycles(&gated_run("drifting", clock.clone()));
    // When its gate opens, by the arithmetic of clocks alone.
    let opens = |cycle: &Cycle, late: u64| {
        let reading = LocalNs(cycle.start_ns + OPEN_NS + GUARD_NS + late);
        clock.reaches(reading).unwrap().as_ps()
    };
    let first = |is: &dyn Fn(&Cycle) -> bool| drifting.iter().position(is).expect("they meet");
    let earliest = first(&|cycle| opens(cycle, 0) < cycle.free_ps);
    let latest = first(&|cycle| opens(cycle, LATE_NS) < cycle.free_ps);
    let seen = first(&|cycle| cycle.meets);
    eprintln!("computed: they meet from cycle {earliest} to {latest} on; seen: from {seen} on");
    assert!((earliest..=latest).contains(&seen));
    assert!(latest - earliest <= 8 && earliest > 90);
    assert!(drifting[latest..].iter().all(|cycle| cycle.meets));
    for cycle in &drifting {
        assert!(cycle.ready_ps >= opens(cycle, 0) && cycle.ready_ps <= opens(cycle, LATE_NS));
        assert_eq!(cycle.meets, cycle.ready_ps < cycle.free_ps);
    }
    None
}

/// Two kernels with clocks of their own, and the usual program that makes one follow the other.
fn ptp() -> Option<String> {
    let found = Command::new("/bin/sh").args(["-c", "command -v ptp4l"]).output().unwrap();
    let program = String::from_utf8(found.stdout).unwrap();
    let program = program.trim();
    if program.is_empty() {
        return Some("ptp4l (package linuxptp) is needed".to_owned());
    }
    let runs = |number, clock, role: &str| {
        let options = format!("-i eth0 -S -m {role} --uds_address /run/ptp4l");
        scripted(number, clock, 1, &format!("exec {program} {options}"))
    };
    let ahead = StationClock::new(Span::from_us(30), 20_000).unwrap();
    let stations = vec![runs(1, fast(0), "--priority1 10"), runs(2, ahead, "-s")];
    let mut lab = SegmentLab::new(segment(SegmentKind::Switch), stations);
    lab.duration = Some(Span::from_secs(60));
    let said = run("ptp", &lab).output(1);
    // `ptp4l[SECONDS]: master offset OFFSET STATE freq FREQUENCY path delay DELAY`
    let figures: Vec<(f64, f64, f64)> = said
        .lines()
        .filter(|line| line.contains("master offset"))
        .map(|line| line.split(['[', ']', ' ']).filter(|word| !word.is_empty()).collect())
        .map(|words: Vec<&str>| {
            (words[1].parse().unwrap(), words[5].parse().unwrap(), words[8].parse().unwrap())
        })
        .collect();
    assert!(figures.len() > 30, "{said}");
    // At first what the clock is off, by the arithmetic of clocks; timestamps are good to 256 ns,
    // and the path of 17 us is measured with such timestamps.
    let (seconds, first, _) = figures[0];
    assert!((first - (30_000.0 + 20_000.0 * seconds)).abs() < 8_000.0, "{said}");
    for (_, offset, frequency) in &figures[figures.len() - 10..] {
        assert!(offset.abs() < 10_000.0, "{said}");
        assert!((19_000.0..21_000.0).contains(frequency), "{said}");
    }
    None
}

fn duration() -> Option<String> {
    let waits = scripted(1, fast(0), 1, "echo before; sleep 100; echo after");
    let ends = scripted(2, fast(0), 1, "exit 7");
    let mut lab = SegmentLab::new(hub(), vec![waits, ends]);
    lab.duration = Some(Span::from_ms(1_250));
    let ran = run("duration", &lab);
    let codes: Vec<_> = ran.summary.stations.iter().map(|station| station.exit_code).collect();
    assert_eq!(codes, [None, Some(7)]);
    assert_eq!(ran.output(0), "before\n");
    // The kernel needs a moment to switch itself off.
    let end_ms = ran.summary.simulated_ns / 1_000_000;
    assert!((1_250..1_300).contains(&end_ms), "{end_ms}");
    None
}

fn failure() -> Option<String> {
    let ends = station(1, fast(0), &["listen", "1"]);
    let mut fails = station(2, fast(0), &[]);
    fails.run = ["/bin/sh", "-c", "exit 3"].map(str::to_owned).to_vec();
    let mut lab = SegmentLab::new(hub(), vec![ends.clone(), fails.clone()]);
    lab.duration = Some(Span::from_secs(2));
    // A command that fails is a result.
    assert_eq!(run("code", &lab).summary.stations[1].exit_code, Some(3));
    // A kernel that fails ends the laboratory.
    fails.run = ["/bin/sh", "-c", "echo c > /proc/sysrq-trigger; kill -9 -1; exec /none"]
        .map(str::to_owned)
        .to_vec();
    let lab = SegmentLab::new(hub(), vec![ends.clone(), KernelStation { memory_mib: 1, ..fails }]);
    let (result, out) = try_run("failure", &lab);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("station b: "), "{error}");
    fs::remove_dir_all(out).unwrap();
    // Two of the same name cannot be.
    let (result, _) = try_run("twice", &SegmentLab::new(hub(), vec![ends.clone(), ends]));
    assert!(result.unwrap_err().to_string().contains("name, MAC or address of a"));
    None
}
