// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet paths of packets from captures: of one, of one twice, and of two hosts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_runner::study::Study;

fuzz_target!(|data: &[u8]| {
    let Some((how, data)) = data.split_last() else { return };
    let first = timewire_fuzz::capture_with_sums(data);
    let mut captures = vec![timewire_fuzz::file("a.twc", &first)];
    if how % 3 == 1 {
        captures.push(captures[0].clone());
    }
    if how % 3 == 2 {
        // Of another boot: the first digit that a boot may have differs.
        let at = data.windows(8).position(|some| some == b"\"boot\":\"").unwrap_or(data.len());
        let mut second = data.to_vec();
        if let Some(digit) = second.get_mut(at + 8) {
            *digit = if *digit == b'0' { b'1' } else { b'0' };
        }
        let second = timewire_fuzz::capture_with_sums(&second);
        captures.push(timewire_fuzz::file("b.twc", &second));
    }
    let study = Study { captures, ..Study::default() };
    let mut packet_paths: Vec<timewire_capture::packet_path::PacketPath> = Vec::new();
    if let Ok(studied) = study.run(&mut packet_paths, &mut |_| true) {
        let _ = (studied.analysis.rows(), studied.analysis.chains(), studied.analysis.held());
    }
});
