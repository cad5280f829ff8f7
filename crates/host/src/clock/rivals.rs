// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who else would steer the clocks that our daemons steer. Two that steer one clock make it worse
//! than either alone, without an error anywhere.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use timewire_base::IfName;

/// A program that keeps a clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its process.
    pub pid: u32,
    /// The name of its program, as the kernel has it: at most 15 bytes.
    pub program: String,
    /// Its command line.
    pub arguments: Vec<String>,
    /// Its configuration file, when it has one that can be read.
    pub configuration: Option<String>,
}

/// What our daemons do here.
#[derive(Clone, Copy, Debug)]
pub struct Ours<'a> {
    /// The interfaces on which they speak.
    pub interfaces: &'a [IfName],
    /// Whether they steer the system's clock.
    pub steers_system: bool,
    /// Whether they do so only while a better clock than this gives the time.
    pub gives_time: bool,
}

/// What a rival means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Both would steer one clock: nothing may be started.
    Fights {
        /// What is wrong.
        why: String,
        /// What the user can do.
        hint: String,
    },
    /// It can go well, and the user should know.
    Beware(String),
}

const SYSTEM_CLOCK: [(&str, &str); 6] = [
    ("chronyd", "systemctl stop chrony"),
    ("ntpd", "systemctl stop ntp (or ntpsec, openntpd)"),
    ("systemd-timesyn", "systemctl stop systemd-timesyncd"),
    ("phc2sys", "systemctl stop phc2sys"),
    ("timemaster", "systemctl stop timemaster"),
    ("ntpsec", "systemctl stop ntpsec"),
];

/// All that run in this process namespace, but for these.
pub fn find(not: &[u32]) -> Vec<Rival> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Rival> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| !not.contains(pid))
        .filter_map(|pid| rival(Path::new("/proc"), pid))
        .collect();
    found.sort_by_key(|rival| rival.pid);
    found
}

fn rival(proc: &Path, pid: u32) -> Option<Rival> {
    let of = |file: &str| fs::read(proc.join(pid.to_string()).join(file)).ok();
    let program = String::from_utf8(of("comm")?).ok()?.trim_end().to_owned();
    let keeps = program == "ptp4l" || program == "ts2phc";
    if !keeps && !SYSTEM_CLOCK.iter().any(|(known, _)| *known == program) {
        return None;
    }
    let line = of("cmdline")?;
    // A zombie has no words any more and keeps nothing.
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if words.is_empty() {
        return None;
    }
    let configuration = configuration_of(proc, pid, &words);
    Some(Rival { pid, program, arguments: words, configuration })
}

/// The text of the file that `-f` names, as the process sees it.
fn configuration_of(proc: &Path, pid: u32, arguments: &[String]) -> Option<String> {
    let named = values_of(arguments, 'f').last()?.to_owned();
    let process = proc.join(pid.to_string());
    // It can have another root or be in another directory. What is not absolute counts from there.
    let seen = match named.strip_prefix('/') {
        Some(rest) => process.join("root").join(rest),
        None => process.join("cwd").join(named),
    };
    // The file may be gone or its process another user's.
    let bytes = fs::File::open(seen).ok()?.take(LONGEST_CONFIGURATION);
    io::read_to_string(bytes).ok()
}

/// What is given with an option of one letter, as `-f x` or `-fx`.
fn values_of(arguments: &[String], letter: char) -> Vec<&str> {
    let mut found = Vec::new();
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        match word.strip_prefix('-').and_then(|word| word.strip_prefix(letter)) {
            Some("") => found.extend(words.next().map(String::as_str)),
            Some(value) => found.push(value),
            None => {}
        }
    }
    found
}

/// What a configuration of linuxptp says that matters here. Command lines go before it.
#[derive(Debug, Default)]
struct Configured<'a> {
    /// The sections that are none of its own: interfaces.
    interfaces: Vec<&'a str>,
    only_compares: bool,
    software: bool,
    socket: Option<&'a str>,
}

impl Configured<'_> {
    fn of(text: &str) -> Configured<'_> {
        let mut configured = Configured::default();
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
                let name = section.0.trim();
                if !SECTIONS.contains(&name) {
                    configured.interfaces.push(name);
                }
                continue;
            }
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("free_running"), Some(value)) => configured.only_compares = value == "1",
                (Some("time_stamping"), Some(value)) => configured.software = value == "software",
                (Some("uds_address"), Some(value)) => configured.socket = Some(value),
                _ => {}
            }
        }
        configured
    }
}

/// Sections of linuxptp that name no interface.
const SECTIONS: [&str; 4] = ["global", "nmea", "unicast_master_table", "message_tag"];
/// **Units**: bytes.
const LONGEST_CONFIGURATION: u64 = 1 << 20;

