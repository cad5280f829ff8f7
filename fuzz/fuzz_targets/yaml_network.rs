// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network files; what was read is written and reads as itself, and is a problem for the planner.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_sched::scenario::network::NetworkFile;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match NetworkFile::parse("any", text) {
        Ok(file) => {
            let json = file.to_json().to_string();
            assert_eq!(NetworkFile::parse("json", &json).as_ref(), Ok(&file));
            let _ = timewire_plan::file::problem(&file);
        }
        Err(errors) => timewire_fuzz::check_errors(&errors),
    }
});
