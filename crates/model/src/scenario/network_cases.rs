// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiment of a network: each of its cases is the file with a change, under one load a
//! network of its own.

use std::collections::BTreeSet;

use timewire_base::{Span, StationName};

use super::ScenarioErrors;
use super::change::{Change, find, merged, name_of};
use super::check_cases::{check, check_quick, judged, refuse_cases};
use super::error::Problem;
use super::further::FurtherChecks;
use super::item::{Item, Reader};
use super::kind::unknown_kind;
use super::network::{
    NetFault, NetLateFault, NetLimit, NetSegment, NetStream, NetStreamFault, NetTraffic,
    NetworkFile,
};
use super::phases::{TimingSpec, Variable};
use super::record::{default_value, record};
pub use super::relative::RelativeLimit;
use super::relative::relative_limits;
use super::several::Several;
use super::tree::{self, Node, Value};
use super::value::{Count, Name, Text};
use super::variants::{Variant, variants};
use super::{network_check, network_plan, phases, segment_keys, wiring};

record! {
    /// What is compared: each case under each load, one after the other.
    pub struct NetExperiment {
        /// How long each of them runs with `--quick`, which needs it.
        quick_duration: Option<Span>,
        /// Names of the loads; a stream names those in which it runs.
        loads: Vec<Name> = "[all]",
        /// What is compared.
        cases: Vec<NetCase> = "[]",
        /// What is varied; every combination is performed. In phases `${NAME}` stands for the
        /// value.
        variables: Vec<Variable> = "[]",
        /// Variables that change together instead: the first values of all, the second of all.
        together: Vec<Vec<Name>> = "[]",
        /// How often each combination is performed.
        repeats: Count<1, 1000> = "1",
        /// How long phases may take.
        timing: TimingSpec = "{}",
    }
}

record! {
    /// One of the networks that are compared.
    pub struct NetCase {
        /// Name of the case.
        name: Name,
        /// Title of the case in tables; without it, its name.
        title: Text = "''",
        /// How its network differs from the rest of the file, as RFC 7396 merges: a group changes
        /// key by key, `null` removes a key, and all else replaces. Of a list of things with names,
        /// write a group with the names of those that differ: `streams: { control: { class: 5 } }`.
        change: Change = "{}",
    }
}

/// One network: a case of the experiment under a load, or the only one of a file without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkCase {
    /// The case with its variant: `priority-rate-10mbit`; `network` in a file without cases.
    pub case: String,
    /// The case alone.
    pub of: String,
    /// The values of variables that it has.
    pub variant: Variant,
    /// Its title; empty in a file without an experiment.
    pub title: String,
    /// The load; `all` in a file without an experiment.
    pub load: String,
    /// The network: streams that run in the load, limits that hold there.
    pub file: NetworkFile,
    /// How long it runs with `--quick`.
    pub quick_duration: Option<Span>,
}

impl NetworkCase {
    /// Its name in results.
    pub fn id(&self) -> String {
        format!("{}/{}/{}", self.file.name, self.case, self.load)
    }

    /// Its seed where this one is asked for: repetitions have those that follow.
    pub fn seed(&self, asked: Option<u64>) -> u64 {
        let more = self.variant.repeat.saturating_sub(1);
        asked.map_or(self.file.seed.get(), |seed| seed.saturating_add(more))
    }

    /// Whether a stream of this name runs in it, or a pipeline with messages of this name.
    pub(super) fn has(&self, stream: &Name) -> bool {
        self.file.streams.iter().any(|it| it.result_names().contains(stream))
    }
}

/// A network file with all networks that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkCases {
    /// The file as it stands, without the experiment: all streams, and the limits of no case.
    pub base: NetworkFile,
    /// The networks, case by case, and load by load; at least one.
    pub cases: Vec<NetworkCase>,
    /// Limits that look at two of them.
    pub relative: Vec<RelativeLimit>,
    /// Whether the file has an experiment.
    pub has_experiment: bool,
    /// The file as it is written, with all that is left out.
    pub written: NetworkFile,
}

