// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns of the master of time.

use proptest::prelude::*;
use timewire_base::Span;

use super::*;

const A: Participant = Participant(0);
const B: Participant = Participant(1);
const FREE: u64 = 100_000_000;

fn clock(drift_ppb: i32) -> StationClock {
    StationClock::new(Span::ZERO, drift_ppb).unwrap()
}

/// A master whose participants have begun and wait for the given times.
fn waiting(clocks: Vec<StationClock>, times: &[u64]) -> TimeMaster {
    let mut master = TimeMaster::new(Instant::from_ns(1_000_000), clocks);
    for who in 0..times.len() {
        assert_eq!(master.on(Participant(who), Message::Start), Ok(None));
    }
    for (who, time) in times.iter().enumerate() {
        let who = Participant(who);
        assert_eq!(master.next(None), Turn::Begin(who));
        master.on(who, Message::Request(LocalNs(*time))).unwrap();
        master.on(who, Message::Wait).unwrap();
    }
    master
}

fn run(who: Participant, time: u64, free_until: u64) -> Turn {
    Turn::Run { who, time: LocalNs(time), free_until: LocalNs(free_until) }
}

#[test]
fn t0_the_earliest_runs_until_the_next() {
    let mut master = waiting(vec![clock(0), clock(0)], &[500, 300]);
    assert_eq!(master.next(None), run(B, 300, 500));
    assert_eq!(master.now(), SimTime::from_ns(300));
    master.on(B, Message::Update(LocalNs(499))).unwrap();
    assert_eq!(master.now(), SimTime::from_ns(499));
    master.on(B, Message::Request(LocalNs(500))).unwrap();
    master.on(B, Message::Wait).unwrap();
    // At the same instant, the order of the list.
    assert_eq!(master.next(None), run(A, 500, 500));
    master.on(A, Message::Update(LocalNs(500))).unwrap();
    assert!(master.on(A, Message::Update(LocalNs(501))).is_err());
    master.gone(A);
    assert_eq!(master.next(None), run(B, 500, 500 + FREE));
    master.gone(B);
    // What the network still has to do concerns nobody.
    assert_eq!(master.next(Some(SimTime::from_ns(900))), Turn::Over);
}

#[test]
fn t0_the_network_goes_first_and_narrows_freedom() {
    let mut master = waiting(vec![clock(0), clock(0)], &[500, 9_000]);
    let at = SimTime::from_ns(500);
    assert_eq!(master.next(Some(at)), Turn::Network(at));
    assert_eq!(master.next(Some(SimTime::from_ps(1_000_001))), run(A, 500, 1_001));
    assert_eq!(master.narrowed(Some(SimTime::from_ns(2_000))), None);
    assert_eq!(master.narrowed(Some(SimTime::from_ns(700))), Some((A, LocalNs(700))));
    let too_far = master.on(A, Message::Update(LocalNs(700))).unwrap_err();
    assert!(too_far.to_string().contains("beyond 700 ns"), "{too_far}");
}

#[test]
fn t0_an_interrupted_participant_runs_at_once() {
    let mut master = waiting(vec![clock(-100_000), clock(0)], &[900_000, u64::MAX / 2]);
    let at = SimTime::from_ps(500_000_123);
    assert_eq!(master.next(Some(at)), Turn::Network(at));
    let Ok(Some(read)) = master.on(A, Message::Get) else { panic!("no answer") };
    assert_eq!(read, LocalNs(499_950));
    master.on(A, Message::Request(read)).unwrap();
    assert_eq!(master.next(None), run(A, 499_950, 100_489_951));
    assert_eq!(master.now(), at);
    // What it does now happens at the instant of the interrupt, not before it.
    master.on(A, Message::Update(read)).unwrap();
    assert_eq!(master.now(), at);
}

#[test]
fn t0_who_waits_for_ever_is_asleep() {
    let mut master = waiting(vec![clock(0)], &[i64::MAX.unsigned_abs()]);
    assert_eq!(master.next(None), Turn::Asleep);
    let now = SimTime::from_ns(3);
    assert_eq!(master.next(Some(now)), Turn::Network(now));
}

#[test]
fn t0_the_wall_clock_has_the_offset() {
    let ahead = StationClock::new(Span::from_us(5), 0).unwrap();
    let mut master = waiting(vec![ahead], &[2_000]);
    assert_eq!(master.next(None), run(A, 2_000, 2_000 + FREE));
    let wall = master.on(A, Message::GetTimeOfDay);
    assert_eq!(wall, Ok(Some(LocalNs(1_000_000 + 5_000 + 2_000))));
}

#[test]
fn t0_messages_out_of_turn_are_refused() {
    let mut master = waiting(vec![clock(0)], &[10]);
    assert!(master.on(A, Message::Wait).is_err());
    assert!(master.on(A, Message::Update(LocalNs(11))).is_err());
    assert!(master.on(A, Message::Start).is_err());
    assert_eq!(master.next(None), run(A, 10, 10 + FREE));
    master.gone(A);
    assert!(master.on(A, Message::Get).is_err());
}

proptest! {
    /// Participants that sleep random times on drifting clocks, and an occasional network event:
    /// time never goes back, each is run at the very time it asked for, and never late.
    #[test]
    fn t0_time_goes_forward_for_everyone(
        drifts in proptest::collection::vec(-500_000..=500_000_i32, 1..5),
        steps in proptest::collection::vec((1..5_000_000_u64, 0..3_000_000_000_u64), 1..200),
    ) {
        let clocks: Vec<_> = drifts.iter().map(|drift| clock(*drift)).collect();
        let times: Vec<u64> = (0..).step_by(1_000).take(clocks.len()).collect();
        let mut master = waiting(clocks.clone(), &times);
        let mut asked = times;
        let mut before = master.now();
        for (sleep, network) in steps {
            let event = (network % 3 == 0).then(|| master.now().plus_ps(network));
            let turn = master.next(event);
            prop_assert!(master.now() >= before);
            before = master.now();
            match turn {
                Turn::Network(at) => {
                    prop_assert_eq!(Some(at), event);
                    let mut due = asked.iter().zip(&clocks).map(|(t, c)| c.reaches(LocalNs(*t)));
                    let earlier = due.any(|due| due < event);
                    prop_assert!(!earlier, "someone should have run before");
                }
                Turn::Run { who, time, free_until } => {
                    prop_assert_eq!(time.0, asked[who.0]);
                    prop_assert_eq!(clocks[who.0].read(master.now()), time);
                    let last = clocks[who.0].reaches(LocalNs(free_until.0.max(1) - 1)).unwrap();
                    for other in (0..asked.len()).filter(|other| *other != who.0) {
                        let due = clocks[other].reaches(LocalNs(asked[other])).unwrap();
                        prop_assert!(last < due || free_until <= time);
                    }
                    asked[who.0] = time.0 + sleep;
                    master.on(who, Message::Request(LocalNs(asked[who.0]))).unwrap();
                    master.on(who, Message::Wait).unwrap();
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
