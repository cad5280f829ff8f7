// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Laboratory stations without hardware: each one is a network namespace with one interface, and
//! all hang on a segment that floods like a hub and has the rate of a real link. A laboratory is
//! gone when its owner is, however that ended.
//!
//! Not here: the undo journal and its guardian (`timewire-host`), what runs on the stations.

mod error;
mod lab;
pub mod ns;
pub mod privilege;

pub use error::LabError;
pub use lab::{Lab, LabSpec, StationSpec, clean_leftovers};
