// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This host as a station of a scenario: every scenario of the repository, each of its stations, on
//! every recorded host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use timewire_base::{IfName, Span, StationName};
use timewire_host::doctor::{
    self, Check, Diagnosis, Finding, Probe, ProbeOutcome, Probes, Question, State, StationAsked,
    Verdict,
};
use timewire_host::snapshot::Snapshot;
use timewire_host::snapshot::model::{Bounded, Reading};
use timewire_model::scenario::{FileKind, Scenario, with_included};
use timewire_tsn::backend::{SlotPromise, TransmitBackend};
use timewire_tsn::file::ParseFile;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn recorded(name: &str) -> (Snapshot, Probes) {
    let directory = repository().join("fixtures/hosts").join(name);
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let snapshot = Snapshot::parse(&read("snapshot.json")).unwrap();
    (snapshot, serde_json::from_str(&read("probes.json")).unwrap())
}

/// A real-time kernel with a NIC of four queues.
const I225: &str = "i225-6.12-rt";

fn hosts() -> Vec<(String, (Snapshot, Probes))> {
    let mut names: Vec<String> = std::fs::read_dir(repository().join("fixtures/hosts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() > 5, "{names:?}");
    names.into_iter().map(|name| (name.clone(), recorded(&name))).collect()
}

/// All scenarios of the repository.
fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(repository().join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "yaml") {
            continue;
        }
        let text = with_included(&path, &mut |path| std::fs::read_to_string(path)).unwrap();
        if FileKind::of(&text) == Some(FileKind::Segment) {
            all.push(Scenario::parse("x", &text).unwrap_or_else(|e| panic!("{e}")));
        }
    }
    assert!(all.len() > 8, "{}", all.len());
    all
}

fn eth0() -> IfName {
    IfName::new("eth0").unwrap()
}

fn judged(
    host: &(Snapshot, Probes),
    scenario: &Scenario,
    station: &StationName,
    by: Option<TransmitBackend>,
) -> Diagnosis {
    let (scenario, station) = (scenario.clone(), station.clone());
    let asked = StationAsked { scenario, station, interface: eth0(), by };
    doctor::judge(&host.0, &host.1, &Question::Station(Box::new(asked)))
}

fn of(diagnosis: &Diagnosis, check: Check) -> Vec<&Finding> {
    diagnosis.findings.iter().filter(|finding| finding.id == check).collect()
}

/// The backends that a station of a scenario needs.
fn needed(scenario: &Scenario, by: Option<TransmitBackend>) -> BTreeSet<TransmitBackend> {
    let cases = scenario.experiment.cases.iter();
    let of_cases = || cases.filter_map(|case| TransmitBackend::of_case(case.backend)).collect();
    by.map_or_else(of_cases, |backend| BTreeSet::from([backend]))
}

/// What of a judgement must be there, and what must not.
fn check_one(what: &str, diagnosis: &Diagnosis, backends: &BTreeSet<TransmitBackend>) {
    let count = |check| of(diagnosis, check).len();
    let slots = backends.iter().any(|backend| backend.slots() != SlotPromise::None);
    let kernels = backends.iter().filter(|backend| backend.is_kernels()).count();
    let etf = backends
        .iter()
        .any(|backend| matches!(backend, TransmitBackend::Etf | TransmitBackend::TaprioAssist));
    assert_eq!(count(Check::Backend), backends.len().max(1), "{what}");
    assert_eq!(count(Check::ClockError), usize::from(slots), "{what}");
    assert_eq!(count(Check::Guard), usize::from(slots), "{what}");
    assert_eq!(count(Check::LaunchDelta), usize::from(etf), "{what}");
    let mac = backends.contains(&TransmitBackend::Mac);
    assert_eq!(count(Check::Margin), usize::from(mac), "{what}");
    assert_eq!(count(Check::Link), 1, "{what}");
    let is_there = of(diagnosis, Check::Link)[0].state != State::Missing;
    assert_eq!(count(Check::LinkRate), usize::from(is_there), "{what}");
    assert_eq!(count(Check::LinkQueues), if is_there { kernels } else { 0 }, "{what}");
    // Its clock counts, and nothing of the laboratory does.
    let synchronised = of(diagnosis, Check::ClockSynchronised)[0].state;
    assert_ne!(synchronised, State::NotAsked, "{what}");
    for finding in &diagnosis.findings {
        assert!(!finding.id.id().starts_with("laboratory."), "{what}: {finding:?}");
        let bad = matches!(finding.state, State::Missing | State::Degraded);
        assert!(!bad || !finding.mend.is_empty(), "{what}: {finding:?}");
        let lab = |mend: &String| mend.contains("--on lab");
        assert!(!finding.mend.iter().any(lab), "{what}: {finding:?}");
    }
    // Nothing that is missing is passed over.
    let missing = diagnosis.missing().next().is_some();
    assert_eq!(diagnosis.verdict == Verdict::No, missing, "{what}");
    let taken = diagnosis.backend.and_then(doctor::BackendVariant::backend);
    assert!(taken.is_none_or(|taken| backends.contains(&taken)), "{what}: {taken:?}");
}

