// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The preflight of an experiment in virtual time: whatever is wrong with a station is told within
//! its bound, by name and reason, before anything is begun anywhere; and nothing is wrong with one
//! that is far away.

use std::collections::BTreeMap;

use timewire_agent::protocol::agent::{self, Agent};
use timewire_agent::protocol::controller::{self, Action, End};
use timewire_agent::protocol::message::{Ask, FromAgent, Lack};
use timewire_agent::protocol::{
    Controller, ExperimentId, Now, Part, Phase, Plan, Program, Restored, Retry, StationPlan, Step,
    Task, Timing, WordName,
};
use timewire_base::{Instant, Span, StationName, Tai};

const MS: i64 = 1_000_000;

/// What a station is like.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// It answers after so long a round trip.
    Ready(i64),
    /// Connecting fails, again and again.
    Unreached,
    /// Connecting fails in a way that stays.
    Unpaired,
    /// Connecting neither works nor fails.
    Hangs,
    /// It is linked and says nothing.
    Silent,
    /// It is linked again and again, and says nothing that is understood.
    Reconnects,
    Busy,
    Powerless,
    /// Its clock is a second off.
    Off,
    /// It says something, and then nothing more.
    Dies,
}

fn plan(count: usize) -> Plan {
    let program = Program {
        name: WordName::new("set").unwrap(),
        command: ["timewire", "tdm", "start"].map(str::to_owned).into(),
        environment: BTreeMap::new(),
        accept: Vec::new(),
    };
    let step =
        Step { task: Task::Run(program), timeout: Span::from_secs(1), retry: Retry::default() };
    let part = Part { steps: vec![step], ..Part::default() };
    let station = |n| StationPlan {
        name: StationName::new(&format!("s{n}")).unwrap(),
        parts: [(Phase::Run, part.clone())].into(),
    };
    Plan {
        experiment: ExperimentId::new("e").unwrap(),
        timing: Timing::default(),
        stations: (0..count).map(station).collect(),
    }
}

fn time(at: i64, clock: i64) -> Now {
    Now { mono: Instant::from_ns(at), tai: Instant::<Tai>::from_ns(at + clock) }
}

/// What came of it, and how many messages each station was sent.
struct Came {
    end: Option<End>,
    at: i64,
    begun: bool,
    sent: Vec<usize>,
}

fn fly(kinds: &[Kind]) -> Came {
    let start = 1_000 * MS;
    let plan = plan(kinds.len());
    let names: Vec<StationName> = plan.stations.iter().map(|s| s.name.clone()).collect();
    let mut agents: Vec<Agent> = kinds.iter().map(|kind| agent_of(*kind)).collect();
    let (mut controller, first) = Controller::begin(plan, time(start, 0)).unwrap();
    let mut came = Came { end: None, at: start, begun: false, sent: vec![0; kinds.len()] };
    // Answers that are under way, and events of links.
    let mut coming: BTreeMap<(i64, u64), controller::Event> = BTreeMap::new();
    let mut count = 0;
    let mut later = |coming: &mut BTreeMap<_, _>, at: i64, event| {
        count += 1;
        coming.insert((at, count), event);
    };
    for (kind, station) in kinds.iter().zip(&names) {
        let station = || station.clone();
        let unreached = |why: &str, is_final| controller::Event::Unreached {
            station: station(),
            why: why.to_owned(),
            is_final,
        };
        let linked = controller::Event::Linked { station: station() };
        match kind {
            Kind::Unreached => (0..90).for_each(|n| {
                later(&mut coming, start + n * 200 * MS, unreached("refused", false));
            }),
            Kind::Unpaired => later(&mut coming, start + MS, unreached("not paired", true)),
            Kind::Hangs => {}
            Kind::Reconnects => (0..90).for_each(|n| {
                later(&mut coming, start + n * 200 * MS, linked.clone());
            }),
            _ => later(&mut coming, start + MS, linked),
        }
    }
    let mut actions = first;
    loop {
        for action in std::mem::take(&mut actions) {
            match action {
                Action::Send { station, message } => {
                    let index = names.iter().position(|name| *name == station).unwrap();
                    came.sent[index] += 1;
                    came.begun |= matches!(message.ask, Ask::Begin { .. });
                    let clock = if matches!(kinds[index], Kind::Off) { 1_000 * MS } else { 0 };
                    let trip = match kinds[index] {
                        Kind::Ready(trip) => trip,
                        Kind::Busy | Kind::Powerless | Kind::Off => MS,
                        Kind::Dies if came.sent[index] <= 3 => MS,
                        _ => continue,
                    };
                    let heard = agent::Event::Heard(message);
                    for action in agents[index].on(time(came.at + trip / 2, clock), heard) {
                        if let agent::Action::Answer(message) = action {
                            let event = heard_of(&station, message);
                            later(&mut coming, came.at + trip, event);
                        }
                    }
                }
                Action::End(end) => came.end = Some(end),
                _ => {}
            }
        }
        if came.end.is_some() || came.begun {
            return came;
        }
        let tick = controller.wake_at().map(|at| at.as_ns().max(came.at));
        let next = coming.first_key_value().map(|((at, _), _)| *at);
        let event = match (next, tick) {
            (Some(next), Some(tick)) if tick < next => controller::Event::Tick,
            (Some(_), _) => coming.pop_first().unwrap().1,
            (None, Some(_)) => controller::Event::Tick,
            (None, None) => return came,
        };
        came.at = if matches!(event, controller::Event::Tick) { tick } else { next }.unwrap();
        actions = controller.on(time(came.at, 0), event);
    }
}

