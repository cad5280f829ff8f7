// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Management messages of PTP and lists of leap seconds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_host::clock::leap::{LeapSeconds, judge};
use timewire_host::clock::management::Management;

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = Management::parse(data) {
        let bytes = message.emit();
        assert_eq!(Management::parse(&bytes), Ok(message));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let list = LeapSeconds::parse(text, "any".into());
    let _ = judge(37, list.as_ref(), 1_700_000_000);
});
