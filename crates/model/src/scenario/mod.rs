// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario file: one YAML (or JSON) text that describes a network, its schedule, its traffic,
//! an experiment and the limits of its verdict.
//!
//! Reading has three steps, and a file with errors in one is not looked at by the next: the text
//! becomes a tree (`tree.rs`), the tree becomes values (`item.rs`, `record.rs`, `model.rs`), and
//! the values are compared with each other (`check.rs`) and with what Linux can do (`further.rs`).
//! Within a step all errors are found.
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
pub mod experiment_file;
mod experiment_network;
mod from_streams;
mod further;
pub mod host;
pub mod hosts_file;
mod item;
mod kind;
mod limits;
mod model;
pub mod network;
mod network_cases;
mod network_check;
mod network_plan;
mod pipeline;
mod programs;
mod record;
mod segment_network;
mod several;
mod slots;
pub mod streams;
mod suggest;
mod tree;
mod value;

pub use cyclic::{Cyclic, Sporadic};
pub use error::{ScenarioError, ScenarioErrors};
pub use from_streams::Need;
pub use further::{FurtherChecks, NothingFurther, Refused};
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

use item::{Item, Reader};
use network::NetworkCases;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

impl Scenario {
    /// Reads and checks a scenario, or a network of one segment without backends; `file_name` is
    /// for the messages. Callers use `timewire_tsn::file`, which has the further checks.
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
        let mut scenario = if segment_network::is_one(&root) {
            let network = NetworkCases::read_with(further, &root, &mut reader);
            // Its names are checked, and those of segments are no stations.
            reader.mentions.clear();
            network.and_then(|network| segment_network::scenario(&network, &mut reader))
        } else {
            reader.has_pipelines = true;
            Scenario::read(&root, &mut reader)
        };
        if let Some(scenario) = &mut scenario {
            // What is compared with the slots is not, when there are none.
            if derive::derive(scenario, &mut reader) && from_streams::make(scenario, &mut reader) {
                if reader.is_ordered {
                    slots::order(scenario, &mut reader);
                }
                check::check(scenario, further, &mut reader);
            }
        }
        match scenario {
            Some(scenario) if reader.problems.is_empty() => Ok(scenario),
            _ => Err(failed(reader.problems)),
        }
    }
}

/// Writes the scenario as [`Scenario::parse_with`] reads it, with all defaults filled in.
impl Serialize for Scenario {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.emit().serialize(serializer)
    }
}

/// The JSON Schema (draft 2020-12) of the scenario file, as pretty JSON with a final newline.
///
/// It is for editors: it describes every key and value, but not what must hold between them.
pub fn json_schema() -> String {
    let mut schema: Json = Scenario::schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Timewire scenario");
    schema["$defs"] = json!({"group": host::Group::schema()});
    let text = serde_json::to_string_pretty(&schema);
    text.expect("invariant: a JSON value with text keys can be written") + "\n"
}
