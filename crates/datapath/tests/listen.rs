// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receivers on a real interface of a namespace of their own: what each source hands over, which
//! timestamps it has, what its filter leaves to the stack, what it loses.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use crate::station::{ALL, OWN, Socket, Station, name, now, on_a_station, raw, run, tagged, udp};
use timewire_base::{Failure, Span};
use timewire_datapath::listen::{
    Arrival, BusyPoll, FrameFilter, ListenCounters, ListenError, ReceiveOptions, ReceiveTimestamps,
    Receiver, Source, UdpPlace, Wait, XdpMode,
};

const PORT: u16 = 15_001;
const TIMEOUT: Span = Span::from_secs(20);

fn xdp(mode: XdpMode) -> Source {
    Source::Xdp { interface: name("phy0"), queue: None, mode }
}

/// Every source of whole frames that works here.
fn sources() -> Vec<Source> {
    let interface = name("phy0");
    vec![
        Source::Frames { interface: interface.clone() },
        Source::Ring { interface },
        xdp(XdpMode::Generic),
        xdp(XdpMode::Native),
    ]
}

/// Runs a test for each source, each time on a station of its own; skips those of XDP where no
/// program can be loaded.
fn on_each_source(test: impl Fn(&mut Station, &Source) + Sync) {
    for source in sources() {
        on_a_station(|station| {
            let is_xdp = matches!(source, Source::Xdp { .. });
            match try_open(&source, &options()) {
                Err(error) if is_xdp && (error.is_unsupported() || error.hint().is_some()) => {
                    eprintln!("SKIP: {error}");
                }
                opened => {
                    eprintln!("{}", opened.unwrap().mode());
                    test(station, &source);
                }
            }
        });
    }
}

fn options() -> ReceiveOptions {
    let timestamps = ReceiveTimestamps { software: true, hardware: true };
    ReceiveOptions { timestamps, ..ReceiveOptions::default() }
}

fn open(source: &Source, filter: FrameFilter) -> Receiver {
    try_open(source, &ReceiveOptions { filter, ..options() }).unwrap()
}

