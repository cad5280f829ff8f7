// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This host: its settings read with the distribution's tools and from the kernel's files, and
//! changed with the same. All of it is about the network namespace of the calling thread.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use timewire_base::IfName;
use timewire_model::scenario::host::CpuList;
use timewire_sys::scheduler::{self, Attributes};

use super::change::{CLSACT, NO_RECEIVE, polling, sysctl_path, thread_prefix};
use super::command::Command;
use super::message;
use super::read;
use super::setting::{ALL, Setting, ThreadScheduling, ThreadState, ThreadsOf, Value};
use super::transaction::Host;
use super::tree::QdiscTree;
use crate::HostError;
use crate::scheduling::{self, kernel_threads};
use crate::tool::{self, Tool};

/// This host.
#[derive(Debug, Default)]
pub struct RealHost;

impl Host for RealHost {
    fn observe(&mut self, setting: &Setting) -> Result<Value, HostError> {
        let Some(interface) = setting.interface() else {
            let Setting::Sysctl { name } = setting else { return Ok(Value::Absent) };
            return Ok(file(&sysctl_path(name)));
        };
        if !exists(interface)? {
            return Ok(Value::Absent);
        }
        match setting {
            Setting::Vlan { .. } => Ok(read::vlan(&link(interface)?)),
            Setting::Link { .. } => {
                Ok(Value::text(if read::is_up(&link(interface)?) { "up" } else { "down" }))
            }
            Setting::Mtu { .. } => Ok(match link(interface)?.get("mtu").and_then(Json::as_u64) {
                Some(mtu) => Value::text(mtu.to_string()),
                None => Value::Unknown("ip does not show it".to_owned()),
            }),
            Setting::Channels { .. } => ethtool("-l", interface, read::current),
            Setting::Rings { .. } => ethtool("-g", interface, read::current),
            Setting::Features { .. } => ethtool("-k", interface, read::features),
            Setting::Coalescing { .. } => ethtool("-c", interface, read::coalescing),
            Setting::Eee { .. } => ethtool("--show-eee", interface, read::eee),
            Setting::MacMerge { .. } => ethtool("--show-mm", interface, read::mac_merge),
            Setting::Steering { .. } => ethtool("-n", interface, read::steering),
            Setting::Timestamping { .. } => {
                said(Tool::HwstampCtl, &["-i", interface.as_str()], read::timestamping)
            }
            Setting::Addresses { .. } => {
                let text =
                    tool::run(Tool::Ip, &["-j", "address", "show", "dev", interface.as_str()])?;
                read::addresses(&text).ok_or_else(|| unread(setting, &text))
            }
            Setting::Neighbours { .. } => {
                let arguments =
                    ["-j", "neighbour", "show", "dev", interface.as_str(), "nud", "permanent"];
                let text = tool::run(Tool::Ip, &arguments)?;
                read::neighbours(&text).ok_or_else(|| unread(setting, &text))
            }
            Setting::Routes { .. } => routes(setting, interface),
            Setting::Qdiscs { .. } => qdiscs(setting, interface),
            Setting::Marks { .. } => marks(interface),
            Setting::Receive { .. } => receive(setting, interface),
            Setting::Polling { file: which, .. } => {
                in_sysfs(interface, || Ok(file(&polling(interface, *which))))
            }
            Setting::Rps { .. } => in_sysfs(interface, || Ok(queues(interface, "rx", "rps_cpus"))),
            Setting::Xps { .. } => in_sysfs(interface, || Ok(queues(interface, "tx", "xps_cpus"))),
            Setting::Interrupts { .. } => in_sysfs(interface, || {
                let irqs = interrupts(interface).into_iter();
                let affinity = irqs.filter_map(|irq| {
                    let path = format!("/proc/irq/{irq}/smp_affinity_list");
                    let cpus = fs::read_to_string(path).ok()?;
                    Some((irq.to_string(), cpus.trim().to_owned()))
                });
                let affinity: BTreeMap<String, String> = affinity.collect();
                Ok(match affinity.is_empty() {
                    true => Value::Unknown("it has no interrupts of its own".to_owned()),
                    false => Value::Fields(affinity),
                })
            }),
            Setting::Threads { of: ThreadsOf::Napi, .. } => {
                let threaded = polling(interface, super::setting::PollingFile::Threaded);
                if file(&threaded) != Value::text("1") {
                    return Ok(Value::Absent);
                }
                states(&napi_threads(interface)?)
            }
            Setting::Threads { of: ThreadsOf::Interrupt, .. } => {
                let irqs = interrupts(interface);
                let mut found = kernel_threads(&thread_prefix(interface, ThreadsOf::Interrupt));
                found.retain(|(name, _)| {
                    let number = name.split(['/', '-']).nth(1).and_then(|n| n.parse().ok());
                    number.is_some_and(|number| irqs.contains(&number))
                });
                states(&found)
            }
            Setting::Sysctl { .. } => Ok(Value::Absent),
        }
    }

