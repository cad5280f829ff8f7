// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixtures for tests: a network, its queueing disciplines, its traffic, and what became of every
//! frame. In a laboratory machine all of it happens in virtual time and is exact.
//!
//! ```no_run
//! use timewire_base::Span;
//! use timewire_lab::rig::{Gates, Rig, Talker};
//!
//! let mut rig = Rig::new();
//! rig.station("a").station("b").link("a", "b");
//! rig.qdisc("a", "b", "root taprio num_tc 2 map 0 1 queues 1@0 1@1 base-time 0 clockid CLOCK_TAI \
//!     sched-entry S 2 320000 sched-entry S 1 320000");
//! let bench = rig.build()?;
//! let start = bench.soon();
//! let flow = Talker::new("a", "b").priority(1).from(start).every(Span::from_us(100)).count(50);
//! let outcome = bench.play(&[flow])?;
//! outcome.flow(0).inside(&Gates::new(Span::from_us(640)).open(Span::ZERO, Span::from_us(320)));
//! # Ok::<(), timewire_lab::LabError>(())
//! ```
//!
//! ```text
//! twrig-PID-N-a  eth0 ------------------ eth0  twrig-PID-N-b        a link without length
//! twrig-PID-N-a  eth0 -- w0 [wire-0] w1 -- p0  twrig-PID-N-bridge   a wire: rate and delay
//! ```
//!
//! Not here: machines (`crate::uml`), the experiments of a scenario (`timewire-ctl`).

mod bench;
mod build;
mod frame;
mod outcome;
mod spec;
mod traffic;

pub use bench::{Bench, Discipline};
pub use outcome::{Arrival, Fate, Flow, Gates, Outcome, Statistics};
pub use spec::Rig;
pub use traffic::{Launch, LaunchClock, Talker, Transport};
