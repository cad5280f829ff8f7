// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several kernels on one simulated segment: every station is a kernel of its own, with its own
//! clock, and the segment between them and the time of all are simulated here. What the stations
//! run is real: the kernel, its queueing disciplines, the programs. What is between them is exact:
//! the instant of every bit.
//!
//! Nothing depends on the host's speed or on the order in which it runs processes. One kernel runs
//! at a time, until it waits; all it does is done at one simulated instant (`driver`). There are no
//! threads.
//!
//! ```text
//!   kernel --- time-travel socket ----- master of time ---.
//!     |                                  (timewire-sim)    >- driver
//!   virtio_net --- vhost-user socket --- NIC --- segment-'
//!                  shared memory                (timewire-sim)
//! ```
//!
//! Not here: starting a kernel and what it does first (`super::Machine`, `crate::guest`), what
//! decides about time and frames (`timewire-sim`).

mod calendar;
mod driver;
mod nic;
mod station;
mod trace;
mod wire;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use timewire_base::wire::MacAddress;
use timewire_base::{Instant, Span, StationName, Tai};
use timewire_sim::{SegmentConfig, StationClock};
use timewire_sys::event::EndRequests;
use timewire_sys::scheduler;

use driver::Driver;
use station::StationPlatform;

use super::Kernel;
use crate::LabError;
use crate::cache::Work;

/// Version of the summary.
pub const SUMMARY_SCHEMA: &str = "timewire.segment-summary/1";
/// Most stations of a laboratory.
pub const MAX_STATIONS: usize = 24;
/// Most pairs of queues of a station's NIC.
pub const MAX_QUEUES: u16 = 16;

/// A segment and the stations on it.
#[derive(Clone, Debug)]
pub struct SegmentLab {
    /// What is between the stations.
    pub segment: SegmentConfig,
    /// In the order in which they run when they want to run at the same instant.
    pub stations: Vec<KernelStation>,
    /// When the simulation starts. The stations' clocks show it plus their offsets.
    pub epoch: Instant<Tai>,
    /// When, by its own clock, each station starts its command; before that it boots.
    pub start: Span,
    /// What still runs after so long, from the epoch on, is ended, by the station's own clock.
    pub duration: Option<Span>,
    /// What the stations' commands find in their environment beside the usual.
    pub environment: Vec<(String, String)>,
    /// On the host: a station that computes for so long at one simulated instant has failed.
    pub timeout: Duration,
}

/// A station that is a kernel of its own.
#[derive(Clone, Debug)]
pub struct KernelStation {
    /// Its name.
    pub name: StationName,
    /// Address of its NIC, `eth0`.
    pub mac: MacAddress,
    /// Its address on the segment and the length of the prefix.
    pub address: (Ipv4Addr, u8),
    /// Its clock: `CLOCK_REALTIME` and `CLOCK_TAI` alike.
    pub clock: StationClock,
    /// Pairs of queues of its NIC.
    pub queues: u16,
    /// **Units**: MiB.
    pub memory_mib: u32,
    /// What it runs: a program of the host and its arguments. When that ends, it is switched off.
    pub run: Vec<String>,
}

/// How it went; `summary.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// [`SUMMARY_SCHEMA`].
    pub schema: &'static str,
    /// The kernel that all stations ran.
    pub kernel: String,
    /// From the epoch to the end. **Units**: nanoseconds.
    pub simulated_ns: u64,
    /// Of the host, from the start of the kernels. **Units**: nanoseconds.
    pub host_ns: u64,
    /// Frames that crossed a link, as often as they did.
    pub passages: u64,
    /// Whether it was ended on request before all commands or the duration had.
    pub ended_early: bool,
    /// In the order of the description.
    pub stations: Vec<StationSummary>,
}

/// How a station fared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StationSummary {
    /// Which.
    pub name: StationName,
    /// Of its command; `None` when it was ended after the duration.
    pub exit_code: Option<u8>,
    /// What its command wrote.
    pub output: PathBuf,
    /// Its errors.
    pub errors: PathBuf,
    /// Frames it sent.
    pub frames_sent: u64,
    /// Of these, those that found another station's frame on the medium.
    pub found_busy: u64,
    /// Frames that arrived at it,
    pub frames_received: u64,
    /// those that arrived when its driver had no buffer,
    pub no_buffer: u64,
    /// those that were lost on a link to it, or from it to the switch,
    pub lost: u64,
    /// and those for which the switch had no room.
    pub queue_full: u64,
}