/// What one of them means for ours.
pub fn judge(rival: &Rival, ours: Ours<'_>) -> Option<Judgement> {
    let Rival { pid, program, .. } = rival;
    if program == "ptp4l" || program == "ts2phc" {
        return judge_ptp4l(rival, ours);
    }
    if !ours.steers_system {
        return None;
    }
    let (_, command) = SYSTEM_CLOCK.iter().find(|(known, _)| known == program)?;
    let network_time = program != "phc2sys" && program != "timemaster";
    if ours.gives_time && network_time {
        return Some(Judgement::Beware(format!(
            "process {pid} ({program}) keeps the system's clock, which ptp4l gives on; both would \
             steer it once a better clock appears on the segment"
        )));
    }
    Some(Judgement::Fights {
        why: format!("process {pid} ({program}) steers the system's clock too"),
        hint: format!("`{command}`, or `adjust: false`, which only compares"),
    })
}

/// How a `ptp4l` takes timestamps.
fn software(arguments: &[String], configured: &Configured<'_>) -> bool {
    // The last of these letters counts.
    let timestamps =
        arguments.iter().rev().find(|word| ["-S", "-H", "-L"].contains(&word.as_str()));
    match (long(arguments, "time_stamping"), timestamps) {
        (Some(value), _) => value == "software",
        (None, Some(letter)) => letter == "-S",
        (None, None) => configured.software,
    }
}

/// The value of a long option, `--key=value` or `--key value`; the last one counts.
fn long<'a>(arguments: &'a [String], key: &str) -> Option<&'a str> {
    let mut found = None;
    for (place, word) in arguments.iter().enumerate() {
        match word.strip_prefix("--").and_then(|word| word.strip_prefix(key)) {
            Some("") => found = arguments.get(place + 1).map(String::as_str).or(found),
            Some(rest) => found = rest.strip_prefix('=').or(found),
            None => {}
        }
    }
    found
}

/// Where a `ptp4l` takes questions, and what it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Management {
    /// Its process.
    pub pid: u32,
    /// Its socket, as this process sees it.
    pub socket: PathBuf,
    /// It takes timestamps in software, so it keeps the system's clock.
    pub software: bool,
    /// Its interfaces.
    pub interfaces: Vec<String>,
}

/// Where linuxptp listens unless it is told otherwise.
const USUAL_SOCKET: &str = "/var/run/ptp4l";

/// Of a `ptp4l`; `None` for any other program.
pub fn management(rival: &Rival) -> Option<Management> {
    let Rival { pid, program, arguments, configuration } = rival;
    if program != "ptp4l" {
        return None;
    }
    let configured = Configured::of(configuration.as_deref().unwrap_or_default());
    let named = long(arguments, "uds_address").or(configured.socket).unwrap_or(USUAL_SOCKET);
    // It can have another root.
    let seen = Path::new("/proc").join(pid.to_string()).join("root");
    let seen = seen.join(named.trim_start_matches('/'));
    let socket = if seen.exists() { seen } else { PathBuf::from(named) };
    let interfaces = values_of(arguments, 'i').into_iter().chain(configured.interfaces.clone());
    let interfaces = interfaces.map(str::to_owned).collect();
    Some(Management { pid: *pid, socket, software: software(arguments, &configured), interfaces })
}