impl NetworkCases {
    /// Reads and checks a file; `file_name` is for the messages. Callers use `timewire_tsn::file`,
    /// which has the further checks.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place.
    pub fn parse_with(
        further: &dyn FurtherChecks,
        file_name: &str,
        text: &str,
    ) -> Result<NetworkCases, ScenarioErrors> {
        NetworkCases::parse(Checks { further, streams: true }, file_name, text)
    }

    /// As [`NetworkCases::parse_with`], and a file without streams is one too: they come from
    /// elsewhere, or nothing is asked but host settings.
    ///
    /// **Errors**: as there.
    pub fn parse_without_streams(
        further: &dyn FurtherChecks,
        file_name: &str,
        text: &str,
    ) -> Result<NetworkCases, ScenarioErrors> {
        NetworkCases::parse(Checks { further, streams: false }, file_name, text)
    }

    fn parse(
        checks: Checks<'_>,
        file_name: &str,
        text: &str,
    ) -> Result<NetworkCases, ScenarioErrors> {
        let failed = |problems| ScenarioErrors::new(file_name, text, problems);
        let root = tree::parse(text).map_err(failed)?;
        let problem = unknown_kind(&root).or_else(|| host_of_no_station(&root));
        if let Some(problem) = problem {
            return Err(failed(vec![problem]));
        }
        let mut reader = Reader::new(root.mark);
        let cases = NetworkCases::read(&root, checks, &mut reader);
        cases.ok_or_else(|| failed(reader.problems))
    }

    /// A file with streams; what is wrong with it is in the reader.
    pub(super) fn read_with(
        further: &dyn FurtherChecks,
        root: &Node,
        reader: &mut Reader,
    ) -> Option<NetworkCases> {
        NetworkCases::read(root, Checks { further, streams: true }, reader)
    }

    fn read(root: &Node, checks: Checks<'_>, reader: &mut Reader) -> Option<NetworkCases> {
        let variants = match variants(root) {
            Ok(variants) => variants,
            Err(problems) => {
                reader.problems.extend(problems);
                return None;
            }
        };
        let networks: Vec<Node> =
            variants.iter().map(|it| it.put_into(root, &mut reader.problems)).collect();
        // Each of them has what is wrong with the file.
        let mut told = BTreeSet::new();
        reader.problems.retain(|it| told.insert((it.key.clone(), it.message.clone())));
        if !reader.problems.is_empty() {
            return None;
        }
        let first = networks.first().unwrap_or(root);
        let file = read(first, checks, reader).filter(|_| reader.problems.is_empty())?;
        if let Some(experiment) = file.experiment.as_ref().filter(|_| !file.has_steps_alone()) {
            check(&file, experiment, reader);
        } else {
            refuse_cases(&file, reader);
        }
        if !reader.problems.is_empty() {
            return None;
        }
        let variants: Vec<(Variant, Node)> = variants.into_iter().zip(networks).collect();
        cases(&variants, file, checks, reader)
    }
}

/// What a file is checked for, besides its own keys.
#[derive(Clone, Copy)]
struct Checks<'a> {
    further: &'a dyn FurtherChecks,
    /// There is to be a stream.
    streams: bool,
}

/// Host settings beside no stations: nothing else in the file would be worth telling.
fn host_of_no_station(root: &Node) -> Option<Problem> {
    let Value::Map(entries) = &root.value else { return None };
    let key = |name: &str| entries.iter().find(|(key, _)| key.text == name).map(|(key, _)| key);
    let (host, None) = (key("host")?, key("stations")) else { return None };
    let message = "`host` is a key of a station of a network".to_owned();
    let hint = "write `kind: network` and `stations: [{ name: NAME, host: ... }]`";
    Some(Problem { key: "host".to_owned(), ..Problem::new(host.mark, message, hint) })
}

impl NetStream {
    /// Whether it runs in this load of the experiment.
    fn runs_in(&self, load: &Name) -> bool {
        self.loads.as_ref().is_none_or(|loads| loads.contains(load))
    }
}

