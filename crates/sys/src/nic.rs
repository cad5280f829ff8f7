// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a NIC says about itself, where no tool of a distribution asks; and telling the
//! NIC what to timestamp.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use timewire_base::IfName;

use crate::socket::{check, socket};

/// What a NIC timestamps: the numbers of `HWTSTAMP_TX_...` and `HWTSTAMP_FILTER_...`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TimestampFilters {
    flags: libc::c_int,
    /// Of sent frames.
    pub tx: libc::c_int,
    /// Of received frames.
    pub rx: libc::c_int,
}

impl TimestampFilters {
    /// Every sent frame that asks for it, and every received one: `HWTSTAMP_TX_ON` and
    /// `HWTSTAMP_FILTER_ALL`.
    pub const ALL: TimestampFilters = TimestampFilters { flags: 0, tx: TX_ON, rx: FILTER_ALL };
    /// As [`TimestampFilters::ALL`], of received frames PTP's event messages only
    /// (`HWTSTAMP_FILTER_PTP_V2_EVENT`): more NICs can that.
    pub const PTP: TimestampFilters =
        TimestampFilters { flags: 0, tx: TX_ON, rx: FILTER_PTP_V2_EVENT };

    /// By the numbers of `HWTSTAMP_TX_...` and `HWTSTAMP_FILTER_...`.
    pub fn of(tx: i32, rx: i32) -> TimestampFilters {
        TimestampFilters { flags: 0, tx, rx }
    }

    /// Whether sent frames are timestamped that ask for it.
    pub fn timestamps_sent(&self) -> bool {
        self.tx != TX_OFF
    }

    /// Whether every received frame is timestamped.
    pub fn timestamps_all(&self) -> bool {
        self.rx == FILTER_ALL
    }

    /// Whether PTP's event messages straight over Ethernet are timestamped when received.
    pub fn timestamps_ptp(&self) -> bool {
        [FILTER_ALL, FILTER_PTP_V2_L2_EVENT, FILTER_PTP_V2_EVENT].contains(&self.rx)
    }
}

/// What a NIC of the caller's network namespace timestamps now.
///
/// **Errors**: `Unsupported` (or `ENOTTY`) when the NIC or its driver does not tell.
pub fn timestamp_filters(interface: &IfName) -> io::Result<TimestampFilters> {
    request(interface, GET_TIMESTAMP_FILTERS, TimestampFilters::default())
}

/// Tells a NIC what to timestamp; returns what it timestamps from now on, which may be more. It
/// stays so when the process ends: whoever calls this has written down what [`timestamp_filters`]
/// said, and restores that. A clock daemon that uses the NIC sets it too, and needs at least
/// PTP's.
///
/// **Errors**: `EPERM` without CAP_NET_ADMIN; `ERANGE` when the NIC cannot timestamp so;
/// `Unsupported` when it cannot timestamp at all.
pub fn set_timestamp_filters(
    interface: &IfName,
    filters: TimestampFilters,
) -> io::Result<TimestampFilters> {
    request(interface, SET_TIMESTAMP_FILTERS, filters)
}

/// How many receive queues of an interface of the caller's network namespace are in use: those of
/// their own and those that send as well.
///
/// **Errors**: `Unsupported` when its driver does not tell.
///
/// **Source**: linux v6.12 `include/uapi/linux/ethtool.h:ethtool_channels`.
pub fn receive_queues(interface: &IfName) -> io::Result<u32> {
    let asked = Channels { command: GET_CHANNELS, ..Channels::default() };
    let told = request(interface, ETHTOOL, asked)?;
    Ok(told.rx + told.combined)
}

/// Whether an interface of the caller's network namespace is up and has a carrier.
///
/// **Errors**: `Unsupported` when its driver does not tell.
///
/// **Source**: linux v6.12 `net/ethtool/ioctl.c:ethtool_get_link`.
pub fn has_carrier(interface: &IfName) -> io::Result<bool> {
    let asked = Asked { command: GET_LINK, told: 0 };
    Ok(request(interface, ETHTOOL, asked)?.told != 0)
}

