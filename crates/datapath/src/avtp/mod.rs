// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of IEEE 1722 on a real interface: files, clocks and CAN frames are sent packet by packet
//! at their launch times, received with the kernel's timestamps, and written again.
//!
//! ```text
//! file -> talker -> Sender -> interface ... interface -> Receiver -> listener -> file
//!         (what, when)  (puts it there)                (timestamps)     (order, times)
//! ```
//!
//! Not here: packets and machines (`timewire-avtp`), sockets (`talker`, `listen`), the choice of
//! addresses (MAAP) and the reservation of bandwidth (MSRP) by protocol, which are not done.

pub mod can;
pub mod crf;
mod error;
mod inlet;
mod listen;
mod margin;
mod media;
mod recording;
pub mod reserve;
mod route;
mod sender;
mod talk;
mod unread;

pub use error::StreamError;
pub use inlet::{Arrived, Ended, Inlet, Limits};
pub use listen::{Counters, Expect, Heard, ListenSpec, Listener, listen};
pub use margin::{LateCount, Timeliness, Times, TimesSummary};
pub use media::Media;
pub use recording::Written;
pub use route::{Route, Tag, default_destination, payload};
pub use sender::{LaunchCounts, Outlet, Sent};
pub use talk::{AvtpTalkReport, Plan, TalkSpec};
pub use unread::{Clash, NotUnderstood};
