// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the kernel steers its clock and the clocks of NICs (`clock_adjtime`): reading it,
//! and restoring it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use timewire_base::Span;

use crate::socket::check;

/// A clock that the kernel steers.
#[derive(Clone, Copy, Debug)]
pub enum Steered<'a> {
    /// `CLOCK_REALTIME`, and with it `CLOCK_TAI`.
    System,
    /// That of a NIC, by its open device `/dev/ptpN`.
    Nic(&'a File),
}

/// What the kernel says about a clock that it steers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// How much faster the clock is made to go.
    ///
    /// **Units**: parts per million times 65536.
    pub frequency: i64,
    /// What is left of an offset that the kernel takes away by itself.
    pub offset: Span,
    /// The daemon's or kernel's estimate of the largest error.
    pub max_error: Span,
    /// The daemon's estimate of the error.
    pub estimated_error: Span,
    /// Whether some daemon keeps it synchronised (`STA_UNSYNC` is clear). Of NICs always so.
    pub synchronised: bool,
    /// TAI - UTC, in seconds; 0 until someone sets it.
    pub tai_offset_s: i32,
}

/// Reads how a clock is steered; changes nothing.
pub fn steering(clock: Steered<'_>) -> io::Result<Steering> {
    let timex = adjust(clock, &zeroed())?;
    let nanoseconds = timex.status & libc::STA_NANO != 0;
    Ok(Steering {
        frequency: timex.freq,
        offset: if nanoseconds { Span::from_ns(timex.offset) } else { Span::from_us(timex.offset) },
        max_error: Span::from_us(timex.maxerror),
        estimated_error: Span::from_us(timex.esterror),
        synchronised: timex.status & libc::STA_UNSYNC == 0,
        tai_offset_s: timex.tai,
    })
}

/// Makes a clock go faster by this. **Units**: parts per million times 65536.
///
/// **Errors**: `EPERM` without `CAP_SYS_TIME` (a NIC's: without write access to its device);
/// `EINVAL`, `ERANGE` beyond what the clock can.
pub fn set_frequency(clock: Steered<'_>, frequency: i64) -> io::Result<()> {
    let mut timex = zeroed();
    timex.modes = libc::ADJ_FREQUENCY;
    timex.freq = frequency;
    adjust(clock, &timex).map(drop)
}

/// Sets TAI - UTC of the kernel: `CLOCK_TAI` steps by whole seconds.
///
/// **Errors**: `EPERM` without `CAP_SYS_TIME`.
pub fn set_tai_offset(seconds: i32) -> io::Result<()> {
    let mut timex = zeroed();
    timex.modes = libc::ADJ_TAI;
    timex.constant = seconds.into();
    adjust(Steered::System, &timex).map(drop)
}

/// Tells the kernel whether a daemon keeps its clock synchronised. Without, programs that ask are
/// told so, and it does not write its time to the battery's clock.
///
/// **Errors**: `EPERM` without `CAP_SYS_TIME`.
pub fn set_synchronised(synchronised: bool) -> io::Result<()> {
    let now = adjust(Steered::System, &zeroed())?;
    let mut timex = zeroed();
    timex.modes = libc::ADJ_STATUS;
    timex.status = match synchronised {
        true => now.status & !libc::STA_UNSYNC,
        false => now.status | libc::STA_UNSYNC,
    };
    adjust(Steered::System, &timex).map(drop)
}

fn zeroed() -> libc::timex {
    // SAFETY: all-zero is a valid timex (plain integers); with modes 0 a call only reads.
    unsafe { std::mem::zeroed() }
}

fn adjust(clock: Steered<'_>, wanted: &libc::timex) -> io::Result<libc::timex> {
    let mut timex = *wanted;
    let id = match clock {
        Steered::System => libc::CLOCK_REALTIME,
        Steered::Nic(device) => nic_clock(device),
    };
    // SAFETY: `timex` is valid and exclusively ours for the duration of the call.
    check(unsafe { libc::clock_adjtime(id, &raw mut timex) })?;
    Ok(timex)
}

/// The clock number of an open device (linux v6.12 `include/linux/posix-timers.h:fd_to_clockid`).
pub(crate) fn nic_clock(device: &File) -> libc::clockid_t {
    const CLOCKFD: libc::clockid_t = 3;
    (!device.as_raw_fd() << 3) | CLOCKFD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_reading_the_steering_agrees_with_the_discipline() {
        let steering = steering(Steered::System).unwrap();
        let discipline = crate::clock::discipline().unwrap();
        assert_eq!(steering.synchronised, discipline.synchronised);
        assert_eq!(
            Span::from_secs(steering.tai_offset_s.into()),
            crate::clock::tai_offset(),
            "the kernel says the same in two ways"
        );
    }

    #[test]
    fn t0_no_device_of_a_clock_is_said() {
        let null = File::open("/dev/null").unwrap();
        assert!(super::steering(Steered::Nic(&null)).is_err());
    }
}