/// A link that was there before a change: drivers take it down and up again when an XDP program
/// comes or a queue gives up copying, and the two ends agree anew.
///
/// **Source**: linux v6.12 `drivers/net/ethernet/intel/igb/igb_main.c:igb_xdp_setup`.
#[derive(Clone, Debug)]
pub struct LinkBefore {
    interface: IfName,
    had_carrier: bool,
}

/// How long two ends take to agree: a second or two for copper at 1 Gbit/s.
const AGREED_WITHIN: Duration = Duration::from_secs(10);

impl LinkBefore {
    /// As it is now.
    pub fn of(interface: &IfName) -> LinkBefore {
        let had_carrier = has_carrier(interface).unwrap_or(false);
        LinkBefore { interface: interface.clone(), had_carrier }
    }

    /// Waits until the link is there again, where it was before; says what is to be told when it
    /// does not come.
    pub fn is_back(&self) -> Option<String> {
        let begun = Instant::now();
        while self.had_carrier && matches!(has_carrier(&self.interface), Ok(false)) {
            if begun.elapsed() > AGREED_WITHIN {
                let within = AGREED_WITHIN.as_secs();
                return Some(format!(
                    "the link of {} went down, and was not up again after {within} s",
                    self.interface
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

/// `struct ethtool_value`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Asked {
    command: u32,
    told: u32,
}

/// `struct ethtool_channels`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// A structure that an `ioctl` of an interface points to, of integers only: the kernel may write
/// anything into it.
trait Pointed: Copy {}
impl Pointed for TimestampFilters {}
impl Pointed for Channels {}
impl Pointed for Asked {}

fn request<T: Pointed>(interface: &IfName, what: libc::c_ulong, mut value: T) -> io::Result<T> {
    /// `struct ifreq` with a pointer.
    #[repr(C)]
    struct Request<T> {
        name: [u8; libc::IFNAMSIZ],
        data: *mut T,
        rest: [u8; 16],
    }
    const { assert!(size_of::<Request<T>>() == size_of::<libc::ifreq>()) };
    let fd = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut name = [0; libc::IFNAMSIZ];
    // At most 15 bytes: the last stays NUL.
    for (to, from) in name.iter_mut().zip(interface.as_str().bytes()) {
        *to = from;
    }
    let mut request = Request { name, data: &raw mut value, rest: [0; 16] };
    // SAFETY: the request is as large as an ifreq and points to the structure of that request,
    // which is ours and lives until the call has returned.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what, &raw mut request) })?;
    Ok(value)
}

/// Which way a frame goes past a `tcx` program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Ingress,
    /// Sent.
    Egress,
}

/// Numbers of the `tcx` programs of an interface, in their order.
///
/// **Errors**: needs `CAP_NET_ADMIN` (and `CAP_BPF`); `InvalidInput` from kernels before 6.6.
pub fn tcx_programs(interface_index: u32, direction: Direction) -> io::Result<Vec<u32>> {
    /// The part of `union bpf_attr` that a query has.
    #[repr(C)]
    struct Query {
        target: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        programs: u64,
        count: u32,
        padding: u32,
        program_attach_flags: u64,
        links: u64,
        link_attach_flags: u64,
        revision: u64,
    }
    const _: () = assert!(size_of::<Query>() == 64);
    // More than the kernel allows on one interface (linux v6.12 include/linux/bpf_mprog.h).
    let mut programs = [0_u32; 64];
    let mut query = Query {
        target: interface_index,
        attach_type: if direction == Direction::Ingress { TCX_INGRESS } else { TCX_EGRESS },
        query_flags: 0,
        attach_flags: 0,
        programs: programs.as_mut_ptr().expose_provenance() as u64,
        count: 64,
        padding: 0,
        program_attach_flags: 0,
        links: 0,
        link_attach_flags: 0,
        revision: 0,
    };
    let size = size_of::<Query>();
    // SAFETY: `query` is readable and writable for `size` bytes and points to room for as many
    // numbers as it says; the kernel takes any size whose unknown rest is zero.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, &raw mut query, size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let count = usize::try_from(query.count).unwrap_or(0).min(programs.len());
    Ok(programs[..count].to_vec())
}

/// The name of a loaded program.
///
/// **Errors**: needs `CAP_SYS_ADMIN`; `NotFound` when it is no longer there.
pub fn program_name(id: u32) -> io::Result<String> {
    use std::os::fd::{FromRawFd, OwnedFd};
    /// The part of `union bpf_attr` that opens a program by its number.
    #[repr(C)]
    struct ById {
        id: u32,
        next: u32,
        flags: u32,
    }
    /// The part that asks for what is known about it.
    #[repr(C)]
    struct Info {
        fd: u32,
        length: u32,
        info: u64,
    }
    let open = ById { id, next: 0, flags: 0 };
    let size = size_of::<ById>();
    // SAFETY: `open` is readable for `size` bytes.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_GET_FD_BY_ID, &raw const open, size) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the descriptor is new and nobody else owns it.
    let program = unsafe { OwnedFd::from_raw_fd(fd) };
    // `struct bpf_prog_info` up to the end of the name.
    let mut info = [0_u8; 80];
    let ask = Info {
        fd: u32::try_from(program.as_raw_fd()).expect("invariant: descriptors are not negative"),
        length: 80,
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    let size = size_of::<Info>();
    // SAFETY: `ask` is readable for `size` bytes and points to 80 writable ones, as it says.
    let result = unsafe { libc::syscall(libc::SYS_bpf, GET_INFO_BY_FD, &raw const ask, size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = &info[NAME_AT..];
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

// From linux v6.12 include/uapi/linux: net_tstamp.h, sockios.h, ethtool.h, bpf.h.
const TX_OFF: libc::c_int = 0;
const TX_ON: libc::c_int = 1;
const FILTER_ALL: libc::c_int = 1;
const FILTER_PTP_V2_L2_EVENT: libc::c_int = 9;
const FILTER_PTP_V2_EVENT: libc::c_int = 12;
const ETHTOOL: libc::c_ulong = 0x8946;
const GET_CHANNELS: u32 = 0x3c;
const GET_LINK: u32 = 0x0a;
const SET_TIMESTAMP_FILTERS: libc::c_ulong = 0x89b0;
const GET_TIMESTAMP_FILTERS: libc::c_ulong = 0x89b1;
const PROG_QUERY: libc::c_int = 16;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const GET_INFO_BY_FD: libc::c_int = 15;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
/// type, id, tag, two lengths, two pointers, load time, user, count of maps, pointer to maps.
const NAME_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_loopback_interface_timestamps_nothing() {
        let lo = IfName::new("lo").unwrap();
        let refused = timestamp_filters(&lo).unwrap_err();
        let known = [libc::EOPNOTSUPP, libc::ENOTTY, libc::EINVAL];
        assert!(refused.raw_os_error().is_some_and(|e| known.contains(&e)), "{refused}");
        let refused = set_timestamp_filters(&lo, TimestampFilters::ALL).unwrap_err();
        let known = [libc::EOPNOTSUPP, libc::ENOTTY, libc::EINVAL, libc::EPERM];
        assert!(refused.raw_os_error().is_some_and(|e| known.contains(&e)), "{refused}");
    }

    #[test]
    fn t0_filters_say_what_they_timestamp() {
        assert!(TimestampFilters::ALL.timestamps_all() && TimestampFilters::ALL.timestamps_ptp());
        assert!(!TimestampFilters::PTP.timestamps_all() && TimestampFilters::PTP.timestamps_ptp());
        assert!(
            !TimestampFilters::default().timestamps_ptp()
                && !TimestampFilters::default().timestamps_sent()
        );
        assert_eq!(TimestampFilters::of(1, 12), TimestampFilters::PTP);
        assert!(TimestampFilters::PTP.timestamps_sent());
    }

    #[test]
    fn t3_the_loopback_interface_has_no_programs() {
        match tcx_programs(1, Direction::Ingress) {
            Ok(programs) => assert!(programs.is_empty()),
            Err(error) => eprintln!("SKIP: tcx programs cannot be listed: {error}"),
        }
        assert!(program_name(u32::MAX).is_err());
    }
}
