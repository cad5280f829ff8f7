// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiment file: which stations do what in which phase, with variables that are varied, and
//! limits on numbers that come of it. The same text, units and errors as a scenario, other keys.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use timewire_base::{Span, StationName};

use super::ScenarioErrors;
pub use super::experiment_network::{NetworkSpec, WireSpec};
use super::item::{Item, Reader};
use super::record::{choice, record};
use super::tree;
use super::value::{Count, FormatVersion, Name, Text, Word};

choice! {
    /// Which kind of file this is.
    pub enum ExperimentKind {
        /// An experiment on stations that have agents.
        Experiment = "experiment",
    }
}

record! {
    /// An experiment on stations that have agents.
    pub struct ExperimentFile {
        /// Version of this file format.
        timewire: FormatVersion,
        /// Which kind of file this is.
        kind: ExperimentKind,
        /// Short name, part of the names of its trials.
        name: Name,
        /// What it is for, for people.
        description: Text = "''",
        /// What is varied; every combination is performed. In commands, environments, files and
        /// host settings `${NAME}` stands for the value.
        variables: Vec<Variable> = "[]",
        /// Variables that change together instead: the first values of all, the second of all.
        together: Vec<Vec<Name>> = "[]",
        /// How often each combination is performed.
        repeats: Count<1, 1000> = "1",
        /// The order of all trials is random, and the same for the same seed.
        seed: Count<0, 4294967295> = "0",
        /// How long things may take.
        timing: TimingSpec = "{}",
        /// The network of the stations in the laboratory's kernel, for `--on lab:uml`.
        network: Option<NetworkSpec>,
        /// What the stations do.
        stations: Vec<StationPart>,
        /// Limits on numbers in the records of each trial.
        checks: Vec<CheckSpec> = "[]",
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
    /// What a station does.
    pub struct StationPart {
        /// Its name, as in the hosts file.
        name: StationName,
        /// Make the host what the experiment needs.
        setup: PartSpec = "{}",
        /// Start what must be there before the first packet.
        open: PartSpec = "{}",
        /// What the experiment is about; begins everywhere at one instant.
        run: PartSpec = "{}",
        /// Let what is under way arrive.
        finish: PartSpec = "{}",
        /// End what was opened.
        close: PartSpec = "{}",
        /// Before the records are closed.
        report: PartSpec = "{}",
        /// Before the host is restored.
        teardown: PartSpec = "{}",
    }
}

record! {
    /// What a station does in a phase.
    pub struct PartSpec {
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
    /// A limit on a number in a record that is JSON.
    pub struct CheckSpec {
        /// Of which station.
        station: StationName,
        /// Which record.
        record: Text,
        /// Where in it: a JSON pointer (RFC 6901), such as `/streams/0/lost`.
        value: Text,
        /// The number is at least this.
        at_least: Option<Word>,
        /// The number is at most this.
        at_most: Option<Word>,
    }
}

impl ExperimentFile {
    /// Reads and checks a file; `file_name` is for the messages.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place.
    pub fn parse(file_name: &str, text: &str) -> Result<ExperimentFile, ScenarioErrors> {
        let failed = |problems| ScenarioErrors::new(file_name, text, problems);
        let root = tree::parse(text).map_err(failed)?;
        let mut reader = Reader::new(root.mark);
        let file = ExperimentFile::read(&root, &mut reader);
        if let Some(file) = &file {
            file.check(&mut reader);
        }
        match file {
            Some(file) if reader.problems.is_empty() => Ok(file),
            _ => Err(failed(reader.problems)),
        }
    }

