// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one station of a scenario needs of this host and of the interface to the segment: queues,
//! gates that the link can have, launch times, a clock that is exact enough for the guard.

use timewire_base::{BitsPerSecond, IfName, Span, StationName};
use timewire_model::scenario::{Scenario, Stream};
use timewire_tsn::backend::{BackendError, SlotPromise, TransmitBackend, station_qdiscs};
use timewire_tsn::qdisc::{TdmPort, taprio_of_station};

use super::about_desired;
use super::about_link::{Link, queues};
use super::about_scenario::{self, Ground, Needed};
use super::finding::{Check, Finding, State};

/// This host as a station of a scenario.
#[derive(Clone, Debug)]
pub struct StationAsked {
    /// The scenario.
    pub scenario: Scenario,
    /// Which of its stations.
    pub station: StationName,
    /// The interface to the segment.
    pub interface: IfName,
    /// Who carries the schedule out; without, what the cases of the scenario ask for.
    pub by: Option<TransmitBackend>,
}

impl StationAsked {
    /// Of a station that never sends, no backend is needed.
    pub(super) fn needed(&self) -> Vec<Needed> {
        let sends = !self.scenario.schedule.windows_of(&self.station).windows().is_empty();
        match self.by {
            Some(backend) => vec![Needed::by_hand(backend)],
            None if sends => about_scenario::of_cases(&self.scenario),
            None => Vec::new(),
        }
    }
}

/// The findings about a station. Without its interface there are those of the host alone.
pub(super) fn findings(asked: &StationAsked, ground: &Ground<'_>) -> Vec<Finding> {
    let (needed, scenario) = (asked.needed(), &asked.scenario);
    let another = |needed: &Needed| another_backend(asked, needed, ground);
    let mut all = about_scenario::carried(&needed, scenario.mac.socket, ground, another);
    if needed.is_empty() && !scenario.schedule.slots().is_empty() {
        let found = format!("{} has no slot and sends nothing", asked.station);
        all.push(Finding::ok(Check::Backend, found));
    }
    if needed.iter().any(|needed| needed.backend.slots() != SlotPromise::None) {
        all.extend(about_scenario::guard(scenario, ground, EXACT));
        let error = clock_error(scenario, ground);
        all.extend(error.map(|finding| finding.needed_by("the guard between slots")));
    }
    if needed.iter().any(|needed| needed.backend == TransmitBackend::Mac) {
        all.extend(about_scenario::mac_times(scenario, ground));
    }
    all.extend(launch_delta(&needed, scenario, ground));
    if let Some(link) = ground.link {
        let takes_part = |stream: &&Stream| has(stream, &asked.station);
        let streams = scenario.streams.iter().filter(takes_part);
        all.extend(about_scenario::on_link(scenario, streams, &link));
        for needed in &needed {
            all.extend(on_queues(asked, needed, ground, &link));
        }
    }
    all.extend(about_scenario::receive(scenario, ground));
    all
}

/// A backend that this host has instead of the one that is needed.
fn another_backend(asked: &StationAsked, needed: &Needed, ground: &Ground<'_>) -> String {
    let mut variants = ground.variants.iter().filter(|variant| variant.possible);
    let other = variants.find_map(|variant| {
        let backend = variant.backend.backend()?;
        (backend != needed.backend && backend.slots() == SlotPromise::All).then_some(backend)
    });
    match (other, asked.by) {
        (Some(TransmitBackend::Mac), Some(_)) => format!(
            "timewire tdm start {} --file FILE --station {}, for a MAC that works here",
            asked.interface, asked.station
        ),
        (Some(other), _) => {
            format!("`by: {}` in the `schedule`, which works here", other.case_backend().word())
        }
        (None, _) => "another kernel or NIC: see `timewire doctor` of the interface".to_owned(),
    }
}

/// Where nothing is late.
const EXACT: &str = "a host of a better class of accuracy: see `timewire doctor`";

/// Whether messages of a stream go to or come from a station.
fn has(stream: &Stream, station: &StationName) -> bool {
    match stream {
        Stream::RequestResponse(it) => it.talker == *station || it.listeners == *station,
        Stream::Cyclic(it) => it.talker == *station || it.listeners == *station,
        Stream::Sporadic(it) => it.talker == *station || it.listeners == *station,
        Stream::Pipeline(it) => it.stations.contains(station),
        Stream::Flood(it) => it.talker == *station || it.listeners == *station,
    }
}

