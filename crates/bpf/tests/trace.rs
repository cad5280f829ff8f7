// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets on their way through this kernel, as the tracing programs tell of them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use support::{ADDRESSES, Pair};
use timewire_bpf::BpfError;
use timewire_bpf::trace::{Mode, Settings, Tracer};
use timewire_bpf::{AttachMode, attached, pass};
use timewire_capture::event::{Event, Flags, Hook};
use timewire_capture::filter::{Filter, Match};
use timewire_sys::namespace::enter_network;

/// Runs a test in a thread of its own, which alone is in its namespaces.
fn alone(test: impl FnOnce() + Send + 'static) {
    std::thread::spawn(test).join().unwrap();
}

fn opened(settings: &Settings) -> Option<Tracer> {
    match Tracer::open(settings) {
        Ok(tracer) => Some(tracer),
        Err(error @ BpfError::NoTypes { .. }) => {
            eprintln!("SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn made(port: u16) -> Option<Pair> {
    Pair::make(port).map_err(|error| eprintln!("SKIP: {error}")).ok()
}

/// Packets of UDP to that port.
fn port(port: u16) -> Match {
    filter(&format!("udp dst port {port}"))
}

fn filter(text: &str) -> Match {
    Filter::parse(text).unwrap().compile().unwrap()
}

fn settings(filter: Match, pair: &Pair) -> Settings {
    Settings { filter, stations: pair.numbers(), ..Settings::default() }
}

/// Waits until it holds, for so long that only a broken program makes it fail.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn drained(tracer: &mut Tracer) -> Vec<Event> {
    let mut events = Vec::new();
    tracer.drain(&mut |batch| events.extend(batch.iter().map(|e| Event::from_bytes(e).unwrap())));
    events.sort_by_key(|event| event.at_ns);
    events
}

#[test]
fn t3_a_packet_is_followed_from_its_socket_to_the_other_one() {
    alone(|| {
        let Some(pair) = made(7106) else { return };
        let Some(mut tracer) = opened(&settings(port(7106), &pair)) else { return };
        let mut buffer = [0; 100];
        for n in 0..20_u8 {
            pair.sockets[0].send(&[n; 64]).unwrap();
            assert_eq!(pair.sockets[1].recv(&mut buffer).unwrap(), 64);
        }
        tracer.stop();
        let events = drained(&mut tracer);
        let mut packets: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
        for event in events.iter().filter(|event| event.tag != 0) {
            packets.entry(event.tag).or_default().push(event);
        }
        assert_eq!(packets.len(), 20);
        // When the receiver's work is put off, the sender's call ends before.
        let ways = [
            vec![Hook::DeviceQueue, Hook::DriverStart, Hook::DriverDone, Hook::SocketSend],
            vec![Hook::ReceiveQueue, Hook::StackReceive, Hook::SocketQueue],
        ];
        let missing: Vec<Hook> =
            tracer.missing().keys().filter_map(|name| Hook::from_name(name)).collect();
        for events in packets.values() {
            for (station, way) in (0..).zip(&ways) {
                let seen: Vec<Hook> = events
                    .iter()
                    .filter(|event| event.station == station)
                    .map(|event| event.hook)
                    .collect();
                let expected: Vec<Hook> =
                    way.iter().copied().filter(|hook| !missing.contains(hook)).collect();
                assert_eq!(seen, expected, "station {station}");
            }
            let objects: Vec<u64> = events
                .iter()
                .filter(|event| event.hook != Hook::SocketSend)
                .map(|event| event.object)
                .collect();
            assert!(objects.iter().all(|object| *object == objects[0] && *object != 0));
            assert!(events[0].flags.has(Flags::FIRST));
            assert!(events[1..].iter().all(|event| !event.flags.has(Flags::FIRST)));
        }
        let flows = tracer.flows().unwrap();
        let [(flow, name)] = &flows[..] else { panic!("{flows:?}") };
        let [from, to] = ADDRESSES;
        assert_eq!(name.to_string(), format!("UDP {from}:7106 > {to}:7106"));
        assert!(packets.keys().all(|tag| tag >> 32 == u64::from(*flow)));
        for (hook, count) in tracer.counts().unwrap() {
            assert_eq!(count.lost, 0, "{hook:?}");
        }
    });
}

#[test]
fn t3_only_what_is_asked_for_is_told_also_when_buffers_are_used_again() {
    alone(|| {
        let Some(pair) = made(7107) else { return };
        let other = UdpSocket::bind((ADDRESSES[0], 0)).unwrap();
        let filter = port(7107);
        let Some(mut tracer) = opened(&settings(filter, &pair)) else { return };
        // Buffers go round, so what was asked for and what was not have the same ones by turns.
        let mut buffer = [0; 100];
        for n in 0..200_u32 {
            pair.sockets[0].send(&n.to_le_bytes()).unwrap();
            assert_eq!(pair.sockets[1].recv(&mut buffer).unwrap(), 4);
            other.send_to(b"nobody is there", (ADDRESSES[1], 9)).unwrap();
        }
        tracer.stop();
        let events = drained(&mut tracer);
        for hook in [Hook::DeviceQueue, Hook::DriverStart, Hook::ReceiveQueue, Hook::StackReceive] {
            let tags: Vec<u64> =
                events.iter().filter(|event| event.hook == hook).map(|event| event.tag).collect();
            let mut different = tags.clone();
            different.sort_unstable();
            different.dedup();
            assert_eq!((tags.len(), different.len()), (200, 200), "{hook:?}");
        }
        let counts = tracer.counts().unwrap();
        assert!(counts[&Hook::DeviceQueue].seen >= 400, "{counts:?}");
    });
}

#[test]
fn t3_waiting_in_a_discipline_and_being_dropped_there_is_told() {
    alone(|| {
        let Some(pair) = made(7108) else { return };
        // A frame of 1042 bytes waits until the bucket has it again; two of them may.
        let line = "qdisc add dev tw1 root handle 8: tbf rate 8mbit burst 1500 limit 3000";
        let status = Command::new("tc").args(line.split_whitespace()).status().unwrap();
        assert!(status.success(), "tc {line}");
        let Some(mut tracer) = opened(&settings(port(7108), &pair)) else { return };
        for n in 0..6_u8 {
            pair.sockets[0].send(&[n; 1000]).unwrap();
        }
        let mut buffer = [0; 1000];
        let mut events = Vec::new();
        let of = |events: &[Event], hook| events.iter().filter(|e| e.hook == hook).count();
        wait_until(|| {
            events.extend(drained(&mut tracer));
            let gone = of(&events, Hook::Drop) + of(&events, Hook::StackReceive);
            gone == of(&events, Hook::DeviceQueue) && gone == 6
        });
        let dropped = of(&events, Hook::Drop);
        assert!((1..6).contains(&dropped), "{events:?}");
        for _ in 0..6 - dropped {
            assert_eq!(pair.sockets[1].recv(&mut buffer).unwrap(), 1000);
        }
        let handles: Vec<u64> = events
            .iter()
            .filter(|event| matches!(event.hook, Hook::QdiscEnqueue | Hook::QdiscDequeue))
            .map(|event| event.aux >> 32)
            .collect();
        assert!(handles.len() >= 2 && handles.iter().all(|handle| *handle == 0x8_0000));
        assert_eq!(of(&events, Hook::QdiscEnqueue), 6 - dropped);
        assert_eq!(of(&events, Hook::QdiscDequeue), 6 - dropped);
        let reasons = events.iter().filter(|event| event.hook == Hook::Drop);
        assert!(reasons.clone().all(|event| event.aux > 1), "{:?}", reasons.collect::<Vec<_>>());
    });
}

#[test]
fn t3_the_thread_that_reads_is_seen_to_be_woken() {
    alone(|| {
        let Some(pair) = made(7109) else { return };
        let Some(mut tracer) = opened(&settings(port(7109), &pair)) else { return };
        if tracer.missing().contains_key(Hook::SocketReceive.name()) {
            return eprintln!("SKIP: this kernel does not tell who reads");
        }
        let reader = pair.sockets[1].try_clone().unwrap();
        let thread = std::thread::Builder::new().name("tw-reader".to_owned()).spawn(move || {
            let mut buffer = [0; 8];
            for _ in 0..20 {
                assert_eq!(reader.recv(&mut buffer).unwrap(), 4);
            }
            timewire_sys::scheduler::thread_id()
        });
        let mut events = Vec::new();
        let of = |events: &[Event], hook| events.iter().filter(|e| e.hook == hook).count();
        for n in 0..20_u32 {
            pair.sockets[0].send(&n.to_le_bytes()).unwrap();
            wait_until(|| {
                events.extend(drained(&mut tracer));
                of(&events, Hook::SocketReceive) == usize::try_from(n).unwrap() + 1
            });
        }
        let reader = thread.unwrap().join().unwrap();
        tracer.stop();
        events.extend(drained(&mut tracer));
        let socket = events.iter().find(|event| event.hook == Hook::SocketReceive).unwrap().object;
        let woken: Vec<&Event> =
            events.iter().filter(|e| e.hook == Hook::Waking && e.object == socket).collect();
        assert!(!woken.is_empty());
        assert!(woken.iter().all(|event| event.aux == u64::from(reader)));
        let ran = events.iter().filter(|e| e.hook == Hook::SwitchIn && e.object == socket);
        assert!(ran.clone().count() > 0 && ran.clone().all(|event| event.thread == reader));
        assert!(tracer.threads().unwrap().contains(&(reader, "tw-reader".to_owned())));
    });
}

#[test]
fn t3_counters_and_histograms_need_no_events() {
    alone(|| {
        let Some(pair) = made(7110) else { return };
        for mode in [Mode::Counters, Mode::Histograms] {
            let asked = Settings { mode, ..settings(port(7110), &pair) };
            let Some(mut tracer) = opened(&asked) else { return };
            let mut buffer = [0; 8];
            for n in 0..50_u32 {
                pair.sockets[0].send(&n.to_le_bytes()).unwrap();
                assert_eq!(pair.sockets[1].recv(&mut buffer).unwrap(), 4);
            }
            tracer.stop();
            assert!(drained(&mut tracer).is_empty());
            let matched = tracer.matched();
            for hook in [Hook::DeviceQueue, Hook::DriverStart, Hook::StackReceive] {
                assert_eq!(matched[&hook], 50, "{mode:?} {hook:?}");
            }
            let intervals = tracer.intervals().unwrap();
            let count = |from: Hook, to: Hook| {
                let interval = intervals.iter().find(|i| (i.from, i.to) == (from, to));
                interval.map_or(0, |interval| interval.bins.iter().sum::<u64>())
            };
            let expected = if mode == Mode::Histograms { 50 } else { 0 };
            assert_eq!(count(Hook::DeviceQueue, Hook::DriverStart), expected);
            assert_eq!(count(Hook::DriverStart, Hook::ReceiveQueue), expected);
        }
    });
}

/// The index of an interface of the thread's namespace.
fn index(name: &str) -> u32 {
    timewire_sys::interface_index(&name.parse().unwrap()).unwrap()
}

/// As [`settings`], with the program for drivers, if this kernel can have it.
fn watching(settings: Settings) -> Option<Tracer> {
    let mut hooks = settings.hooks.clone();
    hooks.push(Hook::Xdp);
    let tracer = opened(&Settings { hooks, ..settings })?;
    if !tracer.has_xdp() {
        eprintln!("SKIP: {}", tracer.missing()[Hook::Xdp.name()]);
        return None;
    }
    Some(tracer)
}

#[test]
fn t3_the_driver_shows_every_frame_before_the_stack_has_it() {
    alone(|| {
        let Some(pair) = made(7111) else { return };
        let Some(mut tracer) = watching(settings(port(7111), &pair)) else { return };
        assert!(!tracer.hooks().contains(&Hook::Xdp), "no interface is watched yet");
        enter_network(pair.namespaces[1].as_fd()).unwrap();
        let interface = index("tw2");
        assert_eq!(tracer.watch(interface).unwrap(), None);
        let found = attached(interface).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.mode), ("tw_xdp", Some(AttachMode::Native)));
        enter_network(pair.namespaces[0].as_fd()).unwrap();
        let mut buffer = [0; 200];
        for n in 0..100_u8 {
            let length = 20 + usize::from(n);
            pair.sockets[0].send(&[n; 200][..length]).unwrap();
            assert_eq!(pair.sockets[1].recv(&mut buffer).unwrap(), length);
        }
        tracer.stop();
        let events = drained(&mut tracer);
        let of = |hook| events.iter().filter(move |event| event.hook == hook);
        assert_eq!(of(Hook::Xdp).count(), 100, "{events:?}");
        for seen in of(Hook::Xdp) {
            let same = |event: &&Event| event.tag == seen.tag;
            let [sent] = of(Hook::DriverStart).filter(same).collect::<Vec<_>>()[..] else {
                panic!("{seen:?}")
            };
            let up = events.iter().find(|event| {
                let first = [Hook::NapiReceive, Hook::ReceiveQueue, Hook::StackReceive];
                first.contains(&event.hook) && event.tag == seen.tag
            });
            let up = up.unwrap();
            assert!(sent.at_ns <= seen.at_ns && seen.at_ns <= up.at_ns, "{sent:?} {seen:?} {up:?}");
            assert_eq!((seen.object, seen.station, seen.interface), (0, 1, interface));
            assert_eq!((seen.length, seen.flags), (up.length, Flags::default()));
        }
        let counts = tracer.counts().unwrap();
        assert_eq!(counts[&Hook::Xdp].lost, 0);
        assert!(counts[&Hook::Xdp].seen >= 100);
        // Nothing is left behind.
        enter_network(pair.namespaces[1].as_fd()).unwrap();
        assert_eq!(attached(interface).unwrap(), None);
    });
}

