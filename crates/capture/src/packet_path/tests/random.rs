// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random packets on random ways, with random losses: what comes out as complete happened exactly
//! so. The generator knows; it is the second method.

use proptest::prelude::*;

use super::*;
use Hook::*;

/// Time is so much coarser than its unit.
const APART: u64 = 64;

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RandomPath {
    /// Between stations of one kernel.
    Veth,
    /// To another host.
    Host,
    /// Over a bridge of the same kernel.
    Bridge,
    /// To two sockets.
    Multicast,
    /// Dropped by the queueing discipline.
    Dropped,
}

#[derive(Clone, Debug)]
struct Plan {
    way: RandomPath,
    start: u64,
    steps: Vec<u64>,
    qdisc: bool,
    late_done: bool,
    repeats: bool,
    flags: Flags,
}

fn plan() -> impl Strategy<Value = Plan> {
    let way = prop_oneof![
        Just(RandomPath::Veth),
        Just(RandomPath::Host),
        Just(RandomPath::Bridge),
        Just(RandomPath::Multicast),
        Just(RandomPath::Dropped)
    ];
    let steps = proptest::collection::vec(1_u64..400, 24);
    let flags = prop_oneof![Just(Flags::TAGGED), Just(Flags(0))];
    let rest = (any::<bool>(), any::<bool>(), proptest::bool::weighted(0.15), flags);
    (way, 1_000_u64..60_000, steps, rest).prop_map(|(way, start, steps, rest)| {
        let (qdisc, late_done, repeats, flags) = rest;
        Plan { way, start, steps, qdisc, late_done, repeats, flags }
    })
}

/// One packet path that happened: tag, where and when each of its events was.
type Truth = (u64, Vec<(Hook, usize, u64)>);

struct World {
    events: Vec<(usize, Event)>,
    truths: Vec<(u64, Vec<(usize, Event)>)>,
    /// When each buffer of each host is free again.
    buffers: Vec<Vec<u64>>,
}

impl World {
    fn buffer(&mut self, host: usize, from: u64, to: u64) -> u64 {
        let buffers = &mut self.buffers[host];
        let index = buffers.iter().position(|&free| free < from).unwrap_or_else(|| {
            buffers.push(0);
            buffers.len() - 1
        });
        buffers[index] = to;
        0x1000 + 64 * u64::try_from(index).unwrap()
    }
}

/// A message on its way into a socket.
struct Delivery {
    host: usize,
    queue: Event,
    before: Vec<(usize, Event)>,
    read_after: u64,
}

fn build(plans: &[Plan]) -> World {
    let mut world =
        World { events: Vec::new(), truths: Vec::new(), buffers: vec![Vec::new(), Vec::new()] };
    let mut deliveries: Vec<Delivery> = Vec::new();
    let mut order: Vec<(u32, &Plan)> = (1_u32..).zip(plans).collect();
    order.sort_by_key(|(_, plan)| plan.start);
    for (number, plan) in order {
        let tag = if plan.repeats { 77 } else { u64::from(number) << 32 | 9 };
        packet(&mut world, &mut deliveries, number, tag, plan);
    }
    read(&mut world, deliveries);
    world.events.sort_by_key(|(_, event)| event.at_ns);
    world
}

