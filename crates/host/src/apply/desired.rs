// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the file of a host to settings and their values.

use std::collections::BTreeMap;

use timewire_base::{IfName, Span};
use timewire_model::scenario::Count;
use timewire_model::scenario::host::{
    CpuList, DesiredHost, DesiredInterface, Napi, QueueCpus, RxFilter, Scheduling,
    SchedulingPolicy, Steering, Vlan,
};

use super::change::{CLSACT, mask};
use super::setting::{
    ALL, PollingFile, Setting, Settings, ThreadScheduling, ThreadState, ThreadsOf, Value,
};
use super::tree::QdiscTree;

/// What a file of a host comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    /// Settings that are changed.
    pub settings: Settings,
    /// What the file asks for besides, which processes of its own do as long as they run; each with
    /// what starts it.
    pub by_hand: Vec<String>,
    /// What works, and perhaps not as expected.
    pub warnings: Vec<String>,
    /// Everything in the file that cannot be done on any host.
    pub errors: Vec<String>,
}

/// Derives settings. `real` gives interfaces of the file the names they have on this host; `file`
/// is the file as the words of a command name it, with its station where it has several.
pub fn wanted(host: &DesiredHost, real: &BTreeMap<IfName, IfName>, file: &str) -> DesiredState {
    let mut wanted = DesiredState::default();
    for sysctl in &host.sysctls {
        let value = sysctl.value.as_str().split_whitespace().collect::<Vec<_>>().join(" ");
        wanted.set(Setting::Sysctl { name: sysctl.name.to_string() }, Value::Text(value));
    }
    for interface in &host.interfaces {
        let name = real.get(&interface.name).unwrap_or(&interface.name).clone();
        wanted.interface(interface, &name, real);
    }
    if host.groups.is_some() {
        wanted.by_hand.push(format!("groups of processes: timewire group start {file}"));
    }
    if host.clock.is_some() {
        wanted.by_hand.push(format!("clock daemons: timewire clock start {file}"));
    }
    wanted
}

impl DesiredState {
    fn set(&mut self, setting: Setting, value: Value) {
        if self.settings.has(&setting) && *self.settings.get(&setting) != value {
            self.errors.push(format!("{setting} is desired twice, with different values"));
        }
        self.settings.set(setting, value);
    }

    fn set_fields<const N: usize>(
        &mut self,
        setting: Setting,
        fields: [(&str, Option<String>); N],
    ) {
        let given = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let fields: Vec<(&str, String)> = given.collect();
        if !fields.is_empty() {
            self.set(setting, Value::fields(fields));
        }
    }

    fn interface(
        &mut self,
        desired: &DesiredInterface,
        name: &IfName,
        real: &BTreeMap<IfName, IfName>,
    ) {
        let own = |make: fn(IfName) -> Setting| make(name.clone());
        if let Some(up) = desired.up {
            let value = Value::text(if up { "up" } else { "down" });
            self.set(own(|interface| Setting::Link { interface }), value);
        }
        if let Some(mtu) = desired.mtu {
            let value = Value::text(mtu.get().to_string());
            self.set(own(|interface| Setting::Mtu { interface }), value);
        }
        self.nic(desired, name);
        if let Some(napi) = &desired.napi {
            self.napi(napi, name);
        }
        if let Some(interrupts) = &desired.interrupts {
            let cpus = Value::fields([(ALL, interrupts.cpus.to_string())]);
            self.set(own(|interface| Setting::Interrupts { interface }), cpus);
            if let Some(scheduling) = &interrupts.scheduling {
                self.threads(name, ThreadsOf::Interrupt, Some(scheduling), None);
            }
        }
        self.queues(own(|interface| Setting::Rps { interface }), &desired.rps);
        self.queues(own(|interface| Setting::Xps { interface }), &desired.xps);
        if !desired.steering.is_empty() {
            self.steering(name, &desired.steering);
        }
        for vlan in &desired.vlans {
            self.vlan(vlan, name, real);
        }
        if !desired.marks.is_empty() {
            let filters = timewire_tsn::desired::MarkFilter::of_marks(&desired.marks);
            let clsact = std::iter::once(CLSACT.to_owned());
            let list = clsact.chain(filters.iter().map(|filter| filter.words()));
            let list = Value::List(list.collect());
            self.set(own(|interface| Setting::Marks { interface }), list);
        }
        if let Some(transmit) = &desired.transmit {
            match timewire_tsn::desired::QdiscTree::of_desired(name, transmit) {
                Ok(tree) => {
                    let warnings = tree.warnings().iter();
                    self.warnings.extend(warnings.map(|warning| format!("{name}: {warning}")));
                    self.tree(name, &tree);
                }
                Err(errors) => self.errors.extend(errors.iter().map(ToString::to_string)),
            }
        }
        if let Some(receive) = &desired.receive {
            let rules = serde_json::to_value(receive).expect("invariant: it has text keys");
            let rules = Value::Text(rules.to_string());
            self.set(own(|interface| Setting::Receive { interface }), rules);
        }
    }

