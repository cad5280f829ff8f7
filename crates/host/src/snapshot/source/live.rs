// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This host, as it is now.
//!
//! What `/sys` tells about interfaces is about the network namespace in which it was mounted, and
//! that need not be the caller's: [`with_own_sysfs`] and [`in_network`] mount one for a thread.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde::Serialize;
use serde_json::{Value, json};
use timewire_base::{IfName, Utc};
use timewire_sys::generic::{Answer, Family};
use timewire_sys::hardware_clock::HardwareClock;
use timewire_sys::namespace::{self, Namespace, OnParentDeath};
use timewire_sys::netlink::Attributes;
use timewire_sys::nic::{self, Direction};
use timewire_sys::{clock, interface_index};

use super::{KernelThread, Output, Poll, Question, Source, config, merge};
use crate::HostError;
use crate::snapshot::Reading;

/// This host, in the calling thread's namespaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

/// Does something on a thread whose `/sys` tells about the caller's network namespace. Where none
/// can be mounted, `/sys` stays what it is.
///
/// **Panics** when the work does.
pub fn with_own_sysfs<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let inside = || {
        mount_own_sysfs();
        work()
    };
    let result = thread::scope(|scope| scope.spawn(inside).join());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Does something on a thread inside a network namespace, with a `/sys` that tells about it.
///
/// **Errors**: the namespace cannot be opened or entered.
///
/// **Panics** when the work does.
pub fn in_network<T: Send>(netns: &Path, work: impl FnOnce() -> T + Send) -> Result<T, HostError> {
    let file = File::open(netns).map_err(|source| HostError::file("open", netns, source))?;
    let inside = || {
        namespace::enter_network(file.as_fd())?;
        mount_own_sysfs();
        Ok(work())
    };
    let result = thread::scope(|scope| scope.spawn(inside).join());
    result
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(|source| HostError::file("enter network namespace", netns, source))
}

/// Without the right to mount nothing changes; the reader finds out what `/sys` is about.
fn mount_own_sysfs() {
    let mounted = namespace::unshare(&[Namespace::Mount])
        .and_then(|()| namespace::make_mounts_private())
        .and_then(|()| namespace::mount_sysfs(Path::new("/sys")));
    drop(mounted);
}

impl Source for Live {
    fn read(&self, path: &str) -> Reading<String> {
        // Some files of the kernel end in the middle of a character.
        let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        reading(text.map(|text| text.trim_end_matches(['\n', ' ', '\t', '\0']).to_owned()))
    }

    fn list(&self, path: &str) -> Reading<Vec<String>> {
        let names = fs::read_dir(path).and_then(|entries| {
            let name = |entry: io::Result<fs::DirEntry>| {
                Ok(entry?.file_name().to_string_lossy().into_owned())
            };
            let mut names = entries.map(name).collect::<io::Result<Vec<_>>>()?;
            names.sort();
            Ok(names)
        });
        reading(names)
    }

    fn link(&self, path: &str) -> Reading<String> {
        reading(fs::read_link(path).map(|target| target.to_string_lossy().into_owned()))
    }

    fn run(&self, words: &[&str]) -> Reading<Output> {
        let Some((program, arguments)) = words.split_first() else {
            return Reading::Unreadable("no program was named".to_owned());
        };
        let Some(path) = find(program) else {
            return Reading::Unreadable(format!("`{program}` is not installed"));
        };
        let mut command = Command::new(path);
        command.args(arguments).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = namespace::spawn(command, None, OnParentDeath::Kill)
            .and_then(std::process::Child::wait_with_output);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        match ended {
            Ok(output) => Reading::Known(Output {
                code: output.status.code(),
                stdout: text(&output.stdout),
                stderr: text(&output.stderr),
            }),
            Err(error) => Reading::Unreadable(format!("`{program}` does not start: {error}")),
        }
    }

    fn ask(&self, question: Question<'_>) -> Reading<Value> {
        match question {
            Question::Now => Reading::Known(json!(clock::now::<Utc>().as_ns())),
            Question::Clock => reading(clock_state()),
            Question::CpuDmaLatency => reading(dma_latency()),
            Question::KernelConfig => config::read(self).map(to_json),
            Question::KernelThreads => kernel_threads().map(to_json),
            Question::ClockPrograms => reading(clock_programs()),
            Question::User => Reading::Known(json!(namespace::effective_user())),
            Question::TimestampFilters(interface) => reading(timestamp_filters(interface)),
            Question::Polls(interface) => reading(polls(interface).map(to_json)),
            Question::TcxPrograms(interface) => tcx(interface),
            Question::MacMerge(interface) => reading(merge::of(interface).map(to_json)),
            Question::CrossTimestamps(index) => {
                let clock = HardwareClock::open(Path::new(&format!("/dev/ptp{index}")));
                let found = clock.and_then(|clock| clock.abilities());
                reading(found.map(|found| json!(found.cross_timestamps)))
            }
        }
    }
}

