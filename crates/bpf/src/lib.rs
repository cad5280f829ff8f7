// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eBPF programs of the data path: each is a directory with its C source and the Rust that
//! loads it and reads its maps. Programs are attached by links, so they go away with their owner,
//! also when it is killed; but for `receive::resident`, which is there to stay.
//!
//! Needs CAP_BPF and CAP_NET_ADMIN in the first user namespace; to receive and to listen also
//! CAP_PERFMON, as those programs take a pointer into a frame from another.
//!
//! Not here: what is done where eBPF is not allowed (`timewire-datapath` has a road without it).

mod attach;
pub mod egress;
pub mod ingress;
pub mod listen;
mod losses;
mod objects;
pub mod pass;
pub mod probe;
pub mod receive;
pub mod trace;

pub use attach::{AttachMode, Link};
pub use objects::{Attached, attached};

use libbpf_rs::MapCore;
use thiserror::Error;

/// A program that could not be loaded, attached or spoken to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BpfError {
    /// The kernel refused the program or one of its maps.
    #[error("the kernel refused the {program} program: {source}")]
    Load {
        /// Which program.
        program: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// The program could not be attached.
    #[error("cannot attach the {program} program to interface {interface}: {source}")]
    Attach {
        /// Which program.
        program: &'static str,
        /// Index of the interface.
        interface: u32,
        /// Why.
        source: std::io::Error,
    },
    /// The programs that count losses could not be attached to the kernel's tracepoints.
    #[error("cannot watch the kernel's tracepoints of XDP: {source}")]
    Tracepoint {
        /// Why.
        source: std::io::Error,
    },
    /// The program of somebody else that is attached could not be opened.
    #[error("cannot open program {program}: {source}")]
    Other {
        /// Its number.
        program: u32,
        /// Why not.
        source: std::io::Error,
    },
    /// An object could not be given a name in the BPF file system, or not be found there.
    #[error("cannot {what} {}: {source}", path.display())]
    Pin {
        /// What was tried.
        what: &'static str,
        /// Its name.
        path: std::path::PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no room for the rules.
    #[error("{0}")]
    TooMany(receive::rules::TooMany),
    /// A thread that takes frames further could not be made.
    #[error("cannot make a thread on CPU {cpu}: {source}")]
    Thread {
        /// Where.
        cpu: u32,
        /// Why not.
        source: libbpf_rs::Error,
    },
    /// The kernel does not describe its types, so nothing of its structures can be found.
    #[error("this kernel has no BTF (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF): {source}")]
    NoTypes {
        /// Why.
        source: libbpf_rs::Error,
    },
    /// A program could not be attached to a tracepoint or a function.
    #[error("cannot watch the kernel's `{at}`: {source}")]
    Hook {
        /// To which one.
        at: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// The rings of events could not be mapped, or their programs not be asked.
    #[error("cannot access the rings of events: {source}")]
    Ring {
        /// Why.
        source: std::io::Error,
    },
    /// More stations than a capture can tell apart.
    #[error("{stations} stations are more than a capture can tell apart")]
    TooManyStations {
        /// How many.
        stations: usize,
    },
    /// A map could not be read or written.
    #[error("cannot access the map `{map}`: {source}")]
    Map {
        /// Which map.
        map: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
}

impl BpfError {
    /// Whether it failed for want of privilege.
    pub fn is_forbidden(&self) -> bool {
        match self {
            BpfError::Load { source, .. }
            | BpfError::Map { source, .. }
            | BpfError::NoTypes { source }
            | BpfError::Hook { source, .. }
            | BpfError::Thread { source, .. } => {
                source.kind() == libbpf_rs::ErrorKind::PermissionDenied
            }
            BpfError::Attach { source, .. }
            | BpfError::Tracepoint { source }
            | BpfError::Ring { source }
            | BpfError::Other { source, .. }
            | BpfError::Pin { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
            BpfError::TooMany(_) | BpfError::TooManyStations { .. } => false,
        }
    }

    /// Whether this kernel lacks what is needed, with any privilege.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, BpfError::NoTypes { .. }) && !self.is_forbidden()
    }
}

/// Opens an object, lets `prepare` change it, loads it; silences the library's own printing.
fn load(
    program: &'static str,
    object: &[u8],
    prepare: impl FnOnce(&mut libbpf_rs::OpenObject) -> libbpf_rs::Result<()>,
) -> Result<libbpf_rs::Object, BpfError> {
    libbpf_rs::set_print(None);
    let run = || {
        let mut open = libbpf_rs::ObjectBuilder::default().open_memory(object)?;
        prepare(&mut open)?;
        open.load()
    };
    run().map_err(|source| BpfError::Load { program, source })
}

/// The map of that name, which the object is known to have.
fn map_of<'a>(object: &'a libbpf_rs::Object, name: &str) -> libbpf_rs::Map<'a> {
    object
        .maps()
        .find(|map| map.name() == name)
        .expect("invariant: the object we embed has the map")
}

/// The program of that name, which the object is known to have.
fn program_of<'a>(object: &'a libbpf_rs::Object, name: &str) -> libbpf_rs::Program<'a> {
    object
        .progs()
        .find(|program| program.name() == name)
        .expect("invariant: the object we embed has the program")
}
