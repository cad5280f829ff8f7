// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two hosts, a sender and a receiver whose clocks differ, and some packets between them, one of
//! them dropped: events by hand, analysed as captures are.
//!
//! Not here: what is made of them.

use std::collections::BTreeMap;

use timewire_base::{CyclicWindows, Instant, Span, Window};
use timewire_capture::capture::{CaptureHeader, ClockSample, HookCount, Note, Station};
use timewire_capture::event::{Event, Flags, Hook};
use timewire_capture::packet_path::analysis::{Analysis, Wanted};
use timewire_capture::packet_path::{CaptureInfo, ClockMap, Common, Observer, PacketPath};
use timewire_report::timeline::{Gather, GatherOptions, Names, TimelineInput};

/// The clock of the receiver is 1 ms ahead, known to 70 ns.
pub struct Clocks;

impl ClockMap for Clocks {
    fn to_common(&self, capture: usize, at_ns: u64) -> Common {
        let at = i64::try_from(at_ns).unwrap();
        match capture {
            0 => Common { ns: at, bound_ns: 0 },
            _ => Common { ns: at - 1_000_000, bound_ns: 70 },
        }
    }
    fn to_tai(&self, _: usize, at_ns: u64) -> Option<i64> {
        i64::try_from(at_ns).ok()
    }
}

fn ev(at_ns: u64, hook: Hook, object: u64, tag: u64) -> Event {
    let (aux, interface, thread, cpu, length, station) = (0, 0, 0, 0, 100, 0);
    let flags = Flags::TAGGED;
    Event { at_ns, object, tag, aux, interface, thread, cpu, flags, length, hook, station }
}

/// Message `n` of stream 7, which waits `wait` ns for its gate; 0 stands for none that comes.
fn message(n: u64, wait: u64, events: &mut Vec<(usize, Event)>) {
    use Hook::*;
    let (t, packet) = (1_000_000 + n * 100_000, 0xa000 + n);
    let tag = (7 << 32) | n;
    let sent = |event: Event| (0, Event { thread: 10, interface: 2, ..event });
    let got =
        |event: Event| (1, Event { at_ns: event.at_ns + 1_000_000, interface: 3, cpu: 1, ..event });
    let handle = 0x8001_u64 << 48;
    events.extend([
        sent(Event { interface: 0, ..ev(t, Marker, 1, tag) }),
        sent(Event { interface: 0, ..ev(t + 800, SendEnter, 0, 0) }),
        sent(Event { aux: 0x50, ..ev(t + 2_000, DeviceQueue, packet, tag) }),
        sent(Event { aux: handle | (n % 3), ..ev(t + 2_300, QdiscEnqueue, packet, tag) }),
        sent(Event { aux: 58, length: 58, ..ev(t + 2_500, SocketSend, 0x50, 0) }),
    ]);
    if wait == 0 {
        events.push(sent(Event { aux: 7, ..ev(t + 2_600, Drop, packet, tag) }));
        return;
    }
    let t = t + wait;
    let reader = |event: Event| {
        let (_, event) = got(event);
        (1, Event { interface: 0, thread: 20, cpu: 2, ..event })
    };
    events.extend([
        sent(Event { aux: handle, ..ev(t + 2_400, QdiscDequeue, packet, tag) }),
        sent(ev(t + 2_500, DriverStart, packet, tag)),
        sent(ev(t + 2_900, DriverDone, packet, tag)),
        got(Event { aux: 33, tag: 0, ..ev(t + 3_100, IrqEntry, 0, 0) }),
        got(Event { aux: 33, tag: 0, ..ev(t + 3_200, IrqExit, 0, 0) }),
        got(Event { aux: 3, tag: 0, ..ev(t + 3_250, SoftirqEntry, 0, 0) }),
        got(ev(t + 3_300, NapiReceive, packet, tag)),
        got(ev(t + 3_700, StackReceive, packet, tag)),
        got(Event { aux: 0x60, ..ev(t + 4_000, SocketQueue, packet, tag) }),
        got(Event { aux: 20, tag: 0, interface: 0, ..ev(t + 4_050, Waking, 0x60, 0) }),
        got(Event { aux: (1 << 32) | 64, tag: 0, ..ev(t + 4_100, NapiPoll, 0, 0) }),
        got(Event { aux: 3, tag: 0, ..ev(t + 4_200, SoftirqExit, 0, 0) }),
        reader(Event { aux: 30, ..ev(t + 9_000, SwitchIn, 0x60, 0) }),
        reader(Event { aux: 58, length: 58, ..ev(t + 9_500, SocketReceive, 0x60, 0) }),
        reader(ev(t + 9_900, Marker, 2, tag)),
    ]);
}