fn to_json(value: impl Serialize) -> Value {
    serde_json::to_value(value).expect("invariant: these types have a form in JSON")
}

/// What the system says about a thing that it cannot show.
fn reading<T>(result: io::Result<T>) -> Reading<T> {
    let error = match result {
        Ok(value) => return Reading::Known(value),
        Err(error) => error,
    };
    let absent = [
        libc_code::ENOENT,
        libc_code::ENXIO,
        libc_code::ENODEV,
        libc_code::EINVAL,
        libc_code::ENOTDIR,
        libc_code::ENOTTY,
        libc_code::EOPNOTSUPP,
        libc_code::ENOSYS,
    ];
    let why = match error.raw_os_error() {
        Some(libc_code::ENOENT) => "there is no such thing".to_owned(),
        _ => error.to_string(),
    };
    match error.raw_os_error() {
        Some(code) if absent.contains(&code) => Reading::Absent(why),
        _ => Reading::Unreadable(why),
    }
}

/// Linux' numbers of errors that say that there is no such thing (`asm-generic/errno.h`).
mod libc_code {
    pub const ENOENT: i32 = 2;
    pub const ENXIO: i32 = 6;
    pub const ENODEV: i32 = 19;
    pub const ENOTDIR: i32 = 20;
    pub const EINVAL: i32 = 22;
    pub const ENOTTY: i32 = 25;
    pub const ENOSYS: i32 = 38;
    pub const EOPNOTSUPP: i32 = 95;
}

/// The first of `PATH`, then of the directories for administrators.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    dirs.map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}

fn clock_state() -> io::Result<Value> {
    let state = clock::discipline()?;
    Ok(json!({
        "synchronised": state.synchronised,
        "max_error_ns": state.max_error,
        "estimated_error_ns": state.estimated_error,
        "offset_ns": state.offset,
        "frequency_ppb": state.frequency_ppb,
        "tai_offset_ns": state.tai_offset,
    }))
}

/// Opening it asks for nothing, and closing it takes nothing away.
fn dma_latency() -> io::Result<Value> {
    let mut bytes = [0; 4];
    File::open("/dev/cpu_dma_latency")?.read_exact(&mut bytes)?;
    Ok(json!(i32::from_ne_bytes(bytes)))
}

fn timestamp_filters(interface: &str) -> io::Result<Value> {
    let filters = nic::timestamp_filters(&named(interface)?)?;
    Ok(json!({"tx": filters.tx, "rx": filters.rx}))
}

fn named(interface: &str) -> io::Result<IfName> {
    IfName::new(interface).map_err(|error| io::Error::other(error.to_string()))
}

const SERVING: [&str; 6] = ["irq/", "napi/", "ksoftirqd/", "ktimers/", "rcuc/", "rcub/"];

fn kernel_threads() -> Reading<Vec<KernelThread>> {
    let mut found = Vec::new();
    let mut any = false;
    for (pid, stat) in processes() {
        let Some((name, fields)) = stat_fields(&stat) else { continue };
        let field = |at: usize| fields.get(at - 3).copied().unwrap_or_default();
        // Field 9 has the flags: PF_KTHREAD.
        any |= field(9).parse::<u64>().is_ok_and(|flags| flags & 0x0020_0000 != 0);
        if !SERVING.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        found.push(KernelThread {
            pid,
            name: name.to_owned(),
            policy: field(41).parse().unwrap_or_default(),
            priority: field(40).parse().unwrap_or_default(),
            nice: field(19).parse().unwrap_or_default(),
            cpus: cpus.unwrap_or_default().trim().to_owned(),
        });
    }
    found.sort_by(|a, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    if any { Reading::Known(found) } else { Reading::Unreadable(KERNEL_THREADS_UNSEEN.to_owned()) }
}

/// The numbers of all processes, and their `stat`.
fn processes() -> impl Iterator<Item = (u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)))
}

/// The name of a process, and the fields after it, from the third on.
fn stat_fields(stat: &str) -> Option<(&str, Vec<&str>)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, fields) = rest.rsplit_once(')')?;
    Some((name, fields.split_whitespace().collect()))
}

const CLOCK_PROGRAMS: [&str; 9] = [
    "ptp4l",
    "phc2sys",
    "ts2phc",
    "timemaster",
    "chronyd",
    "ntpd",
    "ntp-daemon",
    "statime",
    "systemd-timesyn",
];

fn clock_programs() -> io::Result<Value> {
    fs::read_dir("/proc")?;
    let mut names: Vec<String> = processes()
        .filter_map(|(_, stat)| stat_fields(&stat).map(|(name, _)| name.to_owned()))
        .filter(|name| CLOCK_PROGRAMS.contains(&name.as_str()))
        .collect();
    names.sort();
    names.dedup();
    Ok(json!(names))
}

