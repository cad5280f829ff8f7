// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is in a set of files, and which sets are taken.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timewire_sys::beneath::Beneath;

use super::{hash_of, refused};
use crate::links::error::{LinkError, system};
use crate::links::identity::{hex, unhex};

/// A file of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Where it is below the set's directory, with `/` between the parts.
    pub path: String,
    /// **Units**: bytes.
    pub size: u64,
    /// Its permissions, of the lowest nine bits.
    pub mode: u32,
    /// The SHA-256 of its content, as 64 hexadecimal digits.
    pub sha256: String,
}

/// A set of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The files, in the order in which they are sent.
    pub files: Vec<FileEntry>,
}

/// The bounds of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    /// How many files.
    pub files: usize,
    /// How large each. **Units**: bytes.
    pub file_bytes: u64,
    /// How large all of them. **Units**: bytes.
    pub all_bytes: u64,
    /// How much of a file is in one message. **Units**: bytes.
    pub chunk_bytes: usize,
    /// How long the other end may take for its next message, such as to hash what it has, or to
    /// take the next chunk, such as to bring a file to its disk.
    pub timeout: Duration,
}

impl Default for FileLimits {
    fn default() -> FileLimits {
        FileLimits {
            files: 10_000,
            file_bytes: 4 << 30,
            all_bytes: 16 << 30,
            chunk_bytes: 1 << 18,
            timeout: Duration::from_secs(300),
        }
    }
}

impl Manifest {
    /// The set of all regular files below a directory, ordered by path. What is neither a file nor
    /// a directory is an error: a set that lacks something silently is worse.
    ///
    /// **Errors**: reading fails; a name that is no text; more than the limits.
    pub fn of_directory(root: &Path, limits: &FileLimits) -> Result<Manifest, LinkError> {
        let mut found = BTreeSet::new();
        walk(root, "", 0, limits, &mut found)?;
        let paths: Vec<&str> = found.iter().map(String::as_str).collect();
        Manifest::of_files(root, &paths, limits)
    }

    /// The set of these files below a directory.
    ///
    /// **Errors**: as [`Manifest::of_directory`].
    pub fn of_files(
        root: &Path,
        paths: &[&str],
        limits: &FileLimits,
    ) -> Result<Manifest, LinkError> {
        let reading = |path: &str| format!("read {}", root.join(path).display());
        let beneath = Beneath::open(root).map_err(system(reading("")))?;
        let mut files = Vec::new();
        for path in paths {
            let mut file = beneath.open_file(path).map_err(system(reading(path)))?;
            let metadata = file.metadata().map_err(system(reading(path)))?;
            let size = metadata.len();
            let sha256 = hash_of(&mut file, size).map_err(system(reading(path)))?;
            let mode = metadata.mode() & MODES;
            files.push(FileEntry { path: (*path).to_owned(), size, mode, sha256: hex(&sha256) });
        }
        let manifest = Manifest { files };
        manifest.check(limits)?;
        Ok(manifest)
    }

    /// Whether the set can be taken: paths that stay below the directory and can be shown, none
    /// twice, none that is a directory of another, plain permissions, and all within the limits.
    ///
    /// **Errors**: [`LinkError::Files`] naming the first that is wrong.
    pub fn check(&self, limits: &FileLimits) -> Result<(), LinkError> {
        if self.files.len() > limits.files {
            let (count, most) = (self.files.len(), limits.files);
            return Err(refused(format!("{count} files, where {most} are the most")));
        }
        let mut sum = 0_u64;
        let mut paths = BTreeSet::new();
        let mut sizes = BTreeMap::new();
        for file in &self.files {
            let shown: String = file.path.chars().take(80).flat_map(char::escape_debug).collect();
            let bad = |why: &str| Err(refused(format!("`{shown}` {why}")));
            if let Some(why) = wrong_path(&file.path) {
                return bad(why);
            }
            if !paths.insert(file.path.as_str()) {
                return bad("is there twice");
            }
            if file.mode & !MODES != 0 {
                return bad("has permissions other than read, write and execute");
            }
            let Some(digest) = unhex(&file.sha256).filter(|of| hex(of) == file.sha256) else {
                return bad("has no SHA-256 in small hexadecimal digits");
            };
            if file.size > limits.file_bytes {
                return bad(&format!("is larger than {} bytes", limits.file_bytes));
            }
            if *sizes.entry(digest).or_insert(file.size) != file.size {
                return bad("has the SHA-256 of a file of another size");
            }
            sum = sum.saturating_add(file.size);
        }
        if sum > limits.all_bytes {
            let most = limits.all_bytes;
            return Err(refused(format!("{sum} bytes, where {most} are the most")));
        }
        for path in &paths {
            let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
            if let Some(parent) = parents.into_iter().find(|parent| paths.contains(parent)) {
                return Err(refused(format!("`{parent}` is a file and a directory")));
            }
        }
        Ok(())
    }
}