    fn check(&self, reader: &mut Reader) {
        let mut names = BTreeSet::new();
        for (i, station) in self.stations.iter().enumerate() {
            if !names.insert(&station.name) {
                let message = format!("there are two stations `{}`", station.name);
                reader.fail_at(&format!("stations[{i}].name"), message, "give each its own name");
            }
            station.check(i, reader);
        }
        if self.stations.is_empty() {
            reader.fail_at("stations", "there is no station".into(), "name at least one");
        }
        if let Some(network) = &self.network {
            network.check(&self.stations, reader);
        }
        self.check_variables(reader);
        for (i, check) in self.checks.iter().enumerate() {
            let at = format!("checks[{i}]");
            if !names.contains(&check.station) {
                let message = format!("there is no station `{}`", check.station);
                reader.fail_at(&format!("{at}.station"), message, "name one of `stations`");
            }
            let pointer = check.value.as_str();
            if !pointer.is_empty() && !pointer.starts_with('/') {
                let message = format!("`{pointer}` is no JSON pointer");
                reader.fail_at(
                    &format!("{at}.value"),
                    message,
                    "write one such as /streams/0/lost",
                );
            }
            let limits = [("at_least", &check.at_least), ("at_most", &check.at_most)];
            for (key, limit) in limits {
                let Some(limit) = limit else { continue };
                if !limit.as_str().parse::<f64>().is_ok_and(f64::is_finite) {
                    let message = format!("`{limit}` is no number");
                    reader.fail_at(&format!("{at}.{key}"), message, "write a number such as 0.5");
                }
            }
            if check.at_least.is_none() && check.at_most.is_none() {
                let message = "it limits nothing".to_owned();
                reader.fail_at(&at, message, "write `at_least`, `at_most` or both");
            }
        }
    }

