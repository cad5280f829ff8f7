// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Situations with a name, one test each, at the scale of a real segment: 100 Mbit/s, where a frame
//! of 60 bytes takes 6720 ns and one of 1514 bytes takes 123 040 ns.

use timewire_base::{BitsPerSecond, CyclicWindows, FrameLen, Instant, Priority, Span, Tai, Window};
use timewire_tsn::{Actions, Config, DropReason, Event, Machine, Mode, Next, QueueIndex, QueueSet};

const SHORT: u32 = 60;
const SHORT_NS: i64 = 6_720;
const LONG: u32 = 1_514;
const LONG_NS: i64 = 123_040;
const US: i64 = 1_000;
/// Slot and cycle of the first station of four.
const SLOT: i64 = 220 * US;
const CYCLE: i64 = 1_040 * US;

fn config() -> Config {
    Config {
        rate: BitsPerSecond::new(100_000_000).unwrap(),
        margin: Span::ZERO,
        ahead: Span::ZERO,
        mode: Mode::Tdm,
        best_effort_share: Span::ZERO,
        queue_capacity: 64,
    }
}

fn at(ns: i64) -> Instant<Tai> {
    Instant::from_ns(ns)
}

fn windows(base: i64, cycle: i64, list: &[(i64, i64)]) -> Option<CyclicWindows> {
    let list = list.iter().map(|&(offset, length)| Window {
        offset: Span::from_ns(offset),
        length: Span::from_ns(length),
    });
    Some(CyclicWindows::new(at(base), Span::from_ns(cycle), list.collect()).unwrap())
}

fn slot() -> Option<CyclicWindows> {
    windows(0, CYCLE, &[(0, SLOT)])
}

fn set(priorities: &[u64]) -> QueueSet {
    let priorities: Vec<_> = priorities.iter().map(|&p| Priority::new(p).unwrap()).collect();
    QueueSet::new(&priorities).unwrap()
}

fn queue(priority: u64) -> QueueIndex {
    set(&[priority]).queue_for(Priority::new(priority).ok())
}

/// A machine with queues 1, 2 and 3, and the clock synchronised at an instant before everything.
fn machine(config: Config, windows: Option<CyclicWindows>) -> Machine<u32> {
    let mut machine = Machine::new(config, windows, set(&[1, 2, 3])).unwrap();
    let _ = machine.on(at(-10 * CYCLE), Event::ClockSync(true));
    machine
}

fn arrive(frame: u32, bytes: u32, queue: QueueIndex) -> Event<u32> {
    Event::Arrive { frame, length: FrameLen::new(bytes).unwrap(), queue }
}

fn sends(actions: &Actions<u32>) -> (Option<u32>, Next) {
    assert_eq!(actions.dropped, None);
    (actions.transmit, actions.next)
}

/// Follows the machine's own requests until an instant; gives what left when.
fn follow(machine: &mut Machine<u32>, from: i64, until: i64) -> Vec<(i64, u32)> {
    let mut sent = Vec::new();
    let mut now = from;
    while now <= until {
        let actions = machine.on(at(now), Event::Tick);
        sent.extend(actions.transmit.map(|frame| (now, frame)));
        match actions.next {
            Next::Now => {}
            Next::At(next) => now = next.as_ns(),
            Next::WhenFrameArrives => break,
        }
    }
    sent
}

#[test]
fn t0_a_frame_leaves_at_once_inside_its_window_and_waits_outside() {
    let mut m = machine(config(), slot());
    assert_eq!(sends(&m.on(at(0), arrive(1, SHORT, queue(1)))), (Some(1), Next::WhenFrameArrives));
    let outside = m.on(at(SLOT), arrive(2, SHORT, queue(1)));
    assert_eq!(sends(&outside), (None, Next::At(at(CYCLE))));
    assert_eq!(follow(&mut m, SLOT, 3 * CYCLE), [(CYCLE, 2)]);
}

