// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of findings and verdict.
//!
//! Not here: how the numbers were measured (`analyse`).

use super::*;
use crate::stats::Bins;
use crate::summary::{CarrierSummary, ReservedSummary, SlotShape, StreamClass, WireSummary};

/// A case whose `control` took each of these times in microseconds.
fn case(name: &str, times_us: impl Iterator<Item = i64>) -> CaseSummary {
    let values: Vec<i64> = times_us.map(|us| us * 1_000).collect();
    let received = u64::try_from(values.len()).unwrap();
    let bins = Bins::covering(Span::from_us(100), Span::from_us(20));
    let times = Distribution::of(values, bins);
    CaseSummary {
        id: format!("first/{name}/flood"),
        scenario: "first".to_owned(),
        case: name.to_owned(),
        title: name.to_owned(),
        load: "flood".to_owned(),
        message_bytes: 64,
        cycle_ns: 1_040_000,
        tdm: true,
        carrier: None,
        slots: vec![SlotShape {
            station: "alpha".to_owned(),
            offset_ns: 0,
            transmit_ns: 220_000,
            guard_ns: 40_000,
        }],
        published: None,
        streams: vec![StreamSummary {
            name: "control".to_owned(),
            class: StreamClass::RealTime,
            sent: received,
            skipped: 0,
            received,
            lost: 0,
            late: 0,
            deadline_ns: 1_000_000,
            transfer: times.clone(),
            transfer_request: None,
            transfer_response: None,
            slot_wait: times,
            receive: None,
            launch: None,
        }],
        wire: WireSummary {
            frames: 4_000,
            outside_slots: 0,
            real_time_frames: 1_000,
            real_time_outside_slots: 0,
            in_guard: 12,
            worst_outside_ns: 0,
            unobserved: 0,
            stamp_bound_p999_ns: None,
            stamp_bound_max_ns: None,
            phases: Vec::new(),
        },
        drop_causes: Vec::new(),
        macs: Vec::new(),
        reserved: Vec::new(),
        traced: None,
    }
}

fn limit(metric: &str, bound: Bound) -> LimitInput {
    LimitInput {
        id: "it".to_owned(),
        scenario: "first".to_owned(),
        case: "tdm-priority".to_owned(),
        load: "flood".to_owned(),
        stream: Some("control".to_owned()),
        metric: Metric::from_name(metric).unwrap(),
        bound,
    }
}

fn ratio(at_most: f64) -> Bound {
    Bound::Ratio { to_case: "tdm".to_owned(), to_load: "flood".to_owned(), at_most }
}

fn judged(limit: LimitInput, cases: &[CaseSummary]) -> (Outcome, String, String) {
    let [finding] = judge(&[limit], cases).try_into().unwrap();
    (finding.outcome, format!("{} | {}", finding.limit, finding.measured), finding.note)
}

#[test]
fn t0_metrics_have_names() {
    let names: Vec<String> = Metric::all().map(Metric::name).collect();
    assert_eq!(names.len(), 28);
    assert!(Metric::all().all(|metric| Metric::from_name(&metric.name()) == Some(metric)));
    for name in ["transfer_p99", "slot_wait_mean", "receive_max", "lost", "outside_slots"] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    assert_eq!(Metric::from_name("transfer_p98"), None);
}

#[test]
fn t1_findings_name_both_sides_with_units() {
    let cases = [case("tdm-priority", 513..=612), case("tdm", (7_413..=7_512).chain([7_600]))];
    let (outcome, text, note) = judged(limit("transfer_max", ratio(0.5)), &cases);
    assert_eq!((outcome, note.as_str()), (Outcome::Kept, ""));
    assert_eq!(
        text,
        "transfer max of control in first/tdm-priority/flood is at most 0.5 of tdm/flood | \
         transfer max of control is 612us in tdm-priority/flood, 0.09 of 7600us in tdm/flood"
    );
    let (outcome, text, _) =
        judged(limit("slot_wait_p50", Bound::Time(Span::from_us(500))), &cases);
    assert_eq!(outcome, Outcome::Missed);
    assert_eq!(
        text,
        "slot wait p50 of control in first/tdm-priority/flood is at most 500us | \
         slot wait p50 of control is 562us in tdm-priority/flood"
    );
    let mut lossy = cases.clone();
    (lossy[0].streams[0].sent, lossy[0].streams[0].lost) = (4_000, 12);
    let (outcome, text, _) = judged(limit("lost", Bound::Share(0.001)), &lossy);
    assert_eq!(outcome, Outcome::Missed);
    assert_eq!(
        text,
        "share of messages lost of control in first/tdm-priority/flood is at most 0.1 % | \
         share of messages lost of control is 0.3 % (12 of 4000) in tdm-priority/flood"
    );
    let (outcome, _, note) = judged(limit("transfer_mean", Bound::Time(Span::from_ms(1))), &lossy);
    assert_eq!(outcome, Outcome::Kept);
    assert_eq!(note, "12 of 4000 messages in first/tdm-priority/flood were lost and have no time");
}

