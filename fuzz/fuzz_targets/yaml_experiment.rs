// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiment files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_model::scenario::experiment_file::ExperimentFile;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match ExperimentFile::parse("any", text) {
        Ok(file) => {
            let _ = format!("{file:?}");
        }
        Err(errors) => timewire_fuzz::check_errors(&errors),
    }
});
