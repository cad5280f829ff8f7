// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of streams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_model::scenario::streams::StreamsFile;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match StreamsFile::parse("any", text) {
        Ok(file) => {
            let streams: Vec<_> = file.streams.iter().map(|stream| stream.to_json()).collect();
            if let Ok(again) = StreamsFile::from_json("json", &streams) {
                assert_eq!(again.streams.len(), file.streams.len());
            }
        }
        Err(errors) => timewire_fuzz::check_errors(&errors),
    }
});
