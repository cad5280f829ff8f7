// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each stream's verdict: what was measured of it against what it was promised, with the launch
//! error of the place, and against the limits of the file.

use serde::Serialize;
use serde_json::Value as Json;
use timewire_base::{Span, Verdict};
use timewire_capture::summary::{CaseSummary, Finding, StreamPromise};
use timewire_model::scenario::Metric;
use timewire_stats::Distribution;

use super::{Compiled, EXPERIMENT, LaunchError, Promise, PromisedBy, PromisedLimit, records};
use crate::RunnerError;
use crate::rundir::RunDir;

/// What was measured of a stream at one listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Messages that the talker sent.
    pub sent: u64,
    /// Messages that the listener heard, each once.
    pub received: u64,
    /// Messages sent and never heard.
    pub lost: u64,
    /// Messages heard later than the limit of their latency.
    pub late: u64,
    /// Messages heard again.
    pub twice: u64,
    /// Messages that were dropped because of their launch time.
    pub launch_missed: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// From the hand-over, or the launch time, to the listener's kernel.
    pub latency: Option<Distribution>,
    /// Why the measurement is not whole.
    pub troubles: Vec<String>,
}

/// A stream at one listener: promised, measured, judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it was promised.
    pub promise: Promise,
    /// What was measured.
    pub measured: Measured,
    /// What all of that comes to; absent for load, of which nothing is promised.
    pub verdict: Option<Verdict>,
    /// What is wrong; empty when nothing is.
    pub why: Vec<String>,
    /// What the promise alone comes to, and what is wrong with it.
    promised: (Option<Verdict>, Vec<String>),
    /// What each limit of the file comes to.
    limits: Vec<LimitResult>,
}

/// A limit of the file for one stream at one listener.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct LimitResult {
    id: String,
    metric: String,
    at_most: String,
    verdict: Verdict,
    /// What was measured; of what is inconclusive, why.
    measured: String,
}

/// All streams of a case.
///
/// **Errors**: a record is missing or damaged.
pub fn rows(directory: &RunDir, id: &str, compiled: &Compiled) -> Result<Vec<Row>, RunnerError> {
    let measured = records::measured(directory, id, compiled)?;
    let rows = compiled.promises.iter().zip(measured);
    Ok(rows.map(|(promise, measured)| judge(promise, measured)).collect())
}

