// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Desired configurations become trees, and trees are compared with what `tc -j -d qdisc show`
//! shows.

use timewire_base::{BitsPerSecond, FrameLen, IfName, SocketPriority, StationName};
use timewire_model::scenario::Scenario;
use timewire_model::scenario::host::HostSettings;
use timewire_tsn::desired::QdiscTree;
use timewire_tsn::file::ParseFile;
use timewire_tsn::qdisc::{PortLimits, ShownQdisc, TdmPort, taprio_of_station};

fn tree(transmit: &str) -> QdiscTree {
    let indented: String = transmit.lines().map(|line| format!("            {line}\n")).collect();
    let text = format!(
        "timewire: 1\nkind: network\nname: one\n\
         stations:\n- name: alpha\n  host:\n    interfaces:\n      - name: eth0\n        \
         transmit:\n{indented}"
    );
    let file = HostSettings::parse("one", &text).unwrap_or_else(|errors| panic!("{errors}"));
    let interface = &file.host.interfaces[0];
    QdiscTree::of_desired(&interface.name, interface.transmit.as_ref().unwrap()).unwrap()
}

fn lines(transmit: &str) -> Vec<String> {
    tree(transmit).to_string().lines().map(str::to_owned).collect()
}

const TWO: &str = "mqprio num_tc 2 map 1 1 1 0 1 1 1 1 1 1 1 1 1 1 1 1 queues 1@0 1@1 hw 0";

#[test]
fn t0_lengths_count_where_they_are_computed() {
    let class = "{ priorities: [3], queues: 1@0, shaper: { credit: { from: reservation, \
                 rate: 20Mbit, frame: 346B, port: 100Mbit } } }";
    let cbs = "cbs idleslope 20000 sendslope -80000 hicredit 309 locredit -277";
    // Under mqprio each queue computes for itself.
    assert_eq!(
        lines(&format!("overhead: 24B\nclasses: [{class}, {{ queues: 1@1 }}]")),
        [
            format!("tc qdisc replace dev eth0 root handle 100: {TWO}"),
            format!("tc qdisc replace dev eth0 parent 100:1 stab overhead 24 {cbs}"),
        ]
    );
    // Gates of the kernel compute at the root.
    let gates = "gates: { entries: [{ open: [0, 1], interval: 1ms }] }";
    let both = lines(&format!("overhead: 24B\nclasses: [{class}, {{ queues: 1@1 }}]\n{gates}"));
    assert!(both[0].contains("handle 100: stab overhead 24 taprio "), "{both:?}");
    assert_eq!(both[1], format!("tc qdisc replace dev eth0 parent 100:1 {cbs}"));
    // An interface as one queue.
    let alone = "overhead: 24B\nshaper: { credit: { from: reservation, rate: 20Mbit, frame: 346B, \
                 port: 100Mbit } }";
    assert_eq!(lines(alone), [format!("tc qdisc replace dev eth0 root stab overhead 24 {cbs}")]);
}

#[test]
fn t0_every_desired_of_gates_and_nics_reaches_its_word() {
    let full = lines(
        "classes:\n  - { priorities: [3], queues: 1@0, max_sdu: 300B }\n\
         \x20 - { queues: 1@1, preemptible: true }\n\
         gates:\n  mode: full_offload\n  base_time: 1s\n  cycle_time: 500us\n  \
         cycle_extension: 10us\n  entries:\n\
         \x20   - { open: [0], interval: 300us, operation: hold }\n\
         \x20   - { open: [1], interval: 200us, operation: release }\n",
    );
    let map = "num_tc 2 map 1 1 1 0 1 1 1 1 1 1 1 1 1 1 1 1 queues 1@0 1@1";
    assert_eq!(
        full,
        [format!(
            "tc qdisc replace dev eth0 root taprio {map} base-time 1000000000 \
             sched-entry H 01 300000 sched-entry R 02 200000 cycle-time 500000 \
             cycle-time-extension 10000 flags 0x2 max-sdu 300 fp E P"
        )]
    );
    let nic = lines(
        "handle: 1\nhardware: offload\nclasses:\n\
         \x20 - { priorities: [3], queues: 1@0, rate_min: 80Mbit, rate_max: 100Mbit }\n\
         \x20 - { queues: 1@1, rate_max: 8Mbit, preemptible: true }\n",
    );
    assert_eq!(
        nic,
        [format!(
            "tc qdisc replace dev eth0 root handle 1: mqprio {map} hw 1 mode channel \
             shaper bw_rlimit min_rate 10000000bps 0bps max_rate 12500000bps 1000000bps fp E P"
        )]
    );
    let alone = lines("launch_time: { delta: 200us, deadline: true, skip_sock_check: true }");
    assert_eq!(
        alone,
        ["tc qdisc replace dev eth0 root etf clockid CLOCK_TAI delta 200000 deadline_mode \
          skip_sock_check"]
    );
    let class_b = lines(
        "shaper: { offload: true, credit: { from: reservation, rate: 20Mbit, frame: 500B, \
         port: 100Mbit, interference: 1500B, above_rate: 25Mbit, above_frame: 300B } }",
    );
    assert_eq!(
        class_b,
        ["tc qdisc replace dev eth0 root cbs idleslope 20000 sendslope -80000 hicredit 460 \
          locredit -400 offload 1"]
    );
}

