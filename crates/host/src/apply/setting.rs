// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be set on a host, and what it can be set to. A host, as far as this is concerned, is an
//! ordered map of the two.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use timewire_base::IfName;

use super::tree::QdiscTree;

/// One thing of a host that has a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Setting {
    /// A setting of the kernel under `/proc/sys`: [`Value::Text`].
    Sysctl {
        /// Its name, as `net.core.netdev_budget`.
        name: String,
    },
    /// A sub-interface with a VLAN tag: [`Value::Fields`] `link`, `id`, `egress 3`, `ingress 5`.
    Vlan {
        /// Its name.
        interface: IfName,
    },
    /// Whether an interface is up: [`Value::Text`] `up` or `down`.
    Link {
        /// The interface.
        interface: IfName,
    },
    /// How many queues it has: [`Value::Fields`] `rx`, `tx`, `other`, `combined`.
    Channels {
        /// The interface.
        interface: IfName,
    },
    /// How many frames its rings hold: [`Value::Fields`] `rx`, `rx-mini`, `rx-jumbo`, `tx`.
    Rings {
        /// The interface.
        interface: IfName,
    },
    /// The longest packet it carries: [`Value::Text`].
    Mtu {
        /// The interface.
        interface: IfName,
    },
    /// Its offloads that can be changed: [`Value::Fields`] of `on` and `off`.
    Features {
        /// The interface.
        interface: IfName,
    },
    /// Interrupt coalescing: [`Value::Fields`] by the words of `ethtool -C`.
    Coalescing {
        /// The interface.
        interface: IfName,
    },
    /// Energy Efficient Ethernet: [`Value::Text`] `on` or `off`.
    Eee {
        /// The interface.
        interface: IfName,
    },
    /// Frame preemption of the link: [`Value::Fields`] by the words of `ethtool --set-mm`.
    MacMerge {
        /// The interface.
        interface: IfName,
    },
    /// What the NIC timestamps: [`Value::Fields`] `tx` and `rx`, the numbers of `hwstamp_ctl`.
    Timestamping {
        /// The interface.
        interface: IfName,
    },
    /// Classes of received frames: [`Value::Text`] `none`, or the rules as one line of JSON.
    Receive {
        /// The interface.
        interface: IfName,
    },
    /// Rules that put frames into receive queues: [`Value::Fields`] by their location.
    Steering {
        /// The interface.
        interface: IfName,
    },
    /// Interrupts and polling, a file of the interface under `/sys/class/net`: [`Value::Text`].
    Polling {
        /// The interface.
        interface: IfName,
        /// Which file.
        file: PollingFile,
    },
    /// CPUs that take frames of a receive queue further: [`Value::Fields`] by queue.
    Rps {
        /// The interface.
        interface: IfName,
    },
    /// CPUs that serve its interrupts: [`Value::Fields`] by interrupt.
    Interrupts {
        /// The interface.
        interface: IfName,
    },
    /// Its queueing disciplines: [`Value::Qdiscs`].
    Qdiscs {
        /// The interface.
        interface: IfName,
    },
    /// CPUs that send through a transmit queue: [`Value::Fields`] by queue.
    Xps {
        /// The interface.
        interface: IfName,
    },
    /// Filters that give frames a socket priority on their way out: [`Value::List`] of `clsact`,
    /// and of the words of each filter.
    Marks {
        /// The interface.
        interface: IfName,
    },
    /// Addresses of an interface that someone gave it: [`Value::List`].
    Addresses {
        /// The interface.
        interface: IfName,
    },
    /// Neighbours of an interface that someone wrote down: [`Value::List`].
    Neighbours {
        /// The interface.
        interface: IfName,
    },
    /// Routes over an interface that someone made: [`Value::List`].
    Routes {
        /// The interface.
        interface: IfName,
    },
    /// Scheduling and CPUs of an interface's threads: [`Value::Threads`].
    Threads {
        /// The interface.
        interface: IfName,
        /// Which of its threads.
        of: ThreadsOf,
    },
}

/// Files of an interface about polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PollingFile {
    /// Whether its queues are polled by threads of their own: `0` or `1`.
    Threaded,
    /// Empty polls before interrupts are enabled again.
    NapiDeferHardIrqs,
    /// Nanoseconds that frames may wait to be joined.
    GroFlushTimeout,
}

impl PollingFile {
    /// The name of the file.
    pub fn name(self) -> &'static str {
        match self {
            PollingFile::Threaded => "threaded",
            PollingFile::NapiDeferHardIrqs => "napi_defer_hard_irqs",
            PollingFile::GroFlushTimeout => "gro_flush_timeout",
        }
    }
}

/// Which threads of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadsOf {
    /// Those that poll it.
    Napi,
    /// Those of its interrupts.
    Interrupt,
}

