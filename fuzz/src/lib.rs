// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What several targets need: checksums that fit, so that what stands behind them is reached, and
//! files for readers that take a path.

pub mod hosts;

use std::path::PathBuf;
use std::sync::OnceLock;

/// A capture whose checksums fit, whatever its blocks have.
pub fn capture_with_sums(bytes: &[u8]) -> Vec<u8> {
    const HEAD: usize = 64;
    let mut bytes = bytes.to_vec();
    let (mut at, mut capture) = (16, None);
    while at + HEAD <= bytes.len() {
        if bytes[at..at + 8] != *b"\x89TWB\r\n\x1a\n" {
            at += 1;
            continue;
        }
        let length = usize::try_from(u32_at(&bytes, at + 12)).unwrap_or(usize::MAX);
        let end = (at + HEAD).saturating_add(length).min(bytes.len());
        let crc = crc32fast::hash(&bytes[at + HEAD..end]).to_le_bytes();
        let capture = *capture.get_or_insert(crc);
        bytes[at + 16..at + 20].copy_from_slice(&capture);
        bytes[at + 56..at + 60].copy_from_slice(&crc);
        let crc = crc32fast::hash(&bytes[at..at + 60]).to_le_bytes();
        bytes[at + 60..at + 64].copy_from_slice(&crc);
        at = end;
    }
    bytes
}

/// A record file whose checksums fit, and whose blocks are whole.
pub fn records_with_sums(bytes: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 4_096;
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    if bytes.len() < BLOCK {
        return bytes;
    }
    let header = usize::from(u16::from_le_bytes([bytes[10], bytes[11]])) * BLOCK;
    if header == 0 || header > bytes.len() {
        return bytes;
    }
    let crc = crc_without(&bytes[..header], 20);
    bytes[20..24].copy_from_slice(&crc);
    for block in bytes[header..].chunks_mut(BLOCK) {
        let crc = crc_without(block, 4);
        block[4..8].copy_from_slice(&crc);
    }
    bytes
}

fn crc_without(bytes: &[u8], at: usize) -> [u8; 4] {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes[..at]);
    crc.update(&bytes[at + 4..]);
    crc.finalize().to_le_bytes()
}

/// A journal of an experiment whose checksums fit.
pub fn journal_with_sums(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match line.split_at_checked(9) {
            Some((_, rest)) => {
                let json = rest.strip_suffix(b"\n").unwrap_or(rest);
                out.extend(format!("{:08x} ", crc32fast::hash(json)).into_bytes());
                out.extend(rest);
            }
            None => out.extend(line),
        }
    }
    out
}

/// **Panics**: there are not four bytes there.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("invariant: four bytes"))
}

/// A file of this process in memory, written anew.
///
/// **Panics**: there is no `/dev/shm` that can be written.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory().join(name);
    std::fs::write(&path, bytes).expect("invariant: /dev/shm can be written");
    path
}

/// A directory of this process in memory. What is left of it when the process ends stays there, and
/// `cargo xtask fuzz` removes it.
///
/// **Panics**: there is no `/dev/shm` that can be written.
pub fn directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let path = PathBuf::from(format!("/dev/shm/timewire-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("invariant: /dev/shm can be written");
        path
    })
}

/// What is printed about mistakes is sane.
///
/// **Panics**: it is not.
pub fn check_errors(errors: &timewire_model::scenario::ScenarioErrors) {
    let print = errors.to_string();
    assert!(!errors.errors.is_empty(), "refused without a reason");
    assert!(print.chars().all(|c| c == '\n' || !c.is_control()), "{print:?}");
    for error in &errors.errors {
        assert!(error.line >= 1 && error.column >= 1, "{error:?}");
        assert!(error.mark_start + error.mark_width <= 121, "{error:?}");
    }
}

/// What stands between the lines `---` of an input.
pub fn parts(data: &[u8]) -> Vec<&[u8]> {
    const LINE: &[u8] = b"\n---\n";
    let (mut parts, mut rest) = (Vec::new(), data);
    while let Some(at) = rest.windows(LINE.len()).position(|some| some == LINE) {
        parts.push(&rest[..=at]);
        rest = &rest[at + LINE.len()..];
    }
    parts.push(rest);
    parts
}
