// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every discipline for time-sensitive traffic, and a VLAN, in the snapshot of a real kernel.

use timewire_base::IfName;
use timewire_host::snapshot::Snapshot;
use timewire_host::tool::{Tool, run};
use timewire_lab::trial::Trial;
use timewire_tsn::qdisc::Qdisc;

pub const TRIALS: &[Trial] =
    &[Trial::new("t4_a_snapshot_has_each_discipline_as_it_was_set", disciplines)];

const SETTINGS: &[&str] = &[
    "mqprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0",
    "taprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 base-time 0 \
     sched-entry S 2 320000 sched-entry S 1 320000 cycle-time 640000 clockid CLOCK_TAI",
    // It has yet to start: iproute2 6.1 prints no JSON of it.
    "taprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 \
     base-time 4000000000000000000 sched-entry S 2 320000 sched-entry S 1 320000 \
     cycle-time 640000 clockid CLOCK_TAI",
    "etf clockid CLOCK_TAI delta 300000",
    "cbs idleslope 20000 sendslope -980000 hicredit 30 locredit -1470",
];

fn words(tool: Tool, line: &str) {
    run(tool, &line.split_whitespace().collect::<Vec<_>>()).unwrap();
}

fn now() -> Snapshot {
    Snapshot::of_this_host(&[IfName::new("s0").unwrap()]).unwrap()
}

fn disciplines() {
    words(Tool::Ip, "link add s0 numtxqueues 2 numrxqueues 2 type veth peer name s1");
    words(Tool::Ip, "link set s0 up");
    words(Tool::Ip, "link set s1 up");
    let name = IfName::new("s0").unwrap();
    let before = now();
    assert_eq!(before.settings.differences(&now().settings), []);
    for setting in SETTINGS {
        words(Tool::Tc, &format!("qdisc replace dev s0 root handle 100: {setting}"));
        let found = now();
        let qdiscs = found.settings.interfaces[&name].qdiscs.known().unwrap().clone();
        assert_eq!((qdiscs[0].handle.as_str(), qdiscs[0].parent.as_str()), ("100:", "root"));
        assert_eq!(qdiscs[0].qdisc().unwrap(), setting.parse::<Qdisc>().unwrap());
        let changed = before.settings.differences(&found.settings);
        let inside = |path: &str| path.starts_with("interfaces.s0.qdiscs");
        // Traffic classes show in the queues as well.
        let follows = |path: &str| path.ends_with("traffic_class") || path.ends_with("xps_cpus");
        for one in &changed {
            assert!(inside(&one.path) || follows(&one.path), "{setting}: {one}");
        }
        words(Tool::Tc, "qdisc del dev s0 root");
        assert_eq!(before.settings.differences(&now().settings), [], "{setting}");
    }
    words(
        Tool::Ip,
        "link add link s0 name s0.5 type vlan id 5 egress-qos-map 6:6 5:5 ingress-qos-map 3:4",
    );
    let vlan = now().settings.interfaces[&IfName::new("s0.5").unwrap()].vlan.clone().unwrap();
    let pairs: Vec<(u32, u32)> = vlan.egress.iter().map(|pair| (pair.from, pair.to)).collect();
    assert_eq!((vlan.id, pairs), (5, vec![(5, 5), (6, 6)]));
    words(Tool::Ip, "link del s0.5");
    assert_eq!(before.settings.differences(&now().settings), []);
}
