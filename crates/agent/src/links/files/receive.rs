// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end that gets the files: beside their places first, whole and checked into them afterwards.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ring::digest::{Context, SHA256};
use timewire_sys::beneath::Beneath;
use timewire_sys::namespace::try_lock;

use super::manifest::{FileEntry, FileLimits, Manifest, PARTS};
use super::{
    Chunk, ENTRIES, SAY, Say, VERSION, Wanted, hash_into, hash_of, next, refused, say, tell,
};
use crate::links::error::{LinkError, protocol, system};
use crate::links::identity::{digest_bytes, hex};
use crate::links::link::{Receiver, Sender};

/// Takes the files that the other end sends into a directory, which must exist, and returns what
/// was sent when all of it is on the disk. Files of the same content that are there already stay;
/// others of these paths are replaced, each at once.
///
/// **Errors**: the link; a set that is refused, and then nothing was written; a file that cannot be
/// written, or that has not the content it should have. Files that are whole by then are in place;
/// the rest goes on where it was when the same is sent again. The link is of no use then.
pub fn receive_files(
    sender: &Sender,
    receiver: &mut Receiver,
    into: &Path,
    limits: &FileLimits,
) -> Result<Manifest, LinkError> {
    let received = take_all(sender, receiver, into, limits);
    received.map_err(|error| tell(sender, error))
}

fn take_all(
    sender: &Sender,
    receiver: &mut Receiver,
    into: &Path,
    limits: &FileLimits,
) -> Result<Manifest, LinkError> {
    let manifest = offered(receiver, limits)?;
    let store = Store::open(into)?;
    // What a cut transfer left may be wrong; then once from the start.
    for round in 0..2 {
        let wanted = store.wanted(&manifest, round == 0)?;
        if wanted.is_empty() {
            break;
        }
        ask(sender, &wanted)?;
        for spec in &wanted {
            let index = usize::try_from(spec.index).expect("invariant: an index of the manifest");
            let entry = &manifest.files[index];
            let whole = take_file(receiver, &store, entry, *spec, limits)?;
            if !whole && spec.from == 0 {
                let path = &entry.path;
                return Err(refused(format!("`{path}` has not the content that was announced")));
            }
        }
    }
    store.place_copies(&manifest)?;
    store.finish(&manifest)?;
    ask(sender, &[])?;
    Ok(manifest)
}

fn offered(receiver: &mut Receiver, limits: &FileLimits) -> Result<Manifest, LinkError> {
    let mut manifest = Manifest::default();
    loop {
        match Say::decode(&next(receiver, limits.timeout)?)? {
            Say::Offer { version, .. } if version != VERSION => {
                return Err(protocol(format!("files of version {version}, known is {VERSION}")));
            }
            Say::Offer { files, more, .. } => {
                manifest.files.extend(files);
                // Before the next part, so that no more is kept than may be.
                manifest.check(limits)?;
                if !more {
                    return Ok(manifest);
                }
            }
            Say::Refuse { why } => return Err(LinkError::told(&why)),
            Say::Want { .. } => return Err(protocol("both ends want files")),
        }
    }
}

fn ask(sender: &Sender, mut wanted: &[Wanted]) -> Result<(), LinkError> {
    loop {
        let (now, later) = wanted.split_at(wanted.len().min(ENTRIES));
        let more = !later.is_empty();
        say(sender, &Say::Want { files: now.to_vec(), more })?;
        wanted = later;
        if !more {
            return Ok(());
        }
    }
}

