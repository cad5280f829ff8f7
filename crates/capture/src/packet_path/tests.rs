// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events by hand and what they must come to.
//!
//! Not here: random packet paths (`random`).

mod bounds;
mod drivers;
mod hosts;
mod hours;
mod kinds;
mod random;
mod reasons;
mod sockets;

use super::*;
use crate::event::Flags;

/// An event of capture 0, station 0, CPU 0, of 100 bytes.
pub(crate) fn ev(at_ns: u64, hook: Hook, object: u64, tag: u64) -> Event {
    Event {
        at_ns,
        object,
        tag,
        aux: 0,
        interface: 0,
        thread: 0,
        cpu: 0,
        flags: Flags::TAGGED,
        length: 100,
        hook,
        station: 0,
    }
}

impl Event {
    pub(crate) fn on(self, station: u8, interface: u32) -> Event {
        Event { station, interface, ..self }
    }
    pub(crate) fn aux(self, aux: u64) -> Event {
        Event { aux, ..self }
    }
    pub(crate) fn by(self, thread: u32) -> Event {
        Event { thread, ..self }
    }
    pub(crate) fn cpu(self, cpu: u16) -> Event {
        Event { cpu, ..self }
    }
    pub(crate) fn flag(self, flag: Flags) -> Event {
        Event { flags: self.flags.with(flag), ..self }
    }
    pub(crate) fn bytes(self, length: u16) -> Event {
        Event { length, ..self }
    }
}

/// Small, so that tests are short.
pub(super) fn settings() -> Settings {
    Settings { reorder_ns: 100, window_ns: 10_000, longest_ns: 1_000_000, ..Settings::default() }
}

pub(super) fn follow(info: CaptureInfo, events: &[Event]) -> Vec<PacketPath> {
    let mut packet_paths = PacketPaths::new(vec![info], OneClock, settings());
    let mut out = Vec::new();
    events.iter().for_each(|event| packet_paths.event(0, event, &mut out));
    packet_paths.finish(&mut out);
    assert!(packet_paths.nodes.is_empty(), "nothing is kept after the end");
    out.iter().for_each(sums);
    out
}

/// The stages fill the packet path.
pub(super) fn sums(packet_path: &PacketPath) {
    let sum: i64 = packet_path.stages.iter().map(|stage| stage.ns).sum();
    assert_eq!(sum, packet_path.end_to_end_ns());
    assert_eq!(packet_path.stages.first().map_or(0, |stage| stage.from), 0);
    let last = packet_path.stages.last().map_or(0, |stage| stage.to);
    assert_eq!(last, packet_path.points.len() - 1);
    assert!(packet_path.stages.windows(2).all(|two| two[0].to == two[1].from));
}

pub(super) fn stages(packet_path: &PacketPath) -> Vec<(String, i64)> {
    packet_path.stages.iter().map(|stage| (stage.parts.name(), stage.ns)).collect()
}

pub(super) fn named(list: &[(&str, i64)]) -> Vec<(String, i64)> {
    list.iter().map(|&(name, ns)| (name.to_owned(), ns)).collect()
}

/// A packet from station 0 to station 1 of one kernel, over a wire whose driver is asynchronous.
pub(super) fn whole() -> Vec<Event> {
    use Hook::*;
    vec![
        ev(1_000, Marker, 7, 5).by(10),
        ev(1_100, SendEnter, 0, 0).by(10),
        ev(1_300, DeviceQueue, 0xa, 5).by(10).aux(0x50).on(0, 2).flag(Flags::FIRST),
        ev(1_400, QdiscEnqueue, 0xa, 5).by(10).aux((1 << 48) | 3).on(0, 2),
        ev(1_500, SocketSend, 0x50, 0).by(10).aux(58).bytes(58),
        ev(2_000, QdiscDequeue, 0xa, 5).aux(1 << 48).on(0, 2),
        ev(2_100, DriverStart, 0xa, 5).on(0, 2),
        ev(2_150, DriverDone, 0xa, 5).on(0, 2),
        ev(2_400, ReceiveQueue, 0xa, 5).on(1, 3).cpu(1).aux(40),
        ev(2_900, StackReceive, 0xa, 5).on(1, 3).cpu(1).aux(44),
        ev(3_000, SocketQueue, 0xa, 5).on(1, 3).cpu(1).aux(0x60),
        ev(3_010, Waking, 0x60, 0).on(1, 0).cpu(1).aux(20),
        ev(3_500, SwitchIn, 0x60, 0).on(1, 0).cpu(2).by(20).aux(30),
        ev(3_600, SocketReceive, 0x60, 0).on(1, 0).cpu(2).by(20).aux(58).bytes(58),
        ev(3_900, Marker, 8, 5).on(1, 0).cpu(2).by(20),
    ]
}
