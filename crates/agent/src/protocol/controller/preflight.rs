// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Before the first phase: whether every station can take part. Each must be reached, know this
//! controller, speak its version, be free, have the rights that its steps need, and tell its clock.
//! Nothing is changed before all can, and what is wrong with each is said at once.

use std::collections::BTreeMap;

use timewire_base::{Instant, Mono, Span, StationName};

use super::drive::{EXCHANGES, times};
use super::state::Station;
use super::{Action, Cause, Controller, Entry};
use crate::protocol::clock::Now;
use crate::protocol::message::{Ask, Lack, ToAgent};
use crate::protocol::name::ExperimentId;
use crate::protocol::outcome::Restored;
use crate::protocol::plan::{Phase, Timing};
use crate::protocol::task::Task;

/// How far a station is.
#[derive(Clone, Debug, Default)]
pub(super) struct Preflight {
    /// Its last sign of life; the begin before the first.
    pub sign: Option<Instant<Mono>>,
    /// It was linked.
    pub linked: bool,
    /// It said something.
    pub heard: bool,
    /// Its agent is a program that is started for the experiment.
    pub starts: bool,
    /// What it said of itself.
    pub answer: Option<(Vec<Lack>, Option<ExperimentId>)>,
    /// Why it cannot be reached, and whether that can change by itself.
    pub unreached: Option<(String, bool)>,
    /// When it was asked last.
    pub asked: Option<Instant<Mono>>,
    /// Whether it is known that it is ready, or that it is not.
    pub decided: bool,
}

/// A program that is started for the experiment may take so long before it says anything.
const START: Span = Span::from_secs(20);
/// A sign of life is waited for so many round trips: some losses in a row.
const ROUND_TRIPS: i64 = 16;

impl Station {
    /// Whether a step of its changes its host.
    fn changes_host(&self) -> bool {
        const VERBS: [&str; 4] = ["tdm", "receive", "apply", "clock"];
        let changes = |task: &Task| match task {
            Task::Apply { .. } => true,
            Task::Run(program) | Task::Start(program) => {
                let mut words = program.command.iter().map(String::as_str);
                let is_ours = words.next() == Some("timewire");
                is_ours && words.next().is_some_and(|verb| VERBS.contains(&verb))
            }
            _ => false,
        };
        self.plan.parts.values().flat_map(|part| &part.steps).any(|step| changes(&step.task))
    }

    /// Whether it is ready; why it will not be. `None` while it is not known yet.
    fn readiness(&self, timing: &Timing, now: Instant<Mono>) -> Option<Result<(), String>> {
        let Preflight { linked, heard, .. } = self.preflight;
        if let Some((why, true)) = &self.preflight.unreached {
            return Some(Err(why.clone()));
        }
        if let Some((lacks, busy)) = &self.preflight.answer {
            if let Some(with) = busy {
                return Some(Err(format!("it takes part in `{with}`")));
            }
            if self.changes_host() && !lacks.is_empty() {
                let lacks: Vec<String> = lacks.iter().map(ToString::to_string).collect();
                let why = "its steps change the host, and its agent lacks";
                return Some(Err(format!("{why} {}", lacks.join(", "))));
            }
            // More exchanges can tell it better, not move it.
            let runs = !self.part(Phase::Run).steps.is_empty();
            if let Some(bound) = self.clock.bound(now).filter(|_| runs)
                && bound.offset.as_ns().saturating_abs().saturating_sub(bound.error.as_ns())
                    > timing.clock_within.as_ns()
            {
                let (offset, allowed) = (bound.offset, timing.clock_within);
                let why = "its clock is";
                return Some(Err(format!(
                    "{why} {offset} from the controller's, where {allowed} are allowed"
                )));
            }
            if self.clock.count() >= EXCHANGES {
                return Some(Ok(()));
            }
        }
        let limit = self.limit(timing);
        let sign = self.preflight.sign?;
        if sign.saturating_add(limit) > now {
            return None;
        }
        let unreached = self.preflight.unreached.as_ref().map(|(why, _)| why.clone());
        Some(Err(match (unreached, linked, heard) {
            (Some(why), ..) => format!("not reached within {limit}: {why}"),
            (None, false, _) => format!("no link to it within {limit}"),
            (None, true, false) => format!("it answers nothing within {limit}"),
            (None, true, true) => format!("it answers nothing more for {limit}"),
        }))
    }

