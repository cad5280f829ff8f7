// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hosts file: where the stations of a network are. For each its agent, and its interface on
//! the network; beside them hosts that observe a shared segment and take no part.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use timewire_base::{IfName, Span, StationName};

use super::ScenarioErrors;
use super::item::{Item, Reader};
use super::record::{choice, record};
use super::tree::{self, Node};
use super::value::FormatVersion;

choice! {
    /// Which kind of file this is.
    pub enum HostsKind {
        /// Where the stations of a network are.
        Hosts = "hosts",
    }
}

record! {
    /// Where the stations of a network are.
    pub struct HostsFile {
        /// Version of this file format.
        timewire: FormatVersion,
        /// Which kind of file this is.
        kind: HostsKind,
        /// How the clocks of the stations are kept together.
        clock: HostsClock = "synchronised",
        /// With `clock: synchronised`: the largest error that a station's kernel may report.
        max_clock_error: Span = "100us",
        /// The stations.
        stations: Vec<HostSpec>,
        /// Hosts that hear the shared segment, and time each of its frames.
        observers: Vec<ObserverSpec> = "[]",
    }
}

choice! {
    /// How the clocks of the stations are kept together.
    pub enum HostsClock {
        /// A daemon keeps the clock of each host synchronised; a station whose clock is not is
        /// silent.
        Synchronised = "synchronised",
        /// `timewire clock` says when the clock of a host is synchronised; until then its station
        /// is silent.
        Watched = "watched",
        /// All stations share the clock of one kernel, as network namespaces do.
        OneHost = "one-host",
    }
}

record! {
    /// Where a station is.
    pub struct HostSpec {
        /// Its name.
        name: StationName,
        /// How its agent is reached: tls://HOST:PORT, ssh://[USER@]HOST, unix:/PATH, netns:NAME, or
        /// `local` for this host.
        agent: AgentAddress,
        /// Its interface on the network.
        interface: Option<IfName>,
        /// Of a host with several links, as a bridge has: which interface is at which.
        links: Vec<HostLink> = "[]",
    }
}

record! {
    /// A link of a host.
    pub struct HostLink {
        /// The station or bridge at its other end.
        to: StationName,
        /// The interface.
        interface: IfName,
    }
}

record! {
    /// A host that observes a shared segment.
    pub struct ObserverSpec {
        /// Its name.
        name: StationName,
        /// How its agent is reached, as that of a station.
        agent: AgentAddress,
        /// Its interfaces at which the frames of the segment arrive, each frame at one of them: one
        /// at a hub or at the mirror port of a switch, or the ports of a bridge.
        interfaces: Vec<IfName>,
    }
}

/// How an agent is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAddress {
    /// An agent that listens at `HOST:PORT`, paired.
    Tls(String),
    /// An agent of this host that listens at a socket.
    Unix(PathBuf),
    /// An agent that is started through SSH.
    Ssh(String),
    /// An agent that is started in a network namespace of this host.
    Netns(String),
    /// An agent that is started on this host.
    Local,
}

impl AgentAddress {
    fn parse(text: &str) -> Result<AgentAddress, String> {
        AgentAddress::read_text(text).ok_or_else(|| {
            format!(
                "`{text}` is no address of an agent: tls://HOST:PORT, ssh://[USER@]HOST, \
                 unix:/PATH, netns:NAME or local"
            )
        })
    }

