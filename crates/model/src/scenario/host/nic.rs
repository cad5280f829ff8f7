// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be set on a NIC and on the way from it to the stack.

use timewire_base::wire::MacAddress;
use timewire_base::{IfName, Port, Span};

use super::address::EtherType;
use super::value::CpuList;
use crate::scenario::record::{choice, record};
use crate::scenario::value::{Count, Text};

record! {
    /// How many queues an interface has.
    pub struct Channels {
        /// Receive queues.
        rx: Option<Queues>,
        /// Transmit queues.
        tx: Option<Queues>,
        /// Queues of both kinds with one interrupt.
        combined: Option<Queues>,
    }
}

/// A number of queues.
pub type Queues = Count<0, 1024>;

record! {
    /// How many frames the rings of a NIC hold.
    pub struct Rings {
        /// Receive.
        rx: Option<Count<1, 1048576>>,
        /// Transmit.
        tx: Option<Count<1, 1048576>>,
    }
}

record! {
    /// How long a NIC may wait before it raises an interrupt. Whole microseconds.
    pub struct Coalescing {
        /// After a frame was received.
        rx: Option<Span>,
        /// After a frame was sent.
        tx: Option<Span>,
        /// At most so many received frames wait.
        rx_frames: Option<Count<0, 65536>>,
        /// At most so many sent frames wait.
        tx_frames: Option<Count<0, 65536>>,
        /// Whether the NIC changes the receive times by itself.
        adaptive_rx: Option<bool>,
        /// Whether the NIC changes the transmit times by itself.
        adaptive_tx: Option<bool>,
    }
}

record! {
    /// An offload.
    pub struct Feature {
        /// Its name, as `ethtool -k` shows it.
        name: Text,
        /// Whether it is on.
        on: bool,
    }
}

record! {
    /// Frame preemption of a link (IEEE 802.3 clause 99), as `ethtool --set-mm` takes it.
    pub struct MacMerge {
        /// Whether the NIC takes preemptible frames.
        pmac: Option<bool>,
        /// Whether the NIC may preempt.
        tx: Option<bool>,
        /// Whether it first asks the other end.
        verify: Option<bool>,
        /// How long it waits for the answer. Whole milliseconds, 1ms to 128ms.
        verify_time: Option<Span>,
        /// Shortest fragment but the last, without the checksum: 60, 124, 188 or 252 bytes.
        fragment: Option<Count<60, 252>>,
    }
}

record! {
    /// What a NIC timestamps.
    pub struct Timestamping {
        /// Whether it timestamps sent frames that ask for it.
        tx: bool = "true",
        /// Which received frames it timestamps; a NIC may timestamp more than asked for.
        rx: RxFilter = "all",
    }
}

choice! {
    /// Which received frames a NIC timestamps.
    pub enum RxFilter {
        /// None.
        None = "none",
        /// All.
        All = "all",
        /// Event messages of PTP version 2 over UDP.
        PtpV2L4 = "ptpv2-l4-event",
        /// Event messages of PTP version 2 over Ethernet.
        PtpV2L2 = "ptpv2-l2-event",
        /// Event messages of PTP version 2 over both.
        PtpV2 = "ptpv2-event",
    }
}

impl RxFilter {
    /// This filter and those that timestamp everything that it timestamps, the narrowest first.
    pub fn covering(self) -> &'static [RxFilter] {
        match self {
            RxFilter::None => &[RxFilter::None],
            RxFilter::All => &[RxFilter::All],
            RxFilter::PtpV2 => &[RxFilter::PtpV2, RxFilter::All],
            RxFilter::PtpV2L4 => &[RxFilter::PtpV2L4, RxFilter::PtpV2, RxFilter::All],
            RxFilter::PtpV2L2 => &[RxFilter::PtpV2L2, RxFilter::PtpV2, RxFilter::All],
        }
    }

    /// The narrowest filter that covers this one among those that a NIC has, by their words.
    pub fn covered_by(self, has: &[String]) -> Option<RxFilter> {
        let all = self.covering().iter().copied();
        { all }.find(|one| *one == RxFilter::None || has.iter().any(|word| word == one.word()))
    }
}

record! {
    /// How the kernel polls a NIC.
    pub struct Napi {
        /// Whether each queue is polled by a thread of its own.
        threaded: Option<bool>,
        /// How its threads are scheduled; needs `threaded: true`.
        scheduling: Option<Scheduling>,
        /// The CPUs of its threads; needs `threaded: true`.
        cpus: Option<CpuList>,
        /// How many empty polls are done before interrupts are enabled again; needs
        /// `gro_flush_timeout`.
        defer_hard_irqs: Option<Count<0, 1000000>>,
        /// How long frames may wait to be joined, and the time between those polls.
        gro_flush_timeout: Option<Span>,
    }
}

record! {
    /// How a thread is scheduled.
    pub struct Scheduling {
        /// The policy.
        policy: SchedulingPolicy,
        /// Real-time priority, 1 to 99; of `fifo` and `rr`, and needed there.
        priority: Option<Count<1, 99>>,
    }
}

choice! {
    /// The policy of a thread.
    pub enum SchedulingPolicy {
        /// `SCHED_OTHER`.
        Other = "other",
        /// `SCHED_FIFO`.
        Fifo = "fifo",
        /// `SCHED_RR`.
        RoundRobin = "rr",
    }
}

record! {
    /// Where the interrupts of a NIC are served.
    pub struct Interrupts {
        /// The CPUs.
        cpus: CpuList,
        /// How their threads are scheduled, where the kernel has such threads.
        scheduling: Option<Scheduling>,
    }
}

record! {
    /// CPUs of a queue.
    pub struct QueueCpus {
        /// The queue; without it, all.
        queue: Option<Count<0, 1023>>,
        /// The CPUs.
        cpus: CpuList,
    }
}

record! {
    /// A rule that puts received frames into a queue, in the NIC (`ethtool -N`).
    pub struct Steering {
        /// The receive queue.
        queue: Count<0, 1023>,
        /// Destination address of the frame.
        destination: Option<MacAddress>,
        /// Source address of the frame.
        source: Option<MacAddress>,
        /// EtherType, such as `0x88f7`, of no IP.
        ethertype: Option<EtherType>,
        /// VLAN priority.
        pcp: Option<Count<0, 7>>,
        /// VLAN.
        vlan: Option<Count<1, 4094>>,
        /// UDP port that the frame goes to.
        udp_port: Option<Port>,
        /// Where the rule stands in the NIC's table; without it, the NIC chooses.
        location: Option<Count<0, 65535>>,
    }
}

record! {
    /// A sub-interface whose frames have a VLAN tag.
    pub struct Vlan {
        /// VLAN.
        id: Count<1, 4094>,
        /// Its name; without it, the interface's with a dot and the VLAN.
        name: Option<IfName>,
        /// PCP of frames by their socket priority; others have 0.
        egress: Vec<VlanPriority> = "[]",
        /// Priority that the kernel gives to received frames by their PCP; others have 0.
        ingress: Vec<VlanPriority> = "[]",
    }
}

impl Vlan {
    /// Its name as a sub-interface of this one; `None` when that is longer than 15 bytes.
    pub fn name_on(&self, interface: &IfName) -> Option<IfName> {
        let name = self.name.clone();
        name.or_else(|| IfName::new(&format!("{interface}.{}", self.id.get())).ok())
    }
}

record! {
    /// A pair of a map between priorities of the kernel and PCP.
    pub struct VlanPriority {
        /// Priority in the kernel.
        priority: Count<0, 15>,
        /// Priority code point in the tag.
        pcp: Count<0, 7>,
    }
}