#[test]
fn t3_of_frames_in_drivers_those_that_are_asked_for_are_told() {
    alone(|| {
        let Some(pair) = made(7112) else { return };
        let asked = Settings { keep_one_of: 4, ..settings(port(7112), &pair) };
        let Some(mut tracer) = watching(asked) else { return };
        enter_network(pair.namespaces[1].as_fd()).unwrap();
        assert_eq!(tracer.watch(index("tw2")).unwrap(), None);
        enter_network(pair.namespaces[0].as_fd()).unwrap();
        let other = UdpSocket::bind((ADDRESSES[0], 0)).unwrap();
        let mut buffer = [0; 8];
        for n in 0..400_u32 {
            pair.sockets[0].send(&n.to_le_bytes()).unwrap();
            assert_eq!(pair.sockets[1].recv(&mut buffer).unwrap(), 4);
            other.send_to(b"nobody is there", (ADDRESSES[1], 9)).unwrap();
        }
        tracer.stop();
        let events = drained(&mut tracer);
        let tags = |hook| {
            let of = events.iter().filter(|event| event.hook == hook);
            of.map(|event| event.tag).collect::<Vec<u64>>()
        };
        assert_eq!(tags(Hook::Xdp), tags(Hook::StackReceive));
        assert!((40..200).contains(&tags(Hook::Xdp).len()), "{}", tags(Hook::Xdp).len());
        assert!(tracer.counts().unwrap()[&Hook::Xdp].seen >= 800);
    });
}

#[test]
fn t3_an_interface_with_a_program_is_left_as_it_is() {
    alone(|| {
        let Some(pair) = made(7113) else { return };
        let Some(mut tracer) = watching(settings(port(7113), &pair)) else { return };
        let interface = index("tw1");
        for mode in [AttachMode::Native, AttachMode::Generic] {
            let own = pass::Pass::attach(interface, mode).unwrap();
            let before = attached(interface).unwrap().unwrap();
            let why = tracer.watch(interface).unwrap().unwrap();
            let expected = format!("program {} ({}) is there already", before.program, before.name);
            assert_eq!(why, expected);
            assert_eq!(attached(interface).unwrap(), Some(before));
            drop(own);
        }
        // The loopback has no program of a driver.
        assert_eq!(tracer.watch(1).unwrap().unwrap(), "its driver has no XDP");
        assert!(!tracer.hooks().contains(&Hook::Xdp));
        assert!(!tracer.counts().unwrap().contains_key(&Hook::Xdp));
    });
}
