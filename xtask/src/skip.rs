// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was skipped, and the list of what may be skipped where (`xtask/skips.txt`).

use std::fmt;
use std::path::Path;

/// One test or check that could not run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The test's name, or the check's.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIP: {}: {}", self.name, self.reason)
    }
}

/// The kind of machine the tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A runner of continuous integration (`CI=true`): an unlisted skip is a failure.
    Ci,
    /// Someone's own machine: an unlisted skip is shown.
    Own,
}

impl Runner {
    /// Reads the environment.
    pub fn here() -> Runner {
        if std::env::var("CI").is_ok_and(|value| value == "true") {
            Runner::Ci
        } else {
            Runner::Own
        }
    }
}

/// What may be skipped.
#[derive(Debug)]
pub struct SkipList(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    on_every_runner: bool,
    name: String,
    reason_start: String,
}

impl SkipList {
    /// Reads the list of the repository.
    ///
    /// **Errors**: no such file, or a line that is no entry.
    pub fn load(root: &Path) -> Result<SkipList, String> {
        let path = root.join("xtask/skips.txt");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        SkipList::parse(&text)
    }

    fn parse(text: &str) -> Result<SkipList, String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let entries = lines.filter(|line| !line.is_empty()).map(|line| {
            let mut words = line.splitn(3, ' ').map(str::trim);
            match (words.next(), words.next(), words.next()) {
                (Some(runner @ ("any" | "ci")), Some(name), Some(reason_start)) => Ok(Entry {
                    on_every_runner: runner == "any",
                    name: name.to_owned(),
                    reason_start: reason_start.to_owned(),
                }),
                _ => Err(format!("skips.txt: `{line}` is not `any|ci NAME START-OF-REASON`")),
            }
        });
        entries.collect::<Result<_, _>>().map(SkipList)
    }

    /// Whether this may be skipped on this runner.
    pub fn allows(&self, runner: Runner, skip: &Skip) -> bool {
        self.0.iter().any(|entry| {
            (entry.on_every_runner || runner == Runner::Ci)
                && (entry.name == "*" || entry.name == skip.name)
                && skip.reason.starts_with(&entry.reason_start)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(name: &str, reason: &str) -> Skip {
        Skip { name: name.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn t0_a_skip_needs_an_entry_of_its_name_reason_and_runner() {
        let text = "# comment\n\nany advisories cannot fetch # why\nci * no BPF\n";
        let list = SkipList::parse(text).unwrap();
        let fetch = skip("advisories", "cannot fetch the database");
        let bpf = skip("t3_x", "no BPF here");
        assert!(list.allows(Runner::Ci, &fetch) && list.allows(Runner::Own, &fetch));
        assert!(list.allows(Runner::Ci, &bpf) && !list.allows(Runner::Own, &bpf));
        assert!(!list.allows(Runner::Ci, &skip("t3_x", "cannot fetch the database")));
        assert!(!list.allows(Runner::Ci, &skip("advisories", "not tried")));
    }

    #[test]
    fn t0_a_line_that_is_no_entry_is_an_error() {
        assert!(SkipList::parse("sometimes x y").is_err());
        assert!(SkipList::parse("any x").is_err());
    }
}
