// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host was like before an experiment, on disk. Afterwards all that is found to undo is
//! undone, and what still differs is named.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::protocol::Restored;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use timewire_base::IfName;
use timewire_host::HostError;
use timewire_host::apply::applied::{self, Undoing};
use timewire_host::groups::{ModelStatus, RowStatus};
use timewire_host::observed::{Drift, Observed};

use super::ledger;
use super::running::UNDO_TIMEOUT;
use timewire_datapath::control::{self, Client};
use timewire_datapath::receive_priority::ReceiveError;
use timewire_datapath::{groups, receive_priority};

/// How long a host may take to be as it was when all is undone: the kernel gives an interface its
/// link-local address again and tries whether somebody has it.
const SETTLE: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A host before an experiment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Before {
    host: Observed,
    /// The rules of receive priority, by interface; none where they cannot be had.
    receive: Result<BTreeMap<String, Json>, String>,
    /// What was set of MACs that run here, by their names.
    macs: BTreeMap<String, BTreeMap<String, Json>>,
    /// The scheduling groups in force.
    groups: Option<Json>,
}

impl Before {
    /// This host now.
    ///
    /// **Errors**: it cannot be read.
    pub fn observe() -> Result<Before, String> {
        let host = Observed::of_this_host().map_err(|error| error.to_string())?;
        Ok(Before { host, receive: rules(), macs: macs(), groups: groups_in_force() })
    }

    /// Writes it, so that it is whole or not there.
    ///
    /// **Errors**: the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        ledger::replace(path, &bytes).map_err(|error| error.to_string())
    }

    /// What was written.
    ///
    /// **Errors**: nothing was, or something else.
    pub fn load(path: &Path) -> Result<Before, String> {
        let named = |error: String| format!("{}: {error}", path.display());
        let bytes = fs::read(path).map_err(|error| named(error.to_string()))?;
        serde_json::from_slice(&bytes).map_err(|error| named(error.to_string()))
    }

    /// Undoes what is found to undo, lets watchdogs do their work, and compares; what could not be
    /// undone and what differs. The programs of the experiment have ended.
    pub fn restore(&self, await_watchdogs: impl FnOnce() -> Vec<String>) -> Restored {
        let mut left = Vec::new();
        let is_comparable = !self.host.is_of_another_boot();
        if is_comparable {
            left.extend(self.undo_applied());
            left.extend(self.undo_receive());
        }
        left.extend(await_watchdogs());
        left.extend(recovered());
        let mut restored = if is_comparable { self.settled_drift() } else { Restored::default() };
        left.append(&mut restored.left);
        Restored { left, ..restored }
    }

    /// What differs once the host had time to settle.
    fn settled_drift(&self) -> Restored {
        let give_up = Instant::now() + SETTLE;
        let mut pause = POLL_INTERVAL;
        loop {
            let drift = match Before::observe() {
                Ok(now) => self.drift(&now),
                Err(why) => Restored {
                    left: vec![format!("it cannot be told whether the host is as before: {why}")],
                    not_compared: Vec::new(),
                },
            };
            let left = give_up.saturating_duration_since(Instant::now());
            if drift.left.is_empty() || left.is_zero() {
                return drift;
            }
            // An observation asks a score of programs.
            thread::sleep(pause.min(left));
            pause *= 2;
        }
    }

    fn undo_applied(&self) -> Vec<String> {
        let is_new = self.host.applied().is_none()
            && applied::status().is_ok_and(|status| status.saved.is_some());
        if !is_new {
            return Vec::new();
        }
        match when_free(UNDO_TIMEOUT, || applied::undo(true)) {
            Ok(Undoing::Done { undone, .. }) => {
                undone.left.iter().map(ToString::to_string).collect()
            }
            Ok(Undoing::Nothing | Undoing::Rebooted { .. }) => Vec::new(),
            Err(error) => vec![error.to_string()],
        }
    }

    fn undo_receive(&self) -> Vec<String> {
        let (Ok(before), Ok(now)) = (&self.receive, rules()) else { return Vec::new() };
        let new = now.keys().filter(|name| !before.contains_key(*name));
        let stop = |name: &String| match IfName::new(name).map(|name| receive_priority::stop(&name))
        {
            Ok(Err(error)) => Some(format!("receive priority on {name}: {error}")),
            // One that is gone has no name; what it left is removed by the next command.
            Ok(Ok(_)) | Err(_) => None,
        };
        new.filter_map(stop).collect()
    }

    fn drift(&self, now: &Before) -> Restored {
        let Drift { changed: mut found, mut not_compared } = self.host.drift(&now.host);
        match (&self.receive, &now.receive) {
            (Ok(before), Ok(now)) => differing(before, now, |name, how| {
                found.push(format!("receive priority on {name} {how}"));
            }),
            (Ok(_), Err(why)) => {
                found.push(format!("receive priority cannot be asked for: {why}"));
            }
            (Err(why), _) => not_compared.push(format!("rules of receive priority: {why}")),
        }
        for (name, before) in &self.macs {
            match now.macs.get(name) {
                None => found.push(format!("the MAC `{name}` has ended")),
                Some(now) => differing(before, now, |what, _| {
                    found.push(format!("the MAC `{name}` has another {what}"));
                }),
            }
        }
        // New ones have a process that goes on, and is told as such.
        if self.groups.is_some() && self.groups != now.groups {
            found.push("the scheduling groups are not those of before".to_owned());
        }
        Restored { left: found, not_compared }
    }
}