fn heard_of(station: &StationName, message: FromAgent) -> controller::Event {
    controller::Event::Heard { station: station.clone(), message }
}

fn agent_of(kind: Kind) -> Agent {
    let (mut agent, _) = Agent::resume(&[]);
    match kind {
        Kind::Powerless => agent.lacking(vec![Lack::Capability("CAP_NET_ADMIN".to_owned())]),
        Kind::Busy => {
            let ask = Ask::Begin {
                station: StationName::new("s").unwrap(),
                lease: Span::from_secs(3_600),
            };
            let other = ExperimentId::new("other").unwrap();
            let message = timewire_agent::protocol::message::ToAgent::new(&other, ask);
            agent.on(time(0, 0), agent::Event::Heard(message));
            agent
        }
        _ => agent,
    }
}

#[test]
fn t0_what_is_wrong_with_a_station_is_told_in_time_and_nothing_is_begun() {
    // What is wrong, what is said, and after how long at most.
    let table = [
        (Kind::Unreached, "not reached within 5s: refused", 5_000),
        (Kind::Unpaired, "not paired", 1_100),
        (Kind::Hangs, "no link to it within 5s", 5_000),
        (Kind::Silent, "it answers nothing within 5s", 5_001),
        (Kind::Reconnects, "it answers nothing within 5s", 5_001),
        (Kind::Busy, "it takes part in `other`", 1_100),
        (Kind::Powerless, "its steps change the host, and its agent lacks CAP_NET_ADMIN", 1_100),
        (Kind::Off, "its clock is 1s from the controller's, where 10ms are allowed", 1_100),
        (Kind::Dies, "it answers nothing more for 5s", 6_000),
    ];
    for (kind, why, within) in table {
        let came = fly(&[Kind::Ready(MS), kind, Kind::Ready(20 * MS)]);
        let end = came.end.unwrap_or_else(|| panic!("{kind:?}: no end"));
        let failures: Vec<String> = end.failures.iter().map(ToString::to_string).collect();
        assert_eq!(failures, [format!("preflight: s1: {why}")], "{kind:?}");
        let took = (came.at - 1_000 * MS) / MS;
        assert!(took <= within && !came.begun, "{kind:?}: {took} ms, begun: {}", came.begun);
        // Nobody is left changed, or has to be asked.
        assert!(end.stations.values().all(|s| s.restored == Some(Restored::default())), "{kind:?}");
        assert!(came.sent.iter().all(|sent| *sent <= 60), "{kind:?}: {:?} messages", came.sent);
    }
}

#[test]
fn t0_all_that_is_wrong_is_told_at_once() {
    let kinds = [Kind::Hangs, Kind::Unpaired, Kind::Ready(MS), Kind::Silent, Kind::Busy];
    let end = fly(&kinds).end.unwrap();
    assert_eq!(end.failures.len(), 4, "{:?}", end.failures);
}

#[test]
fn t0_stations_far_away_are_ready() {
    for trip in [MS, 200 * MS, 1_000 * MS, 4_000 * MS] {
        let came = fly(&[Kind::Ready(trip), Kind::Ready(MS)]);
        assert!(came.begun && came.end.is_none(), "{trip}");
    }
}
