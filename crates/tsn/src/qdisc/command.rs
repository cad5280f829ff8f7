// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A whole command, `tc qdisc add dev eth0 root handle 1: taprio ...`: what is done, where, with
//! which discipline.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use timewire_base::IfName;

use super::words::{Words, begins, integer, value};
use super::{ClassId, Handle, Qdisc, QdiscError, QdiscKind, QdiscPosition, SizeTable};

/// How a discipline is put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstallVerb {
    /// Where none was put before.
    Add,
    /// The same discipline, other settings.
    Change,
    /// Whatever is there.
    Replace,
    /// Whatever is there, when something is.
    Link,
}

impl InstallVerb {
    /// The word of `tc`.
    pub fn as_str(self) -> &'static str {
        match self {
            InstallVerb::Add => "add",
            InstallVerb::Change => "change",
            InstallVerb::Replace => "replace",
            InstallVerb::Link => "link",
        }
    }
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QdiscAction {
    /// Puts a discipline in its place.
    Install {
        /// How.
        verb: InstallVerb,
        /// Which.
        qdisc: Qdisc,
    },
    /// Takes the discipline away.
    Delete {
        /// Only when it is of this kind.
        kind: Option<QdiscKind>,
    },
}

/// A command of `tc qdisc` on one of the four disciplines.
///
/// **Shape**: `mqprio` and `taprio` at the root; `change` only of what Linux can change; a place
/// for each discipline that is put there.
///
/// Reads with or without the name of the program and with the words that `tc` lets be cut short;
/// prints `tc qdisc ...` with all of them written out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QdiscCommand {
    action: QdiscAction,
    device: IfName,
    place: Option<QdiscPosition>,
    handle: Option<Handle>,
    size_table: Option<SizeTable>,
}

impl QdiscCommand {
    /// Checks the parts against each other.
    ///
    /// **Errors**: the first rule that is broken: see the type's shape.
    ///
    /// **Source**: `linux v6.12 net/sched/sch_taprio.c:taprio_init`,
    /// `net/sched/sch_mqprio.c:mqprio_init` (root); `net/sched/sch_api.c:qdisc_change` and the
    /// `Qdisc_ops` of `etf` and `mqprio` (change).
    pub fn new(
        action: QdiscAction,
        device: IfName,
        place: Option<QdiscPosition>,
        handle: Option<Handle>,
        size_table: Option<SizeTable>,
    ) -> Result<QdiscCommand, QdiscError> {
        if let QdiscAction::Install { verb, qdisc } = &action {
            let kind = qdisc.kind();
            if let (QdiscKind::Mqprio | QdiscKind::Taprio, Some(place @ QdiscPosition::Parent(_))) =
                (kind, place)
            {
                return Err(QdiscError::NotRoot { kind: kind.as_str(), place });
            }
            let fixed = matches!(kind, QdiscKind::Mqprio | QdiscKind::Etf);
            if *verb == InstallVerb::Change && fixed {
                return Err(QdiscError::NoChange { kind: kind.as_str() });
            }
            if place.is_none() {
                return Err(QdiscError::NoPlace { verb: verb.as_str() });
            }
        }
        Ok(QdiscCommand { action, device, place, handle, size_table })
    }

    /// What is done.
    pub fn action(&self) -> &QdiscAction {
        &self.action
    }

    /// The discipline that is put in its place; `None` when one is deleted.
    pub fn qdisc(&self) -> Option<&Qdisc> {
        match &self.action {
            QdiscAction::Install { qdisc, .. } => Some(qdisc),
            QdiscAction::Delete { .. } => None,
        }
    }

    /// On which interface.
    pub fn device(&self) -> &IfName {
        &self.device
    }

    /// Where; `None` when a handle says it.
    pub fn place(&self) -> Option<QdiscPosition> {
        self.place
    }

    /// Its name; `None` lets the kernel choose.
    pub fn handle(&self) -> Option<Handle> {
        self.handle
    }

    /// What is added to the length of each frame.
    pub fn size_table(&self) -> Option<SizeTable> {
        self.size_table
    }

    /// Reads a line that is carried out without `tc`, by a message to the kernel: a `taprio` may
    /// have more entries than `tc` has room for.
    ///
    /// **Errors**: as of reading a line of `tc`, but for the number of entries.
    pub fn of_message(line: &str) -> Result<QdiscCommand, QdiscError> {
        let mut words = Words::new(line);
        skip_program(&mut words);
        let object = words.need("qdisc")?;
        if !begins(object, "qdisc") {
            return Err(unknown(object, "tc", "qdisc is the one object that is read here"));
        }
        let verb = words.need(VERBS)?;
        let install = [
            (InstallVerb::Add, "add"),
            (InstallVerb::Change, "change"),
            (InstallVerb::Replace, "replace"),
            (InstallVerb::Link, "link"),
        ];
        match install.into_iter().find(|(_, full)| begins(verb, full)) {
            Some((verb, _)) => read(&mut words, Some(verb)),
            None if begins(verb, "delete") => read(&mut words, None),
            None => Err(unknown(verb, "tc qdisc", VERBS)),
        }
    }

    /// Whether `tc` has room for all of it.
    ///
    /// **Errors**: more `taprio` entries than that.
    pub fn check_tc_message(&self) -> Result<(), QdiscError> {
        match self.qdisc() {
            Some(Qdisc::Taprio(taprio)) => taprio.check_tc_message(),
            _ => Ok(()),
        }
    }

