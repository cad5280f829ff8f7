// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages over a Unix stream that carry descriptors, and waiting for several streams.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use timewire_base::Span;

use crate::clock::to_timespec;
use crate::socket::{check, check_len};

/// Most descriptors of one message.
const MAX_FDS: usize = 8;
/// Room for them with their header: 16 bytes, and 4 for each; aligned as a header is.
type Control = [u64; 8];

/// Sends bytes and descriptors; how many bytes went.
///
/// **Errors**: those of `sendmsg()`; more than 8 descriptors.
pub fn send_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    if descriptors.len() > MAX_FDS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    let mut control: Control = [0; 8];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid msghdr: no name, no parts, no control data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        let length = descriptors.len() * size_of::<libc::c_int>();
        let length = libc::c_uint::try_from(length).expect("invariant: at most 32 bytes");
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE and CMSG_LEN only calculate; at most 8 descriptors need 48 bytes of
        // the 64 in `control`, which is aligned as a cmsghdr and lives as long as the message; so
        // CMSG_FIRSTHDR gives a writable header with room for the data after it.
        unsafe {
            message.msg_controllen =
                usize::try_from(libc::CMSG_SPACE(length)).expect("invariant: at most 48 bytes");
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len =
                usize::try_from(libc::CMSG_LEN(length)).expect("invariant: at most 48 bytes");
            let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
            for (i, descriptor) in descriptors.iter().enumerate() {
                ptr::write_unaligned(data.add(i), descriptor.as_raw_fd());
            }
        }
    }
    // SAFETY: `message` points to one readable part and to control data made above, all alive.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    check_len(sent)
}

/// Receives bytes and the descriptors that came with them; none when the other side has gone.
///
/// **Errors**: those of `recvmsg()`; more descriptors than 8.
pub fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control: Control = [0; 8];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid msghdr: no name, no parts, no control data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: `message` points to one writable part and to writable control data, all alive.
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let received = check_len(received)?;
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled `message`'s control data and its length, so the CMSG functions
    // walk over whole headers inside `control`; the data of SCM_RIGHTS are descriptors that were
    // made for this process, and nobody else owns them.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(found) = header.as_ref() {
            if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
                let before = data.byte_offset_from_unsigned(header);
                let count = (found.cmsg_len - before) / size_of::<libc::c_int>();
                descriptors.extend(
                    (0..count).map(|i| OwnedFd::from_raw_fd(ptr::read_unaligned(data.add(i)))),
                );
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::other("a message with more than 8 descriptors"));
    }
    Ok((received, descriptors))
}

/// Waits until at least one of the descriptors is readable, or its other side has gone, or the time
/// is over; for each, whether it is. A signal counts as none. At most 8 descriptors.
pub fn which_readable(
    descriptors: &[BorrowedFd<'_>],
    timeout: Option<Span>,
) -> io::Result<Vec<bool>> {
    assert!(descriptors.len() <= MAX_FDS, "at most {MAX_FDS} descriptors");
    let mut list = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MAX_FDS];
    for (entry, descriptor) in list.iter_mut().zip(descriptors) {
        entry.fd = descriptor.as_raw_fd();
        entry.events = libc::POLLIN;
    }
    let time = timeout.map(|span| to_timespec(span.as_ns()));
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `list` holds MOST entries, of which unused ones have fd -1 and are ignored; `time` is
    // null or points to a timespec that lives until the call returns; no signal mask is given.
    let ready =
        unsafe { libc::ppoll(list.as_mut_ptr(), MAX_FDS as libc::nfds_t, time, ptr::null()) };
    match check(ready) {
        Ok(_) => Ok(list.iter().take(descriptors.len()).map(|entry| entry.revents != 0).collect()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            Ok(vec![false; descriptors.len()])
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn t0_bytes_and_descriptors_arrive_together() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        let sent =
            send_with_descriptors(one.as_fd(), b"hello", &[writer.as_fd(), null.as_fd()]).unwrap();
        assert_eq!(sent, 5);
        writer.write_all(b"x").unwrap();
        drop(writer);
        let mut bytes = [0; 16];
        let (received, descriptors) = receive_with_descriptors(other.as_fd(), &mut bytes).unwrap();
        assert_eq!((&bytes[..received], descriptors.len()), (&b"hello"[..], 2));
        // The descriptor is the writer: what is written to it comes out of the reader.
        let mut copy = File::from(descriptors.into_iter().next().unwrap());
        copy.write_all(b"y").unwrap();
        drop(copy);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "xy");
        drop(one);
        let (received, descriptors) = receive_with_descriptors(other.as_fd(), &mut bytes).unwrap();
        assert_eq!((received, descriptors.len()), (0, 0));
    }

    #[test]
    fn t0_readable_streams_are_told_apart() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let (third, fourth) = UnixStream::pair().unwrap();
        let both = [one.as_fd(), third.as_fd()];
        assert_eq!(which_readable(&both, Some(Span::ZERO)).unwrap(), [false, false]);
        other.write_all(b"x").unwrap();
        assert_eq!(which_readable(&both, None).unwrap(), [true, false]);
        drop(fourth);
        assert_eq!(which_readable(&both, None).unwrap(), [true, true]);
    }
}
