// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listens for messages of UDP and says once a second how they came.
//!
//! ```text
//! cargo run -p timewire-datapath --example listen_udp -- [::]:15001
//! cargo run -p timewire-datapath --example listen_udp -- 0.0.0.0:15001 eth0 239.1.2.3
//! ```

use std::error::Error;

use timewire_base::{IfName, Span};
use timewire_capture::stream::sequence::SequenceLimits;
use timewire_datapath::listen::{
    Arrival, Listener, ListenerOptions, ReceiveOptions, Receiver, Source, UdpPlace,
};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;

const SECOND: Span = Span::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let bind = arguments.next().ok_or("say where: ADDRESS:PORT [INTERFACE [GROUP]]")?.parse()?;
    let device = arguments.next().map(|name| IfName::new(&name)).transpose()?;
    let group = arguments.next().map(|group| group.parse()).transpose()?;
    let source = Source::Udp(UdpPlace { bind, device, group });
    let mut receiver = Receiver::open(&source, &ReceiveOptions::default())?;
    let mut listener = Listener::new(
        false,
        ListenerOptions {
            sequence: SequenceLimits { window: 64, leap: 100_000 },
            longest: Span::from_secs(10),
            cycle: None,
            hardware_ahead: None,
            streams: 64,
        },
    );
    let end = EndRequests::new()?;
    eprintln!("{source}");
    let mut next = clock::now::<timewire_base::Tai>() + SECOND;
    while !end.take() {
        receiver.receive(Some(Span::from_ms(100)), &mut |arrival: Arrival<'_>| {
            listener.arrived(&arrival);
        })?;
        let now = clock::now();
        if now < next {
            continue;
        }
        next = now + SECOND;
        for (number, stream) in listener.snapshot(now) {
            let (order, gaps) = (stream.sequence, stream.inter_arrival);
            println!(
                "stream {number}: {} messages, {} lost, {} twice, {} late; gap p50 {} ns p99 {} ns",
                stream.interval_frames,
                order.lost,
                order.duplicate,
                order.reordered,
                gaps.p50_ns,
                gaps.p99_ns,
            );
        }
        println!("{} lost here, {:?}", receiver.drops()?, listener.counters());
    }
    Ok(())
}
