// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the kernel timestamps received messages yet. The first socket of a host that asks for
//! timestamps has them switched on, by work that is done later (linux v6.12
//! `net/core/dev.c:net_enable_timestamp`); a message that comes before has none. All network
//! namespaces share the switch, so a message over any loopback interface shows how it stands.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use timewire_base::{Instant, Mono, Span};

use crate::clock;
use crate::event::wait_readable;
use crate::receive::{ReceiveSocket, ReceiveTimestamps, SocketOptions, UdpPlace};

/// Waits until the kernel timestamps what it receives; whether it does, within this time. The
/// socket that wants timestamps must have asked for them, else they end with this call.
///
/// **Errors**: no message comes back over the loopback interface of the caller's network namespace,
/// so nobody knows; `TimedOut`, or the interface is down (`EADDRNOTAVAIL`, `ENETUNREACH`).
pub fn wait_for_receive_timestamps(within: Span) -> io::Result<bool> {
    let end = clock::now::<Mono>() + within;
    let options = SocketOptions {
        timestamps: ReceiveTimestamps { software: true, hardware: false },
        buffer_bytes: 4_096,
        longest: 16,
        busy_poll: None,
    };
    let bind = (Ipv4Addr::LOCALHOST, 0).into();
    let mut to = ReceiveSocket::udp(&UdpPlace { bind, device: None, group: None }, options)?;
    let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let target = to.local_address()?.ok_or(io::ErrorKind::AddrNotAvailable)?;
    loop {
        from.send_to(b"timewire", target)?;
        if is_timestamped(&mut to, end)? {
            return Ok(true);
        }
        if clock::now::<Mono>() >= end {
            return Ok(false);
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

/// Takes the one message that is on its way.
fn is_timestamped(to: &mut ReceiveSocket, end: Instant<Mono>) -> io::Result<bool> {
    let mut timestamped = false;
    while to.receive(&mut |arrival| timestamped = arrival.kernel.is_some())? == 0 {
        // At least a moment: it comes at once where loopback works.
        let left = (end - clock::now::<Mono>()).max(LOOPBACK);
        if !wait_readable(&[to.as_fd()], Some(left))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(timestamped)
}

const RETRY_INTERVAL: Duration = Duration::from_micros(200);
const LOOPBACK: Span = Span::from_ms(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each round begins with nobody who wants timestamps, as far as this test can tell.
    #[test]
    fn t3_once_waited_for_the_first_message_has_a_timestamp() {
        let mut timestamped = 0;
        for _ in 0..ROUNDS {
            let options = SocketOptions {
                timestamps: ReceiveTimestamps { software: true, hardware: false },
                buffer_bytes: 1 << 16,
                longest: 16,
                busy_poll: None,
            };
            let bind = (Ipv4Addr::LOCALHOST, 0).into();
            let place = UdpPlace { bind, device: None, group: None };
            let mut to = ReceiveSocket::udp(&place, options).unwrap();
            match wait_for_receive_timestamps(Span::from_secs(10)) {
                Ok(is_on) => assert!(is_on, "timestamps do not begin"),
                Err(error) => return eprintln!("SKIP: loopback does not work here: {error}"),
            }
            let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            from.send_to(b"first", to.local_address().unwrap().unwrap()).unwrap();
            let end = clock::now::<Mono>() + Span::from_secs(10);
            timestamped += u32::from(is_timestamped(&mut to, end).unwrap());
        }
        // The end of the last round's timestamps can come between two looks.
        assert!(timestamped + 1 >= ROUNDS, "{timestamped} of {ROUNDS}");
    }

    const ROUNDS: u32 = 20;
}