    fn upper(&mut self, interface: &IfName) -> Result<Vec<IfName>, HostError> {
        let text = tool::run(Tool::Ip, &["-j", "-d", "link", "show", "type", "vlan"])?;
        let list: Vec<Json> = match text.trim() {
            "" => Vec::new(),
            text => serde_json::from_str(text).unwrap_or_default(),
        };
        let is_on_top =
            |link: &&Json| link.get("link").and_then(Json::as_str) == Some(interface.as_str());
        let name = |link: &Json| IfName::new(link.get("ifname")?.as_str()?).ok();
        Ok(list.iter().filter(is_on_top).filter_map(name).collect())
    }

    fn execute(&mut self, command: &Command) -> Result<(), HostError> {
        match command {
            Command::Run { tool, arguments } => {
                if let Some(message) = message::beyond_tc(*tool, arguments) {
                    return message::send(&message);
                }
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                tool::run(*tool, &arguments).map(drop)
            }
            Command::Write { path, value } => {
                fs::write(path, value).map_err(|error| HostError::file("write", path, error))
            }
            Command::Schedule { threads, scheduling } => {
                let wanted = attributes(*scheduling);
                each_thread(threads, "change the scheduling", |tid| {
                    scheduler::set_attributes(tid, &wanted)
                })
            }
            Command::Pin { threads, cpus } => {
                let unread = |why| HostError::Unreadable { what: "a list of CPUs", why };
                let list = match cpus.as_str() {
                    ALL => scheduling::online_cpus()?,
                    list => CpuList::parse(list).map_err(unread)?,
                };
                let cpus: Vec<u32> = list.iter().collect();
                each_thread(threads, "change the CPUs", |tid| scheduler::set_affinity(tid, &cpus))
            }
        }
    }
}

/// Whether there is such an interface in this network namespace.
fn exists(interface: &IfName) -> Result<bool, HostError> {
    let path = "/proc/thread-self/net/dev";
    let text = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
    let mut names = text.lines().filter_map(|line| line.split_once(':'));
    Ok(names.any(|(name, _)| name.trim() == interface.as_str()))
}

fn link(interface: &IfName) -> Result<Json, HostError> {
    let text = tool::run(Tool::Ip, &["-j", "-d", "link", "show", "dev", interface.as_str()])?;
    let setting = Setting::Link { interface: interface.clone() };
    read::link(&text).ok_or_else(|| unread(&setting, &text))
}

fn unread(setting: &Setting, text: &str) -> HostError {
    let why = format!("not understood: {}", text.trim());
    HostError::kernel(format!("read {setting}"), io::Error::new(io::ErrorKind::InvalidData, why))
}

