// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What strangers do to a listener: they are refused, logged, and a paired controller is served
//! afterwards.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{
    Lines, Numbers, Scratch, Station, TIMEOUT, listen, paired, serves, talkative,
};
use timewire_agent::links::{LinkError, LinkLimits, ListenLimits, Listener, Role, connect_unix};
use timewire_base::Failure;

const NOW: Duration = Duration::from_millis(100);

/// Sends bytes, ends the direction, and waits for the listener's end of the other.
fn send_and_end(to: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(to).unwrap();
    // The listener may have ended it already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// The bytes that a controller sends first.
fn first_flight(controller: &Station) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| controller.connect(to).unwrap_err());
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 4_096];
        let count = stream.read(&mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    })
}

#[test]
fn t3_a_stranger_with_a_key_of_its_own_is_refused_and_both_are_told() {
    let (agent, controller) = paired();
    let lines = Lines::default();
    let listener = listen(&agent, "127.0.0.1:0", talkative(), &lines);
    let address = listener.address().unwrap();
    let stranger = Station::new();
    // It does not know the agent: it sends no message.
    let error = stranger.connect(address).unwrap_err();
    let LinkError::NotPaired { role: "agent", fingerprint, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(fingerprint, agent.identity.fingerprint());
    // It does, and is not known itself.
    stranger.peers.add(Role::Agent, "st1", agent.identity.fingerprint()).unwrap();
    let error = stranger.connect(address).unwrap_err();
    assert!(matches!(error, LinkError::NotTrusted), "{error}");
    assert!(error.hint().unwrap().contains("agent pair"));
    let line = lines.wait_for("is not a paired controller");
    assert!(line.contains(&stranger.identity.fingerprint().to_string()), "{line}");
    // Whom the agent controls may not control it.
    agent.peers.add(Role::Agent, "st2", stranger.identity.fingerprint()).unwrap();
    assert!(matches!(stranger.connect(address), Err(LinkError::NotTrusted)));
    assert!(listener.accept(NOW).is_none());
    serves(&listener, || controller.connect(address));
    // Who is forgotten is refused from then on, by the listener that runs.
    agent.peers.forget(Role::Controller, controller.identity.fingerprint()).unwrap();
    assert!(matches!(controller.connect(address), Err(LinkError::NotTrusted)));
}

#[test]
fn t3_an_agent_with_another_key_is_not_spoken_to() {
    let (agent, controller) = paired();
    let impostor = Station::new();
    impostor.peers.add(Role::Controller, "desk", controller.identity.fingerprint()).unwrap();
    let listener = listen(&impostor, "127.0.0.1:0", talkative(), &Lines::default());
    let error = controller.connect(listener.address().unwrap()).unwrap_err();
    assert!(matches!(error, LinkError::NotPaired { role: "agent", .. }), "{error}");
    assert!(listener.accept(NOW).is_none());
    drop(agent);
}

#[test]
fn t3_who_shows_no_key_or_speaks_something_else_is_refused() {
    let (agent, controller) = paired();
    let lines = Lines::default();
    let listener = listen(&agent, "127.0.0.1:0", talkative(), &lines);
    let address = listener.address().unwrap();
    send_and_end(address, b"GET / HTTP/1.1\r\n\r\n");
    send_and_end(address, b"");
    // The longest record that TLS could have, and more of it than one may have.
    let mut large = vec![22, 3, 1, 255, 255];
    large.resize(200_000, 1);
    send_and_end(address, &large);
    // A handshake message that says it is 16 MiB long.
    let mut long = vec![22, 3, 1, 64, 0, 1, 255, 255, 255];
    long.resize(5 + 16_384, 0);
    send_and_end(address, &long.repeat(20));
    let flight = first_flight(&controller);
    for cut in [1, 5, 6, flight.len() / 2, flight.len() - 1] {
        send_and_end(address, &flight[..cut]);
    }
    lines.wait_for_count(9);
    serves(&listener, || controller.connect(address));
}

#[test]
fn t3_a_first_flight_that_was_recorded_gives_no_link() {
    let (agent, controller) = paired();
    let listener = listen(&agent, "127.0.0.1:0", talkative(), &Lines::default());
    let address = listener.address().unwrap();
    // Everything that a good controller sends, recorded by who sits in between.
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let through = proxy.local_addr().unwrap();
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&recorded);
    let relay = std::thread::spawn(move || {
        let (mut here, _) = proxy.accept().unwrap();
        let mut there = TcpStream::connect(address).unwrap();
        let (mut back, mut to) = (there.try_clone().unwrap(), here.try_clone().unwrap());
        let back = std::thread::spawn(move || std::io::copy(&mut back, &mut to));
        let mut buffer = [0; 65_536];
        while let Ok(count @ 1..) = here.read(&mut buffer) {
            record.lock().unwrap().extend_from_slice(&buffer[..count]);
            there.write_all(&buffer[..count]).unwrap();
        }
        let _ = there.shutdown(Shutdown::Write);
        let _ = back.join();
    });
    serves(&listener, || controller.connect(through));
    relay.join().unwrap();
    let recorded = recorded.lock().unwrap().clone();
    assert!(recorded.len() > 500, "{}", recorded.len());
    for _ in 0..3 {
        send_and_end(address, &recorded);
    }
    assert!(listener.accept(NOW).is_none());
    serves(&listener, || controller.connect(address));
}

