// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits that can be judged: of cases, loads and streams that exist, with a bound of the kind that
//! the metric has.
//!
//! Not here: judging them (`timewire-trace`).

use super::check::known_name;
use super::item::Reader;
use super::model::{CaseMac, Limit, Metric, Scenario, Way};
use super::value::{AtMost, Name};

/// Finds what is wrong with the limits, all of it.
pub(super) fn check_limits(scenario: &Scenario, reader: &mut Reader) {
    for (i, limit) in scenario.limits.iter().enumerate() {
        let at = format!("limits[{i}]");
        if let Some(first) = scenario.limits[..i].iter().position(|other| other.id == limit.id) {
            let message =
                format!("the limit `{}` is listed twice, first in limits[{first}]", limit.id);
            reader.fail_at(&format!("{at}.id"), message, "give it another name");
        }
        check_place(scenario, reader, &at, &limit.case, &limit.load);
        if let Some(other) = &limit.relative_to {
            let at = format!("{at}.relative_to");
            check_place(scenario, reader, &at, &other.case, &other.load);
            if (&other.case, &other.load) == (&limit.case, &limit.load) {
                let message = "a value relative to itself is always 1".into();
                reader.fail_at(&at, message, "name another case or load");
            }
        }
        check_stream(scenario, reader, &at, limit);
        check_segment(scenario, reader, &at, limit);
        check_bound(reader, &at, limit);
    }
}

fn check_place(scenario: &Scenario, reader: &mut Reader, at: &str, case: &Name, load: &Name) {
    let cases = scenario.experiment.cases.iter().map(|case| case.name.as_str());
    known_name(reader, &format!("{at}.case"), "case", case.as_str(), cases);
    let loads = scenario.experiment.loads.iter().map(Name::as_str);
    known_name(reader, &format!("{at}.load"), "load", load.as_str(), loads);
}

/// The stream must be measured, in every load the limit looks at.
fn check_stream(scenario: &Scenario, reader: &mut Reader, at: &str, limit: &Limit) {
    let key = format!("{at}.stream");
    let metric = limit.metric.word();
    let Some(name) = &limit.stream else {
        if !limit.metric.is_of_segment() {
            let message =
                format!("the metric `{metric}` is of one stream, and needs the key `stream`");
            reader.fail_at(&format!("{at}.metric"), message, "add `stream: ` and its name");
        }
        return;
    };
    if limit.metric.is_of_segment() {
        let message = format!("the metric `{metric}` is of all frames, not of one stream");
        reader.fail_at(&key, message, "remove `stream`");
        return;
    }
    let measured: Vec<Name> = scenario.measured().map(|stream| stream.name).collect();
    let measured: Vec<&str> = measured.iter().map(Name::as_str).collect();
    let flood = scenario.floods().find(|flood| flood.name == *name);
    if let (Some(flood), false) = (flood, measured.contains(&name.as_str())) {
        let message = format!("`{}` is a flood, and floods are not measured", flood.name);
        reader.fail_at(&key, message, "name a stream of the kind `request_response` or `pipeline`");
        return;
    }
    if !known_name(reader, &key, "measured stream", name.as_str(), measured.into_iter()) {
        return;
    }
    if let Some(stage) = of_one_message(limit.metric)
        && scenario.measured().any(|stream| stream.name == *name && stream.way == Way::Whole)
    {
        let message =
            format!("`{name}` is a whole pipeline, and its way has {stage} several times");
        let hint = format!("name one of its connections, such as `{name}-1`");
        reader.fail_at(&key, message, &hint);
        return;
    }
    let loads = [Some(&limit.load), limit.relative_to.as_ref().map(|other| &other.load)];
    for load in loads.into_iter().flatten() {
        let exists = scenario.experiment.loads.contains(load);
        if exists && !scenario.measured_in(load).any(|stream| stream.name == *name) {
            let message = format!("the stream `{name}` does not run in the load `{load}`");
            reader.fail_at(&key, message, "add the load to the `loads` of the stream");
            return;
        }
    }
}

/// What the metric is about, if it is a part of one message's way.
fn of_one_message(metric: Metric) -> Option<&'static str> {
    let word = metric.word();
    match () {
        () if word.starts_with("slot_wait") => Some("a wait for the slot"),
        () if word.starts_with("receive") => Some("a receive processing"),
        () if word.starts_with("launch") => Some("a launch"),
        () => None,
    }
}

/// Only a case with slots can have frames outside them, and so on.
fn check_segment(scenario: &Scenario, reader: &mut Reader, at: &str, limit: &Limit) {
    let references = limit.relative_to.iter().map(|other| ("relative_to.case", &other.case));
    for (key, name) in std::iter::once(("case", &limit.case)).chain(references) {
        let case = scenario.experiment.cases.iter().find(|case| case.name == *name);
        let Some(case) = case else { continue };
        let Some((why, hint)) = has_no(limit.metric, case.mac) else { continue };
        reader.fail_at(&format!("{at}.{key}"), format!("the case `{name}` {why}"), hint);
    }
}

/// Why a case of this kind does not have the metric, and which does.
fn has_no(metric: Metric, mac: CaseMac) -> Option<(&'static str, &'static str)> {
    let slots = "name a case with `mac: tdm` or `mac: taprio`";
    match (metric, mac) {
        (Metric::OutsideSlots | Metric::OutsideSlotsRealTime, CaseMac::None) => {
            Some(("is plain Ethernet, without slots", slots))
        }
        (Metric::OutsideSlots | Metric::OutsideSlotsRealTime, CaseMac::Cbs) => {
            Some(("keeps a rate, and has no slots", slots))
        }
        (Metric::OutsideRate, mac) if mac != CaseMac::Cbs => {
            Some(("has no reserved rate", "name a case with `mac: cbs`"))
        }
        (Metric::LaunchRefused | Metric::LaunchErrorMax, mac) if mac != CaseMac::Etf => {
            Some(("has no launch times", "name a case with `mac: etf`"))
        }
        _ => None,
    }
}

/// The bound must be of the kind that the metric has.
fn check_bound(reader: &mut Reader, at: &str, limit: &Limit) {
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
