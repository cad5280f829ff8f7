// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two stations behind their MACs: whatever the local stack speaks goes through, in both
//! directions, and nothing goes past the MACs.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::support;
use crate::support::{Segment, wait_until};
use timewire_lab::ns;

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));
/// What is sent through each connection. **Units**: bytes.
const LENGTH: usize = 300_000;

/// The two stations' namespaces with their addresses, of one family.
const FAMILIES: [[(&str, &str); 2]; 2] =
    [[("", "10.9.0.1"), ("beta", "10.9.0.2")], [("", "fd09::1"), ("beta", "fd09::2")]];

const AF_PACKET: &str = "mac: { socket: af_packet }\n";

fn stations(options: &'static str) -> Option<(Segment, [support::Running; 2])> {
    let segment = Segment::with(options)?;
    let addresses = |n: u8| [format!("10.9.0.{n}/24"), format!("fd09::{n}/64")];
    let start = |netns: &str, station: &str, [v4, v6]: [String; 2]| {
        segment.foreground(netns, station, &["--address", &v4, "--address", &v6])
    };
    let macs = [start("", "alpha", addresses(1)), start("beta", "beta", addresses(2))];
    Some((segment, macs))
}

fn inside<T: Send>(segment: &Segment, netns: &str, work: impl FnOnce() -> T + Send) -> T {
    ns::in_namespace(&segment.host.netns(netns), work).unwrap()
}

fn udp(segment: &Segment, (netns, address): (&str, &str), port: u16) -> UdpSocket {
    let address = (address, port);
    let socket = inside(segment, netns, || UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(TIMEOUT).unwrap();
    socket
}

/// Something that is not the same everywhere.
fn pattern() -> Vec<u8> {
    (0..LENGTH).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

fn transfer(segment: &Segment, from: (&str, &str), to: (&str, &str)) {
    let listener = inside(segment, to.0, || TcpListener::bind((to.1, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::scope(|scope| {
        // Both directions at once.
        let server = scope.spawn(|| exchange(listener.accept().unwrap().0));
        let client = inside(segment, from.0, || TcpStream::connect((to.1, port))).unwrap();
        exchange(client);
        server.join().unwrap();
    });
}

/// Sends the pattern and receives it.
fn exchange(stream: TcpStream) {
    stream.set_read_timeout(TIMEOUT).unwrap();
    stream.set_write_timeout(TIMEOUT).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(&pattern()).unwrap());
        let mut got = vec![0; LENGTH];
        (&stream).read_exact(&mut got).unwrap();
        assert!(got == pattern(), "the bytes are others");
    });
}

/// Frames that a station has put on the link.
fn sent(segment: &Segment, netns: &str) -> u64 {
    let shown = segment.host.tool_in(netns, "ip -j -s link show dev phy0");
    let links: serde_json::Value = serde_json::from_str(&shown).unwrap();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

#[test]
fn t3_tcp_goes_through_in_both_families_and_directions() {
    let Some((segment, _macs)) = stations("") else { return };
    for [alpha, beta] in FAMILIES {
        transfer(&segment, alpha, beta);
        transfer(&segment, beta, alpha);
    }
}

#[test]
fn t3_udp_goes_through_once_and_not_past_the_mac() {
    udp_goes_through_once("");
}

#[test]
fn t3_without_ebpf_udp_goes_through_once_and_not_past_the_mac() {
    udp_goes_through_once(AF_PACKET);
}

fn udp_goes_through_once(options: &'static str) {
    let Some((segment, _macs)) = stations(options) else { return };
    // The stack spoke before there was a MAC.
    let before = ["", "beta"].map(|netns| sent(&segment, netns));
    let mut buffer = [0; 2_000];
    for [alpha, beta] in FAMILIES {
        for (from, to) in [(alpha, beta), (beta, alpha)] {
            // A prioritised port and one that is not.
            for port in [15_001, 7_000] {
                let (sender, receiver) = (udp(&segment, from, 0), udp(&segment, to, port));
                for size in [1, 64, 1_400] {
                    sender.send_to(&pattern()[..size], (to.1, port)).unwrap();
                    let (length, answer_to) = receiver.recv_from(&mut buffer).unwrap();
                    assert_eq!(buffer[..length], pattern()[..size]);
                    receiver.send_to(&buffer[..length], answer_to).unwrap();
                    assert_eq!(sender.recv(&mut buffer).unwrap(), size);
                }
                // One that arrives twice would be here.
                for socket in [sender, receiver] {
                    socket.set_nonblocking(true).unwrap();
                    let none = socket.recv(&mut buffer).unwrap_err();
                    assert_eq!(none.kind(), ErrorKind::WouldBlock);
                }
            }
        }
    }
    let host = &segment.host;
    for ((netns, name), before) in [("", "alpha"), ("beta", "beta")].into_iter().zip(before) {
        // First the link, then the MAC: a frame released in between counts for the MAC alone.
        let sent = sent(&segment, netns) - before;
        let status = host.timewire(&["tdm", "show", "--name", name, "--json"]).done().json();
        let queues = status["transmit"]["queues"].as_array().unwrap();
        // Twice three requests and three answers in each of two families.
        assert_eq!((&queues[0]["name"], &queues[0]["released"]), (&"1".into(), &12.into()));
        let by_priority = &status["received"]["by_priority"];
        assert_eq!(*by_priority, serde_json::json!([[1, 12]]));
        let neighbours = host.tool_in(netns, "ip neighbour show");
        for line in neighbours.lines() {
            assert!(line.contains(" dev tw0 "), "past the MAC: {neighbours}");
        }
        let released = status["transmit"]["released"].as_u64().unwrap();
        assert!(sent <= released, "{sent} frames on the link, {released} through the MAC");
    }
}

#[test]
fn t3_errors_of_the_other_station_come_back() {
    let Some((segment, _macs)) = stations("") else { return };
    for [alpha, (_, there)] in FAMILIES {
        let socket = udp(&segment, alpha, 0);
        socket.connect((there, 9)).unwrap();
        socket.set_nonblocking(true).unwrap();
        // ICMP says that nobody listens there.
        wait_until("the refusal comes back", || {
            let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
            socket.send(b"anybody?").is_err_and(refused)
        });
    }
}
