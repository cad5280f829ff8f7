// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong when a host is changed.
//!
//! Not here: the exit code it leads to (the command line).

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A change of the host, or its undoing, that failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostError {
    /// A program of the distribution is not installed.
    #[error("`{program}` is not installed; on Debian: apt-get install {package}")]
    ToolMissing {
        /// The program.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program could not be started, for another reason.
    #[error("cannot start `{command}`: {source}")]
    ToolStart {
        /// The whole command line.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("`{command}` failed ({status}){}: {stderr}", at_line(.line))]
    ToolFailed {
        /// The whole command line.
        command: String,
        /// Exit code or signal.
        status: String,
        /// The line of the batch it failed at.
        line: Option<String>,
        /// What it said.
        stderr: String,
    },
    /// A file or directory that Timewire keeps could not be used.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no directory for journals and sockets.
    #[error(
        "no directory for control sockets and undo journals: set XDG_RUNTIME_DIR, or run as root"
    )]
    NoRuntimeDir,
    /// The directory for journals belongs to someone else.
    #[error(
        "{path} belongs to user {owner}, not to user {user}: its journals cannot be trusted",
        path = .path.display()
    )]
    ForeignDir {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who asks.
        user: u32,
    },
    /// A line of a journal is no entry.
    #[error("{path}, line {line}: {why}; nothing of it was undone", path = .path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The guardian process did not start, so nothing was changed.
    #[error("the guardian process did not start ({program}): {why}")]
    Guardian {
        /// What was started.
        program: String,
        /// What went wrong.
        why: String,
    },
    /// Some entries of a journal could not be undone.
    #[error(
        "{} not undone; the journal is {path}: {}",
        count(.failures.len()),
        .failures.join("; "),
        path = .path.display()
    )]
    NotUndone {
        /// The journal that still holds them.
        path: PathBuf,
        /// What could not be undone, and why.
        failures: Vec<String>,
    },
    /// A kernel operation on some object failed.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// What was tried, on what.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// What was given.
        pid: u32,
    },
    /// The process that asks cannot be a member of its own group.
    #[error("process {pid} is this program itself; it manages its own priority")]
    OwnProcess {
        /// What was given.
        pid: u32,
    },
    /// The process is a member already.
    #[error("process {pid} is a member already, with id {member}")]
    AlreadyMember {
        /// What was given.
        pid: u32,
        /// Its member number.
        member: u32,
    },
    /// There is no member of this number.
    #[error("the group has no member {member}{}", some_are(.members))]
    NoMember {
        /// What was given.
        member: u32,
        /// The members there are.
        members: Vec<u32>,
    },
    /// The kernel refuses to change this process' scheduling.
    #[error("cannot {what} of process {pid}: {source}")]
    Scheduling {
        /// What was tried.
        what: &'static str,
        /// Which process.
        pid: u32,
        /// Why not.
        source: io::Error,
    },
}

impl HostError {
    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            HostError::Scheduling { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some(
                    "real-time scheduling needs CAP_SYS_NICE (or RLIMIT_RTPRIO for own processes), \
                     and a control group with a real-time budget (cpu.rt_runtime_us)",
                )
            }
            HostError::ToolFailed { stderr, .. } if stderr.contains("not permitted") => {
                Some("needs CAP_NET_ADMIN (run as root)")
            }
            _ => None,
        }
    }

    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        HostError::File { what, path: path.into(), source }
    }

    pub(crate) fn kernel(what: impl Into<String>, source: io::Error) -> Self {
        HostError::Kernel { what: what.into(), source }
    }
}

fn at_line(line: &Option<String>) -> String {
    line.as_ref().map(|line| format!(" at `{line}`")).unwrap_or_default()
}

fn count(failures: usize) -> String {
    if failures == 1 { "1 change was".to_owned() } else { format!("{failures} changes were") }
}

fn some_are(members: &[u32]) -> String {
    if members.is_empty() {
        return "; it is empty".to_owned();
    }
    let list: Vec<_> = members.iter().map(u32::to_string).collect();
    format!("; its members are {}", list.join(", "))
}
