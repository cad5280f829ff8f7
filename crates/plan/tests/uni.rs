// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams that users ask a network for: read, planned, answered, and refused with a place and a
//! remedy.

use proptest::prelude::*;
use serde_json::{Value, json};
use timewire_base::Span;
use timewire_plan::check::check;
use timewire_plan::exchange::{UniStream, read_uni};
use timewire_plan::file::{self, UniPlaced, with_uni};
use timewire_plan::model::{Plan, Route};
use timewire_plan::synth::{Options, plan};
use timewire_tsn::file::without_streams;

/// A ring of three bridges with a station at each, one of them twice.
const NETWORK: &str = "
timewire: 1
kind: network
name: ring
duration: 10ms
sync_error: 200ns
stations:
  - { name: a, mac: ['02:00:00:00:00:0a'] }
  - { name: b, mac: ['02:00:00:00:00:0b', '02:00:00:00:01:0b'] }
  - { name: c }
bridges:
  - { name: x, forward: 2us }
  - { name: y, forward: 2us }
  - { name: z, forward: 2us }
links:
  - { between: [a, x], rate: 1Gbit }
  - { between: [a, z], rate: 1Gbit }
  - { between: [b, y], rate: 1Gbit }
  - { between: [b, z], rate: 1Gbit }
  - { between: [c, z], rate: 1Gbit }
  - { between: [x, y], rate: 1Gbit }
  - { between: [y, z], rate: 1Gbit }
  - { between: [z, x], rate: 1Gbit }
";

fn interface(mac: &str, name: &str) -> Value {
    json!([{"mac-address": mac, "interface-name": name}])
}

/// From `a` to `b`: 100 bytes in each millisecond, begun between 100 and 200 us.
fn stream(number: u8) -> Value {
    json!({
        "stream-id": format!("02-00-00-00-00-0A:00-{number:02x}"),
        "talker": {
            "stream-rank": {"rank": 1},
            "end-station-interfaces": interface("02-00-00-00-00-0A", "eth0"),
            "data-frame-specification": [
                {"index": 0, "ieee802-mac-addresses": {
                    "destination-mac-address": "01-00-5e-00-00-01",
                    "source-mac-address": "02-00-00-00-00-0a",
                }},
                {"index": 1, "ieee802-vlan-tag": {"priority-code-point": 6, "vlan-id": 5}},
            ],
            "traffic-specification": {
                "interval": {"numerator": 1, "denominator": 1000},
                "max-frames-per-interval": 1,
                "max-frame-size": 100,
                "transmission-selection": 0,
                "time-aware": {
                    "earliest-transmit-offset": 100_000,
                    "latest-transmit-offset": 200_000,
                    "jitter": 500,
                },
            },
            "user-to-network-requirements": {"num-seamless-trees": 1, "max-latency": 300_000},
        },
        "listener": [
            {"index": 3, "end-station-interfaces": interface("02-00-00-00-00-0b", "")},
        ],
    })
}

fn document(streams: Vec<Value>) -> Value {
    json!({"ieee802-dot1q-cnc-config:cnc-config": {"domain": [
        {"domain-id": "cell", "cnc-enabled": true, "cuc": [
            {"cuc-id": "plant", "stream": streams},
        ]},
    ]}})
}

fn read(document: &Value) -> Result<Vec<UniStream>, String> {
    let read = read_uni("uni.json", document.to_string().as_bytes());
    read.map(|uni| uni.streams).map_err(|error| error.to_string())
}

fn planned(network: &str, streams: Vec<Value>) -> (UniPlaced, Plan, Value) {
    let network = without_streams("test", network).unwrap().base;
    let document = document(streams).to_string();
    let uni = read_uni("uni.json", document.as_bytes()).unwrap();
    let placed = with_uni(&network, &uni).unwrap();
    let plan = plan(placed.given.problem.clone(), Options::default(), 100_000);
    assert_eq!(check(&placed.given.problem, &plan).unwrap().findings, []);
    let status = placed.status(&uni, &plan);
    (placed, plan, status)
}

fn told(status: &Value, stream: usize) -> &Value {
    &status["ieee802-dot1q-cnc-config:cnc-config"]["domain"][0]["cuc"][0]["stream"][stream]
}

fn code(status: &Value, stream: usize) -> u64 {
    told(status, stream)["status-info"]["failure-code"].as_u64().unwrap()
}