#[test]
fn t0_the_last_start_that_fits_is_exact() {
    let with_margin = Config { margin: Span::from_ns(500), ..config() };
    for (config, last) in [(config(), SLOT - LONG_NS), (with_margin, SLOT - LONG_NS - 500)] {
        let mut m = machine(config, slot());
        let fits = m.on(at(last), arrive(1, LONG, queue(1)));
        assert_eq!(fits.transmit, Some(1));
        let mut m = machine(config, slot());
        let late = m.on(at(last + 1), arrive(1, LONG, queue(1)));
        assert_eq!(sends(&late), (None, Next::At(at(CYCLE))));
    }
}

#[test]
fn t0_frames_are_paced_at_the_rate_of_the_link() {
    let mut m = machine(config(), slot());
    for frame in 0..3 {
        let _ = m.on(at(0), arrive(frame, SHORT, queue(1)));
    }
    let expected = [(SHORT_NS, 1), (2 * SHORT_NS, 2)];
    assert_eq!(follow(&mut m, 0, CYCLE), expected);
}

#[test]
fn t0_ahead_hands_over_frames_early_but_not_more_than_fit() {
    let mut m = machine(Config { ahead: Span::from_us(200), ..config() }, slot());
    for frame in 0..3 {
        let _ = m.on(at(0), arrive(frame, LONG, queue(1)));
    }
    // The second would end after the window; it starts the next one instead.
    assert_eq!(follow(&mut m, 0, CYCLE), [(CYCLE, 1)]);
    let mut m = machine(Config { ahead: Span::from_ns(2 * SHORT_NS), ..config() }, slot());
    let sent: Vec<_> =
        (0..4).map(|frame| m.on(at(0), arrive(frame, SHORT, queue(1))).transmit).collect();
    assert_eq!(sent, [Some(0), Some(1), Some(2), None]);
    assert_eq!(m.line_free_at(), at(3 * SHORT_NS));
    assert_eq!(follow(&mut m, 0, CYCLE), [(SHORT_NS, 3)]);
}

#[test]
fn t0_the_most_urgent_leaves_first_and_order_is_kept() {
    let mut m = machine(config(), slot());
    let frames =
        [(10, QueueIndex::DEFAULT), (20, queue(3)), (30, queue(1)), (31, queue(1)), (21, queue(3))];
    for (frame, queue) in frames {
        let _ = m.on(at(-US), arrive(frame, SHORT, queue));
    }
    let sent: Vec<_> = follow(&mut m, -US, CYCLE).iter().map(|&(_, frame)| frame).collect();
    assert_eq!(sent, [30, 31, 20, 21, 10]);
}

#[test]
fn t0_a_shorter_frame_uses_what_a_more_urgent_one_cannot() {
    let mut m = machine(config(), slot());
    let now = SLOT - LONG_NS + 1;
    assert_eq!(m.on(at(now), arrive(1, LONG, queue(1))).transmit, None);
    assert_eq!(m.on(at(now), arrive(2, LONG, queue(2))).transmit, None);
    assert_eq!(m.on(at(now), arrive(3, SHORT, queue(3))).transmit, Some(3));
    assert_eq!(follow(&mut m, now, CYCLE + LONG_NS), [(CYCLE, 1)]);
}

#[test]
fn t0_windows_that_touch_are_not_one() {
    let mut m = machine(config(), windows(0, CYCLE, &[(0, LONG_NS), (LONG_NS, LONG_NS)]));
    let _ = m.on(at(1), arrive(1, LONG, queue(1)));
    assert_eq!(follow(&mut m, 1, CYCLE), [(LONG_NS, 1)]);
}

#[test]
fn t0_without_windows_frames_leave_at_once_in_order_of_priority() {
    let mut m: Machine<u32> = Machine::new(config(), None, set(&[1])).unwrap();
    assert_eq!(m.on(at(5), arrive(1, LONG, QueueIndex::DEFAULT)).transmit, Some(1));
    for (frame, queue) in [(2, QueueIndex::DEFAULT), (3, queue(1))] {
        let _ = m.on(at(6), arrive(frame, 9_000, queue));
    }
    assert_eq!(follow(&mut m, 7, CYCLE)[..1], [(5 + LONG_NS, 3)]);
}

