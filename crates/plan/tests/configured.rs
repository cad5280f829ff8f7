// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configurations read back and held against the streams: what was rendered is clean, and each kind
//! of change to it is found.
#![expect(clippy::disallowed_methods, reason = "a committed file is read by the test")]

use std::collections::BTreeSet;
use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Value, json};
use timewire_base::Span;
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::network::NetworkFile;
use timewire_plan::check::Rule;
use timewire_plan::exchange::{read_gates, read_launches};
use timewire_plan::file::{self, FileProblem, Held, hold};
use timewire_plan::synth::{Options, plan};
use timewire_tsn::desired::QdiscTree;
use timewire_tsn::file::ParseFile;
use timewire_tsn::qdisc::{Qdisc, QdiscPosition, ShownQdisc};

const CELL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/networks/planned-cell.network.yaml");

/// A directory: names and contents.
type Files = Vec<(String, Vec<u8>)>;

/// What `tc -j qdisc show` prints of the interfaces of host settings, as iproute2 6.15 does.
fn shown(host: &HostSettings) -> Value {
    let mut all = Vec::new();
    for interface in &host.host.interfaces {
        let Some(spec) = &interface.transmit else { continue };
        let tree = QdiscTree::of_desired(&interface.name, spec).unwrap();
        for node in tree.nodes() {
            let mut one =
                json!({"dev": interface.name.to_string(), "kind": node.qdisc().kind().as_str()});
            match node.place() {
                QdiscPosition::Root => one["root"] = json!(true),
                place => one["parent"] = json!(place.to_string().replace("parent ", "")),
            }
            if let Some(handle) = node.handle() {
                one["handle"] = json!(handle.to_string());
            }
            one["options"] = options(node.qdisc());
            all.push(one);
        }
    }
    Value::Array(all)
}

fn options(qdisc: &Qdisc) -> Value {
    match qdisc {
        Qdisc::Taprio(taprio) => {
            let options = taprio.options();
            let classes = options.classes.as_ref().unwrap();
            let map: Vec<u8> = classes.map().iter().map(|class| class.get()).collect();
            let queues: Vec<Value> = classes
                .queues()
                .iter()
                .map(|range| json!({"offset": range.offset.get(), "count": range.count}))
                .collect();
            let entries = options.entries.iter().enumerate().map(|(index, entry)| {
                json!({
                    "index": index,
                    "cmd": entry.operation.letter(),
                    "gatemask": format!("0x{}", entry.gate_states),
                    "interval": entry.interval.as_ns(),
                })
            });
            json!({
                "tc": classes.count(),
                "map": map,
                "queues": queues,
                "clockid": "TAI",
                "base_time": options.base_time.as_ns(),
                "cycle_time": taprio.cycle().as_ns(),
                "cycle_time_extension": 0,
                "schedule": entries.collect::<Vec<Value>>(),
            })
        }
        Qdisc::Etf(etf) => json!({
            "clockid": "TAI",
            "delta": etf.delta().as_ns(),
            "offload": if etf.flags().offload { "on" } else { "off" },
            "deadline_mode": "off",
            "skip_sock_check": "off",
        }),
        _ => json!({}),
    }
}

#[derive(Clone)]
struct Cell {
    network: NetworkFile,
    given: FileProblem,
    files: Files,
}

/// The shipped network and what is rendered of its plan: `tc` of stations, YANG of bridges.
fn cell() -> Cell {
    static CELL_FILES: OnceLock<Cell> = OnceLock::new();
    CELL_FILES.get_or_init(|| rendered(&std::fs::read_to_string(CELL).unwrap())).clone()
}

fn small() -> Cell {
    static SMALL_FILES: OnceLock<Cell> = OnceLock::new();
    SMALL_FILES.get_or_init(|| rendered(SMALL)).clone()
}

