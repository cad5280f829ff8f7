// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that lets every frame pass (`pass.bpf.c`), for drivers that have zero copy only with a
//! program.
//!
//! Not here: programs that hand frames to a socket (`ingress`).

use std::os::fd::AsFd;

use crate::{AttachMode, BpfError, Link, attach, load, program_of};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pass.bpf.o"));
const PROGRAM: &str = "pass";

/// The program, attached to one interface.
#[derive(Debug)]
pub struct Pass {
    _link: Link,
}

impl Pass {
    /// Loads the program and attaches it.
    ///
    /// **Errors**: no privilege, the driver does not know the mode, or the interface has a program
    /// already.
    pub fn attach(interface: u32, mode: AttachMode) -> Result<Pass, BpfError> {
        let object = loaded()?;
        let link = attach::xdp(program_of(&object, "tw_pass").as_fd(), interface, mode)
            .map_err(|source| BpfError::Attach { program: PROGRAM, interface, source })?;
        // The link keeps the program.
        Ok(Pass { _link: link })
    }
}

/// The program in the kernel, attached to nothing.
pub(crate) fn loaded() -> Result<libbpf_rs::Object, BpfError> {
    load(PROGRAM, OBJECT, |_| Ok(()))
}
