// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that bring one setting from one value to another.

use std::collections::BTreeMap;
use std::path::PathBuf;

use timewire_base::IfName;

use super::command::Command;
use super::setting::{ALL, PollingFile, Setting, ThreadScheduling, ThreadState, ThreadsOf, Value};
use super::tree::QdiscTree;
use crate::tool::Tool;

/// What a setting is to be brought to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The value.
    pub value: Value,
    /// Whether all of it counts, as of a former value that is restored; otherwise it is a desired
    /// configuration.
    pub exact: bool,
}

impl Goal {
    /// A desired configuration: what is not named stays as it is.
    pub fn desired(value: Value) -> Goal {
        Goal { value, exact: false }
    }

    /// Exactly this.
    pub fn exactly(value: Value) -> Goal {
        Goal { value, exact: true }
    }

    /// Whether a setting that has `have` is there.
    pub fn is_met_by(&self, have: &Value) -> bool {
        if self.exact { self.value.is_same(have) } else { self.value.is_met_by(have) }
    }

    /// The whole value that a setting comes to that has `have`.
    pub fn whole(&self, have: &Value) -> Value {
        if self.exact { self.value.clone() } else { self.value.complete(have) }
    }
}

/// The commands for one setting. None when nothing is to be done, which is so too when what had
/// the value is gone, or goes.
///
/// **Errors**: why it cannot be brought there.
pub(super) fn commands(
    setting: &Setting,
    from: &Value,
    goal: &Goal,
) -> Result<Vec<Command>, String> {
    if goal.is_met_by(from) {
        return Ok(Vec::new());
    }
    let to = &goal.value;
    match (from, to) {
        (Value::Unknown(why), _) => return Err(why.clone()),
        (_, Value::Unknown(why)) => return Err(format!("what it was is unknown: {why}")),
        _ => {}
    }
    let fields = |value: &Value| match value {
        Value::Fields(fields) => fields.clone(),
        _ => BTreeMap::new(),
    };
    let whole = goal.whole(from);
    let (old, new) = (fields(from), fields(&whole));
    let changed: Vec<(&str, &str)> = new
        .iter()
        .filter(|(name, value)| old.get(*name) != Some(value))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let words =
        || changed.iter().map(|(name, value)| format!(" {name} {value}")).collect::<String>();
    let text = match to {
        Value::Text(text) => text.as_str(),
        _ => "",
    };
    let is_there = !matches!(to, Value::Absent);
    let ethtool = |option: &str, interface: &IfName, words: &str| {
        vec![Command::run(Tool::Ethtool, &format!("{option} {interface} {words}"))]
    };
    Ok(match setting {
        Setting::Vlan { interface } => vlan(interface, from, &old, &new, is_there)?,
        Setting::Threads { interface, of } => threads(interface, *of, from, &whole)?,
        // What belongs to an interface or a device that is gone is gone with it.
        _ if !is_there => Vec::new(),
        Setting::Sysctl { name } => vec![Command::write(sysctl_path(name), text)],
        Setting::Link { interface } => {
            vec![Command::run(Tool::Ip, &format!("link set dev {interface} {text}"))]
        }
        Setting::Mtu { interface } => {
            vec![Command::run(Tool::Ip, &format!("link set dev {interface} mtu {text}"))]
        }
        Setting::Channels { interface } => ethtool("-L", interface, &words()),
        Setting::Rings { interface } => ethtool("-G", interface, &words()),
        Setting::Features { interface } => ethtool("-K", interface, &words()),
        Setting::Coalescing { interface } => ethtool("-C", interface, &words()),
        Setting::Eee { interface } => ethtool("--set-eee", interface, &format!("eee {text}")),
        Setting::MacMerge { interface } => ethtool("--set-mm", interface, &words()),
        Setting::Timestamping { interface } => {
            let number = |name| new.get(name).map_or("0", String::as_str);
            let line = format!("-i {interface} -t {} -r {}", number("tx"), number("rx"));
            vec![Command::run(Tool::HwstampCtl, &line)]
        }
        Setting::Steering { interface } => steering(interface, &old, &new)?,
        Setting::Polling { interface, file } => {
            vec![Command::write(polling(interface, *file), text)]
        }
        Setting::Rps { interface } => queue_files(interface, "rx", "rps_cpus", &changed)?,
        Setting::Xps { interface } => queue_files(interface, "tx", "xps_cpus", &changed)?,
        Setting::Interrupts { .. } => changed
            .iter()
            .map(|(irq, cpus)| Command::write(format!("/proc/irq/{irq}/smp_affinity_list"), *cpus))
            .collect(),
        Setting::Qdiscs { interface } => qdiscs(interface, from, to)?,
        Setting::Marks { interface } => marks(interface, from, to),
        Setting::Receive { interface } => receive(interface, from, text),
        Setting::Addresses { interface } => list(from, to, |verb, words| {
            let verb = if verb == "add" { "replace" } else { verb };
            format!("address {verb} {words} dev {interface}")
        }),
        Setting::Neighbours { interface } => list(from, to, |verb, words| {
            let verb = if verb == "add" { "replace" } else { verb };
            format!("neighbour {verb} {words} dev {interface}")
        }),
        Setting::Routes { interface } => list(from, to, |verb, words| {
            let verb = if verb == "add" { "append" } else { verb };
            let (family, words) = match words.strip_prefix("-6 ") {
                Some(words) => ("-6 ", words),
                None => ("-4 ", words),
            };
            format!("{family}route {verb} {words} dev {interface}")
        }),
    })
}

