// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that is there whole or not at all: it is written beside its place and moved there at the
//! end. What stood there may be read until then, and stays when the work fails.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, bail};
use timewire_sys::file::{Access, WholeFile};

/// All files of this process that are being written, and where they are until they are whole.
static WRITTEN: Mutex<BTreeMap<PathBuf, PathBuf>> = Mutex::new(BTreeMap::new());

fn all_written() -> MutexGuard<'static, BTreeMap<PathBuf, PathBuf>> {
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is being written.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    force: bool,
    out: Out,
}

#[derive(Debug)]
enum Out {
    Whole(BufWriter<WholeFile>, Listed),
    /// A pipe or device, which is written at once.
    Device(BufWriter<File>),
}

/// A file's place in [`WRITTEN`], until it is dropped.
#[derive(Debug)]
struct Listed(PathBuf);

impl Drop for Listed {
    fn drop(&mut self) {
        all_written().remove(&self.0);
    }
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
            return Ok(NewFile { path, force, out: Out::Device(BufWriter::new(file)) });
        }
        if there.is_some() && !force {
            return Err(is_there(&path));
        }
        let name = path.file_name().with_context(|| format!("{}: no file name", cannot()))?;
        // In one spelling, so that it is known again.
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let place = fs::canonicalize(directory).with_context(cannot)?.join(name);
        let mut all = all_written();
        if all.contains_key(&place) {
            bail!("{} is to be written twice; give each its own name", path.display());
        }
        let file = WholeFile::begin(&place, Access::Umask).with_context(cannot)?;
        all.insert(place.clone(), file.beside().to_owned());
        Ok(NewFile { path, force, out: Out::Whole(BufWriter::new(file), Listed(place)) })
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
        let NewFile { path, force, out } = self;
        let Out::Whole(file, _listed) = out else { return Ok(()) };
        let cannot = || format!("cannot write {}", path.display());
        let file =
            file.into_inner().map_err(io::IntoInnerError::into_error).with_context(cannot)?;
        if force {
            return file.place().with_context(cannot);
        }
        match file.place_new() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(is_there(&path)),
            other => other.with_context(cannot),
        }
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
    for beside in all_written().values() {
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
        let written = match &mut self.out {
            Out::Whole(file, _) => file.write(bytes),
            Out::Device(file) => file.write(bytes),
        };
        written.map_err(|source| self.cannot(source))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = match &mut self.out {
            Out::Whole(file, _) => file.flush(),
            Out::Device(file) => file.flush(),
        };
        flushed.map_err(|source| self.cannot(source))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use tempfile::{TempDir, tempdir};

    use super::*;

    fn names(place: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(place.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn t0_what_stood_there_is_read_until_the_new_one_is_whole() {
        let place = tempdir().unwrap();
        let path = place.path().join("a");
        fs::write(&path, "old").unwrap();
        let mut file = NewFile::create(&path, true).unwrap();
        file.write_all(b"new").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(&place), ["a"]);
    }

    #[test]
    fn t0_two_at_once_are_refused_and_one_after_the_other_are_not() {
        let place = tempdir().unwrap();
        let path = place.path().join("a");
        let mut first = NewFile::create(&path, true).unwrap();
        first.write_all(b"first").unwrap();
        let around = place.path().join("..").join(place.path().file_name().unwrap()).join("a");
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
        let place = tempdir().unwrap();
        let path = place.path().join("a");
        let mut file = NewFile::create(&path, false).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert!(names(&place).is_empty(), "{:?}", names(&place));
    }

    #[test]
    fn t0_a_file_is_replaced_only_when_asked() {
        let place = tempdir().unwrap();
        let path = place.path().join("a");
        fs::write(&path, "old").unwrap();
        let said = format!("{:#}", NewFile::create(&path, false).unwrap_err());
        assert!(said.contains("a: it is there; --force writes over it"), "{said}");
        // One that comes while the new one is written.
        let other = place.path().join("b");
        let file = NewFile::create(&other, false).unwrap();
        fs::write(&other, "somebody else's").unwrap();
        let said = format!("{:#}", file.finish().unwrap_err());
        assert!(said.contains("b: it is there; --force writes over it"), "{said}");
        assert_eq!(fs::read_to_string(&other).unwrap(), "somebody else's");
        assert_eq!(names(&place), ["a", "b"]);
    }

    #[test]
    fn t0_a_link_stays_and_a_device_is_written_into() {
        let place = tempdir().unwrap();
        let (path, link) = (place.path().join("a"), place.path().join("link"));
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
        assert_eq!(names(&place), ["a", "link"]);
    }
}
