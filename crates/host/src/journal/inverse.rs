// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What undoes a change, as a value that an undo log keeps.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value as Json;
use timewire_base::Mono;
use timewire_sys::clock;

use crate::HostError;

/// Undoes one change. Twice is the same as once: what is gone already counts as undone. Its
/// `Display` says what it does; as JSON its field `kind` tells it from all others.
///
/// Who records a deletion makes sure first that the thing does not exist yet: what someone else
/// made is not ours to delete.
pub trait Inverse: Any + fmt::Display + fmt::Debug + Send {
    /// Does it. Gone already is fine.
    ///
    /// **Errors**: the kernel or a tool refuses.
    fn undo(&self) -> Result<(), HostError>;

    /// As `undo`, for one that has to know how far it came if it is interrupted.
    ///
    /// **Errors**: as for `undo`; `NotUndone` names several things.
    fn undo_noting(&mut self, _note: Note<'_>) -> Result<(), HostError> {
        self.undo()
    }

    /// Takes a note in that was kept with it.
    ///
    /// **Errors**: it has no such notes.
    fn take_note(&mut self, _note: Json) -> Result<(), serde_json::Error> {
        Err(serde_json::Error::custom("a change of this kind has no notes"))
    }

    /// When it is undone, unless somebody asks for it.
    fn due(&self, is_owner_alive: bool) -> Due {
        Due::with_owner(is_owner_alive)
    }

    /// Whether it is about files. Processes, interfaces and settings of the kernel are made anew by
    /// a reboot; what has the same name then is not what was changed.
    fn outlives_a_reboot(&self) -> bool {
        false
    }
}

/// Keeps a note on disk.
pub type Note<'a> = &'a mut dyn FnMut(&Json) -> Result<(), HostError>;

/// When a change is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Now, and why.
    Now(&'static str),
    /// Not yet; look again after this time.
    Later(Duration),
    /// Not by itself.
    Never,
}

impl Due {
    /// When the process that made it ends.
    pub fn with_owner(is_alive: bool) -> Due {
        if is_alive { Due::Later(OWNER_ENDS) } else { Due::Now("ended without cleaning up") }
    }

    /// At a time, nanoseconds since boot.
    pub fn at(time: u64) -> Due {
        let now = u64::try_from(clock::now::<Mono>().as_ns());
        let is_past = now.is_ok_and(|now| now >= time);
        if is_past { Due::Now("was not confirmed in time") } else { Due::Later(POLL_INTERVAL) }
    }
}

/// How long the end of a killed process may take, each time we look.
const OWNER_ENDS: Duration = Duration::from_millis(1);
/// How often to look whether a time is over, or the lock of another process is free.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A type of inverses, for whoever reads a log: the values of its field `kind`, and how it is read.
#[derive(Debug)]
pub(crate) struct Kind(&'static [&'static str], Reader);

type Reader = fn(Json) -> Result<Box<dyn Inverse>, serde_json::Error>;

impl Kind {
    pub const fn of<I: Inverse + DeserializeOwned>(names: &'static [&'static str]) -> Kind {
        Kind(names, |json| Ok(Box::new(serde_json::from_value::<I>(json)?)))
    }

    /// The values of its field `kind`.
    #[cfg(test)]
    pub fn names(&self) -> &'static [&'static str] {
        self.0
    }
}

/// Reads an inverse of one of these kinds.
///
/// **Errors**: it is of none of them, or damaged.
pub(crate) fn read(json: Json, kinds: &[Kind]) -> Result<Box<dyn Inverse>, serde_json::Error> {
    let name = json["kind"].as_str().unwrap_or_default();
    match kinds.iter().find(|Kind(names, _)| names.contains(&name)) {
        Some(Kind(_, read)) => read(json),
        None => Err(serde_json::Error::custom(format!("unknown kind of change `{name}`"))),
    }
}