#[test]
fn t0_a_frame_longer_than_every_window_is_dropped_and_counted() {
    let mut m = machine(config(), windows(0, CYCLE, &[(0, SLOT), (500 * US, LONG_NS - 1)]));
    let long = m.on(at(500 * US), arrive(1, LONG, queue(1)));
    assert_eq!(sends(&long), (None, Next::At(at(CYCLE))));
    let longer = m.on(at(500 * US), arrive(2, 3_000, queue(1)));
    assert_eq!(longer.dropped, Some((2, DropReason::Oversize)));
    assert_eq!(m.counters().queue(queue(1)).dropped_oversize, 1);
    let mut never = machine(config(), windows(0, CYCLE, &[]));
    assert!(never.on(at(0), arrive(1, SHORT, queue(1))).dropped.is_some());
}

#[test]
fn t0_frames_that_no_longer_fit_after_a_change_do_not_block_their_queue() {
    let mut m = machine(config(), slot());
    for frame in [1, 2] {
        let _ = m.on(at(SLOT), arrive(frame, LONG, queue(1)));
    }
    let _ = m.on(at(SLOT), arrive(3, SHORT, queue(1)));
    let windows = windows(0, CYCLE, &[(0, 50 * US)]);
    let _ = m.on(at(SLOT), Event::SetWindows { windows, not_before: at(0) });
    assert_eq!(follow(&mut m, SLOT, 2 * CYCLE), [(CYCLE, 3)]);
    let counters = m.counters().queue(queue(1));
    assert_eq!((counters.released, counters.dropped_oversize, counters.depth), (1, 2, 0));
}

#[test]
fn t0_a_frame_is_not_judged_by_windows_that_end_now() {
    let mut m = machine(config(), None);
    for frame in [1, 2] {
        let _ = m.on(at(0), arrive(frame, LONG, queue(1)));
    }
    let short = windows(CYCLE, CYCLE, &[(0, 50 * US)]);
    let _ = m.on(at(0), Event::SetWindows { windows: short.clone(), not_before: at(1) });
    // Both changes meet at one instant, and the second takes a call of its own.
    let both = m.on(at(CYCLE), Event::SetWindows { windows: slot(), not_before: at(0) });
    assert_eq!(sends(&both), (None, Next::Now));
    let after = m.on(at(CYCLE), Event::Tick);
    assert_eq!((after.transmit, after.retired), (Some(2), short));
}

#[test]
fn t0_a_full_queue_drops_the_newcomer() {
    let mut m = machine(Config { queue_capacity: 2, ..config() }, slot());
    for frame in 0..2 {
        assert_eq!(m.on(at(SLOT), arrive(frame, SHORT, queue(1))).dropped, None);
    }
    let full = m.on(at(SLOT), arrive(2, SHORT, queue(1)));
    assert_eq!(full.dropped, Some((2, DropReason::Full)));
    assert_eq!(m.on(at(SLOT), arrive(3, SHORT, queue(2))).dropped, None);
    let counters = m.counters().queue(queue(1));
    assert_eq!((counters.arrived, counters.dropped_full, counters.high_water), (3, 1, 2));
    assert_eq!(m.counters().total().depth, 3);
}

#[test]
fn t0_a_change_of_windows_is_hitless() {
    let mut m = machine(config(), slot());
    let new = windows(300 * US, 500 * US, &[(100 * US, 200 * US)]);
    // The new cycle starts at ..., 300, 800, 1300 us.
    let not_before = at(1_000 * US);
    let actions = m.on(at(0), Event::SetWindows { windows: new.clone(), not_before });
    assert_eq!(actions.next, Next::At(at(1_300 * US)));
    assert_eq!(m.pending().unwrap().config_change_time, at(1_300 * US));
    assert_eq!(m.pending().unwrap().windows, new);
    // The old windows hold until then: the slot of the second cycle ends at 1260 us.
    assert_eq!(m.on(at(1_050 * US), arrive(1, SHORT, queue(1))).transmit, Some(1));
    assert_eq!(m.windows(), slot().as_ref());
    let after = m.on(at(1_300 * US), Event::Tick);
    assert_eq!(after.retired, slot());
    assert_eq!((m.windows(), m.pending()), (new.as_ref(), None));
    assert_eq!(m.counters().schedule_changes, 1);
    let _ = m.on(at(1_300 * US), arrive(2, SHORT, queue(1)));
    assert_eq!(follow(&mut m, 1_300 * US, 2_000 * US), [(1_400 * US, 2)]);
}

