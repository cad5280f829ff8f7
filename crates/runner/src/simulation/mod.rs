// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network file run by the simulator: its names become numbers and come back, runs are put
//! together, judged, and kept in a run directory like that of a real run.
//!
//! Not here: the simulation (`timewire-sim`), the file (`timewire-model`).

mod build;
mod directory;
mod events;
mod names;
mod ports;
mod recorded;
mod records;
mod replay;
mod runs;
mod show;

use std::path::Path;
use std::time::Instant;

use timewire_base::Span;
use timewire_model::scenario::AtMost;
use timewire_model::scenario::Metric;
use timewire_model::scenario::network::NetworkFile;
use timewire_sim::net::{
    NetError, Network, PhaseSearch, SimOutcome, Simulation, StreamResult, Traffic,
};

use crate::RunnerError;

pub use build::network;
pub(crate) use build::{fixed_or_drawn, gates_of};
pub use directory::{Directory, traced};
pub use ports::topology;
pub(crate) use records::{RecordWriter, simulated_clock};
pub use runs::{Cut, Progress, Ran, Runs};
pub use show::{Report, Worst};

/// What is said of a run that was ended before its end.
const ENDED_ON_REQUEST: &str = "ended on request";

/// One run of a file with its own seed; `beside` is where the files are that it names. Beside the
/// report: notes on what a replayed capture has and was not read.
///
/// **Errors**: the network cannot be simulated, or a file that it names cannot be read.
pub fn simulate(
    file: &NetworkFile,
    beside: &Path,
    is_asked_to_end: &(dyn Fn() -> bool + Sync),
    progress: &mut Progress<'_>,
) -> Result<(Report, Vec<String>), RunnerError> {
    let (network, unread) = build::network(file, beside)?;
    let seed = network.seed;
    let runs =
        Runs { network, runs: 1, jobs: 1, checkpoint: None, directory: None, is_asked_to_end };
    let Ran { outcome, cut } = runs.run(progress).map_err(|failed| failed.named(file))?;
    let mut report = Report::of(file, seed, 1, &outcome);
    cut.iter().for_each(|cut| report.cut(cut, 1));
    report.not_read(unread.clone());
    Ok((report, unread))
}

/// An error of the simulator, with the names of the file.
fn named(file: &NetworkFile, error: &NetError) -> RunnerError {
    match error {
        NetError::NoRoute { stream, to, .. } => {
            let stream = &file.streams[*stream];
            let (name, from) = (&stream.name, &stream.talker);
            let stations = file.stations.iter().map(|station| &station.name);
            let mut nodes = stations.chain(file.bridges.iter().map(|bridge| &bridge.name));
            let to = nodes.nth(*to).map_or("", |name| name.as_str());
            RunnerError::Invalid(format!(
                "stream {name}: no link or segment leads from {from} to {to}; add one between \
                 them, or between bridges on the way"
            ))
        }
        NetError::TooManyFrames { max, at, stream, port, waits } => {
            let stream = &file.streams[*stream].name;
            let at = Span::from_ns(i64::try_from(at.as_ps() / 1_000).unwrap_or(i64::MAX));
            let (own, far) = ports::ends(file, *port).unwrap_or_default();
            let (what, hint) = match waits {
                true => ("waiting at", "write a `capacity` for that port, or let it send less"),
                false => ("sent by", "shorten the delays behind it, or let it send less"),
            };
            RunnerError::Invalid(format!(
                "stream {stream}: after {at} of simulated time more than {max} frames are on their \
                 way, most of them {what} the port of {own} to {far}; {hint}"
            ))
        }
        error => RunnerError::Invalid(error.to_string()),
    }
}

/// Whether a network can be simulated.
///
/// **Errors**: why it cannot.
pub fn check(file: &NetworkFile, network: &Network) -> Result<(), RunnerError> {
    Simulation::new(network).map(drop).map_err(|error| named(file, &error))
}

impl runs::Failed {
    /// The error with the names of the file.
    pub fn named(self, file: &NetworkFile) -> RunnerError {
        match self {
            runs::Failed::Network(error) => named(file, &error),
            runs::Failed::File(error) => error,
        }
    }
}

