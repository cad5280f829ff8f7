// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stations and bridges do by themselves in a run, phase by phase: steps, variables that are
//! varied, how long things may take, and limits on numbers that come of it.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use timewire_base::{Span, StationName};

use super::item::{Item as _, Reader};
use super::network::{NetClock, NetDelay, NetworkFile};
use super::network_cases::NetExperiment;
use super::record::{choice, default_value, record};
use super::several::Several;
use super::value::{Count, Name, Text, Word};
use super::variants::with_values;

record! {
    /// What a station or bridge does in a run beside what follows from the file, phase by phase.
    pub struct NodePhases {
        /// Make the host what the experiment needs.
        setup: PhaseSpec = "{}",
        /// Start what must be there before the first packet.
        open: PhaseSpec = "{}",
        /// What the experiment is about; begins everywhere at one instant.
        run: PhaseSpec = "{}",
        /// Let what is under way arrive.
        finish: PhaseSpec = "{}",
        /// End what was opened.
        close: PhaseSpec = "{}",
        /// Before the records are closed.
        report: PhaseSpec = "{}",
        /// Before the host is restored.
        teardown: PhaseSpec = "{}",
    }
}

record! {
    /// What a station or bridge does in a phase; or the steps alone.
    pub struct PhaseSpec by "steps" {
        /// Stations of a lower order go before, those of the same order go together.
        order: Count<0, 1000> = "0",
        /// How long after the begin of its order it begins; in `run`, after the common instant.
        after: Span = "0s",
        /// One after the other.
        steps: Vec<StepSpec> = "[]",
    }
}

record! {
    /// One thing to do: exactly one of `run`, `start`, `wait`, `stop`, `put`, `apply`, `snapshot`.
    pub struct StepSpec {
        /// The words of a command; it is waited for. `timewire` is the agent's own program.
        run: Option<Vec<Word>>,
        /// The words of a command that goes on.
        start: Option<Vec<Word>>,
        /// Wait for the end of the program of this name.
        wait: Option<Text>,
        /// Ask the program of this name to end, and wait for it.
        stop: Option<Text>,
        /// Write a file of this name, with what is in `from`.
        put: Option<Text>,
        /// A file beside this one.
        from: Option<Text>,
        /// Apply the host settings of this network file, beside this one.
        apply: Option<Text>,
        /// Keep the snapshot of the host as a record of this name.
        snapshot: Option<Text>,
        /// Of `run` and `start`: the program's name; its output is kept as `NAME.out`, `NAME.err`.
        name: Option<Text>,
        /// Exit codes that are a success, beside 0: of `run` and `start`; of `wait` and `stop`,
        /// those of the program that they name.
        accept: Vec<Count<0, 255>> = "[]",
        /// The station ends it after so long.
        timeout: Span = "60s",
        /// How often it is tried again.
        retries: Count<0, 100> = "0",
        /// How long after a failure.
        pause: Span = "0s",
        /// After which failures.
        after: Vec<RetryAfter> = "['not_started', 'exited', 'timed_out', 'unknown']",
    }
}

choice! {
    /// A failure after which something may be tried again.
    pub enum RetryAfter {
        /// It could not be started.
        NotStarted = "not_started",
        /// It failed.
        Exited = "exited",
        /// It took too long.
        TimedOut = "timed_out",
        /// Nobody knows whether it was done.
        Unknown = "unknown",
    }
}

record! {
    /// How long things may take.
    pub struct TimingSpec {
        /// A station that hears nothing for so long restores its host.
        lease: Span = "10s",
        /// After so long without an answer something is said again.
        resend: Span = "500ms",
        /// A station of which nothing is heard for so long before the first phase ends the run.
        preflight: Span = "5s",
        /// How far ahead the common start of `run` is.
        lead: Span = "1s",
        /// A station whose clock may be further than this from the controller's does not run.
        clock_within: Span = "10ms",
        /// A limit: each station starts at most so long before or after its planned instant.
        start_within: Option<Span>,
        /// How long a phase may take, for the stations of one order.
        phase: Span = "60s",
    }
}

