// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writing records to a file while traffic runs, without making the measured thread wait: it hands
//! a record to a bounded queue, and another thread writes blocks. What does not fit is counted and
//! goes into the file as lost.
//!
//! A killed program keeps all but its last moments: open blocks are written every
//! [`FLUSH`] milliseconds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use timewire_capture::record::{Encoder, Record, RecordHeader};

/// Records that can wait for the writing thread: half a second of a busy segment.
const WAITING: usize = 32_768;
/// How often open blocks are written, milliseconds.
const FLUSH: u64 = 10;

/// The measured thread's end. Dropping it without [`Recorder::finish`] leaves a valid file that
/// says it was cut short.
#[derive(Debug)]
pub struct Recorder {
    queue: SyncSender<Record>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    lost: AtomicU64,
    finished: AtomicBool,
}

impl Recorder {
    /// Creates the file and starts the writing thread.
    pub fn create(path: &Path, header: &RecordHeader) -> io::Result<Recorder> {
        let (encoder, first) = Encoder::new(header).map_err(io::Error::other)?;
        let file = File::create(path)?;
        file.write_all_at(&first, 0)?;
        let (queue, waiting) = sync_channel(WAITING);
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("tw-recorder".to_owned())
            .spawn(move || write(&file, encoder, &waiting, &theirs))?;
        Ok(Recorder { queue, shared, writer: Some(writer) })
    }

    /// Hands over one record; never waits.
    pub fn push(&self, record: Record) {
        if self.queue.try_send(record).is_err() {
            self.add_lost(1);
        }
    }

    /// Counts timestamps that could not be taken.
    pub fn add_lost(&self, count: u64) {
        self.shared.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// Writes everything and closes the file properly.
    ///
    /// **Errors**: the first failure to write, now or earlier.
    pub fn finish(mut self) -> io::Result<()> {
        self.shared.finished.store(true, Ordering::Release);
        let writer = self.writer.take().expect("invariant: finished once");
        writer.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))
    }
}

fn write(
    file: &File,
    mut encoder: Encoder,
    waiting: &Receiver<Record>,
    shared: &Shared,
) -> io::Result<()> {
    let mut told = 0;
    loop {
        // Read before the queue is emptied: what was pushed before "finished" is then still seen.
        let finished = shared.finished.load(Ordering::Acquire);
        let owner_gone = loop {
            match waiting.try_recv() {
                Ok(record) => {
                    if let Some(block) = encoder.push(&record) {
                        file.write_all_at(block.bytes, block.offset)?;
                    }
                }
                Err(TryRecvError::Empty) => break false,
                Err(TryRecvError::Disconnected) => break true,
            }
        };
        let lost = shared.lost.load(Ordering::Relaxed);
        encoder.add_lost(lost - told);
        told = lost;
        if finished {
            let last = encoder.finish(0);
            return file.write_all_at(&last.bytes[..], last.offset);
        }
        if let Some(block) = encoder.flush() {
            file.write_all_at(block.bytes, block.offset)?;
        }
        if owner_gone {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(FLUSH));
    }
}
