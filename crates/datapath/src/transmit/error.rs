// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a port could not be opened.

use std::borrow::Cow;
use std::io;

use timewire_base::{Failure, IfName};
use timewire_bpf::BpfError;

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// An interface is missing.
    #[error("interface {name}: {source}")]
    Interface {
        /// Its name.
        name: IfName,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused a socket or one of its options.
    #[error("{what}: {source}")]
    Open {
        /// Which, and where.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// Kernel, driver or transport cannot do what was asked for.
    #[error("{what}: {why}")]
    Unsupported {
        /// What was asked for, and where.
        what: String,
        /// What is missing, and what would be right.
        why: String,
    },
    /// Two things were asked for that exclude each other.
    #[error("{0}")]
    Contradiction(&'static str),
    /// An eBPF program was refused.
    #[error(transparent)]
    Bpf(#[from] BpfError),
}

impl Failure for PortError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            PortError::Open { what, source }
                if source.raw_os_error() == Some(libc_errno::ENOBUFS)
                    && what.starts_with("AF_XDP") =>
            {
                Some(
                    "memory for AF_XDP counts as locked: it needs CAP_IPC_LOCK, or more of it \
                     (`ulimit -l`)",
                )
            }
            PortError::Open { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Some(
                    "CAP_NET_RAW is needed for whole frames and AF_XDP; CAP_NET_ADMIN for a \
                     priority above 6, launch times of TAI and busy polling",
                ),
                io::ErrorKind::ResourceBusy => {
                    Some("another AF_XDP socket has this queue; take another one or end it")
                }
                io::ErrorKind::AddrNotAvailable => {
                    Some("the source address must be one of this host's")
                }
                _ => None,
            },
            _ => None,
        };
        hint.map(Cow::Borrowed)
    }

    fn is_unsupported(&self) -> bool {
        match self {
            PortError::Unsupported { .. } => true,
            PortError::Open { source, .. } => matches!(
                source.raw_os_error(),
                Some(libc_errno::EAFNOSUPPORT | libc_errno::EOPNOTSUPP | libc_errno::ENOPROTOOPT)
            ),
            _ => false,
        }
    }
}

/// Numbers of errors that the standard library has no stable kind for; the same on every
/// architecture that Timewire is built for.
mod libc_errno {
    pub(super) const ENOPROTOOPT: i32 = 92;
    pub(super) const EOPNOTSUPP: i32 = 95;
    pub(super) const EAFNOSUPPORT: i32 = 97;
    pub(super) const ENOBUFS: i32 = 105;
}