fn rendered(text: &str) -> Cell {
    let network = NetworkFile::parse("test", text).unwrap_or_else(|errors| panic!("{errors}"));
    let given = file::problem(&network).unwrap();
    let found = plan(given.problem.clone(), Options::default(), 1_000_000);
    assert_eq!(found.refused, []);
    let mut files = Files::new();
    for one in file::render(&network, &given, &found).unwrap() {
        let node = one.name.split('.').next().unwrap().to_owned();
        let is_bridge = network.bridges.iter().any(|bridge| bridge.name.as_str() == node);
        if one.name.ends_with(".host.yaml") && !is_bridge {
            let host = HostSettings::parse(&one.name, &one.text).unwrap();
            let text = shown(&host).to_string();
            assert!(ShownQdisc::parse(&text).is_ok());
            files.push((format!("{node}.tc.json"), text.into_bytes()));
        } else if one.name.ends_with(".yang.json") || one.name.ends_with(".launch.csv") {
            files.push((one.name, one.text.into_bytes()));
        }
    }
    Cell { network, given, files }
}

impl Cell {
    fn hold(&self) -> Held {
        let held = hold(&self.network, &self.given, &self.files, &mut || true);
        held.unwrap_or_else(|error| panic!("{error}"))
    }

    fn text(&mut self, name: &str) -> &mut Vec<u8> {
        &mut self.files.iter_mut().find(|(own, _)| own == name).unwrap().1
    }

    fn json(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let text = self.text(name);
        let mut value: Value = serde_json::from_slice(text).unwrap();
        change(&mut value);
        *text = value.to_string().into_bytes();
    }

    fn replace(&mut self, name: &str, from: &str, to: &str) {
        let text = self.text(name);
        let old = String::from_utf8(text.clone()).unwrap();
        let new = old.replacen(from, to, 1);
        assert_ne!(old, new, "{from} is not in {name}");
        *text = new.into_bytes();
    }

    /// Rules that are broken, and the words of other contradictions.
    fn broken(&self) -> (BTreeSet<Rule>, String) {
        let held = self.hold();
        let findings = held.configured.report.findings.iter();
        (findings.map(|finding| finding.rule).collect(), held.notes.join("\n"))
    }
}

const NORTH: &str = "north.yang.json";
const TABLE: &str = "/ietf-interfaces:interfaces/interface/0/ieee802-dot1q-bridge:bridge-port/\
                     ieee802-dot1q-sched-bridge:gate-parameter-table";

fn at<'a>(value: &'a mut Value, below: &str) -> &'a mut Value {
    value.pointer_mut(&format!("{TABLE}{below}")).unwrap()
}

fn entries(value: &mut Value) -> &mut Vec<Value> {
    at(value, "/admin-control-list/gate-control-entry").as_array_mut().unwrap()
}

#[test]
fn t1_what_was_rendered_is_clean() {
    let cell = cell();
    let held = cell.hold();
    assert_eq!(held.configured.report.findings, []);
    assert_eq!(held.notes, Vec::<String>::new());
    assert_eq!((&held.unread, &held.open, &held.taken), (&vec![], &vec![], &vec![]));
    assert_eq!((held.configured.without_starts.len(), held.configured.without_way.len()), (0, 0));
    assert_eq!(held.configured.plan.admitted.len(), 7);
    assert_eq!(held.configured.report.transmissions, 21);
    // Five talkers with a table each, their gates, and three bridges.
    assert_eq!(held.files.len(), 5 + 5 + 3, "{:?}", held.files);
}

#[test]
fn t1_host_settings_are_for_a_node_that_was_not_asked() {
    let cell = cell();
    let plan = plan(cell.given.problem.clone(), Options::default(), 1_000_000);
    let all = file::render(&cell.network, &cell.given, &plan).unwrap();
    let all: Files = all.into_iter().map(|one| (one.name, one.text.into_bytes())).collect();
    let mut written = Cell { files: all, ..cell.clone() };
    let (held, asked) = (written.hold(), cell.hold());
    assert_eq!(held.configured.report.findings, []);
    assert_eq!(held.configured, asked.configured);
    assert_eq!(held.files.len(), 5 + 5 + 3, "{:?}", held.files);
    // What it was asked counts, and not what it is to have.
    written.replace("drive-1.host.yaml", "interval: ", "interval: 1");
    let (broken, notes) = written.broken();
    assert!(!broken.is_empty() || !notes.is_empty());
    let told = cell.files.iter().find(|(name, _)| name == "drive-1.tc.json").unwrap().clone();
    written.files.push(told);
    assert_eq!(written.broken(), (BTreeSet::new(), String::new()));
}

