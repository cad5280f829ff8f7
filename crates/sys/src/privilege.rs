// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Giving privileges away, before strangers are listened to.

use std::io;

use crate::namespace::Capability;
use crate::socket::check;

/// Linux' `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// Linux' `struct __user_cap_data_struct`; two of them are 64 capabilities.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const _: () = assert!(size_of::<Header>() == 8 && size_of::<[Sets; 2]>() == 24);

/// `_LINUX_CAPABILITY_VERSION_3` of linux v6.12 `include/uapi/linux/capability.h`.
const VERSION_3: u32 = 0x2008_0522;

/// Gives away all capabilities but these, for ever: no program that is started gets one back. It is
/// for the calling thread and those it starts from now on; a process does it before it has others.
///
/// Root without capabilities still owns root's files.
///
/// **Errors**: `EPERM` when one that is to be kept is not there.
pub fn keep_capabilities(kept: &[Capability]) -> io::Result<()> {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes integers and touches only this thread.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let none = libc::c_ulong::from(0_u8);
    let clear = libc::c_ulong::from(libc::PR_CAP_AMBIENT_CLEAR_ALL.unsigned_abs());
    // SAFETY: PR_CAP_AMBIENT takes integers and touches only this thread.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, none, none, none) })?;
    let all = kept.iter().fold(0_u64, |all, capability| all | 1 << capability.bit());
    let half = |shift: u32| {
        let bits = u32::try_from((all >> shift) & 0xffff_ffff).expect("invariant: 32 bits");
        Sets { effective: bits, permitted: bits, inheritable: 0 }
    };
    let header = Header { version: VERSION_3, pid: 0 };
    let sets = [half(0), half(32)];
    // SAFETY: capset() reads a header of version 3 and two sets of data, which both live until it
    // returns; pid 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn effective() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn t0_what_is_given_away_is_gone_for_programs_too() {
        let given = std::thread::spawn(|| {
            let kept = 1_u64 << Capability::NetRaw.bit();
            if effective() & kept == 0 {
                // Without privileges: all that can be given away is nothing.
                keep_capabilities(&[]).unwrap();
            } else {
                keep_capabilities(&[Capability::NetRaw]).unwrap();
                assert_eq!(effective(), kept);
                keep_capabilities(&[Capability::NetAdmin]).unwrap_err();
                keep_capabilities(&[]).unwrap();
            }
            assert_eq!(effective(), 0);
            let started = std::process::Command::new("cat").arg("/proc/self/status").output();
            String::from_utf8(started.unwrap().stdout).unwrap()
        });
        let status = given.join().unwrap();
        assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
        assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
    }
}