/// A file of the kernel; its words with one space between them.
fn file(path: &Path) -> Value {
    match fs::read_to_string(path) {
        Ok(text) => Value::text(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Value::Absent,
        Err(error) => Value::Unknown(format!("cannot read {}: {error}", path.display())),
    }
}

fn ethtool(
    option: &str,
    interface: &IfName,
    read: impl Fn(&str) -> Value,
) -> Result<Value, HostError> {
    said(Tool::Ethtool, &[option, interface.as_str()], read)
}

/// What a tool says; that the NIC, the driver or the tool cannot say it is a value.
fn said(tool: Tool, arguments: &[&str], read: impl Fn(&str) -> Value) -> Result<Value, HostError> {
    match tool::run(tool, arguments) {
        Ok(text) => Ok(read(&text)),
        Err(HostError::ToolFailed { stderr, .. }) if stderr.contains("bad command line") => {
            let (tool, option) = (tool.program(), arguments[0]);
            Ok(Value::Unknown(format!("this {tool} is too old for `{option}`")))
        }
        Err(HostError::ToolFailed { stderr, .. }) => Ok(Value::Unknown(stderr)),
        Err(error) => Err(error),
    }
}

/// Runs `look` when the `/sys` here shows this interface and not one of another network namespace.
fn in_sysfs(
    interface: &IfName,
    look: impl FnOnce() -> Result<Value, HostError>,
) -> Result<Value, HostError> {
    let dir = PathBuf::from("/sys/class/net").join(interface.as_str());
    let link = link(interface)?;
    let number = link.get("ifindex").map(Json::to_string);
    let address = link.get("address").and_then(Json::as_str).map(str::to_owned);
    let shown = |name: &str| fs::read_to_string(dir.join(name)).ok().map(|t| t.trim().to_owned());
    if shown("ifindex") == number && (address.is_none() || shown("address") == address) {
        return look();
    }
    let why = "the /sys here shows another network namespace; `ip netns exec` mounts the right one";
    Ok(Value::Unknown(why.to_owned()))
}

/// Masks of CPUs of all queues of one direction, as lists.
fn queues(interface: &IfName, direction: &str, file: &str) -> Value {
    let dir = format!("/sys/class/net/{interface}/queues");
    let mut fields = BTreeMap::new();
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(queue) = name.to_str().and_then(|name| name.strip_prefix(direction)) else {
            continue;
        };
        let mask = fs::read_to_string(entry.path().join(file)).ok();
        if let Some(cpus) = mask.as_deref().and_then(read::cpus_of_mask) {
            fields.insert(queue.trim_start_matches('-').to_owned(), cpus);
        }
    }
    match fields.is_empty() {
        true => Value::Unknown(format!("the kernel shows no {file}")),
        false => Value::Fields(fields),
    }
}

/// The numbers of a NIC's interrupts.
fn interrupts(interface: &IfName) -> Vec<u32> {
    let device = PathBuf::from(format!("/sys/class/net/{interface}/device"));
    // A NIC of virtio is one level above its network device.
    let dirs = [device.join("msi_irqs"), device.join("../msi_irqs")];
    let listed = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    let mut irqs: Vec<u32> =
        listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    if irqs.is_empty() {
        let legacy = fs::read_to_string(device.join("irq")).ok();
        let irq = legacy.and_then(|text| text.trim().parse::<u32>().ok());
        irqs.extend(irq.filter(|irq| *irq != 0));
    }
    irqs.sort_unstable();
    irqs
}