/// The commands that give addresses and routes back whether or not they were lost.
pub(super) fn commands_again(setting: &Setting, value: &Value) -> Vec<Command> {
    let Value::List(words) = value else { return Vec::new() };
    let line = |words: &String| match setting {
        Setting::Addresses { interface } => {
            Some(format!("address replace {words} dev {interface}"))
        }
        Setting::Neighbours { interface } => {
            Some(format!("neighbour replace {words} dev {interface}"))
        }
        Setting::Routes { interface } => {
            let (family, words) = match words.strip_prefix("-6 ") {
                Some(words) => ("-6", words),
                None => ("-4", words.as_str()),
            };
            Some(format!("{family} route replace {words} dev {interface}"))
        }
        _ => None,
    };
    words.iter().filter_map(line).map(|line| Command::run(Tool::Ip, &line)).collect()
}

/// The file of a setting under `/proc/sys`: a dot separates parts, and a slash stands for a dot in
/// a part.
pub(super) fn sysctl_path(name: &str) -> PathBuf {
    let turned = name.chars().map(|c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    });
    PathBuf::from("/proc/sys").join(turned.collect::<String>())
}

pub(super) fn polling(interface: &IfName, file: PollingFile) -> PathBuf {
    PathBuf::from(format!("/sys/class/net/{interface}/{}", file.name()))
}

fn queue_files(
    interface: &IfName,
    direction: &str,
    file: &str,
    changed: &[(&str, &str)],
) -> Result<Vec<Command>, String> {
    let command = |(queue, cpus): &(&str, &str)| {
        let path = format!("/sys/class/net/{interface}/queues/{direction}-{queue}/{file}");
        Ok(Command::write(path, mask(cpus)?))
    };
    changed.iter().map(command).collect()
}

/// A list of CPUs as the mask that the kernel takes: `0-3,32` is `1,0000000f`. Empty is no CPU.
pub(super) fn mask(cpus: &str) -> Result<String, String> {
    let mut words = vec![0_u32];
    for part in cpus.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number =
            |text: &str| text.parse::<usize>().map_err(|_| format!("`{cpus}` is no list of CPUs"));
        for cpu in number(first)?..=number(last)? {
            if words.len() <= cpu / 32 {
                words.resize(cpu / 32 + 1, 0);
            }
            words[cpu / 32] |= 1 << (cpu % 32);
        }
    }
    let mut text = String::new();
    for word in words.iter().rev() {
        text += &if text.is_empty() { format!("{word:x}") } else { format!(",{word:08x}") };
    }
    Ok(text)
}

fn list(from: &Value, to: &Value, line: impl Fn(&str, &str) -> String) -> Vec<Command> {
    let words = |value: &Value| match value {
        Value::List(list) => list.clone(),
        _ => Vec::new(),
    };
    let (old, new) = (words(from), words(to));
    let gone = old.iter().filter(|words| !new.contains(words)).map(|words| line("del", words));
    let added = new.iter().filter(|words| !old.contains(words)).map(|words| line("add", words));
    gone.chain(added).map(|line| Command::run(Tool::Ip, &line)).collect()
}

