// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When an address ends: its lifetimes go on while it is somewhere else.

use std::fs;

use serde::{Deserialize, Serialize};

/// How long the kernel has run, sleep included. **Units**: seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uptime(u64);

impl Uptime {
    /// Now; the start where the kernel does not tell.
    ///
    /// **Source**: `proc(5)`, `/proc/uptime`.
    pub fn now() -> Uptime {
        let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds = text.split('.').next().and_then(|seconds| seconds.parse().ok());
        Uptime(seconds.unwrap_or(0))
    }

    /// So many seconds after the start.
    pub fn of_seconds(seconds: u64) -> Uptime {
        Uptime(seconds)
    }

    /// So many seconds later. **Units**: seconds of uptime.
    pub fn after(self, seconds: u64) -> u64 {
        self.0.saturating_add(seconds)
    }
}

/// When an address ends, in seconds of uptime; what is absent has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expiry {
    /// When it goes.
    pub valid_s: Option<u64>,
    /// When it is no longer used for new connections.
    pub preferred_s: Option<u64>,
}

impl Expiry {
    /// As `ip address add` takes what is left of it; `None` when it has ended.
    pub fn words(self, Uptime(now): Uptime) -> Option<String> {
        let left = |end: Option<u64>| end.map(|end| end.saturating_sub(now));
        let text = |left: Option<u64>| left.map_or("forever".to_owned(), |left| left.to_string());
        let (valid, preferred) = (left(self.valid_s), left(self.preferred_s));
        (valid != Some(0))
            .then(|| format!(" valid_lft {} preferred_lft {}", text(valid), text(preferred)))
    }
}
