// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `ptp4l`s that run here and where each takes questions: those that Timewire started or
//! watches, those of others, and what listens at the usual places.

use std::path::{Path, PathBuf};

use serde::Serialize;
use timewire_base::IfName;
use timewire_host::clock::client::Client;
use timewire_host::clock::rivals::{self, Management};
use timewire_sys::phc::{NicClock, timestamp_abilities};

use super::status;

/// Where a `ptp4l` listens that nobody told otherwise.
pub const USUAL_SOCKETS: [&str; 2] = ["/run/ptp4l", "/var/run/ptp4l"];

/// A `ptp4l`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ptp4l {
    /// Where it takes questions.
    pub socket: PathBuf,
    /// Its process, where that is known.
    pub pid: Option<u32>,
    /// The clock of Timewire that started or watches it.
    pub watched_as: Option<String>,
    /// The NIC's clock that it steers, `/dev/ptpN`; `None` when that is the system's.
    pub phc: Option<u32>,
}

impl Ptp4l {
    /// In words: whose it is.
    pub fn whose(&self) -> String {
        let process = self.pid.map_or(String::new(), |pid| format!(" (process {pid})"));
        match &self.watched_as {
            Some(name) => format!("ptp4l of the clock `{name}`{process}"),
            None => format!("ptp4l{process}"),
        }
    }
}

/// All that are found, those of Timewire first.
pub fn ptp4l_instances() -> Vec<Ptp4l> {
    let rivals = rivals::find(&[]);
    let processes: Vec<Management> = rivals.iter().filter_map(rivals::management).collect();
    let mut watched = Vec::new();
    for name in status::running().unwrap_or_default() {
        if let Ok(status) = status::find(Some(&name)) {
            watched.push((name, PathBuf::from(status.socket)));
        }
    }
    let usual = USUAL_SOCKETS.iter().map(PathBuf::from).collect();
    joined(watched, &processes, usual, phc_of)
}

/// Each once, by the place of its socket.
fn joined(
    watched: Vec<(String, PathBuf)>,
    processes: &[Management],
    usual: Vec<PathBuf>,
    phc_of: impl Fn(&Management) -> Option<u32>,
) -> Vec<Ptp4l> {
    let real = |path: &Path| path.canonicalize().ok();
    let mut found: Vec<Ptp4l> = Vec::new();
    let named = watched.into_iter().map(|(name, socket)| (Some(name), socket));
    let others = processes.iter().map(|process| (None, process.socket.clone()));
    for (watched_as, socket) in named.chain(others).chain(usual.into_iter().map(|it| (None, it))) {
        let Some(place) = real(&socket) else { continue };
        if found.iter().any(|known| real(&known.socket).as_ref() == Some(&place)) {
            continue;
        }
        let process = processes.iter().find(|it| real(&it.socket).as_ref() == Some(&place));
        let (pid, phc) = (process.map(|it| it.pid), process.and_then(&phc_of));
        found.push(Ptp4l { socket, pid, watched_as, phc });
    }
    found
}

/// The clock of the first of its interfaces, when the NIC takes its timestamps.
fn phc_of(process: &Management) -> Option<u32> {
    let first = process.interfaces.first().filter(|_| !process.software)?;
    timestamp_abilities(&IfName::new(first).ok()?).ok()?.phc
}

/// One that answers, and the NIC's clock that it steers.
#[derive(Debug)]
pub struct Asked {
    /// Who is asked.
    pub client: Client,
    /// That clock; `None` when it steers the system's.
    pub nic: Option<NicClock>,
}

/// The first that answers, Timewire's own before others; `None` when none does.
pub fn ask_any() -> Option<Asked> {
    let directory = timewire_host::journal::runtime_dir().ok()?;
    std::fs::create_dir_all(&directory).ok()?;
    // Two in one process must not take each other's answers.
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let own = directory.join(format!("question-{}-{count}", std::process::id()));
    ptp4l_instances().into_iter().find_map(|found| {
        // Without the clock that it steers nothing is known of the system's.
        let nic = found.phc.map(NicClock::open).transpose().ok()?;
        Some(Asked { client: Client::find(&found.socket, &own).ok()?, nic })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_each_ptp4l_is_found_once() {
        let place = std::env::temp_dir().join(format!("timewire-ptp4l-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let socket = |name: &str| {
            std::fs::write(place.join(name), "").unwrap();
            place.join(name)
        };
        let (ours, theirs, usual) = (socket("ours"), socket("theirs"), socket("usual"));
        std::os::unix::fs::symlink(&usual, place.join("same")).unwrap();
        let process = |pid, socket: &Path, software| Management {
            pid,
            socket: socket.to_owned(),
            software,
            interfaces: vec!["eth0".to_owned()],
        };
        let processes = [
            process(7, &ours, true),
            process(8, &theirs, false),
            process(9, &place.join("gone"), true),
        ];
        let watched = vec![("clock".to_owned(), ours.clone()), ("old".to_owned(), place.join("x"))];
        let usuals = vec![usual.clone(), place.join("same"), place.join("nowhere")];
        let phc = |process: &Management| (!process.software).then_some(3);
        let found = joined(watched, &processes, usuals, phc);
        let watched_as = Some("clock".to_owned());
        let expected = [
            Ptp4l { socket: ours, pid: Some(7), watched_as, phc: None },
            Ptp4l { socket: theirs, pid: Some(8), watched_as: None, phc: Some(3) },
            Ptp4l { socket: usual, pid: None, watched_as: None, phc: None },
        ];
        assert_eq!(found, expected);
        assert_eq!(found[0].whose(), "ptp4l of the clock `clock` (process 7)");
        std::fs::remove_dir_all(&place).unwrap();
    }
}
