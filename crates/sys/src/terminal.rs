// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much room a terminal has.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::socket::check;

/// Columns and lines of a terminal.
///
/// **Errors**: `ENOTTY` when it is none; `NotFound` when it does not know them.
pub fn size(fd: BorrowedFd<'_>) -> io::Result<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes a winsize, and `size` is one.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) })?;
    match (size.ws_col, size.ws_row) {
        (0, _) | (_, 0) => Err(io::Error::from(io::ErrorKind::NotFound)),
        room => Ok(room),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn t0_a_file_has_no_room() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = size(file.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
