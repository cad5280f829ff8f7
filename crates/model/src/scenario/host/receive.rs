// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which received frames go before others, and where the others wait.

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use timewire_base::wire::MacAddress;
use timewire_base::{Port, Priority};

use super::address::{AddressPrefix, EtherType, StreamId};
use super::value::CpuList;
use super::{Scheduling, SchedulingPolicy};
use crate::scenario::change::find;
use crate::scenario::item::{Item, Reader};
use crate::scenario::record::{choice, record};
use crate::scenario::value::{Count, Name};
use crate::scenario::{ScenarioErrors, tree};

record! {
    /// Classes of received frames.
    pub struct Receive {
        /// Where the program runs that tells them apart.
        mode: XdpMode = "auto",
        /// Classes; a frame belongs to the first of which a match fits, tried by priority and then
        /// as they are listed.
        classes: Vec<ReceiveClass> = "[]",
        /// CPUs whose threads take all other frames further; without it, they go on at once.
        normal_cpus: Option<CpuList>,
    }
}

choice! {
    /// Where an XDP program runs.
    pub enum XdpMode {
        /// In the driver where it can, or else in the kernel's generic layer.
        Auto = "auto",
        /// In the driver.
        Native = "native",
        /// In the kernel's generic layer.
        Generic = "generic",
    }
}

record! {
    /// A class of received frames.
    pub struct ReceiveClass {
        /// Its name, in counters.
        name: Name,
        /// Its priority; a lower number is tried first, and its threads run first.
        priority: Priority,
        /// What its frames look like; one match that fits is enough.
        matches: Vec<Match>,
        /// Where its frames go.
        to: Destination = "kernel",
        /// With `to: threads`: the CPUs of the threads; all frames of a flow go to the same.
        cpus: Option<CpuList>,
        /// With `to: threads`: how the threads are scheduled; without it, by SCHED_FIFO with 50
        /// less the class' priority.
        scheduling: Option<Scheduling>,
    }
}

choice! {
    /// Where frames of a class go.
    pub enum Destination {
        /// To the kernel's stack, at once.
        Kernel = "kernel",
        /// To an AF_XDP socket of their queue; while there is none, to the kernel.
        Socket = "socket",
        /// To the kernel's stack, by threads on chosen CPUs.
        Threads = "threads",
    }
}

record! {
    /// What frames look like: everything that is named must fit.
    pub struct Match {
        /// UDP or TCP port, of the source or the destination.
        port: Option<Port>,
        /// Destination port.
        to_port: Option<Port>,
        /// Source port.
        from_port: Option<Port>,
        /// IPv4 or IPv6 address of the source or the destination, or a prefix as `10.77.0.0/24`.
        address: Option<AddressPrefix>,
        /// Address or prefix of the destination.
        to_address: Option<AddressPrefix>,
        /// Address or prefix of the source.
        from_address: Option<AddressPrefix>,
        /// Priority code point of the outer VLAN tag.
        pcp: Option<Count<0, 7>>,
        /// VLAN of the outer tag.
        vlan: Option<Count<1, 4094>>,
        /// Differentiated services code point.
        dscp: Option<Count<0, 63>>,
        /// EtherType behind up to two VLAN tags, such as `0x88f7`.
        ethertype: Option<EtherType>,
        /// Address of the NIC, or of the group of NICs, that the frame goes to. With `vlan` it is
        /// the null stream identification of IEEE 802.1CB.
        destination: Option<MacAddress>,
        /// Address of the NIC that the frame comes from.
        source: Option<MacAddress>,
        /// Stream of AVTP (IEEE 1722): 16 hexadecimal digits.
        stream: Option<StreamId>,
    }
}

impl Receive {
    /// Reads classes that were given one by one, as an interface of `host` has them under
    /// `receive`.
    ///
    /// **Errors**: everything that is wrong, as for a file of that name with `receive` alone.
    pub fn from_json(file_name: &str, value: &Json) -> Result<Receive, ScenarioErrors> {
        let text = json!({"receive": value}).to_string();
        let failed = |problems| ScenarioErrors::new(file_name, &text, problems);
        let root = tree::parse(&text).map_err(failed)?;
        let mut reader = Reader::new(root.mark);
        let node = find(&root, &["receive"]);
        let receive = node.and_then(|node| reader.read_key::<Receive>("receive", node));
        if let Some(receive) = &receive {
            check("receive", receive, &mut reader);
        }
        match receive {
            Some(receive) if reader.problems.is_empty() => Ok(receive),
            _ => Err(failed(reader.problems)),
        }
    }

