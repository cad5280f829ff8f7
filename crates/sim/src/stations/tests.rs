// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::net::plain_port as plain;
use timewire_base::{BitsPerSecond, CyclicWindows, FrameLen, Instant, Priority, Span, Tai, Window};
use timewire_tsn::{Config, DueTimes, LaunchTimes, Mode, QueueIndex, QueueSet};

use super::*;
use crate::{Loss, SegmentConfig, SegmentKind};

fn us(us: i64) -> Span {
    Span::from_us(us)
}

fn at(us: i64) -> Instant<Tai> {
    Instant::from_ns(us * 1_000)
}

fn rate() -> BitsPerSecond {
    BitsPerSecond::new(100_000_000).unwrap()
}

/// A slot of 200 us in a cycle of 1 ms.
fn slot(offset: i64) -> CyclicWindows {
    let window = Window { offset: us(offset), length: us(200) };
    CyclicWindows::new(at(0), us(1_000), vec![window]).unwrap()
}

fn mac(offset: i64, change: impl FnOnce(&mut Config)) -> TransmitSpec {
    let mut config = Config {
        rate: rate(),
        margin: us(5),
        ahead: Span::ZERO,
        mode: Mode::Tdm,
        best_effort_share: Span::ZERO,
        queue_capacity: 4,
    };
    change(&mut config);
    TransmitSpec::Mac(MacSpec { config, windows: slot(offset), queues: urgent_set() })
}

fn urgent_set() -> QueueSet {
    QueueSet::new(&[Priority::new(1).unwrap()]).unwrap()
}

fn urgent() -> QueueIndex {
    urgent_set().index_of(Priority::new(1).unwrap()).unwrap()
}

/// Messages of 59 bytes: 101 bytes of frame, 10 us with everything around it.
fn program(station: usize, job: Job) -> ProgramSpec {
    ProgramSpec {
        station,
        start: at(0),
        end: at(10_000),
        class: 0,
        queue: QueueIndex::DEFAULT,
        frame: FrameLen::new(101).unwrap(),
        launch: None,
        job,
    }
}

fn client(pace: Pace) -> Job {
    Job::Client { to: 1, pace, timeout: us(3_000) }
}

fn server() -> Job {
    Job::Server { pace: Pace::Closed, until: at(11_000) }
}

fn stations(stations: Vec<TransmitSpec>, programs: Vec<ProgramSpec>) -> Stations {
    let segment = SegmentConfig {
        kind: SegmentKind::Hub,
        rate: rate(),
        delay: Span::ZERO,
        loss: Loss::default(),
        seed: 1,
    };
    Stations { segment, stations, programs, until: at(12_000) }
}

fn ran(stations: &Stations) -> (Vec<Seen>, Outcome) {
    let mut seen = Vec::new();
    let mut sink = |it: &Seen| seen.push(*it);
    let outcome = run(stations, &|| false, &mut sink).unwrap().unwrap();
    (seen, outcome)
}

/// Times of a timestamp point of a program's flow, microseconds.
fn times(seen: &[Seen], of: usize, wanted: Point, of_flow: u16) -> Vec<i64> {
    let time = |it: &Seen| match *it {
        Seen::Program { program, point, flow, at, .. } => {
            (program == of && point == wanted && flow == of_flow).then_some(at.as_ns() / 1_000)
        }
        Seen::Segment { .. } => None,
    };
    seen.iter().filter_map(time).collect()
}

fn on_segment(seen: &[Seen], of: usize) -> Vec<i64> {
    let time = |it: &Seen| match *it {
        Seen::Segment { program, at, .. } => (program == of).then_some(at.as_ns() / 1_000),
        Seen::Program { .. } => None,
    };
    seen.iter().filter_map(time).collect()
}