#[test]
fn t1_every_station_of_every_scenario_is_judged_on_every_host() {
    let (mut judgements, mut verdicts) = (0, BTreeSet::new());
    let asked: Vec<Option<TransmitBackend>> =
        std::iter::once(None).chain(TransmitBackend::BY_PREFERENCE.map(Some)).collect();
    for (host, recorded) in hosts() {
        for scenario in scenarios() {
            for station in &scenario.stations {
                for by in &asked {
                    let diagnosis = judged(&recorded, &scenario, &station.name, *by);
                    let what = format!("{host}: {} of {} {by:?}", station.name, scenario.name);
                    check_one(&what, &diagnosis, &needed(&scenario, *by));
                    let first = doctor::text(&diagnosis, false);
                    let first = first.lines().next().unwrap();
                    let (name, station) = (&scenario.name, &station.name);
                    let said = format!("scenario {name}, this host as {station} on eth0");
                    assert_eq!(first, said);
                    judgements += 1;
                    verdicts.insert(diagnosis.exit_code());
                }
            }
            // In the laboratory no interface counts, and the first line says how to ask about this.
            let question = Question::Scenario(Box::new(scenario.clone()));
            let diagnosis = doctor::judge(&recorded.0, &recorded.1, &question);
            assert!(of(&diagnosis, Check::Link).is_empty());
            let text = doctor::text(&diagnosis, false);
            let first = text.lines().next().unwrap();
            let asks = format!("to judge this host: --station {}|", scenario.stations[0].name);
            assert!(first.contains(&asks), "{first}");
        }
    }
    assert!(judgements > 500, "{judgements}");
    assert_eq!(verdicts, BTreeSet::from([1, 4]), "no recorded host is without a finding");
}

/// A station without a slot sends nothing, so it needs nobody who keeps its slots.
#[test]
fn t1_a_station_that_sends_nothing_needs_no_backend() {
    let text = "timewire: 1
name: listening
kind: network
segments: [{ rate: 1Gbit }]
stations:
  - { name: alpha, address: 10.77.0.1/24 }
  - { name: beta, address: 10.77.0.2/24 }
  - { name: gamma, address: 10.77.0.3/24 }
schedule:
  kind: tdm
  by: taprio
  cycle_time: 1ms
  guard: 50us
  slots: [{ station: alpha, transmit: 300us }, { station: beta, transmit: 300us }]
mac: { queue_frames: 64 }
streams:
  - { name: load, kind: flood, talker: alpha, listeners: gamma, port: 17001, size: 1400B,
      rate: 1Mbit }
  - { name: c, kind: request-response, talker: alpha, listeners: beta, port: 15001, size: 64B,
      deadline: 1ms, timeout: 100ms }
duration: 1300ms
warm_up: 300ms
experiment:
  loads: [alone]
  cases: [{ name: t, title: T }]
";
    let scenario = Scenario::parse("x", text).unwrap_or_else(|e| panic!("{e}"));
    let host = recorded(I225);
    let judged = |name: &str| judged(&host, &scenario, &StationName::new(name).unwrap(), None);
    let gamma = judged("gamma");
    assert_eq!(of(&gamma, Check::Backend)[0].found, "gamma has no slot and sends nothing");
    assert!(of(&gamma, Check::ClockError).is_empty() && of(&gamma, Check::LinkQueues).is_empty());
    // The longest packet is that of its own streams.
    let mtu = |diagnosis: &Diagnosis| of(diagnosis, Check::LinkMtu)[0].found.clone();
    assert!(mtu(&gamma).contains("1428 bytes"), "{}", mtu(&gamma));
    assert!(mtu(&judged("beta")).contains("92 bytes"), "{}", mtu(&judged("beta")));
}

