// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shipped files of networks, and what is said of wrong ones.
#![expect(clippy::disallowed_methods, reason = "committed files are read and written by the test")]

use std::fs;
use std::path::{Path, PathBuf};

use timewire_base::StationName;
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::network::{NetTraffic, NetworkCases, NetworkFile, network_schema};
use timewire_model::scenario::{NothingFurther, ScenarioErrors};

fn parse(file_name: &str, text: &str) -> Result<NetworkFile, ScenarioErrors> {
    NetworkCases::parse_with(&NothingFurther, file_name, text).map(|cases| cases.base)
}

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
        let file = parse(&name, &text).unwrap_or_else(|errors| panic!("{errors}"));
        let again = parse("again", &file.to_json().to_string());
        assert_eq!(again.unwrap_or_else(|errors| panic!("{errors}")), file, "{name}");
        count += 1;
    }
    assert_eq!(count, 15);
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
        "docs/schema/network.schema.json is stale: UPDATE_GOLDEN=1 cargo test -p timewire-model"
    );
}

/// 64 bytes of message, 42 of headers and, in a frame with a tag, 4 more.
#[test]
fn t1_frames_with_a_class_have_a_tag_that_a_segment_does_not_need() {
    let linked = "links: [[a, b]]";
    let segment = "segments: [{ stations: [a, b] }]";
    let both = "segments: [{ stations: [a, c] }]\nbridges: [x]\nlinks: [[a, x], [x, b]]";
    let cases = [
        (linked, "", 106),
        (linked, ", class: 1", 110),
        (linked, ", class: 7", 110),
        (linked, ", class: 7, tagged: false", 106),
        (linked, ", tagged: true", 110),
        (segment, ", class: 7", 106),
        (segment, ", class: 7, tagged: true", 110),
        (both, ", class: 7", 110),
    ];
    for (network, keys, length) in cases {
        let text = format!(
            "timewire: 1\nkind: network\nname: two\nduration: 1s\nstations: [a, b, c]\n{network}\n\
             streams: [{{ name: s, talker: a, listeners: b, size: 64B, period: 1ms{keys} }}]\n"
        );
        let file = parse("x", &text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(file.streams[0].frame_len().get(), length, "{network} {keys}");
    }
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
- { of: [br], to: b, gates: { entries: [{ open: [7], interval: 50us }] }, launch: [6] }
streams:
- { name: s, talker: a, listeners: b, size: 64B, kind: request, answer: t }
- { name: t, talker: b, listeners: a, size: 64B, kind: after, follows: s }
faults:
- { kind: link-down, link: [a, br], at: 1ms, duration: 1ms }
- { kind: clock-step, node: b, at: 1ms, by: -5us }
limits:
- { id: fast, metric: latency-max, stream: s, at_most: 1ms }
";

#[test]
fn t1_what_cannot_be_is_told_with_its_place() {
    parse("x", GOOD).unwrap_or_else(|errors| panic!("{errors}"));
    let cases = [
        ("kind: network", "kind: netwrok", "did you mean `network`?"),
        ("duration: 1s", "duration: 0s", "duration: 0ns is no duration"),
        ("duration: 1s", "duration: 1s\nwarm_up: 2s", "warm_up: nothing is counted"),
        ("name: b,", "name: a,", "stations[1].name: `a` is the name of stations[0].name"),
        ("[a, br] }\n-", "[a] }\n-", "links[0].between: a link has two ends, not 1"),
        ("[br, b],", "[br, c],", "links[1].between: there is no station or bridge `c`"),
        ("of: [br], to: b", "of: [a], to: b", "ports[0].to: a has no port to b"),
        ("interval: 50us", "interval: 0us", "gates.entries[0].interval: it takes time"),
        (
            "size: 64B, kind: request, answer: t",
            "kind: replay, file: x.pcap, tagged: true",
            "streams[0].tagged: its frames have the tags that were captured",
        ),
        ("min: 1us", "min: 3us", "stations[1].receive.min: 3us is more than 2us"),
        (
            "talker: a, listeners: b",
            "talker: a, listeners: a",
            "streams[0].listeners: it ends where it starts",
        ),
        (
            "talker: a, listeners: b",
            "talker: a, listeners: [b, a]",
            "streams[0].listeners: it ends where it starts",
        ),
        (
            "talker: a, listeners: b",
            "talker: a, listeners: [b, b]",
            "streams[0].listeners: b is there twice",
        ),
        (
            "talker: a, listeners: b",
            "talker: a, listeners: []",
            "streams[0].listeners: nobody listens",
        ),
        (
            "talker: a, listeners: b",
            "talker: a, listeners: [b, c]",
            "streams[0].listeners: there is no station or bridge",
        ),
        (
            "- { between: [br, b],",
            "- [br, a]\n- { between: [br, b],",
            "links[0] is between these two",
        ),
        (
            "launch: [6] }",
            "cbs: [{ class: 5, idle_slope: 60Mbit }, { class: 4, idle_slope: 41Mbit }] }",
            "ports[0].cbs: the idle slopes are 101Mbit together, and the port has 100Mbit",
        ),
        (
            "kind: request, answer: t }",
            "kind: after, follows: t }",
            "streams[0].follows: s, t follow each other, and never begin",
        ),
        ("size: 64B, kind: r", "kind: r", "streams[0].size: how long are its messages?"),
        (
            "kind: request, answer: t }",
            "kind: replay, file: x.pcapng }",
            "streams[0].size: its frames are as long as they were captured",
        ),
        (
            "size: 64B, kind: request, answer: t }",
            "kind: replay, file: x.pcapng, source: 02:00 }",
            "`02:00` is no MAC address",
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
        ("answer: t", "answer: u", "streams[0].answer: there is no stream `u`"),
        (
            "kind: after, follows: s }",
            "period: 1ms }",
            "streams[0].answer: no message of t follows one of s",
        ),
        (
            "kind: request, answer: t }",
            "kind: sporadic, gap: { kind: exponential, mean: 0us } }",
            "streams[0].gap: it takes time",
        ),
        ("kind: after", "kind: aftre", "did you mean `after`?"),
        ("link: [a, br]", "link: [a, b]", "faults[0].link: there is no link between a and b"),
        ("node: b,", "node: c,", "faults[1].node: there is no station or bridge `c`"),
        ("at: 1ms, duration", "at: 90000s, duration", "faults[0].at: 90000s is longer than a day"),
        ("bias: 1us", "bias: 90000s", "stations[0].clock.sync.bias: 90000s is longer than a day"),
        ("at_most: 1ms", "at_most: 1%", "`1%` is a share, but the metric `latency-max` is a time"),
        ("stream: s, at_most", "stream: x, at_most", "limits[0].stream: there is no stream `x`"),
        (
            "talker: a, listeners: b, size: 64B,",
            "talker: a, listeners: b, size: 64B, launch: 1ms,",
            "streams[0].launch: no port of a keeps launch times of class 0",
        ),
        (
            "talker: a, listeners: b, size: 64B,",
            "talker: a, listeners: b, size: 64B, ats: { rate: 1Mbit, burst: 100B },",
            "streams[0].ats: no port shapes class 0",
        ),
        ("cut_through", "cut_trough", "unknown key `cut_trough`: did you mean `cut_through`?"),
        ("size: 64B, kind: r", "size: 64, kind: r", "64B"),
    ];
    let timed = GOOD.replace("to: b, gates", "ats: [0], gates").replace(
        "talker: a, listeners: b, size: 64B,",
        "talker: a, listeners: b, size: 64B, ats: { rate: 1Mbit, burst: 100B },",
    );
    parse("x", &timed).unwrap_or_else(|errors| panic!("{errors}"));
    let several = GOOD.replace("talker: a, listeners: b", "talker: a, listeners: [b, br]").replace(
        "size: 64B, kind: request, answer: t }",
        "kind: replay, file: x.pcapng, vlan: 5, source: 02:00:00:00:00:01 }",
    );
    let file = parse("x", &several).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(file.streams[0].listeners.all().len(), 2);
    let again = parse("again", &file.to_json().to_string());
    assert_eq!(again.unwrap_or_else(|errors| panic!("{errors}")), file);
    for (right, wrong, said) in cases {
        let text = GOOD.replacen(right, wrong, 1);
        assert_ne!(text, GOOD, "{right}");
        let errors = parse("x", &text).unwrap_err().to_string();
        assert!(errors.contains(said), "{said}\n{errors}");
    }
}

const ASKS: &str = "timewire: 1
kind: network
name: asks
duration: 1s
stations: [a, { name: b }]
bridges: [br]
links: [{ between: [a, br] }, { between: [br, b] }]
streams:
- { name: s, talker: a, listeners: b, size: 64B, period: 1ms, max_latency: 1ms, max_loss: 0.1% }
- { name: t, talker: a, listeners: b, size: 64B, kind: flood, rate: 1Mbit, max_jitter: 5us }
- { name: u, talker: a, listeners: b, class: 7, size: 64B, period: 1ms, scheduled: true,
    max_latency: 1ms, max_jitter: 5us, max_loss: 0% }
limits:
- { id: typical, metric: latency-p99, stream: s, at_most: 500us }
";

#[test]
fn t1_limits_follow_from_what_streams_ask_for() {
    let file = parse("x", ASKS).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(matches!(file.streams[0].traffic, NetTraffic::Cyclic(_)), "cyclic without `kind`");
    let limits = file.all_limits();
    let told: Vec<String> = limits
        .iter()
        .map(|it| format!("{}: {} of {} {}", it.id, it.metric.word(), it.stream, it.at_most))
        .collect();
    // What a scheduled stream asks of its latency is for the plan to promise.
    let expected = [
        "typical: latency-p99 of s 500us",
        "s-latency: latency-max of s 1ms",
        "s-lost: lost of s 0.1%",
        "t-jitter: jitter of t 5us",
        "u-lost: lost of u 0%",
    ];
    assert_eq!(told, expected);
    let again = parse("again", &file.to_json().to_string());
    assert_eq!(again.unwrap_or_else(|errors| panic!("{errors}")), file);
}

#[test]
fn t1_keys_of_another_kind_of_stream_are_told() {
    for (right, wrong, said) in [
        ("period: 1ms, max_latency", "rate: 1Mbit, max_latency", "unknown key `rate`"),
        ("period: 1ms, max_latency", "rate: 1Mbit, max_latency", "the key `period` is missing"),
        ("kind: flood, rate", "kind: flood, period", "unknown key `period`"),
        ("kind: flood", "kind: flod", "`flod` is not known here: did you mean `flood`?"),
        ("kind: flood", "kind: [flood]", "here is a list, where one of `cyclic`"),
        ("id: typical", "id: s-lost", "limits[0].id: `s-lost` is the limit of a stream"),
        ("max_loss: 0.1%", "max_loss: 1ms", "streams[0].max_loss: what is lost is a share"),
        ("stations: [a, {", "stations: [[a], {", "stations[0].name: here is a list, where"),
        ("stations: [a, {", "stations: [A, {", "stations[0].name: "),
    ] {
        let text = ASKS.replacen(right, wrong, 1);
        assert_ne!(text, ASKS, "{right}");
        let errors = parse("x", &text).unwrap_err().to_string();
        assert!(errors.contains(said), "{said}\n{errors}");
    }
}

/// The host settings of a station of this text.
fn settings(text: &str, station: Option<&str>) -> Result<HostSettings, String> {
    let station = station.map(|name| StationName::new(name).unwrap());
    let read = HostSettings::parse_with(&NothingFurther, "x", text, station.as_ref());
    read.map_err(|errors| errors.to_string())
}

#[test]
fn t0_host_settings_are_those_of_the_only_station_or_of_one_that_is_named() {
    let sysctl = "host: { sysctls: [{ name: net.core.rmem_max, value: '1' }] }";
    let alone = format!("timewire: 1\nkind: network\nname: n\nstations: [{{ name: a, {sysctl} }}]");
    let own = settings(&alone, None).unwrap();
    assert_eq!((own.name().as_str(), own.station.as_str()), ("n", "a"));
    assert_eq!(settings(&alone, Some("a")).unwrap(), own);
    let written = serde_json::to_string(&own).unwrap();
    assert_eq!(settings(&written, None).unwrap(), own, "{written}");
    // Of a whole network it is the same key.
    let whole = GOOD.replace("- { name: b,", &format!("- {{ name: b, {sysctl},"));
    parse("x", &whole).unwrap_or_else(|errors| panic!("{errors}"));
    let of_b = settings(&whole, None).unwrap();
    assert_eq!((of_b.name().as_str(), of_b.station.as_str(), &of_b.host), ("two", "b", &own.host));
    let both = whole.replace("- { name: a,", "- { name: a, host: {},");
    assert_eq!(settings(&both, Some("b")).unwrap().name(), "two.b");
    for (text, station, why) in [
        (&both, None, "x:6:3: stations: 2 stations have `host`\n"),
        (&both, None, "say which with --station: `a`, `b`"),
        (&both, Some("c"), "stations: there is no station `c`"),
        (&whole, Some("a"), "stations: station `a` has no `host`\n"),
        (&whole, Some("a"), "those that have `host`: `b`"),
        (&GOOD.to_owned(), None, "stations: no station has `host`\n"),
        (&alone.replace("name: net.", "naem: net."), None, "x:4:43: stations[0].host.sysctls[0]"),
        (&alone.replace("[{ name: a,", "[{ name: 7,"), None, "stations[0].name"),
    ] {
        let said = settings(text, station).unwrap_err();
        assert!(said.contains(why), "{why}: {said}");
    }
    // A planner, a simulator and a run read it, too.
    let wrong = whole.replace("value: '1'", "value: ''");
    let said = parse("x", &wrong).unwrap_err().to_string();
    assert!(said.contains("stations[1].host.sysctls[0].value: a value is one line"), "{said}");
    let said = parse("x", &alone).unwrap_err().to_string();
    assert!(said.contains("streams: there is no stream"), "{said}");
}

#[test]
fn t0_host_settings_of_no_station_are_one_error() {
    let text = "timewire: 1\nname: old\nhost:\n  interfaces: [{ name: eth0 }]\n";
    let errors = parse("x", text).unwrap_err();
    let [error] = &errors.errors[..] else { panic!("{errors}") };
    assert_eq!((error.line, error.key.as_str()), (3, "host"));
    assert!(error.hint.contains("stations: [{ name: NAME, host: ... }]"), "{errors}");
}
