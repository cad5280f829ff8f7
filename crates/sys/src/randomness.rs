// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeping the host's randomness from a program, so that what it does can be repeated.

use std::io;

use crate::socket::check;

/// Whether a program may ask the host for random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Randomness {
    /// As usual.
    OfTheHost,
    /// `getrandom()` says that it does not exist, in the program and all its children.
    None,
}

/// Refuses `getrandom()` to the calling thread and its children, for ever. Only system calls: it
/// may be called between fork and exec.
///
/// **Errors**: a kernel without `CONFIG_SECCOMP_FILTER`.
pub(crate) fn refuse() -> io::Result<()> {
    let number = u32::try_from(libc::SYS_getrandom).expect("invariant: a small number");
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let filter = [
        // The number of the system call: the first field of struct seccomp_data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        // The next but one when it is another.
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, refused, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes integers and touches only this thread.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: the kernel copies the four statements, which are alive, and checks them.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }).map(drop)
}

fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    let code = u16::try_from(code).expect("invariant: codes of classic BPF have 16 bits");
    libc::sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> io::Result<usize> {
        let mut bytes = [0_u8; 8];
        // SAFETY: eight writable bytes.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        crate::socket::check_len(got)
    }

    #[test]
    fn t0_randomness_is_refused_to_one_thread() {
        let refused = std::thread::spawn(|| {
            assert_eq!(ask().unwrap(), 8);
            refuse().unwrap();
            ask().unwrap_err().raw_os_error()
        });
        assert_eq!(refused.join().unwrap(), Some(libc::ENOSYS));
        assert_eq!(ask().unwrap(), 8);
    }
}
