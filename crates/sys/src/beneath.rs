// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files below a directory by paths that somebody else chose: no path leads out of it, whatever
//! stands there and whoever changes it meanwhile. No symbolic link is followed, no device opened.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::socket::check;

/// A directory, and what is below it. Paths have `/` between their parts, and no part is empty,
/// `.` or `..`; any other is `InvalidInput`.
#[derive(Debug)]
pub struct Beneath {
    root: OwnedFd,
    way: Resolution,
}

/// How a path is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    /// By the kernel as a whole, from 5.6 on.
    Whole,
    /// Part by part.
    Parts,
}

impl Beneath {
    /// The directory at this path; the path itself is trusted.
    pub fn open(path: &Path) -> io::Result<Beneath> {
        let flags = libc::O_DIRECTORY | libc::O_CLOEXEC;
        let root = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let root = OwnedFd::from(root);
        let way = match resolve(root.as_fd(), ".", libc::O_PATH | libc::O_DIRECTORY) {
            Ok(_) => Resolution::Whole,
            // A kernel that does not know it, or a filter of system calls that does not.
            Err(_) => Resolution::Parts,
        };
        Ok(Beneath { root, way })
    }

    /// Opens a regular file to read.
    ///
    /// **Errors**: `InvalidInput` for anything else than a regular file; `ELOOP`, or `ENOTDIR` in
    /// the middle, for a symbolic link.
    pub fn open_file(&self, path: &str) -> io::Result<File> {
        self.open_regular(path, libc::O_RDONLY)
    }

    /// Opens a regular file to read and write.
    ///
    /// **Errors**: as [`Beneath::open_file`].
    pub fn open_file_to_write(&self, path: &str) -> io::Result<File> {
        self.open_regular(path, libc::O_RDWR)
    }

    fn open_regular(&self, path: &str, access: libc::c_int) -> io::Result<File> {
        let (directory, name) = self.parent(path)?;
        // Looking at it first: opening a device can do something.
        let seen = open_at(directory.as_fd(), name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        regular(File::from(seen))?;
        let flags = access | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        regular(File::from(open_at(directory.as_fd(), name, flags, 0)?))
    }

    /// Makes a file that does not exist, to read and write.
    ///
    /// **Errors**: `AlreadyExists`, also for a symbolic link.
    pub fn create_file(&self, path: &str, mode: u32) -> io::Result<File> {
        let (directory, name) = self.parent(path)?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        open_at(directory.as_fd(), name, flags, mode).map(File::from)
    }

    /// Makes a directory; one that is there is as good.
    pub fn make_directory(&self, path: &str, mode: u32) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        let text = c_string(name)?;
        // SAFETY: `text` is a NUL-terminated string that outlives the call, the descriptor is live.
        let made = unsafe { libc::mkdirat(directory.as_raw_fd(), text.as_ptr(), mode) };
        match check(made) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.directory(path).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Gives a file another path, in place of what is there.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from_directory, from_name) = self.parent(from)?;
        let (to_directory, to_name) = self.parent(to)?;
        let (from_name, to_name) = (c_string(from_name)?, c_string(to_name)?);
        // SAFETY: both texts are NUL-terminated strings that outlive the call, both descriptors are
        // live.
        let renamed = unsafe {
            libc::renameat(
                from_directory.as_raw_fd(),
                from_name.as_ptr(),
                to_directory.as_raw_fd(),
                to_name.as_ptr(),
            )
        };
        check(renamed).map(drop)
    }

    /// Removes a file.
    pub fn remove_file(&self, path: &str) -> io::Result<()> {
        self.unlink(path, 0)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &str) -> io::Result<()> {
        self.unlink(path, libc::AT_REMOVEDIR)
    }

    fn unlink(&self, path: &str, flags: libc::c_int) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        let text = c_string(name)?;
        // SAFETY: `text` is a NUL-terminated string that outlives the call, the descriptor is live.
        check(unsafe { libc::unlinkat(directory.as_raw_fd(), text.as_ptr(), flags) }).map(drop)
    }

    /// Opens a directory; the one itself for an empty path.
    pub fn directory(&self, path: &str) -> io::Result<File> {
        if path.is_empty() {
            return Ok(File::from(self.root.try_clone()?));
        }
        check_path(path)?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        match self.way {
            Resolution::Whole => resolve(self.root.as_fd(), path, flags).map(File::from),
            Resolution::Parts => {
                let mut at = self.root.try_clone()?;
                for part in path.split('/') {
                    at = open_at(at.as_fd(), part, flags, 0)?;
                }
                Ok(File::from(at))
            }
        }
    }

    fn parent<'a>(&self, path: &'a str) -> io::Result<(File, &'a str)> {
        check_path(path)?;
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.directory(directory)?, name))
    }
}

