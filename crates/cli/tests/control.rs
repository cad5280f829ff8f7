// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket of a running MAC: whom it serves, and that no peer can hurt the MAC or the
//! other peers.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::support;
use crate::support::Segment;

const SHOW: &[u8] = b"{\"request\":\"show\"}\n";

/// A segment whose first station has a MAC, and the MAC's socket.
fn socket() -> Option<(Segment, support::Running, PathBuf)> {
    let segment = Segment::start()?;
    let mac = segment.foreground("", "alpha", &[]);
    let socket = segment.host.see("/run/timewire/alpha.sock");
    Some((segment, mac, socket))
}

fn connect(socket: &PathBuf) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// What the MAC answers to this; empty when it closes without a word.
fn answer(socket: &PathBuf, request: &[u8]) -> String {
    let mut stream = connect(socket);
    // The MAC may have refused and closed before all was said.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn t3_only_root_may_use_the_control_socket() {
    let Some((segment, _mac, socket)) = socket() else { return };
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(segment.host.list("/run/timewire"), ["alpha.sock", "journal"]);
}

#[test]
fn t3_nonsense_is_refused_and_the_mac_goes_on() {
    let Some((segment, mac, socket)) = socket() else { return };
    let cases: [(&[u8], &str); 8] = [
        (b"garbage\n", "not a request: expected value at line 1 column 1"),
        (b"\n", "not a request: EOF while parsing a value"),
        (b"\xff\xfe\x00\n", "not a request: expected value"),
        (b"{\"request\":\"fly\"}\n", "not a request: unknown variant `fly`"),
        (b"{\"request\":\"show\"", "not a request: it ends before its line does"),
        (b"", "not a request: it ends before its line does"),
        (
            b"{\"request\":\"send\",\"list\":{\"queues\":99,\"ports\":[]}}\n",
            "99 queues cannot be: there are 32 priorities",
        ),
        (
            b"{\"request\":\"recv\",\"list\":{\"queues\":1,\"ports\":[[0,1]]}}\n",
            "not a request: 0 is no port: 1 to 65535",
        ),
    ];
    for (request, message) in cases {
        let text = answer(&socket, request);
        assert!(text.starts_with("{\"response\":\"refused\",\"message\":\""), "{text}");
        assert!(text.contains(message), "{message}: {text}");
    }
    // Too much: two MiB without an end. Nobody may be left to read the refusal.
    let text = answer(&socket, &vec![b' '; 2 << 20]);
    assert!(text.is_empty() || text.contains("it is longer than 1048576 bytes"), "{text}");
    // As long as may be, and correct.
    let mut long = vec![b' '; 1_000_000];
    long.extend_from_slice(SHOW);
    assert!(answer(&socket, &long).starts_with("{\"response\":\"status\""));
    let status = segment.host.timewire(&["tdm", "show", "--json"]).done().json();
    assert_eq!(status["pid"], mac.inside());
    assert_eq!(status["send"]["queues"], 1);
}

#[test]
fn t3_peers_that_never_finish_hold_nobody_up() {
    let Some((segment, mac, socket)) = socket() else { return };
    let mut peers: Vec<UnixStream> = (0..300).map(|_| connect(&socket)).collect();
    for peer in &mut peers {
        // Those beyond what a MAC keeps are dropped already.
        let _ = peer.write_all(b"{\"request\":");
    }
    let status = segment.host.timewire(&["tdm", "show", "--json"]).done().json();
    assert_eq!(status["pid"], mac.inside());
    // One that says its line in pieces is understood, as long as it does so in time.
    let mut slow = connect(&socket);
    for byte in SHOW {
        slow.write_all(&[*byte]).unwrap();
    }
    let mut text = [0; 20];
    slow.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"{\"response\":\"status\"");
    // Each is told why it is dropped, after a while.
    let mut last = peers.pop().unwrap();
    let mut text = String::new();
    last.read_to_string(&mut text).unwrap();
    assert!(text.contains("not a request: it did not end within 5 s"), "{text}");
    segment.host.timewire(&["tdm", "stop"]).done();
    mac.end().done();
    segment.host.is_clean();
}

#[test]
fn t3_many_peers_at_once_all_get_their_answers() {
    let Some((segment, mac, socket)) = socket() else { return };
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let text = answer(&socket, SHOW);
                    assert!(text.starts_with("{\"response\":\"status\"") && text.ends_with("}\n"));
                }
            });
        }
    });
    let status = segment.host.timewire(&["tdm", "show", "--json"]).done().json();
    assert_eq!(status["pid"], mac.inside());
}
