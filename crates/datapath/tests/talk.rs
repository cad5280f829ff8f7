// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Talkers on real ports of this kernel: a virtual pair in a network namespace, through every
//! transport. Contents, order, tags, timestamps and counters are looked at; times only in their
//! order.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::station;
use crate::station::{OTHER, OWN, Station, name, now, on_a_station, run};
use timewire_base::{Failure, Span};
use timewire_datapath::probe::Probe;
use timewire_datapath::talker::{
    Cadence, Destination, FrameContent, FrameHeader, PostError, StreamEvent, StreamEventKind,
    StreamSpec, Talker, TalkerReport, VlanTag,
};
use timewire_datapath::transmit::{
    BusyPoll, LaunchOptions, TimestampTime, TransmitOptions, Transmitter, Transport, TxPoint,
    TxPoints, TxReport, XdpMode, XdpPort,
};

fn xdp(mode: XdpMode) -> Transport {
    let interface = name("phy0");
    Transport::Xdp(XdpPort { interface, queue: 0, mode, need_wakeup: true, busy_poll: None })
}

fn frames() -> Transport {
    Transport::Frames { interface: name("phy0") }
}

fn ring() -> Transport {
    Transport::Ring { interface: name("phy0") }
}

fn header(pcp: u8) -> FrameHeader {
    FrameHeader {
        source: None,
        destination: OTHER,
        vlan: Some(VlanTag { vid: 100, pcp }),
        content: FrameContent::EtherType(0x88b5),
    }
}

fn cyclic(number: u16, cycle: Span, cycles: u64) -> StreamSpec {
    let cadence = Cadence::Cycle { start: now(), cycle };
    let to = Destination::Frame(header(6));
    StreamSpec { cycles: Some(cycles), ..StreamSpec::new(number, to, cadence, 46) }
}

fn points(transport: &Transport) -> TxPoints {
    let sched = !matches!(transport, Transport::Xdp(_));
    TxPoints { sched, software: true, hardware: false }
}

/// Runs a test on a station whose link has settled: until the kernel has noticed its socket type,
/// what goes through the queueing discipline is lost without an error.
fn on_a_link(test: impl FnOnce(&mut Station) + Send) {
    on_a_station(|station| {
        let mut port = Transmitter::open(&frames(), &TransmitOptions::default()).unwrap();
        let (mut number, mut got) = (0, Vec::new());
        let last = |number| station::raw(OTHER, 60, number);
        let deadline = now() + Span::from_secs(20);
        while got.last() != Some(&last(number)) {
            assert!(now() < deadline, "the link does not come up");
            number += 1;
            port.send_copy(&last(number), None, None).unwrap();
            port.flush();
            let timeout = now() + Span::from_ms(5);
            while got.last() != Some(&last(number)) && now() < timeout {
                got.extend(station.wire.receive());
            }
        }
        test(station);
    });
}

static NEVER: AtomicBool = AtomicBool::new(false);

fn adds_up(report: &TalkerReport) {
    for stream in &report.streams {
        let c = stream.counters;
        let skipped = c.skipped_woke_late + c.skipped_overran + c.expired;
        assert_eq!(c.planned, c.sent + skipped + c.not_taken + c.refused, "{stream:?}");
    }
}

#[test]
fn t3_frames_arrive_whole_in_order_and_tagged_and_their_timestamps_name_them() {
    for transport in [frames(), ring(), xdp(XdpMode::Auto)] {
        on_a_link(|station| {
            let options = TransmitOptions { points: points(&transport), ..Default::default() };
            // Everything is sent, however busy the machine is.
            let all = |spec| StreamSpec { send_late: true, ..spec };
            let streams = [
                all(StreamSpec { frames: 3, ..cyclic(5, Span::from_ms(1), 40) }),
                all(cyclic(9, Span::from_us(700), 50)),
            ];
            let ports = [(transport.clone(), options)];
            let mut talker = Talker::new(&ports, &streams).unwrap();
            eprintln!("  {}", talker.ports()[0].mode());
            let mut events = Vec::new();
            talker.run(&NEVER, None, &mut |event| events.push(event)).unwrap();
            let report = talker.report();
            adds_up(&report);

            let got = station.wire.expect(170);
            let mut next = BTreeMap::from([(5, 0), (9, 0)]);
            for frame in &got {
                assert_eq!(frame[..12], [OTHER, OWN].concat());
                assert_eq!(frame[12..18], [0x81, 0, 0xc0, 100, 0x88, 0xb5]);
                let probe = Probe::parse(&frame[18..]).unwrap();
                let seq = next.get_mut(&probe.stream).unwrap();
                assert_eq!((probe.seq, probe.is_launch), (*seq, false));
                assert_eq!(frame[18 + Probe::LEN..], [0; 28]);
                *seq += 1;
            }
            assert_eq!(next, BTreeMap::from([(5, 120), (9, 50)]));
            let per_message = if points(&transport).sched { 2 } else { 1 };
            for (stream, sent) in report.streams.iter().zip([120, 50]) {
                let c = stream.counters;
                assert_eq!(
                    (c.sent, c.timestamps, c.timestamps_missing),
                    (sent, per_message * sent, 0)
                );
            }
            assert_eq!((report.unknown_reports, report.lost_reports), (0, 0));
            timestamps_in_order(&events, &got, per_message);
        });
    }
}

