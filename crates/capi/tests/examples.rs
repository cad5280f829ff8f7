// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The examples as their users have them: built with a C and a C++ compiler without a warning, and
//! run. On the loopback interface, and with whole frames in a network namespace.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::library::{Running, build, command, compile, has, here, library, number, run};
use timewire_base::{IfName, Span, Tai};
use timewire_datapath::listen::{FrameFilter, ReceiveOptions, Receiver, Source, UdpPlace};
use timewire_datapath::probe::Probe;
use timewire_datapath::transmit::{TransmitOptions, Transmitter, Transport};
use timewire_sys::clock;
use timewire_sys::namespace::{self, Namespace};

const COUNT: i64 = 200;

/// The kernel begins to timestamp what is received some time after the first socket of the host has
/// asked for it. From here on it does, as long as this socket is there.
fn timestamping() -> Receiver {
    let bind = (Ipv4Addr::LOCALHOST, 0).into();
    let source = Source::Udp(UdpPlace { bind, device: None, group: None });
    let mut receiver = Receiver::open(&source, &ReceiveOptions::default()).unwrap();
    let to = receiver.local_address().unwrap().unwrap();
    let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut is_timestamped = false;
    while !is_timestamped {
        from.send_to(b"x", to).unwrap();
        receiver.receive(None, &mut |arrival| is_timestamped = arrival.kernel.is_some()).unwrap();
    }
    receiver
}

/// A listener that listens, and where.
fn listener(
    program: &Path,
    library: &Path,
    way: &str,
    at: &str,
    clock_error: Option<&str>,
) -> Result<(Running, String), String> {
    let count = COUNT.to_string();
    // Patient: on a busy machine the talker may need seconds to start.
    let mut arguments = vec![way, at, &count, "60"];
    arguments.extend(clock_error);
    let mut running = Running::start(&mut command(program, library, &arguments));
    let address = running.line("listening on ")?;
    Ok((running, address))
}

#[test]
fn t3_a_talker_in_c_is_heard_by_a_listener_in_c_over_udp() {
    if !has("cc") {
        return;
    }
    let _timestamping = timestamping();
    let library = library("udp");
    let talker = build("examples/talker.c", &library);
    let program = build("examples/listener.c", &library);
    let scenario = here("../../scenarios/tdm-64.yaml");
    let slots = ["--slots", scenario.to_str().unwrap(), "alpha"];
    for (at, extra) in [
        ("127.0.0.1:0", &["--cycle", "500"][..]),
        ("[::1]:0", &["--cycle", "500"]),
        ("127.0.0.1:0", &["--cycle", "500", "--launch", "200"]),
        ("127.0.0.1:0", &slots),
    ] {
        let (running, address) = match listener(&program, &library, "udp", at, Some("0")) {
            Ok(running) => running,
            Err(said) if at.starts_with('[') && said.contains("assign") => {
                eprintln!("SKIP: no IPv6: {said}");
                continue;
            }
            Err(said) => panic!("{said}"),
        };
        let count = COUNT.to_string();
        let mut arguments = vec!["udp", &address, "--count", &count];
        arguments.extend(extra);
        let sent = run(&mut command(&talker, &library, &arguments));
        let heard = running.rest();
        assert_eq!(number(&sent, "sent"), COUNT, "{sent}");
        assert_eq!(number(&sent, "timestamps"), COUNT, "{sent}");
        assert_eq!(number(&sent, "launch_refused"), 0, "{sent}");
        assert_eq!(number(&heard, "known"), COUNT, "{heard}");
        assert_eq!(number(&heard, "lost") + number(&heard, "drops"), 0, "{heard}");
        assert_eq!(number(&heard, "timestamped"), COUNT, "{heard}");
        assert!(heard.contains("latency_us least") && heard.contains(" error 0"), "{heard}");
    }
}