#[test]
fn t0_no_frame_is_on_the_line_across_a_change() {
    let margin = Config { margin: Span::from_ns(400), ..config() };
    let new = || windows(100 * US, CYCLE, &[(0, SLOT)]);
    // Released before the change was asked for: the change waits for a whole cycle.
    let mut m = machine(margin, slot());
    assert_eq!(m.on(at(0), arrive(1, LONG, queue(1))).transmit, Some(1));
    let _ = m.on(at(US), Event::SetWindows { windows: new(), not_before: at(0) });
    assert_eq!(m.pending().unwrap().config_change_time, at(100 * US + CYCLE));
    // Asked for before: the frame waits, though the old window would have taken it, to the
    // nanosecond.
    let last = 100 * US - SHORT_NS - 400;
    for (now, expected) in [(last, Some(1)), (last + 1, None)] {
        let mut m = machine(margin, slot());
        let _ = m.on(at(0), Event::SetWindows { windows: new(), not_before: at(0) });
        let actions = m.on(at(now), arrive(1, SHORT, queue(1)));
        assert_eq!(actions.transmit, expected);
        assert_eq!(actions.next, Next::At(at(100 * US)));
    }
}

#[test]
fn t0_a_later_change_replaces_a_pending_one_and_hands_it_back() {
    let mut m = machine(config(), slot());
    let second = windows(0, 2 * CYCLE, &[(0, SLOT)]);
    let not_before = at(5 * CYCLE);
    let _ = m.on(at(0), Event::SetWindows { windows: second.clone(), not_before });
    let actions = m.on(at(0), Event::SetWindows { windows: None, not_before: at(1) });
    assert_eq!(actions.retired, second);
    // No windows from the next cycle of the present ones on.
    assert_eq!(actions.next, Next::At(at(CYCLE)));
    assert_eq!(m.on(at(CYCLE), Event::Tick).retired, slot());
    assert_eq!(m.on(at(CYCLE + SLOT), arrive(1, SHORT, queue(1))).transmit, Some(1));
    // And back: there is no present cycle to wait for, only the new one.
    let back = m.on(at(CYCLE + SLOT), Event::SetWindows { windows: slot(), not_before: at(0) });
    assert_eq!(back.next, Next::At(at(2 * CYCLE)));
}

#[test]
fn t0_without_synchronisation_nothing_leaves_and_it_is_counted() {
    let mut m: Machine<u32> = Machine::new(config(), slot(), set(&[1])).unwrap();
    for (frame, queue) in [(1, queue(1)), (2, QueueIndex::DEFAULT)] {
        let held = m.on(at(0), arrive(frame, SHORT, queue));
        assert_eq!(sends(&held), (None, Next::WhenFrameArrives));
    }
    assert_eq!(m.counters().held_unsynchronised, 2);
    assert_eq!(m.on(at(1), Event::ClockSync(true)).transmit, Some(1));
    assert!(m.is_synchronised());
    for _ in 0..2 {
        assert_eq!(m.on(at(2), Event::ClockSync(false)).transmit, None);
    }
    assert_eq!(m.counters().held_unsynchronised, 3);
    assert_eq!(m.on(at(CYCLE), Event::Tick).next, Next::WhenFrameArrives);
    assert_eq!(m.counters().missed_windows, 0);
}

