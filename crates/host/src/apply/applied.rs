// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transactions on this host from their start to their end: each is one change in an undo log of
//! its network namespace, which lasts until it is undone, until nobody has confirmed it in time, or
//! as long as its process.

use std::any::Any;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use timewire_base::{IfName, Mono, Span};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;

use super::command::Command as ApplyCommand;
use super::plan::Step;
use super::real::RealHost;
use super::setting::{Difference, Setting, Settings, Value};
use super::store::{Ending, Store};
use super::transaction::{self, Entry, Failure, Host, Log, State, TransactionOutcome};
use super::transaction::{UndoLog, Undone};
use crate::HostError;
use crate::journal::{
    Content, Due, Head, Inverse, Journal, Kind, Line, LogFile, Note, boot_id, carry_out_locked,
    read,
};

/// What is applied, for people.
#[derive(Clone, Debug, Default)]
pub struct Title<'a> {
    /// Its name.
    pub name: &'a str,
    /// The file it came from.
    pub file: &'a str,
    /// What the file asks for besides, and what starts it.
    pub by_hand: &'a [String],
}

/// Applies a desired configuration to this host.
///
/// **Errors**: [`HostError::Busy`] while another process changes the host; [`HostError::Applied`]
/// when something is applied already; the inner [`Failure`] for all that happens afterwards.
pub fn apply(
    title: &Title<'_>,
    desired: &Settings,
    confirm_within: Option<Span>,
    progress: &mut dyn FnMut(usize, usize, &Step),
) -> Result<Result<TransactionOutcome, Failure>, HostError> {
    let result = apply_for(title, desired, confirm_within, false, progress)?;
    Ok(result.map(|(outcome, journal)| {
        if let Some(journal) = journal {
            journal.leave();
        }
        outcome
    }))
}

/// Applies a desired configuration for as long as this process lives and keeps the result.
///
/// **Errors**: as [`apply`]; [`HostError::Applied`] also when the same is applied already.
pub fn hold(title: &Title<'_>, desired: &Settings) -> Result<Result<Held, Failure>, HostError> {
    let result = apply_for(title, desired, None, true, &mut |_, _, _| {})?;
    Ok(result.map(|(_, journal)| Held { journal }))
}

/// What is applied until it is taken back or this process ends, however it does.
///
/// It belongs to the network namespace of the thread that applied it, and is taken back there.
#[derive(Debug)]
pub struct Held {
    /// None when the host was as desired.
    journal: Option<Journal>,
}

impl Held {
    /// Takes it back, whatever someone else has changed since.
    ///
    /// **Errors**: the host cannot be read, or not be restored.
    pub fn end(mut self) -> Result<(), HostError> {
        self.take_back()
    }