impl Setting {
    /// The interface it is about; `None` for one of the whole host.
    pub fn interface(&self) -> Option<&IfName> {
        match self {
            Setting::Sysctl { .. } => None,
            Setting::Vlan { interface }
            | Setting::Link { interface }
            | Setting::Channels { interface }
            | Setting::Rings { interface }
            | Setting::Mtu { interface }
            | Setting::Features { interface }
            | Setting::Coalescing { interface }
            | Setting::Eee { interface }
            | Setting::MacMerge { interface }
            | Setting::Timestamping { interface }
            | Setting::Receive { interface }
            | Setting::Steering { interface }
            | Setting::Polling { interface, .. }
            | Setting::Rps { interface }
            | Setting::Interrupts { interface }
            | Setting::Qdiscs { interface }
            | Setting::Xps { interface }
            | Setting::Marks { interface }
            | Setting::Addresses { interface }
            | Setting::Neighbours { interface }
            | Setting::Routes { interface }
            | Setting::Threads { interface, .. } => Some(interface),
        }
    }

    /// What else a change of it can change.
    ///
    /// **Source**: `linux v6.12`: `net/core/dev.c:netif_set_real_num_tx_queues`,
    /// `netdev_set_num_tc` (channels and disciplines reset CPUs of queues);
    /// `net/ipv4/fib_frontend.c:fib_inetaddr_event`, `net/ipv6/addrconf.c:addrconf_notify`,
    /// `net/core/neighbour.c:neigh_ifdown` (link,
    /// MTU); `net/8021q/vlan.c:vlan_device_event` (link and MTU of sub-interfaces).
    pub fn may_disturb(&self, upper: &[IfName]) -> Vec<Setting> {
        let Some(interface) = self.interface() else { return Vec::new() };
        let own = |make: fn(IfName) -> Setting| make(interface.clone());
        let link = |interface: &IfName| {
            [
                Setting::Addresses { interface: interface.clone() },
                Setting::Neighbours { interface: interface.clone() },
                Setting::Routes { interface: interface.clone() },
            ]
        };
        match self {
            Setting::Channels { .. } => {
                let qdiscs = own(|interface| Setting::Qdiscs { interface });
                // Disciplines are taken away for it, and put there again.
                let mut all = qdiscs.may_disturb(upper);
                all.push(qdiscs);
                all.push(own(|interface| Setting::Rps { interface }));
                all
            }
            Setting::Qdiscs { .. } => {
                let mut all = Setting::Link { interface: interface.clone() }.may_disturb(upper);
                all.push(own(|interface| Setting::Link { interface }));
                all
            }
            Setting::Link { .. } => {
                let mut all = link(interface).to_vec();
                // A taprio is put there anew, and that forgets CPUs.
                all.push(own(|interface| Setting::Qdiscs { interface }));
                all.push(own(|interface| Setting::Xps { interface }));
                for upper in upper {
                    all.push(Setting::Vlan { interface: upper.clone() });
                    all.push(Setting::Link { interface: upper.clone() });
                    all.extend(link(upper));
                }
                all
            }
            Setting::Mtu { .. } => {
                let mut all = link(interface).to_vec();
                for upper in upper {
                    all.push(Setting::Vlan { interface: upper.clone() });
                    all.push(Setting::Mtu { interface: upper.clone() });
                    all.extend(link(upper));
                }
                all
            }
            // A virtual pair polls with a program or an offload only.
            Setting::Polling { file: PollingFile::Threaded, .. } | Setting::Receive { .. } => {
                let interface = interface.clone();
                vec![Setting::Threads { interface, of: ThreadsOf::Napi }]
            }
            _ => Vec::new(),
        }
    }

    /// What it is, without whose.
    fn what(&self) -> String {
        let name = match self {
            Setting::Sysctl { name } => return name.clone(),
            Setting::Polling { file, .. } => return file.name().replace('_', " "),
            Setting::Vlan { .. } => "VLAN",
            Setting::Link { .. } => "link",
            Setting::Channels { .. } => "channels",
            Setting::Rings { .. } => "rings",
            Setting::Mtu { .. } => "MTU",
            Setting::Features { .. } => "offloads",
            Setting::Coalescing { .. } => "interrupt coalescing",
            Setting::Eee { .. } => "Energy Efficient Ethernet",
            Setting::MacMerge { .. } => "frame preemption",
            Setting::Timestamping { .. } => "timestamping",
            Setting::Receive { .. } => "receive classes",
            Setting::Steering { .. } => "steering rules",
            Setting::Rps { .. } => "CPUs of receive queues",
            Setting::Interrupts { .. } => "CPUs of interrupts",
            Setting::Qdiscs { .. } => "queueing disciplines",
            Setting::Xps { .. } => "CPUs of transmit queues",
            Setting::Marks { .. } => "marks",
            Setting::Addresses { .. } => "addresses",
            Setting::Neighbours { .. } => "neighbours",
            Setting::Routes { .. } => "routes",
            Setting::Threads { of: ThreadsOf::Napi, .. } => "threads that poll",
            Setting::Threads { of: ThreadsOf::Interrupt, .. } => "threads of interrupts",
        };
        name.to_owned()
    }
}