    /// The disciplines of an interface.
    pub fn tree(&mut self, interface: &IfName, tree: &timewire_tsn::desired::QdiscTree) {
        let commands = tree.commands(timewire_tsn::qdisc::InstallVerb::Add);
        match QdiscTree::of_commands(&commands) {
            Ok(tree) => {
                let interface = interface.clone();
                self.set(Setting::Qdiscs { interface }, Value::Qdiscs(tree));
            }
            Err(why) => self.errors.push(why),
        }
    }

    fn nic(&mut self, desired: &DesiredInterface, name: &IfName) {
        let own = |make: fn(IfName) -> Setting| make(name.clone());
        let on_off = |on: bool| if on { "on".to_owned() } else { "off".to_owned() };
        if let Some(channels) = &desired.channels {
            let number = |count: Option<Count<0, 1024>>| count.map(|count| count.get().to_string());
            let fields = [
                ("rx", number(channels.rx)),
                ("tx", number(channels.tx)),
                ("combined", number(channels.combined)),
            ];
            self.set_fields(own(|interface| Setting::Channels { interface }), fields);
        }
        if let Some(rings) = &desired.rings {
            let (rx, tx) =
                (rings.rx.map(|n| n.get().to_string()), rings.tx.map(|n| n.get().to_string()));
            self.set_fields(
                own(|interface| Setting::Rings { interface }),
                [("rx", rx), ("tx", tx)],
            );
        }
        if let Some(coalescing) = &desired.coalescing {
            let fields = [
                ("rx-usecs", self.whole(coalescing.rx, US, "coalescing")),
                ("tx-usecs", self.whole(coalescing.tx, US, "coalescing")),
                ("rx-frames", coalescing.rx_frames.map(|n| n.get().to_string())),
                ("tx-frames", coalescing.tx_frames.map(|n| n.get().to_string())),
                ("adaptive-rx", coalescing.adaptive_rx.map(on_off)),
                ("adaptive-tx", coalescing.adaptive_tx.map(on_off)),
            ];
            self.set_fields(own(|interface| Setting::Coalescing { interface }), fields);
        }
        if let Some(eee) = desired.eee {
            self.set(own(|interface| Setting::Eee { interface }), Value::Text(on_off(eee)));
        }
        if !desired.features.is_empty() {
            let features = desired.features.iter();
            let fields: Vec<(String, String)> =
                features.map(|feature| (feature.name.to_string(), on_off(feature.on))).collect();
            self.set(own(|interface| Setting::Features { interface }), Value::fields(fields));
        }
        if let Some(merge) = &desired.mac_merge {
            let fields = [
                ("pmac-enabled", merge.pmac.map(on_off)),
                ("tx-enabled", merge.tx.map(on_off)),
                ("verify-enabled", merge.verify.map(on_off)),
                ("verify-time", self.whole(merge.verify_time, MS, "mac_merge.verify_time")),
                ("tx-min-frag-size", merge.fragment.map(|n| n.get().to_string())),
            ];
            self.set_fields(own(|interface| Setting::MacMerge { interface }), fields);
        }
        if let Some(timestamps) = &desired.timestamping {
            let tx = if timestamps.tx { "1" } else { "0" };
            let fields = [("tx", tx), ("rx", rx_filter(timestamps.rx))];
            self.set(own(|interface| Setting::Timestamping { interface }), Value::fields(fields));
        }
    }

