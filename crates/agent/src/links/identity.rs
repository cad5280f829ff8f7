// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who a station is: a pair of keys of its own, and the fingerprint others know it by.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::Ed25519KeyPair;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use timewire_sys::file::{self, Access};
use timewire_sys::local::effective_user;
use timewire_sys::namespace::user_in_words;

use crate::links::error::{LinkError, system};

/// SHA-256 of a station's public key (its `SubjectPublicKeyInfo`, as TLS shows it).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a public key as TLS shows it.
    pub(crate) fn of_key(spki: &[u8]) -> Fingerprint {
        Fingerprint(sha256(spki))
    }

    /// From its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Fingerprint {
        Fingerprint(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Fingerprint, LinkError> {
        let right = "64 hexadecimal digits, as `timewire agent peers` shows them";
        unhex(text).map(Fingerprint).ok_or_else(|| LinkError::NotA {
            text: text.chars().take(80).collect(),
            what: "fingerprint",
            right,
        })
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest_bytes(&ring::digest::digest(&ring::digest::SHA256, bytes))
}

pub(crate) fn digest_bytes(digest: &ring::digest::Digest) -> [u8; 32] {
    digest.as_ref().try_into().expect("invariant: SHA-256 has 32 bytes")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 64 hexadecimal digits as bytes.
pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    let text = text.as_bytes();
    if text.len() != 64 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = [0; 32];
    for (to, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *to = digit(pair[0])? * 16 + digit(pair[1])?;
    }
    Some(bytes)
}

/// Random bytes from the kernel.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), LinkError> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| system("get random numbers")(io::Error::other("the kernel gives none")))
}

/// The keys of this station.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) key: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Where an identity and its peers are when nothing else is said: `/var/lib/timewire/agent`
    /// for root, `~/.local/state/timewire/agent` (or below `$XDG_STATE_HOME`) for others.
    pub fn default_directory() -> PathBuf {
        let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if effective_user() == 0 {
            return PathBuf::from("/var/lib/timewire/agent");
        }
        let home = of("HOME").map(|home| PathBuf::from(home).join(".local/state"));
        let state = of("XDG_STATE_HOME").map(PathBuf::from).or(home).unwrap_or_default();
        state.join("timewire/agent")
    }

    /// Whether a directory is fit for keys, peers and what an agent keeps: who can write there
    /// decides whom this station trusts.
    ///
    /// **Errors**: others can write it, or it is another user's; `NotFound` inside
    /// [`LinkError::System`] when there is none.
    pub fn check_directory(directory: &Path) -> Result<(), LinkError> {
        let found = fs::metadata(directory);
        let found = found.map_err(system(format!("read {}", directory.display())))?;
        let (mode, owner, own) = (found.mode() & 0o777, found.uid(), effective_user());
        if mode & 0o022 != 0 || (owner != own && owner != 0) {
            let why =
                format!("mode {mode:04o}, of user {owner}; 0700 of user {own} would be right");
            return Err(LinkError::BadFile { path: directory.to_owned(), why });
        }
        Ok(())
    }

    /// The identity in a directory.
    ///
    /// **Errors**: `NotFound` inside [`LinkError::System`] when there is none; a key that others
    /// can read; a directory that others can write, or that is another user's.
    pub fn load(directory: &Path) -> Result<Identity, LinkError> {
        let path = directory.join(KEY);
        let reading = || format!("read the station's key {}", path.display());
        Identity::check_directory(directory)?;
        let own = effective_user();
        let metadata = fs::symlink_metadata(&path).map_err(system(reading()))?;
        let bad = |why: String| LinkError::BadFile { path: path.clone(), why };
        if !metadata.is_file() || metadata.len() > 4_096 {
            return Err(bad("it is not a regular file with a key".to_owned()));
        }
        if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o777;
            return Err(bad(format!("its mode is {mode:04o}; 0600 would be right")));
        }
        if metadata.uid() != own && metadata.uid() != 0 {
            return Err(bad(format!(
                "it belongs to {}, not to user {own}",
                user_in_words(metadata.uid())
            )));
        }
        let der = fs::read(&path).map_err(system(reading()))?;
        Identity::of_pkcs8(der).map_err(bad)
    }

    /// The identity in a directory; a new one when there is none. Directory and key are for the
    /// user alone. Two processes that do this at once get the same.
    ///
    /// **Errors**: as [`Identity::load`]; the directory cannot be written.
    pub fn load_or_create(directory: &Path) -> Result<Identity, LinkError> {
        match Identity::load(directory) {
            Err(LinkError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let making = || format!("make the station's key in {}", directory.display());
        let random = SystemRandom::new();
        let document = Ed25519KeyPair::generate_pkcs8(&random)
            .map_err(|_| system(making())(io::Error::other("no random numbers")))?;
        make_directory(directory)?;
        match file::create_synced(&directory.join(KEY), document.as_ref(), Access::Owner) {
            // Another process has made it meanwhile.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(system(making())(error))
            }
            _ => Identity::load(directory),
        }
    }

    fn of_pkcs8(der: Vec<u8>) -> Result<Identity, String> {
        let key = rustls::crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(der))
            .map_err(|error| format!("it holds no Ed25519 key ({error})"))?;
        let public = key.public_key().ok_or("its key has no public part")?;
        let public = public.as_ref().to_vec();
        let fingerprint = Fingerprint::of_key(&public);
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        Ok(Identity { key, fingerprint })
    }

    /// One that shows somebody else's public key, without having the private one.
    #[cfg(test)]
    pub(crate) fn impostor(&self, of: &Identity) -> Identity {
        let key = CertifiedKey::new(of.key.cert.clone(), Arc::clone(&self.key.key));
        Identity { key: Arc::new(key), fingerprint: of.fingerprint }
    }

    /// What others know it by.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Makes a directory for the user alone, and those above it.
pub(crate) fn make_directory(path: &Path) -> Result<(), LinkError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(system(format!("make the directory {}", path.display())))
}

const KEY: &str = "key";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn t0_an_identity_is_made_once_and_for_its_user_alone() {
        let directory = crate::links::scratch::Scratch::new("identity");
        let path = directory.path().join("agent");
        assert!(Identity::load(&path).is_err());
        let made = Identity::load_or_create(&path).unwrap();
        let again = Identity::load_or_create(&path).unwrap();
        assert_eq!(made.fingerprint(), again.fingerprint());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("key"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        fs::set_permissions(path.join("key"), fs::Permissions::from_mode(0o640)).unwrap();
        let error = Identity::load(&path).unwrap_err().to_string();
        assert!(error.ends_with("its mode is 0640; 0600 would be right"), "{error}");
        fs::set_permissions(path.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        let error = Identity::load(&path).unwrap_err().to_string();
        assert!(error.contains("mode 0770") && error.ends_with("would be right"), "{error}");
        // Nor is a key made there.
        let open = directory.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Identity::load_or_create(&open).is_err());
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Identity::load(&path).unwrap().fingerprint(), made.fingerprint());
        fs::write(path.join("key"), "no key").unwrap();
        fs::set_permissions(path.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Identity::load(&path).is_err());
    }

    #[test]
    fn t0_fingerprints_are_written_and_read() {
        let some = Fingerprint::of_key(b"key");
        assert_eq!(some.to_string().parse::<Fingerprint>().unwrap(), some);
        for bad in ["", "12", &"g".repeat(64), &"1".repeat(63), &"\u{e9}".repeat(32)] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }
}