/// Takes one file; whether it is whole and in place.
fn take_file(
    receiver: &mut Receiver,
    store: &Store,
    entry: &FileEntry,
    spec: Wanted,
    limits: &FileLimits,
) -> Result<bool, LinkError> {
    let mut part = store.part(entry, spec.from)?;
    while part.at < entry.size {
        let message = next(receiver, limits.timeout)?;
        if message.first() == Some(&SAY) {
            return Err(match Say::decode(&message)? {
                Say::Refuse { why } => LinkError::told(&why),
                other => protocol(format!("unexpected in the middle of a file: {other:?}")),
            });
        }
        let chunk = Chunk::decode(&message)?;
        let length = u64::try_from(chunk.bytes.len()).expect("invariant: a message's part");
        let fits = length > 0 && length <= entry.size - part.at;
        if chunk.index != spec.index || chunk.at != part.at || !fits {
            return Err(protocol("a chunk that does not follow the one before it"));
        }
        part.file.write_all(chunk.bytes).map_err(store.writing(&entry.path))?;
        part.hash.update(chunk.bytes);
        part.at += length;
    }
    store.place(entry, part)
}

/// The directory that files go to.
struct Store {
    beneath: Beneath,
    root: String,
    /// Paths whose content was seen to be right.
    known: RefCell<BTreeSet<String>>,
    /// Locked for as long as files are received here.
    _parts: File,
}

/// A file that is not whole yet.
struct Part {
    file: File,
    /// How much of it there is. **Units**: bytes.
    at: u64,
    hash: Context,
}

impl Store {
    fn open(into: &Path) -> Result<Store, LinkError> {
        let root = into.display().to_string();
        let doing = || system(format!("write to {root}"));
        let beneath = Beneath::open(into).map_err(doing())?;
        beneath.make_directory(PARTS, 0o700).map_err(doing())?;
        let parts = beneath.directory(PARTS).map_err(doing())?;
        if !try_lock(&parts).map_err(doing())? {
            return Err(refused(format!("files are being received into {root} already")));
        }
        Ok(Store { beneath, root, known: RefCell::default(), _parts: parts })
    }

    fn writing(&self, path: &str) -> impl FnOnce(io::Error) -> LinkError {
        system(format!("write {}/{path}", self.root))
    }

    /// What is not there yet, each content once; from where it was left when that is trusted.
    fn wanted(&self, manifest: &Manifest, resume: bool) -> Result<Vec<Wanted>, LinkError> {
        let mut wanted = Vec::new();
        // What is there under another path is copied.
        let mut settled = BTreeSet::new();
        for entry in &manifest.files {
            if self.has(entry)? {
                settled.insert(entry.sha256.as_str());
            }
        }
        for (index, entry) in manifest.files.iter().enumerate() {
            if !settled.insert(entry.sha256.as_str()) {
                continue;
            }
            let from = if resume { self.left(entry) } else { 0 };
            let index = u32::try_from(index).map_err(|_| refused("too many files"))?;
            wanted.push(Wanted { index, from });
        }
        Ok(wanted)
    }

    /// Whether a file is in place with the content it should have.
    fn has(&self, entry: &FileEntry) -> Result<bool, LinkError> {
        if self.known.borrow().contains(&entry.path) {
            return Ok(true);
        }
        let Ok(mut file) = self.beneath.open_file(&entry.path) else {
            // Whatever is there instead: putting the file in place will tell.
            return Ok(false);
        };
        let reading = || system(format!("read {}/{}", self.root, entry.path));
        if file.metadata().map_err(reading())?.len() != entry.size {
            return Ok(false);
        }
        let same = hex(&hash_of(&mut file, entry.size).map_err(reading())?) == entry.sha256;
        if same {
            self.known.borrow_mut().insert(entry.path.clone());
        }
        Ok(same)
    }

    /// How much of a file a transfer that was cut has left.
    fn left(&self, entry: &FileEntry) -> u64 {
        let part = self.beneath.open_file(&part_path(entry));
        let length = part.and_then(|part| part.metadata()).map_or(0, |metadata| metadata.len());
        if length <= entry.size { length } else { 0 }
    }