impl NetworkFile {
    /// A segment that names no station has all of them; frames whose class a bridge has to know
    /// have a VLAN tag.
    fn fill(&mut self) {
        let all: Vec<StationName> = self.stations.iter().map(|it| it.name.clone()).collect();
        let unnamed = self.segments.iter_mut().filter(|segment| segment.stations.is_empty());
        unnamed.for_each(|segment| segment.stations.clone_from(&all));
        for stream in &mut self.streams {
            let is_replay = matches!(stream.traffic, NetTraffic::Replay(_));
            let is_usual = stream.class.get() > 0 && !is_replay && !within(&self.segments, stream);
            stream.tagged.get_or_insert(is_usual);
        }
    }

    /// The network of a case, or that of none, under a load, or with all streams.
    pub(super) fn under(&self, case: Option<&Name>, load: Option<&Name>) -> NetworkFile {
        let mut file = self.clone();
        file.experiment = None;
        if let Some(load) = load {
            file.streams.retain(|stream| stream.runs_in(load));
            file.programs.retain(|program| program.runs_in(load));
        }
        file.programs.iter_mut().for_each(|program| program.loads = None);
        for stream in &mut file.streams {
            stream.loads = None;
        }
        let streams = &file.streams;
        // A program has those of its streams that run.
        for program in &mut file.programs {
            program.streams.retain(|name| streams.iter().any(|it| it.name == *name));
        }
        file.faults.retain(|fault| match fault {
            NetFault::Babble(NetStreamFault { stream, .. })
            | NetFault::Late(NetLateFault { stream, .. }) => {
                streams.iter().any(|it| it.name == *stream)
            }
            _ => true,
        });
        // No case and no load have an empty name.
        let [case, load] = [case, load].map(|name| name.map_or("", Name::as_str));
        let names: BTreeSet<&str> = file.streams.iter().map(|it| it.name.as_str()).collect();
        file.limits = (self.limits.iter())
            .filter(|it| it.relative_to.is_none() && it.is_about(case, load))
            .filter_map(|limit| {
                let there = |name: &&Name| names.contains(name.as_str());
                let own: Vec<Name> = limit.streams().iter().filter(there).cloned().collect();
                let stream = Some(Several::of(own)?);
                Some(NetLimit { stream, case: None, load: None, ..limit.clone() })
            })
            .collect();
        file
    }
}

/// Whether a stream is between stations of one segment.
fn within(segments: &[NetSegment], stream: &NetStream) -> bool {
    segments.iter().any(|segment| {
        let has = |station: &StationName| segment.stations.contains(station);
        has(&stream.talker) && stream.listeners.all().iter().all(has)
    })
}

/// Reads one network, and checks what needs no other.
fn read(root: &Node, checks: Checks<'_>, reader: &mut Reader) -> Option<NetworkFile> {
    let mut file = NetworkFile::read(root, reader)?;
    file.fill();
    if checks.streams && file.streams.is_empty() {
        let hint = match file.stations.iter().any(|station| station.host.is_some()) {
            true => "write at least one; `timewire apply` takes host settings alone",
            false => "write at least one",
        };
        reader.fail_at("streams", "there is no stream".into(), hint);
    }
    network_check::check(&file, checks.further, reader);
    segment_keys::check(&file, reader);
    network_plan::check(&file, reader);
    phases::check(&file, reader);
    if file.has_steps_alone() {
        wiring::check(&file, reader);
    }
    Some(file)
}

