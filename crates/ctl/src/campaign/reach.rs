// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the stations of a map are reached.
//!
//! Not here: the links themselves (`timewire_remote`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use timewire_base::StationName;
use timewire_remote::{
    Identity, Link, LinkLimits, Peers, RemoteError, connect_tcp, connect_unix, over_program,
};
use timewire_sched::scenario::experiment_file::{ExperimentFile, StationMap};

use crate::CtlError;
use crate::conductor::Connect;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Tls(String),
    Unix(PathBuf),
    Ssh(String),
    Netns(String),
}

/// The stations of an experiment, with their addresses.
pub struct Reach {
    stations: BTreeMap<StationName, Address>,
    identity: Option<(Identity, Peers)>,
    keys: PathBuf,
    own_program: PathBuf,
}

/// The directory of this station's key, peers and agent.
pub fn own_agent_directory() -> PathBuf {
    Identity::default_directory()
}

impl Reach {
    /// The addresses of all stations of the experiment; `keys` has this station's key and peers,
    /// and what the agents need that are started here.
    ///
    /// **Errors**: a station has none, or one that is no address; this station has no key, and one
    /// is needed.
    pub fn new(
        file: &ExperimentFile,
        map: &StationMap,
        keys: &Path,
        own_program: PathBuf,
    ) -> Result<Reach, CtlError> {
        let mut stations = BTreeMap::new();
        for station in &file.stations {
            let text = map.address(&station.name).ok_or_else(|| {
                CtlError::Invalid(format!("the map has no station `{}`", station.name))
            })?;
            let address = parse(text).ok_or_else(|| {
                CtlError::Invalid(format!(
                    "station `{}`: `{text}` is no address: tls://HOST:PORT, unix:/PATH, \
                     ssh://[USER@]HOST or netns:NAME",
                    station.name
                ))
            })?;
            stations.insert(station.name.clone(), address);
        }
        let needs_key = stations.values().any(|address| matches!(address, Address::Tls(_)));
        let identity = if needs_key {
            let identity = Identity::load(keys).map_err(|e| CtlError::Invalid(e.to_string()))?;
            Some((identity, Peers::in_directory(keys)))
        } else {
            None
        };
        Ok(Reach { stations, identity, keys: keys.to_owned(), own_program })
    }
}

/// `None` for what is no address.
fn parse(text: &str) -> Option<Address> {
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
                over_program(ip, limits)
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
        for bad in ["h", "tls:h:1", "tls://h", "unix:x", "ssh://-oProxyCommand=x", "ssh://", "x:y"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
