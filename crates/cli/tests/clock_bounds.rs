// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is a difference of two clocks is told with its bound, or not at all: each command that
//! hears another station, between two namespaces, whose clock is one but does not say so.

use crate::support::{Host, Said, TIMEWIRE, wait_until};
use serde_json::Value as Json;
use timewire_avtp::media::wav::{self, Wav, WavFormat};
use timewire_avtp::pdu::SampleFormat;

const UNKNOWN: &str = "clock error unknown; not shown (state it with --clock-error)";

fn pair() -> Option<Host> {
    let host = Host::start()?;
    host.tool("ip netns add beta");
    host.tool("ip link add phy0 type veth peer name phy0 address 02:00:00:00:00:02 netns beta");
    for (netns, last) in [("", 1), ("beta", 2)] {
        host.tool_in(netns, &format!("ip addr add 10.77.0.{last}/24 dev phy0"));
        host.tool_in(netns, "ip link set phy0 up");
        host.tool_in(netns, "ip link set lo up");
    }
    Some(host)
}

/// What a listener in a namespace says of fifty messages of a talker in another.
fn heard(host: &Host, netns: &str, listen: &str, talker: &str, talk: &str) -> Said {
    let words: Vec<&str> = [TIMEWIRE].into_iter().chain(listen.split_whitespace()).collect();
    let mut listener = host.spawn_in(netns, &words);
    wait_until("it listens", || listener.stderr().contains("listening") || listener.has_ended());
    let talk: Vec<&str> = talk.split(' ').collect();
    let told = host.timewire_in(talker, &talk);
    assert_eq!(told.code, Some(0), "{told:?}");
    listener.end()
}

fn last(said: &Said) -> Json {
    let line = said.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

const LISTENERS: [(&str, &str); 3] = [
    ("0.0.0.0:15001", "10.77.0.2:15001"),
    ("--interface phy0 --ethertype 0x88b5", "--interface phy0 --over frames 02:00:00:00:00:02"),
    (
        "--interface phy0 --over ring --ethertype 0x88b5",
        "--interface phy0 --over frames 02:00:00:00:00:02",
    ),
];

#[test]
fn t3_a_latency_of_another_station_has_a_bound_or_is_not_told() {
    let Some(host) = pair() else { return };
    for (place, (listen, talk)) in LISTENERS.into_iter().enumerate() {
        let talk = format!("talk --tolerance 20s --count 50 {talk}");
        let hear = |more: &str| {
            let listen = format!("listen {listen} --count 50 --for 30s {more}");
            heard(&host, "beta", &listen, "", &talk)
        };
        let out = format!("heard{place}");
        let said = hear(&format!("--expect max<10s --expect loss=0,gap<10s --out {out}"));
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stdout.contains(&format!("latency of stream 1: {UNKNOWN}\n")), "{said:?}");
        assert!(said.stdout.contains("INCONCLUSIVE max<10s: "), "{said:?}");
        assert!(said.stdout.contains("PASS loss=0") && said.stdout.contains("PASS gap<10s"));
        assert!(!said.stdout.contains("Send -> Receive"), "{said:?}");
        // Its directory does not tell either.
        let page = host.timewire_in("beta", &["report", &out, "--markdown"]);
        assert_eq!(page.code, Some(1), "{page:?}");
        assert!(page.stdout.contains(UNKNOWN) && !page.stdout.contains("Transfer, "), "{page:?}");
        assert!(!page.stdout.contains("Time on the way"), "{page:?}");
        let csv = format!("{out}.csv");
        let times = host.timewire_in("beta", &["report", &out, "--csv", &csv]);
        assert_eq!(times.code, Some(2), "{times:?}");
        assert!(times.stderr.contains("such as --clock-error 5us"), "{times:?}");

        let one = last(&hear("--json"));
        let stream = &one["data"]["heard"]["streams"][0];
        assert_eq!((&stream["between"], &stream["clock"]["error_ns"]), (&Json::Null, &Json::Null));
        assert_eq!(
            (&stream["clock"]["reason"], &stream["clock"]["basis"]),
            (&UNKNOWN.into(), &"unknown".into())
        );
        assert_eq!(stream["inter_arrival"]["count"], 49, "one clock: {stream}");

        let out = format!("stated{place}");
        let said = hear(&format!("--clock-error 5us --expect max<10s --out {out}"));
        let said = said.done();
        assert!(said.stdout.contains("clock error ±5us, as --clock-error states"), "{said:?}");
        assert!(said.stdout.contains("us (±5.0us)"), "{said:?}");
        let page = host.timewire_in("beta", &["report", &out, "--markdown"]).done();
        assert!(page.stdout.contains("±5.0"), "{page:?}");
        let one = last(&hear("--clock-error 5us --json"));
        let stream = &one["data"]["heard"]["streams"][0];
        assert_eq!(
            (&stream["between"]["count"], &stream["clock"]["error_ns"]),
            (&50.into(), &5_000.into())
        );
    }
    // A talker on this host is known by its address.
    let listen = "listen 127.0.0.1:15001 --count 50 --for 30s --expect max<10s --json";
    let talk = "talk --tolerance 20s --count 50 127.0.0.1:15001";
    let one = last(&heard(&host, "", listen, "", talk).done());
    let stream = &one["data"]["heard"]["streams"][0];
    assert_eq!(
        (&stream["clock"]["basis"], &stream["clock"]["error_ns"]),
        (&"one-clock".into(), &0.into())
    );
    assert_eq!(stream["between"]["count"], 50, "{stream}");
    host.is_clean();
}

