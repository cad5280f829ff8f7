// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames from the network: their headers, ports, identities, our messages in them, and those of
//! PTP.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_base::wire::Frame;
use timewire_base::{Port, Priority};
use timewire_tsn::PortRules;
use timewire_datapath::probe::Probe;
use timewire_datapath::ptp_frame::{PtpProbe, probe_of_frame};
use timewire_capture::filter::{Facts, Filter};
use timewire_capture::identity::{TagPlace, identify};

fuzz_target!(|data: &[u8]| {
    let length = data.len();
    let _ = (Probe::parse(data), PtpProbe::parse(data), probe_of_frame(data, data.len()));
    if let Some(frame) = Frame::parse(data) {
        let _ = (frame.ports(length), frame.ports(length + 100), frame.udp(), frame.content());
        let _ = (frame.vid(), frame.pcp(), frame.named_ports());
        let _ = frame.ip().map(|ip| (ip.addresses(), ip.header_length(), ip.fragment()));
    }
    let rules = [(Port::new(319).expect("a port"), Priority::new(1).expect("a priority"))];
    let rules = PortRules::new(1, &rules).expect("a list");
    let _ = (rules.classify(data), rules.classify_captured(data, length + 100));
    let place = |at: &u8| TagPlace { offset: u16::from(*at), width: 8, big_endian: true };
    let places = [None, data.first().map(place)];
    for place in places {
        let _ = identify(data, place);
    }
    let Some(facts) = Facts::of_frame(data) else { return };
    let filter = Filter::parse("udp port 319 or vlan 5 or icmp").expect("a filter");
    let compiled = filter.compile().expect("a filter that can be compiled");
    assert_eq!(filter.holds(&facts), compiled.holds(&facts.keys()));
});