/// All filters go and are made anew, since their preferences are their order.
fn marks(interface: &IfName, from: &Value, to: &Value) -> Vec<Command> {
    let words = |value: &Value| match value {
        Value::List(list) => list.clone(),
        _ => Vec::new(),
    };
    let (old, new) = (words(from), words(to));
    let had = old.iter().any(|words| words == CLSACT);
    let has = new.iter().any(|words| words == CLSACT);
    let filters = |list: Vec<String>| list.into_iter().filter(|words| words != CLSACT);
    let mut lines = Vec::new();
    if has && !had {
        lines.push(format!("qdisc add dev {interface} clsact"));
    }
    if has {
        for words in filters(old) {
            // `pref N protocol P` names it.
            let name: Vec<&str> = words.split(' ').take(4).collect();
            lines.push(format!("filter del dev {interface} egress {}", name.join(" ")));
        }
    }
    lines.extend(filters(new).map(|words| format!("filter add dev {interface} egress {words}")));
    if had && !has {
        lines.push(format!("qdisc del dev {interface} clsact"));
    }
    lines.iter().map(|line| Command::run(Tool::Tc, line)).collect()
}

/// What filters on the way out hang on.
pub(super) const CLSACT: &str = "clsact";

/// The value of [`Setting::Receive`] without classes.
pub(super) const NO_RECEIVE: &str = "none";

/// The rules are replaced in one step, unless the program has to run elsewhere.
fn receive(interface: &IfName, from: &Value, to: &str) -> Vec<Command> {
    let line = |words: &[&str]| Command::Run {
        tool: Tool::Timewire,
        arguments: ["receive"].iter().chain(words).map(|&word| word.to_owned()).collect(),
    };
    let name = interface.as_str();
    let (stop, start) = (line(&["stop", name]), line(&["start", name, "--rules", to]));
    let mode = |rules: &str| {
        let rules: serde_json::Value = serde_json::from_str(rules).unwrap_or_default();
        rules["mode"].as_str().unwrap_or_default().to_owned()
    };
    match from {
        Value::Text(old) if old != NO_RECEIVE && to == NO_RECEIVE => vec![stop],
        _ if to == NO_RECEIVE => Vec::new(),
        Value::Text(old) if old != NO_RECEIVE && mode(old) == mode(to) => {
            vec![line(&["set", name, "--rules", to])]
        }
        Value::Text(old) if old != NO_RECEIVE => vec![stop, start],
        _ => vec![start],
    }
}

fn vlan(
    interface: &IfName,
    from: &Value,
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
    is_there: bool,
) -> Result<Vec<Command>, String> {
    if !is_there {
        return Ok(vec![Command::run(Tool::Ip, &format!("link del dev {interface}"))]);
    }
    let field = |fields: &BTreeMap<String, String>, name| {
        fields.get(name).cloned().ok_or_else(|| format!("its {name} is not known"))
    };
    let (link, id) = (field(new, "link")?, field(new, "id")?);
    let mut maps = String::new();
    for direction in ["egress", "ingress"] {
        let pairs = |fields: &BTreeMap<String, String>| -> BTreeMap<String, String> {
            let of_direction = fields.iter().filter_map(|(name, to)| {
                let from = name.strip_prefix(direction)?.trim();
                Some((from.to_owned(), to.clone()))
            });
            of_direction.collect()
        };
        let (old, new) = (pairs(old), pairs(new));
        // A pair cannot be taken away; one that gives 0 is as good as none, and is not shown.
        let gone = old.keys().filter(|from| !new.contains_key(*from)).map(|from| (from, "0"));
        let set = new.iter().filter(|(from, to)| old.get(*from) != Some(*to));
        let set = set.map(|(from, to)| (from, to.as_str()));
        let words: String = gone.chain(set).map(|(from, to)| format!(" {from}:{to}")).collect();
        if !words.is_empty() {
            maps += &format!(" {direction}-qos-map{words}");
        }
    }
    if matches!(from, Value::Absent) {
        let line = format!("link add link {link} name {interface} type vlan id {id}{maps}");
        return Ok(vec![Command::run(Tool::Ip, &line)]);
    }
    if old.get("link") != Some(&link) || old.get("id") != Some(&id) {
        let (link, id) = (field(old, "link")?, field(old, "id")?);
        return Err(format!("there is an interface of this name: VLAN {id} of {link}"));
    }
    Ok(vec![Command::run(Tool::Ip, &format!("link set dev {interface} type vlan{maps}"))])
}