    /// A time in whole units.
    fn whole(&mut self, span: Option<Span>, unit: Span, key: &str) -> Option<String> {
        let span = span?;
        if span.as_ns() < 0 || span.as_ns() % unit.as_ns() != 0 {
            self.errors.push(format!("{key}: {span} is not a whole number of {unit}"));
        }
        Some((span.as_ns() / unit.as_ns()).to_string())
    }

    fn napi(&mut self, napi: &Napi, name: &IfName) {
        let polling = |file| Setting::Polling { interface: name.clone(), file };
        if let Some(threaded) = napi.threaded {
            let value = Value::text(if threaded { "1" } else { "0" });
            self.set(polling(PollingFile::Threaded), value);
        }
        if let Some(count) = napi.defer_hard_irqs {
            let value = Value::text(count.get().to_string());
            self.set(polling(PollingFile::NapiDeferHardIrqs), value);
        }
        if let Some(value) = self.whole(napi.gro_flush_timeout, NS, "napi.gro_flush_timeout") {
            self.set(polling(PollingFile::GroFlushTimeout), Value::Text(value));
        }
        if napi.scheduling.is_some() || napi.cpus.is_some() {
            self.threads(name, ThreadsOf::Napi, napi.scheduling.as_ref(), napi.cpus.as_ref());
        }
    }

    fn threads(
        &mut self,
        name: &IfName,
        of: ThreadsOf,
        scheduling: Option<&Scheduling>,
        cpus: Option<&CpuList>,
    ) {
        let state = ThreadState {
            scheduling: scheduling.and_then(|scheduling| self.scheduling(scheduling)),
            cpus: cpus.map(ToString::to_string),
        };
        let setting = Setting::Threads { interface: name.clone(), of };
        self.set(setting, Value::Threads([(ALL.to_owned(), state)].into()));
    }

    fn scheduling(&mut self, desired: &Scheduling) -> Option<ThreadScheduling> {
        let priority = desired.priority.and_then(|number| u8::try_from(number.get()).ok());
        match (desired.policy, priority) {
            (SchedulingPolicy::Other, _) => Some(ThreadScheduling::Other(0)),
            (SchedulingPolicy::Fifo, Some(priority)) => Some(ThreadScheduling::Fifo(priority)),
            (SchedulingPolicy::RoundRobin, Some(priority)) => {
                Some(ThreadScheduling::RoundRobin(priority))
            }
            (_, None) => {
                self.errors.push("scheduling: fifo and rr need a priority, 1 to 99".to_owned());
                None
            }
        }
    }

    fn queues(&mut self, setting: Setting, desired: &[QueueCpus]) {
        let name = |queue: &QueueCpus| match queue.queue {
            Some(queue) => queue.get().to_string(),
            None => ALL.to_owned(),
        };
        let fields: Vec<(String, String)> =
            desired.iter().map(|queue| (name(queue), queue.cpus.to_string())).collect();
        if let Some(bad) = fields.iter().find_map(|(_, cpus)| mask(cpus).err()) {
            self.errors.push(bad);
        }
        if !fields.is_empty() {
            self.set(setting, Value::fields(fields));
        }
    }

