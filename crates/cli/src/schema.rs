// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire schema`: what editors complete and check files with.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::output;

/// Of which file.
#[derive(Debug, Args)]
pub struct Schema {
    /// The kind of file
    #[arg(value_enum, default_value = "network")]
    of: FileKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileKind {
    /// A network, its traffic, experiment, limits and host settings
    Network,
    /// Where stations are: `run --on`
    Hosts,
}

/// Prints the JSON Schema.
pub fn run(args: &Schema) -> anyhow::Result<ExitCode> {
    output::print(&match args.of {
        FileKind::Hosts => timewire_model::scenario::hosts_file::hosts_schema(),
        FileKind::Network => timewire_model::scenario::network::network_schema(),
    })
}