/// Rules are added and deleted, never changed: one that is there belongs to someone else.
fn steering(
    interface: &IfName,
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) -> Result<Vec<Command>, String> {
    let mut commands = Vec::new();
    for (location, rule) in new {
        match old.get(location) {
            Some(have) if have == rule => {}
            Some(_) => return Err(format!("there is a rule at location {location}")),
            None if rule.starts_with("flow-type") => commands.push(Command::run(
                Tool::Ethtool,
                &format!("-N {interface} {rule} loc {location}"),
            )),
            None => return Err(format!("the rule that was at location {location} is gone")),
        }
    }
    for location in old.keys().filter(|location| !new.contains_key(*location)) {
        let line = format!("-N {interface} delete {location}");
        commands.push(Command::run(Tool::Ethtool, &line));
    }
    Ok(commands)
}

/// What someone put there goes, and takes all below it along; then the new ones are put there one
/// by one.
fn qdiscs(interface: &IfName, from: &Value, to: &Value) -> Result<Vec<Command>, String> {
    let none = QdiscTree::of_kernel();
    let tree = |value| match value {
        Value::Qdiscs(tree) => tree,
        _ => none.clone(),
    };
    let (old, new) = (tree(from.clone()), tree(to.clone()));
    if let Some(why) = old.fault() {
        return Err(format!("what is there cannot be restored exactly: {why}"));
    }
    if let Some(why) = new.fault() {
        return Err(why);
    }
    let mut commands = Vec::new();
    if !old.is_of_kernel() {
        commands.push(Command::run(Tool::Tc, &format!("qdisc del dev {interface} root")));
    }
    commands.extend(new.own().map(|node| Command::Run {
        tool: Tool::Tc,
        arguments: node.arguments(interface.as_str()),
    }));
    Ok(commands)
}

/// The beginning of the names of an interface's threads.
pub(super) fn thread_prefix(interface: &IfName, of: ThreadsOf) -> String {
    match of {
        ThreadsOf::Napi => format!("napi/{interface}-"),
        ThreadsOf::Interrupt => "irq/".to_owned(),
    }
}

