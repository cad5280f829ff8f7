// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Taking links from others. Whatever a stranger sends costs one bounded thread for a bounded time
//! and a line in the log.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use timewire_sys::connect_local;
use timewire_sys::event::{self, Wake};
use timewire_sys::privilege::keep_capabilities;

use crate::links::connect::{open_tls, open_unix, prepare};
use crate::links::error::{LinkError, system};
use crate::links::identity::Identity;
use crate::links::link::{Link, LinkLimits};
use crate::links::peers::{Peers, Role};
use crate::links::tls::{self, Purpose, Wanted};
use crate::links::wire::{lock, wait_readable};

/// Where the lines about refused peers go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenLimits {
    /// Of each link.
    pub link: LinkLimits,
    /// How many links there may be at once.
    pub links: usize,
    /// How many connections may be in their handshake at once.
    pub handshakes: usize,
    /// How many of them from one address.
    pub handshakes_of_address: usize,
    /// How many lines a stranger can have written into the log in ten seconds.
    pub log_lines: u32,
}

impl Default for ListenLimits {
    fn default() -> ListenLimits {
        ListenLimits {
            link: LinkLimits::default(),
            links: 256,
            handshakes: 32,
            handshakes_of_address: 8,
            log_lines: 10,
        }
    }
}

/// Takes links until it is dropped. Links that were taken stay.
#[derive(Debug)]
pub struct Listener {
    links: mpsc::Receiver<Link>,
    address: Option<SocketAddr>,
    path: Option<PathBuf>,
    gate: Arc<Gate>,
    stop: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens for controllers that this station was paired with. Port 0 stands for any free one.
    ///
    /// **Errors**: the address cannot be used.
    pub fn tcp(
        address: SocketAddr,
        identity: &Identity,
        peers: &Peers,
        limits: ListenLimits,
        log: Log,
    ) -> Result<Listener, LinkError> {
        let wanted = Wanted::Paired(peers.clone(), Role::Controller);
        Listener::tcp_for(address, identity, Purpose::Link, wanted, limits, log)
    }

    pub(crate) fn tcp_for(
        address: SocketAddr,
        identity: &Identity,
        purpose: Purpose,
        wanted: Wanted,
        limits: ListenLimits,
        log: Log,
    ) -> Result<Listener, LinkError> {
        let doing = || format!("listen on {address}");
        let socket = TcpListener::bind(address).map_err(system(doing()))?;
        socket.set_nonblocking(true).map_err(system(doing()))?;
        let address = socket.local_addr().map_err(system(doing()))?;
        let secure = Secure { identity: identity.clone(), purpose, wanted };
        let mut listener = Listener::start(Socket::Tcp(socket, Arc::new(secure)), limits, log)?;
        listener.address = Some(address);
        Ok(listener)
    }

    /// Listens on a local socket for this user and root. A socket that nobody listens on any more
    /// is replaced; the socket goes with the listener.
    ///
    /// **Errors**: the path cannot be used, or somebody listens there.
    pub fn unix(path: &Path, limits: ListenLimits, log: Log) -> Result<Listener, LinkError> {
        let doing = || format!("listen on {}", path.display());
        let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
        if is_socket {
            // A listener that is busy, or not for us, answers with something else.
            match connect_local(path, AFTER_ERROR) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(system(doing()))?;
                }
                _ => {}
            }
        }
        let socket = UnixListener::bind(path).map_err(system(doing()))?;
        socket.set_nonblocking(true).map_err(system(doing()))?;
        let mut listener = Listener::start(Socket::Unix(socket), limits, log)?;
        listener.path = Some(path.to_owned());
        Ok(listener)
    }

    fn start(socket: Socket, limits: ListenLimits, log: Log) -> Result<Listener, LinkError> {
        let stop = Arc::new(Wake::new().map_err(system("make an event"))?);
        let (taken, links) = mpsc::channel();
        let gate = Arc::new(Gate::new(limits, log));
        let (wake, of_thread) = (Arc::clone(&stop), Arc::clone(&gate));
        let (tell, told) = mpsc::channel();
        let work = move || {
            // Neither this thread nor those of the handshakes have a use for any.
            let given_away = keep_capabilities(&[]);
            let is_ready = given_away.is_ok();
            // Who starts it waits for this.
            let _ = tell.send(given_away);
            if is_ready {
                serve(&socket, &of_thread, &taken, &wake);
            }
        };
        let thread = thread::Builder::new().name("listener".to_owned()).spawn(work);
        let thread = Some(thread.map_err(system("start a thread"))?);
        let given_away = told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
        given_away.map_err(system("give capabilities away before listening to strangers"))?;
        Ok(Listener { links, address: None, path: None, gate, stop, thread })
    }

    /// Writes of somebody who was refused later on into the log, as long as there is room for it.
    pub(crate) fn refuse(&self, peer: &str, why: &str) {
        self.gate.refuse(peer, why);
    }

    /// The next link whose other end has proven who it is, or `None` when the time is over.
    pub fn accept(&self, timeout: Duration) -> Option<Link> {
        self.links.recv_timeout(timeout).ok()
    }

    /// Where it listens; `None` for a local socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It cannot fail for an event that is set at most twice; the thread would stay.
        let _ = self.stop.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(path) = &self.path {
            // Somebody may have removed it.
            let _ = fs::remove_file(path);
        }
    }
}

