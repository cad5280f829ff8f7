// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's definitions of tests of `tc`, as `tools/testing/selftests/tc-testing` keeps them,
//! and what the model makes of their commands.

use std::fs;
use std::path::Path;

use serde_json::Value;
use timewire_tsn::qdisc::{QdiscCommand, QdiscError, QdiscKind, Refuser};

/// A definition, with the names of interfaces and programs filled in.
pub struct Definition {
    /// Its number in the kernel's files.
    pub id: String,
    /// Its title.
    pub name: String,
    /// Of which file.
    pub kind: QdiscKind,
    /// Commands before.
    pub setup: Vec<Step>,
    /// The command.
    pub command: String,
    /// Its exit code.
    pub exit: i32,
    /// The command that shows what came of it.
    pub verify: String,
    /// A regular expression of what that prints,
    pub pattern: String,
    /// and how often it is there.
    pub count: usize,
    /// Commands after.
    pub teardown: Vec<Step>,
    /// A command that must succeed for the definition to make sense.
    pub depends_on: Option<String>,
    /// What is in it that is not understood.
    pub unknown: Vec<String>,
}

/// A command of setup or teardown, and the exit codes that are right.
pub struct Step {
    /// The command.
    pub line: String,
    /// Exit codes.
    pub codes: Vec<i32>,
}

/// What the model makes of a command.
pub enum Reading {
    /// It is not about a discipline: it is run as it stands.
    Other,
    /// It is printed again, and reads back as the same.
    Rendered(QdiscCommand),
    /// It is refused.
    Refused(QdiscError),
}

const KNOWN: [&str; 14] = [
    "id",
    "name",
    "category",
    "plugins",
    "setup",
    "cmdUnderTest",
    "expExitCode",
    "verifyCmd",
    "matchPattern",
    "matchCount",
    "teardown",
    "dependsOn",
    "skip",
    "$comment",
];

/// As `tdc_config.py` names them.
const NAMES: [(&str, &str); 6] = [
    ("$DUMMY", "dummy1"),
    ("$DEV0", "v0p0"),
    ("$DEV1", "v0p1"),
    ("$ETH", "eth0"),
    ("$TC", "tc"),
    ("$IP", "ip"),
];

/// All definitions of the four disciplines below this `tc-testing`, in the order of the files.
///
/// **Panics** when a file is not what it has always been.
pub fn read_all(tc_testing: &Path) -> Vec<Definition> {
    let kinds = [QdiscKind::Taprio, QdiscKind::Etf, QdiscKind::Cbs, QdiscKind::Mqprio];
    kinds.into_iter().flat_map(|kind| read(tc_testing, kind)).collect()
}

fn read(tc_testing: &Path, kind: QdiscKind) -> Vec<Definition> {
    let path = tc_testing.join(format!("tc-tests/qdiscs/{kind}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let list: Vec<Value> =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    list.iter().map(|value| definition(kind, value)).collect()
}

fn definition(kind: QdiscKind, value: &Value) -> Definition {
    let text = |key: &str| value[key].as_str().map(fill).unwrap_or_default();
    let number = |key: &str| match &value[key] {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    };
    let mut unknown = Vec::new();
    let fields = value.as_object().expect("a definition is an object");
    unknown.extend(fields.keys().filter(|key| !KNOWN.contains(&key.as_str())).cloned());
    let steps = |key: &str| {
        value[key].as_array().map(|list| list.iter().map(step).collect()).unwrap_or_default()
    };
    let mut read = Definition {
        id: text("id"),
        name: text("name"),
        kind,
        setup: steps("setup"),
        command: text("cmdUnderTest"),
        exit: number("expExitCode").and_then(|n| i32::try_from(n).ok()).unwrap_or(-1),
        verify: text("verifyCmd"),
        pattern: text("matchPattern"),
        count: number("matchCount").and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX),
        teardown: steps("teardown"),
        depends_on: value["dependsOn"].as_str().map(fill),
        unknown,
    };
    if regex::Regex::new(&read.pattern).is_err() {
        read.unknown.push(format!("matchPattern {}", read.pattern));
    }
    for line in [&read.command, &read.verify] {
        read.unknown.extend(line.contains(" $").then(|| format!("a name in `{line}`")));
    }
    read
}

/// A command, or a command and the exit codes that are right.
fn step(value: &Value) -> Step {
    match value {
        Value::Array(parts) => Step {
            line: parts.first().and_then(Value::as_str).map(fill).unwrap_or_default(),
            codes: parts[1..]
                .iter()
                .filter_map(|code| i32::try_from(code.as_i64()?).ok())
                .collect(),
        },
        one => Step { line: one.as_str().map(fill).unwrap_or_default(), codes: vec![0] },
    }
}

fn fill(text: &str) -> String {
    NAMES.iter().fold(text.to_owned(), |text, (name, is)| text.replace(name, is))
}

/// What `|| /bin/true` at the end of a command says: whatever it does is right.
const TOLERATED: &str = " || /bin/true";

/// Reads a command of a definition.
///
/// **Panics** when what is printed does not read back as the same command.
pub fn reading(line: &str) -> Reading {
    let line = line.strip_suffix(TOLERATED).unwrap_or(line);
    let mut words = line.split_whitespace();
    let about = (words.next(), words.find(|word| !word.starts_with('-')), words.next());
    if !matches!(about, (Some("tc"), Some("qdisc"), Some(verb)) if verb != "show") {
        return Reading::Other;
    }
    match line.parse::<QdiscCommand>() {
        Ok(command) => {
            let printed = command.to_string();
            assert_eq!(printed.parse::<QdiscCommand>().as_ref(), Ok(&command), "{line}");
            Reading::Rendered(command)
        }
        Err(error) => Reading::Refused(error),
    }
}

/// What is run instead of a command of setup or teardown; none when the model refuses it and
/// nobody minds.
pub fn instead(line: &str) -> Option<String> {
    match reading(line) {
        Reading::Other => Some(line.to_owned()),
        Reading::Rendered(command) => Some(match line.strip_suffix(TOLERATED) {
            Some(_) => format!("{command}{TOLERATED}"),
            None => command.to_string(),
        }),
        Reading::Refused(_) => (!line.ends_with(TOLERATED)).then(|| line.to_owned()),
    }
}

impl Definition {
    /// Why the model refuses a command that is tried before, and whose end does not matter.
    pub fn refused_in_setup(&self) -> Option<QdiscError> {
        let tried = self.setup.iter().filter(|step| step.line.ends_with(TOLERATED));
        tried.into_iter().find_map(|step| match reading(&step.line) {
            Reading::Refused(error) => Some(error),
            Reading::Other | Reading::Rendered(_) => None,
        })
    }

    /// What the model says of the command, and whether that agrees with what is expected.
    pub fn verdict(&self) -> Result<String, String> {
        let refused = self.exit != 0;
        match (reading(&self.command), refused) {
            (Reading::Other, _) => Ok(match self.refused_in_setup() {
                Some(error) => format!("refused in its setup: {error}"),
                None => "not about a discipline".to_owned(),
            }),
            (Reading::Rendered(_), false) => Ok("read and rendered".to_owned()),
            (Reading::Rendered(_), true) => Ok("passed on, the kernel refuses".to_owned()),
            (Reading::Refused(error), true) => Ok(format!("refused: {error}")),
            (Reading::Refused(error), false) if error.refuser() == Refuser::Timewire => {
                Err(format!("stricter than tc: {error}"))
            }
            (Reading::Refused(error), false) => Err(format!("refused: {error}")),
        }
    }
}
