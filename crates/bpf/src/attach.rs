// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attaching by link, with the flags that the library's typed calls do not take.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys::{BPF_TCX_EGRESS, BPF_TCX_INGRESS, BPF_XDP, bpf_link_create, bpf_link_create_opts};

/// Linux `XDP_FLAGS_SKB_MODE`.
const SKB_MODE: u32 = 1 << 1;
/// Linux `XDP_FLAGS_DRV_MODE`.
const DRV_MODE: u32 = 1 << 2;
/// Linux `BPF_F_BEFORE`: without another program named, before all (linux v6.12
/// `kernel/bpf/mprog.c:bpf_mprog_pos_before`). Without it, after all.
const BEFORE: u32 = 1 << 3;

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before a socket buffer is made.
    Native,
    /// In the stack, on a socket buffer: slower, every driver.
    Generic,
}

impl AttachMode {
    pub(crate) fn flags(self) -> u32 {
        match self {
            AttachMode::Native => DRV_MODE,
            AttachMode::Generic => SKB_MODE,
        }
    }
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttachMode::Native => "native",
            AttachMode::Generic => "generic",
        })
    }
}

/// An attached program; dropping it detaches, as does the end of the process.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Attaches an XDP program.
pub(crate) fn xdp(program: BorrowedFd<'_>, interface: u32, mode: AttachMode) -> io::Result<Link> {
    create(program, interface, BPF_XDP, mode.flags())
}

/// Attaches a traffic-control program before those that handle received frames now (Linux 6.6).
pub(crate) fn tcx_ingress(program: BorrowedFd<'_>, interface: u32) -> io::Result<Link> {
    create(program, interface, BPF_TCX_INGRESS, BEFORE)
}

/// Attaches a traffic-control program before those that handle frames to be sent now (Linux 6.6).
pub(crate) fn tcx_egress(program: BorrowedFd<'_>, interface: u32) -> io::Result<Link> {
    create(program, interface, BPF_TCX_EGRESS, BEFORE)
}

fn create(program: BorrowedFd<'_>, interface: u32, kind: u32, flags: u32) -> io::Result<Link> {
    // SAFETY: all-zero is valid for this struct of integers, null pointers and unions of both.
    let mut options: bpf_link_create_opts = unsafe { std::mem::zeroed() };
    options.sz = u64::try_from(size_of_val(&options)).expect("invariant: usize fits u64");
    options.flags = flags;
    let interface = i32::try_from(interface).expect("invariant: an index is positive");
    // SAFETY: the program's descriptor is open for the call, and `options` says its own size.
    let fd = unsafe { bpf_link_create(program.as_raw_fd(), interface, kind, &raw const options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(Link(unsafe { OwnedFd::from_raw_fd(fd) }))
}
