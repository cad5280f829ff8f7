// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captured frames in files that Wireshark and `tcpdump` read. The receiving thread writes blocks
//! of the format into memory that it has, and another thread writes the memory to the file; what
//! has no room there is counted as lost.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::listen::Arrival;
use timewire_capture::pcapng::{
    CaptureClock, Direction, Interface, InterfaceStatistics, Packet, Section,
};
use timewire_sys::clock;

use super::TrafficError;
use crate::DatapathError;

/// Where captured frames go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureOptions {
    /// The file.
    pub path: PathBuf,
    /// A file of so many bytes is followed by another, numbered one; without it, one takes all.
    pub most_bytes: Option<u64>,
    /// Only so many files are kept, the last ones.
    pub most_files: Option<u32>,
}

/// Of the memory between the two threads.
const PIECE: usize = 256 << 10;
const PIECES: usize = 32;
/// More than the blocks that begin a file take.
const BEGINNING: usize = 4 << 10;
/// Numbers of the interfaces in a file: one for each clock.
const HOST_CLOCK: u32 = 0;
const NIC_CLOCK: u32 = 1;

/// A capture that goes on. Dropping it leaves files without the counters at their end.
#[derive(Debug)]
pub(super) struct Capture {
    piece: Piece,
    empty: Receiver<Piece>,
    full: Option<SyncSender<Piece>>,
    writer: Option<JoinHandle<io::Result<u32>>>,
    path: PathBuf,
    captured: u64,
    lost: u64,
}

/// Memory on its way between the two threads.
#[derive(Debug)]
struct Piece {
    bytes: Box<[u8]>,
    used: usize,
}

impl Piece {
    fn new() -> Piece {
        Piece { bytes: vec![0; PIECE].into_boxed_slice(), used: 0 }
    }
}

impl Capture {
    /// Creates the first file.
    ///
    /// **Errors**: it cannot be created.
    pub(super) fn create(
        options: &CaptureOptions,
        interface: &str,
        source: &str,
    ) -> Result<Capture, TrafficError> {
        let mut files = Files {
            options: options.clone(),
            beginning: beginning(interface, source),
            number: 0,
            written: 0,
            file: None,
        };
        let opened = files.next();
        opened.map_err(|error| {
            TrafficError::Ctl(DatapathError::file("create", &options.path)(error))
        })?;
        let (give_back, empty) = sync_channel(PIECES);
        let (full, waiting) = sync_channel::<Piece>(PIECES);
        for _ in 1..PIECES {
            let _ = give_back.try_send(Piece::new());
        }
        let writer = std::thread::Builder::new().name("tw-capture".to_owned());
        let writer = writer.spawn(move || {
            for mut piece in waiting {
                files.put(&piece.bytes[..piece.used])?;
                piece.used = 0;
                // The other side is gone when it has finished.
                let _ = give_back.try_send(piece);
            }
            files.close()?;
            Ok(files.number)
        });
        let writer = writer.map_err(TrafficError::system("start the thread that captures"))?;
        let piece = Piece::new();
        let path = options.path.clone();
        let (writer, full) = (Some(writer), Some(full));
        Ok(Capture { piece, empty, full, writer, path, captured: 0, lost: 0 })
    }

    /// Takes a frame, by its best timestamp: of the NIC, or else the driver, the kernel, the
    /// program.
    pub(super) fn take(&mut self, arrival: &Arrival<'_>) {
        let of_host = arrival.driver.or(arrival.kernel).unwrap_or(arrival.user);
        let (interface, at_ns) = match arrival.hardware_ns {
            Some(ns) => (NIC_CLOCK, ns),
            None => (HOST_CLOCK, of_host.as_ns()),
        };
        let packet = Packet {
            interface,
            at_ns,
            frame: arrival.bytes,
            original_len: arrival.length,
            direction: Some(Direction::Inbound),
            packet_id: None,
            comment: "",
        };
        if self.put(|room| packet.write(room)) {
            self.captured += 1;
        } else {
            self.lost += 1;
        }
    }

    fn put(
        &mut self,
        write: impl Fn(&mut [u8]) -> Result<usize, timewire_capture::pcapng::PcapngError>,
    ) -> bool {
        for is_new in [false, true] {
            if is_new && !self.pass_on() {
                return false;
            }
            let Piece { bytes, used } = &mut self.piece;
            if let Ok(written) = write(&mut bytes[*used..]) {
                *used += written;
                return true;
            }
        }
        false
    }

    /// Gives the piece to the writing thread, if there is another one.
    pub(super) fn pass_on(&mut self) -> bool {
        if self.piece.used == 0 {
            return true;
        }
        let Ok(next) = self.empty.try_recv() else { return false };
        let piece = std::mem::replace(&mut self.piece, next);
        // As many fit as there are, so it fails only when the writer is gone, and says why then.
        self.full.as_ref().is_some_and(|full| full.try_send(piece).is_ok())
    }