/// Of each message: written, then timestamped at each timestamp point, and it carries the time it
/// was written.
fn timestamps_in_order(events: &[StreamEvent], frames: &[Vec<u8>], per_message: u64) {
    let (mut times, mut written) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        let key = (event.stream, event.seq);
        match event.what {
            StreamEventKind::Sent { at, .. } => assert!(written.insert(key, at).is_none()),
            StreamEventKind::Timestamp { point, at: TimestampTime::System(at) } => {
                times.entry(key).or_insert_with(Vec::new).push((point, at));
            }
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(written.len(), frames.len());
    for frame in frames {
        let probe = Probe::parse(&frame[18..]).unwrap();
        assert_eq!(written[&(probe.stream, probe.seq)], probe.time);
    }
    for (key, mut points) in times {
        points.sort();
        let all = [(TxPoint::Sched, written[&key])].into_iter().chain(points.clone());
        assert!(
            all.map(|(_, at)| at).is_sorted(),
            "{key:?} written {:?}: {points:?}",
            written[&key]
        );
        let expected: &[_] =
            if per_message == 2 { &[TxPoint::Sched, TxPoint::Software] } else { &[TxPoint::Freed] };
        assert!(points.iter().map(|(point, _)| point).eq(expected), "{points:?}");
    }
}

#[test]
fn t3_udp_goes_to_several_destinations_and_an_icmp_error_does_not_stop_it() {
    on_a_link(|_| {
        run("ip", "link set lo up");
        for ip in ["127.0.0.1", "::1"] {
            if ip == "::1" {
                std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0").unwrap();
                run("ip", "-6 address replace ::1/128 dev lo nodad");
            }
            let any = SocketAddr::new(ip.parse().unwrap(), 0);
            let there: Vec<_> = (0..2).map(|_| UdpSocket::bind(any).unwrap()).collect();
            let gone = UdpSocket::bind(any).unwrap().local_addr().unwrap();
            let port = Transport::Udp { from: any, to: None, device: Some(name("lo")) };
            let options = TransmitOptions {
                points: TxPoints { software: true, ..TxPoints::default() },
                traffic_class: Some(0xb8),
                ..Default::default()
            };
            let to = |address| Destination::Udp(address);
            let addresses = there.iter().map(|one| one.local_addr().unwrap()).chain([gone]);
            let streams: Vec<_> = (0..)
                .zip(addresses)
                .map(|(number, address)| StreamSpec {
                    to: to(address),
                    send_late: true,
                    ..cyclic(number, Span::from_us(500), 60)
                })
                .collect();
            let mut talker = Talker::new(&[(port, options)], &streams).unwrap();
            talker.run(&NEVER, None, &mut |_| ()).unwrap();
            let report = talker.report();
            adds_up(&report);
            for (number, socket) in (0..).zip(&there) {
                socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                for seq in 0..60 {
                    let mut bytes = [0; 64];
                    assert_eq!(socket.recv(&mut bytes).unwrap(), 46);
                    let probe = Probe::parse(&bytes).unwrap();
                    assert_eq!((probe.stream, probe.seq), (number, seq));
                }
            }
            for stream in &report.streams {
                let c = stream.counters;
                assert_eq!((c.sent, c.timestamps_missing, c.refused), (60, 0, 0), "{c:?}");
            }
            assert!(report.other_errors > 0, "{ip}: no ICMP error was told");
        }
    });
}

#[test]
fn t3_a_full_device_is_counted_message_by_message() {
    for transport in [frames(), ring()] {
        on_a_link(|station| {
            // One frame in the queue, and hardly any leaves it.
            let qdisc = "qdisc add dev phy0 root tbf rate 8kbit burst 100 limit 100";
            if !tc(qdisc) {
                eprintln!("SKIP: this kernel has no tbf");
                return;
            }
            let streams =
                [StreamSpec { send_late: true, frames: 10, ..cyclic(1, Span::from_us(100), 10) }];
            let ports = [(transport.clone(), TransmitOptions::default())];
            let mut talker = Talker::new(&ports, &streams).unwrap();
            let mut refused = 0;
            talker
                .run(&NEVER, None, &mut |event| {
                    refused += u64::from(matches!(event.what, StreamEventKind::NotTaken { .. }));
                })
                .unwrap();
            let report = talker.report();
            adds_up(&report);
            let c = report.streams[0].counters;
            assert_eq!((c.planned, c.not_taken), (100, refused), "{c:?}");
            assert!(refused > 50 && c.sent > 0, "{c:?}");
            run("tc", "qdisc del dev phy0 root");
            assert!(station.wire.receive().len() <= usize::try_from(c.sent).unwrap());
        });
    }
}

fn tc(arguments: &str) -> bool {
    let mut tc = std::process::Command::new("tc");
    tc.args(arguments.split(' ')).output().is_ok_and(|output| output.status.success())
}

#[test]
fn t3_a_port_that_cannot_be_says_why() {
    on_a_link(|_| {
        let open = |transport: &Transport, options: TransmitOptions| {
            let error = Transmitter::open(transport, &options).expect_err("it is refused");
            (error.is_unsupported(), error.to_string())
        };
        let plain = TransmitOptions::default();
        let hardware = TxPoints { hardware: true, ..TxPoints::default() };
        for transport in [frames(), ring(), xdp(XdpMode::Auto)] {
            let (unsupported, text) =
                open(&transport, TransmitOptions { points: hardware, ..plain });
            assert!(unsupported && text.contains("phy0"), "{text}");
        }
        let launch = Some(LaunchOptions::default());
        let (unsupported, text) = open(&xdp(XdpMode::Auto), TransmitOptions { launch, ..plain });
        assert!(unsupported && text.starts_with("launch times of AF_XDP on phy0: "), "{text}");
        let (unsupported, text) = open(&xdp(XdpMode::ZeroCopy), plain);
        assert!(unsupported && text.starts_with("zero copy on phy0 queue 0: "), "{text}");
        let bypass = TransmitOptions { qdisc_bypass: true, launch, ..plain };
        let (unsupported, text) = open(&frames(), bypass);
        assert!(!unsupported && text.contains("do not bypass it"), "{text}");
        let missing = Transport::Frames { interface: name("none0") };
        let (unsupported, text) = open(&missing, plain);
        assert!(!unsupported && text.contains("there is no interface none0; there are "), "{text}");
        // Without zero copy it works, and says what it is.
        let port = Transmitter::open(&xdp(XdpMode::Auto), &plain).unwrap();
        assert_eq!(port.mode().name, "AF_XDP copy");
        assert!(port.mode().to_string().contains("no zero copy: "), "{}", port.mode());
    });
}

/// Sends a frame of each length and looks what comes out.
fn lengths_pass(station: &mut Station, port: &mut Transmitter) {
    let lengths: Vec<usize> = (60..=1_514).step_by(7).collect();
    for (number, &length) in (0..).zip(&lengths) {
        port.send_copy(&station::raw(OTHER, length, number), None, None).unwrap();
    }
    while port.flush() > 0 {}
    let mut told = Vec::new();
    port.reports(&mut |report| told.push(report)).unwrap();
    assert!(told.is_empty(), "{told:?}");
    let got = station.wire.expect(lengths.len());
    for ((number, length), frame) in (0..).zip(lengths).zip(got) {
        assert_eq!(frame, station::raw(OTHER, length, number), "{length} bytes");
    }
}

#[test]
fn t3_every_variant_of_a_port_sends_frames_of_every_length() {
    let busy_poll = Some(BusyPoll { microseconds: 20, budget: Some(16), prefer: true });
    let xdp = |mode, need_wakeup, busy_poll| {
        Transport::Xdp(XdpPort { interface: name("phy0"), queue: 0, mode, need_wakeup, busy_poll })
    };
    let plain = TransmitOptions::default();
    let bypass = TransmitOptions { qdisc_bypass: true, ..plain };
    let variants = [
        (frames(), plain),
        (frames(), bypass),
        (ring(), plain),
        (ring(), bypass),
        (xdp(XdpMode::Generic, true, None), plain),
        (xdp(XdpMode::Native, false, None), plain),
        (xdp(XdpMode::Generic, true, busy_poll), plain),
    ];
    for (transport, options) in variants {
        on_a_link(|station| {
            let mut port = Transmitter::open(&transport, &options).unwrap();
            let wanted = match &transport {
                Transport::Xdp(port) => port.busy_poll,
                _ => None,
            };
            // The kernel tells everything but the budget.
            let told = BusyPoll::of(port.as_fd()).unwrap();
            assert_eq!(told, wanted.map(|busy| BusyPoll { budget: None, ..busy }));
            for _ in 0..8 {
                lengths_pass(station, &mut port);
            }
        });
    }
}

#[test]
fn t3_what_was_posted_is_sent_unless_its_deadline_has_passed() {
    on_a_link(|station| {
        let to = Destination::Frame(header(3));
        let spec = StreamSpec { depth: 4, ..StreamSpec::new(1, to, Cadence::Posted, 50) };
        let ports = [(frames(), TransmitOptions::default())];
        let mut talker = Talker::new(&ports, &[spec]).unwrap();
        let poster = talker.poster(1).unwrap();
        assert!(talker.poster(1).is_none());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let talking = scope.spawn(|| {
                talker.run(&stop, None, &mut |_| ()).unwrap();
                talker.report()
            });
            poster.post(b"too late", Some(now() - Span::from_ms(1))).unwrap();
            assert_eq!(poster.post(&[0; 51], None), Err(PostError::TooLong));
            for number in 0..20_u8 {
                let text = [number; 50];
                let deadline = now() + Span::from_secs(60);
                while poster.post(&text[..usize::from(number) + 30], Some(deadline)).is_err() {
                    std::thread::yield_now();
                }
                let got = station.wire.expect(1);
                let length = usize::from(number) + 30;
                assert_eq!(got[0][18..18 + length], text[..length]);
                assert_eq!(got[0].len(), 60.max(18 + length));
            }
            stop.store(true, Ordering::Relaxed);
            let c = talking.join().unwrap().streams[0].counters;
            assert_eq!((c.planned, c.sent, c.expired), (21, 20, 1));
        });
    });
}

