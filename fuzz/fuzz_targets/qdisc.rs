// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queueing disciplines and filters as `tc` prints them, and commands of `tc`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_host::apply::QdiscTree;
use timewire_tsn::desired::shown_filters;
use timewire_tsn::qdisc::{QdiscCommand, ShownQdisc};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = shown_filters(text);
    let _ = QdiscTree::parse(text, Vec::new());
    if let Ok(shown) = ShownQdisc::parse(text) {
        for qdisc in &shown {
            let _ = qdisc.configured();
        }
    }
    for line in text.lines() {
        let Ok(command) = line.parse::<QdiscCommand>() else { continue };
        assert_eq!(command.to_string().parse(), Ok(command));
    }
});
