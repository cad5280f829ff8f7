// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are there whole or not at all: written beside their place, and moved there by
//! `tempfile`, so that a reader never sees a half and nobody else sees what is for its owner alone.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// Who may read and write a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its owner alone.
    Owner,
    /// Whom the process's umask leaves it to.
    Umask,
}

/// A file that is being written; what there is of it goes when it is dropped.
#[derive(Debug)]
pub struct WholeFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl WholeFile {
    /// Begins a file for `path`, under a name beside it that no other has.
    ///
    /// **Errors**: the directory cannot be written, or `path` has no file name.
    pub fn begin(path: &Path, access: Access) -> io::Result<WholeFile> {
        let (directory, name) = parts(path)?;
        let mut prefix = OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        let file = builder(access).prefix(&prefix).suffix(PART).tempfile_in(directory)?;
        Ok(WholeFile { file, path: path.to_owned() })
    }

    /// The same under [`unfinished`], which the next one takes over from one that was killed.
    fn begin_again(path: &Path, access: Access) -> io::Result<WholeFile> {
        let (directory, _) = parts(path)?;
        let beside = unfinished(path);
        let name = beside.file_name().unwrap_or_default();
        let mut builder = builder(access);
        let builder = builder.prefix(name).rand_bytes(0);
        let file = match builder.tempfile_in(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&beside)?;
                builder.tempfile_in(directory)?
            }
            other => other?,
        };
        Ok(WholeFile { file, path: path.to_owned() })
    }

    /// Where it is until it is in its place.
    pub fn beside(&self) -> &Path {
        self.file.path()
    }

    /// Puts it in its place, also over another.
    ///
    /// **Errors**: it cannot be moved there.
    pub fn place(self) -> io::Result<()> {
        self.file.persist(&self.path).map(drop).map_err(|failed| failed.error)
    }

    /// Puts it in its place where none is.
    ///
    /// **Errors**: there is one ([`io::ErrorKind::AlreadyExists`]), or it cannot be moved there.
    pub fn place_new(self) -> io::Result<()> {
        match self.file.persist_noclobber(&self.path) {
            // A file system that has neither second names nor moves that replace nothing.
            Err(failed) if failed.error.kind() != io::ErrorKind::AlreadyExists => {
                if fs::symlink_metadata(&self.path).is_ok() {
                    return Err(failed.error);
                }
                failed.file.persist(&self.path).map(drop).map_err(|failed| failed.error)
            }
            other => other.map(drop).map_err(|failed| failed.error),
        }
    }

    /// As [`WholeFile::place`], with the file and its name on disk when it returns.
    ///
    /// **Errors**: as there.
    pub fn place_synced(self) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        let path = self.path.clone();
        self.place()?;
        sync_directory_of(&path)
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file whole, also over another. Of several processes that do so at once, some may fail.
///
/// **Errors**: the directory cannot be written; then what was there still is.
pub fn replace(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = WholeFile::begin_again(path, access)?;
    file.write_all(bytes)?;
    file.place()
}

/// The same, with the file and its name on disk when it returns.
///
/// **Errors**: as [`replace`].
pub fn replace_synced(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = WholeFile::begin_again(path, access)?;
    file.write_all(bytes)?;
    file.place_synced()
}

/// Writes a file whole where none is; file and name are on disk when it returns.
///
/// **Errors**: there is one ([`io::ErrorKind::AlreadyExists`]), or the directory cannot be written.
pub fn create_synced(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = WholeFile::begin(path, access)?;
    file.write_all(bytes)?;
    file.file.as_file().sync_all()?;
    file.place_new()?;
    sync_directory_of(path)
}

/// Puts the names in the directory of a file on disk.
///
/// **Errors**: it cannot be opened or written.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(parts(path)?.0)?.sync_all()
}

/// Where [`replace`] writes a file: what a process leaves that is killed meanwhile.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(PART);
    path.with_file_name(name)
}

const PART: &str = ".part";

fn builder<'a>(access: Access) -> Builder<'a, 'a> {
    let mut builder = Builder::new();
    builder.permissions(Permissions::from_mode(match access {
        Access::Owner => 0o600,
        Access::Umask => 0o666,
    }));
    builder
}

/// The directory of a file and its name in it.
fn parts(path: &Path) -> io::Result<(&Path, &std::ffi::OsStr)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((directory.unwrap_or(Path::new(".")), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn t0_a_file_is_replaced_whole_and_keeps_to_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.json");
        fs::write(&path, "old").unwrap();
        // What one left that was killed, open to everybody.
        fs::write(unfinished(&path), "half").unwrap();
        fs::set_permissions(unfinished(&path), Permissions::from_mode(0o666)).unwrap();
        replace_synced(&path, b"new", Access::Owner).unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"new".to_vec(), 0o600));
        replace(&path, b"newer", Access::Owner).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(names(place.path()), ["a.json"]);
    }

    #[test]
    fn t0_a_file_is_for_its_owner_before_it_is_in_its_place() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        let file = WholeFile::begin(&path, Access::Owner).unwrap();
        assert_eq!(mode(file.beside()), 0o600);
        // As a file that is made anew.
        let open = WholeFile::begin(&path, Access::Umask).unwrap();
        let like = place.path().join("like");
        fs::write(&like, "").unwrap();
        assert_eq!(mode(open.beside()), mode(&like));
        drop((file, open));
        assert_eq!(names(place.path()), ["like"], "what is not placed goes");
    }

    #[test]
    fn t0_none_is_replaced_that_has_come_first() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        create_synced(&path, b"first", Access::Owner).unwrap();
        let late = create_synced(&path, b"second", Access::Owner).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(place.path()), ["key"]);
    }

    #[test]
    fn t0_what_cannot_be_written_leaves_what_was_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("none").join("a");
        assert!(replace(&path, b"", Access::Umask).is_err());
        assert!(replace(Path::new("/"), b"", Access::Umask).is_err());
        // Nothing of a file stays where a directory has its name.
        fs::create_dir(place.path().join("b")).unwrap();
        assert!(replace(&place.path().join("b"), b"", Access::Umask).is_err());
        assert_eq!(names(place.path()), ["b"]);
    }
}
