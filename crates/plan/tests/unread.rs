// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is in a file and is not understood: wherever something is put into a good file, it is named
//! or refused, and never passed over.

use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Value, json};
use timewire_base::Span;
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::network::NetworkFile;
use timewire_plan::check::Rule;
use timewire_plan::exchange::{
    GateReading, Tsnbench, Tsnkit, TsnkitTables, read_gates, read_launches, read_tsnbench,
    read_tsnkit, read_tsnkit_result, read_uni, write_tsnkit,
};
use timewire_plan::file::{self, Held, hold};
use timewire_plan::synth::{Options, plan};
use timewire_tsn::file::ParseFile;

const NETWORK: &str = "timewire: 1
kind: network
name: pair
duration: 10ms
sync_error: 100ns
stations:
- { name: talker, device: { launch_time: 100us } }
- { name: listener }
bridges: [{ name: sw, forward: 2us }]
links: [{ between: [sw, listener], rate: 1Gbit }, { between: [talker, sw], rate: 1Gbit }]
streams:
- { name: first, talker: talker, listeners: listener, class: 3, size: 100B, scheduled: true,
    kind: cyclic, period: 1ms }
";

/// Gates of a bridge as the model before 802.1Qcw has them; `open` by entry, half a cycle each.
fn older(open: [u8; 2]) -> Value {
    let entry = |(index, open): (usize, u8)| {
        json!({
            "index": index,
            "operation-name": "ieee802-dot1q-sched:set-gate-states",
            "sgs-params": {"gate-states-value": open, "time-interval-value": 500_000},
        })
    };
    json!({"ietf-interfaces:interfaces": {"interface": [{
        "name": "eth0",
        "enabled": true,
        "type": "iana-if-type:ethernetCsmacd",
        "ieee802-dot1q-sched:max-sdu-table": [{"traffic-class": 3, "queue-max-sdu": 1500}],
        "ieee802-dot1q-sched:gate-parameters": {
            "gate-enabled": true,
            "admin-control-list-length": 2,
            "admin-control-list": open.into_iter().enumerate().map(entry).collect::<Vec<_>>(),
            "admin-cycle-time": {"numerator": 1, "denominator": 1000},
            "admin-base-time": {"seconds": "0", "fractional-seconds": "0"},
            "config-change": true,
        },
    }]}})
}

/// The same as XML.
fn older_xml(open: [u8; 2]) -> String {
    let entry = |(index, open): (usize, u8)| {
        format!(
            "<s:admin-control-list>\n<s:index>{index}</s:index>\
             <s:operation-name>s:set-gate-states</s:operation-name>\
             <s:sgs-params><s:gate-states-value>{open}</s:gate-states-value>\
             <s:time-interval-value>500000</s:time-interval-value></s:sgs-params>\
             </s:admin-control-list>\n"
        )
    };
    let list: String = open.into_iter().enumerate().map(entry).collect();
    format!(
        "<?xml version=\"1.0\"?>\n<!-- of a device -->\n<interfaces \
         xmlns=\"urn:ietf:params:xml:ns:yang:ietf-interfaces\" \
         xmlns:s='urn:ieee:std:802.1Q:yang:ieee802-dot1q-sched'><interface><name>eth0</name>\
         <enabled>true</enabled><s:max-sdu-table><s:traffic-class>3</s:traffic-class>\
         <s:queue-max-sdu>1500</s:queue-max-sdu></s:max-sdu-table><s:gate-parameters>\
         <s:gate-enabled>true</s:gate-enabled>\
         <s:admin-control-list-length>2</s:admin-control-list-length>{list}\
         <s:admin-cycle-time><s:numerator>1</s:numerator><s:denominator>1000</s:denominator>\
         </s:admin-cycle-time><s:admin-base-time><s:seconds>0</s:seconds>\
         <s:fractional-seconds>0</s:fractional-seconds></s:admin-base-time>\
         <s:config-change>true</s:config-change></s:gate-parameters></interface></interfaces>\n"
    )
}

fn held(files: &[(&str, String)]) -> Result<Held, String> {
    let network = NetworkFile::parse("test", NETWORK).unwrap();
    let given = file::problem(&network).unwrap();
    let files: Vec<_> =
        files.iter().map(|(name, text)| ((*name).to_owned(), text.clone().into_bytes())).collect();
    hold(&network, &given, &files, &mut || true).map_err(|error| error.to_string())
}

