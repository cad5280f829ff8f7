// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network namespaces that are gone when their owner is, however that ended.

use std::io;
use std::sync::Arc;

use timewire_host::Undo;
use timewire_host::journal::{EntryId, Journal};
use timewire_host::tool::{self, Tool, netns_path};

use crate::{LabError, ns};

/// Named network namespaces, with an undo log. Dropping them takes them away.
#[derive(Debug)]
pub struct Namespaces {
    journal: Arc<Journal>,
    entries: Vec<EntryId>,
}

impl Namespaces {
    /// Makes namespaces of these names; `title` says in the undo log what for. Interfaces that are
    /// made in them have IPv6 where it is wanted.
    ///
    /// **Errors**: a name is taken, a missing tool, a refusal. Nothing is left then.
    pub fn make(title: &str, names: &[String], ipv6: bool) -> Result<Namespaces, LabError> {
        let journal = Arc::new(Journal::begin(title)?);
        let mut made = Namespaces { journal, entries: Vec::new() };
        for name in names {
            if netns_path(name).symlink_metadata().is_ok() {
                return Err(LabError::NameTaken { name: name.clone() });
            }
            made.entries.push(made.journal.record(Undo::DeleteNetns { name: name.clone() })?);
        }
        add(names, ipv6)?;
        Ok(made)
    }

    /// The undo log, for what else is to be undone when their owner ends.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Takes them away.
    ///
    /// **Errors**: something could not be undone; the undo log names it and stays.
    pub fn take_down(&mut self) -> Result<(), LabError> {
        let mut failure = Ok(());
        while let Some(entry) = self.entries.pop() {
            failure = failure.and(self.journal.undo(entry));
        }
        Ok(failure?)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("timewire: {error}");
        }
    }
}

/// Makes namespaces of these names, which stay.
///
/// **Errors**: a missing tool, a refusal.
pub(crate) fn add(names: &[String], ipv6: bool) -> Result<(), LabError> {
    let lines: Vec<_> = names.iter().map(|name| format!("netns add {name}")).collect();
    tool::batch(Tool::Ip, None, &lines)?;
    let failed = |name: &String, source: io::Error| LabError::Namespace {
        what: format!("set up {name}"),
        source,
    };
    names.iter().try_for_each(|name| {
        let set = ns::in_namespace(&netns_path(name), || ns::set_ipv6(ipv6))?;
        set.map_err(|source| failed(name, source))
    })
}
