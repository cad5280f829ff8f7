// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every other crate counts in: time on a named scale, lengths of a frame, rates, quantities
//! with their unit as people write them, the windows of a repeating cycle, and numbers by a seed;
//! what is in frames, and what errors tell beside their words.
//!
//! Nothing here reads a clock or touches the system: values go in, values come out.
//!
//! Not here: the transmission schedule of a network (`timewire-model`), the machine that carries it
//! out (`timewire-tsn`), reading a clock (`timewire-sys`).
#![forbid(unsafe_code)]

pub mod drops;
mod failure;
mod id;
mod length;
mod quantity;
mod queue;
mod random;
mod rate;
mod time;
mod verdict;
mod window;
pub mod wire;

pub use failure::{Failure, FileError};
pub use id::{IdError, IfName, Port, Priority, StationName, is_plain_path};
pub use length::{FrameLen, LengthError, SduLen, WireLen};
pub use quantity::{QuantityError, parse_bytes, parse_rate, parse_span};
pub use queue::{GateMask, QueueError, SocketPriority, TrafficClass, TxQueue};
pub use random::Sequence;
pub use rate::BitsPerSecond;
pub use time::{Instant, Mono, Scale, Span, Tai, Utc};
pub use verdict::Verdict;
pub use window::{CyclicWindows, Phase, Window, WindowError};
