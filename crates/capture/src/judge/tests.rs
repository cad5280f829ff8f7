// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of findings and verdict.

use super::*;
use crate::summary::{BackendSummary, ReservedSummary, SlotShape, StreamClass, WireSummary};
use timewire_stats::Bins;

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
        backend: None,
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
            promise: None,
        }],
        clock_bound_ns: None,
        wire: WireSummary {
            frames: 4_000,
            outside_slots: 0,
            real_time_frames: 1_000,
            real_time_outside_slots: 0,
            in_guard: 12,
            worst_outside_ns: 0,
            unobserved: 0,
            timestamp_bound_p999_ns: None,
            timestamp_bound_max_ns: None,
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

fn judged(limit: LimitInput, cases: &[CaseSummary]) -> (Verdict, String, String) {
    let [finding] = judge(&[limit], cases).try_into().unwrap();
    (finding.verdict.unwrap(), format!("{} | {}", finding.limit, finding.measured), finding.note)
}

#[test]
fn t0_metrics_have_names() {
    let names: Vec<String> = Metric::all().map(Metric::name).collect();
    assert_eq!(names.len(), 29);
    assert!(Metric::all().all(|metric| Metric::from_name(&metric.name()) == Some(metric)));
    for name in ["latency-p99", "jitter", "slot-wait-mean", "receive-max", "lost", "outside-slots"]
    {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    assert_eq!(Metric::from_name("latency-p98"), None);
}

#[test]
fn t0_a_limit_that_the_bound_of_the_clocks_could_turn_over_is_inconclusive() {
    // 50us in all messages, by clocks that are within 10us.
    let mut here = case("tdm-priority", (0..200).map(|_| 50));
    here.clock_bound_ns = Some(10_000);
    let judge = |us, cases: &[CaseSummary]| {
        judged(limit("latency-p50", Bound::Time(Span::from_us(us))), cases)
    };
    for (us, verdict) in [
        (61, Verdict::Pass),
        (60, Verdict::Pass),
        (59, Verdict::Inconclusive),
        (40, Verdict::Inconclusive),
        (39, Verdict::Fail),
    ] {
        assert_eq!(judge(us, std::slice::from_ref(&here)).0, verdict, "{us}");
    }
    let (_, text, _) = judge(50, std::slice::from_ref(&here));
    assert!(text.ends_with("is 50us within 10us in tdm-priority/flood"), "{text}");
    // Of the other side, too: half of 100us within 10us is 45us to 55us.
    let mut there = case("tdm", (0..200).map(|_| 100));
    there.clock_bound_ns = Some(10_000);
    let cases = [here.clone(), there];
    let of = |at_most| judged(limit("latency-p50", ratio(at_most)), &cases).0;
    assert_eq!(
        [0.67, 0.66, 0.4, 0.36].map(of),
        [Verdict::Pass, Verdict::Inconclusive, Verdict::Inconclusive, Verdict::Fail]
    );
    // A share has no error of clocks; the observer's is told.
    let (verdict, _, note) = judged(limit("outside-slots", Bound::Share(0.0)), &cases);
    assert_eq!(verdict, Verdict::Pass);
    assert!(
        note.contains("the observer's clock and those of the stations are within 10us"),
        "{note}"
    );
    // One clock tells the receive side.
    here.streams[0].receive = here.streams[0].transfer.clone();
    let cases = [here];
    let receive = judged(limit("receive-p50", Bound::Time(Span::from_us(50))), &cases);
    assert_eq!(receive.0, Verdict::Pass);
}

#[test]
fn t0_jitter_is_the_longest_less_the_shortest_latency() {
    let mut here = case("tdm-priority", 513..=612);
    let of = |us, here: &CaseSummary| {
        let limit = limit("jitter", Bound::Time(Span::from_us(us)));
        judged(limit, std::slice::from_ref(here))
    };
    assert_eq!([99, 98].map(|us| of(us, &here).0), [Verdict::Pass, Verdict::Fail]);
    assert!(of(99, &here).1.ends_with("jitter of control is 99us in tdm-priority/flood"));
    // The clocks can be off by their bound at both, in either direction.
    here.clock_bound_ns = Some(1_000);
    let three = [101, 100, 96].map(|us| of(us, &here).0);
    assert_eq!(three, [Verdict::Pass, Verdict::Inconclusive, Verdict::Fail]);
    here.streams[0].transfer = None;
    assert_eq!(of(99, &here).0, Verdict::Inconclusive);
}

#[test]
fn t1_findings_name_both_sides_with_units() {
    let cases = [case("tdm-priority", 513..=612), case("tdm", (7_413..=7_512).chain([7_600]))];
    let (verdict, text, note) = judged(limit("latency-max", ratio(0.5)), &cases);
    assert_eq!((verdict, note.as_str()), (Verdict::Pass, ""));
    assert_eq!(
        text,
        "latency max of control in first/tdm-priority/flood is at most 0.5 of tdm/flood | \
         latency max of control is 612us in tdm-priority/flood, 0.09 of 7600us in tdm/flood"
    );
    let (verdict, text, _) =
        judged(limit("slot-wait-p50", Bound::Time(Span::from_us(500))), &cases);
    assert_eq!(verdict, Verdict::Fail);
    assert_eq!(
        text,
        "slot wait p50 of control in first/tdm-priority/flood is at most 500us | \
         slot wait p50 of control is 562us in tdm-priority/flood"
    );
    let mut lossy = cases.clone();
    (lossy[0].streams[0].sent, lossy[0].streams[0].lost) = (4_000, 12);
    let (verdict, text, _) = judged(limit("lost", Bound::Share(0.001)), &lossy);
    assert_eq!(verdict, Verdict::Fail);
    assert_eq!(
        text,
        "share of messages lost of control in first/tdm-priority/flood is at most 0.1 % | \
         share of messages lost of control is 0.3 % (12 of 4000) in tdm-priority/flood"
    );
    let (verdict, _, note) = judged(limit("latency-mean", Bound::Time(Span::from_ms(1))), &lossy);
    assert_eq!(verdict, Verdict::Pass);
    assert_eq!(note, "12 of 4000 messages in first/tdm-priority/flood were lost and have no time");
}

#[test]
fn t0_the_bound_itself_passes() {
    let cases = [case("tdm-priority", 1..=100), case("tdm", 1..=200)];
    let verdict = |metric, bound| judged(limit(metric, bound), &cases).0;
    assert_eq!(verdict("latency-max", Bound::Time(Span::from_us(100))), Verdict::Pass);
    assert_eq!(verdict("latency-max", Bound::Time(Span::from_ns(99_999))), Verdict::Fail);
    assert_eq!(verdict("latency-max", ratio(0.5)), Verdict::Pass);
    assert_eq!(verdict("latency-max", ratio(0.499)), Verdict::Fail);
    assert_eq!(verdict("lost", Bound::Share(0.0)), Verdict::Pass);
    assert_eq!(verdict("lost", ratio(0.5)), Verdict::Pass, "0 is at most half of 0");
    assert_eq!(verdict("latency-max", ratio(f64::NAN)), Verdict::Fail);
}

#[test]
fn t0_too_little_data_is_inconclusive() {
    let cases = [case("tdm-priority", 1..=99), case("tdm", 1..=1_000)];
    let inconclusive = |limit: LimitInput, why: &str| {
        let (verdict, _, note) = judged(limit, &cases);
        assert_eq!((verdict, note.as_str()), (Verdict::Inconclusive, why));
    };
    let long = || Bound::Time(Span::from_secs(1));
    let in_case = "of latency of control in first/tdm-priority/flood needs at least";
    inconclusive(limit("latency-p99", long()), &format!("p99 {in_case} 100 values and has 99"));
    inconclusive(limit("latency-p999", long()), &format!("p999 {in_case} 1000 values and has 99"));
    inconclusive(
        limit("receive-min", long()),
        "min of receive of control in first/tdm-priority/flood needs at least 1 values and has 0",
    );
    let mut elsewhere = limit("lost", Bound::Share(0.5));
    elsewhere.load = "alone".to_owned();
    inconclusive(elsewhere, "first/tdm-priority/alone was not measured");
    let mut other = limit("lost", Bound::Share(0.5));
    other.stream = Some("video".to_owned());
    inconclusive(other, "first/tdm-priority/flood has no stream video");
    let mut nameless = limit("latency-p50", long());
    nameless.stream = None;
    inconclusive(nameless, "latency-p50 needs the name of a stream");
    inconclusive(limit("lost", long()), "a share cannot be bounded by a time");
    inconclusive(limit("latency-p50", Bound::Share(0.5)), "a time cannot be bounded by a share");
    let mut there = limit("latency-p999", ratio(0.5));
    there.case = "tdm".to_owned();
    there.bound =
        Bound::Ratio { to_case: "tdm-priority".into(), to_load: "flood".into(), at_most: 1.0 };
    inconclusive(there, &format!("p999 {in_case} 1000 values and has 99"));
    let silent = [case("tdm-priority", 0..0), case("tdm", 0..=0)];
    let verdict = |limit: LimitInput| judged(limit, &silent);
    let (outcome_lost, _, note) = verdict(limit("lost", Bound::Share(1.0)));
    assert_eq!(outcome_lost, Verdict::Inconclusive);
    assert_eq!(note, "no message of control was sent in first/tdm-priority/flood");
}

#[test]
fn t0_no_ratio_to_no_time() {
    let cases = [case("tdm-priority", 1..=100), case("tdm", 0..=0)];
    let (verdict, _, note) = judged(limit("latency-max", ratio(0.5)), &cases);
    assert_eq!(
        (verdict, note.as_str()),
        (Verdict::Inconclusive, "there is no ratio to 0us in tdm/flood")
    );
}

#[test]
fn t0_frames_nobody_observed_prove_nothing() {
    let mut cases = [case("tdm-priority", 1..=100)];
    let mut outside = limit("outside-slots", Bound::Share(0.0));
    outside.stream = None;
    let mut verdict = |part, unobserved| {
        (cases[0].wire.outside_slots, cases[0].wire.unobserved) = (part, unobserved);
        judged(outside.clone(), &cases)
    };
    let (kept, text, _) = verdict(0, 0);
    assert_eq!(kept, Verdict::Pass);
    assert_eq!(
        text,
        "share of frames outside slots in first/tdm-priority/flood is at most 0 % | \
         share of frames outside slots is 0 % (0 of 4000) in tdm-priority/flood"
    );
    assert_eq!(verdict(1, 0).0, Verdict::Fail);
    let (unsure, _, note) = verdict(0, 5);
    assert_eq!(unsure, Verdict::Inconclusive);
    assert_eq!(note, "up to 5 frames in first/tdm-priority/flood were not observed");
    assert_eq!(verdict(0, u64::MAX).0, Verdict::Inconclusive);
    assert_eq!(verdict(1, 5).0, Verdict::Fail);
    outside.bound = Bound::Share(0.01);
    let (kept, _, note) = judged(outside, &cases);
    assert_eq!((kept, note.is_empty()), (Verdict::Pass, false));
}

#[test]
fn t0_the_verdict_needs_every_limit_to_pass() {
    let finding = |verdict| Finding {
        id: String::new(),
        verdict,
        limit: String::new(),
        measured: String::new(),
        note: String::new(),
    };
    let verdict_of = |list: &[Option<Verdict>]| {
        verdict(&list.iter().map(|&verdict| finding(verdict)).collect::<Vec<_>>())
    };
    assert_eq!(verdict_of(&[]), Verdict::Pass);
    use Verdict::{Fail, Inconclusive, Pass};
    assert_eq!(verdict_of(&[Some(Pass), None]), Pass);
    assert_eq!(verdict_of(&[Some(Pass), Some(Fail), Some(Inconclusive)]), Fail);
    assert_eq!(verdict_of(&[Some(Inconclusive), Some(Pass)]), Inconclusive);
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

/// What one limit on a case came to: verdict and words.
fn changed(metric: &str, bound: Bound, change: impl Fn(&mut CaseSummary)) -> (Verdict, String) {
    let mut case = case("tdm-priority", 1..=100);
    change(&mut case);
    let finding = judge(&[limit(metric, bound)], &[case]).remove(0);
    (finding.verdict.unwrap(), format!("{}; {}", finding.measured, finding.note))
}

#[test]
fn t0_a_backend_without_slots_is_inconclusive_by_them() {
    let backend = |slots| {
        Some(BackendSummary { name: "cbs".to_owned(), slots, promise: "a rate".to_owned() })
    };
    for metric in ["outside-slots", "outside-slots-real-time"] {
        let judged =
            |slots| changed(metric, Bound::Share(0.0), |case| case.backend = backend(slots));
        let (verdict, words) = judged(SlotPromise::None);
        assert_eq!(verdict, Verdict::Inconclusive);
        assert!(
            words.contains("the backend cbs of first/tdm-priority/flood has no slots"),
            "{words}"
        );
        assert_eq!(judged(SlotPromise::RealTime).0, Verdict::Pass);
    }
}

#[test]
fn t0_frames_outside_are_judged_by_class() {
    let outside = |metric: &str| {
        changed(metric, Bound::Share(0.0), |case| {
            (case.wire.outside_slots, case.wire.real_time_outside_slots) = (40, 0);
        })
    };
    assert_eq!(outside("outside-slots").0, Verdict::Fail);
    assert_eq!(outside("outside-slots-real-time").0, Verdict::Pass);
}

#[test]
fn t0_launch_times_and_reserved_rates_are_judged_where_they_are() {
    let share = |metric, change: fn(&mut CaseSummary)| changed(metric, Bound::Share(0.01), change);
    let (verdict, words) = share("launch-refused", |_| {});
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(words.contains("control has no launch times"), "{words}");
    let launched = |refused, missed| {
        changed("launch-refused", Bound::Share(0.01), move |case| {
            let launch = LaunchSummary { launched: 100, refused, missed, error: None };
            case.streams[0].launch = Some(launch);
        })
    };
    assert_eq!(launched(0, 1).0, Verdict::Pass);
    assert_eq!(launched(1, 1).0, Verdict::Fail);
    assert_eq!(share("outside-rate", |_| {}).0, Verdict::Inconclusive);
    let reserved = |outside_rate| {
        changed("outside-rate", Bound::Share(0.0), move |case| {
            case.reserved = vec![ReservedSummary {
                station: "alpha".to_owned(),
                rate_bps: 1_000_000,
                burst_bits: 1_040,
                frames: 100,
                outside_rate,
            }];
        })
    };
    assert_eq!(reserved(0).0, Verdict::Pass);
    let (verdict, words) = reserved(1);
    assert_eq!(verdict, Verdict::Fail);
    assert!(words.contains("real-time frames outside the reserved rate is 1 %"), "{words}");
}