enum Socket {
    Tcp(TcpListener, Arc<Secure>),
    Unix(UnixListener),
}

struct Secure {
    identity: Identity,
    purpose: Purpose,
    wanted: Wanted,
}

/// What the handshakes of a listener share.
#[derive(Debug)]
struct Gate {
    limits: ListenLimits,
    places: Arc<AtomicUsize>,
    /// Handshakes by address; those of local sockets by none.
    pending: Mutex<BTreeMap<Option<IpAddr>, usize>>,
    log: Mutex<Limited>,
}

impl Gate {
    fn new(limits: ListenLimits, log: Log) -> Gate {
        Gate {
            limits,
            places: Arc::new(AtomicUsize::new(0)),
            pending: Mutex::new(BTreeMap::new()),
            log: Mutex::new(Limited { log, since: Instant::now(), lines: 0, kept: 0 }),
        }
    }

    fn enter(self: &Arc<Gate>, from: Option<IpAddr>) -> Option<Pending> {
        let mut pending = lock(&self.pending);
        let sum: usize = pending.values().sum();
        let of_address = pending.get(&from).copied().unwrap_or_default();
        let most = self.limits.handshakes_of_address;
        if sum >= self.limits.handshakes || (from.is_some() && of_address >= most) {
            // Nothing is kept of who was refused: strangers have no end of addresses.
            return None;
        }
        pending.insert(from, of_address + 1);
        Some(Pending { gate: Arc::clone(self), from })
    }

    /// A place among the links, when one is free.
    fn place(&self) -> Option<LinkSlot> {
        let most = self.limits.links;
        let taken = self.places.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
            (taken < most).then_some(taken + 1)
        });
        taken.ok().map(|_| LinkSlot(Arc::clone(&self.places)))
    }

    fn refuse(&self, peer: &str, why: &str) {
        lock(&self.log).tell(Instant::now(), self.limits.log_lines, peer, why);
    }
}

/// One of the handshakes that go on.
struct Pending {
    gate: Arc<Gate>,
    from: Option<IpAddr>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut pending = lock(&self.gate.pending);
        if let Some(count) = pending.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                pending.remove(&self.from);
            }
        }
    }
}

/// One of the places for links.
#[derive(Debug)]
pub(crate) struct LinkSlot(Arc<AtomicUsize>);

impl Drop for LinkSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A log that strangers cannot fill.
struct Limited {
    log: Log,
    since: Instant,
    lines: u32,
    kept: u32,
}

impl fmt::Debug for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Limited")
    }
}

impl Limited {
    fn tell(&mut self, now: Instant, most: u32, peer: &str, why: &str) {
        if now.saturating_duration_since(self.since) >= LOG_PERIOD {
            if self.kept > 0 {
                (self.log)(&format!("{} more connections were refused", self.kept));
            }
            (self.since, self.lines, self.kept) = (now, 0, 0);
        }
        if self.lines < most {
            self.lines += 1;
            (self.log)(&format!("refused {peer}: {why}"));
        } else {
            self.kept = self.kept.saturating_add(1);
        }
    }
}

fn serve(socket: &Socket, gate: &Arc<Gate>, taken: &mpsc::Sender<Link>, stop: &Wake) {
    let fd = match socket {
        Socket::Tcp(socket, _) => socket.as_fd(),
        Socket::Unix(socket) => socket.as_fd(),
    };
    loop {
        if let Err(error) = event::wait_readable(&[fd, stop.as_fd()], None) {
            gate.refuse("all", &format!("cannot wait for connections: {error}"));
            thread::sleep(AFTER_ERROR);
        }
        if stop.clear() {
            return;
        }
        match socket {
            Socket::Tcp(socket, secure) => match socket.accept() {
                Ok((stream, from)) => begin_tcp(stream, from, secure, gate, taken),
                Err(error) => cannot_accept(gate, &error),
            },
            Socket::Unix(socket) => match socket.accept() {
                Ok((stream, _)) => begin_unix(stream, gate, taken),
                Err(error) => cannot_accept(gate, &error),
            },
        }
    }
}

fn cannot_accept(gate: &Gate, error: &io::Error) {
    let ours = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
    if !ours {
        gate.refuse("a connection", &error.to_string());
        // Such as no free descriptor: it would be reported again at once.
        if error.kind() != io::ErrorKind::ConnectionAborted {
            thread::sleep(AFTER_ERROR);
        }
    }
}

