// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes the UDP messages of one port off an interface through AF_XDP, before the stack has them,
//! and prints when driver and program had each. Everything else goes up the stack as before. Needs
//! root.
//!
//! ```text
//! cargo run -p timewire-datapath --example listen_xdp -- eth0 15001
//! ```

use std::error::Error;

use timewire_base::{Failure, IfName, Span};
use timewire_datapath::listen::{
    Arrival, FrameFilter, ListenError, ReceiveOptions, ReceiveTimestamps, Receiver, Source, XdpMode,
};
use timewire_datapath::ptp_frame::probe_of_frame;
use timewire_sys::event::EndRequests;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let wanted = "say what: INTERFACE PORT";
    let interface = IfName::new(&arguments.next().ok_or(wanted)?)?;
    let port = arguments.next().ok_or(wanted)?.parse()?;
    let options = ReceiveOptions {
        timestamps: ReceiveTimestamps { software: false, hardware: true },
        filter: FrameFilter { udp_port: Some(port), ..FrameFilter::default() },
        ..ReceiveOptions::default()
    };
    let source = Source::Xdp { interface, queue: None, mode: XdpMode::Auto };
    let mut receiver = Receiver::open(&source, &options).map_err(explained)?;
    eprintln!("{}", receiver.mode());
    receiver.refused().iter().for_each(|why| eprintln!("not: {why}"));
    let end = EndRequests::new()?;
    while !end.take() {
        receiver.receive(Some(Span::from_ms(100)), &mut |arrival: Arrival<'_>| {
            let way = arrival.driver.map(|driver| arrival.user - driver);
            let header =
                probe_of_frame(arrival.bytes, arrival.whole_length()).map(|it| (it.stream, it.seq));
            println!(
                "{} bytes, stream and number {header:?}, NIC {:?}, driver to here {way:?}",
                arrival.length, arrival.hardware_ns,
            );
        })?;
    }
    eprintln!("{} lost, {:?}", receiver.drops()?, receiver.counters().transpose()?);
    Ok(())
}

fn explained(error: ListenError) -> Box<dyn Error> {
    match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}").into(),
        None => error.into(),
    }
}
