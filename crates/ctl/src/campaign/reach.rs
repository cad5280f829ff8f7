// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the stations of a map are reached.
//!
//! Not here: the links themselves (`timewire_remote`).

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use timewire_base::StationName;
use timewire_remote::{
    Identity, Link, LinkLimits, Peers, RemoteError, connect_tcp, connect_unix, over_program,
};
use timewire_sched::scenario::experiment_file::{ExperimentFile, StationMap};
use timewire_sys::namespace;

use crate::CtlError;
use crate::conductor::Connect;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Tls(String),
    Unix(PathBuf),
    Ssh(String),
    Netns(String),
    /// This machine, with an agent for the time of the run.
    Local,
}

/// The stations of an experiment, with their addresses.
pub struct Reach {
    stations: BTreeMap<StationName, Address>,
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
    /// The addresses of all stations of the experiment, whose results go to `directory`; `keys` has
    /// this station's key and peers, and what the agents need that are started here.
    ///
    /// **Errors**: a station has none, or one that is no address; this station has no key, and one
    /// is needed.
    pub fn new(
        file: &ExperimentFile,
        map: &StationMap,
        keys: &Path,
        own_program: PathBuf,
        directory: &Path,
    ) -> Result<Reach, CtlError> {
        let mut stations = BTreeMap::new();
        for station in &file.stations {
            let text = map.address(&station.name).ok_or_else(|| {
                CtlError::Invalid(format!("the map has no station `{}`", station.name))
            })?;
            let address = parse(text).ok_or_else(|| {
                CtlError::Invalid(format!(
                    "station `{}`: `{text}` is no address: tls://HOST:PORT, unix:/PATH, \
                     ssh://[USER@]HOST, netns:NAME or local",
                    station.name
                ))
            })?;
            stations.insert(station.name.clone(), address);
        }
        let needs_key = stations.values().any(|address| matches!(address, Address::Tls(_)));
        let identity = if needs_key {
            let identity = Identity::load(keys).map_err(|error| {
                CtlError::Invalid(format!("{error}; `timewire agent pair HOST:PORT` makes one"))
            })?;
            Some((identity, Peers::in_directory(keys)))
        } else {
            None
        };
        // A run may go on upon another machine, where what was done to this one means nothing.
        let boot = fs::read_to_string(BOOT).map_err(CtlError::file("read", Path::new(BOOT)))?;
        let agents = directory.join("agents").join(boot.trim());
        let keys = keys.to_owned();
        Ok(Reach { stations, identity, keys, own_program, agents, are_disposable: false })
    }

    /// The same, of stations that were made for the experiment and end with it.
    pub fn disposable(self) -> Reach {
        Reach { are_disposable: true, ..self }
    }
}

/// Differs from start to start of a machine, and from machine to machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// How far the clocks of talkers are from a listener's, at most: as `listen --clock-error`.
pub const CLOCK_ERROR: &str = "TIMEWIRE_CLOCK_ERROR";

/// Where what is changed of a host is recorded.
const STATE: &str = "TIMEWIRE_STATE_DIR";

/// `None` for what is no address.
fn parse(text: &str) -> Option<Address> {
    if text == "local" {
        return Some(Address::Local);
    }
    let (kind, rest) = text.split_once(':')?;
    let rest = match kind {
        "tls" | "ssh" => rest.strip_prefix("//")?,
        _ => rest,
    };
    // A word that begins so would be an option of the program that it is given to.
    if rest.is_empty() || rest.starts_with('-') || rest.contains(char::is_whitespace) {
        return None;
    }
    match kind {
        "tls" => rest.contains(':').then(|| Address::Tls(rest.to_owned())),
        "unix" => rest.starts_with('/').then(|| Address::Unix(PathBuf::from(rest))),
        "ssh" => Some(Address::Ssh(rest.to_owned())),
        "netns" => (!rest.contains('/')).then(|| Address::Netns(rest.to_owned())),
        _ => None,
    }
}

impl Connect for Reach {
    fn starts_program(&self, station: &StationName) -> bool {
        matches!(
            self.stations.get(station),
            Some(Address::Ssh(_) | Address::Netns(_) | Address::Local)
        )
    }

    fn connect(&self, station: &StationName) -> Result<Link, RemoteError> {
        let limits = LinkLimits {
            keep_alive: Duration::from_secs(2),
            silence: Duration::from_secs(8),
            ..LinkLimits::default()
        };
        let closed = |reason: &str| RemoteError::Closed { reason: reason.to_owned() };
        match self.stations.get(station) {
            None => Err(closed("the map has no such station")),
            Some(Address::Tls(address)) => match &self.identity {
                Some((identity, peers)) => connect_tcp(address, identity, peers, limits),
                None => Err(closed("this station has no key")),
            },
            Some(Address::Unix(path)) => connect_unix(path, limits),
            Some(Address::Ssh(host)) => {
                let mut ssh = Command::new("ssh");
                ssh.args(["-o", "BatchMode=yes", host, "timewire", "agent", "serve", "--stdio"]);
                over_program(ssh, limits)
            }
            Some(Address::Netns(name)) => {
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
            Some(Address::Local) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_addresses_are_read_and_options_are_none() {
        assert_eq!(parse("tls://h:28411"), Some(Address::Tls("h:28411".to_owned())));
        assert_eq!(parse("unix:/run/a"), Some(Address::Unix(PathBuf::from("/run/a"))));
        assert_eq!(parse("ssh://root@h"), Some(Address::Ssh("root@h".to_owned())));
        assert_eq!(parse("netns:a"), Some(Address::Netns("a".to_owned())));
        assert_eq!(parse("local"), Some(Address::Local));
        for bad in
            ["h", "tls:h:1", "tls://h", "unix:x", "ssh://-oProxyCommand=x", "ssh://", "local:"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