fn polls(interface: &str) -> io::Result<Vec<Poll>> {
    let index = interface_index(&named(interface)?)?;
    let family = Family::find("netdev")?;
    let of_interface = |attribute| {
        let mut attributes = Attributes::new();
        attributes.put(attribute, &index.to_ne_bytes());
        attributes
    };
    let found = family.ask(NAPI_GET, true, &of_interface(NAPI_INTERFACE))?;
    let mut polls: Vec<Poll> = found.iter().map(poll).collect();
    for queue in family.ask(QUEUE_GET, true, &of_interface(QUEUE_INTERFACE))? {
        let (number, kind) = (value(&queue, 1), value(&queue, 3));
        let napi = value(&queue, 4);
        let Some(poll) = polls.iter_mut().find(|poll| napi == Some(poll.id.into())) else {
            continue;
        };
        let Some(number) = number.and_then(|number| u32::try_from(number).ok()) else { continue };
        if kind == Some(0) { &mut poll.rx_queues } else { &mut poll.tx_queues }.push(number);
    }
    for poll in &mut polls {
        poll.rx_queues.sort_unstable();
        poll.tx_queues.sort_unstable();
    }
    polls.sort_by_key(|poll| poll.id);
    Ok(polls)
}

fn poll(answer: &Answer) -> Poll {
    let small = |kind| value(answer, kind).and_then(|value| u32::try_from(value).ok());
    Poll {
        id: small(2).unwrap_or_default(),
        irq: small(3),
        pid: small(4),
        defer_hard_irqs: value(answer, 5),
        gro_flush_timeout_ns: value(answer, 6),
        irq_suspend_timeout_ns: value(answer, 7),
        ..Poll::default()
    }
}

/// A number of four or eight bytes.
fn value(answer: &Answer, kind: u16) -> Option<u64> {
    let (_, bytes) = answer.iter().find(|(found, _)| *found == kind)?;
    match bytes.len() {
        4 => Some(u32::from_ne_bytes(bytes[..].try_into().ok()?).into()),
        8 => Some(u64::from_ne_bytes(bytes[..].try_into().ok()?)),
        _ => None,
    }
}

// From linux v6.18 include/uapi/linux/netdev.h: NETDEV_CMD_QUEUE_GET, NETDEV_CMD_NAPI_GET.
const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;
const NAPI_INTERFACE: u16 = 1;
const QUEUE_INTERFACE: u16 = 2;

fn tcx(interface: &str) -> Reading<Value> {
    let index = reading(named(interface).and_then(|name| interface_index(&name)));
    let list = |index: u32, direction| {
        let programs = reading(nic::tcx_programs(index, direction));
        programs.map(|ids| {
            let one = |id: u32| json!({"id": id, "name": nic::program_name(id).ok()});
            ids.into_iter().map(one).collect::<Vec<Value>>()
        })
    };
    index.then(|index| {
        list(index, Direction::Ingress).then(|ingress| {
            let egress = list(index, Direction::Egress);
            egress.map(|egress| json!({"ingress": ingress, "egress": egress}))
        })
    })
}

/// Why the threads of the kernel are not known in another namespace of processes than the first.
pub(crate) const KERNEL_THREADS_UNSEEN: &str =
    "threads of the kernel cannot be seen from this namespace";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_what_is_not_there_is_told_from_what_cannot_be_read() {
        assert!(Live.read("/proc/no-such-file").is_absent());
        assert!(Live.list("/proc/self/no-such-directory").is_absent());
        assert!(Live.link("/proc/version").is_absent());
        assert!(Live.run(&["no-such-program"]).is_unreadable());
        assert!(Live.run(&[]).is_unreadable());
        assert_eq!(Live.read("/proc/sys/kernel/ostype"), Reading::Known("Linux".to_owned()));
        let refused: Reading<u32> = reading(Err(io::Error::from_raw_os_error(13)));
        assert!(refused.is_unreadable());
    }

    #[test]
    fn t0_names_of_processes_may_have_brackets() {
        let (name, fields) = stat_fields("12 (a) b (c)) S 2 0").unwrap();
        assert_eq!((name, fields), ("a) b (c)", vec!["S", "2", "0"]));
        assert!(stat_fields("12 a S 2").is_none());
    }

    #[test]
    fn t0_questions_are_answered_or_say_why_not() {
        assert!(Live.ask(Question::Now).known().and_then(Value::as_i64).is_some_and(|ns| ns > 0));
        assert!(Live.ask(Question::Clock).known().is_some());
        assert!(Live.ask(Question::TimestampFilters("lo")).is_absent());
        assert!(Live.ask(Question::Polls("no-such-if")).known().is_none());
        assert!(Live.ask(Question::CrossTimestamps(9_999)).known().is_none());
    }
}
