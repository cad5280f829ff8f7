// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shipped files of networks, and what is said of wrong ones.
//!
//! Not here: what becomes of their traffic (`timewire-cli`).
#![expect(clippy::disallowed_methods, reason = "committed files are read and written by the test")]

use std::fs;
use std::path::{Path, PathBuf};

use timewire_sched::scenario::network::{NetworkFile, network_schema};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn t1_the_shipped_networks_are_good_and_written_again() {
    let mut count = 0;
    for entry in fs::read_dir(repository().join("scenarios/networks")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let file = NetworkFile::parse(&name, &text).unwrap_or_else(|errors| panic!("{errors}"));
        let again = NetworkFile::parse("again", &file.to_json().to_string());
        assert_eq!(again.unwrap_or_else(|errors| panic!("{errors}")), file, "{name}");
        count += 1;
    }
    assert_eq!(count, 13);
}

#[test]
fn t1_the_json_schema_in_the_book_is_that_of_the_definitions() {
    let path = repository().join("docs/schema/network.schema.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, network_schema()).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert!(
        golden == network_schema(),
        "docs/schema/network.schema.json is stale: UPDATE_GOLDEN=1 cargo test -p timewire-sched"
    );
}

const GOOD: &str = "timewire: 1
kind: network
name: two
duration: 1s
stations:
- { name: a, clock: { drift: -3ppm, sync: { by: beacon, bias: 1us } } }
- { name: b, receive: { kind: uniform, min: 1us, max: 2us } }
bridges:
- { name: br, cut_through: 64B }
links:
- { between: [a, br] }
- { between: [br, b], loss: 0.1% }
ports:
- { of: [br], to: b, gates: { entries: [{ open: [7], lasts: 50us }] }, launch: [6] }
streams:
- { name: s, from: a, to: b, message: 64B, traffic: { kind: request, answer: t } }
- { name: t, from: b, to: a, message: 64B, traffic: { kind: after, stream: s } }
faults:
- { kind: link_down, link: [a, br], at: 1ms, lasts: 1ms }
- { kind: clock_step, node: b, at: 1ms, by: -5us }
limits:
- { id: fast, metric: latency_max, stream: s, at_most: 1ms }
";

#[test]
fn t1_what_cannot_be_is_told_with_its_place() {
    NetworkFile::parse("x", GOOD).unwrap_or_else(|errors| panic!("{errors}"));
    let cases = [
        ("kind: network", "kind: netwrok", "did you mean `network`?"),
        ("duration: 1s", "duration: 0s", "duration: 0ns is no duration"),
        ("duration: 1s", "duration: 1s\nwarm_up: 2s", "warm_up: nothing is counted"),
        ("name: b,", "name: a,", "stations[1].name: `a` is the name of stations[0].name"),
        ("[a, br] }\n-", "[a] }\n-", "links[0].between: a link has two ends, not 1"),
        ("[br, b],", "[br, c],", "links[1].between: there is no station or bridge `c`"),
        ("of: [br], to: b", "of: [a], to: b", "ports[0].to: a has no port to b"),
        ("lasts: 50us", "lasts: 0us", "gates.entries[0].lasts: it takes time"),
        ("min: 1us", "min: 3us", "stations[1].receive.min: 3us is more than 2us"),
        ("from: a, to: b", "from: a, to: a", "streams[0].to: it ends where it starts"),
        ("from: a, to: b", "from: a, to: [b, a]", "streams[0].to: it ends where it starts"),
        ("from: a, to: b", "from: a, to: [b, b]", "streams[0].to: b is there twice"),
        ("from: a, to: b", "from: a, to: []", "streams[0].to: nobody listens"),
        ("from: a, to: b", "from: a, to: [b, c]", "streams[0].to: there is no station or bridge"),
        ("message: 64B, traffic", "traffic", "streams[0].message: how long are its messages?"),
        (
            "{ kind: request, answer: t }",
            "{ kind: replay, file: x.pcapng }",
            "streams[0].message: its frames are as long as they were captured",
        ),
        (
            "message: 64B, traffic: { kind: request, answer: t }",
            "traffic: { kind: replay, file: x.pcapng, source: 02:00 }",
            "`02:00` is no address of a network card",
        ),
        (
            "{ kind: uniform, min: 1us, max: 2us }",
            "{ kind: recorded, file: x.csv }",
            "stations[1].receive.column: which column has the times?",
        ),
        (
            "{ kind: uniform, min: 1us, max: 2us }",
            "{ kind: recorded, file: x.twr, column: ns }",
            "stations[1].receive.column: only a file that ends in .csv has columns",
        ),
        ("answer: t", "answer: s", "s arrives at b, and this starts at a"),
        ("answer: t", "answer: u", "streams[0].traffic.answer: there is no stream `u`"),
        (
            "{ kind: request, answer: t }",
            "{ kind: sporadic, gap: { kind: exponential, mean: 0us } }",
            "streams[0].traffic.gap: it takes time",
        ),
        ("kind: after", "kind: aftre", "did you mean `after`?"),
        ("link: [a, br]", "link: [a, b]", "faults[0].link: there is no link between a and b"),
        ("node: b,", "node: c,", "faults[1].node: there is no station or bridge `c`"),
        ("at: 1ms, lasts", "at: 90000s, lasts", "faults[0].at: 90000s is longer than a day"),
        ("bias: 1us", "bias: 90000s", "stations[0].clock.sync.bias: 90000s is longer than a day"),
        ("at_most: 1ms", "at_most: 1%", "`latency_max` is limited by a time such as 500us"),
        ("stream: s, at_most", "stream: x, at_most", "limits[0].stream: there is no stream `x`"),
        (
            "from: a, to: b, message: 64B,",
            "from: a, to: b, message: 64B, launch: 1ms,",
            "streams[0].launch: no port of a keeps launch times of class 0",
        ),
        (
            "from: a, to: b, message: 64B,",
            "from: a, to: b, message: 64B, shape: { rate: 1Mbit, burst: 100B },",
            "streams[0].shape: no port shapes class 0",
        ),
        ("cut_through", "cut_trough", "unknown key `cut_trough`: did you mean `cut_through`?"),
        ("message: 64B, traffic: { kind: r", "message: 64, traffic: { kind: r", "64B"),
    ];
    let timed = GOOD.replace("to: b, gates", "timed: [0], gates").replace(
        "from: a, to: b, message: 64B,",
        "from: a, to: b, message: 64B, shape: { rate: 1Mbit, burst: 100B },",
    );
    NetworkFile::parse("x", &timed).unwrap_or_else(|errors| panic!("{errors}"));
    let several = GOOD.replace("from: a, to: b", "from: a, to: [b, br]").replace(
        "message: 64B, traffic: { kind: request, answer: t }",
        "traffic: { kind: replay, file: x.pcapng, vlan: 5, source: 02:00:00:00:00:01 }",
    );
    let file = NetworkFile::parse("x", &several).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(file.streams[0].to.all().len(), 2);
    let again = NetworkFile::parse("again", &file.to_json().to_string());
    assert_eq!(again.unwrap_or_else(|errors| panic!("{errors}")), file);
    for (right, wrong, said) in cases {
        let text = GOOD.replacen(right, wrong, 1);
        assert_ne!(text, GOOD, "{right}");
        let errors = NetworkFile::parse("x", &text).unwrap_err().to_string();
        assert!(errors.contains(said), "{said}\n{errors}");
    }
}