fn routes(setting: &Setting, interface: &IfName) -> Result<Value, HostError> {
    let mut list = Vec::new();
    for (option, family) in [("-4", ""), ("-6", "-6 ")] {
        let arguments = ["-j", option, "route", "show", "table", "all"];
        let all = said(Tool::Ip, &arguments, |text| Value::text(text.trim()))?;
        let Value::Text(all) = all else { continue };
        if all.is_empty() {
            continue;
        }
        let all: Vec<Json> = serde_json::from_str(&all).map_err(|_| unread(setting, &all))?;
        let own =
            |route: &&Json| route.get("dev").and_then(Json::as_str) == Some(interface.as_str());
        let shared = |route: &Json| {
            let hops = route.get("nexthops").and_then(Json::as_array);
            let is_own =
                |hop: &Json| hop.get("dev").and_then(Json::as_str) == Some(interface.as_str());
            hops.is_some_and(|hops| hops.iter().any(is_own))
        };
        if let Some(route) = all.iter().find(|route| shared(route)) {
            let to = route.get("dst").and_then(Json::as_str).unwrap_or_default();
            return Ok(Value::Unknown(format!("the route to {to} has several next hops")));
        }
        let own = Json::Array(all.iter().filter(own).cloned().collect()).to_string();
        list.extend(read::routes(&own, family).ok_or_else(|| unread(setting, &own))?);
    }
    Ok(Value::List(list))
}

/// The rules in force, as `timewire receive` prints them.
fn receive(setting: &Setting, interface: &IfName) -> Result<Value, HostError> {
    let text = tool::run(Tool::Timewire, &["receive", "show", "--json"])?;
    let all: Json = serde_json::from_str(&text).map_err(|e| unread(setting, &e.to_string()))?;
    let all = all["interfaces"].as_array().ok_or_else(|| unread(setting, &text))?;
    // A program that is attached no more does nothing.
    let own = all.iter().find(|one| one["interface"] == interface.as_str());
    Ok(match own.filter(|one| !one["mode"].is_null()) {
        Some(one) => Value::Text(one["receive"].to_string()),
        None => Value::text(NO_RECEIVE),
    })
}

/// What hangs on the way out; unknown when it is not what marks are.
fn marks(interface: &IfName) -> Result<Value, HostError> {
    let show = |what: &[&str]| tool::run(Tool::Tc, &[what, &["dev", interface.as_str()]].concat());
    let qdiscs = show(&["qdisc", "show"])?;
    if qdiscs.lines().any(|line| line.starts_with("qdisc ingress ")) {
        let why = "there is a discipline `ingress`, in whose place a mark would need `clsact`";
        return Ok(Value::Unknown(why.to_owned()));
    }
    if !qdiscs.lines().any(|line| line.starts_with("qdisc clsact ")) {
        return Ok(Value::List(Vec::new()));
    }
    let arguments = ["-N", "-j", "filter", "show", "dev", interface.as_str(), "egress"];
    let text = tool::run(Tool::Tc, &arguments)?;
    let egress = timewire_tsn::desired::shown_filters(&text);
    let ingress = tool::run(Tool::Tc, &["filter", "show", "dev", interface.as_str(), "ingress"])?;
    Ok(match egress {
        _ if !ingress.trim().is_empty() => {
            Value::Unknown("there are filters of someone else on `clsact`".to_owned())
        }
        Err(why) => Value::Unknown(why),
        Ok(filters) => {
            let clsact = std::iter::once(CLSACT.to_owned());
            Value::List(clsact.chain(filters).collect())
        }
    })
}

fn qdiscs(setting: &Setting, interface: &IfName) -> Result<Value, HostError> {
    let text =
        tool::run(Tool::Tc, &["-j", "-d", "-r", "qdisc", "show", "dev", interface.as_str()])?;
    let read =
        |holds| QdiscTree::parse(&text, holds).map_err(|error| unread(setting, &error.to_string()));
    let tree = read(Vec::new())?;
    let mut holds = Vec::new();
    for node in tree.own() {
        let handle = node.handle.as_str();
        let filters =
            tool::run(Tool::Tc, &["filter", "show", "dev", interface.as_str(), "parent", handle])?;
        if !filters.trim().is_empty() {
            holds.push(format!("filters at {handle}"));
        }
        // Classes of these are queues, or none.
        let has_queues = ["mq", "mqprio", "taprio", "pfifo_fast", "prio"];
        if !has_queues.contains(&node.kind.as_str()) {
            let classes = tool::run(
                Tool::Tc,
                &["class", "show", "dev", interface.as_str(), "parent", handle],
            )?;
            let of_user = |line: &&str| {
                !line.starts_with("class cbs")
                    && !line.starts_with("class tbf")
                    && !line.starts_with("class fq_codel")
            };
            if classes.lines().any(|line| of_user(&line)) {
                holds.push(format!("classes of {handle}"));
            }
        }
    }
    Ok(Value::Qdiscs(if holds.is_empty() { tree } else { read(holds)? }))
}

