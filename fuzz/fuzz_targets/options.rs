// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values of options: quantities, limits, expectations, settings, lists of CPUs and gates.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_base::{GateMask, IfName, StationName, TxQueue, parse_bytes, parse_rate, parse_span};
use timewire_ctl::measure::launch::limit::Limit;
use timewire_ctl::measure::receive::plan::{Setting, Sweep};
use timewire_ctl::traffic::expect::Expectations;
use timewire_sched::scenario::host::{CardAddress, CpuList, EtherType};
use timewire_sched::scenario::streams::{Target, VlanMark};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(span) = parse_span(text) {
        assert_eq!(parse_span(&format!("{}ns", span.as_ns())), Ok(span));
    }
    let _ = (parse_rate(text), parse_bytes(text));
    let _ = (CpuList::parse(text), EtherType::parse(text), CardAddress::parse(text));
    let _ = (Target::parse(text), VlanMark::parse(text));
    let _ = (text.parse::<Limit>(), text.parse::<Expectations>(), text.parse::<Sweep>());
    let _ = (text.parse::<GateMask>(), text.parse::<TxQueue>());
    let _ = (IfName::new(text), StationName::new(text));
    if let Some((key, value)) = text.split_once('=') {
        let _ = Setting::parse(key, value);
    }
});