const MQPRIO_SHOWN: &str = r#"{"kind":"mqprio","handle":"100:","root":true,"options":{"tc":2,
    "map":[1,1,1,0,1,1,1,1,1,1,1,1,1,1,1,1],"queues":[[0,0],[1,1]]}}"#;
const ETF_SHOWN: &str = r#"{"kind":"etf","handle":"8003:","parent":"100:1","options":{
    "clockid":"TAI","delta":200000,"offload":"off","deadline_mode":"off",
    "skip_sock_check":"off"}}"#;
const FIFO_SHOWN: &str = r#"{"kind":"pfifo_fast","handle":"0:","parent":"100:2","options":{
    "bands":3}}"#;

fn differences(tree: &QdiscTree, shown: &[&str]) -> Vec<String> {
    let shown = ShownQdisc::parse(&format!("[{}]", shown.join(","))).unwrap();
    tree.differences(&shown).iter().map(ToString::to_string).collect()
}

#[test]
fn t0_what_is_there_is_compared_with_what_is_wanted() {
    let launch = "{ priorities: [3], queues: 1@0, launch_time: { delta: 200us } }";
    let tree_of = |root: &str| tree(&format!("{root}classes: [{launch}, {{ queues: 1@1 }}]"));
    let wanted = tree_of("");
    let same: [String; 0] = [];
    assert_eq!(differences(&wanted, &[MQPRIO_SHOWN, ETF_SHOWN, FIFO_SHOWN]), same);
    assert_eq!(
        differences(&wanted, &[MQPRIO_SHOWN, FIFO_SHOWN]),
        ["parent 100:1: nothing, not etf"]
    );
    let other = ETF_SHOWN.replace("200000", "300000");
    assert_eq!(
        differences(&wanted, &[MQPRIO_SHOWN, &other]),
        ["parent 100:1: etf clockid CLOCK_TAI delta 300000, not etf clockid CLOCK_TAI \
             delta 200000"]
    );
    let shaper = ETF_SHOWN.replace("100:1", "100:2");
    assert_eq!(
        differences(&wanted, &[MQPRIO_SHOWN, ETF_SHOWN, &shaper]),
        ["parent 100:2: etf, not desired"]
    );
    assert_eq!(
        differences(&wanted, &[FIFO_SHOWN]),
        ["root: nothing, not mqprio", "parent 100:1: nothing, not etf"]
    );
    assert_eq!(
        differences(&tree_of("handle: 7\n"), &[MQPRIO_SHOWN, ETF_SHOWN]),
        ["root: handle 100:, not 7:"]
    );
    let counted = MQPRIO_SHOWN.replace("\"root\"", "\"stab\":{\"overhead\":24},\"root\"");
    assert_eq!(
        differences(&wanted, &[&counted, ETF_SHOWN]),
        ["root: stab overhead 24, not no stab"]
    );
    // A root without a handle of its own has the kernel's.
    let plain = tree("classes: [{ priorities: [3], queues: 1@0 }, { queues: 1@1 }]");
    assert_eq!(differences(&plain, &[&MQPRIO_SHOWN.replace("100:", "8001:")]), same);
    // Disciplines of other interfaces do not matter.
    let elsewhere = ETF_SHOWN.replace("\"kind\"", "\"dev\":\"eth1\",\"kind\"");
    assert_eq!(differences(&plain, &[MQPRIO_SHOWN, &elsewhere]), same);
}

const TAPRIO_SHOWN: &str = r#"{"kind":"taprio","handle":"100:","root":true,"options":{"tc":2,
    "map":[1,1,1,0,1,1,1,1,1,1,1,1,1,1,1,1],"queues":[{"offset":0,"count":1},
    {"offset":1,"count":1}],"clockid":"TAI","base_time":0,"cycle_time":500000,
    "cycle_time_extension":0,"schedule":[{"index":0,"cmd":"S","gatemask":"0x1","interval":300000},
    {"index":1,"cmd":"S","gatemask":"0x2","interval":200000}],
    "max-sdu":[250,1500,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}}"#;

