// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gates in software: linux v6.12 `net/sched/sch_taprio.c`.

use timewire_base::{Instant, Span, Tai};
use timewire_lab::fixture::{Bench, Fate, Fixture, Flow, Gates, Talker};
use timewire_lab::trial::Trial;

use super::{TIMER, TIMER_ON_GRID, next_cycle, ns, play, shifted, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_taprio_sends_nothing_outside_its_gates", three_classes),
    Trial::new("t4_taprio_opens_late_by_a_timer_at_most", off_the_grid),
    Trial::new("t4_taprio_holds_back_what_would_not_end_in_time", guard_band),
    Trial::new("t4_taprio_sends_higher_classes_first", higher_first).since(6, 3),
    Trial::new("t4_taprio_is_open_until_its_base_time", future_base),
    Trial::new("t4_taprio_with_a_past_base_time_starts_with_the_next_cycle", past_base),
    Trial::new("t4_taprio_keeps_a_class_without_gate", closed_for_ever),
    Trial::new("t4_taprio_refuses_frames_longer_than_any_gate", longer_than_a_gate).since(6, 3),
    Trial::new("t4_taprio_changes_schedules_an_entry_early", change),
    Trial::new("t4_taprio_extends_no_cycle", extension),
    Trial::new("t4_taprio_opens_all_gates_while_it_takes_a_schedule", opened_by_change),
    Trial::new("t4_taprio_lets_a_window_carry_no_more_than_the_interface", budget),
    Trial::new("t4_taprio_drops_launch_times_outside_the_gates", launch_times),
    Trial::new("t4_taprio_stops_for_a_discipline_below_and_for_a_link_that_went", stopped),
];

/// `num_tc` classes, a queue each, priority = class.
pub fn classes(count: usize) -> String {
    let map = (0..count).map(|class| class.to_string()).collect::<Vec<_>>().join(" ");
    let queues = (0..count).map(|class| format!("1@{class}")).collect::<Vec<_>>().join(" ");
    format!("num_tc {count} map {map} queues {queues}")
}

/// Of each 640 us the first half is for class 1, the second for class 0.
fn halves() -> String {
    let entries = "sched-entry S 2 320000 sched-entry S 1 320000";
    format!("root taprio {} base-time 0 clockid CLOCK_TAI {entries}", classes(2))
}

fn two_stations(discipline: &str) -> Bench {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").qdisc("a", "b", discipline);
    fixture.build().unwrap()
}

/// Every frame left when its gate was open: at once, or when it opened.
fn obeys(flow: &Flow, gates: &Gates, open_late: std::ops::RangeInclusive<i64>) {
    flow.complete().inside(gates);
    flow.each("time since planned or since the opening", 0..=511, |fate| {
        let since = gates.since_opening(fate.arrived()).unwrap().as_ns();
        if open_late.contains(&since) { since } else { fate.lateness().as_ns() }
    });
}

fn three_classes() {
    // All on the grid of readings.
    let bench = two_stations(&format!(
        "root taprio {} base-time 0 clockid CLOCK_TAI \
         sched-entry S 1 320000 sched-entry S 2 320000 sched-entry S 4 384000",
        classes(3)
    ));
    let flow = |class| Talker::new("a", "b").priority(class).every(us(96)).count(1_000);
    let outcome = play(&bench, &[flow(0), flow(1), flow(2)]);
    let gate = |from, to| Gates::new(us(1_024)).open(us(from), us(to));
    let gates = [gate(0, 320), gate(320, 640), gate(640, 1_024)];
    for (flow, gates) in outcome.flows.iter().zip(&gates) {
        obeys(flow, gates, TIMER_ON_GRID);
        // Some had to wait, some had not.
        let waited = flow.fates.iter().filter(|fate| fate.lateness().as_ns() > 511).count();
        assert!((400..900).contains(&waited), "{waited} of 1000 frames waited");
    }
}

fn off_the_grid() {
    let bench = two_stations(&format!(
        "root taprio {} base-time 0 clockid CLOCK_TAI \
         sched-entry S 1 300000 sched-entry S 2 300000 sched-entry S 4 400000",
        classes(3)
    ));
    let flow = |class| Talker::new("a", "b").priority(class).every(us(970)).count(500);
    let outcome = play(&bench, &[flow(0), flow(1), flow(2)]);
    let gate = |from, to| Gates::new(us(1_000)).open(us(from), us(to));
    let gates = [gate(0, 300), gate(300, 600), gate(600, 1_000)];
    for (flow, gates) in outcome.flows.iter().zip(&gates) {
        obeys(flow, gates, TIMER);
    }
}

