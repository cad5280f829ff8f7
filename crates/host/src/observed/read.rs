// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Observing a host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::Value;
use timewire_sys::namespace::Process;
use timewire_sys::scheduler::{self, Attributes};

use super::{Observed, Thread};
use crate::HostError;
use crate::apply::applied;
use crate::journal::{self, boot_id, own_netns};
use crate::snapshot::source::{Live, Output, Question, Source, with_own_sysfs};
use crate::snapshot::{KERNEL_THREADS_UNSEEN, Reading, Snapshot};
use crate::tool::{self, Tool};

/// Parts of a snapshot's settings that belong to the process that reads them, are the kernel's own
/// or are read here in whole.
const NOT_OF_THE_HOST: [&[&str]; 7] = [
    &["host", "privilege"],
    &["host", "tools"],
    &["host", "sysctls"],
    &["host", "clock", "timer_slack_ns"],
    // The kernel drops those that turn out to be worse.
    &["host", "clock", "available_sources"],
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
/// Cannot be read until it is set: linux v6.12 `net/ipv6/addrconf.c:addrconf_sysctl_stable_secret`.
const STABLE_SECRET: &str = "/stable_secret";
const EIO: i32 = 5;
/// Of a longer value a checksum is kept. **Units**: bytes.
const VALUE_BYTES: usize = 4_096;
/// Of more threads the scheduling is not observed.
const MAX_THREADS: usize = 20_000;

impl Observed {
    /// This host and the calling process's network namespace.
    ///
    /// **Errors**: interfaces cannot be listed, or the records of changes cannot be read.
    pub fn of_this_host() -> Result<Observed, HostError> {
        let mut unknown = BTreeMap::new();
        let settings = with_own_sysfs(|| Snapshot::read(&Changeable, &[]))?.settings;
        let settings = serde_json::to_value(settings);
        let mut settings = settings.expect("invariant: settings have a form in JSON");
        // Programs of a namespace that does not see them cannot change them either.
        let softirq = settings.pointer("/host/softirq_threads/unreadable");
        if softirq.is_some_and(|why| why == KERNEL_THREADS_UNSEEN) {
            remove(&mut settings, &["host", "softirq_threads"]);
        }
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
            let root = Path::new("/proc/sys").join(below);
            sysctls_below(&root, below, &mut sysctls, &mut unknown);
        }
        let applied = applied::status()?.saved.map(|saved| saved.transaction.name);
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

/// This host, not asked for what no command changes. A process for each answer, of a score for
/// every interface, is most of the time of an observation.
struct Changeable;

impl Source for Changeable {
    fn read(&self, path: &str) -> Reading<String> {
        Live.read(path)
    }

    fn list(&self, path: &str) -> Reading<Vec<String>> {
        Live.list(path)
    }

    fn link(&self, path: &str) -> Reading<String> {
        Live.link(path)
    }

    fn run(&self, words: &[&str]) -> Reading<Output> {
        let lasts = match words {
            // The version of a tool; the counters of a driver.
            [_, "-V" | "-v" | "--version"] | ["ethtool", "-S", _] => true,
            // The loopback interface has no hardware.
            ["ethtool", option, "lo"] => *option != "-k",
            ["ethtool", "lo"] => true,
            _ => false,
        };
        if lasts { not_asked() } else { Live.run(words) }
    }

    fn ask(&self, question: Question<'_>) -> Reading<Value> {
        match question {
            Question::KernelConfig => not_asked(),
            other => Live.ask(other),
        }
    }
}

fn not_asked<T>() -> Reading<T> {
    Reading::Absent("no command changes it".to_owned())
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
        let names = match fs::read_dir("/run/netns") {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(format!("/run/netns: {error}")),
        };
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
        };
        names.map(name).collect::<Result<_, _>>().map_err(|error| format!("/run/netns: {error}"))
    }),
];

/// The lines of `ip` for these; a family, or a kind of line, that the kernel lacks has none.
fn words(all: &[&[&str]]) -> Lines {
    let mut lines = BTreeSet::new();
    for words in all {
        match tool::run(Tool::Ip, words) {
            Ok(text) => lines.extend(text.lines().map(|line| line.trim().to_owned())),
            Err(HostError::ToolMissing { .. }) => return Err("there is no `ip`".to_owned()),
            Err(error) if is_not_supported(&error.to_string()) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(lines)
}

/// Whether the kernel lacks what `ip` asked for (`EOPNOTSUPP`, `EAFNOSUPPORT`).
fn is_not_supported(error: &str) -> bool {
    ["Operation not supported", "Address family not supported"].iter().any(|it| error.contains(it))
}

/// Reads those that can be read at all. One that this process has no right to read, its programs
/// cannot change either.
fn sysctls_below(
    directory: &Path,
    name: &str,
    found: &mut BTreeMap<String, String>,
    unknown: &mut BTreeMap<String, String>,
) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if LIVE_SYSCTLS.iter().any(|live| name.starts_with(live)) {
            continue;
        }
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() {
            sysctls_below(&entry.path(), &name, found, unknown);
            continue;
        }
        if about.permissions().mode() & 0o444 == 0 {
            continue;
        }
        match fs::read(entry.path()) {
            Ok(bytes) => drop(found.insert(name, sysctl_value(&bytes))),
            // A secret that nobody has set.
            Err(error) if error.raw_os_error() == Some(EIO) && name.ends_with(STABLE_SECRET) => {
                found.insert(name, "not set".to_owned());
            }
            // Gone with its interface or module meanwhile, or of another owner.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
            Err(error) => {
                unknown.insert(format!("sysctl {}", name.replace('/', ".")), error.to_string());
            }
        }
    }
}

/// A value as it is kept.
fn sysctl_value(bytes: &[u8]) -> String {
    if bytes.len() > VALUE_BYTES {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        return format!("{} bytes, checksum {:016x}", bytes.len(), hasher.finish());
    }
    String::from_utf8_lossy(bytes).trim_end().to_owned()
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
