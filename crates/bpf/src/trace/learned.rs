// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the programs learn beside events: names of threads, whose packets a tag stands for, and how
//! long packets took.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use timewire_base::wire::MacAddress;

use libbpf_rs::{MapCore, MapFlags};
use timewire_capture::event::Hook;
use timewire_capture::filter::{kind, word};

use super::{HOOKS, Tracer};
use crate::{BpfError, map_of};

/// Whose packets the upper half of a tag stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    words: [u64; 8],
    kind: u16,
    /// The stream, where the messages have Timewire's own header and the tag has it.
    stream: Option<u16>,
}

/// How often packets took how long from one hook to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// From here
    pub from: Hook,
    /// to here, without another hook between.
    pub to: Hook,
    /// The number at `n` is how often it took 2^n to 2^(n+1) ns; at 0 also less, at 31 also more.
    pub bins: [u64; 32],
}

impl Tracer {
    /// The threads that sent, read, or had the CPU before one that read, and their names.
    pub fn threads(&self) -> Result<Vec<(u32, String)>, BpfError> {
        let mut threads = Vec::new();
        self.each("names", &mut |key, value| {
            let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            let name = String::from_utf8_lossy(&value[..end]).into_owned();
            threads.extend(number(key, 0).map(|thread| (thread, name)));
        })?;
        threads.sort_unstable();
        Ok(threads)
    }

    /// Upper halves of tags, and what they stand for.
    pub fn flows(&self) -> Result<Vec<(u32, Flow)>, BpfError> {
        let mut flows = Vec::new();
        self.each("flows", &mut |key, value| {
            let decoded = Flow::decode(value);
            flows.extend(number(key, 0).zip(decoded));
        })?;
        flows.sort_unstable_by_key(|(flow, _)| *flow);
        Ok(flows)
    }

    /// How long packets took, with [`super::Mode::Histograms`]; pairs of hooks that had any.
    pub fn intervals(&self) -> Result<Vec<Interval>, BpfError> {
        let map = map_of(&self.object, "histograms");
        let mut intervals = Vec::new();
        for from in &self.hooks {
            for to in &self.hooks {
                let pair = usize::from(from.number()) * HOOKS + usize::from(to.number());
                let pair = u32::try_from(pair).expect("invariant: few hooks");
                let per_cpu = map
                    .lookup_percpu(&pair.to_ne_bytes(), MapFlags::ANY)
                    .map_err(|source| BpfError::Map { map: "histograms", source })?;
                let mut bins = [0; 32];
                for cpu in per_cpu.into_iter().flatten() {
                    for (bin, count) in bins.iter_mut().zip(cpu.as_chunks::<8>().0) {
                        *bin += u64::from_ne_bytes(*count);
                    }
                }
                if bins.iter().any(|count| *count > 0) {
                    intervals.push(Interval { from: *from, to: *to, bins });
                }
            }
        }
        Ok(intervals)
    }

    fn each(&self, name: &'static str, tell: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), BpfError> {
        let map = map_of(&self.object, name);
        for key in map.keys() {
            // One that is gone meanwhile was told before, or is of no use any more.
            let value = map.lookup(&key, MapFlags::ANY);
            if let Some(value) = value.map_err(|source| BpfError::Map { map: name, source })? {
                tell(&key, &value);
            }
        }
        Ok(())
    }
}

impl Flow {
    /// The mirror of `struct tw_flow`.
    fn decode(bytes: &[u8]) -> Option<Flow> {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let kind = u16::try_from(number(bytes, 64)?).ok()?;
        let stream = number(bytes, 68)?.checked_sub(1);
        Some(Flow { words, kind, stream: stream.and_then(|stream| u16::try_from(stream).ok()) })
    }

    fn address(&self, at: u8) -> String {
        let (high, low) = (self.words[usize::from(at)], self.words[usize::from(at) + 1]);
        if self.kind == kind::IPV6 {
            return format!("[{}]", Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)));
        }
        Ipv4Addr::from_bits(u32::try_from(low).unwrap_or(0)).to_string()
    }

    fn port(&self, at: u8) -> String {
        let word = self.words[usize::from(at)];
        if word & word::HAS_PORTS == 0 { String::new() } else { format!(":{}", word & 0xffff) }
    }

    fn mac(&self, at: u8) -> MacAddress {
        let [_, _, octets @ ..] = self.words[usize::from(at)].to_be_bytes();
        MacAddress(octets)
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stream) = self.stream {
            write!(f, "stream {stream}, ")?;
        }
        if self.kind & kind::IP == 0 {
            let ethertype = self.words[usize::from(word::ETHER_DESTINATION)] >> 48;
            let (from, to) = (self.mac(word::ETHER_SOURCE), self.mac(word::ETHER_DESTINATION));
            return write!(f, "0x{ethertype:04x} {from} > {to}");
        }
        match self.words[usize::from(word::SOURCE_PORT)] >> 16 & 0xff {
            6 => f.write_str("TCP ")?,
            17 => f.write_str("UDP ")?,
            132 => f.write_str("SCTP ")?,
            protocol => write!(f, "IP {protocol} ")?,
        }
        let (from, to) = (self.address(word::SOURCE), self.address(word::DESTINATION));
        let (from_port, to_port) =
            (self.port(word::SOURCE_PORT), self.port(word::DESTINATION_PORT));
        write!(f, "{from}{from_port} > {to}{to_port}")
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*bytes))
}