    /// Frames in files, and frames that found no room.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.captured, self.lost)
    }

    /// Writes all that is left and the counters, and closes the file; how many files there were.
    ///
    /// **Errors**: a file could not be written, now or earlier.
    pub(super) fn finish(mut self, dropped: u64) -> Result<u32, TrafficError> {
        let counters = InterfaceStatistics {
            interface: HOST_CLOCK,
            at_ns: clock::now::<timewire_base::Tai>().as_ns(),
            received: Some(self.captured + self.lost),
            dropped: Some(dropped + self.lost),
        };
        self.put(|room| counters.write(room));
        if let Some(full) = self.full.take() {
            // Waits: the writer takes all that is there.
            let _ = full.send(std::mem::replace(&mut self.piece, Piece::new()));
        }
        let writer = self.writer.take().expect("invariant: finished once");
        let done = writer.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
        done.map_err(|error| TrafficError::Ctl(DatapathError::file("write", &self.path)(error)))
    }
}

/// The blocks that begin each file.
fn beginning(interface: &str, source: &str) -> Vec<u8> {
    let mut bytes = vec![0; BEGINNING];
    let application = concat!("timewire ", env!("CARGO_PKG_VERSION"));
    let section = Section { application, os: "Linux", ..Section::default() };
    let ahead_s = i32::try_from(clock::tai_offset().as_ns() / 1_000_000_000).unwrap_or(0);
    let host = Interface {
        name: interface,
        description: &format!("{source}; timestamps of this host's kernel"),
        snap_len: 0,
        clock: CaptureClock::Tai { ahead_s },
    };
    let nic = format!("{source}; timestamps of the NIC's own clock");
    let nic = Interface { description: &nic, clock: CaptureClock::Other, ..host };
    let fits = "invariant: names of an interface and a source are short";
    let mut length = section.write(&mut bytes).expect(fits);
    for one in [host, nic] {
        length += one.write(&mut bytes[length..]).expect(fits);
    }
    bytes.truncate(length);
    bytes
}

/// The files, one after the other.
#[derive(Debug)]
struct Files {
    options: CaptureOptions,
    beginning: Vec<u8>,
    /// Of the one that is open, counted from 1.
    number: u32,
    written: u64,
    file: Option<File>,
}

impl Files {
    fn put(&mut self, piece: &[u8]) -> io::Result<()> {
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        let begun = u64::try_from(self.beginning.len()).unwrap_or(u64::MAX);
        let is_full = |most| self.written > begun && self.written + length > most;
        if self.options.most_bytes.is_some_and(is_full) {
            self.next()?;
        }
        self.written += length;
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(piece))
    }

    fn next(&mut self) -> io::Result<()> {
        self.close()?;
        self.number += 1;
        let mut file = File::create(self.path(self.number))?;
        file.write_all(&self.beginning)?;
        self.written = u64::try_from(self.beginning.len()).unwrap_or(u64::MAX);
        self.file = Some(file);
        let oldest = self.options.most_files.and_then(|most| self.number.checked_sub(most));
        match oldest {
            Some(oldest @ 1..) => fs::remove_file(self.path(oldest)),
            _ => Ok(()),
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), |mut file| file.flush())
    }

    /// The first of several files has a number, too: `NAME-00001.pcapng`.
    fn path(&self, number: u32) -> PathBuf {
        if self.options.most_bytes.is_none() {
            return self.options.path.clone();
        }
        numbered(&self.options.path, number)
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let (stem, extension) = (text(path.file_stem()), text(path.extension()));
    let dot = if extension.is_empty() { "" } else { "." };
    path.with_file_name(format!("{stem}-{number:05}{dot}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_base::Instant;

    #[test]
    fn t0_files_are_numbered_before_their_ending() {
        for (path, second) in [("a/b.pcapng", "a/b-00002.pcapng"), ("b", "b-00002")] {
            assert_eq!(numbered(Path::new(path), 2), Path::new(second));
        }
    }

    #[test]
    fn t1_full_files_are_followed_by_others_and_the_last_ones_stay() {
        let name = format!("timewire-capture-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        let options = CaptureOptions {
            path: directory.join("c.pcapng"),
            most_bytes: Some(400 << 10),
            most_files: Some(2),
        };
        let mut capture = Capture::create(&options, "eth9", "frames of eth9").unwrap();
        let frame = [0x55; 1_000];
        let arrival = Arrival {
            bytes: &frame,
            length: 1_000,
            from: None,
            tag: None,
            hardware_ns: None,
            driver: None,
            kernel: Some(Instant::from_ns(1_700_000_000_123_456_789)),
            user: Instant::from_ns(1_700_000_000_123_460_000),
        };
        // Waits for room: a test on a busy disk loses none.
        let mut taken = 0;
        while taken < 1_500 {
            capture.take(&arrival);
            taken = capture.counts().0;
        }
        let files = capture.finish(3).unwrap();
        assert!(files >= 4, "{files} files of 1.5 MB");
        let mut names: Vec<_> = fs::read_dir(&directory).unwrap().flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        assert_eq!(names.len(), 2);
        assert_eq!(names[1].path(), directory.join(format!("c-{files:05}.pcapng")));
        for name in names {
            let bytes = fs::read(name.path()).unwrap();
            assert!(bytes.len() <= 400 << 10, "{} bytes", bytes.len());
            assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
            assert!(bytes.windows(4).any(|four| four == b"eth9"));
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
