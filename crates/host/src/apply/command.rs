// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What changes a host, as a value: it prints as the line that does the same in a shell.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::message;
use super::setting::ThreadScheduling;
use crate::tool::Tool;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Command {
    /// Runs a program of the distribution.
    Run {
        /// Which.
        tool: Tool,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// Writes a file of the kernel.
    Write {
        /// Absolute path.
        path: PathBuf,
        /// The value, without the end of the line.
        value: String,
    },
    /// Changes the scheduling of threads.
    Schedule {
        /// Their name; of a name that ends with `*`, all that begin so.
        threads: String,
        /// Policy and priority.
        scheduling: ThreadScheduling,
    },
    /// Changes the CPUs that threads may run on.
    Pin {
        /// Their name; of a name that ends with `*`, all that begin so.
        threads: String,
        /// The CPUs, as `0-3,8`; `all` stands for all that are on line.
        cpus: String,
    },
}

impl Command {
    /// Runs a program; the line is split at spaces.
    pub fn run(tool: Tool, line: &str) -> Command {
        Command::Run { tool, arguments: line.split_whitespace().map(str::to_owned).collect() }
    }

    /// Writes a file.
    pub fn write(path: impl Into<PathBuf>, value: impl Into<String>) -> Command {
        Command::Write { path: path.into(), value: value.into() }
    }
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The words of a shell that print the numbers of threads.
fn pids(threads: &str) -> String {
    match threads.strip_suffix('*') {
        Some(prefix) => format!("$(pgrep -x '{prefix}[0-9].*')"),
        None => format!("$(pgrep -x {})", quoted(threads)),
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Run { tool, arguments } => {
                if let Some(message) = message::beyond_tc(*tool, arguments) {
                    message::write_note(f, &message)?;
                }
                f.write_str(tool.program())?;
                arguments.iter().try_for_each(|word| write!(f, " {}", quoted(word)))
            }
            Command::Write { path, value } => {
                write!(f, "echo {} > {}", quoted(value), quoted(&path.to_string_lossy()))
            }
            Command::Schedule { threads, scheduling } => {
                let words = match scheduling {
                    ThreadScheduling::Other(0) => "chrt --other --pid 0".to_owned(),
                    ThreadScheduling::Other(nice) => {
                        return write!(
                            f,
                            "for t in {threads}; do chrt --other --pid 0 $t; renice -n {nice} -p \
                             $t; done",
                            threads = pids(threads)
                        );
                    }
                    ThreadScheduling::Fifo(priority) => format!("chrt --fifo --pid {priority}"),
                    ThreadScheduling::RoundRobin(priority) => format!("chrt --rr --pid {priority}"),
                    ThreadScheduling::Foreign(policy) => format!("# policy {policy}:"),
                };
                write!(f, "for t in {}; do {words} $t; done", pids(threads))
            }
            Command::Pin { threads, cpus } => {
                let cpus = match cpus.as_str() {
                    super::setting::ALL => "$(cat /sys/devices/system/cpu/online)",
                    cpus => cpus,
                };
                write!(f, "for t in {}; do taskset -pc {cpus} $t; done", pids(threads))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_commands_print_as_lines_of_a_shell() {
        let lines = [
            Command::run(Tool::Ip, "link set dev eth0 up"),
            Command::write("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456"),
            Command::Schedule {
                threads: "napi/eth0-*".to_owned(),
                scheduling: ThreadScheduling::Fifo(50),
            },
            Command::Pin { threads: "irq/33-eth0".to_owned(), cpus: "2-3".to_owned() },
        ]
        .map(|command| command.to_string());
        assert_eq!(
            lines,
            [
                "ip link set dev eth0 up",
                "echo '4096 131072 6291456' > /proc/sys/net/ipv4/tcp_rmem",
                "for t in $(pgrep -x 'napi/eth0-[0-9].*'); do chrt --fifo --pid 50 $t; done",
                "for t in $(pgrep -x irq/33-eth0); do taskset -pc 2-3 $t; done",
            ]
        );
    }
}