    fn steering(&mut self, name: &IfName, rules: &[Steering]) {
        let mut fields = BTreeMap::new();
        let taken: Vec<u64> = rules.iter().filter_map(|rule| Some(rule.location?.get())).collect();
        let mut free = (0..).filter(|location| !taken.contains(location));
        for rule in rules {
            let location = rule.location.map(|location| location.get()).or_else(|| free.next());
            match (steering_words(rule), location) {
                (Ok(words), Some(location)) => {
                    if fields.insert(location.to_string(), words).is_some() {
                        self.errors.push(format!("steering: location {location} is there twice"));
                    }
                }
                (Err(why), _) => self.errors.push(format!("steering: {why}")),
                (Ok(_), None) => {}
            }
        }
        self.set(Setting::Steering { interface: name.clone() }, Value::Fields(fields));
    }

    fn vlan(&mut self, vlan: &Vlan, link: &IfName, real: &BTreeMap<IfName, IfName>) {
        let id = vlan.id.get();
        let name = match &vlan.name {
            Some(name) => Ok(real.get(name).unwrap_or(name).clone()),
            None => IfName::new(&format!("{link}.{id}")),
        };
        let interface = match name {
            Ok(name) => name,
            Err(error) => return self.errors.push(format!("VLAN {id} of {link}: {error}")),
        };
        let mut fields =
            vec![("link".to_owned(), link.to_string()), ("id".to_owned(), id.to_string())];
        for pair in &vlan.egress {
            fields.push((format!("egress {}", pair.priority.get()), pair.pcp.get().to_string()));
        }
        for pair in &vlan.ingress {
            fields.push((format!("ingress {}", pair.pcp.get()), pair.priority.get().to_string()));
        }
        // A pair that gives 0 is as good as none, and the kernel does not show it.
        fields.retain(|(name, to)| !(name.contains(' ') && to == "0"));
        self.set(Setting::Vlan { interface }, Value::fields(fields));
    }
}

/// The words of `ethtool -N` but for the location.
fn steering_words(rule: &Steering) -> Result<String, String> {
    let mut words = match rule.udp_port {
        Some(_)
            if rule.destination.is_some() || rule.source.is_some() || rule.ethertype.is_some() =>
        {
            return Err("a rule is about a UDP port or about addresses of NICs".to_owned());
        }
        Some(port) => format!("flow-type udp4 dst-port {}", port.get()),
        None => "flow-type ether".to_owned(),
    };
    if let Some(source) = rule.source {
        words += &format!(" src {source}");
    }
    if let Some(destination) = rule.destination {
        words += &format!(" dst {destination}");
    }
    if let Some(ethertype) = &rule.ethertype {
        words += &format!(" proto {:#06x}", ethertype.get());
    }
    // Tag control information: 3 bits of priority, one that nobody uses, 12 of VLAN. Bits of the
    // mask that are set do not count.
    let pcp = rule.pcp.map_or(0, |pcp| pcp.get() << 13);
    let vlan = rule.vlan.map_or(0, |vlan| vlan.get());
    let open = rule.pcp.map_or(0xe000, |_| 0) | rule.vlan.map_or(0x0fff, |_| 0) | 0x1000;
    if rule.pcp.is_some() || rule.vlan.is_some() {
        words += &format!(" vlan {:#x} m {open:#x}", pcp | vlan);
    }
    Ok(format!("{words} action {}", rule.queue.get()))
}

/// **Source**: `linux v6.12 include/uapi/linux/net_tstamp.h:hwtstamp_rx_filters`.
fn rx_filter(filter: RxFilter) -> &'static str {
    match filter {
        RxFilter::None => "0",
        RxFilter::All => "1",
        RxFilter::PtpV2L4 => "6",
        RxFilter::PtpV2L2 => "9",
        RxFilter::PtpV2 => "12",
    }
}

const NS: Span = Span::from_ns(1);
const US: Span = Span::from_ns(1_000);
const MS: Span = Span::from_ns(1_000_000);