fn begin_tcp(
    stream: TcpStream,
    from: SocketAddr,
    secure: &Arc<Secure>,
    gate: &Arc<Gate>,
    taken: &mpsc::Sender<Link>,
) {
    let Some(pending) = gate.enter(Some(from.ip())) else {
        return gate.refuse(&from.to_string(), "too many handshakes go on");
    };
    let (secure, gate, taken) = (Arc::clone(secure), Arc::clone(gate), taken.clone());
    let of_thread = Arc::clone(&gate);
    let work = move || {
        let link = shake_hands(stream, from, &secure, &gate);
        finish(&gate, &from.to_string(), link, &taken, pending);
    };
    begin(work, &of_thread);
}

fn begin_unix(stream: UnixStream, gate: &Arc<Gate>, taken: &mpsc::Sender<Link>) {
    let peer = "a local process";
    let Some(pending) = gate.enter(None) else {
        return gate.refuse(peer, "too many handshakes go on");
    };
    let (gate, taken) = (Arc::clone(gate), taken.clone());
    let of_thread = Arc::clone(&gate);
    let work = move || {
        let place = gate.place();
        let full = place.is_none();
        let link = open_unix(stream, gate.limits.link, place);
        finish(&gate, peer, link.and_then(|link| refuse_if(full, link, &gate)), &taken, pending);
    };
    begin(work, &of_thread);
}

fn begin(work: impl FnOnce() + Send + 'static, gate: &Gate) {
    if let Err(error) = thread::Builder::new().name("handshake".to_owned()).spawn(work) {
        gate.refuse("a connection", &format!("cannot start a thread: {error}"));
    }
}

fn shake_hands(
    stream: TcpStream,
    from: SocketAddr,
    secure: &Secure,
    gate: &Gate,
) -> Result<Link, LinkError> {
    let end = Instant::now() + gate.limits.link.handshake;
    prepare(&stream)?;
    let Secure { identity, purpose, wanted } = secure;
    let session = tls::server(identity, *purpose, wanted.clone(), from.to_string());
    let found = match session.handshake(&stream, end) {
        Ok(found) => found,
        Err(error) => {
            if matches!(error, LinkError::NotPaired { .. }) {
                linger(&stream);
            }
            return Err(error);
        }
    };
    let place = gate.place();
    let full = place.is_none();
    let link = open_tls(stream, found, from, gate.limits.link, end, place)?;
    refuse_if(full, link, gate)
}

fn refuse_if(full: bool, link: Link, gate: &Gate) -> Result<Link, LinkError> {
    if !full {
        return Ok(link);
    }
    let reason = format!("this station has {} links, and takes no more", gate.limits.links);
    link.split().0.close(&reason);
    Err(LinkError::Protocol { what: reason })
}

/// Lets the last words arrive: closing a connection with something unread takes them back.
fn linger(mut stream: &TcpStream) {
    let end = Instant::now() + LINGER;
    let mut seen = 0;
    let mut buffer = [0; 4_096];
    if stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    while seen < LINGER_BYTES && wait_readable(stream.as_fd(), end).unwrap_or(false) {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => seen += count,
            _ => return,
        }
    }
}

fn finish(
    gate: &Gate,
    peer: &str,
    link: Result<Link, LinkError>,
    taken: &mpsc::Sender<Link>,
    pending: Pending,
) {
    drop(pending);
    match link {
        // Without a listener any more, the link ends with a goodbye.
        Ok(link) => drop(taken.send(link)),
        Err(error) => gate.refuse(peer, &error.to_string()),
    }
}

const LOG_PERIOD: Duration = Duration::from_secs(10);
const AFTER_ERROR: Duration = Duration::from_millis(50);
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_strangers_write_so_many_lines_and_no_more() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&lines);
        let log: Log = Arc::new(move |line| lock(&to).push(line.to_owned()));
        let start = Instant::now();
        let mut limited = Limited { log, since: start, lines: 0, kept: 0 };
        for _ in 0..1_000 {
            limited.tell(start, 3, "x", "y");
        }
        limited.tell(start + LOG_PERIOD, 3, "x", "y");
        let lines = lock(&lines);
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[3], "997 more connections were refused");
    }

    #[test]
    fn t0_nothing_is_kept_of_addresses_that_were_refused() {
        let limits = ListenLimits { handshakes: 3, handshakes_of_address: 2, ..Default::default() };
        let gate = Arc::new(Gate::new(limits, Arc::new(|_: &str| {})));
        let enter = |last: u128| gate.enter(Some(IpAddr::from(last.to_be_bytes())));
        let held: Vec<_> = [1, 1, 2].into_iter().map(|last| enter(last).unwrap()).collect();
        assert!((1..10_000).all(|last| enter(last).is_none()));
        assert_eq!(lock(&gate.pending).len(), 2);
        drop(held);
        assert!(lock(&gate.pending).is_empty());
    }
}
