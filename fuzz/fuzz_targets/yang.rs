// SPDX-License-Identifier: Apache-2.0 OR MIT
//! YANG instances, JSON and XML: gates of interfaces and requests of streams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_plan::exchange::{read_gates, read_uni};

fuzz_target!(|data: &[u8]| {
    let _ = read_gates("any", data);
    let _ = read_uni("any", data);
});
