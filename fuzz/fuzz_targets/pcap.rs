// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of others, pcap and pcapng.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_capture::pcap::PcapReader;

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = PcapReader::new(data) else { return };
    while let Ok(Some(frame)) = reader.next() {
        assert!(frame.bytes.len() <= data.len());
    }
});
