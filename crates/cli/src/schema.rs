// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire schema`: what editors complete and check files with.
//!
//! Not here: the definitions that the schemas are made of (`timewire-sched`).

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::output;

/// Of which file.
#[derive(Debug, Args)]
pub struct Schema {
    /// The kind of file
    #[arg(value_enum, default_value = "scenario")]
    of: FileKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileKind {
    /// A network, its schedule, traffic, experiment and limits
    Scenario,
    /// What a host is to be like
    Host,
    /// What `talk --streams` sends
    Streams,
    /// What `sim` simulates
    Network,
    /// What stations with agents do: `run --map`
    Experiment,
}

/// Prints the JSON Schema.
pub fn run(args: &Schema) -> anyhow::Result<ExitCode> {
    output::print(&match args.of {
        FileKind::Scenario => timewire_sched::scenario::json_schema(),
        FileKind::Host => timewire_sched::scenario::host::host_schema(),
        FileKind::Streams => timewire_sched::scenario::streams::streams_schema(),
        FileKind::Experiment => timewire_sched::scenario::experiment_file::experiment_schema(),
        FileKind::Network => timewire_sched::scenario::network::network_schema(),
    })
}
