// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends a message of 64 bytes every millisecond for five seconds, and says how late it was and
//! what the kernel's timestamps tell.
//!
//! ```text
//! cargo run -p timewire-datapath --example talk_udp -- 192.0.2.7:9000
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use timewire_base::Span;
use timewire_datapath::talker::{Cadence, Destination, StreamEventKind, StreamSpec, Talker};
use timewire_datapath::transmit::{TimestampTime, TransmitOptions, Transport, TxPoint, TxPoints};
use timewire_sys::clock;

fn main() -> Result<(), Box<dyn Error>> {
    let to: SocketAddr =
        std::env::args().nth(1).ok_or("give a destination: 192.0.2.7:9000")?.parse()?;
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let port = Transport::Udp { from: any.parse()?, to: Some(to), device: None };
    let points = TxPoints { sched: true, software: true, hardware: false };
    let options = TransmitOptions { points, ..TransmitOptions::default() };

    let cycle = Span::from_ms(1);
    let cadence = Cadence::Cycle { start: clock::now(), cycle };
    let stream =
        StreamSpec { cycles: Some(5_000), ..StreamSpec::new(1, Destination::Port, cadence, 64) };

    let mut talker = Talker::new(&[(port, options)], &[stream])?;
    println!("{}", talker.ports()[0].mode());
    let (mut written, mut longest) = (None, Span::ZERO);
    talker.run(&AtomicBool::new(false), None, &mut |event| match event.what {
        StreamEventKind::Sent { at, .. } => written = Some((event.seq, at)),
        StreamEventKind::Timestamp { point: TxPoint::Software, at: TimestampTime::System(at) } => {
            if let Some((_, since)) = written.filter(|(seq, _)| *seq == event.seq) {
                longest = longest.max(at - since);
            }
        }
        _ => {}
    })?;

    let report = talker.report();
    let stream = &report.streams[0];
    println!("{:?}", stream.counters);
    let late = &stream.lateness;
    println!("99 % at most {} ns late, all at most {} ns", late.p99_ns, late.max_ns);
    println!("at most {longest} from writing a message to the interface");
    Ok(())
}
