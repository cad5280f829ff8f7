// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers: each message goes back to who sent it, unchanged but for the addresses, so that a
//! listener beside the talker measures the round trip on one clock.
//!
//! Not here: measuring it (`listen`).

use std::net::UdpSocket;
use std::os::fd::AsFd;

use timewire_base::IfName;
use timewire_path::listen::{Arrival, Receiver};
use timewire_path::transmit::{TransmitOptions, Transmitter, Transport, TxReport};

use super::TrafficError;

/// Where answers go out.
#[derive(Debug)]
pub(super) enum Reflector {
    /// Through the socket that received, so that they come from the address that was asked.
    Udp(UdpSocket),
    /// Through a packet socket on the same interface.
    Frames(Box<Transmitter>),
}

/// What became of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) sent: u64,
    pub(super) not_sent: u64,
}

impl Reflector {
    /// **Errors**: no port for frames on the interface.
    pub(super) fn new(
        receiver: &Receiver,
        interface: Option<&IfName>,
    ) -> Result<Reflector, TrafficError> {
        let Some(interface) = interface else {
            let socket = receiver.as_fd().try_clone_to_owned();
            let socket = socket.map_err(TrafficError::system("answer through the socket"))?;
            return Ok(Reflector::Udp(UdpSocket::from(socket)));
        };
        let transport = Transport::Frames { interface: interface.clone() };
        let port = Transmitter::open(&transport, &TransmitOptions::default())?;
        Ok(Reflector::Frames(Box::new(port)))
    }

    /// Answers a message; of frames, with the next [`Reflector::flush`].
    pub(super) fn answer(&mut self, arrival: &Arrival<'_>, answers: &mut Answers) {
        let sent = match (self, arrival.from) {
            (Reflector::Udp(socket), Some(from)) => socket.send_to(arrival.bytes, from).is_ok(),
            (Reflector::Frames(port), _) => port
                .message_buffer(arrival.bytes.len())
                .map(|buffer| {
                    buffer.copy_from_slice(arrival.bytes);
                    turn(buffer);
                })
                .is_some_and(|()| port.send(arrival.bytes.len(), None, None).is_ok()),
            (Reflector::Udp(_), None) => false,
        };
        if sent {
            answers.sent += 1;
        } else {
            answers.not_sent += 1;
        }
    }

    /// Hands over what waits.
    pub(super) fn flush(&mut self, answers: &mut Answers) {
        let Reflector::Frames(port) = self else { return };
        port.flush();
        let mut refused = 0;
        // An error queue that cannot be read has nothing to tell of answers.
        let _ = port.reports(&mut |report| {
            refused += u64::from(matches!(report, TxReport::NotTaken { .. }));
        });
        answers.sent -= refused;
        answers.not_sent += refused;
    }
}

/// Exchanges the addresses of a frame, and those of UDP in it. Its checksums stay right: a sum does
/// not depend on the order.
fn turn(frame: &mut [u8]) {
    if frame.len() < 14 {
        return;
    }
    exchange(frame, 0, 6, 6);
    let mut at = 12;
    let ethertype = loop {
        let Some(bytes) = frame.get(at..at + 2) else { return };
        match u16::from_be_bytes([bytes[0], bytes[1]]) {
            0x8100 | 0x88a8 => at += 4,
            other => break other,
        }
    };
    let ip = at + 2;
    let (addresses, length, ports) = match ethertype {
        0x0800 if frame.len() >= ip + 20 => {
            let header = usize::from(frame[ip] & 0x0f) * 4;
            (ip + 12, 4, (frame[ip + 9] == 17).then_some(ip + header))
        }
        0x86dd if frame.len() >= ip + 40 => (ip + 8, 16, (frame[ip + 6] == 17).then_some(ip + 40)),
        _ => return,
    };
    exchange(frame, addresses, length, length);
    if let Some(ports) = ports.filter(|ports| frame.len() >= ports + 8) {
        exchange(frame, ports, 2, 2);
    }
}

/// Exchanges `length` bytes at a place with those `behind` it.
fn exchange(frame: &mut [u8], at: usize, length: usize, behind: usize) {
    let (first, second) = frame.split_at_mut(at + behind);
    first[at..at + length].swap_with_slice(&mut second[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_frame_turned_twice_is_the_same_and_once_goes_back() {
        let mut frame = vec![1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0x60, 5, 8, 0];
        frame.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x3a, 0x99, 0x40, 0, 0, 26, 0, 0]);
        frame.extend([7; 18]);
        let before = frame.clone();
        turn(&mut frame);
        assert_eq!(frame[..12], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1]);
        assert_eq!(frame[30..38], [10, 0, 0, 2, 10, 0, 0, 1]);
        assert_eq!(frame[38..42], [0x40, 0, 0x3a, 0x99]);
        assert_eq!((&frame[12..30], &frame[42..]), (&before[12..30], &before[42..]));
        turn(&mut frame);
        assert_eq!(frame, before);

        let mut plain = [vec![1; 6], vec![2; 6], vec![0x88, 0xb5], vec![9; 46]].concat();
        turn(&mut plain);
        assert_eq!((&plain[..12], &plain[14..]), (&[[2; 6], [1; 6]].concat()[..], &[9; 46][..]));
        for length in 0..before.len() {
            turn(&mut before[..length].to_vec());
        }
    }
}