fn packet(world: &mut World, deliveries: &mut Vec<Delivery>, number: u32, tag: u64, plan: &Plan) {
    // No two packets have events of one instant, nor a CPU.
    let start = plan.start * APART + u64::from(number);
    let mut at = start;
    let mut steps = plan.steps.iter();
    let mut next = || {
        at += steps.next().unwrap() * APART;
        at
    };
    let object = world.buffer(0, start, start + 30_000 * APART);
    let thread = 1_000 + number;
    let cpu = u16::try_from(number).unwrap();
    let event =
        |at, hook, object| Event { flags: plan.flags, ..ev(at, hook, object, tag).cpu(cpu) };
    let mut way: Vec<(usize, Event)> = Vec::new();
    let call = Event { tag: 0, ..event(start, SendEnter, 0).by(thread) };
    way.push((0, call));
    let socket = 0x100 + u64::from(number);
    way.push((0, event(next(), DeviceQueue, object).by(thread).aux(socket).on(0, 2)));
    if plan.qdisc {
        way.push((0, event(next(), QdiscEnqueue, object).on(0, 2)));
    }
    let end = Event { tag: 0, ..event(next(), SocketSend, socket).by(thread).aux(58) };
    world.events.push((0, end));
    if plan.way == RandomPath::Dropped {
        way.push((0, event(next(), Drop, object).on(0, 2)));
        world.events.extend(&way);
        return;
    }
    if plan.qdisc {
        way.push((0, event(next(), QdiscDequeue, object).on(0, 2)));
    }
    // A queue for each: they may overtake each other.
    way.push((0, event(next(), DriverStart, object).aux(u64::from(number)).on(0, 2)));
    let late = plan.late_done && plan.way != RandomPath::Host;
    if !late {
        way.push((0, event(next(), DriverDone, object).on(0, 2)));
    }
    let (host, mut port, arrived) = match plan.way {
        RandomPath::Host => (1, (0, 3), world.buffer(1, start, start + 30_000 * APART)),
        _ => (0, (1, 3), object),
    };
    let receive = |at, hook, port: (u8, u32)| (host, event(at, hook, arrived).on(port.0, port.1));
    way.push(receive(next(), ReceiveQueue, port));
    if late {
        world.events.push((0, event(next(), DriverDone, object).on(0, 2)));
    }
    way.push(receive(next(), StackReceive, port));
    if plan.way == RandomPath::Bridge {
        way.push((0, event(next(), DeviceQueue, arrived).on(1, 4)));
        way.push((0, event(next(), DriverStart, arrived).on(1, 4)));
        way.push((0, event(next(), DriverDone, arrived).on(1, 4)));
        port = (2, 5);
        way.push(receive(next(), ReceiveQueue, port));
        way.push(receive(next(), StackReceive, port));
    }
    world.events.extend(&way);
    let read_after = plan.steps[20] * APART;
    let mut deliver = |queue: Event| {
        let before = way.clone();
        deliveries.push(Delivery { host, queue, before, read_after });
    };
    if plan.way == RandomPath::Multicast {
        let at = next();
        let copy = world.buffer(host, at, at + 30_000 * APART);
        deliver(event(at, SocketQueue, copy).on(port.0, port.1).aux(0x900));
    }
    deliver(event(next(), SocketQueue, arrived).on(port.0, port.1).aux(0x901));
}

/// Each socket is read in its order; a reader that slept is woken.
fn read(world: &mut World, mut deliveries: Vec<Delivery>) {
    deliveries.sort_by_key(|delivery| delivery.queue.at_ns);
    for host in [0, 1] {
        for station in 0..3 {
            for socket in [0x900, 0x901] {
                let mut free = 0;
                let mut last: Vec<(usize, Event)> = Vec::new();
                let mine = deliveries.iter().filter(|d| {
                    d.host == host && d.queue.station == station && d.queue.aux == socket
                });
                for delivery in mine {
                    let queue = delivery.queue;
                    world.events.push((host, queue));
                    let mut way = delivery.before.clone();
                    way.push((host, queue));
                    // A socket of each station: another object.
                    let object = socket;
                    let reader = 50;
                    let event = |at, hook| Event {
                        flags: Flags(0),
                        ..ev(at, hook, object, 0).on(station, 0)
                    };
                    let mut at = queue.at_ns.max(free);
                    if free < queue.at_ns {
                        let woken = event(at + 1, Waking).aux(reader).cpu(queue.cpu);
                        let running = event(at + 40, SwitchIn).by(50).cpu(99);
                        at += 40;
                        last = vec![(host, woken), (host, running)];
                        world.events.extend(&last);
                    }
                    // It waits for the reader also when an earlier message had it woken.
                    way.extend(last.iter().filter(|(_, e)| e.at_ns >= queue.at_ns));
                    let done = event(at + delivery.read_after, SocketReceive);
                    let done = done.by(50).aux(58).bytes(58).cpu(99);
                    free = done.at_ns;
                    way.push((host, done));
                    world.events.push((host, done));
                    world.truths.push((queue.tag, way));
                }
            }
        }
    }
}

/// Sockets of different stations are different objects.
fn apart(event: &mut Event) {
    let station = u64::from(event.station) << 32;
    match event.hook {
        SocketQueue => event.aux |= station,
        Waking | SwitchIn | SocketReceive => event.object |= station,
        _ => {}
    }
}

fn points(packet_path: &PacketPath) -> Truth {
    let of = |point: &Point| (point.hook, usize::from(point.capture), point.raw_ns);
    (packet_path.tag, packet_path.points.iter().map(of).collect())
}