#[test]
fn t0_the_bound_itself_is_kept() {
    let cases = [case("tdm-priority", 1..=100), case("tdm", 1..=200)];
    let outcome = |metric, bound| judged(limit(metric, bound), &cases).0;
    assert_eq!(outcome("transfer_max", Bound::Time(Span::from_us(100))), Outcome::Kept);
    assert_eq!(outcome("transfer_max", Bound::Time(Span::from_ns(99_999))), Outcome::Missed);
    assert_eq!(outcome("transfer_max", ratio(0.5)), Outcome::Kept);
    assert_eq!(outcome("transfer_max", ratio(0.499)), Outcome::Missed);
    assert_eq!(outcome("lost", Bound::Share(0.0)), Outcome::Kept);
    assert_eq!(outcome("lost", ratio(0.5)), Outcome::Kept, "0 is at most half of 0");
    assert_eq!(outcome("transfer_max", ratio(f64::NAN)), Outcome::Missed);
}

#[test]
fn t0_too_little_data_is_not_judged() {
    let cases = [case("tdm-priority", 1..=99), case("tdm", 1..=1_000)];
    let not_judged = |limit: LimitInput, why: &str| {
        let (outcome, _, note) = judged(limit, &cases);
        assert_eq!((outcome, note.as_str()), (Outcome::NotJudged, why));
    };
    let long = || Bound::Time(Span::from_secs(1));
    let in_case = "of transfer of control in first/tdm-priority/flood needs at least";
    not_judged(limit("transfer_p99", long()), &format!("p99 {in_case} 100 values and has 99"));
    not_judged(limit("transfer_p999", long()), &format!("p999 {in_case} 1000 values and has 99"));
    not_judged(
        limit("receive_min", long()),
        "min of receive of control in first/tdm-priority/flood needs at least 1 values and has 0",
    );
    let mut elsewhere = limit("lost", Bound::Share(0.5));
    elsewhere.load = "alone".to_owned();
    not_judged(elsewhere, "first/tdm-priority/alone was not measured");
    let mut other = limit("lost", Bound::Share(0.5));
    other.stream = Some("video".to_owned());
    not_judged(other, "first/tdm-priority/flood has no stream video");
    let mut nameless = limit("transfer_p50", long());
    nameless.stream = None;
    not_judged(nameless, "transfer_p50 needs the name of a stream");
    not_judged(limit("lost", long()), "a share cannot be bounded by a time");
    not_judged(limit("transfer_p50", Bound::Share(0.5)), "a time cannot be bounded by a share");
    let mut there = limit("transfer_p999", ratio(0.5));
    there.case = "tdm".to_owned();
    there.bound =
        Bound::Ratio { to_case: "tdm-priority".into(), to_load: "flood".into(), at_most: 1.0 };
    not_judged(there, &format!("p999 {in_case} 1000 values and has 99"));
    let silent = [case("tdm-priority", 0..0), case("tdm", 0..=0)];
    let outcome = |limit: LimitInput| judged(limit, &silent);
    let (outcome_lost, _, note) = outcome(limit("lost", Bound::Share(1.0)));
    assert_eq!(outcome_lost, Outcome::NotJudged);
    assert_eq!(note, "no message of control was sent in first/tdm-priority/flood");
}

#[test]
fn t0_no_ratio_to_no_time() {
    let cases = [case("tdm-priority", 1..=100), case("tdm", 0..=0)];
    let (outcome, _, note) = judged(limit("transfer_max", ratio(0.5)), &cases);
    assert_eq!(
        (outcome, note.as_str()),
        (Outcome::NotJudged, "there is no ratio to 0us in tdm/flood")
    );
}

#[test]
fn t0_frames_nobody_observed_prove_nothing() {
    let mut cases = [case("tdm-priority", 1..=100)];
    let mut outside = limit("outside_slots", Bound::Share(0.0));
    outside.stream = None;
    let mut outcome = |part, unobserved| {
        (cases[0].wire.outside_slots, cases[0].wire.unobserved) = (part, unobserved);
        judged(outside.clone(), &cases)
    };
    let (kept, text, _) = outcome(0, 0);
    assert_eq!(kept, Outcome::Kept);
    assert_eq!(
        text,
        "share of frames outside slots in first/tdm-priority/flood is at most 0 % | \
         share of frames outside slots is 0 % (0 of 4000) in tdm-priority/flood"
    );
    assert_eq!(outcome(1, 0).0, Outcome::Missed);
    let (unsure, _, note) = outcome(0, 5);
    assert_eq!(unsure, Outcome::NotJudged);
    assert_eq!(note, "up to 5 frames in first/tdm-priority/flood were not observed");
    assert_eq!(outcome(0, u64::MAX).0, Outcome::NotJudged);
    assert_eq!(outcome(1, 5).0, Outcome::Missed);
    outside.bound = Bound::Share(0.01);
    let (kept, _, note) = judged(outside, &cases);
    assert_eq!((kept, note.is_empty()), (Outcome::Kept, false));
}