record! {
    /// Something that is varied: a list of values, or a range of whole numbers.
    pub struct Variable {
        /// Its name; programs have it in capitals after `TIMEWIRE_` in their environment, so it has
        /// no `-`, and is none that Timewire itself reads there.
        name: Name,
        /// Its values.
        values: Vec<Word> = "[]",
        /// The first whole number of a range.
        from: Option<Count<0, 1000000000>>,
        /// The last, when a step meets it.
        to: Option<Count<0, 1000000000>>,
        /// From one to the next.
        step: Count<1, 1000000000> = "1",
    }
}

record! {
    /// A limit on a number in a record that is JSON.
    pub struct CheckSpec {
        /// Of which station.
        station: StationName,
        /// Which record.
        record: Text,
        /// Where in it, or several places: a JSON pointer (RFC 6901), such as `/streams/0/lost`;
        /// `*` stands for every entry: `/streams/*/lost`.
        value: Several<Text>,
        /// The number, or the least of several, is at least this.
        at_least: Option<Word>,
        /// The number, or the largest of several, is at most this.
        at_most: Option<Word>,
    }
}

impl NodePhases {
    /// The phases, in their order, with their names.
    pub fn all(&self) -> [(&'static str, &PhaseSpec); 7] {
        [
            ("setup", &self.setup),
            ("open", &self.open),
            ("run", &self.run),
            ("finish", &self.finish),
            ("close", &self.close),
            ("report", &self.report),
            ("teardown", &self.teardown),
        ]
    }

    /// As a file has it, with all defaults filled in.
    pub fn to_json(&self) -> Json {
        self.emit().unwrap_or_default()
    }

    /// Whether there is nothing to do.
    pub fn are_empty(&self) -> bool {
        self.all().iter().all(|(_, phase)| phase.steps.is_empty())
    }

    pub(super) fn check(&self, at: &str, reader: &mut Reader) {
        for (name, phase) in self.all() {
            if phase.steps.is_empty() && (phase.after > Span::ZERO || phase.order.get() > 0) {
                let hint = "write `steps`, or remove it";
                reader.fail_at(&format!("{at}.{name}"), "it has no steps".to_owned(), hint);
            }
            for (i, step) in phase.steps.iter().enumerate() {
                step.check(&format!("{at}.{name}.steps[{i}]"), reader);
            }
        }
    }
}

impl StepSpec {
    fn check(&self, at: &str, reader: &mut Reader) {
        let given = [
            self.run.is_some(),
            self.start.is_some(),
            self.wait.is_some(),
            self.stop.is_some(),
            self.put.is_some(),
            self.apply.is_some(),
            self.snapshot.is_some(),
        ];
        if given.iter().filter(|given| **given).count() != 1 {
            let hint = "write one of `run`, `start`, `wait`, `stop`, `put`, `apply`, `snapshot`";
            reader.fail_at(at, "a step does exactly one thing".into(), hint);
        }
        let command = self.run.as_ref().or(self.start.as_ref());
        if command.is_some_and(Vec::is_empty) {
            reader.fail_at(at, "the command has no words".into(), "write `[program, argument]`");
        }
        if command.is_some() != self.name.is_some() {
            let message = "`run` and `start` have a `name`, and nothing else has".to_owned();
            reader.fail_at(at, message, "name the program; its output is kept under that name");
        }
        let has_program = command.is_some() || self.wait.is_some() || self.stop.is_some();
        if !has_program && !self.accept.is_empty() {
            let message = "`accept` is for steps with a program".to_owned();
            reader.fail_at(at, message, "write it at `run`, `start`, `wait` or `stop`");
        }
        if self.put.is_some() != self.from.is_some() {
            let message = "`put` has a `from`, and nothing else has".to_owned();
            reader.fail_at(at, message, "name the file whose content is put there");
        }
    }
}

impl NetworkFile {
    /// The stations and bridges with what they do by themselves.
    pub fn phases(&self) -> impl Iterator<Item = (&StationName, Option<&NodePhases>)> + Clone {
        let stations = self.stations.iter().map(|it| (&it.name, it.phases.as_ref()));
        stations.chain(self.bridges.iter().map(|it| (&it.name, it.phases.as_ref())))
    }