#[test]
fn t0_a_stream_is_read_with_its_units() {
    let streams = read(&document(vec![stream(1)])).unwrap();
    let one = &streams[0];
    assert_eq!((one.domain.as_str(), one.cuc.as_str()), ("cell", "plant"));
    assert_eq!((one.interval, one.frames, one.frame_size), (Span::from_ms(1), 1, 100));
    assert_eq!((one.tagged, one.priority, one.trees), (true, Some(6), 1));
    let aware = one.time_aware.unwrap();
    assert_eq!((aware.earliest, aware.latest), (Span::from_us(100), Some(Span::from_us(200))));
    assert_eq!(one.latency_max, Some(Span::from_us(300)));
    assert_eq!(one.listeners[0].index, 3);
}

#[test]
fn t0_what_is_around_data_is_taken_off() {
    let inner = document(vec![stream(1)]);
    let restconf = json!({"ietf-restconf:data": inner});
    let file = json!({"ietf-yang-instance-data:instance-data-set": {"content-data": inner}});
    assert_eq!(read(&restconf).unwrap(), read(&inner).unwrap());
    assert_eq!(read(&file).unwrap(), read(&inner).unwrap());
    // Names of other modules are augmentations.
    let mut more = inner.clone();
    let list = "ieee802-dot1q-cnc-config:cnc-config";
    more[list]["domain"][0]["example:more"] = json!(1);
    assert_eq!(read(&more).unwrap(), read(&inner).unwrap());
}

#[test]
fn t0_a_time_aware_stream_is_answered_with_its_offset() {
    let (placed, plan, status) = planned(NETWORK, vec![stream(1)]);
    assert_eq!(code(&status, 0), 0);
    let one = told(&status, 0);
    assert_eq!(one["stream-status"], "planned");
    assert_eq!(one["status-info"]["talker-status"], "ready");
    assert_eq!(one["status-info"]["listener-status"], "ready");
    let list = &one["talker"]["interface-configuration"]["interface-list"][0];
    assert_eq!(list["mac-address"], "02-00-00-00-00-0A");
    let offset = list["config-list"][0]["time-aware-offset"].as_i64().unwrap();
    // The program is told to begin its jitter before the frame's start on the link.
    let start = plan.admitted[0].transmissions[0].start;
    assert_eq!(start, Span::from_ns(offset + 500));
    assert!((100_000..=200_000).contains(&offset), "{offset}");
    // A tagged frame of 100 bytes is 122 with check sequence and 142 on the link: 1136 ns, and 1 ns
    // of margin. Three
    // hops with two bridges that take 2 us, at most a gap less early, and clocks 200 ns apart.
    let sent = &plan.admitted[0].transmissions;
    assert_eq!(placed.given.problem.stream(plan.admitted[0].stream).length_bytes, 122);
    let last = sent.last().unwrap().start + Span::from_ns(1_137 + 500);
    assert_eq!(one["listener"][0]["index"], 3);
    assert_eq!(one["listener"][0]["accumulated-latency"].as_i64(), Some(last.as_ns()));
    assert_eq!(one["talker"]["accumulated-latency"].as_i64(), Some(last.as_ns()));
}

#[test]
fn t0_the_latest_start_is_one_from_which_it_is_in_time() {
    // Many streams that begin as late as they may: each still is there in 120 us.
    let streams = (0..60).map(|number| {
        let mut one = stream(number);
        let talker = &mut one["talker"];
        talker["traffic-specification"]["time-aware"]["latest-transmit-offset"] = json!(900_000);
        talker["user-to-network-requirements"]["max-latency"] = json!(170_000);
        one
    });
    let (_, plan, status) = planned(NETWORK, streams.collect());
    let mut refused = 0;
    for number in 0..60 {
        let one = told(&status, number);
        match code(&status, number) {
            0 => {
                let latency = one["talker"]["accumulated-latency"].as_u64().unwrap();
                assert!(latency <= 170_000, "{latency}");
            }
            _ => refused += 1,
        }
    }
    assert_eq!(refused, plan.refused.len());
    assert!(refused > 0 && refused < 30, "{refused}: there is room for some of them only");
}

#[test]
fn t0_a_talker_without_a_time_waits_an_interval_at_most() {
    let mut one = stream(1);
    let spec = one["talker"]["traffic-specification"].as_object_mut().unwrap();
    spec.remove("time-aware");
    one["talker"]["user-to-network-requirements"]["max-latency"] = json!(1_100_000);
    let mut early = one.clone();
    early["stream-id"] = json!("02-00-00-00-00-0A:00-02");
    early["talker"]["user-to-network-requirements"]["max-latency"] = json!(1_000_000);
    let (_, _, status) = planned(NETWORK, vec![one, early]);
    assert_eq!((code(&status, 0), code(&status, 1)), (0, 21));
    let talker = &told(&status, 0)["talker"];
    assert!(talker["interface-configuration"].is_null(), "{talker}");
    let latency = talker["accumulated-latency"].as_u64().unwrap();
    assert!((1_000_000..=1_100_000).contains(&latency), "{latency}");
}