#[test]
fn t2_messages_wait_for_the_slots_of_their_stations() {
    let programs = vec![program(0, client(Pace::Closed)), program(1, server())];
    let all = stations(vec![mac(0, |_| {}), mac(500, |_| {})], programs);
    let (seen, outcome) = ran(&all);
    // 9.04 us to the last bit; the client asks again at once, and waits for its next slot.
    assert_eq!(times(&seen, 1, Point::Receive, 0)[..3], [9, 1_009, 2_009]);
    assert_eq!(times(&seen, 1, Point::Send, 1)[..3], [9, 1_009, 2_009]);
    assert_eq!(times(&seen, 0, Point::Receive, 1)[..3], [509, 1_509, 2_509]);
    assert_eq!(times(&seen, 0, Point::Send, 0)[..3], [0, 509, 1_509]);
    assert_eq!(on_segment(&seen, 0)[..3], [0, 1_000, 2_000]);
    let counted = outcome.macs[0].as_ref().unwrap().total();
    assert_eq!((counted.arrived, counted.released, counted.dropped_full), (11, 11, 0));
    // The same again.
    assert_eq!(ran(&all), (seen, outcome));
}

#[test]
fn t2_a_client_goes_on_without_its_response_and_takes_a_late_one() {
    let mut all = vec![program(0, client(Pace::Closed)), program(1, server())];
    let Job::Client { timeout, .. } = &mut all[0].job else { panic!() };
    *timeout = us(300);
    let (seen, _) = ran(&stations(vec![mac(0, |_| {}), mac(500, |_| {})], all));
    // The response of the first comes after 509 us, when the client waits for that of the second.
    assert_eq!(times(&seen, 0, Point::Send, 0)[..4], [0, 300, 600, 900]);
    assert_eq!(times(&seen, 0, Point::Receive, 1)[0], 509);
}

#[test]
fn t2_aligned_programs_send_just_before_their_slots() {
    let aligned = |offset| Pace::Windows { windows: slot(offset), lead: us(40) };
    let programs = vec![
        program(0, client(aligned(300))),
        program(1, Job::Server { pace: aligned(800), until: at(11_000) }),
    ];
    let (seen, _) = ran(&stations(vec![mac(300, |_| {}), mac(800, |_| {})], programs));
    assert_eq!(times(&seen, 0, Point::Send, 0)[..2], [260, 1_260]);
    assert_eq!(times(&seen, 1, Point::Send, 1)[..2], [760, 1_760]);
    assert_eq!(times(&seen, 0, Point::Receive, 1)[..2], [809, 1_809]);
}

/// A flood of more than its queue takes.
fn flood(to: usize) -> Job {
    Job::Flood { to, rate: BitsPerSecond::new(50_000_000).unwrap(), burst: 10 }
}

#[test]
fn t2_urgent_messages_go_first_and_a_full_queue_is_counted() {
    let programs = |queue| {
        let client = ProgramSpec { queue, ..program(0, client(Pace::Every(us(1_000)))) };
        vec![client, program(1, server()), program(0, flood(3)), program(1, Job::Sink)]
    };
    let direct = TransmitSpec::Direct;
    let all = |queue| stations(vec![mac(0, |_| {}), direct.clone()], programs(queue));
    let (plain, outcome) = ran(&all(QueueIndex::DEFAULT));
    let (first, _) = ran(&all(urgent()));
    let counted = outcome.macs[0].as_ref().unwrap().total();
    assert!(counted.dropped_full > 0 && counted.released < counted.arrived, "{counted:?}");
    let longest = |seen: &[Seen]| {
        let (sent, came) = (times(seen, 0, Point::Send, 0), times(seen, 1, Point::Receive, 0));
        (sent.len(), came.len())
    };
    // Without a priority they are dropped where the flood has filled the queue.
    let ((sent, came), (sent_first, came_first)) = (longest(&plain), longest(&first));
    assert!(came < sent, "{came} of {sent}");
    assert_eq!(sent_first, came_first);
    assert_eq!((outcome.macs[1].clone(), outcome.not_taken), (None, vec![0; 4]));
}