/// A frame leaves when now and the time it takes at the speed of the interface are before the end
/// of the window (`taprio_dequeue_from_txq`, `taprio_entry_allows_tx`). A veth says 10 Gbit/s: 800
/// ps for each byte (`taprio_set_picos_per_byte`).
fn guard_band() {
    let bench = two_stations(&halves());
    // 1280 bytes take 1024 ns: sent 1024 ns before the end it would end with the window, not
    // before it.
    let start = bench.soon();
    let at = |quanta: i64| next_cycle(start, us(640)) + us(320) - ns(quanta * 256);
    for (quanta, fits) in [(5, true), (4, false), (3, false), (1, false)] {
        let flow = Talker::new("a", "b").priority(1).length(1_280).from(at(quanta));
        let outcome = play(&bench, &[flow.every(us(64_000)).count(10)]);
        let flow = outcome.flow(0).complete();
        // The timers' odd reading would decide otherwise.
        let on_time = flow.fates.iter().filter(|fate| fate.lateness().as_ns() <= 511).count();
        let waited = flow.fates.iter().filter(|fate| fate.lateness().as_ns() >= 320_000).count();
        assert_eq!(on_time + waited, 10);
        assert!(if fits { on_time >= 9 } else { waited == 10 }, "{quanta}: {on_time}, {waited}");
    }
}

/// `taprio_dequeue_tc_priority`.
fn higher_first() {
    let bench = two_stations(&format!(
        "root taprio {} base-time 0 clockid CLOCK_TAI \
         sched-entry S 8 320000 sched-entry S 7 320000",
        classes(4)
    ));
    let start = next_cycle(bench.soon(), us(640)) + us(64);
    let flow = |class| Talker::new("a", "b").priority(class).from(start).burst(5);
    let mut fixture = Vec::new();
    for class in [0, 2, 1] {
        fixture.push(flow(class));
    }
    let outcome = play(&bench, &fixture);
    // All in the same instant; the order is that of the listener, who timestamps in order of
    // arrival.
    for flow in &outcome.flows {
        flow.late_by(256_000..=256_256);
    }
    let order: Vec<usize> = outcome.order();
    assert_eq!(order, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0]);
}

/// Before the first entry there is none, and every gate is open (`taprio_dequeue`).
fn future_base() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b");
    let bench = fixture.build().unwrap();
    let base = bench.soon() + us(512_000);
    bench
        .tc(
            "a",
            "b",
            &format!(
                "qdisc add dev DEV root taprio {} base-time {} clockid CLOCK_TAI \
                 sched-entry S 2 320000 sched-entry S 1 320000",
                classes(2),
                base.as_ns()
            ),
        )
        .unwrap();
    let start = base - us(100_000);
    let flow = |class| Talker::new("a", "b").priority(class).from(start).every(us(97)).count(2_000);
    let outcome = play(&bench, &[flow(0), flow(1)]);
    let windows = [(320, 640), (0, 320)];
    for (flow, (from, to)) in outcome.flows.iter().zip(windows) {
        let (before, after) = split(flow, base);
        assert!(before.fates.len() > 1_000 && after.fates.len() > 900);
        before.late_by(TIMER);
        let gates = Gates::new(us(640)).based(base).open(us(from), us(to));
        obeys(&after, &gates, TIMER_ON_GRID);
    }
}

/// The frames that were planned before an instant, and the others.
fn split(flow: &Flow, at: Instant<Tai>) -> (Flow, Flow) {
    let part = |keep: &dyn Fn(&Fate) -> bool| Flow {
        name: flow.name.clone(),
        fates: flow.fates.iter().filter(|fate| keep(fate)).copied().collect(),
    };
    (part(&|fate| fate.planned < at), part(&|fate| fate.planned >= at))
}

/// `taprio_get_start_time`: with the cycle after the present one, even when one begins now.
fn past_base() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b");
    let bench = fixture.build().unwrap();
    let base = bench.soon();
    bench.sleep_until(base + us(64_300));
    let line = format!(
        "qdisc add dev DEV root taprio {} base-time {} clockid CLOCK_TAI \
         sched-entry S 2 32000000 sched-entry S 1 32000000",
        classes(2),
        base.as_ns()
    );
    bench.tc("a", "b", &line).unwrap();
    // The second cycle has begun at 64 ms; the schedule starts with the third, at 128 ms.
    let begin = base + us(128_000);
    let flow =
        Talker::new("a", "b").priority(0).from(base + us(66_000)).every(us(1_000)).count(200);
    let outcome = play(&bench, &[flow]);
    let (before, after) = split(outcome.flow(0), begin);
    assert_eq!(before.fates.len(), 62);
    before.late_by(TIMER);
    let gates = Gates::new(us(64_000)).based(base).open(us(32_000), us(64_000));
    obeys(&after, &gates, TIMER_ON_GRID);
}