#[test]
fn t3_a_thousand_streams_of_a_millisecond_lose_nothing_without_a_count() {
    for transport in [frames(), ring(), xdp(XdpMode::Auto)] {
        on_a_link(|station| {
            let start = now() + Span::from_ms(20);
            let streams: Vec<_> = (0..1_000)
                .map(|number| {
                    let cadence = Cadence::Cycle { start, cycle: Span::from_ms(1) };
                    StreamSpec { cadence, ..cyclic(number, Span::from_ms(1), 50) }
                })
                .map(|spec| StreamSpec { offset: Span::from_us(spec.number.into()), ..spec })
                .collect();
            let ports = [(transport.clone(), TransmitOptions::default())];
            let mut talker = Talker::new(&ports, &streams).unwrap();
            talker.run(&NEVER, None, &mut |_| ()).unwrap();
            let report = talker.report();
            adds_up(&report);
            let total = |of: fn(&timewire_datapath::talker::StreamCounters) -> u64| -> u64 {
                report.streams.iter().map(|stream| of(&stream.counters)).sum()
            };
            let sent = total(|c| c.sent);
            eprintln!(
                "  {}: {sent} sent, {} woken late, {} overran, {} not taken",
                talker.ports()[0].mode().name,
                total(|c| c.skipped_woke_late),
                total(|c| c.skipped_overran),
                total(|c| c.not_taken),
            );
            assert_eq!(total(|c| c.planned), 50_000);
            let mut next = vec![0; 1_000];
            for frame in station.wire.expect(usize::try_from(sent).unwrap()) {
                let probe = Probe::parse(&frame[18..]).unwrap();
                let seq = &mut next[usize::from(probe.stream)];
                assert!(probe.seq >= *seq, "stream {} went back", probe.stream);
                *seq = probe.seq + 1;
            }
        });
    }
}