#[test]
fn t2_in_the_hybrid_mode_best_effort_waits_only_while_real_time_is_heard() {
    let hybrid = |config: &mut Config| config.mode = Mode::Hybrid { idle_after: us(1_000) };
    let every = Job::Client { to: 3, pace: Pace::Every(us(700)), timeout: us(600) };
    let urgent_client = ProgramSpec {
        queue: urgent(),
        end: at(4_000),
        ..program(1, Job::Client { to: 2, pace: Pace::Closed, timeout: us(100) })
    };
    let with = |real_time: bool| {
        let mut programs = vec![
            program(0, every.clone()),
            urgent_client.clone(),
            program(0, Job::Sink),
            program(1, Job::Server { pace: Pace::Closed, until: at(12_000) }),
        ];
        if !real_time {
            programs[1].end = at(0);
        }
        let transmit = vec![mac(0, hybrid), mac(500, hybrid)];
        on_segment(&ran(&stations(transmit, programs)).0, 0)
    };
    // It listens for a millisecond first, and sends at any time then.
    assert_eq!(with(false)[..3], [1_000, 1_400, 2_100]);
    // While the other station has real-time frames, it waits for its slot.
    assert!(with(true).iter().take(3).all(|at| at % 1_000 < 200), "{:?}", with(true));
}

#[test]
fn t2_launch_times_are_kept_and_a_full_port_takes_no_message() {
    let mut strict = plain(rate());
    strict.classes[1].order = timewire_tsn::port::Order::TimedStrict;
    strict.classes[0].capacity = Some(2);
    let ports = TransmitSpec::Ports(PortsSpec { lines: vec![strict] });
    let launched = ProgramSpec {
        class: 1,
        launch: Some((LaunchTimes::new(slot(100), us(5)), us(10))),
        ..program(0, client(Pace::Every(us(1_000))))
    };
    let programs =
        vec![launched, program(1, server()), program(0, flood(3)), program(1, Job::Sink)];
    let (seen, outcome) = ran(&stations(vec![ports, TransmitSpec::Direct], programs));
    let scheduled = times(&seen, 0, Point::Scheduled, 0);
    assert_eq!(scheduled[..3], [1_100, 2_100, 3_100]);
    assert_eq!(on_segment(&seen, 0), scheduled);
    assert!(outcome.not_taken[2] > 0 && outcome.not_taken[0] == 0, "{outcome:?}");
}

#[test]
fn t2_a_pipeline_computes_hands_on_and_ends() {
    let step = |place, period: Option<i64>, to, pace, is_paced| {
        let (period, compute, until) = (period.map(us), us(20), at(11_000));
        Job::Pipeline(PipelineStep { place, period, to, compute, pace, is_paced, until })
    };
    let run_of = |pace: Pace, is_paced| {
        let programs = vec![
            program(0, step(0, Some(1_000), Some(1), pace, is_paced)),
            program(1, step(1, None, Some(2), Pace::Closed, false)),
            program(0, step(2, None, None, Pace::Closed, false)),
        ];
        ran(&stations(vec![mac(300, |_| {}), mac(550, |_| {})], programs)).0
    };
    // Begun at each millisecond, it waits for the slot at 300 us and for that at 550 us.
    let seen = run_of(Pace::Closed, false);
    assert_eq!(times(&seen, 0, Point::Send, 0)[..2], [1_000, 2_000]);
    assert_eq!(times(&seen, 0, Point::Send, 1)[..2], [1_020, 2_020]);
    assert_eq!(times(&seen, 1, Point::Send, 2)[..2], [1_329, 2_329]);
    assert_eq!(times(&seen, 2, Point::Receive, 0)[..2], [1_579, 2_579]);
    // Planned, it begins so that it has computed just before the slot.
    let seen = run_of(Pace::Windows { windows: slot(300), lead: us(60) }, true);
    assert_eq!(times(&seen, 0, Point::Send, 0)[..2], [1_240, 2_240]);
    assert_eq!(times(&seen, 0, Point::Send, 1)[..2], [1_260, 2_260]);
}