/// Its frames stay in the queue; nothing drops them.
fn closed_for_ever() {
    let bench = two_stations(&format!(
        "root taprio {} base-time 0 clockid CLOCK_TAI \
         sched-entry S 1 320000 sched-entry S 3 320000",
        classes(3)
    ));
    let flow = |class| Talker::new("a", "b").priority(class).every(us(100)).count(100);
    let outcome = play(&bench, &[flow(2), flow(0)]);
    outcome.flow(0).silent();
    outcome.flow(1).late_by(TIMER);
    let taprio = bench.counted("a", "b", "taprio").unwrap();
    assert_eq!((taprio.waiting, taprio.dropped), (100, 0));
}

/// The longest frame of a class is what its longest gate has room for at the speed of the
/// interface (`taprio_update_queue_max_sdu`), and longer ones are dropped as they come.
fn longer_than_a_gate() {
    let bench = two_stations(&format!(
        "root taprio {} base-time 0 clockid CLOCK_TAI sched-entry S 2 640 sched-entry S 1 319360",
        classes(2)
    ));
    // 640 ns have room for 800 bytes; one that long would never end before the gate.
    for (length, dropped) in [(798, 0), (801, 10)] {
        let before = bench.counted("a", "b", "taprio").unwrap().dropped;
        let flow = Talker::new("a", "b").priority(1).length(length).every(us(640)).count(10);
        let outcome = play(&bench, &[flow]);
        let after = bench.counted("a", "b", "taprio").unwrap().dropped;
        assert_eq!(after - before, dropped, "{length} bytes");
        let not_taken = outcome.flow(0).fates.iter().filter(|f| f.not_taken == Some(105)).count();
        assert_eq!(u64::try_from(not_taken).unwrap(), dropped);
    }
}

/// A schedule is replaced. `advance_sched` asks at the start of each entry whether the new one
/// begins by the entry's end (`should_change_schedules`), and if so changes at once: that entry is
/// not carried out, and the new schedule's first one lasts from there until its own end.
fn change() {
    // The base time is at the end of a cycle, so the last entry is lost; or 64 us later, so it is
    // the first entry of one more cycle.
    replace(0, 0, 320);
    replace(64, 0, 64);
}

/// With a cycle time extension that reaches the base time the change comes one entry earlier still:
/// the last entry is lost instead of longer.
fn extension() {
    replace(64, 128, 384);
}

/// Replaces [`halves`] by others, with a base time so long after a cycle of it; the new schedule is
/// in force from so long before its base time on. In microseconds.
fn replace(after_cycle: i64, extension: i64, early: i64) {
    let extended = format!(" cycle-time-extension {}", extension * 1_000);
    let bench = two_stations(&(halves() + &extended));
    let base = next_cycle(bench.soon(), us(16_000)) + us(480_000 + after_cycle);
    bench.sleep_until(base - us(320_000));
    let line = format!(
        "qdisc replace dev DEV root taprio {} base-time {} clockid CLOCK_TAI \
         sched-entry S 2 256000 sched-entry S 1 256000{extended}",
        classes(2),
        base.as_ns()
    );
    bench.tc("a", "b", &line).unwrap();
    let start = base - us(64_000);
    let flow = |class| Talker::new("a", "b").priority(class).from(start).every(us(97)).count(1_300);
    let outcome = play(&bench, &[flow(0), flow(1)]);
    check_change(&outcome.flows, base, base - us(early));
}

/// In both schedules class 1 has the first half and class 0 the second. The first new entry is in
/// force from `early` on.
fn check_change(flows: &[Flow], base: Instant<Tai>, early: Instant<Tai>) {
    let old = |from, to| Gates::new(us(640)).open(us(from), us(to));
    let new = |from, to| Gates::new(us(512)).based(base).open(us(from), us(to));
    let cases = [(old(320, 640), new(256, 512)), (old(0, 320), new(0, 256))];
    for (class, (flow, (old, new))) in flows.iter().zip(cases).enumerate() {
        flow.complete();
        let by_arrival = |from: Instant<Tai>, to: Instant<Tai>| Flow {
            name: flow.name.clone(),
            fates: flow
                .fates
                .iter()
                .filter(|fate| (from..to).contains(&fate.arrived()))
                .copied()
                .collect(),
        };
        let far = base + Span::from_secs(10);
        let before = by_arrival(base - Span::from_secs(10), early);
        let between = by_arrival(early, base);
        let after = by_arrival(base, far);
        obeys(&before, &old, TIMER_ON_GRID);
        obeys(&after, &new, TIMER_ON_GRID);
        // The first new entry is for class 1.
        assert_eq!(between.fates.is_empty(), class == 0, "{between:?}");
        between.each("time since planned or since the change", TIMER, |fate| {
            (fate.arrived() - fate.planned.max(early)).as_ns()
        });
    }
}

