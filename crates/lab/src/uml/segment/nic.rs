// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station's NIC: the device that `virtio_net` drives (virtio 1.2, 5.1), without any
//! offload, so every frame comes whole and with its checksums, with as many pairs of queues as
//! asked for, and with the rate of the link, so that `taprio` and `cbs` know it.
//!
//! A frame to be sent stays the NIC's until its last bit has left, as with real hardware; then its
//! buffers go back to the driver. Frames of all transmit queues go in the order in which the driver
//! told the NIC about them.

use std::io;
use std::os::fd::OwnedFd;

use timewire_sys::vhost::{Chain, GuestMemory, RingError, SplitRing};

use super::wire::{Asked, invalid, request};

/// Bits of virtio features.
mod feature {
    pub const MAC: u64 = 1 << 5;
    pub const STATUS: u64 = 1 << 16;
    pub const CONTROL_QUEUE: u64 = 1 << 17;
    pub const QUEUE_PAIRS: u64 = 1 << 22;
    pub const PROTOCOL: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    pub const SPEED_DUPLEX: u64 = 1 << 63;
}

/// Bits of vhost-user protocol features: acknowledged requests, a line back, configuration space,
/// and notifications over the socket. With these, nothing happens behind the socket's back.
const PROTOCOL_FEATURES: u64 = 1 << 3 | 1 << 5 | 1 << 9 | 1 << 14;
/// `struct virtio_net_hdr_v1`.
const NET_HEADER_BYTES: usize = 12;
/// Longest frame that is taken from the driver.
const MAX_FRAME: usize = 65_535;
/// `VIRTIO_NET_CTRL_MQ` and `VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`.
const CONTROL_PAIRS: [u8; 2] = [4, 0];

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It is answered with these bytes.
    Payload(Vec<u8>),
    /// There is something in a queue.
    Kick(u32),
}

/// A NIC.
#[derive(Debug)]
pub struct Nic {
    mac: [u8; 6],
    mbit_per_second: u32,
    pairs: u16,
    memory: GuestMemory,
    queues: Vec<Queue>,
    /// The line back to the driver, until someone takes it.
    call_line: Option<OwnedFd>,
    calls: Vec<u32>,
    /// Grows when the driver sets the rings up anew: what was underway is nobody's then.
    generation: u32,
}

#[derive(Debug, Default)]
struct Queue {
    size: u32,
    ring: Option<SplitRing>,
}

impl Nic {
    /// A NIC with an address, a rate (`0xffff_ffff`: unknown) and so many pairs of queues.
    pub fn new(mac: [u8; 6], mbit_per_second: u32, pairs: u16) -> Nic {
        let count = 2 * usize::from(pairs) + 1;
        Nic {
            mac,
            mbit_per_second,
            pairs,
            memory: GuestMemory::new(),
            queues: (0..count).map(|_| Queue::default()).collect(),
            call_line: None,
            calls: Vec::new(),
            generation: 0,
        }
    }

    /// Does what the driver asks.
    ///
    /// **Errors**: a request that breaks the protocol.
    pub fn on(&mut self, mut asked: Asked) -> io::Result<Answer> {
        match asked.request {
            request::GET_FEATURES => return Ok(payload(self.features())),
            request::GET_PROTOCOL_FEATURES => return Ok(payload(PROTOCOL_FEATURES)),
            request::SET_FEATURES => self.check_features(asked.number()?)?,
            request::SET_PROTOCOL_FEATURES if asked.number()? != PROTOCOL_FEATURES => {
                return Err(invalid("the driver does without a needed feature".to_owned()));
            }
            request::SET_OWNER | request::SET_PROTOCOL_FEATURES | request::SET_CONFIG => {}
            request::SET_MEM_TABLE => self.set_memory(&asked)?,
            request::SET_VRING_NUM => self.queue(asked.word(0)?)?.size = asked.word(4)?,
            request::SET_VRING_BASE if asked.word(4)? != 0 => {
                return Err(invalid("a ring that starts in the middle".to_owned()));
            }
            request::SET_VRING_BASE => {}
            request::SET_VRING_ADDR => self.set_ring(&asked)?,
            request::SET_VRING_ENABLE => {
                if asked.word(4)? == 0 {
                    self.queue(asked.word(0)?)?.ring = None;
                    self.generation += 1;
                }
            }
            request::SET_SLAVE_REQ_FD => self.call_line = asked.descriptors.pop(),
            request::GET_CONFIG => return self.configuration(&asked),
            request::VRING_KICK => return Ok(Answer::Kick(asked.word(0)?)),
            other => return Err(invalid(format!("request {other} is not known"))),
        }
        Ok(Answer::Done)
    }

    /// The line back to the driver, when it has just sent one.
    pub fn take_call_line(&mut self) -> Option<OwnedFd> {
        self.call_line.take()
    }

