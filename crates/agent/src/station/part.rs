// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a station has of one experiment: a directory in which its programs work and whose files
//! are its records, its programs, and what it applied to the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::protocol::message::MAX_PIECE;
use crate::protocol::{
    CommandOutcome, ExperimentId, FailureKind, Program, Record, RecordName, Restored, Task,
    WordName,
};
use timewire_base::{Instant, Mono, Span, Tai};
use timewire_host::apply::{self, Failure, applied};
use timewire_host::snapshot::Snapshot;
use timewire_model::scenario::host::HostSettings;
use timewire_sys::clock;
use timewire_tsn::file::ParseFile;

use super::before::{self, Before};
use super::running::{Running, Surroundings, await_watchdogs, end_marked};

/// Most records of a station; more do not fit the message that tells of them.
const MAX_RECORDS: usize = 512;
/// What could not be a record, by name.
const NOT_KEPT: &str = "not-kept.txt";
/// Before an instant, a thread sleeps only so long without looking whether it is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// One experiment on this station.
pub(super) struct Part {
    directory: PathBuf,
    /// Where it is written what the host was like before; `None` where nobody compares.
    before: Option<PathBuf>,
    own_program: PathBuf,
    mark: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    programs: BTreeMap<WordName, Arc<Running>>,
    /// Tasks that were begun and are not over.
    begun: BTreeSet<u32>,
    /// Tasks that are to end.
    aborted: Vec<u32>,
    /// The instant at which the phase `run` begins here, once the order for that has come.
    start: Option<Instant<Tai>>,
    /// What a task waits for.
    waits: BTreeMap<u32, Arc<Running>>,
    held: Vec<applied::Held>,
}

impl Part {
    /// The part of an experiment, in a directory of its own; what the host was like before it is
    /// in a file.
    pub fn new(
        directory: PathBuf,
        before: Option<PathBuf>,
        own_program: PathBuf,
        experiment: &ExperimentId,
    ) -> Part {
        // Several agents may run on one machine; the directory tells them apart.
        let mark = format!("{experiment}@{}", directory.display());
        let (state, changed) = (Mutex::default(), Condvar::new());
        Part { directory, before, own_program, mark, state, changed }
    }

    /// Says that a task will be performed: before its thread is there, so that who restores the
    /// host waits for it.
    pub fn begin(&self, number: u32) {
        self.state().begun.insert(number);
    }

    /// Does a task, from its instant on; and when it began: of a program, when it ran.
    pub fn perform(
        &self,
        number: u32,
        task: &Task,
        at: Option<Instant<Tai>>,
    ) -> (CommandOutcome, Option<Instant<Tai>>) {
        let mut began = None;
        let outcome = self.do_task(number, task, at, &mut began);
        self.state().begun.remove(&number);
        self.changed.notify_all();
        (outcome, began)
    }

    fn do_task(
        &self,
        number: u32,
        task: &Task,
        at: Option<Instant<Tai>>,
        began: &mut Option<Instant<Tai>>,
    ) -> CommandOutcome {
        if let Some(at) = at {
            self.state().start = Some(at);
            if !self.wait_until(number, at) {
                return stopped();
            }
        }
        if self.state().aborted.contains(&number) {
            return stopped();
        }
        let not_done = |why: String| CommandOutcome::failed(FailureKind::NotStarted, why);
        if let Err(error) = fs::create_dir_all(&self.directory) {
            return not_done(format!("{}: {error}", self.directory.display()));
        }
        *began = Some(clock::now::<Tai>());
        let done = match task {
            Task::Put { name, text } => self.put(name, text.as_bytes()),
            Task::PutPiece { name, offset, bytes, digest } => {
                self.put_piece(name, *offset, bytes, digest.as_deref())
            }
            Task::Snapshot { name } => self.snapshot(name),
            Task::Apply { host } => self.apply(host),
            Task::Run(program) => {
                return match self.start(program, began) {
                    Ok(running) => self.wait_for(number, &running),
                    Err(why) => not_done(why),
                };
            }
            Task::Start(program) => self.start(program, began).map(drop),
            Task::Wait { name } => {
                return match self.named(name) {
                    Ok(running) => self.wait_for(number, &running),
                    Err(why) => not_done(why),
                };
            }
            Task::Stop { name } => {
                return self.named(name).map_or_else(not_done, |running| running.stop());
            }
        };
        done.map_or_else(not_done, |()| CommandOutcome::Done { exit: None })
    }

