// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedule carried out by the kernel: queueing disciplines on each station's interface. Which
//! carrier the scheduled cases of a scenario get, and what works here.
//!
//! A virtual interface states 10 Gbit/s and would hand over at once whatever waits. The segment's
//! rate is kept below it for best effort, as a card of that rate would. Real-time frames are few,
//! and pass it.
//!
//! Not here: the words of `tc` and the choice (`timewire_sched::carrier`), trying (`probe`).

use std::sync::Arc;

use timewire_host::group::Group;
use timewire_lab::Lab;
use timewire_sched::carrier::{
    Asked, Choice, ScheduleCarrier, SlotPromise, Tried, choose, reservation, station_qdiscs,
};
use timewire_sched::scenario::{CaseMac, Scenario};
use timewire_sys::scheduler::RtPriority;
use timewire_trace::summary::{self, CarrierChoice, CarrierSummary, Fact, FactLevel};

use super::{Progress, probe};
use crate::CtlError;
use crate::rundir::ReservedMeta;
use crate::station::GROUP_PRIORITY;

/// A scenario whose cases all have their carriers, and what is known of them here.
pub(super) struct Resolved {
    pub(super) scenario: Scenario,
    /// What is told of the choice; none when there was nothing to choose.
    pub(super) choice: Option<CarrierChoice>,
    /// Every carrier of the kernel that a case uses, and what it lacks here.
    used: Vec<(ScheduleCarrier, String)>,
}

/// Gives the scheduled cases the carrier that was asked for, and tries all that are used.
///
/// **Errors**: one that is used does not work here.
pub(super) fn resolve(
    scenario: &Scenario,
    asked: Option<Asked>,
    lab: &Lab,
    progress: &mut dyn FnMut(Progress),
) -> Result<Resolved, CtlError> {
    let mut known: Vec<(ScheduleCarrier, Tried)> = Vec::new();
    let mut attempt = |carrier: ScheduleCarrier, known: &mut Vec<(ScheduleCarrier, Tried)>| {
        if let Some((_, tried)) = known.iter().find(|(other, _)| *other == carrier) {
            return Ok::<_, CtlError>(tried.clone());
        }
        progress(Progress::Step(format!("trying the carrier {carrier}")));
        let tried = probe::attempt(scenario, lab, carrier)?;
        known.push((carrier, tried.clone()));
        Ok(tried)
    };
    let mut resolved = scenario.clone();
    let mut choice = None;
    if let Some(asked) = asked {
        let candidates = match asked {
            Asked::Auto => ScheduleCarrier::BY_PREFERENCE.to_vec(),
            Asked::Only(carrier) => vec![carrier],
        };
        for carrier in candidates {
            attempt(carrier, &mut known)?;
        }
        let missing = known.iter().any(|(_, tried)| matches!(tried, Tried::Missing(_)));
        let taken = choose(asked, &known).map_err(|error| match (asked, &error.0[..]) {
            (Asked::Only(carrier), [only]) => CtlError::NoCarrier {
                what: format!(
                    "the carrier {carrier}, which --carrier asks for, does not work here"
                ),
                why: only.why.clone(),
                missing,
            },
            _ => CtlError::NoCarrier {
                what: "no carrier works here".to_owned(),
                why: error.to_string(),
                missing,
            },
        })?;
        for case in resolved.experiment.cases.iter_mut().filter(|c| c.mac == CaseMac::Tdm) {
            case.mac = taken.carrier.case_mac();
        }
        choice = Some(told(scenario, asked, &taken));
    }
    let mut used = Vec::new();
    for case in &resolved.experiment.cases {
        let Some(carrier) = ScheduleCarrier::of_case(case.mac).filter(|c| c.is_kernels()) else {
            continue;
        };
        if used.iter().any(|(other, _)| *other == carrier) {
            continue;
        }
        let what =
            format!("the carrier {carrier}, which a case of the scenario uses, does not work here");
        match attempt(carrier, &mut known)? {
            Tried::Works => used.push((carrier, String::new())),
            Tried::Lacks(lacks) => used.push((carrier, lacks)),
            Tried::Missing(why) => {
                return Err(CtlError::NoCarrier { what, why, missing: true });
            }
            Tried::Fails(why) => return Err(CtlError::NoCarrier { what, why, missing: false }),
        }
    }
    Ok(Resolved { scenario: resolved, choice, used })
}

