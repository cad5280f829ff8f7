// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What depends on time: a network that delays and loses, silence, slow strangers. And links over
//! standard input and output. In the laboratory's kernel and its virtual time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

#[expect(dead_code, reason = "other tests use more of it")]
mod support;

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use support::{Lines, Numbers, Scratch, listen, paired, serves, talkative};
use timewire_agent::links::{
    FileLimits, Link, LinkError, LinkLimits, Manifest, Peer, over_program, over_stdio, over_unix,
    receive_files, send_files,
};
use timewire_lab::trial::{self, Trial};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(ANSWER) {
        return answer();
    }
    trial::main(&[
        Trial::new("t4_links_and_files_go_over_half_a_second_of_delay_and_losses", lossy),
        Trial::new("t4_a_program_that_is_started_is_spoken_to", started),
        Trial::new("t4_signs_of_life_keep_a_quiet_link_and_silence_ends_one", quiet),
        Trial::new("t4_who_takes_nothing_does_not_hold_a_sender_for_ever", full),
        Trial::new("t4_files_are_sent_to_who_waits_for_its_disk", busy),
        Trial::new("t4_slow_strangers_keep_nobody_out_and_are_sent_away", slow),
        Trial::new("t4_a_network_that_goes_away_is_noticed_by_both_ends", gone),
    ])
}

const ANSWER: &str = "--answer";

