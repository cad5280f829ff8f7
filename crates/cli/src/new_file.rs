// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that is there whole or not at all: it is written beside its place and moved there at the
//! end. What stood there may be read until then, and stays when the work fails.
//!
//! Not here: captures that are being taken; what is in those stays when their program is killed.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, bail};

/// Where all files of this process are that are being written.
static BESIDE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn all_beside() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    BESIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is being written.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// Where it is until it is whole; of a pipe or device, which is written at once, nothing.
    beside: Option<PathBuf>,
    force: bool,
    file: BufWriter<File>,
}

impl NewFile {
    /// Begins a file at `path`, which must not be there unless `force` replaces it. A pipe or
    /// device that is there is written into.
    ///
    /// **Errors**: there is such a file, it is being written already, or it cannot be written.
    pub fn create(path: &Path, force: bool) -> anyhow::Result<NewFile> {
        let cannot = || format!("cannot write {}", path.display());
        // What a symbolic link names is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let there = fs::metadata(&path).ok();
        if there.as_ref().is_some_and(|it| !it.is_file() && !it.is_dir()) {
            let file = OpenOptions::new().write(true).open(&path).with_context(cannot)?;
            return Ok(NewFile { path, beside: None, force, file: BufWriter::new(file) });
        }
        if there.is_some() && !force {
            return Err(is_there(&path));
        }
        let name = path.file_name().with_context(|| format!("{}: no file name", cannot()))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.part", std::process::id()));
        // In one spelling, so that it is known again.
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let beside = fs::canonicalize(directory).with_context(cannot)?.join(hidden);
        let mut all = all_beside();
        if all.contains(&beside) {
            bail!("{} is to be written twice; give each its own name", path.display());
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&beside);
        let file = BufWriter::new(file.with_context(cannot)?);
        all.insert(beside.clone());
        Ok(NewFile { path, beside: Some(beside), force, file })
    }

    /// Writes a file that is there whole or not at all; it replaces one that is there.
    ///
    /// **Errors**: it cannot be written.
    pub fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
        let mut file = NewFile::create(path, true)?;
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.finish()
    }

    /// Puts the whole file in its place.
    ///
    /// **Errors**: it cannot be written, or another has come there meanwhile; then nothing is left
    /// of it.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.flush()?;
        let cannot = || format!("cannot write {}", self.path.display());
        let Some(beside) = &self.beside else { return Ok(()) };
        if self.force {
            fs::rename(beside, &self.path).with_context(cannot)?;
        } else {
            match fs::hard_link(beside, &self.path) {
                Ok(()) => fs::remove_file(beside).with_context(cannot)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(is_there(&self.path));
                }
                // A file system that has no second names.
                Err(_) if !self.path.exists() => {
                    fs::rename(beside, &self.path).with_context(cannot)?;
                }
                Err(error) => return Err(error).with_context(cannot),
            }
        }
        all_beside().remove(beside);
        self.beside = None;
        Ok(())
    }
}

/// The system's word on a file that could not be written, with the file's name: it comes out of
/// libraries that read one file and write another.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
struct CannotWrite {
    path: PathBuf,
    source: io::Error,
}

/// Whether an error is that of a file being written, and says so itself.
pub fn cannot_write(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<CannotWrite>())
}

fn is_there(path: &Path) -> anyhow::Error {
    anyhow::anyhow!("cannot write {}: it is there; --force writes over it", path.display())
}

/// Removes what is written of all files that are not whole: this process ends at once.
pub fn remove_unfinished() {
    for beside in all_beside().iter() {
        // There is nobody to tell.
        let _ = fs::remove_file(beside);
    }
}

impl NewFile {
    fn cannot(&self, source: io::Error) -> io::Error {
        io::Error::new(source.kind(), CannotWrite { path: self.path.clone(), source })
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|source| self.cannot(source))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|source| self.cannot(source))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // There is nobody to tell, and the next of the same name is written over it.
            let _ = fs::remove_file(beside);
            all_beside().remove(beside);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// A directory of this test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let name = format!("timewire-new-file-{}-{name}", std::process::id());
            let place = std::env::temp_dir().join(name);
            fs::create_dir(&place).unwrap();
            Place(place)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn t0_what_stood_there_is_read_until_the_new_one_is_whole() {
        let place = Place::new("whole");
        let path = place.0.join("a");
        fs::write(&path, "old").unwrap();
        let mut file = NewFile::create(&path, true).unwrap();
        file.write_all(b"new").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(place.names(), ["a"]);
    }

    #[test]
    fn t0_two_at_once_are_refused_and_one_after_the_other_are_not() {
        let place = Place::new("twice");
        let path = place.0.join("a");
        let mut first = NewFile::create(&path, true).unwrap();
        first.write_all(b"first").unwrap();
        let around = place.0.join("..").join(place.0.file_name().unwrap()).join("a");
        for again in [path.clone(), around] {
            let twice = NewFile::create(&again, true).unwrap_err();
            assert!(twice.to_string().ends_with("is to be written twice; give each its own name"));
        }
        first.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        drop(NewFile::create(&path, true).unwrap());
        NewFile::create(&path, true).unwrap().finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn t0_what_is_not_finished_leaves_nothing() {
        let place = Place::new("nothing");
        let path = place.0.join("a");
        let mut file = NewFile::create(&path, false).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert!(place.names().is_empty(), "{:?}", place.names());
    }

    #[test]
    fn t0_a_file_is_replaced_only_when_asked() {
        let place = Place::new("asked");
        let path = place.0.join("a");
        fs::write(&path, "old").unwrap();
        let said = format!("{:#}", NewFile::create(&path, false).unwrap_err());
        assert!(said.contains("a: it is there; --force writes over it"), "{said}");
        // One that comes while the new one is written.
        let other = place.0.join("b");
        let file = NewFile::create(&other, false).unwrap();
        fs::write(&other, "somebody else's").unwrap();
        let said = format!("{:#}", file.finish().unwrap_err());
        assert!(said.contains("b: it is there; --force writes over it"), "{said}");
        assert_eq!(fs::read_to_string(&other).unwrap(), "somebody else's");
        assert_eq!(place.names(), ["a", "b"]);
    }

    #[test]
    fn t0_a_link_stays_and_a_device_is_written_into() {
        let place = Place::new("link");
        let (path, link) = (place.0.join("a"), place.0.join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut file = NewFile::create(&link, true).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mut null = NewFile::create(Path::new("/dev/null"), false).unwrap();
        null.write_all(b"gone").unwrap();
        null.finish().unwrap();
        assert_eq!(place.names(), ["a", "link"]);
    }
}