#[test]
fn t0_hybrid_frees_best_effort_while_there_is_no_real_time_traffic() {
    let mode = Mode::Hybrid { idle_after: Span::from_us(100) };
    let mut m = machine(Config { mode, ..config() }, slot());
    let outside = 300 * US;
    assert_eq!(m.on(at(outside), arrive(1, SHORT, QueueIndex::DEFAULT)).transmit, Some(1));
    // Somebody else's real-time frame: best effort waits until the segment is idle again.
    let _ = m.on(at(outside + 10 * US), Event::RealTimeSeen);
    let held = m.on(at(outside + 20 * US), arrive(2, SHORT, QueueIndex::DEFAULT));
    assert_eq!(sends(&held), (None, Next::At(at(outside + 110 * US))));
    assert_eq!(m.on(at(outside + 110 * US), Event::Tick).transmit, Some(2));
    // A prioritised frame waits for its window, and best effort with it.
    let _ = m.on(at(outside + 200 * US), arrive(3, SHORT, queue(1)));
    let _ = m.on(at(outside + 200 * US), arrive(4, SHORT, QueueIndex::DEFAULT));
    let sent = follow(&mut m, outside + 200 * US, 2 * CYCLE);
    assert_eq!(sent, [(CYCLE, 3), (CYCLE + SHORT_NS, 4)]);
}

#[test]
fn t0_hybrid_without_synchronisation_keeps_only_real_time_waiting() {
    let mode = Mode::Hybrid { idle_after: Span::from_us(100) };
    let mut m = machine(Config { mode, ..config() }, slot());
    let _ = m.on(at(0), Event::ClockSync(false));
    assert_eq!(m.on(at(0), arrive(1, SHORT, queue(1))).transmit, None);
    let held = m.on(at(0), arrive(2, SHORT, QueueIndex::DEFAULT));
    assert_eq!(sends(&held), (None, Next::At(at(100 * US))));
    assert_eq!(follow(&mut m, 0, 2 * CYCLE), [(100 * US, 2)]);
    assert_eq!(m.counters().held_unsynchronised, 2);
}

#[test]
fn t0_hybrid_carries_long_best_effort_frames_only_while_idle() {
    let mode = Mode::Hybrid { idle_after: Span::from_us(100) };
    let mut m = machine(Config { mode, ..config() }, windows(0, CYCLE, &[(0, 50 * US)]));
    assert_eq!(m.on(at(300 * US), arrive(1, LONG, QueueIndex::DEFAULT)).transmit, Some(1));
    // Waits for the line while idle; then its turn comes while bound.
    assert_eq!(m.on(at(300 * US), arrive(2, LONG, QueueIndex::DEFAULT)).dropped, None);
    let _ = m.on(at(400 * US), Event::RealTimeSeen);
    let turn = m.on(at(300 * US + LONG_NS), Event::Tick);
    assert_eq!(turn.dropped, Some((2, DropReason::Oversize)));
}

#[test]
fn t0_a_machine_that_has_just_started_listens_first() {
    let mode = Mode::Hybrid { idle_after: Span::from_us(100) };
    let mut m: Machine<u32> = Machine::new(Config { mode, ..config() }, slot(), set(&[])).unwrap();
    let first = m.on(at(300 * US), arrive(1, SHORT, QueueIndex::DEFAULT));
    assert_eq!(sends(&first), (None, Next::At(at(400 * US))));
}

#[test]
fn t0_best_effort_keeps_its_share_while_it_waits() {
    let share = Config { best_effort_share: Span::from_us(130), ..config() };
    let order = |config: Config, best_effort: u32| {
        let mut m = machine(config, slot());
        for frame in 0..40 {
            let _ = m.on(at(-US), arrive(frame, SHORT, queue(1)));
        }
        let _ = m.on(at(-US), arrive(100, best_effort, QueueIndex::DEFAULT));
        follow(&mut m, -US, SLOT).iter().position(|&(_, frame)| frame == 100)
    };
    // 90 us for prioritised frames are 13 of them; then the share, then the rest.
    assert_eq!(order(share, LONG), Some(13));
    assert_eq!(order(share, SHORT), Some(13));
    // Without a share it comes when the window is nearly over, or not at all.
    assert_eq!(order(config(), LONG), None);
    // A share of more than the window leaves prioritised frames one.
    let greedy = Config { best_effort_share: Span::from_us(500), ..config() };
    assert_eq!(order(greedy, LONG), Some(1));
    // A share too short for the frame holds nothing back.
    let short = Config { best_effort_share: Span::from_us(20), ..config() };
    assert_eq!(order(short, LONG), None);
}