    /// Opens what is there of a file, or begins it.
    fn part(&self, entry: &FileEntry, from: u64) -> Result<Part, LinkError> {
        let path = part_path(entry);
        let doing = || self.writing(&path);
        let mut hash = Context::new(&SHA256);
        if from > 0 {
            let mut file = self.beneath.open_file_to_write(&path).map_err(doing())?;
            hash_into(&mut hash, &mut file, from).map_err(doing())?;
            file.seek(SeekFrom::Start(from)).map_err(doing())?;
            return Ok(Part { file, at: from, hash });
        }
        match self.beneath.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(doing()(error)),
            _ => {}
        }
        let file = self.beneath.create_file(&path, 0o600).map_err(doing())?;
        Ok(Part { file, at: 0, hash })
    }

    /// Puts a file in its place when its content is right; else what there is of it goes.
    fn place(&self, entry: &FileEntry, part: Part) -> Result<bool, LinkError> {
        let path = part_path(entry);
        let doing = || self.writing(&entry.path);
        if hex(&digest_bytes(&part.hash.finish())) != entry.sha256 {
            self.beneath.remove_file(&path).map_err(doing())?;
            return Ok(false);
        }
        let mode = Permissions::from_mode(entry.mode);
        part.file.set_permissions(mode).map_err(doing())?;
        part.file.sync_all().map_err(doing())?;
        self.make_parents(&entry.path)?;
        self.beneath.rename(&path, &entry.path).map_err(doing())?;
        self.known.borrow_mut().insert(entry.path.clone());
        Ok(true)
    }

    fn make_parents(&self, path: &str) -> Result<(), LinkError> {
        for (at, _) in path.match_indices('/') {
            let parent = &path[..at];
            self.beneath.make_directory(parent, 0o755).map_err(self.writing(parent))?;
        }
        Ok(())
    }

    /// Puts files in place whose content came under another path.
    fn place_copies(&self, manifest: &Manifest) -> Result<(), LinkError> {
        let mut sources = BTreeMap::new();
        for entry in &manifest.files {
            if self.has(entry)? {
                sources.entry(entry.sha256.as_str()).or_insert(entry.path.as_str());
            }
        }
        for entry in &manifest.files {
            let Some(source) = sources.get(entry.sha256.as_str()) else {
                return Err(refused(format!("`{}` did not come", entry.path)));
            };
            if self.has(entry)? {
                continue;
            }
            let doing = || self.writing(&entry.path);
            let mut from = self.beneath.open_file(source).map_err(doing())?;
            let mut part = self.part(entry, 0)?;
            io::copy(&mut from, &mut part.file).map_err(doing())?;
            part.file.seek(SeekFrom::Start(0)).map_err(doing())?;
            hash_into(&mut part.hash, &mut part.file, entry.size).map_err(doing())?;
            if !self.place(entry, part)? {
                return Err(refused(format!("`{source}` changed meanwhile")));
            }
        }
        Ok(())
    }

    /// Sets the permissions of files that were there, and brings all of it to the disk.
    fn finish(&self, manifest: &Manifest) -> Result<(), LinkError> {
        let mut directories = BTreeSet::from([""]);
        for entry in &manifest.files {
            let doing = || self.writing(&entry.path);
            let file = self.beneath.open_file(&entry.path).map_err(doing())?;
            let mode = file.metadata().map_err(doing())?.permissions().mode() & 0o7777;
            if mode != entry.mode {
                file.set_permissions(Permissions::from_mode(entry.mode)).map_err(doing())?;
            }
            file.sync_all().map_err(doing())?;
            directories.extend(entry.path.match_indices('/').map(|(at, _)| &entry.path[..at]));
        }
        for directory in directories {
            let doing = || self.writing(directory);
            self.beneath.directory(directory).and_then(|of| of.sync_all()).map_err(doing())?;
        }
        // Parts of other sets may be there, which may go on some day.
        let _ = self.beneath.remove_directory(PARTS);
        Ok(())
    }
}

fn part_path(entry: &FileEntry) -> String {
    format!("{PARTS}/{}", entry.sha256)
}