/// A change of a configuration, and what is found of it: a rule, or words.
type Case = (&'static str, fn(&mut Cell), Option<Rule>, &'static str);

const CASES: &[Case] = &[
    (
        "a state of a bridge has no gate open",
        |cell| {
            cell.json(NORTH, |value| {
                for entry in entries(value) {
                    if entry["gate-states-value"] == 128 {
                        entry["gate-states-value"] = json!(0);
                        break;
                    }
                }
            })
        },
        Some(Rule::GateShut),
        "",
    ),
    (
        "everything is open",
        |cell| {
            cell.json(NORTH, |value| {
                for entry in entries(value) {
                    entry["gate-states-value"] = json!(255);
                }
            })
        },
        Some(Rule::GateShared),
        "",
    ),
    (
        "the cycle is longer by a nanosecond",
        |cell| {
            cell.json(NORTH, |value| {
                *at(value, "/admin-cycle-time") =
                    json!({"numerator": 4_000_001, "denominator": 1_000_000_000});
            })
        },
        Some(Rule::PortCycle),
        "",
    ),
    (
        "the base is later",
        |cell| {
            cell.json(NORTH, |value| {
                *at(value, "/admin-base-time") = json!({"seconds": "7", "nanoseconds": 20_000});
            })
        },
        Some(Rule::Latency),
        "",
    ),
    (
        "a bridge has no gates",
        |cell| cell.files.retain(|(name, _)| name != NORTH),
        Some(Rule::GatesMissing),
        "",
    ),
    (
        "gates are not enabled",
        |cell| cell.json(NORTH, |value| *at(value, "/gate-enabled") = json!(false)),
        Some(Rule::GatesMissing),
        "",
    ),
    (
        "a state is shorter than the device has",
        |cell| {
            cell.json(NORTH, |value| {
                let entries = entries(value);
                let mut short = entries[0].clone();
                let lasts = entries[0]["time-interval-value"].as_i64().unwrap();
                entries[0]["time-interval-value"] = json!(lasts - 100);
                short["time-interval-value"] = json!(100);
                short["index"] = json!(1);
                for entry in &mut entries[1..] {
                    entry["index"] = json!(entry["index"].as_i64().unwrap() + 1);
                }
                entries.insert(1, short);
            })
        },
        Some(Rule::IntervalShort),
        "",
    ),
    (
        "the list is longer than the device has",
        |cell| {
            cell.json(NORTH, |value| {
                let entries = entries(value);
                let last = entries.pop().unwrap();
                let lasts = last["time-interval-value"].as_i64().unwrap();
                let count = 130_i64;
                for index in 0..count {
                    let mut part = last.clone();
                    let end = lasts * (index + 1) / count;
                    part["time-interval-value"] = json!(end - lasts * index / count);
                    part["index"] = json!(1_000 + index);
                    entries.push(part);
                }
            })
        },
        Some(Rule::GateEntries),
        "",
    ),
    (
        "the port says that it has fewer entries",
        |cell| {
            cell.json(NORTH, |value| {
                let table = value.pointer_mut(TABLE).unwrap();
                table["supported-list-max"] = json!(2);
                table["supported-interval-max"] = json!(1_000);
                table["supported-cycle-max"] = json!({"numerator": 1, "denominator": 1_000});
            })
        },
        None,
        "supported-list-max is 2",
    ),
    (
        "others go in the queue of planned frames",
        |cell| {
            cell.json(NORTH, |value| {
            let class = "/ietf-interfaces:interfaces/interface/0/ieee802-dot1q-bridge:bridge-port/\
                         traffic-class/traffic-class-table/priority5";
            *value.pointer_mut(class).unwrap() = json!(7);
        })
        },
        Some(Rule::GateShared),
        "",
    ),
    (
        "a talker sends too late for the window of the bridge",
        |cell| cell.replace("plc-2.launch.csv", ",1000000,", ",1000000,7"),
        Some(Rule::Latency),
        "",
    ),
    (
        "a talker sends another length",
        |cell| cell.replace("plc-2.launch.csv", ",250\n", ",1250\n"),
        None,
        "bytes is 1250, of the stream 250",
    ),
    (
        "a launch time does not fit to the start",
        |cell| {
            cell.json("plc-1.tc.json", |value| {
                for one in value.as_array_mut().unwrap() {
                    if one["kind"] == "etf" {
                        one["options"]["delta"] = json!(90_000);
                    }
                }
            })
        },
        None,
        "its launch time makes it start at",
    ),
    (
        "the gates of a talker shut too early",
        |cell| {
            cell.json("drive-2.tc.json", |value| {
                let entries = value[0]["options"]["schedule"].as_array_mut().unwrap();
                let open = entries.iter().position(|entry| entry["gatemask"] != "0x01").unwrap();
                let lasts = entries[open]["interval"].as_i64().unwrap();
                entries[open]["interval"] = json!(lasts - 5_000);
                let next = (open + 1) % entries.len();
                let lasts = entries[next]["interval"].as_i64().unwrap();
                entries[next]["interval"] = json!(lasts + 5_000);
            })
        },
        Some(Rule::GateShut),
        "",
    ),
    (
        "the map of a talker puts its frames elsewhere",
        |cell| {
            cell.json("drive-2.tc.json", |value| {
                value[0]["options"]["map"][7] = json!(0);
            })
        },
        Some(Rule::GateShut),
        "",
    ),
];

