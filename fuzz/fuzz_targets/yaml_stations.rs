// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps of stations.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_sched::scenario::experiment_file::StationMap;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match StationMap::parse("any", text) {
        Ok(file) => {
            let _ = format!("{file:?}");
        }
        Err(errors) => timewire_fuzz::check_errors(&errors),
    }
});