/// The clocks of two stations can be apart by the error of both, and the guard is all that is
/// between their slots.
fn clock_error(scenario: &Scenario, ground: &Ground<'_>) -> Option<Finding> {
    let id = Check::ClockError;
    let least = scenario.schedule.slots().iter().map(|slot| slot.guard).min()?;
    let half = Span::from_ns(least.as_ns() / 2);
    let clock = ground.snapshot.state.host.clock.known();
    let Some(clock) = clock.filter(|clock| clock.synchronised) else {
        let found = format!("nothing says how exact the clock is; half the guard is {half}");
        return Some(
            Finding::new(id, State::Degraded, found)
                .mended_by("host settings with `clock: {interfaces: [...]}`: timewire apply FILE"),
        );
    };
    let found = format!("at most {}, and half the guard is {half}", clock.max_error);
    if clock.max_error <= half {
        return Some(Finding::ok(id, found));
    }
    let guard = clock.max_error.checked_add(clock.max_error).unwrap_or(Span::MAX);
    Some(
        Finding::new(id, State::Degraded, found)
            .mended_by("host settings with `clock: {interfaces: [...]}`: timewire apply FILE")
            .mended_by(format!("`guard: {guard}` in the schedule")),
    )
}

/// `etf` hands a frame over so long before its launch time; a wake-up that is later loses it.
fn launch_delta(needed: &[Needed], scenario: &Scenario, ground: &Ground<'_>) -> Option<Finding> {
    let uses_etf = |needed: &&Needed| {
        matches!(needed.backend, TransmitBackend::Etf | TransmitBackend::TaprioAssist)
    };
    let by = needed.iter().find(uses_etf)?;
    let (id, delta) = (Check::LaunchDelta, scenario.mac.launch_delta);
    let class = ground.accuracy.class.word();
    let finding = match ground.accuracy.allowance {
        Some(allowance) if delta >= allowance => {
            Finding::ok(id, format!("{delta}, and the class {class} asks for {allowance}"))
        }
        Some(allowance) => {
            let found = format!("{delta}, and the class {class} asks for {allowance}");
            Finding::new(id, State::Degraded, found)
                .mended_by(format!("`launch_delta: {allowance}` in `mac`"))
        }
        None => Finding::new(
            id,
            State::Degraded,
            format!("{delta}, and the class {class} has no bound"),
        ),
    };
    Some(finding.needed_by(by.by.clone()))
}

/// What a backend of the kernel needs of the interface: a queue for each of its two classes, and
/// gates that can be made of the slots at the rate that it states.
fn on_queues(
    asked: &StationAsked,
    needed: &Needed,
    ground: &Ground<'_>,
    link: &Link<'_>,
) -> Vec<Finding> {
    if !needed.backend.is_kernels() {
        return Vec::new();
    }
    let queues = queues(link, CLASSES, &needed.by);
    let mut all = vec![match queues.state {
        State::Missing => queues.mended_by(another_backend(asked, needed, ground)),
        _ => queues,
    }];
    let mbit = link.state.and_then(|state| state.speed_mbps).filter(|mbit| *mbit > 0);
    // What taprio reckons with where none is stated.
    let stated = BitsPerSecond::new(mbit.unwrap_or(10).saturating_mul(1_000_000));
    let Some(stated) = stated else { return all };
    let made = match needed.backend {
        TransmitBackend::Taprio => {
            let port = TdmPort { stated, ..TdmPort::virtual_of(&asked.scenario) };
            taprio_of_station(&asked.scenario.schedule, &asked.station, &port)
                .map(|gates| Some(gates.taprio))
                .map_err(BackendError::from)
        }
        backend => station_qdiscs(&asked.scenario, &asked.station, backend).map(|_| None),
    };
    match made {
        Ok(Some(taprio)) => {
            let intervals = taprio.options().entries.iter().map(|entry| entry.interval);
            if let Some(shortest) = intervals.min() {
                all.push(about_desired::gate_length(shortest, ground.accuracy).of(link.name));
            }
        }
        Ok(None) => {}
        Err(error) => all.push(
            Finding::new(Check::Gates, State::Missing, error.to_string())
                .mended_by("longer slots or shorter frames in the scenario")
                .of(link.name)
                .needed_by(needed.by.clone()),
        ),
    }
    all
}

/// Best effort and real time, a queue each.
const CLASSES: u64 = 2;
