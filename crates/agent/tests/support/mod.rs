// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests of links share: directories, paired stations, a log, seeded numbers.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test that asked")]

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use timewire_agent::links::{
    Identity, Link, LinkError, LinkLimits, ListenLimits, Listener, Log, Peers, Role, connect_tcp,
};
use timewire_base::Sequence;

/// A directory for its user alone, gone with the value.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Scratch {
        let owner = Permissions::from_mode(0o700);
        Scratch(tempfile::Builder::new().permissions(owner).tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A station with keys and peers of its own.
pub struct Station {
    _directory: Scratch,
    pub identity: Identity,
    pub peers: Peers,
}

impl Station {
    pub fn new() -> Station {
        let directory = Scratch::new();
        let identity = Identity::load_or_create(directory.path()).unwrap();
        let peers = Peers::in_directory(directory.path());
        Station { _directory: directory, identity, peers }
    }

    pub fn connect(&self, to: SocketAddr) -> Result<Link, LinkError> {
        connect_tcp(&to.to_string(), &self.identity, &self.peers, LinkLimits::default())
    }
}

/// An agent and a controller that know each other.
pub fn paired() -> (Station, Station) {
    let (agent, controller) = (Station::new(), Station::new());
    agent.peers.add(Role::Controller, "desk", controller.identity.fingerprint()).unwrap();
    controller.peers.add(Role::Agent, "st1", agent.identity.fingerprint()).unwrap();
    (agent, controller)
}

/// The lines of a log.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    pub fn log(&self) -> Log {
        let lines = Arc::clone(&self.0);
        Arc::new(move |line| lines.lock().unwrap().push(line.to_owned()))
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits for so many lines.
    pub fn wait_for_count(&self, count: usize) {
        for _ in 0..2_000 {
            if self.all().len() == count {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("not {count}: {:#?}", self.all());
    }

    /// Waits for a line with this in it.
    pub fn wait_for(&self, part: &str) -> String {
        for _ in 0..2_000 {
            if let Some(line) = self.all().into_iter().find(|line| line.contains(part)) {
                return line;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no `{part}` in {:?}", self.all());
    }
}

/// Limits that log everything.
pub fn talkative() -> ListenLimits {
    ListenLimits { log_lines: u32::MAX, ..ListenLimits::default() }
}

pub fn listen(agent: &Station, at: &str, limits: ListenLimits, lines: &Lines) -> Listener {
    let at = at.parse().unwrap();
    Listener::tcp(at, &agent.identity, &agent.peers, limits, lines.log()).unwrap()
}

pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Takes the next link and has it answer one message, while the other end asks.
pub fn serves(listener: &Listener, connect: impl FnOnce() -> Result<Link, LinkError> + Send) {
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut link = connect().unwrap();
            link.send(b"ask").unwrap();
            link.receive(TIMEOUT).unwrap()
        });
        let mut link = listener.accept(TIMEOUT).expect("a link");
        assert_eq!(link.receive(TIMEOUT).unwrap().unwrap(), b"ask");
        link.send(b"answer").unwrap();
        assert_eq!(asking.join().unwrap().unwrap(), b"answer");
    });
}

/// Numbers that look random and are the same in every run.
pub struct Numbers(Sequence);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(Sequence::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
