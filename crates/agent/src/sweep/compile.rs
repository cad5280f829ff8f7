// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From an experiment to its trials: combinations of values, put into texts, in an
//! order that follows from the seed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::Path;

use crate::protocol::message::MAX_PIECE;
use crate::protocol::{
    ExperimentId, FailureKind, MAX_TASK, Part, Phase, Plan, Program, RecordName, Retry,
    StationPlan, Step, Task, Timing, WordName,
};
use timewire_model::scenario::orchestrated::{Orchestrated, StationPart};
use timewire_model::scenario::phases::{CheckSpec, PhaseSpec, RetryAfter, StepSpec};
use timewire_model::scenario::{self, FileKind, MAX_COMBINATIONS, Name, Text, Word};
use timewire_sys::beneath::Beneath;
use timewire_sys::marker::{self, RunPlace};

use super::{CLOCK_ERROR, Marks, Script};
use timewire_datapath::DatapathError;

/// One combination of values, once.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Counts from 1, in the order of the file: combinations, and each as often as it is repeated.
    pub number: usize,
    /// Which repetition, from 1.
    pub repeat: u64,
    /// The values of the variables.
    pub values: BTreeMap<String, String>,
    /// What the stations do.
    pub plan: Plan,
}

impl Trial {
    /// The name of its directory.
    pub fn name(&self) -> String {
        format!("{:04}", self.number)
    }
}

/// Longest file that is put.
///
/// **Units**: bytes.
const MAX_PUT: usize = 4 * 1024 * 1024;
/// Most that all trials put together.
///
/// **Units**: bytes.
const MAX_TOTAL_PUT: usize = 256 * 1024 * 1024;

/// All trials, in the order in which they are carried out. `run` tells them from those of any
/// other run.
///
/// **Errors**: too many; a text has an unknown variable; a file cannot be read; a name or a plan
/// cannot be.
pub fn trials(script: &Script, run: &str) -> Result<Vec<Trial>, DatapathError> {
    let file = &script.file;
    let combinations = combinations(file)?;
    let repeats = file.repeats.get();
    let name = file.name.as_str().replace('_', "-");
    let beside = Beside::of(script);
    let mut all = Vec::new();
    for values in combinations {
        for repeat in 1..=repeats {
            let number = all.len() + 1;
            let id = format!("{name}-{run}-{number:04}");
            let experiment = ExperimentId::new(&id).map_err(invalid)?;
            let texts = Texts { script, values: &values, beside: &beside };
            let plan = texts.plan(experiment)?;
            plan.check().map_err(invalid)?;
            plan.stations.iter().try_for_each(check_programs)?;
            for check in &file.checks {
                texts.record(&check.record)?;
            }
            all.push(Trial { number, repeat, values: values.clone(), plan });
        }
    }
    shuffle(&mut all, file.seed.get());
    Ok(all)
}

pub(super) fn invalid(error: impl std::fmt::Display) -> DatapathError {
    DatapathError::Invalid(error.to_string())
}

/// The record that a check of a trial looks at.
///
/// **Errors**: an unknown variable, or no name of a record; [`trials`] says so before.
pub(super) fn record_of_check(
    script: &Script,
    values: &BTreeMap<String, String>,
    check: &CheckSpec,
) -> Result<RecordName, DatapathError> {
    Texts { script, values, beside: &Beside::of(script) }.record(&check.record)
}

/// Whether each program of a station has a name of its own, and those that are waited for or
/// stopped were started before.
fn check_programs(station: &StationPlan) -> Result<(), DatapathError> {
    let mut started = BTreeSet::new();
    for (phase, part) in &station.parts {
        for Step { task, .. } in &part.steps {
            let why = match task {
                Task::Run(Program { name, .. }) | Task::Start(Program { name, .. }) => {
                    let is_new = started.insert(name);
                    (!is_new).then(|| {
                        format!(
                            "a second program `{name}`, whose output would replace that of the \
                             first; give it another name"
                        )
                    })
                }
                Task::Wait { name } | Task::Stop { name } => (!started.contains(name))
                    .then(|| format!("no program `{name}` is started before")),
                _ => None,
            };
            if let Some(why) = why {
                return Err(invalid(format!("station `{}`, {phase}: {why}", station.name)));
            }
        }
    }
    Ok(())
}