#[test]
fn t3_a_thousand_random_streams_end_no_listener() {
    let (agent, controller) = paired();
    let mut numbers = Numbers::new(17);
    let flight = first_flight(&controller);
    let lines = Lines::default();
    let limits = ListenLimits { log_lines: 5, ..ListenLimits::default() };
    let listener = listen(&agent, "127.0.0.1:0", limits, &lines);
    let address = listener.address().unwrap();
    for round in 0..1_000 {
        let length = numbers.below(2_000);
        let mut bytes = numbers.bytes(length);
        if round % 2 == 0 {
            // Something that begins well.
            let good = numbers.below(flight.len());
            bytes.splice(..good.min(bytes.len()), flight[..good].iter().copied());
        }
        send_and_end(address, &bytes);
    }
    assert!(listener.accept(NOW).is_none());
    serves(&listener, || controller.connect(address));
    // Five lines for each ten seconds, and one for the rest of them.
    assert!(lines.all().len() < 50, "{:?}", lines.all());
}

#[test]
fn t3_local_processes_that_do_not_keep_to_the_protocol_are_refused() {
    let scratch = Scratch::new();
    let path = scratch.path().join("agent.sock");
    let lines = Lines::default();
    let listener = Listener::unix(&path, talkative(), lines.log()).unwrap();
    let hello = b"\0\0\0\x0e\0timewire\0\x01\0\x10\0\0";
    let say = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let _kept = say(b"\xff\xff\xff\xff\x01");
    lines.wait_for("Message of 4294967295 bytes");
    let _kept = say(b"\0\0\0\x01\x01x");
    lines.wait_for("it began with Message");
    let _kept = say(&hello.map(|byte| if byte == b'\x01' { 2 } else { byte }));
    lines.wait_for("it speaks version 2");
    let cut = say(&hello[..9]);
    cut.shutdown(Shutdown::Write).unwrap();
    lines.wait_for("in the middle of a message");
    // Known by then, and no better: the link ends, the listener does not.
    let _stream = say(&[&hello[..], b"\x00\x10\x00\x01\x01"].concat());
    let mut link = listener.accept(TIMEOUT).unwrap();
    let error = link.receive(TIMEOUT).unwrap_err();
    assert!(matches!(error, LinkError::Protocol { .. }), "{error}");
    serves(&listener, || connect_unix(&path, LinkLimits::default()));
}

#[test]
fn t3_more_links_than_there_are_places_are_told_so() {
    let scratch = Scratch::new();
    let path = scratch.path().join("agent.sock");
    let limits = ListenLimits { links: 2, ..talkative() };
    let listener = Listener::unix(&path, limits, Lines::default().log()).unwrap();
    let connect = || connect_unix(&path, LinkLimits::default()).unwrap();
    let mut links: Vec<_> =
        (0..2).map(|_| (connect(), listener.accept(TIMEOUT).unwrap())).collect();
    let error = connect().receive(TIMEOUT).unwrap_err().to_string();
    assert!(error.ends_with("this station has 2 links, and takes no more"), "{error}");
    links.pop();
    serves(&listener, || connect_unix(&path, LinkLimits::default()));
}

#[test]
fn t3_the_threads_that_listen_to_strangers_have_no_capability() {
    let agent = Station::new();
    let lines = Lines::default();
    let listener = listen(&agent, "127.0.0.1:0", talkative(), &lines);
    // One handshake that goes on.
    let _slow = TcpStream::connect(listener.address().unwrap()).unwrap();
    let mut seen = Vec::new();
    for _ in 0..2_000 {
        if seen.len() == 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            // Threads of other tests come and go.
            let status = std::fs::read_to_string(task.unwrap().path().join("status"));
            let status = status.unwrap_or_default();
            let of = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
            let name = of("Name:").unwrap_or_default().trim().to_owned();
            if ["listener", "handshake"].contains(&name.as_str())
                && of("CapEff:").is_some_and(|caps| caps.trim().bytes().all(|digit| digit == b'0'))
                && !seen.contains(&name)
            {
                seen.push(name);
            }
        }
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(lines.all(), Vec::<String>::new());
}