/// All networks of a file; the reader knows the places of its keys.
fn cases(
    variants: &[(Variant, Node)],
    base: NetworkFile,
    checks: Checks<'_>,
    reader: &mut Reader,
) -> Option<NetworkCases> {
    let compared = base.experiment.as_ref().filter(|_| !base.has_steps_alone());
    let Some(experiment) = compared else {
        let file = base.under(None, None);
        let (case, title, load) = (ONLY_CASE.to_owned(), String::new(), ONLY_LOAD.to_owned());
        let (of, variant) = (case.clone(), Variant::default());
        let quick_duration = None;
        let only =
            NetworkCase { case, of, variant, title, load, file: file.clone(), quick_duration };
        let (cases, relative) = (vec![only], Vec::new());
        let (written, has_experiment) = (base, false);
        return Some(NetworkCases { base: file, cases, relative, has_experiment, written });
    };
    let networks = experiment.networks(variants.len());
    let size = variants.first().map_or(0, |(_, root)| root.size());
    if size.saturating_mul(networks) > MAX_BYTES {
        let message = format!("{networks} networks of a file so long take too much memory");
        reader.fail_at("experiment.cases", message, "split the file");
        return None;
    }
    let mut cases = Vec::new();
    let mut problems = Vec::new();
    // Without cases there is one, the file as it stands.
    let only = [NetCase {
        name: Name::new(ONLY_CASE)?,
        title: default_value("''"),
        change: default_value("{}"),
    }];
    let of_file = if experiment.cases.is_empty() { &only[..] } else { &experiment.cases };
    // The limits of the file with the values of each variant; the first is read already.
    let mut limits = vec![base.limits.clone()];
    for (_, root) in variants.iter().skip(1) {
        let mut reader = Reader::new(root.mark);
        limits.extend(read(root, checks, &mut reader).map(|it| it.limits));
        problems.append(&mut reader.problems);
    }
    if !problems.is_empty() {
        reader.problems = once(problems);
        return None;
    }
    let mut rules = Vec::new();
    for (i, case) in of_file.iter().enumerate() {
        for ((variant, root), limits) in variants.iter().zip(&limits) {
            rules.extend(experiment.loads.iter().map(|_| limits.clone()));
            match changed(root, i, case, checks) {
                Ok(file) => cases.extend(experiment.loads.iter().map(|load| NetworkCase {
                    case: format!("{}{}", case.name, variant.suffix()),
                    of: case.name.to_string(),
                    title: format!("{}{}", case.title(), variant.title()),
                    load: load.to_string(),
                    file: NetworkFile {
                        seed: variant.seed(file.seed),
                        ..file.under(Some(&case.name), Some(load))
                    },
                    quick_duration: experiment.quick_duration,
                    variant: variant.clone(),
                })),
                Err(more) => problems.extend(more),
            }
        }
    }
    let mut names = BTreeSet::new();
    if let Some(same) = cases.iter().find(|it| !names.insert((&it.case, &it.load))) {
        let message = format!("two networks have the name `{}/{}`", same.case, same.load);
        let hint = "let values of variables differ in more than signs, in their first letters";
        reader.fail_at("experiment.variables", message, hint);
    }
    if let Some(long) = cases.iter().find(|it| it.case.len() > MAX_NAME) {
        let message = format!("`{}` is too long for a directory", long.case);
        let hint = "give variables shorter names, or vary fewer";
        reader.fail_at("experiment.variables", message, hint);
    }
    for case in &cases {
        if checks.streams && case.file.streams.is_empty() {
            let (case, load) = (&case.case, &case.load);
            let message = format!("in the case `{case}`, no stream runs in the load `{load}`");
            let hint = "add the load to the `loads` of a stream";
            reader.fail_at("experiment.loads", message, hint);
        }
    }
    if problems.is_empty() && reader.problems.is_empty() {
        judged(&base, &cases, reader);
    }
    problems.append(&mut reader.problems);
    if !problems.is_empty() {
        reader.problems = once(problems);
        return None;
    }
    let relative = relative_limits(&base, &cases, &rules);
    let (written, base) = (base.clone(), base.under(None, None));
    Some(NetworkCases { base, cases, relative, has_experiment: true, written })
}

/// Each problem once: cases share most of a file.
fn once(problems: Vec<Problem>) -> Vec<Problem> {
    let mut seen = BTreeSet::new();
    let key = |it: &Problem| (it.mark.line, it.mark.column, it.key.clone(), it.message.clone());
    problems.into_iter().filter(|it| seen.insert(key(it))).collect()
}

