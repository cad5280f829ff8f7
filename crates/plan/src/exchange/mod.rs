// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Problems and plans in the formats of others.
//!
//! Not here: reading and writing files (`timewire-cli`).

mod csv;
mod tsnbench;
mod tsnkit;

pub use csv::TableError;
pub use tsnbench::{ScenarioError, Tsnbench, read_tsnbench};
pub use tsnkit::{Tsnkit, TsnkitPlan, read_tsnkit, write_tsnkit};
