// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong when a host is changed.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use timewire_base::{Failure, FileError, IfName};
use timewire_sys::namespace::user_in_words;

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
    /// A file could not be used, or does not hold what it should.
    #[error(transparent)]
    File(#[from] FileError),
    /// A host does not tell what has to be known of it.
    #[error("cannot read {what}: {why}")]
    Unreadable {
        /// What was asked for.
        what: &'static str,
        /// Why there is no answer.
        why: String,
    },
    /// There is no such interface.
    #[error("there is no interface {name}; there are {}", .there.join(", "))]
    NoInterface {
        /// What was asked for.
        name: IfName,
        /// Those that are there.
        there: Vec<String>,
    },
    /// A NIC does not timestamp frames.
    #[error("the NIC of {interface} cannot timestamp: {why}")]
    CannotTimestamp {
        /// The interface.
        interface: IfName,
        /// Why not.
        why: String,
    },
    /// There is no directory for journals and sockets.
    #[error(
        "this needs root, whose undo logs and control sockets are in /run/timewire; without root \
         there are laboratories only, and for their undo logs XDG_RUNTIME_DIR is not set"
    )]
    NoRuntimeDir,
    /// The directory for journals belongs to someone else.
    #[error(
        "{path} belongs to {owner}, not to user {user}: its undo logs cannot be trusted",
        path = .path.display(), owner = user_in_words(*.owner)
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
    /// The watchdog process did not start, so nothing was changed.
    #[error("the watchdog process did not start ({program}): {why}")]
    Watchdog {
        /// What was started.
        program: String,
        /// What went wrong.
        why: String,
    },
    /// Another process changes the settings of this host.
    #[error("process {pid} is changing the settings of this host")]
    Busy {
        /// Which; 0 when that is not known yet.
        pid: u32,
    },
    /// Something is applied already.
    #[error("`{name}` is applied already; its journal is {path}", path = .path.display())]
    Applied {
        /// What is applied.
        name: String,
        /// Its record.
        path: PathBuf,
    },
    /// The user, or a service manager, asked to end.
    #[error("ended on request")]
    Interrupted,
    /// Nothing waits to be confirmed.
    #[error("nothing is applied that waits to be confirmed")]
    NothingToConfirm,
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
    /// A tree of groups asks for what this host cannot do.
    #[error(transparent)]
    GroupPlan(#[from] timewire_tsn::groups::GroupError),
    /// A member of a scheduling group cannot be what the tree says.
    #[error("{member}: {source}")]
    GroupMember {
        /// The member, in words.
        member: String,
        /// Why.
        source: Box<HostError>,
    },
    /// Nobody is what a tree of groups speaks of.
    #[error("{what}")]
    NobodyThere {
        /// What is missing.
        what: String,
    },
    /// This kernel cannot do it.
    #[error("{what}: not supported here: {missing}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What is missing, and what would have it.
        missing: String,
    },
    /// The kernel does not admit a reservation.
    #[error("the kernel does not admit a reservation of {wanted} for thread {tid}: {source}")]
    NotAdmitted {
        /// The reservation.
        wanted: String,
        /// The thread.
        tid: u32,
        /// Why not.
        source: io::Error,
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

impl Failure for HostError {
    fn inner(&self) -> Option<&dyn Failure> {
        match self {
            HostError::GroupMember { source, .. } => Some(&**source),
            _ => None,
        }
    }

    fn leaves_changed(&self) -> bool {
        matches!(self, HostError::NotUndone { .. })
            || self.inner().is_some_and(Failure::leaves_changed)
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            HostError::CannotTimestamp { .. } => {
                Some("ask for the kernel's timestamps: --timestamps software")
            }
            HostError::GroupPlan(error) => Some(error.hint()).filter(|hint| !hint.is_empty()),
            HostError::NotAdmitted { source, .. } => Some(match source.raw_os_error() {
                Some(EBUSY) => {
                    "all reservations of the host together have to fit \
                     kernel.sched_rt_runtime_us of each kernel.sched_rt_period_us"
                }
                Some(EPERM) => {
                    "a reservation needs CAP_SYS_NICE and a thread that may use all CPUs of its \
                     scheduling domain"
                }
                _ => {
                    "the period lies between kernel.sched_deadline_period_min_us and \
                     kernel.sched_deadline_period_max_us"
                }
            }),
            HostError::Scheduling { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some(
                    "real-time scheduling needs CAP_SYS_NICE (or RLIMIT_RTPRIO for own processes), \
                     and a control group with a real-time budget (cpu.rt_runtime_us)",
                )
            }
            HostError::Applied { .. } => Some(
                "`timewire undo` first; or let it stay, if it waits: `timewire apply --confirm`",
            ),
            HostError::Busy { .. } => Some("wait until it is done"),
            HostError::ToolFailed { stderr, .. } if stderr.contains("not permitted") => {
                Some("needs CAP_NET_ADMIN (run as root)")
            }
            _ => return self.inner()?.hint(),
        };
        hint.map(Cow::Borrowed)
    }

    fn is_unsupported(&self) -> bool {
        match self {
            HostError::Unsupported { .. } | HostError::CannotTimestamp { .. } => true,
            _ => self.inner().is_some_and(Failure::is_unsupported),
        }
    }
}

impl HostError {
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        FileError::Unusable { what, path: path.into(), source }.into()
    }

    pub(crate) fn kernel(what: impl Into<String>, source: io::Error) -> Self {
        HostError::Kernel { what: what.into(), source }
    }
}

const EPERM: i32 = 1;
const EBUSY: i32 = 16;

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