/// The network of a case, with all loads.
fn changed(
    root: &Node,
    index: usize,
    case: &NetCase,
    checks: Checks<'_>,
) -> Result<NetworkFile, Vec<Problem>> {
    let mut problems = Vec::new();
    let change = find(root, &["experiment", "cases"]).and_then(|cases| match &cases.value {
        Value::List(cases) => find(cases.get(index)?, &["change"]),
        _ => None,
    });
    let at = format!("experiment.cases[{index}].change");
    let merged = change.and_then(|change| merged(Some(root), change, &at, &mut problems));
    let mut merged = merged.unwrap_or_else(|| root.clone());
    only_limits_of(&mut merged, case.name.as_str());
    let mut reader = Reader::new(root.mark);
    let file = read(&merged, checks, &mut reader);
    if let Some(experiment) = file.as_ref().and_then(|file| file.experiment.as_ref()) {
        for stream in file.iter().flat_map(|file| &file.streams) {
            answered(file.as_ref(), stream, &experiment.loads, &mut reader);
        }
        if let Some(file) = &file {
            check_quick(file, experiment, &mut reader);
        }
    }
    let of_case = |mut problem: Problem| {
        if !problem.key.starts_with("experiment.cases") {
            problem.message = format!("in the case `{}`: {}", case.name, problem.message);
        }
        problem
    };
    problems.extend(reader.problems);
    match file {
        Some(file) if problems.is_empty() => Ok(file),
        _ => Err(problems.into_iter().map(of_case).collect()),
    }
}

/// A stream that waits for another runs where the other does.
fn answered(file: Option<&NetworkFile>, stream: &NetStream, loads: &[Name], reader: &mut Reader) {
    let (key, other) = match &stream.traffic {
        NetTraffic::Request(request) => ("answer", &request.answer),
        NetTraffic::After(after) => ("follows", &after.follows),
        _ => return,
    };
    let Some(file) = file else { return };
    let place = file.streams.iter().position(|it| it.name == stream.name).unwrap_or(0);
    let Some(other) = file.streams.iter().find(|it| it.name == *other) else { return };
    let alone = loads.iter().find(|load| stream.runs_in(load) && !other.runs_in(load));
    if let Some(load) = alone {
        let message = format!("`{}` does not run in the load `{load}`", other.name);
        let hint = "give both streams the same `loads`";
        reader.fail_at(&format!("streams[{place}].{key}"), message, hint);
    }
}

impl NetExperiment {
    /// How many networks there are with so many variants of each.
    pub(super) fn networks(&self, variants: usize) -> usize {
        let cases = self.cases.len().max(1).saturating_mul(self.loads.len());
        cases.saturating_mul(variants)
    }
}

impl NetCase {
    fn title(&self) -> &str {
        match self.title.as_str() {
            "" => self.name.as_str(),
            title => title,
        }
    }
}

/// Leaves out limits of other cases, and of each the streams that the case does not have: the file
/// as it stands has them, or its check has told.
fn only_limits_of(root: &mut Node, case: &str) {
    let Value::Map(entries) = &mut root.value else { return };
    let texts = |node: Option<&Node>| -> Option<BTreeSet<String>> {
        Some(match &node?.value {
            Value::List(all) => all.iter().filter_map(name_of).collect(),
            _ => name_of(node?).into_iter().collect(),
        })
    };
    let streams = entries.iter().find(|(key, _)| key.text == "streams");
    let streams = texts(streams.map(|(_, node)| node)).unwrap_or_default();
    let limits = entries.iter_mut().find(|(key, _)| key.text == "limits");
    let Some(Value::List(limits)) = limits.map(|(_, node)| &mut node.value) else { return };
    limits.retain_mut(|limit| {
        let is_of = texts(find(limit, &["case"])).is_none_or(|cases| cases.contains(case));
        let Value::Map(keys) = &mut limit.value else { return is_of };
        let named = keys.iter_mut().find(|(key, _)| key.text == "stream");
        let is_there = match named.map(|(_, node)| node) {
            Some(Node { value: Value::List(named), .. }) => {
                let count = named.len();
                named.retain(|node| name_of(node).is_none_or(|name| streams.contains(&name)));
                count == 0 || !named.is_empty()
            }
            Some(node) => name_of(node).is_none_or(|name| streams.contains(&name)),
            None => true,
        };
        is_of && is_there
    });
}

