// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments on many stations: authenticated links, the agent of a station, the controller that
//! leads them, and the sweep of an experiment over its variables.
//!
//! Not here: one experiment on stations of this host (`timewire-runner`).

pub mod controller;
pub mod links;
pub mod protocol;
pub mod station;
pub mod sweep;
