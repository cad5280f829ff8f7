// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whom a station trusts: the fingerprints of its peers, each with what it may be.
//!
//! One file a peer, `controllers/FINGERPRINT.json` or `agents/FINGERPRINT.json`, so that pairing
//! and forgetting need no lock, and a running agent sees both at once.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::links::error::{LinkError, system};
use crate::links::identity::{Fingerprint, make_directory};
use timewire_sys::file::{Access, WholeFile, sync_directory_of};

/// What a peer may be to this station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It may control this station.
    Controller,
    /// This station controls it.
    Agent,
}

impl Role {
    /// Both.
    pub const ALL: [Role; 2] = [Role::Controller, Role::Agent];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Role::Controller => "controller",
            Role::Agent => "agent",
        }
    }

    fn directory(self) -> &'static str {
        match self {
            Role::Controller => "controllers",
            Role::Agent => "agents",
        }
    }
}

/// A peer that this station was paired with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairedPeer {
    /// What it may be.
    pub role: Role,
    /// What it called itself.
    pub name: String,
    /// What it is known by.
    pub fingerprint: Fingerprint,
    /// When. **Units**: seconds since 1970, UTC.
    pub paired_s: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    name: String,
    paired_s: u64,
}

/// The peers in a directory.
#[derive(Clone, Debug)]
pub struct Peers {
    directory: PathBuf,
}

impl Peers {
    /// Those of the identity in this directory.
    pub fn in_directory(directory: &Path) -> Peers {
        Peers { directory: directory.to_owned() }
    }

    /// The peer with this fingerprint, when it may be that.
    ///
    /// **Errors**: a file that cannot be read; then nobody is trusted for it.
    pub fn find(&self, role: Role, of: Fingerprint) -> Result<Option<PairedPeer>, LinkError> {
        let path = self.path(role, of);
        let text = match read_small(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(system(format!("read {}", path.display())))?,
        };
        let bad = |why: String| LinkError::BadFile { path: path.clone(), why };
        let stored: Stored = serde_json::from_slice(&text).map_err(|why| bad(why.to_string()))?;
        if stored.version != 1 {
            return Err(bad(format!("its version is {}, known is 1", stored.version)));
        }
        let Stored { name, paired_s, .. } = stored;
        Ok(Some(PairedPeer { role, name: plain_name(&name), fingerprint: of, paired_s }))
    }

    /// All of them, controllers first, by fingerprint.
    ///
    /// **Errors**: as [`Peers::find`].
    pub fn list(&self) -> Result<Vec<PairedPeer>, LinkError> {
        let mut all = Vec::new();
        for role in Role::ALL {
            let directory = self.directory.join(role.directory());
            let entries = match fs::read_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(system(format!("read {}", directory.display())))?,
            };
            let mut found = Vec::new();
            for entry in entries {
                let entry = entry.map_err(system(format!("read {}", directory.display())))?;
                let name = entry.file_name();
                let stem = name.to_str().and_then(|name| name.strip_suffix(".json"));
                let Some(fingerprint) = stem.and_then(|stem| stem.parse().ok()) else { continue };
                found.extend(self.find(role, fingerprint)?);
            }
            found.sort_by_key(|peer| peer.fingerprint);
            all.append(&mut found);
        }
        Ok(all)
    }

    /// Trusts a peer from now on, also after the next start of the machine.
    ///
    /// **Errors**: the directory cannot be written.
    pub fn add(&self, role: Role, name: &str, of: Fingerprint) -> Result<PairedPeer, LinkError> {
        let directory = self.directory.join(role.directory());
        make_directory(&directory)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = plain_name(name);
        let stored = Stored { version: 1, name: name.clone(), paired_s: since.as_secs() };
        let text = serde_json::to_string_pretty(&stored).expect("invariant: text and numbers");
        let path = self.path(role, of);
        let doing = || format!("write {}", path.display());
        let mut file = WholeFile::begin(&path, Access::Owner).map_err(system(doing()))?;
        file.write_all(text.as_bytes()).map_err(system(doing()))?;
        file.place_synced().map_err(system(doing()))?;
        Ok(PairedPeer { role, name, fingerprint: of, paired_s: stored.paired_s })
    }

    /// Trusts a peer no longer; whether it was trusted. Links that it has stay until they end.
    ///
    /// **Errors**: the directory cannot be written.
    pub fn forget(&self, role: Role, of: Fingerprint) -> Result<bool, LinkError> {
        let path = self.path(role, of);
        let doing = || format!("remove {}", path.display());
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other.map_err(system(doing()))?,
        }
        sync_directory_of(&path).map_err(system(doing()))?;
        Ok(true)
    }

    fn path(&self, role: Role, of: Fingerprint) -> PathBuf {
        self.directory.join(role.directory()).join(format!("{of}.json"))
    }
}

fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut text = Vec::new();
    fs::File::open(path)?.take(16_384).read_to_end(&mut text)?;
    Ok(text)
}

/// A name that a peer gave itself, fit to be shown: at most 64 characters, none that moves a
/// cursor.
pub(crate) fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    name.trim().chars().take(64).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::scratch::Scratch;

    #[test]
    fn t0_peers_are_added_found_and_forgotten_by_role() {
        let scratch = Scratch::new("peers");
        let peers = Peers::in_directory(scratch.path());
        assert!(peers.list().unwrap().is_empty());
        let one = Fingerprint::of_key(b"one");
        let other = Fingerprint::of_key(b"other");
        peers.add(Role::Agent, "st1\x1b[2J", one).unwrap();
        peers.add(Role::Controller, "desk", other).unwrap();
        peers.add(Role::Controller, "desk", other).unwrap();
        assert_eq!(peers.find(Role::Agent, one).unwrap().unwrap().name, "st1?[2J");
        // Who is controlled from here may not control this station.
        assert_eq!(peers.find(Role::Controller, one).unwrap(), None);
        let names: Vec<_> = peers.list().unwrap().into_iter().map(|peer| peer.role).collect();
        assert_eq!(names, [Role::Controller, Role::Agent]);
        assert!(peers.forget(Role::Agent, one).unwrap());
        assert!(!peers.forget(Role::Agent, one).unwrap());
        assert_eq!(peers.list().unwrap().len(), 1);
        fs::write(peers.path(Role::Controller, other), "{}").unwrap();
        assert!(matches!(peers.list(), Err(LinkError::BadFile { .. })));
    }
}