fn rules(held: &Held) -> Vec<Rule> {
    held.configured.report.findings.iter().map(|finding| finding.rule).collect()
}

#[test]
fn t1_the_model_before_802_1qcw_is_read_and_judged() {
    for (name, text) in [
        ("sw.yang.json", (|open| older(open).to_string()) as fn([u8; 2]) -> String),
        ("sw.yang.xml", older_xml),
    ] {
        // Class 3 is open in one half of the cycle, in none, and beside others.
        let good = held(&[(name, text([8, 1]))]).unwrap();
        assert_eq!((rules(&good), &good.unread, &good.open), (vec![], &vec![], &vec![]), "{name}");
        assert_eq!(rules(&held(&[(name, text([2, 1]))]).unwrap()), [Rule::GateShut], "{name}");
        let short = text([8, 1]).replace("1500", "99");
        assert!(held(&[(name, short)]).unwrap().notes[0].contains("payload"), "{name}");
        for (from, to, said) in [
            ("500000", "0", "out of its bounds"),
            ("set-gate-states", "set-cycle", "is no operation"),
            ("sgs-params", "sgs", "`sgs-params` is missing"),
        ] {
            let error = held(&[(name, text([8, 1]).replace(from, to))]).unwrap_err();
            assert!(error.contains(said), "{name}: {error}");
        }
    }
    let reading = |text: String| read_gates("gates", text.as_bytes()).unwrap().interfaces;
    assert_eq!(reading(older([8, 1]).to_string()), reading(older_xml([8, 1])));
    let mut length = older([8, 1]);
    let table = "/ietf-interfaces:interfaces/interface/0/ieee802-dot1q-sched:gate-parameters";
    length.pointer_mut(table).unwrap()["admin-control-list-length"] = json!(1);
    let error = read_gates("gates", length.to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("1 entries count, and the list has 2"), "{error}");
    let mut base = older([8, 1]);
    base.pointer_mut(table).unwrap()["admin-base-time"] =
        json!({"seconds": "7", "fractional-seconds": "250000"});
    let read = reading(base.to_string());
    assert_eq!(read[0].base, Span::from_us(250));
}

#[test]
fn t1_gates_of_which_not_all_is_told_are_inconclusive() {
    let enabled = "<interfaces xmlns=\"urn:ietf:params:xml:ns:yang:ietf-interfaces\"><interface>\
                   <name>eth0</name><gate-parameters><gate-enabled>true</gate-enabled>\
                   </gate-parameters></interface></interfaces>";
    let told = held(&[("sw.yang.xml", enabled.to_owned())]).unwrap();
    assert!(told.open[0].contains("no list of states is there"), "{told:?}");
    let cases =
        [("enabled", json!(false), "is not enabled"), ("oper-status", json!("down"), "not up")];
    for (leaf, value, said) in cases {
        let mut gates = older([8, 1]);
        gates["ietf-interfaces:interfaces"]["interface"][0][leaf] = value;
        let told = held(&[("sw.yang.json", gates.to_string())]).unwrap();
        assert!(told.open[0].contains(said), "{told:?}");
    }
    let table = "/ietf-interfaces:interfaces/interface/0/ieee802-dot1q-sched:gate-parameters";
    for (change, said) in [
        (json!({"config-change": false}), "not in force"),
        (json!({"config-pending": true}), "not in force"),
        (json!({"gate-enabled": false}), "is not enabled"),
        (
            json!({"oper-control-list": [{"index": 0, "operation-name": "set-gate-states",
                "sgs-params": {"gate-states-value": 1, "time-interval-value": 7}}]}),
            "is not what it does",
        ),
    ] {
        let mut gates = older([8, 1]);
        let members = gates.pointer_mut(table).unwrap().as_object_mut().unwrap();
        members.extend(change.as_object().unwrap().clone());
        let told = held(&[("sw.yang.json", gates.to_string())]).unwrap();
        assert!(told.open[0].contains(said), "{told:?}");
    }
}

/// A bridge port of the current model with a table of classes.
fn current(classes: &Value) -> Value {
    json!({"ietf-interfaces:interfaces": {"interface": [{
        "name": "eth0",
        "ieee802-dot1q-bridge:bridge-port": {
            "traffic-class": classes,
            "ieee802-dot1q-sched-bridge:gate-parameter-table": {
                "gate-enabled": true,
                "admin-control-list": {"gate-control-entry": [{
                    "index": 0, "operation-name": "ieee802-dot1q-sched:set-gate-states",
                    "gate-states-value": 255, "time-interval-value": 1_000_000,
                }]},
            },
        },
    }]}})
}

