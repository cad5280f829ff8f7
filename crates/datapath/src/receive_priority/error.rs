// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with receive priority.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use thiserror::Error;
use timewire_base::{Failure, FileError, IfName};
use timewire_bpf::{AttachMode, BpfError};
use timewire_host::HostError;

/// Receive priority that could not be started, changed, shown or stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Changing the host, or undoing that, failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// There is no such interface.
    #[error("{source}")]
    NoInterface {
        /// Its name.
        interface: IfName,
        /// Why.
        source: io::Error,
    },
    /// What is attached cannot be told.
    #[error("cannot ask for the XDP program of {interface}: {source}")]
    Query {
        /// The interface.
        interface: IfName,
        /// Why not.
        source: io::Error,
    },
    /// It runs already.
    #[error(
        "receive priority is on {interface} already: `timewire receive set {interface}` changes it"
    )]
    Runs {
        /// The interface.
        interface: IfName,
    },
    /// It does not run.
    #[error("no receive priority is on {interface}: `timewire receive start {interface}` puts it")]
    RunsNot {
        /// The interface.
        interface: IfName,
    },
    /// Somebody has taken its program off.
    #[error(
        "the program of receive priority is not on {interface} any more: `timewire receive start \
         {interface}` puts it there anew, `timewire receive stop {interface}` removes the rest"
    )]
    NotAttached {
        /// The interface.
        interface: IfName,
    },
    /// What would be put where it stays ends with this process, or cannot be seen from it.
    #[error(
        "no BPF file system is at /sys/fs/bpf, and this process has a mount table of its own: what \
         is mounted here nobody else sees, and it ends with the last process here"
    )]
    PrivateMounts {
        /// The name of the network namespace, if it has one.
        netns: Option<String>,
    },
    /// Another program is attached, and ours cannot stand beside it.
    #[error(
        "the XDP program {program} (`{name}`, attached {}) is on {interface}: {why}; it was not \
         touched", how(.link)
    )]
    InTheWay {
        /// The interface.
        interface: IfName,
        /// The number of the program.
        program: u32,
        /// Its name.
        name: String,
        /// The number of its link.
        link: Option<u32>,
        /// Where it runs; `None` in the NIC itself, or in several places.
        mode: Option<AttachMode>,
        /// Why ours cannot stand beside it.
        why: String,
    },
    /// Another mode can only be had anew.
    #[error(
        "receive priority is on {interface} in {mode} mode; {wanted} mode needs `receive stop` and \
         `receive start`"
    )]
    OtherMode {
        /// The interface.
        interface: IfName,
        /// The mode it has.
        mode: AttachMode,
        /// The mode that was asked for.
        wanted: AttachMode,
    },
    /// Another command is at it.
    #[error("another command is changing receive priority; try again")]
    Busy,
    /// A thread of the kernel cannot be seen.
    #[error(
        "the kernel's thread `{name}` cannot be seen from here, so it cannot be scheduled: run \
         this outside of containers, or give its class `scheduling: {{policy: other}}`"
    )]
    NoThread {
        /// Its name.
        name: String,
    },
    /// A thread of the kernel cannot be scheduled as wanted.
    #[error("cannot schedule the kernel's thread `{name}`: {source}")]
    Scheduling {
        /// Its name.
        name: String,
        /// Why not.
        source: io::Error,
    },
    /// A CPU that this machine has not, or not now.
    #[error("{interface}: CPU {cpu} is not online")]
    NoCpu {
        /// The interface.
        interface: IfName,
        /// Its number.
        cpu: u32,
    },
    /// The kernel refuses a program, a map or attaching.
    #[error("{interface}: {source}")]
    Bpf {
        /// The interface.
        interface: IfName,
        /// What it refuses.
        source: BpfError,
    },
    /// What the kernel has of it cannot be used.
    #[error(transparent)]
    Map(BpfError),
    /// A file could not be used, or does not hold what it should.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Failure for ReceiveError {
    fn inner(&self) -> Option<&dyn Failure> {
        match self {
            ReceiveError::Host(error) => Some(error),
            _ => None,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            ReceiveError::Host(HostError::File(error)) | ReceiveError::File(error)
                if error.kind() == Some(io::ErrorKind::PermissionDenied) =>
            {
                Some("needs root".to_owned())
            }
            ReceiveError::Bpf { source: BpfError::Load { .. }, .. }
            | ReceiveError::Query { .. } => Some(
                "needs CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and CAP_SYS_ADMIN (run as root)"
                    .to_owned(),
            ),
            ReceiveError::PrivateMounts { netns } => {
                let netns = netns.as_deref().unwrap_or("NAME");
                Some(format!(
                    "instead of `ip netns exec`: `nsenter --net=/run/netns/{netns} timewire \
                     receive ...`"
                ))
            }
            ReceiveError::InTheWay { interface, link: None, mode: Some(mode), .. } => {
                let place = place_of(*mode);
                Some(format!("`ip link set dev {interface} {place} off` takes it off, if you may"))
            }
            ReceiveError::InTheWay { interface, link: None, mode: None, .. } => {
                Some(format!("`ip -d link show dev {interface}` shows where it runs"))
            }
            ReceiveError::InTheWay { link: Some(link), .. } => {
                Some(format!("`bpftool link show id {link} -p` shows who has the link"))
            }
            _ => return self.inner()?.hint(),
        };
        hint.map(Cow::Owned)
    }

    fn is_unsupported(&self) -> bool {
        match self {
            ReceiveError::Bpf { source: BpfError::Load { .. }, .. } => true,
            ReceiveError::Bpf { source: BpfError::Attach { source, .. }, .. } => {
                matches!(source.raw_os_error(), Some(EOPNOTSUPP))
            }
            ReceiveError::NoThread { .. } | ReceiveError::InTheWay { .. } => true,
            _ => self.inner().is_some_and(Failure::is_unsupported),
        }
    }
}

impl ReceiveError {
    pub(super) fn bpf(interface: &IfName, source: BpfError) -> ReceiveError {
        ReceiveError::Bpf { interface: interface.clone(), source }
    }

    pub(super) fn file(
        what: &'static str,
        path: &Path,
    ) -> impl Fn(io::Error) -> ReceiveError + use<> {
        FileError::unusable(what, path)
    }
}

/// Where a program runs, as `ip link` says it: with `xdp` alone it chooses by the driver.
pub(super) fn place_of(mode: AttachMode) -> &'static str {
    match mode {
        AttachMode::Native => "xdpdrv",
        AttachMode::Generic => "xdpgeneric",
    }
}

fn how(link: &Option<u32>) -> String {
    match link {
        Some(link) => format!("by link {link}"),
        None => "over netlink".to_owned(),
    }
}

const EOPNOTSUPP: i32 = 95;