/// What the only network of a file without an experiment is called.
const ONLY_CASE: &str = "network";
/// Under what load it is.
const ONLY_LOAD: &str = "all";
/// Longest name of a case with its values. **Units**: bytes.
const MAX_NAME: usize = 150;
/// Most memory that the texts of all networks take together.
const MAX_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::super::further::NothingFurther;
    use super::*;

    fn parse(text: &str) -> Result<NetworkCases, ScenarioErrors> {
        NetworkCases::parse_with(&NothingFurther, "f", text)
    }

    const GOOD: &str = "
timewire: 1
kind: network
name: two
duration: 100ms
warm_up: 1ms
stations: [a, b]
bridges: [{ name: m, forward: 1us }]
links: [{ between: [a, m] }, { between: [m, b] }]
streams:
  - { name: control, talker: a, listeners: b, class: 5, size: 64B, period: 1ms }
  - { name: files, talker: a, listeners: b, size: 1472B, kind: flood, rate: 50Mbit, loads: [busy] }
experiment:
  quick_duration: 10ms
  loads: [alone, busy]
  cases:
    - { name: plain, title: One queue, change: { streams: { control: { class: 0 } } } }
    - { name: priority }
    - name: planned
      change:
        duration: 50ms
        bridges: { m: { forward: null } }
        stations: { b: { receive: 2us } }
        streams: { control: { scheduled: true, max_latency: 500us } }
limits:
  - { id: fast, metric: latency-max, stream: control, at_most: 1ms }
  - { id: busy, metric: latency-p99, stream: control, case: [priority, planned], load: busy,
      at_most: 900us }
  - { id: helps, metric: latency-p99, stream: control, load: busy, relative_to: { case: plain },
      at_most: 0.5 }