fn classes(of: &Value) -> Result<[Option<u8>; 8], String> {
    let read = read_gates("gates", current(of).to_string().as_bytes());
    read.map(|reading| reading.interfaces[0].classes).map_err(|error| error.to_string())
}

#[test]
fn t0_both_tables_of_traffic_classes_are_read() {
    let row = |class: u8| {
        json!({"priority": 3, "available-traffic-class":
            [{"num-traffic-class": 2, "traffic-class": 0},
             {"num-traffic-class": 8, "traffic-class": class}]})
    };
    let list = classes(&json!({"traffic-class-map": [row(5)]})).unwrap();
    let table =
        classes(&json!({"traffic-class-table": {"number-of-traffic-classes": 8, "priority3": 5}}));
    assert_eq!((list[3], table.unwrap()), (Some(5), list));
    let both = |class: u8| {
        classes(&json!({
            "traffic-class-map": [row(class)], "traffic-class-table": {"priority3": 5},
        }))
    };
    assert_eq!(both(5).unwrap(), list);
    assert!(both(6).unwrap_err().contains("contradicts"));
    let many = classes(&json!({"traffic-class-table":
        {"number-of-traffic-classes": 2, "priority3": 5}}));
    assert!(many.unwrap_err().contains("out of its bounds"));
}

/// All objects of a value, by their places.
fn objects(value: &Value, at: &str, all: &mut Vec<String>) {
    match value {
        Value::Array(list) => {
            let inner = list.iter().enumerate();
            inner.for_each(|(index, one)| objects(one, &format!("{at}/{index}"), all));
        }
        Value::Object(map) => {
            all.push(at.to_owned());
            map.iter().for_each(|(key, one)| objects(one, &format!("{at}/{key}"), all));
        }
        _ => {}
    }
}

/// With a member of this name in one of its objects.
fn with_member(value: &Value, place: &prop::sample::Index, name: &str, new: &Value) -> Value {
    let mut all = Vec::new();
    objects(value, "", &mut all);
    let mut changed = value.clone();
    let object = changed.pointer_mut(place.get::<String>(&all)).unwrap().as_object_mut().unwrap();
    object.insert(name.to_owned(), new.clone());
    changed
}

/// Names that no format has.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["zz-[a-z]{1,8}", "zz[a-z]{1,4}:[a-z]{1,8}", "ieee802-dot1q-sched:zz[a-z]{1,4}"]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(1)),
        Just(json!(null)),
        Just(json!("x")),
        Just(json!([{"a": 1}])),
        Just(json!({"gate-enabled": true})),
    ]
}

fn is_told(reading: Result<GateReading, impl ToString>, name: &str) -> Result<(), TestCaseError> {
    if let Ok(reading) = reading {
        let is_it = reading.unread.iter().any(|it| it.path.contains(name) && it.count > 0);
        prop_assert!(is_it, "{name} in {reading:?}");
    }
    Ok(())
}

