// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run directory has: summaries and records of clocks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_capture::summary::Summary;
use timewire_capture::sync::{SyncLine, series, summarise};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(summary) = Summary::from_json(text) {
        let _ = timewire_report::table(&summary, timewire_report::TableOptions::default());
        let _ = timewire_report::html(&summary);
        let _ = timewire_report::summary_markdown(&summary);
    }
    if let Ok(lines) = SyncLine::read(text) {
        let _ = (summarise(&lines), series(&lines));
    }
});
