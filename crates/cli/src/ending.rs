// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The request to end, which every command that takes long hears: SIGINT, SIGTERM, SIGHUP.
//!
//! What computes asks in between whether to go on ([`Ending::is_asked`]), what reads a file reads
//! it through [`Ending::reading`], and what has nothing to keep ends at once ([`exit_on_request`]).

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context;
use timewire_base::Span;
use timewire_sys::event::{EndRequests, wait_readable};

use crate::new_file;

/// What is said of a verb that was ended.
pub const WORDS: &str = "ended on request";
/// Its exit code.
pub const CODE: u8 = 2;

/// Whether somebody asked this process to end.
pub struct Ending {
    requests: EndRequests,
    came: AtomicBool,
}

impl Ending {
    /// From now on SIGINT, SIGTERM and SIGHUP do not end the process by themselves.
    pub fn new() -> anyhow::Result<Ending> {
        let requests = EndRequests::new().context("cannot wait for signals")?;
        Ok(Ending { requests, came: AtomicBool::new(false) })
    }

    /// Whether one came since the last question: for what follows on work that was ended.
    pub fn is_asked_anew(&self) -> bool {
        let came = self.requests.take();
        self.came.fetch_or(came, Ordering::Relaxed);
        came
    }

    /// The one of this process, from the first call on.
    ///
    /// **Errors**: as [`Ending::new`].
    pub fn of_this_process() -> anyhow::Result<&'static Ending> {
        static OF_THIS: OnceLock<Ending> = OnceLock::new();
        if let Some(ending) = OF_THIS.get() {
            return Ok(ending);
        }
        let ending = Ending::new()?;
        Ok(OF_THIS.get_or_init(|| ending))
    }

    /// Whether one came, now or earlier.
    pub fn is_asked(&self) -> bool {
        self.is_asked_anew() || self.came.load(Ordering::Relaxed)
    }

    /// Waits for so long, or until somebody asks; whether that was so.
    pub fn rest(&self, time: Span) -> bool {
        if !self.is_asked() {
            // Ended early by a signal that is none of ours, it is only a little shorter.
            let _ = wait_readable(&[self.requests.as_fd()], Some(time));
        }
        self.is_asked()
    }

    /// A file that has come to its end once somebody asks, also while nothing comes from it.
    pub fn reading<R: Read + AsFd>(&self, file: R) -> Reading<'_, R> {
        Reading { file, ending: self }
    }
}

/// See [`Ending::reading`].
pub struct Reading<'a, R> {
    file: R,
    ending: &'a Ending,
}

impl<R: Read + AsFd> Read for Reading<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.ending.is_asked() {
                return Ok(0);
            }
            if wait_readable(&[self.file.as_fd()], Some(Span::ZERO))? {
                return self.file.read(buffer);
            }
            wait_readable(&[self.file.as_fd(), self.ending.requests.as_fd()], None)?;
        }
    }
}

/// For commands that change nothing and have nothing to keep: from now on a request ends this
/// process, which says so. Files that are being written are not there then.
///
/// **Errors**: as [`Ending::new`]; there is no thread for it.
pub fn exit_on_request() -> anyhow::Result<()> {
    on_request(|| {
        new_file::remove_unfinished();
        say!("error: {WORDS}");
        std::process::exit(i32::from(CODE));
    })
}

/// From now on a request to end has this done, in a thread of its own.
///
/// **Errors**: as [`exit_on_request`].
pub fn on_request(what: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let wait = move || {
        while !requests.take() {
            // An error would be that the kernel has no memory for it; then it is tried again.
            let _ = wait_readable(&[requests.as_fd()], None);
        }
        what();
    };
    let thread = thread::Builder::new().name("signals".to_owned()).spawn(wait);
    thread.map(drop).context("cannot start a thread")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn t0_a_file_is_read_to_its_end_and_no_further_once_asked() {
        let ending = Ending::new().unwrap();
        let open = || File::open("/proc/self/exe").unwrap();
        let mut whole = Vec::new();
        ending.reading(open()).read_to_end(&mut whole).unwrap();
        assert_eq!(u64::try_from(whole.len()).unwrap(), open().metadata().unwrap().len());
        ending.came.store(true, Ordering::Relaxed);
        assert_eq!(ending.reading(open()).read(&mut [0; 8]).unwrap(), 0);
    }
}
