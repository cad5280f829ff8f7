// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An analysis needs no more memory for twice as many events, whatever they are: every table that
//! a capture's numbers can fill has a bound.

use timewire_capture::capture::Note;
use timewire_capture::event::{Event, Flags, Hook};
use timewire_capture::packet_path::analysis::{Analysis, Wanted};
use timewire_capture::packet_path::chain::Chain;
use timewire_capture::packet_path::{
    Bounds, CaptureInfo, Observer, OneClock, PacketPath, Settings,
};

use crate::counting::{memory_of, mixed};

/// Looks at nothing.
struct Nobody;

impl Observer for Nobody {
    fn packet_path(&mut self, _: &PacketPath) {}
}

const SMALL: Bounds = Bounds {
    packets: 1_000,
    points: 10_000,
    packet_path_points: 64,
    waiting: 4_000,
    arrivals: 1_000,
    endpoints: 1_000,
    messages: 4_000,
    losses: 1_000,
    tags: 1_000,
    spans: 4_000,
};

fn low(n: u64) -> u32 {
    u32::try_from(n & 0xffff_ffff).unwrap()
}

fn event(at_ns: u64, hook: Hook, object: u64, tag: u64) -> Event {
    Event {
        at_ns,
        object,
        tag,
        aux: 0,
        interface: 2,
        thread: 0,
        cpu: 0,
        flags: Flags::TAGGED,
        length: 100,
        hook,
        station: 0,
    }
}

type Made = fn(u64) -> Event;

/// Each fills tables with numbers of its own.
const KINDS: [(&str, Made); 14] = [
    ("any buffer, one instant", |n| event(5, Hook::DeviceQueue, mixed(n), mixed(n))),
    ("any buffer and any tag", |n| event(n, Hook::StackReceive, mixed(n), mixed(n))),
    ("any buffer, one tag", |n| event(n, Hook::StackReceive, mixed(n), 7)),
    ("one buffer without end", |n| Event {
        interface: low(n % 2),
        ..event(n, Hook::StackReceive, 9, 7)
    }),
    ("copies of copies", |n| event(n, Hook::QdiscEnqueue, n + 1, 7)),
    ("any socket", |n| Event { aux: mixed(n), ..event(n, Hook::SocketQueue, mixed(n), n) }),
    ("one socket without a reader", |n| Event { aux: 3, ..event(n, Hook::SocketQueue, 0, n) }),
    ("any thread", |n| Event { thread: low(mixed(n)), ..event(n, Hook::SendEnter, 0, 0) }),
    ("any marker", |n| event(n, Hook::Marker, mixed(n), mixed(n + 1))),
    ("any frame of a driver", |n| event(n, Hook::Xdp, 0, mixed(n))),
    ("any reason of a drop", |n| Event { aux: mixed(n), ..event(n, Hook::Drop, n + 1, n + 1) }),
    ("any CPU's interrupts", |n| Event {
        cpu: u16::try_from(mixed(n) & 0xff).unwrap(),
        ..event(n, if n % 2 == 0 { Hook::IrqEntry } else { Hook::IrqExit }, 0, 0)
    }),
    ("backwards", |n| event((1 << 40) - n * 1_000, Hook::DriverStart, mixed(n), mixed(n))),
    ("any of all", |n| {
        let hook = Hook::ALL[usize::try_from(mixed(n) % 20).unwrap() % Hook::ALL.len()];
        Event {
            aux: mixed(n + 1),
            thread: low(mixed(n + 2)),
            interface: low(mixed(n + 3)),
            station: u8::try_from(mixed(n + 4) & 0xff).unwrap(),
            cpu: u16::try_from(mixed(n + 5) & 0xff).unwrap(),
            flags: Flags(u16::try_from(mixed(n + 6) & 0x7f).unwrap()),
            ..event(mixed(n + 7) % 1_000 + n * 10, hook, mixed(n + 8), mixed(n + 9))
        }
    }),
];

fn analyse(make: Made, events: u64) {
    let points = ["a", "driver-start"].map(|point| point.parse().unwrap()).to_vec();
    let chains = vec![Chain { name: "chain".to_owned(), points, deadline: None }];
    let settings = Settings { bounds: SMALL, ..Settings::default() };
    let wanted = Wanted { settings, chains, flows: 16, ..Wanted::default() };
    let mut analysis = Analysis::new(vec![CaptureInfo::all()], OneClock, wanted);
    analysis.note(0, &Note::Point { point: 1, name: "a".to_owned(), process: 1 });
    for n in 0..events {
        analysis.event(0, &make(n), &mut Nobody);
    }
    analysis.finish(&mut Nobody);
    let counts = analysis.counts();
    assert_eq!(counts.events, events);
}

#[test]
fn t0_twice_as_many_events_need_no_more_memory() {
    for (kind, make) in KINDS {
        let needed = |events| memory_of(|| analyse(make, events)).0;
        let (once, twice) = (needed(80_000), needed(160_000));
        assert!(twice <= once + once / 10 + 65_536, "{kind}: {once} bytes, then {twice}");
        assert!(twice < 100_000_000, "{kind}: {twice} bytes");
        println!("{kind}: {once} bytes, then {twice}");
    }
}
