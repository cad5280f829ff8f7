// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges a plan: derives each transmission of a whole cycle again from the network, the streams
//! and the plan alone, and tells what contradicts them.
//!
//! It shares the words of [`crate::model`] with the search and nothing else: no arithmetic, no
//! order of work. A plan without findings holds for every processing time and every clock error
//! that the network allows.
//!
//! Not here: whether a stream could have had a place ([`Verdict`] judges the reasons that are
//! given); traffic without a schedule (`crate::bounds`).

mod alone;
mod certificate;
mod configured;
mod finding;
mod gates;
mod links;
mod packing;
mod proof;
mod reserve;
mod routes;
mod times;

pub use certificate::judge;
pub use configured::{Configuration, Configured, PortStates, check_configured};
pub use finding::{Finding, Report, Rule, Verdict};

use finding::Findings;

use crate::model::{LinkId, Plan, Problem, StreamId};

/// The most transmissions in the cycles of all links that are gone through one by one.
const MAX_INSTANCES: u64 = 100_000_000;

/// Why a plan was not judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The links' cycles have more transmissions than can be gone through.
    #[error("the cycles of all links have {instances} transmissions; {most} is the most checked")]
    TooMany {
        /// How many.
        instances: u64,
        /// The bound.
        most: u64,
    },
}

/// One frame on one link, as the plan says and as the network makes of it. Times in nanoseconds.
struct Sent {
    stream: StreamId,
    link: LinkId,
    frame: u32,
    copy: u8,
    queue: u8,
    start: i64,
    occupancy: i64,
    /// What the frame itself takes of it.
    length: i64,
    interval: i64,
    /// The same frame on the link before, by its place in the list of all.
    before: Option<usize>,
    /// How long it can have been there before its start when it was sent on as planned before.
    wait: i64,
    /// How much earlier than planned it can start.
    early: i64,
}

impl Sent {
    fn end(&self) -> i64 {
        self.start + self.occupancy
    }
}

/// Everything that contradicts the plan; nothing if it holds.
///
/// **Errors**: cycles that are too long to go through.
pub fn check(problem: &Problem, plan: &Plan) -> Result<Report, CheckError> {
    check_while(problem, plan, &mut || true)
}

/// The same, as long as `go_on` says so, which is asked once in a while: the report of one that was
/// ended says that, and has what was found until then.
///
/// **Errors**: as [`check`].
pub fn check_while(
    problem: &Problem,
    plan: &Plan,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Report, CheckError> {
    let mut findings = Findings::new(go_on);
    let mut sent = routes::derive(problem, plan, &mut findings);
    times::causality(problem, &mut sent, &mut findings);
    let mut links = links::Links::new(problem, &sent)?;
    gates::check(problem, plan, &sent, &mut links, &mut findings);
    links.overlaps(&sent, &mut findings);
    links.earliness(&mut sent, &mut findings);
    if findings.is_over() {
        // What follows takes how early each frame can be, which is not known.
        return Ok(findings.report(Vec::new(), links.instances(), sent.len()));
    }
    reserve::check(problem, plan, &sent, &mut findings);
    links.isolation(problem, &sent, &mut findings);
    times::messages(problem, plan, &sent, &mut findings);
    let mut verdicts = Vec::new();
    for refusal in &plan.refused {
        if findings.is_over() {
            break;
        }
        if refusal.stream.index() < problem.streams().len() {
            verdicts.push((refusal.stream, judge(problem, plan, refusal)));
        }
    }
    for (stream, verdict) in &verdicts {
        if matches!(verdict, Verdict::Wrong { .. }) {
            findings.add(Finding::of(Rule::Certificate).streams(&[*stream]));
        }
    }
    Ok(findings.report(verdicts, links.instances(), sent.len()))
}

fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
