// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands every frame that the local stack sends to the MAC's AF_XDP socket (`ingress.bpf.c`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags};

use crate::{AttachMode, BpfError, Link, attach, load, map_of, program_of};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ingress.bpf.o"));
const PROGRAM: &str = "ingress";

/// The program, attached to one interface.
#[derive(Debug)]
pub struct Ingress {
    object: libbpf_rs::Object,
    _link: Link,
}

impl Ingress {
    /// Loads the program and attaches it to the far side of the virtual interface.
    ///
    /// **Errors**: no privilege, or the driver does not know the mode.
    pub fn attach(interface: u32, mode: AttachMode) -> Result<Ingress, BpfError> {
        let object = load(PROGRAM, OBJECT, |_| Ok(()))?;
        let link = attach::xdp(program_of(&object, "tw_to_mac").as_fd(), interface, mode)
            .map_err(|source| BpfError::Attach { program: PROGRAM, interface, source })?;
        Ok(Ingress { object, _link: link })
    }

    /// From now on frames of this queue go to that AF_XDP socket.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        let socket = u32::try_from(socket.as_raw_fd()).expect("invariant: open");
        map_of(&self.object, "sockets")
            .update(&queue.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| BpfError::Map { map: "sockets", source })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The program in the kernel, attached to nothing.
    pub(crate) fn loaded() -> Result<libbpf_rs::Object, BpfError> {
        load(PROGRAM, OBJECT, |_| Ok(()))
    }
}