/// Does something to the host once no other process changes it: the watchdog of an agent that was
/// killed may be undoing the same.
fn when_free<T>(
    limit: Duration,
    mut act: impl FnMut() -> Result<T, HostError>,
) -> Result<T, HostError> {
    let give_up = Instant::now() + limit;
    loop {
        match act() {
            Err(HostError::Busy { .. }) if Instant::now() < give_up => thread::sleep(POLL_INTERVAL),
            done => return done,
        }
    }
}

/// Carries out the journals of processes that are gone; what could not be undone.
pub(super) fn recovered() -> Vec<String> {
    match timewire_host::recover() {
        Ok(found) => found.into_iter().flat_map(|found| found.failures).collect(),
        // Without a directory there is no journal.
        Err(HostError::NoRuntimeDir) => Vec::new(),
        Err(error) => vec![error.to_string()],
    }
}

/// Calls for each name whose value differs, with how.
fn differing(
    before: &BTreeMap<String, Json>,
    now: &BTreeMap<String, Json>,
    mut each: impl FnMut(&str, &str),
) {
    for (name, value) in before {
        match now.get(name) {
            None => each(name, "is gone"),
            Some(now) if now != value => each(name, "was changed"),
            Some(_) => {}
        }
    }
    now.keys().filter(|name| !before.contains_key(*name)).for_each(|name| each(name, "is new"));
}

fn rules() -> Result<BTreeMap<String, Json>, String> {
    let all = match receive_priority::show(None) {
        // Nothing that runs here can see or change any: they would be where it is not mounted.
        Err(ReceiveError::PrivateMounts { .. }) => Vec::new(),
        shown => shown.map_err(|error| error.to_string())?,
    };
    let one = |status: receive_priority::ReceiveStatus| {
        let rules = json!({"mode": status.mode, "receive": status.receive});
        (status.interface, rules)
    };
    Ok(all.into_iter().map(one).collect())
}

/// What is set of the MACs of this network namespace.
fn macs() -> BTreeMap<String, BTreeMap<String, Json>> {
    let netns = |pid: &str| fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|ns| ns.ino());
    let mut found = BTreeMap::new();
    for name in control::running().unwrap_or_default() {
        // One that ends at this moment does not answer.
        let Ok(status) = Client::new(&name).status() else { continue };
        if netns(&status.pid.to_string()) != netns("self") {
            continue;
        }
        // One that is to come, comes by itself.
        let schedule = status.next_schedule.as_ref().or(status.schedule.as_ref());
        let members: Vec<u32> = status.members.iter().map(|member| member.pid).collect();
        let set = [
            ("schedule", json!(schedule)),
            ("list of send priorities", json!(status.send)),
            ("list of receive priorities", json!(status.recv)),
            ("priority group", json!(members)),
        ];
        found.insert(name, set.map(|(what, value)| (what.to_owned(), value)).into());
    }
    found
}

fn groups_in_force() -> Option<Json> {
    match groups::ask(&groups::GroupRequest::Show) {
        Ok(groups::GroupResponse::Status { status }) => Some(shape(&status)),
        // None are in force, or none can be.
        _ => None,
    }
}

/// What was asked of groups and their members, without how they are.
fn shape(status: &ModelStatus) -> Json {
    let row = |row: &RowStatus| match row {
        RowStatus::Group { group } => group.clone(),
        RowStatus::Member(member) => member.asked.clone(),
    };
    json!({"pid": status.pid, "rows": status.rows.iter().map(row).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_who_changes_the_host_is_waited_for_but_not_for_ever() {
        let mut asked = 0;
        let done = when_free(UNDO_TIMEOUT, || {
            asked += 1;
            if asked < 3 { Err(HostError::Busy { pid: 1 }) } else { Ok(asked) }
        });
        assert!(matches!(done, Ok(3)), "{done:?}");
        let busy = when_free(Duration::ZERO, || Err::<(), _>(HostError::Busy { pid: 1 }));
        assert!(matches!(busy, Err(HostError::Busy { pid: 1 })), "{busy:?}");
        let other = when_free(UNDO_TIMEOUT, || Err::<(), _>(HostError::NothingToConfirm));
        assert!(matches!(other, Err(HostError::NothingToConfirm)), "{other:?}");
    }
}
