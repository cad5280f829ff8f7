// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire agent serve`: the agent of this station.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use timewire_agent::links::{
    Announcement, Announcer, Identity, LinkError, LinkLimits, ListenLimits, Listener, Log, Peers,
    over_stdio,
};
use timewire_agent::station::{AgentHandle, AgentOptions, AgentService};
use timewire_base::Span;
use timewire_sys::event::{EndRequests, wait_readable};

use super::Keys;
use crate::traffic::parse_socket;

#[derive(Debug, Args)]
pub struct Serve {
    /// Where controllers connect that this station was paired with [default: port 28411 on all
    /// addresses, without --socket and --stdio]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket)]
    pub listen: Option<SocketAddr>,
    /// Take controllers of this user and root on a local socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Serve the one controller at stdin and stdout, and end with it
    #[arg(long, conflicts_with_all = ["listen", "socket"])]
    pub stdio: bool,
    /// This station ends with its experiment: what is changed without a record to undo it is not
    /// looked for
    #[arg(long, hide = true)]
    pub disposable: bool,
    #[command(flatten)]
    pub keys: Keys,
}

/// Serves until it is asked to end; the host is restored then.
pub fn run(args: &Serve) -> anyhow::Result<ExitCode> {
    // Before any thread: all of them leave the signals to us.
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let keys = args.keys.directory();
    match Identity::check_directory(&keys) {
        Err(LinkError::System { source, .. }) if source.kind() == ErrorKind::NotFound => {}
        other => other?,
    }
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let options =
        AgentOptions { directory: keys.join("work"), program, is_disposable: args.disposable };
    crate::apply::recover()?;
    let notes = Arc::new(Mutex::new(Notes::default()));
    let log: Log = Arc::new(move |line: &str| {
        let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = notes.tell(Instant::now(), line) {
            say!("note: {line}");
        }
    });
    let service = AgentService::open(options, Arc::clone(&log))?;
    let handle = service.handle();
    let mut announcer = None;
    if args.stdio {
        let limits = LinkLimits {
            keep_alive: Duration::from_secs(2),
            silence: Duration::from_secs(8),
            ..LinkLimits::default()
        };
        handle.take(over_stdio(limits)?);
    } else {
        let (listeners, announced) = listeners(args, &keys, &log)?;
        announcer = announced;
        for listener in listeners {
            let handle = handle.clone();
            let log = Arc::clone(&log);
            let work = move || accept(&listener, &handle, &log);
            thread::Builder::new().name("accept".to_owned()).spawn(work)?;
        }
    }
    let ender = move || {
        while !requests.take() {
            // An error is a signal's doing; it is looked at anyway.
            let _ = wait_readable(&[requests.as_fd()], Some(Span::from_secs(1)));
        }
        handle.end();
    };
    thread::Builder::new().name("signals".to_owned()).spawn(ender)?;
    let left = service.run(args.stdio)?;
    drop(announcer);
    if left.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say!("error: this host is left changed: {}", left.join("; "));
    Ok(ExitCode::from(3))
}

fn accept(listener: &Listener, handle: &AgentHandle, log: &Log) {
    loop {
        if let Some(link) = listener.accept(Duration::from_secs(1)) {
            log(&format!("link of {}", link.peer()));
            handle.take(link);
        }
    }
}

