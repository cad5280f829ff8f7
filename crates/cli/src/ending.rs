// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The request to end, for verbs that compute: what computes asks in between whether to go on.
//!
//! Not here: the signals (`timewire_sys::event`).

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use timewire_sys::event::EndRequests;

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

    /// Whether one came, now or earlier.
    pub fn is_asked(&self) -> bool {
        if self.requests.take() {
            self.came.store(true, Ordering::Relaxed);
        }
        self.came.load(Ordering::Relaxed)
    }
}