/// The worst phases that are found; the network has them afterwards. `None` when it was ended in
/// the first trial.
///
/// **Errors**: the network cannot be simulated.
pub fn worst(
    (file, network): (&NetworkFile, &mut Network),
    trials: u32,
    is_asked_to_end: &(dyn Fn() -> bool + Sync),
    progress: &mut Progress<'_>,
) -> Result<Option<Report>, RunnerError> {
    let seed = network.seed;
    let mut search = PhaseSearch::new(network.clone(), seed);
    let score = |outcome: &SimOutcome| badness(file, outcome);
    let mut found = None;
    let started = Instant::now();
    for trial in 0..trials {
        let go_on = || {
            progress(&|| trials_left(started, (trial, trials)));
            !is_asked_to_end()
        };
        found = search.step(score, go_on).map_err(|error| named(file, &error))?.cloned();
        if is_asked_to_end() {
            break;
        }
    }
    let Some(found) = found else { return Ok(None) };
    for (number, phase) in &found.offsets {
        if let Traffic::Cyclic { offset, .. } = &mut network.streams[*number].traffic {
            *offset = *phase;
        }
    }
    let mut report = Report::of(file, seed, 1, &found.outcome);
    let name =
        |(number, offset): &(usize, Span)| (file.streams[*number].name.to_string(), offset.as_ns());
    let offsets_ns = found.offsets.iter().map(name).collect();
    report.worst = Some(Worst { trials: search.tried(), offsets_ns });
    if search.tried() < trials {
        report.cut_search(trials);
    }
    Ok(Some(report))
}

/// How far a search is, and how long the trials take that are left.
fn trials_left(started: Instant, (done, all): (u32, u32)) -> String {
    let left = match done {
        0 => String::new(),
        _ => {
            let left = started.elapsed().as_secs() * u64::from(all - done) / u64::from(done);
            format!(", {left}s left")
        }
    };
    format!("trial {} of {all}{left}", done + 1)
}

/// The largest latency, or difference of latencies, in millionths of its limit; without limits, the
/// largest latency there is.
fn badness(file: &NetworkFile, outcome: &SimOutcome) -> u64 {
    let longest = |result: &StreamResult| result.latencies.max_ps().unwrap_or(0);
    let differ = |result: &StreamResult| longest(result) - result.latencies.min_ps().unwrap_or(0);
    let limits = file.all_limits().into_iter().filter_map(|limit| {
        let place = file.streams.iter().position(|stream| stream.name == limit.stream)?;
        let results = show::results(outcome, place).iter();
        let ps = match limit.metric {
            Metric::LatencyMax => results.map(longest).max()?,
            Metric::Jitter => results.map(differ).max()?,
            _ => return None,
        };
        let AtMost::Time(bound) = &limit.at_most else { return None };
        Some(ps.saturating_mul(1_000) / u64::try_from(bound.as_ns()).ok()?.max(1))
    });
    let all = outcome.streams.iter().map(longest).max();
    limits.max().or(all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use timewire_tsn::file::ParseFile;

    use super::*;

    #[test]
    fn t2_phases_are_as_bad_as_what_is_limited() {
        let file = |limits: &str| {
            let text = "timewire: 1\nkind: network\nname: two\nduration: 10ms\n\
                        stations: [{ name: a }, { name: b }]\nlinks: [{ between: [a, b] }]\n\
                streams:\n- { name: s, talker: a, listeners: b, size: 59B, \
                kind: cyclic, period: 1ms }\nlimits:\n";
            NetworkFile::parse("x", &format!("{text}{limits}")).unwrap()
        };
        let bad = |limits: &str| {
            let file = file(limits);
            let network = build::network(&file, Path::new("")).unwrap().0;
            badness(&file, &Simulation::run(&network).unwrap())
        };
        // 113 bytes at 80 ns and 500 ns of delay, always the same.
        let latency = "- { id: l, metric: latency-max, stream: s, at_most: 1ms }\n";
        let jitter = "- { id: j, metric: jitter, stream: s, at_most: 1ns }\n";
        assert_eq!(bad(latency), 9_540);
        assert_eq!(bad(jitter), 0);
        assert_eq!(bad(&format!("{jitter}{latency}")), 9_540);
        assert_eq!(bad("- { id: m, metric: latency-mean, stream: s, at_most: 1ms }\n"), 9_540_000);
    }
}