impl SegmentLab {
    /// A laboratory that starts with the year 2026 and gives its stations a second to boot.
    pub fn new(segment: SegmentConfig, stations: Vec<KernelStation>) -> SegmentLab {
        SegmentLab {
            segment,
            stations,
            epoch: Instant::from_ns(1_767_225_600_000_000_000),
            start: Span::from_secs(1),
            duration: None,
            environment: Vec::new(),
            timeout: Duration::from_secs(60),
        }
    }

    /// Runs all stations to their ends. `init` is a program that begins with
    /// [`crate::enter_guest`]; `out` gets `segment.jsonl`, `segment.pcapng`, `summary.json`, and a
    /// directory for each station, in which its command starts and may write, with `stdout` and
    /// `stderr`.
    ///
    /// **Errors**: the description cannot be, the kernel has no virtual time, a station's kernel
    /// failed (its name and last words are in the error), all stations sleep for ever, or it was
    /// asked to end before all kernels had begun. No station is left running.
    pub fn run(
        &self,
        kernel: &Kernel,
        init: &Path,
        out: &Path,
        end: Option<&EndRequests>,
    ) -> Result<Summary, LabError> {
        self.check()?;
        // The names of sockets are limited to 107 bytes; this one is short.
        let scratch = Work::below(&std::env::temp_dir(), "timewire-segment")?;
        let pinned = Pinned::here();
        fs::create_dir_all(out).map_err(LabError::file("create", out))?;
        let out = fs::canonicalize(out).map_err(LabError::file("find", out))?;
        let place =
            StationPlatform { kernel, init, scratch: scratch.path(), out: &out, cpu: pinned.cpu };
        let summary = Driver::start(self, &place, end)?.run()?;
        let path = out.join("summary.json");
        let text = serde_json::to_string_pretty(&summary).expect("invariant: plain values");
        fs::write(&path, text + "\n").map_err(LabError::file("write", &path))?;
        Ok(summary)
    }

    /// Whether the description can be.
    ///
    /// **Errors**: it cannot.
    pub fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Spec { why });
        if self.stations.is_empty() {
            return refuse("a segment without stations".to_owned());
        }
        if self.stations.len() > MAX_STATIONS {
            let count = self.stations.len();
            return refuse(format!("{count} stations; there is room for {MAX_STATIONS}"));
        }
        for (i, station) in self.stations.iter().enumerate() {
            let name = &station.name;
            let same = |other: &&KernelStation| {
                other.name == *name
                    || other.mac == station.mac
                    || other.address.0 == station.address.0
            };
            if let Some(other) = self.stations[..i].iter().find(same) {
                return refuse(format!("{name} has name, MAC or address of {}", other.name));
            }
            if !station.mac.is_of_one_station() {
                return refuse(format!("{name}: its MAC is no address of a single station"));
            }
            if station.queues == 0 || station.queues > MAX_QUEUES {
                let queues = station.queues;
                return refuse(format!("{name}: {queues} queues; it goes from 1 to {MAX_QUEUES}"));
            }
            if station.run.is_empty() {
                return refuse(format!("{name} has nothing to run"));
            }
        }
        if self.segment.delay.is_negative() || self.start.is_negative() {
            return refuse("a delay or a start before zero".to_owned());
        }
        Ok(())
    }
}

/// The calling thread on one CPU of the host. The kernels and this thread hand over to each other
/// and never run at the same time, which on one CPU takes less time than on several.
#[derive(Debug)]
struct Pinned {
    cpu: Option<u32>,
    before: Vec<u32>,
}

impl Pinned {
    /// Where this is not allowed, it is slower.
    fn here() -> Pinned {
        let before = scheduler::affinity(0).unwrap_or_default();
        let turn = usize::try_from(std::process::id()).unwrap_or(0);
        let cpu = before.get(turn % before.len().max(1)).copied();
        let cpu = cpu.filter(|cpu| scheduler::set_affinity(0, &[*cpu]).is_ok());
        Pinned { cpu, before }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.cpu.is_some() {
            // It was allowed before.
            let _ = scheduler::set_affinity(0, &self.before);
        }
    }
}
