// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values of options: quantities, limits, expectations, settings, lists of CPUs and gates.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_base::wire::MacAddress;
use timewire_base::{GateMask, IfName, StationName, TxQueue, parse_bytes, parse_rate, parse_span};
use timewire_runner::measure::launch::limit::Limit;
use timewire_runner::measure::receive::plan::{Setting, Sweep};
use timewire_datapath::streams::expect::Expectations;
use timewire_model::scenario::host::{CpuList, EtherType};
use timewire_model::scenario::streams::{Target, VlanMark};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(span) = parse_span(text) {
        assert_eq!(parse_span(&format!("{}ns", span.as_ns())), Ok(span));
    }
    let _ = (parse_rate(text), parse_bytes(text));
    let _ = (CpuList::parse(text), EtherType::parse(text), text.parse::<MacAddress>());
    let _ = (Target::parse(text), VlanMark::parse(text));
    let _ = (text.parse::<Limit>(), text.parse::<Expectations>(), text.parse::<Sweep>());
    let _ = (text.parse::<GateMask>(), text.parse::<TxQueue>());
    let _ = (IfName::new(text), StationName::new(text));
    if let Some((key, value)) = text.split_once('=') {
        let _ = Setting::parse(key, value);
    }
});