/// Every combination, the last variable changing first.
fn combinations(file: &Orchestrated) -> Result<Vec<BTreeMap<String, String>>, DatapathError> {
    let all = scenario::combinations(&file.variables, &file.together);
    let repeats = usize::try_from(file.repeats.get()).unwrap_or(usize::MAX);
    if all.len().saturating_mul(repeats) > MAX_COMBINATIONS {
        return Err(invalid(format!("the experiment has more than {MAX_COMBINATIONS} trials")));
    }
    let named = |values: Vec<(Name, String)>| {
        values.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    };
    Ok(all.into_iter().map(named).collect())
}

/// Fisher and Yates' order, from a seed by splitmix64 (Steele, Lea, Flood 2014).
fn shuffle<T>(all: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..all.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bound = u64::try_from(last + 1).unwrap_or(u64::MAX);
        let other = usize::try_from((z ^ (z >> 31)) % bound).unwrap_or(0);
        all.swap(last, other);
    }
}

fn too_large(name: &str) -> DatapathError {
    invalid(format!(
        "`{name}` has more than {MAX_PUT} bytes: too much to put; let stations have it already"
    ))
}

/// The files beside an experiment, each read once. A file of an experiment that somebody else wrote
/// goes to stations, so it cannot be one from elsewhere.
struct Beside<'a> {
    directory: &'a Path,
    read: RefCell<BTreeMap<String, Vec<u8>>>,
    /// How many bytes all trials put.
    put: Cell<usize>,
}

impl Beside<'_> {
    fn of(script: &Script) -> Beside<'_> {
        let directory = Some(script.beside.as_path()).filter(|it| !it.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        Beside { directory, read: RefCell::new(script.files.clone()), put: Cell::default() }
    }

    /// Counts what is put: plans and journals have all of it.
    fn count(&self, bytes: usize) -> Result<(), DatapathError> {
        self.put.set(self.put.get().saturating_add(bytes));
        if self.put.get() > MAX_TOTAL_PUT {
            return Err(invalid(format!(
                "the trials put more than {MAX_TOTAL_PUT} bytes together: let stations have large \
                 files already"
            )));
        }
        Ok(())
    }

    /// What is in a file.
    fn bytes(&self, name: &str) -> Result<Vec<u8>, DatapathError> {
        if let Some(bytes) = self.read.borrow().get(name) {
            return Ok(bytes.clone());
        }
        let bytes = file_beside(self.directory, name)?;
        self.read.borrow_mut().insert(name.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

/// What is in a file of a directory or below it, which goes to stations.
///
/// **Errors**: there is none, it is elsewhere, or it has more than 4 MiB.
pub fn file_beside(directory: &Path, name: &str) -> Result<Vec<u8>, DatapathError> {
    let path = directory.join(name);
    // That of a file which is named without one.
    let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let opened = Beneath::open(here).and_then(|beside| beside.open_file(name));
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            DatapathError::file("read", &path)(error)
        }
        _ => invalid(format!(
            "`{name}` is not taken ({error}): name a file beside the one that names it, or below, \
             without `..` and symbolic links"
        )),
    })?;
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_PUT).map_err(invalid)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(DatapathError::file("read", &path))?;
    if bytes.len() > MAX_PUT {
        return Err(too_large(name));
    }
    Ok(bytes)
}

/// The tasks that put a file of at most 4 MiB on a station, piece by piece.
///
/// **Errors**: its digest cannot be made.
pub fn put_in_pieces(name: &RecordName, bytes: &[u8]) -> Result<Vec<Task>, DatapathError> {
    if bytes.is_empty() {
        return Ok(vec![Task::Put { name: name.clone(), text: String::new() }]);
    }
    let digest = crate::links::digest(&mut &*bytes).map_err(invalid)?;
    let last = (bytes.len() - 1) / MAX_PIECE;
    let pieces = bytes.chunks(MAX_PIECE).enumerate();
    let task = |(number, piece): (usize, &[u8])| {
        Ok(Task::PutPiece {
            name: name.clone(),
            offset: u64::try_from(number * MAX_PIECE).map_err(invalid)?,
            bytes: piece.to_vec(),
            digest: (number == last).then(|| digest.clone()),
        })
    };
    pieces.map(task).collect()
}

