// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedule carried out by the kernel: queueing disciplines on each station's interface. Which
//! backend the scheduled cases of a scenario get, and what works here.
//!
//! A virtual interface states 10 Gbit/s and would hand over at once whatever waits. The segment's
//! rate is kept below it for best effort, as a NIC of that rate would. Real-time frames are few,
//! and pass it.

use timewire_capture::summary::{self, BackendChoice, BackendSummary, Fact, FactLevel};
use timewire_lab::Lab;
use timewire_model::scenario::{CaseBackend, Scenario};
use timewire_tsn::backend::{
    Asked, Choice, SlotPromise, TransmitBackend, Tried, choose, reservation, station_qdiscs,
};

use super::{Progress, probe};
use crate::RunnerError;
use crate::rundir::ReservedMeta;

/// A scenario whose cases all have their backends, and what is known of them here.
pub(super) struct Resolved {
    pub(super) scenario: Scenario,
    /// What is told of the choice; none when there was nothing to choose.
    pub(super) choice: Option<BackendChoice>,
    /// Every backend of the kernel that a case uses, and what it lacks here.
    used: Vec<(TransmitBackend, String)>,
}

/// Gives the scheduled cases the backend that was asked for, and tries all that are used.
///
/// **Errors**: one that is used does not work here.
pub(super) fn resolve(
    scenario: &Scenario,
    asked: Option<Asked>,
    lab: &Lab,
    progress: &mut dyn FnMut(Progress),
) -> Result<Resolved, RunnerError> {
    let mut known: Vec<(TransmitBackend, Tried)> = Vec::new();
    let mut attempt = |backend: TransmitBackend, known: &mut Vec<(TransmitBackend, Tried)>| {
        if let Some((_, tried)) = known.iter().find(|(other, _)| *other == backend) {
            return Ok::<_, RunnerError>(tried.clone());
        }
        progress(Progress::Step(format!("trying the backend {backend}")));
        let tried = probe::attempt(scenario, lab, backend)?;
        known.push((backend, tried.clone()));
        Ok(tried)
    };
    let mut resolved = scenario.clone();
    let mut choice = None;
    if let Some(asked) = asked {
        let candidates = match asked {
            Asked::Auto => TransmitBackend::BY_PREFERENCE.to_vec(),
            Asked::Only(backend) => vec![backend],
        };
        for backend in candidates {
            attempt(backend, &mut known)?;
        }
        let missing = known.iter().any(|(_, tried)| matches!(tried, Tried::Missing(_)));
        let taken = choose(asked, &known).map_err(|error| match (asked, &error.0[..]) {
            (Asked::Only(backend), [only]) => RunnerError::NoBackend {
                what: format!(
                    "the backend {backend}, which --backend asks for, does not work here"
                ),
                why: only.why.clone(),
                missing,
            },
            _ => RunnerError::NoBackend {
                what: "no backend works here".to_owned(),
                why: error.to_string(),
                missing,
            },
        })?;
        for case in resolved.experiment.cases.iter_mut().filter(|c| c.backend == CaseBackend::Mac) {
            case.backend = taken.backend.case_backend();
        }
        choice = Some(told(scenario, asked, &taken));
    }
    let mut used = Vec::new();
    for case in &resolved.experiment.cases {
        let Some(backend) = TransmitBackend::of_case(case.backend).filter(|c| c.is_kernels())
        else {
            continue;
        };
        if used.iter().any(|(other, _)| *other == backend) {
            continue;
        }
        let what =
            format!("the backend {backend}, which a case of the scenario uses, does not work here");
        match attempt(backend, &mut known)? {
            Tried::Works => used.push((backend, String::new())),
            Tried::Lacks(lacks) => used.push((backend, lacks)),
            Tried::Missing(why) => {
                return Err(RunnerError::NoBackend { what, why, missing: true });
            }
            Tried::Fails(why) => return Err(RunnerError::NoBackend { what, why, missing: false }),
        }
    }
    Ok(Resolved { scenario: resolved, choice, used })
}