#[test]
fn t0_several_listeners_and_redundant_ways_are_planned() {
    let mut multicast = stream(1);
    multicast["listener"] = json!([
        {"index": 0, "end-station-interfaces": interface("02-00-00-00-01-0b", "")},
        {"index": 1, "end-station-interfaces": interface("", "c")},
    ]);
    let mut twice = stream(2);
    twice["talker"]["user-to-network-requirements"]["num-seamless-trees"] = json!(2);
    let (placed, plan, status) = planned(NETWORK, vec![multicast, twice, stream(3)]);
    assert_eq!((code(&status, 0), code(&status, 1), code(&status, 2)), (0, 0, 0));
    let listeners = &told(&status, 0)["listener"];
    assert!(listeners[1]["accumulated-latency"].as_u64().unwrap() > 0, "{listeners}");
    let problem = &placed.given.problem;
    let first = problem.stream(*placed.placed[0].as_ref().unwrap());
    assert!(matches!(&first.route, Route::Given(trees) if trees.len() == 1));
    let copies = plan.admitted[1].transmissions.iter().map(|sent| sent.copy).max();
    assert_eq!(copies, Some(1));
    // The redundant one is no stream of the file; all of them have gates.
    assert_eq!(placed.given.streams, [Some(0), None, Some(1)]);
    assert_eq!(placed.file.streams.len(), 2);
    assert_eq!(placed.file.streams[0].listeners.all().len(), 2);
    let planned = file::planned(&placed.file, &placed.given, &plan).unwrap();
    assert_eq!(planned.streams.len(), 2);
    let files = file::render(&placed.file, &placed.given, &plan).unwrap();
    let launches = files.iter().find(|file| file.name == "a.launch.csv").unwrap();
    // A row for each way out of the talker: one, two, one.
    assert_eq!(launches.text.lines().count(), 1 + 4, "{}", launches.text);
}

#[test]
fn t0_refusals_have_the_codes_of_the_standard() {
    let change = |number: u8, pointer: &str, value: Value| {
        let mut one = stream(number);
        *one.pointer_mut(pointer).unwrap() = value;
        one
    };
    let latency = "/talker/user-to-network-requirements/max-latency";
    let traffic = |leaf: &str| format!("/talker/traffic-specification/{leaf}");
    let late = change(1, latency, json!(100_000));
    let slow = change(2, latency, json!(105_000));
    let large = change(3, &traffic("max-frame-size"), json!(1_501));
    let mut long = change(4, &traffic("max-frames-per-interval"), json!(100));
    *long.pointer_mut(&traffic("max-frame-size")).unwrap() = json!(1_500);
    *long.pointer_mut(latency).unwrap() = json!(0);
    let trees = change(5, "/talker/user-to-network-requirements/num-seamless-trees", json!(3));
    let many = change(6, "/talker/user-to-network-requirements/num-seamless-trees", json!(9));
    let (placed, plan, status) = planned(NETWORK, vec![late, slow, large, long, trees, many]);
    let codes: Vec<u64> = (0..6).map(|stream| code(&status, stream)).collect();
    assert_eq!(codes, [21, 21, 14, 1, 2, 2]);
    assert_eq!((plan.admitted.len(), placed.placed.len()), (0, 6));
    for stream in 0..6 {
        let one = told(&status, stream);
        assert_eq!(one["status-info"]["talker-status"], "failed");
        assert!(one["talker"]["accumulated-latency"].is_null());
    }
}

