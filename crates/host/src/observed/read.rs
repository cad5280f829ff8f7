// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Observing a host.
//!
//! Not here: comparing (`drift`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::Value;
use timewire_sys::namespace::Process;
use timewire_sys::scheduler::{self, Attributes};

use super::{Observed, Thread};
use crate::HostError;
use crate::apply::keeper;
use crate::journal::{self, boot_id, own_netns};
use crate::snapshot::Snapshot;
use crate::tool::{self, Tool};

/// Parts of a snapshot's settings that belong to the process that reads them, or are read here in
/// whole.
const NOT_OF_THE_HOST: [&[&str]; 6] = [
    &["host", "privilege"],
    &["host", "tools"],
    &["host", "sysctls"],
    &["host", "clock", "timer_slack_ns"],
    &["host", "scheduling", "locked_memory_bytes"],
    &["host", "scheduling", "rt_priority_limit"],
];
/// Kernel parameters are read below these.
const SYSCTLS: [&str; 3] = ["net", "kernel", "vm"];
/// Kernel parameters that the kernel itself changes.
const LIVE_SYSCTLS: [&str; 9] = [
    "kernel/random/",
    "kernel/ns_last_pid",
    "kernel/pty/nr",
    "kernel/perf_event_max_sample_rate",
    "kernel/tainted",
    "kernel/keys/",
    "net/netfilter/nf_conntrack_count",
    "net/ipv4/tcp_available_",
    "vm/stat_refresh",
];
/// Longer values are tables, not parameters. **Units**: bytes.
const VALUE_BYTES: usize = 4_096;
/// Of more threads the scheduling is not observed.
const MAX_THREADS: usize = 20_000;

impl Observed {
    /// This host and the calling process's network namespace.
    ///
    /// **Errors**: interfaces cannot be listed, or the records of changes cannot be read.
    pub fn of_this_host() -> Result<Observed, HostError> {
        let mut unknown = BTreeMap::new();
        let settings = serde_json::to_value(Snapshot::of_this_host(&[])?.settings);
        let mut settings = settings.expect("invariant: settings have a form in JSON");
        NOT_OF_THE_HOST.iter().for_each(|path| remove(&mut settings, path));
        if let Some(interfaces) = settings.get_mut("interfaces").and_then(Value::as_object_mut) {
            interfaces.values_mut().for_each(|interface| remove(interface, &["sysctls"]));
        }
        let mut network = BTreeMap::new();
        for (kind, read) in NETWORK {
            match read() {
                Ok(lines) => drop(network.insert(kind.to_owned(), lines)),
                Err(why) => drop(unknown.insert(kind.to_owned(), why)),
            }
        }
        let netns = own_netns()?;
        let mut threads = BTreeMap::new();
        if !threads_of(netns, &mut threads) {
            threads.clear();
            let why = format!("there are more than {MAX_THREADS}");
            unknown.insert("scheduling of threads".to_owned(), why);
        }
        let mut sysctls = BTreeMap::new();
        for below in SYSCTLS {
            sysctls_below(&Path::new("/proc/sys").join(below), below, &mut sysctls);
        }
        let applied = keeper::status()?.saved.map(|saved| saved.head.name);
        let owners = journal::owners(netns)?;
        let boot = boot_id()?;
        Ok(Observed { boot, settings, sysctls, network, threads, owners, applied, unknown })
    }

    /// The name of what is applied as a transaction.
    pub fn applied(&self) -> Option<&str> {
        self.applied.as_deref()
    }

    /// Whether the host was started again since.
    pub fn is_of_another_boot(&self) -> bool {
        boot_id().is_ok_and(|boot| boot != self.boot)
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    let Some((last, above)) = path.split_last() else { return };
    let above = above.iter().try_fold(value, |value, key| value.get_mut(key));
    if let Some(object) = above.and_then(Value::as_object_mut) {
        object.remove(*last);
    }
}

type Lines = Result<BTreeSet<String>, String>;
/// A name, and what reads it.
type Kind = (&'static str, fn() -> Lines);

/// What of the network belongs to no interface.
const NETWORK: [Kind; 4] = [
    ("rule", || words(&[&["-4", "rule", "show"], &["-6", "rule", "show"]])),
    ("route without an interface", || {
        let all: [&[&str]; 2] =
            [&["-4", "route", "show", "table", "all"], &["-6", "route", "show", "table", "all"]];
        let mut lines = words(&all)?;
        lines.retain(|line| !line.contains(" dev ") && !line.contains("expires "));
        Ok(lines)
    }),
    ("neighbour", || words(&[&["neigh", "show", "nud", "permanent"]])),
    ("network namespace", || {
        let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        Ok(names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }),
];

/// The lines of `ip` for these; a family that the kernel lacks has none.
fn words(all: &[&[&str]]) -> Lines {
    let mut lines = BTreeSet::new();
    for words in all {
        match tool::run(Tool::Ip, words) {
            Ok(text) => lines.extend(text.lines().map(|line| line.trim().to_owned())),
            Err(HostError::ToolMissing { .. }) => return Err("there is no `ip`".to_owned()),
            Err(_) if words[0] == "-6" => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(lines)
}

fn sysctls_below(directory: &Path, name: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if LIVE_SYSCTLS.iter().any(|live| name.starts_with(live)) {
            continue;
        }
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() {
            sysctls_below(&entry.path(), &name, found);
        } else if about.permissions().mode() & 0o444 != 0
            && let Ok(text) = fs::read_to_string(entry.path())
            && text.len() <= VALUE_BYTES
        {
            found.insert(name, text.trim_end().to_owned());
        }
    }
}

/// The threads of the processes of a network namespace, but for this one's; whether that is all.
fn threads_of(netns: u64, found: &mut BTreeMap<String, Thread>) -> bool {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let is_here = fs::metadata(entry.path().join("ns/net")).is_ok_and(|ns| ns.ino() == netns);
        // Threads of the kernel belong to the first namespace; what of them matters is in the
        // settings, and workers change theirs with their work.
        let is_kernel = fs::read(entry.path().join("cmdline")).is_ok_and(|words| words.is_empty());
        if !is_here || is_kernel || pid == std::process::id() {
            continue;
        }
        let Ok(process) = Process::of(pid) else { continue };
        for task in fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
                continue;
            };
            if let Some(thread) = thread(&task.path(), tid) {
                found.insert(format!("{pid}-{}/{tid}", process.start_ticks), thread);
            }
            if found.len() > MAX_THREADS {
                return false;
            }
        }
    }
    true
}

fn thread(task: &Path, tid: u32) -> Option<Thread> {
    let name = fs::read_to_string(task.join("comm")).ok()?.trim().to_owned();
    let Attributes { policy, nice, rt_priority, .. } = scheduler::attributes(tid).ok()?;
    let policy = match policy {
        0 => "SCHED_OTHER".to_owned(),
        1 => "SCHED_FIFO".to_owned(),
        2 => "SCHED_RR".to_owned(),
        3 => "SCHED_BATCH".to_owned(),
        5 => "SCHED_IDLE".to_owned(),
        6 => "SCHED_DEADLINE".to_owned(),
        other => format!("policy {other}"),
    };
    let cpus: Vec<String> =
        scheduler::affinity(tid).ok()?.iter().map(ToString::to_string).collect();
    let cpus = cpus.join(",");
    let scheduling = format!("{policy} {rt_priority}, nice {nice}, CPUs {cpus}");
    Some(Thread { name, scheduling })
}