fn threads(
    interface: &IfName,
    of: ThreadsOf,
    from: &Value,
    to: &Value,
) -> Result<Vec<Command>, String> {
    let mut commands = Vec::new();
    let mut give = |threads: &str, state: &ThreadState| {
        let threads = threads.to_owned();
        match state.scheduling {
            Some(ThreadScheduling::Foreign(policy)) => {
                return Err(format!(
                    "`{threads}` has the policy {policy}, which cannot be restored"
                ));
            }
            Some(scheduling) => {
                commands.push(Command::Schedule { threads: threads.clone(), scheduling });
            }
            None => {}
        }
        if let Some(cpus) = &state.cpus {
            commands.push(Command::Pin { threads, cpus: cpus.clone() });
        }
        Ok(())
    };
    let named = |name: &str| match name {
        ALL => format!("{}*", thread_prefix(interface, of)),
        name => name.to_owned(),
    };
    match (from, to) {
        // They go, and are found like this if they come back: what the kernel gives to a new one.
        (Value::Threads(old), Value::Absent) => {
            let kernel = ThreadState {
                scheduling: Some(ThreadScheduling::Other(0)),
                cpus: Some(ALL.to_owned()),
            };
            for name in old.keys() {
                give(&named(name), &kernel)?;
            }
        }
        (Value::Absent, Value::Threads(new)) => {
            for (name, state) in new {
                if name == ALL && of == ThreadsOf::Napi {
                    give(&named(name), state)?;
                } else if name == ALL {
                    return Err("its interrupts have no threads".to_owned());
                }
            }
        }
        (Value::Threads(old), Value::Threads(new)) => {
            for (name, new) in new {
                let Some(old) = old.get(name) else { continue };
                if matches!(old.scheduling, Some(ThreadScheduling::Foreign(_))) && old != new {
                    return Err(format!("`{name}` has {old}, which cannot be restored"));
                }
                let scheduling = new.scheduling.filter(|_| new.scheduling != old.scheduling);
                let cpus = new.cpus.clone().filter(|_| new.cpus != old.cpus);
                give(name, &ThreadState { scheduling, cpus })?;
            }
        }
        _ => {}
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> IfName {
        IfName::new("eth0").unwrap()
    }

    fn lines(setting: &Setting, from: &Value, to: &Value) -> Vec<String> {
        let goal = Goal::desired(to.clone());
        commands(setting, from, &goal).unwrap().iter().map(Command::to_string).collect()
    }

    #[test]
    fn t0_masks_are_the_kernels() {
        for (cpus, wanted) in [("", "0"), ("0", "1"), ("0-3,8", "10f"), ("0,32", "1,00000001")] {
            assert_eq!(mask(cpus).unwrap(), wanted);
        }
        assert!(mask("x").is_err());
    }

    #[test]
    fn t0_only_what_differs_is_set() {
        let channels = Setting::Channels { interface: interface() };
        let have = Value::fields([("combined", "4"), ("other", "1")]);
        let want = Value::fields([("combined", "2")]);
        assert_eq!(lines(&channels, &have, &want), ["ethtool -L eth0 combined 2"]);
        assert!(lines(&channels, &have, &Value::fields([("combined", "4")])).is_empty());
        let sysctl = Setting::Sysctl { name: "net.ipv4.conf.eth0/5.rp_filter".to_owned() };
        assert_eq!(
            lines(&sysctl, &Value::text("0"), &Value::text("1")),
            ["echo 1 > /proc/sys/net/ipv4/conf/eth0.5/rp_filter"]
        );
    }

    #[test]
    fn t0_a_map_of_a_vlan_is_restored_by_zeros() {
        let vlan = Setting::Vlan { interface: IfName::new("eth0.5").unwrap() };
        let plain = Value::fields([("link", "eth0"), ("id", "5")]);
        let mapped = Value::fields([("link", "eth0"), ("id", "5"), ("egress 3", "5")]);
        assert_eq!(
            lines(&vlan, &Value::Absent, &mapped),
            ["ip link add link eth0 name eth0.5 type vlan id 5 egress-qos-map 3:5"]
        );
        let undone = "ip link set dev eth0.5 type vlan egress-qos-map 3:0";
        let back = commands(&vlan, &mapped, &Goal::exactly(plain)).unwrap();
        assert_eq!(back[0].to_string(), undone);
        let other = Value::fields([("link", "eth1"), ("id", "5")]);
        assert!(commands_err(&vlan, &other, &mapped).contains("VLAN 5 of eth1"));
    }

    fn commands_err(setting: &Setting, from: &Value, to: &Value) -> String {
        commands(setting, from, &Goal::desired(to.clone())).unwrap_err()
    }

    #[test]
    fn t0_threads_are_given_what_is_wanted_and_get_back_what_they_had() {
        let setting = Setting::Threads { interface: interface(), of: ThreadsOf::Napi };
        let state = |scheduling, cpus: Option<&str>| ThreadState {
            scheduling,
            cpus: cpus.map(str::to_owned),
        };
        let desired = state(Some(ThreadScheduling::Fifo(50)), Some("2"));
        let desired = Value::Threads([(ALL.to_owned(), desired)].into());
        assert_eq!(
            lines(&setting, &Value::Absent, &desired),
            [
                "for t in $(pgrep -x 'napi/eth0-[0-9].*'); do chrt --fifo --pid 50 $t; done",
                "for t in $(pgrep -x 'napi/eth0-[0-9].*'); do taskset -pc 2 $t; done",
            ]
        );
        let had = state(Some(ThreadScheduling::Other(0)), Some("0-3"));
        let had = Value::Threads([("napi/eth0-7".to_owned(), had)].into());
        let has = desired.complete(&had);
        assert_eq!(
            lines(&setting, &has, &had),
            [
                "for t in $(pgrep -x napi/eth0-7); do chrt --other --pid 0 $t; done",
                "for t in $(pgrep -x napi/eth0-7); do taskset -pc 0-3 $t; done",
            ]
        );
        let foreign = state(Some(ThreadScheduling::Foreign(6)), None);
        let foreign = Value::Threads([("napi/eth0-7".to_owned(), foreign)].into());
        assert!(commands_err(&setting, &foreign, &desired).contains("policy 6"));
    }
}