#[test]
fn t0_gates_are_compared_as_far_as_the_kernel_shows_them() {
    let of = |class: &str, last: &str| {
        tree(&format!(
            "handle: 100\nclasses: [{{ priorities: [3], queues: 1@0{class} }}, {{ queues: 1@1 }}]\n\
             gates: {{ entries: [{{ open: [0], interval: 300us }}, {{ open: [1], interval: {last} \
             }}] }}"
        ))
    };
    let same: [String; 0] = [];
    // The cycle is shown though none was given; no bound was desired, and the gates set some.
    assert_eq!(differences(&of("", "200us"), &[TAPRIO_SHOWN]), same);
    assert_eq!(differences(&of(", max_sdu: 250B", "200us"), &[TAPRIO_SHOWN]), same);
    assert_eq!(differences(&of(", max_sdu: 300B", "200us"), &[TAPRIO_SHOWN]), same);
    assert_eq!(differences(&of(", max_sdu: 200B", "200us"), &[TAPRIO_SHOWN]).len(), 1);
    assert_eq!(differences(&of("", "100us"), &[TAPRIO_SHOWN]).len(), 1);
    let none = TAPRIO_SHOWN.replace("250,1500", "0,0");
    assert_eq!(differences(&of(", max_sdu: 300B", "200us"), &[&none]).len(), 1);
}

#[test]
fn t0_what_may_surprise_is_told() {
    let told = |text: &str| -> Vec<String> {
        tree(text).warnings().iter().map(ToString::to_string).collect()
    };
    let shaper =
        "shaper: { credit: { from: reservation, rate: 20Mbit, frame: 346B, port: 1Gbit } }";
    assert_eq!(
        told(&format!(
            "classes: [{{ priorities: [3], queues: 2@0, {shaper} }}, {{ queues: 1@3 }}]"
        )),
        [
            "class 0 has 2 queues, and each of them may send at the rate that the class reserves: \
             give it one, or name one as the shaper's `queue`",
            "queue 2 is of no class: nothing is ever sent through it",
        ]
    );
    assert_eq!(
        told(
            "classes: [{ priorities: [3], queues: 1@0 }, { queues: 1@1 }]\n\
             gates: { entries: [{ open: [0], interval: 300us }] }"
        ),
        ["root: no entry opens the gate of traffic class 1: it never sends"]
    );
    assert_eq!(told("launch_time: { delta: 0ns }").len(), 1);
    assert_eq!(told("launch_time: { delta: 0ns, offload: true }").len(), 0);
    let wanted = tree("classes: [{ priorities: [3], queues: 1@0 }, { queues: 2@3 }]");
    let limits = PortLimits { tx_queues: 4, stated: BitsPerSecond::new(100_000_000).unwrap() };
    let problems: Vec<String> = wanted
        .problems(&limits)
        .iter()
        .map(|(place, problem)| format!("{place}: {problem}"))
        .collect();
    assert_eq!(problems, ["root: mqprio on 4 transmit queues: traffic class 1 has 2@3"]);
    let shaped = tree(shaper);
    let slopes: Vec<String> = shaped.warnings_on(&limits).iter().map(ToString::to_string).collect();
    assert_eq!(slopes.len(), 1, "{slopes:?}");
}

#[test]
fn t0_a_station_of_a_schedule_is_a_tree_with_its_gates() {
    let text = include_str!("../../../scenarios/tdm-64.yaml");
    let scenario = Scenario::parse("tdm-64.yaml", text).unwrap();
    let port = TdmPort {
        link: scenario.segment().rate,
        stated: scenario.segment().rate,
        largest: FrameLen::new(1_514).unwrap(),
        urgent: vec![SocketPriority::new(7).unwrap()],
    };
    let (alpha, lan) = (StationName::new("alpha").unwrap(), IfName::new("lan0").unwrap());
    let tree = QdiscTree::of_station(&lan, &scenario.schedule, &alpha, &port).unwrap();
    let gates = taprio_of_station(&scenario.schedule, &alpha, &port).unwrap();
    assert_eq!(tree.to_string(), format!("tc qdisc replace dev lan0 root handle 100: {gates}"),);
    assert!(tree.children().is_empty() && tree.warnings().is_empty());
    let nobody = StationName::new("nobody").unwrap();
    assert!(QdiscTree::of_station(&lan, &scenario.schedule, &nobody, &port).is_err());
}
