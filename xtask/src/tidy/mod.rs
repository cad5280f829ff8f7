// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of the repository that no compiler checks. A rule is a function from the text of the
//! repository to what is wrong with it.
//!
//! Not here: rules that clippy or cargo-deny know (`Cargo.toml`, `clippy.toml`, `deny.toml`).

mod book;
mod crates;
mod programs;
mod promises;
mod text;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// The files of the repository by their path from its top. A file that is no text is there, empty.
#[derive(Debug, Default)]
pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Reads everything but what is built, run or downloaded.
    ///
    /// **Errors**: a directory or file cannot be read.
    pub fn load(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree::default();
        tree.add_directory(root, "")?;
        Ok(tree)
    }

    fn add_directory(&mut self, directory: &Path, prefix: &str) -> Result<(), String> {
        let failed = |error| format!("{}: {error}", directory.display());
        for entry in fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && !is_foreign(&entry.path(), &path) {
                self.add_directory(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() && path != ".git" {
                let bytes = fs::read(entry.path()).map_err(|e| format!("{path}: {e}"))?;
                self.0.insert(path, String::from_utf8(bytes).unwrap_or_default());
            }
        }
        Ok(())
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Whether it is a file, or a directory with a file in it.
    fn has(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        self.0.contains_key(path)
            || self.0.range(inside.clone()..).next().is_some_and(|(p, _)| p.starts_with(&inside))
    }

    /// The files whose names end so, with their text.
    fn ending<'a>(&'a self, ends: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        all.filter(|(path, _)| ends.iter().any(|end| path.ends_with(end)))
    }
}

/// Directories that are no part of the sources. Cargo marks what it builds into.
fn is_foreign(directory: &Path, path: &str) -> bool {
    matches!(path, ".git" | "runs" | "docs/book") || directory.join("CACHEDIR.TAG").exists()
}

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    path: String,
    /// From 1; 0 when it is about the whole file.
    line: usize,
    what: String,
}

impl Breach {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Breach {
        Breach { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Every rule over the whole tree.
fn check(tree: &Tree) -> Vec<Breach> {
    let rules: [fn(&Tree) -> Vec<Breach>; 18] = [
        text::banned_words,
        text::licence_lines,
        text::line_width,
        text::file_length,
        text::empty_names,
        words::dialect,
        crates::arrows,
        crates::manifests,
        crates::purity,
        crates::pure_modules,
        crates::unsafe_code,
        crates::dependencies_explained,
        programs::test_files,
        programs::commands,
        book::every_page_is_listed,
        book::links,
        book::links_stay_in_the_book,
        promises::have_tests,
    ];
    rules.iter().flat_map(|rule| rule(tree)).collect()
}

/// Prints every breach.
///
/// **Errors**: there is one.
pub fn run(root: &Path) -> Result<(), String> {
    let breaches = check(&Tree::load(root)?);
    if breaches.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = breaches.iter().map(Breach::to_string).collect();
    Err(format!("{}\ntidy: {} breaches of the repository's rules", lines.join("\n"), lines.len()))
}

#[cfg(test)]
impl Tree {
    /// A repository made by hand.
    fn of(files: &[(&str, &str)]) -> Tree {
        Tree(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }
}

#[cfg(test)]
fn places(breaches: &[Breach]) -> Vec<(&str, usize)> {
    breaches.iter().map(|breach| (breach.path.as_str(), breach.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_repository_keeps_its_rules() {
        if let Err(breaches) = run(&crate::root()) {
            panic!("{breaches}");
        }
    }

    #[test]
    fn t0_the_repository_is_read_without_what_is_built() {
        let tree = Tree::load(&crate::root()).unwrap();
        assert!(tree.has("xtask/src/tidy/mod.rs") && tree.has("xtask/src") && tree.has(".ci/run"));
        assert!(!tree.has(".git") && !tree.has("target") && !tree.has("xtask/sr"));
    }
}