/// In a namespace of its own: a link whose two ends are there.
fn on_a_link(test: impl FnOnce() + Send) {
    if namespace::effective_user() != 0 {
        eprintln!("SKIP: needs root");
        return;
    }
    let run_there = || {
        if let Err(error) = namespace::unshare(&[Namespace::Network]) {
            eprintln!("SKIP: no network namespace: {error}");
            return;
        }
        for scope in ["all", "default"] {
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
        }
        run(Command::new("ip").args("link add one type veth peer name two".split(' ')));
        for name in ["one", "two"] {
            run(Command::new("ip").args(["link", "set", name, "up"]));
        }
        settle();
        test();
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(run_there).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Where whole frames of the examples come out.
fn far_end() -> Receiver {
    let source = Source::Frames { interface: IfName::new("two").unwrap() };
    let filter = FrameFilter { ethertype: Some(0x88b5), ..FrameFilter::default() };
    Receiver::open(&source, &ReceiveOptions { filter, ..ReceiveOptions::default() }).unwrap()
}

/// Waits until the link carries frames: until the kernel has noticed its carrier, what goes through
/// the queueing discipline is lost without an error.
fn settle() {
    let near = Transport::Frames { interface: IfName::new("one").unwrap() };
    let mut near = Transmitter::open(&near, &TransmitOptions::default()).unwrap();
    let mut far = far_end();
    let deadline = clock::now::<Tai>() + Span::from_secs(60);
    let (mut number, mut heard) = (0_u32, None);
    // The last one of them, so that none is under way any more.
    while heard != Some(number) {
        assert!(clock::now::<Tai>() < deadline, "the link does not come up");
        number += 1;
        let mut frame = [0xff; 60];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[14..18].copy_from_slice(&number.to_be_bytes());
        near.send_copy(&frame, None, None).unwrap();
        near.flush();
        let last = &mut |arrival: timewire_datapath::listen::Arrival<'_>| {
            heard = arrival.bytes[14..18].try_into().ok().map(u32::from_be_bytes);
        };
        far.receive(Some(Span::from_ms(5)), last).unwrap();
    }
}

#[test]
fn t3_cyclic_streams_of_a_program_in_c_arrive_filled_and_end_by_count_or_by_a_signal() {
    if !has("cc") {
        return;
    }
    let library = library("cyclic");
    let program = build("examples/cyclic.c", &library);
    let here = UdpSocket::bind("127.0.0.1:0").unwrap();
    here.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let address = here.local_addr().unwrap().to_string();
    let limited = ["udp", &address, "--streams", "5", "--cycles", "40", "--skip", "4", "--all"];
    let told = run(&mut command(&program, &library, &limited));
    let total = |word| number(&told, word);
    assert_eq!((total("streams"), total("stopped"), total("planned")), (5, 0, 200), "{told}");
    assert_eq!((total("sent"), total("not_filled"), total("timestamps")), (150, 50, 150), "{told}");
    assert_eq!(total("woke_late") + total("overran") + total("not_taken"), 0, "{told}");
    let (mut seen, mut message) = (vec![Vec::new(); 5], [0; 128]);
    for _ in 0..150 {
        let length = here.recv(&mut message).unwrap();
        let probe = Probe::parse(&message[..length]).unwrap();
        let content = u8::try_from(probe.seq).unwrap();
        assert_eq!((length, &message[Probe::LEN..length]), (64, &[content; 46][..]));
        seen[usize::from(probe.stream)].push(probe.seq);
    }
    let expected: Vec<u32> = (0..40).filter(|seq| seq % 4 != 3).collect();
    assert_eq!(seen, vec![expected; 5]);

    // Without an end, until a signal comes.
    let endless = ["udp", &address, "--streams", "2", "--launch", "300"];
    let mut running = Running::start(&mut command(&program, &library, &endless));
    running.line("mode ").unwrap();
    for _ in 0..20 {
        let length = here.recv(&mut message).unwrap();
        let probe = Probe::parse(&message[..length]).unwrap();
        assert!(
            probe.is_launch && probe.time.as_ns() % 1_000_000 == i64::from(probe.stream) * 500_000
        );
    }
    running.interrupt();
    let told = running.rest();
    assert_eq!(number(&told, "stopped"), 1, "{told}");
    assert!(number(&told, "sent") >= 20, "{told}");
}

#[test]
fn t3_cyclic_frames_have_their_tag_every_way() {
    if !has("cc") {
        return;
    }
    let library = library("cyclic_frames");
    let program = build("examples/cyclic.c", &library);
    on_a_link(|| {
        for way in ["frames", "ring", "xdp"] {
            let mut far = far_end();
            let arguments = [way, "one", "--cycles", "30", "--pcp", "5", "--vid", "7", "--all"];
            let mut running = Running::start(&mut command(&program, &library, &arguments));
            match running.line("mode ") {
                Ok(mode) => eprintln!("{mode}"),
                Err(said) if said.contains("AF_XDP") => {
                    eprintln!("SKIP: {said}");
                    continue;
                }
                Err(said) => panic!("{said}"),
            }
            let told = running.rest();
            let sent = number(&told, "sent");
            assert_eq!(sent + number(&told, "not_taken"), 120, "{way}: {told}");
            assert!(sent > 0, "{way}: {told}");
            let mut got = 0;
            while got < sent {
                let each = &mut |arrival: timewire_datapath::listen::Arrival<'_>| {
                    // PCP 5, VLAN 7, then the type and the header of the stream.
                    assert_eq!(arrival.bytes[..6], [0xff; 6]);
                    assert_eq!(arrival.bytes[12..18], [0x81, 0, 0xa0, 7, 0x88, 0xb5]);
                    assert!(Probe::parse(&arrival.bytes[18..]).is_some_and(|it| it.stream < 4));
                    got += 1;
                };
                let timeout = Some(Span::from_secs(60));
                assert!(far.receive(timeout, each).unwrap() > 0, "{way}: {got} of {sent}");
            }
            assert_eq!(got, sent, "{way}");
        }
    });
}