#[test]
fn t0_mistakes_have_a_place_and_a_remedy() {
    let talker = "/talker/traffic-specification";
    let cases: &[(&str, Value, &str)] = &[
        ("/stream-id", json!("7"), "stream[0]/stream-id: `7` is no id"),
        ("/stream-id", json!(7), "is no text"),
        (&format!("{talker}/interval/denominator"), json!(0), "0 is out of its bounds"),
        (&format!("{talker}/interval/denominator"), json!(7), "no whole number of nanoseconds"),
        (&format!("{talker}/interval/numerator"), json!("1"), "`1` is no whole number"),
        (&format!("{talker}/interval/numerator"), json!(4_000_000), "too long"),
        (&format!("{talker}/max-frame-size"), json!(65_536), "from 1 to 65535"),
        (&format!("{talker}/max-frames-per-interval"), json!(0), "from 1 to 65535"),
        (&format!("{talker}/time-aware/earliest-transmit-offset"), json!(300_000), "before"),
        (&format!("{talker}/time-aware"), json!({"earliest": 1}), "`earliest` is no name"),
        ("/talker/end-station-interfaces", json!([]), "it has no interface"),
        ("/talker/end-station-interfaces", json!({}), "is no list"),
        ("/talker/end-station-interfaces/0/mac-address", json!("02:00"), "is no address"),
        ("/listener", json!([]), "nobody listens"),
        ("/listener/0/index", json!(-1), "is no whole number"),
        ("/talker/data-frame-specification/1/ieee802-vlan-tag/priority-code-point", json!(8), "7"),
    ];
    for (pointer, value, message) in cases {
        let mut one = stream(1);
        *one.pointer_mut(pointer).unwrap() = value.clone();
        let error = read(&document(vec![one])).unwrap_err();
        let where_from = "uni.json: /cnc-config/domain[0]/cuc[0]/stream[0]";
        assert!(error.starts_with(where_from), "{pointer}: {error}");
        assert!(error.contains(message), "{pointer}: {error}");
        assert!(error.contains("\n  remedy: "), "{pointer}: {error}");
    }
    let twice = read(&document(vec![stream(1), stream(1)])).unwrap_err();
    assert!(twice.contains("there is a stream"), "{twice}");
    assert!(read(&json!({})).unwrap_err().contains("`cnc-config` is missing"));
    assert!(read(&document(Vec::new())).unwrap_err().contains("there is no stream"));
}

#[test]
fn t0_an_interface_of_no_station_is_an_error() {
    let network = without_streams("test", NETWORK).unwrap().base;
    let cases = [
        (interface("02-00-00-00-00-0c", ""), "is of no station"),
        (interface("", "d"), "is of no station"),
        (
            json!([{"mac-address": "02-00-00-00-00-0a"}, {"interface-name": "c"}]),
            "are of several stations",
        ),
    ];
    for (interfaces, message) in cases {
        let mut one = stream(1);
        one["talker"]["end-station-interfaces"] = interfaces;
        let uni = read_uni("uni.json", document(vec![one]).to_string().as_bytes()).unwrap();
        let error = with_uni(&network, &uni).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("remedy: "), "{error}");
    }
    let below = format!(
        "{NETWORK}streams:\n- {{ name: rest, talker: a, listeners: b, class: 6, size: 58B, \
         kind: cyclic, period: 10ms }}\n"
    );
    let network = without_streams("test", &below).unwrap().base;
    let uni = read_uni("uni.json", document(vec![stream(1)]).to_string().as_bytes()).unwrap();
    let error = with_uni(&network, &uni).unwrap_err().to_string();
    assert!(error.contains("class 6 is not below 6"), "{error}");
}

/// A value of the kind that comes where another is expected.
fn other() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[], {}, 1])),
    ]
}

/// All places of a document.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Array(list) => {
            for (index, one) in list.iter().enumerate() {
                places(one, &format!("{at}/{index}"), all);
            }
        }
        Value::Object(map) => {
            for (key, one) in map {
                places(one, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever stands at any place of a request, reading, placing and answering end well or with
    /// an error.
    #[test]
    fn t0_mutations_of_a_request_end_well(place in any::<prop::sample::Index>(), value in other()) {
        let mut data = document(vec![stream(1), stream(2)]);
        let mut all = Vec::new();
        places(&data, "", &mut all);
        *data.pointer_mut(&all[place.index(all.len())]).unwrap() = value;
        if let Ok(uni) = read_uni("uni.json", data.to_string().as_bytes()) {
            let network = without_streams("test", NETWORK).unwrap().base;
            if let Ok(placed) = with_uni(&network, &uni) {
                let plan = plan(placed.given.problem.clone(), Options::default(), 1_000);
                prop_assert_eq!(check(&placed.given.problem, &plan).unwrap().findings, []);
                prop_assert!(placed.status(&uni, &plan).is_object());
            }
        }
    }

    /// Bytes that are cut, changed or anything.
    #[test]
    fn t0_any_bytes_end_well(
        cut in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        noise in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut bytes = document(vec![stream(1)]).to_string().into_bytes();
        let place = cut.index(bytes.len());
        prop_assert!(read_uni("uni.json", &bytes[..place]).is_err());
        bytes[place] = byte;
        let _ = read_uni("uni.json", &bytes);
        prop_assert!(read_uni("uni.json", &noise).is_err());
    }
}
