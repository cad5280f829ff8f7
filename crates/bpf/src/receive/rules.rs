// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules as the program compares them: each is a value and a mask over the key of a frame, which
//! `parse.bpf.h` fills in. The layouts mirror `receive.bpf.c`.

use std::net::IpAddr;

use timewire_base::wire::MacAddress;

use thiserror::Error;

/// Most classes, the normal one not counted.
pub const MAX_CLASSES: usize = 32;
/// Most comparisons of all rules together; [`FrameMatch::comparisons`] says what one takes.
pub const MAX_COMPARISONS: usize = 128;
/// Most CPUs of a class.
pub const MAX_CPUS: usize = 16;
/// Lanes of threads; the first is for normal frames.
pub const LANES: u8 = 8;
/// Longest text that is kept beside the rules.
///
/// **Units**: bytes.
pub const MAX_TEXT: usize = 32_768;
/// Slots of counters that classes can have.
pub const SLOTS: u32 = 70;

const KEY: usize = 64;
const CLASS: usize = 72;
const ENTRY: usize = 2 * KEY + 8;
const HEAD: usize = 8;
const ENTRIES_AT: usize = HEAD + (MAX_CLASSES + 1) * CLASS;
const TEXT_AT: usize = ENTRIES_AT + MAX_COMPARISONS * ENTRY;
/// Bytes of a block of rules; the size of the inner map's value.
pub(crate) const BLOCK: usize = TEXT_AT + MAX_TEXT;

const TO_PORT: usize = 0;
const FROM_PORT: usize = 2;
const FOUND: usize = 4;
const DSCP: usize = 5;
const ETHERTYPE: usize = 6;
const DESTINATION: usize = 8;
const TCI: usize = 14;
const SOURCE: usize = 16;
const STREAM: usize = 24;
const TO_ADDRESS: usize = 32;
const FROM_ADDRESS: usize = 48;

const HAS_TAG: u8 = 1;
const HAS_IP: u8 = 2;
const HAS_IPV6: u8 = 4;
const HAS_PORTS: u8 = 8;
const HAS_STREAM: u8 = 16;

/// An address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// Its length; at most 32 or 128.
    pub bits: u8,
}

/// What a frame looks like: everything that is named must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameMatch {
    /// UDP or TCP port of the source or the destination.
    pub port: Option<u16>,
    /// Destination port.
    pub to_port: Option<u16>,
    /// Source port.
    pub from_port: Option<u16>,
    /// Address of the source or the destination.
    pub address: Option<Prefix>,
    /// Destination address.
    pub to_address: Option<Prefix>,
    /// Source address.
    pub from_address: Option<Prefix>,
    /// Priority code point of the outer VLAN tag.
    pub pcp: Option<u8>,
    /// VLAN of the outer tag.
    pub vlan: Option<u16>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// EtherType behind VLAN tags.
    pub ethertype: Option<u16>,
    /// Address of the NIC that the frame goes to.
    pub destination: Option<MacAddress>,
    /// Address of the NIC that the frame comes from.
    pub source: Option<MacAddress>,
    /// Stream of AVTP.
    pub stream: Option<u64>,
}

impl FrameMatch {
    /// How many comparisons it takes: what may be at either end is looked for at each.
    pub fn comparisons(&self) -> usize {
        (1 + usize::from(self.port.is_some())) * (1 + usize::from(self.address.is_some()))
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = vec![self.one_sided()];
        if let Some(port) = self.port {
            entries = both(&entries, |entry, to| entry.port(to, port));
        }
        if let Some(prefix) = self.address {
            entries = both(&entries, |entry, to| entry.address(to, prefix));
        }
        entries
    }

