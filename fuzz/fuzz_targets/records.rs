// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Record files; what was read is written and reads as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_capture::record::{Encoder, RecordFile};

fuzz_target!(|data: &[u8]| {
    let Ok(file) = RecordFile::decode(&timewire_fuzz::records_with_sums(data)) else { return };
    let Ok((mut encoder, mut bytes)) = Encoder::new(&file.header) else { return };
    let mut add = |offset: u64, block: &[u8]| {
        let at = usize::try_from(offset).expect("a file of some blocks");
        bytes.resize(bytes.len().max(at + block.len()), 0);
        bytes[at..at + block.len()].copy_from_slice(block);
    };
    for record in &file.records {
        if let Some(block) = encoder.push(record) {
            add(block.offset, block.bytes);
        }
    }
    let last = encoder.finish(file.lost);
    add(last.offset, &last.bytes[..]);
    let again = RecordFile::decode(&bytes).expect("what is written is read");
    assert_eq!((again.records, again.header), (file.records, file.header));
});