pub(super) fn told(scenario: &Scenario, asked: Asked, taken: &Choice) -> BackendChoice {
    BackendChoice {
        scenario: scenario.name.to_string(),
        asked: match asked {
            Asked::Auto => "auto".to_owned(),
            Asked::Only(backend) => backend.to_string(),
        },
        chosen: taken.backend.to_string(),
        why: taken.why.clone(),
        lacks: taken.lacks.clone(),
        passed_over: taken
            .passed_over
            .iter()
            .map(|passed| summary::PassedOver {
                backend: passed.backend.to_string(),
                why: passed.why.clone(),
            })
            .collect(),
    }
}

impl Resolved {
    /// What the stations use.
    pub(super) fn facts(&self, backend: TransmitBackend) -> Vec<Fact> {
        let fact = |name: &str, value: &str, level| Fact {
            area: format!("backend {backend} of {}", self.scenario.name),
            name: name.to_owned(),
            value: value.to_owned(),
            level,
        };
        let mut facts = vec![fact("transmit", disciplines(backend), FactLevel::Ok)];
        let lacks = self.used.iter().find(|(used, _)| *used == backend);
        if let Some((_, lacks)) = lacks.filter(|(_, lacks)| !lacks.is_empty()) {
            facts.push(fact("priorities", lacks, FactLevel::Degraded));
        }
        facts
    }
}

fn disciplines(backend: TransmitBackend) -> &'static str {
    match backend {
        TransmitBackend::Taprio => "taprio in software, by socket priority; tbf for best effort",
        TransmitBackend::TaprioAssist => "taprio with txtime-assist over etf, by socket priority",
        TransmitBackend::Mac => "Timewire's MAC",
        TransmitBackend::Etf => "etf in software for real time; tbf for best effort, without gates",
        TransmitBackend::Cbs => "cbs in software for real time; tbf for best effort",
    }
}

/// What a case's backend promises; `None` for plain Ethernet.
pub(super) fn of_case(mac: CaseBackend) -> Option<BackendSummary> {
    let backend = TransmitBackend::of_case(mac)?;
    Some(BackendSummary {
        name: backend.to_string(),
        slots: match backend.slots() {
            SlotPromise::All => summary::SlotPromise::All,
            SlotPromise::RealTime => summary::SlotPromise::RealTime,
            SlotPromise::None => summary::SlotPromise::None,
        },
        promise: backend.promise().to_owned(),
    })
}

/// What the stations reserve, where the backend is about that.
pub(super) fn reserved(
    scenario: &Scenario,
    mac: CaseBackend,
) -> Result<Vec<ReservedMeta>, RunnerError> {
    if mac != CaseBackend::Cbs {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for station in &scenario.stations {
        let found = reservation(scenario, &station.name).map_err(invalid)?;
        all.extend(found.map(|reservation| ReservedMeta {
            station: station.name.to_string(),
            rate: reservation.rate,
            burst_bits: reservation.burst_bits,
        }));
    }
    Ok(all)
}

pub(super) fn invalid(error: impl ToString) -> RunnerError {
    RunnerError::Invalid(error.to_string())
}

/// Gives every station its disciplines; a station without a slot gets none, and must not send.
pub(super) fn install(
    scenario: &Scenario,
    lab: &Lab,
    backend: TransmitBackend,
) -> Result<(), RunnerError> {
    for station in scenario.stations_with_slots() {
        let lines = station_qdiscs(scenario, &station.name, backend).map_err(invalid)?;
        lab.add_qdiscs(&station.name, &lines)?;
    }
    Ok(())
}

/// Takes them away.
pub(super) fn remove(scenario: &Scenario, lab: &Lab) -> Result<(), RunnerError> {
    for station in scenario.stations_with_slots() {
        lab.remove_qdiscs(&station.name)?;
    }
    Ok(())
}
