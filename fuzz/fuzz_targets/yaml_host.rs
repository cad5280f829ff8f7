// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host settings, and what becomes of them on a host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_model::scenario::host::HostSettings;
use timewire_tsn::file::ParseFile;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match HostSettings::parse("any", text) {
        Ok(file) => {
            let _ = format!("{file:?}");
        }
        Err(errors) => timewire_fuzz::check_errors(&errors),
    }
});
