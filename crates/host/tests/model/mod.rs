// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that is a value, with the side effects of a real one: a link that goes down loses routes
//! and IPv6 addresses and takes its VLANs along, other channels reset disciplines and the CPUs of
//! queues, threads come and go with threaded polling. Commands can be made to fail, and the process
//! that gives them to die, at any place.
//!
//! Not here: what is tried on it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic;

use timewire_base::IfName;
use timewire_host::HostError;
use timewire_host::apply::{
    Command, Entry, Host, Log, PollingFile, QdiscNode, QdiscTree, Setting, ThreadScheduling,
    ThreadState, ThreadsOf, UndoLog, Value,
};
use timewire_host::tool::Tool;
use timewire_tsn::qdisc::QdiscCommand;

pub type Fields = BTreeMap<String, String>;

/// One interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    pub up: bool,
    pub mtu: u32,
    pub tx: usize,
    pub features: Fields,
    pub coalescing: Fields,
    pub qdiscs: Vec<QdiscNode>,
    pub holds: Vec<String>,
    pub xps: Fields,
    pub rps: Fields,
    pub polling: Fields,
    pub threads: BTreeMap<String, ThreadState>,
    pub addresses: Vec<String>,
    pub neighbours: Vec<String>,
    /// `clsact`, and the words of filters on it.
    pub marks: Vec<String>,
    pub routes: Vec<String>,
    pub vlan: Option<Fields>,
    /// A taprio that sends nothing any more.
    pub is_dead: bool,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The command fails and does nothing.
    Fails,
    /// The command does its work and fails.
    DoesAndFails,
    /// The process dies before the command.
    DiesBefore,
    /// The process dies after the command.
    DiesAfter,
}

pub const FAULTS: [Fault; 4] =
    [Fault::Fails, Fault::DoesAndFails, Fault::DiesBefore, Fault::DiesAfter];

/// The host.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub sysctls: Fields,
    pub interfaces: BTreeMap<String, Interface>,
    /// Commands so far.
    pub count: usize,
    /// Faults by the number of the command.
    pub faults: BTreeMap<usize, Fault>,
    /// Commands that always fail.
    pub broken: BTreeSet<String>,
    /// All commands, in their order.
    pub done: Vec<String>,
}

/// What a process dies of.
pub struct Death;

fn node(kind: &str, handle: &str, place: &str) -> QdiscNode {
    QdiscNode {
        kind: kind.to_owned(),
        handle: handle.to_owned(),
        place: place.to_owned(),
        size_table: String::new(),
        words: String::new(),
        compared: String::new(),
        fault: None,
    }
}

fn count_fields(count: usize) -> Fields {
    (0..count).map(|queue| (queue.to_string(), String::new())).collect()
}

