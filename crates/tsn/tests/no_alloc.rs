// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once built, the machine and the classifier neither allocate nor free: not with full queues, not
//! when windows or queues are replaced.

use timewire_base::{
    BitsPerSecond, CyclicWindows, FrameLen, Instant, Port, Priority, Span, Window,
};
use timewire_tsn::{Config, Event, Machine, Mode, Next, PortRules, QueueIndex, QueueSet};

use crate::counting::calls_during;

#[test]
fn t0_the_count_counts() {
    assert_eq!(calls_during(|| drop(std::hint::black_box(Box::new(1)))), 2);
}

#[test]
fn t0_a_running_machine_neither_allocates_nor_frees() {
    let windows = |turn: i64| {
        let window = Window { offset: Span::from_us(turn % 4 * 260), length: Span::from_us(220) };
        CyclicWindows::new(Instant::from_ns(0), Span::from_us(1_040), vec![window]).unwrap()
    };
    let config = Config {
        rate: BitsPerSecond::new(100_000_000).unwrap(),
        margin: Span::from_us(2),
        ahead: Span::from_us(30),
        mode: Mode::Hybrid { idle_after: Span::from_ms(2) },
        best_effort_share: Span::from_us(20),
        queue_capacity: 32,
    };
    let all: Vec<_> = (1..=32).map(|n| Priority::new(n).unwrap()).collect();
    let all = QueueSet::new(&all).unwrap();
    let few = QueueSet::new(&[Priority::new(3).unwrap()]).unwrap();
    let mut machine = Machine::new(config, Some(windows(0)), all).unwrap();
    // The caller makes the windows, and keeps the old ones for another thread to free.
    let mut schedules: Vec<_> = (1..200).map(windows).collect();
    let mut retired = Vec::with_capacity(400);
    let changes = schedules.len() as u64;

    let calls = calls_during(|| {
        let mut now = Instant::from_ns(0);
        let _ = machine.on(now, Event::ClockSync(true));
        for n in 0_u64..200_000 {
            let priority = Priority::new(n * 7 % 40 + 1).ok();
            let event = match n % 1_000 {
                500 => match schedules.pop() {
                    Some(windows) => Event::SetWindows { windows: Some(windows), not_before: now },
                    None => Event::SetWindows { windows: None, not_before: now },
                },
                600 => Event::ClockSync(n % 3 == 0),
                700 => Event::RealTimeSeen,
                _ => Event::Arrive {
                    frame: n,
                    length: FrameLen::new(60 + u32::try_from(n % 3_000).unwrap()).unwrap(),
                    queue: all.queue_for(priority),
                },
            };
            if n % 900 == 0 {
                machine.replace_queues(if n % 1_800 == 0 { few } else { all });
            }
            let mut actions = machine.on(now, event);
            for _ in 0..3 {
                retired.extend(actions.retired.take());
                if let Next::At(at) = actions.next
                    && n % 4 == 0
                {
                    now = at;
                }
                actions = machine.on(now, Event::Tick);
            }
            retired.extend(actions.retired.take());
        }
    });
    assert_eq!(calls, 0);
    let total = machine.counters().total();
    assert!(total.released > 10_000 && total.dropped_full > 1_000 && total.dropped_oversize > 100);
    assert!(machine.counters().schedule_changes > 10 && retired.len() as u64 >= changes - 1);
    assert!(machine.counters().queue(QueueIndex::DEFAULT).high_water == 32);
}

#[test]
fn t0_classifying_does_not_allocate() {
    let rules: Vec<_> = (1..=64)
        .map(|n| (Port::new(n * 100).unwrap(), Priority::new(n % 32 + 1).unwrap()))
        .collect();
    let rules = PortRules::new(32, &rules).unwrap();
    let mut frame = [0_u8; 60];
    frame[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0x00, 0, 46]);
    frame[23] = 17;
    let mut found = 0;
    let calls = calls_during(|| {
        for port in 0_u16..10_000 {
            frame[36..38].copy_from_slice(&port.to_be_bytes());
            found += u32::from(rules.classify(&frame).is_some());
        }
    });
    assert_eq!((calls, found), (0, 64));
}
