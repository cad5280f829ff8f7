// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eBPF programs of the data path: each is a directory with its C source and the Rust that
//! loads it and reads its maps. Programs are attached by links, so they go away with their owner,
//! also when it is killed.
//!
//! Needs CAP_BPF and CAP_NET_ADMIN in the first user namespace.
//!
//! Not here: what is done where eBPF is not allowed (`timewire-path` has a road without it).

mod attach;
pub mod ingress;
pub mod receive;

pub use attach::{AttachMode, Link};

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
    /// A map could not be read or written.
    #[error("cannot access the map `{map}`: {source}")]
    Map {
        /// Which map.
        map: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
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