/// The files beside the experiment that any of its trials names, as they are: without values
/// of variables in them.
///
/// **Errors**: as [`trials`].
pub(super) fn files(script: &Script) -> Result<BTreeMap<String, Vec<u8>>, DatapathError> {
    let beside = Beside::of(script);
    for values in combinations(&script.file)? {
        let texts = Texts { script, values: &values, beside: &beside };
        let parts = script.file.stations.iter().flat_map(|station| station.phases.all());
        for step in parts.flat_map(|(_, part)| &part.steps) {
            for path in [&step.from, &step.apply].into_iter().flatten() {
                beside.bytes(&texts.put_in(path.as_str())?)?;
            }
        }
    }
    Ok(beside.read.into_inner())
}

/// Exit codes that steps of a station which wait for a program take as a success, by its name.
struct Accepted(BTreeMap<String, BTreeSet<u64>>);

impl Accepted {
    fn of(station: &StationPart) -> Accepted {
        let mut all = BTreeMap::<String, BTreeSet<u64>>::new();
        for step in station.phases.all().into_iter().flat_map(|(_, part)| &part.steps) {
            if let Some(name) = step.wait.as_ref().or(step.stop.as_ref()) {
                let codes = step.accept.iter().map(|code| code.get());
                all.entry(name.as_str().to_owned()).or_default().extend(codes);
            }
        }
        Accepted(all)
    }
}

/// Puts values into texts.
struct Texts<'a> {
    script: &'a Script,
    values: &'a BTreeMap<String, String>,
    beside: &'a Beside<'a>,
}

