// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Problems and plans in the formats of others.
//!
//! Not here: reading and writing files (`timewire-cli`).

mod csv;
mod instance;
mod tsnkit;
mod uni;

pub use csv::TableError;
pub use instance::InstanceError;
pub use tsnkit::{Tsnkit, TsnkitPlan, read_tsnkit, write_tsnkit};
pub use uni::{
    MODULE as UNI_MODULE, TimeAware, Uni, UniInterface, UniListener, UniStream, read_uni,
};
