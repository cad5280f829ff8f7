// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories of records, and JSON files that are there whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use timewire_base::FileError;
use timewire_sys::file::{self, Access};

use crate::DatapathError;

/// Sees to it that there is an empty directory for a run that another process makes; its whole
/// path.
///
/// **Errors**: the path exists and is not an empty directory, or cannot be made.
pub fn empty_directory(path: &Path) -> Result<PathBuf, DatapathError> {
    if path.exists() && !path.is_dir() {
        let why = "it is no directory; a run needs a directory of its own".to_owned();
        return Err(FileError::content(path, why).into());
    }
    fs::create_dir_all(path).map_err(DatapathError::file("create", path))?;
    let mut entries = fs::read_dir(path).map_err(DatapathError::file("read", path))?;
    if entries.next().is_some() {
        let path = path.to_owned();
        let why = "it is not empty; a run needs a directory of its own".to_owned();
        return Err(FileError::content(path, why).into());
    }
    fs::canonicalize(path).map_err(DatapathError::file("find", path))
}

/// The value in a JSON file.
///
/// **Errors**: it cannot be read, or holds something else.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, DatapathError> {
    let text = fs::read_to_string(path).map_err(DatapathError::file("read", path))?;
    serde_json::from_str(&text).map_err(|error| FileError::content(path, error).into())
}

/// Writes a value as JSON, whole or not at all.
///
/// **Errors**: it cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), DatapathError> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|error| FileError::content(path, error))?;
    text.push(b'\n');
    write_whole(path, &text)
}

/// Writes beside the file first, so that a reader never sees a half.
///
/// **Errors**: it cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), DatapathError> {
    file::replace(path, bytes, Access::Umask).map_err(DatapathError::file("write", path))
}