fn judge_ptp4l(rival: &Rival, ours: Ours<'_>) -> Option<Judgement> {
    let Rival { pid, program, arguments, configuration } = rival;
    let configured = Configured::of(configuration.as_deref().unwrap_or_default());
    let mut interfaces = values_of(arguments, 'i');
    if program == "ts2phc" {
        interfaces.extend(values_of(arguments, 'c'));
    }
    interfaces.extend(&configured.interfaces);
    let same = interfaces.iter().find(|name| ours.interfaces.iter().any(|i| i.as_str() == **name));
    if let Some(name) = same {
        // It can be in another network namespace, where the name means another interface.
        return Some(Judgement::Fights {
            why: format!("process {pid} ({program}) is at work on an interface named {name}"),
            hint: format!("end it (`kill {pid}`), or watch it: `timewire clock watch --socket`"),
        });
    }
    let told = arguments.iter().rev().find_map(|word| word.strip_prefix("--free_running="));
    let only_compares = told.map_or(configured.only_compares, |value| value == "1");
    let software = software(arguments, &configured);
    if software && ours.steers_system && !only_compares {
        return Some(Judgement::Fights {
            why: format!(
                "process {pid} ({program}, software timestamps) steers the system's clock too"
            ),
            hint: format!("end it (`kill {pid}`), or `adjust: false`, which only compares"),
        });
    }
    Some(Judgement::Beware(format!(
        "process {pid} ({program}) keeps a clock too; whether it is the same one only its own \
         configuration tells"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rival(line: &str) -> Rival {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let program = arguments[0].rsplit('/').next().unwrap().chars().take(15).collect();
        Rival { pid: 7, program, arguments, configuration: None }
    }

    #[test]
    fn t0_rivals_are_judged_by_what_they_steer() {
        let eth0 = [IfName::new("eth0").unwrap()];
        let ours =
            |steers_system, gives_time| Ours { interfaces: &eth0, steers_system, gives_time };
        let fights =
            |line: &str, ours| matches!(judge(&rival(line), ours), Some(Judgement::Fights { .. }));
        for line in ["/usr/sbin/chronyd -F 1", "systemd-timesyncd", "phc2sys -a -r", "ntpd -g"] {
            assert!(fights(line, ours(true, false)), "{line}");
            assert_eq!(judge(&rival(line), ours(false, false)), None, "{line}");
        }
        // Network time under a clock that is given on is what one wants; phc2sys is not.
        assert!(!fights("chronyd", ours(true, true)));
        assert!(fights("phc2sys -a -r", ours(true, true)));
        assert!(fights("ptp4l -i eth0 -m", ours(false, false)));
        assert!(fights("ptp4l -ieth0 -m", ours(false, false)));
        assert!(!fights("ptp4l -i eth1 -m", ours(true, false)));
        assert!(fights("ptp4l -i eth1 -S", ours(true, false)));
        assert!(!fights("ptp4l -i eth1 -S --free_running=1", ours(true, false)));
        let unknown = judge(&rival("ptp4l -f /etc/linuxptp/ptp4l.conf"), ours(true, false));
        assert!(matches!(unknown, Some(Judgement::Beware(_))));
    }

    #[test]
    fn t0_what_a_configuration_says_counts_as_on_the_command_line() {
        let eth0 = [IfName::new("eth0").unwrap()];
        let ours = Ours { interfaces: &eth0, steers_system: true, gives_time: false };
        let fights = |line: &str, text: &str| {
            let rival = Rival { configuration: Some(text.to_owned()), ..rival(line) };
            matches!(judge(&rival, ours), Some(Judgement::Fights { .. }))
        };
        let line = "ptp4l -f /etc/linuxptp/ptp4l.conf";
        assert!(fights(line, "[global]\ntwoStepFlag 1\n[eth0]\nhybrid_e2e 0\n"));
        assert!(!fights(line, "[global]\n[eth1]\n# [eth0]\n"));
        let software = "[global]\ntime_stamping\tsoftware\n[eth1]\n";
        assert!(fights(line, software));
        assert!(!fights(&format!("{line} -H"), software));
        assert!(!fights(line, &software.replace("[eth1]", "free_running 1\n[eth1]")));
        assert!(fights("ts2phc -c eth0", ""));
    }

    #[test]
    fn t0_the_socket_of_a_ptp4l_is_where_it_was_told() {
        let text = "[global]\nuds_address /run/x/ptp4l\ntime_stamping software\n[eth0]\n";
        let of = |line: &str, text: &str| {
            management(&Rival {
                pid: u32::MAX,
                configuration: Some(text.to_owned()),
                ..rival(line)
            })
        };
        for (line, text, socket, software, interfaces) in [
            ("ptp4l -i eth1 -m", "", "/var/run/ptp4l", false, vec!["eth1"]),
            ("ptp4l -f a.cfg", text, "/run/x/ptp4l", true, vec!["eth0"]),
            ("ptp4l -f a.cfg -H --uds_address=/run/y", text, "/run/y", false, vec!["eth0"]),
            ("ptp4l -i a -S --uds_address /run/z", "", "/run/z", true, vec!["a"]),
        ] {
            let found = of(line, text).unwrap();
            assert_eq!(found.socket, Path::new(socket), "{line}");
            assert_eq!(
                (found.software, found.interfaces),
                (software, interfaces.iter().map(ToString::to_string).collect()),
                "{line}"
            );
        }
        assert_eq!(management(&rival("chronyd")), None);
    }

    #[test]
    fn t0_a_configuration_is_read_where_its_process_sees_it() {
        let proc = std::env::temp_dir().join(format!("timewire-rival-{}", std::process::id()));
        let process = proc.join("7");
        let (root, cwd) = (process.join("root").join("etc"), process.join("cwd"));
        for (directory, text) in [(&root, "of the root"), (&cwd, "of the directory")] {
            fs::create_dir_all(directory).unwrap();
            fs::write(directory.join("p.conf"), text).unwrap();
        }
        fs::write(proc.join("7/comm"), "ptp4l\n").unwrap();
        for (named, text) in [
            ("-f\0/etc/p.conf\0", Some("of the root")),
            ("-fp.conf\0-m\0", Some("of the directory")),
            ("-f\0/etc/none\0", None),
            ("-m\0", None),
        ] {
            fs::write(proc.join("7/cmdline"), format!("ptp4l\0{named}")).unwrap();
            let found = super::rival(&proc, 7).unwrap();
            assert_eq!(found.configuration.as_deref(), text, "{named}");
        }
        fs::remove_dir_all(proc).unwrap();
    }

    #[test]
    fn t0_this_process_is_no_rival() {
        assert!(find(&[]).iter().all(|rival| rival.pid != std::process::id()));
    }
}