/// `eth0: MTU`, `net.core.netdev_budget`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interface() {
            Some(interface) => write!(f, "{interface}: {}", self.what()),
            None => f.write_str(&self.what()),
        }
    }
}

/// What a setting has, or is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Value {
    /// There is nothing that could have one: no such interface, no such thread.
    Absent,
    /// The host does not say, and why.
    Unknown(String),
    /// One word.
    Text(String),
    /// Several, each with its name. Of a desired configuration: those to be set; `all` stands for
    /// every name.
    Fields(BTreeMap<String, String>),
    /// Several, in the order in which they are made.
    List(Vec<String>),
    /// Queueing disciplines.
    Qdiscs(QdiscTree),
    /// Threads by name. Of a desired configuration: the name `all` stands for every thread.
    Threads(BTreeMap<String, ThreadState>),
}

/// The scheduling of a thread. Of a desired configuration: `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadState {
    /// Policy and priority or niceness.
    pub scheduling: Option<ThreadScheduling>,
    /// The CPUs, as `0-3,8`.
    pub cpus: Option<String>,
}

/// Policy of a thread, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadScheduling {
    /// `SCHED_OTHER`, with the niceness.
    Other(i32),
    /// `SCHED_FIFO`, with the priority.
    Fifo(u8),
    /// `SCHED_RR`, with the priority.
    RoundRobin(u8),
    /// Another policy, which can neither be desired nor restored.
    Foreign(u32),
}

/// The name in a desired configuration that stands for every name.
pub const ALL: &str = "all";

impl Value {
    /// A word.
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// Fields of pairs.
    pub fn fields<K: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Value {
        Value::Fields(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// Of fields, those whose names the other value has as well.
    pub fn common(&self, other: &Value) -> Value {
        let (Value::Fields(one), Value::Fields(two)) = (self, other) else { return self.clone() };
        let both = one.iter().filter(|(name, _)| two.contains_key(*name));
        Value::fields(both.map(|(name, value)| (name.clone(), value.clone())))
    }

    /// This and another value; of fields, those that differ.
    pub fn differing(&self, other: &Value) -> (Value, Value) {
        let (Value::Fields(one), Value::Fields(two)) = (self, other) else {
            return (self.clone(), other.clone());
        };
        let only = |fields: &BTreeMap<String, String>, than: &BTreeMap<String, String>| {
            let differs = fields.iter().filter(|(name, value)| than.get(*name) != Some(*value));
            Value::fields(differs.map(|(name, value)| (name.clone(), value.clone())))
        };
        (only(one, two), only(two, one))
    }

    /// Whether this is the same as another value. What the kernel puts below or in place of the
    /// disciplines of others is its own affair, and depends on whether the link was ever up.
    pub fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Qdiscs(one), Value::Qdiscs(two)) => {
                one.own().eq(two.own()) && one.holds == two.holds
            }
            (one, two) => one == two,
        }
    }

    /// Whether the interface or thread is there and says what it has.
    pub fn is_known(&self) -> bool {
        !matches!(self, Value::Absent | Value::Unknown(_))
    }

    /// What the whole value is, when this is desired of a setting that has `have`.
    pub fn complete(&self, have: &Value) -> Value {
        match (self, have) {
            (Value::Fields(want), Value::Fields(have)) => {
                let mut whole = have.clone();
                if let Some(value) = want.get(ALL) {
                    whole.values_mut().for_each(|old| old.clone_from(value));
                }
                let named = want.iter().filter(|(name, _)| *name != ALL);
                whole.extend(named.map(|(name, value)| (name.clone(), value.clone())));
                Value::Fields(whole)
            }
            (Value::Threads(want), Value::Threads(have)) => {
                let mut whole = have.clone();
                for (name, state) in &mut whole {
                    let Some(want) = want.get(name).or_else(|| want.get(ALL)) else { continue };
                    state.scheduling = want.scheduling.or(state.scheduling);
                    state.cpus = want.cpus.clone().or_else(|| state.cpus.take());
                }
                Value::Threads(whole)
            }
            (want, _) => want.clone(),
        }
    }

    /// Whether a setting that has `have` is as this asks.
    pub fn is_met_by(&self, have: &Value) -> bool {
        match (self, have) {
            (Value::Qdiscs(want), Value::Qdiscs(have)) => want.is_met_by(have),
            (Value::Fields(want), Value::Fields(have)) => {
                let is_met = |(name, want): (&String, &String)| match name.as_str() {
                    ALL => have.values().all(|have| have == want),
                    _ => have.get(name) == Some(want),
                };
                want.iter().all(is_met)
            }
            (want, have) => want.complete(have) == *have,
        }
    }
}

