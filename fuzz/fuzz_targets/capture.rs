// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures: their events and notes, their end, and what they are exported as.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use timewire_capture::capture::{Format, Info, Merge, Reader, Writer, export, export_packets};
use timewire_capture::event::Hook;

fuzz_target!(|data: &[u8]| {
    let bytes = timewire_fuzz::capture_with_sums(data);
    let open = || Reader::new(Cursor::new(&bytes[..]));
    let Ok(mut reader) = open() else { return };
    let _ = reader.find_end();
    let (info, names) = Info::read(&mut reader).expect("memory does not fail");
    let _ = info.lost();
    let again = || open().expect("it was opened before");
    let mut out = Vec::new();
    for format in [Format::Csv, Format::JsonLines] {
        let count = export(&mut again(), &names, format, &mut out).expect("memory does not fail");
        assert_eq!(count, info.events);
    }
    out.clear();
    let _ = export_packets(&mut again(), &names, &Hook::ALL, &mut out);
    let first = again();
    let Ok(merge) = Merge::new(&[(first.header(), &names), (first.header(), &names)]) else {
        return;
    };
    out.clear();
    let mut writer = Writer::new(&mut out, merge.header()).expect("memory does not fail");
    let report = merge.copy(&mut [again(), again()], &mut writer).expect("memory does not fail");
    assert_eq!(report.events, [info.events; 2]);
});