/// The threads that poll an interface. The kernel names them by the interface alone, so those of
/// another network namespace can have the same names.
pub(crate) fn napi_threads(interface: &IfName) -> Result<Vec<(String, u32)>, HostError> {
    let found = kernel_threads(&thread_prefix(interface, ThreadsOf::Napi));
    let queues = fs::read_dir(format!("/sys/class/net/{interface}/queues"));
    let queues = queues.map_or(0, |queues| queues.flatten().count());
    if found.len() <= queues {
        return Ok(found);
    }
    let why = format!(
        "there are {} threads of this name for {queues} queues: another network namespace has an \
         interface of the same name",
        found.len()
    );
    let what = format!("find the threads that poll {interface}");
    Err(HostError::kernel(what, io::Error::other(why)))
}

fn states(threads: &[(String, u32)]) -> Result<Value, HostError> {
    if threads.is_empty() {
        return Ok(Value::Absent);
    }
    let mut states = BTreeMap::new();
    for (name, tid) in threads {
        let refused =
            |source| HostError::kernel(format!("read the scheduling of `{name}`"), source);
        let attributes = scheduler::attributes(*tid).map_err(refused)?;
        let cpus = scheduler::affinity(*tid).map_err(refused)?;
        let scheduling = match attributes.policy {
            0 => ThreadScheduling::Other(attributes.nice),
            1 => ThreadScheduling::Fifo(u8::try_from(attributes.rt_priority).unwrap_or(0)),
            2 => ThreadScheduling::RoundRobin(u8::try_from(attributes.rt_priority).unwrap_or(0)),
            other => ThreadScheduling::Foreign(other),
        };
        let (scheduling, cpus) = (Some(scheduling), Some(read::cpu_list(&cpus)));
        states.insert(name.clone(), ThreadState { scheduling, cpus });
    }
    Ok(Value::Threads(states))
}

fn attributes(scheduling: ThreadScheduling) -> Attributes {
    let (policy, nice, priority) = match scheduling {
        ThreadScheduling::Other(nice) => (0, nice, 0),
        ThreadScheduling::Fifo(priority) => (1, 0, priority),
        ThreadScheduling::RoundRobin(priority) => (2, 0, priority),
        ThreadScheduling::Foreign(policy) => (policy, 0, 0),
    };
    Attributes { policy, nice, rt_priority: priority.into(), ..Attributes::default() }
}

fn each_thread(
    name: &str,
    what: &str,
    change: impl Fn(u32) -> io::Result<()>,
) -> Result<(), HostError> {
    let found = match name.strip_suffix('*') {
        Some(prefix) => {
            let interface = prefix.strip_prefix("napi/").and_then(|rest| rest.strip_suffix('-'));
            match interface.and_then(|name| IfName::new(name).ok()) {
                Some(interface) => napi_threads(&interface)?,
                None => kernel_threads(prefix),
            }
        }
        None => kernel_threads(name).into_iter().filter(|(found, _)| found == name).collect(),
    };
    for (name, tid) in found {
        match change(tid) {
            // It has ended.
            Err(error) if error.raw_os_error() == Some(ESRCH) => {}
            Err(error) => return Err(HostError::kernel(format!("{what} of `{name}`"), error)),
            Ok(()) => {}
        }
    }
    Ok(())
}

const ESRCH: i32 = 3;