fn listeners(
    args: &Serve,
    keys: &Path,
    log: &Log,
) -> anyhow::Result<(Vec<Listener>, Option<Announcer>)> {
    // A controller takes eight seconds of silence for the end of a link: also where a sign of life
    // is lost twice and a round trip is a second, it hears one before.
    let link = LinkLimits { keep_alive: Duration::from_secs(2), ..LinkLimits::default() };
    let limits = ListenLimits { link, ..ListenLimits::default() };
    let (mut listeners, mut announcer) = (Vec::new(), None);
    if let Some(path) = &args.socket {
        listeners.push(Listener::unix(path, limits, Arc::clone(log))?);
        say!("note: serving on {}", path.display());
    }
    if args.listen.is_some() || args.socket.is_none() {
        let identity = Identity::load_or_create(keys)?;
        let peers = Peers::in_directory(keys);
        let at = |address| Listener::tcp(address, &identity, &peers, limits, Arc::clone(log));
        let listener = match args.listen {
            Some(address) => at(address)?,
            None => match at((IpAddr::from(Ipv6Addr::UNSPECIFIED), PORT).into()) {
                // A host without IPv6.
                Err(LinkError::System { source, .. }) if source.kind() != ErrorKind::AddrInUse => {
                    at((IpAddr::from(Ipv4Addr::UNSPECIFIED), PORT).into())?
                }
                other => other?,
            },
        };
        let address = listener.address().map_or_else(String::new, |at| at.to_string());
        say!("note: serving on {address}");
        if let Some(address) = listener.address() {
            announcer = announce(&identity, address.port());
        }
        listeners.push(listener);
    }
    Ok((listeners, announcer))
}

/// Tells the links of this host that there is an agent; without IPv6 it is found by its address.
fn announce(identity: &Identity, port: u16) -> Option<Announcer> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let announcement = Announcement {
        name: name.trim().to_owned(),
        port,
        fingerprint: identity.fingerprint(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
    };
    match Announcer::start(&announcement) {
        Ok(announcer) => Some(announcer),
        Err(error) => {
            say!("note: not announced: {error}");
            None
        }
    }
}

/// Lines of the log: who comes again and again has one in ten seconds, with how many were left out.
#[derive(Debug, Default)]
struct Notes(BTreeMap<String, (Instant, u32)>);

impl Notes {
    /// The line, if it is to be written now.
    fn tell(&mut self, now: Instant, line: &str) -> Option<String> {
        self.0.retain(|_, (at, left_out)| *left_out > 0 || now.duration_since(*at) < QUIET);
        let key = without_numbers(line);
        if let Some((at, left_out)) = self.0.get_mut(&key) {
            if now.duration_since(*at) < QUIET {
                *left_out += 1;
                return None;
            }
            let count = std::mem::take(left_out);
            *at = now;
            return Some(format!("{line} ({count} times more since it was said last)"));
        }
        if self.0.len() < MAX_NOTES {
            self.0.insert(key, (now, 0));
        }
        Some(line.to_owned())
    }
}

/// A line without what differs from link to link: ports and numbers of processes.
fn without_numbers(line: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let stable = |word: &str| {
        let bare = word.trim_end_matches([':', ',', ';']);
        match bare.rsplit_once(':') {
            Some((host, port)) if is_number(port) => host.to_owned(),
            _ if is_number(bare) => String::new(),
            _ => word.to_owned(),
        }
    };
    line.split(' ').map(stable).collect::<Vec<_>>().join(" ")
}

const QUIET: Duration = Duration::from_secs(10);
/// So many lines are remembered.
const MAX_NOTES: usize = 256;

/// Where agents are; they are paired on the port after it.
const PORT: u16 = 28_411;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_line_that_comes_again_and_again_is_written_once_in_ten_seconds() {
        let (mut notes, start) = (Notes::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let told: Vec<String> =
            (0..2_400).filter_map(|n| notes.tell(at(n * 10), &format!("link of x:{n}"))).collect();
        let again = |n| format!("link of x:{n} (999 times more since it was said last)");
        assert_eq!(told, ["link of x:0".to_owned(), again(1_000), again(2_000)]);
        assert_eq!(notes.tell(at(24_000), "link of y").as_deref(), Some("link of y"));
        // Whoever makes up lines fills no memory.
        (0..10_000).for_each(|n| drop(notes.tell(at(25_000), &format!("link of h{n}"))));
        assert!(notes.0.len() <= MAX_NOTES);
    }
}