/// A frame with a launch time is kept only when that lies in an open gate
/// (`taprio_enqueue_one`, `is_valid_interval`), and then sent when the gate is open, whatever its
/// launch time is.
fn launch_times() {
    let bench = two_stations(&halves());
    let early = shifted(-32_000, &TIMER_ON_GRID);
    for (class, offset, passes) in
        [(1, 160, true), (1, 480, false), (0, 160, false), (0, 480, true)]
    {
        let start = next_cycle(bench.soon(), us(640)) + us(offset);
        let flow = Talker::new("a", "b").priority(class).from(start).every(us(640)).count(50);
        let outcome = play(&bench, &[flow.launch(us(32))]);
        if passes {
            outcome.flow(0).late_by(early.clone());
        } else {
            outcome.flow(0).silent();
        }
    }
    assert_eq!(bench.counted("a", "b", "taprio").unwrap().dropped, 100);
}

/// To take a new schedule the running one forgets its entry (`setup_first_end_time`), and without
/// an entry every gate is open, until the end of the forgotten one.
fn opened_by_change() {
    let bench = two_stations(&format!(
        "root taprio {} base-time 0 clockid CLOCK_TAI sched-entry S 2 32000000 \
         sched-entry S 1 32000000",
        classes(2)
    ));
    let start = next_cycle(bench.soon(), us(64_000));
    let line = format!(
        "qdisc replace dev DEV root taprio {} base-time {} clockid CLOCK_TAI \
         sched-entry S 2 32000000 sched-entry S 1 32000000",
        classes(2),
        (start + us(640_000)).as_ns()
    );
    // Class 0 is closed for 32 ms; after 16 ms, while two of its frames wait, the change comes.
    let flow = Talker::new("a", "b").priority(0).from(start).every(us(8_000)).count(8);
    let outcome = std::thread::scope(|scope| {
        let change = scope.spawn(|| {
            bench.sleep_until(start + us(12_000));
            bench.tc("a", "b", &line).unwrap();
        });
        let outcome = play(&bench, &[flow]);
        change.join().unwrap();
        outcome
    });
    let waited: Vec<_> =
        outcome.flow(0).complete().fates.iter().map(|f| f.lateness().as_ns() / 1_000).collect();
    // The first two leave with the third, whose coming has the discipline look at its queues.
    assert_eq!(waited, [16_000, 8_000, 0, 0, 0, 0, 0, 0]);
}

/// `taprio_reset` cancels the timer of the gates, and only a new schedule starts it again. It is
/// called when a discipline is put below, and when the interface loses its backend or goes down.
fn stopped() {
    let gates = format!(
        "root handle 100: taprio {} base-time 0 clockid CLOCK_TAI sched-entry S 2 320000 \
         sched-entry S 1 320000",
        classes(2)
    );
    let bench = two_stations(&gates);
    // Every frame of class 0 is there when its gate is closed, if the gates are moving.
    let waits = |what: &str| {
        let start = next_cycle(bench.soon(), us(640)) + us(32);
        let flow = Talker::new("a", "b").priority(0).from(start).every(us(640)).count(50);
        let outcome = play(&bench, &[flow]);
        let fates = &outcome.flow(0).fates;
        let late = fates.iter().filter(|fate| fate.received.is_some());
        let waited = late.filter(|fate| fate.lateness() >= us(287)).count();
        println!("{what}: {waited} of 50 waited for their gate");
        waited
    };
    assert_eq!(waits("at first"), 50);
    bench.tc("a", "b", "qdisc add dev DEV parent 100:1 pfifo limit 100").unwrap();
    assert!(waits("with a discipline below") < 50);
    bench.tc("a", "b", &format!("qdisc replace dev DEV {gates}")).unwrap();
    assert_eq!(waits("with the schedule given again"), 50);
    for state in ["down", "up"] {
        let mut link = std::process::Command::new("ip");
        link.args(["link", "set", &bench.interface("b", "a"), state]);
        assert!(bench.spawn("b", link).unwrap().wait().unwrap().success());
        bench.sleep_until(bench.soon());
    }
    assert!(waits("after the other end was down and up") < 50);
}

/// All frames of a window leave in one instant, but no more of them than the interface could carry
/// in its time (`taprio_set_budgets`): 320 us at 10 Gbit/s are 400 000 bytes.
fn budget() {
    let bench = two_stations(&halves());
    let start = next_cycle(bench.soon(), us(640)) + us(400);
    let burst = Talker::new("a", "b").priority(1).length(1_000).from(start).burst(900);
    let outcome = play(&bench, &[burst]);
    outcome.flow(0).complete().each("error of the window", TIMER_ON_GRID, |fate| {
        let window = i64::from(fate.sequence / 400);
        fate.lateness().as_ns() - 240_000 - window * 640_000
    });
}
