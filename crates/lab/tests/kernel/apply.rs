// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host settings are applied to a kernel that has all disciplines, and undone to what was there.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use timewire_base::IfName;
use timewire_host::HostError;
use timewire_host::apply::{
    self, Entry, Host, Log, RealHost, Setting, Settings, TransactionOutcome, UndoLog,
};
use timewire_lab::trial::Trial;
use timewire_model::scenario::host::HostSettings;
use timewire_tsn::file::ParseFile;

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_host_settings_are_applied_and_undone_exactly", files),
    Trial::new("t4_a_taprio_with_children_is_put_on_an_interface_in_use", children),
    // Before, the kernel has a discipline with a handle in each class already.
    Trial::new("t4_a_taprio_with_children_that_was_there_is_restored", restore),
];

/// A record in memory.
#[derive(Default)]
struct Memory(UndoLog);

impl Log for Memory {
    fn append(&mut self, entry: &Entry) -> Result<(), HostError> {
        self.0.take(entry.clone());
        Ok(())
    }
}

fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A pair with eight queues, addresses and routes of both families, and a VLAN on top.
fn pair() {
    sh("sysctl -qw net.ipv6.conf.default.accept_dad=0
        ip link add eth0 numtxqueues 8 numrxqueues 8 type veth \
            peer name far numtxqueues 8 numrxqueues 8
        ip link set far addrgenmode none; ip link set far up; ip link set eth0 up
        ip address add 10.9.0.1/24 dev eth0; ip address add fd00::1/64 dev eth0 nodad
        ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev eth0
        ip link add link eth0 name eth0.7 type vlan id 7 egress-qos-map 2:2
        ip link set eth0.7 up; ip address add fd07::1/64 dev eth0.7 nodad
        ip route add 10.10.0.0/16 via 10.9.0.2; ip route add fd01::/64 via fd00::2");
}

fn picture() -> String {
    sh("for i in eth0 eth0.7; do
            tc -d -r qdisc show dev $i; ip -d link show dev $i; ip address show dev $i
            ethtool -k $i
        done; ethtool -l eth0; ip neigh show nud permanent
        ip route; ip -6 route | sort; sysctl net.core.netdev_budget")
}

/// Applies, looks, undoes; `there` is told what is there in between.
fn there_and_back(what: &str, desired: &Settings, there: impl FnOnce()) {
    let before = picture();
    let mut log = Memory::default();
    match apply::apply(&mut RealHost, &mut log, desired, &|| None, &mut |_, _, _| {}) {
        Ok(TransactionOutcome::Done { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
    for (setting, value) in desired.iter() {
        let have = RealHost.observe(setting).unwrap();
        assert!(value.is_met_by(&have), "{what}: {setting} is {have}, not {value}");
    }
    println!("{what}: {} steps", log.0.steps.len());
    there();
    let undo_log = log.0.clone();
    let undone = apply::undo(&mut RealHost, &mut log, &undo_log, false).unwrap();
    assert_eq!(undone.left, [], "{what}: {:?}", undone.reasons);
    // A sub-interface of Linux 6.1 does not know its state before its link went down and up.
    let known = |text: String| text.replace("state UNKNOWN", "state UP");
    assert_eq!(known(picture()), known(before), "{what}");
}

fn desired_of(what: &str, text: &str) -> Settings {
    let file = HostSettings::parse(what, text).unwrap();
    let eth0 = IfName::new("eth0").unwrap();
    let real: BTreeMap<IfName, IfName> =
        file.host.interfaces.iter().map(|desired| (desired.name.clone(), eth0.clone())).collect();
    let wanted = apply::wanted(&file.host, &real, what);
    assert_eq!(wanted.errors, [""; 0], "{what}");
    wanted.settings
}

fn files() {
    pair();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/hosts");
    for name in ["taprio-software", "mqprio-three-classes", "mqprio-uneven", "cbs-20mbit-software"]
    {
        let text = fs::read_to_string(dir.join(name).with_extension("yaml")).unwrap();
        there_and_back(name, &desired_of(name, &text), || {});
    }
}

/// Frames that arrived at the other end.
fn arrived() -> u64 {
    let text = fs::read_to_string("/sys/class/net/far/statistics/rx_packets").unwrap();
    text.trim().parse().unwrap()
}

fn gates() -> Settings {
    let text = "
timewire: 1
kind: network
name: gates
stations:
  - name: alpha
    host:
      interfaces:
        - name: eth0
          mtu: 1400
          channels: { rx: 4, tx: 4 }
          vlans:
            - { id: 5, egress: [{ priority: 3, pcp: 3 }] }
          transmit:
            classes:
              - { priorities: [3], queues: 1@0, launch_time: { delta: 300us } }
              - { queues: 1@1 }
            gates:
              entries:
                - { open: [0], interval: 500us }
                - { open: [1], interval: 500us }
      sysctls:
        - { name: net.core.netdev_budget, value: '64' }
";
    desired_of("gates", text)
}

/// Its children end a taprio's timer when they come while the link is up; here frames go on to
/// leave, and what the link lost while it was down is there again.
fn children() {
    pair();
    there_and_back("gates", &gates(), || {
        let routes = sh("ip route; ip -6 route; ip address show dev eth0.7");
        for kept in ["10.10.0.0/16 via 10.9.0.2", "fd01::/64 via fd00::2", "fd07::1/64"] {
            assert!(routes.contains(kept), "{kept}: {routes}");
        }
        let (before, socket) = (arrived(), UdpSocket::bind("10.9.0.1:0").unwrap());
        for _ in 0..20 {
            socket.send_to(b"a frame", "10.9.0.2:9").unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(5));
        assert!(arrived() >= before + 20, "{} of 20 frames left", arrived() - before);
    });
}

/// One that was there before, with its children, is restored in the same way.
fn restore() {
    pair();
    let mut log = Memory::default();
    apply::apply(&mut RealHost, &mut log, &gates(), &|| None, &mut |_, _, _| {}).unwrap();
    let qdiscs = Setting::Qdiscs { interface: IfName::new("eth0").unwrap() };
    let other = "timewire: 1
kind: network
name: classes
stations:
  - name: alpha
    host:
      interfaces:
        - name: eth0
          transmit:
            classes: [{ priorities: [3], queues: 1@0 }, { queues: 1@1 }]
";
    let mut other = desired_of("classes", other);
    other = other.only(|setting| *setting == qdiscs);
    there_and_back("classes instead of gates", &other, || {});
    let undo_log = log.0.clone();
    let undone = apply::undo(&mut RealHost, &mut log, &undo_log, false).unwrap();
    assert_eq!(undone.left, []);
}