    /// Ends what a command does.
    pub fn abort(&self, number: u32) {
        let mut state = self.state();
        state.aborted.push(number);
        if let Some(running) = state.waits.get(&number) {
            running.kill();
        }
        self.changed.notify_all();
    }

    /// Ends all programs and these tasks; afterwards none of them changes anything.
    pub fn halt(&self, tasks: &[u32]) {
        self.state().aborted.extend(tasks);
        self.changed.notify_all();
        self.stop_programs();
        // One that was about to start a program or applies host settings does so until it is over.
        let mut state = self.state();
        while tasks.iter().any(|task| state.begun.contains(task)) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.stop_programs();
    }

    fn stop_programs(&self) {
        let programs: Vec<_> = self.state().programs.values().cloned().collect();
        std::thread::scope(|scope| {
            for running in &programs {
                scope.spawn(|| running.stop());
            }
        });
    }

    /// Writes down what the host is like.
    ///
    /// **Errors**: it cannot be read, or not be written down.
    pub fn survey(&self) -> Result<(), String> {
        self.before.as_ref().map_or(Ok(()), |path| Before::observe()?.save(path))
    }

    /// Restores the host, with all that is found to undo; what differs from before is left.
    pub fn restore(&self, tasks: &[u32]) -> Restored {
        self.halt(tasks);
        end_marked(&self.mark);
        let mut held = std::mem::take(&mut self.state().held);
        let mut restored = Restored::default();
        let left = &mut restored.left;
        while let Some(last) = held.pop() {
            if let Err(error) = last.end() {
                left.push(error.to_string());
            }
        }
        // Of an agent that was killed; its watchdog may have done it already.
        left.extend(before::recovered());
        match self.before.as_deref().map(Before::load) {
            Some(Ok(before)) => {
                let compared = before.restore(|| await_watchdogs(&self.mark));
                left.extend(compared.left);
                restored.not_compared = compared.not_compared;
            }
            None => {
                left.extend(await_watchdogs(&self.mark));
                left.extend(before::recovered());
            }
            Some(Err(why)) => {
                left.extend(await_watchdogs(&self.mark));
                left.extend(before::recovered());
                left.push(format!("it is not known what the host was like before: {why}"));
            }
        }
        restored
    }

    /// The files that are there, as records.
    ///
    /// **Errors**: one cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, String> {
        let (mut names, mut others) = (Vec::new(), Vec::new());
        if self.directory.exists() {
            list(&self.directory, "", &mut names, &mut others)?;
        }
        names.sort();
        if names.len() > MAX_RECORDS {
            let more = names.split_off(MAX_RECORDS);
            others.extend(more.iter().map(ToString::to_string));
        }
        if !others.is_empty() {
            let name = RecordName::new(NOT_KEPT).map_err(|error| error.to_string())?;
            self.put(&name, (others.join("\n") + "\n").as_bytes())?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.into_iter().map(|name| self.record(name)).collect()
    }

    fn record(&self, name: RecordName) -> Result<Record, String> {
        let failed = |error: std::io::Error| format!("{name}: {error}");
        let file = File::open(self.directory.join(name.as_str())).map_err(failed)?;
        // Told of is kept: also when the machine loses its power now.
        file.sync_all().map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let digest = crate::links::digest(&mut (&file).take(bytes)).map_err(failed)?;
        Ok(Record { name, bytes, digest })
    }

