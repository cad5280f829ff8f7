// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carrying out an undo log: what is due of it, the latest change first.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::file::{Content, Line, LogFile, read};
use super::inverse::{Due, Inverse, Kind};
use super::place::{boot_id, in_namespace_of, owner_of, try_lock};
use crate::HostError;

/// What was left behind, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    /// The process that had made it.
    pub owner: u32,
    /// What it was doing.
    pub title: String,
    /// Why it was undone.
    pub why: &'static str,
    /// What was undone, the latest change first.
    pub undone: Vec<String>,
    /// What could not be undone, with the reason; the log stays.
    pub failures: Vec<String>,
}

impl Leftovers {
    /// Of a log that cannot be read.
    pub(crate) fn unread(owner: u32, error: &HostError) -> Leftovers {
        let (title, why) = ("unknown work".to_owned(), "cannot be taken back");
        Leftovers { owner, title, why, undone: Vec::new(), failures: vec![error.to_string()] }
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Leftovers { owner, title, why, undone, failures } = self;
        write!(f, "process {owner} ({title}) {why}; ")?;
        match undone.as_slice() {
            [] => write!(f, "nothing was left to undo")?,
            steps => write!(f, "done now: {}", steps.join(", "))?,
        }
        if failures.is_empty() { Ok(()) } else { write!(f, "; NOT done: {}", failures.join(", ")) }
    }
}

impl Content {
    /// When it is carried out, as a whole: when the first change of it is due. One without a change
    /// goes with its owner.
    pub(super) fn due(&self) -> Due {
        let is_now = |boot: &str| boot_id().is_ok_and(|now| now == boot);
        let is_alive =
            self.head.as_ref().is_some_and(|it| is_now(&it.boot) && it.owner().is_alive());
        let changes = self.open.values().map(|undo| undo.due(is_alive));
        changes.min().unwrap_or(Due::with_owner(is_alive))
    }
}

/// Carries a log out if it is due, in the network namespace of its owner. `None` when it is not, or
/// someone else is at it or was.
///
/// **Errors**: as [`carry_out_locked`].
pub(crate) fn carry_out(path: &Path, kinds: &[Kind]) -> Result<Option<Leftovers>, HostError> {
    let Some(_lock) = try_lock(path)? else { return Ok(None) };
    if !path.exists() {
        return Ok(None);
    }
    let content = read(path, kinds)?;
    match content.head.clone() {
        Some(head) => in_namespace_of(&head, || roll_back(path, content))?,
        None => roll_back(path, content),
    }
}

/// The same, by whoever holds the lock and is in that namespace.
///
/// **Errors**: the log cannot be read; nothing of it was undone.
pub(crate) fn carry_out_locked(
    path: &Path,
    kinds: &[Kind],
) -> Result<Option<Leftovers>, HostError> {
    if path.exists() { roll_back(path, read(path, kinds)?) } else { Ok(None) }
}

pub(super) fn roll_back(path: &Path, content: Content) -> Result<Option<Leftovers>, HostError> {
    let Due::Now(why) = content.due() else { return Ok(None) };
    let Content { head, mut open } = content;
    let (mut owner, mut title) = (owner_of(path), String::new());
    if let Some(head) = head {
        if head.boot != boot_id()? {
            open.retain(|_, undo| undo.outlives_a_reboot());
        }
        (owner, title) = (Some(head.owner()), head.title);
    }
    let log = LogFile::open(path)?;
    let (undone, failures) = undo_all(&log, &mut open);
    if failures.is_empty() {
        log.remove()?;
    }
    let owner = owner.map_or(0, |owner| owner.pid);
    Ok(Some(Leftovers { owner, title, why, undone, failures }))
}

/// Undoes all, the latest first; what was undone, and what failed, with the reason.
pub(super) fn undo_all(
    log: &LogFile,
    open: &mut BTreeMap<u64, Box<dyn Inverse>>,
) -> (Vec<String>, Vec<String>) {
    let (mut undone, mut failures) = (Vec::new(), Vec::new());
    for (id, undo) in open.iter_mut().rev() {
        match undo_one(log, *id, undo) {
            Ok(()) => undone.push(undo.to_string()),
            Err(HostError::NotUndone { failures: several, .. }) => failures.extend(several),
            Err(error) => failures.push(format!("{undo}: {error}")),
        }
    }
    (undone, failures)
}

