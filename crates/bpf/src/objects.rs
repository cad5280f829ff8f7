// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs, maps and links beyond this process: pinning, finding by number, and what is attached
//! to an interface; the calls for which the library has no typed form.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_sys::{
    bpf_link_detach, bpf_link_get_fd_by_id, bpf_link_get_info_by_fd, bpf_link_get_next_id,
    bpf_link_info, bpf_map_get_info_by_fd, bpf_map_info, bpf_obj_get, bpf_obj_pin,
    bpf_prog_get_fd_by_id, bpf_prog_get_info_by_fd, bpf_prog_info, bpf_raw_tracepoint_open,
    bpf_xdp_attach, bpf_xdp_attach_opts, bpf_xdp_query, bpf_xdp_query_opts,
    libbpf_probe_bpf_helper,
};

use crate::AttachMode;

/// Linux `BPF_LINK_TYPE_XDP`.
const LINK_TYPE_XDP: u32 = 6;
/// Linux `XDP_ATTACHED_DRV` and `XDP_ATTACHED_SKB`.
const ATTACHED_DRV: u8 = 1;
const ATTACHED_SKB: u8 = 2;
/// Linux `XDP_FLAGS_REPLACE`.
const REPLACE: u32 = 1 << 4;

/// An XDP program that is attached to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its number.
    pub program: u32,
    /// Its name, at most 15 characters.
    pub name: String,
    /// Where it runs; `None` in the NIC itself, or in several places.
    pub mode: Option<AttachMode>,
    /// The number of the link that attaches it; `None` for one attached over netlink.
    pub link: Option<u32>,
}

/// What is attached to an interface of the caller's network namespace.
///
/// **Errors**: no such interface; telling links apart needs CAP_SYS_ADMIN.
pub fn attached(interface: u32) -> io::Result<Option<Attached>> {
    // The library remarks on messages of kernels that it is older than.
    libbpf_rs::set_print(None);
    let index = as_index(interface);
    let size = u64::try_from(size_of::<bpf_xdp_query_opts>()).expect("invariant: small");
    let mut found = bpf_xdp_query_opts { sz: size, ..bpf_xdp_query_opts::default() };
    // SAFETY: `found` is writable and says its own size.
    check(unsafe { bpf_xdp_query(index, 0, &raw mut found) })?;
    let (mode, program) = match found.attach_mode {
        0 => return Ok(None),
        ATTACHED_DRV => (Some(AttachMode::Native), found.drv_prog_id),
        ATTACHED_SKB => (Some(AttachMode::Generic), found.skb_prog_id),
        _ => (None, found.prog_id.max(found.hw_prog_id).max(found.drv_prog_id)),
    };
    let name = match program_by_number(program) {
        Ok(fd) => program_info(borrow(&fd))?.1,
        // Gone again, or not ours to see: the number must do.
        Err(_) => String::new(),
    };
    let link = xdp_link(interface, program)?;
    Ok(Some(Attached { program, name, mode, link }))
}

/// The number of the link that attaches a program to an interface, if a link does.
fn xdp_link(interface: u32, program: u32) -> io::Result<Option<u32>> {
    let mut number = 0;
    loop {
        let after = number;
        // SAFETY: `number` is writable.
        match check(unsafe { bpf_link_get_next_id(after, &raw mut number) }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        // SAFETY: a call without pointers.
        let Ok(fd) = owned(unsafe { bpf_link_get_fd_by_id(number) }) else { continue };
        if link_info(borrow(&fd))? == (LINK_TYPE_XDP, program, interface) {
            return Ok(Some(number));
        }
    }
}

/// Kind, program and, of a link of XDP, interface of a link; 0 when the interface is gone.
pub(crate) fn link_info(link: BorrowedFd<'_>) -> io::Result<(u32, u32, u32)> {
    // SAFETY: all-zero is valid for this struct of integers and a union of such.
    let mut info: bpf_link_info = unsafe { std::mem::zeroed() };
    let mut size = small(size_of_val(&info));
    // SAFETY: `info` is writable for `size` bytes; with all pointers in it null the kernel writes
    // nothing else.
    check(unsafe { bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut size) })?;
    let interface = match info.type_ {
        // SAFETY: this kind of link has filled in this part, a plain integer.
        LINK_TYPE_XDP => unsafe { info.__bindgen_anon_1.xdp.ifindex },
        _ => 0,
    };
    Ok((info.type_, info.prog_id, interface))
}