/// Opens a receiver, waiting for an earlier one's program to be really gone: a child of another
/// test holds copies of its descriptors between its fork and its exec.
fn try_open(source: &Source, options: &ReceiveOptions) -> Result<Receiver, ListenError> {
    let deadline = now() + TIMEOUT;
    loop {
        match Receiver::open(source, options) {
            Err(ListenError::InTheWay { .. }) if now() < deadline => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// Waits until no program is on the interface; see [`try_open`].
fn wait_for_none_attached() {
    let index = timewire_sys::interface_index(&name("phy0")).unwrap();
    let deadline = now() + TIMEOUT;
    while timewire_bpf::attached(index).unwrap().is_some() {
        assert!(now() < deadline, "the program stays");
        std::thread::yield_now();
    }
}

/// Waits until the kernel timestamps: it begins a moment after it was asked to.
fn timestamping() {
    run("ip", "link set lo up");
    let bind = (Ipv4Addr::LOCALHOST, 0).into();
    let place = UdpPlace { bind, device: None, group: None };
    let mut receiver = Receiver::open(&Source::Udp(place), &options()).unwrap();
    let to = receiver.local_address().unwrap().unwrap();
    let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut is_timestamped = false;
    while !is_timestamped {
        from.send_to(b"soon", to).unwrap();
        receiver.receive(None, &mut |arrival| is_timestamped |= arrival.kernel.is_some()).unwrap();
    }
}

fn wanted() -> FrameFilter {
    FrameFilter {
        ethertype: Some(0x0800),
        destination: Some(timewire_base::wire::MacAddress(OWN)),
        vid: Some(5),
        pcp: Some(3),
        udp_port: Some(PORT),
        ..FrameFilter::default()
    }
}

/// Receives until there are so many, and not one more.
fn expect(receiver: &mut Receiver, count: usize, each: &mut dyn FnMut(Arrival<'_>)) {
    let deadline = now() + TIMEOUT;
    let mut came = 0;
    while came < count {
        assert!(now() < deadline, "{came} of {count} came");
        came += receiver.receive(Some(Span::from_ms(50)), each).unwrap();
    }
    assert_eq!(came, count);
    assert_eq!(receiver.receive(Some(Span::ZERO), &mut |_| panic!("one more")).unwrap(), 0);
}

#[test]
fn t3_a_source_hands_over_its_frames_and_leaves_the_rest_to_the_stack() {
    on_each_source(|station, source| {
        let mut receiver = open(source, wanted());
        timestamping();
        let mut stack = Socket::open("phy0");
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        let before = now();
        for number in 0..20 {
            for kind in [0x8100, 0x88a8] {
                let length = 60 + 10 * usize::try_from(number).unwrap();
                ours.push(tagged(&udp(OWN, 1, PORT, length, number), &[kind]));
            }
            others.push(udp(OWN, 1, PORT, 60, number));
            others.push(tagged(&udp(OWN, 1, PORT + 1, 60, number), &[0x8100]));
            others.push(tagged(&udp(ALL, 1, PORT, 60, number), &[0x8100]));
            others.push(raw(OWN, 80, number));
            let from = others.len() - 4;
            for frame in ours[ours.len() - 2..].iter().chain(&others[from..]) {
                station.wire.send(frame);
            }
        }
        let is_xdp = matches!(source, Source::Xdp { .. });
        let mut seen = Vec::new();
        expect(&mut receiver, ours.len(), &mut |arrival| {
            assert!(before <= arrival.user && arrival.user <= now());
            let timestamps = [arrival.driver, arrival.kernel];
            assert_eq!(timestamps.map(|it| it.is_some()), [is_xdp, !is_xdp]);
            let timestamp = timestamps.into_iter().flatten().next().unwrap();
            assert!(before <= timestamp && timestamp <= arrival.user, "{timestamp:?} {arrival:?}");
            assert_eq!(arrival.hardware_ns, None, "no NIC has timestamped it");
            let tag = arrival.bytes[12..16].try_into().unwrap();
            assert_eq!(arrival.tag, (!is_xdp).then_some(tag));
            assert_eq!(usize::try_from(arrival.length).unwrap(), arrival.bytes.len());
            seen.push(arrival.bytes.to_vec());
        });
        assert_eq!(seen, ours);
        // A socket beside the stack sees what the stack gets.
        let stacked = if is_xdp { others.len() } else { others.len() + ours.len() };
        let stacked = stack.expect(stacked);
        assert!(others.iter().all(|frame| stacked.contains(frame)));
        assert_eq!(receiver.drops().unwrap(), 0);
        if let Some(counters) = receiver.counters() {
            let (taken, passed) = (40, 80);
            let expected = ListenCounters { taken, passed, ..ListenCounters::default() };
            assert_eq!(counters.unwrap(), expected);
        }
    });
}

#[test]
fn t3_each_lost_frame_is_counted_once() {
    on_each_source(|station, source| {
        let options = ReceiveOptions { buffer_bytes: 64 << 10, ..options() };
        let mut receiver = try_open(source, &options).unwrap();
        let mut lost_before = 0;
        for _ in 0..2 {
            for number in 0..500 {
                station.wire.send(&raw(OWN, 400, number));
            }
            // What was sent is on the other side soon after.
            let deadline = now() + TIMEOUT;
            let mut came = 0;
            let lost = loop {
                came += receiver.receive(Some(Span::from_ms(1)), &mut |_| ()).unwrap();
                let lost = receiver.drops().unwrap();
                if came + usize::try_from(lost - lost_before).unwrap() == 500 {
                    break lost;
                }
                assert!(now() < deadline, "{came} came, {lost} ({lost_before}) were lost of 500");
            };
            assert!(came > 0 && lost > lost_before, "a small buffer loses some");
            lost_before = lost;
        }
    });
}

#[test]
fn t3_frames_too_long_are_cut_or_counted() {
    on_each_source(|_, source| {
        for side in ["phy0", "seg0"] {
            run("ip", &format!("link set {side} mtu 2500"));
        }
        run("ip", "address add 10.78.0.2/24 dev seg0");
        run("ip", "neighbour add 10.78.0.1 lladdr 02:00:00:00:00:01 dev seg0");
        let from = UdpSocket::bind("10.78.0.2:0").unwrap();
        let is_xdp = matches!(source, Source::Xdp { .. });
        let filter = FrameFilter { udp_port: Some(PORT), ..FrameFilter::default() };
        let options = ReceiveOptions { longest: 400, filter, ..options() };
        let mut receiver = try_open(source, &options).unwrap();
        from.send_to(&[0x5a; 2_000], ("10.78.0.1", PORT)).unwrap();
        from.send_to(&[0xa5; 100], ("10.78.0.1", PORT)).unwrap();
        let mut seen = Vec::new();
        expect(&mut receiver, if is_xdp { 1 } else { 2 }, &mut |arrival| {
            seen.push((arrival.bytes.to_vec(), arrival.length));
        });
        let (short, length) = seen.pop().unwrap();
        assert_eq!((short.len(), length, &short[42..]), (142, 142, &[0xa5; 100][..]));
        if let Some((bytes, length)) = seen.pop() {
            assert_eq!(length, 2_042);
            assert!((400..1_000).contains(&bytes.len()), "{}", bytes.len());
            assert!(bytes[42..].iter().all(|byte| *byte == 0x5a));
        }
        assert_eq!(receiver.drops().unwrap(), u64::from(is_xdp));
    });
}

#[test]
fn t3_each_way_of_waiting_brings_frames_from_each_source() {
    let busy = BusyPoll { microseconds: 200, budget: Some(16), prefer: true };
    for wait in [Wait::Poll, Wait::BusyPoll(busy)] {
        on_each_source(|station, source| {
            let options = ReceiveOptions { wait, ..options() };
            let mut receiver = try_open(source, &options).unwrap();
            // The kernel tells everything but the budget.
            let told = BusyPoll::of(receiver.as_fd()).unwrap();
            let wanted = matches!(wait, Wait::BusyPoll(_)).then_some(busy);
            assert_eq!(told, wanted.map(|busy| BusyPoll { budget: None, ..busy }), "{source}");
            let none = receiver.receive(Some(Span::from_ms(1)), &mut |_| panic!()).unwrap();
            assert_eq!(none, 0);
            for number in 0..100 {
                let frame = raw(OWN, 100, number);
                station.wire.send(&frame);
                expect(&mut receiver, 1, &mut |arrival| assert_eq!(arrival.bytes, frame));
            }
        });
    }
}

#[test]
fn t3_another_program_on_the_interface_is_named_and_stays() {
    on_a_station(|station| {
        let open = || Receiver::open(&xdp(XdpMode::Generic), &options());
        let first = match open() {
            Ok(first) => first,
            Err(error) => return eprintln!("SKIP: {error}"),
        };
        for mode in [XdpMode::Generic, XdpMode::Auto] {
            let error = Receiver::open(&xdp(mode), &options()).unwrap_err();
            let text = error.to_string();
            let ListenError::InTheWay { name, link: Some(_), .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(name, "tw_listen");
            assert!(text.contains("`tw_listen`") && text.contains("on phy0"), "{text}");
        }
        drop(first);
        wait_for_none_attached();
        // It is gone with its owner, and frames are the stack's again.
        let mut stack = Socket::open("phy0");
        station.wire.send(&raw(OWN, 100, 1));
        assert_eq!(stack.expect(1), [raw(OWN, 100, 1)]);
        try_open(&xdp(XdpMode::Generic), &options()).unwrap();
    });
}

/// The program of a process that was killed is gone, and frames are the stack's again.
#[test]
fn t3_a_killed_process_leaves_no_program() {
    const CHILD: &str = "TIMEWIRE_TEST_LISTEN_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let mut receiver = Receiver::open(&xdp(XdpMode::Generic), &options()).unwrap();
        println!("open");
        receiver.receive(None, &mut |_| println!("came")).unwrap();
        return std::thread::sleep(std::time::Duration::from_secs(1_000));
    }
    on_a_station(|station| {
        if let Err(error) = Receiver::open(&xdp(XdpMode::Generic), &options()) {
            return eprintln!("SKIP: {error}");
        }
        wait_for_none_attached();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "listen::t3_a_killed_process_leaves_no_program", "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().ends_with("open")));
        let mut stack = Socket::open("phy0");
        let index = timewire_sys::interface_index(&name("phy0")).unwrap();
        station.wire.send(&raw(OWN, 100, 1));
        assert!(said.any(|line| line.unwrap() == "came"));
        assert_eq!(timewire_bpf::attached(index).unwrap().unwrap().name, "tw_listen");
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for_none_attached();
        station.wire.send(&raw(OWN, 100, 2));
        assert_eq!(stack.expect(1), [raw(OWN, 100, 2)]);
    });
}

#[test]
fn t3_the_best_mode_is_chosen_and_what_was_refused_is_told() {
    on_a_station(|_| {
        match Receiver::open(&xdp(XdpMode::Auto), &options()) {
            Ok(receiver) => {
                // A veth pair has no zero copy; its driver can be asked for timestamps (Linux 6.3).
                assert!(receiver.mode().starts_with("AF_XDP native, copy"), "{}", receiver.mode());
                assert!(receiver.refused()[0].starts_with("AF_XDP native, zero copy"));
            }
            Err(error) => return eprintln!("SKIP: {error}"),
        }
        let error = try_open(&xdp(XdpMode::ZeroCopy), &options()).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        assert!(error.to_string().contains("zero copy"), "{error}");
        let gone = Source::Frames { interface: name("phy9") };
        let error = Receiver::open(&gone, &options()).unwrap_err().to_string();
        assert!(error.contains("no interface phy9"), "{error}");
        let filter = FrameFilter { pcp: Some(8), ..FrameFilter::default() };
        let wrong = ReceiveOptions { filter, ..options() };
        for source in sources() {
            let error = try_open(&source, &wrong).unwrap_err().to_string();
            assert!(error.contains("PCP 8") && error.contains("phy0"), "{error}");
        }
    });
}

#[test]
fn t3_an_interface_that_goes_away_ends_the_waiting() {
    on_each_source(|_, source| {
        let mut receiver = open(source, FrameFilter::default());
        run("ip", "link del phy0");
        let deadline = now() + TIMEOUT;
        loop {
            match receiver.receive(Some(Span::from_ms(20)), &mut |_| ()) {
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(100), "network is down: {error}");
                    break;
                }
                Ok(_) => assert!(now() < deadline, "nothing is said of it"),
            }
        }
    });
}

#[test]
fn t3_udp_of_both_families_and_of_a_group_comes_through_the_interface() {
    on_a_station(|_| {
        run("ip", "link set phy0 name phy1");
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0");
        run("ip", "link set lo up");
        let group = Ipv4Addr::new(239, 1, 2, 3);
        run("ip", "route add 239.0.0.0/8 dev lo");
        let mut places: Vec<(UdpPlace, IpAddr)> = Vec::new();
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let bind = SocketAddr::new(address, 0);
            places.push((UdpPlace { bind, device: Some(name("lo")), group: None }, address));
        }
        let bind = (Ipv4Addr::UNSPECIFIED, 0).into();
        let place = UdpPlace { bind, device: Some(name("lo")), group: Some(group.into()) };
        places.push((place, group.into()));
        for (place, to) in places {
            let mut receiver = match Receiver::open(&Source::Udp(place.clone()), &options()) {
                Ok(receiver) => receiver,
                Err(error) if to.is_ipv6() => {
                    eprintln!("SKIP: {error}");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let port = receiver.local_address().unwrap().unwrap().port();
            let from = if to.is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
            let from = UdpSocket::bind(from).unwrap();
            timestamping();
            let before = now();
            from.send_to(b"a message", (to, port)).unwrap();
            expect(&mut receiver, 1, &mut |arrival| {
                assert_eq!(arrival.bytes, b"a message");
                assert_eq!(arrival.from, from.local_addr().ok());
                let kernel = arrival.kernel.unwrap();
                assert!(before <= kernel && kernel <= arrival.user);
            });
        }
    });
}