/// The driver's return counts where it was seen before the arrival; a waking that the reader did
/// not need is left out in both.
fn truth(way: &(u64, Vec<(usize, Event)>)) -> Truth {
    let of = |(host, event): &(usize, Event)| (event.hook, *host, event.at_ns);
    (way.0, way.1.iter().map(of).collect())
}

/// What came out and what happened, of one tag.
fn beside(one: &Truth, truths: &[Truth]) -> String {
    let same: Vec<&Truth> = truths.iter().filter(|truth| truth.0 == one.0).collect();
    format!("{one:?}\nof {same:?}")
}

fn run(
    world: &World,
    losses: &[(usize, Loss)],
    dropped: &[usize],
    late: &[usize],
) -> Vec<PacketPath> {
    let mut infos = vec![CaptureInfo::all(), CaptureInfo::all()];
    for (host, loss) in losses {
        infos[*host].losses.push(*loss);
    }
    let mut events: Vec<(u64, usize, Event)> = Vec::new();
    for (index, (host, event)) in world.events.iter().enumerate() {
        let mut event = *event;
        apart(&mut event);
        if !dropped.contains(&index) {
            // It is handed over up to 80 ns late.
            let delay = if late.contains(&index) { 80 } else { 0 };
            events.push((event.at_ns + delay, *host, event));
        }
    }
    events.sort_by_key(|event| event.0);
    let slower = Settings { window_ns: 640_000, longest_ns: 64_000_000, ..settings() };
    let mut packet_paths = PacketPaths::new(infos, OneClock, slower);
    let mut out = Vec::new();
    for (_, host, event) in &events {
        packet_paths.event(*host, event, &mut out);
    }
    packet_paths.finish(&mut out);
    assert!(packet_paths.nodes.is_empty(), "nothing is kept after the end");
    assert_eq!(packet_paths.counts().late, 0);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn t0_random_packet_paths_come_out_exactly_or_not_as_complete(
        plans in proptest::collection::vec(plan(), 1..40),
        lose in proptest::collection::vec((any::<proptest::sample::Index>(), 1_u64..200_000), 0..4),
        late in proptest::collection::vec(any::<proptest::sample::Index>(), 0..40),
    ) {
        let world = build(&plans);
        let late: Vec<usize> = late.iter().map(|index| index.index(world.events.len())).collect();
        let truths: Vec<Truth> = world.truths.iter().map(truth).collect();
        // Nothing lost: every packet with a tag of its own comes out, and as it was.
        let out = run(&world, &[], &[], &late);
        for packet_path in &out {
            sums(packet_path);
        }
        let complete = |out: &[PacketPath]| -> Vec<Truth> {
            let sure = out.iter().filter(|j| j.status == Status::Complete);
            sure.filter(|j| j.outcome == PathOutcome::Received).map(points).collect()
        };
        let found = complete(&out);
        for one in &found {
            prop_assert!(truths.contains(one), "invented: {}", beside(one, &truths));
        }
        for one in truths.iter().filter(|one| one.0 != 77) {
            let times = found.iter().filter(|other| *other == one).count();
            prop_assert_eq!(times, 1, "not found: {:?}", one);
        }
        // Some lost: what is complete is still as it was.
        let (mut losses, mut dropped) = (Vec::new(), Vec::new());
        for (index, around) in &lose {
            let index = index.index(world.events.len());
            let (host, event) = world.events[index];
            let from_ns = event.at_ns.saturating_sub(*around);
            let to_ns = event.at_ns + around / 2;
            losses.push((host, Loss { hook: event.hook, from_ns, to_ns, events: 1 }));
            dropped.push(index);
        }
        let out = run(&world, &losses, &dropped, &late);
        let mut found = complete(&out);
        for one in &found {
            prop_assert!(truths.contains(one), "invented: {}", beside(one, &truths));
        }
        for &index in &dropped {
            let (host, event) = world.events[index];
            let gone = (event.hook, host, event.at_ns);
            for packet_path in out.iter().filter(|j| j.status == Status::Complete) {
                prop_assert!(!points(packet_path).1.contains(&gone), "a lost event is in it");
            }
        }
        let all = found.len();
        found.sort();
        found.dedup();
        prop_assert_eq!(found.len(), all, "twice");
    }
}
