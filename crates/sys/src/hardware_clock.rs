// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asking the clock of a NIC: what it can, what time it has, and how exactly its time can
//! be compared with the system's. Only reads.
//!
//! Source: linux v6.12 `include/uapi/linux/ptp_clock.h`, `drivers/ptp/ptp_chardev.c`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use timewire_base::Span;

use crate::socket::check;

/// The clock of a NIC, open for reading.
#[derive(Debug)]
pub struct HardwareClock(File);

/// What a clock says that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAbilities {
    /// Alarms.
    pub alarms: u32,
    /// Inputs that are timestamped.
    pub external_timestamps: u32,
    /// Outputs that can be periodic.
    pub periodic_outputs: u32,
    /// Whether it can call the kernel once a second.
    pub pulse_per_second: bool,
    /// Pins that can be given a function.
    pub pins: u32,
    /// Whether its time can be read in one moment with the system's, in hardware.
    pub cross_timestamps: bool,
}

impl HardwareClock {
    /// Opens `/dev/ptpN`.
    ///
    /// **Errors**: `PermissionDenied` for an ordinary user, `NotFound` when there is none.
    pub fn open(path: &Path) -> io::Result<HardwareClock> {
        File::open(path).map(HardwareClock)
    }

    /// Its time.
    ///
    /// **Units**: nanoseconds of its own scale, mostly TAI since 1970.
    ///
    /// **Errors**: the NIC is asleep, which it is without a link with some drivers.
    pub fn now_ns(&self) -> io::Result<i64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // As `FD_TO_CLOCKID` of linux v6.12 `include/linux/posix-timers.h`.
        let id = (!self.0.as_raw_fd()) << 3 | 3;
        // SAFETY: `time` is a valid timespec for the call to fill in; the descriptor is open.
        check(unsafe { libc::clock_gettime(id, &raw mut time) })?;
        Ok(time.tv_sec * 1_000_000_000 + time.tv_nsec)
    }

    /// What it has.
    ///
    /// **Errors**: the file is no such clock.
    pub fn abilities(&self) -> io::Result<ClockAbilities> {
        let mut caps = Caps([0; 20]);
        // SAFETY: PTP_CLOCK_GETCAPS writes a structure of 80 bytes, which `caps` is.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), PTP_CLOCK_GETCAPS, &raw mut caps) })?;
        let count = |index: usize| u32::try_from(caps.0[index]).unwrap_or(0);
        Ok(ClockAbilities {
            alarms: count(1),
            external_timestamps: count(2),
            periodic_outputs: count(3),
            pulse_per_second: caps.0[4] != 0,
            pins: count(5),
            cross_timestamps: caps.0[6] != 0,
        })
    }

    /// The shortest time that a reading of it takes, between two readings of the system's clock, of
    /// several: half of it bounds the error of comparing the two.
    ///
    /// **Errors**: the kernel is too old for it (before 5.0), or as for [`HardwareClock::now_ns`].
    pub fn reading_window(&self) -> io::Result<Span> {
        let mut offset = Extended { samples: SAMPLES, reserved: [0; 3], times: [[ZERO; 3]; 25] };
        // SAFETY: PTP_SYS_OFFSET_EXTENDED reads and writes the structure, whose size its number
        // names.
        check(unsafe {
            libc::ioctl(self.0.as_raw_fd(), PTP_SYS_OFFSET_EXTENDED, &raw mut offset)
        })?;
        let taken = usize::try_from(SAMPLES).expect("invariant: a small count");
        let windows = offset.times.iter().take(taken).map(|[before, _, after]| {
            (after.seconds - before.seconds) * 1_000_000_000 + i64::from(after.ns)
                - i64::from(before.ns)
        });
        let shortest = windows.min().expect("invariant: there are samples");
        Ok(Span::from_ns(shortest))
    }
}

const SAMPLES: u32 = 9;
const PTP_CLOCK_GETCAPS: libc::Ioctl = 0x8050_3d01;
const PTP_SYS_OFFSET_EXTENDED: libc::Ioctl = 0xc4c0_3d09;
const ZERO: Time = Time { seconds: 0, ns: 0, reserved: 0 };

#[repr(C)]
struct Caps([libc::c_int; 20]);

#[repr(C)]
#[derive(Clone, Copy)]
struct Time {
    seconds: i64,
    ns: u32,
    reserved: u32,
}

#[repr(C)]
struct Extended {
    samples: u32,
    reserved: [u32; 3],
    times: [[Time; 3]; 25],
}

const _: () = assert!(size_of::<Caps>() == 80);
const _: () = assert!(size_of::<Extended>() == 0x4c0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_what_is_no_clock_is_refused() {
        let clock = HardwareClock::open(Path::new("/dev/null")).unwrap();
        assert!(clock.now_ns().is_err());
        assert!(clock.abilities().is_err());
        assert!(clock.reading_window().is_err());
        let none = HardwareClock::open(Path::new("/dev/ptp-none")).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