/// Number and name of a program.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> io::Result<(u32, String)> {
    // SAFETY: all-zero is a valid bpf_prog_info (plain integers).
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut size = small(size_of_val(&info));
    // SAFETY: as in `link_info`.
    check(unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) })?;
    let name = info.name.iter().take_while(|c| **c != 0);
    let name: Vec<u8> = name.map(|c| c.to_ne_bytes()[0]).collect();
    Ok((info.id, String::from_utf8_lossy(&name).into_owned()))
}

/// How often a program was left out since it was running on that CPU already.
pub(crate) fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: all-zero is a valid bpf_prog_info (plain integers).
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut size = small(size_of_val(&info));
    // SAFETY: as in `link_info`.
    check(unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok(info.recursion_misses)
}

/// The number of a map.
pub(crate) fn map_number(map: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: all-zero is a valid bpf_map_info (plain integers).
    let mut info: bpf_map_info = unsafe { std::mem::zeroed() };
    let mut size = small(size_of_val(&info));
    // SAFETY: as in `link_info`.
    check(unsafe { bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok(info.id)
}

/// A program by its number.
pub(crate) fn program_by_number(program: u32) -> io::Result<OwnedFd> {
    // SAFETY: a call without pointers.
    owned(unsafe { bpf_prog_get_fd_by_id(program) })
}

/// Gives an object a name in the BPF file system, which keeps it.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check(unsafe { bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// The object of that name.
pub(crate) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is NUL-terminated and outlives the call.
    owned(unsafe { bpf_obj_get(path.as_ptr()) })
}

/// Takes a link's program off, at once and for everyone who has the link.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a call without pointers on an open descriptor.
    check(unsafe { bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

/// Puts one XDP program in the place of another, in one step and over netlink. `None` takes the old
/// one off.
///
/// **Errors**: `EEXIST` when another program than the old one is attached.
pub(crate) fn replace_xdp(
    interface: u32,
    mode: AttachMode,
    old: BorrowedFd<'_>,
    new: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let options = bpf_xdp_attach_opts {
        sz: u64::try_from(size_of::<bpf_xdp_attach_opts>()).expect("invariant: small"),
        old_prog_fd: old.as_raw_fd(),
        ..bpf_xdp_attach_opts::default()
    };
    let new = new.map_or(-1, |new| new.as_raw_fd());
    let flags = mode.flags() | REPLACE;
    // SAFETY: `options` says its own size and outlives the call.
    let result = unsafe { bpf_xdp_attach(as_index(interface), new, flags, &raw const options) };
    check(result).map(drop)
}

/// Attaches a program to a tracepoint; the descriptor is the link.
pub(crate) fn raw_tracepoint(name: &str, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    // SAFETY: `name` is NUL-terminated and outlives the call.
    owned(unsafe { bpf_raw_tracepoint_open(name.as_ptr(), program.as_raw_fd()) })
}

/// Whether XDP programs of this kernel can read TAI (Linux 6.1).
pub(crate) fn xdp_has_tai() -> bool {
    // The library remarks on what a kernel lacks.
    libbpf_rs::set_print(None);
    let (xdp, helper) = (libbpf_sys::BPF_PROG_TYPE_XDP, libbpf_sys::BPF_FUNC_ktime_get_tai_ns);
    // SAFETY: two constants; no options are given.
    unsafe { libbpf_probe_bpf_helper(xdp, helper, std::ptr::null()) == 1 }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    let fd = check(fd)?;
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(fd)
}

fn as_index(interface: u32) -> i32 {
    i32::try_from(interface).expect("invariant: an index is positive")
}

fn small(size: usize) -> u32 {
    u32::try_from(size).expect("invariant: small")
}