    fn take_back(&mut self) -> Result<(), HostError> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        // It goes on to its end: half undone is worse than either.
        let ends = EndRequests::new().map_err(|e| HostError::kernel("block signals", e));
        match ends.and_then(|ends| Ok((ends, Store::open()?.lock()?))) {
            Ok(_guards) => journal.finish(),
            Err(error) => {
                // The watchdog does it when this process has ended.
                journal.leave();
                Err(error)
            }
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

/// Applies a desired configuration; what becomes of the undo log is the caller's. There is none
/// when nothing was applied.
fn apply_for(
    title: &Title<'_>,
    desired: &Settings,
    confirm_within: Option<Span>,
    held: bool,
    progress: &mut dyn FnMut(usize, usize, &Step),
) -> Result<Result<(TransactionOutcome, Option<Journal>), Failure>, HostError> {
    let store = Store::open()?;
    let _lock = store.lock()?;
    let mut host = RealHost;
    recover_locked(&store)?;
    if let Some(saved) = load(&store)? {
        if saved.is_gone()? {
            LogFile::open(&saved.path)?.remove()?;
        } else {
            // The same again is done already.
            return match transaction::plan(&mut host, desired) {
                Ok((_, plan)) if plan.steps.is_empty() && !saved.waits()? && !held => {
                    Ok(Ok((TransactionOutcome::Nothing, None)))
                }
                _ => {
                    let (name, path) = (saved.transaction.name, saved.path);
                    Err(HostError::Applied { name, path })
                }
            };
        }
    }
    let journal = Journal::begin_at(store.log_path(), title.name, Some(&store.said_path()))?;
    let entry = journal.record(Transaction {
        name: title.name.to_owned(),
        file: title.file.to_owned(),
        by_hand: title.by_hand.to_vec(),
        held,
        undo_log: UndoLog::default(),
    })?;
    let confirm_by = || {
        confirm_within
            .map(|within| (clock::now::<Mono>() + within).as_ns())
            .and_then(|ns| u64::try_from(ns).ok())
    };
    // From here on it ends by itself when it is asked to, with the host as it was.
    let ends = EndRequests::new().map_err(|e| HostError::kernel("block signals", e))?;
    let mut host = Interruptible { host, ends };
    let mut note = |note: &Json| journal.note(entry, note.clone());
    let result =
        transaction::apply(&mut host, &mut Notes(&mut note), desired, &confirm_by, progress);
    match result {
        Ok(outcome @ TransactionOutcome::Done { .. }) => Ok(Ok((outcome, Some(journal)))),
        Err(Failure::Failed { ref left, .. }) if !left.is_empty() => {
            journal.leave();
            Ok(result.map(|outcome| (outcome, None)))
        }
        result => {
            journal.forget(entry)?;
            journal.finish()?;
            Ok(result.map(|outcome| (outcome, None)))
        }
    }
}

/// The entries of a transaction as notes in an undo log.
struct Notes<'a>(Note<'a>);

impl Log for Notes<'_> {
    fn append(&mut self, entry: &Entry) -> Result<(), HostError> {
        let json = serde_json::to_value(entry).expect("invariant: an entry has only text keys");
        (self.0)(&json)
    }
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

/// Settings that were changed together, and how far that has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "transaction")]
pub struct Transaction {
    /// The name of what is applied.
    pub name: String,
    /// The file it came from.
    pub file: String,
    /// What the file asks for besides, and what starts it.
    pub by_hand: Vec<String>,
    /// Whether it is taken back when the process that applied it ends.
    pub held: bool,
    /// What happened.
    #[serde(skip)]
    pub undo_log: UndoLog,
}

impl Inverse for Transaction {
    fn undo(&self) -> Result<(), HostError> {
        self.clone().undo_noting(&mut |_| Ok(()))
    }

    fn undo_noting(&mut self, note: Note<'_>) -> Result<(), HostError> {
        let log = &self.undo_log;
        let how = match (&log.after, log.confirm_by_ns) {
            (None, _) => "the process that applied it ended; taken back",
            (Some(_), _) if log.undoing.is_some() => "undone, after it was interrupted",
            (Some(_), Some(_)) => "nobody confirmed it; taken back",
            (Some(_), None) => "what it was applied for has ended; taken back",
        };
        // What nobody confirmed goes whole; an undo that was interrupted goes on as it began, and
        // names what it leaves to someone else.
        let is_whole = log.undoing.is_none();
        let store = Store::open()?;
        let Undone { left, .. } = self.roll_back(&store, note, is_whole, how)?;
        if left.is_empty() {
            return Ok(());
        }
        let failures = left.iter().map(ToString::to_string).collect();
        Err(HostError::NotUndone { path: store.log_path(), failures })
    }

    fn take_note(&mut self, note: Json) -> Result<(), serde_json::Error> {
        self.undo_log.take(serde_json::from_value(note)?);
        Ok(())
    }

    fn due(&self, is_owner_alive: bool) -> Due {
        let log = &self.undo_log;
        match (&log.after, log.confirm_by_ns) {
            // What an undo could not restore stays until the user asks again.
            _ if !log.left.is_empty() => Due::Never,
            (Some(_), _) if log.undoing.is_some() => {
                Due::Now("was being undone when that was interrupted")
            }
            (Some(_), Some(by)) => Due::at(by),
            (Some(_), None) if !self.held => Due::Never,
            _ => Due::with_owner(is_owner_alive),
        }
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "restore the settings that `{}` changed", self.name)
    }
}

impl Transaction {
    fn roll_back(
        &self,
        store: &Store,
        note: Note<'_>,
        force: bool,
        how: &str,
    ) -> Result<Undone, HostError> {
        let undone = transaction::undo(&mut RealHost, &mut Notes(note), &self.undo_log, force)?;
        store.end(&self.name, how, &undone.left);
        Ok(undone)
    }
}

/// A transaction that was found.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The undo log.
    pub path: PathBuf,
    /// What is applied.
    pub transaction: Transaction,
    head: Head,
    /// Its number in the log.
    id: u64,
}