/// Why a path is none that may be written.
fn wrong_path(path: &str) -> Option<&'static str> {
    if path.len() > PATH_BYTES {
        return Some("is too long a path");
    }
    if path.starts_with('/') {
        return Some("is an absolute path");
    }
    if path.chars().any(char::is_control) {
        return Some("has a control character in its path");
    }
    let mut parts = path.split('/');
    if parts.clone().any(|part| part.is_empty() || part == "." || part == "..") {
        return Some("is not a path of names alone");
    }
    if parts.clone().any(|part| part.len() > NAME_BYTES) {
        return Some("has too long a name in its path");
    }
    if parts.clone().count() > DEPTH {
        return Some("is too deep");
    }
    (parts.next() == Some(PARTS)).then_some("is where unfinished files are kept")
}

fn walk(
    root: &Path,
    below: &str,
    depth: usize,
    limits: &FileLimits,
    found: &mut BTreeSet<String>,
) -> Result<(), LinkError> {
    let directory = root.join(below);
    let reading = || format!("read {}", directory.display());
    for entry in fs::read_dir(&directory).map_err(system(reading()))? {
        let entry = entry.map_err(system(reading()))?;
        let kind = entry.file_type().map_err(system(reading()))?;
        let name = entry.file_name();
        let shown = || entry.path().display().to_string();
        let Some(name) = name.to_str() else {
            return Err(refused(format!("the name of {} is no text", shown())));
        };
        let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        if path == PARTS {
            continue;
        }
        if kind.is_dir() && depth < DEPTH {
            walk(root, &path, depth + 1, limits, found)?;
        } else if kind.is_file() {
            found.insert(path);
        } else {
            return Err(refused(format!("{} is neither a file nor a directory", shown())));
        }
        if found.len() > limits.files {
            return Err(refused(format!("more than {} files", limits.files)));
        }
    }
    Ok(())
}

/// Where a receiver keeps what is not whole yet.
pub(super) const PARTS: &str = ".timewire-parts";
/// Read, write and execute; never a file that runs as its owner.
const MODES: u32 = 0o777;
const PATH_BYTES: usize = 1_024;
const NAME_BYTES: usize = 255;
const DEPTH: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(path: &str) -> FileEntry {
        let sha256 = "ab".repeat(32);
        FileEntry { path: path.to_owned(), size: 3, mode: 0o644, sha256 }
    }

    fn why(files: &[FileEntry]) -> String {
        let limits = FileLimits { files: 4, file_bytes: 10, all_bytes: 11, ..Default::default() };
        let checked = Manifest { files: files.to_vec() }.check(&limits);
        checked.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn t0_sets_that_may_be_taken_are_told_from_others() {
        assert_eq!(why(&[]), "");
        assert_eq!(why(&[entry("a/b"), entry("a/c"), entry("a.b")]), "");
        let long = "x".repeat(256);
        let deep = ["d"; 40].join("/");
        let bad = [
            "",
            "/etc/passwd",
            "../a",
            "a/../b",
            "a//b",
            "a/",
            ".",
            "./a",
            "a\0b",
            "a\nb",
            "\u{1b}[2J",
            &long,
            &deep,
            ".timewire-parts/x",
            ".timewire-parts",
        ];
        for path in bad {
            assert!(why(&[entry(path)]).starts_with("the files are refused: `"), "{path}");
        }
        assert!(why(&[entry("a"), entry("a")]).ends_with("`a` is there twice"));
        assert!(why(&[entry("a/b"), entry("a")]).ends_with("`a` is a file and a directory"));
        let set_user = FileEntry { mode: 0o4_755, ..entry("a") };
        assert!(why(&[set_user]).contains("permissions"));
        assert!(why(&[FileEntry { sha256: "12".to_owned(), ..entry("a") }]).contains("SHA-256"));
        assert!(why(&[FileEntry { size: 11, ..entry("a") }]).contains("larger than 10"));
        let other = FileEntry { size: 4, ..entry("b") };
        assert!(why(&[entry("a"), other]).contains("another size"));
        let four = ["a", "b", "c", "d"].map(entry);
        assert!(why(&four).contains("12 bytes, where 11"));
        let five = ["a", "b", "c", "d", "e"].map(entry);
        assert!(why(&five).contains("5 files, where 4"));
        let huge = FileEntry { size: u64::MAX, ..entry("a") };
        assert!(!why(&[huge.clone(), huge]).is_empty());
    }

    proptest! {
        #[test]
        fn t0_a_path_that_is_taken_stays_below(path in "[./a\u{0}b\\\\-]{0,12}|\\PC{0,20}") {
            if wrong_path(&path).is_none() {
                let below = Path::new("/root").join(&path);
                prop_assert!(below.starts_with("/root") && below != Path::new("/root"));
                prop_assert!(!path.contains("..") || path.split('/').all(|part| part != ".."));
                prop_assert_eq!(below.components().count(), path.split('/').count() + 2);
            }
        }
    }
}
