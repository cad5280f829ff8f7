// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One event on the way of a packet, as the kernel's programs and the markers of user programs
//! write it: 48 bytes.
//!
//! **Shape**, little endian (the mirror is `struct tw_event` in `timewire-bpf`):
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | when, u64: nanoseconds of the capture's clock, `CLOCK_MONOTONIC` |
//! | 8..16 | object, u64: what it happened to ([`Hook`]); 0 when nothing is known |
//! | 16..24 | tag, u64: which packet ([`Event::tag`]); 0 when it has none |
//! | 24..32 | aux, u64: by hook |
//! | 32..36 | interface, u32: its index in the station's namespace; 0 for none |
//! | 36..40 | thread, u32: who ran, in the first process namespace; by hook |
//! | 40..42 | CPU, u16 |
//! | 42..44 | flags, u16: [`Flags`] |
//! | 44..46 | length, u16: bytes; by hook |
//! | 46 | hook, u8: the number of [`Hook`] |
//! | 47 | station, u8: index into the capture's stations; 255 for none of them |
//!
//! Objects are addresses of the kernel, disguised: the same within a capture, of no use outside it.

/// **Units**: bytes of an event.
pub const EVENT_BYTES: usize = 48;

/// Where an event was seen.
///
/// `object`, `aux` and `length` of each are said with it; `thread` is the thread that ran, unless
/// something else is said. Names in parentheses are the kernel's tracepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Hook {
    /// A program said so. Object: the number of its point in the capture; aux: the program's own
    /// value; tag: the program's own.
    Marker = 1,
    /// A message was sent, or was not (`sock_send_length`); the system call ends. Object: socket;
    /// length: its bytes; aux: the result, an i64.
    SocketSend = 2,
    /// The stack hands the frame to a device (`net_dev_queue`). Object: packet; aux: the socket
    /// that sent it, 0 for none; length: of the frame with its Ethernet header, as for all hooks
    /// of sending.
    DeviceQueue = 3,
    /// The frame enters a queueing discipline (`qdisc_enqueue`). Object: packet; aux: the handle
    /// of the discipline in the upper 32 bits, frames in it before this one in the lower, or
    /// 0xffff_ffff when it counts them by CPU.
    QdiscEnqueue = 4,
    /// The frame leaves a queueing discipline (`qdisc_dequeue`). As [`Hook::QdiscEnqueue`], with
    /// the frames that are left in it.
    QdiscDequeue = 5,
    /// The driver is given the frame (`net_dev_start_xmit`). Object: packet; aux: the queue.
    DriverStart = 6,
    /// The driver has it (`net_dev_xmit`). Object: packet; aux: what the driver said, an i64.
    DriverDone = 7,
    /// A frame is queued for the CPU that receives it (`netif_rx`). Object: packet; aux: frames
    /// that this CPU's [`Hook::StackReceive`] had seen before, matched or not; length: of the frame
    /// without its Ethernet header, as for all hooks of receiving.
    ReceiveQueue = 8,
    /// A driver hands up a frame from its poll (`napi_gro_receive_entry`). Object: packet; aux: as
    /// [`Hook::ReceiveQueue`].
    NapiReceive = 9,
    /// The stack takes the frame in (`netif_receive_skb`). Object: packet; aux: as
    /// [`Hook::ReceiveQueue`].
    StackReceive = 10,
    /// The packet is in a socket's queue, and its owner is told (`sk_data_ready`). Object: packet;
    /// aux: socket.
    SocketQueue = 11,
    /// A thread is woken (`sched_waking`). Object: the socket it was known to read; aux: its own
    /// number; thread: who wakes it.
    Waking = 12,
    /// A thread gets a CPU (`sched_switch`). Object: the socket it was known to read; aux: the
    /// number of the thread that had the CPU before; thread: it.
    SwitchIn = 13,
    /// A message was received (`sock_recv_length`); the system call ends. Object: socket; length:
    /// its bytes; aux: the result, an i64. Calls that found nothing (`EAGAIN`) are left out.
    SocketReceive = 14,
    /// The packet was dropped (`kfree_skb`). Object: packet; aux: the kernel's reason; length: with
    /// the headers that it had there.
    Drop = 15,
    /// An interrupt's handler begins (`irq_handler_entry`). Object 0; aux: its number.
    IrqEntry = 16,
    /// It ends (`irq_handler_exit`).
    IrqExit = 17,
    /// Deferred work of interrupts begins (`softirq_entry`). Object 0; aux: its kind, 2 to send
    /// and 3 to receive.
    SoftirqEntry = 18,
    /// It ends (`softirq_exit`).
    SoftirqExit = 19,
    /// A driver's poll has ended (`napi_poll`). Object 0; aux: frames in the upper 32 bits, its
    /// budget in the lower. Polls without a frame are left out.
    NapiPoll = 20,
    /// A driver has the frame, and an XDP program of Timewire saw it. Object: 0 (it is no packet
    /// of the stack yet); aux: as [`Hook::ReceiveQueue`].
    Xdp = 21,
    /// A system call that sends begins (`sys_enter`). Object 0; aux: its number; only for threads
    /// that are followed.
    SendEnter = 22,
    /// The kernel tells the sender that the frame has left: its socket asked for timestamps
    /// (`__skb_tstamp_tx`, kind `SCM_TSTAMP_SND`). Object: packet; aux: the NIC's timestamp, an i64
    /// of nanoseconds of the NIC's clock, or 0 where the driver timestamps in software; length: of
    /// the frame.
    TransmitTimestamp = 23,
}

