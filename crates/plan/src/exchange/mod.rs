// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Problems and plans in the formats of others.
//!
//! Not here: reading and writing files (`timewire-cli`).

mod csv;
mod gates;
mod instance;
mod json;
mod launch;
mod tsnbench;
mod tsnkit;
mod tsnkit_plan;
mod uni;
mod xml;

pub use csv::TableError;
pub use gates::{GateReading, InterfaceGates, read_gates};
pub use instance::InstanceError;
pub use launch::{LaunchRow, read_launches};
pub use tsnbench::{ScenarioError, Tsnbench, read_tsnbench};
pub use tsnkit::{Tsnkit, TsnkitPlan, read_tsnkit, write_tsnkit};
pub use tsnkit_plan::{TsnkitResult, TsnkitTables, read_tsnkit_result};
pub use uni::{
    MODULE as UNI_MODULE, TimeAware, Uni, UniInterface, UniListener, UniStream, read_uni,
};