    /// How long it may give no sign of life: longer where it is started first, and where an answer
    /// has shown that it is far away.
    fn limit(&self, timing: &Timing) -> Span {
        let start =
            if self.preflight.starts && !self.preflight.linked { START } else { Span::ZERO };
        let far = times(self.clock.round_trip(), ROUND_TRIPS);
        timing.preflight.max(start).max(far)
    }

    fn wakes(&self, timing: &Timing) -> Option<Instant<Mono>> {
        let limit = self.limit(timing);
        let sign = self.preflight.sign.filter(|_| !self.preflight.decided);
        let end = sign.map(|sign| sign.saturating_add(limit));
        let again = self.preflight.asked.filter(|_| self.preflight.answer.is_none());
        let again = again.map(|asked| asked.saturating_add(timing.resend));
        [end, again, self.next_clock].into_iter().flatten().min()
    }
}

impl Controller {
    /// Goes on with it; whether it is over, well or not.
    pub(super) fn preflight(&mut self, now: Now, out: &mut Vec<Action>) -> bool {
        if !self.failures.is_empty() {
            self.close(out);
            return true;
        }
        let names: Vec<StationName> = self.stations.keys().cloned().collect();
        for name in &names {
            self.ask_before(name, now, out);
        }
        let timing = &self.plan.timing;
        let known: BTreeMap<&StationName, Option<Result<(), String>>> =
            self.stations.iter().map(|(n, s)| (n, s.readiness(timing, now.mono))).collect();
        let is_over = known.values().all(Option::is_some);
        if !is_over {
            let decided: Vec<(StationName, bool)> =
                known.iter().map(|(name, state)| ((*name).clone(), state.is_some())).collect();
            for (name, decided) in decided {
                if let Some(station) = self.stations.get_mut(&name) {
                    station.preflight.decided = decided;
                }
            }
            return false;
        }
        let wrong: Vec<(StationName, String)> = known
            .into_iter()
            .filter_map(|(name, state)| Some((name.clone(), state?.err()?)))
            .collect();
        if wrong.is_empty() {
            self.enter(Phase::Setup, 0, now, out);
        }
        for (name, why) in wrong {
            self.fail(Some(&name), Cause::NotReady { why }, out);
        }
        true
    }

    fn ask_before(&mut self, name: &StationName, now: Now, out: &mut Vec<Action>) {
        let resend = self.plan.timing.resend;
        let Some(station) = self.stations.get_mut(name) else { return };
        let state = &mut station.preflight;
        state.sign.get_or_insert(now.mono);
        let due = state.asked.is_none_or(|asked| asked.saturating_add(resend) <= now.mono);
        if state.answer.is_none() && due {
            state.asked = Some(now.mono);
            let message = ToAgent::new(&self.plan.experiment, Ask::Preflight);
            out.push(Action::Send { station: name.clone(), message });
        }
        self.ask_clock(name, now, out);
    }

    /// Ends an experiment that has changed nothing.
    fn close(&mut self, out: &mut Vec<Action>) {
        for station in self.stations.values_mut().filter(|station| !station.begun) {
            station.restored = Some(Restored::default());
        }
        self.write(Entry::Closed, out);
        out.push(Action::End(self.end()));
    }

    /// When it goes on by itself.
    pub(super) fn preflight_wakes(&self) -> Option<Instant<Mono>> {
        self.stations.values().filter_map(|station| station.wakes(&self.plan.timing)).min()
    }
}
