// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guard against a second one that keeps all it ever heard and decides anew each time.

use proptest::prelude::*;
use timewire_base::{Instant, Mono, Span};
use timewire_tsn::{Change, GuardLimits, Heard, Loss, MacError, SyncGuard};

const LIMITS: GuardLimits =
    GuardLimits { offset: Span::from_ns(100), good_samples: 3, silence: Span::from_ns(50) };

fn at(ns: i64) -> Instant<Mono> {
    Instant::from_ns(ns)
}

fn off(ns: i64) -> Heard {
    Heard::Offset(Span::from_ns(ns))
}

#[test]
fn t0_it_opens_after_good_samples_and_closes_at_the_first_bad_one() {
    let mut guard = SyncGuard::new(at(0), LIMITS).unwrap();
    assert_eq!(guard.loss(), Some(Loss::Start));
    for (now, offset) in [(10, 50), (20, -50)] {
        assert_eq!(guard.on(at(now), off(offset)).open_until, None);
    }
    let actions = guard.on(at(30), off(0));
    assert_eq!(actions.change, Some(Change::Locked { after: Span::from_ns(30) }));
    assert_eq!(actions.open_until, Some(at(80)));
    // Between half and the whole of the bound it stays open, and does not open.
    assert_eq!(guard.on(at(40), off(-100)).open_until, Some(at(90)));
    let actions = guard.on(at(50), off(101));
    assert_eq!(actions.change, Some(Change::Lost(Loss::Offset(Span::from_ns(101)))));
    assert_eq!((actions.open_until, guard.losses()), (None, 1));
    for now in [60, 70] {
        assert_eq!(guard.on(at(now), off(0)).open_until, None);
    }
    assert_eq!(guard.on(at(80), off(51)).change, None, "one that is only half good starts over");
    assert_eq!(guard.good_samples(), Some((0, 3)));
}

#[test]
fn t0_silence_and_word_of_a_loss_close_at_once() {
    let mut guard = SyncGuard::new(at(0), LIMITS).unwrap();
    let lock = |guard: &mut SyncGuard, now: i64| {
        for i in 0..3 {
            let _ = guard.on(at(now + i), off(1));
        }
        assert_eq!(guard.loss(), None);
    };
    lock(&mut guard, 0);
    assert_eq!(guard.on(at(52), Heard::Nothing).change, None);
    let silent = Loss::Silence(Span::from_ns(51));
    assert_eq!(guard.on(at(53), Heard::Nothing).change, Some(Change::Lost(silent)));
    lock(&mut guard, 60);
    let lost = guard.on(at(63), Heard::Lost(Loss::DaemonEnded));
    assert_eq!(lost.change, Some(Change::Lost(Loss::DaemonEnded)));
    assert_eq!((guard.losses(), guard.since()), (2, at(63)));
    // Nobody's word opens anything.
    assert_eq!(guard.on(at(64), Heard::Nothing).open_until, None);
}

#[test]
fn t0_what_cannot_guard_is_refused() {
    for span in [Span::ZERO, Span::from_ns(-1), Span::from_secs(3_601)] {
        let offset = GuardLimits { offset: span, ..LIMITS };
        let silence = GuardLimits { silence: span, ..LIMITS };
        for limits in [offset, silence] {
            assert!(matches!(SyncGuard::new(at(0), limits), Err(MacError::Span { .. })));
        }
    }
    let none = GuardLimits { good_samples: 0, ..LIMITS };
    assert_eq!(SyncGuard::new(at(0), none).err(), Some(MacError::NoSamples));
}

/// Everything that was heard, with its time.
#[derive(Default)]
struct History(Vec<(i64, Heard)>);

impl History {
    /// Whether slots may be open right after the last entry, from the definition alone: there is a
    /// run of good samples without anything bad in it, and nothing bad since.
    fn is_open(&self, limits: GuardLimits) -> bool {
        let (mut open, mut good, mut last) = (false, 0, None::<i64>);
        for &(now, heard) in &self.0 {
            let mut closes = false;
            if last.is_some_and(|last| now - last > limits.silence.as_ns()) {
                closes = open;
                (open, good, last) = (false, 0, None);
            }
            match heard {
                Heard::Nothing => {}
                Heard::Lost(_) => (open, good, last) = (false, 0, None),
                Heard::Offset(offset) => {
                    let off = i128::from(offset.as_ns()).abs();
                    let bound = i128::from(limits.offset.as_ns());
                    if off > bound {
                        (open, good, last) = (false, 0, None);
                        continue;
                    }
                    last = Some(now);
                    good = if off <= bound / 2 { good + 1 } else { 0 };
                    open |= good >= limits.good_samples && !closes;
                }
            }
        }
        open
    }
}

fn heard() -> impl Strategy<Value = Heard> {
    prop_oneof![
        6 => (-60_i64..=60).prop_map(off),
        2 => (-160_i64..=160).prop_map(off),
        1 => Just(off(i64::MIN)),
        2 => Just(Heard::Nothing),
        1 => Just(Heard::Lost(Loss::NotFollowing)),
    ]
}

proptest! {
    #[test]
    fn t0_it_is_open_exactly_when_history_says_so(
        good_samples in 1_u32..5,
        entries in proptest::collection::vec((0_i64..60, heard()), 1..120),
    ) {
        let limits = GuardLimits { good_samples, ..LIMITS };
        let mut guard = SyncGuard::new(at(0), limits).unwrap();
        let (mut history, mut now, mut was_open, mut losses) = (History::default(), 0, false, 0);
        for (wait, heard) in entries {
            now += wait;
            history.0.push((now, heard));
            let actions = guard.on(at(now), heard);
            let open = actions.open_until.is_some();
            prop_assert_eq!(open, history.is_open(limits), "{:?}", history.0);
            match actions.change {
                Some(Change::Locked { .. }) => prop_assert!(open && !was_open),
                Some(Change::Lost(_)) => { losses += 1; prop_assert!(!open && was_open) }
                None => prop_assert_eq!(open, was_open),
            }
            // Never open for longer than the silence, whoever calls or does not.
            if let Some(until) = actions.open_until {
                prop_assert!(until - at(now) <= limits.silence);
            }
            prop_assert_eq!(guard.losses(), losses);
            was_open = open;
        }
    }

    #[test]
    fn t0_a_clock_that_goes_back_stands_still(
        entries in proptest::collection::vec((-40_i64..60, heard()), 1..60),
    ) {
        let mut guard = SyncGuard::new(at(0), LIMITS).unwrap();
        let mut straight = guard.clone();
        let (mut now, mut latest) = (0, 0);
        for (step, heard) in entries {
            now += step;
            latest = latest.max(now);
            prop_assert_eq!(guard.on(at(now), heard), straight.on(at(latest), heard));
        }
    }
}