    /// The queues about which the driver is to be told.
    pub fn take_calls(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.calls)
    }

    /// Looks into a queue after a kick: the frames that are to be sent, each with a tag.
    ///
    /// **Errors**: a ring that breaks the rules.
    pub fn kicked(&mut self, queue: u32) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let index = index_of(queue);
        if index + 1 == self.queues.len() {
            self.control()?;
            return Ok(Vec::new());
        }
        let mut frames = Vec::new();
        // Receive buffers are looked for when a frame arrives.
        if index % 2 == 1 {
            while let Some(chain) = self.pop(index)? {
                let bytes = chain.read(&self.memory, NET_HEADER_BYTES + MAX_FRAME);
                let mut bytes = bytes.map_err(io::Error::other)?;
                if bytes.len() < NET_HEADER_BYTES {
                    return Err(invalid("a frame without its virtio header".to_owned()));
                }
                let frame = bytes.split_off(NET_HEADER_BYTES);
                frames.push((self.tag(queue, chain.head), frame));
            }
        }
        Ok(frames)
    }

    /// The last bit of a frame has left: its buffers go back.
    ///
    /// **Errors**: a ring that breaks the rules.
    pub fn sent(&mut self, tag: u64) -> io::Result<()> {
        let (generation, queue, head) = parts(tag);
        if generation == self.generation {
            self.give_back(queue, head, 0)?;
        }
        Ok(())
    }

    /// A frame has arrived; whether the driver had a buffer for it.
    ///
    /// **Errors**: a ring that breaks the rules.
    pub fn arrived(&mut self, frame: &[u8]) -> io::Result<bool> {
        let Some(chain) = self.pop(0)? else { return Ok(false) };
        let mut bytes = vec![0; NET_HEADER_BYTES];
        // One buffer holds it: the last field of the header.
        bytes[NET_HEADER_BYTES - 2] = 1;
        bytes.extend(frame);
        let fits = chain.write(&self.memory, &bytes).map_err(io::Error::other)?;
        let written = if fits { u32::try_from(bytes.len()).unwrap_or(0) } else { 0 };
        self.give_back(0, chain.head, written)?;
        Ok(fits)
    }

    fn features(&self) -> u64 {
        let pairs = if self.pairs > 1 { feature::QUEUE_PAIRS } else { 0 };
        feature::MAC
            | feature::STATUS
            | feature::CONTROL_QUEUE
            | feature::PROTOCOL
            | feature::VERSION_1
            | feature::SPEED_DUPLEX
            | pairs
    }

    fn check_features(&self, taken: u64) -> io::Result<()> {
        let needed = feature::VERSION_1 | feature::PROTOCOL | feature::CONTROL_QUEUE;
        if taken & needed != needed || taken & !self.features() != 0 {
            return Err(invalid(format!("the driver takes the features {taken:#x}")));
        }
        Ok(())
    }

    /// `struct virtio_net_config`, from its start to the duplex mode.
    fn configuration(&self, asked: &Asked) -> io::Result<Answer> {
        const LINK_IS_UP: u16 = 1;
        const MTU: u16 = 1_500;
        const FULL_DUPLEX: u8 = 1;
        let mut space = self.mac.to_vec();
        for word in [LINK_IS_UP, self.pairs, MTU] {
            space.extend(word.to_le_bytes());
        }
        space.extend(self.mbit_per_second.to_le_bytes());
        space.push(FULL_DUPLEX);
        let (offset, size) = (index_of(asked.word(0)?), index_of(asked.word(4)?));
        let mut bytes = asked.payload.clone();
        bytes.truncate(12);
        let field = space.into_iter().chain(std::iter::repeat(0)).skip(offset).take(size.min(256));
        bytes.extend(field);
        Ok(Answer::Payload(bytes))
    }

    fn set_memory(&mut self, asked: &Asked) -> io::Result<()> {
        let mut memory = GuestMemory::new();
        let count = index_of(asked.word(0)?);
        if count != asked.descriptors.len() {
            return Err(invalid(format!("{count} regions of memory without their files")));
        }
        for (i, file) in asked.descriptors.iter().enumerate() {
            let at = 8 + 32 * i;
            let (guest, length) = (asked.long(at)?, asked.long(at + 8)?);
            let (user, offset) = (asked.long(at + 16)?, asked.long(at + 24)?);
            memory.add(file, offset, length, guest, user)?;
        }
        self.memory = memory;
        Ok(())
    }

    fn set_ring(&mut self, asked: &Asked) -> io::Result<()> {
        let queue = asked.word(0)?;
        let at =
            |field: usize| self.memory.guest_address(asked.long(field)?).map_err(io::Error::other);
        let (descriptors, used, available) = (at(8)?, at(16)?, at(24)?);
        let size = self.queue(queue)?.size;
        let ring = SplitRing::new(size, descriptors, available, used).map_err(io::Error::other)?;
        if queue % 2 == 0 && index_of(queue) + 1 != self.queues.len() {
            ring.be_quiet(&self.memory).map_err(io::Error::other)?;
        }
        self.queue(queue)?.ring = Some(ring);
        Ok(())
    }

    fn queue(&mut self, queue: u32) -> io::Result<&mut Queue> {
        let missing = || invalid(format!("there is no queue {queue}"));
        self.queues.get_mut(index_of(queue)).ok_or_else(missing)
    }

    fn pop(&mut self, index: usize) -> io::Result<Option<Chain>> {
        let memory = &self.memory;
        match self.queues.get_mut(index).and_then(|queue| queue.ring.as_mut()) {
            Some(ring) => ring.pop(memory).map_err(io::Error::other),
            None => Ok(None),
        }
    }

    fn give_back(&mut self, queue: u32, head: u16, written: u32) -> io::Result<()> {
        let memory = &self.memory;
        let ring = self.queues.get_mut(index_of(queue)).and_then(|queue| queue.ring.as_mut());
        let Some(ring) = ring else { return Ok(()) };
        let wants = ring
            .give_back(memory, head, written)
            .and_then(|()| ring.wants_interrupt(memory))
            .map_err(|error: RingError| io::Error::other(error))?;
        if wants && !self.calls.contains(&queue) {
            self.calls.push(queue);
        }
        Ok(())
    }

    /// Commands of the driver: how many pairs of queues it uses. All are served at any time, so
    /// only an impossible number is refused.
    fn control(&mut self) -> io::Result<()> {
        let index = self.queues.len() - 1;
        while let Some(chain) = self.pop(index)? {
            let command = chain.read(&self.memory, 64).map_err(io::Error::other)?;
            let possible = match command[..] {
                [class, number, low, high, ..] if [class, number] == CONTROL_PAIRS => {
                    (1..=self.pairs).contains(&u16::from_le_bytes([low, high]))
                }
                _ => false,
            };
            let status = u8::from(!possible);
            chain.write(&self.memory, &[status]).map_err(io::Error::other)?;
            let queue = u32::try_from(index).expect("invariant: few queues");
            self.give_back(queue, chain.head, 1)?;
        }
        Ok(())
    }

    fn tag(&self, queue: u32, head: u16) -> u64 {
        u64::from(self.generation) << 32 | u64::from(queue & 0xffff) << 16 | u64::from(head)
    }
}