impl Hook {
    /// Every hook, by its number.
    pub const ALL: [Hook; 23] = [
        Hook::Marker,
        Hook::SocketSend,
        Hook::DeviceQueue,
        Hook::QdiscEnqueue,
        Hook::QdiscDequeue,
        Hook::DriverStart,
        Hook::DriverDone,
        Hook::ReceiveQueue,
        Hook::NapiReceive,
        Hook::StackReceive,
        Hook::SocketQueue,
        Hook::Waking,
        Hook::SwitchIn,
        Hook::SocketReceive,
        Hook::Drop,
        Hook::IrqEntry,
        Hook::IrqExit,
        Hook::SoftirqEntry,
        Hook::SoftirqExit,
        Hook::NapiPoll,
        Hook::Xdp,
        Hook::SendEnter,
        Hook::TransmitTimestamp,
    ];

    /// The number in an event: 1 to 23.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The hook of a number; `None` when this version knows none.
    pub fn from_number(number: u8) -> Option<Hook> {
        Hook::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The name used in output and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Hook::Marker => "marker",
            Hook::SocketSend => "socket-send",
            Hook::DeviceQueue => "device-queue",
            Hook::QdiscEnqueue => "qdisc-enqueue",
            Hook::QdiscDequeue => "qdisc-dequeue",
            Hook::DriverStart => "driver-start",
            Hook::DriverDone => "driver-done",
            Hook::ReceiveQueue => "receive-queue",
            Hook::NapiReceive => "napi-receive",
            Hook::StackReceive => "stack-receive",
            Hook::SocketQueue => "socket-queue",
            Hook::Waking => "waking",
            Hook::SwitchIn => "switch-in",
            Hook::SocketReceive => "socket-receive",
            Hook::Drop => "drop",
            Hook::IrqEntry => "irq-entry",
            Hook::IrqExit => "irq-exit",
            Hook::SoftirqEntry => "softirq-entry",
            Hook::SoftirqExit => "softirq-exit",
            Hook::NapiPoll => "napi-poll",
            Hook::Xdp => "xdp",
            Hook::SendEnter => "send-enter",
            Hook::TransmitTimestamp => "transmit-timestamp",
        }
    }

    /// The hook of a name.
    pub fn from_name(name: &str) -> Option<Hook> {
        Hook::ALL.into_iter().find(|hook| hook.name() == name)
    }
}

/// What else is known of an event; bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

