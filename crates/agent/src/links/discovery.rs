// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding agents on the links of this host: each says now and then, to a group of IPv6 that
//! counts on its link alone, what it is called and where it listens.
//!
//! What is heard is a hint and no more: anybody can say anything. Who connects finds out by the
//! key. Nothing is answered, so nobody can be flooded with answers.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use timewire_sys::event::{self, Wake};
use timewire_sys::multicast::{LinkLocal, link_locals, shared_udp};

use crate::links::error::{LinkError, system};
use crate::links::identity::Fingerprint;
use crate::links::peers::plain_name;
use crate::links::wire::{span, wait_readable};

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What it is called, at most 64 characters.
    pub name: String,
    /// The TCP port at which it takes links.
    pub port: u16,
    /// What it would prove to be.
    pub fingerprint: Fingerprint,
    /// The version of its program, at most 64 characters.
    pub program: String,
}

impl Announcement {
    /// As a packet: `TWAG`, version, port, fingerprint, then name and program, each after its
    /// length in one byte.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut packet = MAGIC.to_vec();
        packet.push(VERSION);
        packet.extend_from_slice(&self.port.to_be_bytes());
        packet.extend_from_slice(self.fingerprint.as_bytes());
        for text in [&self.name, &self.program] {
            let text = plain_name(text);
            packet.push(u8::try_from(text.len()).expect("invariant: at most 64"));
            packet.extend_from_slice(text.as_bytes());
        }
        packet
    }

    /// From a packet of anybody; `None` when it is something else.
    pub(crate) fn decode(packet: &[u8]) -> Option<Announcement> {
        let (magic, rest) = packet.split_first_chunk::<4>()?;
        let (version, rest) = rest.split_first()?;
        if magic != MAGIC || *version != VERSION {
            return None;
        }
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let (fingerprint, rest) = rest.split_first_chunk::<32>()?;
        let (name, rest) = text(rest)?;
        let (program, rest) = text(rest)?;
        let (port, fingerprint) =
            (u16::from_be_bytes(*port), Fingerprint::from_bytes(*fingerprint));
        let whole = rest.is_empty() && port != 0;
        whole.then_some(Announcement { name, port, fingerprint, program })
    }
}

fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((plain_name(std::str::from_utf8(text).ok()?), rest))
}

/// Says an announcement every two seconds, on every link that there is then, until it is dropped.
#[derive(Debug)]
pub struct Announcer {
    stop: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    /// Begins, in the calling thread's network namespace.
    ///
    /// **Errors**: this host has no IPv6.
    pub fn start(announcement: &Announcement) -> Result<Announcer, LinkError> {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
        let socket = socket.map_err(system("announce the agent over IPv6"))?;
        let stop = Arc::new(Wake::new().map_err(system("make an event"))?);
        let (wake, packet) = (Arc::clone(&stop), announcement.encode());
        let work = move || {
            loop {
                for link in link_locals() {
                    // A link may be down; it is tried again.
                    let _ = socket.send_to(&packet, group(&link));
                }
                let ended = event::wait_readable(&[wake.as_fd()], Some(span(EVERY)));
                if !matches!(ended, Ok(false)) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("announcer".to_owned()).spawn(work);
        let thread = Some(thread.map_err(system("start a thread"))?);
        Ok(Announcer { stop, thread })
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        // It cannot fail for an event that is set once.
        let _ = self.stop.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An agent that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAgent {
    /// What it said.
    pub announcement: Announcement,
    /// Where to connect to, as `connect_tcp` takes it: an address of its link with the interface.
    pub address: String,
}

/// Listens for so long, or until `is_over`, which is asked ten times a second; returns the agents
/// that were heard, by name; at most 1024.
///
/// **Errors**: this host has no IPv6, or no link is up.
pub fn find_agents(
    timeout: Duration,
    is_over: impl Fn() -> bool,
) -> Result<Vec<FoundAgent>, LinkError> {
    let end = Instant::now() + timeout;
    let doing = || system("listen for agents over IPv6");
    let socket = shared_udp(PORT).map_err(doing())?;
    socket.set_nonblocking(true).map_err(doing())?;
    let links = link_locals();
    let joined = links.iter().filter(|of| socket.join_multicast_v6(&GROUP, of.index).is_ok());
    if joined.count() == 0 {
        let why = "no interface is up with an address of its link (fe80::...)";
        return Err(doing()(io::Error::new(io::ErrorKind::NotFound, why)));
    }
    let mut found = BTreeMap::new();
    let mut packet = [0; 512];
    while Instant::now() < end && !is_over() {
        let soon = end.min(Instant::now() + Duration::from_millis(100));
        if !wait_readable(socket.as_fd(), soon).map_err(doing())? {
            continue;
        }
        let (length, from) = match socket.recv_from(&mut packet) {
            Ok((length, SocketAddr::V6(from))) => (length, from),
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(doing()(error)),
        };
        let Some(announcement) = Announcement::decode(&packet[..length]) else { continue };
        let agent = FoundAgent { address: address(&from, announcement.port, &links), announcement };
        if found.len() < MAX_MESSAGE_BYTES {
            let said = &agent.announcement;
            let key = (said.name.clone(), said.fingerprint, agent.address.clone());
            found.insert(key, agent);
        }
    }
    Ok(found.into_values().collect())
}

fn group(link: &LinkLocal) -> SocketAddrV6 {
    SocketAddrV6::new(GROUP, PORT, 0, link.index)
}

fn address(from: &SocketAddrV6, port: u16, links: &[LinkLocal]) -> String {
    let link = links.iter().find(|link| link.index == from.scope_id());
    match link {
        Some(link) => format!("[{}%{}]:{port}", from.ip(), link.name),
        None => format!("[{}]:{port}", from.ip()),
    }
}

const MAGIC: &[u8; 4] = b"TWAG";
const VERSION: u8 = 1;
/// Transient, and of the scope of a link (RFC 4291, 2.7).
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x7477, 0x6167);
const PORT: u16 = 28_411;
const EVERY: Duration = Duration::from_secs(2);
const MAX_MESSAGE_BYTES: usize = 1_024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> Announcement {
        let fingerprint = Fingerprint::from_bytes([7; 32]);
        Announcement { name: "st1".into(), port: 28_411, fingerprint, program: "0.1.0".into() }
    }

    #[test]
    fn t0_announcements_are_read_back_and_cut_ones_are_not() {
        let packet = some().encode();
        assert_eq!(Announcement::decode(&packet), Some(some()));
        assert!((0..packet.len()).all(|cut| Announcement::decode(&packet[..cut]).is_none()));
        assert_eq!(Announcement::decode(&[&packet[..], b"x"].concat()), None);
        let rude = Announcement { name: "\u{1b}[2J".repeat(99), ..some() };
        let read = Announcement::decode(&rude.encode()).unwrap();
        assert!(read.name.len() == 64 && read.name.starts_with("?[2J?[2J"), "{}", read.name);
    }

    proptest! {
        #[test]
        fn t0_arbitrary_packets_are_nothing_or_can_be_said_again(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            good in any::<bool>(),
        ) {
            let packet = if good { [&some().encode()[..39], &bytes].concat() } else { bytes };
            if let Some(read) = Announcement::decode(&packet) {
                prop_assert_eq!(Announcement::decode(&read.encode()).unwrap(), read);
            }
        }
    }

    #[test]
    fn t0_an_address_names_its_interface() {
        let link = LinkLocal { name: "eth0".into(), index: 4, address: Ipv6Addr::LOCALHOST };
        let from = SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 4);
        assert_eq!(address(&from, 28_411, &[link]), "[fe80::1%eth0]:28411");
    }
}