#[test]
fn t1_each_change_of_a_configuration_is_found() {
    assert!(CASES.len() > 10);
    for (what, change, rule, words) in CASES {
        let mut cell = cell();
        change(&mut cell);
        let (rules, notes) = cell.broken();
        match rule {
            Some(rule) => assert!(rules.contains(rule), "{what}: {rules:?} {notes}"),
            None => assert!(notes.contains(words), "{what}: {rules:?} {notes}"),
        }
    }
}

/// One talker whose NIC opens a queue once in a list.
const NIC: &str = "timewire: 1
kind: network
name: nic
duration: 10ms
stations: [{ name: a, device: i226 }, { name: b }]
bridges: [{ name: br, forward: 2us }]
links: [{ between: [a, br], rate: 1Gbit }, { between: [br, b], rate: 1Gbit }]
streams:
- { name: s, talker: a, listeners: b, class: 7, size: 200B, scheduled: true,
    kind: cyclic, period: 1ms, offset: 300us }
";

#[test]
fn t1_what_the_named_device_cannot_have_is_found() {
    let mut nic = rendered(NIC);
    assert_eq!(nic.broken(), (BTreeSet::new(), String::new()));
    // The same gates from the start of the cycle: the driver counts the others' queue twice.
    nic.json("a.tc.json", |value| {
        let all = value.as_array_mut().unwrap().iter_mut();
        let taprio = all.into_iter().find(|one| one["kind"] == "taprio").unwrap();
        let options = &mut taprio["options"];
        let base = options["base_time"].as_i64().unwrap();
        assert_eq!(base, 300_000);
        options["base_time"] = json!(0);
        let list = options["schedule"].as_array_mut().unwrap();
        let rest = list[1]["interval"].as_i64().unwrap();
        let mut before = list[1].clone();
        before["interval"] = json!(base);
        list[1]["interval"] = json!(rest - base);
        list.insert(0, before);
    });
    let (rules, notes) = nic.broken();
    assert_eq!((rules, notes.as_str()), (BTreeSet::from([Rule::Openings]), ""));
    // A device that repeats sooner.
    let mut nic = rendered(NIC);
    let text = NIC.replace("device: i226", "device: { cycle_max: 500us }");
    nic.network = NetworkFile::parse("test", &text).unwrap();
    nic.given = file::problem(&nic.network).unwrap();
    assert!(nic.broken().0.contains(&Rule::CycleLong));
}