    fn keyed_phases(&self) -> impl Iterator<Item = (String, &NodePhases)> {
        let key = |what: &str, i: usize| format!("{what}[{i}].phases");
        let stations = self.stations.iter().enumerate();
        let stations =
            stations.filter_map(move |(i, it)| Some((key("stations", i), it.phases.as_ref()?)));
        let bridges = self.bridges.iter().enumerate();
        stations.chain(
            bridges.filter_map(move |(i, it)| Some((key("bridges", i), it.phases.as_ref()?))),
        )
    }

    /// Whether a station or bridge does something by itself.
    pub fn has_phases(&self) -> bool {
        self.phases().any(|(_, phases)| phases.is_some_and(|it| !it.are_empty()))
    }

    /// Whether nothing else happens in it.
    pub fn has_steps_alone(&self) -> bool {
        self.streams.is_empty() && self.programs.is_empty() && self.has_phases()
    }
}

/// What stations do by themselves can be done, and what is varied and limited is there.
pub(super) fn check(file: &NetworkFile, reader: &mut Reader) {
    for (key, phases) in file.keyed_phases() {
        phases.check(&key, reader);
    }
    if let Some(experiment) = &file.experiment {
        check_variables(&experiment.variables, &experiment.together, reader);
    }
    check_place(file, reader);
    check_texts(file, reader);
    for (i, check) in file.checks.iter().enumerate() {
        let at = format!("checks[{i}]");
        let nodes = file.phases().map(|(name, _)| name.as_str());
        reader.known_name(&format!("{at}.station"), "station", check.station.as_str(), nodes);
        if check.value.all().is_empty() {
            let hint = "name one, such as /streams/0/lost";
            reader.fail_at(&format!("{at}.value"), "it names no value".to_owned(), hint);
        }
        for (key, pointer) in check.value.keyed(&format!("{at}.value")) {
            let pointer = pointer.as_str();
            if !pointer.is_empty() && !pointer.starts_with('/') {
                let message = format!("`{pointer}` is no JSON pointer");
                reader.fail_at(&key, message, "write one such as /streams/0/lost");
            }
        }
        let limits = [("at_least", &check.at_least), ("at_most", &check.at_most)];
        for (key, limit) in limits {
            let Some(limit) = limit else { continue };
            if !limit.as_str().parse::<f64>().is_ok_and(f64::is_finite) {
                let message = format!("`{limit}` is no number");
                reader.fail_at(&format!("{at}.{key}"), message, "write a number such as 0.5");
            }
        }
        let number = |limit: &Option<Word>| limit.as_ref()?.as_str().parse::<f64>().ok();
        if let (Some(least), Some(most)) = (number(&check.at_least), number(&check.at_most))
            && least > most
        {
            let message = format!("no number is at least {least} and at most {most}");
            reader.fail_at(&format!("{at}.at_most"), message, "write one that is not smaller");
        }
        if check.at_least.is_none() && check.at_most.is_none() {
            let message = "it limits nothing".to_owned();
            reader.fail_at(&at, message, "write `at_least`, `at_most` or both");
        }
    }
}

/// Keys stand where something carries them out.
fn check_place(file: &NetworkFile, reader: &mut Reader) {
    let mut refuse = |key: &str, is_there: bool, message: &str, hint: &str| {
        if is_there {
            reader.fail_at(key, message.to_owned(), hint);
        }
    };
    let experiment = file.experiment.as_ref();
    if !file.has_steps_alone() {
        let message = "it is of networks without streams, whose stations have `phases`";
        let is_there = |is: fn(&NetExperiment) -> bool| experiment.is_some_and(is);
        let is_timed = is_there(|it| it.timing != default_value::<TimingSpec>("{}"));
        refuse("experiment.timing", is_timed, message, "leave it out");
    }
    if !file.has_phases() {
        let message = "no station has `phases`, which leave records";
        refuse("checks", !file.checks.is_empty(), message, "remove it; `limits` are of streams");
        return;
    }
    let message = "stations on a segment do nothing by themselves";
    refuse("segments", !file.segments.is_empty(), message, "write `links`, or remove `phases`");
    let message = "a station has a program or phases, and no network has both";
    refuse("programs", !file.programs.is_empty(), message, "let a step `run` or `start` it");
    if !file.has_steps_alone() {
        for (key, phases) in file.keyed_phases() {
            for (name, phase) in phases.all() {
                let message = "what follows from streams has no order to be before or after";
                let key = format!("{key}.{name}.order");
                refuse(&key, phase.order.get() > 0, message, "remove it, or write `after`");
            }
        }
        return;
    }
    let message = "without streams nothing carries it out: stations do what their `phases` say";
    let hint = "remove it, or let a step do it";
    let is_compared = experiment.is_some_and(|it| !it.cases.is_empty());
    refuse("experiment.cases", is_compared, message, "write `experiment.variables`");
    refuse("duration", file.duration != Span::from_secs(1), message, "remove it");
    refuse("warm_up", file.warm_up > Span::ZERO, message, "remove it");
    refuse("tolerance", file.tolerance > Span::ZERO, message, "remove it");
    refuse("sync_error", file.sync_error != Span::from_us(1), message, "remove it");
    refuse("reserve", file.reserve.is_some(), message, "remove it");
    refuse("schedule", file.schedule.is_some(), message, hint);
    refuse("ports", !file.ports.is_empty(), message, hint);
    refuse("faults", !file.faults.is_empty(), message, hint);
    refuse("limits", !file.limits.is_empty(), message, "write `checks`");
    for (i, link) in file.links.iter().enumerate() {
        let (key, lossy) = (format!("links[{i}]"), link.loss.0 > 0 || link.corruption.0 > 0);
        refuse(&key, lossy, "kernels lose and damage no frames", "remove `loss` and `corruption`");
    }
    let zero = |delay: &NetDelay| *delay == NetDelay::Fixed(Span::ZERO);
    let right = default_value::<NetClock>("{}");
    for (i, it) in file.stations.iter().enumerate() {
        let key = |name: &str| format!("stations[{i}].{name}");
        refuse(&key("clock"), it.clock != right, message, "remove it");
        refuse(&key("send"), !zero(&it.send), message, "remove it");
        refuse(&key("receive"), !zero(&it.receive), message, "remove it");
        refuse(&key("address"), it.address.is_some(), message, hint);
        refuse(&key("host"), it.host.is_some(), message, "write a step `apply: FILE`");
    }
    for (i, it) in file.bridges.iter().enumerate() {
        let key = |name: &str| format!("bridges[{i}].{name}");
        refuse(&key("clock"), it.clock != right, message, "remove it");
        refuse(&key("forward"), !zero(&it.forward), message, "remove it");
        refuse(&key("cut_through"), it.cut_through.is_some(), message, "remove it");
    }
}

/// Steps name variables that there are, and programs that were started, each once.
fn check_texts(file: &NetworkFile, reader: &mut Reader) {
    let varied = file.experiment.iter().flat_map(|it| &it.variables);
    let firsts =
        varied.filter_map(|it| Some((it.name.to_string(), it.texts().into_iter().next()?)));
    let firsts: Vec<(String, String)> = firsts.collect();
    // The network of a case has no experiment, and its steps have its variables all the same.
    let are_known = file.experiment.is_some() || file.has_steps_alone();
    let mut text = |key: String, text: &str| {
        if !are_known {
            return Some(text.to_owned());
        }
        let values = firsts.iter().map(|(name, value)| (&**name, &**value));
        let told = |(why, hint): (String, String)| reader.fail_at(&key, why, &hint);
        with_values(text, values).map_err(told).ok()
    };
    let mut problems = Vec::new();
    for (key, phases) in file.keyed_phases() {
        let mut started = BTreeSet::new();
        for (name, phase) in phases.all() {
            for (i, step) in phase.steps.iter().enumerate() {
                let at = |what: &str| format!("{key}.{name}.steps[{i}].{what}");
                for (what, words) in [("run", &step.run), ("start", &step.start)] {
                    for (n, word) in words.iter().flatten().enumerate() {
                        text(at(&format!("{what}[{n}]")), word.as_str());
                    }
                }
                let files = [("put", &step.put), ("from", &step.from), ("apply", &step.apply)];
                for (what, of) in files.into_iter().chain([("snapshot", &step.snapshot)]) {
                    of.iter().for_each(|of| drop(text(at(what), of.as_str())));
                }
                let program = step.name.as_ref().and_then(|it| text(at("name"), it.as_str()));
                if let Some(program) = program
                    && !started.insert(program.clone())
                {
                    let why = format!("a second program `{program}` on this station");
                    problems.push((at("name"), why, "its output would replace the other's"));
                }
                for (what, of) in [("wait", &step.wait), ("stop", &step.stop)] {
                    let program = of.as_ref().and_then(|of| text(at(what), of.as_str()));
                    // Beside streams there are programs of theirs, too.
                    if let Some(program) = program.filter(|_| file.has_steps_alone())
                        && !started.contains(&program)
                    {
                        let why = format!("no program `{program}` is started before");
                        problems.push((at(what), why, "name one of `run` or `start`"));
                    }
                }
            }
        }
    }
    problems.into_iter().for_each(|(key, why, hint)| reader.fail_at(&key, why, hint));
    for (i, check) in file.checks.iter().enumerate().filter(|_| are_known) {
        let values = firsts.iter().map(|(name, value)| (&**name, &**value));
        if let Err((why, hint)) = with_values(check.record.as_str(), values) {
            reader.fail_at(&format!("checks[{i}].record"), why, &hint);
        }
    }
}

/// Variables that can be, once, and of which those that change together have as many values.
pub(super) fn check_variables(variables: &[Variable], together: &[Vec<Name>], reader: &mut Reader) {
    let mut names = BTreeSet::new();
    for (i, variable) in variables.iter().enumerate() {
        let at = format!("experiment.variables[{i}]");
        if !names.insert(&variable.name) {
            let message = format!("there are two variables `{}`", variable.name);
            reader.fail_at(&format!("{at}.name"), message, "give each its own name");
        }
        if let Some((why, hint)) = variable.wrong_name() {
            reader.fail_at(&format!("{at}.name"), why, hint);
        }
        let is_range = variable.from.is_some() && variable.to.is_some();
        let has_end = variable.from.is_some() || variable.to.is_some();
        if variable.values.is_empty() != is_range || has_end != is_range {
            let message = "it has neither a list with a value nor a range".to_owned();
            reader.fail_at(&at, message, "write `values`, or `from` and `to`");
        } else if variable.texts().is_empty() || variable.texts().len() > MAX_VALUES {
            let message = format!("it has no value, or more than {MAX_VALUES}");
            reader.fail_at(&at, message, "write a range whose `to` is not below `from`");
        }
    }
    let mut grouped = BTreeSet::new();
    for (i, group) in together.iter().enumerate() {
        let at = format!("experiment.together[{i}]");
        let of = |name: &Name| variables.iter().find(|variable| variable.name == *name);
        let mut counts = BTreeSet::new();
        for name in group {
            match of(name) {
                Some(variable) => {
                    counts.insert(variable.texts().len());
                }
                None => {
                    let message = format!("there is no variable `{name}`");
                    reader.fail_at(&at, message, "name some of `experiment.variables`");
                }
            }
            if !grouped.insert(name) {
                let message = format!("`{name}` is in `together` twice");
                reader.fail_at(&at, message, "leave one out");
            }
        }
        if counts.len() > 1 {
            let message = "these variables have different numbers of values".to_owned();
            reader.fail_at(&at, message, "give each the same number");
        }
    }
}

/// Most values of a variable.
const MAX_VALUES: usize = 1_000;

/// What Timewire itself reads from its environment or sets in that of others, as variables of an
/// experiment would be called; a test looks for all of them in the sources.
const OWN_VARIABLES: [&str; 16] = [
    "address",
    "cache",
    "clock_error",
    "end",
    "files",
    "lab_kernel",
    "lab_kernel_name",
    "lab_load",
    "lab_repeat",
    "markers",
    "part",
    "progress",
    "socket_priority",
    "start",
    "state_dir",
    "station",
];

impl Variable {
    /// The variable of a program's environment that has its value.
    pub fn in_environment(&self) -> String {
        format!("TIMEWIRE_{}", self.name.as_str().to_uppercase())
    }

