// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links over a network that delays and loses, in the laboratory's kernel and its virtual time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

mod support;

use std::fs;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use support::{Lines, Numbers, Scratch, listen, paired, talkative};
use timewire_lab::trial::{self, Trial};
use timewire_remote::{FileLimits, Link, Manifest, RemoteError, receive_files, send_files};

fn main() -> ExitCode {
    trial::main(&[
        Trial::new("t4_links_and_files_go_over_half_a_second_of_delay_and_losses", lossy),
        Trial::new("t4_a_network_that_goes_away_is_noticed_by_both_ends", gone),
    ])
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
    fs::write(from.join("large"), Numbers(1).bytes(300_000)).unwrap();
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
    assert!(fs::read(to.join("large")).unwrap() == Numbers(1).bytes(300_000));
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
                assert!(matches!(error, RemoteError::Silent { seconds: 20 }), "{error}");
                assert_eq!(began.elapsed().as_secs(), 20);
            });
        }
    });
}