/// The numbers in records of stations that the file limits.
///
/// **Errors**: what the orchestrator made of them is missing or damaged.
pub fn checks(
    directory: &RunDir,
    id: &str,
    label: &str,
    compiled: &Compiled,
) -> Result<Vec<Finding>, RunnerError> {
    if compiled.experiment["checks"].as_array().is_none_or(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let summary = directory.case_path(id).join(EXPERIMENT).join("summary.json");
    let summary: Json = timewire_datapath::files::read_json(&summary)?;
    let mut findings: Vec<Finding> = Vec::new();
    for check in summary["results"][0]["checks"].as_array().into_iter().flatten() {
        let mut new = check_finding(label, check);
        let before = findings.iter().filter(|it| it.limit.starts_with(&words(check))).count();
        if before > 0 {
            new.id = format!("{}-{}", new.id, before + 1);
        }
        findings.push(new);
    }
    Ok(findings)
}

/// Of which number a check is.
fn words(check: &Json) -> String {
    format!("{} is ", check["of"].as_str().unwrap_or_default())
}

/// What a case that ran on kernels came to: its findings, and in its summary the figures of its
/// streams, which its records alone do not have.
pub struct JudgedCase {
    /// Of each stream at each listener.
    pub findings: Vec<Finding>,
    rows: Vec<Row>,
}

impl JudgedCase {
    /// Of the case of this name; `label` goes before the names of findings.
    ///
    /// **Errors**: as [`rows`].
    pub fn of(directory: &RunDir, id: &str, label: &str) -> Result<JudgedCase, RunnerError> {
        let compiled = Compiled::read(&directory.case_path(id))?;
        let rows = rows(directory, id, &compiled)?;
        let findings = rows.iter().map(|row| finding(label, row, &compiled.launch_error));
        let mut findings: Vec<Finding> = findings.collect();
        // A limit holds for the worst of the listeners.
        let mut limits: Vec<Finding> = Vec::new();
        for (row, limit) in rows.iter().flat_map(|row| row.limits.iter().map(move |it| (row, it))) {
            let new = limit_finding(label, row, limit);
            let rank = |it: &Finding| {
                it.verdict.map_or(0, |it| match it {
                    Verdict::Pass => 0,
                    Verdict::Inconclusive => 1,
                    Verdict::Fail => 2,
                })
            };
            match limits.iter_mut().find(|it| it.id == new.id) {
                Some(old) if rank(old) >= rank(&new) => {}
                Some(old) => *old = new,
                None => limits.push(new),
            }
        }
        findings.extend(limits);
        findings.extend(checks(directory, id, label, &compiled)?);
        Ok(JudgedCase { findings, rows })
    }

    /// Puts the figures of the streams into the summary of the case.
    pub fn fill(&self, summary: &mut CaseSummary) {
        for stream in &mut summary.streams {
            let row = self.rows.iter().find(|row| row.promise.name == stream.name);
            let Some(Row { promise, measured, .. }) = row else { continue };
            // As of other runs, those of the warm-up are not among the figures.
            let counted = measured.latency.as_ref().map_or(0, |latency| latency.count);
            let warm_up = measured.received.saturating_sub(counted);
            stream.sent = measured.sent.saturating_sub(warm_up);
            stream.received = counted;
            stream.lost = measured.lost;
            stream.late = measured.late;
            stream.transfer.clone_from(&measured.latency);
            stream.promise = promise.limit().map(|limit| StreamPromise {
                by: promise.by.word().to_owned(),
                latency_ns: promise.latency.map(Span::as_ns),
                limit_ns: limit.as_ns(),
            });
        }
    }
}

/// Judges one stream at one listener.
pub fn judge(promise: &Promise, measured: Measured) -> Row {
    let mut wrong = Wrong::default();
    let mut limits = Vec::new();
    if promise.by == PromisedBy::Load {
        // Others are judged beside it, so it must have been there.
        let Measured { sent, received, .. } = measured;
        let of = promise.messages.unwrap_or(1);
        if received == 0 || sent < of / LOAD_PART {
            wrong.unsure(format!("the load was not there: {sent} of {of} sent, {received} heard"));
        }
    } else {
        counts(promise, &measured, &mut wrong);
        times(promise, &measured, &mut wrong);
        limits = promise.limits.iter().map(|limit| limited(limit, &measured)).collect();
    }
    for trouble in &measured.troubles {
        wrong.unsure(format!("{} cannot vouch for it: {trouble}", promise.to));
    }
    let is_load = promise.by == PromisedBy::Load && wrong.worst == Verdict::Pass;
    let promised = ((!is_load).then_some(wrong.worst), wrong.why.clone());
    for limit in &mut limits {
        if !measured.troubles.is_empty() && limit.verdict == Verdict::Pass {
            limit.verdict = Verdict::Inconclusive;
        }
        let LimitResult { id, at_most, verdict, measured, .. } = &*limit;
        match verdict {
            Verdict::Pass => {}
            Verdict::Fail => wrong.fail(format!("{id}: {measured}, at most {at_most}")),
            Verdict::Inconclusive => wrong.unsure(format!("{id}: {measured}")),
        }
    }
    let verdict = (!is_load).then_some(wrong.worst);
    Row { promise: promise.clone(), measured, verdict, why: wrong.why, promised, limits }
}

/// What is wrong with a stream.
struct Wrong {
    worst: Verdict,
    why: Vec<String>,
}

impl Default for Wrong {
    fn default() -> Wrong {
        Wrong { worst: Verdict::Pass, why: Vec::new() }
    }
}

impl Wrong {
    fn fail(&mut self, why: String) {
        self.worst = Verdict::Fail;
        self.why.push(why);
    }

    fn unsure(&mut self, why: String) {
        if self.worst == Verdict::Pass {
            self.worst = Verdict::Inconclusive;
        }
        self.why.push(why);
    }
}

fn counts(promise: &Promise, measured: &Measured, wrong: &mut Wrong) {
    let Measured { sent, received, lost, twice, launch_missed, .. } = *measured;
    match promise.messages {
        Some(wanted) if sent < wanted => {
            wrong.unsure(format!("{} sent {sent} of {wanted} messages", promise.from));
        }
        None if sent == 0 => wrong.unsure(format!("{} sent nothing", promise.from)),
        _ => {}
    }
    // How much may be lost is said by the file, where it says so.
    let may_lose = promise.limits.iter().any(|it| it.metric == Metric::Lost.word());
    let is_promised = promise.latency.is_some() || promise.at_most.is_some();
    if lost > 0 && is_promised && !may_lose {
        wrong.fail(format!("{lost} of {sent} messages were lost"));
    }
    if received == 0 && sent > 0 && !is_promised {
        wrong.fail(format!("none of {sent} messages arrived"));
    }
    if twice > 0 {
        wrong.fail(format!("{twice} messages arrived twice"));
    }
    if launch_missed > 0 {
        wrong.fail(format!("{launch_missed} messages were dropped because of their launch time"));
    }
}

fn times(promise: &Promise, measured: &Measured, wrong: &mut Wrong) {
    let Some(latency) = &measured.latency else {
        if promise.at_most.is_some() {
            wrong.unsure("no latency was measured".to_owned());
        }
        return;
    };
    let (least, most) = (Span::from_ns(latency.min_ns), Span::from_ns(latency.max_ns));
    if let Some(at_most) = promise.at_most.filter(|at_most| most > *at_most) {
        wrong.fail(format!("a latency of {} is above {}", micros(most), micros(at_most)));
    }
    if least < promise.at_least {
        let at_least = micros(promise.at_least);
        wrong.fail(format!("a latency of {} is below {at_least}", micros(least)));
    }
}

/// What a limit of the file comes to.
fn limited(limit: &PromisedLimit, measured: &Measured) -> LimitResult {
    let (verdict, measured) = of_limit(limit, measured);
    let PromisedLimit { id, metric, at_most } = limit.clone();
    LimitResult { id, metric, at_most, verdict, measured }
}

fn of_limit(limit: &PromisedLimit, measured: &Measured) -> (Verdict, String) {
    let PromisedLimit { metric, at_most, .. } = limit;
    let unsure = |why: String| (Verdict::Inconclusive, why);
    if metric == Metric::Lost.word() {
        let Some(most) = at_most.strip_suffix('%').and_then(|text| text.parse::<f64>().ok()) else {
            return unsure(format!("`{at_most}` is no share"));
        };
        let Measured { lost, sent, .. } = *measured;
        let told = format!("{lost} of {sent} messages were lost");
        return match sent {
            0 => unsure("no message was sent".to_owned()),
            _ if count(lost) * 100.0 > most * count(sent) => (Verdict::Fail, told),
            _ => (Verdict::Pass, told),
        };
    }
    let Some(latency) = &measured.latency else {
        return unsure("no latency was measured".to_owned());
    };
    #[expect(clippy::cast_possible_truncation, reason = "a mean is within its values")]
    let mean = latency.mean_ns.ceil() as i64;
    let of = |wanted: Metric| metric == wanted.word();
    let value = match () {
        () if of(Metric::LatencyMax) => latency.max_ns,
        () if of(Metric::LatencyP99) => latency.p99_ns,
        () if of(Metric::LatencyMean) => mean,
        () if of(Metric::Jitter) => latency.peak_to_peak_ns(),
        () => return unsure(format!("`{metric}` is not measured on kernels; simulate it")),
    };
    let told = format!("{metric} is {}", micros(Span::from_ns(value)));
    match timewire_base::parse_span(at_most) {
        Ok(most) if value <= most.as_ns() => (Verdict::Pass, told),
        Ok(_) => (Verdict::Fail, told),
        Err(_) => unsure(format!("`{at_most}` is no time")),
    }
}

fn limit_finding(label: &str, row: &Row, limit: &LimitResult) -> Finding {
    let LimitResult { id, metric, at_most, verdict, measured } = limit;
    // A stream with several listeners is named with each of them.
    let stream = row.promise.name.split('>').next().unwrap_or_default();
    Finding {
        id: format!("{label}/{id}"),
        verdict: Some(*verdict),
        limit: format!("{metric} of {stream} is at most {at_most}"),
        measured: format!("{}: {measured}", row.promise.name),
        note: String::new(),
    }
}

/// A number in a record, as the summary of the orchestrator has it.
fn check_finding(label: &str, check: &Json) -> Finding {
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    let limits = [("at_least", "at least"), ("at_most", "at most")].into_iter();
    let limits =
        limits.filter_map(|(key, words)| Some(format!("{words} {}", check[key].as_str()?)));
    let limits: Vec<String> = limits.collect();
    let verdicts = [Verdict::Pass, Verdict::Fail];
    let verdict = verdicts.into_iter().find(|it| it.word() == text("verdict"));
    Finding {
        id: format!("{label}/{}", text("of").replace(" /", "/").replace(' ', "/")),
        verdict: Some(verdict.unwrap_or(Verdict::Inconclusive)),
        limit: words(check) + &limits.join(" and "),
        measured: check["number"].as_f64().map_or_else(|| text("why"), |it| it.to_string()),
        note: String::new(),
    }
}

fn finding(label: &str, row: &Row, error: &LaunchError) -> Finding {
    let Row { promise, measured, promised: (verdict, why), .. } = row;
    let limit = match (promise.at_most, promise.latency) {
        (Some(at_most), Some(latency)) => format!(
            "{} to {}: {} promised by the {}",
            micros(promise.at_least),
            micros(at_most),
            micros(latency),
            promise.by.word()
        ),
        _ => "nothing is promised".to_owned(),
    };
    let times = measured.latency.as_ref().map_or_else(String::new, |it| {
        let (min, max) = (Span::from_ns(it.min_ns), Span::from_ns(it.max_ns));
        format!(", {} to {}", micros(min), micros(max))
    });
    let timeouts = match measured.timeouts {
        0 => String::new(),
        count => format!(", {count} requests timed out"),
    };
    let heard = format!("{} of {} messages{times}{timeouts}", measured.received, measured.sent);
    let note = match why.is_empty() {
        true if promise.at_most.is_some() => error.text(),
        _ => why.join("; "),
    };
    Finding {
        id: format!("{label}/{}", promise.name),
        verdict: *verdict,
        limit,
        measured: heard,
        note,
    }
}

/// More than a link takes is not sent; of load at least one message in so many is.
const LOAD_PART: u64 = 3;

/// A time in microseconds, for people.
pub(super) fn micros(span: Span) -> String {
    format!("{:.1} µs", span.as_us_f64())
}

#[expect(clippy::cast_precision_loss, reason = "messages are fewer than 2^52")]
fn count(of: u64) -> f64 {
    of as f64
}

#[cfg(test)]
mod tests {
    use timewire_capture::analyse::transfer_bins;

    use super::*;

    fn measured(times: &[i64]) -> Measured {
        let times = times.iter().map(|us| us * 1_000).collect();
        let latency = Distribution::of(times, transfer_bins(Span::from_ms(1)));
        Measured { sent: 500, received: 500, latency, ..Measured::default() }
    }

    #[track_caller]
    fn is(promise: &Promise, measured: Measured, verdict: Verdict, says: &str) {
        let row = judge(promise, measured);
        assert_eq!(row.verdict, Some(verdict), "{row:?}");
        assert!(row.why.join("; ").contains(says), "{row:?}");
    }

    #[test]
    fn t0_a_latency_is_held_to_the_promise_on_both_sides() {
        let promise = Promise::example();
        is(&promise, measured(&[16, 39]), Verdict::Pass, "");
        is(&promise, measured(&[16, 40]), Verdict::Fail, "a latency of 40.0 µs is above 39.0 µs");
        is(&promise, measured(&[15, 39]), Verdict::Fail, "a latency of 15.0 µs is below 16.0 µs");
        is(&promise, measured(&[]), Verdict::Inconclusive, "no latency was measured");
    }

    #[test]
    fn t0_what_is_lost_doubled_or_not_sent_is_told() {
        let good = || measured(&[20]);
        let lost = Measured { received: 499, lost: 1, ..good() };
        is(&Promise::example(), lost.clone(), Verdict::Fail, "1 of 500 messages were lost");
        let twice = Measured { twice: 2, ..good() };
        is(&Promise::example(), twice, Verdict::Fail, "2 messages arrived twice");
        let missed = Measured { launch_missed: 3, ..good() };
        is(&Promise::example(), missed, Verdict::Fail, "because of their launch time");
        let few = Measured { sent: 499, received: 499, ..good() };
        is(&Promise::example(), few, Verdict::Inconclusive, "drive sent 499 of 500 messages");
        let deaf = Measured { troubles: vec!["2 dropped".to_owned()], ..good() };
        is(&Promise::example(), deaf, Verdict::Inconclusive, "plc cannot vouch for it: 2 dropped");
        // The file says how much may be lost.
        let limit = |at_most: &str| PromisedLimit {
            id: "arrives".to_owned(),
            metric: "lost".to_owned(),
            at_most: at_most.to_owned(),
        };
        let wide = Promise { limits: vec![limit("0.2%")], ..Promise::example() };
        is(&wide, lost.clone(), Verdict::Pass, "");
        let narrow = Promise { limits: vec![limit("0.1%")], ..Promise::example() };
        is(&narrow, lost, Verdict::Fail, "arrives: 1 of 500 messages were lost, at most 0.1%");
    }

    #[test]
    fn t0_limits_of_the_file_hold_beside_the_promise() {
        for (metric, at_most, says) in [
            ("latency-max", "29us", "in-time: latency-max is 30.0 µs, at most 29us"),
            ("latency-p99", "29us", "latency-p99 is 30.0 µs"),
            ("latency-mean", "24us", "latency-mean is 25.0 µs"),
            ("jitter", "9us", "jitter is 10.0 µs"),
        ] {
            let limit = |at_most: &str| PromisedLimit {
                id: "in-time".to_owned(),
                metric: metric.to_owned(),
                at_most: at_most.to_owned(),
            };
            let tight = Promise { limits: vec![limit(at_most)], ..Promise::example() };
            is(&tight, measured(&[20, 30]), Verdict::Fail, says);
            let wide = Promise { limits: vec![limit("30us")], ..Promise::example() };
            is(&wide, measured(&[20, 30]), Verdict::Pass, "");
        }
        let metric = "outside-windows".to_owned();
        let (id, at_most) = ("kept".to_owned(), "0%".to_owned());
        let other =
            Promise { limits: vec![PromisedLimit { id, metric, at_most }], ..Promise::example() };
        is(&other, measured(&[20]), Verdict::Inconclusive, "is not measured on kernels");
    }

    #[test]
    fn t0_load_is_not_judged_unless_it_was_not_there() {
        let load =
            Promise { by: PromisedBy::Load, latency: None, at_most: None, ..Promise::example() };
        let row = judge(&load, Measured { sent: 167, lost: 9, ..measured(&[900]) });
        assert_eq!(row.verdict, None);
        let few = Measured { sent: 165, ..measured(&[900]) };
        is(&load, few, Verdict::Inconclusive, "165 of 500 sent");
        let none = Measured { sent: 5, lost: 5, ..Measured::default() };
        is(&load, none, Verdict::Inconclusive, "the load was not there");
    }
}
