// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files: YAML (or JSON) texts that describe a network, its schedule, its traffic, an
//! experiment and the limits of its verdict; where its stations are; streams of a talker.
//!
//! Reading has steps, and a file with errors in one is not looked at by the next: the text becomes
//! a tree (`tree.rs`), the tree becomes values (`item.rs`, `record.rs`, `network.rs`), those are
//! compared with each other (`network_check.rs`, `check_cases.rs`), and a network of one segment
//! becomes a [`Scenario`] (`segment_network.rs`), which is compared with what programs, MACs and
//! kernels can do (`check.rs`, `further.rs`). Within a step all errors are found.
//!
//! Not here: reading the file, running the experiment.

mod change;
mod check;
mod check_cases;
mod check_limits;
mod cyclic;
mod derive;
mod device;
mod error;
mod from_streams;
mod further;
pub mod host;
pub mod hosts_file;
mod include;
mod item;
mod kind;
mod limits;
mod model;
pub mod network;
mod network_cases;
mod network_check;
mod network_plan;
mod network_traffic;
pub mod orchestrated;
pub mod phases;
mod pipeline;
mod programs;
mod record;
mod relative;
mod segment_keys;
mod segment_network;
mod several;
mod shared_schema;
mod slots;
pub mod streams;
mod suggest;
mod tree;
mod value;
mod variants;
mod wiring;

pub use cyclic::{Cyclic, Sporadic};
pub use error::{ScenarioError, ScenarioErrors};
pub use from_streams::Need;
pub use further::{FurtherChecks, NothingFurther, Refused};
pub use include::{IncludeError, bundle, with_included};
pub use kind::FileKind;
pub use model::{
    Case, CaseBackend, Experiment, Flood, Limit, LimitRule, MacMode, MacOptions, Measured,
    MessageFlow, Metric, OnSyncLoss, PortPriority, Published, Queues, Reference, ReferenceRule,
    Release, RequestResponse, Scenario, Segment, SocketType, Station, Stream, StreamClass,
};
pub use pipeline::{Connection, Pipeline};
pub use programs::{StationProgram, address_variable, port_variable};
pub use several::Several;
pub use value::{
    AtMost, ByteCount, Capacity, Count, Drift, FormatVersion, Ipv4Prefix, LossShare, Name, Offset,
    Ppm, Text, Word,
};
pub use variants::{MAX_COMBINATIONS, Variant, combinations, with_values};

use item::Reader;
use network::NetworkCases;
use segment_network::Origin;

impl Scenario {
    /// Reads and checks a network of one segment; `file_name` is for the messages. Callers use
    /// `timewire_tsn::file`, which has the further checks.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place.
    pub fn parse_with(
        further: &dyn FurtherChecks,
        file_name: &str,
        text: &str,
    ) -> Result<Scenario, ScenarioErrors> {
        let failed = |problems| ScenarioErrors::new(file_name, text, problems);
        let root = tree::parse(text).map_err(failed)?;
        if let Some(problem) = kind::unknown_kind(&root) {
            return Err(failed(vec![problem]));
        }
        let mut reader = Reader::new(root.mark);
        let network = NetworkCases::read_with(further, &root, &mut reader);
        let made = network.and_then(|it| segment_network::scenario(&it, &mut reader));
        match made.and_then(|(made, origin)| checked(made, &origin, further, &mut reader)) {
            Some(scenario) if reader.problems.is_empty() => Ok(scenario),
            _ => Err(failed(reader.problems)),
        }
    }
}

impl Scenario {
    /// That a file has no slots, for those who need some; `None` when it has.
    pub fn without_slots(&self, file_name: &str, text: &str) -> Option<ScenarioErrors> {
        let message = "there is no `schedule`, and so there are no slots".to_owned();
        let hint = "add one, such as `schedule: { kind: tdm, transmit: 220us, slots: [a, b] }`";
        let mark = tree::parse(text).ok()?.mark;
        let problem = error::Problem {
            key: "schedule".to_owned(),
            ..error::Problem::new(mark, message, hint)
        };
        (!self.has_schedule).then(|| ScenarioErrors::new(file_name, text, vec![problem]))
    }
}

/// A scenario with all that follows from what is written. What is compared with the slots is not,
/// when there are none.
fn checked(
    mut scenario: Scenario,
    origin: &Origin,
    further: &dyn FurtherChecks,
    reader: &mut Reader,
) -> Option<Scenario> {
    let is_whole =
        derive::derive(&mut scenario, reader) && from_streams::make(&mut scenario, origin, reader);
    if !is_whole {
        return None;
    }
    if origin.is_along_pipelines {
        slots::order(&mut scenario, reader);
    }
    check::check(&scenario, origin, further, reader);
    Some(scenario)
}
