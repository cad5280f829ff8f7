// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Media files, and CAN frames as text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_avtp::media::h264::{Assembler, StartCodes};
use timewire_avtp::media::{h264, wav};
use timewire_datapath::avtp::can;

fuzz_target!(|data: &[u8]| {
    if let Ok(found) = wav::read(data) {
        let _ = found.format.aaf();
        if let Ok(bytes) = wav::write(&found) {
            assert_eq!(wav::read(&bytes).expect("what is written is read").samples, found.samples);
        }
    }
    if let Ok(units) = h264::nal_units(data) {
        if let Some(codes) = StartCodes::of(data, &units) {
            assert_eq!(codes.normalise(data, &units), data);
        }
    }
    let mut assembler = Assembler::new(StartCodes::Four, 1 << 16);
    for payload in timewire_fuzz::parts(data) {
        assembler.payload(payload);
    }
    let _ = assembler.access_unit();
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        let _ = can::CanLine::parse(line);
    }
});