#[test]
fn t3_whole_frames_go_every_way_from_c_to_c() {
    if !has("cc") {
        return;
    }
    let _timestamping = timestamping();
    let library = library("frames");
    let talker = build("examples/talker.c", &library);
    let program = build("examples/listener.c", &library);
    on_a_link(|| {
        for (out, into) in [("frames", "frames"), ("ring", "ring"), ("xdp", "xdp")] {
            let (mut running, _) = match listener(&program, &library, into, "two", None) {
                Ok(running) => running,
                Err(said) if said.contains("AF_XDP") => {
                    eprintln!("SKIP: {said}");
                    continue;
                }
                Err(said) => panic!("{said}"),
            };
            let count = COUNT.to_string();
            let arguments = [out, "one", "--count", &count, "--cycle", "500"];
            let mut talking = Running::start(&mut command(&talker, &library, &arguments));
            match talking.line("mode ") {
                Ok(mode) => eprintln!("{mode}"),
                Err(said) if said.contains("AF_XDP") => {
                    eprintln!("SKIP: {said}");
                    continue;
                }
                Err(said) => panic!("{said}"),
            }
            let sent = talking.line("sent ").map(|rest| format!("sent {rest}")).unwrap();
            let heard = running.line("known ").map(|rest| format!("known {rest}")).unwrap();
            // What an interface that is kept from its work does not take is told, and not sent.
            let went = number(&sent, "sent");
            let refused = number(&sent, "full") + number(&sent, "not_taken");
            assert_eq!(went + refused, COUNT, "{out}: {sent}");
            assert!(went > 0, "{out}: {sent}");
            assert_eq!(number(&sent, "timestamps"), went, "{out}: {sent}");
            assert_eq!(number(&heard, "known"), went, "{into}: {heard}");
            assert!(number(&heard, "lost") <= refused, "{into}: {heard}");
            assert_eq!(number(&heard, "drops") + number(&heard, "other"), 0, "{into}: {heard}");
            assert_eq!(number(&heard, "timestamped"), went, "{into}: {heard}");
            let latency = running.line("latency ").unwrap();
            assert_eq!(latency, "not shown: clock error unknown", "{into}");
        }
    });
}

