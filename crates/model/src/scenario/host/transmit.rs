// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an interface does on transmit: traffic classes with queues of their own, gates, shapers
//! and launch times.

use timewire_base::{BitsPerSecond, Span};

use super::value::Integer;
use crate::queue::{Handle, QueueRange};
use crate::scenario::record::{choice, kinds, record};
use crate::scenario::value::{ByteCount, Count};

record! {
    /// Traffic classes, gates, shapers and launch times of an interface. Without classes it is one
    /// queue, which has a shaper or launch times.
    pub struct Transmit {
        /// Handle of the discipline at the root, hexadecimal, 1 to fffe. Without it, 100 where
        /// others stand in its classes, else one that the kernel chooses.
        handle: Option<Handle>,
        /// Traffic classes, of the number 0 first; at most 16.
        classes: Vec<Class> = "[]",
        /// Who keeps the classes apart, when there are no gates.
        hardware: Hardware = "software",
        /// When which class may send.
        gates: Option<Gates>,
        /// What gates and shapers in the kernel add to the length of each frame: 24B is what
        /// Ethernet has on the link and Linux does not count.
        overhead: Option<ByteCount>,
        /// Without classes: the shaper of the interface.
        shaper: Option<Shaper>,
        /// Without classes: launch times of the interface.
        launch_time: Option<LaunchTime>,
    }
}

choice! {
    /// Who keeps classes apart.
    pub enum Hardware {
        /// The kernel alone (`hw 0`).
        Software = "software",
        /// The NIC, by the queues and rates given (`hw 1 mode channel`).
        Offload = "offload",
        /// The NIC, by what it has set up for data centre bridging (`hw 1 mode dcb`).
        Dcb = "dcb",
    }
}

record! {
    /// A traffic class.
    pub struct Class {
        /// Socket priorities of the class; without it, all that no other class has. One class can
        /// be so.
        priorities: Option<Vec<Count<0, 15>>>,
        /// Its queues, as `2@0`: two, from queue 0. With `hardware: dcb` all classes can be
        /// without: the NIC chooses.
        queues: Option<QueueRange>,
        /// Least rate, in the NIC; needs `hardware: offload`.
        rate_min: Option<BitsPerSecond>,
        /// Largest rate, in the NIC; needs `hardware: offload`.
        rate_max: Option<BitsPerSecond>,
        /// Longest packet that is let through, without the Ethernet header; needs gates.
        max_sdu: Option<ByteCount>,
        /// Whether its frames can be interrupted by those of other classes; needs a NIC that does
        /// it, and gates with `mode: full_offload`, or `hardware: offload` or `dcb`.
        preemptible: bool = "false",
        /// The credit-based shaper of each of its queues.
        shaper: Option<Shaper>,
        /// Frames of the class have launch times.
        launch_time: Option<LaunchTime>,
    }
}

record! {
    /// The credit-based shaper.
    pub struct Shaper {
        /// Only of this queue of the class; without it, of each.
        queue: Option<Count<0, 65535>>,
        /// Whether the NIC does it.
        offload: bool = "false",
        /// How its numbers are found.
        credit: DesiredCredit,
    }
}

kinds! {
    /// The numbers of a credit-based shaper.
    pub enum DesiredCredit by "from" {
        /// From what the class reserves, as Annex L of IEEE 802.1Q does.
        Reservation(Reservation) = "reservation",
        /// As they are.
        Slopes(Slopes) = "slopes",
    }
}

record! {
    /// What a class reserves.
    pub struct Reservation {
        /// The rate, with everything that is on the link.
        rate: BitsPerSecond,
        /// Its longest frame on the link, with everything: 24B more than Linux counts.
        frame: ByteCount,
        /// Rate of the link.
        port: BitsPerSecond,
        /// The longest frame of lower classes on the link, with everything.
        interference: ByteCount = "1542B",
        /// For class B: the rate that class A reserves.
        above_rate: Option<BitsPerSecond>,
        /// For class B: the longest frame of class A.
        above_frame: Option<ByteCount>,
    }
}

record! {
    /// The numbers of the shaper.
    pub struct Slopes {
        /// Rate at which credit grows; whole kbit.
        idle_slope: BitsPerSecond,
        /// Rate of the link, whole kbit; credit falls by it less the idle slope.
        port: BitsPerSecond,
        /// Most credit, bytes.
        hi_credit: Integer,
        /// Least credit, bytes; zero or negative.
        lo_credit: Integer,
    }
}

record! {
    /// Frames leave at the time that their program gives with each of them (`etf`).
    pub struct LaunchTime {
        /// Only of this queue of the class; without it, of each.
        queue: Option<Count<0, 65535>>,
        /// How long before it a frame is given to the NIC.
        delta: Span,
        /// Whether the NIC holds the frame until its time.
        offload: bool = "false",
        /// Whether the time is the latest one instead of the only one.
        deadline: bool = "false",
        /// Whether frames of sockets that did not ask for launch times are taken; needed with
        /// gates of `mode: txtime_assist`.
        skip_sock_check: bool = "false",
    }
}

record! {
    /// When which class may send.
    pub struct Gates {
        /// Who opens and closes them.
        mode: GateMode = "software",
        /// When a cycle starts, on the TAI scale since 1970.
        base_time: Span = "0ns",
        /// Length of the cycle: the sum of the entries, and it is that without the key.
        cycle_time: Option<Span>,
        /// By how much the last cycle before a change may be longer.
        cycle_extension: Option<Span>,
        /// With `mode: txtime_assist`: the longest that a frame takes from here to the NIC; more
        /// than the `delta` of the launch times.
        txtime_delay: Option<Span>,
        /// The entries of a cycle, in their order.
        entries: Vec<GateEntry>,
    }
}

choice! {
    /// Who opens and closes the gates.
    pub enum GateMode {
        /// The kernel's timers.
        Software = "software",
        /// The kernel computes launch times, the NIC keeps them (`flags 0x1`).
        TxtimeAssist = "txtime_assist",
        /// The NIC (`flags 0x2`).
        FullOffload = "full_offload",
    }
}

record! {
    /// One entry of a cycle.
    pub struct GateEntry {
        /// Classes whose gates are open.
        open: Vec<Count<0, 15>>,
        /// How long.
        interval: Span,
        /// What is done with preemptible frames, with `mode: full_offload`.
        operation: Option<PreemptionOperation>,
    }
}

choice! {
    /// What an entry does with preemptible frames.
    pub enum PreemptionOperation {
        /// None is sent from here on.
        Hold = "hold",
        /// They are sent again.
        Release = "release",
    }
}
