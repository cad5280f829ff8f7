// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Journals: of experiments on both sides, and of what was changed on a host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_agent::protocol::journal::{Side, read};
use timewire_agent::protocol::{Agent, agent, controller};

fuzz_target!(|data: &[u8]| {
    let bytes = timewire_fuzz::journal_with_sums(data);
    if let Ok(reading) = read::<agent::Entry>(Side::Agent, &bytes) {
        assert!(reading.whole <= bytes.len());
        Agent::resume(&reading.entries);
    }
    if let Ok(reading) = read::<controller::Entry>(Side::Controller, &bytes) {
        assert!(reading.whole <= bytes.len());
    }
    let _ = timewire_host::read_log(&timewire_fuzz::file("record", data));
});