#[test]
fn t0_queues_are_replaced_without_loss() {
    let mut m = machine(config(), slot());
    for (frame, queue) in [(1, queue(3)), (2, queue(1)), (3, QueueIndex::DEFAULT)] {
        let _ = m.on(at(-US), arrive(frame, SHORT, queue));
    }
    m.replace_queues(set(&[1, 7]));
    assert_eq!(m.queues(), set(&[1, 7]));
    // Queue 3 is gone and takes no more; what waits in it keeps its place.
    for (frame, queue) in [(4, queue(3)), (5, queue(7)), (6, queue(1))] {
        let _ = m.on(at(-US), arrive(frame, SHORT, queue));
    }
    let sent: Vec<_> = follow(&mut m, -US, CYCLE).iter().map(|&(_, frame)| frame).collect();
    assert_eq!(sent, [2, 6, 1, 5, 3, 4]);
    assert_eq!(m.counters().queue(queue(3)).arrived, 1);
    assert_eq!(m.counters().queue(QueueIndex::DEFAULT).arrived, 2);
}

#[test]
fn t0_late_calls_cost_windows_and_are_counted() {
    let mut m = machine(config(), windows(0, CYCLE, &[(0, SLOT), (500 * US, 3 * US)]));
    let wake = m.on(at(SLOT), arrive(1, SHORT, queue(1))).next;
    // Called in time for the window that is too short, and one nanosecond too late for the next.
    assert_eq!(wake, Next::At(at(500 * US)));
    let _ = m.on(at(500 * US), Event::Tick);
    assert_eq!(m.on(at(CYCLE + SLOT - SHORT_NS + 1), Event::Tick).transmit, None);
    assert_eq!(m.counters().missed_windows, 1);
    // Just in time for the last chance of the fourth: two slept through.
    let last = 4 * CYCLE + SLOT - SHORT_NS;
    assert_eq!(m.on(at(last), Event::Tick).transmit, Some(1));
    assert_eq!(m.counters().missed_windows, 3);
    // Nobody waits, nothing is missed.
    let _ = m.on(at(9 * CYCLE), Event::Tick);
    assert_eq!(m.counters().missed_windows, 3);
}

#[test]
fn t0_a_clock_that_steps_back_keeps_what_is_on_the_line() {
    let mut m = machine(config(), slot());
    assert_eq!(m.on(at(5 * CYCLE), arrive(1, LONG, queue(1))).transmit, Some(1));
    // The clock is set back by some cycles while 100 us of that frame are left.
    let now = 2 * CYCLE + 10 * US;
    let _ = m.on(at(5 * CYCLE + LONG_NS - 100 * US), Event::Tick);
    let stepped = m.on(at(now), arrive(2, SHORT, queue(1)));
    assert_eq!(sends(&stepped), (None, Next::At(at(now + 100 * US))));
    assert_eq!(m.counters().clock_steps_back, 1);
    assert_eq!(follow(&mut m, now + 1, 3 * CYCLE), [(now + 100 * US, 2)]);
    // One bogus reading far in the future does not wedge it either.
    let _ = m.on(at(i64::MAX), Event::Tick);
    assert_eq!(m.on(at(3 * CYCLE), arrive(3, SHORT, queue(1))).transmit, Some(3));
}

#[test]
fn t0_impossible_configurations_are_refused() {
    let error =
        |config: Config| Machine::<u32>::new(config, None, set(&[])).err().unwrap().to_string();
    assert_eq!(
        error(Config { margin: Span::from_ns(-1), ..config() }),
        "a margin of -1ns cannot be: it takes 0ns to 3600s"
    );
    assert_eq!(
        error(Config { ahead: Span::from_secs(3_601), ..config() }),
        "an advance of 3601s cannot be: it takes 0ns to 3600s"
    );
    for capacity in [0, 65_537] {
        assert_eq!(
            error(Config { queue_capacity: capacity, ..config() }),
            format!("queues of {capacity} frames cannot be: a queue takes 1 to 65536 frames")
        );
    }
    let mode = Mode::Hybrid { idle_after: Span::from_ns(-5) };
    assert!(error(Config { mode, ..config() }).starts_with("an idle time of -5ns"));
    assert!(
        error(Config { best_effort_share: Span::MAX, ..config() }).starts_with("a best-effort")
    );
}