    /// The classes in the order in which they are tried.
    pub fn in_order(&self) -> Vec<&ReceiveClass> {
        let mut classes: Vec<_> = self.classes.iter().collect();
        classes.sort_by_key(|class| class.priority);
        classes
    }

    /// The CPUs of threads for frames without a class.
    pub fn normal_cpus(&self) -> Vec<u32> {
        self.normal_cpus.iter().flat_map(CpuList::iter).collect()
    }

    /// Whether a class looks at VLAN tags.
    pub fn looks_at_tags(&self) -> bool {
        let mut matches = self.classes.iter().flat_map(|class| &class.matches);
        matches.any(|one| one.pcp.is_some() || one.vlan.is_some())
    }
}

/// Writes it as [`Receive::from_json`] takes it, with all defaults filled in.
impl Serialize for Receive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.emit().serialize(serializer)
    }
}

impl ReceiveClass {
    /// The CPUs of its threads.
    pub fn cpus(&self) -> Vec<u32> {
        self.cpus.iter().flat_map(CpuList::iter).collect()
    }

    /// How its threads are scheduled: the policy and, of the real-time ones, the priority.
    pub fn thread_scheduling(&self) -> (SchedulingPolicy, u8) {
        let own = 50 - self.priority.get();
        match &self.scheduling {
            None => (SchedulingPolicy::Fifo, own),
            Some(wanted) => {
                let priority = wanted.priority.and_then(|it| u8::try_from(it.get()).ok());
                (wanted.policy, priority.unwrap_or(0))
            }
        }
    }
}

impl Match {
    /// How many comparisons it takes: what may be at either end is looked for at each.
    pub fn comparisons(&self) -> usize {
        (1 + usize::from(self.port.is_some())) * (1 + usize::from(self.address.is_some()))
    }

    fn is_empty(&self) -> bool {
        self.emit() == Some(json!({}))
    }