#[test]
fn t1_two_starts_that_meet_are_found() {
    // Both streams of the talker at once: the second would be on the link with the first.
    let mut cell = cell();
    let text = String::from_utf8(cell.text("plc-1.launch.csv").clone()).unwrap();
    let mut rows: Vec<Vec<String>> =
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
    let (start, launch) = (rows[1][5].clone(), rows[1][6].clone());
    (rows[2][5], rows[2][6]) = (start, launch);
    let joined: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
    *cell.text("plc-1.launch.csv") = (joined.join("\n") + "\n").into_bytes();
    assert!(cell.broken().0.contains(&Rule::Overlap));
}

#[test]
fn t1_a_deadline_that_gates_break_is_found() {
    // The same gates, and less time.
    let text = std::fs::read_to_string(CELL).unwrap();
    let cell = rendered(&text);
    let text =
        text.replace("scheduled: true, max_latency: 100us", "scheduled: true, max_latency: 10us");
    let network = NetworkFile::parse("test", &text).unwrap();
    let given = file::problem(&network).unwrap();
    let held = hold(&network, &given, &cell.files, &mut || true).unwrap();
    let rules: Vec<Rule> = held.configured.report.findings.iter().map(|it| it.rule).collect();
    assert_eq!(rules, [Rule::Latency]);
}

#[test]
fn t1_without_starts_the_gates_alone_are_held_against_the_streams() {
    let mut cell = cell();
    cell.files.retain(|(name, _)| !name.ends_with(".launch.csv"));
    let held = cell.hold();
    assert_eq!(held.configured.report.findings, []);
    assert_eq!(held.configured.without_starts.len(), 7);
    // A port that never opens lets nothing through, whatever the starts.
    cell.json(NORTH, |value| {
        for entry in entries(value) {
            entry["gate-states-value"] = json!(127);
        }
    });
    let (rules, _) = cell.broken();
    assert_eq!(rules, BTreeSet::from([Rule::GateShut]));
}

#[test]
fn t0_numbers_at_their_ends_are_gone_through() {
    // A base far away, and a cycle that no interval divides.
    let mut cell = small();
    cell.json("a.tc.json", |value| {
        value[0]["options"]["base_time"] = json!(i64::MAX);
    });
    assert!(!cell.hold().configured.report.is_clean());
    let network = SMALL.replace("period: 1ms, scheduled", "period: 999999999989ns, scheduled");
    let network = NetworkFile::parse("test", &network).unwrap();
    let given = file::problem(&network).unwrap();
    let (mut cell, mut rows) = (small(), String::new());
    rows += "stream,frame,interface,priority,interval_ns,start_ns,launch_ns,bytes\n";
    rows += "s,0,eth0,7,999999999989,0,,104\n";
    *cell.text("a.launch.csv") = rows.into_bytes();
    let held = hold(&network, &given, &cell.files, &mut || true).unwrap();
    let rules: BTreeSet<Rule> =
        held.configured.report.findings.iter().map(|finding| finding.rule).collect();
    assert!(rules.contains(&Rule::GateShut) && rules.contains(&Rule::PortCycle), "{rules:?}");
}

#[test]
fn t0_files_that_are_none_are_refused_with_their_name() {
    let change = |name: &str, bytes: &[u8]| {
        let mut cell = cell();
        cell.files.push((name.to_owned(), bytes.to_vec()));
        hold(&cell.network, &cell.given, &cell.files, &mut || true).unwrap_err().to_string()
    };
    let cases: &[(&str, &[u8], &str)] = &[
        ("south.yang.json", b"{}", "no station or bridge `south`"),
        ("camera.tc.json", b"{", "what `tc -j qdisc show` printed"),
        ("camera.tc.json", b"\xff", "it is no text"),
        ("camera.yang.json", b"{}", "`interfaces` is missing"),
        ("camera.host.yaml", b"timewire: 1\nname: camera\n", "host"),
        ("camera.host.yaml", b"\xff", "it is no text"),
        ("camera.launch.csv", b"stream\n", "the column is missing"),
        (NORTH, b"{\"interfaces\": {}}", ""),
    ];
    for (name, bytes, words) in cases.iter().filter(|(_, _, words)| !words.is_empty()) {
        let error = change(name, bytes);
        assert!(error.starts_with(name) && error.contains(words), "{name}: {error}");
    }
    let twice = change("north.tc.json", shown_twice().to_string().as_bytes());
    assert!(twice.contains("told twice"), "{twice}");
}