#[test]
fn t3_a_control_loop_in_cpp_brings_its_process_to_the_goal() {
    if !has("c++") {
        return;
    }
    let library = library("loop");
    let program = build("examples/loop.cpp", &library);
    let said = run(&mut command(&program, &library, &["600", "1000"]));
    // Whether it came to the goal is its exit code.
    assert!(number(&said, "received") >= 600, "{said}");
}

#[test]
fn t3_messages_echo_in_python_with_timestamps_of_both_directions() {
    if !has("python3") {
        return;
    }
    let _timestamping = timestamping();
    let library = library("echo");
    let said = run(Command::new("python3")
        .arg("-B")
        .arg(here("examples/echo.py"))
        .arg("100")
        .env("PYTHONPATH", here("python"))
        .env("TIMEWIRE_LIBRARY", library.join("libtimewire.so")));
    assert_eq!(number(&said, "echoes"), 100, "{said}");
    assert_eq!(number(&said, "timestamps"), 100, "{said}");
    assert_eq!(number(&said, "kernel"), 100, "{said}");
    assert_eq!(number(&said, "drops"), 0, "{said}");
}

#[test]
fn t3_python_raises_what_the_library_says_and_closes_with_its_block() {
    if !has("python3") {
        return;
    }
    let library = library("python_errors");
    let program = "\
import select, threading, timewire as tw
def raises(code, call, words):
    try:
        call()
    except tw.Error as error:
        assert error.code == code and words in str(error), (error.code, str(error))
    else:
        raise SystemExit('nothing raised for ' + words)
raises(tw.ERROR_USAGE, lambda: tw.Transmitter(to='nowhere'), 'is no address')
raises(tw.ERROR_SYSTEM, lambda: tw.Transmitter(tw.FRAMES, interface='none-such'), 'none-such')
raises(tw.ERROR_USAGE, lambda: tw.Slots(text='{}', station='alpha'), 'error')
raises(tw.ERROR_USAGE, lambda: tw.Slots(windows=[(0, 10)], cycle_ns=5), 'after the cycle')
with tw.Slots(windows=[(0, 100_000)], cycle_ns=1_000_000, lead_ns=50_000) as slots:
    first, second = slots.wait(), slots.wait()
    assert second > first and first % 1_000_000 == 0, (first, second)
    assert slots.next(first + 1) == first + 1_000_000
with tw.Receiver(bind='127.0.0.1:0') as receiver:
    assert receiver.receive(wait_ns=0) == []
    with tw.Transmitter() as transmitter:
        raises(tw.ERROR_USAGE, lambda: transmitter.send(b'x'), 'destination')
        raises(tw.ERROR_USAGE, lambda: transmitter.send(b'x' * 2000, receiver.address), 'longest')
        assert transmitter.send(b'one', to=receiver.address) == 0
        assert transmitter.send(b'two', to=str(receiver.address)) == 1
        assert select.select([receiver], [], [], 60)[0] == [receiver]
        got = []
        while len(got) < 2:
            got += receiver.receive(wait_ns=60_000_000_000)
        assert [arrival.bytes for arrival in got] == [b'one', b'two']
        assert tw.parse_probe(got[0].bytes) is None
    raises(tw.ERROR_USAGE, lambda: transmitter.send(b'x', receiver.address), 'NULL')
    to = str(receiver.address)
    streams = [dict(stream=n, cycle_ns=1_000_000, payload=24, cycles=20, to=to,
                    flags=tw.STREAM_PROBE | tw.STREAM_SEND_LATE) for n in (3, 5)]
    with tw.Talker([{}], streams) as talker:
        fill = lambda message: None if message.seq == 4 else b'%d' % message.seq
        assert talker.run(fill) is False
        counters = talker.counters(5)
        assert (counters.sent, counters.not_filled, counters.planned) == (19, 1, 20)
        got = []
        while len(got) < 38:
            got += receiver.receive(wait_ns=60_000_000_000)
        for arrival in got:
            probe = tw.parse_probe(arrival.bytes)
            assert arrival.bytes[tw.PROBE_LEN:].rstrip(bytes(1)) == b'%d' % probe.seq
        assert talker.mode() == 'UDP'
        raises(tw.ERROR_USAGE, lambda: talker.counters(4), 'no stream with the number 4')
        raises(tw.ERROR_USAGE, lambda: talker.mode(1), 'no port 1')
        try:
            talker.run(lambda message: b'x' * 7)
        except ValueError as error:
            assert '7 bytes for a message of 6' in str(error)
        else:
            raise SystemExit('nothing raised for what is too long')
    with tw.Talker([dict(to=to)], [dict(stream=1, cycle_ns=1_000_000, payload=4)]) as talker:
        threading.Timer(0.05, talker.stop).start()
        assert talker.run(lambda message: b'more') is True
    raises(tw.ERROR_USAGE, talker.stop, 'closed')
print('done', 1)
";
    let said = run(Command::new("python3")
        .args(["-B", "-c", program])
        .env("PYTHONPATH", here("python"))
        .env("TIMEWIRE_LIBRARY", library.join("libtimewire.so")));
    assert_eq!(number(&said, "done"), 1);
}