    /// Why no program could have it in its environment, and what would be right.
    fn wrong_name(&self) -> Option<(String, &'static str)> {
        let (name, variable) = (self.name.as_str(), self.in_environment());
        if name.contains('-') {
            let why = format!("`{name}` is `{variable}` for programs, which no shell can read");
            return Some((why, "write `_` instead of `-`"));
        }
        OWN_VARIABLES.contains(&name).then(|| {
            let why = format!("`{name}` is `{variable}` for programs, which Timewire itself reads");
            (why, "give it another name")
        })
    }

    /// Its values, as they are put into texts.
    pub fn texts(&self) -> Vec<String> {
        match (self.from, self.to) {
            (Some(from), Some(to)) => {
                let range = from.get()..=to.get();
                let step = usize::try_from(self.step.get()).unwrap_or(usize::MAX);
                range.step_by(step).take(MAX_VALUES + 1).map(|n| n.to_string()).collect()
            }
            _ => self.values.iter().map(ToString::to_string).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::orchestrated::Orchestrated;
    use super::super::{NothingFurther, ScenarioErrors};
    use super::*;
    use crate::scenario::network::NetworkCases;

    const GOOD: &str = "
timewire: 1
kind: network
name: rates
seed: 3
stations:
  - name: talker
    phases:
      run: {after: 10ms, steps: [{run: [timewire, talk, '${rate}'], name: talk, retries: 1}]}
  - name: listener
    phases:
      open: [{start: [timewire, listen], name: listen}]
      close: {order: 1, steps: [{stop: listen}]}
experiment:
  variables:
    - {name: rate, values: [1, 128, '1000']}
    - {name: size, from: 64, to: 192, step: 64}
    - {name: load, values: [none, flood]}
  together: [[rate, size]]
checks:
  - {station: listener, record: listen.out, value: /lost, at_most: 0}
";

    fn parse(text: &str) -> Result<NetworkFile, ScenarioErrors> {
        NetworkCases::parse_without_streams(&NothingFurther, "n.yaml", text).map(|it| it.written)
    }

    #[test]
    fn t0_phases_are_read_and_written_for_the_orchestrator() {
        let network = parse(GOOD).unwrap();
        assert_eq!(parse(&network.to_json().to_string()).unwrap(), network);
        let file = Orchestrated::of(&network);
        assert_eq!(file.variables[1].texts(), ["64", "128", "192"]);
        assert_eq!(file.stations[1].phases.close.order.get(), 1);
        assert_eq!((file.seed.get(), &file.network), (3, &None));
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(Orchestrated::parse("e.json", &json).unwrap(), file);
    }

    const LINKS: &str = "
bridges: [left, right]
links:
  - [talker, left]
  - {between: [left, right], rate: 1Gbit, delay: 2500ns}
  - [right, listener]
";

    #[test]
    fn t0_links_are_made_for_stations_with_phases() {
        let good = format!("{GOOD}{LINKS}");
        let file = Orchestrated::of(&parse(&good).unwrap());
        let network = file.network.as_ref().unwrap();
        let nodes: Vec<_> = network.nodes(&file.stations).iter().map(|n| n.as_str()).collect();
        assert_eq!(nodes, ["talker", "listener", "left", "right"]);
        assert_eq!(network.links[1].delay, Span::from_us(3));
        let ring = "  - [right, listener]\n  - [right, far]\n  - [far, left]";
        for (from, to, place) in [
            ("bridges: [left, right]", "bridges: [left, right, far]", "links"),
            ("  - [right, listener]", ring, "links[4]"),
            ("[talker, left]", "{between: [talker, left], loss: 1%}", "links[0]"),
            ("bridges: [left, right]", "segments: [{}]\nbridges: [left, right]", "segments"),
        ] {
            let text = good.replacen(from, to, 1);
            let text = if to == ring { text.replace("right]\n", "right, far]\n") } else { text };
            let text = text.replace("[left, right, far], rate", "[left, right], rate");
            assert_ne!(text, good, "{from}");
            let errors = parse(&text).unwrap_err();
            assert!(errors.errors.iter().any(|e| e.key == place), "{to}: {errors}");
        }
        let bridge = good.replace(
            "[left, right]\nlinks",
            "[{name: left, phases: {run: \
            [{snapshot: s.json}]}}, right]\nlinks",
        );
        let file = Orchestrated::of(&parse(&bridge).unwrap());
        assert_eq!(file.stations[2].name.as_str(), "left");
    }

    #[test]
    fn t0_what_is_wrong_is_told_with_its_place() {
        let step = "stations[1].phases.close.steps[0]";
        for (from, to, place) in [
            ("together: [[rate, size]]", "together: [[rate, load]]", "experiment.together[0]"),
            ("together: [[rate, size]]", "together: [[rate, x]]", "experiment.together[0]"),
            ("name: listener", "name: talker", "stations[1].name"),
            (", name: listen}", "}", "stations[1].phases.open.steps[0]"),
            ("stop: listen", "stop: listen, wait: listen", step),
            ("stop: listen", "put: a", step),
            ("stop: listen", "stop: heard", "stations[1].phases.close.steps[0].stop"),
            ("'${rate}'", "'${speed}'", "stations[0].phases.run.steps[0].run[2]"),
            ("'${rate}'", "'${rate'", "stations[0].phases.run.steps[0].run[2]"),
            (
                "{start: [timewire, listen]",
                "{run: [a], name: listen}, {start: [timewire, listen]",
                "stations[1].phases.open.steps[1].name",
            ),
            ("record: listen.out", "record: '${x}.out'", "checks[0].record"),
            ("stop: listen", "snapshot: a, accept: [1]", step),
            ("start: [timewire, listen]", "start: []", "stations[1].phases.open.steps[0]"),
            (", at_most: 0", "", "checks[0]"),
            ("at_most: 0", "at_most: few", "checks[0].at_most"),
            ("value: /lost", "value: lost", "checks[0].value"),
            ("value: /lost", "value: [/lost, lost]", "checks[0].value[1]"),
            ("value: /lost", "value: []", "checks[0].value"),
            ("station: listener", "station: nobody", "checks[0].station"),
            ("name: load, ", "name: cache, ", "experiment.variables[2].name"),
            ("name: load, ", "name: state_dir, ", "experiment.variables[2].name"),
            ("name: load, ", "name: line-load, ", "experiment.variables[2].name"),
            ("from: 64, to: 192", "from: 64", "experiment.variables[1]"),
            ("from: 64, to: 192", "from: 64, to: 1", "experiment.variables[1]"),
            ("  together:", "  cases: [{name: a}]\n  together:", "experiment.cases"),
            ("seed: 3", "duration: 5s", "duration"),
            ("seed: 3", "warm_up: 5ms", "warm_up"),
            ("seed: 3", "tolerance: 5ns", "tolerance"),
            ("seed: 3", "sync_error: 5ns", "sync_error"),
            (", at_most: 0", ", at_least: 2, at_most: 1", "checks[0].at_most"),
            ("[{stop: listen}]", "[]", "stations[1].phases.close"),
            ("seed: 3", "schedule: {slots: [talker], transmit: 1ms}", "schedule"),
            ("seed: 3", "ports: [{of: [talker]}]", "ports"),
            ("seed: 3", "faults: [{kind: master-lost, at: 0s, duration: 1s}]", "faults"),
            ("seed: 3", "limits: [{id: a, metric: lost, at_most: 0%}]", "limits"),
            ("name: talker", "name: talker\n    clock: {drift: 1ppm}", "stations[0].clock"),
            ("name: talker", "name: talker\n    send: 1us", "stations[0].send"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let errors = parse(&text).unwrap_err();
            assert!(errors.errors.iter().any(|e| e.key == place), "{to}: {errors}");
        }
    }

    #[test]
    fn t0_phases_beside_streams_have_no_order() {
        let streams = "streams: [{name: s, talker: talker, listeners: listener, size: 64B, \
                       period: 1ms}]\nlinks: [[talker, listener]]";
        let with = GOOD.replacen("seed: 3", streams, 1);
        let errors = parse(&with).unwrap_err();
        let keys: Vec<_> = errors.errors.iter().map(|it| &*it.key).collect();
        assert_eq!(keys, ["stations[1].phases.close.order"], "{errors}");
        // Values are put into steps when they are performed.
        let file = parse(&with.replacen("order: 1, ", "", 1)).unwrap();
        assert!(file.has_phases() && !file.has_steps_alone());
        let step = &file.stations[0].phases.as_ref().unwrap().run.steps[0];
        assert_eq!(step.run.as_ref().unwrap()[2].as_str(), "${rate}");
    }
}
