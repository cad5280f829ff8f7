// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a host is to be like: the file of `timewire apply`, and the `host` of a station. The same
//! text, units and errors as a scenario, other keys.
//!
//! Not here: comparing it with a host and changing that (`timewire-host`), the queueing disciplines
//! that come of it (`timewire_tsn::desired`).

mod address;
mod check;
mod check_nic;
mod clock;
mod groups;
mod groups_check;
mod marks;
mod nic;
mod receive;
mod transmit;
mod value;

pub use address::{AddressPrefix, EtherType, StreamId};
pub use clock::{ClockDaemon, ClockRole, ClockTransport, DesiredClock, SyncLimits, Timestamps};
pub use groups::{
    Group, GroupPolicy, Member, MemberKind, NapiMember, ProcessMember, ProgramMember,
    SoftirqMember, SubGroup,
};
pub use marks::{IpVersion, Mark, MarkProtocol};
pub use nic::{
    Channels, Coalescing, Feature, Interrupts, MacMerge, Napi, QueueCpus, Queues, Rings, RxFilter,
    Scheduling, SchedulingPolicy, Steering, Timestamping, Vlan, VlanPriority,
};
pub use receive::{
    Destination, MAX_CLASS_CPUS, MAX_COMPARISONS, MAX_RECEIVE_CLASSES, MAX_THREAD_CLASSES, Match,
    NORMAL, Receive, ReceiveClass, XdpMode,
};
pub use transmit::{
    Class, DesiredCredit, GateEntry, GateMode, Gates, Hardware, LaunchTime, PreemptionOperation,
    Reservation, Shaper, Slopes, Transmit,
};
pub use value::{CpuList, Integer};

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use timewire_base::IfName;

use super::item::{Item, Reader};
use super::record::record;
use super::tree;
use super::value::{Count, FormatVersion, Name, Text};
use super::{FurtherChecks, ScenarioErrors};

record! {
    /// A host as it is to be.
    pub struct HostFile {
        /// Version of this file format.
        timewire: FormatVersion,
        /// Short name, shown by `status`.
        name: Name,
        /// What it is for, for people.
        description: Text = "''",
        /// What is to be set.
        host: DesiredHost,
    }
}

record! {
    /// What is to be set on a host. What is not named stays as it is.
    pub struct DesiredHost {
        /// Network interfaces.
        interfaces: Vec<DesiredInterface> = "[]",
        /// Settings of the kernel under `/proc/sys`.
        sysctls: Vec<Sysctl> = "[]",
        /// Who runs before whom.
        groups: Option<Group>,
        /// How the clock is kept on time.
        clock: Option<DesiredClock>,
    }
}

record! {
    /// A setting of the kernel under `/proc/sys`.
    pub struct Sysctl {
        /// Its name, as `net.core.netdev_budget`.
        name: Text,
        /// Its value, as the file holds it.
        value: Text,
    }
}

record! {
    /// What is to be set on a network interface.
    pub struct DesiredInterface {
        /// The interface; `apply --interface NAME=REAL` gives it another name.
        name: IfName,
        /// Whether it is up.
        up: Option<bool>,
        /// The longest packet it carries, without the Ethernet header.
        mtu: Option<Count<68, 65535>>,
        /// How many queues it has.
        channels: Option<Channels>,
        /// How many frames its rings hold.
        rings: Option<Rings>,
        /// How long it may wait before it raises an interrupt.
        coalescing: Option<Coalescing>,
        /// Whether the link sleeps between frames (Energy Efficient Ethernet).
        eee: Option<bool>,
        /// Offloads, by the names of `ethtool -k`.
        features: Vec<Feature> = "[]",
        /// Frame preemption of the link.
        mac_merge: Option<MacMerge>,
        /// What the NIC timestamps.
        timestamping: Option<Timestamping>,
        /// How the kernel polls it.
        napi: Option<Napi>,
        /// Where its interrupts are served.
        interrupts: Option<Interrupts>,
        /// Which CPUs take frames of a receive queue further (RPS).
        rps: Vec<QueueCpus> = "[]",
        /// Which CPUs send through a transmit queue (XPS).
        xps: Vec<QueueCpus> = "[]",
        /// Which receive queue a stream is put into, by the NIC.
        steering: Vec<Steering> = "[]",
        /// Sub-interfaces with a VLAN tag.
        vlans: Vec<Vlan> = "[]",
        /// Socket priorities for frames of programs that set none.
        marks: Vec<Mark> = "[]",
        /// Traffic classes, gates, shapers and launch times.
        transmit: Option<Transmit>,
        /// Which frames go before others on receive.
        receive: Option<Receive>,
    }
}

impl HostFile {
    /// Reads and checks a file; `file_name` is for the messages. Callers use `timewire_tsn::file`,
    /// which has the further checks.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place.
    pub fn parse_with(
        further: &dyn FurtherChecks,
        file_name: &str,
        text: &str,
    ) -> Result<HostFile, ScenarioErrors> {
        let failed = |problems| ScenarioErrors::new(file_name, text, problems);
        let root = tree::parse(text).map_err(failed)?;
        let mut reader = Reader::new(root.mark);
        let file = HostFile::read(&root, &mut reader);
        if let Some(file) = &file {
            check::check("host", &file.host, further, &mut reader);
        }
        match file {
            Some(file) if reader.problems.is_empty() => Ok(file),
            _ => Err(failed(reader.problems)),
        }
    }
}

/// Writes the file as [`HostFile::parse_with`] reads it, with all defaults filled in.
impl Serialize for HostFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.emit().serialize(serializer)
    }
}

/// The JSON Schema (draft 2020-12) of the host file, as pretty JSON with a final newline.
pub fn host_schema() -> String {
    let mut schema: Json = HostFile::schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Timewire host");
    schema["$defs"] = json!({"group": Group::schema()});
    let text = serde_json::to_string_pretty(&schema);
    text.expect("invariant: a JSON value with text keys can be written") + "\n"
}
