// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenario files; what was read is written and reads as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_model::scenario::Scenario;
use timewire_tsn::file::ParseFile;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Scenario::parse("any", text) {
        Ok(file) => {
            let json = serde_json::to_string(&file).expect("a scenario is written");
            assert_eq!(Scenario::parse("json", &json), Ok(file));
        }
        Err(errors) => timewire_fuzz::check_errors(&errors),
    }
});