/// What `tc -j qdisc show` prints, with everything that it can print of gates.
fn tc() -> Value {
    json!([
        {"kind": "taprio", "handle": "100:", "dev": "eth0", "root": true, "refcnt": 9, "options": {
            "tc": 2,
            "map": [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "queues": [{"offset": 0, "count": 1}, {"offset": 1, "count": 1}],
            "clockid": "TAI",
            "base_time": 0,
            "cycle_time": 1_000_000,
            "cycle_time_extension": 0,
            "schedule": [
                {"index": 0, "cmd": "S", "gatemask": "0x2", "interval": 500_000},
                {"index": 1, "cmd": "S", "gatemask": "0x1", "interval": 500_000},
            ],
        }},
        {"kind": "pfifo", "handle": "0:", "dev": "eth0", "parent": "100:1",
            "options": {"limit": 9}},
        {"kind": "etf", "handle": "8001:", "dev": "eth0", "parent": "100:2", "options": {
            "clockid": "TAI", "delta": 100_000, "offload": "off", "deadline_mode": "off",
            "skip_sock_check": "off",
        }},
    ])
}

#[test]
fn t1_disciplines_that_are_not_judged_are_named() {
    let told = |change: fn(&mut Value)| {
        let mut all = tc();
        change(&mut all);
        held(&[("sw.tc.json", all.to_string())]).unwrap()
    };
    let good = told(|_| {});
    assert_eq!((rules(&good), &good.unread), (vec![], &vec![]), "{good:?}");
    type Case = (fn(&mut Value), &'static str);
    let cases: &[Case] = &[
        (|all| all[1]["kind"] = json!("netem"), "eth0 netem"),
        (
            |all| {
                all[1] = json!({"kind": "cbs", "dev": "eth0", "parent": "100:1", "options":
            {"idleslope": 1, "sendslope": -1, "hicredit": 1, "locredit": -1, "offload": 0}})
            },
            "eth0 cbs: credit",
        ),
        (|all| all[0]["options"]["clockid"] = json!("REALTIME"), "clockid"),
        (|all| all[0]["options"]["schedule"][0]["gatemask"] = json!("0x102"), "gatemask"),
        (
            |all| {
                let options = all[0]["options"].as_object_mut().unwrap();
                options.remove("clockid");
                options.insert("flags".to_owned(), json!("0x2"));
                options.insert("fp".to_owned(), json!(["P", "E"]));
            },
            "fp",
        ),
        (|all| all[2]["options"]["deadline_mode"] = json!("on"), "deadline_mode"),
    ];
    for (change, named) in cases {
        let held = told(*change);
        assert!(held.unread.iter().any(|it| it.to_string().contains(named)), "{named}: {held:?}");
    }
    let short = told(|all| all[0]["options"]["max-sdu"] = json!([0, 99]));
    assert!(short.notes[0].contains("class 1 sends none above 99 B"), "{short:?}");
    let host = "timewire: 1\nkind: network\nname: sw\n\
                stations:\n- name: alpha\n  host:\n    \
         interfaces:\n    - { name: eth0, up: false, mtu: 900 }\n";
    let named = held(&[("sw.host.yaml", host.to_owned())]).unwrap().unread;
    let named: Vec<String> = named.iter().map(ToString::to_string).collect();
    assert_eq!(named, ["sw.host.yaml: eth0: mtu", "sw.host.yaml: eth0: up"]);
}

/// A request of a stream, with every leaf that is used.
fn request() -> Value {
    json!({"ieee802-dot1q-cnc-config:cnc-config": {"domain": [{"domain-id": "d", "cuc": [{
        "cuc-id": "u", "stream": [{
            "stream-id": "02-00-00-00-00-0a:00-01",
            "talker": {
                "end-station-interfaces":
                    [{"mac-address": "02-00-00-00-00-0a", "interface-name": ""}],
                "data-frame-specification":
                    [{"index": 0, "ieee802-vlan-tag": {"priority-code-point": 3, "vlan-id": 5}}],
                "traffic-specification": {
                    "interval": {"numerator": 1, "denominator": 1000},
                    "max-frames-per-interval": 1, "max-frame-size": 100,
                    "time-aware": {"earliest-transmit-offset": 0},
                },
                "user-to-network-requirements": {"max-latency": 300_000},
            },
            "listener": [{"index": 0, "end-station-interfaces":
                [{"mac-address": "02-00-00-00-00-0b", "interface-name": ""}]}],
        }],
    }]}]}})
}

fn scenario() -> (Value, Value) {
    let node = |id: &str, is_switch: bool| {
        json!({"id": id, "is_switch": is_switch, "processing_delay_ns": 2000,
            "fwd_header_b": null, "queues_per_port": 8})
    };
    let link = |key: &str, source: &str, target: &str| {
        json!({"key": key, "source": source, "target": target, "link_speed_mbps": 1000,
            "propagation_delay_ns": 0})
    };
    let topology = json!({
        "nodes": [node("n0", true), node("n1", false), node("n2", false)],
        "links": [link("e0", "n1", "n0"), link("e1", "n0", "n1"), link("e2", "n0", "n2"),
                  link("e3", "n2", "n0")],
    });
    let streams = json!({"s0": {"sources": ["n1"], "destinations": ["n2"],
        "cycle_time_ns": 1_000_000, "frame_size_b": 100, "max_latency_ns": null}});
    (streams, topology)
}

const TASK: &str = "stream,src,dst,size,period,deadline,jitter\n0,1,[2],100,100000,100000,0\n";
const TOPO: &str = "link,q_num,rate,t_proc,t_prop\n\"(0, 1)\",8,1,2000,0\n\"(1, 0)\",8,1,2000,0\n\
                    \"(0, 2)\",8,1,2000,0\n\"(2, 0)\",8,1,2000,0\n\"(0, 3)\",8,1,2000,0\n\
                    \"(3, 0)\",8,1,2000,0\n";

const LAUNCH: &str = "stream,frame,interface,priority,interval_ns,start_ns,launch_ns,bytes\n\
                      s,0,eth0,3,1000000,0,,100\n";

/// The same table with a column more, at this place.
fn with_column(table: &str, place: &prop::sample::Index, name: &str) -> String {
    let lines = table.lines().enumerate().map(|(number, line)| {
        // Fields with commas stand in quotation marks.
        let (mut fields, mut inside) = (vec![String::new()], false);
        for c in line.chars() {
            inside ^= c == '"';
            match c {
                ',' if !inside => fields.push(String::new()),
                _ => fields.last_mut().unwrap().push(c),
            }
        }
        let at = place.index(fields.len() + 1);
        fields.insert(at, if number == 0 { name.to_owned() } else { "1".to_owned() });
        fields.join(",") + "\n"
    });
    lines.collect()
}

/// All tables that are read, as they are written.
fn tables() -> &'static [String; 5] {
    static TABLES: OnceLock<[String; 5]> = OnceLock::new();
    TABLES.get_or_init(|| {
        let problem =
            read_tsnkit(("t", TASK.as_bytes()), ("n", TOPO.as_bytes()), Tsnkit::default()).unwrap();
        let made = plan(problem.clone(), Options::default(), 1_000);
        let all = write_tsnkit(&problem, &made).unwrap();
        [all.gcl, all.offset, all.queue, all.route, all.delay]
    })
}

fn result(tables: &[String; 5]) -> Result<(), String> {
    let problem =
        read_tsnkit(("t", TASK.as_bytes()), ("n", TOPO.as_bytes()), Tsnkit::default()).unwrap();
    let [gcl, offset, queue, route, delay] = tables.each_ref().map(|text| ("x", text.as_bytes()));
    let tables = TsnkitTables { gcl, offset, queue, route, delay: Some(delay) };
    read_tsnkit_result(&problem, &tables).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn t0_the_good_files_are_good() {
    assert_eq!(read_gates("x", older_xml([8, 1]).as_bytes()).unwrap().unread, []);
    assert_eq!(read_uni("x", request().to_string().as_bytes()).unwrap().unread, []);
    let (streams, topology) = scenario();
    let (streams, topology) = (streams.to_string(), topology.to_string());
    let how = Tsnbench::default();
    read_tsnbench(("s", streams.as_bytes()), ("t", topology.as_bytes()), how).unwrap();
    result(tables()).unwrap();
    let twice = "{\"ietf-interfaces:interfaces\": {}, \"ietf-interfaces:interfaces\": {}}";
    let error = read_gates("x", twice.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("there twice"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn t0_a_node_more_in_gates_is_named_or_refused(
        place in any::<prop::sample::Index>(), name in name(), value in value(),
    ) {
        let classes = json!({"traffic-class-table": {"priority3": 3},
            "traffic-class-map": [{"priority": 4, "available-traffic-class":
                [{"num-traffic-class": 8, "traffic-class": 4}]}]});
        for good in [older([8, 1]), current(&classes)] {
            let changed = with_member(&good, &place, &name, &value).to_string();
            is_told(read_gates("gates", changed.as_bytes()), &name)?;
        }
    }

    /// An element, an attribute or text, after any element's begin or end.
    #[test]
    fn t0_a_piece_more_in_xml_is_named_or_refused(
        place in any::<prop::sample::Index>(), name in "zz-[a-z]{1,8}", kind in 0..3_u8,
    ) {
        let good = older_xml([8, 1]);
        let root = good.find("<interfaces").unwrap();
        let ends: Vec<usize> = good.match_indices('>').map(|(at, _)| at)
            .filter(|at| *at > root).collect();
        let at = *place.get(&ends);
        let is_begin = !good[..at].rsplit('<').next().unwrap().starts_with('/');
        let changed = match kind {
            0 => format!("{}><{name}>1</{name}>{}", &good[..at], &good[at + 1..]),
            1 if is_begin => format!("{} {name}=\"1\">{}", &good[..at], &good[at + 1..]),
            _ => format!("{}> {name} {}", &good[..at], &good[at + 1..]),
        };
        let reading = read_gates("gates", changed.as_bytes());
        if let Ok(reading) = reading {
            let told = reading.unread.iter().any(|it| {
                it.path.contains(&name) || it.path.ends_with("#text")
            });
            // Text within a leaf is its value: the name of an interface.
            let is_value = reading.interfaces.iter().any(|it| it.interface.contains(&name));
            prop_assert!(told || is_value, "{changed}\n{reading:?}");
        }
    }

    #[test]
    fn t0_an_attribute_more_of_a_discipline_is_named_or_refused(
        place in any::<prop::sample::Index>(), name in name(), value in value(),
    ) {
        let changed = with_member(&tc(), &place, &name, &value);
        if let Ok(held) = held(&[("sw.tc.json", changed.to_string())]) {
            // How much a queue holds delays nothing.
            let is_limit = changed[1]["options"].get(&name).is_some();
            let told = held.unread.iter().any(|it| it.unread.path.contains(&name));
            prop_assert!(told || is_limit, "{name}: {held:?}");
        }
    }

    #[test]
    fn t0_a_node_more_in_a_request_is_named_or_refused(
        place in any::<prop::sample::Index>(), name in name(), value in value(),
    ) {
        let changed = with_member(&request(), &place, &name, &value);
        if let Ok(read) = read_uni("x", changed.to_string().as_bytes()) {
            let told = read.unread.iter().any(|it| it.path.contains(&name));
            prop_assert!(told, "{name}: {:?}", read.unread);
        }
    }

    #[test]
    fn t0_a_member_more_in_a_scenario_or_host_settings_is_refused(
        place in any::<prop::sample::Index>(), name in "zz-[a-z]{1,8}", value in value(),
        which in 0..2_u8,
    ) {
        let (mut streams, mut topology) = scenario();
        match which {
            // A member of the file of streams itself is a stream.
            0 => {
                let inner = with_member(&streams["s0"], &place, &name, &value);
                streams["s0"] = inner;
            }
            _ => topology = with_member(&topology, &place, &name, &value),
        }
        let (streams, topology) = (streams.to_string(), topology.to_string());
        let how = Tsnbench::default();
        let read = read_tsnbench(("s", streams.as_bytes()), ("t", topology.as_bytes()), how);
        prop_assert!(read.is_err(), "{streams} {topology}");
        let host = json!({"interfaces": [{"name": "eth0",
            "transmit": {"classes": [{"queues": "1@0"}], "gates": {"base_time": "0ns",
            "entries": [{"open": [0], "interval": "1ms"}]}}}]});
        let host = json!({"timewire": 1, "kind": "network", "name": "h",
            "stations": [{"name": "a", "host": host}]});
        prop_assert!(HostSettings::parse("h", &host.to_string()).is_ok());
        let host = with_member(&host, &place, &name, &value).to_string();
        prop_assert!(HostSettings::parse("h", &host).is_err(), "{host}");
    }

    #[test]
    fn t0_a_column_more_is_refused(
        place in any::<prop::sample::Index>(), name in "(zz-[a-z]{1,8})?", which in 0..8_usize,
    ) {
        let error = match which {
            0 => {
                let task = with_column(TASK, &place, &name);
                let read = read_tsnkit(
                    ("t", task.as_bytes()), ("n", TOPO.as_bytes()), Tsnkit::default(),
                );
                read.map(|_| ()).map_err(|error| error.to_string())
            }
            1 => {
                let topo = with_column(TOPO, &place, &name);
                let read = read_tsnkit(
                    ("t", TASK.as_bytes()), ("n", topo.as_bytes()), Tsnkit::default(),
                );
                read.map(|_| ()).map_err(|error| error.to_string())
            }
            2 => {
                let launch = LAUNCH;
                prop_assert!(read_launches("x", launch.as_bytes()).is_ok());
                let launch = with_column(launch, &place, &name);
                let read = read_launches("x", launch.as_bytes());
                read.map(|_| ()).map_err(|error| error.to_string())
            }
            table => {
                let mut all = tables().clone();
                all[table - 3] = with_column(&all[table - 3], &place, &name);
                result(&all)
            }
        };
        let error = error.unwrap_err();
        prop_assert!(error.contains(&format!("`{name}` is no column")), "{error}");
    }
}