impl Interface {
    pub fn new(tx: usize) -> Interface {
        let mut interface = Interface {
            up: true,
            mtu: 1500,
            tx,
            features: [("tso", "on"), ("gro", "off")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            coalescing: [("rx-usecs", "3"), ("tx-usecs", "3")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            qdiscs: Vec::new(),
            holds: Vec::new(),
            xps: count_fields(tx),
            rps: count_fields(tx),
            polling: ["threaded", "napi_defer_hard_irqs", "gro_flush_timeout"]
                .map(|name| (name.to_owned(), "0".to_owned()))
                .into(),
            threads: BTreeMap::new(),
            addresses: Vec::new(),
            neighbours: Vec::new(),
            marks: Vec::new(),
            routes: Vec::new(),
            vlan: None,
            is_dead: false,
        };
        interface.default_qdiscs();
        interface
    }

    fn default_qdiscs(&mut self) {
        self.holds.clear();
        self.qdiscs = match (self.up, self.tx) {
            (false, _) => Vec::new(),
            (true, 1) => vec![node("pfifo_fast", "0:", "root")],
            (true, tx) => {
                let child = |class: usize| node("pfifo_fast", "0:", &format!("parent :{class:x}"));
                let root = node("mq", "0:", "root");
                std::iter::once(root).chain((1..=tx).map(child)).collect()
            }
        };
    }

    fn has_classes(&self) -> bool {
        self.qdiscs.first().is_some_and(|root| ["taprio", "mqprio"].contains(&root.kind.as_str()))
    }

    fn forget_xps(&mut self) {
        self.xps.values_mut().for_each(String::clear);
    }

    /// `qdisc add dev X clsact`, `filter add dev X egress pref N protocol P ...`.
    fn mark(&mut self, words: &[&str]) -> Result<(), String> {
        let has_clsact = !self.marks.is_empty();
        match (words[0], words[1]) {
            ("qdisc", "add") if has_clsact => Err("Exclusivity flag on, cannot modify".to_owned()),
            ("qdisc", "add") => {
                self.marks.push("clsact".to_owned());
                Ok(())
            }
            ("qdisc", _) if !has_clsact => Err("Cannot find specified qdisc".to_owned()),
            ("qdisc", _) => {
                self.marks.clear();
                Ok(())
            }
            _ if !has_clsact => Err("Parent Qdisc doesn't exists".to_owned()),
            (_, verb) => {
                let name = words[5..9].join(" ");
                let there = self.marks.iter().position(|mark| mark.starts_with(&name));
                match (verb, there) {
                    ("add", Some(_)) => Err("Filter already exists".to_owned()),
                    ("add", None) => {
                        self.marks.push(words[5..].join(" "));
                        Ok(())
                    }
                    (_, Some(at)) => {
                        self.marks.remove(at);
                        Ok(())
                    }
                    (_, None) => Err("Filter with specified priority not found".to_owned()),
                }
            }
        }
    }

    fn lose_addresses(&mut self) {
        self.addresses.retain(|address| !address.contains("::"));
        self.routes.clear();
        self.neighbours.clear();
    }
}

/// `a b c d` as pairs.
fn pairs(words: &[&str]) -> Vec<(String, String)> {
    words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

impl Model {
    fn interface(&mut self, name: &str) -> Result<&mut Interface, String> {
        self.interfaces.get_mut(name).ok_or_else(|| format!("Cannot find device \"{name}\""))
    }

    fn upper_of(&self, name: &str) -> Vec<String> {
        let is_on_top = |(_, interface): &(&String, &Interface)| {
            interface.vlan.as_ref().is_some_and(|vlan| vlan["link"] == name)
        };
        self.interfaces.iter().filter(is_on_top).map(|(name, _)| name.clone()).collect()
    }

    fn set_link(&mut self, name: &str, up: bool) -> Result<(), String> {
        let interface = self.interface(name)?;
        if interface.up == up {
            return Ok(());
        }
        interface.up = up;
        if !up {
            let root = interface.qdiscs.first();
            interface.is_dead |= root.is_some_and(|root| root.kind == "taprio");
            interface.lose_addresses();
        } else if interface.qdiscs.iter().all(QdiscNode::is_of_kernel) {
            interface.default_qdiscs();
        }
        for upper in self.upper_of(name) {
            self.set_link(&upper, up)?;
        }
        Ok(())
    }

    fn ip(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["link", "set", "dev", name, "up"] => self.set_link(name, true),
            ["link", "set", "dev", name, "down"] => self.set_link(name, false),
            ["link", "set", "dev", name, "mtu", mtu] => {
                let mtu = mtu.parse().unwrap();
                if !(68..=9000).contains(&mtu) {
                    return Err("mtu out of range".to_owned());
                }
                let lower = self.interface(name)?.vlan.as_ref().map(|vlan| vlan["link"].clone());
                if lower.is_some_and(|lower| self.interfaces[&lower].mtu < mtu) {
                    return Err("Numerical result out of range".to_owned());
                }
                for upper in self.upper_of(name) {
                    let upper = self.interface(&upper)?;
                    upper.mtu = upper.mtu.min(mtu);
                }
                let interface = self.interface(name)?;
                interface.mtu = mtu;
                if mtu < 1280 {
                    interface.addresses.retain(|address| !address.contains("::"));
                    interface.routes.retain(|route| !route.starts_with("-6"));
                }
                Ok(())
            }
            ["link", "set", "dev", name, "type", "vlan", maps @ ..] => {
                let vlan = self.interface(name)?.vlan.as_mut().ok_or("not a VLAN")?;
                set_maps(vlan, maps);
                Ok(())
            }
            ["link", "add", "link", link, "name", name, "type", "vlan", "id", id, maps @ ..] => {
                if self.interfaces.contains_key(*name) {
                    return Err("File exists".to_owned());
                }
                self.interface(link)?;
                let mut interface = Interface::new(1);
                interface.mtu = self.interfaces[*link].mtu;
                interface.up = false;
                interface.default_qdiscs();
                let mut vlan = Fields::from([
                    ("link".to_owned(), (*link).to_owned()),
                    ("id".to_owned(), (*id).to_owned()),
                ]);
                set_maps(&mut vlan, maps);
                interface.vlan = Some(vlan);
                self.interfaces.insert((*name).to_owned(), interface);
                Ok(())
            }
            ["link", "del", "dev", name] => {
                self.interface(name)?;
                self.interfaces.remove(*name);
                Ok(())
            }
            ["address", verb, address @ .., "dev", name] => {
                let address = address.join(" ");
                let interface = self.interface(name)?;
                interface.addresses.retain(|known| *known != address);
                if *verb == "replace" {
                    interface.addresses.push(address);
                    interface.addresses.sort();
                }
                Ok(())
            }
            ["neighbour", verb, words @ .., "dev", name] => {
                let words = words.join(" ");
                let interface = self.interface(name)?;
                interface.neighbours.retain(|known| *known != words);
                if *verb == "replace" {
                    interface.neighbours.push(words);
                    interface.neighbours.sort();
                }
                Ok(())
            }
            [family, "route", verb, route @ .., "dev", name] => {
                let prefix = if *family == "-6" { "-6 " } else { "" };
                let route = format!("{prefix}{}", route.join(" "));
                let interface = self.interface(name)?;
                if !interface.up {
                    return Err("Network is down".to_owned());
                }
                let count = interface.routes.len();
                interface.routes.retain(|known| *known != route);
                if *verb == "append" && interface.routes.len() != count {
                    return Err("File exists".to_owned());
                }
                if *verb != "del" {
                    interface.routes.push(route);
                    interface.routes.sort();
                }
                Ok(())
            }
            other => panic!("the model has no `ip {other:?}`"),
        }
    }

    fn ethtool(&mut self, words: &[&str]) -> Result<(), String> {
        let interface = self.interface(words[1])?;
        let given = pairs(&words[2..]);
        match words[0] {
            "-L" => {
                let tx: usize = given[0].1.parse().unwrap();
                if !(1..=4).contains(&tx) {
                    return Err("requested channel count exceeds maximum".to_owned());
                }
                interface.tx = tx;
                for field in [&mut interface.xps, &mut interface.rps] {
                    *field = (0..tx)
                        .map(|queue| queue.to_string())
                        .map(|queue| {
                            (queue.clone(), field.get(&queue).cloned().unwrap_or_default())
                        })
                        .collect();
                }
                interface.forget_xps();
                interface.default_qdiscs();
            }
            "-K" => interface.features.extend(given),
            "-C" => interface.coalescing.extend(given),
            other => panic!("the model has no `ethtool {other}`"),
        }
        Ok(())
    }

    fn tc(&mut self, words: &[&str]) -> Result<(), String> {
        let interface = self.interface(words[3])?;
        if words[0] == "filter" || words[4] == "clsact" {
            return interface.mark(words);
        }
        if words[1] == "del" {
            if interface.qdiscs.iter().all(QdiscNode::is_of_kernel) {
                return Err("Cannot delete qdisc with handle of zero".to_owned());
            }
            if interface.has_classes() {
                interface.forget_xps();
            }
            interface.is_dead = false;
            interface.default_qdiscs();
            return Ok(());
        }
        let line = format!("tc {}", words.join(" "));
        let new = match line.parse::<QdiscCommand>() {
            Ok(command) => QdiscTree::of_commands(&[command]).unwrap().nodes.remove(0),
            Err(_) => {
                // `qdisc add dev X root handle H: kind words`
                let mut foreign = node(words[7], words[6], "root");
                foreign.words = words[8..].join(" ");
                foreign.compared.clone_from(&foreign.words);
                foreign
            }
        };
        if new.place == "root" {
            if interface.qdiscs.iter().any(|node| !node.is_of_kernel()) {
                return Err("Exclusivity flag on, cannot modify".to_owned());
            }
            interface.qdiscs = vec![new];
            interface.is_dead = false;
            if interface.has_classes() {
                interface.forget_xps();
                let queues = 1..=interface.tx;
                let handle = interface.qdiscs[0].handle.clone();
                let child = |queue| node("pfifo", "0:", &format!("parent {handle}{queue:x}"));
                interface.qdiscs.extend(queues.map(child));
            }
            return Ok(());
        }
        let root = interface.qdiscs.first().map(|root| root.kind.clone());
        interface.is_dead |= interface.up && root.as_deref() == Some("taprio");
        let place = new.place.clone();
        let slot = interface.qdiscs.iter_mut().find(|node| node.place == place);
        *slot.ok_or("Specified class not found")? = new;
        Ok(())
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), String> {
        if let Some(name) = path.strip_prefix("/proc/sys/") {
            let known = self.sysctls.get_mut(&name.replace('/', "."));
            *known.ok_or("No such file or directory")? = value.to_owned();
            return Ok(());
        }
        let rest = path.strip_prefix("/sys/class/net/").expect("a path of an interface");
        let parts: Vec<&str> = rest.split('/').collect();
        let name = parts[0].to_owned();
        let interface = self.interface(parts[0])?;
        match parts[1..] {
            ["queues", queue, file] => {
                let (direction, queue) = queue.split_once('-').unwrap();
                assert_eq!(file, if direction == "rx" { "rps_cpus" } else { "xps_cpus" });
                let fields =
                    if direction == "rx" { &mut interface.rps } else { &mut interface.xps };
                let known = fields.get_mut(queue).ok_or("No such file or directory")?;
                *known = match value {
                    "0" => String::new(),
                    "1" => "0".to_owned(),
                    "2" => "1".to_owned(),
                    "3" => "0-1".to_owned(),
                    other => panic!("the model has two CPUs, not {other}"),
                };
            }
            [file] => {
                interface.polling.insert(file.to_owned(), value.to_owned());
                if file == "threaded" && value == "1" {
                    for queue in 0..interface.tx {
                        let thread = ThreadState {
                            scheduling: Some(ThreadScheduling::Other(0)),
                            cpus: Some("0-1".to_owned()),
                        };
                        interface.threads.entry(format!("napi/{name}-{queue}")).or_insert(thread);
                    }
                } else if file == "threaded" {
                    interface.threads.clear();
                }
            }
            _ => panic!("the model has no {path}"),
        }
        Ok(())
    }

    fn each_thread(&mut self, name: &str, change: impl Fn(&mut ThreadState)) {
        let matches = |thread: &str| match name.strip_suffix('*') {
            Some(prefix) => thread.starts_with(prefix),
            None => thread == name,
        };
        let threads = self.interfaces.values_mut().flat_map(|interface| &mut interface.threads);
        threads.filter(|(thread, _)| matches(thread)).for_each(|(_, state)| change(state));
    }

    fn carry_out(&mut self, command: &Command) -> Result<(), String> {
        match command {
            Command::Run { tool, arguments } => {
                let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
                match tool {
                    Tool::Ip => self.ip(&words),
                    Tool::Ethtool => self.ethtool(&words),
                    Tool::Tc => self.tc(&words),
                    other => panic!("the model has no {}", other.program()),
                }
            }
            Command::Write { path, value } => self.write(path.to_str().unwrap(), value),
            Command::Schedule { threads, scheduling } => {
                self.each_thread(threads, |state| state.scheduling = Some(*scheduling));
                Ok(())
            }
            Command::Pin { threads, cpus } => {
                let cpus = if cpus == "all" { "0-1" } else { cpus };
                self.each_thread(threads, |state| state.cpus = Some(cpus.to_owned()));
                Ok(())
            }
            other => panic!("the model has no {other}"),
        }
    }

    /// What there is, without what only the test knows, and without what the kernel does with
    /// queues that nobody cares about.
    pub fn state(&self) -> (Fields, BTreeMap<String, Interface>) {
        let mut interfaces = self.interfaces.clone();
        for interface in interfaces.values_mut() {
            interface.qdiscs.retain(|node| !node.is_of_kernel());
            interface.is_dead &= interface.up;
        }
        (self.sysctls.clone(), interfaces)
    }
}

fn set_maps(vlan: &mut Fields, words: &[&str]) {
    let mut direction = "";
    for word in words {
        if let Some(name) = word.strip_suffix("-qos-map") {
            direction = name;
            continue;
        }
        let (from, to) = word.split_once(':').unwrap();
        let key = format!("{direction} {from}");
        if to == "0" {
            vlan.remove(&key)
        } else {
            vlan.insert(key, to.to_owned())
        };
    }
}

impl Host for Model {
    fn observe(&mut self, setting: &Setting) -> Result<Value, HostError> {
        let text = |value: Option<&String>| value.map_or(Value::Absent, Value::text);
        let Some(name) = setting.interface() else {
            let Setting::Sysctl { name } = setting else { panic!("{setting}") };
            return Ok(text(self.sysctls.get(name)));
        };
        let Some(interface) = self.interfaces.get(name.as_str()) else { return Ok(Value::Absent) };
        Ok(match setting {
            Setting::Vlan { .. } => match &interface.vlan {
                Some(fields) => Value::Fields(fields.clone()),
                None => Value::Unknown("no VLAN".to_owned()),
            },
            Setting::Link { .. } => Value::text(if interface.up { "up" } else { "down" }),
            Setting::Mtu { .. } => Value::text(interface.mtu.to_string()),
            Setting::Channels { .. } => Value::fields([("combined", interface.tx.to_string())]),
            Setting::Features { .. } => Value::Fields(interface.features.clone()),
            Setting::Coalescing { .. } => Value::Fields(interface.coalescing.clone()),
            Setting::Rps { .. } => Value::Fields(interface.rps.clone()),
            Setting::Xps { .. } => Value::Fields(interface.xps.clone()),
            Setting::Marks { .. } => Value::List(interface.marks.clone()),
            Setting::Polling { file, .. } => text(interface.polling.get(file.name())),
            Setting::Qdiscs { .. } => {
                let (nodes, holds) = (interface.qdiscs.clone(), interface.holds.clone());
                Value::Qdiscs(QdiscTree { nodes, holds })
            }
            Setting::Addresses { .. } => Value::List(interface.addresses.clone()),
            Setting::Neighbours { .. } => Value::List(interface.neighbours.clone()),
            Setting::Routes { .. } => Value::List(interface.routes.clone()),
            Setting::Threads { of: ThreadsOf::Napi, .. } if !interface.threads.is_empty() => {
                Value::Threads(interface.threads.clone())
            }
            Setting::Threads { .. } => Value::Absent,
            _ => Value::Unknown("the model has none".to_owned()),
        })
    }

    fn upper(&mut self, interface: &IfName) -> Result<Vec<IfName>, HostError> {
        let names = self.upper_of(interface.as_str());
        Ok(names.iter().map(|name| IfName::new(name).unwrap()).collect())
    }

    fn execute(&mut self, command: &Command) -> Result<(), HostError> {
        let fault = self.faults.get(&self.count).copied();
        self.count += 1;
        let line = command.to_string();
        let failed = |why: String| HostError::ToolFailed {
            command: line.clone(),
            status: "exit status: 2".to_owned(),
            line: None,
            stderr: why,
        };
        if fault == Some(Fault::DiesBefore) {
            panic::panic_any(Death);
        }
        if fault == Some(Fault::Fails) || self.broken.contains(&line) {
            return Err(failed("a fault".to_owned()));
        }
        self.done.push(line.clone());
        let result = self.carry_out(command).map_err(failed);
        match fault {
            Some(Fault::DiesAfter) => panic::panic_any(Death),
            Some(Fault::DoesAndFails) => Err(failed("a fault afterwards".to_owned())),
            _ => result,
        }
    }
}

/// A record in memory. The process can die before or after an entry is kept.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub entries: Vec<Entry>,
    /// The entry at which the process dies, and whether it is kept.
    pub dies_at: Option<(usize, bool)>,
}

impl Memory {
    /// What the record says.
    pub fn undo_log(&self) -> UndoLog {
        let mut undo_log = UndoLog::default();
        self.entries.iter().cloned().for_each(|entry| undo_log.take(entry));
        undo_log
    }
}

impl Log for Memory {
    fn append(&mut self, entry: &Entry) -> Result<(), HostError> {
        // As a file does it: what is read is what was written.
        let text = serde_json::to_string(entry).unwrap();
        let entry = serde_json::from_str(&text).unwrap();
        match self.dies_at {
            Some((at, is_kept)) if at == self.entries.len() => {
                if is_kept {
                    self.entries.push(entry);
                }
                self.dies_at = None;
                panic::panic_any(Death);
            }
            _ => self.entries.push(entry),
        }
        Ok(())
    }
}

/// Runs something that may die; `None` when it did.
pub fn alive<T>(work: impl FnOnce() -> T) -> Option<T> {
    match panic::catch_unwind(panic::AssertUnwindSafe(work)) {
        Ok(value) => Some(value),
        Err(cause) if cause.is::<Death>() => None,
        Err(cause) => panic::resume_unwind(cause),
    }
}

/// Threads of an interface.
pub fn napi(interface: &str) -> Setting {
    Setting::Threads { interface: IfName::new(interface).unwrap(), of: ThreadsOf::Napi }
}

/// A file about polling.
pub fn polling(interface: &str, file: PollingFile) -> Setting {
    Setting::Polling { interface: IfName::new(interface).unwrap(), file }
}
