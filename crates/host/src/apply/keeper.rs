// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transactions on this host from their start to their end, and the second process that puts the
//! host back when the first one dies, or when nobody confirms.
//!
//! The keeper is this same program, started as `PROGRAM __keeper RECORD`; the program's main
//! function calls [`keeper_main`] for that. It holds the read end of a pipe whose write end only
//! the process that applies has; the kernel closes that in every kind of death.
//!
//! Not here: what is done and undone (`transaction`).

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use timewire_base::{IfName, Mono, Span};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_sys::namespace;

use super::command::Command as ApplyCommand;
use super::plan::Step;
use super::real::RealHost;
use super::record::{Ending, Record, Saved, Store, load};
use super::setting::{Difference, Setting, Settings, Value};
use super::transaction::{self, Entry, Failure, Host, Log, Outcome, State, Undone};
use crate::HostError;
use crate::guardian;

/// The first argument of a keeper.
pub const KEEPER_VERB: &str = "__keeper";

/// What is applied, for people.
#[derive(Clone, Debug, Default)]
pub struct Title<'a> {
    /// Its name.
    pub name: &'a str,
    /// The file it came from.
    pub file: &'a str,
    /// What the file wishes besides, and what starts it.
    pub by_hand: &'a [String],
}

/// Applies a wish to this host.
///
/// **Errors**: [`HostError::Busy`] while another process changes the host; [`HostError::Applied`]
/// when something is applied already; the inner [`Failure`] for all that happens afterwards.
pub fn apply(
    title: &Title<'_>,
    wish: &Settings,
    confirm_within: Option<Span>,
    progress: &mut dyn FnMut(usize, usize, &Step),
) -> Result<Result<Outcome, Failure>, HostError> {
    let (result, keeper) = match apply_for(title, wish, confirm_within, false, progress)? {
        Ok(done) => done,
        Err(failure) => return Ok(Err(failure)),
    };
    match (&result, confirm_within, keeper) {
        (Outcome::Done { .. }, Some(_), Some(keeper)) => keeper.leave_alone(),
        (_, _, Some(keeper)) => keeper.dismiss(),
        (_, _, None) => {}
    }
    Ok(Ok(result))
}

/// Applies a wish for as long as this process lives and keeps the result.
///
/// **Errors**: as [`apply`]; [`HostError::Applied`] also when the same is applied already.
pub fn hold(title: &Title<'_>, wish: &Settings) -> Result<Result<Held, Failure>, HostError> {
    Ok(apply_for(title, wish, None, true, &mut |_, _, _| {})?.map(|(_, keeper)| Held { keeper }))
}

/// What is applied until it is taken back or this process ends, however it does.
///
/// It belongs to the network namespace of the thread that applied it, and is taken back there.
#[derive(Debug)]
pub struct Held {
    /// None when the host was as wished.
    keeper: Option<Keeper>,
}

impl Held {
    /// Takes it back, whatever someone else has changed since.
    ///
    /// **Errors**: the host cannot be read, or not be put back.
    pub fn end(mut self) -> Result<(), HostError> {
        self.take_back()
    }

