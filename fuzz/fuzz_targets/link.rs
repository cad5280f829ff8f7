// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames of a link between controller and agent, announcements, and messages about files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_agent::links::fuzzing;

fuzz_target!(|data: &[u8]| {
    let Some((how, data)) = data.split_last() else { return };
    fuzzing::link(data, usize::from(*how));
    fuzzing::announcement(data);
    fuzzing::files(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = text.parse::<timewire_agent::links::PairingCode>();
        let _ = text.parse::<timewire_agent::links::Fingerprint>();
    }
});