fn check_path(path: &str) -> io::Result<()> {
    let bad = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains('\0');
    if path.split('/').any(bad) {
        let what = "not a relative path of names alone";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    if file.metadata()?.file_type().is_symlink() {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

fn open_at(
    directory: BorrowedFd<'_>,
    name: &str,
    flags: libc::c_int,
    mode: u32,
) -> io::Result<OwnedFd> {
    let text = c_string(name)?;
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: `text` is a NUL-terminated string that outlives the call, the descriptor is live; the
    // mode is read when a file is made.
    let fd = unsafe { libc::openat(directory.as_raw_fd(), text.as_ptr(), flags, mode) };
    let fd = check(fd)?;
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a path below a directory, all of it, or nothing.
fn resolve(directory: BorrowedFd<'_>, path: &str, flags: libc::c_int) -> io::Result<OwnedFd> {
    let text = c_string(path)?;
    // SAFETY: all-zero is a valid open_how (plain integers).
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).unsigned_abs());
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: `text` is a NUL-terminated string and `how` an open_how of the given size; both
    // outlive the call, and the descriptor is live.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            directory.as_raw_fd(),
            text.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    let fd = libc::c_int::try_from(fd).map_err(|_| io::Error::other("openat2"))?;
    let fd = check(fd)?;
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn t0_nothing_outside_is_reached_by_any_way() {
        let scratch = std::env::temp_dir().join(format!("tw-beneath-{}", std::process::id()));
        let (root, outside) = (scratch.join("root"), scratch.join("outside"));
        for way in [Resolution::Whole, Resolution::Parts] {
            std::fs::create_dir_all(&root).unwrap();
            std::fs::create_dir_all(&outside).unwrap();
            std::fs::create_dir_all(root.join("inside/deep")).unwrap();
            std::fs::write(root.join("inside/deep/file"), "text").unwrap();
            std::fs::write(outside.join("secret"), "secret").unwrap();
            symlink("inside", root.join("in")).unwrap();
            symlink(&outside, root.join("out")).unwrap();
            symlink("../outside/secret", root.join("link")).unwrap();
            let beneath = Beneath { way, ..Beneath::open(&root).unwrap() };
            for bad in ["", "/etc/passwd", "..", "../outside/secret", "a/../b", ".", "a//b", "a\0b"]
            {
                let error = beneath.open_file(bad).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bad}: {error}");
                assert!(beneath.create_file(bad, 0o600).is_err(), "{bad}");
            }
            for link in ["link", "out/secret", "out/new", "in/deep/file", "in/new"] {
                assert!(beneath.open_file(link).is_err(), "{link}");
                assert!(beneath.open_file_to_write(link).is_err(), "{link}");
                assert!(beneath.create_file(link, 0o600).is_err(), "{link}");
                assert!(beneath.rename(link, "out/moved").is_err(), "{link}");
            }
            assert!(beneath.make_directory("out/d", 0o700).is_err());
            assert!(beneath.make_directory("out", 0o700).is_err());
            assert!(beneath.directory("in/deep").is_err());
            assert!(beneath.open_file("inside/deep/file").is_ok());
            assert!(beneath.remove_file("out/secret").is_err());
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
            beneath.make_directory("d", 0o755).unwrap();
            beneath.make_directory("d", 0o755).unwrap();
            assert!(beneath.open_file("d").is_err());
            beneath.create_file("d/new", 0o600).unwrap().write_all(b"text").unwrap();
            beneath.rename("d/new", "link").unwrap();
            let mut text = String::new();
            beneath.open_file("link").unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "text");
            beneath.directory("d").unwrap().sync_all().unwrap();
            beneath.remove_directory("d").unwrap();
            beneath.remove_file("link").unwrap();
            std::fs::remove_dir_all(&scratch).unwrap();
        }
    }

    #[test]
    fn t0_devices_and_pipes_are_not_opened() {
        let beneath = Beneath::open(Path::new("/dev")).unwrap();
        let error = beneath.open_file("null").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
}
