// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The summary in the order in which it is told: cases by scenario, findings by weight.

use timewire_base::Verdict;
use timewire_capture::summary::{CaseSummary, Finding, StreamClass, StreamSummary, Summary};
use timewire_stats::Distribution;

use crate::text::us_whole;

/// The cases of one scenario, each with its place in the summary.
pub(crate) struct Scenario<'a> {
    /// Its name in the summary.
    pub name: &'a str,
    /// Its cases in the order they ran; never empty.
    pub cases: Vec<(usize, &'a CaseSummary)>,
}

impl<'a> Scenario<'a> {
    /// Heading for people: `64 B messages, cycle 1040 <unit>`.
    pub fn title(&self, unit: &str) -> String {
        let (_, first) = self.cases[0];
        let cycle = us_whole(first.cycle_ns);
        match first.message_bytes {
            0 => format!("messages of several lengths, cycle {cycle} {unit}"),
            bytes => format!("{bytes} B messages, cycle {cycle} {unit}"),
        }
    }

    /// The load that ran last, which is the heaviest by convention.
    pub fn last_load(&self) -> &'a str {
        let (_, last) = self.cases[self.cases.len() - 1];
        &last.load
    }

    /// What the table on a terminal shows: real time, and of a single case, or where there is
    /// nothing else, best effort, too.
    pub fn told(&self) -> Vec<(&'a CaseSummary, &'a StreamSummary)> {
        let mut rows = self.streams(StreamClass::RealTime);
        if self.cases.len() == 1 || rows.is_empty() {
            rows.extend(self.streams(StreamClass::BestEffort));
        }
        rows
    }

    /// Case and stream of every stream of this class.
    pub fn streams(&self, class: StreamClass) -> Vec<(&'a CaseSummary, &'a StreamSummary)> {
        let of_case = |&(_, case): &(usize, &'a CaseSummary)| {
            case.streams.iter().filter(move |s| s.class == class).map(move |s| (case, s))
        };
        self.cases.iter().flat_map(of_case).collect()
    }
}

/// The scenarios in the order they first ran.
pub(crate) fn scenarios(summary: &Summary) -> Vec<Scenario<'_>> {
    let mut found: Vec<Scenario<'_>> = Vec::new();
    for (at, case) in summary.cases.iter().enumerate() {
        match found.iter_mut().find(|s| s.name == case.scenario) {
            Some(scenario) => scenario.cases.push((at, case)),
            None => found.push(Scenario { name: &case.scenario, cases: vec![(at, case)] }),
        }
    }
    found
}

/// Most real-time streams of a case that figures show.
const DRAWN_REAL_TIME: usize = 2;

/// The streams of a case that figures show, with their transfer times: the first real-time ones
/// and, to compare with, the first of best effort. Tables have them all.
pub(crate) fn drawn(case: &CaseSummary) -> Vec<(&StreamSummary, &Distribution)> {
    let any = case.streams.iter().any(is_of_messages);
    let of_class = |class| {
        let streams = case.streams.iter().filter(move |s| s.class == class);
        // Of a pipeline its messages, beside which others' can be drawn.
        let streams = streams.filter(move |s| !any || is_of_messages(s));
        streams.filter_map(|s| Some((s, s.transfer.as_ref()?)))
    };
    let first = of_class(StreamClass::RealTime).take(DRAWN_REAL_TIME);
    first.chain(of_class(StreamClass::BestEffort).take(1)).collect()
}

/// Name of a stream with its class: `control (real time)`.
pub(crate) fn stream_name(stream: &StreamSummary) -> String {
    format!("{} ({})", stream.name, class_word(stream.class))
}

/// The values in order, each once.
pub(crate) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Findings with the ones that decide a failure first; otherwise in the given order.
pub(crate) fn by_weight(findings: &[Finding]) -> Vec<&Finding> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|f| match f.verdict {
        Some(Verdict::Fail) => 0,
        Some(Verdict::Inconclusive) => 1,
        Some(Verdict::Pass) => 2,
        None => 3,
    });
    sorted
}

/// How the limits came out: `5 of 7 limits pass, 1 fails, 1 inconclusive`.
pub(crate) fn tally(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|f| f.verdict == Some(verdict)).count();
    let (passing, failing) = (count(Verdict::Pass), count(Verdict::Fail));
    let inconclusive = count(Verdict::Inconclusive);
    let limits = passing + failing + inconclusive;
    if limits == 0 {
        return "no limits were set".to_owned();
    }
    let mut text = passes(passing, limits);
    if failing > 0 {
        text.push_str(&format!(", {failing} {}", if failing == 1 { "fails" } else { "fail" }));
    }
    if inconclusive > 0 {
        text.push_str(&format!(", {inconclusive} inconclusive"));
    }
    text
}

/// `5 of 7 limits pass`.
pub(crate) fn passes(passing: usize, limits: usize) -> String {
    let verb = if passing == 1 || limits == 1 { "passes" } else { "pass" };
    format!("{passing} of {limits} {} {verb}", plural(limits, "limit"))
}

/// `limit` or `limits`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// `real time` or `best effort`.
fn class_word(class: StreamClass) -> &'static str {
    match class {
        StreamClass::RealTime => "real time",
        StreamClass::BestEffort => "best effort",
    }
}

/// Name of a row: the case, and the stream where it is not the only one of real time in the case.
pub(crate) fn row_name(name: &str, case: &CaseSummary, stream: &StreamSummary) -> String {
    let alike = case.streams.iter().filter(|s| s.class == stream.class).count();
    if alike > 1 || stream.class == StreamClass::BestEffort {
        format!("{name}: {}", stream.name)
    } else {
        name.to_owned()
    }
}

/// The transfer times of the first real-time stream, which stands for the case; of a pipeline,
/// those of its first connection.
pub(crate) fn real_time(case: &CaseSummary) -> Option<&Distribution> {
    let real_time = || case.streams.iter().filter(|s| s.class == StreamClass::RealTime);
    let of_messages = real_time().find(|stream| is_of_messages(stream));
    of_messages.or_else(|| real_time().next())?.transfer.as_ref()
}

/// Whether a stream has messages of its own. A whole pipeline has none: nothing of it was seen on
/// the way, and a figure that is published for a message is not for it.
pub(crate) fn is_of_messages(stream: &StreamSummary) -> bool {
    stream.slot_wait.is_some() || stream.receive.is_some()
}
