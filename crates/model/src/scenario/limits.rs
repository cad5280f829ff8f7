// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits that the rules of a file stand for.

use super::model::{CaseBackend, Limit, LimitRule, Metric, Reference, ReferenceRule, Scenario};
use super::value::Name;

impl Scenario {
    /// The limits of the verdict, in the order of the file: of each rule one for each of its
    /// streams, cases and loads.
    pub fn limits(&self) -> Vec<Limit> {
        self.limits.iter().flat_map(|rule| rule.limits(self)).collect()
    }
}

impl LimitRule {
    /// The limits that it stands for.
    pub(super) fn limits(&self, scenario: &Scenario) -> Vec<Limit> {
        let streams: Vec<Option<&Name>> = match &self.stream {
            Some(streams) => streams.all().iter().map(Some).collect(),
            None => vec![None],
        };
        let cases: Vec<&Name> = match &self.case {
            Some(cases) => cases.all().iter().collect(),
            None => self.cases_with_metric(scenario),
        };
        let mut limits = Vec::new();
        for stream in &streams {
            let loads: Vec<&Name> = match &self.load {
                Some(loads) => loads.all().iter().collect(),
                None => loads_of(scenario, *stream),
            };
            for case in &cases {
                for load in &loads {
                    let mut id = self.id.to_string();
                    let parts = [
                        (streams.len(), *stream),
                        (cases.len(), Some(*case)),
                        (loads.len(), Some(*load)),
                    ];
                    for part in parts.into_iter().filter(|it| it.0 > 1).filter_map(|it| it.1) {
                        id += &format!("-{part}");
                    }
                    limits.push(Limit {
                        id,
                        metric: self.metric,
                        stream: stream.cloned(),
                        case: (*case).clone(),
                        load: (*load).clone(),
                        at_most: self.at_most,
                        relative_to: self.relative_to.as_ref().map(|it| it.resolve(case, load)),
                    });
                }
            }
        }
        limits
    }

    /// Where no case is named: all that have the metric, but the one that is compared with.
    fn cases_with_metric<'a>(&self, scenario: &'a Scenario) -> Vec<&'a Name> {
        let reference = self.relative_to.as_ref().and_then(|it| it.case.as_ref());
        let cases = scenario.experiment.cases.iter();
        let has_metric = cases.filter(|case| lacks(self.metric, case.backend).is_none());
        has_metric.map(|case| &case.name).filter(|name| Some(*name) != reference).collect()
    }
}

impl ReferenceRule {
    fn resolve(&self, case: &Name, load: &Name) -> Reference {
        Reference {
            case: self.case.as_ref().unwrap_or(case).clone(),
            load: self.load.as_ref().unwrap_or(load).clone(),
        }
    }
}

/// All loads in which a stream runs; without a stream, all.
fn loads_of<'a>(scenario: &'a Scenario, stream: Option<&Name>) -> Vec<&'a Name> {
    let runs = |load: &&Name| match stream {
        Some(name) => scenario.measured_in(load).any(|measured| measured.name == *name),
        None => true,
    };
    scenario.experiment.loads.iter().filter(runs).collect()
}

/// Why a case with this backend does not have the metric, and which does.
pub(super) fn lacks(metric: Metric, backend: CaseBackend) -> Option<(&'static str, &'static str)> {
    let slots = "name a case with slots: `by: mac` or `by: taprio` in its `schedule`";
    match (metric, backend) {
        (Metric::OutsideSlots | Metric::OutsideSlotsRealTime, CaseBackend::None) => {
            Some(("is plain Ethernet, without slots", slots))
        }
        (Metric::OutsideSlots | Metric::OutsideSlotsRealTime, CaseBackend::Cbs) => {
            Some(("keeps a rate, and has no slots", slots))
        }
        (Metric::OutsideRate, backend) if backend != CaseBackend::Cbs => {
            Some(("has no reserved rate", "name a case with `by: cbs` in its `schedule`"))
        }
        (Metric::LaunchRefused | Metric::LaunchErrorMax, backend)
            if backend != CaseBackend::Etf =>
        {
            Some(("has no launch times", "name a case with `by: etf` in its `schedule`"))
        }
        _ => None,
    }
}
