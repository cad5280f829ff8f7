// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments of networks that can be run and judged: cases and loads that exist, once, and limits
//! of what is measured.

use super::item::Reader;
use super::model::{Metric, ReferenceRule};
use super::network::{NetLimit, NetworkFile};
use super::network_cases::{NetExperiment, NetworkCase};
use super::several::Several;
use super::value::Name;
use super::variants::combinations;

/// What is wrong with the experiment itself.
pub(super) fn check(file: &NetworkFile, experiment: &NetExperiment, reader: &mut Reader) {
    let is_varied = !experiment.variables.is_empty() || experiment.repeats.get() > 1;
    if experiment.cases.is_empty() && !is_varied {
        let message = "there is no case".to_owned();
        reader.fail_at("experiment.cases", message, "write at least one, with a `name`");
    }
    if experiment.loads.is_empty() {
        let message = "there is no load".to_owned();
        reader.fail_at("experiment.loads", message, "name one, or leave the key out");
    }
    let combinations = combinations(&experiment.variables, &experiment.together).len();
    let repeats = usize::try_from(experiment.repeats.get()).unwrap_or(usize::MAX);
    let variants = combinations.saturating_mul(repeats);
    if experiment.networks(variants) > MAX_CASES {
        let message = format!("more than {MAX_CASES} networks are too many for one run");
        let key = if is_varied { "experiment.variables" } else { "experiment.cases" };
        reader.fail_at(key, message, "split the file");
    }
    if experiment.loads.is_empty() {
        return;
    }
    let cases: Vec<&str> = experiment.cases.iter().map(|case| case.name.as_str()).collect();
    let loads: Vec<&str> = experiment.loads.iter().map(Name::as_str).collect();
    for (i, case) in experiment.cases.iter().enumerate() {
        let at = format!("experiment.cases[{i}]");
        if cases[..i].contains(&case.name.as_str()) {
            let message = format!("there are two cases `{}`", case.name);
            reader.fail_at(&format!("{at}.name"), message, "give each its own name");
        }
        for (key, hint) in OF_THE_FILE {
            if case.change.0.get(key).is_some() {
                let message = format!("`{key}` is of the whole file, and of no case");
                reader.fail_at(&format!("{at}.change"), message, hint);
            }
        }
    }
    let of_duration = |key: &str| experiment.cases.iter().any(|it| it.change.0.get(key).is_some());
    if !of_duration("duration") && !of_duration("warm_up") {
        check_quick(file, experiment, reader);
    }
    for (i, load) in loads.iter().enumerate() {
        if loads[..i].contains(load) {
            let message = format!("the load `{load}` is there twice");
            reader.fail_at(&format!("experiment.loads[{i}]"), message, "remove one");
        }
    }
    for (i, stream) in file.streams.iter().enumerate() {
        let at = format!("streams[{i}].loads");
        each_once(reader, &at, stream.loads.as_deref());
        for (j, load) in stream.loads.iter().flatten().enumerate() {
            let key = format!("{at}[{j}]");
            reader.known_name(&key, "load", load.as_str(), loads.iter().copied());
        }
    }
    for (i, limit) in file.limits.iter().enumerate() {
        let at = format!("limits[{i}]");
        each_once(reader, &format!("{at}.case"), limit.case.as_ref().map(Several::all));
        each_once(reader, &format!("{at}.load"), limit.load.as_ref().map(Several::all));
        for (key, case) in limit.case.iter().flat_map(|it| it.keyed(&format!("{at}.case"))) {
            reader.known_name(&key, "case", case.as_str(), cases.iter().copied());
        }
        for (key, load) in limit.load.iter().flat_map(|it| it.keyed(&format!("{at}.load"))) {
            reader.known_name(&key, "load", load.as_str(), loads.iter().copied());
        }
        if let Some(to) = &limit.relative_to {
            check_reference(limit, to, (&cases, &loads), &at, reader);
        }
    }
}

/// A quick run is no longer than the whole one, and counts something.
pub(super) fn check_quick(file: &NetworkFile, experiment: &NetExperiment, reader: &mut Reader) {
    let Some(quick) = experiment.quick_duration else { return };
    let at = "experiment.quick_duration";
    let (least, most) = (file.warm_up, file.duration);
    if quick <= least {
        let message = format!("nothing is counted in {quick} after {least}");
        reader.fail_at(at, message, "write a time above the warm-up");
    }
    if quick > most {
        let message = format!("the quick run of {quick} is longer than `duration`, {most}");
        reader.fail_at(at, message, "write a time of at most `duration`");
    }
}

/// A list of names has one at least, and each once.
pub(super) fn each_once(reader: &mut Reader, key: &str, names: Option<&[Name]>) {
    let Some(names) = names else { return };
    if names.is_empty() {
        reader.fail_at(key, "it names none".to_owned(), "name one, or leave the key out");
    }
    for (i, name) in names.iter().enumerate() {
        if names[..i].contains(name) {
            reader.fail_at(key, format!("`{name}` is there twice"), "name it once");
        }
    }
}