    /// What is wrong with it, if anything: the key, the message and a hint.
    fn doubt(&self) -> Option<(&'static str, String, &'static str)> {
        const FITS_ANYTHING: &str = "name at least one thing that its frames have";
        const ONE_OR_OTHER: &str = "name either both ends, or one of them";
        if self.is_empty() {
            return Some(("", "a match without keys fits every frame".into(), FITS_ANYTHING));
        }
        if self.port.is_some() && (self.to_port.or(self.from_port)).is_some() {
            let message = "`port` is that of either end, beside one of a certain end";
            return Some(("port", message.into(), ONE_OR_OTHER));
        }
        if self.address.is_some() && (self.to_address.or(self.from_address)).is_some() {
            let message = "`address` is that of either end, beside one of a certain end";
            return Some(("address", message.into(), ONE_OR_OTHER));
        }
        let addresses = [self.address, self.to_address, self.from_address];
        let mut versions = addresses.iter().flatten().map(|it| it.address().is_ipv4());
        let version = versions.next();
        if versions.any(|other| Some(other) != version) {
            let message = "no frame goes from an IPv4 to an IPv6 address or back".to_owned();
            return Some(("from_address", message, "write addresses of one version"));
        }
        let needs: [(&str, bool, &[u16]); 5] = [
            ("stream", self.stream.is_some(), &[AVTP]),
            ("address", version == Some(true), &[IPV4]),
            ("address", version == Some(false), &[IPV6]),
            ("dscp", self.dscp.is_some(), &[IPV4, IPV6]),
            ("port", self.port.or(self.to_port).or(self.from_port).is_some(), &[IPV4, IPV6]),
        ];
        let ethertype = self.ethertype.map(EtherType::get);
        let is_stream = self.stream.is_some();
        for (key, is_given, only) in needs.iter().filter(|need| need.1) {
            let other = ethertype.filter(|it| !only.contains(it));
            let other = other.or((is_stream && !only.contains(&AVTP)).then_some(AVTP));
            if let Some(other) = other.filter(|_| *is_given) {
                let message = format!("a frame of EtherType {other:#06x} has no {key}");
                return Some(("ethertype", message, "leave one of them out"));
            }
        }
        None
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const AVTP: u16 = 0x22f0;

/// Most classes.
pub const MAX_RECEIVE_CLASSES: usize = 32;
/// Most classes with threads of their own.
pub const MAX_THREAD_CLASSES: usize = 7;
/// Most comparisons of all matches together.
pub const MAX_COMPARISONS: usize = 128;
/// Most CPUs of a class.
pub const MAX_CLASS_CPUS: usize = 16;
/// The longest it can be as JSON, in bytes.
const MAX_TEXT: usize = 32_768;

/// Compares the keys of `receive` with each other.
pub(super) fn check(path: &str, receive: &Receive, reader: &mut Reader) {
    let classes = &receive.classes;
    if classes.is_empty() && receive.normal_cpus.is_none() {
        let hint = "name at least one class, or `normal_cpus`, or leave `receive` out";
        reader.fail_at(&format!("{path}.classes"), "there is no class".into(), hint);
    }
    let with_threads = classes.iter().filter(|class| class.to == Destination::Threads).count();
    let comparisons: usize =
        classes.iter().flat_map(|class| &class.matches).map(Match::comparisons).sum();
    for (count, max, what) in [
        (classes.len(), MAX_RECEIVE_CLASSES, "classes"),
        (with_threads, MAX_THREAD_CLASSES, "classes with threads of their own"),
        (comparisons, MAX_COMPARISONS, "comparisons"),
    ] {
        if count > max {
            let hint = "each `port` and each `address` of either end doubles a match's comparisons";
            let hint = if what == "comparisons" { hint } else { "join some" };
            let message = format!("{count} {what} are more than {max}");
            reader.fail_at(&format!("{path}.classes"), message, hint);
        }
    }
    let length = receive.emit().map_or(0, |it| it.to_string().len());
    if length > MAX_TEXT {
        let message = format!("it takes {length} bytes, of {MAX_TEXT}");
        reader.fail_at(path, message, "write fewer matches");
    }
    check_cpus(&format!("{path}.normal_cpus"), receive.normal_cpus.as_ref(), reader);
    for (i, class) in classes.iter().enumerate() {
        let path = format!("{path}.classes[{i}]");
        if classes[..i].iter().any(|before| before.name == class.name) {
            let message = format!("there is a class {} before", class.name);
            reader.fail_at(&format!("{path}.name"), message, "give it another name");
        }
        if class.name.as_str() == NORMAL {
            let message = format!("`{NORMAL}` are the frames of no class");
            reader.fail_at(&format!("{path}.name"), message, "give it another name");
        }
        check_class(&path, class, reader);
    }
}

/// The name of frames without a class, in counters.
pub const NORMAL: &str = "normal";

fn check_class(path: &str, class: &ReceiveClass, reader: &mut Reader) {
    if class.matches.is_empty() {
        let hint = "write at least one, such as {port: 15001}";
        reader.fail_at(&format!("{path}.matches"), "no frame belongs to it".into(), hint);
    }
    for (i, one) in class.matches.iter().enumerate() {
        if let Some((key, message, hint)) = one.doubt() {
            let dot = if key.is_empty() { "" } else { "." };
            reader.fail_at(&format!("{path}.matches[{i}]{dot}{key}"), message, hint);
        }
    }
    check_cpus(&format!("{path}.cpus"), class.cpus.as_ref(), reader);
    if class.to == Destination::Threads {
        if class.cpus.is_none() {
            let message = "its threads have no CPUs".to_owned();
            reader.fail_at(&format!("{path}.cpus"), message, "write cpus, such as `cpus: 2`");
        }
    } else {
        for (key, is_given) in
            [("cpus", class.cpus.is_some()), ("scheduling", class.scheduling.is_some())]
        {
            if is_given {
                let message = format!("only a class with `to: threads` has {key}");
                reader.fail_at(&format!("{path}.{key}"), message, "write `to: threads`, or remove");
            }
        }
    }
    let Some(scheduling) = &class.scheduling else { return };
    let real_time =
        matches!(scheduling.policy, SchedulingPolicy::Fifo | SchedulingPolicy::RoundRobin);
    let key = format!("{path}.scheduling.priority");
    match (real_time, scheduling.priority) {
        (true, None) => {
            let message = "a real-time policy needs a priority".to_owned();
            reader.fail_at(&key, message, "write `priority: 50`, for instance");
        }
        (false, Some(_)) => {
            let message = "this policy has no priority".to_owned();
            reader.fail_at(&key, message, "write `policy: fifo`, or remove the priority");
        }
        _ => {}
    }
}

fn check_cpus(key: &str, cpus: Option<&CpuList>, reader: &mut Reader) {
    let count = cpus.map_or(0, |cpus| cpus.iter().count());
    if count > MAX_CLASS_CPUS {
        let message = format!("{count} CPUs are more than {MAX_CLASS_CPUS}");
        reader.fail_at(key, message, "name fewer");
    }
}
