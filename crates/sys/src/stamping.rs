// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the kernel stamps received messages yet. The first socket of a host that asks for stamps
//! has them switched on, by work that is done later (linux v6.12
//! `net/core/dev.c:net_enable_timestamp`); a message that comes before has none. All network
//! namespaces share the switch, so a message over any loopback interface shows how it stands.
//!
//! Not here: asking for stamps (`receive`).

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use timewire_base::{Instant, Mono, Span};

use crate::clock;
use crate::event::wait_readable;
use crate::receive::{ReceiveSocket, ReceiveStamps, SocketOptions, UdpPlace};

/// Waits until the kernel stamps what it receives; whether it does, within this time. The socket
/// that wants stamps must have asked for them, else they end with this call.
///
/// **Errors**: no message comes back over the loopback interface of the caller's network namespace,
/// so nobody knows; `TimedOut`, or the interface is down (`EADDRNOTAVAIL`, `ENETUNREACH`).
pub fn wait_for_receive_stamps(within: Span) -> io::Result<bool> {
    let end = clock::now::<Mono>() + within;
    let options = SocketOptions {
        stamps: ReceiveStamps { software: true, hardware: false },
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
        if is_stamped(&mut to, end)? {
            return Ok(true);
        }
        if clock::now::<Mono>() >= end {
            return Ok(false);
        }
        thread::sleep(AGAIN);
    }
}

/// Takes the one message that is on its way.
fn is_stamped(to: &mut ReceiveSocket, end: Instant<Mono>) -> io::Result<bool> {
    let mut stamped = false;
    while to.receive(&mut |arrival| stamped = arrival.kernel.is_some())? == 0 {
        // At least a moment: it comes at once where loopback works.
        let left = (end - clock::now::<Mono>()).max(LOOPBACK);
        if !wait_readable(&[to.as_fd()], Some(left))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(stamped)
}

const AGAIN: Duration = Duration::from_micros(200);
const LOOPBACK: Span = Span::from_ms(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each round begins with nobody who wants stamps, as far as this test can tell.
    #[test]
    fn t3_once_waited_for_the_first_message_has_a_stamp() {
        let mut stamped = 0;
        for _ in 0..ROUNDS {
            let options = SocketOptions {
                stamps: ReceiveStamps { software: true, hardware: false },
                buffer_bytes: 1 << 16,
                longest: 16,
                busy_poll: None,
            };
            let bind = (Ipv4Addr::LOCALHOST, 0).into();
            let place = UdpPlace { bind, device: None, group: None };
            let mut to = ReceiveSocket::udp(&place, options).unwrap();
            match wait_for_receive_stamps(Span::from_secs(10)) {
                Ok(is_on) => assert!(is_on, "stamps do not begin"),
                Err(error) => return eprintln!("SKIP: loopback does not work here: {error}"),
            }
            let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            from.send_to(b"first", to.local_address().unwrap().unwrap()).unwrap();
            let end = clock::now::<Mono>() + Span::from_secs(10);
            stamped += u32::from(is_stamped(&mut to, end).unwrap());
        }
        // The end of the last round's stamps can come between two looks.
        assert!(stamped + 1 >= ROUNDS, "{stamped} of {ROUNDS}");
    }

    const ROUNDS: u32 = 20;
}