/// A host, or a part of it, or a desired configuration: settings and their values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Pair>", into = "Vec<Pair>")]
pub struct Settings(BTreeMap<Setting, Value>);

/// A setting and its value, as a file keeps them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pair {
    setting: Setting,
    value: Value,
}

impl From<Vec<Pair>> for Settings {
    fn from(pairs: Vec<Pair>) -> Settings {
        pairs.into_iter().map(|pair| (pair.setting, pair.value)).collect()
    }
}

impl From<Settings> for Vec<Pair> {
    fn from(settings: Settings) -> Vec<Pair> {
        settings.0.into_iter().map(|(setting, value)| Pair { setting, value }).collect()
    }
}

impl FromIterator<(Setting, Value)> for Settings {
    fn from_iter<T: IntoIterator<Item = (Setting, Value)>>(pairs: T) -> Settings {
        Settings(pairs.into_iter().collect())
    }
}

impl Settings {
    /// None.
    pub fn new() -> Settings {
        Settings::default()
    }

    /// What a setting has; [`Value::Absent`] when it is not among these.
    pub fn get(&self, setting: &Setting) -> &Value {
        self.0.get(setting).unwrap_or(&Value::Absent)
    }

    /// Whether the setting is among these.
    pub fn has(&self, setting: &Setting) -> bool {
        self.0.contains_key(setting)
    }

    /// Sets one.
    pub fn set(&mut self, setting: Setting, value: Value) {
        self.0.insert(setting, value);
    }

    /// Those for which it holds.
    pub fn only(&self, holds: impl Fn(&Setting) -> bool) -> Settings {
        let kept = self.0.iter().filter(|(setting, _)| holds(setting));
        kept.map(|(setting, value)| (setting.clone(), value.clone())).collect()
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Setting, &Value)> {
        self.0.iter()
    }

    /// The settings without their values.
    pub fn keys(&self) -> impl Iterator<Item = &Setting> {
        self.0.keys()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Those of `self` that `other` has otherwise.
    pub fn differences(&self, other: &Settings) -> Vec<Difference> {
        let different = self.0.iter().filter(|(setting, value)| !value.is_same(other.get(setting)));
        different
            .map(|(setting, value)| Difference {
                setting: setting.clone(),
                was: value.clone(),
                is: other.get(setting).clone(),
            })
            .collect()
    }
}

/// A setting that has not the value that it should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Which.
    pub setting: Setting,
    /// What it had, or should have.
    pub was: Value,
    /// What it has.
    pub is: Value,
}

/// `eth0: MTU was 1500, is 9000`; of fields, those that differ.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (was, is) = self.was.differing(&self.is);
        write!(f, "{} was {was}, is {is}", self.setting)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Absent => f.write_str("not there"),
            Value::Unknown(why) => write!(f, "unknown ({why})"),
            Value::Text(text) if text.is_empty() => f.write_str("empty"),
            Value::Text(text) => f.write_str(text),
            Value::Fields(fields) if fields.is_empty() => f.write_str("none"),
            Value::Fields(fields) => {
                let value = |value: &str| if value.is_empty() { "none" } else { value }.to_owned();
                let words: Vec<_> =
                    fields.iter().map(|(name, text)| format!("{name} {}", value(text))).collect();
                f.write_str(&words.join(", "))
            }
            Value::List(list) if list.is_empty() => f.write_str("none"),
            Value::List(list) => f.write_str(&list.join(", ")),
            Value::Qdiscs(tree) => tree.fmt(f),
            Value::Threads(threads) if threads.is_empty() => f.write_str("none"),
            Value::Threads(threads) => {
                let words: Vec<_> =
                    threads.iter().map(|(name, state)| format!("{name} {state}")).collect();
                f.write_str(&words.join(", "))
            }
        }
    }
}

impl fmt::Display for ThreadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheduling {
            Some(ThreadScheduling::Other(nice)) => write!(f, "other (nice {nice})")?,
            Some(ThreadScheduling::Fifo(priority)) => write!(f, "fifo {priority}")?,
            Some(ThreadScheduling::RoundRobin(priority)) => write!(f, "rr {priority}")?,
            Some(ThreadScheduling::Foreign(policy)) => write!(f, "policy {policy}")?,
            None => f.write_str("as it is")?,
        }
        match &self.cpus {
            Some(cpus) => write!(f, " on CPUs {cpus}"),
            None => Ok(()),
        }
    }
}