#[test]
fn t0_the_verdict_needs_every_limit_kept() {
    let finding = |outcome| Finding {
        id: String::new(),
        outcome,
        limit: String::new(),
        measured: String::new(),
        note: String::new(),
    };
    let verdict_of = |list: &[Outcome]| {
        verdict(&list.iter().map(|&outcome| finding(outcome)).collect::<Vec<_>>())
    };
    assert_eq!(verdict_of(&[]), Verdict::Pass);
    assert_eq!(verdict_of(&[Outcome::Kept, Outcome::Note]), Verdict::Pass);
    assert_eq!(verdict_of(&[Outcome::Kept, Outcome::Missed]), Verdict::Fail);
    assert_eq!(verdict_of(&[Outcome::NotJudged]), Verdict::Fail);
}

#[test]
fn t0_numbers_in_words() {
    let cases = [
        (612_000.0, "612us"),
        (612_040.0, "612.1us"),
        (7_512_300.0, "7512.3us"),
        (1_234_567_000.0, "1234567us"),
        (0.0, "0us"),
        (-4_950.0, "-4.9us"),
        (-50.0, "0us"),
        (-123_000.0, "-123us"),
    ];
    for (ns, text) in cases {
        assert_eq!(time(ns), text);
    }
    assert_eq!(percent(0.07), "7 %");
    assert_eq!(percent(0.000_000_1), "0.0001 %");
    assert_eq!(
        (up(0.08, 2), up(0.2504, 2), up(-0.0, 2)),
        ("0.08".into(), "0.26".into(), "0".into())
    );
}

/// What one limit on a case came to: outcome and words.
fn changed(metric: &str, bound: Bound, change: impl Fn(&mut CaseSummary)) -> (Outcome, String) {
    let mut case = case("tdm-priority", 1..=100);
    change(&mut case);
    let finding = judge(&[limit(metric, bound)], &[case]).remove(0);
    (finding.outcome, format!("{}; {}", finding.measured, finding.note))
}

#[test]
fn t0_a_carrier_without_slots_is_not_judged_by_them() {
    let carrier = |slots| {
        Some(CarrierSummary { name: "cbs".to_owned(), slots, promise: "a rate".to_owned() })
    };
    for metric in ["outside_slots", "outside_slots_real_time"] {
        let judged =
            |slots| changed(metric, Bound::Share(0.0), |case| case.carrier = carrier(slots));
        let (outcome, words) = judged(SlotPromise::None);
        assert_eq!(outcome, Outcome::NotJudged);
        assert!(
            words.contains("the carrier cbs of first/tdm-priority/flood has no slots"),
            "{words}"
        );
        assert_eq!(judged(SlotPromise::RealTime).0, Outcome::Kept);
    }
}

#[test]
fn t0_frames_outside_are_judged_by_class() {
    let outside = |metric: &str| {
        changed(metric, Bound::Share(0.0), |case| {
            (case.wire.outside_slots, case.wire.real_time_outside_slots) = (40, 0);
        })
    };
    assert_eq!(outside("outside_slots").0, Outcome::Missed);
    assert_eq!(outside("outside_slots_real_time").0, Outcome::Kept);
}

#[test]
fn t0_launch_times_and_reserved_rates_are_judged_where_they_are() {
    let share = |metric, change: fn(&mut CaseSummary)| changed(metric, Bound::Share(0.01), change);
    let (outcome, words) = share("launch_refused", |_| {});
    assert_eq!(outcome, Outcome::NotJudged);
    assert!(words.contains("control has no launch times"), "{words}");
    let launched = |refused, missed| {
        changed("launch_refused", Bound::Share(0.01), move |case| {
            let launch = LaunchSummary { launched: 100, refused, missed, error: None };
            case.streams[0].launch = Some(launch);
        })
    };
    assert_eq!(launched(0, 1).0, Outcome::Kept);
    assert_eq!(launched(1, 1).0, Outcome::Missed);
    assert_eq!(share("outside_rate", |_| {}).0, Outcome::NotJudged);
    let reserved = |outside_rate| {
        changed("outside_rate", Bound::Share(0.0), move |case| {
            case.reserved = vec![ReservedSummary {
                station: "alpha".to_owned(),
                rate_bps: 1_000_000,
                burst_bits: 1_040,
                frames: 100,
                outside_rate,
            }];
        })
    };
    assert_eq!(reserved(0).0, Outcome::Kept);
    let (outcome, words) = reserved(1);
    assert_eq!(outcome, Outcome::Missed);
    assert!(words.contains("real-time frames outside the reserved rate is 1 %"), "{words}");
}