/// The other end of [`started`]: sends every message back, and ends with the goodbye.
fn answer() -> ExitCode {
    let mut link = over_stdio(LinkLimits::default()).unwrap();
    loop {
        match link.receive(Duration::from_secs(60)) {
            Ok(message) => link.send(&message.unwrap()).unwrap(),
            Err(LinkError::Closed { reason }) => {
                eprintln!("goodbye: {reason}");
                return ExitCode::SUCCESS;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn started() {
    let said = Scratch::new();
    let path = said.path().join("stderr");
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.arg(ANSWER).stderr(fs::File::create(&path).unwrap());
    let mut link = over_program(program, LinkLimits::default()).unwrap();
    assert_eq!(link.peer(), &Peer::Stdio);
    for length in [0, 1, 5_000, 1 << 20] {
        let message = Numbers::new(2).bytes(length);
        std::thread::scope(|scope| {
            let (sender, receiver) = link.halves();
            scope.spawn(|| sender.send(&message).unwrap());
            assert!(receiver.receive(Duration::from_secs(60)).unwrap().unwrap() == message);
        });
    }
    link.split().0.close("enough");
    // The link has waited for the program.
    assert_eq!(fs::read_to_string(path).unwrap(), "goodbye: enough\n");
}

/// Two links that are each other's ends.
fn pair(limits: [LinkLimits; 2]) -> [Link; 2] {
    let (one, other) = UnixStream::pair().unwrap();
    let other = std::thread::spawn(move || over_unix(other, limits[1]).unwrap());
    [over_unix(one, limits[0]).unwrap(), other.join().unwrap()]
}

fn quiet() {
    let usual = LinkLimits::default();
    let [_one, mut other] = pair([usual; 2]);
    for _ in 0..30 {
        assert_eq!(other.receive(Duration::from_secs(7)).unwrap(), None);
    }
    // One that says nothing by itself; however often it is listened to.
    let dumb = LinkLimits { keep_alive: Duration::from_secs(1_000), ..usual };
    let [_one, mut other] = pair([dumb, usual]);
    let began = Instant::now();
    let error = loop {
        match other.receive(Duration::from_millis(900)) {
            Ok(message) => assert_eq!(message, None),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LinkError::Silent { seconds: 20 }), "{error}");
    assert_eq!(began.elapsed().as_secs(), 20);
    assert!(other.send(b"too late").is_err());
    // Silence while nobody listened is not the other end's.
    let [one, mut other] = pair([usual; 2]);
    one.send(b"early").unwrap();
    std::thread::sleep(Duration::from_secs(300));
    assert_eq!(other.receive(Duration::ZERO).unwrap().unwrap(), b"early");
    assert_eq!(other.receive(Duration::from_secs(100)).unwrap(), None);
}

fn full() {
    let [one, _other] = pair([LinkLimits::default(); 2]);
    let error = loop {
        let began = Instant::now();
        if let Err(error) = one.send(&[0; 100_000]) {
            assert_eq!(began.elapsed().as_secs(), 20);
            break error;
        }
    };
    assert!(matches!(error, LinkError::Silent { seconds: 20 }), "{error}");
}

fn busy() {
    let [mut here, there] = pair([LinkLimits::default(); 2]);
    let root = Scratch::new();
    fs::write(root.path().join("large"), Numbers::new(1).bytes(1_000_000)).unwrap();
    let limits = FileLimits::default();
    let manifest = Manifest::of_directory(root.path(), &limits).unwrap();
    let (sender, mut receiver) = there.split();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (sender, receiver) = here.halves();
            send_files(sender, receiver, root.path(), &manifest, &limits).unwrap();
        });
        let second = Duration::from_secs(1);
        assert!(receiver.receive(second).unwrap().unwrap().starts_with(b"J"));
        sender.send(br#"J{"type":"want","files":[{"index":0,"from":0}],"more":false}"#).unwrap();
        // It waits for its disk.
        std::thread::sleep(Duration::from_secs(200));
        let mut sum = 0;
        while sum < 1_000_000 {
            sum += receiver.receive(second).unwrap().unwrap().len() - 13;
        }
        sender.send(br#"J{"type":"want","files":[],"more":false}"#).unwrap();
    });
}

fn slow() {
    tool("ip link set lo up");
    let (agent, controller) = paired();
    let lines = Lines::default();
    let listener = listen(&agent, "[::]:0", talkative(), &lines);
    let port = listener.address().unwrap().port();
    let began = Instant::now();
    // As many from one address as are taken, and more: a byte of a handshake at a time.
    let slow: Vec<_> = (0..talkative().handshakes_of_address + 4)
        .map(|_| {
            let mut stream = TcpStream::connect(("::1", port)).unwrap();
            std::thread::spawn(move || {
                let record = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
                for byte in record.iter().chain(&[0; 500]) {
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(500));
                }
            })
        })
        .collect();
    lines.wait_for("too many handshakes");
    serves(&listener, || controller.connect(([127, 0, 0, 1], port).into()));
    for stranger in slow {
        stranger.join().unwrap();
    }
    let taken = lines.all().iter().filter(|line| line.ends_with("took too long")).count();
    assert_eq!(taken, talkative().handshakes_of_address);
    // They were told so by the end of the connection, which the next byte found out.
    assert!((20..23).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    serves(&listener, || controller.connect(([0, 0, 0, 0, 0, 0, 0, 1], port).into()));
}

/// Runs a command of iproute2.
fn tool(words: &str) {
    let mut words = words.split(' ');
    let done = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(done.success());
}

/// A loopback interface that is like a bad network.
fn network(netem: &str) {
    tool("ip link set lo mtu 1500 up");
    tool(&format!("tc qdisc replace dev lo root netem {netem}"));
}

/// Two ends of a link: the controller's, the agent's.
fn linked() -> (Link, Link) {
    let (agent, controller) = paired();
    let listener = listen(&agent, "127.0.0.1:0", talkative(), &Lines::default());
    let address = listener.address().unwrap();
    std::thread::scope(|scope| {
        let controller = scope.spawn(|| controller.connect(address).unwrap());
        let agent = listener.accept(Duration::from_secs(30)).expect("a link");
        (controller.join().unwrap(), agent)
    })
}

fn lossy() {
    network("delay 500ms loss 5% limit 10000");
    let began = Instant::now();
    let (mut here, mut there) = linked();
    let root = Scratch::new();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(from.join("large"), Numbers::new(1).bytes(300_000)).unwrap();
    let limits = FileLimits::default();
    let manifest = Manifest::of_directory(&from, &limits).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..20_u8 {
                there.send(&vec![number; 10_000]).unwrap();
                let answer = there.receive(Duration::from_secs(60)).unwrap().unwrap();
                assert_eq!(answer, [number]);
            }
            let (sender, receiver) = there.halves();
            assert_eq!(receive_files(sender, receiver, &to, &limits).unwrap(), manifest);
        });
        for number in 0..20_u8 {
            let asked = here.receive(Duration::from_secs(60)).unwrap().unwrap();
            assert!(asked.len() == 10_000 && asked[0] == number);
            here.send(&[number]).unwrap();
        }
        let (sender, receiver) = here.halves();
        send_files(sender, receiver, &from, &manifest, &limits).unwrap();
    });
    assert!(fs::read(to.join("large")).unwrap() == Numbers::new(1).bytes(300_000));
    // Of virtual time: each of the 20 exchanges is there and back.
    let seconds = began.elapsed().as_secs();
    println!("{seconds} s");
    assert!((22..600).contains(&seconds), "{seconds}");
    // It was a bad network indeed.
    let shown = Command::new("tc").args(["-s", "qdisc", "show", "dev", "lo"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let (_, dropped) = shown.split_once("(dropped ").unwrap();
    let dropped: u32 = dropped.split(',').next().unwrap().parse().unwrap();
    assert!(dropped > 10, "{shown}");
}

fn gone() {
    network("delay 1ms");
    let (mut here, mut there) = linked();
    network("loss 100%");
    std::thread::scope(|scope| {
        for end in [&mut here, &mut there] {
            scope.spawn(move || {
                let began = Instant::now();
                let error = end.receive(Duration::from_secs(300)).unwrap_err();
                assert!(matches!(error, LinkError::Silent { seconds: 20 }), "{error}");
                assert_eq!(began.elapsed().as_secs(), 20);
            });
        }
    });
}