impl Flags {
    /// The tag is from the message itself: Timewire's own header (`TWs1`, `TWm1`) or a tag that
    /// the user said where to find. Without it the tag is computed from headers and content.
    pub const TAGGED: Flags = Flags(1);
    /// This hook matched the packet; it was not known before.
    pub const FIRST: Flags = Flags(2);
    /// The packet was not asked for: its event is there since the order within its socket counts.
    pub const OTHER: Flags = Flags(4);
    /// The packet shares its buffer with a copy of it (multicast, capture).
    pub const CLONED: Flags = Flags(8);
    /// It stands for several frames on the wire (GSO, GRO).
    pub const SEGMENTED: Flags = Flags(16);
    /// [`Hook::SocketReceive`]: the message stays in the queue (`MSG_PEEK`).
    pub const PEEKED: Flags = Flags(32);
    /// [`Hook::SocketQueue`]: no other message is in the socket. A collector that sets it says so
    /// in the header (`meta`: `alone` is `yes`).
    pub const ALONE: Flags = Flags(64);

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the capture's clock.
    ///
    /// **Units**: ns.
    pub at_ns: u64,
    /// What it happened to ([`Hook`]).
    pub object: u64,
    /// Which packet it is, the same on every host ([`crate::identity`]): the upper 32 bits are a
    /// hash of what headers say and no bridge changes (IP addresses, protocol, ports; or MAC
    /// addresses, EtherType), the lower one of content; with [`Flags::TAGGED`] the lower are the
    /// sequence number instead, and the lower 16 of the upper, of a talker's messages, the stream.
    /// 0 for none.
    pub tag: u64,
    /// By hook.
    pub aux: u64,
    /// Index of the interface in the station's namespace; 0 for none.
    pub interface: u32,
    /// Who ran.
    pub thread: u32,
    /// On which CPU.
    pub cpu: u16,
    /// What else is known.
    pub flags: Flags,
    /// **Units**: bytes; by hook. Longer than 65535 is 65535.
    pub length: u16,
    /// Where it was seen.
    pub hook: Hook,
    /// Index into the capture's stations, or [`Event::NO_STATION`].
    pub station: u8,
}

impl Event {
    /// The station of an event in a network namespace that is none of the capture's stations.
    pub const NO_STATION: u8 = 255;

    /// The upper half of the tag: whose packet it is.
    pub fn flow(&self) -> u32 {
        u32::try_from(self.tag >> 32).expect("invariant: 32 bits")
    }

    /// The event as the kernel's program writes it.
    pub fn to_bytes(&self) -> [u8; EVENT_BYTES] {
        let mut bytes = [0; EVENT_BYTES];
        bytes[0..8].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.object.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.tag.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.aux.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.interface.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.thread.to_le_bytes());
        bytes[40..42].copy_from_slice(&self.cpu.to_le_bytes());
        bytes[42..44].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[44..46].copy_from_slice(&self.length.to_le_bytes());
        bytes[46] = self.hook.number();
        bytes[47] = self.station;
        bytes
    }

    /// Reads [`Event::to_bytes`]; `None` for a hook this version does not know.
    pub fn from_bytes(bytes: &[u8; EVENT_BYTES]) -> Option<Event> {
        Some(Event {
            at_ns: u64::from_le_bytes(field(bytes, 0)),
            object: u64::from_le_bytes(field(bytes, 8)),
            tag: u64::from_le_bytes(field(bytes, 16)),
            aux: u64::from_le_bytes(field(bytes, 24)),
            interface: u32::from_le_bytes(field(bytes, 32)),
            thread: u32::from_le_bytes(field(bytes, 36)),
            cpu: u16::from_le_bytes(field(bytes, 40)),
            flags: Flags(u16::from_le_bytes(field(bytes, 42))),
            length: u16::from_le_bytes(field(bytes, 44)),
            hook: Hook::from_number(bytes[46])?,
            station: bytes[47],
        })
    }
}

fn field<const N: usize>(bytes: &[u8; EVENT_BYTES], at: usize) -> [u8; N] {
    let slice = bytes[at..].first_chunk::<N>();
    *slice.expect("invariant: the layout is shorter than the bytes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn t0_hooks_have_their_numbers_and_names() {
        for (index, hook) in (1_u8..).zip(Hook::ALL) {
            assert_eq!(hook.number(), index);
            assert_eq!(Hook::from_number(index), Some(hook));
            assert_eq!(Hook::from_name(hook.name()), Some(hook));
        }
        assert_eq!(Hook::from_number(0), None);
        assert_eq!(Hook::from_number(24), None);
    }

    proptest! {
        #[test]
        fn t0_bytes_and_event_are_the_same(bytes in any::<[u8; EVENT_BYTES]>()) {
            match Event::from_bytes(&bytes) {
                Some(event) => prop_assert_eq!(event.to_bytes(), bytes),
                None => prop_assert!(Hook::from_number(bytes[46]).is_none()),
            }
        }
    }
}