/// What was analysed.
pub struct Analysed {
    pub input: TimelineInput,
    pub packet_paths: Vec<PacketPath>,
    pub analysis: Analysis<Clocks>,
    pub names: Names,
}

/// Both are told.
struct Both<'a>(&'a mut Gather, &'a mut Vec<PacketPath>);

impl Observer for Both<'_> {
    fn event(
        &mut self,
        capture: usize,
        point: &timewire_capture::packet_path::Point,
        event: &Event,
    ) {
        self.0.event(capture, point, event);
    }
    fn packet_path(&mut self, packet_path: &PacketPath) {
        self.0.packet_path(packet_path);
        self.1.push(packet_path.clone());
    }
}

fn headers() -> [CaptureHeader; 2] {
    let header = |host: &str, station: &str, interface: (u32, &str)| CaptureHeader {
        host: host.to_owned(),
        stations: vec![Station {
            name: station.to_owned(),
            namespace: 1,
            interfaces: BTreeMap::from([(interface.0, interface.1.to_owned())]),
        }],
        ..CaptureHeader::default()
    };
    [header("alpha", "talker", (2, "eth0")), header("beta<b>", "listener", (3, "eth1"))]
}

fn notes() -> Vec<(usize, Note)> {
    let count = |lost| HookCount { seen: 500, written: 500 - lost, lost };
    let thread = |thread, name: &str| Note::Thread { thread, name: name.to_owned() };
    let point = |point, name: &str| Note::Point { point, name: name.to_owned(), process: 1 };
    let flow = Note::Flow { flow: 7, name: "UDP 10.0.0.1:7000 > 10.0.0.2:7001".to_owned() };
    let clocks = ClockSample {
        monotonic_ns: 1_000_000,
        realtime_ahead_ns: 1_800_000_000_000_000_000,
        tai_ahead_ns: 37_000_000_000,
        error_ns: 50,
        offset_ns: None,
    };
    let (station, interface, handle) = (0, 2, 0x8001_0000);
    vec![
        (0, thread(10, "sampler")),
        (1, thread(20, "control \"loop\"")),
        (0, point(1, "sampled")),
        (1, point(2, "</script>acted")),
        (0, flow),
        (0, Note::Clocks(clocks)),
        (0, Note::Qdisc { station, interface, handle, kind: "taprio".to_owned() }),
        (1, Note::Losses(BTreeMap::from([("irq-entry".to_owned(), count(3))]))),
    ]
}

/// Eight messages, the fifth of them late, the seventh dropped.
pub fn analysed() -> Analysed {
    let waits = [1_000, 1_500, 900, 1_100, 48_000, 1_000, 0, 1_300];
    let mut events = Vec::new();
    for (n, wait) in (0..).zip(waits) {
        message(n, wait, &mut events);
    }
    events.sort_by_key(|(capture, event)| Clocks.to_common(*capture, event.at_ns).ns);
    let options = GatherOptions { thresholds_ns: vec![20_000], ..GatherOptions::default() };
    let mut gather = Gather::new(options);
    let infos = vec![CaptureInfo::all(), CaptureInfo::all()];
    let mut analysis = Analysis::new(infos, Clocks, Wanted::default());
    let mut names = Names::default();
    for (capture, header) in headers().iter().enumerate() {
        gather.names().header(capture, header);
        names.header(capture, header);
        analysis.header(capture, header);
    }
    for (capture, note) in notes() {
        gather.names().note(capture, &note);
        names.note(capture, &note);
        analysis.note(capture, &note);
    }
    let window = Window { offset: Span::from_ns(3_000), length: Span::from_ns(10_000) };
    let windows =
        CyclicWindows::new(Instant::from_ns(0), Span::from_ns(50_000), vec![window]).unwrap();
    gather.schedule(0, 0, windows.clone());
    analysis.schedule(0, 0, windows);
    let mut packet_paths = Vec::new();
    for (capture, event) in &events {
        analysis.event(*capture, event, &mut Both(&mut gather, &mut packet_paths));
    }
    analysis.finish(&mut Both(&mut gather, &mut packet_paths));
    let input = gather.finish("two hosts", analysis.longest(), &Clocks);
    Analysed { input, packet_paths, analysis, names }
}
