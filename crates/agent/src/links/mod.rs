// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Authenticated links between a controller and its agents, and files over them.
//!
//! A [`Link`] carries messages in both directions, over TLS 1.3 with a key on both sides, a local
//! socket, or the stdio of a program such as `ssh`. Who is trusted are [`Peers`], known by their
//! keys since they were paired (`docs/src/reference/agent-protocol.md`). Blocking calls, each with
//! an end; no call of a stranger's making costs more than its bounds.
//!
//! Not here: what the messages say (`protocol`).

mod connect;
mod digest;
mod discovery;
mod error;
mod files;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
mod identity;
mod link;
mod listener;
mod pairing;
mod peers;
#[cfg(test)]
mod scratch;
mod tls;
mod wire;

pub use connect::{connect_tcp, connect_unix, over_program, over_stdio, over_unix};
pub use digest::digest;
pub use discovery::{Announcement, Announcer, FoundAgent, find_agents};
pub use error::LinkError;
pub use files::{FileEntry, FileLimits, Manifest, receive_files, send_files};
pub use identity::{Fingerprint, Identity};
pub use link::{Link, LinkLimits, Peer, Receiver, Sender};
pub use listener::{ListenLimits, Listener, Log};
pub use pairing::{Offer, OfferLimits, PairingCode, pair_with};
pub use peers::{PairedPeer, Peers, Role};