/// Gates of the first port of a bridge as `tc` shows them.
fn shown_twice() -> Value {
    json!([{
        "kind": "taprio", "handle": "100:", "root": true, "dev": "eth0",
        "options": {
            "tc": 2, "map": [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            "queues": [{"offset": 0, "count": 1}, {"offset": 1, "count": 1}],
            "clockid": "TAI", "base_time": 0, "cycle_time": 1_000_000, "cycle_time_extension": 0,
            "schedule": [{"index": 0, "cmd": "S", "gatemask": "0x3", "interval": 1_000_000}],
        },
    }])
}

/// All places of a document.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Array(list) => {
            let each = list.iter().enumerate();
            each.for_each(|(index, one)| places(one, &format!("{at}/{index}"), all));
        }
        Value::Object(map) => {
            for (key, one) in map {
                places(one, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        _ => {}
    }
}

fn other() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<u64>().prop_map(Value::from),
        (0_u64..300).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
    ]
}

const SMALL: &str = "
timewire: 1
kind: network
name: pair
duration: 10ms
stations:
  - { name: a, device: { interval_min: 5us } }
  - { name: b }
bridges:
  - { name: br, forward: 2us, device: { interval_min: 5us } }
links: [{ between: [a, br] }, { between: [br, b] }]
streams:
  - { name: s, talker: a, listeners: b, class: 7, size: 58B,
      kind: cyclic, period: 1ms, scheduled: true, max_latency: 30us }
  - { name: rest, talker: a, listeners: b, size: 1472B, kind: cyclic, period: 10ms }
";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever stands at any place of any of the files, it is read and judged, or refused.
    #[test]
    fn t0_mutations_of_configurations_end_well(
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        value in other(),
    ) {
        let mut cell = small();
        let json: Vec<String> = cell.files.iter().map(|(name, _)| name.clone())
            .filter(|name| name.ends_with(".json")).collect();
        cell.json(&json[which.index(json.len())], |data| {
            let mut all = Vec::new();
            places(data, "", &mut all);
            *data.pointer_mut(&all[place.index(all.len())]).unwrap() = value;
        });
        let _ = hold(&cell.network, &cell.given, &cell.files, &mut || true);
    }

    /// Bytes that are cut, changed or anything.
    #[test]
    fn t0_any_bytes_of_configurations_end_well(
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        noise in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut cell = small();
        let file = which.index(cell.files.len());
        let at = place.index(cell.files[file].1.len());
        cell.files[file].1[at] = byte;
        let _ = hold(&cell.network, &cell.given, &cell.files, &mut || true);
        cell.files[file].1.truncate(at);
        let _ = hold(&cell.network, &cell.given, &cell.files, &mut || true);
        prop_assert!(read_gates("gates", &noise).is_err());
        prop_assert!(read_launches("launches", &noise).is_err());
    }

    /// A frame that has to wait for a window which comes later is late: it takes 22840 ns without,
    /// and may take 30 us.
    #[test]
    fn t0_a_shift_of_a_bridge_is_found(shift in 7_161_u64..990_000) {
        let mut cell = small();
        cell.json("br.yang.json", |value| {
            *at(value, "/admin-base-time") = json!({"seconds": "0", "nanoseconds": shift});
        });
        let held = cell.hold();
        let rules: Vec<Rule> = held.configured.report.findings.iter().map(|it| it.rule).collect();
        prop_assert_eq!(rules, [Rule::Latency]);
        prop_assert_eq!(held.configured.plan.cycle, Span::from_ms(1));
    }
}
