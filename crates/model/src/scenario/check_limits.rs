// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits that can be judged: of cases, loads and streams that exist, with a bound of the kind that
//! the metric has.

use std::collections::HashMap;

use super::item::Reader;
use super::limits::lacks;
use super::model::{LimitRule, MessageFlow, Metric, Reference, Scenario};
use super::network::NetLimit;
use super::several::Several;
use super::value::{AtMost, Name};

/// Finds what is wrong with the limits, all of it.
pub(super) fn check_limits(scenario: &Scenario, reader: &mut Reader) {
    let mut ids: HashMap<String, usize> = HashMap::new();
    for (i, rule) in scenario.limits.iter().enumerate() {
        let at = format!("limits[{i}]");
        let before = reader.problems.len();
        for (key, name) in keyed(rule.stream.as_ref(), &format!("{at}.stream")) {
            check_stream(scenario, reader, &key, name, rule);
        }
        check_cases(scenario, reader, &at, rule);
        if reader.problems.len() > before {
            continue;
        }
        let limits = rule.limits(scenario);
        if limits.is_empty() {
            let message = format!("no case and load has the metric `{}`", rule.metric.word());
            let mut lacking = scenario.experiment.cases.iter();
            let hint = lacking.find_map(|case| lacks(rule.metric, case.backend));
            let hint = hint.map_or("remove the limit", |(_, hint)| hint);
            reader.fail_at(&format!("{at}.metric"), message, hint);
        }
        for limit in limits {
            if let Some(first) = ids.insert(limit.id.clone(), i) {
                let message =
                    format!("the limit `{}` is listed twice, first in limits[{first}]", limit.id);
                reader.fail_at(&format!("{at}.id"), message, "give it another name");
                break;
            }
            let itself =
                |other: &Reference| (&other.case, &other.load) == (&limit.case, &limit.load);
            if limit.relative_to.as_ref().is_some_and(itself) {
                let message = "a value relative to itself is always 1".into();
                reader.fail_at(&format!("{at}.relative_to"), message, "name another case or load");
                break;
            }
        }
    }
}

/// All values of a key that may be left out, each with its key.
fn keyed<'a, T>(several: Option<&'a Several<T>>, key: &str) -> Vec<(String, &'a T)> {
    several.map(|all| all.keyed(key)).unwrap_or_default()
}

/// Metrics of a stream have one, and those of all frames have none.
pub(super) fn check_metric(reader: &mut Reader, at: &str, limit: &NetLimit) {
    let metric = limit.metric.word();
    match (limit.metric.is_of_segment(), &limit.stream) {
        (false, None) => {
            let message =
                format!("the metric `{metric}` is of one stream, and needs the key `stream`");
            reader.fail_at(&format!("{at}.metric"), message, "add `stream: ` and its name");
        }
        (true, Some(_)) => {
            let message = format!("the metric `{metric}` is of all frames, not of one stream");
            reader.fail_at(&format!("{at}.stream"), message, "remove `stream`");
        }
        (true, None) | (false, Some(_)) => {}
    }
}

fn check_stream(
    scenario: &Scenario,
    reader: &mut Reader,
    key: &str,
    name: &Name,
    rule: &LimitRule,
) {
    if scenario.floods().any(|flood| flood.name == *name) {
        let message = format!("`{name}` is a flood, and floods are not measured");
        let hint = "name a stream of the kind `cyclic`, `request-response` or `pipeline`";
        reader.fail_at(key, message, hint);
        return;
    }
    if let Some(stage) = of_one_message(rule.metric)
        && scenario
            .measured()
            .any(|stream| stream.name == *name && stream.way == MessageFlow::Whole)
    {
        let message =
            format!("`{name}` is a whole pipeline, and its way has {stage} several times");
        let hint = format!("name one of its connections, such as `{name}-1`");
        reader.fail_at(key, message, &hint);
        return;
    }
    if let Some(stage) =
        of_one_message(rule.metric).filter(|_| !rule.metric.word().starts_with("slot-wait"))
        && scenario.programs.iter().any(|program| program.streams.contains(name))
    {
        let message = format!("`{name}` is of a program of yours, of which {stage} is not known");
        let hint = "what is measured of it are latencies, from interface to interface, and waits \
                    for the slot";
        reader.fail_at(key, message, hint);
    }
}

/// What the metric is about, if it is a part of one message's way.
fn of_one_message(metric: Metric) -> Option<&'static str> {
    let word = metric.word();
    match () {
        () if word.starts_with("slot-wait") => Some("a wait for the slot"),
        () if word.starts_with("receive") => Some("a receive processing"),
        () if word.starts_with("launch") => Some("a launch"),
        () => None,
    }
}

/// Only a case with slots can have frames outside them, and so on.
fn check_cases(scenario: &Scenario, reader: &mut Reader, at: &str, rule: &LimitRule) {
    let written = keyed(rule.case.as_ref(), &format!("{at}.case"));
    let reference = rule.relative_to.iter().filter_map(|other| other.case.as_ref());
    let reference = reference.map(|case| (format!("{at}.relative_to.case"), case));
    for (key, name) in written.into_iter().chain(reference) {
        let case = scenario.experiment.cases.iter().find(|case| case.name == *name);
        let Some(case) = case else { continue };
        let Some((why, hint)) = lacks(rule.metric, case.backend) else { continue };
        reader.fail_at(&key, format!("the case `{name}` {why}"), hint);
    }
}

/// The bound must be of the kind that the metric has.
pub(super) fn check_bound(reader: &mut Reader, at: &str, limit: &NetLimit) {
    let (bound, metric) = (limit.at_most, limit.metric.word());
    let key = format!("{at}.at_most");
    let relative = limit.relative_to.is_some();
    let (message, hint) = match (bound, relative, limit.metric.is_time()) {
        (AtMost::Ratio(_), true, _)
        | (AtMost::Time(_), false, true)
        | (AtMost::Share(_), false, false) => return,
        (AtMost::Time(_) | AtMost::Share(_), true, _) => (
            format!("`{bound}` is not a ratio, as `relative_to` needs it"),
            "write a bare number, such as 0.5 for half",
        ),
        (AtMost::Ratio(_), false, true) => (
            format!("`{bound}` has no unit: did you mean {bound}us, {bound}ms, {bound}ns?"),
            "write the unit; a bare number is a ratio, and needs `relative_to`",
        ),
        (AtMost::Ratio(_), false, false) => (
            format!("`{bound}` has no unit: did you mean {bound}%?"),
            "write the unit; a bare number is a ratio, and needs `relative_to`",
        ),
        (AtMost::Share(_), false, true) => (
            format!("`{bound}` is a share, but the metric `{metric}` is a time"),
            "write a time, such as 1040us",
        ),
        (AtMost::Time(_), false, false) => (
            format!("`{bound}` is a time, but the metric `{metric}` is a share"),
            "write a share, such as 0.1%",
        ),
    };
    reader.fail_at(&key, message, hint);
}
