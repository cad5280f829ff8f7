// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clocks of NICs, and how clocks of one machine relate to each other, with the error
//! of the comparison: each is an interval of one clock in which the other was read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use timewire_base::{IfName, Span};

use crate::socket::{check, socket};
use crate::steering::nic_clock;

/// How much a clock is ahead of another, and how wrong that can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The one less the other.
    pub ahead: Span,
    /// At most so much more or less.
    pub error: Span,
}

/// How the clocks of the kernel were at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelClocks {
    /// `CLOCK_MONOTONIC_RAW`, which nobody steers: when the moment was.
    pub raw_ns: i64,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC_RAW`.
    pub realtime: Relation,
    /// `CLOCK_TAI` less `CLOCK_MONOTONIC_RAW`.
    pub tai: Relation,
    /// `CLOCK_MONOTONIC` less `CLOCK_MONOTONIC_RAW`.
    pub monotonic: Relation,
}

/// Compares the clocks of the kernel: of some looks the closest.
pub fn kernel_clocks() -> io::Result<KernelClocks> {
    let of = |id| relation(id, libc::CLOCK_MONOTONIC_RAW);
    let raw_ns = read(libc::CLOCK_MONOTONIC_RAW)?;
    Ok(KernelClocks {
        raw_ns,
        realtime: of(libc::CLOCK_REALTIME)?,
        tai: of(libc::CLOCK_TAI)?,
        monotonic: of(libc::CLOCK_MONOTONIC)?,
    })
}

/// The clock of a NIC.
#[derive(Debug)]
pub struct NicClock {
    device: File,
    path: PathBuf,
}

impl NicClock {
    /// Opens `/dev/ptpN`, for writing too where that is allowed.
    ///
    /// **Errors**: there is none, or it may not even be read.
    pub fn open(number: u32) -> io::Result<NicClock> {
        let path = PathBuf::from(format!("/dev/ptp{number}"));
        let both = OpenOptions::new().read(true).write(true).open(&path);
        let device = both.or_else(|_| File::open(&path))?;
        Ok(NicClock { device, path })
    }

    /// Its device.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The open device, for [`Steered::Nic`](crate::steering::Steered::NIC).
    pub fn device(&self) -> &File {
        &self.device
    }

    /// How much it is ahead of `CLOCK_REALTIME`: by the NIC's own cross timestamp, else by the
    /// driver's, else by reading one after the other. Says which it was.
    ///
    /// **Errors**: the clock cannot be read.
    pub fn ahead_of_realtime(&self) -> io::Result<(Relation, CrossTimestamp)> {
        if let Ok(relation) = self.precise() {
            return Ok((relation, CrossTimestamp::Precise));
        }
        if let Ok(relation) = self.extended() {
            return Ok((relation, CrossTimestamp::Extended));
        }
        let relation = relation(nic_clock(&self.device), libc::CLOCK_REALTIME)?;
        Ok((relation, CrossTimestamp::Read))
    }

    fn precise(&self) -> io::Result<Relation> {
        let mut offset = SysOffsetPrecise::default();
        // SAFETY: the request takes a `ptp_sys_offset_precise`, which `offset` is; the kernel
        // writes no more than its size, which the request's number says.
        let result = unsafe {
            libc::ioctl(self.device.as_raw_fd(), PTP_SYS_OFFSET_PRECISE as _, &raw mut offset)
        };
        check(result)?;
        let ahead = Span::from_ns(offset.device.ns() - offset.realtime.ns());
        // The hardware timestamps both at once; what is left is the step of each clock.
        Ok(Relation { ahead, error: Span::from_ns(1) })
    }

    fn extended(&self) -> io::Result<Relation> {
        let mut offset = SysOffsetExtended {
            n_samples: SAMPLES,
            reserved: [0; 3],
            samples: [[ClockTime::default(); 3]; 25],
        };
        // SAFETY: the request takes a `ptp_sys_offset_extended`, which `offset` is; the kernel
        // writes no more than its size, which the request's number says.
        let result = unsafe {
            libc::ioctl(self.device.as_raw_fd(), PTP_SYS_OFFSET_EXTENDED as _, &raw mut offset)
        };
        check(result)?;
        let samples = offset.samples.iter().take(SAMPLES as usize);
        let looks = samples.map(|[before, nic, after]| (before.ns(), nic.ns(), after.ns()));
        closest(looks).ok_or_else(|| io::Error::other("the NIC gave no sample"))
    }
}

/// How two clocks were read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossTimestamp {
    /// By the hardware at one instant (`PTP_SYS_OFFSET_PRECISE`).
    Precise,
    /// By the driver, the system's clock right before and after (`PTP_SYS_OFFSET_EXTENDED`).
    Extended,
    /// One after the other.
    Read,
}

/// What an interface can timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampAbilities {
    /// The kernel timestamps frames in both directions.
    pub software: bool,
    /// The NIC does.
    pub hardware: bool,
    /// The number of the NIC's clock, `/dev/ptpN`.
    pub phc: Option<u32>,
}

/// What an interface of this network namespace can timestamp (`ETHTOOL_GET_TS_INFO`).
///
/// **Errors**: `ENODEV` when there is none of that name; `EOPNOTSUPP`.
pub fn timestamp_abilities(name: &IfName) -> io::Result<TimestampAbilities> {
    let mut info = TsInfo { cmd: ETHTOOL_GET_TS_INFO, ..TsInfo::default() };
    // SAFETY: all-zero is a valid ifreq (plain integers and arrays of them).
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_str().bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    let fd = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
        .or_else(|_| socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0))?;
    // SAFETY: `request` is a valid ifreq whose data points to an `ethtool_ts_info`, which lives
    // through the call; its command says that the kernel writes just that.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) })?;
    let has = |bits: u32| info.so_timestamping & bits == bits;
    Ok(TimestampAbilities {
        software: has(libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE),
        hardware: has(libc::SOF_TIMESTAMPING_TX_HARDWARE | libc::SOF_TIMESTAMPING_RX_HARDWARE),
        phc: u32::try_from(info.phc_index).ok(),
    })
}

fn read(id: libc::clockid_t) -> io::Result<i64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill in; a clock that is none is an error.
    check(unsafe { libc::clock_gettime(id, &raw mut time) })?;
    Ok(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

/// How much one clock is ahead of another, by reading it between two readings of the other.
fn relation(one: libc::clockid_t, other: libc::clockid_t) -> io::Result<Relation> {
    let mut looks = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        looks.push((read(other)?, read(one)?, read(other)?));
    }
    Ok(closest(looks.into_iter()).expect("invariant: there is a look"))
}

/// Of looks at one clock between two at another, the one that took least.
fn closest(looks: impl Iterator<Item = (i64, i64, i64)>) -> Option<Relation> {
    let (before, middle, after) = looks.min_by_key(|(before, _, after)| after - before)?;
    let width = (after - before).max(0);
    // Half of the interval to either side, and the nanosecond that each reading is rounded by.
    let ahead = Span::from_ns(middle - (before + width / 2));
    Some(Relation { ahead, error: Span::from_ns(width / 2 + 1) })
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ClockTime {
    sec: i64,
    nsec: u32,
    reserved: u32,
}

impl ClockTime {
    fn ns(self) -> i64 {
        self.sec.saturating_mul(1_000_000_000).saturating_add(self.nsec.into())
    }
}

#[repr(C)]
#[derive(Default)]
struct SysOffsetPrecise {
    device: ClockTime,
    realtime: ClockTime,
    monoraw: ClockTime,
    reserved: [u32; 4],
}

#[repr(C)]
struct SysOffsetExtended {
    n_samples: u32,
    reserved: [u32; 3],
    samples: [[ClockTime; 3]; 25],
}

#[repr(C)]
#[derive(Default)]
struct TsInfo {
    cmd: u32,
    so_timestamping: u32,
    phc_index: i32,
    tx_types: u32,
    tx_reserved: [u32; 3],
    rx_filters: u32,
    rx_reserved: [u32; 3],
}

// linux v6.12 include/uapi/linux/ptp_clock.h
const _: () = assert!(size_of::<SysOffsetPrecise>() == 64);
const _: () = assert!(size_of::<SysOffsetExtended>() == 1_216);
const _: () = assert!(size_of::<TsInfo>() == 44);
const PTP_SYS_OFFSET_PRECISE: u32 = 0xC040_3D08;
const PTP_SYS_OFFSET_EXTENDED: u32 = 0xC4C0_3D09;
const SIOCETHTOOL: u32 = 0x8946;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
const SAMPLES: u32 = 5;
const LOOKS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_clocks_of_the_kernel_agree_within_what_is_said() {
        let clocks = kernel_clocks().unwrap();
        let tai = clocks.tai.ahead - clocks.realtime.ahead;
        let off = tai - crate::clock::tai_offset();
        // Between the two comparisons the clock may be steered, by far less than this.
        let bound = clocks.tai.error + clocks.realtime.error + Span::from_ms(1);
        assert!(off.as_ns().abs() <= bound.as_ns(), "{clocks:?}");
    }

    #[test]
    fn t0_the_closest_look_counts() {
        let looks = [(0, 100, 50), (100, 210, 110), (200, 300, 260)];
        let relation = closest(looks.into_iter()).unwrap();
        assert_eq!(relation.ahead, Span::from_ns(105));
        assert_eq!(relation.error, Span::from_ns(6));
        assert_eq!(closest([].into_iter()), None);
    }

    #[test]
    fn t0_loopback_has_no_nic() {
        let lo = timestamp_abilities(&IfName::new("lo").unwrap()).unwrap();
        assert_eq!((lo.hardware, lo.phc), (false, None));
        let none = timestamp_abilities(&IfName::new("no-such-if").unwrap()).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENODEV));
    }
}