impl Texts<'_> {
    fn plan(&self, experiment: ExperimentId) -> Result<Plan, DatapathError> {
        let file = &self.script.file;
        let spec = &file.timing;
        let timing = Timing {
            lease: spec.lease,
            resend: spec.resend,
            preflight: spec.preflight,
            lead: spec.lead,
            step: Timing::default().step,
            clock_within: spec.clock_within,
            phases: Phase::ALL.into_iter().map(|phase| (phase, spec.phase)).collect(),
        };
        let mut stations = Vec::new();
        for station in &file.stations {
            let mut parts = BTreeMap::new();
            let accepted = Accepted::of(station);
            for (phase, (_, spec)) in Phase::ALL.into_iter().zip(station.phases.all()) {
                parts.insert(phase, self.part(spec, &accepted)?);
            }
            let marks = self.script.marks.as_ref().map(|marks| match marks {
                Marks::In(path) => path.clone(),
                Marks::OfStation => RunPlace::path_of(&format!("{experiment}-{}", station.name)),
            });
            if let Some(marks) = marks {
                let value = marks.display().to_string();
                let steps = parts.values_mut().flat_map(|part: &mut Part| &mut part.steps);
                for Step { task, .. } in steps {
                    if let Task::Run(program) | Task::Start(program) = task {
                        program.environment.insert(marker::VARIABLE.to_owned(), value.clone());
                    }
                }
            }
            stations.push(StationPlan { name: station.name.clone(), parts });
        }
        Ok(Plan { experiment, timing, stations })
    }

    fn part(&self, spec: &PhaseSpec, accepted: &Accepted) -> Result<Part, DatapathError> {
        let steps = spec.steps.iter().map(|step| self.steps(step, accepted));
        let steps = steps.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        let order = u32::try_from(spec.order.get()).map_err(invalid)?;
        Ok(Part { order, after: spec.after, steps })
    }

    /// The steps of a request: more than one for a file that takes several pieces.
    fn steps(&self, spec: &StepSpec, accepted: &Accepted) -> Result<Vec<Step>, DatapathError> {
        let kinds = spec.after.iter().map(|after| match after {
            RetryAfter::NotStarted => FailureKind::NotStarted,
            RetryAfter::Exited => FailureKind::Exited,
            RetryAfter::TimedOut => FailureKind::TimedOut,
            RetryAfter::Unknown => FailureKind::Unknown,
        });
        let times = u32::try_from(spec.retries.get()).map_err(invalid)?;
        let retry = Retry { times, pause: spec.pause, after: kinds.collect() };
        let tasks = match (&spec.put, &spec.from) {
            (Some(name), Some(from)) => self.put(name, from)?,
            _ => vec![self.task(spec, accepted)?],
        };
        let step = |task| Step { task, timeout: spec.timeout, retry: retry.clone() };
        Ok(tasks.into_iter().map(step).collect())
    }

    /// A file as tasks: a text with its values, anything else as it is.
    fn put(&self, name: &Text, from: &Text) -> Result<Vec<Task>, DatapathError> {
        let (name, from) = (self.record(name)?, self.put_in(from.as_str())?);
        let bytes = match String::from_utf8(self.beside.bytes(&from)?) {
            // What has a zero is no text, whatever else it is.
            Ok(text) if !text.contains('\0') => {
                let text = self.put_in_file(&from, &text)?;
                // Its name and what is around it take less than what is left out here.
                let json = |text: &String| serde_json::to_string(text).map_err(invalid);
                if text.len() < MAX_TASK && json(&text)?.len() + 1_024 <= MAX_TASK {
                    self.beside.count(text.len())?;
                    return Ok(vec![Task::Put { name, text }]);
                }
                text.into_bytes()
            }
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        if bytes.len() > MAX_PUT {
            return Err(too_large(&from));
        }
        self.beside.count(bytes.len())?;
        put_in_pieces(&name, &bytes)
    }

    fn task(&self, spec: &StepSpec, accepted: &Accepted) -> Result<Task, DatapathError> {
        if let Some(words) = &spec.run {
            return Ok(Task::Run(self.program(spec, words, accepted)?));
        }
        if let Some(words) = &spec.start {
            return Ok(Task::Start(self.program(spec, words, accepted)?));
        }
        if let Some(name) = &spec.wait {
            return Ok(Task::Wait { name: self.word(name)? });
        }
        if let Some(name) = &spec.stop {
            return Ok(Task::Stop { name: self.word(name)? });
        }
        if let Some(path) = &spec.apply {
            return Ok(Task::Apply { host: self.file(path)? });
        }
        let name = spec.snapshot.as_ref().ok_or_else(|| invalid("a step does nothing"))?;
        Ok(Task::Snapshot { name: self.record(name)? })
    }

    fn program(
        &self,
        spec: &StepSpec,
        words: &[Word],
        accepted: &Accepted,
    ) -> Result<Program, DatapathError> {
        let name = spec.name.as_ref().ok_or_else(|| invalid("a program has no name"))?;
        let command = words.iter().map(|word| self.put_in(word.as_str()));
        let waiting = accepted.0.get(name.as_str()).into_iter().flatten();
        let accept: BTreeSet<u64> =
            spec.accept.iter().map(|code| code.get()).chain(waiting.copied()).collect();
        let accept = accept.into_iter().map(|code| u8::try_from(code).map_err(invalid));
        // What a program is told about where it is, so that one command serves many trials.
        let environment = self.script.file.variables.iter().filter_map(|variable| {
            let value = self.values.get(variable.name.as_str())?;
            Some((variable.in_environment(), value.clone()))
        });
        let clock_error = self.script.clock_error.map(|error| (CLOCK_ERROR, error.to_string()));
        let clock_error = clock_error.map(|(name, error)| (name.to_owned(), error));
        let environment = environment.chain(clock_error);
        Ok(Program {
            name: self.word(name)?,
            command: command.collect::<Result<_, _>>()?,
            environment: environment.collect(),
            accept: accept.collect::<Result<_, _>>()?,
        })
    }

    fn word(&self, text: &Text) -> Result<WordName, DatapathError> {
        WordName::new(&self.put_in(text.as_str())?).map_err(invalid)
    }

    fn record(&self, text: &Text) -> Result<RecordName, DatapathError> {
        RecordName::new(&self.put_in(text.as_str())?).map_err(invalid)
    }

    /// The text of a network file beside the experiment.
    fn file(&self, path: &Text) -> Result<String, DatapathError> {
        let name = self.put_in(path.as_str())?;
        let text = String::from_utf8(self.beside.bytes(&name)?)
            .map_err(|_| invalid(format!("`{name}` is not text (UTF-8), as a network file is")))?;
        let text = self.put_in_file(&name, &text)?;
        match FileKind::of(&text) {
            Some(kind @ (FileKind::Hosts | FileKind::Steps | FileKind::Written(_))) => {
                Err(invalid(format!("`{name}` is {kind}, not a network file with host settings")))
            }
            _ => Ok(text),
        }
    }

    /// What is in a file, with the values.
    fn put_in_file(&self, name: &str, text: &str) -> Result<String, DatapathError> {
        let values = self.values.iter().map(|(name, value)| (&**name, &**value));
        let wrong = |(why, hint)| invalid(format!("in the file `{name}`: {why}: {hint}"));
        scenario::with_values(text, values).map_err(wrong)
    }

    /// The text with the values of the variables; `$${` stands for `${`.
    fn put_in(&self, text: &str) -> Result<String, DatapathError> {
        let values = self.values.iter().map(|(name, value)| (&**name, &**value));
        let wrong = |(why, hint)| invalid(format!("`{text}`: {why}: {hint}"));
        scenario::with_values(text, values).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn script(more: &str) -> Script {
        let text = format!(
            "name: e_1\nrepeats: 2\nseed: 5\nvariables:\n\
             \x20 - {{name: a, values: [x, y]}}\n  - {{name: b, from: 1, to: 3}}\n\
             \x20 - {{name: c, values: [p, q]}}\ntogether: [[a, c]]\nstations:\n  - name: s\n    \
             phases: {{run: {{steps: [{{run: [echo, '{more}'], name: e}}]}}}}\n"
        );
        let file = Orchestrated::parse("e", &text).unwrap();
        Script { text, ..Script::new(file, PathBuf::from(".")) }
    }

    #[test]
    fn t0_programs_are_told_where_marks_are() {
        let told = |marks| {
            let script = Script { marks, ..script("") };
            let trials = trials(&script, "7").unwrap();
            let step = &trials[0].plan.stations[0].parts[&Phase::Run].steps[0];
            let Task::Run(program) = &step.task else { panic!("{step:?}") };
            program.environment.get(marker::VARIABLE).cloned()
        };
        assert_eq!(told(None), None);
        assert_eq!(told(Some(Marks::In(PathBuf::from("/x")))), Some("/x".to_owned()));
        let own = told(Some(Marks::OfStation)).unwrap();
        assert!(own.contains("-7-00") && own.ends_with("-s"), "{own}");
    }

    #[test]
    fn t0_all_combinations_are_performed_in_an_order_of_the_seed() {
        let all = trials(&script("${a}${b}${c}$${d}"), "0").unwrap();
        assert_eq!(all.len(), 12);
        let again = trials(&script("${a}${b}${c}$${d}"), "0").unwrap();
        let numbers = |all: &[Trial]| all.iter().map(|p| p.number).collect::<Vec<_>>();
        assert_eq!(numbers(&all), numbers(&again));
        assert_ne!(numbers(&all), (1..=12).collect::<Vec<_>>());
        let mut words: Vec<String> = all
            .iter()
            .map(|p| {
                let step = &p.plan.stations[0].parts[&Phase::Run].steps[0];
                step.task.program().unwrap().command[1].clone()
            })
            .collect();
        words.sort();
        words.dedup();
        let expected = ["x1p${d}", "x2p${d}", "x3p${d}", "y1q${d}", "y2q${d}", "y3q${d}"];
        assert_eq!(words, expected);
    }

    #[test]
    fn t0_codes_of_steps_that_wait_for_a_program_are_those_of_the_program() {
        let of = |steps: &str| {
            let text = format!(
                "name: e\nstations:\n  - name: s\n    phases:\n      \
                 open: {{steps: [{{start: [x], name: p, accept: [0, 1]}}]}}\n      \
                 close: {{steps: [{steps}]}}\n"
            );
            let file = Orchestrated::parse("e", &text).map_err(|errors| errors.to_string())?;
            let script = Script { text, ..Script::new(file, PathBuf::from(".")) };
            let all = trials(&script, "0").map_err(|error| error.to_string())?;
            let step = &all[0].plan.stations[0].parts[&Phase::Open].steps[0];
            Ok::<_, String>(step.task.program().unwrap().accept.clone())
        };
        assert_eq!(of("{stop: p}"), Ok(vec![0, 1]));
        assert_eq!(of("{stop: p, accept: [7]}"), Ok(vec![0, 1, 7]));
        assert_eq!(of("{wait: p, accept: [9]}, {stop: p, accept: [7]}"), Ok(vec![0, 1, 7, 9]));
    }

    #[test]
    fn t1_only_files_beside_the_experiment_are_put() {
        let beside = std::env::temp_dir().join(format!("tw-put-{}", std::process::id()));
        fs::create_dir_all(beside.join("below")).unwrap();
        fs::write(beside.join("below/good"), "${a}").unwrap();
        fs::write(beside.join("bytes"), [0xff, b'$', b'{']).unwrap();
        fs::write(beside.join("zero"), "${a}\0").unwrap();
        fs::write(beside.join("short"), "${a}".repeat(100_000)).unwrap();
        fs::write(beside.join("long"), "${a}".repeat(300_000)).unwrap();
        fs::write(beside.join("longer"), "x".repeat(MAX_PUT + 1)).unwrap();
        fs::write(beside.join("most"), "x".repeat(MAX_PUT)).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", beside.join("link")).unwrap();
        let told = |from: &str| {
            let mut script = script("");
            let step = format!("{{put: f, from: '{from}'}}");
            let text = script.text.replace("steps: [", &format!("steps: [{step}, "));
            script = {
                let file = Orchestrated::parse("e", &text).unwrap();
                Script { text, ..Script::new(file, beside.clone()) }
            };
            trials(&script, "0")
        };
        let all = told("below/good").unwrap();
        let first = all.iter().find(|trial| trial.number == 1).unwrap();
        let task = &first.plan.stations[0].parts[&Phase::Run].steps[0].task;
        assert!(matches!(task, Task::Put { text, .. } if text == "x"), "{task:?}");
        // What is no text is put as it is; a long text has its values, and both come in pieces.
        let pieces = |from: &str| {
            let all = told(from).unwrap();
            let of_first = all.into_iter().find(|trial| trial.number == 1).unwrap();
            let mut whole = Vec::new();
            let steps = &of_first.plan.stations[0].parts[&Phase::Run].steps;
            for (number, step) in steps.iter().enumerate() {
                let Task::PutPiece { offset, bytes, digest, .. } = &step.task else { break };
                assert_eq!(*offset, u64::try_from(whole.len()).unwrap());
                whole.extend(bytes);
                let digest_of_all = crate::links::digest(&mut &*whole).unwrap();
                let is_last = number + 2 == steps.len();
                assert_eq!(digest.as_deref(), is_last.then_some(digest_of_all.as_str()));
            }
            (steps.len() - 1, whole)
        };
        assert_eq!(pieces("bytes"), (1, vec![0xff, b'$', b'{']));
        assert_eq!(pieces("zero"), (1, b"${a}\0".to_vec()));
        assert_eq!(pieces("most"), (32, vec![b'x'; MAX_PUT]));
        assert_eq!(pieces("short"), (1, Vec::new()), "with its values it fits");
        assert_eq!(pieces("long"), (3, vec![b'x'; 300_000]));
        for (from, why) in [
            ("/etc/hostname", "beside the one that names it"),
            ("../etc", "beside the one that names it"),
            ("link", "beside the one that names it"),
            ("below", "beside the one that names it"),
            ("longer", "too much to put"),
            ("none", "cannot read"),
        ] {
            let error = told(from).unwrap_err().to_string();
            assert!(error.contains(why), "{from}: {error}");
        }
        fs::remove_dir_all(&beside).unwrap();
    }

    #[test]
    fn t1_only_host_settings_are_applied() {
        let beside = std::env::temp_dir().join(format!("tw-apply-{}", std::process::id()));
        fs::create_dir_all(&beside).unwrap();
        fs::write(beside.join("good"), "timewire: 1\nkind: network\n").unwrap();
        fs::write(beside.join("hosts"), "kind: hosts\nstations: []\n").unwrap();
        let told = |name: &str| {
            let text = script("").text.replace("steps: [", &format!("steps: [{{apply: {name}}}, "));
            let file = Orchestrated::parse("e", &text).unwrap();
            trials(&Script::new(file, beside.clone()), "0").map(drop).map_err(|it| it.to_string())
        };
        told("good").unwrap();
        let error = told("hosts").unwrap_err();
        assert_eq!(error, "`hosts` is a hosts file, not a network file with host settings");
        fs::remove_dir_all(&beside).unwrap();
    }

    #[test]
    fn t0_programs_have_names_of_their_own_and_are_started_before_they_are_stopped() {
        let told = |steps: &str| {
            let mut script = script("");
            script.text = script.text.replace("[{run: [echo, ''], name: e}]", steps);
            script.file = Orchestrated::parse("e", &script.text).unwrap();
            trials(&script, "0").map(drop).map_err(|error| error.to_string())
        };
        told("[{start: [a], name: 'e${b}'}, {run: [b], name: e}, {stop: e3}, {wait: e}]")
            .unwrap_err();
        told("[{start: [a], name: 'e${b}'}, {run: [b], name: e}, {stop: 'e${b}'}, {wait: e}]")
            .unwrap();
        let error = told("[{start: [a], name: 'e1'}, {run: [b], name: 'e${b}'}]").unwrap_err();
        assert!(error.starts_with("station `s`, run: a second program `e1`"), "{error}");
        let error = told("[{stop: e}, {start: [a], name: e}]").unwrap_err();
        assert_eq!(error, "station `s`, run: no program `e` is started before");
    }

    #[test]
    fn t0_checks_name_records_with_variables_and_before_anything_runs() {
        let with = |record: &str| {
            let mut script = script("");
            script.text +=
                &format!("checks: [{{station: s, record: '{record}', value: '', at_least: 0}}]\n");
            script.file = Orchestrated::parse("e", &script.text).unwrap();
            script
        };
        let good = with("of-${a}.json");
        let all = trials(&good, "0").unwrap();
        let first = all.iter().find(|trial| trial.number == 1).unwrap();
        let record = record_of_check(&good, &first.values, &good.file.checks[0]).unwrap();
        assert_eq!(record.as_str(), "of-x.json");
        for (bad, why) in [("${z}", "there is no variable `z`"), ("../x", "no name of a record")] {
            let error = trials(&with(bad), "0").unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn t1_what_all_trials_put_is_bounded() {
        let beside = std::env::temp_dir().join(format!("tw-most-{}", std::process::id()));
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("most"), "x".repeat(MAX_PUT)).unwrap();
        let text = script("").text.replace("steps: [", "steps: [{put: f, from: most}, ");
        let text = text.replace("repeats: 2", "repeats: 11");
        let file = Orchestrated::parse("e", &text).unwrap();
        let error = trials(&Script { text, ..Script::new(file, beside.clone()) }, "0").unwrap_err();
        assert!(error.to_string().contains("together"), "{error}");
        fs::remove_dir_all(&beside).unwrap();
    }

    #[test]
    fn t0_unknown_variables_are_told() {
        let error = trials(&script("${z}"), "0").unwrap_err().to_string();
        assert!(error.contains("`z`") && error.contains("`a`, `b`, `c`"), "{error}");
    }
}
