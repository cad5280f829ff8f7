// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending messages back, with the times at which this end had them. An answer goes to the UDP port
//! after the one that the message came from, at the same address.
//!
//! **Shape** of an answer, little endian, behind the header of `timewire_datapath::probe`:
//!
//! | bytes | what |
//! | --- | --- |
//! | 18..26 | when the XDP program had it: nanoseconds of TAI, i64; 0: not known |
//! | 26..34 | when the kernel had it |
//! | 34..42 | when the program had it |
//! | 42..50 | when it was sent back |

use std::net::SocketAddr;

use timewire_base::wire::Frame;
use timewire_base::{Instant, Tai};
use timewire_datapath::listen::Arrival;
use timewire_datapath::probe::Probe;
use timewire_datapath::ptp_frame::probe_of_frame;
use timewire_datapath::transmit::Transmitter;
use timewire_sys::clock;

use super::points::{Passage, Point};
use timewire_datapath::drops::{Hear, Heard};
use timewire_datapath::streams::reflect::turn;

/// The shortest message that can be answered. **Units**: bytes.
pub(super) const SHORTEST: usize = Probe::LEN + 4 * 8;

/// The points that an answer tells, in its order.
const TOLD: [Point; 4] = [Point::FarRxXdp, Point::FarRxSw, Point::FarUser, Point::FarSend];

/// Answers one message with the next flush; whether it is one of ours, and long enough.
pub(super) fn answer(
    arrival: &Arrival<'_>,
    is_frame: bool,
    buffer: &mut Vec<u8>,
    to: &mut Transmitter,
    heard: &mut Heard,
) -> bool {
    let Some(destination) = make(arrival, is_frame, buffer, clock::now()) else { return false };
    if let Err(why) = to.send_copy(buffer, destination, None) {
        heard.not_sent(&why);
    }
    true
}

/// Writes the answer into the buffer; where it goes, if it is no frame.
fn make(
    arrival: &Arrival<'_>,
    is_frame: bool,
    buffer: &mut Vec<u8>,
    now: Instant<Tai>,
) -> Option<Option<SocketAddr>> {
    let bytes = arrival.bytes;
    buffer.clear();
    buffer.extend_from_slice(bytes);
    let (at, destination) = if is_frame {
        probe_of_frame(bytes, bytes.len())?;
        let frame = Frame::parse(bytes)?;
        let content = frame.content()?;
        let at = content.as_ptr().addr() - bytes.as_ptr().addr();
        turn(buffer);
        let port_at = frame.ports(bytes.len())?.at + 2;
        let port = buffer.get_mut(port_at..port_at + 2)?;
        let next = u16::from_be_bytes([port[0], port[1]]).wrapping_add(1);
        port.copy_from_slice(&next.to_be_bytes());
        (at, None)
    } else {
        Probe::parse(bytes)?;
        let mut from = arrival.from?;
        from.set_port(from.port().wrapping_add(1));
        (0, Some(from))
    };
    let times = [arrival.driver, arrival.kernel, Some(arrival.user), Some(now)];
    let place = buffer.get_mut(at + Probe::LEN..at + SHORTEST)?;
    for (place, time) in place.chunks_exact_mut(8).zip(times) {
        place.copy_from_slice(&time.map_or(0, Instant::as_ns).to_le_bytes());
    }
    Some(destination)
}

/// What an answer tells; `message` begins with the header.
pub(super) fn read(message: &[u8], into: &mut Passage) {
    let Some(told) = message.get(Probe::LEN..SHORTEST) else { return };
    for (bytes, point) in told.as_chunks::<8>().0.iter().zip(TOLD) {
        let ns = i64::from_le_bytes(*bytes);
        into.set(point, (ns != 0).then_some(ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(bytes: &[u8], from: Option<SocketAddr>) -> Arrival<'_> {
        Arrival {
            bytes,
            length: 0,
            from,
            tag: None,
            hardware_ns: None,
            driver: None,
            kernel: Some(Instant::from_ns(7)),
            user: Instant::from_ns(9),
        }
    }

    fn message() -> Vec<u8> {
        let mut message = vec![0xee; SHORTEST + 3];
        let time = Instant::from_ns(5);
        Probe { stream: 1, seq: 3, time, is_launch: false, skipped: None }.write(&mut message);
        message
    }

    fn check(told: &[u8]) {
        assert_eq!(told[..Probe::LEN], message()[..Probe::LEN]);
        assert_eq!(told[SHORTEST..], [0xee; 3]);
        let mut passage = Passage::default();
        read(told, &mut passage);
        let known = TOLD.map(|point| passage.get(point));
        assert_eq!(known, [None, Some(7), Some(9), Some(11)]);
    }

    #[test]
    fn t0_an_answer_goes_to_the_next_port_with_the_times() {
        let (bytes, mut buffer) = (message(), Vec::new());
        let from = "10.0.0.9:15100".parse().unwrap();
        let to = make(&arrival(&bytes, Some(from)), false, &mut buffer, Instant::from_ns(11));
        assert_eq!(to, Some(Some("10.0.0.9:15101".parse().unwrap())));
        check(&buffer);
        let short = &bytes[..SHORTEST - 1];
        let none = make(&arrival(short, Some(from)), false, &mut buffer, Instant::from_ns(11));
        assert_eq!(none, None);
    }

    #[test]
    fn t0_a_frame_goes_back_where_it_came_from() {
        let mut frame = [[1; 6], [2; 6]].concat();
        let length = 28 + u16::try_from(SHORTEST + 3).unwrap();
        let ip = [&[8, 0, 0x45, 0][..], &length.to_be_bytes(), &[0, 0, 0x40, 0, 64, 17, 0, 0]];
        frame.extend(ip.concat());
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let ports = [15_100_u16.to_be_bytes(), 15_100_u16.to_be_bytes()].concat();
        frame.extend([&ports[..], &(length - 20).to_be_bytes(), &[0, 0]].concat());
        frame.extend(message());
        let mut buffer = Vec::new();
        let to = make(&arrival(&frame, None), true, &mut buffer, Instant::from_ns(11));
        assert_eq!(to, Some(None));
        assert_eq!((&buffer[..6], &buffer[6..12]), (&[2; 6][..], &[1; 6][..]));
        assert_eq!(buffer[26..34], [10, 0, 0, 2, 10, 0, 0, 1]);
        let port = |at: usize| u16::from_be_bytes([buffer[at], buffer[at + 1]]);
        assert_eq!((port(34), port(36)), (15_100, 15_101));
        check(&buffer[42..]);
        assert_eq!(make(&arrival(&frame[..60], None), true, &mut buffer, clock::now()), None);
    }
}