    fn take_back(&mut self) -> Result<(), HostError> {
        let Some(keeper) = self.keeper.take() else { return Ok(()) };
        let undone = undo(true);
        keeper.dismiss();
        match undone? {
            Undoing::Done { saved, undone } if !undone.left.is_empty() => {
                let failures = undone.left.iter().map(ToString::to_string).collect();
                Err(HostError::NotUndone { path: saved.path, failures })
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.take_back() {
            let _ = writeln!(io::stderr(), "timewire: {error}");
        }
    }
}

/// Applies a wish; what is left to do with the keeper is the caller's. There is none when nothing
/// was applied.
fn apply_for(
    title: &Title<'_>,
    wish: &Settings,
    confirm_within: Option<Span>,
    held: bool,
    progress: &mut dyn FnMut(usize, usize, &Step),
) -> Result<Result<(Outcome, Option<Keeper>), Failure>, HostError> {
    let store = Store::open()?;
    let _lock = store.lock()?;
    let mut host = RealHost;
    recover_locked(&store)?;
    if let Some(saved) = store.load()? {
        if store.is_gone(&saved) {
            Record::reopen(&saved.path)?.remove()?;
        } else {
            // The same again is done already.
            return match transaction::plan(&mut host, wish) {
                Ok((_, plan)) if plan.steps.is_empty() && !store.waits(&saved) && !held => {
                    Ok(Ok((Outcome::Nothing, None)))
                }
                _ => Err(HostError::Applied { name: saved.head.name, path: saved.path }),
            };
        }
    }
    let mut record = store.begin(title, held)?;
    let keeper = match Keeper::start(&store) {
        Ok(keeper) => keeper,
        Err(error) => {
            record.remove()?;
            return Err(error);
        }
    };
    let confirm_by = || {
        confirm_within
            .map(|within| (clock::now::<Mono>() + within).as_ns())
            .and_then(|ns| u64::try_from(ns).ok())
    };
    // From here on it ends by itself when it is asked to, with the host as it was.
    let ends = EndRequests::new().map_err(|e| HostError::kernel("block signals", e))?;
    let mut host = Interruptible { host, ends };
    let result = transaction::apply(&mut host, &mut record, wish, &confirm_by, progress);
    let stays = match &result {
        Ok(Outcome::Done { .. }) => true,
        Ok(Outcome::Nothing) => false,
        Err(Failure::Failed { left, .. }) => !left.is_empty(),
        Err(_) => false,
    };
    if !stays {
        // The file goes first: if this process is killed here, the keeper finds nothing to do.
        record.remove()?;
    }
    Ok(match result {
        Ok(outcome) if stays => Ok((outcome, Some(keeper))),
        result => {
            keeper.dismiss();
            result.map(|outcome| (outcome, None))
        }
    })
}

/// This host, for a transaction that can be asked to end: the next command fails, once, and what
/// was done is taken back.
struct Interruptible {
    host: RealHost,
    ends: EndRequests,
}

impl Host for Interruptible {
    fn observe(&mut self, setting: &Setting) -> Result<Value, HostError> {
        self.host.observe(setting)
    }

    fn upper(&mut self, interface: &IfName) -> Result<Vec<IfName>, HostError> {
        self.host.upper(interface)
    }

    fn execute(&mut self, command: &ApplyCommand) -> Result<(), HostError> {
        if self.ends.take() {
            return Err(HostError::Interrupted);
        }
        self.host.execute(command)
    }
}

/// What undoing came to.
#[derive(Clone, Debug)]
pub enum Undoing {
    /// Nothing was applied.
    Nothing,
    /// The host was put back, but for what is named.
    Done {
        /// What was applied.
        saved: Box<Saved>,
        /// What became of it.
        undone: Undone,
    },
    /// The host was started again since, or this is another network; nothing was changed.
    Rebooted {
        /// What was applied.
        saved: Box<Saved>,
        /// What is not as it was before it was applied.
        differences: Vec<Difference>,
    },
}

/// Takes back what is applied on this host.
///
/// **Errors**: [`HostError::Busy`] while another process changes the host; the host cannot be read.
pub fn undo(force: bool) -> Result<Undoing, HostError> {
    // It goes on to its end: half undone is worse than either.
    let _ends = EndRequests::new().map_err(|e| HostError::kernel("block signals", e))?;
    let store = Store::open()?;
    let _lock = store.lock()?;
    let Some(saved) = store.load()? else { return Ok(Undoing::Nothing) };
    let mut host = RealHost;
    if store.is_gone(&saved) {
        let changed = saved.story.before.only(|setting| saved.story.wish.has(setting));
        let now = transaction::observe(&mut host, changed.keys())?;
        let differences = changed.differences(&now);
        Record::reopen(&saved.path)?.remove()?;
        store.end(&ending(&saved, "the host was started again, or this network is another", &[]));
        return Ok(Undoing::Rebooted { saved: Box::new(saved), differences });
    }
    let undone = end(&store, &saved, "undone", |record| {
        transaction::undo(&mut host, record, &saved.story, force)
    })?;
    Ok(Undoing::Done { saved: Box::new(saved), undone })
}

/// Lets what is applied stay.
///
/// **Errors**: nothing is applied that waits for it; another process changes the host.
pub fn confirm() -> Result<Saved, HostError> {
    let store = Store::open()?;
    let _lock = store.lock()?;
    recover_locked(&store)?;
    let Some(saved) = store.load()?.filter(|saved| store.waits(saved)) else {
        return Err(HostError::NothingToConfirm);
    };
    Record::reopen(&saved.path)?.append(&Entry::Confirmed)?;
    Ok(saved)
}

/// What is applied on this host.
#[derive(Clone, Debug)]
pub struct Status {
    /// The record; `None` when nothing is applied.
    pub saved: Option<Saved>,
    /// Whether it is about an earlier boot, or another network namespace of the same number.
    pub rebooted: bool,
    /// Whether it is taken back unless it is confirmed.
    pub waits: bool,
    /// Each changed setting, with what was applied and what it has now.
    pub settings: Vec<(Difference, State)>,
    /// How the last one ended.
    pub ending: Option<Ending>,
}

/// Looks at what is applied; changes nothing.
///
/// **Errors**: the host cannot be read.
pub fn status() -> Result<Status, HostError> {
    let store = Store::open()?;
    let saved = store.load()?;
    let rebooted = saved.as_ref().is_some_and(|saved| store.is_gone(saved));
    let settings = match &saved {
        Some(saved) => transaction::status(&mut RealHost, &saved.story)?,
        None => Vec::new(),
    };
    let waits = saved.as_ref().is_some_and(|saved| store.waits(saved));
    Ok(Status { saved, rebooted, waits, settings, ending: store.ending() })
}

/// Takes back what a process began that is dead, and what nobody confirmed. Call it at the start of
/// every program that changes the host.
///
/// **Shape**: what it did, in words; `None` when there was nothing to do.
///
/// **Errors**: the store cannot be used, or the host not be read. Another process that changes the
/// host is none.
pub fn recover() -> Result<Option<String>, HostError> {
    let store = Store::open()?;
    let _lock = match store.lock() {
        Err(HostError::Busy { .. }) => return Ok(None),
        lock => lock?,
    };
    recover_locked(&store)
}

fn recover_locked(store: &Store) -> Result<Option<String>, HostError> {
    let Some(saved) = store.load()?.filter(|saved| !store.is_gone(saved)) else {
        return Ok(None);
    };
    if !saved.has_begun {
        Record::reopen(&saved.path)?.remove()?;
        return Ok(None);
    }
    // What an undo could not put back stays until the user asks again.
    if !saved.story.left.is_empty() {
        return Ok(None);
    }
    let how = match (&saved.story.after, saved.story.confirm_by_ns) {
        (None, _) => "the process that applied it ended; taken back",
        (Some(_), _) if saved.story.undoing.is_some() => "undone, after it was interrupted",
        (Some(_), Some(by)) if is_past(by) => "nobody confirmed it; taken back",
        (Some(_), None) if saved.head.held && !saved.head.owner().is_alive() => {
            "the process that it was applied for ended; taken back"
        }
        _ => return Ok(None),
    };
    // What nobody confirmed goes whole; an undo that was interrupted goes on as it began, and names
    // what it leaves to someone else.
    let is_unconfirmed = saved.story.undoing.is_none();
    let undone = end(store, &saved, how, |record| {
        transaction::undo(&mut RealHost, record, &saved.story, is_unconfirmed)
    })?;
    let mut words = format!("{}: {how}", saved.head.name);
    if !undone.left.is_empty() {
        let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
        let path = saved.path.display();
        words += &format!("; NOT as before: {} (the journal is {path})", left.join("; "));
    }
    Ok(Some(words))
}

/// Puts the host back with a record, and removes that when nothing is left.
fn end(
    store: &Store,
    saved: &Saved,
    how: &str,
    work: impl FnOnce(&mut Record) -> Result<Undone, HostError>,
) -> Result<Undone, HostError> {
    let mut record = Record::reopen(&saved.path)?;
    let undone = work(&mut record)?;
    store.end(&ending(saved, how, &undone.left));
    if undone.left.is_empty() {
        record.remove()?;
    }
    Ok(undone)
}

fn ending(saved: &Saved, how: &str, left: &[Difference]) -> Ending {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ending {
        name: saved.head.name.clone(),
        how: how.to_owned(),
        at: now.map_or(0, |since| since.as_secs()),
        left: left.to_vec(),
    }
}

fn is_past(by_ns: u64) -> bool {
    u64::try_from(clock::now::<Mono>().as_ns()).is_ok_and(|now| now >= by_ns)
}

/// The side of the process that applies.
#[derive(Debug)]
struct Keeper {
    process: Child,
    pipe: PipeWriter,
}

impl Keeper {
    fn start(store: &Store) -> Result<Keeper, HostError> {
        let (program, arguments) = guardian::program(KEEPER_VERB);
        let failed =
            |why: String| HostError::Guardian { program: program.display().to_string(), why };
        let (reader, pipe) = io::pipe().map_err(|e| failed(e.to_string()))?;
        // It outlives the terminal, so it does not speak there.
        let log_path = store.log_path();
        let log = OpenOptions::new().create(true).append(true).open(&log_path);
        let log = log.map_err(|e| HostError::file("open", &log_path, e))?;
        let mut process = Command::new(&program)
            .args(arguments)
            .arg(store.record_path())
            // Ctrl-C is for the owner, also before this one has a session of its own.
            .process_group(0)
            .stdin(Stdio::from(reader))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let stdout = process.stdout.take().expect("invariant: stdout was piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        if lines.any(|line| line.ends_with(READY)) {
            return Ok(Keeper { process, pipe });
        }
        let status = process.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        Err(failed(format!("it ended ({status}) before it said that it is on guard")))
    }

    /// Ends it; it does nothing.
    fn dismiss(mut self) {
        // It may have been killed, and then there is nobody to tell.
        let _ = self.pipe.write_all(&[DISMISSED]);
        drop(self.pipe);
        let _ = self.process.wait();
    }

    /// Lets it wait for what the record says.
    fn leave_alone(self) {
        drop(self.pipe);
    }
}

/// What a keeper does, from its start to its end: stdin is the pipe, stdout the way to say that it
/// is on guard, stderr for what it did.
///
/// **Errors**: the host could not be put back; say so and exit with 3.
pub fn keeper_main(path: &Path) -> Result<(), HostError> {
    // Fails only for a process group leader, which then has a group of its own, as wanted.
    let _ = namespace::new_session();
    namespace::ignore_requests_to_end();
    // Whatever directory the owner stands in, it can be unmounted.
    let _ = std::env::set_current_dir("/");
    let owner = load(path)?.head.owner();
    // When nobody hears it, the pipe ends as well.
    let _ = writeln!(io::stdout(), "{READY}");
    let mut message = Vec::new();
    // An error is as good as the end: the owner cannot say any more that all is well.
    let _ = io::stdin().lock().read_to_end(&mut message);
    if message.contains(&DISMISSED) {
        return Ok(());
    }
    loop {
        let Ok(saved) = load(path) else { return Ok(()) };
        if saved.head.owner() != owner {
            return Ok(());
        }
        let waits = match (&saved.story.after, saved.story.confirm_by_ns) {
            // Its tools are told to die with it a moment after the pipe closes.
            (None, _) => owner.is_alive(),
            (Some(_), None) if saved.head.held => owner.is_alive(),
            (Some(_), None) => return Ok(()),
            (Some(_), Some(by)) => !is_past(by),
        };
        if !waits {
            match recover() {
                // Someone else holds the lock: they do it, or they undo, or they confirm.
                Ok(None) if load(path).is_ok_and(|now| now.story.left.is_empty()) => {}
                Ok(done) => {
                    if let Some(done) = done {
                        let _ = writeln!(io::stderr(), "timewire: {done}");
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        thread::sleep(LOOK);
    }
}

/// How often a keeper looks whether something changed.
const LOOK: Duration = Duration::from_millis(20);
const READY: &str = "timewire keeper: on guard";
const DISMISSED: u8 = b'd';
