// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network files; what was read is written and reads as itself, and is a problem for the planner,
//! in each of its cases.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_tsn::file::ParseFile;
use timewire_model::scenario::network::{NetworkCases, NetworkFile};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match NetworkCases::parse("any", text) {
        Ok(all) => {
            for file in all.cases.iter().map(|case| &case.file).chain([&all.base]) {
                let json = file.to_json().to_string();
                assert_eq!(NetworkFile::parse("json", &json).as_ref(), Ok(file));
                let _ = timewire_plan::file::problem(file);
            }
        }
        Err(errors) => timewire_fuzz::check_errors(&errors),
    }
});
