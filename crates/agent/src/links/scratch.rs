// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory of a test, for its user alone, gone with it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let owner = Permissions::from_mode(0o700);
        Scratch(tempfile::Builder::new().suffix(name).permissions(owner).tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}
