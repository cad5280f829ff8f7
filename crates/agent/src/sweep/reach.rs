// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the agents of a hosts file are reached.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::links::{
    Identity, Link, LinkError, LinkLimits, Peers, connect_tcp, connect_unix, over_program,
};
use timewire_base::StationName;
use timewire_model::scenario::hosts_file::{AgentAddress, HostsFile};
use timewire_sys::namespace;

use crate::controller::Connect;
use timewire_datapath::DatapathError;

/// The stations of an experiment, with their addresses.
pub struct Reach {
    stations: BTreeMap<StationName, AgentAddress>,
    identity: Option<(Identity, Peers)>,
    keys: PathBuf,
    own_program: PathBuf,
    /// Where the agents of local stations keep what they know.
    agents: PathBuf,
    /// Whether the stations end with the experiment.
    are_disposable: bool,
}

/// The directory of this station's key, peers and agent.
pub fn own_agent_directory() -> PathBuf {
    Identity::default_directory()
}

impl Reach {
    /// The agents of these stations and observers, whose results go to `directory`; `keys` has
    /// this station's key and peers, and what the agents need that are started here.
    ///
    /// **Errors**: the file has not one of them; there is no such network namespace; this station
    /// has no key, and one is needed.
    pub fn new<'a>(
        names: impl IntoIterator<Item = &'a StationName>,
        hosts: &HostsFile,
        keys: &Path,
        own_program: PathBuf,
        directory: &Path,
    ) -> Result<Reach, DatapathError> {
        let mut stations = BTreeMap::new();
        for name in names {
            let agent = hosts.agent(name).ok_or_else(|| no_host(name))?;
            stations.insert(name.clone(), agent.clone());
        }
        let absent: Vec<String> = stations.iter().filter_map(no_namespace).collect();
        if !absent.is_empty() {
            return Err(DatapathError::Invalid(absent.join("; ")));
        }
        let needs_key = stations.values().any(|address| matches!(address, AgentAddress::Tls(_)));
        let identity = if needs_key {
            let identity = Identity::load(keys).map_err(|error| {
                DatapathError::Invalid(format!(
                    "{error}; `timewire agent pair HOST:PORT` makes one"
                ))
            })?;
            Some((identity, Peers::in_directory(keys)))
        } else {
            None
        };
        // A run may go on upon another machine, where what was done to this one means nothing.
        let boot =
            fs::read_to_string(BOOT).map_err(DatapathError::file("read", Path::new(BOOT)))?;
        let agents = directory.join("agents").join(boot.trim());
        let keys = keys.to_owned();
        Ok(Reach { stations, identity, keys, own_program, agents, are_disposable: false })
    }

    /// The same, of stations that were made for the experiment and end with it.
    pub fn disposable(self) -> Reach {
        Reach { are_disposable: true, ..self }
    }
}

/// What is wrong with a station in a network namespace that is not there.
fn no_namespace((station, address): (&StationName, &AgentAddress)) -> Option<String> {
    let AgentAddress::Netns(name) = address else { return None };
    let is_there = NAMESPACES.iter().any(|directory| Path::new(directory).join(name).exists());
    (!is_there).then(|| {
        format!("{station}: there is no network namespace `{name}`: `ip netns add {name}` makes it")
    })
}

/// Where `ip netns` has network namespaces.
const NAMESPACES: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// Differs from start to start of a machine, and from machine to machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// How far the clocks of talkers are from a listener's, at most: as `listen --clock-error`.
pub const CLOCK_ERROR: &str = "TIMEWIRE_CLOCK_ERROR";

/// Where what is changed of a host is recorded.
const STATE: &str = "TIMEWIRE_STATE_DIR";

/// A station that is in no hosts file.
pub(super) fn no_host(name: &StationName) -> DatapathError {
    DatapathError::Invalid(format!("the hosts file has no station `{name}`"))
}

impl Connect for Reach {
    fn starts_program(&self, station: &StationName) -> bool {
        matches!(
            self.stations.get(station),
            Some(AgentAddress::Ssh(_) | AgentAddress::Netns(_) | AgentAddress::Local)
        )
    }

    fn connect(&self, station: &StationName) -> Result<Link, LinkError> {
        let limits = LinkLimits {
            keep_alive: Duration::from_secs(2),
            silence: Duration::from_secs(8),
            ..LinkLimits::default()
        };
        let closed = |reason: &str| LinkError::Closed { reason: reason.to_owned() };
        match self.stations.get(station) {
            None => Err(closed("the hosts file has no such station")),
            Some(AgentAddress::Tls(address)) => match &self.identity {
                Some((identity, peers)) => connect_tcp(address, identity, peers, limits),
                None => Err(closed("this station has no key")),
            },
            Some(AgentAddress::Unix(path)) => connect_unix(path, limits),
            Some(AgentAddress::Ssh(host)) => {
                let mut ssh = Command::new("ssh");
                ssh.args(["-o", "BatchMode=yes", host, "timewire", "agent", "serve", "--stdio"]);
                over_program(ssh, limits)
            }
            Some(AgentAddress::Netns(name)) => {
                let mut ip = Command::new("ip");
                let directory = self.keys.join("netns").join(name);
                ip.args(["netns", "exec", name]).arg(&self.own_program);
                ip.args(["agent", "serve", "--stdio", "--dir"]).arg(directory);
                if self.are_disposable {
                    // Namespaces of one kernel share its clock, and cannot tell that they do.
                    ip.arg("--disposable").env(CLOCK_ERROR, "0ns");
                }
                over_program(ip, limits)
            }
            Some(AgentAddress::Local) => {
                let mut agent = Command::new(&self.own_program);
                agent.args(["agent", "serve", "--stdio", "--dir"]);
                let directory = self.agents.join(station.as_str());
                // Nodes of a cluster have no directory for an ordinary user's state.
                if namespace::effective_user() != 0 && env::var_os(STATE).is_none() {
                    agent.env(STATE, directory.join("state"));
                }
                agent.arg(directory);
                over_program(agent, limits)
            }
        }
    }
}