fn parts(tag: u64) -> (u32, u32, u16) {
    let [h0, h1, q0, q1, generation @ ..] = tag.to_le_bytes();
    let queue = u32::from(u16::from_le_bytes([q0, q1]));
    (u32::from_le_bytes(generation), queue, u16::from_le_bytes([h0, h1]))
}

fn index_of(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn payload(number: u64) -> Answer {
    Answer::Payload(number.to_le_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: u32, words: &[u32]) -> Asked {
        let payload = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Asked { request, wants_reply: true, payload, descriptors: Vec::new() }
    }

    fn nic() -> Nic {
        Nic::new([2, 0, 0, 0, 0, 1], 100, 2)
    }

    #[test]
    fn t0_the_configuration_has_address_pairs_and_rate() {
        let Answer::Payload(bytes) = nic().on(asked(request::GET_CONFIG, &[0, 20, 0])).unwrap()
        else {
            panic!("no configuration")
        };
        assert_eq!(bytes.len(), 12 + 20);
        assert_eq!(bytes[12..18], [2, 0, 0, 0, 0, 1]);
        assert_eq!(bytes[18..], [1, 0, 2, 0, 0xdc, 5, 100, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn t0_features_that_are_needed_are_insisted_on() {
        let mut nic = nic();
        let features = nic.features();
        let halves = |number: u64| {
            let [a, b, c, d, high @ ..] = number.to_le_bytes();
            [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(high)]
        };
        nic.on(asked(request::SET_FEATURES, &halves(features))).unwrap();
        assert!(nic.on(asked(request::SET_FEATURES, &halves(features | 1))).is_err());
        assert!(nic.on(asked(request::SET_FEATURES, &[0, 0])).is_err());
        assert!(nic.on(asked(request::SET_PROTOCOL_FEATURES, &[0, 0])).is_err());
    }

    #[test]
    fn t0_nonsense_is_refused() {
        let mut nic = nic();
        for (number, words) in [
            (99, &[0_u32; 2][..]),
            (request::SET_VRING_NUM, &[9, 256]),
            (request::SET_VRING_BASE, &[0, 1]),
            (request::SET_VRING_ADDR, &[0; 10]),
            (request::SET_MEM_TABLE, &[1, 0, 0, 0]),
            (request::SET_FEATURES, &[1]),
        ] {
            assert!(nic.on(asked(number, words)).is_err(), "{number}");
        }
        assert_eq!(nic.kicked(1).unwrap(), []);
        assert!(!nic.arrived(&[0; 60]).unwrap());
    }

    #[test]
    fn t0_tags_are_taken_apart() {
        let mut nic = nic();
        nic.generation = 0x0102_0304;
        assert_eq!(parts(nic.tag(3, 77)), (0x0102_0304, 3, 77));
    }
}