    fn one_sided(&self) -> Entry {
        let mut entry = Entry { value: [0; KEY], mask: [0; KEY] };
        for (to, port) in [(true, self.to_port), (false, self.from_port)] {
            if let Some(port) = port {
                entry.port(to, port);
            }
        }
        for (to, prefix) in [(true, self.to_address), (false, self.from_address)] {
            if let Some(prefix) = prefix {
                entry.address(to, prefix);
            }
        }
        if let Some(pcp) = self.pcp {
            entry.tag(u16::from(pcp) << 13, 0xe000);
        }
        if let Some(vlan) = self.vlan {
            entry.tag(vlan, 0x0fff);
        }
        if let Some(dscp) = self.dscp {
            entry.found(HAS_IP, 0);
            entry.is(DSCP, &[dscp]);
        }
        if let Some(ethertype) = self.ethertype {
            entry.is(ETHERTYPE, &ethertype.to_be_bytes());
        }
        for (at, address) in [(DESTINATION, self.destination), (SOURCE, self.source)] {
            if let Some(address) = address {
                entry.is(at, &address.0);
            }
        }
        if let Some(stream) = self.stream {
            entry.found(HAS_STREAM, 0);
            entry.is(STREAM, &stream.to_be_bytes());
        }
        entry
    }
}

/// Twice as many: with something at the destination, and with it at the source.
fn both(entries: &[Entry], with: impl Fn(&mut Entry, bool)) -> Vec<Entry> {
    let one = |to| entries.iter().cloned().map(move |entry| (entry, to));
    let mut all: Vec<_> = one(true).chain(one(false)).collect();
    all.iter_mut().for_each(|(entry, to)| with(entry, *to));
    all.into_iter().map(|(entry, _)| entry).collect()
}

/// The mirror of `struct tw_entry`, without its class.
#[derive(Clone, Debug)]
struct Entry {
    value: [u8; KEY],
    mask: [u8; KEY],
}

impl Entry {
    fn is(&mut self, at: usize, bytes: &[u8]) {
        self.is_masked(at, bytes, &[0xff; 16][..bytes.len()]);
    }

    fn is_masked(&mut self, at: usize, bytes: &[u8], mask: &[u8]) {
        for (i, (byte, mask)) in bytes.iter().zip(mask).enumerate() {
            self.value[at + i] = self.value[at + i] & !mask | byte & mask;
            self.mask[at + i] |= mask;
        }
    }

    fn found(&mut self, set: u8, clear: u8) {
        self.is_masked(FOUND, &[set], &[set | clear]);
    }

    fn port(&mut self, to: bool, port: u16) {
        self.found(HAS_PORTS, 0);
        self.is(if to { TO_PORT } else { FROM_PORT }, &port.to_be_bytes());
    }

    fn tag(&mut self, tci: u16, mask: u16) {
        self.found(HAS_TAG, 0);
        self.is_masked(TCI, &tci.to_be_bytes(), &mask.to_be_bytes());
    }

    fn address(&mut self, to: bool, prefix: Prefix) {
        let at = if to { TO_ADDRESS } else { FROM_ADDRESS };
        let bits = u32::from(prefix.bits);
        match prefix.address {
            IpAddr::V4(address) => {
                self.found(HAS_IP, HAS_IPV6);
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0);
                self.is_masked(at + 12, &address.octets(), &mask.to_be_bytes());
            }
            IpAddr::V6(address) => {
                self.found(HAS_IP | HAS_IPV6, 0);
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits)).unwrap_or(0);
                self.is_masked(at, &address.octets(), &mask.to_be_bytes());
            }
        }
    }
}

/// Where the frames of a class go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Up the stack, at once.
    Kernel,
    /// To the AF_XDP socket of their queue; without one, up the stack.
    Socket,
    /// Up the stack by threads: one of these CPUs, the same for all frames of a flow.
    Threads {
        /// Which set of threads, below [`LANES`].
        lane: u8,
        /// Their CPUs, 1 to [`MAX_CPUS`].
        cpus: Vec<u32>,
    },
}

/// A class of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Which counters are its own, below [`SLOTS`].
    pub slot: u32,
    /// Where its frames go.
    pub target: Target,
}

/// All rules of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The classes; the first is that of frames that no rule fits.
    pub classes: Vec<Class>,
    /// What frames of a class look like, with its place in `classes`; the first that fits counts.
    pub matches: Vec<(usize, FrameMatch)>,
    /// What the rules were made of; kept beside them.
    pub text: String,
}

