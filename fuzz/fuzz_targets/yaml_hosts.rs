// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_model::scenario::hosts_file::HostsFile;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match HostsFile::parse("any", text) {
        Ok(file) => {
            let _ = format!("{file:?}");
        }
        Err(errors) => timewire_fuzz::check_errors(&errors),
    }
});