    fn read_text(text: &str) -> Option<AgentAddress> {
        if text == "local" {
            return Some(AgentAddress::Local);
        }
        let (kind, rest) = text.split_once(':')?;
        let rest = match kind {
            "tls" | "ssh" => rest.strip_prefix("//")?,
            _ => rest,
        };
        // A word that begins so would be an option of the program that it is given to.
        let unfit = |c: char| c.is_whitespace() || c.is_control();
        if rest.is_empty() || rest.starts_with('-') || rest.contains(unfit) {
            return None;
        }
        match kind {
            "tls" => rest.contains(':').then(|| AgentAddress::Tls(rest.to_owned())),
            "unix" => rest.starts_with('/').then(|| AgentAddress::Unix(PathBuf::from(rest))),
            "ssh" => Some(AgentAddress::Ssh(rest.to_owned())),
            "netns" => (!rest.contains('/')).then(|| AgentAddress::Netns(rest.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentAddress::Tls(at) => write!(f, "tls://{at}"),
            AgentAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            AgentAddress::Ssh(host) => write!(f, "ssh://{host}"),
            AgentAddress::Netns(name) => write!(f, "netns:{name}"),
            AgentAddress::Local => f.write_str("local"),
        }
    }
}

impl Item for AgentAddress {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "the address of an agent", "", AgentAddress::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^(local|(tls|ssh)://.+|unix:/.+|netns:[^/]+)$"})
    }
}

impl HostsFile {
    /// Reads and checks a file; `file_name` is for the messages.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place.
    pub fn parse(file_name: &str, text: &str) -> Result<HostsFile, ScenarioErrors> {
        let failed = |problems| ScenarioErrors::new(file_name, text, problems);
        let root = tree::parse(text).map_err(failed)?;
        let mut reader = Reader::new(root.mark);
        let file = HostsFile::read(&root, &mut reader);
        if let Some(file) = &file {
            file.check(&mut reader);
        }
        match file {
            Some(file) if reader.problems.is_empty() => Ok(file),
            _ => Err(failed(reader.problems)),
        }
    }

    /// The file without observers; this one of them, if it is one, as a station without links.
    pub fn with_station(&self, name: &StationName) -> HostsFile {
        let mut file = HostsFile { observers: Vec::new(), ..self.clone() };
        if let Some(it) = self.observers.iter().find(|it| it.name == *name) {
            let (name, agent) = (it.name.clone(), it.agent.clone());
            file.stations.push(HostSpec { name, agent, interface: None, links: Vec::new() });
        }
        file
    }

    fn check(&self, reader: &mut Reader) {
        if self.stations.is_empty() {
            reader.fail_at("stations", "there is no station".into(), "name at least one");
        }
        let stations = self.stations.iter().enumerate();
        let stations = stations.map(|(i, station)| (format!("stations[{i}]"), &station.name));
        let observers = self.observers.iter().enumerate();
        let observers = observers.map(|(i, observer)| (format!("observers[{i}]"), &observer.name));
        let mut names = BTreeSet::new();
        for (at, name) in stations.chain(observers) {
            if !names.insert(name) {
                let message = format!("there are two hosts `{name}`");
                reader.fail_at(&format!("{at}.name"), message, "give each its own name");
            }
        }
        self.check_agents(reader);
        for (i, station) in self.stations.iter().enumerate() {
            let (mut ends, mut interfaces) = (BTreeSet::new(), BTreeSet::new());
            for (j, link) in station.links.iter().enumerate() {
                let at = format!("stations[{i}].links[{j}]");
                if !ends.insert(&link.to) {
                    let message = format!("there are two links to `{}`", link.to);
                    reader.fail_at(&format!("{at}.to"), message, "two hosts have one link");
                }
                if !interfaces.insert(&link.interface) {
                    let message = format!("`{}` is at two links", link.interface);
                    let hint = "give each link its own interface";
                    reader.fail_at(&format!("{at}.interface"), message, hint);
                }
            }
        }
        for (i, observer) in self.observers.iter().enumerate() {
            let at = format!("observers[{i}].interfaces");
            if observer.interfaces.is_empty() {
                let message = "it observes no interface".to_owned();
                reader.fail_at(&at, message, "name at least one");
            }
            let mut interfaces = BTreeSet::new();
            for interface in observer.interfaces.iter().filter(|it| !interfaces.insert(*it)) {
                let message = format!("`{interface}` is there twice: its frames would count twice");
                reader.fail_at(&at, message, "name each interface once");
            }
        }
    }

    /// An agent takes part for one host at a time. `local` is a new agent for each.
    fn check_agents(&self, reader: &mut Reader) {
        let stations = self.stations.iter().enumerate();
        let stations = stations.map(|(i, it)| (format!("stations[{i}]"), &it.agent));
        let observers = self.observers.iter().enumerate();
        let observers = observers.map(|(i, it)| (format!("observers[{i}]"), &it.agent));
        let mut agents = Vec::new();
        for (at, agent) in stations.chain(observers).filter(|it| *it.1 != AgentAddress::Local) {
            if agents.contains(&agent) {
                let message = format!("`{agent}` is the agent of two hosts");
                reader.fail_at(&format!("{at}.agent"), message, "give each host its own agent");
            }
            agents.push(agent);
        }
    }

    /// The text of a file with these stations.
    pub fn text_of<'a>(
        stations: impl IntoIterator<Item = (&'a StationName, &'a AgentAddress)>,
    ) -> String {
        let head = "timewire: 1\nkind: hosts\nstations:\n".to_owned();
        stations.into_iter().fold(head, |text, (name, agent)| {
            text + &format!("  - {{ name: {name}, agent: {} }}\n", json!(agent.to_string()))
        })
    }

    /// How the agent of a station or observer is reached.
    pub fn agent(&self, name: &StationName) -> Option<&AgentAddress> {
        let stations = self.stations.iter().map(|it| (&it.name, &it.agent));
        let mut all = stations.chain(self.observers.iter().map(|it| (&it.name, &it.agent)));
        all.find(|(known, _)| *known == name).map(|(_, agent)| agent)
    }

    /// The interface of a station at its link to another: the one that `links` names, or else its
    /// only one.
    pub fn interface(&self, station: &StationName, to: &StationName) -> Option<&IfName> {
        let station = self.station(station)?;
        let link = station.links.iter().find(|link| link.to == *to);
        let only = station.interface.as_ref().filter(|_| station.links.is_empty());
        link.map(|link| &link.interface).or(only)
    }

    /// Where a station is.
    pub fn station(&self, name: &StationName) -> Option<&HostSpec> {
        self.stations.iter().find(|station| station.name == *name)
    }
}

/// The JSON Schema (draft 2020-12) of the hosts file, as pretty JSON with a final newline.
pub fn hosts_schema() -> String {
    let mut schema: Json = HostsFile::schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Timewire hosts");
    let text = serde_json::to_string_pretty(&schema);
    text.expect("invariant: JSON with text keys can be written") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
timewire: 1
kind: hosts
clock: one-host
stations:
  - { name: alpha, agent: 'netns:alpha', interface: eth0 }
  - { name: beta, agent: 'tls://beta.example:28411' }
  - name: left
    agent: 'netns:left'
    links: [{ to: alpha, interface: p1 }, { to: beta, interface: p2 }]
observers:
  - { name: watcher, agent: 'ssh://root@watcher', interfaces: [p1, p2] }
";

    #[test]
    fn t0_a_file_says_where_stations_are() {
        let file = HostsFile::parse("h", GOOD).unwrap();
        let alpha = file.station(&StationName::new("alpha").unwrap()).unwrap();
        assert_eq!(alpha.agent, AgentAddress::Netns("alpha".to_owned()));
        assert_eq!(alpha.interface, Some(IfName::new("eth0").unwrap()));
        assert_eq!(file.station(&StationName::new("watcher").unwrap()), None);
        let interface = |of: &str, to: &str| {
            let [of, to] = [of, to].map(|name| StationName::new(name).unwrap());
            file.interface(&of, &to).map(ToString::to_string)
        };
        assert_eq!(interface("left", "beta").as_deref(), Some("p2"));
        assert_eq!(interface("left", "watcher"), None);
        assert_eq!(interface("alpha", "left").as_deref(), Some("eth0"));
        assert_eq!(interface("beta", "left"), None);
        assert_eq!(file.clock, HostsClock::OneHost);
        let json = file.emit().unwrap().to_string();
        assert_eq!(HostsFile::parse("h", &json).unwrap(), file);
        let stations = file.stations.iter().map(|it| (&it.name, &it.agent));
        let again = HostsFile::parse("h", &HostsFile::text_of(stations)).unwrap();
        let agents = |file: &HostsFile| -> Vec<String> {
            file.stations.iter().map(|it| it.agent.to_string()).collect()
        };
        assert_eq!(agents(&again), agents(&file));
    }

    #[test]
    fn t0_what_is_wrong_is_told_with_its_place() {
        for (wrong, right, key, message) in [
            ("name: watcher", "name: alpha", "observers[0].name", "two hosts `alpha`"),
            ("[p1, p2]", "[]", "observers[0].interfaces", "observes no interface"),
            ("[p1, p2]", "[p1, p1]", "observers[0].interfaces", "`p1` is there twice"),
            ("ssh://root@watcher", "netns:alpha", "observers[0].agent", "the agent of two hosts"),
            ("netns:alpha", "alpha", "stations[0].agent", "no address of an agent"),
            ("to: beta,", "to: alpha,", "stations[2].links[1].to", "two links to `alpha`"),
            ("interface: p2", "interface: p1", "stations[2].links[1].interface", "at two links"),
            ("clock: one-host", "clock: mine", "clock", "`mine` is not known here"),
        ] {
            let text = GOOD.replace(wrong, right);
            let said = HostsFile::parse("h", &text).unwrap_err().to_string();
            assert!(said.contains(key) && said.contains(message), "{said}");
        }
    }

    #[test]
    fn t0_addresses_are_read_and_options_are_none() {
        for good in ["tls://h:28411", "unix:/run/a", "ssh://root@h", "netns:a", "local"] {
            assert_eq!(AgentAddress::parse(good).unwrap().to_string(), good);
        }
        for bad in
            ["h", "tls:h:1", "tls://h", "unix:x", "ssh://-oProxyCommand=x", "ssh://", "local:"]
        {
            assert!(AgentAddress::parse(bad).is_err(), "{bad}");
        }
    }
}