#[test]
fn t2_stations_that_cannot_be_are_refused() {
    let refused = |all: &Stations| {
        let mut sink = |_: &Seen| {};
        run(all, &|| false, &mut sink).unwrap_err().to_string()
    };
    let direct = || vec![TransmitSpec::Direct, TransmitSpec::Direct];
    let all = stations(direct(), vec![program(2, server())]);
    assert_eq!(refused(&all), "station 2 does not exist: there are 2");
    let all = stations(direct(), vec![program(0, client(Pace::Closed))]);
    assert_eq!(refused(&all), "program 1 does not exist: there are 1");
    let empty = TransmitSpec::Ports(PortsSpec { lines: Vec::new() });
    assert_eq!(refused(&stations(vec![empty], Vec::new())), "station 0 has no line");
    let all = Stations { until: at(90_000_000_000), ..stations(direct(), Vec::new()) };
    assert_eq!(refused(&all), "a simulation until 90000s is longer than 86400s");
    let all = stations(vec![mac(0, |config| config.margin = us(-1))], Vec::new());
    assert!(refused(&all).contains("margin"));
}

#[test]
fn t2_a_run_ends_when_it_is_asked_to() {
    let programs = vec![program(0, flood(1)), program(1, Job::Sink)];
    let mut all = stations(vec![TransmitSpec::Direct, TransmitSpec::Direct], programs);
    (all.until, all.programs[0].end) = (at(20_000_000), at(20_000_000));
    let mut sink = |_: &Seen| {};
    assert_eq!(run(&all, &|| true, &mut sink), Ok(None));
}

#[test]
fn t2_a_talker_sends_when_a_message_is_due_and_its_slot_lets_it() {
    let due = || DueTimes::in_periods(us(1_000), us(300));
    let talker = |pace| Job::Talker { to: 1, due: due(), pace };
    let listener = || program(1, Job::Listener { until: at(11_000) });
    let both = |pace| vec![program(0, talker(pace)), listener()];
    let (seen, _) = ran(&stations(vec![TransmitSpec::Direct; 2], both(Pace::Closed)));
    let due: Vec<i64> = (0..10).map(|n| 1_000 * n + 300).collect();
    assert_eq!(times(&seen, 0, Point::Send, 0), due);
    let after = |times: &[i64], us: i64| times.iter().map(|at| at + us).collect::<Vec<_>>();
    assert_eq!(times(&seen, 1, Point::Receive, 0), after(&due, 9));
    // In its slot, which begins 200 us later; and the talker wakes 50 us before that.
    let all = || vec![mac(500, |_| {}), TransmitSpec::Direct];
    let (seen, _) = ran(&stations(all(), both(Pace::Closed)));
    assert_eq!(times(&seen, 0, Point::Send, 0), due);
    assert_eq!(times(&seen, 1, Point::Receive, 0), after(&due, 209));
    let aligned = Pace::Windows { windows: slot(500), lead: us(50) };
    let (seen, _) = ran(&stations(all(), both(aligned)));
    assert_eq!(times(&seen, 0, Point::Send, 0), after(&due, 150));
    assert_eq!(times(&seen, 1, Point::Receive, 0), after(&due, 209));
    // Of messages that are due while it waits for its slot, the latest goes.
    let pace = Pace::Windows { windows: slot(500), lead: us(50) };
    let due = DueTimes::in_periods(us(400), Span::ZERO);
    let often = Job::Talker { to: 1, due, pace };
    let (seen, _) = ran(&stations(all(), vec![program(0, often), listener()]));
    let slots: Vec<i64> = (0..10).map(|n| 1_000 * n + 450).collect();
    assert_eq!(times(&seen, 0, Point::Send, 0), slots);
    // Of a list, none is left out, and what is due at once leaves at once.
    let due = DueTimes::listed(at(100), &[us(5), us(5), us(70)]);
    let listed = Job::Talker { to: 1, due, pace: Pace::Closed };
    let none = vec![TransmitSpec::Direct; 2];
    let (seen, _) = ran(&stations(none, vec![program(0, listed), listener()]));
    assert_eq!(times(&seen, 0, Point::Send, 0), [105, 105, 170]);
}
