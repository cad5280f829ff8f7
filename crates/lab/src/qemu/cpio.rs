// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An archive of files as a kernel unpacks it into its first root file system: `cpio` in its `newc`
//! form, uncompressed. Archives may follow one another.
//!
//! **Source**: linux v6.12 Documentation/driver-api/early-userspace/buffer-format.rst

use std::collections::BTreeSet;

/// An archive that grows by one file after the other.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    inodes: u32,
}

/// What an entry is, as the upper bits of its mode.
const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Archive {
    /// Adds a file, and the directories above it. `path` has no leading slash.
    ///
    /// **Panics** when it is longer than the format can say: 4 GiB.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.parents(path);
        self.entry(path, REGULAR | permissions, (0, 0), content);
    }

    /// Adds a directory, and those above it.
    pub fn directory(&mut self, path: &str) {
        self.parents(path);
        if self.directories.insert(path.to_owned()) {
            self.entry(path, DIRECTORY, (0, 0), &[]);
        }
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.parents(path);
        self.directories.insert(path.to_owned());
        self.entry(path, LINK, (0, 0), target.as_bytes());
    }

    /// Adds a character device.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.parents(path);
        self.entry(path, CHARACTER_DEVICE, (major, minor), &[]);
    }

    /// The finished archive. **Shape**: a multiple of 512 bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        let whole = self.bytes.len().next_multiple_of(512);
        self.bytes.resize(whole, 0);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            let above = path[..end].to_owned();
            if self.directories.insert(above.clone()) {
                self.entry(&above, DIRECTORY, (0, 0), &[]);
            }
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.inodes += 1;
        let length = |bytes: usize| {
            u32::try_from(bytes).expect("invariant: no file of a start-up archive has 4 GiB")
        };
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let (size, name_size) = (length(content.len()), length(path.len() + 1));
        let fields = [
            // Inode, mode, user, group, links, time of change, size, the device it is on.
            [self.inodes, mode, 0, 0, links, 0, size, 0],
            // The device's other half, the device it is, length of the name, no checksum.
            [0, device.0, device.1, name_size, 0, 0, 0, 0],
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields.iter().flatten().take(FIELDS) {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        let whole = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(whole, 0);
    }
}

const FIELDS: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of an archive: path, mode, content. Written from the format, apart from the
    /// writer.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * index..14 + 8 * index]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size) = (field(1), usize::try_from(field(6)).unwrap());
            let name_size = usize::try_from(field(11)).unwrap();
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            let content = (110 + name_size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return found;
            }
            found.push((name, mode, bytes[content..content + size].to_vec()));
            bytes = &bytes[(content + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn t0_an_archive_reads_back_with_every_directory_before_its_files() {
        let mut archive = Archive::default();
        archive.file("a/b/one", 0o755, b"12345");
        archive.file("a/b/two", 0o644, b"");
        archive.directory("a/c");
        archive.device("dev/console", 5, 1);
        archive.link("bin", "usr/bin");
        archive.file("bin/sh", 0o755, b"");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 512, 0);
        let entries = read(&bytes);
        let names: Vec<_> = entries.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(
            names,
            ["a", "a/b", "a/b/one", "a/b/two", "a/c", "dev", "dev/console", "bin", "bin/sh"]
        );
        assert_eq!(entries[7], ("bin".to_owned(), 0o120_777, b"usr/bin".to_vec()));
        assert_eq!(entries[2], ("a/b/one".to_owned(), 0o100_755, b"12345".to_vec()));
        assert_eq!(entries[6].1, 0o020_600);
    }

    #[test]
    fn t0_archives_may_follow_one_another() {
        let (mut first, mut second) = (Archive::default(), Archive::default());
        first.file("one", 0o644, b"1");
        second.file("two", 0o644, b"2");
        let first = first.finish();
        let length = first.len();
        let both = [first, second.finish()].concat();
        assert_eq!(read(&both)[0].0, "one");
        assert_eq!(read(&both[length..])[0].0, "two");
    }
}
