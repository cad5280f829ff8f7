// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end that has the files.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use timewire_sys::beneath::Beneath;

use super::manifest::{FileLimits, Manifest};
use super::{CHUNK_HEADER, Chunk, ENTRIES, Say, VERSION, Wanted, next, refused, say, tell};
use crate::links::error::{LinkError, protocol, system};
use crate::links::link::{Receiver, Sender};

/// Sends the files of a set from a directory, and returns when the receiver has them on its disk.
/// Nothing else may be sent on the link meanwhile.
///
/// **Errors**: the link; a file that cannot be read, or is not any more what the manifest says;
/// [`LinkError::Told`] when the receiver refuses. The link is of no use then.
pub fn send_files(
    sender: &Sender,
    receiver: &mut Receiver,
    root: &Path,
    manifest: &Manifest,
    limits: &FileLimits,
) -> Result<(), LinkError> {
    let sent = offer_and_send(sender, receiver, root, manifest, limits);
    sent.map_err(|error| tell(sender, error))
}

fn offer_and_send(
    sender: &Sender,
    receiver: &mut Receiver,
    root: &Path,
    manifest: &Manifest,
    limits: &FileLimits,
) -> Result<(), LinkError> {
    manifest.check(limits)?;
    let opened = Beneath::open(root);
    let beneath = opened.map_err(system(format!("read {}", root.display())))?;
    let mut rest = &manifest.files[..];
    loop {
        let (now, later) = rest.split_at(rest.len().min(ENTRIES));
        let more = !later.is_empty();
        say(sender, &Say::Offer { version: VERSION, files: now.to_vec(), more })?;
        rest = later;
        if !more {
            break;
        }
    }
    loop {
        let wanted = specs(receiver, manifest, limits)?;
        if wanted.is_empty() {
            return Ok(());
        }
        for spec in wanted {
            send_file(sender, receiver, (&beneath, root), manifest, spec, limits)?;
        }
    }
}

/// What the receiver wants next.
fn specs(
    receiver: &mut Receiver,
    manifest: &Manifest,
    limits: &FileLimits,
) -> Result<Vec<Wanted>, LinkError> {
    let mut wanted = Vec::new();
    loop {
        match Say::decode(&next(receiver, limits.timeout)?)? {
            Say::Want { files, more } => {
                wanted.extend(files);
                if wanted.len() > manifest.files.len() {
                    return Err(protocol("more files are wanted than were offered"));
                }
                if !more {
                    return Ok(wanted);
                }
            }
            Say::Refuse { why } => return Err(LinkError::told(&why)),
            Say::Offer { .. } => return Err(protocol("both ends offer files")),
        }
    }
}

fn send_file(
    sender: &Sender,
    receiver: &mut Receiver,
    (beneath, root): (&Beneath, &Path),
    manifest: &Manifest,
    spec: Wanted,
    limits: &FileLimits,
) -> Result<(), LinkError> {
    let entry = usize::try_from(spec.index).ok().and_then(|index| manifest.files.get(index));
    let entry = entry.ok_or_else(|| protocol("a file is wanted that was not offered"))?;
    if spec.from > entry.size {
        return Err(protocol("a file is wanted from behind its end"));
    }
    let reading = || system(format!("read {}", root.join(&entry.path).display()));
    let mut file = beneath.open_file(&entry.path).map_err(reading())?;
    file.seek(SeekFrom::Start(spec.from)).map_err(reading())?;
    let mut at = spec.from;
    let chunk = limits.chunk_bytes.min(sender.most_bytes().saturating_sub(CHUNK_HEADER)).max(1);
    let mut buffer = vec![0; chunk];
    while at < entry.size {
        let left = usize::try_from(entry.size - at).unwrap_or(usize::MAX).min(chunk);
        let count = read_up_to(&mut file, &mut buffer[..left]).map_err(reading())?;
        if count == 0 {
            return Err(refused(format!("`{}` became shorter meanwhile", entry.path)));
        }
        let part = Chunk { index: spec.index, at, bytes: &buffer[..count] };
        if let Err(error) = sender.send_within(&part.encode(), limits.timeout) {
            // A receiver that has gone may have said why.
            return Err(given_up(receiver).err().filter(is_told).unwrap_or(error));
        }
        at += u64::try_from(count).expect("invariant: at most the buffer");
        // It may have given up long before it has got everything.
        given_up(receiver)?;
    }
    Ok(())
}

/// Whether the receiver has said something in the middle of a file.
fn given_up(receiver: &mut Receiver) -> Result<(), LinkError> {
    let Some(message) = receiver.receive(Duration::ZERO)? else { return Ok(()) };
    Err(match Say::decode(&message)? {
        Say::Refuse { why } => LinkError::told(&why),
        other => protocol(format!("unexpected in the middle of a file: {other:?}")),
    })
}

fn is_told(error: &LinkError) -> bool {
    matches!(error, LinkError::Told { .. })
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut sum = 0;
    while sum < buffer.len() {
        match file.read(&mut buffer[sum..])? {
            0 => break,
            count => sum += count,
        }
    }
    Ok(sum)
}
