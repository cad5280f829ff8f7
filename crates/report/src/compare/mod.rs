// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two runs side by side: what is better, worse, the same, and what cannot be said.
//!
//! Values that follow each other in time resemble each other, so a run of ten thousand messages
//! says less than ten thousand independent ones. Each figure's interval is therefore found by
//! drawing whole blocks of the run again (`resample`), in the length that the series asks for
//! (`block`). A verdict is given where all of the interval says it, and all intervals together are
//! as sure as asked.
//!
//! Not here: reading run directories (`timewire-runner`), taking the series (`timewire-capture`).

mod block;
mod interval;
mod judge;
mod lines;
mod model;
mod number;
mod page;
mod quantile;
mod random;
mod resample;
pub mod synthetic;
mod table;

use std::collections::BTreeMap;

use timewire_capture::analyse::CaseSeries;
use timewire_capture::summary::{Fact, Finding, Summary};

pub use interval::Interval;
pub use model::{
    COMPARISON_SCHEMA, CaseComparison, Changed, Comparison, Counts, Figure, Hosts, Kind,
    MetricComparison, Overall, Rules, Run, ScenarioChange, Verdict,
};
pub use page::html;
pub use table::table;

/// Everything that is known of one of the runs.
#[derive(Clone, Debug)]
pub struct Side {
    /// Where it is, as it was named.
    pub directory: String,
    /// What it came to.
    pub summary: Summary,
    /// What each of its cases timestamped.
    pub cases: Vec<CaseSeries>,
    /// The text of each scenario, by name.
    pub scenarios: BTreeMap<String, String>,
}

/// Compares run B with run A; `hosts` is what the snapshots of their hosts say. The same input
/// gives the same value.
pub fn compare(a: &Side, b: &Side, hosts: Hosts, rules: Rules) -> Comparison {
    let in_b = |id: &str| b.cases.iter().find(|case| case.id == id);
    let mut prepared = Vec::new();
    for of_a in &a.cases {
        if let Some(of_b) = in_b(&of_a.id) {
            let incomplete = incomplete(&of_a.id, &a.summary, &b.summary);
            let whole = incomplete.is_empty();
            let (metrics, not_in_both) = judge::case(of_a, of_b, rules.seed, whole);
            prepared.push((&of_a.id, metrics, not_in_both, incomplete));
        }
    }
    let all = prepared.iter().flat_map(|(_, metrics, ..)| metrics);
    let intervals = all.filter(|metric| metric.has_interval()).count();
    let side = side_of(rules.confidence, intervals);
    let mut counts = Counts::default();
    let mut cases = Vec::new();
    for (id, metrics, not_in_both, incomplete) in prepared {
        let metrics: Vec<_> = metrics.into_iter().map(|it| it.judged(side, &rules)).collect();
        metrics.iter().for_each(|metric| counts.take(metric.verdict));
        let found = a.summary.cases.iter().find(|case| case.id == *id);
        let title = found.map_or(id.clone(), |case| format!("{}, {}", case.title, case.load));
        cases.push(CaseComparison { id: id.clone(), title, not_in_both, incomplete, metrics });
    }
    let only = |of: &Side, other: &Side| -> Vec<String> {
        let missing = |case: &&CaseSeries| other.cases.iter().all(|it| it.id != case.id);
        of.cases.iter().filter(missing).map(|case| case.id.clone()).collect()
    };
    Comparison {
        schema: COMPARISON_SCHEMA,
        a: run_of(a),
        b: run_of(b),
        rules,
        intervals,
        resamples: resample::RESAMPLES,
        environment: environment(&a.summary, &b.summary),
        hosts,
        scenarios: scenarios(a, b),
        only_in_a: only(a, b),
        only_in_b: only(b, a),
        cases,
        counts,
        verdict: counts.overall(),
    }
}

