// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong when a receiver is opened.

use std::borrow::Cow;
use std::io;

use thiserror::Error;
use timewire_base::{Failure, IfName};
use timewire_bpf::BpfError;

/// A receiver that could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// There is no such interface.
    #[error("{source}")]
    NoInterface {
        /// Its name.
        interface: IfName,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused a socket or one of its options.
    #[error("cannot receive {what}: {source}")]
    Open {
        /// What from where.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// Another XDP program is on the interface, and there is room for one.
    #[error(
        "the XDP program {program} (`{name}`, attached {}) is on {interface}, where there is room \
         for one: it was not touched", match link {
            Some(link) => format!("by link {link}"),
            None => "over netlink".to_owned(),
        }
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
    },
    /// No wanted way to AF_XDP works.
    #[error("no AF_XDP on {}{interface}: {}", match queue {
        Some(queue) => format!("queue {queue} of "),
        None => String::new(),
    }, refused.join("; "))]
    NoXdp {
        /// The interface.
        interface: IfName,
        /// The one queue that was wanted; all of them with `None`.
        queue: Option<u32>,
        /// What was tried and why it did not work.
        refused: Vec<String>,
        /// Whether it was for want of privilege.
        is_forbidden: bool,
    },
    /// The program could not be spoken to.
    #[error("{interface}: {source}")]
    Bpf {
        /// The interface.
        interface: IfName,
        /// Why.
        source: BpfError,
    },
    /// Two options that exclude each other.
    #[error("{0}")]
    Contradiction(&'static str),
}

impl Failure for ListenError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            ListenError::Open { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some(
                    "frames need CAP_NET_RAW, busy polling and large buffers CAP_NET_ADMIN; a \
                     UDP port below 1024 CAP_NET_BIND_SERVICE",
                )
            }
            ListenError::NoXdp { is_forbidden: true, .. } => Some(
                "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON, and \
                     CAP_IPC_LOCK or more locked memory (`ulimit -l`); in a container also a \
                     seccomp profile that allows bpf()",
            ),
            ListenError::NoXdp { .. } => {
                Some("the mode `auto` takes what works; frames and ring need no driver's help")
            }
            ListenError::InTheWay { .. } => {
                Some("`ip link set INTERFACE xdp off` takes one off that is attached over netlink")
            }
            ListenError::Bpf { source, .. } if source.is_forbidden() => Some(
                "eBPF needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN in the first user namespace",
            ),
            _ => None,
        };
        hint.map(Cow::Borrowed)
    }

    fn is_unsupported(&self) -> bool {
        match self {
            ListenError::Open { source, .. } => source.kind() == io::ErrorKind::Unsupported,
            ListenError::NoXdp { is_forbidden, .. } => !is_forbidden,
            ListenError::Bpf { source, .. } => !source.is_forbidden(),
            _ => false,
        }
    }
}
