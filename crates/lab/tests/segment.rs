// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels on a simulated segment: every instant on the segment is the one that arithmetic says.
//!
//! Not here: the segment and the master of time by themselves (`timewire-sim`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

mod kernels;

use std::process::ExitCode;

use timewire_base::{BitsPerSecond, Span};
use timewire_sim::{Loss, SegmentConfig, SegmentKind, StationClock};

use kernels::{Ran, lab, station};

fn main() -> ExitCode {
    kernels::main(&[("t4_a_datagram_arrives_after_its_bits_and_the_delay", arrival)])
}

const MS: u64 = 1_000_000;

fn hub() -> SegmentConfig {
    SegmentConfig {
        kind: SegmentKind::Hub,
        rate: BitsPerSecond::new(100_000_000).unwrap(),
        delay: Span::from_ns(500),
        loss: Loss::default(),
        seed: 1,
    }
}

fn arrival() {
    let talker = station(1, StationClock::exact(), &["talk", "10.77.0.2", "3", "100", "1ms"]);
    let listener = station(2, StationClock::exact(), &["listen", "3"]);
    let ran: Ran = lab("arrival", hub(), vec![talker, listener]);
    println!("{:#?}", ran.summary);
    println!("{}", ran.output(0));
    println!("{}", ran.output(1));
    for frame in &ran.frames {
        println!("{frame:?}");
    }
    let _ = MS;
}
