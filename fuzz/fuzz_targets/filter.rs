// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters: what is written reads as what was meant, and means the same compiled.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_capture::filter::{Facts, Filter};

fuzz_target!(|data: &[u8]| {
    let parts = timewire_fuzz::parts(data);
    let Ok(text) = std::str::from_utf8(parts[0]) else { return };
    let Ok(filter) = Filter::parse(text.trim_end_matches('\n')) else { return };
    let again = Filter::parse(&filter.to_string()).expect("what is written is read");
    assert_eq!(again.to_string(), filter.to_string());
    let Ok(compiled) = filter.compile() else { return };
    for frame in &parts[1..] {
        if let Some(facts) = Facts::of_frame(frame) {
            assert_eq!(filter.holds(&facts), again.holds(&facts));
            assert_eq!(filter.holds(&facts), compiled.holds(&facts.keys()));
        }
    }
});