pub(super) fn undo_one(
    log: &LogFile,
    id: u64,
    undo: &mut Box<dyn Inverse>,
) -> Result<(), HostError> {
    undo.undo_noting(&mut |note| log.append(&Line::Note { id, note: note.clone() }))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::undo;

    const KINDS: &[Kind] = &[undo::KIND];

    fn write(name: &str, text: &str) -> PathBuf {
        let path = env::temp_dir().join(format!("timewire-{}-{name}.jsonl", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }

    const HEAD: &str = concat!(
        r#"{"journal":{"schema":"timewire.journal/1","title":"a test","boot":"b","#,
        r#""netns":7,"pid":12,"start_ticks":3}}"#,
        "\n"
    );

    fn entry(id: u32, kind: &str) -> String {
        let fields = format!(r#""kind":"{kind}","path":"/no-such/{id}","value":"""#);
        format!(r#"{{"open":{{"id":{id},"undo":{{{fields}}}}}}}"#)
    }

    #[test]
    fn t0_what_is_closed_or_cut_short_is_not_undone() {
        let text = format!("{HEAD}{}\n{}\n", entry(1, "remove_file"), entry(2, "remove_file"));
        let text = format!("{text}{{\"closed\":{{\"id\":1}}}}\n{}", entry(3, "remove_file"));
        let path = write("read", &text);
        let Content { head, open } = read(&path, KINDS).unwrap();
        let head = head.unwrap();
        assert_eq!((head.title.as_str(), head.boot.as_str(), head.netns), ("a test", "b", 7));
        let rest: Vec<_> = open.values().map(|undo| undo.to_string()).collect();
        assert_eq!(rest, ["remove /no-such/2"]);
        // Whoever goes on with it writes a line of its own.
        LogFile::open(&path).unwrap().append(&Line::Closed { id: 2 }).unwrap();
        assert!(read(&path, KINDS).unwrap().open.is_empty());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn t0_a_damaged_log_is_refused_with_its_line_and_nothing_of_it_undone() {
        let unknown = entry(1, "sing");
        let note = format!("{}\n{{\"note\":{{\"id\":1,\"note\":0}}}}", entry(1, "remove_file"));
        let cases = [
            ("garbage", format!("{HEAD}garbage\n"), "line 2: expected value"),
            ("version", HEAD.replace("/1", "/9"), "line 1: it is of version `timewire.journal/9`"),
            ("headless", format!("{}\n", entry(1, "remove_file")), "line 1: it has no head"),
            ("unknown", format!("{HEAD}{unknown}\n"), "line 2: unknown kind of change `sing`"),
            ("note", format!("{HEAD}{note}\n"), "line 3: a change of this kind has no notes"),
        ];
        for (name, text, message) in cases {
            let path = write(name, &text);
            let error = carry_out(&path, KINDS).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert!(path.exists());
            let _ = fs::remove_file(path.with_extension("lock"));
            fs::remove_file(path).unwrap();
        }
        let empty = write("empty", "");
        assert!(carry_out_locked(&empty, KINDS).unwrap().unwrap().undone.is_empty());
        assert!(!empty.exists());
    }

    #[test]
    fn t0_after_a_reboot_only_files_are_left_to_undo() {
        let lines = [entry(1, "write_setting"), entry(2, "remove_file")].join("\n");
        let path = write("boot", &format!("{HEAD}{lines}\n"));
        let done = carry_out_locked(&path, KINDS).unwrap().unwrap();
        assert_eq!((done.undone, done.failures), (vec!["remove /no-such/2".to_owned()], vec![]));
        assert!(!path.exists());
    }

    #[test]
    fn t0_a_change_is_due_by_its_owner_or_its_time() {
        assert!(matches!(Due::with_owner(false), Due::Now(_)));
        assert!(matches!(Due::at(1), Due::Now(_)));
        assert!(matches!(Due::at(u64::MAX), Due::Later(_)));
        // The first counts.
        assert!(Due::at(1) < Due::with_owner(true) && Due::with_owner(true) < Due::Never);
    }

    #[test]
    fn t0_leftovers_read_as_a_sentence() {
        let some = Leftovers {
            owner: 12,
            title: "a test".into(),
            why: "ended without cleaning up",
            undone: vec!["remove /2".into()],
            failures: vec!["remove /1: why".into()],
        };
        assert_eq!(
            some.to_string(),
            "process 12 (a test) ended without cleaning up; done now: remove /2; \
             NOT done: remove /1: why"
        );
    }
}