fn told(scenario: &Scenario, asked: Asked, taken: &Choice) -> CarrierChoice {
    CarrierChoice {
        scenario: scenario.name.to_string(),
        asked: match asked {
            Asked::Auto => "auto".to_owned(),
            Asked::Only(carrier) => carrier.to_string(),
        },
        chosen: taken.carrier.to_string(),
        why: taken.why.clone(),
        lacks: taken.lacks.clone(),
        passed_over: taken
            .passed_over
            .iter()
            .map(|passed| summary::PassedOver {
                carrier: passed.carrier.to_string(),
                why: passed.why.clone(),
            })
            .collect(),
    }
}

impl Resolved {
    /// What the stations use.
    pub(super) fn facts(&self, carrier: ScheduleCarrier) -> Vec<Fact> {
        let fact = |name: &str, value: &str, level| Fact {
            area: format!("carrier {carrier} of {}", self.scenario.name),
            name: name.to_owned(),
            value: value.to_owned(),
            level,
        };
        let mut facts = vec![fact("transmit", disciplines(carrier), FactLevel::Ok)];
        let lacks = self.used.iter().find(|(used, _)| *used == carrier);
        if let Some((_, lacks)) = lacks.filter(|(_, lacks)| !lacks.is_empty()) {
            facts.push(fact("priorities", lacks, FactLevel::Degraded));
        }
        facts
    }
}

fn disciplines(carrier: ScheduleCarrier) -> &'static str {
    match carrier {
        ScheduleCarrier::Taprio => "taprio in software, by socket priority; tbf for best effort",
        ScheduleCarrier::TaprioAssist => "taprio with txtime-assist over etf, by socket priority",
        ScheduleCarrier::Mac => "Timewire's MAC",
        ScheduleCarrier::Etf => "etf in software for real time; tbf for best effort, without gates",
        ScheduleCarrier::Cbs => "cbs in software for real time; tbf for best effort",
    }
}

/// What a case's carrier promises; `None` for plain Ethernet.
pub(super) fn of_case(mac: CaseMac) -> Option<CarrierSummary> {
    let carrier = ScheduleCarrier::of_case(mac)?;
    Some(CarrierSummary {
        name: carrier.to_string(),
        slots: match carrier.slots() {
            SlotPromise::All => summary::SlotPromise::All,
            SlotPromise::RealTime => summary::SlotPromise::RealTime,
            SlotPromise::None => summary::SlotPromise::None,
        },
        promise: carrier.promise().to_owned(),
    })
}

/// What the stations reserve, where the carrier is about that.
pub(super) fn reserved(scenario: &Scenario, mac: CaseMac) -> Result<Vec<ReservedMeta>, CtlError> {
    if mac != CaseMac::Cbs {
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

pub(super) fn invalid(error: impl ToString) -> CtlError {
    CtlError::Invalid(error.to_string())
}

/// Gives every station its disciplines; a station without a slot gets none, and must not send.
pub(super) fn install(
    scenario: &Scenario,
    lab: &Lab,
    carrier: ScheduleCarrier,
) -> Result<(), CtlError> {
    for station in scenario.stations_with_slots() {
        let lines = station_qdiscs(scenario, &station.name, carrier).map_err(invalid)?;
        lab.add_qdiscs(&station.name, &lines)?;
    }
    Ok(())
}

/// Takes them away.
pub(super) fn remove(scenario: &Scenario, lab: &Lab) -> Result<(), CtlError> {
    for station in scenario.stations_with_slots() {
        lab.remove_qdiscs(&station.name)?;
    }
    Ok(())
}

/// Where the programs of real-time streams go: there is no MAC that has a group for them.
pub(super) fn priority_group(lab: &Lab) -> Group {
    let priority = RtPriority::new(GROUP_PRIORITY)
        .expect("invariant: the priority lies in the kernel's range");
    Group::new(Arc::clone(lab.journal()), priority)
}