impl Saved {
    /// Reads a log; `None` when nothing is in it.
    fn read(path: PathBuf) -> Result<Option<Saved>, HostError> {
        let Content { head, open } = read(&path, KINDS)?;
        let transaction = open.into_iter().find_map(|(id, undo)| {
            let undo: Box<dyn Any> = undo;
            Some((id, *undo.downcast::<Transaction>().ok()?))
        });
        let found = head.zip(transaction);
        Ok(found.map(|(head, (id, transaction))| Saved { path, transaction, head, id }))
    }

    /// Whether what it is about is gone: the host was started again, or the network namespace is
    /// another one of the same number.
    fn is_gone(&self) -> Result<bool, HostError> {
        self.head.is_gone()
    }

    /// Whether it is taken back unless it is confirmed.
    fn waits(&self) -> Result<bool, HostError> {
        let log = &self.transaction.undo_log;
        Ok(log.confirm_by_ns.is_some() && log.undoing.is_none() && !self.is_gone()?)
    }
}

const KINDS: &[Kind] = &[KIND];
/// Of undo logs.
pub(crate) const KIND: Kind = Kind::of::<Transaction>(&["transaction"]);

/// What is applied in the network namespace of a store.
fn load(store: &Store) -> Result<Option<Saved>, HostError> {
    let own = store.log_path();
    if own.exists() {
        return Saved::read(own);
    }
    let boot = boot_id()?;
    // A damaged log of another namespace says nothing about this one.
    let mut others = store.other_logs()?.into_iter().filter_map(|path| Saved::read(path).ok()?);
    Ok(others.find(|saved| saved.head.boot != boot))
}

/// What undoing came to.
#[derive(Clone, Debug)]
pub enum Undoing {
    /// Nothing was applied.
    Nothing,
    /// The host was restored, but for what is named.
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
    let Some(saved) = load(&store)?.map(Box::new) else { return Ok(Undoing::Nothing) };
    let transaction = &saved.transaction;
    let log = LogFile::open(&saved.path)?;
    if saved.is_gone()? {
        let UndoLog { before, desired, .. } = &transaction.undo_log;
        let changed = before.only(|setting| desired.has(setting));
        let now = transaction::observe(&mut RealHost, changed.keys())?;
        let differences = changed.differences(&now);
        log.remove()?;
        let how = "the host was started again, or this network is another";
        store.end(&transaction.name, how, &[]);
        return Ok(Undoing::Rebooted { saved, differences });
    }
    let mut note = |note: &Json| log.append(&Line::Note { id: saved.id, note: note.clone() });
    let undone = transaction.roll_back(&store, &mut note, force, "undone")?;
    if undone.left.is_empty() {
        log.remove()?;
    }
    Ok(Undoing::Done { saved, undone })
}

/// Lets what is applied stay.
///
/// **Errors**: nothing is applied that waits for it; another process changes the host.
pub fn confirm() -> Result<Saved, HostError> {
    let store = Store::open()?;
    let _lock = store.lock()?;
    recover_locked(&store)?;
    let Some(saved) = load(&store)? else { return Err(HostError::NothingToConfirm) };
    if !saved.waits()? {
        return Err(HostError::NothingToConfirm);
    }
    let log = LogFile::open(&saved.path)?;
    Notes(&mut |note| log.append(&Line::Note { id: saved.id, note: note.clone() }))
        .append(&Entry::Confirmed)?;
    Ok(saved)
}

/// What is applied on this host.
#[derive(Clone, Debug)]
pub struct Status {
    /// The transaction; `None` when nothing is applied.
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
    let saved = load(&store)?;
    let (mut rebooted, mut waits, mut settings) = (false, false, Vec::new());
    if let Some(saved) = &saved {
        (rebooted, waits) = (saved.is_gone()?, saved.waits()?);
        settings = transaction::status(&mut RealHost, &saved.transaction.undo_log)?;
    }
    Ok(Status { saved, rebooted, waits, settings, ending: store.ending() })
}

/// The undo logs of this network namespace that may have something to undo.
pub(crate) fn logs_here() -> Vec<PathBuf> {
    let mut logs = Store::logs();
    // What cannot be read is told by whoever carries it out.
    logs.retain(|path| {
        !Saved::read(path.clone())
            .is_ok_and(|it| it.is_some_and(|it| it.is_gone().unwrap_or(false)))
    });
    logs
}

/// Undoes what a process began that is dead, and what nobody confirmed.
fn recover_locked(store: &Store) -> Result<(), HostError> {
    match load(store)? {
        Some(saved) if saved.is_gone()? => Ok(()),
        _ => carry_out_locked(&store.log_path(), KINDS).map(drop),
    }
}
