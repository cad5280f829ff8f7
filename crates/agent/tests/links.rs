// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links over each transport: messages, limits, goodbyes.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use crate::support::{Lines, Numbers, Scratch, TIMEOUT, listen, paired, serves, talkative};
use timewire_agent::links::{
    Link, LinkError, LinkLimits, Listener, Peer, connect_unix, over_program, over_unix,
};

/// Two links that are each other's ends.
fn pair(limits: [LinkLimits; 2]) -> [Link; 2] {
    let (one, other) = UnixStream::pair().unwrap();
    let other = std::thread::spawn(move || over_unix(other, limits[1]).unwrap());
    [over_unix(one, limits[0]).unwrap(), other.join().unwrap()]
}

#[test]
fn t3_a_paired_controller_is_served_over_both_families() {
    let (agent, controller) = paired();
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let lines = Lines::default();
        let listener = listen(&agent, at, talkative(), &lines);
        let address = listener.address().unwrap();
        serves(&listener, || controller.connect(address));
        let link = std::thread::scope(|scope| {
            let link = scope.spawn(|| controller.connect(address).unwrap());
            let Peer::Station { name, fingerprint, .. } =
                listener.accept(TIMEOUT).unwrap().peer().clone()
            else {
                panic!("a station");
            };
            assert_eq!((name.as_str(), fingerprint), ("desk", controller.identity.fingerprint()));
            link.join().unwrap()
        });
        assert!(link.peer().to_string().starts_with("st1 at "), "{}", link.peer());
        assert_eq!(lines.all(), Vec::<String>::new());
    }
}

#[test]
fn t3_a_local_socket_serves_its_user_and_goes_with_its_listener() {
    let scratch = Scratch::new();
    let path = scratch.path().join("agent.sock");
    for _ in 0..2 {
        let listener = Listener::unix(&path, talkative(), Lines::default().log()).unwrap();
        assert!(Listener::unix(&path, talkative(), Lines::default().log()).is_err());
        serves(&listener, || connect_unix(&path, LinkLimits::default()));
        drop(listener);
        assert!(!path.exists());
    }
    // What somebody left that was killed is replaced; what is no socket is not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    drop(Listener::unix(&path, talkative(), Lines::default().log()).unwrap());
    std::fs::write(&path, "precious").unwrap();
    assert!(Listener::unix(&path, talkative(), Lines::default().log()).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn t3_a_program_carries_a_link_and_ends_with_it() {
    // It sends back whatever it gets, greeting included.
    let mut link = over_program(Command::new("cat"), LinkLimits::default()).unwrap();
    let message = Numbers::new(1).bytes(300_000);
    std::thread::scope(|scope| {
        let (sender, receiver) = link.halves();
        scope.spawn(|| sender.send(&message).unwrap());
        assert!(receiver.receive(TIMEOUT).unwrap().unwrap() == message);
    });
    drop(link);
    // It leads a group of its own, so that Ctrl-C on a terminal is not for it.
    let mut leader = Command::new("sh");
    leader.args(["-c", "test $(cut -d ' ' -f 5 /proc/$$/stat) = $$ && exec cat"]);
    over_program(leader, LinkLimits::default()).unwrap();
    let gone = over_program(Command::new("true"), LinkLimits::default()).unwrap_err();
    assert!(gone.is_lost_link(), "{gone}");
    let none = over_program(Command::new("/nowhere/ssh"), LinkLimits::default()).unwrap_err();
    assert!(none.to_string().starts_with("cannot start /nowhere/ssh: "), "{none}");
}

#[test]
fn t3_many_long_messages_go_both_ways_at_once() {
    let (agent, controller) = paired();
    let listener = listen(&agent, "127.0.0.1:0", talkative(), &Lines::default());
    let address = listener.address().unwrap();
    let exchange = |link: Link, seed: u64| {
        let (sender, mut receiver) = link.split();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut numbers = Numbers::new(seed);
                for _ in 0..40 {
                    let length = numbers.below(1 << 18);
                    sender.send(&numbers.bytes(length)).unwrap();
                }
            });
            let mut numbers = Numbers::new(3 - seed);
            for _ in 0..40 {
                let length = numbers.below(1 << 18);
                assert!(receiver.receive(TIMEOUT).unwrap().unwrap() == numbers.bytes(length));
            }
        });
        receiver
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| exchange(controller.connect(address).unwrap(), 1));
        let other = exchange(listener.accept(TIMEOUT).unwrap(), 2);
        drop((one.join().unwrap(), other));
    });
}

#[test]
fn t3_a_goodbye_is_told_and_a_cut_is_told_apart() {
    let [one, mut other] = pair([LinkLimits::default(); 2]);
    let (sender, _receiver) = one.split();
    sender.send(b"last").unwrap();
    sender.close("the work is done");
    assert!(sender.send(b"more").is_err());
    assert_eq!(other.receive(TIMEOUT).unwrap().unwrap(), b"last");
    let error = other.receive(TIMEOUT).unwrap_err();
    assert_eq!(error.to_string(), "the other end closed the link: the work is done");
    let [one, mut other] = pair([LinkLimits::default(); 2]);
    drop(one);
    assert!(matches!(other.receive(TIMEOUT), Err(LinkError::Closed { .. })));
    // Who is gone says nothing.
    let hello = b"\0\0\0\x0e\0timewire\0\x01\0\x10\0\0";
    for (part, why) in [(&b""[..], "without a goodbye"), (b"\0\0\0\x09\x01x", "in the middle")] {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(&[&hello[..], part].concat()).unwrap();
        let mut other = over_unix(other, LinkLimits::default()).unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        let error = other.receive(TIMEOUT).unwrap_err();
        assert!(error.is_lost_link() && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn t3_the_longest_message_is_known_to_the_sender() {
    let short = LinkLimits { message_bytes: 100, ..LinkLimits::default() };
    let [one, mut other] = pair([LinkLimits::default(), short]);
    let error = one.send(&[0; 101]).unwrap_err();
    assert!(matches!(error, LinkError::TooLong { bytes: 101, most: 100 }), "{error}");
    one.send(&[7; 100]).unwrap();
    assert_eq!(other.receive(TIMEOUT).unwrap().unwrap(), [7; 100]);
    other.send(&[8; 101]).unwrap();
    assert_eq!(other.receive(Duration::from_millis(1)).unwrap(), None);
}

#[test]
fn t3_who_says_nothing_without_end_is_not_heard_for_longer_than_the_time() {
    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(b"\0\0\0\x0e\0timewire\0\x01\0\x10\0\0").unwrap();
    let mut other = over_unix(other, LinkLimits::default()).unwrap();
    // Ten thousand signs of life: more than is read at once, and there before it is read.
    one.write_all(&b"\0\0\0\0\x02".repeat(10_000)).unwrap();
    one.write_all(b"\0\0\0\x04\x01last").unwrap();
    assert_eq!(other.receive(Duration::ZERO).unwrap(), None);
    assert_eq!(other.receive(TIMEOUT).unwrap().unwrap(), b"last");
}