#[test]
fn t3_reports_name_messages_also_when_some_were_not_taken() {
    on_a_link(|station| {
        let options = TransmitOptions { points: points(&frames()), ..Default::default() };
        for transport in [frames(), ring()] {
            let mut port = Transmitter::open(&transport, &options).unwrap();
            run("ip", "link set phy0 down");
            let lost: Vec<_> = (0..3).map(|n| send(&mut port, n)).collect();
            port.flush();
            run("ip", "link set phy0 up");
            let sent: Vec<_> = (3..6).map(|n| send(&mut port, n)).collect();
            port.flush();
            let (mut refused, mut timestamped) = (Vec::new(), BTreeMap::<u32, u32>::new());
            while timestamped.values().sum::<u32>() < 6 {
                port.reports(&mut |report| match report {
                    TxReport::NotTaken { id, .. } => refused.push(id),
                    TxReport::Timestamp { id, .. } => *timestamped.entry(id).or_default() += 1,
                    other => panic!("{other:?}"),
                })
                .unwrap();
            }
            assert_eq!(refused, lost);
            assert_eq!(timestamped, sent.iter().map(|id| (*id, 2)).collect());
            station.wire.expect(3);
        }
    });
}

fn send(port: &mut Transmitter, number: u64) -> u32 {
    port.send_copy(&station::raw(OTHER, 100, number), None, None).unwrap().id
}
