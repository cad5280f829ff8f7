// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers: each message goes back to who sent it, unchanged but for the addresses, so that a
//! listener beside the talker measures the round trip on one clock.
//!
//! Not here: measuring it (`listen`).

use std::net::UdpSocket;
use std::os::fd::AsFd;

use timewire_base::IfName;
use timewire_path::listen::{Arrival, Receiver};
use timewire_path::transmit::{NotSent, TransmitOptions, Transmitter, Transport};
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