    /// The words, without the program: the arguments to run `tc` with.
    pub fn arguments(&self) -> Vec<String> {
        self.to_string().split(' ').skip(1).map(str::to_owned).collect()
    }
}

/// `tc -d qdisc add dev ...`: program and options may be missing. No more `taprio` entries than
/// `tc` has room for.
impl FromStr for QdiscCommand {
    type Err = QdiscError;
    fn from_str(line: &str) -> Result<Self, QdiscError> {
        let command = QdiscCommand::of_message(line)?;
        command.check_tc_message()?;
        Ok(command)
    }
}

const VERBS: &str = "add, change, replace, link or delete";

fn unknown(word: &str, to: &'static str, takes: &'static str) -> QdiscError {
    QdiscError::UnknownWord { word: word.to_owned(), to, takes }
}

fn skip_program(words: &mut Words<'_>) {
    if words.peek().is_some_and(|word| word == "tc" || word.ends_with("/tc")) {
        words.take();
    }
    while words.peek().is_some_and(|word| word.starts_with('-')) {
        words.take();
    }
}

/// The words after the verb; none is the verb `delete`.
fn read(words: &mut Words<'_>, verb: Option<InstallVerb>) -> Result<QdiscCommand, QdiscError> {
    let (mut device, mut place, mut handle, mut size_table) = (None, None, None, None);
    let mut kind = None;
    while let Some(word) = words.take() {
        match word {
            "dev" => {
                words.once("dev")?;
                device = Some(IfName::new(words.need("an interface")?)?);
            }
            "handle" => {
                words.once("handle")?;
                handle = Some(parse_handle(words.need("a handle, such as 1:")?)?);
            }
            "root" => {
                words.once("parent")?;
                place = Some(QdiscPosition::Root);
            }
            "parent" => {
                words.once("parent")?;
                place = Some(parse_place(words.need("a class, such as 1:2")?)?);
            }
            _ if begins(word, "stab") => {
                words.once("stab")?;
                size_table = Some(parse_size_table(words)?);
            }
            _ => {
                kind = Some(word.parse::<QdiscKind>()?);
                break;
            }
        }
    }
    words.fresh();
    let device = device.ok_or(QdiscError::Missing {
        after: words.peek().unwrap_or("qdisc").to_owned(),
        wanted: "`dev` and an interface",
    })?;
    let action = match (verb, kind) {
        (Some(verb), Some(kind)) => {
            QdiscAction::Install { verb, qdisc: Qdisc::parse_kind(kind, words)? }
        }
        (Some(verb), None) => {
            let after = verb.as_str().to_owned();
            let wanted = "a discipline: mqprio, taprio, etf or cbs";
            return Err(QdiscError::Missing { after, wanted });
        }
        (None, kind) => match words.peek() {
            None => QdiscAction::Delete { kind },
            Some(word) => return Err(unknown(word, "tc qdisc delete", "no settings")),
        },
    };
    QdiscCommand::new(action, device, place, handle, size_table)
}

/// As `get_qdisc_handle` of iproute2, without what it lets follow the colon.
pub(super) fn parse_handle(word: &str) -> Result<Handle, QdiscError> {
    let digits = word.strip_suffix(':').unwrap_or(word);
    let major = integer(digits, 16).and_then(|major| u16::try_from(major).ok());
    major.map(Handle::new).ok_or_else(|| value("handle", word, "hexadecimal, 0: to ffff:"))
}

pub(super) fn parse_place(word: &str) -> Result<QdiscPosition, QdiscError> {
    if word == "root" {
        return Ok(QdiscPosition::Root);
    }
    let part = |text: &str| match text {
        "" => Some(0),
        _ => integer(text, 16).and_then(|number| u16::try_from(number).ok()),
    };
    let class = word
        .split_once(':')
        .and_then(|(major, minor)| Some(ClassId { major: part(major)?, minor: part(minor)? }));
    let class = class.filter(|class| class.major != 0 || class.minor != 0);
    class
        .map(QdiscPosition::Parent)
        .ok_or_else(|| value("parent", word, "a class in hexadecimal, such as 8001:8, or root"))
}

/// The one size table that the four disciplines need: bytes on top, no table.
fn parse_size_table(words: &mut Words<'_>) -> Result<SizeTable, QdiscError> {
    let word = words.need("overhead BYTES")?;
    if !begins(word, "overhead") {
        return Err(unknown(word, "stab", "overhead BYTES"));
    }
    let bytes = words.decimal("overhead", 1, i64::from(u16::MAX))?;
    Ok(SizeTable::new(u16::try_from(bytes).expect("invariant: read as 16 bits")))
}

impl fmt::Display for QdiscCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match &self.action {
            QdiscAction::Install { verb, .. } => verb.as_str(),
            QdiscAction::Delete { .. } => "delete",
        };
        write!(f, "tc qdisc {verb} dev {}", self.device)?;
        if let Some(place) = self.place {
            write!(f, " {place}")?;
        }
        if let Some(handle) = self.handle {
            write!(f, " handle {handle}")?;
        }
        if let Some(table) = self.size_table {
            write!(f, " {table}")?;
        }
        match &self.action {
            QdiscAction::Install { qdisc, .. } => write!(f, " {qdisc}"),
            QdiscAction::Delete { kind: Some(kind) } => write!(f, " {kind}"),
            QdiscAction::Delete { kind: None } => Ok(()),
        }
    }
}