/// Listeners to IEEE 1722, with the talker of each; a CAN frame has a time when it is asked for.
const STREAMS: [(&str, &str); 3] = [
    ("avtp listen --out got.wav --force", "avtp talk a.wav --interface phy0 --stream 7"),
    ("avtp crf listen", "avtp crf talk --interface phy0 --stream 7 --packets 50"),
    (
        "avtp can listen --stream 02:00:00:00:00:01/7",
        "avtp can talk frames --interface phy0 --stream 7 --transit 5ms",
    ),
];

#[test]
fn t3_a_margin_of_another_station_has_a_bound_or_is_not_told() {
    let Some(host) = pair() else { return };
    host.tool("ip link set phy0 address 02:00:00:00:00:01");
    host.scratch().write("frames", &"123#00\n".repeat(50));
    let format = WavFormat {
        sample: SampleFormat::Int16,
        channels: 1,
        rate_hz: 48_000,
        valid_bits: 16,
        channel_mask: None,
    };
    let wave = wav::write(&Wav { format, samples: &[0; 2 * 6 * 50] }).unwrap();
    std::fs::write(host.scratch().path().join("a.wav"), wave).unwrap();
    for (listen, talk) in STREAMS {
        let hear = |more: &str| {
            let listen = format!("{listen} --interface phy0 --packets 50 --for 30s --json {more}");
            let said = heard(&host, "beta", &listen, "", talk);
            // The frames of CAN are lines of their own.
            let can = listen.contains("can listen");
            let json: Json = if can { last(&said)["data"].clone() } else { said.json() };
            (said, json)
        };
        let (said, json) = hear("");
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!((&json["late"], &json["margin"]), (&Json::Null, &Json::Null), "{json}");
        assert_eq!(
            (&json["clock"]["reason"], &json["clock"]["basis"]),
            (&UNKNOWN.into(), &"unknown".into())
        );
        for limit in ["late=50", "margin=1ns"] {
            let (said, _) = hear(&format!("--expect {limit}"));
            assert_eq!(said.code, Some(1), "{said:?}");
            let line = said.stderr.lines().find(|line| line.starts_with("finding: ")).unwrap();
            assert!(
                line.starts_with("finding: inconclusive: ") && line.contains(UNKNOWN),
                "{line}"
            );
        }
        // Beyond all margins the error leaves everything open.
        let (said, json) = hear("--clock-error 1000s --expect late=49");
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains("inconclusive: 0 to 50 packets late"), "{said:?}");
        assert_eq!(json["late"], serde_json::json!({"at_least": 0, "at_most": 50}));
        let (_, json) = hear("--clock-error 5us --expect late=50");
        assert_eq!(
            (&json["margin"]["count"], &json["clock"]["error_ns"]),
            (&50.into(), &5_000.into())
        );
    }
    host.is_clean();
}

/// Every verb that tells a difference of two clocks and takes a bound by hand, with what it needs
/// to get as far.
const STATED: [&str; 8] = [
    "listen 127.0.0.1:0",
    "top --once",
    "clock status",
    "trace show no-capture",
    "run no-file",
    "avtp listen --interface lo --out got",
    "avtp crf listen --interface lo",
    "avtp can listen --interface lo --stream 02:00:00:00:00:01/7",
];

/// One option for all of them: the same name, the same times, and but for `run`, which gives it on,
/// the same default.
#[test]
fn t3_a_bound_is_stated_in_the_same_way_everywhere() {
    let Some(host) = pair() else { return };
    for words in STATED {
        let verb: Vec<&str> = words.split(' ').collect();
        let help = host.timewire(&[&verb[..], &["--help"]].concat()).done();
        assert!(help.stdout.contains("--clock-error <TIME>"), "{words}: {help:?}");
        assert!(help.stdout.contains("TIMEWIRE_CLOCK_ERROR"), "{words}: {help:?}");
        for wrong in ["5", "-5us", "soon"] {
            let option = format!("--clock-error={wrong}");
            let said = host.timewire(&[&verb[..], &[option.as_str()]].concat());
            assert_eq!(said.code, Some(2), "{words} {wrong}: {said:?}");
            assert!(said.stderr.contains("'--clock-error <TIME>'"), "{words} {wrong}: {said:?}");
        }
        if verb[0] == "run" {
            continue;
        }
        // A wrong variable is told before anything else that stands in the way.
        let env = [&["env", "TIMEWIRE_CLOCK_ERROR=5", TIMEWIRE], &verb[..]].concat();
        let said = host.spawn_in("", &env).end();
        assert_eq!(said.code, Some(2), "{words}: {said:?}");
        assert!(said.stderr.contains("TIMEWIRE_CLOCK_ERROR: "), "{words}: {said:?}");
    }
    // Stations that share a clock have none to state.
    let tdm = format!("{}/../../scenarios/tdm-64.yaml", env!("CARGO_MANIFEST_DIR"));
    let said = host.timewire(&["run", &tdm, "--dry-run", "--clock-error", "5us"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("--clock-error is for hosts"), "{said:?}");
    // What is stated is told in the same words, and unknown is unknown.
    let told = "clock error ±5us, as --clock-error states";
    let top = |more: &[&str]| host.timewire(&[&["top", "--once"], more].concat()).done();
    assert!(!top(&[]).stdout.contains("clock error"));
    assert!(top(&["--clock-error", "5us"]).stdout.contains(told));
    let json = top(&["--clock-error", "5us", "--json"]).json();
    assert_eq!(
        (&json["clock_error"]["basis"], &json["clock_error"]["error_ns"]),
        (&"stated".into(), &5_000.into())
    );
    let json = top(&["--json"]).json();
    assert_eq!(json["clock_error"]["reason"], UNKNOWN);
    host.is_clean();
}