/// What the summaries say of records of a case that are not all there.
fn incomplete(id: &str, a: &Summary, b: &Summary) -> Vec<String> {
    let is_of_records = |finding: &&Finding| INCOMPLETE.contains(&finding.id.as_str());
    let mut found = Vec::new();
    for (name, summary) in [("A", a), ("B", b)] {
        for finding in summary.findings.iter().filter(is_of_records) {
            let rest = finding.measured.strip_prefix(id);
            let rest = rest.filter(|rest| rest.starts_with([':', ' ']));
            found.extend(
                rest.map(|rest| format!("{name}: {}", rest.trim_start_matches([':', ' ']))),
            );
        }
    }
    found
}

/// Findings of records that are not all there.
const INCOMPLETE: [&str; 5] =
    ["timestamps-lost", "records-damaged", "records-unknown", "records-missing", "records-open"];

/// The probability that is left on each side of one of so many intervals.
fn side_of(confidence: f64, intervals: usize) -> f64 {
    (1.0 - confidence) / 2.0 / number::f64_of(intervals.max(1))
}

/// Compares two series of times alone: the verdict on median, 99th percentile and mean.
///
/// **Units**: nanoseconds, in the order of time.
pub fn compare_times(a: &[i64], b: &[i64], rules: &Rules) -> Vec<MetricComparison> {
    let prepared = judge::times(("", "latency"), (a, b), (rules.seed, ""));
    let intervals = prepared.iter().filter(|metric| metric.has_interval()).count();
    let side = side_of(rules.confidence, intervals);
    let judged = prepared.into_iter().map(|metric| metric.judged(side, rules));
    judged.filter(|metric| metric.verdict != Verdict::Shown).collect()
}

fn run_of(side: &Side) -> Run {
    let Summary { title, tool, started_utc_ns, complete, .. } = &side.summary;
    Run {
        directory: side.directory.clone(),
        title: title.clone(),
        tool: tool.clone(),
        started_utc_ns: *started_utc_ns,
        complete: *complete,
    }
}

/// Facts that are not the same, in the order of A, then those that only B has.
fn environment(a: &Summary, b: &Summary) -> Vec<Changed> {
    let mut facts_a = a.environment.clone();
    let mut facts_b = b.environment.clone();
    for (facts, summary) in [(&mut facts_a, a), (&mut facts_b, b)] {
        facts.extend(derived(summary));
    }
    let value = |facts: &[Fact], of: &Fact| {
        let same = |fact: &&Fact| fact.area == of.area && fact.name == of.name;
        facts.iter().find(same).map(|fact| fact.value.clone())
    };
    let mut found = Vec::new();
    let changed = |fact: &Fact, a: Option<String>, b: Option<String>| Changed {
        area: fact.area.clone(),
        name: fact.name.clone(),
        a,
        b,
    };
    for fact in &facts_a {
        let in_b = value(&facts_b, fact);
        if in_b.as_ref() != Some(&fact.value) {
            found.push(changed(fact, Some(fact.value.clone()), in_b));
        }
    }
    for fact in facts_b.iter().filter(|fact| value(&facts_a, fact).is_none()) {
        found.push(changed(fact, None, Some(fact.value.clone())));
    }
    found
}

/// What the summary says elsewhere of what a run stood on.
fn derived(summary: &Summary) -> Vec<Fact> {
    let fact = |area: &str, name: &str, value: String| Fact {
        area: area.to_owned(),
        name: name.to_owned(),
        value,
        level: timewire_capture::summary::FactLevel::Ok,
    };
    let mut found = vec![fact("run", "program", summary.tool.clone())];
    for case in &summary.cases {
        if let Some(backend) = &case.backend {
            found.push(fact("backend", &case.id, backend.name.clone()));
        }
    }
    found
}

fn scenarios(a: &Side, b: &Side) -> Vec<ScenarioChange> {
    let both = a.scenarios.iter().filter_map(|(name, text)| {
        let other = b.scenarios.get(name)?;
        (text != other).then(|| ScenarioChange {
            scenario: name.clone(),
            lines: lines::difference(text, other),
        })
    });
    both.collect()
}

#[cfg(test)]
mod tests;
