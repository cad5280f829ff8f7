// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads with a real-time policy, and programs of Timewire, from `/proc`.
//!
//! **Source**: proc(5), `/proc/PID/stat` and `/proc/PID/schedstat`.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// A thread with a real-time policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadLook {
    /// Its process.
    pub pid: u32,
    /// Itself.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// `fifo`, `rr` or `deadline`.
    pub policy: &'static str,
    /// 1 to 99; 0 of `deadline`.
    pub priority: u32,
    /// The CPU that it ran on last.
    pub cpu: u32,
    /// Whether it is the kernel's own.
    pub kernel: bool,
    /// How long it ran since it began; `null` where the kernel does not say.
    pub ran_ns: Option<u64>,
}

/// A program of Timewire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramLook {
    /// Its process.
    pub pid: u32,
    /// Its verb: `talk`, `listen`, `avtp`.
    pub verb: String,
    /// What it was told.
    pub arguments: Vec<String>,
}

/// Verbs that send, receive or keep something.
const VERBS: [&str; 14] = [
    "talk", "listen", "avtp", "tdm", "receive", "clock", "group", "measure", "trace", "agent",
    "run", "demo", "apply", "report",
];

/// Those of a host; what ends meanwhile, or may not be read, is not there.
pub(super) fn of_host(proc: &Path) -> (Vec<ProgramLook>, Vec<ThreadLook>) {
    let (mut programs, mut threads) = (Vec::new(), Vec::new());
    let mut pids = numbers(proc);
    pids.sort_unstable();
    for pid in pids {
        let process = proc.join(pid.to_string());
        if let Ok(words) = fs::read(process.join("cmdline")) {
            programs.extend(program(pid, &words));
        }
        let tasks = process.join("task");
        for thread in numbers(&tasks) {
            let task = tasks.join(thread.to_string());
            let Ok(stat) = fs::read_to_string(task.join("stat")) else { continue };
            if let Some(mut found) = of_stat(pid, &stat) {
                let ran = fs::read_to_string(task.join("schedstat")).ok();
                found.ran_ns = ran.and_then(|text| text.split(' ').next()?.parse().ok());
                threads.push(found);
            }
        }
    }
    threads.sort_by_key(|it| (it.kernel, std::cmp::Reverse(urgency(it)), it.thread));
    (programs, threads)
}

/// A deadline goes before every priority.
fn urgency(thread: &ThreadLook) -> u32 {
    if thread.policy == "deadline" { 100 } else { thread.priority }
}

fn numbers(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok()).collect()
}

/// `None` of a thread without a real-time policy.
fn of_stat(pid: u32, stat: &str) -> Option<ThreadLook> {
    // A name may have blanks and brackets of its own; the last bracket ends it.
    let (thread, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    // From the third on, as proc(5) counts.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let policy = match field(41)? {
        1 => "fifo",
        2 => "rr",
        6 => "deadline",
        _ => return None,
    };
    /// `PF_KTHREAD`.
    const KERNEL: u64 = 0x0020_0000;
    Some(ThreadLook {
        pid,
        thread: thread.parse().ok()?,
        name: name.to_owned(),
        policy,
        priority: u32::try_from(field(40)?).ok()?,
        cpu: u32::try_from(field(39)?).ok()?,
        kernel: field(9)? & KERNEL != 0,
        ran_ns: None,
    })
}

fn program(pid: u32, words: &[u8]) -> Option<ProgramLook> {
    let words = words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word));
    let words: Vec<String> = words.map(std::borrow::Cow::into_owned).collect();
    let [program, verb, arguments @ ..] = &words[..] else { return None };
    let name = Path::new(program).file_name()?.to_str()?;
    if name != "timewire" || !VERBS.contains(&verb.as_str()) {
        return None;
    }
    // Each word ends with a zero, so the last is empty.
    let arguments = arguments.strip_suffix(&[String::new()]).unwrap_or(arguments).to_vec();
    Some(ProgramLook { pid, verb: verb.clone(), arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, flags: u64, policy: u64) -> String {
        let mut fields: Vec<String> = (3..=52).map(|_| "0".to_owned()).collect();
        let mut set = |number: usize, value: u64| fields[number - 3] = value.to_string();
        set(9, flags);
        set(39, 3);
        set(40, 80);
        set(41, policy);
        format!("77 ({name}) {}", fields.join(" "))
    }

    #[test]
    fn t0_real_time_threads_are_found_whatever_they_are_called() {
        let found = of_stat(70, &stat("tw) (mac 1", 0, 1)).unwrap();
        assert_eq!((found.pid, found.thread, found.name.as_str()), (70, 77, "tw) (mac 1"));
        assert_eq!((found.policy, found.priority, found.cpu), ("fifo", 80, 3));
        assert!(!found.kernel);
        assert!(of_stat(1, &stat("irq/9", 0x0020_8040, 1)).unwrap().kernel);
        assert_eq!(of_stat(1, &stat("a", 0, 2)).unwrap().policy, "rr");
        assert_eq!(of_stat(1, &stat("a", 0, 6)).unwrap().policy, "deadline");
        for other in [stat("a", 0, 0), stat("a", 0, 3), String::new(), "77 (a) R 0".to_owned()] {
            assert_eq!(of_stat(1, &other), None, "{other}");
        }
    }

    #[test]
    fn t0_programs_are_known_by_their_name_and_verb() {
        let of = |words: &[&str]| program(5, (words.join("\0") + "\0").as_bytes());
        let talk = of(&["/usr/bin/timewire", "talk", "10.0.0.1:1", "--cpu", "2"]).unwrap();
        assert_eq!((talk.pid, talk.verb.as_str()), (5, "talk"));
        assert_eq!(talk.arguments, ["10.0.0.1:1", "--cpu", "2"]);
        assert!(of(&["timewire", "listen"]).unwrap().arguments.is_empty());
        assert_eq!(of(&["timewire", "top"]), None);
        assert_eq!(of(&["vim", "talk"]), None);
        assert_eq!(program(5, b""), None);
    }

    #[test]
    fn t0_what_is_not_there_has_no_threads() {
        assert_eq!(of_host(Path::new("/no-such")), (Vec::new(), Vec::new()));
    }
}
