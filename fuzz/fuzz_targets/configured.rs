// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is configured, held against a network's streams: files of `tc`, YANG, hosts, launch times.
//! The input is a network file, then a name and a content by turns, with a line `---` between.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_tsn::file::ParseFile;
use timewire_plan::file::{hold, problem};
use timewire_model::scenario::network::NetworkFile;

fuzz_target!(|data: &[u8]| {
    let parts = timewire_fuzz::parts(data);
    let Ok(text) = std::str::from_utf8(parts[0]) else { return };
    let Ok(file) = NetworkFile::parse("any", text) else { return };
    let Ok(given) = problem(&file) else { return };
    let files: Vec<_> = parts[1..]
        .chunks_exact(2)
        .map(|two| (String::from_utf8_lossy(two[0]).trim().to_owned(), two[1].to_vec()))
        .collect();
    let _ = hold(&file, &given, &files, &mut || true);
});
