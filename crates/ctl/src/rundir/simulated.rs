// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of a network that was simulated, as its simulation judged them: it counts in
//! picoseconds, over all runs together, and knows which transmissions were outside their windows.
//!
//! Not here: simulating (`timewire-sim`), the limits of scenarios (`timewire_trace::judge`).

use serde::{Deserialize, Serialize};
use timewire_base::Span;
use timewire_trace::summary::{Finding, Outcome};

use super::{RunDir, read_json};
use crate::CtlError;

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
    /// Whether it was kept.
    pub good: bool,
}

/// The findings of a simulation; none when it did not come to its end.
///
/// **Errors**: the file does not hold what it should.
pub(super) fn findings(directory: &RunDir, network: &str) -> Result<Vec<Finding>, CtlError> {
    let path = directory.path().join(SIMULATION);
    if !path.exists() {
        return Ok(vec![cut_short(network)]);
    }
    let Simulation { schema, warm_up_ns, limits, violations, ended_early, inconclusive } =
        read_json(&path)?;
    let warm_up = Span::from_ns(warm_up_ns);
    if schema != SIMULATION_SCHEMA {
        let why = format!("it has the schema `{schema}`; this program reads `{SIMULATION_SCHEMA}`");
        return Err(CtlError::Content { path, why });
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
            outcome: Outcome::NotJudged,
            limit: "all that was replayed is known".to_owned(),
            measured: what,
            note: "the limits are judged without it".to_owned(),
        }));
    }
    found.extend(violations.into_iter().map(|what| Finding {
        id: format!("{network}/simulator"),
        outcome: Outcome::Missed,
        limit: "the simulator makes no mistake".to_owned(),
        measured: what,
        note: "nothing else of this run is to be trusted".to_owned(),
    }));
    Ok(found)
}

fn finding(network: &str, limit: &Judged, warm_up: Span) -> Finding {
    let Judged { id, metric, stream, at_most, measured, good } = limit;
    let outcome = match (good, measured) {
        (true, _) => Outcome::Kept,
        (false, Some(_)) => Outcome::Missed,
        (false, None) => Outcome::NotJudged,
    };
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
        outcome,
        limit: format!("{metric} of {stream} is at most {at_most}"),
        measured: said,
        note,
    }
}

fn cut_short(network: &str) -> Finding {
    Finding {
        id: format!("{network}/simulation"),
        outcome: Outcome::NotJudged,
        limit: "the limits of the network".to_owned(),
        measured: "not enough data".to_owned(),
        note: "the simulation was cut short before it judged them".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_limit_of_a_simulation_is_kept_missed_or_open() {
        let of = |good, measured: Option<&str>| {
            let limit = Judged {
                id: "bound".to_owned(),
                metric: "latency_max".to_owned(),
                stream: "control".to_owned(),
                at_most: "1ms".to_owned(),
                measured: measured.map(str::to_owned),
                good,
            };
            finding("line", &limit, Span::from_ms(10))
        };
        assert_eq!(of(true, Some("9us")).outcome, Outcome::Kept);
        assert_eq!(of(false, None).outcome, Outcome::NotJudged);
        let missed = of(false, Some("2ms"));
        assert_eq!((missed.outcome, missed.id.as_str()), (Outcome::Missed, "line/bound"));
        assert_eq!(missed.measured, "latency_max of control is 2ms");
        assert_eq!(missed.limit, "latency_max of control is at most 1ms");
        assert_eq!(missed.note, "");
        let counted = of(true, Some("10 of 4000"));
        assert_eq!(counted.note, "all messages count, those of the warm-up of 10ms too");
    }
}