    fn check_variables(&self, reader: &mut Reader) {
        let mut names = BTreeSet::new();
        for (i, variable) in self.variables.iter().enumerate() {
            let at = format!("variables[{i}]");
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
                let message = "it is neither a list of values nor a range".to_owned();
                reader.fail_at(&at, message, "write `values`, or `from` and `to`");
            } else if variable.texts().is_empty() || variable.texts().len() > MAX_VALUES {
                let message = format!("it has no value, or more than {MAX_VALUES}");
                reader.fail_at(&at, message, "write a range whose `to` is not below `from`");
            }
        }
        let mut grouped = BTreeSet::new();
        for (i, group) in self.together.iter().enumerate() {
            let at = format!("together[{i}]");
            let of = |name: &Name| self.variables.iter().find(|variable| variable.name == *name);
            let mut counts = BTreeSet::new();
            for name in group {
                match of(name) {
                    Some(variable) => {
                        counts.insert(variable.texts().len());
                    }
                    None => {
                        let message = format!("there is no variable `{name}`");
                        reader.fail_at(&at, message, "name some of `variables`");
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

impl StationPart {
    /// Its parts, in the order of the phases, with their names.
    pub fn parts(&self) -> [(&'static str, &PartSpec); 7] {
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

    fn check(&self, index: usize, reader: &mut Reader) {
        for (phase, part) in self.parts() {
            for (i, step) in part.steps.iter().enumerate() {
                step.check(&format!("stations[{index}].{phase}.steps[{i}]"), reader);
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

/// Writes the file as [`ExperimentFile::parse`] reads it, with all defaults filled in.
impl Serialize for ExperimentFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.emit().serialize(serializer)
    }
}

/// The JSON Schema (draft 2020-12) of the experiment file, as pretty JSON with a final newline.
pub fn experiment_schema() -> String {
    let mut schema: Json = ExperimentFile::schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Timewire experiment");
    let text = serde_json::to_string_pretty(&schema);
    text.expect("invariant: JSON with text keys can be written") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
timewire: 1
kind: experiment
name: rates
variables:
  - {name: rate, values: [1, 128, '1000']}
  - {name: size, from: 64, to: 192, step: 64}
  - {name: load, values: [none, flood]}
together: [[rate, size]]
stations:
  - name: talker
    run: {after: 10ms, steps: [{run: [timewire, talk, '${rate}'], name: talk, retries: 1}]}
  - name: listener
    open: {steps: [{start: [timewire, listen], name: listen}]}
    close: {order: 1, steps: [{stop: listen}]}
checks:
  - {station: listener, record: listen.out, value: /lost, at_most: 0}
";

    #[test]
    fn t0_a_file_is_read_and_written() {
        let file = ExperimentFile::parse("e.yaml", GOOD).unwrap();
        assert_eq!(file.variables[1].texts(), ["64", "128", "192"]);
        assert_eq!(file.stations[1].close.order.get(), 1);
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(ExperimentFile::parse("e.json", &json).unwrap(), file);
    }

    const NETWORK: &str = "
network:
  bridges: [left, right]
  vlans: [10]
  links:
    - {between: [talker, left]}
    - {between: [left, right], rate: 1Gbit, delay: 2us}
    - {between: [right, listener]}
";

    #[test]
    fn t0_a_network_is_read_and_what_is_wrong_with_it_is_told() {
        let good = format!("{GOOD}{NETWORK}");
        let file = ExperimentFile::parse("e.yaml", &good).unwrap();
        let network = file.network.as_ref().unwrap();
        let nodes: Vec<_> = network.nodes(&file.stations).iter().map(|n| n.as_str()).collect();
        assert_eq!(nodes, ["talker", "listener", "left", "right"]);
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(ExperimentFile::parse("e.json", &json).unwrap(), file);
        let closing = "    - {between: [right, listener]}\n    - {between: [right, left]}";
        let ring = "    - {between: [right, listener]}\n    - {between: [right, far]}\n    \
                    - {between: [far, left]}";
        for (from, to, place) in [
            ("[talker, left]", "[talker]", "network.links[0].between"),
            ("[talker, left]", "[talker, talker]", "network.links[0].between"),
            ("[talker, left]", "[talker, far]", "network.links[0].between"),
            ("delay: 2us", "delay: 2500ns", "network.links[1].delay"),
            ("bridges: [left, right]", "bridges: [left, right, left]", "network.bridges"),
            ("bridges: [left, right]", "bridges: [left, right, far]", "network.links"),
            ("    - {between: [right, listener]}", closing, "network.links[3]"),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from}");
            let errors = ExperimentFile::parse("e.yaml", &text).unwrap_err();
            assert!(errors.errors.iter().any(|e| e.key == place), "{to}: {errors}");
        }
        let ring = good.replacen("    - {between: [right, listener]}", ring, 1).replacen(
            "[left, right]",
            "[left, right, far]",
            1,
        );
        let errors = ExperimentFile::parse("e.yaml", &ring).unwrap_err();
        assert_eq!(errors.errors[0].key, "network.links[4]", "{errors}");
    }

    #[test]
    fn t0_what_is_wrong_is_told_with_its_place() {
        for (from, to, place) in [
            ("together: [[rate, size]]", "together: [[rate, load]]", "together[0]"),
            ("together: [[rate, size]]", "together: [[rate, x]]", "together[0]"),
            ("name: listener", "name: talker", "stations[1].name"),
            (", name: listen}", "}", "stations[1].open.steps[0]"),
            ("stop: listen", "stop: listen, wait: listen", "stations[1].close.steps[0]"),
            (", at_most: 0", "", "checks[0]"),
            ("at_most: 0", "at_most: few", "checks[0].at_most"),
            ("value: /lost", "value: lost", "checks[0].value"),
            ("name: load, ", "name: cache, ", "variables[2].name"),
            ("name: load, ", "name: state_dir, ", "variables[2].name"),
            ("name: load, ", "name: line-load, ", "variables[2].name"),
            ("from: 64, to: 192", "from: 64", "variables[1]"),
            ("from: 64, to: 192", "from: 64, to: 1", "variables[1]"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let errors = ExperimentFile::parse("e.yaml", &text).unwrap_err();
            assert!(errors.errors.iter().any(|e| e.key == place), "{to}: {errors}");
        }
    }
}
