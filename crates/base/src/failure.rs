// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the errors of all libraries tell beside their words.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// An error of a library, as whoever ran a command is told of it.
///
/// Where an error passes on another one ([`Failure::inner`]), it has the answers of that one, as
/// far as it has none of its own.
pub trait Failure: StdError {
    /// The failure that it passes on.
    fn inner(&self) -> Option<&dyn Failure> {
        None
    }

    /// What the user can do about it, where that is known.
    fn hint(&self) -> Option<Cow<'static, str>> {
        self.inner()?.hint()
    }

    /// Whether this host lacks something, so that the same would fail again: another kernel, driver
    /// or NIC would do it.
    fn is_unsupported(&self) -> bool {
        self.inner().is_some_and(Failure::is_unsupported)
    }

    /// Whether something was left changed.
    fn leaves_changed(&self) -> bool {
        self.inner().is_some_and(Failure::leaves_changed)
    }

    /// The exit code of a command that ends with it: 3 when something was left changed, 4 when it
    /// is unsupported here, else 2.
    fn exit_code(&self) -> u8 {
        match self {
            _ if self.leaves_changed() => 3,
            _ if self.is_unsupported() => 4,
            _ => 2,
        }
    }
}

/// What is wrong with a file; the errors of all libraries pass it on.
#[derive(Debug, Error)]
pub enum FileError {
    /// It could not be used.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    Unusable {
        /// What was to be done with it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not hold what it should.
    #[error("{path}: {why}", path = .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl FileError {
    /// An operation on a file failed, as an error that passes it on; `what` was to be done.
    pub fn unusable<E: From<FileError>>(
        what: &'static str,
        path: &Path,
    ) -> impl Fn(io::Error) -> E + use<E> {
        let path = path.to_owned();
        move |source| FileError::Unusable { what, path: path.clone(), source }.into()
    }

    /// The error of a file with wrong content.
    pub fn content(path: impl Into<PathBuf>, why: impl fmt::Display) -> FileError {
        FileError::Content { path: path.into(), why: why.to_string() }
    }

    /// The kind of the error, of a file that could not be used.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            FileError::Unusable { source, .. } => Some(source.kind()),
            FileError::Content { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[derive(Debug, Error)]
    #[error("it failed")]
    struct Own(u8);

    impl Failure for Own {
        fn hint(&self) -> Option<Cow<'static, str>> {
            (self.0 == 0).then_some("a hint".into())
        }
        fn is_unsupported(&self) -> bool {
            self.0 == 1
        }
        fn leaves_changed(&self) -> bool {
            self.0 == 2
        }
    }

    #[derive(Debug, Error)]
    #[error("{0:?}")]
    struct Outer(Option<Own>);

    impl Failure for Outer {
        fn inner(&self) -> Option<&dyn Failure> {
            Some(self.0.as_ref()?)
        }
    }

    #[test]
    fn t0_a_failure_answers_as_the_one_that_it_passes_on() {
        for (own, hint, code) in [(0, Some("a hint"), 2), (1, None, 4), (2, None, 3)] {
            let outer = Outer(Some(Own(own)));
            assert_eq!((outer.hint().as_deref(), outer.exit_code()), (hint, code));
        }
        assert_eq!((Outer(None).hint(), Outer(None).exit_code()), (None, 2));
    }

    #[test]
    fn t0_what_is_wrong_with_a_file_is_told_with_its_name() {
        let absent = io::Error::from(io::ErrorKind::NotFound);
        let unusable: FileError = FileError::unusable("read", Path::new("/a"))(absent);
        assert_eq!(unusable.to_string(), "cannot read /a: entity not found");
        assert_eq!(unusable.kind(), Some(io::ErrorKind::NotFound));
        let content = FileError::content("/a", "it is empty");
        assert_eq!((content.to_string().as_str(), content.kind()), ("/a: it is empty", None));
    }
}