/// Each limit is judged: in every case and load that it names its streams run, and somewhere where
/// it names none; and one that is relative to another network looks at two.
pub(super) fn judged(file: &NetworkFile, cases: &[NetworkCase], reader: &mut Reader) {
    for (i, limit) in file.limits.iter().enumerate() {
        let at = format!("limits[{i}]");
        let itself = |name: &Option<Name>, own: &Option<Several<Name>>| match (name, own) {
            (None, _) => true,
            (Some(name), Some(own)) => matches!(own.all(), [only] if only == name),
            (Some(_), None) => false,
        };
        if let Some(to) = &limit.relative_to
            && (to.case.is_some() || to.load.is_some())
            && itself(&to.case, &limit.case)
            && itself(&to.load, &limit.load)
        {
            let message = "a value relative to itself is always 1".to_owned();
            reader.fail_at(&format!("{at}.relative_to"), message, "name another case or load");
            continue;
        }
        for stream in limit.streams() {
            let before = reader.problems.len();
            for name in limit.case.iter().flat_map(Several::all) {
                if !cases.iter().any(|case| case.of == name.as_str() && case.has(stream)) {
                    let message = format!("the case `{name}` has no stream `{stream}`");
                    reader.fail_at(&format!("{at}.case"), message, "name cases that have it");
                }
            }
            let reference = limit.relative_to.iter();
            let loads = limit.load.iter().flat_map(Several::all);
            for name in loads.chain(reference.clone().filter_map(|to| to.load.as_ref())) {
                if !cases.iter().any(|case| case.load == name.as_str() && case.has(stream)) {
                    let message =
                        format!("the stream `{stream}` does not run in the load `{name}`");
                    let hint = "add the load to the `loads` of the stream";
                    reader.fail_at(&format!("{at}.stream"), message, hint);
                }
            }
            for name in reference.filter_map(|to| to.case.as_ref()) {
                if !cases.iter().any(|case| case.of == name.as_str() && case.has(stream)) {
                    let message = format!("the case `{name}` has no stream `{stream}`");
                    let key = format!("{at}.relative_to.case");
                    reader.fail_at(&key, message, "name a case that has it");
                }
            }
            if reader.problems.len() == before && !limit.is_judged(stream, cases) {
                let message = format!("nothing of `{stream}` is judged in any case and load");
                let hint = "name cases and loads in which the stream runs";
                reader.fail_at(&format!("{at}.stream"), message, hint);
            }
        }
    }
}

fn check_reference(
    limit: &NetLimit,
    to: &ReferenceRule,
    (cases, loads): (&[&str], &[&str]),
    at: &str,
    reader: &mut Reader,
) {
    let at = format!("{at}.relative_to");
    if to.case.is_none() && to.load.is_none() {
        let message = "it names neither a case nor a load".to_owned();
        reader.fail_at(&at, message, "name a `case`, a `load`, or both");
    }
    if let Some(case) = &to.case {
        let key = format!("{at}.case");
        reader.known_name(&key, "case", case.as_str(), cases.iter().copied());
    }
    if let Some(load) = &to.load {
        let key = format!("{at}.load");
        reader.known_name(&key, "load", load.as_str(), loads.iter().copied());
    }
    if matches!(limit.metric, Metric::Jitter | Metric::OutsideWindows) {
        let message = format!("`{}` is judged in each case alone", limit.metric.word());
        let hint = "write a time or a share, or take another metric";
        reader.fail_at(&at, message, hint);
    }
}

/// Without an experiment there are no cases and loads to name.
pub(super) fn refuse_cases(file: &NetworkFile, reader: &mut Reader) {
    let mut refuse = |key: String, what: &str| {
        let message = format!("there is no `experiment` with {what}");
        reader.fail_at(&key, message, "add one, or leave this key out");
    };
    for (i, stream) in file.streams.iter().enumerate().filter(|it| it.1.loads.is_some()) {
        refuse(format!("streams[{i}].loads"), &format!("the loads of `{}`", stream.name));
    }
    for (i, program) in file.programs.iter().enumerate().filter(|it| it.1.loads.is_some()) {
        refuse(format!("programs[{i}].loads"), &format!("the loads of `{}`", program.name));
    }
    for (i, limit) in file.limits.iter().enumerate() {
        let keys = [
            ("case", limit.case.is_some()),
            ("load", limit.load.is_some()),
            ("relative_to", limit.relative_to.is_some()),
        ];
        for (key, _) in keys.into_iter().filter(|it| it.1) {
            refuse(format!("limits[{i}].{key}"), "cases");
        }
    }
}

/// What no case changes, and what to do.
const OF_THE_FILE: [(&str, &str); 5] = [
    ("timewire", "leave it out"),
    ("kind", "leave it out"),
    ("name", "leave it out"),
    ("experiment", "leave it out"),
    ("limits", "write `case: NAME` at the limit"),
];
/// Most networks of one file.
const MAX_CASES: usize = 256;