/// Two clocks are apart by the errors of both.
#[test]
fn t1_the_error_of_the_clock_is_held_against_half_the_guard() {
    let scenario = scenarios().into_iter().find(|it| it.name.as_str() == "taprio-64").unwrap();
    let half = 20_000;
    let cases = [
        (true, 0, State::Ok),
        (true, half, State::Ok),
        (true, half + 1, State::Degraded),
        (true, 16_000_000_000, State::Degraded),
        (false, 0, State::Degraded),
    ];
    for (synchronised, error, state) in cases {
        let mut host = recorded(I225);
        let Reading::Known(clock) = &mut host.0.state.host.clock else { panic!("it has a clock") };
        (clock.synchronised, clock.max_error) = (synchronised, Span::from_ns(error));
        let diagnosis = judged(&host, &scenario, &scenario.stations[0].name, None);
        let found = of(&diagnosis, Check::ClockError)[0];
        assert_eq!(found.state, state, "{synchronised} {error}: {found:?}");
    }
}

/// Whatever a backend needs and this host has not is missing, and is told by the station's check.
#[test]
fn t1_a_station_lacks_what_its_backend_lacks() {
    let scenario = scenarios().into_iter().find(|it| it.name.as_str() == "taprio-64").unwrap();
    let lacks: [(TransmitBackend, Probe); 6] = [
        (TransmitBackend::Taprio, Probe::Taprio),
        (TransmitBackend::TaprioAssist, Probe::TaprioTxtimeAssist),
        (TransmitBackend::TaprioAssist, Probe::Etf),
        (TransmitBackend::Etf, Probe::Etf),
        (TransmitBackend::Etf, Probe::LaunchTimes),
        (TransmitBackend::Cbs, Probe::Cbs),
    ];
    let alpha = &scenario.stations[0].name;
    let verdict = |host: &_, by| judged(host, &scenario, alpha, Some(by)).verdict;
    for (backend, probe) in lacks {
        let mut host = recorded(I225);
        assert_ne!(verdict(&host, backend), Verdict::No, "{backend}");
        let said = "Specified qdisc kind is unknown".to_owned();
        host.1.results.insert(probe, ProbeOutcome::Absent { said });
        assert_eq!(verdict(&host, backend), Verdict::No, "{backend} without {probe:?}");
    }
    for backend in TransmitBackend::BY_PREFERENCE {
        let mut host = recorded(I225);
        let nic = host.0.settings.interfaces.get_mut(&eth0()).unwrap();
        let Reading::Known(channels) = &mut nic.channels else { panic!("it has channels") };
        channels.combined = Some(Bounded { now: 1, most: Some(1) });
        let expected = backend.is_kernels();
        assert_eq!(verdict(&host, backend) == Verdict::No, expected, "{backend} with one queue");
        host.0.settings.interfaces.clear();
        assert_eq!(verdict(&host, backend), Verdict::No, "{backend} without the interface");
    }
    // A slot that is too short at the rate that the interface states.
    let mut host = recorded(I225);
    host.0.state.interfaces.get_mut(&eth0()).unwrap().speed_mbps = Some(1);
    let diagnosis = judged(&host, &scenario, alpha, Some(TransmitBackend::Taprio));
    assert_eq!(of(&diagnosis, Check::Gates)[0].state, State::Missing);
}