    /// A piece of a record.
    ///
    /// **Errors**: it cannot be read.
    pub fn read(&self, record: &RecordName, offset: u64) -> Result<Vec<u8>, String> {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(self.directory.join(record.as_str()))?;
            file.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::new();
            let most = u64::try_from(MAX_PIECE).map_err(std::io::Error::other)?;
            file.take(most).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| error.to_string())
    }

    /// Removes a record that the controller has.
    pub fn drop_record(&self, record: &RecordName) {
        // Gone already, after a restart.
        let _ = fs::remove_file(self.directory.join(record.as_str()));
    }

    /// Removes all.
    pub fn forget(&self) {
        // It has no records any more, so nothing is lost where this fails.
        let _ = fs::remove_dir_all(&self.directory);
        if let Some(before) = &self.before {
            let _ = fs::remove_file(before);
        }
    }

    fn put(&self, name: &RecordName, bytes: &[u8]) -> Result<(), String> {
        let path = self.directory.join(name.as_str());
        let parent = path.parent().unwrap_or(&self.directory);
        let done = fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes));
        done.map_err(|error| format!("{name}: {error}"))
    }

    /// Writes a piece beside the name, and gives the file its name when it is whole. Done again, it
    /// does the same.
    fn put_piece(
        &self,
        name: &RecordName,
        offset: u64,
        bytes: &[u8],
        digest: Option<&str>,
    ) -> Result<(), String> {
        let path = self.directory.join(name.as_str());
        // No record's name has a `~`.
        let part = self.directory.join(format!("{name}~"));
        let write = || -> io::Result<File> {
            fs::create_dir_all(path.parent().unwrap_or(&self.directory))?;
            let mut options = File::options();
            let mut file = options.create(offset == 0).read(true).write(true).open(&part)?;
            if file.metadata()?.len() < offset {
                return Err(io::Error::other("a piece before this one is missing"));
            }
            file.set_len(offset)?;
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(bytes)?;
            file.rewind()?;
            Ok(file)
        };
        let failed = |error: io::Error| format!("{name}: {error}");
        let mut file = write().map_err(failed)?;
        let Some(digest) = digest else { return Ok(()) };
        if crate::links::digest(&mut file).map_err(failed)? != digest {
            return Err(format!("{name}: it is not what was sent"));
        }
        fs::rename(&part, &path).map_err(failed)
    }

    fn snapshot(&self, name: &RecordName) -> Result<(), String> {
        let snapshot = Snapshot::of_this_host(&[]).map_err(|error| error.to_string())?;
        self.put(name, snapshot.to_text().as_bytes())
    }

    fn apply(&self, text: &str) -> Result<(), String> {
        let file =
            HostSettings::parse("host settings", text).map_err(|errors| errors.to_string())?;
        let wanted = apply::wanted(&file.host, &BTreeMap::new(), "host settings");
        if let Some(error) = wanted.errors.first() {
            return Err(error.clone());
        }
        if let Some(note) = wanted.by_hand.first() {
            return Err(format!("not a setting, start it as a program: {note}"));
        }
        let title = applied::Title { name: &file.name(), file: "", by_hand: &[] };
        match applied::hold(&title, &wanted.settings).map_err(|error| error.to_string())? {
            Ok(held) => {
                self.state().held.push(held);
                Ok(())
            }
            Err(Failure::Unread(error)) => Err(error.to_string()),
            Err(Failure::Refused(refusals)) => {
                Err(refusals.first().map_or_else(String::new, ToString::to_string))
            }
            Err(Failure::Failed { at, why, .. }) => Err(format!("{at}: {why}")),
        }
    }

    fn start(
        &self,
        program: &Program,
        began: &mut Option<Instant<Tai>>,
    ) -> Result<Arc<Running>, String> {
        *began = None;
        let failed = |error: std::io::Error| format!("{}: {error}", program.command.join(" "));
        let start = self.state().start;
        let surroundings = Surroundings { mark: &self.mark, directory: &self.directory, start };
        let running = Running::start(program, &self.own_program, &surroundings);
        let (running, at) = running.map_err(failed)?;
        *began = Some(at);
        self.state().programs.insert(program.name.clone(), Arc::clone(&running));
        Ok(running)
    }

    fn named(&self, name: &WordName) -> Result<Arc<Running>, String> {
        self.state().programs.get(name).cloned().ok_or(format!("no program `{name}` was started"))
    }

    fn wait_for(&self, number: u32, running: &Arc<Running>) -> CommandOutcome {
        {
            let mut state = self.state();
            if state.aborted.contains(&number) {
                running.kill();
            }
            state.waits.insert(number, Arc::clone(running));
        }
        let outcome = running.wait();
        let mut state = self.state();
        state.waits.remove(&number);
        if state.aborted.contains(&number) { stopped() } else { outcome }
    }

    /// Waits until the instant, or until the task is to end; whether it goes on.
    fn wait_until(&self, number: u32, at: Instant<Tai>) -> bool {
        let near = Span::from_ms(200);
        let mut state = self.state();
        while !state.aborted.contains(&number) {
            let left = at - clock::now::<Tai>();
            if left <= Span::ZERO {
                return true;
            }
            if left <= near {
                drop(state);
                // By a clock that nobody steps: one that is set back would sleep as long.
                clock::sleep_until(clock::now::<Mono>().saturating_add(left));
                state = self.state();
                continue;
            }
            let woken = self.changed.wait_timeout(state, POLL_INTERVAL);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
        false
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stopped() -> CommandOutcome {
    CommandOutcome::failed(FailureKind::Stopped, "the agent ended it")
}

/// The files below a directory; those that can be no record apart.
fn list(
    directory: &Path,
    prefix: &str,
    names: &mut Vec<RecordName>,
    others: &mut Vec<String>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().map_err(failed)?;
        match RecordName::new(&name) {
            Ok(_) if kind.is_dir() => list(&entry.path(), &format!("{name}/"), names, others)?,
            Ok(record) if kind.is_file() => names.push(record),
            _ => others.push(name),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant as Clock;

    use super::*;

    #[test]
    fn t3_what_was_under_way_is_over_before_the_host_counts_as_back() {
        let name = format!("tw-part-{}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        let experiment = ExperimentId::new(&name).unwrap();
        let part = Arc::new(Part::new(
            directory.clone(),
            Some(directory.join("before")),
            PathBuf::new(),
            &experiment,
        ));
        let program = |word: &str| {
            Task::Start(Program {
                name: WordName::new("late").unwrap(),
                command: ["sleep", word].map(str::to_owned).into(),
                environment: BTreeMap::new(),
                accept: Vec::new(),
            })
        };
        // Its thread comes late: first the host is to be restored.
        part.begin(7);
        let of_thread = Arc::clone(&part);
        let halting = std::thread::spawn(move || of_thread.halt(&[7]));
        let began = Clock::now();
        while !part.state().aborted.contains(&7) && began.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert!(!halting.is_finished(), "a task could still start a program");
        assert_eq!(part.perform(7, &program("987001"), None).0, stopped());
        halting.join().unwrap();
        assert!(part.state().programs.is_empty());
        // Another that is not among them goes on, and is stopped with all programs.
        part.begin(8);
        assert_eq!(
            part.perform(8, &program("987002"), None).0,
            CommandOutcome::Done { exit: None }
        );
        part.halt(&[]);
        let running = part.named(&WordName::new("late").unwrap()).unwrap();
        assert_eq!(running.stop(), CommandOutcome::Done { exit: None });
        part.forget();
        assert!(!directory.exists());
    }

    #[test]
    fn t1_a_file_in_pieces_has_its_name_when_it_is_whole() {
        let directory = std::env::temp_dir().join(format!("tw-piece-{}", std::process::id()));
        let experiment = ExperimentId::new("e").unwrap();
        let part = Part::new(
            directory.clone(),
            Some(directory.join("before")),
            PathBuf::new(),
            &experiment,
        );
        let name = RecordName::new("below/f").unwrap();
        let whole = [0, 0xff, b'a', b'b', 0];
        let digest = crate::links::digest(&mut &whole[..]).unwrap();
        let put = |offset: u64, bytes: &[u8], digest: Option<&str>| {
            let digest = digest.map(str::to_owned);
            let task = Task::PutPiece { name: name.clone(), offset, bytes: bytes.to_vec(), digest };
            part.perform(1, &task, None).0
        };
        let is_done = |outcome: &CommandOutcome| matches!(outcome, CommandOutcome::Done { .. });
        let path = directory.join("below/f");
        assert!(!is_done(&put(2, &whole[2..], None)), "the first piece is missing");
        // Again, as after an answer that was lost.
        assert!(is_done(&put(0, &whole[..2], None)) && is_done(&put(0, &whole[..2], None)));
        assert!(is_done(&put(2, &whole[2..4], None)) && !path.exists());
        let other = put(4, b"x", Some(&digest));
        assert!(format!("{other:?}").contains("not what was sent") && !path.exists(), "{other:?}");
        assert!(is_done(&put(4, &whole[4..], Some(&digest))));
        assert_eq!(fs::read(&path).unwrap(), whole);
        let records = part.records().unwrap();
        assert_eq!((records.len(), records[0].digest == digest), (1, true), "{records:?}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