/// Rules that the program has no room for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{count} {what} are more than {max}")]
pub struct TooMany {
    /// Of what there are too many.
    pub what: &'static str,
    /// How many.
    pub count: usize,
    /// How many there can be.
    pub max: usize,
}

impl Rules {
    /// Rules that give every frame to the stack at once.
    pub fn none() -> Rules {
        let normal = Class { slot: 0, target: Target::Kernel };
        Rules { classes: vec![normal], matches: Vec::new(), text: String::new() }
    }

    /// The block as the program reads it.
    ///
    /// **Panics** on a class, slot or lane that does not exist, and without a normal class.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, TooMany> {
        let Rules { classes, matches, text } = self;
        let comparisons: usize = matches.iter().map(|(_, one)| one.comparisons()).sum();
        let cpus = classes.iter().map(|class| class.target.cpus().len()).max().unwrap_or(0);
        for (what, count, max) in [
            ("classes", classes.len() - 1, MAX_CLASSES),
            ("comparisons", comparisons, MAX_COMPARISONS),
            ("CPUs of a class", cpus, MAX_CPUS),
            ("bytes of text", text.len(), MAX_TEXT),
        ] {
            if count > max {
                return Err(TooMany { what, count, max });
            }
        }
        let mut block = vec![0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &small(comparisons).to_ne_bytes());
        put(4, &small(text.len()).to_ne_bytes());
        for (i, class) in classes.iter().enumerate() {
            put(HEAD + i * CLASS, &class.encode());
        }
        let entries = matches.iter().flat_map(|(class, one)| {
            assert!(*class < classes.len(), "a class of these rules");
            one.entries().into_iter().map(|entry| (*class, entry))
        });
        for (i, (class, entry)) in entries.enumerate() {
            let at = ENTRIES_AT + i * ENTRY;
            put(at, &entry.value);
            put(at + KEY, &entry.mask);
            put(at + 2 * KEY, &small(class).to_ne_bytes());
        }
        put(TEXT_AT, text.as_bytes());
        Ok(block)
    }
}

/// The text that is kept in a block; `None` when it is damaged.
pub(crate) fn text_of(block: &[u8]) -> Option<String> {
    let length = u32::from_ne_bytes(block.get(4..8)?.try_into().ok()?);
    let text = block.get(TEXT_AT..)?.get(..usize::try_from(length).ok()?)?;
    String::from_utf8(text.to_vec()).ok()
}

/// Slot and lane of each class of a block, the normal one first, as many as are asked for.
pub(crate) fn places_of(block: &[u8], classes: usize) -> Vec<(u32, u8)> {
    let of = |i: usize| {
        let class = block.get(HEAD + i * CLASS..)?.get(..8)?;
        Some((u32::from_ne_bytes(class[..4].try_into().ok()?), class[5]))
    };
    (0..classes).map_while(of).collect()
}

impl Target {
    fn cpus(&self) -> &[u32] {
        match self {
            Target::Threads { cpus, .. } => cpus,
            Target::Kernel | Target::Socket => &[],
        }
    }
}

impl Class {
    /// The mirror of `struct tw_class`.
    fn encode(&self) -> [u8; CLASS] {
        assert!(self.slot < SLOTS, "a slot that there is");
        let mut bytes = [0; CLASS];
        bytes[..4].copy_from_slice(&self.slot.to_ne_bytes());
        let (to, lane) = match self.target {
            Target::Kernel => (0, 0),
            Target::Socket => (1, 0),
            Target::Threads { lane, .. } => (2, lane),
        };
        assert!(lane < LANES, "a lane that there is");
        (bytes[4], bytes[5]) = (to, lane);
        let cpus = self.target.cpus();
        let count = u16::try_from(cpus.len()).expect("invariant: at most MAX_CPUS");
        bytes[6..8].copy_from_slice(&count.to_ne_bytes());
        for (place, cpu) in bytes[8..].chunks_exact_mut(4).zip(cpus) {
            place.copy_from_slice(&cpu.to_ne_bytes());
        }
        bytes
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).expect("invariant: bounded above")
}
