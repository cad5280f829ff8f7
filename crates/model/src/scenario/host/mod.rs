// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a host is to be like: the `host` of a station in a network file.
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
mod settings;
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

pub(super) use check::check;
pub use settings::HostSettings;

use timewire_base::IfName;

use super::record::record;
use super::value::{Count, Text};

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
