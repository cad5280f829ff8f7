// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls Timewire makes, one function each, with owned descriptors and `io::Result`.
//! All unsafe code of the data path lives here.
//!
//! Linux only. Functions say which capability they need.
//!
//! Not here: eBPF loading (`timewire-bpf`), what the calls are put together to
//! (`timewire-datapath`, `timewire-host`).

pub mod beneath;
mod busy_poll;
pub mod children;
pub mod clock;
pub mod cpu;
mod direct;
pub mod error_queue;
pub mod event;
pub mod file;
pub mod filter;
pub mod generic;
pub mod hardware_clock;
pub mod local;
pub mod machine;
pub mod marker;
mod memory;
mod messages;
pub mod multicast;
pub mod names;
pub mod namespace;
pub mod netlink;
pub mod nic;
pub mod outbox;
pub mod packet;
pub mod packet_ring;
pub mod phc;
pub mod privilege;
pub mod probe;
mod randomness;
pub mod receive;
pub mod registers;
pub mod ring;
pub mod scheduler;
mod socket;
pub mod steering;
pub mod talk;
pub mod terminal;
pub mod timestamping;
pub mod trace_ring;
pub mod udp;
pub mod vhost;
pub mod xsk;
pub mod xsk_talk;

pub use busy_poll::BusyPoll;
pub use memory::{Frame, FrameMemory};
pub use randomness::Randomness;
pub use socket::{
    Interfaces, Sending, connect_local, interface_index, interface_with_address,
    own_link_addresses, sending_of,
};
