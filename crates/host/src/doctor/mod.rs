// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a host can do, found out before it is asked to: tries (`attempt`) that give a value
//! ([`Probes`]), and a function (`judge`) from that, a snapshot and a question to a judgement
//! ([`Diagnosis`]).
//!
//! Not here: changing the host.

mod about_desired;
mod about_groups;
mod about_host;
mod about_link;
mod about_scenario;
mod about_station;
pub mod attempt;
mod backends;
mod class;
mod drivers;
mod finding;
mod judge;
mod mend;
mod offload;
mod probes;
pub(crate) mod scratch;
mod text;

pub use about_desired::take_covering;
pub use about_station::StationAsked;
pub use class::AccuracyClass;
pub use finding::{
    Accuracy, BackendFinding, BackendVariant, Check, DOCTOR_SCHEMA, Diagnosis, Finding, RunSite,
    State, Subject, Verdict,
};
pub use judge::{Question, judge};
pub use offload::try_offloads;
pub use probes::{HardwareClockProbe, PROBES_SCHEMA, Probe, ProbeOutcome, Probes, Tried, WakeUps};
pub use scratch::Scratch;
pub use text::text;
