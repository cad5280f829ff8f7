// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that become parts of paths on other machines, and so are checked when they are made.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Text that is no such name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// No experiment or program can have this name.
    #[error(
        "`{text}` is no name: 1 to {max} characters of a-z, 0-9 and `-`, starting with a letter \
         or a digit"
    )]
    Word {
        /// What was given.
        text: String,
        /// The largest length.
        max: usize,
    },
    /// No record can have this name.
    #[error(
        "`{text}` is no name of a record: a relative path of at most {max} bytes, its parts of \
         a-z, A-Z, 0-9, `-`, `_` and `.`, none starting with a dot"
    )]
    Record {
        /// What was given.
        text: String,
        /// The largest length.
        max: usize,
    },
}

macro_rules! name {
    ($name:ident, $doc:literal, $check:ident) => {
        #[doc = $doc]
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text.
            ///
            /// **Errors**: it is no such name; the error says what would be.
            pub fn new(text: &str) -> Result<$name, NameError> {
                $check(text).map(|()| $name(text.to_owned()))
            }
        }
        timewire_base::checked_text!($name, NameError);
    };
}

name!(
    ExperimentId,
    "One trial of an experiment: never used twice. 1 to 80 of `a-z`, `0-9`, `-`.",
    word
);
name!(WordName, "A program of an experiment on its station. 1 to 80 of `a-z`, `0-9`, `-`.", word);
name!(RecordName, "A file that a station keeps for the controller: a relative path.", record);

const LONGEST_WORD: usize = 80;
const LONGEST_RECORD: usize = 200;

fn word(text: &str) -> Result<(), NameError> {
    let fits = !text.is_empty()
        && text.len() <= LONGEST_WORD
        && !text.starts_with('-')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if fits { Ok(()) } else { Err(NameError::Word { text: text.to_owned(), max: LONGEST_WORD }) }
}

fn record(text: &str) -> Result<(), NameError> {
    if text.len() <= LONGEST_RECORD && timewire_base::is_plain_path(text) {
        Ok(())
    } else {
        Err(NameError::Record { text: text.to_owned(), max: LONGEST_RECORD })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_names_cannot_leave_their_directory() {
        for good in ["a", "a/b.json", "listen/stdout", "x_1.twr"] {
            assert!(RecordName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a//b", "../a", "a/..", ".a", "a b", "a/", &"x".repeat(201)] {
            assert!(RecordName::new(bad).is_err(), "{bad}");
        }
        for bad in ["", "A", "-a", "a/b", "a.b", &"x".repeat(81)] {
            assert!(ExperimentId::new(bad).is_err() && WordName::new(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<RecordName>("\"../etc/passwd\"").is_err());
    }
}
