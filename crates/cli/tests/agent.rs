// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire agent`: pairing two stations, listing and forgetting them.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::{Scratch, TIMEWIRE, timewire};
use serde_json::Value as Json;

/// An agent that waits to be paired.
struct Waiting {
    child: Child,
    stdout: BufReader<ChildStdout>,
    offer: Json,
}

impl Waiting {
    fn in_directory(dir: &str, more: &[&str]) -> Waiting {
        let fixed = ["agent", "pair", "--listen", "127.0.0.1:0", "--name", "st1", "--json"];
        let mut child = Command::new(TIMEWIRE)
            .args(fixed)
            .args(["--dir", dir])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let offer: Json = serde_json::from_str(&line).unwrap();
        assert_eq!(offer["schema"], "timewire.agent-pairing/1");
        assert_eq!(offer["type"], "offer");
        Waiting { child, stdout, offer: offer["data"].clone() }
    }

    fn told(&self, key: &str) -> String {
        self.offer[key].as_str().unwrap().to_owned()
    }

    /// What it says last, its stderr, and its exit code.
    fn ended(mut self) -> (String, String, Option<i32>) {
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (out, err, self.child.wait().unwrap().code())
    }
}

fn peers(dir: &str) -> Json {
    timewire(&["agent", "peers", "--json", "--dir", dir]).done().json()
}

#[test]
fn t3_two_stations_are_paired_listed_and_forgotten() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name).display().to_string();
    let (agent, controller) = (at("agent"), at("controller"));
    let empty = timewire(&["agent", "peers", "--dir", &agent]).done().stdout;
    assert_eq!(empty, "this station has no key yet; `timewire agent pair` makes one\n");
    let waiting = Waiting::in_directory(&agent, &[]);
    let (address, code) = (waiting.told("address"), waiting.told("code"));
    // The code as somebody types it.
    let mut giving = Command::new(TIMEWIRE)
        .args(["agent", "pair", &address, "--name", "desk", "--dir", &controller])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let typed = format!("{}\n", code.to_lowercase().replace('-', " "));
    giving.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let given = giving.wait_with_output().unwrap();
    let said = String::from_utf8(given.stdout).unwrap();
    let fingerprint = waiting.told("fingerprint");
    let paired = "paired with st1: this station controls it from now on";
    assert_eq!(said, format!("{paired}\n  fingerprint {fingerprint}\n"));
    let (out, err, ended) = waiting.ended();
    assert_eq!((err.as_str(), ended), ("", Some(0)));
    let paired: Json = serde_json::from_str(&out).unwrap();
    assert_eq!((&paired["type"], &paired["data"]["name"]), (&"paired".into(), &"desk".into()));
    let (here, there) = (peers(&controller), peers(&agent));
    assert_eq!(there["peers"][0], paired["data"]);
    assert_eq!(there["peers"][0]["fingerprint"], here["fingerprint"]);
    assert_eq!(here["peers"][0]["fingerprint"], there["fingerprint"]);
    assert_eq!(here["peers"][0]["role"], "agent");
    let listed = timewire(&["agent", "peers", "--dir", &controller]).done().stdout;
    assert!(listed.contains(&format!("\n  agent       st1                   {fingerprint}\n")));
    let forget = ["agent", "forget", "st1", "--dir", &controller];
    timewire(&[&forget[..], &["--as", "controller"]].concat())
        .failed(2, "error: st1 is not trusted as that; nothing was changed\n");
    assert_eq!(timewire(&forget).done().stdout, "");
    assert_eq!(peers(&controller)["peers"], Json::Array(Vec::new()));
    timewire(&forget).failed(
        2,
        "error: no peer has the name or fingerprint `st1`; `timewire agent peers` lists them\n",
    );
}

#[test]
fn t3_wrong_codes_end_an_offer_and_nobody_is_trusted() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name).display().to_string();
    let (agent, controller) = (at("agent"), at("controller"));
    let waiting = Waiting::in_directory(&agent, &[]);
    let wrong = if waiting.told("code").starts_with('0') { "1" } else { "0" }.repeat(20);
    let give = ["agent", "pair", &waiting.told("address"), "--dir", &controller, "--code", &wrong];
    for _ in 0..3 {
        timewire(&give).failed(
            2,
            "error: not paired: the agent says: the code is wrong\n  hint: `timewire agent pair` \
             on the other station shows a fresh code\n",
        );
    }
    let (out, err, ended) = waiting.ended();
    assert_eq!((out.as_str(), ended), ("", Some(2)));
    assert!(err.contains("error: not paired: 3 wrong codes were given\n"), "{err}");
    for dir in [&agent, &controller] {
        assert_eq!(peers(dir)["peers"], Json::Array(Vec::new()));
    }
    let over = timewire(&give);
    assert!(over.stderr.starts_with("error: cannot connect to 127.0.0.1:"), "{over:?}");
    let (_, err, ended) = Waiting::in_directory(&agent, &["--within", "50ms"]).ended();
    assert!(err.contains("error: not paired: nobody gave the code within"), "{err}");
    assert_eq!(ended, Some(2));
}

#[test]
fn t1_what_cannot_be_meant_is_told() {
    let said = timewire(&["agent", "pair", "st1:28412", "--code", "12345"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(
        said.stderr.contains("`12345` is not a pairing code: 20 letters and digits"),
        "{said:?}"
    );
    let said = timewire(&["agent", "pair", "--code", &"0".repeat(20)]);
    assert!(said.stderr.contains("required arguments were not provided"), "{said:?}");
    timewire(&["agent", "find", "--for", "0s"])
        .failed(2, "error: a time of 0ns is none to wait; more than 0s would be right\n");
    let scratch = Scratch::new();
    let dir = scratch.path().display().to_string();
    scratch.write("key", "no key");
    let said = timewire(&["agent", "peers", "--dir", &dir]);
    assert!(said.stderr.contains("key cannot be used: its mode is 0644; 0600 would be right"));
    assert_eq!(said.code, Some(2));
}
