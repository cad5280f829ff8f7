// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends frames of many streams through AF_XDP: each stream one frame of 64 bytes in each
//! millisecond, in VLAN 100 with PCP 6, to everyone, for a number of seconds.
//!
//! ```text
//! cargo run -p timewire-datapath --example talk_xdp -- enp3s0 1000 5 xdp
//! ```
//!
//! The last word is `xdp`, `ring` or `frames`: the same streams through another transport.

use std::error::Error;
use std::sync::atomic::AtomicBool;

use timewire_base::{IfName, Span};
use timewire_datapath::talker::{
    Cadence, Destination, FrameContent, FrameHeader, StreamCounters, StreamSpec, Talker, VlanTag,
};
use timewire_datapath::transmit::{TransmitOptions, Transport, XdpMode, XdpPort};
use timewire_stats::median;
use timewire_sys::clock;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [interface, count, seconds, transport] = &words[..] else {
        return Err("give interface, streams, seconds and transport: enp3s0 1000 5 xdp".into());
    };
    let interface = IfName::new(interface)?;
    let port = match transport.as_str() {
        "xdp" => Transport::Xdp(XdpPort {
            interface,
            queue: 0,
            mode: XdpMode::Auto,
            need_wakeup: true,
            busy_poll: None,
        }),
        "ring" => Transport::Ring { interface },
        "frames" => Transport::Frames { interface },
        other => return Err(format!("no transport {other}").into()),
    };
    let header = FrameHeader {
        source: None,
        destination: [0xff; 6],
        vlan: Some(VlanTag { vid: 100, pcp: 6 }),
        content: FrameContent::EtherType(0x88b5),
    };
    let (count, seconds): (u16, u64) = (count.parse()?, seconds.parse()?);
    let cycle = Span::from_ms(1);
    let start = clock::now() + Span::from_ms(10);
    let stream = |number: u16| {
        let cadence = Cadence::Cycle { start, cycle };
        StreamSpec {
            // Evenly over the cycle.
            offset: Span::from_ns(cycle.as_ns() * i64::from(number) / i64::from(count)),
            cycles: Some(seconds * 1_000),
            ..StreamSpec::new(number, Destination::Frame(header), cadence, 46)
        }
    };
    let streams: Vec<_> = (0..count).map(stream).collect();

    let mut talker = Talker::new(&[(port, TransmitOptions::default())], &streams)?;
    println!("{}", talker.ports()[0].mode());
    let before = clock::now::<timewire_base::Mono>();
    talker.run(&AtomicBool::new(false), None, &mut |_| ())?;
    let took = clock::now::<timewire_base::Mono>() - before;

    let report = talker.report();
    let total = |of: fn(&StreamCounters) -> u64| -> u64 {
        report.streams.iter().map(|stream| of(&stream.counters)).sum()
    };
    println!("{} of {} frames in {took}", total(|c| c.sent), total(|c| c.planned));
    println!("left out: {} since it woke late", total(|c| c.skipped_woke_late));
    println!("          {} since earlier ones took too long", total(|c| c.skipped_overran));
    println!("          {} since the interface did not take them", total(|c| c.not_taken));
    let mut p99: Vec<_> = report.streams.iter().map(|stream| stream.lateness.p99_ns).collect();
    p99.sort_unstable();
    if let (Some(median), Some(worst)) = (median(&p99), p99.last()) {
        println!("p99 lateness of the streams: median {median} ns, worst {worst} ns");
    }
    Ok(())
}
