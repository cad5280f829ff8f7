// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pair of stations for measurements without hardware: two namespaces with a veth pair between
//! them, on this kernel, with one clock.
//!
//! ```text
//! twbench-PID-N-a  eth0 ------ eth0  twbench-PID-N-b
//! 10.78.0.1 fd78::1                  10.78.0.2 fd78::2
//! ```
//!
//! Nothing speaks on it unasked: neighbours are known, and IPv6 has only what it is asked for. What
//! takes it down is on disk before it is there, and a watchdog does that when its owner is killed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use timewire_base::IfName;
use timewire_base::wire::MacAddress;
use timewire_host::journal::Journal;
use timewire_host::tool::{self, Tool, netns_path};
use timewire_lab::{LabError, Namespaces, clean_leftovers, ns};
use timewire_sys::namespace::{self, Namespace, OnParentDeath};

/// One of the two stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The first, which sends.
    A,
    /// The second, which receives.
    B,
}

impl End {
    fn letter(self) -> &'static str {
        match self {
            End::A => "a",
            End::B => "b",
        }
    }

    fn number(self) -> u8 {
        match self {
            End::A => 1,
            End::B => 2,
        }
    }
}

/// What a pair is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairSpec {
    /// Transmit and receive queues of both interfaces, 1 to 64.
    pub queues: u32,
    /// Whether it has IPv6 as well.
    pub ipv6: bool,
}

/// Two stations on a cable. Dropping it takes it down.
#[derive(Debug)]
pub struct Pair {
    prefix: String,
    namespaces: Namespaces,
    ipv6: bool,
}

impl Pair {
    /// Makes one; first takes away what dead processes have left. `progress` is told what that was.
    ///
    /// **Errors**: a missing tool or privilege, or the kernel refuses. Nothing is left then.
    pub fn create(spec: PairSpec, progress: &mut dyn FnMut(&str)) -> Result<Pair, LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !(1..=MAX_QUEUES).contains(&spec.queues) {
            let why = format!("{} queues are not 1 to {MAX_QUEUES}", spec.queues);
            return Err(LabError::Spec { why });
        }
        for leftovers in clean_leftovers()? {
            progress(&leftovers.to_string());
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("twbench-{}-{count}", std::process::id());
        let names = [End::A, End::B].map(|end| netns_of(&prefix, end));
        let title = "pair of stations for a measurement";
        let namespaces = Namespaces::make(title, &names, spec.ipv6)?;
        let pair = Pair { prefix, namespaces, ipv6: spec.ipv6 };
        pair.make(spec)?;
        Ok(pair)
    }

    /// Takes it down.
    ///
    /// **Errors**: something could not be undone; the journal names it and stays.
    pub fn destroy(mut self) -> Result<(), LabError> {
        self.namespaces.take_down()
    }

    /// The file that is the namespace of a station.
    pub fn netns(&self, end: End) -> PathBuf {
        netns_path(&self.netns_name(end))
    }

    /// The name of the namespace of a station, as `ip netns` knows it.
    pub fn netns_name(&self, end: End) -> String {
        netns_of(&self.prefix, end)
    }

    /// The interface of either station, in its namespace.
    pub fn interface(&self) -> IfName {
        IfName::new("eth0").expect("invariant: our interface name is short and plain")
    }

    /// The Ethernet address of a station.
    pub fn mac(&self, end: End) -> MacAddress {
        MacAddress([0x02, 0x54, 0x57, 0x42, 0x00, end.number()])
    }

    /// The IPv4 address of a station.
    pub fn ipv4(&self, end: End) -> IpAddr {
        Ipv4Addr::new(10, 78, 0, end.number()).into()
    }

    /// The IPv6 address of a station; `None` when the pair has none.
    pub fn ipv6(&self, end: End) -> Option<IpAddr> {
        let address = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, end.number().into());
        self.ipv6.then_some(address.into())
    }

    /// Runs a closure on a thread of its own at a station; sockets it opens stay there.
    ///
    /// **Errors**: the namespace cannot be entered.
    pub fn inside<T: Send>(
        &self,
        end: End,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, LabError> {
        ns::in_namespace(&self.netns(end), work)
    }

    /// As [`Pair::inside`], with a `/sys` that shows the station's interfaces, as changes of their
    /// settings and tools need it. So do threads and programs that the closure starts.
    ///
    /// **Errors**: namespace or mount are refused.
    pub fn at<T: Send>(&self, end: End, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let failed = |source| {
            let what = format!("mount /sys of {}", self.netns_name(end));
            LabError::Namespace { what, source }
        };
        self.inside(end, || {
            namespace::unshare(&[Namespace::Mount]).map_err(failed)?;
            namespace::make_mounts_private().map_err(failed)?;
            namespace::mount_sysfs(Path::new("/sys")).map_err(failed)?;
            Ok(work())
        })?
    }

    /// Starts a program at a station; it dies with the calling thread.
    ///
    /// **Errors**: it cannot be started.
    pub fn spawn(&self, end: End, command: Command) -> Result<Child, LabError> {
        ns::spawn(&self.netns(end), command, OnParentDeath::Kill)
    }

    /// The undo journal, for what else is to be undone when the owner of the pair ends.
    pub fn journal(&self) -> &Arc<Journal> {
        self.namespaces.journal()
    }

    fn make(&self, spec: PairSpec) -> Result<(), LabError> {
        let (a, b) = (self.netns_name(End::A), self.netns_name(End::B));
        let queues = format!("numtxqueues {0} numrxqueues {0}", spec.queues);
        let half = |end: End| format!("address {} {queues}", self.mac(end));
        let link = format!(
            "link add eth0 {} type veth peer name eth0 netns {b} {}",
            half(End::A),
            half(End::B)
        );
        tool::batch(Tool::Ip, Some(&a), &[link])?;
        for (end, other) in [(End::A, End::B), (End::B, End::A)] {
            tool::batch(Tool::Ip, Some(&self.netns_name(end)), &self.station_lines(end, other))?;
        }
        self.wait_for_link()
    }

    fn station_lines(&self, end: End, other: End) -> Vec<String> {
        let mac = self.mac(other);
        let mut lines = vec![
            "link set lo up".to_owned(),
            "link set eth0 up".to_owned(),
            format!("addr add {}/24 dev eth0", self.ipv4(end)),
            format!("neigh add {} lladdr {mac} dev eth0 nud permanent", self.ipv4(other)),
        ];
        if let (Some(own), Some(other)) = (self.ipv6(end), self.ipv6(other)) {
            lines.push(format!("addr add {own}/64 dev eth0 nodad"));
            lines.push(format!("neigh add {other} lladdr {mac} dev eth0 nud permanent"));
        }
        lines
    }

    fn wait_for_link(&self) -> Result<(), LabError> {
        let deadline = Instant::now() + UP_WITHIN;
        for end in [End::A, End::B] {
            let name = self.netns_name(end);
            let state = ["-n", &name, "-o", "link", "show", "eth0"];
            while !tool::run(Tool::Ip, &state)?.contains(" state UP ") {
                if Instant::now() > deadline {
                    return Err(LabError::NotReady { waiting: format!("eth0 of {name}") });
                }
                thread::sleep(ASK_EVERY);
            }
        }
        Ok(())
    }
}

fn netns_of(prefix: &str, end: End) -> String {
    format!("{prefix}-{}", end.letter())
}

const MAX_QUEUES: u32 = 64;
const UP_WITHIN: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(2);
