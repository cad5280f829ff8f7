// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links to others: over TLS, to a local socket, over the stdio of a program or of our own.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use timewire_sys::connect_local;
use timewire_sys::local::{effective_user, peer_of};
use timewire_sys::names;

use crate::links::error::{LinkError, system};
use crate::links::identity::Identity;
use crate::links::link::{Link, LinkLimits, Peer};
use crate::links::listener::LinkSlot;
use crate::links::peers::{Peers, Role};
use crate::links::tls::{self, Purpose, Wanted};
use crate::links::wire::{Plain, Program, Tls, Wire};

/// Connects to an agent that this station was paired with. `address` is `HOST:PORT`; all addresses
/// of the host are tried in turn.
///
/// **Errors**: nobody there; the other end is not one of `peers` as [`Role::Agent`]
/// ([`LinkError::NotPaired`]), or does not know this station ([`LinkError::NotTrusted`]).
pub fn connect_tcp(
    address: &str,
    identity: &Identity,
    peers: &Peers,
    limits: LinkLimits,
) -> Result<Link, LinkError> {
    let wanted = Wanted::Paired(peers.clone(), Role::Agent);
    connect_for(address, identity, Purpose::Link, wanted, limits)
}

pub(crate) fn connect_for(
    address: &str,
    identity: &Identity,
    purpose: Purpose,
    wanted: Wanted,
    limits: LinkLimits,
) -> Result<Link, LinkError> {
    let end = Instant::now() + limits.handshake;
    let (socket, at) = connect_any(address, end)?;
    prepare(&socket)?;
    let session = tls::client(identity, purpose, wanted, at.to_string());
    let found = session.handshake(&socket, end)?;
    open_tls(socket, found, at, limits, end, None)
}

fn connect_any(address: &str, end: Instant) -> Result<(TcpStream, SocketAddr), LinkError> {
    let doing = || format!("connect to {address}");
    let addresses = resolve(address).map_err(system(doing()))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (at, others) in addresses.iter().zip((0..addresses.len()).rev()) {
        let left = end.saturating_duration_since(Instant::now());
        let left = share(left, others).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(at, left) {
            Ok(socket) => return Ok((socket, *at)),
            Err(error) => last = error,
        }
    }
    Err(system(doing())(last))
}

/// How long one address may take: one that does not answer leaves each of the others as much.
fn share(left: Duration, others: usize) -> Duration {
    left / u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1)
}

/// The addresses of `HOST:PORT`, where an address of IPv6 stands in brackets and may name an
/// interface, by its name as well.
fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    names::without_plugins();
    let bracketed = address.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
    let Some((host, port)) = bracketed else {
        return Ok(address.to_socket_addrs()?.collect());
    };
    let port: u16 = port.parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("`{port}` is not a port"))
    })?;
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Sets up a connected socket, of either end.
pub(crate) fn prepare(socket: &TcpStream) -> Result<(), LinkError> {
    let set = socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true));
    set.map_err(system("set up a connection"))
}

pub(crate) fn open_tls(
    socket: TcpStream,
    found: tls::Established,
    at: SocketAddr,
    limits: LinkLimits,
    end: Instant,
    place: Option<LinkSlot>,
) -> Result<Link, LinkError> {
    let tls::Established { connection, fingerprint, name, binding } = found;
    let peer = Peer::Station { fingerprint, name, address: at.to_string() };
    let wire = Wire::Tls(Box::new(Tls::new(socket, connection)));
    Link::open(wire, peer, Some(binding), limits, end, place)
}

/// Connects to an agent's local socket.
///
/// **Errors**: nobody there; it belongs to a user who is neither this one nor root.
pub fn connect_unix(path: &Path, limits: LinkLimits) -> Result<Link, LinkError> {
    let doing = || format!("connect to {}", path.display());
    let stream = connect_local(path, limits.handshake).map_err(system(doing()))?;
    over_unix(stream, limits)
}

/// A link over a connected local socket. Both ends must do this at about the same time.
///
/// **Errors**: as [`connect_unix`].
pub fn over_unix(stream: UnixStream, limits: LinkLimits) -> Result<Link, LinkError> {
    open_unix(stream, limits, None)
}

pub(crate) fn open_unix(
    stream: UnixStream,
    limits: LinkLimits,
    place: Option<LinkSlot>,
) -> Result<Link, LinkError> {
    let end = Instant::now() + limits.handshake;
    let found = peer_of(&stream).map_err(system("ask who is at a local socket's other end"))?;
    if found.user != 0 && found.user != effective_user() {
        let socket = "the other end of the local socket".to_owned();
        return Err(LinkError::OtherUser { socket, user: found.user });
    }
    let peer = Peer::Local { user: found.user, pid: found.pid };
    let set_up = || "set up a local socket";
    stream.set_nonblocking(true).map_err(system(set_up()))?;
    let input = stream.try_clone().map_err(system(set_up()))?;
    let (input, output) = (File::from(OwnedFd::from(input)), File::from(OwnedFd::from(stream)));
    let wire = Wire::Plain(Plain { input, output, _program: None });
    Link::open(wire, peer, None, limits, end, place)
}

/// Starts a program, such as `ssh HOST timewire agent --stdio`, and makes a link over its stdin and
/// stdout; its stderr stays ours. The program ends with the link.
///
/// **Errors**: it cannot be started, or does not greet in time.
pub fn over_program(mut command: Command, limits: LinkLimits) -> Result<Link, LinkError> {
    let end = Instant::now() + limits.handshake;
    let doing = format!("start {}", command.get_program().to_string_lossy());
    // A group of its own: Ctrl-C is for us, who need the link to end what goes on at its other end.
    let child = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(system(doing))?;
    let output = child.stdin.take().expect("invariant: it is a pipe");
    let input = child.stdout.take().expect("invariant: it is a pipe");
    let (input, output) = (File::from(OwnedFd::from(input)), File::from(OwnedFd::from(output)));
    let wire = Wire::Plain(Plain { input, output, _program: Some(Program(child)) });
    Link::open(wire, Peer::Stdio, None, limits, end, None)
}

/// A link over our own stdin and stdout, which nothing else may use from now on.
///
/// **Errors**: whoever has their other ends does not greet in time.
pub fn over_stdio(limits: LinkLimits) -> Result<Link, LinkError> {
    let end = Instant::now() + limits.handshake;
    let own = |fd: io::Result<OwnedFd>| fd.map(File::from).map_err(system("use stdin and stdout"));
    let input = own(io::stdin().as_fd().try_clone_to_owned())?;
    let output = own(io::stdout().as_fd().try_clone_to_owned())?;
    let wire = Wire::Plain(Plain { input, output, _program: None });
    Link::open(wire, Peer::Stdio, None, limits, end, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_an_address_that_does_not_answer_leaves_time_for_the_others() {
        let mut left = Duration::from_secs(20);
        for others in (0..4).rev() {
            assert_eq!(share(left, others), Duration::from_secs(5));
            left -= share(left, others);
        }
    }
}
