// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every other crate counts in: time on a named scale, lengths of a frame, rates, quantities
//! with their unit as people write them, the windows of a repeating cycle, and numbers by a seed.
//!
//! Nothing here reads a clock or touches the system: values go in, values come out.
//!
//! Not here: the transmission schedule of a network (`timewire-sched`), the machine that carries it
//! out (`timewire-mac`), reading a clock (`timewire-sys`).
#![forbid(unsafe_code)]

pub mod drops;
mod id;
mod length;
mod quantity;
mod queue;
mod random;
mod rate;
mod time;
mod window;

pub use id::{IdError, IfName, Port, Priority, StationName};
pub use length::{FrameLen, LengthError, SduLen, WireLen};
pub use quantity::{QuantityError, parse_bytes, parse_rate, parse_span};
pub use queue::{GateMask, QueueError, SocketPriority, TrafficClass, TxQueue};
pub use random::Sequence;
pub use rate::BitsPerSecond;
pub use time::{Instant, Mono, Scale, Span, Tai, Utc};
pub use window::{CyclicWindows, Phase, Window, WindowError};
