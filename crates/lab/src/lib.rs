// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laboratory. Stations without hardware: each one is a network namespace with one interface,
//! and all hang on a segment that floods like a hub and has the rate of a real link. A laboratory
//! is gone when its owner is, however that ended. And kernels without hardware (`uml`): the
//! stations and whatever else runs inside one, in virtual time.
//!
//! Not here: the undo journal and its watchdog (`timewire-host`), what runs on the stations.

pub mod cache;
pub mod deb;
pub mod doctor;
mod error;
pub mod fixture;
pub mod guest;
mod lab;
mod namespaces;
pub mod ns;
pub mod privilege;
pub mod qemu;
pub mod tools;
pub mod trial;
pub mod uml;

pub use error::LabError;
pub use lab::{Lab, LabSpec, Pacing, StationSpec, clean_leftovers};
pub use namespaces::Namespaces;

/// To be called first in the main function of every program that starts machines: inside a machine
/// it does the machine's job, and does not return.
pub fn enter_guest() {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    if qemu::init::is_first_process(&arguments) {
        qemu::init::main();
    }
    if let Some(job) = guest::job_of(&arguments) {
        guest::init_main(&job);
    }
}