";

    #[test]
    fn t0_each_case_is_the_file_with_its_change_under_each_load() {
        let all = parse(GOOD).unwrap();
        let ids: Vec<String> = all.cases.iter().map(NetworkCase::id).collect();
        assert_eq!(
            ids,
            [
                "two/plain/alone",
                "two/plain/busy",
                "two/priority/alone",
                "two/priority/busy",
                "two/planned/alone",
                "two/planned/busy",
            ]
        );
        let of = |id: &str| &all.cases.iter().find(|case| case.id() == id).unwrap().file;
        let names = |id: &str| -> Vec<String> {
            of(id).streams.iter().map(|it| it.name.to_string()).collect()
        };
        assert_eq!(names("two/plain/alone"), ["control"]);
        assert_eq!(names("two/planned/busy"), ["control", "files"]);
        assert_eq!(of("two/plain/busy").streams[0].class.get(), 0);
        assert_eq!(of("two/priority/busy").streams[0].class.get(), 5);
        let planned = of("two/planned/alone");
        assert!(planned.streams[0].scheduled);
        assert_eq!(planned.duration, Span::from_ms(50));
        assert_eq!(planned.bridges[0].forward.range().1, Some(Span::ZERO));
        assert_eq!(planned.stations[1].receive.range().1, Some(Span::from_us(2)));
        let limits =
            |id: &str| -> Vec<String> { of(id).all_limits().into_iter().map(|it| it.id).collect() };
        assert_eq!(limits("two/plain/busy"), ["fast"]);
        assert_eq!(limits("two/planned/busy"), ["fast", "busy"]);
        let relative: Vec<&str> = all.relative.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(relative, ["helps-control-priority-busy", "helps-control-planned-busy"]);
        assert_eq!(all.cases[0].title, "One queue");
        assert_eq!(all.cases[2].title, "priority");
        // Without its experiment it is a file as any other, and each network is one.
        assert!(all.base.experiment.is_none() && all.base.streams.len() == 2);
        for case in &all.cases {
            let text = case.file.to_json().to_string();
            assert_eq!(parse(&text).unwrap().base, case.file);
        }
    }

    #[test]
    fn t0_a_program_has_those_of_its_streams_that_run() {
        let text = GOOD.replacen("period: 1ms }", "period: 1ms, loads: [busy] }", 1)
            + "programs: [{ name: p, station: a, command: ./p, streams: [control] }]\n";
        let text = text.replacen(", loads: [busy] }\nexp", " }\nexp", 1);
        let all = parse(&text).unwrap_or_else(|errors| panic!("{errors}"));
        let streams = |at: usize| all.cases[at].file.programs[0].streams.len();
        assert_eq!((streams(0), streams(1)), (0, 1));
        for case in &all.cases {
            assert_eq!(parse(&case.file.to_json().to_string()).unwrap().base, case.file);
        }
    }

    #[test]
    fn t0_a_file_without_an_experiment_is_one_network() {
        let cut = GOOD.find("experiment:").unwrap();
        let text = GOOD[..cut].replace(", loads: [busy]", "");
        let all = parse(&text).unwrap();
        assert_eq!((all.cases.len(), all.cases[0].id().as_str()), (1, "two/network/all"));
        assert_eq!(all.cases[0].file, all.base);
    }

    #[test]
    fn t0_what_is_wrong_with_cases_is_told_with_its_place() {
        let nobody = "there is no `contrl` in this list: did you mean `control`?";
        for (from, to, key, says) in [
            ("name: priority", "name: plain", "experiment.cases[1].name", "two cases `plain`"),
            ("[alone, busy]", "[busy, busy]", "experiment.loads[1]", "is there twice"),
            ("loads: [busy]", "loads: [idle]", "streams[1].loads[0]", "no load `idle`"),
            (
                "{ control: { class: 0 } }",
                "{ contrl: { class: 0 } }",
                "experiment.cases[0].change.streams.contrl",
                nobody,
            ),
            (
                "{ class: 0 }",
                "{ clas: 0 }",
                "streams[0]",
                "in the case `plain`: unknown key `clas`",
            ),
            ("{ class: 0 }", "{ class: 9 }", "streams[0].class", "in the case `plain`: 9 is not"),
            ("{ class: 0 }", "null", "experiment.loads", "no stream runs in the load `alone`"),
            ("duration: 50ms", "limits: {}", "experiment.cases[2].change", "of the whole file"),
            ("10ms", "1s", "experiment.quick_duration", "longer than `duration`"),
            ("[priority, planned]", "[]", "limits[1].case", "it names none"),
            ("[priority, planned]", "[plain, plain]", "limits[1].case", "is there twice"),
            ("loads: [busy]", "loads: []", "streams[1].loads", "it names none"),
            (
                "stream: control, at_most: 1ms",
                "stream: files, load: alone, at_most: 1ms",
                "limits[0].stream",
                "the stream `files` does not run in the load `alone`",
            ),
            ("{ case: plain }", "{ load: busy }", "limits[2].relative_to", "is always 1"),
            (
                "duration: 50ms",
                "duration: 5ms",
                "experiment.quick_duration",
                "than `duration`, 5ms",
            ),
            // Case and load have the stream, and not together.
            (
                "stream: control, case: [priority, planned], load: busy",
                "stream: files, case: priority, load: alone",
                "limits[1].stream",
                "does not run in the load `alone`",
            ),
            (
                "stream: control, load: busy, relative_to: { case: plain }",
                "stream: files, load: busy, relative_to: { load: alone }",
                "limits[2].stream",
                "does not run in the load `alone`",
            ),
            ("duration: 50ms", "name: x", "experiment.cases[2].change", "of the whole file"),
            ("duration: 50ms", "warm_up: 10ms", "experiment.quick_duration", "in 10ms after 10ms"),
            ("[priority, planned]", "[priority, plan]", "limits[1].case[1]", "no case `plan`"),
            ("load: busy,\n", "load: full,\n", "limits[1].load", "no load `full`"),
            ("{ case: plain }", "{ case: plan }", "limits[2].relative_to.case", "no case `plan`"),
            ("{ case: plain }", "{}", "limits[2].relative_to", "neither a case nor a load"),
            ("at_most: 0.5", "at_most: 5us", "limits[2].at_most", "is not a ratio"),
            ("change: { streams: { control", "change: [{ control", "", ""),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let errors = parse(&text).unwrap_err();
            let is = |at: &str, message: &str| at.ends_with(key) && message.contains(says);
            let found = errors.errors.iter().any(|it| is(&it.key, &it.message));
            assert!(found, "{to}: {errors}");
        }
        let cut = GOOD.find("experiment:").unwrap();
        let errors = parse(&GOOD[..cut]).unwrap_err();
        assert!(errors.to_string().contains("no `experiment` with the loads of `files`"));
        let nobody = "limits: [{ id: x, metric: lost, stream: [], at_most: 0% }]";
        let plain = GOOD[..cut].replace(", loads: [busy]", "") + nobody;
        let errors = parse(&plain).unwrap_err();
        assert!(errors.to_string().contains("limits[0].stream: it names none"), "{errors}");
        // Most of a megabyte, 512 times.
        let cases: String = (0..253).map(|i| format!("    - {{ name: c{i} }}\n")).collect();
        let streams: String = (0..900)
            .map(|i| {
                let name = format!("s{i}-{}", "x".repeat(40));
                format!(
                    "  - {{ name: {name}, talker: a, listeners: b, class: 3, size: 100B, \
                     period: 100ms, offset: 1us, burst: 1, spacing: 1us, max_latency: 90ms }}\n"
                )
            })
            .collect();
        let long = GOOD.replacen("    - { name: priority }\n", &cases, 1);
        let long = long.replacen("[priority, planned]", "planned", 1);
        let long = long.replacen("streams:\n", &format!("streams:\n{streams}"), 1);
        let long = long
            .replace("[alone, busy]", "[alone]")
            .replace(", loads: [busy] }", " }")
            .replace("load: busy", "load: alone");
        let errors = parse(&long).unwrap_err();
        assert!(errors.to_string().contains("of a file so long take too much memory"), "{errors}");
        // A jitter is no number to divide.
        let text = GOOD.replacen(
            "metric: latency-p99, stream: control, load",
            "metric: jitter, \
            stream: control, load",
            1,
        );
        let errors = parse(&text).unwrap_err();
        assert!(errors.to_string().contains("is judged in each case alone"), "{errors}");
    }

    #[test]
    fn t0_a_limit_of_several_streams_holds_for_those_that_a_case_has() {
        let text = GOOD
            .replacen("stream: control, at_most: 1ms", "stream: [control, files], at_most: 1ms", 1)
            .replacen(
                "{ name: priority }",
                "{ name: priority, change: { streams: { files: null } } }",
                1,
            )
            .replacen(", loads: [busy] }", " }", 1);
        let all = parse(&text).unwrap_or_else(|errors| panic!("{errors}"));
        let limits = |id: &str| -> Vec<String> {
            let case = all.cases.iter().find(|case| case.id() == id).unwrap();
            case.file.all_limits().into_iter().map(|it| it.id).collect()
        };
        assert_eq!(limits("two/plain/alone"), ["fast-control", "fast-files"]);
        assert_eq!(limits("two/priority/alone"), ["fast"]);
        let nowhere =
            text.replacen("[control, files], at", "[control, files], case: priority, at", 1);
        let errors = parse(&nowhere).unwrap_err().to_string();
        assert!(errors.contains("the case `priority` has no stream `files`"), "{errors}");
    }

    #[test]
    fn t0_a_stream_that_waits_for_another_runs_where_it_does() {
        let text = GOOD.replacen(
            "  - { name: files,",
            "  - { name: ask, talker: a, listeners: b, size: 64B, kind: request, answer: say }\n  \
             - { name: say, talker: b, listeners: a, size: 64B, kind: after, follows: ask,\n      \
             loads: [busy] }\n  - { name: files,",
            1,
        );
        let errors = parse(&text).unwrap_err();
        let says = "in the case `plain`: `say` does not run in the load `alone`";
        assert!(errors.to_string().contains(says), "{errors}");
        assert!(parse(&text.replace(",\n      loads: [busy] }", " }")).is_ok());
    }
}
