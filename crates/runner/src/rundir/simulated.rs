// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of a network that was simulated, as its simulation judged them: it counts in
//! picoseconds, over all runs together, and knows which transmissions were outside their windows.

use std::path::Path;

use serde::{Deserialize, Serialize};
use timewire_base::Verdict;
use timewire_base::{FileError, Span};
use timewire_capture::summary::Finding;

use super::read_json;
use crate::RunnerError;

/// The file of a run directory with what came of a simulation; its other keys are for its reader.
pub const SIMULATION: &str = "simulation.json";

/// What is read of a simulation.
#[derive(Debug, Deserialize)]
struct Simulation {
    schema: String,
    warm_up_ns: i64,
    limits: Vec<Judged>,
    violations: Vec<String>,
    /// There when it was ended on request.
    ended_early: Option<serde::de::IgnoredAny>,
    /// What of replayed captures was not read.
    #[serde(default)]
    inconclusive: Vec<String>,
}

/// The `schema` of what `timewire sim` prints as JSON.
pub const SIMULATION_SCHEMA: &str = "timewire.sim/1";

/// A limit, and what it came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judged {
    /// Its name.
    pub id: String,
    /// What is limited.
    pub metric: String,
    /// Of which stream.
    pub stream: String,
    /// The largest good value.
    pub at_most: String,
    /// What it was; absent when nothing was measured.
    pub measured: Option<String>,
    /// What it came to; inconclusive when nothing was measured.
    pub verdict: Verdict,
}

impl Judged {
    /// In a line.
    pub fn text(&self) -> String {
        let Judged { id, metric, stream, at_most, .. } = self;
        let measured = self.measured.as_deref().unwrap_or("nothing");
        let word = self.verdict.label();
        format!("{word} {id}: {metric} of {stream} is {measured}, at most {at_most}")
    }
}

/// The findings of the simulation in this directory; `network` goes before their names.
///
/// **Errors**: the file does not hold what it should.
pub(super) fn findings(directory: &Path, network: &str) -> Result<Vec<Finding>, RunnerError> {
    let path = directory.join(SIMULATION);
    if !path.exists() {
        return Ok(vec![cut_short(network)]);
    }
    let Simulation { schema, warm_up_ns, limits, violations, ended_early, inconclusive } =
        read_json(&path)?;
    let warm_up = Span::from_ns(warm_up_ns);
    if schema != SIMULATION_SCHEMA {
        let why = format!("it has the schema `{schema}`; this program reads `{SIMULATION_SCHEMA}`");
        return Err(FileError::content(path, why).into());
    }
    let mut found: Vec<Finding> =
        limits.iter().map(|limit| finding(network, limit, warm_up)).collect();
    if ended_early.is_some() {
        let note = "the simulation was ended on request; the limits are judged by what there was";
        found.push(Finding { note: note.to_owned(), ..cut_short(network) });
    }
    if !limits.is_empty() {
        found.extend(inconclusive.into_iter().map(|what| Finding {
            id: format!("{network}/traffic"),
            verdict: Some(Verdict::Inconclusive),
            limit: "all that was replayed is known".to_owned(),
            measured: what,
            note: "the limits are judged without it".to_owned(),
        }));
    }
    found.extend(violations.into_iter().map(|what| Finding {
        id: format!("{network}/simulator"),
        verdict: Some(Verdict::Fail),
        limit: "the simulator makes no mistake".to_owned(),
        measured: what,
        note: "nothing else of this run is to be trusted".to_owned(),
    }));
    Ok(found)
}

fn finding(network: &str, limit: &Judged, warm_up: Span) -> Finding {
    let Judged { id, metric, stream, at_most, measured, verdict } = limit;
    // Latencies leave the warm-up out here and in tables, counts only in tables.
    let counts = measured.as_ref().is_some_and(|measured| measured.contains(" of "));
    let note = match counts && warm_up > Span::ZERO {
        true => format!("all messages count, those of the warm-up of {warm_up} too"),
        false => String::new(),
    };
    let said = match measured {
        Some(measured) => format!("{metric} of {stream} is {measured}"),
        None => "not enough data".to_owned(),
    };
    Finding {
        id: format!("{network}/{id}"),
        verdict: Some(*verdict),
        limit: format!("{metric} of {stream} is at most {at_most}"),
        measured: said,
        note,
    }
}

/// What did not come to its end.
pub(super) fn cut_short(network: &str) -> Finding {
    Finding {
        id: format!("{network}/run"),
        verdict: Some(Verdict::Inconclusive),
        limit: "the limits of the network".to_owned(),
        measured: "not enough data".to_owned(),
        note: "the run was cut short before they were judged".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_limit_of_a_simulation_keeps_its_verdict() {
        let of = |verdict, measured: Option<&str>| {
            let limit = Judged {
                id: "bound".to_owned(),
                metric: "latency-max".to_owned(),
                stream: "control".to_owned(),
                at_most: "1ms".to_owned(),
                measured: measured.map(str::to_owned),
                verdict,
            };
            finding("line", &limit, Span::from_ms(10))
        };
        assert_eq!(of(Verdict::Pass, Some("9us")).verdict, Some(Verdict::Pass));
        assert_eq!(of(Verdict::Inconclusive, None).verdict, Some(Verdict::Inconclusive));
        let failed = of(Verdict::Fail, Some("2ms"));
        assert_eq!((failed.verdict, failed.id.as_str()), (Some(Verdict::Fail), "line/bound"));
        assert_eq!(failed.measured, "latency-max of control is 2ms");
        assert_eq!(failed.limit, "latency-max of control is at most 1ms");
        assert_eq!(failed.note, "");
        let counted = of(Verdict::Pass, Some("10 of 4000"));
        assert_eq!(counted.note, "all messages count, those of the warm-up of 10ms too");
    }
}
