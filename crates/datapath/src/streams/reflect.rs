// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers: each message goes back to who sent it, unchanged but for the addresses, so that a
//! listener beside the talker measures the round trip on one clock.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use crate::listen::{Arrival, Receiver};
use crate::transmit::{NotSent, TransmitOptions, Transmitter, Transport};
use timewire_base::IfName;
use timewire_base::wire::Frame;
use timewire_sys::udp;

use super::TrafficError;
use crate::drops::{AnswerCounts, Hear, Heard, QdiscCounts, Socket, causes};

/// Answers, and what became of them.
#[derive(Debug)]
pub(super) struct Reflector {
    port: Port,
    answered: u64,
    socket: Socket,
    heard: Heard,
    before: QdiscCounts,
}

/// Where answers go out.
#[derive(Debug)]
enum Port {
    /// Through the socket that received, so that they come from the address that was asked.
    Udp(UdpSocket),
    /// Through a packet socket on the same interface.
    Frames(Box<Transmitter>),
}

impl Reflector {
    /// With the counters of before the first answer.
    ///
    /// **Errors**: no port for frames on the interface.
    pub(super) fn new(
        receiver: &Receiver,
        interface: Option<&IfName>,
        is_frames: bool,
        before: QdiscCounts,
    ) -> Result<Reflector, TrafficError> {
        let port = match interface.filter(|_| is_frames) {
            None => {
                let socket = receiver.as_fd().try_clone_to_owned();
                let socket = socket.map_err(TrafficError::system("answer through the socket"))?;
                Port::Udp(UdpSocket::from(socket))
            }
            Some(interface) => {
                let transport = Transport::Frames { interface: interface.clone() };
                let port = Transmitter::open(&transport, &TransmitOptions::default())?;
                Port::Frames(Box::new(port))
            }
        };
        let socket = Socket { interface: interface.map(ToString::to_string), ..Socket::default() };
        Ok(Reflector { port, answered: 0, socket, heard: Heard::default(), before })
    }

    /// Answers a message; of frames, with the next [`Reflector::flush`].
    pub(super) fn answer(&mut self, arrival: &Arrival<'_>) {
        self.answered += 1;
        match (&mut self.port, arrival.from) {
            (Port::Udp(socket), Some(from)) => {
                if let Err(error) = udp::answer(socket, arrival.bytes, from) {
                    self.heard.not_taken(error.raw_os_error().unwrap_or(0));
                }
            }
            (Port::Udp(_), None) => self.heard.not_taken(0),
            (Port::Frames(port), _) => {
                let Some(buffer) = port.message_buffer(arrival.bytes.len()) else {
                    return self.heard.not_sent(&NotSent::Full);
                };
                buffer.copy_from_slice(arrival.bytes);
                turn(buffer);
                if let Err(why) = port.send(arrival.bytes.len(), None, None) {
                    self.heard.not_sent(&why);
                }
            }
        }
    }

    /// Hands over what waits.
    pub(super) fn flush(&mut self) {
        let Port::Frames(port) = &mut self.port else { return };
        port.flush();
        // An error queue that cannot be read has nothing to tell of answers.
        let _ = port.reports(&mut |report| self.heard.report(&report));
    }

    /// How many left and how many did not.
    pub(super) fn counts(&self) -> AnswerCounts {
        let not_sent = self.heard.total();
        let sent = self.answered.saturating_sub(not_sent);
        AnswerCounts { sent, not_sent, drop_causes: Vec::new() }
    }

    /// The same at the end, with the reasons.
    pub(super) fn ended(&self) -> AnswerCounts {
        let drop_causes = causes(&[(self.socket.clone(), self.heard)], &self.before);
        AnswerCounts { drop_causes, ..self.counts() }
    }
}

/// Exchanges the addresses of a frame, and those of UDP in it. Its checksums stay right: a sum does
/// not depend on the order.
pub fn turn(frame: &mut [u8]) {
    let Some(headers) = Frame::parse(frame) else { return };
    let addresses = headers.ip().map(|ip| {
        let (at, length) = ip.addresses_at();
        (headers.payload_at() + at, length)
    });
    let ports = headers.ports(frame.len()).filter(|ports| ports.is_udp).map(|ports| (ports.at, 2));
    for (at, length) in [Some((0, 6)), addresses, ports].into_iter().flatten() {
        exchange(frame, at, length);
    }
}

/// Exchanges `length` bytes at a place with those behind them.
fn exchange(frame: &mut [u8], at: usize, length: usize) {
    let (first, second) = frame.split_at_mut(at + length);
    first[at..].swap_with_slice(&mut second[..length]);
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