#[test]
fn t3_a_program_is_built_and_run_from_the_tree_that_make_lib_stages() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let library = library("staged");
    let tree = library.join("tree");
    let script = here("../../scripts/stage-library.sh");
    std::fs::create_dir_all(tree.join("lib")).unwrap();
    std::fs::write(tree.join("lib/other"), "").unwrap();
    let said = run(Command::new(&script).arg(&library).arg(&tree));
    // A second time over the first, as after an update; what others put there stays.
    assert_eq!(said, run(Command::new(&script).arg(&library).arg(&tree)));
    assert!(tree.join("lib/other").exists());
    assert!(said.contains("include/timewire.h"), "{said}");
    let pkg_config = |wanted: &str| {
        let path = tree.join("lib/pkgconfig");
        run(Command::new("pkg-config").args([wanted, "timewire"]).env("PKG_CONFIG_PATH", path))
    };
    assert_eq!(pkg_config("--modversion").trim(), env!("CARGO_PKG_VERSION"));
    let flags = pkg_config("--cflags") + &pkg_config("--libs");
    let source = tree.join("share/timewire/examples/listener.c");
    let program = tree.join("listener");
    let mut arguments = vec!["-std=c11", source.to_str().unwrap()];
    arguments.extend(["-o", program.to_str().unwrap()]);
    arguments.extend(flags.split_ascii_whitespace());
    compile("cc", &arguments);
    let mut there = command(&program, &tree.join("lib"), &["udp", "127.0.0.1:0", "1"]);
    let mut running = Running::start(&mut there);
    let address = running.line("listening on ").unwrap();
    send_one(&address);
    assert_eq!(number(&running.rest(), "known"), 1);
}

/// Sends a message with the header of a stream.
fn send_one(address: &str) {
    let mut message = [0; 64];
    let time = timewire_base::Instant::from_ns(1);
    timewire_datapath::probe::Probe { stream: 1, seq: 9, time, is_launch: false, skipped: None }
        .write(&mut message);
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&message, address).unwrap();
}

#[test]
fn t3_the_static_library_makes_a_program_that_needs_no_other() {
    if !has("cc") {
        return;
    }
    let library = library("static");
    let (include, source) = (here("include"), here("examples/listener.c"));
    let (program, archive) = (library.join("listener"), library.join("libtimewire.a"));
    let paths = [&include, &source, &archive, &program].map(|path| path.to_str().unwrap());
    let template = std::fs::read_to_string(here("timewire.pc.in")).unwrap();
    let private = template.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
    let mut arguments = vec!["-std=c11", "-I", paths[0], paths[1], paths[2], "-o", paths[3]];
    arguments.extend(private.split(' '));
    compile("cc", &arguments);
    // Without the directory of the shared one.
    let mut command = Command::new(&program);
    let mut running = Running::start(command.args(["udp", "127.0.0.1:0", "1"]));
    let address = running.line("listening on ").unwrap();
    send_one(&address);
    assert_eq!(number(&running.rest(), "known"), 1);
}
